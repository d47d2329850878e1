//! NewReno: how much may be in flight (RFC 5681, RFC 6582), without SACK.
//!
//! *Responsible for* the congestion window and the bookkeeping of a recovery. *Not responsible for* what is sent or
//! sent again: `output.rs` and `ack.rs` ask and tell. Windows are in bytes.

use super::segment::Seq;

/// Initial window in segments (RFC 6928 section 2).
pub(crate) const INITIAL_WINDOW_SEGMENTS: u64 = 10;
/// Duplicate acknowledgments that mean a loss (RFC 5681 section 3.2).
pub(crate) const DUP_THRESHOLD: u32 = 3;

/// The state of the congestion controller.
#[derive(Clone, Debug)]
pub(crate) struct Congestion {
    smss: u64,
    cwnd: u64,
    ssthresh: u64,
    /// Bytes acknowledged since the window last grew in congestion avoidance.
    counted: u64,
    /// The position after the highest byte sent when the last recovery began or the last timeout happened.
    recover: Seq,
    recovery: Option<Recovery>,
    dup_acks: u32,
}

#[derive(Clone, Copy, Debug)]
struct Recovery {
    /// Whether a partial acknowledgment has been seen: only the first one restarts the timer.
    partial: bool,
}

/// What the sender must do after an acknowledgment of new data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckAction {
    /// Nothing special: restart the retransmission timer.
    Normal,
    /// Send the first unacknowledged segment again, and restart the timer if `restart_timer`.
    Retransmit { restart_timer: bool },
}

impl Congestion {
    /// `iss` is the initial sequence number. RFC 6582 would set `recover` to it and so forbid a fast retransmit of the
    /// first data segment; one less allows it.
    pub(crate) fn new(smss: u64, iss: Seq) -> Self {
        Self {
            smss,
            cwnd: INITIAL_WINDOW_SEGMENTS * smss,
            ssthresh: u64::MAX / 4,
            counted: 0,
            recover: iss,
            recovery: None,
            dup_acks: 0,
        }
    }

    pub(crate) fn window(&self) -> u64 {
        self.cwnd
    }

    /// How much more than the window may be sent: one segment for each of the first two duplicates (RFC 5681 section
    /// 3.2, step 1).
    pub(crate) fn limited_transmit(&self) -> u64 {
        if self.recovery.is_some() { 0 } else { u64::from(self.dup_acks.min(2)) * self.smss }
    }

    /// The segment size has changed.
    pub(crate) fn set_smss(&mut self, smss: u64) {
        // RFC 5681 section 3.1: after path MTU discovery the window shrinks by the same ratio.
        self.cwnd = (self.cwnd * smss / self.smss.max(1)).max(smss);
        self.smss = smss;
    }

    /// The SYN or its answer had to be sent again: "the initial window used by a sender after a correctly transmitted
    /// SYN MUST be one segment" (RFC 5681 section 3.1).
    pub(crate) fn syn_was_lost(&mut self) {
        self.cwnd = self.smss;
    }

    /// Nothing was sent for longer than a retransmission timeout (RFC 5681 section 4.1).
    pub(crate) fn restart_after_idle(&mut self) {
        self.cwnd = self.cwnd.min(INITIAL_WINDOW_SEGMENTS * self.smss);
    }

    /// `acked` new bytes are acknowledged up to `una`; `flight` is what remains outstanding; `limited` says whether the
    /// window was what held the sender back, without which it does not grow.
    pub(crate) fn on_ack(&mut self, una: Seq, acked: u64, flight: u64, limited: bool) -> AckAction {
        self.dup_acks = 0;
        let Some(recovery) = &mut self.recovery else {
            if limited {
                self.grow(acked);
            }
            return AckAction::Normal;
        };
        if una >= self.recover {
            // Full acknowledgment, option 1 of RFC 6582 section 3.2: no burst follows.
            self.cwnd = self.ssthresh.min(flight.max(self.smss) + self.smss);
            self.recovery = None;
            self.counted = 0;
            return AckAction::Normal;
        }
        let restart_timer = !recovery.partial;
        recovery.partial = true;
        self.cwnd = self.cwnd.saturating_sub(acked);
        if acked >= self.smss {
            self.cwnd += self.smss;
        }
        self.cwnd = self.cwnd.max(self.smss);
        AckAction::Retransmit { restart_timer }
    }

    fn grow(&mut self, acked: u64) {
        if self.cwnd < self.ssthresh {
            self.cwnd += acked.min(self.smss);
            return;
        }
        self.counted += acked;
        if self.counted >= self.cwnd {
            self.counted -= self.cwnd;
            self.cwnd += self.smss;
        }
    }

    /// A duplicate acknowledgment of `una`, with `flight` bytes up to `max` outstanding. True: the first unacknowledged
    /// segment is lost and must be sent again.
    pub(crate) fn on_duplicate(&mut self, una: Seq, flight: u64, max: Seq) -> bool {
        self.dup_acks = self.dup_acks.saturating_add(1);
        if self.recovery.is_some() {
            // RFC 5681 section 3.2, step 4; bounded by what can have left the network.
            self.cwnd = (self.cwnd + self.smss).min(self.ssthresh.saturating_add(flight));
            return false;
        }
        // RFC 6582 section 3.2, step 2: only losses among what was sent after the last recovery are new.
        if self.dup_acks != DUP_THRESHOLD || una <= self.recover {
            return false;
        }
        // What limited transmit has added does not count (RFC 5681 section 3.2, step 2).
        self.halve(flight.saturating_sub(2 * self.smss).max(flight / 2));
        self.recover = max;
        self.cwnd = self.ssthresh + u64::from(DUP_THRESHOLD) * self.smss;
        self.recovery = Some(Recovery { partial: false });
        true
    }

    /// The retransmission timer has expired with `flight` bytes up to `max` outstanding; `first` unless the same segment
    /// was already sent again by the timer.
    pub(crate) fn on_timeout(&mut self, flight: u64, max: Seq, first: bool) {
        if first {
            self.halve(flight);
        }
        self.cwnd = self.smss;
        self.recover = max;
        self.recovery = None;
        self.dup_acks = 0;
        self.counted = 0;
    }

    /// Equation 4 of RFC 5681 section 3.1.
    fn halve(&mut self, flight: u64) {
        self.ssthresh = (flight / 2).max(2 * self.smss);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cc() -> Congestion {
        Congestion::new(1000, Seq(1))
    }

    #[test]
    fn slow_start_grows_by_a_segment_per_acknowledgment_and_avoidance_by_one_per_window() {
        let mut c = cc();
        assert_eq!(c.window(), 10_000);
        c.on_ack(Seq(2001), 2000, 8000, true);
        assert_eq!(c.window(), 11_000);
        c.ssthresh = 11_000;
        for i in 0..10 {
            c.on_ack(Seq(3001 + i * 1000), 1000, 8000, true);
        }
        assert_eq!(c.window(), 11_000);
        c.on_ack(Seq(14_001), 1000, 8000, true);
        assert_eq!(c.window(), 12_000);
    }

    #[test]
    fn a_window_that_was_not_used_does_not_grow() {
        let mut c = cc();
        c.on_ack(Seq(2001), 2000, 0, false);
        assert_eq!(c.window(), 10_000);
    }

    #[test]
    fn the_third_duplicate_starts_a_recovery_that_a_full_acknowledgment_ends() {
        let mut c = cc();
        assert!(!c.on_duplicate(Seq(2), 10_000, Seq(10_002)));
        assert_eq!(c.limited_transmit(), 1000);
        assert!(!c.on_duplicate(Seq(2), 10_000, Seq(10_002)));
        assert!(c.on_duplicate(Seq(2), 10_000, Seq(10_002)));
        assert_eq!((c.window(), c.limited_transmit()), (4000 + 3000, 0));
        assert!(!c.on_duplicate(Seq(2), 10_000, Seq(10_002)));
        assert_eq!(c.window(), 8000);
        let partial = c.on_ack(Seq(2002), 2000, 8000, true);
        assert_eq!(partial, AckAction::Retransmit { restart_timer: true });
        assert_eq!(c.window(), 7000);
        assert_eq!(c.on_ack(Seq(4002), 2000, 6000, true), AckAction::Retransmit { restart_timer: false });
        assert_eq!(c.on_ack(Seq(10_002), 6000, 2000, true), AckAction::Normal);
        assert_eq!(c.window(), 3000);
    }

    #[test]
    fn duplicates_of_what_was_sent_before_a_timeout_start_nothing() {
        let mut c = cc();
        c.on_timeout(10_000, Seq(10_002), true);
        assert_eq!(c.window(), 1000);
        assert!((0..10).all(|_| !c.on_duplicate(Seq(5002), 5000, Seq(10_002))));
        c.on_ack(Seq(12_002), 7000, 3000, true);
        assert!((0..3).any(|_| c.on_duplicate(Seq(12_002), 3000, Seq(15_002))));
    }

    #[test]
    fn a_second_timeout_of_the_same_segment_leaves_the_threshold() {
        let mut c = cc();
        c.on_timeout(20_000, Seq(20_002), true);
        assert_eq!(c.ssthresh, 10_000);
        c.on_timeout(1000, Seq(20_002), false);
        assert_eq!(c.ssthresh, 10_000);
    }

    #[test]
    fn an_idle_connection_restarts_from_the_initial_window_at_most() {
        let mut c = cc();
        c.cwnd = 50_000;
        c.restart_after_idle();
        assert_eq!(c.window(), 10_000);
        c.cwnd = 3000;
        c.restart_after_idle();
        assert_eq!(c.window(), 3000);
    }
}
