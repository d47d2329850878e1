//! Listeners (RFC 9622 section 7.2, RFC 9623 section 4.7).

mod accept;
mod peers;

pub(crate) use accept::{ACCEPT_BUDGET, gave_up};

use crate::carrier::SessionId;
use crate::carrier::listen::Listening;
use crate::conn::ConnectionState;
use crate::event::{AttemptError, EstablishmentError, Event, Reason};
use crate::greeting::HandOver;
use crate::terminate::ABORTED;
use crate::timer::Timer;
use crate::{Engine, ListenerId, LocalEndpoint, Request, Stack};
use core::time::Duration;
use neater_base::net::{ErrorKind, Net};
use neater_base::{Instant, Key};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// A listener: sockets of every eligible protocol on every eligible address.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) request: Request,
    /// Where it listens, in the order in which it began to.
    pub(crate) listening: Vec<Listening>,
    pub(crate) addrs: Vec<(Stack, SocketAddr)>,
    /// How many connections may still be delivered (RFC 9622 section 7.2, SetNewConnectionLimit).
    pub(crate) limit: Option<u64>,
    /// Connections whose handshake is not finished.
    pub(crate) handshaking: usize,
    /// Groups are delivered instead of connections where the transport has streams.
    pub(crate) groups: bool,
    /// What waits for the program, or for its peer.
    pub(crate) backlog: crate::backlog::Backlog,
    /// A deadline to accept again is set: one is enough, however many sockets want it.
    accept_armed: Option<Instant>,
}

/// An incoming connection must have finished its handshake after this long.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// A peer of a socket that several share, whose protocol has no end, is forgotten when for this long neither it nor the program
/// has sent anything, unless the program set another time, which is the peer's alone.
const PEER_TIMEOUT: Duration = Duration::from_secs(120);
/// Ports tried when every protocol must get the same free one.
const PORT_TRIES: usize = 16;

/// The unspecified address of the family of `like`, with a port.
pub(crate) fn any_like(like: IpAddr, port: u16) -> SocketAddr {
    match like {
        IpAddr::V4(_) => SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port),
        IpAddr::V6(_) => SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port),
    }
}

impl<N: Net> Engine<N> {
    /// Listens on every local endpoint with every stack that the request allows; all share one port number per endpoint.
    /// Where two stacks need the same kind of port (TCP and TLS, QUIC and UDP), the better ranked one gets it.
    ///
    /// # Errors
    /// [`Reason::InvalidConfiguration`] without a local endpoint; [`Reason::EstablishmentFailed`] when a port cannot be
    /// bound, and which. Nothing stays open then.
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
    fn poll_listener(&mut self, listener: Key) {
        for at in self.listeners.get(listener).map(|l| l.listening.clone()).unwrap_or_default() {
            self.cx.connections = self.conns.len();
            if let Some(socket) = self.carriers.poll_listening(&mut self.cx, at) {
                self.accept(listener, socket);
            }
            self.drain_carriers();
        }
    }

    fn listen_on(&mut self, listener: Key, local: &LocalEndpoint) -> Result<(), EstablishmentError> {
        let interface = match &local.interface {
            None => None,
            Some(name) => Some(self.interface_index(name).ok_or_else(|| {
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
                // The port that the system chose for one protocol is taken for another: choose again.
                Err((_, AttemptError::Net(e)))
                    if local.port == 0 && e.kind == ErrorKind::AddrInUse && attempt < PORT_TRIES =>
                {
                    self.unlisten(listener, before);
                }
                Err((at, e)) => {
                    return Err(EstablishmentError::new(
                        Reason::EstablishmentFailed,
                        format!("cannot listen on {at}: {e}"),
                    ));
                }
            }
        }
        Ok(())
    }

    fn listen_all(
        &mut self,
        listener: Key,
        ips: &[IpAddr],
        (port, encapsulation_port): (u16, Option<u16>),
        interface: Option<u32>,
        wildcard: bool,
    ) -> Result<(), (SocketAddr, AttemptError)> {
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
                    // A host without IPv6 (or IPv4) can still listen on what it has, and what only one family can do is done there.
                    Err(AttemptError::Net(e))
                        if wildcard
                            && (opened > 0 || *ip != ips[ips.len() - 1])
                            && matches!(
                                e.kind,
                                ErrorKind::FamilyNotSupported | ErrorKind::AddrNotAvailable | ErrorKind::Unsupported
                            ) => {}
                    Err(e) => return Err((addr, e)),
                }
            }
        }
        Ok(())
    }

    fn listen_one(
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

    fn unlisten(&mut self, listener: Key, (sockets, addrs): (usize, usize)) {
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

    /// How many connections the listener may still deliver; `None`: any number. At zero, connections wait in the kernel.
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
    fn sessions_of(&self, listener: Key) -> Vec<SessionId> {
        let of = |(_, group): &(SessionId, Key)| self.group_listener(*group) == Some(ListenerId(listener));
        self.carriers.grouped_sessions().filter(of).map(|(session, _)| session).collect()
    }

    /// The listener of these is gone: what they have not delivered yet is refused, and those of which nothing was are over.
    fn refuse_undelivered(&mut self, sessions: &[SessionId]) {
        for session in sessions {
            self.accept_streams(*session);
            let group = self.carriers.group_of(*session).and_then(|g| self.groups.get(g));
            if group.is_some_and(|g| !g.claimed && g.members.is_empty()) {
                // What has arrived is thrown away: the peer is not to take it for delivered.
                self.end_session(*session, Some(ABORTED));
            }
        }
    }

    /// Where the transport has streams, deliver groups ([`Event::GroupReceived`]) instead of one connection per stream.
    pub fn deliver_groups(&mut self, listener: ListenerId, groups: bool) {
        if let Some(l) = self.listeners.get_mut(listener.0) {
            l.groups = groups;
        }
    }

    /// Stops listening. Connections and groups that were delivered go on. Those in their handshake are dropped, and so are streams that
    /// were not delivered yet, and sessions without any that was.
    pub fn stop(&mut self, listener: ListenerId) {
        if self.listeners.contains(listener.0) {
            // Sessions end with it, and repeat that for a while from now on.
            self.cx.now = self.cx.net.now();
            self.close_listener(listener.0);
            self.notify_listener(listener.0, Event::Stopped);
        }
    }

    fn close_listener(&mut self, listener: Key) {
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

    /// As `enter_established`, for connections whose being established is told by another event.
    pub(crate) fn enter_established_quietly(&mut self, conn: Key) {
        self.cx.stats.established += 1;
        let Some(c) = self.conns.get_mut(conn) else { return };
        c.state = ConnectionState::Established;
        if c.request.rates != (None, None) {
            self.begin_rates(conn);
        }
        let Some(c) = self.conns.get_mut(conn) else { return };
        if c.framed() {
            // What the framer said first.
            self.flush_and_report(conn);
        }
        let Some(c) = self.conns.get_mut(conn) else { return };
        if c.flow.ends_by_silence() {
            let timeout = c.request.idle_timeout.unwrap_or(PEER_TIMEOUT);
            let now = self.cx.now;
            let ext = c.ext();
            ext.idle_timeout = Some(timeout);
            ext.last_activity = now;
            ext.idle_armed = true;
            self.cx.timers.push(now + timeout, Timer::Idle(conn));
        }
    }
}
