//! Ethernet, ARP, neighbour discovery, IP and UDP, as far as one end of a cable to a virtual machine needs them.

use neater_base::net::Ecn;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The address of a network card.
pub(super) type Mac = [u8; 6];

/// IP's numbers of protocols.
const ICMP: u8 = 1;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;

/// What a frame holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Held<'a> {
    /// An SCTP packet in UDP, or where the ports are 0, in IP itself.
    Sctp {
        /// Where it comes from.
        from: SocketAddr,
        /// Where it wants to go.
        to: SocketAddr,
        /// Its congestion mark.
        ecn: Ecn,
        /// The packet.
        bytes: &'a [u8],
    },
    /// Somebody asks which card has an address (RFC 826; RFC 4861 section 4.3).
    Question {
        /// The address.
        about: IpAddr,
        /// Who asks.
        from: IpAddr,
    },
    /// Part of an IPv4 packet.
    Fragment(Fragment<'a>),
    /// An ICMP message about a packet.
    Icmp,
    /// Something else that machines say unasked.
    Other,
}

/// Part of an IPv4 packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fragment<'a> {
    key: Key,
    ecn: Ecn,
    offset: usize,
    last: bool,
    bytes: &'a [u8],
}

/// What fragments of one packet have in common: addresses, protocol and identification (RFC 791).
type Key = (IpAddr, IpAddr, u8, u16);

/// Packets of which a part has come.
#[derive(Debug, Default)]
pub(super) struct Fragments {
    /// The parts, by offset; whether it is the last one.
    waiting: BTreeMap<Key, BTreeMap<usize, (bool, Vec<u8>)>>,
    /// The packet that was put together last.
    whole: Vec<u8>,
}

impl Fragments {
    /// Takes a part. What the packet holds, if it is complete now.
    ///
    /// # Errors
    /// What is wrong with the packet.
    pub(super) fn take(&mut self, f: &Fragment<'_>) -> Result<Held<'_>, &'static str> {
        // Nothing is lost here: what has not come together by now never will.
        if self.waiting.len() > 64 {
            self.waiting.pop_first();
        }
        let parts = self.waiting.entry(f.key).or_default();
        parts.insert(f.offset, (f.last, f.bytes.to_vec()));
        let ends = parts.values().next_back().is_some_and(|(last, _)| *last);
        let next = parts.iter().try_fold(0, |at, (offset, (_, bytes))| (at == *offset).then_some(at + bytes.len()));
        if !ends || next.is_none() {
            return Ok(Held::Other);
        }
        let parts = self.waiting.remove(&f.key).unwrap_or_default();
        self.whole = parts.into_values().flat_map(|(_, bytes)| bytes).collect();
        let (from, to, protocol, _) = f.key;
        inner(protocol, from, to, f.ecn, &self.whole)
    }
}

/// Reads a frame.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(frame: &[u8]) -> Result<Held<'_>, &'static str> {
    let (head, rest) = frame.split_at_checked(14).ok_or("no Ethernet header")?;
    match [head[12], head[13]] {
        [0x08, 0x00] => read_v4(rest),
        [0x86, 0xdd] => read_v6(rest),
        [0x08, 0x06] => read_arp(rest),
        _ => Ok(Held::Other),
    }
}

fn read_arp(arp: &[u8]) -> Result<Held<'_>, &'static str> {
    let arp: &[u8; 28] = arp.first_chunk().ok_or("ARP cut short")?;
    let address = |at: usize| IpAddr::from([arp[at], arp[at + 1], arp[at + 2], arp[at + 3]]);
    if arp[7] == 1 { Ok(Held::Question { about: address(24), from: address(14) }) } else { Ok(Held::Other) }
}

fn read_v4(packet: &[u8]) -> Result<Held<'_>, &'static str> {
    let head: &[u8; 20] = packet.first_chunk().ok_or("IPv4 cut short")?;
    let (own, total) = (usize::from(head[0] & 15) * 4, usize::from(u16::from_be_bytes([head[2], head[3]])));
    if head[0] >> 4 != 4 || own < 20 || total < own {
        return Err("no IPv4 header");
    }
    let packet = packet.get(..total).ok_or("IPv4 cut short")?;
    if sum(0, &packet[..own]) != 0xffff {
        return Err("the sum of the IPv4 header is wrong");
    }
    let number = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let address = |at: usize| IpAddr::from([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (from, to, ecn) = (address(12), address(16), Ecn::from_bits(head[1]));
    if number(6) & 0x3fff != 0 {
        let (offset, last) = (usize::from(number(6) & 0x1fff) * 8, number(6) & 0x2000 == 0);
        return Ok(Held::Fragment(Fragment {
            key: (from, to, head[9], number(4)),
            ecn,
            offset,
            last,
            bytes: &packet[own..],
        }));
    }
    inner(head[9], from, to, ecn, &packet[own..])
}

fn read_v6(packet: &[u8]) -> Result<Held<'_>, &'static str> {
    let (head, rest) = packet.split_first_chunk::<40>().ok_or("IPv6 cut short")?;
    let len = usize::from(u16::from_be_bytes([head[4], head[5]]));
    let payload = rest.get(..len).ok_or("IPv6 cut short")?;
    let address = |at: usize| {
        let bytes: [u8; 16] = std::array::from_fn(|i| head[at + i]);
        IpAddr::from(bytes)
    };
    let (from, to) = (address(8), address(24));
    if head[6] == 44 {
        return Err("a fragment");
    }
    if head[6] == ICMPV6 && payload.first() == Some(&135) {
        let about: [u8; 16] = payload.get(8..24).and_then(|b| b.try_into().ok()).ok_or("a question cut short")?;
        return Ok(Held::Question { about: about.into(), from });
    }
    inner(head[6], from, to, Ecn::from_bits(head[1] >> 4), payload)
}

fn inner(protocol: u8, from: IpAddr, to: IpAddr, ecn: Ecn, bytes: &[u8]) -> Result<Held<'_>, &'static str> {
    match protocol {
        SCTP => Ok(Held::Sctp { from: SocketAddr::new(from, 0), to: SocketAddr::new(to, 0), ecn, bytes }),
        UDP => {
            let (head, _) = bytes.split_first_chunk::<8>().ok_or("UDP cut short")?;
            let number = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
            let datagram = bytes.get(..usize::from(number(4))).filter(|d| d.len() >= 8).ok_or("UDP cut short")?;
            if number(6) != 0 && sum(pseudo(from, to, UDP, datagram.len()), datagram) != 0xffff {
                return Err("the sum of a UDP datagram is wrong");
            }
            let (from, to) = (SocketAddr::new(from, number(0)), SocketAddr::new(to, number(2)));
            Ok(Held::Sctp { from, to, ecn, bytes: &datagram[8..] })
        }
        ICMP | ICMPV6 => {
            // 3 and 1: a destination cannot be reached. Everything else of theirs is housekeeping.
            let about = bytes.first().is_some_and(|kind| [1, 2, 3].contains(kind));
            Ok(if about { Held::Icmp } else { Held::Other })
        }
        _ => Ok(Held::Other),
    }
}

/// A frame with an SCTP packet: in UDP if `from` has a port.
#[must_use]
pub(super) fn sctp(cards: (Mac, Mac), from: SocketAddr, to: SocketAddr, ecn: Ecn, bytes: &[u8]) -> Vec<u8> {
    if from.port() == 0 {
        return ip(cards, from.ip(), to.ip(), SCTP, ecn, bytes);
    }
    let len = 8 + bytes.len();
    let mut datagram = Vec::with_capacity(len);
    for number in [from.port(), to.port(), len as u16, 0] {
        datagram.extend(number.to_be_bytes());
    }
    datagram.extend(bytes);
    let check = !sum(pseudo(from.ip(), to.ip(), UDP, len), &datagram);
    // A sum of zero would say that there is none.
    datagram[6..8].copy_from_slice(&(if check == 0 { 0xffff } else { check }).to_be_bytes());
    ip(cards, from.ip(), to.ip(), UDP, ecn, &datagram)
}

/// The answer to a question: `address` is at the first of `cards`.
#[must_use]
pub(super) fn answer(cards: (Mac, Mac), address: IpAddr, asker: IpAddr) -> Vec<u8> {
    match (address, asker) {
        (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
            let mut frame = ethernet(cards, [0x08, 0x06]);
            frame.extend([0, 1, 0x08, 0, 6, 4, 0, 2]);
            frame.extend(cards.0);
            frame.extend(ours.octets());
            frame.extend(cards.1);
            frame.extend(theirs.octets());
            frame
        }
        (address, asker) => {
            // Neighbor Advertisement, solicited and overriding, with the target's link-layer address.
            let mut message = vec![136, 0, 0, 0, 0x60, 0, 0, 0];
            message.extend(v6(address).octets());
            message.extend([2, 1]);
            message.extend(cards.0);
            let check = !sum(pseudo(address, asker, ICMPV6, message.len()), &message);
            message[2..4].copy_from_slice(&check.to_be_bytes());
            ip(cards, address, asker, ICMPV6, Ecn::NotEct, &message)
        }
    }
}

fn ethernet(cards: (Mac, Mac), kind: [u8; 2]) -> Vec<u8> {
    [&cards.1[..], &cards.0, &kind].concat()
}

fn v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(a) => a.to_ipv6_mapped(),
        IpAddr::V6(a) => a,
    }
}

fn ip(cards: (Mac, Mac), from: IpAddr, to: IpAddr, protocol: u8, ecn: Ecn, payload: &[u8]) -> Vec<u8> {
    let mut frame;
    if let (IpAddr::V4(from), IpAddr::V4(to)) = (from, to) {
        frame = ethernet(cards, [0x08, 0x00]);
        frame.extend(v4_header(from, to, protocol, ecn, payload.len()));
    } else {
        frame = ethernet(cards, [0x86, 0xdd]);
        frame.extend([0x60, (ecn as u8) << 4, 0, 0]);
        frame.extend((payload.len() as u16).to_be_bytes());
        frame.extend([protocol, 255]);
        frame.extend(v6(from).octets());
        frame.extend(v6(to).octets());
    }
    frame.extend(payload);
    frame
}

fn v4_header(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, ecn: Ecn, payload: usize) -> [u8; 20] {
    let mut head = [0; 20];
    head[0] = 0x45;
    head[1] = ecn as u8;
    head[2..4].copy_from_slice(&((20 + payload) as u16).to_be_bytes());
    // Not to be fragmented, so that it needs no number either (RFC 6864 section 4.1).
    head[6] = 0x40;
    (head[8], head[9]) = (64, protocol);
    head[12..16].copy_from_slice(&from.octets());
    head[16..20].copy_from_slice(&to.octets());
    let check = !sum(0, &head);
    head[10..12].copy_from_slice(&check.to_be_bytes());
    head
}

/// The internet checksum's sum (RFC 1071) of `bytes` and what was there before; 0xffff where a checksum in it is right.
fn sum(before: u32, bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w.get(1).copied().unwrap_or(0)])));
    let mut sum: u32 = before + words.sum::<u32>();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

/// The sum of the pseudo header (RFC 768; RFC 8200 section 8.1).
fn pseudo(from: IpAddr, to: IpAddr, protocol: u8, len: usize) -> u32 {
    let octets = |a: IpAddr| match a {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    };
    u32::from(sum(0, &[octets(from), octets(to)].concat())) + u32::from(protocol) + len as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARDS: (Mac, Mac) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);

    #[test]
    fn packets_come_out_as_they_went_in() {
        for (from, to) in
            [("10.9.0.1:19899", "10.9.0.2:9899"), ("10.9.0.1:0", "10.9.0.2:0"), ("[fd09::1]:5", "[fd09::2]:6")]
        {
            let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
            for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ce] {
                for bytes in [&b"even"[..], b"odd", b""] {
                    let frame = sctp(CARDS, from, to, ecn, bytes);
                    assert_eq!(read(&frame), Ok(Held::Sctp { from, to, ecn, bytes }));
                    assert_eq!(frame[..12], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
                }
            }
        }
    }

    #[test]
    fn what_is_damaged_is_noticed() {
        let (from, to) = ("10.9.0.1:1".parse().unwrap(), "10.9.0.2:2".parse().unwrap());
        let good = sctp(CARDS, from, to, Ecn::NotEct, b"something");
        for at in 14..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert_ne!(read(&bad), read(&good), "byte {at}");
            assert!(read(&good[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn fragments_come_together_in_any_order() {
        let (from, to) = ("10.9.0.1:1".parse().unwrap(), "10.9.0.2:2".parse().unwrap());
        let bytes: Vec<u8> = (0..100).collect();
        let whole = sctp(CARDS, from, to, Ecn::Ect0, &bytes);
        let part = |range: std::ops::Range<usize>, more: bool| {
            let payload = &whole[34..][range.clone()];
            let (IpAddr::V4(a), IpAddr::V4(b)) = (from.ip(), to.ip()) else { panic!() };
            let mut head = v4_header(a, b, UDP, Ecn::Ect0, payload.len());
            let field = (range.start / 8) as u16 | if more { 0x2000 } else { 0 };
            head[4..6].copy_from_slice(&77u16.to_be_bytes());
            head[6..8].copy_from_slice(&field.to_be_bytes());
            head[10..12].copy_from_slice(&[0, 0]);
            let check = !sum(0, &head);
            head[10..12].copy_from_slice(&check.to_be_bytes());
            [&whole[..14], &head, payload].concat()
        };
        let parts = [part(0..48, true), part(48..64, true), part(64..108, false)];
        for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
            let mut fragments = Fragments::default();
            for (n, i) in order.into_iter().enumerate() {
                let Ok(Held::Fragment(f)) = read(&parts[i]) else { panic!("{i}") };
                let held = fragments.take(&f);
                let expected = if n < 2 { Held::Other } else { Held::Sctp { from, to, ecn: Ecn::Ect0, bytes: &bytes } };
                assert_eq!(held, Ok(expected));
            }
            assert!(fragments.waiting.is_empty());
        }
    }

    #[test]
    fn questions_are_understood_and_answered() {
        // As Linux asks: who has 10.9.0.1? Tell 10.9.0.2.
        let mut arp = ethernet((CARDS.1, [255; 6]), [0x08, 0x06]);
        arp.extend([0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 2, 10, 9, 0, 2, 0, 0, 0, 0, 0, 0, 10, 9, 0, 1]);
        let (about, from) = ("10.9.0.1".parse().unwrap(), "10.9.0.2".parse().unwrap());
        assert_eq!(read(&arp), Ok(Held::Question { about, from }));
        let reply = answer(CARDS, about, from);
        assert_eq!(reply[20..], [0, 2, 2, 0, 0, 0, 0, 1, 10, 9, 0, 1, 2, 0, 0, 0, 0, 2, 10, 9, 0, 2]);
        assert_eq!(read(&reply), Ok(Held::Other));

        let (about, from): (IpAddr, IpAddr) = ("fd09::1".parse().unwrap(), "fd09::2".parse().unwrap());
        let mut ask = vec![135, 0, 0, 0, 0, 0, 0, 0];
        ask.extend(v6(about).octets());
        let frame = ip((CARDS.1, [0x33, 0x33, 0xff, 0, 0, 1]), from, about, ICMPV6, Ecn::NotEct, &ask);
        assert_eq!(read(&frame), Ok(Held::Question { about, from }));
        let reply = answer(CARDS, about, from);
        assert_eq!(sum(pseudo(about, from, ICMPV6, 32), &reply[54..]), 0xffff, "its sum is right");
    }
}
