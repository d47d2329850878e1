//! How races end.
//!
//! The end of establishment: one attempt has won and all others are withdrawn, none is left, or it
//! is taken back.

use crate::carrier::terms::Abandoned;
use crate::carrier::terms::Taken;
use crate::carrier::{FlowId, SessionId};
use crate::conn::ConnectionState;
use crate::establish::Establishing;
use crate::event::{CandidateOutcome, ConnectionError, Doubt, EstablishmentError, Event, Fate, Reason, Step};
use crate::framer_handshake::HandOver;
use crate::timer::Timer;
use crate::{Engine, Stack};
use core::time::Duration;
use neater_base::Key;
use neater_base::net::Net;
use neater_race::{Candidate, CandidateId, Outcome, Output, PathId, StackId};

impl<N: Net> Engine<N> {
    pub(crate) fn won(&mut self, conn: Key, candidate: Option<CandidateId>) {
        let Some(est) = self.est(conn) else { return };
        let Some(i) = est.attempts.iter().position(|a| a.candidate == candidate) else { return };
        let winner = est.attempts.swap_remove(i);
        self.step(conn, Step::Chosen { stack: winner.stack, addr: winner.addr });
        self.become_established(conn, winner.session);
    }

    /// The connection gets its transport; all other attempts are withdrawn.
    pub(crate) fn become_established(&mut self, conn: Key, session: SessionId) {
        let Some((stack, addr)) = self.carriers.describe(session) else { return };
        let now = self.cx.now;
        let Some(c) = self.conns.get_mut(conn) else { return };
        let est = c.est.take();
        let raced = est.is_some();
        let penalties = est.as_ref().map(|est| self.penalties_of(conn, est, session)).unwrap_or_default();
        if let Some(mut est) = est {
            // The race still has cancellations to report.
            while let Some(output) = est.race.poll_output(now) {
                if let Output::Cancel(id) = output
                    && let Some(i) = est.attempts.iter().position(|a| a.candidate == Some(id))
                {
                    let attempt = est.attempts.swap_remove(i);
                    self.carriers.release_attempt(&mut self.cx, attempt.session, true);
                    self.step(conn, Step::Withdrawn { stack: attempt.stack, addr: attempt.addr });
                }
            }
            for attempt in est.attempts.iter().filter(|a| a.session != session) {
                self.carriers.release_attempt(&mut self.cx, attempt.session, true);
            }
            for id in &est.lookups {
                self.names.abandon(&mut self.cx, *id);
            }
            let mut report = self.outcomes_of(&est, conn);
            // It may have become another one than it was started as.
            report.iter_mut().filter(|c| c.fate == Fate::Won).for_each(|c| c.stack = stack);
            if let Some(c) = self.conns.get_mut(conn) {
                c.cold().candidates = report;
            }
        }
        let Some(c) = self.conns.get_mut(conn) else { return };
        c.stack = Some(stack);
        c.since = now;
        let establishment = c.since - c.began;
        self.take(conn, session);
        // An outcome that was reused is not recorded again: a full race follows when its lifetime
        // ends.
        let cache_key = self.conns.get(conn).and_then(|c| self.penalty_key(c));
        // That a stack without a handshake was chosen beside others shows only that those were
        // silent then.
        let shown = self.conns.get(conn).is_some_and(|c| stack.has_handshake() || c.request.has_no_handshake());
        if let Some(key) = cache_key.filter(|_| raced && shown) {
            let rtt = penalties.answered_after.unwrap_or(establishment);
            let outcome = Outcome::new(StackId(stack as u16), addr, PathId(0), Some(rtt));
            self.outcomes.record_success(now, key, outcome);
            if let Some(until) = self.resolved_until(conn, addr.is_ipv4()) {
                self.outcomes.expire_by(&key, until);
            }
        }
        if let (Some(network), Some((key, ..))) = (self.network, penalties.won)
            && let Some(c) = self.conns.get_mut(conn).filter(|c| c.network.is_none())
        {
            c.cold().outcome_key = Some((network, key));
        }
        // A cached outcome that was tried alone is of the one remote endpoint, and binds nothing.
        // How long its peer took to answer is known where nothing stood above the answer.
        let alone = (!raced).then_some((0, None));
        let answered_alone = (!raced && stack.is_established_by_answer()).then_some(establishment);
        let (answered_after, by) = (penalties.answered_after.or(answered_alone), penalties.by.or(alone));
        self.learn(conn, penalties);
        self.enter_established(conn);
        if self.policies.are_asked() {
            self.follow_flow(conn, by, answered_after);
        }
        self.take_early(conn, session);
    }

    /// Makes what an attempt has led to the flow of its connection.
    pub(crate) fn take(&mut self, conn: Key, session: SessionId) {
        if session.is_shared() {
            return self.session_won(conn, session);
        }
        let Taken { flow, first, .. } = self.carriers.take(session, conn);
        if let Some(c) = self.conns.get_mut(conn) {
            c.flow = flow;
        }
        if first {
            self.first_was_taken(conn);
        }
    }

    /// Takes what the peer sent while the race was being decided.
    pub(crate) fn take_early(&mut self, conn: Key, session: SessionId) {
        if session.may_hold_more() {
            self.accept_streams(session);
            self.accept_datagrams(session);
        }
        self.carriers.take_early(&mut self.cx, session, conn);
    }

    /// The last step into [`ConnectionState::Established`], for initiated, accepted and cloned
    /// connections alike.
    pub(crate) fn enter_established(&mut self, conn: Key) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        if c.flow.waits_on().is_some() {
            return;
        }
        if (c.framed() || c.request.framer.frames()) && !self.begin_framing(conn, HandOver::Opener) {
            return;
        }
        self.now_established(conn);
    }

    /// The connection is ready, and so is its framer.
    pub(crate) fn now_established(&mut self, conn: Key) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        self.cx.stats.established += 1;
        c.state = ConnectionState::Established;
        if c.request.rates != (None, None) {
            self.begin_rates(conn);
        }
        let Some(c) = self.conns.get_mut(conn) else { return };
        let waited_for = !c.send.is_open() || c.wants_room || c.close_wanted;
        let plain = !c.request.framer.frames() && c.cold.is_none() && c.tx.is_empty();
        if plain && !waited_for {
            return self.notify(conn, Event::Ready);
        }
        if self.conns.get(conn).is_some_and(|c| c.stack.is_some_and(|s| !s.is_stream())) {
            self.fit_datagrams(conn);
        }
        self.notify(conn, Event::Ready);
        self.after_established(conn);
    }

    pub(crate) fn lost(&mut self, conn: Key) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        let late = self.cx.now - c.since >= c.request.timeout.unwrap_or(Duration::MAX);
        let deadline = c.request.timeout.map(|t| c.since + t);
        // The cached outcome may still be waiting for its peer; it is all there is now, so let it.
        if !late && c.est.as_ref().is_some_and(|e| e.attempts.iter().any(|a| a.candidate.is_none())) {
            if let Some(at) = deadline {
                self.cx.timers.push(at, Timer::Race(conn));
            }
            return;
        }
        let Some(est) = c.est.take() else { return };
        for attempt in &est.attempts {
            self.carriers.release_attempt(&mut self.cx, attempt.session, true);
        }
        for id in &est.lookups {
            self.names.abandon(&mut self.cx, *id);
        }
        let candidates = self.outcomes_of(&est, conn);
        let resolution: Vec<String> = est
            .race
            .resolution_report()
            .into_iter()
            .filter_map(|r| match r.state {
                neater_race::ResolutionState::Failed { reason, .. } => {
                    Some(format!("{}: {reason}", crate::names::record_name(r.record)))
                }
                neater_race::ResolutionState::Answered { count: 0, .. } => {
                    // Most names have no HTTPS record, and need none.
                    let none = || format!("{}: the name has none", crate::names::record_name(r.record));
                    (r.record != neater_race::Record::Services).then(none)
                }
                _ => None,
            })
            .collect();
        let Some(c) = self.conns.get(conn) else { return };
        let to: Vec<String> = c.remotes.iter().map(ToString::to_string).collect();
        let to = to.join(" or ");
        let (reason, message) = if self.is_planned(conn, &candidates) {
            (Reason::Planned, format!("what would be tried for {to}, if no peer answered"))
        } else if late && est.has_deadline {
            (Reason::Timeout, format!("{to} did not answer in the time allowed"))
        } else if candidates.is_empty() && !resolution.is_empty() {
            (Reason::ResolutionFailed, format!("{to} has no address that can be used"))
        } else if candidates.is_empty() {
            (Reason::NoCandidates, format!("nothing to try for {to}"))
        } else {
            (Reason::EstablishmentFailed, format!("no candidate for {to} could be established"))
        };
        let excluded = c.request.policy.excluded.iter().map(ToString::to_string).collect();
        self.fail(conn, EstablishmentError { reason, message, candidates, excluded, resolution });
    }

    /// Ends a connection that was not established.
    pub(crate) fn fail(&mut self, conn: Key, error: EstablishmentError) {
        self.cx.stats.failed += u64::from(!self.is_plan(conn));
        tracing::debug!(target: "neater::race", connection = ?conn, "{error}");
        if let Some(c) = self.conns.get_mut(conn) {
            c.est = None;
            let flow = core::mem::replace(&mut c.flow, FlowId::None);
            c.cold().candidates.clone_from(&error.candidates);
            if let Some(session) = flow.waits_on() {
                self.close_spare(session);
            }
        }
        self.report_unsent(conn, &ConnectionError::Closed);
        self.notify(conn, Event::EstablishmentError(Box::new(error)));
        self.set_closed(conn);
    }

    /// Takes back a connection that is being established.
    pub(crate) fn cancel_establishment(&mut self, conn: Key) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        let flow = core::mem::replace(&mut c.flow, FlowId::None);
        match self.carriers.abandon(&mut self.cx, conn, flow) {
            Some(Abandoned { spare: Some(session) }) => self.close_spare(session),
            Some(Abandoned { spare: None }) => {}
            // All but the framer was ready.
            None => {
                if let Some(c) = self.conns.get_mut(conn) {
                    c.flow = flow;
                }
                self.detach(conn);
            }
        }
        let Some(est) = self.conns.get_mut(conn).and_then(|c| c.est.take()) else { return };
        for attempt in &est.attempts {
            self.carriers.release_attempt(&mut self.cx, attempt.session, true);
        }
        for id in &est.lookups {
            self.names.abandon(&mut self.cx, *id);
        }
    }

    pub(crate) fn outcomes_of(&self, est: &Establishing, conn: Key) -> Vec<CandidateOutcome> {
        use neater_race::CandidateOutcome as O;
        let began = self.conns.get(conn).map_or(self.cx.now, |c| c.since);
        let remotes = self.conns.get(conn).map_or(&[][..], |c| &c.remotes);
        est.race
            .report()
            .into_iter()
            .filter_map(|r| {
                let stack = Stack::from_number(r.candidate.stack.0)?;
                let path = est.paths.get(usize::from(r.candidate.path.0));
                let named = path.and_then(|p| remotes.get(p.remote)).and_then(|r| r.encapsulation_port);
                Some(CandidateOutcome {
                    stack,
                    addr: r.candidate.addr,
                    encapsulation_port: stack.encapsulation_port(named),
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
    pub(crate) fn doubted(&mut self, conn: Key, candidate: &Candidate, doubt: &neater_race::Doubt) {
        let Some(stack) = Stack::from_number(candidate.stack.0) else { return };
        let doubt = self.in_words(doubt);
        self.step(conn, Step::Doubted { stack, addr: candidate.addr, doubt });
    }

    /// A doubt of the race in the engine's terms.
    pub(crate) fn in_words(&self, doubt: &neater_race::Doubt) -> Doubt {
        let penalty = &doubt.mark.penalty;
        let of = Stack::from_number(penalty.stack.0).map(|stack| (stack, penalty.addr));
        Doubt {
            cause: penalty.cause,
            ago: self.cx.now.saturating_since(doubt.mark.since),
            of: of.filter(|_| !doubt.own),
        }
    }
}
