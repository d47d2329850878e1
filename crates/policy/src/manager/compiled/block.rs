//! Many candidates at once, by columns: what all of them share is worked out once.
//!
//! A block holds up to [`WIDTH`] candidates, each a bit of a mask. A column holds, for one key, the different properties
//! that candidates have, each with the mask of those that have it; so a rule that matches what all candidates share
//! costs as much as it would for one.

use super::Prop;
use super::index::{Index, RuleId};
use super::intern::{Interner, Key, Val};

/// A set of candidates of a block.
pub(super) type Mask = u128;
/// How many candidates a block holds.
pub(super) const WIDTH: usize = 128;
/// No entry.
pub(super) const NONE: u16 = u16::MAX;
/// Several entries, or not known which.
const MANY: u32 = u32::MAX;

/// One property and the candidates that have it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) prop: Prop,
    pub(super) mask: Mask,
}

/// What the candidates have under one key. Places of entries stay as they are while rules are applied.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) key: Key,
    pub(super) entries: Vec<Entry>,
    /// The candidates that have something.
    pub(super) has: Mask,
    /// The entry of each candidate.
    pub(super) of: [u16; WIDTH],
}

impl Column {
    pub(super) fn new(key: Key) -> Self {
        Self { key, entries: Vec::new(), has: 0, of: [NONE; WIDTH] }
    }

    /// Gives all candidates of `mask`, which have nothing yet, this property.
    pub(super) fn put(&mut self, prop: Prop, mask: Mask) -> usize {
        let at = self.entries.len();
        self.entries.push(Entry { prop, mask });
        self.has |= mask;
        if mask == Mask::MAX {
            self.of = [at as u16; WIDTH];
        } else {
            for_bits(mask, |bit| self.of[bit] = at as u16);
        }
        at
    }

    fn take(&mut self, mask: Mask) {
        if self.has & mask == 0 {
            return;
        }
        self.has &= !mask;
        for entry in &mut self.entries {
            entry.mask &= !mask;
        }
        for_bits(mask, |bit| self.of[bit] = NONE);
    }

    pub(super) fn prop(&self, bit: usize) -> Option<Prop> {
        self.entries.get(self.of[bit] as usize).map(|e| e.prop)
    }
}

pub(super) fn for_bits(mut mask: Mask, mut f: impl FnMut(usize)) {
    while mask != 0 {
        f(mask.trailing_zeros() as usize);
        mask &= mask - 1;
    }
}

/// Too many candidates for a block: the plain form takes over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Overflow;

/// Candidates side by side.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    pub(super) columns: Vec<Column>,
    pub(super) alive: Mask,
    /// The candidates in their order; those that are dead are to be skipped.
    pub(super) order: Vec<u8>,
    /// For each candidate, a number that its children take over.
    pub(super) origin: Vec<u16>,
}

/// Where columns are, and which rules are to be tried: memory that is used again.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    /// By key: the number of the block's turn and the column.
    slots: Vec<(u32, u32)>,
    turn: u32,
    /// Rules to be tried, as bits.
    pending: Vec<u64>,
    /// For a pending rule, the one entry it was found by: column and place.
    hints: Vec<u32>,
}

impl Scratch {
    /// Begins with a block.
    pub(super) fn begin(&mut self, block: &Block, keys: usize) {
        self.turn = self.turn.wrapping_add(1);
        if self.turn == 0 || self.slots.len() < keys {
            self.slots.clear();
            self.slots.resize(keys.next_power_of_two() * 2, (0, 0));
            self.turn = 1;
        }
        for (i, column) in block.columns.iter().enumerate() {
            self.slots[column.key as usize] = (self.turn, i as u32);
        }
    }

    pub(super) fn slot(&self, key: Key) -> Option<usize> {
        let (turn, slot) = *self.slots.get(key as usize)?;
        (turn == self.turn).then_some(slot as usize)
    }

    fn pend(&mut self, rule: RuleId, cursor: RuleId, slot: usize, entry: usize) {
        if rule < cursor {
            return;
        }
        let (word, bit) = (rule as usize / 64, 1u64 << (rule % 64));
        let hint = (slot as u32) << 16 | entry as u32;
        if self.pending[word] & bit == 0 {
            self.pending[word] |= bit;
            self.hints[rule as usize] = hint;
        } else if self.hints[rule as usize] != hint {
            self.hints[rule as usize] = MANY;
        }
    }
}

impl Block {
    /// Gives a block back as empty, with its memory.
    pub(super) fn clear(&mut self) {
        self.columns.clear();
        self.order.clear();
        self.origin.clear();
        self.alive = 0;
    }

    /// Tries the rules of `index` on the candidates; which of them an entry is found by, `known` may know already.
    pub(super) fn apply<'k>(
        &mut self,
        index: &Index,
        interner: &mut Interner,
        scratch: &mut Scratch,
        known: &dyn Fn(usize, usize) -> Option<&'k [RuleId]>,
    ) -> Result<(), Overflow> {
        if index.len() == 0 || self.alive == 0 {
            return Ok(());
        }
        scratch.begin(self, interner.keys());
        scratch.pending.clear();
        scratch.pending.resize(index.len().div_ceil(64), 0);
        if scratch.hints.len() < index.len() {
            scratch.hints.resize(index.len(), 0);
        }
        for &rule in index.always() {
            scratch.pend(rule, 0, 0, 0);
        }
        for (slot, column) in self.columns.iter().enumerate() {
            for (at, entry) in column.entries.iter().enumerate() {
                if entry.mask & self.alive == 0 {
                    continue;
                }
                match known(slot, at) {
                    Some(rules) => rules.iter().for_each(|r| scratch.pend(*r, 0, slot, at)),
                    None => index.triggered(column.key, entry.prop.value, interner, |r| scratch.pend(r, 0, slot, at)),
                }
            }
        }
        let mut word = 0;
        while word < scratch.pending.len() {
            let bits = scratch.pending[word];
            if bits == 0 {
                word += 1;
                continue;
            }
            scratch.pending[word] &= bits - 1;
            let rule = (word * 64) as RuleId + bits.trailing_zeros();
            let mask = self.matching(index, rule, interner, scratch);
            if mask != 0 {
                self.fire(index, rule, mask, interner, scratch)?;
            }
        }
        Ok(())
    }

    /// The candidates that a rule matches.
    fn matching(&self, index: &Index, rule: RuleId, interner: &Interner, scratch: &Scratch) -> Mask {
        let mut mask = self.alive;
        for (i, &(key, val)) in index.wanted(rule).iter().enumerate() {
            let hint = scratch.hints[rule as usize];
            if i == 0 && hint != MANY {
                let entry = &self.columns[(hint >> 16) as usize].entries[hint as usize & 0xffff];
                mask &= if interner.matches(entry.prop.value, val) { entry.mask } else { 0 };
            } else {
                let Some(slot) = scratch.slot(key) else { return 0 };
                mask &= self.columns[slot].matching(val, mask, interner);
            }
            if mask == 0 {
                return 0;
            }
        }
        mask
    }

    fn fire(
        &mut self,
        index: &Index,
        rule: RuleId,
        mask: Mask,
        interner: &mut Interner,
        scratch: &mut Scratch,
    ) -> Result<(), Overflow> {
        if index.replaces(rule) {
            for &(key, _) in index.wanted(rule) {
                if let Some(slot) = scratch.slot(key) {
                    self.columns[slot].take(mask);
                }
            }
        }
        let cursor = rule + 1;
        match index.alternatives(rule) {
            0 => self.alive &= !mask,
            1 => self.add(index, index.alternative(rule, 0), mask, cursor, interner, scratch),
            several => {
                let masks = self.branch(mask, several)?;
                for (which, mask) in masks.into_iter().enumerate() {
                    self.add(index, index.alternative(rule, which), mask, cursor, interner, scratch);
                }
            }
        }
        Ok(())
    }

    /// Makes `times` of every candidate of `mask`: the masks of the first ones, the second ones and so on.
    fn branch(&mut self, mask: Mask, times: usize) -> Result<Vec<Mask>, Overflow> {
        let mut free = !self.alive;
        if (times - 1) * mask.count_ones() as usize > free.count_ones() as usize {
            return Err(Overflow);
        }
        // What is dead there must not come back to life.
        for column in &mut self.columns {
            column.take(free & column.has);
        }
        let mut masks = vec![0; times];
        let mut order = Vec::with_capacity(WIDTH);
        for &bit in &self.order {
            let old: Mask = 1 << bit;
            if self.alive & old == 0 {
                continue;
            }
            order.push(bit);
            if mask & old == 0 {
                continue;
            }
            masks[0] |= old;
            for twins in &mut masks[1..] {
                let new = free & free.wrapping_neg();
                free &= !new;
                *twins |= new;
                order.push(new.trailing_zeros() as u8);
                for column in self.columns.iter_mut().filter(|c| c.has & old != 0) {
                    let at = column.of[bit as usize];
                    column.entries[at as usize].mask |= new;
                    column.of[new.trailing_zeros() as usize] = at;
                    column.has |= new;
                }
                self.origin[new.trailing_zeros() as usize] = self.origin[bit as usize];
            }
        }
        self.alive |= masks.iter().fold(0, |all, m| all | m);
        self.order = order;
        Ok(masks)
    }

    /// Adds properties to the candidates of `mask`; those that clash die.
    fn add(
        &mut self,
        index: &Index,
        properties: &[(Key, Prop)],
        mask: Mask,
        cursor: RuleId,
        interner: &mut Interner,
        scratch: &mut Scratch,
    ) {
        for &(key, prop) in properties {
            let slot = match scratch.slot(key) {
                Some(slot) => slot,
                None => {
                    let slot = self.columns.len();
                    self.columns.push(Column::new(key));
                    scratch.slots[key as usize] = (scratch.turn, slot as u32);
                    slot
                }
            };
            let column = &mut self.columns[slot];
            let mut left = mask & self.alive;
            let fresh = left & !column.has;
            if fresh != 0 {
                left &= !fresh;
                let at = column.put(prop, fresh);
                index.triggered(key, prop.value, interner, |r| scratch.pend(r, cursor, slot, at));
            }
            while left != 0 {
                let at = column.of[left.trailing_zeros() as usize] as usize;
                let held = column.entries[at];
                let group = left & held.mask;
                left &= !group;
                let Some(sum) = held.prop.sum(prop, interner) else {
                    self.alive &= !group;
                    continue;
                };
                if held.mask & self.alive == group {
                    column.entries[at].prop = sum;
                    if sum.value != held.prop.value {
                        index.triggered(key, sum.value, interner, |r| scratch.pend(r, cursor, slot, at));
                    }
                    continue;
                }
                column.entries[at].mask &= !group;
                let new = column.put(sum, group);
                index.triggered(key, sum.value, interner, |r| scratch.pend(r, cursor, slot, new));
            }
        }
    }
}

impl Column {
    /// The candidates of `among` whose property matches `val`.
    fn matching(&self, val: Val, among: Mask, interner: &Interner) -> Mask {
        let among = among & self.has;
        // Few candidates are looked at one by one, many by what they share.
        if (among.count_ones() as usize) < self.entries.len() {
            let mut found = 0;
            for_bits(among, |bit| {
                let held = self.entries[self.of[bit] as usize].prop.value;
                found |= Mask::from(interner.matches(held, val)) << bit;
            });
            return found;
        }
        let matching = self.entries.iter().filter(|e| e.mask & among != 0 && interner.matches(e.prop.value, val));
        matching.fold(0, |mask, e| mask | e.mask) & among
    }
}
