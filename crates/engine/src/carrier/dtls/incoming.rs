//! Handshakes with a listener, from the first hello to the connection.
//!
//! *Responsible for* whom a datagram is given to, and for what a client has to have shown before it is given more: an address
//! of its own, [`crate::Limits::handshakes`], a connection, the place of an earlier one. *Not responsible for* the books of
//! it ([`super::peers`]).

use super::peers::{Peers, Pending};
use super::{Dtls, INCOMING_TIMEOUT};
use crate::backlog::who_makes_room;
use crate::carrier::FlowId;
use crate::carrier::channel::{Behind, Channel, Kind, Peer};
use crate::carrier::dispatch::Due;
use crate::carrier::sctp::SessionEnd;
use crate::config::Refusal;
use crate::conn::Conn;
use crate::event::ConnectionError;
use crate::{Engine, Stack};
use neater_base::Key;
use neater_base::net::{Ecn, ErrorKind, Net, Transmit};
use neater_dtls::{HelloRandom, Look, Session, look};
use std::net::SocketAddr;
use std::sync::Arc;

/// A listener's socket, and a client's handshake on it.
#[derive(Clone, Copy)]
struct Caller {
    listener: Key,
    channel: Key,
    peer: Peer,
}

impl<N: Net> Engine<N> {
    fn dtls_peers_mut(&mut self, channel: Key) -> Option<&mut Peers> {
        match self.carriers.channels.get_mut(channel).map(|c| &mut c.kind) {
            Some(Kind::Dtls(peers)) => Some(peers),
            _ => None,
        }
    }

    /// A datagram has arrived on a socket of sessions.
    pub(super) fn dtls_datagram(&mut self, channel: Key, peer: Peer, data: &[u8], ecn: Ecn) {
        let Some(Channel { kind: Kind::Dtls(peers), behind, .. }) = self.carriers.channels.get(channel) else { return };
        let Behind::Listener(listener) = *behind else {
            // There is but one.
            let (holder, _) = peers.at(Peer::from(peer.remote));
            return holder.into_iter().for_each(|key| self.dtls_hand(key, data, ecn));
        };
        // What was sent to many (multicast) is answered from where the system chooses.
        let peer = if peers.at(peer).0.is_some() || self.is_own(peer.here) { peer } else { Peer::from(peer.remote) };
        let (holder, successor) = peers.at(peer);
        let from = Caller { listener, channel, peer };
        match look(data) {
            // A hello has no key and no proof: it is a verified client's only if it repeats the random of its own.
            Look::Hello { random, whole } => {
                let same = |key: &Key| self.carriers.dtls.sessions.get(*key).is_some_and(|d| d.random == Some(random));
                match [successor, holder].into_iter().flatten().find(same) {
                    Some(key) => self.dtls_hand(key, data, ecn),
                    None => self.dtls_hello(from, random, whole, data, ecn),
                }
            }
            Look::HelloFragment => {
                let randoms = peers.unverified.unfinished(peer);
                for random in randoms {
                    self.dtls_pending(from, random, data, ecn);
                }
            }
            // The holder knows its own by the key; what has none is for whoever has none yet.
            what => {
                let (to_holder, to_successor) = (what != Look::Clear || successor.is_none(), what != Look::Data);
                let to = [holder.filter(|_| to_holder), successor.filter(|_| to_successor)];
                to.into_iter().flatten().for_each(|key| self.dtls_hand(key, data, ecn));
            }
        }
    }

    fn dtls_hand(&mut self, key: Key, data: &[u8], ecn: Ecn) {
        let now = self.cx.now;
        let Some(d) = self.carriers.dtls.sessions.get_mut(key) else { return };
        d.session.handle_datagram(now, data);
        self.dtls_progress(key, ecn);
    }

    /// Somebody says hello, or seems to.
    fn dtls_hello(&mut self, from: Caller, random: HelloRandom, whole: bool, data: &[u8], ecn: Ecn) {
        let name = (from.peer, random);
        let Some(peers) = self.dtls_peers_mut(from.channel) else { return };
        if peers.unverified.get_mut(name).is_none() && !self.dtls_begin(from, random) {
            return;
        }
        if let Some(p) = self.dtls_peers_mut(from.channel).and_then(|peers| peers.unverified.get_mut(name)) {
            p.unfinished = !whole;
        }
        self.dtls_pending(from, random, data, ecn);
    }

    /// A client that has not been heard of begins a handshake, if the listener takes any.
    fn dtls_begin(&mut self, from: Caller, random: HelloRandom) -> bool {
        let Some(l) = self.listeners.get(from.listener) else { return false };
        let request = l.request.clone();
        let Some(config) = request.0.setups.dtls.1.as_ref() else { return false };
        let full = l.limit == Some(0) || l.backlog.is_full();
        if full || self.conns.len() >= self.cx.limits.connections {
            self.cx.stats.refuse(if full { Refusal::Untaken } else { Refusal::Connection });
            return false;
        }
        let (now, max) = (self.cx.now, self.cx.limits.unverified);
        let pending = Pending::new(Session::server(config, now, &mut self.cx.rng), now);
        let Some(peers) = self.dtls_peers_mut(from.channel) else { return false };
        let thrown_out = peers.unverified.insert((from.peer, random), pending, max);
        // A client that has sent one datagram and is never heard of again is forgotten, too.
        let arm = !core::mem::replace(&mut peers.unverified.armed, true);
        if thrown_out {
            self.cx.stats.refuse(Refusal::Unverified);
        }
        if arm {
            self.cx.timers.push(now + INCOMING_TIMEOUT, Due::DtlsUnverified(from.channel).into());
        }
        true
    }

    pub(crate) fn dtls_unverified_timeout(&mut self, channel: Key) {
        let now = self.cx.now;
        let Some(peers) = self.dtls_peers_mut(channel) else { return };
        let next = peers.unverified.expire(now, INCOMING_TIMEOUT);
        peers.unverified.armed = next.is_some();
        if let Some(at) = next {
            self.cx.timers.push(at, Due::DtlsUnverified(channel).into());
        }
    }

    /// Gives a datagram to a client that has not proved its address, which is asked to, or has just done so.
    fn dtls_pending(&mut self, from: Caller, random: HelloRandom, data: &[u8], ecn: Ecn) {
        let now = self.cx.now;
        let Some(ch) = self.carriers.channels.get_mut(from.channel) else { return };
        let Kind::Dtls(peers) = &mut ch.kind else { return };
        let name = (from.peer, random);
        let Some(p) = peers.unverified.get_mut(name) else { return };
        p.session.handle_datagram(now, data);
        if p.session.is_over() {
            tracing::debug!(target: "neater::listen", "handshake failed: {:?}", p.session.poll_event());
            peers.unverified.remove(name);
            return;
        }
        if p.session.is_verified() {
            if let Some(p) = peers.unverified.remove(name) {
                self.dtls_verified(from, random, p, ecn);
            }
            return;
        }
        // As if there were no state: one answer to each hello, never longer than it, and no timer (RFC 6347 section 4.2.1).
        let mut answer = None;
        while let Some(question) = p.session.poll_transmit() {
            answer = Some(question);
        }
        if answer.is_some() {
            p.question.clone_from(&answer);
        } else if !p.unfinished {
            answer = p.question.clone().filter(|q| q.len() <= data.len());
        }
        if let Some(contents) = answer
            && ch.writable
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
            match self.cx.net.send(ch.sock, &to) {
                Err(e) if e.is_would_block() => ch.writable = false,
                // Lost, as on the way; what ICMP says of an earlier datagram, a stranger may have caused.
                _ => {}
            }
        }
    }

    /// A client has proved its address. From now on it counts among the handshakes, and its address is its own, unless
    /// there is a connection: that keeps it until the new handshake is finished.
    fn dtls_verified(&mut self, from: Caller, random: HelloRandom, p: Pending, ecn: Ecn) {
        let Some(Channel { kind: Kind::Dtls(peers), .. }) = self.carriers.channels.get(from.channel) else { return };
        let ((holder, _), sctp) = (peers.at(from.peer), peers.sctp);
        let full = holder.is_none() && peers.len() >= self.cx.limits.udp_peers;
        if full || !self.dtls_has_room(from.channel, from.peer.remote) {
            self.cx.stats.refuse(if full { Refusal::Peer } else { Refusal::Handshake });
            return;
        }
        let d = Dtls {
            random: Some(random),
            sctp,
            at: (from.peer.here, from.peer.interface),
            ..Dtls::new(p.session, from.channel, from.peer.remote, p.since)
        };
        let key = self.carriers.dtls.sessions.insert(d);
        // Room may have been made by a handshake from there.
        let Some(Channel { kind: Kind::Dtls(peers), .. }) = self.carriers.channels.get(from.channel) else { return };
        let (holder, _) = peers.at(from.peer);
        let stays = holder.and_then(|k| self.carriers.dtls.sessions.get(k)).is_some_and(Dtls::is_taken);
        let gone = self.dtls_peers_mut(from.channel).and_then(|peers| peers.verified(from.peer, key, stays));
        if let Some(gone) = gone {
            // What it said now would be heard by its successor.
            if let Some(d) = self.carriers.dtls.sessions.get_mut(gone) {
                d.session.forget();
            }
            self.dtls_drop(gone);
        }
        self.cx.timers.push(p.since + INCOMING_TIMEOUT, Due::DtlsIncoming(key).into());
        self.dtls_progress(key, ecn);
    }

    /// An incoming handshake has had its time.
    pub(crate) fn dtls_incoming_timeout(&mut self, key: Key) {
        let Some(d) = self.carriers.dtls.sessions.get(key).filter(|d| d.conn.is_none() && d.attempt.is_none()) else {
            return;
        };
        if !d.is_taken() {
            self.cx.stats.refuse(Refusal::Handshake);
            self.dtls_drop(key);
        } else if d.associations == 0 {
            // Nobody has opened an association in it, or the last one is over.
            self.dtls_drop(key);
        }
    }

    /// Whether another handshake may begin; somebody else's may have to make room.
    fn dtls_has_room(&mut self, channel: Key, from: SocketAddr) -> bool {
        // Nearly always far below the limit: only then is it worth counting.
        if self.carriers.dtls.sessions.len() < self.cx.limits.handshakes {
            return true;
        }
        let shaking = |d: &Dtls| d.channel == channel && !d.is_taken();
        let all = || {
            self.carriers.dtls.sessions.iter().filter(|(_, d)| shaking(d)).map(|(k, d)| (k, d.remote.ip(), d.started))
        };
        if all().count() < self.cx.limits.handshakes {
            return true;
        }
        let Some(victim) = who_makes_room(all(), Some(from.ip()), self.cx.now) else { return false };
        self.cx.stats.refuse(Refusal::Handshake);
        tracing::debug!(target: "neater::listen", "a slow handshake made room for others");
        self.dtls_drop(victim);
        true
    }

    /// A client's handshake is finished.
    pub(super) fn dtls_arrived(&mut self, listener: Key, key: Key) {
        if self.carriers.dtls.sessions.get(key).is_some_and(|d| d.sctp.is_some()) {
            let Some((channel, peer)) = self.carriers.dtls.sessions.get(key).map(|d| (d.channel, d.peer())) else {
                return;
            };
            if let Some(old) = self.dtls_peers_mut(channel).and_then(|peers| peers.takes_over(peer, key)) {
                self.dtls_superseded(old);
            }
            // It has its time for an association.
            self.cx.timers.push(self.cx.now + INCOMING_TIMEOUT, Due::DtlsIncoming(key).into());
            return;
        }
        // The program takes nothing, and no kernel keeps this for it.
        let room = !self.is_full(listener) && self.conns.len() < self.cx.limits.connections;
        let (Some(l), Some(d)) = (self.listeners.get(listener).filter(|_| room), self.carriers.dtls.sessions.get(key))
        else {
            self.cx.stats.refuse(Refusal::Untaken);
            return self.dtls_drop(key);
        };
        let (channel, peer) = (d.channel, d.peer());
        let mut c = Conn::new(l.request.0.clone(), Arc::default(), self.cx.now);
        c.stack = Some(Stack::Dtls);
        c.passive = true;
        c.flow = FlowId::Dtls { dtls: key };
        let conn = self.conns.insert(c);
        if let Some(d) = self.carriers.dtls.sessions.get_mut(key) {
            d.conn = Some(conn);
        }
        if let Some(old) = self.dtls_peers_mut(channel).and_then(|peers| peers.takes_over(peer, key)) {
            self.dtls_superseded(old);
        }
        self.deliver_incoming(listener, conn);
    }

    /// The client of a connection has come back to its address without knowing of it: it has lost its state, and the
    /// connection is lost (RFC 6347 section 4.2.8).
    fn dtls_superseded(&mut self, key: Key) {
        let Some(d) = self.carriers.dtls.sessions.get_mut(key) else { return };
        let error = ConnectionError::Net(ErrorKind::ConnectionReset.into());
        d.session.forget();
        if let Some(socket) = d.sctp {
            let remote = d.remote;
            self.sctp_session_lost(socket, remote, &SessionEnd::Superseded);
            return self.dtls_drop(key);
        }
        d.lost = Some(error.clone());
        match d.conn {
            Some(conn) => {
                self.fail_connection(conn, error);
                // A connection that is closed already keeps its session for what is left to read.
            }
            None => self.dtls_drop(key),
        }
    }
}
