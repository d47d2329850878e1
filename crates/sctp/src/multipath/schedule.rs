//! Which path carries the next packet with new data.

use super::{PathScheduler, PathVerdict};
use core::time::Duration;

/// A path that new data may go, as far as it matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) index: usize,
    /// Window, pace and share let a packet leave now.
    pub(crate) ready: bool,
    /// It is the one that data goes where one is used at a time.
    pub(crate) preferred: bool,
    /// The smoothed round-trip time, its variation, and the round trip of a packet that leaves now:
    /// the queue that a path has built itself is gone when nothing is under way.
    pub(crate) smoothed: Option<Duration>,
    pub(crate) expected: Option<Duration>,
    pub(crate) variation: Duration,
    /// The congestion window and what is under way, in bytes.
    pub(crate) window: u64,
    pub(crate) in_flight: u64,
    /// What the scheduler makes of it.
    pub(crate) verdict: PathVerdict,
}

impl Candidate {
    fn smoothed(&self) -> Duration {
        self.smoothed.unwrap_or(Duration::MAX)
    }

    fn expected(&self) -> Duration {
        self.expected.unwrap_or(Duration::MAX)
    }

    /// What it carries, in bytes per second: a window in a round trip.
    fn rate(&self) -> u64 {
        let nanos = self.smoothed.map_or(u128::MAX, |rtt| rtt.as_nanos().max(1));
        u64::try_from(u128::from(self.window) * 1_000_000_000 / nanos).unwrap_or(u64::MAX)
    }

    /// How long after it has left a packet is acknowledged, most likely.
    fn arrival(&self) -> Duration {
        self.expected().saturating_add(self.variation)
    }
}

/// What there is to send, and what the peer has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Bytes that wait; `u64::MAX`: the application has more than is taken from it.
    pub(crate) backlog: u64,
    /// The peer's receive window, in bytes.
    pub(crate) window: u64,
}

/// A scheduler.
pub(crate) trait Schedule: core::fmt::Debug + Send + Sync {
    /// Chooses one of the candidates that are ready; all come in the order of their indices.
    /// `None`: it is better to wait for one that is not.
    fn choose(&mut self, candidates: &mut [Candidate], demand: &Demand) -> Option<usize>;

    /// A packet with new data has left on this path.
    fn sent(&mut self, index: usize) {
        let _ = index;
    }

    /// Whether everything goes once more on every other path.
    fn copies_everything(&self) -> bool {
        false
    }
}

impl PathScheduler {
    pub(crate) fn build(self) -> Box<dyn Schedule> {
        match self {
            Self::RoundRobin => Box::new(RoundRobin::default()),
            Self::LowestRtt => Box::new(LowestRtt),
            Self::Redundant => Box::new(RoundRobin { copies: true, last: None }),
            Self::Preferred => Box::new(Preferred),
            Self::EarliestCompletion => Box::new(Estimating { completion: true, blocking: false }),
            Self::BlockingEstimation => Box::new(Estimating { completion: false, blocking: true }),
            Self::Adaptive => Box::new(Estimating { completion: true, blocking: true }),
        }
    }
}

fn ready(candidates: &[Candidate]) -> impl Iterator<Item = &Candidate> {
    candidates.iter().filter(|c| c.ready)
}

/// Paths take turns.
#[derive(Debug, Default)]
struct RoundRobin {
    last: Option<usize>,
    /// Everything goes once more on every other path. The original takes turns, for a window grows
    /// by what is acknowledged of originals.
    copies: bool,
}

impl Schedule for RoundRobin {
    fn choose(&mut self, candidates: &mut [Candidate], _: &Demand) -> Option<usize> {
        let after = ready(candidates).find(|c| self.last.is_some_and(|last| c.index > last));
        after.or_else(|| ready(candidates).next()).map(|c| c.index)
    }

    fn sent(&mut self, index: usize) {
        self.last = Some(index);
    }

    fn copies_everything(&self) -> bool {
        self.copies
    }
}

/// The fastest goes first.
#[derive(Debug)]
struct LowestRtt;

impl Schedule for LowestRtt {
    fn choose(&mut self, candidates: &mut [Candidate], _: &Demand) -> Option<usize> {
        ready(candidates).min_by_key(|c| (c.smoothed(), c.index)).map(|c| c.index)
    }
}

/// One at a time.
#[derive(Debug)]
struct Preferred;

impl Schedule for Preferred {
    fn choose(&mut self, candidates: &mut [Candidate], _: &Demand) -> Option<usize> {
        for path in candidates.iter_mut().filter(|c| !c.preferred) {
            path.verdict = PathVerdict::Standby;
        }
        ready(candidates).find(|c| c.preferred).map(|c| c.index)
    }
}

/// The fastest goes first, and a slower one only where that is no loss.
#[derive(Debug)]
struct Estimating {
    /// A packet must arrive before the faster ones have carried all that waits.
    completion: bool,
    /// What the faster ones carry until it arrives must fit into the peer's receive window.
    blocking: bool,
}

/// The paths that are faster than the one that is looked at.
#[derive(Clone, Copy, Debug, Default)]
struct Faster {
    /// What they carry together, in bytes per second.
    rate: u64,
    /// The round-trip time of the fastest.
    first: Option<Duration>,
}

impl Faster {
    /// How long they take for so many bytes.
    fn takes(&self, bytes: u64) -> Duration {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// What they carry in that time, in bytes.
    fn carry(&self, time: Duration) -> u64 {
        u64::try_from(u128::from(self.rate).saturating_mul(time.as_nanos()) / 1_000_000_000).unwrap_or(u64::MAX)
    }
}

impl Estimating {
    fn judge(&self, path: &Candidate, faster: &Faster, demand: &Demand) -> PathVerdict {
        let Some(first) = faster.first else { return PathVerdict::Used };
        let ahead = path.arrival().saturating_sub(first);
        let completes = demand.backlog == u64::MAX || ahead <= faster.takes(demand.backlog);
        if self.completion && !completes {
            return PathVerdict::FasterSuffice;
        }
        let fits = faster.carry(ahead).saturating_add(path.in_flight) <= demand.window;
        if self.blocking && !fits { PathVerdict::WouldBlock } else { PathVerdict::Used }
    }
}

impl Schedule for Estimating {
    fn choose(&mut self, candidates: &mut [Candidate], demand: &Demand) -> Option<usize> {
        let mut faster = Faster::default();
        let (mut after, mut chosen) = (None, None);
        // In the order of their round-trip times: there are few, and no list of them need be sorted
        // for each packet.
        for _ in 0..candidates.len() {
            let key = |c: &Candidate| (c.expected(), c.index);
            let later = candidates.iter_mut().filter(|c| after.is_none_or(|a| key(c) > a));
            let path = later.min_by_key(|c| key(c))?;
            path.verdict = self.judge(path, &faster, demand);
            if path.ready {
                // What is slower than one that is free, or than one that it is not worth to use,
                // waits.
                chosen = (path.verdict == PathVerdict::Used).then_some(path.index);
                break;
            }
            after = Some(key(path));
            faster.rate = faster.rate.saturating_add(path.rate());
            faster.first = faster.first.or(path.expected);
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MUCH: Demand = Demand { backlog: u64::MAX, window: 1 << 30 };

    fn candidates(of: &[(usize, Option<u64>)]) -> Vec<Candidate> {
        let ready = |(index, ms): &(usize, Option<u64>)| Candidate {
            index: *index,
            ready: true,
            smoothed: ms.map(Duration::from_millis),
            expected: ms.map(Duration::from_millis),
            window: 100_000,
            ..Candidate::default()
        };
        of.iter().map(ready).collect()
    }

    #[test]
    fn paths_take_turns_and_those_without_room_are_passed_over() {
        let mut scheduler = PathScheduler::RoundRobin.build();
        let all = candidates(&[(0, None), (1, None), (3, None)]);
        let mut seen = Vec::new();
        for _ in 0..4 {
            let next = scheduler.choose(&mut all.clone(), &MUCH).unwrap();
            scheduler.sent(next);
            seen.push(next);
        }
        assert_eq!(seen, [0, 1, 3, 0]);
        assert_eq!(scheduler.choose(&mut all.clone()[..1], &MUCH), Some(0));
        assert_eq!(scheduler.choose(&mut [], &MUCH), None);
    }

    #[test]
    fn the_fastest_path_goes_first_and_an_unknown_one_last() {
        let mut scheduler = PathScheduler::LowestRtt.build();
        assert_eq!(scheduler.choose(&mut candidates(&[(0, Some(30)), (1, Some(20)), (2, None)]), &MUCH), Some(1));
        assert_eq!(scheduler.choose(&mut candidates(&[(0, None), (2, None)]), &MUCH), Some(0));
    }

    #[test]
    fn the_preferred_path_alone_is_used_where_others_stand_by() {
        let mut scheduler = PathScheduler::Preferred.build();
        let mut paths = candidates(&[(0, Some(30)), (1, Some(20))]);
        paths[0].preferred = true;
        assert_eq!(scheduler.choose(&mut paths, &MUCH), Some(0));
        paths[0].ready = false;
        assert_eq!(scheduler.choose(&mut paths, &MUCH), None);
    }

    #[test]
    fn a_slower_path_waits_where_the_faster_one_will_have_carried_all_before_it() {
        let mut scheduler = PathScheduler::EarliestCompletion.build();
        // 100,000 bytes in 20 ms: 5 MB/s. The other one is 80 ms behind, in which the first carries
        // 400,000.
        let mut paths = candidates(&[(0, Some(20)), (1, Some(100))]);
        assert_eq!(scheduler.choose(&mut paths, &Demand { backlog: 1, ..MUCH }), Some(0));
        paths[0].ready = false;
        assert_eq!(scheduler.choose(&mut paths, &Demand { backlog: 390_000, ..MUCH }), None);
        assert_eq!(scheduler.choose(&mut paths, &Demand { backlog: 410_000, ..MUCH }), Some(1));
        assert_eq!(scheduler.choose(&mut paths, &MUCH), Some(1));
        paths[1].variation = Duration::from_millis(20);
        assert_eq!(scheduler.choose(&mut paths, &Demand { backlog: 410_000, ..MUCH }), None, "it may come later");
    }

    #[test]
    fn a_slower_path_waits_where_it_would_block_the_peers_window() {
        let mut scheduler = PathScheduler::BlockingEstimation.build();
        let mut paths = candidates(&[(0, Some(20)), (1, Some(100))]);
        paths[0].ready = false;
        let demand = |window| Demand { backlog: 1, window };
        assert_eq!(scheduler.choose(&mut paths, &demand(410_000)), Some(1));
        assert_eq!(scheduler.choose(&mut paths, &demand(390_000)), None);
        assert_eq!([paths[0].verdict, paths[1].verdict], [PathVerdict::Used, PathVerdict::WouldBlock]);
        paths[1].in_flight = 20_000;
        assert_eq!(scheduler.choose(&mut paths, &demand(410_000)), None);
        assert_eq!(PathScheduler::Adaptive.build().choose(&mut paths, &demand(1 << 20)), None, "both conditions");
    }
}
