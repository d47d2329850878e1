//! The daemon's state, for each user.
//!
//! What root and the daemon's own user wrote, and what its files contain, is the **base** and
//! applies to all users. What any other user wrote is kept apart, and applies to that user alone:
//! decisions for such a guest are made by a manager of its own, the guest's **view**, in which both
//! are together.

use super::metrics::Counters;
use super::published::Published;
use core::fmt;
use neater_base::WallTime;
use neater_policy::manager::{
    Cib, Decision, FileKind, Item, Layer, Limits, Loader, MAX_CANDIDATES, Manager, Node, Report, Requests, Rule,
    SourceFile, Stage, Trace, add_ready,
};
use neater_property::Fingerprint;
use neater_property::neat::NeatArray;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many users besides root and the daemon's own may have written something at one time.
pub const MAX_GUESTS: usize = 64;
/// How many profiles and policies one of them may have.
pub const MAX_GUEST_RULES: usize = 256;
/// How many nodes one of them may have. One more drops the one that expires first.
pub const MAX_GUEST_NODES: usize = 1024;
/// About how many bytes the rules and nodes of one of them may take together. A rule's alternatives
/// count once for each combination.
pub const MAX_GUEST_BYTES: usize = 4 << 20;
/// How many views are kept; the least recently used one is dropped, and rebuilt when it is used
/// again.
pub const MAX_VIEWS: usize = 16;
/// How many requests one document may expand to. A daemon serves others meanwhile, so that this is
/// less than for a library.
pub const MAX_REQUESTS: usize = 256;
/// How many properties one of them may have.
pub const MAX_PROPERTIES: usize = 512;
/// How many properties they may have together.
pub const MAX_ALL_PROPERTIES: usize = 16_384;
/// How many steps one decision may take where it is made in the plain form: some tenths of a
/// second.
const MAX_STEPS: u64 = 4_000_000;

/// About how many bytes the explained steps of one decision may take: those of some thousand
/// candidates, for one client at a time.
const MAX_TOLD: usize = 64 << 20;

/// The options of a daemon's start.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many candidates are kept.
    pub limits: Limits,
    /// The user the daemon runs as, who may do what root may.
    pub owner: u32,
    /// Whether the profiles and policies that come with neater count.
    pub ready: bool,
    /// Whether there is a directory in which policies and profiles are kept.
    pub keeps_rules: bool,
}

/// What is to be done outside: files of the policy directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Write this text to this file of the directory.
    Save {
        /// A name without a path.
        file: String,
        /// Its new content.
        text: String,
        /// The daemon knows of no file of this name with this rule: a file that exists already,
        /// perhaps broken or a user's notes, must stay.
        new: bool,
    },
    /// Remove this file of the directory.
    Remove {
        /// A name without a path.
        file: String,
    },
}

/// Why something is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It belongs to another user.
    NotYours,
    /// There is no such thing.
    Unknown,
    /// One user has as much as one may have.
    Full,
    /// Too many users have written something.
    Crowded,
    /// A file of the directories defines it.
    Filed,
    /// It comes with the daemon.
    Ready,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotYours => f.write_str("this uid belongs to another user, or to the system: choose another one"),
            Self::Unknown => f.write_str("unknown uid"),
            Self::Full => write!(
                f,
                "one user may have {MAX_GUEST_RULES} profiles and policies, and with nodes {MAX_GUEST_BYTES} bytes of \
                 them: remove some first"
            ),
            Self::Filed => f.write_str("a file of the CIB directory defines this node: change the file"),
            Self::Ready => f.write_str(
                "this comes with neater: put one of your own with this uid in its place, or start with --bare",
            ),
            Self::Crowded => write!(f, "{MAX_GUESTS} users have rules or nodes here; no more is taken from others"),
        }
    }
}

impl std::error::Error for Refusal {}

/// A document asks for more work than one may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMuch;

impl fmt::Display for TooMuch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "this asks for too much: a document stands for at most {MAX_REQUESTS} requests, of {MAX_PROPERTIES} properties each \
             and {MAX_ALL_PROPERTIES} together, which lead to at most {MAX_CANDIDATES} candidates at once"
        )
    }
}

impl std::error::Error for TooMuch {}

/// What one user wrote.
#[derive(Debug)]
struct Guest {
    rules: BTreeMap<(Stage, String), Rule>,
    nodes: Cib,
    view: Option<Box<Manager>>,
    /// When something of it changed last, in changes of the daemon; and what was published of its
    /// nodes.
    changed: u64,
    published: Published,
    /// When the view was asked last, in decisions of the daemon.
    asked: u64,
}

impl Guest {
    fn new() -> Self {
        let nodes = Cib::with_room(MAX_GUEST_NODES);
        Self { rules: BTreeMap::new(), nodes, view: None, changed: 0, published: Published::default(), asked: 0 }
    }

    /// About how many bytes it takes, but for the view.
    fn weight(&self) -> usize {
        self.rules.values().map(Rule::weight).sum::<usize>() + self.nodes.weight()
    }

    fn is_empty(&mut self, now: WallTime) -> bool {
        self.nodes.purge(now);
        self.rules.is_empty() && self.nodes.is_empty()
    }
}

/// The state of the daemon.
#[derive(Debug)]
pub struct Daemon {
    base: Manager,
    loader: Loader,
    guests: BTreeMap<u32, Guest>,
    options: Options,
    trusted: BTreeSet<u32>,
    effects: Vec<Effect>,
    /// The files that were to be written since the directories were read last.
    saved: BTreeMap<(Stage, String), String>,
    /// The nodes of each source of one's own, by uid.
    pub(crate) sources: BTreeMap<String, BTreeSet<String>>,
    /// What connections of programs have seen.
    pub(crate) facts: super::facts::Facts,
    /// The nodes of this host's networks.
    pub(crate) networks: super::networks::Networks,
    /// What programs sent and no file defines: what lies beneath it.
    layer: Layer,
    /// How often something changed, from 1, and when something did last that applies to all users.
    changes: u64,
    changed: u64,
    /// What programs were sent of the nodes that apply to all users.
    published: Published,
    /// Tables that are being sent.
    pub(crate) snapshots: super::tables::Snapshots,
    /// What happened so far.
    pub counters: Counters,
}

impl Daemon {
    /// A daemon without files.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let mut base = Manager::patient(options.limits, MAX_STEPS);
        if options.ready {
            add_ready(&mut base);
        }
        Self {
            base,
            loader: Loader::default(),
            guests: BTreeMap::new(),
            options,
            trusted: BTreeSet::new(),
            effects: Vec::new(),
            saved: BTreeMap::new(),
            sources: BTreeMap::new(),
            facts: super::facts::Facts::default(),
            networks: super::networks::Networks::default(),
            layer: Layer::default(),
            changes: 1,
            changed: 1,
            published: Published::default(),
            snapshots: super::tables::Snapshots::default(),
            counters: Counters::default(),
        }
    }

    /// What applies to all users.
    #[must_use]
    pub const fn base(&self) -> &Manager {
        &self.base
    }

    /// The rows of the CIB that apply to all users at `now`.
    pub fn rows(&mut self, now: WallTime) -> &neater_policy::manager::Rows {
        self.base.rows(now)
    }

    /// Whether what this user writes applies to all users.
    #[must_use]
    pub fn is_trusted(&self, user: u32) -> bool {
        user == 0 || user == self.options.owner || self.trusted.contains(&user)
    }

    /// What this user writes applies to all users from now on, as what the daemon's own user
    /// writes: a program that reports modems, for example, and runs as a user of its own. What it
    /// wrote before is forgotten.
    pub fn trust(&mut self, user: u32) {
        self.guests.remove(&user);
        self.trusted.insert(user);
    }

    /// The user the daemon runs as.
    #[must_use]
    pub const fn owner(&self) -> u32 {
        self.options.owner
    }

    /// How many users have something of their own here.
    #[must_use]
    pub fn guests(&self) -> usize {
        self.guests.len()
    }

    /// Takes the contents of the directories' files, all at once; the earlier content of a file
    /// that cannot be understood stays in force.
    pub fn load(&mut self, pib: &[SourceFile<'_>], cib: &[SourceFile<'_>], now: WallTime) -> Report {
        let report = self.loader.load(&mut self.base, pib, cib, now);
        if report.changed {
            self.base_changed();
            self.forget_views();
            // What was sent has become the content of its file.
            for (stage, uid) in self.layer.rules() {
                if self.loader.says(kind(stage), &uid) {
                    let beneath = self.layer.release(kind(stage), &uid);
                    self.loader.layer().uncover(kind(stage), &uid);
                    if let Some(item) = beneath {
                        self.loader.layer().cover(kind(stage), item);
                    }
                }
            }
            let loader = &mut self.loader;
            self.networks.give_way(|uid| {
                // It is rebuilt when the file goes.
                loader.says(FileKind::Cib, uid) && {
                    loader.layer().uncover(FileKind::Cib, uid);
                    true
                }
            });
            self.settle_networks(now);
        }
        self.saved.clear();
        self.counters.loads += 1;
        self.counters.faults = report.faults.iter().filter(|f| !f.harmless).count() as u64;
        report
    }

    /// What is to be done outside since this was asked last.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// A file was not written: it contains no rule of ours, and must not be removed with one.
    pub fn not_saved(&mut self, file: &str) {
        self.saved.retain(|_, held| held != file);
    }

    /// The file that contains a rule, or is about to.
    fn file_of(&self, stage: Stage, uid: &str) -> Option<String> {
        let saved = self.saved.get(&(stage, uid.to_string())).cloned();
        saved.or_else(|| self.loader.file_of(kind(stage), uid))
    }

    /// Something changed that applies to all users.
    fn base_changed(&mut self) {
        self.changes += 1;
        self.changed = self.changes;
    }

    fn forget_views(&mut self) {
        self.guests.values_mut().for_each(|guest| guest.view = None);
    }

    /// The part of a user who is no root; made if there is room.
    fn guest(&mut self, user: u32, now: WallTime) -> Result<&mut Guest, Refusal> {
        if self.guests.len() >= MAX_GUESTS && !self.guests.contains_key(&user) {
            self.guests.retain(|_, guest| !guest.is_empty(now));
            if self.guests.len() >= MAX_GUESTS {
                return Err(Refusal::Crowded);
            }
        }
        Ok(self.guests.entry(user).or_insert_with(Guest::new))
    }

    /// Whether a user may write these rules, as far as they go beyond what the user has.
    fn may_put(&self, user: u32, rules: &[(Stage, Rule)]) -> Result<(), Refusal> {
        if rules.iter().any(|(stage, rule)| self.base.table(*stage).get(&rule.uid).is_some()) {
            return Err(Refusal::NotYours);
        }
        let held = self.guests.get(&user).map(|guest| &guest.rules);
        let new = rules
            .iter()
            .filter(|(stage, rule)| held.is_none_or(|held| !held.contains_key(&(*stage, rule.uid.clone()))))
            .count();
        if held.map_or(0, BTreeMap::len) + new > MAX_GUEST_RULES {
            return Err(Refusal::Full);
        }
        // What is replaced goes, once, however often it is named.
        let keys: BTreeSet<(Stage, String)> = rules.iter().map(|(stage, rule)| (*stage, rule.uid.clone())).collect();
        let less = keys.iter().filter_map(|key| held?.get(key)).map(Rule::weight).sum();
        self.has_room(user, rules.iter().map(|(_, rule)| rule.weight()).sum(), less)
    }

    /// Whether a guest may have so many bytes `more` and so many `less`, of those that there are.
    fn has_room(&self, user: u32, more: usize, less: usize) -> Result<(), Refusal> {
        let held = self.guests.get(&user).map_or(0, Guest::weight).saturating_sub(less);
        if held.saturating_add(more) > MAX_GUEST_BYTES { Err(Refusal::Full) } else { Ok(()) }
    }

    /// Puts a user's rules in, all or none; those of the same uids go.
    ///
    /// # Errors
    /// [`Refusal`] when one of the uids is not the user's, or there is no room.
    pub fn put_rules(&mut self, user: u32, rules: Vec<(Stage, Rule)>, now: WallTime) -> Result<(), Refusal> {
        if self.is_trusted(user) {
            for (stage, rule) in rules {
                let was = self.base.table(stage).get(&rule.uid).cloned();
                if was.as_ref() != Some(&rule) {
                    self.base_changed();
                }
                if !self.loader.says(kind(stage), &rule.uid) {
                    self.layer.say(kind(stage), &rule.uid, was.map(|was| Item::Rule(Box::new(was))));
                }
                if self.options.keeps_rules {
                    let known = self.file_of(stage, &rule.uid);
                    let (new, file) = (known.is_none(), known.unwrap_or_else(|| file_name(stage, &rule.uid)));
                    self.saved.insert((stage, rule.uid.clone()), file.clone());
                    self.effects.push(Effect::Save { file, text: format!("{:#}\n", rule.to_json()), new });
                }
                self.base.insert_rule(stage, rule);
            }
            self.forget_views();
        } else {
            self.may_put(user, &rules)?;
            self.changes += 1;
            let changes = self.changes;
            let guest = self.guest(user, now)?;
            for (stage, rule) in rules {
                if guest.rules.get(&(stage, rule.uid.clone())) == Some(&rule) {
                    continue;
                }
                guest.changed = changes;
                if let Some(view) = &mut guest.view {
                    view.insert_rule(stage, rule.clone());
                }
                guest.rules.insert((stage, rule.uid.clone()), rule);
            }
        }
        Ok(())
    }

    /// Takes a user's rule out.
    ///
    /// # Errors
    /// [`Refusal`] when there is none, or it is not the user's.
    pub fn remove_rule(&mut self, user: u32, stage: Stage, uid: &str) -> Result<(), Refusal> {
        let uid = uid.to_lowercase();
        if self.is_trusted(user) {
            let there = self.base.table(stage).get(&uid).is_some();
            if there && !self.loader.says(kind(stage), &uid) && !self.layer.says(kind(stage), &uid) {
                return Err(Refusal::Ready);
            }
            self.base.remove_rule(stage, &uid).ok_or(Refusal::Unknown)?;
            self.base_changed();
            if let Some(file) = self.file_of(stage, &uid) {
                self.effects.push(Effect::Remove { file });
            }
            // What lay beneath counts again.
            let of_file = self.loader.layer().release(kind(stage), &uid);
            if let Some(Item::Rule(rule)) = of_file.or_else(|| self.layer.release(kind(stage), &uid)) {
                self.base.insert_rule(stage, *rule);
            }
            self.saved.remove(&(stage, uid));
            self.forget_views();
            return Ok(());
        }
        let guest = self.guests.get_mut(&user);
        let key = (stage, uid);
        if let Some(guest) = guest
            && guest.rules.remove(&key).is_some()
        {
            self.changes += 1;
            guest.changed = self.changes;
            if let Some(view) = &mut guest.view {
                view.remove_rule(stage, &key.1);
            }
            return Ok(());
        }
        Err(if self.base.table(stage).get(&key.1).is_some() { Refusal::NotYours } else { Refusal::Unknown })
    }

    /// Puts a user's nodes in, all or none; those of the same uids go.
    ///
    /// # Errors
    /// [`Refusal`] when one of the uids is not the user's, or there is no room.
    pub fn put_nodes(&mut self, user: u32, nodes: Vec<Node>, now: WallTime) -> Result<(), Refusal> {
        self.counters.nodes_told += nodes.len() as u64;
        if nodes.iter().any(|node| self.networks.own(&node.uid)) {
            return Err(Refusal::NotYours);
        }
        if self.is_trusted(user) {
            // The next change of any file would put the file's back.
            if nodes.iter().any(|node| self.is_filed(&node.uid, now)) {
                return Err(Refusal::Filed);
            }
            self.put_base(nodes, now);
            return Ok(());
        }
        if nodes.iter().any(|node| self.base.cib().get(&node.uid).is_some_and(|held| held.counts(now))) {
            return Err(Refusal::NotYours);
        }
        let held = &mut self.guest(user, now)?.nodes;
        held.purge(now);
        let uids: BTreeSet<&str> = nodes.iter().map(|node| node.uid.as_str()).collect();
        let less = uids.iter().filter_map(|uid| held.get(uid)).map(Node::weight).sum();
        // What has ended takes an old one away.
        let more = nodes.iter().filter(|node| node.counts(now)).map(Node::weight).sum();
        self.has_room(user, more, less)?;
        let mut changes = self.changes;
        let guest = self.guest(user, now)?;
        for node in nodes {
            if guest.published.is_news(guest.nodes.get(&node.uid), &node, now) {
                changes += 1;
                guest.changed = changes;
            }
            if let Some(view) = &mut guest.view {
                view.insert_node(node.clone(), now);
            }
            if !node.counts(now) {
                guest.nodes.remove(&node.uid);
                continue;
            }
            let dropped = guest.nodes.insert(node);
            if let (Some(uid), Some(view)) = (dropped, &mut guest.view) {
                view.remove_node(&uid);
            }
        }
        self.changes = changes;
        Ok(())
    }

    /// Whether a file has a node of this uid in force. An expired one leaves the uid to others, as
    /// long as its file is unchanged.
    fn is_filed(&self, uid: &str, now: WallTime) -> bool {
        self.loader.says(FileKind::Cib, uid) && self.base.cib().get(uid).is_some_and(|node| node.counts(now))
    }

    /// Puts nodes in that apply to all users.
    pub(crate) fn put_base(&mut self, nodes: Vec<Node>, now: WallTime) {
        for node in nodes {
            self.put_base_node(node, true, now);
        }
    }

    /// Puts a node in that applies to all users, and is sent to programs if it is to be
    /// `published`.
    pub(crate) fn put_base_node(&mut self, node: Node, published: bool, now: WallTime) {
        if self.is_filed(&node.uid, now) {
            // It counts again when the file is gone.
            self.loader.layer().cover(FileKind::Cib, Item::Node(Box::new(node)));
            return;
        }
        // The file's has ended, if there is one: what lay beneath it is replaced.
        self.loader.layer().release(FileKind::Cib, &node.uid);
        if published && self.published.is_news(self.base.cib().get(&node.uid), &node, now) {
            self.base_changed();
        }
        for guest in self.guests.values_mut() {
            // A node that applies to all users replaces a user's own.
            guest.nodes.remove(&node.uid);
            if let Some(view) = &mut guest.view {
                view.insert_node(node.clone(), now);
            }
        }
        self.base.insert_node(node, now);
    }

    /// Takes a node out that applied to all users, and that was sent to programs if it was
    /// `published`.
    pub(crate) fn remove_base(&mut self, uid: &str, published: bool) -> Result<(), Refusal> {
        if self.loader.says(FileKind::Cib, uid) {
            return self.loader.layer().uncover(FileKind::Cib, uid).map(|_| ()).ok_or(Refusal::Unknown);
        }
        self.base.remove_node(uid).ok_or(Refusal::Unknown)?;
        if published {
            self.base_changed();
        }
        self.guests.values_mut().filter_map(|g| g.view.as_mut()).for_each(|view| drop(view.remove_node(uid)));
        Ok(())
    }

    /// Takes a user's node out.
    ///
    /// # Errors
    /// [`Refusal`] when there is none, or it is not the user's.
    pub fn remove_node(&mut self, user: u32, uid: &str) -> Result<(), Refusal> {
        if self.networks.own(uid) {
            return Err(Refusal::NotYours);
        }
        if self.is_trusted(user) {
            if self.loader.says(FileKind::Cib, uid) {
                return Err(Refusal::Filed);
            }
            return self.remove_base(uid, true);
        }
        if let Some(guest) = self.guests.get_mut(&user)
            && guest.nodes.remove(uid).is_some()
        {
            self.changes += 1;
            guest.changed = self.changes;
            if let Some(view) = &mut guest.view {
                view.remove_node(uid);
            }
            return Ok(());
        }
        Err(if self.base.cib().get(uid).is_some() { Refusal::NotYours } else { Refusal::Unknown })
    }

    /// What a document asks for, if that is not too much.
    fn is_modest(requests: &Requests) -> Result<(), TooMuch> {
        let long = |array: &NeatArray| array.len() > MAX_PROPERTIES;
        let all: usize = requests.arrays.iter().map(NeatArray::len).sum();
        if requests.arrays.len() > MAX_REQUESTS || all > MAX_ALL_PROPERTIES || requests.arrays.iter().any(long) {
            return Err(TooMuch);
        }
        Ok(())
    }

    /// Decides for a user, and explains every step.
    ///
    /// # Errors
    /// As for [`decide`](Self::decide), and where the explanation exceeds some megabytes.
    pub fn explain(&mut self, user: u32, requests: &Requests, now: WallTime) -> Result<Trace, TooMuch> {
        Self::is_modest(requests)?;
        let facts = self.put_facts_of(user, requests, now);
        let explained = self.manager_of(user, now).explain_within(requests, now, MAX_TOLD);
        if facts {
            self.take_facts(user, now);
        }
        explained.map_err(|_| TooMuch)
    }

    /// Decides for a user.
    ///
    /// # Errors
    /// [`TooMuch`] when the requests are more than [`MAX_REQUESTS`], have more than
    /// [`MAX_PROPERTIES`] each or [`MAX_ALL_PROPERTIES`] together, or lead to too many candidates.
    pub fn decide(&mut self, user: u32, requests: &Requests, now: WallTime) -> Result<Arc<Decision>, TooMuch> {
        Self::is_modest(requests)?;
        self.counters.decisions += 1;
        let facts = self.put_facts_of(user, requests, now);
        let manager = self.manager_of(user, now);
        let before = manager.cache_hits();
        let decision = manager.decide(requests, now);
        let hits = manager.cache_hits() - before;
        self.counters.cached += hits;
        if facts {
            self.take_facts(user, now);
        }
        decision.map_err(|_| TooMuch)
    }

    /// The tables that steer a user.
    fn view_for(&mut self, user: u32, asked: u64, now: WallTime) -> &mut Manager {
        let guest = self.guests.get_mut(&user).filter(|guest| !guest.rules.is_empty() || !guest.nodes.is_empty());
        if let Some(guest) = guest {
            guest.asked = asked;
            if guest.view.is_none() {
                guest.view = Some(Box::new(view(&self.base, guest, now)));
                self.drop_views(user);
            }
        }
        let view = self.guests.get_mut(&user).and_then(|guest| guest.view.as_deref_mut());
        view.unwrap_or(&mut self.base)
    }

    /// The tables that steer a user.
    pub(crate) fn manager_of(&mut self, user: u32, now: WallTime) -> &mut Manager {
        let asked = self.counters.decisions;
        self.view_for(user, asked, now)
    }

    /// What identifies all tables of one time: never the same twice in a run of the daemon.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.changes
    }

    /// What identifies the tables of one time that a user's programs are given. What others wrote
    /// for themselves changes nothing for this one.
    #[must_use]
    pub fn version_of(&self, user: u32) -> u64 {
        self.guests.get(&user).map_or(0, |guest| guest.changed).max(self.changed)
    }

    /// Whether a user has something beside what applies to all users.
    pub(crate) fn has_own(&self, user: u32) -> bool {
        self.guests.get(&user).is_some_and(|guest| !guest.rules.is_empty() || !guest.nodes.is_empty())
    }

    /// How many views there are.
    #[cfg(test)]
    pub(crate) fn views(&self) -> usize {
        self.guests.values().filter(|g| g.view.is_some()).count()
    }

    /// How many nodes a guest has.
    #[cfg(test)]
    pub(crate) fn guest_nodes(&self, user: u32) -> usize {
        self.guests.get(&user).map_or(0, |g| g.nodes.nodes().count())
    }

    /// Drops the views beyond [`MAX_VIEWS`] that were asked longest ago; never that of `user`.
    fn drop_views(&mut self, user: u32) {
        let mut asked: Vec<(u64, u32)> =
            self.guests.iter().filter(|(_, g)| g.view.is_some()).map(|(u, g)| (g.asked, *u)).collect();
        asked.sort_unstable();
        let more = asked.len().saturating_sub(MAX_VIEWS);
        for (_, old) in asked.into_iter().filter(|(_, u)| *u != user).take(more) {
            if let Some(guest) = self.guests.get_mut(&old) {
                guest.view = None;
            }
        }
    }
}

/// The base and what a guest wrote, where the base has nothing of that name.
fn view(base: &Manager, guest: &Guest, now: WallTime) -> Manager {
    let mut view = base.clone();
    for ((stage, uid), rule) in &guest.rules {
        if base.table(*stage).get(uid).is_none() {
            view.insert_rule(*stage, rule.clone());
        }
    }
    for node in guest.nodes.nodes() {
        if base.cib().get(&node.uid).is_none() {
            view.insert_node(node.clone(), now);
        }
    }
    view
}

const fn kind(stage: Stage) -> FileKind {
    match stage {
        Stage::Profile => FileKind::Profile,
        Stage::Policy => FileKind::Policy,
    }
}

/// The name of the file of a rule that has none yet. What is no plain name becomes a number: a uid
/// comes from outside, and must lead nowhere else.
fn file_name(stage: Stage, uid: &str) -> String {
    let ending = if stage == Stage::Profile { "profile" } else { "policy" };
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.');
    if uid.len() <= 100 && !uid.starts_with('.') && uid.bytes().all(plain) {
        return format!("{uid}.{ending}");
    }
    let mut f = Fingerprint::default();
    f.text(uid);
    format!("uid-{:016x}.{ending}", f.finish())
}
