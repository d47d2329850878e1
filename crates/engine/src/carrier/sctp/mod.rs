//! SCTP associations over UDP or straight over IP, and the connections that are their streams.
//!
//! *Responsible for* sockets and SCTP ports (`socket`), attempts and listeners (`open`), and what
//! connections do with streams (`stream`, `sending`, `receiving`), and packet layers below
//! (`secure`); the messages between two of our engines are in `wire`. *Not responsible for* the
//! protocol (`neater-sctp`), nor for connections, groups and listeners, of which it knows keys
//! only.
//!
//! *Invariants*: an [`Sctp`] is found from its [`SctpEndpoint`] as long as both exist, and is
//! dropped when its association is over and unused; what was received and not taken counts against
//! the window that the peer is given, so that it is bounded by the receive buffer; before a
//! connection has won its race, nothing that makes the peer keep state is sent for a withdrawn
//! attempt.

mod direction;
mod endpoints;
mod open;
mod paths;
mod receiving;
mod secure;
mod sending;
mod socket;
mod stream;
mod wire;

use crate::carrier::SessionId;
use crate::carrier::event::{CarrierEvent, Events};
use crate::carrier::ids::Due;
use crate::carrier::layer::Layers;
use crate::carrier::terms::SessionOver;
use crate::context::Context;
use crate::event::{AttemptError, ConnectionError};
use crate::request::Compiled;
use crate::{MessageId, RemoteEndpoint, Stack};
use core::time::Duration;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use neater_base::net::{ErrorKind, Net, NetError, Sock, SocketOptions};
use neater_base::{Instant, Key, Slab};
use neater_sctp::{
    AddressChange, AssociationId, AssociationStats, CloseReason, Endpoint, Event as SctpEvent, LayerId, Route,
    Scheduler, Train,
};
pub(crate) use open::RemoteTarget;
use sending::Turns;
pub(crate) use sending::Waiter;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use stream::{Stream, flow_lost};

/// Receive calls per socket and turn.
const RECV_BUDGET: usize = 16;
/// Trains per endpoint and turn.
const SEND_BUDGET: usize = 64;
/// Associations of an endpoint whose streams are looked at at a time, to find out whether they can
/// end; and when to look at the others, if nothing happens before.
const ENDINGS: usize = 64;
const ENDINGS_AGAIN: Duration = Duration::from_millis(5);
/// What an association may have queued and unacknowledged at most, in bytes:
/// [`crate::Limits::send_buffer`] at first, and more as its congestion windows grow.
const SEND_BUFFER_MAX: usize = 64 << 20;

/// What client sockets have in common that share one: family (IPv6 or not), interface and
/// isolation.
pub(crate) type Sharing = (bool, Option<u32>, u64);

/// What lies under the SCTP packets of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketLayer {
    /// UDP (RFC 6951).
    Udp,
    /// IP itself.
    Ip,
    /// DTLS over UDP (RFC 8261).
    Dtls,
}

impl PacketLayer {
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
    /// Whether associations may have several paths, and whether new data is spread over them.
    several: bool,
    /// Whether this side opens further ones.
    widens: bool,
    multipath: Option<neater_sctp::Multipath>,
}

/// A socket that speaks SCTP.
#[derive(Debug)]
pub(crate) struct SctpSocket {
    pub(crate) sock: Sock,
    below: PacketLayer,
    /// The layer whose socket it is, if one is below.
    layer: Option<Key>,
    v6: bool,
    /// By SCTP port, and by our address where it is for one alone.
    ends: BTreeMap<(u16, Option<IpAddr>), Key>,
    /// Answers for the ports without an endpoint; made for the first packet to one.
    unmatched: Option<Key>,
    /// The system must not fragment packets.
    whole: bool,
    writable: bool,
    /// What the socket could not take; endpoints wait for it.
    blocked: Option<(Train, Option<IpAddr>, Vec<u8>)>,
    waiting: Vec<Key>,
    pub(crate) server: bool,
    options: SocketOptions,
}

impl SctpSocket {
    fn new(sock: Sock, below: PacketLayer, v6: bool, options: &SocketOptions, server: bool) -> Self {
        Self {
            sock,
            below,
            layer: None,
            v6,
            ends: BTreeMap::new(),
            unmatched: None,
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

    /// Whether it is bound to no address.
    fn has_all(&self) -> bool {
        self.below == PacketLayer::Ip || self.options.local.is_none_or(|l| l.ip().is_unspecified())
    }

    /// Bytes between the beginning of a packet and its SCTP header.
    fn overhead(&self) -> u16 {
        self.below.overhead() + if self.v6 { 40 } else { 20 }
    }
}

/// One SCTP port on a socket.
#[derive(Debug)]
pub(crate) struct SctpEndpoint {
    socket: Key,
    /// Our address, if it has one for itself on a socket that has all: what it sends comes from
    /// there.
    at: Option<IpAddr>,
    /// The packet layers beside the first, which is the two above.
    ways: Vec<paths::Way>,
    /// Each address of ours is a way of its own, where the socket has all.
    spread: bool,
    /// Those of its listener on other sockets: an association here may have paths there.
    beside: Vec<Key>,
    endpoint: Endpoint,
    associations: HashMap<AssociationId, Key, FixedState>,
    /// The listener of what arrives, and what it asks for.
    listener: Option<(Key, Arc<Compiled>)>,
    profile: Profile,
    dirty: bool,
    armed: Option<Instant>,
    /// Associations of which directions are to end.
    ending: VecDeque<Key>,
    /// Associations that had no room for a message, where some are more important than others.
    hungry: Vec<Key>,
}

impl SctpEndpoint {
    fn is_unused(&self) -> bool {
        self.listener.is_none() && self.associations.is_empty()
    }

    /// How many associations the endpoint has refused.
    pub(crate) fn refused(&self) -> u64 {
        self.endpoint.stats().refused
    }
}

/// SCTP (RFC 9260) over UDP, IP or DTLS.
#[derive(Debug, Default)]
pub(crate) struct SctpCarrier {
    pub(crate) events: Events,
    pub(crate) associations: Slab<Sctp>,
    pub(crate) endpoints: Slab<SctpEndpoint>,
    pub(crate) sockets: Slab<SctpSocket>,
    /// Client-side sockets that new associations may share.
    pub(crate) client_sockets: Vec<(Sharing, Key)>,
    /// Endpoints that have something to do.
    pub(crate) dirty: Vec<Key>,
    /// Associations that may be over and unused.
    untidy: Vec<Key>,
    /// What is left to do to the layers below.
    ties: Vec<Tie>,
    /// Sockets that were not read empty within the budget.
    pub(crate) unread: Vec<Key>,
    /// How often windows were looked at when this carrier has last looked at its own: see
    /// [`crate::context::Windows::looks`].
    pub(crate) looked: u64,
}

/// An association: the transport of a group.
#[derive(Debug)]
pub(crate) struct Sctp {
    pub(crate) stack: Stack,
    /// The paths of the layer below it, by its own that they carry.
    paths: Vec<(Route, Key)>,
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
    /// We have ended it before its end, and its connections' group knows that.
    ended_here: bool,
    /// The endpoint has reported its end, and reports nothing more of it.
    over: bool,
    pub(crate) attempt: Option<Key>,
    /// What the peer has ended while the race was being decided.
    before: Option<Box<Before>>,
    /// It was withdrawn from a race, and whether it would have been answered is reported.
    pub(crate) on_trial: bool,
    pub(crate) group: Option<Key>,
    /// By what names them among connections: the number of the stream, and which use of it above
    /// that.
    streams: BTreeMap<u32, Stream>,
    /// The streams that have their number now.
    numbers: BTreeMap<u16, u32>,
    uses: u16,
    /// Streams of the peer's that no connection was made for yet.
    unaccepted: VecDeque<u32>,
    /// Our directions that are to end as soon as everything on them is acknowledged.
    ending: VecDeque<u16>,
    /// Streams that the peer wants no more of, as long as not everything on them is acknowledged;
    /// and when it is, in bytes acknowledged in all.
    stops: Vec<(u32, u64)>,
    /// It is in [`SctpEndpoint::ending`].
    listed: bool,
    /// The peer is asked to take note of such ends.
    resetting: bool,
    /// Interfaces that the program has removed from it.
    left: Vec<u32>,
    /// What the peer was asked to use its paths for.
    asked: neater_property::MultipathPolicy,
    /// Messages that may be given up, until it is known what became of them.
    reports: BTreeMap<u64, (Key, MessageId)>,
    /// What connections have not taken of what was received, in bytes of memory.
    held: usize,
    /// The part of it that the endpoint was notified of.
    told: usize,
    /// There was no room for the last message.
    blocked: bool,
    /// How many bytes one connection may hand over before it is another's turn.
    share: usize,
    /// The stream whose turn it is when there is room.
    turn: u32,
    /// Turns that are being taken.
    turns: Option<Box<Turns>>,
    /// The sum of [`Stream::reserved`], or more, where streams have ended.
    reserved: usize,
    /// Where the bytes are shared: how far the one was that has handed over last. A connection that
    /// comes late begins there.
    fed: u64,
    next_stream: u16,
    send_buffer: usize,
    pub(crate) request: Arc<Compiled>,
    remotes: Arc<[RemoteEndpoint]>,
    /// The first message was handed over with the handshake.
    early: bool,
    pub(crate) started: Instant,
}

/// Ends that came before there was a connection to report them to. The data before them waits in
/// the endpoint.
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

    /// The path of the layer below that it was opened on, or one that has outlived it.
    pub(crate) fn session(&self) -> Option<Key> {
        self.paths.first().map(|(_, path)| *path)
    }

    /// Whether a connection uses it.
    pub(crate) fn is_used(&self) -> bool {
        self.streams.values().any(|s| s.user.conn().is_some())
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

    /// Ends an association: in order, or at once with the code of its last connection. Returns why
    /// it is over for its connections from now on; `None`: it was over before.
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
        let layer = end.endpoint.peer(a.id).map_or(LayerId(0), |(route, _)| route.layer);
        let (socket, at) = end.way(layer);
        let bound = net.local_addr(self.sockets.get(socket)?.sock).ok()?;
        Some((a.remote, SocketAddr::new(at.unwrap_or(bound.ip()), end.endpoint.port())))
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

/// What an association does to the layer below it: see [`SctpCarrier::tie`].
#[derive(Debug)]
pub(crate) enum Tie {
    /// This association uses the paths that lead to its peer.
    Join(Key),
    /// It may use those of further networks, too.
    Widen(Key),
    /// A way that the program wants is opened.
    Open(Key, endpoints::Opened),
    /// An association has left this path.
    Leave(Key),
    /// This layer is not needed any more.
    Close(Key),
}

/// How far the flush of one endpoint is.
#[derive(Debug, Default)]
pub(crate) struct Flushing {
    /// What cannot be done now was tried.
    looked: bool,
}

impl SctpCarrier {
    /// Whether there is something to report, or to do to the layers below.
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty() || !self.ties.is_empty()
    }

    /// What an endpoint has to do is being done.
    pub(crate) fn unmark(&mut self, end: Key) {
        if let Some(e) = self.endpoints.get_mut(end) {
            e.dirty = false;
        }
    }

    /// Takes the next of what an endpoint has to report: later ones may be about what the engine
    /// does in answer to this one. False: there is no more.
    pub(crate) fn collect<N: Net>(&mut self, cx: &mut Context<N>, end: Key) -> bool {
        let Some(e) = self.endpoints.get_mut(end) else { return false };
        let Some((id, event)) = e.endpoint.poll_event() else { return false };
        match (e.associations.get(&id).copied(), event) {
            (Some(a), event) => self.on_event(cx, a, event),
            (None, SctpEvent::Accepted) => self.accepted(cx, end, id),
            (None, _) => {}
        }
        true
    }

    /// Sends what an endpoint has to send, within a budget. False: there is nothing more to do now.
    pub(crate) fn transmit<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        layers: &mut Layers<'_>,
        end: Key,
        flushing: &mut Flushing,
    ) -> bool {
        if self.send_trains(cx, layers, end) {
            self.mark_dirty(end);
            cx.again = true;
            return false;
        }
        // Once: what cannot be done now is tried when something has come, or a timer has.
        if !core::mem::replace(&mut flushing.looked, true) {
            self.end_directions(end);
            self.feed_ranked(cx, end);
            return true;
        }
        let Some(e) = self.endpoints.get(end) else { return false };
        !e.endpoint.is_idle() && e.sockets().all(|k| self.sockets.get(k).is_none_or(|s| s.writable))
    }

    fn end_directions(&mut self, end: Key) {
        let count = self.endpoints.get(end).map_or(0, |e| e.ending.len().min(ENDINGS));
        for _ in 0..count {
            let Some(key) = self.endpoints.get_mut(end).and_then(|e| e.ending.pop_front()) else { return };
            if let Some(a) = self.associations.get_mut(key) {
                a.listed = false;
            }
            self.end_streams(key);
        }
    }

    /// An endpoint has sent what it may: sets its deadline.
    pub(crate) fn rest<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(end) = self.endpoints.get_mut(key) else { return };
        let soon = (end.ending.len() > ENDINGS).then(|| cx.now + ENDINGS_AGAIN);
        if let Some(at) = [end.endpoint.next_timeout(), soon].into_iter().flatten().min()
            && end.armed.is_none_or(|a| at < a)
        {
            end.armed = Some(at);
            cx.timers.push(at, Due::Sctp(key).into());
        }
    }

    /// A deadline of an endpoint has passed.
    pub(crate) fn on_timeout<N: Net>(&mut self, cx: &Context<N>, key: Key) {
        let Some(end) = self.endpoints.get_mut(key) else { return };
        end.armed = end.armed.filter(|at| *at > cx.now);
        end.endpoint.handle_timeout(cx.now);
        self.mark_dirty(key);
    }

    fn on_event<N: Net>(&mut self, cx: &mut Context<N>, key: Key, event: SctpEvent) {
        match event {
            SctpEvent::Reachable => self.reachable(cx, key),
            SctpEvent::Connected => self.connected(key),
            SctpEvent::Readable => self.take_arrived(&cx.limits, key),
            SctpEvent::Writable => self.writable(cx, key),
            SctpEvent::Acknowledged { message } => self.reported(key, message.0, true),
            SctpEvent::Failed { message, .. } => self.reported(key, message.0, false),
            // Where streams are no connections, that one begins again ends nothing: its numbers do
            // (RFC 6525 section 5.2.2).
            SctpEvent::OutgoingReset { .. } | SctpEvent::IncomingReset { .. }
                if self.associations.get(key).is_none_or(|a| !a.mux) => {}
            SctpEvent::OutgoingReset { streams, .. } => {
                if let Some(a) = self.associations.get_mut(key) {
                    a.resetting = false;
                }
                // Refused or forgotten (the peer has restarted): a peer that is of our kind and
                // does that harms only itself.
                for stream in streams {
                    self.ended(key, stream.0);
                }
            }
            SctpEvent::IncomingReset { streams, .. } => {
                let streams = match (&streams[..], self.associations.get(key)) {
                    // All that there are.
                    ([], Some(a)) => a.numbers.keys().copied().collect::<Vec<_>>(),
                    (some, _) => some.iter().map(|s| s.0).collect(),
                };
                match self.racing(key) {
                    Some(before) => before.streams.extend(streams),
                    None => self.reset_received(&cx.limits, key, streams.into_iter()),
                }
            }
            SctpEvent::PeerShutdown => match self.racing(key) {
                Some(before) => before.shutdown = true,
                None => self.shutdown_received(&cx.limits, key),
            },
            SctpEvent::PartLost { stream, number } => self.part_lost(&cx.limits, key, stream.0, number),
            SctpEvent::Restarted => self.restarted(cx, key),
            SctpEvent::Closed(reason) => self.closed(cx, key, reason),
            // The failure of an only path is the association's; but the peer's address can change
            // (behind a NAT).
            SctpEvent::Path { .. } | SctpEvent::PrimaryPath { .. } => {
                self.follow(key);
                self.report_paths(key);
                if self.associations.get(key).is_some_and(|a| a.stack == Stack::SctpDtls) {
                    self.ties.push(Tie::Join(key));
                }
            }
            SctpEvent::AddressChanged { change: AddressChange::Add(layer), done: false } => {
                self.not_widened(key, layer)
            }
            // Streams are not added, and an error that the peer reports without an end concerns
            // nothing here.
            SctpEvent::StreamsAdded { .. } | SctpEvent::PeerError { .. } | SctpEvent::Accepted => {}
            #[allow(unreachable_patterns, reason = "the enum may grow")]
            _ => {}
        }
        self.end_streams(key);
        if self.associations.get(key).is_some_and(|a| a.over) {
            self.tidy_later(key);
        }
    }

    /// The association is over, in whatever way. What had arrived is read first.
    fn closed<N: Net>(&mut self, cx: &mut Context<N>, key: Key, reason: CloseReason) {
        // A peer that has sent everything and ended in order while the race is being decided can
        // still be read by the winner, as with TCP: `begin` goes on from here.
        let racing = self.associations.get_mut(key).filter(|a| a.connected && a.attempt.is_some());
        if let Some(a) = racing.filter(|_| reason == CloseReason::Shutdown) {
            a.over = true;
            a.before.get_or_insert_default().closed = true;
            return;
        }
        self.take_arrived(&cx.limits, key);
        self.lose(cx, key, reason);
    }

    /// Nothing more comes of an association.
    fn lose<N: Net>(&mut self, cx: &mut Context<N>, key: Key, reason: CloseReason) {
        let Some(a) = self.associations.get_mut(key) else { return };
        a.over = true;
        a.ended_here = a.lost.replace(reason.clone()).is_some();
        // What it had more than others is for others, also while applications keep its connections.
        self.give_back(cx, key);
        let Some(a) = self.associations.get_mut(key) else { return };
        if let Some(attempt) = a.attempt {
            let error = match reason {
                CloseReason::Unreachable => AttemptError::TimedOut,
                reason => AttemptError::Sctp(reason),
            };
            return self.events.push_back(CarrierEvent::Failed { attempt, session: SessionId::Sctp(key), error });
        }
        if a.on_trial && !a.answered && reason != CloseReason::Unreachable {
            return self.answered_late(cx, key);
        }
        for conn in a.streams.values().filter_map(|s| s.user.conn()) {
            self.events.push_back(CarrierEvent::FlowLost { conn, lost: flow_lost(reason.clone()) });
        }
        self.report_lost(key);
    }

    /// Reports to the group of an association that this is over.
    fn report_lost(&mut self, key: Key) {
        let Some(a) = self.associations.get(key) else { return };
        if let (Some(group), Some(reason)) = (a.group, a.lost.clone()) {
            let (session, lost) = (SessionId::Sctp(key), flow_lost(reason));
            self.events.push_back(CarrierEvent::SessionLost { session, group, lost, known: a.ended_here });
        }
    }

    /// The peer has restarted, with an association of the same name (RFC 9260 section 5.2): to the
    /// connections it is lost, and to a listener it is new.
    fn restarted<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(a) = self.associations.get(key) else { return };
        let (end, id) = (a.end, a.id);
        // What the endpoint holds under this name is the new one's from here on, data that came
        // with the cookie included.
        if let Some(e) = self.endpoints.get_mut(end) {
            e.associations.remove(&id);
            e.endpoint.set_held(id, 0);
        }
        self.lose(cx, key, CloseReason::PeerAborted { cause: None, reason: b"it has restarted".to_vec() });
        self.accepted(cx, end, id);
    }

    /// Drops an association when what was reported of it is handled, if it is over and unused then.
    pub(super) fn tidy_later(&mut self, key: Key) {
        let Some(end) = self.associations.get(key).map(|a| a.end) else { return };
        self.untidy.push(key);
        if self.endpoints.contains(end) {
            self.mark_dirty(end);
        } else {
            // It was closed before the connections of an association that the peer has replaced:
            // the next flush tidies all.
            self.dirty.push(end);
        }
    }

    /// Drops the associations that are over and unused. Every event that names one was handled.
    pub(crate) fn tidy_all<N: Net>(&mut self, cx: &mut Context<N>) {
        for key in core::mem::take(&mut self.untidy) {
            self.tidy(cx, key);
        }
    }

    /// Drops an association that is over and unused.
    fn tidy<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(a) = self.associations.get(key) else { return };
        if !a.over || a.attempt.is_some() || a.on_trial || a.is_used() {
            return;
        }
        let (end, id, group) = (a.end, a.id, a.group);
        self.give_back(cx, key);
        let paths = self.associations.remove(key).map(|a| a.paths).unwrap_or_default();
        self.ties.extend(paths.into_iter().map(|(_, path)| Tie::Leave(path)));
        if let Some(e) = self.endpoints.get_mut(end)
            && e.associations.get(&id) == Some(&key)
        {
            e.associations.remove(&id);
            e.endpoint.release(id);
        }
        self.events.push_back(CarrierEvent::SessionGone { session: SessionId::Sctp(key), group });
        self.tidy_endpoint(cx, end);
    }

    /// `connTimeout` (RFC 9622 section 8.1.3), which is one for all connections of an association:
    /// for how long what was sent may wait to be acknowledged.
    pub(crate) fn set_user_timeout(&mut self, key: Key, limit: Option<Duration>) {
        let Some(a) = self.associations.get(key) else { return };
        if let Some(e) = self.endpoints.get_mut(a.end).filter(|_| !a.over) {
            e.endpoint.set_patience(a.id, limit);
        }
        self.mark_dirty_of(key);
    }

    /// Refused by the system before anything was sent.
    fn cannot(kind: ErrorKind) -> AttemptError {
        AttemptError::Net(NetError::new(kind))
    }
}
