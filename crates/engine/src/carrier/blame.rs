//! What the end of an attempt, or of a connection, reveals about the peer and the way there.
//!
//! *Responsible for* distinguishing errors that count against a candidate from trouble of this
//! host's own, and from a peer with another identity than expected. *Not responsible for* what is
//! made of them ([`crate::establish`]).

use crate::event::{AttemptError, ConnectionError};
use neater_base::net::{ErrorKind, NetError};
use neater_quic::QuicError;
use neater_race::BadCause;
use neater_tls::Blame;

/// The alerts which mean that a certificate or its owner is not acceptable (RFC 8446 section 6.2).
const REFUSALS: [u8; 7] = [42, 43, 44, 45, 46, 48, 49];

/// Whether an attempt ended because the peer has not the expected identity.
pub(crate) fn is_refusal(error: &AttemptError) -> bool {
    match error {
        AttemptError::Tls(e) => e.blame() == Blame::PeerCertificate,
        AttemptError::Quic(QuicError::Tls { alert: Some(alert), .. }) => REFUSALS.contains(alert),
        _ => false,
    }
}

/// Whether a connection ended because one side rejected the other: a server reports a rejected
/// client certificate only after the client's handshake has completed (RFC 8446 section 4.4.2.4).
pub(crate) fn ended_by_refusal(error: &ConnectionError) -> bool {
    match error {
        ConnectionError::Tls(e) => matches!(e.blame(), Blame::PeerCertificate | Blame::RefusedByPeer),
        ConnectionError::Quic(QuicError::Tls { alert: Some(alert), .. }) => REFUSALS.contains(alert),
        _ => false,
    }
}

/// Whether an error of an attempt is evidence about the path to the peer, or about the peer.
fn tells(error: &AttemptError) -> bool {
    match error {
        AttemptError::Net(e) => of_the_path(e),
        AttemptError::Quic(e) => !matches!(e, QuicError::LocallyClosed | QuicError::Configuration(_)),
        AttemptError::Sctp(e) => *e != neater_sctp::CloseReason::Aborted,
        AttemptError::Tls(_) | AttemptError::TimedOut | AttemptError::ClosedByPeer | AttemptError::NotOffered(_) => {
            true
        }
        AttemptError::Resolve(_)
        | AttemptError::Framer(_)
        | AttemptError::NoAddress
        | AttemptError::NoZone
        | AttemptError::PeerRefused => false,
    }
}

fn of_the_path(e: &NetError) -> bool {
    use ErrorKind as K;
    matches!(
        e.kind,
        K::ConnectionRefused
            | K::ConnectionReset
            | K::TimedOut
            | K::NetworkUnreachable
            | K::HostUnreachable
            | K::PermissionDenied
            | K::BrokenPipe
    )
}

/// What is wrong with an attempt that ended with this error; `None`: nothing that is the
/// candidate's fault, or nothing that may penalise a candidate in later races (see [`is_refusal`]).
pub(crate) fn cause_of(error: &AttemptError, answered: bool) -> Option<BadCause> {
    if is_refusal(error) {
        return None;
    }
    let timed_out = matches!(error, AttemptError::TimedOut)
        || matches!(error, AttemptError::Net(e) if e.kind == ErrorKind::TimedOut);
    match (timed_out, answered) {
        (true, true) => Some(BadCause::Stalled),
        (true, false) => Some(BadCause::Silent),
        _ => tells(error).then_some(BadCause::Failed),
    }
}

/// How an established connection has failed, as far as its peer or the way there may be to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Nothing has come for the idle timeout of its session.
    IdleTimeout,
    /// Nothing has come, or was acknowledged, for the connection's own timeout.
    Timeout,
    /// At once.
    Broken,
}

impl Failure {
    /// The failure that an error shows; `None`: an end in order, or trouble of this host's own.
    pub(crate) fn of(error: &ConnectionError) -> Option<Self> {
        match error {
            ConnectionError::Quic(QuicError::TimedOut) => Some(Self::IdleTimeout),
            ConnectionError::TimedOut => Some(Self::Timeout),
            ConnectionError::Net(e) if e.kind == ErrorKind::TimedOut => Some(Self::Timeout),
            ConnectionError::Net(e) if of_the_path(e) => Some(Self::Broken),
            ConnectionError::Quic(e) if !matches!(e, QuicError::LocallyClosed | QuicError::Configuration(_)) => {
                Some(Self::Broken)
            }
            ConnectionError::Sctp(e) if *e != neater_sctp::CloseReason::Aborted => Some(Self::Broken),
            ConnectionError::Tls(_) | ConnectionError::Truncated => Some(Self::Broken),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(kind: ErrorKind) -> AttemptError {
        AttemptError::Net(kind.into())
    }

    #[test]
    fn trouble_of_this_host_counts_against_nobody() {
        use ErrorKind as K;
        for kind in [K::TooManyFiles, K::NoBuffers, K::AddrInUse, K::InvalidInput, K::Forked, K::Unsupported] {
            assert_eq!(cause_of(&net(kind), false), None, "{kind:?}");
        }
        assert_eq!(cause_of(&AttemptError::Quic(QuicError::LocallyClosed), true), None);
        assert_eq!(cause_of(&net(K::ConnectionRefused), false), Some(BadCause::Failed));
        assert_eq!(cause_of(&net(K::TimedOut), false), Some(BadCause::Silent));
        assert_eq!(cause_of(&AttemptError::TimedOut, true), Some(BadCause::Stalled));
    }

    #[test]
    fn a_peer_with_another_identity_is_no_penalty() {
        use neater_tls::TlsError;
        let quic = |alert| QuicError::Tls { alert: Some(alert), reason: String::new() };
        for refusal in [TlsError::NotPinned, TlsError::RefusedByApplication, TlsError::UnknownIssuer] {
            assert_eq!(cause_of(&AttemptError::Tls(refusal), true), None, "stacks without security would go first");
        }
        assert_eq!(cause_of(&AttemptError::Quic(quic(46)), true), None);
        assert_eq!(cause_of(&AttemptError::Tls(TlsError::Decrypt), true), Some(BadCause::Failed));
        assert_eq!(cause_of(&AttemptError::Quic(quic(40)), true), Some(BadCause::Failed));
        assert!(
            ended_by_refusal(&ConnectionError::Quic(quic(42))) && !ended_by_refusal(&ConnectionError::Quic(quic(80)))
        );
    }
}
