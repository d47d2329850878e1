//! The CIB's nodes for the interfaces of this host.
//!
//! NEAT writes a node for each interface when it starts; here the nodes follow the interfaces. What
//! the system does not know, a `.cib` file can state: a node without `root` and `link` that matches
//! `{"interface": {"value": "wlan0"}}`.

use crate::manager::{MAX_UID, Node};
use crate::pvd::Provisioned;
use neater_base::net::{Interface, InterfaceKind};
use neater_property::Fingerprint;
use neater_property::neat::{NeatArray, NeatMultiArray, NeatProperty, NeatValue};
use std::net::IpAddr;

/// The prefix of the uids of these nodes.
pub const INTERFACE_PREFIX: &str = "interface-";
/// The prefix of the uids of the nodes of provisioning domains.
pub const DOMAIN_PREFIX: &str = "pvd-";
/// How many addresses of one interface make rows.
const MAX_ADDRESSES: usize = 16;

/// A node for each interface that is up, has an address that others can reach, and leads somewhere
/// else: the loopback is what a program gets without any row.
///
/// `interface`, `local_interface`, `local_ip` and `ip_version` are immutable, as NEAT has them.
/// Beside them stand `mtu` (bytes), `link_type`, `wired`, `metered` where that follows from the
/// type, and `default_route`, whose score of 1 puts what leads to the world before bridges of
/// containers.
#[must_use]
pub fn interface_nodes(interfaces: &[Interface]) -> Vec<Node> {
    network_nodes(interfaces, &[])
}

/// The same where networks have described themselves: a node for each provisioning domain of each
/// interface, with the addresses that belong to it and what is known of it; and one for the
/// addresses that belong to none. An address has one row, so that a network's information cannot be
/// evaded by the plain row.
#[must_use]
pub fn network_nodes(interfaces: &[Interface], domains: &[Provisioned]) -> Vec<Node> {
    let mut nodes = Vec::new();
    for interface in interfaces.iter().filter(|i| i.kind != InterfaceKind::Loopback) {
        let here = || domains.iter().filter(|d| d.interface == interface.name);
        // A profile that makes one of these immutable does not take the rows of domains away.
        let any = |key| NeatProperty::new(key, NeatValue::Any).with_precedence(NeatProperty::BASE);
        for domain in here() {
            let more = domain.properties.iter().cloned().chain([any("transport"), any("security")]).collect();
            let of_domain = |a: IpAddr| domain.addrs.contains(&a);
            nodes.extend(node(interface, more, 1.0, of_domain).map(|n| Node {
                uid: domain_uid(&interface.name, &domain.id),
                expires: Some(domain.expires),
                description: "as the network reports".into(),
                ..n
            }));
        }
        nodes.extend(node(interface, Vec::new(), 1.0, |a| !here().any(|d| d.addrs.contains(&a))));
    }
    nodes
}

/// The uid of a domain's node. A name may be as long as a uid: what is longer has a number for its
/// end.
fn domain_uid(interface: &str, id: &str) -> String {
    // No interface has a colon in its name: the uid of one pair is no other's.
    let uid = format!("{DOMAIN_PREFIX}{interface}:{id}");
    if uid.len() <= MAX_UID {
        return uid;
    }
    let mut f = Fingerprint::default();
    f.text(&uid);
    // Names of domains and interfaces that the kernel takes are ASCII; of what is not, the number
    // is enough.
    format!("{}-{:016x}", uid.get(..MAX_UID - 17).unwrap_or(DOMAIN_PREFIX), f.finish())
}

/// The same for an engine that asks about its own connections: the loopback has a node, too,
/// because what leads to this host goes by no other; default routes have no score; and each row has
/// *any* for `transport` and `security`, so that a profile which makes these immutable does not
/// take all rows away. Addresses with a node of another source (`told`) have none.
#[must_use]
pub(crate) fn interface_rows(interfaces: &[Interface], told: impl Fn(&str, IpAddr) -> bool) -> Vec<Node> {
    let any = |key| NeatProperty::new(key, NeatValue::Any).with_precedence(NeatProperty::BASE);
    let row = |i: &Interface| node(i, vec![any("transport"), any("security")], 0.0, |a| !told(&i.name, a));
    interfaces.iter().filter_map(row).collect()
}

/// What is known of an interface whatever its addresses: what its rows have in common.
pub(crate) fn interface_facts(interface: &Interface) -> NeatArray {
    let node = node_of(interface, Vec::new(), vec![NeatArray::new()]);
    node.and_then(|n| n.alternatives.into_iter().next()).unwrap_or_default()
}

/// The addresses of an interface that have rows.
pub(crate) fn row_addresses(interface: &Interface) -> impl Iterator<Item = IpAddr> {
    let loopback = interface.kind == InterfaceKind::Loopback;
    let usable = move |a: &IpAddr| is_usable(*a) || loopback && a.is_loopback();
    interface.addrs.iter().filter(|a| !a.deprecated).map(|a| a.addr).filter(usable).take(MAX_ADDRESSES)
}

fn is_usable(addr: IpAddr) -> bool {
    // A link-local address means nothing without its link, and the candidates of NEAT have no place
    // for that.
    let link_local = match addr {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.is_unicast_link_local(),
    };
    !(link_local || addr.is_loopback() || addr.is_unspecified() || addr.is_multicast())
}

/// The addresses that are `meant` make rows; `more` stands in every one; a default route counts
/// `route` points.
fn node(interface: &Interface, more: Vec<NeatProperty>, route: f64, meant: impl Fn(IpAddr) -> bool) -> Option<Node> {
    if !interface.up {
        return None;
    }
    let fixed = |key: &str, value: NeatValue| NeatProperty::new(key, value).with_precedence(NeatProperty::IMMUTABLE);
    let addresses: Vec<NeatArray> = row_addresses(interface)
        .filter(|a| meant(*a))
        .map(|addr| {
            let (version, leads_out) =
                if addr.is_ipv4() { (4.0, interface.default_v4) } else { (6.0, interface.default_v6) };
            let score = if leads_out { route } else { 0.0 };
            let route = NeatProperty::new("default_route", leads_out).with_score(score);
            let text = addr.to_string();
            [fixed("local_ip", text.as_str().into()), fixed("ip_version", NeatValue::Number(version)), route]
                .into_iter()
                .map(|p| (p.key.clone(), p))
                .collect()
        })
        .collect();
    if addresses.is_empty() { None } else { node_of(interface, more, addresses) }
}

/// The node of an interface with one row for each of these addresses.
fn node_of(interface: &Interface, more: Vec<NeatProperty>, addresses: Vec<NeatArray>) -> Option<Node> {
    let fixed = |key: &str, value: NeatValue| NeatProperty::new(key, value).with_precedence(NeatProperty::IMMUTABLE);
    let mut shared = vec![
        fixed("interface", interface.name.as_str().into()),
        fixed("local_interface", NeatValue::Bool(true)),
        NeatProperty::new("mtu", NeatValue::Number(interface.mtu.into())),
    ];
    let (kind, wired, metered) = match interface.kind {
        InterfaceKind::Wired => ("wired", Some(true), Some(false)),
        InterfaceKind::WiFi => ("wifi", Some(false), None),
        InterfaceKind::Cellular => ("cellular", Some(false), Some(true)),
        InterfaceKind::Tunnel => ("tunnel", None, None),
        InterfaceKind::Loopback => ("loopback", None, Some(false)),
        _ => ("other", None, None),
    };
    shared.push(NeatProperty::new("link_type", kind));
    shared.extend(wired.map(|wired| NeatProperty::new("wired", wired)));
    // The network knows better than its technology.
    let metered = metered.filter(|_| !more.iter().any(|p| p.key == "metered"));
    shared.extend(metered.map(|metered| NeatProperty::new("metered", metered)));
    shared.extend(more);
    let mut properties = NeatMultiArray::new();
    properties.push(vec![shared.into_iter().map(|p| (p.key.clone(), p)).collect()]);
    properties.push(addresses);
    let alternatives = properties.expand().ok()?;
    Some(Node {
        uid: format!("{INTERFACE_PREFIX}{}", interface.name),
        root: true,
        link: false,
        matches: Vec::new(),
        properties,
        alternatives,
        priority: 0,
        expires: None,
        description: "as the system reports".into(),
        others: serde_json::Map::new(),
    })
}
