//! Datagrams by their numbers: which of them have arrived, and which could have.

use core::time::Duration;
use neater_base::Instant;
use std::collections::VecDeque;

/// Of so many datagrams it is known when they were sent.
const KNOWN: usize = 1 << 14;

/// What became of the datagrams of a flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers {
    /// The number of the next one.
    next: u64,
    /// The number of the first one that is measured.
    first: Option<u64>,
    /// When the latest ones were sent.
    times: VecDeque<Instant>,
    /// A bit for each that has arrived.
    seen: Vec<u64>,
    /// The longest that one was under way.
    longest: Option<Duration>,
    /// Of those that are measured, so many have arrived.
    arrived: u64,
    /// Those that are too short for a number: sent and arrived while it was measured.
    short: (u64, u64),
}

impl Numbers {
    /// One is sent: its number.
    pub(super) fn send(&mut self, now: Instant, measured: bool) -> u64 {
        let number = self.next;
        self.next += 1;
        if measured {
            self.first.get_or_insert(number);
        }
        if self.times.len() == KNOWN {
            self.times.pop_front();
        }
        self.times.push_back(now);
        number
    }

    /// One without a number is sent, or has arrived.
    pub(super) fn short(&mut self, sent: bool) {
        let count = if sent { &mut self.short.0 } else { &mut self.short.1 };
        *count += 1;
    }

    fn is_seen(&self, number: u64) -> bool {
        self.seen.get((number / 64) as usize).is_some_and(|bits| bits >> (number % 64) & 1 == 1)
    }

    /// One has arrived. A second copy of it, or a number that was never sent, counts for nothing.
    pub(super) fn arrive(&mut self, now: Instant, number: u64) {
        if number >= self.next || self.is_seen(number) {
            return;
        }
        let word = (number / 64) as usize;
        if self.seen.len() <= word {
            self.seen.resize(word + 1, 0);
        }
        self.seen[word] |= 1 << (number % 64);
        let back = self.next - number;
        if let Some(sent) = self.times.len().checked_sub(back as usize).and_then(|at| self.times.get(at)) {
            self.longest = self.longest.max(Some(now - *sent));
        }
        self.arrived += u64::from(self.first.is_some_and(|first| number >= first));
    }

    /// Those that were sent while it was measured and have had the time to arrive, and those of them that have. What was sent no longer
    /// ago than another one was under way may still come, and is left out whether it has come or not.
    pub(crate) fn measured(&self, now: Instant) -> (u64, u64) {
        let sent = self.first.map_or(0, |first| self.next - first);
        let fresh = |sent: &Instant| self.longest.is_some_and(|longest| now - *sent <= longest);
        let latest = self.times.iter().rev().zip((0..self.next).rev()).take(sent as usize);
        let (mut young, mut young_arrived) = (0, 0);
        for (_, number) in latest.take_while(|(at, _)| fresh(at)) {
            young += 1;
            young_arrived += u64::from(self.is_seen(number));
        }
        (sent - young + self.short.0, self.arrived - young_arrived + self.short.1.min(self.short.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn only_what_was_sent_in_time_and_had_time_to_arrive_counts() {
        let mut n = Numbers::default();
        // Before it is measured: all lost, which is nobody's business.
        for ms in 0..10 {
            n.send(at(ms), false);
        }
        assert_eq!(n.measured(at(10)), (0, 0));
        for ms in 10..20 {
            let number = n.send(at(ms), true);
            if number != 12 {
                n.arrive(at(ms + 5), number);
                // A copy.
                n.arrive(at(ms + 6), number);
            }
        }
        n.arrive(at(30), 1_000_000);
        assert_eq!(n.measured(at(30)), (10, 9));
        // Two more: one just sent, one that another would have overtaken.
        n.send(at(30), true);
        n.send(at(34), true);
        assert_eq!(n.measured(at(34)), (10, 9));
        assert_eq!(n.measured(at(36)), (11, 9));
        assert_eq!(n.measured(at(50)), (12, 9));
    }

    #[test]
    fn where_nothing_arrives_everything_is_lost() {
        let mut n = Numbers::default();
        for ms in 0..KNOWN as u64 + 5 {
            n.send(at(ms), true);
        }
        assert_eq!(n.measured(at(KNOWN as u64)), (KNOWN as u64 + 5, 0));
    }
}
