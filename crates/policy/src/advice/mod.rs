//! Policies for real connections: between the needs of RFC 9622 and the algebra of NEAT's manager.
//!
//! *Responsible for* asking the manager about one connection ([`Ask`], in NEAT's words), for reading its answer back
//! ([`Advice`]: which stacks, by which interfaces, from which addresses, with which options, in which order), and for
//! telling people which policy did what ([`Story`]). *Not responsible for* files, sockets and clocks: texts, interfaces
//! and the time are handed in.
//!
//! *Invariants*: advice never names a stack that the program's own needs had ruled out, so that no policy and no answer
//! of anybody's makes a connection less secure than the program asked; where nobody says anything of interfaces, the
//! choice is the system's; advice is a function of the tables, the request, the interfaces and the time.

mod answer;
mod ask;
mod options;
mod story;

pub use answer::{Advice, AdvisedPath, Denied, Pick};
pub use ask::{Ask, Named};
pub use story::{Place, Story};

use crate::daemon::{DOMAIN_PREFIX, INTERFACE_PREFIX, Tables, interface_rows};
use crate::manager::{
    Cib, Decision, FileKind, Limits, Loader, Manager, Node, Report, Requests, Rule, SourceFile, Stage, Table, add_ready,
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use neater_base::WallTime;
use neater_base::net::Interface;
use neater_property::neat::{NeatArray, NeatValue};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// Candidates that one connection may have: more rows and alternatives than NEAT keeps, because interfaces that are cut
/// off would look as if policy had denied them.
const LIMITS: Limits = Limits { rows: 128, candidates: 512 };
/// How many pieces of advice are remembered; when there are more, all are forgotten.
const MAX_REMEMBERED: usize = 1024;

/// What becomes of an ask.
type Advised = Result<Arc<Advice>, Denied>;

/// A policy manager that advises an engine.
#[derive(Clone, Debug)]
pub struct Adviser {
    manager: Manager,
    loader: Loader,
    /// What a daemon has told.
    shared: BTreeSet<(FileKind, String)>,
    interfaces: Vec<Interface>,
    remembered: HashMap<u64, Advised, FixedState>,
    /// When the first fact that the remembered advice may depend on ends.
    until: Option<WallTime>,
}

impl Default for Adviser {
    fn default() -> Self {
        let mut manager = Manager::new(LIMITS);
        add_ready(&mut manager);
        let remembered = HashMap::with_hasher(FixedState::with_seed(0x6164_7669));
        Self {
            manager,
            loader: Loader::default(),
            shared: BTreeSet::new(),
            interfaces: Vec::new(),
            remembered,
            until: None,
        }
    }
}

impl Adviser {
    /// An adviser with the ready-made profiles and policies.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes files in place of those it was given before: see [`Loader::load`].
    pub fn load(&mut self, pib: &[SourceFile<'_>], cib: &[SourceFile<'_>], now: WallTime) -> Report {
        let report = self.loader.load(&mut self.manager, pib, cib, now);
        self.renew_rows(now);
        report
    }

    /// Takes the tables of a daemon in place of those it was given before. Files of this program's own count more.
    pub fn share(&mut self, tables: Tables, now: WallTime) {
        let Tables { profiles, policies, nodes } = tables;
        let told = core::mem::take(&mut self.shared);
        let mut make = |stage: Stage, kind: FileKind, rules: Vec<Rule>| -> Table {
            let old = |uid: &str| told.contains(&(kind, uid.to_owned()));
            let loader = &self.loader;
            let held = self.manager.table(stage).rules().iter().filter(|r| loader.says(kind, &r.uid) || !old(&r.uid));
            let (own, before): (Vec<&Rule>, Vec<&Rule>) = held.partition(|r| loader.says(kind, &r.uid));
            self.shared.extend(rules.iter().map(|r| (kind, r.uid.clone())));
            before.into_iter().cloned().chain(rules).chain(own.into_iter().cloned()).collect()
        };
        let profiles = make(Stage::Profile, FileKind::Profile, profiles);
        let policies = make(Stage::Policy, FileKind::Policy, policies);
        let mut cib = Cib::default();
        let says = |uid: &str| self.loader.says(FileKind::Cib, uid);
        let before = |uid: &str| says(uid) || !told.contains(&(FileKind::Cib, uid.to_owned()));
        for node in nodes.into_iter().filter(|n| n.counts(now) && !says(&n.uid)) {
            self.shared.insert((FileKind::Cib, node.uid.clone()));
            cib.insert(node);
        }
        for node in self.manager.cib().nodes().filter(|n| before(&n.uid)) {
            cib.insert(node.clone());
        }
        self.manager.install(profiles, policies, cib);
        self.renew_rows(now);
    }

    /// The file that says what a rule is, by the name under which it was given.
    #[must_use]
    pub fn file_of(&self, kind: FileKind, uid: &str) -> Option<String> {
        self.loader.file_of(kind, uid)
    }

    /// The tables, to look at.
    #[must_use]
    pub const fn manager(&self) -> &Manager {
        &self.manager
    }

    /// The tables, to change: what was advised before is forgotten.
    pub fn manager_mut(&mut self) -> &mut Manager {
        self.forget();
        &mut self.manager
    }

    /// Takes the interfaces of this host as they are now.
    pub fn set_interfaces(&mut self, interfaces: &[Interface], now: WallTime) {
        if self.interfaces == interfaces {
            return;
        }
        self.interfaces = interfaces.to_vec();
        self.renew_rows(now);
    }

    /// Gives each interface a row, but for those of which a root of somebody's tells: two rows of one interface would be two
    /// candidates, of which a policy that denies one leaves the other. The domains of a network tell of their own addresses.
    fn renew_rows(&mut self, now: WallTime) {
        let ours = |uid: &str| uid.starts_with(INTERFACE_PREFIX);
        let domains = |n: &Node| n.uid.starts_with(DOMAIN_PREFIX) && n.counts(now);
        let is = |a: &NeatArray, key: &str, text: &str| {
            a.get(key).is_some_and(|p| matches!(&p.value, NeatValue::Text(held) if held == text))
        };
        let told = |interface: &str| {
            let says = |n: &Node| {
                let of = |a: &NeatArray| is(a, "interface", interface);
                n.root && !ours(&n.uid) && !domains(n) && n.alternatives.iter().any(of)
            };
            self.manager.cib().nodes().any(says)
        };
        let of_domain = |interface: &str, addr: IpAddr| {
            let addr = addr.to_string();
            let of = |a: &NeatArray| is(a, "interface", interface) && is(a, "local_ip", &addr);
            self.manager.cib().nodes().any(|n| domains(n) && n.alternatives.iter().any(of))
        };
        let mut nodes = interface_rows(&self.interfaces, of_domain);
        nodes.retain(|n| !told(n.uid.strip_prefix(INTERFACE_PREFIX).unwrap_or_default()));
        let held: Vec<String> = self.manager.cib().nodes().map(|n| n.uid.clone()).filter(|uid| ours(uid)).collect();
        for uid in held.iter().filter(|uid| !nodes.iter().any(|n| n.uid == **uid)) {
            self.manager.remove_node(uid);
        }
        for node in nodes {
            if self.manager.cib().get(&node.uid) != Some(&node) {
                self.manager.insert_node(node, now);
            }
        }
        self.forget();
    }

    fn forget(&mut self) {
        self.remembered.clear();
    }

    /// What the policies say of a connection.
    ///
    /// `number` stands for the ask where equal asks are to be answered once: the same number for equal asks only, 0 to
    /// remember nothing.
    ///
    /// # Errors
    /// [`Denied`]: the policies leave no way, and which they are.
    pub fn advise(&mut self, ask: &Ask<'_>, number: u64, now: WallTime) -> Advised {
        if self.until.is_some_and(|until| until.0 <= now.0) {
            // What a network said may have ended, and its addresses have plain rows again.
            self.renew_rows(now);
        }
        if let Some(known) = self.remembered.get(&number).filter(|_| number != 0) {
            return known.clone();
        }
        let advised = self.advise_anew(ask, now);
        self.until = self.manager.rows(now).until;
        if number != 0 {
            if self.remembered.len() >= MAX_REMEMBERED {
                self.forget();
            }
            self.remembered.insert(number, advised.clone());
        }
        advised
    }

    fn advise_anew(&mut self, ask: &Ask<'_>, now: WallTime) -> Advised {
        let requests = ask.requests();
        let usable = ask.usable(&self.interfaces);
        // The request alone makes as many candidates as there are stacks: there cannot be too many.
        let decision = self.manager.decide(&requests, now).map_err(|_| Denied::too_many())?;
        match answer::read(&decision, ask, &usable) {
            answer::Read::Advice(advice) => Ok(Arc::new(advice)),
            answer::Read::Nothing => Err(self.denied(ask, &requests, now)),
            // Rows were there, and none came back: denied, or unfit for what a profile has made of the request.
            answer::Read::WithoutRows(advice) => match self.denied_rows(&requests, &usable, now) {
                true => Err(self.denied(ask, &requests, now)),
                false => Ok(Arc::new(advice)),
            },
        }
    }

    /// Whether the row of an interface that leads there was joined to a candidate, so that policies must have denied it.
    fn denied_rows(&mut self, requests: &Requests, usable: &[ask::Usable], now: WallTime) -> bool {
        let explained = self.manager.explain(requests, now);
        explained.is_ok_and(|(_, trace)| story::joined_rows(&trace, usable))
    }

    fn denied(&mut self, ask: &Ask<'_>, requests: &Requests, now: WallTime) -> Denied {
        match self.manager.explain(requests, now) {
            Ok((_, trace)) => Denied { rules: story::deniers(&trace), host: ask.target() },
            Err(_) => Denied::too_many(),
        }
    }

    /// The same for people, with every step.
    ///
    /// # Errors
    /// [`Denied`] when there are too many steps to tell.
    pub fn explain(&mut self, ask: &Ask<'_>, now: WallTime) -> Result<Story, Denied> {
        let advised = self.advise(ask, 0, now);
        let (ranked, trace) = self.manager.explain(&ask.requests(), now).map_err(|_| Denied::too_many())?;
        let usable = ask.usable(&self.interfaces);
        Ok(Story::new(ask, &usable, &Decision::of(&ranked), trace, advised))
    }
}

#[cfg(test)]
mod tests;
