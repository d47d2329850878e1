//! Listeners.

use crate::carrier::channel::Channel;
use crate::carrier::ids::CarrierTimer;
use crate::carrier::peer::Peer;
use crate::carrier::{Begun, Owner, SessionId};
use crate::closing::ABORTED;
use crate::config::Refusal;
use crate::conn::{Conn, ConnectionState, Conns};
use crate::context::ACCEPT_BUDGET;
use crate::context::HANDSHAKE_TIMEOUT;
use crate::establish::paths::interface_index;
use crate::event::{AttemptError, ConnectionError, EstablishmentError, Event, Reason};
use crate::eviction::{HASTE, biggest, source, who_makes_room};
use crate::framer_handshake::HandOver;
use crate::listen::Listener;
use crate::listen::accept::gave_up;
use crate::queue::ReceivedDatagram;
use crate::timer::Timer;
use crate::{ConnectionId, Engine, ListenerId, LocalEndpoint, Request, Stack};
use core::time::Duration;
use neater_base::net::{ErrorKind, Net, NetError};
use neater_base::{Instant, Key};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

impl<N: Net> Engine<N> {
    /// Listens on every local endpoint with every stack that the request allows; all share one port
    /// number per endpoint. Where two stacks need the same kind of port (TCP and TLS, QUIC and
    /// UDP), the better ranked one gets it.
    ///
    /// # Errors
    /// [`Reason::InvalidConfiguration`] without a local endpoint; [`Reason::EstablishmentFailed`]
    /// when a port cannot be bound, and which. Nothing stays open then.
    pub fn listen(&mut self, request: &Request, local: &[LocalEndpoint]) -> Result<ListenerId, EstablishmentError> {
        self.own_to_establish()?;
        self.cx.now = self.cx.net.now();
        if local.is_empty() {
            return Err(EstablishmentError::new(
                Reason::InvalidConfiguration,
                "a listener needs a local endpoint (LocalEndpoint::new() is any address and a free port)",
            ));
        }
        for stack in &request.0.stacks {
            if !request.0.setups.may_listen(*stack) {
                return Err(EstablishmentError::new(
                    Reason::InvalidConfiguration,
                    format!("the request was not compiled for listening: {stack} has no server configuration"),
                ));
            }
        }
        let listener = self.listeners.insert(Listener {
            request: request.clone(),
            listening: Vec::new(),
            addrs: Vec::new(),
            limit: None,
            handshaking: 0,
            groups: false,
            backlog: crate::backlog::Backlog::default(),
            accept_armed: None,
        });
        for l in local {
            if let Err(e) = self.listen_on(listener, l) {
                self.close_listener(listener);
                return Err(e);
            }
        }
        self.poll_listener(listener);
        Ok(ListenerId(listener))
    }

    /// Tries every socket of a new listener once: no event is promised before that.
    pub(crate) fn poll_listener(&mut self, listener: Key) {
        for at in self.listeners.get(listener).map(|l| l.listening.clone()).unwrap_or_default() {
            self.cx.connections = self.conns.len();
            if let Some(socket) = self.carriers.poll_listening(&mut self.cx, at) {
                self.accept(listener, socket);
            }
            self.drain_carriers();
        }
    }

    pub(crate) fn listen_on(&mut self, listener: Key, local: &LocalEndpoint) -> Result<(), EstablishmentError> {
        let interface = match &local.interface {
            None => None,
            Some(name) => Some(interface_index(self.cx.net.interfaces(), name).ok_or_else(|| {
                EstablishmentError::new(
                    Reason::InvalidConfiguration,
                    format!("there is no interface `{name}` on this host"),
                )
            })?),
        };
        let ips: Vec<IpAddr> = match local.addr {
            Some(a) if a != IpAddr::V6(Ipv6Addr::UNSPECIFIED) => vec![a],
            _ => vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()],
        };
        let wildcard = ips.len() > 1;
        for attempt in 1.. {
            let before = self.listeners.get(listener).map_or((0, 0), |l| (l.listening.len(), l.addrs.len()));
            match self.listen_all(listener, &ips, (local.port, local.encapsulation_port), interface, wildcard) {
                Ok(()) => return Ok(()),
                // The port that the system chose for one protocol is taken for another: choose
                // again.
                Err((_, AttemptError::Net(e)))
                    if local.port == 0 && e.kind == ErrorKind::AddrInUse && attempt < PORT_TRIES =>
                {
                    self.unlisten(listener, before);
                }
                Err((at, e)) => {
                    let why = format!("cannot listen on {at}: {e}");
                    return Err(EstablishmentError::new(Reason::EstablishmentFailed, why));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn listen_all(
        &mut self,
        listener: Key,
        ips: &[IpAddr],
        (port, encapsulation_port): (u16, Option<u16>),
        interface: Option<u32>,
        wildcard: bool,
    ) -> Result<(), (String, AttemptError)> {
        let Some(request) = self.listeners.get(listener).map(|l| l.request.0.clone()) else { return Ok(()) };
        let mut port = port;
        let mut taken = Vec::new();
        for stack in &request.stacks {
            match stack.ports() {
                Some(ports) if taken.contains(&ports) => continue,
                ports => taken.extend(ports),
            }
            let mut opened = 0;
            for ip in ips {
                let addr = SocketAddr::new(*ip, port);
                match self.listen_one(listener, *stack, (addr, encapsulation_port), interface, &request) {
                    Ok(actual) => {
                        opened += 1;
                        port = actual.port();
                        if let Some(l) = self.listeners.get_mut(listener) {
                            l.addrs.push((*stack, actual));
                        }
                    }
                    // A host without IPv6 (or IPv4) can still listen on what it has, and what only
                    // one family can do is done there.
                    Err(AttemptError::Net(e))
                        if wildcard
                            && (opened > 0 || *ip != ips[ips.len() - 1])
                            && matches!(
                                e.kind,
                                ErrorKind::FamilyNotSupported | ErrorKind::AddrNotAvailable | ErrorKind::Unsupported
                            ) => {}
                    Err(e) => {
                        let below = stack.encapsulation_port(encapsulation_port);
                        let below = below.map_or_else(String::new, |port| format!(" (UDP port {port})"));
                        return Err((format!("{addr}{below}"), e));
                    }
                }
            }
        }
        Ok(())
    }

    pub(crate) fn listen_one(
        &mut self,
        listener: Key,
        stack: Stack,
        addr: (SocketAddr, Option<u16>),
        interface: Option<u32>,
        request: &Arc<crate::request::Compiled>,
    ) -> Result<SocketAddr, AttemptError> {
        let at = self.carriers.open_listening(&mut self.cx, listener, stack, addr, interface, request)?;
        if let Some(l) = self.listeners.get_mut(listener) {
            l.listening.push(at);
        }
        self.carriers.listening_addr(&self.cx, at)
    }

    pub(crate) fn unlisten(&mut self, listener: Key, (sockets, addrs): (usize, usize)) {
        let Some(l) = self.listeners.get_mut(listener) else { return };
        l.addrs.truncate(addrs);
        for at in l.listening.split_off(sockets) {
            self.carriers.stop_listening(&mut self.cx, at);
        }
    }

    /// Where a listener listens.
    #[must_use]
    pub fn listener_addrs(&self, listener: ListenerId) -> Vec<(Stack, SocketAddr)> {
        self.listeners.get(listener.0).map(|l| l.addrs.clone()).unwrap_or_default()
    }

    /// The UDP ports at which a listener takes SCTP.
    #[must_use]
    pub fn listener_udp_ports(&self, listener: ListenerId) -> Vec<u16> {
        let listening = self.listeners.get(listener.0).map(|l| &l.listening[..]).unwrap_or_default();
        listening.iter().filter_map(|at| self.carriers.encapsulation_port(&self.cx, *at)).collect()
    }

    /// How many connections the listener may still deliver; `None`: any number. At zero,
    /// connections wait in the kernel.
    pub fn set_new_connection_limit(&mut self, listener: ListenerId, limit: Option<u64>) {
        self.cx.now = self.cx.net.now();
        let Some(l) = self.listeners.get_mut(listener.0) else { return };
        l.limit = limit;
        if limit != Some(0) {
            self.deliver_again(listener.0);
        }
    }

    /// The listener may deliver again: takes what has waited.
    pub(crate) fn deliver_again(&mut self, listener: Key) {
        self.accept_again(listener);
        for session in self.sessions_of(listener) {
            self.accept_streams(session);
            self.accept_datagrams(session);
        }
    }

    /// The sessions that came to this listener.
    pub(crate) fn sessions_of(&self, listener: Key) -> Vec<SessionId> {
        let of = |(_, group): &(SessionId, Key)| self.group_listener(*group) == Some(ListenerId(listener));
        self.carriers.grouped_sessions().filter(of).map(|(session, _)| session).collect()
    }

    /// The listener of these is gone: what they have not delivered yet is refused, and those of
    /// which nothing was are over.
    pub(crate) fn refuse_undelivered(&mut self, sessions: &[SessionId]) {
        for session in sessions {
            self.accept_streams(*session);
            let group = self.carriers.group_of(*session).and_then(|g| self.groups.get(g));
            if group.is_some_and(|g| !g.claimed && g.members.is_empty()) {
                // What has arrived is thrown away: the peer is not to take it for delivered.
                self.end_session(*session, Some(ABORTED));
            }
        }
    }

    /// Where the transport has streams, deliver groups ([`Event::GroupReceived`]) instead of one
    /// connection per stream.
    pub fn deliver_groups(&mut self, listener: ListenerId, groups: bool) {
        if let Some(l) = self.listeners.get_mut(listener.0) {
            l.groups = groups;
        }
    }

    /// Stops listening. Connections and groups that were delivered go on. Those in their handshake
    /// are dropped, and so are streams that were not delivered yet, and sessions without any that
    /// was.
    pub fn stop(&mut self, listener: ListenerId) {
        if self.listeners.contains(listener.0) {
            // Sessions end with it, and repeat that for a while from now on.
            self.cx.now = self.cx.net.now();
            self.close_listener(listener.0);
            self.notify_listener(listener.0, Event::Stopped);
        }
    }

    pub(crate) fn close_listener(&mut self, listener: Key) {
        self.unlisten(listener, (0, 0));
        let sessions = self.sessions_of(listener);
        self.listeners.remove(listener);
        self.refuse_undelivered(&sessions);
        self.carriers.abort_undelivered(&mut self.cx, listener);
    }

    /// Hands a received connection to its listener.
    pub(crate) fn deliver_incoming(&mut self, listener: Key, conn: Key) {
        self.deliver(conn, HandOver::Listener(listener));
    }

    /// Whether the listener may deliver nothing now.
    pub(crate) fn is_full(&self, listener: Key) -> bool {
        self.listeners.get(listener).is_some_and(|l| l.limit == Some(0) || l.backlog.is_full())
    }

    /// One more of what the listener may deliver is delivered.
    pub(crate) fn count_received(&mut self, listener: Key) {
        if let Some(l) = self.listeners.get_mut(listener) {
            l.count_received(self.cx.limits.untaken);
        }
    }

    /// As `enter_established`, for connections whose establishment another event reports.
    pub(crate) fn enter_established_quietly(&mut self, conn: Key) {
        self.cx.stats.established += 1;
        let Some(c) = self.conns.get_mut(conn) else { return };
        c.state = ConnectionState::Established;
        if c.request.rates != (None, None) {
            self.begin_rates(conn);
        }
        let Some(c) = self.conns.get_mut(conn) else { return };
        if c.framed() {
            // The framer's first output.
            self.flush_and_report(conn);
        }
        let Some(c) = self.conns.get_mut(conn) else { return };
        if c.flow.ends_by_silence() {
            let timeout = c.request.idle_timeout.unwrap_or(PEER_TIMEOUT);
            let now = self.cx.now;
            let cold = c.cold();
            cold.idle_timeout = Some(timeout);
            cold.last_activity = now;
            cold.idle_armed = true;
            self.cx.timers.push(now + timeout, Timer::Idle(conn));
        }
    }

    pub(crate) fn accept_again(&mut self, listener: Key) {
        let Some(l) = self.listeners.get_mut(listener) else { return };
        l.accept_armed = None;
        for at in l.listening.clone() {
            if let Some(socket) = self.carriers.accepts_at(at) {
                self.accept(listener, socket);
            }
        }
    }

    /// Accepts what waits, within the budget and the limits.
    pub(crate) fn accept(&mut self, listener: Key, key: Key) {
        if let Some(e) = self.take_refused(key) {
            return self.cannot_accept(listener, e);
        }
        let mut crowd = None;
        for round in 0.. {
            let Some(c) = self.carriers.sockets.channels.get(key) else { return };
            if !c.accepts() {
                return;
            }
            let Some(l) = self.listeners.get(listener) else { return };
            if l.limit == Some(0) || l.backlog.is_full() {
                return;
            }
            // Those in their handshake will be delivered, too: they count against the limit.
            let limited = l.limit.is_some_and(|n| n <= l.handshaking as u64);
            let mut crowded = None;
            if limited || l.handshaking >= self.cx.limits.handshakes {
                match self.evict_handshake(listener, None) {
                    Ok(()) => {}
                    Err(Some(at)) => {
                        // Asked once: a crowd does not come and go within one turn.
                        match *crowd.get_or_insert_with(|| self.crowd(listener)) {
                            Some(source) if !limited => crowded = Some((at, source)),
                            _ => return self.delay_accept(listener, at - self.cx.now),
                        }
                    }
                    Err(None) => return,
                }
            }
            let Some(l) = self.listeners.get(listener) else { return };
            if self.conns.len() >= self.cx.limits.connections {
                // Whose end will make room is not known: look again.
                return self.delay_accept(listener, ACCEPT_RETRY);
            }
            if round >= ACCEPT_BUDGET {
                self.cx.again = true;
                return self.arm_accept(listener, Duration::ZERO);
            }
            if crowded.is_none() && l.backlog.has_waiting() {
                if let Some(waited) = self.has_waited(listener) {
                    self.begin_handshake(listener, waited);
                }
                continue;
            }
            if let Some((at, crowd)) = crowded
                && let Err(again) = self.make_room_to_wait(listener, crowd)
            {
                return self
                    .arm_accept(listener, again.map_or(at, |again| again.min(at)).saturating_since(self.cx.now));
            }
            let accepted = match crowded {
                Some((_, crowd)) => self.accept_of_many(listener, key, crowd),
                None => self.accept_next(listener, key),
            };
            match accepted {
                Ok(()) => {}
                Err(e) if e.is_would_block() => {
                    if let Some(c) = self.carriers.sockets.channels.get_mut(key) {
                        c.readable = false;
                    }
                    if let Some((at, _)) = crowded {
                        self.arm_accept(listener, at.saturating_since(self.cx.now));
                    }
                    return;
                }
                Err(e) if gave_up(&e) => {}
                Err(e) => return self.cannot_accept(listener, e),
            }
        }
    }

    /// Accepts one connection, and delivers it or begins its handshake.
    #[inline]
    pub(crate) fn accept_next(&mut self, listener: Key, key: Key) -> Result<(), NetError> {
        if self.cx.config.fast_path
            && self.carriers.sockets.accepts_plainly(key)
            && self.listeners.get(listener).is_some_and(Listener::takes_sockets)
        {
            return fast_path!(self).accept(listener, key);
        }
        let (channel, _) = self.carriers.sockets.accept_from(&mut self.cx, listener, key)?;
        self.begin_handshake(listener, channel);
        Ok(())
    }

    /// The handshake begins of a connection that was accepted.
    pub(crate) fn begin_handshake(&mut self, listener: Key, channel: Key) {
        if !self.listeners.contains(listener) {
            return;
        }
        match self.carriers.sockets.begin_handshake(&mut self.cx, channel) {
            Begun::Complete(session) => drop(self.accepted(session, listener)),
            Begun::Open => {
                self.count_handshake(listener, channel);
                self.carriers.sockets.advance_incoming(&mut self.cx, channel);
                // What it is bounded by counts before the next is accepted.
                self.drain_carriers();
            }
            Begun::Failed => {}
        }
    }

    /// A session that carries one connection is up at a listener, which takes it. `None`: one of
    /// them is gone.
    pub(crate) fn accepted(&mut self, session: SessionId, listener: Key) -> Option<Key> {
        let l = self.listeners.get(listener)?;
        let (stack, _) = self.carriers.describe(session)?;
        let mut c = Conn::new(l.request.0.clone(), Arc::default(), self.cx.now);
        (c.stack, c.passive) = (Some(stack), true);
        let conn = self.conns.insert(c);
        let (flow, superseded) = self.carriers.accept(&mut self.cx, session, conn);
        if let Some(c) = self.conns.get_mut(conn) {
            c.flow = flow;
        }
        if let Some(superseded) = superseded {
            self.fail_connection(superseded, ConnectionError::Net(ErrorKind::ConnectionReset.into()));
        }
        self.deliver_incoming(listener, conn);
        Some(conn)
    }

    /// Reports the error that keeps a listener from accepting, once for each time that it tries
    /// again.
    #[cold]
    pub(crate) fn cannot_accept(&mut self, listener: Key, error: NetError) {
        if matches!(error.kind, ErrorKind::TooManyFiles | ErrorKind::NoBuffers) {
            self.note_shortage();
        }
        if self.arm_accept_once(listener, ACCEPT_RETRY) {
            self.notify_listener(listener, Event::ListenerError(error));
        }
    }

    /// Accepts one connection while one source, `crowd`, holds most of the room: it takes the place
    /// of one of that source's, or waits.
    #[cold]
    pub(crate) fn accept_of_many(&mut self, listener: Key, key: Key, crowd: IpAddr) -> Result<(), NetError> {
        let (channel, remote) = self.carriers.sockets.accept_from(&mut self.cx, listener, key)?;
        // The crowd's own never displace one of their own, and cost no look at all that there are.
        if crate::eviction::source(remote.ip()) != crowd && self.evict_handshake(listener, Some(remote.ip())).is_ok() {
            self.begin_handshake(listener, channel);
        } else {
            self.cx.timers.push(self.cx.now + HANDSHAKE_TIMEOUT, CarrierTimer::channel(channel));
            self.wait_for_handshake(listener, channel);
        }
        Ok(())
    }

    /// Leaves what waits in the kernel, because a limit was reached.
    pub(crate) fn delay_accept(&mut self, listener: Key, after: Duration) {
        if self.arm_accept_once(listener, after) {
            self.cx.stats.refusals.delays += 1;
        }
    }

    pub(crate) fn arm_accept(&mut self, listener: Key, after: Duration) {
        self.arm_accept_once(listener, after);
    }

    /// Sets the deadline to accept again, unless an earlier one is set. True: none was.
    pub(crate) fn arm_accept_once(&mut self, listener: Key, after: Duration) -> bool {
        let Some(l) = self.listeners.get_mut(listener) else { return false };
        let at = self.cx.now + after;
        if l.accept_armed.is_some_and(|armed| armed <= at) {
            return false;
        }
        let is_first = l.accept_armed.replace(at).is_none();
        self.cx.timers.push(at, Timer::Accept(listener));
        is_first
    }

    pub(crate) fn handshake_over(&mut self, listener: Key) {
        let full = self.cx.limits.handshakes;
        let Some(l) = self.listeners.get_mut(listener) else { return };
        let was_full = l.handshaking >= full || l.limit.is_some_and(|n| n <= l.handshaking as u64);
        l.handshaking = l.handshaking.saturating_sub(1);
        if was_full {
            self.cx.again = true;
            self.arm_accept(listener, Duration::ZERO);
        }
    }

    /// Reports a connection that a listener delivers.
    #[inline]
    pub(crate) fn report_received(&mut self, listener: Key, conn: Key) {
        self.cx.stats.received += 1;
        self.count_received(listener);
        self.notices.push_received(ListenerId(listener), ConnectionId(conn));
    }

    /// A datagram has come from a peer to a shared socket: one of a new peer makes a connection.
    pub(crate) fn on_peer_datagram(&mut self, listener: Key, (socket, peer): (Key, Peer), datagram: ReceivedDatagram) {
        let (peer, full, flow, stack) = match self.carriers.sockets.owner(&self.cx, socket, peer) {
            Some(Owner::Conn(conn)) => {
                if self.queue_datagram(conn, datagram) {
                    self.arrived(conn);
                }
                return;
            }
            Some(Owner::New { peer, full, flow, stack }) => (peer, full, flow, stack),
            None => return,
        };
        let Some(l) = self.listeners.get(listener) else { return };
        let refused = if l.limit == Some(0) || l.backlog.is_full() {
            Some(Refusal::Untaken)
        } else if full {
            Some(Refusal::Peer)
        } else {
            (self.conns.len() >= self.cx.limits.connections).then_some(Refusal::Connection)
        };
        if let Some(what) = refused {
            self.cx.stats.unclaimed_datagrams += 1;
            return self.cx.stats.refuse(what);
        }
        let mut c = Conn::new(l.request.0.clone(), Arc::default(), self.cx.now);
        (c.stack, c.passive, c.flow) = (Some(stack), true, flow);
        c.cold().peer = Some(peer);
        let conn = self.conns.insert(c);
        self.carriers.sockets.bind_peer(socket, peer, conn);
        self.queue_datagram(conn, datagram);
        self.deliver_incoming(listener, conn);
    }

    /// The program has taken what a listener has delivered ([`crate::Event::ConnectionReceived`],
    /// [`crate::Event::GroupReceived`]): there is room for another one. The driver of an engine
    /// calls this once for each.
    pub fn taken(&mut self, listener: ListenerId) {
        let max = self.cx.limits.untaken;
        let Some(l) = self.listeners.get_mut(listener.0) else { return };
        l.backlog.untaken = l.backlog.untaken.saturating_sub(1);
        if l.backlog.full && l.backlog.untaken <= max / 4 * 3 {
            l.backlog.full = false;
            self.cx.now = self.cx.net.now();
            self.deliver_again(listener.0);
        }
    }

    /// A handshake begins.
    pub(crate) fn count_handshake(&mut self, listener: Key, key: Key) {
        let Some(l) = self.listeners.get_mut(listener) else { return };
        l.handshaking += 1;
        l.backlog.handshakes.push_back(key);
        if l.backlog.handshakes.len() > 2 * l.handshaking + 64 {
            let (channels, conns) = (&self.carriers.sockets.channels, &self.conns);
            l.backlog.handshakes.retain(|k| channels.get(*k).is_some_and(|c| is_handshaking(conns, c, listener)));
        }
    }

    /// The source that holds more than half of the room for handshakes, if there is one.
    pub(crate) fn crowd(&self, listener: Key) -> Option<IpAddr> {
        let l = self.listeners.get(listener)?;
        let (channels, conns) = (&self.carriers.sockets.channels, &self.conns);
        let all = l.backlog.handshakes.iter().filter_map(|k| channels.get(*k));
        let sources = all.filter(|c| is_handshaking(conns, c, listener)).map(|c| source(c.remote.ip()));
        biggest(sources).filter(|(_, n)| *n > (self.cx.limits.handshakes / 2).max(1)).map(|(source, _)| source)
    }

    /// Makes room for one more that waits for its handshake to begin: where as many wait as may,
    /// the crowd's oldest goes, if it has had [`PATIENCE`]. `Err`: when it will have had it.
    pub(crate) fn make_room_to_wait(&mut self, listener: Key, crowd: IpAddr) -> Result<(), Option<Instant>> {
        let l = self.listeners.get_mut(listener).ok_or(None)?;
        let channels = &self.carriers.sockets.channels;
        let waiting = |k: &Key| channels.get(*k).filter(|c| c.awaits_handshake());
        // They end in the order in which they came.
        while l.backlog.waiting.front().is_some_and(|k| waiting(k).is_none()) {
            l.backlog.waiting.pop_front();
        }
        if l.backlog.waiting.len() < self.cx.limits.handshakes {
            return Ok(());
        }
        let of_crowd = |k: &Key| waiting(k).is_some_and(|c| source(c.remote.ip()) == crowd);
        let at = l.backlog.waiting.iter().position(of_crowd).ok_or(None)?;
        let since = l.backlog.waiting.get(at).and_then(waiting).ok_or(None)?.started;
        if self.cx.now < since + PATIENCE {
            return Err(Some(since + PATIENCE));
        }
        if l.backlog.waiting.remove(at).is_some_and(|k| self.carriers.sockets.abort_channel(&mut self.cx, k)) {
            self.cx.stats.refuse(Refusal::NotBegun);
        }
        Ok(())
    }

    /// A connection waits for its handshake to begin.
    pub(crate) fn wait_for_handshake(&mut self, listener: Key, key: Key) {
        if let Some(l) = self.listeners.get_mut(listener) {
            l.backlog.waiting.push_back(key);
        }
    }

    /// The connection that has waited longest for its handshake to begin.
    pub(crate) fn has_waited(&mut self, listener: Key) -> Option<Key> {
        let waiting = &mut self.listeners.get_mut(listener)?.backlog.waiting;
        let channels = &self.carriers.sockets.channels;
        core::iter::from_fn(|| waiting.pop_front()).find(|k| channels.get(*k).is_some_and(Channel::awaits_handshake))
    }

    /// Makes room for another handshake, `from` there if that is known, by giving up one that has
    /// had its time, or is one too many of its source. `Err`: when the oldest will have had it.
    pub(crate) fn evict_handshake(&mut self, listener: Key, from: Option<IpAddr>) -> Result<(), Option<Instant>> {
        let l = self.listeners.get_mut(listener).ok_or(None)?;
        let (channels, conns) = (&self.carriers.sockets.channels, &self.conns);
        let is_one = |k: &Key| channels.get(*k).filter(|c| is_handshaking(conns, c, listener));
        while l.backlog.handshakes.front().is_some_and(|k| is_one(k).is_none()) {
            l.backlog.handshakes.pop_front();
        }
        let oldest = l.backlog.handshakes.front().and_then(is_one).ok_or(None)?.started;
        if from.is_none() && self.cx.now < oldest + HASTE {
            return Err(Some(oldest + HASTE));
        }
        let all = l.backlog.handshakes.iter().filter_map(|k| Some((*k, is_one(k)?)));
        let victim = who_makes_room(all.map(|(k, c)| (k, c.remote.ip(), c.started)), from, self.cx.now);
        let victim = victim.ok_or(Some(oldest + HASTE))?;
        l.backlog.handshakes.retain(|k| *k != victim);
        self.cx.stats.refuse(Refusal::Handshake);
        tracing::debug!(target: "neater::listen", "a slow handshake made room for others");
        match self.carriers.sockets.channels.get(victim).and_then(|c| c.used_by.conn()) {
            Some(conn) => self.framer_handshake_failed(conn, &ConnectionError::TimedOut),
            None => {
                self.carriers.sockets.abort_channel(&mut self.cx, victim);
                if let Some(l) = self.listeners.get_mut(listener) {
                    l.handshaking = l.handshaking.saturating_sub(1);
                }
            }
        }
        Ok(())
    }
}

/// A peer of a socket that several share, whose protocol has no end, is forgotten when for this
/// long neither it nor the program has sent anything, unless the program set another time, which is
/// the peer's alone.
const PEER_TIMEOUT: Duration = Duration::from_secs(120);

/// Ports tried when every protocol must get the same free one.
const PORT_TRIES: usize = 16;

/// A listener without descriptors tries again after this long.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// How long a connection that waits for its handshake to begin is kept, although others wait behind
/// it that may come from elsewhere. The handshakes of a room of honest clients take less than that,
/// and those of the next room begin.
const PATIENCE: Duration = Duration::from_millis(100);

/// Whether a channel is one of a listener's that shake hands: itself, or the framer of its
/// connection.
fn is_handshaking(conns: &Conns, channel: &Channel, listener: Key) -> bool {
    match channel.used_by.conn() {
        Some(conn) => conns.get(conn).is_some_and(Conn::is_framer_handshaking),
        None => channel.used_by.listener() == Some(listener),
    }
}
