//! Two endpoints over links, in virtual time.
#![allow(dead_code, unreachable_pub)]

pub mod keys;
pub mod raw;
pub mod watch;

use bytes::Bytes;
use core::time::Duration;
use neater_base::Instant;
use neater_base::net::Ecn;
use neater_link::{DropReason, Link, LinkConfig, Output, PacketMeta, Protocol};
use neater_sctp::{
    AssociationConfig, AssociationId, CloseReason, Config, Endpoint, Event, IcmpError, Layer, LayerId, Message, Route,
    SendOptions,
};
use neater_sctp_wire::StreamId;
use std::net::SocketAddr;

pub const PORTS: [u16; 2] = [5000, 5001];

/// A packet on its way.
#[derive(Clone, Debug)]
pub struct Packet {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub bytes: Vec<u8>,
    pub ect: bool,
    /// It must not be cut into fragments.
    pub whole: bool,
}

/// What a tap does with a packet before it enters the link.
pub type Tap = Box<dyn FnMut(usize, &mut Packet) -> bool>;

pub struct World {
    pub now: Instant,
    pub ends: [Endpoint; 2],
    /// Of each end: the events so far, and those of its associations in order.
    pub events: [Vec<(AssociationId, Event)>; 2],
    /// `links[way][path]`: from end `way`.
    pub links: [Vec<Link<Packet>>; 2],
    /// Addresses of the ends: `addresses[end][path]`.
    pub addresses: [Vec<SocketAddr>; 2],
    pub packets: [u64; 2],
    pub bytes: [u64; 2],
    /// Packets that a queue has marked.
    pub marks: u64,
    /// Sees every packet; false drops it.
    pub tap: Option<Tap>,
    /// Packets are taken out of the endpoints in trains of at most so many.
    pub train: usize,
    buffer: Vec<u8>,
    idle_steps: u32,
}

pub fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub fn address(end: usize, path: usize) -> SocketAddr {
    format!("10.{path}.0.{}:9899", end + 1).parse().unwrap()
}

pub fn layer(path: usize, end: usize) -> Layer {
    Layer { address: Some(address(end, path).ip()), ..Layer::udp() }
}

pub fn config(end: usize, paths: usize, association: AssociationConfig) -> Config {
    Config {
        layers: (0..paths).map(|p| layer(p, end)).collect(),
        port: PORTS[end],
        accept: end == 1,
        tell_addresses: paths > 1,
        association,
        ..Config::default()
    }
}

impl World {
    pub fn new(seed: u64, association: AssociationConfig, link: LinkConfig) -> Self {
        let configs = [config(0, 1, association.clone()), config(1, 1, association)];
        Self::with(seed, configs, vec![link])
    }

    /// One link each way for every layer of the configurations.
    pub fn with(seed: u64, configs: [Config; 2], links: Vec<LinkConfig>) -> Self {
        let [a, b] = configs;
        let make = |way: usize| -> Vec<Link<Packet>> {
            links
                .iter()
                .enumerate()
                .map(|(i, c)| Link::new(c.clone(), seed * 100 + way as u64 * 10 + i as u64))
                .collect()
        };
        let addresses = [0, 1].map(|end| (0..links.len()).map(|p| address(end, p)).collect());
        Self {
            now: Instant::ZERO + Duration::from_secs(1000),
            ends: [
                Endpoint::new(a, [seed as u8; 32], &[1; 32]),
                Endpoint::new(b, [(seed >> 8) as u8 ^ 0x55; 32], &[2; 32]),
            ],
            events: [Vec::new(), Vec::new()],
            links: [make(0), make(1)],
            addresses,
            packets: [0; 2],
            bytes: [0; 2],
            marks: 0,
            tap: None,
            train: 1,
            buffer: vec![0; 65_536],
            idle_steps: 0,
        }
    }

    pub fn route(&self, to: usize, path: usize) -> Route {
        Route { layer: LayerId(path as u16), remote: self.addresses[to][path] }
    }

    pub fn connect(&mut self, end: usize) -> AssociationId {
        let routes: Vec<Route> = (0..self.links[0].len()).map(|p| self.route(1 - end, p)).collect();
        self.ends[end].connect(self.now, PORTS[1 - end], &routes).unwrap()
    }

    /// Connects and runs until both are up.
    pub fn established(&mut self) -> [AssociationId; 2] {
        let a = self.connect(0);
        self.run_until(Duration::from_secs(60), |w| w.saw(0, &Event::Connected) && w.saw(1, &Event::Accepted));
        let b = self.events[1].iter().find(|(_, e)| *e == Event::Accepted).expect("accepted").0;
        [a, b]
    }

    pub fn saw(&self, end: usize, event: &Event) -> bool {
        self.events[end].iter().any(|(_, e)| e == event)
    }

    pub fn closed(&self, end: usize) -> Option<CloseReason> {
        self.events[end].iter().find_map(|(_, e)| match e {
            Event::Closed(reason) => Some(reason.clone()),
            _ => None,
        })
    }

    pub fn send(&mut self, end: usize, id: AssociationId, stream: u16, payload: &[u8]) {
        let payload = Bytes::copy_from_slice(payload);
        self.ends[end].send(id, StreamId(stream), payload, SendOptions::default()).unwrap();
    }

    /// Everything that can be read.
    pub fn read(&mut self, end: usize, id: AssociationId) -> Vec<Message> {
        core::iter::from_fn(|| self.ends[end].receive(id)).collect()
    }

    /// Takes packets out of the endpoints and puts them into the links, and collects events.
    pub fn flush(&mut self) {
        for end in 0..2 {
            while let Some(t) = self.ends[end].poll_train(self.now, &mut self.buffer, self.train) {
                let path = usize::from(t.route.layer.0);
                let packets: Vec<Vec<u8>> = self.buffer[..t.len].chunks(t.segment).map(<[u8]>::to_vec).collect();
                for bytes in packets {
                    self.packets[end] += 1;
                    self.bytes[end] += bytes.len() as u64;
                    let from = self.addresses[end][path];
                    let mut packet = Packet { from, to: t.route.remote, bytes, ect: t.ect, whole: t.whole };
                    let keep = match self.tap.as_mut() {
                        Some(tap) => tap(end, &mut packet),
                        None => true,
                    };
                    if keep {
                        self.offer(end, path, packet);
                    }
                }
            }
            while let Some(event) = self.ends[end].poll_event() {
                self.events[end].push(event);
            }
        }
    }

    pub fn offer(&mut self, end: usize, path: usize, packet: Packet) {
        let meta = PacketMeta {
            protocol: Protocol::Udp,
            source: packet.from,
            destination: packet.to,
            ecn: if packet.ect { Ecn::Ect0 } else { Ecn::NotEct },
        };
        let len = packet.bytes.len() as u32 + 28;
        // What may be cut goes through in pieces, each of which fits.
        let len = if packet.whole { len } else { len.min(self.links[end][path].config().mtu) };
        self.links[end][path].offer(self.now, packet, len, &meta);
    }

    /// Does what happens next, at most until `limit`; false if nothing does.
    pub fn step(&mut self, limit: Instant) -> bool {
        self.flush();
        let links = self.links.iter().flatten().filter_map(Link::next_timeout);
        let ends = self.ends.iter().filter_map(Endpoint::next_timeout);
        let Some(next) = links.chain(ends).min().filter(|n| *n <= limit) else { return false };
        self.idle_steps = if next > self.now { 0 } else { self.idle_steps + 1 };
        assert!(self.idle_steps < 10_000, "time stands still: a deadline is not served");
        self.now = self.now.max(next);
        for way in 0..2 {
            for path in 0..self.links[way].len() {
                while let Some(output) = self.links[way][path].poll(self.now) {
                    let (mut packet, ce, corrupt) = match output {
                        Output::Deliver { packet, ce, corrupt, .. } => (packet, ce, corrupt),
                        Output::Drop { packet, reason: DropReason::TooBig { mtu }, .. } => {
                            self.report(way, path, &packet, mtu);
                            continue;
                        }
                        _ => continue,
                    };
                    self.marks += u64::from(ce);
                    if let Some(c) = corrupt {
                        // The first eight bytes are those of UDP, whose checksum drops the packet.
                        let Some(at) = (c.bit as usize).checked_sub(64) else { continue };
                        packet.bytes[at / 8] ^= 0x80 >> (at % 8);
                    }
                    self.deliver(1 - way, path, &packet, ce);
                }
            }
        }
        for end in &mut self.ends {
            end.handle_timeout(self.now);
        }
        self.flush();
        true
    }

    /// ICMP: fragmentation needed, with what is quoted of a UDP datagram.
    fn report(&mut self, way: usize, path: usize, packet: &Packet, mtu: u32) {
        let route = Route { layer: LayerId(path as u16), remote: packet.to };
        let error = IcmpError::PacketTooBig { size: mtu as u16 - 28 };
        self.ends[way].handle_icmp(self.now, route, error, &packet.bytes[..20.min(packet.bytes.len())]);
    }

    /// Whichever way it came, the address that it was sent to determines which layer takes it.
    pub fn deliver(&mut self, to: usize, _path: usize, packet: &Packet, ce: bool) {
        let Some(layer) = self.addresses[to].iter().position(|a| *a == packet.to) else { return };
        let route = Route { layer: LayerId(layer as u16), remote: packet.from };
        self.ends[to].handle_packet(self.now, route, ce, &packet.bytes);
    }

    /// Runs for so long.
    pub fn run(&mut self, time: Duration) {
        let limit = self.now + time;
        while self.step(limit) {}
        self.now = limit;
        self.flush();
    }

    /// Runs until the condition holds.
    pub fn run_until(&mut self, time: Duration, done: impl Fn(&Self) -> bool) {
        let limit = self.now + time;
        self.flush();
        while !done(self) {
            assert!(self.step(limit), "it never happened; events: {:?}", self.events);
        }
    }
}

/// Prints every packet.
pub fn tracer() -> Tap {
    Box::new(|end, packet| {
        use neater_sctp_wire::{Chunk, Packet as Wire};
        let wire = Wire::parse(&packet.bytes).unwrap();
        let mut line = format!("  {end}>");
        for raw in wire.chunks().flatten() {
            let chunk = Chunk::decode(&raw).unwrap();
            line += &match chunk {
                Chunk::Data(d) => format!(
                    " DATA {} s{} n{} {}{}{} {}",
                    d.tsn.0,
                    d.stream.0,
                    d.ssn.0,
                    if d.unordered { "U" } else { "" },
                    if d.beginning { "B" } else { "" },
                    if d.ending { "E" } else { "" },
                    d.payload.len()
                ),
                Chunk::IData(d) => format!(
                    " IDATA {} s{} m{} {:?} {}{} {}",
                    d.tsn.0,
                    d.stream.0,
                    d.mid.0,
                    d.part,
                    if d.unordered { "U" } else { "" },
                    if d.ending { "E" } else { "" },
                    d.payload.len()
                ),
                Chunk::Sack(s) => format!(
                    " SACK {} w{} {:?} {:?}",
                    s.cumulative.0,
                    s.a_rwnd,
                    s.gaps.iter().map(|g| (g.start, g.end)).collect::<Vec<_>>(),
                    s.duplicates.iter().map(|t| t.0).collect::<Vec<_>>()
                ),
                Chunk::ForwardTsn(f) => format!(" {f:?}"),
                Chunk::IForwardTsn(f) => format!(" {f:?}"),
                Chunk::Shutdown(s) => format!(" SHUTDOWN {}", s.cumulative.0),
                other => format!(" {}", other.name()),
            };
        }
        println!("{line}");
        true
    })
}

/// The types of the chunks in a packet.
pub fn kinds(bytes: &[u8]) -> Vec<u8> {
    neater_sctp_wire::Packet::parse(bytes).unwrap().chunks().flatten().map(|c| c.kind).collect()
}

/// Packets with their senders.
pub type Log = std::rc::Rc<std::cell::RefCell<Vec<(usize, Vec<u8>)>>>;

/// Remembers all packets.
pub fn record(w: &mut World) -> Log {
    let seen = Log::default();
    let log = seen.clone();
    w.tap = Some(Box::new(move |end, packet| {
        log.borrow_mut().push((end, packet.bytes.clone()));
        true
    }));
    seen
}

/// Puts the right checksum into a packet.
pub fn sum(packet: &mut [u8]) {
    packet[8..12].fill(0);
    let sum = crc32c::crc32c(packet);
    packet[8..12].copy_from_slice(&sum.to_le_bytes());
}

/// A packet with these chunks.
pub fn packet(ports: [u16; 2], tag: neater_sctp_wire::Tag, chunks: &[neater_sctp_wire::Chunk<'_>]) -> Vec<u8> {
    use neater_sctp_wire::{Checksum, CommonHeader, PacketBuilder};
    let mut buffer = vec![0; 1500];
    let header = CommonHeader { source_port: ports[0], destination_port: ports[1], tag };
    let mut packet = PacketBuilder::new(&mut buffer, header).unwrap();
    chunks.iter().for_each(|c| packet.push(c).unwrap());
    let len = packet.finish(Checksum::Crc32c);
    buffer.truncate(len);
    buffer
}
