//! Datagrams for another engine that shares this one's port.
//!
//! The system spreads a port's datagrams over the engines by their addresses. When a peer's address changes, or an engine joins or
//! leaves, packets may arrive at an engine that does not know the peer; something in the packet says which one does
//! ([`crate::carrier::misrouted`]).
//!
//! *Responsible for* keeping such datagrams for whoever drives, and for taking in those that others have kept. *Not
//! responsible for* carrying them from one engine to the other: engines do not know each other.
//!
//! *Invariants*: what is kept is bounded and belongs to one turn; what was passed on once is not passed on again.

use crate::Engine;
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

impl<N: Net> Engine<N> {
    /// Takes the datagrams for other engines that the last turn has found. What is not taken is gone after the next turn.
    pub fn take_foreign(&mut self) -> Vec<ForeignDatagram> {
        core::mem::take(&mut self.cx.foreign)
    }

    /// Takes in a datagram that has arrived at another engine on the same port. One that is for yet another has no effect. One that this
    /// engine cannot take, because it is not at that port any more, is returned, for [`Engine::deliver_unclaimed`] of the engine at
    /// which it has arrived.
    pub fn deliver_foreign(&mut self, datagram: ForeignDatagram) -> Option<ForeignDatagram> {
        if datagram.engine == self.cx.config.engine { self.take_in(datagram, false) } else { None }
    }

    /// Takes in a datagram that this engine has found to be another one's, of which there is none with that number: its peer is told that
    /// nobody knows its connection (RFC 9000 section 10.3, RFC 9260 section 8.4).
    pub fn deliver_unclaimed(&mut self, datagram: ForeignDatagram) {
        let _ = self.take_in(datagram, true);
    }

    fn take_in(&mut self, datagram: ForeignDatagram, unclaimed: bool) -> Option<ForeignDatagram> {
        if self.is_forked() {
            return None;
        }
        self.cx.now = self.cx.net.now();
        let left = self.on_misrouted(datagram, unclaimed);
        self.drain_carriers();
        left
    }
}
