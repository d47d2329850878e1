//! Packets that nobody sent: resets and ICMP errors as an attacker on the path, or a middlebox, would make them, and datagrams
//! under a false address.
//!
//! *Responsible for* making them credible: they carry the numbers that the receiver checks. *Not responsible for* what the
//! receiver makes of them. They arrive at once and cross no link.

use crate::packet::{Body, Icmp, IcmpKind, Packet};
use crate::sim::Sim;
use crate::socket::Kind;
use crate::tcp::Segment;
use crate::world::{HostId, World};
use neater_base::Key;
use neater_base::net::Ecn;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// What a forged ICMP error says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForgedIcmp {
    /// Nobody listens at the port.
    PortUnreachable,
    /// There is no way to the host.
    HostUnreachable,
    /// A firewall does not let it pass.
    Prohibited,
    /// A packet must not be larger than this, in bytes.
    TooBig(u32),
}

impl ForgedIcmp {
    const fn kind(self) -> IcmpKind {
        match self {
            Self::PortUnreachable => IcmpKind::PortUnreachable,
            Self::HostUnreachable => IcmpKind::HostUnreachable,
            Self::Prohibited => IcmpKind::Prohibited,
            Self::TooBig(mtu) => IcmpKind::TooBig { mtu },
        }
    }
}

impl World {
    /// Resets one of a host's TCP connections, the `nth` in an order of its own (modulo their number), with the sequence
    /// number that RFC 5961 section 3.2 asks for. The peer hears nothing of it. False: the host has no connection that
    /// could be reset.
    pub fn forge_reset(&self, host: HostId, nth: u64) -> bool {
        self.with(|sim| sim.forge_reset(host, nth))
    }

    /// Tells a host that a packet of one of its TCP connections or connected UDP sockets, the `nth` (modulo their number),
    /// has met with an error. False: it has none.
    pub fn forge_icmp(&self, host: HostId, nth: u64, what: ForgedIcmp) -> bool {
        self.with(|sim| sim.forge_icmp(host, nth, what))
    }

    /// An ICMP error arrives about a datagram that `source` is said to have sent to `destination`, and that began like this. False:
    /// nobody has the address `source`.
    pub fn forge_icmp_about(
        &self,
        source: SocketAddr,
        destination: SocketAddr,
        begins: &[u8],
        what: ForgedIcmp,
    ) -> bool {
        self.with(|sim| sim.forge_icmp_about(source, destination, begins, what))
    }

    /// A datagram arrives at an address of this world's from wherever `source` says, as anybody can make it who may send
    /// from false addresses. Answers go to the address's owner. False: nobody has that address.
    pub fn forge_datagram(&self, source: SocketAddr, destination: SocketAddr, contents: &[u8]) -> bool {
        self.with(|sim| sim.forge_datagram(source, destination, contents))
    }

    /// The owner of an address sends a datagram from it, now, as if one of its programs had: it takes the way that routes say. It is
    /// for tests of a network: no socket hears of an answer. False: nobody has the address `source`, or there is no way.
    pub fn send_datagram(&self, source: SocketAddr, destination: SocketAddr, contents: bytes::Bytes) -> bool {
        self.with(|sim| sim.send_datagram(source, destination, contents))
    }
}

fn pick<T>(mut all: Vec<T>, nth: u64) -> Option<T> {
    let at = nth.checked_rem(all.len() as u64)?;
    Some(all.swap_remove(at as usize))
}

impl Sim {
    fn send_datagram(&mut self, source: SocketAddr, destination: SocketAddr, contents: bytes::Bytes) -> bool {
        let Some(from) = self.owners.get(&source.ip()).copied() else { return false };
        let Ok(found) = self.lookup(from.host, destination.ip(), None, Some(source.ip()), None) else { return false };
        let body = Body::Udp(contents);
        self.send_packet(Packet { source, destination, ecn: Ecn::NotEct, pieces: Some(found.mtu), body }, found.route);
        true
    }

    fn forge_datagram(&mut self, source: SocketAddr, destination: SocketAddr, contents: &[u8]) -> bool {
        let Some(to) = self.owners.get(&destination.ip()).copied() else { return false };
        let payload = bytes::Bytes::copy_from_slice(contents);
        let body = Body::Udp(payload.clone());
        self.udp_input(to, &Packet { source, destination, ecn: Ecn::NotEct, pieces: None, body }, &payload);
        true
    }

    fn forge_reset(&mut self, id: HostId, nth: u64) -> bool {
        let conns: Vec<Key> = self
            .host(id)
            .conns
            .iter()
            .filter(|(_, e)| e.conn.was_established() && !e.conn.is_closed())
            .map(|(k, _)| k)
            .collect();
        let Some(entry) = pick(conns, nth).and_then(|key| self.host(id).conns.get(key)) else { return false };
        let segment = Segment { seq: entry.conn.receive_next(), rst: true, ..Segment::default() };
        let (source, destination) = (entry.remote, entry.local);
        let body = Body::Tcp(segment.clone());
        self.tcp_input(id, &Packet { source, destination, ecn: Ecn::NotEct, pieces: None, body }, &segment);
        true
    }

    fn forge_icmp(&mut self, id: HostId, nth: u64, what: ForgedIcmp) -> bool {
        let host = self.host(id);
        let tcp = host.conns.iter().filter(|(_, e)| !e.conn.is_closed()).map(|(_, e)| {
            let body = Body::Tcp(Segment { seq: e.conn.highest_sent(), ..Segment::default() });
            (e.local, e.remote, body)
        });
        let udp = host.sockets.iter().filter_map(|(_, s)| match &s.kind {
            Kind::Udp(udp) => {
                let zeros = bytes::Bytes::from_static(&[0; 1200]);
                Some((udp.local, udp.remote?, crate::udp::body(udp.lite, zeros)))
            }
            _ => None,
        });
        let Some((source, destination, body)) = pick(tcp.chain(udp).collect(), nth) else { return false };
        let packet = Packet { source, destination, ecn: Ecn::NotEct, pieces: None, body };
        self.forged_icmp(id, &packet, what)
    }

    fn forge_icmp_about(&mut self, from: SocketAddr, to: SocketAddr, begins: &[u8], what: ForgedIcmp) -> bool {
        let Some(id) = self.owners.get(&from.ip()).map(|to| to.host) else { return false };
        let body = Body::Udp(bytes::Bytes::copy_from_slice(begins));
        self.forged_icmp(id, &Packet { source: from, destination: to, ecn: Ecn::NotEct, pieces: None, body }, what)
    }

    fn forged_icmp(&mut self, id: HostId, packet: &Packet, what: ForgedIcmp) -> bool {
        let Some(quoted) = packet.quote() else { return false };
        let offender: IpAddr = match packet.destination {
            SocketAddr::V4(_) => Ipv4Addr::new(198, 18, 0, 66).into(),
            SocketAddr::V6(_) => Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0x66).into(),
        };
        self.icmp_input(id, Icmp { kind: what.kind(), quoted }, offender);
        true
    }
}
