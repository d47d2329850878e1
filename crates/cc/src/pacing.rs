//! Pacing: packets spread over the round trip instead of sent in bursts.

use crate::controller::Window;
use core::time::Duration;
use neater_base::Instant;

/// The constants of a pacer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacingConfig {
    /// The rate in slow start, in percent of a window per round trip (Linux: `tcp_pacing_ss_ratio`,
    /// 200).
    pub slow_start_percent: u32,
    /// The rate afterwards (Linux: `tcp_pacing_ca_ratio`, 120; RFC 9002 section 7.7 suggests 125).
    pub avoidance_percent: u32,
    /// What may leave at once, in segments (RFC 9002 section 7.7: no more than the initial window).
    pub burst_segments: u32,
}

impl Default for PacingConfig {
    fn default() -> Self {
        Self { slow_start_percent: 200, avoidance_percent: 120, burst_segments: 10 }
    }
}

impl PacingConfig {
    /// The pacing rate in bytes per second; `None` before the round-trip time is known. As in Linux
    /// the higher rate holds while the window is below half the threshold, so that the last round
    /// of slow start does not overshoot.
    #[must_use]
    pub fn rate(&self, window: &Window, srtt: Option<Duration>) -> Option<u64> {
        let nanos = srtt?.as_nanos().max(1);
        let percent = if window.cwnd < window.ssthresh / 2 { self.slow_start_percent } else { self.avoidance_percent };
        let share = u128::from(window.cwnd) * u128::from(percent) * 10_000_000;
        let rate = match (u64::try_from(share), u64::try_from(nanos)) {
            (Ok(share), Ok(nanos)) => share / nanos,
            _ => u64::try_from(share / nanos).unwrap_or(u64::MAX),
        };
        Some(rate.max(1))
    }
}

/// A token bucket that fills at the pacing rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacer {
    /// When the bucket will have been empty-handed: sending is free from a burst's time before
    /// this.
    next: Instant,
}

impl Pacer {
    /// A full bucket.
    #[must_use]
    pub const fn new() -> Self {
        Self { next: Instant::ZERO }
    }

    /// When the next packet may leave: `now` or later. `rate` in bytes per second, `burst` in
    /// bytes.
    #[must_use]
    pub fn release(&self, now: Instant, rate: u64, burst: u64) -> Instant {
        let early = time_for(burst, rate);
        (self.next - early).max(now)
    }

    /// `bytes` were sent at `now`.
    pub fn on_sent(&mut self, now: Instant, bytes: u64, rate: u64) {
        self.next = self.next.max(now) + time_for(bytes, rate);
    }
}

impl Default for Pacer {
    fn default() -> Self {
        Self::new()
    }
}

fn time_for(bytes: u64, rate: u64) -> Duration {
    // Asked for with every packet: up to 18 GB the narrow division does.
    let nanos = match bytes.checked_mul(1_000_000_000) {
        Some(product) => product / rate.max(1),
        None => u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1))).unwrap_or(u64::MAX),
    };
    Duration::from_nanos(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_a_share_of_the_window_per_round_trip() {
        let config = PacingConfig::default();
        let w = Window { cwnd: 100_000, ssthresh: Window::UNKNOWN, mss: 1000 };
        let rtt = Some(Duration::from_millis(100));
        assert_eq!(config.rate(&w, None), None);
        assert_eq!(config.rate(&w, rtt), Some(2_000_000));
        assert_eq!(config.rate(&Window { ssthresh: 150_000, ..w }, rtt), Some(1_200_000));
    }

    #[test]
    fn a_burst_is_free_and_the_rest_is_spread() {
        let mut pacer = Pacer::new();
        let start = Instant::ZERO + Duration::from_secs(1);
        let mut now = start;
        let mut sent = Vec::new();
        for _ in 0..20 {
            now = pacer.release(now, 1_000_000, 10_000);
            pacer.on_sent(now, 1000, 1_000_000);
            sent.push((now - start).as_micros());
        }
        assert!(sent[..11].iter().all(|t| *t == 0), "{sent:?}");
        assert!(sent[11..].windows(2).all(|w| w[1] - w[0] == 1000), "{sent:?}");
    }

    #[test]
    fn silence_refills_no_more_than_one_burst() {
        let mut pacer = Pacer::new();
        let later = Instant::ZERO + Duration::from_secs(100);
        for _ in 0..30 {
            let at = pacer.release(later, 1_000_000, 10_000);
            pacer.on_sent(at, 1000, 1_000_000);
        }
        let next = pacer.release(later, 1_000_000, 10_000);
        assert_eq!(next - later, Duration::from_millis(20));
    }
}
