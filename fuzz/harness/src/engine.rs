//! Two engines in a simulated network, and a program on each that does anything in any order.

use bytes::Bytes;
use core::time::Duration;
use neater_base::Rng;
use neater_base::net::{Ecn, InterfaceKind, Net, SocketOptions, Token, Transmit};
use neater_engine::{
    ConnectionId, Engine, EngineConfig, Event, GroupId, ListenerId, LocalEndpoint, RemoteEndpoint, Request,
    RequestOptions, SendOptions, Source, Stack, StreamDirection,
};
use neater_framing::FramerSpec;
use neater_link::LinkConfig;
use neater_netsim::{HostId, LinkId, SimNet, World};
use neater_property::{Role, SelectionProperty, TransportProperties};
use neater_tls::{Crypto, Identity, SecurityParameters, Trust, self_signed};
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

const CLIENT: &str = "203.0.113.1";
const SERVER: &str = "198.51.100.1";
/// Commands of one run: enough to meet, talk and part several times.
const COMMANDS: usize = 200;
/// After this much silence everything that was released must be gone: the longest of lingering, handshake and idle
/// timeouts, and of TCP's own patience with a host that is away.
const PATIENCE: Duration = Duration::from_secs(1200);

/// What one program holds. Ids that are no longer valid are kept: using them must do nothing.
#[derive(Default)]
struct Held {
    conns: Vec<ConnectionId>,
    groups: Vec<GroupId>,
    listeners: Vec<ListenerId>,
}

struct Side {
    host: HostId,
    engine: Engine<SimNet>,
    held: Held,
}

struct Fuzz<'a> {
    world: World,
    sides: [Side; 2],
    requests: Vec<Request>,
    links: Vec<(LinkId, LinkConfig)>,
    rest: &'a [u8],
}

fn identity() -> &'static Identity {
    static IDENTITY: OnceLock<Identity> = OnceLock::new();
    IDENTITY.get_or_init(|| self_signed(&[SERVER], neater_netsim::DEFAULT_WALL, [7; 32]))
}

/// Deterministic cryptography leaks a little per instance, so all runs share one; its numbers do not matter here.
fn crypto() -> Crypto {
    static CRYPTO: OnceLock<Crypto> = OnceLock::new();
    CRYPTO.get_or_init(|| Crypto::deterministic([3; 32])).clone()
}

impl<'a> Fuzz<'a> {
    fn new(data: &'a [u8]) -> Self {
        let world = World::new(1);
        let mut links = Vec::new();
        let mut sides = [CLIENT, SERVER].map(|addr| {
            let host = world.add_host(addr);
            let addr: IpAddr = addr.parse().unwrap_or(IpAddr::from([127, 0, 0, 1]));
            let iface = world.add_interface(host, "eth0", InterfaceKind::Wired, &[addr]);
            let config = LinkConfig::rate(50_000_000, Duration::from_millis(3));
            let (up, down) = world.attach(iface, config.clone(), config.clone());
            links.extend([(up, config.clone()), (down, config)]);
            let config = EngineConfig::new(Rng::from_number(links.len() as u64).seed(), crypto());
            Side { host, engine: Engine::new(world.net(host), config), held: Held::default() }
        });
        let mut client = SecurityParameters::new();
        client.trust = Trust::Only(identity().chain.clone());
        let mut server = SecurityParameters::new();
        server.server_certificates = vec![identity().clone()];
        let mut requests = Vec::new();
        let mut datagrams = neater_property::profile("unreliable-datagram").unwrap_or_default();
        datagrams.message.safely_replayable = true;
        let framers = [FramerSpec::Raw, FramerSpec::LengthPrefixed { width: 2, max: 60_000 }];
        for (stacks, framer) in [
            (&[Stack::Tcp][..], 0),
            (&[Stack::Tls], 1),
            (&[Stack::Quic], 0),
            (&[Stack::Quic], 1),
            (&[Stack::Quic, Stack::Tls], 0),
            (&[Stack::Tls], 0),
            (&[Stack::Udp], 0),
            (&[Stack::QuicDatagram], 0),
        ] {
            let clear = !stacks[0].is_secure();
            let properties = if stacks[0].is_stream() { TransportProperties::new() } else { datagrams.clone() };
            let options = RequestOptions {
                framer: framers[framer].clone(),
                stacks: stacks.to_vec(),
                ..RequestOptions::default()
            };
            let off = SecurityParameters::disabled();
            let (c, s) = if clear { (&off, &off) } else { (&client, &server) };
            let port = 1000 + requests.len() as u16;
            // Both were made to be served: a request that cannot be compiled is a broken harness.
            let compiled = sides[0].engine.compile(&properties, c, Role::Initiate, &options);
            requests.push(compiled.unwrap_or_else(|e| panic!("{e}")));
            // Early data is refused by listeners that do not ask for it; these do.
            let mut asking = properties.clone();
            asking.prefer(SelectionProperty::ZeroRttMsg);
            let listening = sides[1].engine.compile(&asking, s, Role::Listen, &options);
            let listening = listening.unwrap_or_else(|e| panic!("{e}"));
            let local = LocalEndpoint::new().with_port(port);
            let listener = sides[1].engine.listen(&listening, &[local]).unwrap_or_else(|e| panic!("{e}"));
            sides[1].held.listeners.push(listener);
        }
        Self { world, sides, requests, links, rest: data }
    }

    fn byte(&mut self) -> u8 {
        let (first, rest) = self.rest.split_first().unwrap_or((&0, &[]));
        self.rest = rest;
        *first
    }

    fn conn(&mut self, side: usize) -> ConnectionId {
        let n = self.byte() as usize;
        let conns = &self.sides[side].held.conns;
        conns.get(n % conns.len().max(1)).copied().unwrap_or(ConnectionId::from_bits(n as u64))
    }

    fn group(&mut self, side: usize) -> GroupId {
        let n = self.byte() as usize;
        let groups = &self.sides[side].held.groups;
        groups.get(n % groups.len().max(1)).copied().unwrap_or(GroupId::from_bits(n as u64))
    }

    fn command(&mut self) {
        let op = self.byte();
        let side = usize::from(op & 1);
        match op >> 1 & 31 {
            0..=3 => self.initiate(op),
            4..=6 => {
                let (conn, n) = (self.conn(side), self.byte());
                let options = SendOptions {
                    end_of_message: n & 1 == 0,
                    is_final: n & 6 == 6,
                    safely_replayable: n & 8 == 0,
                    lifetime: (n & 48 == 48).then_some(Duration::from_millis(u64::from(n))),
                    ..SendOptions::default()
                };
                let _ = self.sides[side].engine.send(conn, Bytes::from(vec![n; usize::from(n) * 97]), options);
            }
            7 => {
                let (conn, n) = (self.conn(side), self.byte());
                let _ = self.sides[side].engine.write(conn, &[IoSlice::new(&vec![n; usize::from(n) * 501])]);
            }
            8 => {
                let conn = self.conn(side);
                let mut buf = [0; 4000];
                let _ = self.sides[side].engine.read(conn, &mut buf);
            }
            9..=11 => {
                let (conn, n) = (self.conn(side), self.byte());
                let _ = self.sides[side].engine.receive(conn, usize::from(n) * 100);
            }
            12 => {
                let conn = self.conn(side);
                let _ = self.sides[side].engine.finish(conn);
            }
            13 => {
                let conn = self.conn(side);
                self.sides[side].engine.close(conn);
            }
            14 => {
                let (conn, code) = (self.conn(side), self.byte());
                self.sides[side].engine.abort_with(conn, u64::from(code));
            }
            15 => {
                let conn = self.conn(side);
                self.sides[side].engine.release(conn);
            }
            16 => {
                let (conn, n) = (self.conn(side), self.byte());
                let direction = if n & 1 == 0 { StreamDirection::Both } else { StreamDirection::One };
                if let Ok(c) = self.sides[side].engine.clone_connection(conn, direction) {
                    self.sides[side].held.conns.push(c);
                }
            }
            17 => {
                let conn = self.conn(side);
                if let Ok(g) = self.sides[side].engine.group(conn) {
                    self.sides[side].held.groups.push(g);
                }
            }
            18 => {
                let (group, n) = (self.group(side), self.byte());
                let direction = if n & 1 == 0 { StreamDirection::Both } else { StreamDirection::One };
                if let Ok(c) = self.sides[side].engine.open_stream(group, direction) {
                    self.sides[side].held.conns.push(c);
                }
            }
            19 => {
                let (group, n) = (self.group(side), self.byte());
                let engine = &mut self.sides[side].engine;
                match n & 3 {
                    0 => engine.close_group(group),
                    1 => engine.abort_group(group),
                    2 => engine.close_session(group, u64::from(n), b"enough"),
                    _ => {}
                }
            }
            20 => {
                let (conn, n) = (self.conn(side), self.byte());
                let engine = &mut self.sides[side].engine;
                match n & 7 {
                    0 => engine.stop_receiving(conn, u64::from(n)),
                    1 => engine.reset_sending(conn, u64::from(n)),
                    2 => engine.set_priority(conn, u32::from(n)),
                    3 => engine.start_batch(conn),
                    4 => engine.end_batch(conn),
                    5 => drop(engine.send_msg_max_len(conn)),
                    6 => drop(engine.connection_stats(conn)),
                    _ => {
                        drop((engine.local_addr(conn), engine.alpn(conn), engine.security(conn), engine.timeline(conn)))
                    }
                }
            }
            21 => {
                let n = self.byte();
                let listeners = &self.sides[1].held.listeners;
                let listener = listeners[usize::from(n) % listeners.len()];
                let engine = &mut self.sides[1].engine;
                match n >> 5 {
                    0 | 1 => engine.set_new_connection_limit(listener, Some(u64::from(n & 3))),
                    2 => engine.set_new_connection_limit(listener, None),
                    3 => engine.deliver_groups(listener, n & 1 == 0),
                    4 => engine.stop(listener),
                    _ => {}
                }
            }
            22 => {
                // A link gets worse, or well again.
                let n = self.byte();
                let (link, config) = self.links[usize::from(n & 3)].clone();
                let config = match n >> 6 {
                    0 => config,
                    1 => config.with_down(true),
                    2 => config.with_loss(0.2),
                    _ => config.with_mtu(1000, neater_link::TooBig::BlackHole),
                };
                self.world.set_link(link, config);
            }
            23 => self.garbage(),
            24 => self.world.inject(self.sides[side].host, neater_base::net::NetEvent::PathsChanged),
            _ => {
                let n = self.byte();
                self.run(Duration::from_millis(1 << (n & 11)));
            }
        }
    }

    fn initiate(&mut self, op: u8) {
        let n = self.byte();
        let which = usize::from(n) % self.requests.len();
        let port = 1000 + if n & 0x80 == 0 { which } else { usize::from(n & 7) } as u16;
        let addr: SocketAddr = (SERVER.parse::<IpAddr>().unwrap_or(IpAddr::from([127, 0, 0, 1])), port).into();
        let remotes: Arc<[RemoteEndpoint]> = Arc::new([addr.into()]);
        let first = (op & 0x40 != 0).then(|| Bytes::from_static(b"early"));
        let request = self.requests[which].clone();
        if let Ok(c) = self.sides[0].engine.initiate(&request, &remotes, None, first) {
            self.sides[0].held.conns.push(c);
        }
    }

    /// Bytes of the fuzzer's own choice, to any port of the server.
    fn garbage(&mut self) {
        let (port, len) = (1000 + u16::from(self.byte() % 8), usize::from(self.byte()));
        let (data, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        let mut net = self.world.net(self.sides[0].host);
        let to: SocketAddr = (SERVER.parse::<IpAddr>().unwrap_or(IpAddr::from([127, 0, 0, 1])), port).into();
        if let Ok(sock) = net.udp(Token(u64::MAX), to, &SocketOptions::default()) {
            let t = Transmit {
                destination: to,
                source: None,
                interface: None,
                ecn: Ecn::NotEct,
                segment_size: None,
                contents: data,
            };
            let _ = net.send(sock, &t);
            net.close(sock);
        }
    }

    /// Lets time pass, and takes what the engines report.
    fn run(&mut self, time: Duration) {
        let end = self.world.now() + time;
        for step in 0.. {
            assert!(step < 2_000_000, "the engines spin at {:?}", self.world.now());
            let mut idle = true;
            for side in &mut self.sides {
                side.engine.settle();
                if self.world.has_events(side.host) {
                    idle = false;
                    side.engine.turn();
                }
                while let Some(notice) = side.engine.poll_notice() {
                    match notice.source {
                        Source::Listener(l) => side.engine.taken(l),
                        Source::Group(g) => side.engine.taken_stream(g),
                        Source::Connection(_) => {}
                    }
                    match notice.event {
                        Event::ConnectionReceived(c) | Event::StreamReceived(c) => side.held.conns.push(c),
                        Event::GroupReceived(g) => side.held.groups.push(g),
                        _ => {}
                    }
                }
            }
            if !idle {
                continue;
            }
            let next =
                [self.world.next_event(), self.world.next_wakeup().map(|(_, at)| at)].into_iter().flatten().min();
            match next {
                Some(at) if at <= end => self.world.run_until(at),
                _ => return self.world.run_until(end),
            }
        }
    }

    /// Everybody lets go of everything: nothing may stay behind.
    fn end(mut self) {
        for (link, config) in self.links.clone() {
            self.world.set_link(link, config);
        }
        for _ in 0..2 {
            for side in &mut self.sides {
                for c in core::mem::take(&mut side.held.conns) {
                    side.engine.release(c);
                }
                for g in core::mem::take(&mut side.held.groups) {
                    side.engine.close_group(g);
                    side.engine.release_group(g);
                }
                for l in core::mem::take(&mut side.held.listeners) {
                    side.engine.stop(l);
                }
            }
            // What was received meanwhile is released the second time.
            self.run(PATIENCE);
        }
        for side in &mut self.sides {
            let s = side.engine.stats();
            if s.connections > 0 {
                for bits in (0..64u64).flat_map(|i| (0..64u64).map(move |g| g << 32 | i)) {
                    let c = ConnectionId::from_bits(bits);
                    if side.engine.state(c) != neater_engine::ConnectionState::Closed {
                        let e = &side.engine;
                        println!(
                            "{c:?}: {:?}, {:?}, {:?}, {:?}",
                            e.state(c),
                            e.stack(c),
                            e.remote_addr(c),
                            e.connection_stats(c)
                        );
                    }
                }
            }
            let left = (s.connections, s.channels, s.quic_connections, s.bytes_queued);
            assert_eq!(left, (0, 0, 0, 0), "left behind on {}: {s:?}", self.world.host_name(side.host));
            assert_eq!(self.world.open_sockets(side.host), 0, "sockets left on {}", self.world.host_name(side.host));
        }
    }
}

/// Any commands in any order, over any network: no panic, no spinning, and nothing left behind.
///
/// # Panics
/// When that does not hold.
pub fn engine_commands(data: &[u8]) {
    let mut fuzz = Fuzz::new(data);
    for _ in 0..COMMANDS {
        if fuzz.rest.is_empty() {
            break;
        }
        fuzz.command();
    }
    fuzz.end();
}

/// Reads `data` as HOST:PORT.
pub fn engine_endpoint(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match text.parse::<RemoteEndpoint>() {
        Ok(e) => {
            let written = e.to_string();
            let again: RemoteEndpoint = written.parse().unwrap_or_else(|e| panic!("{text:?} became {written:?}: {e}"));
            assert_eq!(again.to_string(), written, "{text:?}");
        }
        Err(e) => assert!(!e.to_string().is_empty()),
    }
}
