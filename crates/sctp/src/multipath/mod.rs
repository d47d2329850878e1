//! Concurrent multipath transfer (CMT): new data over several paths of one association at once.
//!
//! *Responsible for* what can be set, for the schedulers, and for what an association remembers of
//! paths that are in use together. *Not responsible for* whether a path works, or for its
//! congestion window.
//!
//! Sources: Iyengar, Amer, Stewart, "Concurrent Multipath Transfer Using SCTP Multihoming over
//! Independent End-to-End Paths", 2006; Natarajan, "Leveraging Innovative Transport Layer Services
//! for Improved Application Performance", 2009, chapter 4.

mod gain;
mod pseudo;
mod schedule;

pub(crate) use gain::{Gain, Tally};
pub(crate) use pseudo::Pseudo;
pub(crate) use schedule::{Candidate, Demand, Schedule};

use core::time::Duration;
pub use neater_cc::Coupling;

/// Which path carries the next packet with new data, of those whose congestion window has room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathScheduler {
    /// Paths take turns (Iyengar 2006).
    #[default]
    RoundRobin,
    /// The path with the lowest smoothed round-trip time; one that was not measured comes last.
    LowestRtt,
    /// The one that data goes as long as it works; the others stand by.
    Preferred,
    /// Earliest completion first: a slower path is used when the packet arrives by it before the
    /// faster ones have carried all that waits (Lim et al., "ECF: An MPTCP Path Scheduler to Manage
    /// Heterogeneous Paths", 2017).
    EarliestCompletion,
    /// Blocking estimation: a slower path is used when what the faster ones send meanwhile fits
    /// into the peer's receive window (Ferlin et al., "BLEST: Blocking Estimation-based MPTCP
    /// Scheduler for Heterogeneous Networks", 2016).
    BlockingEstimation,
    /// Both conditions: what a path delivers decides, packet by packet, whether it is used.
    Adaptive,
    /// Paths take turns, and a copy of everything goes on each other path that has room.
    Redundant,
}

impl PathScheduler {
    /// Whether it needs to know how long a path takes.
    pub(crate) const fn estimates(self) -> bool {
        !matches!(self, Self::RoundRobin | Self::Preferred)
    }

    /// Whether it is for what all paths carry together, rather than for what arrives soonest.
    pub(crate) const fn fills_all(self) -> bool {
        matches!(self, Self::RoundRobin | Self::BlockingEstimation | Self::Adaptive)
    }
}

/// Which path carries a chunk that was lost (Iyengar 2006, section 5). Always one that is active,
/// if there is any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retransmission {
    /// The path with the largest slow start threshold: RTX-SSTHRESH. One without a threshold yet
    /// has the largest.
    #[default]
    LargestThreshold,
    /// The path with the largest congestion window: RTX-CWND.
    LargestWindow,
    /// The path that has lost the smallest share of what was sent on it: RTX-LOSSRATE.
    LowestLoss,
    /// The path that it was sent on before: RTX-SAME.
    SamePath,
    /// The path with the lowest smoothed round-trip time: others wait for it.
    Fastest,
}

/// Why a path carries new data, or does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathVerdict {
    /// It does, or would if there were anything.
    #[default]
    Used,
    /// One path at a time carries data, and it is another one.
    Standby,
    /// The faster paths will have carried all that waits before a packet arrives by this one.
    FasterSuffice,
    /// What the faster paths carry until a packet arrives by this one has no room at the peer.
    WouldBlock,
    /// The others carry as much without it: they share a bottleneck.
    NoGain,
}

impl PathVerdict {
    /// The reason in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Used => "carries data",
            Self::Standby => "stands by",
            Self::FasterSuffice => "faster ones suffice",
            Self::WouldBlock => "too slow for the peer's buffer",
            Self::NoGain => "shares a bottleneck with another one",
        }
    }
}

/// How new data is spread over the paths of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multipath {
    /// Which path carries new data.
    pub scheduler: PathScheduler,
    /// Which path carries lost data.
    pub retransmission: Retransmission,
    /// Split fast retransmit: a chunk counts as missing only when one that was sent later on the
    /// same path has arrived. Without it every difference between the paths looks like a loss.
    /// Concerns [`crate::LossDetection::MissIndications`]; detection by time is per path anyway.
    pub split_fast_retransmit: bool,
    /// Congestion window update for CMT: a window grows when what is outstanding longest on its own
    /// path is acknowledged, and not only when the cumulative TSN advances.
    pub window_update: bool,
    /// Delayed acknowledgments for CMT: a hole is no reason for a SACK chunk at once, because with
    /// several paths there is nearly always one; the chunk states how many packets it stands for.
    pub delayed_ack: bool,
    /// While the peer's receive window is the limit, what blocks it goes once more on a path that
    /// has room (opportunistic retransmission: Raiciu et al., "How Hard Can It Be?", 2012, section
    /// 4.2).
    pub opportunistic: bool,
    /// The window of a path that blocks the peer's receive window is halved, at most once per round
    /// trip (penalisation: the same section).
    pub penalise: bool,
    /// No path may have more outstanding than its equal share of the peer's receive window (buffer
    /// splitting: Dreibholz et al., "On the Use of Concurrent Multipath Transfer over Asymmetric
    /// Paths", 2010).
    pub split_buffer: bool,
    /// When nothing new can be sent, a path with room carries a copy of what is under way on
    /// another one, if the copy would be acknowledged first: at the end of what there is to send,
    /// and while the peer's receive window is full.
    pub reinject: bool,
    /// A path that nothing comes back from is left after a probe timeout (RFC 8985 section 7.2),
    /// while another one works: it becomes potentially failed, what is under way there goes
    /// elsewhere at once, and it is asked by heartbeats. Needs
    /// [`crate::AssociationConfig::potentially_failed`].
    pub leave_silent: bool,
    /// What each path adds is measured now and then: one is not used for a few round trips, and if
    /// the others carry what it did, it shares their bottleneck and stays unused for longer (what
    /// RFC 8382 is about, by trial and not by statistics of delays).
    pub measure_gain: bool,
    /// How windows grow together.
    pub coupling: Coupling,
}

impl Multipath {
    /// The algorithms of 2006, without countermeasures against a blocked receive buffer.
    #[must_use]
    pub const fn as_published() -> Self {
        Self {
            scheduler: PathScheduler::RoundRobin,
            retransmission: Retransmission::LargestThreshold,
            split_fast_retransmit: true,
            window_update: true,
            delayed_ack: true,
            opportunistic: false,
            penalise: false,
            split_buffer: false,
            reinject: false,
            leave_silent: false,
            measure_gain: false,
            coupling: Coupling::None,
        }
    }

    /// All paths for their capacity, each only as far as it helps.
    #[must_use]
    pub const fn aggregate() -> Self {
        Self {
            scheduler: PathScheduler::Adaptive,
            retransmission: Retransmission::Fastest,
            reinject: true,
            leave_silent: true,
            measure_gain: true,
            ..Self::as_published()
        }
    }

    /// The fastest path first, others when it has no room, and copies where they arrive earlier.
    #[must_use]
    pub const fn interactive() -> Self {
        Self { scheduler: PathScheduler::EarliestCompletion, ..Self::aggregate() }
    }

    /// One path, and another one when it fails.
    #[must_use]
    pub const fn handover() -> Self {
        Self {
            scheduler: PathScheduler::Preferred,
            delayed_ack: false,
            reinject: false,
            measure_gain: false,
            ..Self::aggregate()
        }
    }
}

impl Default for Multipath {
    /// [`Multipath::aggregate`].
    fn default() -> Self {
        Self::aggregate()
    }
}

/// While no path answers: how often each is probed, and for how long that goes on before it becomes
/// seldom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SilentProbing {
    /// The longest time between two probes of one path.
    pub interval: Duration,
    /// For how long after the last path fell silent.
    pub lasting: Duration,
}

impl Default for SilentProbing {
    fn default() -> Self {
        Self { interval: Duration::from_millis(500), lasting: Duration::from_secs(60) }
    }
}
