//! The two directions of a stream, each as a machine, and the user of the stream.
//!
//! *Responsible for* which states a direction has and which events lead from one to another. *Not
//! responsible for* what is done then. After RFC 6525 section 5: a direction ends by a reset of its
//! stream, after everything that was sent on it.

use neater_base::Key;

/// The direction in which this side sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outgoing {
    /// Messages are sent. `renewed`: the peer has begun to reuse the stream number before it
    /// acknowledged the end of the last use, so that its acknowledgement follows.
    Open { renewed: bool },
    /// The direction is to end when everything that was sent is acknowledged. `renewed`: as above.
    Ending { renewed: bool },
    /// The peer knows of the end.
    Ended,
}

impl Outgoing {
    pub(super) const fn is_open(self) -> bool {
        matches!(self, Self::Open { .. })
    }

    pub(super) const fn is_ended(self) -> bool {
        matches!(self, Self::Ended)
    }

    /// The peer has begun this use of the stream number, and acknowledges the end of the last one
    /// later.
    pub(super) const fn on_renewed(self) -> Self {
        match self {
            Self::Open { .. } => Self::Open { renewed: true },
            Self::Ending { .. } => Self::Ending { renewed: true },
            Self::Ended => Self::Ended,
        }
    }

    /// Nothing more is sent.
    pub(super) const fn on_finish(self) -> Self {
        match self {
            Self::Open { renewed } => Self::Ending { renewed },
            ended => ended,
        }
    }

    /// The peer acknowledges an end: of this use, or of the last one. An acknowledgement ends
    /// nothing that this side has not ended.
    pub(super) const fn on_known(self) -> Self {
        match self {
            Self::Open { .. } => Self::Open { renewed: false },
            Self::Ending { renewed: true } => Self::Ending { renewed: false },
            Self::Ending { renewed: false } | Self::Ended => Self::Ended,
        }
    }
}

/// The direction in which the peer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Incoming {
    /// Messages come. `unwanted`: they are dropped.
    Open { unwanted: bool },
    /// The peer has abandoned the direction, with this code; its end is still to come. `unwanted`:
    /// as above.
    Reset { code: u64, unwanted: bool },
    /// The peer has ended it; with a code, if it has abandoned it. `unwanted`: as above.
    Ended { code: Option<u64>, unwanted: bool },
}

impl Incoming {
    /// Whether the peer has ended it.
    pub(super) const fn is_ended(self) -> bool {
        matches!(self, Self::Ended { .. })
    }

    /// With what code the peer has abandoned it.
    pub(super) const fn reset(self) -> Option<u64> {
        match self {
            Self::Open { .. } => None,
            Self::Reset { code, .. } => Some(code),
            Self::Ended { code, .. } => code,
        }
    }

    /// Whether what comes is dropped.
    pub(super) const fn is_unwanted(self) -> bool {
        match self {
            Self::Open { unwanted } | Self::Reset { unwanted, .. } | Self::Ended { unwanted, .. } => unwanted,
        }
    }

    /// Nothing more is read.
    pub(super) const fn on_discard(self) -> Self {
        match self {
            Self::Open { .. } => Self::Open { unwanted: true },
            Self::Reset { code, .. } => Self::Reset { code, unwanted: true },
            Self::Ended { code, .. } => Self::Ended { code, unwanted: true },
        }
    }

    /// The peer reports that it abandons the direction.
    pub(super) const fn on_reset(self, code: u64) -> Self {
        match self {
            Self::Open { unwanted } | Self::Reset { unwanted, .. } => Self::Reset { code, unwanted },
            ended @ Self::Ended { .. } => ended,
        }
    }

    /// The peer has ended it.
    pub(super) const fn on_end(self) -> Self {
        match self {
            Self::Open { unwanted } => Self::Ended { code: None, unwanted },
            Self::Reset { code, unwanted } => Self::Ended { code: Some(code), unwanted },
            ended @ Self::Ended { .. } => ended,
        }
    }
}

/// The user of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum User {
    /// No connection, any more or yet.
    #[default]
    None,
    /// No connection, but the peer has opened it, and it is among those that may be accepted.
    Unaccepted,
    /// A connection.
    Conn(Key),
}

impl User {
    pub(super) const fn conn(self) -> Option<Key> {
        match self {
            Self::Conn(conn) => Some(conn),
            Self::None | Self::Unaccepted => None,
        }
    }
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
    fn every_event_in_every_state_of_a_stream() {
        use Incoming as I;
        use Outgoing as O;
        let out = [
            O::Open { renewed: false },
            O::Open { renewed: true },
            O::Ending { renewed: false },
            O::Ending { renewed: true },
            O::Ended,
        ];
        let on: [Event<O>; 3] = [("renewed", O::on_renewed), ("finish", O::on_finish), ("known", O::on_known)];
        let sides = [false, true].map(|unwanted| {
            [
                I::Open { unwanted },
                I::Reset { code: 1, unwanted },
                I::Ended { code: None, unwanted },
                I::Ended { code: Some(1), unwanted },
            ]
        });
        let got: [Event<I>; 3] = [("discard", I::on_discard), ("reset", |s| s.on_reset(2)), ("end", I::on_end)];
        let found = table(&out, &on) + "\n" + &table(&sides.concat(), &got);
        assert_eq!(found, include_str!("directions.txt"));
    }

    #[test]
    fn what_has_ended_stays_so_and_keeps_its_code() {
        for i in [Incoming::Ended { code: None, unwanted: false }, Incoming::Ended { code: Some(7), unwanted: true }] {
            for next in [i.on_discard(), i.on_reset(9), i.on_end()] {
                assert!(next.is_ended() && next.reset() == i.reset(), "{i:?} -> {next:?}");
            }
        }
        assert!(
            [Outgoing::Ended.on_finish(), Outgoing::Ended.on_known(), Outgoing::Ended.on_renewed()]
                .iter()
                .all(|o| o.is_ended())
        );
    }
}
