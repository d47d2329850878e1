//! The timers of an association.

use super::{Association, State};
use crate::event::CloseReason;
use neater_base::{Instant, Rng};
use neater_sctp_wire::cause::ProtocolViolation;

impl Association {
    /// The earliest deadline: when [`Association::handle_timeout`] or
    /// [`Association::poll_transmit`] has something to do.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        if self.is_closed() {
            return None;
        }
        let t = &self.timers;
        let paced = self.paths.iter().any(|p| p.paced_until.is_some());
        let idle = !self.out.any_in_flight() && !self.out.has_lost() && !self.queues.is_empty() && !paced;
        let probe = t.window_probe.filter(|_| idle && self.is_sending() && !self.is_numbered_out());
        let expiry = self.first_expiry();
        let answering = self.is_receiving();
        let sack = if answering { self.rx.arrivals.deadline() } else { None };
        let hopeless = self.hopeless_at();
        let rescue = self.concurrent.as_ref().and_then(|c| c.rescue_at).filter(|_| self.is_sending());
        let own = [t.t1, t.t2, t.guard, t.reconfig, t.asconf, probe, expiry, sack, hopeless, rescue]
            .into_iter()
            .flatten()
            .min();
        let paths =
            self.paths.iter().filter_map(|p| [p.next_timeout(), p.paced_until].into_iter().flatten().min()).min();
        [own, paths].into_iter().flatten().min()
    }

    /// When the application has waited long enough for an acknowledgment of what is outstanding, or
    /// for any packet. A peer whose window is closed cannot be judged: probes of it become seldom.
    fn hopeless_at(&self) -> Option<Instant> {
        let unanswered = self.patience.filter(|_| !self.out.is_empty() && self.peer_window > 0);
        let opening = matches!(self.state, State::CookieWait | State::CookieEchoed(_));
        let silent = self.silence.filter(|_| !opening).map(|s| self.heard + s);
        [unanswered.map(|p| self.unanswered + p), silent].into_iter().flatten().min()
    }

    /// Does what is due. Early or repeated calls have no effect.
    pub(crate) fn handle_timeout(&mut self, now: Instant, rng: &mut Rng) {
        if self.is_closed() {
            return;
        }
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.hopeless_at()) {
            return self.close(CloseReason::Unreachable);
        }
        if due(self.timers.t1) {
            self.t1_timeout();
        }
        if due(self.timers.t2) {
            self.t2_timeout();
        }
        if due(self.timers.guard) {
            let causes = [ProtocolViolation(b"shutdown takes too long").into()];
            self.abort_with(&causes, CloseReason::ShutdownTimeout);
        }
        if due(self.timers.reconfig) {
            self.reconfig_timeout();
        }
        if due(self.timers.asconf) && !self.is_closed() {
            self.asconf_timeout();
        }
        if due(self.first_expiry()) {
            self.expire(now);
        }
        self.leave_silent_paths(now);
        for index in 0..self.paths.len() {
            if due(self.paths[index].reorder) {
                self.reorder_timeout(now, index);
            }
            if due(self.paths[index].tail.due) {
                self.tail_probe(now, index);
            }
            // A probe takes the place of the timeout (RFC 8985 section 7.3).
            if due(self.paths[index].t3) && !self.is_closed() {
                self.t3_timeout(now, index);
            }
        }
        if !self.is_closed() {
            self.heartbeat_timers(now, rng);
        }
    }

    /// T1-init or T1-cookie (section 5.1): the chunk once more, on the next path if there are
    /// several.
    fn t1_timeout(&mut self) {
        self.timers.t1 = None;
        self.tries += 1;
        if self.tries > self.config.max_init_retransmits {
            return self.close(CloseReason::Unreachable);
        }
        self.paths[self.current].rtt.back_off();
        if matches!(self.state, State::CookieEchoed(_)) {
            self.lose_everything();
        } else {
            let usable = (1..=self.paths.len()).map(|i| (self.current + i) % self.paths.len());
            let next = usable.into_iter().find(|i| self.paths[*i].is_active());
            self.current = next.unwrap_or(self.current);
        }
        self.outbox.state = true;
    }

    /// T2-shutdown (section 9.2).
    fn t2_timeout(&mut self) {
        self.timers.t2 = None;
        self.tries += 1;
        let current = self.current;
        self.paths[current].rtt.back_off();
        if self.tries > self.config.max_association_retransmits {
            return self.close(CloseReason::Unreachable);
        }
        self.outbox.state = true;
        self.failed(current, false);
    }
}
