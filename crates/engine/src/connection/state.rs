//! The two directions of a connection, each as a machine.
//!
//! *Responsible for* which states a direction has and which events lead from one to another. *Not
//! responsible for* what is done then: nothing here sends, reads or reports. After s2n-quic's
//! stream states (RFC 9000 sections 3.1 and 3.2), without those that only a transport sees.

/// The direction in which this side sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendSide {
    /// The program may send.
    Open,
    /// The program sends nothing more; what is queued, and the end behind it, is still to be handed
    /// to the transport.
    Closing,
    /// The transport has the end. `unwanted`: the peer has asked meanwhile to stop sending.
    FinSent { unwanted: bool },
    /// The peer has everything, the end included.
    FinAcked,
    /// This side has abandoned the direction, with this code.
    Reset(u64),
    /// The peer wanted no more, with this code. `delivered`: it has everything that was sent all
    /// the same.
    Stopped { code: u64, delivered: bool },
    /// There is no such direction: the peer has opened a stream of one way.
    Absent,
}

impl SendSide {
    /// Whether the program may send.
    #[inline]
    pub(crate) const fn is_open(self) -> bool {
        matches!(self, Self::Open)
    }

    /// Whether there is nothing more to be handed to the transport, not even the end.
    #[inline]
    pub(crate) const fn is_finished(self) -> bool {
        !matches!(self, Self::Open | Self::Closing)
    }

    /// Whether what becomes of the direction is known, and does not depend on the peer any more.
    #[inline]
    pub(crate) const fn is_settled(self) -> bool {
        matches!(self, Self::FinAcked | Self::Reset(_) | Self::Stopped { delivered: true, .. })
    }

    /// Whether the peer wants no more, or has everything: nothing that it abandons is waited for.
    #[inline]
    pub(crate) const fn is_over_for_peer(self) -> bool {
        self.is_unwanted() || self.is_settled()
    }

    /// Whether the peer has asked to stop sending.
    #[inline]
    pub(crate) const fn is_unwanted(self) -> bool {
        matches!(self, Self::FinSent { unwanted: true } | Self::Stopped { .. })
    }

    #[inline]
    pub(crate) const fn is_absent(self) -> bool {
        matches!(self, Self::Absent)
    }

    /// The program ends the direction: by a final message, by finishing or closing.
    #[must_use]
    pub(crate) const fn on_end(self) -> Self {
        match self {
            Self::Open => Self::Closing,
            other => other,
        }
    }

    /// The end was handed to the transport.
    #[must_use]
    pub(crate) const fn on_fin_sent(self) -> Self {
        match self {
            Self::Open | Self::Closing => Self::FinSent { unwanted: false },
            other => other,
        }
    }

    /// The peer has acknowledged everything. A peer that ends its session in order has everything,
    /// too, although no end was sent.
    #[must_use]
    pub(crate) const fn on_all_acked(self) -> Self {
        match self {
            Self::Open | Self::Closing | Self::FinSent { .. } => Self::FinAcked,
            Self::Stopped { code, .. } => Self::Stopped { code, delivered: true },
            other => other,
        }
    }

    /// The peer wants no more, and what is not delivered goes on: the acknowledgement of the end
    /// will show what has become of it.
    #[must_use]
    pub(crate) const fn on_unwanted(self) -> Self {
        match self {
            Self::FinSent { .. } => Self::FinSent { unwanted: true },
            other => other,
        }
    }

    /// The peer wants no more, and the rest is given up; `delivered`: there is none.
    #[must_use]
    pub(crate) const fn on_stopped(self, code: u64, delivered: bool) -> Self {
        match self {
            Self::Absent => self,
            _ => Self::Stopped { code, delivered },
        }
    }

    /// The program abandons the direction.
    #[must_use]
    pub(crate) const fn on_reset(self, code: u64) -> Self {
        match self {
            Self::Absent => self,
            _ => Self::Reset(code),
        }
    }
}

/// The direction in which this side receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecvSide {
    Open,
    /// The peer has ended its direction, and the program has not read up to the end.
    PeerFinished,
    /// The program has read up to the end, or reads no more of what has ended.
    Drained,
    /// The program reads no more; the peer was asked to stop, with this code.
    StopSent(u64),
    /// The peer has abandoned its direction, with this code. `stopped`: the program reads no more.
    Reset {
        code: u64,
        stopped: bool,
    },
    /// There is no such direction: a stream of one way that this side has opened.
    Absent,
}

impl RecvSide {
    /// Whether the program may read, if only to learn that the peer has ended or abandoned its
    /// direction.
    #[inline]
    pub(crate) const fn may_read(self) -> bool {
        matches!(self, Self::Open | Self::PeerFinished | Self::Reset { stopped: false, .. })
    }

    /// Whether the peer has ended its direction in order.
    #[inline]
    pub(crate) const fn has_peer_finished(self) -> bool {
        matches!(self, Self::PeerFinished | Self::Drained)
    }

    /// With which code the peer has abandoned its direction.
    #[inline]
    pub(crate) const fn reset_code(self) -> Option<u64> {
        match self {
            Self::Reset { code, .. } => Some(code),
            _ => None,
        }
    }

    /// The peer has ended its direction; what came before may be unread.
    #[must_use]
    pub(crate) const fn on_peer_finished(self) -> Self {
        match self {
            Self::Open => Self::PeerFinished,
            Self::StopSent(_) | Self::Absent => Self::Drained,
            other => other,
        }
    }

    /// The program has read the end.
    #[must_use]
    pub(crate) const fn on_end_read(self) -> Self {
        match self {
            Self::Reset { .. } => self,
            _ => Self::Drained,
        }
    }

    /// The program reads no more.
    #[must_use]
    pub(crate) const fn on_stop(self, code: u64) -> Self {
        match self {
            Self::Open => Self::StopSent(code),
            Self::PeerFinished => Self::Drained,
            Self::Reset { code, .. } => Self::Reset { code, stopped: true },
            other => other,
        }
    }

    /// The peer has abandoned its direction.
    #[must_use]
    pub(crate) const fn on_reset(self, code: u64) -> Self {
        match self {
            Self::Open | Self::PeerFinished => Self::Reset { code, stopped: false },
            Self::StopSent(_) | Self::Absent => Self::Reset { code, stopped: true },
            other => other,
        }
    }
}

/// The two directions of a connection, as far as its flow needs to know to end it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sides {
    /// Nothing was sent or received.
    pub(crate) untouched: bool,
    /// The program receives nothing more.
    pub(crate) read_closed: bool,
    /// The peer's end was read.
    pub(crate) peer_ended: bool,
    /// The end of this side's direction was handed to the flow.
    pub(crate) fin_done: bool,
    /// The peer has acknowledged it.
    pub(crate) fin_acked: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::fmt::Debug;

    type Event<S> = (&'static str, fn(S) -> S);

    /// Every state and what every event makes of it, in lines.
    fn table<S: Copy + Debug>(states: &[S], events: &[Event<S>]) -> String {
        let row = |s: S| events.iter().map(move |(name, on)| format!("{s:?} -- {name} -> {:?}\n", on(s)));
        states.iter().flat_map(|s| row(*s)).collect()
    }

    #[test]
    fn every_event_in_every_state_of_the_sending_side() {
        use SendSide as S;
        let states = [
            S::Open,
            S::Closing,
            S::FinSent { unwanted: false },
            S::FinSent { unwanted: true },
            S::FinAcked,
            S::Reset(1),
            S::Stopped { code: 2, delivered: false },
            S::Stopped { code: 2, delivered: true },
            S::Absent,
        ];
        let events: [Event<S>; 7] = [
            ("end", S::on_end),
            ("fin sent", S::on_fin_sent),
            ("all acked", S::on_all_acked),
            ("unwanted", S::on_unwanted),
            ("stopped", |s| s.on_stopped(3, false)),
            ("stopped, delivered", |s| s.on_stopped(3, true)),
            ("reset", |s| s.on_reset(4)),
        ];
        assert_eq!(table(&states, &events), include_str!("send_side.txt"));
    }

    #[test]
    fn every_event_in_every_state_of_the_receiving_side() {
        use RecvSide as R;
        let states = [
            R::Open,
            R::PeerFinished,
            R::Drained,
            R::StopSent(1),
            R::Reset { code: 2, stopped: false },
            R::Reset { code: 2, stopped: true },
            R::Absent,
        ];
        let events: [Event<R>; 4] = [
            ("peer finished", R::on_peer_finished),
            ("end read", R::on_end_read),
            ("stop", |r| r.on_stop(3)),
            ("reset", |r| r.on_reset(4)),
        ];
        assert_eq!(table(&states, &events), include_str!("recv_side.txt"));
    }

    #[test]
    fn what_is_settled_is_finished_and_no_event_opens_a_direction_again() {
        for s in [SendSide::FinAcked, SendSide::Reset(0), SendSide::Stopped { code: 0, delivered: true }] {
            assert!(s.is_settled() && s.is_finished() && !s.is_open());
            for next in [s.on_end(), s.on_fin_sent(), s.on_all_acked(), s.on_unwanted(), s.on_reset(1)] {
                assert!(next.is_finished(), "{s:?} -> {next:?}");
            }
        }
        for r in [RecvSide::Drained, RecvSide::StopSent(0), RecvSide::Absent] {
            for next in [r.on_peer_finished(), r.on_end_read(), r.on_stop(1), r.on_reset(1)] {
                assert!(!next.may_read(), "{r:?} -> {next:?}");
            }
        }
    }
}
