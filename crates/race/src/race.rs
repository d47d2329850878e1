//! The race: when to start which candidate, and which one wins.
//!
//! *Responsible for* the clockwork over a list that `order` makes: opening paths as answers come
//! in, staggering starts, holding back what a reachable candidate makes needless, the grace, and
//! the end. *Not responsible for* what an attempt is.
//!
//! *Invariants*: those of the crate. All that can be done at an instant is done in the call that
//! brings it, so a driver that drains [`Race::poll_output`] and then waits for
//! [`Race::next_timeout`] misses nothing.

use crate::doubt::judge;
use crate::order::{Planned, plan, shares};
use crate::resolution::Resolution;
use crate::{
    Address, Candidate, CandidateId, CandidateOutcome, CandidateReport, Config, Doubt, Family, Input, MAX_PATHS,
    MAX_STACKS, Mark, Output, PathId, PathSpec, Progress, ResolutionReport, StackId, StackOption,
};
use core::fmt::Debug;
use core::time::Duration;
use neater_base::Instant;
use std::collections::VecDeque;

/// The longest round-trip time that waiting goes by; longer ones count as this. It is the Maximum
/// Connection Attempt Delay of RFC 8305 section 5.
pub const RTT_LIMIT: Duration = crate::MAX_ATTEMPT_DELAY;

/// How many of its round trips a reachable candidate holds back those that are no better.
const HOLD_ROUND_TRIPS: u32 = 2;
/// How many of its round trips a better, reachable candidate is waited for.
const GRACE_ROUND_TRIPS: u32 = 2;

/// Path, then stack; lower is better. The endpoint does not count: another address of a stack is no
/// better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    path: u16,
    stack: u16,
}

#[derive(Clone, Debug)]
struct Node<F> {
    rank: Rank,
    standing: Standing,
    report: CandidateReport<F>,
}

impl<F> Node<F> {
    fn is_running(&self) -> bool {
        matches!(self.report.outcome, CandidateOutcome::Running)
    }

    fn is_established(&self) -> bool {
        matches!(self.report.outcome, CandidateOutcome::Established)
    }

    fn is_unstarted(&self) -> bool {
        matches!(self.report.outcome, CandidateOutcome::NotStarted)
    }

    /// The order in which candidates take their turns: those that are bad last, and among the
    /// others of a path those behind against which more speaks.
    fn turn(&self) -> (bool, u16, u8, u16) {
        let (own, weight) = self.standing;
        (own, self.rank.path, weight, self.rank.stack)
    }

    fn rtt(&self) -> Duration {
        self.report.rtt.unwrap_or_default().min(RTT_LIMIT)
    }
}

/// What speaks against a candidate, to be compared: whether it is bad itself, and the weight.
type Standing = (bool, u8);

fn doubts(doubt: Option<Doubt>) -> Standing {
    doubt.map_or((false, 0), |d| (d.own, d.weight))
}

/// The grace: begun by the first establishment, ended by the win or by the failure of all that were
/// established.
#[derive(Clone, Copy, Debug)]
struct Grace {
    since: Instant,
    /// Until when a better candidate may become reachable.
    until: Instant,
}

/// One race, from the first answer of name resolution to the connection that is used.
///
/// See the crate's documentation for what it promises. `F` is the reason of a failure; the race
/// only passes it on.
#[derive(Clone, Debug)]
pub struct Race<F> {
    config: Config,
    /// In rank order.
    paths: Vec<Resolution<F>>,
    /// In rank order.
    stacks: Vec<StackOption>,
    /// The stacks of paths that do not take all of them in this order, by the path's rank.
    own_stacks: Vec<(u16, Vec<StackOption>)>,
    /// In the order in which they are started. At most `config.max_candidates`.
    nodes: Vec<Node<F>>,
    next_id: u32,
    last_start: Option<Instant>,
    /// A candidate has failed since the last start: the next one does not wait.
    failed_since_start: bool,
    grace: Option<Grace>,
    over: bool,
    /// By path: the outcome history against candidates.
    marks: Vec<(PathId, Mark)>,
    /// At most one start per call that is not drained, and one doubt and one end per node.
    outputs: VecDeque<Output>,
    now: Instant,
}

impl<F: Clone + Debug + PartialEq> Race<F> {
    /// A race over `paths` and `stacks`, both best first. The configuration is
    /// [clamped](Config::clamped); a second path or stack of the same name, and what exceeds
    /// [`MAX_PATHS`] and [`MAX_STACKS`], is left out.
    ///
    /// Where nothing can ever come of it, it is lost at once.
    #[must_use]
    pub fn new(now: Instant, config: Config, paths: Vec<PathSpec>, stacks: Vec<StackOption>, seed: [u8; 32]) -> Self {
        let paths = distinct(paths, MAX_PATHS, |p| p.id).into_iter().enumerate();
        let mut race = Self {
            config: config.clamped(),
            paths: paths.map(|(i, spec)| Resolution::new(spec, of_path(seed, i))).collect(),
            stacks: distinct(stacks, MAX_STACKS, |s| s.id),
            own_stacks: Vec::new(),
            nodes: Vec::new(),
            next_id: 0,
            last_start: None,
            failed_since_start: false,
            grace: None,
            over: false,
            marks: Vec::new(),
            outputs: VecDeque::new(),
            now,
        };
        race.advance();
        race
    }

    /// Lets only these stacks be tried by a path, in this order, to be called before its first
    /// answer. What the race does not have is left out; no stack at all leaves the path without
    /// candidates. Ranks of stacks are compared within a path only.
    pub fn restrict(&mut self, path: PathId, stacks: &[StackId]) {
        let Some(rank) = self.paths.iter().position(|r| r.spec.id == path) else { return };
        let known = |id: &StackId| self.stacks.iter().find(|s| s.id == *id).copied();
        let own = distinct(stacks.iter().filter_map(known).collect(), MAX_STACKS, |s| s.id);
        self.own_stacks.retain(|(of, _)| usize::from(*of) != rank);
        self.own_stacks.push((rank as u16, own));
    }

    /// The stacks of the path with this rank, best first.
    fn stacks_of(&self, path: usize) -> &[StackOption] {
        let own = self.own_stacks.iter().find(|(of, _)| usize::from(*of) == path);
        own.map_or(&self.stacks, |(_, stacks)| stacks)
    }

    /// Passes the outcome history against candidates of a path, to be called before its first
    /// answer. It is advice: what is bad goes to the end of the list, and is tried like any other
    /// when its turn comes; where all are bad, nothing changes. At most [`crate::MAX_BAD`] marks
    /// for each path are used.
    pub fn pass_history(&mut self, path: PathId, marks: impl Iterator<Item = Mark>) {
        self.marks.extend(marks.take(crate::MAX_BAD).map(|m| (path, m)));
    }

    /// Reports that a candidate which was started had been under way since `since`, before the
    /// race, because it has worked before: the driver has taken that attempt for it. The next start
    /// is counted from there.
    pub fn began_before(&mut self, now: Instant, id: CandidateId, since: Instant) {
        self.tick(now);
        if let Some(node) = self.nodes.iter_mut().find(|n| n.report.candidate.id == id && n.is_running()) {
            node.report.started_at = node.report.started_at.min(Some(since));
            self.last_start = self.nodes.iter().filter_map(|n| n.report.started_at).max();
        }
        self.advance();
    }

    /// Takes in one fact. After the end, and about what the race does not know, it changes nothing.
    pub fn handle_input(&mut self, now: Instant, input: Input<F>) {
        self.tick(now);
        if self.over {
            return;
        }
        match input {
            Input::Answer { path, family, result } => {
                let now = self.now;
                self.resolve(path, |r, _| r.answer(now, family, result));
            }
            Input::Services { path, result } => {
                let now = self.now;
                self.resolve(path, |r, stacks| r.answer_services(now, result, stacks));
            }
            Input::ServicesSoFar { path, services } => {
                let now = self.now;
                self.resolve(path, |r, stacks| r.services_so_far(now, services, stacks));
            }
            Input::Progress { candidate, progress } => self.progress(candidate, progress),
        }
        self.advance();
    }

    /// Replaces the addresses of one family, when DNS answers change: attempts that were started
    /// continue, other addresses that are gone are dropped, new ones are "sorted into the list of
    /// addresses not yet attempted" (RFC 8305 section 6).
    pub fn changed_addresses(&mut self, now: Instant, path: PathId, family: Family, addresses: Vec<Address>) {
        self.handle_input(now, Input::Answer { path, family, result: Ok(addresses) });
    }

    /// Does what is due. Early or repeated calls have no effect.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.tick(now);
        self.advance();
    }

    /// What is to be done next; `None` when all has been returned.
    pub fn poll_output(&mut self, now: Instant) -> Option<Output> {
        self.tick(now);
        self.outputs.pop_front()
    }

    /// When [`Race::handle_timeout`] has something to do, if nothing else happens before.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        if self.over {
            return None;
        }
        let next = match self.best_established() {
            Some(best) => Some(self.wait_until(best)),
            None => {
                let delays = self.paths.iter().filter(|r| !r.open).filter_map(|r| r.delay_ends(&self.config));
                let unstarted = self.nodes.iter().filter(|n| n.is_unstarted());
                let starts = unstarted.map(|n| self.next_start().max(self.released_at(n)));
                delays.chain(starts).min()
            }
        };
        next.into_iter().chain(self.config.deadline).min()
    }

    /// Whether the race is won or lost. Outputs may be left to poll.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Every candidate, in the order of the race: those whose address has since gone from the
    /// answers, then best first.
    #[must_use]
    pub fn report(&self) -> Vec<CandidateReport<F>> {
        self.nodes.iter().map(|n| n.report.clone()).collect()
    }

    /// What became of each question to the resolver, by path and then services, AAAA, A; questions
    /// that were neither expected nor answered are left out.
    #[must_use]
    pub fn resolution_report(&self) -> Vec<ResolutionReport<F>> {
        self.paths.iter().flat_map(Resolution::report).collect()
    }

    /// Time never runs backwards.
    fn tick(&mut self, now: Instant) {
        debug_assert!(now >= self.now, "time ran backwards: {now:?} after {:?}", self.now);
        self.now = self.now.max(now);
    }

    /// Takes in an answer about a path of the race.
    fn resolve(&mut self, path: PathId, answer: impl FnOnce(&mut Resolution<F>, &[StackOption])) {
        let Some(rank) = self.paths.iter().position(|r| r.spec.id == path) else { return };
        let own = self.own_stacks.iter().find(|(of, _)| usize::from(*of) == rank);
        let stacks = own.map_or(&self.stacks, |(_, stacks)| stacks);
        let Some(r) = self.paths.get_mut(rank) else { return };
        answer(r, stacks);
        if r.open {
            self.rebuild();
        }
    }

    /// Does everything that is due now.
    fn advance(&mut self) {
        if self.over {
            return;
        }
        self.open_paths();
        let late = self.config.deadline.is_some_and(|deadline| self.now >= deadline);
        if let Some(best) = self.best_established() {
            if late || self.now >= self.wait_until(best) {
                self.win(best.report.candidate.id);
            }
        } else if late {
            self.lose();
        } else if let Some(id) = self.due() {
            self.start(id);
        } else if self.is_exhausted() {
            self.lose();
        }
    }

    /// Lets paths take part whose resolution is complete enough, or has taken too long to wait on
    /// for.
    ///
    /// For one path this is RFC 8305 section 3, widened to services by
    /// draft-ietf-happy-happyeyeballs-v3. Among several, a path also waits for better ones, no
    /// longer than for its own better answers: otherwise the faster resolver would decide between
    /// them.
    fn open_paths(&mut self) {
        let mut better_settled = true;
        let mut opened = false;
        for r in &mut self.paths {
            if !r.open
                && let Some(delay_ends) = r.delay_ends(&self.config)
            {
                let complete = better_settled && r.has_preferred(self.config.preferred_family);
                r.open = complete || self.now >= delay_ends;
                opened |= r.open;
            }
            better_settled &= r.open || !r.is_pending();
        }
        if opened {
            self.rebuild();
        }
    }

    /// Rebuilds the list of candidates from all answers, as if they had been there from the start.
    /// Those that were started stay.
    fn rebuild(&mut self) {
        let open = self.paths.iter().enumerate().filter(|(_, r)| r.open);
        let plans: Vec<Vec<Planned>> = open.map(|(i, r)| plan(&self.config, i as u16, r, self.stacks_of(i))).collect();
        let wanted: Vec<usize> = plans.iter().map(Vec::len).collect();
        let shares = shares(self.config.max_candidates, &wanted);
        let places = plans.iter().zip(shares).flat_map(|(plan, share)| plan.iter().take(share));
        let mut places: Vec<(&Planned, Option<Doubt>, Standing)> = self.standings(places);
        // Only now, so that what is bad is put back and not crowded out. The sort is stable.
        places.sort_by_key(|(place, _, (own, weight))| (*own, place.path, *weight));

        let mut old: Vec<Option<Node<F>>> = core::mem::take(&mut self.nodes).into_iter().map(Some).collect();
        let started = old.iter().flatten().filter(|n| !n.is_unstarted()).count();
        let mut room = self.config.max_candidates.saturating_sub(started);
        let mut nodes = Vec::new();
        for (place, doubt, standing) in places {
            let known = old.iter_mut().find(|slot| slot.as_ref().is_some_and(|n| n.stands_at(place)));
            let node = known.and_then(Option::take).map(|n| Node { standing, ..n });
            if node.as_ref().is_some_and(|n| !n.is_unstarted()) {
                nodes.extend(node);
            } else if room > 0 {
                room -= 1;
                nodes.extend(node.or_else(|| self.new_node(place, doubt, standing)));
            }
        }
        self.nodes = old.into_iter().flatten().filter(|n| !n.is_unstarted()).chain(nodes).collect();
    }

    /// The outcome history against a place of the plan.
    fn doubt(&self, place: &Planned) -> Option<Doubt> {
        let path = self.paths.get(usize::from(place.path))?.spec.id;
        let stack = self.stacks_of(usize::from(place.path)).get(usize::from(place.stack))?.id;
        let marks = self.marks.iter().filter(|(p, _)| *p == path).map(|(_, m)| m);
        judge(marks, stack, place.addr, |id| self.stacks.iter().find(|s| s.id == id).map(|s| s.group))
    }

    /// Places in their order, each with what speaks against it.
    ///
    /// One without security stands no better than those with security that were before it: else an
    /// attacker that can make an encrypted attempt fail would have the next one in the clear.
    fn standings<'a>(&self, places: impl Iterator<Item = &'a Planned>) -> Vec<(&'a Planned, Option<Doubt>, Standing)> {
        let mut out: Vec<(&Planned, Option<Doubt>, Standing)> = Vec::new();
        // The worst of those with security: of all whether they are bad themselves, of this path
        // the weight.
        let (mut own_before, mut path, mut weight_before) = (false, None, 0_u8);
        for place in places {
            let doubt = self.doubt(place);
            let (own, weight) = doubts(doubt);
            if path.replace(place.path) != Some(place.path) {
                weight_before = 0;
            }
            let standing = if self.is_secure(place) {
                (own_before, weight_before) = (own_before || own, weight_before.max(weight));
                (own, weight)
            } else {
                (own || own_before, weight.max(weight_before))
            };
            out.push((place, doubt, standing));
        }
        out
    }

    fn is_secure(&self, place: &Planned) -> bool {
        self.stacks_of(usize::from(place.path)).get(usize::from(place.stack)).is_none_or(|s| s.secure)
    }

    fn new_node(&mut self, place: &Planned, doubt: Option<Doubt>, standing: Standing) -> Option<Node<F>> {
        let path = self.paths.get(usize::from(place.path))?.spec.id;
        let stack = self.stacks_of(usize::from(place.path)).get(usize::from(place.stack))?.id;
        let id = CandidateId(self.next_id);
        // Names are never used twice: after 2³² of them no candidate is added any more.
        self.next_id = self.next_id.checked_add(1)?;
        let candidate = Candidate { id, path, stack, addr: place.addr };
        self.outputs.extend(doubt.map(|d| Output::Doubted(candidate, d)));
        Some(Node {
            rank: Rank { path: place.path, stack: place.stack },
            standing,
            report: CandidateReport {
                candidate,
                started_at: None,
                reachable_at: None,
                established_at: None,
                rtt: None,
                ended_at: None,
                doubt,
                outcome: CandidateOutcome::NotStarted,
            },
        })
    }

    fn progress(&mut self, id: CandidateId, progress: Progress<F>) {
        let now = self.now;
        let Some(node) = self.nodes.iter_mut().find(|n| n.report.candidate.id == id) else { return };
        match progress {
            Progress::Reachable { rtt } if node.is_running() && node.report.reachable_at.is_none() => {
                node.report.reachable_at = Some(now);
                node.report.rtt = Some(rtt);
            }
            Progress::Established if node.is_running() => {
                node.report.outcome = CandidateOutcome::Established;
                node.report.established_at = Some(now);
                node.report.reachable_at.get_or_insert(now);
                let handshake = node.report.started_at.map_or(Duration::ZERO, |at| now - at);
                let until = now + self.config.attempt_delay.min(handshake / 2);
                self.grace.get_or_insert(Grace { since: now, until });
            }
            Progress::Failed(reason) if node.is_running() || node.is_established() => {
                node.report.outcome = CandidateOutcome::Failed(reason);
                node.report.ended_at = Some(now);
                self.failed_since_start = true;
                if !self.nodes.iter().any(Node::is_established) {
                    self.grace = None;
                }
            }
            _ => {}
        }
    }

    /// The earliest that the stagger allows the next start.
    fn next_start(&self) -> Instant {
        match self.last_start {
            Some(at) if !self.failed_since_start => at + self.config.attempt_delay,
            _ => Instant::ZERO,
        }
    }

    /// Until when reachable candidates hold back this one, whose turn is no earlier than theirs.
    ///
    /// A peer that has answered will most likely complete the handshake, and what is started then
    /// is not better. But one that stalls afterwards must not block the race: it is given
    /// max(attempt delay, 2 round trips) from its answer, and no more than
    /// [`MAX_ATTEMPT_DELAY`](crate::MAX_ATTEMPT_DELAY).
    fn released_at(&self, node: &Node<F>) -> Instant {
        let holding = self.nodes.iter().filter(|n| n.is_running() && n.turn() <= node.turn());
        let hold = |n: &Node<F>| {
            let at = n.report.reachable_at?;
            Some(at + self.config.attempt_delay.max(n.rtt() * HOLD_ROUND_TRIPS).min(crate::MAX_ATTEMPT_DELAY))
        };
        holding.filter_map(hold).max().unwrap_or(Instant::ZERO)
    }

    /// The candidate that is to be started now.
    fn due(&self) -> Option<CandidateId> {
        if self.now < self.next_start() {
            return None;
        }
        let mut unstarted = self.nodes.iter().filter(|n| n.is_unstarted());
        unstarted.find(|n| self.now >= self.released_at(n)).map(|n| n.report.candidate.id)
    }

    fn start(&mut self, id: CandidateId) {
        let Some(node) = self.nodes.iter_mut().find(|n| n.report.candidate.id == id) else { return };
        node.report.outcome = CandidateOutcome::Running;
        node.report.started_at = Some(self.now);
        self.last_start = Some(self.now);
        self.failed_since_start = false;
        self.outputs.push_back(Output::Start(node.report.candidate));
    }

    /// The winner, were the race to end now.
    fn best_established(&self) -> Option<&Node<F>> {
        let established = self.nodes.iter().filter(|n| n.is_established());
        established.min_by_key(|n| (n.rank, n.report.established_at))
    }

    /// Until when `best` has to wait for better candidates that are under way.
    ///
    /// One against which more speaks has to answer before it is waited for.
    fn wait_until(&self, best: &Node<F>) -> Instant {
        let Some(grace) = self.grace.filter(|_| self.config.grace) else { return Instant::ZERO };
        let limit = best.standing;
        let trusted = |n: &Node<F>| n.report.reachable_at.is_some() || n.standing <= limit;
        let better = self.nodes.iter().filter(|n| n.is_running() && n.rank < best.rank && trusted(n));
        let wait = better.map(|n| match n.report.reachable_at {
            None => grace.until,
            Some(at) if at <= grace.until => at.max(grace.since) + n.rtt() * GRACE_ROUND_TRIPS,
            Some(_) => Instant::ZERO,
        });
        wait.max().unwrap_or(Instant::ZERO)
    }

    /// Whether nothing is left that could win, where nothing is established.
    fn is_exhausted(&self) -> bool {
        let alive = |n: &Node<F>| n.is_unstarted() || n.is_running();
        let coming = |r: &Resolution<F>| r.is_pending() || (!r.open && r.has_addresses());
        !self.nodes.iter().any(alive) && (self.stacks.is_empty() || !self.paths.iter().any(coming))
    }

    fn win(&mut self, winner: CandidateId) {
        self.outputs.push_back(Output::Won(winner));
        if let Some(node) = self.nodes.iter_mut().find(|n| n.report.candidate.id == winner) {
            node.report.outcome = CandidateOutcome::Won;
            node.report.ended_at = Some(self.now);
        }
        self.cancel_rest();
        self.over = true;
    }

    fn lose(&mut self) {
        self.cancel_rest();
        self.outputs.push_back(Output::Lost);
        self.over = true;
    }

    /// Withdraws whatever was started and has not ended.
    fn cancel_rest(&mut self) {
        for node in &mut self.nodes {
            node.report.outcome = match node.report.outcome {
                CandidateOutcome::Running => CandidateOutcome::Cancelled,
                CandidateOutcome::Established => CandidateOutcome::Superseded,
                _ => continue,
            };
            node.report.ended_at = Some(self.now);
            self.outputs.push_back(Output::Cancel(node.report.candidate.id));
        }
    }
}

impl<F> Node<F> {
    fn stands_at(&self, place: &Planned) -> bool {
        (self.rank.path, self.rank.stack, self.report.candidate.addr) == (place.path, place.stack, place.addr)
    }
}

/// A seed of its own for each path, so that its services are shuffled independently of another's.
fn of_path(mut seed: [u8; 32], path: usize) -> [u8; 32] {
    seed[0] ^= path as u8;
    seed
}

/// The first `max` items with different keys.
fn distinct<T, K: PartialEq>(items: Vec<T>, max: usize, key: impl Fn(&T) -> K) -> Vec<T> {
    let mut out: Vec<T> = Vec::with_capacity(items.len().min(max));
    for item in items {
        if out.len() < max && !out.iter().any(|other| key(other) == key(&item)) {
            out.push(item);
        }
    }
    out
}

#[cfg(test)]
mod tests;
