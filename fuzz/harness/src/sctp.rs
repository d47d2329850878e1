//! Targets in `crates/sctp`: two associations, and a network and a stranger between them that do as they please.

use neater_base::{Instant, Reader};
use neater_sctp::{
    AddressChange, AssociationConfig, AssociationId, Authentication, Config, Endpoint, Event, Extensions, IcmpError,
    Layer, LayerId, Message, PathId, Ppid, Reliability, Route, Scheduler, SendOptions, SharedKey,
};
use neater_sctp_wire::{Packet, StreamId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

/// Packets that wait on one way; more are lost.
const QUEUE: usize = 64;
/// Packets that one command makes, at most: what does not end is a fault.
const BURST: usize = 5000;

/// Commands and packets between two endpoints, as `data` says: nothing panics, no packet is longer than its path takes, what is
/// delivered whole was sent and comes once, and nothing is left when both have let go.
#[allow(unreachable_pub, reason = "a test of the crate includes this file")]
pub fn sctp_commands(data: &[u8]) {
    let mut r = Reader::new(data);
    let Ok(bits) = r.u16() else { return };
    let mut world = Between::new(bits);
    while world.command(&mut r).is_some() {}
    world.finish();
}

struct Between {
    now: Instant,
    ends: [Endpoint; 2],
    ids: [Option<AssociationId>; 2],
    queues: [VecDeque<(SocketAddr, SocketAddr, Vec<u8>)>; 2],
    /// The last tag that each end has put into a packet.
    tags: [u32; 2],
    sent: [u32; 2],
    arrived: [BTreeSet<u32>; 2],
    parts: [BTreeMap<u64, Vec<u8>>; 2],
    /// A stranger has spoken: what arrives may be anything.
    injected: bool,
    by_stream: bool,
    /// The bytes that each end was given and has sent, while nobody was known to it.
    strangers: [(usize, usize); 2],
    buffer: Vec<u8>,
}

fn address(end: usize, layer: usize) -> SocketAddr {
    SocketAddr::from(([10, layer as u8, 0, end as u8 + 1], 9899))
}

fn config(bits: u16, end: usize) -> Config {
    let on = |i: u16| bits & 1 << i != 0;
    let base = if on(0) { AssociationConfig::rfc9260() } else { AssociationConfig::default() };
    let schedulers = [Scheduler::FirstCome, Scheduler::RoundRobin, Scheduler::WeightedFair, Scheduler::Priority];
    let association = AssociationConfig {
        receive_buffer: if on(1) { 5000 } else { 100_000 },
        send_buffer: 50_000,
        max_messages: 100,
        outbound_streams: 5,
        inbound_streams: 7,
        scheduler: schedulers[usize::from(bits >> 2 & 3)],
        extensions: Extensions {
            interleaving: on(4),
            partial_reliability: on(5),
            reconfiguration: on(6),
            ecn: on(7),
            zero_checksum: on(8),
            authentication: on(9),
            dynamic_addresses: on(10),
            nr_sack: on(15),
        },
        authentication: Authentication {
            required: if on(11) { vec![0, 3, 10, 64] } else { Vec::new() },
            ..Authentication::default()
        },
        ..base
    };
    Config {
        layers: (0..2)
            .map(|l| Layer {
                address: Some(address(end, l).ip()),
                mtu: if on(12) { 1500 } else { 1280 },
                overhead: 28,
                authenticates: on(8),
            })
            .collect(),
        port: 5000 + end as u16,
        accept: on(13) || end == 1,
        tell_addresses: on(14),
        association,
        ..Config::default()
    }
}

impl Between {
    fn new(bits: u16) -> Self {
        let end = |e: usize| Endpoint::new(config(bits, e), [e as u8 + 1; 32], &[e as u8 + 9; 32]);
        Self {
            now: Instant::ZERO + Duration::from_secs(10),
            ends: [end(0), end(1)],
            ids: [None; 2],
            queues: Default::default(),
            tags: [0; 2],
            sent: [0; 2],
            arrived: Default::default(),
            parts: Default::default(),
            injected: false,
            by_stream: bits & 1 << 15 != 0,
            strangers: [(0, 0); 2],
            buffer: vec![0; 65_536],
        }
    }

    /// What the endpoints have to say.
    fn flush(&mut self) {
        for end in 0..2 {
            for count in 0.. {
                assert!(count < BURST, "packets without end");
                let Some(t) = self.ends[end].poll_transmit(self.now, &mut self.buffer) else { break };
                assert!(!t.whole || t.len <= 1472, "{} bytes", t.len);
                let bytes = self.buffer[..t.len].to_vec();
                let packet = Packet::parse(&bytes).expect("what we send can be read");
                assert!(packet.chunks().all(|c| c.is_ok()) && packet.chunks().next().is_some());
                self.tags[end] = packet.header.tag.0;
                self.strangers[end].1 += t.len;
                if self.queues[end].len() < QUEUE {
                    let from = address(end, usize::from(t.route.layer.0));
                    self.queues[end].push_back((from, t.route.remote, bytes));
                }
            }
            while let Some((id, event)) = self.ends[end].poll_event() {
                match event {
                    Event::Accepted if self.ids[end].is_none() => self.ids[end] = Some(id),
                    Event::Restarted => self.parts[end].clear(),
                    Event::Closed(_) if self.ids[end] == Some(id) => self.read(end),
                    _ => {}
                }
            }
        }
    }

    fn deliver(&mut self, to: usize, from: SocketAddr, at: SocketAddr, bytes: &[u8], marked: bool) {
        let layer = (0..2).find(|l| address(to, *l) == at).unwrap_or(0);
        if self.ends[to].kept() == 0 {
            self.strangers[to].0 += bytes.len();
        }
        self.ends[to].handle_packet(self.now, Route { layer: LayerId(layer as u16), remote: from }, marked, bytes);
    }

    /// Everything that has arrived: as it has, or stream by stream.
    fn receive(&mut self, end: usize, id: AssociationId) -> Vec<Message> {
        let e = &mut self.ends[end];
        if !self.by_stream {
            return core::iter::from_fn(|| e.receive(id)).collect();
        }
        let mut all: Vec<Message> = core::iter::from_fn(|| e.receive_word(id)).collect();
        while let Some(from) = e.next_readable(id) {
            all.extend(core::iter::from_fn(|| e.receive_from(id, from)));
        }
        all
    }

    fn read(&mut self, end: usize) {
        let Some(id) = self.ids[end] else { return };
        for m in self.receive(end, id) {
            let part = self.parts[end].entry(m.number).or_default();
            if m.first {
                part.clear();
            }
            part.extend_from_slice(&m.payload);
            if !m.last {
                continue;
            }
            let whole = self.parts[end].remove(&m.number).unwrap_or_default();
            if self.injected {
                continue;
            }
            let number = u32::from_be_bytes(whole[..4].try_into().expect("all are longer"));
            assert!(number < self.sent[1 - end], "nobody sent it");
            assert!(whole[4..].iter().all(|b| *b == number as u8), "damaged");
            assert!(self.arrived[end].insert(number), "message {number} came twice");
        }
    }

    /// Does one thing; `None` at the end.
    fn command(&mut self, r: &mut Reader<'_>) -> Option<()> {
        let op = r.u8().ok()?;
        let end = usize::from(op & 1);
        let id = self.ids[end];
        match op >> 1 & 31 {
            0 if id.is_none() => {
                let routes: Vec<Route> =
                    (0..2).map(|l| Route { layer: LayerId(l), remote: address(1 - end, usize::from(l)) }).collect();
                let count = 1 + usize::from(op >> 6 & 1);
                self.ids[end] = self.ends[end].connect(self.now, 5001 - end as u16, &routes[..count]).ok();
            }
            0..=3 => self.send(end, r.u16().ok()?),
            4..=9 => {
                if let Some((from, to, bytes)) = self.queues[end].pop_front() {
                    self.deliver(1 - end, from, to, &bytes, op & 0x80 != 0);
                }
            }
            10 => drop(self.queues[end].pop_front()),
            11 => {
                let first = self.queues[end].front().cloned();
                self.queues[end].extend(first.filter(|_| self.queues[end].len() < QUEUE));
            }
            12 => {
                if !self.queues[end].is_empty() {
                    let len = self.queues[end].len();
                    self.queues[end].swap(0, len - 1);
                }
            }
            13 => self.change(end, r.u16().ok()?, r.u8().ok()?),
            14 | 15 => self.inject(end, r),
            16..=18 => {
                self.now += Duration::from_millis(u64::from(r.u16().ok()?));
                self.tick();
            }
            19 => {
                let next = self.ends.iter().filter_map(Endpoint::next_timeout).min();
                self.now = self.now.max(next.unwrap_or(self.now));
                self.tick();
            }
            20 | 21 => self.read(end),
            22 => self.ends[end].shutdown(self.now, id?),
            23 => self.ends[end].abort(id?, b"fuzz"),
            _ => self.ask(end, op, r.u8().ok()?),
        }
        self.flush();
        Some(())
    }

    fn tick(&mut self) {
        self.ends.iter_mut().for_each(|e| e.handle_timeout(self.now));
        // Some of what is due is a packet. When all have left, nothing is: whoever waits for the next deadline would not wait at all.
        self.flush();
        for end in &self.ends {
            assert!(end.next_timeout().is_none_or(|at| at > self.now || !end.is_idle()), "a deadline is not served");
        }
    }

    fn send(&mut self, end: usize, what: u16) {
        let Some(id) = self.ids[end] else { return };
        let number = self.sent[end];
        let mut payload = vec![number as u8; 4 + usize::from(what >> 3 & 0x0fff)];
        payload[..4].copy_from_slice(&number.to_be_bytes());
        let reliability = match what & 3 {
            0 => Reliability::Until(self.now + Duration::from_millis(300)),
            1 => Reliability::Retransmissions(1),
            _ => Reliability::Full,
        };
        let options = SendOptions { unordered: what & 4 != 0, reliability, report: true, ..SendOptions::default() };
        if self.ends[end].send(id, StreamId(what % 6), payload.into(), options).is_ok() {
            self.sent[end] += 1;
        }
    }

    /// A packet is changed on the way, and summed again.
    fn change(&mut self, end: usize, at: u16, to: u8) {
        self.injected = true;
        let Some((_, _, bytes)) = self.queues[end].front_mut() else { return };
        let at = 4 + usize::from(at) % (bytes.len() - 4);
        bytes[at] = to;
        *bytes = summed(bytes);
    }

    /// A packet of a stranger's who knows the tag.
    fn inject(&mut self, end: usize, r: &mut Reader<'_>) {
        let (Ok(len), Ok(more)) = (r.u8(), r.u8()) else { return };
        // Up to what a packet may have.
        let most = usize::from(len) + 8 * usize::from(more >> 1);
        let Ok(chunks) = r.take(most.min(r.rest().len())) else { return };
        self.injected = true;
        let tag = if len & 1 == 0 { self.tags[end] } else { 0 };
        let mut bytes = Vec::with_capacity(12 + chunks.len());
        bytes.extend_from_slice(&(5000 + end as u16).to_be_bytes());
        bytes.extend_from_slice(&(5001 - end as u16).to_be_bytes());
        bytes.extend_from_slice(&tag.to_be_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(chunks);
        let bytes = summed(&bytes);
        self.deliver(1 - end, address(end, usize::from(len >> 1 & 1)), address(1 - end, 0), &bytes, false);
    }

    /// What else a program may ask for.
    fn ask(&mut self, end: usize, op: u8, value: u8) {
        let Some(id) = self.ids[end] else { return };
        let (now, e) = (self.now, &mut self.ends[end]);
        let stream = StreamId(u16::from(value % 8));
        let layer = LayerId(u16::from(value & 1));
        match op >> 1 & 31 {
            24 => drop(e.reset_outgoing(id, &[stream][..usize::from(value >> 7)])),
            25 => drop(e.reset_incoming(id, &[stream][..usize::from(value >> 7)])),
            26 if value & 1 == 0 => drop(e.add_outgoing(id, u16::from(value >> 4))),
            26 => drop(e.add_incoming(id, u16::from(value >> 4))),
            27 => {
                let change = match value >> 1 & 3 {
                    0 => AddressChange::Add(layer),
                    1 => AddressChange::Remove(layer),
                    2 => AddressChange::KeepOnly(layer),
                    _ => AddressChange::Prefer(layer),
                };
                let _ = e.change_addresses(id, &[change]);
            }
            28 => {
                let key = u16::from(value & 3);
                match value >> 2 & 3 {
                    0 => e.set_key(id, SharedKey { id: key, secret: vec![value >> 4; 5] }),
                    1 => e.use_key(id, key),
                    _ => e.remove_key(id, key),
                };
            }
            29 => {
                let mut quoted = [0; 20];
                quoted[..2].copy_from_slice(&(5000 + end as u16).to_be_bytes());
                quoted[2..4].copy_from_slice(&(5001 - end as u16).to_be_bytes());
                quoted[4..8].copy_from_slice(&self.tags[end].to_be_bytes());
                let error = match value & 3 {
                    0 => IcmpError::Unreachable,
                    1 => IcmpError::PortUnreachable,
                    _ => IcmpError::PacketTooBig { size: u16::from(value) * 8 },
                };
                let remote = address(1 - end, usize::from(value >> 7));
                e.handle_icmp(now, Route { layer: LayerId(0), remote }, error, &quoted);
            }
            30 => {
                e.set_primary(id, PathId(value & 3));
                e.set_stream_value(id, stream, u16::from(value));
            }
            _ => {
                let (_, _, _, _) = (e.paths(id), e.agreed(id), e.streams(id), e.buffered(id));
                assert!(e.buffered(id) <= 60_000, "more waits than may");
                match value >> 6 {
                    1 if self.by_stream => {
                        let from = e.stream_use(id, stream);
                        e.discard(id, from);
                        assert!(!e.has_unread(id, from) && e.peek(id, from).is_none(), "it was to be thrown away");
                    }
                    2 if self.by_stream => e.set_word(id, Ppid(u32::from(value & 1))),
                    _ => {}
                }
            }
        }
    }

    /// Both let go.
    fn finish(&mut self) {
        for end in 0..2 {
            self.read(end);
            let (given, sent) = self.strangers[end];
            let opened = self.ids[end].is_some() || self.ends[end].stats().accepted > 0;
            assert!(opened || sent <= 3 * given + 1500, "{sent} bytes in answer to {given}");
        }
        self.queues.iter_mut().for_each(VecDeque::clear);
        for _ in 0..3 {
            for end in 0..2 {
                // Associations that the stranger opened are known by their events only: time ends those that are left.
                if let Some(id) = self.ids[end].take() {
                    self.ends[end].release(id);
                }
            }
            self.flush();
        }
        for end in 0..2 {
            let e = &self.ends[end];
            if e.associations() == 0 {
                assert_eq!((e.next_timeout(), e.is_idle()), (None, true), "something is left");
            }
        }
    }
}

/// The packet with a right checksum.
fn summed(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[8..12].fill(0);
    let sum = crc32c::crc32c(&bytes);
    bytes[8..12].copy_from_slice(&sum.to_le_bytes());
    bytes
}
