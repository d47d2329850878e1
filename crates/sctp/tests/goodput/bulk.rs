//! Bulk transfers of SCTP and of the simulator's TCP over one bottleneck, in virtual time, as
//! experiment S3 has them in the lab.

use bytes::Bytes;
use core::time::Duration;
use neater_base::Instant;
use neater_base::net::{
    Ecn, InterfaceKind, Net, NetEvent, RecvBatch, Sock, SocketOption, SocketOptions, Token, Transmit,
};
use neater_link::{LinkConfig, QueueLimit};
use neater_netsim::{BufferSize, HostId, SimNet, TcpConfig, World};
use neater_sctp::{
    AssociationConfig, AssociationId, AssociationStats, Config, Endpoint, Event, Layer, LayerId, Route, SendError,
    SendOptions, Train,
};
use neater_sctp_wire::StreamId;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// UDP or TCP port of the receivers.
const PORT: u16 = 9899;
/// SCTP ports.
const PORTS: [u16; 2] = [5001, 5002];
/// Bytes of a message.
const MESSAGE: usize = 16_000;
/// The largest buffers of both, in bytes. Half of TCP's 64 MB is window.
const BUFFERS: (u32, usize) = (64 << 20, 32 << 20);
/// The queue of the bottleneck has room for so many packets at least.
const QUEUE_MIN: usize = 64;

/// A path: Mbit/s, round-trip time in ms, loss in each direction in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Path {
    pub(crate) rate: f64,
    pub(crate) rtt: f64,
    pub(crate) loss: f64,
}

impl Path {
    pub(crate) fn name(&self) -> String {
        format!("{}Mbit-{}ms-{}%", self.rate, self.rtt, self.loss)
    }

    /// One direction of the bottleneck.
    pub(crate) fn link(&self) -> LinkConfig {
        let bdp = self.rate * 1e6 * self.rtt / 1e3 / 8.0 / 1500.0;
        let link = LinkConfig::rate((self.rate * 1e6) as u64, Duration::from_secs_f64(self.rtt / 2e3))
            .with_queue(QueueLimit::Packets((bdp.round() as usize).max(QUEUE_MIN)));
        if self.loss > 0.0 { link.with_loss(self.loss / 100.0) } else { link }
    }

    /// Bytes that take about `seconds`: at the rate, or, where packets are lost, at the mean of
    /// what the first loss leaves (slow start has then half as many packets under way as it has
    /// sent, and CUBIC keeps 0.7 of them) and of what CUBIC comes down to (RFC 9438 section 5.1).
    /// As in S3.
    pub(crate) fn bytes(&self, seconds: f64) -> u64 {
        let rate = self.rate * 1e6 / 8.0;
        let expected = if self.loss > 0.0 {
            let (p, rtt) = (self.loss / 100.0, (self.rtt / 1e3).max(0.001));
            let cubic = 1.054 * (rtt / p).powf(0.75);
            let reno = (1.5 / p).sqrt();
            let [first, last] = [0.35 / p, cubic.max(reno)].map(|packets| (packets * 1448.0 / rtt).min(rate));
            (first * last).sqrt()
        } else {
            rate
        };
        ((expected * seconds) as u64).max(1_000_000)
    }
}

/// The transport of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stack {
    Tcp,
    Sctp,
}

/// One transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) stack: Stack,
    /// When it begins.
    pub(crate) start: Duration,
    /// How many bytes; it then ends.
    pub(crate) bytes: u64,
}

/// What became of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    /// Bytes that the receiver had.
    pub(crate) bytes: u64,
    /// From the receiver's first packet to the last byte.
    pub(crate) time: Duration,
    pub(crate) retransmissions: u64,
    pub(crate) recoveries: u64,
    pub(crate) timeouts: u64,
}

impl Done {
    /// In Mbit/s.
    pub(crate) fn goodput(&self) -> f64 {
        self.bytes as f64 * 8e-6 / self.time.as_secs_f64().max(1e-9)
    }
}

/// The inside of a sender, for traces. Sizes in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sight {
    pub(crate) window: u64,
    pub(crate) threshold: Option<u64>,
    pub(crate) in_flight: u64,
    pub(crate) srtt: Option<Duration>,
    pub(crate) retransmissions: u64,
    /// A full packet.
    pub(crate) packet: u64,
    /// At the receiver.
    pub(crate) received: u64,
}

fn address(flow: usize, end: usize) -> IpAddr {
    Ipv4Addr::new(192, 0, 2 + end as u8, 1 + flow as u8).into()
}

/// One end of an association over the simulator's UDP.
struct End {
    net: SimNet,
    host: HostId,
    sock: Sock,
    endpoint: Endpoint,
    id: Option<AssociationId>,
    out: Vec<u8>,
    batch: RecvBatch,
    polled: Vec<NetEvent>,
    waiting: Option<Train>,
    writable: bool,
    bytes: u64,
    since: Option<Instant>,
    until: Instant,
}

impl End {
    fn new(
        world: &World,
        host: HostId,
        local: IpAddr,
        port: u16,
        accept: bool,
        association: AssociationConfig,
    ) -> Self {
        let mut net = world.net(host);
        let mut options = SocketOptions { local: Some(SocketAddr::new(local, PORT)), ..SocketOptions::default() };
        options.set.push(SocketOption::DontFragment(true));
        options.set.push(SocketOption::ReceiveBuffer(4 << 20));
        options.set.push(SocketOption::SendBuffer(16 << 20));
        let sock = net.udp(Token(1), SocketAddr::new(local, PORT), &options).unwrap();
        let layer = Layer { mtu: 1500, overhead: 28, ..Layer::udp() };
        let config = Config { layers: vec![layer], port, accept, association, ..Config::default() };
        let seed = [if accept { 2 } else { 1 }; 32];
        Self {
            net,
            host,
            sock,
            endpoint: Endpoint::new(config, seed, &seed),
            id: None,
            out: vec![0; 65_535],
            batch: RecvBatch::default(),
            polled: Vec::new(),
            waiting: None,
            writable: false,
            bytes: 0,
            since: None,
            until: world.now(),
        }
    }

    fn transmit(&mut self, now: Instant) {
        let most = self.net.max_segments(self.sock);
        while let Some(train) = self.waiting.take().or_else(|| self.endpoint.poll_train(now, &mut self.out, most)) {
            let transmit = Transmit {
                destination: train.route.remote,
                source: None,
                interface: None,
                ecn: Ecn::NotEct,
                segment_size: (train.len > train.segment).then_some(train.segment),
                contents: &self.out[..train.len],
            };
            match self.net.send(self.sock, &transmit) {
                Ok(()) => {}
                Err(e) if e.is_would_block() => {
                    self.waiting = Some(train);
                    return;
                }
                Err(e) => panic!("{e}"),
            }
        }
    }

    /// Does what is due; `total` is what the sender has to send.
    fn turn(&mut self, now: Instant, total: Option<u64>) {
        while self.net.poll(&mut self.polled) {}
        self.polled.clear();
        self.endpoint.handle_timeout(now);
        self.app(now, total);
        self.transmit(now);
        let mut any = false;
        while self.net.recv(self.sock, &mut self.batch).is_ok() {
            any = true;
            for (meta, bytes) in self.batch.filled() {
                let route = Route { layer: LayerId(0), remote: meta.source };
                self.endpoint.handle_packet(now, route, false, bytes);
            }
        }
        if any {
            self.app(now, total);
            self.transmit(now);
        }
    }

    fn app(&mut self, now: Instant, total: Option<u64>) {
        let mut readable = false;
        while let Some((id, event)) = self.endpoint.poll_event() {
            match event {
                Event::Connected | Event::Writable => self.writable = true,
                Event::Accepted => (self.id, self.since) = (Some(id), Some(now)),
                Event::Readable => readable = true,
                Event::Closed(reason) => panic!("the association ended: {reason:?}"),
                _ => {}
            }
        }
        let Some(id) = self.id else { return };
        if let Some(total) = total {
            while self.writable && self.bytes < total {
                let n = (total - self.bytes).min(MESSAGE as u64) as usize;
                let message = Bytes::from_static(&[0x5a; MESSAGE]).slice(..n);
                match self.endpoint.send(id, StreamId(0), message, SendOptions::default()) {
                    Ok(_) => self.bytes += n as u64,
                    Err(SendError::Blocked) => self.writable = false,
                    Err(e) => panic!("{e}"),
                }
            }
        } else if readable {
            while let Some(message) = self.endpoint.receive(id) {
                self.bytes += message.payload.len() as u64;
                self.until = now;
                self.endpoint.recycle(id, message.payload);
            }
        }
    }

    fn stats(&self) -> AssociationStats {
        self.id.and_then(|id| self.endpoint.association_stats(id)).unwrap_or_default()
    }
}

/// Sender and receiver of a TCP connection.
struct Tcp {
    hosts: [HostId; 2],
    nets: [SimNet; 2],
    listener: Sock,
    sock: Sock,
    accepted: Option<Sock>,
    polled: Vec<NetEvent>,
    written: u64,
    bytes: u64,
    since: Option<Instant>,
    until: Instant,
}

impl Tcp {
    fn new(world: &World, hosts: [HostId; 2], remote: IpAddr) -> Self {
        let base = TcpConfig::linux();
        let most = BUFFERS.1;
        let buffer = |tuned: BufferSize| match tuned {
            BufferSize::Fixed(start) | BufferSize::Tuned { start, .. } => BufferSize::Tuned { start, most },
        };
        let (receive_buffer, send_buffer) = (buffer(base.receive_buffer), buffer(base.send_buffer));
        let tcp = TcpConfig { receive_buffer, send_buffer, ..base };
        hosts.iter().for_each(|h| world.set_tcp(*h, tcp));
        let mut nets = hosts.map(|h| world.net(h));
        let plain = SocketOptions::default();
        let to = SocketAddr::new(remote, PORT);
        let listener = nets[1].listen(Token(1), to, &plain).unwrap();
        let sock = nets[0].connect(Token(2), to, &plain).unwrap();
        let accepted = nets[1].accept(listener, Token(3)).ok().map(|(sock, _)| sock);
        let (polled, until) = (Vec::new(), world.now());
        Self { hosts, nets, listener, sock, accepted, polled, written: 0, bytes: 0, since: None, until }
    }

    fn turn(&mut self, world: &World, now: Instant, total: u64) {
        let [client, server] = &mut self.nets;
        if world.has_events(self.hosts[0]) {
            while client.poll(&mut self.polled) {}
            while self.written < total
                && let Ok(n) = client.write_zeros(self.sock, (total - self.written).min(1 << 18) as usize)
            {
                self.written += n as u64;
                if self.written == total {
                    // Which sends what Nagle's algorithm (RFC 9293 section 3.7.4) would keep for a
                    // round trip.
                    client.shutdown_write(self.sock).unwrap();
                }
            }
        }
        if world.has_events(self.hosts[1]) {
            while server.poll(&mut self.polled) {}
            if self.accepted.is_none() {
                self.accepted = server.accept(self.listener, Token(3)).ok().map(|(sock, _)| sock);
                self.since = self.accepted.map(|_| now);
            }
            if let Some(sock) = self.accepted {
                while let Ok(n @ 1..) = server.discard(sock, 1 << 20) {
                    self.bytes += n as u64;
                    self.until = now;
                }
            }
        }
        self.polled.clear();
    }
}

enum Running {
    Later,
    Tcp(Box<Tcp>),
    Sctp(Box<[End; 2]>),
}

impl Running {
    fn start(world: &World, flow: usize, hosts: [HostId; 2], stack: Stack, association: &AssociationConfig) -> Self {
        if stack == Stack::Tcp {
            return Self::Tcp(Box::new(Tcp::new(world, hosts, address(flow, 1))));
        }
        let mut ends =
            [0, 1].map(|e| End::new(world, hosts[e], address(flow, e), PORTS[e], e == 1, association.clone()));
        let remote = SocketAddr::new(address(flow, 1), PORT);
        let route = Route { layer: LayerId(0), remote };
        ends[0].id = Some(ends[0].endpoint.connect(world.now(), PORTS[1], &[route]).unwrap());
        // Sends the first packet, and asks both sockets, which is what they promise readiness for.
        ends.iter_mut().enumerate().for_each(|(i, end)| end.turn(world.now(), (i == 0).then_some(0)));
        // As a program on TCP does, this one does not wait: the first packet of data goes with
        // COOKIE ECHO.
        ends[0].writable = true;
        Self::Sctp(Box::new(ends))
    }

    fn turn(&mut self, world: &World, now: Instant, total: u64) {
        match self {
            Self::Later => {}
            Self::Tcp(tcp) => tcp.turn(world, now, total),
            Self::Sctp(ends) => {
                for (i, end) in ends.iter_mut().enumerate() {
                    if world.has_events(end.host) || end.deadline().is_some_and(|at| at <= now) {
                        end.turn(now, (i == 0).then_some(total));
                    }
                }
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Sctp(ends) => ends.iter().filter_map(End::deadline).min(),
            _ => None,
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Later => 0,
            Self::Tcp(tcp) => tcp.bytes,
            Self::Sctp(ends) => ends[1].bytes,
        }
    }

    fn done(&self) -> Done {
        match self {
            Self::Later => Done::default(),
            Self::Tcp(tcp) => {
                let probe = tcp.nets[0].tcp_probe(tcp.sock).ok();
                let count = |f: fn(&neater_netsim::TcpProbe) -> u64| probe.as_ref().map_or(0, f);
                Done {
                    bytes: tcp.bytes,
                    time: tcp.since.map_or(Duration::ZERO, |since| tcp.until - since),
                    retransmissions: count(|p| p.retransmits),
                    recoveries: count(|p| p.recoveries),
                    timeouts: count(|p| p.timeouts),
                }
            }
            Self::Sctp(ends) => {
                let stats = ends[0].stats();
                Done {
                    bytes: ends[1].bytes,
                    time: ends[1].since.map_or(Duration::ZERO, |since| ends[1].until - since),
                    retransmissions: stats.retransmissions,
                    recoveries: stats.fast_recoveries,
                    timeouts: stats.timeouts,
                }
            }
        }
    }

    fn sight(&self) -> Sight {
        match self {
            Self::Later => Sight::default(),
            Self::Tcp(tcp) => tcp.nets[0].tcp_probe(tcp.sock).map_or_else(
                |_| Sight::default(),
                |p| Sight {
                    window: p.window,
                    threshold: p.threshold,
                    in_flight: p.in_flight,
                    srtt: p.srtt,
                    retransmissions: p.retransmits,
                    packet: p.mss,
                    received: tcp.bytes,
                },
            ),
            Self::Sctp(ends) => {
                let paths = ends[0].id.map(|id| ends[0].endpoint.paths(id)).unwrap_or_default();
                paths.first().map_or_else(Sight::default, |p| Sight {
                    window: p.window,
                    threshold: p.threshold,
                    in_flight: p.in_flight,
                    srtt: p.srtt,
                    retransmissions: ends[0].stats().retransmissions,
                    packet: u64::from(p.room),
                    received: ends[1].bytes,
                })
            }
        }
    }
}

impl End {
    fn deadline(&self) -> Option<Instant> {
        self.endpoint.next_timeout()
    }
}

/// What associations begin with: all as it ships, with the buffers of the experiment.
pub(crate) fn shipped() -> AssociationConfig {
    AssociationConfig { receive_buffer: BUFFERS.0, send_buffer: BUFFERS.0 as usize, ..AssociationConfig::default() }
}

/// Sees a flow: after how long, which, and its sender.
pub(crate) type Look<'a> = dyn FnMut(Duration, usize, &Sight) + 'a;

/// Runs transfers over one bottleneck until all are complete, or for `limit`. `look` is called for
/// each flow every `every`.
pub(crate) fn run(
    path: &Path,
    flows: &[Flow],
    association: &AssociationConfig,
    seed: u64,
    limit: Duration,
    mut look: Option<(Duration, &mut Look<'_>)>,
) -> Vec<Done> {
    let world = World::new(seed);
    let [there, back] = [0, 1].map(|_| world.add_link(path.link()));
    let mut hosts = Vec::new();
    for flow in 0..flows.len() {
        let pair = [0, 1].map(|end| {
            let host = world.add_host(&format!("{}{flow}", ["sender", "receiver"][end]));
            (host, world.add_interface(host, "eth0", InterfaceKind::Wired, &[address(flow, end)]))
        });
        world.set_route(pair[0].1, pair[1].1, &[there]);
        world.set_route(pair[1].1, pair[0].1, &[back]);
        hosts.push([pair[0].0, pair[1].0]);
    }
    let origin = world.now();
    let mut running: Vec<Running> = flows.iter().map(|_| Running::Later).collect();
    let (mut looked, mut before, mut idle) = (origin, origin, 0);
    loop {
        let now = world.now();
        idle = if now > before { 0 } else { idle + 1 };
        assert!(idle < 100_000, "time stands still: a deadline is not served");
        before = now;
        for (i, flow) in flows.iter().enumerate() {
            if matches!(running[i], Running::Later) && now >= origin + flow.start {
                running[i] = Running::start(&world, i, hosts[i], flow.stack, association);
            }
            running[i].turn(&world, now, flow.bytes);
        }
        if let Some((every, look)) = &mut look
            && now - looked >= *every
        {
            looked = now;
            running.iter().enumerate().for_each(|(i, r)| look(now - origin, i, &r.sight()));
        }
        if running.iter().zip(flows).all(|(r, f)| r.bytes() >= f.bytes) {
            break;
        }
        let starts = flows.iter().map(|f| origin + f.start).filter(|at| *at > now).min();
        let own = running.iter().filter_map(Running::deadline).chain(starts).min().map(|at| at.max(now));
        let network = world.next_event();
        let Some(next) = [own, network].into_iter().flatten().min().filter(|at| *at <= origin + limit) else { break };
        if network == Some(next) {
            world.step();
        } else {
            world.run_until(next);
        }
    }
    running.iter().map(Running::done).collect()
}
