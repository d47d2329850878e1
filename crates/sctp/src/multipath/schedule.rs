//! Which path carries the next packet with new data.

use super::PathScheduler;
use core::time::Duration;

/// A path that could carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) index: usize,
    pub(crate) smoothed: Option<Duration>,
}

/// A scheduler.
pub(crate) trait Schedule: core::fmt::Debug + Send + Sync {
    /// Chooses one of the candidates, whose windows have room; they come in the order of their
    /// indices.
    fn choose(&mut self, candidates: &[Candidate]) -> Option<usize>;

    /// A packet with new data has left on this path.
    fn sent(&mut self, index: usize);
}

impl PathScheduler {
    pub(crate) fn build(self) -> Box<dyn Schedule> {
        match self {
            Self::RoundRobin => Box::new(RoundRobin::default()),
            Self::LowestRtt => Box::new(LowestRtt),
        }
    }
}

/// Paths take turns.
#[derive(Debug, Default)]
struct RoundRobin {
    last: Option<usize>,
}

impl Schedule for RoundRobin {
    fn choose(&mut self, candidates: &[Candidate]) -> Option<usize> {
        let after = candidates.iter().find(|c| self.last.is_some_and(|last| c.index > last));
        after.or_else(|| candidates.first()).map(|c| c.index)
    }

    fn sent(&mut self, index: usize) {
        self.last = Some(index);
    }
}

/// The fastest goes first.
#[derive(Debug)]
struct LowestRtt;

impl Schedule for LowestRtt {
    fn choose(&mut self, candidates: &[Candidate]) -> Option<usize> {
        candidates.iter().min_by_key(|c| (c.smoothed.unwrap_or(Duration::MAX), c.index)).map(|c| c.index)
    }

    fn sent(&mut self, _: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(of: &[(usize, Option<u64>)]) -> Vec<Candidate> {
        of.iter().map(|(index, ms)| Candidate { index: *index, smoothed: ms.map(Duration::from_millis) }).collect()
    }

    #[test]
    fn paths_take_turns_and_those_without_room_are_passed_over() {
        let mut scheduler = PathScheduler::RoundRobin.build();
        let all = candidates(&[(0, None), (1, None), (3, None)]);
        let mut seen = Vec::new();
        for _ in 0..4 {
            let next = scheduler.choose(&all).unwrap();
            scheduler.sent(next);
            seen.push(next);
        }
        assert_eq!(seen, [0, 1, 3, 0]);
        assert_eq!(scheduler.choose(&all[..1]), Some(0));
        assert_eq!(scheduler.choose(&[]), None);
    }

    #[test]
    fn the_fastest_path_goes_first_and_an_unknown_one_last() {
        let mut scheduler = PathScheduler::LowestRtt.build();
        assert_eq!(scheduler.choose(&candidates(&[(0, Some(30)), (1, Some(20)), (2, None)])), Some(1));
        assert_eq!(scheduler.choose(&candidates(&[(0, None), (2, None)])), Some(0));
    }
}
