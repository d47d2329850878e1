//! Many deadlines, one next timeout.

use crate::Instant;
use core::cmp::Reverse;
use std::collections::BinaryHeap;

/// A queue of deadlines, each with a small payload.
///
/// Cancelling is the caller's business: a payload that no longer means anything is recognised when it is popped (a
/// generational [`crate::Key`] makes that free) or, through [`Timers::compact`], when too much of the heap is stale.
/// Entries of one instant come out in the order they went in, so that a run is repeatable.
#[derive(Debug)]
pub struct Timers<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    sequence: u64,
}

#[derive(Debug)]
struct Entry<T> {
    at: Instant,
    sequence: u64,
    payload: T,
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.sequence) == (other.at, other.sequence)
    }
}
impl<T> Eq for Entry<T> {}
impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), sequence: 0 }
    }
}

impl<T> Timers<T> {
    /// An empty queue; allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a deadline.
    pub fn push(&mut self, at: Instant, payload: T) {
        self.sequence += 1;
        self.heap.push(Reverse(Entry { at, sequence: self.sequence, payload }));
    }

    /// The earliest deadline, stale ones included.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(e)| e.at)
    }

    /// Takes out the earliest payload that is due.
    pub fn pop_due(&mut self, now: Instant) -> Option<T> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(e)| e.payload)
    }

    /// Drops the payloads at the head for which `live` is false, so that [`Timers::next`] tells the truth.
    pub fn prune_head(&mut self, mut live: impl FnMut(&T) -> bool) {
        while let Some(Reverse(e)) = self.heap.peek() {
            if live(&e.payload) {
                break;
            }
            self.heap.pop();
        }
    }

    /// Drops every payload for which `live` is false. Call it when [`Timers::len`] has outgrown what can be live.
    pub fn compact(&mut self, mut live: impl FnMut(&T) -> bool) {
        self.heap.retain(|Reverse(e)| live(&e.payload));
    }

    /// How many entries there are, stale ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    #[test]
    fn entries_come_out_by_time_then_by_age() {
        let mut timers = Timers::new();
        let t = Instant::from_nanos;
        timers.push(t(5), 'b');
        timers.push(t(1), 'a');
        timers.push(t(5), 'c');
        assert_eq!(timers.next(), Some(t(1)));
        assert_eq!(timers.pop_due(t(0)), None);
        let mut out = Vec::new();
        while let Some(c) = timers.pop_due(t(5)) {
            out.push(c);
        }
        assert_eq!(out, ['a', 'b', 'c']);
    }

    #[test]
    fn stale_entries_can_be_dropped() {
        let mut timers = Timers::new();
        for i in 0..10u32 {
            timers.push(Instant::ZERO + Duration::from_secs(u64::from(i)), i);
        }
        timers.prune_head(|i| *i >= 3);
        assert_eq!(timers.next(), Some(Instant::ZERO + Duration::from_secs(3)));
        timers.compact(|i| i % 2 == 1);
        assert_eq!(timers.len(), 4);
    }
}
