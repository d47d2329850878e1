//! Names of things.

use core::fmt;
use neater_base::Key;
use neater_sctp_wire::StreamId;
use std::net::SocketAddr;

/// An association of an [`crate::Endpoint`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AssociationId(pub(crate) Key);

impl fmt::Debug for AssociationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "association {:?}", self.0)
    }
}

/// A packet layer: an index into [`crate::Config::layers`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LayerId(pub u16);

/// A path of an association. It keeps its number as long as the association lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u8);

/// Where packets go: out of which layer, to which address. The port is that of the encapsulation
/// (RFC 6951), and 0 where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route {
    /// The packet layer.
    pub layer: LayerId,
    /// The address of the peer.
    pub remote: SocketAddr,
}

/// A message that was handed over to be sent; numbers grow with each message of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub u64);

/// One use of an inbound stream. The peer ends it by resetting the stream (RFC 6525), and with that
/// another one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamUse {
    /// The stream.
    pub stream: StreamId,
    /// The reset that it began with: the number of an [`crate::Event::IncomingReset`]. 0: it began
    /// with the association.
    pub reset: u32,
}
