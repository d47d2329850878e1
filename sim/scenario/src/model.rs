//! What a scenario consists of.

use crate::traffic::{TcpSettings, Traffic};
use core::time::Duration;
use neater_link::{Filter, LinkConfig, NatConfig};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

/// The most nodes of a scenario.
pub const MAX_NODES: usize = 8192;
/// The most links of a scenario.
pub const MAX_LINKS: usize = 32_768;
/// The most flows of a scenario, all its traffic together.
pub const MAX_FLOWS: u64 = 100_000;
/// The most events, one for each repetition.
pub const MAX_EVENTS: usize = 100_000;

/// A network, what happens in it, and what is measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scenario {
    /// A short name: letters, digits, `-` and `_`.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// What a sweep or the command line may change by a short name, with the value it has.
    pub parameters: Vec<Parameter>,
    /// Everything random follows from it.
    pub seed: u64,
    /// How many seeds a sweep runs unless told otherwise: `seed`, `seed + 1`, ...
    pub seeds: u32,
    /// Time before anything is measured. Traffic has started by then and queues have settled.
    pub warm_up: Duration,
    /// Time that is measured, after the warm-up.
    pub duration: Duration,
    /// Hosts and routers.
    pub nodes: Vec<Node>,
    /// Links between two nodes.
    pub links: Vec<LinkSpec>,
    /// Routes that differ from the shortest paths.
    pub routes: Vec<RouteRule>,
    /// What changes, in order of time.
    pub events: Vec<Event>,
    /// Who sends what to whom.
    pub traffic: Vec<Traffic>,
    /// What is sampled.
    pub probes: Vec<Probe>,
    /// Where packets are recorded.
    pub captures: Vec<Capture>,
}

/// A value with a short name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// What `--set` calls it, and `$name` in the file.
    pub name: String,
    /// Its value as text.
    pub value: String,
    /// What it means.
    pub help: String,
}

/// Names a node of a scenario: its index in [`Scenario::nodes`].
pub type NodeIndex = usize;
/// Names a link of a scenario: its index in [`Scenario::links`].
pub type LinkIndex = usize;

/// A host or a router.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its name, unique among nodes.
    pub name: String,
    /// What it does with packets for others.
    pub kind: NodeKind,
    /// The kernel's, or the simulated TCP's, settings on it.
    pub tcp: TcpSettings,
    /// The firewall of a router, for packets that it forwards: the first rule that matches decides.
    pub filters: Vec<Filter>,
    /// The NAT box that a router is.
    pub nat: Option<NatSpec>,
    /// Settings of a host's kernel in the lab, by their names (`net.ipv4.tcp_congestion_control`); the simulator has no kernel.
    pub sysctls: BTreeMap<String, String>,
}

/// A NAT box in a router: what is forwarded to its outside link gets an address and port of its own there, and from there
/// comes in only what it lets in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatSpec {
    /// The link to the outside; the outside address is the router's IPv4 address on it. IPv6 is forwarded as it is.
    pub outside: LinkIndex,
    /// What the box is like.
    pub config: NatConfig,
}

impl NatSpec {
    /// The IPv4 addresses that the box may have outside: those of its router on the outside link, as far as they are known.
    pub fn outside_addresses<'a>(&self, s: &'a Scenario, node: NodeIndex) -> impl Iterator<Item = Ipv4Addr> + 'a {
        let ends = s.links.get(self.outside).into_iter().flat_map(|l| &l.ends).filter(move |e| e.node == node);
        ends.flat_map(|e| &e.addresses).filter_map(|(a, _)| match a {
            IpAddr::V4(a) => Some(*a),
            IpAddr::V6(_) => None,
        })
    }
}

/// What a node does with packets for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// An end: forwards nothing.
    Host,
    /// Forwards, along the shortest path, over all equal ones by a hash of the 5-tuple.
    Router,
}

/// A link between two nodes: two directions.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSpec {
    /// Its name, unique among links.
    pub name: String,
    /// Its ends: "forward" is from the first to the second.
    pub ends: [End; 2],
    /// What forward and backward are like.
    pub directions: [Direction; 2],
    /// What it counts in the length of a path; at least 1.
    pub metric: u32,
    /// The round trip that a queue in bandwidth-delay products means; computed from the topology if not given.
    pub bdp_rtt: Option<Duration>,
}

/// One end of a link: an interface of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    /// The node.
    pub node: NodeIndex,
    /// The interface's name on that node, such as `eth0`.
    pub interface: String,
    /// Its addresses with prefix lengths, IPv4 and IPv6.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// One direction of a link.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Direction {
    /// What it is like, with a queue in bytes or packets.
    pub config: LinkConfig,
    /// The queue in bandwidth-delay products, if it was given so; `config` holds the result.
    pub queue_bdp: Option<f64>,
}

/// A route that differs from the shortest path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteRule {
    /// The node that it holds on.
    pub node: NodeIndex,
    /// Where to: all addresses of this node.
    pub to: NodeIndex,
    /// Only its address on this link, if given.
    pub on: Option<LinkIndex>,
    /// By these links; over several by a hash of the 5-tuple.
    pub via: Vec<LinkIndex>,
}

/// Something that changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// When, from the start of the run (warm-up included).
    pub at: Duration,
    /// What.
    pub action: Action,
}

/// What changes.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a scenario has few of them")]
pub enum Action {
    /// One direction of a link (0 forward, 1 backward) is like this from now on.
    Link {
        /// Which link.
        link: LinkIndex,
        /// Which direction.
        direction: usize,
        /// What it is like.
        config: Direction,
    },
    /// An interface of a host goes down or up: its system sees it, takes the routes over it back, and sends and receives
    /// nothing by it. A link that goes down ([`LinkConfig::down`]) is another thing: nobody is told.
    Interface {
        /// The link at the interface.
        link: LinkIndex,
        /// Which end of it.
        end: usize,
        /// Up or down.
        up: bool,
    },
    /// Something happens to a NAT box.
    Nat {
        /// The router that it is.
        node: NodeIndex,
        /// What.
        what: NatChange,
    },
}

/// What happens to a NAT box while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NatChange {
    /// Every mapping gets another outside port: what peers know of those inside is wrong, and nobody inside notices.
    Rebind,
    /// As [`NatChange::Rebind`], and to another outside address of the box, one that its end of the outside link has.
    Move(Ipv4Addr),
    /// The box loses power and comes back: all mappings are forgotten.
    Restart,
}

/// Something that is sampled into a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What.
    pub what: ProbeKind,
    /// How often; `None` samples on every change.
    pub interval: Option<Duration>,
}

/// What a probe samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// Bytes and packets in the queues of a link, both directions.
    Queue(LinkIndex),
    /// Congestion window, slow start threshold, flight, smoothed round trip and retransmissions of TCP flows of this traffic.
    Tcp(String),
    /// Bytes delivered to the receivers of this traffic, since the last sample.
    Goodput(String),
}

/// Where packets are recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// At both ends of this link, in both directions.
    pub link: LinkIndex,
}

impl Scenario {
    /// The node of a name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<NodeIndex> {
        self.nodes.iter().position(|n| n.name == name)
    }

    /// The link of a name.
    #[must_use]
    pub fn link(&self, name: &str) -> Option<LinkIndex> {
        self.links.iter().position(|l| l.name == name)
    }

    /// The traffic of a name.
    #[must_use]
    pub fn traffic(&self, name: &str) -> Option<&Traffic> {
        self.traffic.iter().find(|t| t.name == name)
    }

    /// Links at a node, with the end that is at it.
    pub fn links_of(&self, node: NodeIndex) -> impl Iterator<Item = (LinkIndex, usize)> + '_ {
        self.links
            .iter()
            .enumerate()
            .flat_map(move |(i, l)| (0..2).filter_map(move |end| (l.ends[end].node == node).then_some((i, end))))
    }

    /// Hosts, in order.
    pub fn hosts(&self) -> impl Iterator<Item = NodeIndex> + '_ {
        (0..self.nodes.len()).filter(|i| self.nodes[*i].kind == NodeKind::Host)
    }

    /// The first address of one family of a node, in the order of its links.
    #[must_use]
    pub fn address(&self, node: NodeIndex, v4: bool) -> Option<IpAddr> {
        self.links_of(node)
            .flat_map(|(link, end)| self.links[link].ends[end].addresses.iter())
            .map(|(a, _)| *a)
            .find(|a| a.is_ipv4() == v4)
    }

    /// How long a run lasts: warm-up and what is measured.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.warm_up + self.duration
    }
}
