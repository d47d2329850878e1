//! One association between us and usrsctp, and the ledgers of both directions.

use super::capture::Capture;
use super::driver::Driver;
use super::ledger::{Batch, Ledger, Received, fill, hash};
use super::peer::Usrsctp;
use crate::free_port;
use bytes::Bytes;
use neater_link::LinkConfig;
use neater_sctp::{
    AssociationConfig, AssociationId, CloseReason, Config, Event, Layer, MessageId, Reliability, SendError, SendOptions,
};
use neater_sctp_wire::StreamId;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

/// Who opens the association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// We do.
    Client,
    /// usrsctp does.
    Server,
}

/// What a test wants.
#[derive(Clone, Debug)]
pub struct Wish {
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
        Self { role, link: LinkConfig::default(), config, peer: vec!["--streams", "1000,2000"], seed: 1, capture: None }
    }
}

/// The SCTP port of the listener.
const PORT: u16 = 5001;
/// The SCTP port of the peer, when it opens.
const PEER_PORT: u16 = 5002;
/// Nothing lasts longer than this.
const LIMIT: Duration = Duration::from_secs(60);

/// An association that is up.
#[derive(Debug)]
pub struct World {
    /// Our side.
    pub driver: Driver,
    /// The other side.
    pub peer: Usrsctp,
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
        super::peer::usrsctp_program()?;
        let layer = Layer { mtu: 1500, overhead: 28, ..Layer::udp() };
        let server = wish.role == Role::Server;
        let config = Config {
            layers: vec![layer],
            port: if server { PORT } else { PEER_PORT },
            accept: server,
            association: wish.config.clone(),
            ..Config::default()
        };
        let mut driver = Driver::new(config, &wish.link, wish.seed);
        if let Some(path) = &wish.capture {
            driver.record(Capture::create(path.clone()));
        }
        let peer_udp = free_port();
        let peer = start_peer(&wish, peer_udp, driver.port())?;
        let id = if server {
            accepted(&mut driver)
        } else {
            let route = Driver::route(peer_udp);
            let now = driver.now();
            let id = driver.endpoint().connect(now, PORT, &[route]).expect("nothing is in the way");
            driver.until("Connected", LIMIT, |d| d.events.iter().any(|e| *e == (id, Event::Connected)).then_some(()));
            id
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
        self.peer.kill();
        self.peer = start_peer(&self.wish, self.peer_udp, self.driver.port())?;
        self.back = Ledger::default();
        self.out.forget();
        self.parts.clear();
        Ok(())
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
            assert_eq!(id, self.id, "{event:?}");
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
    /// If that takes longer than a minute: `what` was awaited.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let end = std::time::Instant::now() + LIMIT;
        while !done(self) {
            let stats = self.driver.endpoint().association_stats(self.id);
            assert!(
                std::time::Instant::now() < end,
                "{what}: not after {LIMIT:?}; we miss {:?}, they miss {:?}, {} wait; {:?}; {stats:?}; {:?}",
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
    }
}

fn start_peer(wish: &Wish, udp: u16, our_udp: u16) -> Result<Usrsctp, String> {
    let numbers = [udp, our_udp, PORT, PEER_PORT].map(|n| n.to_string());
    let [udp, our_udp, port, peer_port] = numbers.each_ref().map(String::as_str);
    let mut arguments = match wish.role {
        Role::Client => vec!["listen", "--udp", udp, "--port", port],
        Role::Server => vec!["connect", "--udp", udp, "--port", port, "--remote-udp", our_udp, "--bind", peer_port],
    };
    arguments.extend(&wish.peer);
    Usrsctp::start(&arguments)
}

fn accepted(driver: &mut Driver) -> AssociationId {
    driver.until("Accepted", LIMIT, |d| {
        d.events.iter().find_map(|(id, event)| (*event == Event::Accepted).then_some(*id))
    })
}
