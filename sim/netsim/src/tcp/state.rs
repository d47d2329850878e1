//! The states of RFC 9293 section 3.3.2, and what each allows.
//!
//! LISTEN is a listener's, not a connection's. A close during SYN-RECEIVED waits until the connection is established, as
//! RFC 9293 section 3.10.4 allows.

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
    Closed,
}

/// What moves a connection that has been established.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The application closes its direction.
    Close,
    /// Everything up to the peer's FIN has come.
    PeerFin,
    /// The peer has acknowledged our FIN.
    FinAcked,
}

impl State {
    /// The state after `cause`; the same where the cause means nothing.
    pub(crate) const fn after(self, cause: Cause) -> Self {
        match (self, cause) {
            (Self::Established, Cause::Close) => Self::FinWait1,
            (Self::CloseWait, Cause::Close) => Self::LastAck,
            (Self::Established, Cause::PeerFin) => Self::CloseWait,
            (Self::FinWait1, Cause::PeerFin) => Self::Closing,
            (Self::FinWait2, Cause::PeerFin) => Self::TimeWait,
            (Self::FinWait1, Cause::FinAcked) => Self::FinWait2,
            (Self::Closing, Cause::FinAcked) => Self::TimeWait,
            (Self::LastAck, Cause::FinAcked) => Self::Closed,
            (same, _) => same,
        }
    }

    /// The handshake is not over.
    pub(crate) const fn is_opening(self) -> bool {
        matches!(self, Self::SynSent | Self::SynReceived)
    }

    /// Segments with data or FIN may be sent, for the first time or again.
    pub(crate) const fn may_transmit(self) -> bool {
        matches!(self, Self::Established | Self::CloseWait | Self::FinWait1 | Self::Closing | Self::LastAck)
    }

    /// The application may write.
    pub(crate) const fn may_write(self) -> bool {
        matches!(self, Self::Established | Self::CloseWait)
    }

    /// The peer may send data.
    pub(crate) const fn may_receive(self) -> bool {
        matches!(self, Self::Established | Self::FinWait1 | Self::FinWait2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transitions_are_those_of_the_diagram() {
        use Cause::{Close, FinAcked, PeerFin};
        use State::*;
        let all =
            [SynSent, SynReceived, Established, FinWait1, FinWait2, CloseWait, Closing, LastAck, TimeWait, Closed];
        let mut moves = Vec::new();
        for state in all {
            for cause in [Close, PeerFin, FinAcked] {
                if state.after(cause) != state {
                    moves.push((state, cause, state.after(cause)));
                }
            }
        }
        assert_eq!(
            moves,
            [
                (Established, Close, FinWait1),
                (Established, PeerFin, CloseWait),
                (FinWait1, PeerFin, Closing),
                (FinWait1, FinAcked, FinWait2),
                (FinWait2, PeerFin, TimeWait),
                (CloseWait, Close, LastAck),
                (Closing, FinAcked, TimeWait),
                (LastAck, FinAcked, Closed),
            ]
        );
    }
}
