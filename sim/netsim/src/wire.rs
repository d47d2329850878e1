//! Packets as bytes, for packet records: real headers with right checksums.
//!
//! *Not responsible for* reading them back: inside the simulator packets stay structures. A packet that crosses a link in
//! fragments is recorded whole, before it is cut.

use crate::packet::{Body, Icmp, IcmpKind, Packet, Quoted, covered};
use crate::tcp::{Payload, Segment};
use neater_link::Protocol;
use std::net::{IpAddr, SocketAddr};

/// Writes a packet. `shift` is by how much its connection scales this side's window (RFC 7323 section 2).
pub(crate) fn encode(packet: &Packet, hop_limit: u8, shift: u8, out: &mut Vec<u8>) {
    let start = out.len();
    let (number, v6) = (protocol_number(packet.protocol(), packet.source.is_ipv6()), packet.source.is_ipv6());
    ip_header(
        &Ip {
            source: packet.source.ip(),
            destination: packet.destination.ip(),
            total: packet.len(),
            traffic_class: packet.ecn as u8,
            may_fragment: packet.pieces.is_some(),
            hop_limit,
            protocol: number,
        },
        out,
    );
    let body = out.len();
    let sum_at = match &packet.body {
        Body::Udp(payload) => {
            ports(packet, out);
            out.extend((8 + payload.len() as u16).to_be_bytes());
            out.extend([0, 0]);
            out.extend_from_slice(payload);
            body + 6
        }
        Body::UdpLite { payload, coverage } => {
            ports(packet, out);
            out.extend(coverage.to_be_bytes());
            out.extend([0, 0]);
            out.extend_from_slice(payload);
            body + 6
        }
        Body::Tcp(segment) => {
            ports(packet, out);
            tcp(segment, shift, out);
            body + 16
        }
        Body::Icmp(icmp) => {
            icmp_message(icmp, v6, packet.len() - (body - start) as u32, out);
            body + 2
        }
    };
    let summed = &out[body..body + summed(packet, out.len() - body)];
    let mut sum = checksum(summed, 0);
    // ICMP for IPv4 has no pseudo-header. That of UDP-Lite has the length of the packet, not what is covered.
    if v6 || !matches!(packet.body, Body::Icmp(_)) {
        sum = checksum(summed, pseudo_header(packet, number, (out.len() - body) as u32));
    }
    if sum == 0 && matches!(packet.body, Body::Udp(_) | Body::UdpLite { .. }) {
        sum = 0xffff;
    }
    out[sum_at..sum_at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// How much of what is behind the IP header, `len` bytes, the checksum covers.
fn summed(packet: &Packet, len: usize) -> usize {
    match &packet.body {
        Body::UdpLite { payload, coverage } => covered(*coverage, payload.len()),
        _ => len,
    }
}

fn protocol_number(protocol: Protocol, v6: bool) -> u8 {
    match protocol {
        Protocol::Udp => 17,
        Protocol::Tcp => 6,
        Protocol::Icmp if v6 => 58,
        Protocol::Icmp => 1,
        Protocol::Other(n) => n,
    }
}

struct Ip {
    source: IpAddr,
    destination: IpAddr,
    total: u32,
    traffic_class: u8,
    may_fragment: bool,
    hop_limit: u8,
    protocol: u8,
}

/// RFC 791 section 3.1, RFC 8200 section 3.
fn ip_header(ip: &Ip, out: &mut Vec<u8>) {
    match (ip.source, ip.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let start = out.len();
            out.extend([0x45, ip.traffic_class]);
            out.extend((ip.total.min(65_535) as u16).to_be_bytes());
            out.extend([0, 0, if ip.may_fragment { 0 } else { 0x40 }, 0]);
            out.extend([ip.hop_limit, ip.protocol, 0, 0]);
            out.extend(source.octets());
            out.extend(destination.octets());
            let sum = checksum(&out[start..], 0);
            out[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
        }
        (source, destination) => {
            out.extend([0x60 | ip.traffic_class >> 4, ip.traffic_class << 4, 0, 0]);
            out.extend((ip.total.saturating_sub(40).min(65_535) as u16).to_be_bytes());
            out.extend([ip.protocol, ip.hop_limit]);
            for addr in [source, destination] {
                match addr {
                    IpAddr::V4(a) => out.extend(a.to_ipv6_mapped().octets()),
                    IpAddr::V6(a) => out.extend(a.octets()),
                }
            }
        }
    }
}

fn ports(packet: &Packet, out: &mut Vec<u8>) {
    out.extend(packet.source.port().to_be_bytes());
    out.extend(packet.destination.port().to_be_bytes());
}

/// RFC 9293 section 3.1, from the sequence number on.
fn tcp(s: &Segment, shift: u8, out: &mut Vec<u8>) {
    let start = out.len() - 4;
    out.extend((s.seq.0 as u32).to_be_bytes());
    out.extend(s.ack.map_or(0, |a| a.0 as u32).to_be_bytes());
    let flags = [s.fin, s.syn, s.rst, !s.payload.is_empty(), s.ack.is_some(), false, s.ece, s.cwr];
    // The window of a SYN is never scaled (RFC 7323 section 2.2).
    let window = if s.syn { s.window } else { s.window >> shift };
    out.extend([0, flags.iter().rev().fold(0, |n, f| n << 1 | u8::from(*f))]);
    out.extend((window.min(65_535) as u16).to_be_bytes());
    out.extend([0, 0, 0, 0]);
    s.write_options(out);
    let words = ((out.len() - start) / 4) as u8;
    out[start + 12] = words << 4;
    match &s.payload {
        Payload::Bytes(bytes) => out.extend_from_slice(bytes),
        Payload::Zeros(n) => out.resize(out.len() + *n as usize, 0),
    }
}

/// RFC 792, RFC 4443 section 2.1; of the quoted packet's payload there are ports, sequence number, and how a datagram begins.
fn icmp_message(icmp: &Icmp, v6: bool, len: u32, out: &mut Vec<u8>) {
    let start = out.len();
    let (kind, code) = icmp.kind.type_and_code(v6);
    out.extend([kind, code, 0, 0]);
    let rest: u32 = match icmp.kind {
        IcmpKind::TooBig { mtu } => mtu,
        // Where the quoted packet says its next header (RFC 4443 section 3.4).
        IcmpKind::ProtocolUnreachable if v6 => 6,
        _ => 0,
    };
    out.extend(rest.to_be_bytes());
    quoted(&icmp.quoted, out);
    out.resize(start + len as usize, 0);
}

fn quoted(q: &Quoted, out: &mut Vec<u8>) {
    let v6 = q.source.is_ipv6();
    ip_header(
        &Ip {
            source: q.source.ip(),
            destination: q.destination.ip(),
            total: q.len(),
            traffic_class: 0,
            may_fragment: false,
            hop_limit: crate::fabric::HOP_LIMIT,
            protocol: protocol_number(q.protocol, v6),
        },
        out,
    );
    out.extend(q.source.port().to_be_bytes());
    out.extend(q.destination.port().to_be_bytes());
    match q.seq {
        Some(seq) => out.extend((seq.0 as u32).to_be_bytes()),
        None => {
            let header = if v6 { 40 } else { 20 };
            let len = q.len().saturating_sub(header).min(65_535) as u16;
            out.extend(q.coverage.unwrap_or(len).to_be_bytes());
            out.extend([0, 0]);
            out.extend_from_slice(q.payload.as_slice());
        }
    }
}

/// The sum over the pseudo-header (RFC 9293 section 3.1, RFC 8200 section 8.1), not folded.
fn pseudo_header(packet: &Packet, protocol: u8, len: u32) -> u64 {
    let addr = |a: &SocketAddr| match a.ip() {
        IpAddr::V4(a) => sum(&a.octets()),
        IpAddr::V6(a) => sum(&a.octets()),
    };
    addr(&packet.source) + addr(&packet.destination) + u64::from(protocol) + u64::from(len)
}

fn sum(bytes: &[u8]) -> u64 {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let whole: u64 = pairs.iter().map(|p| u64::from(u16::from_be_bytes(*p))).sum();
    whole + rest.first().map_or(0, |b| u64::from(*b) << 8)
}

/// The internet checksum (RFC 1071) of some bytes and what was summed before.
fn checksum(bytes: &[u8], before: u64) -> u16 {
    let mut total = sum(bytes) + before;
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    !(total as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use neater_base::net::Ecn;

    fn udp(source: &str, destination: &str, payload: &'static [u8]) -> Packet {
        let [source, destination] = [source, destination].map(|a| a.parse().unwrap());
        Packet { source, destination, ecn: Ecn::NotEct, pieces: None, body: Body::Udp(Bytes::from_static(payload)) }
    }

    /// Over a message with its checksum, the sum is all ones: RFC 1071 section 1.
    fn verify(packet: &Packet) -> Vec<u8> {
        let mut out = Vec::new();
        encode(packet, 64, 0, &mut out);
        assert_eq!(out.len() as u32, packet.len());
        let header = if packet.source.is_ipv4() { 20 } else { 40 };
        if header == 20 {
            assert_eq!(checksum(&out[..20], 0), 0);
        }
        let number = protocol_number(packet.protocol(), header == 40);
        let pseudo = match packet.body {
            Body::Icmp(_) if header == 20 => 0,
            _ => pseudo_header(packet, number, (out.len() - header) as u32),
        };
        assert_eq!(checksum(&out[header..header + summed(packet, out.len() - header)], pseudo), 0);
        out
    }

    #[test]
    fn checksums_add_up_for_every_kind_of_packet() {
        for (a, b) in [("192.0.2.1:1000", "192.0.2.2:53"), ("[2001:db8::1]:1000", "[2001:db8::2]:53")] {
            let mut p = udp(a, b, b"odd");
            verify(&p);
            let errors = [
                IcmpKind::TooBig { mtu: 1400 },
                IcmpKind::TimeExceeded,
                IcmpKind::PortUnreachable,
                IcmpKind::ProtocolUnreachable,
            ];
            let quote = p.quote().unwrap();
            for kind in errors {
                p.body = Body::Icmp(Icmp { kind, quoted: quote });
                verify(&p);
            }
            let header = if p.source.is_ipv4() { 20 } else { 40 };
            for coverage in [0, 8, 9, 11] {
                p.body = Body::UdpLite { payload: Bytes::from_static(b"odd"), coverage };
                let bytes = verify(&p);
                assert_eq!(bytes[if header == 20 { 9 } else { 6 }], 136);
                assert_eq!(bytes[header + 4..header + 6], coverage.to_be_bytes());
                let quoted = p.quote().unwrap();
                let mut error = p.clone();
                for kind in errors {
                    error.body = Body::Icmp(Icmp { kind, quoted });
                    let error = verify(&error);
                    assert_eq!(error[2 * header + 8..][..6], bytes[header..][..6], "ports and coverage");
                }
            }
            p.body = Body::Tcp(Segment {
                seq: crate::tcp::Seq(7),
                syn: true,
                mss: Some(1460),
                window: 65_535,
                ..Segment::default()
            });
            verify(&p);
        }
    }

    #[test]
    fn a_known_header_has_its_known_checksum() {
        // The example of many textbooks: 45 00 00 73 00 00 40 00 40 11 -> b861.
        let header = [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 192, 168, 0, 1, 192, 168, 0, 199];
        assert_eq!(checksum(&header, 0), 0xb861);
    }
}
