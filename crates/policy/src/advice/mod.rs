//! Policies for real connections: between the needs of RFC 9622 and the algebra of NEAT's manager.
//!
//! *Responsible for* asking the manager about one connection ([`Ask`], in NEAT's words), for
//! reading its answer back ([`Advice`]: which stacks, by which interfaces, from which addresses,
//! with which options, in which order), and for explaining to people which policy did what
//! ([`Story`]). *Not responsible for* files, sockets and clocks: texts, interfaces and the time are
//! handed in.
//!
//! *Invariants*: advice never names a stack that the program's own needs had ruled out, so that no
//! policy and no answer of a daemon makes a connection less secure than the program asked; where no
//! policy concerns interfaces, the choice is the system's; advice is a function of the tables, the
//! request, the interfaces and the time.

mod answer;
mod ask;
mod fact;
mod measured;
mod story;

pub use answer::{Advice, AdvisedPath, Denied, Pick};
pub use ask::{Ask, Bound, Named};
pub(crate) use fact::LEAST;
pub use fact::{Fact, Figure, Known, LIFETIME, MAX_OUTCOMES, RaceOutcome};
pub use measured::{MEASURED, Seen, put_known};
pub use story::{Place, Story};

use crate::manager::{
    Contents, Decision, FileKind, Item, Layer, Limits, Loader, Manager, Node, Report, Requests, Rule, SourceFile,
    Stage, Tables, add_ready,
};
use crate::rows::{DOMAIN_PREFIX, INTERFACE_PREFIX, interface_rows};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use neater_base::WallTime;
use neater_base::net::Interface;
use neater_property::neat::{NeatArray, NeatValue};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// Candidates that one connection may have: more rows and alternatives than NEAT keeps, because
/// interfaces that are cut off would look as if policy had denied them.
const LIMITS: Limits = Limits { rows: 128, candidates: 512 };
/// How many pieces of advice are remembered; when there are more, all are forgotten.
const MAX_REMEMBERED: usize = 1024;

/// How many names of properties of connections are remembered.
const MAX_ASKED: usize = 1024;

/// What becomes of an ask.
type Advised = Result<Arc<Advice>, Denied>;

/// A policy manager that advises an engine.
#[derive(Clone, Debug)]
pub struct Adviser {
    manager: Manager,
    loader: Loader,
    /// The tables from a daemon.
    shared: Layer,
    interfaces: Vec<Interface>,
    /// The nodes of their rows.
    rows: BTreeSet<String>,
    remembered: HashMap<u64, Advised, FixedState>,
    /// What was seen of other connections.
    measured: measured::Measured,
    /// Whether any rule wants to know of that; `None` where that is to be found out.
    heeds: Option<bool>,
    /// The names of the properties that connections had so far.
    asked: BTreeSet<String>,
    /// When the first fact that the remembered advice may depend on ends.
    until: Option<WallTime>,
}

impl Default for Adviser {
    fn default() -> Self {
        let mut manager = Manager::new(LIMITS);
        add_ready(&mut manager);
        // A profile that makes something immutable must not hide interfaces from policies.
        manager.open_rows();
        let remembered = HashMap::with_hasher(FixedState::with_seed(0x6164_7669));
        Self {
            manager,
            loader: Loader::default(),
            shared: Layer::default(),
            interfaces: Vec::new(),
            rows: BTreeSet::new(),
            remembered,
            measured: measured::Measured::default(),
            heeds: None,
            asked: BTreeSet::new(),
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
        // The rows of interfaces are rebuilt, and no layer beneath has them.
        for uid in &self.rows {
            self.loader.layer().uncover(FileKind::Cib, uid);
        }
        self.renew_rows(now);
        report
    }

    /// Takes the tables of a daemon in place of those it was given before. Files of this program's
    /// own count more.
    pub fn share(&mut self, tables: Tables, now: WallTime) {
        let Tables { profiles, policies, nodes } = tables;
        let mut contents = Contents::beneath(&self.manager, &mut [self.loader.layer(), &mut self.shared], now);
        // The rows of the interfaces are rebuilt below.
        contents.remove_nodes(&self.rows);
        let rules = |kind, rules: Vec<Rule>| rules.into_iter().map(move |rule| (kind, Item::Rule(Box::new(rule))));
        let items = rules(FileKind::Profile, profiles).chain(rules(FileKind::Policy, policies));
        let items = items.chain(nodes.into_iter().map(|node| (FileKind::Cib, Item::Node(Box::new(node)))));
        contents.lay(&mut self.shared, items, now);
        self.loader.lay(&mut contents, now);
        contents.install(&mut self.manager);
        self.renew_rows(now);
    }

    /// The file that defines a rule, by the name under which it was given.
    #[must_use]
    pub fn file_of(&self, kind: FileKind, uid: &str) -> Option<String> {
        self.loader.file_of(kind, uid)
    }

    /// The values of `profile` that any profile or policy wants to see: what programs may state.
    #[must_use]
    pub fn profiles(&self) -> BTreeSet<String> {
        let rules = [Stage::Profile, Stage::Policy].into_iter().flat_map(|s| self.manager.table(s).rules());
        let wanted = rules.filter_map(|rule| rule.matches.get("profile")).flat_map(|p| match &p.value {
            NeatValue::Text(name) => vec![name.clone()],
            NeatValue::Set(names) => names.iter().map(ToString::to_string).collect(),
            _ => Vec::new(),
        });
        wanted.collect()
    }

    /// The tables, to look at.
    #[must_use]
    pub const fn manager(&self) -> &Manager {
        &self.manager
    }

    /// The tables, to change: what was advised before is forgotten.
    pub fn manager_mut(&mut self) -> &mut Manager {
        self.forget();
        self.heeds = None;
        &mut self.manager
    }

    /// Whether any profile or policy wants to know what connections have seen: a property whose
    /// name begins with [`MEASURED`], of a rule that could fire for a connection like those that
    /// were asked about so far. Where none does, no lookup is needed.
    pub fn heeds_measurements(&mut self) -> bool {
        let (manager, asked) = (&self.manager, &self.asked);
        *self.heeds.get_or_insert_with(|| {
            // Names that are not remembered may be any.
            asked.len() >= MAX_ASKED || heeds(manager, asked.iter().map(String::as_str))
        })
    }

    /// Remembers what connections are like.
    fn notice(&mut self, requests: &Requests) {
        for key in requests.arrays.iter().flat_map(NeatArray::iter).map(|p| &p.key) {
            // Names come from programs and are few: beyond that, everything might be asked for.
            if !self.asked.contains(key) && self.asked.len() < MAX_ASKED {
                self.asked.insert(key.clone());
                self.heeds = None;
            }
        }
    }

    /// Takes what a connection to this host, or else this address, has seen by an interface. What
    /// was advised before is forgotten if that makes a difference.
    pub fn learn(&mut self, interface: &str, host: Option<&str>, addr: Option<IpAddr>, seen: &Seen, now: WallTime) {
        let Some(end) = measured::end_of(host, addr) else { return };
        if self.measured.learn(interface, &end, seen, now) {
            self.forget();
        }
    }

    /// Takes what a race to this host, or else this address, came to, likewise.
    pub fn learn_outcome(
        &mut self,
        interface: &str,
        host: Option<&str>,
        addr: Option<IpAddr>,
        outcome: RaceOutcome,
        now: WallTime,
    ) {
        let Some(end) = measured::end_of(host, addr) else { return };
        if self.measured.outcome(interface, &end, outcome, now) {
            self.forget();
        }
    }

    /// Takes what connections of other programs of this user have seen.
    pub fn hear(&mut self, facts: Vec<Fact>, now: WallTime) {
        let mut news = false;
        for fact in facts {
            news |= self.measured.hear(fact, now);
        }
        if news {
            self.forget();
        }
    }

    /// Whether there may be facts to publish to other programs of this user.
    #[must_use]
    pub const fn has_news(&self) -> bool {
        self.measured.has_news()
    }

    /// Measurements of this program's connections that were not published, at most so many facts.
    pub fn take_news(&mut self, most: usize, now: WallTime) -> Vec<Fact> {
        self.measured.take_news(most, now)
    }

    /// The receiver has lost what was published: a daemon that restarted.
    pub fn tell_again(&mut self) {
        self.measured.tell_again();
    }

    /// Takes the interfaces of this host as they are now.
    pub fn set_interfaces(&mut self, interfaces: &[Interface], now: WallTime) {
        if self.interfaces == interfaces {
            return;
        }
        self.interfaces = interfaces.to_vec();
        self.renew_rows(now);
    }

    /// Gives each interface a row, but for those with a root node of another source: two rows of
    /// one interface would be two candidates, of which a policy that denies one leaves the other.
    /// The domains of a network describe their own addresses.
    fn renew_rows(&mut self, now: WallTime) {
        self.heeds = None;
        let rows = core::mem::take(&mut self.rows);
        // A node of a file or a daemon under such a name is theirs.
        let says = |uid: &str| self.loader.says(FileKind::Cib, uid) || self.shared.says(FileKind::Cib, uid);
        let ours = |uid: &str| rows.contains(uid) && !says(uid);
        let domains = |n: &Node| n.uid.starts_with(DOMAIN_PREFIX) && n.counts(now);
        let is = |a: &NeatArray, key: &str, text: &str| {
            a.get(key).is_some_and(|p| matches!(&p.value, NeatValue::Text(held) if held == text))
        };
        let told = |interface: &str| {
            let tells = |n: &Node| {
                let of = |a: &NeatArray| is(a, "interface", interface);
                n.root && !ours(&n.uid) && !domains(n) && n.alternatives.iter().any(of)
            };
            self.manager.cib().nodes().any(tells)
        };
        let of_domain = |interface: &str, addr: IpAddr| {
            let addr = addr.to_string();
            let of = |a: &NeatArray| is(a, "interface", interface) && is(a, "local_ip", &addr);
            self.manager.cib().nodes().any(|n| domains(n) && n.alternatives.iter().any(of))
        };
        let mut nodes = interface_rows(&self.interfaces, of_domain);
        nodes.retain(|n| !told(n.uid.strip_prefix(INTERFACE_PREFIX).unwrap_or_default()));
        let held: Vec<String> = self.manager.cib().nodes().map(|n| n.uid.clone()).filter(|uid| ours(uid)).collect();
        nodes.retain(|n| !says(&n.uid));
        for uid in held.iter().filter(|uid| !nodes.iter().any(|n| n.uid == **uid)) {
            self.manager.remove_node(uid);
        }
        for node in nodes {
            self.rows.insert(node.uid.clone());
            if self.manager.cib().get(&node.uid) != Some(&node) {
                self.manager.insert_node(node, now);
            }
        }
        self.forget();
    }

    fn forget(&mut self) {
        self.remembered.clear();
        self.until = None;
    }

    /// The advice of the policies for a connection.
    ///
    /// `number` stands for the ask where equal asks are to be answered once: the same number for
    /// equal asks only, 0 to remember nothing.
    ///
    /// # Errors
    /// [`Denied`]: the policies leave no way, and which they are.
    pub fn advise(&mut self, ask: &Ask<'_>, number: u64, now: WallTime) -> Advised {
        if self.until.is_some_and(|until| until.0 <= now.0) {
            // The information of a network may have expired, and its addresses have plain rows
            // again.
            self.renew_rows(now);
        }
        if let Some(known) = self.remembered.get(&number).filter(|_| number != 0) {
            return known.clone();
        }
        let requests = ask.requests(&self.interfaces);
        self.notice(&requests);
        self.recall(ask, now);
        let advised = self.advise_anew(ask, &requests, now);
        // Of all that is remembered, the first to end.
        let until = self.manager.rows(now).until;
        self.until = [self.until, until].into_iter().flatten().min();
        if number != 0 {
            if self.remembered.len() >= MAX_REMEMBERED {
                self.forget();
            }
            self.remembered.insert(number, advised.clone());
        }
        advised
    }

    /// Puts what was seen of the other end into the rows, where a policy uses it.
    fn recall(&mut self, ask: &Ask<'_>, now: WallTime) {
        if self.heeds_measurements() {
            let end = measured::end_of(ask.host, ask.addr);
            self.measured.put(&mut self.manager, end.as_deref(), ask.port, now);
        }
    }

    fn advise_anew(&mut self, ask: &Ask<'_>, requests: &Requests, now: WallTime) -> Advised {
        let usable = ask.usable(&self.interfaces);
        // The request alone makes as many candidates as there are stacks: there cannot be too many.
        let decision = self.manager.decide(requests, now).map_err(|_| Denied::too_many())?;
        match answer::read(&decision, ask, &usable) {
            answer::Read::Advice(advice) => Ok(Arc::new(advice)),
            answer::Read::Nothing => Err(self.denied(ask, requests, now)),
            // Rows were there, and none came back: denied, or unfit for what a profile has made of
            // the request.
            answer::Read::WithoutRows(advice) => match self.denied_rows(requests, &usable, now) {
                true => Err(self.denied(ask, requests, now)),
                false => Ok(Arc::new(advice)),
            },
        }
    }

    /// Whether the row of an interface that leads there was joined to a candidate, so that policies
    /// must have denied it.
    fn denied_rows(&mut self, requests: &Requests, usable: &[ask::Usable], now: WallTime) -> bool {
        let explained = self.manager.explain(requests, now);
        explained.is_ok_and(|(_, trace)| story::joined_rows(&trace, usable))
    }

    fn denied(&mut self, ask: &Ask<'_>, requests: &Requests, now: WallTime) -> Denied {
        match self.manager.explain(requests, now) {
            Ok((_, trace)) => Denied {
                rules: story::deniers(&trace),
                host: ask.target(),
                domains: ask.required_domains().map(str::to_owned).collect(),
            },
            Err(_) => Denied::too_many(),
        }
    }

    /// The same for people, with every step.
    ///
    /// # Errors
    /// [`Denied`] when there are too many steps to record.
    pub fn explain(&mut self, ask: &Ask<'_>, now: WallTime) -> Result<Story, Denied> {
        let advised = self.advise(ask, 0, now);
        let (ranked, trace) =
            self.manager.explain(&ask.requests(&self.interfaces), now).map_err(|_| Denied::too_many())?;
        let usable = ask.usable(&self.interfaces);
        Ok(Story::new(ask, &usable, &Decision::of(&ranked), trace, advised))
    }
}

/// Whether any rule wants to know what connections have seen, that could fire for requests with
/// properties of these names. It looks at names alone: what profiles and policies make of them, and
/// what rows have.
pub fn heeds<'a>(manager: &'a Manager, asked: impl Iterator<Item = &'a str>) -> bool {
    let measured = |rule: &Rule| rule.matches.iter().any(|p| p.key.starts_with(MEASURED));
    let rules = || [Stage::Profile, Stage::Policy].into_iter().flat_map(|stage| manager.table(stage).rules());
    if !rules().any(measured) {
        return false;
    }
    let keys = |arrays: &'a [NeatArray]| arrays.iter().flat_map(NeatArray::iter).map(|p| p.key.as_str());
    let mut known: BTreeSet<&str> = asked.collect();
    known.extend(manager.cib().nodes().flat_map(|node| keys(&node.alternatives)));
    loop {
        let before = known.len();
        for rule in rules() {
            if rule.matches.iter().all(|p| p.key.starts_with(MEASURED) || known.contains(p.key.as_str())) {
                if measured(rule) {
                    return true;
                }
                known.extend(keys(&rule.alternatives));
            }
        }
        if known.len() == before {
            return false;
        }
    }
}

#[cfg(test)]
mod tests;
