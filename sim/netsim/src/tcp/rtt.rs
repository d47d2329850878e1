//! Round-trip time and retransmission timeout (RFC 6298).

use core::time::Duration;

/// The timeout before there is a measurement (RFC 6298 section 2, rule 2.1).
pub(crate) const INITIAL_RTO: Duration = Duration::from_secs(1);
/// The timeout for data after a SYN has been retransmitted (RFC 6298 section 5, rule 5.7).
pub(crate) const FALLBACK_RTO: Duration = Duration::from_secs(3);
/// The least timeout. Rule 2.4 says one second; deployed systems use a fifth of it, and so does this one, because what
/// is simulated should behave like them.
pub(crate) const MIN_RTO: Duration = Duration::from_millis(200);
/// The most, however often it has been doubled (rule 2.5: at least 60 s).
pub(crate) const MAX_RTO: Duration = Duration::from_secs(60);
/// The clock granularity G.
const GRANULARITY: Duration = Duration::from_millis(1);

/// The estimator.
#[derive(Clone, Debug)]
pub(crate) struct Rtt {
    srtt: Option<Duration>,
    rttvar: Duration,
    base: Duration,
    doublings: u32,
}

impl Default for Rtt {
    fn default() -> Self {
        Self { srtt: None, rttvar: Duration::ZERO, base: INITIAL_RTO, doublings: 0 }
    }
}

impl Rtt {
    /// Takes a measurement of a segment that was sent once (Karn's algorithm is the caller's) and ends the backing off.
    pub(crate) fn sample(&mut self, r: Duration) {
        match self.srtt {
            None => {
                self.srtt = Some(r);
                self.rttvar = r / 2;
            }
            Some(srtt) => {
                self.rttvar = (self.rttvar * 3 + srtt.abs_diff(r)) / 4;
                self.srtt = Some((srtt * 7 + r) / 8);
            }
        }
        let srtt = self.srtt.unwrap_or(r);
        self.base = (srtt + (self.rttvar * 4).max(GRANULARITY)).clamp(MIN_RTO, MAX_RTO);
        self.doublings = 0;
    }

    /// The current timeout.
    pub(crate) fn rto(&self) -> Duration {
        self.base.saturating_mul(1 << self.doublings.min(16)).min(MAX_RTO)
    }

    /// Doubles the timeout (rule 5.5).
    pub(crate) fn back_off(&mut self) {
        self.doublings = self.doublings.saturating_add(1);
    }

    /// After a SYN was retransmitted: nothing is known of the path (rule 5.7).
    pub(crate) fn fall_back(&mut self) {
        *self = Self { base: FALLBACK_RTO, ..Self::default() };
    }

    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.srtt
    }

    pub(crate) fn variation(&self) -> Option<Duration> {
        self.srtt.map(|_| self.rttvar)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_first_sample_sets_and_later_ones_smooth() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.rto(), INITIAL_RTO);
        rtt.sample(MS * 400);
        assert_eq!((rtt.smoothed(), rtt.variation(), rtt.rto()), (Some(MS * 400), Some(MS * 200), MS * 1200));
        rtt.sample(MS * 480);
        assert_eq!((rtt.smoothed(), rtt.variation()), (Some(MS * 410), Some(MS * 170)));
    }

    #[test]
    fn the_timeout_doubles_up_to_its_maximum_and_a_sample_ends_that() {
        let mut rtt = Rtt::default();
        let seen: Vec<_> = (0..8)
            .map(|_| {
                let rto = rtt.rto().as_secs();
                rtt.back_off();
                rto
            })
            .collect();
        assert_eq!(seen, [1, 2, 4, 8, 16, 32, 60, 60]);
        rtt.sample(MS * 10);
        assert_eq!(rtt.rto(), MIN_RTO);
    }

    #[test]
    fn a_retransmitted_syn_leaves_three_seconds() {
        let mut rtt = Rtt::default();
        rtt.back_off();
        rtt.fall_back();
        assert_eq!((rtt.rto(), rtt.smoothed()), (FALLBACK_RTO, None));
    }
}
