//! Routers that are NAT boxes: the way of a packet through one, as bytes.
//!
//! *Responsible for* which packets a box translates, what is done to them, and fragments. *Not for* what the box remembers
//! and whom it lets in: `neater_link::Nat` is the same machine here and in the simulator.
//!
//! Boxes translate IPv4, as most do; IPv6 is forwarded as it is.

use super::super::packet::rewrite::{self, Part, Seen};
use super::super::pool::{Packet, Pool};
use super::{Fabric, NatPlan};
use neater_base::Instant;
use neater_link::{Nat, NatCounters, NatPacket, Translation};
use neater_scenario::NatChange;
use serde::Serialize;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

/// First fragments whose followers a box knows; a later one pushes the oldest out.
const FRAGMENTED_MAX: usize = 64;

/// A fragmented packet on its way through a box: addresses, identification and protocol, and what became of one end.
#[derive(Debug)]
struct Fragmented {
    key: ([u8; 8], [u8; 2], u8),
    part: Part,
    address: Ipv4Addr,
}

/// A box and where it is plugged in.
#[derive(Debug)]
pub(super) struct NatBox {
    nat: Nat,
    /// The direction of the outside wire that leads away from it.
    out: usize,
    fragments: VecDeque<Fragmented>,
}

impl NatBox {
    pub(super) fn new(plan: &NatPlan, out: usize, seed: u64) -> Self {
        let fragments = VecDeque::with_capacity(FRAGMENTED_MAX + 1);
        Self { nat: Nat::new(plan.config.clone(), seed), out, fragments }
    }

    pub(super) fn is_external(&self, address: IpAddr) -> bool {
        self.nat.config().external(true) == Some(address)
    }
}

/// What became of a packet at a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passage {
    /// It is none of the box's business.
    Unconcerned,
    /// It has other addresses now.
    Translated,
    /// It goes no further.
    Dropped,
    /// There was no buffer to change it in.
    NoBuffer,
}

/// What one box did.
#[derive(Clone, Debug, Serialize)]
pub struct NatReport {
    /// The router that it is.
    pub router: String,
    /// Its outside address.
    pub external: Option<Ipv4Addr>,
    /// Mappings at this time.
    pub mappings: usize,
    /// Mappings made so far.
    pub mapped: u64,
    /// Packets that went out.
    pub out: u64,
    /// Packets that came in.
    pub inward: u64,
    /// Packets from inside that were dropped.
    pub dropped_out: u64,
    /// Packets from outside that were dropped.
    pub dropped_in: u64,
}

impl Fabric {
    /// Leads a packet through the box that a router is; `outside`: it came in from there.
    pub(super) fn through_nat(&mut self, now: Instant, r: usize, packet: &mut Packet, outside: bool) -> Passage {
        let Some(router) = self.routers.get_mut(r) else { return Passage::Unconcerned };
        let Some(nat) = &mut router.nat else { return Passage::Unconcerned };
        let (Some(seen), Some((_, to))) = (rewrite::seen(packet.bytes()), super::packet::addresses(packet.bytes()))
        else {
            // IPv6 has no box in its way; IPv4 without a whole transport header does not get through one.
            let v4 = packet.bytes().first().is_some_and(|v| v >> 4 == 4);
            return if v4 { Passage::Dropped } else { Passage::Unconcerned };
        };
        let leaves = router.routes.get(&to).is_some_and(|ways| ways.contains(&nat.out));
        let external = nat.is_external(to);
        if !outside && !leaves && !external {
            return Passage::Unconcerned;
        }
        if outside && !external {
            return Passage::Dropped;
        }
        match seen {
            Seen::Flow(flow) => flow_through(now, nat, &mut self.pool, packet, &flow, outside),
            Seen::Error(about) => error_through(now, nat, &mut self.pool, packet, &about, outside),
            Seen::Fragment => {
                let key = fragment_key(packet.bytes());
                let Some(known) = nat.fragments.iter().find(|f| Some(f.key) == key) else { return Passage::Dropped };
                let (part, to) = (known.part, SocketAddrV4::new(known.address, 0));
                changed(self.pool.change(packet, |bytes| rewrite::set_endpoint(bytes, part, to)))
            }
        }
    }

    /// An error that a box sends itself may be about a packet that it has translated before: it is told in the words of who
    /// is told. Returns whether there is somebody to be told.
    pub(super) fn translate_own(&mut self, now: Instant, r: usize, packet: &mut Packet) -> bool {
        let Some(router) = self.routers.get_mut(r) else { return true };
        let Some(nat) = &mut router.nat else { return true };
        let Some(Seen::Error(about)) = rewrite::seen(packet.bytes()) else { return true };
        let Some((_, to)) = super::packet::addresses(packet.bytes()) else { return true };
        if nat.is_external(to) {
            return error_through(now, nat, &mut self.pool, packet, &about, true) == Passage::Translated;
        }
        if router.routes.get(&to).is_some_and(|ways| ways.contains(&nat.out)) {
            // About a packet that it has not translated, there is nothing to be done.
            error_through(now, nat, &mut self.pool, packet, &about, false);
        }
        true
    }

    /// Something happens to the box that a node of the plan is.
    pub(super) fn change_nat(&mut self, now: Instant, node: usize, what: NatChange) {
        let found = self.routers.iter_mut().find(|router| router.node == node);
        let Some(nat) = found.and_then(|router| router.nat.as_mut()) else { return };
        match what {
            NatChange::Rebind => nat.nat.rebind(now),
            NatChange::Restart => nat.nat.forget(),
            NatChange::Move(to) => {
                nat.nat.rebind(now);
                nat.nat.set_external(to.into());
            }
        }
    }

    /// What the boxes have done.
    pub fn nat_reports(&mut self, now: Instant) -> Vec<NatReport> {
        let report = |router: &mut super::Router| {
            let nat = &mut router.nat.as_mut()?.nat;
            let NatCounters { out, inward, dropped_out, dropped_in, mapped } = nat.counters();
            let external = nat.config().external_v4;
            let mappings = nat.mappings(now);
            let router = router.name.clone();
            Some(NatReport { router, external, mappings, mapped, out, inward, dropped_out, dropped_in })
        };
        self.routers.iter_mut().filter_map(report).collect()
    }
}

fn changed(done: Option<()>) -> Passage {
    if done.is_some() { Passage::Translated } else { Passage::NoBuffer }
}

fn v4(address: SocketAddr) -> Option<SocketAddrV4> {
    match address {
        SocketAddr::V4(a) => Some(a),
        SocketAddr::V6(_) => None,
    }
}

fn flow_through(
    now: Instant,
    nat: &mut NatBox,
    pool: &mut Pool,
    packet: &mut Packet,
    flow: &NatPacket,
    outside: bool,
) -> Passage {
    let translation = if outside { nat.nat.inbound(now, flow) } else { nat.nat.outbound(now, flow) };
    let (Translation::Pass { source, destination } | Translation::Hairpin { source, destination }) = translation else {
        return Passage::Dropped;
    };
    let (Some(source), Some(destination)) = (v4(source), v4(destination)) else { return Passage::Dropped };
    let more = super::packet::be16(packet.bytes(), 6).is_some_and(|w| w & 0x2000 != 0);
    if more && let Some(key) = fragment_key(packet.bytes()) {
        let (part, address) =
            if outside { (Part::Destination, *destination.ip()) } else { (Part::Source, *source.ip()) };
        nat.fragments.push_back(Fragmented { key, part, address });
        if nat.fragments.len() > FRAGMENTED_MAX {
            nat.fragments.pop_front();
        }
    }
    changed(pool.change(packet, |bytes| {
        if Some(source) != v4(flow.source) {
            rewrite::set_endpoint(bytes, Part::Source, source);
        }
        if Some(destination) != v4(flow.destination) {
            rewrite::set_endpoint(bytes, Part::Destination, destination);
        }
    }))
}

fn error_through(
    now: Instant,
    nat: &mut NatBox,
    pool: &mut Pool,
    packet: &mut Packet,
    about: &NatPacket,
    outside: bool,
) -> Passage {
    let found = if outside { nat.nat.inbound_error(now, about) } else { nat.nat.outbound_error(now, about) };
    let Some(to) = found.and_then(v4) else { return Passage::Dropped };
    changed(pool.change(packet, |bytes| rewrite::set_error(bytes, outside, to)))
}

fn fragment_key(packet: &[u8]) -> Option<([u8; 8], [u8; 2], u8)> {
    let addresses = packet.get(12..20)?.try_into().ok()?;
    Some((addresses, packet.get(4..6)?.try_into().ok()?, *packet.get(9)?))
}
