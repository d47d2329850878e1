//! NAT boxes between interfaces and the internet.
//!
//! *Responsible for* the way through a box: packets are rewritten by `neater_link::Nat`, quoted packets in ICMP errors too.
//! *Not responsible for* what the box remembers and whom it lets in.

use crate::packet::{Body, Packet};
use crate::sim::{Parcel, Sim, Way};
use crate::trace::TraceVerdict;
use crate::world::{IfaceId, LinkId};
use neater_link::{DropReason, Nat, NatPacket, TcpFlags, Translation};
use std::net::{IpAddr, SocketAddr};

/// Names a NAT box of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NatId(pub(crate) usize);

/// A box and what it is plugged into.
pub(crate) struct NatBox {
    pub(crate) nat: Nat,
    /// Its access links to and from the internet.
    pub(crate) access: (LinkId, LinkId),
    /// The interfaces behind it.
    pub(crate) members: Vec<IfaceId>,
}

/// What a box sees of a packet.
fn seen(packet: &Packet) -> NatPacket {
    let tcp = match &packet.body {
        Body::Tcp(s) => TcpFlags { syn: s.syn, ack: s.ack.is_some(), fin: s.fin, rst: s.rst },
        _ => TcpFlags::default(),
    };
    NatPacket { protocol: packet.protocol(), source: packet.source, destination: packet.destination, tcp }
}

impl Sim {
    /// The box that has an outside address.
    pub(crate) fn nat_with(&self, address: IpAddr) -> Option<NatId> {
        let has = |b: &NatBox| b.nat.config().external(address.is_ipv4()) == Some(address);
        self.nats.iter().position(has).map(NatId)
    }

    /// The way over the internet from an access link up, from behind a box or not, and where it ends if that is known.
    pub(crate) fn internet(&self, up: LinkId, behind: Option<NatId>, remote: IpAddr) -> (Option<IfaceId>, Way) {
        if let Some(nat) = behind {
            return match self.member(nat, remote) {
                Some((to, down)) => (Some(to), Way::Links([up, down].into())),
                None => (None, Way::Nat { links: [up].into(), nat, inside: true }),
            };
        }
        if let Some(nat) = self.nat_with(remote) {
            let links = [up, self.nats[nat.0].access.1].into();
            return (None, Way::Nat { links, nat, inside: false });
        }
        let owner = self.owners.get(&remote).copied();
        let down = owner.and_then(|to| {
            let iface = self.hosts[to.host.0].iface(to.index)?;
            iface.access.filter(|_| iface.nat.is_none())
        });
        match down {
            Some((_, down)) => (owner, Way::Links([up, down].into())),
            None => (None, Way::Links([up].into())),
        }
    }

    /// The interface behind a box that has an address, and the link to it.
    fn member(&self, nat: NatId, address: IpAddr) -> Option<(IfaceId, LinkId)> {
        self.nats[nat.0].members.iter().find_map(|&id| {
            let iface = self.hosts[id.host.0].iface(id.index)?;
            iface.access.filter(|_| iface.has(address)).map(|(_, down)| (id, down))
        })
    }

    /// A packet has come to a box.
    pub(crate) fn at_nat(&mut self, mut parcel: Box<Parcel>, id: NatId, inside: bool) {
        let Some(inward) = self.translate(&mut parcel.packet, id, inside) else {
            return self.recorder.packet(self.now, None, &parcel.packet, TraceVerdict::Dropped(DropReason::Filtered));
        };
        let destination = parcel.packet.destination.ip();
        let (to, way) = if inward {
            match self.member(id, destination) {
                Some((to, down)) => (Some(to), Way::Links([down].into())),
                None => return self.recorder.packet(self.now, None, &parcel.packet, TraceVerdict::Unreachable),
            }
        } else {
            self.internet(self.nats[id.0].access.0, None, destination)
        };
        (parcel.route.to, parcel.route.way) = (to, way);
        self.go_on(parcel);
    }

    /// Rewrites a packet. Returns whether it goes in; `None`: it is dropped.
    pub(crate) fn translate(&mut self, packet: &mut Packet, id: NatId, inside: bool) -> Option<bool> {
        let now = self.now;
        let nat = &mut self.nats[id.0].nat;
        if let Body::Icmp(icmp) = &mut packet.body {
            let quoted = &mut icmp.quoted;
            let (protocol, source, destination) = (quoted.protocol, quoted.source, quoted.destination);
            let about = NatPacket { protocol, source, destination, tcp: TcpFlags::default() };
            if inside {
                quoted.destination = nat.outbound_error(now, &about)?;
                packet.source = SocketAddr::new(quoted.destination.ip(), 0);
            } else {
                quoted.source = nat.inbound_error(now, &about)?;
                packet.destination = SocketAddr::new(quoted.source.ip(), 0);
            }
            return Some(!inside);
        }
        let about = seen(packet);
        let translation = if inside { nat.outbound(now, &about) } else { nat.inbound(now, &about) };
        let inward = matches!(translation, Translation::Hairpin { .. }) || !inside;
        match translation {
            Translation::Pass { source, destination } | Translation::Hairpin { source, destination } => {
                (packet.source, packet.destination) = (source, destination);
                Some(inward)
            }
            Translation::Drop(_) => None,
        }
    }

    /// As an outside sender sees it: a packet that was on its way to an interface behind a box.
    pub(crate) fn before_translation(&mut self, packet: &Packet, to: Option<IfaceId>, from: IfaceId) -> Packet {
        let now = self.now;
        let mut packet = packet.clone();
        let behind = |sim: &Self, id: IfaceId| sim.hosts.get(id.host.0)?.iface(id.index)?.nat;
        if let Some(id) = to.and_then(|to| behind(self, to))
            && behind(self, from) != Some(id)
        {
            let NatPacket { protocol, source, destination, .. } = seen(&packet);
            let about = NatPacket { protocol, source, destination, tcp: TcpFlags::default() };
            if let Some(outside) = self.nats[id.0].nat.outbound_error(now, &about) {
                packet.destination = outside;
            }
        }
        packet
    }
}
