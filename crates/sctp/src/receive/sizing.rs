//! A receive buffer that grows with what the path carries.
//!
//! What the application takes within one round trip is what the peer had under way. A peer that is
//! starting up doubles that with every round trip and learns of a larger window one round trip
//! later, and while one packet is sent again as much as was under way waits for it: four times as
//! much must fit. (Linux reckons with twice, over a round-trip time that it measures with the queue
//! in it; ours is from the handshake, mostly.)

use core::time::Duration;
use neater_base::Instant;

/// How many round trips' worth must fit.
const ROUNDS: usize = 4;

/// The growth of a buffer.
#[derive(Debug)]
pub(super) struct Sizing {
    most: usize,
    /// Since when `taken` is counted.
    since: Option<Instant>,
    /// Bytes that the application has taken; below zero if it has put more aside, to take later,
    /// than it was given meanwhile.
    taken: isize,
}

impl Sizing {
    /// Of a buffer of at most `most` bytes.
    pub(super) const fn new(most: usize) -> Self {
        Self { most, since: None, taken: 0 }
    }

    /// The application has taken so many bytes.
    pub(super) const fn taken(&mut self, bytes: usize) {
        self.taken = self.taken.saturating_add_unsigned(bytes);
    }

    /// The application has put aside `now` of the bytes that were counted as taken, and had put
    /// aside `before`: it takes them when that becomes less. Else the buffer would grow with unread
    /// data.
    pub(super) const fn held(&mut self, before: usize, now: usize) {
        self.taken = self.taken.saturating_add_unsigned(before).saturating_sub_unsigned(now);
    }

    /// The size from now on of a buffer that had `size` bytes: never less.
    pub(super) fn size(&mut self, size: usize, now: Instant, rtt: Duration) -> usize {
        let since = *self.since.get_or_insert(now);
        if size >= self.most || now - since < rtt {
            return size;
        }
        let taken = usize::try_from(self.taken).unwrap_or(0);
        self.taken -= taken as isize;
        self.since = Some(now);
        taken.saturating_mul(ROUNDS).clamp(size, self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_what_is_taken_in_a_round_trip_up_to_its_limit() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let rtt = Duration::from_millis(100);
        let mut sizing = Sizing::new(1_000_000);
        assert_eq!(sizing.size(100_000, at(0), rtt), 100_000);
        sizing.taken(20_000);
        assert_eq!(sizing.size(100_000, at(100), rtt), 100_000, "it is large enough, and never shrinks");
        sizing.taken(60_000);
        assert_eq!(sizing.size(100_000, at(199), rtt), 100_000, "the round trip is not over");
        assert_eq!(sizing.size(100_000, at(200), rtt), 240_000);
        assert_eq!(sizing.size(240_000, at(300), rtt), 240_000, "nothing was taken");
        sizing.taken(900_000);
        assert_eq!(sizing.size(240_000, at(400), rtt), 1_000_000);
    }

    #[test]
    fn what_was_given_and_put_aside_is_not_taken_until_it_is() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let rtt = Duration::from_millis(100);
        let mut sizing = Sizing::new(1_000_000);
        sizing.size(100_000, at(0), rtt);
        sizing.taken(90_000);
        sizing.held(0, 90_000);
        assert_eq!(sizing.size(100_000, at(100), rtt), 100_000);
        // More is put aside than was given, for pieces cost something: it is owed.
        sizing.held(90_000, 95_000);
        assert_eq!(sizing.size(100_000, at(200), rtt), 100_000);
        sizing.held(95_000, 45_000);
        assert_eq!(sizing.size(100_000, at(300), rtt), 180_000, "45,000 in one round trip");
    }
}
