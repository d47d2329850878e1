//! The cryptography that dimpl asks for, out of rustls's provider and *ring*.
//!
//! Key exchange, signatures and random bytes are those of the provider in [`neater_tls::Crypto`]; hashes and ciphers are
//! *ring*'s, which that provider is made of, too. Only one block of AES at a time, for record numbers in 1.3 (RFC 9147
//! section 4.2.3), is not to be had from *ring*: that is the crate `aes`.

mod ciphers;
mod keys;

pub(crate) use keys::is_usable;

use crate::scope;
use core::fmt;
use dimpl::crypto::{Buf, CryptoProvider, HashContext, HashProvider, HmacProvider, SecureRandom, SupportedKxGroup};
use dimpl::{CryptoError, CryptoOperation, HashAlgorithm};
use ring::{digest, hmac};
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, PoisonError};

/// dimpl's provider over that of rustls. dimpl checks it against known answers whenever a configuration is made of it.
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

/// What was wrapped once is found again: dimpl wants references that live for ever, and so, once per set of groups and per
/// source of randomness, it gets them. Both live for ever themselves, so their addresses name them.
static WRAPPED: Mutex<(BTreeMap<Vec<usize>, Groups>, BTreeMap<usize, Random>)> =
    Mutex::new((BTreeMap::new(), BTreeMap::new()));

fn groups(rustls: &rustls::crypto::CryptoProvider) -> Groups {
    let address = |g: &&'static dyn rustls::crypto::SupportedKxGroup| core::ptr::from_ref(*g).cast::<()>() as usize;
    let names = |g: &&'static dyn rustls::crypto::SupportedKxGroup| usize::from(u16::from(g.name()));
    // The groups of ring have no size, so several may be at one address.
    let key = rustls.kx_groups.iter().flat_map(|g| [address(g), names(g)]).collect();
    let mut wrapped = WRAPPED.lock().unwrap_or_else(PoisonError::into_inner);
    *wrapped.0.entry(key).or_insert_with(|| {
        let list = rustls.kx_groups.iter().filter(|g| keys::group(g.name()).is_some());
        let list =
            list.map(|g| -> &'static dyn SupportedKxGroup { Box::leak(Box::new(keys::Group(AssertUnwindSafe(*g)))) });
        Vec::leak(list.collect())
    })
}

fn random(rustls: &rustls::crypto::CryptoProvider) -> Random {
    let key = core::ptr::from_ref(rustls.secure_random).cast::<()>() as usize;
    let mut wrapped = WRAPPED.lock().unwrap_or_else(PoisonError::into_inner);
    *wrapped.1.entry(key).or_insert_with(|| Box::leak(Box::new(Randomness(AssertUnwindSafe(rustls.secure_random)))))
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
