//! The cryptography that dimpl asks for, out of rustls's provider and *ring*.
//!
//! Key exchange, signatures and random bytes are those of the provider in [`neater_tls::Crypto`];
//! hashes and ciphers are *ring*'s, which that provider is made of, too. Only one block of AES at a
//! time, for record numbers in 1.3 (RFC 9147 section 4.2.3), is not to be had from *ring*: that is
//! the crate `aes`.

mod ciphers;
mod keys;

pub(crate) use keys::is_usable;

use crate::scope;
use core::fmt;
use dimpl::crypto::{Buf, CryptoProvider, HashContext, HashProvider, HmacProvider, SecureRandom, SupportedKxGroup};
use dimpl::{CryptoError, CryptoOperation, HashAlgorithm};
use ring::{digest, hmac};
use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, PoisonError};

/// dimpl's provider over that of rustls. dimpl checks it against known answers whenever a
/// configuration is made of it.
pub(crate) fn provider(rustls: &rustls::crypto::CryptoProvider) -> CryptoProvider {
    CryptoProvider {
        kx_groups: groups(rustls),
        signature_verification: &keys::Verify,
        key_provider: &keys::Lent,
        secure_random: random(rustls),
        hash_provider: &Hashes,
        hmac_provider: &Hmacs,
        cipher_suites: ciphers::SUITES_12,
        dtls13_cipher_suites: ciphers::SUITES_13,
    }
}

type Groups = &'static [&'static dyn SupportedKxGroup];
type Random = &'static dyn SecureRandom;

type TheirGroup = &'static dyn rustls::crypto::SupportedKxGroup;
type TheirRandom = &'static dyn rustls::crypto::SecureRandom;

/// What was wrapped once is found again: dimpl wants references that live for ever, and so, once
/// per set of groups and per source of randomness, it gets them. They are distinguished by address
/// and type together, since things without a size may share an address.
struct Wrapped {
    groups: Vec<(Vec<TheirGroup>, Groups)>,
    random: Vec<(TheirRandom, Random)>,
}

static WRAPPED: Mutex<Wrapped> = Mutex::new(Wrapped { groups: Vec::new(), random: Vec::new() });

fn groups(rustls: &rustls::crypto::CryptoProvider) -> Groups {
    let mut wrapped = WRAPPED.lock().unwrap_or_else(PoisonError::into_inner);
    #[allow(ambiguous_wide_pointer_comparisons, reason = "taken for different at worst, and wrapped again")]
    let same = |have: &[TheirGroup]| {
        have.len() == rustls.kx_groups.len() && have.iter().zip(&rustls.kx_groups).all(|(a, b)| core::ptr::eq(*a, *b))
    };
    if let Some((_, found)) = wrapped.groups.iter().find(|(have, _)| same(have)) {
        return found;
    }
    let usable = rustls.kx_groups.iter().filter(|g| keys::group(g.name()).is_some());
    let usable =
        usable.map(|g| -> &'static dyn SupportedKxGroup { Box::leak(Box::new(keys::Group(AssertUnwindSafe(*g)))) });
    let made: Groups = Vec::leak(usable.collect());
    wrapped.groups.push((rustls.kx_groups.clone(), made));
    made
}

fn random(rustls: &rustls::crypto::CryptoProvider) -> Random {
    let theirs = rustls.secure_random;
    let mut wrapped = WRAPPED.lock().unwrap_or_else(PoisonError::into_inner);
    #[allow(ambiguous_wide_pointer_comparisons, reason = "as above")]
    if let Some((_, found)) = wrapped.random.iter().find(|(have, _)| core::ptr::eq(*have, theirs)) {
        return *found;
    }
    let made: Random = Box::leak(Box::new(Randomness(AssertUnwindSafe(theirs))));
    wrapped.random.push((theirs, made));
    made
}

struct Randomness(AssertUnwindSafe<&'static dyn rustls::crypto::SecureRandom>);

impl fmt::Debug for Randomness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Randomness")
    }
}

impl SecureRandom for Randomness {
    fn fill(&self, buf: &mut [u8]) -> Result<(), CryptoError> {
        self.0.fill(buf).map_err(|_| CryptoError::OperationFailed(CryptoOperation::FillRandom))
    }
}

#[derive(Debug)]
struct Hashes;

impl HashProvider for Hashes {
    fn create_hash(&self, algorithm: HashAlgorithm) -> Box<dyn HashContext> {
        // dimpl asks for what its suites name, and ours name these two.
        let algorithm = if algorithm == HashAlgorithm::SHA384 { &digest::SHA384 } else { &digest::SHA256 };
        Box::new(Hash(digest::Context::new(algorithm)))
    }
}

struct Hash(digest::Context);

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hash")
    }
}

impl HashContext for Hash {
    fn update(&mut self, data: &[u8]) {
        scope::see_transcript(data);
        self.0.update(data);
    }

    fn clone_and_finalize(&self, out: &mut Buf) {
        out.clear();
        out.extend_from_slice(self.0.clone().finish().as_ref());
    }
}

#[derive(Debug)]
struct Hmacs;

impl HmacProvider for Hmacs {
    fn hmac(&self, hash: HashAlgorithm, key: &[u8], data: &[u8], out: &mut [u8]) -> Result<usize, CryptoError> {
        let algorithm = match hash {
            HashAlgorithm::SHA256 => hmac::HMAC_SHA256,
            HashAlgorithm::SHA384 => hmac::HMAC_SHA384,
            other => return Err(CryptoError::UnsupportedHmacHash(other)),
        };
        let tag = hmac::sign(&hmac::Key::new(algorithm, key), data);
        let tag = tag.as_ref();
        out.get_mut(..tag.len())
            .ok_or(CryptoError::OperationFailed(CryptoOperation::ComputeHmac))?
            .copy_from_slice(tag);
        Ok(tag.len())
    }
}
