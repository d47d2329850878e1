//! How fast answers come over one connection.
//!
//! *Responsible for* the time in which a connection carries bodies, and for what came in it. *Not
//! responsible for* what a rate means for later connections (`ServiceOutcome::Transferred`).
//!
//! *Invariants*: answers that overlap share the rate of the connection, so they are measured
//! together, from the head of the first to the end of the last; if one of them was given up or
//! broke off, or if another connection carried bodies meanwhile, nothing is known.

use std::time::{Duration, Instant};

/// The connections of this process that carry bodies: they share its network.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    busy: usize,
    /// How often a connection began to carry bodies while another did.
    overlaps: u64,
}

impl Crowd {
    /// None carries anything.
    pub(super) const fn new() -> Self {
        Self { busy: 0, overlaps: 0 }
    }
}

/// The bodies that come over a connection now.
#[derive(Debug, Default)]
pub(super) struct Busy {
    bodies: usize,
    bytes: u64,
    since: Option<Instant>,
    /// One of them did not come to its end, or another connection was busy at the beginning.
    spoilt: bool,
    /// [`Crowd::overlaps`] at the beginning.
    overlaps: u64,
}

impl Busy {
    /// The head of an answer has come that has a body.
    pub(super) fn begin(&mut self, now: Instant, crowd: &mut Crowd) {
        if self.bodies == 0 {
            let spoilt = crowd.busy > 0;
            crowd.overlaps += u64::from(spoilt);
            crowd.busy += 1;
            *self = Self { since: Some(now), spoilt, overlaps: crowd.overlaps, ..Self::default() };
        }
        self.bodies += 1;
    }

    /// A body has ended, of which so many bytes came; `None` if it has not come to its end. Returns
    /// what all have brought, and in which time, when no other is coming.
    pub(super) fn end(&mut self, now: Instant, bytes: Option<u64>, crowd: &mut Crowd) -> Option<(u64, Duration)> {
        self.bodies = self.bodies.saturating_sub(1);
        self.spoilt |= bytes.is_none();
        self.bytes = self.bytes.saturating_add(bytes.unwrap_or(0));
        let since = self.since.filter(|_| self.bodies == 0)?;
        crowd.busy = crowd.busy.saturating_sub(1);
        let alone = !self.spoilt && self.overlaps == crowd.overlaps;
        alone.then(|| (self.bytes, now.saturating_duration_since(since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn bodies_that_overlap_are_measured_together() {
        let (mut busy, start, mut all) = (Busy::default(), Instant::now(), Crowd::new());
        busy.begin(start, &mut all);
        busy.begin(start + SECOND, &mut all);
        assert_eq!(busy.end(start + SECOND * 2, Some(10), &mut all), None);
        assert_eq!(busy.end(start + SECOND * 3, Some(20), &mut all), Some((30, SECOND * 3)));
        // What lies between them does not count.
        busy.begin(start + SECOND * 60, &mut all);
        assert_eq!(busy.end(start + SECOND * 61, Some(7), &mut all), Some((7, SECOND)));
    }

    #[test]
    fn nothing_is_known_where_one_was_given_up() {
        let (mut busy, start, mut all) = (Busy::default(), Instant::now(), Crowd::new());
        busy.begin(start, &mut all);
        busy.begin(start, &mut all);
        assert_eq!(busy.end(start + SECOND, None, &mut all), None);
        assert_eq!(busy.end(start + SECOND, Some(10), &mut all), None);
        busy.begin(start, &mut all);
        assert_eq!(busy.end(start + SECOND, Some(10), &mut all), Some((10, SECOND)));
    }

    #[test]
    fn nothing_is_known_where_connections_shared_the_network() {
        let (start, mut all) = (Instant::now(), Crowd::new());
        let (mut one, mut two) = (Busy::default(), Busy::default());
        one.begin(start, &mut all);
        two.begin(start, &mut all);
        assert_eq!(one.end(start + SECOND, Some(10), &mut all), None);
        assert_eq!(two.end(start + SECOND, Some(10), &mut all), None);
        two.begin(start, &mut all);
        assert_eq!(two.end(start + SECOND, Some(10), &mut all), Some((10, SECOND)));
    }
}
