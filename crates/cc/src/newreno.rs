//! NewReno: additive increase, multiplicative decrease (RFC 5681, RFC 6582), by bytes or by
//! packets.

use crate::controller::{Ack, Base, Controller, Loss, Window};

/// How acknowledgments are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// Each acknowledgment counts as one segment, however much it covers: stacks before RFC 3465.
    /// With delayed acknowledgments growth is half as fast.
    Packets,
    /// Appropriate byte counting (RFC 3465). One acknowledgment adds at most `limit` segments, L in
    /// section 2.2: 1 in RFC 5681, 2 in RFC 3465, without limit (`u32::MAX`) in Linux.
    Bytes {
        /// L, in segments, at least 1; in congestion avoidance too.
        limit: u32,
    },
}

impl Counting {
    /// By how much a window in slow start grows for `acked` bytes.
    pub(crate) fn slow_start(self, acked: u64, mss: u64) -> u64 {
        match self {
            Self::Packets => mss,
            Self::Bytes { limit } => acked.min(u64::from(limit.max(1)).saturating_mul(mss)),
        }
    }
}

/// The switches of [`NewReno`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewRenoConfig {
    /// How acknowledgments are counted.
    pub counting: Counting,
    /// What is halved.
    pub base: Base,
    /// A threshold is a whole number of segments, rounded down, as in stacks that count the window
    /// in segments.
    pub whole_segments: bool,
}

impl NewRenoConfig {
    /// RFC 5681 with byte counting, L = 1.
    #[must_use]
    pub const fn rfc5681() -> Self {
        Self { counting: Counting::Bytes { limit: 1 }, base: Base::Flight, whole_segments: false }
    }

    /// As Linux's `reno` does it.
    #[must_use]
    pub const fn linux() -> Self {
        Self { counting: Counting::Bytes { limit: u32::MAX }, base: Base::Window, whole_segments: true }
    }

    /// As FreeBSD's TCP did when the founding documents measured it: packets are counted.
    #[must_use]
    pub const fn packets() -> Self {
        Self { counting: Counting::Packets, base: Base::Flight, whole_segments: false }
    }
}

/// The controller.
#[derive(Clone, Debug)]
pub struct NewReno {
    config: NewRenoConfig,
    /// Bytes acknowledged since the window last grew in congestion avoidance: `bytes_acked` of RFC
    /// 3465 section 2.1.
    counted: u64,
}

impl NewReno {
    /// A fresh controller.
    #[must_use]
    pub const fn new(config: NewRenoConfig) -> Self {
        Self { config, counted: 0 }
    }

    fn avoid(&mut self, window: &mut Window, acked: u64) {
        match self.config.counting {
            // Equation 3 of RFC 5681 section 3.1, in whole bytes.
            Counting::Packets => window.cwnd += (window.mss * window.mss / window.cwnd.max(1)).max(1),
            Counting::Bytes { limit } => {
                self.counted += acked;
                let mut steps = 0;
                while self.counted >= window.cwnd && steps < limit.max(1) {
                    self.counted -= window.cwnd;
                    window.cwnd += window.mss;
                    steps += 1;
                }
                // The acknowledgment that ends a recovery covers more than a window, which is half
                // of what was under way. What it has beyond its steps is not kept for the next one,
                // or the window would grow twice in one round trip.
                if self.counted >= window.cwnd {
                    self.counted = 0;
                }
            }
        }
    }
}

impl Controller for NewReno {
    fn name(&self) -> &'static str {
        "newreno"
    }

    fn grow(&mut self, window: &mut Window, ack: &Ack) {
        let mut acked = ack.acked;
        if window.in_slow_start() {
            let step = self.config.counting.slow_start(acked, window.mss).min(window.ssthresh - window.cwnd);
            window.cwnd += step;
            if self.config.counting == Counting::Packets || window.in_slow_start() {
                return;
            }
            // What is left over already counts for congestion avoidance, as in Linux.
            acked = acked.saturating_sub(step);
        }
        self.avoid(window, acked);
    }

    fn threshold(&mut self, window: &Window, loss: &Loss) -> u64 {
        self.counted = 0;
        let half = self.config.base.of(window, loss) / 2;
        let half = if self.config.whole_segments { half / window.mss * window.mss } else { half };
        half.max(2 * window.mss)
    }

    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::Cause;
    use neater_base::Instant;

    const MSS: u64 = 1000;

    fn window(cwnd: u64, ssthresh: u64) -> Window {
        Window { cwnd, ssthresh, mss: MSS }
    }

    fn ack(bytes: u64) -> Ack {
        Ack { acked: bytes, delivered: bytes, limited: true, ..Ack::at(Instant::ZERO) }
    }

    /// The windows after each of `n` acknowledgments of `bytes`.
    fn course(config: NewRenoConfig, mut w: Window, bytes: u64, n: usize) -> Vec<u64> {
        let mut reno = NewReno::new(config);
        (0..n)
            .map(|_| {
                reno.grow(&mut w, &ack(bytes));
                w.cwnd
            })
            .collect()
    }

    #[test]
    fn slow_start_adds_what_the_limit_allows() {
        let start = window(4000, Window::UNKNOWN);
        let with = |counting| course(NewRenoConfig { counting, ..NewRenoConfig::rfc5681() }, start, 2000, 3);
        assert_eq!(with(Counting::Packets), [5000, 6000, 7000]);
        assert_eq!(with(Counting::Bytes { limit: 1 }), [5000, 6000, 7000]);
        assert_eq!(with(Counting::Bytes { limit: 2 }), [6000, 8000, 10_000]);
        let stretch = course(NewRenoConfig::linux(), start, 8000, 2);
        assert_eq!(stretch, [12_000, 20_000]);
    }

    #[test]
    fn avoidance_adds_one_segment_per_window_of_bytes() {
        let course = course(NewRenoConfig::linux(), window(4000, 4000), 1000, 9);
        assert_eq!(course, [4000, 4000, 4000, 5000, 5000, 5000, 5000, 5000, 6000]);
    }

    #[test]
    fn counting_packets_halves_the_growth_when_every_second_one_is_acknowledged() {
        let bytes = course(NewRenoConfig::rfc5681(), window(10_000, 10_000), 2000, 5);
        assert_eq!(bytes[4], 11_000, "one segment per window");
        let packets = course(NewRenoConfig::packets(), window(10_000, 10_000), 2000, 5);
        assert!(packets[4] > 10_450 && packets[4] < 10_500, "half a segment per window: {packets:?}");
    }

    #[test]
    fn the_step_from_slow_start_to_avoidance_stops_at_the_threshold() {
        let course = course(NewRenoConfig::linux(), window(4000, 5000), 3000, 2);
        assert_eq!(course, [5000, 6000], "two thousand left over, then three: five thousand are a window");
    }

    #[test]
    fn an_acknowledgment_of_more_than_a_window_adds_one_segment_and_leaves_nothing_over() {
        // As the one that ends a recovery: half of what was under way is the window now.
        let mut reno = NewReno::new(NewRenoConfig::rfc5681());
        let mut w = window(8000, 8000);
        reno.grow(&mut w, &ack(24_000));
        assert_eq!(w.cwnd, 9000);
        reno.grow(&mut w, &ack(2000));
        assert_eq!(w.cwnd, 9000, "the rest does not count for the next");
        reno.grow(&mut w, &ack(7000));
        assert_eq!(w.cwnd, 10_000);
        // Linux does not limit it.
        assert_eq!(course(NewRenoConfig::linux(), window(8000, 8000), 26_000, 1), [10_000]);
    }

    #[test]
    fn half_of_the_flight_or_of_the_window_but_two_segments() {
        let event = |flight| Loss { now: Instant::ZERO, cause: Cause::Loss, flight };
        let w = window(20_000, Window::UNKNOWN);
        assert_eq!(NewReno::new(NewRenoConfig::rfc5681()).threshold(&w, &event(12_000)), 6000);
        assert_eq!(NewReno::new(NewRenoConfig::linux()).threshold(&w, &event(12_000)), 10_000);
        assert_eq!(NewReno::new(NewRenoConfig::rfc5681()).threshold(&w, &event(1000)), 2000);
    }
}
