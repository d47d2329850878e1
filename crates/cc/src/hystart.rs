//! Leaving slow start before the queue overflows: HyStart++ (RFC 9406), and the older HyStart that
//! Linux's CUBIC uses.
//!
//! *Responsible for* deciding when slow start ends, from the round-trip times of rounds of
//! acknowledgments (and, for the older form, from the length of a train of closely spaced ones).
//! *Not responsible for* the window: the controller acts on [`Exit`].

use crate::controller::{Ack, Window};
use core::time::Duration;
use neater_base::Instant;

/// The constants of both forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HyStartConfig {
    /// RFC 9406 with the values recommended in section 4.3.
    PlusPlus {
        /// `CSS_ROUNDS`: conservative slow start lasts at most this many rounds (5).
        css_rounds: u32,
    },
    /// HyStart as in Linux's `tcp_cubic` (Ha and Rhee 2011), by delay and by the length of
    /// acknowledgment trains. It judges nothing below a window of 16 segments.
    Classic {
        /// Whether the transport paces its packets; without pacing half a round-trip time of train
        /// is enough.
        paced: bool,
    },
    /// The same for a transport that paces slow start at four windows per round trip or more: a
    /// flight that nothing holds up then stays well below half a round trip, which is a train that
    /// is too long, as without pacing. And where Linux looks at the first eight samples of a round
    /// alone, because those behind them queue behind their own flight, a paced flight does not: a
    /// queue that stands over any eight samples and takes half the least round-trip time is the
    /// path's.
    Paced,
}

/// What slow start should do after an acknowledgment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Go on doubling.
    No,
    /// Conservative slow start: grow by this divisor more slowly (`CSS_GROWTH_DIVISOR`, RFC 9406
    /// section 4.2).
    Slower(u64),
    /// Congestion avoidance from here.
    Now,
}

/// Samples of a round before its minimum is believed: `N_RTT_SAMPLE` of RFC 9406,
/// `HYSTART_MIN_SAMPLES` of Linux.
const SAMPLES: u32 = 8;
/// `MIN_RTT_THRESH` and `MAX_RTT_THRESH`; Linux has the same.
const THRESHOLD: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(16));
/// `MIN_RTT_DIVISOR`; Linux has the same.
const DIVISOR: u32 = 8;
/// `CSS_GROWTH_DIVISOR`.
const CSS_DIVISOR: u64 = 4;
/// Linux: acknowledgments no further apart than this are one train (`hystart_ack_delta_us`).
const TRAIN_GAP: Duration = Duration::from_millis(2);
/// Linux: what generic segmentation may delay acknowledgments by, at rates below 2 Gbit/s
/// (`hystart_ack_delay`).
const TRAIN_SLACK: Duration = Duration::from_millis(1);
/// Linux: the window, in segments, below which nothing is judged (`hystart_low_window`).
const LOW_WINDOW: u64 = 16;

/// The machine.
#[derive(Clone, Debug)]
pub struct HyStart {
    config: HyStartConfig,
    /// The round is over when data are acknowledged up to here.
    round_end: Option<u64>,
    round_start: Instant,
    last_ack: Instant,
    current: Option<Duration>,
    last: Option<Duration>,
    /// The least round-trip time ever, for the classic form.
    least: Option<Duration>,
    samples: u32,
    /// Samples and their least since it was last judged whether a queue stands.
    standing: (u32, Duration),
    /// Conservative slow start: the baseline that a round must fall below to leave it again, and
    /// the rounds left.
    css: Option<(Duration, u32)>,
}

impl HyStart {
    /// A fresh machine.
    #[must_use]
    pub const fn new(config: HyStartConfig) -> Self {
        Self {
            config,
            round_end: None,
            round_start: Instant::ZERO,
            last_ack: Instant::ZERO,
            current: None,
            last: None,
            least: None,
            samples: 0,
            standing: (0, Duration::MAX),
            css: None,
        }
    }

    /// Restarts after a timeout. What is known of the path's least round-trip time stays.
    pub const fn restart(&mut self) {
        let least = self.least;
        *self = Self::new(self.config);
        self.least = least;
    }

    /// The least round-trip time seen, classic form.
    #[must_use]
    pub const fn least(&self) -> Option<Duration> {
        self.least
    }

    /// Takes an acknowledgment of slow start with this window.
    pub fn on_ack(&mut self, ack: &Ack, window: &Window) -> Exit {
        if self.round_end.is_none_or(|end| ack.acked_to > end) {
            self.new_round(ack);
            if let Some((baseline, rounds)) = self.css {
                if rounds == 0 {
                    return Exit::Now;
                }
                self.css = Some((baseline, rounds - 1));
            }
        }
        match self.config {
            HyStartConfig::PlusPlus { css_rounds } => self.plus_plus(ack, css_rounds),
            HyStartConfig::Classic { paced } => self.classic(ack, window, paced, false),
            HyStartConfig::Paced => self.classic(ack, window, false, true),
        }
    }

    fn new_round(&mut self, ack: &Ack) {
        self.round_end = Some(ack.sent_to);
        self.round_start = ack.now;
        self.last_ack = ack.now;
        self.last = self.current.take();
        self.samples = 0;
    }

    fn plus_plus(&mut self, ack: &Ack, css_rounds: u32) -> Exit {
        if let Some(rtt) = ack.rtt {
            self.current = Some(self.current.map_or(rtt, |c| c.min(rtt)));
            self.samples += 1;
        }
        if let (Some(current), Some(last), SAMPLES..) = (self.current, self.last, self.samples) {
            match self.css {
                None => {
                    if current >= last + lateness(last) {
                        // The round in which it begins counts (section 4.2: "partial round").
                        self.css = Some((current, css_rounds.saturating_sub(1)));
                    }
                }
                // The rise was spurious: back to slow start.
                Some((baseline, _)) if current < baseline => self.css = None,
                Some(_) => {}
            }
        }
        if self.css.is_some() { Exit::Slower(CSS_DIVISOR) } else { Exit::No }
    }

    fn classic(&mut self, ack: &Ack, window: &Window, paced: bool, standing: bool) -> Exit {
        let Some(rtt) = ack.rtt else { return Exit::No };
        let least = self.least.map_or(rtt, |l| l.min(rtt)).max(Duration::from_micros(1));
        self.least = Some(least);
        if window.segments() < LOW_WINDOW {
            return Exit::No;
        }
        let mut found = false;
        if ack.now - self.last_ack <= TRAIN_GAP {
            self.last_ack = ack.now;
            let threshold = (least + TRAIN_SLACK) / if paced { 1 } else { 2 };
            found = ack.now - self.round_start > threshold;
        }
        let current = self.current.map_or(rtt, |c| c.min(rtt));
        self.current = Some(current);
        if self.samples < SAMPLES {
            self.samples += 1;
        } else {
            found |= current > least + lateness(least);
        }
        found |= standing && self.stands(rtt, least);
        if found { Exit::Now } else { Exit::No }
    }

    /// Whether eight samples behind each other have all waited in a queue, for half the least
    /// round-trip time and the threshold.
    fn stands(&mut self, rtt: Duration, least: Duration) -> bool {
        let (count, lowest) = (self.standing.0 + 1, self.standing.1.min(rtt));
        let judged = count >= SAMPLES;
        self.standing = if judged { (0, Duration::MAX) } else { (count, lowest) };
        judged && lowest > least + least / 2 + lateness(least)
    }
}

/// How much later than the baseline is too late.
fn lateness(baseline: Duration) -> Duration {
    (baseline / DIVISOR).clamp(THRESHOLD.0, THRESHOLD.1)
}

impl HyStartConfig {
    /// RFC 9406 with its recommended values.
    #[must_use]
    pub const fn rfc9406() -> Self {
        Self::PlusPlus { css_rounds: 5 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(1000 + ms)
    }

    fn window(segments: u64) -> Window {
        Window { cwnd: segments * 1000, ssthresh: Window::UNKNOWN, mss: 1000 }
    }

    /// A round of `n` acknowledgments of 1000 units each, all with this round-trip time.
    fn round(h: &mut HyStart, number: u64, n: u64, rtt_ms: u64, gap_ms: u64) -> Vec<Exit> {
        (1..=n)
            .map(|i| {
                let acked_to = number * 100_000 + i * 1000;
                let rtt = Some(Duration::from_millis(rtt_ms));
                let now = at(number * 1000 + i * gap_ms);
                let sent_to = (number + 1) * 100_000;
                h.on_ack(&Ack { rtt, acked_to, sent_to, acked: 1000, ..Ack::at(now) }, &window(20 + i))
            })
            .collect()
    }

    #[test]
    fn plus_plus_slows_down_after_eight_late_samples_and_exits_after_five_rounds() {
        let mut h = HyStart::new(HyStartConfig::rfc9406());
        assert!(round(&mut h, 0, 10, 100, 5).iter().all(|e| *e == Exit::No));
        // An eighth of 100 ms is 12.5 ms: 112 ms is not late enough, 113 ms is.
        assert!(round(&mut h, 1, 10, 112, 5).iter().all(|e| *e == Exit::No));
        assert!(round(&mut h, 2, 10, 100, 5).iter().all(|e| *e == Exit::No));
        let late = round(&mut h, 3, 10, 113, 5);
        assert_eq!((late[6], late[7]), (Exit::No, Exit::Slower(4)));
        for number in 4..8 {
            assert_eq!(round(&mut h, number, 10, 113, 5)[9], Exit::Slower(4), "{number}");
        }
        assert_eq!(round(&mut h, 8, 1, 113, 5)[0], Exit::Now);
    }

    #[test]
    fn plus_plus_resumes_when_the_delay_was_a_spike() {
        let mut h = HyStart::new(HyStartConfig::rfc9406());
        round(&mut h, 0, 10, 100, 5);
        assert_eq!(round(&mut h, 1, 10, 150, 5)[9], Exit::Slower(4));
        let back = round(&mut h, 2, 10, 100, 5);
        assert_eq!((back[6], back[7], back[9]), (Exit::Slower(4), Exit::No, Exit::No));
    }

    #[test]
    fn the_threshold_is_clamped() {
        for (baseline, expected) in [(8, 4), (40, 5), (80, 10), (400, 16)] {
            assert_eq!(lateness(Duration::from_millis(baseline)), Duration::from_millis(expected));
        }
    }

    #[test]
    fn classic_finds_a_rise_of_an_eighth_at_the_ninth_sample() {
        let mut h = HyStart::new(HyStartConfig::Classic { paced: false });
        assert!(round(&mut h, 0, 20, 100, 5).iter().all(|e| *e == Exit::No));
        let late = round(&mut h, 1, 12, 113, 5);
        assert_eq!((late[7], late[8]), (Exit::No, Exit::Now));
    }

    #[test]
    fn classic_finds_a_train_longer_than_half_the_round_trip() {
        let mut h = HyStart::new(HyStartConfig::Classic { paced: false });
        // One acknowledgment per millisecond, 40 ms round trip: (40 + 1) / 2 ms of train is too
        // long.
        let exits = round(&mut h, 0, 30, 40, 1);
        let found = exits.iter().position(|e| *e == Exit::Now);
        assert_eq!(found, Some(21), "the first one starts the clock: {exits:?}");
        // Further apart than two milliseconds is no train.
        let mut h = HyStart::new(HyStartConfig::Classic { paced: false });
        assert!(round(&mut h, 0, 30, 40, 3).iter().all(|e| *e == Exit::No));
    }

    #[test]
    fn a_paced_sender_sees_a_queue_that_stands_wherever_in_the_round() {
        let exits = |late: u64| -> Vec<Exit> {
            let mut h = HyStart::new(HyStartConfig::Paced);
            let rtts = [40; 12].into_iter().chain([late; 16]);
            let ack = |(i, rtt)| Ack {
                rtt: Some(Duration::from_millis(rtt)),
                acked_to: i,
                sent_to: 1000,
                ..Ack::at(at(5 * i))
            };
            (1u64..).zip(rtts).map(|pair| h.on_ack(&ack(pair), &window(100))).collect()
        };
        // Half of 40 ms and an eighth of it.
        assert!(exits(65).iter().all(|e| *e == Exit::No));
        assert_eq!(exits(66).iter().position(|e| *e == Exit::Now), Some(23), "the first whole eight of them");
    }

    #[test]
    fn classic_judges_nothing_below_sixteen_segments() {
        let mut h = HyStart::new(HyStartConfig::Classic { paced: false });
        for i in 0..100 {
            let rtt = Some(Duration::from_millis(10 + i));
            let ack = Ack { rtt, acked_to: i, sent_to: 1000, ..Ack::at(at(i)) };
            assert_eq!(h.on_ack(&ack, &window(15)), Exit::No);
        }
    }
}
