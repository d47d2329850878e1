//! Objects with stable, reusable, unmistakable keys.

use core::fmt;
use core::num::NonZeroU32;

/// Names one object in a [`Slab`]: a slot and the generation of its occupant.
///
/// Eight bytes, as is `Option<Key>`: no generation is zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    index: u32,
    generation: NonZeroU32,
}

impl Key {
    /// The slot, small and dense: fit to index a side table.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.index as usize
    }

    /// The key as one number below 2⁶², for tokens and foreign interfaces.
    #[inline]
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        (self.generation.get() as u64) << 32 | self.index as u64
    }

    /// The key that [`Key::to_bits`] made. Any number is a key; one that names nothing finds
    /// nothing.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        let generation = match NonZeroU32::new((bits >> 32) as u32) {
            Some(generation) => generation,
            // [`Key::to_bits`] gives no such number, and no object has the other generation either.
            None => NEVER,
        };
        Self { index: bits as u32, generation }
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
    /// Of the object in the slot, or of the next one.
    generation: NonZeroU32,
    slot: Slot<T>,
}

impl<T> Entry<T> {
    /// Whether the key names the object in here.
    #[inline]
    fn is(&self, key: Key) -> bool {
        self.generation == key.generation && matches!(self.slot, Slot::Used(_))
    }

    /// Drops the object where it is. The slot is free, and `next` after it.
    #[inline]
    fn vacate(&mut self, next: u32) {
        self.generation = following(self.generation);
        self.slot = Slot::Free { next };
    }
}

/// A table of `T` in which a key stays valid until its object is removed, and is never valid again
/// after that (until a slot has been reused 2³⁰ times).
///
/// The table grows by chunks, so that objects are never moved and memory follows the number of
/// objects closely.
#[derive(Debug)]
pub struct Slab<T> {
    chunks: Vec<Box<[Entry<T>; CHUNK]>>,
    free: u32,
    len: usize,
}

const NONE: u32 = u32::MAX;
/// Objects per chunk: a power of two.
const CHUNK: usize = 32;
/// The generation of a slot's first object.
const FIRST: NonZeroU32 = NonZeroU32::MIN;
/// No object has this generation. It and all others fit 30 bits, so that [`Key::to_bits`] leaves
/// the two high bits to the caller.
const NEVER: NonZeroU32 = NonZeroU32::MIN.saturating_add((1 << 30) - 2);

/// The generation after this one.
#[inline]
fn following(generation: NonZeroU32) -> NonZeroU32 {
    let next = generation.saturating_add(1);
    if next < NEVER { next } else { FIRST }
}

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
        Some(&self.chunks.get(index as usize / CHUNK)?[index as usize % CHUNK])
    }

    #[inline]
    fn entry_mut(&mut self, index: u32) -> Option<&mut Entry<T>> {
        Some(&mut self.chunks.get_mut(index as usize / CHUNK)?[index as usize % CHUNK])
    }

    /// The key that the next [`Slab::insert`] will return.
    #[must_use]
    pub fn next_key(&self) -> Key {
        match self.entry(self.free) {
            Some(e) => Key { index: self.free, generation: e.generation },
            None => Key { index: (self.chunks.len() * CHUNK) as u32, generation: FIRST },
        }
    }

    /// Puts `value` in and returns its key.
    ///
    /// # Panics
    /// When almost 2³² objects are in the table.
    #[inline]
    pub fn insert(&mut self, value: T) -> Key {
        match self.try_insert_with(|_| Some(value)) {
            Some(key) => key,
            None => unreachable!("the object is there"),
        }
    }

    /// As [`Slab::insert`], for an object that has to know its key or may turn out not to be: then
    /// `None`, and the table is as before.
    ///
    /// # Panics
    /// As [`Slab::insert`].
    // In line with its caller, and nothing that could unwind between making the object and putting
    // it in its place: so the compiler makes it there, instead of on the stack. For 100 bytes and
    // more that is 50 instructions less.
    #[inline(always)]
    pub fn try_insert_with(&mut self, f: impl FnOnce(Key) -> Option<T>) -> Option<Key> {
        if self.free == NONE {
            self.grow();
        }
        let index = self.free;
        if let Some(Entry { generation, slot }) = self.entry_mut(index)
            && let Slot::Free { next } = *slot
        {
            let key = Key { index, generation: *generation };
            // What was there is `Free`; the compiler need not think of dropping it.
            core::mem::forget(core::mem::replace(slot, Slot::Used(f(key)?)));
            self.free = next;
            self.len += 1;
            return Some(key);
        }
        unreachable!("the list of free slots names free slots")
    }

    /// Adds a chunk of free slots.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let first = self.chunks.len() * CHUNK;
        assert!(first + CHUNK < NONE as usize, "slab is full");
        let slot = |next| Entry { generation: FIRST, slot: Slot::Free { next } };
        let mut chunk = Vec::with_capacity(CHUNK);
        chunk.extend((first + 1..first + CHUNK).map(|next| slot(next as u32)));
        chunk.push(slot(NONE));
        if let Ok(chunk) = chunk.into_boxed_slice().try_into() {
            self.chunks.push(chunk);
            self.free = first as u32;
        }
    }

    /// Takes the object out; `None` if the key names nothing.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let free = self.free;
        let e = self.entry_mut(key.index).filter(|e| e.is(key))?;
        e.generation = following(e.generation);
        let old = core::mem::replace(&mut e.slot, Slot::Free { next: free });
        self.free = key.index;
        self.len -= 1;
        match old {
            Slot::Used(v) => Some(v),
            Slot::Free { .. } => None,
        }
    }

    /// Drops the object where it is; false if the key names nothing. Cheaper than [`Slab::remove`]
    /// for large objects.
    #[inline]
    pub fn discard(&mut self, key: Key) -> bool {
        self.discard_if(key, |_| Some(())).is_some()
    }

    /// Looks at the object and drops it in place if `f` returns a value, which is returned.
    /// Otherwise, and if the key names nothing, `None`. It finds the object once where looking and
    /// [`Slab::discard`] do so twice.
    #[inline]
    pub fn discard_if<R>(&mut self, key: Key, f: impl FnOnce(&mut T) -> Option<R>) -> Option<R> {
        let free = self.free;
        let e = self.entry_mut(key.index).filter(|e| e.generation == key.generation)?;
        let Slot::Used(v) = &mut e.slot else { return None };
        let said = f(v)?;
        e.vacate(free);
        self.free = key.index;
        self.len -= 1;
        Some(said)
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
        self.chunks.iter().flat_map(|c| c.iter()).enumerate().filter_map(|(i, e)| match &e.slot {
            Slot::Used(v) => Some((Key { index: i as u32, generation: e.generation }, v)),
            Slot::Free { .. } => None,
        })
    }

    /// All objects, in slot order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
        self.chunks.iter_mut().flat_map(|c| c.iter_mut()).enumerate().filter_map(|(i, e)| match &mut e.slot {
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
    fn an_optional_key_is_no_larger_and_a_number_that_is_no_key_finds_nothing() {
        assert_eq!(size_of::<Option<Key>>(), 8);
        let mut slab = Slab::new();
        slab.insert("a");
        for bits in [0, u64::MAX, u64::from(NEVER.get()) << 32] {
            assert_eq!(slab.get(Key::from_bits(bits)), None);
        }
        assert!(Key::from_bits(0).to_bits() >> 62 == 0);
        assert_eq!(following(NonZeroU32::new(NEVER.get() - 1).unwrap()), FIRST);
    }

    #[test]
    fn an_object_may_know_its_key_and_may_not_be_made() {
        let mut slab = Slab::new();
        let expected = slab.next_key();
        assert_eq!(slab.try_insert_with(|_| None), None);
        assert_eq!((slab.next_key(), slab.len()), (expected, 0));
        assert_eq!(slab.try_insert_with(Some), Some(expected));
        assert_eq!(slab.get(expected), Some(&expected));
    }

    #[test]
    fn an_object_goes_only_if_asked_to() {
        let mut slab = Slab::new();
        let a = slab.insert(1);
        assert_eq!(slab.discard_if(a, |v| (*v > 1).then_some(*v)), None);
        assert_eq!(slab.get(a), Some(&1));
        assert_eq!(slab.discard_if(a, |v| (*v == 1).then_some(*v)), Some(1));
        assert_eq!(slab.discard_if(a, |v| Some(*v)), None);
        assert!(slab.is_empty());
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
