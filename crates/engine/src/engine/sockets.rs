//! Sockets of carriers: what follows from their readiness.
//!
//! *Responsible for* trying the fast path before the general way. *Not responsible for* the sockets themselves
//! ([`crate::carrier::socket`]).

use super::{Engine, fast_path};
use crate::carrier::dispatch::CarrierSocket;
use crate::carrier::socket::Woken;
use neater_base::Key;
use neater_base::net::{Net, Ready};

impl<N: Net> Engine<N> {
    /// A socket of a carrier is ready.
    #[inline]
    pub(super) fn on_carrier_ready(&mut self, socket: CarrierSocket, ready: Ready) {
        if let Some(key) = socket.own() {
            return self.socket_ready(key, ready);
        }
        self.cx.connections = self.conns.len();
        self.carriers.on_ready(&mut self.cx, socket, ready);
        self.drain_carriers();
    }

    #[inline]
    fn socket_ready(&mut self, key: Key, ready: Ready) {
        match self.carriers.wake(key, ready) {
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
            Some(Woken::Other { writable }) => self.carriers.on_socket_ready(&mut self.cx, key, writable),
        }
        if self.carriers.has_events() {
            self.drain_carriers();
        }
    }

    /// The same of the only attempt of a connection.
    fn alone_ready(&mut self, key: Key, conn: Key) {
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
            None => self.carriers.on_socket_ready(&mut self.cx, key, false),
        }
    }
}
