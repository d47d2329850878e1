//! Sets of numbers as sorted ranges: which TSNs have arrived, which have been acknowledged.
//!
//! *Invariant*: the ranges are in order, not empty, and neither touch nor overlap.

use core::ops::Range;

/// A set of numbers, kept as half-open ranges.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeSet {
    ranges: Vec<Range<u64>>,
}

impl RangeSet {
    pub(crate) const fn new() -> Self {
        Self { ranges: Vec::new() }
    }

    /// How many ranges there are.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Range<u64>> + ExactSizeIterator {
        self.ranges.iter()
    }

    /// The range at `index`.
    pub(crate) fn get(&self, index: usize) -> Option<&Range<u64>> {
        self.ranges.get(index)
    }

    pub(crate) fn clear(&mut self) {
        self.ranges.clear();
    }

    /// The largest number of the set.
    pub(crate) fn last(&self) -> Option<u64> {
        self.ranges.last().map(|r| r.end - 1)
    }

    /// The index of the first range that ends behind `n`.
    pub(crate) fn index_of(&self, n: u64) -> usize {
        // What is asked for is most often at the end.
        match self.ranges.last() {
            Some(last) if last.end > n && last.start <= n => self.ranges.len() - 1,
            Some(last) if last.end <= n => self.ranges.len(),
            _ => self.ranges.partition_point(|r| r.end <= n),
        }
    }

    pub(crate) fn contains(&self, n: u64) -> bool {
        self.ranges.get(self.index_of(n)).is_some_and(|r| r.start <= n)
    }

    /// Whether inserting `n` would make one more range.
    pub(crate) fn would_open(&self, n: u64) -> bool {
        let i = self.index_of(n);
        let before = i.checked_sub(1).is_some_and(|j| self.ranges[j].end == n);
        let at = self.ranges.get(i).is_some_and(|r| r.start <= n + 1);
        !before && !at
    }

    /// Adds one number; false if it was there.
    pub(crate) fn insert(&mut self, n: u64) -> bool {
        let i = self.index_of(n);
        if self.ranges.get(i).is_some_and(|r| r.start <= n) {
            return false;
        }
        let joins_before = i > 0 && self.ranges[i - 1].end == n;
        let joins_after = self.ranges.get(i).is_some_and(|r| r.start == n + 1);
        match (joins_before, joins_after) {
            (true, true) => {
                self.ranges[i - 1].end = self.ranges[i].end;
                self.ranges.remove(i);
            }
            (true, false) => self.ranges[i - 1].end = n + 1,
            (false, true) => self.ranges[i].start = n,
            (false, false) => self.ranges.insert(i, n..n + 1),
        }
        true
    }

    /// Adds the numbers of `new` and calls `fresh` with each stretch of them that was not there, in
    /// order.
    pub(crate) fn insert_range(&mut self, new: Range<u64>, mut fresh: impl FnMut(Range<u64>)) {
        if new.is_empty() {
            return;
        }
        let first = self.index_of(new.start);
        let (mut at, mut i) = (new.start, first);
        while let Some(r) = self.ranges.get(i).filter(|r| r.start < new.end) {
            if r.start > at {
                fresh(at..r.start);
            }
            at = r.end;
            i += 1;
        }
        if at < new.end {
            fresh(at..new.end);
        }
        // The ranges first..i overlap the new one; one that only touches it on either side joins as
        // well.
        let (mut lo, mut hi) = (first, i);
        if lo > 0 && self.ranges[lo - 1].end == new.start {
            lo -= 1;
        }
        if self.ranges.get(hi).is_some_and(|r| r.start == new.end) {
            hi += 1;
        }
        if lo == hi {
            self.ranges.insert(lo, new);
            return;
        }
        let start = self.ranges[lo].start.min(new.start);
        let end = self.ranges[hi - 1].end.max(new.end);
        self.ranges[lo] = start..end;
        self.ranges.drain(lo + 1..hi);
    }

    /// Takes out every number below `n`.
    pub(crate) fn remove_below(&mut self, n: u64) {
        let i = self.index_of(n);
        if i > 0 {
            self.ranges.drain(..i);
        }
        if let Some(r) = self.ranges.first_mut() {
            r.start = r.start.max(n);
        }
    }

    /// Takes the range out that begins at `start`, and returns its end.
    pub(crate) fn take_starting_at(&mut self, start: u64) -> Option<u64> {
        let end = self.ranges.first().filter(|r| r.start == start)?.end;
        self.ranges.remove(0);
        Some(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn listed(set: &RangeSet) -> Vec<u64> {
        set.iter().flat_map(|r| r.clone()).collect()
    }

    #[test]
    fn neighbours_join() {
        let mut set = RangeSet::new();
        assert!(set.insert(5) && set.insert(7));
        assert_eq!(set.len(), 2);
        assert!(!set.would_open(6) && !set.would_open(4) && set.would_open(9));
        assert!(set.insert(6) && !set.insert(6));
        assert_eq!(set.iter().cloned().collect::<Vec<_>>(), vec![5..8]);
        assert_eq!(set.take_starting_at(4), None);
        assert_eq!(set.take_starting_at(5), Some(8));
        assert!(set.is_empty());
    }

    proptest! {
        #[test]
        fn prop_it_is_a_set(steps in prop::collection::vec((0u8..3, 0u64..60, 1u64..12), 1..60)) {
            let (mut set, mut model) = (RangeSet::new(), BTreeSet::new());
            for (what, n, len) in steps {
                match what {
                    0 => {
                        let opens = set.would_open(n) && !model.contains(&n);
                        let before = set.len();
                        prop_assert_eq!(set.insert(n), model.insert(n));
                        if opens {
                            prop_assert_eq!(set.len(), before + 1);
                        }
                    }
                    1 => {
                        let mut fresh = Vec::new();
                        set.insert_range(n..n + len, |r| fresh.extend(r));
                        let expected: Vec<u64> = (n..n + len).filter(|i| model.insert(*i)).collect();
                        prop_assert_eq!(fresh, expected);
                    }
                    _ => {
                        set.remove_below(n);
                        model.retain(|i| *i >= n);
                    }
                }
                prop_assert_eq!(listed(&set), model.iter().copied().collect::<Vec<_>>());
                prop_assert!(set.iter().zip(set.iter().skip(1)).all(|(a, b)| a.end < b.start));
                for i in 0..75 {
                    prop_assert_eq!(set.contains(i), model.contains(&i));
                }
                prop_assert_eq!(set.last(), model.last().copied());
            }
        }
    }
}
