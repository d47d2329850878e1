//! What can go wrong, sorted by the side that has to act.

use crate::pem::PemError;
use core::fmt;
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible, PeerMisbehaved};

/// The longest text from a peer that an error repeats, in bytes.
const MAX_PEER_TEXT: usize = 200;

/// The side that has to act for it to work the next time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The operator of the peer: its certificate is not acceptable.
    PeerCertificate,
    /// The peer does not speak TLS, or breaks its rules.
    Peer,
    /// Both sides are sound but have nothing in common.
    NoOverlap,
    /// The peer refused us: it did not like our certificate or our offer.
    RefusedByPeer,
    /// The configuration of this side.
    Local,
}

/// What bytes that are not TLS look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Looks {
    /// An HTTP request or answer in the clear.
    Http,
    /// The first line of an SSH server.
    Ssh,
    /// The first line of SMTP, FTP or NNTP (`220`, `200`) or of IMAP or POP (`* OK`, `+OK`).
    MailOrFtp,
    /// Some other text.
    Text,
    /// Anything else.
    Unknown,
}

impl Looks {
    /// Guesses from the first bytes of a stream; `None` if they could begin a TLS record.
    pub(crate) fn guess(first: &[u8]) -> Option<Self> {
        // The content types of TLS records (RFC 8446 section 5.1; 24 is heartbeat, RFC 6520).
        if matches!(first, [] | [20..=24, ..]) {
            return None;
        }
        const HTTP: [&[u8]; 10] = [
            b"HTTP/",
            b"GET ",
            b"HEAD ",
            b"POST ",
            b"PUT ",
            b"DELETE ",
            b"CONNECT ",
            b"OPTIONS ",
            b"PATCH ",
            b"PRI * ",
        ];
        const MAIL: [&[u8]; 5] = [b"220", b"200 ", b"* OK", b"+OK", b"421"];
        let begins = |with: &[u8]| first.starts_with(with) || with.starts_with(first) && first.len() >= 3;
        Some(if HTTP.into_iter().any(begins) {
            Self::Http
        } else if begins(b"SSH-") {
            Self::Ssh
        } else if MAIL.into_iter().any(begins) {
            Self::MailOrFtp
        } else if first.iter().all(|b| matches!(b, b' '..=b'~' | b'\r' | b'\n' | b'\t')) {
            Self::Text
        } else {
            Self::Unknown
        })
    }
}

/// Why a TLS session failed. It is over; any alert for the peer is still to be written with
/// `write_tls`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsError {
    /// The peer's certificate has expired. Both times are in seconds since 1970.
    CertificateExpired {
        /// When it was looked at.
        now: u64,
        /// When it expired.
        not_after: u64,
    },
    /// The peer's certificate is not valid yet. Both times are in seconds since 1970.
    CertificateNotYetValid {
        /// When it was looked at.
        now: u64,
        /// When it becomes valid.
        not_before: u64,
    },
    /// The peer's certificate was not issued by a trusted authority.
    UnknownIssuer,
    /// The peer's certificate is for other names.
    WrongName {
        /// The name that was asked for.
        expected: Box<str>,
        /// The names in the certificate; shortened if there are many.
        presented: Box<str>,
    },
    /// The peer's certificate is none of those pinned.
    NotPinned,
    /// The application's trust verification rejected the peer.
    RefusedByApplication,
    /// The peer's certificate was revoked.
    CertificateRevoked,
    /// The peer's certificate is unusable for another reason.
    BadCertificate(Box<str>),
    /// The peer showed no certificate although one is required.
    NoPeerCertificate,

    /// What the peer sends is not TLS.
    NotTls(Looks),
    /// The peer breaks the rules of TLS.
    PeerMisbehaved(Box<str>),
    /// The peer sends more than [`crate::HANDSHAKE_LIMIT`] bytes without finishing the handshake.
    HandshakeTooLarge,
    /// A record could not be decrypted: damaged on the way, or forged.
    Decrypt,
    /// The peer closed the connection before the handshake was complete.
    ClosedDuringHandshake,

    /// No TLS version in common.
    NoCommonVersion,
    /// No cipher suite in common.
    NoCommonCipher,
    /// No key exchange group in common.
    NoCommonGroup,
    /// No signature algorithm in common: usually a key of a kind that the peer cannot verify.
    NoCommonSignature,
    /// No application protocol in common.
    NoCommonAlpn,
    /// The peer lacks something that we need.
    PeerIncompatible(Box<str>),

    /// The peer refused with this alert.
    RefusedByPeer(AlertDescription),

    /// The clock was never set.
    ClockNotSet,
    /// The source of randomness failed.
    NoRandomness,
    /// This side is misconfigured, or a defect.
    Local(Box<str>),
}

impl TlsError {
    /// The side that has to act.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            Self::CertificateExpired { .. }
            | Self::CertificateNotYetValid { .. }
            | Self::UnknownIssuer
            | Self::WrongName { .. }
            | Self::NotPinned
            | Self::RefusedByApplication
            | Self::CertificateRevoked
            | Self::BadCertificate(_)
            | Self::NoPeerCertificate => Blame::PeerCertificate,
            Self::NotTls(_)
            | Self::PeerMisbehaved(_)
            | Self::HandshakeTooLarge
            | Self::Decrypt
            | Self::ClosedDuringHandshake => Blame::Peer,
            Self::NoCommonVersion
            | Self::NoCommonCipher
            | Self::NoCommonGroup
            | Self::NoCommonSignature
            | Self::NoCommonAlpn
            | Self::PeerIncompatible(_) => Blame::NoOverlap,
            Self::RefusedByPeer(_) => Blame::RefusedByPeer,
            Self::ClockNotSet | Self::NoRandomness | Self::Local(_) => Blame::Local,
        }
    }

    /// What an alert that the peer sent means. QUIC carries the same alerts in its error codes (RFC
    /// 9001 section 4.8).
    #[must_use]
    pub fn from_alert(alert: AlertDescription) -> Self {
        match alert {
            AlertDescription::ProtocolVersion => Self::NoCommonVersion,
            AlertDescription::NoApplicationProtocol => Self::NoCommonAlpn,
            other => Self::RefusedByPeer(other),
        }
    }

    /// What a verdict on a certificate means of which only rustls's text is left, as QUIC passes it
    /// on. `None` where that text is no such verdict, or readable as it is.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let verdict = text.strip_prefix("invalid peer certificate: ")?;
        let inner = verdict.strip_prefix("Other(OtherError(").and_then(|v| v.strip_suffix("))"));
        Some(match inner.unwrap_or(verdict) {
            "UnknownIssuer" => Self::UnknownIssuer,
            "Revoked" => Self::CertificateRevoked,
            "ApplicationVerificationFailure" => Self::RefusedByApplication,
            "NotPinned" => Self::NotPinned,
            // A name of a variant; a sentence is readable as it is.
            other if inner.is_some() || !other.contains(' ') => unusable(other),
            sentence => return wrong_name(sentence).or_else(|| wrong_time(sentence)),
        })
    }
}

/// The names of a certificate as webpki writes them, without its words for what kind of name each
/// is.
fn names(list: &str) -> Box<str> {
    let bare = |name: &str| {
        let inner = name.split_once("(\"").and_then(|(_, rest)| rest.strip_suffix("\")"));
        let inner = inner.or_else(|| name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')));
        inner.unwrap_or(name).to_owned()
    };
    clean(&list.split(", ").map(bare).collect::<Vec<_>>().join(", "))
}

/// Whether it is a wildcard that would be the name's, were it not for a whole top-level domain.
fn is_too_wide(wildcard: &str, name: &str) -> bool {
    let top = wildcard.strip_prefix("*.").filter(|top| !top.contains('.'));
    top.is_some_and(|top| name.rsplit_once('.').is_some_and(|(_, end)| end.eq_ignore_ascii_case(top)))
}

/// rustls's message for a certificate with other names, which QUIC's TLS passes on as a text.
fn wrong_name(sentence: &str) -> Option<TlsError> {
    let rest = sentence.strip_prefix("certificate not valid for name \"")?;
    let (expected, rest) = rest.split_once('"')?;
    let presented = match rest.strip_prefix("; certificate ")? {
        none if none.starts_with("is not valid for any names") => String::new(),
        some => some.strip_prefix("is only valid for ")?.replace(" or ", ", "),
    };
    Some(TlsError::WrongName { expected: clean(expected), presented: names(&presented) })
}

/// rustls's message for a certificate that has expired, or is not valid yet.
fn wrong_time(sentence: &str) -> Option<TlsError> {
    let (early, rest) = match sentence.strip_prefix("certificate expired: verification time ") {
        Some(rest) => (false, rest),
        None => (true, sentence.strip_prefix("certificate not valid yet: verification time ")?),
    };
    let (now, rest) = rest.split_once(" (UNIX), but certificate is not valid ")?;
    let then = rest.strip_prefix(if early { "before " } else { "after " })?.split_once(' ')?.0;
    let (now, then) = (now.parse().ok()?, then.parse().ok()?);
    Some(match early {
        true => TlsError::CertificateNotYetValid { now, not_before: then },
        false => TlsError::CertificateExpired { now, not_after: then },
    })
}

/// Text of the peer, made harmless: bounded, without control characters.
fn clean(text: &str) -> Box<str> {
    let mut out = String::new();
    for c in text.chars() {
        if out.len() + c.len_utf8() > MAX_PEER_TEXT {
            out.push('…');
            break;
        }
        out.push(if c.is_control() { '?' } else { c });
    }
    out.into()
}

/// A verdict of our own verifiers, carried through rustls.
#[derive(Debug)]
pub(crate) struct NotPinned;

impl fmt::Display for NotPinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not pinned")
    }
}

impl std::error::Error for NotPinned {}

/// A verdict of webpki's that has nothing but a name.
fn unusable(name: &str) -> TlsError {
    TlsError::BadCertificate(match name {
        "CaUsedAsEndEntity" => "it is that of an authority, and not listed as trusted itself".into(),
        other => clean(other),
    })
}

fn certificate(e: &CertificateError) -> TlsError {
    match e {
        CertificateError::ExpiredContext { time, not_after } => {
            TlsError::CertificateExpired { now: time.as_secs(), not_after: not_after.as_secs() }
        }
        CertificateError::Expired => TlsError::CertificateExpired { now: 0, not_after: 0 },
        CertificateError::NotValidYetContext { time, not_before } => {
            TlsError::CertificateNotYetValid { now: time.as_secs(), not_before: not_before.as_secs() }
        }
        CertificateError::NotValidYet => TlsError::CertificateNotYetValid { now: 0, not_before: 0 },
        CertificateError::UnknownIssuer => TlsError::UnknownIssuer,
        CertificateError::Revoked => TlsError::CertificateRevoked,
        CertificateError::NotValidForNameContext { expected, presented } => {
            TlsError::WrongName { expected: clean(&expected.to_str()), presented: names(&presented.join(", ")) }
        }
        CertificateError::NotValidForName => TlsError::WrongName { expected: "".into(), presented: "".into() },
        CertificateError::ApplicationVerificationFailure => TlsError::RefusedByApplication,
        CertificateError::Other(other) if other.0.downcast_ref::<NotPinned>().is_some() => TlsError::NotPinned,
        CertificateError::Other(other) => unusable(&other.0.to_string()),
        other => TlsError::BadCertificate(clean(&other.to_string())),
    }
}

fn incompatible(e: &PeerIncompatible) -> TlsError {
    match e {
        PeerIncompatible::NoCipherSuitesInCommon => TlsError::NoCommonCipher,
        PeerIncompatible::NoKxGroupsInCommon | PeerIncompatible::NamedGroupsExtensionRequired => {
            TlsError::NoCommonGroup
        }
        PeerIncompatible::NoSignatureSchemesInCommon
        | PeerIncompatible::NoCertificateRequestSignatureSchemesInCommon => TlsError::NoCommonSignature,
        PeerIncompatible::ServerDoesNotSupportTls12Or13
        | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
        | PeerIncompatible::SupportedVersionsExtensionRequired
        | PeerIncompatible::Tls12NotOffered
        | PeerIncompatible::Tls12NotOfferedOrEnabled
        | PeerIncompatible::Tls13RequiredForQuic => TlsError::NoCommonVersion,
        other => TlsError::PeerIncompatible(clean(&format!("{other:?}"))),
    }
}

impl From<&Error> for TlsError {
    fn from(e: &Error) -> Self {
        match e {
            Error::InvalidCertificate(e) => certificate(e),
            Error::NoCertificatesPresented => Self::NoPeerCertificate,
            Error::PeerIncompatible(e) => incompatible(e),
            Error::AlertReceived(alert) => Self::from_alert(*alert),
            Error::NoApplicationProtocol
            | Error::PeerMisbehaved(PeerMisbehaved::SelectedUnofferedApplicationProtocol) => Self::NoCommonAlpn,
            Error::DecryptError => Self::Decrypt,
            Error::FailedToGetCurrentTime => Self::ClockNotSet,
            Error::FailedToGetRandomBytes => Self::NoRandomness,
            Error::InvalidMessage(InvalidMessage::InvalidContentType) => Self::NotTls(Looks::Unknown),
            Error::InvalidMessage(_)
            | Error::InappropriateMessage { .. }
            | Error::InappropriateHandshakeMessage { .. }
            | Error::PeerMisbehaved(_)
            | Error::PeerSentOversizedRecord => Self::PeerMisbehaved(clean(&e.to_string())),
            other => Self::Local(clean(&other.to_string())),
        }
    }
}

impl From<Error> for TlsError {
    fn from(e: Error) -> Self {
        Self::from(&e)
    }
}

/// A span of seconds in words.
fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} seconds"),
        120..7200 => format!("{} minutes", seconds / 60),
        7200..172_800 => format!("{} hours", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CertificateExpired { now, not_after } => write!(
                f,
                "the peer's certificate expired {} ago: its operator must renew it (or this machine's clock is fast)",
                span(now.saturating_sub(*not_after))
            ),
            Self::CertificateNotYetValid { now, not_before } => write!(
                f,
                "the peer's certificate becomes valid only in {}: check this machine's clock",
                span(not_before.saturating_sub(*now))
            ),
            Self::UnknownIssuer => f.write_str(
                "the peer's certificate was not issued by an authority that is trusted here: add its authority to trust, \
                 or pin the certificate",
            ),
            Self::WrongName { expected, presented } if presented.is_empty() => write!(
                f,
                "the peer's certificate is not for {expected}: it names nothing in subjectAltName, and a common name does not count \
                 (RFC 9525 section 6.3); its operator must replace it"
            ),
            Self::WrongName { expected, presented } => {
                write!(f, "the peer's certificate is not for {expected}; it is for {presented}: ")?;
                let all = || presented.split(", ");
                f.write_str(if all().any(|name| name.eq_ignore_ascii_case(expected)) {
                    "it has that as a DNS name, and an address must stand there as an address"
                } else if all().any(|name| is_too_wide(name, expected)) {
                    "a wildcard for all names below a top-level domain is not accepted"
                } else {
                    "ask for one of these names"
                })
            }
            Self::NotPinned => f.write_str(
                "the peer's certificate is none of those pinned: the connection is intercepted, or it was renewed and the pin is old",
            ),
            Self::RefusedByApplication => {
                f.write_str("the application's trust verification refused the peer's certificate")
            }
            Self::CertificateRevoked => {
                f.write_str("the peer's certificate was revoked: do not use it; its operator must get a new one")
            }
            Self::BadCertificate(why) => {
                write!(f, "the peer's certificate cannot be used ({why}): its operator must replace it")
            }
            Self::NoPeerCertificate => f.write_str(
                "the peer showed no certificate although one is required: it must be configured with one \
                 (client_certificates)",
            ),
            Self::NotTls(looks) => match looks {
                Looks::Http => f.write_str(
                    "the peer speaks plain HTTP, not TLS: use http:// or the port for https (usually 443)",
                ),
                Looks::Ssh => f.write_str("the peer speaks SSH, not TLS: check the port"),
                Looks::MailOrFtp => f.write_str(
                    "the peer speaks a mail or file transfer protocol in the clear, not TLS: check the port; it may want \
                     STARTTLS first",
                ),
                Looks::Text => f.write_str("the peer sends text, not TLS: check the port, or connect without security"),
                Looks::Unknown => f.write_str("what the peer sends is not TLS: check the port"),
            },
            Self::PeerMisbehaved(how) => write!(f, "the peer breaks the rules of TLS ({how}): report it to its operator"),
            Self::HandshakeTooLarge => {
                f.write_str("the peer's handshake is absurdly large: it is broken or means harm; given up")
            }
            Self::Decrypt => f.write_str("a record could not be decrypted: it was damaged or forged on the way; try again"),
            Self::ClosedDuringHandshake => f.write_str(
                "the peer closed the connection during the TLS handshake: it may not speak TLS on this port, or refuse us \
                 without a reason",
            ),
            Self::NoCommonVersion => f.write_str(
                "no TLS version in common: this side speaks 1.2 and 1.3 as far as min_version and max_version permit; one \
                 side must be updated or permit more",
            ),
            Self::NoCommonCipher => f.write_str("no cipher suite in common: loosen ciphersuites on one side"),
            Self::NoCommonGroup => {
                f.write_str("no key exchange group in common: loosen supported_groups on one side")
            }
            Self::NoCommonSignature => f.write_str(
                "no signature algorithm in common: use a certificate with another kind of key (ECDSA P-256 works nearly \
                 everywhere), or loosen signature_algorithms",
            ),
            Self::NoCommonAlpn => f.write_str("no application protocol in common: check alpn on both sides"),
            Self::PeerIncompatible(what) => write!(f, "the peer lacks what a safe connection needs ({what})"),
            Self::RefusedByPeer(alert) => {
                write!(f, "the peer refused with alert {alert:?}")?;
                f.write_str(match alert {
                    AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity => {
                        ": it has no version, cipher suite, group or certificate in common with us"
                    }
                    AlertDescription::UnknownCA | AlertDescription::BadCertificate => {
                        ": it does not trust our certificate; give it our authority or another certificate"
                    }
                    AlertDescription::CertificateRequired => ": it requires a certificate from us (client_certificates)",
                    AlertDescription::CertificateExpired => ": our certificate has expired; renew it",
                    AlertDescription::UnrecognisedName => ": it does not know the server name that was asked for",
                    AlertDescription::AccessDenied => ": our certificate is sound but not admitted",
                    AlertDescription::InternalError => ": it has a problem of its own; try again later",
                    _ => "",
                })
            }
            Self::ClockNotSet => f.write_str("the wall clock was never set: set Crypto's clock before the first handshake"),
            Self::NoRandomness => f.write_str("the system gave no random bytes: nothing can be encrypted"),
            Self::Local(what) => write!(f, "TLS is misconfigured on this side: {what}"),
        }
    }
}

impl std::error::Error for TlsError {}

/// Why no configuration can be made of security parameters. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SecurityError {
    /// Security is disabled: there is nothing to configure.
    Disabled,
    /// A server has no certificate.
    NoServerCertificate,
    /// A certificate chain is empty or cannot be parsed; the text gives which and why.
    BadCertificate(Box<str>),
    /// A private key cannot be used; the text gives which and why.
    BadKey(Box<str>),
    /// The private key does not belong to the certificate.
    KeyMismatch,
    /// The system's trust anchors are wanted and there are none; the text gives the reason.
    NoSystemRoots(Box<str>),
    /// No certificate is trusted at all: an empty list of authorities or pins, or a missing
    /// callback.
    NothingTrusted,
    /// A server would accept client certificates of every public authority.
    ClientTrust,
    /// An ALPN name is empty or longer than 255 bytes, or all together exceed 65,535 (RFC 7301
    /// section 3.1).
    BadAlpn,
    /// Nothing that is implemented is left by the restriction named.
    NothingLeft(&'static str),
    /// The lowest allowed version is above the highest.
    VersionRange,
    /// QUIC needs TLS 1.3 and the parameters exclude it.
    QuicNeedsTls13,
    /// The server's name is neither a DNS name nor an IP address.
    BadName(Box<str>),
    /// A parameter that is set has no implementation.
    Unsupported(&'static str),
    /// A PEM text is not what was expected.
    Pem(PemError),
    /// Anything else that rustls refuses.
    Other(Box<str>),
}

impl fmt::Display for SecurityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str("security is disabled by the security parameters: connect without TLS"),
            Self::NoServerCertificate => {
                f.write_str("a server needs a certificate and its key: set server_certificates")
            }
            Self::BadCertificate(why) => write!(f, "the certificate cannot be used: {why}"),
            Self::BadKey(why) => write!(f, "the private key cannot be used: {why}"),
            Self::KeyMismatch => {
                f.write_str("the private key does not belong to the certificate: check which files go together")
            }
            Self::NoSystemRoots(why) => write!(
                f,
                "this system has no trust anchors ({why}): install its CA certificates (package ca-certificates), or name \
                 the trusted authorities"
            ),
            Self::NothingTrusted => f.write_str(
                "no certificate would be trusted: name at least one authority, pin or verification callback",
            ),
            Self::ClientTrust => f.write_str(
                "client certificates must be verified against authorities of your own: set trust to Only, Pinned or \
                 Callback",
            ),
            Self::BadAlpn => f.write_str("alpn: a name must have 1 to 255 bytes, all together 65,535"),
            Self::NothingLeft(what) => {
                write!(f, "{what} leaves nothing that is implemented: loosen or remove it")
            }
            Self::VersionRange => f.write_str("min_version is above max_version: swap them"),
            Self::QuicNeedsTls13 => {
                f.write_str("QUIC needs TLS 1.3, and max_version is below that: raise it, or do without QUIC")
            }
            Self::BadName(name) => write!(f, "{name} is neither a DNS name nor an IP address"),
            Self::Unsupported(what) => write!(f, "{what} is not implemented: remove it"),
            Self::Pem(e) => e.fmt(f),
            Self::Other(what) => write!(f, "TLS cannot be configured: {what}"),
        }
    }
}

impl std::error::Error for SecurityError {}

impl From<PemError> for SecurityError {
    fn from(e: PemError) -> Self {
        Self::Pem(e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_tls_is_recognised_by_its_first_bytes() {
        assert_eq!(Looks::guess(b"HTTP/1.1 400 Bad Request"), Some(Looks::Http));
        assert_eq!(Looks::guess(b"GET / HTTP/1.1"), Some(Looks::Http));
        assert_eq!(Looks::guess(b"SSH-2.0-OpenSSH"), Some(Looks::Ssh));
        assert_eq!(Looks::guess(b"220 mail.example"), Some(Looks::MailOrFtp));
        assert_eq!(Looks::guess(b"hello\n"), Some(Looks::Text));
        assert_eq!(Looks::guess(&[0, 1, 2]), Some(Looks::Unknown));
        assert_eq!(Looks::guess(&[22, 3, 1]), None);
        assert_eq!(Looks::guess(b""), None);
    }

    #[test]
    fn text_of_the_peer_is_bounded_and_harmless() {
        let text = clean(&format!("\u{1b}[31m{}", "ü".repeat(500)));
        assert!(text.len() <= MAX_PEER_TEXT + '…'.len_utf8());
        assert!(!text.contains('\u{1b}'));
    }

    /// Those of RFC 9622 are what [`crate::SecurityParameters::effect`] takes; programs set fields.
    #[test]
    fn errors_name_fields_as_the_parameters_have_them() {
        let of_rfc = ["serverCertificate", "clientCertificate", "supportedGroup", "signatureAlgorithm", "preSharedKey"];
        let more = ["allowedSecurityProtocols", "pinnedServerCertificate", "ciphersuite parameter", "the parameter"];
        let words = include_str!("error.rs").split("#[cfg(test)]").next().unwrap_or_default();
        let words = words.to_owned() + include_str!("config.rs");
        for name in of_rfc.iter().chain(&more) {
            let quoted =
                words.lines().filter(|line| !line.trim_start().starts_with("//")).any(|line| line.contains(name));
            assert!(!quoted, "{name} in an error");
        }
    }

    #[test]
    fn an_error_stays_small() {
        assert!(size_of::<TlsError>() <= 40, "{}", size_of::<TlsError>());
    }
}
