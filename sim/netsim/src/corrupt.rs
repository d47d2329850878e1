//! What a wrong bit does to a packet.
//!
//! The checksums of TCP, UDP and ICMP find every single wrong bit behind the IP header (a one's complement sum changes with
//! each), so the receiver drops the packet. UDP over IPv4 may go without (RFC 768): then the bit reaches whoever the ports
//! name. UDP-Lite has a checksum that may cover the beginning only (RFC 3828 section 3.1): a wrong bit behind that reaches the
//! receiver, and others on the way to it.

use crate::packet::{Body, Packet, UDP_HEADER, covered};
use bytes::Bytes;
use neater_link::Corruption;
use std::net::SocketAddr;

/// The packet as its receiver sees it; `None` if it drops it. `unchecked` is a datagram without a checksum.
pub(crate) fn received(mut packet: Packet, corruption: Corruption, unchecked: bool) -> Option<Packet> {
    if !unchecked {
        return None;
    }
    let Body::Udp(payload) = &packet.body else { return None };
    let flipped = |addr: SocketAddr, bit: u32| SocketAddr::new(addr.ip(), addr.port() ^ (0x8000 >> bit));
    match corruption.bit {
        bit @ 0..=15 => packet.source = flipped(packet.source, bit),
        bit @ 16..=31 => packet.destination = flipped(packet.destination, bit - 16),
        bit @ 32..=47 => {
            // A shorter length cuts the datagram off, a longer one than the packet has makes it invalid.
            let len = (payload.len() as u32 + UDP_HEADER) ^ (0x8000 >> (bit - 32));
            let kept = len.checked_sub(UDP_HEADER).map(|n| n as usize).filter(|n| *n <= payload.len())?;
            packet.body = Body::Udp(payload.slice(..kept));
        }
        // A checksum where there was none, and the wrong one.
        48..=63 => return None,
        bit => packet.body = Body::Udp(flipped_payload(payload, bit)?),
    }
    Some(packet)
}

/// Whether no checksum covers a bit of a packet, counted as that of a [`Corruption`]: a bit of a UDP-Lite datagram.
pub(crate) fn is_uncovered(packet: &Packet, bit: u32) -> bool {
    match &packet.body {
        Body::UdpLite { payload, coverage } => (bit / 8) as usize >= covered(*coverage, payload.len()),
        _ => false,
    }
}

/// Flips a bit of a packet that no checksum covers. False: one does, or there is no such bit.
pub(crate) fn damage(packet: &mut Packet, bit: u32) -> bool {
    if !is_uncovered(packet, bit) {
        return false;
    }
    let Body::UdpLite { payload, .. } = &mut packet.body else { return false };
    let Some(damaged) = flipped_payload(payload, bit) else { return false };
    *payload = damaged;
    true
}

/// A payload with a wrong bit, which is counted from the beginning of the header before it.
fn flipped_payload(payload: &Bytes, bit: u32) -> Option<Bytes> {
    let mut bytes = payload.to_vec();
    *bytes.get_mut((bit / 8).checked_sub(UDP_HEADER)? as usize)? ^= 0x80 >> (bit % 8);
    Some(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use neater_base::net::Ecn;

    fn datagram() -> Packet {
        let addr = |s: &str| s.parse().unwrap();
        let body = Body::Udp(vec![0; 10].into());
        let (source, destination) = (addr("192.0.2.1:1"), addr("192.0.2.2:2"));
        Packet { source, destination, ecn: Ecn::NotEct, pieces: None, body }
    }

    fn payload(packet: &Packet) -> &[u8] {
        if let Body::Udp(bytes) = &packet.body { bytes } else { &[] }
    }

    #[test]
    fn a_checksum_finds_a_wrong_bit_and_without_one_it_gets_through() {
        for bit in 0..144 {
            assert!(received(datagram(), Corruption { bit }, false).is_none());
        }
        let got = |bit| received(datagram(), Corruption { bit }, true);
        assert_eq!(got(15).unwrap().source.port(), 0);
        assert_eq!(got(16).unwrap().destination.port(), 0x8002);
        // 18 bytes of header and payload: 16 + 2 less 2 is 16, and 18 + 4 is too many.
        assert_eq!(payload(&got(46).unwrap()), [0; 8]);
        assert!(got(45).is_none() && got(48).is_none() && got(63).is_none());
        assert_eq!(payload(&got(64).unwrap()), [0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(payload(&got(143).unwrap()), [0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn a_checksum_that_covers_a_part_finds_the_wrong_bits_of_that_part() {
        for (coverage, covered) in [(8, 64), (12, 96), (17, 136), (18, 144), (0, 144)] {
            for bit in 0..145 {
                let mut packet = datagram();
                packet.body = Body::UdpLite { payload: vec![0; 10].into(), coverage };
                assert!(
                    received(packet.clone(), Corruption { bit }, false).is_none(),
                    "what is not damaged at once is lost"
                );
                assert_eq!(damage(&mut packet, bit), (covered..144).contains(&bit), "{coverage} {bit}");
                let Body::UdpLite { payload, .. } = packet.body else { unreachable!() };
                let wrong = (0..80).filter(|i| payload[i / 8] & 0x80 >> (i % 8) != 0).map(|i| i as u32 + 64);
                assert!(wrong.eq((covered..144).contains(&bit).then_some(bit)));
            }
        }
        assert!(!damage(&mut datagram(), 143), "one of UDP");
    }
}
