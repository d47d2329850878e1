//! `send` and `recv`: messages over one association.

use crate::args::Args;
use crate::driver::{Driver, route};
use crate::{SEED, alloc};
use bytes::Bytes;
use neater_base::Instant;
use neater_sctp::{
    AssociationConfig, AssociationId, AssociationStats, CloseReason, Config, Endpoint, Event, Layer, SendError,
    SendOptions,
};
use neater_sctp_wire::StreamId;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The SCTP port of the server; the client has another.
pub(crate) const PORT: u16 = 5001;
/// That part of the bytes is the warm-up: what is counted begins behind it.
const WARM: u64 = 4;
/// The least that a sender with a time limit keeps in its queue, in bytes.
const QUEUE_MIN: u64 = 256 << 10;

/// An endpoint for `args`.
pub(crate) fn endpoint(args: &Args, port: u16, accept: bool) -> Endpoint {
    let layer = Layer { mtu: args.mtu, overhead: if args.addr.is_ipv4() { 28 } else { 48 }, ..Layer::udp() };
    let association = AssociationConfig {
        receive_buffer: args.buffer,
        send_buffer: args.buffer as usize,
        ..AssociationConfig::default()
    };
    let config = Config { layers: vec![layer], port, accept, association, ..Config::default() };
    Endpoint::new(config, SEED, &SEED)
}

/// Any port of the family of `remote`.
pub(crate) fn any(remote: SocketAddr) -> SocketAddr {
    let ip = if remote.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0u16; 8]) };
    SocketAddr::new(ip, 0)
}

/// What is counted from the end of the warm-up on.
#[derive(Clone, Copy, Default)]
struct Steady {
    allocations: u64,
    datagrams: u64,
}

impl Steady {
    fn now(driver: &Driver) -> Self {
        Self { allocations: alloc::calls(), datagrams: driver.sent + driver.received }
    }
}

/// What both sides of a transfer share.
struct Peer {
    driver: Driver,
    endpoint: Endpoint,
    id: Option<AssociationId>,
    over: Option<CloseReason>,
    bytes: u64,
    since: Option<Instant>,
    until: Instant,
    warm: Option<Steady>,
    steady: Steady,
    /// Of the association, as long as it is there.
    stats: AssociationStats,
}

impl Peer {
    fn new(driver: Driver, endpoint: Endpoint) -> Self {
        let (warm, steady, until) = (None, Steady::default(), driver.now());
        Self {
            driver,
            endpoint,
            id: None,
            over: None,
            bytes: 0,
            since: None,
            until,
            warm,
            steady,
            stats: AssociationStats::default(),
        }
    }

    /// Bytes have gone through: `all` is how many there will be, if that is known.
    fn count(&mut self, now: Instant, bytes: u64, all: u64) {
        self.bytes += bytes;
        self.since.get_or_insert(now);
        self.until = now;
        if self.warm.is_none() && self.bytes >= all / WARM {
            self.warm = Some(Steady::now(&self.driver));
        }
    }

    /// The transfer is complete: what follows is not counted.
    fn settle(&mut self) {
        let (end, start) = (Steady::now(&self.driver), self.warm.unwrap_or_default());
        self.steady =
            Steady { allocations: end.allocations - start.allocations, datagrams: end.datagrams - start.datagrams };
        self.keep_stats();
    }

    fn keep_stats(&mut self) {
        let stats = self.id.and_then(|id| self.endpoint.association_stats(id));
        self.stats = stats.unwrap_or(self.stats);
    }

    /// Takes packets until there are none, then waits.
    fn turn(&mut self, app: &mut dyn FnMut(&mut Self, Instant) -> io::Result<()>) -> io::Result<()> {
        let now = self.driver.now();
        self.endpoint.handle_timeout(now);
        app(self, now)?;
        self.driver.transmit(&mut self.endpoint, now)?;
        let Some(mut batch) = self.driver.take_batch() else { return Ok(()) };
        while self.driver.receive_into(&mut batch)? {
            let now = self.driver.now();
            for (meta, bytes) in batch.filled() {
                for datagram in bytes.chunks(meta.stride.max(1)) {
                    self.endpoint.handle_packet(now, route(meta.source), false, datagram);
                }
                app(self, now)?;
            }
            // Once for all that was there: acknowledgments and trains are as few and as long as the load makes them.
            self.driver.transmit(&mut self.endpoint, now)?;
        }
        self.driver.give_batch(batch);
        if self.over.is_none() {
            self.driver.wait(self.endpoint.next_timeout())?;
        }
        Ok(())
    }

    fn report(&self, mode: &str) -> io::Result<()> {
        let ns = self.since.map_or(0, |since| (self.until - since).as_nanos());
        let stats = &self.stats;
        let line = format!(
            "{{\"peer\":\"neater-sctp\",\"mode\":\"{mode}\",\"done\":1,\"failed\":0,\"bytes\":{},\"ns\":{ns},\"sent\":{},\
             \"received\":{},\"steady_allocations\":{},\"steady_datagrams\":{},\"retransmissions\":{},\"timeouts\":{},\
             \"recoveries\":{},\"dropped\":{}}}",
            self.bytes,
            self.driver.sent,
            self.driver.received,
            self.steady.allocations,
            self.steady.datagrams,
            stats.retransmissions,
            stats.timeouts,
            stats.fast_recoveries,
            stats.dropped,
        );
        writeln!(io::stdout(), "{line}")
    }
}

/// Sends `args.bytes` and ends the association.
pub(crate) fn send(args: &Args) -> io::Result<()> {
    let driver = Driver::open(any(args.addr), args)?;
    let mut peer = Peer::new(driver, endpoint(args, PORT + 1, false));
    let now = peer.driver.now();
    let id = peer.endpoint.connect(now, PORT, &[route(args.addr)]).map_err(io::Error::other)?;
    peer.id = Some(id);
    let payload = Bytes::from(vec![0x5a; args.object]);
    // As a program on TCP does, this one does not wait for the peer: its first packet of data goes with COOKIE ECHO.
    let (mut writable, mut ended) = (true, false);
    let stop = (args.seconds > 0.0).then(|| now + Duration::from_secs_f64(args.seconds));
    while peer.over.is_none() {
        peer.turn(&mut |peer, now| {
            while let Some((_, event)) = peer.endpoint.poll_event() {
                match event {
                    Event::Connected | Event::Writable => writable = true,
                    Event::Closed(reason) => peer.over = Some(reason),
                    _ => {}
                }
            }
            let over = stop.is_some_and(|at| now >= at);
            let enough = (2 * peer.endpoint.window(id)).max(QUEUE_MIN) as usize;
            while writable && !over && peer.bytes < args.bytes {
                if stop.is_some() && peer.endpoint.buffered(id) >= enough {
                    break;
                }
                let n = (args.bytes - peer.bytes).min(args.object as u64);
                let message = payload.slice(..n as usize);
                match peer.endpoint.send(id, StreamId(0), message, SendOptions::default()) {
                    Ok(_) => peer.count(now, n, args.bytes),
                    Err(SendError::Blocked) => writable = false,
                    Err(e) => return Err(io::Error::other(e)),
                }
            }
            if (peer.bytes >= args.bytes || over) && !ended {
                ended = true;
                peer.settle();
                peer.endpoint.shutdown(now, id);
            }
            Ok(())
        })?;
    }
    finish(&mut peer, "send", args)
}

/// Takes an association and reads it to its end.
pub(crate) fn recv(args: &Args) -> io::Result<()> {
    let driver = Driver::open(args.addr, args)?;
    println!("{{\"listening\":\"{}\"}}", driver.local()?);
    let mut peer = Peer::new(driver, endpoint(args, PORT, true));
    while peer.over.is_none() {
        peer.turn(&mut |peer, now| {
            let mut readable = false;
            while let Some((id, event)) = peer.endpoint.poll_event() {
                match event {
                    Event::Accepted => (peer.id, peer.since) = (Some(id), Some(now)),
                    Event::Readable => readable = true,
                    Event::PeerShutdown => peer.settle(),
                    Event::Closed(reason) => peer.over = Some(reason),
                    _ => {}
                }
            }
            let Some(id) = peer.id.filter(|_| readable) else { return Ok(()) };
            while let Some(message) = peer.endpoint.receive(id) {
                peer.count(now, message.payload.len() as u64, args.bytes);
                peer.endpoint.recycle(id, message.payload);
            }
            Ok(())
        })?;
    }
    finish(&mut peer, "recv", args)
}

/// Says what was counted; anything but an orderly end is a failure.
fn finish(peer: &mut Peer, mode: &str, args: &Args) -> io::Result<()> {
    let now = peer.driver.now();
    peer.driver.transmit(&mut peer.endpoint, now)?;
    match &peer.over {
        Some(CloseReason::Shutdown) if args.bytes == 0 || peer.bytes == args.bytes || args.seconds > 0.0 => {
            peer.report(mode)
        }
        Some(reason) => Err(io::Error::other(format!("{} of {} bytes, then {reason:?}", peer.bytes, args.bytes))),
        None => Ok(()),
    }
}
