//! A crypto provider that is a function of a seed, for the simulator.
//!
//! Randomness and X25519 keys come from one [`Rng`]; cipher suites and verification are those of *ring*; signatures are
//! Ed25519, the only kind that needs no randomness of its own. *Not* for programs that meet a network: who knows the
//! seed knows every key.

use crate::provider::Crypto;
use core::fmt;
use neater_base::Rng;
use rustls::crypto::{
    ActiveKeyExchange, CryptoProvider, GetRandomFailed, KeyProvider, SecureRandom, SharedSecret, SupportedKxGroup,
};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::SigningKey;
use rustls::{Error, NamedGroup, PeerMisbehaved};
use std::sync::{Arc, Mutex, PoisonError};
use x25519_dalek::{PublicKey, StaticSecret};

impl Crypto {
    /// Cryptography whose every byte follows from `seed` and the order of calls.
    ///
    /// The order is that of the calls from all threads together, so a repeatable run uses one thread. Private keys must be
    /// Ed25519 in PKCS#8. Each call leaks some 400 bytes, because rustls wants a source of randomness that lives for
    /// ever: make one per simulated host, not one per connection.
    #[must_use]
    pub fn deterministic(seed: [u8; 32]) -> Self {
        let source: &'static Source = Box::leak(Box::new(Source(Mutex::new(Rng::new(seed)))));
        let group: &'static X25519 = Box::leak(Box::new(X25519(source)));
        Self::from_provider(CryptoProvider {
            kx_groups: vec![group],
            secure_random: source,
            key_provider: &Ed25519Only,
            ..rustls::crypto::ring::default_provider()
        })
    }
}

struct Source(Mutex<Rng>);

impl Source {
    fn draw(&self, out: &mut [u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).fill(out);
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source")
    }
}

impl SecureRandom for Source {
    fn fill(&self, buf: &mut [u8]) -> Result<(), GetRandomFailed> {
        self.draw(buf);
        Ok(())
    }
}

#[derive(Debug)]
struct X25519(&'static Source);

impl SupportedKxGroup for X25519 {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let mut bytes = [0; 32];
        self.0.draw(&mut bytes);
        let secret = StaticSecret::from(bytes);
        let public = PublicKey::from(&secret);
        Ok(Box::new(Exchange { secret, public }))
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

struct Exchange {
    secret: StaticSecret,
    public: PublicKey,
}

impl ActiveKeyExchange for Exchange {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        let peer: [u8; 32] = peer.try_into().map_err(|_| PeerMisbehaved::InvalidKeyShare)?;
        let shared = self.secret.diffie_hellman(&PublicKey::from(peer));
        if !shared.was_contributory() {
            return Err(PeerMisbehaved::InvalidKeyShare.into());
        }
        Ok(SharedSecret::from(&shared.as_bytes()[..]))
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn pub_key(&self) -> &[u8] {
        self.public.as_bytes()
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

/// Loads Ed25519 keys and refuses the rest: ECDSA and RSA-PSS signatures of *ring* draw from the operating system.
#[derive(Debug)]
struct Ed25519Only;

impl KeyProvider for Ed25519Only {
    fn load_private_key(&self, key: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        match &key {
            PrivateKeyDer::Pkcs8(pkcs8) => rustls::crypto::ring::sign::any_eddsa_type(pkcs8),
            _ => Err(Error::General("the deterministic provider signs with Ed25519 keys in PKCS#8 only".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn public_key(seed: u8) -> Vec<u8> {
        let crypto = Crypto::deterministic([seed; 32]);
        crypto.provider.kx_groups[0].start().unwrap().pub_key().to_vec()
    }

    #[test]
    fn the_same_seed_gives_the_same_keys_and_another_seed_others() {
        assert_eq!(public_key(1), public_key(1));
        assert_ne!(public_key(1), public_key(2));
    }

    #[test]
    fn key_exchange_agrees_with_that_of_ring() {
        let ours = Crypto::deterministic([3; 32]).provider.kx_groups[0].start().unwrap();
        let rings = rustls::crypto::ring::kx_group::X25519.start().unwrap();
        let (our_public, ring_public) = (ours.pub_key().to_vec(), rings.pub_key().to_vec());
        let a = ours.complete(&ring_public).unwrap();
        let b = rings.complete(&our_public).unwrap();
        assert_eq!(a.secret_bytes(), b.secret_bytes());
    }

    #[test]
    fn a_key_share_of_small_order_or_wrong_length_is_refused() {
        let group = Crypto::deterministic([4; 32]).provider.kx_groups[0];
        assert!(group.start().unwrap().complete(&[0; 32]).is_err());
        assert!(group.start().unwrap().complete(&[9; 31]).is_err());
        assert!(group.start().unwrap().complete(&[]).is_err());
    }
}
