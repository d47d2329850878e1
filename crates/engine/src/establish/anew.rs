//! Establishment on a host whose network changes under it.
//!
//! An attempt from an address that the host does not have any more cannot succeed, and nobody says so: the system sends the
//! same packets for minutes. So the race begins anew from what the host has now. An attempt from an address that is still there
//! goes on, and the race with it: another interface that comes up, or goes, is no reason to begin again what takes a long time.

use crate::Engine;
use crate::carrier::{FlowId, SessionId};
use crate::conn::ConnectionState;
use crate::event::Step;
use neater_base::Key;
use neater_base::net::Net;

impl<N: Net> Engine<N> {
    /// Begins the races anew that cannot be won as they are: with attempts from addresses that are gone, or with nothing but
    /// questions to name servers of another network. `moved`: it is the addresses that have changed, and not the name servers.
    pub(crate) fn race_anew(&mut self, moved: bool) {
        // Without any way out every attempt would fail at once. There may soon be another one, or the old one again.
        if !self.cx.has_way_out() {
            return;
        }
        for conn in self.conns.keys() {
            if self.is_in_vain(conn, moved) {
                self.begin_anew(conn);
            }
        }
    }

    /// The attempt of a connection that tries the cached outcome alone.
    fn cached_attempt(&self, conn: Key) -> Option<SessionId> {
        let flow = self.conns.get(conn)?.flow;
        self.carriers.awaited_attempt(conn, flow)
    }

    fn is_in_vain(&self, conn: Key, moved: bool) -> bool {
        let Some(c) = self.conns.get(conn).filter(|c| c.state == ConnectionState::Establishing) else { return false };
        match &c.est {
            None => {
                moved && self.cached_attempt(conn).is_some_and(|session| self.is_from_nowhere(session) == Some(true))
            }
            Some(est) if est.attempts.is_empty() => {
                (!moved || Some(est.network) != self.network) && (self.names.is_awaited_by(conn, &est.lookups))
            }
            Some(est) => {
                let (mut lost, mut alive) = (false, false);
                for attempt in &est.attempts {
                    match self.is_from_nowhere(attempt.session) {
                        Some(true) => lost = true,
                        Some(false) => alive = true,
                        None => {}
                    }
                }
                moved && lost && !alive
            }
        }
    }

    /// Whether an attempt comes from an address that this host does not have any more; `None`: its address is not known.
    fn is_from_nowhere(&self, session: SessionId) -> Option<bool> {
        self.carriers.source_of(&self.cx.net, session).map(|from| {
            let has = |i: &neater_base::net::Interface| i.up && i.addrs.iter().any(|a| a.addr == from);
            !from.is_loopback() && !self.cx.net.interfaces().iter().any(has)
        })
    }

    /// Gives up all that a connection has tried, and begins again.
    fn begin_anew(&mut self, conn: Key) {
        tracing::debug!(target: "neater::race", connection = ?conn, "the network has changed: the race begins anew");
        if let Some(session) = self.cached_attempt(conn) {
            if let Some(c) = self.conns.get_mut(conn) {
                c.flow = FlowId::None;
            }
            self.give_up(conn, session);
        }
        if let Some(est) = self.conns.get_mut(conn).and_then(|c| c.est.take()) {
            for attempt in &est.attempts {
                self.give_up(conn, attempt.session);
            }
            for id in &est.lookups {
                self.names.abandon(&mut self.cx, *id);
            }
            if let Some(external) = &mut self.names.external {
                external.forget(conn);
            }
        }
        let network = self.network();
        let Some(c) = self.conns.get_mut(conn) else { return };
        if c.network.is_some() {
            c.network = Some(network);
        }
        let locals = c.ext.as_ref().map(|e| e.locals.clone()).unwrap_or_default();
        self.begin_race(conn, &locals, None, None);
    }

    fn give_up(&mut self, conn: Key, session: SessionId) {
        let described = self.carriers.describe(session);
        self.carriers.release_attempt(&mut self.cx, session, true);
        if let Some((stack, addr)) = described {
            self.step(conn, Step::Withdrawn { stack, addr });
        }
    }
}
