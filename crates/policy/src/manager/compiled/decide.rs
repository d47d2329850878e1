//! From requests to a decision, on compiled tables.

use super::Prop;
use super::block::{Block, Column, Mask, NONE, Overflow, Scratch, WIDTH, for_bits};
use super::index::Index;
use super::intern::{Interner, Key, Mark, Val};
use super::rows::{BARE, RowBlock, put};
use crate::manager::Limits;
use crate::manager::cib::Row;
use crate::manager::decision::{Decided, Decision};
use crate::manager::document::Requests;
use crate::manager::file::Rule;
use hashbrown::HashTable;
use neater_property::neat::{NeatValue, Score};

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
    work: Work,
}

/// Memory that is used again from one decision to the next.
#[derive(Clone, Debug, Default)]
struct Work {
    scratch: Scratch,
    blocks: Vec<Block>,
    used: usize,
    order: Vec<u32>,
    scores: Vec<(f64, f64)>,
    hashes: Vec<u64>,
    seen: HashTable<u32>,
    input: Vec<(Key, Prop)>,
    found: Vec<Found>,
    all: Vec<Found>,
    ranked: Vec<(Found, Option<Val>)>,
}

/// A candidate in a block.
#[derive(Clone, Copy, Debug)]
struct Found {
    score: (f64, f64),
    hash: u64,
    block: u32,
    bit: u32,
}

/// Sorts scores from high to low.
fn better(a: (f64, f64), b: (f64, f64)) -> core::cmp::Ordering {
    let score = |(evaluated, others)| Score { evaluated, others };
    score(b).order(&score(a))
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

    /// The columns of a block in the order of the names of their keys.
    fn sort_columns(&mut self, block: usize, interner: &Interner) {
        let columns = &self.blocks[block].columns;
        self.order.clear();
        self.order.extend(0..columns.len() as u32);
        self.order.sort_unstable_by(|a, b| interner.by_name(columns[*a as usize].key, columns[*b as usize].key));
    }

    /// Scores and hashes of the candidates of a block, by bit. Call [`sort_columns`](Self::sort_columns) before.
    fn measure(&mut self, block: usize, interner: &Interner) {
        let block = &self.blocks[block];
        self.scores.clear();
        self.scores.resize(WIDTH, (0.0, 0.0));
        self.hashes.clear();
        self.hashes.resize(WIDTH, 0);
        let mut shared = 0;
        for &slot in &self.order {
            let column = &block.columns[slot as usize];
            for entry in &column.entries {
                let mask = entry.mask & block.alive;
                if mask == 0 {
                    continue;
                }
                let hash = mix(column.key, interner.class(entry.prop.value));
                if mask == block.alive {
                    shared ^= hash;
                } else {
                    for_bits(mask, |bit| self.hashes[bit] ^= hash);
                }
                let score = entry.prop.score;
                if score != 0.0 {
                    if entry.prop.evaluated {
                        for_bits(mask, |bit| self.scores[bit].0 += score);
                    } else {
                        for_bits(mask, |bit| self.scores[bit].1 += score);
                    }
                }
            }
        }
        self.hashes.iter_mut().for_each(|h| *h ^= shared);
    }

    /// Whether two candidates have the same keys with the same values.
    fn same(&self, a: &Found, b: &Found, interner: &Interner) -> bool {
        let (x, y) = (&self.blocks[a.block as usize], &self.blocks[b.block as usize]);
        let count = |block: &Block, bit: u32| block.columns.iter().filter(|c| c.of[bit as usize] != NONE).count();
        let has = |c: &Column| {
            c.prop(a.bit as usize).is_none_or(|p| {
                let other = y.columns.iter().find(|o| o.key == c.key).and_then(|o| o.prop(b.bit as usize));
                other.is_some_and(|o| interner.class(o.value) == interner.class(p.value))
            })
        };
        count(x, a.bit) == count(y, b.bit) && x.columns.iter().all(has)
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

/// A number for a key with a value; those of a candidate's are joined by exclusive or.
fn mix(key: Key, val: Val) -> u64 {
    let x = (u64::from(key) << 32 | u64::from(val)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

impl Compiled {
    pub(in crate::manager) fn new(profiles: &[Rule], policies: &[Rule], rows: &[Row]) -> Self {
        let mut interner = Interner::new();
        let profiles = Index::new(profiles, &mut interner);
        let policies = Index::new(policies, &mut interner);
        let tables = interner.mark();
        let mut compiled =
            Self { interner, profiles, policies, tables, base: tables, rows: Vec::new(), work: Work::default() };
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
        let decision = decided.ok().map(|()| self.told(&work));
        self.interner.take_back(self.base);
        self.work = work;
        decision
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
                    let slot = block.columns.iter().position(|c| c.key == key).unwrap_or_else(|| {
                        block.columns.push(Column::new(key));
                        block.columns.len() - 1
                    });
                    put(&mut block.columns[slot], prop, bit);
                }
                block.order.push(bit as u8);
            }
            block.alive = (1 << together.len()) - 1;
            block.origin.extend(0..WIDTH as u16);
            block.apply(&self.profiles, &mut self.interner, &mut work.scratch, &|_, _| None)?;
            for request in 0..together.len() as u16 {
                self.request(first, request, limits, work)?;
            }
        }
        self.rank(limits, work);
        Ok(())
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
        work.found.sort_by(|a, b| better(a.score, b.score));
        for block in &mut work.blocks[begin..work.used] {
            block.alive = 0;
            block.origin.resize(WIDTH, 0);
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
            if serving != 0 {
                block.columns.extend(self.rows[i].columns.iter().cloned());
            }
            for &(key, prop) in &input {
                let slot = (serving != 0).then(|| self.rows[i].slot(key)).flatten();
                let slot = slot.unwrap_or_else(|| {
                    block.columns.push(Column::new(key));
                    block.columns.len() - 1
                });
                let column = &mut block.columns[slot];
                for entry in &mut column.entries {
                    if entry.mask & serving != 0 {
                        match entry.prop.sum(prop, &mut self.interner) {
                            Some(sum) => entry.prop = sum,
                            // Rows that could clash do not serve.
                            None => block.alive &= !entry.mask,
                        }
                    }
                }
                column.put(prop, block.alive & !column.has);
            }
            work.sort_columns(at, &self.interner);
            work.measure(at, &self.interner);
            let candidate = |bit: usize, work: &Work| Found {
                score: work.scores[bit],
                hash: work.hashes[bit],
                block: at as u32,
                bit: bit as u32,
            };
            let alive = work.blocks[at].alive;
            if bare != 0 {
                let found = candidate(BARE, work);
                work.ranked.push((found, None));
            }
            let mut rows = alive & !bare;
            while rows != 0 {
                let found = candidate(rows.trailing_zeros() as usize, work);
                work.ranked.push((found, None));
                rows &= rows - 1;
            }
        }
        work.input = input;
        let mut joined = std::mem::take(&mut work.ranked);
        // Equals stay in the order in which they came.
        joined[start..].sort_by(|a, b| better(a.0.score, b.0.score));
        for (found, _) in joined[start..].iter().take(limit) {
            work.append(false, *found, &self.interner);
        }
        joined.truncate(start);
        work.ranked = joined;
        Ok(())
    }

    /// Applies the policies to the blocks from `begin` on and puts what is left with all candidates.
    fn finish(&mut self, begin: usize, work: &mut Work) -> Result<(), Overflow> {
        let mut finished: Vec<(u16, Found)> = Vec::new();
        for at in begin..work.used {
            if work.blocks[at].alive == 0 {
                continue;
            }
            let rows = &self.rows;
            // Blocks of one input follow each other in the order of the rows; those without rows know nothing.
            let from = rows.iter().find(|r| is_of(&work.blocks[at], r));
            let mut block = std::mem::take(&mut work.blocks[at]);
            let unchanged: Vec<bool> = match from {
                Some(r) => r.columns.iter().zip(&block.columns).map(|(a, b)| same_values(a, b)).collect(),
                None => Vec::new(),
            };
            let known = |slot: usize, entry: usize| -> Option<&[u32]> {
                let rows = from?;
                (*unchanged.get(slot)? && entry < rows.columns[slot].entries.len()).then(|| rows.posts(slot, entry))
            };
            let done = block.apply(&self.policies, &mut self.interner, &mut work.scratch, &known);
            work.blocks[at] = block;
            done?;
            work.sort_columns(at, &self.interner);
            work.measure(at, &self.interner);
            let block = &work.blocks[at];
            for &bit in &block.order {
                if block.alive >> bit & 1 == 1 {
                    let found = Found {
                        score: work.scores[usize::from(bit)],
                        hash: work.hashes[usize::from(bit)],
                        block: at as u32,
                        bit: bit.into(),
                    };
                    finished.push((block.origin[usize::from(bit)], found));
                }
            }
        }
        finished.sort_by_key(|(rank, _)| *rank);
        // Candidates of earlier requests count, too.
        work.seen.clear();
        let mut seen = std::mem::take(&mut work.seen);
        for (i, held) in work.all.iter().enumerate() {
            seen.insert_unique(held.hash, i as u32, |&i| work.all[i as usize].hash);
        }
        work.seen = seen;
        for (_, found) in finished {
            work.append(true, found, &self.interner);
        }
        Ok(())
    }

    /// Ranks what is left, one candidate for each transport.
    fn rank(&mut self, limits: Limits, work: &mut Work) {
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
        work.ranked.sort_by(|a, b| better(a.0.score, b.0.score));
        work.ranked.truncate(limits.candidates);
    }

    /// The answer, on its own.
    fn told(&mut self, work: &Work) -> Decision {
        let mut decision = Decision::default();
        // Where an entry of a column went, so that what candidates share is told once.
        let mut places: Vec<((u32, u32, u32, u32), u32)> = Vec::new();
        for (found, transport) in &work.ranked {
            let block = &work.blocks[found.block as usize];
            let mut properties = Vec::with_capacity(block.columns.len());
            for (slot, column) in block.columns.iter().enumerate() {
                let at = column.of[found.bit as usize];
                let Some(entry) = column.entries.get(at as usize) else { continue };
                let split = transport.filter(|_| &**self.interner.name(column.key) == "transport");
                let place = (found.block, slot as u32, u32::from(at), split.unwrap_or(u32::MAX));
                let index = match places.iter().find(|(p, _)| *p == place) {
                    Some((_, index)) => *index,
                    None => {
                        let index = decision.push(Decided {
                            key: self.interner.name(column.key).clone(),
                            value: self.interner.shown(split.unwrap_or(entry.prop.value)).clone(),
                            precedence: entry.prop.precedence,
                            score: entry.prop.score,
                            evaluated: entry.prop.evaluated,
                        });
                        places.push((place, index));
                        index
                    }
                };
                properties.push((column.key, index));
            }
            properties.sort_unstable_by(|a, b| self.interner.by_name(a.0, b.0));
            let (evaluated, others) = found.score;
            decision.candidate(Score { evaluated, others }, properties.into_iter().map(|(_, index)| index));
        }
        decision
    }
}

/// Whether a block was made of these rows.
fn is_of(block: &Block, rows: &RowBlock) -> bool {
    rows.columns.len() <= block.columns.len() && rows.columns.iter().zip(&block.columns).all(|(a, b)| a.key == b.key)
}

/// Whether a column still says what it said in the rows, entry by entry.
fn same_values(row: &Column, now: &Column) -> bool {
    row.entries.iter().zip(&now.entries).all(|(a, b)| a.prop.value == b.prop.value)
}
