//! UDP sockets of listeners, each of which many connections share.
//!
//! *Responsible for* whose a datagram or an ICMP error is, and for the connection of a peer that has not been heard of (RFC 9623 section
//! 4.7.2). *Not responsible for* DTLS ([`crate::carrier::dtls`]), which has books of its own.

use crate::Engine;
use crate::Stack;
use crate::carrier::FlowId;
use crate::carrier::channel::{Channel, ICMP_BUDGET, Kind, Peer};
use crate::config::Refusal;
use crate::conn::Conn;
use crate::event::Event;
use crate::listen::ACCEPT_BUDGET;
use crate::queue::ReceivedDatagram;
use bytes::Bytes;
use neater_base::Key;
use neater_base::net::{Net, RecvBatch};
use std::sync::Arc;

impl<N: Net> Engine<N> {
    /// A shared UDP socket is ready: datagrams of a new peer make a connection (RFC 9623 section 4.7.2).
    pub(crate) fn shared_ready(&mut self, listener: Key, key: Key, writable: bool) {
        if writable {
            let peers: Vec<Key> = match self.carriers.channels.get(key).map(|c| &c.kind) {
                Some(Kind::UdpShared(peers)) => peers.values().copied().collect(),
                _ => Vec::new(),
            };
            for conn in peers {
                self.conn_ready_stream(conn, false);
            }
        }
        let Some(c) = self.carriers.channels.get(key) else { return };
        let sock = c.sock;
        self.shared_icmp(listener, key);
        let mut batch = self.cx.batch.take().unwrap_or_else(|| Box::new(RecvBatch::default()));
        for round in 0.. {
            if round >= ACCEPT_BUDGET {
                self.look_again_at(listener, key);
                break;
            }
            match self.cx.net.recv(sock, &mut batch) {
                Ok(_) => {
                    for (meta, data) in batch.filled() {
                        let peer = Peer::of(&meta);
                        for one in data.chunks(meta.stride.max(1)) {
                            self.shared_datagram(listener, key, peer, one, meta.ecn);
                        }
                        if meta.len == 0 {
                            self.shared_datagram(listener, key, peer, &[], meta.ecn);
                        }
                    }
                    if batch.drained {
                        break;
                    }
                }
                Err(e) if e.is_would_block() => break,
                // An ICMP error of something we sent, of which the queue says more if it was asked for.
                Err(_) => {}
            }
        }
        if let Some(c) = self.carriers.channels.get_mut(key) {
            c.readable = false;
        }
        self.cx.batch = Some(batch);
    }

    /// Empties the queue of ICMP errors, where they were asked for, and tells each to the connections that it is about. The kernel counts
    /// what nobody takes against what the socket may receive.
    fn shared_icmp(&mut self, listener: Key, key: Key) {
        let Some(Channel { kind: Kind::UdpShared(peers), sock, .. }) = self.carriers.channels.get(key) else { return };
        let sock = *sock;
        let anybody = peers.values().next().and_then(|conn| self.conns.get(*conn)).map(|c| &c.request);
        let request = self.listeners.get(listener).map(|l| &l.request.0).or(anybody);
        if !request.is_some_and(|r| r.soft_errors) {
            return;
        }
        for _ in 0..ICMP_BUDGET {
            let Some(icmp) = self.cx.net.take_icmp_error(sock) else { return };
            let (Some(remote), Some(Channel { kind: Kind::UdpShared(peers), .. })) =
                (icmp.destination, self.carriers.channels.get(key))
            else {
                continue;
            };
            let about: Vec<Key> =
                peers.range(Peer::from(remote)..).take_while(|(p, _)| p.remote == remote).map(|(_, k)| *k).collect();
            for conn in about {
                self.notify(conn, Event::SoftError(icmp));
            }
        }
        // There may be more of them.
        self.look_again_at(listener, key);
    }

    /// There may be more at a socket that several share: the next turn sees to it.
    fn look_again_at(&mut self, listener: Key, key: Key) {
        self.cx.again = true;
        if !self.carriers.pending_shared.contains(&(listener, key)) {
            self.carriers.pending_shared.push((listener, key));
        }
    }

    fn shared_datagram(&mut self, listener: Key, key: Key, peer: Peer, data: &[u8], ecn: neater_base::net::Ecn) {
        let Some(Channel { kind: Kind::UdpShared(peers), .. }) = self.carriers.channels.get(key) else { return };
        let mut known = peers.get(&peer).copied();
        let mut peer = peer;
        if known.is_none() && !self.cx.is_own(peer.here) {
            // It was sent to many (broadcast, multicast), and nobody answers from there.
            peer = Peer::from(peer.remote);
            known = peers.get(&peer).copied();
        }
        let count = peers.len();
        let queued = ReceivedDatagram { data: Bytes::copy_from_slice(data), ecn };
        if let Some(conn) = known {
            if self.queue_datagram(conn, queued) {
                self.arrived(conn);
            }
            return;
        }
        let Some(l) = self.listeners.get(listener) else { return };
        let refused = if l.limit == Some(0) || l.backlog.is_full() {
            Some(Refusal::Untaken)
        } else if count >= self.cx.limits.udp_peers {
            Some(Refusal::Peer)
        } else {
            (self.conns.len() >= self.cx.limits.connections).then_some(Refusal::Connection)
        };
        if let Some(what) = refused {
            self.cx.stats.unclaimed_datagrams += 1;
            return self.cx.stats.refuse(what);
        }
        let mut c = Conn::new(l.request.0.clone(), Arc::default(), self.cx.now);
        c.stack = Some(Stack::Udp);
        c.passive = true;
        c.flow = FlowId::Peer { channel: key };
        c.ext().peer = Some(peer);
        let conn = self.conns.insert(c);
        if let Some(Channel { kind: Kind::UdpShared(peers), .. }) = self.carriers.channels.get_mut(key) {
            peers.insert(peer, conn);
        }
        self.queue_datagram(conn, queued);
        self.deliver_incoming(listener, conn);
    }
}
