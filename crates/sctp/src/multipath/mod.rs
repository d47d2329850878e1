//! Concurrent multipath transfer (CMT): new data over several paths of one association at once.
//!
//! *Responsible for* what can be set, for the schedulers, and for what an association remembers of
//! paths that are in use together. *Not responsible for* whether a path works, or for its
//! congestion window.
//!
//! Sources: Iyengar, Amer, Stewart, "Concurrent Multipath Transfer Using SCTP Multihoming over
//! Independent End-to-End Paths", 2006; Natarajan, "Leveraging Innovative Transport Layer Services
//! for Improved Application Performance", 2009, chapter 4.

mod pseudo;
mod schedule;

pub(crate) use pseudo::Pseudo;
pub(crate) use schedule::{Candidate, Schedule};

use core::time::Duration;

/// Which path carries the next packet with new data, of those whose congestion window has room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathScheduler {
    /// Paths take turns (Iyengar 2006).
    #[default]
    RoundRobin,
    /// The path with the lowest smoothed round-trip time; one that was not measured comes last.
    LowestRtt,
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
        }
    }
}

impl Default for Multipath {
    /// The same, and what keeps a bad path from blocking a good one.
    fn default() -> Self {
        Self { scheduler: PathScheduler::LowestRtt, opportunistic: true, penalise: true, ..Self::as_published() }
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
