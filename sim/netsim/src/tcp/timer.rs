//! The timers of a connection, by name.

use super::Conn;
use super::state::State;
use core::time::Duration;
use neater_base::Instant;
use neater_base::net::ErrorKind;

/// How often a SYN is sent before the attempt fails: after 1 + 2 + 4 + 8 + 16 + 32 = 63 s.
pub(crate) const SYN_TRIES: u32 = 6;
/// How often a SYN with ACK is sent (Linux: tcp_synack_retries is 5).
pub(crate) const SYN_ACK_TRIES: u32 = 6;
/// How often the same segment is sent again by the timer before the connection fails (RFC 9293 section 3.8.3, R2).
pub(crate) const DATA_TRIES: u32 = 15;
/// The same once the application has let go (Linux: tcp_orphan_retries).
pub(crate) const ORPHAN_TRIES: u32 = 8;
/// Keep-alive probes without an answer before the connection fails (Linux: tcp_keepalive_probes).
pub(crate) const KEEP_ALIVE_PROBES: u32 = 9;
/// The maximum segment lifetime. RFC 9293 section 3.4.2 says two minutes; Linux waits 60 s, twice this.
pub(crate) const MSL: Duration = Duration::from_secs(30);
/// How long an abandoned connection waits in FIN-WAIT-2 (Linux: tcp_fin_timeout).
pub(crate) const FIN_WAIT_2_TIMEOUT: Duration = Duration::from_secs(60);
/// The most time between two window probes.
const MAX_PERSIST: Duration = Duration::from_secs(60);

/// What the timer for what is in flight will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// The retransmission timeout (RFC 6298).
    Timeout,
    /// A tail loss probe (RFC 8985 section 7).
    Probe,
    /// What may have been reordered is lost now (RFC 8985 section 6.3).
    Reorder,
}

/// Deadlines and counts of expiry.
#[derive(Clone, Debug)]
pub(crate) struct Timers {
    retransmit: Option<(Instant, Alarm)>,
    /// When the next paced segment may leave.
    pub(crate) pace: Option<Instant>,
    /// How often the retransmission timer has expired without progress; for a SYN, without an answer.
    pub(crate) retransmit_tries: u32,
    persist: Option<Instant>,
    persist_tries: u32,
    /// Probes since the peer was last heard of.
    unanswered: u32,
    /// TIME-WAIT, or FIN-WAIT-2 of an abandoned connection.
    linger: Option<Instant>,
    last_heard: Instant,
}

impl Timers {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            retransmit: None,
            pace: None,
            retransmit_tries: 0,
            persist: None,
            persist_tries: 0,
            unanswered: 0,
            linger: None,
            last_heard: now,
        }
    }

    pub(crate) fn retransmit_is_running(&self) -> bool {
        self.retransmit.is_some()
    }

    pub(crate) fn alarm(&self) -> Option<Alarm> {
        self.retransmit.map(|(_, alarm)| alarm)
    }

    pub(crate) fn set_alarm(&mut self, alarm: Alarm, at: Instant) {
        self.retransmit = Some((at, alarm));
    }

    pub(crate) fn stop_retransmit(&mut self) {
        self.retransmit = None;
    }

    pub(crate) fn persist_is_running(&self) -> bool {
        self.persist.is_some()
    }

    pub(crate) fn start_persist(&mut self, now: Instant, rto: Duration) {
        let wait = rto.saturating_mul(1 << self.persist_tries.min(16)).min(MAX_PERSIST);
        self.persist = Some(now + wait);
    }

    pub(crate) fn stop_persist(&mut self) {
        self.persist = None;
        self.persist_tries = 0;
    }

    pub(crate) fn start_linger(&mut self, at: Instant) {
        self.linger = Some(at);
    }

    /// How long ago a segment of the peer last came.
    pub(crate) fn last_heard(&self, now: Instant) -> Duration {
        now.saturating_since(self.last_heard)
    }

    /// How often the peer was asked since it was last heard of, or had anything retransmitted to it without progress.
    pub(crate) const fn unanswered(&self) -> u32 {
        self.unanswered + self.retransmit_tries
    }

    /// A segment of the peer has come.
    pub(crate) fn heard(&mut self, now: Instant) {
        self.last_heard = now;
        self.unanswered = 0;
    }

    pub(crate) fn stop(&mut self) {
        *self = Self::new(self.last_heard);
    }
}

fn due(at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|t| t <= now)
}

impl Conn {
    /// When [`Conn::on_timeout`] must be called.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let t = &self.timers;
        let retransmit = t.retransmit.map(|(at, _)| at);
        let own = [retransmit, t.pace, t.persist, t.linger, self.rcv.ack_at, self.keep_alive_at(), self.give_up_at()];
        own.into_iter().flatten().min()
    }

    /// Does what is due; nothing if nothing is.
    pub(crate) fn on_timeout(&mut self, now: Instant) {
        if due(self.timers.linger, now) {
            return self.end();
        }
        if due(self.give_up_at(), now) {
            return self.time_out();
        }
        if due(self.rcv.ack_at, now) {
            self.send_ack(now);
        }
        if due(self.timers.pace, now) {
            self.timers.pace = None;
            self.transmit(now);
        }
        if let Some((at, alarm)) = self.timers.retransmit
            && at <= now
        {
            match alarm {
                Alarm::Timeout => self.on_retransmit(now),
                Alarm::Probe => {
                    self.send_tail_probe(now);
                    self.transmit(now);
                }
                Alarm::Reorder => self.on_reorder_alarm(now),
            }
        }
        if due(self.timers.persist, now) {
            self.on_persist(now);
        }
        if due(self.keep_alive_at(), now) {
            self.on_keep_alive(now);
        }
    }

    /// When unacknowledged data have waited for the whole user timeout.
    fn give_up_at(&self) -> Option<Instant> {
        Some(self.snd.stalled_since? + self.options.user_timeout?)
    }

    /// When the next keep-alive probe is due: only while nothing else would find out that the peer is gone.
    fn keep_alive_at(&self) -> Option<Instant> {
        let idle = self.options.keep_alive?;
        let open = matches!(self.state, State::Established | State::CloseWait | State::FinWait2);
        if !open || self.timers.retransmit.is_some() || self.timers.persist.is_some() {
            return None;
        }
        let interval = (idle / 10).max(Duration::from_secs(1));
        Some(self.timers.last_heard + idle + interval.saturating_mul(self.timers.unanswered))
    }

    fn on_retransmit(&mut self, now: Instant) {
        self.timers.retransmit_tries += 1;
        let tries = self.timers.retransmit_tries;
        match self.state {
            State::SynSent if tries >= SYN_TRIES => self.time_out(),
            State::SynReceived if tries >= SYN_ACK_TRIES => self.time_out(),
            State::SynSent | State::SynReceived => {
                self.rtt.back_off();
                self.send_syn(now);
            }
            _ if tries > if self.orphan { ORPHAN_TRIES } else { DATA_TRIES } => self.time_out(),
            _ => {
                self.enter_loss(now, tries);
                self.rtt.back_off();
                self.timers.set_alarm(Alarm::Timeout, now + self.rtt.rto());
                // What else is lost follows as the window grows again.
                self.resend_first(now);
                self.transmit(now);
            }
        }
    }

    /// What waited for a reordered segment has waited long enough.
    fn on_reorder_alarm(&mut self, now: Instant) {
        self.timers.stop_retransmit();
        let lost = self.find_lost_by_timer(now);
        if lost > 0 && !self.is_recovering() {
            self.enter_recovery(now);
            self.cc_quota(now, lost);
        }
        self.transmit(now);
        if !self.timers.retransmit_is_running() {
            self.arm_timeout(now, false);
        }
    }

    fn on_persist(&mut self, now: Instant) {
        self.timers.persist_tries += 1;
        self.timers.unanswered += 1;
        let hopeless = self.orphan && self.timers.persist_tries > ORPHAN_TRIES;
        if hopeless || self.timers.unanswered > DATA_TRIES {
            return self.time_out();
        }
        self.send_probe(now);
        self.timers.start_persist(now, self.rtt.rto());
    }

    fn on_keep_alive(&mut self, now: Instant) {
        let silence = now - self.timers.last_heard;
        let impatient = self.options.user_timeout.is_some_and(|t| self.timers.unanswered > 0 && silence >= t);
        if impatient || self.timers.unanswered >= KEEP_ALIVE_PROBES {
            self.send_reset();
            return self.time_out();
        }
        self.timers.unanswered += 1;
        self.send_keep_alive(now);
    }

    /// The peer does not answer: the reason is what a router said, if one did.
    fn time_out(&mut self) {
        self.fail(self.soft_error.unwrap_or(ErrorKind::TimedOut));
    }

    /// TIME-WAIT lasts two segment lifetimes (RFC 9293 section 3.6.1), from the last time the peer's FIN was seen.
    pub(super) fn start_time_wait(&mut self, now: Instant) {
        self.timers.stop();
        self.timers.start_linger(now + MSL * 2);
        self.snd.clear();
    }

    /// Nobody will read what an abandoned connection would receive: it does not wait for the peer's FIN for ever.
    pub(super) fn linger_if_orphan(&mut self, now: Instant) {
        if self.orphan && self.state == State::FinWait2 && self.timers.linger.is_none() {
            self.timers.start_linger(now + FIN_WAIT_2_TIMEOUT);
        }
    }
}
