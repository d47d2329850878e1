//! Datagrams for another engine that shares this one's port.
//!
//! The system spreads a port's datagrams over the engines by their addresses. When a peer's address changes, or an engine joins or
//! leaves, packets may arrive at an engine that does not know the peer; something in the packet says which one does
//! ([`crate::carrier::misrouted`]).
//!
//! *Responsible for* keeping such datagrams until the application takes them. *Not responsible for* taking in those that others
//! have kept, nor for carrying them from one engine to the other: engines do not know each other.
//!
//! *Invariants*: what is kept is bounded and belongs to one turn; what was passed on once is not passed on again.

use crate::carrier::misrouted::Misrouted;
use crate::context::Context;
use bytes::BytesMut;
use neater_base::net::{Net, Sock};
use std::net::SocketAddr;

/// How many datagrams of other engines one turn keeps. The others are lost, as datagrams may be.
const KEPT_MAX: usize = 256;

/// A datagram that arrived here and is for the engine with the number [`ForeignDatagram::engine`].
#[derive(Debug)]
pub struct ForeignDatagram {
    pub(crate) engine: u8,
    /// Where it arrived.
    pub(crate) local: SocketAddr,
    pub(crate) packet: Misrouted,
    pub(crate) data: BytesMut,
}

impl ForeignDatagram {
    /// The number of the engine whose connection id or tag it carries, if it is not garbage.
    #[must_use]
    pub fn engine(&self) -> u8 {
        self.engine
    }
}

impl<N: Net> Context<N> {
    /// Keeps a datagram that has arrived at a socket for the engine with this number.
    pub(crate) fn keep_misrouted(
        &mut self,
        sock: Sock,
        engine: u8,
        packet: Misrouted,
        data: impl FnOnce() -> BytesMut,
    ) {
        self.stats.foreign_datagrams += 1;
        if self.foreign.len() >= KEPT_MAX {
            return;
        }
        if let Ok(local) = self.net.local_addr(sock) {
            self.foreign.push(ForeignDatagram { engine, local, packet, data: data() });
        }
    }
}
