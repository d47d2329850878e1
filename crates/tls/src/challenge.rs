//! Private-key operations that the application approves, or does itself: RFC 9622 section 6.3.8,
//! `SetIdentityChallengeCallback`.

use crate::error::SecurityError;
use core::fmt;
use rustls::pki_types::{AlgorithmIdentifier, CertificateDer, SubjectPublicKeyInfoDer, alg_id};
use rustls::server::ParsedCertificate;
use rustls::sign::{Signer, SigningKey};
use rustls::{Error, SignatureAlgorithm, SignatureScheme};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A handshake needs our signature, because the peer requests our identity.
#[derive(Clone, Copy, Debug)]
pub struct Challenge<'a> {
    /// Whose key it takes: the chain of the identity, end entity first.
    pub chain: &'a [CertificateDer<'static>],
    /// How to sign.
    pub scheme: SignatureScheme,
    /// What to sign. It is not a hash: the scheme determines its hash.
    pub message: &'a [u8],
}

/// The application's answer to a [`Challenge`].
#[derive(Clone, PartialEq, Eq)]
pub enum Answer {
    /// Sign with the key in memory. An identity without one cannot; the handshake fails then.
    Sign,
    /// This is the signature, from wherever the key is: in the encoding of TLS, which for ECDSA is
    /// DER.
    Signature(Vec<u8>),
    /// Do not sign: the handshake fails.
    Refuse,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sign => "Sign",
            Self::Signature(_) => "Signature",
            Self::Refuse => "Refuse",
        })
    }
}

/// Asked whenever a handshake needs a signature of ours, as a client or as a server.
///
/// As the handshake waits for it, it is called while the engine is at work: it must neither block
/// for long nor call back into the engine. A panic in it is a refusal. A key that takes long to
/// sign is better asked by a process of its own, ahead of connections. It is not asked when a
/// session is resumed.
pub type IdentityChallenge = Arc<dyn Fn(&Challenge<'_>) -> Answer + Send + Sync>;

/// A key behind the application's callback.
pub(crate) struct Challenged {
    pub(crate) chain: Arc<[CertificateDer<'static>]>,
    pub(crate) callback: IdentityChallenge,
    /// The key in memory, or the certificate's description of the one elsewhere.
    pub(crate) key: Key,
}

pub(crate) enum Key {
    Here(Arc<dyn SigningKey>),
    Elsewhere(SignatureAlgorithm, Vec<SignatureScheme>),
}

impl Key {
    /// What a key elsewhere can sign with, by its certificate.
    pub(crate) fn elsewhere(
        certificate: &CertificateDer<'_>,
        allowed: &[SignatureScheme],
    ) -> Result<Self, SecurityError> {
        use SignatureScheme as S;
        let bad = |e: &dyn fmt::Display| SecurityError::BadCertificate(e.to_string().into());
        let parsed = ParsedCertificate::try_from(certificate).map_err(|e| bad(&e))?;
        let key = parsed.subject_public_key_info();
        let is = |id: &AlgorithmIdentifier| key.as_ref().windows(id.len()).take(16).any(|w| w == id.as_ref());
        let (algorithm, schemes) = if is(&alg_id::ECDSA_P256) {
            (SignatureAlgorithm::ECDSA, vec![S::ECDSA_NISTP256_SHA256])
        } else if is(&alg_id::ECDSA_P384) {
            (SignatureAlgorithm::ECDSA, vec![S::ECDSA_NISTP384_SHA384])
        } else if is(&alg_id::ED25519) {
            (SignatureAlgorithm::ED25519, vec![S::ED25519])
        } else if is(&alg_id::RSA_ENCRYPTION) {
            let pss = [S::RSA_PSS_SHA512, S::RSA_PSS_SHA384, S::RSA_PSS_SHA256];
            let pkcs1 = [S::RSA_PKCS1_SHA512, S::RSA_PKCS1_SHA384, S::RSA_PKCS1_SHA256];
            (SignatureAlgorithm::RSA, pss.into_iter().chain(pkcs1).collect())
        } else {
            return Err(bad(&"its key is none of P-256, P-384, Ed25519 and RSA"));
        };
        let schemes = schemes.into_iter().filter(|s| allowed.is_empty() || allowed.contains(s)).collect();
        Ok(Self::Elsewhere(algorithm, schemes))
    }
}

impl fmt::Debug for Challenged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Challenged").field("certificates", &self.chain.len()).finish_non_exhaustive()
    }
}

impl SigningKey for Challenged {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let (scheme, key) = match &self.key {
            Key::Here(key) => {
                let signer = key.choose_scheme(offered)?;
                (signer.scheme(), Some(signer))
            }
            Key::Elsewhere(_, schemes) => (*schemes.iter().find(|s| offered.contains(s))?, None),
        };
        Some(Box::new(Asking { chain: self.chain.clone(), callback: self.callback.clone(), scheme, key }))
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        match &self.key {
            Key::Here(key) => key.public_key(),
            Key::Elsewhere(..) => None,
        }
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        match &self.key {
            Key::Here(key) => key.algorithm(),
            Key::Elsewhere(algorithm, _) => *algorithm,
        }
    }
}

struct Asking {
    chain: Arc<[CertificateDer<'static>]>,
    callback: IdentityChallenge,
    scheme: SignatureScheme,
    key: Option<Box<dyn Signer>>,
}

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}

impl Signer for Asking {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let challenge = Challenge { chain: &self.chain, scheme: self.scheme, message };
        // The engine, below which this runs, has other connections.
        let Ok(answer) = catch_unwind(AssertUnwindSafe(|| (self.callback)(&challenge))) else {
            return Err(Error::General("the identity challenge callback panicked".into()));
        };
        match answer {
            Answer::Signature(signature) => Ok(signature),
            Answer::Sign => match &self.key {
                Some(key) => key.sign(message),
                None => {
                    Err(Error::General("the identity's key is not in memory, and its callback did not sign".into()))
                }
            },
            Answer::Refuse => Err(Error::General("the identity challenge callback refused to sign".into())),
        }
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}
