//! Judging the peer's certificate: authorities, pins, the application.

use crate::error::NotPinned;
use crate::outline::Outline;
use crate::params::{CertificateObserver, Pin, TrustVerification};
use core::fmt;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, PeerMisbehaved, SignatureScheme,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

type Signature = Result<HandshakeSignatureValid, Error>;

/// What servers and clients are both judged by.
pub(crate) struct Checks {
    /// Where not empty, the certificate must be one of these.
    pub(crate) pins: Vec<Pin>,
    /// Asked last.
    pub(crate) callback: Option<TrustVerification>,
    /// Called with what is refused.
    pub(crate) refused: Option<CertificateObserver>,
    /// Where not empty, the peer must sign its handshake with one of these.
    pub(crate) schemes: Vec<SignatureScheme>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Checks {
    pub(crate) fn new(provider: &CryptoProvider) -> Self {
        let algorithms = provider.signature_verification_algorithms;
        Self { pins: Vec::new(), callback: None, refused: None, schemes: Vec::new(), algorithms }
    }

    fn certificate(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &str,
    ) -> Result<(), Error> {
        if !self.pins.is_empty() && !self.pins.iter().any(|p| p.matches(end_entity)) {
            return Err(CertificateError::Other(OtherError(Arc::new(NotPinned))).into());
        }
        if let Some(callback) = &self.callback {
            let chain = chain(end_entity, intermediates);
            // A panic is no consent. The engine, below which this runs, has other connections.
            if !catch_unwind(AssertUnwindSafe(|| callback(&chain, name))).unwrap_or(false) {
                return Err(CertificateError::ApplicationVerificationFailure.into());
            }
        }
        Ok(())
    }

    /// Passes a verdict on, and a chain that is refused to the application.
    fn concluded<T>(
        &self,
        verdict: Result<T, Error>,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &str,
    ) -> Result<T, Error> {
        if let (Err(_), Some(refused)) = (&verdict, &self.refused) {
            let chain = chain(end_entity, intermediates);
            let _ = catch_unwind(AssertUnwindSafe(|| refused(&chain, name)));
        }
        verdict
    }

    fn scheme(&self, dss: &DigitallySignedStruct) -> Result<(), Error> {
        if self.schemes.is_empty() || self.schemes.contains(&dss.scheme) {
            return Ok(());
        }
        Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into())
    }

    fn tls12(&self, message: &[u8], cert: &CertificateDer<'_>, dss: &DigitallySignedStruct) -> Signature {
        self.scheme(dss)?;
        match v1(cert) {
            Some(certificate) => self.tls12_of_v1(message, &certificate, dss),
            None => verify_tls12_signature(message, cert, dss, &self.algorithms),
        }
    }

    fn tls13(&self, message: &[u8], cert: &CertificateDer<'_>, dss: &DigitallySignedStruct) -> Signature {
        self.scheme(dss)?;
        match v1(cert) {
            Some(certificate) => {
                verify_tls13_signature_with_raw_key(message, &certificate.key(), dss, &self.algorithms)
            }
            None => verify_tls13_signature(message, cert, dss, &self.algorithms),
        }
    }

    /// As [`verify_tls12_signature`]: rustls has no function for a key alone, as TLS 1.2 has no
    /// such keys there.
    fn tls12_of_v1(&self, message: &[u8], certificate: &Outline<'_>, dss: &DigitallySignedStruct) -> Signature {
        let possible = self.algorithms.mapping.iter().find(|(scheme, _)| *scheme == dss.scheme);
        let Some((_, possible)) = possible else {
            return Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
        };
        // Which curve a signature of ECDSA is of, TLS 1.2 leaves to the key.
        let verdict = possible.iter().find_map(|a| certificate.verifies(*a, message, dss.signature()));
        match verdict {
            Some(true) => Ok(HandshakeSignatureValid::assertion()),
            _ => Err(CertificateError::BadSignature.into()),
        }
    }

    /// What we can verify and may accept, preferred first.
    pub(crate) fn supported(&self) -> Vec<SignatureScheme> {
        let all = self.algorithms.supported_schemes();
        if self.schemes.is_empty() {
            return all;
        }
        self.schemes.iter().copied().filter(|s| all.contains(s)).collect()
    }
}

/// A certificate of version 1: webpki refuses it, and so it has passed only where its issuer, its
/// names and its dates do not count.
fn v1<'a>(certificate: &'a CertificateDer<'_>) -> Option<Outline<'a>> {
    Outline::of(certificate).filter(|outline| outline.is_v1)
}

fn chain<'a>(end_entity: &CertificateDer<'a>, intermediates: &[CertificateDer<'a>]) -> Vec<CertificateDer<'a>> {
    core::iter::once(end_entity).chain(intermediates).cloned().collect()
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checks")
            .field("pins", &self.pins.len())
            .field("callback", &self.callback.is_some())
            .field("schemes", &self.schemes)
            .finish_non_exhaustive()
    }
}

/// Certificates that are trusted by name of authority, and that a peer may also show as its own.
///
/// A self-signed certificate as `openssl req -x509` makes it is marked as an authority. RFC 5280
/// section 4.2.1.9 does not keep it from being a peer's own, but webpki does; where the user has
/// listed this very certificate, its issuer is beyond doubt.
#[derive(Debug, Default)]
pub(crate) struct Listed(pub(crate) Vec<CertificateDer<'static>>);

impl Listed {
    /// Whether `verdict` objects to nothing but that one of these is an authority. webpki looks at
    /// the dates before that.
    fn excuse(&self, verdict: &Error, end_entity: &CertificateDer<'_>) -> bool {
        // The error within is of a crate that rustls does not show; if its name changed, nothing
        // would be excused.
        matches!(verdict, Error::InvalidCertificate(CertificateError::Other(e)) if e.0.to_string() == "CaUsedAsEndEntity")
            && self.0.iter().any(|c| c == end_entity)
    }
}

/// Judges servers. Without `authorities`, issuer, names and dates are not looked at.
#[derive(Debug)]
pub(crate) struct ServerVerifier {
    pub(crate) authorities: Option<Arc<WebPkiServerVerifier>>,
    pub(crate) listed: Listed,
    pub(crate) checks: Checks,
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verdict = || {
            if let Some(authorities) = &self.authorities {
                match authorities.verify_server_cert(end_entity, intermediates, name, ocsp, now) {
                    Ok(_) => {}
                    Err(e) if self.listed.excuse(&e, end_entity) => {
                        verify_server_name(&ParsedCertificate::try_from(end_entity)?, name)?;
                    }
                    Err(e) => return Err(e),
                }
            }
            self.checks.certificate(end_entity, intermediates, &name.to_str())?;
            Ok(ServerCertVerified::assertion())
        };
        self.checks.concluded(verdict(), end_entity, intermediates, &name.to_str())
    }

    fn verify_tls12_signature(&self, m: &[u8], cert: &CertificateDer<'_>, dss: &DigitallySignedStruct) -> Signature {
        self.checks.tls12(m, cert, dss)
    }

    fn verify_tls13_signature(&self, m: &[u8], cert: &CertificateDer<'_>, dss: &DigitallySignedStruct) -> Signature {
        self.checks.tls13(m, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.checks.supported()
    }
}

/// Judges clients. Without `authorities`, issuer and dates are not looked at.
#[derive(Debug)]
pub(crate) struct ClientVerifier {
    pub(crate) authorities: Option<Arc<dyn ClientCertVerifier>>,
    pub(crate) listed: Listed,
    pub(crate) mandatory: bool,
    pub(crate) checks: Checks,
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.authorities.as_ref().map_or(&[], |a| a.root_hint_subjects())
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verdict = || {
            if let Some(authorities) = &self.authorities {
                match authorities.verify_client_cert(end_entity, intermediates, now) {
                    Err(e) if !self.listed.excuse(&e, end_entity) => return Err(e),
                    _ => {}
                }
            }
            self.checks.certificate(end_entity, intermediates, "")?;
            Ok(ClientCertVerified::assertion())
        };
        self.checks.concluded(verdict(), end_entity, intermediates, "")
    }

    fn verify_tls12_signature(&self, m: &[u8], cert: &CertificateDer<'_>, dss: &DigitallySignedStruct) -> Signature {
        self.checks.tls12(m, cert, dss)
    }

    fn verify_tls13_signature(&self, m: &[u8], cert: &CertificateDer<'_>, dss: &DigitallySignedStruct) -> Signature {
        self.checks.tls13(m, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.checks.supported()
    }
}
