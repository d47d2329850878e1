//! What travels over the links.

use crate::tcp::{Segment, Seq};
use bytes::Bytes;
use neater_base::net::{Ecn, ErrorKind};
use neater_link::{PacketMeta, Protocol};
use std::net::{IpAddr, SocketAddr};

/// Bytes of a UDP or UDP-Lite header.
pub(crate) const UDP_HEADER: u32 = 8;
/// Bytes of an ICMP or ICMPv6 header.
const ICMP_HEADER: u32 = 8;
/// Bytes of an IPv6 fragment header (RFC 8200 section 4.5).
const V6_FRAGMENT_HEADER: u32 = 8;
/// What an ICMP error may grow to (RFC 1812 section 4.3.2.3).
const MAX_ICMPV4: u32 = 576;
/// What an ICMPv6 error may grow to: the minimum IPv6 MTU (RFC 4443 section 2.4).
const MAX_ICMPV6: u32 = 1280;

/// How many bytes of a UDP-Lite datagram the checksum covers, header included, of one whose header says `coverage` and whose
/// payload has `len` bytes (RFC 3828 section 3.1).
pub(crate) fn covered(coverage: u16, len: usize) -> usize {
    let whole = UDP_HEADER as usize + len;
    if coverage == 0 { whole } else { whole.min(coverage.into()) }
}

/// Bytes of an IP header without options or extensions.
pub(crate) const fn ip_header(addr: &IpAddr) -> u32 {
    match addr {
        IpAddr::V4(_) => 20,
        IpAddr::V6(_) => 40,
    }
}

/// An IP packet.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) ecn: Ecn,
    /// The size of the pieces that the source cuts it into, in bytes; `None` forbids fragmentation everywhere.
    pub(crate) pieces: Option<u32>,
    pub(crate) body: Body,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    Udp(Bytes),
    UdpLite {
        payload: Bytes,
        /// As the header says; see [`covered`].
        coverage: u16,
    },
    Tcp(Segment),
    Icmp(Icmp),
}

/// An ICMP or ICMPv6 error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Icmp {
    pub(crate) kind: IcmpKind,
    /// The head of the packet that caused it.
    pub(crate) quoted: Quoted,
}

/// What an ICMP error quotes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quoted {
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) protocol: Protocol,
    /// The sequence number of a TCP segment.
    pub(crate) seq: Option<Seq>,
    /// The checksum coverage of a UDP-Lite datagram.
    pub(crate) coverage: Option<u16>,
    /// The beginning of what a datagram carries.
    pub(crate) payload: neater_base::net::Quoted,
    len: u32,
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IcmpKind {
    PortUnreachable,
    ProtocolUnreachable,
    HostUnreachable,
    Prohibited,
    TooBig { mtu: u32 },
    TimeExceeded,
}

impl Quoted {
    /// Bytes of the packet that is quoted.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }
}

impl IcmpKind {
    /// Type and code (RFC 792, RFC 1191 and RFC 1812; RFC 4443 for IPv6).
    pub(crate) const fn type_and_code(self, v6: bool) -> (u8, u8) {
        match (self, v6) {
            (Self::HostUnreachable, false) => (3, 1),
            (Self::ProtocolUnreachable, false) => (3, 2),
            (Self::PortUnreachable, false) => (3, 3),
            (Self::TooBig { .. }, false) => (3, 4),
            (Self::Prohibited, false) => (3, 13),
            (Self::TimeExceeded, false) => (11, 0),
            (Self::TimeExceeded, true) => (3, 0),
            (Self::Prohibited, true) => (1, 1),
            (Self::HostUnreachable, true) => (1, 3),
            (Self::PortUnreachable, true) => (1, 4),
            (Self::TooBig { .. }, true) => (2, 0),
            (Self::ProtocolUnreachable, true) => (4, 1),
        }
    }

    /// What a socket call reports for it, as Linux translates it.
    pub(crate) const fn error(self, v6: bool) -> ErrorKind {
        match self {
            Self::PortUnreachable => ErrorKind::ConnectionRefused,
            Self::ProtocolUnreachable if v6 => ErrorKind::Other,
            Self::ProtocolUnreachable => ErrorKind::Unsupported,
            Self::Prohibited if v6 => ErrorKind::PermissionDenied,
            Self::HostUnreachable | Self::Prohibited | Self::TimeExceeded => ErrorKind::HostUnreachable,
            Self::TooBig { .. } => ErrorKind::MessageTooLarge,
        }
    }

    /// Whether a connected UDP socket reports it without being asked to.
    pub(crate) const fn is_hard(self) -> bool {
        matches!(self, Self::PortUnreachable | Self::ProtocolUnreachable | Self::Prohibited)
    }
}

impl Packet {
    /// Bytes of the whole packet, IP header included, before any fragmentation.
    pub(crate) fn len(&self) -> u32 {
        let ip = ip_header(&self.source.ip());
        ip + match &self.body {
            Body::Udp(payload) | Body::UdpLite { payload, .. } => UDP_HEADER + payload.len() as u32,
            Body::Tcp(segment) => segment.wire_len(),
            // As much as fits: RFC 1812 section 4.3.2.3, RFC 4443 section 3.
            Body::Icmp(icmp) => {
                let most = if self.source.is_ipv4() { MAX_ICMPV4 } else { MAX_ICMPV6 };
                ICMP_HEADER + icmp.quoted.len.min(most - ip - ICMP_HEADER)
            }
        }
    }

    /// The network has marked it (RFC 3168 section 5): its segment says so too.
    pub(crate) fn mark_ce(&mut self) {
        self.ecn = Ecn::Ce;
        if let Body::Tcp(segment) = &mut self.body {
            segment.ecn = Ecn::Ce;
        }
    }

    pub(crate) fn protocol(&self) -> Protocol {
        match self.body {
            Body::Udp(_) => Protocol::Udp,
            Body::UdpLite { .. } => Protocol::UDP_LITE,
            Body::Tcp(_) => Protocol::Tcp,
            Body::Icmp(_) => Protocol::Icmp,
        }
    }

    pub(crate) fn meta(&self) -> PacketMeta {
        PacketMeta { protocol: self.protocol(), source: self.source, destination: self.destination, ecn: self.ecn }
    }

    /// What an ICMP error about this packet quotes; none for an ICMP error.
    pub(crate) fn quote(&self) -> Option<Quoted> {
        let (seq, payload) = match &self.body {
            Body::Icmp(_) => return None,
            Body::Tcp(segment) => (Some(segment.seq), neater_base::net::Quoted::default()),
            Body::Udp(payload) | Body::UdpLite { payload, .. } => (None, neater_base::net::Quoted::new(payload)),
        };
        let coverage = if let Body::UdpLite { coverage, .. } = &self.body { Some(*coverage) } else { None };
        let protocol = self.protocol();
        let (source, destination, len) = (self.source, self.destination, self.len());
        Some(Quoted { source, destination, protocol, seq, coverage, payload, len })
    }

    /// How long the packet is, if it crosses a link of `mtu` bytes in one piece; else [`Packet::pieces`] tells.
    #[inline]
    pub(crate) fn whole(&self, mtu: u32) -> Option<u32> {
        let len = self.len();
        let Some(own) = self.pieces else { return Some(len) };
        let size = if self.source.is_ipv4() { own.min(mtu) } else { own };
        (len <= size).then_some(len)
    }

    /// Bytes of the headers that each piece has: IP, and for IPv6 the fragment header.
    pub(crate) fn piece_headers(&self) -> u32 {
        let fragment = if self.source.is_ipv4() { 0 } else { V6_FRAGMENT_HEADER };
        ip_header(&self.source.ip()) + fragment
    }

    /// The lengths of the IP packets that this one crosses a link of `mtu` bytes in. IPv4 routers fragment further, IPv6
    /// routers do not (RFC 8200 section 5).
    pub(crate) fn pieces(&self, mtu: u32) -> Vec<u32> {
        let len = self.len();
        let Some(own) = self.pieces else { return vec![len] };
        let size = if self.source.is_ipv4() { own.min(mtu) } else { own };
        if len <= size {
            return vec![len];
        }
        let header = self.piece_headers();
        // All pieces but the last carry a multiple of eight bytes.
        let room = (size.saturating_sub(header) & !7).max(8);
        let payload = len - ip_header(&self.source.ip());
        (0..payload.div_ceil(room)).map(|i| header + room.min(payload - i * room)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn udp(source: &str, len: usize, pieces: Option<u32>) -> Packet {
        let source: SocketAddr = source.parse().unwrap();
        let body = Body::Udp(vec![0; len].into());
        Packet { source, destination: source, ecn: Ecn::NotEct, pieces, body }
    }

    #[test]
    fn sizes_count_all_headers() {
        assert_eq!(udp("192.0.2.1:1", 100, None).len(), 128);
        assert_eq!(udp("[2001:db8::1]:1", 100, None).len(), 148);
        let kind = IcmpKind::PortUnreachable;
        for (payload, len) in [(10, 66), (1000, 576)] {
            let mut icmp = udp("192.0.2.1:1", payload, None);
            icmp.body = Body::Icmp(Icmp { kind, quoted: icmp.quote().unwrap() });
            assert_eq!(icmp.len(), len);
        }
        let mut icmp = udp("192.0.2.1:1", 1000, None);
        icmp.body = Body::Icmp(Icmp { kind, quoted: icmp.quote().unwrap() });
        assert!(icmp.quote().is_none());
        let mut icmp = udp("[2001:db8::1]:1", 4000, None);
        icmp.body = Body::Icmp(Icmp { kind, quoted: icmp.quote().unwrap() });
        assert_eq!(icmp.len(), 1280);
    }

    #[test]
    fn fragments_carry_everything_and_fit() {
        for (source, header) in [("192.0.2.1:1", 20), ("[2001:db8::1]:1", 48)] {
            let pieces = udp(source, 4000, Some(1500)).pieces(1500);
            assert!(pieces.iter().all(|p| *p <= 1500));
            assert_eq!(pieces.iter().map(|p| p - header).sum::<u32>(), 4008);
            assert_eq!(pieces.len(), 3);
        }
        assert_eq!(udp("192.0.2.1:1", 4000, None).pieces(1500), [4028]);
    }

    #[test]
    fn only_ipv4_is_fragmented_on_the_way() {
        assert!(udp("192.0.2.1:1", 1400, Some(1500)).pieces(600).iter().all(|p| *p <= 600));
        assert_eq!(udp("[2001:db8::1]:1", 1400, Some(1500)).pieces(600), [1448]);
    }
}
