//! Packets that belong to no association: answers to packets out of the blue, INIT ACKs, and last words.

use crate::ids::Route;
use core::time::Duration;
use neater_base::Instant;
use std::collections::VecDeque;

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
}

impl Replies {
    pub(super) const fn new(most: usize, per_second: u32) -> Self {
        Self { waiting: VecDeque::new(), most, per_second, tokens: per_second, counted: Instant::ZERO, suppressed: 0 }
    }

    /// Whether an answer that costs the network more than its question may be given.
    pub(super) fn allow(&mut self, now: Instant) -> bool {
        if now - self.counted >= Duration::from_secs(1) {
            self.counted = now;
            self.tokens = self.per_second;
        }
        let allowed = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1);
        self.suppressed += u64::from(!allowed);
        allowed
    }

    pub(super) fn push(&mut self, route: Route, bytes: Vec<u8>) {
        if self.waiting.len() < self.most {
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
