//! Handshakes with a listener, from the first hello to the connection.
//!
//! *Responsible for* which session a datagram is given to, and for what a client has to have shown
//! before it is given more: an address of its own, [`crate::Limits::handshakes`], a connection, the
//! place of an earlier one. *Not responsible for* the books of it ([`super::peers`]), nor for
//! whether a listener takes a session.

use super::peers::Pending;
use super::socket::DtlsSocket;
use super::{Dtls, DtlsCarrier, INCOMING_TIMEOUT};
use crate::carrier::SessionId;
use crate::carrier::event::CarrierEvent;
use crate::carrier::ids::Due;
use crate::carrier::layer::{LayerEnd, LayerEvent};
use crate::carrier::peer::Peer;
use crate::config::Refusal;
use crate::context::Context;
use crate::event::ConnectionError;
use crate::eviction::who_makes_room;
use neater_base::Key;
use neater_base::net::{Ecn, ErrorKind, Net, Transmit};
use neater_dtls::{HelloRandom, Look, Session, look};
use std::net::SocketAddr;

/// A client's handshake on a listener's socket.
#[derive(Clone, Copy)]
struct Caller {
    socket: Key,
    /// The listener takes no more.
    full: bool,
    peer: Peer,
}

impl DtlsCarrier {
    /// A datagram has arrived on a socket of sessions. `full`: its listener takes no more.
    pub(super) fn on_datagram<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        (socket, full): (Key, bool),
        peer: Peer,
        data: &[u8],
        ecn: Ecn,
    ) {
        let Some(s) = self.sockets.get(socket) else { return };
        if !s.is_server() {
            // There is but one.
            let (holder, _) = s.peers.at(Peer::from(peer.remote));
            return holder.into_iter().for_each(|key| self.give(cx, key, data, ecn));
        }
        // What was sent to many (multicast) is answered from where the system chooses.
        let peer = if s.peers.at(peer).0.is_some() || cx.is_own(peer.here) { peer } else { Peer::from(peer.remote) };
        let (holder, successor) = s.peers.at(peer);
        let from = Caller { socket, full, peer };
        match look(data) {
            // A hello has no key and no proof: it is a verified client's only if it repeats the
            // random of its own.
            Look::Hello { random, whole } => {
                let same = |key: &Key| self.sessions.get(*key).is_some_and(|d| d.random == Some(random));
                match [successor, holder].into_iter().flatten().find(same) {
                    Some(key) => self.give(cx, key, data, ecn),
                    None => self.on_hello(cx, from, (random, whole), data, ecn),
                }
            }
            Look::HelloFragment => {
                let randoms = s.peers.unverified.unfinished(peer);
                for random in randoms {
                    self.give_unverified(cx, from, random, data, ecn);
                }
            }
            // The session that has the address knows its records by their key. A handshake in the
            // clear is the successor's.
            what => {
                let to_holder = what != Look::Clear || successor.is_none();
                // A successor that waits to be accepted has its key.
                let waits = || successor.and_then(|key| self.sessions.get(key)).is_some_and(|d| d.offered);
                let to_successor = what != Look::Data || waits();
                let to = [holder.filter(|_| to_holder), successor.filter(|_| to_successor)];
                to.into_iter().flatten().for_each(|key| self.give(cx, key, data, ecn));
            }
        }
    }

    /// Gives a datagram to a session.
    fn give<N: Net>(&mut self, cx: &mut Context<N>, key: Key, data: &[u8], ecn: Ecn) {
        let Some(d) = self.sessions.get_mut(key) else { return };
        d.session.handle_datagram(cx.now, data);
        self.progress(cx, key, ecn);
    }

    /// A hello has come, or what looks like one.
    fn on_hello<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        from: Caller,
        (random, whole): (HelloRandom, bool),
        data: &[u8],
        ecn: Ecn,
    ) {
        let name = (from.peer, random);
        let Some(s) = self.sockets.get_mut(from.socket) else { return };
        if s.peers.unverified.get_mut(name).is_none() && !s.begin(cx, from, random) {
            return;
        }
        if let Some(p) = s.peers.unverified.get_mut(name) {
            p.unfinished = !whole;
        }
        self.give_unverified(cx, from, random, data, ecn);
    }

    /// The clients of a socket that have not proved their address, and have had their time, are
    /// forgotten.
    pub(in crate::carrier) fn on_unverified_timeout<N>(&mut self, cx: &mut Context<N>, socket: Key) {
        let Some(s) = self.sockets.get_mut(socket) else { return };
        let next = s.peers.unverified.expire(cx.now, INCOMING_TIMEOUT);
        s.peers.unverified.armed = next.is_some();
        if let Some(at) = next {
            cx.timers.push(at, Due::DtlsUnverified(socket).into());
        }
    }

    /// Gives a datagram to a client that has not proved its address, which is asked to, or has just
    /// done so.
    fn give_unverified<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        from: Caller,
        random: HelloRandom,
        data: &[u8],
        ecn: Ecn,
    ) {
        let Some(s) = self.sockets.get_mut(from.socket) else { return };
        let name = (from.peer, random);
        let Some(p) = s.peers.unverified.get_mut(name) else { return };
        p.session.handle_datagram(cx.now, data);
        let over = p.session.is_over();
        if over {
            tracing::debug!(target: "neater::listen", "handshake failed: {:?}", p.session.poll_event());
        } else if p.session.is_verified() {
            if let Some(p) = s.peers.unverified.remove(name) {
                self.on_verified(cx, from, random, p, ecn);
            }
            return;
        }
        // As if there were no state: one answer to each hello, never longer than it, and no timer
        // (RFC 6347 section 4.2.1).
        let mut answer = None;
        while let Some(question) = p.session.poll_transmit() {
            answer = Some(question);
        }
        if over {
            // Why, if it has a word for it. It would end any handshake at that address, of which a
            // forged hello must not be the cause.
            let alone = s.peers.at(from.peer) == (None, None) && s.peers.unverified.is_alone(from.peer);
            answer = answer.filter(|why| alone && why.len() <= data.len());
            s.peers.unverified.remove(name);
        } else if answer.is_some() {
            p.question.clone_from(&answer);
        } else if !p.unfinished {
            answer = p.question.clone().filter(|q| q.len() <= data.len());
        }
        if let Some(contents) = answer
            && s.writable
        {
            let contents = &contents[..];
            let to = Transmit {
                destination: from.peer.remote,
                source: from.peer.source().0,
                interface: from.peer.source().1,
                ecn: Ecn::NotEct,
                segment_size: None,
                contents,
            };
            match cx.net.send(s.sock, &to) {
                Err(e) if e.is_would_block() => s.writable = false,
                // Treated as lost on the path. An ICMP error about an earlier datagram may have
                // been forged.
                _ => {}
            }
        }
    }

    /// A client has proved its address. From now on it counts among the handshakes, and its address
    /// is its own, unless there is a connection: that keeps it until the new handshake is finished.
    fn on_verified<N: Net>(&mut self, cx: &mut Context<N>, from: Caller, random: HelloRandom, p: Pending, ecn: Ecn) {
        let Some(s) = self.sockets.get(from.socket) else { return };
        let ((holder, _), user) = (s.peers.at(from.peer), s.user);
        let full = holder.is_none() && s.peers.len() >= cx.limits.udp_peers;
        if full || !self.has_room(cx, from.socket, from.peer.remote) {
            cx.stats.refuse(if full { Refusal::Peer } else { Refusal::Handshake });
            return;
        }
        let d = Dtls {
            random: Some(random),
            user,
            at: (from.peer.here, from.peer.interface),
            ..Dtls::new(p.session, from.socket, from.peer.remote, p.since)
        };
        let key = self.sessions.insert(d);
        // Room may have been made by a handshake from there.
        let Some(s) = self.sockets.get_mut(from.socket) else { return };
        let (holder, _) = s.peers.at(from.peer);
        let stays = holder.and_then(|k| self.sessions.get(k)).is_some_and(Dtls::is_taken);
        if let Some(gone) = s.peers.verified(from.peer, key, stays) {
            // A packet that it sent now would reach its successor.
            if let Some(d) = self.sessions.get_mut(gone) {
                d.session.forget();
            }
            self.drop_session(cx, gone);
        }
        cx.timers.push(p.since + INCOMING_TIMEOUT, Due::DtlsIncoming(key).into());
        self.progress(cx, key, ecn);
    }

    /// An incoming handshake has had its time.
    pub(in crate::carrier) fn on_incoming_timeout<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(d) = self.sessions.get(key).filter(|d| d.conn.is_none() && d.attempt.is_none()) else { return };
        if !d.is_taken() {
            cx.stats.refuse(Refusal::Handshake);
            self.drop_session(cx, key);
        } else if d.users == 0 {
            // The user has opened nothing in it, or the last of it is over.
            self.drop_session(cx, key);
        }
    }

    /// Whether another handshake may begin; another client's may have to make room.
    fn has_room<N: Net>(&mut self, cx: &mut Context<N>, socket: Key, from: SocketAddr) -> bool {
        // Nearly always far below the limit: only then is it worth counting.
        if self.sessions.len() < cx.limits.handshakes {
            return true;
        }
        let shaking = |d: &Dtls| d.socket == socket && !d.is_taken();
        let all = || self.sessions.iter().filter(|(_, d)| shaking(d)).map(|(k, d)| (k, d.remote.ip(), d.started));
        if all().count() < cx.limits.handshakes {
            return true;
        }
        let Some(victim) = who_makes_room(all(), Some(from.ip()), cx.now) else { return false };
        cx.stats.refuse(Refusal::Handshake);
        tracing::debug!(target: "neater::listen", "a slow handshake made room for others");
        self.drop_session(cx, victim);
        true
    }

    /// A client's handshake is finished.
    pub(super) fn on_arrived<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(d) = self.sessions.get_mut(key) else { return };
        if d.user.is_some() {
            self.take_over(cx, key);
            // It has its time for an association.
            cx.timers.push(cx.now + INCOMING_TIMEOUT, Due::DtlsIncoming(key).into());
            return;
        }
        d.offered = true;
        let socket = d.socket;
        match self.listener_at(socket) {
            Some(listener) => {
                self.events.push_back(CarrierEvent::Incoming { session: SessionId::Dtls(key), listener });
            }
            None => {
                cx.stats.refuse(Refusal::Untaken);
                self.drop_session(cx, key);
            }
        }
    }

    /// A listener accepts a session, which carries this connection from now on. Returns another
    /// one, which the client has lost.
    pub(in crate::carrier) fn accept<N: Net>(&mut self, cx: &mut Context<N>, key: Key, conn: Key) -> Option<Key> {
        let d = self.sessions.get_mut(key)?;
        (d.conn, d.offered) = (Some(conn), false);
        self.take_over(cx, key)
    }

    /// A session takes its address over from another one, if there is one, whose connection is
    /// returned.
    fn take_over<N: Net>(&mut self, cx: &mut Context<N>, key: Key) -> Option<Key> {
        let d = self.sessions.get(key)?;
        let old = self.sockets.get_mut(d.socket)?.peers.takes_over(d.peer(), key)?;
        self.supersede(cx, old)
    }

    /// The client of a session has come back to its address without knowing of it: it has lost its
    /// state, and the connection, which is returned, is lost (RFC 6347 section 4.2.8).
    fn supersede<N: Net>(&mut self, cx: &mut Context<N>, key: Key) -> Option<Key> {
        let d = self.sessions.get_mut(key)?;
        d.session.forget();
        if let Some(user) = d.user {
            let end = LayerEnd::Superseded;
            self.layer_events.push_back(LayerEvent::Lost { user, from: d.remote, end });
            self.drop_session(cx, key);
            return None;
        }
        d.lost = Some(ConnectionError::Net(ErrorKind::ConnectionReset.into()));
        // A connection that is closed already keeps its session for what is left to read.
        let conn = d.conn;
        if conn.is_none() {
            self.drop_session(cx, key);
        }
        conn
    }
}

impl DtlsSocket {
    /// An unknown client begins a handshake, if the listener takes any.
    fn begin<N: Net>(&mut self, cx: &mut Context<N>, from: Caller, random: HelloRandom) -> bool {
        let Some(config) = self.serves.as_ref().and_then(|s| s.config.as_ref()) else { return false };
        if from.full || cx.connections >= cx.limits.connections {
            cx.stats.refuse(if from.full { Refusal::Untaken } else { Refusal::Connection });
            return false;
        }
        let pending = Pending::new(Session::server(config, cx.now, &mut cx.rng), cx.now);
        let thrown_out = self.peers.unverified.insert((from.peer, random), pending, cx.limits.unverified);
        // A client that sends one datagram and nothing more is forgotten, too.
        let arm = !core::mem::replace(&mut self.peers.unverified.armed, true);
        if thrown_out {
            cx.stats.refuse(Refusal::Unverified);
        }
        if arm {
            cx.timers.push(cx.now + INCOMING_TIMEOUT, Due::DtlsUnverified(from.socket).into());
        }
        true
    }
}
