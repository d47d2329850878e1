//! Names: the stub resolver's sockets and deadlines, and the questions to an external resolver.
//!
//! *Responsible for* asking, and for reporting the answers as events. *Not responsible for* what
//! races make of them.

pub(crate) mod external;

pub(crate) use self::external::External;

use crate::Stack;
use crate::carrier::resolver::ResolverSockets;
use crate::context::Context;
use crate::timer::Timer;
use core::fmt::Write as _;
use core::time::Duration;
use neater_base::net::{Net, NetError, Ready};
use neater_base::{Instant, Key};
use neater_dns::{
    Answer, Config, Hosts, LookupId, Output, Question, RecordKind, ResolveError, Resolver, ServiceBinding,
};
use neater_race::{Address, Record, Service, StackId, sort_destinations};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The resolver with what it needs to meet the network.
#[derive(Debug)]
pub(crate) struct Names {
    seed: [u8; 32],
    resolver: Option<Box<Resolver>>,
    /// The resolver was made without its configuration, which could not be read.
    unconfigured: bool,
    lookups: BTreeMap<u32, (Key, u16)>,
    sockets: ResolverSockets,
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

impl Names {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self {
            seed,
            resolver: None,
            unconfigured: false,
            lookups: BTreeMap::new(),
            sockets: ResolverSockets::default(),
            armed: None,
            external: None,
        }
    }

    /// Whether a transport was not read empty.
    pub(crate) fn has_unread(&self) -> bool {
        self.sockets.has_unread()
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

    /// Why nothing can be resolved now: the host's configuration cannot be read. What could not be
    /// read earlier is tried again; then names may mean other addresses (`true`).
    pub(crate) fn obstacle<N: Net>(&mut self, cx: &Context<N>) -> (Option<NetError>, bool) {
        self.resolver(cx);
        let changed = self.unconfigured && self.reconfigure(cx);
        if changed {
            self.unconfigured = cx.net.name_config_error().is_some();
        }
        (self.unconfigured.then(|| cx.net.name_config_error()).flatten(), changed)
    }

    /// Reads the host's configuration again. Returns whether there was one in use: names may mean
    /// other addresses now.
    pub(crate) fn reconfigure<N: Net>(&mut self, cx: &Context<N>) -> bool {
        let Some(resolver) = &mut self.resolver else { return false };
        let (config, hosts) = configure(&cx.net);
        resolver.set_config(cx.now, config, hosts);
        true
    }

    /// Until when an address of this family may be taken for that of `host`: as long as the name
    /// server has stated.
    pub(crate) fn expiry<N: Net>(&mut self, cx: &Context<N>, host: &str, v4: bool) -> Instant {
        // What is not even kept for the next lookup is good for none.
        self.resolver(cx).expiry(cx.now, host, v4).unwrap_or(cx.now)
    }

    /// No connection waits for this lookup any more; answers to what was asked still go to the
    /// cache.
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

    /// Whether the race of this connection still waits for an answer: to one of these lookups, or
    /// of an external resolver.
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
        if let Some(addresses) = self.resolver(cx).external(now, name, interface) {
            return Some(ExternalAnswer::Known(Ok(addresses)));
        }
        let asked = self.external.as_mut()?.ask(cx, waiter, name, interface);
        Some(if asked { ExternalAnswer::Later } else { ExternalAnswer::Known(Err(ResolveError::TooMany)) })
    }

    /// Takes the program's answer to a question. Returns the connections that wait for it; answers
    /// that hold are kept for later connections.
    pub(crate) fn answer_external<N: Net>(
        &mut self,
        cx: &Context<N>,
        id: u64,
        addresses: Option<&[IpAddr]>,
        lifetime: Duration,
    ) -> Option<Vec<(Key, u16)>> {
        let asked = self.external.as_mut()?.remove(id)?;
        if let Some(addresses) = addresses.filter(|_| !asked.elsewhere) {
            self.resolver(cx).set_external(cx.now, &asked.name, asked.interface, addresses, lifetime);
        }
        Some(asked.waiters)
    }

    pub(crate) fn handle_timeout<N: Net>(&mut self, cx: &Context<N>) {
        self.armed = self.armed.filter(|at| *at > cx.now);
        if let Some(resolver) = &mut self.resolver {
            resolver.handle_timeout(cx.now);
        }
    }

    /// A socket of the resolver is ready.
    pub(crate) fn on_ready<N: Net>(&mut self, cx: &mut Context<N>, number: u32, ready: Ready) {
        if let Some(resolver) = &mut self.resolver {
            self.sockets.on_ready(cx, resolver, number, ready);
        }
    }

    /// Goes on with what the budget of the last turn left.
    pub(crate) fn read_unread<N: Net>(&mut self, cx: &mut Context<N>) {
        if let Some(resolver) = &mut self.resolver {
            self.sockets.read_unread(cx, resolver);
        }
    }

    /// Does what the resolver wants of the network, and returns the next answer that concerns a
    /// race. `None`: there is no more, and the next deadline is set.
    pub(crate) fn poll_event<N: Net>(&mut self, cx: &mut Context<N>) -> Option<NameEvent> {
        let now = cx.now;
        while let Some(resolver) = &mut self.resolver
            && let Some(output) = resolver.poll_output(now)
        {
            match self.sockets.handle(cx, resolver, output) {
                Some(Output::Answer { lookup, kind, answer }) => {
                    if let Some((conn, path)) = self.lookups.get(&lookup.0).copied() {
                        return Some(NameEvent::Answer { conn, path, kind, answer });
                    }
                }
                Some(Output::ServicesSoFar { lookup, services }) => {
                    if let Some((conn, path)) = self.lookups.get(&lookup.0).copied() {
                        return Some(NameEvent::ServicesSoFar { conn, path, services });
                    }
                }
                Some(Output::Done { lookup }) => {
                    if let Some((conn, _)) = self.lookups.remove(&lookup.0) {
                        return Some(NameEvent::Done { conn });
                    }
                }
                // That was for the network.
                _ => {}
            }
        }
        let at = self.resolver.as_ref()?.next_timeout()?;
        if self.armed.is_none_or(|a| at < a) {
            self.armed = Some(at);
            cx.timers.push(at, Timer::Resolver);
        }
        None
    }
}

/// The addresses in the order in which they are to be tried (RFC 6724 section 6): the system's
/// routes decide which can be reached at all.
pub(crate) fn addresses<N: Net>(net: &mut N, list: &[IpAddr]) -> Vec<Address> {
    // An IPv4-mapped address is IPv4's, and is answered from there. Among AAAA records it means
    // nothing (RFC 4291 section 2.5.5.2).
    let list = list.iter().map(IpAddr::to_canonical);
    let mut addresses: Vec<_> = list.map(|a| Address::new(a, net.source_for(a))).collect();
    sort_destinations(&mut addresses);
    addresses
}

/// A service binding in the terms of the race: its application protocols select the stacks that may
/// be used with it; all of ours where it lists none.
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
