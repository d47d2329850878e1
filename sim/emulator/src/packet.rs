//! Real IP packets: what a link looks at, and what a router or a link does to their bytes.
//!
//! *Invariants*: nothing here trusts a length that the packet claims; a packet that is not whole is no packet. Header
//! checksums are mended incrementally (RFC 1624), so that a packet whose checksum was wrong stays wrong.

pub mod icmp;
pub mod rewrite;

use neater_base::net::Ecn;
use neater_link::{PacketMeta, Protocol};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Length of an IPv4 header without options (RFC 791 section 3.1).
pub const V4_HEADER: usize = 20;
/// Length of an IPv6 header (RFC 8200 section 3).
pub const V6_HEADER: usize = 40;
/// The most IPv6 extension headers that are followed to the transport protocol.
const EXTENSIONS_MAX: usize = 8;

/// The transport header of a packet, found by [`transport`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    /// Its protocol number.
    pub number: u8,
    /// Where it begins.
    pub at: usize,
    /// Whether it is there: false in a fragment that is not the first.
    pub first: bool,
}

/// The source and destination of a whole IP packet; `None` if it is none.
///
/// Whole means: the length in the header is the length of the slice, and the header fits.
#[must_use]
pub fn addresses(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    match packet.first()? >> 4 {
        4 => {
            let header = usize::from(packet[0] & 15) * 4;
            let total = usize::from(be16(packet, 2)?);
            if header < V4_HEADER || total != packet.len() || header > total {
                return None;
            }
            let at = |i: usize| <[u8; 4]>::try_from(packet.get(i..i + 4)?).ok();
            Some((IpAddr::V4(Ipv4Addr::from(at(12)?)), IpAddr::V4(Ipv4Addr::from(at(16)?))))
        }
        6 => {
            if usize::from(be16(packet, 4)?) + V6_HEADER != packet.len() {
                return None;
            }
            let at = |i: usize| <[u8; 16]>::try_from(packet.get(i..i + 16)?).ok();
            Some((IpAddr::V6(Ipv6Addr::from(at(8)?)), IpAddr::V6(Ipv6Addr::from(at(24)?))))
        }
        _ => None,
    }
}

/// Where the transport header of a whole packet is. IPv6 extension headers are followed (RFC 8200 section 4).
#[must_use]
pub fn transport(packet: &[u8]) -> Option<Transport> {
    if packet.first()? >> 4 == 4 {
        let at = usize::from(packet[0] & 15) * 4;
        let first = be16(packet, 6)? & 0x1fff == 0;
        return Some(Transport { number: *packet.get(9)?, at, first });
    }
    let (mut number, mut at, mut first) = (*packet.get(6)?, V6_HEADER, true);
    for _ in 0..EXTENSIONS_MAX {
        let len = match number {
            // Hop-by-hop options, routing, destination options.
            0 | 43 | 60 => (usize::from(*packet.get(at + 1)?) + 1) * 8,
            44 => {
                first &= be16(packet, at + 2)? & 0xfff8 == 0;
                8
            }
            _ => break,
        };
        number = *packet.get(at)?;
        at += len;
        if !first {
            break;
        }
    }
    Some(Transport { number, at, first })
}

/// What a link may look at; `None` if this is no whole IP packet.
#[must_use]
pub fn meta(packet: &[u8]) -> Option<PacketMeta> {
    let (source, destination) = addresses(packet)?;
    let t = transport(packet)?;
    let protocol = match t.number {
        17 => Protocol::Udp,
        6 => Protocol::Tcp,
        1 | 58 => Protocol::Icmp,
        other => Protocol::Other(other),
    };
    let ported = t.first && matches!(t.number, 6 | 17 | 33 | 132 | 136);
    let port = |i: usize| if ported { be16(packet, t.at + i).unwrap_or(0) } else { 0 };
    Some(PacketMeta {
        protocol,
        source: SocketAddr::new(source, port(0)),
        destination: SocketAddr::new(destination, port(2)),
        ecn: Ecn::from_bits(traffic_class(packet)),
    })
}

/// The traffic class (IPv6) or type of service (IPv4); 0 if there is none.
#[must_use]
pub fn traffic_class(packet: &[u8]) -> u8 {
    match packet {
        [v, tos, ..] if v >> 4 == 4 => *tos,
        [v, next, ..] => (v << 4) | (next >> 4),
        _ => 0,
    }
}

/// Sets both ECN bits: congestion experienced (RFC 3168 section 5).
pub fn mark_ce(packet: &mut [u8]) {
    match packet.first().map(|v| v >> 4) {
        Some(4) if packet.len() >= V4_HEADER => {
            let word = u16::from_be_bytes([packet[0], packet[1]]);
            replace16(packet, 0, word | 3, 10);
        }
        Some(6) if packet.len() >= V6_HEADER => packet[1] |= 0x30,
        _ => {}
    }
}

/// Takes one from the time to live (RFC 1812 section 5.3.1) or hop limit; returns whether the packet may go on.
pub fn decrement_ttl(packet: &mut [u8]) -> bool {
    match packet.first().map(|v| v >> 4) {
        Some(4) if packet.len() >= V4_HEADER => {
            if packet[8] <= 1 {
                return false;
            }
            let word = u16::from_be_bytes([packet[8], packet[9]]);
            replace16(packet, 8, word - 0x100, 10);
            true
        }
        Some(6) if packet.len() >= V6_HEADER => {
            if packet[7] <= 1 {
                return false;
            }
            packet[7] -= 1;
            true
        }
        _ => false,
    }
}

/// Flips one bit behind the IP header, number `bit` modulo the bits that are there: bit 0 is the highest of the first
/// byte behind the header. A packet without a payload stays as it is.
pub fn flip_payload_bit(packet: &mut [u8], bit: u64) {
    let header = match packet.first().map(|v| v >> 4) {
        Some(4) => usize::from(packet[0] & 15) * 4,
        Some(6) => V6_HEADER,
        _ => return,
    };
    let Some(payload) = packet.get_mut(header..).filter(|p| !p.is_empty()) else { return };
    let bit = bit % (payload.len() as u64 * 8);
    payload[(bit / 8) as usize] ^= 0x80 >> (bit % 8);
}

/// Whether IPv4's "don't fragment" is set; always in IPv6, where routers do not fragment.
#[must_use]
pub fn dont_fragment(packet: &[u8]) -> bool {
    packet.first().is_some_and(|v| v >> 4 == 6) || be16(packet, 6).is_some_and(|w| w & 0x4000 != 0)
}

/// The two bytes at `at`, in network order.
#[must_use]
pub fn be16(packet: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?))
}

/// Replaces a word and mends the checksum at `checksum_at` (RFC 1624, equation 3).
fn replace16(packet: &mut [u8], at: usize, new: u16, checksum_at: usize) {
    let old = u16::from_be_bytes([packet[at], packet[at + 1]]);
    let sum = u16::from_be_bytes([packet[checksum_at], packet[checksum_at + 1]]);
    packet[at..at + 2].copy_from_slice(&new.to_be_bytes());
    let mended = !fold(u32::from(!sum) + u32::from(!old) + u32::from(new));
    packet[checksum_at..checksum_at + 2].copy_from_slice(&mended.to_be_bytes());
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The Internet checksum (RFC 1071) of `bytes` on top of a partial sum, such as that of a pseudo-header.
#[must_use]
pub fn checksum(bytes: &[u8], start: u32) -> u16 {
    let mut sum = u64::from(start);
    let mut words = bytes.chunks_exact(2);
    for w in &mut words {
        sum += u64::from(u16::from_be_bytes([w[0], w[1]]));
    }
    if let [last] = words.remainder() {
        sum += u64::from(*last) << 8;
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests;
