//! Where cryptography, wall-clock time and trust anchors come from.

use crate::sessions::SessionStore;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use neater_base::WallTime;
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use std::sync::Arc;

/// The value of a clock that was never set.
const UNSET: u64 = u64::MAX;

/// The wall clock of every TLS and QUIC session: what the engine last set it to, in milliseconds.
///
/// Certificates, tickets and cached sessions are judged by it. A clock that was never set gives no
/// time, and handshakes fail with [`crate::TlsError::ClockNotSet`] instead of accepting or refusing
/// certificates by a guess.
#[derive(Debug)]
pub struct Clock(AtomicU64);

impl Default for Clock {
    fn default() -> Self {
        Self(AtomicU64::new(UNSET))
    }
}

impl Clock {
    /// A clock that has not been set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the time. The engine does so at the start of a turn, when what it set last is some
    /// hundredths of a second old.
    pub fn set(&self, now: WallTime) {
        let millis = u64::try_from(now.0.as_millis()).unwrap_or(UNSET - 1).min(UNSET - 1);
        self.0.store(millis, Ordering::Relaxed);
    }

    /// The time last set, to the millisecond; `None` if none was.
    #[must_use]
    pub fn get(&self) -> Option<WallTime> {
        match self.0.load(Ordering::Relaxed) {
            UNSET => None,
            millis => Some(WallTime(Duration::from_millis(millis))),
        }
    }

    /// Whole seconds since 1970, 0 while unset.
    pub(crate) fn seconds(&self) -> u64 {
        self.get().map_or(0, |t| t.0.as_secs())
    }
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        self.get().map(|t| UnixTime::since_unix_epoch(t.0))
    }
}

/// What TLS and QUIC need from outside: cryptography with its randomness, the wall clock, the
/// system's trust anchors.
///
/// A clone shares the clock and the sessions.
#[derive(Clone)]
pub struct Crypto {
    /// Cipher suites, key exchange, signatures and the source of randomness.
    pub provider: Arc<CryptoProvider>,
    /// Wall-clock time.
    pub clock: Arc<Clock>,
    /// The system's trust anchors; empty until [`Crypto::with_roots`].
    pub roots: Arc<RootCertStore>,
    /// Why trust anchors are missing, in words, if loading them went wrong.
    pub roots_error: Option<Arc<str>>,
    /// The sessions that clients may resume: one store for all that use this, divided by isolation
    /// key.
    pub sessions: SessionStore,
    /// Where session keys are written for debugging, unless the parameters override it. A reader of
    /// them can decrypt everything.
    pub key_log: Option<Arc<dyn rustls::KeyLog>>,
    /// All randomness follows from a seed (`Crypto::deterministic`): what a protocol draws besides
    /// that of the provider has to follow from one, too.
    pub repeatable: bool,
}

impl Crypto {
    /// Cryptography of *ring* with the operating system's randomness, a clock yet to be set, no
    /// trust anchors.
    #[must_use]
    pub fn system() -> Self {
        Self::from_provider(rustls::crypto::ring::default_provider())
    }

    /// Cryptography of the given provider, a clock yet to be set, no trust anchors.
    #[must_use]
    pub fn from_provider(provider: CryptoProvider) -> Self {
        let clock = Arc::new(Clock::new());
        Self {
            provider: Arc::new(provider),
            sessions: SessionStore::new(clock.clone()),
            clock,
            roots: Arc::new(RootCertStore::empty()),
            roots_error: None,
            key_log: None,
            repeatable: false,
        }
    }

    /// The same with the system's trust anchors, and what went wrong while they were loaded.
    ///
    /// An error beside a non-empty store is kept but harmless: some anchors could not be read, the
    /// others are used.
    #[must_use]
    pub fn with_roots(self, roots: impl Into<Arc<RootCertStore>>, error: Option<String>) -> Self {
        Self { roots: roots.into(), roots_error: error.map(Arc::from), ..self }
    }
}

impl fmt::Debug for Crypto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crypto")
            .field("clock", &self.clock)
            .field("roots", &self.roots.len())
            .field("roots_error", &self.roots_error)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_tells_what_it_was_set_to_and_nothing_before() {
        let clock = Clock::new();
        assert!(clock.current_time().is_none());
        clock.set(WallTime(Duration::ZERO));
        assert_eq!(clock.current_time().map(|t| t.as_secs()), Some(0));
        clock.set(WallTime(Duration::from_micros(1_500_999)));
        assert_eq!(clock.get(), Some(WallTime(Duration::from_millis(1500))));
        clock.set(WallTime(Duration::MAX));
        assert!(clock.get().is_some());
    }
}
