//! Many deadlines, one next timeout.

use crate::Instant;
use core::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A queue of deadlines, each with a small payload.
///
/// Cancelling is the caller's business: a payload that no longer means anything is recognised when
/// it is popped (a generational [`crate::Key`] makes that free) or, through [`Timers::compact`],
/// when too much of the heap is stale. Entries of one instant come out in the order they went in,
/// so that a run is repeatable.
#[derive(Debug)]
pub struct Timers<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    /// Entries that came in the order of their deadlines, for which a queue does.
    lane: VecDeque<Entry<T>>,
    /// The earliest deadline, if there is one: asked for after every call.
    earliest: Instant,
    /// The latest deadline that has been in the lane.
    latest: Instant,
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
        Self {
            heap: BinaryHeap::new(),
            lane: VecDeque::new(),
            earliest: Instant::FAR_FUTURE,
            latest: Instant::ZERO,
            sequence: 0,
        }
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
        self.earliest = self.earliest.min(at);
        self.heap.push(Reverse(Entry { at, sequence: self.sequence, payload }));
    }

    /// As [`Timers::push`], for deadlines that mostly come in their order, as those of one constant
    /// delay do: then it costs a quarter of it.
    #[inline]
    pub fn push_in_order(&mut self, at: Instant, payload: T) {
        if at < self.latest {
            return self.push(at, payload);
        }
        self.latest = at;
        self.sequence += 1;
        self.earliest = self.earliest.min(at);
        self.lane.push_back(Entry { at, sequence: self.sequence, payload });
    }

    /// The earliest entry, and whether it is in the lane.
    #[inline]
    fn first(&self) -> Option<(&Entry<T>, bool)> {
        match (self.lane.front(), self.heap.peek()) {
            (None, None) => None,
            (Some(l), None) => Some((l, true)),
            (Some(l), Some(Reverse(h))) if l < h => Some((l, true)),
            (_, Some(Reverse(h))) => Some((h, false)),
        }
    }

    fn pop(&mut self, in_lane: bool) -> Option<(Instant, u64, T)> {
        let entry = if in_lane { self.lane.pop_front() } else { self.heap.pop().map(|Reverse(e)| e) };
        self.look();
        entry.map(|e| (e.at, e.sequence, e.payload))
    }

    /// Finds the earliest deadline, after others have gone.
    fn look(&mut self) {
        self.earliest = self.first().map_or(Instant::FAR_FUTURE, |(e, _)| e.at);
    }

    /// The earliest deadline, stale ones included.
    #[inline]
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        (!self.is_empty()).then_some(self.earliest)
    }

    /// Takes out the earliest payload that is due.
    #[inline]
    pub fn pop_due(&mut self, now: Instant) -> Option<T> {
        self.pop_due_aged(now).map(|(_, _, payload)| payload)
    }

    /// As [`Timers::pop_due`], with the entry's deadline and its age: the number of entries that
    /// had been added with it.
    #[inline]
    pub fn pop_due_aged(&mut self, now: Instant) -> Option<(Instant, u64, T)> {
        if self.earliest > now {
            return None;
        }
        if self.heap.is_empty() {
            let entry = self.lane.pop_front()?;
            self.earliest = self.lane.front().map_or(Instant::FAR_FUTURE, |e| e.at);
            return Some((entry.at, entry.sequence, entry.payload));
        }
        let (_, in_lane) = self.first().filter(|(e, _)| e.at <= now)?;
        self.pop(in_lane)
    }

    /// How many entries have ever been added: what is added from now on has a greater age.
    #[inline]
    #[must_use]
    pub fn added(&self) -> u64 {
        self.sequence
    }

    /// Drops the payloads at the head for which `live` is false, so that [`Timers::next`] is exact.
    pub fn prune_head(&mut self, mut live: impl FnMut(&T) -> bool) {
        while let Some((e, in_lane)) = self.first() {
            if live(&e.payload) {
                break;
            }
            self.pop(in_lane);
        }
    }

    /// As [`Timers::prune_head`], of those that are due.
    pub fn prune_due(&mut self, now: Instant, mut live: impl FnMut(&T) -> bool) {
        while let Some((e, in_lane)) = self.first() {
            if e.at > now || live(&e.payload) {
                break;
            }
            self.pop(in_lane);
        }
    }

    /// Drops every entry for which `live` is false. Call it when [`Timers::len`] has outgrown what
    /// can be live.
    pub fn compact(&mut self, mut live: impl FnMut(Instant, &T) -> bool) {
        self.heap.retain(|Reverse(e)| live(e.at, &e.payload));
        self.lane.retain(|e| live(e.at, &e.payload));
        self.look();
    }

    /// How many entries there are, stale ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len() + self.lane.len()
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
    fn entries_of_the_lane_come_out_as_if_there_were_none() {
        let mut timers = Timers::new();
        let t = Instant::from_nanos;
        timers.push_in_order(t(5), 'b');
        timers.push(t(5), 'c');
        timers.push_in_order(t(7), 'e');
        // Out of order: it waits elsewhere.
        timers.push_in_order(t(3), 'a');
        timers.push_in_order(t(7), 'f');
        timers.push(t(6), 'd');
        assert_eq!((timers.next(), timers.len()), (Some(t(3)), 6));
        timers.compact(|_, c| *c != 'f');
        let out: Vec<_> = core::iter::from_fn(|| timers.pop_due(t(6))).collect();
        assert_eq!(out, ['a', 'b', 'c', 'd']);
        timers.prune_head(|c| *c != 'e');
        assert!(timers.is_empty());
    }

    #[test]
    fn an_entry_tells_whether_it_was_there_already() {
        let mut timers = Timers::new();
        timers.push(Instant::ZERO, 'b');
        timers.push_in_order(Instant::ZERO, 'a');
        let there = timers.added();
        assert_eq!(timers.pop_due_aged(Instant::ZERO), Some((Instant::ZERO, 1, 'b')));
        timers.push(Instant::ZERO, 'c');
        timers.push_in_order(Instant::ZERO, 'd');
        let ages: Vec<_> =
            core::iter::from_fn(|| timers.pop_due_aged(Instant::ZERO)).map(|(_, age, c)| (age <= there, c)).collect();
        assert_eq!(ages, [(true, 'a'), (false, 'c'), (false, 'd')]);
    }

    #[test]
    fn stale_entries_can_be_dropped() {
        let mut timers = Timers::new();
        for i in 0..10u32 {
            timers.push(Instant::ZERO + Duration::from_secs(u64::from(i)), i);
        }
        timers.prune_head(|i| *i >= 3);
        assert_eq!(timers.next(), Some(Instant::ZERO + Duration::from_secs(3)));
        timers.compact(|_, i| i % 2 == 1);
        assert_eq!(timers.len(), 4);
    }
}
