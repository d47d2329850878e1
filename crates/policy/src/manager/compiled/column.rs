//! The values of a block's candidates for one key.
//!
//! Most often all have the same value, held, compared and changed once; else each has its own.
//! Scores are kept apart: they differ more often, and are added without reading the values.

use super::Prop;
use super::intern::{Interner, Key, Val};
use neater_property::neat::NeatProperty;

/// A set of candidates of a block.
pub(super) type Mask = u128;
/// How many candidates a block holds.
pub(super) const WIDTH: usize = 128;

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

/// Whether a candidate is in a set.
#[inline]
pub(super) fn holds(mask: Mask, bit: usize) -> bool {
    let half = if bit & 64 == 0 { mask as u64 } else { (mask >> 64) as u64 };
    half >> (bit & 63) & 1 == 1
}

/// The lowest candidate of a set that is not empty.
#[inline]
pub(super) fn lowest(mask: Mask) -> usize {
    let low = mask as u64;
    if low == 0 { 64 + ((mask >> 64) as u64).trailing_zeros() as usize } else { low.trailing_zeros() as usize }
}

/// A value with its precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) value: Val,
    pub(super) precedence: u8,
}

impl Cell {
    fn of(prop: &Prop) -> Self {
        Self { value: prop.value, precedence: prop.precedence }
    }

    fn is_required(self) -> bool {
        self.precedence >= NeatProperty::IMMUTABLE
    }

    /// As [`NeatProperty::sum`]; `None` when both are immutable and do not match.
    #[inline]
    fn sum(self, other: &Prop, interner: &mut Interner) -> Option<Outcome> {
        let base = other.precedence == NeatProperty::BASE;
        let (a, b) = if base { (other.value, self.value) } else { (self.value, other.value) };
        Some(match interner.intersect(a, b) {
            Some(value) => {
                let precedence = self.precedence.max(other.precedence);
                Outcome { cell: Self { value, precedence }, gain: Gain::Add, updated: !base }
            }
            // A base gives way, even to an older base.
            None if base => Outcome { cell: self, gain: Gain::Keep, updated: false },
            None if self.is_required() && other.precedence >= NeatProperty::IMMUTABLE => return None,
            None if other.precedence >= self.precedence => {
                Outcome { cell: Self::of(other), gain: Gain::Replace, updated: true }
            }
            None => Outcome { cell: self, gain: Gain::Keep, updated: true },
        })
    }
}

/// What becomes of a score.
#[derive(Clone, Copy, Debug)]
enum Gain {
    Keep,
    Add,
    Replace,
}

impl Gain {
    #[inline]
    fn apply(self, held: &mut f64, score: f64) {
        match self {
            Self::Keep => {}
            Self::Add => *held += score,
            Self::Replace => *held = score,
        }
    }
}

/// What becomes of a cell.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    cell: Cell,
    gain: Gain,
    /// Whether it is evaluated from now on.
    updated: bool,
}

/// What the candidates have under one key. Candidates outside `has` are undefined.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) key: Key,
    /// The candidates that have something.
    pub(super) has: Mask,
    /// Those whose property was updated.
    pub(super) evaluated: Mask,
    /// What all have but those that are odd.
    shared: Cell,
    /// Those that have their own.
    odd: Mask,
    cells: [Cell; WIDTH],
    /// Whether any score was ever not 0; without, `scores` is unused.
    pub(super) scored: bool,
    pub(super) scores: [f64; WIDTH],
}

impl Column {
    pub(super) fn new(key: Key) -> Self {
        let shared = Cell { value: 0, precedence: 0 };
        Self { key, has: 0, evaluated: 0, shared, odd: 0, cells: [shared; WIDTH], scored: false, scores: [0.0; WIDTH] }
    }

    /// Becomes an empty column of another key, with its memory.
    pub(super) fn renew(&mut self, key: Key) {
        (self.key, self.has) = (key, 0);
    }

    /// Becomes what another one is.
    pub(super) fn copy(&mut self, from: &Self) {
        (self.key, self.has, self.evaluated) = (from.key, from.has, from.evaluated);
        (self.shared, self.odd, self.scored) = (from.shared, from.odd, from.scored);
        if from.odd != 0 {
            self.cells = from.cells;
        }
        if from.scored {
            self.scores = from.scores;
        }
    }

    /// Gives all candidates of `mask`, which have nothing yet, this property.
    pub(super) fn put(&mut self, prop: &Prop, mask: Mask) {
        let cell = Cell::of(prop);
        let first = self.has == 0;
        if first {
            (self.shared, self.odd, self.evaluated, self.scored) = (cell, 0, 0, false);
        } else if self.shared == cell {
            self.odd &= !mask;
        } else {
            self.odd |= mask;
            for_bits(mask, |bit| self.cells[bit] = cell);
        }
        self.has |= mask;
        self.evaluated = if prop.evaluated { self.evaluated | mask } else { self.evaluated & !mask };
        if first && prop.score != 0.0 {
            (self.scored, self.scores) = (true, [prop.score; WIDTH]);
        } else if self.scored || prop.score != 0.0 {
            self.score();
            for_bits(mask, |bit| self.scores[bit] = prop.score);
        }
    }

    /// Makes room for scores.
    #[inline]
    fn score(&mut self) {
        if !self.scored {
            (self.scored, self.scores) = (true, [0.0; WIDTH]);
        }
    }

    /// Adds a property to the candidates of `mask`, all of them alive; those that clash are given
    /// back, as they were. Values that some candidate did not have before are reported, perhaps
    /// more than once.
    #[inline]
    pub(super) fn add(
        &mut self,
        prop: &Prop,
        mask: Mask,
        alive: Mask,
        interner: &mut Interner,
        mut changed: impl FnMut(Val, &Interner),
    ) -> Mask {
        let (fresh, held) = (mask & !self.has, mask & self.has);
        let mut clash = 0;
        if held != 0 && held & held.wrapping_sub(1) == 0 {
            clash = self.add_one(prop, held, interner, &mut changed);
        } else if held != 0 {
            clash = self.add_many(prop, held, alive, interner, &mut changed);
        }
        if fresh != 0 {
            self.put(prop, fresh);
            changed(prop.value, interner);
        }
        clash
    }

    /// Adds to a single one.
    #[inline]
    fn add_one(
        &mut self,
        prop: &Prop,
        mask: Mask,
        interner: &mut Interner,
        changed: &mut impl FnMut(Val, &Interner),
    ) -> Mask {
        let bit = lowest(mask);
        let cell = if self.odd & mask == 0 { self.shared } else { self.cells[bit] };
        let Some(outcome) = cell.sum(prop, interner) else { return mask };
        if outcome.cell != cell {
            if outcome.cell == self.shared {
                self.odd &= !mask;
            } else {
                self.odd |= mask;
                self.cells[bit] = outcome.cell;
            }
            if outcome.cell.value != cell.value {
                changed(outcome.cell.value, interner);
            }
        }
        if outcome.updated {
            self.evaluated |= mask;
        }
        if self.scored || prop.score != 0.0 {
            self.score();
            outcome.gain.apply(&mut self.scores[bit], prop.score);
        }
        0
    }

    fn add_many(
        &mut self,
        prop: &Prop,
        held: Mask,
        alive: Mask,
        interner: &mut Interner,
        changed: &mut impl FnMut(Val, &Interner),
    ) -> Mask {
        let (common, odd) = (held & !self.odd, held & self.odd);
        // Those whose score is to be kept, added to and replaced.
        let (mut clash, mut updated, mut gains) = (0, 0, [0; 3]);
        let mut shared = self.shared;
        if common != 0 {
            match shared.sum(prop, interner) {
                None => clash = common,
                Some(outcome) => {
                    if outcome.cell.value != shared.value {
                        changed(outcome.cell.value, interner);
                    }
                    // The others that are alive and had the same go on to have it.
                    if outcome.cell == shared || self.has & alive & !self.odd & !held == 0 {
                        shared = outcome.cell;
                    } else {
                        self.odd |= common;
                        for_bits(common, |bit| self.cells[bit] = outcome.cell);
                    }
                    gains[outcome.gain as usize] = common;
                    updated = if outcome.updated { common } else { 0 };
                }
            }
        }
        // Those that already allow no more than this does.
        let within = self.within(prop, odd, interner);
        gains[Gain::Add as usize] |= within;
        updated |= if prop.precedence == NeatProperty::BASE { 0 } else { within };
        // What was worked out last: many in a row have the same.
        let mut last: Option<(Cell, Option<Outcome>)> = None;
        for_bits(odd & !within, |bit| {
            let cell = self.cells[bit];
            let outcome = match last {
                Some((same, outcome)) if same == cell => outcome,
                _ => {
                    let outcome = cell.sum(prop, interner);
                    if let Some(o) = outcome.filter(|o| o.cell.value != cell.value) {
                        changed(o.cell.value, interner);
                    }
                    last = Some((cell, outcome));
                    outcome
                }
            };
            let mask = 1 << bit;
            let Some(outcome) = outcome else {
                clash |= mask;
                return;
            };
            self.cells[bit] = outcome.cell;
            self.odd &= !(Mask::from(outcome.cell == shared) << bit);
            updated |= Mask::from(outcome.updated) << bit;
            gains[outcome.gain as usize] |= mask;
        });
        self.join(shared, common, alive);
        self.evaluated |= updated;
        if self.scored || prop.score != 0.0 {
            self.score();
            self.gain(gains, prop.score, alive);
        }
        clash
    }

    /// Of some that have their own, those whose cell a range or number leaves as it is.
    #[inline]
    fn within(&self, prop: &Prop, odd: Mask, interner: &Interner) -> Mask {
        let Some((low, high)) = interner.bounds(prop.value) else { return 0 };
        let mut within = 0;
        for_bits(odd, |bit| {
            let cell = self.cells[bit];
            let stays = cell.precedence >= prop.precedence && interner.lies_within(cell.value, low, high);
            within |= Mask::from(stays) << bit;
        });
        within
    }

    /// Settles what is shared, after the odd ones changed.
    fn join(&mut self, shared: Cell, common: Mask, alive: Mask) {
        self.shared = shared;
        let left = self.has & alive & !self.odd;
        if common == 0 && left == 0 && self.odd & alive != 0 {
            // None has what was shared; perhaps all have another.
            let cell = self.cells[lowest(self.odd & self.has & alive)];
            self.shared = cell;
            let mut odd = 0;
            for_bits(self.odd, |bit| odd |= Mask::from(self.cells[bit] != cell) << bit);
            self.odd = odd;
        }
    }

    /// Changes the scores of those whose score is to be kept, added to and replaced.
    fn gain(&mut self, [_, add, replace]: [Mask; 3], score: f64, alive: Mask) {
        let scores = &mut self.scores;
        // The others have no value, so that all at once is as good, and much quicker.
        let all = self.has & alive;
        if add == all {
            scores.iter_mut().for_each(|s| *s += score);
        } else if replace == all {
            *scores = [score; WIDTH];
        } else {
            for_bits(add, |bit| scores[bit] += score);
            for_bits(replace, |bit| scores[bit] = score);
        }
    }

    /// Takes what the candidates of `mask` have.
    pub(super) fn take(&mut self, mask: Mask) {
        self.has &= !mask;
    }

    /// Gives `to`, which has nothing, what `from` has.
    pub(super) fn twin(&mut self, from: usize, to: usize) {
        if self.has >> from & 1 == 1 {
            self.has |= 1 << to;
            self.evaluated = self.evaluated & !(1 << to) | (self.evaluated >> from & 1) << to;
            self.odd = self.odd & !(1 << to) | (self.odd >> from & 1) << to;
            self.cells[to] = self.cells[from];
            self.scores[to] = self.scores[from];
        }
    }

    #[inline]
    fn cell(&self, bit: usize) -> Cell {
        if holds(self.odd, bit) { self.cells[bit] } else { self.shared }
    }

    /// The value of a candidate that has one.
    #[inline]
    pub(super) fn value(&self, bit: usize) -> Val {
        self.cell(bit).value
    }

    /// The property of a candidate.
    #[inline]
    pub(super) fn prop(&self, bit: usize) -> Option<Prop> {
        holds(self.has, bit).then(|| {
            let Cell { value, precedence } = self.cell(bit);
            let score = if self.scored { self.scores[bit] } else { 0.0 };
            Prop { score, value, precedence, evaluated: holds(self.evaluated, bit) }
        })
    }

    /// The property of these candidates where it is plain that all have the same.
    #[inline]
    pub(super) fn shared_by(&self, among: Mask) -> Option<Prop> {
        let evaluated = self.evaluated & among;
        let plain = !self.scored && self.odd & among == 0 && self.has & among == among;
        (plain && (evaluated == 0 || evaluated == among)).then_some(Prop {
            score: 0.0,
            value: self.shared.value,
            precedence: self.shared.precedence,
            evaluated: evaluated != 0,
        })
    }

    /// The candidates of `among` for whose cell something holds. It is asked once for equal ones in
    /// a row.
    #[inline]
    pub(super) fn filter(&self, among: Mask, mut holds: impl FnMut(Cell) -> bool) -> Mask {
        let among = among & self.has;
        let common = among & !self.odd;
        let mut found = if common != 0 && holds(self.shared) { common } else { 0 };
        let mut last: Option<(Cell, bool)> = None;
        for_bits(among & self.odd, |bit| {
            let cell = self.cells[bit];
            let held = match last {
                Some((same, held)) if same == cell => held,
                _ => holds(cell),
            };
            last = Some((cell, held));
            found |= Mask::from(held) << bit;
        });
        found
    }

    /// The candidates of `among` whose property matches `val`.
    #[inline]
    pub(super) fn matching(&self, val: Val, among: Mask, interner: &Interner) -> Mask {
        self.filter(among, |cell| interner.matches(cell.value, val))
    }

    /// The candidates of `among` that require what they have.
    pub(super) fn required(&self, among: Mask) -> Mask {
        self.filter(among, Cell::is_required)
    }

    /// Reports the values of the candidates of `among` with those that have each; one may come more
    /// than once.
    pub(super) fn values(&self, among: Mask, mut told: impl FnMut(Val, Mask)) {
        let among = among & self.has;
        let common = among & !self.odd;
        if common != 0 {
            told(self.shared.value, common);
        }
        let mut last: Option<(Val, Mask)> = None;
        for_bits(among & self.odd, |bit| {
            let value = self.cells[bit].value;
            last = match last {
                Some((same, mask)) if same == value => Some((same, mask | 1 << bit)),
                other => {
                    other.into_iter().for_each(|(value, mask)| told(value, mask));
                    Some((value, 1 << bit))
                }
            };
        });
        last.into_iter().for_each(|(value, mask)| told(value, mask));
    }
}
