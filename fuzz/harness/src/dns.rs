//! Targets in `crates/dns`: what files say, what a client asks our responder, and a resolver among hostile servers.

use neater_base::net::{ErrorKind, NetError};
use neater_base::{Instant, Reader};
use neater_dns::{
    Config, Hosts, Input, LookupId, MAX_ADDRESSES_PER_HOST, MAX_LOOKUPS, MAX_MESSAGE, MAX_SEARCH, MAX_SERVERS, Output,
    Question, RecordKind, Resolver, TransportId, Zone, answer, answer_stream,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const ZONE: &str = "\
example.test A 10.0.0.1
example.test A 10.0.0.2
example.test AAAA 2001:db8::1
example.test HTTPS 1 . alpn=h3,h2 port=443 ipv4hint=10.0.0.1
svc.test HTTPS 0 example.test
www.example.test 300 CNAME example.test
loop.test CNAME loop.test
";
const NAMES: &[&str] = &[
    "example.test",
    "www.example.test.",
    "svc.test",
    "loop.test",
    "none.test",
    "short",
    "localhost",
    ".",
    "bad..name",
    "",
];

/// Reads `data` as a resolver configuration; every value must be within what its documentation promises.
pub fn dns_config(data: &[u8]) {
    let (config, warnings) = Config::parse(data);
    assert_eq!(Config::parse(data), (config.clone(), warnings.clone()));
    assert!(config.servers.len() <= MAX_SERVERS && config.search.len() <= MAX_SEARCH, "{config:?}");
    assert!(config.ndots <= 15 && (1..=5).contains(&config.attempts), "{config:?}");
    let (shortest, longest) = (Duration::from_millis(50), Duration::from_secs(30));
    assert!(config.timeout >= shortest && config.timeout <= longest, "{config:?}");
    assert!(config.longest_question() >= config.silence());
    assert!(config.longest_question() <= longest * (MAX_SERVERS as u32 * 5 + 2), "{config:?}");
    let lines = data.split(|b| *b == b'\n').count();
    assert!(warnings.iter().all(|w| (1..=lines).contains(&w.line) && !w.to_string().is_empty()), "{warnings:?}");
}

/// Reads `data` as a hosts file and looks up every word in it.
pub fn dns_hosts(data: &[u8]) {
    let hosts = Hosts::parse(data);
    for word in String::from_utf8_lossy(data).split_ascii_whitespace().take(64) {
        let found: Vec<_> = hosts.lookup(word).collect();
        assert!(found.len() <= 2 * MAX_ADDRESSES_PER_HOST);
        assert!(found.is_sorted_by_key(core::net::IpAddr::is_ipv4), "IPv6 first: {found:?}");
        assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), found.len(), "twice: {found:?}");
        assert_eq!(hosts.lookup(&word.to_ascii_uppercase()).collect::<Vec<_>>(), found, "{word}");
    }
}

/// Reads `data` as a zone.
pub fn dns_zone(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match Zone::parse(&text) {
        Ok(zone) => assert!(answer(b"", &zone).is_none()),
        Err(e) => assert!((1..=text.lines().count()).contains(&e.line) && !e.problem.is_empty(), "{e}"),
    }
}

/// Answers `data` as a question.
pub fn dns_answer(data: &[u8]) {
    let zone = Zone::parse(ZONE).expect("the zone is ours");
    for reply in [answer(data, &zone), answer_stream(data, &zone)].into_iter().flatten() {
        assert!(reply.len() <= MAX_MESSAGE);
        assert_eq!(reply.get(..2), data.get(..2), "the answer to another question");
        assert!(reply.get(2).is_some_and(|flags| flags & 0x80 != 0), "a question for an answer");
        // Two responders must not answer each other for ever.
        assert_eq!(answer(&reply, &zone), None);
    }
}

/// One resolver, the lookups it owes answers for, and the sockets that it has open.
struct Player {
    resolver: Resolver,
    zone: Zone,
    now: Instant,
    /// What each lookup has not answered yet, in the order of [`kinds`].
    owed: BTreeMap<LookupId, [bool; 3]>,
    /// Each open socket, and whether it is a stream.
    open: BTreeMap<TransportId, bool>,
    sent: Vec<(TransportId, Vec<u8>)>,
}

/// How many timeouts in a row may go by before a lookup has ended: more than any schedule has.
const MOST_TIMEOUTS: usize = 20_000;
/// How many questions that were sent are kept to be answered.
const MOST_SENT: usize = 64;

impl Player {
    fn drain(&mut self) {
        while let Some(output) = self.resolver.poll_output(self.now) {
            match output {
                Output::OpenUdp { transport, .. } => {
                    assert_eq!(self.open.insert(transport, false), None, "{transport:?} is open")
                }
                Output::OpenTcp { transport, .. } => {
                    assert_eq!(self.open.insert(transport, true), None, "{transport:?} is open")
                }
                Output::Send { transport, data } => {
                    assert!(self.open.contains_key(&transport), "sends on {transport:?}, which is closed");
                    if self.sent.len() < MOST_SENT {
                        self.sent.push((transport, data));
                    }
                }
                Output::Close { transport } => {
                    assert!(self.open.remove(&transport).is_some(), "{transport:?} closed twice")
                }
                Output::Answer { lookup, kind, .. } => {
                    let owed = self.owed.get_mut(&lookup).unwrap_or_else(|| panic!("{lookup:?} is over or cancelled"));
                    let index = match kind {
                        RecordKind::A => 0,
                        RecordKind::Aaaa => 1,
                        RecordKind::Https => 2,
                    };
                    assert!(core::mem::replace(&mut owed[index], false), "{kind:?} was not asked, or answered before");
                }
                Output::ServicesSoFar { lookup, .. } => {
                    assert!(
                        self.owed.get(&lookup).is_some_and(|owed| owed[2]),
                        "the services are answered, or not asked for"
                    )
                }
                Output::Done { lookup } => {
                    assert_eq!(self.owed.remove(&lookup), Some([false; 3]), "done without every answer")
                }
            }
        }
    }

    fn lookup(&mut self, name: u8, flags: u8) {
        let name = NAMES[usize::from(name) % NAMES.len()];
        let (a, aaaa, https) = (flags & 1 != 0, flags & 2 != 0, (flags & 4 != 0).then_some(443 + u16::from(flags & 8)));
        let interface = (flags & 16 != 0).then_some(3);
        let id = self.resolver.lookup(self.now, &Question { name, a, aaaa, https, interface });
        assert_eq!(self.owed.insert(id, [a, aaaa, https.is_some()]), None);
    }

    /// Answers one of the questions that were sent as the zone has it, with one byte changed.
    fn reply(&mut self, which: u8, at: u8, change: u8) {
        let Some((transport, query)) = self.sent.get(usize::from(which) % self.sent.len().max(1)).cloned() else {
            return;
        };
        let stream = self.open.get(&transport).copied().unwrap_or(false);
        let mut data = if stream {
            let reply = query.get(2..).and_then(|q| answer_stream(q, &self.zone)).unwrap_or_default();
            [&(reply.len() as u16).to_be_bytes()[..], &reply].concat()
        } else {
            answer(&query, &self.zone).unwrap_or_default()
        };
        if let Some(byte) = data.get_mut(usize::from(at)) {
            *byte ^= change;
        }
        self.receive(transport, stream, &data);
    }

    fn receive(&mut self, transport: TransportId, stream: bool, data: &[u8]) {
        let input =
            if stream { Input::TcpReceived { transport, data } } else { Input::UdpReceived { transport, data } };
        self.resolver.handle_input(self.now, input);
    }

    fn fail(&mut self, which: u8, how: u8) {
        // Sockets that are not open, and facts that do not fit the kind of socket, must do no harm.
        let transport = self.open.keys().nth(usize::from(which)).copied().unwrap_or(TransportId(u32::from(which)));
        let error = NetError::new(ErrorKind::ConnectionRefused);
        self.resolver.handle_input(
            self.now,
            match how % 4 {
                0 => Input::UdpFailed { transport, error },
                1 => Input::TcpConnected { transport },
                2 => Input::TcpClosed { transport, error: Some(error) },
                _ => Input::TcpClosed { transport, error: None },
            },
        );
    }

    /// Lets one operation of the input happen; `None` at its end.
    fn step(&mut self, input: &mut Reader<'_>) -> Option<()> {
        let (operation, a, b) = (input.u8().ok()?, input.u8().ok()?, input.u8().ok()?);
        match operation % 8 {
            0 if self.owed.len() < MAX_LOOKUPS => self.lookup(a, b),
            0 | 1 => self.reply(a, 0, 0),
            2 => self.reply(a, b, input.u8().ok()?),
            3 => {
                let data = input.take(usize::from(b).min(input.rest().len())).unwrap_or_default();
                let (transport, stream) = self.open.iter().nth(usize::from(a)).map(|(t, s)| (*t, *s))?;
                self.receive(transport, stream, data);
            }
            4 => self.fail(a, b),
            5 => {
                self.now += Duration::from_millis(u64::from(a) * 20);
                self.resolver.handle_timeout(self.now);
            }
            6 => {
                if let Some(id) = self.owed.keys().nth(usize::from(a)).copied() {
                    self.owed.remove(&id);
                    self.resolver.cancel(id);
                }
            }
            _ => {
                let name = NAMES[usize::from(a) % NAMES.len()];
                if let Some(known) = self.resolver.cached(self.now, name) {
                    assert!(
                        known.v4.iter().all(core::net::IpAddr::is_ipv4)
                            && known.v6.iter().all(core::net::IpAddr::is_ipv6)
                    );
                }
            }
        }
        Some(())
    }
}

/// Plays lookups, answers true and false, failures, cancellations and time. Every lookup that is not cancelled must answer
/// every kind once and end, and every socket must be closed once.
pub fn dns_resolver(data: &[u8]) {
    let config = "nameserver 192.0.2.1\nnameserver 2001:db8::53\nsearch example.test\n";
    let hosts = Hosts::parse(b"10.1.1.1 short.example.test\n");
    let mut player = Player {
        resolver: Resolver::new(Config::parse(config.as_bytes()).0, hosts, [7; 32]),
        zone: Zone::parse(ZONE).expect("the zone is ours"),
        now: Instant::from_nanos(1_000_000_000),
        owed: BTreeMap::new(),
        open: BTreeMap::new(),
        sent: Vec::new(),
    };
    let mut input = Reader::new(data);
    while player.step(&mut input).is_some() {
        player.drain();
    }
    player.drain();
    for _ in 0..MOST_TIMEOUTS {
        let Some(at) = player.resolver.next_timeout() else { break };
        player.now = player.now.max(at);
        player.resolver.handle_timeout(player.now);
        player.drain();
    }
    assert!(player.owed.is_empty(), "{:?} never ended", player.owed);
    assert!(player.open.is_empty(), "{:?} never closed", player.open);
}
