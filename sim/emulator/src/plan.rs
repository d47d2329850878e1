//! What is to be built: hosts, routers, and links with a model in each direction, all with addresses.
//!
//! A plan is data. It knows nothing of namespaces, so that it can be checked, printed and routed without privileges.

use neater_link::{Filter, LinkConfig, NatConfig};
use neater_scenario::NatChange;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// The most nodes, and the most links, of a plan. Links are numbered into one byte of their IPv4 subnet.
pub const NODES_MAX: usize = 4096;
/// The most characters in the name of an interface (`IFNAMSIZ` less the end).
const NAME_MAX: usize = 15;

/// What a node does with packets that are not for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A namespace in which commands run. It forwards nothing unless its sysctls say so.
    Host,
    /// Part of the emulator: forwards, counts hops, answers echo requests and sends ICMP errors.
    Router,
}

/// An interface of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name in the host: `eth0` and so on.
    pub name: String,
    /// The wire at it, and which end of it (0 or 1).
    pub wire: (usize, usize),
    /// Its addresses, with the lengths of their prefixes.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Its MTU in bytes.
    pub mtu: u32,
}

/// A host or a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name, also in the hosts file that commands see.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// In the order they were made.
    pub interfaces: Vec<Interface>,
    /// Kernel settings of a host, over the lab's own: `net.ipv4.tcp_congestion_control` and the like, dots as separators.
    pub sysctls: BTreeMap<String, String>,
    /// What `ip route add` is told besides, such as `initcwnd 10`.
    pub route_options: String,
    /// The firewall of a router, for packets that it forwards: the first rule that matches decides.
    pub filters: Vec<Filter>,
    /// The NAT box that a router is.
    pub nat: Option<NatPlan>,
}

/// A NAT box in a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatPlan {
    /// The wire that leads outside.
    pub outside: usize,
    /// What it is like, with its outside IPv4 address. It translates IPv4 only.
    pub config: NatConfig,
}

/// A link between two nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Wire {
    /// Its name in counters.
    pub name: String,
    /// Node and interface at each end.
    pub ends: [(usize, usize); 2],
    /// From the first end to the second, and back.
    pub config: [LinkConfig; 2],
    /// What the random choices of each direction follow from.
    pub seeds: [u64; 2],
}

/// Something that changes at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// When, from the start of the emulator.
    pub at: Duration,
    /// What.
    pub what: What,
}

/// What changes.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a plan has few of them")]
pub enum What {
    /// One direction of a wire is like this from then on.
    Link {
        /// Which wire.
        wire: usize,
        /// Which direction of it (0 from its first end, 1 back).
        side: usize,
        /// What it is like.
        config: LinkConfig,
    },
    /// Something happens to a NAT box.
    Nat {
        /// The router that it is.
        node: usize,
        /// What.
        what: NatChange,
    },
    /// An interface of a host goes down or up, as by `ip link set`.
    Interface {
        /// The host.
        node: usize,
        /// The interface's number in it.
        interface: usize,
        /// Up or down.
        up: bool,
    },
}

/// A network to be built.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Hosts and routers.
    pub nodes: Vec<Node>,
    /// The links.
    pub wires: Vec<Wire>,
    /// Everything random follows from it.
    pub seed: u64,
    /// What changes while it runs, in order of time.
    pub changes: Vec<Change>,
    /// For each node, where it sends what is for an address; computed as shortest ways if it is empty.
    pub given_routes: Vec<Routes>,
}

/// Where a node sends what is for an address: the interfaces with equally short ways.
pub type Routes = BTreeMap<IpAddr, Vec<usize>>;

impl Plan {
    /// An empty plan.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// A dumbbell: `client1` to `clientN` on the router `left`, `server1` to `serverN` on the router `right`, and between the
    /// routers the wire `middle`, the only one with properties (`there` from left to right, `back` from right to left).
    #[must_use]
    pub fn dumbbell(pairs: usize, there: LinkConfig, back: LinkConfig, seed: u64) -> Self {
        let mut plan = Self::new(seed);
        let left = plan.add("left", Kind::Router);
        let right = plan.add("right", Kind::Router);
        plan.connect("middle", left, right, there, back);
        for i in 1..=pairs {
            for (name, router) in [("client", left), ("server", right)] {
                let host = plan.add(&format!("{name}{i}"), Kind::Host);
                let wire = format!("{name}{i}");
                plan.connect(&wire, host, router, LinkConfig::default(), LinkConfig::default());
            }
        }
        plan
    }

    /// Two hosts, `client` and `server`, and one link between them.
    #[must_use]
    pub fn pair(there: LinkConfig, back: LinkConfig, seed: u64) -> Self {
        let mut plan = Self::new(seed);
        let a = plan.add("client", Kind::Host);
        let b = plan.add("server", Kind::Host);
        plan.connect("link", a, b, there, back);
        plan
    }

    /// Adds a node and returns its number.
    pub fn add(&mut self, name: &str, kind: Kind) -> usize {
        self.nodes.push(Node {
            name: name.into(),
            kind,
            interfaces: Vec::new(),
            sysctls: BTreeMap::new(),
            route_options: String::new(),
            filters: Vec::new(),
            nat: None,
        });
        self.nodes.len() - 1
    }

    /// Links two nodes by new interfaces with addresses of their own: 10.x.y.1 and .2 with 24 bits of prefix, and
    /// fd00:0:0:n::1 and ::2 with 64, where n = 256 x + y is the number of the wire.
    pub fn connect(&mut self, name: &str, a: usize, b: usize, there: LinkConfig, back: LinkConfig) {
        let n = self.wires.len();
        let mtus = [&there, &back].map(|link| neater_scenario::interface_mtu(link).clamp(1280, 65_535));
        let mut ends = [(a, 0), (b, 0)];
        for (side, end) in ends.iter_mut().enumerate() {
            let Some(node) = self.nodes.get_mut(end.0) else { continue };
            end.1 = node.interfaces.len();
            let last = side as u8 + 1;
            let v4 = Ipv4Addr::new(10, (n >> 8) as u8, n as u8, last);
            let v6 = Ipv6Addr::new(0xfd00, 0, 0, n as u16, 0, 0, 0, u16::from(last));
            let addresses = vec![(v4.into(), 24), (v6.into(), 64)];
            let name = format!("eth{}", end.1);
            node.interfaces.push(Interface { name, wire: (n, side), addresses, mtu: mtus[side] });
        }
        let seeds = [0, 1].map(|side| neater_scenario::link_seed(self.seed, name, side));
        self.wires.push(Wire { name: name.into(), ends, config: [there, back], seeds });
    }

    /// The number of a node.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|n| n.name == name)
    }

    /// The number of a wire.
    #[must_use]
    pub fn wire(&self, name: &str) -> Option<usize> {
        self.wires.iter().position(|w| w.name == name)
    }

    /// The first address of a node in a family.
    #[must_use]
    pub fn address(&self, node: usize, v6: bool) -> Option<IpAddr> {
        let all = self.nodes.get(node)?.interfaces.iter().flat_map(|i| &i.addresses);
        all.map(|(a, _)| *a).find(|a| a.is_ipv6() == v6)
    }

    /// Sets a kernel setting in all hosts.
    pub fn sysctl_everywhere(&mut self, key: &str, value: &str) {
        for node in self.nodes.iter_mut().filter(|n| n.kind == Kind::Host) {
            node.sysctls.insert(key.into(), value.into());
        }
    }

    /// The node and interface at the other end of an interface.
    #[must_use]
    pub fn peer(&self, node: usize, interface: usize) -> Option<(usize, usize)> {
        let (wire, side) = self.nodes.get(node)?.interfaces.get(interface)?.wire;
        self.wires.get(wire).map(|w| w.ends[1 - side])
    }

    /// For each node, the interfaces on shortest ways to every address. Ways lead through routers only.
    #[must_use]
    pub fn routes(&self) -> Vec<Routes> {
        if self.given_routes.len() == self.nodes.len() {
            return self.given_routes.clone();
        }
        let mut all = vec![Routes::new(); self.nodes.len()];
        for (target, node) in self.nodes.iter().enumerate() {
            for (i, interface) in node.interfaces.iter().enumerate() {
                let hops = self.distances(target, i);
                for (from, routes) in all.iter_mut().enumerate().filter(|(from, _)| *from != target) {
                    let via: Vec<(u32, usize)> = (0..self.nodes[from].interfaces.len())
                        .filter_map(|out| {
                            let next = self.peer(from, out)?;
                            let rest = if next == (target, i) { 0 } else { hops[next.0]? + 1 };
                            Some((rest, out))
                        })
                        .collect();
                    let Some(best) = via.iter().map(|v| v.0).min() else { continue };
                    let out: Vec<usize> = via.iter().filter(|v| v.0 == best).map(|v| v.1).collect();
                    for (address, _) in &interface.addresses {
                        routes.insert(*address, out.clone());
                    }
                }
            }
        }
        all
    }

    /// How many links each router is away from an interface; `None` for hosts, and where there is no way.
    fn distances(&self, target: usize, interface: usize) -> Vec<Option<u32>> {
        let mut hops = vec![None; self.nodes.len()];
        let mut queue = VecDeque::new();
        let mut visit = |node: usize, distance: u32, queue: &mut VecDeque<(usize, u32)>| {
            if node != target && self.nodes[node].kind == Kind::Router && hops[node].is_none() {
                hops[node] = Some(distance);
                queue.push_back((node, distance));
            }
        };
        if let Some((next, _)) = self.peer(target, interface) {
            visit(next, 1, &mut queue);
        }
        while let Some((node, distance)) = queue.pop_front() {
            for i in 0..self.nodes[node].interfaces.len() {
                if let Some((next, _)) = self.peer(node, i) {
                    visit(next, distance + 1, &mut queue);
                }
            }
        }
        hops
    }

    /// Whether this can be built.
    ///
    /// # Errors
    /// What is wrong, in words for the one who wrote the scenario.
    pub fn check(&self) -> Result<(), String> {
        if self.nodes.len() > NODES_MAX || self.wires.len() > NODES_MAX {
            return Err(format!("more than {NODES_MAX} nodes or links"));
        }
        let mut names = BTreeMap::new();
        for node in &self.nodes {
            let fine = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == '.';
            if node.name.is_empty() || node.name.len() > 63 || !node.name.chars().all(fine) {
                return Err(format!("the name {:?} of a node is no host name (letters, digits, - _ .)", node.name));
            }
            if names.insert(node.name.as_str(), ()).is_some() {
                return Err(format!("two nodes are called {}", node.name));
            }
            for i in &node.interfaces {
                let fine = |c: char| c.is_ascii_graphic() && c != '/' && c != ':';
                if i.name.is_empty() || i.name.len() > NAME_MAX || !i.name.chars().all(fine) || i.name == "lo" {
                    return Err(format!("{}: {:?} is no name for an interface", node.name, i.name));
                }
                if !(1280..=65_535).contains(&i.mtu) {
                    return Err(format!(
                        "{} {}: an MTU of {}: at a host, Linux wants 1280 to 65535; a smaller one can be between routers",
                        node.name, i.name, i.mtu
                    ));
                }
            }
        }
        for (n, node) in self.nodes.iter().enumerate() {
            let Some(nat) = &node.nat else { continue };
            let at_it = self.wires.get(nat.outside).is_some_and(|w| w.ends.iter().any(|e| e.0 == n));
            let known = nat.config.external_v4.is_some() && nat.config.external_v6.is_none();
            if node.kind != Kind::Router || !at_it || !known {
                let name = &node.name;
                return Err(format!(
                    "{name}: a NAT box is a router with a link to the outside and an IPv4 address, and no IPv6 address, to \
                     translate to"
                ));
            }
        }
        if !self.nodes.iter().any(|n| n.kind == Kind::Host && !n.interfaces.is_empty()) {
            return Err("no host has an interface: there is nowhere to run a command".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dumbbell(n: usize) -> Plan {
        Plan::dumbbell(n, LinkConfig::default(), LinkConfig::default(), 1)
    }

    #[test]
    fn a_dumbbell_is_routed_over_its_middle() {
        let plan = dumbbell(2);
        plan.check().expect("sound");
        let routes = plan.routes();
        let of = |name: &str| plan.node(name).expect("there");
        let to = |name: &str| plan.address(of(name), false).expect("address");
        assert_eq!(routes[of("client1")][&to("server2")], [0]);
        assert_eq!(routes[of("left")][&to("server2")], [0], "over the middle");
        assert_eq!(routes[of("left")][&to("client2")], [2]);
        assert_eq!(routes[of("right")][&to("server2")], [2]);
        let v6 = plan.address(of("client1"), true).expect("address");
        assert_eq!(routes[of("right")][&v6], [0]);
    }

    #[test]
    fn equal_ways_are_all_kept_and_hosts_are_no_ways() {
        let mut plan = Plan::new(1);
        let nodes: Vec<usize> = ["a", "b"].iter().map(|n| plan.add(n, Kind::Host)).collect();
        let routers: Vec<usize> = ["r", "s", "t", "u"].iter().map(|n| plan.add(n, Kind::Router)).collect();
        let mut link = |a: usize, b: usize| plan.connect("l", a, b, LinkConfig::default(), LinkConfig::default());
        link(nodes[0], routers[0]);
        link(routers[0], routers[1]);
        link(routers[0], routers[2]);
        link(routers[1], routers[3]);
        link(routers[2], routers[3]);
        link(routers[3], nodes[1]);
        let b = plan.address(nodes[1], false).expect("address");
        assert_eq!(plan.routes()[routers[0]][&b], [1, 2]);

        // Two paths: an address is reached over its own interface, not through the host's other one.
        let mut two = Plan::new(1);
        let (c, s) = (two.add("c", Kind::Host), two.add("s", Kind::Host));
        for _ in 0..2 {
            two.connect("p", c, s, LinkConfig::default(), LinkConfig::default());
        }
        let routes = two.routes();
        for (i, interface) in two.nodes[s].interfaces.iter().enumerate() {
            assert_eq!(routes[c][&interface.addresses[0].0], [i]);
        }
    }

    #[test]
    fn what_cannot_be_built_is_named() {
        let mut plan = dumbbell(1);
        plan.nodes[2].name = "left".into();
        assert!(plan.check().expect_err("twice").contains("left"));
        plan.nodes[2].name = "a b".into();
        assert!(plan.check().expect_err("blank").contains("a b"));
        assert!(Plan::new(1).check().is_err());
    }
}
