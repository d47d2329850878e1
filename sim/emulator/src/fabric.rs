//! The emulated network as a machine: packets of hosts in, packets for hosts out, at the times that the links say.
//!
//! *Responsible for* the way of a packet over links and routers (hop counts, equal-cost choice, NAT, ICMP errors, echo), and
//! for what a link decides being done to real bytes: marks, corruption, duplicates. *Not responsible for* when it is called:
//! it is given the time, and works through everything that was due by then in the order in which it was due. A packet
//! that is late out of one link is not late into the next: what is late in the process does not add up over hops.
//!
//! *Invariant*: in steady state nothing is allocated per packet.

mod nat;

pub use nat::NatReport;

use super::packet::icmp::{ERROR_MAX, Origin, Problem};
use super::packet::{self, icmp};
use super::plan::{Kind, NatPlan, Plan, What};
use super::pool::{Packet, Pool};
use nat::{NatBox, Passage};
use neater_base::Instant;
use neater_link::{Action, Corruption, Counters, DropReason, Filter, Link, LinkConfig, Output, PacketMeta};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::net::IpAddr;

/// Where one direction of a link ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Port(usize),
    Router(usize),
    /// The outside of the NAT box that a router is.
    Outside(usize),
}

struct Direction {
    link: Link<Packet>,
    from: End,
    to: End,
    /// Who tells senders of what happens here.
    origin: Origin,
    /// When the link is in the agenda for; the earliest entry counts.
    agenda: Option<Instant>,
}

struct Router {
    /// Its number in the plan.
    node: usize,
    name: String,
    /// The firewall, and how many packets each rule has concerned.
    filters: Vec<(Filter, u64)>,
    nat: Option<NatBox>,
    routes: HashMap<IpAddr, Box<[usize]>>,
    own: Vec<IpAddr>,
    origin: Origin,
    /// What makes its choices among equal ways its own.
    salt: u64,
}

/// An interface of a host, where packets enter and leave the emulated network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The host's number in the plan.
    pub node: usize,
    /// The interface's number in the host.
    pub interface: usize,
}

/// What the emulator did beside the links' own counting, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FabricCounters {
    /// Read from hosts.
    pub received: u64,
    /// Handed to hosts.
    pub delivered: u64,
    /// Not a whole IP packet.
    pub not_ip: u64,
    /// A router had no route.
    pub no_route: u64,
    /// A router found the hop limit used up.
    pub hops_exceeded: u64,
    /// A router's firewall dropped or rejected it.
    pub filtered: u64,
    /// A NAT box did not let it through.
    pub nat_dropped: u64,
    /// For a router itself, answered.
    pub echoed: u64,
    /// For a router itself, which only answers echo requests.
    pub unanswered: u64,
    /// ICMP errors sent.
    pub icmp_errors: u64,
    /// No buffer was free: the emulator's fault, not a property of the scenario.
    pub no_buffer: u64,
}

/// The emulated network.
pub struct Fabric {
    directions: Vec<Direction>,
    routers: Vec<Router>,
    ports: Vec<Port>,
    /// The direction that begins at a port.
    uplinks: Vec<usize>,
    agenda: BinaryHeap<Reverse<(Instant, usize)>>,
    arrivals: VecDeque<(Instant, End, Packet)>,
    outputs: VecDeque<(usize, Instant, Packet)>,
    pool: Pool,
    counters: FabricCounters,
    /// What changes, the next at the end.
    changes: Vec<(Instant, What)>,
    scratch: Box<[u8; ERROR_MAX]>,
}

impl Fabric {
    /// The network of a plan, with so many packet buffers, whose schedules begin at `start`.
    #[must_use]
    pub fn new(plan: &Plan, buffers: usize, start: Instant) -> Self {
        let mut ports = Vec::new();
        let mut routers: Vec<Router> = Vec::new();
        let mut router_of = vec![usize::MAX; plan.nodes.len()];
        for (n, node) in plan.nodes.iter().enumerate() {
            match node.kind {
                Kind::Host => {
                    ports.extend((0..node.interfaces.len()).map(|interface| Port { node: n, interface }));
                }
                Kind::Router => {
                    router_of[n] = routers.len();
                    let own: Vec<IpAddr> = node.interfaces.iter().flat_map(|i| &i.addresses).map(|(a, _)| *a).collect();
                    let filters = node.filters.iter().map(|f| (*f, 0)).collect();
                    let nat = node.nat.as_ref().map(|nat| {
                        let side = usize::from(plan.wires[nat.outside].ends[0].0 != n);
                        NatBox::new(nat, nat.outside * 2 + side, plan.seed ^ (n as u64) << 32)
                    });
                    let (routes, origin) = (HashMap::new(), origin(&own));
                    let name = node.name.clone();
                    let salt = neater_scenario::router_salt(plan.seed, &name);
                    routers.push(Router { node: n, name, filters, nat, routes, own, origin, salt });
                }
            }
        }
        let end = |(node, interface): (usize, usize)| match plan.nodes[node].kind {
            Kind::Router => {
                let wire = plan.nodes[node].interfaces[interface].wire.0;
                let outside = plan.nodes[node].nat.as_ref().is_some_and(|nat| nat.outside == wire);
                if outside { End::Outside(router_of[node]) } else { End::Router(router_of[node]) }
            }
            Kind::Host => End::Port(ports.iter().position(|p| *p == Port { node, interface }).unwrap_or(usize::MAX)),
        };
        let mut directions = Vec::new();
        for wire in &plan.wires {
            for side in 0..2 {
                let (from, to) = (wire.ends[side], wire.ends[1 - side]);
                // A host is told by its neighbour: errors from an address of its own it would not believe.
                let teller = if plan.nodes[from.0].kind == Kind::Router { from } else { to };
                let own: Vec<IpAddr> =
                    plan.nodes[teller.0].interfaces[teller.1].addresses.iter().map(|(a, _)| *a).collect();
                directions.push(Direction {
                    link: Link::starting_at(start, wire.config[side].clone(), wire.seeds[side]),
                    from: end(from),
                    to: end(to),
                    origin: origin(&own),
                    agenda: None,
                });
            }
        }
        let direction_of = |node: usize, interface: usize| {
            let (wire, side) = plan.nodes[node].interfaces[interface].wire;
            wire * 2 + side
        };
        for (n, routes) in plan.routes().into_iter().enumerate().filter(|(n, _)| router_of[*n] != usize::MAX) {
            let ways = routes.into_iter().map(|(a, out)| (a, out.iter().map(|i| direction_of(n, *i)).collect()));
            routers[router_of[n]].routes = ways.collect();
        }
        let uplinks = ports.iter().map(|p| direction_of(p.node, p.interface)).collect();
        let mut changes: Vec<_> = plan.changes.iter().map(|c| (start + c.at, c.what.clone())).collect();
        changes.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        let largest = plan.nodes.iter().flat_map(|n| &n.interfaces).map(|i| i.mtu).max().unwrap_or(1500);
        Self {
            agenda: BinaryHeap::with_capacity(directions.len() * 8 + 64),
            directions,
            routers,
            ports,
            uplinks,
            arrivals: VecDeque::with_capacity(256),
            outputs: VecDeque::with_capacity(4096),
            pool: Pool::new(buffers, (largest as usize).max(ERROR_MAX)),
            counters: FabricCounters::default(),
            changes,
            scratch: Box::new([0; ERROR_MAX]),
        }
    }

    /// The interfaces of hosts; a port is named by its place here.
    #[must_use]
    pub fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// The buffers to read packets into.
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// What happened beside the links.
    #[must_use]
    pub fn counters(&self) -> FabricCounters {
        self.counters
    }

    /// The counters of each direction: wire 0 there and back, wire 1 there and back, and so on.
    #[must_use]
    pub fn link_counters(&self) -> Vec<Counters> {
        self.directions.iter().map(|d| d.link.counters()).collect()
    }

    /// Bytes that wait in a direction of a wire.
    pub fn queued_bytes(&mut self, now: Instant, wire: usize, side: usize) -> Option<u64> {
        self.directions.get_mut(wire * 2 + side).map(|d| d.link.queued_bytes(now))
    }

    /// Changes a direction of a wire. Returns whether there is such a one.
    pub fn set_config(&mut self, now: Instant, wire: usize, side: usize, config: LinkConfig) -> bool {
        let d = wire * 2 + side;
        let Some(direction) = self.directions.get_mut(d) else { return false };
        direction.link.set_config(now, config);
        self.pump(now, d);
        self.settle();
        true
    }

    /// Counts a packet that could not be read for want of a buffer.
    pub fn count_no_buffer(&mut self) {
        self.counters.no_buffer += 1;
    }

    /// A host has sent a packet. Everything due before `now` must have been worked through ([`Fabric::advance`]).
    pub fn arrive(&mut self, now: Instant, port: usize, packet: Packet) {
        self.counters.received += 1;
        let Some(&d) = self.uplinks.get(port) else { return self.pool.give_back(packet) };
        self.offer(now, d, packet);
        self.settle();
    }

    /// When there will be something to do.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let packet = self.agenda.peek().map(|Reverse((at, _))| *at);
        let change = self.changes.last().map(|(at, _)| *at);
        match (packet, change) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Works through everything that is due by `now`.
    pub fn advance(&mut self, now: Instant) {
        while let Some(at) = self.next_timeout().filter(|at| *at <= now) {
            if self.changes.last().is_some_and(|(change, _)| *change == at)
                && let Some((_, change)) = self.changes.pop()
            {
                match change {
                    What::Link { wire, side, config } => drop(self.set_config(at, wire, side, config)),
                    What::Nat { node, what } => self.change_nat(at, node, what),
                    // A host's own affair: see `super::hosts`.
                    What::Interface { .. } => {}
                }
                continue;
            }
            let Some(Reverse((_, d))) = self.agenda.pop() else { break };
            let Some(direction) = self.directions.get_mut(d) else { continue };
            if direction.agenda == Some(at) {
                direction.agenda = None;
                self.pump(at, d);
                self.settle();
            }
        }
    }

    /// The next packet for a host: the port, when it was due there, and the packet, which goes back to [`Fabric::pool`].
    pub fn poll_output(&mut self) -> Option<(usize, Instant, Packet)> {
        let out = self.outputs.pop_front()?;
        self.counters.delivered += 1;
        Some(out)
    }

    fn offer(&mut self, now: Instant, d: usize, packet: Packet) {
        let Some(meta) = packet::meta(packet.bytes()) else {
            self.counters.not_ip += 1;
            return self.pool.give_back(packet);
        };
        self.offer_known(now, d, packet, &meta);
    }

    fn offer_known(&mut self, now: Instant, d: usize, packet: Packet, meta: &PacketMeta) {
        let Some(direction) = self.directions.get_mut(d) else { return self.pool.give_back(packet) };
        let len = packet.len();
        direction.link.offer(now, packet, len, meta);
        self.pump(now, d);
    }

    /// Takes what a link has to give.
    fn pump(&mut self, now: Instant, d: usize) {
        loop {
            let Some(direction) = self.directions.get_mut(d) else { return };
            match direction.link.poll(now) {
                None => break,
                Some(Output::Deliver { mut packet, at, ce, corrupt, .. }) => {
                    let to = direction.to;
                    // A duplicate shares its bytes with the first until one of them is changed.
                    if (ce || corrupt.is_some()) && !self.damage(&mut packet, ce, corrupt) {
                        self.counters.no_buffer += 1;
                        self.pool.give_back(packet);
                        continue;
                    }
                    self.arrivals.push_back((at, to, packet));
                }
                Some(Output::Drop { packet, reason, .. }) => {
                    let (from, origin) = (direction.from, direction.origin);
                    let problem = match reason {
                        DropReason::TooBig { mtu } => Some(Problem::TooBig { mtu }),
                        DropReason::Rejected => Some(Problem::Prohibited),
                        _ => None,
                    };
                    if let Some(problem) = problem {
                        self.complain(now, from, origin, problem, &packet);
                    }
                    self.pool.give_back(packet);
                }
            }
        }
        let Some(direction) = self.directions.get_mut(d) else { return };
        let next = direction.link.next_timeout();
        if next != direction.agenda {
            direction.agenda = next;
            if let Some(at) = next {
                self.agenda.push(Reverse((at, d)));
            }
        }
    }

    /// Does to the bytes what a link has decided; false if there is no buffer for it.
    fn damage(&mut self, packet: &mut Packet, ce: bool, corrupt: Option<Corruption>) -> bool {
        let changed = self.pool.change(packet, |bytes| {
            if ce {
                packet::mark_ce(bytes);
            }
            if let Some(Corruption { bit, .. }) = corrupt {
                packet::flip_payload_bit(bytes, u64::from(bit));
            }
        });
        changed.is_some()
    }

    /// Takes packets that have come out of links further, until all are under way or out.
    fn settle(&mut self) {
        while let Some((at, end, packet)) = self.arrivals.pop_front() {
            match end {
                End::Port(port) => self.outputs.push_back((port, at, packet)),
                End::Router(r) => self.route(at, r, packet, false),
                End::Outside(r) => self.route(at, r, packet, true),
            }
        }
    }

    /// A packet has come to a router; `outside`: to the outside of the NAT box that it is.
    fn route(&mut self, now: Instant, r: usize, mut packet: Packet, outside: bool) {
        let meta = packet::meta(packet.bytes());
        let (Some(router), Some(mut meta)) = (self.routers.get_mut(r), meta) else {
            return self.pool.give_back(packet);
        };
        let own = router.own.contains(&meta.destination.ip());
        if own && !router.nat.as_ref().is_some_and(|nat| nat.is_external(meta.destination.ip())) {
            return self.answer(now, r, packet);
        }
        if let Some(action) = router.refuses(&meta, packet.len()) {
            self.counters.filtered += 1;
            if action == Action::Reject {
                let origin = router.origin;
                self.complain(now, End::Router(r), origin, Problem::Prohibited, &packet);
            }
            return self.pool.give_back(packet);
        }
        match self.through_nat(now, r, &mut packet, outside) {
            Passage::Unconcerned => {}
            Passage::Translated => match packet::meta(packet.bytes()) {
                Some(now) => meta = now,
                None => return self.pool.give_back(packet),
            },
            // What nobody inside is meant by is for the router itself.
            Passage::Dropped if own => return self.answer(now, r, packet),
            Passage::Dropped => {
                self.counters.nat_dropped += 1;
                return self.pool.give_back(packet);
            }
            Passage::NoBuffer => {
                self.counters.no_buffer += 1;
                return self.pool.give_back(packet);
            }
        }
        let destination = meta.destination.ip();
        let Some(router) = self.routers.get(r) else { return self.pool.give_back(packet) };
        let origin = router.origin;
        let choice = router.routes.get(&destination).and_then(|ways| match ways.len() {
            0 | 1 => ways.first(),
            n => ways.get(neater_scenario::way(&meta, router.salt, n)),
        });
        let Some(&d) = choice else {
            self.counters.no_route += 1;
            self.complain(now, End::Router(r), origin, Problem::NoRoute, &packet);
            return self.pool.give_back(packet);
        };
        match self.pool.change(&mut packet, packet::decrement_ttl) {
            Some(true) => self.offer_known(now, d, packet, &meta),
            Some(false) => {
                self.counters.hops_exceeded += 1;
                self.complain(now, End::Router(r), origin, Problem::TimeExceeded, &packet);
                self.pool.give_back(packet);
            }
            None => {
                self.counters.no_buffer += 1;
                self.pool.give_back(packet);
            }
        }
    }

    /// A packet for the router itself.
    fn answer(&mut self, now: Instant, r: usize, mut packet: Packet) {
        match self.pool.change(&mut packet, icmp::into_echo_reply) {
            Some(true) => {
                self.counters.echoed += 1;
                self.send_from(now, r, packet);
            }
            Some(false) | None => {
                self.counters.unanswered += 1;
                self.pool.give_back(packet);
            }
        }
    }

    /// Sends what a router itself has made. It does not take from its own packet's hop limit.
    fn send_from(&mut self, now: Instant, r: usize, mut packet: Packet) {
        if !self.translate_own(now, r, &mut packet) {
            return self.pool.give_back(packet);
        }
        let meta = packet::meta(packet.bytes());
        let way = meta.and_then(|m| {
            let router = self.routers.get(r)?;
            let ways = router.routes.get(&m.destination.ip())?;
            ways.get(neater_scenario::way(&m, router.salt, ways.len())).map(|d| (*d, m))
        });
        match way {
            Some((d, meta)) => self.offer_known(now, d, packet, &meta),
            None => {
                self.counters.no_route += 1;
                self.pool.give_back(packet);
            }
        }
    }

    /// Tells the sender of a packet what became of it.
    fn complain(&mut self, now: Instant, at: End, origin: Origin, problem: Problem, about: &Packet) {
        let Some(len) = icmp::error(problem, about.bytes(), origin, &mut self.scratch) else { return };
        let scratch = &self.scratch;
        let made = self.pool.fill(|out| match out.get_mut(..len) {
            Some(out) => {
                out.copy_from_slice(&scratch[..len]);
                Ok(len)
            }
            None => Err(()),
        });
        let Some(Ok(error)) = made else {
            self.counters.no_buffer += 1;
            return;
        };
        self.counters.icmp_errors += 1;
        match at {
            End::Port(port) => self.outputs.push_back((port, now, error)),
            End::Router(r) | End::Outside(r) => self.send_from(now, r, error),
        }
    }
}

impl Router {
    /// What the firewall does with a packet: as that of a link, the first rule that holds decides.
    fn refuses(&mut self, meta: &PacketMeta, len: u32) -> Option<Action> {
        let holds = |(filter, concerned): &mut (Filter, u64)| {
            let concerns = filter.concerns(meta, len);
            *concerned += u64::from(concerns);
            (concerns && *concerned > filter.after).then_some(filter.action)
        };
        self.filters.iter_mut().find_map(holds)
    }
}

fn origin(own: &[IpAddr]) -> Origin {
    let mut origin = Origin::default();
    for address in own {
        match address {
            IpAddr::V4(a) => origin.v4 = origin.v4.or(Some(*a)),
            IpAddr::V6(a) => origin.v6 = origin.v6.or(Some(*a)),
        }
    }
    origin
}

#[cfg(test)]
mod tests;
