//! QUIC connections and the sockets they share.

mod data;
mod ending;
mod kind;
pub(crate) mod silence;
mod socket;
mod stay;
mod window;

use self::stay::{Moved, Stay};
use crate::carrier::dispatch::{CarrierSocket, Due, Socket};
use crate::carrier::event::CarrierEvent;
use crate::carrier::{FlowId, QuicCarrier, SessionId};
use crate::config::Refusal;
use crate::conn::{Conn, ConnectionState};
use crate::establish::Trial;
use crate::event::{AttemptError, ConnectionError, Event};
use crate::greeting::HandOver;
use crate::request::Compiled;
use crate::terminate::ABORTED;
use crate::{Engine, GroupId, RemoteEndpoint, Stack};
use core::time::Duration;
use neater_base::net::{ErrorKind, Net, Sock, SocketOption, SocketOptions, Transmit};
use neater_base::{Instant, Key};
use neater_quic::{
    Connection, ConnectionApi, Direction, Endpoint, EndpointApi, Epoch, Event as QuicEvent, Handle, Identity,
    QuicError, StreamId,
};
use neater_race::CandidateId;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

/// What the connections of a shared socket have in common: family (IPv6 or not), interface and isolation.
pub(crate) type Sharing = (bool, Option<u32>, u64);

/// A UDP socket that speaks QUIC.
pub(crate) struct QuicSocket {
    pub(crate) sock: Sock,
    pub(crate) endpoint: Endpoint,
    /// By the endpoint's handle.
    conns: Vec<Option<Key>>,
    writable: bool,
    /// What the socket could not take; its connections wait for it.
    blocked: Option<(neater_quic::Transmit, Option<Stay>, Vec<u8>)>,
    waiting: Vec<Key>,
    /// Sessions in which their peers have said nothing yet, and some that have spoken since.
    mute: VecDeque<Key>,
    pub(crate) listener: Option<Key>,
    /// What it was opened with, but for the port, which is the one that it got.
    options: SocketOptions,
}

impl core::fmt::Debug for QuicSocket {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("QuicSocket").field("sock", &self.sock).finish_non_exhaustive()
    }
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
    pub(crate) attempt: Option<(Key, Option<CandidateId>)>,
    answered: bool,
    /// An incoming connection whose handshake is not over, and which its endpoint counts as such.
    pub(crate) shaking: bool,
    /// It was withdrawn from a race, which wants to know whether it would have been answered.
    pub(crate) trial: Option<Box<Trial>>,
    pub(crate) group: Option<Key>,
    pub(crate) streams: BTreeMap<StreamId, Key>,
    pub(crate) datagrams: Option<Key>,
    /// The connection that carried them is closed: those that still come are dropped.
    datagrams_over: bool,
    pub(crate) request: Arc<Compiled>,
    pub(crate) remotes: Arc<[RemoteEndpoint]>,
    /// The stream on which early data was sent.
    early: Option<StreamId>,
    /// An attempt's stream, opened to see whether its peer allows any.
    opened: Option<StreamId>,
    /// The peer wants no more of that stream, with this code: heard before a connection had it.
    early_stopped: Option<u64>,
    dirty: bool,
    /// Something of it is on the wire.
    spoken: bool,
    drained: bool,
    pub(crate) armed: Option<Instant>,
    pub(crate) started: Instant,
    window: u64,
    /// What it has of [`Windows`] for what its peer may send.
    granted: u64,
    /// How many connections the peer may have in the group (`groupConnLimit`).
    pub(crate) peer_limit: Option<u32>,
    /// When something came from the peer last.
    heard: Instant,
    /// Where that arrived, if the system says so; before, where an attempt comes from, if that is known.
    pub(crate) local: Option<std::net::IpAddr>,
    /// Where it stays although the system would choose otherwise now.
    stays: Option<Stay>,
    /// When it went where the system chooses, and nobody has answered since.
    moved: Option<Moved>,
    /// When its silence is looked after next: see [`silence`].
    listens_at: Option<Instant>,
    /// `connTimeout`, set since it was established.
    give_up: Option<Duration>,
    /// `keepAliveTimeout`, set since it was established.
    keep_alive: Option<Duration>,
}

/// `connPriority` unless it was set (RFC 9622 section 8.1.2).
const DEFAULT_PRIORITY: u32 = 100;
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

    /// A flow no longer uses its stream, or (`None`) the datagrams.
    pub(crate) fn unbind(&mut self, key: Key, stream: Option<StreamId>) {
        if let Some(q) = self.connections.get_mut(key) {
            match stream {
                Some(s) => drop(q.streams.remove(&s)),
                None => (q.datagrams, q.datagrams_over) = (None, true),
            }
        }
        self.mark_dirty(key);
    }
}

impl<N: Net> Engine<N> {
    /// Who the QUIC endpoint at `local` is.
    fn identity(&mut self, local: Option<SocketAddr>) -> Identity {
        let secret = self.cx.config.shared_secret.unwrap_or(self.cx.config.seed);
        let mut keys = neater_base::Rng::new(secret);
        let qlog = self.cx.config.qlog.clone();
        let (engine, seed) = (self.cx.config.engine, self.cx.rng.seed());
        let (own, token_key) = (keys.seed(), keys.seed());
        let reset_key = match (&self.cx.config.reset_secret, local) {
            (Some(secret), Some(local)) => neater_quic::reset_key_at(secret, local),
            _ => own,
        };
        Identity { engine, seed, reset_key, token_key, qlog }
    }

    /// Opens a UDP socket that speaks QUIC; `server`: it accepts connections for this listener.
    pub(crate) fn open_quic_socket(
        &mut self,
        family: SocketAddr,
        options: &SocketOptions,
        server: Option<(Key, &Arc<Compiled>)>,
    ) -> Result<Key, AttemptError> {
        let asked = options;
        let mut options = options.clone();
        options.set.push(SocketOption::ReceiveBuffer(SOCKET_BUFFER));
        options.set.push(SocketOption::SendBuffer(SOCKET_BUFFER));
        // Path MTU discovery needs packets that are not fragmented (RFC 9000 section 14).
        options.set.push(SocketOption::DontFragment(true));
        // A refused port or a missing route is the end of an attempt, which need not wait for a timeout then.
        if server.is_none() {
            options.set.push(SocketOption::IcmpErrors(true));
        }
        let tls = server.and_then(|(_, r)| r.setups.quic_server.as_ref()).map(|(tls, tuning)| (tls.clone(), tuning));
        let key = self.carriers.quic.sockets.next_key();
        let sock =
            self.cx.net.udp(CarrierSocket(Socket::Quic(key)).token(), family, &options).map_err(AttemptError::Net)?;
        let local = self.cx.net.local_addr(sock).ok();
        let identity = self.identity(local);
        let made = Endpoint::new(Epoch::new(), &identity, tls).map_err(AttemptError::Quic);
        let mut endpoint = made.inspect_err(|_| self.cx.net.close(sock))?;
        endpoint.set_wall(self.cx.net.wall());
        endpoint.limit_handshakes(self.cx.limits.handshakes);
        self.carriers.quic.sockets.insert(QuicSocket {
            sock,
            endpoint,
            conns: Vec::new(),
            writable: true,
            blocked: None,
            waiting: Vec::new(),
            mute: VecDeque::new(),
            listener: server.map(|(l, _)| l),
            options: SocketOptions { local, ..asked.clone() },
        });
        Ok(key)
    }

    /// Listens again at a socket that is there for the connections of a listener that has stopped, if there is one: another
    /// cannot have its port.
    pub(crate) fn reopen_quic_socket(
        &mut self,
        options: &SocketOptions,
        listener: Key,
        request: &Arc<Compiled>,
    ) -> Result<Option<Key>, AttemptError> {
        let left = |s: &QuicSocket| s.listener.is_none() && s.endpoint.is_server() && s.options == *options;
        let Some(key) = self.carriers.quic.sockets.iter().find(|(_, s)| left(s)).map(|(k, _)| k) else {
            return Ok(None);
        };
        let Some((tls, tuning)) = request.setups.quic_server.as_ref() else { return Ok(None) };
        let local = self.carriers.quic.sockets.get(key).and_then(|s| s.options.local);
        let identity = self.identity(local);
        let Some(s) = self.carriers.quic.sockets.get_mut(key) else { return Ok(None) };
        s.endpoint.accept_again(&identity, tls.clone(), tuning).map_err(AttemptError::Quic)?;
        s.listener = Some(listener);
        Ok(Some(key))
    }

    #[allow(clippy::too_many_arguments, reason = "an attempt has this many sides")]
    pub(crate) fn quic_connect(
        &mut self,
        conn: Key,
        candidate: Option<CandidateId>,
        stack: Stack,
        addr: SocketAddr,
        name: &str,
        request: &Arc<Compiled>,
        options: &SocketOptions,
    ) -> Result<Key, AttemptError> {
        let setup = request.setups.quic.as_ref().ok_or(AttemptError::Net(ErrorKind::Unsupported.into()))?;
        // Connections share a socket unless the socket itself was asked to be special.
        let plain = options.local.is_none() && options.set.is_empty() && options.temporary_address.is_none();
        let shared = self
            .carriers
            .quic
            .client_sockets
            .iter()
            .find(|(of, _)| plain && *of == (addr.is_ipv6(), options.interface, request.isolation))
            .map(|(_, k)| *k);
        let socket = match shared {
            Some(k) => k,
            None => {
                let k = self.open_quic_socket(addr, options, None)?;
                // Nothing can have come yet, but no event is promised before it was tried.
                self.quic_socket_readable(k);
                if plain {
                    self.carriers.quic.client_sockets.push(((addr.is_ipv6(), options.interface, request.isolation), k));
                }
                k
            }
        };
        // A UDP socket that is not connected does not tell that there is no route until it sends.
        let addr = crate::establish::with_scope(addr, options.interface);
        let Some(source) = self.route_to(addr) else {
            self.tidy_quic_socket(socket);
            return Err(AttemptError::Net(ErrorKind::NetworkUnreachable.into()));
        };
        let now = self.cx.now;
        let Some(s) = self.carriers.quic.sockets.get_mut(socket) else { return Err(AttemptError::NoAddress) };
        let (handle, connection) = match s.endpoint.connect(now, setup, addr, name) {
            Ok(c) => c,
            Err(e) => {
                self.tidy_quic_socket(socket);
                return Err(AttemptError::Quic(e));
            }
        };
        let remotes = self.conns.get(conn).map(|c| c.remotes.clone()).unwrap_or_default();
        let key = self.insert_quic(socket, handle, connection, stack, addr, request.clone(), remotes, true);
        let early = self.conns.get(conn).and_then(|c| c.ext.as_ref()).and_then(|e| e.early.clone());
        if let Some(q) = self.carriers.quic.connections.get_mut(key) {
            // By a certain interface it may be another one.
            q.local = options.local.map(|l| l.ip()).or(source.filter(|_| options.interface.is_none()));
            q.attempt = Some((conn, candidate));
            let framed = q.request.framer.frames();
            if let (Some(data), Stack::Quic, true) = (early, stack, q.conn.has_early_data() && !framed) {
                // All or nothing: a message half sent could not be told apart when it is sent again.
                if let Some(stream) = q.conn.open(Direction::Both) {
                    if q.conn.write(stream, &data) == Ok(data.len()) {
                        q.early = Some(stream);
                    } else {
                        q.conn.reset(stream, NO_ERROR);
                    }
                }
            }
        }
        self.mark_dirty(key);
        Ok(key)
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of a connection")]
    fn insert_quic(
        &mut self,
        socket: Key,
        handle: Handle,
        conn: Connection,
        stack: Stack,
        remote: SocketAddr,
        request: Arc<Compiled>,
        remotes: Arc<[RemoteEndpoint]>,
        client: bool,
    ) -> Key {
        let peer_limit = request.properties.connection.group_conn_limit;
        let key = self.carriers.quic.connections.insert(Quic {
            socket,
            handle,
            conn,
            client,
            stack,
            remote,
            connected: false,
            lost: None,
            attempt: None,
            answered: false,
            shaking: !client,
            trial: None,
            group: None,
            streams: BTreeMap::new(),
            datagrams: None,
            datagrams_over: false,
            request,
            remotes,
            early: None,
            opened: None,
            early_stopped: None,
            dirty: false,
            spoken: false,
            drained: false,
            armed: None,
            started: self.cx.now,
            window: neater_quic::Tuning::SEND_WINDOW_MIN,
            granted: 0,
            peer_limit,
            heard: self.cx.now,
            local: None,
            stays: None,
            moved: None,
            listens_at: None,
            give_up: None,
            keep_alive: None,
        });
        if let Some(s) = self.carriers.quic.sockets.get_mut(socket) {
            if s.conns.len() <= handle.0 {
                s.conns.resize(handle.0 + 1, None);
            }
            s.conns[handle.0] = Some(key);
        }
        key
    }

    /// See [`crate::carrier::QuicCarrier::mark_dirty`].
    pub(crate) fn mark_dirty(&mut self, quic: Key) {
        self.carriers.quic.mark_dirty(quic);
    }

    /// Lets every connection that has something to say say it.
    pub(crate) fn drive_dirty(&mut self) {
        // Driving one may mark another; what is marked again by the budget waits for the next turn.
        let mut rounds = 0;
        while !self.carriers.quic.dirty.is_empty() && rounds < 8 {
            rounds += 1;
            let mut list = core::mem::take(&mut self.carriers.quic.dirty);
            for key in list.drain(..) {
                if let Some(q) = self.carriers.quic.connections.get_mut(key) {
                    q.dirty = false;
                }
                self.drive_quic(key);
            }
            if self.carriers.quic.dirty.is_empty() {
                self.carriers.quic.dirty = list;
            }
        }
        if !self.carriers.quic.dirty.is_empty() {
            self.cx.again = true;
        }
    }

    pub(crate) fn drive_quic(&mut self, key: Key) {
        let now = self.cx.now;
        let mut sent = 0;
        loop {
            // Events first: they may produce more to send.
            loop {
                let Some(q) = self.carriers.quic.connections.get_mut(key) else { return };
                let Some(s) = self.carriers.quic.sockets.get_mut(q.socket) else { return };
                if q.drained {
                    break;
                }
                let mut progress = false;
                while let Some(event) = q.conn.poll_endpoint_event() {
                    if let Some(back) = s.endpoint.handle_event(q.handle, event) {
                        q.conn.handle_event(back);
                    }
                    progress = true;
                }
                if q.conn.is_drained() && !q.drained {
                    q.drained = true;
                    if let Some(slot) = s.conns.get_mut(q.handle.0) {
                        *slot = None;
                    }
                }
                // Every frame says that its stream can be read, and nobody reads in between: the first is enough.
                let mut readable = None;
                while let Some(event) = self.carriers.quic.connections.get_mut(key).and_then(|q| q.conn.poll_event()) {
                    progress = true;
                    match event {
                        QuicEvent::Readable(stream) if readable.replace(stream) == Some(stream) => {}
                        event => self.quic_event(key, event),
                    }
                }
                if !progress {
                    break;
                }
            }
            // What is reported may have something sent: it is to be in the packets that leave now.
            self.drain_carriers();
            if self.carriers.quic.connections.get_mut(key).is_some_and(|q| q.conn.unread_has_shifted()) {
                self.carriers.quic.tune_receiving(&mut self.cx, key);
            }
            if sent >= SEND_BUDGET {
                self.mark_dirty(key);
                self.cx.again = true;
                break;
            }
            match self.quic_send_one(key, now) {
                0 => break,
                packets => sent += packets,
            }
        }
        let Some(q) = self.carriers.quic.connections.get_mut(key) else { return };
        if let Some(at) = q.conn.next_timeout()
            && q.armed.is_none_or(|a| at < a)
        {
            q.armed = Some(at);
            self.cx.timers.push(at, Due::Quic(key).into());
        }
        // A connection of datagrams that is being closed waits for the last of them to leave.
        if let Some(conn) = q.datagrams
            && self.conns.get(conn).is_some_and(|c| c.state == ConnectionState::Closing && c.tx.is_empty())
            && q.conn.queued_datagrams() == 0
        {
            self.finish_close(conn);
        }
        self.tidy_quic(key);
    }

    fn quic_event(&mut self, key: Key, event: QuicEvent) {
        match event {
            QuicEvent::Reachable => {}
            QuicEvent::Connected => self.quic_connected(key),
            QuicEvent::Lost(error) => self.quic_lost(key, error),
            QuicEvent::Opened(direction) => match self.carriers.quic.connections.get(key) {
                // Early data: without a listener that asks for it, none is accepted.
                Some(q) if !q.client && !q.connected && q.conn.has_early_data() => self.quic_connected(key),
                _ => self.quic_accept(key, direction),
            },
            QuicEvent::Readable(stream) => {
                if let Some(conn) = self.quic_member(key, stream) {
                    self.conn_ready_stream(conn, true);
                }
            }
            QuicEvent::Writable(stream) => {
                self.quic_tune(key);
                if let Some(conn) = self.quic_member(key, stream) {
                    self.conn_ready_stream(conn, false);
                }
            }
            QuicEvent::Finished(stream) => {
                if let Some(conn) = self.quic_member(key, stream)
                    && let Some(c) = self.conns.get_mut(conn)
                {
                    c.send = c.send.on_all_acked();
                    if core::mem::take(&mut c.wants_room) {
                        self.notify(conn, Event::Writable);
                    }
                    let Some(c) = self.conns.get(conn) else { return };
                    if c.state == ConnectionState::Closing {
                        self.finish_close(conn);
                    } else {
                        self.both_ended(conn);
                        self.find_reset(conn);
                    }
                }
            }
            QuicEvent::Stopped(stream, code) => {
                if let Some(conn) = self.quic_member(key, stream) {
                    self.quic_stopped(conn, key, stream, code);
                } else if let Some(q) = self.carriers.quic.connections.get_mut(key).filter(|q| q.early == Some(stream))
                {
                    // It is said once, and the race is not decided.
                    q.early_stopped = Some(code);
                }
            }
            QuicEvent::Available(_) => self.open_pending(SessionId::Quic(key)),
            QuicEvent::DatagramReceived => self.quic_take_datagrams(key),
            QuicEvent::DatagramsUnblocked => {
                if let Some(conn) = self.carriers.quic.connections.get(key).and_then(|q| q.datagrams) {
                    self.conn_ready_stream(conn, false);
                }
            }
        }
    }

    fn quic_stopped(&mut self, conn: Key, key: Key, stream: StreamId, code: u64) {
        self.stream_stopped(conn, key, stream, code);
        self.find_reset(conn);
        self.both_ended(conn);
    }

    /// Tells a connection that has just got the stream of its early data what its peer said of that before.
    pub(crate) fn quic_heed_early_stop(&mut self, conn: Key, key: Key) {
        let Some(code) = self.carriers.quic.connections.get_mut(key).and_then(|q| q.early_stopped.take()) else {
            return;
        };
        if let Some(FlowId::Stream { stream, .. }) = self.conns.get(conn).map(|c| c.flow) {
            self.quic_stopped(conn, key, stream, code);
        }
    }

    fn quic_member(&self, key: Key, stream: StreamId) -> Option<Key> {
        self.carriers.quic.connections.get(key)?.streams.get(&stream).copied()
    }

    fn quic_connected(&mut self, key: Key) {
        let Some(q) = self.carriers.quic.connections.get_mut(key) else { return };
        if core::mem::replace(&mut q.connected, true) || !q.client && q.lost.is_some() {
            // It was delivered with its early data, or is not wanted any more.
            return;
        }
        if let Some((conn, _)) = q.attempt {
            return self.quic_attempt_connected(key, conn);
        }
        // Where streams are delivered, too, the connection for datagrams begins with the first of
        // them.
        let (socket, datagrams) = (q.socket, q.stack == Stack::QuicDatagram);
        self.quic_shook(key);
        let Some(s) = self.carriers.quic.sockets.get(socket) else { return };
        let Some(listener) = s.listener else {
            // The listener has stopped meanwhile. What the peer has said already is not delivered, and it is to know.
            return self.quic_close(key, ABORTED);
        };
        if datagrams && !self.quic_can_be_answered(key) {
            self.cx.stats.refused += 1;
            return self.quic_close_saying(key, ABORTED, kind::NONE_OFFERED);
        }
        // Streams wait in their session until the listener may deliver more; nothing keeps groups and datagrams for it.
        let waits = !datagrams && self.listeners.get(listener).is_some_and(|l| !l.groups);
        if self.listeners.get(listener).is_some_and(|l| l.backlog.is_full()) || !waits && self.is_full(listener) {
            // The program takes nothing, and no kernel keeps this for it.
            self.cx.stats.refuse(Refusal::Untaken);
            return self.quic_close(key, ABORTED);
        }
        let group = self.new_group(Some(SessionId::Quic(key)), Some(listener));
        if let Some(q) = self.carriers.quic.connections.get_mut(key) {
            q.group = Some(group);
        }
        if self.listeners.get(listener).is_some_and(|l| l.groups) {
            self.claim_group(group);
            self.count_received(listener);
            self.notify_listener(listener, Event::GroupReceived(GroupId(group)));
        }
        if datagrams {
            let Some(q) = self.carriers.quic.connections.get(key) else { return };
            let mut c = Conn::new(q.request.clone(), Arc::default(), self.cx.now);
            c.stack = Some(Stack::QuicDatagram);
            c.passive = true;
            c.flow = FlowId::Datagrams { quic: key };
            let conn = self.conns.insert(c);
            self.join_group(group, conn);
            if let Some(q) = self.carriers.quic.connections.get_mut(key) {
                q.datagrams = Some(conn);
            }
            self.deliver_incoming(listener, conn);
        }
        self.quic_accept(key, Direction::Both);
        self.quic_accept(key, Direction::One);
        self.quic_take_datagrams(key);
        if waits {
            self.quic_hears_nothing(key);
        }
    }

    /// Takes the streams that the peer has opened. They may have come as early data, which may be a replay (RFC 9001
    /// section 9.2): only where the listener asks for it.
    pub(crate) fn quic_accept(&mut self, key: Key, direction: Direction) {
        loop {
            let Some(q) = self.carriers.quic.connections.get_mut(key).filter(|q| q.connected) else { return };
            let (client, limit) = (q.client, q.peer_limit);
            let Some(group) = q.group else { return };
            if self.is_group_full(group) {
                // They wait where they are until the program has taken some.
                return;
            }
            let claimed = self.groups.get(group).is_some_and(|g| g.claimed);
            let listener = self.group_listener(group);
            if !claimed && listener.is_some_and(|l| self.is_full(l.0)) {
                // They wait where they are until the limit is raised.
                return;
            }
            // Nobody will ever take it: a server whose listener is gone.
            let unwanted = !claimed && listener.is_none() && !client;
            if let Some(limit) = limit.filter(|_| !unwanted)
                && self.peers_streams(group) >= limit as usize
            {
                // Until one of them leaves.
                return;
            }
            let Some(q) = self.carriers.quic.connections.get_mut(key) else { return };
            let Some(stream) = q.conn.accept(direction) else { return };
            // Or there is no room for another connection.
            if unwanted || self.conns.len() >= self.cx.limits.connections {
                q.conn.stop(stream, ABORTED);
                q.conn.reset(stream, ABORTED);
                self.cx.stats.refuse(Refusal::Stream);
                continue;
            }
            let mut c = Conn::new(q.request.clone(), q.remotes.clone(), self.cx.now);
            c.stack = Some(Stack::Quic);
            c.passive = true;
            c.flow = FlowId::Stream { quic: key, stream };
            if direction == Direction::One {
                c.send = crate::connection::state::SendSide::Absent;
            }
            let conn = self.conns.insert(c);
            self.quic_bind(key, stream, conn);
            self.join_group(group, conn);
            self.deliver(conn, HandOver::Group(group));
        }
    }

    pub(crate) fn quic_lost(&mut self, key: Key, error: QuicError) {
        let Some(q) = self.carriers.quic.connections.get_mut(key) else { return };
        let connected = q.connected;
        q.lost = Some(error.clone());
        if let Some((conn, _)) = q.attempt.take() {
            let error = match error {
                QuicError::TimedOut => AttemptError::TimedOut,
                e => AttemptError::Quic(e),
            };
            return self.carriers.quic.events.push_back(CarrierEvent::Failed {
                attempt: conn,
                session: SessionId::Quic(key),
                error,
            });
        }
        if !connected && !self.carriers.quic.connections.get(key).is_some_and(|q| q.client) {
            self.quic_shook(key);
            // The peer gave up before it was connected. There is nobody to drain for, and quinn-proto forgets to when the
            // first packet says so: it would be kept until the idle timeout.
            if matches!(error, QuicError::Transport { by_peer: true, .. } | QuicError::Closed { .. }) {
                self.quic_forget(key);
            }
        }
        let Some(q) = self.carriers.quic.connections.get(key) else { return };
        let mut members: Vec<Key> = q.streams.values().copied().collect();
        members.extend(q.datagrams);
        let group = q.group;
        for conn in self.pending_on(SessionId::Quic(key)) {
            if let Some(g) = group.and_then(|g| self.groups.get_mut(g)) {
                g.pending.retain(|(c, _)| *c != conn);
            }
            members.push(conn);
        }
        let whose = self.group_of(SessionId::Quic(key));
        for conn in members {
            let Some(flow) = self.conns.get(conn).map(|c| c.flow) else { continue };
            let lost = self.carriers.quic.session_lost(flow, &error);
            self.session_lost(conn, lost);
        }
        self.no_more_streams(whose, ConnectionError::Quic(error));
    }

    /// An attempt is not wanted any more.
    pub(crate) fn quic_abandon(&mut self, key: Key) {
        if let Some(q) = self.carriers.quic.connections.get_mut(key) {
            q.attempt = None;
            if q.lost.is_none() && !q.spoken {
                // The peer has heard nothing, and need not hear that it was nothing.
                self.quic_forget(key);
            } else if q.lost.is_none() {
                let now = self.cx.now;
                q.conn.close(now, NO_ERROR, b"");
            }
            self.mark_dirty(key);
        }
    }

    /// Ends a connection without the usual exchange; the next time it is driven it is removed.
    fn quic_forget(&mut self, key: Key) {
        let Some(q) = self.carriers.quic.connections.get_mut(key) else { return };
        let Some(s) = self.carriers.quic.sockets.get_mut(q.socket) else { return };
        if !q.drained {
            q.drained = true;
            q.lost.get_or_insert(QuicError::LocallyClosed);
            s.endpoint.forget(q.handle);
            if let Some(slot) = s.conns.get_mut(q.handle.0) {
                *slot = None;
            }
        }
    }

    /// A connection that was to be a stream of this attempt, or group, is not wanted any more.
    pub(crate) fn quic_abandon_stream(&mut self, conn: Key, quic: Key) {
        let Some(q) = self.carriers.quic.connections.get(quic) else { return };
        if q.attempt.is_some_and(|(c, _)| c == conn) {
            self.quic_abandon(quic);
        }
    }

    pub(crate) fn quic_close(&mut self, key: Key, code: u64) {
        self.quic_close_saying(key, code, "");
    }

    /// The same, with words for the peer.
    fn quic_close_saying(&mut self, key: Key, code: u64, reason: &str) {
        let now = self.cx.now;
        self.quic_shook(key);
        if let Some(q) = self.carriers.quic.connections.get_mut(key)
            && q.lost.is_none()
        {
            q.conn.close(now, code, reason.as_bytes());
            q.lost = Some(QuicError::LocallyClosed);
            self.no_more_streams(self.group_of(SessionId::Quic(key)), ConnectionError::Quic(QuicError::LocallyClosed));
        }
        self.mark_dirty(key);
    }

    /// The connection is carried by this QUIC connection from now on.
    pub(crate) fn quic_won(&mut self, conn: Key, key: Key, stack: Stack) {
        let group = self.carry_group(conn, SessionId::Quic(key));
        let Some(q) = self.carriers.quic.connections.get_mut(key) else { return };
        q.attempt = None;
        q.group = Some(group);
        if stack == Stack::QuicDatagram {
            q.datagrams = Some(conn);
            if let Some(c) = self.conns.get_mut(conn) {
                c.flow = FlowId::Datagrams { quic: key };
            }
            return;
        }
        let early = q.early.take().filter(|_| q.conn.accepted_early_data());
        // A connection for sending only needs a stream of one direction only.
        let direction = if q.request.may_receive { Direction::Both } else { Direction::One };
        let stream = early.or_else(|| q.opened.take()).or_else(|| q.conn.open(direction));
        let Some(c) = self.conns.get_mut(conn) else { return };
        match stream {
            Some(stream) => {
                c.flow = FlowId::Stream { quic: key, stream };
                self.quic_bind(key, stream, conn);
                if early.is_some() {
                    self.first_was_taken(conn);
                }
            }
            None => {
                c.flow = FlowId::StreamPending { quic: key };
                if let Some(g) = self.groups.get_mut(group) {
                    g.pending.push_back((conn, direction));
                }
                self.await_stream(conn);
            }
        }
    }

    pub(crate) fn quic_bind(&mut self, key: Key, stream: StreamId, conn: Key) {
        if let Some(q) = self.carriers.quic.connections.get_mut(key) {
            q.streams.insert(stream, conn);
            self.quic_listen(key);
        }
        if let Some(p) = self.conns.get(conn).map(Conn::priority).filter(|p| *p != DEFAULT_PRIORITY) {
            self.apply_priority(conn, p);
        }
    }

    /// Drops a QUIC connection that is over and used by nobody, and its socket with the last of them.
    fn tidy_quic(&mut self, key: Key) {
        let Some(q) = self.carriers.quic.connections.get(key) else { return };
        if !q.drained || !q.streams.is_empty() || q.datagrams.is_some() || q.attempt.is_some() {
            return;
        }
        let (socket, group) = (q.socket, q.group);
        self.quic_give_back(key);
        self.carriers.quic.connections.remove(key);
        if let Some(g) = group {
            self.session_is_gone(g, SessionId::Quic(key));
        }
        self.tidy_quic_socket(socket);
    }

    pub(crate) fn tidy_quic_socket(&mut self, socket: Key) {
        let Some(s) = self.carriers.quic.sockets.get(socket) else { return };
        if s.endpoint.open_connections() > 0
            || s.listener.is_some()
            || self.carriers.quic.connections.iter().any(|(_, q)| q.socket == socket)
        {
            return;
        }
        self.carriers.quic.client_sockets.retain(|(_, k)| *k != socket);
        if let Some(s) = self.carriers.quic.sockets.remove(socket) {
            self.cx.net.close(s.sock);
        }
    }
}

pub(crate) fn transmit<'a>(t: &neater_quic::Transmit, stays: Option<Stay>, contents: &'a [u8]) -> Transmit<'a> {
    let (source, interface) = (t.source.or(stays.map(|s| s.from)), stays.map(|s| s.interface));
    Transmit { destination: t.destination, source, interface, ecn: t.ecn, segment_size: t.segment_size, contents }
}
