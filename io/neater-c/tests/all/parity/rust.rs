//! Scripts run from the public Rust API, as a program without tokio uses it.

use neater::tls::{Protection, Trust};
use neater::{
    BadEndpoint, Connection, ConnectionError, ConnectionState, Driver, ErrorKind, EstablishmentError, Event,
    FramerSpec, Group, Listener, LocalEndpoint, MessageContext, Neater, ParseError, Preconnection, QuicError, Reason,
    RemoteEndpoint, SctpClose, SecurityParameters, SendError, Stack,
};
use neater_property::PropertyError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// What went wrong with a command: its status by name, or words for a script that makes no sense.
enum Wrong {
    Status(&'static str, String),
    Script(String),
}

type Answer<T = ()> = Result<T, Wrong>;

fn script<T>(why: impl Into<String>) -> Answer<T> {
    Err(Wrong::Script(why.into()))
}

enum Thing {
    Listener(Listener),
    Connection(Box<Held>),
    Group(Group),
    Hole(SocketAddr),
}

struct Held {
    connection: Connection,
    pending: Arc<Mutex<Vec<Event>>>,
    wanted: usize,
    ready: bool,
}

struct Object {
    thing: Thing,
    received: Vec<Connection>,
    taken: usize,
    events: Vec<String>,
    cursor: usize,
    over: bool,
}

struct World {
    neater: Neater,
    driver: Driver,
    own: SecurityParameters,
    objects: BTreeMap<String, Object>,
    keep: Vec<socket2::Socket>,
}

fn reason(e: &EstablishmentError) -> &'static str {
    match e.reason {
        Reason::InvalidConfiguration => "invalid_configuration",
        Reason::NoCandidates => "no_candidates",
        Reason::ResolutionFailed => "resolution_failed",
        Reason::EstablishmentFailed => "establishment_failed",
        Reason::Timeout => "establishment_timeout",
        Reason::Cancelled => "cancelled",
        _ => "other",
    }
}

fn connection_error(e: &ConnectionError) -> &'static str {
    match e {
        ConnectionError::Net(e) => match e.kind {
            ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused => "reset",
            ErrorKind::ConnectionAborted => "aborted",
            ErrorKind::TimedOut => "timed_out",
            _ => "network",
        },
        ConnectionError::Tls(_) => "tls",
        ConnectionError::Quic(QuicError::TimedOut) | ConnectionError::TimedOut => "timed_out",
        ConnectionError::Quic(_) => "quic",
        ConnectionError::Sctp(SctpClose::PeerAborted { .. }) => "reset",
        ConnectionError::Sctp(SctpClose::Aborted) | ConnectionError::LocalAbort => "aborted",
        ConnectionError::Sctp(_) => "sctp",
        ConnectionError::StreamReset(_) => "stream_reset",
        ConnectionError::Closed => "closed",
        ConnectionError::NotReady => "state",
        ConnectionError::Unsupported(_) => "unsupported",
        _ => "other",
    }
}

fn send_error(e: &SendError) -> &'static str {
    match e {
        SendError::MessageTooLarge { .. } => "message_too_large",
        SendError::AfterFinal => "after_final",
        SendError::InvalidMessageProperties(_) => "invalid_value",
        SendError::Expired => "expired",
        SendError::Framer(_) => "framer",
        SendError::Unfinished => "state",
        SendError::Connection(e) => connection_error(e),
        _ => "other",
    }
}

impl From<EstablishmentError> for Wrong {
    fn from(e: EstablishmentError) -> Self {
        Self::Status(reason(&e), e.to_string())
    }
}
impl From<ConnectionError> for Wrong {
    fn from(e: ConnectionError) -> Self {
        Self::Status(connection_error(&e), e.to_string())
    }
}
impl From<SendError> for Wrong {
    fn from(e: SendError) -> Self {
        Self::Status(send_error(&e), e.to_string())
    }
}
impl From<PropertyError> for Wrong {
    fn from(e: PropertyError) -> Self {
        let status = if matches!(e, PropertyError::Unknown { .. }) { "not_found" } else { "invalid_value" };
        Self::Status(status, e.to_string())
    }
}
impl From<ParseError> for Wrong {
    fn from(e: ParseError) -> Self {
        Self::Status("parse", e.to_string())
    }
}
impl From<BadEndpoint> for Wrong {
    fn from(e: BadEndpoint) -> Self {
        Self::Status("parse", e.to_string())
    }
}

fn stack(word: &str) -> Answer<Stack> {
    let found = match word {
        "tcp" => Stack::Tcp,
        "tls" => Stack::Tls,
        "quic" => Stack::Quic,
        "udp" => Stack::Udp,
        "sctp" => Stack::Sctp,
        "sctp-dtls" => Stack::SctpDtls,
        "dtls" => Stack::Dtls,
        "quic-datagram" => Stack::QuicDatagram,
        _ => return script(format!("no stack '{word}'")),
    };
    Ok(found)
}

impl World {
    fn new() -> Self {
        let builder = Neater::builder().without_policies().resolv_conf("/dev/null");
        let (neater, driver) = builder.without_driver().expect("a transport system");
        let own = neater::self_signed(&["localhost", "127.0.0.1", "::1"]).expect("a certificate");
        Self { neater, driver, own, objects: BTreeMap::new(), keep: Vec::new() }
    }

    fn object(&mut self, name: &str) -> Answer<&mut Object> {
        self.objects.get_mut(name).ok_or_else(|| Wrong::Script(format!("there is no object {name}")))
    }

    fn held(&mut self, name: &str) -> Answer<&mut Held> {
        match &mut self.object(name)?.thing {
            Thing::Connection(held) => Ok(held),
            _ => script(format!("{name} is no connection")),
        }
    }

    fn add(&mut self, name: &str, thing: Thing) {
        let object = Object { thing, received: Vec::new(), taken: 0, events: Vec::new(), cursor: 0, over: false };
        assert!(self.objects.insert(name.to_owned(), object).is_none(), "{name} twice");
    }

    fn add_connection(
        &mut self,
        name: &str,
        connection: Connection,
        pending: Option<Arc<Mutex<Vec<Event>>>>,
        ready: bool,
    ) {
        let pending = pending.unwrap_or_else(|| {
            let pending = Arc::new(Mutex::new(Vec::new()));
            let to = pending.clone();
            connection.on_event(move |e| to.lock().expect("whole").push(e.clone()));
            pending
        });
        self.add(name, Thing::Connection(Box::new(Held { connection, pending, wanted: 0, ready })));
    }

    /// Does what there is to do, and looks at every object.
    fn turn(&mut self) {
        self.driver.turn();
        for object in self.objects.values_mut() {
            object.look();
        }
    }

    fn wait(&mut self) {
        let a_little = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
        let _ = poll(&mut [PollFd::new(&self.driver, PollFlags::IN)], Some(&a_little));
        self.turn();
    }

    fn remote(&mut self, item: &str) -> Answer<RemoteEndpoint> {
        if item.contains(':') {
            return Ok(item.parse::<RemoteEndpoint>()?);
        }
        if item == "refused" {
            // Bound and not listening: it stays refused.
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
            socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("bound");
            let addr = socket.local_addr().expect("bound").as_socket().expect("IP");
            self.keep.push(socket);
            return Ok(addr.into());
        }
        let remote = RemoteEndpoint::new();
        Ok(match &self.object(item)?.thing {
            Thing::Hole(addr) => (*addr).into(),
            Thing::Listener(l) => {
                let remote = remote.with_ip_address(IpAddr::V4(Ipv4Addr::LOCALHOST)).with_port(l.port());
                l.udp_ports().first().map_or(remote.clone(), |p| remote.clone().with_udp_port(*p))
            }
            _ => return script(format!("{item} is nowhere to go to")),
        })
    }

    fn prepare(&mut self, words: &[&str]) -> Answer<(Preconnection, Option<(String, bool)>)> {
        let mut pre = self.neater.preconnection();
        let (mut first, mut replayable) = (None, false);
        let mut properties = None::<neater::TransportProperties>;
        for word in words {
            let Some((key, value)) = word.split_once('=') else { return script(format!("no key=value: {word}")) };
            pre = match key {
                "to" => {
                    for item in value.split(',') {
                        pre = pre.remote(self.remote(item)?);
                    }
                    pre
                }
                "stacks" => pre.stacks(&value.split(',').map(stack).collect::<Answer<Vec<_>>>()?),
                "security" if value == "clear" => pre.security(SecurityParameters::disabled()),
                "security" => pre.security(self.own.clone()),
                "framer" => pre.framer(FramerSpec::LengthPrefixed { width: 4, max: 1 << 20 }),
                "needs" => pre.needs(&value.replace('+', ","))?,
                "timeout" => pre.timeout(Duration::from_millis(value.parse().expect("a number"))),
                "first" => {
                    first = Some(value.to_owned());
                    pre
                }
                "replayable" => {
                    replayable = true;
                    pre
                }
                _ => {
                    let Some(name) = key.strip_prefix("property.") else { return script(format!("no key {key}")) };
                    properties.get_or_insert_default().set_text(name, value)?;
                    pre
                }
            };
        }
        if let Some(properties) = properties {
            pre = pre.properties(properties);
        }
        Ok((pre, first.map(|f| (f, replayable))))
    }

    fn await_event(&mut self, name: &str, event: &str) -> Answer {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let object = self.object(name)?;
            while let Some(seen) = object.events.get(object.cursor) {
                object.cursor += 1;
                if seen.split(' ').next() == Some(event) {
                    return Ok(());
                }
            }
            if Instant::now() > until {
                return script(format!("{event} did not come in 20 s: {:?}", object.events));
            }
            self.wait();
        }
    }

    fn send(&mut self, words: &[&str]) -> Answer {
        let held = self.held(words[1])?;
        let mut context = MessageContext::new();
        for word in &words[3..] {
            let Some((name, value)) = word.split_once('=') else { return script("no NAME=VALUE") };
            context.add(name, value)?;
        }
        let data = match words[2].strip_prefix('#') {
            Some(n) => vec![0; n.parse().expect("a number")],
            None => words[2].as_bytes().to_vec(),
        };
        match words[0] {
            "send" => held.connection.try_send(data, &context)?,
            kind => held.connection.try_send_partial(data, &context, kind == "end")?,
        };
        Ok(())
    }

    fn is(&mut self, name: &str, what: &str, value: &str) -> Answer {
        let connection = &self.held(name)?.connection;
        let text = match what {
            "family" => match connection.remote_addr() {
                Some(SocketAddr::V6(_)) => "ipv6".to_owned(),
                _ => "ipv4".to_owned(),
            },
            "stack" => {
                let is = connection.stack();
                return if is == Some(stack(value)?) { Ok(()) } else { script(format!("the stack is {is:?}")) };
            }
            "state" => match connection.state() {
                ConnectionState::Establishing => "establishing",
                ConnectionState::Established => "established",
                ConnectionState::Closing => "closing",
                ConnectionState::Closed => "closed",
            }
            .to_owned(),
            "candidates" => connection.candidates().len().to_string(),
            property => connection.get(property).map(|v| v.to_string()).unwrap_or_default(),
        };
        if text == value { Ok(()) } else { script(format!("{what} of {name} is {text}, not {value}")) }
    }

    fn run(&mut self, words: &[&str]) -> Answer {
        match words {
            ["listen", name, rest @ ..] => {
                let (pre, _) = self.prepare(rest)?;
                let local = LocalEndpoint::new().with_ip_address(IpAddr::V4(Ipv4Addr::LOCALHOST)).with_udp_port(0);
                let listener = pre.local(local).listen()?;
                self.add(name, Thing::Listener(listener));
            }
            ["initiate", name, rest @ ..] => {
                let (pre, first) = self.prepare(rest)?;
                let pending = Arc::new(Mutex::new(Vec::new()));
                let to = pending.clone();
                let pre = pre.on_event(move |e| to.lock().expect("whole").push(e.clone()));
                let initiate = match first {
                    None => pre.initiate(),
                    Some((text, replayable)) => {
                        pre.initiate_with_send(text, &MessageContext::new().safely_replayable_as(replayable))
                    }
                };
                let connection = initiate.connection()?;
                self.add_connection(name, connection, Some(pending), false);
            }
            ["blackhole", name] => {
                let addr = self.black_hole();
                self.add(name, Thing::Hole(addr));
            }
            ["accept", from, name] => {
                self.await_event(from, "connection_received")?;
                let object = self.object(from)?;
                object.taken += 1;
                let connection = object.received.remove(0);
                self.add_connection(name, connection, None, true);
            }
            ["clone", name, of] => {
                let clone = self.held(of)?.connection.clone_connection()?;
                self.add_connection(name, clone, None, false);
            }
            ["group", name, of] => {
                let group = self.held(of)?.connection.group()?;
                self.add(name, Thing::Group(group));
            }
            ["send" | "part" | "end", ..] => self.send(words)?,
            ["receive", name] => {
                self.held(name)?.wanted += 1;
                self.object(name)?.look();
            }
            ["finish", name] => self.held(name)?.connection.finish()?,
            ["close", name] => match &self.object(name)?.thing {
                Thing::Group(g) => g.close(),
                Thing::Connection(c) => {
                    let mut closing = pin!(c.connection.close());
                    let _ = closing.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                }
                _ => return script("nothing to close"),
            },
            ["abort", name] => self.held(name)?.connection.abort(),
            ["stop", name] => match &self.object(name)?.thing {
                Thing::Listener(l) => l.stop(),
                _ => return script("no listener"),
            },
            ["set", name, property, value] => {
                let connection = &self.held(name)?.connection;
                let status = if connection.get(property).is_some() { "invalid_value" } else { "not_found" };
                connection.set(property, *value).map_err(|e| Wrong::Status(status, e.to_string()))?;
            }
            ["await", name, event] => self.await_event(name, event)?,
            ["wait", ms] => {
                let until = Instant::now() + Duration::from_millis(ms.parse().expect("a number"));
                while Instant::now() < until {
                    self.wait();
                }
            }
            ["is", name, what, value] => self.is(name, what, value)?,
            _ => return script("no such command"),
        }
        Ok(())
    }

    /// A TCP port of ::1 whose queue is full: it does not answer.
    fn black_hole(&mut self) -> SocketAddr {
        let socket = || socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::STREAM, None).expect("a socket");
        let hole = socket();
        hole.bind(&SocketAddr::from((Ipv6Addr::LOCALHOST, 0)).into()).expect("there is an IPv6 loopback");
        hole.listen(0).expect("it listens");
        let addr = hole.local_addr().expect("bound");
        self.keep.push(hole);
        for _ in 0..4 {
            let client = socket();
            client.set_nonblocking(true).expect("set");
            let _ = client.connect(&addr);
            std::thread::sleep(Duration::from_millis(2));
            self.keep.push(client);
        }
        addr.as_socket().expect("IP")
    }
}

impl Object {
    fn look(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        match &mut self.thing {
            Thing::Listener(l) if !self.over => {
                while let Poll::Ready(next) = l.poll_accept(&mut cx) {
                    let Some(c) = next else {
                        self.events.push("stopped".to_owned());
                        self.over = true;
                        return;
                    };
                    self.received.push(c);
                    self.events.push("connection_received".to_owned());
                }
            }
            Thing::Group(g) if !self.over => {
                while let Poll::Ready(next) = g.poll_accept(&mut cx) {
                    match next {
                        Ok(c) => {
                            self.received.push(c);
                            self.events.push("connection_received".to_owned());
                        }
                        Err(e) => {
                            self.events.push(format!("group_ended {}", connection_error(&e)));
                            self.over = true;
                            return;
                        }
                    }
                }
            }
            Thing::Connection(held) => {
                let pending = core::mem::take(&mut *held.pending.lock().expect("whole"));
                for event in pending {
                    let note = match &event {
                        Event::Ready if !held.ready => {
                            held.ready = true;
                            Some("ready".to_owned())
                        }
                        Event::EstablishmentError(e) => {
                            held.give_up(&mut self.events);
                            Some(format!("establishment_error {}", reason(e)))
                        }
                        Event::Sent(_) => Some("sent".to_owned()),
                        Event::Expired(_) => Some("expired".to_owned()),
                        Event::SendError(_, e) => Some(format!("send_error {}", send_error(e))),
                        Event::Closed => {
                            held.end(&mut self.events);
                            Some("closed".to_owned())
                        }
                        Event::ConnectionError(e) => {
                            held.end(&mut self.events);
                            Some(format!("connection_error {}", connection_error(e)))
                        }
                        _ => None,
                    };
                    self.events.extend(note);
                }
                held.receive(&mut self.events);
            }
            _ => {}
        }
    }
}

impl Held {
    /// Nothing is received any more on what was never established.
    fn give_up(&mut self, events: &mut Vec<String>) {
        for _ in 0..core::mem::take(&mut self.wanted) {
            events.push("receive_error closed".to_owned());
        }
    }

    fn end(&mut self, events: &mut Vec<String>) {
        if self.ready { self.receive(events) } else { self.give_up(events) }
    }

    fn receive(&mut self, events: &mut Vec<String>) {
        let mut cx = Context::from_waker(Waker::noop());
        while self.ready && self.wanted > 0 {
            let Poll::Ready(answer) = self.connection.poll_receive(&mut cx, usize::MAX, true) else { return };
            self.wanted -= 1;
            events.push(match answer {
                Ok(Some(m)) => {
                    let kind = if m.end_of_message { "received" } else { "received_partial" };
                    let early = if m.context.is_early_data() { " early" } else { "" };
                    format!("{kind} {}{early}", String::from_utf8_lossy(&m.data))
                }
                Ok(None) => "receive_end".to_owned(),
                Err(e) => format!("receive_error {}", connection_error(&e)),
            });
        }
    }
}

/// Runs a script; returns what each object saw, a line for each event.
pub(super) fn run(text: &str) -> Result<String, String> {
    let mut world = World::new();
    assert_eq!(world.own.protection, Protection::Required);
    assert!(matches!(world.own.trust, Trust::Only(_)));
    // Loopback is there, or nothing here means anything.
    drop(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback"));
    for (n, line) in text.trim_start().lines().enumerate() {
        let words: Vec<&str> = line.split(' ').filter(|w| !w.is_empty()).collect();
        let (expected, command) = match words.as_slice() {
            [] => continue,
            [first, ..] if first.starts_with('#') => continue,
            ["fails", status, command @ ..] => (Some(*status), command),
            command => (None, command),
        };
        let at = |why: String| Err(format!("line {} ({line}): {why}", n + 1));
        match (world.run(command), expected) {
            (Ok(()), None) => {}
            (Err(Wrong::Status(is, _)), Some(should)) if is == should => {}
            (Err(Wrong::Status(is, why)), _) => return at(format!("{is}: {why}")),
            (Err(Wrong::Script(why)), _) => return at(why),
            (Ok(()), Some(should)) => return at(format!("it did not fail with {should}")),
        }
    }
    let lines = world.objects.iter().flat_map(|(name, o)| o.events.iter().map(move |e| format!("{name} {e}\n")));
    Ok(lines.collect())
}
