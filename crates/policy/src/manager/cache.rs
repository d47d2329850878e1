//! Decisions that were taken lately, and what they depend on.

use super::cib::Row;
use super::decision::Decision;
use super::document::Requests;
use super::file::{Rule, of_array};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use neater_property::neat::{NeatArray, Score};
use std::collections::VecDeque;
use std::sync::Arc;

/// How many decisions are remembered; the oldest goes first.
const MAX_DECISIONS: usize = 1024;
/// About how many bytes they take together.
const MAX_BYTES: usize = 4 << 20;
/// About how many bytes one takes at most: a longer one is computed again.
const MAX_BYTES_OF_ONE: usize = MAX_BYTES / 4;
/// How many inputs of one decision are remembered; what has more depends on every row.
pub(crate) const MAX_INPUTS: usize = 16;
/// How many pairs of a decision and a row are looked at when rows change. More, and all decisions
/// are forgotten.
const MAX_PAIRS: usize = 20_000;
/// So many pairs of numbers of requests that were asked once are remembered.
const ONCE: usize = 1024;

/// What a decision depends on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reads {
    /// The keys that its candidates had at any time.
    pub(crate) keys: Vec<Arc<str>>,
    /// What rows were joined to, and the score of the last one that was kept if no more could be;
    /// `None` where these are too many.
    pub(crate) inputs: Option<Vec<(NeatArray, Option<Score>)>>,
}

impl Reads {
    /// Whether the decision could be another with or without this row: it can serve an input, and
    /// would be kept.
    fn row_counts(&self, row: &Row) -> bool {
        let counts = |(input, cut): &(NeatArray, Option<Score>)| {
            row.against(input).is_none()
                && row.properties.sum(input).is_ok_and(|sum| cut.is_none_or(|cut| sum.score().order(&cut).is_ge()))
        };
        self.inputs.as_ref().is_none_or(|inputs| inputs.iter().any(counts))
    }
}

#[derive(Clone, Debug)]
struct Entry {
    requests: Requests,
    decision: Arc<Decision>,
    /// What it depends on; `None` where that is not known.
    reads: Option<Reads>,
    /// About how many bytes it takes.
    weight: usize,
}

/// Decisions by the number of their request.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    entries: HashMap<u64, Entry, FixedState>,
    order: VecDeque<u64>,
    weight: usize,
    /// The numbers of recent requests, each in the pair that it selects itself, the later first:
    /// two that are asked in turns keep each other out of no place. None until the first.
    once: Vec<[u64; 2]>,
    /// How often something was found.
    pub(crate) hits: u64,
}

impl Default for Cache {
    fn default() -> Self {
        let entries = HashMap::with_hasher(FixedState::with_seed(0x6465_6369));
        Self { entries, order: VecDeque::new(), weight: 0, once: Vec::new(), hits: 0 }
    }
}

impl Cache {
    pub(crate) fn get(&mut self, requests: &Requests) -> Option<Arc<Decision>> {
        let entry = self.entries.get(&requests.fingerprint()).filter(|entry| entry.requests == *requests)?;
        self.hits += 1;
        Some(entry.decision.clone())
    }

    /// Whether this was asked lately, and is asked again: only then it is worth keeping. To keep a
    /// decision takes half as long again as to make it, and a program that asks about many
    /// destinations once each would fill the cache with unused entries.
    pub(crate) fn is_asked_again(&mut self, requests: &Requests) -> bool {
        if self.once.is_empty() {
            self.once = vec![[0; 2]; ONCE];
        }
        let number = requests.fingerprint();
        let pair = &mut self.once[number as usize % ONCE];
        if pair.contains(&number) {
            return true;
        }
        *pair = [number, pair[0]];
        false
    }

    pub(crate) fn put(&mut self, requests: &Requests, decision: &Arc<Decision>, reads: Option<Reads>) {
        let number = requests.fingerprint();
        let weight = weight(requests, decision, reads.as_ref());
        if weight > MAX_BYTES_OF_ONE {
            return;
        }
        let entry = Entry { requests: requests.clone(), decision: decision.clone(), reads, weight };
        self.weight += weight;
        match self.entries.insert(number, entry) {
            Some(other) => self.weight -= other.weight,
            None => self.order.push_back(number),
        }
        while self.order.len() > MAX_DECISIONS || self.weight > MAX_BYTES {
            let Some(oldest) = self.order.pop_front() else { return };
            self.weight -= self.entries.remove(&oldest).map_or(0, |entry| entry.weight);
        }
    }

    /// About how many bytes all of it takes.
    #[cfg(test)]
    pub(crate) const fn weight(&self) -> usize {
        self.weight
    }

    /// How many decisions there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
        self.weight = 0;
    }

    /// Forgets what a rule that came, went or changed could have changed: one that wants a key that
    /// no candidate had at any time could not have fired.
    pub(crate) fn rule_changed(&mut self, rule: &Rule) {
        let fires = |keys: &Vec<Arc<str>>| rule.matches.iter().all(|p| keys.iter().any(|k| **k == *p.key));
        self.retain(|reads| !fires(&reads.keys));
    }

    /// Forgets what rows that came or went could have changed.
    pub(crate) fn rows_changed(&mut self, rows: &[&Row]) {
        if rows.len().saturating_mul(self.entries.len()) > MAX_PAIRS {
            self.clear();
        } else {
            self.retain(|reads| !rows.iter().any(|row| reads.row_counts(row)));
        }
    }

    /// Forgets the decisions that do not stay, and those of which nothing is known.
    fn retain(&mut self, stays: impl Fn(&Reads) -> bool) {
        self.entries.retain(|_, entry| entry.reads.as_ref().is_some_and(&stays));
        let entries = &self.entries;
        self.order.retain(|number| entries.contains_key(number));
        self.weight = entries.values().map(|entry| entry.weight).sum();
    }
}

/// About how many bytes an entry takes.
fn weight(requests: &Requests, decision: &Decision, reads: Option<&Reads>) -> usize {
    let asked: usize = requests.arrays.iter().map(of_array).sum();
    let dropped: usize = requests.dropped.iter().map(String::len).sum();
    let read = reads.map_or(0, |reads| {
        let inputs: usize = reads.inputs.iter().flatten().map(|(input, _)| of_array(input)).sum();
        16 * reads.keys.len() + inputs
    });
    256 + asked + dropped + decision.weight() + read
}
