//! Two paths of one association through one bottleneck, beside another flow with CUBIC over one
//! path: what each gets of it.

use super::transfer::{end, fill};
use crate::experiments::multipath::world::{PORT, address, layer};
use bytes::Bytes;
use neater_base::net::Ecn;
use neater_base::{Instant, Rng};
use neater_link::{Jitter, Link, LinkConfig, Output, PacketMeta, Protocol, QueueLimit};
use neater_sctp::{AddressChange, AssociationId, Endpoint, Event, LayerId, Multipath, Route};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The bottleneck: Mbit/s, the round trip, a queue of two bandwidth-delay products, and a little
/// chance.
const RATE: u64 = 20_000_000;
const RTT: Duration = Duration::from_millis(40);
const QUEUE: usize = 133;
const CHANCE: Duration = Duration::from_millis(1);
/// IPv4 and UDP.
const HEADERS: u32 = 28;
/// From when on and until when is counted.
pub(super) const FROM: Duration = Duration::from_secs(10);
pub(super) const UNTIL: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(10);

/// One direction of the bottleneck, without chance.
pub(super) fn link() -> LinkConfig {
    LinkConfig::rate(RATE, RTT / 2).with_queue(QueueLimit::Packets(QUEUE))
}

#[derive(Clone)]
struct Packet {
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

/// Ours from the first host to the second, another flow from the third to the fourth; one link in
/// each direction.
struct Shared {
    now: Instant,
    ends: Vec<Endpoint>,
    links: [Link<Packet>; 2],
    events: Vec<Vec<(AssociationId, Event)>>,
    buffer: Vec<u8>,
    read: [u64; 2],
}

/// The host and the path of an address.
fn place(address: SocketAddr) -> (usize, usize) {
    match address.ip() {
        IpAddr::V4(ip) => (usize::from(ip.octets()[3]).saturating_sub(1), usize::from(ip.octets()[1])),
        IpAddr::V6(_) => (0, 0),
    }
}

impl Shared {
    fn new(multipath: Multipath, seed: u64) -> Self {
        let link = LinkConfig { jitter: Jitter::Uniform(CHANCE), ..link() };
        let spread = [Some(multipath), Some(multipath), None, None];
        let endpoint = |(i, multipath)| Endpoint::new(end(i % 2 == 1, multipath), [seed as u8 ^ i as u8; 32], &[9; 32]);
        Self {
            now: Instant::ZERO + Duration::from_secs(1000),
            ends: spread.into_iter().enumerate().map(endpoint).collect(),
            links: [1, 2].map(|way| Link::new(link.clone(), seed * 10 + way)),
            events: (0..4).map(|_| Vec::new()).collect(),
            buffer: vec![0; 65_536],
            read: [0; 2],
        }
    }

    fn flush(&mut self) {
        for (i, end) in self.ends.iter_mut().enumerate() {
            while let Some(sent) = end.poll_transmit(self.now, &mut self.buffer) {
                let path = if i % 2 == 0 { usize::from(sent.route.layer.0) } else { 0 };
                let (from, to) = (address(i, path), sent.route.remote);
                let packet = Packet { from, to, bytes: self.buffer[..sent.len].to_vec() };
                let meta = PacketMeta { protocol: Protocol::Udp, source: from, destination: to, ecn: Ecn::NotEct };
                self.links[i % 2].offer(self.now, packet, sent.len as u32 + HEADERS, &meta);
            }
            while let Some(event) = end.poll_event() {
                self.events[i].push(event);
            }
        }
    }

    fn run_to(&mut self, limit: Instant) {
        self.flush();
        loop {
            let links = self.links.iter().filter_map(Link::next_timeout);
            let Some(next) = links.chain(self.ends.iter().filter_map(Endpoint::next_timeout)).min() else { break };
            if next > limit {
                break;
            }
            self.now = self.now.max(next);
            for link in &mut self.links {
                while let Some(output) = link.poll(self.now) {
                    let Output::Deliver { packet, ce, .. } = output else { continue };
                    let (to, path) = place(packet.to);
                    let layer = LayerId(if to % 2 == 0 { path as u16 } else { 0 });
                    let route = Route { layer, remote: packet.from };
                    if let Some(end) = self.ends.get_mut(to) {
                        end.handle_packet(self.now, route, ce, &packet.bytes);
                    }
                }
            }
            self.ends.iter_mut().for_each(|end| end.handle_timeout(self.now));
            for flow in 0..2 {
                let accepted = |(id, e): &(AssociationId, Event)| (*e == Event::Accepted).then_some(*id);
                let Some(id) = self.events[2 * flow + 1].iter().find_map(accepted) else { continue };
                while let Some(message) = self.ends[2 * flow + 1].receive(id) {
                    self.read[flow] += message.payload.len() as u64;
                }
            }
            self.flush();
        }
        self.now = limit;
    }
}

/// Our share of the bottleneck.
pub(super) fn share(multipath: Multipath, seed: u64) -> Option<f64> {
    let mut w = Shared::new(multipath, seed);
    let mut rng = Rng::from_number(seed);
    let begin = w.now;
    let payload = Bytes::from(vec![7; 16_384]);
    // Either may be first.
    let starts = [0, 1].map(|_| begin + Duration::from_millis(rng.below(2000)));
    let mut flows = [None, None];
    let mut widened = false;
    let mut counted = None;
    while w.now < begin + UNTIL {
        for flow in 0..2 {
            if flows[flow].is_none() && starts[flow] <= w.now {
                let route = Route { layer: LayerId(0), remote: address(2 * flow + 1, 0) };
                flows[flow] = Some((w.ends[2 * flow].connect(w.now, PORT, &[route]).ok()?, 0));
            }
            if let Some((id, sent)) = &mut flows[flow] {
                fill(&mut w.ends[2 * flow], *id, &payload, sent, u64::MAX);
            }
        }
        if let Some((id, _)) = flows[0].filter(|_| !widened && w.events[0].iter().any(|(_, e)| *e == Event::Connected))
        {
            widened = true;
            let added = w.ends[0].add_layer(layer(None));
            w.ends[0].change_addresses(id, &[AddressChange::Add(added)]).ok()?;
        }
        let next = w.now + TICK;
        w.run_to(next);
        if counted.is_none() && w.now >= begin + FROM {
            counted = Some(w.read);
        }
    }
    let before = counted?;
    let [ours, others] = [0, 1].map(|i| (w.read[i] - before[i]) as f64);
    (others > 0.0).then(|| ours / (ours + others))
}
