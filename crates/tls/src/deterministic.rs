//! A crypto provider that is a function of a seed, for the simulator.
//!
//! Randomness and X25519 keys come from one [`Rng`]; cipher suites and verification are those of
//! *ring*; signatures are Ed25519, the only kind that needs no randomness of its own, or ECDSA on
//! P-256 (which is all that DTLS has here), made again until their *length* is always the same:
//! their bytes still differ from run to run, but no size and no time does. *Not* for programs that
//! meet a network: the seed reveals every key.

use crate::provider::Crypto;
use core::fmt;
use neater_base::Rng;
use rustls::crypto::{
    ActiveKeyExchange, CryptoProvider, GetRandomFailed, KeyProvider, SecureRandom, SharedSecret, SupportedKxGroup,
};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer};
use rustls::sign::{Signer, SigningKey};
use rustls::{Error, NamedGroup, PeerMisbehaved, SignatureAlgorithm, SignatureScheme};
use std::sync::{Arc, Mutex, PoisonError};
use x25519_dalek::{PublicKey, StaticSecret};

impl Crypto {
    /// Cryptography whose every byte follows from `seed` and the order of calls.
    ///
    /// The order is that of the calls from all threads together, so a repeatable run uses one
    /// thread. Private keys must be Ed25519 or ECDSA P-256 in PKCS#8; of a signature of the latter
    /// kind only the length is repeatable. Each call leaks some 400 bytes, because rustls wants a
    /// source of randomness that lives for ever: make one per simulated host, not one per
    /// connection.
    #[must_use]
    pub fn deterministic(seed: [u8; 32]) -> Self {
        let source: &'static Source = Box::leak(Box::new(Source(Mutex::new(Rng::new(seed)))));
        let group: &'static X25519 = Box::leak(Box::new(X25519(source)));
        let provider = CryptoProvider {
            kx_groups: vec![group],
            secure_random: source,
            key_provider: &Repeatable,
            ..rustls::crypto::ring::default_provider()
        };
        Self { repeatable: true, ..Self::from_provider(provider) }
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

/// Loads Ed25519 and P-256 keys and refuses the rest: RSA-PSS signatures of *ring* draw from the
/// operating system.
#[derive(Debug)]
struct Repeatable;

impl KeyProvider for Repeatable {
    fn load_private_key(&self, key: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        let refuse =
            || Error::General("the deterministic provider signs with Ed25519 or P-256 keys in PKCS#8 only".into());
        let PrivateKeyDer::Pkcs8(pkcs8) = &key else { return Err(refuse()) };
        if let Ok(key) = rustls::crypto::ring::sign::any_eddsa_type(pkcs8) {
            return Ok(key);
        }
        let key = rustls::crypto::ring::sign::any_ecdsa_type(&key).map_err(|_| refuse())?;
        match key.choose_scheme(&[SignatureScheme::ECDSA_NISTP256_SHA256]) {
            Some(_) => Ok(Arc::new(Steady(key))),
            None => Err(refuse()),
        }
    }
}

/// An ECDSA key on P-256 all of whose signatures are equally long.
#[derive(Debug)]
struct Steady(Arc<dyn SigningKey>);

impl SigningKey for Steady {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        self.0.choose_scheme(offered).map(|s| Box::new(SteadySigner(s)) as Box<dyn Signer>)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        self.0.public_key()
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.0.algorithm()
    }
}

#[derive(Debug)]
struct SteadySigner(Box<dyn Signer>);

/// The length of half of all ECDSA signatures on P-256 in DER: of the two integers of 32 bytes, one
/// needs a leading zero.
const STEADY: usize = 71;

impl Signer for SteadySigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        // Half of all attempts do it, so this many fail once in 2¹²⁸.
        for _ in 0..128 {
            let signature = self.0.sign(message)?;
            if signature.len() == STEADY {
                return Ok(signature);
            }
        }
        Err(Error::General("no signature of the usual length".into()))
    }

    fn scheme(&self) -> SignatureScheme {
        self.0.scheme()
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

    #[cfg(feature = "self-signed")]
    #[test]
    fn signatures_on_p256_are_equally_long() {
        let wall = neater_base::WallTime(core::time::Duration::from_secs(1_700_000_000));
        let identity = crate::self_signed_p256(&["a.example"], wall).unwrap();
        let provider = Crypto::deterministic([5; 32]).provider;
        let key = provider.key_provider.load_private_key(identity.key.clone_key()).unwrap();
        let signer = key.choose_scheme(&[SignatureScheme::ECDSA_NISTP256_SHA256]).unwrap();
        assert!((0..20u8).all(|i| signer.sign(&[i]).unwrap().len() == STEADY));
    }
}
