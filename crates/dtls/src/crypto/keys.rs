//! Key exchange, signatures and their verification.

use crate::scope;
use core::fmt;
use dimpl::crypto::{ActiveKeyExchange, Buf, KeyProvider, SignatureVerifier, SigningKey, SupportedKxGroup};
use dimpl::{CryptoError, CryptoOperation, HashAlgorithm, NamedGroup, SignatureAlgorithm};
use rustls::SignatureScheme;
use rustls::pki_types::{CertificateDer, SignatureVerificationAlgorithm};
use rustls::sign::{CertifiedKey, Signer};
use std::panic::AssertUnwindSafe;

/// What dimpl calls a group of rustls's; `None`: it has no such group.
pub(super) fn group(group: rustls::NamedGroup) -> Option<NamedGroup> {
    match group {
        rustls::NamedGroup::X25519 => Some(NamedGroup::X25519),
        rustls::NamedGroup::secp256r1 => Some(NamedGroup::Secp256r1),
        rustls::NamedGroup::secp384r1 => Some(NamedGroup::Secp384r1),
        _ => None,
    }
}

pub(super) struct Group(pub(super) AssertUnwindSafe<&'static dyn rustls::crypto::SupportedKxGroup>);

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.name().fmt(f)
    }
}

impl SupportedKxGroup for Group {
    fn name(&self) -> NamedGroup {
        group(self.0.name()).unwrap_or(NamedGroup::X25519)
    }

    fn start_exchange(&self, _buf: Buf) -> Result<Box<dyn ActiveKeyExchange>, CryptoError> {
        let exchange = self.0.start().map_err(|_| CryptoError::OperationFailed(CryptoOperation::StartKeyExchange))?;
        Ok(Box::new(Exchange { exchange: AssertUnwindSafe(exchange), group: self.name() }))
    }
}

struct Exchange {
    exchange: AssertUnwindSafe<Box<dyn rustls::crypto::ActiveKeyExchange>>,
    group: NamedGroup,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").field("group", &self.group).finish_non_exhaustive()
    }
}

impl ActiveKeyExchange for Exchange {
    fn pub_key(&self) -> &[u8] {
        self.exchange.pub_key()
    }

    fn complete(self: Box<Self>, peer: &[u8], out: &mut Buf) -> Result<(), CryptoError> {
        let secret = self.exchange.0.complete(peer).map_err(|_| CryptoError::InvalidPublicKey(self.group))?;
        out.clear();
        out.extend_from_slice(secret.secret_bytes());
        Ok(())
    }

    fn group(&self) -> NamedGroup {
        self.group
    }
}

/// The two schemes that dimpl can sign with, as rustls names them.
const SCHEMES: [(SignatureScheme, HashAlgorithm); 2] = [
    (SignatureScheme::ECDSA_NISTP256_SHA256, HashAlgorithm::SHA256),
    (SignatureScheme::ECDSA_NISTP384_SHA384, HashAlgorithm::SHA384),
];

fn signer(key: &CertifiedKey) -> Option<(Box<dyn Signer>, HashAlgorithm)> {
    let signer = key.key.choose_scheme(&SCHEMES.map(|(scheme, _)| scheme))?;
    let (_, hash) = SCHEMES.into_iter().find(|(scheme, _)| *scheme == signer.scheme())?;
    Some((signer, hash))
}

/// Whether dimpl can sign with this key: it does nothing but ECDSA on P-256 and P-384.
pub(crate) fn is_usable(key: &CertifiedKey) -> bool {
    signer(key).is_some()
}

/// "Loads" the key that is lent with the session, whatever the bytes are.
#[derive(Debug)]
pub(super) struct Lent;

impl KeyProvider for Lent {
    fn load_private_key(&self, _der: &[u8]) -> Result<Box<dyn SigningKey>, CryptoError> {
        let lent = scope::with(|s| s.identity.clone()).flatten();
        Ok(match lent.as_deref().and_then(signer) {
            Some((signer, hash)) => Box::new(Key { signer: AssertUnwindSafe(signer), hash: [hash] }),
            None => Box::new(NoKey),
        })
    }
}

struct Key {
    signer: AssertUnwindSafe<Box<dyn Signer>>,
    hash: [HashAlgorithm; 1],
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("hash", &self.hash).finish_non_exhaustive()
    }
}

impl SigningKey for Key {
    fn sign(&mut self, data: &[u8], hash: HashAlgorithm, out: &mut Buf) -> Result<(), CryptoError> {
        let [own] = self.hash;
        if hash != own {
            return Err(CryptoError::SigningKeyHashMismatch { key_hash: own, requested: hash });
        }
        let signature = self.signer.sign(data).map_err(|e| {
            scope::with(|s| s.unsigned = Some(e.to_string().into()));
            CryptoError::OperationFailed(CryptoOperation::Sign)
        })?;
        out.clear();
        out.extend_from_slice(&signature);
        Ok(())
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }

    fn hash_algorithm(&self) -> HashAlgorithm {
        self.hash[0]
    }

    fn supported_hash_algorithms(&self) -> &[HashAlgorithm] {
        &self.hash
    }
}

/// The key of a client that has none: dimpl wants one before it knows whether it will be asked for.
#[derive(Debug)]
struct NoKey;

impl SigningKey for NoKey {
    fn sign(&mut self, _data: &[u8], _hash: HashAlgorithm, _out: &mut Buf) -> Result<(), CryptoError> {
        scope::with(|s| s.no_key = true);
        Err(CryptoError::NoPrivateKeyConfigured)
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }

    fn hash_algorithm(&self) -> HashAlgorithm {
        HashAlgorithm::SHA256
    }

    fn supported_hash_algorithms(&self) -> &[HashAlgorithm] {
        &[HashAlgorithm::SHA256]
    }
}

/// Verifies that the peer owns the key of its certificate. Whether the certificate is to be trusted
/// is the session's affair.
#[derive(Debug)]
pub(super) struct Verify;

impl SignatureVerifier for Verify {
    fn verify_signature(
        &self,
        certificate: &[u8],
        data: &[u8],
        signature: &[u8],
        hash: HashAlgorithm,
        algorithm: SignatureAlgorithm,
    ) -> Result<(), CryptoError> {
        if algorithm != SignatureAlgorithm::ECDSA {
            return Err(CryptoError::UnsupportedSignatureAlgorithm(algorithm));
        }
        // In 1.2 the hash does not determine the curve (RFC 5246 section 7.4.1.4.1): the
        // certificate does.
        let (scheme, algorithms): (_, [&dyn SignatureVerificationAlgorithm; 2]) = match hash {
            HashAlgorithm::SHA256 => (SCHEMES[0].0, [webpki::ring::ECDSA_P256_SHA256, webpki::ring::ECDSA_P384_SHA256]),
            HashAlgorithm::SHA384 => (SCHEMES[1].0, [webpki::ring::ECDSA_P384_SHA384, webpki::ring::ECDSA_P256_SHA384]),
            _ => return Err(CryptoError::UnsupportedSignatureAlgorithm(algorithm)),
        };
        let allowed = scope::with(|s| s.schemes.is_empty() || s.schemes.contains(&scheme)).unwrap_or(true);
        if !allowed {
            return Err(CryptoError::SignatureAlgorithmNotOfferedByClient);
        }
        let certificate = CertificateDer::from(certificate);
        let certificate =
            webpki::EndEntityCert::try_from(&certificate).map_err(|_| CryptoError::CertificateParseFailed)?;
        let verified = algorithms.into_iter().any(|a| certificate.verify_signature(a, data, signature).is_ok());
        if verified { Ok(()) } else { Err(CryptoError::OperationFailed(CryptoOperation::VerifySignature)) }
    }
}
