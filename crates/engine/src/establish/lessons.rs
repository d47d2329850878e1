//! What establishments teach: which candidates were no good, so that the next race puts them back.
//!
//! *Responsible for* deciding what counts against a candidate. It does where something else has won, so that it is the
//! candidate and not the network, and while the host is still attached to the same network; trouble of this host's own
//! (descriptors, buffers, ports) counts against nobody. *Not responsible for* how long that is remembered, nor for what a
//! race makes of it (`neater-race`).

use super::{Attempt, Establishing};
use crate::carrier::SessionId;
use crate::carrier::blame::{Failure, cause_of, ended_by_refusal, is_refusal};
use crate::carrier::establish::Silent;
use crate::conn::Conn;
use crate::event::{AttemptError, ConnectionError};
use crate::measured::Tried;
use crate::request::Compiled;
use crate::{Engine, Stack};
use core::hash::BuildHasher;
use core::num::NonZeroU64;
use core::time::Duration;
use neater_base::net::Net;
use neater_base::{Instant, Key};
use neater_race::{BadCause, CacheKey, CandidateOutcome, Lesson, MAX_ATTEMPT_DELAY, PathId, StackId};
use std::net::SocketAddr;
use std::sync::Arc;

/// A connection that fails this soon after set-up, with nothing received, counts as an attempt that failed.
const EARLY_DEATH: Duration = Duration::from_secs(5);
/// How long a peer has to answer before its silence counts against it: as long as TCP and QUIC themselves wait before they
/// doubt that a packet has arrived (RFC 6298 section 2, RFC 9002 section 6.2.2: 1 s each). A path of 400 ms, or a lost answer
/// on a shorter one, needs most of it; the attempt delay, which only starts the next candidate, would condemn them all.
pub(super) const FAIR_TIME: Duration = Duration::from_secs(1);
/// And at least this many round trips of the candidate that won.
const FAIR_ROUND_TRIPS: u32 = 4;
/// How long a peer that has answered may take over the next step of its handshake, at least, and in its own round trips: it
/// includes a loss and its repair. In a race it is held for two, the next one takes two over its handshake, and waits for two more at last.
const STALL_TIME: Duration = Duration::from_millis(250);
const STALL_ROUND_TRIPS: u32 = 6;

/// Attempts that were withdrawn before their time: they are closed, but an answer that is under way is still reported by their
/// carriers.
#[derive(Debug, Default)]
pub(crate) struct Trials(Vec<(SessionId, Trial)>);

impl Trials {
    /// The trial of a withdrawn attempt, which is over.
    fn take(&mut self, session: SessionId) -> Option<Trial> {
        let at = self.0.iter().position(|(of, _)| *of == session)?;
        Some(self.0.swap_remove(at).1)
    }
}

/// An attempt that was withdrawn before its time.
#[derive(Debug)]
struct Trial {
    network: NonZeroU64,
    key: CacheKey,
    lesson: Lesson,
    /// Where it was tried, for policies that want to know.
    tried: Option<Box<Tried>>,
    /// What was asked for.
    request: Arc<Compiled>,
}

/// What a race that was won teaches about the others.
#[derive(Debug, Default)]
pub(super) struct Lessons {
    /// What has got through.
    pub(super) won: Option<(CacheKey, StackId, SocketAddr)>,
    /// How long its peer took to its first answer.
    pub(super) answered_after: Option<Duration>,
    /// Which remote endpoint was reached, and by which interface if the connection is bound to one.
    pub(super) by: Option<(usize, Option<u32>)>,
    now: Vec<(CacheKey, Lesson, PathId)>,
    /// Remote endpoint and interface of each path, as for `by`.
    paths: Vec<(usize, Option<u32>)>,
    /// Attempts whose time is up later.
    trials: Vec<(SessionId, CacheKey, Lesson, PathId, Instant)>,
}

/// Where marks of a path's candidates are kept: where its outcome would be, had the race no other path.
fn path_key(c: &Conn, est: &Establishing, path: PathId) -> Option<CacheKey> {
    let path = est.paths.get(usize::from(path.0))?;
    let mut key = c.cache_key_of(est.network, path.remote)?;
    if let Some(interface) = path.interface {
        // By another interface it is another network.
        key.network = foldhash::fast::FixedState::with_seed(key.network).hash_one(interface);
    }
    Some(key)
}

/// A lesson about a candidate that lost. A winner by the same path shows what need not be suspected.
fn lesson(stack: Stack, addr: SocketAddr, cause: BadCause, winner: Option<(Stack, SocketAddr)>) -> Lesson {
    let silent = cause == BadCause::Silent;
    Lesson {
        suspect_group: silent && winner.is_none_or(|w| stack.may_be_blocked() != w.0.may_be_blocked()),
        suspect_family: silent && winner.is_none_or(|w| addr.is_ipv4() != w.1.is_ipv4()),
        ..Lesson::new(StackId(stack as u16), addr, cause)
    }
}

impl<N: Net> Engine<N> {
    /// Where outcomes of this connection are remembered, if the host is still where it was when it was initiated.
    pub(super) fn lesson_key(&self, c: &Conn) -> Option<CacheKey> {
        c.cache_key().filter(|_| c.network == self.network)
    }

    /// Tells a race what earlier ones say against its candidates.
    pub(super) fn heed_lessons(&mut self, conn: Key) {
        let now = self.cx.now;
        let Some(c) = self.conns.get(conn) else { return };
        let Some(est) = c.est.as_deref() else { return };
        let paths = (0..est.paths.len() as u16).map(PathId);
        let keys: Vec<_> = paths.filter_map(|path| Some((path, path_key(c, est, path)?))).collect();
        let (conns, outcomes) = (&mut self.conns, &self.outcomes);
        let Some(est) = conns.get_mut(conn).and_then(|c| c.est.as_deref_mut()) else { return };
        for (path, key) in keys {
            est.race.heed(path, outcomes.marks(now, &key).copied());
        }
    }

    /// The cached outcome, tried again, has failed.
    pub(super) fn note_cached_failure(&mut self, conn: Key, error: &AttemptError) {
        let Some(key) = self.conns.get(conn).and_then(|c| self.lesson_key(c)) else { return };
        match cause_of(error, false) {
            Some(cause) => self.outcomes.record_failure(self.cx.now, key, cause),
            // Nobody is blamed, and nobody goes there first any more.
            None if is_refusal(error) => self.outcomes.expire_by(&key, self.cx.now),
            None => {}
        }
    }

    /// What a race teaches that `winner` has won, before the others are withdrawn.
    pub(super) fn lessons_of(&self, conn: Key, est: &Establishing, winner: SessionId) -> Lessons {
        let mut lessons = Lessons::default();
        let (Some(won), Some(c)) = (self.carriers.describe(winner), self.conns.get(conn)) else { return lessons };
        if self.network != Some(est.network) {
            return lessons;
        }
        let report = est.race.report();
        let of = |a: &Attempt| report.iter().find(|r| Some(r.candidate.id) == a.candidate);
        let entry = report.iter().find(|r| r.outcome == CandidateOutcome::Won);
        // Without an entry, it is the cached outcome, and there is one path.
        let won_path = entry.map_or(PathId(0), |r| r.candidate.path);
        let won_rtt = entry.and_then(|r| r.rtt);
        let handshake = entry.and_then(|r| Some(r.established_at? - r.started_at?));
        lessons.answered_after = won_rtt.or(handshake);
        lessons.by = est.paths.get(usize::from(won_path.0)).map(|path| (path.remote, path.interface));
        lessons.paths = est.paths.iter().map(|path| (path.remote, path.interface)).collect();
        lessons.won = path_key(c, est, won_path).map(|key| (key, StackId(won.0 as u16), won.1));
        let fair = FAIR_TIME.max(won_rtt.unwrap_or_default() * FAIR_ROUND_TRIPS).min(MAX_ATTEMPT_DELAY);
        let lesson = |path, stack, addr, cause| lesson(stack, addr, cause, (path == won_path).then_some(won));
        for r in &report {
            if let CandidateOutcome::Failed(e) = &r.outcome
                && let Some(cause) = cause_of(e, r.reachable_at.is_some())
                && let Some(key) = path_key(c, est, r.candidate.path)
                && let Some(stack) = Stack::from_number(r.candidate.stack.0)
            {
                let path = r.candidate.path;
                lessons.now.push((key, lesson(path, stack, r.candidate.addr, cause), path));
            }
        }
        for a in est.attempts.iter().filter(|a| a.session != winner) {
            let report = of(a);
            if report.is_some_and(|r| r.established_at.is_some()) {
                continue;
            }
            let path = report.map_or(PathId(0), |r| r.candidate.path);
            let Some(key) = path_key(c, est, path) else { continue };
            let silent = lesson(path, a.stack, a.addr, BadCause::Silent);
            let Some(is_silent) = self.carriers.is_silent(self.cx.now, a.session, fair) else { continue };
            match is_silent {
                Silent::No => {}
                Silent::Yes => lessons.now.push((key, silent, path)),
                Silent::UnlessAnsweredBy(due) => lessons.trials.push((a.session, key, silent, path, due)),
            }
            if let Some(r) = report
                && let (Some(at), Some(rtt)) = (r.reachable_at, r.rtt)
                && self.cx.now - at >= STALL_TIME.max(rtt * STALL_ROUND_TRIPS)
            {
                lessons.now.push((key, lesson(path, a.stack, a.addr, BadCause::Stalled), path));
            }
        }
        lessons
    }

    /// Remembers what a race has taught, after its winner was recorded and the others were withdrawn.
    pub(super) fn learn(&mut self, conn: Key, lessons: Lessons) {
        let (now, Some(network)) = (self.cx.now, self.network) else { return };
        if let Some((key, stack, addr)) = lessons.won {
            self.outcomes.record_answer(&key, stack, addr);
        }
        for (key, lesson, path) in lessons.now {
            self.outcomes.record_bad(now, key, lesson);
            if let Some(tried) = self.tried_by(conn, &lessons.paths, path, lesson.stack) {
                self.report_outcome(&tried, false);
            }
        }
        let Some(request) = self.conns.get(conn).map(|c| c.request.clone()) else { return };
        for (session, key, lesson, path, due) in lessons.trials {
            let tried = self.tried_by(conn, &lessons.paths, path, lesson.stack).map(Box::new);
            if self.carriers.put_on_trial(&mut self.cx, session, due) {
                let request = request.clone();
                self.trials.0.push((session, Trial { network, key, lesson, tried, request }));
            }
        }
        let Some(c) = self.conns.get(conn) else { return };
        if let Some(key) = self.lesson_key(c) {
            self.give_way(key, &request.stacks);
        }
    }

    /// The way of an attempt, for policies that want to know.
    fn tried_by(&mut self, conn: Key, paths: &[(usize, Option<u32>)], path: PathId, stack: StackId) -> Option<Tried> {
        self.policies.are_asked().then_some(())?;
        let (remote, interface) = *paths.get(usize::from(path.0))?;
        self.tried(conn, remote, interface, Stack::from_number(stack.0)?)
    }

    /// What won is tried no longer than until something better may be worth another try.
    fn give_way(&mut self, key: CacheKey, ranking: &[Stack]) {
        let rank = |s: StackId| ranking.iter().position(|r| *r as u16 == s.0);
        self.outcomes.give_way(self.cx.now, &key, |a, b| rank(a) < rank(b));
    }

    /// The peer of a withdrawn attempt has not answered in its time.
    pub(crate) fn trial_failed(&mut self, session: SessionId) {
        let Some(trial) = self.trials.take(session) else { return };
        if self.network == Some(trial.network) {
            self.outcomes.record_bad(self.cx.now, trial.key, trial.lesson);
            self.give_way(trial.key, &trial.request.stacks);
            if let Some(tried) = &trial.tried {
                self.report_outcome(tried, false);
            }
        }
    }

    /// The peer of a withdrawn attempt has answered within its time.
    pub(crate) fn trial_passed(&mut self, session: SessionId) {
        if let Some(trial) = self.trials.take(session) {
            self.outcomes.record_answer(&trial.key, trial.lesson.stack, trial.lesson.addr);
        }
    }

    /// A withdrawn attempt is gone before its time was over, and shows nothing.
    pub(crate) fn trial_without_end(&mut self, session: SessionId) {
        drop(self.trials.take(session));
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
        let own = || c.bytes_received != 0 || c.fast.lane_bytes().1 != 0;
        let fruitful = self.carriers.has_carried(c.flow).unwrap_or_else(own);
        if fruitful || self.cx.now - c.since >= patience {
            return;
        }
        self.note_death(conn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_winner_shares_with_a_silent_candidate_is_not_suspected() {
        let v6: SocketAddr = "[2001:db8::1]:443".parse().unwrap();
        let v4: SocketAddr = "192.0.2.1:443".parse().unwrap();
        let suspected = |stack, addr, cause, winner| {
            let l = lesson(stack, addr, cause, Some(winner));
            (l.suspect_group, l.suspect_family)
        };
        let silent = BadCause::Silent;
        assert_eq!(suspected(Stack::Quic, v6, silent, (Stack::Tls, v4)), (true, true));
        assert_eq!(suspected(Stack::Quic, v6, silent, (Stack::Quic, v4)), (false, true));
        assert_eq!(suspected(Stack::Quic, v4, silent, (Stack::Tls, v4)), (true, false));
        assert_eq!(suspected(Stack::Quic, v6, BadCause::Failed, (Stack::Tls, v4)), (false, false));
        let elsewhere = lesson(Stack::Quic, v4, silent, None);
        assert!(elsewhere.suspect_group && elsewhere.suspect_family, "a winner by another path shows nothing");
    }
}
