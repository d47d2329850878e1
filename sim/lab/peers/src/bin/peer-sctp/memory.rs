//! `memory`: what an endpoint holds for idle associations, and for streams that were used.
//!
//! Both sides are in this process and packets go from one to the other at once; then the clients are dropped, and what is left
//! is what the server holds.

use crate::alloc;
use crate::args::Args;
use crate::driver::route;
use crate::transfer::{PORT, endpoint};
use bytes::Bytes;
use core::time::Duration;
use neater_base::Instant;
use neater_sctp::{AssociationId, Endpoint, Event, SendError, SendOptions};
use neater_sctp_wire::StreamId;
use std::io;
use std::net::SocketAddr;

/// Both sides, and the address of each.
struct Pair {
    server: Endpoint,
    clients: Vec<(Endpoint, AssociationId)>,
    accepted: Vec<AssociationId>,
    now: Instant,
    buffer: Vec<u8>,
}

const SERVER: ([u8; 4], u16) = ([127, 0, 0, 1], 9899);

/// The UDP port of the first client.
const FIRST: u16 = 10_000;
/// Longer than the time between heartbeats.
const IDLE: Duration = Duration::from_secs(40);
/// Longer than any acknowledgment is delayed.
const DELAYED: Duration = Duration::from_millis(300);

/// Clients are told apart by their UDP port here.
fn client_address(index: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 2], FIRST + index as u16))
}

impl Pair {
    fn new(args: &Args, clients: usize) -> io::Result<Self> {
        let now = Instant::ZERO + Duration::from_secs(1);
        let mut pair = Self {
            server: endpoint(args, PORT, true),
            clients: Vec::new(),
            accepted: Vec::new(),
            now,
            buffer: vec![0; 2048],
        };
        for i in 0..clients {
            let mut client = endpoint(args, PORT + 1, false);
            let server = SocketAddr::from(SERVER);
            let id = client.connect(now, PORT, &[route(server)]).map_err(io::Error::other)?;
            pair.clients.push((client, id));
            pair.exchange(i);
        }
        if pair.accepted.len() == clients { Ok(pair) } else { Err(io::Error::other("not all associations came up")) }
    }

    /// What one client has to send goes to the server, and what the server has to send to whom it is for, until there is nothing.
    fn exchange(&mut self, index: usize) {
        let mut turns = vec![index];
        while let Some(index) = turns.pop() {
            let (client, id) = &mut self.clients[index];
            while let Some(t) = client.poll_transmit(self.now, &mut self.buffer) {
                self.server.handle_packet(self.now, route(client_address(index)), false, &self.buffer[..t.len]);
            }
            while client.poll_event().is_some() {}
            while let Some(m) = client.receive(*id) {
                client.recycle(*id, m.payload);
            }
            while let Some((id, event)) = self.server.poll_event() {
                match event {
                    Event::Accepted => self.accepted.push(id),
                    Event::Readable => {
                        while let Some(m) = self.server.receive(id) {
                            self.server.recycle(id, m.payload);
                        }
                    }
                    _ => {}
                }
            }
            while let Some(t) = self.server.poll_transmit(self.now, &mut self.buffer) {
                let index = usize::from(t.route.remote.port() - FIRST);
                let (client, _) = &mut self.clients[index];
                client.handle_packet(self.now, route(SocketAddr::from(SERVER)), false, &self.buffer[..t.len]);
                turns.push(index);
            }
        }
    }

    /// As [`Pair::exchange`], and what is due within `time` after it.
    fn settle(&mut self, time: Duration) {
        self.exchange(0);
        self.now += time;
        self.server.handle_timeout(self.now);
        self.clients[0].0.handle_timeout(self.now);
        self.exchange(0);
    }

    /// A message each way on every one of `streams` streams of the first association.
    fn use_streams(&mut self, streams: u16) -> Result<(), SendError> {
        for stream in (0..streams).map(StreamId) {
            let (client, id) = &mut self.clients[0];
            client.send(*id, stream, Bytes::from_static(b"there"), SendOptions::default())?;
            self.server.send(self.accepted[0], stream, Bytes::from_static(b"back"), SendOptions::default())?;
        }
        // All of them wait at once, which is the worst that can be done to the queues.
        self.settle(DELAYED);
        self.settle(DELAYED);
        // What is only kept for a while is given back when nothing has happened between two heartbeats.
        self.settle(IDLE);
        self.settle(IDLE);
        Ok(())
    }

    /// What the server holds, once everything else is gone.
    fn server_bytes(self) -> u64 {
        let Self { server, clients, accepted, buffer, .. } = self;
        drop((clients, accepted, buffer));
        let with = alloc::live();
        drop(server);
        with - alloc::live()
    }
}

/// Reports what the server holds with `flows` associations, of which the first has used `streams` streams.
pub(crate) fn run(args: &Args) -> io::Result<()> {
    let mut pair = Pair::new(args, args.flows as usize)?;
    if args.streams > 0 {
        pair.use_streams(args.streams).map_err(io::Error::other)?;
    }
    let bytes = pair.server_bytes();
    println!(
        "{{\"peer\":\"neater-sctp\",\"mode\":\"memory\",\"flows\":{},\"streams\":{},\"live_bytes\":{bytes}}}",
        args.flows, args.streams
    );
    Ok(())
}
