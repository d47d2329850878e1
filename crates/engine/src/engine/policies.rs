//! Policies, and what connections see for them.

use crate::engine::Engine;
use crate::measured::{Counters, Flow, SILENT_LOOKS, Tried, Way};
use crate::policy::PolicyAccess;
use crate::timer::Timer;
use crate::{ConnectionId, ConnectionState, LocalEndpoint, Request, Stack, Step};
use core::time::Duration;
use neater_base::net::{Interface, Net};
use neater_base::{Key, WallTime};
use neater_policy::advice::{RaceOutcome, Seen};

impl<N: Net> Engine<N> {
    /// The policies of this engine, to be given and to be asked.
    pub fn policies(&mut self) -> PolicyAccess<'_, N> {
        PolicyAccess { policies: &mut self.policies, net: &self.cx.net, now: self.cx.now }
    }

    /// Writes the advice of policies into a connection's timeline.
    pub(crate) fn report_advice(&mut self, conn: Key) {
        let watched = self.is_watched(conn);
        let Some(c) = self.conns.get(conn) else { return };
        if !watched || c.cold.as_ref().is_none_or(|e| e.advice.is_none()) {
            return;
        }
        let (request, remotes) = (Request(c.request.clone()), c.remotes.clone());
        let locals: Vec<LocalEndpoint> = c.cold.as_ref().map_or_else(Vec::new, |e| e.locals.to_vec());
        for remote in remotes.iter() {
            let wall = self.cx.net.wall();
            let Some(story) = self.policies.story_of(&request, remote, &locals, wall) else { return };
            let lines = story.map_or_else(|denied| vec![denied.to_string()], |story| story.lines(&|_| None));
            for text in lines {
                self.step(conn, Step::Policy { text: text.trim().to_owned() });
            }
        }
    }

    /// Takes what the establishment of a connection has shown, and begins to look at it, where
    /// policies want to know.
    ///
    /// `by` is the remote endpoint by its number, and the interface if the connection is bound to
    /// one.
    pub(crate) fn follow_flow(
        &mut self,
        conn: Key,
        by: Option<(usize, Option<u32>)>,
        answered_after: Option<Duration>,
    ) {
        let heeds = self.policies.adviser().is_some_and(|a| a.heeds_measurements());
        if !heeds || self.is_isolated(conn) {
            return;
        }
        let Some((remote, bound)) = by else { return };
        let Some(interface) = bound.or_else(|| self.interface_of(conn)) else { return };
        let way = Way { remote, interface };
        self.report_flow(conn, way, &Seen { rtt: answered_after, ..Seen::default() });
        if let Some(stack) = self.conns.get(conn).and_then(|c| c.stack)
            && let Some(won) = self.tried(conn, remote, Some(interface), stack)
        {
            self.report_outcome(&won, true);
        }
        if self.policies.flows.all.len() >= MAX_FLOWS && !self.make_room() {
            return;
        }
        let counters = self.counters_of(conn).unwrap_or_default();
        self.policies.flows.all.push(Flow { conn, way, at: self.cx.now, counters, silent: 0, pause: LOOK });
        self.arm_flows();
    }

    /// Whether a connection shares no state with others (`isolateSession`): where it leads to is
    /// not reported.
    pub(crate) fn is_isolated(&self, conn: Key) -> bool {
        self.conns.get(conn).is_some_and(|c| c.request.isolation != 0)
    }

    /// Forgets the connection that has been silent longest; false if none is looked at less often
    /// than once a second.
    pub(crate) fn make_room(&mut self) -> bool {
        let silent = self.policies.flows.all.iter().enumerate().filter(|(_, flow)| flow.pause > LOOK);
        let Some((at, _)) = silent.max_by_key(|(_, flow)| flow.pause) else { return false };
        self.policies.flows.all.swap_remove(at);
        true
    }

    /// Sees to it that the next look is in time.
    pub(crate) fn arm_flows(&mut self) {
        let Some(next) = self.policies.flows.all.iter().map(|flow| flow.at + flow.pause).min() else { return };
        if self.policies.flows.armed.is_none_or(|armed| next < armed) {
            self.policies.flows.armed = Some(next);
            self.cx.timers.push(next, Timer::Flows);
        }
    }

    /// The way that an attempt has gone, where policies want to know; without an interface, the one
    /// that the system takes.
    pub(crate) fn tried(&mut self, conn: Key, remote: usize, interface: Option<u32>, stack: Stack) -> Option<Tried> {
        if !self.policies.adviser()?.heeds_measurements() || self.is_isolated(conn) {
            return None;
        }
        let index = interface.or_else(|| self.interface_of(conn))?;
        let interface = self.cx.net.interfaces().iter().find(|i| i.index == index)?.name.as_str().into();
        let remote = self.conns.get(conn)?.remotes.get(remote)?.clone();
        Some(Tried { interface, remote, stack })
    }

    /// Reports the outcome of an attempt to the adviser, for as long as the engine itself remembers
    /// it.
    pub(crate) fn report_outcome(&mut self, tried: &Tried, won: bool) {
        let wall = self.cx.net.wall();
        let lifetime = if won { neater_race::DEFAULT_LIFETIME } else { neater_race::BAD_LIFETIME };
        let until = WallTime(wall.0.saturating_add(lifetime));
        let (remote, transport) = (&tried.remote, tried.stack.policy_name().to_owned());
        let outcome = RaceOutcome { port: remote.port, transport, won, until };
        if let Some(adviser) = self.policies.adviser() {
            adviser.learn_outcome(&tried.interface, remote.host.as_deref(), remote.addr, outcome, wall);
        }
    }

    /// Looks at those whose time has come.
    pub(crate) fn flows_timeout(&mut self) {
        let heeds = self.policies.adviser().is_some_and(|a| a.heeds_measurements());
        let mut all = core::mem::take(&mut self.policies.flows.all);
        all.retain_mut(|flow| heeds && (self.cx.now < flow.at + flow.pause || self.look_at(flow)));
        self.policies.flows.all = all;
        // An earlier look may have been put in before the one that was waited for.
        self.policies.flows.armed = self.policies.flows.armed.filter(|armed| self.cx.now < *armed);
        self.arm_flows();
    }

    /// Looks at one; false if there is no more to see.
    pub(crate) fn look_at(&mut self, flow: &mut Flow) -> bool {
        if self.conns.get(flow.conn).is_some_and(|c| c.state == ConnectionState::Establishing) {
            // Its transport is established, and something above it is not: a framer's handshake, or
            // a stream that the peer allows.
            flow.at = self.cx.now;
            return true;
        }
        let Some(counters) = self.counters_of(flow.conn) else { return false };
        let (before, time) = (core::mem::replace(&mut flow.counters, counters), self.cx.now - flow.at);
        flow.at = self.cx.now;
        let moved = |now: (u64, u64), then: (u64, u64)| (now.0.saturating_sub(then.0), now.1.saturating_sub(then.1));
        let bytes = moved(counters.bytes, before.bytes);
        let (transport, then) = (counters.transport, before.transport);
        let carried = transport.carried.saturating_sub(then.carried);
        let (mut sent, lost) = moved(transport.packets, then.packets);
        if let Some(segment) = transport.segment {
            sent += carried / segment + lost;
        }
        if bytes == (0, 0) && carried < ENOUGH_BYTES {
            if flow.silent < SILENT_LOOKS {
                flow.silent += 1;
            } else {
                flow.pause = (2 * flow.pause).min(LONGEST);
            }
            return true;
        }
        let steady = flow.pause == LOOK;
        (flow.silent, flow.pause) = (0, LOOK);
        let most = carried.max(bytes.1);
        let seconds = time.as_secs_f64();
        // Of a longer pause, it is not known for how much of it something was carried.
        let rate = (steady && most >= ENOUGH_BYTES && seconds > 0.0).then(|| most as f64 * 8.0 / seconds);
        let loss = (sent >= ENOUGH_PACKETS).then(|| (lost as f64 / sent as f64).min(1.0));
        let rtt = self.connection_stats(ConnectionId(flow.conn)).and_then(|stats| stats.rtt);
        self.report_flow(flow.conn, flow.way, &Seen { rtt, rate, loss });
        true
    }

    /// The counters of a connection that is open; `None` for others.
    pub(crate) fn counters_of(&self, conn: Key) -> Option<Counters> {
        let c = self.conns.get(conn).filter(|c| c.state == ConnectionState::Established)?;
        let stats = self.connection_stats(ConnectionId(conn))?;
        let transport = self.carriers.counters(&self.cx, c.flow, stats.bytes_sent);
        Some(Counters { bytes: (stats.bytes_sent, stats.bytes_received), transport })
    }

    /// The interface that has the connection's address; where the system has not reported which
    /// that is, the one that the system would take.
    pub(crate) fn interface_of(&mut self, conn: Key) -> Option<u32> {
        let local = self.local_addr(ConnectionId(conn)).map(|a| a.ip()).filter(|ip| !ip.is_unspecified());
        let local = match local {
            Some(local) => local,
            None => {
                let remote = self.remote_addr(ConnectionId(conn))?.ip();
                self.cx.net.source_for(remote)?
            }
        };
        let has = |i: &&Interface| i.addrs.iter().any(|a| a.addr == local);
        self.cx.net.interfaces().iter().find(has).map(|i| i.index)
    }

    /// Reports to the adviser.
    pub(crate) fn report_flow(&mut self, conn: Key, way: Way, seen: &Seen) {
        let Some(remote) = self.conns.get(conn).and_then(|c| c.remotes.get(way.remote)) else { return };
        let Some(interface) = self.cx.net.interfaces().iter().find(|i| i.index == way.interface) else { return };
        let wall = self.cx.net.wall();
        if let Some(adviser) = self.policies.adviser() {
            adviser.learn(&interface.name, remote.host.as_deref(), remote.addr, seen, wall);
        }
    }
}

/// How many connections are looked at.
const MAX_FLOWS: usize = 64;

/// How often.
const LOOK: Duration = Duration::from_secs(1);

/// How often the most silent ones are looked at.
const LONGEST: Duration = Duration::from_secs(64);

/// What must have been received or sent between two samples to measure a rate, in bytes.
const ENOUGH_BYTES: u64 = 64 * 1024;

/// What must have been sent to measure losses, in packets.
const ENOUGH_PACKETS: u64 = 32;
