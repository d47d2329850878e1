//! From requests to a decision, on compiled tables.

use super::Prop;
use super::block::{Block, Held, Overflow, Scratch};
use super::column::{Column, Mask, WIDTH, for_bits, holds, lowest};
use super::index::{Index, NONE};
use super::intern::{Interner, Key, Mark, Val};
use super::rows::{BARE, RowBlock, keep_apart};
use crate::manager::Limits;
use crate::manager::cache::{MAX_INPUTS, Reads};
use crate::manager::cib::Row;
use crate::manager::decision::{Decided, Decision};
use crate::manager::document::{MAX_CANDIDATES, Requests};
use crate::manager::file::Rule;
use neater_property::neat::{NeatArray, NeatProperty, NeatValue, Score};

/// How many requests share a block while profiles are applied, so that there is room for what
/// becomes of them.
const TOGETHER: usize = 8;
/// Up to how many of the best are found by insertion.
const INSERTED: usize = 16;
/// How many blocks there may be at once. More is rare, and left to the plain form.
const MAX_BLOCKS: usize = 512;

/// How many columns are kept from one decision to the next, of which each takes a few kilobytes.
const MAX_COLUMNS: usize = 2048;

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
    /// The keys that keep all rows apart.
    apart: Vec<Key>,
    work: Work,
}

/// Memory that is used again from one decision to the next.
#[derive(Clone, Debug, Default)]
struct Work {
    scratch: Scratch,
    blocks: Vec<Block>,
    used: usize,
    evaluated: Sums,
    others: Sums,
    finished: Vec<(u16, Found)>,
    seen: Seen,
    keys: Vec<(u128, u32)>,
    /// By origin, where candidates are apart: the score of what was joined, and when it came.
    came: Vec<(u128, u32)>,
    input: Vec<(Key, Prop)>,
    /// The places of the properties that are reported.
    told: Vec<u32>,
    found: Vec<Found>,
    all: Vec<Found>,
    ranked: Vec<(Found, Option<Val>)>,
    best: Vec<(Found, Option<Val>)>,
    /// Whether the candidates are apart and were ranked as they were found.
    direct: bool,
    /// How many stood in the end, and how many were ranked, of those.
    standing: usize,
    offered: usize,
    /// Only if it is wanted.
    joined: Option<Vec<Joined>>,
}

/// A sum for each candidate of a block.
#[derive(Clone, Debug)]
struct Sums([f64; WIDTH]);

impl Sums {
    fn add_all(&mut self, scores: &[f64; WIDTH]) {
        self.0.iter_mut().zip(scores).for_each(|(sum, score)| *sum += score);
    }
}

impl Default for Sums {
    fn default() -> Self {
        Self([0.0; WIDTH])
    }
}

/// A candidate in a block.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// The score, as a number to be sorted by.
    place: u128,
    /// A number made of its keys and values; its origin, where candidates are apart.
    hash: u64,
    block: u32,
    bit: u32,
}

/// The numbers of the candidates of the block that was asked for last.
#[derive(Debug, Default)]
struct Numbers(Option<(u32, Box<[u64; WIDTH]>)>);

impl Numbers {
    fn of(&mut self, blocks: &[Block], found: &Found, interner: &Interner) -> u64 {
        let numbers = match self.0.take() {
            Some((block, numbers)) if block == found.block => numbers,
            _ => Box::new(blocks[found.block as usize].numbers(interner)),
        };
        let number = numbers[found.bit as usize];
        self.0 = Some((found.block, numbers));
        number
    }
}

/// What rows were joined to, and the score of the last one that was kept where others may not have
/// been.
type Joined = (Vec<(Key, Prop)>, Option<(f64, f64)>);

/// The candidates of a list by their numbers, to find one that is the same.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// The number of a candidate, and its place in the list and 1; 0 is free. Twice as many as
    /// there are candidates.
    slots: Vec<(u64, u32)>,
    held: usize,
}

impl Seen {
    /// Empties it and makes room.
    fn begin(&mut self, expected: usize) {
        let room = (2 * expected).next_power_of_two().max(16);
        self.slots.clear();
        self.slots.resize(room, (0, 0));
        self.held = 0;
    }

    /// The place in the list of a candidate of this number for which `same` holds.
    fn find(&self, hash: u64, mut same: impl FnMut(u32) -> bool) -> bool {
        let mut at = hash as usize & (self.slots.len() - 1);
        while self.slots[at].1 != 0 {
            if self.slots[at].0 == hash && same(self.slots[at].1 - 1) {
                return true;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
        false
    }

    fn insert(&mut self, hash: u64, place: u32) {
        if 2 * (self.held + 1) > self.slots.len() {
            let old = std::mem::take(&mut self.slots);
            self.begin(old.len());
            old.into_iter().filter(|(_, place)| *place != 0).for_each(|(hash, place)| self.insert(hash, place - 1));
        }
        let mut at = hash as usize & (self.slots.len() - 1);
        while self.slots[at].1 != 0 {
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.slots[at] = (hash, place + 1);
        self.held += 1;
    }
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

/// Whether a candidate ranks before another one, both being apart from all others: by score; equals
/// as they were joined.
#[inline]
fn earlier(came: &[(u128, u32)], a: &Found, b: &Found) -> bool {
    a.place < b.place || a.place == b.place && came[a.hash as usize] < came[b.hash as usize]
}

/// The score of a place.
fn score(place: u128) -> (f64, f64) {
    let number = |bits: u64| f64::from_bits(if bits >> 63 == 1 { bits & !(1 << 63) } else { !bits });
    (number((!place >> 64) as u64), number(!place as u64))
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

    /// Scores of the candidates of a block, by bit, each summed in the order of the names of the
    /// keys.
    fn measure(&mut self, block: usize, interner: &Interner) {
        let Block { columns, sorted, alive, .. } = &mut self.blocks[block];
        if sorted.len() != columns.len() {
            // Columns only come: most are in order already.
            sorted.extend(sorted.len() as u32..columns.len() as u32);
            sorted.sort_unstable_by(|a, b| interner.by_name(columns[*a as usize].key, columns[*b as usize].key));
        }
        (self.evaluated, self.others) = (Sums::default(), Sums::default());
        for held in sorted.iter().map(|slot| &columns[*slot as usize]).filter(|c| c.scored) {
            let evaluated = held.has & held.evaluated;
            // In columns of rows, those that have nothing have scores of 0.
            let whole = matches!(held, Held::Rows(_)) || held.has & *alive == *alive;
            if whole && evaluated & *alive == 0 {
                self.others.add_all(&held.scores);
            } else if whole && evaluated & *alive == held.has & *alive {
                self.evaluated.add_all(&held.scores);
            } else {
                for_bits(evaluated & *alive, |bit| self.evaluated.0[bit] += held.scores[bit]);
                for_bits(held.has & !evaluated & *alive, |bit| self.others.0[bit] += held.scores[bit]);
            }
        }
    }

    fn candidate(&self, block: usize, bit: usize) -> Found {
        Found {
            place: place((self.evaluated.0[bit], self.others.0[bit])),
            hash: 0,
            block: block as u32,
            bit: bit as u32,
        }
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

    /// Ranks a candidate that is apart from all others; where few are wanted, only the best are
    /// kept.
    #[inline]
    fn keep(&mut self, found: Found, transport: Option<Val>, limit: usize) {
        self.offered += 1;
        if limit > INSERTED {
            self.ranked.push((found, transport));
            return;
        }
        let came = &self.came;
        let full = self.ranked.len() >= limit;
        if full && self.ranked.last().is_none_or(|(last, _)| !earlier(came, &found, last)) {
            return;
        }
        if full {
            self.ranked.pop();
        }
        let at = self.ranked.iter().rposition(|(held, _)| !earlier(came, &found, held)).map_or(0, |at| at + 1);
        self.ranked.insert(at, (found, transport));
    }

    /// Adds `candidate` to `list` unless one that is the same is there.
    #[inline]
    fn append(&mut self, all: bool, candidate: Found, interner: &Interner) {
        let list = if all { &self.all } else { &self.found };
        if !self.seen.find(candidate.hash, |i| self.same(&list[i as usize], &candidate, interner)) {
            self.seen.insert(candidate.hash, list.len() as u32);
            if all { &mut self.all } else { &mut self.found }.push(candidate);
        }
    }
}

impl Compiled {
    pub(in crate::manager) fn new(profiles: &[Rule], policies: &[Rule], rows: &[Row]) -> Self {
        let mut interner = Interner::new();
        let profiles = Index::new(profiles, &mut interner);
        let policies = Index::new(policies, &mut interner);
        let tables = interner.mark();
        let (rows_none, apart, work) = (Vec::new(), Vec::new(), Work::default());
        let mut compiled = Self { interner, profiles, policies, tables, base: tables, rows: rows_none, apart, work };
        compiled.set_rows(rows);
        compiled
    }

    /// Takes other rows, and leaves the tables as they are.
    pub(in crate::manager) fn set_rows(&mut self, rows: &[Row]) {
        self.interner.take_back(self.tables);
        self.interner.settle();
        self.rows = RowBlock::of(rows, &self.policies, &mut self.interner);
        self.apart = keep_apart(rows, &mut self.interner);
        self.interner.settle();
        self.base = self.interner.mark();
    }

    /// Decides as the plain form does; `None` when there are too many candidates to stand side by
    /// side.
    pub(in crate::manager) fn decide(&mut self, requests: &Requests, limits: Limits) -> Option<Decision> {
        self.decide_and(requests, limits, false, |_, _| ()).map(|(decision, ())| decision)
    }

    /// As [`decide`](Self::decide), and what the decision depends on.
    pub(in crate::manager) fn decide_and_tell(
        &mut self,
        requests: &Requests,
        limits: Limits,
    ) -> Option<(Decision, Reads)> {
        self.decide_and(requests, limits, true, Self::reads)
    }

    fn decide_and<T>(
        &mut self,
        requests: &Requests,
        limits: Limits,
        record: bool,
        look: impl FnOnce(&Self, &Work) -> T,
    ) -> Option<(Decision, T)> {
        let mut work = std::mem::take(&mut self.work);
        work.joined = record.then(Vec::new);
        let decided = self.run(requests, limits, &mut work);
        let decision = decided.ok().map(|()| (self.told(&mut work), look(self, &work)));
        self.interner.take_back(self.base);
        // A request that was much larger than others leaves no more behind than they do.
        let room: usize = work.blocks.iter().map(Block::room).sum();
        self.work = if room > MAX_COLUMNS { Work::default() } else { work };
        decision
    }

    /// How many columns are kept for the next decision.
    #[cfg(test)]
    pub(in crate::manager) fn room(&self) -> usize {
        self.work.blocks.iter().map(Block::room).sum()
    }

    /// What the decision that has just been made read.
    fn reads(&self, work: &Work) -> Reads {
        let blocks = &work.blocks[..work.used];
        let mut keys: Vec<Key> = blocks.iter().flat_map(|b| b.columns.iter().map(|c| c.key)).collect();
        keys.sort_unstable();
        keys.dedup();
        let keys = keys.into_iter().map(|k| self.interner.name(k).clone()).collect();
        let array = |input: &[(Key, Prop)]| -> NeatArray {
            let property = |&(key, prop): &(Key, Prop)| {
                let key = self.interner.name(key).to_string();
                let p = NeatProperty::new(&key, (**self.interner.shown(prop.value)).clone());
                (
                    key,
                    NeatProperty { evaluated: prop.evaluated, score: prop.score, ..p.with_precedence(prop.precedence) },
                )
            };
            input.iter().map(property).collect()
        };
        let score = |(evaluated, others)| Score { evaluated, others };
        let inputs = work.joined.as_deref().unwrap_or_default();
        let inputs = (inputs.len() <= MAX_INPUTS)
            .then(|| inputs.iter().map(|(input, cut)| (array(input), cut.map(score))).collect());
        Reads { keys, inputs }
    }

    fn run(&mut self, requests: &Requests, limits: Limits, work: &mut Work) -> Result<(), Overflow> {
        work.used = 0;
        work.all.clear();
        work.ranked.clear();
        (work.direct, work.standing, work.offered) = (false, 0, 0);
        for together in requests.arrays.chunks(TOGETHER) {
            let first = work.block()?;
            let block = &mut work.blocks[first];
            for (bit, request) in together.iter().enumerate() {
                for p in request.iter() {
                    let key = self.interner.key(&p.key);
                    let prop = Prop::new(p, &mut self.interner);
                    let slot = block.columns.iter().position(|c| c.key == key);
                    let slot = slot.unwrap_or_else(|| block.column(key));
                    block.own(slot).put(&prop, 1 << bit);
                }
                block.order.push(bit as u8);
            }
            block.alive = (1 << together.len()) - 1;
            (0u16..).zip(&mut block.origin).for_each(|(bit, origin)| *origin = bit);
            block.apply(&self.profiles, &mut self.interner, &mut work.scratch)?;
            // What comes of one request and one candidate of the profiles meets nothing else that
            // could be the same.
            let alone = requests.arrays.len() == 1 && block.alive.is_power_of_two();
            for request in 0..together.len() as u16 {
                self.request(first, request, limits, alone, work)?;
            }
        }
        self.rank(limits, work)
    }

    /// What becomes of one request, after the profiles: rows are joined and policies applied.
    fn request(
        &mut self,
        profiled: usize,
        request: u16,
        limits: Limits,
        alone: bool,
        work: &mut Work,
    ) -> Result<(), Overflow> {
        work.found.clear();
        work.came.clear();
        let begin = work.used;
        if !alone {
            work.seen.begin(self.rows.len() * BARE);
        }
        for at in 0..work.blocks[profiled].order.len() {
            let block = &work.blocks[profiled];
            let bit = usize::from(block.order[at]);
            if block.alive >> bit & 1 == 0 || block.origin[bit] != request {
                continue;
            }
            work.input.clear();
            work.input.extend(block.columns.iter().filter_map(|c| Some((c.key, c.prop(bit)?))));
            self.join(limits.rows, alone, work)?;
        }
        if !alone {
            work.found.sort_by_key(|f| f.place);
        }
        for block in &mut work.blocks[begin..work.used] {
            block.alive = 0;
        }
        for (rank, found) in work.found.iter().enumerate() {
            let block = &mut work.blocks[found.block as usize];
            block.alive |= 1 << found.bit;
            block.order.push(found.bit as u8);
            block.origin[found.bit as usize] = u16::try_from(rank).map_err(|_| Overflow)?;
        }
        self.finish(begin, limits, work)
    }

    /// Joins the rows to the input; the best are found.
    fn join(&mut self, limit: usize, alone: bool, work: &mut Work) -> Result<(), Overflow> {
        let input = std::mem::take(&mut work.input);
        let names = |key: &Key| input.iter().any(|(k, _)| k == key);
        let apart = if alone { self.apart.iter().copied().find(|key| !names(key)) } else { None };
        if alone && apart.is_none() {
            work.seen.begin(self.rows.len() * BARE);
        }
        let mut keys = std::mem::take(&mut work.keys);
        keys.clear();
        for i in 0..self.rows.len().max(1) {
            let serving = self.rows.get(i).map_or(0, |rows| rows.serving(&input, &self.interner));
            let bare: Mask = if i == 0 { 1 << BARE } else { 0 };
            if serving | bare == 0 {
                continue;
            }
            let at = work.block()?;
            let block = &mut work.blocks[at];
            (block.alive, block.apart) = (serving | bare, apart);
            if serving != 0 {
                block.columns.extend(self.rows[i].columns.iter().map(|c| Held::Rows(c.clone())));
            }
            for (key, prop) in &input {
                let slot = block.columns.iter().position(|c| c.key == *key);
                let slot = slot.unwrap_or_else(|| block.column(*key));
                let alive = block.alive;
                // Rows that could clash do not serve.
                block.alive &= !block.own(slot).add(prop, alive, alive, &mut self.interner, |_, _| ());
            }
            work.measure(at, &self.interner);
            let alive = work.blocks[at].alive;
            let (evaluated, others) = (&work.evaluated.0, &work.others.0);
            // Equals stay in the order in which they came, the bare input first.
            let mut came = |bit: usize, rank: u32| {
                keys.push((place((evaluated[bit], others[bit])), rank << 16 | (at as u32) << 7 | bit as u32));
            };
            if bare != 0 {
                came(BARE, 0);
            }
            for_bits(alive & !bare, |bit| came(bit, 1 + i as u32));
        }
        work.input = input;
        let full = limit > 0 && keys.len() >= limit;
        if limit < keys.len() {
            keys.select_nth_unstable(limit);
            keys.truncate(limit);
        }
        if apart.is_none() {
            // Of those that are the same, the first one counts.
            keys.sort_unstable();
        }
        let mut numbers = Numbers::default();
        for (place, lane) in &keys {
            let (block, bit) = (lane >> 7 & (MAX_BLOCKS as u32 - 1), lane & (WIDTH as u32 - 1));
            let mut found = Found { place: *place, hash: 0, block, bit };
            if apart.is_some() {
                work.found.push(found);
                work.came.push((*place, *lane));
            } else {
                found.hash = numbers.of(&work.blocks, &found, &self.interner);
                work.append(false, found, &self.interner);
            }
        }
        if let Some(joined) = work.joined.as_mut().filter(|j| j.len() <= MAX_INPUTS) {
            let cut = keys.iter().map(|(place, _)| *place).max().filter(|_| full);
            joined.push((work.input.clone(), cut.map(score)));
        }
        work.keys = keys;
        Ok(())
    }

    /// Applies the policies to the blocks from `begin` on and puts what is left with all
    /// candidates.
    fn finish(&mut self, begin: usize, limits: Limits, work: &mut Work) -> Result<(), Overflow> {
        let mut apart = !work.came.is_empty();
        for at in begin..work.used {
            let block = &mut work.blocks[at];
            if block.alive != 0 {
                block.apply(&self.policies, &mut self.interner, &mut work.scratch)?;
                apart &= block.apart.is_some();
            }
        }
        work.direct = apart;
        work.finished.clear();
        for at in begin..work.used {
            if work.blocks[at].alive == 0 {
                continue;
            }
            work.measure(at, &self.interner);
            if apart {
                self.offer(at, limits.candidates, work);
                continue;
            }
            let block = &work.blocks[at];
            for bit in block.order.iter().map(|b| usize::from(*b)).filter(|b| holds(block.alive, *b)) {
                work.finished.push((block.origin[bit], work.candidate(at, bit)));
            }
        }
        if apart {
            return Ok(());
        }
        let mut finished = std::mem::take(&mut work.finished);
        if !work.came.is_empty() {
            finished.sort_by_key(|(origin, _)| work.came[usize::from(*origin)]);
        } else if !finished.is_sorted_by_key(|(rank, _)| *rank) {
            finished.sort_by_key(|(rank, _)| *rank);
        }
        // Candidates of earlier requests count, too.
        work.seen.begin(work.all.len() + finished.len());
        for (held, i) in work.all.iter().zip(0..) {
            work.seen.insert(held.hash, i);
        }
        let mut numbers = Numbers::default();
        for (_, found) in &mut finished {
            found.hash = numbers.of(&work.blocks, found, &self.interner);
            work.append(true, *found, &self.interner);
        }
        work.finished = finished;
        Ok(())
    }

    /// Ranks the candidates of a block, which are apart from all others, one for each transport.
    fn offer(&mut self, at: usize, limit: usize, work: &mut Work) {
        let block = &work.blocks[at];
        work.standing += block.alive.count_ones() as usize;
        let transport = self.interner.known_key("transport");
        let slot = transport.and_then(|key| block.columns.iter().position(|c| c.key == key));
        let Some(slot) = slot else { return };
        let mut left = block.alive & block.columns[slot].has;
        // The value that was a text last: many in a row have the same.
        let mut text = None;
        while left != 0 {
            let bit = lowest(left);
            left &= left - 1;
            let block = &work.blocks[at];
            let val = block.columns[slot].value(bit);
            let found = Found { hash: block.origin[bit].into(), ..work.candidate(at, bit) };
            if text == Some(val) {
                work.keep(found, None, limit);
                continue;
            }
            match &**self.interner.shown(val) {
                NeatValue::Text(_) => {
                    text = Some(val);
                    work.keep(found, None, limit);
                }
                NeatValue::Set(elements) => {
                    for element in elements.clone().iter().filter(|e| matches!(e, NeatValue::Text(_))) {
                        work.keep(found, Some(self.interner.value(element)), limit);
                    }
                }
                _ => {}
            }
        }
    }

    /// Ranks what is left, one candidate for each transport.
    fn rank(&mut self, limits: Limits, work: &mut Work) -> Result<(), Overflow> {
        if work.direct {
            if work.standing.max(work.offered) > MAX_CANDIDATES {
                return Err(Overflow);
            }
            let Work { came, ranked, .. } = work;
            if limits.candidates > INSERTED {
                // Those of one candidate stay as they are.
                ranked.sort_by(|(a, _), (b, _)| {
                    a.place.cmp(&b.place).then_with(|| came[a.hash as usize].cmp(&came[b.hash as usize]))
                });
                ranked.truncate(limits.candidates);
            }
            return Ok(());
        }
        let transport = self.interner.known_key("transport");
        // Candidates that follow each other mostly lie in one block.
        let mut latest = (u32::MAX, None);
        for at in 0..work.all.len() {
            let found = work.all[at];
            let block = &work.blocks[found.block as usize];
            if latest.0 != found.block {
                latest = (found.block, transport.and_then(|key| block.columns.iter().position(|c| c.key == key)));
            }
            let column = latest.1.map(|slot| &block.columns[slot]);
            let Some(prop) = column.and_then(|c| c.prop(found.bit as usize)) else { continue };
            match &**self.interner.shown(prop.value) {
                NeatValue::Text(_) => work.ranked.push((found, None)),
                NeatValue::Set(elements) => {
                    for element in elements.clone().iter().filter(|e| matches!(e, NeatValue::Text(_))) {
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
        let Work { keys, ranked, best, .. } = work;
        if limits.candidates >= ranked.len() {
            ranked.sort_by_key(|(found, _)| found.place);
            return Ok(());
        }
        // Only the best need be in order; equals rank as they came.
        keys.clear();
        if limits.candidates <= INSERTED {
            for ((found, _), i) in ranked.iter().zip(0..) {
                let full = keys.len() == limits.candidates;
                if full && keys.last().is_none_or(|last| last.0 <= found.place) {
                    continue;
                }
                if full {
                    keys.pop();
                }
                let at = keys.iter().rposition(|held| held.0 <= found.place).map_or(0, |at| at + 1);
                keys.insert(at, (found.place, i));
            }
        } else {
            keys.extend(ranked.iter().zip(0..).map(|((f, _), i)| (f.place, i)));
            keys.select_nth_unstable(limits.candidates).0.sort_unstable();
            keys.truncate(limits.candidates);
        }
        best.clear();
        best.extend(keys.iter().map(|(_, i)| ranked[*i as usize]));
        std::mem::swap(ranked, best);
        Ok(())
    }

    /// The answer, on its own.
    fn told(&mut self, work: &mut Work) -> Decision {
        let transport_key = self.interner.known_key("transport");
        let Work { blocks, ranked, told, .. } = work;
        let width = ranked.iter().map(|(found, _)| blocks[found.block as usize].sorted.len()).max().unwrap_or_default();
        // A line for each candidate, with the places of its properties.
        told.clear();
        told.resize(width * ranked.len(), NONE);
        let mut decision = Decision::with_room(2 * width, ranked.len(), told.len());
        for (first, (found, _)) in ranked.iter().enumerate() {
            if ranked[..first].iter().any(|(earlier, _)| earlier.block == found.block) {
                continue;
            }
            // All candidates of a block, key by key: what they share is reported once, where they
            // follow each other.
            let block = &blocks[found.block as usize];
            let of_it = ranked.iter().filter(|(other, _)| other.block == found.block);
            let bits = of_it.fold(0, |bits: Mask, (other, _)| bits | 1 << other.bit);
            for (line, slot) in block.sorted.iter().enumerate() {
                let column = &*block.columns[*slot as usize];
                let is_transport = Some(column.key) == transport_key;
                let push = |prop: &Prop, decision: &mut Decision| {
                    decision.push(Decided {
                        key: self.interner.name(column.key).clone(),
                        value: self.interner.shown(prop.value).clone(),
                        precedence: prop.precedence,
                        score: prop.score,
                        evaluated: prop.evaluated,
                    })
                };
                let lines = ranked.iter().enumerate().skip(first).filter(|(_, (other, _))| other.block == found.block);
                if let Some(prop) = column.shared_by(bits).filter(|_| !is_transport) {
                    let place = push(&prop, &mut decision);
                    lines.for_each(|(i, _)| told[i * width + line] = place);
                    continue;
                }
                let mut latest: Option<(Prop, u32)> = None;
                for (i, (candidate, transport)) in lines {
                    let Some(mut prop) = column.prop(candidate.bit as usize) else { continue };
                    if let (true, Some(val)) = (is_transport, transport) {
                        prop.value = *val;
                    }
                    let place = match latest {
                        Some((same, place)) if same == prop => place,
                        _ => push(&prop, &mut decision),
                    };
                    latest = Some((prop, place));
                    told[i * width + line] = place;
                }
            }
        }
        for (i, (found, _)) in ranked.iter().enumerate() {
            let (evaluated, others) = score(found.place);
            decision.candidate(Score { evaluated, others });
            told[i * width..][..width].iter().filter(|place| **place != NONE).for_each(|place| decision.has(*place));
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
                assert_eq!(super::score(place(*a)), *a, "-0 and 0 are equal");
                assert_eq!(place(*a).cmp(&place(*b)), score(*b).order(&score(*a)), "{a:?} and {b:?}");
            }
        }
    }
}
