//! What worked last time, so that the next race begins with it or need not be run at all (RFC 9623
//! section 9).
//!
//! *Responsible for* remembering, for a while and within a bound, which candidate won under which
//! circumstances, and which ones were no good. *Not responsible for* what a key means: the caller
//! derives its four numbers from network, endpoint, request and isolation, and so keeps histories
//! apart that must not meet.
//!
//! *Invariants*: never more than the capacity; what was used longest ago goes first;
//! [`OutcomeCache::get`] allocates nothing.

mod saved;

pub use saved::{MAX_SAVED, SavedError};

use crate::{BadCause, Family, Mark, PathId, Penalty, RateKey, Rates, StackId};
use core::time::Duration;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use neater_base::Instant;
use std::net::SocketAddr;

/// How long an outcome is remembered, by default.
pub const DEFAULT_LIFETIME: Duration = Duration::from_secs(600);
/// How many keys are remembered, by default.
pub const DEFAULT_CAPACITY: usize = 4096;
/// How long a candidate counts as bad the first time. It is short, because a single forged packet
/// can bring it about.
pub const BAD_LIFETIME: Duration = Duration::from_secs(60);
/// How long a candidate counts as bad at most: each time that it is found bad again after its mark
/// has expired, the mark lives twice as long as the last one.
pub const MAX_BAD_LIFETIME: Duration = Duration::from_secs(600);
/// How long a candidate counts as bad whose peer has refused to serve: that hardly changes within a
/// minute.
pub const REFUSAL_LIFETIME: Duration = MAX_BAD_LIFETIME;
/// For how long after a mark has expired the next one is longer for it.
pub const BAD_MEMORY: Duration = Duration::from_secs(600);
/// How many bad candidates are remembered for each key; a further one displaces that which would be
/// forgotten first.
pub const MAX_BAD: usize = 8;

/// The circumstances of an outcome, as numbers that the caller makes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheKey {
    /// The network attachment: histories are not used across networks (RFC 8305 section 4).
    pub network: u64,
    /// The remote endpoint.
    pub endpoint: u64,
    /// What was asked for: properties, security.
    pub request: u64,
    /// The isolated session, if any (RFC 9622 section 8.1.10: `isolateSession`).
    pub isolation: u64,
}

/// What worked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The protocol stack.
    pub stack: StackId,
    /// The endpoint.
    pub addr: SocketAddr,
    /// The path.
    pub path: PathId,
    /// Until when it is remembered. Set by the cache.
    pub expires: Instant,
    /// How often a connection under this key failed right after set-up, counted until none has for
    /// a whole lifetime. Set by the cache.
    pub failures: u32,
    /// The round-trip time seen, if one was.
    pub rtt: Option<Duration>,
}

impl Outcome {
    /// An outcome to be recorded.
    #[must_use]
    pub const fn new(stack: StackId, addr: SocketAddr, path: PathId, rtt: Option<Duration>) -> Self {
        Self { stack, addr, path, expires: Instant::ZERO, failures: 0, rtt }
    }
}

/// A candidate that was no good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bad {
    mark: Mark,
    /// How often it was found bad again before.
    again: u32,
}

impl Bad {
    fn is_about(&self, stack: StackId, addr: SocketAddr) -> bool {
        (self.mark.penalty.stack, self.mark.penalty.addr) == (stack, addr)
    }
}

#[derive(Clone, Debug)]
struct Slot {
    key: CacheKey,
    outcome: Option<Outcome>,
    /// The outcome is not returned before this instant: its candidate is bad.
    tell_from: Instant,
    failures: u32,
    last_failure: Instant,
    /// At most [`MAX_BAD`]; most keys have none.
    bad: Vec<Bad>,
    /// Neighbours in the order of use.
    newer: u32,
    older: u32,
}

const NONE: u32 = u32::MAX;

/// A bounded memory of outcomes, keyed by their circumstances.
#[derive(Clone, Debug)]
pub struct OutcomeCache {
    lifetime: Duration,
    capacity: usize,
    /// Never iterated.
    index: HashMap<CacheKey, u32, FixedState>,
    slots: Vec<Slot>,
    newest: u32,
    oldest: u32,
    /// How fast transfers were.
    rates: Rates,
    /// Something was learnt, or was found to be wrong, that was not imported.
    changed: bool,
}

impl OutcomeCache {
    /// An empty cache with the default limits. `seed` goes into the hash, so that peers cannot
    /// choose colliding keys.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::with_limits(DEFAULT_LIFETIME, DEFAULT_CAPACITY, seed)
    }

    /// An empty cache that remembers at most `capacity` keys (1 to 2³¹), each for `lifetime`. It
    /// grows as it is filled.
    #[must_use]
    pub fn with_limits(lifetime: Duration, capacity: usize, seed: u64) -> Self {
        Self {
            lifetime,
            capacity: capacity.clamp(1, 1 << 31),
            index: HashMap::with_hasher(FixedState::with_seed(seed)),
            slots: Vec::new(),
            newest: NONE,
            oldest: NONE,
            rates: Rates::default(),
            changed: false,
        }
    }

    /// What worked under these circumstances, if it is still remembered and has not failed since.
    /// Counts as a use.
    #[must_use]
    pub fn get(&mut self, now: Instant, key: &CacheKey) -> Option<Outcome> {
        self.look_up(now, key).copied()
    }

    /// As [`OutcomeCache::get`], without a copy.
    #[inline]
    #[must_use]
    pub fn look_up(&mut self, now: Instant, key: &CacheKey) -> Option<&Outcome> {
        // Flows come in bursts: what was used last is asked for again, and need not be searched for
        // (80 instructions).
        let last = self.slots.get(self.newest as usize).is_some_and(|slot| slot.key == *key);
        if !last {
            self.find(now, key)?;
        }
        let slot = self.slots.get(self.newest as usize)?;
        slot.outcome.as_ref().filter(|o| now < o.expires && now >= slot.tell_from)
    }

    /// Makes the slot of this key the newest, if its outcome can be returned.
    fn find(&mut self, now: Instant, key: &CacheKey) -> Option<()> {
        let at = *self.index.get(key)?;
        let slot = self.slots.get(at as usize)?;
        slot.outcome.as_ref().filter(|o| now < o.expires && now >= slot.tell_from)?;
        self.touch(at);
        Some(())
    }

    /// Remembers what worked. Its `expires` and `failures` are the cache's to set.
    ///
    /// It refutes the penalties of the candidate, and what was suspected of its stack and family;
    /// but one that is bad for [how it served](BadCause::is_of_service) stays bad: set-up has
    /// succeeded before, too. Its outcome is returned once it is not bad any more.
    pub fn record_success(&mut self, now: Instant, key: CacheKey, outcome: Outcome) {
        let expires = now + self.lifetime;
        let lifetime = self.lifetime;
        let slot = self.slot(key);
        if now.saturating_since(slot.last_failure) >= lifetime {
            slot.failures = 0;
        }
        slot.outcome = Some(Outcome { expires, failures: slot.failures, ..outcome });
        slot.refute(outcome.stack, outcome.addr);
        slot.tell_from = slot.bad_until(outcome.stack, outcome.addr).unwrap_or(Instant::ZERO);
    }

    /// The outcome of this key was tried again and was no good: it is dropped, and its candidate is
    /// bad. Without an outcome that is remembered, nothing changes.
    pub fn record_failure(&mut self, now: Instant, key: CacheKey, cause: BadCause) {
        let Some(outcome) = self.slot_of(&key).and_then(|slot| slot.outcome).filter(|o| now < o.expires) else {
            return;
        };
        self.record_bad(now, key, Penalty::new(outcome.stack, outcome.addr, cause));
    }

    /// A candidate was no good, whether or not it is the outcome that is remembered: it is bad for
    /// [`BAD_LIFETIME`], or for longer if it was before. While it is bad, what is found against it
    /// again moves the end of its mark and no more: it takes patience, and not many packets, to
    /// keep a candidate down for long.
    pub fn record_bad(&mut self, now: Instant, key: CacheKey, penalty: Penalty) {
        let slot = self.slot(key);
        slot.outcome = slot.outcome.filter(|o| (o.stack, o.addr) != (penalty.stack, penalty.addr));
        // All connections of one session die at once, for one reason.
        let place = slot.bad.iter().position(|b| b.is_about(penalty.stack, penalty.addr));
        let known = place.and_then(|i| slot.bad.get(i)).copied();
        if slot.last_failure != now || known.is_none() {
            slot.failures = slot.failures.saturating_add(1);
        }
        slot.last_failure = now;
        let again = match known {
            Some(b) if now < b.mark.until => b.again,
            Some(b) if now < b.mark.until + BAD_MEMORY => b.again.saturating_add(1),
            _ => 0,
        };
        let first = if penalty.cause == BadCause::WantsOther { REFUSAL_LIFETIME } else { BAD_LIFETIME };
        let lifetime = first.saturating_mul(1 << again.min(16)).min(MAX_BAD_LIFETIME);
        let until = known.map_or(Instant::ZERO, |b| b.mark.until).max(now + lifetime);
        let bad = Bad { mark: Mark { penalty, since: now, until }, again };
        // Its own place, else a free one, else that of the one to be forgotten first.
        let earliest = || slot.bad.iter().enumerate().min_by_key(|(_, b)| b.mark.until).map(|(i, _)| i);
        let place = place.or_else(|| if slot.bad.len() < MAX_BAD { None } else { earliest() });
        match place.and_then(|i| slot.bad.get_mut(i)) {
            Some(place) => *place = bad,
            None => slot.bad.push(bad),
        }
    }

    /// The peer of a candidate has answered after all: it was slow, and not silent.
    pub fn record_answer(&mut self, key: &CacheKey, stack: StackId, addr: SocketAddr) {
        if let Some(slot) = self.index.get(key).and_then(|at| self.slots.get_mut(*at as usize)) {
            let before = slot.bad.clone();
            slot.refute(stack, addr);
            self.changed |= slot.bad != before && key.isolation == 0;
        }
    }

    /// A candidate has served well after all: its marks for how it served are withdrawn.
    pub fn record_served(&mut self, key: &CacheKey, stack: StackId, addr: SocketAddr) {
        let Some(slot) = self.index.get(key).and_then(|at| self.slots.get_mut(*at as usize)) else { return };
        let before = slot.bad.len();
        slot.bad.retain(|b| !b.is_about(stack, addr) || !b.mark.penalty.cause.is_of_service());
        self.changed |= slot.bad.len() != before && key.isolation == 0;
        if slot.outcome.is_some_and(|o| (o.stack, o.addr) == (stack, addr)) {
            slot.tell_from = slot.bad_until(stack, addr).unwrap_or(Instant::ZERO);
        }
    }

    /// Lets the outcome of this key be forgotten at this instant, if not earlier: what it rests on
    /// holds no longer.
    pub fn expire_by(&mut self, key: &CacheKey, at: Instant) {
        let slot = self.index.get(key).and_then(|i| self.slots.get_mut(*i as usize));
        if let Some(outcome) = slot.and_then(|slot| slot.outcome.as_mut()) {
            self.changed |= at < outcome.expires && key.isolation == 0;
            outcome.expires = outcome.expires.min(at);
        }
    }

    /// Forgets what worked under all circumstances, but not what was no good.
    pub fn forget_outcomes(&mut self) {
        self.changed = true;
        for slot in &mut self.slots {
            slot.outcome = None;
        }
    }

    /// Lets the outcome of this key be forgotten as soon as a bad candidate of a better stack is
    /// bad no more, so that what was bad only for a while is tried again. `better(a, b)` returns
    /// whether the stack `a` is better than `b`.
    pub fn give_way(&mut self, now: Instant, key: &CacheKey, better: impl Fn(StackId, StackId) -> bool) {
        let Some(slot) = self.index.get(key).and_then(|at| self.slots.get_mut(*at as usize)) else { return };
        let Some(outcome) = &mut slot.outcome else { return };
        let marks =
            slot.bad.iter().map(|b| &b.mark).filter(|m| now < m.until && better(m.penalty.stack, outcome.stack));
        if let Some(until) = marks.map(|m| m.until).min() {
            self.changed |= until < outcome.expires && key.isolation == 0;
            outcome.expires = outcome.expires.min(until);
        }
    }

    /// Whether this candidate counts as bad now.
    #[must_use]
    pub fn is_bad(&self, now: Instant, key: CacheKey, stack: StackId, addr: SocketAddr) -> bool {
        self.slot_of(&key).and_then(|slot| slot.bad_until(stack, addr)).is_some_and(|until| now < until)
    }

    /// The bad marks that count under this key now; at most [`MAX_BAD`].
    pub fn marks(&self, now: Instant, key: &CacheKey) -> impl Iterator<Item = &Mark> {
        let bad = self.slot_of(key).map(|slot| slot.bad.as_slice()).unwrap_or_default();
        bad.iter().map(|b| &b.mark).filter(move |m| now < m.until)
    }

    /// Forgets everything about one network: "flushed whenever a device changes the network to
    /// which it is attached" (RFC 8305 section 4).
    pub fn flush_network(&mut self, network: u64) {
        let mut at = 0;
        while let Some(slot) = self.slots.get(at) {
            if slot.key.network == network {
                self.remove(at as u32);
            } else {
                at += 1;
            }
        }
    }

    /// How fast transfers were, and the order that follows.
    #[must_use]
    pub const fn rates(&self) -> &Rates {
        &self.rates
    }

    /// A transfer has ended that took this long, from its first byte to its last; a short one does
    /// not count (see [`MIN_TRANSFER`](crate::MIN_TRANSFER)). Of isolated sessions none is to be
    /// reported.
    pub fn record_rate(&mut self, now: Instant, key: RateKey, bytes: u64, took: Duration) {
        self.changed |= self.rates.record(now, key, bytes, took);
    }

    /// How many keys are remembered, expired ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    fn slot_of(&self, key: &CacheKey) -> Option<&Slot> {
        self.slots.get(*self.index.get(key)? as usize)
    }

    /// The slot of this key, made if need be; counts as a use.
    fn slot(&mut self, key: CacheKey) -> &mut Slot {
        self.changed |= key.isolation == 0;
        let at = match self.index.get(&key) {
            Some(at) => *at,
            None => {
                if self.slots.len() >= self.capacity {
                    self.remove(self.oldest);
                }
                let at = self.slots.len() as u32;
                self.slots.push(Slot {
                    key,
                    outcome: None,
                    tell_from: Instant::ZERO,
                    failures: 0,
                    last_failure: Instant::ZERO,
                    bad: Vec::new(),
                    newer: NONE,
                    older: NONE,
                });
                self.index.insert(key, at);
                self.link(at);
                at
            }
        };
        self.touch(at);
        &mut self.slots[at as usize]
    }

    /// Makes a slot the newest.
    fn touch(&mut self, at: u32) {
        if self.newest != at {
            self.unlink(at);
            self.link(at);
        }
    }

    fn link(&mut self, at: u32) {
        let older = core::mem::replace(&mut self.newest, at);
        self.slots[at as usize].older = older;
        self.slots[at as usize].newer = NONE;
        match self.slots.get_mut(older as usize) {
            Some(slot) => slot.newer = at,
            None => self.oldest = at,
        }
    }

    fn unlink(&mut self, at: u32) {
        let (newer, older) = (self.slots[at as usize].newer, self.slots[at as usize].older);
        self.join(newer, older);
    }

    /// Makes two places neighbours; [`NONE`] stands for the end of the order.
    fn join(&mut self, newer: u32, older: u32) {
        match self.slots.get_mut(newer as usize) {
            Some(slot) => slot.older = older,
            None => self.newest = older,
        }
        match self.slots.get_mut(older as usize) {
            Some(slot) => slot.newer = newer,
            None => self.oldest = newer,
        }
    }

    /// Takes a slot out and moves the last one into its place.
    fn remove(&mut self, at: u32) {
        self.unlink(at);
        self.changed = true;
        let gone = self.slots.swap_remove(at as usize);
        self.index.remove(&gone.key);
        if let Some(moved) = self.slots.get(at as usize) {
            let (key, newer, older) = (moved.key, moved.newer, moved.older);
            self.index.insert(key, at);
            self.join(newer, at);
            self.join(at, older);
        }
    }
}

impl Slot {
    fn bad_until(&self, stack: StackId, addr: SocketAddr) -> Option<Instant> {
        self.bad.iter().find(|b| b.is_about(stack, addr)).map(|b| b.mark.until)
    }

    /// This candidate is reachable: what was recorded against that, or was suspected of what it has
    /// in common with others, is wrong.
    fn refute(&mut self, stack: StackId, addr: SocketAddr) {
        self.bad.retain(|b| !b.is_about(stack, addr) || b.mark.penalty.cause.is_of_service());
        for bad in &mut self.bad {
            let penalty = &mut bad.mark.penalty;
            if penalty.cause.is_of_service() {
                continue;
            }
            penalty.suspect_group &= penalty.stack != stack;
            penalty.suspect_family &= Family::of(&penalty.addr.ip()) != Family::of(&addr.ip());
        }
    }
}

#[cfg(test)]
mod tests;
