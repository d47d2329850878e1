//! Other addresses and ports in IPv4 packets, as a NAT box writes them.
//!
//! Header checksums and those of the transports are mended incrementally (RFC 1624), so that a packet whose checksum was
//! wrong stays wrong. What an ICMP error quotes is rewritten with it (RFC 5508 section 4).

use super::{Transport, V4_HEADER, addresses, be16, transport};
use neater_link::{NatPacket, Protocol, TcpFlags};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

/// Which end of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Where from.
    Source,
    /// Where to.
    Destination,
}

impl Part {
    const fn address_at(self) -> usize {
        match self {
            Self::Source => 12,
            Self::Destination => 16,
        }
    }

    const fn port_at(self) -> usize {
        match self {
            Self::Source => 0,
            Self::Destination => 2,
        }
    }
}

/// What a NAT box sees of an IPv4 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A packet of a flow.
    Flow(NatPacket),
    /// An ICMP error about this packet, which it quotes.
    Error(NatPacket),
    /// A fragment that is not the first: it has no ports.
    Fragment,
}

/// Looks at a whole IPv4 packet; `None` if it is none, or too short for its protocol. The identifier of an ICMP query takes
/// the place of its sender's port, or of its receiver's in an answer; protocols without ports known here have port 0.
#[must_use]
pub fn seen(packet: &[u8]) -> Option<Seen> {
    if packet.first()? >> 4 != 4 {
        return None;
    }
    let (source, destination) = addresses(packet)?;
    let t = transport(packet)?;
    if !t.first {
        return Some(Seen::Fragment);
    }
    if t.number == 1 && matches!(packet.get(t.at)?, 3..=5 | 11 | 12) {
        return quoted(packet.get(t.at + 8..)?).map(Seen::Error);
    }
    let (from, to) = ports(packet, t)?;
    let flags = if t.number == 6 { *packet.get(t.at + 13)? } else { 0 };
    let tcp = TcpFlags { fin: flags & 1 != 0, syn: flags & 2 != 0, rst: flags & 4 != 0, ack: flags & 16 != 0 };
    let (source, destination) = (SocketAddr::new(source, from), SocketAddr::new(destination, to));
    Some(Seen::Flow(NatPacket { protocol: protocol(t.number), source, destination, tcp }))
}

const fn protocol(number: u8) -> Protocol {
    match number {
        1 => Protocol::Icmp,
        6 => Protocol::Tcp,
        17 => Protocol::Udp,
        other => Protocol::Other(other),
    }
}

/// The ports of a packet's transport, or what stands for them.
fn ports(packet: &[u8], t: Transport) -> Option<(u16, u16)> {
    match t.number {
        6 | 17 => Some((be16(packet, t.at)?, be16(packet, t.at + 2)?)),
        // Echo, timestamp, information and address mask: even ones ask, but 0, 14, 16 and 18 answer (RFC 792, RFC 950).
        1 => {
            let id = be16(packet, t.at + 4)?;
            Some(if matches!(packet.get(t.at)?, 0 | 14 | 16 | 18) { (0, id) } else { (id, 0) })
        }
        _ => Some((0, 0)),
    }
}

/// What an ICMP error quotes: the beginning of a packet, with eight bytes of its transport or more.
fn quoted(packet: &[u8]) -> Option<NatPacket> {
    let t = (packet.len() >= V4_HEADER && packet[0] >> 4 == 4).then(|| transport(packet)).flatten()?;
    let address = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?));
    let (from, to) = if t.first { ports(packet, t)? } else { return None };
    let source = SocketAddr::new(address(12)?.into(), from);
    let destination = SocketAddr::new(address(16)?.into(), to);
    Some(NatPacket { protocol: protocol(t.number), source, destination, tcp: TcpFlags::default() })
}

/// Puts another address and port in place of one end of a whole IPv4 packet. In a fragment that is not the first, only the
/// address changes.
pub fn set_endpoint(packet: &mut [u8], part: Part, to: SocketAddrV4) {
    let Some(t) = transport(packet) else { return };
    rewrite(packet, 0, t, part, to, None);
}

/// Rewrites an ICMP error and what it quotes: `inward` puts the inside endpoint `to` in place of the destination, and of the
/// source of what is quoted; otherwise the outside endpoint `to` goes into the source, and the destination of what is quoted.
pub fn set_error(packet: &mut [u8], inward: bool, to: SocketAddrV4) {
    let Some(outer) = transport(packet) else { return };
    let at = outer.at + 8;
    let Some(t) = packet.get(at..).and_then(transport) else { return };
    let (own, quoted) = if inward { (Part::Destination, Part::Source) } else { (Part::Source, Part::Destination) };
    rewrite(packet, at, t, quoted, to, Some(outer.at + 2));
    set_address(packet, own, *to.ip());
}

/// Puts another address in place of one end of a whole IPv4 packet whose transport does not look at addresses.
fn set_address(packet: &mut [u8], part: Part, to: Ipv4Addr) {
    let [a, b, c, d] = to.octets();
    for (i, word) in [[a, b], [c, d]].into_iter().enumerate() {
        replace(packet, part.address_at() + 2 * i, u16::from_be_bytes(word), &[Some(10)], None);
    }
}

/// Rewrites the packet that begins at `at`. `outer` is where the checksum is that covers all of it, if there is one.
fn rewrite(packet: &mut [u8], at: usize, t: Transport, part: Part, to: SocketAddrV4, outer: Option<usize>) {
    let header = Some(at + 10);
    let transport = at + t.at;
    // The checksums that cover addresses: those with a pseudo-header (TCP, UDP, DCCP, UDP-Lite).
    let pseudo = match t.number {
        6 => Some(transport + 16),
        // Zero: the sender did not compute one (RFC 768).
        17 => Some(transport + 6).filter(|sum| be16(packet, *sum) != Some(0)),
        33 | 136 => Some(transport + 6),
        _ => None,
    };
    let pseudo = pseudo.filter(|_| t.first);
    let [a, b, c, d] = to.ip().octets();
    for (i, word) in [[a, b], [c, d]].into_iter().enumerate() {
        let word_at = at + part.address_at() + 2 * i;
        replace(packet, word_at, u16::from_be_bytes(word), &[header, pseudo], outer);
    }
    if t.first {
        match t.number {
            6 | 17 => replace(packet, transport + part.port_at(), to.port(), &[pseudo], outer),
            1 => replace(packet, transport + 4, to.port(), &[Some(transport + 2)], outer),
            _ => {}
        }
    }
    if let (17, Some(sum)) = (t.number, pseudo)
        && be16(packet, sum) == Some(0)
    {
        // A checksum that comes out as zero is sent as its other form.
        replace(packet, sum, 0xffff, &[], outer);
    }
}

/// Replaces a word and mends the checksums that cover it, and the one that covers those too. What the packet does not reach
/// to, as in a short quotation, stays out.
fn replace(packet: &mut [u8], at: usize, new: u16, sums: &[Option<usize>], outer: Option<usize>) {
    let Some(old) = be16(packet, at) else { return };
    for sum_at in sums.iter().flatten() {
        if let Some(sum) = be16(packet, *sum_at) {
            put(packet, *sum_at, mended(sum, old, new), outer);
        }
    }
    put(packet, at, new, outer);
}

fn put(packet: &mut [u8], at: usize, new: u16, outer: Option<usize>) {
    let Some(old) = be16(packet, at) else { return };
    if let Some(place) = packet.get_mut(at..at + 2) {
        place.copy_from_slice(&new.to_be_bytes());
    }
    if let Some(outer) = outer
        && let Some(sum) = be16(packet, outer)
        && let Some(place) = packet.get_mut(outer..outer + 2)
    {
        place.copy_from_slice(&mended(sum, old, new).to_be_bytes());
    }
}

/// A checksum after a word that it covers has changed (RFC 1624, equation 3).
fn mended(sum: u16, old: u16, new: u16) -> u16 {
    !super::fold(u32::from(!sum) + u32::from(!old) + u32::from(new))
}

#[cfg(test)]
mod tests {
    use super::super::checksum;
    use super::super::icmp::{ERROR_MAX, Origin, Problem, error};
    use super::*;

    const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
    const PEER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
    const OUTSIDE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 1), 40_000);

    /// A packet of a protocol with correct checksums, from `from` to `to`.
    fn packet(number: u8, from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> Vec<u8> {
        let mut p = vec![0x5a; 20 + 24];
        p[..20].copy_from_slice(&[0x45, 0, 0, 44, 1, 2, 0x40, 0, 64, number, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        p[12..16].copy_from_slice(&from.0.octets());
        p[16..20].copy_from_slice(&to.0.octets());
        let sum = checksum(&p[..20], 0);
        p[10..12].copy_from_slice(&sum.to_be_bytes());
        if number == 1 {
            (p[20], p[21]) = (8, 0);
            p[24..26].copy_from_slice(&from.1.to_be_bytes());
        } else {
            p[20..22].copy_from_slice(&from.1.to_be_bytes());
            p[22..24].copy_from_slice(&to.1.to_be_bytes());
        }
        if number == 6 {
            p[33] = 0x12; // SYN and ACK
        }
        if let Some(at) = sum_at(number) {
            p[at..at + 2].fill(0);
            let sum = transport_sum(&p);
            p[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        p
    }

    fn sum_at(number: u8) -> Option<usize> {
        match number {
            1 => Some(22),
            6 => Some(36),
            17 | 33 | 136 => Some(26),
            _ => None,
        }
    }

    /// Zero for a packet whose transport checksum is right.
    fn transport_sum(p: &[u8]) -> u16 {
        let number = u32::from(p[9]);
        let pseudo: u32 = (12..20).step_by(2).filter_map(|i| be16(p, i)).map(u32::from).sum();
        checksum(&p[20..], if number == 1 { 0 } else { pseudo + number + p.len() as u32 - 20 })
    }

    #[test]
    fn an_endpoint_changes_and_all_checksums_stay_right() {
        for number in [1, 6, 17, 33, 132, 136] {
            let mut p = packet(number, (INSIDE, 7000), (PEER, 53));
            set_endpoint(&mut p, Part::Source, OUTSIDE);
            assert_eq!(checksum(&p[..20], 0), 0, "{number}");
            assert!(sum_at(number).is_none() || transport_sum(&p) == 0, "{number}");
            assert_eq!(p[12..16], OUTSIDE.ip().octets());
            let expected = match number {
                1 => (OUTSIDE.port(), 0),
                6 | 17 => (OUTSIDE.port(), 53),
                _ => (0, 0),
            };
            let Some(Seen::Flow(now)) = seen(&p) else { panic!("{number}") };
            assert_eq!((now.source.port(), now.destination.port()), expected);
            set_endpoint(&mut p, Part::Source, SocketAddrV4::new(INSIDE, 7000));
            assert_eq!(p, packet(number, (INSIDE, 7000), (PEER, 53)), "{number}: there and back");
        }
        let Some(Seen::Flow(tcp)) = seen(&packet(6, (INSIDE, 1), (PEER, 2))) else { panic!("a flow") };
        assert!(tcp.tcp.syn && tcp.tcp.ack && !tcp.tcp.fin && !tcp.tcp.rst);
    }

    #[test]
    fn what_was_wrong_stays_wrong_and_what_was_not_computed_is_not() {
        let mut wrong = packet(17, (INSIDE, 7000), (PEER, 53));
        wrong[40] ^= 4;
        let before = transport_sum(&wrong);
        set_endpoint(&mut wrong, Part::Source, OUTSIDE);
        assert_eq!(transport_sum(&wrong), before);
        let mut none = packet(17, (INSIDE, 7000), (PEER, 53));
        none[26..28].fill(0);
        set_endpoint(&mut none, Part::Source, OUTSIDE);
        assert_eq!(be16(&none, 26), Some(0));
    }

    #[test]
    fn an_error_and_its_quotation_are_rewritten_in_both_directions() {
        for number in [1, 6, 17] {
            for length in [44, 28] {
                // From outside, about a packet that left with the outside endpoint.
                let about = packet(number, (*OUTSIDE.ip(), OUTSIDE.port()), (PEER, 53));
                let mut out = [0; ERROR_MAX];
                let from = Origin { v4: Some(Ipv4Addr::new(192, 0, 2, 9)), v6: None };
                let len = error(Problem::NoRoute, &about, from, &mut out).expect("an error");
                let mut p = out[..len - (44 - length)].to_vec();
                // A router may quote less.
                p[3] = p.len() as u8;
                (p[10], p[11], p[22], p[23]) = (0, 0, 0, 0);
                let (ip, icmp) = (checksum(&p[..20], 0), checksum(&p[20..], 0));
                p[10..12].copy_from_slice(&ip.to_be_bytes());
                p[22..24].copy_from_slice(&icmp.to_be_bytes());
                let Some(Seen::Error(quoted)) = seen(&p) else { panic!("an error") };
                assert_eq!(quoted.source, SocketAddr::V4(OUTSIDE));
                set_error(&mut p, true, SocketAddrV4::new(INSIDE, 7000));
                assert_eq!((checksum(&p[..20], 0), checksum(&p[20..], 0)), (0, 0), "{number} {length}");
                assert_eq!(p[16..20], INSIDE.octets());
                assert_eq!(p[28..], packet(number, (INSIDE, 7000), (PEER, 53))[..length], "{number} {length}");
                // And back: an error from inside about a packet from outside.
                let about = packet(number, (PEER, 53), (INSIDE, 7000));
                if number != 1 {
                    let len = error(Problem::NoRoute, &about, from, &mut out).expect("an error");
                    let mut p = out[..len].to_vec();
                    set_error(&mut p, false, OUTSIDE);
                    assert_eq!((checksum(&p[..20], 0), checksum(&p[20..], 0)), (0, 0));
                    assert_eq!(p[12..16], OUTSIDE.ip().octets());
                    assert_eq!(p[28..], packet(number, (PEER, 53), (*OUTSIDE.ip(), OUTSIDE.port())));
                }
            }
        }
    }

    #[test]
    fn later_fragments_and_short_packets_are_told_apart() {
        let mut p = packet(17, (INSIDE, 7000), (PEER, 53));
        (p[6], p[7]) = (0, 5);
        assert_eq!(seen(&p), Some(Seen::Fragment));
        let payload = p[20..].to_vec();
        set_endpoint(&mut p, Part::Source, OUTSIDE);
        assert_eq!(p[20..], payload);
        let mut short = packet(6, (INSIDE, 1), (PEER, 2))[..30].to_vec();
        short[3] = 30;
        assert_eq!(seen(&short), None);
        assert_eq!(seen(&[]), None);
        assert_eq!(seen(&[0x60; 60]), None);
    }

    #[test]
    fn no_packet_makes_it_panic() {
        let mut rng = neater_base::Rng::from_number(7);
        let mut seen_any = [0u32; 3];
        for _ in 0..50_000 {
            let mut p = vec![0; rng.below(96) as usize];
            rng.fill(&mut p);
            // Most are made to look like IPv4 of their own length, some with an error in them.
            if p.len() >= 20 && rng.chance(0.9) {
                p[0] = 0x45 + rng.below(3) as u8;
                let whole = (p.len() as u16).to_be_bytes();
                p[2..4].copy_from_slice(&whole);
                p[9] = [1, 6, 17, 33, 132][rng.below(5) as usize];
                if rng.chance(0.8) {
                    (p[6], p[7]) = (0, 0);
                }
                if p.len() > 28 && rng.chance(0.5) {
                    (p[20], p[28]) = (3, 0x45);
                }
            }
            match seen(&p) {
                Some(Seen::Flow(_)) => seen_any[0] += 1,
                Some(Seen::Error(_)) => seen_any[1] += 1,
                Some(Seen::Fragment) => seen_any[2] += 1,
                None => {}
            }
            let len = p.len();
            set_endpoint(&mut p, Part::Source, OUTSIDE);
            set_endpoint(&mut p, Part::Destination, OUTSIDE);
            set_error(&mut p, true, OUTSIDE);
            set_error(&mut p, false, OUTSIDE);
            assert_eq!(p.len(), len);
        }
        assert!(seen_any[0] > 500 && seen_any[2] > 500, "{seen_any:?}");
    }
}
