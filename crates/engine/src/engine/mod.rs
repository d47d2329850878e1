//! The engine: its parts, one pass (turn), its timers.

/// The parts of the engine that the fast path works with:
/// [`crate::connection::fast_path::FastPath`].
macro_rules! fast_path {
    ($engine:expr) => {
        $crate::connection::fast_path::FastPath {
            cx: &mut $engine.cx,
            conns: &mut $engine.conns,
            sockets: &mut $engine.carriers.sockets.channels,
            listeners: &mut $engine.listeners,
            notices: &mut $engine.notices,
            refused: &mut $engine.refused,
            advised: $engine.policies.are_asked(),
        }
    };
}

mod close;
mod compile;
mod established;
mod group;
mod handshake;
mod listen;
mod names;
mod outcomes;
mod plan;
mod policies;
mod properties;
mod race;
mod receive;
mod reports;
mod send;
mod sockets;
mod timed;
mod writing;

use crate::carrier::Carriers;
use crate::carrier::FlowId;
use crate::closing::Closing;
use crate::config::{EngineConfig, EngineStats};
use crate::conn::{ConnectionState, Conns};
use crate::connection::fast_path::NextDeadline;
use crate::context::Context;
use crate::establish::Trials;
use crate::event::{Event, Notice, Source, Step, TimelineEntry};
use crate::group::Group;
use crate::ids::SocketId;
use crate::listen::Listener;
use crate::names::Names;
use crate::notices::Notices;
use crate::policy::Policies;
use crate::preferences::keep_alive;
use crate::stacks::settings::Crypto;
use crate::timer::Timer;
use crate::{ConnectionId, GroupId, ListenerId};
use core::num::NonZeroU64;
use core::time::Duration;
use neater_base::net::{Net, NetError, NetEvent};
use neater_base::{Instant, Key, Rng, Slab};
use neater_property::Role;
use neater_race::OutcomeCache;
use std::collections::BTreeMap;

/// How many network events one turn handles before it returns to the program.
const EVENTS_PER_TURN: usize = 1024;
/// The wall-clock time that certificates and tickets are checked against is at most this old: the
/// clock is not read per packet.
const WALL_EVERY: Duration = Duration::from_millis(50);
/// How many turns in a row may put off deadlines for waiting events.
const TURNS_BEHIND: u32 = 16;

/// The transport system as one machine over a [`Net`]; see the crate's documentation for how to
/// drive it.
pub struct Engine<N> {
    pub(crate) cx: Context<N>,
    pub(crate) carriers: Carriers,
    pub(crate) conns: Conns,
    pub(crate) listeners: Slab<Listener>,
    pub(crate) groups: Slab<Group>,
    /// Connections in their framer handshake with more bytes to read.
    pub(crate) pending_framer_handshakes: Vec<Key>,
    /// Connections that are being closed and wait for their peer.
    pub(crate) closings: BTreeMap<Key, Closing>,
    pub(crate) names: Names,
    pub(crate) outcomes: OutcomeCache,
    pub(crate) trials: Trials,
    pub(crate) policies: Policies,
    /// A hash of the networks that this host is attached to; `None`: not computed yet.
    pub(crate) network: Option<NonZeroU64>,
    /// A hash of all usable interfaces and their addresses, as of when `network` was computed.
    addresses: u64,
    pub(crate) notices: Notices,
    /// Events that [`Engine::poll_fast`] has left to the next turn; otherwise empty, and kept as a
    /// buffer.
    pub(crate) net_events: Vec<NetEvent>,
    /// The next turn need not poll the network first.
    pub(crate) events_polled: bool,
    /// The error that [`Engine::poll_fast`] read from a failed attempt, or from a listener, and
    /// left to the next turn. It concerns the first of `net_events`.
    pub(crate) refused: Option<(Key, NetError)>,
    /// The wake-up that the network was last asked for, so that it is not asked twice.
    armed: (Option<Instant>, bool),
    /// When the wall-clock time that TLS uses is to be set next.
    wall_due: Instant,
    /// How many turns in a row have left events unhandled.
    turns_behind: u32,
    /// The engine has lost its driver: see [`Engine::orphan`].
    pub(crate) orphaned: bool,
    /// Connections blocked by the engine-wide limit on queued bytes, with nothing queued
    /// themselves.
    pub(crate) crowded_out: Vec<Key>,
}

impl<N> core::fmt::Debug for Engine<N> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Engine")
            .field("connections", &self.conns.len())
            .field("listeners", &self.listeners.len())
            .field("now", &self.cx.now)
            .finish_non_exhaustive()
    }
}

impl<N: Net> Engine<N> {
    /// An engine over `net`. Everything random in it follows from `config.seed`.
    pub fn new(net: N, config: EngineConfig) -> Self {
        let mut rng = Rng::new(config.seed);
        let names = Names::new(rng.seed());
        let outcomes = OutcomeCache::new(rng.u64());
        Self {
            cx: Context::new(net, config, rng),
            carriers: Carriers::default(),
            names,
            outcomes,
            trials: Trials::default(),
            policies: Policies::default(),
            conns: Conns::default(),
            listeners: Slab::new(),
            groups: Slab::new(),
            pending_framer_handshakes: Vec::new(),
            closings: BTreeMap::new(),
            network: None,
            addresses: 0,
            notices: Notices::default(),
            net_events: Vec::new(),
            events_polled: false,
            refused: None,
            armed: (None, false),
            wall_due: Instant::ZERO,
            turns_behind: 0,
            orphaned: false,
            crowded_out: Vec::new(),
        }
    }

    /// The network below.
    pub fn net(&self) -> &N {
        &self.cx.net
    }

    /// The network below.
    pub fn net_mut(&mut self) -> &mut N {
        &mut self.cx.net
    }

    /// Does what there is to do now, within the budget of a turn: takes readiness from the network,
    /// runs timers, moves bytes. Afterwards [`Engine::poll_notice`] returns what has happened, and
    /// the network's pollable descriptor becomes readable when there is more to do.
    ///
    /// Calling it for no reason has no effect.
    pub fn turn(&mut self) {
        if self.notices.has_spent() || !self.cx.misrouted.is_empty() {
            self.forget_untaken();
        }
        self.cx.now = self.cx.net.now();
        if self.cx.now >= self.wall_due {
            self.set_wall();
        }
        // The last turn left work over for this one.
        if core::mem::take(&mut self.cx.again) {
            self.take_up_pending();
        }
        if self.names.has_unread() {
            self.names.read_unread(&mut self.cx);
            self.drain_names();
        }
        let mut events = core::mem::take(&mut self.net_events);
        // Events left to this turn replace the first poll of the network.
        let mut events_polled = core::mem::take(&mut self.events_polled);
        let mut taken = 0;
        let mut drained = true;
        loop {
            let more = !core::mem::take(&mut events_polled) && self.cx.net.poll(&mut events);
            taken += events.len();
            for event in &events {
                self.dispatch(*event);
            }
            events.clear();
            // Its owner took the error, or is gone.
            self.refused = None;
            if !more {
                break;
            }
            if taken >= EVENTS_PER_TURN {
                self.cx.again = true;
                drained = false;
                break;
            }
        }
        self.net_events = events;
        // The event that a deadline waits for may be among the unhandled ones. Under load that must
        // not pass for a missing answer and start attempts, which add load.
        self.turns_behind = if drained { 0 } else { self.turns_behind.wrapping_add(1) };
        if self.turns_behind.is_multiple_of(TURNS_BEHIND) {
            self.run_timers();
        }
        self.finish_turn();
    }

    /// Polls the network and handles what leads to a notice and no more: a plain TCP stream is
    /// readable or writable, has connected as the cached outcome names it, or was accepted.
    /// Everything else is left to the next [`Engine::turn`]. It runs no code of the program
    /// (framer, callback, destructor) and nothing above TCP, so a foreign reactor may call it.
    /// False: a turn has more to do.
    ///
    /// A turn that follows handles the events that were left and does not poll the network again. A
    /// driver that wakes for the descriptor but does not call this calls [`Engine::poll_again`]
    /// before the turn.
    pub fn poll_fast(&mut self) -> bool {
        if !self.cx.config.fast_path
            || self.cx.again
            || !self.net_events.is_empty()
            || self.needs_settling()
            || self.names.has_unread()
        {
            self.poll_again();
            return false;
        }
        let mut events = core::mem::take(&mut self.net_events);
        let more = self.cx.net.poll(&mut events);
        // Once one needs a turn, so do all later ones.
        let mut now = None;
        let left = match events.iter().position(|e| !fast_path!(self).on_event(*e, &mut now)) {
            None => {
                events.clear();
                false
            }
            Some(handled) => {
                events.drain(..handled);
                true
            }
        };
        self.net_events = events;
        self.events_polled = left && !more;
        !more
            && !left
            && match fast_path!(self).nothing_due(now) {
                NextDeadline::AsArmed => true,
                NextDeadline::Later => {
                    self.arm();
                    true
                }
                NextDeadline::Due => false,
            }
    }

    /// The next turn polls the network, even if [`Engine::poll_fast`] has left it events.
    pub fn poll_again(&mut self) {
        self.events_polled = false;
    }

    /// Takes the error that the fast path found for an attempt or a listener: the network reports
    /// it only once.
    #[cold]
    pub(crate) fn take_refused(&mut self, key: Key) -> Option<NetError> {
        self.refused.take_if(|(refused, _)| *refused == key).map(|(_, e)| e)
    }

    /// Updates the wall clock of the cryptography.
    #[inline(never)]
    fn set_wall(&mut self) {
        self.cx.config.crypto.clock.set(self.cx.net.wall());
        self.wall_due = self.cx.now + WALL_EVERY;
    }

    /// Drops untaken spent objects and misrouted datagrams.
    #[cold]
    fn forget_untaken(&mut self) {
        drop(self.notices.take_spent());
        self.cx.misrouted.clear();
    }

    /// Continues the work that the budget of the last turn left over.
    #[cold]
    fn take_up_pending(&mut self) {
        self.cx.connections = self.conns.len();
        self.carriers.resume_sockets(&mut self.cx);
        self.drain_carriers();
        for conn in core::mem::take(&mut self.pending_framer_handshakes) {
            self.resume_framer_handshake(conn);
        }
        self.carriers.resume_shared(&mut self.cx);
        self.drain_carriers();
    }

    /// Flushes what calls queued and arms the network's timer. [`Engine::turn`] does it; after
    /// other calls it is enough to do it once, before waiting.
    pub fn settle(&mut self) {
        if !self.needs_settling() {
            return self.rearm();
        }
        // Much time may have passed since the last turn: packets that leave now must have the
        // present time.
        self.cx.now = self.cx.net.now();
        self.finish_turn();
    }

    #[inline]
    fn finish_turn(&mut self) {
        if self.needs_settling() {
            self.flush_carriers();
        }
        self.arm();
    }

    pub(crate) fn arm(&mut self) {
        self.armed = (self.next_timeout(), self.cx.again);
        self.cx.net.arm(self.armed.0, self.armed.1);
    }

    /// Arms the network's timer again if the next deadline has become earlier.
    #[inline]
    pub fn rearm(&mut self) {
        let earlier = match (self.next_timeout(), self.armed.0) {
            (Some(next), Some(armed)) => next < armed,
            (next, None) => next.is_some(),
            (None, _) => false,
        };
        if earlier || self.cx.again && !self.armed.1 {
            self.arm();
        }
    }

    /// Call it after any other call, before waiting: it arms the network's timer. True: take
    /// notices, and call [`Engine::settle`] if [`Engine::needs_settling`].
    #[inline]
    pub fn after_call(&mut self) -> bool {
        if !self.needs_settling() {
            self.rearm();
            return !self.notices.is_empty();
        }
        true
    }

    /// The cryptography in use.
    #[must_use]
    pub fn crypto(&self) -> Crypto {
        self.cx.config.crypto.clone()
    }

    /// Replaces cryptography and roots of trust, for requests compiled from now on.
    pub fn set_crypto(&mut self, crypto: Crypto) {
        self.cx.config.crypto = crypto;
        self.wall_due = Instant::ZERO;
    }

    /// When [`Engine::turn`] must be called at the latest, if nothing happens before.
    #[inline]
    pub fn next_timeout(&mut self) -> Option<Instant> {
        self.cx.timers.next()
    }

    /// Whether a call has left something to [`Engine::settle`].
    #[must_use]
    #[inline]
    pub fn needs_settling(&self) -> bool {
        self.carriers.needs_flush()
    }

    /// Takes the oldest event.
    #[inline]
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop()
    }

    /// Takes the oldest event if that is a connection's [`crate::Event::Readable`], and returns
    /// whether other events wait. A cheap way for the commonest one.
    #[inline]
    pub fn poll_readable(&mut self) -> (Option<ConnectionId>, bool) {
        self.notices.pop_readable()
    }

    /// Whether there is something for [`Engine::take_spent`].
    #[must_use]
    #[inline]
    pub fn has_spent(&self) -> bool {
        self.notices.has_spent()
    }

    /// Takes the program's data and objects that the engine no longer needs. Dropping them runs the
    /// program's destructors, which may call the engine: a driver that holds its lock unlocks it
    /// first. Call it when all notices are taken, after a turn or an [`Engine::after_call`] that
    /// returned true; the next turn drops the rest.
    #[inline]
    pub fn take_spent(&mut self) -> crate::Spent {
        self.notices.take_spent()
    }

    #[inline]
    fn dispatch(&mut self, event: NetEvent) {
        match event {
            NetEvent::Ready { token, ready } => match SocketId::of(token) {
                Some(SocketId::Carrier(socket)) => self.on_carrier_ready(socket, ready),
                Some(SocketId::Resolver(t)) => {
                    self.names.on_ready(&mut self.cx, t, ready);
                    self.drain_names();
                }
                None => {}
            },
            NetEvent::PathsChanged => self.paths_changed(),
            NetEvent::NamesChanged => {
                self.names_changed();
                self.race_anew(false);
            }
            NetEvent::Resumed { .. } => {
                self.set_wall();
                self.paths_changed();
            }
            #[allow(unreachable_patterns, reason = "the enum may grow")]
            _ => {}
        }
    }

    fn run_timers(&mut self) {
        // Timers armed here that are due at once wait for the next turn.
        let there = self.cx.timers.added();
        let mut next = Vec::new();
        while let Some((at, age, timer)) = self.cx.timers.pop_due_aged(self.cx.now) {
            if age > there {
                next.push((at, timer));
                continue;
            }
            match timer {
                Timer::Race(conn) => self.race_timeout(conn),
                Timer::Cached(conn) => self.cached_timeout(conn),
                Timer::Resolver => {
                    self.names.handle_timeout(&self.cx);
                    self.drain_names();
                }
                Timer::Flows => self.flows_timeout(),
                Timer::ExternalNames => self.external_names_timeout(),
                Timer::Closing(conn) => self.closing_timeout(conn),
                Timer::FramerHandshake(conn) => self.framer_handshake_timeout(conn),
                Timer::Idle(conn) => self.idle_timeout(conn),
                Timer::Expiry(conn) => self.expire_messages(conn),
                Timer::Accept(listener) => self.accept_again(listener),
                Timer::Rate(conn) => self.rate_timeout(conn),
                Timer::Look(conn) => self.look_due(conn),
                Timer::Carrier(timer) => {
                    self.carriers.on_timer(&mut self.cx, timer);
                    self.drain_carriers();
                }
            }
        }
        for (at, timer) in next {
            self.cx.timers.push(at, timer);
        }
        let objects = self.conns.len() + self.carriers.len();
        if self.cx.timers.len() > 1024 && self.cx.timers.len() > 4 * objects {
            self.compact_timers();
        }
    }

    /// Drops the deadlines whose objects are gone.
    fn compact_timers(&mut self) {
        let (conns, listeners, closings, carriers) = (&self.conns, &self.listeners, &self.closings, &self.carriers);
        // A deadline that was set again keeps its last entry.
        let set = |armed: Option<Instant>, at: Instant| armed == Some(at);
        self.cx.timers.compact(|at, t| match t {
            Timer::Race(k) => conns.get(*k).is_some_and(|c| c.est.is_some()),
            Timer::Cached(k) => conns.get(*k).is_some_and(|c| c.state == ConnectionState::Establishing),
            Timer::FramerHandshake(k) => conns.get(*k).is_some_and(|c| c.is_framer_handshaking()),
            Timer::Idle(k) | Timer::Rate(k) => conns.contains(*k),
            Timer::Expiry(k) => conns.get(*k).and_then(|c| c.cold.as_ref()).is_some_and(|e| set(e.expiry_armed, at)),
            Timer::Look(k) => conns.get(*k).and_then(|c| c.cold.as_ref()).is_some_and(|e| set(e.look_armed, at)),
            Timer::Closing(k) => closings.contains_key(k),
            Timer::Accept(k) => listeners.contains(*k),
            Timer::Carrier(timer) => carriers.is_armed(*timer, at),
            Timer::Resolver | Timer::Flows | Timer::ExternalNames => true,
        });
    }

    /// Reports an event of a connection that is not released and has not ended.
    pub(crate) fn notify(&mut self, conn: Key, event: Event) {
        if self.conns.get(conn).is_some_and(|c| !c.released && c.state != ConnectionState::Closed) {
            self.notices.push(Source::Connection(ConnectionId(conn)), event);
        }
    }

    pub(crate) fn notify_listener(&mut self, listener: Key, event: Event) {
        self.notices.push(Source::Listener(ListenerId(listener)), event);
    }

    pub(crate) fn notify_group(&mut self, group: Key, event: Event) {
        self.notices.push(Source::Group(GroupId(group)), event);
    }

    /// A group's session is over or ending: a task that waits for the peer's next stream gets the
    /// error.
    pub(crate) fn no_more_streams(&mut self, group: Option<Key>, error: crate::ConnectionError) {
        if let Some(group) = group.filter(|g| self.groups.get(*g).is_some_and(|g| g.claimed)) {
            self.notify_group(group, Event::ConnectionError(error));
        }
    }

    /// Whether a connection's establishment is reported, to the program or to a subscriber of
    /// `tracing`.
    #[inline]
    pub(crate) fn is_watched(&self, conn: Key) -> bool {
        self.conns.get(conn).is_some_and(|c| c.request.observe)
            || tracing::enabled!(target: "neater::race", tracing::Level::DEBUG)
    }

    /// Adds a step to the timeline of a connection that is being established.
    pub(crate) fn step(&mut self, conn: Key, step: Step) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        let entry = TimelineEntry { at: self.cx.now - c.since, step };
        tracing::debug!(target: "neater::race", connection = ?conn, at_ms = entry.at.as_millis() as u64, "{}", entry.step);
        if c.request.observe {
            let copy = entry.clone();
            self.notify(conn, Event::Timeline(copy));
        }
        if let Some(c) = self.conns.get_mut(conn) {
            let timeline = &mut c.cold().timeline;
            // A race has at most max_candidates attempts with a handful of steps each.
            if timeline.len() < 512 {
                timeline.push(entry);
            }
        }
    }

    /// A hash of this host's networks; outcomes of other networks do not count.
    #[inline]
    pub(crate) fn network(&mut self) -> NonZeroU64 {
        match self.network {
            Some(n) => n,
            None => self.find_network(),
        }
    }

    #[cold]
    fn find_network(&mut self) -> NonZeroU64 {
        use core::hash::BuildHasher;
        let state = foldhash::fast::FixedState::with_seed(2);
        // A sum, as the system may report the same addresses in any order.
        let (mut sum, mut all) = (0u64, 0u64);
        for i in self.cx.net.interfaces().iter().filter(|i| i.up) {
            let leads_out = i.default_v4 || i.default_v6;
            all = all.wrapping_add(state.hash_one((i.index, i.default_v4, i.default_v6)));
            if leads_out {
                sum = sum.wrapping_add(state.hash_one(i.index));
            }
            for a in &i.addrs {
                all = all.wrapping_add(state.hash_one((i.index, a.addr)));
                if leads_out && !a.temporary {
                    sum = sum.wrapping_add(state.hash_one((i.index, a.addr)));
                }
            }
        }
        self.addresses = all;
        *self.network.insert(NonZeroU64::new(sum).unwrap_or(NonZeroU64::MIN))
    }

    fn paths_changed(&mut self) {
        {
            let wall = self.cx.net.wall();
            self.policies.set_interfaces(self.cx.net.interfaces(), wall);
        }
        let (before, addresses) = (self.network.take(), self.addresses);
        let moved = before != Some(self.network());
        // A connection may use an address that is not in `network`: a temporary one, or one of an
        // interface without a default route.
        if !moved && addresses == self.addresses {
            return;
        }
        tracing::debug!(target: "neater::path", "the network has changed");
        if moved {
            self.names.network_changed(self.cx.now);
        }
        let conns = &self.conns;
        self.carriers.paths_changed(&mut self.cx, moved, |conn| {
            let c = conns.get(conn)?;
            let (now, properties) = (c.properties(), &c.request.properties);
            let keep_alive = now.keep_alive_timeout.or_else(|| keep_alive(properties, Role::Initiate));
            Some((keep_alive, now.timeout))
        });
        self.race_anew(true);
        for key in self.conns.keys() {
            if self
                .conns
                .get(key)
                .is_some_and(|c| c.state == ConnectionState::Established && !matches!(c.flow, FlowId::None))
            {
                self.notify(key, Event::PathChange);
            }
        }
    }

    /// Figures of the whole engine.
    #[must_use]
    pub fn stats(&self) -> EngineStats {
        self.carriers.stats(EngineStats {
            connections: self.conns.len() as u64,
            bytes_queued: self.cx.queued as u64,
            receive_windows: self.cx.windows.granted(),
            send_windows: self.cx.windows.grown(),
            timers: self.cx.timers.len() as u64,
            groups: self.groups.len() as u64,
            listeners: self.listeners.len() as u64,
            ..self.cx.stats
        })
    }
}
