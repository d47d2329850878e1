//! Making a scenario by code, and everything that follows from its parts: addresses, interface names, queues in bytes.

use crate::error::ScenarioError;
use crate::model::{
    Action, Direction, End, LinkIndex, LinkSpec, MAX_EVENTS, MAX_FLOWS, MAX_LINKS, MAX_NODES, NatChange, Node,
    NodeIndex, NodeKind, Scenario,
};
use crate::routes::Routes;
use crate::traffic::TcpSettings;
use core::time::Duration;
use neater_link::{LinkConfig, QueueLimit};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

type Result<T> = core::result::Result<T, ScenarioError>;

/// Both directions of a link, forward and backward.
pub type Pair = [Direction; 2];

/// Both directions alike.
#[must_use]
pub fn both(config: LinkConfig) -> Pair {
    let one = Direction { config, queue_bdp: None };
    [one.clone(), one]
}

/// Both directions alike, with a queue of `bdp` bandwidth-delay products.
#[must_use]
pub fn both_bdp(config: LinkConfig, bdp: f64) -> Pair {
    both(config).map(|d| Direction { queue_bdp: Some(bdp), ..d })
}

/// Puts a scenario together.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    /// What there is so far; may be changed directly.
    pub scenario: Scenario,
}

impl Builder {
    /// An empty scenario of a name: seed 1, ten seeds for a sweep, 30 s measured without a warm-up.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let scenario = Scenario {
            name: name.to_owned(),
            seed: 1,
            seeds: 10,
            duration: Duration::from_secs(30),
            ..Scenario::default()
        };
        Self { scenario }
    }

    /// Adds a host and returns it.
    pub fn host(&mut self, name: impl Into<String>) -> NodeIndex {
        self.node(name, NodeKind::Host)
    }

    /// Adds a router and returns it.
    pub fn router(&mut self, name: impl Into<String>) -> NodeIndex {
        self.node(name, NodeKind::Router)
    }

    fn node(&mut self, name: impl Into<String>, kind: NodeKind) -> NodeIndex {
        let tcp = TcpSettings::default();
        self.scenario.nodes.push(Node {
            name: name.into(),
            kind,
            tcp,
            filters: Vec::new(),
            nat: None,
            sysctls: BTreeMap::new(),
        });
        self.scenario.nodes.len() - 1
    }

    /// Adds a link from `a` to `b`, with interfaces named `eth0`, `eth1`, ... in order, and returns it.
    pub fn link(&mut self, name: impl Into<String>, a: NodeIndex, b: NodeIndex, directions: Pair) -> LinkIndex {
        let end = |node| End { node, interface: String::new(), addresses: Vec::new() };
        let (name, ends) = (name.into(), [end(a), end(b)]);
        self.scenario.links.push(LinkSpec { name, ends, directions, metric: 1, bdp_rtt: None });
        self.scenario.links.len() - 1
    }

    /// Completes and checks the scenario: names interfaces, gives addresses to ends that have none of a family
    /// (10.x.y.0/24 and fd00:0:0:n::/64 for link n), and turns queues in bandwidth-delay products into bytes.
    ///
    /// # Errors
    /// A name used twice or with letters that are not allowed, a link from a node to itself, an address used twice, a
    /// bound exceeded, a queue in bandwidth-delay products on a link without a rate or on no path between two hosts.
    pub fn build(self) -> Result<Scenario> {
        let mut s = self.scenario;
        check_names(&s)?;
        name_interfaces(&mut s)?;
        assign_addresses(&mut s)?;
        resolve_nats(&mut s)?;
        resolve_queues(&mut s)?;
        if s.events.len() > MAX_EVENTS {
            return Err(ScenarioError::plain("schedule", format!("more than {MAX_EVENTS} events")));
        }
        s.events.sort_by_key(|e| e.at);
        if s.traffic.iter().map(|t| u64::from(t.flows)).sum::<u64>() > MAX_FLOWS {
            return Err(ScenarioError::plain("traffic", format!("more than {MAX_FLOWS} flows")));
        }
        Ok(s)
    }
}

/// Whether a name can be an interface, a namespace, a file and a key at once.
pub(crate) fn check_name(name: &str) -> core::result::Result<(), String> {
    let ok = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if name.is_empty() || name.len() > 32 || !name.chars().all(ok) || name.starts_with('-') {
        return Err(format!("{name:?} is not a name: 1 to 32 letters, digits, '-' and '_', not beginning with '-'"));
    }
    Ok(())
}

fn check_names(s: &Scenario) -> Result<()> {
    if s.nodes.len() > MAX_NODES || s.links.len() > MAX_LINKS {
        return Err(ScenarioError::plain("", format!("more than {MAX_NODES} nodes or {MAX_LINKS} links")));
    }
    let nodes = s.nodes.iter().map(|n| ("node", &n.name));
    let links = s.links.iter().map(|l| ("link", &l.name));
    let traffic = s.traffic.iter().map(|t| ("traffic", &t.name));
    let mut seen = BTreeSet::new();
    for (what, name) in nodes.chain(links).chain(traffic) {
        check_name(name).map_err(|e| ScenarioError::plain(what, e))?;
        if !seen.insert((what, name)) {
            return Err(ScenarioError::plain(format!("{what}.{name}"), "this name is used twice"));
        }
    }
    for link in &s.links {
        if link.ends[0].node == link.ends[1].node {
            return Err(ScenarioError::plain(format!("link.{}", link.name), "leads from a node to itself"));
        }
        if link.metric == 0 {
            return Err(ScenarioError::plain(format!("link.{}.metric", link.name), "must be at least 1"));
        }
    }
    Ok(())
}

fn name_interfaces(s: &mut Scenario) -> Result<()> {
    let mut taken: Vec<BTreeSet<String>> = vec![BTreeSet::new(); s.nodes.len()];
    for link in &s.links {
        for end in link.ends.iter().filter(|e| !e.interface.is_empty()) {
            let place = || format!("link.{}", link.name);
            check_name(&end.interface).map_err(|e| ScenarioError::plain(place(), e))?;
            // The longest name that Linux gives an interface is 15 bytes (IFNAMSIZ less its end).
            if end.interface.len() > 15 || end.interface == "lo" {
                return Err(ScenarioError::plain(
                    place(),
                    format!("{:?} cannot name an interface: at most 15 characters, and not lo", end.interface),
                ));
            }
            if !taken[end.node].insert(end.interface.clone()) {
                let node = &s.nodes[end.node].name;
                return Err(ScenarioError::plain(
                    place(),
                    format!("{node} already has an interface {}", end.interface),
                ));
            }
        }
    }
    let mut next = vec![0u32; s.nodes.len()];
    for link in &mut s.links {
        for end in link.ends.iter_mut().filter(|e| e.interface.is_empty()) {
            let node = end.node;
            loop {
                let name = format!("eth{}", next[node]);
                next[node] += 1;
                if taken[node].insert(name.clone()) {
                    end.interface = name;
                    break;
                }
            }
        }
    }
    Ok(())
}

/// The addresses of one end of a link, unless the scenario gives others.
fn usual_addresses(link: LinkIndex, end: usize) -> [(IpAddr, u8); 2] {
    let v4 = Ipv4Addr::from_bits(10 << 24 | (link as u32) << 8 | (end as u32 + 1));
    let v6 = Ipv6Addr::from_bits(0xfd << 120 | (link as u128) << 64 | (end as u128 + 1));
    [(v4.into(), 24), (v6.into(), 64)]
}

fn assign_addresses(s: &mut Scenario) -> Result<()> {
    let mut seen = BTreeSet::new();
    for (i, link) in s.links.iter_mut().enumerate() {
        // An end without an address of a family gets one in the subnet of the other end's, if that was given.
        let given = link.ends.clone();
        for (at, end) in link.ends.iter_mut().enumerate() {
            for usual in usual_addresses(i, at) {
                let v4 = usual.0.is_ipv4();
                let of_family = |e: &End| e.addresses.iter().find(|(a, _)| a.is_ipv4() == v4).copied();
                if of_family(&given[at]).is_none() {
                    end.addresses.push(match of_family(&given[1 - at]) {
                        Some((other, prefix)) => (neighbour(other), prefix),
                        None => usual,
                    });
                }
            }
            for (address, prefix) in &end.addresses {
                let key = || format!("link.{}", link.name);
                let max = if address.is_ipv4() { 30 } else { 126 };
                if !(8..=max).contains(prefix) {
                    return Err(ScenarioError::plain(
                        key(),
                        format!("{address}/{prefix}: the prefix must be 8 to {max} bits"),
                    ));
                }
                if address.is_unspecified() || address.is_loopback() || address.is_multicast() {
                    return Err(ScenarioError::plain(
                        key(),
                        format!("{address} cannot be the address of an interface"),
                    ));
                }
                if !seen.insert(*address) {
                    return Err(ScenarioError::plain(key(), format!("{address} is used twice")));
                }
            }
        }
    }
    Ok(())
}

/// The next address, or the one before where that would leave the pair.
fn neighbour(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(a) => {
            Ipv4Addr::from_bits(if a.to_bits() & 3 == 1 { a.to_bits() + 1 } else { a.to_bits() - 1 }).into()
        }
        IpAddr::V6(a) => {
            Ipv6Addr::from_bits(if a.to_bits() & 3 == 1 { a.to_bits() + 1 } else { a.to_bits() - 1 }).into()
        }
    }
}

/// Gives every NAT box its outside address, and checks what the schedule does to it.
fn resolve_nats(s: &mut Scenario) -> Result<()> {
    for (index, node) in s.nodes.iter_mut().enumerate() {
        let Some(nat) = &mut node.nat else { continue };
        let key = || format!("router.{}.nat", node.name);
        let end = s.links.get(nat.outside).and_then(|l| l.ends.iter().find(|e| e.node == index));
        let end = end.ok_or_else(|| ScenarioError::plain(key(), "its outside link is not at this router"))?;
        nat.config.external_v4 = end.addresses.iter().find_map(|(a, _)| match a {
            IpAddr::V4(a) => Some(*a),
            IpAddr::V6(_) => None,
        });
        nat.config.external_v6 = None;
    }
    for event in &s.events {
        let Action::Nat { node, what } = event.action else { continue };
        let key = || s.nodes.get(node).map_or_else(String::new, |n| format!("router.{}.nat", n.name));
        let Some(nat) = s.nodes.get(node).and_then(|n| n.nat.as_ref()) else {
            return Err(ScenarioError::plain(key(), "the schedule changes a NAT box that is none"));
        };
        if let NatChange::Move(to) = what
            && !nat.outside_addresses(s, node).any(|a| a == to)
        {
            return Err(ScenarioError::plain(key(), format!("moves to {to}, which its outside link does not have")));
        }
    }
    Ok(())
}

/// Turns queues in bandwidth-delay products into bytes, of links and of what the schedule makes of them.
fn resolve_queues(s: &mut Scenario) -> Result<()> {
    let wanted: BTreeSet<LinkIndex> = s
        .links
        .iter()
        .enumerate()
        .filter(|(_, l)| l.directions.iter().any(|d| d.queue_bdp.is_some()))
        .map(|(i, _)| i)
        .chain(s.events.iter().filter_map(|e| match &e.action {
            Action::Link { link, config, .. } if config.queue_bdp.is_some() => Some(*link),
            _ => None,
        }))
        .collect();
    let unknown = wanted.iter().any(|l| s.links[*l].bdp_rtt.is_none());
    let computed = if unknown { Some(longest_round_trips(s)?) } else { None };
    for link in &wanted {
        let spec = &s.links[*link];
        let rtt = spec.bdp_rtt.or_else(|| computed.as_ref().and_then(|c| c[*link])).ok_or_else(|| {
            let message = "a queue in BDP, but no two hosts reach each other over this link: give bdp-rtt";
            ScenarioError::plain(format!("link.{}", spec.name), message)
        })?;
        s.links[*link].bdp_rtt = Some(rtt);
    }
    for l in &mut s.links {
        for d in &mut l.directions {
            resolve(&l.name, d, l.bdp_rtt)?;
        }
    }
    for e in &mut s.events {
        if let Action::Link { link, config, .. } = &mut e.action {
            let spec = &s.links[*link];
            resolve(&spec.name, config, spec.bdp_rtt)?;
        }
    }
    Ok(())
}

fn resolve(name: &str, direction: &mut Direction, rtt: Option<Duration>) -> Result<()> {
    let (Some(bdp), Some(rtt)) = (direction.queue_bdp, rtt) else { return Ok(()) };
    let Some(rate) = direction.config.rate.mean() else {
        return Err(ScenarioError::plain(format!("link.{name}.queue"), "a queue in BDP needs a rate"));
    };
    let bytes = bdp * rate / 8.0 * rtt.as_secs_f64();
    // A queue that holds no packet at all would be no link.
    let least = f64::from(direction.config.mtu);
    direction.config.queue = QueueLimit::Bytes(bytes.ceil().max(least) as u64);
    Ok(())
}

/// For each link, the longest round trip in propagation delays among pairs of hosts whose path crosses it.
fn longest_round_trips(s: &Scenario) -> Result<Vec<Option<Duration>>> {
    const MAX_HOSTS: usize = 300;
    let hosts: Vec<_> = s.hosts().collect();
    if hosts.len() > MAX_HOSTS {
        let message = format!("a queue in BDP among more than {MAX_HOSTS} hosts: give bdp-rtt on the link");
        return Err(ScenarioError::plain("", message));
    }
    let routes = Routes::compute(s);
    let mut longest: Vec<Option<Duration>> = vec![None; s.links.len()];
    for &a in &hosts {
        for &b in hosts.iter().filter(|b| **b != a) {
            for (subnet, _) in s.links_of(b) {
                let Some(path) = routes.path(s, a, subnet) else { continue };
                let rtt: Duration = path.iter().map(|l| round_trip(&s.links[*l])).sum();
                for link in path {
                    longest[link] = longest[link].max(Some(rtt));
                }
            }
        }
    }
    Ok(longest)
}

fn round_trip(link: &LinkSpec) -> Duration {
    link.directions.iter().map(|d| d.config.delay).sum()
}
