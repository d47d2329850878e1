//! Session tickets that a server can open without having kept anything.
//!
//! One implementation for production and simulation: rustls' own reads the system's clock and
//! randomness, this one is given both. The sealed ticket is
//! `key name (16) | nonce (12) | sealed session | tag (16)`, ChaCha20-Poly1305 with the key name as
//! associated data.

use crate::provider::Clock;
use core::fmt;
use core::time::Duration;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rustls::crypto::SecureRandom;
use rustls::server::ProducesTickets;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How long a ticket may be opened after it was sealed, at most.
pub const TICKET_LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);
/// A key seals for this long and opens for as long again.
const ROTATION_SECS: u64 = TICKET_LIFETIME.as_secs() / 2;
const NAME_LEN: usize = 16;

struct Key {
    name: [u8; NAME_LEN],
    aead: LessSafeKey,
    made_at: u64,
}

#[derive(Default)]
struct Keys {
    current: Option<Key>,
    previous: Option<Key>,
    /// The longest ticket ever sealed; longer ones are not ours and are not worth opening.
    longest: usize,
}

/// Seals and opens tickets with keys that are replaced every six hours of wall-clock time and then
/// forgotten.
pub(crate) struct Ticketer {
    random: &'static dyn SecureRandom,
    clock: Arc<Clock>,
    keys: Mutex<Keys>,
}

impl Ticketer {
    pub(crate) fn new(random: &'static dyn SecureRandom, clock: Arc<Clock>) -> Self {
        Self { random, clock, keys: Mutex::new(Keys::default()) }
    }

    fn fresh_key(&self, made_at: u64) -> Option<Key> {
        let (mut name, mut secret) = ([0; NAME_LEN], [0; 32]);
        self.random.fill(&mut name).ok()?;
        self.random.fill(&mut secret).ok()?;
        let aead = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &secret).ok()?);
        Some(Key { name, aead, made_at })
    }

    /// The keys as of now, with those dropped that are too old. A clock that went backwards counts
    /// as a rotation.
    fn keys(&self) -> MutexGuard<'_, Keys> {
        let now = self.clock.seconds();
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let age = |key: &Key| now.checked_sub(key.made_at);
        if keys.current.as_ref().is_some_and(|k| age(k).is_none_or(|a| a >= ROTATION_SECS)) {
            keys.previous = keys.current.take();
        }
        // Whether or not the server seals anything meanwhile, a key dies at twice its sealing time.
        if keys.previous.as_ref().is_some_and(|k| age(k).is_some_and(|a| a >= 2 * ROTATION_SECS)) {
            keys.previous = None;
        }
        keys
    }
}

impl ProducesTickets for Ticketer {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        TICKET_LIFETIME.as_secs() as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let mut keys = self.keys();
        if keys.current.is_none() {
            keys.current = Some(self.fresh_key(self.clock.seconds())?);
        }
        let key = keys.current.as_ref()?;
        // A random nonce, because a counter would reveal to observers how busy the server is. Even
        // 2³² tickets of one key collide with a probability below 2⁻³².
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).ok()?;
        let mut ticket = Vec::with_capacity(NAME_LEN + NONCE_LEN + plain.len() + CHACHA20_POLY1305.tag_len());
        ticket.extend_from_slice(&key.name);
        ticket.extend_from_slice(&nonce);
        ticket.extend_from_slice(plain);
        let tag = key
            .aead
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(key.name),
                ticket.get_mut(NAME_LEN + NONCE_LEN..)?,
            )
            .ok()?;
        ticket.extend_from_slice(tag.as_ref());
        keys.longest = keys.longest.max(ticket.len());
        Some(ticket)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let keys = self.keys();
        if ticket.len() > keys.longest {
            return None;
        }
        let (name, rest) = ticket.split_at_checked(NAME_LEN)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN)?;
        let key = [&keys.current, &keys.previous].into_iter().flatten().find(|k| k.name == name)?;
        let mut plain = sealed.to_vec();
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let len = key.aead.open_in_place(nonce, Aad::from(key.name), &mut plain).ok()?.len();
        plain.truncate(len);
        Some(plain)
    }
}

impl fmt::Debug for Ticketer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticketer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use neater_base::WallTime;

    fn ticketer() -> (Ticketer, Arc<Clock>) {
        let crypto = crate::Crypto::deterministic([1; 32]);
        crypto.clock.set(WallTime(Duration::from_secs(1_000_000)));
        (Ticketer::new(crypto.provider.secure_random, crypto.clock.clone()), crypto.clock)
    }

    fn advance(clock: &Clock, hours: u64) {
        clock.set(WallTime(clock.get().unwrap().0 + Duration::from_secs(hours * 3600)));
    }

    #[test]
    fn a_ticket_opens_until_its_key_is_forgotten() {
        let (t, clock) = ticketer();
        let ticket = t.encrypt(b"session").unwrap();
        assert_eq!(t.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        advance(&clock, 7);
        let next = t.encrypt(b"next").unwrap();
        assert_ne!(ticket[..NAME_LEN], next[..NAME_LEN], "the key is replaced after six hours");
        assert_eq!(t.decrypt(&ticket).as_deref(), Some(&b"session"[..]), "the previous key still opens");
        advance(&clock, 7);
        assert!(t.encrypt(b"third").is_some());
        assert_eq!(t.decrypt(&ticket), None);
        assert_eq!(t.decrypt(&next).as_deref(), Some(&b"next"[..]));
    }

    #[test]
    fn an_idle_server_forgets_its_keys_too() {
        let (t, clock) = ticketer();
        let ticket = t.encrypt(b"session").unwrap();
        advance(&clock, 7);
        assert!(t.decrypt(&ticket).is_some());
        advance(&clock, 5);
        assert_eq!(t.decrypt(&ticket), None);
    }

    #[test]
    fn a_damaged_short_or_overlong_ticket_is_refused() {
        let (t, _clock) = ticketer();
        let ticket = t.encrypt(b"session").unwrap();
        for i in 0..ticket.len() {
            let mut bad = ticket.clone();
            bad[i] ^= 1;
            assert_eq!(t.decrypt(&bad), None, "byte {i}");
            assert_eq!(t.decrypt(&ticket[..i]), None, "cut at {i}");
        }
        let mut long = ticket.clone();
        long.push(0);
        assert_eq!(t.decrypt(&long), None);
    }
}
