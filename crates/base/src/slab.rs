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
#[derive(Debug)]
pub struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: u32,
    len: usize,
}

const NONE: u32 = u32::MAX;
/// Generations fit 30 bits, so that [`Key::to_bits`] leaves the two high bits to the caller.
const MAX_GENERATION: u32 = (1 << 30) - 1;

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), free: NONE, len: 0 }
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

    /// The key that the next [`Slab::insert`] will return.
    #[must_use]
    pub fn next_key(&self) -> Key {
        match self.entries.get(self.free as usize) {
            Some(e) => Key { index: self.free, generation: e.generation },
            None => Key { index: self.entries.len() as u32, generation: 0 },
        }
    }

    /// Puts `value` in and returns its key.
    ///
    /// # Panics
    /// When 2³² - 1 objects are in the table.
    pub fn insert(&mut self, value: T) -> Key {
        self.len += 1;
        let index = self.free;
        if let Some(e) = self.entries.get_mut(index as usize) {
            if let Slot::Free { next } = e.slot {
                self.free = next;
            }
            e.slot = Slot::Used(value);
            return Key { index, generation: e.generation };
        }
        let index = self.entries.len() as u32;
        assert!(index != NONE, "slab is full");
        self.entries.push(Entry { generation: 0, slot: Slot::Used(value) });
        Key { index, generation: 0 }
    }

    /// Takes the object out; `None` if the key names nothing.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let e = self.entries.get_mut(key.index as usize)?;
        if e.generation != key.generation || matches!(e.slot, Slot::Free { .. }) {
            return None;
        }
        e.generation = e.generation.wrapping_add(1) & MAX_GENERATION;
        let old = core::mem::replace(&mut e.slot, Slot::Free { next: self.free });
        self.free = key.index;
        self.len -= 1;
        match old {
            Slot::Used(v) => Some(v),
            Slot::Free { .. } => None,
        }
    }

    /// The object, if the key still names one.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&T> {
        match self.entries.get(key.index as usize) {
            Some(Entry { generation, slot: Slot::Used(v) }) if *generation == key.generation => Some(v),
            _ => None,
        }
    }

    /// The object, if the key still names one.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        match self.entries.get_mut(key.index as usize) {
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
        self.entries.iter().enumerate().filter_map(|(i, e)| match &e.slot {
            Slot::Used(v) => Some((Key { index: i as u32, generation: e.generation }, v)),
            Slot::Free { .. } => None,
        })
    }

    /// All objects, in slot order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
        self.entries.iter_mut().enumerate().filter_map(|(i, e)| match &mut e.slot {
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
