//! Why a QUIC connection ended or a command failed.

use core::fmt;
use neater_tls::TlsError;

/// Why a QUIC connection ended or could not begin. The texts are for people; the variants are for
/// code.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuicError {
    /// The peer speaks no version of QUIC that we do.
    VersionMismatch,
    /// The TLS handshake inside QUIC failed; the text gives the reason, the number is the TLS alert
    /// (RFC 9001 section 4.8).
    Tls {
        /// The alert, `None` when none was sent.
        alert: Option<u8>,
        /// What happened.
        reason: String,
    },
    /// The peer, or we, found the protocol violated (RFC 9000 section 20.1).
    Transport {
        /// The error code.
        code: u64,
        /// What happened.
        reason: String,
        /// Whether the peer sent it, rather than this side.
        by_peer: bool,
    },
    /// The peer's application closed the connection with this code.
    Closed {
        /// The application's error code.
        code: u64,
        /// The application's words, cut to 256 bytes.
        reason: String,
    },
    /// The peer has lost the connection's state (stateless reset).
    Reset,
    /// For longer than the idle timeout nothing came from the peer, or nothing that was sent to it
    /// was acknowledged: a path may be dead in one direction alone.
    TimedOut,
    /// The addresses of this host have changed, and from the new one the peer has not answered: the
    /// network there lets no QUIC through, or no way leads to the peer (NO_VIABLE_PATH of RFC 9000
    /// section 20.1).
    NoViablePath,
    /// Closed from this side.
    LocallyClosed,
    /// Our own configuration cannot work.
    Configuration(String),
}

impl fmt::Display for QuicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::VersionMismatch => f.write_str("the peer speaks no common version of QUIC"),
            Self::Tls { reason, .. } => write!(f, "TLS: {reason}"),
            Self::Transport { code, reason, by_peer } => {
                let who = if *by_peer { "the peer reports" } else { "the peer caused" };
                write!(f, "{who} QUIC error {code:#x}: {reason}")
            }
            Self::Closed { code, reason } if reason.is_empty() => write!(f, "closed by the peer with code {code}"),
            Self::Closed { code, reason } => write!(f, "closed by the peer with code {code}: {reason}"),
            Self::Reset => f.write_str("the peer has lost the connection (stateless reset)"),
            Self::TimedOut => {
                let what = "nothing came from the peer, or nothing that was sent to it was acknowledged";
                write!(f, "timed out: for longer than the idle timeout {what}")
            }
            Self::NoViablePath => {
                f.write_str("no viable path: the peer has not answered since the addresses of this host changed")
            }
            Self::LocallyClosed => f.write_str("closed locally"),
            Self::Configuration(what) => write!(f, "configuration: {what}"),
        }
    }
}

impl std::error::Error for QuicError {}

/// TLS alerts ride in the crypto error range 0x100 to 0x1ff (RFC 9001 section 4.8).
fn transport(code: u64, reason: &str, by_peer: bool) -> QuicError {
    if (0x100..0x200).contains(&code) {
        let alert = (code & 0xff) as u8;
        let reason = if reason.is_empty() {
            TlsError::from_alert(rustls::AlertDescription::from(alert)).to_string()
        } else {
            // Of its own verdicts this side has names only; the peer's text is passed on.
            TlsError::from_text(reason).filter(|_| !by_peer).map_or_else(|| reason.to_owned(), |e| e.to_string())
        };
        return QuicError::Tls { alert: Some(alert), reason };
    }
    QuicError::Transport { code, reason: reason.to_owned(), by_peer }
}

impl From<quinn_proto::ConnectionError> for QuicError {
    fn from(e: quinn_proto::ConnectionError) -> Self {
        use quinn_proto::ConnectionError as E;
        match e {
            E::VersionMismatch => Self::VersionMismatch,
            E::TransportError(e) => transport(e.code.into(), &e.reason, false),
            E::ConnectionClosed(c) => transport(c.error_code.into(), &text(&c.reason), true),
            E::ApplicationClosed(c) => Self::Closed { code: c.error_code.into_inner(), reason: text(&c.reason) },
            E::Reset => Self::Reset,
            E::TimedOut => Self::TimedOut,
            E::LocallyClosed => Self::LocallyClosed,
            E::CidsExhausted => Self::Configuration("no connection ids left".into()),
        }
    }
}

/// The peer's words, made harmless: bounded, without control characters, which a terminal would
/// obey. Of the marks that change the direction of writing only a sign is left, too: they make a
/// text look like another one.
fn text(bytes: &[u8]) -> String {
    let harmless = |c: char| match c {
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '?',
        c if c.is_control() => '?',
        c => c,
    };
    String::from_utf8_lossy(&bytes[..bytes.len().min(256)]).chars().map(harmless).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peers_words_say_nothing_to_a_terminal() {
        let said = b"bye\x1b]0;owned\x07\r\n\x9b31m \xe2\x80\xaetxt \xc2\x9b gr\xc3\xbc\xc3\x9fe";
        let closed = quinn_proto::ApplicationClose { error_code: 7u32.into(), reason: said.to_vec().into() };
        let reason = match QuicError::from(quinn_proto::ConnectionError::ApplicationClosed(closed)) {
            QuicError::Closed { code: 7, reason } => reason,
            other => panic!("{other:?}"),
        };
        assert!(!reason.chars().any(char::is_control), "{reason:?}");
        assert_eq!(reason, "bye?]0;owned???\u{fffd}31m ?txt ? grüße");
        let closed = quinn_proto::ConnectionClose {
            error_code: quinn_proto::TransportErrorCode::PROTOCOL_VIOLATION,
            frame_type: None,
            reason: said.to_vec().into(),
        };
        let text = QuicError::from(quinn_proto::ConnectionError::ConnectionClosed(closed)).to_string();
        assert!(!text.chars().any(char::is_control), "{text:?}");
    }

    #[test]
    fn verdicts_on_certificates_read_as_they_do_over_tls() {
        let e = transport(0x100 + 46, "invalid peer certificate: Other(OtherError(NotPinned))", false).to_string();
        assert!(e.contains("none of those pinned") && !e.contains("Other"), "{e}");
        let e = transport(0x100 + 48, "invalid peer certificate: UnknownIssuer", false).to_string();
        assert!(e.contains("was not issued by an authority that is trusted here"), "{e}");
        // An alert without words.
        let e = transport(0x100 + 48, "", true);
        assert!(matches!(e, QuicError::Tls { alert: Some(48), .. }));
        assert!(e.to_string().contains("it does not trust our certificate"), "{e}");
        // The peer's words are not about its own certificate.
        let e = transport(0x100 + 48, "invalid peer certificate: UnknownIssuer", true).to_string();
        assert_eq!(e, "TLS: invalid peer certificate: UnknownIssuer");
    }
}
