//! Datagrams for another engine that shares this one's port.
//!
//! The system spreads a port's datagrams over the engines by their addresses. When a peer's address
//! changes, or an engine joins or leaves, packets may arrive at an engine that does not know the
//! peer; an identifier in the packet shows which one does ([`crate::carrier::misrouted`]).
//!
//! *Responsible for* keeping such datagrams until the application takes them. *Not responsible for*
//! taking in those that others have kept, nor for carrying them from one engine to the other:
//! engines do not know each other.
//!
//! *Invariants*: what is kept is bounded and belongs to one turn; what was passed on once is not
//! passed on again.

use crate::carrier::packet::Misrouted;
use bytes::BytesMut;
use std::net::SocketAddr;

/// A datagram that arrived here and is for the engine with the number
/// [`MisroutedDatagram::engine`].
#[derive(Debug)]
pub struct MisroutedDatagram {
    pub(crate) engine: u8,
    /// Where it arrived.
    pub(crate) local: SocketAddr,
    pub(crate) packet: Misrouted,
    pub(crate) data: BytesMut,
}

impl MisroutedDatagram {
    /// The number of the engine whose connection id or tag it carries, if it is not garbage.
    #[must_use]
    pub fn engine(&self) -> u8 {
        self.engine
    }
}
