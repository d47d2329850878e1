//! What establishments teach: which candidates were no good, so that the next race puts them back.
//!
//! *Responsible for* deciding what counts against a candidate. It does where something else has won, so that it is the
//! candidate and not the network, and while the host is still attached to the same network; trouble of this host's own
//! (descriptors, buffers, ports) counts against nobody. *Not responsible for* how long that is remembered, nor for what a
//! race makes of it (`neater-race`).

use super::refusal::{ended_by_refusal, is_refusal};
use super::{Attempt, Establishing};
use crate::carrier::dispatch::CarrierTimer;
use crate::carrier::{FlowId, SessionId};
use crate::conn::Conn;
use crate::event::{AttemptError, ConnectionError};
use crate::measured::Tried;
use crate::{Engine, Stack};
use core::hash::BuildHasher;
use core::num::NonZeroU64;
use core::time::Duration;
use neater_base::net::{ErrorKind, Net, NetError};
use neater_base::{Instant, Key};
use neater_quic::{ConnectionApi, QuicError};
use neater_race::{BadCause, CacheKey, CandidateOutcome, CandidateReport, Lesson, MAX_ATTEMPT_DELAY, PathId, StackId};
use std::net::SocketAddr;

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

/// A QUIC attempt that was withdrawn before its time: it is closed, but an answer that is under way will still be seen.
#[derive(Debug)]
pub(crate) struct Trial {
    network: NonZeroU64,
    key: CacheKey,
    lesson: Lesson,
    /// Where it was tried, for policies that want to know.
    tried: Option<Box<Tried>>,
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
    /// Attempts over QUIC and SCTP whose time is up later.
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

/// Whether an error of an attempt tells of the way to the peer, or of the peer.
fn tells(error: &AttemptError) -> bool {
    match error {
        AttemptError::Net(e) => of_the_path(e),
        AttemptError::Quic(e) => !matches!(e, QuicError::LocallyClosed | QuicError::Configuration(_)),
        AttemptError::Sctp(e) => *e != neater_sctp::CloseReason::Aborted,
        AttemptError::Tls(_) | AttemptError::TimedOut | AttemptError::ClosedByPeer | AttemptError::NotOffered(_) => {
            true
        }
        AttemptError::Resolve(_) | AttemptError::Framer(_) | AttemptError::NoAddress | AttemptError::PeerRefused => {
            false
        }
    }
}

fn of_the_path(e: &NetError) -> bool {
    use ErrorKind as K;
    matches!(
        e.kind,
        K::ConnectionRefused
            | K::ConnectionReset
            | K::TimedOut
            | K::NetworkUnreachable
            | K::HostUnreachable
            | K::PermissionDenied
            | K::BrokenPipe
    )
}

/// What is wrong with an attempt that ended with this error; `None`: nothing that is the candidate's fault, or nothing that may be
/// made a lesson of (see [`super::refusal`]).
fn cause_of(error: &AttemptError, answered: bool) -> Option<BadCause> {
    if is_refusal(error) {
        return None;
    }
    let timed_out = matches!(error, AttemptError::TimedOut)
        || matches!(error, AttemptError::Net(e) if e.kind == ErrorKind::TimedOut);
    match (timed_out, answered) {
        (true, true) => Some(BadCause::Stalled),
        (true, false) => Some(BadCause::Silent),
        _ => tells(error).then_some(BadCause::Failed),
    }
}

/// A lesson about a candidate that lost. A winner by the same path shows what need not be suspected.
fn lesson(stack: Stack, addr: SocketAddr, cause: BadCause, winner: Option<(Stack, SocketAddr)>) -> Lesson {
    let silent = cause == BadCause::Silent;
    Lesson {
        suspect_group: silent && winner.is_none_or(|w| stack.over_udp() != w.0.over_udp()),
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
        let (Some(won), Some(c)) = (self.describe(winner), self.conns.get(conn)) else { return lessons };
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
            {
                let path = r.candidate.path;
                lessons.now.push((key, lesson(path, stack_of(r), r.candidate.addr, cause), path));
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
            match a.session {
                SessionId::Channel(k) => {
                    let Some(ch) = self.carriers.channels.get(k) else { continue };
                    if !ch.connected && self.cx.now - ch.started >= fair {
                        lessons.now.push((key, silent, path));
                    }
                }
                SessionId::Quic(k) => {
                    let Some(q) = self.carriers.quic.connections.get(k) else { continue };
                    if q.answered_after(self.cx.now).is_none() {
                        lessons.trials.push((a.session, key, silent, path, q.started + fair));
                    }
                }
                SessionId::Sctp(k) => {
                    let Some(s) = self.carriers.sctp.associations.get(k) else { continue };
                    let answered = s.answered_after(self.cx.now).is_some();
                    if s.stack == Stack::SctpDtls {
                        // It is withdrawn with its session.
                        if !answered && self.cx.now - s.started >= fair {
                            lessons.now.push((key, silent, path));
                        }
                    } else if !answered {
                        lessons.trials.push((a.session, key, silent, path, s.started + fair));
                    }
                }
                SessionId::Dtls(k) => {
                    if self.carriers.dtls.sessions.get(k).is_some_and(|d| d.silent_since(self.cx.now, fair)) {
                        lessons.now.push((key, silent, path));
                    }
                }
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
        for (session, key, lesson, path, due) in lessons.trials {
            let tried = self.tried_by(conn, &lessons.paths, path, lesson.stack).map(Box::new);
            let trial = Trial { network, key, lesson, tried };
            match session {
                SessionId::Quic(quic) => {
                    if let Some(q) = self.carriers.quic.connections.get_mut(quic) {
                        q.trial = Some(Box::new(trial));
                        self.cx.timers.push(due.max(now), CarrierTimer::quic_trial(quic));
                    }
                }
                SessionId::Sctp(sctp) => self.sctp_try(sctp, trial, due),
                SessionId::Channel(_) | SessionId::Dtls(_) => {}
            }
        }
        let Some(c) = self.conns.get(conn) else { return };
        if let Some(key) = self.lesson_key(c) {
            let request = c.request.clone();
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

    /// The time of a withdrawn QUIC attempt is up: it was silent.
    pub(crate) fn trial_over(&mut self, quic: Key) {
        let Some(q) = self.carriers.quic.connections.get_mut(quic) else { return };
        let Some(trial) = q.trial.take() else { return };
        let request = q.request.clone();
        self.trial_failed(&trial, &request);
    }

    /// Nobody has answered a withdrawn attempt in its time.
    pub(crate) fn trial_failed(&mut self, trial: &Trial, request: &crate::request::Compiled) {
        if self.network == Some(trial.network) {
            self.outcomes.record_bad(self.cx.now, trial.key, trial.lesson);
            self.give_way(trial.key, &request.stacks);
            if let Some(tried) = &trial.tried {
                self.report_outcome(tried, false);
            }
        }
    }

    /// The peer of a withdrawn QUIC attempt has answered within its time.
    pub(crate) fn trial_passed(&mut self, trial: &Trial) {
        self.outcomes.record_answer(&trial.key, trial.lesson.stack, trial.lesson.addr);
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
        let patience = match error {
            ConnectionError::Quic(QuicError::TimedOut) => {
                let idle = c.request.setups.idle_timeout(true);
                EARLY_DEATH.saturating_add(idle.unwrap_or_default())
            }
            ConnectionError::TimedOut => EARLY_DEATH.saturating_add(timeout),
            ConnectionError::Net(e) if e.kind == ErrorKind::TimedOut => EARLY_DEATH.saturating_add(timeout),
            ConnectionError::Net(e) if of_the_path(e) => EARLY_DEATH,
            ConnectionError::Quic(e) if !matches!(e, QuicError::LocallyClosed | QuicError::Configuration(_)) => {
                EARLY_DEATH
            }
            ConnectionError::Sctp(e) if *e != neater_sctp::CloseReason::Aborted => EARLY_DEATH,
            ConnectionError::Tls(_) | ConnectionError::Truncated => EARLY_DEATH,
            _ => return,
        };
        // Whatever has come back on any stream shows that the session carries data.
        let fruitful = match c.flow {
            FlowId::Stream { quic, .. } | FlowId::StreamPending { quic } | FlowId::Datagrams { quic } => {
                self.carriers.quic.connections.get(quic).is_some_and(|q| q.conn.stats().data_frames > 0)
            }
            FlowId::Sctp { sctp, .. } => self.sctp_has_heard(sctp),
            _ => c.bytes_received != 0 || c.fast.lane_bytes().1 != 0,
        };
        if fruitful || self.cx.now - c.since >= patience {
            return;
        }
        self.note_death(conn);
    }
}

fn stack_of<F>(r: &CandidateReport<F>) -> Stack {
    Stack::from_number(r.candidate.stack.0).unwrap_or(Stack::Tcp)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(kind: ErrorKind) -> AttemptError {
        AttemptError::Net(kind.into())
    }

    #[test]
    fn trouble_of_this_host_counts_against_nobody() {
        use ErrorKind as K;
        for kind in [K::TooManyFiles, K::NoBuffers, K::AddrInUse, K::InvalidInput, K::Forked, K::Unsupported] {
            assert_eq!(cause_of(&net(kind), false), None, "{kind:?}");
        }
        assert_eq!(cause_of(&AttemptError::Quic(QuicError::LocallyClosed), true), None);
        assert_eq!(cause_of(&net(K::ConnectionRefused), false), Some(BadCause::Failed));
        assert_eq!(cause_of(&net(K::TimedOut), false), Some(BadCause::Silent));
        assert_eq!(cause_of(&AttemptError::TimedOut, true), Some(BadCause::Stalled));
    }

    #[test]
    fn who_is_not_the_one_that_was_meant_is_no_lesson() {
        use neater_tls::TlsError;
        let quic = |alert| QuicError::Tls { alert: Some(alert), reason: String::new() };
        for refusal in [TlsError::NotPinned, TlsError::RefusedByApplication, TlsError::UnknownIssuer] {
            assert_eq!(cause_of(&AttemptError::Tls(refusal), true), None, "stacks without security would go first");
        }
        assert_eq!(cause_of(&AttemptError::Quic(quic(46)), true), None);
        assert_eq!(cause_of(&AttemptError::Tls(TlsError::Decrypt), true), Some(BadCause::Failed));
        assert_eq!(cause_of(&AttemptError::Quic(quic(40)), true), Some(BadCause::Failed));
        assert!(
            ended_by_refusal(&ConnectionError::Quic(quic(42))) && !ended_by_refusal(&ConnectionError::Quic(quic(80)))
        );
    }

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
