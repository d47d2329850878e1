//! The UDP sockets that QUIC connections share: trains out, batches in.

use super::connect::Beginning;
use super::{RECV_BUDGET, UDP_MAX, transmit};
use crate::Stack;
use crate::carrier::channel::ICMP_BUDGET;
use crate::carrier::event::CarrierEvent;
use crate::carrier::terms::SessionOver;
use crate::carrier::{QuicCarrier, SessionId};
use crate::closing::ABORTED;
use crate::config::Refusal;
use crate::context::Context;
use crate::event::AttemptError;
use crate::eviction::who_makes_room;
use bytes::BytesMut;
use neater_base::Key;
use neater_base::net::{ErrorKind, Net, NetError, Ready, RecvBatch};
use neater_quic::{Arrival, ConnectionApi, Datagram, EndpointApi};
use std::net::IpAddr;
use std::sync::Arc;

impl QuicCarrier {
    /// Sends one train of packets, and returns their number. 0: there is nothing to send, or no
    /// room.
    ///
    /// A train is as long as the kernel takes it: the pacer decides how much may leave together
    /// (RFC 9002 section 7.7), and two trains that it releases are on the wire what one would be,
    /// for fewer calls here and fewer wake-ups and acknowledgments there.
    pub(super) fn send_one<N: Net>(&mut self, cx: &mut Context<N>, key: Key) -> usize {
        let Some(q) = self.connections.get_mut(key) else { return 0 };
        let Some(s) = self.sockets.get_mut(q.socket) else { return 0 };
        if !s.writable {
            if !s.waiting.contains(&key) {
                s.waiting.push(key);
            }
            return 0;
        }
        let mtu = usize::from(q.conn.mtu()).max(1);
        let segments = cx.net.max_segments(s.sock).min(UDP_MAX / mtu);
        if q.drained {
            return 0;
        }
        let Some(t) = q.conn.poll_transmit(cx.now, segments, &mut cx.packet) else { return 0 };
        q.spoken = true;
        let contents = &cx.packet[..t.size.min(cx.packet.len())];
        let packets = contents.len().div_ceil(t.segment_size.unwrap_or(contents.len()).max(1)).max(1);
        match cx.net.send(s.sock, &transmit(&t, q.pinned, contents)) {
            Ok(()) => {}
            Err(e) if e.is_would_block() => {
                s.writable = false;
                s.blocked = Some((t, q.pinned, contents.to_vec()));
                s.waiting.push(key);
                return 0;
            }
            // Lost like any packet; a probe that was too large is meant to be.
            Err(e) if matches!(e.kind, ErrorKind::MessageTooLarge | ErrorKind::NoBuffers) => {}
            Err(e) => {
                // The socket is shared: what it reports here may be about an earlier datagram to
                // another peer.
                let socket = q.socket;
                if !self.icmp_errors(cx, socket) {
                    self.send_failed(key, e);
                }
            }
        }
        packets
    }

    /// The system refuses to send: no route, a filter, an ICMP error. For an attempt that is the
    /// end; a connection that works otherwise has its own timers.
    fn send_failed(&mut self, key: Key, error: NetError) {
        let Some(q) = self.connections.get(key) else { return };
        if let (Some(attempt), false) = (q.attempt, q.connected) {
            let (session, error) = (SessionId::Quic(key), AttemptError::Net(error));
            self.events.push_back(CarrierEvent::Failed { attempt, session, error });
        }
    }

    pub(crate) fn timeout<N: Net>(&mut self, cx: &Context<N>, key: Key) {
        let now = cx.now;
        let Some(q) = self.connections.get_mut(key) else { return };
        q.armed = q.armed.filter(|at| *at > cx.now);
        q.conn.handle_timeout(now);
        self.mark_dirty(key);
    }

    pub(crate) fn socket_ready<N: Net>(&mut self, cx: &mut Context<N>, key: Key, ready: Ready) {
        if ready.writable {
            self.socket_writable(cx, key);
        }
        if ready.readable || ready.error {
            self.socket_readable(cx, key);
        }
    }

    fn socket_writable<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(s) = self.sockets.get_mut(key) else { return };
        s.writable = true;
        if let Some((t, pinned, contents)) = s.blocked.take()
            && let Err(e) = cx.net.send(s.sock, &transmit(&t, pinned, &contents))
            && e.is_would_block()
        {
            s.writable = false;
            s.blocked = Some((t, pinned, contents));
            return;
        }
        for quic in core::mem::take(&mut s.waiting) {
            self.mark_dirty(quic);
        }
    }

    pub(crate) fn socket_readable<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(s) = self.sockets.get(key) else { return };
        let sock = s.sock;
        let mut batch = cx.batch.take().unwrap_or_else(|| Box::new(RecvBatch::default()));
        let mut budget = RECV_BUDGET;
        loop {
            if budget == 0 {
                cx.again = true;
                self.unread.push(key);
                break;
            }
            budget -= 1;
            match cx.net.recv(sock, &mut batch) {
                Ok(n) => {
                    for (meta, data) in batch.filled() {
                        let mut data = BytesMut::from(&*data);
                        while !data.is_empty() {
                            let one = data.split_to(meta.stride.clamp(1, data.len()));
                            let d = Datagram { source: meta.source, local: meta.local, ecn: meta.ecn };
                            self.datagram(cx, key, d, one);
                        }
                    }
                    if n == 0 || batch.drained {
                        break;
                    }
                }
                Err(e) if e.is_would_block() => break,
                // An ICMP error of an earlier datagram, to any destination.
                Err(_) => drop(self.icmp_errors(cx, key)),
            }
        }
        cx.batch = Some(batch);
    }

    /// Takes the ICMP errors of a shared socket to the connections that they concern. True if there
    /// were any.
    fn icmp_errors<N: Net>(&mut self, cx: &mut Context<N>, key: Key) -> bool {
        let Some(sock) = self.sockets.get(key).map(|s| s.sock) else { return false };
        let mut any = false;
        // The queue belongs to the kernel, which bounds it; what is left is taken with the next
        // error.
        for _ in 0..ICMP_BUDGET {
            let Some(icmp) = cx.net.take_icmp_error(sock) else { break };
            any = true;
            // What is too large for the path, QUIC finds out by itself (RFC 9000 section 14.3).
            if icmp.mtu.is_none() {
                self.icmp(key, &icmp);
            }
        }
        any
    }

    /// An unreachable port is the end of an attempt, and nothing to a connection.
    fn icmp(&mut self, socket: Key, icmp: &neater_base::net::IcmpError) {
        let Some(to) = icmp.destination else { return };
        let hit: Vec<_> = self
            .connections
            .iter()
            .filter(|(_, q)| q.socket == socket && q.remote == to && !q.connected)
            .filter_map(|(k, q)| q.attempt.map(|a| (k, a)))
            .collect();
        for (key, attempt) in hit {
            let (session, error) = (SessionId::Quic(key), AttemptError::Net(icmp.error));
            self.events.push_back(CarrierEvent::Failed { attempt, session, error });
        }
    }

    pub(crate) fn datagram<N: Net>(&mut self, cx: &mut Context<N>, socket: Key, meta: Datagram, data: BytesMut) {
        let now = cx.now;
        let Some(s) = self.sockets.get_mut(socket) else { return };
        cx.packet.clear();
        match s.endpoint.handle_datagram(now, meta, data, &mut cx.packet) {
            Arrival::Foreign(foreign) => self.keep_quic_misrouted(cx, socket, meta, foreign),
            Arrival::Nothing => cx.stats.unclaimed_datagrams += u64::from(s.listener.is_some()),
            Arrival::For(handle, event) => {
                let Some(key) = s.conns.get(handle.0).copied().flatten() else { return };
                let Some(q) = self.connections.get_mut(key) else { return };
                q.conn.handle_event(event);
                q.heard = now;
                q.local = meta.local.or(q.local);
                let first = !core::mem::replace(&mut q.answered, true);
                let (attempt, rtt) = (q.attempt, now - q.started);
                let (on_trial, session) = (core::mem::take(&mut q.on_trial), SessionId::Quic(key));
                self.mark_dirty(key);
                if on_trial {
                    self.events.push_back(CarrierEvent::LateAnswer { session });
                }
                if let (true, Some(attempt)) = (first, attempt) {
                    self.events.push_back(CarrierEvent::Reachable { attempt, session, rtt });
                }
            }
            Arrival::New(handle, connection) => {
                let Some((_, request)) = s.listener.clone() else { return };
                let most = cx.limits.connections;
                let shakes = self.has_room_to_shake(cx, socket, meta.source.ip());
                let full = !shakes || cx.connections >= most || self.connections.len() >= most;
                let stack = if request.stacks.contains(&Stack::Quic) { Stack::Quic } else { Stack::QuicDatagram };
                let key = self.insert(
                    cx,
                    Beginning {
                        socket,
                        handle,
                        conn: *connection,
                        stack,
                        remote: meta.source,
                        request,
                        remotes: Arc::default(),
                        client: false,
                    },
                );
                if full {
                    self.refuse(cx, key, if shakes { Refusal::Connection } else { Refusal::Handshake });
                }
                self.mark_dirty(key);
            }
            Arrival::Respond(t) => {
                // Stateless answers may be lost.
                let contents = &cx.packet[..t.size.min(cx.packet.len())];
                let _ = cx.net.send(s.sock, &transmit(&t, None, contents));
            }
        }
    }

    /// The handshake of an incoming connection is over, in whatever way.
    pub(super) fn shook(&mut self, key: Key) {
        let Some(q) = self.connections.get_mut(key) else { return };
        if core::mem::take(&mut q.shaking)
            && let Some(s) = self.sockets.get_mut(q.socket)
        {
            s.endpoint.handshake_over();
        }
    }

    /// A session has come to a listener. As long as its peer sends nothing, the program knows
    /// nothing of it, and cannot end it: of such sessions there are at most as many as of
    /// connections that the program has not taken. Returns which one was ended.
    pub(crate) fn await_first<N: Net>(&mut self, cx: &mut Context<N>, key: Key) -> Option<SessionOver> {
        let q = self.connections.get(key)?;
        let (socket, from) = (q.socket, q.remote.ip());
        let quics = &self.connections;
        let mute = |k: &Key| quics.get(*k).is_some_and(|q| q.lost.is_none() && q.conn.stats().data_frames == 0);
        let s = self.sockets.get_mut(socket).filter(|_| mute(&key))?;
        let mut ended = None;
        if s.mute.len() >= cx.limits.untaken {
            s.mute.retain(mute);
        }
        if s.mute.len() >= cx.limits.untaken {
            let all = s.mute.iter().filter_map(|k| quics.get(*k).map(|q| (*k, q.remote.ip(), q.started)));
            let victim = who_makes_room(all, Some(from), cx.now).unwrap_or(key);
            s.mute.retain(|k| *k != victim);
            tracing::debug!(target: "neater::listen", "a session without streams made room for others");
            ended = self.refuse(cx, victim, Refusal::Untaken);
            if victim == key {
                return ended;
            }
        }
        if let Some(s) = self.sockets.get_mut(socket) {
            s.mute.push_back(key);
        }
        ended
    }

    /// A client's handshake, or its session, is not wanted any more.
    pub(crate) fn refuse<N: Net>(&mut self, cx: &mut Context<N>, key: Key, what: Refusal) -> Option<SessionOver> {
        cx.stats.refuse(what);
        self.close(cx, key, ABORTED, b"")
    }

    /// A socket no longer accepts; it lives on for the connections that it has. Handshakes that are
    /// under way are over: they were begun by this listener's rules, and another one may be at this
    /// socket before they end.
    pub(crate) fn stop_listening<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let shaking = self.connections.iter().filter(|(_, q)| q.socket == key && q.shaking).map(|(k, _)| k);
        for quic in shaking.collect::<Vec<_>>() {
            self.refuse(cx, quic, Refusal::Untaken);
        }
        if let Some(s) = self.sockets.get_mut(key) {
            s.endpoint.stop_accepting();
            s.listener = None;
        }
        self.tidy_socket(cx, key);
    }

    /// Whether another incoming handshake may begin on this socket, `from` there: if there is no
    /// room, another one may have to make it (see [`crate::eviction`]).
    fn has_room_to_shake<N: Net>(&mut self, cx: &mut Context<N>, socket: Key, from: IpAddr) -> bool {
        // Nearly always far below the limit: only then is it worth counting.
        if self.connections.len() < cx.limits.handshakes {
            return true;
        }
        let shaking = |q: &super::Quic| q.socket == socket && q.shaking;
        let all = || self.connections.iter().filter(|(_, q)| shaking(q)).map(|(k, q)| (k, q.remote.ip(), q.started));
        if all().count() < cx.limits.handshakes {
            return true;
        }
        let Some(victim) = who_makes_room(all(), Some(from), cx.now) else { return false };
        tracing::debug!(target: "neater::listen", "a slow handshake made room for others");
        self.refuse(cx, victim, Refusal::Handshake);
        true
    }
}
