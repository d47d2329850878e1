//! Which domains there are now, and when their documents are asked for.

use super::advertisement::{Advertisement, BadAdvertisement, PvdOption};
use super::information::{Information, same_name};
use super::{MAX_ITEMS, Prefix};
use core::time::Duration;
use neater_base::net::{Interface, InterfaceKind};
use neater_base::{Instant, Rng, WallTime};
use neater_property::neat::{NeatProperty, NeatValue};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};

/// How many domains of one interface count; more are ignored.
pub const MAX_DOMAINS: usize = 16;
/// Between two requests for one domain's document, at least (RFC 8801 section 4.1).
const BETWEEN: Duration = Duration::from_secs(10);
/// How many requests there may be on one network within [`BETWEEN`] (section 4.1).
const MAX_REQUESTS: usize = 5;
/// So many failures on one network end all requests there (section 4.1).
const MAX_FAILURES: usize = 10;
/// A server that cannot be reached is tried so often; then it has failed.
const MAX_TRIES: u32 = 5;
/// No lifetime counts for more than this: a document that never expires would never be looked at
/// again.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Two ends that are no further apart are the same: two clocks never go quite alike.
const SAME: Duration = Duration::from_secs(1);

/// Things that end.
type Ending<T> = Vec<(T, Instant)>;

/// Takes a thing's new lifetime; 0 ends it.
fn renew<T: PartialEq>(list: &mut Ending<T>, thing: T, seconds: u32, now: Instant) {
    list.retain(|(held, _)| *held != thing);
    if seconds > 0 && list.len() < MAX_ITEMS {
        list.push((thing, now + Duration::from_secs(seconds.into()).min(LONGEST)));
    }
}

fn last<T>(list: &Ending<T>) -> Option<Instant> {
    list.iter().map(|(_, until)| *until).max()
}

/// What is known of a document.
#[derive(Clone, Debug, Default)]
struct Document {
    information: Option<(Information, Instant)>,
    /// When it is asked for next; `None` while it is being asked for, or not at all.
    next: Option<Instant>,
    /// The request that is out.
    ticket: Option<u64>,
    tries: u32,
}

#[derive(Clone, Debug)]
struct Domain {
    option: PvdOption,
    /// Routers and routes through which something can be reached.
    routers: Ending<Ipv6Addr>,
    routes: Ending<(Ipv6Addr, Prefix)>,
    prefixes: Ending<Prefix>,
    dns: Ending<Ipv6Addr>,
    document: Document,
    /// When it ends by the clock on the wall, as reported last.
    told: Option<WallTime>,
}

impl Domain {
    fn new(option: &PvdOption) -> Self {
        Self {
            option: option.clone(),
            routers: Vec::new(),
            routes: Vec::new(),
            prefixes: Vec::new(),
            dns: Vec::new(),
            document: Document::default(),
            told: None,
        }
    }

    /// Until when something beyond the link can be reached through it.
    fn reach(&self) -> Option<Instant> {
        last(&self.routers).max(last(&self.routes))
    }

    fn expire(&mut self, now: Instant) {
        self.routers.retain(|(_, until)| *until > now);
        self.routes.retain(|(_, until)| *until > now);
        self.prefixes.retain(|(_, until)| *until > now);
        self.dns.retain(|(_, until)| *until > now);
        if self.document.information.as_ref().is_some_and(|(_, until)| *until <= now) {
            self.document.information = None;
        }
    }

    /// When its information expires by the wall clock: the same as before, unless something has
    /// changed or that clock was set.
    fn ends(&mut self, now: Instant, wall: WallTime) -> Option<WallTime> {
        let document = self.document.information.as_ref().map(|(_, until)| *until);
        let until = [self.reach(), document].into_iter().flatten().min().filter(|_| self.reach().is_some())?;
        let ends = WallTime(wall.0.saturating_add(until.saturating_since(now)));
        let told = self.told.filter(|told| told.0.abs_diff(ends.0) < SAME).unwrap_or(ends);
        self.told = Some(told);
        self.told
    }

    /// When [`Domain::expire`] changes something.
    fn next_end(&self) -> Option<Instant> {
        let of_lists = [first(&self.routers), first(&self.routes), first(&self.prefixes), first(&self.dns)];
        let document = self.document.information.as_ref().map(|(_, until)| *until);
        of_lists.into_iter().chain([document]).flatten().min()
    }

    fn holds(&self, addr: IpAddr) -> bool {
        match addr {
            IpAddr::V6(six) => self.prefixes.iter().any(|(p, _)| p.holds(six)),
            IpAddr::V4(_) => false,
        }
    }
}

fn first<T>(list: &Ending<T>) -> Option<Instant> {
    list.iter().map(|(_, until)| *until).min()
}

/// An interface while it is up: a network that the host is attached to.
#[derive(Clone, Debug)]
struct Network {
    interface: Interface,
    domains: BTreeMap<String, Domain>,
    /// The latest requests.
    asked: VecDeque<(Instant, String)>,
    /// The domains whose documents are not asked for again.
    failed: Vec<String>,
}

impl Network {
    /// When this domain's document may be asked for.
    fn may_ask(&self, id: &str) -> Option<Instant> {
        if self.failed.len() >= MAX_FAILURES || self.failed.iter().any(|f| f == id) {
            return None;
        }
        let again = |(at, _): &(Instant, String)| *at + BETWEEN;
        let same = self.asked.iter().rev().find(|(_, asked)| asked == id).map(again);
        let crowded = self.asked.len().checked_sub(MAX_REQUESTS).and_then(|i| self.asked.get(i)).map(again);
        Some(same.max(crowded).unwrap_or(Instant::ZERO))
    }

    /// When a domain's document is asked for, if everything that takes is there.
    fn due(&self, domain: &Domain) -> Option<Instant> {
        let wanted = domain.document.next.filter(|_| domain.option.http && !domain.dns.is_empty())?;
        self.sources(domain).next()?;
        Some(wanted.max(self.may_ask(&domain.option.id)?))
    }

    /// The IPv6 addresses that the host has of this domain, temporary ones first (section 4.1).
    fn sources(&self, domain: &Domain) -> impl Iterator<Item = Ipv6Addr> {
        let of = |temporary: bool| {
            let addrs = self.interface.addrs.iter();
            addrs.filter(move |a| !a.deprecated && a.temporary == temporary && domain.holds(a.addr))
        };
        let six = |a: &neater_base::net::InterfaceAddr| match a.addr {
            IpAddr::V6(six) => Some(six),
            IpAddr::V4(_) => None,
        };
        of(true).chain(of(false)).filter_map(six)
    }

    /// The domain of the interface's IPv4 addresses: the only one that claims them (section 3.4.2).
    fn legacy(&self) -> Option<&str> {
        let mut all = self.domains.values().filter(|d| d.option.legacy);
        let only = all.next().filter(|_| all.next().is_none());
        only.map(|d| d.option.id.as_str())
    }

    fn fail(&mut self, id: &str) {
        if let Some(domain) = self.domains.get_mut(id) {
            domain.document = Document::default();
        }
        if !self.failed.iter().any(|f| f == id) {
            self.failed.push(id.to_owned());
        }
    }
}

/// What an advertisement came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It announces no domain, or came over an interface that is not there or not up.
    NoDomain,
    /// A domain that was not known.
    New,
    /// A domain that was known.
    Known,
    /// The domain ends here.
    Withdrawn,
    /// There are [`MAX_DOMAINS`] on this interface already.
    Full,
}

/// A document to be asked for: `https://ID/.well-known/pvd`, with nothing but the domain's own
/// configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// To be given back with the answer.
    pub ticket: u64,
    /// The domain's name.
    pub id: String,
    /// The interface, by index.
    pub index: u32,
    /// The interface, by name.
    pub interface: String,
    /// The address to come from.
    pub source: Ipv6Addr,
    /// The servers that resolve names, at least one.
    pub dns: Vec<Ipv6Addr>,
}

/// Why there is no document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// There was no answer: the network may be slow to come up, and the request is made again.
    Unreachable(String),
    /// A server answered that has none, or is not authorised for the domain: it is not asked for
    /// again.
    Refused(String),
}

/// A domain as it is now, as far as this host can use it.
#[derive(Clone, Debug, PartialEq)]
pub struct Provisioned {
    /// The domain's name.
    pub id: String,
    /// The interface, by name.
    pub interface: String,
    /// The host's addresses that belong to the domain, at least one.
    pub addrs: Vec<IpAddr>,
    /// What is known of it, for its rows.
    pub properties: Vec<NeatProperty>,
    /// Until when that holds if no further advertisement is received.
    pub expires: WallTime,
}

/// The domains of this host.
#[derive(Clone, Debug)]
pub struct Domains {
    networks: BTreeMap<u32, Network>,
    rng: Rng,
    tickets: u64,
}

impl Domains {
    /// No domain; random delays follow from the seed.
    #[must_use]
    pub const fn new(rng: Rng) -> Self {
        Self { networks: BTreeMap::new(), rng, tickets: 0 }
    }

    /// Takes the interfaces as they are now. With one that is down, what was received over it is
    /// gone, and what failed there is forgotten: the next network there is another one.
    pub fn set_interfaces(&mut self, interfaces: &[Interface]) {
        let there = |i: &&Interface| i.up && i.kind != InterfaceKind::Loopback;
        self.networks.retain(|index, _| interfaces.iter().filter(there).any(|i| i.index == *index));
        for interface in interfaces.iter().filter(there) {
            let new = || Network {
                interface: interface.clone(),
                domains: BTreeMap::new(),
                asked: VecDeque::new(),
                failed: Vec::new(),
            };
            self.networks.entry(interface.index).or_insert_with(new).interface = interface.clone();
        }
    }

    /// Takes an ICMPv6 message that came over an interface.
    ///
    /// # Errors
    /// [`BadAdvertisement`]: it counts for nothing.
    pub fn heard(
        &mut self,
        now: Instant,
        interface: u32,
        source: Ipv6Addr,
        hop_limit: u8,
        message: &[u8],
    ) -> Result<Heard, BadAdvertisement> {
        let told = Advertisement::parse(source, hop_limit, message)?;
        self.expire(now);
        let Some(network) = self.networks.get_mut(&interface) else { return Ok(Heard::NoDomain) };
        let id = told.pvd.as_ref().map(|p| p.id.as_str());
        // An address belongs to the domain that announced its prefix last (section 3.4).
        let prefixes = || told.configurations().flat_map(|c| &c.prefixes);
        for domain in network.domains.values_mut().filter(|d| Some(d.option.id.as_str()) != id) {
            domain.prefixes.retain(|(held, _)| !prefixes().any(|p| p.prefix == *held));
        }
        let Some(option) = &told.pvd else { return Ok(Heard::NoDomain) };
        let known = network.domains.contains_key(&option.id);
        if !known && network.domains.len() >= MAX_DOMAINS {
            return Ok(Heard::Full);
        }
        let domain = network.domains.entry(option.id.clone()).or_insert_with(|| Domain::new(option));
        renew(&mut domain.routers, source, told.effective_header().lifetime.into(), now);
        for c in told.configurations() {
            c.prefixes.iter().for_each(|p| renew(&mut domain.prefixes, p.prefix, p.valid, now));
            c.dns.iter().for_each(|(server, lifetime)| renew(&mut domain.dns, *server, *lifetime, now));
            c.routes.iter().for_each(|(route, lifetime)| renew(&mut domain.routes, (source, *route), *lifetime, now));
        }
        if domain.reach().is_none() {
            network.domains.remove(&option.id);
            return Ok(if known { Heard::Withdrawn } else { Heard::NoDomain });
        }
        let before = core::mem::replace(&mut domain.option, option.clone());
        let document = &mut domain.document;
        if !option.http {
            *document = Document::default();
        } else if !known || !before.http {
            document.next = Some(now);
        } else if before.sequence != option.sequence {
            // What is out may be what was before.
            let spread = 1 << (10 + u32::from(option.delay));
            let delay = Duration::from_millis(self.rng.below(spread + 1));
            *document = Document { next: Some(now + delay), ..Document::default() };
        }
        let covers = |(i, _): &(Information, Instant)| i.covers(prefixes().map(|p| &p.prefix));
        if document.information.as_ref().is_some_and(|i| !covers(i)) {
            network.fail(&option.id);
        }
        Ok(if known { Heard::Known } else { Heard::New })
    }

    /// The next document to be asked for now, if there is one.
    pub fn poll_fetch(&mut self, now: Instant) -> Option<Fetch> {
        for (index, network) in &mut self.networks {
            let due = |d: &&Domain| network.due(d).is_some_and(|at| at <= now);
            let Some(domain) = network.domains.values().find(due) else { continue };
            let source = network.sources(domain).next()?;
            self.tickets += 1;
            let fetch = Fetch {
                ticket: self.tickets,
                id: domain.option.id.clone(),
                index: *index,
                interface: network.interface.name.clone(),
                source,
                dns: domain.dns.iter().map(|(server, _)| *server).collect(),
            };
            network.asked.retain(|(at, _)| *at + BETWEEN > now);
            network.asked.push_back((now, fetch.id.clone()));
            if let Some(domain) = network.domains.get_mut(&fetch.id) {
                (domain.document.next, domain.document.ticket) = (None, Some(fetch.ticket));
            }
            return Some(fetch);
        }
        None
    }

    /// Takes the answer to a request.
    ///
    /// # Errors
    /// What is wrong with it. An answer to a request that counts no more is dropped without a word.
    pub fn fetched(
        &mut self,
        now: Instant,
        wall: WallTime,
        ticket: u64,
        answer: Result<Vec<u8>, Failure>,
    ) -> Result<(), String> {
        let asked =
            |n: &Network| n.domains.values().find(|d| d.document.ticket == Some(ticket)).map(|d| d.option.id.clone());
        let found = self.networks.values_mut().find_map(|n| asked(n).map(|id| (n, id)));
        let Some((network, id)) = found else { return Ok(()) };
        let Some(domain) = network.domains.get_mut(&id) else { return Ok(()) };
        domain.document.ticket = None;
        let why = match answer {
            Ok(bytes) => match Information::parse(&id, &bytes, wall) {
                Ok(told) if !told.covers(domain.prefixes.iter().map(|(p, _)| p)) => {
                    "its prefixes are not those that the router announces".to_owned()
                }
                Ok(told) => {
                    let lifetime = told.expires.0.saturating_sub(wall.0).min(LONGEST);
                    // A new one is asked for in the second half of this one's life, each host at
                    // another time (section 4.1).
                    let half = u64::try_from(lifetime.as_nanos() / 2).unwrap_or(u64::MAX);
                    let refresh = now + Duration::from_nanos(half.saturating_add(self.rng.below(half + 1)));
                    let until = now + lifetime;
                    domain.document =
                        Document { information: Some((told, until)), next: Some(refresh), ..Document::default() };
                    return Ok(());
                }
                Err(why) => why,
            },
            Err(Failure::Refused(why)) => why,
            Err(Failure::Unreachable(why)) => {
                domain.document.tries += 1;
                if domain.document.tries < MAX_TRIES {
                    domain.document.next = Some(now + BETWEEN * 2_u32.pow(domain.document.tries - 1));
                    return Err(format!("{why}; it is asked for again"));
                }
                why
            }
        };
        network.fail(&id);
        Err(format!("{why}; it is not asked for again on this network"))
    }

    fn expire(&mut self, now: Instant) {
        for network in self.networks.values_mut() {
            network.domains.values_mut().for_each(|d| d.expire(now));
            network.domains.retain(|_, d| d.reach().is_some());
        }
    }

    /// Lets go of what has ended.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.expire(now);
    }

    /// When [`Domains::handle_timeout`] and [`Domains::poll_fetch`] want to be called.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let of = |n: &Network| n.domains.values().flat_map(|d| [d.next_end(), n.due(d)]).flatten().min();
        self.networks.values().filter_map(of).min()
    }

    /// How many domains are known, whether this host has addresses of them or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.networks.values().map(|n| n.domains.len()).sum()
    }

    /// Whether no domain is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The domains that the host has addresses of, by interface and name. Lifetimes run by the
    /// monotonic clock; their end by the wall clock is reported as of `wall`.
    #[must_use]
    pub fn provisioned(&mut self, now: Instant, wall: WallTime) -> Vec<Provisioned> {
        let all = self.networks.values_mut().flat_map(|network| {
            let ends: Vec<_> = network.domains.values_mut().map(|d| d.ends(now, wall)).collect();
            let network = &*network;
            network.domains.values().zip(ends).map(move |(domain, ends)| (network, domain, ends))
        });
        all.filter_map(|(network, domain, expires)| {
            let expires = expires?;
            let legacy = network.legacy().is_some_and(|id| same_name(id, &domain.option.id));
            let belongs = |a: &IpAddr| domain.holds(*a) || a.is_ipv4() && legacy;
            let addrs = network.interface.addrs.iter().filter(|a| !a.deprecated).map(|a| a.addr).filter(belongs);
            let addrs: Vec<IpAddr> = addrs.collect();
            let fixed =
                |key: &str, value: NeatValue| NeatProperty::new(key, value).with_precedence(NeatProperty::IMMUTABLE);
            let texts = |all: Vec<String>| NeatValue::set(all.into_iter().map(NeatValue::Text)).ok();
            let mut properties = vec![fixed("pvd", NeatValue::Text(domain.option.id.clone()))];
            let prefixes = texts(domain.prefixes.iter().map(|(p, _)| p.to_string()).collect());
            properties.extend(prefixes.map(|p| NeatProperty::new("pvd_prefixes", p)));
            let servers = texts(domain.dns.iter().map(|(s, _)| s.to_string()).collect());
            properties.extend(servers.map(|s| NeatProperty::new("pvd_dns_servers", s)));
            if let Some((told, _)) = &domain.document.information {
                properties.extend(told.properties.iter().cloned());
            }
            let (id, interface) = (domain.option.id.clone(), network.interface.name.clone());
            (!addrs.is_empty()).then_some(Provisioned { id, interface, addrs, properties, expires })
        })
        .collect()
    }
}
