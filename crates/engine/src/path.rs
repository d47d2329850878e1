//! What is known of the paths of a connection, and how a program changes the endpoints that they
//! lead between.

use crate::LocalEndpoint;
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
    /// Its state.
    pub state: PathUse,
    /// Why it carries new data or does not, in words, where several work and the transport chooses
    /// among them; why there is one, where several were asked for.
    pub why: Option<&'static str>,
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

/// A change of the endpoints of an established connection (RFC 9622 section 7.5).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndpointChange {
    /// The peer has this address, too; the port is the one below the transport (of UDP, where SCTP
    /// is encapsulated, and 0 over IP).
    AddRemote(SocketAddr),
    /// The peer's address is used no more. The peer is not notified: RFC 5061 lets each side delete
    /// its own addresses alone (section 4.2.2).
    RemoveRemote(SocketAddr),
    /// This host's address or interface may be used, too.
    AddLocal(LocalEndpoint),
    /// This host's address or interface is used no more.
    RemoveLocal(LocalEndpoint),
}

/// Why the endpoints of a connection have not been changed. Nothing has changed then, and the
/// connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndpointError {
    /// The connection is not established, or is over.
    NotEstablished,
    /// What carries it has one path: it is not SCTP, or `multipath` is `Disabled`.
    OnePath,
    /// This cannot be done on this connection, for this reason.
    Unsupported(&'static str),
    /// The host has no such interface that is up, or it has no address of the kind that is needed.
    NoInterface,
    /// The connection does not use this endpoint.
    Unused,
    /// Policy, or a property of the connection, prohibits the interface.
    Prohibited,
    /// No other path has been found to work: add one first, or close the connection.
    Last,
    /// It has as many paths as it may (8), or too many changes wait.
    TooMany,
    /// An address that no host has: unspecified, multicast or broadcast.
    NoAddress,
}

impl core::fmt::Display for EndpointError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NotEstablished => "the connection is not established, or is over",
            Self::OnePath => "what carries the connection has one path: ask for SCTP and `multipath`",
            Self::Unsupported(why) => why,
            Self::NoInterface => {
                "the host has no such interface that is up and has an address of the kind that is needed"
            }
            Self::Unused => "the connection does not use this endpoint",
            Self::Prohibited => "policy or a property of the connection prohibits this interface",
            Self::Last => "no other path has been found to work: add one first, or close the connection",
            Self::TooMany => "the connection has as many paths as it may, or too many changes wait",
            Self::NoAddress => "no host has this address: it is unspecified, multicast or broadcast",
        })
    }
}

impl core::error::Error for EndpointError {}
