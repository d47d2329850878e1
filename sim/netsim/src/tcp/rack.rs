//! Finding losses by time (RACK, RFC 8985 section 6): how patient to be with what may only be late.

use super::scoreboard::Newest;
use super::segment::Seq;
use core::time::Duration;

/// Duplicate acknowledgments, or segments delivered above a hole, that mean a loss (RFC 5681 section 3.2): until the network
/// is seen to reorder.
pub(crate) const DUP_THRESHOLD: u64 = 3;
/// Linux: `tcp_max_reordering`.
const MAX_REORDERING: u64 = 300;
/// RFC 8985 section 6.2 step 4: a widened window is kept for this many recoveries.
const PERSIST: u32 = 16;

/// The state of the detection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rack {
    /// The most recently sent segment that was delivered.
    pub(crate) newest: Option<Newest>,
    /// The most segments by which something was overtaken, at least [`DUP_THRESHOLD`].
    pub(crate) reordering: u64,
    /// Reordering was seen on this connection.
    pub(crate) seen: bool,
    /// Quarters of the least round-trip time to wait.
    steps: u32,
    persist: u32,
    /// The round that a duplicate report must lie after to count again.
    round: Seq,
}

impl Default for Rack {
    fn default() -> Self {
        Self { newest: None, reordering: DUP_THRESHOLD, seen: false, steps: 1, persist: 0, round: Seq(0) }
    }
}

impl Rack {
    /// How much later than its successors a segment may come (RFC 8985 section 6.2 step 4, as in Linux: no patience during a
    /// recovery or after three overtakings, unless the network is known to reorder).
    pub(crate) fn patience(
        &self,
        recovering: bool,
        overtaken_by: u64,
        least_rtt: Option<Duration>,
        srtt: Option<Duration>,
    ) -> Duration {
        if !self.seen && (recovering || overtaken_by >= self.reordering) {
            return Duration::ZERO;
        }
        let window = least_rtt.unwrap_or_default() / 4 * self.steps;
        window.min(srtt.unwrap_or(window))
    }

    /// A segment that was sent once came after one that lies `distance` bytes above it.
    pub(crate) fn on_reordering(&mut self, distance: u64, mss: u64) {
        self.seen = true;
        let segments = distance.div_ceil(mss.max(1));
        if segments > self.reordering {
            self.reordering = segments.min(MAX_REORDERING);
        }
    }

    /// The receiver reported a duplicate: something was sent again too soon. At most one widening per round trip.
    pub(crate) fn on_duplicate(&mut self, una: Seq, next: Seq) {
        if una >= self.round {
            self.round = next;
            self.steps = (self.steps + 1).min(255);
            self.persist = PERSIST;
        }
    }

    /// A recovery has ended.
    pub(crate) fn on_recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.steps = 1;
        }
    }

    /// A timeout: a degree of reordering that was learnt is not believed any longer.
    pub(crate) fn on_timeout(&mut self) {
        self.reordering = self.reordering.min(DUP_THRESHOLD);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn patience_is_a_quarter_of_the_least_round_trip_until_three_have_overtaken() {
        let rack = Rack::default();
        let patience = |recovering, by| rack.patience(recovering, by, Some(MS * 40), Some(MS * 50));
        assert_eq!(
            (patience(false, 1), patience(false, 3), patience(true, 0)),
            (MS * 10, Duration::ZERO, Duration::ZERO)
        );
    }

    #[test]
    fn reordering_teaches_patience_and_duplicates_more_of_it() {
        let mut rack = Rack::default();
        rack.on_reordering(5000, 1000);
        assert_eq!((rack.seen, rack.reordering), (true, 5));
        assert_eq!(rack.patience(true, 9, Some(MS * 40), Some(MS * 50)), MS * 10);
        rack.on_duplicate(Seq(10), Seq(50));
        rack.on_duplicate(Seq(20), Seq(60));
        assert_eq!(rack.patience(true, 9, Some(MS * 40), Some(MS * 50)), MS * 20, "once per round trip");
        rack.on_duplicate(Seq(50), Seq(90));
        rack.on_duplicate(Seq(95), Seq(120));
        rack.on_duplicate(Seq(125), Seq(200));
        assert_eq!(rack.patience(true, 9, Some(MS * 40), Some(MS * 50)), MS * 50, "never more than the smoothed one");
        (0..16).for_each(|_| rack.on_recovered());
        assert_eq!(rack.patience(true, 9, Some(MS * 40), Some(MS * 50)), MS * 10);
    }
}
