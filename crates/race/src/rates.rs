//! How fast transfers have been, so that of candidates that are as good for the request the fastest
//! goes first.
//!
//! *Responsible for* remembering a rate for each network, host and protocol stack, and for the
//! order that follows. *Not responsible for* which candidates are as good as each other: the caller
//! gives each a class.
//!
//! *Invariants*: no candidate goes before one of another class, or one that protects what is sent
//! if it does not itself; only transfers of [`MIN_TRANSFER`] or more count, as shorter ones measure
//! the handshake; a rate is forgotten after [`RATE_LIFETIME`]; without rates, nothing changes and
//! no random number is drawn; there are at most [`MAX_RATES`].

use crate::StackId;
use core::time::Duration;
use neater_base::{Instant, Rng};

/// A transfer of fewer bytes is no measurement of a rate.
pub const MIN_TRANSFER: u64 = 1_000_000;
/// How long a rate is remembered.
pub const RATE_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// How many rates are remembered; a further one displaces that which was measured longest ago.
pub const MAX_RATES: usize = 1024;
/// One race in this many begins with the second candidate, so that its rate is known, too, and what
/// has changed is noticed.
pub const TRY_OTHER_ONE_IN: u64 = 20;
/// What is slower by less than one part in this many counts as equally fast, and goes in the order
/// of the caller.
const TOLERANCE: u64 = 4;
/// A transfer of fewer bytes may have ended while its congestion window still grew: it raises a
/// rate, and does not lower one.
const FULL_TRANSFER: u64 = 32_000_000;

/// What a rate was measured of, as numbers that the caller makes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateKey {
    /// The network attachment, as in [`CacheKey`](crate::CacheKey).
    pub network: u64,
    /// The remote host, whatever the port.
    pub host: u64,
    /// The protocol stack.
    pub stack: StackId,
}

/// How fast transfers were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Bytes per second: half of it is the last transfer's.
    pub bytes_per_second: u64,
    /// Until when it is remembered.
    pub until: Instant,
}

/// Whether one rate is so much lower than another that the two do not count as equally fast.
#[must_use]
pub const fn is_slower(rate: u64, than: u64) -> bool {
    rate < than - than / TOLERANCE
}

/// A candidate's stack, in the order of the caller's preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RatedStack {
    /// The stack.
    pub stack: StackId,
    /// Stacks of one class have equal properties.
    pub class: i32,
    /// Whether it protects what is sent.
    pub secure: bool,
}

impl RatedStack {
    /// Whether rates may decide between the two.
    #[must_use]
    pub fn is_as_good_as(&self, other: &Self) -> bool {
        (self.class, self.secure) == (other.class, other.secure)
    }
}

/// A bounded memory of rates.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    /// In no order; few hosts are fetched much from in a day.
    all: Vec<(RateKey, Rate)>,
}

impl Rates {
    /// A transfer has ended that took this long. Returns whether it counts.
    pub fn record(&mut self, now: Instant, key: RateKey, bytes: u64, took: Duration) -> bool {
        if bytes < MIN_TRANSFER || took.is_zero() {
            return false;
        }
        let per_second = u128::from(bytes) * 1_000_000_000 / took.as_nanos();
        let new = u64::try_from(per_second).unwrap_or(u64::MAX);
        let mean = |old: u64| old / 2 + new / 2 + (old & new & 1);
        let known = self.get(now, &key).map(|rate| rate.bytes_per_second);
        let bytes_per_second = match known {
            Some(old) if new < old && bytes < FULL_TRANSFER => old,
            Some(old) => mean(old),
            None => new,
        };
        self.put(key, Rate { bytes_per_second, until: now + RATE_LIFETIME });
        true
    }

    /// Whether none is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The rate that is remembered.
    #[must_use]
    pub fn get(&self, now: Instant, key: &RateKey) -> Option<Rate> {
        let found = self.all.iter().find(|(k, _)| k == key).map(|(_, rate)| *rate);
        found.filter(|rate| now < rate.until)
    }

    /// The order in which these stacks, which are in the caller's order, should be tried: of
    /// neighbours that are as good as each other the fastest goes to the place of the first that
    /// was measured, and the others follow in their order. One time in [`TRY_OTHER_ONE_IN`], where
    /// any rate is known, the second goes first, unless there is no `rng`. Returns whether it does
    /// among the first that are equal.
    pub fn order(
        &self,
        now: Instant,
        network: u64,
        host: u64,
        stacks: &mut [RatedStack],
        mut rng: Option<&mut Rng>,
    ) -> bool {
        let rate = |s: &RatedStack| {
            let key = RateKey { network, host, stack: s.stack };
            self.get(now, &key).map(|rate| rate.bytes_per_second)
        };
        let mut tries_other = false;
        for (class, equal) in stacks.chunk_by_mut(|a, b| a.is_as_good_as(b)).enumerate() {
            let Some(most) = equal.iter().filter_map(rate).max().filter(|_| equal.len() > 1) else { continue };
            let measured: Vec<usize> = (0..equal.len()).filter(|i| equal.get(*i).and_then(rate).is_some()).collect();
            let fast = |i: &usize| equal.get(*i).and_then(rate).is_some_and(|r| !is_slower(r, most));
            if let (Some(first), Some(fastest)) = (measured.first(), measured.iter().find(|i| fast(i))) {
                equal[*first..=*fastest].rotate_right(1);
            }
            if rng.as_deref_mut().is_some_and(|rng| rng.below(TRY_OTHER_ONE_IN) == 0) {
                equal.swap(0, 1);
                tries_other |= class == 0;
            }
        }
        tries_other
    }

    /// All that count now.
    pub(crate) fn iter(&self, now: Instant) -> impl Iterator<Item = &(RateKey, Rate)> {
        self.all.iter().filter(move |(_, rate)| now < rate.until)
    }

    /// Remembers a rate as it is.
    pub(crate) fn put(&mut self, key: RateKey, rate: Rate) {
        let earliest = || (0..self.all.len()).min_by_key(|i| self.all.get(*i).map(|(_, rate)| rate.until));
        let own = self.all.iter().position(|(k, _)| *k == key);
        let place = own.or_else(|| if self.all.len() < MAX_RATES { None } else { earliest() });
        match place.and_then(|i| self.all.get_mut(i)) {
            Some(place) => *place = (key, rate),
            None => self.all.push((key, rate)),
        }
    }
}

#[cfg(test)]
mod tests;
