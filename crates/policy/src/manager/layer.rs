//! Layers of the tables, from the bottom: ready-made entries, received ones, those of files.
//!
//! The tables hold what lies on top. A layer keeps the entries that it covers and restores them
//! when its own are removed: a user who removes their `confidential.profile` gets the ready-made
//! one back.

use super::Manager;
use super::cib::Cib;
use super::file::{Node, Rule};
use super::loader::FileKind;
use super::trace::Stage;
use neater_base::WallTime;
use std::collections::{BTreeMap, BTreeSet};

/// A profile, a policy or a node.
#[derive(Clone, Debug)]
pub enum Item {
    /// A profile or a policy.
    Rule(Box<Rule>),
    /// A node of the CIB.
    Node(Box<Node>),
}

impl Item {
    /// Its uid.
    #[must_use]
    pub fn uid(&self) -> &str {
        match self {
            Self::Rule(rule) => &rule.uid,
            Self::Node(node) => &node.uid,
        }
    }
}

/// The uids that a layer defines, and what lies beneath them.
///
/// *Invariant*: what is covered is of a uid that the layer defines.
#[derive(Clone, Debug, Default)]
pub struct Layer {
    uids: BTreeMap<FileKind, BTreeSet<String>>,
    covered: BTreeMap<(FileKind, String), Item>,
}

impl Layer {
    /// Whether it defines a uid.
    #[must_use]
    pub fn says(&self, kind: FileKind, uid: &str) -> bool {
        self.uids.get(&kind).is_some_and(|uids| uids.contains(uid))
    }

    /// Defines a uid, in place of what there was; what it covered before stays covered.
    pub fn say(&mut self, kind: FileKind, uid: &str, was: Option<Item>) {
        if self.uids.entry(kind).or_default().insert(uid.to_owned())
            && let Some(was) = was
        {
            self.covered.insert((kind, uid.to_owned()), was);
        }
    }

    /// Releases a uid: what lay beneath is given back.
    pub fn release(&mut self, kind: FileKind, uid: &str) -> Option<Item> {
        self.uids.get_mut(&kind).is_some_and(|uids| uids.remove(uid)).then_some(())?;
        self.uncover(kind, uid)
    }

    /// Sets what lies beneath a uid of this layer. No effect where the layer does not define it.
    pub fn cover(&mut self, kind: FileKind, item: Item) {
        if self.says(kind, item.uid()) {
            self.covered.insert((kind, item.uid().to_owned()), item);
        }
    }

    /// Nothing lies beneath any more.
    pub fn uncover(&mut self, kind: FileKind, uid: &str) -> Option<Item> {
        self.covered.remove(&(kind, uid.to_owned()))
    }

    /// The rules that this layer defines.
    #[must_use]
    pub fn rules(&self) -> Vec<(Stage, String)> {
        let of = |(stage, kind)| {
            let uids = self.uids.get(&kind).into_iter().flatten();
            uids.map(move |uid| (stage, uid.clone()))
        };
        [(Stage::Profile, FileKind::Profile), (Stage::Policy, FileKind::Policy)].into_iter().flat_map(of).collect()
    }
}

/// What the tables hold, while layers are taken off and laid on.
#[derive(Debug)]
pub(crate) struct Contents {
    /// Profiles, and policies.
    rules: [Vec<Rule>; 2],
    cib: Cib,
}

const fn place(kind: FileKind) -> usize {
    match kind {
        FileKind::Profile => 0,
        _ => 1,
    }
}

impl Contents {
    /// What lies beneath these layers, of which the first lies on top. They define nothing from now
    /// on.
    pub(crate) fn beneath(manager: &Manager, layers: &mut [&mut Layer], now: WallTime) -> Self {
        let mut contents = Self { rules: [Vec::new(), Vec::new()], cib: Cib::default() };
        for i in 0..layers.len() {
            for ((kind, uid), item) in std::mem::take(&mut layers[i].covered) {
                // What is covered here may be of a lower layer itself.
                if layers[i + 1..].iter().any(|lower| lower.says(kind, &uid)) {
                    continue;
                }
                match item {
                    Item::Rule(rule) => contents.rules[place(kind)].push(*rule),
                    Item::Node(node) if node.counts(now) => drop(contents.cib.insert(*node)),
                    Item::Node(_) => {}
                }
            }
        }
        let says = |kind, uid: &str| layers.iter().any(|layer| layer.says(kind, uid));
        for (kind, stage) in [(FileKind::Profile, Stage::Profile), (FileKind::Policy, Stage::Policy)] {
            let held = manager.table(stage).rules().iter().filter(|r| !says(kind, &r.uid)).cloned();
            contents.rules[place(kind)].extend(held);
        }
        for node in manager.cib().nodes().filter(|n| !says(FileKind::Cib, &n.uid)) {
            contents.cib.insert(node.clone());
        }
        layers.iter_mut().for_each(|layer| layer.uids.clear());
        contents
    }

    /// Takes nodes out.
    pub(crate) fn remove_nodes(&mut self, uids: &BTreeSet<String>) {
        uids.iter().for_each(|uid| drop(self.cib.remove(uid)));
    }

    /// Lays this on top, as the content of a layer; of several items of one uid the last one
    /// counts. The uids of the nodes for which there is no room are given back.
    pub(crate) fn lay(
        &mut self,
        layer: &mut Layer,
        items: impl IntoIterator<Item = (FileKind, Item)>,
        now: WallTime,
    ) -> Vec<String> {
        let (mut rules, mut dropped) = ([Vec::new(), Vec::new()], Vec::new());
        for (kind, item) in items {
            match item {
                Item::Rule(rule) => {
                    layer.say(kind, &rule.uid, None);
                    rules[place(kind)].push(*rule);
                }
                Item::Node(node) if node.counts(now) => {
                    let was = self.cib.remove(&node.uid).map(|was| Item::Node(Box::new(was)));
                    layer.say(kind, &node.uid, was);
                    dropped.extend(self.cib.insert(*node));
                }
                Item::Node(_) => {}
            }
        }
        for (kind, rules) in [FileKind::Profile, FileKind::Policy].into_iter().zip(rules) {
            let held = std::mem::take(&mut self.rules[place(kind)]);
            let (beneath, mut kept): (Vec<Rule>, Vec<Rule>) = held.into_iter().partition(|r| layer.says(kind, &r.uid));
            beneath.into_iter().for_each(|rule| layer.cover(kind, Item::Rule(Box::new(rule))));
            kept.extend(rules);
            self.rules[place(kind)] = kept;
        }
        dropped
    }

    /// Puts it in place at once.
    pub(crate) fn install(self, manager: &mut Manager) {
        let [profiles, policies] = self.rules;
        manager.install(profiles.into_iter().collect(), policies.into_iter().collect(), self.cib);
    }
}
