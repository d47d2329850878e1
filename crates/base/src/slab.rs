//! Objects with stable, reusable, unmistakable keys.

use core::fmt;

/// Names one object in a [`Slab`]: a slot and the generation of its occupant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// The slot, small and dense: fit to index a side table.
    #[must_use]
    pub const fn index(self) -> usize {
        self.index as usize
    }

    /// The key as one number below 2⁶², for tokens and foreign interfaces.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The key that [`Key::to_bits`] made. Any number is a key; one that names nothing finds nothing.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

#[derive(Debug)]
enum Slot<T> {
    Free { next: u32 },
    Used(T),
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    slot: Slot<T>,
}

/// A table of `T` in which a key stays valid until its object is removed, and is never valid again after that (until a
/// slot has been reused 2³⁰ times).
///
/// The table grows by chunks, so that objects are never moved and memory follows the number of objects closely.
#[derive(Debug)]
pub struct Slab<T> {
    chunks: Vec<Vec<Entry<T>>>,
    free: u32,
    len: usize,
}

const NONE: u32 = u32::MAX;
/// Objects per chunk: a power of two.
const CHUNK: usize = 32;
/// Generations fit 30 bits, so that [`Key::to_bits`] leaves the two high bits to the caller.
const MAX_GENERATION: u32 = (1 << 30) - 1;

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), free: NONE, len: 0 }
    }
}

impl<T> Slab<T> {
    /// An empty table; allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many objects are in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the table is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn entry(&self, index: u32) -> Option<&Entry<T>> {
        self.chunks.get(index as usize / CHUNK)?.get(index as usize % CHUNK)
    }

    #[inline]
    fn entry_mut(&mut self, index: u32) -> Option<&mut Entry<T>> {
        self.chunks.get_mut(index as usize / CHUNK)?.get_mut(index as usize % CHUNK)
    }

    /// How many slots exist, free ones included.
    fn slots(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len())
    }

    /// The key that the next [`Slab::insert`] will return.
    #[must_use]
    pub fn next_key(&self) -> Key {
        match self.entry(self.free) {
            Some(e) => Key { index: self.free, generation: e.generation },
            None => Key { index: self.slots() as u32, generation: 0 },
        }
    }

    /// Puts `value` in and returns its key.
    ///
    /// # Panics
    /// When 2³² - 1 objects are in the table.
    #[inline]
    pub fn insert(&mut self, value: T) -> Key {
        self.len += 1;
        let index = self.free;
        if let Some(e) = self.entry_mut(index) {
            let key = Key { index, generation: e.generation };
            let next = if let Slot::Free { next } = e.slot { next } else { NONE };
            e.slot = Slot::Used(value);
            self.free = next;
            return key;
        }
        let index = self.slots() as u32;
        assert!(index != NONE, "slab is full");
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK => last.push(Entry { generation: 0, slot: Slot::Used(value) }),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(Entry { generation: 0, slot: Slot::Used(value) });
                self.chunks.push(chunk);
            }
        }
        Key { index, generation: 0 }
    }

    /// Takes the object out; `None` if the key names nothing.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let free = self.free;
        let e = self.entry_mut(key.index)?;
        if e.generation != key.generation || matches!(e.slot, Slot::Free { .. }) {
            return None;
        }
        e.generation = (e.generation + 1) & MAX_GENERATION;
        let old = core::mem::replace(&mut e.slot, Slot::Free { next: free });
        self.free = key.index;
        self.len -= 1;
        match old {
            Slot::Used(v) => Some(v),
            Slot::Free { .. } => None,
        }
    }

    /// Drops the object where it is; false if the key names nothing. Cheaper than [`Slab::remove`] for large objects.
    #[inline]
    pub fn discard(&mut self, key: Key) -> bool {
        let free = self.free;
        let Some(e) = self.entry_mut(key.index) else { return false };
        if e.generation != key.generation || matches!(e.slot, Slot::Free { .. }) {
            return false;
        }
        e.generation = (e.generation + 1) & MAX_GENERATION;
        e.slot = Slot::Free { next: free };
        self.free = key.index;
        self.len -= 1;
        true
    }

    /// The object, if the key still names one.
    #[inline]
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&T> {
        match self.entry(key.index) {
            Some(Entry { generation, slot: Slot::Used(v) }) if *generation == key.generation => Some(v),
            _ => None,
        }
    }

    /// The object, if the key still names one.
    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        match self.entry_mut(key.index) {
            Some(Entry { generation, slot: Slot::Used(v) }) if *generation == key.generation => Some(v),
            _ => None,
        }
    }

    /// Whether the key names an object.
    #[must_use]
    pub fn contains(&self, key: Key) -> bool {
        self.get(key).is_some()
    }

    /// All objects, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.chunks.iter().flatten().enumerate().filter_map(|(i, e)| match &e.slot {
            Slot::Used(v) => Some((Key { index: i as u32, generation: e.generation }, v)),
            Slot::Free { .. } => None,
        })
    }

    /// All objects, in slot order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
        self.chunks.iter_mut().flatten().enumerate().filter_map(|(i, e)| match &mut e.slot {
            Slot::Used(v) => Some((Key { index: i as u32, generation: e.generation }, v)),
            Slot::Free { .. } => None,
        })
    }

    /// All keys, in slot order.
    #[must_use]
    pub fn keys(&self) -> Vec<Key> {
        self.iter().map(|(k, _)| k).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_key_finds_nothing_although_its_slot_is_used_again() {
        let mut slab = Slab::new();
        let a = slab.insert("a");
        assert_eq!(slab.remove(a), Some("a"));
        assert_eq!(slab.remove(a), None);
        let predicted = slab.next_key();
        let b = slab.insert("b");
        assert_eq!(b, predicted);
        assert_eq!(a.index(), b.index());
        assert_eq!(slab.get(a), None);
        assert_eq!(slab.get(b), Some(&"b"));
        assert_eq!(Key::from_bits(b.to_bits()), b);
    }

    #[test]
    fn keys_hold_over_many_chunks() {
        let mut slab = Slab::new();
        let keys: Vec<_> = (0..1000).map(|i| (i, slab.insert(i))).collect();
        assert!(keys.iter().all(|(i, k)| slab.get(*k) == Some(i) && k.index() == *i));
        for (_, k) in keys.iter().step_by(2) {
            assert!(slab.discard(*k));
            assert!(!slab.discard(*k));
        }
        assert_eq!((slab.len(), slab.iter().count(), slab.keys().len()), (500, 500, 500));
        let again = slab.insert(7);
        assert_eq!(slab.get(again), Some(&7));
        assert!(keys.iter().all(|(_, k)| *k != again));
    }

    #[test]
    fn free_slots_are_reused_before_the_table_grows() {
        let mut slab = Slab::new();
        let keys: Vec<_> = (0..10).map(|i| slab.insert(i)).collect();
        for k in &keys {
            slab.remove(*k);
        }
        for i in 0..10 {
            assert!(slab.insert(i).index() < 10);
        }
        assert_eq!(slab.len(), 10);
        assert_eq!(slab.next_key().index(), 10);
    }
}
