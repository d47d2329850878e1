//! Traffic of others on a link: sources that are on and off for times with a heavy tail (Pareto), so that their sum is bursty on all
//! scales of time (Natarajan 2009, section 4.5.1).

use neater_base::{Instant, Rng};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Sources of a link: four hosts with eight each.
const SOURCES: usize = 32;
/// Of the Pareto distribution of both times, and their means.
const SHAPE: f64 = 1.5;
const ON: f64 = 0.5;
const OFF: f64 = 0.5;
/// They begin at random within so many seconds.
const BEGIN: f64 = 5.0;
/// Lengths of packets in bytes, the shortest of them twice as often as each of the others.
const LENGTHS: [u32; 4] = [44, 44, 576, 1500];

/// The sources of one direction of one link.
#[derive(Debug)]
pub(super) struct Cross {
    rng: Rng,
    /// What one source sends while it is on, in bytes per second.
    rate: f64,
    /// When each sends next, and until when it is on then.
    next: BinaryHeap<Reverse<(Instant, Instant)>>,
}

impl Cross {
    /// Sources that send so much together, in bytes per second, from `now` on.
    pub(super) fn new(rate: f64, now: Instant, seed: u64) -> Self {
        let mut rng = Rng::from_number(seed);
        let mut next = BinaryHeap::new();
        for _ in 0..SOURCES {
            let at = now + Duration::from_secs_f64(BEGIN * rng.unit());
            next.push(Reverse((at, at + pareto(&mut rng, ON))));
        }
        let rate = rate / SOURCES as f64 * (ON + OFF) / ON;
        Self { rng, rate, next }
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.next.peek().map(|Reverse((at, _))| *at)
    }

    /// The length of a packet that is sent now, one after the other.
    pub(super) fn poll(&mut self, now: Instant) -> Option<u32> {
        let Reverse((at, until)) = *self.next.peek().filter(|Reverse((at, _))| *at <= now)?;
        self.next.pop();
        let length = LENGTHS[self.rng.below(LENGTHS.len() as u64) as usize];
        let then = at + Duration::from_secs_f64(f64::from(length) / self.rate);
        let again = if then < until {
            (then, until)
        } else {
            let begins = then.max(until) + pareto(&mut self.rng, OFF);
            (begins, begins + pareto(&mut self.rng, ON))
        };
        self.next.push(Reverse(again));
        Some(length)
    }
}

/// A time with that mean in seconds; none is longer than 1,000 of them.
fn pareto(rng: &mut Rng, mean: f64) -> Duration {
    let least = mean * (SHAPE - 1.0) / SHAPE;
    let value = least / (1.0 - rng.unit()).powf(1.0 / SHAPE);
    Duration::from_secs_f64(value.min(1000.0 * mean))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_send_what_is_asked_of_them_in_bursts() {
        let rate = 1_000_000.0;
        let mut cross = Cross::new(rate, Instant::ZERO, 3);
        let (mut now, mut seconds) = (Instant::ZERO, vec![0.0; 400]);
        while let Some(next) = cross.next_timeout().filter(|n| *n < Instant::ZERO + Duration::from_secs(400)) {
            now = now.max(next);
            while let Some(length) = cross.poll(now) {
                seconds[(now - Instant::ZERO).as_secs() as usize] += f64::from(length);
            }
        }
        let settled = &seconds[10..];
        let mean = settled.iter().sum::<f64>() / settled.len() as f64;
        assert!((0.8..1.2).contains(&(mean / rate)), "{mean}");
        let variance = settled.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / settled.len() as f64;
        // Sources that send evenly vary by less than 1 % of it.
        assert!(variance.sqrt() > 0.08 * mean, "{}", variance.sqrt() / mean);
    }
}
