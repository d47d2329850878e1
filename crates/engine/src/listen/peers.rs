//! Peers of a listener's sockets that several connections share, where no kernel and no handshake tells them apart (RFC 9623 section
//! 4.7.2).
//!
//! *Responsible for* the connection of a peer from which nothing has come before, and for refusing it.

use crate::Engine;
use crate::carrier::Owner;
use crate::carrier::channel::Peer;
use crate::config::Refusal;
use crate::conn::Conn;
use crate::queue::ReceivedDatagram;
use neater_base::Key;
use neater_base::net::Net;
use std::sync::Arc;

impl<N: Net> Engine<N> {
    /// A datagram has come from a peer to a shared socket: one of a new peer makes a connection.
    pub(crate) fn on_peer_datagram(&mut self, listener: Key, (socket, peer): (Key, Peer), datagram: ReceivedDatagram) {
        let (peer, full, flow, stack) = match self.carriers.owner(&self.cx, socket, peer) {
            Some(Owner::Conn(conn)) => {
                if self.queue_datagram(conn, datagram) {
                    self.arrived(conn);
                }
                return;
            }
            Some(Owner::New { peer, full, flow, stack }) => (peer, full, flow, stack),
            None => return,
        };
        let Some(l) = self.listeners.get(listener) else { return };
        let refused = if l.limit == Some(0) || l.backlog.is_full() {
            Some(Refusal::Untaken)
        } else if full {
            Some(Refusal::Peer)
        } else {
            (self.conns.len() >= self.cx.limits.connections).then_some(Refusal::Connection)
        };
        if let Some(what) = refused {
            self.cx.stats.unclaimed_datagrams += 1;
            return self.cx.stats.refuse(what);
        }
        let mut c = Conn::new(l.request.0.clone(), Arc::default(), self.cx.now);
        (c.stack, c.passive, c.flow) = (Some(stack), true, flow);
        c.ext().peer = Some(peer);
        let conn = self.conns.insert(c);
        self.carriers.bind_peer(socket, peer, conn);
        self.queue_datagram(conn, datagram);
        self.deliver_incoming(listener, conn);
    }
}
