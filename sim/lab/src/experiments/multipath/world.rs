//! Two hosts and the links between them, in virtual time: what experiments with several paths have
//! in common.

use super::cross::Cross;
use neater_base::Instant;
use neater_base::net::Ecn;
use neater_link::{Link, LinkConfig, Output, PacketMeta, Protocol};
use neater_sctp::{AssociationId, Config, Endpoint, Event, Layer, LayerId, Route};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// IPv4 and UDP.
const HEADERS: u32 = 28;
const MTU: u16 = 1500;
pub(in crate::experiments) const PORT: u16 = 5000;

/// A packet layer of an end.
pub(in crate::experiments) fn layer(address: Option<IpAddr>) -> Layer {
    Layer { address, mtu: MTU, overhead: HEADERS as u16, authenticates: false }
}

#[derive(Clone)]
pub(in crate::experiments) struct Packet {
    from: SocketAddr,
    to: SocketAddr,
    /// Nothing, where it is another's.
    bytes: Vec<u8>,
    number: u64,
    sent: Instant,
}

/// What became of the packets of one direction of one link.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::experiments) struct Carried {
    sent: u64,
    pub(in crate::experiments) delivered: u64,
    /// Of those, what came after one that was sent later.
    pub(in crate::experiments) reordered: u64,
    newest: u64,
    delay: Duration,
}

impl Carried {
    fn deliver(&mut self, packet: &Packet, at: Instant) {
        self.delivered += 1;
        self.reordered += u64::from(packet.number < self.newest);
        self.newest = self.newest.max(packet.number);
        self.delay += at - packet.sent;
    }

    /// The mean time on the way in milliseconds, queues included.
    pub(in crate::experiments) fn mean_delay_ms(&self) -> f64 {
        self.delay.as_secs_f64() * 1e3 / self.delivered.max(1) as f64
    }
}

/// The address of an end on a path.
pub(in crate::experiments) fn address(end: usize, path: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, path as u8, 0, end as u8 + 1)), neater_sctp_wire::UDP_PORT)
}

/// Both hosts, and what is under way between them.
pub(in crate::experiments) struct World {
    pub(in crate::experiments) now: Instant,
    pub(in crate::experiments) ends: [Endpoint; 2],
    links: [Vec<Link<Packet>>; 2],
    pub(in crate::experiments) carried: [Vec<Carried>; 2],
    cross: [Vec<Cross>; 2],
    buffer: Vec<u8>,
    pub(in crate::experiments) events: [Vec<(Instant, AssociationId, Event)>; 2],
    /// The association whose data the second host's application reads as it comes, and the bytes of
    /// it.
    pub(in crate::experiments) reader: Option<AssociationId>,
    pub(in crate::experiments) read: u64,
    /// How much had been read by when, at each time that it became more.
    pub(in crate::experiments) course: Vec<(Instant, u64)>,
}

/// The path that an address of an end is on.
fn path_of(address: SocketAddr) -> usize {
    match address.ip() {
        IpAddr::V4(ip) => usize::from(ip.octets()[1]),
        IpAddr::V6(_) => 0,
    }
}

impl World {
    /// Two ends, one link each way for each path, and what others send on each path, in both
    /// directions, in bytes per second.
    pub(in crate::experiments) fn new(configs: [Config; 2], links: &[LinkConfig], cross: &[f64], seed: u64) -> Self {
        let [a, b] = configs;
        let end = |config, end: u8| Endpoint::new(config, [seed as u8 ^ (0x33 * end); 32], &[end; 32]);
        let ways = |way: u64| {
            let link = |(path, c): (usize, &LinkConfig)| Link::new(c.clone(), seed * 100 + way * 10 + path as u64);
            links.iter().enumerate().map(link).collect()
        };
        let now = Instant::ZERO + Duration::from_secs(1000);
        let others = |way: u64| {
            let of = |(path, rate): (usize, &f64)| Cross::new(*rate, now, seed * 100 + 50 + way * 10 + path as u64);
            cross.iter().enumerate().map(of).collect()
        };
        Self {
            now,
            ends: [end(a, 0), end(b, 1)],
            links: [ways(0), ways(1)],
            carried: [vec![Carried::default(); links.len()], vec![Carried::default(); links.len()]],
            cross: [others(0), others(1)],
            buffer: vec![0; 65_536],
            events: Default::default(),
            reader: None,
            read: 0,
            course: Vec::new(),
        }
    }

    fn flush(&mut self) {
        for end in 0..2 {
            while let Some(sent) = self.ends[end].poll_transmit(self.now, &mut self.buffer) {
                // The first host has a layer for each link; where the second has one for all, the
                // address says which.
                let path = if end == 0 { usize::from(sent.route.layer.0) } else { path_of(sent.route.remote) };
                let from = if end == 0 { address(end, path) } else { address(end, usize::from(sent.route.layer.0)) };
                let to = sent.route.remote;
                let carried = &mut self.carried[end][path];
                carried.sent += 1;
                let bytes = self.buffer[..sent.len].to_vec();
                let packet = Packet { from, to, bytes, number: carried.sent, sent: self.now };
                let meta = PacketMeta { protocol: Protocol::Udp, source: from, destination: to, ecn: Ecn::NotEct };
                self.links[end][path].offer(self.now, packet, sent.len as u32 + HEADERS, &meta);
            }
            while let Some((id, event)) = self.ends[end].poll_event() {
                self.events[end].push((self.now, id, event));
            }
        }
    }

    /// Runs until then.
    pub(in crate::experiments) fn run_to(&mut self, limit: Instant) {
        self.flush();
        loop {
            let links = self.links.iter().flatten().filter_map(Link::next_timeout);
            let ends = self.ends.iter().filter_map(Endpoint::next_timeout);
            let others = self.cross.iter().flatten().filter_map(Cross::next_timeout);
            let Some(next) = links.chain(ends).chain(others).min().filter(|n| *n <= limit) else { break };
            self.now = self.now.max(next);
            for way in 0..2 {
                for path in 0..self.links[way].len() {
                    self.others_send(way, path);
                    while let Some(output) = self.links[way][path].poll(self.now) {
                        let Output::Deliver { packet, ce, .. } = output else { continue };
                        if packet.bytes.is_empty() {
                            continue;
                        }
                        let Some(layer) = (0..self.links[way].len()).find(|p| address(1 - way, *p) == packet.to) else {
                            continue;
                        };
                        self.carried[way][path].deliver(&packet, self.now);
                        let route = Route { layer: LayerId(layer as u16), remote: packet.from };
                        self.ends[1 - way].handle_packet(self.now, route, ce, &packet.bytes);
                    }
                }
            }
            self.ends.iter_mut().for_each(|end| end.handle_timeout(self.now));
            while let Some(message) = self.reader.and_then(|id| self.ends[1].receive(id)) {
                self.read += message.payload.len() as u64;
            }
            if self.course.last().map_or(0, |(_, read)| *read) < self.read {
                self.course.push((self.now, self.read));
            }
            self.flush();
        }
        self.now = limit;
    }

    fn others_send(&mut self, way: usize, path: usize) {
        let Some(cross) = self.cross[way].get_mut(path) else { return };
        while let Some(length) = cross.poll(self.now) {
            let (from, to) = (address(2 + way, path), address(3 - way, path));
            let meta = PacketMeta { protocol: Protocol::Udp, source: from, destination: to, ecn: Ecn::NotEct };
            self.links[way][path].offer(
                self.now,
                Packet { from, to, bytes: Vec::new(), number: 0, sent: self.now },
                length,
                &meta,
            );
        }
    }

    pub(in crate::experiments) fn set_down(&mut self, path: usize, down: bool) {
        for way in &mut self.links {
            let config = way[path].config().clone().with_down(down);
            way[path].set_config(self.now, config);
        }
    }
}
