//! What races and connections teach about candidates.

use crate::carrier::SessionId;
use crate::carrier::blame::{Failure, cause_of, ended_by_refusal, is_refusal};
use crate::carrier::terms::Silent;
use crate::conn::Conn;
use crate::establish::penalties::{FAIR_TIME, Penalties, Trial, penalty};
use crate::establish::rated;
use crate::establish::served::{Carrier, ServiceOutcome};
use crate::establish::{Attempt, Establishing};
use crate::event::{AttemptError, ConnectionError};
use crate::measured::Tried;
use crate::{ConnectionId, Engine, Stack};
use core::hash::BuildHasher;
use core::time::Duration;
use neater_base::Key;
use neater_base::net::Net;
use neater_race::{BadCause, CacheKey, CandidateOutcome, MAX_ATTEMPT_DELAY, PathId, Penalty, RateKey, StackId};

impl<N: Net> Engine<N> {
    /// Where outcomes of this connection are remembered, if the host is still where it was when it
    /// was initiated.
    pub(crate) fn penalty_key(&self, c: &Conn) -> Option<CacheKey> {
        c.cache_key().filter(|_| c.network == self.network)
    }

    /// Passes the outcome history of earlier races to a race, which deprioritises candidates by it.
    pub(crate) fn pass_history(&mut self, conn: Key) {
        let now = self.cx.now;
        let Some(c) = self.conns.get(conn) else { return };
        let Some(est) = c.est.as_deref() else { return };
        let paths = (0..est.paths.len() as u16).map(PathId);
        let keys: Vec<_> = paths.filter_map(|path| Some((path, path_key(c, est, path)?))).collect();
        let (conns, outcomes) = (&mut self.conns, &self.outcomes);
        let Some(est) = conns.get_mut(conn).and_then(|c| c.est.as_deref_mut()) else { return };
        for (path, key) in keys {
            est.race.pass_history(path, outcomes.marks(now, &key).copied());
        }
    }

    /// The cached outcome, tried again, has failed.
    pub(crate) fn note_cached_failure(&mut self, conn: Key, error: &AttemptError) {
        let Some(key) = self.conns.get(conn).and_then(|c| self.penalty_key(c)) else { return };
        match cause_of(error, false) {
            Some(cause) => self.outcomes.record_failure(self.cx.now, key, cause),
            // No candidate is blamed, and none goes there first any more.
            None if is_refusal(error) => self.outcomes.expire_by(&key, self.cx.now),
            None => {}
        }
    }

    /// What a race teaches that `winner` has won, before the others are withdrawn.
    pub(crate) fn penalties_of(&self, conn: Key, est: &Establishing, winner: SessionId) -> Penalties {
        let mut penalties = Penalties::default();
        let (Some(won), Some(c)) = (self.carriers.describe(winner), self.conns.get(conn)) else { return penalties };
        if self.network != Some(est.network) {
            return penalties;
        }
        let report = est.race.report();
        let of = |a: &Attempt| report.iter().find(|r| Some(r.candidate.id) == a.candidate);
        let entry = report.iter().find(|r| r.outcome == CandidateOutcome::Won);
        // Without an entry, it is the cached outcome, and there is one path.
        let won_path = entry.map_or(PathId(0), |r| r.candidate.path);
        let won_rtt = entry.and_then(|r| r.rtt);
        let handshake = entry.and_then(|r| Some(r.established_at? - r.started_at?));
        penalties.answered_after = won_rtt.or(handshake);
        penalties.by = est.paths.get(usize::from(won_path.0)).map(|path| (path.remote, path.interface));
        penalties.paths = est.paths.iter().map(|path| (path.remote, path.interface)).collect();
        penalties.won = path_key(c, est, won_path).map(|key| (key, StackId(won.0 as u16), won.1));
        let fair = FAIR_TIME.max(won_rtt.unwrap_or_default() * FAIR_ROUND_TRIPS).min(MAX_ATTEMPT_DELAY);
        let penalty = |path, stack, addr, cause| penalty(stack, addr, cause, (path == won_path).then_some(won));
        for r in &report {
            if let CandidateOutcome::Failed(e) = &r.outcome
                && let Some(cause) = cause_of(e, r.reachable_at.is_some())
                && let Some(key) = path_key(c, est, r.candidate.path)
                && let Some(stack) = Stack::from_number(r.candidate.stack.0)
            {
                let path = r.candidate.path;
                penalties.now.push((key, penalty(path, stack, r.candidate.addr, cause), path));
            }
        }
        for a in est.attempts.iter().filter(|a| a.session != winner) {
            let report = of(a);
            if report.is_some_and(|r| r.established_at.is_some()) {
                continue;
            }
            let path = report.map_or(PathId(0), |r| r.candidate.path);
            let Some(key) = path_key(c, est, path) else { continue };
            let silent = penalty(path, a.stack, a.addr, BadCause::Silent);
            let Some(is_silent) = self.carriers.is_silent(self.cx.now, a.session, fair) else { continue };
            match is_silent {
                Silent::No => {}
                Silent::Yes => penalties.now.push((key, silent, path)),
                Silent::UnlessAnsweredBy(due) => penalties.trials.push((a.session, key, silent, path, due)),
            }
            if let Some(r) = report
                && let (Some(at), Some(rtt)) = (r.reachable_at, r.rtt)
                && self.cx.now - at >= STALL_TIME.max(rtt * STALL_ROUND_TRIPS)
            {
                penalties.now.push((key, penalty(path, a.stack, a.addr, BadCause::Stalled), path));
            }
        }
        penalties
    }

    /// Remembers what a race has taught, after its winner was recorded and the others were
    /// withdrawn.
    pub(crate) fn learn(&mut self, conn: Key, penalties: Penalties) {
        let (now, Some(network)) = (self.cx.now, self.network) else { return };
        if let Some((key, stack, addr)) = penalties.won {
            self.outcomes.record_answer(&key, stack, addr);
        }
        for (key, penalty, path) in penalties.now {
            self.outcomes.record_bad(now, key, penalty);
            if let Some(tried) = self.tried_by(conn, &penalties.paths, path, penalty.stack) {
                self.report_outcome(&tried, false);
            }
        }
        let Some(request) = self.conns.get(conn).map(|c| c.request.clone()) else { return };
        for (session, key, penalty, path, due) in penalties.trials {
            let tried = self.tried_by(conn, &penalties.paths, path, penalty.stack).map(Box::new);
            if self.carriers.put_on_trial(&mut self.cx, session, due) {
                let request = request.clone();
                self.trials.0.push((session, Trial { network, key, penalty, tried, request }));
            }
        }
        let Some(c) = self.conns.get(conn) else { return };
        if let Some(key) = self.penalty_key(c) {
            self.give_way(key, &request.stacks);
        }
    }

    /// The way of an attempt, for policies that want to know.
    pub(crate) fn tried_by(
        &mut self,
        conn: Key,
        paths: &[(usize, Option<u32>)],
        path: PathId,
        stack: StackId,
    ) -> Option<Tried> {
        self.policies.are_asked().then_some(())?;
        let (remote, interface) = *paths.get(usize::from(path.0))?;
        self.tried(conn, remote, interface, Stack::from_number(stack.0)?)
    }

    /// What won is tried no longer than until something better may be worth another try.
    pub(crate) fn give_way(&mut self, key: CacheKey, ranking: &[Stack]) {
        let rank = |s: StackId| ranking.iter().position(|r| *r as u16 == s.0);
        self.outcomes.give_way(self.cx.now, &key, |a, b| rank(a) < rank(b));
    }

    /// The peer of a withdrawn attempt has not answered in its time.
    pub(crate) fn trial_failed(&mut self, session: SessionId) {
        let Some(trial) = self.trials.take(session) else { return };
        if self.network == Some(trial.network) {
            self.outcomes.record_bad(self.cx.now, trial.key, trial.penalty);
            self.give_way(trial.key, &trial.request.stacks);
            if let Some(tried) = &trial.tried {
                self.report_outcome(tried, false);
            }
        }
    }

    /// The peer of a withdrawn attempt has answered within its time.
    pub(crate) fn trial_passed(&mut self, session: SessionId) {
        if let Some(trial) = self.trials.take(session) {
            self.outcomes.record_answer(&trial.key, trial.penalty.stack, trial.penalty.addr);
        }
    }

    /// A connection has failed so soon after set-up that the outcome of its race was no good.
    ///
    /// Where the error is silence, the silence began that soon after set-up.
    pub(crate) fn note_early_death(&mut self, conn: Key, error: &ConnectionError) {
        let Some(c) = self.conns.get(conn) else { return };
        if ended_by_refusal(error) {
            return;
        }
        // `connTimeout` runs from when the peer fell silent.
        let timeout = c.properties().timeout.unwrap_or_default();
        let patience = match Failure::of(error) {
            Some(Failure::IdleTimeout) => {
                EARLY_DEATH.saturating_add(c.request.setups.idle_timeout(true).unwrap_or_default())
            }
            Some(Failure::Timeout) => EARLY_DEATH.saturating_add(timeout),
            Some(Failure::Broken) => EARLY_DEATH,
            None => return,
        };
        // Whatever has come back on any stream shows that the session carries data.
        let own = || c.bytes_received != 0 || c.fast.direct_bytes().1 != 0;
        let fruitful = self.carriers.has_carried(c.flow).unwrap_or_else(own);
        if fruitful || self.cx.now - c.since >= patience {
            return;
        }
        self.note_death(conn);
    }

    /// What carries an established connection that was initiated here; `None` of any other, such as
    /// one that was received or cloned.
    #[must_use]
    pub fn carrier(&self, conn: ConnectionId) -> Option<Carrier> {
        let c = self.conns.get(conn.0)?;
        let stack = c.stack?;
        let (network, key) = match c.network {
            Some(network) => (network, c.cache_key()?),
            None => c.cold.as_ref()?.outcome_key?,
        };
        // Where the race has found it, wherever it has moved since.
        let addr = if c.flow.may_migrate() { self.carriers.found_at(c.flow)? } else { self.remote_addr(conn)? };
        // Bound to a part of the host it is on another network than others.
        let host = c.network.and_then(|_| rated::host(&c.request, &c.remotes));
        Some(Carrier { network, key, stack, addr, host })
    }

    /// Reports how a connection has served. What is reported against a carrier is advice to later
    /// races to the same endpoint for the same needs on the same network: its outcome is not tried
    /// alone any more, and the others are tried before it, none in the clear before one that is
    /// encrypted. It is never excluded. That lasts a minute, and up to ten when it happens again; a
    /// demand for another protocol lasts ten at once, if it came by a stack that authenticates its
    /// sender.
    ///
    /// A report that comes after the host has moved to another network is dropped.
    pub fn report_service(&mut self, carrier: &Carrier, outcome: ServiceOutcome) {
        self.cx.now = self.cx.net.now();
        self.note_service(carrier, outcome);
    }

    pub(crate) fn note_service(&mut self, carrier: &Carrier, outcome: ServiceOutcome) {
        if self.network != Some(carrier.network) {
            return;
        }
        let Carrier { key, stack, addr, host, .. } = *carrier;
        let id = StackId(stack as u16);
        tracing::debug!(target: "neater::race", %stack, %addr, ?outcome, "how a connection has served");
        let cause = match outcome {
            ServiceOutcome::Answered => return self.outcomes.record_served(&key, id, addr),
            ServiceOutcome::Transferred { bytes, took } => {
                if let Some(host) = host {
                    let key = RateKey { network: key.network, host, stack: id };
                    self.outcomes.record_rate(self.cx.now, key, bytes, took);
                }
                return;
            }
            ServiceOutcome::Silent => BadCause::Unanswered,
            ServiceOutcome::WantsOther if stack.is_secure() => BadCause::WantsOther,
            // In the clear, anything on the path can send that.
            ServiceOutcome::Broken | ServiceOutcome::WantsOther => BadCause::Broken,
        };
        // A peer that does not serve at one of its addresses what networks tend to block will
        // hardly do so at another.
        let penalty = Penalty { suspect_group: stack.may_be_blocked(), ..Penalty::new(id, addr, cause) };
        self.outcomes.record_bad(self.cx.now, key, penalty);
    }

    /// A framer can make nothing of the first that the peer has sent, or its handshake was not
    /// finished.
    pub(crate) fn note_bad_framing(&mut self, conn: Key, error: &ConnectionError) {
        let before = |c: &crate::conn::Conn| {
            c.messages_received == 0 && !c.cold.as_ref().is_some_and(|e| e.receiver.has_delivered())
        };
        let outcome = match error {
            ConnectionError::TimedOut => ServiceOutcome::Silent,
            ConnectionError::Framer(_) => ServiceOutcome::Broken,
            error => return self.note_early_death(conn, error),
        };
        if self.conns.get(conn).is_some_and(before)
            && let Some(carrier) = self.carrier(ConnectionId(conn))
        {
            self.note_service(&carrier, outcome);
        }
    }

    /// A connection was lost before anything had come back.
    pub(crate) fn note_death(&mut self, conn: Key) {
        let Some(carrier) = self.carrier(ConnectionId(conn)).filter(|c| self.network == Some(c.network)) else {
            return;
        };
        let penalty = Penalty::new(StackId(carrier.stack as u16), carrier.addr, BadCause::Died);
        self.outcomes.record_bad(self.cx.now, carrier.key, penalty);
    }
}

/// A connection that fails this soon after set-up, with nothing received, counts as an attempt that
/// failed.
const EARLY_DEATH: Duration = Duration::from_secs(5);

/// And at least this many round trips of the candidate that won.
const FAIR_ROUND_TRIPS: u32 = 4;

/// How long a peer that has answered may take over the next step of its handshake, at least, and in
/// its own round trips: it includes a loss and its repair. In a race it is held for two, the next
/// one takes two over its handshake, and waits for two more at last.
const STALL_TIME: Duration = Duration::from_millis(250);

const STALL_ROUND_TRIPS: u32 = 6;

/// Where marks of a path's candidates are kept: where its outcome would be, had the race no other
/// path.
fn path_key(c: &Conn, est: &Establishing, path: PathId) -> Option<CacheKey> {
    let path = est.paths.get(usize::from(path.0))?;
    let mut key = c.cache_key_of(est.network, path.remote)?;
    if let Some(interface) = path.interface {
        // By another interface it is another network.
        key.network = foldhash::fast::FixedState::with_seed(key.network).hash_one(interface);
    }
    Some(key)
}
