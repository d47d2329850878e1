//! What can be seen of a connection from outside, for figures.

use core::time::Duration;

/// The state of loss recovery, as Linux names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TcpPhase {
    /// Nothing unusual.
    #[default]
    Open,
    /// Something arrived out of order, and nothing is believed lost yet.
    Disorder,
    /// The window comes down because of a mark.
    Reducing,
    /// Lost segments are sent again.
    Recovery,
    /// After a timeout.
    Loss,
}

impl TcpPhase {
    /// Its name in lower case, for tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Disorder => "disorder",
            Self::Reducing => "reducing",
            Self::Recovery => "recovery",
            Self::Loss => "loss",
        }
    }
}

/// The inside of a TCP connection at one moment. Sizes in bytes, payload only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpProbe {
    /// The state of loss recovery.
    pub phase: TcpPhase,
    /// The congestion window.
    pub window: u64,
    /// The slow start threshold; `None` until there was congestion or slow start was left.
    pub threshold: Option<u64>,
    /// What is believed to be in the network.
    pub in_flight: u64,
    /// Sent and not acknowledged in order.
    pub outstanding: u64,
    /// Of this, delivered out of order.
    pub sacked: u64,
    /// Of this, believed lost.
    pub lost: u64,
    /// Written and not yet sent.
    pub unsent: u64,
    /// A full segment.
    pub mss: u64,
    /// The smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// Its variation.
    pub rtt_variation: Option<Duration>,
    /// The least round-trip time of the last five minutes.
    pub least_rtt: Option<Duration>,
    /// The retransmission timeout.
    pub rto: Duration,
    /// The window that the peer offers.
    pub peer_window: u64,
    /// The receive buffer of this side.
    pub own_window: u64,
    /// Delivered to the peer since the beginning.
    pub delivered: u64,
    /// Received in order since the beginning.
    pub received: u64,
    /// Segments sent again.
    pub retransmits: u64,
    /// Recoveries begun.
    pub recoveries: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Tail loss probes.
    pub probes: u64,
    /// Congestion events taken back because they were spurious.
    pub undone: u64,
    /// Reductions because of marks.
    pub marks: u64,
    /// By how many segments the network is known to reorder; 3 if it is not known to.
    pub reordering: u64,
    /// The last delivery rate, in bytes per second.
    pub delivery_rate: Option<u64>,
}

/// The counters of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) received: u64,
    pub(crate) retransmits: u64,
    pub(crate) recoveries: u64,
    pub(crate) timeouts: u64,
    pub(crate) probes: u64,
    pub(crate) undone: u64,
    pub(crate) marks: u64,
}
