//! The association: sender, receiver, paths, and the states of RFC 9260 section 4.
//!
//! *Responsible for* all that lies between a matched packet and the application. *Not responsible
//! for* matching packets to associations, or for checking cookies: see [`crate::Endpoint`].
//!
//! *Invariants*: in [`State::Closed`] nothing is sent, no timer runs and no message waits to be
//! sent; sent data and paths agree on what is in flight.

mod addresses;
mod auth;
mod bulk;
mod commands;
mod concurrent;
mod copies;
mod data;
mod handshake;
mod heartbeats;
mod input;
mod losses;
mod mtu;
mod output;
mod partial;
mod reconfig;
mod sacks;
mod shutdown;
mod timers;

pub(crate) use addresses::Wish;
pub(crate) use bulk::{Bulk, Like};
pub(crate) use handshake::{Fresh, Resolution};
pub(crate) use input::REFLECTED;
pub(crate) use output::Packed;

use crate::config::{AssociationConfig, Extensions, Layer};
use crate::event::{CloseReason, Event};
use crate::handshake::{Cookie, Offer};
use crate::ids::{MessageId, PathId, Route};
use crate::path::{Count, Path, PathState, Several};
use crate::receive::{Numbering, Receiver};
use crate::recovery::{Fate, Outstanding};
use crate::send::Queues;
use crate::serial::first;
use crate::stats::{AssociationStats, PathStats};
use core::time::Duration;
use neater_base::Instant;
use neater_sctp_wire::{StreamId, Tag, Tsn};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// How many round trips of a path, at most, others are waited for: so far one path may be slower.
const MOST_TURNS: f64 = 16.0;

/// The states of RFC 9260 section 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// An INIT chunk is under way.
    CookieWait,
    /// A COOKIE ECHO chunk with this cookie is under way.
    CookieEchoed(Vec<u8>),
    Established,
    /// The application wants to end; data is under way.
    ShutdownPending,
    /// A SHUTDOWN chunk is under way.
    ShutdownSent,
    /// The peer wants to end; our data is under way.
    ShutdownReceived,
    /// A SHUTDOWN ACK chunk is under way.
    ShutdownAckSent,
    /// It is over.
    Closed,
}

/// Control chunks that wait to be sent, if no other part keeps them.
#[derive(Debug, Default)]
struct Outbox {
    /// INIT, or COOKIE ECHO, or SHUTDOWN, or SHUTDOWN ACK, by the state.
    state: bool,
    /// COOKIE ACK, and where it goes.
    cookie_ack: Option<Route>,
    /// HEARTBEAT ACK: where it goes and what is in it.
    heartbeat_acks: VecDeque<(Route, Vec<u8>)>,
    /// Error causes, ready to be put into an ERROR chunk.
    errors: VecDeque<Vec<u8>>,
    /// ECNE: the lowest marked TSN.
    ecne: Option<Tsn>,
    /// CWR.
    cwr: Option<Tsn>,
    /// FORWARD TSN or I-FORWARD-TSN.
    forward: bool,
    /// The last FORWARD TSN sent and not acknowledged.
    forwarded: Option<partial::Forwarded>,
}

/// The timers that are the association's and not a path's (RFC 9260 section 6.3, 9.2, 6.1).
#[derive(Debug, Default)]
struct Deadlines {
    /// T1-init and T1-cookie.
    t1: Option<Instant>,
    /// T2-shutdown.
    t2: Option<Instant>,
    /// T5-shutdown-guard.
    guard: Option<Instant>,
    /// The next probe of a closed window.
    window_probe: Option<Instant>,
    /// Of the outstanding RE-CONFIG request (RFC 6525).
    reconfig: Option<Instant>,
    /// Of the outstanding ASCONF chunk (T-4, RFC 5061).
    asconf: Option<Instant>,
}

/// A source outside all paths that sent our verification tag.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    route: Route,
    nonce: u64,
    sent_at: Instant,
    /// The heartbeat to it was sent.
    sent: bool,
}

/// An association.
#[derive(Debug)]
pub(crate) struct Association {
    config: Arc<AssociationConfig>,
    port: u16,
    peer_port: u16,
    state: State,
    /// The tag of packets to us, and our first TSN.
    tag: Tag,
    initial: Tsn,
    /// The tag of packets to the peer; zero until it is known.
    peer_tag: Tag,
    /// Tie-Tags: stand for both tags in our cookies (section 5.2.2).
    ties: (u32, u32),
    /// Local addresses to announce, and whether every layer authenticates.
    offer_addresses: Box<[std::net::IpAddr]>,
    authenticated: bool,
    /// Each layer's largest packet, in bytes.
    rooms: Arc<[u16]>,
    agreed: Extensions,
    peer_adaptation: Option<u32>,
    /// Our RANDOM parameter (RFC 4895), the configured keys, and what is derived when AUTH is
    /// agreed.
    random: [u8; crate::handshake::RANDOM_LEN],
    keys: auth::Keys,
    auth: Option<Box<auth::Authenticator>>,
    rx: Receiver,
    queues: Queues,
    out: Outstanding,
    /// `a_rwnd` of the peer's last SACK chunk.
    peer_window: u32,
    paths: Vec<Path>,
    /// Addresses that the peer has listed and that have no path: another family, not to be probed,
    /// or too many.
    elsewhere: Box<[std::net::IpAddr]>,
    /// The index of the path that data takes; `preferred`: that of the primary path.
    current: usize,
    preferred: usize,
    /// The path that data last arrived on.
    last_from: usize,
    /// Shutdown follows as soon as the handshake is done.
    ending: bool,
    /// The peer has called a cookie stale before.
    stale_before: bool,
    candidate: Option<Candidate>,
    /// How data is spread, where there are several paths.
    multipath: Option<crate::Multipath>,
    /// The state of sending on several paths.
    concurrent: Option<Box<concurrent::Concurrent>>,
    outbox: Outbox,
    timers: Deadlines,
    /// Transmissions of the state's chunk (INIT, COOKIE ECHO, SHUTDOWN, SHUTDOWN ACK) that were not
    /// answered.
    tries: u32,
    /// Transmissions in a row that were not answered: the counter of section 8.1.
    errors: u32,
    /// How long data may stay outstanding with nothing acknowledged, and since when it has.
    patience: Option<Duration>,
    unanswered: Instant,
    /// How long the peer may be silent once the association is up, and when its last packet came.
    silence: Option<Duration>,
    heard: Instant,
    /// Messages with a deadline, until cumulatively acknowledged: by deadline and stream, with
    /// their first TSN.
    expiries: BTreeMap<(Instant, u16, MessageId), Option<u64>>,
    reconfig: reconfig::Reconfig,
    addresses: addresses::Addresses,
    messages: u64,
    /// How many bytes may wait to be sent or acknowledged.
    send_buffer: usize,
    /// The peer has restarted, and the application has not been notified yet.
    restarted: bool,
    /// Notified: the send buffer is full; there are messages to read.
    blocked: bool,
    readable_told: bool,
    /// The peer has acknowledged, and reported its window, since data was sent last.
    window_answered: bool,
    /// Since when no path answers, or the far future.
    silent_since: Instant,
    /// No path answers, and all are probed.
    probing: bool,
    /// All paths were probed, on a hint.
    probed: bool,
    /// How many bytes may go to addresses that the peer has named and that have not answered: see
    /// [`heartbeats::credit`].
    credit: u32,
    /// ECN: the window was reduced for TSNs below this.
    reduced_to: u64,
    /// Probes of the closed window so far.
    probes: u32,
    /// A buffer for TSNs that is used again, empty between calls.
    late: Vec<u64>,
    events: VecDeque<Event>,
    /// The last packet of an association that is over, and where it goes.
    farewell: Option<Box<(Route, Vec<u8>)>>,
    /// The set of routes has changed.
    pub(crate) routes_changed: bool,
    stats: AssociationStats,
}

/// The parameters of a new association.
#[derive(Clone, Debug)]
pub(crate) struct Setup<'a> {
    pub(crate) config: Arc<AssociationConfig>,
    pub(crate) layers: &'a [Layer],
    pub(crate) addresses: Vec<std::net::IpAddr>,
    pub(crate) port: u16,
    pub(crate) peer_port: u16,
    pub(crate) tag: Tag,
    pub(crate) initial: Tsn,
    pub(crate) ties: (u32, u32),
    pub(crate) random: [u8; crate::handshake::RANDOM_LEN],
}

impl Association {
    fn new(setup: Setup<'_>, routes: &[(Route, PathState)], state: State) -> Self {
        let Setup { config, layers, addresses, port, peer_port, tag, initial, ties, random } = setup;
        let rooms = layers.iter().map(Layer::room).collect();
        let rx = Receiver::new(first(0), Numbering::Ssn, config.inbound_streams, (0, 0));
        let mut association = Self {
            port,
            peer_port,
            state,
            tag,
            initial,
            peer_tag: Tag::ZERO,
            ties,
            offer_addresses: addresses.into(),
            rooms,
            authenticated: routes.iter().all(|(r, _)| layers[usize::from(r.layer.0)].authenticates),
            agreed: Extensions::NONE,
            peer_adaptation: None,
            random,
            keys: auth::Keys::new(&config.authentication),
            auth: None,
            rx,
            queues: Queues::new(config.scheduler, false, config.outbound_streams),
            out: Outstanding::new(first(initial.0)),
            peer_window: 0,
            elsewhere: Box::default(),
            paths: Vec::with_capacity(1),
            current: 0,
            preferred: 0,
            last_from: 0,
            ending: false,
            stale_before: false,
            candidate: None,
            multipath: config.multipath,
            concurrent: None,
            outbox: Outbox::default(),
            timers: Deadlines::default(),
            tries: 0,
            errors: 0,
            patience: None,
            unanswered: Instant::ZERO,
            silence: None,
            heard: Instant::ZERO,
            expiries: BTreeMap::new(),
            reconfig: reconfig::Reconfig::default(),
            addresses: addresses::Addresses::default(),
            messages: 0,
            send_buffer: config.send_buffer,
            restarted: false,
            blocked: false,
            readable_told: false,
            window_answered: false,
            silent_since: Instant::FAR_FUTURE,
            probing: false,
            probed: false,
            credit: 0,
            reduced_to: 0,
            probes: 0,
            late: Vec::new(),
            events: VecDeque::new(),
            farewell: None,
            routes_changed: true,
            stats: AssociationStats::default(),
            config,
        };
        for (route, state) in routes {
            association.add_path(*route, layers[usize::from(route.layer.0)].room(), *state);
        }
        association
    }

    /// Opens an association: INIT goes out.
    pub(crate) fn connect(now: Instant, setup: Setup<'_>, routes: &[Route]) -> Self {
        let routes: Vec<_> = routes.iter().map(|r| (*r, PathState::Active)).collect();
        let mut association = Self::new(setup, &routes, State::CookieWait);
        association.outbox.state = true;
        // The INIT counts as use of the paths.
        association.paths.iter_mut().for_each(|p| p.heartbeat.active(now));
        association
    }

    /// The association that a cookie describes; `from` is where it came from.
    pub(crate) fn accept(now: Instant, setup: Setup<'_>, cookie: &Cookie, from: Route) -> Self {
        let room = setup.layers[usize::from(cookie.route.layer.0)].room();
        let mut association = Self::new(setup, &[(cookie.route, PathState::Active)], State::Established);
        association.agree(&cookie.peer, room, cookie.route);
        association.acknowledge_cookie(from);
        // The cookie took a round trip. Above the initial RTO, it was most likely resent.
        let took = now - cookie.created;
        if took < association.config.rto.initial {
            association.paths[0].rtt.sample(took);
        }
        association.events.push_back(Event::Accepted);
        association.start_heartbeats(now);
        association
    }

    /// Adds a path unless there are too many or it is known; returns its index.
    fn add_path(&mut self, route: Route, room: u16, state: PathState) -> Option<usize> {
        if let Some(known) = self.path_of(route) {
            return Some(known);
        }
        if self.live_paths().count() >= self.config.max_paths {
            return None;
        }
        self.routes_changed = true;
        // A removed path's index is used again: ids have 8 bits.
        let free = self.paths.iter().position(|p| p.state == PathState::Removed);
        let index = free.unwrap_or(self.paths.len());
        let path = Path::new(PathId(index as u8), route, room, state, &self.config);
        match free {
            Some(free) => self.paths[free] = path,
            None => self.paths.push(path),
        }
        if self.paths.len() > 1 {
            let first = self.count();
            for (index, path) in self.paths.iter_mut().enumerate() {
                let count = if index == 0 { first } else { Count::default() };
                path.several.get_or_insert_with(|| Box::new(Several { count, ..Several::default() }));
            }
        }
        Some(index)
    }

    fn path_of(&self, route: Route) -> Option<usize> {
        self.paths.iter().position(|p| p.route == route && p.state != PathState::Removed)
    }

    /// All paths but those that were removed.
    fn live_paths(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().filter(|p| p.state != PathState::Removed)
    }

    /// What we offer in INIT and INIT ACK chunks.
    pub(crate) fn offer(&self) -> Offer {
        Offer {
            addresses: self.offer_addresses.to_vec(),
            ..Offer::ours(self.tag, self.initial, &self.config, self.authenticated)
        }
        .with_random(&self.random, &self.config)
    }

    /// Takes over what the peer offers, and everything that follows from it.
    fn agree(&mut self, peer: &Offer, room: u16, from: Route) {
        let ours = self.offer();
        self.peer_tag = peer.tag;
        self.agreed = ours.agreed(peer);
        self.agree_on_keys(&ours.auth, &peer.auth);
        self.peer_adaptation = peer.adaptation;
        self.peer_window = peer.window;
        let numbering = if self.agreed.interleaving { Numbering::Mid } else { Numbering::Ssn };
        self.queues.agree(self.agreed.interleaving, ours.outbound_with(peer));
        let buffer = (self.config.first_receive_buffer, self.config.receive_buffer);
        self.rx = Receiver::new(first(peer.initial.0), numbering, ours.inbound_with(peer), buffer);
        // Linux (6.1) sends I-FORWARD-TSN without listing it: accepted, but not sent to such a
        // peer.
        if ours.extensions.and(peer.extensions).partial_reliability {
            self.rx.allow_giving_up();
        }
        self.reconfig = reconfig::Reconfig::new(self.initial, peer.initial);
        self.addresses = if self.agreed.dynamic_addresses {
            addresses::Addresses::new(self.initial, peer.initial, peer.primary)
        } else {
            addresses::Addresses::default()
        };
        // Which layer reaches an address is not known: as many addresses as layers are paired in
        // order.
        let paired = self.config.pair_addresses && peer.addresses.len() == self.rooms.len();
        for (i, address) in peer.addresses.iter().enumerate() {
            if address.is_ipv4() == from.remote.is_ipv4() && may_be_peers(*address, from.remote.ip()) {
                let remote = std::net::SocketAddr::new(*address, from.remote.port());
                let layer = if paired { crate::LayerId(i as u16) } else { from.layer };
                let room = if paired { self.rooms[i] } else { room };
                self.add_path(Route { layer, remote }, room, PathState::Unconfirmed);
            }
        }
        let unused = peer.addresses.iter().filter(|a| !self.routes().any(|r| r.remote.ip() == **a));
        self.elsewhere = unused.copied().collect();
    }

    /// Whether the peer has announced this address, or sends from it.
    pub(crate) fn is_peers(&self, address: std::net::IpAddr) -> bool {
        self.elsewhere.contains(&address) || self.routes().any(|r| r.remote.ip() == address)
    }

    pub(crate) const fn tag(&self) -> Tag {
        self.tag
    }

    /// When the peer has spoken last.
    pub(crate) const fn heard(&self) -> Instant {
        self.heard
    }

    pub(crate) const fn peer_tag(&self) -> Tag {
        self.peer_tag
    }

    pub(crate) const fn peer_port(&self) -> u16 {
        self.peer_port
    }

    pub(crate) const fn ties(&self) -> (u32, u32) {
        self.ties
    }

    pub(crate) const fn state(&self) -> &State {
        &self.state
    }

    pub(crate) const fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// The routes of all paths.
    pub(crate) fn routes(&self) -> impl Iterator<Item = Route> {
        self.live_paths().map(|p| p.route)
    }

    /// Whether an address is unconfirmed while the peer has a confirmed one.
    pub(crate) fn is_doubtful(&self, remote: std::net::SocketAddr) -> bool {
        let confirmed = |here: bool| {
            let of = |p: &&Path| (p.route.remote == remote) == here && p.state != PathState::Unconfirmed;
            self.live_paths().any(|p| of(&p))
        };
        !confirmed(true) && confirmed(false)
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        if event == Some(Event::Restarted) {
            self.restarted = self.events.contains(&Event::Restarted);
        }
        event
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Whether its routes have changed, or it is over.
    pub(crate) const fn wants_care(&self) -> bool {
        self.routes_changed || self.is_closed()
    }

    /// The last packet, once the association is over.
    pub(crate) fn take_farewell(&mut self) -> Option<(Route, Vec<u8>)> {
        self.farewell.take().map(|f| *f)
    }

    pub(crate) const fn initial(&self) -> Tsn {
        self.initial
    }

    /// Whether the handshake that we began is under way.
    pub(crate) const fn is_opening(&self) -> bool {
        matches!(self.state, State::CookieWait | State::CookieEchoed(_))
    }

    /// The current state's chunk is sent again.
    pub(crate) fn resend_state(&mut self) {
        self.outbox.state = true;
        self.timers.t2 = None;
    }

    /// The number of streams, outbound and inbound.
    pub(crate) fn streams(&self) -> (u16, u16) {
        (self.queues.count(), self.rx.streams())
    }

    pub(crate) const fn agreed(&self) -> (Extensions, Option<u32>) {
        (self.agreed, self.peer_adaptation)
    }

    pub(crate) fn stats(&self) -> AssociationStats {
        AssociationStats { retransmission_queue: self.out.payload() as u64, ..self.stats }
    }

    /// The route of data, or of the chosen path if several carry it.
    pub(crate) fn current_route(&self) -> Route {
        self.paths[self.current].route
    }

    /// The counters, as those of a single path.
    const fn count(&self) -> Count {
        Count {
            sent: self.stats.chunks_sent + self.stats.retransmissions,
            again: self.stats.retransmissions,
            lost: self.stats.lost,
            delivered: self.stats.bytes_acknowledged,
            received: self.stats.bytes_received,
            timeouts: self.stats.timeouts,
        }
    }

    pub(crate) fn path_stats(&self) -> Vec<PathStats> {
        let count = |p: &Path| p.several.as_ref().map_or_else(|| self.count(), |s| s.count);
        let stats = |p: &Path, count: Count| PathStats {
            path: p.id,
            route: p.route,
            state: p.state,
            srtt: p.rtt.smoothed(),
            rto: p.rtt.rto(),
            window: p.cc.window(),
            threshold: p.cc.threshold(),
            in_flight: p.in_flight,
            errors: p.errors,
            room: p.room,
            sent: count.sent,
            retransmissions: count.again,
            lost: count.lost,
            delivered: count.delivered,
            received: count.received,
            timeouts: count.timeouts,
            verdict: self.verdict(usize::from(p.id.0)),
        };
        self.live_paths().map(|p| stats(p, count(p))).collect()
    }

    /// The endpoint's layers have changed.
    pub(crate) fn set_rooms(&mut self, rooms: Arc<[u16]>) {
        self.rooms = rooms;
    }

    /// Bytes of payload that wait to be sent or acknowledged.
    pub(crate) fn buffered(&self) -> usize {
        self.queues.bytes() + self.out.payload()
    }

    /// How much may be under way or wait behind a loss, in bytes: the congestion window of the
    /// current path. Where several paths are used for what they carry together: what leaves on all
    /// of them while the slowest takes a round trip, as so much waits for what is lost there.
    pub(crate) fn window(&self) -> u64 {
        let one = self.paths[self.current].cc.window();
        if self.paths.len() == 1 || self.multipath().is_none_or(|m| !m.scheduler.fills_all()) {
            return one;
        }
        let carrying = || (0..self.paths.len()).filter(|i| self.carries_new(*i) && !self.is_useless(*i));
        let rtt = |i: usize| self.paths[i].rtt.smoothed();
        // One that is only asked by heartbeats holds nothing that others could wait for; one that
        // rests for a trial will again.
        let holds = |i: &usize| self.paths[*i].in_flight > 0 || self.is_resting(*i);
        let slowest = carrying().filter(holds).filter_map(rtt).max().unwrap_or_default();
        let during = |i: usize| {
            let turns = rtt(i).map_or(1.0, |rtt| slowest.as_secs_f64() / rtt.as_secs_f64().max(1e-6));
            (self.paths[i].cc.window() as f64 * turns.clamp(1.0, MOST_TURNS)) as u64
        };
        let all = carrying().map(during).fold(0, u64::saturating_add);
        // The peer decides how long a round trip takes, and what may be outstanding, too.
        let outstanding = (self.out.flying() + self.window_left()) as u64;
        all.min(outstanding).max(one)
    }

    /// It is over. Everything that was not acknowledged is reported as failed.
    fn close(&mut self, reason: CloseReason) {
        if self.is_closed() {
            return;
        }
        self.state = State::Closed;
        self.rx.end();
        // Abandoned messages were reported before.
        let sent = self.out.drain().into_iter().filter(|s| s.fate != Fate::Abandoned);
        let mut failed: Vec<(MessageId, StreamId, bool)> = sent.map(|s| (s.piece.id, s.piece.stream, true)).collect();
        failed.extend(self.queues.drain().into_iter().map(|(s, p)| (p.id, s, p.started.is_some())));
        failed.sort_unstable();
        failed.dedup_by_key(|(m, ..)| *m);
        for (message, stream, sent) in failed {
            self.events.push_back(Event::Failed { message, stream, sent });
        }
        self.events.push_back(Event::Closed(reason));
        self.timers = Deadlines::default();
        self.expiries = BTreeMap::new();
        self.outbox = Outbox::default();
        self.candidate = None;
        self.concurrent = None;
        for path in &mut self.paths {
            path.in_flight = 0;
            (path.t3, path.reorder, path.tail.due) = (None, None, None);
            path.heartbeat.stop();
            path.mtu.stop();
        }
        self.routes_changed = true;
    }

    /// Whether the application has taken everything that there was.
    pub(crate) fn is_drained(&mut self) -> bool {
        self.is_closed() && self.events.is_empty() && self.farewell.is_none() && !self.rx.has_something(self.silly())
    }
}

/// Whether to probe an address that a peer at `from` has listed: loopback and private ones only for
/// a peer in the same scope. Others could use this host to probe what they cannot reach (RFC 5062).
pub(crate) fn may_be_peers(address: std::net::IpAddr, from: std::net::IpAddr) -> bool {
    let near = |ip: std::net::IpAddr| match ip.to_canonical() {
        std::net::IpAddr::V4(a) => {
            a.is_private() || a.is_link_local() || a.octets()[0] == 100 && a.octets()[1] & 0xc0 == 64
        }
        std::net::IpAddr::V6(a) => a.is_unique_local() || a.is_unicast_link_local(),
    };
    let address = address.to_canonical();
    let within = from.is_loopback() || !address.is_loopback() && (near(from) || !near(address));
    is_unicast(address) && within
}

/// Whether an address can be sent to (RFC 9260 section 8.4, rule 1).
pub(crate) fn is_unicast(address: std::net::IpAddr) -> bool {
    let broadcast = matches!(address, std::net::IpAddr::V4(a) if a.is_broadcast());
    !address.is_multicast() && !address.is_unspecified() && !broadcast
}
