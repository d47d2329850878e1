//! Routers: packets go hop by hop, each router choosing the next link by the destination's subnet.
//!
//! *Responsible for* the way between hosts of a world that was built from a scenario: forwarding, hop limits, routers'
//! firewalls, equal-cost paths, ICMP from the router where something went wrong. *Not responsible for* computing routes (that
//! is `neater_scenario::Routes`) and for worlds put together by `attach` and `connect`, whose packets carry their way with
//! them.
//!
//! *Invariants*: all packets of a 5-tuple take the same way while routes stand; a packet crosses at most [`HOP_LIMIT`]
//! links.

use crate::nat::NatId;
use crate::packet::{Body, Icmp, IcmpKind, Packet};
use crate::sim::{Parcel, Route, Sim, Way};
use crate::trace::TraceVerdict;
use crate::world::{IfaceId, LinkId};
use neater_base::net::Ecn;
use neater_link::{Action, DropReason, Filter};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// What hosts and routers write into a new packet (RFC 1700 recommended 64; Linux: ip_default_ttl).
pub(crate) const HOP_LIMIT: u8 = 64;

/// Names a router of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouterId(pub(crate) usize);

/// What is at an end of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    Iface(IfaceId),
    Router(RouterId),
}

/// A node that forwards.
#[derive(Debug)]
pub(crate) struct Router {
    pub(crate) addresses: Vec<IpAddr>,
    /// Those of them in each subnet.
    pub(crate) own: Vec<Vec<IpAddr>>,
    /// The firewall, and how many packets each rule has concerned.
    pub(crate) filters: Vec<(Filter, u64)>,
    /// The links towards each subnet; several are equally good.
    pub(crate) next: Vec<Box<[LinkId]>>,
    /// The NAT box that it is.
    pub(crate) nat: Option<RouterNat>,
    /// Makes its choice among equal links different from that of other routers.
    pub(crate) salt: u64,
}

/// A NAT box in a router.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouterNat {
    pub(crate) nat: NatId,
    /// The links to the outside and from there.
    pub(crate) outside: (LinkId, LinkId),
}

impl Router {
    /// Gives it an address.
    pub(crate) fn add_address(&mut self, subnet: u32, address: IpAddr) {
        self.addresses.push(address);
        let subnet = subnet as usize;
        if self.own.len() <= subnet {
            self.own.resize_with(subnet + 1, Vec::new);
        }
        self.own[subnet].push(address);
    }

    /// What the firewall does with a packet: as that of a link, the first rule that holds decides.
    fn refuses(&mut self, packet: &Packet) -> Option<Action> {
        if self.filters.is_empty() {
            return None;
        }
        let (meta, len) = (packet.meta(), packet.len());
        let holds = |(filter, concerned): &mut (Filter, u64)| {
            let concerns = filter.concerns(&meta, len);
            *concerned += u64::from(concerns);
            (concerns && *concerned > filter.after).then_some(filter.action)
        };
        self.filters.iter_mut().find_map(holds)
    }
}

/// Routers and wires.
#[derive(Debug, Default)]
pub(crate) struct Fabric {
    pub(crate) routers: Vec<Router>,
    /// The two ends of each link, for those that are wires.
    pub(crate) wires: Vec<Option<(Port, Port)>>,
    /// The subnet of each address of a host or router.
    pub(crate) subnets: BTreeMap<IpAddr, u32>,
}

impl Fabric {
    pub(crate) fn set_wire(&mut self, link: LinkId, from: Port, to: Port) {
        if self.wires.len() <= link.0 {
            self.wires.resize(link.0 + 1, None);
        }
        self.wires[link.0] = Some((from, to));
    }

    fn wire(&self, link: LinkId) -> Option<(Port, Port)> {
        self.wires.get(link.0).copied().flatten()
    }
}

impl Sim {
    /// A packet has come to the end of a wire.
    pub(crate) fn wire_end(&mut self, link: LinkId, mut parcel: Box<Parcel>, subnet: u32) {
        match self.fabric.wire(link) {
            Some((_, Port::Router(router))) => self.forward(router, parcel, subnet, link),
            Some((_, Port::Iface(iface))) => {
                parcel.route.to = Some(iface);
                self.take_in(parcel);
            }
            None => {}
        }
    }

    /// A router passes a packet on.
    fn forward(&mut self, id: RouterId, mut parcel: Box<Parcel>, subnet: u32, from: LinkId) {
        if let Some(action) = self.fabric.routers[id.0].refuses(&parcel.packet) {
            let reject = action == Action::Reject;
            let reason = if reject { DropReason::Rejected } else { DropReason::Filtered };
            self.recorder.packet(self.now, None, &parcel.packet, TraceVerdict::Dropped(reason));
            if reject {
                self.icmp_from_router(id, &parcel.packet, IcmpKind::Prohibited);
            }
            return;
        }
        let subnet = match self.fabric.routers[id.0].nat {
            Some(nat) => match self.through_nat(id, nat, &mut parcel, from, subnet) {
                Some(subnet) => subnet,
                None => return,
            },
            None => subnet,
        };
        let router = &self.fabric.routers[id.0];
        let own = router.own.get(subnet as usize);
        if own.is_some_and(|own| own.contains(&parcel.packet.destination.ip())) {
            // Routers run no programs: echo requests and the like are not answered.
            return self.recorder.packet(self.now, None, &parcel.packet, TraceVerdict::Delivered);
        }
        if parcel.hop_limit <= 1 {
            self.recorder.packet(self.now, None, &parcel.packet, TraceVerdict::Expired);
            return self.icmp_from_router(id, &parcel.packet, IcmpKind::TimeExceeded);
        }
        parcel.hop_limit -= 1;
        let next = router.next.get(subnet as usize).map_or(&[][..], |n| n);
        let link = match next {
            [] => {
                self.recorder.packet(self.now, None, &parcel.packet, TraceVerdict::Unreachable);
                return self.icmp_from_router(id, &parcel.packet, IcmpKind::HostUnreachable);
            }
            [one] => *one,
            many => many[neater_scenario::way(&parcel.packet.meta(), router.salt, many.len())],
        };
        self.enter_link(link, parcel);
    }

    /// A packet passes the NAT box of a router. Returns the subnet that it then goes to; `None`: it is dropped.
    fn through_nat(
        &mut self,
        id: RouterId,
        nat: RouterNat,
        parcel: &mut Parcel,
        from: LinkId,
        subnet: u32,
    ) -> Option<u32> {
        let destination = parcel.packet.destination.ip();
        // A family without an outside address is forwarded as it is.
        let external = self.nats[nat.nat.0].nat.config().external(destination.is_ipv4());
        let Some(external) = external else { return Some(subnet) };
        let inside = from != nat.outside.1;
        let next = self.fabric.routers[id.0].next.get(subnet as usize);
        let leaves = next.is_some_and(|n| n.contains(&nat.outside.0));
        if inside && !leaves && destination != external {
            return Some(subnet);
        }
        let passes =
            (inside || destination == external) && self.translate(&mut parcel.packet, nat.nat, inside).is_some();
        if !passes {
            let verdict = TraceVerdict::Dropped(DropReason::Filtered);
            self.recorder.packet(self.now, None, &parcel.packet, verdict);
            return None;
        }
        let subnet = self.fabric.subnets.get(&parcel.packet.destination.ip()).copied()?;
        if let Way::Fabric { subnet: to, .. } = &mut parcel.route.way {
            *to = subnet;
        }
        Some(subnet)
    }

    /// The router at the beginning of a wire tells the sender of a packet what is wrong; a host tells itself.
    pub(crate) fn icmp_at_wire(&mut self, link: LinkId, packet: &Packet, kind: IcmpKind) {
        match self.fabric.wire(link) {
            Some((Port::Router(router), _)) => self.icmp_from_router(router, packet, kind),
            Some((Port::Iface(iface), _)) => {
                let Some(quoted) = packet.quote() else { return };
                let own = SocketAddr::new(packet.source.ip(), 0);
                let body = Body::Icmp(Icmp { kind, quoted });
                let icmp = Packet { source: own, destination: own, ecn: Ecn::NotEct, pieces: None, body };
                self.send_packet(icmp, Route { from: iface, to: Some(iface), way: Way::Loopback });
            }
            None => {}
        }
    }

    fn icmp_from_router(&mut self, id: RouterId, packet: &Packet, kind: IcmpKind) {
        let Some(quoted) = packet.quote() else { return };
        let destination = packet.source.ip();
        let router = &self.fabric.routers[id.0];
        let Some(own) = router.addresses.iter().find(|a| a.is_ipv4() == destination.is_ipv4()) else { return };
        let mut icmp = Packet {
            source: SocketAddr::new(*own, 0),
            destination: SocketAddr::new(destination, 0),
            ecn: Ecn::NotEct,
            pieces: None,
            body: Body::Icmp(Icmp { kind, quoted }),
        };
        if let Some(nat) = self.fabric.routers[id.0].nat
            && !self.translate_own(id, nat, &mut icmp)
        {
            return;
        }
        let router = &self.fabric.routers[id.0];
        let Some(&subnet) = self.fabric.subnets.get(&icmp.destination.ip()) else { return };
        let Some(next) = router.next.get(subnet as usize).filter(|n| !n.is_empty()) else { return };
        let link = next[neater_scenario::way(&icmp.meta(), router.salt, next.len())];
        // An ICMP error has no interface of a host that it left by; nothing looks for one, because errors cause none.
        let nowhere = IfaceId { host: crate::world::HostId(usize::MAX), index: 0 };
        let route = Route { from: nowhere, to: None, way: Way::Fabric { first: link, subnet } };
        self.send_packet(icmp, route);
    }

    /// An error that a NAT box sends itself may be about a packet that it has translated before: it is told in the words of
    /// who is told. Returns whether there is somebody to be told.
    fn translate_own(&mut self, id: RouterId, nat: RouterNat, icmp: &mut Packet) -> bool {
        let destination = icmp.destination.ip();
        if self.nats[nat.nat.0].nat.config().external(destination.is_ipv4()) == Some(destination) {
            return self.translate(icmp, nat.nat, false).is_some();
        }
        let subnet = self.fabric.subnets.get(&destination).copied();
        let next = subnet.and_then(|s| self.fabric.routers[id.0].next.get(s as usize));
        if next.is_some_and(|n| n.contains(&nat.outside.0)) {
            // About a packet that it has not translated, there is nothing to be done.
            self.translate(icmp, nat.nat, true);
        }
        true
    }
}
