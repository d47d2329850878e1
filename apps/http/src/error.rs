//! Why a request failed, sorted by what the caller can do about it.

use crate::HttpVersion;
use core::fmt;
use core::time::Duration;
use h3::error::{Code, ConnectionError as H3ConnectionError, LocalError, StreamError};
use h3::quic::ConnectionErrorIncoming;
use neater::{AttemptError, ConnectionError, EstablishmentError, Fate, ServiceOutcome};
use neater_quic::QuicError;

/// Why a request failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The URL cannot be used; the text explains why and what to use instead.
    Url(String),
    /// The needs, the security and the URL contradict each other.
    Needs(String),
    /// No connection: every candidate and what became of it.
    Establishment(Box<EstablishmentError>),
    /// A redirection that is not followed, and why.
    Redirect(String),
    /// The peer broke the rules of HTTP, or refused the request below HTTP's status codes.
    Protocol(String),
    /// The connection ended before the answer did.
    Interrupted {
        /// Bytes of the body that have come.
        received: u64,
        /// Bytes of the body that were announced, if any were.
        expected: Option<u64>,
        /// What ended it.
        cause: String,
    },
    /// The server announced one length and sent another.
    Length {
        /// Bytes that came.
        received: u64,
        /// Bytes that were announced.
        expected: u64,
    },
    /// The server has ended the connection because of security, after it was established: it wants
    /// a certificate of its client.
    Security(String),
    /// The server has not looked at the request, again and again: it has too much to do, or is
    /// going away.
    Refused(String),
    /// Nothing came for this long.
    Silent(Duration),
    /// The proxy did not let the request through.
    Proxy {
        /// The status that it answered, if it did.
        status: Option<u16>,
        /// Which proxy, and why, in words. Neither name nor password is in it.
        why: String,
    },
    /// This system has no descriptors or memory left.
    Local(std::io::Error),
}

/// TLS alerts that are about certificates (RFC 8446 section 6.2): bad_certificate to unknown_ca,
/// and access_denied.
const CERTIFICATE_ALERTS: core::ops::RangeInclusive<u8> = 42..=49;

/// certificate_required (RFC 8446 section 6.2).
const CERTIFICATE_REQUIRED: u8 = 116;

impl Error {
    /// Whether security is why: the peer's certificate is not acceptable, or there is no security
    /// in common.
    #[must_use]
    pub fn is_security(&self) -> bool {
        match self {
            Self::Establishment(e) => is_security(e),
            Self::Security(_) => true,
            _ => false,
        }
    }

    /// Whether asking again, for what is missing, may help.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Interrupted { .. } | Self::Silent(_) | Self::Refused(_))
    }

    /// Whether no connection came about, for a reason that may pass: a server that has just been
    /// there may be starting again.
    #[must_use]
    pub fn is_of_establishment(&self) -> bool {
        match self {
            Self::Establishment(_) => !self.is_security(),
            // What the proxy has no way to at present (RFC 9110 section 15.6), and a proxy that is
            // not there itself.
            Self::Proxy { status, .. } => status.is_none_or(|s| s >= 500),
            _ => false,
        }
    }

    /// One word for programs.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Url(_) => "url",
            Self::Needs(_) => "needs",
            Self::Establishment(_) if self.is_security() => "security",
            Self::Establishment(_) => "establishment",
            Self::Security(_) => "security",
            Self::Redirect(_) => "redirect",
            Self::Protocol(_) => "protocol",
            Self::Interrupted { .. } => "interrupted",
            Self::Length { .. } => "length",
            Self::Refused(_) => "refused",
            Self::Silent(_) => "silent",
            Self::Proxy { .. } => "proxy",
            Self::Local(_) => "local",
        }
    }
}

/// Whether a connection could not be established because of security.
#[must_use]
pub fn is_security(e: &EstablishmentError) -> bool {
    use neater::tls::Blame;
    e.candidates.iter().any(|c| match &c.fate {
        Fate::Failed(AttemptError::Tls(e)) => matches!(e.blame(), Blame::PeerCertificate | Blame::RefusedByPeer),
        Fate::Failed(AttemptError::Quic(QuicError::Tls { alert: Some(a), .. })) => CERTIFICATE_ALERTS.contains(a),
        _ => false,
    })
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(why) | Self::Needs(why) | Self::Redirect(why) | Self::Protocol(why) => f.write_str(why),
            Self::Establishment(e) => e.fmt(f),
            Self::Interrupted { received, expected: Some(n), cause } => {
                write!(f, "the connection ended after {received} of {n} bytes: {cause}")
            }
            Self::Interrupted { received: 0, expected: None, cause } => {
                write!(f, "the connection ended before anything of the content came: {cause}")
            }
            Self::Interrupted { received, expected: None, cause } => {
                write!(f, "the connection ended after {received} bytes: {cause}")
            }
            Self::Length { received, expected } => {
                write!(f, "the server announced {expected} bytes and sent {received}")
            }
            Self::Security(why) | Self::Proxy { why, .. } => f.write_str(why),
            Self::Refused(why) => write!(f, "the server takes no requests at present: {why}"),
            Self::Silent(d) => write!(f, "nothing came for {:.1} s", d.as_secs_f64()),
            Self::Local(e) => write!(f, "this system: {e}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<EstablishmentError> for Error {
    fn from(e: EstablishmentError) -> Self {
        Self::Establishment(Box::new(e))
    }
}

/// The error and what lies behind it, each thing once.
pub(crate) fn chain(e: &(dyn std::error::Error + 'static)) -> String {
    let mut text = e.to_string();
    let mut next = e.source();
    while let Some(e) = next {
        let more = e.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        next = e.source();
    }
    text
}

/// What a failure shows of the connection that it has come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// How the peer has served, by its own doing.
    Shown(ServiceOutcome),
    /// The connection has ended. Where nothing has been answered on it, it was no good.
    Ended,
    /// The peer has too much to do, or wants this request alone no more.
    Excused,
    /// The peer has not looked at the request, which may be sent again; on another connection if
    /// this one is `going`.
    Refused {
        /// The connection takes no more requests.
        going: bool,
    },
}

impl Fault {
    /// Of a failure of hyper's.
    pub(crate) fn of_hyper(e: &hyper::Error) -> Self {
        use h2::Reason as R;
        match h2_error(e).and_then(h2::Error::reason) {
            Some(R::HTTP_1_1_REQUIRED) => Self::Shown(ServiceOutcome::WantsOther),
            Some(R::REFUSED_STREAM) => Self::Refused { going: false },
            // RFC 9113 section 6.8: a stream above the last one that GOAWAY names.
            Some(R::NO_ERROR) if h2_error(e).is_some_and(|e| e.is_go_away() && e.is_remote()) => {
                Self::Refused { going: true }
            }
            Some(R::NO_ERROR | R::CANCEL | R::ENHANCE_YOUR_CALM) => Self::Excused,
            Some(_) => Self::Shown(ServiceOutcome::Broken),
            None if e.is_user() => Self::Excused,
            None if e.is_parse() || e.is_parse_too_large() => Self::Shown(ServiceOutcome::Broken),
            None => Self::Ended,
        }
    }

    /// Of a failure of h3's on a stream.
    pub(crate) fn of_h3(e: &StreamError) -> Self {
        match e {
            StreamError::StreamError { code, .. } | StreamError::RemoteTerminate { code, .. } => Self::of_code(*code),
            StreamError::ConnectionError(e, ..) => Self::of_h3_connection(e),
            StreamError::RemoteClosing => Self::Refused { going: true },
            StreamError::HeaderTooBig { .. } => Self::Excused,
            _ => Self::Ended,
        }
    }

    /// Of a failure of h3's on a whole connection.
    pub(crate) fn of_h3_connection(e: &H3ConnectionError) -> Self {
        match e {
            H3ConnectionError::Local { error: LocalError::Application { code, .. }, .. } => Self::of_code(*code),
            H3ConnectionError::Remote(e, ..) => Self::of_session(e),
            H3ConnectionError::Timeout => Self::Shown(ServiceOutcome::Silent),
            _ => Self::Ended,
        }
    }

    /// Of the end of a QUIC session.
    pub(crate) fn of_session(e: &ConnectionErrorIncoming) -> Self {
        match e {
            ConnectionErrorIncoming::ApplicationClose { error_code } => Self::of_code(Code::from(*error_code)),
            ConnectionErrorIncoming::Timeout => Self::Shown(ServiceOutcome::Silent),
            _ => Self::Ended,
        }
    }

    /// Of a code of HTTP/3 (RFC 9114 section 8.1).
    fn of_code(code: Code) -> Self {
        match code {
            Code::H3_VERSION_FALLBACK => Self::Shown(ServiceOutcome::WantsOther),
            Code::H3_REQUEST_REJECTED => Self::Refused { going: false },
            Code::H3_NO_ERROR | Code::H3_REQUEST_CANCELLED | Code::H3_EXCESSIVE_LOAD => Self::Excused,
            _ => Self::Shown(ServiceOutcome::Broken),
        }
    }
}

/// What has failed of HTTP/2, if it is that.
fn h2_error(e: &hyper::Error) -> Option<&h2::Error> {
    let mut next = std::error::Error::source(e);
    while let Some(e) = next {
        if let Some(e) = e.downcast_ref::<h2::Error>() {
            return Some(e);
        }
        next = e.source();
    }
    None
}

/// What a failure of hyper's means, before or in the middle of an answer.
pub(crate) fn of_hyper(e: &hyper::Error, received: u64, expected: Option<u64>) -> Error {
    if e.is_parse() || e.is_parse_too_large() || e.is_user() {
        return Error::Protocol(format!("the server's answer is not acceptable: {}", chain(e)));
    }
    if let Some(why) = refused_by_tls(e) {
        return Error::Security(why);
    }
    // What travels as a stream error of HTTP/2 may be a length that is not kept: it reads like any
    // other reset.
    Error::Interrupted { received, expected, cause: chain(e) }
}

/// What the peer had against our certificate, or that we have none, if that has ended the
/// connection: TLS 1.3 reports it to a client only after its handshake.
fn refused_by_tls(e: &hyper::Error) -> Option<String> {
    let mut next = std::error::Error::source(e);
    while let Some(e) = next {
        let io = e.downcast_ref::<std::io::Error>().or_else(|| e.downcast_ref::<h2::Error>()?.get_io());
        if let Some(why) = io.and_then(std::io::Error::get_ref).and_then(refused_by_alert) {
            return Some(why);
        }
        next = e.source();
    }
    None
}

/// The same of the error of a byte stream. Of one that has ended a connection of HTTP/2 the h2
/// crate keeps only the words.
fn refused_by_alert(e: &(dyn std::error::Error + Send + Sync + 'static)) -> Option<String> {
    use neater::tls::TlsError;
    if let Some(e) = e.downcast_ref::<ConnectionError>() {
        return if let ConnectionError::Tls(e) = e { is_about_us(e).then(|| e.to_string()) } else { None };
    }
    let words = e.to_string();
    let mut alerts = CERTIFICATE_ALERTS.chain([CERTIFICATE_REQUIRED]).map(|alert| TlsError::from_alert(alert.into()));
    alerts.any(|alert| alert.to_string() == words).then_some(words)
}

/// The same of a QUIC session (RFC 9001 section 4.8).
fn refused_by_quic(e: &StreamError) -> Option<String> {
    let StreamError::ConnectionError(H3ConnectionError::Remote(ConnectionErrorIncoming::Undefined(e), ..), ..) = e
    else {
        return None;
    };
    let e: &(dyn std::error::Error + 'static) = &**e;
    let ConnectionError::Quic(QuicError::Tls { alert: Some(alert), reason }) = e.downcast_ref()? else { return None };
    let about_us = CERTIFICATE_ALERTS.contains(alert) || *alert == CERTIFICATE_REQUIRED;
    about_us.then(|| format!("the peer refused this side's certificate, or wants one: {reason}"))
}

/// Alerts about certificates, and certificate_required (RFC 8446 section 6.2).
fn is_about_us(e: &neater::tls::TlsError) -> bool {
    matches!(e, neater::tls::TlsError::RefusedByPeer(alert) if CERTIFICATE_ALERTS.contains(&u8::from(*alert)) || u8::from(*alert) == CERTIFICATE_REQUIRED)
}

/// What a failure of h3's means, before or in the middle of an answer.
pub(crate) fn of_h3(e: &h3::error::StreamError, received: u64, expected: Option<u64>) -> Error {
    match e {
        h3::error::StreamError::HeaderTooBig { .. } => {
            Error::Protocol(format!("the {} answer is not acceptable: {e}", HttpVersion::Http3))
        }
        e => {
            let mut cause = chain(e);
            if let Some(why) = refused_by_quic(e) {
                return Error::Security(why);
            }
            if cause.contains("H3_EXCESSIVE_LOAD") {
                cause = "the server has too much to do, or too many connections from this address (H3_EXCESSIVE_LOAD)"
                    .into();
            }
            Error::Interrupted { received, expected, cause }
        }
    }
}
