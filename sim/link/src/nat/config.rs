//! What a NAT box is like, in the terms of RFC 4787.

use core::ops::RangeInclusive;
use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What makes two packets of one inside endpoint share something: RFC 4787 section 4.1 for mappings, section 5 for filters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dependence {
    /// Nothing: whoever they go to.
    #[default]
    EndpointIndependent,
    /// The same address, whatever the port.
    AddressDependent,
    /// The same address and port.
    AddressAndPortDependent,
}

/// Which outside port a new mapping gets (RFC 4787 section 4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PortAllocation {
    /// The port that the inside endpoint has, if it is free and in the range; else the next free one.
    #[default]
    Preserving,
    /// The one after the last that was given.
    Contiguous,
    /// Any.
    Random,
}

/// The largest table that a box may have.
pub const MAX_MAPPINGS: usize = 1 << 18;
/// The most peers that one mapping remembers; the one that was silent longest is forgotten.
pub const MAX_PEERS: usize = 4096;

/// What a NAT box is like. The default is a box as RFC 4787 and RFC 5382 want it, with nothing mapped to: give it an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatConfig {
    /// The outside address for IPv4; without one IPv4 does not get out.
    pub external_v4: Option<Ipv4Addr>,
    /// The same for IPv6.
    pub external_v6: Option<Ipv6Addr>,
    /// Which packets of one inside endpoint get the same outside endpoint.
    pub mapping: Dependence,
    /// Whose packets an outside endpoint lets in: everybody's, or those of whom the inside endpoint has sent to.
    pub filtering: Dependence,
    /// Which outside port a new mapping gets.
    pub ports: PortAllocation,
    /// From these.
    pub port_range: RangeInclusive<u16>,
    /// After how long without a packet UDP state goes: not under two minutes, better five (RFC 4787 section 4.3).
    pub udp_timeout: Duration,
    /// Packets from outside keep UDP state alive, too. Those from inside always do (section 4.3, REQ-6).
    pub udp_refresh_inbound: bool,
    /// The same for established TCP connections: not under two hours and four minutes (RFC 5382 section 5, REQ-5).
    pub tcp_established: Duration,
    /// The same for TCP connections that open or have been closed: not under four minutes (REQ-5).
    pub tcp_transitory: Duration,
    /// The same for everything else, such as ICMP queries: not under a minute (RFC 5508 section 3.2).
    pub other_timeout: Duration,
    /// A TCP segment without SYN from inside, of a connection that the box does not know, makes a mapping.
    pub adopts_connections: bool,
    /// Inside endpoints may reach each other by their outside endpoints (RFC 4787 section 6).
    pub hairpinning: bool,
    /// ICMP errors about packets of mappings are passed on (RFC 4787 section 9).
    pub icmp_errors: bool,
    /// The most mappings at once, at most [`MAX_MAPPINGS`]: packets that would need one more are dropped.
    pub max_mappings: usize,
}

impl Default for NatConfig {
    fn default() -> Self {
        Self {
            external_v4: None,
            external_v6: None,
            mapping: Dependence::EndpointIndependent,
            filtering: Dependence::AddressDependent,
            ports: PortAllocation::Preserving,
            port_range: 1024..=65_535,
            udp_timeout: Duration::from_secs(300),
            udp_refresh_inbound: true,
            tcp_established: Duration::from_secs(7440),
            tcp_transitory: Duration::from_secs(240),
            other_timeout: Duration::from_secs(60),
            adopts_connections: false,
            hairpinning: true,
            icmp_errors: true,
            max_mappings: 65_536,
        }
    }
}

impl NatConfig {
    fn preset(external: IpAddr, mapping: Dependence, filtering: Dependence) -> Self {
        Self { mapping, filtering, ..Self::default() }.with_external(external)
    }

    /// Lets everybody in to an outside endpoint: "full cone" (RFC 3489 section 5 for the names).
    #[must_use]
    pub fn full_cone(external: IpAddr) -> Self {
        Self::preset(external, Dependence::EndpointIndependent, Dependence::EndpointIndependent)
    }

    /// Lets addresses in that were sent to: "restricted cone".
    #[must_use]
    pub fn restricted_cone(external: IpAddr) -> Self {
        Self::preset(external, Dependence::EndpointIndependent, Dependence::AddressDependent)
    }

    /// Lets endpoints in that were sent to: "port restricted cone".
    #[must_use]
    pub fn port_restricted_cone(external: IpAddr) -> Self {
        Self::preset(external, Dependence::EndpointIndependent, Dependence::AddressAndPortDependent)
    }

    /// Another outside endpoint, with a port that nobody can guess, for each peer, and only that peer gets in: "symmetric".
    #[must_use]
    pub fn symmetric(external: IpAddr) -> Self {
        let most = Dependence::AddressAndPortDependent;
        Self { ports: PortAllocation::Random, ..Self::preset(external, most, most) }
    }

    /// The same with another outside address for one family.
    #[must_use]
    pub fn with_external(mut self, external: IpAddr) -> Self {
        match external {
            IpAddr::V4(addr) => self.external_v4 = Some(addr),
            IpAddr::V6(addr) => self.external_v6 = Some(addr),
        }
        self
    }

    /// The outside address for a family.
    #[must_use]
    pub fn external(&self, v4: bool) -> Option<IpAddr> {
        if v4 { self.external_v4.map(IpAddr::V4) } else { self.external_v6.map(IpAddr::V6) }
    }
}
