//! From requests to a decision, on compiled tables.

use super::Prop;
use super::block::{Block, Column, Mask, Overflow, Scratch, WIDTH, for_bits};
use super::index::Index;
use super::intern::{Interner, Key, Mark, Val};
use super::rows::{BARE, RowBlock};
use crate::manager::Limits;
use crate::manager::cib::Row;
use crate::manager::decision::{Decided, Decision};
use crate::manager::document::{MAX_CANDIDATES, Requests};
use crate::manager::file::Rule;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};
use neater_property::neat::{NeatValue, Score};
use std::sync::Arc;

/// How many requests share a block while profiles are applied, so that there is room for what becomes of them.
const TOGETHER: usize = 8;
/// How many blocks there may be at once. More is rare, and left to the plain form.
const MAX_BLOCKS: usize = 512;

/// Tables and rows in their compiled form.
#[derive(Clone, Debug)]
pub(in crate::manager) struct Compiled {
    interner: Interner,
    profiles: Index,
    policies: Index,
    /// What the tables need.
    tables: Mark,
    /// What the tables and rows need.
    base: Mark,
    rows: Vec<RowBlock>,
    keys_seen: Option<Vec<Arc<str>>>,
    work: Work,
}

/// Memory that is used again from one decision to the next.
#[derive(Clone, Debug, Default)]
struct Work {
    scratch: Scratch,
    blocks: Vec<Block>,
    used: usize,
    evaluated: Vec<f64>,
    others: Vec<f64>,
    finished: Vec<(u16, Found)>,
    places: HashMap<(u64, u32), u32, FixedState>,
    seen: HashTable<u32>,
    input: Vec<(Key, Prop)>,
    found: Vec<Found>,
    all: Vec<Found>,
    ranked: Vec<(Found, Option<Val>)>,
}

/// A candidate in a block.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// The score, as a number to be sorted by.
    place: u128,
    score: (f64, f64),
    hash: u64,
    block: u32,
    bit: u32,
}

/// A score as a number that is smaller for better ones, in the order of [`Score::order`].
fn place((evaluated, others): (f64, f64)) -> u128 {
    // Bits of a double in the order of the numbers; adding 0 makes -0 and 0 the same.
    let ordered = |n: f64| {
        let bits = (n + 0.0).to_bits();
        if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
    };
    !(u128::from(ordered(evaluated)) << 64 | u128::from(ordered(others)))
}

impl Work {
    /// An empty block.
    fn block(&mut self) -> Result<usize, Overflow> {
        if self.used >= MAX_BLOCKS {
            return Err(Overflow);
        }
        if self.used == self.blocks.len() {
            self.blocks.push(Block::default());
        }
        self.blocks[self.used].clear();
        self.used += 1;
        Ok(self.used - 1)
    }

    /// Scores of the candidates of a block, by bit, each summed in the order of the names of the keys.
    fn measure(&mut self, block: usize, interner: &Interner) {
        let Block { columns, sorted, alive, .. } = &mut self.blocks[block];
        sorted.clear();
        sorted.extend(0..columns.len() as u32);
        sorted.sort_unstable_by(|a, b| interner.by_name(columns[*a as usize].key, columns[*b as usize].key));
        for sums in [&mut self.evaluated, &mut self.others] {
            sums.clear();
            sums.resize(WIDTH, 0.0);
        }
        for &slot in &*sorted {
            let column = &*columns[slot as usize];
            if column.entries.iter().all(|e| e.prop.score == 0.0) {
                continue;
            }
            if let Some(all) = column.entries.iter().find(|e| e.mask & *alive == *alive) {
                let sums = if all.prop.evaluated { &mut self.evaluated } else { &mut self.others };
                sums.iter_mut().for_each(|s| *s += all.prop.score);
                continue;
            }
            for_bits(column.has & *alive, |bit| {
                if let Some(prop) = column.prop(bit) {
                    let sums = if prop.evaluated { &mut self.evaluated } else { &mut self.others };
                    sums[bit] += prop.score;
                }
            });
        }
    }

    fn candidate(&self, block: usize, bit: usize) -> Found {
        let hash = self.blocks[block].hashes[bit];
        let score = (self.evaluated[bit], self.others[bit]);
        Found { place: place(score), score, hash, block: block as u32, bit: bit as u32 }
    }

    /// Whether two candidates have the same keys with the same values.
    fn same(&self, a: &Found, b: &Found, interner: &Interner) -> bool {
        let (x, y) = (&self.blocks[a.block as usize], &self.blocks[b.block as usize]);
        let count = |block: &Block, bit: u32| block.columns.iter().filter(|c| c.has >> bit & 1 == 1).count();
        let has = |c: &Column| {
            c.prop(a.bit as usize).is_none_or(|p| {
                let other = y.columns.iter().find(|o| o.key == c.key).and_then(|o| o.prop(b.bit as usize));
                other.is_some_and(|o| interner.class(o.value) == interner.class(p.value))
            })
        };
        count(x, a.bit) == count(y, b.bit) && x.columns.iter().all(|c| has(c))
    }

    /// Adds `candidate` to `list` unless one that is the same is there.
    fn append(&mut self, all: bool, candidate: Found, interner: &Interner) {
        let mut seen = std::mem::take(&mut self.seen);
        let list = if all { &self.all } else { &self.found };
        let there = seen.find(candidate.hash, |&i| {
            let held = &list[i as usize];
            held.hash == candidate.hash && self.same(held, &candidate, interner)
        });
        if there.is_none() {
            let list = if all { &mut self.all } else { &mut self.found };
            list.push(candidate);
            let list = &*list;
            seen.insert_unique(candidate.hash, list.len() as u32 - 1, |&i| list[i as usize].hash);
        }
        self.seen = seen;
    }
}

impl Compiled {
    pub(in crate::manager) fn new(profiles: &[Rule], policies: &[Rule], rows: &[Row]) -> Self {
        let mut interner = Interner::new();
        let profiles = Index::new(profiles, &mut interner);
        let policies = Index::new(policies, &mut interner);
        let tables = interner.mark();
        let mut compiled = Self {
            interner,
            profiles,
            policies,
            tables,
            base: tables,
            rows: Vec::new(),
            keys_seen: None,
            work: Work::default(),
        };
        compiled.set_rows(rows);
        compiled
    }

    /// Takes other rows, and leaves the tables as they are.
    pub(in crate::manager) fn set_rows(&mut self, rows: &[Row]) {
        self.interner.take_back(self.tables);
        self.interner.settle();
        self.rows = RowBlock::of(rows, &self.policies, &mut self.interner);
        self.interner.settle();
        self.base = self.interner.mark();
    }

    /// Decides as the plain form does; `None` when there are too many candidates to stand side by side.
    pub(in crate::manager) fn decide(&mut self, requests: &Requests, limits: Limits) -> Option<Decision> {
        let mut work = std::mem::take(&mut self.work);
        let decided = self.run(requests, limits, &mut work);
        let decision = decided.ok().map(|()| self.told(&mut work));
        self.keys_seen = decision.is_some().then(|| {
            let blocks = &work.blocks[..work.used];
            let mut keys: Vec<Key> = blocks.iter().flat_map(|b| b.columns.iter().map(|c| c.key)).collect();
            keys.sort_unstable();
            keys.dedup();
            keys.into_iter().map(|k| self.interner.name(k).clone()).collect()
        });
        self.interner.take_back(self.base);
        self.work = work;
        decision
    }

    /// The keys that the candidates of the last decision had at any time; `None` when it came to none.
    pub(in crate::manager) fn keys_seen(&self) -> Option<Vec<Arc<str>>> {
        self.keys_seen.clone()
    }

    fn run(&mut self, requests: &Requests, limits: Limits, work: &mut Work) -> Result<(), Overflow> {
        work.used = 0;
        work.all.clear();
        for together in requests.arrays.chunks(TOGETHER) {
            let first = work.block()?;
            let block = &mut work.blocks[first];
            for (bit, request) in together.iter().enumerate() {
                for p in request.iter() {
                    let key = self.interner.key(&p.key);
                    let prop = Prop::new(p, &mut self.interner);
                    let slot = block.columns.iter().position(|c| c.key == key);
                    let slot = slot.unwrap_or_else(|| block.column(key));
                    block.columns[slot].put_beside(prop, bit);
                }
                block.order.push(bit as u8);
            }
            block.alive = (1 << together.len()) - 1;
            (0u16..).zip(&mut block.origin).for_each(|(bit, origin)| *origin = bit);
            block.apply(&self.profiles, &mut self.interner, &mut work.scratch, &|_| None)?;
            for request in 0..together.len() as u16 {
                self.request(first, request, limits, work)?;
            }
        }
        self.rank(limits, work)
    }

    /// What becomes of one request, after the profiles: rows are joined and policies applied.
    fn request(&mut self, profiled: usize, request: u16, limits: Limits, work: &mut Work) -> Result<(), Overflow> {
        work.found.clear();
        work.seen.clear();
        let begin = work.used;
        for at in 0..work.blocks[profiled].order.len() {
            let block = &work.blocks[profiled];
            let bit = usize::from(block.order[at]);
            if block.alive >> bit & 1 == 0 || block.origin[bit] != request {
                continue;
            }
            work.input.clear();
            work.input.extend(block.columns.iter().filter_map(|c| Some((c.key, c.prop(bit)?))));
            self.join(limits.rows, work)?;
        }
        work.found.sort_by_key(|f| f.place);
        for block in &mut work.blocks[begin..work.used] {
            block.alive = 0;
        }
        for (rank, found) in work.found.iter().enumerate() {
            let block = &mut work.blocks[found.block as usize];
            block.alive |= 1 << found.bit;
            block.order.push(found.bit as u8);
            block.origin[found.bit as usize] = u16::try_from(rank).map_err(|_| Overflow)?;
        }
        self.finish(begin, work)
    }

    /// Joins the rows to the input; the best are found.
    fn join(&mut self, limit: usize, work: &mut Work) -> Result<(), Overflow> {
        let start = work.ranked.len();
        let input = std::mem::take(&mut work.input);
        for i in 0..self.rows.len().max(1) {
            let serving = self.rows.get(i).map_or(0, |rows| rows.serving(&input, &self.interner));
            let bare: Mask = if i == 0 { 1 << BARE } else { 0 };
            if serving | bare == 0 {
                continue;
            }
            let at = work.block()?;
            let block = &mut work.blocks[at];
            block.alive = serving | bare;
            block.hashes[BARE] = 0;
            if serving != 0 {
                let rows = &self.rows[i];
                rows.columns.iter().for_each(|column| block.copy(column));
                *block.hashes = *rows.hashes;
                (block.rows, block.unchanged) = (Some(i), Mask::MAX);
            }
            for &(key, prop) in &input {
                let slot = (serving != 0).then(|| self.rows[i].slot(key)).flatten();
                let slot = slot.unwrap_or_else(|| block.column(key));
                for place in 0..block.columns[slot].entries.len() {
                    let entry = block.columns[slot].entries[place];
                    if entry.mask & serving == 0 {
                        continue;
                    }
                    match entry.prop.sum(prop, &mut self.interner) {
                        Some(sum) => {
                            block.columns[slot].entries[place].prop = sum;
                            if sum.value != entry.prop.value {
                                block.unchanged &= !(1u128.checked_shl(slot as u32).unwrap_or(0));
                                let (old, new) = (Some(entry.prop.value), Some(sum.value));
                                block.rehash(entry.mask & serving, key, old, new, &self.interner);
                            }
                        }
                        // Rows that could clash do not serve.
                        None => block.alive &= !entry.mask,
                    }
                }
                let without = block.alive & !block.columns[slot].has;
                if without != 0 {
                    block.columns[slot].put(prop, without);
                    block.rehash(without, key, None, Some(prop.value), &self.interner);
                }
            }
            work.measure(at, &self.interner);
            let alive = work.blocks[at].alive;
            if bare != 0 {
                work.ranked.push((work.candidate(at, BARE), None));
            }
            for_bits(alive & !bare, |bit| work.ranked.push((work.candidate(at, bit), None)));
        }
        work.input = input;
        let mut joined = std::mem::take(&mut work.ranked);
        // Equals stay in the order in which they came.
        joined[start..].sort_by_key(|(found, _)| found.place);
        for (found, _) in joined[start..].iter().take(limit) {
            work.append(false, *found, &self.interner);
        }
        joined.truncate(start);
        work.ranked = joined;
        Ok(())
    }

    /// Applies the policies to the blocks from `begin` on and puts what is left with all candidates.
    fn finish(&mut self, begin: usize, work: &mut Work) -> Result<(), Overflow> {
        work.finished.clear();
        for at in begin..work.used {
            let block = &mut work.blocks[at];
            if block.alive == 0 {
                continue;
            }
            let (rows, unchanged) = (block.rows.map(|r| &self.rows[r]), block.unchanged);
            let known = |slot: usize| {
                let same = slot < WIDTH && unchanged >> slot & 1 == 1;
                rows.filter(|_| same).and_then(|r| r.posts(slot))
            };
            block.apply(&self.policies, &mut self.interner, &mut work.scratch, &known)?;
            work.measure(at, &self.interner);
            let block = &work.blocks[at];
            for bit in block.order.iter().map(|b| usize::from(*b)).filter(|b| block.alive >> b & 1 == 1) {
                work.finished.push((block.origin[bit], work.candidate(at, bit)));
            }
        }
        let mut finished = std::mem::take(&mut work.finished);
        finished.sort_by_key(|(rank, _)| *rank);
        // Candidates of earlier requests count, too.
        work.seen.clear();
        let mut seen = std::mem::take(&mut work.seen);
        for (i, held) in work.all.iter().enumerate() {
            seen.insert_unique(held.hash, i as u32, |&i| work.all[i as usize].hash);
        }
        work.seen = seen;
        for (_, found) in &finished {
            work.append(true, *found, &self.interner);
        }
        work.finished = finished;
        Ok(())
    }

    /// Ranks what is left, one candidate for each transport.
    fn rank(&mut self, limits: Limits, work: &mut Work) -> Result<(), Overflow> {
        work.ranked.clear();
        let transport = self.interner.known_key("transport");
        for at in 0..work.all.len() {
            let found = work.all[at];
            let block = &work.blocks[found.block as usize];
            let column = transport.and_then(|key| block.columns.iter().find(|c| c.key == key));
            let Some(prop) = column.and_then(|c| c.prop(found.bit as usize)) else { continue };
            let value = self.interner.shown(prop.value).clone();
            match &*value {
                NeatValue::Text(_) => work.ranked.push((found, None)),
                NeatValue::Set(elements) => {
                    for element in elements.iter().filter(|e| matches!(e, NeatValue::Text(_))) {
                        let val = self.interner.value(element);
                        work.ranked.push((found, Some(val)));
                    }
                }
                _ => {}
            }
        }
        if work.all.len().max(work.ranked.len()) > MAX_CANDIDATES {
            return Err(Overflow);
        }
        if limits.candidates < work.ranked.len() {
            // Only the best need be in order; equals rank as they came.
            let mut at: Vec<(u128, u32)> = work.ranked.iter().zip(0..).map(|((f, _), i)| (f.place, i)).collect();
            let (best, ..) = at.select_nth_unstable(limits.candidates);
            best.sort_unstable();
            let best: Vec<_> = best.iter().map(|(_, i)| work.ranked[*i as usize]).collect();
            work.ranked = best;
        } else {
            work.ranked.sort_by_key(|(found, _)| found.place);
        }
        Ok(())
    }

    /// The answer, on its own.
    fn told(&mut self, work: &mut Work) -> Decision {
        let mut decision = Decision::default();
        let transport_key = self.interner.known_key("transport");
        work.places.clear();
        for (found, transport) in &work.ranked {
            let block = &work.blocks[found.block as usize];
            let mut indices = Vec::with_capacity(block.columns.len());
            for &slot in &block.sorted {
                let column = &block.columns[slot as usize];
                let Some(at) = column.place(found.bit as usize) else { continue };
                let split = transport.filter(|_| Some(column.key) == transport_key);
                // What candidates share is told once.
                let place = u64::from(found.block) << 48 | u64::from(slot) << 16 | at as u64;
                let index = *work.places.entry((place, split.unwrap_or(Val::MAX))).or_insert_with(|| {
                    let prop = column.entries[at].prop;
                    decision.push(Decided {
                        key: self.interner.name(column.key).clone(),
                        value: self.interner.shown(split.unwrap_or(prop.value)).clone(),
                        precedence: prop.precedence,
                        score: prop.score,
                        evaluated: prop.evaluated,
                    })
                });
                indices.push(index);
            }
            let (evaluated, others) = found.score;
            decision.candidate(Score { evaluated, others }, indices);
        }
        decision
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_in_the_order_of_scores() {
        let numbers = [f64::NEG_INFINITY, -2.0, -0.1, -0.0, 0.0, 1e-300, 0.1, 3.0, f64::INFINITY];
        let pairs: Vec<(f64, f64)> = numbers.iter().flat_map(|a| numbers.iter().map(|b| (*a, *b))).collect();
        let score = |(evaluated, others): (f64, f64)| Score { evaluated, others };
        for a in &pairs {
            for b in &pairs {
                assert_eq!(place(*a).cmp(&place(*b)), score(*b).order(&score(*a)), "{a:?} and {b:?}");
            }
        }
    }
}
