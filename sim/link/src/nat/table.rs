//! The table of mappings.

use super::config::{Dependence, MAX_MAPPINGS, MAX_PEERS, NatConfig, PortAllocation};
use super::session::{Session, TcpFlags, Way};
use super::{NatDrop, NatPacket};
use crate::config::Protocol;
use neater_base::{Instant, Key, Rng, Slab};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// One inside endpoint and one outside port.
#[derive(Debug)]
struct Mapping {
    protocol: Protocol,
    inside: SocketAddr,
    scope: Scope,
    port: u16,
    peers: BTreeMap<SocketAddr, Session>,
    /// Forwarded: it never goes and lets everybody in.
    permanent: bool,
}

impl Mapping {
    /// When the last of its sessions is forgotten.
    fn ends(&self, config: &NatConfig) -> Instant {
        if self.permanent {
            return Instant::FAR_FUTURE;
        }
        self.peers.values().map(|s| s.ends(config, self.protocol)).max().unwrap_or(Instant::ZERO)
    }
}

/// What of a peer a mapping depends on.
type Scope = (Option<IpAddr>, u16);

fn scope(dependence: Dependence, peer: SocketAddr) -> Scope {
    match dependence {
        Dependence::EndpointIndependent => (None, 0),
        Dependence::AddressDependent => (Some(peer.ip()), 0),
        Dependence::AddressAndPortDependent => (Some(peer.ip()), peer.port()),
    }
}

/// All mappings, by both ends.
#[derive(Debug)]
pub(super) struct Table {
    mappings: Slab<Mapping>,
    inside: BTreeMap<(Protocol, SocketAddr, Scope), Key>,
    /// By protocol, family (IPv4 or not) and port.
    outside: BTreeMap<(Protocol, bool, u16), Key>,
    rng: Rng,
    last_port: u16,
    /// Nothing ends before.
    next_end: Instant,
}

impl Table {
    pub(super) fn new(config: &NatConfig, rng: Rng) -> Self {
        Self {
            mappings: Slab::new(),
            inside: BTreeMap::new(),
            outside: BTreeMap::new(),
            rng,
            last_port: *config.port_range.end(),
            next_end: Instant::FAR_FUTURE,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.mappings.len()
    }

    fn remove(&mut self, key: Key) {
        if let Some(m) = self.mappings.remove(key) {
            self.inside.remove(&(m.protocol, m.inside, m.scope));
            self.outside.remove(&(m.protocol, m.inside.is_ipv4(), m.port));
        }
    }

    /// Forgets what has ended. Looks only if something may have.
    pub(super) fn sweep(&mut self, now: Instant, config: &NatConfig) {
        if now < self.next_end {
            return;
        }
        let mut ended = Vec::new();
        let mut next = Instant::FAR_FUTURE;
        for (key, mapping) in self.mappings.iter() {
            let end = mapping.ends(config);
            if end <= now { ended.push(key) } else { next = next.min(end) }
        }
        for key in ended {
            self.remove(key);
        }
        self.next_end = next;
    }

    /// A mapping that is not past its end.
    fn live(&mut self, now: Instant, config: &NatConfig, key: Option<Key>, peer: Option<SocketAddr>) -> Option<Key> {
        let key = key?;
        let mapping = self.mappings.get(key)?;
        // The session at hand is enough; only without it all have to be asked.
        let session = peer.and_then(|peer| mapping.peers.get(&peer));
        if session.is_none_or(|s| s.ends(config, mapping.protocol) <= now) && mapping.ends(config) <= now {
            self.remove(key);
            return None;
        }
        Some(key)
    }

    /// The outside port for a packet from inside; makes a mapping if there is none.
    pub(super) fn outward(&mut self, now: Instant, config: &NatConfig, packet: &NatPacket) -> Result<u16, NatDrop> {
        let NatPacket { protocol, source, destination, tcp } = *packet;
        let found = self.find(now, config, protocol, source, destination);
        let key = match found {
            Some(key) => key,
            None => {
                let midst = protocol == Protocol::Tcp && !tcp.syn && !config.adopts_connections;
                if midst || tcp.rst {
                    return Err(NatDrop::NoMapping);
                }
                self.create(now, config, protocol, source, scope(config.mapping, destination))?
            }
        };
        self.note(now, config, key, destination, Way::Out, tcp);
        self.mappings.get(key).map(|m| m.port).ok_or(NatDrop::NoMapping)
    }

    /// The mapping for packets of an inside endpoint to a peer: its own, or a forwarded one.
    fn find(
        &mut self,
        now: Instant,
        config: &NatConfig,
        protocol: Protocol,
        inside: SocketAddr,
        peer: SocketAddr,
    ) -> Option<Key> {
        let own = self.inside.get(&(protocol, inside, scope(config.mapping, peer))).copied();
        let own = self.live(now, config, own, Some(peer));
        own.or_else(|| self.inside.get(&(protocol, inside, FORWARDED)).copied())
    }

    /// The inside endpoint for a packet from outside, if it is let in.
    pub(super) fn inward(
        &mut self,
        now: Instant,
        config: &NatConfig,
        packet: &NatPacket,
    ) -> Result<SocketAddr, NatDrop> {
        let NatPacket { protocol, source, destination, tcp } = *packet;
        let known = self.outside.get(&(protocol, destination.is_ipv4(), destination.port())).copied();
        let key = self.live(now, config, known, Some(source)).ok_or(NatDrop::NoMapping)?;
        let mapping = self.mappings.get(key).ok_or(NatDrop::NoMapping)?;
        let invited =
            |peer: &SocketAddr| mapping.peers.get(peer).is_some_and(|s| s.invited && s.ends(config, protocol) > now);
        let filtering = if mapping.permanent { Dependence::EndpointIndependent } else { config.filtering };
        let welcome = match filtering {
            Dependence::EndpointIndependent => true,
            Dependence::AddressAndPortDependent => invited(&source),
            Dependence::AddressDependent => {
                let of_address = SocketAddr::new(source.ip(), 0)..=SocketAddr::new(source.ip(), u16::MAX);
                mapping.peers.range(of_address).any(|(peer, _)| peer.ip() == source.ip() && invited(peer))
            }
        };
        if !welcome {
            return Err(NatDrop::Filtered);
        }
        let inside = mapping.inside;
        self.note(now, config, key, source, Way::In, tcp);
        Ok(inside)
    }

    /// Takes note of a packet that passes between a mapping and a peer.
    fn note(&mut self, now: Instant, config: &NatConfig, key: Key, peer: SocketAddr, way: Way, tcp: TcpFlags) {
        let Some(mapping) = self.mappings.get_mut(key) else { return };
        let protocol = mapping.protocol;
        if mapping.peers.len() >= MAX_PEERS && !mapping.peers.contains_key(&peer) {
            let oldest = mapping.peers.iter().min_by_key(|(_, s)| s.ends(config, protocol)).map(|(p, _)| *p);
            oldest.map(|p| mapping.peers.remove(&p));
        }
        let session = mapping.peers.entry(peer).or_insert_with(|| Session::new(now));
        // One that has ended begins anew.
        if session.ends(config, protocol) <= now {
            *session = Session::new(now);
        }
        session.pass(now, config, protocol, way, tcp);
        self.next_end = self.next_end.min(session.ends(config, protocol));
    }

    fn create(
        &mut self,
        now: Instant,
        config: &NatConfig,
        protocol: Protocol,
        inside: SocketAddr,
        scope: Scope,
    ) -> Result<Key, NatDrop> {
        let most = config.max_mappings.min(MAX_MAPPINGS);
        if self.mappings.len() >= most {
            self.sweep(now, config);
        }
        if self.mappings.len() >= most {
            return Err(NatDrop::TableFull);
        }
        let port = match self.choose_port(config, protocol, inside, None) {
            Some(port) => port,
            None => {
                self.sweep(now, config);
                self.choose_port(config, protocol, inside, None).ok_or(NatDrop::NoPort)?
            }
        };
        let peers = BTreeMap::new();
        Ok(self.insert(Mapping { protocol, inside, scope, port, peers, permanent: false }))
    }

    fn insert(&mut self, mapping: Mapping) -> Key {
        let (protocol, inside, scope, port) = (mapping.protocol, mapping.inside, mapping.scope, mapping.port);
        let key = self.mappings.insert(mapping);
        self.inside.insert((protocol, inside, scope), key);
        self.outside.insert((protocol, inside.is_ipv4(), port), key);
        key
    }

    /// A free outside port, other than `not`.
    fn choose_port(
        &mut self,
        config: &NatConfig,
        protocol: Protocol,
        inside: SocketAddr,
        not: Option<u16>,
    ) -> Option<u16> {
        if matches!(protocol, Protocol::Other(_)) {
            // Nothing but the address tells who is meant: one inside endpoint at a time.
            return (not.is_none() && !self.outside.contains_key(&(protocol, inside.is_ipv4(), 0))).then_some(0);
        }
        let (low, high) = (u32::from(*config.port_range.start()), u32::from(*config.port_range.end()));
        let count = (high + 1).checked_sub(low).filter(|n| *n > 0)?;
        let wanted = match config.ports {
            PortAllocation::Preserving => u32::from(inside.port()),
            PortAllocation::Contiguous => u32::from(self.last_port) + 1,
            PortAllocation::Random => low + self.rng.below(u64::from(count)) as u32,
        };
        let first = if (low..=high).contains(&wanted) { wanted - low } else { 0 };
        let v4 = inside.is_ipv4();
        let free = |port: &u16| not != Some(*port) && !self.outside.contains_key(&(protocol, v4, *port));
        let port = (0..count).map(|i| (low + (first + i) % count) as u16).find(free)?;
        self.last_port = port;
        Some(port)
    }

    /// The inside endpoint of an outside port.
    pub(super) fn inside_of(
        &mut self,
        now: Instant,
        config: &NatConfig,
        protocol: Protocol,
        outside: SocketAddr,
    ) -> Option<SocketAddr> {
        let known = self.outside.get(&(protocol, outside.is_ipv4(), outside.port())).copied();
        let key = self.live(now, config, known, None)?;
        self.mappings.get(key).map(|m| m.inside)
    }

    /// The outside port of an inside endpoint towards a peer.
    pub(super) fn outside_of(
        &mut self,
        now: Instant,
        config: &NatConfig,
        protocol: Protocol,
        inside: SocketAddr,
        peer: SocketAddr,
    ) -> Option<u16> {
        let key = self.find(now, config, protocol, inside, peer)?;
        self.mappings.get(key).map(|m| m.port)
    }

    pub(super) fn forward(&mut self, protocol: Protocol, port: u16, inside: SocketAddr) {
        let old =
            [self.outside.get(&(protocol, inside.is_ipv4(), port)), self.inside.get(&(protocol, inside, FORWARDED))];
        for key in old.map(Option::<&Key>::copied).into_iter().flatten() {
            self.remove(key);
        }
        let peers = BTreeMap::new();
        self.insert(Mapping { protocol, inside, scope: FORWARDED, port, peers, permanent: true });
    }

    pub(super) fn forget(&mut self) {
        let passing: Vec<Key> = self.mappings.iter().filter(|(_, m)| !m.permanent).map(|(k, _)| k).collect();
        for key in passing {
            self.remove(key);
        }
    }

    pub(super) fn rebind(&mut self, now: Instant, config: &NatConfig) {
        self.sweep(now, config);
        // In the order of the inside endpoints, so that the outcome does not depend on the history of the table.
        let keys: Vec<Key> = self.inside.values().copied().collect();
        for key in keys {
            let Some(m) = self.mappings.get(key).filter(|m| !m.permanent) else { continue };
            let (protocol, inside, old) = (m.protocol, m.inside, m.port);
            // With no other port free it keeps the one that it has.
            let Some(port) = self.choose_port(config, protocol, inside, Some(old)) else { continue };
            self.outside.remove(&(protocol, inside.is_ipv4(), old));
            self.outside.insert((protocol, inside.is_ipv4(), port), key);
            if let Some(m) = self.mappings.get_mut(key) {
                m.port = port;
            }
        }
    }
}

/// The scope of a forwarded port, which no peer makes: an address of its own is never a peer.
const FORWARDED: Scope = (None, 1);
