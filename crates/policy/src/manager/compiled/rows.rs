//! The rows of the CIB side by side, ready to be joined.

use super::Prop;
use super::block::{Column, Entry, Mask, WIDTH, mix};
use super::index::{Index, RuleId, Span};
use super::intern::{Interner, Key};
use crate::manager::cib::Row;
use neater_property::neat::NeatProperty;

/// The place of the input that is joined to no row.
pub(super) const BARE: usize = WIDTH - 1;

/// For each entry of a column, the policies it is found by.
#[derive(Clone, Debug, Default)]
pub(super) struct Posts {
    spans: Vec<Span>,
    list: Vec<RuleId>,
}

impl Posts {
    /// Whether there is any policy.
    pub(super) fn any(&self) -> bool {
        !self.list.is_empty()
    }

    /// For how many entries this is known.
    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }

    /// The policies that an entry is found by, if that is known.
    pub(super) fn of(&self, entry: usize) -> Option<&[RuleId]> {
        self.spans.get(entry).map(|s| s.of(&self.list))
    }
}

/// Up to 127 rows.
#[derive(Clone, Debug)]
pub(super) struct RowBlock {
    pub(super) columns: Vec<Column>,
    /// For each column, what its entries are found by.
    posts: Vec<Posts>,
    /// The column of a key.
    slots: Vec<u32>,
    /// The rows there are.
    pub(super) all: Mask,
    /// For each row, the number made of its keys and values.
    pub(super) hashes: Box<[u64; WIDTH]>,
}

impl RowBlock {
    /// Blocks of these rows.
    pub(super) fn of(rows: &[Row], policies: &Index, interner: &mut Interner) -> Vec<Self> {
        rows.chunks(BARE).map(|rows| Self::new(rows, policies, interner)).collect()
    }

    fn new(rows: &[Row], policies: &Index, interner: &mut Interner) -> Self {
        let mut columns: Vec<Column> = Vec::new();
        let mut hashes = Box::new([0; WIDTH]);
        for (bit, row) in rows.iter().enumerate() {
            for p in row.properties.iter() {
                let key = interner.key(&p.key);
                let prop = Prop::new(p, interner);
                let slot = columns.iter().position(|c| c.key == key).unwrap_or_else(|| {
                    columns.push(Column::new(key));
                    columns.len() - 1
                });
                columns[slot].put_beside(prop, bit);
                hashes[bit] ^= mix(key, interner.class(prop.value));
            }
        }
        let mut slots = vec![u32::MAX; interner.keys()];
        let mut posts = Vec::new();
        for (i, column) in columns.iter().enumerate() {
            slots[column.key as usize] = i as u32;
            let mut list = Vec::new();
            let post = |entry: &Entry| {
                let mut found = Vec::new();
                policies.triggered(column.key, entry.prop.value, interner, |rule| found.push(rule));
                Span::push(&mut list, found)
            };
            let spans = column.entries.iter().map(post).collect();
            posts.push(Posts { spans, list });
        }
        Self { columns, posts, slots, all: (1 << rows.len()) - 1, hashes }
    }

    pub(super) fn slot(&self, key: Key) -> Option<usize> {
        self.slots.get(key as usize).copied().filter(|s| *s != u32::MAX).map(|s| s as usize)
    }

    /// The policies that the entries of a column are found by.
    pub(super) fn posts(&self, slot: usize) -> Option<&Posts> {
        self.posts.get(slot)
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
