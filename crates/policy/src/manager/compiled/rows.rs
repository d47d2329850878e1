//! The rows of the CIB side by side, ready to be joined.

use super::Prop;
use super::column::{Column, Mask, WIDTH};
use super::index::{Index, RuleId};
use super::intern::{Interner, Key, Sort, Val};
use crate::manager::cib::{Row, is_of_domains};
use foldhash::fast::FixedState;
use hashbrown::HashSet;
use neater_property::neat::NeatProperty;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The place of the input that is joined to no row.
pub(super) const BARE: usize = WIDTH - 1;

/// Policies in their order, each with the rows whose value it wants.
type Posts = Vec<(RuleId, Mask)>;

/// What rows have under one key.
#[derive(Clone, Debug)]
pub(super) struct RowColumn {
    /// What they have. Scores of those that have nothing are 0.
    pub(super) column: Column,
    /// The policies that are found by it, in their order, each with the rows whose value it wants;
    /// but for those in groups.
    pub(super) posts: Posts,
    /// Policies that want the same beside it.
    pub(super) groups: Vec<Group>,
}

/// Policies that are found by the values of one key, want the same of other keys, and whose turn
/// does not matter to others: whether they fire is asked once for all.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// They, in order.
    pub(super) rules: Vec<RuleId>,
    /// What they do, by lane, in order.
    pub(super) steps: Vec<(u32, Vec<Step>)>,
    /// All rows that any of them wants.
    pub(super) rows: Mask,
}

/// What is to be added to some candidates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) mask: Mask,
    /// The rule that states it.
    pub(super) rule: RuleId,
    /// The number of the effect.
    pub(super) effect: u32,
}

/// How many policies make a group. Random tables of tests are small.
const GROUP: usize = if cfg!(test) { 2 } else { 4 };

/// Takes from `posts` the policies that are better tried together.
fn group(posts: &mut Posts, policies: &Index) -> Vec<Group> {
    let mut alike: BTreeMap<Vec<(Key, Val)>, Posts> = BTreeMap::new();
    for &(rule, mask) in posts.iter().filter(|(rule, _)| policies.is_quiet(*rule)) {
        let others = policies.wanted(rule)[1..].iter().map(|wish| (wish.key, wish.val)).collect();
        alike.entry(others).or_default().push((rule, mask));
    }
    let made = |rules: Posts| {
        let mut steps: Vec<(u32, Vec<Step>)> = Vec::new();
        for &(rule, mask) in &rules {
            for effect in policies.only(rule) {
                let step = Step { mask, rule, effect: effect.same };
                match steps.iter_mut().find(|(lane, _)| *lane == effect.lane) {
                    Some((_, steps)) => steps.push(step),
                    None => steps.push((effect.lane, vec![step])),
                }
            }
        }
        let rows = rules.iter().fold(0, |all, (_, mask)| all | mask);
        Group { rules: rules.into_iter().map(|(rule, _)| rule).collect(), steps, rows }
    };
    let groups: Vec<Group> = alike.into_values().filter(|rules| rules.len() >= GROUP).map(made).collect();
    posts.retain(|(rule, _)| !groups.iter().any(|g| g.rules.binary_search(rule).is_ok()));
    groups
}

/// Up to 127 rows.
#[derive(Clone, Debug)]
pub(super) struct RowBlock {
    pub(super) columns: Vec<Arc<RowColumn>>,
    /// The rows there are.
    pub(super) all: Mask,
    /// Those that serve inputs with immutable properties that they lack.
    open: Mask,
}

/// The keys that keep all rows apart: every row has them, immutable, and no value of one matches
/// that of another. Neither an input without the key nor a policy that does not name it can make
/// two rows the same.
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
            let mut posts = posts.into_iter().collect();
            let groups = group(&mut posts, policies);
            Arc::new(RowColumn { column, posts, groups })
        };
        let open = rows.iter().enumerate().filter(|(_, row)| row.open).fold(0, |open, (bit, _)| open | 1 << bit);
        Self { columns: columns.into_iter().map(ready).collect(), all, open }
    }

    /// The rows that can serve an input: every immutable property of it is there, or the row is
    /// open, and none of them clashes.
    pub(super) fn serving(&self, input: &[(Key, Prop)], interner: &Interner) -> Mask {
        let mut serving = self.all;
        for (key, prop) in input.iter().filter(|(_, p)| p.precedence >= NeatProperty::IMMUTABLE) {
            let open = if is_of_domains(interner.name(*key)) { 0 } else { self.open };
            let Some(rows) = self.columns.iter().find(|c| c.column.key == *key) else {
                serving &= open;
                continue;
            };
            let fits =
                |precedence: u8, val: Val| precedence < NeatProperty::IMMUTABLE || interner.matches(val, prop.value);
            let silent = serving & open & !rows.column.has;
            serving &= rows.column.filter(serving, |cell| fits(cell.precedence, cell.value)) | silent;
            if serving == 0 {
                break;
            }
        }
        serving
    }
}
