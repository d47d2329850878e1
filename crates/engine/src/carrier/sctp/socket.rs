//! The sockets that SCTP associations share, and the SCTP ports on them: of UDP (RFC 6951), and of
//! IP itself where this process may.
//!
//! A socket has several SCTP ports, each with a [`neater_sctp::Endpoint`]: a listener's, or one of
//! a client's. Two associations with the same peer need two ports of ours (RFC 9260 section 1.3),
//! so a client takes another one when it must. A packet's destination port leads to the endpoint,
//! which knows its associations.
//!
//! Straight over IP there is one socket for each family of addresses (and for each interface and
//! codepoint that a program insists on), for listeners and clients alike. It gets the packets of
//! all programs on this host: those to a port that has no endpoint here are another's, and are
//! passed over.

use super::paths::PATHS_MAX;
use super::wire::ADAPTATION;
use super::{PacketLayer, Profile, RECV_BUDGET, SEND_BUDGET, SctpEndpoint, SctpSocket, Tie};
use crate::Limits;
use crate::carrier::channel::ICMP_BUDGET;
use crate::carrier::event::CarrierEvent;
use crate::carrier::ids::{CarrierSocket, Due, Socket};
use crate::carrier::layer::{self, Layers};
use crate::carrier::packet::PacketInfo;
use crate::carrier::packet::{Misrouted, Packet};
use crate::carrier::setup::SCTP_PROTOCOL;
use crate::carrier::{SctpCarrier, SessionId};
use crate::context::Context;
use crate::event::AttemptError;
use bytes::BytesMut;
use core::time::Duration;
use hashbrown::HashMap;
use neater_base::Key;
use neater_base::net::Sock;
use neater_base::net::{self, Ecn, ErrorKind, IcmpError, Net, Ready, RecvBatch, SocketOption, SocketOptions};
use neater_sctp::{AssociationConfig, Config, Endpoint, Extensions, Layer, LayerId, Route, Scheduler, Train};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

/// What one UDP packet can hold: the packets of a train must fit into it together.
const UDP_MAX: usize = 65_507;
/// The kernel cuts no train into more packets (`UDP_MAX_SEGMENTS`).
const SEGMENTS_MAX: usize = 64;
/// Kernel buffers of a socket, as far as the system allows.
const SOCKET_BUFFER: usize = 4 << 20;
/// Ports that a client takes (RFC 6335 section 6).
const EPHEMERAL: (u16, u16) = (49_152, 65_535);
/// How often a free port is drawn, before giving up.
const PORT_TRIES: usize = 64;
/// A socket whose last association is over answers for as long what the peer may have missed.
pub(crate) const LINGER: Duration = Duration::from_secs(3);
/// NATs forget idle UDP flows within 30 seconds, some sooner (RFC 4787 section 4.3): encapsulated
/// paths speak more often.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The receive buffer of an association, which is one for all its streams, by what is kept of
/// datagrams: 1 MB at first unless configured otherwise, and up to 16 MB while the program takes so
/// much that the peer would have to wait for the window.
const RECEIVE_FACTOR: usize = 4;
const RECEIVE_FACTOR_MAX: usize = 64;
/// What all associations of an endpoint may hold of received data, by what may be kept in send
/// queues.
const RECEIVE_BUDGET_FACTOR: usize = 4;
/// How often INIT and COOKIE ECHO are sent again: for 63 seconds, as a SYN. RFC 9260 section 16
/// suggests 8 times, which is four minutes of waiting.
const INITS: u32 = 5;
/// How many streams each side may open: half of these numbers are one side's.
const STREAMS: u16 = 4096;
/// The longest SCTP packet that is ever written.
pub(super) const PACKET_MAX: u16 = 9216;
/// What every path takes (RFC 8200 section 5).
const LEAST_MTU: u16 = 1280;

/// The receive buffer of an association at first, in bytes.
pub(super) fn receive_buffer(limits: &Limits) -> u32 {
    receive_buffer_of(limits, RECEIVE_FACTOR)
}

fn receive_buffer_of(limits: &Limits, factor: usize) -> u32 {
    u32::try_from(limits.datagram_buffer.saturating_mul(factor)).unwrap_or(u32::MAX)
}

impl SctpCarrier {
    /// The socket straight over IP for this family of addresses, opened if there is none.
    pub(super) fn ip_socket<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        family: SocketAddr,
        options: &SocketOptions,
    ) -> Result<Key, AttemptError> {
        let mut options = SocketOptions { local: None, reuse_address: false, ..options.clone() };
        options.set.retain(|o| !matches!(o, SocketOption::NoUdpChecksum(_)));
        let v6 = family.is_ipv6();
        let same = |s: &SctpSocket| s.below == PacketLayer::Ip && s.v6 == v6 && s.options == options;
        let known = self.sockets.iter().find(|(_, s)| same(s)).map(|(k, _)| k);
        if let Some(key) = known {
            return Ok(key);
        }
        let key = self.open_socket(cx, family, &options, PacketLayer::Ip, true)?;
        // Nothing can have come yet, but no event is promised before it was tried.
        self.socket_readable(cx, key);
        Ok(key)
    }

    /// Opens a socket that speaks SCTP; `server`: peers send to it first.
    pub(super) fn open_socket<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        family: SocketAddr,
        options: &SocketOptions,
        below: PacketLayer,
        server: bool,
    ) -> Result<Key, AttemptError> {
        let with = wishes(options);
        let key = self.sockets.next_key();
        let token = CarrierSocket(Socket::Sctp(key)).token();
        let sock = match below {
            PacketLayer::Ip => cx.net.raw(token, SCTP_PROTOCOL, family, &with),
            // DTLS has sockets of its own.
            PacketLayer::Udp | PacketLayer::Dtls => cx.net.udp(token, family, &with),
        };
        let sock = sock.map_err(AttemptError::Net)?;
        self.sockets.insert(SctpSocket::new(sock, below, family.is_ipv6(), options, server));
        Ok(key)
    }

    /// An endpoint on a socket, at this SCTP port or, for 0, at a free one; and at this address
    /// alone, where the socket has all. `None`: the port is taken.
    pub(super) fn open_endpoint<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        socket: Key,
        (at, port): (Option<IpAddr>, u16),
        profile: Profile,
        accepts: bool,
    ) -> Option<Key> {
        let s = self.sockets.get(socket)?;
        let has = |s: &SctpSocket, p: u16| s.ends.range((p, None)..).next().is_some_and(|((port, _), _)| *port == p);
        // What is sent straight to this host comes to every such socket.
        let others = |p: u16| self.sockets.iter().any(|(_, o)| o.below == PacketLayer::Ip && has(o, p));
        let taken = |p: &u16| if s.below == PacketLayer::Ip { others(*p) } else { has(s, *p) };
        let port = match port {
            0 => (0..PORT_TRIES)
                .map(|_| EPHEMERAL.0 + cx.rng.below(u64::from(EPHEMERAL.1 - EPHEMERAL.0) + 1) as u16)
                .find(|p| !taken(p))?,
            p if s.ends.contains_key(&(p, at)) => return None,
            p => p,
        };
        let key = self.make_endpoint(cx, socket, (at, port), profile, accepts);
        self.sockets.get_mut(socket)?.ends.insert((port, at), key);
        Some(key)
    }

    /// The packet layer that a socket is (decision 0027).
    pub(super) fn layer(&self, socket: Key, mtu: u16) -> Layer {
        let Some(s) = self.sockets.get(socket) else { return Layer::udp() };
        let overhead = s.overhead();
        let authenticates = s.below == PacketLayer::Dtls;
        Layer { mtu: mtu.min(PACKET_MAX + overhead), overhead, authenticates, ..Layer::udp() }
    }

    fn make_endpoint<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        socket: Key,
        (at, port): (Option<IpAddr>, u16),
        profile: Profile,
        accepts: bool,
    ) -> Key {
        let layer = self.layer(socket, profile.mtu);
        let several = profile.several;
        // A layer below answers from where it was met by itself.
        let all = |s: &SctpSocket| s.below != PacketLayer::Dtls && s.has_all();
        let all = at.is_none() && self.sockets.get(socket).is_some_and(all);
        let (below, shared) = self.sockets.get(socket).map_or((PacketLayer::Udp, false), |s| (s.below, s.server));
        let secret = cx.config.shared_secret.unwrap_or(cx.config.seed);
        let association = AssociationConfig {
            outbound_streams: STREAMS,
            inbound_streams: STREAMS,
            receive_buffer: receive_buffer_of(&cx.limits, RECEIVE_FACTOR_MAX),
            first_receive_buffer: receive_buffer(&cx.limits),
            send_buffer: cx.limits.send_buffer,
            max_message: cx.limits.message,
            heartbeat_interval: profile.heartbeats.then(|| profile.keep_alive.map_or(HEARTBEAT, |k| k.min(HEARTBEAT))),
            scheduler: profile.scheduler,
            extensions: Extensions {
                ecn: cx.config.sctp_ecn && below != PacketLayer::Dtls,
                // A client that opens no further paths is followed to another address without them.
                dynamic_addresses: several && (accepts || profile.widens),
                ..Extensions::default()
            },
            adaptation: Some(ADAPTATION),
            max_init_retransmits: INITS,
            // It is another connection's then.
            outlives_restart: false,
            // Layers are our addresses, in the order in which they were met.
            pair_addresses: false,
            reached_everywhere: several && accepts,
            max_paths: if several { PATHS_MAX } else { 1 },
            multipath: profile.multipath,
            base_packet: LEAST_MTU - layer.overhead,
            search_idle: false,
            ..AssociationConfig::default()
        };
        let config = Config {
            layers: vec![layer],
            port,
            accept: accepts,
            // Its verification tags name the engine where several engines share a port, or where
            // each receives every packet over IP.
            engine: cx.config.shared_secret.filter(|_| shared).map(|_| cx.config.engine),
            // A listener has its port for itself; that of a client may also be another program's,
            // of which nothing is known.
            reserved: below == PacketLayer::Ip && !accepts,
            max_associations: cx.limits.connections,
            max_per_source: cx.limits.sctp_per_source,
            receive_budget: cx.limits.engine_bytes.saturating_mul(RECEIVE_BUDGET_FACTOR),
            association,
            ..Config::default()
        };
        let mut secrets = neater_base::Rng::new(secret);
        // The first two are QUIC's.
        let [_, _, cookies] = core::array::from_fn(|_| secrets.seed());
        let sock = self.sockets.get(socket).filter(|_| accepts).map(|s| s.sock);
        let bound = sock.and_then(|s| cx.net.local_addr(s).ok()).map_or(0, |a| a.port());
        let cookies = cookies_of(cookies, below, bound);
        let endpoint = Endpoint::new(config, cx.rng.seed(), &cookies);
        let associations = HashMap::with_hasher(foldhash::fast::FixedState::with_seed(cx.rng.u64()));
        self.endpoints.insert(SctpEndpoint {
            socket,
            at,
            ways: Vec::new(),
            spread: several && accepts && all,
            beside: Vec::new(),
            endpoint,
            associations,
            listener: None,
            profile,
            dirty: false,
            armed: None,
            ending: VecDeque::new(),
            hungry: Vec::new(),
        })
    }

    /// Answers packets that are out of the blue as RFC 9260 section 8.4 requires: INIT with ABORT,
    /// so that a peer need not wait for its timers, and within the bounds on answers to a source.
    fn out_of_the_blue<N: Net>(&mut self, cx: &mut Context<N>, socket: Key, port: u16) -> Option<Key> {
        let s = self.sockets.get(socket).filter(|s| s.below != PacketLayer::Ip)?;
        let key = match s.unmatched {
            Some(key) => key,
            None => {
                let scheduler = Scheduler::FirstCome;
                let profile = Profile {
                    heartbeats: false,
                    keep_alive: None,
                    scheduler,
                    mtu: LEAST_MTU,
                    several: false,
                    widens: false,
                    multipath: None,
                };
                let key = self.make_endpoint(cx, socket, (None, port), profile, false);
                self.sockets.get_mut(socket)?.unmatched = Some(key);
                key
            }
        };
        self.endpoints.get_mut(key)?.endpoint.set_port(port);
        Some(key)
    }

    /// Sends what an endpoint has to send, within the budget. True: there may be more.
    pub(super) fn send_trains<N: Net>(&mut self, cx: &mut Context<N>, layers: &mut Layers<'_>, key: Key) -> bool {
        for _ in 0..SEND_BUDGET {
            let Some(end) = self.endpoints.get_mut(key) else { return false };
            // What an endpoint sends next may go by any of its sockets.
            for socket in end.sockets() {
                if let Some(s) = self.sockets.get_mut(socket).filter(|s| !s.writable) {
                    if !s.waiting.contains(&key) {
                        s.waiting.push(key);
                    }
                    return false;
                }
            }
            let Some(s) = self.sockets.get(end.socket) else { return false };
            let most = cx.net.max_segments(s.sock).clamp(1, SEGMENTS_MAX);
            // A layer makes each packet longer.
            let room = UDP_MAX - s.layer.map_or(0, |_| SEGMENTS_MAX * usize::from(layer::RECORD_OVERHEAD));
            cx.packet.resize(UDP_MAX, 0);
            let Some(train) = end.endpoint.poll_train(cx.now, &mut cx.packet[..room], most) else { return false };
            let several = end.has_several_sockets();
            let (socket, from) = end.way(train.route.layer);
            let Some(s) = self.sockets.get_mut(socket) else { continue };
            if train.whole != s.whole {
                // Rare: chunks that were cut when packets could be longer. Without the option they
                // travel like any UDP datagram.
                s.whole = train.whole;
                let _ = cx.net.set(s.sock, SocketOption::DontFragment(train.whole));
            }
            let sent = match s.layer {
                Some(layer) => {
                    let packet = core::mem::take(&mut cx.packet);
                    let sent = layers.send(cx, layer, train.route.remote, &packet[..train.len], train.segment);
                    cx.packet = packet;
                    sent
                }
                None => cx.net.send(s.sock, &transmit(&train, from, &cx.packet[..train.len])),
            };
            match sent {
                Ok(()) => {}
                // Lost, as in a queue that is full: other networks are not to wait for this one.
                Err(e) if e.is_would_block() && several => {}
                Err(e) if e.is_would_block() => {
                    s.writable = false;
                    // The layer keeps its own.
                    s.blocked = s.layer.is_none().then(|| (train, from, cx.packet[..train.len].to_vec()));
                    s.waiting.push(key);
                    return false;
                }
                Err(e) if e.kind == ErrorKind::MessageTooLarge => self.too_large(cx, key, train.route),
                // Lost like any packet.
                Err(e) if e.kind == ErrorKind::NoBuffers => {}
                // On a packet layer with a peer of its own, ICMP errors that anyone may forge are
                // ignored.
                Err(_) if s.layer.is_some() => {}
                Err(e) => {
                    // The socket is shared: what it reports here may be about an earlier datagram
                    // to another peer.
                    let to = train.route.remote;
                    if !self.icmp_errors(cx, socket) {
                        self.unreachable(cx, socket, to, e);
                    }
                }
            }
        }
        true
    }

    /// A socket is ready.
    pub(crate) fn on_ready<N: Net>(&mut self, cx: &mut Context<N>, key: Key, ready: Ready) {
        if ready.writable {
            self.socket_writable(cx, key);
        }
        if ready.readable || ready.error {
            self.socket_readable(cx, key);
        }
    }

    /// A socket takes packets again.
    pub(super) fn socket_writable<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(s) = self.sockets.get_mut(key) else { return };
        s.writable = true;
        if let Some((train, from, contents)) = s.blocked.take()
            && let Err(e) = cx.net.send(s.sock, &transmit(&train, from, &contents))
            && e.is_would_block()
        {
            s.writable = false;
            s.blocked = Some((train, from, contents));
            return;
        }
        for end in core::mem::take(&mut s.waiting) {
            self.mark_dirty(end);
        }
    }

    /// Reads a socket empty, within the budget of a turn.
    pub(crate) fn socket_readable<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        // A layer's packets are handed up by the layer.
        let Some(sock) = self.sockets.get(key).filter(|s| s.layer.is_none()).map(|s| s.sock) else {
            return;
        };
        let mut batch = cx.batch.take().unwrap_or_else(|| Box::new(RecvBatch::default()));
        let mut budget = RECV_BUDGET;
        loop {
            if budget == 0 {
                cx.again = true;
                self.unread.push(key);
                break;
            }
            budget -= 1;
            match cx.net.recv(sock, &mut batch) {
                Ok(n) => {
                    for (meta, data) in batch.filled() {
                        let came = PacketInfo { from: meta.source, to: meta.local, marked: meta.ecn == Ecn::Ce };
                        for one in data.chunks(meta.stride.max(1)) {
                            self.datagram(cx, key, came, one);
                        }
                    }
                    if n == 0 || batch.drained {
                        break;
                    }
                }
                Err(e) if e.is_would_block() => break,
                // An ICMP error of an earlier datagram, to any peer.
                Err(_) => drop(self.icmp_errors(cx, key)),
            }
        }
        cx.batch = Some(batch);
    }

    /// A packet has arrived; the port in the common header (RFC 9260 section 3.1) selects the
    /// endpoint.
    pub(crate) fn datagram<N: Net>(&mut self, cx: &mut Context<N>, socket: Key, came: PacketInfo, data: &[u8]) {
        let Some(s) = self.sockets.get(socket) else { return };
        if s.server
            && s.below != PacketLayer::Dtls
            && let Some(engine) = engine_of_packet(cx, data)
        {
            // Over IP every engine receives every packet.
            if s.below == PacketLayer::Udp {
                keep_packet(cx, s.sock, engine, came, data);
            }
            return;
        }
        self.unmatched(cx, socket, came, data);
    }

    /// The endpoint of a listener that has the association of a packet: the one that the packet has
    /// come to, or another one of the same listener, for a peer that knows addresses of both
    /// versions of IP.
    fn owner(&self, end: Key, data: &[u8]) -> Key {
        let Some(e) = self.endpoints.get(end).filter(|e| !e.beside.is_empty() && !e.endpoint.owns(data)) else {
            return end;
        };
        let owns = |k: &&Key| self.endpoints.get(**k).is_some_and(|e| e.profile.several && e.endpoint.owns(data));
        e.beside.iter().find(owns).copied().unwrap_or(end)
    }

    /// The same for a packet that no other engine has.
    pub(crate) fn unmatched<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        socket: Key,
        PacketInfo { from, to, marked }: PacketInfo,
        data: &[u8],
    ) {
        let Some(s) = self.sockets.get(socket) else { return };
        let Some(port) = data.get(2..4).map(|p| u16::from_be_bytes([p[0], p[1]])) else { return };
        let known = s.end_at(to.filter(|_| s.below == PacketLayer::Ip), port);
        let known = known.map(|end| self.owner(end, data));
        let Some(key) = known.or_else(|| self.out_of_the_blue(cx, socket, port)) else { return };
        let Some(end) = self.endpoints.get_mut(key) else { return };
        let from = peer_address(from);
        let layer = if end.spread || !end.ways.is_empty() { self.arrived_at(cx, key, socket, to) } else { LayerId(0) };
        let Some(end) = self.endpoints.get_mut(key) else { return };
        if layer == LayerId(0) && end.socket != socket {
            // There is no way left for an answer.
            return;
        }
        end.endpoint.handle_packet(cx.now, Route { layer, remote: from }, marked, data);
        self.mark_dirty(key);
    }

    /// Takes the ICMP errors of a socket to the associations that they concern. True if there were
    /// any.
    ///
    /// Any host can send such a message. What is believed quotes a packet of ours, with a tag that
    /// no stranger knows (RFC 9260 section 10, ICMP5 to ICMP9, and RFC 6951 section 5.5), or is
    /// this host's own.
    fn icmp_errors<N: Net>(&mut self, cx: &mut Context<N>, key: Key) -> bool {
        let Some((sock, below)) = self.sockets.get(key).map(|s| (s.sock, s.below)) else { return false };
        let mut any = false;
        for _ in 0..ICMP_BUDGET {
            let Some(error) = cx.net.take_icmp_error(sock) else { break };
            any = true;
            let Some(to) = error.destination else { continue };
            let to = if below == PacketLayer::Ip { SocketAddr::new(to.ip(), 0) } else { to };
            if error.quoted.as_slice().is_empty() {
                // The call that sends a too large packet reports that, too.
                if error.offender.is_none() && error.mtu.is_none() {
                    self.unreachable(cx, key, to, error.error);
                }
                continue;
            }
            self.icmp(cx, key, to, &error);
        }
        any
    }

    /// An ICMP error that quotes a packet.
    fn icmp<N: Net>(&mut self, cx: &mut Context<N>, socket: Key, to: SocketAddr, error: &IcmpError) {
        let quoted = error.quoted.as_slice();
        let Some(s) = self.sockets.get(socket) else { return };
        let Some(port) = quoted.get(..2).map(|p| u16::from_be_bytes([p[0], p[1]])) else { return };
        let of_port = s.ends.range((port, None)..).take_while(|((p, _), _)| *p == port).map(|(_, end)| *end);
        let ends: Vec<Key> = of_port.collect();
        for end in ends {
            let Some(e) = self.endpoints.get_mut(end) else { continue };
            // An ICMP error that quotes a packet does not show which local address it was sent
            // from.
            let layers = (0..=e.ways.len()).map(|i| LayerId(i as u16)).filter(|l| e.way(*l).0 == socket);
            let routes = layers.map(|layer| Route { layer, remote: to });
            let found = routes.filter_map(|r| Some((r, e.endpoint.quoted(r, quoted)?))).next();
            let Some((route, id)) = found else { continue };
            let association = e.associations.get(&id).copied();
            let what = translate(error, to.is_ipv6(), self.sockets.get(socket).map_or(0, SctpSocket::overhead));
            if let Some((key, a)) = association.and_then(|k| Some((k, self.associations.get(k)?)))
                && !a.connected
                && !matches!(what, Some(neater_sctp::IcmpError::PacketTooBig { .. }))
            {
                // To an attempt it is the end.
                return self.attempt_refused(cx, key, error.error);
            }
            if let (Some(what), Some(e)) = (what, self.endpoints.get_mut(end)) {
                e.endpoint.handle_icmp(cx.now, route, what, quoted);
                self.mark_dirty(end);
            }
            return;
        }
    }

    /// This host does not take packets of that length towards there: what is sent is measured by
    /// the interface from now on.
    fn too_large<N: Net>(&mut self, cx: &mut Context<N>, end: Key, route: Route) {
        let Some((socket, at)) = self.endpoints.get(end).map(|e| e.way(route.layer)) else { return };
        let mtu = mtu(cx, at, Some(route.remote.ip()));
        let Some(e) = self.endpoints.get_mut(end) else { return };
        let Some(s) = self.sockets.get(socket) else { return };
        let size = mtu.saturating_sub(s.overhead());
        let packet: Vec<u8> = cx.packet.iter().take(net::Quoted::MAX).copied().collect();
        e.endpoint.handle_icmp(cx.now, route, neater_sctp::IcmpError::PacketTooBig { size }, &packet);
    }

    /// The network does not take packets to an address. For an attempt that is the end; an
    /// association that works otherwise has its own timers.
    fn unreachable<N: Net>(&mut self, cx: &mut Context<N>, socket: Key, to: SocketAddr, error: net::NetError) {
        let hit: Vec<_> = self
            .associations
            .iter()
            .filter(|(_, a)| a.route == to && !a.connected && !a.over)
            .filter(|(_, a)| self.endpoints.get(a.end).is_some_and(|e| e.socket == socket))
            .map(|(k, _)| k)
            .collect();
        for key in hit {
            self.attempt_refused(cx, key, error);
        }
    }

    /// The network does not take an attempt to where it should lead.
    pub(super) fn attempt_refused<N: Net>(&mut self, cx: &mut Context<N>, key: Key, error: net::NetError) {
        match self.associations.get(key).map(|a| a.attempt) {
            Some(Some(attempt)) => {
                self.events.push_back(CarrierEvent::Failed {
                    attempt,
                    session: SessionId::Sctp(key),
                    error: AttemptError::Net(error),
                });
            }
            // It was withdrawn, and is no longer silent.
            Some(None) => self.answered_late(cx, key),
            None => {}
        }
    }

    /// An endpoint that is unused is dropped, after a while in which it still answers; its socket
    /// goes with the last.
    pub(super) fn tidy_endpoint<N: Net>(&self, cx: &mut Context<N>, key: Key) {
        if self.endpoints.get(key).is_some_and(SctpEndpoint::is_unused) {
            cx.timers.push(cx.now + LINGER, Due::SctpEndpoint(key).into());
        }
    }

    /// An endpoint that is unused is dropped, and its socket with the last.
    pub(crate) fn endpoint_over<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(end) = self.endpoints.get(key).filter(|e| e.is_unused()) else { return };
        let (socket, beside) = (end.socket, end.beside.clone());
        if let Some(end) = self.endpoints.remove(key) {
            cx.stats.refusals.associations += end.endpoint.stats().refused;
            for other in end.sockets().filter(|k| *k != socket) {
                self.leave_socket(cx, key, other);
            }
        }
        let Some(s) = self.sockets.get_mut(socket) else { return };
        s.ends.retain(|_, e| *e != key);
        for other in beside {
            let Some(e) = self.endpoints.get_mut(other) else { continue };
            e.beside.retain(|k| *k != key);
            // Paths of its associations lead to this socket.
            if e.ways.iter().any(|w| w.socket == socket) {
                s.ends.insert((e.endpoint.port(), None), other);
            }
        }
        self.tidy_socket(cx, socket);
    }

    /// Closes a socket without endpoints.
    pub(super) fn tidy_socket<N: Net>(&mut self, cx: &mut Context<N>, socket: Key) {
        if self.sockets.get(socket).is_some_and(|s| s.ends.is_empty()) {
            self.client_sockets.retain(|(_, k)| *k != socket);
            if let Some(s) = self.sockets.remove(socket) {
                if let Some(unmatched) = s.unmatched {
                    self.endpoints.remove(unmatched);
                }
                match s.layer {
                    Some(layer) => self.ties.push(Tie::Close(layer)),
                    None => cx.net.close(s.sock),
                }
            }
        }
    }
}

/// The largest IP packet that leaves this host towards an address, as far as can be known here: by
/// the interface of the source address, or the largest of all.
pub(super) fn mtu<N: Net>(cx: &mut Context<N>, local: Option<IpAddr>, remote: Option<IpAddr>) -> u16 {
    let local = local.filter(|ip| !ip.is_unspecified()).or_else(|| cx.net.source_for(remote?));
    let of = |i: &&net::Interface| local.is_none_or(|ip| i.addrs.iter().any(|a| a.addr == ip));
    let mtu = cx.net.interfaces().iter().filter(|i| i.up).filter(of).map(|i| i.mtu).max();
    u16::try_from(mtu.unwrap_or_default()).unwrap_or(u16::MAX).max(LEAST_MTU)
}

/// What every socket that carries SCTP is asked for beside what the program wants.
pub(super) fn wishes(options: &SocketOptions) -> SocketOptions {
    let mut with = options.clone();
    with.set.push(SocketOption::ReceiveBuffer(SOCKET_BUFFER));
    with.set.push(SocketOption::SendBuffer(SOCKET_BUFFER));
    // What the path takes is found out (RFC 8899), and no router on it is to cut packets.
    with.set.push(SocketOption::DontFragment(true));
    // A refused port or a missing route is the end of an attempt, which need not wait for a timeout
    // then; and a path may have become narrower.
    with.set.push(SocketOption::IcmpErrors(true));
    with
}

/// The source of a packet, as peers are distinguished by it: IPv4 as such, no flow label, and the
/// interface only where it is part of the address (RFC 4007 section 6).
pub(super) fn peer_address(from: SocketAddr) -> SocketAddr {
    match (from.ip().to_canonical(), from) {
        (IpAddr::V6(ip), SocketAddr::V6(from)) => {
            let scope = if ip.is_unicast_link_local() { from.scope_id() } else { 0 };
            SocketAddrV6::new(ip, from.port(), 0, scope).into()
        }
        (ip, _) => SocketAddr::new(ip, from.port()),
    }
}

fn transmit<'a>(train: &Train, source: Option<IpAddr>, contents: &'a [u8]) -> net::Transmit<'a> {
    net::Transmit {
        destination: train.route.remote,
        source,
        interface: None,
        ecn: if train.ect { Ecn::Ect0 } else { Ecn::NotEct },
        segment_size: (train.len > train.segment).then_some(train.segment),
        contents,
    }
}

/// What an ICMP message means to SCTP (RFC 9260 section 10). `None`: nothing (ICMP1 to ICMP4).
fn translate(error: &IcmpError, v6: bool, overhead: u16) -> Option<neater_sctp::IcmpError> {
    use neater_sctp::IcmpError as E;
    if let Some(mtu) = error.mtu {
        let size = u16::try_from(mtu).unwrap_or(u16::MAX).saturating_sub(overhead);
        return Some(E::PacketTooBig { size });
    }
    Some(match (v6, error.icmp_type, error.icmp_code) {
        (false, 3, 2) => E::ProtocolUnreachable,
        (false, 3, 3) | (true, 1, 4) => E::PortUnreachable,
        (false, 3, 0 | 1 | 5..) | (true, 1, _) => E::Unreachable,
        // "Unrecognized Next Header": the protocol is not there.
        (true, 4, 1) => E::ProtocolUnreachable,
        _ => return None,
    })
}

/// The secret of the cookies of one listener: what was made by another one, below which lies
/// something else or another port of UDP, is not good here, whatever its SCTP port. Engines that
/// share a port agree.
fn cookies_of(secret: [u8; 32], below: PacketLayer, port: u16) -> [u8; 32] {
    let mut seed = secret;
    let [high, low] = port.to_be_bytes();
    for (byte, of) in seed.iter_mut().zip([below as u8, high, low]) {
        *byte ^= of;
    }
    neater_base::Rng::new(seed).seed()
}

/// The number of the engine to which an SCTP packet over UDP belongs, if it is another one's: that
/// of the tag, which every engine begins with its own. What opens an association has none.
fn engine_of_packet<N: Net>(cx: &Context<N>, packet: &[u8]) -> Option<u8> {
    cx.config.shared_secret?;
    let tag: &[u8; 4] = packet.get(4..8)?.try_into().ok()?;
    // A peer that knows nothing of an association sends back the tag that it was sent, which is its
    // own.
    let is_sent_back = matches!(packet.get(12..14), Some([6 | 14, flags]) if flags & 1 == 1);
    (*tag != [0; 4] && !is_sent_back && tag[0] != cx.config.engine).then_some(tag[0])
}

/// Keeps an SCTP packet for the engine with this number.
fn keep_packet<N: Net>(cx: &mut Context<N>, sock: Sock, engine: u8, came: PacketInfo, data: &[u8]) {
    cx.keep_misrouted(sock, engine, Misrouted(Packet::Sctp(came)), || BytesMut::from(data));
}
