//! Datagrams for another engine that shares this one's port.
//!
//! The system spreads a port's datagrams over the engines by their addresses. When a peer's address changes, its packets may
//! arrive at an engine that does not know it; its connection id says which one does.
//!
//! *Responsible for* keeping such datagrams for whoever drives, and for taking in those that others have kept. *Not
//! responsible for* carrying them from one engine to the other: engines do not know each other.
//!
//! *Invariants*: what is kept is bounded and belongs to one turn; what was passed on once is not passed on again.

use crate::Engine;
use bytes::BytesMut;
use neater_base::net::Net;
use neater_quic::Datagram;
use std::net::SocketAddr;

/// How many datagrams of other engines one turn keeps. The others are lost, as datagrams may be.
const KEPT_MAX: usize = 256;

/// A datagram that arrived here and is for the engine with the number [`ForeignDatagram::engine`].
#[derive(Debug)]
pub struct ForeignDatagram {
    engine: u8,
    /// Where it arrived.
    local: SocketAddr,
    meta: Datagram,
    data: BytesMut,
}

impl ForeignDatagram {
    /// The number of the engine whose connection id it carries, if it is not garbage.
    #[must_use]
    pub fn engine(&self) -> u8 {
        self.engine
    }
}

impl<N: Net> Engine<N> {
    /// Keeps a datagram for another engine, if this one has siblings.
    pub(crate) fn keep_foreign(&mut self, socket: neater_base::Key, engine: u8, meta: Datagram, data: BytesMut) {
        self.stats.foreign_datagrams += 1;
        if self.config.shared_secret.is_none() || self.foreign.len() >= KEPT_MAX {
            return;
        }
        let Some(sock) = self.quic_sockets.get(socket).map(|s| s.sock) else { return };
        if let Ok(local) = self.net.local_addr(sock) {
            self.foreign.push(ForeignDatagram { engine, local, meta, data });
        }
    }

    /// Takes the datagrams for other engines that the last turn has found. What is not taken is gone after the next turn.
    pub fn take_foreign(&mut self) -> Vec<ForeignDatagram> {
        core::mem::take(&mut self.foreign)
    }

    /// Takes in a datagram that has arrived at another engine on the same port. One that is not for this engine either has
    /// no effect.
    pub fn deliver_foreign(&mut self, datagram: ForeignDatagram) {
        if datagram.engine != self.config.engine || self.is_forked() {
            return;
        }
        self.now = self.net.now();
        let net = &self.net;
        let here = self
            .quic_sockets
            .iter()
            .find(|(_, s)| s.endpoint.is_server() && net.local_addr(s.sock).is_ok_and(|local| local == datagram.local));
        if let Some((socket, _)) = here {
            self.quic_datagram(socket, datagram.meta, datagram.data);
        }
    }
}
