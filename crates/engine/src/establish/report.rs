//! What is told of an establishment: every candidate, and what earlier ones say against it.

use super::Establishing;
use crate::event::{CandidateOutcome, Doubt, Fate, Step};
use crate::{Engine, Stack};
use neater_base::Key;
use neater_base::net::Net;
use neater_race::Candidate;

impl<N: Net> Engine<N> {
    pub(super) fn outcomes_of(&self, est: &Establishing, conn: Key) -> Vec<CandidateOutcome> {
        use neater_race::CandidateOutcome as O;
        let began = self.conns.get(conn).map_or(self.cx.now, |c| c.since);
        est.race
            .report()
            .into_iter()
            .filter_map(|r| {
                Some(CandidateOutcome {
                    stack: Stack::from_number(r.candidate.stack.0)?,
                    addr: r.candidate.addr,
                    started: r.started_at.map(|t| t - began),
                    reachable: r.reachable_at.map(|t| t - began),
                    ended: r.ended_at.map(|t| t - began),
                    doubt: r.doubt.map(|d| self.in_words(&d)),
                    fate: match r.outcome {
                        O::NotStarted | O::Superseded => Fate::NotStarted,
                        O::Running | O::Established => Fate::Running,
                        O::Won => Fate::Won,
                        O::Cancelled => Fate::Withdrawn,
                        O::Failed(e) => Fate::Failed(e),
                    },
                })
            })
            .collect()
    }

    /// A candidate has come up that stands behind others.
    pub(super) fn doubted(&mut self, conn: Key, candidate: &Candidate, doubt: &neater_race::Doubt) {
        let Some(stack) = Stack::from_number(candidate.stack.0) else { return };
        let doubt = self.in_words(doubt);
        self.step(conn, Step::Doubted { stack, addr: candidate.addr, doubt });
    }

    /// A doubt of the race in the engine's terms.
    fn in_words(&self, doubt: &neater_race::Doubt) -> Doubt {
        let lesson = &doubt.mark.lesson;
        let of = Stack::from_number(lesson.stack.0).map(|stack| (stack, lesson.addr));
        Doubt {
            cause: lesson.cause,
            ago: self.cx.now.saturating_since(doubt.mark.since),
            of: of.filter(|_| !doubt.own),
        }
    }
}
