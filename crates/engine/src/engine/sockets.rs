//! Sockets of carriers: what follows from their readiness.
//!
//! *Responsible for* datagrams of another engine shard on the same port ([`crate::shards`]), and
//! for trying the fast path before the general way. *Not responsible for* the sockets themselves
//! ([`crate::carrier::socket`]).

use super::Engine;
use crate::MisroutedDatagram;
use crate::carrier::ids::CarrierSocket;
use crate::carrier::socket::Woken;
use neater_base::Key;
use neater_base::net::{Net, Ready};

impl<N: Net> Engine<N> {
    /// A socket of a carrier is ready.
    #[inline]
    pub(crate) fn on_carrier_ready(&mut self, socket: CarrierSocket, ready: Ready) {
        if let Some(key) = socket.own() {
            return self.socket_ready(key, ready);
        }
        self.cx.connections = self.conns.len();
        self.carriers.on_ready(&mut self.cx, socket, ready);
        self.drain_carriers();
    }

    #[inline]
    pub(crate) fn socket_ready(&mut self, key: Key, ready: Ready) {
        match self.carriers.sockets.wake(key, ready) {
            None => {}
            Some(Woken::Conn { conn, readable, writable }) => {
                if fast_path!(self).on_ready(conn, readable, writable) {
                    return;
                }
                self.conn_ready(key, conn, readable, writable);
            }
            Some(Woken::Alone { conn }) => self.alone_ready(key, conn),
            Some(Woken::Accepts { listener }) => self.accept(listener, key),
            Some(Woken::Error { conn }) => self.conn_error(key, conn),
            Some(Woken::Other { writable }) => self.carriers.sockets.on_socket_ready(&mut self.cx, key, writable),
        }
        if self.carriers.has_events() {
            self.drain_carriers();
        }
    }

    /// The same of the only attempt of a connection.
    pub(crate) fn alone_ready(&mut self, key: Key, conn: Key) {
        // Policies want to see how it went.
        if self.refused.is_none()
            && !self.policies.are_asked()
            && let Some(ended) = fast_path!(self).connect_ended(key, conn)
        {
            return match ended {
                Ok(connected) => fast_path!(self).report_connected(conn, connected),
                Err(e) => self.cached_failed(key, e),
            };
        }
        match self.take_refused(key) {
            Some(e) => self.cached_failed(key, e),
            None => self.carriers.sockets.on_socket_ready(&mut self.cx, key, false),
        }
    }

    /// Takes the datagrams for other engines that the last turn has found. What is not taken is
    /// gone after the next turn.
    pub fn take_misrouted(&mut self) -> Vec<MisroutedDatagram> {
        core::mem::take(&mut self.cx.misrouted)
    }

    /// Takes in a datagram that has arrived at another engine on the same port. One that is for yet
    /// another has no effect. One that this engine cannot take, because it is not at that port any
    /// more, is returned, for [`Engine::deliver_unmatched`] of the engine at which it has arrived.
    pub fn deliver_misrouted(&mut self, datagram: MisroutedDatagram) -> Option<MisroutedDatagram> {
        if datagram.engine == self.cx.config.engine { self.take_in(datagram, false) } else { None }
    }

    /// Takes in a datagram for another engine of a number that is not in use: the peer is answered
    /// that its connection is unknown (RFC 9000 section 10.3, RFC 9260 section 8.4).
    pub fn deliver_unmatched(&mut self, datagram: MisroutedDatagram) {
        let _ = self.take_in(datagram, true);
    }

    pub(crate) fn take_in(&mut self, datagram: MisroutedDatagram, unmatched: bool) -> Option<MisroutedDatagram> {
        if self.is_forked() {
            return None;
        }
        self.cx.now = self.cx.net.now();
        self.cx.connections = self.conns.len();
        let left = self.carriers.on_misrouted(&mut self.cx, datagram, unmatched);
        self.drain_carriers();
        left
    }
}
