//! The rows of the CIB side by side, ready to be joined.

use super::Prop;
use super::block::{Column, Entry, Mask, WIDTH};
use super::index::{Index, RuleId, Span};
use super::intern::{Interner, Key};
use crate::manager::cib::Row;
use neater_property::neat::NeatProperty;

/// The place of the input that is joined to no row.
pub(super) const BARE: usize = WIDTH - 1;

/// Up to 127 rows.
#[derive(Clone, Debug)]
pub(super) struct RowBlock {
    pub(super) columns: Vec<Column>,
    /// For each entry of each column, the policies it is found by.
    posts: Vec<Vec<Span>>,
    lists: Vec<RuleId>,
    /// The column of a key.
    slots: Vec<u32>,
    /// The rows there are.
    pub(super) all: Mask,
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
                put(&mut columns[slot], prop, bit);
            }
        }
        let mut slots = vec![u32::MAX; interner.keys()];
        let (mut posts, mut lists) = (Vec::new(), Vec::new());
        for (i, column) in columns.iter().enumerate() {
            slots[column.key as usize] = i as u32;
            let post = |entry: &Entry| {
                let mut found = Vec::new();
                policies.triggered(column.key, entry.prop.value, interner, |rule| found.push(rule));
                Span::push(&mut lists, found)
            };
            posts.push(column.entries.iter().map(post).collect());
        }
        Self { columns, posts, lists, slots, all: (1 << rows.len()) - 1 }
    }

    pub(super) fn slot(&self, key: Key) -> Option<usize> {
        self.slots.get(key as usize).copied().filter(|s| *s != u32::MAX).map(|s| s as usize)
    }

    /// The policies that an entry as it stands in the rows is found by.
    pub(super) fn posts(&self, slot: usize, entry: usize) -> &[RuleId] {
        self.posts[slot][entry].of(&self.lists)
    }

    /// The rows that can serve an input: every immutable property of it is there, and none of them clashes.
    pub(super) fn serving(&self, input: &[(Key, Prop)], interner: &Interner) -> Mask {
        let mut serving = self.all;
        for (key, prop) in input.iter().filter(|(_, p)| p.precedence >= NeatProperty::IMMUTABLE) {
            let Some(slot) = self.slot(*key) else { return 0 };
            let column = &self.columns[slot];
            let fits =
                |e: &&Entry| e.prop.precedence < NeatProperty::IMMUTABLE || interner.matches(e.prop.value, prop.value);
            serving &= column.entries.iter().filter(fits).fold(0, |mask, e| mask | e.mask);
            if serving == 0 {
                break;
            }
        }
        serving
    }
}

/// Puts one candidate's property into a column, beside equal ones.
pub(super) fn put(column: &mut Column, prop: Prop, bit: usize) {
    match column.entries.iter().position(|e| e.prop == prop) {
        Some(at) => {
            column.entries[at].mask |= 1 << bit;
            column.of[bit] = at as u16;
            column.has |= 1 << bit;
        }
        None => {
            column.put(prop, 1 << bit);
        }
    }
}
