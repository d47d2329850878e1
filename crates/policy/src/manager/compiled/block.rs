//! Many candidates at once, by columns: what all of them share is worked out once.
//!
//! A block holds up to [`WIDTH`] candidates, each a bit of a mask, and a [`Column`] for each key.
//! So a rule that matches what all candidates share costs little more than it would for one. A
//! column of CIB rows is shared until a rule changes it; until then the policies that match it are
//! known.

use super::column::{Column, Mask, WIDTH, for_bits};
use super::index::{Effect, Index, NONE, RuleId, Wish};
use super::intern::{Interner, Key, Val};
use super::rows::{Group, RowColumn, Step};
use crate::manager::document::SECURITY;
use std::ops::Deref;
use std::sync::Arc;

/// Too many candidates for a block: the plain form takes over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Overflow;

/// A column of a block.
#[derive(Clone, Debug)]
pub(super) enum Held {
    /// One of the rows', as it is.
    Rows(Arc<RowColumn>),
    Own(Box<Column>),
}

impl Deref for Held {
    type Target = Column;

    #[inline]
    fn deref(&self) -> &Column {
        match self {
            Self::Rows(rows) => &rows.column,
            Self::Own(column) => column,
        }
    }
}

/// Candidates side by side.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) columns: Vec<Held>,
    #[expect(clippy::vec_box, reason = "they move between the two lists, and are used again")]
    spare: Vec<Box<Column>>,
    pub(super) alive: Mask,
    /// The candidates in their order; those that are dead are to be skipped.
    pub(super) order: Vec<u8>,
    /// For each candidate, a number that its children take over.
    pub(super) origin: Vec<u16>,
    /// The columns in the order of the names of their keys, once sorted.
    pub(super) sorted: Vec<u32>,
    /// A key whose values keep every candidate apart from all others, where there is one.
    pub(super) apart: Option<Key>,
}

impl Default for Block {
    fn default() -> Self {
        Self {
            columns: Vec::new(),
            spare: Vec::new(),
            alive: 0,
            order: Vec::new(),
            origin: vec![0; WIDTH],
            sorted: Vec::new(),
            apart: None,
        }
    }
}

/// A number for a key with a value; those of a candidate's are joined by exclusive or.
fn mix(key: Key, val: Val) -> u64 {
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
    /// For a rule that a column of rows was found by, its place among those.
    posts: Vec<u32>,
    /// The candidates that fulfil a shared preference, and when that was evaluated.
    having: Vec<(u64, Mask)>,
    /// Counts the times since when it may be another.
    since: u64,
    /// For each lane what is to be added there.
    lanes: Vec<Lane>,
    /// The lanes where something is.
    waiting: Vec<u32>,
    /// The groups that fire.
    firing: Vec<Firing>,
}

/// What waits for one key.
#[derive(Clone, Debug, Default)]
struct Lane {
    /// What single rules add, in order.
    steps: Vec<Step>,
    /// What groups of them add, in order; of a single group, where that stands.
    grouped: Vec<Step>,
    group: Option<(usize, usize)>,
}

/// A group of policies that fires on these candidates.
#[derive(Clone, Debug)]
struct Firing {
    column: Arc<RowColumn>,
    group: usize,
    mask: Mask,
}

impl Scratch {
    /// Begins with a block.
    pub(super) fn begin(&mut self, block: &Block, keys: usize) {
        self.turn = self.turn.wrapping_add(1);
        self.since += 1;
        if self.turn == 0 || self.slots.len() < keys {
            self.slots.clear();
            self.slots.resize(keys.next_power_of_two() * 2, (0, 0));
            self.turn = 1;
        }
        for (i, column) in block.columns.iter().enumerate() {
            self.slots[column.key as usize] = (self.turn, i as u32);
        }
    }

    #[inline]
    fn slot(&self, key: Key) -> Option<usize> {
        let (turn, slot) = *self.slots.get(key as usize)?;
        (turn == self.turn).then_some(slot as usize)
    }

    #[inline]
    fn pend(&mut self, rule: RuleId) {
        self.pending[rule as usize / 64] |= 1u64 << (rule % 64);
    }

    /// Makes room for a table, in which nothing is pending yet.
    fn ready(&mut self, index: &Index) {
        self.pending.clear();
        self.pending.resize(index.len().div_ceil(64), 0);
        if self.posts.len() < index.len() {
            self.posts.resize(index.len(), 0);
        }
        if self.having.len() < index.shared() {
            self.having.resize(index.shared(), (0, 0));
        }
        if self.lanes.len() < index.lanes().len() {
            self.lanes.resize_with(index.lanes().len(), Lane::default);
        }
        // Whatever an overflow left.
        for lane in self.waiting.drain(..) {
            self.lanes[lane as usize].steps.clear();
        }
        self.firing.clear();
    }

    /// Lets an effect on the candidates of `mask` wait.
    #[inline]
    fn wait(&mut self, lane: u32, step: Step) {
        let steps = &mut self.lanes[lane as usize].steps;
        if steps.is_empty() {
            self.waiting.push(lane);
        }
        steps.push(step);
    }
}

impl Block {
    /// Gives a block back as empty, with its memory.
    pub(super) fn clear(&mut self) {
        for column in self.columns.drain(..) {
            if let Held::Own(column) = column {
                self.spare.push(column);
            }
        }
        self.order.clear();
        self.sorted.clear();
        (self.alive, self.apart) = (0, None);
    }

    /// Adds an empty column, and gives its place.
    pub(super) fn column(&mut self, key: Key) -> usize {
        let column = match self.spare.pop() {
            Some(mut column) => {
                column.renew(key);
                column
            }
            None => Box::new(Column::new(key)),
        };
        self.columns.push(Held::Own(column));
        self.columns.len() - 1
    }

    /// A column to be changed.
    #[inline]
    pub(super) fn own(&mut self, slot: usize) -> &mut Column {
        if matches!(self.columns[slot], Held::Rows(_)) {
            self.copy(slot);
        }
        match &mut self.columns[slot] {
            Held::Own(column) => column,
            Held::Rows(_) => unreachable!("it was made the block's own"),
        }
    }

    #[cold]
    fn copy(&mut self, slot: usize) {
        if let Held::Rows(rows) = &self.columns[slot] {
            let mut column = self.spare.pop().unwrap_or_else(|| Box::new(Column::new(0)));
            column.copy(&rows.column);
            self.columns[slot] = Held::Own(column);
        }
    }

    /// For each candidate, a number made of its keys and values: the same for candidates that are
    /// the same.
    pub(super) fn numbers(&self, interner: &Interner) -> [u64; WIDTH] {
        let mut numbers = [0; WIDTH];
        for column in &self.columns {
            column.values(self.alive, |val, mask| {
                let number = mix(column.key, interner.class(val));
                for_bits(mask, |bit| numbers[bit] ^= number);
            });
        }
        numbers
    }

    /// Tries the rules of `index` on the candidates. Columns of rows know the rules of the policies
    /// alone.
    pub(super) fn apply(
        &mut self,
        index: &Index,
        interner: &mut Interner,
        scratch: &mut Scratch,
    ) -> Result<(), Overflow> {
        if index.len() == 0 || self.alive == 0 {
            return Ok(());
        }
        scratch.begin(self, interner.keys());
        scratch.ready(index);
        for &rule in index.always() {
            scratch.pend(rule);
        }
        for column in &self.columns {
            match column {
                Held::Rows(rows) => {
                    for (place, (rule, mask)) in (0..).zip(&rows.posts) {
                        if mask & self.alive != 0 {
                            scratch.pend(*rule);
                            scratch.posts[*rule as usize] = place;
                        }
                    }
                    for (group, Group { rules, rows: wanted, .. }) in rows.groups.iter().enumerate() {
                        let mut mask = wanted & self.alive;
                        for wish in &index.wanted(rules[0])[1..] {
                            mask &= self.having(wish, mask, interner, scratch);
                        }
                        if mask != 0 {
                            scratch.firing.push(Firing { column: rows.clone(), group, mask });
                        }
                    }
                }
                Held::Own(column) if index.knows(column.key) => column.values(self.alive, |val, _| {
                    index.triggered(column.key, val, interner, |rule| scratch.pend(rule));
                }),
                Held::Own(_) => {}
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
        self.settle(index, RuleId::MAX, interner, scratch);
        Ok(())
    }

    /// The candidates that a rule matches.
    #[inline]
    fn matching(&self, index: &Index, rule: RuleId, interner: &Interner, scratch: &mut Scratch) -> Mask {
        let mut mask = self.alive;
        for (i, wish) in index.wanted(rule).iter().enumerate() {
            mask &= match scratch.slot(wish.key).map(|slot| &self.columns[slot]) {
                // A rule is tried that is filed under another key only where that key found it; so
                // this one did.
                Some(Held::Rows(rows)) if i == 0 => rows.posts[scratch.posts[rule as usize] as usize].1,
                _ => self.having(wish, mask, interner, scratch),
            };
            if mask == 0 {
                return 0;
            }
        }
        mask
    }

    /// The candidates that have what is wished for; those outside `among` do not matter.
    #[inline]
    fn having(&self, wish: &Wish, among: Mask, interner: &Interner, scratch: &mut Scratch) -> Mask {
        let Wish { key, val, shared } = *wish;
        let within = |among: Mask, scratch: &Scratch| {
            scratch.slot(key).map_or(0, |slot| self.columns[slot].matching(val, among, interner))
        };
        if shared == NONE {
            return within(among, scratch);
        }
        // Nothing that the table does changes which candidates have it.
        let (since, having) = scratch.having[shared as usize];
        if since == scratch.since {
            return having;
        }
        let having = within(self.alive, scratch);
        scratch.having[shared as usize] = (scratch.since, having);
        having
    }

    /// Adds what has waited, in order, of rules before `end`. It changes keys that no rule of the
    /// table reads, so that it comes to the same whenever it is done.
    fn settle(&mut self, index: &Index, end: RuleId, interner: &mut Interner, scratch: &mut Scratch) {
        let firing = std::mem::take(&mut scratch.firing);
        let before = |firing: &Firing, which: usize| -> usize {
            firing.column.groups[firing.group].steps[which].1.partition_point(|step| step.rule < end)
        };
        for (at, fires) in firing.iter().enumerate() {
            for (which, (lane, _)) in fires.column.groups[fires.group].steps.iter().enumerate() {
                let Lane { steps: single, grouped, group } = &mut scratch.lanes[*lane as usize];
                if single.is_empty() && grouped.is_empty() && group.is_none() {
                    scratch.waiting.push(*lane);
                }
                if grouped.is_empty() && group.is_none() {
                    *group = Some((at, which));
                    continue;
                }
                for (at, which) in group.take().into_iter().chain([(at, which)]) {
                    let Firing { column, group, mask } = &firing[at];
                    let steps = &column.groups[*group].steps[which].1[..before(&firing[at], which)];
                    grouped.extend(steps.iter().map(|step| Step { mask: step.mask & mask, ..*step }));
                }
                grouped.sort_by_key(|step| step.rule);
            }
        }
        while let Some(lane) = scratch.waiting.pop() {
            let mut held = std::mem::take(&mut scratch.lanes[lane as usize]);
            match held.group.take() {
                Some((at, which)) => {
                    let steps = &firing[at].column.groups[firing[at].group].steps[which].1;
                    let steps = &steps[..before(&firing[at], which)];
                    self.settle_lane(index, lane, (&held.steps, steps, firing[at].mask), interner, scratch);
                }
                None => {
                    self.settle_lane(index, lane, (&held.steps, &held.grouped, Mask::MAX), interner, scratch);
                }
            }
            held.steps.clear();
            held.grouped.clear();
            scratch.lanes[lane as usize] = held;
        }
        scratch.firing = firing;
        scratch.firing.clear();
    }

    /// Adds what single rules state for one key, and groups of them to the candidates of a mask,
    /// each in order.
    fn settle_lane(
        &mut self,
        index: &Index,
        lane: u32,
        (single, grouped, among): (&[Step], &[Step], Mask),
        interner: &mut Interner,
        scratch: &mut Scratch,
    ) {
        let key = index.lanes()[lane as usize];
        if self.apart == Some(key) {
            self.apart = None;
        }
        let slot = self.slot(key, scratch);
        let mut alive = self.alive;
        let column = self.own(slot);
        let mut add = |step: &Step, interner: &mut Interner| {
            let mask = step.mask & alive;
            if mask != 0 {
                alive &= !column.add(index.effect(step.effect), mask, alive, interner, |_, _| ());
            }
        };
        let (mut single, mut grouped) = (single, grouped);
        // Steps that are the same for others are one.
        let mut joined = Step { mask: 0, rule: 0, effect: NONE };
        loop {
            let step = match (single, grouped) {
                ([a, rest @ ..], []) => {
                    single = rest;
                    *a
                }
                ([a, rest @ ..], [b, ..]) if a.rule < b.rule => {
                    single = rest;
                    *a
                }
                (_, [b, rest @ ..]) => {
                    grouped = rest;
                    Step { mask: b.mask & among, ..*b }
                }
                ([], []) => break,
            };
            if joined.effect == step.effect && joined.mask & step.mask == 0 {
                joined.mask |= step.mask;
            } else {
                add(&joined, interner);
                joined = step;
            }
        }
        add(&joined, interner);
        self.alive = alive;
    }

    /// How many columns are kept here, in use or not.
    pub(super) fn room(&self) -> usize {
        self.columns.len() + self.spare.len()
    }

    /// The place of the column of a key, which is made if there is none.
    #[inline]
    fn slot(&mut self, key: Key, scratch: &mut Scratch) -> usize {
        scratch.slot(key).unwrap_or_else(|| {
            let slot = self.column(key);
            scratch.slots[key as usize] = (scratch.turn, slot as u32);
            slot
        })
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
            for &Wish { key, .. } in index.wanted(rule) {
                if let Some(slot) = scratch.slot(key) {
                    let column = self.own(slot);
                    // What a program requires for its security stays.
                    let stays = if Some(key) == security { column.required(mask) } else { 0 };
                    column.take(mask & !stays);
                    self.apart = self.apart.filter(|apart| *apart != key);
                }
            }
        }
        let cursor = rule + 1;
        match index.alternatives(rule) {
            0 => self.alive &= !mask,
            1 => self.add(index, index.only(rule), mask, cursor, interner, scratch),
            several => {
                // Groups know of the candidates that there were in the beginning.
                let firing = std::mem::take(&mut scratch.firing);
                for Firing { column, group, .. } in &firing {
                    column.groups[*group].rules.iter().filter(|r| **r > rule).for_each(|r| scratch.pend(*r));
                }
                scratch.firing = firing;
                // Those that come into being have what the first ones have.
                self.settle(index, rule, interner, scratch);
                let masks = self.branch(mask & self.alive, several)?;
                scratch.since += 1;
                for (which, mask) in masks.into_iter().enumerate() {
                    self.add(index, index.alternative(rule, which), mask, cursor, interner, scratch);
                }
            }
        }
        Ok(())
    }

    /// Makes `times` of every candidate of `mask`: the masks of the first ones, the second ones and
    /// so on.
    fn branch(&mut self, mask: Mask, times: usize) -> Result<Vec<Mask>, Overflow> {
        let mut free = !self.alive;
        if (times - 1) * mask.count_ones() as usize > free.count_ones() as usize {
            return Err(Overflow);
        }
        // Two of one origin may become the same.
        self.apart = None;
        for slot in 0..self.columns.len() {
            // What is dead there must not come back to life.
            self.own(slot).take(free);
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
                let to = new.trailing_zeros() as usize;
                order.push(to as u8);
                for column in &mut self.columns {
                    if let Held::Own(column) = column {
                        column.twin(usize::from(bit), to);
                    }
                }
                self.origin[to] = self.origin[usize::from(bit)];
            }
        }
        self.alive |= masks.iter().fold(0, |all, m| all | m);
        self.order = order;
        Ok(masks)
    }

    /// Adds properties to the candidates of `mask`, or lets them wait; those that clash die.
    #[inline]
    fn add(
        &mut self,
        index: &Index,
        effects: &[Effect],
        mask: Mask,
        cursor: RuleId,
        interner: &mut Interner,
        scratch: &mut Scratch,
    ) {
        for Effect { key, lane, same, prop } in effects {
            if self.apart == Some(*key) {
                self.apart = None;
            }
            if *lane != NONE {
                scratch.wait(*lane, Step { mask, rule: cursor - 1, effect: *same });
                continue;
            }
            let mask = mask & self.alive;
            if mask == 0 {
                return;
            }
            let slot = self.slot(*key, scratch);
            let (known, alive) = (index.knows(*key), self.alive);
            let clash = self.own(slot).add(prop, mask, alive, interner, |val, interner| {
                if known {
                    index.triggered(*key, val, interner, |rule| {
                        if rule >= cursor {
                            scratch.pend(rule);
                        }
                    });
                }
            });
            self.alive &= !clash;
        }
    }
}
