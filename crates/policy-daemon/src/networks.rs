//! The nodes of this host's networks in the base.

use crate::store::Daemon;
use neater_base::WallTime;
use neater_base::net::Interface;
use neater_policy::manager::Node;
use neater_policy::pvd::Provisioned;
use neater_policy::rows::{INTERFACE_PREFIX, network_nodes};
use std::collections::BTreeSet;

/// The nodes of this host's networks.
#[derive(Debug, Default)]
pub(crate) struct Networks {
    wanted: Vec<Node>,
    /// The uids of those that are in the base: no other writer changes these.
    set: BTreeSet<String>,
}

impl Networks {
    /// Whether this node of the base is one of these.
    pub(crate) fn own(&self, uid: &str) -> bool {
        self.set.contains(uid)
    }

    /// The nodes of interfaces, of which a program knows itself.
    pub(crate) fn interfaces(&self) -> BTreeSet<String> {
        self.set.iter().filter(|uid| uid.starts_with(INTERFACE_PREFIX)).cloned().collect()
    }

    /// Lets go of nodes in whose place others stand.
    pub(crate) fn give_way(&mut self, mut to: impl FnMut(&str) -> bool) {
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
    /// ([`Domains::provisioned`](neater_policy::pvd::Domains::provisioned)).
    pub fn set_networks(&mut self, interfaces: &[Interface], domains: &[Provisioned], now: WallTime) {
        self.networks.wanted = network_nodes(interfaces, domains);
        self.settle_networks(now);
    }

    /// Puts the nodes of the networks into the base. A node of that name from another writer stays,
    /// and counts instead.
    pub(crate) fn settle_networks(&mut self, now: WallTime) {
        let networks = core::mem::take(&mut self.networks);
        let (nodes, mut set) = (networks.wanted, networks.set);
        let gone: Vec<String> = set.iter().filter(|uid| !nodes.iter().any(|n| n.uid == **uid)).cloned().collect();
        for uid in gone {
            set.remove(&uid);
            // It was there a moment ago.
            let _ = self.remove_base(&uid, !uid.starts_with(INTERFACE_PREFIX));
        }
        let others =
            |node: &Node| !set.contains(&node.uid) && self.base().cib().get(&node.uid).is_some_and(|n| n.counts(now));
        let ours: Vec<&Node> = nodes.iter().filter(|node| !others(node)).collect();
        let changed: Vec<Node> =
            ours.iter().filter(|node| self.base().cib().get(&node.uid) != Some(node)).map(|n| (*n).clone()).collect();
        let set = ours.iter().map(|node| node.uid.clone()).collect();
        for node in changed {
            // A program sees the interfaces of its host itself.
            let told = !node.uid.starts_with(INTERFACE_PREFIX);
            self.put_base_node(node, told, now);
        }
        self.networks = Networks { wanted: nodes, set };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use neater_base::net::{InterfaceAddr, InterfaceKind};
    use neater_policy::manager::{Limits, Requests};
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
        use neater_policy::manager::SourceFile;
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
            assert_eq!(d.put_nodes(user, vec![node("interface-eth0")], NOW), Err(crate::Refusal::NotYours));
            assert_eq!(d.remove_node(user, "interface-eth0"), Err(crate::Refusal::NotYours));
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
