//! The outcome of an earlier race, tried alone.

use crate::request::Compiled;
use neater_race::{MAX_ATTEMPT_DELAY, Outcome};

/// How long the cached outcome is tried alone, in nanoseconds: as long as between two attempts, and
/// not less than its peer needs to answer as quickly as last time, with a quarter of that for the
/// vagaries of queues. Without that, every connect over a path that is longer than the delay
/// between attempts would race again, and wait for a better candidate that is silent. Never longer
/// than establishment may take in all.
#[inline]
pub(crate) fn patience(outcome: &Outcome, request: &Compiled) -> u64 {
    const MOST: u64 = MAX_ATTEMPT_DELAY.as_nanos() as u64 * 4 / 5;
    // In nanoseconds from the beginning: each flow pays for this.
    let rtt = outcome.rtt.map_or(0, |rtt| rtt.as_nanos() as u64).min(MOST);
    request.attempt_delay.max(rtt + rtt / 4).min(request.most_patience)
}
