//! A table of rules with an index: which of them could match a property, without looking at the
//! others.

use super::Prop;
use super::intern::{ANY, Interner, Key, Sort, Val};
use crate::manager::file::Rule;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use neater_property::neat::{NeatProperty, NeatValue};

/// A rule by number: its place in the table.
pub(super) type RuleId = u32;

/// A stretch of a list.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    pub(super) fn of<'a, T>(&self, list: &'a [T]) -> &'a [T] {
        &list[self.start as usize..self.end as usize]
    }

    pub(super) fn push<T>(list: &mut Vec<T>, items: impl IntoIterator<Item = T>) -> Self {
        let start = list.len() as u32;
        list.extend(items);
        Self { start, end: list.len() as u32 }
    }

    pub(super) fn len(&self) -> usize {
        (self.end - self.start) as usize
    }
}

/// What a rule wants of one key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) key: Key,
    pub(super) val: Val,
    /// Where its candidates are remembered: a preference that several rules share, of a key that no
    /// rule of the table changes. [`NONE`] for others.
    pub(super) shared: u32,
}

/// A property that a rule adds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effect {
    pub(super) key: Key,
    /// The number of the key among those that no rule of the table reads: what is added there can
    /// wait. [`NONE`] for others.
    pub(super) lane: u32,
    /// The first effect that is the same.
    pub(super) same: u32,
    pub(super) prop: Prop,
}

/// No number.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct CompiledRule {
    /// What it wants: the guard, by which it is found, comes first.
    matches: Span,
    /// Its alternatives.
    alternatives: Span,
    /// The properties of the first one.
    only: Span,
    replaces: bool,
}

/// Ranges of numbers, found by what they overlap.
#[derive(Clone, Debug, Default)]
struct Intervals {
    /// Sorted by start.
    ranges: Vec<(f64, f64, RuleId)>,
    /// The greatest end in the subtree of each range, where the middle of a stretch is the root of
    /// it.
    greatest: Vec<f64>,
}

impl Intervals {
    fn build(&mut self) {
        self.ranges.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.2.cmp(&b.2)));
        self.greatest = vec![f64::NEG_INFINITY; self.ranges.len()];
        self.fill(0, self.ranges.len());
    }

    fn fill(&mut self, from: usize, to: usize) -> f64 {
        if from >= to {
            return f64::NEG_INFINITY;
        }
        let middle = usize::midpoint(from, to);
        let greatest = self.ranges[middle].1.max(self.fill(from, middle)).max(self.fill(middle + 1, to));
        self.greatest[middle] = greatest;
        greatest
    }

    fn overlapping(&self, low: f64, high: f64, from: usize, to: usize, found: &mut impl FnMut(RuleId)) {
        if from >= to {
            return;
        }
        let middle = usize::midpoint(from, to);
        if self.greatest[middle] < low {
            return;
        }
        self.overlapping(low, high, from, middle, found);
        let (start, end, rule) = self.ranges[middle];
        if start > high {
            return;
        }
        if end >= low {
            found(rule);
        }
        self.overlapping(low, high, middle + 1, to, found);
    }
}

/// The rules that are found by one key.
#[derive(Clone, Debug, Default)]
struct ByKey {
    /// All of them.
    all: Vec<RuleId>,
    /// Those that want the key to be there, whatever its value.
    present: Vec<RuleId>,
    /// Those that want numbers.
    numbers: Intervals,
}

#[derive(Clone, Debug)]
pub(super) struct Index {
    rules: Vec<CompiledRule>,
    matches: Vec<Wish>,
    alternatives: Vec<Span>,
    effects: Vec<Effect>,
    /// The keys that are written and not read, by the number of their lane.
    lanes: Vec<Key>,
    /// How many wishes are remembered.
    shared: u32,
    /// For each key, whether some rule writes or replaces it.
    written: Vec<bool>,
    /// Rules that want nothing.
    always: Vec<RuleId>,
    keys: Vec<ByKey>,
    words: HashMap<u64, Span, FixedState>,
    by_word: Vec<RuleId>,
}

fn word(key: Key, val: Val) -> u64 {
    u64::from(key) << 32 | u64::from(val)
}

impl Index {
    pub(super) fn new(rules: &[Rule], interner: &mut Interner) -> Self {
        let mut index = Self {
            rules: Vec::with_capacity(rules.len()),
            matches: Vec::new(),
            alternatives: Vec::new(),
            effects: Vec::new(),
            lanes: Vec::new(),
            shared: 0,
            written: Vec::new(),
            always: Vec::new(),
            keys: Vec::new(),
            words: HashMap::with_hasher(FixedState::with_seed(0x706f_6c69)),
            by_word: Vec::new(),
        };
        for rule in rules {
            let wish = |p: &NeatProperty, interner: &mut Interner| (interner.key(&p.key), interner.value(&p.value));
            let wanted: Vec<(Key, Val)> = rule.matches.iter().map(|p| wish(p, interner)).collect();
            let wanted = wanted.into_iter().map(|(key, val)| Wish { key, val, shared: NONE });
            let matches = Span::push(&mut index.matches, wanted);
            let mut alternatives = Vec::with_capacity(rule.alternatives.len());
            for alternative in &rule.alternatives {
                let effect = |p: &NeatProperty, interner: &mut Interner| {
                    let (key, prop) = (interner.key(&p.key), Prop::new(p, interner));
                    Effect { key, lane: NONE, same: NONE, prop }
                };
                let effects: Vec<Effect> = alternative.iter().map(|p| effect(p, interner)).collect();
                alternatives.push(Span::push(&mut index.effects, effects));
            }
            let only = alternatives.first().copied().unwrap_or_default();
            let alternatives = Span::push(&mut index.alternatives, alternatives);
            index.rules.push(CompiledRule { matches, alternatives, only, replaces: rule.replace_matched });
        }
        index.file(interner);
        index.look(interner);
        index
    }

    /// Finds what can wait and what can be remembered: what is written and never read, and what is
    /// read and never written.
    fn look(&mut self, interner: &Interner) {
        let (mut read, mut written) = (vec![false; interner.keys()], vec![false; interner.keys()]);
        self.matches.iter().for_each(|wish| read[wish.key as usize] = true);
        self.effects.iter().for_each(|effect| written[effect.key as usize] = true);
        for rule in self.rules.iter().filter(|rule| rule.replaces) {
            rule.matches.of(&self.matches).iter().for_each(|wish| written[wish.key as usize] = true);
        }
        let mut lanes = vec![NONE; interner.keys()];
        let mut known: HashMap<(Key, Val, u64, u8, bool), u32, FixedState> =
            HashMap::with_hasher(FixedState::with_seed(3));
        for (i, effect) in (0..).zip(&mut self.effects) {
            let lane = &mut lanes[effect.key as usize];
            if *lane == NONE && !read[effect.key as usize] {
                *lane = self.lanes.len() as u32;
                self.lanes.push(effect.key);
            }
            effect.lane = *lane;
            let Prop { score, value, precedence, evaluated } = effect.prop;
            effect.same = *known.entry((effect.key, value, score.to_bits(), precedence, evaluated)).or_insert(i);
        }
        // A guard finds its rule, and is not asked again.
        let mut counts: HashMap<u64, (u32, u32), FixedState> = HashMap::with_hasher(FixedState::with_seed(4));
        let rules = &self.rules;
        let others = || rules.iter().flat_map(|rule| rule.matches.start + 1..rule.matches.end).map(|i| i as usize);
        for wish in others().map(|i| self.matches[i]).filter(|wish| !written[wish.key as usize]) {
            counts.entry(word(wish.key, wish.val)).or_insert((0, NONE)).0 += 1;
        }
        for i in others() {
            let wish = &mut self.matches[i];
            let Some((count, number)) = counts.get_mut(&word(wish.key, wish.val)) else { continue };
            if *count > 1 && *number == NONE {
                *number = self.shared;
                self.shared += 1;
            }
            wish.shared = *number;
        }
        self.written = written;
    }

    /// Whether a rule does the same to a row whenever it is tried: nothing that the table does
    /// changes the rows that it matches, and no rule reads what it adds.
    pub(super) fn is_quiet(&self, rule: RuleId) -> bool {
        let fixed = |wish: &Wish| !self.written[wish.key as usize];
        !self.replaces(rule)
            && self.alternatives(rule) == 1
            && self.wanted(rule).iter().all(fixed)
            && self.only(rule).iter().all(|effect| effect.lane != NONE)
    }

    /// Files every rule under the one of its wishes that the fewest rules share.
    fn file(&mut self, interner: &mut Interner) {
        // By pair, and by key for what is no word.
        let mut shared: HashMap<u64, u32, FixedState> = HashMap::with_hasher(FixedState::with_seed(1));
        for &Wish { key, val, .. } in &self.matches {
            *shared.entry(word(key, val)).or_default() += 1;
            *shared.entry(word(key, Val::MAX)).or_default() += 1;
        }
        let mut words: Vec<(u64, RuleId)> = Vec::new();
        for id in 0..self.rules.len() {
            let span = self.rules[id].matches;
            let wanted = &mut self.matches[span.start as usize..span.end as usize];
            if wanted.is_empty() {
                self.always.push(id as RuleId);
                continue;
            }
            let cost = |Wish { key, val, .. }: Wish| match interner.sort(val) {
                Sort::Word => shared[&word(key, val)],
                _ => shared[&word(key, Val::MAX)],
            };
            let guard = (0..wanted.len()).min_by_key(|&i| cost(wanted[i])).unwrap_or_default();
            wanted.swap(0, guard);
            let Wish { key, val, .. } = wanted[0];
            if self.keys.len() <= key as usize {
                self.keys.resize_with(key as usize + 1, ByKey::default);
            }
            let by_key = &mut self.keys[key as usize];
            by_key.all.push(id as RuleId);
            match &**interner.shown(val) {
                NeatValue::Any => by_key.present.push(id as RuleId),
                NeatValue::Number(n) => by_key.numbers.ranges.push((*n, *n, id as RuleId)),
                NeatValue::Range { start, end } => by_key.numbers.ranges.push((*start, *end, id as RuleId)),
                NeatValue::Bool(_) | NeatValue::Text(_) => words.push((word(key, val), id as RuleId)),
                NeatValue::Set(elements) => {
                    for element in elements.clone() {
                        match element {
                            NeatValue::Number(n) => by_key.numbers.ranges.push((n, n, id as RuleId)),
                            other => words.push((word(key, interner.value(&other)), id as RuleId)),
                        }
                    }
                }
            }
        }
        words.sort_unstable();
        words.dedup();
        for group in words.chunk_by(|a, b| a.0 == b.0) {
            let span = Span::push(&mut self.by_word, group.iter().map(|(_, id)| *id));
            self.words.insert(group[0].0, span);
        }
        self.keys.iter_mut().for_each(|k| k.numbers.build());
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.rules.len()
    }

    pub(super) fn always(&self) -> &[RuleId] {
        &self.always
    }

    #[inline]
    pub(super) fn wanted(&self, rule: RuleId) -> &[Wish] {
        self.rules[rule as usize].matches.of(&self.matches)
    }

    #[inline]
    pub(super) fn replaces(&self, rule: RuleId) -> bool {
        self.rules[rule as usize].replaces
    }

    #[inline]
    pub(super) fn alternatives(&self, rule: RuleId) -> usize {
        self.rules[rule as usize].alternatives.len()
    }

    /// The alternative of a rule that has one.
    #[inline]
    pub(super) fn only(&self, rule: RuleId) -> &[Effect] {
        self.rules[rule as usize].only.of(&self.effects)
    }

    pub(super) fn alternative(&self, rule: RuleId, which: usize) -> &[Effect] {
        self.rules[rule as usize].alternatives.of(&self.alternatives)[which].of(&self.effects)
    }

    /// What an effect adds, by its number.
    #[inline]
    pub(super) fn effect(&self, number: u32) -> &Prop {
        &self.effects[number as usize].prop
    }

    /// The keys of the lanes.
    #[inline]
    pub(super) fn lanes(&self) -> &[Key] {
        &self.lanes
    }

    /// How many wishes are remembered.
    #[inline]
    pub(super) fn shared(&self) -> usize {
        self.shared as usize
    }

    /// Whether any rule is filed under a key.
    #[inline]
    pub(super) fn knows(&self, key: Key) -> bool {
        self.keys.get(key as usize).is_some_and(|k| !k.all.is_empty())
    }

    /// Every rule that is filed under something that `val` of `key` matches. A rule may come more
    /// than once.
    pub(super) fn triggered(&self, key: Key, val: Val, interner: &Interner, mut found: impl FnMut(RuleId)) {
        let Some(by_key) = self.keys.get(key as usize) else { return };
        if by_key.all.is_empty() {
            return;
        }
        if val == ANY {
            return by_key.all.iter().copied().for_each(found);
        }
        by_key.present.iter().copied().for_each(&mut found);
        let mut number = |low: f64, high: f64| {
            by_key.numbers.overlapping(low, high, 0, by_key.numbers.ranges.len(), &mut found);
        };
        match &**interner.shown(val) {
            NeatValue::Number(n) => number(*n, *n),
            NeatValue::Range { start, end } => number(*start, *end),
            NeatValue::Set(elements) => {
                for element in elements {
                    match element {
                        NeatValue::Number(n) => {
                            by_key.numbers.overlapping(*n, *n, 0, by_key.numbers.ranges.len(), &mut found);
                        }
                        other => {
                            let span = interner.known_value(other).and_then(|v| self.words.get(&word(key, v)));
                            span.into_iter().flat_map(|s| s.of(&self.by_word)).copied().for_each(&mut found);
                        }
                    }
                }
            }
            _ => {
                let span = self.words.get(&word(key, val));
                span.into_iter().flat_map(|s| s.of(&self.by_word)).copied().for_each(found);
            }
        }
    }
}
