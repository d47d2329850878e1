//! A world from a scenario.

use crate::agent::{Agent, FlowStats, Kind, Numbers, OnOffState, VideoState, WebObject, WebState};
use crate::capture::Capture;
use crate::fabric::{Port, Router, RouterId, RouterNat};
use crate::iface::plain_address;
use crate::nat::{NatBox, NatId};
use crate::plan::{Planned, Probe, Samples};
use crate::sim::{Event, Sim};
use crate::tcp::{BufferSize, DelayedAck, EcnMode, Options, RtoFloor, TcpConfig};
use crate::world::{HostId, IfaceId, LinkId, World};
use core::time::Duration;
use neater_base::net::{InterfaceAddr, InterfaceKind};
use neater_base::{Instant, Rng};
use neater_cc::InitialWindow;
use neater_link::{Counters, Nat};
use neater_scenario::{
    Action, Carrier, Controller, NodeKind, ProbeKind, Routes, Scenario, TcpSettings, TrafficKind, interface_mtu,
    link_seed, router_salt,
};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// A node of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeId {
    /// A host.
    Host(HostId),
    /// A router.
    Router(RouterId),
}

/// The first port of agents at a host; they count up.
const FIRST_AGENT_PORT: u16 = 5001;
/// The last, below the ports that the system chooses from.
const LAST_AGENT_PORT: u16 = 32_767;
/// The most flows that programs carry.
const MAX_PROGRAMS: usize = 1000;

/// A world that was built from a scenario, and how its parts are called there.
#[derive(Clone, Debug)]
pub struct Network {
    /// The world: time, hosts and links. Programs can be put on its hosts, by [`World::net`], beside the traffic.
    pub world: World,
    scenario: Arc<Scenario>,
    nodes: Vec<NodeId>,
    interfaces: Vec<[Option<IfaceId>; 2]>,
    links: Vec<[LinkId; 2]>,
    programs: Vec<Program>,
    start: Instant,
}

/// A flow of the scenario's traffic that is carried by a program, which whoever runs the network brings: this crate knows no engine.
#[derive(Clone, Debug)]
pub struct Program {
    /// The index of its traffic in the scenario.
    pub traffic: usize,
    /// Its number within that traffic, from 0.
    pub flow: u32,
    /// What carries it.
    pub over: Carrier,
    /// Where the data come from: it connects.
    pub from: HostId,
    /// Where they go: it listens.
    pub to: HostId,
    /// The address and port that it listens at, which no other traffic of the scenario uses.
    pub address: SocketAddr,
    /// When it begins.
    pub begin: Instant,
    /// When it stops; `None`: at the end of the run.
    pub stop: Option<Instant>,
    /// How much it sends; `None`: as long as there is time.
    pub bytes: Option<u64>,
}

impl World {
    /// Builds a scenario: nodes, links, routes, schedule, probes, captures and traffic. Everything random follows from
    /// `seed`, which takes the place of the scenario's. Time has to be moved ([`Network::run`]) for anything to happen.
    ///
    /// # Errors
    /// A host with more flows than it has ports for them (27,767), more than a thousand flows with programs, or traffic between nodes
    /// that are not hosts.
    pub fn build(scenario: &Scenario, seed: u64) -> Result<Network, String> {
        let world = Self::new(seed);
        let start = world.now();
        let mut network = Network {
            world: world.clone(),
            scenario: Arc::new(scenario.clone()),
            nodes: Vec::new(),
            interfaces: Vec::new(),
            links: Vec::new(),
            programs: Vec::new(),
            start,
        };
        network.nodes(scenario, seed);
        network.wires(scenario, seed);
        network.routes(scenario);
        network.nats(scenario);
        // Before traffic, so that a change at a time comes before what hosts do at that time.
        network.schedule(scenario);
        network.traffic(scenario, Rng::from_number(seed ^ 0x7472_6166_6669_6300))?;
        network.probes(scenario);
        network.captures(scenario, 65_535);
        Ok(network)
    }
}

impl Network {
    fn nodes(&mut self, s: &Scenario, seed: u64) {
        for node in &s.nodes {
            let id = match node.kind {
                NodeKind::Host => {
                    let host = self.world.add_host(&node.name);
                    self.world.set_tcp(host, tcp_config(&node.tcp));
                    NodeId::Host(host)
                }
                NodeKind::Router => self.world.with(|sim| {
                    let salt = router_salt(seed, &node.name);
                    let filters = node.filters.iter().map(|f| (*f, 0)).collect();
                    sim.fabric.routers.push(Router {
                        addresses: Vec::new(),
                        own: Vec::new(),
                        filters,
                        next: Vec::new(),
                        nat: None,
                        salt,
                    });
                    NodeId::Router(RouterId(sim.fabric.routers.len() - 1))
                }),
            };
            self.nodes.push(id);
        }
    }

    fn wires(&mut self, s: &Scenario, seed: u64) {
        for (index, link) in s.links.iter().enumerate() {
            let ifaces = [0, 1].map(|end| match self.nodes[link.ends[end].node] {
                NodeId::Host(host) => {
                    let iface = self.world.add_interface(host, &link.ends[end].interface, InterfaceKind::Wired, &[]);
                    for (addr, prefix) in &link.ends[end].addresses {
                        self.world.add_address(iface, InterfaceAddr { prefix: *prefix, ..plain_address(*addr) });
                    }
                    self.world.set_interface_mtu(iface, interface_mtu(&link.directions[end].config));
                    Some(iface)
                }
                NodeId::Router(_) => None,
            });
            let ids = [0, 1].map(|d| {
                let (config, seed) = (link.directions[d].config.clone(), link_seed(seed, &link.name, d));
                self.world.with(|sim| sim.add_link_of(config, seed))
            });
            let ports = [0, 1].map(|end| match (ifaces[end], self.nodes[link.ends[end].node]) {
                (Some(iface), _) => Port::Iface(iface),
                (None, NodeId::Router(router)) => Port::Router(router),
                (None, NodeId::Host(host)) => Port::Iface(IfaceId { host, index: 0 }),
            });
            self.world.with(|sim| {
                sim.fabric.set_wire(ids[0], ports[0], ports[1]);
                sim.fabric.set_wire(ids[1], ports[1], ports[0]);
                for end in &link.ends {
                    for (addr, _) in &end.addresses {
                        sim.fabric.subnets.insert(*addr, index as u32);
                        if let NodeId::Router(router) = self.nodes[end.node] {
                            sim.fabric.routers[router.0].add_address(index as u32, *addr);
                        }
                    }
                }
            });
            for (iface, id) in ifaces.into_iter().zip(ids) {
                if let Some(iface) = iface {
                    self.world.change(iface, |i| i.wire = Some(id));
                }
            }
            self.interfaces.push(ifaces);
            self.links.push(ids);
        }
    }

    fn routes(&mut self, s: &Scenario) {
        let routes = Routes::compute(s);
        // The direction of a link that leaves a node.
        let out = |node: usize, link: usize| self.links[link][usize::from(s.links[link].ends[1].node == node)];
        for (node, id) in self.nodes.iter().enumerate() {
            if let NodeId::Router(router) = id {
                let next = (0..s.links.len())
                    .map(|to| routes.next_links(node, to).into_iter().map(|via| out(node, via)).collect())
                    .collect();
                self.world.with(|sim| sim.fabric.routers[router.0].next = next);
            }
        }
        for (link, ifaces) in self.interfaces.iter().enumerate() {
            for (iface, end) in ifaces.iter().zip(&s.links[link].ends) {
                let (Some(iface), node) = (*iface, end.node) else { continue };
                let metrics = (0..s.links.len())
                    .map(|to| {
                        // An explicit rule of a host leaves its other interfaces out.
                        let ruled = s.routes.iter().any(|r| {
                            r.node == node
                                && !r.via.contains(&link)
                                && s.links_of(r.to).any(|(l, _)| l == to)
                                && r.on.is_none_or(|on| on == to)
                        });
                        if ruled { u32::MAX } else { routes.distance_via(node, link, to).unwrap_or(u32::MAX) }
                    })
                    .collect();
                self.world.change(iface, |i| i.metrics = metrics);
            }
        }
    }

    fn nats(&mut self, s: &Scenario) {
        for (node, id) in s.nodes.iter().zip(&self.nodes) {
            let (Some(spec), NodeId::Router(router)) = (&node.nat, id) else { continue };
            let [forward, backward] = self.links[spec.outside];
            let at_begin = self.nodes[s.links[spec.outside].ends[0].node] == *id;
            let outside = if at_begin { (forward, backward) } else { (backward, forward) };
            self.world.with(|sim| {
                let nat = NatId(sim.nats.len());
                let machine = Nat::new(spec.config.clone(), sim.rng.u64());
                sim.nats.push(NatBox { nat: machine, access: outside, members: Vec::new() });
                sim.fabric.routers[router.0].nat = Some(RouterNat { nat, outside });
            });
        }
    }

    /// The NAT box that a node of the scenario is.
    fn nat_box(&self, sim: &Sim, node: usize) -> Option<NatId> {
        match self.nodes.get(node)? {
            NodeId::Router(router) => Some(sim.fabric.routers[router.0].nat?.nat),
            NodeId::Host(_) => None,
        }
    }

    fn schedule(&mut self, s: &Scenario) {
        let start = self.start;
        self.world.with(|sim| {
            sim.plan.start = start;
            for event in &s.events {
                let what = match &event.action {
                    Action::Link { link, direction, config } => {
                        Planned::Link(self.links[*link][*direction], Box::new(config.config.clone()))
                    }
                    Action::Interface { link, end, up } => match self.interfaces[*link][*end] {
                        Some(iface) => Planned::Interface(iface, *up),
                        None => continue,
                    },
                    Action::Nat { node, what } => match self.nat_box(sim, *node) {
                        Some(nat) => Planned::Nat(nat, *what),
                        None => continue,
                    },
                };
                plan(sim, start + event.at, what);
            }
        });
    }

    fn traffic(&mut self, s: &Scenario, mut rng: Rng) -> Result<(), String> {
        let mut next_port = vec![FIRST_AGENT_PORT; s.nodes.len()];
        for (index, t) in s.traffic.iter().enumerate() {
            let (NodeId::Host(from), NodeId::Host(to)) = (self.nodes[t.from], self.nodes[t.to]) else {
                return Err(format!("traffic.{}: not between hosts", t.name));
            };
            let mut port = |node: usize| {
                let port = next_port[node];
                if port > LAST_AGENT_PORT {
                    return Err(format!("traffic.{}: {} has no port left for it", t.name, s.nodes[node].name));
                }
                next_port[node] += 1;
                Ok(port)
            };
            let address = |node: usize| {
                s.address(node, !t.v6)
                    .ok_or_else(|| format!("traffic.{}: {} has no address", t.name, s.nodes[node].name))
            };
            let (from_addr, to_addr): (IpAddr, IpAddr) = (address(t.from)?, address(t.to)?);
            let options =
                [t.from, t.to].map(|n| Options { tcp: tcp_config(&t.tcp.over(s.nodes[n].tcp)), ..Options::default() });
            for flow in 0..t.flows {
                let mut rng = rng.fork();
                let begin = self.start + t.start + t.start_within.mul_f64(rng.unit());
                let stop = t.stop.map(|at| self.start + at);
                if let TrafficKind::Bulk { bytes, over } = t.kind
                    && over.is_program()
                {
                    if self.programs.len() >= MAX_PROGRAMS {
                        return Err(format!("traffic.{}: more than {MAX_PROGRAMS} flows with programs", t.name));
                    }
                    let address = SocketAddr::new(to_addr, port(t.to)?);
                    let program = Program { traffic: index, flow, over, from, to, address, begin, stop, bytes };
                    self.programs.push(program);
                    continue;
                }
                let web = matches!(t.kind, TrafficKind::Web(_));
                let tcp = web || matches!(t.kind, TrafficKind::Bulk { .. });
                let agent = Agent {
                    from,
                    to,
                    from_addr,
                    to_addr,
                    port: port(if web { t.from } else { t.to })?,
                    source_port: if tcp { 0 } else { port(t.from)? },
                    rng,
                    options,
                    begin,
                    stop,
                    measure_from: self.start + s.warm_up,
                    kind: kind(&t.kind),
                    wake: None,
                    conns: [None; 2],
                    route: [None, None],
                    stats: FlowStats { traffic: index, flow, ..FlowStats::default() },
                    objects: Vec::new(),
                    numbers: Numbers::default(),
                    again: (0, 0),
                };
                self.world.with(|sim| sim.add_agent(agent));
            }
        }
        Ok(())
    }

    fn probes(&mut self, s: &Scenario) {
        let start = self.start;
        self.world.with(|sim| {
            if !s.warm_up.is_zero() {
                plan(sim, start + s.warm_up, Planned::Measure);
            }
            for probe in &s.probes {
                match &probe.what {
                    ProbeKind::Queue(link) => {
                        for (direction, id) in self.links[*link].iter().enumerate() {
                            let name = format!("{}.{}", s.links[*link].name, ["forward", "backward"][direction]);
                            let subject = subject(sim.plan.table("queue"), name);
                            match probe.interval {
                                Some(interval) => add_probe(sim, start, Probe::Queue { link: *id, subject }, interval),
                                None => set(&mut sim.plan.on_link, id.0, subject),
                            }
                        }
                    }
                    ProbeKind::Tcp(name) | ProbeKind::Goodput(name) => {
                        let goodput = matches!(probe.what, ProbeKind::Goodput(_));
                        for agent in 0..sim.agents.len() {
                            let stats = &sim.agents[agent].stats;
                            if s.traffic[stats.traffic].name != *name {
                                continue;
                            }
                            let label = format!("{name}.{}", stats.flow);
                            let table = sim.plan.table(if goodput { "goodput" } else { "tcp" });
                            let subject = subject(table, label);
                            let id = agent as u32;
                            let what = if goodput {
                                Probe::Goodput { agent: id, subject, last: (start, 0) }
                            } else {
                                Probe::Tcp { agent: id, subject }
                            };
                            match probe.interval {
                                Some(interval) => add_probe(sim, start, what, interval),
                                // Every delivery is a change of goodput: such a table is of a tenth of a second.
                                None if goodput => add_probe(sim, start, what, Duration::from_millis(100)),
                                None => set(&mut sim.plan.on_agent, agent, subject),
                            }
                        }
                    }
                }
            }
        });
    }

    fn captures(&mut self, s: &Scenario, snap: usize) {
        for capture in &s.captures {
            self.capture(capture.link, snap);
        }
    }

    /// Records packets at both ends of a link of the scenario from now on, at most `snap` bytes of each: what the node there
    /// sends and receives by the link. See [`Network::captures_so_far`].
    pub fn capture(&mut self, link: usize, snap: usize) {
        let spec = &self.scenario.links[link];
        let wall = self.world.wall();
        self.world.with(|sim| {
            let first = sim.plan.captures.len();
            for end in &spec.ends {
                let interface = format!("{}.{}", self.scenario.nodes[end.node].name, end.interface);
                sim.plan.captures.push(Capture::new(&interface, wall, sim.now, snap));
            }
            for (direction, id) in self.links[link].iter().enumerate() {
                set(&mut sim.plan.tapped, id.0, [(first, first + 1), (first + 1, first)][direction]);
            }
        });
    }

    /// The scenario.
    #[must_use]
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// A node by its name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<NodeId> {
        Some(self.nodes[self.scenario.node(name)?])
    }

    /// A host by its name.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<HostId> {
        match self.node(name)? {
            NodeId::Host(host) => Some(host),
            NodeId::Router(_) => None,
        }
    }

    /// The NAT box that a router is, by the router's name.
    #[must_use]
    pub fn nat(&self, router: &str) -> Option<NatId> {
        let node = self.scenario.node(router)?;
        self.world.with(|sim| self.nat_box(sim, node))
    }

    /// The two directions of a link, forward and backward, by its name.
    #[must_use]
    pub fn link(&self, name: &str) -> Option<[LinkId; 2]> {
        Some(self.links[self.scenario.link(name)?])
    }

    /// The two directions of every link, in the order of the scenario.
    #[must_use]
    pub fn links(&self) -> &[[LinkId; 2]] {
        &self.links
    }

    /// The interfaces at the two ends of a link; routers have none.
    #[must_use]
    pub fn interfaces(&self, link: usize) -> [Option<IfaceId>; 2] {
        self.interfaces[link]
    }

    /// When the run began.
    #[must_use]
    pub fn start(&self) -> Instant {
        self.start
    }

    /// When it ends: warm-up and measurement after its start.
    #[must_use]
    pub fn end(&self) -> Instant {
        self.start + self.scenario.total()
    }

    /// The flows of the scenario that programs carry: they are not in [`Network::flows`], and [`Network::run`] does nothing for them.
    #[must_use]
    pub fn programs(&self) -> &[Program] {
        &self.programs
    }

    /// Runs until the end of the scenario. `progress` is told the share that is done, 0 to 1, a hundred times or less; it
    /// returns whether to go on.
    pub fn run(&self, mut progress: impl FnMut(f64) -> bool) {
        let total = self.scenario.total();
        for i in 1..=100u32 {
            self.world.run_until(self.start + total * i / 100);
            if !progress(f64::from(i) / 100.0) {
                return;
            }
        }
    }

    /// What every flow has done so far, in the order of the scenario.
    #[must_use]
    pub fn flows(&self) -> Vec<FlowStats> {
        self.world.with(|sim| {
            let mut all = Vec::with_capacity(sim.agents.len());
            for agent in &sim.agents {
                let mut stats = agent.stats.clone();
                stats.retransmits = agent.is_tcp().then(|| sim.sent_again(agent).saturating_sub(agent.again.1));
                stats.measured_datagrams = agent.numbers.measured(sim.now);
                all.push(stats);
            }
            all
        })
    }

    /// The objects of web sessions that have arrived as a whole, measured, with the index of their traffic and the number of their
    /// flow, in the order of both and of time; of each flow the first [`crate::MAX_OBJECTS`].
    #[must_use]
    pub fn objects(&self) -> Vec<(usize, u32, WebObject)> {
        self.world.with(|sim| {
            let all = sim.agents.iter();
            all.flat_map(|a| a.objects.iter().map(|o| (a.stats.traffic, a.stats.flow, *o))).collect()
        })
    }

    /// What the links have done since the warm-up ended, forward and backward.
    #[must_use]
    pub fn measured(&self) -> Vec<[Counters; 2]> {
        self.world.with(|sim| {
            let of = |id: LinkId| {
                let before = sim.plan.warmed.get(id.0).copied().unwrap_or_default();
                sim.link(id).counters().since(&before)
            };
            self.links.iter().map(|pair| pair.map(of)).collect()
        })
    }

    /// What the links have done so far, forward and backward, warm-up included.
    #[must_use]
    pub fn counters(&self) -> Vec<[Counters; 2]> {
        self.links.iter().map(|pair| pair.map(|id| self.world.link_counters(id))).collect()
    }

    /// Packets that have crossed a link, each counted once for every link.
    #[must_use]
    pub fn packet_hops(&self) -> u64 {
        self.counters().iter().flatten().map(|c| c.delivered).sum()
    }

    /// Takes the tables that probes have filled so far.
    #[must_use]
    pub fn take_samples(&self) -> Vec<Samples> {
        self.world.with(|sim| {
            let take = |table: &mut Samples| {
                let rows = std::mem::take(&mut table.rows);
                Samples { rows, ..table.clone() }
            };
            sim.plan.tables.iter_mut().filter(|t| !t.name.is_empty()).map(take).collect()
        })
    }

    /// The packet records so far, in the format pcapng: a name, `LINK-NODE`, and the bytes of the file.
    #[must_use]
    pub fn captures_so_far(&self) -> Vec<(String, Vec<u8>)> {
        self.world.with(|sim| {
            let mut all = Vec::new();
            for (link, pair) in self.scenario.links.iter().zip(&self.links) {
                let Some((a, b)) = sim.plan.tapped.get(pair[0].0).copied().flatten() else { continue };
                for (end, record) in link.ends.iter().zip([a, b]) {
                    let name = format!("{}-{}", link.name, self.scenario.nodes[end.node].name);
                    all.push((name, sim.plan.captures[record].bytes.clone()));
                }
            }
            all
        })
    }
}

fn plan(sim: &mut Sim, at: Instant, what: Planned) {
    let index = sim.plan.events.len() as u32;
    sim.plan.events.push((at, what));
    sim.schedule(at, Event::Planned(index));
}

fn add_probe(sim: &mut Sim, start: Instant, probe: Probe, interval: Duration) {
    let index = sim.plan.probes.len();
    sim.plan.probes.push((probe, interval));
    plan(sim, start + interval, Planned::Probe(index));
}

fn subject(table: &mut Samples, name: String) -> u32 {
    table.subjects.push(name);
    table.subjects.len() as u32 - 1
}

fn set<T: Clone>(list: &mut Vec<Option<T>>, at: usize, value: T) {
    if list.len() <= at {
        list.resize(at + 1, None);
    }
    list[at] = Some(value);
}

fn kind(kind: &TrafficKind) -> Kind {
    match kind {
        TrafficKind::Bulk { bytes, .. } => Kind::Bulk { left: *bytes, total: *bytes },
        TrafficKind::Web(model) => Kind::Web(Box::new(WebState {
            model: *model,
            objects_left: 0,
            request: (0, 0),
            object: (0, 0),
            asking: false,
            asked_at: Instant::ZERO,
            size: 0,
            page_at: Instant::ZERO,
        })),
        TrafficKind::Video(video) => Kind::Video(*video, VideoState::default()),
        TrafficKind::OnOff(model) => {
            let weights = model.packets.iter().map(|p| p.1).sum();
            Kind::OnOff(Box::new((model.clone(), OnOffState { on_until: None, weights })))
        }
        TrafficKind::Ping { interval, size } => Kind::Ping { interval: *interval, size: *size },
    }
}

/// What a scenario says of TCP, over Linux's.
fn tcp_config(settings: &TcpSettings) -> TcpConfig {
    let mut tcp = match settings.controller {
        Some(Controller::NewReno) => TcpConfig::linux_reno(),
        Some(Controller::Cubic) | None => TcpConfig::linux(),
    };
    if let Some(on) = settings.sack {
        tcp.sack = on;
    }
    if let Some(on) = settings.rack {
        (tcp.rack, tcp.tail_loss_probe) = (on, on);
    }
    if let Some(on) = settings.ecn {
        tcp.ecn = if on { EcnMode::Request } else { EcnMode::Off };
    }
    if let Some(on) = settings.timestamps {
        tcp.timestamps = on;
    }
    if settings.delayed_ack == Some(false) {
        tcp.delayed_ack = DelayedAck::Fixed { every: 1, delay: Duration::ZERO };
    }
    if let Some(segments) = settings.initial_window {
        tcp.congestion.initial_window = InitialWindow::Segments(segments);
    }
    if let Some(least) = settings.min_rto {
        tcp.min_rto = least;
    }
    if let Some(floor) = settings.rto_floor {
        tcp.rto_floor = match floor {
            neater_scenario::RtoFloor::Timeout => RtoFloor::Timeout,
            neater_scenario::RtoFloor::Variation => RtoFloor::Variation,
        };
    }
    if let Some(size) = settings.send_buffer {
        tcp.send_buffer = BufferSize::Fixed(size as usize);
    }
    if let Some(size) = settings.receive_buffer {
        tcp.receive_buffer = BufferSize::Fixed(size as usize);
    }
    tcp
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_timeout_of_rfc_6298_can_be_said() {
        let said = |floor| {
            let second = Duration::from_secs(1);
            let tcp = tcp_config(&TcpSettings { min_rto: Some(second), rto_floor: floor, ..TcpSettings::default() });
            assert_eq!(tcp.min_rto, second);
            tcp.rto_floor
        };
        assert_eq!(said(Some(neater_scenario::RtoFloor::Timeout)), RtoFloor::Timeout);
        assert_eq!(said(Some(neater_scenario::RtoFloor::Variation)), RtoFloor::Variation);
        assert_eq!(said(None), RtoFloor::Variation, "Linux's, unless it is said otherwise");
    }
}
