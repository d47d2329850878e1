//! Our identities: certificate chains with their keys, and which of them to show.

use crate::challenge::{Challenged, IdentityChallenge, Key};
use crate::error::SecurityError;
use core::fmt;
use rustls::client::{ResolvesClientCert, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{Error, InconsistentKeys, SignatureAlgorithm, SignatureScheme};
use std::sync::Arc;

/// A certificate chain and the key of its first certificate.
pub struct Identity {
    /// The certificates: end entity first, each certified by the next; the root may be left out.
    pub chain: Vec<CertificateDer<'static>>,
    /// The private key: PKCS#8, PKCS#1 or SEC1. Empty if it is not in memory: see
    /// [`Identity::with_key_elsewhere`].
    pub key: PrivateKeyDer<'static>,
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Self { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("certificates", &self.chain.len()).finish_non_exhaustive()
    }
}

impl Identity {
    /// An identity whose key is not in memory, but in hardware or another process. It needs
    /// [`identity_challenge`](crate::SecurityParameters::identity_challenge), which has to sign.
    /// The certificate's key must be of P-256, P-384, Ed25519 or RSA.
    #[must_use]
    pub fn with_key_elsewhere(chain: Vec<CertificateDer<'static>>) -> Self {
        Self { chain, key: PrivatePkcs8KeyDer::from(Vec::new()).into() }
    }

    /// Loads the key and checks that it belongs to the certificate; it will sign with `schemes`
    /// only, if any are given, and after asking `challenge`, if there is one.
    pub(crate) fn load(
        &self,
        provider: &CryptoProvider,
        schemes: &[SignatureScheme],
        challenge: Option<&IdentityChallenge>,
    ) -> Result<Arc<CertifiedKey>, SecurityError> {
        let end_entity =
            self.chain.first().ok_or_else(|| SecurityError::BadCertificate("the chain is empty".into()))?;
        for (i, certificate) in self.chain.iter().enumerate() {
            ParsedCertificate::try_from(certificate)
                .map_err(|e| SecurityError::BadCertificate(format!("number {} of the chain: {e}", i + 1).into()))?;
        }
        let key: Arc<dyn SigningKey> = if self.key.secret_der().is_empty() {
            let Some(callback) = challenge.cloned() else {
                let why = "it is not in memory, and there is no identity challenge callback to ask for signatures";
                return Err(SecurityError::BadKey(why.into()));
            };
            let key = Key::elsewhere(end_entity, schemes)?;
            Arc::new(Challenged { chain: self.chain.clone().into(), callback, key })
        } else {
            let key =
                provider.key_provider.load_private_key(self.key.clone_key()).map_err(|e| unusable(&self.key, &e))?;
            let key: Arc<dyn SigningKey> =
                if schemes.is_empty() { key } else { Arc::new(Restricted { key, schemes: schemes.into() }) };
            match challenge.cloned() {
                Some(callback) => {
                    Arc::new(Challenged { chain: self.chain.clone().into(), callback, key: Key::Here(key) })
                }
                None => key,
            }
        };
        let certified = CertifiedKey::new(self.chain.clone(), key);
        debug_assert!(certified.cert.first() == Some(end_entity));
        match certified.keys_match() {
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(Arc::new(certified)),
            Err(Error::InconsistentKeys(_)) => Err(SecurityError::KeyMismatch),
            Err(e) => Err(SecurityError::BadCertificate(e.to_string().into())),
        }
    }
}

/// Why a key cannot be loaded. ring has no P-521, and reports only that its keys cannot be parsed.
fn unusable(key: &PrivateKeyDer<'_>, e: &Error) -> SecurityError {
    /// The identifier of the curve secp521r1, 1.3.132.0.35 (RFC 5480 section 2.1.1.1), in DER.
    const P521: [u8; 7] = [0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x23];
    let why = match key.secret_der().windows(P521.len()).any(|part| part == P521) {
        true => {
            "it is on the curve P-521, which is not supported: use a key on P-256 or P-384, of Ed25519 or RSA".into()
        }
        false => format!("{e}; it must be on P-256 or P-384, of Ed25519, or of RSA with 2048 to 8192 bits"),
    };
    SecurityError::BadKey(why.into())
}

/// A key that signs with some of its schemes only (RFC 9622 section 6.3.5, `signatureAlgorithm`).
#[derive(Debug)]
struct Restricted {
    key: Arc<dyn SigningKey>,
    schemes: Box<[SignatureScheme]>,
}

impl SigningKey for Restricted {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let both: Vec<_> = offered.iter().copied().filter(|s| self.schemes.contains(s)).collect();
        self.key.choose_scheme(&both)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        self.key.public_key()
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.key.algorithm()
    }
}

fn can_sign(key: &CertifiedKey, schemes: &[SignatureScheme]) -> bool {
    key.key.choose_scheme(schemes).is_some()
}

/// Whether a certificate is for this host: a name or an address, without brackets.
#[must_use]
pub fn certifies(certificate: &CertificateDer<'_>, host: &str) -> bool {
    let Ok(name) = ServerName::try_from(host) else { return false };
    ParsedCertificate::try_from(certificate).is_ok_and(|parsed| verify_server_name(&parsed, &name).is_ok())
}

fn is_for(key: &CertifiedKey, name: &ServerName<'_>) -> bool {
    let parsed = key.cert.first().map(ParsedCertificate::try_from);
    matches!(parsed, Some(Ok(c)) if verify_server_name(&c, name).is_ok())
}

/// Shows the first certificate that is for the name asked for and that the client can verify;
/// failing that the first that it can verify, so that a client without or with an unknown name
/// still gets an answer to judge.
#[derive(Debug)]
pub(crate) struct ServerIdentities(pub(crate) Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for ServerIdentities {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let verifiable = || self.0.iter().filter(|k| can_sign(k, hello.signature_schemes()));
        let name = hello.server_name().and_then(|n| ServerName::try_from(n).ok());
        let by_name = match (&name, self.0.len()) {
            (Some(name), 2..) => verifiable().find(|k| is_for(k, name)),
            _ => None,
        };
        // If nothing fits, rustls finds out what both sides lack, and reports it better than "no
        // certificate".
        by_name.or_else(|| verifiable().next()).or_else(|| self.0.first()).cloned()
    }
}

/// Shows the first certificate with which the server lets us sign.
#[derive(Debug)]
pub(crate) struct ClientIdentities(pub(crate) Vec<Arc<CertifiedKey>>);

impl ResolvesClientCert for ClientIdentities {
    fn resolve(&self, _authorities: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.iter().find(|k| can_sign(k, schemes)).cloned()
    }

    fn has_certs(&self) -> bool {
        !self.0.is_empty()
    }
}
