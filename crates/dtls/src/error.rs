//! What can go wrong with a session.

use core::fmt;
use dimpl::{CertificateError, CryptoError, CryptoOperation, Error, SecurityError, UnexpectedMessageError};
use neater_tls::TlsError;
use rustls::AlertDescription;

/// Why a session failed. It is over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DtlsError {
    /// The peer, its certificate or this side's configuration: the same reasons, in the same words,
    /// as for TLS.
    Tls(TlsError),
    /// The peer did not answer, however often a flight was sent again.
    NoAnswer,
    /// Version 1.2 with AES-GCM: as many records have been sent as the random nonces of this
    /// implementation bear (2²⁰; see `docs/decisions/0024-dtls-is-dimpl-with-our-judgement.md`).
    UsedUp,
}

impl fmt::Display for DtlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls(e) => e.fmt(f),
            Self::NoAnswer => f.write_str(
                "the peer did not answer the DTLS handshake: nothing listens there, it does not speak DTLS, it refuses us \
                 without a word, or a firewall drops UDP",
            ),
            Self::UsedUp => f.write_str(
                "the keys of this DTLS 1.2 session have protected as many records as they may: connect again, or allow 1.3",
            ),
        }
    }
}

impl std::error::Error for DtlsError {}

impl From<TlsError> for DtlsError {
    fn from(e: TlsError) -> Self {
        Self::Tls(e)
    }
}

/// Why a message could not be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendError {
    /// It is longer than [`crate::MAX_MESSAGE`].
    TooLarge,
    /// The handshake is not over yet.
    NotConnected,
    /// The session is over.
    Closed,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLarge => "a DTLS record holds at most 16,384 bytes: send less at a time",
            Self::NotConnected => "the DTLS handshake is not over yet",
            Self::Closed => "the DTLS session is over",
        })
    }
}

impl std::error::Error for SendError {}

/// What an error of dimpl's, all of which end the session, means.
pub(crate) fn translate(error: &Error, connected: bool) -> DtlsError {
    let local = |what: &str| TlsError::Local(what.into());
    DtlsError::Tls(match error {
        Error::Timeout(_) => return DtlsError::NoAnswer,
        Error::CryptoError(CryptoError::OperationFailed(CryptoOperation::Encrypt)) if connected => {
            return DtlsError::UsedUp;
        }
        Error::SecurityError(e) => security(e),
        Error::CertificateError(
            CertificateError::NoServerCertificateReceived
            | CertificateError::NoClientCertificateReceived
            | CertificateError::NoClientCertificateForVerification
            | CertificateError::NoServerCertificateForVerification,
        ) => TlsError::NoPeerCertificate,
        Error::CertificateError(e) => TlsError::BadCertificate(e.to_string().into()),
        Error::CryptoError(CryptoError::CertificateParseFailed | CryptoError::UnsupportedPublicKeyAlgorithm) => {
            TlsError::BadCertificate("its key is not of ECDSA on P-256 or P-384, or it cannot be parsed".into())
        }
        Error::CryptoError(CryptoError::SignatureAlgorithmNotOfferedByClient) => TlsError::NoCommonSignature,
        Error::CryptoError(CryptoError::NoPrivateKeyConfigured) => {
            local("the server asks for a certificate and there is none: set client_certificates, with an ECDSA key")
        }
        Error::ConnectionClosed => TlsError::ClosedDuringHandshake,
        Error::UnexpectedMessage(UnexpectedMessageError::UnrecognizedAutoServerResponse) => {
            TlsError::PeerMisbehaved("its first answer is not one to a ClientHello".into())
        }
        Error::ConfigError(e) => local(&e.to_string()),
        Error::TransmitQueueFull | Error::TransmitHistoryFull => local(&error.to_string()),
        other => TlsError::PeerMisbehaved(other.to_string().into()),
    })
}

fn security(error: &SecurityError) -> TlsError {
    use SecurityError as S;
    match error {
        S::FatalAlert { description } => TlsError::from_alert(AlertDescription::from(*description)),
        S::NoMutuallyAcceptableCipherSuite
        | S::NoCommonCipherSuite
        | S::ServerSelectedUnknownCipherSuite
        | S::ServerSelectedIncompatibleCipherSuite(_)
        | S::ServerSelectedDisallowedCipherSuite(_)
        | S::ServerSelectedDisallowedDtls13CipherSuite(_)
        | S::HrrSelectedDisallowedCipherSuite => TlsError::NoCommonCipher,
        S::NoCommonKeyExchangeGroup => TlsError::NoCommonGroup,
        S::UnsupportedHelloVerifyRequestVersion(_)
        | S::UnsupportedServerVersion(_)
        | S::UnsupportedClientVersion(_)
        | S::ClientHelloLegacyVersionNotDtls12
        | S::ClientHelloMissingDtls13SupportedVersions
        | S::ServerDidNotNegotiateDtls13
        | S::HrrDidNotSelectDtls13 => TlsError::NoCommonVersion,
        S::ExtendedMasterSecretNotNegotiated => {
            TlsError::PeerIncompatible("the extended master secret of RFC 7627".into())
        }
        other => TlsError::PeerMisbehaved(other.to_string().into()),
    }
}

/// The alert for a client with which nothing can be agreed (RFC 5246 section 7.2.2, RFC 8446
/// section 6.2).
pub(crate) fn refusal(error: &Error) -> Option<AlertDescription> {
    use SecurityError as S;
    let Error::SecurityError(error) = error else { return None };
    match error {
        S::NoMutuallyAcceptableCipherSuite
        | S::NoCommonCipherSuite
        | S::NoCommonKeyExchangeGroup
        | S::ExtendedMasterSecretNotNegotiated => Some(AlertDescription::HandshakeFailure),
        S::UnsupportedClientVersion(_)
        | S::ClientHelloLegacyVersionNotDtls12
        | S::ClientHelloMissingDtls13SupportedVersions => Some(AlertDescription::ProtocolVersion),
        _ => None,
    }
}
