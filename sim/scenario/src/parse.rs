//! A scenario from TOML.

use crate::builder::{Builder, Pair, check_name};
use crate::document::{self, Kind, Table, Value};
use crate::error::{Place, ScenarioError};
use crate::fields::Fields;
use crate::files::{FileContent, FileKind};
use crate::link_keys;
use crate::link_models::filters;
use crate::model::{Capture, Direction, NatSpec, NodeIndex, Parameter, Probe, ProbeKind, RouteRule, Scenario};
use crate::parse_schedule::schedule;
use crate::parse_topology::topology;
use crate::parse_traffic::{tcp, traffic};
use crate::shipped::shipped_file;
use core::time::Duration;
use neater_link::{Dependence, MAX_MAPPINGS, NatConfig, PortAllocation};
use std::collections::BTreeMap;
use std::net::IpAddr;

type Result<T> = core::result::Result<T, ScenarioError>;

/// The keys that a document may begin with.
pub(crate) const TOP_LEVEL: &[&str] = &[
    "name",
    "description",
    "seed",
    "seeds",
    "warm-up",
    "duration",
    "parameters",
    "topology",
    "host",
    "router",
    "link",
    "route",
    "schedule",
    "traffic",
    "probe",
    "capture",
    "tcp",
];

impl Scenario {
    /// Reads a scenario that names no files but those that come with this crate. `overrides` are pairs of key and value that take the
    /// place of what the file says: the name of a parameter, or a dotted key such as `link.bottleneck.rate`.
    ///
    /// # Errors
    /// What is wrong, at which line and column, and what is allowed there.
    pub fn parse(text: &str, overrides: &[(String, String)]) -> Result<Self> {
        Self::parse_with(text, overrides, |name, kind| match shipped_file(name) {
            Some(text) => kind.read(text),
            None => Err("this scenario was read from no place where files could be beside it".to_owned()),
        })
    }

    /// As [`Scenario::parse`], with the files that the scenario names (`trace-file`, `values-file`): `files` gives what the file of a
    /// name says ([`FileKind::read`]), or what is wrong with it, with the line. It is asked once for each name and kind.
    ///
    /// # Errors
    /// As [`Scenario::parse`]; and what `files` says, with the place in the scenario where the file is named.
    pub fn parse_with(
        text: &str,
        overrides: &[(String, String)],
        mut files: impl FnMut(&str, FileKind) -> core::result::Result<FileContent, String>,
    ) -> Result<Self> {
        let mut root = document::parse(text)?;
        document::override_with(&mut root, overrides)?;
        let parameters = take_parameters(&mut root)?;
        let values: BTreeMap<_, _> = parameters.iter().map(|(p, v)| (p.name.clone(), v.kind.clone())).collect();
        let mut known = BTreeMap::new();
        for (_, _, v) in &mut root {
            document::substitute(v, &values)?;
            document::load(v, &mut files, &mut known)?;
        }
        let mut f = Fields::new("", Place::Nowhere, root);
        let mut b = match f.table("topology")? {
            Some(t) => topology(t)?,
            None => Builder::new("scenario"),
        };
        let s = &mut b.scenario;
        s.parameters = parameters.into_iter().map(|(p, _)| p).collect();
        if let Some(name) = f.text("name")? {
            check_name(&name).map_err(|e| ScenarioError::plain("name", e))?;
            s.name = name;
        }
        s.description = f.text("description")?.unwrap_or_default();
        s.seed = f.whole("seed", 0..=(1 << 53))?.unwrap_or(s.seed);
        s.seeds = f.whole("seeds", 1..=1_000_000)?.map_or(s.seeds, |n| n as u32);
        s.warm_up = f.time("warm-up")?.unwrap_or(s.warm_up);
        s.duration = f.time("duration")?.unwrap_or(s.duration);
        let common = tcp(&mut f)?;
        let nats = nodes(&mut b, &mut f)?;
        for node in &mut b.scenario.nodes {
            node.tcp = node.tcp.over(common);
        }
        links(&mut b, &mut f)?;
        let s = &mut b.scenario;
        for (node, own, name, config) in nats {
            let outside = link_named(s, &own, "outside", &name)?;
            own.finish()?;
            s.nodes[node].nat = Some(NatSpec { outside, config });
        }
        for (name, own) in named(&mut f, "traffic")? {
            let one = traffic(&name, own, s)?;
            s.traffic.push(one);
        }
        routes(s, &mut f)?;
        schedule(s, &mut f)?;
        probes(s, &mut f)?;
        f.finish()?;
        b.build()
    }
}

/// `[parameters]`: `rate = "10 Mbit/s"` or `rate = { default = "10 Mbit/s", help = "..." }`.
fn take_parameters(root: &mut Table) -> Result<Vec<(Parameter, Value)>> {
    let Some(at) = root.iter().position(|(k, ..)| k == "parameters") else { return Ok(Vec::new()) };
    let mut f = Fields::of("parameters", root.remove(at).2)?;
    let mut all = Vec::new();
    for (name, value) in f.rest() {
        let key = format!("parameters.{name}");
        check_name(&name).map_err(|e| ScenarioError::new(value.place.clone(), key.clone(), e))?;
        let (value, help) = match value.kind {
            Kind::Table(t) => {
                let mut own = Fields::new(&key, value.place, t);
                let value = own.take("default").ok_or_else(|| own.error("needs default = VALUE"))?;
                let help = own.text("help")?.unwrap_or_default();
                own.finish()?;
                (value, help)
            }
            kind => (Value { place: value.place, kind }, String::new()),
        };
        let text = match &value.kind {
            Kind::Text(t) => t.clone(),
            Kind::Number(n) => n.to_string(),
            Kind::Bool(b) => b.to_string(),
            other => {
                let message = format!("is {}, but a parameter is a string, a number, or true or false", other.name());
                return Err(ScenarioError::new(value.place, key, message));
            }
        };
        if text.contains('$') {
            return Err(ScenarioError::new(value.place, key, "a parameter cannot refer to another"));
        }
        all.push((Parameter { name, value: text, help }, value));
    }
    Ok(all)
}

/// The tables below a name: `[link.a]`, `[link.b]`.
fn named(f: &mut Fields, name: &'static str) -> Result<Vec<(String, Fields)>> {
    let Some(mut all) = f.table(name)? else { return Ok(Vec::new()) };
    all.rest()
        .into_iter()
        .map(|(key, value)| {
            let path = format!("{name}.{key}");
            check_name(&key).map_err(|e| ScenarioError::new(value.place.clone(), path.clone(), e))?;
            Ok((key, Fields::of(&path, value)?))
        })
        .collect()
}

/// A NAT box whose outside link is not known yet: its node, what is left of its table, the link's name, what it is like.
type Nat = (NodeIndex, Fields, (String, Place), NatConfig);

fn nodes(b: &mut Builder, f: &mut Fields) -> Result<Vec<Nat>> {
    let mut nats = Vec::new();
    for router in [false, true] {
        for (name, mut own) in named(f, if router { "router" } else { "host" })? {
            let kind = if router { crate::NodeKind::Router } else { crate::NodeKind::Host };
            let node = match b.scenario.node(&name) {
                Some(node) if b.scenario.nodes[node].kind == kind => node,
                Some(_) => return Err(own.error("this name is already that of a node of the other kind")),
                None if router => b.router(name),
                None => b.host(name),
            };
            let tcp = tcp(&mut own)?;
            if router && tcp != crate::TcpSettings::default() {
                return Err(own.error("tcp is for hosts: a router opens no connections"));
            }
            let sysctls = if router { BTreeMap::new() } else { lab_settings(&mut own)? };
            let filters = if router { filters(&mut own)?.unwrap_or_default() } else { Vec::new() };
            if router && let Some(mut table) = own.table("nat")? {
                let (name, config) = (one(&mut table, "outside")?, nat_config(&mut table)?);
                nats.push((node, table, name, config));
            }
            own.finish()?;
            b.scenario.nodes[node].tcp = tcp;
            b.scenario.nodes[node].sysctls = sysctls;
            b.scenario.nodes[node].filters = filters;
        }
    }
    Ok(nats)
}

/// `lab = { congestion, sysctl = { NAME = VALUE } }`: what the kernel of a host in the lab is told beyond TCP's settings.
fn lab_settings(f: &mut Fields) -> Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    let Some(mut own) = f.table("lab")? else { return Ok(all) };
    if let Some(name) = own.text("congestion")? {
        if name.is_empty() || name.len() > 15 || !name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)) {
            return Err(own.error("congestion is the kernel's name of a congestion control, such as \"bbr\""));
        }
        all.insert("net.ipv4.tcp_congestion_control".to_owned(), name);
    }
    if let Some(mut given) = own.table("sysctl")? {
        for (key, value) in given.rest() {
            let wrong = |why: &str| ScenarioError::new(value.place.clone(), given.key(&key), why.to_owned());
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            if !key.starts_with("net.") || key.len() > 128 || !key.chars().all(plain) || key.contains("..") {
                return Err(wrong(
                    "is no setting of a network namespace: its name begins with net. (in quotes, with dots)",
                ));
            }
            let text = match &value.kind {
                Kind::Text(text) => text.clone(),
                Kind::Number(n) if n.fract() == 0.0 => format!("{n:.0}"),
                _ => return Err(wrong("must be a string or a whole number")),
            };
            if text.len() > 256 || text.chars().any(char::is_control) {
                return Err(wrong("is longer than 256 bytes or has control characters"));
            }
            all.insert(key, text);
        }
    }
    own.finish()?;
    Ok(all)
}

/// `kind` and everything else of a NAT box.
fn nat_config(f: &mut Fields) -> Result<NatConfig> {
    type Make = fn(IpAddr) -> NatConfig;
    let kinds: [(&str, Make); 4] = [
        ("full-cone", NatConfig::full_cone),
        ("restricted-cone", NatConfig::restricted_cone),
        ("port-restricted-cone", NatConfig::port_restricted_cone),
        ("symmetric", NatConfig::symmetric),
    ];
    // The address is known when all addresses are.
    let make = f.word("kind", &kinds)?.unwrap_or(NatConfig::port_restricted_cone);
    let mut config = make(std::net::Ipv4Addr::UNSPECIFIED.into());
    config.udp_timeout = f.time("udp-timeout")?.unwrap_or(config.udp_timeout);
    config.tcp_established = f.time("tcp-established")?.unwrap_or(config.tcp_established);
    config.tcp_transitory = f.time("tcp-transitory")?.unwrap_or(config.tcp_transitory);
    config.other_timeout = f.time("other-timeout")?.unwrap_or(config.other_timeout);
    config.hairpinning = f.flag("hairpinning")?.unwrap_or(config.hairpinning);
    let dependences = [
        ("endpoint-independent", Dependence::EndpointIndependent),
        ("address-dependent", Dependence::AddressDependent),
        ("address-and-port-dependent", Dependence::AddressAndPortDependent),
    ];
    config.mapping = f.word("mapping", &dependences)?.unwrap_or(config.mapping);
    config.filtering = f.word("filtering", &dependences)?.unwrap_or(config.filtering);
    let ports = [
        ("preserving", PortAllocation::Preserving),
        ("contiguous", PortAllocation::Contiguous),
        ("random", PortAllocation::Random),
    ];
    config.ports = f.word("ports", &ports)?.unwrap_or(config.ports);
    let (first, last) = (f.whole("first-port", 1..=65_535)?, f.whole("last-port", 1..=65_535)?);
    let first = first.map_or(*config.port_range.start(), |p| p as u16);
    let last = last.map_or(*config.port_range.end(), |p| p as u16);
    if first > last {
        return Err(f.error(format!("first-port {first} is above last-port {last}")));
    }
    config.port_range = first..=last;
    config.udp_refresh_inbound = f.flag("udp-refresh-inbound")?.unwrap_or(config.udp_refresh_inbound);
    config.icmp_errors = f.flag("icmp-errors")?.unwrap_or(config.icmp_errors);
    config.adopts_connections = f.flag("adopts-connections")?.unwrap_or(config.adopts_connections);
    let most = f.whole("max-mappings", 1..=MAX_MAPPINGS as u64)?;
    config.max_mappings = most.map_or(config.max_mappings, |n| n as usize);
    Ok(config)
}

/// `[link.NAME]`: a new link, or changes to one of the topology.
fn links(b: &mut Builder, f: &mut Fields) -> Result<()> {
    for (name, mut own) in named(f, "link")? {
        let (existing, base): (_, Pair) = match b.scenario.link(&name) {
            Some(link) => (Some(link), b.scenario.links[link].directions.clone()),
            None => (None, [Direction::default(), Direction::default()]),
        };
        let ends = (end(&b.scenario, &mut own, "from")?, end(&b.scenario, &mut own, "to")?);
        let directions = link_keys::pair(&mut own, base)?;
        let link = match (existing, ends) {
            (Some(link), (None, None)) => link,
            (Some(_), _) => return Err(own.error("this link of the topology has its ends already")),
            (None, (Some(from), Some(to))) => {
                let link = b.link(name, from.0, to.0, directions.clone());
                b.scenario.links[link].ends[0].interface = from.1;
                b.scenario.links[link].ends[1].interface = to.1;
                link
            }
            (None, _) => return Err(own.error("needs from = \"NODE\" and to = \"NODE\"")),
        };
        let addresses = [addresses(&mut own, "from-addresses")?, addresses(&mut own, "to-addresses")?];
        let spec = &mut b.scenario.links[link];
        spec.directions = directions;
        for (end, addresses) in spec.ends.iter_mut().zip(addresses) {
            end.addresses.extend(addresses);
        }
        spec.metric = own.whole("metric", 1..=65_535)?.map_or(spec.metric, |n| n as u32);
        spec.bdp_rtt = own.time("bdp-rtt")?.or(spec.bdp_rtt);
        own.finish()?;
    }
    Ok(())
}

/// `NODE` or `NODE.INTERFACE`.
fn end(s: &Scenario, f: &mut Fields, name: &'static str) -> Result<Option<(NodeIndex, String)>> {
    let key = f.key(name);
    let Some(texts) = f.texts(name)? else { return Ok(None) };
    let [(text, place)] = &texts[..] else { return Err(f.error(format!("{name} must be one node"))) };
    let (node, interface) = text.split_once('.').unwrap_or((text, ""));
    let node = s.node(node).ok_or_else(|| {
        ScenarioError::new(
            place.clone(),
            key,
            format!("no node {node:?}: declare it as [host.{node}] or [router.{node}]"),
        )
    })?;
    Ok(Some((node, interface.to_owned())))
}

fn addresses(f: &mut Fields, name: &'static str) -> Result<Vec<(IpAddr, u8)>> {
    let key = f.key(name);
    let parse = |(text, place): (String, Place)| {
        let parts = text.split_once('/').and_then(|(a, p)| Some((a.parse().ok()?, p.parse().ok()?)));
        parts.ok_or_else(|| {
            let message = format!("{text:?} is not an address with its prefix, such as 192.0.2.1/24 or 2001:db8::1/64");
            ScenarioError::new(place, key.clone(), message)
        })
    };
    f.texts(name)?.unwrap_or_default().into_iter().map(parse).collect()
}

pub(crate) fn find<T>(
    place: &Place,
    key: String,
    what: &str,
    name: &str,
    found: Option<T>,
    all: Vec<&str>,
) -> Result<T> {
    found.ok_or_else(|| {
        let shown = all.iter().take(20).copied().collect::<Vec<_>>().join(", ");
        let more = if all.len() > 20 { ", ..." } else { "" };
        ScenarioError::new(place.clone(), key, format!("no {what} {name:?}; there are {shown}{more}"))
    })
}

pub(crate) fn node_named(s: &Scenario, f: &Fields, key: &str, (name, place): &(String, Place)) -> Result<NodeIndex> {
    let all = s.nodes.iter().map(|n| n.name.as_str()).collect();
    find(place, f.key(key), "node", name, s.node(name), all)
}

pub(crate) fn link_named(s: &Scenario, f: &Fields, key: &str, (name, place): &(String, Place)) -> Result<usize> {
    let all = s.links.iter().map(|n| n.name.as_str()).collect();
    find(place, f.key(key), "link", name, s.link(name), all)
}

pub(crate) fn one(f: &mut Fields, name: &'static str) -> Result<(String, Place)> {
    match f.texts(name)?.as_deref() {
        Some([one]) => Ok(one.clone()),
        _ => Err(f.error(format!("needs {name} = \"NAME\""))),
    }
}

/// `[[route]]`: `node`, `to`, `via` (links), and `on` (the link of the destination's address).
fn routes(s: &mut Scenario, f: &mut Fields) -> Result<()> {
    for mut own in f.tables("route")? {
        let (node, to) = (one(&mut own, "node")?, one(&mut own, "to")?);
        let (node, to) = (node_named(s, &own, "node", &node)?, node_named(s, &own, "to", &to)?);
        let on = match own.texts("on")?.as_deref() {
            Some([name]) => Some(link_named(s, &own, "on", name)?),
            Some(_) => return Err(own.error("on names one link: say more of them in rules of their own")),
            None => None,
        };
        if on.is_some_and(|on| !s.links_of(to).any(|(l, _)| l == on)) {
            return Err(own.error("on names a link that is not at the destination"));
        }
        let via = own.texts("via")?.unwrap_or_default();
        let via = via.iter().map(|v| link_named(s, &own, "via", v)).collect::<Result<Vec<_>>>()?;
        if via.is_empty() || via.iter().any(|v| !s.links_of(node).any(|(l, _)| l == *v)) {
            let here: Vec<_> = s.links_of(node).map(|(l, _)| s.links[l].name.as_str()).collect();
            return Err(own.error(format!("needs via = [links at the node]: {}", here.join(", "))));
        }
        own.finish()?;
        s.routes.push(RouteRule { node, to, on, via });
    }
    Ok(())
}

/// `[[probe]]`: `queue = LINK`, `tcp = TRAFFIC` or `goodput = TRAFFIC`, and `interval`; `[capture] links = [...]`.
fn probes(s: &mut Scenario, f: &mut Fields) -> Result<()> {
    for mut own in f.tables("probe")? {
        let interval = own.time("interval")?;
        if interval.is_some_and(|i| i < Duration::from_micros(1)) {
            return Err(own.error("interval must be at least 1 us"));
        }
        let mut all = Vec::new();
        for name in own.texts("queue")?.unwrap_or_default() {
            all.push(ProbeKind::Queue(link_named(s, &own, "queue", &name)?));
        }
        for (key, make) in [("tcp", ProbeKind::Tcp as fn(String) -> ProbeKind), ("goodput", ProbeKind::Goodput)] {
            for (name, place) in own.texts(key)?.unwrap_or_default() {
                let names = s.traffic.iter().map(|t| t.name.as_str()).collect();
                find(&place, own.key(key), "traffic", &name, s.traffic(&name), names)?;
                all.push(make(name));
            }
        }
        if all.is_empty() {
            return Err(own.error("needs queue = LINK, tcp = TRAFFIC or goodput = TRAFFIC"));
        }
        own.finish()?;
        s.probes.extend(all.into_iter().map(|what| Probe { what, interval }));
    }
    if let Some(mut own) = f.table("capture")? {
        for name in own.texts("links")?.unwrap_or_default() {
            let link = link_named(s, &own, "links", &name)?;
            s.captures.push(Capture { link });
        }
        own.finish()?;
    }
    Ok(())
}
