//! Associations that are opened, by us in a race or by a peer at a listener, and the streams that
//! both open on them.

use super::paths::{bound_first, spread};
use super::socket::{mtu, peer_address};
use super::wire::{ADAPTATION, PPID_DATA};
use super::{PacketLayer, Profile, Sctp, SctpEndpoint, SctpSocket, Tie};
use crate::carrier::event::CarrierEvent;
use crate::carrier::ids::Due;
use crate::carrier::layer::Layers;
use crate::carrier::terms::OpenedStream;
use crate::carrier::terms::Target;
use crate::carrier::{FlowId, SctpCarrier, SessionId};
use crate::context::Context;
use crate::event::{AttemptError, EstablishmentError, Reason};
use crate::preferences::keep_alive;
use crate::request::Compiled;
use crate::{RemoteEndpoint, Stack};
use bytes::Bytes;
use core::time::Duration;
use neater_base::net::{ErrorKind, Net, SocketOptions};
use neater_base::{Instant, Key};
use neater_property::{Multipath, Preference, Role, SelectionProperty as P};
use neater_quic::Direction;
use neater_sctp::{AssociationId, CloseReason, ConnectError, LayerId, Route, Scheduler, SendOptions, StreamId};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

/// How many endpoints of a socket are looked at for one that can take another association, before a
/// new one is made.
const ENDS_ASKED: usize = 8;
/// A program that asks for keep-alives wants to know when no answer comes to them: after so many
/// times their interval.
const UNANSWERED: u32 = 3;
/// And not sooner than this: between two of them there is a retransmission timeout more (RFC 9260
/// section 8.3).
const SILENCE: Duration = Duration::from_secs(10);

/// Where an association is to lead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteTarget<'a> {
    pub(crate) below: PacketLayer,
    /// With the SCTP port.
    pub(crate) addr: SocketAddr,
    /// Where there is UDP below.
    pub(crate) udp_port: u16,
    /// The identity that the peer must have, where there is DTLS below.
    pub(crate) name: &'a str,
}

/// What of a request an endpoint is made for.
fn profile(request: &Compiled, role: Role, mtu: u16) -> Profile {
    use neater_property::Scheduler as S;
    let properties = &request.properties;
    let scheduler = match properties.connection.scheduler {
        S::FirstComeFirstServed => Scheduler::FirstCome,
        S::RoundRobin => Scheduler::RoundRobin,
        S::RoundRobinPerPacket => Scheduler::RoundRobinPerPacket,
        S::PriorityBased => Scheduler::Priority,
        S::FairCapacity => Scheduler::FairBandwidth,
        S::WeightedFairQueueing => Scheduler::WeightedFair,
    };
    let widens = role == Role::Initiate && properties.multipath(role) == Multipath::Active;
    let several = properties.multipath(role) != Multipath::Disabled;
    Profile {
        mtu,
        several,
        widens,
        multipath: spread(properties.connection.multipath_policy).filter(|_| several),
        heartbeats: properties.preference(P::KeepAlive, role) >= Preference::NoPreference,
        keep_alive: keep_alive(properties, role),
        scheduler,
    }
}

/// What the scheduler makes of `connPriority`, of which 100 is the default and less goes first: a
/// weight, where it weighs.
pub(super) fn value_of(scheduler: Scheduler, priority: u32) -> u16 {
    match scheduler {
        Scheduler::WeightedFair => (10_000 / priority.clamp(1, 10_000)) as u16,
        _ => u16::try_from(priority).unwrap_or(u16::MAX),
    }
}

impl RemoteTarget<'_> {
    /// The same with the scope of a link-local address, and the address by which the peer is known
    /// to its endpoint.
    fn resolved(self, interface: Option<u32>) -> (Self, SocketAddr) {
        let there = RemoteTarget { addr: crate::context::with_scope(self.addr, interface), ..self };
        let mut route = peer_address(there.addr);
        route.set_port(if there.below == PacketLayer::Ip { 0 } else { there.udp_port });
        (there, route)
    }
}

/// The parts of an association that do not follow from its endpoint.
struct Parts {
    remote: SocketAddr,
    route: SocketAddr,
    request: Arc<Compiled>,
    remotes: Arc<[RemoteEndpoint]>,
    client: bool,
}

impl SctpCarrier {
    /// Begins an attempt: INIT leaves with the next turn.
    pub(crate) fn connect<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        layers: &mut Layers<'_>,
        attempt: Key,
        there: RemoteTarget<'_>,
        to: &Target<'_>,
    ) -> Result<Key, AttemptError> {
        let (there, route) = there.resolved(to.options.interface);
        // A UDP socket that is not connected does not report that there is no route until it sends.
        if cx.route_to(there.addr).is_none() {
            return Err(Self::cannot(ErrorKind::NetworkUnreachable));
        }
        let bound = bound_first(cx, to.request, there.addr.ip(), to.options);
        let to = &Target { options: bound.as_ref().unwrap_or(to.options), ..*to };
        let end = self.client_endpoint(cx, layers, there, route, to)?;
        let Some(e) = self.endpoints.get_mut(end) else { return Err(AttemptError::NoAddress) };
        let path = Route { layer: LayerId(0), remote: route };
        let id = e.endpoint.connect(cx.now, there.addr.port(), &[path]).map_err(|e| match e {
            ConnectError::Exists => Self::cannot(ErrorKind::AddrInUse),
            ConnectError::TooMany => Self::cannot(ErrorKind::NoBuffers),
            _ => Self::cannot(ErrorKind::InvalidInput),
        })?;
        // It goes with the COOKIE ECHO chunk (RFC 9260 section 5.1), or not at all if the attempt
        // is withdrawn before.
        let first = to.first.filter(|d| !d.is_empty() && !to.request.framer.frames());
        let early = first.is_some_and(|data| {
            let options = SendOptions { ppid: PPID_DATA, ..SendOptions::default() };
            // The endpoint keeps it until it is acknowledged, and the application may own it.
            e.endpoint.send(id, StreamId(0), Bytes::copy_from_slice(data), options).is_ok()
        });
        let parts =
            Parts { remote: there.addr, route, request: to.request.clone(), remotes: to.remotes.clone(), client: true };
        let key = self.insert(cx, (end, id), parts);
        if let Some(a) = self.associations.get_mut(key) {
            a.attempt = Some(attempt);
            a.early = early;
            // What the peer sends before the race is decided is for the winner.
            a.open(0);
        }
        self.tie(cx, layers);
        self.mark_dirty(end);
        Ok(key)
    }

    /// An endpoint on a socket for this way that has no association with the peer yet.
    fn client_endpoint<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        layers: &mut Layers<'_>,
        RemoteTarget { below, addr, name, .. }: RemoteTarget<'_>,
        route: SocketAddr,
        Target { request, options, .. }: &Target<'_>,
    ) -> Result<Key, AttemptError> {
        // Associations share a socket unless the socket itself was asked to be special.
        let plain = options.local.is_none() && options.set.is_empty() && options.temporary_address.is_none();
        let at = options.local.map(|l| l.ip()).filter(|ip| below == PacketLayer::Ip && !ip.is_unspecified());
        let sharing = (addr.is_ipv6(), options.interface, request.isolation);
        let shared = self.client_sockets.iter().find(|(of, _)| plain && *of == sharing).map(|(_, k)| *k);
        let socket = match shared.filter(|_| below == PacketLayer::Udp) {
            _ if below == PacketLayer::Ip => self.ip_socket(cx, addr, options)?,
            _ if below == PacketLayer::Dtls => self.open_layer(cx, layers, (route, name), request, options)?,
            Some(k) => k,
            None => {
                let k = self.open_socket(cx, addr, options, below, false)?;
                if plain {
                    self.client_sockets.push((sharing, k));
                }
                // Nothing can have come yet, but no event is promised before it was tried.
                self.socket_readable(cx, k);
                k
            }
        };
        let mtu = mtu(cx, options.local.map(|l| l.ip()), Some(addr.ip()));
        let profile = profile(request, Role::Initiate, mtu);
        let free = |e: &SctpEndpoint| {
            e.profile == profile
                && e.at == at
                && e.ways.is_empty()
                && e.listener.is_none()
                && !self.has_peer_port(e, addr.port())
        };
        let ends = self.sockets.get(socket).into_iter().flat_map(|s| s.ends.values().copied());
        // One that has sockets of several interfaces is for one association.
        let found = ends.take(ENDS_ASKED).find(|k| !profile.widens && self.endpoints.get(*k).is_some_and(free));
        match found.or_else(|| self.open_endpoint(cx, socket, (at, 0), profile, false)) {
            Some(end) => Ok(end),
            None => {
                self.tidy_socket(cx, socket);
                self.tie(cx, layers);
                Err(Self::cannot(ErrorKind::AddrNotAvailable))
            }
        }
    }

    /// Whether an endpoint has an association with this SCTP port of any peer. Two endpoints have
    /// one association at most (RFC 9260 section 1.3), and two addresses may be of one host: the
    /// second would be taken for a restart of the first.
    fn has_peer_port(&self, end: &SctpEndpoint, port: u16) -> bool {
        end.associations.values().any(|k| self.associations.get(*k).is_none_or(|a| a.remote.port() == port))
    }

    fn insert<N: Net>(&mut self, cx: &Context<N>, (end, id): (Key, AssociationId), parts: Parts) -> Key {
        let Parts { remote, route, request, remotes, client } = parts;
        let socket = self.endpoints.get(end).and_then(|e| self.sockets.get(e.socket));
        let (stack, layered) = socket.map_or((Stack::Sctp, false), |s| (s.below.stack(), s.layer.is_some()));
        let patience = request.properties.connection.timeout;
        let key = self.associations.insert(Sctp {
            stack,
            paths: Vec::new(),
            end,
            id,
            client,
            remote,
            route,
            connected: !client,
            answered: !client,
            mux: false,
            lost: None,
            ended_here: false,
            over: false,
            attempt: None,
            before: None,
            on_trial: false,
            group: None,
            streams: BTreeMap::new(),
            numbers: BTreeMap::new(),
            uses: 0,
            unaccepted: VecDeque::new(),
            ending: VecDeque::new(),
            stops: Vec::new(),
            listed: false,
            resetting: false,
            left: Vec::new(),
            asked: neater_property::MultipathPolicy::default(),
            reports: BTreeMap::new(),
            held: 0,
            told: 0,
            blocked: false,
            share: usize::MAX,
            turn: 0,
            turns: None,
            reserved: 0,
            fed: 0,
            next_stream: u16::from(!client),
            send_buffer: cx.limits.send_buffer,
            request,
            remotes,
            early: false,
            started: cx.now,
        });
        if let Some(e) = self.endpoints.get_mut(end) {
            e.associations.insert(id, key);
            if patience.is_some() {
                e.endpoint.set_patience(id, patience);
            }
            if let Some(every) = e.profile.keep_alive {
                e.endpoint.set_silence(cx.now, id, Some((every * UNANSWERED).max(SILENCE)));
            }
        }
        if layered {
            self.ties.push(Tie::Join(key));
        }
        key
    }

    /// INIT ACK has come. The COOKIE ECHO chunk, which makes the peer keep state, leaves after
    /// this: not for an attempt that was withdrawn.
    pub(super) fn reachable<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(a) = self.associations.get_mut(key) else { return };
        a.answered = true;
        let (attempt, stack, rtt) = (a.attempt, a.stack, cx.now - a.started);
        match attempt {
            // The answer to the client's hello was the first.
            Some(_) if stack == Stack::SctpDtls => {}
            Some(attempt) => {
                self.events.push_back(CarrierEvent::Reachable { attempt, session: SessionId::Sctp(key), rtt });
            }
            None => self.answered_late(cx, key),
        }
    }

    pub(super) fn connected(&mut self, key: Key) {
        let Some(a) = self.associations.get_mut(key) else { return };
        a.connected = true;
        a.mux = self.endpoints.get(a.end).is_some_and(|e| is_mux(e, a.id));
        if let Some(attempt) = a.attempt {
            self.events.push_back(CarrierEvent::Established { attempt, session: SessionId::Sctp(key) });
        }
    }

    /// An attempt is not wanted any more. Before its peer has answered, nothing was sent that it
    /// keeps; what it answers later has no effect, unless the race puts the attempt on trial.
    pub(crate) fn withdraw<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(a) = self.associations.get_mut(key) else { return };
        a.attempt = None;
        if a.stack == Stack::SctpDtls {
            // The handshake of its layer does not go on: it would make the peer keep state.
            let end = a.end;
            self.drop_unused(cx, key);
            return self.endpoint_over(cx, end);
        }
        if a.lost.is_none() && a.answered {
            self.drop_unused(cx, key);
        } else if a.lost.is_none() {
            // The race may still give it a trial; if it has not by then, it is dropped.
            a.lost = Some(CloseReason::Aborted);
            cx.timers.push(cx.now, Due::SctpTrial(key).into());
        } else {
            self.tidy(cx, key);
        }
    }

    /// The race gives an attempt that it has withdrawn until `due` to be answered. False: it is
    /// gone, or over.
    pub(crate) fn put_on_trial<N: Net>(&mut self, cx: &mut Context<N>, key: Key, due: Instant) -> bool {
        let Some(a) = self.associations.get_mut(key).filter(|a| !a.over) else { return false };
        a.on_trial = true;
        cx.timers.push(due.max(cx.now), Due::SctpTrial(key).into());
        // The timer of the withdrawal is before that.
        a.started = due;
        true
    }

    /// The time of a withdrawn attempt is up.
    pub(crate) fn trial_over<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(a) = self.associations.get_mut(key) else { return };
        if a.on_trial && a.started > cx.now {
            return;
        }
        if core::mem::take(&mut a.on_trial) {
            self.events.push_back(CarrierEvent::NoAnswer { session: SessionId::Sctp(key) });
        }
        self.drop_unused(cx, key);
    }

    /// A withdrawn attempt was answered: it was not silent, and is not needed.
    pub(super) fn answered_late<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(a) = self.associations.get_mut(key) else { return };
        if core::mem::take(&mut a.on_trial) {
            self.events.push_back(CarrierEvent::LateAnswer { session: SessionId::Sctp(key) });
        }
        self.drop_unused(cx, key);
    }

    /// Forgets an association that no connection has used: no event is of use to one. A peer that
    /// may know of it is notified.
    fn drop_unused<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(a) = self.associations.get_mut(key).filter(|a| a.attempt.is_none() && !a.is_used()) else { return };
        a.lost.get_or_insert(CloseReason::Aborted);
        a.over = true;
        let end = a.end;
        self.tidy(cx, key);
        self.mark_dirty(end);
    }

    /// An attempt has won: its association belongs to this group. Returns the stream of its
    /// connection, and whether the peer has the first message.
    pub(crate) fn take(&mut self, key: Key, group: Key) -> Option<(u32, bool)> {
        let a = self.associations.get_mut(key)?;
        a.attempt = None;
        a.group = Some(group);
        a.next_stream = 2;
        let stream = a.numbers.get(&0).copied().unwrap_or_else(|| a.open(0));
        Some((stream, core::mem::take(&mut a.early)))
    }

    /// Reports what the peer sent while the race was being decided.
    pub(crate) fn begin<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let before = self.associations.get_mut(key).and_then(|a| a.before.take());
        self.widen(cx, key);
        self.take_arrived(&cx.limits, key);
        if let Some(before) = before {
            self.reset_received(&cx.limits, key, before.streams.into_iter());
            if before.shutdown {
                self.shutdown_received(&cx.limits, key);
            }
            self.end_streams(key);
            if before.closed {
                self.closed(cx, key, CloseReason::Shutdown);
                return self.tidy_later(key);
            }
        }
        self.mark_dirty_of(key);
    }

    /// Listens at an SCTP port of a socket, which several listeners of this engine may share.
    pub(crate) fn listen<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        layers: &mut Layers<'_>,
        (listener, request): (Key, &Arc<Compiled>),
        (below, port): (PacketLayer, u16),
        options: &SocketOptions,
    ) -> Result<Key, AttemptError> {
        let Some(addr) = options.local else { return Err(AttemptError::NoAddress) };
        let same = |s: &SctpSocket| s.server && s.below == below && s.options == *options && addr.port() != 0;
        let shared = self.sockets.iter().find(|(_, s)| same(s)).map(|(k, _)| k);
        let at = Some(addr.ip()).filter(|ip| below == PacketLayer::Ip && !ip.is_unspecified());
        let socket = match shared {
            _ if below == PacketLayer::Ip => self.ip_socket(cx, addr, options)?,
            // Its clients are shown the certificate of one listener.
            _ if below == PacketLayer::Dtls => self.listen_layer(cx, layers, listener, addr, request, options)?,
            Some(k) => k,
            None => self.open_socket(cx, addr, options, below, true)?,
        };
        let mtu = mtu(cx, Some(addr.ip()), None);
        let profile = profile(request, Role::Listen, mtu);
        // A listener that has stopped may have left its port with connections on it.
        let left = self.sockets.get(socket).and_then(|s| s.ends.get(&(port, at)).copied());
        let left = left.filter(|k| self.endpoints.get(*k).is_some_and(|e| e.listener.is_none() && e.socket == socket));
        let guest = self.sockets.get(socket).and_then(|s| s.ends.get(&(port, None)).copied());
        let guest = guest.filter(|k| self.endpoints.get(*k).is_some_and(|e| e.socket != socket));
        if let Some(s) = self.sockets.get_mut(socket) {
            // One on another socket, whose associations have paths here, is reached through this
            // listener from now on.
            let here = |end: &Key| self.endpoints.get(*end).is_some_and(|e| e.socket == socket);
            s.ends.retain(|at, end| *at != (port, None) || here(end));
        }
        let end = left.or_else(|| self.open_endpoint(cx, socket, (at, port), profile, true));
        let Some(end) = end else {
            self.tidy_socket(cx, socket);
            self.tie(cx, layers);
            return Err(Self::cannot(ErrorKind::AddrInUse));
        };
        let Some(e) = self.endpoints.get_mut(end) else { return Err(AttemptError::NoAddress) };
        e.listener = Some((listener, request.clone()));
        e.endpoint.set_accept(true);
        e.endpoint.set_reserved(false);
        if below == PacketLayer::Udp {
            self.join_beside(end, listener, guest);
        }
        Ok(end)
    }

    /// A listener has an endpoint more: what belongs to another one of its own may come here, too.
    fn join_beside(&mut self, end: Key, listener: Key, guest: Option<Key>) {
        let Some(port) = self.endpoints.get(end).map(|e| e.endpoint.port()) else { return };
        let of =
            |e: &SctpEndpoint| e.endpoint.port() == port && e.listener.as_ref().is_some_and(|(l, _)| *l == listener);
        let others: Vec<Key> = self.endpoints.iter().filter(|(k, e)| *k != end && of(e)).map(|(k, _)| k).collect();
        for other in others.into_iter().chain(guest) {
            for (one, another) in [(end, other), (other, end)] {
                if let Some(e) = self.endpoints.get_mut(one).filter(|e| !e.beside.contains(&another)) {
                    e.beside.push(another);
                }
            }
        }
    }

    /// Where a listener's endpoint is: our address, and the SCTP port.
    pub(crate) fn listening_addr<N: Net>(&self, cx: &Context<N>, end: Key) -> Result<SocketAddr, AttemptError> {
        let e = self.endpoints.get(end).ok_or(AttemptError::NoAddress)?;
        let s = self.sockets.get(e.socket).ok_or(AttemptError::NoAddress)?;
        let bound = cx.net.local_addr(s.sock).map_err(AttemptError::Net)?;
        Ok(SocketAddr::new(e.at.unwrap_or(bound.ip()), e.endpoint.port()))
    }

    /// The UDP port of a listener's endpoint, if there is UDP under it.
    pub(crate) fn udp_port<N: Net>(&self, cx: &Context<N>, end: Key) -> Option<u16> {
        let s = self.sockets.get(self.endpoints.get(end)?.socket)?;
        if s.below == PacketLayer::Ip {
            return None;
        }
        Some(cx.net.local_addr(s.sock).ok()?.port())
    }

    /// The layer below a listener's endpoint, if there is one.
    pub(crate) fn layer_below(&self, end: Key) -> Option<Key> {
        self.sockets.get(self.endpoints.get(end)?.socket)?.layer
    }

    /// Tries the socket of a new listener: no event is promised before that.
    pub(crate) fn poll_endpoint<N: Net>(&mut self, cx: &mut Context<N>, end: Key) {
        if let Some(socket) = self.endpoints.get(end).map(|e| e.socket) {
            self.socket_readable(cx, socket);
        }
    }

    /// An endpoint no longer accepts; it lives on for the associations that it has.
    pub(crate) fn stop_listening<N: Net>(&mut self, cx: &mut Context<N>, end: Key) {
        if let Some(e) = self.endpoints.get_mut(end) {
            e.endpoint.set_accept(false);
            // The next listener at the port may be another program's.
            let below = self.sockets.get(e.socket).map(|s| s.below);
            e.endpoint.set_reserved(below == Some(PacketLayer::Ip));
            e.listener = None;
            if e.is_unused() {
                // The next listener at this port is not to wait.
                self.endpoint_over(cx, end);
            }
        }
    }

    /// A peer has opened an association: its listener takes it, or refuses it.
    pub(super) fn accepted<N: Net>(&mut self, cx: &Context<N>, end: Key, id: AssociationId) {
        let Some(e) = self.endpoints.get_mut(end) else { return };
        let Some((listener, request)) = e.listener.clone() else { return e.endpoint.release(id) };
        let Some((route, port)) = e.endpoint.peer(id) else { return };
        let (mux, route) = (is_mux(e, id), route.remote);
        let remote = SocketAddr::new(route.ip(), port);
        let parts = Parts { remote, route, request, remotes: Arc::default(), client: false };
        let key = self.insert(cx, (end, id), parts);
        if let Some(a) = self.associations.get_mut(key) {
            a.mux = mux;
            a.open_theirs(0);
        }
        self.events.push_back(CarrierEvent::Incoming { session: SessionId::Sctp(key), listener });
    }

    /// The listener of an association has no room for it.
    pub(crate) fn turn_away<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(a) = self.associations.get_mut(key) else { return };
        (a.lost, a.over) = (Some(CloseReason::Aborted), true);
        let (end, id) = (a.end, a.id);
        if let Some(e) = self.endpoints.get_mut(end).filter(|e| e.associations.get(&id) == Some(&key)) {
            e.endpoint.abort(id, b"no room");
        }
        self.tidy(cx, key);
        self.mark_dirty(end);
    }

    /// The listener of an association has taken it, for this group.
    pub(crate) fn set_group(&mut self, key: Key, group: Key) {
        let Some(a) = self.associations.get_mut(key) else { return };
        a.group = Some(group);
        if a.over {
            self.report_lost(key);
        }
    }

    /// The next stream that the peer has opened and that is not taken yet.
    pub(crate) fn accept_stream(&mut self, key: Key) -> Option<OpenedStream> {
        let a = self.associations.get_mut(key).filter(|a| a.connected)?;
        let flow = FlowId::Sctp { sctp: key, stream: a.take_theirs()? };
        Some(OpenedStream { flow, stack: a.stack, request: a.request.clone(), remotes: a.remotes.clone() })
    }

    /// Opens a stream of an association for a new member of its group, which waits if there is no
    /// number for it.
    pub(crate) fn open_stream(&mut self, key: Key, direction: Direction) -> Result<OpenedStream, EstablishmentError> {
        let refuse = |why: &str| Err(EstablishmentError::new(Reason::InvalidConfiguration, why));
        let over = || EstablishmentError::new(Reason::EstablishmentFailed, "the SCTP association is over");
        match self.associations.get(key) {
            Some(a) if a.connected && a.lost.is_none() && a.mux => {}
            Some(a) if a.lost.is_none() => return refuse("the peer gives the streams of the association no meaning"),
            _ => return Err(over()),
        }
        if direction == Direction::One {
            return refuse("this transport has no one-way streams");
        }
        // Until the peer has closed one.
        let waits = FlowId::SctpPending { sctp: key };
        let flow = self.free_stream(key).map_or(waits, |stream| FlowId::Sctp { sctp: key, stream });
        let a = self.associations.get(key).ok_or_else(over)?;
        Ok(OpenedStream { flow, stack: a.stack, request: a.request.clone(), remotes: a.remotes.clone() })
    }

    /// Opens a stream at a number of ours that none has: taken in turn, so that the peer has long
    /// forgotten the last use of it.
    pub(crate) fn free_stream(&mut self, key: Key) -> Option<u32> {
        let a = self.associations.get_mut(key)?;
        let (out, inbound) = self.endpoints.get(a.end)?.endpoint.streams(a.id);
        let count = out.min(inbound);
        let first = u16::from(!a.client);
        let numbers = count.saturating_sub(first).div_ceil(2);
        for _ in 0..numbers {
            let stream = if a.next_stream >= count { first } else { a.next_stream };
            a.next_stream = stream.saturating_add(2);
            if !a.numbers.contains_key(&stream) {
                return Some(a.open(stream));
            }
        }
        None
    }
}

/// Whether both sides give the streams of an association our meaning.
fn is_mux(end: &SctpEndpoint, id: AssociationId) -> bool {
    end.endpoint
        .agreed(id)
        .is_some_and(|(x, adaptation)| x.interleaving && x.reconfiguration && adaptation == Some(ADAPTATION))
}
