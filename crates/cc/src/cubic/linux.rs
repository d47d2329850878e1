//! CUBIC in whole segments and clock ticks, as Linux computes it.
//!
//! The curve is that of RFC 9438. What differs is rounding, which matters while windows are a few
//! segments: the window grows by one segment for each `every` acknowledged; `every` is computed at
//! most once a tick and kept for a 32nd of a second while the window does not change; Reno's window
//! is a whole number that is only followed once it is ahead.

use super::{CubicConfig, Friendliness, cube_root};
use crate::controller::{Cause, Window};
use core::time::Duration;
use neater_base::Instant;

/// A tick of the kernel's clock: CONFIG_HZ = 250, as most distributions build it.
const TICK: Duration = Duration::from_millis(4);
/// For how many ticks a computed growth holds while the window stays (HZ / 32).
const HOLD: u64 = 7;

/// The state, in segments and ticks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ticks {
    epoch: Option<u64>,
    /// The window before the last congestion.
    last_max: u64,
    origin: u64,
    /// Seconds from the epoch to the plateau.
    k: f64,
    /// Reno's window, and what was acknowledged towards its growth, in bytes.
    reno: u64,
    towards_reno: u64,
    /// Segments acknowledged for one of growth, and bytes acknowledged towards it.
    every: u64,
    towards: u64,
    last_window: u64,
    last_tick: u64,
}

fn tick(now: Instant) -> u64 {
    now.as_nanos() / TICK.as_nanos() as u64
}

impl Ticks {
    /// Within a second of the epoch.
    pub(super) fn is_young(&self, now: Instant) -> bool {
        self.epoch.is_some_and(|epoch| tick(now) < epoch + 250)
    }

    pub(super) fn shift(&mut self, idle: Duration) {
        if let Some(epoch) = &mut self.epoch {
            *epoch += idle.as_nanos() as u64 / TICK.as_nanos() as u64;
        }
    }

    pub(super) fn threshold(&mut self, window: &Window, cause: Cause, config: &CubicConfig) -> u64 {
        let cwnd = window.segments();
        self.epoch = None;
        let shrank = cwnd < self.last_max && config.fast_convergence;
        self.last_max = if shrank { (cwnd as f64 * (1.0 + config.beta) / 2.0) as u64 } else { cwnd };
        if cause == Cause::Timeout {
            *self = Self::default();
        }
        ((cwnd as f64 * config.beta) as u64).max(2) * window.mss
    }

    /// Lets the window grow by what `acked` bytes are good for.
    pub(super) fn grow(&mut self, w: &mut Window, now: Instant, acked: u64, least: Duration, config: &CubicConfig) {
        self.update(w, now, acked, least, config);
        let step = self.every.max(1) * w.mss;
        if self.towards >= step {
            self.towards = 0;
            w.cwnd += w.mss;
        }
        self.towards += acked;
        if self.towards >= step {
            let n = self.towards / step;
            self.towards -= n * step;
            w.cwnd += n * w.mss;
        }
    }

    fn update(&mut self, w: &Window, now: Instant, acked: u64, least: Duration, config: &CubicConfig) {
        let (cwnd, now) = (w.segments(), tick(now));
        self.towards_reno += acked;
        if self.epoch.is_some() && self.last_window == cwnd && now - self.last_tick <= HOLD {
            return;
        }
        if self.epoch.is_none() || self.last_tick != now {
            (self.last_window, self.last_tick) = (cwnd, now);
            let epoch = *self.epoch.get_or_insert_with(|| {
                self.towards_reno = acked;
                self.reno = cwnd;
                if self.last_max <= cwnd {
                    (self.k, self.origin) = (0.0, cwnd);
                } else {
                    (self.k, self.origin) = (cube_root((self.last_max - cwnd) as f64 / config.c), self.last_max);
                }
                now
            });
            let ticks = now.saturating_sub(epoch) + (least.as_nanos().div_ceil(TICK.as_nanos())) as u64;
            let off = ticks as f64 * TICK.as_secs_f64() - self.k;
            let delta = (config.c * off.abs() * off * off) as u64;
            let target = if off < 0.0 { self.origin.saturating_sub(delta) } else { self.origin + delta };
            self.every = if target > cwnd { cwnd / (target - cwnd) } else { 100 * cwnd };
            if self.last_max == 0 {
                self.every = self.every.min(config.unknown_growth.map_or(u64::MAX, u64::from));
            }
        }
        if config.friendliness != Friendliness::Off {
            // Eight times the acknowledgments for one segment of Reno's growth, over the window: 15
            // for a beta of 0.7.
            let scale = (8.0 * (1.0 + config.beta) / 3.0 / (1.0 - config.beta)) as u64;
            let step = (cwnd * scale / 8).max(1) * w.mss;
            while self.towards_reno > step {
                self.towards_reno -= step;
                self.reno += 1;
            }
            if self.reno > cwnd {
                self.every = self.every.min(cwnd / (self.reno - cwnd));
            }
        }
        self.every = self.every.max(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1000;

    /// Windows in segments at the end of each round trip, everything acknowledged segment by
    /// segment.
    fn rounds(ticks: &mut Ticks, w: &mut Window, rtt: Duration, n: u32) -> Vec<u64> {
        let start = Instant::ZERO + Duration::from_secs(5);
        (0..n)
            .map(|i| {
                let segments = w.segments() as u32;
                for j in 0..segments {
                    ticks.grow(w, start + rtt * i + rtt * j / segments, MSS, rtt, &CubicConfig::linux());
                }
                w.segments()
            })
            .collect()
    }

    #[test]
    fn thresholds_are_whole_segments() {
        let mut t = Ticks::default();
        for (cwnd, expected) in [(3, 2), (8, 5), (9, 6), (10, 7), (100, 70)] {
            let w = Window { cwnd: cwnd * MSS, ssthresh: 0, mss: MSS };
            assert_eq!(t.threshold(&w, Cause::Loss, &CubicConfig::linux()), expected * MSS);
        }
    }

    #[test]
    fn before_any_loss_a_round_trip_adds_at_least_a_twentieth() {
        let mut w = Window { cwnd: 100 * MSS, ssthresh: 100 * MSS, mss: MSS };
        let course = rounds(&mut Ticks::default(), &mut w, Duration::from_millis(20), 10);
        assert!((105..=106).contains(&course[0]) && course[9] >= 155, "{course:?}");
    }

    #[test]
    fn the_plateau_is_reached_after_k_seconds() {
        // 100 segments to 70: K = cbrt(30 / 0.4) = 4.2 s.
        let mut t = Ticks::default();
        let mut w = Window { cwnd: 100 * MSS, ssthresh: 0, mss: MSS };
        w.cwnd = t.threshold(&w, Cause::Loss, &CubicConfig::linux());
        let course = rounds(&mut t, &mut w, Duration::from_millis(100), 60);
        let at = |s: f64| course[(s * 10.0) as usize - 1];
        assert!((95..=98).contains(&at(2.0)) && (99..=100).contains(&at(4.2)), "{course:?}");
        assert!((101..=104).contains(&at(6.0)), "{course:?}");
    }

    #[test]
    fn a_small_window_on_a_short_path_follows_renos_growth() {
        let mut t = Ticks::default();
        let mut w = Window { cwnd: 10 * MSS, ssthresh: 0, mss: MSS };
        w.cwnd = t.threshold(&w, Cause::Loss, &CubicConfig::linux());
        let course = rounds(&mut t, &mut w, Duration::from_millis(10), 30);
        assert!((19..=23).contains(&course[29]), "about half a segment a round trip: {course:?}");
    }
}
