//! CUBIC (RFC 9438), with the differences of the implementation that most of the internet runs.
//!
//! The window is a cubic function of the time since the last congestion, around the window at which
//! that happened. Windows are computed in segments, as in the RFC, with IEEE arithmetic that gives
//! the same bits everywhere.

mod linux;

use crate::controller::{Ack, Base, Cause, Controller, Loss, Window};
use crate::hystart::{Exit, HyStart, HyStartConfig};
use core::time::Duration;
use neater_base::Instant;

/// The window that Reno would have (RFC 9438 section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Friendliness {
    /// Ignored: CUBIC alone.
    Off,
    /// Additive increase by 3(1-β)/(1+β) segments a round trip for ever: Linux, RFC 8312.
    Constant,
    /// The same until the window of before the last congestion is reached, one segment a round trip
    /// from there: RFC 9438.
    Rfc9438,
}

/// The switches of [`Cubic`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CubicConfig {
    /// C, in segments per second cubed (0.4, section 5.1).
    pub c: f64,
    /// β, the share of the window that is kept (0.7, section 4.6).
    pub beta: f64,
    /// Give up bandwidth faster when windows shrink (section 4.7).
    pub fast_convergence: bool,
    /// The Reno-friendly region.
    pub friendliness: Friendliness,
    /// What is reduced.
    pub base: Base,
    /// How slow start is left; `None` by loss alone.
    pub hystart: Option<HyStartConfig>,
    /// In slow start one acknowledgment adds at most this many segments (L of RFC 9406 section 4.2;
    /// RFC 3465).
    pub slow_start_limit: u32,
    /// While no congestion is known of, the window grows by at least one segment for so many that
    /// are acknowledged: where slow start was left before the path was full, the curve, which then
    /// begins at its plateau, would take many seconds to find out. Linux: 20, which is a twentieth
    /// in a round trip (`bictcp_update`, the branch of `last_max_cwnd == 0`). `None`: as RFC 9438.
    pub unknown_growth: Option<u32>,
    /// Linux's arithmetic (`cubic/linux.rs`): whole segments, clock ticks, at least 5 % growth per
    /// round trip before the first loss, no use of samples in the first second after a congestion,
    /// and no way back to the old curve when a congestion proves spurious.
    pub as_linux: bool,
}

impl CubicConfig {
    /// RFC 9438 with HyStart++.
    #[must_use]
    pub const fn rfc9438() -> Self {
        Self {
            c: 0.4,
            beta: 0.7,
            fast_convergence: true,
            friendliness: Friendliness::Rfc9438,
            base: Base::Flight,
            hystart: Some(HyStartConfig::rfc9406()),
            slow_start_limit: 8,
            unknown_growth: None,
            as_linux: false,
        }
    }

    /// As Linux does it, without pacing. Its constants are fractions of 1024: β = 717/1024; C =
    /// 41·10/1024, which is 0.4004.
    #[must_use]
    pub const fn linux() -> Self {
        Self {
            c: 410.0 / 1024.0,
            beta: 717.0 / 1024.0,
            fast_convergence: true,
            friendliness: Friendliness::Constant,
            base: Base::Window,
            hystart: Some(HyStartConfig::Classic { paced: false }),
            slow_start_limit: u32::MAX,
            unknown_growth: Some(20),
            as_linux: true,
        }
    }
}

/// The state of the curve.
#[derive(Clone, Copy, Debug, Default)]
struct Curve {
    /// When congestion avoidance began (`t_epoch`).
    epoch: Option<Instant>,
    /// `W_max`, in segments; 0 when nothing is known.
    w_max: f64,
    /// The plateau of the current curve, in segments.
    origin: f64,
    /// The time from the epoch to the plateau, in seconds.
    k: f64,
    /// `W_est`, in segments.
    w_est: f64,
    /// `cwnd_prior`, in segments.
    prior: f64,
    /// Growth that is not yet a byte.
    fraction: f64,
}

/// The controller.
#[derive(Clone, Debug)]
pub struct Cubic {
    config: CubicConfig,
    curve: Curve,
    /// The curve before the last congestion, in case that was spurious.
    saved: Option<Curve>,
    hystart: Option<HyStart>,
    /// With [`CubicConfig::as_linux`] this takes the place of `curve`.
    ticks: linux::Ticks,
    /// Slow start is slower by this divisor (conservative slow start).
    divisor: u64,
    /// There was congestion since the beginning, or since the last timeout: a window below its
    /// threshold is then one that is coming down, and no slow start to be left (RFC 9406 section
    /// 4.2: only the initial slow start; Linux: `found`).
    congested: bool,
    least_rtt: Option<Duration>,
}

impl Cubic {
    /// A fresh controller.
    #[must_use]
    pub fn new(config: CubicConfig) -> Self {
        Self {
            config,
            curve: Curve::default(),
            saved: None,
            hystart: config.hystart.map(HyStart::new),
            ticks: linux::Ticks::default(),
            divisor: 1,
            congested: false,
            least_rtt: None,
        }
    }

    /// `W_cubic(t)` of section 4.2 in segments, `t` in seconds since the epoch.
    fn w_cubic(&self, t: f64) -> f64 {
        let d = t - self.curve.k;
        self.config.c * d * d * d + self.curve.origin
    }

    /// The additive increase that is as fast as Reno's on average (section 4.3).
    fn alpha(&self) -> f64 {
        3.0 * (1.0 - self.config.beta) / (1.0 + self.config.beta)
    }

    fn begin(&mut self, now: Instant, cwnd: f64) {
        let curve = &mut self.curve;
        curve.epoch = Some(now);
        curve.w_est = cwnd;
        if cwnd < curve.w_max {
            curve.k = cube_root((curve.w_max - cwnd) / self.config.c);
            curve.origin = curve.w_max;
        } else {
            curve.k = 0.0;
            curve.origin = cwnd;
        }
    }

    /// By how many segments the window grows for each segment acknowledged.
    fn slope(&mut self, ack: &Ack, acked: f64, cwnd: f64) -> f64 {
        if self.curve.epoch.is_none() {
            self.begin(ack.now, cwnd);
        }
        let epoch = self.curve.epoch.unwrap_or(ack.now);
        // Where the window should be one round trip from now.
        let rtt = ack.srtt.or(self.least_rtt).unwrap_or_default();
        let t = (ack.now - epoch).as_secs_f64() + rtt.as_secs_f64();
        // Never more than half as much again in a round trip (section 4.2).
        let target = self.w_cubic(t).min(1.5 * cwnd);
        let mut slope = ((target - cwnd) / cwnd).max(0.0);
        if self.config.friendliness != Friendliness::Off {
            let reached = self.curve.prior > 0.0 && self.curve.w_est >= self.curve.prior;
            let alpha = if self.config.friendliness == Friendliness::Rfc9438 && reached { 1.0 } else { self.alpha() };
            self.curve.w_est += alpha * acked / cwnd;
            slope = slope.max((self.curve.w_est - cwnd) / cwnd);
        }
        if let (Some(segments), true) = (self.config.unknown_growth, self.curve.w_max <= 0.0) {
            slope = slope.max(1.0 / f64::from(segments.max(1)));
        }
        slope.min(0.5)
    }
}

impl Controller for Cubic {
    fn name(&self) -> &'static str {
        "cubic"
    }

    fn on_sample(&mut self, window: &mut Window, ack: &Ack) {
        let Some(rtt) = ack.rtt else { return };
        if self.config.as_linux && self.ticks.is_young(ack.now) {
            return;
        }
        self.least_rtt = Some(self.least_rtt.map_or(rtt, |least| least.min(rtt)));
        if !window.in_slow_start() || self.congested {
            return;
        }
        let Some(hystart) = &mut self.hystart else { return };
        match hystart.on_ack(ack, window) {
            Exit::No => self.divisor = 1,
            Exit::Slower(divisor) => self.divisor = divisor,
            Exit::Now => {
                self.divisor = 1;
                window.ssthresh = window.cwnd;
            }
        }
    }

    fn grow(&mut self, window: &mut Window, ack: &Ack) {
        let mut acked = ack.acked;
        if window.in_slow_start() {
            let limit = u64::from(self.config.slow_start_limit.max(1)).saturating_mul(window.mss);
            let step = (acked.min(limit) / self.divisor).min(window.ssthresh - window.cwnd);
            window.cwnd += step;
            if window.in_slow_start() {
                return;
            }
            acked = acked.saturating_sub(step * self.divisor);
        }
        if acked == 0 {
            return;
        }
        if self.config.as_linux {
            return self.ticks.grow(window, ack.now, acked, self.least_rtt.unwrap_or_default(), &self.config);
        }
        let mss = window.mss as f64;
        let slope = self.slope(ack, acked as f64 / mss, window.cwnd as f64 / mss);
        let growth = slope * acked as f64 + self.curve.fraction;
        let whole = growth.max(0.0) as u64;
        self.curve.fraction = growth - whole as f64;
        window.cwnd += whole;
    }

    fn threshold(&mut self, window: &Window, loss: &Loss) -> u64 {
        if loss.cause == Cause::Timeout {
            // The network has changed: what was known of the plateau is forgotten (section 4.8;
            // Linux: bictcp_reset).
            self.divisor = 1;
            if let Some(hystart) = &mut self.hystart {
                hystart.restart();
            }
        }
        if self.config.as_linux {
            return self.ticks.threshold(window, loss.cause, &self.config);
        }
        self.congested = loss.cause != Cause::Timeout;
        let mss = window.mss as f64;
        let cwnd = window.cwnd as f64 / mss;
        self.saved = Some(self.curve);
        let curve = &mut self.curve;
        curve.epoch = None;
        curve.fraction = 0.0;
        curve.prior = cwnd;
        let shrank = cwnd < curve.w_max && self.config.fast_convergence;
        curve.w_max = if shrank { cwnd * (1.0 + self.config.beta) / 2.0 } else { cwnd };
        if loss.cause == Cause::Timeout {
            *curve = Curve::default();
        }
        let base = self.config.base.of(window, loss) as f64;
        ((base * self.config.beta) as u64).max(2 * window.mss)
    }

    fn on_spurious(&mut self, _window: &Window) {
        self.congested = false;
        if let Some(saved) = self.saved.take().filter(|_| !self.config.as_linux) {
            self.curve = saved;
        }
    }

    fn on_idle(&mut self, _now: Instant, idle: Duration) {
        // Time in which nothing was sent does not count (section 5.8).
        self.ticks.shift(idle);
        if let Some(epoch) = &mut self.curve.epoch {
            *epoch += idle;
        }
    }

    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

/// The cube root of `x` ≥ 0 by Newton's iteration: `f64::cbrt` may differ between systems in its
/// last bit.
fn cube_root(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    // A guess by the exponent: within a factor of two.
    let mut y = f64::from_bits(x.to_bits() / 3 + 0x2a9f_7893_782d_a1ce);
    for _ in 0..5 {
        y -= (y * y * y - x) / (3.0 * y * y);
    }
    y
}

#[cfg(test)]
mod tests;
