//! The round-trip time of a path and its retransmission timeout (RFC 9260 section 6.3.1).

use crate::config::RtoConfig;
use core::time::Duration;

/// Clock granularity G of rule G1.
const GRANULARITY: Duration = Duration::from_millis(1);

/// SRTT, RTTVAR and RTO of one path.
#[derive(Clone, Debug)]
pub(crate) struct Rtt {
    config: RtoConfig,
    smoothed: Option<(Duration, Duration)>,
    least: Option<Duration>,
    rto: Duration,
    /// The next measurement counts as the first one.
    afresh: bool,
}

impl Rtt {
    pub(crate) const fn new(config: RtoConfig) -> Self {
        Self { config, smoothed: None, least: None, rto: config.initial, afresh: false }
    }

    /// Rules C2 and C3: a measurement, which also takes back any doubling.
    pub(crate) fn sample(&mut self, rtt: Duration) {
        let afresh = core::mem::take(&mut self.afresh);
        let (srtt, var) = match self.smoothed.filter(|_| !afresh) {
            None => (rtt, rtt / 2),
            Some((srtt, var)) => ((srtt * 7 + rtt) / 8, (var * 3 + srtt.abs_diff(rtt)) / 4),
        };
        let var = var.max(GRANULARITY);
        self.smoothed = Some((srtt, var));
        self.least = Some(self.least.map_or(rtt, |l| l.min(rtt)));
        self.rto = (srtt + 4 * var).clamp(self.config.min, self.config.max);
    }

    /// What was measured shows little of what is to come: the path has been away, and the queue
    /// that it had built with it.
    pub(crate) fn measure_afresh(&mut self) {
        self.afresh = true;
    }

    /// Rule E2: the timer has expired.
    pub(crate) fn back_off(&mut self) {
        self.rto = (self.rto * 2).min(self.config.max);
    }

    /// Takes back all doubling: the path has answered, although that measures nothing.
    pub(crate) fn undo_back_off(&mut self) {
        self.rto = match self.smoothed {
            Some((srtt, var)) => (srtt + 4 * var).clamp(self.config.min, self.config.max),
            None => self.config.initial,
        };
    }

    /// Takes back all doubling where nothing was measured.
    pub(crate) fn start_over(&mut self) {
        if self.smoothed.is_none() {
            self.rto = self.config.initial;
        }
    }

    pub(crate) const fn rto(&self) -> Duration {
        self.rto
    }

    /// The smoothed round-trip time, once measured.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed.map(|(srtt, _)| srtt)
    }

    /// After so long an acknowledgment is late, whatever the bounds of the timeout are.
    pub(crate) fn late(&self) -> Duration {
        self.smoothed.map_or(self.config.initial, |(srtt, var)| srtt + 4 * var)
    }

    /// The variation, once measured.
    pub(crate) fn variation(&self) -> Option<Duration> {
        self.smoothed.map(|(_, var)| var)
    }

    /// After so long without any answer to what was sent a path is silent: the probe timeout of RFC
    /// 8985 section 7.2, and no less than where acknowledgments may be late by.
    pub(crate) fn probe_timeout(&self) -> Option<Duration> {
        self.smoothed.map(|(srtt, var)| 2 * srtt + (4 * var).saturating_sub(srtt).max(Duration::from_millis(2)))
    }

    /// The least that was measured.
    pub(crate) const fn least(&self) -> Option<Duration> {
        self.least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_first_measurement_sets_and_later_ones_smooth() {
        let mut rtt = Rtt::new(RtoConfig { initial: 1000 * MS, min: 10 * MS, max: 60_000 * MS });
        assert_eq!((rtt.rto(), rtt.smoothed()), (1000 * MS, None));
        rtt.sample(100 * MS);
        assert_eq!((rtt.smoothed(), rtt.rto()), (Some(100 * MS), 300 * MS));
        rtt.sample(180 * MS);
        // RTTVAR = 3/4 * 50 + 1/4 * 80, SRTT = 7/8 * 100 + 1/8 * 180.
        assert_eq!((rtt.smoothed(), rtt.variation()), (Some(110 * MS), Some(Duration::from_micros(57_500))));
        assert_eq!((rtt.rto(), rtt.least()), (340 * MS, Some(100 * MS)));
    }

    #[test]
    fn a_path_that_was_away_is_measured_afresh() {
        let mut rtt = Rtt::new(RtoConfig { initial: 1000 * MS, min: 10 * MS, max: 60_000 * MS });
        rtt.sample(800 * MS);
        rtt.measure_afresh();
        assert_eq!(rtt.smoothed(), Some(800 * MS), "as long as there is nothing better");
        rtt.sample(20 * MS);
        assert_eq!((rtt.smoothed(), rtt.variation()), (Some(20 * MS), Some(10 * MS)));
        rtt.sample(28 * MS);
        assert_eq!(rtt.smoothed(), Some(21 * MS));
    }

    #[test]
    fn the_timeout_is_bounded_and_doubling_is_taken_back() {
        let mut rtt = Rtt::new(RtoConfig { initial: 1000 * MS, min: 1000 * MS, max: 3000 * MS });
        rtt.sample(10 * MS);
        assert_eq!(rtt.rto(), 1000 * MS);
        rtt.back_off();
        rtt.back_off();
        assert_eq!(rtt.rto(), 3000 * MS);
        rtt.sample(10 * MS);
        assert_eq!(rtt.rto(), 1000 * MS);
    }
}
