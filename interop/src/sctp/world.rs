//! One association between us and a peer, and the ledgers of both directions.

use super::capture::Capture;
use super::driver::Driver;
use super::ledger::{Batch, Ledger, Received, fill, hash};
use super::links::{LINKS_UDP, Links, link_address};
use super::machine::{MACHINE_UDP, Shared, address};
use super::peer::Peer;
use super::wire::{Loopback, Wire};
use crate::free_port;
use bytes::Bytes;
use neater_link::LinkConfig;
use neater_sctp::{
    AssociationConfig, AssociationId, CloseReason, Config, Event, Layer, LayerId, MessageId, Reliability, Route,
    SendError, SendOptions,
};
use neater_sctp_wire::StreamId;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

/// Who opens the association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// We do.
    Client,
    /// The peer does.
    Server,
}

/// Where the peer is.
#[derive(Clone, Debug)]
pub enum Place {
    /// usrsctp, at another UDP port of loopback.
    Usrsctp,
    /// usrsctp, at the other end of two links; see [`super::between_links`].
    UsrsctpLinks,
    /// Linux' kernel, in a virtual machine.
    Linux {
        /// The machine.
        machine: Shared,
        /// In UDP (RFC 6951), else in IP itself.
        udp: bool,
        /// On which cards, and with IPv6 there or IPv4. Each is a path.
        paths: Vec<(u8, bool)>,
        /// More addresses of ours, which the peer is not told of: layers after those of the paths.
        spare: Vec<IpAddr>,
    },
}

/// What a test wants.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Where the peer is.
    pub place: Place,
    /// Who opens the association.
    pub role: Role,
    /// What lies between.
    pub link: LinkConfig,
    /// Our settings.
    pub config: AssociationConfig,
    /// More arguments for the peer; see `c/sctp_peer.c`.
    pub peer: Vec<&'static str>,
    /// Chance.
    pub seed: u64,
    /// Where the packets are recorded, if they are.
    pub capture: Option<PathBuf>,
}

impl Wish {
    /// Ordinary settings over a perfect link.
    #[must_use]
    pub fn new(role: Role) -> Self {
        let config = AssociationConfig::default();
        let peer = vec!["--streams", "1000,2000"];
        Self { place: Place::Usrsctp, role, link: LinkConfig::default(), config, peer, seed: 1, capture: None }
    }

    /// The same with Linux, over one path in UDP over IPv4.
    #[must_use]
    pub fn linux(role: Role, machine: &Shared) -> Self {
        let place = Place::Linux { machine: machine.clone(), udp: true, paths: vec![(0, false)], spare: Vec::new() };
        Self { place, ..Self::new(role) }
    }

    /// The same with usrsctp over two links.
    #[must_use]
    pub fn links(role: Role) -> Self {
        Self { place: Place::UsrsctpLinks, ..Self::new(role) }
    }

    /// Our layers, what carries them, and the routes to the peer.
    fn ground(&self, peer_udp: u16) -> (Vec<Layer>, Box<dyn Wire>, Vec<Route>) {
        let route = |layer, ip, port| Route { layer: LayerId(layer), remote: SocketAddr::new(ip, port) };
        match &self.place {
            Place::Usrsctp => {
                let layer = Layer { mtu: 1500, overhead: 28, ..Layer::udp() };
                (vec![layer], Box::new(Loopback::new()), vec![route(0, [127, 0, 0, 1].into(), peer_udp)])
            }
            Place::UsrsctpLinks => {
                let layer = |link| {
                    let address = Some(link_address(link, 1));
                    Layer { address, mtu: 1500, overhead: 28, ..Layer::udp() }
                };
                let to = |link: u8| route(u16::from(link), link_address(link, 2), LINKS_UDP);
                ((0..2).map(layer).collect(), Box::new(Links::new()), (0..2).map(to).collect())
            }
            Place::Linux { machine, udp, paths, spare } => {
                let ours: Vec<_> = paths.iter().map(|(card, v6)| address(*card, *v6, 1)).chain(spare.clone()).collect();
                let layer = |a: &IpAddr| {
                    let overhead = if a.is_ipv6() { 40 } else { 20 } + if *udp { 8 } else { 0 };
                    Layer { address: Some(*a), mtu: 1500, overhead, ..Layer::udp() }
                };
                let routes = paths
                    .iter()
                    .zip(0..)
                    .map(|((card, v6), n)| route(n, address(*card, *v6, 2), if *udp { MACHINE_UDP } else { 0 }))
                    .collect();
                (ours.iter().map(layer).collect(), Box::new(machine.borrow().wire(&ours, *udp)), routes)
            }
        }
    }

    /// Our side, and the routes to the peer.
    fn ours(&self, peer_udp: u16, ports: Ports, seed: u64) -> (Driver, Vec<Route>) {
        let (layers, wire, routes) = self.ground(peer_udp);
        let server = self.role == Role::Server;
        let config = Config {
            tell_addresses: !matches!(self.place, Place::Usrsctp),
            layers,
            port: if server { ports.listener } else { ports.opener },
            accept: server,
            association: self.config.clone(),
            ..Config::default()
        };
        (Driver::over(wire, config, &self.link, seed), routes)
    }

    /// What is said to the peer's program: to listen, or to open the association with us.
    fn start(&self, peer_udp: u16, our_udp: u16, ports: Ports) -> Result<Peer, String> {
        let text = |n: u16| n.to_string();
        let (port, peer_port, own) = (text(ports.listener), text(ports.opener), text(peer_udp));
        let our_udp = text(our_udp);
        match &self.place {
            Place::Usrsctp => {
                let mut arguments = match self.role {
                    Role::Client => vec!["listen", "--udp", &own, "--port", &port],
                    Role::Server => {
                        vec!["connect", "--udp", &own, "--port", &port, "--remote-udp", &our_udp, "--bind", &peer_port]
                    }
                };
                arguments.extend(&self.peer);
                Peer::usrsctp(&arguments)
            }
            Place::UsrsctpLinks => {
                let both = [0, 1].map(|link| link_address(link, 2).to_string()).join(",");
                let (own, first) = (text(LINKS_UDP), link_address(0, 1).to_string());
                let mut arguments = match self.role {
                    Role::Client => vec!["listen", "--udp", &own, "--port", &port, "--local", &both],
                    Role::Server => {
                        let opens = ["connect", "--udp", &own, "--port", &port, "--remote-udp", &own];
                        [&opens[..], &["--bind", &peer_port, "--local", &both, "--address", &first]].concat()
                    }
                };
                arguments.extend(&self.peer);
                Peer::usrsctp(&arguments)
            }
            Place::Linux { machine, paths, .. } => {
                let list = |host| {
                    let all: Vec<_> = paths.iter().map(|(card, v6)| address(*card, *v6, host).to_string()).collect();
                    all.join(",")
                };
                let (theirs, ours) = (list(2), list(1));
                let mut arguments = match self.role {
                    Role::Client => vec!["listen", "--port", &port, "--local", &theirs],
                    Role::Server => vec![
                        "connect",
                        "--port",
                        &peer_port,
                        "--local",
                        &theirs,
                        "--remote",
                        &ours,
                        "--remote-port",
                        &port,
                        "--udp",
                        &our_udp,
                    ],
                };
                arguments.extend(&self.peer);
                Ok(Peer::linux(machine, &arguments))
            }
        }
    }
}

/// The SCTP ports of an association: the listener's and the other one's.
///
/// Each association has its own: what is left of the one before, where its last packet was lost, is in nobody's way.
#[derive(Clone, Copy, Debug)]
struct Ports {
    listener: u16,
    opener: u16,
}

impl Ports {
    fn fresh() -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed) % 10_000;
        Self { listener: 5001 + 2 * n, opener: 5002 + 2 * n }
    }
}

/// Nothing is waited for longer than this while nothing comes through. How long all of it takes is the machine's and the peer's
/// affair: at 10 % loss usrsctp spends most of a minute in timeouts whose length follows how busy the machine is.
const LIMIT: Duration = Duration::from_secs(60);

/// An association that is up.
#[derive(Debug)]
pub struct World {
    /// Our side.
    pub driver: Driver,
    /// The other side.
    pub peer: Peer,
    /// The association, on our side.
    pub id: AssociationId,
    /// What we send.
    pub out: Ledger,
    /// What they send.
    pub back: Ledger,
    waiting: VecDeque<(u32, Batch)>,
    ids: BTreeMap<MessageId, u32>,
    /// The numbers of messages that we were told will not be delivered.
    pub failed: Vec<u32>,
    /// What has happened on our side, but for what is accounted for.
    pub events: Vec<Event>,
    /// What has come of messages that come in parts, by our endpoint's number.
    parts: BTreeMap<u64, Vec<u8>>,
    peer_udp: u16,
    ports: Ports,
    wish: Wish,
}

impl World {
    /// Opens an association.
    ///
    /// # Errors
    /// Why there is no peer here.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn open(wish: Wish) -> Result<Self, String> {
        if !matches!(wish.place, Place::Linux { .. }) {
            super::peer::usrsctp_program()?;
        }
        let peer_udp = free_port();
        let ports = Ports::fresh();
        let (mut driver, routes) = wish.ours(peer_udp, ports, wish.seed);
        // Whoever looks for a fault wants to see every packet: the last association's.
        let asked = std::env::var_os("NEATER_INTEROP_CAPTURE").map(PathBuf::from);
        if let Some(path) = wish.capture.clone().or(asked) {
            driver.record(Capture::create(path));
        }
        let peer = wish.start(peer_udp, driver.port(), ports)?;
        let id = if wish.role == Role::Server {
            accepted(&mut driver)
        } else {
            connected(&mut driver, ports.listener, &routes)
        };
        let (out, back) = (Ledger::default(), Ledger::default());
        let mut world = Self {
            driver,
            peer,
            id,
            out,
            back,
            waiting: VecDeque::new(),
            ids: BTreeMap::new(),
            failed: Vec::new(),
            events: Vec::new(),
            parts: BTreeMap::new(),
            peer_udp,
            ports,
            wish,
        };
        world.until("the peer to be connected", |w| w.peer.has("connected"));
        Ok(world)
    }

    /// Ends the peer's process without a word to us, and starts another in its place that opens the association again.
    ///
    /// # Errors
    /// Why there is no peer here.
    pub fn restart_peer(&mut self) -> Result<(), String> {
        assert_eq!(self.wish.role, Role::Server, "who opens is who restarts");
        if matches!(self.wish.place, Place::Linux { .. }) {
            // Its kernel would say that the association is over. Nobody hears that.
            self.driver.deafen(true);
            self.peer.tell("abort");
            self.until("the peer to have forgotten", |w| w.peer.has("aborted"));
            self.pass(Duration::from_millis(50));
        }
        self.peer.kill();
        self.driver.deafen(false);
        self.start_peer_again()
    }

    /// Starts the peer that is no more, in the same place: it opens the association again.
    ///
    /// # Errors
    /// Why there is no peer here.
    pub fn start_peer_again(&mut self) -> Result<(), String> {
        self.peer = self.wish.start(self.peer_udp, self.driver.port(), self.ports)?;
        self.begin_again();
        // It counts from one again.
        self.back = Ledger::default();
        Ok(())
    }

    /// Nothing is under way any more.
    fn begin_again(&mut self) {
        self.back.forget();
        self.out.forget();
        self.parts.clear();
        self.ids.clear();
        self.waiting.clear();
    }

    /// Forgets our endpoint, without a word to the peer, and opens the association again with a new one.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn restart_us(&mut self) {
        assert_eq!(self.wish.role, Role::Client, "who opens is who restarts");
        let (driver, routes) = self.wish.ours(self.peer_udp, self.ports, self.wish.seed + 1);
        self.driver = driver;
        self.id = connected(&mut self.driver, self.ports.listener, &routes);
        self.begin_again();
    }

    /// Lets us send these messages.
    pub fn ours(&mut self, batch: &Batch) {
        for number in self.out.expect(batch) {
            self.waiting.push_back((number, batch.clone()));
        }
    }

    /// Lets them send these messages.
    pub fn theirs(&mut self, batch: &Batch) {
        self.back.expect(batch);
        self.peer.tell(&batch.command());
    }

    fn hand_over(&mut self) {
        while let Some((number, batch)) = self.waiting.front() {
            let reliability = match batch.policy.split_once(' ') {
                Some(("ttl", ms)) => {
                    let life: u64 = ms.parse().expect("milliseconds");
                    Reliability::Until(self.driver.now() + Duration::from_millis(life))
                }
                Some(("rtx", n)) => Reliability::Retransmissions(n.parse().expect("a number")),
                _ => Reliability::Full,
            };
            let options =
                SendOptions { ppid: *number, unordered: batch.unordered, reliability, ..SendOptions::default() };
            let payload = Bytes::from(fill(*number, batch.size(*number)));
            match self.driver.endpoint().send(self.id, StreamId(batch.stream(*number)), payload, options) {
                Ok(id) => {
                    self.ids.insert(id, *number);
                    self.waiting.pop_front();
                }
                Err(SendError::Blocked) => return,
                Err(error) => panic!("message {number}: {error}"),
            }
        }
    }

    fn read(&mut self) {
        while let Some(message) = self.driver.endpoint().receive(self.id) {
            let held = self.parts.entry(message.number).or_default();
            assert_eq!(held.is_empty(), message.first, "a message begins with its first part");
            held.extend_from_slice(&message.payload);
            self.driver.endpoint().recycle(self.id, message.payload);
            if message.last {
                let bytes = self.parts.remove(&message.number).unwrap_or_default();
                let (number, stream, unordered) = (message.ppid.0, message.stream.0, message.unordered);
                self.back.arrive(&Received { number, stream, unordered, size: bytes.len(), hash: hash(&bytes) });
            }
        }
    }

    /// One turn: hands over, moves, reads, listens.
    ///
    /// # Panics
    /// If anything is not as it was sent.
    pub fn turn(&mut self) {
        self.hand_over();
        self.driver.turn(Duration::from_millis(2));
        self.read();
        while let Some((id, event)) = self.driver.events.pop_front() {
            assert_eq!(id, self.id, "{event:?} after {:?}", self.events);
            if let Event::Closed(CloseReason::PeerMisbehaved(what)) = &event {
                panic!("the peer violates the protocol, we find: {what}; {:?}", self.peer.events);
            }
            if let Event::Failed { message, .. } = &event {
                self.failed.push(self.ids[message]);
            } else if !matches!(event, Event::Readable | Event::Writable) {
                self.events.push(event);
            }
        }
        for message in self.peer.listen() {
            self.out.arrive(&message);
        }
    }

    /// Turns until `done`.
    ///
    /// # Panics
    /// If nothing comes through for a minute: `what` was awaited.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let mut end = std::time::Instant::now() + LIMIT;
        let mut before = None;
        while !done(self) {
            let stats = self.driver.endpoint().association_stats(self.id);
            // What is only sent again is no progress.
            let through = stats.map(|s| (s.chunks_received, s.bytes_acknowledged, s.abandoned, self.failed.len()));
            if before.replace(through) != Some(through) {
                end = std::time::Instant::now() + LIMIT;
            }
            assert!(
                std::time::Instant::now() < end,
                "{what}: nothing for {LIMIT:?}; we miss {:?}, they miss {:?}, {} wait; {:?}; {stats:?}; {:?}",
                self.back.missing().take(20).collect::<Vec<_>>(),
                self.out.missing().take(20).collect::<Vec<_>>(),
                self.waiting.len(),
                self.events,
                self.peer.events,
            );
            self.turn();
        }
    }

    /// Turns for a while.
    pub fn pass(&mut self, time: Duration) {
        let end = std::time::Instant::now() + time;
        while std::time::Instant::now() < end {
            self.turn();
        }
    }

    /// Turns until everything has arrived that may not be given up.
    pub fn settle(&mut self) {
        self.until("every message", |w| w.waiting.is_empty() && w.out.is_complete() && w.back.is_complete());
    }

    /// Whether we have handed over all that we are to send.
    #[must_use]
    pub fn all_handed_over(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether this has happened on our side.
    #[must_use]
    pub fn has(&self, event: &Event) -> bool {
        self.events.contains(event)
    }

    /// Why the association is over, if it is.
    #[must_use]
    pub fn closed(&self) -> Option<&CloseReason> {
        self.events.iter().find_map(|e| if let Event::Closed(reason) = e { Some(reason) } else { None })
    }

    /// Ends the association from our side in peace, and sees that nothing of it is left.
    ///
    /// # Panics
    /// If anything is.
    pub fn part(&mut self) {
        let now = self.driver.now();
        self.driver.endpoint().shutdown(now, self.id);
        self.until("a shutdown", |w| w.closed().is_some() && w.peer.has("closed"));
        assert_eq!(self.closed(), Some(&CloseReason::Shutdown));
        self.nothing_left();
    }

    /// That our endpoint keeps nothing any more.
    ///
    /// # Panics
    /// If it does.
    pub fn nothing_left(&mut self) {
        let endpoint = self.driver.endpoint();
        assert_eq!((endpoint.associations(), endpoint.kept()), (0, 0));
        assert_eq!(self.driver.unsent, 0, "the socket took everything");
        assert!(self.driver.wrong().is_empty(), "frames of the peer: {:?}", self.driver.wrong());
    }
}

fn connected(driver: &mut Driver, port: u16, routes: &[Route]) -> AssociationId {
    let now = driver.now();
    let id = driver.endpoint().connect(now, port, routes).expect("nothing is in the way");
    driver.until("Connected", LIMIT, |d| d.events.iter().any(|e| *e == (id, Event::Connected)).then_some(()));
    id
}

fn accepted(driver: &mut Driver) -> AssociationId {
    driver.until("Accepted", LIMIT, |d| {
        d.events.iter().find_map(|(id, event)| (*event == Event::Accepted).then_some(*id))
    })
}
