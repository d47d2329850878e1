//! When the receiver acknowledges: at once, with the next segment, or by a timer.

use super::config::DelayedAck;
use core::time::Duration;
use neater_base::Instant;

const MS: Duration = Duration::from_millis(1);
/// Linux: TCP_ATO_MIN and TCP_DELACK_MIN, 40 ms.
pub(crate) const MIN_DELAY: Duration = Duration::from_millis(40);
/// Linux: TCP_DELACK_MAX.
const MAX_DELAY: Duration = Duration::from_millis(200);
/// Linux: TCP_MAX_QUICKACKS, the segments that are acknowledged at once at the beginning.
const QUICK: u64 = 16;
/// Linux: `tcp_comp_sack_delay_ns` and `tcp_comp_sack_nr`.
const COMPRESS: (Duration, u32) = (MS, 44);
/// Duplicate acknowledgments that are never compressed (Linux: TCP_FASTRETRANS_THRESH).
const UNCOMPRESSED: u32 = 3;

/// What arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) now: Instant,
    /// The current retransmission timeout of the connection.
    pub(crate) rto: Duration,
    /// The window that is offered.
    pub(crate) window: u64,
    /// The size of a full segment.
    pub(crate) mss: u64,
}

/// The state of the policy.
#[derive(Clone, Debug)]
pub(crate) struct AckPolicy {
    kind: DelayedAck,
    /// Segments that are still acknowledged at once.
    quick: u64,
    /// The application answers: acknowledgments can wait for its data.
    interactive: bool,
    /// The adaptive delay (`ato`).
    delay: Duration,
    last_data: Option<Instant>,
    /// Acknowledgments sent for segments out of order since `nxt` last moved, and those held back.
    duplicates: u32,
    held: u32,
}

impl AckPolicy {
    pub(crate) fn new(kind: DelayedAck) -> Self {
        Self { kind, quick: 0, interactive: false, delay: Duration::ZERO, last_data: None, duplicates: 0, held: 0 }
    }

    /// In-order data have come.
    pub(crate) fn on_data(&mut self, a: &Arrival) {
        if self.kind != DelayedAck::Linux {
            return;
        }
        self.duplicates = 0;
        match self.last_data {
            None => {
                self.be_quick(QUICK, a);
                self.delay = MIN_DELAY;
            }
            Some(last) => {
                let gap = a.now - last;
                if gap <= MIN_DELAY / 2 {
                    self.delay = self.delay / 2 + MIN_DELAY / 2;
                } else if gap < self.delay {
                    self.delay = (self.delay / 2 + gap).min(a.rto);
                } else if gap > a.rto {
                    // The sender starts slowly again: it needs acknowledgments soon.
                    self.be_quick(QUICK, a);
                }
            }
        }
        self.last_data = Some(a.now);
    }

    /// The next `most` segments are acknowledged at once, but no more than half of a window of them.
    fn be_quick(&mut self, most: u64, a: &Arrival) {
        let half = (a.window / (2 * a.mss.max(1))).max(2);
        self.quick = self.quick.max(half.min(most));
    }

    /// Something unusual came: a gap filled, a duplicate, a mark.
    pub(crate) fn on_oddity(&mut self, a: &Arrival) {
        if self.kind == DelayedAck::Linux {
            self.be_quick(QUICK, a);
            self.interactive = false;
            self.delay = MIN_DELAY;
        }
    }

    /// Whether in-order data are acknowledged at once, `unacked` bytes after the last acknowledgment.
    pub(crate) fn now(&self, unacked: u64, mss: u64) -> bool {
        match self.kind {
            // More than one full segment: the second one.
            DelayedAck::Linux => unacked > mss || (self.quick > 0 && !self.interactive),
            DelayedAck::Fixed { every, .. } => unacked >= u64::from(every.max(1)) * mss,
        }
    }

    /// How long an acknowledgment that may wait does.
    pub(crate) fn wait(&self, srtt: Option<Duration>) -> Duration {
        match self.kind {
            DelayedAck::Fixed { delay, .. } => delay,
            DelayedAck::Linux if self.delay > MIN_DELAY => {
                let most = srtt.map_or(MAX_DELAY, |rtt| rtt.max(MIN_DELAY));
                self.delay.min(most).min(MAX_DELAY)
            }
            DelayedAck::Linux => self.delay.max(MIN_DELAY),
        }
    }

    /// A segment out of order has come: how long its acknowledgment may be held back to be joined with later ones; zero sends
    /// it at once. Only with selective acknowledgments.
    pub(crate) fn compress(&mut self, rtt: Option<Duration>) -> Duration {
        if self.kind != DelayedAck::Linux || self.held >= COMPRESS.1 {
            return Duration::ZERO;
        }
        if self.duplicates < UNCOMPRESSED {
            self.duplicates += 1;
            return Duration::ZERO;
        }
        self.held += 1;
        rtt.map_or(Duration::ZERO, |rtt| COMPRESS.0.min(rtt / 20))
    }

    /// An acknowledgment was sent, with data or without.
    pub(crate) fn on_ack_sent(&mut self) {
        self.held = 0;
        self.quick = self.quick.saturating_sub(1);
    }

    /// Data were sent: soon after some came, it is a conversation.
    pub(crate) fn on_data_sent(&mut self, now: Instant) {
        if self.last_data.is_some_and(|last| now - last < self.delay) {
            self.interactive = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Arrival {
        Arrival { now: Instant::ZERO + MS * ms as u32, rto: MS * 250, window: 65_536, mss: 1000 }
    }

    #[test]
    fn the_first_sixteen_segments_are_acknowledged_at_once_then_every_second() {
        let mut p = AckPolicy::new(DelayedAck::Linux);
        for i in 0..16 {
            p.on_data(&at(100 + i));
            assert!(p.now(1000, 1000), "{i}");
            p.on_ack_sent();
        }
        p.on_data(&at(120));
        assert!(!p.now(1000, 1000) && p.now(2000, 1000));
        assert_eq!(p.wait(None), MIN_DELAY);
    }

    #[test]
    fn a_conversation_waits_for_the_answer() {
        let mut p = AckPolicy::new(DelayedAck::Linux);
        p.on_data(&at(100));
        p.on_data_sent(at(110).now);
        p.on_data(&at(200));
        assert!(!p.now(500, 1000));
    }

    #[test]
    fn a_silence_of_more_than_a_timeout_makes_it_quick_again() {
        let mut p = AckPolicy::new(DelayedAck::Linux);
        (0..30).for_each(|i| {
            p.on_data(&at(100 + i));
            p.on_ack_sent();
        });
        assert!(!p.now(1000, 1000));
        p.on_data(&at(1000));
        assert!(p.now(1000, 1000));
    }

    #[test]
    fn the_delay_adapts_to_slow_data_up_to_its_bound() {
        let mut p = AckPolicy::new(DelayedAck::Linux);
        for i in 0..40 {
            p.on_data(&Arrival { rto: MS * 900, ..at(100 + 39 * i) });
        }
        assert!(p.wait(None) > MS * 70 && p.wait(None) <= MAX_DELAY, "{:?}", p.wait(None));
        assert_eq!(p.wait(Some(MS * 10)), MIN_DELAY);
    }

    #[test]
    fn duplicates_after_the_third_are_held_back_a_twentieth_of_the_round_trip() {
        let mut p = AckPolicy::new(DelayedAck::Linux);
        let waits: Vec<_> = (0..5).map(|_| p.compress(Some(MS * 10))).collect();
        assert_eq!(waits, [Duration::ZERO, Duration::ZERO, Duration::ZERO, MS / 2, MS / 2]);
        assert_eq!(p.compress(Some(MS * 100)), MS);
        p.on_data(&at(500));
        assert_eq!(p.compress(Some(MS * 10)), Duration::ZERO);
    }

    #[test]
    fn a_fixed_policy_counts_full_segments() {
        let mut p = AckPolicy::new(DelayedAck::Fixed { every: 2, delay: MS * 200 });
        p.on_data(&at(1));
        assert!(!p.now(1999, 1000) && p.now(2000, 1000));
        assert_eq!((p.wait(Some(MS)), p.compress(None)), (MS * 200, Duration::ZERO));
    }
}
