//! The errors that routers and links send: ICMP (RFC 792, RFC 1191) and ICMPv6 (RFC 4443).
//!
//! As those ask (RFC 1812 section 4.3.2.7, RFC 4443 section 2.4 e), there is none about an ICMP error, about a fragment that
//! is not the first, to or about a group address, or to the unspecified address.

use super::{V4_HEADER, V6_HEADER, addresses, be16, checksum, transport};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Room for the longest error: IPv6's minimum MTU, which ICMPv6 errors may fill (RFC 4443 section 2.4 c).
pub const ERROR_MAX: usize = 1280;
/// An ICMP error for IPv4 is no longer than this (RFC 1812 section 4.3.2.3).
const V4_MAX: usize = 576;
/// Hop limit and time to live of what we send.
const HOPS: u8 = 64;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The packet is larger than this MTU: "fragmentation needed" (3/4) or "packet too big" (2/0).
    TooBig {
        /// What fits.
        mtu: u32,
    },
    /// A firewall says so: "communication administratively prohibited" (3/13 or 1/1).
    Prohibited,
    /// No route: "network unreachable" (3/0) or "no route to destination" (1/0).
    NoRoute,
    /// Time to live or hop limit used up: "time exceeded" (11/0 or 3/0).
    TimeExceeded,
}

impl Problem {
    const fn v4(self) -> (u8, u8, u32) {
        match self {
            // RFC 1191 section 4: the MTU is in the low half of the second word.
            Self::TooBig { mtu } => (3, 4, if mtu > 0xffff { 0xffff } else { mtu }),
            Self::Prohibited => (3, 13, 0),
            Self::NoRoute => (3, 0, 0),
            Self::TimeExceeded => (11, 0, 0),
        }
    }

    const fn v6(self) -> (u8, u8, u32) {
        match self {
            Self::TooBig { mtu } => (2, 0, mtu),
            Self::Prohibited => (1, 1, 0),
            Self::NoRoute => (1, 0, 0),
            Self::TimeExceeded => (3, 0, 0),
        }
    }
}

/// The address that errors come from, by family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// For IPv4.
    pub v4: Option<Ipv4Addr>,
    /// For IPv6.
    pub v6: Option<Ipv6Addr>,
}

/// Writes the error about `packet` into `out` and returns its length; `None` where none may be sent, or nobody is there to
/// send it.
#[must_use]
pub fn error(problem: Problem, packet: &[u8], from: Origin, out: &mut [u8; ERROR_MAX]) -> Option<usize> {
    let (source, destination) = addresses(packet)?;
    let t = transport(packet)?;
    if !t.first || group(&destination) || group(&source) || source.is_unspecified() {
        return None;
    }
    let message = packet.get(t.at).copied();
    match source {
        IpAddr::V4(to) => {
            // Only echo, timestamp, address mask and the like are no errors: 0, 8 to 10 and 13 to 18.
            if t.number == 1 && matches!(message, None | Some(3..=5 | 11 | 12)) {
                return None;
            }
            let (kind, code, word) = problem.v4();
            let quoted = packet.len().min(V4_MAX - V4_HEADER - 8);
            let total = V4_HEADER + 8 + quoted;
            let (ip, rest) = out.split_at_mut(V4_HEADER);
            ip.copy_from_slice(&[0x45, 0xc0, 0, 0, 0, 0, 0, 0, HOPS, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            ip[2..4].copy_from_slice(&u16::try_from(total).ok()?.to_be_bytes());
            ip[12..16].copy_from_slice(&from.v4?.octets());
            ip[16..20].copy_from_slice(&to.octets());
            let sum = checksum(ip, 0);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            let body = rest.get_mut(..8 + quoted)?;
            fill(body, (kind, code, word), packet, 0);
            Some(total)
        }
        IpAddr::V6(to) => {
            if t.number == 58 && message.is_none_or(|m| m < 128) {
                return None;
            }
            let from = from.v6?;
            let quoted = packet.len().min(ERROR_MAX - V6_HEADER - 8);
            let payload = u16::try_from(8 + quoted).ok()?;
            let (ip, rest) = out.split_at_mut(V6_HEADER);
            ip[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 0, 58, HOPS]);
            ip[4..6].copy_from_slice(&payload.to_be_bytes());
            ip[8..24].copy_from_slice(&from.octets());
            ip[24..40].copy_from_slice(&to.octets());
            // RFC 8200 section 8.1: the checksum covers addresses, length and next header.
            let pseudo: u32 = (8..40).step_by(2).filter_map(|i| be16(ip, i)).map(u32::from).sum();
            let body = rest.get_mut(..8 + quoted)?;
            fill(body, problem.v6(), packet, pseudo + u32::from(payload) + 58);
            Some(V6_HEADER + 8 + quoted)
        }
    }
}

fn fill(body: &mut [u8], (kind, code, word): (u8, u8, u32), packet: &[u8], pseudo: u32) {
    body[..4].copy_from_slice(&[kind, code, 0, 0]);
    body[4..8].copy_from_slice(&word.to_be_bytes());
    let quoted = body.len() - 8;
    body[8..].copy_from_slice(&packet[..quoted]);
    let sum = checksum(body, pseudo);
    body[2..4].copy_from_slice(&sum.to_be_bytes());
}

fn group(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => a.is_multicast() || a.is_broadcast(),
        IpAddr::V6(a) => a.is_multicast(),
    }
}

/// Turns an echo request into its answer, in place; returns whether it was one. The checksum is mended incrementally, so
/// that the answer to a corrupt request is corrupt.
pub fn into_echo_reply(packet: &mut [u8]) -> bool {
    let Some(t) = transport(packet) else { return false };
    let (request, reply, addresses_at, len) = match t.number {
        1 => (8u8, 0u8, 12, 4),
        58 => (128, 129, 8, 16),
        _ => return false,
    };
    if !t.first || packet.len() < t.at + 8 || packet[t.at] != request {
        return false;
    }
    for i in 0..len {
        packet.swap(addresses_at + i, addresses_at + len + i);
    }
    let code = packet[t.at + 1];
    super::replace16(packet, t.at, u16::from_be_bytes([reply, code]), t.at + 2);
    if t.number == 1 {
        let protocol = packet[9];
        super::replace16(packet, 8, u16::from_be_bytes([HOPS, protocol]), 10);
    } else {
        packet[7] = HOPS;
    }
    true
}
