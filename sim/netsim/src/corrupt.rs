//! What a wrong bit does to a packet.
//!
//! The checksums of TCP, UDP and ICMP find every single wrong bit behind the IP header (a one's complement sum changes with
//! each), so the receiver drops the packet. UDP over IPv4 may go without (RFC 768): then the bit reaches whoever the ports
//! name.

use crate::packet::{Body, Packet, UDP_HEADER};
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
        bit => {
            let at = (bit / 8 - UDP_HEADER) as usize;
            let mut bytes = payload.to_vec();
            *bytes.get_mut(at)? ^= 0x80 >> (bit % 8);
            packet.body = Body::Udp(bytes.into());
        }
    }
    Some(packet)
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
}
