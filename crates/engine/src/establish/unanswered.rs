//! Plain UDP beside stacks with a handshake.
//!
//! *Responsible for* when an attempt over UDP counts as established: it has no handshake, and would
//! win every race, whether or not its peer is there and listens (decision 0034). It is chosen when
//! every other candidate has failed, or has had its time and no peer has answered one. *Not
//! responsible for* requests that leave UDP alone: there is nothing to wait for.

use super::Attempt;
use super::lessons::FAIR_TIME;
use crate::conn::ConnectionState;
use crate::timer::Timer;
use crate::{Engine, Stack};
use core::time::Duration;
use neater_base::net::Net;
use neater_base::{Instant, Key};
use neater_race::CandidateOutcome;

/// However many candidates there are, UDP waits no longer for an answer to one of them.
const LONGEST: Duration = Duration::from_secs(5);

/// What is to become of an attempt over UDP.
enum Verdict {
    /// It is established.
    Now,
    /// It is looked at again, unless something happens before.
    At(Instant),
    /// A peer has answered another attempt, which wins or fails.
    Later,
}

impl<N: Net> Engine<N> {
    /// Establishes an attempt over UDP if nothing better is left to hope for.
    pub(crate) fn settle_unanswered(&mut self, conn: Key) {
        let Some((attempt, verdict)) = self.judge_unanswered(conn) else { return };
        match verdict {
            Verdict::Now => self.attempt_established(conn, attempt.candidate, attempt.session),
            Verdict::At(at) => {
                let Some(est) = self.est(conn) else { return };
                if est.unanswered_at.replace(at) != Some(at) {
                    self.cx.timers.push(at, Timer::Race(conn));
                }
            }
            Verdict::Later => {}
        }
    }

    /// The attempt over UDP that waits, if there is one, and what is to become of it.
    fn judge_unanswered(&self, conn: Key) -> Option<(Attempt, Verdict)> {
        let c = self.conns.get(conn).filter(|c| c.state == ConnectionState::Establishing)?;
        let est = c.est.as_deref().filter(|e| !e.beginning && !e.race.is_over())?;
        let silent = |a: &&Attempt| !a.stack.has_handshake() && a.candidate.is_some();
        // The common case: there is none, and no report is made.
        est.attempts.iter().find(silent)?;
        let report = est.race.report();
        let running = |a: &Attempt| {
            let of = report.iter().find(|r| Some(r.candidate.id) == a.candidate);
            of.filter(|r| matches!(r.outcome, CandidateOutcome::Running)).and_then(|r| r.started_at)
        };
        let waiting = est.attempts.iter().filter(silent).find_map(|a| Some((*a, running(a)?)));
        let (attempt, since) = waiting?;

        let mut latest: Option<Instant> = None;
        let mut left = self.names.is_awaited_by(conn, &est.lookups);
        for r in report.iter().filter(|r| Stack::from_number(r.candidate.stack.0).is_none_or(Stack::has_handshake)) {
            match r.outcome {
                CandidateOutcome::NotStarted => left = true,
                CandidateOutcome::Running if r.reachable_at.is_none() => latest = latest.max(r.started_at),
                CandidateOutcome::Running | CandidateOutcome::Established => return Some((attempt, Verdict::Later)),
                _ => {}
            }
        }
        // The cached outcome, which the race has not come to yet.
        for direct in est.attempts.iter().filter(|a| a.candidate.is_none()) {
            if self.carriers.answered_after(self.cx.now, direct.session).is_some() {
                return Some((attempt, Verdict::Later));
            }
            latest = latest.max(Some(c.since));
        }
        let until = match latest {
            None if !left => return Some((attempt, Verdict::Now)),
            Some(latest) if !left => since.max(latest) + FAIR_TIME,
            _ => since + LONGEST,
        };
        let mut until = until.min(since + LONGEST);
        if let Some(timeout) = c.request.timeout {
            until = until.min(since + (c.since + timeout).saturating_since(since) / 2);
        }
        Some((attempt, if until <= self.cx.now { Verdict::Now } else { Verdict::At(until) }))
    }
}
