//! How fast answers come over one connection.
//!
//! *Responsible for* the time in which a connection carries bodies, and for what came in it. *Not
//! responsible for* what a rate means for later connections (`ServiceOutcome::Transferred`).
//!
//! *Invariant*: answers that overlap share the rate of the connection, so they are measured
//! together, from the head of the first to the end of the last; if one of them was given up or
//! broke off, nothing is known.

use std::time::{Duration, Instant};

/// The bodies that come over a connection now.
#[derive(Debug, Default)]
pub(super) struct Busy {
    bodies: usize,
    bytes: u64,
    since: Option<Instant>,
    /// One of them did not come to its end.
    broken: bool,
}

impl Busy {
    /// The head of an answer has come that has a body.
    pub(super) fn begin(&mut self, now: Instant) {
        if self.bodies == 0 {
            *self = Self { since: Some(now), ..Self::default() };
        }
        self.bodies += 1;
    }

    /// A body has ended, of which so many bytes came; `None` if it has not come to its end. Returns
    /// what all have brought, and in which time, when no other is coming.
    pub(super) fn end(&mut self, now: Instant, bytes: Option<u64>) -> Option<(u64, Duration)> {
        self.bodies = self.bodies.saturating_sub(1);
        self.broken |= bytes.is_none();
        self.bytes = self.bytes.saturating_add(bytes.unwrap_or(0));
        let since = self.since.filter(|_| self.bodies == 0)?;
        (!self.broken).then(|| (self.bytes, now.saturating_duration_since(since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn bodies_that_overlap_are_measured_together() {
        let (mut busy, start) = (Busy::default(), Instant::now());
        busy.begin(start);
        busy.begin(start + SECOND);
        assert_eq!(busy.end(start + SECOND * 2, Some(10)), None);
        assert_eq!(busy.end(start + SECOND * 3, Some(20)), Some((30, SECOND * 3)));
        // What lies between them does not count.
        busy.begin(start + SECOND * 60);
        assert_eq!(busy.end(start + SECOND * 61, Some(7)), Some((7, SECOND)));
    }

    #[test]
    fn nothing_is_known_where_one_was_given_up() {
        let (mut busy, start) = (Busy::default(), Instant::now());
        busy.begin(start);
        busy.begin(start);
        assert_eq!(busy.end(start + SECOND, None), None);
        assert_eq!(busy.end(start + SECOND, Some(10)), None);
        busy.begin(start);
        assert_eq!(busy.end(start + SECOND, Some(10)), Some((10, SECOND)));
    }
}
