//! The characteristics information base: facts on interfaces, paths and peers, and the rows made of
//! them.
//!
//! Nodes link to nodes. Each chain of links from a root is a row; on conflict the node nearer the
//! root wins. Nodes without links that are no roots extend rows they match. Links are rebuilt
//! whenever something changed.

use super::file::Node;
use neater_base::WallTime;
use neater_property::neat::{NeatArray, NeatProperty, NeatValue};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// How many nodes are held. One more drops the one that expires first.
pub const MAX_NODES: usize = 4096;
/// How many rows are made; the rest is left out, and [`Rows::truncated`] reports that.
pub const MAX_ROWS: usize = 4096;
/// How often one node is compared with another, or stepped to, in search of rows.
const MAX_STEPS: usize = 2_000_000;
/// How many properties are copied into rows, those of intermediate results included: long paths
/// cost more than short ones.
const MAX_COPIES: usize = 400_000;

/// What is known, by uid.
#[derive(Clone, Debug, PartialEq)]
pub struct Cib {
    nodes: BTreeMap<String, Node>,
    /// Those that expire, the first one first.
    expiring: BTreeSet<(WallTime, String)>,
    room: usize,
    /// About how many bytes the nodes take.
    weight: usize,
    seen: Seen,
    /// What the rows made of it are: see [`Row::open`].
    open: bool,
}

/// What connections have seen of the way by an interface, by its name; and when the first of it
/// ends.
pub(crate) type Seen = BTreeMap<String, (NeatArray, WallTime)>;

/// What stands before the name of an interface in the path of a row that knows what connections
/// have seen.
const SEEN: &str = "measured-";

impl Default for Cib {
    fn default() -> Self {
        Self::with_room(MAX_NODES)
    }
}

/// Whether only a provisioning domain states a property of this name: it is false for a network
/// that does not. Other properties that a row lacks are mostly settings (`dscp`), which no network
/// states.
pub(crate) fn is_of_domains(key: &str) -> bool {
    key.starts_with("pvd")
}

/// One combination of facts that may hold together.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The facts.
    pub properties: NeatArray,
    /// The uids of the nodes it was made of, from the root on.
    pub path: Vec<String>,
    /// The uid of the node that extends it.
    pub extended_by: Option<String>,
    /// It serves inputs with immutable properties that it lacks, unless domains state them
    /// ([`is_of_domains`]). NEAT's rows do not; but where rows are all that policies know of
    /// interfaces, one that did not would be passed by, and every policy about it.
    pub(crate) open: bool,
}

impl Row {
    /// Adds what was seen of its interface. The row's own properties take precedence.
    fn see(&mut self, seen: &Seen, now: WallTime) {
        let Some(NeatValue::Text(interface)) = self.properties.get("interface").map(|p| &p.value) else { return };
        if let Some((facts, _)) = seen.get(interface).filter(|(_, ends)| ends.0 > now.0) {
            self.path.push(format!("{SEEN}{interface}"));
            self.properties = self.properties.over(facts);
        }
    }

    /// The property of an input, if any, for which this row cannot serve it: one that is immutable,
    /// and not in the row (unless that is open) or immutable there with values that do not match.
    pub(crate) fn against<'a>(&self, input: &'a NeatArray) -> Option<&'a NeatProperty> {
        input.iter().filter(|p| p.precedence >= NeatProperty::IMMUTABLE).find(|p| {
            let held = self.properties.get(&p.key);
            held.map_or(!self.open || is_of_domains(&p.key), |held| {
                held.precedence >= NeatProperty::IMMUTABLE && !held.matches(p)
            })
        })
    }
}

/// The rows that only one of two lists has, or that stand elsewhere among the others.
pub(crate) fn changed<'a>(old: &'a [Row], new: &'a [Row]) -> Vec<&'a Row> {
    let ahead = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[ahead..], &new[ahead..]);
    let behind = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[..old.len() - behind], &new[..new.len() - behind]);
    // Rows of one path stand together, so that the first place is near.
    let mut places: BTreeMap<(&[String], Option<&str>), Vec<usize>> = BTreeMap::new();
    for (i, row) in old.iter().enumerate() {
        places.entry((&row.path, row.extended_by.as_deref())).or_default().push(i);
    }
    let (mut next, mut changed) = (0, Vec::new());
    for row in new {
        let places = places.get(&(&row.path[..], row.extended_by.as_deref())).map_or(&[][..], Vec::as_slice);
        match places.iter().find(|&&i| i >= next && old[i] == *row) {
            Some(&i) => {
                changed.extend(&old[next..i]);
                next = i + 1;
            }
            None => changed.push(row),
        }
    }
    changed.extend(&old[next..]);
    changed
}

/// The rows of a CIB at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// The rows, in the order of the uids along their paths, then the extended ones.
    pub rows: Vec<Row>,
    /// When the first of the nodes expires.
    pub until: Option<WallTime>,
    /// Whether there would be more than [`MAX_ROWS`].
    pub truncated: bool,
}

impl Cib {
    /// Nothing is known yet, and at most `room` nodes will be.
    #[must_use]
    pub const fn with_room(room: usize) -> Self {
        Self { nodes: BTreeMap::new(), expiring: BTreeSet::new(), room, weight: 0, seen: BTreeMap::new(), open: false }
    }

    /// Whether rows serve inputs with immutable properties that they lack.
    pub(crate) const fn set_open(&mut self, open: bool) {
        self.open = open;
    }

    pub(crate) const fn is_open(&self) -> bool {
        self.open
    }

    /// Puts a node in; one of the same uid goes. Where there is no room, the one that expires first
    /// goes, too, or the first one by its uid where none does: its uid is given back.
    pub fn insert(&mut self, node: Node) -> Option<String> {
        let mut victim = None;
        if self.remove(&node.uid).is_none() && self.nodes.len() >= self.room {
            let first = self.expiring.first().map(|(_, uid)| uid).or_else(|| self.nodes.keys().next()).cloned();
            victim = first.inspect(|uid| drop(self.remove(uid)));
        }
        if let Some(at) = node.expires {
            self.expiring.insert((at, node.uid.clone()));
        }
        self.weight += node.weight();
        self.nodes.insert(node.uid.clone(), node);
        victim
    }

    /// About how many bytes the nodes take.
    #[must_use]
    pub const fn weight(&self) -> usize {
        self.weight
    }

    /// Takes a node out, by its uid.
    pub fn remove(&mut self, uid: &str) -> Option<Node> {
        let node = self.nodes.remove(uid)?;
        self.weight -= node.weight();
        if let Some(at) = node.expires {
            self.expiring.remove(&(at, node.uid.clone()));
        }
        Some(node)
    }

    /// Every row of these interfaces has what was seen of them, beside whatever else it was made
    /// of, and no other row has; whether that is new. It takes no room from nodes, and a row's own
    /// properties stay as they were.
    pub(crate) fn set_seen(&mut self, seen: Seen) -> bool {
        let is_new = seen != self.seen;
        self.seen = seen;
        is_new
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// A node by its uid.
    #[must_use]
    pub fn get(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// The nodes in the order of their uids.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    /// Drops the nodes that do not count any more at `now`.
    pub fn purge(&mut self, now: WallTime) {
        while let Some((at, _)) = self.expiring.first()
            && at.0 <= now.0
        {
            if let Some((_, uid)) = self.expiring.pop_first() {
                self.remove(&uid);
            }
        }
    }

    /// The rows that hold at `now`.
    #[must_use]
    pub fn rows(&self, now: WallTime) -> Rows {
        let nodes: Vec<&Node> = self.nodes.values().filter(|n| n.counts(now)).collect();
        let seen = || self.seen.values().filter(|(_, ends)| ends.0 > now.0);
        let until = nodes.iter().filter_map(|n| n.expires).chain(seen().map(|(_, ends)| *ends)).min();
        let (linked, truncated) = links(&nodes);
        let on_path = vec![false; nodes.len()];
        let mut walk =
            Walk { linked, nodes, on_path, rows: Vec::new(), steps: 0, copies: 0, truncated, open: self.open };
        for root in 0..walk.nodes.len() {
            if walk.nodes[root].root {
                walk.on_path[root] = true;
                walk.paths(&mut vec![root]);
                walk.on_path[root] = false;
            }
        }
        walk.extend();
        let Walk { mut rows, truncated, .. } = walk;
        if seen().next().is_some() {
            rows.iter_mut().for_each(|row| row.see(&self.seen, now));
        }
        Rows { rows, until, truncated }
    }
}

/// For each node, the nodes that link to it, in the order of their uids; and whether there was more
/// to compare than is.
fn links(nodes: &[&Node]) -> (Vec<Vec<usize>>, bool) {
    let with_uid = |node: &Node| -> Vec<NeatArray> {
        let uid = NeatProperty::new("uid", node.uid.as_str());
        let add = |array: &NeatArray| {
            let mut array = array.clone();
            array.replace(uid.clone());
            array
        };
        node.alternatives.iter().map(add).collect()
    };
    let targets: Vec<Vec<NeatArray>> = nodes.iter().map(|n| with_uid(n)).collect();
    // Most links name a single text, so that only the nodes with that text need be looked at.
    let mut by_text: BTreeMap<(&str, &str), BTreeSet<usize>> = BTreeMap::new();
    let mut untold: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for (i, arrays) in targets.iter().enumerate() {
        for p in arrays.iter().flat_map(NeatArray::iter) {
            match &p.value {
                NeatValue::Text(t) => {
                    by_text.entry((&p.key, t)).or_default().insert(i);
                }
                _ => {
                    untold.entry(&p.key).or_default().insert(i);
                }
            }
        }
    }
    let everyone: Rc<BTreeSet<usize>> = Rc::new((0..nodes.len()).collect());
    let candidates = |entry: &NeatArray| -> Rc<BTreeSet<usize>> {
        let text = entry.iter().find_map(|p| match &p.value {
            NeatValue::Text(t) => Some((p.key.as_str(), t.as_str())),
            _ => None,
        });
        let Some((key, t)) = text else { return Rc::clone(&everyone) };
        let exact = by_text.get(&(key, t)).into_iter().flatten();
        Rc::new(exact.chain(untold.get(key).into_iter().flatten()).copied().collect())
    };
    let mut linked: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    let mut steps = 0;
    for (linker, node) in nodes.iter().enumerate().filter(|(_, n)| n.link) {
        let mut found = BTreeSet::new();
        for entry in &node.matches {
            for &target in candidates(entry).iter() {
                steps += targets[target].len();
                if steps > MAX_STEPS {
                    return (linked, true);
                }
                if target != linker && targets[target].iter().any(|array| entry.is_subset_of(array)) {
                    found.insert(target);
                }
            }
        }
        found.into_iter().for_each(|target| linked[target].push(linker));
    }
    (linked, false)
}

struct Walk<'a> {
    nodes: Vec<&'a Node>,
    linked: Vec<Vec<usize>>,
    on_path: Vec<bool>,
    rows: Vec<Row>,
    steps: usize,
    copies: usize,
    truncated: bool,
    open: bool,
}

impl Walk<'_> {
    /// Makes the rows of every path that goes on from `path` as far as it can, visiting no node
    /// twice.
    fn paths(&mut self, path: &mut Vec<usize>) {
        let Some(&end) = path.last() else { return };
        self.steps += 1 + self.linked[end].len();
        if self.truncated || self.steps > MAX_STEPS || self.rows.len() >= MAX_ROWS {
            self.truncated = true;
            return;
        }
        let mut is_end = true;
        for at in 0..self.linked[end].len() {
            let next = self.linked[end][at];
            if !self.truncated && !core::mem::replace(&mut self.on_path[next], true) {
                is_end = false;
                path.push(next);
                self.paths(path);
                path.pop();
                self.on_path[next] = false;
            }
        }
        if is_end {
            self.join(path);
        }
    }

    /// Makes one row for each combination of the alternatives of the nodes on `path`.
    fn join(&mut self, path: &[usize]) {
        let uids: Vec<String> = path.iter().map(|&i| self.nodes[i].uid.clone()).collect();
        let mut joined = vec![NeatArray::new()];
        for &i in path {
            let alternatives = &self.nodes[i].alternatives;
            let (had, more) = (joined.iter().map(NeatArray::len), alternatives.iter().map(NeatArray::len));
            let (had, more) = (had.sum::<usize>(), more.sum::<usize>());
            let copied = had.saturating_mul(alternatives.len()).saturating_add(more.saturating_mul(joined.len()));
            self.copies = self.copies.saturating_add(copied.max(1));
            if self.copies > MAX_COPIES {
                self.truncated = true;
                return;
            }
            if joined.len().saturating_mul(alternatives.len()) + self.rows.len() > MAX_ROWS {
                self.truncated = true;
                return;
            }
            let below = |row: &NeatArray| -> Vec<NeatArray> {
                // The node nearer the root wins.
                alternatives.iter().map(|alternative| row.over(alternative)).collect()
            };
            joined = joined.iter().flat_map(below).collect();
        }
        let open = self.open;
        let row = |properties| Row { properties, path: uids.clone(), extended_by: None, open };
        self.rows.extend(joined.into_iter().map(row));
    }

    /// Adds the extended rows. Extensions are made of what the paths gave alone, and do not meet
    /// each other.
    fn extend(&mut self) {
        let base = self.rows.len();
        for node in self.nodes.iter().filter(|n| !n.link && !n.root) {
            for at in 0..base {
                let row = &self.rows[at];
                self.steps += 1;
                if self.steps > MAX_STEPS {
                    self.truncated = true;
                    return;
                }
                if !node.matches.iter().any(|entry| entry.is_subset_of(&row.properties)) {
                    continue;
                }
                let more: usize = node.alternatives.iter().map(|a| a.len() + row.properties.len()).sum();
                self.copies = self.copies.saturating_add(more);
                if self.copies > MAX_COPIES {
                    self.truncated = true;
                    return;
                }
                let path = row.path.clone();
                let over = |alternative: &NeatArray| {
                    let mut properties = alternative.over(&row.properties);
                    properties.remove("uid");
                    Row { properties, path: path.clone(), extended_by: Some(node.uid.clone()), open: self.open }
                };
                let extended: Vec<Row> = node.alternatives.iter().map(over).collect();
                if self.rows.len() + extended.len() > MAX_ROWS {
                    self.truncated = true;
                    return;
                }
                self.rows.extend(extended);
            }
        }
    }
}
