//! The UDP sockets that SCTP associations share (RFC 6951), and the SCTP ports on them.
//!
//! A socket has several SCTP ports, each with a [`neater_sctp::Endpoint`]: a listener's, or one of a client's. Two associations
//! with the same peer need two ports of ours (RFC 9260 section 1.3), so a client takes another one when it must. A packet's
//! destination port leads to the endpoint, which knows its associations.

use super::wire::ADAPTATION;
use super::{ICMP_BUDGET, Profile, RECV_BUDGET, SEND_BUDGET, SctpEnd, SctpSocket, Train};
use crate::Engine;
use crate::engine::Timer;
use crate::establish::What;
use crate::event::AttemptError;
use crate::ids::Owner;
use core::time::Duration;
use hashbrown::HashMap;
use neater_base::Key;
use neater_base::net::{self, Ecn, ErrorKind, IcmpError, Net, Ready, RecvBatch, SocketOption, SocketOptions};
use neater_sctp::{AssociationConfig, Config, Endpoint, Extensions, Layer, LayerId, Route, Scheduler, Transmit};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

/// What one UDP packet can hold: the packets of a train must fit into it together.
const UDP_MAX: usize = 65_507;
/// The kernel cuts no train into more packets (`UDP_MAX_SEGMENTS`).
const SEGMENTS_MAX: usize = 64;
/// Kernel buffers of a socket, as far as the system allows.
const SOCKET_BUFFER: usize = 4 << 20;
/// Ports that a client takes (RFC 6335 section 6).
const EPHEMERAL: (u16, u16) = (49_152, 65_535);
/// How often a port is drawn that nobody has, before giving up.
const PORT_TRIES: usize = 64;
/// A socket whose last association is over answers for as long what the peer may have missed.
pub(super) const LINGER: Duration = Duration::from_secs(3);
/// NATs forget idle UDP flows within 30 seconds, some sooner (RFC 4787 section 4.3): encapsulated paths speak more often.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The receive buffer of an association, which is one for all its streams, by what is kept of datagrams: 1 MB if nothing else
/// was said.
const RECEIVE_FACTOR: usize = 4;
/// How often INIT and COOKIE ECHO are sent again: for 63 seconds, as a SYN. RFC 9260 section 16 suggests 8 times, which is four
/// minutes for who waits.
const INITS: u32 = 5;
/// How many streams each side may open: half of these numbers are one side's.
const STREAMS: u16 = 4096;
/// The longest SCTP packet that is ever written.
const PACKET_MAX: usize = 9216;

impl<N: Net> Engine<N> {
    /// Opens a UDP socket that speaks SCTP; `server`: peers send to it first.
    pub(super) fn open_sctp_socket(
        &mut self,
        family: SocketAddr,
        options: &SocketOptions,
        server: bool,
    ) -> Result<Key, AttemptError> {
        let mut with = options.clone();
        with.set.push(SocketOption::ReceiveBuffer(SOCKET_BUFFER));
        with.set.push(SocketOption::SendBuffer(SOCKET_BUFFER));
        // Packets are shorter than any path is narrow (RFC 8200 section 5), and nobody on it is to cut them.
        with.set.push(SocketOption::DontFragment(true));
        if !server {
            // A refused port or a missing route is the end of an attempt, which need not wait for a timeout then.
            with.set.push(SocketOption::IcmpErrors(true));
        }
        let key = self.sctp_sockets.next_key();
        let sock = self.net.udp(Owner::SctpSocket(key).token(), family, &with).map_err(AttemptError::Net)?;
        let options = options.clone();
        self.sctp_sockets.insert(SctpSocket {
            sock,
            ends: BTreeMap::new(),
            nobody: None,
            whole: true,
            writable: true,
            blocked: None,
            waiting: Vec::new(),
            server,
            options,
        });
        Ok(key)
    }

    /// An endpoint on a socket, at this SCTP port or, for 0, at one that nobody has. `None`: the port is taken.
    pub(super) fn open_sctp_end(
        &mut self,
        socket: Key,
        port: u16,
        profile: Profile,
        listener: Option<Key>,
    ) -> Option<Key> {
        let s = self.sctp_sockets.get(socket)?;
        let port = match port {
            0 => (0..PORT_TRIES)
                .map(|_| EPHEMERAL.0 + self.rng.below(u64::from(EPHEMERAL.1 - EPHEMERAL.0) + 1) as u16)
                .find(|p| !s.ends.contains_key(p))?,
            p if s.ends.contains_key(&p) => return None,
            p => p,
        };
        let key = self.make_sctp_end(socket, port, profile, listener);
        self.sctp_sockets.get_mut(socket)?.ends.insert(port, key);
        Some(key)
    }

    /// The most that the receive buffer of an association grows to.
    pub(super) fn sctp_receive_buffer(&self) -> u32 {
        u32::try_from(self.limits.datagram_buffer.saturating_mul(RECEIVE_FACTOR)).unwrap_or(u32::MAX)
    }

    fn make_sctp_end(&mut self, socket: Key, port: u16, profile: Profile, listener: Option<Key>) -> Key {
        let secret = self.config.shared_secret.unwrap_or(self.config.seed);
        let association = AssociationConfig {
            outbound_streams: STREAMS,
            inbound_streams: STREAMS,
            receive_buffer: self.sctp_receive_buffer(),
            send_buffer: self.limits.send_buffer,
            max_message: self.limits.message,
            heartbeat_interval: profile.heartbeats.then(|| profile.keep_alive.map_or(HEARTBEAT, |k| k.min(HEARTBEAT))),
            scheduler: profile.scheduler,
            extensions: Extensions::default(),
            adaptation: Some(ADAPTATION),
            max_init_retransmits: INITS,
            // It is another connection's then.
            outlives_restart: false,
            // The system chooses the source of a packet by where it goes: at another address of a peer that has several, we would
            // be somebody that it does not know, and be answered as such, with an ABORT chunk (RFC 9260 section 8.4).
            max_paths: 1,
            ..AssociationConfig::default()
        };
        let config = Config {
            layers: vec![Layer::udp()],
            port,
            accept: listener.is_some(),
            max_associations: self.limits.connections,
            max_per_source: self.limits.sctp_per_source,
            association,
            ..Config::default()
        };
        let mut secrets = neater_base::Rng::new(secret);
        // The first two are QUIC's.
        let [_, _, cookies] = core::array::from_fn(|_| secrets.seed());
        let endpoint = Endpoint::new(config, self.rng.seed(), &cookies);
        let associations = HashMap::with_hasher(foldhash::fast::FixedState::with_seed(self.rng.u64()));
        self.sctp_ends.insert(SctpEnd {
            socket,
            endpoint,
            associations,
            listener,
            profile,
            dirty: false,
            armed: None,
            ending: VecDeque::new(),
            hungry: Vec::new(),
            left: None,
        })
    }

    /// Whoever answers packets to a port that nobody has, as RFC 9260 section 8.4 says: INIT with ABORT, so that a peer need not find
    /// out by its timers, and within the bounds on answers to a source.
    fn sctp_nobody(&mut self, socket: Key, port: u16) -> Option<Key> {
        let known = self.sctp_sockets.get(socket)?.nobody;
        let key = match known {
            Some(key) => key,
            None => {
                let profile = Profile { heartbeats: false, keep_alive: None, scheduler: Scheduler::FirstCome };
                let key = self.make_sctp_end(socket, port, profile, None);
                self.sctp_sockets.get_mut(socket)?.nobody = Some(key);
                key
            }
        };
        self.sctp_ends.get_mut(key)?.endpoint.set_port(port);
        Some(key)
    }

    /// Sends what an endpoint has to say, within the budget. True: there may be more.
    pub(super) fn sctp_send(&mut self, key: Key) -> bool {
        let now = self.now;
        for _ in 0..SEND_BUDGET {
            let Some(end) = self.sctp_ends.get_mut(key) else { return false };
            let Some(s) = self.sctp_sockets.get_mut(end.socket) else { return false };
            if !s.writable {
                if !s.waiting.contains(&key) {
                    s.waiting.push(key);
                }
                return false;
            }
            let most = self.net.max_segments(s.sock).clamp(1, SEGMENTS_MAX);
            let Some(train) = gather(end, now, most, &mut self.packet) else { return false };
            let contents = &self.packet[..train.len];
            if train.whole != s.whole {
                // Rare: chunks that were cut when packets could be longer. Without the option they travel like any UDP datagram.
                s.whole = train.whole;
                let _ = self.net.set(s.sock, SocketOption::DontFragment(train.whole));
            }
            match self.net.send(s.sock, &train.transmit(contents)) {
                Ok(()) => {}
                Err(e) if e.is_would_block() => {
                    s.writable = false;
                    s.blocked = Some((train, contents.to_vec()));
                    s.waiting.push(key);
                    return false;
                }
                // Lost like any packet.
                Err(e) if matches!(e.kind, ErrorKind::MessageTooLarge | ErrorKind::NoBuffers) => {}
                Err(e) => {
                    // The socket is shared: what it reports here may be about an earlier datagram to somebody else.
                    let (socket, to) = (end.socket, train.route.remote);
                    if !self.sctp_icmp_errors(socket) {
                        self.sctp_refused(socket, to, e);
                    }
                }
            }
        }
        true
    }

    pub(crate) fn sctp_socket_ready(&mut self, key: Key, ready: Ready) {
        if ready.writable {
            self.sctp_socket_writable(key);
        }
        if ready.readable || ready.error {
            self.sctp_socket_readable(key);
        }
    }

    fn sctp_socket_writable(&mut self, key: Key) {
        let Some(s) = self.sctp_sockets.get_mut(key) else { return };
        s.writable = true;
        if let Some((train, contents)) = s.blocked.take()
            && let Err(e) = self.net.send(s.sock, &train.transmit(&contents))
            && e.is_would_block()
        {
            s.writable = false;
            s.blocked = Some((train, contents));
            return;
        }
        for end in core::mem::take(&mut s.waiting) {
            self.mark_sctp(end);
        }
    }

    pub(crate) fn sctp_socket_readable(&mut self, key: Key) {
        let Some(sock) = self.sctp_sockets.get(key).map(|s| s.sock) else { return };
        let mut batch = self.batch.take().unwrap_or_else(|| Box::new(RecvBatch::default()));
        let mut budget = RECV_BUDGET;
        loop {
            if budget == 0 {
                self.again = true;
                self.pending_sctp.push(key);
                break;
            }
            budget -= 1;
            match self.net.recv(sock, &mut batch) {
                Ok(n) => {
                    for (meta, data) in batch.filled() {
                        for one in data.chunks(meta.stride.max(1)) {
                            self.sctp_datagram(key, meta.source, meta.ecn == Ecn::Ce, one);
                        }
                    }
                    if n == 0 {
                        break;
                    }
                }
                Err(e) if e.is_would_block() => break,
                // An ICMP error of an earlier datagram, to whomever.
                Err(_) => drop(self.sctp_icmp_errors(key)),
            }
        }
        self.batch = Some(batch);
    }

    /// A UDP datagram has come; the port in the common header (RFC 9260 section 3.1) says for which endpoint.
    fn sctp_datagram(&mut self, socket: Key, from: SocketAddr, marked: bool, data: &[u8]) {
        let now = self.now;
        let Some(s) = self.sctp_sockets.get(socket) else { return };
        let Some(port) = data.get(2..4).map(|p| u16::from_be_bytes([p[0], p[1]])) else { return };
        let known = s.ends.get(&port).copied();
        let Some(key) = known.or_else(|| self.sctp_nobody(socket, port)) else { return };
        let Some(end) = self.sctp_ends.get_mut(key) else { return };
        let from = SocketAddr::new(from.ip().to_canonical(), from.port());
        end.endpoint.handle_packet(now, Route { layer: LayerId(0), remote: from }, marked, data);
        self.mark_sctp(key);
    }

    /// Takes the ICMP errors of a socket to those whom they concern. True if there were any.
    fn sctp_icmp_errors(&mut self, key: Key) -> bool {
        let Some(sock) = self.sctp_sockets.get(key).map(|s| s.sock) else { return false };
        let mut any = false;
        for _ in 0..ICMP_BUDGET {
            let Some(IcmpError { destination, mtu, error, .. }) = self.net.take_icmp_error(sock) else { break };
            any = true;
            if let (Some(to), None) = (destination, mtu) {
                self.sctp_refused(key, to, error);
            }
        }
        any
    }

    /// The network does not take packets to an address. For an attempt that is the end; an association that works otherwise has
    /// its own timers.
    fn sctp_refused(&mut self, socket: Key, to: SocketAddr, error: neater_base::net::NetError) {
        let hit: Vec<_> = self
            .sctps
            .iter()
            .filter(|(_, a)| a.route == to && !a.connected && !a.over)
            .filter(|(_, a)| self.sctp_ends.get(a.end).is_some_and(|e| e.socket == socket))
            .map(|(k, a)| (k, a.attempt))
            .collect();
        for (key, attempt) in hit {
            match attempt {
                Some((conn, candidate)) => {
                    self.attempt_failed(conn, candidate, What::Sctp(key), AttemptError::Net(error));
                }
                // It was withdrawn, and is no longer silent.
                None => self.sctp_trial_passed(key),
            }
        }
    }

    /// An endpoint that nobody uses is dropped, after a while in which it still answers; its socket goes with the last.
    pub(super) fn tidy_sctp_end(&mut self, key: Key) {
        if self.sctp_ends.get(key).is_some_and(SctpEnd::is_unused) {
            self.timers.push(self.now + LINGER, Timer::SctpEnd(key));
        }
    }

    pub(crate) fn sctp_end_over(&mut self, key: Key) {
        let Some(end) = self.sctp_ends.get(key).filter(|e| e.is_unused()) else { return };
        let (socket, port) = (end.socket, end.endpoint.port());
        self.sctp_ends.remove(key);
        let Some(s) = self.sctp_sockets.get_mut(socket) else { return };
        s.ends.remove(&port);
        self.tidy_sctp_socket(socket);
    }

    pub(super) fn tidy_sctp_socket(&mut self, socket: Key) {
        if self.sctp_sockets.get(socket).is_some_and(|s| s.ends.is_empty()) {
            self.sctp_clients.retain(|(_, k)| *k != socket);
            if let Some(s) = self.sctp_sockets.remove(socket) {
                if let Some(nobody) = s.nobody {
                    self.sctp_ends.remove(nobody);
                }
                self.net.close(s.sock);
            }
        }
    }
}

/// Collects packets of one length to one place, which leave as a train. What does not fit to it waits in [`SctpEnd::left`].
fn gather(end: &mut SctpEnd, now: neater_base::Instant, most: usize, packet: &mut Vec<u8>) -> Option<Train> {
    if packet.len() < UDP_MAX + PACKET_MAX {
        packet.resize(UDP_MAX + PACKET_MAX, 0);
    }
    let mut train: Option<Train> = None;
    loop {
        let at = train.as_ref().map_or(0, |t| t.len);
        let one = match end.left.take() {
            Some((one, bytes)) => {
                packet[at..at + bytes.len()].copy_from_slice(&bytes);
                one
            }
            None => match end.endpoint.poll_transmit(now, &mut packet[at..at + PACKET_MAX]) {
                Some(one) => one,
                None => return train,
            },
        };
        match &mut train {
            None => {
                let Transmit { route, ect, whole, len } = one;
                let first = Train { route, ect, whole, len, segment: len };
                // The system cuts a train into packets as they are, but not those packets.
                if most == 1 || !whole {
                    return Some(first);
                }
                train = Some(first);
            }
            Some(t) => {
                let count = t.len / t.segment;
                let fits = one.route == t.route
                    && one.ect == t.ect
                    && one.whole
                    && one.len <= t.segment
                    && count < most
                    && t.len + one.len <= UDP_MAX;
                if !fits {
                    end.left = Some((one, packet[at..at + one.len].to_vec()));
                    return train;
                }
                t.len += one.len;
                if one.len < t.segment {
                    // Only the last may be shorter.
                    return train;
                }
            }
        }
    }
}

impl Train {
    fn transmit<'a>(&self, contents: &'a [u8]) -> net::Transmit<'a> {
        net::Transmit {
            destination: self.route.remote,
            source: None,
            ecn: if self.ect { Ecn::Ect0 } else { Ecn::NotEct },
            segment_size: (self.len > self.segment).then_some(self.segment),
            contents,
        }
    }
}
