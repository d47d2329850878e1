//! QUIC connections and the sockets they share.
//!
//! *Responsible for* QUIC as a carrier: commands come as calls, and what has happened is reported
//! by events ([`crate::carrier::event`]). *Not responsible for* what a stream or a session means to
//! the engine: its connections, attempts, groups and listeners are keys here, which it has given
//! and which are handed back to it.
//!
//! *Invariants*: a connection that has events, or something to send, is in the list of those that
//! are to be flushed; it is removed when its end is over and no flow uses it, after all events that
//! name it.

mod connect;
mod data;
mod ending;
mod kind;
mod migration;
pub(crate) mod silence;
mod socket;
mod window;

use self::migration::{Moved, PinnedAddress};
use crate::carrier::SessionId;
use crate::carrier::event::{CarrierEvent, Events};
use crate::carrier::ids::Due;
use crate::carrier::terms::SessionOver;
use crate::closing::ABORTED;
use crate::context::Context;
use crate::event::{AttemptError, ConnectionError};
use crate::request::Compiled;
use crate::{RemoteEndpoint, Stack};
use core::time::Duration;
use neater_base::net::{Net, Sock, SocketOptions, Transmit};
use neater_base::{Instant, Key, Slab};
use neater_quic::{
    Connection, ConnectionApi, Direction, Endpoint, EndpointApi, Event as QuicEvent, Handle, QuicError, StreamId,
};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

/// What the connections of a shared socket have in common: family (IPv6 or not), interface and
/// isolation.
pub(crate) type Sharing = (bool, Option<u32>, u64);

/// A UDP socket that speaks QUIC.
pub(crate) struct QuicSocket {
    pub(crate) sock: Sock,
    pub(crate) endpoint: Endpoint,
    /// By the endpoint's handle.
    conns: Vec<Option<Key>>,
    writable: bool,
    /// What the socket could not take; its connections wait for it.
    blocked: Option<(neater_quic::Transmit, Option<PinnedAddress>, Vec<u8>)>,
    waiting: Vec<Key>,
    /// Sessions whose peers have sent nothing yet, and some whose peers have since.
    mute: VecDeque<Key>,
    /// The listener that it accepts connections for, and what of that they need.
    listener: Option<(Key, Arc<Compiled>)>,
    /// What it was opened with, but for the port, which is the one that it got.
    options: SocketOptions,
}

impl core::fmt::Debug for QuicSocket {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("QuicSocket").field("sock", &self.sock).finish_non_exhaustive()
    }
}

/// QUIC (RFC 9000).
#[derive(Debug, Default)]
pub(crate) struct QuicCarrier {
    pub(crate) events: Events,
    pub(crate) connections: Slab<Quic>,
    pub(crate) sockets: Slab<QuicSocket>,
    /// Client-side sockets that new connections may share.
    pub(crate) client_sockets: Vec<(Sharing, Key)>,
    /// Connections that have something to do.
    pub(crate) dirty: Vec<Key>,
    /// Sockets that were not read empty within the budget.
    pub(crate) unread: Vec<Key>,
    /// How often windows were looked at when this carrier has last looked at its own: see
    /// [`crate::context::Windows::looks`].
    pub(crate) looked: u64,
}

/// A QUIC connection: the transport of a group.
#[derive(Debug)]
pub(crate) struct Quic {
    pub(crate) socket: Key,
    pub(crate) handle: Handle,
    pub(crate) conn: Connection,
    pub(crate) client: bool,
    pub(crate) stack: Stack,
    pub(crate) remote: SocketAddr,
    pub(crate) connected: bool,
    /// Why it is over. What had arrived can still be read.
    pub(crate) lost: Option<QuicError>,
    pub(crate) attempt: Option<Key>,
    /// What the attempt may go on as, where its peer does not offer what it was started for.
    may_become: Option<Stack>,
    answered: bool,
    /// An incoming connection whose handshake is not over, and which its endpoint counts as such.
    pub(crate) shaking: bool,
    /// It was withdrawn from a race, and whether it would have been answered is reported.
    pub(crate) on_trial: bool,
    pub(crate) group: Option<Key>,
    pub(crate) streams: BTreeMap<StreamId, Key>,
    pub(crate) datagrams: Option<Key>,
    /// The connection that carried them is closed: those that still come are dropped.
    datagrams_over: bool,
    /// It is being closed, and waits until all of its datagrams have left.
    pub(super) datagrams_closing: bool,
    pub(crate) request: Arc<Compiled>,
    pub(crate) remotes: Arc<[RemoteEndpoint]>,
    /// The stream on which early data was sent.
    early: Option<StreamId>,
    /// An attempt's stream, opened to see whether its peer allows any.
    opened: Option<StreamId>,
    /// The peer wants no more of that stream, with this code: reported before a connection had it.
    early_stopped: Option<u64>,
    dirty: bool,
    /// Something of it is on the wire.
    spoken: bool,
    drained: bool,
    pub(crate) armed: Option<Instant>,
    pub(crate) started: Instant,
    window: u64,
    /// What it has of [`Windows`](crate::context::Windows) for what its peer may send.
    granted: u64,
    /// How many connections the peer may have in the group (`groupConnLimit`).
    pub(crate) peer_limit: Option<u32>,
    /// When something came from the peer last.
    heard: Instant,
    /// Since when what it sends is not acknowledged, and when the peer was asked for the first time
    /// after that.
    unacknowledged: Option<(Instant, Instant)>,
    /// Where that arrived, if the system reports it; before, where an attempt comes from, if that
    /// is known.
    pub(crate) local: Option<std::net::IpAddr>,
    /// Where it stays although the system would choose otherwise now.
    pinned: Option<PinnedAddress>,
    /// When it went to where the system chooses. `None`: the peer has answered since.
    moved: Option<Moved>,
    /// When its silence is looked after next: see [`silence`].
    listens_at: Option<Instant>,
    /// `connTimeout`, set since it was established.
    give_up: Option<Duration>,
    /// `keepAliveTimeout`, set since it was established.
    keep_alive: Option<Duration>,
}

/// `connPriority` unless it was set (RFC 9622 section 8.1.2).
pub(crate) const DEFAULT_PRIORITY: u32 = 100;
/// Receive calls per socket and turn.
const RECV_BUDGET: usize = 16;
/// Packets sent per connection and turn.
const SEND_BUDGET: usize = 640;
/// What one UDP packet can hold: segments of a train must fit into it together.
const UDP_MAX: usize = 65_507;
/// Kernel buffers of a QUIC socket, as far as the system allows.
const SOCKET_BUFFER: usize = 4 << 20;
/// The application error code for an orderly end.
pub(crate) const NO_ERROR: u64 = 0;

impl Quic {
    /// How long after its start the peer had answered, at most; `None`: it has not.
    pub(crate) fn answered_after(&self, now: Instant) -> Option<Duration> {
        self.answered.then(|| now - self.started)
    }

    /// Limits how many streams the peer may have open at once.
    pub(crate) fn limit_peers_streams(&mut self, limit: Option<u32>) {
        self.peer_limit = limit;
        let tuning = neater_quic::Tuning::default();
        // A listener of datagrams delivers no stream, and allows none.
        let none = !self.client && self.stack == Stack::QuicDatagram;
        let most = if none { 0 } else { limit.unwrap_or(u32::MAX) };
        self.conn.set_peer_streams(Direction::Both, tuning.peer_bidi_streams.min(most));
        self.conn.set_peer_streams(Direction::One, tuning.peer_uni_streams.min(most));
    }
}

impl QuicCarrier {
    /// Notes that a connection has something to send, or to report.
    pub(crate) fn mark_dirty(&mut self, quic: Key) {
        if let Some(q) = self.connections.get_mut(quic)
            && !q.dirty
        {
            q.dirty = true;
            self.dirty.push(quic);
        }
    }

    /// What it has to do is being done.
    pub(crate) fn unmark(&mut self, quic: Key) {
        if let Some(q) = self.connections.get_mut(quic) {
            q.dirty = false;
        }
    }

    /// A flow does not use its stream any more, or (`None`) the datagrams.
    pub(crate) fn unbind(&mut self, key: Key, stream: Option<StreamId>) {
        if let Some(q) = self.connections.get_mut(key) {
            match stream {
                Some(s) => drop(q.streams.remove(&s)),
                None => (q.datagrams, q.datagrams_over, q.datagrams_closing) = (None, true, false),
            }
        }
        self.mark_dirty(key);
    }
}

/// How far the flush of one connection is.
#[derive(Debug, Default)]
pub(crate) struct Flushing {
    /// Packets that were sent.
    sent: usize,
    /// Events of the connection are being taken.
    polling: bool,
    /// Something has happened since the last look.
    progress: bool,
    /// The stream that was reported last as one that can be read.
    readable: Option<StreamId>,
}

impl QuicCarrier {
    /// Takes what a connection has to report, up to the first event that is the engine's: later
    /// ones may be of streams that it binds in answer to this one. False: there is no more.
    pub(crate) fn collect<N: Net>(&mut self, cx: &mut Context<N>, key: Key, flushing: &mut Flushing) -> bool {
        loop {
            if !flushing.polling {
                let Some(q) = self.connections.get_mut(key).filter(|q| !q.drained) else { return false };
                let Some(s) = self.sockets.get_mut(q.socket) else { return false };
                flushing.progress = false;
                while let Some(event) = q.conn.poll_endpoint_event() {
                    if let Some(back) = s.endpoint.handle_event(q.handle, event) {
                        q.conn.handle_event(back);
                    }
                    flushing.progress = true;
                }
                if q.conn.is_drained() {
                    q.drained = true;
                    if let Some(slot) = s.conns.get_mut(q.handle.0) {
                        *slot = None;
                    }
                }
                (flushing.polling, flushing.readable) = (true, None);
            }
            while let Some(event) = self.connections.get_mut(key).and_then(|q| q.conn.poll_event()) {
                flushing.progress = true;
                match event {
                    // Every frame reports its stream as readable, and nothing is read in between:
                    // the first is enough.
                    QuicEvent::Readable(stream) if flushing.readable.replace(stream) == Some(stream) => {}
                    event => self.on_event(cx, key, event),
                }
                if !self.events.is_empty() {
                    return true;
                }
            }
            flushing.polling = false;
            if !flushing.progress {
                return false;
            }
        }
    }

    /// Sends one train of packets. False: there is nothing to send, or no room for it, or it is the
    /// turn of others.
    pub(crate) fn transmit<N: Net>(&mut self, cx: &mut Context<N>, key: Key, flushing: &mut Flushing) -> bool {
        if self.connections.get_mut(key).is_some_and(|q| q.conn.unread_has_shifted()) {
            self.tune_receiving(cx, key);
        }
        if flushing.sent >= SEND_BUDGET {
            self.mark_dirty(key);
            cx.again = true;
            return false;
        }
        let packets = self.send_one(cx, key);
        flushing.sent += packets;
        packets > 0
    }

    /// A connection has sent what it may: sets its deadline, and reports that the last of its
    /// datagrams has left.
    pub(crate) fn rest<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(q) = self.connections.get_mut(key) else { return };
        if let Some(at) = q.conn.next_timeout()
            && q.armed.is_none_or(|a| at < a)
        {
            q.armed = Some(at);
            cx.timers.push(at, Due::Quic(key).into());
        }
        // A connection of datagrams that is being closed waits for the last of them to leave.
        if let Some(conn) = q.datagrams
            && q.datagrams_closing
            && q.conn.queued_datagrams() == 0
        {
            self.events.push_back(CarrierEvent::AllLeft { conn });
        }
    }

    fn on_event<N: Net>(&mut self, cx: &mut Context<N>, key: Key, event: QuicEvent) {
        let session = SessionId::Quic(key);
        let reported = match event {
            QuicEvent::Reachable => None,
            QuicEvent::Connected => return self.connected(cx, key),
            QuicEvent::Lost(error) => return self.lose(key, error),
            QuicEvent::Opened(_) => match self.connections.get(key) {
                // Early data: without a listener that asks for it, none is accepted.
                Some(q) if !q.client && !q.connected && q.conn.has_early_data() => return self.connected(cx, key),
                _ => Some(CarrierEvent::StreamsWaiting { session }),
            },
            QuicEvent::Readable(stream) => self.member(key, stream).map(|conn| CarrierEvent::Readable { conn }),
            QuicEvent::Writable(stream) => {
                self.tune(cx, key);
                self.member(key, stream).map(|conn| CarrierEvent::Writable { conn })
            }
            QuicEvent::Finished(stream) => self.member(key, stream).map(|conn| CarrierEvent::AllAcked { conn }),
            QuicEvent::Stopped(stream, code) => {
                let member = self.member(key, stream);
                if member.is_none()
                    && let Some(q) = self.connections.get_mut(key).filter(|q| q.early == Some(stream))
                {
                    // It is reported once, and the race is not decided.
                    q.early_stopped = Some(code);
                }
                member.map(|conn| CarrierEvent::PeerStopped { conn, code })
            }
            QuicEvent::Available(_) => Some(CarrierEvent::StreamsAllowed { session }),
            QuicEvent::DatagramReceived => Some(CarrierEvent::DatagramsWaiting { session }),
            QuicEvent::DatagramsUnblocked => {
                let conn = self.connections.get(key).and_then(|q| q.datagrams);
                conn.map(|conn| CarrierEvent::Writable { conn })
            }
        };
        self.events.extend(reported);
    }

    fn member(&self, key: Key, stream: StreamId) -> Option<Key> {
        self.connections.get(key)?.streams.get(&stream).copied()
    }

    fn connected<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(q) = self.connections.get_mut(key) else { return };
        if core::mem::replace(&mut q.connected, true) || !q.client && q.lost.is_some() {
            // It was reported with its early data, or is not wanted any more.
            return;
        }
        if let Some(attempt) = q.attempt {
            return self.attempt_connected(key, attempt);
        }
        let socket = q.socket;
        self.shook(key);
        let Some(listener) = self.sockets.get(socket).map(|s| s.listener.as_ref().map(|(l, _)| *l)) else { return };
        let Some(listener) = listener else {
            // The listener has stopped meanwhile. What the peer has sent already is not delivered,
            // and it is to know.
            self.close(cx, key, ABORTED, b"");
            return;
        };
        if !self.can_be_answered(key) {
            cx.stats.refused += 1;
            self.close(cx, key, ABORTED, kind::NONE_OFFERED.as_bytes());
            return;
        }
        self.events.push_back(CarrierEvent::Incoming { session: SessionId::Quic(key), listener });
    }

    /// A connection is over, in whatever way. What had arrived can still be read.
    pub(super) fn lose(&mut self, key: Key, error: QuicError) {
        let Some(q) = self.connections.get_mut(key) else { return };
        let session = SessionId::Quic(key);
        q.lost = Some(error.clone());
        if let Some(attempt) = q.attempt.take() {
            let error = match error {
                QuicError::TimedOut => AttemptError::TimedOut,
                e => AttemptError::Quic(e),
            };
            return self.events.push_back(CarrierEvent::Failed { attempt, session, error });
        }
        if !q.connected && !q.client {
            self.shook(key);
            // The peer gave up before it was connected. Draining has no purpose, and quinn-proto
            // does not drain when the first packet is a CONNECTION_CLOSE: the connection would be
            // kept until the idle timeout.
            if matches!(error, QuicError::Transport { by_peer: true, .. } | QuicError::Closed { .. }) {
                self.forget(key);
            }
        }
        let Some(q) = self.connections.get_mut(key) else { return };
        for (stream, conn) in &q.streams {
            let lost = ending::lost(&error, q.conn.has_unsent(*stream), false);
            self.events.push_back(CarrierEvent::FlowLost { conn: *conn, lost });
        }
        if let Some(conn) = q.datagrams {
            // Datagrams are not acknowledged: that they have left is all that can be known.
            let lost = ending::lost(&error, false, q.conn.queued_datagrams() == 0);
            self.events.push_back(CarrierEvent::FlowLost { conn, lost });
        }
        if let Some(group) = q.group {
            let lost = ending::lost(&error, false, false);
            self.events.push_back(CarrierEvent::SessionLost { session, group, lost, known: false });
        }
    }

    /// Ends a connection without the usual exchange; the next time it is flushed it is removed.
    fn forget(&mut self, key: Key) {
        let Some(q) = self.connections.get_mut(key) else { return };
        let Some(s) = self.sockets.get_mut(q.socket) else { return };
        if !q.drained {
            q.drained = true;
            q.lost.get_or_insert(QuicError::LocallyClosed);
            s.endpoint.forget(q.handle);
            if let Some(slot) = s.conns.get_mut(q.handle.0) {
                *slot = None;
            }
        }
    }

    /// Ends a connection with a code and words for the peer. Returns why it is over for those that
    /// wait for it; `None`: it was over before.
    pub(crate) fn close<N: Net>(&mut self, cx: &Context<N>, key: Key, code: u64, reason: &[u8]) -> Option<SessionOver> {
        self.shook(key);
        self.mark_dirty(key);
        let q = self.connections.get_mut(key).filter(|q| q.lost.is_none())?;
        q.conn.close(cx.now, code, reason);
        q.lost = Some(QuicError::LocallyClosed);
        Some(SessionOver { session: SessionId::Quic(key), error: ConnectionError::Quic(QuicError::LocallyClosed) })
    }

    /// The same, and lets the flows that use it fail.
    pub(crate) fn close_for_all<N: Net>(&mut self, cx: &Context<N>, key: Key, code: u64, reason: &[u8]) {
        if let Some(q) = self.connections.get_mut(key)
            && q.lost.is_none()
        {
            q.conn.close(cx.now, code, reason);
            self.lose(key, QuicError::LocallyClosed);
        }
        self.mark_dirty(key);
    }

    /// Drops a connection that is over and that no flow uses, and its socket with the last of them.
    pub(crate) fn tidy<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(q) = self.connections.get(key) else { return };
        if !q.drained || !q.streams.is_empty() || q.datagrams.is_some() || q.attempt.is_some() {
            return;
        }
        let (socket, group) = (q.socket, q.group);
        self.give_back(cx, key);
        self.connections.remove(key);
        self.events.push_back(CarrierEvent::SessionGone { session: SessionId::Quic(key), group });
        self.tidy_socket(cx, socket);
    }

    pub(super) fn tidy_socket<N: Net>(&mut self, cx: &mut Context<N>, socket: Key) {
        let Some(s) = self.sockets.get(socket) else { return };
        if s.endpoint.open_connections() > 0
            || s.listener.is_some()
            || self.connections.iter().any(|(_, q)| q.socket == socket)
        {
            return;
        }
        self.client_sockets.retain(|(_, k)| *k != socket);
        if let Some(s) = self.sockets.remove(socket) {
            cx.net.close(s.sock);
        }
    }
}

pub(crate) fn transmit<'a>(
    t: &neater_quic::Transmit,
    pinned: Option<PinnedAddress>,
    contents: &'a [u8],
) -> Transmit<'a> {
    let (source, interface) = (t.source.or(pinned.map(|s| s.from)), pinned.map(|s| s.interface));
    Transmit { destination: t.destination, source, interface, ecn: t.ecn, segment_size: t.segment_size, contents }
}
