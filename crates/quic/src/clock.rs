//! Between our time and the standard library's.

use neater_base::Instant;

/// Maps our constructible instants to the opaque ones that quinn-proto takes.
///
/// The standard library's `Instant` cannot be built from a number, so one is read at creation and
/// everything is counted from it. The origin cancels out: only differences reach the protocol, so a
/// run stays a function of its inputs.
#[derive(Clone, Copy, Debug)]
pub struct Epoch(std::time::Instant);

impl Epoch {
    /// An arbitrary origin.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "an opaque origin; only differences to it are ever used")]
    pub fn new() -> Self {
        Self(std::time::Instant::now())
    }

    pub(crate) fn theirs(self, t: Instant) -> std::time::Instant {
        self.0 + core::time::Duration::from_nanos(t.as_nanos())
    }

    pub(crate) fn ours(self, t: std::time::Instant) -> Instant {
        Instant::ZERO + t.saturating_duration_since(self.0)
    }
}

impl Default for Epoch {
    fn default() -> Self {
        Self::new()
    }
}
