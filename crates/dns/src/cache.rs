//! What is known, and until when.
//!
//! *Responsible for* lifetimes, and for a table whose size is bounded in entries and in bytes. *Not
//! responsible for* the meaning of what it holds.
//!
//! *Invariants*: at most [`MAX_CACHE_ENTRIES`] entries and [`MAX_CACHE_BYTES`] bytes; a lookup that
//! finds something allocates nothing; eviction depends on the order of calls alone.

use core::hash::{Hash, Hasher};
use core::time::Duration;
use foldhash::fast::FixedState;
use hashbrown::{Equivalent, HashMap};
use neater_base::Instant;
use std::net::IpAddr;

use crate::svcb::{HttpsSet, ServiceBinding};

/// Entries in the cache at most.
pub const MAX_CACHE_ENTRIES: usize = 4096;
/// Bytes that the entries hold at most, names and records together. Service bindings can be large.
pub const MAX_CACHE_BYTES: usize = 4 << 20;
/// No answer is forgotten sooner, so that the families of one name are known at the same time.
pub const MIN_TTL: Duration = Duration::from_secs(1);
/// No answer is kept longer.
pub const MAX_TTL: Duration = Duration::from_secs(86_400);
/// No "there is none" is kept longer (RFC 2308 section 5 lets a resolver choose a limit).
pub const MAX_NEGATIVE_TTL: Duration = Duration::from_secs(300);
/// An entry of more bytes is not kept.
const MAX_ENTRY_BYTES: usize = 32 << 10;
/// Counted for each entry besides its contents.
const ENTRY_OVERHEAD: usize = 128;

/// How long records with `ttl` seconds are kept.
pub(crate) fn positive_lifetime(ttl: u32) -> Duration {
    Duration::from_secs(ttl.into()).clamp(MIN_TTL, MAX_TTL)
}

/// How long the absence of records is kept.
pub(crate) fn negative_lifetime(ttl: u32) -> Duration {
    Duration::from_secs(ttl.into()).clamp(MIN_TTL, MAX_NEGATIVE_TTL)
}

/// What an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// The answer to a question for A records.
    A,
    /// The answer to a question for AAAA records.
    Aaaa,
    /// The answer to a question for HTTPS records.
    Https,
    /// The service bindings that HTTPS records, aliases and targets' addresses add up to.
    Services,
}

/// Something known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fact {
    /// The addresses of one family; none if the name has no record of that type.
    Addresses(Vec<IpAddr>),
    /// The HTTPS records as they are; none if the name has none.
    Https(HttpsSet),
    /// The finished service bindings.
    Services(Vec<ServiceBinding>),
    /// The name does not exist.
    NoName,
}

impl Fact {
    /// The addresses, if this is about addresses; none for a name that does not exist.
    pub(crate) fn addresses(&self) -> &[IpAddr] {
        if let Self::Addresses(a) = self { a } else { &[] }
    }

    /// Whether this is about services of which one can be reached without the addresses of the
    /// host.
    pub(crate) fn leads_elsewhere(&self) -> bool {
        if let Self::Services(s) = self { s.iter().any(ServiceBinding::leads_elsewhere) } else { false }
    }

    fn weight(&self) -> usize {
        match self {
            Self::Addresses(a) => size_of_val(a.as_slice()),
            Self::Https(set) => set.weight(),
            Self::Services(s) => s.iter().map(ServiceBinding::weight).sum(),
            Self::NoName => 0,
        }
    }
}

/// A name in lower case without final dot, what about it, and through which interface it was
/// learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KeyRef<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: Kind,
    pub(crate) interface: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    name: Box<str>,
    kind: Kind,
    interface: Option<u32>,
}

impl Key {
    fn borrow(&self) -> KeyRef<'_> {
        KeyRef { name: &self.name, kind: self.kind, interface: self.interface }
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.borrow().hash(state);
    }
}

impl Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        *self == key.borrow()
    }
}

#[derive(Debug)]
struct Entry {
    key: Key,
    fact: Fact,
    expires: Instant,
    weight: usize,
    /// Used since the hand last passed.
    used: bool,
}

/// The table. Eviction is by the clock algorithm: the hand passes over entries that were used since
/// it last came by.
#[derive(Debug)]
pub(crate) struct Cache {
    index: HashMap<Key, u32, FixedState>,
    slots: Vec<Option<Entry>>,
    free: Vec<u32>,
    hand: usize,
    bytes: usize,
}

impl Cache {
    /// An empty cache. The seed keeps peers from choosing names that collide.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            index: HashMap::with_hasher(FixedState::with_seed(seed)),
            slots: Vec::new(),
            free: Vec::new(),
            hand: 0,
            bytes: 0,
        }
    }

    /// Where a fact that has not expired is, for [`Cache::at`]; it counts as used.
    pub(crate) fn find(&mut self, now: Instant, key: KeyRef<'_>) -> Option<u32> {
        let slot = *self.index.get(&key)?;
        let entry = self.slots.get_mut(slot as usize)?.as_mut()?;
        if entry.expires <= now {
            self.remove(slot);
            return None;
        }
        entry.used = true;
        Some(slot)
    }

    /// The fact that [`Cache::find`] found, and when it expires.
    pub(crate) fn at(&self, slot: u32) -> Option<(&Fact, Instant)> {
        let entry = self.slots.get(slot as usize)?.as_ref()?;
        Some((&entry.fact, entry.expires))
    }

    /// Keeps a fact until `expires`, in place of what was known.
    pub(crate) fn put(&mut self, now: Instant, key: KeyRef<'_>, fact: Fact, expires: Instant) {
        if let Some(old) = self.index.get(&key) {
            self.remove(*old);
        }
        let weight = ENTRY_OVERHEAD + key.name.len() + fact.weight();
        if expires <= now || weight > MAX_ENTRY_BYTES {
            return;
        }
        while self.index.len() >= MAX_CACHE_ENTRIES || self.bytes + weight > MAX_CACHE_BYTES {
            if !self.evict(now) {
                return;
            }
        }
        let key = Key { name: key.name.into(), kind: key.kind, interface: key.interface };
        let entry = Entry { key: key.clone(), fact, expires, weight, used: false };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = Some(entry);
            self.bytes += weight;
            self.index.insert(key, slot);
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.index.clear();
        self.slots.clear();
        self.free.clear();
        self.hand = 0;
        self.bytes = 0;
    }

    fn remove(&mut self, slot: u32) {
        if let Some(entry) = self.slots.get_mut(slot as usize).and_then(Option::take) {
            self.index.remove(&entry.key);
            self.bytes -= entry.weight;
            self.free.push(slot);
        }
    }

    /// Removes one entry; false if there is none. Two turns of the hand always find one.
    fn evict(&mut self, now: Instant) -> bool {
        for _ in 0..2 * self.slots.len() {
            let slot = self.hand;
            self.hand = (self.hand + 1) % self.slots.len();
            if let Some(entry) = self.slots.get_mut(slot).and_then(Option::as_mut) {
                if entry.expires <= now || !entry.used {
                    self.remove(slot as u32);
                    return true;
                }
                entry.used = false;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> KeyRef<'_> {
        KeyRef { name, kind: Kind::A, interface: None }
    }

    fn addresses(n: usize) -> Fact {
        Fact::Addresses((0..n).map(|i| IpAddr::from([10, 0, 0, i as u8])).collect())
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn an_entry_is_found_until_it_expires() {
        let mut cache = Cache::new(1);
        cache.put(at(0), key("a.test"), addresses(2), at(10));
        let slot = cache.find(at(9), key("a.test")).expect("not expired");
        assert_eq!(cache.at(slot), Some((&addresses(2), at(10))));
        assert_eq!(cache.find(at(10), key("a.test")), None);
        assert_eq!((cache.index.len(), cache.bytes), (0, 0));
        cache.put(at(10), key("a.test"), addresses(2), at(10));
        assert_eq!((cache.index.len(), cache.bytes), (0, 0), "already expired");
    }

    #[test]
    fn kinds_and_interfaces_are_kept_apart() {
        let mut cache = Cache::new(1);
        cache.put(at(0), key("a.test"), addresses(1), at(10));
        assert_eq!(cache.find(at(0), KeyRef { kind: Kind::Aaaa, ..key("a.test") }), None);
        assert_eq!(cache.find(at(0), KeyRef { interface: Some(1), ..key("a.test") }), None);
    }

    #[test]
    fn the_number_of_entries_is_bounded_and_used_ones_stay() {
        let mut cache = Cache::new(1);
        cache.put(at(0), key("hot.test"), addresses(1), at(1000));
        for i in 0..3 * MAX_CACHE_ENTRIES {
            cache.put(at(0), key(&format!("n{i}.test")), addresses(1), at(1000));
            assert!(cache.find(at(0), key("hot.test")).is_some(), "evicted after {i}");
        }
        assert_eq!(cache.index.len(), MAX_CACHE_ENTRIES);
        assert!(cache.slots.len() <= MAX_CACHE_ENTRIES);
    }

    #[test]
    fn the_bytes_are_bounded_and_a_giant_is_not_kept() {
        let mut cache = Cache::new(1);
        let big = |n| Fact::Addresses(vec![IpAddr::from([10, 0, 0, 1]); n]);
        for i in 0..MAX_CACHE_ENTRIES {
            cache.put(at(0), key(&format!("n{i}.test")), big(1000), at(1000));
        }
        assert!(cache.bytes <= MAX_CACHE_BYTES);
        assert!(cache.index.len() > MAX_CACHE_BYTES / MAX_ENTRY_BYTES);
        cache.put(at(0), key("giant.test"), big(5000), at(1000));
        assert_eq!(cache.find(at(0), key("giant.test")), None);
        cache.clear();
        assert_eq!(cache.find(at(0), key("n4095.test")), None);
    }

    #[test]
    fn lifetimes_are_clamped() {
        assert_eq!(positive_lifetime(0), MIN_TTL);
        assert_eq!(positive_lifetime(u32::MAX), MAX_TTL);
        assert_eq!(negative_lifetime(86_400), MAX_NEGATIVE_TTL);
    }
}
