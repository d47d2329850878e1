//! What a path adds to the others: found out by not using it for a few round trips.
//!
//! Two paths may lead through one bottleneck. Then both together carry what one does, and take
//! twice the share of any other flow there. RFC 8382 looks for that in statistics of one-way
//! delays; paths that are alike and full at the same time look the same there. Here one path is
//! given a rest instead: where the others then carry what it did, three times in a row, it adds
//! nothing.
//!
//! *Responsible for* when a path rests, and for what follows from it. *Not responsible for*
//! counting.

use core::time::Duration;
use neater_base::Instant;

/// The first trial comes when several paths have been busy for so long; each that finds a gain
/// doubles the time to the next.
const FIRST: Duration = Duration::from_secs(3);
const LONGEST: Duration = Duration::from_secs(60);
/// And when so many of the longest round trips have passed: what a trial costs is a small part of
/// that.
const ROUNDS: u32 = 50;
/// A path that adds nothing is not used for so long at first, twice as long each time in a row.
const REST: Duration = Duration::from_secs(20);
const LONGEST_REST: Duration = Duration::from_secs(160);
/// A trial takes so many round trips of the slowest path: before it what there was is counted, then
/// what is under way drains, and then what the others carry is counted.
const BEFORE: u32 = 4;
const DRAIN: u32 = 2;
const DURING: u32 = 4;
/// So many trials in a row must find that a path adds nothing: where delays vary and packets are
/// lost, rates of a few round trips double by chance.
const TRIALS: u32 = 3;
/// No trial is shorter than this for each round trip: few packets are little evidence.
const LEAST_ROUND: Duration = Duration::from_millis(20);

/// What is counted of one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Bytes acknowledged so far.
    pub(crate) delivered: u64,
    /// It carries new data, as far as windows go.
    pub(crate) busy: bool,
    /// Its window is not to be compared: slow start, or recovery from a loss.
    pub(crate) unsettled: bool,
    pub(crate) round_trip: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
enum Phase {
    /// Waiting until then.
    #[default]
    Idle,
    /// Counting with all paths.
    Before { since: Instant, rested: usize },
    /// The path rests; what is under way drains.
    Draining { until: Instant, rested: usize, others: f64, own: f64 },
    /// Counting without it.
    During { since: Instant, rested: usize, others: f64, own: f64 },
}

/// The trials of an association.
#[derive(Debug, Default)]
pub(crate) struct Gain {
    phase: Phase,
    /// Since when several paths have been busy, or the last trial is over.
    since: Option<Instant>,
    wait: Duration,
    /// Which path has added nothing in the last trials, and in how many: chance may have been at
    /// work.
    suspected: Option<(usize, u32)>,
    /// Delivered when counting began, by path.
    at: Vec<u64>,
    /// Until when paths add nothing, and for how long that was, by path.
    unused: Vec<(Option<Instant>, Duration)>,
    /// Which path rests next.
    turn: usize,
}

impl Gain {
    /// Whether a path is not to be used now.
    pub(crate) fn rests(&self, index: usize) -> bool {
        let resting = match self.phase {
            Phase::Draining { rested, .. } | Phase::During { rested, .. } => rested == index,
            Phase::Idle | Phase::Before { .. } => false,
        };
        resting || self.is_useless(index)
    }

    /// Whether a path was found to add nothing.
    pub(crate) fn is_useless(&self, index: usize) -> bool {
        self.unused.get(index).is_some_and(|(until, _)| until.is_some())
    }

    /// The path that would be tried cannot be any more, or nothing is to be compared.
    pub(crate) fn give_up(&mut self, now: Instant) {
        if !matches!(self.phase, Phase::Idle) {
            (self.phase, self.since) = (Phase::Idle, Some(now));
        }
    }

    /// An acknowledgment has come. `paths`: those that are active, others are `None`.
    pub(crate) fn update(&mut self, now: Instant, paths: &[Option<Tally>]) {
        self.unused.resize(paths.len(), (None, Duration::ZERO));
        for ((until, rest), tally) in self.unused.iter_mut().zip(paths) {
            if until.is_some_and(|at| at <= now) {
                *until = None;
            }
            // What failed, or is gone, may come back as another network.
            if tally.is_none() {
                (*until, *rest) = (None, Duration::ZERO);
            }
        }
        let round = paths.iter().flatten().map(|t| t.round_trip).max().unwrap_or_default().max(LEAST_ROUND);
        match self.phase {
            Phase::Idle => self.idle(now, paths, round),
            Phase::Before { since, rested } => {
                if !self.comparable(paths, rested, true) {
                    return self.give_up(now);
                }
                let time = now - since;
                if time >= round * BEFORE {
                    let (others, own) = self.rates(paths, rested, time);
                    self.phase = Phase::Draining { until: now + round * DRAIN, rested, others, own };
                }
            }
            Phase::Draining { until, rested, others, own } => {
                if !self.comparable(paths, rested, false) {
                    return self.give_up(now);
                }
                if now >= until {
                    self.note(paths);
                    self.phase = Phase::During { since: now, rested, others, own };
                }
            }
            Phase::During { since, rested, others, own } => {
                if !self.comparable(paths, rested, false) {
                    return self.give_up(now);
                }
                let time = now - since;
                if time >= round * DURING {
                    let (without, _) = self.rates(paths, rested, time);
                    self.conclude(now, rested, without - others, own, others);
                }
            }
        }
    }

    fn idle(&mut self, now: Instant, paths: &[Option<Tally>], round: Duration) {
        let unused = &self.unused;
        let useless = |i: usize| unused.get(i).is_some_and(|(until, _)| until.is_some());
        let busy = |i: &usize| paths[*i].is_some_and(|t| t.busy) && !useless(*i);
        let count = (0..paths.len()).filter(busy).count();
        if count < 2 {
            self.since = None;
            return;
        }
        // A trial lasts as many round trips as now, and those grow with the queues.
        if now - *self.since.get_or_insert(now) < self.wait.max(FIRST).max(round * ROUNDS) {
            return;
        }
        // Of two, the slower one; of more, each in turn, for each may be the one that is too many.
        let slowest = |i: &usize| (paths[*i].map_or(Duration::ZERO, |t| t.round_trip), *i);
        let turn = self.turn;
        let in_turn = |i: &usize| (*i <= turn, *i);
        let candidates = (0..paths.len()).filter(busy);
        let rested = if count == 2 { candidates.max_by_key(slowest) } else { candidates.min_by_key(in_turn) };
        let Some(rested) = self.suspected.map(|(path, _)| path).filter(busy).or(rested) else { return };
        self.turn = rested;
        self.note(paths);
        self.phase = Phase::Before { since: now, rested };
    }

    fn note(&mut self, paths: &[Option<Tally>]) {
        self.at.clear();
        self.at.extend(paths.iter().map(|t| t.map_or(0, |t| t.delivered)));
    }

    /// Whether windows are what they were but for the trial.
    fn comparable(&self, paths: &[Option<Tally>], rested: usize, before: bool) -> bool {
        let fine = |(i, t): (usize, &Option<Tally>)| match t {
            Some(t) if i == rested => !before || t.busy,
            Some(t) => self.is_useless(i) || t.busy && !t.unsettled,
            None => i != rested,
        };
        paths.len() >= self.at.len() && paths.iter().enumerate().all(fine)
    }

    /// Bytes per second of the others together, and of the path itself.
    fn rates(&self, paths: &[Option<Tally>], rested: usize, time: Duration) -> (f64, f64) {
        let seconds = time.as_secs_f64().max(1e-3);
        let mut sums = (0.0, 0.0);
        for (i, tally) in paths.iter().enumerate() {
            let delivered = tally.map_or(0, |t| t.delivered);
            let more = delivered.saturating_sub(self.at.get(i).copied().unwrap_or(delivered)) as f64 / seconds;
            if i == rested { sums.1 += more } else { sums.0 += more }
        }
        sums
    }

    fn conclude(&mut self, now: Instant, rested: usize, more: f64, own: f64, others: f64) {
        (self.phase, self.since) = (Phase::Idle, Some(now));
        // Of what it carried the others carry a good part now, and more than windows grow by in the
        // meantime.
        let shared = more > 0.3 * own && more > 0.1 * others;
        let Some((until, rest)) = self.unused.get_mut(rested) else { return };
        if !shared {
            (*rest, self.suspected) = (Duration::ZERO, None);
            self.wait = (self.wait * 2).clamp(2 * FIRST, LONGEST);
            return;
        }
        self.wait = FIRST;
        let before = self.suspected.filter(|(path, _)| *path == rested).map_or(0, |(_, trials)| trials);
        if before + 1 < TRIALS && rest.is_zero() {
            self.suspected = Some((rested, before + 1));
            return;
        }
        self.suspected = None;
        *rest = (*rest * 2).clamp(REST, LONGEST_REST);
        *until = Some(now + *rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Runs two paths for so long; `rates` returns in bytes per millisecond what they carry, from
    /// whether each rests.
    fn run(gain: &mut Gain, from: u64, to: u64, totals: &mut [u64; 2], rates: impl Fn([bool; 2]) -> [u64; 2]) -> u64 {
        let mut unused = 0;
        for ms in from..to {
            let rests = [gain.rests(0), gain.rests(1)];
            unused += u64::from(rests[0] || rests[1]);
            let carried = rates(rests);
            for i in 0..2 {
                totals[i] += carried[i];
            }
            let tally =
                |i: usize| Some(Tally { delivered: totals[i], busy: !rests[i], unsettled: false, round_trip: MS * 20 });
            gain.update(Instant::ZERO + MS * ms as u32, &[tally(0), tally(1)]);
        }
        unused
    }

    #[test]
    fn a_path_that_adds_something_rests_seldom() {
        let (mut gain, mut totals) = (Gain::default(), [0; 2]);
        let independent = |rests: [bool; 2]| rests.map(|r| if r { 0 } else { 5000 });
        let unused = run(&mut gain, 1, 60_000, &mut totals, independent);
        assert!((100..800).contains(&unused), "{unused} of 60,000 ms");
        assert!(!gain.is_useless(0) && !gain.is_useless(1));
    }

    #[test]
    fn a_path_through_the_same_bottleneck_is_not_used() {
        let (mut gain, mut totals) = (Gain::default(), [0; 2]);
        let shared = |rests: [bool; 2]| match rests {
            [false, false] => [3333, 3333],
            [true, false] => [0, 5000],
            [false, true] => [5000, 0],
            [true, true] => [0, 0],
        };
        let unused = run(&mut gain, 1, 60_000, &mut totals, shared);
        assert!(unused > 45_000, "{unused} of 60,000 ms");
    }

    #[test]
    fn nothing_is_concluded_while_windows_are_unsettled() {
        let mut gain = Gain::default();
        for ms in 0..30_000u64 {
            assert!(!gain.rests(0) && !gain.rests(1));
            let tally = Some(Tally { delivered: ms * 1000, busy: true, unsettled: true, round_trip: MS * 20 });
            gain.update(Instant::ZERO + MS * ms as u32, &[tally, tally]);
        }
    }
}
