//! The UDP sockets that QUIC connections share: trains out, batches in.

use super::{RECV_BUDGET, UDP_MAX, transmit};
use crate::backlog::who_makes_room;
use crate::carrier::SessionId;
use crate::carrier::channel::ICMP_BUDGET;
use crate::carrier::event::CarrierEvent;
use crate::config::Refusal;

use crate::event::AttemptError;
use crate::terminate::ABORTED;
use crate::{Engine, Stack};
use bytes::BytesMut;
use neater_base::net::{ErrorKind, Net, NetError, Ready, RecvBatch};
use neater_base::{Instant, Key};
use neater_quic::{Arrival, ConnectionApi, Datagram, EndpointApi};
use std::net::IpAddr;
use std::sync::Arc;

impl<N: Net> Engine<N> {
    /// Sends one train of packets, and says of how many. None: there is nothing to send, or no room.
    ///
    /// A train is as long as the kernel takes it: how much may leave together is the pacer's to say (RFC 9002 section 7.7), and what it
    /// lets go in two trains is on the wire what it is in one, for fewer calls here and fewer wake-ups and acknowledgments there.
    pub(super) fn quic_send_one(&mut self, key: Key, now: Instant) -> usize {
        let Some(q) = self.carriers.quic.connections.get_mut(key) else { return 0 };
        let Some(s) = self.carriers.quic.sockets.get_mut(q.socket) else { return 0 };
        if !s.writable {
            if !s.waiting.contains(&key) {
                s.waiting.push(key);
            }
            return 0;
        }
        let mtu = usize::from(q.conn.mtu()).max(1);
        let segments = self.cx.net.max_segments(s.sock).min(UDP_MAX / mtu);
        if q.drained {
            return 0;
        }
        let Some(t) = q.conn.poll_transmit(now, segments, &mut self.cx.packet) else { return 0 };
        q.spoken = true;
        let contents = &self.cx.packet[..t.size.min(self.cx.packet.len())];
        let packets = contents.len().div_ceil(t.segment_size.unwrap_or(contents.len()).max(1)).max(1);
        match self.cx.net.send(s.sock, &transmit(&t, q.stays, contents)) {
            Ok(()) => {}
            Err(e) if e.is_would_block() => {
                s.writable = false;
                s.blocked = Some((t, q.stays, contents.to_vec()));
                s.waiting.push(key);
                return 0;
            }
            // Lost like any packet; a probe that was too large is meant to be.
            Err(e) if matches!(e.kind, ErrorKind::MessageTooLarge | ErrorKind::NoBuffers) => {}
            Err(e) => {
                // The socket is shared: what it reports here may be about an earlier datagram to somebody else.
                let socket = q.socket;
                if !self.quic_icmp_errors(socket) {
                    self.quic_send_failed(key, e);
                }
            }
        }
        packets
    }

    /// The system refuses to send: no route, a filter, an ICMP error. For an attempt that is the end; a connection that
    /// works otherwise has its own timers.
    fn quic_send_failed(&mut self, key: Key, error: NetError) {
        let Some(q) = self.carriers.quic.connections.get(key) else { return };
        if let (Some((conn, _)), false) = (q.attempt, q.connected) {
            self.carriers.quic.events.push_back(CarrierEvent::Failed {
                attempt: conn,
                session: SessionId::Quic(key),
                error: AttemptError::Net(error),
            });
        }
    }

    pub(crate) fn quic_timeout(&mut self, key: Key) {
        let now = self.cx.now;
        let Some(q) = self.carriers.quic.connections.get_mut(key) else { return };
        q.armed = q.armed.filter(|at| *at > self.cx.now);
        q.conn.handle_timeout(now);
        self.mark_dirty(key);
    }

    pub(crate) fn quic_socket_ready(&mut self, key: Key, ready: Ready) {
        if ready.writable {
            self.quic_socket_writable(key);
        }
        if ready.readable || ready.error {
            self.quic_socket_readable(key);
        }
    }

    fn quic_socket_writable(&mut self, key: Key) {
        let Some(s) = self.carriers.quic.sockets.get_mut(key) else { return };
        s.writable = true;
        if let Some((t, stays, contents)) = s.blocked.take()
            && let Err(e) = self.cx.net.send(s.sock, &transmit(&t, stays, &contents))
            && e.is_would_block()
        {
            s.writable = false;
            s.blocked = Some((t, stays, contents));
            return;
        }
        for quic in core::mem::take(&mut s.waiting) {
            self.mark_dirty(quic);
        }
    }

    pub(crate) fn quic_socket_readable(&mut self, key: Key) {
        let Some(s) = self.carriers.quic.sockets.get(key) else { return };
        let sock = s.sock;
        let mut batch = self.cx.batch.take().unwrap_or_else(|| Box::new(RecvBatch::default()));
        let mut budget = RECV_BUDGET;
        loop {
            if budget == 0 {
                self.cx.again = true;
                self.carriers.quic.unread.push(key);
                break;
            }
            budget -= 1;
            match self.cx.net.recv(sock, &mut batch) {
                Ok(n) => {
                    for (meta, data) in batch.filled() {
                        let mut data = BytesMut::from(&*data);
                        while !data.is_empty() {
                            let one = data.split_to(meta.stride.clamp(1, data.len()));
                            let d = Datagram { source: meta.source, local: meta.local, ecn: meta.ecn };
                            self.quic_datagram(key, d, one);
                        }
                    }
                    if n == 0 || batch.drained {
                        break;
                    }
                }
                Err(e) if e.is_would_block() => break,
                // An ICMP error of an earlier datagram, to whomever.
                Err(_) => drop(self.quic_icmp_errors(key)),
            }
        }
        self.cx.batch = Some(batch);
    }

    /// Takes the ICMP errors of a socket that its connections share to those whom they concern. True if there were any.
    fn quic_icmp_errors(&mut self, key: Key) -> bool {
        let Some(sock) = self.carriers.quic.sockets.get(key).map(|s| s.sock) else { return false };
        let mut any = false;
        // The queue belongs to the kernel, which bounds it; what is left is taken with the next error.
        for _ in 0..ICMP_BUDGET {
            let Some(icmp) = self.cx.net.take_icmp_error(sock) else { break };
            any = true;
            // What is too large for the path, QUIC finds out by itself (RFC 9000 section 14.3).
            if icmp.mtu.is_none() {
                self.quic_icmp(key, &icmp);
            }
        }
        any
    }

    /// An unreachable port is the end of an attempt, and nothing to a connection.
    fn quic_icmp(&mut self, socket: Key, icmp: &neater_base::net::IcmpError) {
        let Some(to) = icmp.destination else { return };
        let hit: Vec<_> = self
            .carriers
            .quic
            .connections
            .iter()
            .filter(|(_, q)| q.socket == socket && q.remote == to && !q.connected)
            .filter_map(|(k, q)| q.attempt.map(|a| (k, a)))
            .collect();
        for (key, (conn, _)) in hit {
            self.carriers.quic.events.push_back(CarrierEvent::Failed {
                attempt: conn,
                session: SessionId::Quic(key),
                error: AttemptError::Net(icmp.error),
            });
        }
    }

    pub(crate) fn quic_datagram(&mut self, socket: Key, meta: Datagram, data: BytesMut) {
        let now = self.cx.now;
        let Some(s) = self.carriers.quic.sockets.get_mut(socket) else { return };
        self.cx.packet.clear();
        match s.endpoint.handle_datagram(now, meta, data, &mut self.cx.packet) {
            Arrival::Foreign(foreign) => self.keep_foreign(socket, meta, foreign),
            Arrival::Nothing => self.cx.stats.unclaimed_datagrams += u64::from(s.listener.is_some()),
            Arrival::For(handle, event) => {
                let Some(key) = s.conns.get(handle.0).copied().flatten() else { return };
                let Some(q) = self.carriers.quic.connections.get_mut(key) else { return };
                q.conn.handle_event(event);
                q.heard = now;
                q.local = meta.local.or(q.local);
                let first = !core::mem::replace(&mut q.answered, true);
                let (attempt, rtt) = (q.attempt, now - q.started);
                let trial = q.trial.take();
                self.mark_dirty(key);
                if let Some(trial) = trial {
                    self.trial_passed(&trial);
                }
                if let (true, Some((conn, _))) = (first, attempt) {
                    self.carriers.quic.events.push_back(CarrierEvent::Reachable {
                        attempt: conn,
                        session: SessionId::Quic(key),
                        rtt,
                    });
                }
            }
            Arrival::New(handle, connection) => {
                let listener = s.listener.and_then(|l| self.listeners.get(l).map(|x| (l, x.request.clone())));
                let Some((_, request)) = listener else { return };
                let most = self.cx.limits.connections;
                let shakes = self.has_room_to_shake(socket, meta.source.ip());
                let full = !shakes || self.conns.len() >= most || self.carriers.quic.connections.len() >= most;
                let stack = if request.0.stacks.contains(&Stack::Quic) { Stack::Quic } else { Stack::QuicDatagram };
                let key = self.insert_quic(
                    socket,
                    handle,
                    *connection,
                    stack,
                    meta.source,
                    request.0.clone(),
                    Arc::default(),
                    false,
                );
                if full {
                    self.cx.stats.refuse(if shakes { Refusal::Connection } else { Refusal::Handshake });
                    self.quic_close(key, ABORTED);
                }
                self.mark_dirty(key);
            }
            Arrival::Respond(t) => {
                // Stateless answers may be lost.
                let contents = &self.cx.packet[..t.size.min(self.cx.packet.len())];
                let _ = self.cx.net.send(s.sock, &transmit(&t, None, contents));
            }
        }
    }

    /// A QUIC socket no longer accepts; it lives on for the connections that it has. Handshakes that are under way are over: they
    /// were begun by this listener's rules, and another one may be at this socket before they end.
    pub(crate) fn release_quic_listener(&mut self, key: Key) {
        let shaking =
            self.carriers.quic.connections.iter().filter(|(_, q)| q.socket == key && q.shaking).map(|(k, _)| k);
        for quic in shaking.collect::<Vec<_>>() {
            self.quic_refuse(quic, Refusal::Untaken);
        }
        if let Some(s) = self.carriers.quic.sockets.get_mut(key) {
            neater_quic::EndpointApi::stop_accepting(&mut s.endpoint);
            s.listener = None;
        }
        self.tidy_quic_socket(key);
    }

    /// The handshake of an incoming connection is over, in whatever way.
    pub(super) fn quic_shook(&mut self, key: Key) {
        let Some(q) = self.carriers.quic.connections.get_mut(key) else { return };
        if core::mem::take(&mut q.shaking)
            && let Some(s) = self.carriers.quic.sockets.get_mut(q.socket)
        {
            s.endpoint.handshake_over();
        }
    }

    /// A session has arrived. As long as its peer says nothing, the program knows nothing of it, and cannot end it: of such sessions there
    /// are at most as many as of connections that the program has not taken.
    pub(super) fn quic_hears_nothing(&mut self, key: Key) {
        let Some(q) = self.carriers.quic.connections.get(key) else { return };
        let (socket, from) = (q.socket, q.remote.ip());
        let quics = &self.carriers.quic.connections;
        let mute = |k: &Key| quics.get(*k).is_some_and(|q| q.lost.is_none() && q.conn.stats().data_frames == 0);
        let Some(s) = self.carriers.quic.sockets.get_mut(socket).filter(|_| mute(&key)) else { return };
        if s.mute.len() >= self.cx.limits.untaken {
            s.mute.retain(mute);
        }
        if s.mute.len() >= self.cx.limits.untaken {
            let all = s.mute.iter().filter_map(|k| quics.get(*k).map(|q| (*k, q.remote.ip(), q.started)));
            let victim = who_makes_room(all, Some(from), self.cx.now).unwrap_or(key);
            s.mute.retain(|k| *k != victim);
            tracing::debug!(target: "neater::listen", "a session without streams made room for others");
            self.quic_refuse(victim, Refusal::Untaken);
            if victim == key {
                return;
            }
        }
        if let Some(s) = self.carriers.quic.sockets.get_mut(socket) {
            s.mute.push_back(key);
        }
    }

    /// A client's handshake, or its session, is not wanted any more.
    pub(crate) fn quic_refuse(&mut self, key: Key, what: Refusal) {
        self.cx.stats.refuse(what);
        self.quic_close(key, ABORTED);
    }

    /// Whether another incoming handshake may begin on this socket, `from` there: if there is no room, another one may have
    /// to make it (see [`crate::backlog`]).
    fn has_room_to_shake(&mut self, socket: Key, from: IpAddr) -> bool {
        // Nearly always far below the limit: only then is it worth counting.
        if self.carriers.quic.connections.len() < self.cx.limits.handshakes {
            return true;
        }
        let shaking = |q: &super::Quic| q.socket == socket && q.shaking;
        let all = || {
            self.carriers
                .quic
                .connections
                .iter()
                .filter(|(_, q)| shaking(q))
                .map(|(k, q)| (k, q.remote.ip(), q.started))
        };
        if all().count() < self.cx.limits.handshakes {
            return true;
        }
        let Some(victim) = who_makes_room(all(), Some(from), self.cx.now) else { return false };
        tracing::debug!(target: "neater::listen", "a slow handshake made room for others");
        self.quic_refuse(victim, Refusal::Handshake);
        true
    }
}
