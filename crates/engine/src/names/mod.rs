//! Names: the stub resolver's sockets and deadlines, and the questions to an external resolver.
//!
//! *Responsible for* asking, and for reporting the answers as events. *Not responsible for* what races make of them.

pub(crate) mod external;

pub(crate) use self::external::External;

use crate::Stack;
use crate::context::Context;
use crate::ids::SocketId;
use crate::timer::Timer;
use core::fmt::Write as _;
use core::time::Duration;
use neater_base::net::{Ecn, ErrorKind, Net, NetError, Ready, RecvBatch, Sock, SocketOptions, Transmit};
use neater_base::{Instant, Key};
use neater_dns::{
    Answer, Config, Hosts, Input, LookupId, Output, Question, RecordKind, ResolveError, Resolver, ServiceBinding,
    TransportId,
};
use neater_race::{Address, Record, Service, StackId, sort_destinations};
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
    /// Names that the program resolves.
    pub(crate) external: Option<Box<External>>,
}

/// What is known of a name that an external resolver is to find the addresses of.
#[derive(Debug)]
pub(crate) enum ExternalAnswer {
    Known(Result<Vec<IpAddr>, ResolveError>),
    /// It was asked.
    Later,
}

/// What the resolver reports to the race of a connection.
#[derive(Debug)]
pub(crate) enum NameEvent {
    Answer {
        conn: Key,
        path: u16,
        kind: RecordKind,
        answer: Answer,
    },
    /// Service bindings that are known so far; others may follow.
    ServicesSoFar {
        conn: Key,
        path: u16,
        services: Vec<ServiceBinding>,
    },
    /// The lookup is over.
    Done {
        conn: Key,
    },
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
            external: None,
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

impl Names {
    fn resolver<N: Net>(&mut self, cx: &Context<N>) -> &mut Resolver {
        let (seed, unconfigured) = (self.seed, &mut self.unconfigured);
        self.resolver.get_or_insert_with(|| {
            let (config, hosts) = configure(&cx.net);
            *unconfigured = cx.net.name_config_error().is_some();
            Box::new(Resolver::new(config, hosts, seed))
        })
    }

    /// Why nothing can be resolved now: the host's configuration cannot be read. What could not be read earlier is tried again;
    /// then names may mean other addresses (`true`).
    pub(crate) fn obstacle<N: Net>(&mut self, cx: &Context<N>) -> (Option<NetError>, bool) {
        self.resolver(cx);
        let changed = self.unconfigured && self.reconfigure(cx);
        if changed {
            self.unconfigured = cx.net.name_config_error().is_some();
        }
        (self.unconfigured.then(|| cx.net.name_config_error()).flatten(), changed)
    }

    /// Reads the host's configuration again. Returns whether there was one in use: names may mean other addresses now.
    pub(crate) fn reconfigure<N: Net>(&mut self, cx: &Context<N>) -> bool {
        let Some(resolver) = &mut self.resolver else { return false };
        let (config, hosts) = configure(&cx.net);
        resolver.set_config(cx.now, config, hosts);
        true
    }

    /// Until when an address of this family may be taken for that of `host`: as long as the name server has said.
    pub(crate) fn expiry<N: Net>(&mut self, cx: &Context<N>, host: &str, v4: bool) -> Instant {
        // What is not even kept for the next lookup is good for none.
        self.resolver(cx).expiry(cx.now, host, v4).unwrap_or(cx.now)
    }

    /// No connection waits for this lookup any more; answers to what was asked still go to the cache.
    pub(crate) fn abandon<N: Net>(&mut self, cx: &mut Context<N>, id: LookupId) {
        if self.lookups.remove(&id.0).is_none() {
            return;
        }
        let Some(resolver) = &mut self.resolver else { return };
        resolver.abandon(id);
        if resolver.has_turns() {
            // Not here: the caller may be handling an answer.
            cx.timers.push(cx.now, Timer::Resolver);
        }
    }

    /// Whether the race of this connection still waits for an answer: to one of these lookups, or of an external resolver.
    pub(crate) fn is_awaited_by(&self, conn: Key, lookups: &[LookupId]) -> bool {
        lookups.iter().any(|id| self.lookups.contains_key(&id.0))
            || self.external.as_ref().is_some_and(|e| e.is_asked_by(conn))
    }

    /// The host is attached to another network, where names may mean something else.
    pub(crate) fn network_changed(&mut self, now: Instant) {
        if let Some(resolver) = &mut self.resolver {
            resolver.network_changed(now);
        }
        if let Some(external) = &mut self.external {
            external.network_changed();
        }
    }

    pub(crate) fn flush_cache<N: Net>(&mut self, cx: &Context<N>) {
        self.resolver(cx).flush_cache();
    }

    /// Starts a lookup for one path of a connection's race.
    pub(crate) fn look_up<N: Net>(&mut self, cx: &Context<N>, waiter: (Key, u16), question: &Question<'_>) -> LookupId {
        let id = self.resolver(cx).lookup(cx.now, question);
        self.lookups.insert(id.0, waiter);
        id
    }

    /// Whether the names of a connection that is opened now are asked of the program.
    pub(crate) fn has_external_resolver(&self) -> bool {
        self.external.as_ref().is_some_and(|e| !e.over)
    }

    /// Asks the program, if names are asked of it and this one is not this host's own business.
    pub(crate) fn ask_external<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        waiter: (Key, u16),
        name: &str,
        interface: Option<u32>,
    ) -> Option<ExternalAnswer> {
        if !self.has_external_resolver() || self.resolver(cx).decides(name) {
            return None;
        }
        let now = cx.now;
        if let Some(addresses) = self.resolver(cx).told(now, name, interface) {
            return Some(ExternalAnswer::Known(Ok(addresses)));
        }
        let asked = self.external.as_mut()?.ask(cx, waiter, name, interface);
        Some(if asked { ExternalAnswer::Later } else { ExternalAnswer::Known(Err(ResolveError::TooMany)) })
    }

    /// Takes the program's answer to a question. Returns who waits for it; answers that hold are kept for later connections.
    pub(crate) fn answer_external<N: Net>(
        &mut self,
        cx: &Context<N>,
        id: u64,
        addresses: Option<&[IpAddr]>,
        lifetime: Duration,
    ) -> Option<Vec<(Key, u16)>> {
        let asked = self.external.as_mut()?.remove(id)?;
        if let Some(addresses) = addresses.filter(|_| !asked.elsewhere) {
            self.resolver(cx).tell(cx.now, &asked.name, asked.interface, addresses, lifetime);
        }
        Some(asked.waiters)
    }

    pub(crate) fn handle_timeout<N: Net>(&mut self, cx: &Context<N>) {
        self.armed = self.armed.filter(|at| *at > cx.now);
        if let Some(resolver) = &mut self.resolver {
            resolver.handle_timeout(cx.now);
        }
    }

    /// Does what the resolver wants of the network, and returns the next answer that concerns a race. `None`: there is
    /// no more, and the next deadline is set.
    pub(crate) fn poll_event<N: Net>(&mut self, cx: &mut Context<N>) -> Option<NameEvent> {
        let now = cx.now;
        while let Some(output) = self.resolver.as_mut().and_then(|r| r.poll_output(now)) {
            match output {
                Output::OpenUdp { transport, server, interface } => {
                    self.open_transport(cx, transport, server, interface, false);
                }
                Output::OpenTcp { transport, server, interface } => {
                    self.open_transport(cx, transport, server, interface, true);
                }
                Output::Send { transport, data } => self.transport_send(cx, transport, &data),
                Output::Close { transport } => {
                    if let Some(t) = self.transports.remove(&transport.0) {
                        cx.net.close(t.sock);
                    }
                }
                Output::Answer { lookup, kind, answer } => {
                    if let Some((conn, path)) = self.lookups.get(&lookup.0).copied() {
                        return Some(NameEvent::Answer { conn, path, kind, answer });
                    }
                }
                Output::ServicesSoFar { lookup, services } => {
                    if let Some((conn, path)) = self.lookups.get(&lookup.0).copied() {
                        return Some(NameEvent::ServicesSoFar { conn, path, services });
                    }
                }
                Output::Done { lookup } => {
                    if let Some((conn, _)) = self.lookups.remove(&lookup.0) {
                        return Some(NameEvent::Done { conn });
                    }
                }
            }
        }
        let at = self.resolver.as_ref()?.next_timeout()?;
        if self.armed.is_none_or(|a| at < a) {
            self.armed = Some(at);
            cx.timers.push(at, Timer::Resolver);
        }
        None
    }

    fn open_transport<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        id: TransportId,
        server: SocketAddr,
        interface: Option<u32>,
        stream: bool,
    ) {
        let options = SocketOptions { interface, ..SocketOptions::default() };
        let token = SocketId::Resolver(id.0).token();
        let opened = if stream {
            cx.net.connect(token, server, &options)
        } else {
            cx.net.udp(token, server, &options).and_then(|sock| {
                cx.net.udp_connect(sock, server).inspect_err(|_| cx.net.close(sock))?;
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
                self.transports.insert(id.0, transport);
                if !stream {
                    // Nothing can have come yet, but no event is promised before it was tried.
                    self.transport_read(cx, id);
                }
            }
            Err(error) => self.transport_failed(cx, id, stream, error),
        }
    }

    fn transport_failed<N: Net>(&mut self, cx: &mut Context<N>, id: TransportId, stream: bool, error: NetError) {
        let now = cx.now;
        let input = if stream {
            Input::TcpClosed { transport: id, error: Some(error) }
        } else {
            Input::UdpFailed { transport: id, error }
        };
        if let Some(r) = &mut self.resolver {
            r.handle_input(now, input);
        }
    }

    fn transport_send<N: Net>(&mut self, cx: &mut Context<N>, id: TransportId, data: &[u8]) {
        let Some(t) = self.transports.get_mut(&id.0) else { return };
        if t.stream {
            t.unsent.extend_from_slice(data);
            return self.transport_flush(cx, id);
        }
        let transmit = Transmit {
            destination: t.server,
            source: None,
            interface: None,
            ecn: Ecn::NotEct,
            segment_size: None,
            contents: data,
        };
        match cx.net.send(t.sock, &transmit) {
            Err(e) if e.is_would_block() => {
                if t.waiting.len() < MAX_WAITING {
                    t.waiting.push_back(data.to_vec());
                }
            }
            // Lost like any other: the retry timer covers it.
            Err(e) if e.kind == ErrorKind::NoBuffers => {}
            Err(e) => self.transport_failed(cx, id, false, e),
            Ok(()) => {}
        }
    }

    fn transport_flush<N: Net>(&mut self, cx: &mut Context<N>, id: TransportId) {
        let Some(t) = self.transports.get_mut(&id.0) else { return };
        for data in core::mem::take(&mut t.waiting) {
            self.transport_send(cx, id, &data);
        }
        let Some(t) = self.transports.get_mut(&id.0) else { return };
        while t.connected && !t.unsent.is_empty() {
            match cx.net.write(t.sock, &[IoSlice::new(&t.unsent)]) {
                Ok(n) => drop(t.unsent.drain(..n)),
                Err(e) if e.is_would_block() => return,
                Err(e) => return self.transport_failed(cx, id, true, e),
            }
        }
    }

    pub(crate) fn on_ready<N: Net>(&mut self, cx: &mut Context<N>, number: u32, ready: Ready) {
        let id = TransportId(number);
        let Some(t) = self.transports.get_mut(&number) else { return };
        let now = cx.now;
        let mut connected = false;
        if t.stream && !t.connected && ready.writable {
            match cx.net.connect_result(t.sock) {
                Ok(()) => {
                    t.connected = true;
                    connected = true;
                    if let Some(r) = &mut self.resolver {
                        r.handle_input(now, Input::TcpConnected { transport: id });
                    }
                }
                Err(e) if e.is_would_block() => {}
                Err(e) => self.transport_failed(cx, id, true, e),
            }
        }
        self.transport_flush(cx, id);
        if connected || ready.readable || ready.error || ready.hangup {
            self.transport_read(cx, id);
        }
    }

    fn transport_read<N: Net>(&mut self, cx: &mut Context<N>, id: TransportId) {
        let now = cx.now;
        let Some(t) = self.transports.get(&id.0) else { return };
        let (sock, stream) = (t.sock, t.stream);
        if stream {
            let mut buf = [0; 4096];
            for _ in 0..READS_PER_TURN {
                let Some(r) = &mut self.resolver else { return };
                match cx.net.read(sock, &mut buf) {
                    Ok(0) => return r.handle_input(now, Input::TcpClosed { transport: id, error: None }),
                    Ok(n) => r.handle_input(now, Input::TcpReceived { transport: id, data: &buf[..n] }),
                    Err(e) if e.is_would_block() => return,
                    Err(e) => return r.handle_input(now, Input::TcpClosed { transport: id, error: Some(e) }),
                }
            }
            return self.read_later(cx, id);
        }
        let mut batch = cx.batch.take().unwrap_or_else(|| Box::new(RecvBatch::default()));
        let mut more = true;
        for _ in 0..READS_PER_TURN {
            match cx.net.recv(sock, &mut batch) {
                Ok(_) => {
                    for (meta, data) in batch.filled() {
                        for datagram in data.chunks(meta.stride.max(1)) {
                            if let Some(r) = &mut self.resolver {
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
                        self.transport_failed(cx, id, false, e);
                    }
                    break;
                }
            }
        }
        cx.batch = Some(batch);
        if more {
            self.read_later(cx, id);
        }
    }

    /// A transport has more to read than one turn allows: no event reports it.
    fn read_later<N: Net>(&mut self, cx: &mut Context<N>, id: TransportId) {
        if !self.unread.contains(&id) {
            self.unread.push(id);
        }
        cx.again = true;
    }

    /// Goes on with what the budget of the last turn left.
    pub(crate) fn read_unread<N: Net>(&mut self, cx: &mut Context<N>) {
        for id in core::mem::take(&mut self.unread) {
            self.transport_read(cx, id);
        }
    }
}

/// The addresses in the order in which they are to be tried (RFC 6724 section 6): the system's routes decide which can be reached
/// at all.
pub(crate) fn addresses<N: Net>(net: &mut N, list: &[IpAddr]) -> Vec<Address> {
    // An IPv4-mapped address is IPv4's, and is answered from there. Among AAAA records it means nothing (RFC 4291
    // section 2.5.5.2).
    let list = list.iter().map(IpAddr::to_canonical);
    let mut addresses: Vec<_> = list.map(|a| Address::new(a, net.source_for(a))).collect();
    sort_destinations(&mut addresses);
    addresses
}

/// A service binding in the terms of the race: its application protocols say which stacks may be used with it; all of ours where it
/// says none.
pub(crate) fn service<N: Net>(net: &mut N, binding: &ServiceBinding, ours: &[Vec<u8>]) -> Service {
    let stacks = Stack::speaking(ours, &binding.alpn).into_iter().map(|s| StackId(s as u16)).collect();
    let hints = addresses(net, &binding.hints);
    // Also without addresses: hints of another host are not to be mixed with those of this one.
    let target = binding.foreign.then(|| addresses(net, &binding.addresses));
    Service { priority: binding.priority, stacks, port: binding.port, hints, target }
}

pub(crate) fn describe(answer: &Answer) -> String {
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
