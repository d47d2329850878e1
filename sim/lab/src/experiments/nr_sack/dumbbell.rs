//! A sender and a receiver on both sides of one or two bottlenecks that others use, too, in virtual time; and a witness at the sender's
//! door, who reads what passes there.

use super::traffic::{Load, Traffic};
use bytes::Bytes;
use neater_base::Instant;
use neater_base::net::Ecn;
use neater_link::{Link, LinkConfig, Output, PacketMeta, Protocol, QueueLimit};
use neater_sctp::{AssociationConfig, Config, Endpoint, Event, Layer, LayerId, Route, SendOptions};
use neater_sctp_wire::{Chunk, Packet as Wire, StreamId};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// IPv4 and UDP.
const HEADERS: u32 = 28;
const MTU: u16 = 1500;
const PORT: u16 = 5000;
/// Payload of a message: one fills a packet of 1,500 bytes.
const MESSAGE: usize = 1444;
const RATE: u64 = 100_000_000;
/// Of the sender's and the receiver's own links, one way.
const EDGE: Duration = Duration::from_millis(14);
/// Of the bottleneck, one way.
const MIDDLE: Duration = Duration::from_millis(2);
/// The queue of the bottleneck: what it carries in 100 ms.
const QUEUE: u64 = RATE / 8 / 10;
/// How often the sender's queue is filled up and looked at.
const TICK: Duration = Duration::from_millis(1);

/// What is to be run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The same at both ends.
    pub(super) association: AssociationConfig,
    /// The load of each path.
    pub(super) loads: Vec<Load>,
    /// When the transfer begins, and from when to when it is looked at.
    pub(super) start: Duration,
    pub(super) watch: (Duration, Duration),
}

/// What was seen while it was looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// Payload that has come to the receiving application, in bytes per second.
    pub(super) goodput: f64,
    /// The mean part of the retransmission queue that the receiver does not have, by its acknowledgments: in all, and while it misses
    /// something below what it has.
    pub(super) used: f64,
    pub(super) used_in_recovery: Option<f64>,
    /// The most payload in the retransmission queue, in bytes.
    pub(super) peak: u64,
    pub(super) timeouts: u64,
    /// Of others' packets on the first path, how many were dropped.
    pub(super) loss: f64,
}

#[derive(Clone)]
enum Item {
    Ours(SocketAddr, SocketAddr, Bytes),
    Other(u32),
}

/// One direction of one path.
struct Way {
    edge: Link<Item>,
    middle: Link<Item>,
    traffic: Traffic,
    /// Behind the bottleneck.
    arriving: VecDeque<(Instant, Item)>,
    others: (u64, u64),
}

fn address(end: usize, path: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, path as u8, 2, end as u8 + 1)), neater_sctp_wire::UDP_PORT)
}

fn meta(from: SocketAddr, to: SocketAddr) -> PacketMeta {
    PacketMeta { protocol: Protocol::Udp, source: from, destination: to, ecn: Ecn::NotEct }
}

impl Way {
    fn new(load: Load, now: Instant, seed: u64) -> Self {
        let middle = LinkConfig::rate(RATE, MIDDLE).with_queue(QueueLimit::Bytes(QUEUE));
        Self {
            edge: Link::new(LinkConfig::rate(RATE, EDGE), seed),
            middle: Link::new(middle, seed + 1),
            traffic: Traffic::new(load, now, seed + 2),
            arriving: VecDeque::new(),
            others: (0, 0),
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let arriving = self.arriving.front().map(|(at, _)| *at);
        let each = [self.edge.next_timeout(), self.middle.next_timeout(), self.traffic.next_timeout(), arriving];
        each.into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        let Self { edge, middle, traffic, arriving, others } = self;
        let other = meta(address(2, 0), address(3, 0));
        traffic.handle_timeout(now, |index, len| middle.offer(now, Item::Other(index), len, &other));
        while let Some(output) = edge.poll(now) {
            if let Output::Deliver { packet: Item::Ours(from, to, bytes), .. } = output {
                let (len, meta) = (bytes.len() as u32 + HEADERS, meta(from, to));
                middle.offer(now, Item::Ours(from, to, bytes), len, &meta);
            }
        }
        while let Some(output) = middle.poll(now) {
            match output {
                Output::Deliver { packet: Item::Other(index), at, .. } => {
                    others.0 += 1;
                    traffic.left(at, index, false);
                }
                Output::Drop { packet: Item::Other(index), at, .. } => {
                    others.1 += 1;
                    traffic.left(at, index, true);
                }
                Output::Deliver { packet, at, .. } => arriving.push_back((at + EDGE, packet)),
                _ => {}
            }
        }
    }
}

/// Reads what the sender sends and is sent.
#[derive(Default)]
struct Witness {
    /// The first TSN, how many have been sent, and of them what the last acknowledgment says has arrived.
    first: Option<u32>,
    sent: u64,
    arrived: u64,
    cumulative: u64,
    /// Something is missing below what has arrived.
    holes: bool,
}

impl Witness {
    fn each(bytes: &[u8], mut see: impl FnMut(&Chunk<'_>)) {
        let Ok(packet) = Wire::parse(bytes) else { return };
        for chunk in packet.chunks().flatten() {
            if let Ok(chunk) = Chunk::decode(&chunk) {
                see(&chunk);
            }
        }
    }

    fn sees_sent(&mut self, bytes: &[u8]) {
        Self::each(bytes, |chunk| {
            let tsn = match chunk {
                Chunk::Data(data) => data.tsn.0,
                Chunk::IData(data) => data.tsn.0,
                _ => return,
            };
            let first = *self.first.get_or_insert(tsn);
            self.sent = self.sent.max(u64::from(tsn.wrapping_sub(first)) + 1);
        });
    }

    fn sees_come(&mut self, bytes: &[u8]) {
        Self::each(bytes, |chunk| {
            let blocks = |gaps: neater_sctp_wire::Array<'_, neater_sctp_wire::chunk::GapBlock>| {
                gaps.iter().map(|g| u64::from(g.end.saturating_sub(g.start)) + 1).sum::<u64>()
            };
            let (cumulative, beyond) = match chunk {
                Chunk::Sack(sack) => (sack.cumulative.0, blocks(sack.gaps)),
                Chunk::NrSack(sack) => (sack.cumulative.0, blocks(sack.gaps) + blocks(sack.non_renegable)),
                _ => return,
            };
            let Some(first) = self.first else { return };
            let below = u64::from(cumulative.wrapping_sub(first).wrapping_add(1));
            // An old one says nothing.
            if below <= self.sent && below >= self.cumulative {
                (self.cumulative, self.arrived, self.holes) = (below, below + beyond, beyond > 0);
            }
        });
    }

    /// Bytes that the receiver does not have, by what it says.
    fn needed(&self) -> u64 {
        self.sent.saturating_sub(self.arrived) * MESSAGE as u64
    }
}

struct World {
    now: Instant,
    ends: [Endpoint; 2],
    paths: Vec<[Way; 2]>,
    buffer: Vec<u8>,
    witness: Witness,
}

impl World {
    fn new(plan: &Plan, seed: u64) -> Self {
        let now = Instant::ZERO + Duration::from_secs(1000);
        let end = |end: usize| {
            let layers = (0..plan.loads.len()).map(|path| Layer {
                address: Some(address(end, path).ip()),
                mtu: MTU,
                overhead: HEADERS as u16,
                authenticates: false,
            });
            let config = Config {
                layers: layers.collect(),
                port: PORT,
                accept: end == 1,
                tell_addresses: true,
                association: plan.association.clone(),
                ..Config::default()
            };
            Endpoint::new(config, [seed as u8 ^ (0x33 * end as u8); 32], &[end as u8; 32])
        };
        let way = |(path, load): (usize, &Load)| {
            [0, 1].map(|way| Way::new(*load, now, seed * 100 + path as u64 * 20 + way * 10))
        };
        let paths = plan.loads.iter().enumerate().map(way).collect();
        Self { now, ends: [end(0), end(1)], paths, buffer: vec![0; 65_536], witness: Witness::default() }
    }

    fn flush(&mut self) {
        for end in 0..2 {
            while let Some(sent) = self.ends[end].poll_transmit(self.now, &mut self.buffer) {
                let path = usize::from(sent.route.layer.0);
                let (from, to) = (address(end, path), sent.route.remote);
                let bytes = Bytes::copy_from_slice(&self.buffer[..sent.len]);
                if end == 0 {
                    self.witness.sees_sent(&bytes);
                }
                let len = sent.len as u32 + HEADERS;
                self.paths[path][end].edge.offer(self.now, Item::Ours(from, to, bytes), len, &meta(from, to));
            }
        }
    }

    fn run_to(&mut self, limit: Instant) {
        self.flush();
        loop {
            let ways = self.paths.iter().flatten().filter_map(Way::next_timeout);
            let ends = self.ends.iter().filter_map(Endpoint::next_timeout);
            let Some(next) = ways.chain(ends).min().filter(|n| *n <= limit) else { break };
            self.now = self.now.max(next);
            let mut any = false;
            for (path, ways) in self.paths.iter_mut().enumerate() {
                for (end, way) in ways.iter_mut().enumerate() {
                    way.handle_timeout(self.now);
                    while way.arriving.front().is_some_and(|(at, _)| *at <= self.now) {
                        let Some((_, Item::Ours(from, _, bytes))) = way.arriving.pop_front() else { continue };
                        if end == 1 {
                            self.witness.sees_come(&bytes);
                        }
                        let route = Route { layer: LayerId(path as u16), remote: from };
                        self.ends[1 - end].handle_packet(self.now, route, false, &bytes);
                        any = true;
                    }
                }
            }
            for end in &mut self.ends {
                if end.next_timeout().is_some_and(|at| at <= self.now) {
                    end.handle_timeout(self.now);
                    any = true;
                }
            }
            if any {
                self.flush();
            }
        }
        self.now = limit;
    }
}

/// Runs it.
pub(super) fn run(plan: &Plan, seed: u64) -> Option<Seen> {
    let mut w = World::new(plan, seed);
    let begin = w.now;
    w.run_to(begin + plan.start.saturating_sub(Duration::from_secs(3)));
    let routes: Vec<Route> =
        (0..plan.loads.len()).map(|p| Route { layer: LayerId(p as u16), remote: address(1, p) }).collect();
    let ours = w.ends[0].connect(w.now, PORT, &routes).ok()?;
    w.run_to(begin + plan.start);
    let theirs = core::iter::from_fn(|| w.ends[1].poll_event()).find(|(_, e)| *e == Event::Accepted)?.0;
    let payload = Bytes::from(vec![7; MESSAGE]);
    let options = SendOptions { unordered: true, ..SendOptions::default() };
    let (mut seen, mut received) = (Seen::default(), 0);
    let (mut used, mut in_recovery) = ((0.0, 0u64), (0.0, 0u64));
    let mut others = (0, 0);
    while w.now < begin + plan.watch.1 {
        while w.ends[0].send(ours, StreamId(0), payload.clone(), options).is_ok() {}
        let next = w.now + TICK;
        w.run_to(next);
        let mut came = 0;
        while let Some(message) = w.ends[1].receive(theirs) {
            came += message.payload.len() as u64;
        }
        core::iter::from_fn(|| w.ends[0].poll_event()).for_each(drop);
        if w.now < begin + plan.watch.0 {
            others = w.paths[0][0].others;
            continue;
        }
        received += came;
        let queue = w.ends[0].association_stats(ours)?.retransmission_queue;
        seen.peak = seen.peak.max(queue);
        if queue > 0 {
            let part = w.witness.needed() as f64 / queue as f64;
            used = (used.0 + part, used.1 + 1);
            if w.witness.holes {
                in_recovery = (in_recovery.0 + part, in_recovery.1 + 1);
            }
        }
    }
    seen.goodput = received as f64 / (plan.watch.1 - plan.watch.0).as_secs_f64();
    seen.used = used.0 / used.1.max(1) as f64;
    seen.used_in_recovery = (in_recovery.1 > 0).then(|| in_recovery.0 / in_recovery.1 as f64);
    seen.timeouts = w.ends[0].association_stats(ours)?.timeouts;
    let (came, lost) = (w.paths[0][0].others.0 - others.0, w.paths[0][0].others.1 - others.1);
    seen.loss = lost as f64 / (came + lost).max(1) as f64;
    Some(seen)
}
