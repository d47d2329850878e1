//! Heartbeats, path failure and which path data goes (RFC 9260 sections 5.4, 6.4, 8.1 to 8.3).

use super::input::Arrived;
use super::{Association, State};
use crate::event::{CloseReason, Event};
use crate::ids::Route;
use crate::path::{Info, Path, PathState, Rtt};
use neater_base::{Instant, Rng};
use std::sync::Arc;

/// So long no path answers where it is more than a few losses.
const LONG_SILENCE: core::time::Duration = core::time::Duration::from_secs(1);
/// The most HEARTBEAT ACK chunks that wait to be sent.
const MAX_ANSWERS: usize = 8;
/// The path indicator of heartbeats to a source that is not a path.
pub(super) const CANDIDATE: crate::ids::PathId = crate::ids::PathId(u8::MAX);

/// What a packet with a HEARTBEAT chunk costs on the way, in bytes: with the headers of IPv6 and
/// UDP.
pub(super) const QUESTION: u32 = 80;
/// So many bytes for each that has come from the peer go to addresses that it has named: what it
/// costs others is bounded by what it costs the peer, as in RFC 9000 section 8.1.
const CREDIT: u32 = 3;
/// And no more than this at any time.
const CREDIT_MAX: u32 = 4096;

/// What may go to addresses that have not answered, after a packet of so many bytes has come from
/// the peer.
pub(super) fn credit(before: u32, len: usize) -> u32 {
    let more = u32::try_from(len).unwrap_or(CREDIT_MAX).saturating_mul(CREDIT);
    before.saturating_add(more).min(CREDIT_MAX)
}

impl Association {
    /// The association is up: paths are verified and watched. The first ones are due when the
    /// timers are first looked at, which draws their jitter.
    pub(super) fn start_heartbeats(&mut self, now: Instant) {
        let config = Arc::clone(&self.config);
        let estimates = self.estimates_paths();
        for path in self.paths.iter_mut().filter(|p| p.state != PathState::Removed) {
            let unconfirmed = path.state == PathState::Unconfirmed;
            path.heartbeat.wanted = unconfirmed || estimates && path.rtt.smoothed().is_none();
            if !unconfirmed {
                path.mtu.start();
            }
            let interval = config.heartbeat_interval(path.route);
            let next =
                if unconfirmed { Some(now + path.rtt.rto()) } else { interval.map(|i| now + i + path.rtt.rto()) };
            path.heartbeat.schedule(now, next);
        }
        self.prefer_initial();
    }

    /// Heartbeats are answered as they are (section 8.3).
    pub(super) fn on_heartbeat(&mut self, route: Route, info: &[u8]) {
        let answering = !matches!(self.state, State::CookieWait | State::ShutdownSent | State::ShutdownAckSent);
        let answering = answering && !self.addresses.is_deleted(route.remote);
        if answering && self.outbox.heartbeat_acks.len() < MAX_ANSWERS {
            self.outbox.heartbeat_acks.push_back((route, info.to_vec()));
        }
    }

    pub(super) fn on_heartbeat_ack(&mut self, arrived: &Arrived, info: &[u8]) {
        let Some(info) = Info::read(info) else { return };
        if info.path == CANDIDATE {
            return self.adopt(arrived, info.nonce);
        }
        let leaves_silent = self.multipath().is_some_and(|m| m.leave_silent);
        let Some(path) = self.paths.get_mut(usize::from(info.path.0)) else { return };
        let Some((rtt, once)) = path.heartbeat.answered(arrived.now, info.nonce) else {
            return self.probe_answered(arrived.now, usize::from(info.path.0), info.nonce);
        };
        let back = leaves_silent && !path.is_active();
        if back {
            path.rtt.measure_afresh();
        }
        if once {
            path.rtt.sample(rtt);
        } else {
            path.rtt.undo_back_off();
            // Which of several was answered is not known: one more measures.
            path.heartbeat.wanted |= back;
        }
        let left = self.is_back(arrived.now, usize::from(info.path.0));
        let path = &mut self.paths[usize::from(info.path.0)];
        if !left
            && path.state == PathState::PotentiallyFailed
            && let Some(packets) = self.config.potentially_failed_window
        {
            // Slow start from here: what a heartbeat got through, data will (Natarajan 2009,
            // section 4.5).
            path.cc.set_window(u64::from(packets) * path.cc.mss());
        }
        let silent = self.is_silent();
        self.answered(usize::from(info.path.0));
        self.heartbeat_answered(arrived.now, usize::from(info.path.0));
        if silent && (self.config.silent_probing.is_some() || self.probed) {
            self.silence_ended(arrived.now);
            self.probed = false;
        }
        self.errors = 0;
    }

    /// What was sent on a path has been acknowledged. Data that was sent again measures nothing
    /// (RFC 9260 section 6.3.1, rule C5): where the path has been away, a heartbeat shows how long
    /// a round trip is now that nothing waits there.
    pub(super) fn answered_by_data(&mut self, index: usize) {
        let leaves_silent = self.multipath().is_some_and(|m| m.leave_silent);
        let path = &mut self.paths[index];
        if leaves_silent && !path.is_active() {
            path.rtt.measure_afresh();
            path.heartbeat.wanted |= path.heartbeat.is_idle();
        }
        self.answered(index);
    }

    /// A path has shown that it works.
    pub(super) fn answered(&mut self, index: usize) {
        let path = &mut self.paths[index];
        if path.state == PathState::Removed {
            return;
        }
        path.mtu.start();
        if path.answered() {
            let (id, route) = (path.id, path.route);
            self.events.push_back(Event::Path { path: id, route, state: PathState::Active });
            self.choose_path();
        }
    }

    /// The source that is not a path has sent back our nonce: if it is the same layer, the peer's
    /// address has changed under a path; else it is one more path.
    ///
    /// No packet shows which path that is. Of those that lead to the same address it is the one
    /// from which nothing has come for longest: a box that gives all mappings of a host other ports
    /// changes several at once, and each is taken for itself then.
    fn adopt(&mut self, arrived: &Arrived, nonce: u64) {
        let Some(candidate) = self.candidate.filter(|c| c.sent && c.nonce == nonce && c.route == arrived.route) else {
            return;
        };
        self.candidate = None;
        let (route, current) = (candidate.route, self.current);
        let near = |i: &usize| self.paths[*i].route.layer == route.layer && self.paths[*i].state != PathState::Removed;
        let same = |i: &usize| near(i) && self.paths[*i].route.remote.ip() == route.remote.ip();
        let age = |i: &usize| (self.paths[*i].several.as_ref().and_then(|s| s.last_received), *i != current);
        let moved = (0..self.paths.len()).filter(same).min_by_key(age).or_else(|| Some(current).filter(near));
        let silent = self.is_silent();
        match moved {
            Some(index) => {
                let path = &mut self.paths[index];
                path.route = candidate.route;
                // The way is another one (section 7.2.5.2), with a round trip of its own: that of
                // the next heartbeat, because this one may have waited behind what was sent the old
                // way.
                path.rtt = Rtt::new(self.config.rto);
                path.heartbeat.wanted = true;
                if let Some(several) = &mut path.several {
                    several.shows_from = Some(arrived.now);
                }
                path.cc = self.config.recovery.congestion(path.cc.mss());
                path.mtu = crate::path::Search::new(path.mtu.most(), self.config.base_packet, self.config.search_mtu);
                path.mtu.start();
                path.recovery = None;
                let (id, route) = (path.id, path.route);
                self.routes_changed = true;
                path.answered();
                self.events.push_back(Event::Path { path: id, route, state: PathState::Active });
                self.adjust_size(index);
                if silent && self.config.silent_probing.is_some() {
                    self.silence_ended(arrived.now);
                }
            }
            None => {
                let room = self.paths[self.current].mtu.most();
                if let Some(index) = self.add_path(candidate.route, room, PathState::Unconfirmed) {
                    self.paths[index].rtt.sample(arrived.now - candidate.sent_at);
                    self.answered(index);
                }
            }
        }
    }

    /// A transmission on a path was not answered. Counts it, and for the association too if `all`.
    pub(super) fn failed(&mut self, index: usize, all: bool) {
        let several = self.live_paths().nth(1).is_some();
        let doubt = self.config.potentially_failed.filter(|_| several);
        let path = &mut self.paths[index];
        if path.fail(self.config.max_path_retransmits, doubt) {
            let (id, route, state) = (path.id, path.route, path.state);
            // One heartbeat at once, and then one each RTO.
            path.heartbeat.wanted |= state == PathState::PotentiallyFailed;
            if state == PathState::Inactive {
                path.mtu.stop();
            }
            self.events.push_back(Event::Path { path: id, route, state });
            if state == PathState::PotentiallyFailed {
                let last = self.paths.iter().map(Path::doubted).max().unwrap_or(0);
                if let Some(several) = &mut self.paths[index].several {
                    several.doubted = last + 1;
                }
            }
            self.choose_path();
        } else if !self.paths[self.current].is_active() {
            self.choose_path();
        }
        self.switch_primary(index);
        if all {
            self.errors += 1;
            // As long as all paths are probed the peer is not given up: with each path more, errors
            // come faster (RFC 7829 section 4).
            if self.errors > self.config.max_association_retransmits && !self.probing {
                self.close(CloseReason::Unreachable);
            }
        }
    }

    /// After many errors on the preferred path the one that is used in its place becomes the
    /// preferred one: permanent failover (RFC 7829 section 5).
    fn switch_primary(&mut self, index: usize) {
        let over = self.config.primary_switchover.is_some_and(|limit| self.paths[index].errors > limit);
        if over && index == self.preferred && self.current != index && self.paths[self.current].is_active() {
            self.preferred = self.current;
        }
    }

    /// Chooses where data goes: the preferred path while it is active, else the active one with the
    /// fewest errors, else of those in doubt the one with the fewest (RFC 7829 section 3.2), else
    /// it stays where there is a path.
    pub(super) fn choose_path(&mut self) {
        let active = |i: &usize| self.paths[*i].is_active();
        let doubted = |i: &usize| self.paths[*i].is_usable();
        // Of equal ones, the one that was active last (Natarajan 2009, section 4.3.1).
        let last = |i: &usize| core::cmp::Reverse(self.paths[*i].doubted());
        let fewest = |i: &usize| (self.paths[*i].errors, last(i), *i != self.current, *i);
        let best = Some(self.preferred)
            .filter(active)
            .or_else(|| (0..self.paths.len()).filter(active).min_by_key(fewest))
            .or_else(|| (0..self.paths.len()).filter(doubted).min_by_key(fewest))
            .or_else(|| {
                // Where nothing is known to work and the one of now is gone; what is not confirmed
                // takes no data (section 5.4).
                let gone = self.paths[self.current].state == PathState::Removed;
                (0..self.paths.len()).filter(|i| gone && self.paths[*i].state == PathState::Inactive).min_by_key(fewest)
            });
        if let Some(best) = best.filter(|b| *b != self.current) {
            self.current = best;
            self.paths[best].refill_burst();
            self.events.push_back(Event::PrimaryPath { path: self.paths[best].id });
        }
    }

    /// Another active path than this one, for retransmissions after a timeout (section 6.4.1).
    pub(super) fn alternate(&self, index: usize) -> Option<usize> {
        let others = (0..self.paths.len()).filter(|i| *i != index && self.paths[*i].is_active());
        others.min_by_key(|i| (self.paths[*i].errors, *i))
    }

    /// A path answers after none did: what was sent into the dark goes that way, and need not wait
    /// for timers that were doubled meanwhile.
    fn silence_ended(&mut self, now: Instant) {
        self.discount_earlier(now);
        for index in 0..self.paths.len() {
            self.lose_all_on(index);
            self.paths[index].t3 = None;
        }
        // It was acknowledged by no path either, and no timer would send it again.
        self.outbox.forward |= self.out.has_advanced();
    }

    /// What was sent before now shows nothing of any path; see [`Path::shows`].
    fn discount_earlier(&mut self, now: Instant) {
        for several in self.paths.iter_mut().filter_map(|p| p.several.as_mut()) {
            several.shows_from = Some(now);
        }
    }

    /// An acknowledgement comes. If no path has answered for long it is of what was sent before
    /// that, or of what the timers sent into the dark on one path after another: which of them
    /// works now, heartbeats show.
    pub(super) fn acknowledged_in_silence(&mut self, now: Instant) {
        let long = self.silent_since < now && now - self.silent_since > LONG_SILENCE;
        if long && self.config.silent_probing.is_some() && self.is_silent() {
            self.discount_earlier(now);
        }
    }

    /// Whether a heartbeat is to be sent on a path now.
    pub(super) fn may_ask(&self, path: &Path) -> bool {
        path.heartbeat.wanted && (path.state != PathState::Unconfirmed || self.credit >= QUESTION)
    }

    /// The interval of probes while no path answers, as long as they are sent.
    fn silence(&mut self, now: Instant) -> Option<core::time::Duration> {
        let probing = self.config.silent_probing?;
        self.probing = false;
        if !self.is_silent() {
            self.silent_since = Instant::FAR_FUTURE;
            return None;
        }
        self.silent_since = self.silent_since.min(now);
        let lasts = now < self.silent_since + probing.lasting;
        self.probing = lasts;
        lasts.then_some(probing.interval)
    }

    /// All paths that do not answer are probed at once: there is a reason to believe that one does.
    pub(crate) fn probe_paths(&mut self) {
        (self.silent_since, self.probed) = (Instant::FAR_FUTURE, true);
        for path in &mut self.paths {
            path.heartbeat.wanted |=
                matches!(path.state, PathState::PotentiallyFailed | PathState::Inactive | PathState::Unconfirmed);
        }
    }

    /// The heartbeat timers of all paths.
    pub(super) fn heartbeat_timers(&mut self, now: Instant, rng: &mut Rng) {
        let silence = self.silence(now);
        for index in 0..self.paths.len() {
            self.paths[index].mtu.timeout(now);
            self.adjust_size(index);
            let path = &mut self.paths[index];
            if path.heartbeat.take_lost(now) {
                path.rtt.back_off();
                let counts = path.state != PathState::Unconfirmed && index == self.current;
                self.failed(index, counts);
                if self.is_closed() {
                    return;
                }
                // While it is in doubt one follows the other: one each RTO.
                let path = &mut self.paths[index];
                path.heartbeat.wanted |= path.state == PathState::PotentiallyFailed;
            }
            let interval = self.config.heartbeat_interval(self.paths[index].route);
            let path = &mut self.paths[index];
            let silent = silence.filter(|_| path.state != PathState::Removed);
            path.heartbeat.wanted |= path.heartbeat.take_repeat(now, silent);
            if path.heartbeat.take_due(now) {
                let wait = path.heartbeat_interval(interval, rng);
                // A path that was used in the meantime was measured by that: it has been idle only
                // since then.
                let used = path.heartbeat.used_at().filter(|_| path.state == PathState::Active);
                let later = wait.zip(used).map(|(w, used)| used + w).filter(|at| *at > now);
                path.heartbeat.wanted |= wait.is_some() && later.is_none();
                path.heartbeat.schedule(now, later.or_else(|| wait.map(|w| now + w)));
                if self.rx.is_empty() && self.out.is_empty() {
                    self.rx.trim();
                    self.out.trim();
                    self.queues.trim();
                }
            }
        }
    }
}
