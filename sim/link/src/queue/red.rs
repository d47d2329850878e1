//! RED: drops at random before the queue is full (Floyd and Jacobson 1993, "Random early detection gateways for congestion
//! avoidance", section IV), with the gentle slope that Floyd added in 2000.

use neater_base::Instant;

/// The parameters of RED. Thresholds are in the unit of the queue's limit: bytes or packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Red {
    /// Below this mean length nothing is dropped.
    pub min: u64,
    /// From this mean length on everything is dropped, or with `gentle` from twice of it on.
    pub max: u64,
    /// The probability at `max`, 0 to 1.
    pub max_probability: f64,
    /// The weight of the present length in the mean, 0 to 1: 0.002.
    pub weight: f64,
    /// Between `max` and twice of it the probability rises to 1 instead of jumping there.
    pub gentle: bool,
    /// Marks packets of flows that understand it instead of dropping them early. What is dropped because the mean is too
    /// large is dropped.
    pub ecn: bool,
}

impl Red {
    /// RED as its authors advise for thresholds `min` and `max`, which should be at least twice `min`: a weight of 0.002,
    /// at most one of ten dropped, gentle.
    #[must_use]
    pub const fn new(min: u64, max: u64) -> Self {
        Self { min, max, max_probability: 0.1, weight: 0.002, gentle: true, ecn: false }
    }
}

/// What RED says of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    /// Chance has chosen it.
    Early,
    /// The mean is too large.
    Forced,
}

#[derive(Debug, Default)]
pub(super) struct RedState {
    mean: f64,
    /// Packets since the last that was dropped or marked; `None` below the lower threshold.
    count: Option<u64>,
    idle_since: Option<Instant>,
}

impl RedState {
    /// The queue has become empty.
    pub(super) fn empty(&mut self, now: Instant) {
        self.idle_since = Some(now);
    }

    pub(super) fn arrive(&mut self, red: &Red, now: Instant, depth: u64, typical: f64, luck: f64) -> Verdict {
        if depth == 0 {
            // As if packets had arrived at an empty queue all the time.
            let idle = self.idle_since.map_or(0.0, |since| (now - since).as_nanos() as f64);
            let missed = if typical > 0.0 { idle / typical } else { f64::MAX };
            self.mean *= libm::pow(1.0 - red.weight, missed.min(1e9));
            self.idle_since = Some(now);
        } else {
            self.mean += red.weight * (depth as f64 - self.mean);
        }
        let (min, max) = (red.min as f64, red.max as f64);
        if self.mean < min {
            self.count = None;
            return Verdict::Pass;
        }
        let base = if self.mean < max {
            red.max_probability * (self.mean - min) / (max - min)
        } else if red.gentle && self.mean < 2.0 * max {
            red.max_probability + (1.0 - red.max_probability) * (self.mean - max) / max
        } else {
            self.count = Some(0);
            return Verdict::Forced;
        };
        // Spreads drops evenly: the gaps between them are uniform and not geometric.
        let count = self.count.map_or(0, |c| c + 1);
        let rest = 1.0 - count as f64 * base;
        if rest <= 0.0 || luck < base / rest {
            self.count = Some(0);
            return Verdict::Early;
        }
        self.count = Some(count);
        Verdict::Pass
    }
}
