//! A NAT box: another address and port outside than inside (RFC 4787 for UDP, RFC 5382 for TCP, RFC 5508 for ICMP).
//!
//! *Responsible for* the table of mappings, its timers, who gets in, and which addresses a packet leaves with. *Not
//! responsible for* packets (the user rewrites them), for links, or for telling anybody of what was dropped.
//!
//! *Invariants*: the box is a function of its configuration, its seed and the packets; no two mappings share an outside
//! endpoint of one protocol; table and peers are bounded ([`MAX_MAPPINGS`], [`MAX_PEERS`]).
//!
//! ICMP queries can be translated too: their identifier takes the place of the inside port, and the peer has port 0. Other
//! protocols have no ports that the box knows of: the port is 0, and one inside endpoint has the outside address at a time.
//! UDP-Lite is dropped: its checksum covers the addresses (RFC 3828 section 3.1), and would be wrong with another one.

mod config;
mod session;
mod table;

pub use config::{Dependence, MAX_MAPPINGS, MAX_PEERS, NatConfig, PortAllocation};
pub use session::TcpFlags;

use crate::config::Protocol;
use neater_base::{Instant, Rng};
use std::net::{IpAddr, SocketAddr};
use table::Table;

/// What a box needs to know of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NatPacket {
    /// The transport protocol.
    pub protocol: Protocol,
    /// Where from.
    pub source: SocketAddr,
    /// Where to.
    pub destination: SocketAddr,
    /// The flags of a TCP segment.
    pub tcp: TcpFlags,
}

/// What a box does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Translation {
    /// It goes on with these addresses: out if it came from inside, in if it came from outside.
    Pass {
        /// Where from, now.
        source: SocketAddr,
        /// Where to, now.
        destination: SocketAddr,
    },
    /// It came from inside and goes back in, with these addresses.
    Hairpin {
        /// Where from, now.
        source: SocketAddr,
        /// Where to, now.
        destination: SocketAddr,
    },
    /// It is dropped.
    Drop(NatDrop),
}

/// Why a box drops a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum NatDrop {
    /// The box has no outside address of the packet's family.
    NoAddress,
    /// The packet is for an outside endpoint that nothing is mapped to, or of a TCP connection that the box does not know.
    NoMapping,
    /// The sender is not let in.
    Filtered,
    /// The box knows nothing of the protocol.
    UnknownProtocol,
    /// The table is full.
    TableFull,
    /// No outside port is free.
    NoPort,
    /// The box does not let inside endpoints reach each other by their outside endpoints.
    NoHairpin,
}

/// What a box has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NatCounters {
    /// Packets that went out, hairpinned ones included.
    pub out: u64,
    /// Packets that came in.
    pub inward: u64,
    /// Packets from inside that were dropped.
    pub dropped_out: u64,
    /// Packets from outside that were dropped.
    pub dropped_in: u64,
    /// Mappings made.
    pub mapped: u64,
}

/// A NAT box.
#[derive(Debug)]
pub struct Nat {
    config: NatConfig,
    table: Table,
    counters: NatCounters,
}

impl Nat {
    /// A box whose random choices are a function of `seed`.
    #[must_use]
    pub fn new(config: NatConfig, seed: u64) -> Self {
        Self { table: Table::new(&config, Rng::from_number(seed)), config, counters: NatCounters::default() }
    }

    /// What the box is like.
    #[must_use]
    pub fn config(&self) -> &NatConfig {
        &self.config
    }

    /// What the box has done.
    #[must_use]
    pub fn counters(&self) -> NatCounters {
        self.counters
    }

    /// How many mappings there are at `now`.
    pub fn mappings(&mut self, now: Instant) -> usize {
        self.table.sweep(now, &self.config);
        self.table.len()
    }

    /// Translates a packet from inside.
    pub fn outbound(&mut self, now: Instant, packet: &NatPacket) -> Translation {
        let result = self.try_outbound(now, packet);
        match result {
            Ok(_) => self.counters.out += 1,
            Err(_) => self.counters.dropped_out += 1,
        }
        result.unwrap_or_else(Translation::Drop)
    }

    fn try_outbound(&mut self, now: Instant, packet: &NatPacket) -> Result<Translation, NatDrop> {
        let v4 = packet.source.is_ipv4();
        let address = self.config.external(v4).ok_or(NatDrop::NoAddress)?;
        if packet.protocol == Protocol::UDP_LITE {
            return Err(NatDrop::UnknownProtocol);
        }
        let back_in = packet.destination.ip() == address;
        if back_in && !self.config.hairpinning {
            return Err(NatDrop::NoHairpin);
        }
        let before = self.table.len();
        let port = self.table.outward(now, &self.config, packet)?;
        self.counters.mapped += u64::from(self.table.len() > before);
        let source = SocketAddr::new(address, port);
        if !back_in {
            return Ok(Translation::Pass { source, destination: packet.destination });
        }
        let seen = NatPacket { source, ..*packet };
        let destination = self.table.inward(now, &self.config, &seen)?;
        Ok(Translation::Hairpin { source, destination })
    }

    /// Translates a packet from outside. Its destination is an outside address of the box.
    pub fn inbound(&mut self, now: Instant, packet: &NatPacket) -> Translation {
        let ours = self.config.external(packet.destination.is_ipv4()) == Some(packet.destination.ip());
        let found = if packet.protocol == Protocol::UDP_LITE {
            Err(NatDrop::UnknownProtocol)
        } else if ours {
            self.table.inward(now, &self.config, packet)
        } else {
            Err(NatDrop::NoMapping)
        };
        match found {
            Ok(destination) => {
                self.counters.inward += 1;
                Translation::Pass { source: packet.source, destination }
            }
            Err(why) => {
                self.counters.dropped_in += 1;
                Translation::Drop(why)
            }
        }
    }

    /// An ICMP error from outside about a packet from inside, which it quotes as it was outside. Returns the inside endpoint
    /// that it is for: the new destination of the error, and the source of what it quotes. It does not keep anything alive
    /// (RFC 5508 section 4.2).
    pub fn inbound_error(&mut self, now: Instant, quoted: &NatPacket) -> Option<SocketAddr> {
        let known =
            self.config.icmp_errors && self.config.external(quoted.source.is_ipv4()) == Some(quoted.source.ip());
        if !known {
            return None;
        }
        self.table.inside_of(now, &self.config, quoted.protocol, quoted.source)
    }

    /// An ICMP error from inside about a packet from outside, which it quotes as it was inside. Returns the outside endpoint
    /// that takes the place of the quoted destination; its address is the new source of the error.
    pub fn outbound_error(&mut self, now: Instant, quoted: &NatPacket) -> Option<SocketAddr> {
        let address = self.config.external(quoted.destination.is_ipv4()).filter(|_| self.config.icmp_errors)?;
        let port = self.table.outside_of(now, &self.config, quoted.protocol, quoted.destination, quoted.source)?;
        Some(SocketAddr::new(address, port))
    }

    /// Maps an outside port to an inside endpoint for good, and lets everybody in: port forwarding. A mapping that has the
    /// port goes.
    pub fn forward(&mut self, protocol: Protocol, port: u16, inside: SocketAddr) {
        self.table.forward(protocol, port, inside);
    }

    /// Loses power and comes back: all mappings but forwarded ports are forgotten.
    pub fn forget(&mut self) {
        self.table.forget();
    }

    /// Gives every mapping but forwarded ports another outside port, of those free at this time: what a peer knows of an
    /// inside endpoint is wrong from now on, and the inside endpoint does not notice. Who was let in still is.
    pub fn rebind(&mut self, now: Instant) {
        self.table.rebind(now, &self.config);
    }

    /// Moves the box to another outside address; mappings keep their ports.
    pub fn set_external(&mut self, external: IpAddr) {
        self.config = self.config.clone().with_external(external);
    }
}

#[cfg(test)]
mod tests;
