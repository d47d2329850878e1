//! The simulation behind a [`crate::World`]: the queue of events, the way of a packet, and time.
//!
//! *Responsible for* routing, links, arrival and ICMP from the network. *Not responsible for* what hosts do with a
//! packet (`stream.rs`, `udp.rs`, `service.rs`).
//!
//! *Invariants*: time never runs backwards; events of one instant happen in the order in which they were made; an ICMP
//! error never causes another; no more than [`MAX_EVENTS`] events wait.

use crate::agent::{Agent, AgentId};
use crate::capture::Flow;
use crate::corrupt::{damage, is_uncovered, received};
use crate::deadlines::Deadlines;
use crate::fabric::{Fabric, HOP_LIMIT};
use crate::host::Host;
use crate::iface::{IfaceState, LOOPBACK_INDEX};
use crate::nat::{NatBox, NatId};
use crate::packet::{Body, Icmp, IcmpKind, Packet, ip_header};
use crate::plan::Plan;
use crate::service::TcpAction;
use crate::trace::{Recorder, TraceVerdict};
use crate::world::{HostId, IfaceId, LinkId, Unroutable};
use core::time::Duration;
use neater_base::net::{Ecn, ErrorKind, NetEvent};
use neater_base::{Instant, Key, Rng, Timers, WallTime};
use neater_link::{Corruption, DropReason, Link, LinkConfig, Output, Protocol};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// Events that wait at once; packets beyond are lost.
pub(crate) const MAX_EVENTS: usize = 1 << 20;
/// How long a packet of a host to itself takes.
const LOOPBACK_DELAY: Duration = Duration::from_micros(10);
/// The address of the routers that send ICMP errors: from the benchmarking ranges (RFC 2544, RFC 5180), so that it
/// collides with no host.
const ROUTER_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The same for IPv6.
const ROUTER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1);

/// The way of a packet.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    /// The interface that it leaves by.
    pub(crate) from: IfaceId,
    /// The interface that it should arrive at; none if nobody has the address.
    pub(crate) to: Option<IfaceId>,
    /// By what.
    pub(crate) way: Way,
}

/// By what a packet travels.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    /// It stays in its host.
    Loopback,
    /// These links, one after another.
    Links(Arc<[LinkId]>),
    /// These links, one after another, to a NAT box, which they reach from inside or from outside.
    Nat { links: Arc<[LinkId]>, nat: NatId, inside: bool },
    /// From router to router, beginning with a link, to a subnet.
    Fabric { first: LinkId, subnet: u32 },
}

impl Route {
    /// The link that it begins with.
    pub(crate) fn first(&self) -> Option<LinkId> {
        match &self.way {
            Way::Loopback => None,
            Way::Links(links) | Way::Nat { links, .. } => links.first().copied(),
            Way::Fabric { first, .. } => Some(*first),
        }
    }
}

/// What a route lookup finds.
#[derive(Debug)]
pub(crate) struct Lookup {
    pub(crate) route: Route,
    /// The source address to use.
    pub(crate) source: IpAddr,
    /// The largest packet that the interface and what is known of the path allow.
    pub(crate) mtu: u32,
    /// The same for the interface alone.
    pub(crate) iface_mtu: u32,
}

/// A packet on its way.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    pub(crate) packet: Packet,
    pub(crate) route: Route,
    /// How many links of its route it has crossed.
    done: usize,
    /// How many more it may, where routers count.
    pub(crate) hop_limit: u8,
    /// When it entered the link that it is on.
    entered: Instant,
    /// It is one of the pieces that a packet crosses this link in.
    cut: Option<Piece>,
    /// A bit is wrong.
    corrupt: Option<Corruption>,
    /// A datagram without a checksum.
    unchecked: bool,
}

/// A piece of a packet.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// The number of its [`Cut`].
    cut: u64,
    /// Where it begins, in bytes behind the packet's IP header.
    at: u32,
}

/// A packet that crosses a link in pieces: only all of them together go on.
#[derive(Debug)]
struct Cut {
    /// Pieces of which nothing is known yet.
    outstanding: usize,
    lost: bool,
    /// Wrong bits that no checksum covers, counted from the packet's IP header.
    damaged: Vec<u32>,
}

/// A link and when the world will look at it.
struct Hop {
    link: Link<Box<Parcel>>,
    scheduled: Option<Instant>,
    /// It takes the options of MPTCP out of segments.
    strips_multipath: bool,
}

/// Something that will happen. Small, because it is moved about in the queue: what is seldom and large is boxed.
pub(crate) enum Event {
    /// A packet of a host to itself arrives.
    Loopback(Box<Parcel>),
    /// A link may have something.
    Link(LinkId),
    /// The send buffer of a UDP socket has drained.
    UdpWritable { host: HostId, key: Key },
    /// A scripted UDP service answers.
    UdpReply(Box<UdpReply>),
    /// A scripted TCP service acts.
    TcpAction(Box<(HostId, Key, TcpAction)>),
    /// An agent wants to act.
    Agent(AgentId),
    /// Something that the scenario says happens.
    Planned(u32),
}

/// The answer of a scripted UDP service.
pub(crate) struct UdpReply {
    pub(crate) host: HostId,
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) payload: Vec<u8>,
}

/// The whole state of a world.
pub(crate) struct Sim {
    pub(crate) now: Instant,
    wall: (WallTime, Instant),
    pub(crate) rng: Rng,
    pub(crate) hosts: Vec<Host>,
    links: Vec<Hop>,
    cuts: BTreeMap<u64, Cut>,
    next_cut: u64,
    /// Who has an address, loopback left out.
    pub(crate) owners: BTreeMap<IpAddr, IfaceId>,
    queue: Timers<Event>,
    /// Deadlines of TCP connections.
    pub(crate) deadlines: Deadlines,
    pub(crate) recorder: Recorder,
    pub(crate) unroutable: Unroutable,
    pub(crate) nats: Vec<NatBox>,
    /// Counts changes of what [`Sim::lookup`] finds.
    pub(crate) version: u64,
    pub(crate) fabric: Fabric,
    pub(crate) agents: Vec<Agent>,
    pub(crate) plan: Plan,
}

impl Sim {
    pub(crate) fn new(seed: u64, start: Instant, wall: WallTime) -> Self {
        Self {
            now: start,
            wall: (wall, start),
            rng: Rng::from_number(seed),
            hosts: Vec::new(),
            links: Vec::new(),
            cuts: BTreeMap::new(),
            next_cut: 0,
            owners: BTreeMap::new(),
            queue: Timers::new(),
            deadlines: Deadlines::default(),
            recorder: Recorder::new(seed),
            unroutable: Unroutable::BlackHole,
            nats: Vec::new(),
            version: 0,
            fabric: Fabric::default(),
            agents: Vec::new(),
            plan: Plan::default(),
        }
    }

    pub(crate) fn host(&mut self, id: HostId) -> &mut Host {
        &mut self.hosts[id.0]
    }

    pub(crate) fn wall(&self) -> WallTime {
        WallTime(self.wall.0.0.saturating_add(self.now - self.wall.1))
    }

    pub(crate) fn set_wall(&mut self, wall: WallTime) {
        self.wall = (wall, self.now);
    }

    // --- time ------------------------------------------------------------------------------------------------------

    /// When something happens next in the network.
    pub(crate) fn next_event(&self) -> Option<Instant> {
        match (self.queue.next(), self.deadlines.next()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Advances to the next event and lets it happen.
    pub(crate) fn step(&mut self) -> Option<Instant> {
        let at = self.next_event()?;
        self.step_to(at);
        Some(self.now)
    }

    /// Lets the next event happen, which is at `at`.
    #[inline]
    fn step_to(&mut self, at: Instant) {
        self.now = self.now.max(at);
        // Packets before deadlines, so that an acknowledgment in time prevents a retransmission.
        if let Some(event) = self.queue.pop_due(at) {
            self.happen(event);
        } else if let Some((host, key)) = self.pop_deadline() {
            self.conn_timeout(host, key);
        }
    }

    pub(crate) fn run_until(&mut self, until: Instant) {
        while let Some(at) = self.next_event().filter(|at| *at <= until) {
            self.step_to(at);
        }
        self.now = self.now.max(until);
    }

    /// Whether nothing will happen any more and no host holds a socket or a connection.
    pub(crate) fn is_empty(&self) -> bool {
        let idle = |h: &Host| {
            h.sockets.is_empty()
                && h.conns.is_empty()
                && h.pairs.is_empty()
                && h.local_ports.is_empty()
                && h.listeners.is_empty()
                && h.udp_ports.is_empty()
                && h.service_conns.is_empty()
        };
        self.next_event().is_none() && self.hosts.iter().all(idle)
    }

    /// Lets `event` happen at `at`, if there is room for it.
    pub(crate) fn schedule(&mut self, at: Instant, event: Event) {
        if self.queue.len() < MAX_EVENTS {
            self.queue.push(at, event);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Loopback(parcel) => self.arrive(&parcel.packet, &parcel.route),
            Event::Link(id) => self.drive(id),
            Event::UdpWritable { host, key } => self.udp_drained(host, key),
            Event::UdpReply(reply) => {
                let UdpReply { host, from, to, payload } = *reply;
                self.udp_reply(host, from, to, payload);
            }
            Event::TcpAction(what) => {
                let (host, key, action) = *what;
                self.service_action(host, key, action);
            }
            Event::Agent(id) => self.agent_timer(id),
            Event::Planned(index) => self.planned(index),
        }
    }

    /// Changes an interface and tells the host.
    pub(crate) fn change_interface(&mut self, iface: IfaceId, change: impl FnOnce(&mut IfaceState)) {
        let host = self.host(iface.host);
        let Some(state) = host.iface_mut(iface.index) else { return };
        change(state);
        state.refresh();
        host.interfaces_version += 1;
        host.tell(NetEvent::PathsChanged);
        self.version += 1;
    }

    // --- routes ----------------------------------------------------------------------------------------------------

    /// Finds the way from a host to an address.
    ///
    /// `interface` binds to an interface, `source` to an address: the packet then leaves by the interface that has it, as
    /// RFC 8028 asks of hosts with several networks. Otherwise a direct link or an explicit route goes before a default
    /// route, and an interface with a lower index before one with a higher.
    pub(crate) fn lookup(
        &self,
        host: HostId,
        remote: IpAddr,
        interface: Option<u32>,
        source: Option<IpAddr>,
        temporary: Option<bool>,
    ) -> Result<Lookup, ErrorKind> {
        let h = &self.hosts[host.0];
        if !h.up {
            return Err(ErrorKind::NetworkDown);
        }
        let source = source.filter(|s| !s.is_unspecified());
        if h.has_address(remote) {
            let from = IfaceId { host, index: LOOPBACK_INDEX };
            let route = Route { from, to: Some(from), way: Way::Loopback };
            return Ok(Lookup { route, source: source.unwrap_or(remote), mtu: 65_535, iface_mtu: 65_535 });
        }
        if source.is_some_and(|s| !h.has_address(s)) {
            return Err(ErrorKind::AddrNotAvailable);
        }
        let mut fallback = None;
        let subnet = self.fabric.subnets.get(&remote).copied();
        let mut nearest = u32::MAX;
        for iface in h.interfaces.iter().filter(|i| i.public.index != LOOPBACK_INDEX) {
            let public = &iface.public;
            if interface.is_some_and(|index| index != public.index) || source.is_some_and(|s| !iface.has(s)) {
                continue;
            }
            if !public.up {
                if interface.is_some() {
                    return Err(ErrorKind::NetworkDown);
                }
                continue;
            }
            let Some(source) = source.or_else(|| iface.source_for(remote, temporary)) else { continue };
            let from = IfaceId { host, index: public.index };
            let found = |to, way| Lookup {
                route: Route { from, to, way },
                source,
                mtu: h.path_mtu(remote, public.mtu),
                iface_mtu: public.mtu,
            };
            if let Some((to, links)) = iface.routes.iter().find(|(to, _)| self.iface_has(**to, remote)) {
                return Ok(found(Some(*to), Way::Links(links.clone())));
            }
            if fallback.is_none() && iface.has_default(remote.is_ipv4()) {
                fallback = iface.access.map(|(up, _)| {
                    let (to, way) = self.internet(up, iface.nat, remote);
                    found(to, way)
                });
            }
            if let (Some(first), Some(subnet)) = (iface.wire, subnet)
                && let Some(metric) = iface.metrics.get(subnet as usize).filter(|m| **m < nearest)
            {
                nearest = *metric;
                fallback = Some(found(None, Way::Fabric { first, subnet }));
            }
        }
        fallback.ok_or(ErrorKind::NetworkUnreachable)
    }

    fn iface_has(&self, iface: IfaceId, addr: IpAddr) -> bool {
        self.hosts[iface.host.0].iface(iface.index).is_some_and(|i| i.has(addr))
    }

    /// The links from the network back to an interface, from where a packet on `route` is.
    fn way_back(&self, route: &Route) -> Way {
        let Some(iface) = self.hosts[route.from.host.0].iface(route.from.index) else { return Way::Loopback };
        match iface.access {
            Some((up, down)) if route.first() == Some(up) => Way::Links([down].into()),
            Some((_, down))
                if self.hosts[route.from.host.0].iface(route.from.index).is_some_and(|i| i.routes.is_empty()) =>
            {
                Way::Links([down].into())
            }
            _ => {
                let peer = route.to.and_then(|to| self.hosts[to.host.0].iface(to.index));
                peer.and_then(|p| p.routes.get(&route.from)).map_or(Way::Loopback, |links| Way::Links(links.clone()))
            }
        }
    }

    // --- packets -----------------------------------------------------------------------------------------------------

    /// Sends a packet of a host on its way.
    pub(crate) fn send_packet(&mut self, packet: Packet, route: Route) {
        self.send_parcel(packet, route, false);
    }

    /// The same for a datagram that may have no checksum.
    pub(crate) fn send_parcel(&mut self, packet: Packet, route: Route, unchecked: bool) {
        let (entered, first) = (self.now, route.first());
        let hop_limit = HOP_LIMIT;
        let parcel = Parcel { packet, route, done: 0, hop_limit, entered, cut: None, corrupt: None, unchecked };
        let parcel = Box::new(parcel);
        match first {
            Some(link) => self.enter_link(link, parcel),
            None => {
                let at = self.now + LOOPBACK_DELAY;
                self.schedule(at, Event::Loopback(parcel));
            }
        }
    }

    /// Offers a packet to a link.
    pub(crate) fn enter_link(&mut self, id: LinkId, mut parcel: Box<Parcel>) {
        let now = self.now;
        let meta = parcel.packet.meta();
        parcel.entered = now;
        if self.links[id.0].strips_multipath
            && let Body::Tcp(segment) = &mut parcel.packet.body
        {
            segment.multipath = None;
        }
        self.tap(id, now, Flow::Out, &parcel.packet, parcel.hop_limit);
        let hop = &mut self.links[id.0];
        let mtu = hop.link.config().mtu;
        if let Some(len) = parcel.packet.whole(mtu) {
            hop.link.offer(now, parcel, len, &meta);
        } else {
            let (pieces, headers) = (parcel.packet.pieces(mtu), parcel.packet.piece_headers());
            let mut piece = Piece { cut: self.next_cut, at: 0 };
            self.cuts.insert(piece.cut, Cut { outstanding: pieces.len(), lost: false, damaged: Vec::new() });
            self.next_cut += 1;
            for len in pieces {
                parcel.cut = Some(piece);
                hop.link.offer(now, parcel.clone(), len, &meta);
                piece.at += len - headers;
            }
        }
        self.watch(id);
        self.link_changed(id);
    }

    pub(crate) fn strip_multipath(&mut self, id: LinkId, on: bool) {
        self.links[id.0].strips_multipath = on;
    }

    /// Makes sure that the world looks at a link in time.
    fn watch(&mut self, id: LinkId) {
        let hop = &mut self.links[id.0];
        let Some(at) = hop.link.next_timeout() else { return };
        let at = at.max(self.now);
        if hop.scheduled.is_none_or(|known| at < known) {
            hop.scheduled = Some(at);
            self.schedule(at, Event::Link(id));
        }
    }

    /// Takes out of a link what has happened there. Times that are not the scheduled ones find nothing.
    fn drive(&mut self, id: LinkId) {
        let now = self.now;
        let hop = &mut self.links[id.0];
        if hop.scheduled.is_some_and(|at| at <= now) {
            hop.scheduled = None;
        }
        while let Some(output) = self.links[id.0].link.poll(now) {
            match output {
                Output::Deliver { mut packet, at, ce, corrupt, copy, .. } => {
                    // The pieces of a packet are counted, and a piece more would be one too many.
                    if copy && packet.cut.is_some() {
                        continue;
                    }
                    if let Some(corruption) = corrupt {
                        if let Some(piece) = packet.cut {
                            // A piece with a wrong bit spoils its packet, unless no checksum covers it.
                            if !self.damage_piece(&packet.packet, piece, corruption) {
                                self.lost(id, *packet, DropReason::Lost, at);
                                continue;
                            }
                        } else if !damage(&mut packet.packet, corruption.bit) {
                            packet.corrupt = packet.corrupt.or(corrupt);
                        }
                    }
                    if ce {
                        packet.packet.mark_ce();
                    }
                    self.crossed(id, packet, at);
                }
                Output::Drop { packet, reason, at, .. } => self.lost(id, *packet, reason, at),
            }
        }
        self.watch(id);
        self.link_changed(id);
    }

    /// A piece of a packet has a wrong bit. False: the packet is lost.
    fn damage_piece(&mut self, packet: &Packet, piece: Piece, corruption: Corruption) -> bool {
        let fragment_header = packet.piece_headers() - ip_header(&packet.source.ip());
        let Some(bit) = corruption.bit.checked_sub(fragment_header * 8) else { return false };
        let bit = bit + piece.at * 8;
        let uncovered = is_uncovered(packet, bit);
        if let Some(cut) = self.cuts.get_mut(&piece.cut).filter(|_| uncovered) {
            cut.damaged.push(bit);
        }
        uncovered
    }

    /// Counts the pieces of a packet. `None`: this is not the last one, or one was lost.
    fn whole(&mut self, cut: u64, lost: bool) -> Option<Cut> {
        let state = self.cuts.get_mut(&cut)?;
        state.outstanding -= 1;
        state.lost |= lost;
        if state.outstanding > 0 {
            return None;
        }
        self.cuts.remove(&cut).filter(|state| !state.lost)
    }

    /// A packet has come to the end of a link.
    fn crossed(&mut self, id: LinkId, mut parcel: Box<Parcel>, at: Instant) {
        if let Some(piece) = parcel.cut.take() {
            let Some(cut) = self.whole(piece.cut, false) else { return };
            for bit in cut.damaged {
                damage(&mut parcel.packet, bit);
            }
        }
        self.recorder.packet(at, Some(id), &parcel.packet, TraceVerdict::Crossed { entered: parcel.entered });
        self.tap(id, at, Flow::In, &parcel.packet, parcel.hop_limit);
        parcel.done += 1;
        match &parcel.route.way {
            Way::Fabric { subnet, .. } => {
                let subnet = *subnet;
                self.wire_end(id, parcel, subnet);
            }
            Way::Links(links) | Way::Nat { links, .. } if parcel.done < links.len() => {
                let next = links[parcel.done];
                self.enter_link(next, parcel);
            }
            Way::Nat { nat, inside, .. } => {
                let (nat, inside) = (*nat, *inside);
                self.at_nat(parcel, nat, inside);
            }
            _ => self.take_in(parcel),
        }
    }

    /// Lets a packet begin the route that it has got on its way.
    pub(crate) fn go_on(&mut self, mut parcel: Box<Parcel>) {
        parcel.done = 0;
        match parcel.route.first() {
            Some(link) => self.enter_link(link, parcel),
            None => self.take_in(parcel),
        }
    }

    /// A packet has crossed its last link, perhaps with a wrong bit.
    pub(crate) fn take_in(&mut self, parcel: Box<Parcel>) {
        let Some(corruption) = parcel.corrupt else { return self.arrive(&parcel.packet, &parcel.route) };
        match received(parcel.packet.clone(), corruption, parcel.unchecked) {
            Some(seen) => self.arrive(&seen, &parcel.route),
            None => self.recorder.packet(self.now, None, &parcel.packet, TraceVerdict::Corrupt),
        }
    }

    /// A link has dropped a packet.
    fn lost(&mut self, id: LinkId, parcel: Parcel, reason: DropReason, at: Instant) {
        let Parcel { packet, route, cut, .. } = parcel;
        if let Some(Piece { cut, .. }) = cut {
            let first = self.cuts.get(&cut).is_some_and(|c| !c.lost);
            self.whole(cut, true);
            if !first {
                return;
            }
        }
        self.recorder.packet(at, Some(id), &packet, TraceVerdict::Dropped(reason));
        let kind = match reason {
            DropReason::Rejected => IcmpKind::Prohibited,
            DropReason::TooBig { mtu } => IcmpKind::TooBig { mtu },
            _ => return,
        };
        match route.way {
            Way::Fabric { .. } => self.icmp_at_wire(id, &packet, kind),
            _ => self.router_icmp(&packet, kind, &route),
        }
    }

    // --- links -----------------------------------------------------------------------------------------------------

    /// Adds a link whose schedules begin now.
    pub(crate) fn add_link(&mut self, config: LinkConfig) -> LinkId {
        let seed = self.rng.u64();
        self.add_link_of(config, seed)
    }

    /// The same with random choices that follow from a seed of its own.
    pub(crate) fn add_link_of(&mut self, config: LinkConfig, seed: u64) -> LinkId {
        let link = Link::starting_at(self.now, config, seed);
        self.links.push(Hop { link, scheduled: None, strips_multipath: false });
        LinkId(self.links.len() - 1)
    }

    pub(crate) fn set_link(&mut self, id: LinkId, config: LinkConfig) {
        let now = self.now;
        self.links[id.0].link.set_config(now, config);
        self.watch(id);
    }

    pub(crate) fn link_mut(&mut self, id: LinkId) -> &mut Link<Box<Parcel>> {
        &mut self.links[id.0].link
    }

    pub(crate) fn links_mut(&mut self) -> impl Iterator<Item = &mut Link<Box<Parcel>>> {
        self.links.iter_mut().map(|hop| &mut hop.link)
    }

    pub(crate) fn link(&self, id: LinkId) -> &Link<Box<Parcel>> {
        &self.links[id.0].link
    }

    /// A router on `route` tells the sender of a packet what is wrong.
    fn router_icmp(&mut self, packet: &Packet, kind: IcmpKind, route: &Route) {
        let packet = &self.before_translation(packet, route.to, route.from);
        let Some(quoted) = packet.quote() else { return };
        let v4 = packet.source.is_ipv4();
        let router: IpAddr = if v4 { ROUTER_V4.into() } else { ROUTER_V6.into() };
        let icmp = Packet {
            source: SocketAddr::new(router, 0),
            destination: SocketAddr::new(packet.source.ip(), 0),
            ecn: Ecn::NotEct,
            pieces: None,
            body: Body::Icmp(Icmp { kind, quoted }),
        };
        let back = match self.nat_with(packet.source.ip()) {
            Some(nat) => {
                let links = [self.nats[nat.0].access.1].into();
                Route { from: route.from, to: None, way: Way::Nat { links, nat, inside: false } }
            }
            None => Route { from: route.from, to: Some(route.from), way: self.way_back(route) },
        };
        self.send_packet(icmp, back);
    }

    /// The host that a packet was sent to tells its sender what is wrong.
    pub(crate) fn host_icmp(&mut self, host: HostId, packet: &Packet, kind: IcmpKind) {
        let Some(quoted) = packet.quote() else { return };
        let (to, own) = (packet.source.ip(), packet.destination.ip());
        let Ok(found) = self.lookup(host, to, None, Some(own), None) else { return };
        let icmp = Packet {
            source: SocketAddr::new(own, 0),
            destination: SocketAddr::new(to, 0),
            ecn: Ecn::NotEct,
            pieces: None,
            body: Body::Icmp(Icmp { kind, quoted }),
        };
        self.send_packet(icmp, found.route);
    }

    /// A packet has crossed its last link.
    pub(crate) fn arrive(&mut self, packet: &Packet, route: &Route) {
        let destination = packet.destination.ip();
        let Some(to) = route.to else {
            self.recorder.packet(self.now, None, packet, TraceVerdict::Unreachable);
            if self.unroutable == Unroutable::Unreachable {
                self.router_icmp(packet, IcmpKind::HostUnreachable, route);
            }
            return;
        };
        let host = &self.hosts[to.host.0];
        let there = host.up && host.iface(to.index).is_some_and(|i| i.public.up) && host.has_address(destination);
        if !there {
            self.recorder.packet(self.now, None, packet, TraceVerdict::Unreachable);
            return;
        }
        self.recorder.packet(self.now, None, packet, TraceVerdict::Delivered);
        match &packet.body {
            Body::Udp(payload) | Body::UdpLite { payload, .. } => self.udp_input(to, packet, payload),
            Body::Tcp(segment) => self.tcp_input(to.host, packet, segment),
            Body::Icmp(icmp) => {
                let (icmp, offender) = (*icmp, packet.source.ip());
                self.icmp_input(to.host, icmp, offender);
            }
        }
    }

    pub(crate) fn icmp_input(&mut self, host: HostId, icmp: Icmp, offender: IpAddr) {
        if let IcmpKind::TooBig { mtu } = icmp.kind {
            self.host(host).learn_path_mtu(icmp.quoted.destination.ip(), mtu);
            self.version += 1;
        }
        match icmp.quoted.protocol {
            Protocol::Udp | Protocol::UDP_LITE => self.udp_icmp(host, icmp, offender),
            Protocol::Tcp => self.tcp_icmp(host, icmp, offender),
            _ => {}
        }
    }
}
