//! Our endpoint over something that carries its packets, with a link of the simulator's between the two.

use super::capture::Capture;
use super::wire::{Arrived, Loopback, Wire};
use neater_base::Instant;
use neater_base::net::Ecn;
use neater_link::{Corruption, Link, LinkConfig, Output, PacketMeta, Protocol};
use neater_sctp::{AssociationId, Config, Endpoint, Event, LayerId, Route};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// A packet on its way, where to or from, and its congestion mark.
type Packet = (Route, Ecn, Vec<u8>);

/// No endpoint has so much to send at one time, with the buffers that it has here.
const PACKETS_MAX: u32 = 20_000;

/// An endpoint, what carries its packets, and the emulated link in both directions.
#[derive(Debug)]
pub struct Driver {
    endpoint: Endpoint,
    wire: Box<dyn Wire>,
    origin: std::time::Instant,
    up: Link<Packet>,
    down: Link<Packet>,
    buffer: Vec<u8>,
    cut: Option<LayerId>,
    deaf: bool,
    capture: Option<Capture>,
    /// What has happened so far and was not taken.
    pub events: VecDeque<(AssociationId, Event)>,
    /// Packets that were not taken.
    pub unsent: u64,
}

impl Driver {
    /// An endpoint on a free port of loopback. What it sends goes over a link like `link`, and so does what it receives.
    ///
    /// # Panics
    /// If there is no socket to be had.
    #[must_use]
    pub fn new(config: Config, link: &LinkConfig, seed: u64) -> Self {
        Self::over(Box::new(Loopback::new()), config, link, seed)
    }

    /// An endpoint over `wire`.
    #[must_use]
    pub fn over(wire: Box<dyn Wire>, config: Config, link: &LinkConfig, seed: u64) -> Self {
        let mut key = [7; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        Self {
            endpoint: Endpoint::new(config, key, &[9; 32]),
            wire,
            origin: std::time::Instant::now(),
            up: Link::new(link.clone(), seed),
            down: Link::new(link.clone(), seed ^ 0x5555),
            buffer: vec![0; 65_536],
            cut: None,
            deaf: false,
            capture: None,
            events: VecDeque::new(),
            unsent: 0,
        }
    }

    /// Writes a copy of every packet that is sent or received into `capture`, as the socket sees it.
    pub fn record(&mut self, capture: Capture) {
        self.capture = Some(capture);
    }

    /// Ends the recording.
    pub fn recorded(&mut self) -> Option<Capture> {
        self.capture.take()
    }

    /// The UDP port; 0 without UDP.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.wire.port()
    }

    /// What has arrived that was not as it should be.
    #[must_use]
    pub fn wrong(&self) -> &[&'static str] {
        self.wire.wrong()
    }

    /// Loses everything of one layer from now on, in both directions, or of none.
    pub const fn cut(&mut self, layer: Option<LayerId>) {
        self.cut = layer;
    }

    /// Loses everything from now on, or nothing.
    pub const fn deafen(&mut self, deaf: bool) {
        self.deaf = deaf;
    }

    /// The route to a UDP port of loopback.
    #[must_use]
    pub fn route(port: u16) -> Route {
        Route { layer: LayerId(0), remote: SocketAddr::from((Ipv4Addr::LOCALHOST, port)) }
    }

    /// The time as the endpoint knows it.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.origin.elapsed().as_nanos() as u64)
    }

    /// The endpoint.
    pub const fn endpoint(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// Changes the link, in both directions.
    pub fn set_link(&mut self, link: &LinkConfig) {
        let now = self.now();
        self.up.set_config(now, link.clone());
        self.down.set_config(now, link.clone());
    }

    const fn lost(&self, layer: LayerId) -> bool {
        self.deaf || matches!(self.cut, Some(cut) if cut.0 == layer.0)
    }

    /// Moves everything that can be moved, and waits at most `patience` for something to arrive first.
    pub fn turn(&mut self, patience: Duration) {
        self.flush();
        let now = self.now();
        let deadlines = [self.endpoint.next_timeout(), self.up.next_timeout(), self.down.next_timeout()];
        let mut wait = deadlines.into_iter().flatten().map(|at| at.saturating_since(now)).fold(patience, Duration::min);
        // A peer that sends without end must not keep the rest waiting.
        for _ in 0..256 {
            let Some(Arrived { route, ecn, bytes }) = self.wire.receive(wait) else { break };
            wait = Duration::ZERO;
            let now = self.now();
            if let Some(capture) = &mut self.capture {
                capture.packet(Duration::from_nanos(now.as_nanos()), &bytes);
            }
            if self.lost(route.layer) {
                continue;
            }
            let len = bytes.len() as u32 + self.wire.overhead();
            self.down.offer(now, (route, ecn, bytes), len, &meta(route, ecn));
        }
        self.flush();
    }

    /// Moves everything that can be moved without waiting.
    fn flush(&mut self) {
        let now = self.now();
        while let Some(output) = self.down.poll(now) {
            if let Output::Deliver { packet: (route, ecn, bytes), corrupt, ce, .. } = output {
                let Some(bytes) = damaged(bytes, corrupt) else { continue };
                self.endpoint.handle_packet(now, route, ce || ecn == Ecn::Ce, &bytes);
            }
        }
        self.endpoint.handle_timeout(now);
        let mut packets = 0;
        while let Some(transmit) = self.endpoint.poll_transmit(now, &mut self.buffer) {
            packets += 1;
            assert!(packets < PACKETS_MAX, "the endpoint sends {packets} packets at one time");
            if self.lost(transmit.route.layer) {
                continue;
            }
            let bytes = self.buffer[..transmit.len].to_vec();
            let ecn = if transmit.ect { Ecn::Ect0 } else { Ecn::NotEct };
            let (len, meta) = (transmit.len as u32 + self.wire.overhead(), meta(transmit.route, ecn));
            self.up.offer(now, (transmit.route, ecn, bytes), len, &meta);
        }
        while let Some(output) = self.up.poll(now) {
            if let Output::Deliver { packet: (route, ecn, bytes), corrupt, ce, .. } = output {
                let Some(bytes) = damaged(bytes, corrupt) else { continue };
                if !self.wire.send(route, if ce { Ecn::Ce } else { ecn }, &bytes) {
                    self.unsent += 1;
                }
                if let Some(capture) = &mut self.capture {
                    capture.packet(Duration::from_nanos(now.as_nanos()), &bytes);
                }
            }
        }
        self.events.extend(std::iter::from_fn(|| self.endpoint.poll_event()));
    }

    /// Turns until `done` returns something.
    ///
    /// # Panics
    /// When it has not after `limit`: `what` was awaited.
    pub fn until<T>(&mut self, what: &str, limit: Duration, mut done: impl FnMut(&mut Self) -> Option<T>) -> T {
        let end = std::time::Instant::now() + limit;
        loop {
            if let Some(result) = done(self) {
                self.flush();
                return result;
            }
            assert!(std::time::Instant::now() < end, "{what}: not after {limit:?}; events: {:?}", self.events);
            self.turn(Duration::from_millis(2));
        }
    }
}

fn meta(route: Route, ecn: Ecn) -> PacketMeta {
    let source = SocketAddr::from((Ipv4Addr::UNSPECIFIED, route.layer.0));
    PacketMeta { protocol: Protocol::Udp, source, destination: route.remote, ecn }
}

/// The packet with the bit flipped that the link flips, as if UDP had no checksum: SCTP's is to find it. Nothing if the bit is in
/// the UDP header, which we do not have.
fn damaged(mut bytes: Vec<u8>, corrupt: Option<Corruption>) -> Option<Vec<u8>> {
    if let Some(Corruption { bit }) = corrupt {
        let bit = bit.checked_sub(64)?;
        *bytes.get_mut(bit as usize / 8)? ^= 0x80 >> (bit % 8);
    }
    Some(bytes)
}
