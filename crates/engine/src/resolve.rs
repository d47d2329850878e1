//! Names: the stub resolver's sockets, and its answers on their way to the races.

use crate::event::{AttemptError, Step};
use crate::ids::SocketId;
use crate::{Engine, Stack};
use core::fmt::Write as _;
use neater_base::net::{Ecn, ErrorKind, Net, NetError, Ready, RecvBatch, Sock, SocketOptions, Transmit};
use neater_base::{Instant, Key};
use neater_dns::{
    Answer, Config, Hosts, Input, LookupId, Output, Question, RecordKind, Resolver, ServiceBinding, TransportId,
};
use neater_race::{Address, Family, Input as RaceInput, PathId, Record, Service, StackId, sort_destinations};
use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};

/// A socket of the resolver.
#[derive(Debug)]
struct Transport {
    sock: Sock,
    server: SocketAddr,
    stream: bool,
    connected: bool,
    /// What a stream could not yet take.
    unsent: Vec<u8>,
    /// Datagrams that the socket could not yet take, at most [`MAX_WAITING`].
    waiting: VecDeque<Vec<u8>>,
}

/// The resolver with what it needs to meet the network.
#[derive(Debug)]
pub(crate) struct Names {
    seed: [u8; 32],
    resolver: Option<Box<Resolver>>,
    /// The resolver was made without its configuration, which could not be read.
    unconfigured: bool,
    lookups: BTreeMap<u32, (Key, u16)>,
    transports: BTreeMap<u32, Transport>,
    /// Transports that were not read empty within the budget.
    unread: Vec<TransportId>,
    armed: Option<Instant>,
}

/// Datagrams that wait for room in the socket of one transport; more are lost, which the retry timer covers.
const MAX_WAITING: usize = 8;
/// Datagram batches, or pieces of a stream, that one transport may deliver in a turn.
const READS_PER_TURN: usize = 16;

impl Names {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self {
            seed,
            resolver: None,
            unconfigured: false,
            lookups: BTreeMap::new(),
            transports: BTreeMap::new(),
            unread: Vec::new(),
            armed: None,
        }
    }

    /// Whether a transport was not read empty.
    pub(crate) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }
}

pub(crate) fn record_name(record: Record) -> &'static str {
    match record {
        Record::Services => "HTTPS",
        Record::Aaaa => "AAAA",
        Record::A => "A",
    }
}

fn configure<N: Net>(net: &N) -> (Config, Hosts) {
    let texts = net.name_config();
    let zone = |name: &str| net.interfaces().iter().find(|i| i.name == name).map(|i| i.index);
    let (config, warnings) = Config::of_host(&texts.resolv_conf, zone);
    for w in warnings {
        tracing::warn!(target: "neater::dns", line = w.line, "resolver configuration: {}", w.problem);
    }
    (config, Hosts::parse(&texts.hosts))
}

impl<N: Net> Engine<N> {
    pub(crate) fn resolver(&mut self) -> &mut Resolver {
        let (net, seed, unconfigured) = (&self.cx.net, self.names.seed, &mut self.names.unconfigured);
        self.names.resolver.get_or_insert_with(|| {
            let (config, hosts) = configure(net);
            *unconfigured = net.name_config_error().is_some();
            Box::new(Resolver::new(config, hosts, seed))
        })
    }

    /// Why nothing can be resolved now: nobody knows how. What could not be read earlier is tried again.
    fn unresolvable(&mut self) -> Option<NetError> {
        self.resolver();
        if self.names.unconfigured {
            self.names_changed();
            self.names.unconfigured = self.cx.net.name_config_error().is_some();
        }
        self.names.unconfigured.then(|| self.cx.net.name_config_error()).flatten()
    }

    pub(crate) fn names_changed(&mut self) {
        if self.names.resolver.is_some() {
            let (config, hosts) = configure(&self.cx.net);
            let now = self.cx.now;
            // Names may mean other addresses now.
            self.outcomes.forget_outcomes();
            self.resolver().set_config(now, config, hosts);
            self.drain_resolver();
        }
    }

    /// Until when an address of this family may be taken for that of a connection's only remote endpoint: what its name
    /// meant is good for as long as the name server has said. `None`: the endpoint has no name.
    pub(crate) fn resolved_until(&mut self, conn: Key, v4: bool) -> Option<Instant> {
        let now = self.cx.now;
        let remotes = self.conns.get(conn)?.remotes.clone();
        let [remote] = &remotes[..] else { return None };
        let host = remote.host.as_deref().filter(|_| remote.addr.is_none())?;
        // What is not even kept for the next lookup is good for none.
        Some(self.resolver().expiry(now, host, v4).unwrap_or(now))
    }

    /// Nobody waits for this lookup any more; answers to what was asked still go to the cache.
    pub(crate) fn forget_lookup(&mut self, id: LookupId) {
        if self.names.lookups.remove(&id.0).is_none() {
            return;
        }
        let Some(resolver) = &mut self.names.resolver else { return };
        resolver.abandon(id);
        if resolver.has_turns() {
            // Not here: whoever is told may be in the midst of being told.
            self.cx.timers.push(self.cx.now, crate::timer::Timer::Resolver);
        }
    }

    /// Whether any of these lookups has something to say yet.
    pub(crate) fn is_looking_up(&self, lookups: &[LookupId]) -> bool {
        lookups.iter().any(|id| self.names.lookups.contains_key(&id.0))
    }

    /// The host is attached to another network, where names may mean something else.
    pub(crate) fn forget_names(&mut self) {
        let now = self.cx.now;
        if let Some(resolver) = &mut self.names.resolver {
            resolver.network_changed(now);
        }
        if let Some(outside) = &mut self.outside {
            outside.network_changed();
        }
    }

    /// Forgets every answer and every outcome.
    pub fn flush_caches(&mut self) {
        self.resolver().flush_cache();
        self.outcomes = neater_race::OutcomeCache::new(self.cx.rng.u64());
    }

    /// Starts a lookup for one path of a connection's race.
    pub(crate) fn look_up(&mut self, conn: Key, path: u16, name: &str, port: u16, https: bool, interface: Option<u32>) {
        if self.ask_outside(conn, path, name, interface) {
            return;
        }
        if let Some(error) = self.unresolvable() {
            let path = PathId(path);
            for family in [Family::V6, Family::V4] {
                self.race_input(conn, RaceInput::Answer { path, family, result: Err(AttemptError::Net(error)) });
            }
            if https {
                self.race_input(conn, RaceInput::Services { path, result: Err(AttemptError::Net(error)) });
            }
            return;
        }
        let now = self.cx.now;
        let q = Question { name, a: true, aaaa: true, https: https.then_some(port), interface };
        let id = self.resolver().lookup(now, &q);
        self.names.lookups.insert(id.0, (conn, path));
        if let Some(est) = self.est(conn) {
            est.lookups.push(id);
        }
    }

    pub(crate) fn resolver_timeout(&mut self) {
        self.names.armed = self.names.armed.filter(|at| *at > self.cx.now);
        if self.names.resolver.is_some() {
            let now = self.cx.now;
            self.resolver().handle_timeout(now);
            self.drain_resolver();
        }
    }

    /// Does what the resolver wants, until it wants nothing.
    pub(crate) fn drain_resolver(&mut self) {
        let now = self.cx.now;
        while let Some(output) = self.names.resolver.as_mut().and_then(|r| r.poll_output(now)) {
            match output {
                Output::OpenUdp { transport, server, interface } => {
                    self.open_transport(transport, server, interface, false)
                }
                Output::OpenTcp { transport, server, interface } => {
                    self.open_transport(transport, server, interface, true)
                }
                Output::Send { transport, data } => self.transport_send(transport, &data),
                Output::Close { transport } => {
                    if let Some(t) = self.names.transports.remove(&transport.0) {
                        self.cx.net.close(t.sock);
                    }
                }
                Output::Answer { lookup, kind, answer } => self.answered(lookup, kind, answer),
                Output::ServicesSoFar { lookup, services } => {
                    if let Some((conn, path)) = self.names.lookups.get(&lookup.0).copied() {
                        let services = self.services(conn, PathId(path), &services);
                        self.race_input(conn, RaceInput::ServicesSoFar { path: PathId(path), services });
                        self.drain_race(conn);
                    }
                }
                Output::Done { lookup } => {
                    if let Some((conn, _)) = self.names.lookups.remove(&lookup.0) {
                        self.go_on_planning(conn);
                        // The last answer came while the lookup was still under way.
                        self.settle_unanswered(conn);
                    }
                }
            }
        }
        let Some(resolver) = &self.names.resolver else { return };
        if let Some(at) = resolver.next_timeout()
            && self.names.armed.is_none_or(|a| at < a)
        {
            self.names.armed = Some(at);
            self.cx.timers.push(at, crate::timer::Timer::Resolver);
        }
    }

    fn open_transport(&mut self, id: TransportId, server: SocketAddr, interface: Option<u32>, stream: bool) {
        let options = SocketOptions { interface, ..SocketOptions::default() };
        let token = SocketId::Resolver(id.0).token();
        let opened = if stream {
            self.cx.net.connect(token, server, &options)
        } else {
            self.cx.net.udp(token, server, &options).and_then(|sock| {
                self.cx.net.udp_connect(sock, server).inspect_err(|_| self.cx.net.close(sock))?;
                Ok(sock)
            })
        };
        match opened {
            Ok(sock) => {
                let transport = Transport {
                    sock,
                    server,
                    stream,
                    connected: !stream,
                    unsent: Vec::new(),
                    waiting: VecDeque::new(),
                };
                self.names.transports.insert(id.0, transport);
                if !stream {
                    // Nothing can have come yet, but no event is promised before it was tried.
                    self.transport_read(id);
                }
            }
            Err(error) => self.transport_failed(id, stream, error),
        }
    }

    fn transport_failed(&mut self, id: TransportId, stream: bool, error: NetError) {
        let now = self.cx.now;
        let input = if stream {
            Input::TcpClosed { transport: id, error: Some(error) }
        } else {
            Input::UdpFailed { transport: id, error }
        };
        if let Some(r) = &mut self.names.resolver {
            r.handle_input(now, input);
        }
    }

    fn transport_send(&mut self, id: TransportId, data: &[u8]) {
        let Some(t) = self.names.transports.get_mut(&id.0) else { return };
        if t.stream {
            t.unsent.extend_from_slice(data);
            return self.transport_flush(id);
        }
        let transmit = Transmit {
            destination: t.server,
            source: None,
            interface: None,
            ecn: Ecn::NotEct,
            segment_size: None,
            contents: data,
        };
        match self.cx.net.send(t.sock, &transmit) {
            Err(e) if e.is_would_block() => {
                if t.waiting.len() < MAX_WAITING {
                    t.waiting.push_back(data.to_vec());
                }
            }
            // Lost like any other: the retry timer covers it.
            Err(e) if e.kind == ErrorKind::NoBuffers => {}
            Err(e) => self.transport_failed(id, false, e),
            Ok(()) => {}
        }
    }

    fn transport_flush(&mut self, id: TransportId) {
        let Some(t) = self.names.transports.get_mut(&id.0) else { return };
        for data in core::mem::take(&mut t.waiting) {
            self.transport_send(id, &data);
        }
        let Some(t) = self.names.transports.get_mut(&id.0) else { return };
        while t.connected && !t.unsent.is_empty() {
            match self.cx.net.write(t.sock, &[IoSlice::new(&t.unsent)]) {
                Ok(n) => drop(t.unsent.drain(..n)),
                Err(e) if e.is_would_block() => return,
                Err(e) => return self.transport_failed(id, true, e),
            }
        }
    }

    pub(crate) fn resolver_ready(&mut self, number: u32, ready: Ready) {
        let id = TransportId(number);
        let Some(t) = self.names.transports.get_mut(&number) else { return };
        let now = self.cx.now;
        let mut connected = false;
        if t.stream && !t.connected && ready.writable {
            match self.cx.net.connect_result(t.sock) {
                Ok(()) => {
                    t.connected = true;
                    connected = true;
                    if let Some(r) = &mut self.names.resolver {
                        r.handle_input(now, Input::TcpConnected { transport: id });
                    }
                }
                Err(e) if e.is_would_block() => {}
                Err(e) => self.transport_failed(id, true, e),
            }
        }
        self.transport_flush(id);
        if connected || ready.readable || ready.error || ready.hangup {
            self.transport_read(id);
        }
        self.drain_resolver();
    }

    fn transport_read(&mut self, id: TransportId) {
        let now = self.cx.now;
        let Some(t) = self.names.transports.get(&id.0) else { return };
        let (sock, stream) = (t.sock, t.stream);
        if stream {
            let mut buf = [0; 4096];
            for _ in 0..READS_PER_TURN {
                let Some(r) = &mut self.names.resolver else { return };
                match self.cx.net.read(sock, &mut buf) {
                    Ok(0) => return r.handle_input(now, Input::TcpClosed { transport: id, error: None }),
                    Ok(n) => r.handle_input(now, Input::TcpReceived { transport: id, data: &buf[..n] }),
                    Err(e) if e.is_would_block() => return,
                    Err(e) => return r.handle_input(now, Input::TcpClosed { transport: id, error: Some(e) }),
                }
            }
            return self.read_later(id);
        }
        let mut batch = self.cx.batch.take().unwrap_or_else(|| Box::new(RecvBatch::default()));
        let mut more = true;
        for _ in 0..READS_PER_TURN {
            match self.cx.net.recv(sock, &mut batch) {
                Ok(_) => {
                    for (meta, data) in batch.filled() {
                        for datagram in data.chunks(meta.stride.max(1)) {
                            if let Some(r) = &mut self.names.resolver {
                                r.handle_input(now, Input::UdpReceived { transport: id, data: datagram });
                            }
                        }
                    }
                    if batch.drained {
                        more = false;
                        break;
                    }
                }
                Err(e) => {
                    more = false;
                    if !e.is_would_block() {
                        self.transport_failed(id, false, e);
                    }
                    break;
                }
            }
        }
        self.cx.batch = Some(batch);
        if more {
            self.read_later(id);
        }
    }

    /// A transport has more to read than one turn allows: no event will tell.
    fn read_later(&mut self, id: TransportId) {
        if !self.names.unread.contains(&id) {
            self.names.unread.push(id);
        }
        self.cx.again = true;
    }

    /// Goes on with what the budget of the last turn left.
    pub(crate) fn read_unread_transports(&mut self) {
        for id in core::mem::take(&mut self.names.unread) {
            self.transport_read(id);
        }
        self.drain_resolver();
    }

    /// The system's routes decide which addresses can be reached at all, and in which order (RFC 6724 section 6).
    fn addresses(&mut self, list: &[IpAddr]) -> Vec<Address> {
        // An IPv4-mapped address is IPv4's, and is answered from there. Among AAAA records it means nothing (RFC 4291 section 2.5.5.2).
        let list = list.iter().map(IpAddr::to_canonical);
        let mut addresses: Vec<_> = list.map(|a| Address::new(a, self.cx.net.source_for(a))).collect();
        sort_destinations(&mut addresses);
        addresses
    }

    fn answered(&mut self, lookup: LookupId, kind: RecordKind, answer: Answer) {
        let Some((conn, path)) = self.names.lookups.get(&lookup.0).copied() else { return };
        self.deliver_answer(conn, path, kind, answer);
        self.drain_race(conn);
    }

    /// Tells the race of a connection what is known of one kind of records.
    pub(crate) fn deliver_answer(&mut self, conn: Key, path: u16, kind: RecordKind, answer: Answer) {
        let record = match kind {
            RecordKind::A => "A",
            RecordKind::Aaaa => "AAAA",
            RecordKind::Https => "HTTPS",
        };
        let found = describe(&answer);
        self.step(conn, Step::Resolved { record, found });
        let path = PathId(path);
        let input = match (kind, answer) {
            (RecordKind::Https, Answer::Services(list)) => {
                RaceInput::Services { path, result: Ok(self.services(conn, path, &list)) }
            }
            (RecordKind::Https, Answer::Failed(e)) => {
                RaceInput::Services { path, result: Err(AttemptError::Resolve(e)) }
            }
            (RecordKind::Https, Answer::Addresses(_)) => RaceInput::Services { path, result: Ok(Vec::new()) },
            (_, answer) => {
                let family = if kind == RecordKind::A { Family::V4 } else { Family::V6 };
                let unfit = family == Family::V4 && self.conns.get(conn).is_some_and(|c| c.request.only_v6)
                    || self.path_family(conn, path).is_some_and(|f| f != family);
                let result = match answer {
                    Answer::Addresses(_) if unfit => Ok(Vec::new()),
                    Answer::Addresses(list) => Ok(self.addresses(&list)),
                    Answer::Services(_) => Ok(Vec::new()),
                    Answer::Failed(e) => Err(AttemptError::Resolve(e)),
                };
                RaceInput::Answer { path, family, result }
            }
        };
        self.race_input(conn, input);
    }

    /// Service bindings in the terms of the race, for one path.
    fn services(&mut self, conn: Key, path: PathId, list: &[ServiceBinding]) -> Vec<Service> {
        let alpn = self.conns.get(conn).map(|c| c.request.alpn.clone()).unwrap_or_default();
        let mut services: Vec<_> = list.iter().map(|b| self.service(b, &alpn)).collect();
        let only_v6 = self.conns.get(conn).is_some_and(|c| c.request.only_v6);
        if let Some(family) = self.path_family(conn, path).or(only_v6.then_some(Family::V6)) {
            for service in &mut services {
                service.hints.retain(|a| Family::of(&a.addr) == family);
                service.target.iter_mut().for_each(|t| t.retain(|a| Family::of(&a.addr) == family));
            }
        }
        services
    }

    /// A service binding in the terms of the race: its application protocols say which stacks may be used with it; all of ours where it
    /// says none.
    fn service(&mut self, binding: &ServiceBinding, ours: &[Vec<u8>]) -> Service {
        let offers = |quic: bool| {
            let speaks = |a: &Vec<u8>| binding.alpn.is_empty() || binding.alpn.contains(a);
            ours.iter().any(|a| speaks(a) && (a == b"h3" || a.starts_with(b"h3-")) == quic)
        };
        let mut stacks = Vec::new();
        if offers(true) {
            stacks.push(StackId(Stack::Quic as u16));
        }
        if offers(false) {
            stacks.push(StackId(Stack::Tls as u16));
        }
        let hints = self.addresses(&binding.hints);
        // Also without addresses: hints of another host are not to be mixed with those of this one.
        let target = binding.foreign.then(|| self.addresses(&binding.addresses));
        Service { priority: binding.priority, stacks, port: binding.port, hints, target }
    }
}

fn describe(answer: &Answer) -> String {
    let mut text = String::new();
    match answer {
        Answer::Addresses(list) if list.is_empty() => text.push_str("none"),
        Answer::Addresses(list) => {
            for (i, a) in list.iter().enumerate() {
                let _ = write!(text, "{}{a}", if i == 0 { "" } else { ", " });
            }
        }
        Answer::Services(list) if list.is_empty() => text.push_str("none"),
        Answer::Services(list) => {
            for (i, s) in list.iter().enumerate() {
                let alpn: Vec<_> = s.alpn.iter().map(|a| String::from_utf8_lossy(a)).collect();
                let _ = write!(text, "{}{}", if i == 0 { "" } else { "; " }, s.priority);
                if s.foreign {
                    let _ = write!(text, " {}", s.target);
                }
                if let Some(port) = s.port {
                    let _ = write!(text, " port={port}");
                }
                if !alpn.is_empty() {
                    let _ = write!(text, " alpn={}", alpn.join(","));
                }
            }
        }
        Answer::Failed(e) => {
            let _ = write!(text, "{e}");
        }
    }
    text
}
