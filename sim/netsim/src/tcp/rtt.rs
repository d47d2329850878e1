//! Round-trip time and retransmission timeout (RFC 6298), with the estimator that Linux uses.

use super::config::RtoFloor;
use super::segment::Seq;
use core::time::Duration;
use neater_base::Instant;

/// The timeout before there is a measurement (RFC 6298 section 2, rule 2.1).
pub(crate) const INITIAL_RTO: Duration = Duration::from_secs(1);
/// The timeout for data after a SYN has been retransmitted (RFC 6298 section 5, rule 5.7).
pub(crate) const FALLBACK_RTO: Duration = Duration::from_secs(3);
/// The most, however often it has been doubled (rule 2.5: at least 60 s; Linux: TCP_RTO_MAX).
pub(crate) const MAX_RTO: Duration = Duration::from_secs(120);
/// The clock granularity G.
const GRANULARITY: Duration = Duration::from_millis(1);
/// For how long the least round-trip time is believed (Linux: `tcp_min_rtt_wlen`).
const LEAST_FOR: Duration = Duration::from_secs(300);

/// The estimator.
#[derive(Clone, Debug)]
pub(crate) struct Rtt {
    min_rto: Duration,
    floor: RtoFloor,
    srtt: Option<Duration>,
    /// RTTVAR of RFC 6298; with [`RtoFloor::Variation`] the fast estimate, `mdev` in Linux, times four.
    rttvar: Duration,
    /// Linux: the largest deviation of this round, and the smoothed one that the timeout uses.
    round_max: Duration,
    slow: Duration,
    round_end: Seq,
    base: Duration,
    doublings: u32,
    least: Option<(Duration, Instant)>,
}

impl Rtt {
    pub(crate) fn new(min_rto: Duration, floor: RtoFloor) -> Self {
        Self {
            min_rto,
            floor,
            srtt: None,
            rttvar: Duration::ZERO,
            round_max: Duration::ZERO,
            slow: Duration::ZERO,
            round_end: Seq(0),
            base: INITIAL_RTO,
            doublings: 0,
            least: None,
        }
    }

    /// Takes a measurement (Karn's algorithm is the caller's) and ends the backing off. `fresh` is the same without the
    /// receiver's delay, where that is known; `round` is what is acknowledged and what was sent.
    pub(crate) fn sample(&mut self, now: Instant, r: Duration, fresh: Duration, round: (Seq, Seq)) {
        let srtt = match self.floor {
            RtoFloor::Timeout => self.standard(r),
            RtoFloor::Variation => self.linux(r, round.0, round.1),
        };
        self.srtt = Some(srtt);
        self.base = match self.floor {
            RtoFloor::Timeout => (srtt + (self.rttvar * 4).max(GRANULARITY)).max(self.min_rto),
            RtoFloor::Variation => srtt + self.slow,
        };
        self.base = self.base.min(MAX_RTO);
        self.doublings = 0;
        if self.least.is_none_or(|(least, at)| fresh <= least || now - at > LEAST_FOR) {
            self.least = Some((fresh.max(Duration::from_micros(1)), now));
        }
    }

    /// RFC 6298 section 2.
    fn standard(&mut self, r: Duration) -> Duration {
        let Some(srtt) = self.srtt else {
            self.rttvar = r / 2;
            return r;
        };
        self.rttvar = (self.rttvar * 3 + srtt.abs_diff(r)) / 4;
        (srtt * 7 + r) / 8
    }

    /// `tcp_rtt_estimator`: the deviation that counts is the largest of a round trip and falls slowly; a shorter round trip
    /// than expected moves it less. Kept at four times its size, as there.
    fn linux(&mut self, r: Duration, una: Seq, next: Seq) -> Duration {
        let Some(srtt) = self.srtt else {
            self.rttvar = r * 2;
            self.slow = self.rttvar.max(self.min_rto);
            (self.round_max, self.round_end) = (self.slow, next);
            return r;
        };
        let deviation = self.rttvar / 4;
        let error = srtt.abs_diff(r);
        if error <= deviation {
            self.rttvar -= deviation - error;
        } else {
            let more = error - deviation;
            self.rttvar += if r < srtt { more / 8 } else { more };
        }
        if self.rttvar > self.round_max {
            self.round_max = self.rttvar;
            self.slow = self.slow.max(self.round_max);
        }
        if una > self.round_end {
            if self.round_max < self.slow {
                self.slow -= (self.slow - self.round_max) / 4;
            }
            (self.round_max, self.round_end) = (self.min_rto, next);
        }
        (srtt * 7 + r) / 8
    }

    /// The current timeout.
    pub(crate) fn rto(&self) -> Duration {
        self.base.saturating_mul(1 << self.doublings.min(16)).min(MAX_RTO)
    }

    /// The least timeout.
    pub(crate) fn min_rto(&self) -> Duration {
        self.min_rto
    }

    /// Doubles the timeout (rule 5.5).
    pub(crate) fn back_off(&mut self) {
        self.doublings = self.doublings.saturating_add(1);
    }

    /// After a SYN was retransmitted: nothing is known of the path (rule 5.7).
    pub(crate) fn fall_back(&mut self) {
        *self = Self { base: FALLBACK_RTO, ..Self::new(self.min_rto, self.floor) };
    }

    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.srtt
    }

    /// The least round-trip time of the last five minutes.
    pub(crate) fn least(&self) -> Option<Duration> {
        self.least.map(|(least, _)| least)
    }

    pub(crate) fn variation(&self) -> Option<Duration> {
        self.srtt.map(|_| if self.floor == RtoFloor::Timeout { self.rttvar } else { self.rttvar / 4 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn now() -> Instant {
        Instant::ZERO + MS
    }

    #[test]
    fn the_first_sample_sets_and_later_ones_smooth() {
        let mut rtt = Rtt::new(MS * 200, RtoFloor::Timeout);
        assert_eq!(rtt.rto(), INITIAL_RTO);
        rtt.sample(now(), MS * 400, MS * 400, (Seq(0), Seq(1)));
        assert_eq!((rtt.smoothed(), rtt.variation(), rtt.rto()), (Some(MS * 400), Some(MS * 200), MS * 1200));
        rtt.sample(now(), MS * 480, MS * 480, (Seq(0), Seq(1)));
        assert_eq!((rtt.smoothed(), rtt.variation()), (Some(MS * 410), Some(MS * 170)));
    }

    #[test]
    fn the_timeout_doubles_up_to_its_maximum_and_a_sample_ends_that() {
        let mut rtt = Rtt::new(MS * 200, RtoFloor::Timeout);
        let seen: Vec<_> = (0..9)
            .map(|_| {
                let rto = rtt.rto().as_secs();
                rtt.back_off();
                rto
            })
            .collect();
        assert_eq!(seen, [1, 2, 4, 8, 16, 32, 64, 120, 120]);
        rtt.sample(now(), MS * 10, MS * 10, (Seq(0), Seq(1)));
        assert_eq!(rtt.rto(), MS * 200);
    }

    #[test]
    fn the_floor_is_under_the_timeout_or_under_the_variation() {
        for (floor, expected) in [(RtoFloor::Timeout, MS * 200), (RtoFloor::Variation, MS * 250)] {
            let mut rtt = Rtt::new(MS * 200, floor);
            for i in 0..200 {
                rtt.sample(now(), MS * 50, MS * 50, (Seq(i * 10), Seq(i * 10 + 5)));
            }
            assert_eq!(rtt.rto(), expected, "a steady round trip of 50 ms");
        }
    }

    #[test]
    fn linux_remembers_the_largest_deviation_of_a_round() {
        let mut rtt = Rtt::new(MS * 200, RtoFloor::Variation);
        rtt.sample(now(), MS * 100, MS * 100, (Seq(0), Seq(10)));
        rtt.sample(now(), MS * 500, MS * 500, (Seq(11), Seq(20)));
        let high = rtt.rto();
        assert!(high > MS * 500, "{high:?}");
        rtt.sample(now(), MS * 100, MS * 100, (Seq(15), Seq(20)));
        assert!(rtt.rto() > MS * 490, "kept within the round: {:?}", rtt.rto());
        for i in 0..40 {
            rtt.sample(now(), MS * 100, MS * 100, (Seq(30 + i * 10), Seq(35 + i * 10)));
        }
        assert!(rtt.rto() < MS * 320, "{:?}", rtt.rto());
    }

    #[test]
    fn the_least_round_trip_is_forgotten_after_five_minutes() {
        let mut rtt = Rtt::new(MS * 200, RtoFloor::Variation);
        let at = |s| Instant::ZERO + Duration::from_secs(s);
        rtt.sample(at(1), MS * 10, MS * 10, (Seq(0), Seq(1)));
        rtt.sample(at(200), MS * 30, MS * 30, (Seq(0), Seq(1)));
        assert_eq!(rtt.least(), Some(MS * 10));
        rtt.sample(at(302), MS * 30, MS * 30, (Seq(0), Seq(1)));
        assert_eq!(rtt.least(), Some(MS * 30));
    }

    #[test]
    fn a_retransmitted_syn_leaves_three_seconds() {
        let mut rtt = Rtt::new(MS * 200, RtoFloor::Variation);
        rtt.back_off();
        rtt.fall_back();
        assert_eq!((rtt.rto(), rtt.smoothed()), (FALLBACK_RTO, None));
    }
}
