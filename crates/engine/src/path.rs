//! What is known of the paths of a connection.

use std::net::SocketAddr;

/// Where a connection's packets can go, beside what they carry: one path of its transport.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathInfo {
    /// Our address, as far as it is known: unspecified where the system chooses it for each packet.
    pub local: SocketAddr,
    /// The peer's address, and the port below the transport.
    pub remote: SocketAddr,
    /// The interface that packets are bound to leave by, by its name.
    pub interface: Option<String>,
    /// What can be said of it.
    pub state: PathUse,
    /// Smoothed round-trip time, once measured.
    pub rtt: Option<core::time::Duration>,
    /// Congestion window in bytes.
    pub window: u64,
    /// Bytes that are on their way.
    pub in_flight: u64,
    /// Packets or chunks with data sent, retransmissions included.
    pub sent: u64,
    /// Of those, how many the path is believed to have lost.
    pub lost: u64,
    /// Bytes of payload that have been acknowledged.
    pub delivered: u64,
    /// Bytes of payload that have come by it.
    pub received: u64,
}

/// Whether a path is used (RFC 9260 section 5.4 and 8.2, RFC 7829).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PathUse {
    /// The peer has not answered from there yet: no data goes there.
    Unconfirmed,
    /// Data goes this way.
    InUse,
    /// It works, and data goes another way.
    Standby,
    /// Packets on it have not been answered lately: data goes another way if there is one.
    PotentiallyFailed,
    /// It does not work, and is probed.
    Inactive,
}

impl PathUse {
    /// The name, in words of small letters.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unconfirmed => "unconfirmed",
            Self::InUse => "in use",
            Self::Standby => "standby",
            Self::PotentiallyFailed => "potentially failed",
            Self::Inactive => "inactive",
        }
    }
}

impl core::fmt::Display for PathUse {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.as_str())
    }
}
