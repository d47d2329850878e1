//! Many candidates at once, by columns: what all of them share is worked out once.
//!
//! A block holds up to [`WIDTH`] candidates, each a bit of a mask. A column holds, for one key, the different properties
//! that candidates have, each with the mask of those that have it; so a rule that matches what all candidates share
//! costs as much as it would for one.

use super::Prop;
use super::index::{Index, RuleId};
use super::intern::{Interner, Key, Val};
use super::rows::Posts;
use crate::manager::document::SECURITY;
use neater_property::neat::NeatProperty;

/// A set of candidates of a block.
pub(super) type Mask = u128;
/// How many candidates a block holds.
pub(super) const WIDTH: usize = 128;
/// No entry.
const NONE: u16 = u16::MAX;
/// How many columns, and entries of a column, there may be.
const MOST: usize = 60_000;
/// How many entries are looked at for one that is the same as a new one. More cost more than they save.
const LOOKED_AT: usize = 8;
/// Several entries, or not known which.
const MANY: u32 = u32::MAX;

/// One property and the candidates that have it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) prop: Prop,
    pub(super) mask: Mask,
    /// An entry that was split off this one and kept its value.
    next: u16,
}

/// What the candidates have under one key. Places of entries stay as they are while rules are applied.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) key: Key,
    pub(super) entries: Vec<Entry>,
    /// The candidates that have something.
    pub(super) has: Mask,
    /// The entry of each candidate that has something.
    of: [u16; WIDTH],
}

impl Column {
    pub(super) fn new(key: Key) -> Self {
        Self { key, entries: Vec::new(), has: 0, of: [0; WIDTH] }
    }

    /// Gives all candidates of `mask`, which have nothing yet, this property.
    pub(super) fn put(&mut self, prop: Prop, mask: Mask) -> usize {
        let at = self.entries.len();
        self.entries.push(Entry { prop, mask, next: NONE });
        if self.has == 0 {
            self.of = [at as u16; WIDTH];
        } else {
            for_bits(mask, |bit| self.of[bit] = at as u16);
        }
        self.has |= mask;
        at
    }

    /// Gives all candidates of `mask`, which have nothing now, the entry at a place.
    fn join(&mut self, at: usize, mask: Mask) {
        self.entries[at].mask |= mask;
        self.has |= mask;
        for_bits(mask, |bit| self.of[bit] = at as u16);
    }

    /// Gives one candidate, which has nothing yet, this property, beside equal ones.
    pub(super) fn put_beside(&mut self, prop: Prop, bit: usize) {
        match self.entries.iter().position(|e| e.prop == prop) {
            Some(at) => {
                self.entries[at].mask |= 1 << bit;
                self.of[bit] = at as u16;
                self.has |= 1 << bit;
            }
            None => drop(self.put(prop, 1 << bit)),
        }
    }

    /// The place of one of the latest entries that is this property and that somebody alive has, other than `not`.
    fn twin(&self, prop: &Prop, not: usize, alive: Mask) -> Option<usize> {
        let latest = self.entries.len().saturating_sub(LOOKED_AT);
        let same = |&i: &usize| {
            let e = &self.entries[i];
            e.prop.value == prop.value && e.prop == *prop && i != not && e.mask & alive != 0
        };
        (latest..self.entries.len()).rev().find(same)
    }

    fn take(&mut self, mask: Mask) {
        if self.has & mask != 0 {
            self.has &= !mask;
            for entry in &mut self.entries {
                entry.mask &= !mask;
            }
        }
    }

    /// The place of a candidate's entry.
    pub(super) fn place(&self, bit: usize) -> Option<usize> {
        (self.has >> bit & 1 == 1).then(|| usize::from(self.of[bit]))
    }

    pub(super) fn prop(&self, bit: usize) -> Option<Prop> {
        self.place(bit).map(|at| self.entries[at].prop)
    }
}

#[inline]
pub(super) fn for_bits(mask: Mask, mut f: impl FnMut(usize)) {
    // In halves, which a processor has registers for.
    for (mut half, base) in [(mask as u64, 0), ((mask >> 64) as u64, 64)] {
        while half != 0 {
            f(base + half.trailing_zeros() as usize);
            half &= half - 1;
        }
    }
}

/// Too many candidates for a block: the plain form takes over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Overflow;

/// Candidates side by side.
#[derive(Clone, Debug)]
pub(super) struct Block {
    #[expect(clippy::vec_box, reason = "they move between the two lists, and are used again")]
    pub(super) columns: Vec<Box<Column>>,
    #[expect(clippy::vec_box, reason = "as above")]
    spare: Vec<Box<Column>>,
    pub(super) alive: Mask,
    /// The candidates in their order; those that are dead are to be skipped.
    pub(super) order: Vec<u8>,
    /// For each candidate, a number that its children take over.
    pub(super) origin: Vec<u16>,
    /// For each candidate, a number made of its keys and values: the same for candidates that are the same.
    pub(super) hashes: Box<[u64; WIDTH]>,
    /// The columns in the order of the names of their keys, once sorted.
    pub(super) sorted: Vec<u32>,
    /// The block of rows that it was joined from.
    pub(super) rows: Option<usize>,
    /// The columns, by bit, that hold for each entry the value that the rows have.
    pub(super) unchanged: Mask,
}

impl Default for Block {
    fn default() -> Self {
        Self {
            columns: Vec::new(),
            spare: Vec::new(),
            alive: 0,
            order: Vec::new(),
            origin: vec![0; WIDTH],
            hashes: Box::new([0; WIDTH]),
            sorted: Vec::new(),
            rows: None,
            unchanged: 0,
        }
    }
}

/// The lowest candidate of a set that is not empty.
#[inline]
fn lowest(mask: Mask) -> usize {
    let low = mask as u64;
    if low == 0 { 64 + ((mask >> 64) as u64).trailing_zeros() as usize } else { low.trailing_zeros() as usize }
}

/// Changes the numbers of the candidates of `mask` from one value of a key, if any, to another.
#[inline]
fn rehash(
    hashes: &mut [u64; WIDTH],
    alive: Mask,
    mask: Mask,
    (key, old, new): (Key, Option<Val>, Option<Val>),
    interner: &Interner,
) {
    let number = |val: Option<Val>| val.map_or(0, |v| mix(key, interner.class(v)));
    let change = number(old) ^ number(new);
    if mask == alive {
        hashes.iter_mut().for_each(|h| *h ^= change);
    } else {
        for_bits(mask, |bit| hashes[bit] ^= change);
    }
}

/// A number for a key with a value; those of a candidate's are joined by exclusive or.
pub(super) fn mix(key: Key, val: Val) -> u64 {
    let x = (u64::from(key) << 32 | u64::from(val)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
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
        self.spare.append(&mut self.columns);
        self.order.clear();
        self.sorted.clear();
        (self.alive, self.rows, self.unchanged) = (0, None, 0);
    }

    /// Adds an empty column, and gives its place.
    pub(super) fn column(&mut self, key: Key) -> usize {
        match self.spare.pop() {
            Some(mut column) => {
                column.key = key;
                column.entries.clear();
                column.has = 0;
                self.columns.push(column);
            }
            None => self.columns.push(Box::new(Column::new(key))),
        }
        self.columns.len() - 1
    }

    /// Adds a column that says what `from` says.
    pub(super) fn copy(&mut self, from: &Column) {
        let at = self.column(from.key);
        let column = &mut *self.columns[at];
        column.entries.extend_from_slice(&from.entries);
        (column.has, column.of) = (from.has, from.of);
    }

    /// Changes the numbers of the candidates of `mask` from one value of a key, if any, to another.
    pub(super) fn rehash(&mut self, mask: Mask, key: Key, old: Option<Val>, new: Option<Val>, interner: &Interner) {
        rehash(&mut self.hashes, self.alive, mask, (key, old, new), interner);
    }

    /// Tries the rules of `index` on the candidates; which of them an entry is found by, `known` may know already.
    pub(super) fn apply<'k>(
        &mut self,
        index: &Index,
        interner: &mut Interner,
        scratch: &mut Scratch,
        known: &dyn Fn(usize) -> Option<&'k Posts>,
    ) -> Result<(), Overflow> {
        if index.len() == 0 || self.alive == 0 {
            return Ok(());
        }
        if self.columns.len() >= MOST {
            return Err(Overflow);
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
            let alive = column.entries.iter().enumerate().filter(|(_, e)| e.mask & self.alive != 0);
            match known(slot) {
                // What the rows say is known for each entry; entries that came later are not.
                Some(posts) if posts.any() || posts.len() < column.entries.len() => {
                    for (at, entry) in alive {
                        match posts.of(at) {
                            Some(rules) => rules.iter().for_each(|r| scratch.pend(*r, 0, slot, at)),
                            None => index.triggered(column.key, entry.prop.value, interner, |r| {
                                scratch.pend(r, 0, slot, at);
                            }),
                        }
                    }
                }
                None if index.knows(column.key) => {
                    for (at, entry) in alive {
                        index.triggered(column.key, entry.prop.value, interner, |r| scratch.pend(r, 0, slot, at));
                    }
                }
                _ => {}
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
                let entries = &self.columns[(hint >> 16) as usize].entries;
                let (mut at, mut found) = (hint as u16, 0);
                while let Some(entry) = entries.get(usize::from(at)) {
                    found |= if interner.matches(entry.prop.value, val) { entry.mask } else { 0 };
                    at = entry.next;
                }
                mask &= found;
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
            let security = interner.known_key(SECURITY);
            let all = mask;
            for &(key, _) in index.wanted(rule) {
                if let Some(slot) = scratch.slot(key) {
                    let mut mask = all;
                    if Some(key) == security {
                        // What a program requires for its security stays.
                        let required = |e: &&Entry| e.prop.precedence >= NeatProperty::IMMUTABLE;
                        self.columns[slot].entries.iter().filter(required).for_each(|e| mask &= !e.mask);
                    }
                    let mut left = mask & self.columns[slot].has;
                    while left != 0 {
                        let column = &self.columns[slot];
                        let held = column.entries[usize::from(column.of[left.trailing_zeros() as usize])];
                        self.rehash(left & held.mask, key, Some(held.prop.value), None, interner);
                        left &= !held.mask;
                    }
                    self.columns[slot].take(mask);
                }
            }
        }
        let cursor = rule + 1;
        match index.alternatives(rule) {
            0 => self.alive &= !mask,
            1 => self.add(index, index.alternative(rule, 0), mask, cursor, interner, scratch)?,
            several => {
                let masks = self.branch(mask, several)?;
                for (which, mask) in masks.into_iter().enumerate() {
                    self.add(index, index.alternative(rule, which), mask, cursor, interner, scratch)?;
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
                self.hashes[new.trailing_zeros() as usize] = self.hashes[bit as usize];
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
    ) -> Result<(), Overflow> {
        for &(key, prop) in properties {
            let slot = match scratch.slot(key) {
                Some(slot) => slot,
                None => {
                    if self.columns.len() >= MOST {
                        return Err(Overflow);
                    }
                    let slot = self.column(key);
                    scratch.slots[key as usize] = (scratch.turn, slot as u32);
                    slot
                }
            };
            let Self { columns, hashes, alive, .. } = self;
            let column = &mut *columns[slot];
            let mut left = mask & *alive;
            let fresh = left & !column.has;
            // Where the last result went: many candidates come to the same.
            let mut latest = None;
            if fresh != 0 {
                left &= !fresh;
                let at = match column.twin(&prop, usize::MAX, *alive) {
                    Some(at) => {
                        column.join(at, fresh);
                        at
                    }
                    None => column.put(prop, fresh),
                };
                latest = Some(at);
                rehash(hashes, *alive, fresh, (key, None, Some(prop.value)), interner);
                index.triggered(key, prop.value, interner, |r| scratch.pend(r, cursor, slot, at));
            }
            while left != 0 {
                let at = usize::from(column.of[lowest(left)]);
                let held = column.entries[at];
                let group = left & held.mask;
                left &= !group;
                if column.entries.len() >= MOST {
                    return Err(Overflow);
                }
                let Some(sum) = held.prop.sum(prop, interner) else {
                    *alive &= !group;
                    continue;
                };
                let changed = sum.value != held.prop.value;
                // Only one that somebody has: rules were not told of the others.
                let same =
                    |e: &usize| *e != at && column.entries[*e].prop == sum && column.entries[*e].mask & *alive != 0;
                let place = match latest.filter(same).or_else(|| column.twin(&sum, at, *alive)) {
                    Some(other) => {
                        column.entries[at].mask &= !group;
                        column.join(other, group);
                        other
                    }
                    None if held.mask & *alive == group => {
                        column.entries[at].prop = sum;
                        at
                    }
                    None => {
                        column.entries[at].mask &= !group;
                        let new = column.put(sum, group);
                        if !changed {
                            // Rules that will look for the old entry find the new one through it.
                            column.entries[new].next = held.next;
                            column.entries[at].next = new as u16;
                        }
                        new
                    }
                };
                latest = Some(place);
                if changed {
                    rehash(hashes, *alive, group, (key, Some(held.prop.value), Some(sum.value)), interner);
                    index.triggered(key, sum.value, interner, |r| scratch.pend(r, cursor, slot, place));
                }
            }
        }
        Ok(())
    }
}

impl Column {
    /// The candidates of `among` whose property matches `val`.
    fn matching(&self, val: Val, among: Mask, interner: &Interner) -> Mask {
        let among = among & self.has;
        if let [one] = &self.entries[..] {
            return if interner.matches(one.prop.value, val) { among & one.mask } else { 0 };
        }
        // One candidate is looked at by itself, several by what they share.
        if among & among.wrapping_sub(1) == 0 {
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
