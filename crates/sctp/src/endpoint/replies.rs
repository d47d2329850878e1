//! Packets that belong to no association: answers to packets out of the blue, INIT ACKs, and last
//! words.

use crate::ids::Route;
use core::hash::BuildHasher;
use core::time::Duration;
use foldhash::fast::FixedState;
use neater_base::Instant;
use std::collections::VecDeque;
use std::net::IpAddr;

/// Sources are distinguished as far as these go; two that share one share its answers.
const SOURCES: usize = 1024;

/// Bounded in number, and where an answer could serve an attack, in rate.
#[derive(Debug)]
pub(super) struct Replies {
    waiting: VecDeque<(Route, Vec<u8>)>,
    most: usize,
    per_second: u32,
    /// Answers that may be given at once, and when that was counted last.
    tokens: u32,
    counted: Instant,
    suppressed: u64,
    /// Answers that each group of sources may be given in this second: a flood from one does not
    /// use up those of the others.
    per_source: u32,
    given: Vec<u32>,
    seed: u64,
}

impl Replies {
    /// `seed` keeps senders from choosing addresses that share with another's.
    pub(super) const fn new(most: usize, per_second: u32, per_source: u32, seed: u64) -> Self {
        Self {
            waiting: VecDeque::new(),
            most,
            per_second,
            tokens: per_second,
            counted: Instant::ZERO,
            suppressed: 0,
            per_source,
            given: Vec::new(),
            seed,
        }
    }

    fn slot(&self, source: IpAddr) -> usize {
        let network = match source {
            IpAddr::V4(a) => u64::from(a.to_bits()),
            // A host with one address of IPv6 has all that share its first half.
            IpAddr::V6(a) => (a.to_bits() >> 64) as u64,
        };
        (FixedState::with_seed(self.seed).hash_one(network) % SOURCES as u64) as usize
    }

    /// Whether an answer that costs the network more than its question may be given to that
    /// address.
    pub(super) fn allow(&mut self, now: Instant, source: IpAddr) -> bool {
        if now - self.counted >= Duration::from_secs(1) {
            self.counted = now;
            self.tokens = self.per_second;
            self.given.clear();
        }
        self.given.resize(SOURCES, 0);
        let slot = self.slot(source);
        let allowed = self.tokens > 0 && self.given[slot] < self.per_source;
        self.given[slot] += u32::from(allowed);
        self.tokens -= u32::from(allowed);
        self.suppressed += u64::from(!allowed);
        allowed
    }

    pub(super) fn push(&mut self, route: Route, bytes: Vec<u8>) {
        // Of a queue that fills, one source has a quarter.
        let share = self.most / 4;
        let own = |w: &&(Route, Vec<u8>)| w.0.remote.ip() == route.remote.ip();
        let greedy = self.waiting.len() > share && self.waiting.iter().filter(own).count() > share;
        if self.waiting.len() < self.most && !greedy {
            self.waiting.push_back((route, bytes));
        } else {
            self.suppressed += 1;
        }
    }

    /// The last packet of an association; there are no more of them than associations.
    pub(super) fn push_final(&mut self, route: Route, bytes: Vec<u8>) {
        self.waiting.push_back((route, bytes));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn pop(&mut self) -> Option<(Route, Vec<u8>)> {
        self.waiting.pop_front()
    }

    pub(super) const fn suppressed(&self) -> u64 {
        self.suppressed
    }
}
