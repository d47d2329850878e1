//! Which clients may have a connection when not all can.
//!
//! *Responsible for* how many connections there are, in all and of one address, and for which of
//! them has to go when another comes and there is no room. *Not responsible for* ending it: see
//! [`Activity::evict`].
//!
//! As long as there is room, an address may have any number, unless a bound was set for it: many
//! people are behind one address. Where there is none, one goes that has been idle for a while, of
//! an address that has no less than the newcomer's: that costs its client a handshake at most. Else
//! one of the address that has most goes for one of an address that would have less all the same;
//! else one that has stood still for long, of an address that has no less. Of several, one of the
//! address that has most above its share, and of these the one on which nothing has gone on for
//! longest.
//!
//! *Invariants*: never more slots than [`Bounds::total`], and [`LEAVING`] that are about to go; an
//! address never takes from one that has less.

use super::liveness::Activity;
use crate::lock;
use core::time::Duration;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use tokio::time::Instant;

/// How many may be about to go at a time.
const LEAVING: usize = 64;
/// With more slots than that, the search for the client that has to go is not repeated at once.
const MANY: usize = 16 << 10;
/// How long it is not, for each of them.
const LOOK_COST: Duration = Duration::from_nanos(500);

/// How many, and how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Connections in all.
    pub(crate) total: usize,
    /// Connections of one address.
    pub(crate) per_address: usize,
    /// How long a connection must have been idle to go for another.
    pub(crate) stall: Duration,
    /// How long one with something to deliver must have stood still.
    pub(crate) idle: Duration,
}

/// Why there is no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// All are taken, and none has to be given up.
    Full,
    /// The address has as many as it may have.
    Address,
}

/// The slots of a server.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    bounds: Bounds,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    taken: BTreeMap<u64, Taken>,
    /// How many slots each address has that are not about to be free.
    addresses: BTreeMap<Option<IpAddr>, usize>,
    leaving: usize,
    /// Connections that were evicted and are not reported yet.
    evicted: u64,
    /// When it may be looked again for one that has to go.
    next_look: Option<Instant>,
}

#[derive(Debug)]
struct Taken {
    address: Option<IpAddr>,
    activity: Activity,
    leaves: bool,
}

/// The right to a connection; over when it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    all: Slots,
    id: u64,
}

impl Slots {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { bounds, state: Arc::default() }
    }

    /// A slot for a connection of this address, which another may have to leave.
    pub(crate) fn take(&self, address: Option<IpAddr>, activity: &Activity) -> Result<Slot, Refused> {
        let mut s = lock(&self.state);
        let mine = s.of(address);
        // One that is no less than the total is none.
        if mine >= self.bounds.per_address && self.bounds.per_address < self.bounds.total {
            return Err(Refused::Address);
        }
        if s.taken.len() - s.leaving >= self.bounds.total && !s.evict(Some((address, mine)), &self.bounds) {
            return Err(Refused::Full);
        }
        let id = s.next;
        s.next += 1;
        s.taken.insert(id, Taken { address, activity: activity.clone(), leaves: false });
        *s.addresses.entry(address).or_default() += 1;
        Ok(Slot { all: self.clone(), id })
    }

    /// Evicts a connection that is idle, or has stood still for long, because the system is short
    /// of descriptors.
    pub(crate) fn relieve(&self) {
        lock(&self.state).evict(None, &self.bounds);
    }

    /// How many were evicted since the last call.
    pub(crate) fn take_evicted(&self) -> u64 {
        core::mem::take(&mut lock(&self.state).evicted)
    }
}

impl State {
    fn of(&self, address: Option<IpAddr>) -> usize {
        self.addresses.get(&address).copied().unwrap_or(0)
    }

    fn less(&mut self, address: Option<IpAddr>) {
        if let Some(n) = self.addresses.get_mut(&address) {
            *n -= 1;
            if *n == 0 {
                self.addresses.remove(&address);
            }
        }
    }

    /// Evicts a connection for a newcomer, or for whatever may come: for one of this address, which
    /// has so many. False: there is none to be evicted.
    fn evict(&mut self, newcomer: Option<(Option<IpAddr>, usize)>, bounds: &Bounds) -> bool {
        let now = Instant::now();
        if self.leaving >= LEAVING || self.next_look.is_some_and(|at| now < at) {
            return false;
        }
        if self.taken.len() > MANY {
            let many = u32::try_from(self.taken.len()).unwrap_or(u32::MAX);
            self.next_look = Some(now + LOOK_COST.saturating_mul(many));
        }
        let claim = |taken: &Taken| {
            let theirs = self.of(taken.address);
            let (busy, last) = taken.activity.standing();
            let still = now.saturating_duration_since(last);
            let is_spare = !busy && still >= bounds.stall;
            if newcomer.is_some_and(|(_, mine)| theirs > mine + 1) {
                // Its address has more than its share.
                return Some((is_spare, theirs, !busy, still));
            }
            let no_less = newcomer.is_none_or(|(address, mine)| taken.address == address || theirs > mine);
            let enough = if busy { bounds.idle } else { bounds.stall };
            (no_less && still >= enough).then_some((is_spare, 0, !busy, still))
        };
        let all = self.taken.iter().filter(|(_, t)| !t.leaves);
        let goes = all.filter_map(|(id, t)| Some((claim(t)?, *id))).max().map(|(_, id)| id);
        let Some(taken) = goes.and_then(|id| self.taken.get_mut(&id)) else { return false };
        taken.leaves = true;
        taken.activity.evict();
        let address = taken.address;
        self.leaving += 1;
        self.evicted += 1;
        self.less(address);
        true
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut s = lock(&self.all.state);
        let Some(taken) = s.taken.remove(&self.id) else { return };
        if taken.leaves {
            s.leaving -= 1;
        } else {
            s.less(taken.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);
    const BOUNDS: Bounds =
        Bounds { total: 4, per_address: 4, stall: Duration::from_secs(2), idle: Duration::from_secs(60) };

    fn address(host: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, host]))
    }

    /// A connection of this address, if there is a slot.
    fn come(slots: &Slots, host: u8) -> Result<(Slot, Activity), Refused> {
        let activity = Activity::new();
        Ok((slots.take(address(host), &activity)?, activity))
    }

    async fn has_to_go(activity: &Activity) -> bool {
        tokio::time::timeout(Duration::from_millis(1), activity.evicted()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_may_have_all_until_another_comes() {
        let slots = Slots::new(BOUNDS);
        let mut held: Vec<_> = (0..4).map(|_| come(&slots, 1).expect("a seat")).collect();
        let _busy: Vec<_> = held.iter().map(|(_, activity)| activity.begin()).collect();
        assert_eq!(come(&slots, 1).err(), Some(Refused::Full), "all are busy, and its own");
        tokio::time::sleep(S).await;
        // What has moved least goes.
        for i in [0, 1, 3] {
            held[i].1.touch();
        }
        let other = come(&slots, 2).expect("a seat");
        for (i, (_, activity)) in held.iter().enumerate() {
            assert_eq!(has_to_go(activity).await, i == 2, "{i}");
        }
        let second = come(&slots, 2).expect("a seat");
        assert_eq!(come(&slots, 2).err(), Some(Refused::Full), "it would have more than the first");
        assert_eq!(slots.take_evicted(), 2);
        drop((other, second));
        held.clear();
        let s = lock(&slots.state);
        assert!(s.taken.is_empty() && s.addresses.is_empty() && s.leaving == 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_goes_for_another_of_its_address_and_one_that_stands_still_later() {
        let slots = Slots::new(BOUNDS);
        let held: Vec<_> = (0..4).map(|_| come(&slots, 1).expect("a seat")).collect();
        let answers: Vec<_> = held[1..].iter().map(|(_, activity)| activity.begin()).collect();
        tokio::time::sleep(S).await;
        assert_eq!(come(&slots, 1).err(), Some(Refused::Full), "it has been idle for a second");
        tokio::time::sleep(2 * S).await;
        let fifth = come(&slots, 1).expect("a seat");
        assert!(has_to_go(&held[0].1).await && !has_to_go(&held[1].1).await);
        let _busy = fifth.1.begin();
        assert_eq!(come(&slots, 1).err(), Some(Refused::Full));
        tokio::time::sleep(60 * S).await;
        fifth.1.touch();
        held[1].1.touch();
        held[3].1.touch();
        let sixth = come(&slots, 1).expect("a seat");
        assert!(has_to_go(&held[2].1).await && !has_to_go(&held[3].1).await);
        drop((answers, sixth));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_that_moves_goes_as_long_as_there_is_one_that_is_idle() {
        let slots = Slots::new(BOUNDS);
        let held: Vec<_> = [1, 1, 2, 3].iter().map(|host| come(&slots, *host).expect("a seat")).collect();
        let _busy = (held[0].1.begin(), held[1].1.begin(), held[2].1.begin());
        tokio::time::sleep(3 * S).await;
        // A transfer over two connections is more than the newcomer has, and all the same of use.
        let newcomer = come(&slots, 4).expect("a seat");
        for (i, (_, activity)) in held.iter().enumerate() {
            assert_eq!(has_to_go(activity).await, i == 3, "{i}");
        }
        // Now there is none.
        let _other = come(&slots, 5).expect("a seat");
        assert!(has_to_go(&held[0].1).await || has_to_go(&held[1].1).await);
        assert!(!has_to_go(&newcomer.1).await);
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_more_takes_nothing_from_who_has_less() {
        let slots = Slots::new(BOUNDS);
        let held: Vec<_> = [1, 2, 3, 3].iter().map(|host| come(&slots, *host).expect("a seat")).collect();
        let _busy = (held[2].1.begin(), held[3].1.begin());
        tokio::time::sleep(30 * S).await;
        assert_eq!(come(&slots, 3).err(), Some(Refused::Full));
        assert!(!has_to_go(&held[0].1).await && !has_to_go(&held[1].1).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lack_of_descriptors_ends_what_is_idle_and_nothing_that_moves() {
        let slots = Slots::new(BOUNDS);
        let held: Vec<_> = (0..3).map(|_| come(&slots, 1).expect("a seat")).collect();
        let _busy = (held[0].1.begin(), held[2].1.begin());
        tokio::time::sleep(3 * S).await;
        slots.relieve();
        slots.relieve();
        assert_eq!(slots.take_evicted(), 1);
        assert!(has_to_go(&held[1].1).await);
    }

    #[test]
    fn a_bound_of_an_address_that_was_set_holds_while_there_is_room() {
        let slots = Slots::new(Bounds { per_address: 2, ..BOUNDS });
        let _held = [come(&slots, 1).expect("a seat"), come(&slots, 1).expect("a seat")];
        assert_eq!(come(&slots, 1).err(), Some(Refused::Address));
        assert!(come(&slots, 2).is_ok());
    }
}
