//! TCP in a host: ports, listeners, accept queues, and the way between connections and sockets.

use crate::host::{ConnEntry, Host, MAX_CONNECTIONS, MIN_MTU_V4, MIN_MTU_V6, Owner};
use crate::packet::{Body, Icmp, IcmpKind, Packet, ip_header};
use crate::sim::Sim;
use crate::socket::{Kind, Listener, Socket, Stream};
use crate::tcp::{Conn, Options, Segment, Seq, State, TcpConfig};
use crate::udp::queue_icmp;
use crate::world::HostId;
use neater_base::Key;
use neater_base::net::{ErrorKind, Ready, Sock, SocketOption, SocketOptions, Token};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

/// Connections that may wait to be accepted unless the listener says otherwise.
pub(crate) const DEFAULT_BACKLOG: u32 = 128;
/// The most that a listener can ask for (Linux: net.core.somaxconn).
pub(crate) const MAX_BACKLOG: u32 = 4096;
/// Handshakes that a listener has open at once; a SYN beyond is dropped.
pub(crate) const MAX_HALF_OPEN: usize = 1024;
/// Bounds of what `ReceiveBuffer` and `SendBuffer` may ask for, in bytes.
pub(crate) const BUFFER_RANGE: std::ops::RangeInclusive<usize> = 4096..=16 << 20;

/// Changes the options of a connection. False: not one of its options.
pub(crate) fn apply(options: &mut Options, option: SocketOption) -> bool {
    let bound = |n: usize| n.clamp(*BUFFER_RANGE.start(), *BUFFER_RANGE.end());
    match option {
        SocketOption::NoDelay(on) => options.no_delay = on,
        SocketOption::KeepAlive(idle) => options.keep_alive = idle,
        SocketOption::UserTimeout(limit) => options.user_timeout = limit,
        SocketOption::ReceiveBuffer(n) => options.receive_buffer = Some(bound(n)),
        SocketOption::SendBuffer(n) => options.send_buffer = Some(bound(n)),
        SocketOption::NotSentLowWater(n) => options.not_sent_low_water = Some(n.max(1)),
        _ => return false,
    }
    true
}

fn options_of(tcp: TcpConfig, set: &[SocketOption]) -> Options {
    let mut options = Options { tcp, ..Options::default() };
    for option in set {
        apply(&mut options, *option);
    }
    options
}

impl Sim {
    pub(crate) fn tcp_connect(
        &mut self,
        id: HostId,
        token: Token,
        remote: SocketAddr,
        options: &SocketOptions,
    ) -> Result<Sock, ErrorKind> {
        let now = self.now;
        self.host(id).check_room()?;
        let remote = SocketAddr::new(remote.ip(), remote.port());
        if remote.port() == 0 || remote.ip().is_unspecified() {
            return Err(ErrorKind::InvalidInput);
        }
        if let Some(local) = options.local {
            if local.is_ipv4() != remote.is_ipv4() {
                return Err(ErrorKind::InvalidInput);
            }
            self.host(id).check_local(local.ip())?;
        }
        let source = options.local.map(|l| l.ip());
        let found = self.lookup(id, remote.ip(), options.interface, source, options.temporary_address)?;
        let host = self.host(id);
        let taken = |h: &Host, port: u16| {
            let local = SocketAddr::new(found.source, port);
            h.pairs.contains_key(&(local, remote)) || !h.listener_fits(local, options.reuse_address)
        };
        let port = match options.local.map_or(0, |l| l.port()) {
            0 => host.ephemeral_port(|h, port| !taken(h, port))?,
            port if taken(host, port) => return Err(ErrorKind::AddrInUse),
            port => port,
        };
        let local = SocketAddr::new(found.source, port);
        let iss = initial_number(host);
        let multipath = options.multipath && host.multipath;
        let tcp = Options { multipath, ..options_of(host.tcp, &options.set) };
        let conn = Conn::connect(now, iss, found.mtu, ip_header(&remote.ip()), tcp);
        let stream = |conn| Socket::new(token, Kind::Stream(Stream { conn, local, connecting: true }));
        let key = host.sockets.insert(stream(host.conns.next_key()));
        let owner = Owner::Socket(key);
        let interface = options.interface;
        let conn = host.add_conn(ConnEntry::new(conn, (local, remote), interface, owner));
        for option in &options.set {
            if let (SocketOption::IcmpErrors(on), Some(socket)) = (option, host.sockets.get_mut(key)) {
                socket.wants_icmp = *on;
            }
        }
        self.settle(id, conn);
        Ok(Sock(key.to_bits()))
    }

    /// Opens a connection without a socket.
    pub(crate) fn open_conn(
        &mut self,
        id: HostId,
        own: IpAddr,
        remote: SocketAddr,
        options: Options,
        owner: Owner,
    ) -> Result<Key, ErrorKind> {
        let now = self.now;
        let found = self.lookup(id, remote.ip(), None, Some(own), None)?;
        let host = self.host(id);
        let free = |h: &Host, port: u16| {
            let local = SocketAddr::new(own, port);
            !h.pairs.contains_key(&(local, remote))
                && h.listener_fits(local, false)
                && !h.agent_ports.contains_key(&port)
        };
        let local = SocketAddr::new(own, host.ephemeral_port(free)?);
        let iss = initial_number(host);
        let conn = Conn::connect(now, iss, found.mtu, ip_header(&remote.ip()), options);
        Ok(host.add_conn(ConnEntry::new(conn, (local, remote), None, owner)))
    }

    pub(crate) fn tcp_listen(
        &mut self,
        id: HostId,
        token: Token,
        local: SocketAddr,
        options: &SocketOptions,
    ) -> Result<Sock, ErrorKind> {
        let host = self.host(id);
        host.check_room()?;
        host.check_local(local.ip())?;
        let reuse = options.reuse_address;
        let at = |port| SocketAddr::new(local.ip(), port);
        let free = |h: &Host, port| h.listener_fits(at(port), false) && !h.local_ports.contains_key(&port);
        let local = at(if local.port() == 0 { host.ephemeral_port(free)? } else { local.port() });
        if !host.listener_fits(local, reuse) {
            return Err(ErrorKind::AddrInUse);
        }
        // Without the option, connections of an earlier listener keep the port, those in TIME-WAIT too.
        let bound = host.pairs.keys().any(|(l, _)| {
            l.port() == local.port()
                && l.is_ipv4() == local.is_ipv4()
                && (local.ip().is_unspecified() || l.ip() == local.ip())
        });
        if bound && !reuse {
            return Err(ErrorKind::AddrInUse);
        }
        let listener = Listener {
            local,
            interface: options.interface,
            reuse,
            backlog: options.backlog.unwrap_or(DEFAULT_BACKLOG).min(MAX_BACKLOG) as usize,
            queue: VecDeque::new(),
            half_open: 0,
            options: Box::new(Options {
                multipath: options.multipath && host.multipath,
                ..options_of(host.tcp, &options.set)
            }),
        };
        let key = host.sockets.insert(Socket::new(token, Kind::Listener(Box::new(listener))));
        host.listeners.entry(local.port()).or_default().push(key);
        Ok(Sock(key.to_bits()))
    }

    pub(crate) fn tcp_accept(&mut self, id: HostId, key: Key, token: Token) -> Result<(Sock, SocketAddr), ErrorKind> {
        let host = self.host(id);
        let room = host.check_room();
        let socket = host.sockets.get_mut(key).ok_or(ErrorKind::NotConnected)?;
        let Kind::Listener(listener) = &mut socket.kind else { return Err(ErrorKind::InvalidInput) };
        let Some(conn) = listener.queue.front().copied() else {
            socket.watch.wants_read = true;
            return Err(ErrorKind::WouldBlock);
        };
        room?;
        listener.queue.pop_front();
        let entry = host.conns.get_mut(conn).ok_or(ErrorKind::ConnectionAborted)?;
        let (local, remote) = (entry.local, entry.remote);
        let stream = host.sockets.insert(Socket::new(token, Kind::Stream(Stream { conn, local, connecting: false })));
        entry.owner = Owner::Socket(stream);
        Ok((Sock(stream.to_bits()), remote))
    }

    /// Runs an application's call on a connection and all that follows from it.
    pub(crate) fn with_conn<T>(
        &mut self,
        id: HostId,
        sock: Key,
        call: impl FnOnce(&mut Conn) -> Result<T, ErrorKind>,
    ) -> Result<T, ErrorKind> {
        let host = self.host(id);
        let Some(Socket { kind: Kind::Stream(stream), .. }) = host.sockets.get(sock) else {
            return Err(ErrorKind::NotConnected);
        };
        let key = stream.conn;
        let entry = host.conns.get_mut(key).ok_or(ErrorKind::NotConnected)?;
        let result = call(&mut entry.conn);
        self.settle(id, key);
        result
    }

    /// Releases a socket of any kind.
    pub(crate) fn close(&mut self, id: HostId, sock: Key, abort: bool) {
        let now = self.now;
        let host = self.host(id);
        let Some(socket) = host.sockets.remove(sock) else { return };
        match socket.kind {
            Kind::Udp(udp) => Host::unlist(&mut host.udp_ports, udp.local.port(), sock),
            Kind::Stream(stream) => {
                if let Some(entry) = host.conns.get_mut(stream.conn) {
                    entry.owner = Owner::Nobody;
                    if abort { entry.conn.abort() } else { entry.conn.close(now) }
                }
                self.settle(id, stream.conn);
            }
            Kind::Listener(listener) => {
                Host::unlist(&mut host.listeners, listener.local.port(), sock);
                let waiting: Vec<Key> =
                    host.conns.iter().filter(|(_, e)| e.owner == Owner::Listener(sock)).map(|(k, _)| k).collect();
                for key in waiting {
                    if let Some(entry) = self.host(id).conns.get_mut(key) {
                        entry.owner = Owner::Nobody;
                        entry.conn.abort();
                    }
                    self.settle(id, key);
                }
            }
        }
    }

    /// A connection's deadline has passed.
    pub(crate) fn conn_timeout(&mut self, id: HostId, key: Key) {
        let now = self.now;
        if let Some(entry) = self.host(id).conns.get_mut(key) {
            let before = entry.conn.unanswered();
            entry.conn.on_timeout(now);
            if entry.conn.unanswered() > before.max(1) {
                self.move_on(id, key);
            }
            self.settle(id, key);
        }
    }

    /// A segment has arrived.
    pub(crate) fn tcp_input(&mut self, id: HostId, packet: &Packet, segment: &Segment) {
        let now = self.now;
        let (remote, local) = (packet.source, packet.destination);
        let opens = segment.syn && segment.ack.is_none() && !segment.rst;
        let host = self.host(id);
        let pair = (local, remote);
        if let Some(key) = host.conn_between(pair).or_else(|| host.join(pair, segment)) {
            if host.path_input(key, pair, segment) {
                self.settle(id, key);
                return;
            }
            let Some(entry) = host.conns.get_mut(key) else { return };
            // A new connection may take the place of one in TIME-WAIT (RFC 9293 section 3.6.1, MAY-2).
            let reopens = opens && entry.conn.state() == State::TimeWait && segment.seq > entry.conn.receive_next();
            if !reopens {
                self.conn_input(id, key, segment);
                return;
            }
            entry.conn.abort();
            self.settle(id, key);
        }
        let host = self.host(id);
        let target = if opens { find_listener(host, local, remote) } else { None };
        let service = opens && host.tcp_services.contains_key(&local.port());
        let agent = host.agent_ports.get(&local.port()).copied().filter(|_| opens);
        let mut options = Options { tcp: host.tcp, ..Options::default() };
        let owner = match (target, agent) {
            (Some(key), _) => {
                let Some(Socket { kind: Kind::Listener(listener), .. }) = host.sockets.get_mut(key) else { return };
                if listener.is_full() || listener.half_open >= MAX_HALF_OPEN {
                    return;
                }
                listener.half_open += 1;
                options = *listener.options;
                Owner::Listener(key)
            }
            (None, _) if service => Owner::Service(local.port()),
            (None, Some(agent)) => {
                let side = self.agents[agent as usize].side_at(id);
                options = self.agents[agent as usize].options[side as usize];
                Owner::Agent(agent, side)
            }
            (None, None) => {
                let reply = segment.reset_reply();
                // Without a way back there is nobody to answer.
                let _ = self.send_segments(id, local, remote, None, reply.into_iter().collect());
                return;
            }
        };
        let found = self.lookup(id, remote.ip(), None, Some(local.ip()), None);
        let host = self.host(id);
        let (Ok(found), true) = (found, host.conns.len() < MAX_CONNECTIONS) else {
            release_half_open(host, owner);
            return;
        };
        let iss = initial_number(host);
        let conn = Conn::accept(now, segment, iss, found.mtu, ip_header(&remote.ip()), options);
        let key = host.add_conn(ConnEntry::new(conn, (local, remote), None, owner));
        self.settle(id, key);
    }

    fn conn_input(&mut self, id: HostId, key: Key, segment: &Segment) {
        let now = self.now;
        let host = self.host(id);
        let Some(entry) = host.conns.get_mut(key) else { return };
        let listener = match entry.owner {
            Owner::Listener(l) => host.sockets.get_mut(l).map(|s| (l, &mut s.kind)),
            _ => None,
        };
        let was = entry.conn.was_established();
        let may_establish = !matches!(&listener, Some((_, Kind::Listener(l))) if l.is_full());
        entry.conn.on_segment(now, segment, may_establish);
        if let (Some((l, Kind::Listener(listener))), true) = (listener, !was && entry.conn.was_established()) {
            listener.half_open -= 1;
            listener.queue.push_back(key);
            host.wake_reader(l);
        }
        self.settle(id, key);
    }

    /// An ICMP error about a segment of ours has arrived.
    pub(crate) fn tcp_icmp(&mut self, id: HostId, icmp: Icmp, offender: IpAddr) {
        let now = self.now;
        let host = self.host(id);
        let quoted = icmp.quoted;
        let Some(key) = host.pairs.get(&(quoted.source, quoted.destination)).copied() else { return };
        let Some(entry) = host.conns.get_mut(key) else { return };
        if !quoted.seq.is_some_and(|seq| entry.conn.is_outstanding(seq)) {
            return;
        }
        // Linux queues errors for TCP while it connects, and none later: with the option, they become the socket's own error then.
        let opening = entry.conn.is_opening();
        let asked = matches!(entry.owner, Owner::Socket(s) if host.sockets.get(s).is_some_and(|s| s.wants_icmp));
        match icmp.kind {
            IcmpKind::TooBig { mtu } if quoted.source.is_ipv6() && mtu < MIN_MTU_V6 => return,
            IcmpKind::TooBig { mtu } => entry.conn.on_path_mtu(now, mtu.max(MIN_MTU_V4)),
            kind => entry.conn.on_unreachable(kind.error(quoted.source.is_ipv6()), asked),
        }
        if let Owner::Socket(sock) = entry.owner
            && opening
            && let Some(socket) = host.sockets.get_mut(sock)
            && queue_icmp(socket, icmp, offender)
        {
            host.wake(sock, Ready { error: true, ..Ready::default() });
        }
        self.settle(id, key);
    }

    // --- after anything has happened to a connection -------------------------------------------------------------------

    /// Lets everything follow that follows from a change of a connection: segments, readiness, its timer, its end.
    pub(crate) fn settle(&mut self, id: HostId, key: Key) {
        let Some(entry) = self.host(id).conns.get(key) else { return };
        match entry.owner {
            Owner::Service(_) => self.drive_service(id, key),
            Owner::Agent(agent, side) => self.drive_agent(id, key, agent, side),
            _ => {}
        }
        self.send_output(id, key);
        self.conn_changed(id.0, key);
        notify(self.host(id), key);
        self.reschedule(id, key);
        self.reap(id, key);
    }

    /// Sends what a connection has to send, by the way that its segments have taken as long as the world stands.
    fn send_output(&mut self, id: HostId, key: Key) {
        let version = self.version;
        loop {
            let Some(entry) = self.hosts[id.0].conns.get_mut(key) else { return };
            let Some(segment) = entry.conn.take_output() else { return };
            let (source, destination, interface) = (entry.local, entry.remote, entry.interface);
            let known = entry.route.as_ref().filter(|(v, _)| *v == version).map(|(_, route)| route.clone());
            let route = match known {
                Some(route) => route,
                None => match self.lookup(id, destination.ip(), interface, Some(source.ip()), None) {
                    Ok(found) => {
                        if let Some(entry) = self.hosts[id.0].conns.get_mut(key) {
                            entry.route = Some((version, found.route.clone()));
                        }
                        found.route
                    }
                    Err(_) if self.move_on(id, key) => {
                        // What was to leave by the other path is sent again when that is due.
                        continue;
                    }
                    Err(error) => {
                        if let Some(entry) = self.hosts[id.0].conns.get_mut(key) {
                            while entry.conn.take_output().is_some() {}
                            entry.conn.on_send_failure(error);
                        }
                        return;
                    }
                },
            };
            let ecn = segment.ecn;
            self.send_packet(Packet { source, destination, ecn, pieces: None, body: Body::Tcp(segment) }, route);
        }
    }

    fn send_segments(
        &mut self,
        id: HostId,
        source: SocketAddr,
        destination: SocketAddr,
        interface: Option<u32>,
        segments: Vec<Segment>,
    ) -> Result<(), ErrorKind> {
        let found = self.lookup(id, destination.ip(), interface, Some(source.ip()), None)?;
        for segment in segments {
            let ecn = segment.ecn;
            let packet = Packet { source, destination, ecn, pieces: None, body: Body::Tcp(segment) };
            self.send_packet(packet, found.route.clone());
        }
        Ok(())
    }

    /// Removes a closed connection from where it no longer belongs.
    fn reap(&mut self, id: HostId, key: Key) {
        let host = self.host(id);
        let Some(entry) = host.conns.get(key) else { return };
        if !entry.conn.is_closed() {
            return;
        }
        let owner = entry.owner;
        let waits_for_accept = matches!(owner, Owner::Listener(_)) && entry.conn.was_established();
        host.unmap(key);
        if matches!(owner, Owner::Socket(_)) || waits_for_accept {
            return;
        }
        release_half_open(host, owner);
        host.service_conns.remove(&key);
        let removed = host.conns.remove(key);
        if let (Owner::Agent(agent, side) | Owner::Finished(agent, side), Some(entry)) = (owner, removed) {
            self.agent_lost(agent, side, key, entry.conn.retransmits());
        }
    }
}

/// A random initial sequence number: RFC 9293 section 3.4.1 asks that it cannot be guessed.
fn initial_number(host: &mut Host) -> Seq {
    Seq(u64::from(host.rng.u32()) + 1)
}

fn release_half_open(host: &mut Host, owner: Owner) {
    if let Owner::Listener(l) = owner
        && let Some(Socket { kind: Kind::Listener(listener), .. }) = host.sockets.get_mut(l)
    {
        listener.half_open = listener.half_open.saturating_sub(1);
    }
}

/// Tells the owner of a connection what it has become ready for.
fn notify(host: &mut Host, key: Key) {
    let Some(entry) = host.conns.get(key) else { return };
    let Owner::Socket(sock) = entry.owner else { return };
    let (now, opening) = (entry.conn.readiness(), entry.conn.state().is_opening());
    let Some(socket) = host.sockets.get_mut(sock) else { return };
    let Kind::Stream(stream) = &mut socket.kind else { return };
    let ended = stream.connecting && !opening;
    stream.connecting &= opening;
    let watch = &mut socket.watch;
    let readable = watch.wants_read && now.readable && !opening;
    let writable = (watch.wants_write && now.writable && !opening) || ended;
    let gone = now.over && !opening && !std::mem::replace(&mut watch.told, true);
    if readable || writable || gone {
        watch.wants_read &= !readable;
        watch.wants_write &= !writable;
        host.wake(sock, Ready { readable, writable, error: now.error, hangup: now.hangup });
    }
}

/// The listener for a connection from `remote` to `local`: the most specific one; among those that share an address, the
/// remote address decides.
fn find_listener(host: &Host, local: SocketAddr, remote: SocketAddr) -> Option<Key> {
    let mut best: Vec<Key> = Vec::new();
    let mut score = (false, false);
    for &key in host.listeners.get(&local.port())? {
        let Some(Socket { kind: Kind::Listener(listener), .. }) = host.sockets.get(key) else { continue };
        let any = listener.local.ip().is_unspecified();
        let fits = if any { listener.local.is_ipv4() == local.is_ipv4() } else { listener.local.ip() == local.ip() };
        let through = listener
            .interface
            .is_none_or(|index| local.ip().is_loopback() || host.iface(index).is_some_and(|i| i.has(local.ip())));
        if !fits || !through {
            continue;
        }
        let this = (!any, listener.interface.is_some());
        if best.is_empty() || this > score {
            (best, score) = (vec![key], this);
        } else if this == score {
            best.push(key);
        }
    }
    let spread = match remote.ip() {
        IpAddr::V4(a) => u64::from(a.to_bits()),
        IpAddr::V6(a) => a.to_bits() as u64,
    };
    let index = (spread.wrapping_mul(31).wrapping_add(u64::from(remote.port()))) % best.len().max(1) as u64;
    best.get(index as usize).copied()
}
