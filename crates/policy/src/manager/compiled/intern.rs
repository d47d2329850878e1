//! Keys and values as small numbers, so that comparing them costs nothing.
//!
//! Ids of values in tables and rows stay; those of a request are freed after its decision.

use crate::manager::document::same_value;
use core::hash::{BuildHasher, Hasher};
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use neater_property::neat::NeatValue;
use std::sync::Arc;

/// A key by number.
pub(super) type Key = u32;
/// A value by number.
pub(super) type Val = u32;

/// The value that is any.
pub(super) const ANY: Val = 0;
/// The empty set, which matches nothing but [`ANY`], not even itself.
const NOTHING: Val = 1;

/// What sort of value it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Any,
    /// A text or Boolean.
    Word,
    Number,
    Set,
    Range,
}

/// How far the numbers go at one time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    keys: usize,
    values: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Interner {
    keys: Vec<Arc<str>>,
    key_table: HashTable<Key>,
    /// The place of a key in the order of names; of keys that are not settled, between two of those
    /// that are.
    ranks: Vec<u32>,
    by_name: Vec<Key>,
    values: Vec<Arc<NeatValue>>,
    facts: Vec<Fact>,
    value_table: HashTable<Val>,
    hasher: FixedState,
    /// Intersections that were worked out lately, by a number made of both values.
    known: Vec<Known>,
    /// The places in it that are filled.
    learnt: Vec<u32>,
}

/// What is looked at again and again of a value.
#[derive(Clone, Copy, Debug)]
struct Fact {
    /// The bounds of a number or range.
    low: f64,
    high: f64,
    /// The first value that is the same but for the order within a set.
    class: Val,
    sort: Sort,
}

/// The intersection of two values.
#[derive(Clone, Copy, Debug)]
struct Known {
    a: Val,
    b: Val,
    common: Option<Val>,
}

/// How many intersections are remembered.
const KNOWN: usize = 256;
/// No intersection.
const UNKNOWN: Known = Known { a: Val::MAX, b: Val::MAX, common: None };

impl Interner {
    pub(super) fn new() -> Self {
        let mut interner = Self {
            keys: Vec::new(),
            key_table: HashTable::new(),
            ranks: Vec::new(),
            by_name: Vec::new(),
            values: Vec::new(),
            facts: Vec::new(),
            value_table: HashTable::new(),
            hasher: FixedState::with_seed(0x6e65_6174),
            known: vec![UNKNOWN; KNOWN],
            learnt: Vec::new(),
        };
        interner.value(&NeatValue::Any);
        interner.value(&NeatValue::Set(Vec::new()));
        interner
    }

    pub(super) fn mark(&self) -> Mark {
        Mark { keys: self.keys.len(), values: self.values.len() }
    }

    /// Takes back the numbers given since `mark`.
    pub(super) fn take_back(&mut self, mark: Mark) {
        for id in mark.keys..self.keys.len() {
            let hash = self.hash_text(&self.keys[id]);
            if let Ok(entry) = self.key_table.find_entry(hash, |k| *k as usize == id) {
                entry.remove();
            }
        }
        for id in mark.values..self.values.len() {
            let hash = self.hash_value(&self.values[id]);
            if let Ok(entry) = self.value_table.find_entry(hash, |v| *v as usize == id) {
                entry.remove();
            }
        }
        let gone = mark.values as Val..self.values.len() as Val;
        let known = &mut self.known;
        self.learnt.retain(|at| {
            let held = &mut known[*at as usize];
            let stays = ![held.a, held.b].iter().chain(&held.common).any(|v| gone.contains(v));
            if !stays {
                *held = UNKNOWN;
            }
            stays
        });
        self.keys.truncate(mark.keys);
        self.ranks.truncate(mark.keys);
        self.values.truncate(mark.values);
        self.facts.truncate(mark.values);
    }

    /// Settles the order of the names of the keys there are.
    pub(super) fn settle(&mut self) {
        let mut order: Vec<Key> = (0..self.keys.len() as Key).collect();
        order.sort_unstable_by(|a, b| self.keys[*a as usize].cmp(&self.keys[*b as usize]));
        for (i, key) in order.iter().enumerate() {
            self.ranks[*key as usize] = 2 * i as u32 + 1;
        }
        self.by_name = order;
    }

    fn hash_text(&self, text: &str) -> u64 {
        let mut h = self.hasher.build_hasher();
        h.write(text.as_bytes());
        h.finish()
    }

    fn hash_value(&self, value: &NeatValue) -> u64 {
        fn feed(h: &mut impl Hasher, value: &NeatValue) {
            // Adding 0 makes -0 and 0 the same.
            match value {
                NeatValue::Any => h.write_u8(0),
                NeatValue::Bool(b) => h.write_u8(1 + u8::from(*b)),
                NeatValue::Number(n) => h.write_u64((n + 0.0).to_bits()),
                NeatValue::Text(t) => h.write(t.as_bytes()),
                NeatValue::Set(elements) => elements.iter().for_each(|e| feed(h, e)),
                NeatValue::Range { start, end } => {
                    h.write_u64((start + 0.0).to_bits());
                    h.write_u64((end + 0.0).to_bits());
                }
            }
        }
        let mut h = self.hasher.build_hasher();
        feed(&mut h, value);
        h.finish()
    }

    pub(super) fn known_key(&self, name: &str) -> Option<Key> {
        self.key_table.find(self.hash_text(name), |k| &*self.keys[*k as usize] == name).copied()
    }

    pub(super) fn key(&mut self, name: &str) -> Key {
        if let Some(key) = self.known_key(name) {
            return key;
        }
        let key = self.keys.len() as Key;
        let between = self.by_name.partition_point(|k| *self.keys[*k as usize] < *name);
        self.keys.push(name.into());
        self.ranks.push(2 * between as u32);
        let (keys, hasher) = (&self.keys, &self.hasher);
        let rehash = |k: &Key| {
            let mut h = hasher.build_hasher();
            h.write(keys[*k as usize].as_bytes());
            h.finish()
        };
        let hash = rehash(&key);
        self.key_table.insert_unique(hash, key, rehash);
        key
    }

    pub(super) fn known_value(&self, value: &NeatValue) -> Option<Val> {
        self.value_table.find(self.hash_value(value), |v| *self.values[*v as usize] == *value).copied()
    }

    pub(super) fn value(&mut self, value: &NeatValue) -> Val {
        if let Some(val) = self.known_value(value) {
            return val;
        }
        let val = self.values.len() as Val;
        let sort = match value {
            NeatValue::Any => Sort::Any,
            NeatValue::Bool(_) | NeatValue::Text(_) => Sort::Word,
            NeatValue::Number(_) => Sort::Number,
            NeatValue::Set(_) => Sort::Set,
            NeatValue::Range { .. } => Sort::Range,
        };
        let class = match sort {
            // Sets are few; those that differ in order alone are fewer.
            Sort::Set => (0..val)
                .find(|v| self.sort(*v) == Sort::Set && same_value(&self.values[*v as usize], value))
                .unwrap_or(val),
            _ => val,
        };
        let (low, high) = match value {
            NeatValue::Number(n) => (*n, *n),
            NeatValue::Range { start, end } => (*start, *end),
            _ => (0.0, 0.0),
        };
        self.values.push(Arc::new(value.clone()));
        self.facts.push(Fact { low, high, class, sort });
        let hash = self.hash_value(value);
        let mut table = std::mem::take(&mut self.value_table);
        table.insert_unique(hash, val, |v| self.hash_value(&self.values[*v as usize]));
        self.value_table = table;
        val
    }

    pub(super) fn sort(&self, val: Val) -> Sort {
        self.facts[val as usize].sort
    }

    pub(super) fn class(&self, val: Val) -> Val {
        self.facts[val as usize].class
    }

    pub(super) fn name(&self, key: Key) -> &Arc<str> {
        &self.keys[key as usize]
    }

    pub(super) fn shown(&self, val: Val) -> &Arc<NeatValue> {
        &self.values[val as usize]
    }

    pub(super) fn keys(&self) -> usize {
        self.keys.len()
    }

    /// What sorts keys by name.
    pub(super) fn by_name(&self, a: Key, b: Key) -> core::cmp::Ordering {
        let rank = |k: Key| self.ranks[k as usize];
        rank(a)
            .cmp(&rank(b))
            .then_with(|| if a == b { core::cmp::Ordering::Equal } else { self.name(a).cmp(self.name(b)) })
    }

    /// Whether anything satisfies both.
    pub(super) fn matches(&self, a: Val, b: Val) -> bool {
        if a == b {
            return a != NOTHING;
        }
        let (x, y) = (&self.facts[a as usize], &self.facts[b as usize]);
        match (x.sort, y.sort) {
            (Sort::Any, _) | (_, Sort::Any) => true,
            (Sort::Word | Sort::Number, Sort::Word | Sort::Number) => false,
            (Sort::Number | Sort::Range, Sort::Number | Sort::Range) => x.low.max(y.low) <= x.high.min(y.high),
            _ => self.values[a as usize].matches(&self.values[b as usize]),
        }
    }

    /// The bounds of a number or range.
    #[inline]
    pub(super) fn bounds(&self, val: Val) -> Option<(f64, f64)> {
        let Fact { low, high, sort, .. } = self.facts[val as usize];
        matches!(sort, Sort::Number | Sort::Range).then_some((low, high))
    }

    /// Whether all numbers of a value lie within these bounds, so that their intersection is the
    /// value itself.
    #[inline]
    pub(super) fn lies_within(&self, val: Val, low: f64, high: f64) -> bool {
        let fact = &self.facts[val as usize];
        // A range of one point would become that number.
        let whole = fact.sort == Sort::Number || fact.sort == Sort::Range && fact.low < fact.high;
        whole && low <= fact.low && fact.high <= high
    }

    /// The intersection of numbers and ranges where it is one of the two, or nothing, so that no
    /// new value arises; `None` where that is not plain.
    #[inline]
    fn one_of(&self, a: Val, b: Val) -> Option<Option<Val>> {
        let (x, y) = (&self.facts[a as usize], &self.facts[b as usize]);
        let (low, high) = (x.low.max(y.low), x.high.min(y.high));
        match (x.sort, y.sort) {
            _ if low > high => Some(None),
            (Sort::Number, _) => Some(Some(a)),
            (_, Sort::Number) => Some(Some(b)),
            // A range of one point is that number.
            _ if low == high => None,
            _ if (low, high) == (x.low, x.high) => Some(Some(a)),
            _ if (low, high) == (y.low, y.high) => Some(Some(b)),
            _ => None,
        }
    }

    /// What satisfies both.
    #[inline]
    pub(super) fn intersect(&mut self, a: Val, b: Val) -> Option<Val> {
        match (self.sort(a), self.sort(b)) {
            (Sort::Any, _) => Some(b),
            (_, Sort::Any) => Some(a),
            (Sort::Word | Sort::Number, Sort::Word | Sort::Number) => (a == b).then_some(a),
            (Sort::Number | Sort::Range, Sort::Number | Sort::Range) => match self.one_of(a, b) {
                Some(common) => common,
                None => self.work_out(a, b),
            },
            _ => self.work_out(a, b),
        }
    }

    /// The intersection of values whatever they are, if it was not worked out before.
    fn work_out(&mut self, a: Val, b: Val) -> Option<Val> {
        let at = a.wrapping_mul(31) ^ b;
        let at = at % KNOWN as u32;
        let known = self.known[at as usize];
        if (known.a, known.b) == (a, b) {
            return known.common;
        }
        let common = self.values[a as usize].intersect(&self.values[b as usize]);
        let common = common.map(|c| self.value(&c));
        if known.a == UNKNOWN.a {
            self.learnt.push(at);
        }
        self.known[at as usize] = Known { a, b, common };
        common
    }
}
