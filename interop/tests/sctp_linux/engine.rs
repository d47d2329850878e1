//! The engine, SCTP straight over IP, and Linux' kernel: a connection is an association, for this peer gives streams no meaning of
//! ours.

use super::{Ground, Test};
use bytes::Bytes;
use neater_base::Rng;
use neater_engine::{
    ConnectionId, ConnectionState, Engine, EngineConfig, Event, LocalEndpoint, ReceiveOutcome, RemoteEndpoint, Request,
    RequestOptions, SendError, SendOptions, Source, Stack,
};
use neater_interop::sctp::{Batch, CableNet, Ledger, Peer, Received, address, fill, hash};
use neater_property::TransportProperties;
use neater_tls::{Crypto, SecurityParameters};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) const TESTS: &[Test] = &[
    ("the_engine_straight_over_ip", true, |ground| exchanges(ground, false)),
    ("the_engine_straight_over_ipv6", false, |ground| exchanges(ground, true)),
];

/// Nothing lasts longer than this.
const LIMIT: Duration = Duration::from_secs(30);
/// Ours and theirs: others than those of the tests before, of which packets may be under way.
const PORTS: (u16, u16) = (4001, 4002);

/// A connection of ours to a peer in the machine, with accounts of both directions.
struct World {
    engine: Engine<CableNet>,
    conn: Option<ConnectionId>,
    peer: Peer,
    waiting: VecDeque<(u32, Bytes, u16)>,
    out: Ledger,
    back: Ledger,
    parts: BTreeMap<u64, Vec<u8>>,
    over: bool,
}

fn engine(ground: &Ground) -> Engine<CableNet> {
    let cable = ground.machine.borrow().wire(&[address(0, false, 1), address(0, true, 1)], false);
    let config = EngineConfig::new(Rng::from_number(7).seed(), Crypto::system());
    Engine::new(CableNet::new(cable), EngineConfig { sctp_ecn: true, ..config })
}

fn request(engine: &mut Engine<CableNet>, role: neater_property::Role) -> Request {
    let options = RequestOptions { stacks: vec![Stack::SctpIp], ..RequestOptions::default() };
    let (properties, security) = (TransportProperties::default(), SecurityParameters::disabled());
    engine.compile(&properties, &security, role, &options).expect("it may serve")
}

impl World {
    /// We open the association.
    fn client(ground: &Ground, v6: bool, port: u16) -> Self {
        let (ours, theirs) = (address(0, v6, 1), address(0, v6, 2));
        let mut engine = engine(ground);
        let local = theirs.to_string();
        let (own, port) = (port.to_string(), port);
        let arguments = ["listen", "--port", &own, "--local", &local, "--streams", "1000,2000"];
        let peer = Peer::linux(&ground.machine, &arguments);
        let request = request(&mut engine, neater_property::Role::Initiate);
        let remotes: Arc<[RemoteEndpoint]> = [RemoteEndpoint::from(SocketAddr::new(theirs, port))].into();
        let conn = engine.initiate(&request, &remotes, None, None).expect("begun");
        let mut world = Self::new(engine, Some(conn), peer);
        world.until("to be connected", |w| w.state() == Some(ConnectionState::Established) && w.peer.has("connected"));
        let addrs = (world.engine.local_addr(conn).map(|a| a.ip()), world.engine.remote_addr(conn));
        assert_eq!(addrs.1, Some(SocketAddr::new(theirs, port)));
        assert!(addrs.0.is_some_and(|ip| ip.is_unspecified() || ip == ours));
        world
    }

    /// They open the association.
    fn server(ground: &Ground, v6: bool, port: u16) -> Self {
        let (ours, theirs) = (address(0, v6, 1), address(0, v6, 2));
        let mut engine = engine(ground);
        let request = request(&mut engine, neater_property::Role::Listen);
        let listener = engine.listen(&request, &[LocalEndpoint::from(SocketAddr::new(ours, port))]).expect("listening");
        let (here, there, own, to) = (ours.to_string(), theirs.to_string(), PORTS.1.to_string(), port.to_string());
        let mut arguments = vec!["connect", "--port", &own, "--local", &there, "--remote", &here];
        arguments.extend(["--remote-port", &to, "--udp", "0", "--streams", "1000,2000"]);
        let peer = Peer::linux(&ground.machine, &arguments);
        let mut world = Self::new(engine, None, peer);
        world.until("to be connected", |w| w.conn.is_some() && w.peer.has("connected"));
        world.engine.stop(listener);
        world
    }

    fn new(engine: Engine<CableNet>, conn: Option<ConnectionId>, peer: Peer) -> Self {
        let (out, back) = (Ledger::default(), Ledger::default());
        Self { engine, conn, peer, waiting: VecDeque::new(), out, back, parts: BTreeMap::new(), over: false }
    }

    fn state(&self) -> Option<ConnectionState> {
        self.conn.map(|c| self.engine.state(c))
    }

    fn turn(&mut self) {
        self.engine.net_mut().wait(Duration::from_millis(2));
        self.engine.turn();
        while let Some(notice) = self.engine.poll_notice() {
            match (notice.source, notice.event) {
                (Source::Listener(_), Event::ConnectionReceived(conn)) => self.conn = Some(conn),
                (_, Event::Closed) => self.over = true,
                (_, Event::ConnectionError(e)) => panic!("{e}"),
                (_, Event::EstablishmentError(e)) => panic!("{e}"),
                _ => {}
            }
        }
        if let Some(conn) = self.conn {
            self.hand_over(conn);
            self.read(conn);
        }
        self.engine.settle();
        for message in self.peer.listen() {
            self.out.arrive(&message);
        }
    }

    fn hand_over(&mut self, conn: ConnectionId) {
        while let Some((number, data, stream)) = self.waiting.front().cloned() {
            let options = SendOptions { stream: Some(stream), ppid: Some(number), ..SendOptions::default() };
            match self.engine.send(conn, data, options) {
                Ok(_) => drop(self.waiting.pop_front()),
                Err(SendError::Blocked { .. }) => return,
                Err(e) => panic!("message {number}: {e}"),
            }
        }
    }

    fn read(&mut self, conn: ConnectionId) {
        while let Ok(ReceiveOutcome::Received(r)) = self.engine.receive(conn, usize::MAX) {
            let message = r.message.expect("it has a number");
            self.parts.entry(message).or_default().extend_from_slice(&r.data);
            if r.end_of_message {
                let bytes = self.parts.remove(&message).unwrap_or_default();
                let (number, stream) = (r.ppid.expect("an identifier"), r.stream.expect("a stream"));
                let hash = hash(&bytes);
                self.back.arrive(&Received { number, stream, unordered: false, size: bytes.len(), hash });
            }
        }
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let end = Instant::now() + LIMIT;
        while !done(self) {
            assert!(Instant::now() < end, "{what}: {:?} {:?}", self.state(), self.peer.events);
            self.turn();
        }
    }

    fn both(&mut self, batch: &Batch) {
        for number in self.out.expect(batch) {
            self.waiting.push_back((number, fill(number, batch.size(number)).into(), batch.stream(number)));
        }
        self.back.expect(batch);
        self.peer.tell(&batch.command());
    }
}

fn exchanges(ground: &mut Ground, v6: bool) {
    for (n, client) in [true, false].into_iter().enumerate() {
        let port = PORTS.0 + 10 * n as u16 + 20 * u16::from(v6);
        let mut w = if client { World::client(ground, v6, port) } else { World::server(ground, v6, port) };
        let conn = w.conn.expect("it is there");
        assert_eq!(w.engine.stack(conn), Some(Stack::SctpIp));
        w.both(&Batch::reliable(200, 20, 1..=5000));
        w.both(&Batch::reliable(2, 2, 200_000..=200_000));
        w.until("everything to arrive", |w| w.waiting.is_empty() && w.out.is_complete() && w.back.is_complete());
        // In order, from our side.
        w.engine.close(conn);
        w.until("the end", |w| w.over);
        w.engine.release(conn);
    }
}
