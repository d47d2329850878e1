//! Listeners (RFC 9622 section 7.2, RFC 9623 section 4.7).

mod accept;
mod shared;

pub(crate) use accept::gave_up;

use crate::carrier::channel::{Behind, Channel, Kind};
use crate::carrier::dispatch::CarrierSocket;
use crate::carrier::sctp::Below;
use crate::carrier::{FlowId, SessionId};
use crate::config::Refusal;
use crate::conn::ConnectionState;
use crate::event::{AttemptError, EstablishmentError, Event, Reason};
use crate::greeting::HandOver;
use crate::terminate::ABORTED;
use crate::timer::Timer;
use crate::{Engine, ListenerId, LocalEndpoint, Request, Stack};
use core::time::Duration;
use neater_base::net::{ErrorKind, Net, SocketOptions};
use neater_base::{Instant, Key};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// A listener: sockets of every eligible protocol on every eligible address.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) request: Request,
    pub(crate) channels: Vec<Key>,
    /// What those of them were opened with that connections share, with the ports that they got.
    shared: Vec<(Key, SocketOptions)>,
    pub(crate) quic_sockets: Vec<Key>,
    pub(crate) sctp_ends: Vec<Key>,
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
/// A peer of a shared UDP socket is forgotten when for this long neither it nor the program has said anything, unless the program
/// set another time, which is the peer's alone.
const UDP_PEER_TIMEOUT: Duration = Duration::from_secs(120);
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
            channels: Vec::new(),
            shared: Vec::new(),
            quic_sockets: Vec::new(),
            sctp_ends: Vec::new(),
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
        let Some(l) = self.listeners.get(listener) else { return };
        let (channels, sockets) = (l.channels.clone(), l.quic_sockets.clone());
        for key in channels {
            match self.carriers.channels.get(key).map(|c| &c.kind) {
                Some(Kind::UdpShared(_)) => self.shared_ready(listener, key, false),
                Some(Kind::Dtls(_)) => self.dtls_readable(key),
                _ => self.accept(listener, key),
            }
        }
        for key in sockets {
            self.quic_socket_readable(key);
        }
        for end in self.listeners.get(listener).map(|l| l.sctp_ends.clone()).unwrap_or_default() {
            self.sctp_poll_end(end);
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
            let before = self
                .listeners
                .get(listener)
                .map_or((0, 0, 0, 0), |l| (l.channels.len(), l.quic_sockets.len(), l.addrs.len(), l.sctp_ends.len()));
            match self.listen_all(listener, &ips, (local.port, local.udp_port), interface, wildcard) {
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
        (port, udp_port): (u16, Option<u16>),
        interface: Option<u32>,
        wildcard: bool,
    ) -> Result<(), (SocketAddr, AttemptError)> {
        let Some(request) = self.listeners.get(listener).map(|l| l.request.0.clone()) else { return Ok(()) };
        let mut port = port;
        let (mut tcp_taken, mut udp_taken) = (false, false);
        for stack in &request.stacks {
            // SCTP has a UDP port of its own, or none.
            let taken = match stack {
                s if s.is_sctp() => &mut false,
                s if s.over_udp() => &mut udp_taken,
                _ => &mut tcp_taken,
            };
            if core::mem::replace(taken, true) {
                continue;
            }
            let mut opened = 0;
            for ip in ips {
                let addr = SocketAddr::new(*ip, port);
                match self.listen_one(listener, *stack, (addr, udp_port), interface, &request) {
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
        (addr, udp_port): (SocketAddr, Option<u16>),
        interface: Option<u32>,
        request: &Arc<crate::request::Compiled>,
    ) -> Result<SocketAddr, AttemptError> {
        let base = request.setups.socket_options(stack);
        // Engines that share a secret may share ports.
        let reuse_address = base.reuse_address || self.cx.config.shared_secret.is_some();
        let mut options = SocketOptions { interface, local: Some(addr), reuse_address, ..base.clone() };
        options.set.extend(request.setups.option_for_family(stack, addr.is_ipv4())?);
        if matches!(stack, Stack::Quic | Stack::QuicDatagram) {
            let key = match self.reopen_quic_socket(&options, listener, request)? {
                Some(key) => key,
                None => self.open_quic_socket(addr, &options, Some((listener, request)))?,
            };
            if let Some(l) = self.listeners.get_mut(listener) {
                l.quic_sockets.push(key);
            }
            let sock = self.carriers.quic.sockets.get(key).map(|s| s.sock).ok_or(AttemptError::NoAddress)?;
            return Ok(self.cx.net.local_addr(sock)?);
        }
        if let Some(below) = Below::of(stack) {
            let at = SocketAddr::new(addr.ip(), udp_port.unwrap_or(neater_sctp::UDP_PORT));
            let options = SocketOptions { local: Some(at), ..options };
            let (end, at) = self.sctp_listen(listener, (below, addr.port()), &options, request)?;
            if let Some(l) = self.listeners.get_mut(listener) {
                l.sctp_ends.push(end);
            }
            return Ok(at);
        }
        if stack.over_udp()
            && let Some(key) = self.reopen_shared(listener, stack, &options)
        {
            let sock = self.carriers.channels.get(key).map(|c| c.sock).ok_or(AttemptError::NoAddress)?;
            return Ok(self.cx.net.local_addr(sock)?);
        }
        let key = self.carriers.channels.next_key();
        let token = CarrierSocket::channel(key).token();
        let (sock, kind) = match stack {
            Stack::Udp => (self.cx.net.udp(token, addr, &options)?, Kind::UdpShared(Box::default())),
            Stack::Dtls => (self.cx.net.udp(token, addr, &options)?, Kind::Dtls(Box::default())),
            _ => (self.cx.net.listen(token, addr, &options)?, Kind::Accept),
        };
        let mut channel = Channel::new(sock, kind, Behind::Listener(listener), addr, self.cx.now);
        channel.connected = true;
        channel.writable = stack.over_udp();
        self.carriers.channels.insert(channel);
        if let Some(l) = self.listeners.get_mut(listener) {
            l.channels.push(key);
        }
        let local = self.cx.net.local_addr(sock)?;
        if let Some(l) = self.listeners.get_mut(listener).filter(|_| stack.over_udp()) {
            l.shared.push((key, SocketOptions { local: Some(local), ..options }));
        }
        Ok(local)
    }

    /// Listens again at a UDP socket that is there for the connections of a listener that has stopped, if there is one: another
    /// cannot have its port.
    fn reopen_shared(&mut self, listener: Key, stack: Stack, options: &SocketOptions) -> Option<Key> {
        let channels = &mut self.carriers.channels;
        self.carriers.left_behind.retain(|(key, _)| channels.contains(*key));
        let fits = |key: &Key| match channels.get(*key).map(|c| &c.kind) {
            Some(Kind::UdpShared(_)) => stack == Stack::Udp,
            Some(Kind::Dtls(_)) => stack == Stack::Dtls,
            _ => false,
        };
        let at = self.carriers.left_behind.iter().position(|(key, of)| of == options && fits(key))?;
        let (key, options) = self.carriers.left_behind.swap_remove(at);
        channels.get_mut(key)?.behind = Behind::Listener(listener);
        let l = self.listeners.get_mut(listener)?;
        l.channels.push(key);
        l.shared.push((key, options));
        Some(key)
    }

    fn unlisten(&mut self, listener: Key, keep: (usize, usize, usize, usize)) {
        let Some(l) = self.listeners.get_mut(listener) else { return };
        l.addrs.truncate(keep.2);
        let channels = l.channels.split_off(keep.0);
        let shared: Vec<_> = l.shared.extract_if(.., |(key, _)| channels.contains(key)).collect();
        let sockets = l.quic_sockets.split_off(keep.1);
        let ends = l.sctp_ends.split_off(keep.3);
        self.carriers.left_behind.retain(|(key, _)| self.carriers.channels.contains(*key));
        for key in channels {
            // Connections that were delivered go on: a shared socket is closed with the last of them.
            let kept = match self.carriers.channels.get(key).map(|c| &c.kind) {
                Some(Kind::UdpShared(peers)) => !peers.is_empty(),
                _ => self.dtls_stop_listening(key),
            };
            if kept {
                self.carriers.left_behind.extend(shared.iter().find(|(of, _)| *of == key).cloned());
                continue;
            }
            if let Some(c) = self.carriers.channels.remove(key) {
                self.cx.net.close(c.sock);
            }
        }
        for key in sockets {
            self.release_quic_listener(key);
        }
        for end in ends {
            self.release_sctp_listener(end);
        }
    }

    /// A QUIC socket no longer accepts; it lives on for the connections that it has. Handshakes that are under way are over: they
    /// were begun by this listener's rules, and another one may be at this socket before they end.
    fn release_quic_listener(&mut self, key: Key) {
        let shaking =
            self.carriers.quic.connections.iter().filter(|(_, q)| q.socket == key && q.shaking).map(|(k, _)| k);
        for quic in shaking.collect::<Vec<_>>() {
            self.quic_refuse(quic, Refusal::Untaken);
        }
        if let Some(s) = self.carriers.quic.sockets.get_mut(key) {
            neater_quic::EndpointApi::stop_accepting(&mut s.endpoint);
            s.listener = None;
        }
        self.tidy_quic_socket(key);
    }

    /// Where a listener listens.
    #[must_use]
    pub fn listener_addrs(&self, listener: ListenerId) -> Vec<(Stack, SocketAddr)> {
        self.listeners.get(listener.0).map(|l| l.addrs.clone()).unwrap_or_default()
    }

    /// The UDP ports at which a listener takes SCTP.
    #[must_use]
    pub fn listener_udp_ports(&self, listener: ListenerId) -> Vec<u16> {
        let ends = self.listeners.get(listener.0).map(|l| &l.sctp_ends[..]).unwrap_or_default();
        ends.iter().filter_map(|e| self.sctp_udp_port(*e)).collect()
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
        self.unlisten(listener, (0, 0, 0, 0));
        let sessions = self.sessions_of(listener);
        self.listeners.remove(listener);
        self.refuse_undelivered(&sessions);
        let unfinished: Vec<_> = self
            .carriers
            .channels
            .iter()
            .filter(|(_, c)| {
                c.behind == Behind::Listener(listener) && !matches!(c.kind, Kind::UdpShared(_) | Kind::Dtls(_))
            })
            .map(|(k, _)| k)
            .collect();
        for key in unfinished {
            if let Some(c) = self.carriers.channels.remove(key) {
                self.cx.net.abort(c.sock);
            }
        }
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
        if matches!(c.flow, FlowId::Peer { .. } | FlowId::Dtls { .. }) {
            let timeout = c.request.idle_timeout.unwrap_or(UDP_PEER_TIMEOUT);
            let now = self.cx.now;
            let ext = c.ext();
            ext.idle_timeout = Some(timeout);
            ext.last_activity = now;
            ext.idle_armed = true;
            self.cx.timers.push(now + timeout, Timer::Idle(conn));
        }
    }
}
