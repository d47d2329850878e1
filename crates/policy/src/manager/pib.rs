//! The policy information base: two tables of rules, each tried in the order of priority.

use super::file::Rule;

/// Rules in the order in which they are tried: by priority, and in the order of arrival within one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    rules: Vec<Rule>,
}

impl Table {
    /// The rules in the order in which they are tried.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Puts a rule in its place; one of the same uid goes.
    pub fn insert(&mut self, rule: Rule) -> Option<Rule> {
        let replaced = self.remove(&rule.uid);
        let at = self.rules.partition_point(|r| r.priority <= rule.priority);
        self.rules.insert(at, rule);
        replaced
    }

    /// Takes a rule out, by its uid in any case.
    pub fn remove(&mut self, uid: &str) -> Option<Rule> {
        let uid = uid.to_lowercase();
        let at = self.rules.iter().position(|r| r.uid == uid)?;
        Some(self.rules.remove(at))
    }

    /// A rule by its uid, in any case.
    #[must_use]
    pub fn get(&self, uid: &str) -> Option<&Rule> {
        let uid = uid.to_lowercase();
        self.rules.iter().find(|r| r.uid == uid)
    }
}

impl FromIterator<Rule> for Table {
    /// Of several rules of one uid, the last one counts.
    fn from_iter<I: IntoIterator<Item = Rule>>(rules: I) -> Self {
        let mut rules: Vec<Rule> = rules.into_iter().collect();
        let mut seen = std::collections::BTreeSet::new();
        let mut counts: Vec<bool> = rules.iter().rev().map(|rule| seen.insert(rule.uid.as_str())).collect();
        // The rules stay where they are, of which there may be many.
        rules.retain(|_| counts.pop().unwrap_or_default());
        rules.shrink_to_fit();
        rules.sort_by_key(|rule| rule.priority);
        Self { rules }
    }
}
