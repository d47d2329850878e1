//! UDP sockets of listeners, each of which many connections share.
//!
//! *Responsible for* whose a datagram or an ICMP error is. *Not responsible for* the connection of
//! a new peer ([`crate::listen`]), nor for DTLS ([`crate::carrier::dtls`]), which knows its peers
//! itself.

use crate::Stack;
use crate::carrier::channel::{Channel, ICMP_BUDGET, Kind, SocketUse};
use crate::carrier::event::CarrierEvent;
use crate::carrier::peer::Peer;
use crate::carrier::{FlowId, SocketCarrier};
use crate::context::ACCEPT_BUDGET;
use crate::context::Context;
use bytes::Bytes;
use neater_base::Key;
use neater_base::net::{Net, RecvBatch};
use std::collections::BTreeMap;

/// Whose a socket is that several share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// The connection of each peer.
    pub(crate) peers: BTreeMap<Peer, Key>,
    /// The ICMP errors of what was sent are asked for.
    pub(crate) soft_errors: bool,
}

impl Shared {
    pub(crate) fn new(soft_errors: bool) -> Self {
        Self { soft_errors, ..Self::default() }
    }
}

/// To what a datagram belongs that has come to a shared socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Conn(Key),
    /// For a new connection: see [`SocketCarrier::bind_peer`].
    New {
        peer: Peer,
        /// The socket has as many connections as it may.
        full: bool,
        /// What will carry it.
        flow: FlowId,
        stack: Stack,
    },
}

impl SocketCarrier {
    /// A shared UDP socket is ready, or may be: reports which connections can write, ICMP errors
    /// and datagrams.
    pub(in crate::carrier) fn shared_ready<N: Net>(&mut self, cx: &mut Context<N>, key: Key, writable: bool) {
        let Some(Channel { kind: Kind::UdpShared(shared), .. }) = self.channels.get(key) else { return };
        if writable {
            self.events.extend(shared.peers.values().map(|conn| CarrierEvent::Writable { conn: *conn }));
        }
        if shared.soft_errors {
            self.shared_icmp(cx, key);
        }
        self.read_shared(key);
    }

    /// Reads a batch of datagrams from a shared socket; `round`: the number of those that were read
    /// of it in this turn. False: it is not to be read on.
    pub(in crate::carrier) fn receive_shared<N: Net>(&mut self, cx: &mut Context<N>, key: Key, round: usize) -> bool {
        if round >= ACCEPT_BUDGET {
            self.look_again_at(cx, key);
            self.has_drained(key);
            return false;
        }
        let Some(Channel { sock, used_by: SocketUse::Listener(listener), .. }) = self.channels.get(key) else {
            return false;
        };
        let (sock, listener) = (*sock, *listener);
        let mut batch = cx.batch.take().unwrap_or_else(|| Box::new(RecvBatch::default()));
        let drained = match cx.net.recv(sock, &mut batch) {
            Ok(_) => {
                let events = &mut self.events;
                for (meta, data) in batch.filled() {
                    let (peer, ecn) = (Peer::of(&meta), meta.ecn);
                    let mut take = |data: &[u8]| {
                        let data = Bytes::copy_from_slice(data);
                        events.push_back(CarrierEvent::FromPeer { listener, socket: key, peer, data, ecn });
                    };
                    data.chunks(meta.stride.max(1)).for_each(&mut take);
                    if meta.len == 0 {
                        take(&[]);
                    }
                }
                batch.drained
            }
            // Otherwise an ICMP error of something we sent, with details in the error queue if that
            // was enabled.
            Err(e) => e.is_would_block(),
        };
        cx.batch = Some(batch);
        if drained {
            self.has_drained(key);
        }
        !drained
    }

    fn has_drained(&mut self, key: Key) {
        if let Some(c) = self.channels.get_mut(key) {
            c.readable = false;
        }
    }

    /// Empties the queue of ICMP errors, and reports each to the connections that it is about. The
    /// kernel counts what is left there against what the socket may receive.
    fn shared_icmp<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(Channel { kind: Kind::UdpShared(shared), sock, .. }) = self.channels.get(key) else { return };
        for _ in 0..ICMP_BUDGET {
            let Some(error) = cx.net.take_icmp_error(*sock) else { return };
            let Some(remote) = error.destination else { continue };
            let about = shared.peers.range(Peer::from(remote)..).take_while(|(p, _)| p.remote == remote);
            self.events.extend(about.map(|(_, conn)| CarrierEvent::SoftError { conn: *conn, error }));
        }
        // There may be more of them.
        self.look_again_at(cx, key);
    }

    /// There may be more at a socket that several share: the next turn sees to it.
    pub(crate) fn look_again_at<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        cx.again = true;
        if !self.pending_shared.contains(&key) {
            self.pending_shared.push(key);
        }
    }

    /// To what a datagram belongs that has come from this peer to a shared socket; `None`: the
    /// socket is gone.
    pub(crate) fn owner<N: Net>(&self, cx: &Context<N>, key: Key, peer: Peer) -> Option<Owner> {
        let Some(Channel { kind: Kind::UdpShared(shared), .. }) = self.channels.get(key) else { return None };
        let mut known = shared.peers.get(&peer).copied();
        let mut peer = peer;
        if known.is_none() && !cx.is_own(peer.here) {
            // It was sent to many (broadcast, multicast), and nothing answers from there.
            peer = Peer::from(peer.remote);
            known = shared.peers.get(&peer).copied();
        }
        let full = shared.peers.len() >= cx.limits.udp_peers;
        let flow = FlowId::Peer { channel: key };
        Some(known.map_or(Owner::New { peer, full, flow, stack: Stack::Udp }, Owner::Conn))
    }

    /// What comes from this peer is for this connection from now on.
    pub(crate) fn bind_peer(&mut self, key: Key, peer: Peer, conn: Key) {
        if let Some(Channel { kind: Kind::UdpShared(shared), .. }) = self.channels.get_mut(key) {
            shared.peers.insert(peer, conn);
        }
    }
}
