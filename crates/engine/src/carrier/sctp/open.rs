//! Associations that are opened, by us in a race or by a peer at a listener, and the streams that both open on them.

use super::wire::{ADAPTATION, PPID_DATA};
use super::{Below, Profile, Sctp, SctpEnd};
use crate::carrier::dispatch::Due;
use crate::carrier::event::CarrierEvent;
use crate::carrier::session::OpenedStream;
use crate::carrier::{FlowId, SctpCarrier, SessionId};
use crate::config::Refusal;
use crate::context::Context;
use crate::event::{AttemptError, EstablishmentError, Event, Reason};
use crate::greeting::HandOver;
use crate::ids::GroupId;
use crate::request::{Compiled, keep_alive};
use crate::{Engine, RemoteEndpoint, Stack};
use core::time::Duration;
use neater_base::net::{ErrorKind, Net, SocketOptions};
use neater_base::{Instant, Key};
use neater_property::{Preference, Role, SelectionProperty as P};
use neater_quic::Direction;
use neater_race::CandidateId;
use neater_sctp::{AssociationId, CloseReason, ConnectError, LayerId, Route, Scheduler, SendOptions, StreamId};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

/// How many endpoints of a socket are looked at for one that can take another association, before a new one is made.
const ENDS_ASKED: usize = 8;
/// A program that asks for keep-alives wants to know when nobody answers them: after so many times their interval.
const UNANSWERED: u32 = 3;
/// And not sooner than this: between two of them there is a retransmission timeout more (RFC 9260 section 8.3).
const SILENCE: Duration = Duration::from_secs(10);

/// Where an association is to lead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct There<'a> {
    pub(crate) below: Below,
    /// With the SCTP port.
    pub(crate) addr: SocketAddr,
    /// Where there is UDP below.
    pub(crate) udp_port: u16,
    /// Who the peer has to be, where there is DTLS below.
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
    Profile {
        mtu,
        heartbeats: properties.preference(P::KeepAlive, role) >= Preference::NoPreference,
        keep_alive: keep_alive(properties, role),
        scheduler,
    }
}

/// What the scheduler makes of `connPriority`, of which 100 is the default and less goes first: a weight, where it weighs.
pub(super) fn value_of(scheduler: Scheduler, priority: u32) -> u16 {
    match scheduler {
        Scheduler::WeightedFair => (10_000 / priority.clamp(1, 10_000)) as u16,
        _ => u16::try_from(priority).unwrap_or(u16::MAX),
    }
}

impl SctpCarrier {
    /// The race gives an attempt that it has withdrawn until then to be answered.
    pub(crate) fn put_on_trial<N: Net>(&mut self, cx: &mut Context<N>, key: Key, due: Instant) -> bool {
        let there = self.associations.get_mut(key).filter(|a| !a.over);
        let is_there = there.is_some();
        if let Some(a) = there {
            a.on_trial = true;
            cx.timers.push(due.max(cx.now), Due::SctpTrial(key).into());
            // The timer of the withdrawal is before that.
            a.started = due;
        }
        is_there
    }
}

impl<N: Net> Engine<N> {
    /// Begins an attempt: INIT leaves with the next turn.
    pub(crate) fn sctp_connect(
        &mut self,
        conn: Key,
        candidate: Option<CandidateId>,
        there: There<'_>,
        request: &Arc<Compiled>,
        options: &SocketOptions,
    ) -> Result<Key, AttemptError> {
        let There { below, addr, udp_port, .. } = there;
        // A UDP socket that is not connected does not tell that there is no route until it sends.
        let addr = crate::establish::with_scope(addr, options.interface);
        if !self.may_have_route(addr) {
            return Err(Self::sctp_cannot(ErrorKind::NetworkUnreachable));
        }
        // With the scope of a link-local address.
        let mut route = super::socket::peer_address(addr);
        route.set_port(if below == Below::Ip { 0 } else { udp_port });
        let end = self.sctp_client_end(There { addr, ..there }, route, request, options)?;
        let now = self.cx.now;
        let Some(e) = self.carriers.sctp.endpoints.get_mut(end) else { return Err(AttemptError::NoAddress) };
        let to = Route { layer: LayerId(0), remote: route };
        let id = e.endpoint.connect(now, addr.port(), &[to]).map_err(|e| match e {
            ConnectError::Exists => Self::sctp_cannot(ErrorKind::AddrInUse),
            ConnectError::TooMany => Self::sctp_cannot(ErrorKind::NoBuffers),
            _ => Self::sctp_cannot(ErrorKind::InvalidInput),
        })?;
        let c = self.conns.get(conn);
        let remotes = c.map(|c| c.remotes.clone()).unwrap_or_default();
        // It goes with the COOKIE ECHO chunk (RFC 9260 section 5.1), or not at all if the attempt is withdrawn before.
        let first = c.and_then(|c| c.ext.as_ref()).and_then(|x| x.early.clone());
        let first = first.filter(|d| !d.is_empty() && !request.framer.frames());
        let early = match (first, self.carriers.sctp.endpoints.get_mut(end)) {
            (Some(data), Some(e)) => {
                let options = SendOptions { ppid: PPID_DATA, ..SendOptions::default() };
                // The endpoint keeps it until it is acknowledged, and the program may own it.
                let data = bytes::Bytes::copy_from_slice(&data);
                e.endpoint.send(id, StreamId(0), data, options).is_ok()
            }
            _ => false,
        };
        let key = self.insert_sctp(end, id, addr, route, request.clone(), remotes, true);
        if let Some(a) = self.carriers.sctp.associations.get_mut(key) {
            a.attempt = Some((conn, candidate));
            a.early = early;
            // What the peer says before the race is decided is for whom wins.
            a.open(0);
        }
        self.mark_sctp(end);
        Ok(key)
    }

    /// An endpoint on a socket for this way that has no association with the peer yet.
    fn sctp_client_end(
        &mut self,
        There { below, addr, name, .. }: There<'_>,
        route: SocketAddr,
        request: &Arc<Compiled>,
        options: &SocketOptions,
    ) -> Result<Key, AttemptError> {
        // Associations share a socket unless the socket itself was asked to be special.
        let plain = options.local.is_none() && options.set.is_empty() && options.temporary_address.is_none();
        let at = options.local.map(|l| l.ip()).filter(|ip| below == Below::Ip && !ip.is_unspecified());
        let sharing = (addr.is_ipv6(), options.interface, request.isolation);
        let shared = self.carriers.sctp.client_sockets.iter().find(|(of, _)| plain && *of == sharing).map(|(_, k)| *k);
        let socket = match shared.filter(|_| below == Below::Udp) {
            _ if below == Below::Ip => self.sctp_ip_socket(addr, options)?,
            _ if below == Below::Dtls => self.open_sctp_session((route, name), request, options)?,
            Some(k) => k,
            None => {
                let k = self.open_sctp_socket(addr, options, below, false)?;
                if plain {
                    self.carriers.sctp.client_sockets.push((sharing, k));
                }
                // Nothing can have come yet, but no event is promised before it was tried.
                self.sctp_socket_readable(k);
                k
            }
        };
        let mtu = self.sctp_mtu(options.local.map(|l| l.ip()), Some(addr.ip()));
        let profile = profile(request, Role::Initiate, mtu);
        let ends = self.carriers.sctp.sockets.get(socket).map(|s| s.ends.values().copied().collect::<Vec<_>>());
        let free = |e: &SctpEnd| {
            e.profile == profile && e.at == at && e.listener.is_none() && !self.is_sctp_peer(e, addr.port())
        };
        let found = ends
            .into_iter()
            .flatten()
            .take(ENDS_ASKED)
            .find(|k| self.carriers.sctp.endpoints.get(*k).is_some_and(free));
        match found.or_else(|| self.open_sctp_end(socket, (at, 0), profile, None)) {
            Some(end) => Ok(end),
            None => {
                self.tidy_sctp_socket(socket);
                Err(Self::sctp_cannot(ErrorKind::AddrNotAvailable))
            }
        }
    }

    /// Whether an endpoint has an association with this SCTP port of anybody. Two endpoints have one association at most (RFC 9260
    /// section 1.3), and two addresses may be of one host: the second would be taken for a restart of the first.
    fn is_sctp_peer(&self, end: &SctpEnd, port: u16) -> bool {
        end.associations
            .values()
            .any(|k| self.carriers.sctp.associations.get(*k).is_none_or(|a| a.remote.port() == port))
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of an association")]
    fn insert_sctp(
        &mut self,
        end: Key,
        id: AssociationId,
        remote: SocketAddr,
        route: SocketAddr,
        request: Arc<Compiled>,
        remotes: Arc<[RemoteEndpoint]>,
        client: bool,
    ) -> Key {
        let socket = self.carriers.sctp.endpoints.get(end).map(|e| e.socket);
        let stack = socket.and_then(|s| self.carriers.sctp.sockets.get(s)).map_or(Stack::Sctp, |s| s.below.stack());
        let dtls = socket.and_then(|s| self.sctp_session(s, route));
        if let Some(path) = dtls {
            self.carriers.layers().join(path);
        }
        let key = self.carriers.sctp.associations.insert(Sctp {
            stack,
            dtls,
            end,
            id,
            client,
            remote,
            route,
            connected: !client,
            answered: !client,
            mux: false,
            lost: None,
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
            listed: false,
            resetting: false,
            reports: BTreeMap::new(),
            held: 0,
            told: 0,
            blocked: false,
            share: usize::MAX,
            turn: 0,
            reserved: 0,
            fed: 0,
            next_stream: u16::from(!client),
            send_buffer: self.cx.limits.send_buffer,
            request,
            remotes,
            early: false,
            started: self.cx.now,
        });
        let now = self.cx.now;
        let patience = self.carriers.sctp.associations.get(key).and_then(|a| a.request.properties.connection.timeout);
        if let Some(e) = self.carriers.sctp.endpoints.get_mut(end) {
            e.associations.insert(id, key);
            if patience.is_some() {
                e.endpoint.set_patience(id, patience);
            }
            if let Some(every) = e.profile.keep_alive {
                e.endpoint.set_silence(now, id, Some((every * UNANSWERED).max(SILENCE)));
            }
        }
        key
    }

    /// INIT ACK has come. The COOKIE ECHO chunk, which makes the peer keep state, leaves after this: not for an attempt that was
    /// withdrawn.
    pub(super) fn sctp_reachable(&mut self, key: Key) {
        let now = self.cx.now;
        let Some(a) = self.carriers.sctp.associations.get_mut(key) else { return };
        a.answered = true;
        let (attempt, stack, rtt) = (a.attempt, a.stack, now - a.started);
        match attempt {
            // The answer to the client's hello was the first.
            Some(_) if stack == Stack::SctpDtls => {}
            Some((conn, _)) => self.carriers.sctp.events.push_back(CarrierEvent::Reachable {
                attempt: conn,
                session: SessionId::Sctp(key),
                rtt,
            }),
            None => self.sctp_trial_passed(key),
        }
    }

    pub(super) fn sctp_connected(&mut self, key: Key) {
        let Some(a) = self.carriers.sctp.associations.get_mut(key) else { return };
        a.connected = true;
        a.mux = self.carriers.sctp.endpoints.get(a.end).is_some_and(|e| is_mux(e, a.id));
        if let Some((conn, _)) = a.attempt {
            self.carriers
                .sctp
                .events
                .push_back(CarrierEvent::Established { attempt: conn, session: SessionId::Sctp(key) });
        }
    }

    /// An attempt is not wanted any more. Before its peer has answered, nothing was sent that it keeps; what it answers later finds
    /// nobody, unless the race wants to know of it.
    pub(crate) fn sctp_abandon(&mut self, key: Key) {
        let Some(a) = self.carriers.sctp.associations.get_mut(key) else { return };
        a.attempt = None;
        if a.stack == Stack::SctpDtls {
            // The handshake of its session does not go on: it would make the peer keep state.
            let end = a.end;
            self.sctp_drop(key);
            return self.sctp_end_over(end);
        }
        if a.lost.is_none() && a.answered {
            self.sctp_drop(key);
        } else if a.lost.is_none() {
            // The race may still give it a trial; if it has not by then, it is dropped.
            a.lost = Some(CloseReason::Aborted);
            self.cx.timers.push(self.cx.now, Due::SctpTrial(key).into());
        }
        self.tidy_sctp(key);
    }

    /// The time of a withdrawn attempt is up.
    pub(crate) fn sctp_trial_over(&mut self, key: Key) {
        let Some(a) = self.carriers.sctp.associations.get_mut(key) else { return };
        if a.on_trial && a.started > self.cx.now {
            return;
        }
        if core::mem::take(&mut a.on_trial) {
            self.carriers.sctp.events.push_back(CarrierEvent::NoAnswer { session: SessionId::Sctp(key) });
        }
        self.sctp_drop(key);
    }

    /// A withdrawn attempt was answered: it was not silent, and is not needed.
    pub(super) fn sctp_trial_passed(&mut self, key: Key) {
        let Some(a) = self.carriers.sctp.associations.get_mut(key) else { return };
        if core::mem::take(&mut a.on_trial) {
            self.carriers.sctp.events.push_back(CarrierEvent::LateAnswer { session: SessionId::Sctp(key) });
        }
        self.sctp_drop(key);
    }

    /// Forgets an association that no connection has used. A peer that may know of it is told.
    fn sctp_drop(&mut self, key: Key) {
        let Some(a) = self.carriers.sctp.associations.get_mut(key).filter(|a| a.attempt.is_none() && !a.is_used())
        else {
            return;
        };
        a.lost.get_or_insert(CloseReason::Aborted);
        a.over = true;
        let end = a.end;
        self.tidy_sctp(key);
        self.mark_sctp(end);
    }

    /// The connection is carried by this association from now on.
    pub(crate) fn sctp_won(&mut self, conn: Key, key: Key) {
        let group = self.carry_group(conn, SessionId::Sctp(key));
        let Some(a) = self.carriers.sctp.associations.get_mut(key) else { return };
        a.attempt = None;
        a.group = Some(group);
        a.next_stream = 2;
        let early = core::mem::take(&mut a.early);
        let stream = a.numbers.get(&0).copied().unwrap_or_else(|| a.open(0));
        if let Some(c) = self.conns.get_mut(conn) {
            c.flow = FlowId::Sctp { sctp: key, stream };
        }
        self.sctp_bind(key, stream, conn);
        if early {
            self.first_was_taken(conn);
        }
    }

    /// What the peer sent while the race was being decided.
    pub(crate) fn sctp_begin(&mut self, key: Key) {
        let before = self.carriers.sctp.associations.get_mut(key).and_then(|a| a.before.take());
        self.sctp_take(key);
        if let Some(before) = before {
            self.sctp_reset_came(key, before.streams.into_iter());
            if before.shutdown {
                self.sctp_shutdown_came(key);
            }
            self.sctp_end_streams(key);
            if before.closed {
                self.sctp_closed(key, CloseReason::Shutdown);
                return self.tidy_sctp(key);
            }
        }
        self.mark_sctp_of(key);
    }

    /// Listens at an SCTP port of a socket, which several listeners of this engine may share.
    pub(crate) fn sctp_listen(
        &mut self,
        listener: Key,
        (below, port): (Below, u16),
        options: &SocketOptions,
        request: &Arc<Compiled>,
    ) -> Result<Key, AttemptError> {
        let Some(addr) = options.local else { return Err(AttemptError::NoAddress) };
        let same = |s: &super::SctpSocket| s.server && s.below == below && s.options == *options && addr.port() != 0;
        let shared = self.carriers.sctp.sockets.iter().find(|(_, s)| same(s)).map(|(k, _)| k);
        let at = Some(addr.ip()).filter(|ip| below == Below::Ip && !ip.is_unspecified());
        let socket = match shared {
            _ if below == Below::Ip => self.sctp_ip_socket(addr, options)?,
            // Its clients are shown the certificate of one listener.
            _ if below == Below::Dtls => self.listen_sctp_sessions(listener, addr, request, options)?,
            Some(k) => k,
            None => self.open_sctp_socket(addr, options, below, true)?,
        };
        let mtu = self.sctp_mtu(Some(addr.ip()), None);
        let profile = profile(request, Role::Listen, mtu);
        // A listener that has stopped may have left its port with connections on it.
        let left = self.carriers.sctp.sockets.get(socket).and_then(|s| s.ends.get(&(port, at)).copied());
        let left = left.filter(|k| self.carriers.sctp.endpoints.get(*k).is_some_and(|e| e.listener.is_none()));
        let end = left.or_else(|| self.open_sctp_end(socket, (at, port), profile, Some(listener)));
        let Some(end) = end else {
            self.tidy_sctp_socket(socket);
            return Err(Self::sctp_cannot(ErrorKind::AddrInUse));
        };
        let Some(e) = self.carriers.sctp.endpoints.get_mut(end) else { return Err(AttemptError::NoAddress) };
        e.listener = Some(listener);
        e.endpoint.set_accept(true);
        e.endpoint.set_reserved(false);
        Ok(end)
    }

    /// Tries the socket of a new listener: no event is promised before that.
    pub(crate) fn sctp_poll_end(&mut self, end: Key) {
        if let Some(socket) = self.carriers.sctp.endpoints.get(end).map(|e| e.socket) {
            self.sctp_socket_readable(socket);
        }
    }

    /// An endpoint no longer accepts; it lives on for the associations that it has.
    pub(crate) fn release_sctp_listener(&mut self, end: Key) {
        if let Some(e) = self.carriers.sctp.endpoints.get_mut(end) {
            e.endpoint.set_accept(false);
            // The next listener at the port may be another program's.
            let below = self.carriers.sctp.sockets.get(e.socket).map(|s| s.below);
            e.endpoint.set_reserved(below == Some(Below::Ip));
            e.listener = None;
            if e.is_unused() {
                // Whoever listens next at this port is not to wait.
                self.sctp_end_over(end);
            }
        }
    }

    /// A peer has opened an association.
    pub(super) fn sctp_accepted(&mut self, end: Key, id: AssociationId) {
        let Some(e) = self.carriers.sctp.endpoints.get_mut(end) else { return };
        let listener = e.listener.and_then(|l| self.listeners.get(l).map(|x| (l, x)));
        let Some((listener, l)) = listener else { return e.endpoint.release(id) };
        let full = l.backlog.is_full() || l.limit == Some(0);
        if full || self.conns.len() >= self.cx.limits.connections {
            // The program takes nothing, and no kernel keeps this for it.
            self.cx.stats.refuse(if full { Refusal::Untaken } else { Refusal::Connection });
            e.endpoint.abort(id, b"no room");
            e.endpoint.release(id);
            return;
        }
        let (request, groups) = (l.request.0.clone(), l.groups);
        let Some((route, port)) = e.endpoint.peer(id) else { return };
        let remote = SocketAddr::new(route.remote.ip(), port);
        let mux = is_mux(e, id);
        let key = self.insert_sctp(end, id, remote, route.remote, request, Arc::default(), false);
        self.sctp_fit_session(key);
        let group = self.new_group(Some(SessionId::Sctp(key)), Some(listener));
        if let Some(a) = self.carriers.sctp.associations.get_mut(key) {
            a.group = Some(group);
            a.mux = mux;
            a.open_theirs(0);
        }
        if groups {
            self.claim_group(group);
            self.count_received(listener);
            self.notify_listener(listener, Event::GroupReceived(GroupId(group)));
        }
        self.sctp_accept(key);
    }

    /// Makes connections of the streams that the peer has opened.
    pub(crate) fn sctp_accept(&mut self, key: Key) {
        loop {
            let Some(a) = self.carriers.sctp.associations.get(key).filter(|a| a.connected && !a.unaccepted.is_empty())
            else {
                return;
            };
            let Some(group) = a.group else { return };
            if self.is_group_full(group) {
                // They wait where they are until the program has taken some.
                return;
            }
            let claimed = self.groups.get(group).is_some_and(|g| g.claimed);
            let listener = self.group_listener(group);
            if !claimed && listener.is_some_and(|l| self.is_full(l.0)) {
                // They wait where they are until the limit is raised.
                return;
            }
            let limit = a.request.properties.connection.group_conn_limit;
            let unwanted = !claimed && listener.is_none() && !a.client;
            if !unwanted && limit.is_some_and(|limit| self.peers_streams(group) >= limit as usize) {
                return;
            }
            let Some(stream) = self.carriers.sctp.associations.get_mut(key).and_then(Sctp::take_theirs) else { return };
            // Nobody will ever take it: a server whose listener is gone, or no room for another connection.
            if unwanted || self.conns.len() >= self.cx.limits.connections {
                self.sctp_refuse_stream(key, stream);
                self.cx.stats.refuse(Refusal::Stream);
                continue;
            }
            let Some(conn) = self.sctp_conn(key, stream) else { return };
            self.deliver(conn, HandOver::Group(group));
            self.sctp_tell(key, stream);
            // It may have waited longer than the association existed: what has arrived can be
            // read, and nothing follows it.
            let over = self.carriers.sctp.associations.get(key).filter(|a| a.over).and_then(|a| a.lost.clone());
            if let Some(reason) = over {
                self.sctp_member_lost(conn, &reason);
            }
        }
    }
}

impl SctpCarrier {
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
        if s.below == Below::Ip {
            return None;
        }
        Some(cx.net.local_addr(s.sock).ok()?.port())
    }

    /// The packet layer below a listener's endpoint, if that is not a socket of its own.
    pub(crate) fn layer_below(&self, end: Key) -> Option<Key> {
        self.sockets.get(self.endpoints.get(end)?.socket)?.layer
    }

    /// Opens a stream of an association for a new member of its group, which waits if there is no number for it.
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

    /// Opens a stream at a number of ours that none has: taken in turn, so that the peer has long forgotten the last use of it.
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
fn is_mux(end: &SctpEnd, id: AssociationId) -> bool {
    end.endpoint
        .agreed(id)
        .is_some_and(|(x, adaptation)| x.interleaving && x.reconfiguration && adaptation == Some(ADAPTATION))
}
