//! The rows of the CIB side by side, ready to be joined.

use super::Prop;
use super::column::{Column, Mask, WIDTH};
use super::index::{Index, RuleId};
use super::intern::{Interner, Key, Sort, Val};
use crate::manager::cib::Row;
use foldhash::fast::FixedState;
use hashbrown::HashSet;
use neater_property::neat::NeatProperty;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The place of the input that is joined to no row.
pub(super) const BARE: usize = WIDTH - 1;

/// What rows have under one key.
#[derive(Clone, Debug)]
pub(super) struct RowColumn {
    /// What they have. Scores of those that have nothing are 0.
    pub(super) column: Column,
    /// The policies that are found by it, in their order, each with the rows whose value it wants.
    pub(super) posts: Vec<(RuleId, Mask)>,
}

/// Up to 127 rows.
#[derive(Clone, Debug)]
pub(super) struct RowBlock {
    pub(super) columns: Vec<Arc<RowColumn>>,
    /// The rows there are.
    pub(super) all: Mask,
}

/// The keys that keep all rows apart: every row has them, immutable, and no value of one matches that of another. Neither
/// an input without the key nor a policy that does not name it can make two rows the same.
pub(super) fn keep_apart(rows: &[Row], interner: &mut Interner) -> Vec<Key> {
    let Some((first, others)) = rows.split_first() else { return Vec::new() };
    let single = |p: &NeatProperty, interner: &mut Interner| -> Option<Val> {
        let val = interner.value(&p.value);
        (p.precedence >= NeatProperty::IMMUTABLE && matches!(interner.sort(val), Sort::Word | Sort::Number))
            .then_some(val)
    };
    let mut found = Vec::new();
    for p in first.properties.iter() {
        let Some(val) = single(p, interner) else { continue };
        let mut seen: HashSet<Val, FixedState> = HashSet::with_hasher(FixedState::with_seed(2));
        seen.insert(val);
        let differs =
            |row: &Row| row.properties.get(&p.key).and_then(|q| single(q, interner)).is_some_and(|v| seen.insert(v));
        if others.iter().all(differs) {
            found.push(interner.key(&p.key));
        }
    }
    found
}

impl RowBlock {
    /// Blocks of these rows.
    pub(super) fn of(rows: &[Row], policies: &Index, interner: &mut Interner) -> Vec<Self> {
        rows.chunks(BARE).map(|rows| Self::new(rows, policies, interner)).collect()
    }

    fn new(rows: &[Row], policies: &Index, interner: &mut Interner) -> Self {
        let mut columns: Vec<Column> = Vec::new();
        for (bit, row) in rows.iter().enumerate() {
            for p in row.properties.iter() {
                let key = interner.key(&p.key);
                let prop = Prop::new(p, interner);
                let slot = columns.iter().position(|c| c.key == key).unwrap_or_else(|| {
                    columns.push(Column::new(key));
                    columns.len() - 1
                });
                columns[slot].put(&prop, 1 << bit);
            }
        }
        let all = (1 << rows.len()) - 1;
        let ready = |mut column: Column| {
            let mut posts: BTreeMap<RuleId, Mask> = BTreeMap::new();
            column.values(all, |val, mask| {
                policies.triggered(column.key, val, interner, |rule| *posts.entry(rule).or_default() |= mask);
            });
            for bit in (0..WIDTH).filter(|bit| column.has >> bit & 1 == 0) {
                column.scores[bit] = 0.0;
            }
            Arc::new(RowColumn { column, posts: posts.into_iter().collect() })
        };
        Self { columns: columns.into_iter().map(ready).collect(), all }
    }

    /// The rows that can serve an input: every immutable property of it is there, and none of them clashes.
    pub(super) fn serving(&self, input: &[(Key, Prop)], interner: &Interner) -> Mask {
        let mut serving = self.all;
        for (key, prop) in input.iter().filter(|(_, p)| p.precedence >= NeatProperty::IMMUTABLE) {
            let Some(rows) = self.columns.iter().find(|c| c.column.key == *key) else { return 0 };
            let fits =
                |precedence: u8, val: Val| precedence < NeatProperty::IMMUTABLE || interner.matches(val, prop.value);
            serving &= rows.column.filter(serving, |cell| fits(cell.precedence, cell.value));
            if serving == 0 {
                break;
            }
        }
        serving
    }
}
