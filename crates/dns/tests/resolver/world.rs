//! A resolver, some servers, and time that jumps from event to event.

use neater_base::Instant;
use neater_base::net::ErrorKind;
use neater_dns::{
    Answer, Config, Hosts, Input, LookupId, MAX_OPEN_TRIES, Output, Question, RecordKind, Resolver, ServiceBinding,
    TransportId, Zone, answer, answer_stream,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// Half of this passes in each direction.
pub(crate) const RTT: Duration = Duration::from_millis(20);

/// What a server does with a question, each part some time after it has come.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Sends a message.
    Data(Vec<u8>),
    /// Sends bytes over TCP without a length.
    Raw(Vec<u8>),
    /// Its host sends an ICMP error, or the connection is closed.
    Fail,
}

/// A question as a server sees it, and whether it came over TCP.
pub(crate) type Server = Box<dyn FnMut(&[u8], bool) -> Vec<(Duration, Act)>>;

#[derive(Debug)]
enum Event {
    Datagram(TransportId, Vec<u8>),
    UdpFailed(TransportId),
    Connected(TransportId),
    Bytes(TransportId, Vec<u8>),
    Closed(TransportId),
}

#[derive(Debug)]
struct Open {
    server: SocketAddr,
    tcp: bool,
    connected: bool,
    failed: bool,
}

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) resolver: Resolver,
    pub(crate) servers: BTreeMap<SocketAddr, Server>,
    /// Servers that refuse TCP connections.
    pub(crate) no_tcp: Vec<SocketAddr>,
    /// Every question sent: when, to which server, over TCP or not, name and type.
    pub(crate) asked: Vec<(Instant, SocketAddr, bool, String)>,
    /// Every message sent, without the length.
    pub(crate) wire: Vec<Vec<u8>>,
    pub(crate) answers: Vec<(LookupId, RecordKind, Answer, Instant)>,
    /// What was reported of services before their answer.
    pub(crate) so_far: Vec<(LookupId, Vec<ServiceBinding>, Instant)>,
    pub(crate) done: Vec<(LookupId, Instant)>,
    pub(crate) opened: usize,
    open: BTreeMap<TransportId, Open>,
    events: BTreeMap<(Instant, u64), Event>,
    sequence: u64,
}

pub(crate) fn addr(n: u8) -> SocketAddr {
    SocketAddr::from(([10, 9, 0, n], 53))
}

pub(crate) fn config(servers: u8) -> Config {
    Config { servers: (1..=servers).map(addr).collect(), ..Config::default() }
}

pub(crate) fn all(name: &str) -> Question<'_> {
    Question { name, a: true, aaaa: true, https: Some(443), interface: None }
}

pub(crate) fn addresses(name: &str) -> Question<'_> {
    Question { https: None, ..all(name) }
}

pub(crate) fn only_a(name: &str) -> Question<'_> {
    Question { aaaa: false, ..addresses(name) }
}

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A server that answers from a zone.
pub(crate) fn honest(zone: &str) -> Server {
    slow(zone, Duration::ZERO)
}

/// A server that takes its time.
pub(crate) fn slow(zone: &str, delay: Duration) -> Server {
    let zone = Zone::parse(zone).expect("the test's zone is in order");
    Box::new(move |query, tcp| {
        let bytes = if tcp { answer_stream(query, &zone) } else { answer(query, &zone) };
        vec![(delay, Act::Data(bytes.expect("the resolver asks real questions")))]
    })
}

/// A server that is not there.
pub(crate) fn dead() -> Server {
    Box::new(|_, _| Vec::new())
}

/// A server that answers every question with this response code.
pub(crate) fn code(rcode: u8) -> Server {
    Box::new(move |query, _| vec![(Duration::ZERO, Act::Data(with_code(query, rcode)))])
}

/// A response without records to `query`.
pub(crate) fn with_code(query: &[u8], rcode: u8) -> Vec<u8> {
    let zone = Zone::parse("x.test A 10.0.0.1\n").unwrap();
    let mut reply = answer(query, &zone).unwrap();
    reply[3] = reply[3] & 0xf0 | rcode;
    reply
}

impl World {
    pub(crate) fn new(config: Config, servers: Vec<Server>) -> Self {
        Self::seeded(config, servers, 7)
    }

    pub(crate) fn seeded(config: Config, servers: Vec<Server>, seed: u8) -> Self {
        Self {
            now: Instant::ZERO + Duration::from_secs(1000),
            resolver: Resolver::new(config, Hosts::default(), [seed; 32]),
            servers: servers.into_iter().enumerate().map(|(i, s)| (addr(i as u8 + 1), s)).collect(),
            no_tcp: Vec::new(),
            asked: Vec::new(),
            wire: Vec::new(),
            answers: Vec::new(),
            so_far: Vec::new(),
            done: Vec::new(),
            opened: 0,
            open: BTreeMap::new(),
            events: BTreeMap::new(),
            sequence: 0,
        }
    }

    pub(crate) fn lookup(&mut self, q: &Question<'_>) -> LookupId {
        let id = self.resolver.lookup(self.now, q);
        self.drain();
        id
    }

    /// Looks up, waits for the end and returns the answers with the time they took.
    pub(crate) fn resolve(&mut self, q: &Question<'_>) -> Vec<(RecordKind, Answer)> {
        let id = self.lookup(q);
        self.run();
        assert_eq!(self.done.iter().filter(|(d, _)| *d == id).count(), 1, "exactly one Done");
        self.of(id)
    }

    pub(crate) fn of(&self, id: LookupId) -> Vec<(RecordKind, Answer)> {
        self.answers.iter().filter(|(l, ..)| *l == id).map(|(_, k, a, _)| (*k, a.clone())).collect()
    }

    pub(crate) fn one(&mut self, q: &Question<'_>, kind: RecordKind) -> Answer {
        let answers = self.resolve(q);
        answers.into_iter().find(|(k, _)| *k == kind).expect("the kind was asked for").1
    }

    fn at(&mut self, delay: Duration, event: Event) {
        self.sequence += 1;
        self.events.insert((self.now + delay, self.sequence), event);
    }

    /// Carries out what the resolver wants.
    pub(crate) fn drain(&mut self) {
        while let Some(output) = self.resolver.poll_output(self.now) {
            match output {
                Output::OpenUdp { transport, server, .. } => self.opening(transport, server, false),
                Output::OpenTcp { transport, server, .. } => {
                    self.opening(transport, server, true);
                    let refused = self.no_tcp.contains(&server);
                    self.at(RTT, if refused { Event::Closed(transport) } else { Event::Connected(transport) });
                }
                Output::Send { transport, data } => self.send(transport, data),
                Output::Close { transport } => {
                    assert!(self.open.remove(&transport).is_some(), "closed twice: {transport:?}");
                }
                Output::Answer { lookup, kind, answer } => {
                    assert!(!self.done.iter().any(|(d, _)| *d == lookup), "an answer after Done");
                    assert!(!self.answers.iter().any(|(l, k, ..)| (*l, *k) == (lookup, kind)), "answered twice");
                    self.answers.push((lookup, kind, answer, self.now));
                }
                Output::ServicesSoFar { lookup, services } => {
                    let https =
                        |(l, k, ..): &(LookupId, RecordKind, Answer, Instant)| (*l, *k) == (lookup, RecordKind::Https);
                    assert!(!self.answers.iter().any(https), "news of services after their answer");
                    self.so_far.push((lookup, services, self.now));
                }
                Output::Done { lookup } => self.done.push((lookup, self.now)),
            }
        }
    }

    fn opening(&mut self, transport: TransportId, server: SocketAddr, tcp: bool) {
        self.opened += 1;
        let open = Open { server, tcp, connected: false, failed: false };
        assert!(self.open.insert(transport, open).is_none(), "an id used twice");
    }

    fn send(&mut self, transport: TransportId, data: Vec<u8>) {
        let open = self.open.get(&transport).expect("sends on what is open");
        let (server, tcp) = (open.server, open.tcp);
        assert!(!tcp || open.connected, "sends before the connection is made");
        let query = if tcp { data[2..].to_vec() } else { data };
        let message = hickory_proto::op::Message::from_vec(&query).expect("a real question");
        let q = &message.queries[0];
        self.asked.push((self.now, server, tcp, format!("{} {}", q.name(), q.query_type())));
        self.wire.push(query.clone());
        let acts = self.servers.get_mut(&server).map_or_else(Vec::new, |s| s(&query, tcp));
        for (delay, act) in acts {
            let event = match (act, tcp) {
                (Act::Data(d), false) | (Act::Raw(d), false) => Event::Datagram(transport, d),
                (Act::Data(d), true) => {
                    let mut framed = (d.len() as u16).to_be_bytes().to_vec();
                    framed.extend(d);
                    Event::Bytes(transport, framed)
                }
                (Act::Raw(d), true) => Event::Bytes(transport, d),
                (Act::Fail, false) => Event::UdpFailed(transport),
                (Act::Fail, true) => Event::Closed(transport),
            };
            self.at(RTT + delay, event);
        }
    }

    /// Lets time pass until nothing more happens.
    pub(crate) fn run(&mut self) {
        self.run_until(Instant::FAR_FUTURE);
        assert!(self.open.is_empty(), "left open: {:?}", self.open);
        assert_eq!(self.resolver.next_timeout(), None);
    }

    /// Lets time pass until `end`.
    pub(crate) fn run_until(&mut self, end: Instant) {
        self.drain();
        for _ in 0..100_000 {
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let next = [event, self.resolver.next_timeout()].into_iter().flatten().min();
            let Some(next) = next.filter(|n| *n <= end) else { return };
            self.now = self.now.max(next);
            if event == Some(next) {
                self.deliver();
            } else {
                self.resolver.handle_timeout(self.now);
            }
            self.drain();
            let limit = MAX_OPEN_TRIES * 3 * 300;
            assert!(self.open.len() <= limit);
        }
        panic!("no end in sight");
    }

    fn deliver(&mut self) {
        let Some((_, event)) = self.events.pop_first() else { return };
        let error = ErrorKind::ConnectionRefused.into();
        match event {
            // What comes for a closed socket never reaches the resolver.
            Event::Datagram(t, data) if self.open.contains_key(&t) => {
                self.resolver.handle_input(self.now, Input::UdpReceived { transport: t, data: &data });
            }
            Event::UdpFailed(t) if self.open.contains_key(&t) => {
                self.resolver.handle_input(self.now, Input::UdpFailed { transport: t, error });
            }
            Event::Connected(t) => {
                if let Some(open) = self.open.get_mut(&t) {
                    open.connected = true;
                    self.resolver.handle_input(self.now, Input::TcpConnected { transport: t });
                }
            }
            Event::Bytes(t, data) => {
                for chunk in data.chunks(700) {
                    if self.open.contains_key(&t) {
                        self.resolver.handle_input(self.now, Input::TcpReceived { transport: t, data: chunk });
                        self.drain();
                    }
                }
            }
            Event::Closed(t) => {
                if let Some(open) = self.open.get_mut(&t).filter(|o| !o.failed) {
                    open.failed = true;
                    self.resolver.handle_input(self.now, Input::TcpClosed { transport: t, error: Some(error) });
                }
            }
            Event::Datagram(..) | Event::UdpFailed(_) => {}
        }
    }
}

/// The addresses of an answer as text.
pub(crate) fn text(answer: &Answer) -> Vec<String> {
    match answer {
        Answer::Addresses(list) => list.iter().map(ToString::to_string).collect(),
        other => panic!("no addresses: {other:?}"),
    }
}
