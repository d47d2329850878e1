//! NEAT's policy manager: requests, profiles, the CIB and policies in, ranked candidates out.
//!
//! A request is a set of properties. **Profiles** expand it (`reliable`: SCTP or TCP), rows of the
//! **CIB** (characteristics information base) add facts on interfaces and peers, **policies** apply
//! last, and candidates are ranked by score. The formats are NEAT's at commit a5e1662, without the
//! defects that its test vectors name (decision 0021 lists them); `docs/policy.md` describes the
//! formats with examples.
//!
//! *Key types*: [`Manager`] holds the tables and decides; [`Requests`] is the input; [`Loader`]
//! fills the tables from files; [`Trace`] records how a decision came about.
//!
//! *Invariants*: a decision is a function of the tables, the request and the time; candidates of
//! equal score keep the order in which they arose; no input makes the manager grow beyond its
//! bounds.

mod cache;
mod cib;
mod compiled;
mod decision;
mod diagnostics;
mod document;
mod expect;
mod file;
mod layer;
mod loader;
mod pib;
mod plain;
mod ready;
mod story;
mod trace;
pub mod vectors;

pub use cib::{Cib, MAX_NODES, MAX_ROWS, Row, Rows};
pub use decision::{Decided, Decision};
pub(crate) use document::told_key;
pub use document::{MAX_CANDIDATES, Requests, to_text, told};
pub use expect::{Tested, test};
pub(crate) use file::of_value;
pub use file::{Fault, MAX_UID, Node, Rule};
pub(crate) use layer::Contents;
pub use layer::{Item, Layer};
pub use loader::{FileKind, Loader, MAX_FILES, Report, SourceFile, check, check_all, line_of};
pub use pib::Table;
pub use ready::{MBB_POLICY_2, MBB_POLICY_3, READY, add_ready};
pub(crate) use story::difference;
pub use trace::{Event, MAX_EVENTS, Miss, Origin, Stage, Trace, Traced};

use cache::Cache;
use cib::Seen;
use compiled::Compiled;
use neater_base::WallTime;
use neater_property::neat::{NeatArray, NeatError, Score, TooMany};
use plain::Steps;
use std::sync::Arc;

/// Profiles, policies and nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tables {
    /// What words mean.
    pub profiles: Vec<Rule>,
    /// What is wanted.
    pub policies: Vec<Rule>,
    /// What is known, but for this host's interfaces, which a program sees itself.
    pub nodes: Vec<Node>,
}

/// How many candidates each step keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Rows from each lookup in the CIB, the input itself included. NEAT keeps 5.
    pub rows: usize,
    /// In the answer. NEAT keeps 10.
    pub candidates: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { rows: 5, candidates: 10 }
    }
}

/// A ranked candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// What it holds, before it is made fit to be [`told`].
    pub properties: NeatArray,
    /// The score it was ranked by.
    pub score: Score,
}

/// The policy manager.
#[derive(Clone, Debug, Default)]
pub struct Manager {
    profiles: Table,
    policies: Table,
    cib: Cib,
    rows: Option<Rows>,
    rows_stale: bool,
    limits: Limits,
    /// How many steps one decision may take, where it is made in its plain form; `None` for
    /// [`MAX_STEPS`].
    steps: Option<u64>,
    compiled: Option<Compiled>,
    cache: Cache,
}

/// How many steps one decision takes at most in its plain form: properties copied and rules tried.
/// It stops decisions that would take minutes.
pub const MAX_STEPS: u64 = 200_000_000;

impl Manager {
    /// A manager without profiles, policies and knowledge.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// As [`new`](Self::new), for a server of many programs: no decision takes more steps than
    /// these.
    #[must_use]
    pub fn patient(limits: Limits, steps: u64) -> Self {
        Self { limits, steps: Some(steps), ..Self::default() }
    }

    /// From now on rows may lack immutable properties of a request.
    pub(crate) fn open_rows(&mut self) {
        self.cib.set_open(true);
        self.rows_stale = true;
    }

    /// The steps that one decision may take.
    fn budget(&self) -> Steps {
        Steps::new(self.steps.unwrap_or(MAX_STEPS))
    }

    /// The profiles.
    #[must_use]
    pub const fn profiles(&self) -> &Table {
        &self.profiles
    }

    /// The policies.
    #[must_use]
    pub const fn policies(&self) -> &Table {
        &self.policies
    }

    /// What is known.
    #[must_use]
    pub const fn cib(&self) -> &Cib {
        &self.cib
    }

    /// How many candidates each step keeps.
    #[must_use]
    pub const fn limits(&self) -> Limits {
        self.limits
    }

    /// Puts a rule into a table, replacing its uid's.
    pub fn insert_rule(&mut self, stage: Stage, rule: Rule) {
        self.cache.rule_changed(&rule);
        if let Some(replaced) = self.table_mut(stage).insert(rule) {
            self.cache.rule_changed(&replaced);
        }
    }

    /// Takes a rule out of a table, by its uid.
    pub fn remove_rule(&mut self, stage: Stage, uid: &str) -> Option<Rule> {
        let removed = self.table_mut(stage).remove(uid)?;
        self.cache.rule_changed(&removed);
        Some(removed)
    }

    /// A table.
    #[must_use]
    pub const fn table(&self, stage: Stage) -> &Table {
        match stage {
            Stage::Profile => &self.profiles,
            Stage::Policy => &self.policies,
        }
    }

    /// How many decisions came from the cache.
    #[must_use]
    pub const fn cache_hits(&self) -> u64 {
        self.cache.hits
    }

    fn table_mut(&mut self, stage: Stage) -> &mut Table {
        self.compiled = None;
        match stage {
            Stage::Profile => &mut self.profiles,
            Stage::Policy => &mut self.policies,
        }
    }

    /// Puts a node into the CIB, replacing one of the same uid. A node that has expired at `now`
    /// only removes the old one.
    pub fn insert_node(&mut self, node: Node, now: WallTime) {
        if node.counts(now) {
            self.cib.purge(now);
            self.cib.insert(node);
        } else {
            self.cib.remove(&node.uid);
        }
        self.rows_stale = true;
    }

    /// Adds measurements to rows of the interfaces in `seen`, and removes all earlier ones.
    pub(crate) fn set_seen(&mut self, seen: Seen) {
        self.rows_stale |= self.cib.set_seen(seen);
    }

    /// Takes a node out of the CIB, by its uid.
    pub fn remove_node(&mut self, uid: &str) -> Option<Node> {
        self.rows_stale = true;
        self.cib.remove(uid)
    }

    /// Replaces all rules and nodes at once.
    pub fn install(&mut self, profiles: Table, policies: Table, cib: Cib) {
        let open = self.cib.is_open();
        (self.profiles, self.policies, self.cib) = (profiles, policies, cib);
        self.cib.set_open(open);
        self.rows_stale = true;
        self.compiled = None;
        self.cache.clear();
    }

    /// The rows of the CIB that are in force at `now`.
    pub fn rows(&mut self, now: WallTime) -> &Rows {
        let expired = |rows: &Rows| rows.until.is_some_and(|until| until.0 <= now.0);
        if self.rows_stale || self.rows.as_ref().is_none_or(expired) {
            self.cib.purge(now);
            let rows = self.cib.rows(now);
            // A node that changes no row invalidates nothing.
            let old = self.rows.as_ref().map_or(&[][..], |old| &old.rows);
            let changed = cib::changed(old, &rows.rows);
            if !changed.is_empty() || self.rows.is_none() {
                self.cache.rows_changed(&changed);
                if let Some(compiled) = &mut self.compiled {
                    compiled.set_rows(&rows.rows);
                }
            }
            self.rows = Some(rows);
            self.rows_stale = false;
        }
        self.rows.get_or_insert_default()
    }

    /// Decides, or returns the cached decision on the same request, if nothing that it depends on
    /// has changed. A decision is cached when its request comes for the second time.
    ///
    /// # Errors
    /// [`TooMany`] when the alternatives multiply beyond [`MAX_CANDIDATES`].
    pub fn decide(&mut self, requests: &Requests, now: WallTime) -> Result<Arc<Decision>, TooMany> {
        self.rows(now);
        if let Some(decision) = self.cache.get(requests) {
            return Ok(decision);
        }
        let limits = self.limits;
        let decided = if requests.pre_resolve {
            None
        } else if self.cache.is_asked_again(requests) {
            self.compiled().decide_and_tell(requests, limits)
        } else if let Some(decision) = self.compiled().decide(requests, limits) {
            return Ok(Arc::new(decision));
        } else {
            // Too many candidates for the compiled form. The plain form is slow: its decision is
            // cached at once.
            None
        };
        let (decision, reads) = match decided {
            Some((decision, reads)) => (decision, Some(reads)),
            None => (Decision::of(&self.plainly(requests, now, &mut Trace::off())?), None),
        };
        let decision = Arc::new(decision);
        self.cache.put(requests, &decision, reads);
        Ok(decision)
    }

    fn compiled(&mut self) -> &mut Compiled {
        let rows = self.rows.as_ref().map_or(&[][..], |r| &r.rows);
        let (profiles, policies) = (self.profiles.rules(), self.policies.rules());
        self.compiled.get_or_insert_with(|| Compiled::new(profiles, policies, rows))
    }

    /// Decides without the cache.
    ///
    /// # Errors
    /// As [`decide`](Self::decide).
    pub fn decide_anew(&mut self, requests: &Requests, now: WallTime) -> Result<Decision, TooMany> {
        self.rows(now);
        if requests.pre_resolve {
            return Ok(Decision::of(&self.plainly(requests, now, &mut Trace::off())?));
        }
        let limits = self.limits;
        match self.compiled().decide(requests, limits) {
            Some(decision) => Ok(decision),
            None => Ok(Decision::of(&self.plainly(requests, now, &mut Trace::off())?)),
        }
    }

    /// Decides, and records every step.
    ///
    /// # Errors
    /// [`TooMany`] when the alternatives multiply beyond [`MAX_CANDIDATES`].
    pub fn explain(&mut self, requests: &Requests, now: WallTime) -> Result<(Vec<Ranked>, Trace), TooMany> {
        let mut trace = Trace::on();
        let ranked = self.plainly(requests, now, &mut trace)?;
        Ok((ranked, trace))
    }

    /// The same on behalf of another user: the trace takes at most about so many bytes.
    ///
    /// # Errors
    /// As [`explain`](Self::explain), and where the trace exceeds that.
    pub fn explain_within(&mut self, requests: &Requests, now: WallTime, bytes: usize) -> Result<Trace, TooMany> {
        let mut trace = Trace::within(bytes);
        self.plainly(requests, now, &mut trace)?;
        Ok(trace)
    }

    fn plainly(&mut self, requests: &Requests, now: WallTime, trace: &mut Trace) -> Result<Vec<Ranked>, TooMany> {
        if requests.pre_resolve {
            let as_it_is = |a: &NeatArray| Ranked { properties: document::as_answer(a), score: a.score() };
            return Ok(requests.arrays.iter().map(as_it_is).collect());
        }
        self.rows(now);
        let rows = self.rows.as_ref().map_or(&[][..], |r| &r.rows);
        let mut steps = self.budget();
        plain::decide(requests, self.profiles.rules(), self.policies.rules(), rows, self.limits, &mut steps, trace)
    }

    /// The candidates that the rules of one table make of an input, in order.
    ///
    /// # Errors
    /// [`TooMany`] as for [`explain`](Self::explain).
    pub fn apply_rules(&self, stage: Stage, input: NeatArray) -> Result<Vec<NeatArray>, TooMany> {
        let mut steps = self.budget();
        let found = plain::apply(self.table(stage).rules(), stage, vec![(0, input)], &mut steps, &mut Trace::off())?;
        Ok(found.into_iter().map(|(_, array)| array).collect())
    }

    /// The input and the rows that can serve it at `now`, best first, at most [`Limits::rows`].
    pub fn join_rows(&mut self, input: NeatArray, now: WallTime) -> Vec<NeatArray> {
        let limit = self.limits.rows;
        let found = plain::join(&self.rows(now).rows, &(0, input), limit, &mut Trace::off());
        found.into_iter().map(|(_, array)| array).collect()
    }

    /// Answers a NEAT request document, as the socket `neat_pm_socket` does.
    ///
    /// # Errors
    /// [`NeatError`], for which NEAT's manager answers with an empty list, or closes the connection
    /// without a word.
    pub fn answer(&mut self, document: &str, now: WallTime) -> Result<String, NeatError> {
        let requests = Requests::from_text(document)?;
        let ranked = self.decide(&requests, now)?.ranked();
        let as_told = |r: &Ranked| if requests.pre_resolve { r.properties.clone() } else { told(&r.properties) };
        Ok(to_text(&ranked.iter().map(as_told).collect::<Vec<_>>()))
    }
}

#[cfg(test)]
mod tests;
