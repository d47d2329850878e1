//! SCTP associations over UDP or straight over IP, and the connections that are their streams.
//!
//! *Responsible for* sockets and SCTP ports (`socket`), attempts and listeners (`open`), and what connections do with streams
//! (`stream`, `sending`, `receiving`); what two of our engines say to each other is in `wire`. *Not responsible for* the protocol
//! (`neater-sctp`).
//!
//! *Invariants*: an [`Sctp`] is found from its [`SctpEnd`] as long as both exist, and is dropped when its association is over and
//! nobody uses it; what was received and not taken counts against the window that the peer is given, so that it is bounded by the
//! receive buffer; before a connection has won its race, nothing that makes the peer keep state is sent for a withdrawn attempt.

mod open;
mod receiving;
mod secure;
mod sending;
mod socket;
mod stream;
mod wire;

use crate::carrier::dispatch::Due;
use crate::carrier::end::SessionOver;
use crate::carrier::event::CarrierEvent;
use crate::carrier::{FlowId, SctpCarrier, SessionId};
use crate::conn::{Conn, ConnectionState};
use crate::event::{AttemptError, ConnectionError, EstablishmentError, Event, Reason};
use crate::request::Compiled;
use crate::{Engine, MessageId, RemoteEndpoint, Stack};
use core::time::Duration;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use neater_base::net::{Net, NetError, Sock, SocketOptions};
use neater_base::{Instant, Key};
use neater_race::CandidateId;
use neater_sctp::{
    AssociationId, AssociationStats, CloseReason, Endpoint, Event as SctpEvent, PathState, Scheduler, Train,
};
pub(crate) use open::There;
pub(crate) use socket::LINGER;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use stream::Stream;

/// SCTP's number among the protocols over IP (RFC 9260 section 1.5).
pub(crate) const PROTOCOL: u8 = 132;
/// Receive calls per socket and turn.
const RECV_BUDGET: usize = 16;
/// Trains per endpoint and turn.
const SEND_BUDGET: usize = 64;
/// Associations of an endpoint whose streams are looked at at a time, to find out whether they can end; and when to look at the
/// others, if nothing happens before.
const ENDINGS: usize = 64;
const ENDINGS_AGAIN: Duration = Duration::from_millis(5);
/// What an association may have queued and unacknowledged at most, in bytes: [`crate::Limits::send_buffer`] at first, and more as
/// its congestion window grows.
const SEND_BUFFER_MAX: usize = 64 << 20;

/// What client sockets have in common that share one: family (IPv6 or not), interface and isolation.
pub(crate) type Sharing = (bool, Option<u32>, u64);

/// What lies under the SCTP packets of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Below {
    /// UDP (RFC 6951).
    Udp,
    /// IP itself.
    Ip,
    /// DTLS over UDP (RFC 8261).
    Dtls,
}

impl Below {
    /// What lies under SCTP in a protocol stack; `None`: it is not SCTP.
    pub(crate) const fn of(stack: Stack) -> Option<Self> {
        match stack {
            Stack::Sctp => Some(Self::Udp),
            Stack::SctpIp => Some(Self::Ip),
            Stack::SctpDtls => Some(Self::Dtls),
            _ => None,
        }
    }

    /// The protocol stack that this makes.
    pub(crate) const fn stack(self) -> Stack {
        match self {
            Self::Udp => Stack::Sctp,
            Self::Ip => Stack::SctpIp,
            Self::Dtls => Stack::SctpDtls,
        }
    }

    /// Bytes between the headers of IP and SCTP.
    const fn overhead(self) -> u16 {
        match self {
            Self::Udp => 8,
            Self::Ip => 0,
            // Of either version: which it is turns out after the endpoint was made.
            Self::Dtls => crate::carrier::layer::OVERHEAD,
        }
    }
}

/// What differs between the endpoints of one socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Profile {
    /// The largest IP packet that the first link takes.
    mtu: u16,
    heartbeats: bool,
    /// How often at least, if the program has asked for them itself.
    keep_alive: Option<Duration>,
    scheduler: Scheduler,
}

/// How a packet came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Came {
    pub(crate) from: SocketAddr,
    /// Our address, if the socket says it.
    pub(crate) to: Option<IpAddr>,
    /// Whether the network has marked it (RFC 3168).
    pub(crate) marked: bool,
}

/// A socket that speaks SCTP.
#[derive(Debug)]
pub(crate) struct SctpSocket {
    pub(crate) sock: Sock,
    below: Below,
    /// Whose socket it is, if it is a packet layer's: see [`crate::carrier::layer`].
    layer: Option<Key>,
    v6: bool,
    /// By SCTP port, and by our address where it is for one alone.
    ends: BTreeMap<(u16, Option<IpAddr>), Key>,
    /// Answers for the ports that nobody has; made for the first packet to one.
    nobody: Option<Key>,
    /// The system is told not to cut packets.
    whole: bool,
    writable: bool,
    /// What the socket could not take; endpoints wait for it.
    blocked: Option<(Train, Option<IpAddr>, Vec<u8>)>,
    waiting: Vec<Key>,
    pub(crate) server: bool,
    options: SocketOptions,
}

impl SctpSocket {
    fn new(sock: Sock, below: Below, v6: bool, options: &SocketOptions, server: bool) -> Self {
        Self {
            sock,
            below,
            layer: None,
            v6,
            ends: BTreeMap::new(),
            nobody: None,
            whole: true,
            writable: true,
            blocked: None,
            waiting: Vec::new(),
            server,
            options: options.clone(),
        }
    }

    /// The endpoint at a port, and at an address of ours where the socket has all.
    fn end_at(&self, at: Option<IpAddr>, port: u16) -> Option<Key> {
        let special = at.and_then(|_| self.ends.get(&(port, at)));
        special.or_else(|| self.ends.get(&(port, None))).copied()
    }

    /// Bytes between the beginning of a packet and its SCTP header.
    fn overhead(&self) -> u16 {
        self.below.overhead() + if self.v6 { 40 } else { 20 }
    }
}

/// One SCTP port on a socket.
#[derive(Debug)]
pub(crate) struct SctpEnd {
    socket: Key,
    /// Our address, if it has one for itself on a socket that has all: what it sends comes from there.
    at: Option<IpAddr>,
    endpoint: Endpoint,
    associations: HashMap<AssociationId, Key, FixedState>,
    listener: Option<Key>,
    profile: Profile,
    dirty: bool,
    armed: Option<Instant>,
    /// Associations of which directions are to end.
    ending: VecDeque<Key>,
    /// Associations that had no room for a message, where some are more important than others.
    hungry: Vec<Key>,
}

impl SctpEnd {
    fn is_unused(&self) -> bool {
        self.listener.is_none() && self.associations.is_empty()
    }

    /// How many associations the endpoint has refused.
    pub(crate) fn refused(&self) -> u64 {
        self.endpoint.stats().refused
    }
}

/// An association: the transport of a group.
#[derive(Debug)]
pub(crate) struct Sctp {
    pub(crate) stack: Stack,
    /// The path of its packet layer, if it has one.
    pub(crate) dtls: Option<Key>,
    end: Key,
    id: AssociationId,
    /// We have opened it.
    pub(crate) client: bool,
    /// The peer's address and its SCTP port.
    pub(crate) remote: SocketAddr,
    /// The peer's address and its UDP port.
    route: SocketAddr,
    pub(crate) connected: bool,
    answered: bool,
    /// Streams are connections: the peer is of our kind.
    pub(crate) mux: bool,
    /// Why it is over, or that we have ended it. What had arrived can still be read.
    pub(crate) lost: Option<CloseReason>,
    /// The endpoint has said its last word about it.
    over: bool,
    pub(crate) attempt: Option<(Key, Option<CandidateId>)>,
    /// What the peer has ended while the race was being decided.
    before: Option<Box<Before>>,
    /// It was withdrawn from a race, and whether it would have been answered is reported.
    on_trial: bool,
    pub(crate) group: Option<Key>,
    /// By what names them among connections: the number of the stream, and which use of it above that.
    streams: BTreeMap<u32, Stream>,
    /// The streams that have their number now.
    numbers: BTreeMap<u16, u32>,
    uses: u16,
    /// Streams of the peer's that no connection was made for yet.
    unaccepted: VecDeque<u32>,
    /// Our directions that are to end as soon as everything on them is acknowledged.
    ending: VecDeque<u16>,
    /// It is in [`SctpEnd::ending`].
    listed: bool,
    /// The peer is asked to take note of such ends.
    resetting: bool,
    /// Messages that may be given up, until it is known what became of them.
    reports: BTreeMap<u64, (Key, MessageId)>,
    /// What connections have not taken of what was received, in bytes of memory.
    held: usize,
    /// What of it the endpoint has been told.
    told: usize,
    /// There was no room for the last message.
    blocked: bool,
    /// How many bytes one connection may hand over before it is another's turn.
    share: usize,
    /// Whose turn it is when there is room.
    turn: u32,
    /// The sum of [`Stream::reserved`], or more, where streams have ended.
    reserved: usize,
    /// Where the bytes are shared: how far the one was that has handed over last. Who comes late begins there.
    fed: u64,
    next_stream: u16,
    send_buffer: usize,
    pub(crate) request: Arc<Compiled>,
    remotes: Arc<[RemoteEndpoint]>,
    /// The first message was handed over with the handshake.
    early: bool,
    pub(crate) started: Instant,
}

/// Ends that came before anybody could be told of them. The data before them waits in the endpoint.
#[derive(Debug, Default)]
struct Before {
    streams: BTreeSet<u16>,
    shutdown: bool,
    /// The association has ended, after everything was acknowledged.
    closed: bool,
}

impl Sctp {
    /// How long after its start the peer had answered, at most; `None`: it has not.
    pub(crate) fn answered_after(&self, now: Instant) -> Option<Duration> {
        self.answered.then(|| now - self.started)
    }

    /// Whether nothing more can be sent or received.
    pub(crate) const fn is_over(&self) -> bool {
        self.over
    }

    /// Whether a connection uses it.
    pub(crate) fn is_used(&self) -> bool {
        self.streams.values().any(|s| s.conn.is_some())
    }
}

impl SctpCarrier {
    /// Notes that an endpoint has something to do.
    pub(crate) fn mark_dirty(&mut self, end: Key) {
        if let Some(e) = self.endpoints.get_mut(end)
            && !e.dirty
        {
            e.dirty = true;
            self.dirty.push(end);
        }
    }

    /// Notes that the endpoint of an association has something to do.
    pub(crate) fn mark_dirty_of(&mut self, key: Key) {
        if let Some(end) = self.associations.get(key).map(|a| a.end) {
            self.mark_dirty(end);
        }
    }

    /// `connTimeout` (RFC 9622 section 8.1.3), which is one for all connections of an association: for how long what was sent may
    /// wait to be acknowledged.
    pub(crate) fn set_user_timeout(&mut self, key: Key, limit: Option<Duration>) {
        let Some(a) = self.associations.get(key) else { return };
        if let Some(e) = self.endpoints.get_mut(a.end).filter(|_| !a.over) {
            e.endpoint.set_patience(a.id, limit);
        }
        self.mark_dirty_of(key);
    }

    /// Ends an association: in order, or at once with the code of its last connection. Returns why it is over for its
    /// connections from now on; `None`: it was over before.
    pub(super) fn close(&mut self, now: Instant, key: Key, abort: Option<u64>) -> Option<SessionOver> {
        // An orderly end may still be cut short.
        let ends = |a: &Sctp| match a.lost {
            None => true,
            Some(CloseReason::Shutdown) => abort.is_some() && !a.is_over(),
            Some(_) => false,
        };
        let a = self.associations.get_mut(key).filter(|a| ends(a))?;
        let e = self.endpoints.get_mut(a.end)?;
        let reason = match abort {
            Some(code) => {
                e.endpoint.abort(a.id, format!("aborted with code {code}").as_bytes());
                CloseReason::Aborted
            }
            None => {
                e.endpoint.shutdown(now, a.id);
                CloseReason::Shutdown
            }
        };
        a.lost = Some(reason.clone());
        self.mark_dirty_of(key);
        Some(SessionOver { session: SessionId::Sctp(key), error: ConnectionError::Sctp(reason) })
    }

    fn stats(&self, key: Key) -> Option<AssociationStats> {
        let a = self.associations.get(key)?;
        self.endpoints.get(a.end)?.endpoint.association_stats(a.id)
    }

    /// Smoothed round-trip time and congestion window.
    pub(crate) fn path_figures(&self, key: Key) -> Option<(Option<Duration>, u64)> {
        let a = self.associations.get(key)?;
        let path = self.endpoints.get(a.end)?.endpoint.paths(a.id).into_iter().next()?;
        Some((path.srtt, path.window))
    }

    /// A number that grows with what the peer has acknowledged.
    pub(crate) fn acknowledged(&self, key: Key) -> u64 {
        self.stats(key).map_or(0, |s| s.bytes_acknowledged)
    }

    /// Packets that have come from the peer.
    pub(super) fn packets_received(&self, key: Key) -> u64 {
        self.stats(key).map_or(0, |s| s.packets_received)
    }

    /// The peer's address of a connection's association; and ours, with the SCTP port.
    pub(crate) fn addresses<N: Net>(&self, net: &N, key: Key) -> Option<(SocketAddr, SocketAddr)> {
        let a = self.associations.get(key)?;
        let end = self.endpoints.get(a.end)?;
        let bound = net.local_addr(self.sockets.get(end.socket)?.sock).ok()?;
        Some((a.remote, SocketAddr::new(end.at.unwrap_or(bound.ip()), end.endpoint.port())))
    }

    /// Whether the peer has sent anything but the handshake.
    pub(crate) fn has_heard(&self, key: Key) -> bool {
        let of = |a: &Sctp| self.endpoints.get(a.end)?.endpoint.association_stats(a.id);
        self.associations.get(key).and_then(of).is_some_and(|s| s.bytes_received > 0)
    }

    /// Chunks with data that were sent, and how many of them were lost.
    pub(crate) fn sent_and_lost(&self, key: Key) -> (u64, u64) {
        let stats = self.stats(key).unwrap_or_default();
        (stats.chunks_sent + stats.retransmissions, stats.lost)
    }
}

impl<N: Net> Engine<N> {
    /// See [`SctpCarrier::mark_dirty`].
    pub(crate) fn mark_sctp(&mut self, end: Key) {
        self.carriers.sctp.mark_dirty(end);
    }

    fn mark_sctp_of(&mut self, key: Key) {
        self.carriers.sctp.mark_dirty_of(key);
    }

    /// Lets every endpoint that has something to do do it.
    pub(crate) fn drive_dirty_sctp(&mut self) {
        // Driving one may mark another; what is marked again by the budget waits for the next turn.
        for _ in 0..8 {
            if self.carriers.sctp.dirty.is_empty() {
                return;
            }
            let mut list = core::mem::take(&mut self.carriers.sctp.dirty);
            for key in list.drain(..) {
                if let Some(e) = self.carriers.sctp.endpoints.get_mut(key) {
                    e.dirty = false;
                }
                self.drive_sctp(key);
            }
            if self.carriers.sctp.dirty.is_empty() {
                self.carriers.sctp.dirty = list;
            }
        }
        self.cx.again |= !self.carriers.sctp.dirty.is_empty();
    }

    fn drive_sctp(&mut self, key: Key) {
        let mut looked = false;
        loop {
            // Events first: they may produce more to send, or end what would be sent.
            self.sctp_events(key);
            self.drain_carriers();
            if self.sctp_send(key) {
                self.mark_sctp(key);
                self.cx.again = true;
                break;
            }
            let Some(end) = self.carriers.sctp.endpoints.get_mut(key) else { return };
            // Once: what cannot be done now is tried when something has come, or a timer has.
            if !core::mem::replace(&mut looked, true) {
                for _ in 0..end.ending.len().min(ENDINGS) {
                    let Some(a) = self.carriers.sctp.endpoints.get_mut(key).and_then(|e| e.ending.pop_front()) else {
                        break;
                    };
                    if let Some(a) = self.carriers.sctp.associations.get_mut(a) {
                        a.listed = false;
                    }
                    self.sctp_end_streams(a);
                }
                self.sctp_feed_ranked(key);
            }
            let Some(end) = self.carriers.sctp.endpoints.get_mut(key) else { return };
            if end.endpoint.is_idle() {
                break;
            }
            let waits = self.carriers.sctp.sockets.get(end.socket).is_some_and(|s| !s.writable);
            if waits {
                break;
            }
        }
        let Some(end) = self.carriers.sctp.endpoints.get_mut(key) else { return };
        let soon = (end.ending.len() > ENDINGS).then(|| self.cx.now + ENDINGS_AGAIN);
        if let Some(at) = [end.endpoint.next_timeout(), soon].into_iter().flatten().min()
            && end.armed.is_none_or(|a| at < a)
        {
            end.armed = Some(at);
            self.cx.timers.push(at, Due::Sctp(key).into());
        }
    }

    pub(crate) fn sctp_timeout(&mut self, key: Key) {
        let now = self.cx.now;
        let Some(end) = self.carriers.sctp.endpoints.get_mut(key) else { return };
        end.armed = end.armed.filter(|at| *at > self.cx.now);
        end.endpoint.handle_timeout(now);
        self.mark_sctp(key);
    }

    /// Takes what an endpoint has to report.
    fn sctp_events(&mut self, end: Key) {
        while let Some((id, event)) = self.carriers.sctp.endpoints.get_mut(end).and_then(|e| e.endpoint.poll_event()) {
            let known = self.carriers.sctp.endpoints.get(end).and_then(|e| e.associations.get(&id).copied());
            match (known, event) {
                (Some(a), event) => self.sctp_event(a, event),
                (None, SctpEvent::Accepted) => self.sctp_accepted(end, id),
                (None, _) => {}
            }
        }
    }

    fn sctp_event(&mut self, key: Key, event: SctpEvent) {
        match event {
            SctpEvent::Reachable => self.sctp_reachable(key),
            SctpEvent::Connected => self.sctp_connected(key),
            SctpEvent::Readable => self.sctp_take(key),
            SctpEvent::Writable => self.sctp_writable(key),
            SctpEvent::Acknowledged { message } => self.sctp_reported(key, message.0, true),
            SctpEvent::Failed { message, .. } => self.sctp_reported(key, message.0, false),
            // Where streams are no connections, that one begins anew ends nothing: its numbers do (RFC 6525 section 5.2.2).
            SctpEvent::OutgoingReset { .. } | SctpEvent::IncomingReset { .. }
                if self.carriers.sctp.associations.get(key).is_none_or(|a| !a.mux) => {}
            SctpEvent::OutgoingReset { streams, .. } => {
                if let Some(a) = self.carriers.sctp.associations.get_mut(key) {
                    a.resetting = false;
                }
                // Refused or forgotten (the peer has begun anew): whoever is of our kind and does that harms only itself.
                for stream in streams {
                    self.sctp_ended(key, stream.0);
                }
            }
            SctpEvent::IncomingReset { streams } => {
                let streams = match (&streams[..], self.carriers.sctp.associations.get(key)) {
                    // All that there are.
                    ([], Some(a)) => a.numbers.keys().copied().collect::<Vec<_>>(),
                    (some, _) => some.iter().map(|s| s.0).collect(),
                };
                match self.sctp_racing(key) {
                    Some(before) => before.streams.extend(streams),
                    None => self.sctp_reset_came(key, streams.into_iter()),
                }
            }
            SctpEvent::PeerShutdown => match self.sctp_racing(key) {
                Some(before) => before.shutdown = true,
                None => self.sctp_shutdown_came(key),
            },
            SctpEvent::PartLost { stream, number } => self.sctp_part_lost(key, stream.0, number),
            SctpEvent::Restarted => self.sctp_restarted(key),
            SctpEvent::Closed(reason) => self.sctp_closed(key, reason),
            // An association has one path here, and its failure is the association's; but the peer's address can change (behind a NAT).
            SctpEvent::Path { route, state: PathState::Active, .. } => {
                if let Some(a) = self.carriers.sctp.associations.get_mut(key).filter(|a| a.dtls.is_none()) {
                    a.route = route.remote;
                    a.remote.set_ip(route.remote.ip());
                }
            }
            // Streams are not added, and an error that the peer reports without an end is for nobody.
            SctpEvent::Path { .. }
            | SctpEvent::PrimaryPath { .. }
            | SctpEvent::StreamsAdded { .. }
            | SctpEvent::PeerError { .. }
            | SctpEvent::Accepted => {}
            #[allow(unreachable_patterns, reason = "the enum may grow")]
            _ => {}
        }
        self.sctp_end_streams(key);
        self.tidy_sctp(key);
    }

    /// The association is over, in whatever way. What had arrived is read first.
    fn sctp_closed(&mut self, key: Key, reason: CloseReason) {
        // A peer that has said everything and ended in order while the race is being decided can still be read by the winner, as with
        // TCP: `sctp_begin` goes on from here.
        let racing = self.carriers.sctp.associations.get_mut(key).filter(|a| a.connected && a.attempt.is_some());
        if let Some(a) = racing.filter(|_| reason == CloseReason::Shutdown) {
            a.over = true;
            a.before.get_or_insert_default().closed = true;
            return;
        }
        self.sctp_take(key);
        self.sctp_lost(key, reason);
    }

    /// Nothing more comes of an association.
    fn sctp_lost(&mut self, key: Key, reason: CloseReason) {
        let Some(a) = self.carriers.sctp.associations.get_mut(key) else { return };
        a.over = true;
        let ours = a.lost.replace(reason.clone()).is_some();
        // What it had more than others is for others, also while the program keeps its connections.
        self.sctp_give_back(key);
        let Some(a) = self.carriers.sctp.associations.get_mut(key) else { return };
        if let Some((conn, _)) = a.attempt {
            let error = match reason {
                CloseReason::Unreachable => AttemptError::TimedOut,
                reason => AttemptError::Sctp(reason),
            };
            return self.carriers.sctp.events.push_back(CarrierEvent::Failed {
                attempt: conn,
                session: SessionId::Sctp(key),
                error,
            });
        }
        if a.on_trial && !a.answered && reason != CloseReason::Unreachable {
            return self.sctp_trial_passed(key);
        }
        let group = a.group;
        // Members that go take the association with them.
        let whose = self.group_of(SessionId::Sctp(key));
        let Some(a) = self.carriers.sctp.associations.get(key) else { return };
        let mut members: Vec<Key> = a.streams.values().filter_map(|s| s.conn).collect();
        for conn in self.pending_on(SessionId::Sctp(key)) {
            if let Some(g) = group.and_then(|g| self.groups.get_mut(g)) {
                g.pending.retain(|(c, _)| *c != conn);
            }
            members.push(conn);
        }
        for conn in members {
            self.sctp_member_lost(conn, &reason);
        }
        if !ours {
            self.no_more_streams(whose, ConnectionError::Sctp(reason));
        }
    }

    /// The association below a connection is over.
    fn sctp_member_lost(&mut self, conn: Key, reason: &CloseReason) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        let refused = c.refusal();
        // What a peer did not want it has not got, in whatever order the association ends.
        let orderly = *reason == CloseReason::Shutdown && refused.is_none();
        let error = refused.unwrap_or_else(|| ConnectionError::Sctp(reason.clone()));
        if c.is_greeting() {
            return self.greeting_failed(conn, &error);
        }
        // Neither side ends in order before the other has everything (RFC 9260 section 9.2).
        if orderly && c.tx.is_empty() {
            c.send = c.send.on_all_acked();
        }
        match c.state {
            ConnectionState::Establishing => {
                let error = EstablishmentError::new(Reason::EstablishmentFailed, error.to_string());
                self.fail(conn, error);
            }
            ConnectionState::Closing if orderly && c.tx.is_empty() => self.finish_close(conn),
            // What has arrived can still be read.
            ConnectionState::Established if orderly && c.tx.is_empty() => {
                self.end_message(conn);
                self.notify(conn, Event::Readable);
                self.notify(conn, Event::Closed);
                self.set_closed(conn);
            }
            ConnectionState::Established | ConnectionState::Closing => {
                self.notify(conn, Event::Readable);
                self.fail_connection(conn, error);
            }
            ConnectionState::Closed => {}
        }
    }

    /// The peer has begun anew, with an association of the same name (RFC 9260 section 5.2): to the connections it is lost, and
    /// to a listener it is new.
    fn sctp_restarted(&mut self, key: Key) {
        let Some(a) = self.carriers.sctp.associations.get(key) else { return };
        let (end, id) = (a.end, a.id);
        // What the endpoint holds under this name is the new one's from here on, data that came with the cookie included.
        if let Some(e) = self.carriers.sctp.endpoints.get_mut(end) {
            e.associations.remove(&id);
            e.endpoint.set_held(id, 0);
        }
        self.sctp_lost(key, CloseReason::PeerAborted { cause: None, reason: b"it has restarted".to_vec() });
        self.sctp_accepted(end, id);
    }

    /// Drops an association that is over and used by nobody.
    pub(crate) fn tidy_sctp(&mut self, key: Key) {
        let Some(a) = self.carriers.sctp.associations.get(key) else { return };
        if !a.over || a.attempt.is_some() || a.on_trial || a.is_used() {
            return;
        }
        let (end, id, group, session) = (a.end, a.id, a.group, a.dtls);
        self.sctp_give_back(key);
        self.carriers.sctp.associations.remove(key);
        if let Some(session) = session {
            self.sctp_leaves_session(session);
        }
        if let Some(e) = self.carriers.sctp.endpoints.get_mut(end)
            && e.associations.get(&id) == Some(&key)
        {
            e.associations.remove(&id);
            e.endpoint.release(id);
        }
        if let Some(g) = group {
            self.session_is_gone(g, SessionId::Sctp(key));
        }
        self.tidy_sctp_end(end);
    }

    /// Ends an association: in order, or at once with the code of its last connection.
    pub(crate) fn sctp_close(&mut self, key: Key, abort: Option<u64>) {
        if let Some(over) = self.carriers.sctp.close(self.cx.now, key, abort) {
            self.session_over(over);
        }
    }

    /// A member of the group for a stream that the peer has opened.
    fn sctp_conn(&mut self, key: Key, stream: u32) -> Option<Key> {
        let a = self.carriers.sctp.associations.get(key)?;
        let mut c = Conn::new(a.request.clone(), a.remotes.clone(), self.cx.now);
        c.stack = Some(a.stack);
        c.passive = true;
        c.flow = FlowId::Sctp { sctp: key, stream };
        let group = a.group;
        let conn = self.conns.insert(c);
        self.sctp_bind(key, stream, conn);
        if let Some(group) = group {
            self.join_group(group, conn);
        }
        Some(conn)
    }

    /// Refused by the system before anything was sent.
    fn sctp_cannot(kind: neater_base::net::ErrorKind) -> AttemptError {
        AttemptError::Net(NetError::new(kind))
    }
}
