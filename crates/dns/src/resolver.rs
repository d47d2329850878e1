//! The resolver: lookups in, answers out.
//!
//! *Responsible for* the tables: lookups, the questions they share, transports, timers, the cache.
//! What a question does is decided in [`crate::query`], what a lookup makes of the answers in
//! [`crate::lookup`] and [`crate::svcb`]. *Not responsible for* literal addresses, sockets, or
//! watching the configuration.
//!
//! *Invariants*: identical questions under way are one question; a question without a waiter is
//! dropped when another one needs its place; a transport that is not open for a question is closed;
//! at most [`MAX_LOOKUPS`] lookups and [`MAX_QUERIES`] questions.

use core::time::Duration;
use hickory_proto::rr::RecordType;
use neater_base::{Instant, Key, Rng, Slab, Timers};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::api::{Answer, CachedAddresses, Input, LookupId, Output, Question, RecordKind};
use crate::cache::{Cache, Fact, KeyRef, Kind};
use crate::lookup::{self, Decision, Lookup, MAX_CANDIDATES, Want};
use crate::name::{self, NameBuf, Special};
use crate::query::{Health, Io, Query, Transports, Verdict};
use crate::svcb::{self, Step, Walk};
use crate::wire::Asked;
use crate::{Config, Hosts, ResolveError};

/// Lookups under way at most. Further ones get what is known already, and fail with
/// [`ResolveError::TooMany`] for the rest.
pub const MAX_LOOKUPS: usize = 8192;
/// Questions under way at most, each with a socket or a few; what needs further ones waits for its
/// turn.
pub const MAX_QUERIES: usize = 768;

static LOOPBACK_V4: [IpAddr; 1] = [IpAddr::V4(Ipv4Addr::LOCALHOST)];
static LOOPBACK_V6: [IpAddr; 1] = [IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// A question under way and the lookups that wait for it.
#[derive(Debug)]
struct Shared {
    query: Query,
    key: (String, Kind, Option<u32>),
    waiters: Vec<(LookupId, Want)>,
    /// The deadline that the last timer was set for.
    armed: Option<Instant>,
    /// Of which network, and of which servers.
    generation: u64,
}

/// A question that waits for its turn.
#[derive(Debug)]
struct Postponed {
    id: LookupId,
    want: Want,
    name: String,
    kind: Kind,
}

/// Something that a lookup waits for is known, until the given time.
type Known = Result<(Fact, Instant), ResolveError>;

/// The stub resolver. See the crate's documentation.
#[derive(Debug)]
pub struct Resolver {
    config: Arc<Config>,
    hosts: Hosts,
    /// How often servers or networks have changed: questions from before are no evidence about the
    /// present ones.
    generation: u64,
    rng: Rng,
    pub(crate) cache: Cache,
    health: Health,
    lookups: BTreeMap<LookupId, Lookup>,
    next_lookup: u32,
    queries: Slab<Shared>,
    index: BTreeMap<(String, Kind, Option<u32>), Key>,
    transports: Transports,
    /// When a question's [`Query::due`] comes; stale entries are recognised by comparing.
    timers: Timers<(Key, Instant)>,
    /// Questions that wait until there are fewer, in the order in which they came: at most
    /// [`lookup::MAX_ASKING`] of each lookup.
    postponed: VecDeque<Postponed>,
    /// Facts that have not been handed to their lookups. Empty between calls.
    ready: VecDeque<(LookupId, Want, Known)>,
    out: VecDeque<Output>,
}

impl Resolver {
    /// A resolver that is a function of its inputs and `seed` alone. The seed must be secret and
    /// random: question ids come from it.
    #[must_use]
    pub fn new(config: Config, hosts: Hosts, seed: [u8; 32]) -> Self {
        let mut rng = Rng::new(seed);
        Self {
            config: Arc::new(config.clamped()),
            hosts,
            generation: 0,
            cache: Cache::new(rng.u64()),
            rng,
            health: Health::default(),
            lookups: BTreeMap::new(),
            next_lookup: 0,
            queries: Slab::new(),
            index: BTreeMap::new(),
            transports: Transports::default(),
            timers: Timers::new(),
            postponed: VecDeque::new(),
            ready: VecDeque::new(),
            out: VecDeque::new(),
        }
    }

    /// Takes a new configuration. Lookups under way go on with the servers they started with; when
    /// the servers have changed, the cache is emptied and later lookups share nothing with earlier
    /// ones.
    pub fn set_config(&mut self, now: Instant, config: Config, hosts: Hosts) {
        let config = config.clamped();
        if config.servers != self.config.servers {
            self.forget_answers(now);
        }
        self.config = Arc::new(config);
        self.hosts = hosts;
        self.prune();
    }

    /// This host is attached to another network. There the same names may mean other addresses,
    /// even if the servers' addresses are the same (a router's, or that of a resolver on this
    /// host): nothing that was learnt holds any longer. Lookups under way go on, and later ones
    /// share nothing with them.
    pub fn network_changed(&mut self, now: Instant) {
        self.forget_answers(now);
        self.prune();
    }

    fn forget_answers(&mut self, now: Instant) {
        self.generation += 1;
        self.cache.clear();
        self.index.clear();
        self.health = Health::default();
        // What was asked before may still be delivered, but not kept.
        for walk in self.lookups.values_mut().filter_map(|l| l.walk.as_mut()) {
            walk.expires = now;
        }
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What is known about a name without a query: both address families, from the hosts file, the
    /// cache, or because the name is special. Follows the search list as a lookup would. Allocates
    /// nothing.
    pub fn cached(&mut self, now: Instant, name: &str) -> Option<CachedAddresses<'_>> {
        let (name, absolute) = name.strip_suffix('.').map_or((name, false), |n| (n, true));
        let lower = NameBuf::lower(name)?;
        if self.local(lower.as_str()).is_some() {
            let (v6, v4) = self.local(lower.as_str())?;
            let no_such_name = name::special(lower.as_str()) == Some(Special::Never) && v6.is_empty() && v4.is_empty();
            return Some(CachedAddresses { v6, v4, https: Some(&[]), expires: Instant::FAR_FUTURE, no_such_name });
        }
        let mut no_data = false;
        let mut found = None;
        for i in 0..MAX_CANDIDATES {
            let Some(buf) = lookup::candidate(name, absolute, &self.config, i) else { break };
            if buf.as_str().is_empty() {
                continue;
            }
            let key = |kind| KeyRef { name: buf.as_str(), kind, interface: None };
            let v6 = self.cache.find(now, key(Kind::Aaaa))?;
            let v4 = self.cache.find(now, key(Kind::A))?;
            let https = self.cache.find(now, key(Kind::Services));
            let facts = [self.cache.at(v6)?.0, self.cache.at(v4)?.0];
            no_data |= facts.iter().any(|f| **f != Fact::NoName);
            found = Some((v6, v4, https));
            let elsewhere = https.and_then(|slot| self.cache.at(slot)).is_some_and(|(fact, _)| fact.leads_elsewhere());
            if elsewhere || facts.iter().any(|f| !f.addresses().is_empty()) {
                break;
            }
        }
        let (v6, v4, https) = found?;
        let ((v6, until6), (v4, until4)) = (self.cache.at(v6)?, self.cache.at(v4)?);
        let (https, until) = match https.and_then(|slot| self.cache.at(slot)) {
            Some((Fact::Services(s), until)) => (Some(s.as_slice()), until),
            _ => (None, Instant::FAR_FUTURE),
        };
        let expires = until6.min(until4).min(until);
        Some(CachedAddresses { v6: v6.addresses(), v4: v4.addresses(), https, expires, no_such_name: !no_data })
    }

    /// Until when what is known of a name's addresses of one family holds, and its service
    /// bindings, which may contain them; `None`: nothing is known. What this host decides by itself
    /// holds until its configuration changes.
    pub fn expiry(&mut self, now: Instant, name: &str, v4: bool) -> Option<Instant> {
        let (name, absolute) = name.strip_suffix('.').map_or((name, false), |n| (n, true));
        let lower = NameBuf::lower(name)?;
        if self.local(lower.as_str()).is_some() {
            return Some(Instant::FAR_FUTURE);
        }
        for i in 0..MAX_CANDIDATES {
            let buf = lookup::candidate(name, absolute, &self.config, i)?;
            if buf.as_str().is_empty() {
                continue;
            }
            let mut until = |kind| {
                let slot = self.cache.find(now, KeyRef { name: buf.as_str(), kind, interface: None })?;
                let (fact, until) = self.cache.at(slot)?;
                let found = match fact {
                    Fact::Services(s) => !s.is_empty(),
                    fact => !fact.addresses().is_empty(),
                };
                found.then_some(until)
            };
            let found = [until(if v4 { Kind::A } else { Kind::Aaaa }), until(Kind::Services)];
            if let Some(until) = found.into_iter().flatten().min() {
                return Some(until);
            }
        }
        None
    }

    /// What this host alone decides about a lower-case name without final dot: its IPv6 and its
    /// IPv4 addresses.
    pub(crate) fn local(&self, lower: &str) -> Option<(&[IpAddr], &[IpAddr])> {
        if let Some(host) = self.hosts.find(lower) {
            return Some((&host.v6, &host.v4));
        }
        match name::special(lower)? {
            Special::Localhost => Some((&LOOPBACK_V6, &LOOPBACK_V4)),
            Special::Never => Some((&[], &[])),
        }
    }

    /// Starts a lookup. It ends with one [`Output::Answer`] per requested kind and one
    /// [`Output::Done`]; what is known already, and what is wrong with the name, comes out at once.
    pub fn lookup(&mut self, now: Instant, q: &Question<'_>) -> LookupId {
        let id = self.fresh_id();
        let (name, absolute) = q.name.strip_suffix('.').map_or((q.name, false), |n| (n, true));
        if let Err(why) = name::check(name) {
            self.answer_all(id, q, |_| Answer::Failed(ResolveError::InvalidName(why)));
            return id;
        }
        let lower = name.to_ascii_lowercase();
        if let Some((v6, v4)) = self.local(&lower) {
            let (v6, v4) = (v6.to_vec(), v4.to_vec());
            let never = self.hosts.find(&lower).is_none() && name::special(&lower) == Some(Special::Never);
            self.answer_all(id, q, |kind| match kind {
                _ if never => Answer::Failed(ResolveError::NoSuchName),
                RecordKind::A => Answer::Addresses(v4.clone()),
                RecordKind::Aaaa => Answer::Addresses(v6.clone()),
                RecordKind::Https => Answer::Services(Vec::new()),
            });
            return id;
        }
        let candidates = lookup::candidates(name, absolute, &self.config);
        // Whether the name exists is for the other kinds to show.
        let suppressed = |k| k == RecordKind::Aaaa && self.config.no_aaaa;
        let lookup = Lookup::new(candidates, |k| q.wants(k) && !suppressed(k), q.https.unwrap_or(443), q.interface);
        if q.aaaa && self.config.no_aaaa {
            let answer = Answer::Addresses(Vec::new());
            self.out.push_back(Output::Answer { lookup: id, kind: RecordKind::Aaaa, answer });
        }
        self.lookups.insert(id, lookup);
        self.begin(now, id);
        self.decide(now, id);
        self.settle(now);
        self.prune();
        id
    }

    fn fresh_id(&mut self) -> LookupId {
        loop {
            let id = LookupId(self.next_lookup);
            self.next_lookup = self.next_lookup.wrapping_add(1);
            if !self.lookups.contains_key(&id) {
                return id;
            }
        }
    }

    fn answer_all(&mut self, lookup: LookupId, q: &Question<'_>, answer: impl Fn(RecordKind) -> Answer) {
        for kind in RecordKind::REPORT_ORDER.into_iter().filter(|k| q.wants(*k)) {
            self.out.push_back(Output::Answer { lookup, kind, answer: answer(kind) });
        }
        self.out.push_back(Output::Done { lookup });
    }

    /// The program does not wait for this lookup any more: it ends at once, without a `Done`;
    /// answers that are known already may still come. Its questions go on, so that later lookups
    /// know the answers, until others need their places.
    pub fn abandon(&mut self, id: LookupId) {
        let Some(lookup) = self.lookups.remove(&id) else { return };
        self.forget_postponed();
        for (_, key) in &lookup.asking {
            if let Some(shared) = self.queries.get_mut(*key) {
                shared.waiters.retain(|(waiter, _)| *waiter != id);
            }
        }
    }

    /// Drops questions of lookups that are gone, when they are most of those that wait; until then
    /// their turn passes without effect.
    fn forget_postponed(&mut self) {
        if self.postponed.len() > 4 * (self.lookups.len() + 64) {
            let lookups = &self.lookups;
            self.postponed.retain(|p| lookups.contains_key(&p.id));
        }
    }

    /// Whether questions wait that could be asked now: [`Resolver::poll_output`] asks them.
    #[must_use]
    pub fn has_turns(&self) -> bool {
        let free = || self.queries.len() < MAX_QUERIES || self.queries.iter().any(|(_, s)| s.waiters.is_empty());
        !self.postponed.is_empty() && free()
    }

    /// Forgets a lookup: neither an answer nor a `Done` will come for it. Questions that no other
    /// lookup waits for are dropped.
    pub fn cancel(&mut self, id: LookupId) {
        if let Some(lookup) = self.lookups.remove(&id) {
            self.forget_postponed();
            self.withdraw(id, &lookup.asking);
        }
        self.out.retain(|o| match o {
            Output::Answer { lookup, .. } | Output::ServicesSoFar { lookup, .. } | Output::Done { lookup } => {
                *lookup != id
            }
            _ => true,
        });
        self.prune();
    }

    /// Forgets everything that was learnt. Lookups under way go on.
    pub fn flush_cache(&mut self) {
        self.cache.clear();
    }

    /// Takes one fact from the network. Facts about transports that are not open are ignored.
    pub fn handle_input(&mut self, now: Instant, input: Input<'_>) {
        let (Input::UdpReceived { transport, .. }
        | Input::UdpFailed { transport, .. }
        | Input::TcpConnected { transport }
        | Input::TcpReceived { transport, .. }
        | Input::TcpClosed { transport, .. }) = input;
        let Some(key) = self.transports.owner(transport) else { return };
        self.drive(now, key, |query, io| match input {
            Input::UdpReceived { data, .. } => query.on_datagram(now, transport, data, io),
            Input::UdpFailed { error, .. } => query.on_failed(now, transport, Some(error), io),
            Input::TcpConnected { .. } => {
                query.on_connected(transport, io);
                None
            }
            Input::TcpReceived { data, .. } => query.on_stream(now, transport, data, io),
            Input::TcpClosed { error, .. } => query.on_failed(now, transport, error, io),
        });
        self.prune();
    }

    /// Does what is due. Early or repeated calls have no effect.
    pub fn handle_timeout(&mut self, now: Instant) {
        // A question that comes due again at once would do so at most once for each of its tries.
        while let Some((key, at)) = self.timers.pop_due(now) {
            if self.queries.get(key).is_some_and(|s| s.query.due() == at) {
                self.drive(now, key, |query, io| query.on_timeout(now, io));
            }
        }
        self.prune();
    }

    /// When [`Resolver::handle_timeout`] has something to do.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// The next effect or result; `None` when there is none.
    pub fn poll_output(&mut self, now: Instant) -> Option<Output> {
        if self.out.is_empty() && !self.postponed.is_empty() {
            self.take_turns(now);
        }
        self.out.pop_front()
    }

    /// Asks what has waited for its turn, as far as there are places.
    fn take_turns(&mut self, now: Instant) {
        while !self.postponed.is_empty() && self.has_place() {
            let Some(p) = self.postponed.pop_front() else { break };
            self.ask(now, p.id, p.want, &p.name, p.kind);
            self.settle(now);
        }
        self.prune();
    }

    /// Whether another question may be asked; one without a waiting lookup may have to make room.
    fn has_place(&mut self) -> bool {
        if self.queries.len() < MAX_QUERIES {
            return true;
        }
        let idle = self.queries.iter().find(|(_, s)| s.waiters.is_empty()).map(|(key, _)| key);
        idle.inspect(|key| self.drop_question(*key)).is_some()
    }

    /// Lets a question take an input and deals with how it ends.
    fn drive(&mut self, now: Instant, key: Key, f: impl FnOnce(&mut Query, &mut Io<'_>) -> Option<Verdict>) {
        let Some(shared) = self.queries.get_mut(key) else { return };
        // A question under an old configuration must not judge the present one's servers.
        let mut old = Health::default();
        let current = shared.generation == self.generation;
        let mut io = Io {
            me: key,
            rng: &mut self.rng,
            transports: &mut self.transports,
            health: if current { &mut self.health } else { &mut old },
            out: &mut self.out,
        };
        match f(&mut shared.query, &mut io) {
            None => {
                let due = shared.query.due();
                if shared.armed != Some(due) {
                    shared.armed = Some(due);
                    self.timers.push(due, (key, due));
                }
            }
            Some(verdict) => {
                shared.query.close(&mut io);
                self.finish(now, key, verdict);
            }
        }
    }

    /// A question has ended: what was learnt is kept, and every waiting lookup is notified.
    fn finish(&mut self, now: Instant, key: Key, verdict: Verdict) {
        let Some(shared) = self.queries.remove(key) else { return };
        let (name, kind, interface) = &shared.key;
        let known = verdict.map(|(fact, lifetime)| (fact, now + lifetime.unwrap_or(Duration::ZERO)));
        // After a change of servers the index has forgotten the question; then the cache must not
        // learn from it.
        if self.index.get(&shared.key) == Some(&key) {
            self.index.remove(&shared.key);
            if let Ok((fact, expires)) = &known {
                self.cache.put(now, KeyRef { name, kind: *kind, interface: *interface }, fact.clone(), *expires);
            }
        }
        for (id, want) in shared.waiters {
            if let Some(lookup) = self.lookups.get_mut(&id) {
                lookup.asking.retain(|(w, k)| !(*w == want && *k == key));
            }
            self.ready.push_back((id, want, known.clone()));
        }
        self.settle(now);
    }

    /// Hands the facts that are ready to their lookups, and those that come of that.
    fn settle(&mut self, now: Instant) {
        // Ends: a lookup has at most MAX_CANDIDATES candidates, each with a bounded walk.
        while let Some((id, want, known)) = self.ready.pop_front() {
            self.take(now, id, want, known);
            self.decide(now, id);
        }
    }

    /// Asks for every kind of the present candidate.
    fn begin(&mut self, now: Instant, id: LookupId) {
        let Some(lookup) = self.lookups.get_mut(&id) else { return };
        let (name, interface) = (lookup.candidate().to_owned(), lookup.interface);
        for kind in lookup.waiting() {
            match kind {
                RecordKind::A => self.ask(now, id, Want::Kind(kind), &name, Kind::A),
                RecordKind::Aaaa => self.ask(now, id, Want::Kind(kind), &name, Kind::Aaaa),
                RecordKind::Https => self.begin_https(now, id, &name, interface),
            }
        }
    }

    fn begin_https(&mut self, now: Instant, id: LookupId, name: &str, interface: Option<u32>) {
        let Some(lookup) = self.lookups.get_mut(&id) else { return };
        let qname = svcb::query_name(name, lookup.port);
        let slot = self.cache.find(now, KeyRef { name: &qname, kind: Kind::Services, interface });
        if let Some((Fact::Services(services), _)) = slot.and_then(|s| self.cache.at(s)) {
            lookup.hold(RecordKind::Https, Answer::Services(services.clone()));
            return;
        }
        lookup.walk = Some(Walk::new(name, lookup.port));
        self.ask(now, id, Want::Kind(RecordKind::Https), &qname, Kind::Https);
    }

    /// Makes a fact known to a lookup: from the cache, by joining a question under way, or by a new
    /// question.
    fn ask(&mut self, now: Instant, id: LookupId, want: Want, name: &str, kind: Kind) {
        let Some(interface) = self.lookups.get(&id).map(|l| l.interface) else { return };
        if kind == Kind::Aaaa && self.config.no_aaaa {
            self.ready.push_back((id, want, Ok((Fact::Addresses(Vec::new()), Instant::FAR_FUTURE))));
            return;
        }
        let slot = self.cache.find(now, KeyRef { name, kind, interface });
        if let Some((fact, expires)) = slot.and_then(|s| self.cache.at(s)) {
            self.ready.push_back((id, want, Ok((fact.clone(), expires))));
            return;
        }
        // The last one that came is one too many: it ends here.
        if self.lookups.len() > MAX_LOOKUPS {
            self.ready.push_back((id, want, Err(ResolveError::TooMany)));
            return;
        }
        let key = (name.to_owned(), kind, interface);
        let key = match self.index.get(&key).copied() {
            Some(key) => key,
            None if !self.has_place() => {
                self.postponed.push_back(Postponed { id, want, name: key.0, kind });
                return;
            }
            None => match self.open(now, key) {
                Ok(key) => key,
                Err(error) => {
                    self.ready.push_back((id, want, Err(error)));
                    return;
                }
            },
        };
        if let (Some(shared), Some(lookup)) = (self.queries.get_mut(key), self.lookups.get_mut(&id)) {
            shared.waiters.push((id, want));
            lookup.asking.push((want, key));
            debug_assert!(lookup.asking.len() <= lookup::MAX_ASKING);
        }
    }

    /// Starts a new question.
    fn open(&mut self, now: Instant, key: (String, Kind, Option<u32>)) -> Result<Key, ResolveError> {
        if self.config.servers.is_empty() {
            return Err(ResolveError::NoServers);
        }
        let record = match key.1 {
            Kind::A => RecordType::A,
            Kind::Aaaa => RecordType::AAAA,
            Kind::Https | Kind::Services => RecordType::HTTPS,
        };
        let too_long = ResolveError::InvalidName("it has more than 253 characters: shorten it");
        let name = name::to_wire(&key.0).ok_or(too_long)?;
        let order = self.health.order(now, &self.config);
        let config = Arc::clone(&self.config);
        let query = Query::new(now, Asked { name, record }, key.2, config, order);
        let generation = self.generation;
        let me = self.queries.insert(Shared { query, key: key.clone(), waiters: Vec::new(), armed: None, generation });
        self.index.insert(key, me);
        self.drive(now, me, |query, io| query.start(now, io));
        Ok(me)
    }

    /// A lookup learns what it asked for.
    fn take(&mut self, now: Instant, id: LookupId, want: Want, known: Known) {
        let Some(lookup) = self.lookups.get_mut(&id) else { return };
        match want {
            Want::Kind(RecordKind::Https) => self.take_https(now, id, known),
            Want::Kind(kind) => {
                let answer = match known {
                    Ok((Fact::Addresses(list), _)) => Answer::Addresses(list),
                    Ok(_) => Answer::Failed(ResolveError::NoSuchName),
                    Err(error) => Answer::Failed(error),
                };
                lookup.hold(kind, answer);
            }
            Want::Target { target, v6 } => {
                let Some(walk) = lookup.walk.as_mut() else { return };
                let answer = match &known {
                    Ok((fact, expires)) => {
                        walk.expires = walk.expires.min(*expires);
                        walk.addresses(target, v6, Some(fact.addresses()))
                    }
                    Err(_) => {
                        // A failure may pass: what was put together without these addresses is not
                        // kept.
                        walk.expires = now;
                        walk.addresses(target, v6, None)
                    }
                };
                match answer {
                    Some(answer) => self.end_walk(now, id, answer),
                    None => {
                        let services = walk.so_far();
                        lookup.hold_so_far(services);
                    }
                }
            }
        }
    }

    fn take_https(&mut self, now: Instant, id: LookupId, known: Known) {
        let Some(lookup) = self.lookups.get_mut(&id) else { return };
        let at_host = lookup.walk.as_ref().is_some_and(|w| w.qname() == lookup.candidate());
        let Some(walk) = lookup.walk.as_mut() else { return };
        let step = match known {
            Ok((Fact::Https(set), expires)) => {
                walk.expires = walk.expires.min(expires);
                walk.records(&set, &mut self.rng)
            }
            // Only the host itself has to exist; its `_PORT._https` and its aliases do not.
            Ok(_) if at_host => Step::Finished(Answer::Failed(ResolveError::NoSuchName)),
            Ok((_, expires)) => {
                walk.expires = walk.expires.min(expires);
                Step::Finished(Answer::Services(Vec::new()))
            }
            Err(error) => match walk.records_failed(&mut self.rng) {
                Some(step) => {
                    // A failure may pass.
                    walk.expires = now;
                    step
                }
                None => Step::Finished(Answer::Failed(error)),
            },
        };
        match step {
            Step::Finished(answer) => self.end_walk(now, id, answer),
            Step::Ask(name) => self.ask(now, id, Want::Kind(RecordKind::Https), &name, Kind::Https),
            Step::Resolve(names) => {
                let services = walk.so_far();
                lookup.hold_so_far(services);
                for (target, name) in names.iter().enumerate() {
                    self.ask(now, id, Want::Target { target, v6: true }, name, Kind::Aaaa);
                    self.ask(now, id, Want::Target { target, v6: false }, name, Kind::A);
                }
            }
        }
    }

    fn end_walk(&mut self, now: Instant, id: LookupId, answer: Answer) {
        let Some(lookup) = self.lookups.get_mut(&id) else { return };
        let Some(walk) = lookup.walk.take() else { return };
        if let Answer::Services(services) = &answer {
            let name = svcb::query_name(lookup.candidate(), lookup.port);
            let key = KeyRef { name: &name, kind: Kind::Services, interface: lookup.interface };
            self.cache.put(now, key, Fact::Services(services.clone()), walk.expires);
        }
        lookup.hold(RecordKind::Https, answer);
    }

    /// Delivers what may be delivered, and goes on to the next candidate if that is the conclusion.
    fn decide(&mut self, now: Instant, id: LookupId) {
        // At the next candidate, the cache may already hold enough to decide again.
        for _ in 0..MAX_CANDIDATES {
            let Some(lookup) = self.lookups.get_mut(&id) else { return };
            let decision = lookup.decide();
            if let Some(services) = lookup.take_so_far() {
                self.out.push_back(Output::ServicesSoFar { lookup: id, services });
            }
            match decision {
                Decision::Wait => return,
                Decision::Deliver(answers, done) => {
                    for (kind, answer) in answers {
                        self.out.push_back(Output::Answer { lookup: id, kind, answer });
                    }
                    if done {
                        self.lookups.remove(&id);
                        self.out.push_back(Output::Done { lookup: id });
                    }
                    return;
                }
                Decision::Next => {
                    let asking = core::mem::take(&mut lookup.asking);
                    self.ready.retain(|(other, ..)| *other != id);
                    self.postponed.retain(|p| p.id != id);
                    self.withdraw(id, &asking);
                    self.begin(now, id);
                }
            }
        }
    }

    /// A lookup no longer waits for these; questions without a waiting lookup are dropped.
    fn withdraw(&mut self, id: LookupId, asking: &[(Want, Key)]) {
        for (_, key) in asking {
            let Some(shared) = self.queries.get_mut(*key) else { continue };
            shared.waiters.retain(|(waiter, _)| *waiter != id);
            if shared.waiters.is_empty() {
                self.drop_question(*key);
            }
        }
    }

    /// Ends a question without an answer.
    fn drop_question(&mut self, key: Key) {
        let Some(mut shared) = self.queries.remove(key) else { return };
        let mut health = Health::default();
        let mut io = Io {
            me: key,
            rng: &mut self.rng,
            transports: &mut self.transports,
            health: &mut health,
            out: &mut self.out,
        };
        shared.query.close(&mut io);
        if self.index.get(&shared.key) == Some(&key) {
            self.index.remove(&shared.key);
        }
    }

    /// Drops timers that mean nothing any more, so that [`Resolver::next_timeout`] is exact.
    fn prune(&mut self) {
        debug_assert!(self.ready.is_empty());
        let queries = &self.queries;
        let live = |(key, at): &(Key, Instant)| queries.get(*key).is_some_and(|s| s.query.due() == *at);
        self.timers.prune_head(live);
        if self.timers.len() > 64 + 4 * queries.len() {
            self.timers.compact(|_, q| live(q));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TransportId;

    #[test]
    fn a_resolver_can_move_between_threads() {
        fn check<T: Send + Sync>() {}
        check::<Resolver>();
    }

    #[test]
    fn foreign_datagrams_set_no_timers() {
        let config = Config { servers: vec!["10.9.0.1:53".parse().unwrap()], ..Config::default() };
        let mut r = Resolver::new(config, Hosts::default(), [0; 32]);
        let q = Question { name: "h.test", a: true, aaaa: false, https: None, interface: None };
        r.lookup(Instant::ZERO, &q);
        for _ in 0..1000 {
            r.handle_input(Instant::ZERO, Input::UdpReceived { transport: TransportId(0), data: b"x" });
        }
        assert_eq!(r.timers.len(), 1);
    }
}
