//! The CIB's nodes for the interfaces of this host.
//!
//! NEAT writes a node for each interface when it starts; here the nodes follow the interfaces. What
//! the system does not know, a `.cib` file can state: a node without `root` and `link` that matches
//! `{"interface": {"value": "wlan0"}}`.

use super::store::Daemon;
use crate::manager::{MAX_UID, Node};
use crate::pvd::Provisioned;
use neater_base::WallTime;
use neater_base::net::{Interface, InterfaceKind};
use neater_property::Fingerprint;
use neater_property::neat::{NeatArray, NeatMultiArray, NeatProperty, NeatValue};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// What the uids of these nodes begin with.
pub(crate) const PREFIX: &str = "interface-";
/// What the uids of the nodes of provisioning domains begin with.
pub(crate) const DOMAIN_PREFIX: &str = "pvd-";
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
        uid: format!("{PREFIX}{}", interface.name),
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

/// The nodes of this host's networks.
#[derive(Debug, Default)]
pub(super) struct Networks {
    wanted: Vec<Node>,
    /// The uids of those that are in the base: no other writer changes these.
    set: BTreeSet<String>,
}

impl Networks {
    /// Whether this node of the base is one of these.
    pub(super) fn own(&self, uid: &str) -> bool {
        self.set.contains(uid)
    }

    /// The nodes of interfaces, of which a program knows itself.
    pub(super) fn interfaces(&self) -> BTreeSet<String> {
        self.set.iter().filter(|uid| uid.starts_with(PREFIX)).cloned().collect()
    }

    /// Lets go of nodes in whose place others stand.
    pub(super) fn give_way(&mut self, mut to: impl FnMut(&str) -> bool) {
        self.set.retain(|uid| !to(uid));
    }
}

impl Daemon {
    /// Takes the interfaces of this host as they are now, in place of those it was given before.
    /// What has not changed stays, so that decisions that do not depend on a change stay, too.
    pub fn set_interfaces(&mut self, interfaces: &[Interface], now: WallTime) {
        self.set_networks(interfaces, &[], now);
    }

    /// The same with the provisioning domains that are known
    /// ([`Domains::provisioned`](crate::pvd::Domains::provisioned)).
    pub fn set_networks(&mut self, interfaces: &[Interface], domains: &[Provisioned], now: WallTime) {
        self.networks.wanted = network_nodes(interfaces, domains);
        self.settle_networks(now);
    }

    /// Puts the nodes of the networks into the base. A node of that name from another writer stays,
    /// and counts instead.
    pub(super) fn settle_networks(&mut self, now: WallTime) {
        let networks = core::mem::take(&mut self.networks);
        let (nodes, mut set) = (networks.wanted, networks.set);
        let gone: Vec<String> = set.iter().filter(|uid| !nodes.iter().any(|n| n.uid == **uid)).cloned().collect();
        for uid in gone {
            set.remove(&uid);
            // It was there a moment ago.
            let _ = self.remove_base(&uid, !uid.starts_with(PREFIX));
        }
        let others =
            |node: &Node| !set.contains(&node.uid) && self.base().cib().get(&node.uid).is_some_and(|n| n.counts(now));
        let ours: Vec<&Node> = nodes.iter().filter(|node| !others(node)).collect();
        let changed: Vec<Node> =
            ours.iter().filter(|node| self.base().cib().get(&node.uid) != Some(node)).map(|n| (*n).clone()).collect();
        let set = ours.iter().map(|node| node.uid.clone()).collect();
        for node in changed {
            // A program sees the interfaces of its host itself.
            let told = !node.uid.starts_with(PREFIX);
            self.put_base_node(node, told, now);
        }
        self.networks = Networks { wanted: nodes, set };
    }
}

#[cfg(test)]
mod tests {
    use super::super::Options;
    use super::*;
    use crate::manager::{Limits, Requests};
    use neater_base::net::InterfaceAddr;
    use std::time::Duration;

    const NOW: WallTime = WallTime(Duration::from_secs(1_800_000_000));

    fn interface(name: &str, kind: InterfaceKind, addrs: &[&str]) -> Interface {
        let addr = |a: &&str| InterfaceAddr {
            addr: a.parse().expect("an address"),
            prefix: 24,
            temporary: false,
            deprecated: false,
        };
        Interface {
            index: 1,
            name: name.into(),
            kind,
            up: true,
            addrs: addrs.iter().map(addr).collect(),
            mtu: 1500,
            default_v4: name == "wwan0",
            default_v6: false,
        }
    }

    #[test]
    fn what_others_call_like_an_interface_stays_and_what_is_the_systems_nobody_takes() {
        use crate::manager::SourceFile;
        let mut d = Daemon::new(Options { limits: Limits::default(), owner: 500, ready: false, keeps_rules: false });
        let mut all = vec![interface("eth0", InterfaceKind::Wired, &["192.0.2.1"])];
        let node = |uid: &str| {
            let text =
                format!(r#"{{"uid": "{uid}", "root": true, "expire": -1, "properties": {{"x": {{"value": 1}}}}}}"#);
            Node::from_json(serde_json::from_str(&text).expect("JSON"), "", &text, NOW).expect("a node").0
        };
        for uid in ["interface-of-mine", "pvd-of-mine", "interface-wlan0"] {
            assert_eq!(d.put_nodes(500, vec![node(uid)], NOW), Ok(()));
        }
        d.set_interfaces(&all, NOW);
        all.push(interface("wlan0", InterfaceKind::WiFi, &["198.51.100.9"]));
        d.set_interfaces(&all, NOW);
        for uid in ["interface-of-mine", "pvd-of-mine", "interface-wlan0"] {
            assert_eq!(d.base().cib().get(uid), Some(&node(uid)), "{uid} is somebody's");
        }
        for user in [0, 500, 1000] {
            assert_eq!(d.put_nodes(user, vec![node("interface-eth0")], NOW), Err(super::super::Refusal::NotYours));
            assert_eq!(d.remove_node(user, "interface-eth0"), Err(super::super::Refusal::NotYours));
        }
        assert_eq!(d.remove_node(500, "interface-wlan0"), Ok(()));
        d.set_interfaces(&all, NOW);
        assert!(d.base().cib().get("interface-wlan0").is_some_and(|n| *n != node("interface-wlan0")), "the system's");

        // An administrator's file counts more, for as long as it is there.
        let text = node("interface-eth0").to_json().to_string();
        d.load(&[], &[SourceFile { name: "eth0.cib", text: &text }], NOW);
        d.set_interfaces(&all, NOW);
        assert!(d.base().cib().get("interface-eth0").is_some_and(|n| n.alternatives[0].get("x").is_some()));
        d.load(&[], &[], NOW);
        assert!(d.base().cib().get("interface-eth0").is_some_and(|n| n.alternatives[0].get("x").is_none()));
        d.set_interfaces(&all[1..], NOW);
        assert!(d.base().cib().get("interface-eth0").is_none());
    }

    #[test]
    fn rows_follow_the_interfaces() {
        let mut d = Daemon::new(Options { limits: Limits::default(), owner: 0, ready: false, keeps_rules: false });
        let mut all = vec![
            interface("lo", InterfaceKind::Loopback, &["127.0.0.1", "::1"]),
            interface("eth0", InterfaceKind::Wired, &["192.0.2.1", "fe80::1", "2001:db8::1"]),
            interface("wwan0", InterfaceKind::Cellular, &["198.51.100.7"]),
            interface("eth1", InterfaceKind::Wired, &["fe80::2"]),
        ];
        d.set_interfaces(&all, NOW);
        let request = Requests::from_text(r#"[{"transport": {"value": "TCP"}}]"#).expect("a request");
        let told = |d: &mut Daemon| -> Vec<String> {
            let decision = d.decide(0, &request, NOW).expect("a decision");
            let text = |i: usize, key: &str| decision.get(i, key).map_or("-".into(), |p| p.value.to_string());
            (0..decision.len()).map(|i| format!("{} {}", text(i, "local_ip"), text(i, "metered"))).collect()
        };
        assert_eq!(told(&mut d), ["198.51.100.7 true", "- -", "192.0.2.1 false", "2001:db8::1 false"]);
        // What is asked for the second time is kept.
        told(&mut d);
        let cached = d.counters.cached;
        d.set_interfaces(&all, NOW);
        told(&mut d);
        assert_eq!(d.counters.cached, cached + 1, "nothing changed");
        all[1].up = false;
        all[2].addrs[0].deprecated = true;
        d.set_interfaces(&all, NOW);
        assert_eq!(told(&mut d), ["- -"]);
    }
}
