//! Decisions that were taken lately, and what they depend on.

use super::decision::Decision;
use super::document::Requests;
use super::file::Rule;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::VecDeque;
use std::sync::Arc;

/// How many decisions are remembered; the oldest goes first.
const MAX_DECISIONS: usize = 1024;

#[derive(Clone, Debug)]
struct Entry {
    requests: Requests,
    decision: Arc<Decision>,
    /// The keys that its candidates had at any time; `None` where that is not known.
    keys: Option<Vec<Arc<str>>>,
}

/// Decisions by the number of their request.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    entries: HashMap<u64, Entry, FixedState>,
    order: VecDeque<u64>,
}

impl Default for Cache {
    fn default() -> Self {
        Self { entries: HashMap::with_hasher(FixedState::with_seed(0x6465_6369)), order: VecDeque::new() }
    }
}

impl Cache {
    pub(crate) fn get(&self, requests: &Requests) -> Option<Arc<Decision>> {
        let entry = self.entries.get(&requests.fingerprint())?;
        (entry.requests == *requests).then(|| entry.decision.clone())
    }

    pub(crate) fn put(&mut self, requests: &Requests, decision: &Arc<Decision>, keys: Option<Vec<Arc<str>>>) {
        let number = requests.fingerprint();
        let entry = Entry { requests: requests.clone(), decision: decision.clone(), keys };
        if self.entries.insert(number, entry).is_some() {
            return;
        }
        self.order.push_back(number);
        if self.order.len() > MAX_DECISIONS {
            let oldest = self.order.pop_front();
            oldest.and_then(|number| self.entries.remove(&number));
        }
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
    }

    /// Forgets what a rule that came, went or changed could have changed: one that wants a key that no candidate had at any
    /// time could not have fired.
    pub(crate) fn rule_changed(&mut self, rule: &Rule) {
        let fires = |keys: &Vec<Arc<str>>| rule.matches.iter().all(|p| keys.iter().any(|k| **k == *p.key));
        self.entries.retain(|_, entry| entry.keys.as_ref().is_some_and(|keys| !fires(keys)));
        let entries = &self.entries;
        self.order.retain(|number| entries.contains_key(number));
    }
}
