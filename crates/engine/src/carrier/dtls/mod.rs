//! DTLS over UDP: sessions, the sockets they use, and the connections they carry.
//!
//! *Responsible for* moving datagrams between sockets and [`Session`]s, for their timers, and for what becomes of a session:
//! an attempt of a race, a connection, an incoming handshake. A client's session has a socket of its own; those of a
//! listener share one, where each peer that has shaken hands becomes a connection (RFC 9623 section 4.7.2). *Not*
//! responsible for the protocol, which is `neater-dtls`'s.
//!
//! *Invariants*: a listener sets up state for nothing but the beginning of a ClientHello: for at most
//! [`crate::Limits::unverified`] clients that have not proved their address ([`peers`]), [`crate::Limits::handshakes`] that
//! have, and [`crate::Limits::udp_peers`] peers at once; who makes room is decided as for other handshakes
//! ([`crate::backlog`]). A session that is over holds no address.

mod incoming;
mod peers;

pub(crate) use peers::Peers;

use crate::Engine;
use crate::carrier::channel::{Behind, Channel, ICMP_BUDGET, Kind, Peer};
use crate::carrier::dispatch::{CarrierSocket, Due};
use crate::carrier::event::CarrierEvent;
use crate::carrier::sctp::{Came, SessionEnd};
use crate::carrier::{Carriers, DtlsCarrier, FlowId, SessionId};
use crate::conn::ConnectionState;
use crate::context::Context;
use crate::event::{AttemptError, ConnectionError, Event, SendError};
use crate::queue::{Budget, Flushed, ReceivedDatagram, SendQueue};
use crate::request::Compiled;
use core::time::Duration;
use neater_base::net::{Ecn, ErrorKind, Net, NetError, RecvBatch, Sock, SocketOptions, Transmit};
use neater_base::{Instant, Key, Slab};
use neater_dtls::{DtlsError, Event as Said, HelloRandom, Session};
use neater_race::CandidateId;
use neater_tls::{ServerName, TlsError};
use std::net::{IpAddr, SocketAddr};

/// Batches of datagrams taken from one socket in a turn.
const RECV_BUDGET: usize = 64;
/// The largest datagram over UDP and IPv4, in bytes.
const UDP_MAX: usize = 65_507;
/// How long a client may take over the handshake with a listener.
pub(crate) const INCOMING_TIMEOUT: Duration = crate::listen::HANDSHAKE_TIMEOUT;

/// Datagrams of one length behind each other, of which the last may be shorter: for the system to cut up.
#[derive(Debug, Default)]
struct Sealed {
    bytes: Vec<u8>,
    segment: usize,
}

impl Sealed {
    fn one(datagram: Vec<u8>) -> Self {
        Self { segment: datagram.len(), bytes: datagram }
    }

    fn takes(&self, datagram: &[u8]) -> bool {
        self.bytes.len().is_multiple_of(self.segment)
            && datagram.len() <= self.segment
            && self.bytes.len() + datagram.len() <= UDP_MAX
    }
}

/// A DTLS session.
#[derive(Debug)]
pub(crate) struct Dtls {
    session: Session,
    /// The socket that it uses.
    channel: Key,
    pub(crate) remote: SocketAddr,
    /// At which address of this host a listener's client found it, and by which interface (see [`Peer`]).
    at: (Option<IpAddr>, u32),
    /// The random of a listener's client.
    random: Option<HelloRandom>,
    attempt: Option<(Key, Option<CandidateId>)>,
    /// The connection that it carries.
    conn: Option<Key>,
    /// The socket of SCTP's whose packets it carries.
    sctp: Option<Key>,
    /// The associations that use it.
    associations: usize,
    started: Instant,
    /// When the peer has answered, if it has.
    answered: Option<Instant>,
    armed: Option<Instant>,
    /// A datagram that the socket could not take.
    blocked: Option<Sealed>,
    /// The peer has ended it, or it has failed.
    lost: Option<ConnectionError>,
}

impl Dtls {
    fn new(session: Session, channel: Key, remote: SocketAddr, started: Instant) -> Self {
        Self {
            session,
            channel,
            remote,
            at: (None, 0),
            random: None,
            attempt: None,
            conn: None,
            sctp: None,
            associations: 0,
            started,
            answered: None,
            armed: None,
            blocked: None,
            lost: None,
        }
    }

    /// A session for the packets of a socket of SCTP's.
    pub(crate) fn below_sctp(session: Session, channel: Key, remote: SocketAddr, now: Instant, socket: Key) -> Self {
        Self { sctp: Some(socket), ..Self::new(session, channel, remote, now) }
    }

    /// Its handshake is finished, and somebody uses it or may.
    pub(crate) fn is_taken(&self) -> bool {
        self.conn.is_some() || self.sctp.is_some() && self.session.is_connected()
    }

    /// An association uses it.
    pub(crate) fn join(&mut self) {
        self.associations += 1;
    }

    /// An association does not use it any more. True: none does.
    pub(crate) fn leave(&mut self) -> bool {
        self.associations = self.associations.saturating_sub(1);
        self.associations == 0
    }

    pub(crate) fn answered_after(&self) -> Option<Duration> {
        self.answered.map(|at| at - self.started)
    }

    /// Whether it has had at least so much time to be answered, and was not.
    pub(crate) fn silent_since(&self, now: Instant, fair: Duration) -> bool {
        self.answered.is_none() && now - self.started >= fair
    }

    /// It is being tried as another candidate than it was begun as.
    pub(crate) fn adopt(&mut self, conn: Key, candidate: Option<CandidateId>) {
        self.attempt = Some((conn, candidate));
    }

    /// The connection that it is an attempt for.
    pub(crate) fn attempt(&self) -> Option<Key> {
        self.attempt.map(|(conn, _)| conn)
    }

    pub(crate) fn peer(&self) -> Peer {
        Peer { remote: self.remote, here: self.at.0, interface: self.at.1 }
    }

    pub(crate) fn channel(&self) -> Key {
        self.channel
    }

    pub(crate) fn lost(&self) -> Option<ConnectionError> {
        self.lost.clone()
    }

    /// The largest message that one datagram carries.
    pub(crate) fn max_message(&self) -> usize {
        self.session.max_message(UDP_MAX)
    }

    pub(crate) fn overhead(&self) -> usize {
        self.session.overhead()
    }

    pub(crate) fn version(&self) -> Option<String> {
        self.session.version().map(|v| v.to_string())
    }

    pub(crate) fn peer_certificates(&self) -> Vec<Vec<u8>> {
        self.session.peer_certificates().iter().map(|c| c.to_vec()).collect()
    }

    /// The longest message that fits into a datagram of so many bytes.
    pub(crate) fn largest_in(&self, datagram: usize) -> usize {
        self.session.max_message(datagram)
    }

    fn transmit<'a>(&self, contents: &'a [u8]) -> Transmit<'a> {
        let (source, interface) = self.peer().source();
        Transmit { destination: self.remote, source, interface, ecn: Ecn::NotEct, segment_size: None, contents }
    }

    fn transmit_all<'a>(&self, sealed: &'a Sealed) -> Transmit<'a> {
        let segment_size = (sealed.bytes.len() > sealed.segment).then_some(sealed.segment);
        Transmit { segment_size, ..self.transmit(&sealed.bytes) }
    }
}

pub(crate) fn attempt_error(error: DtlsError) -> AttemptError {
    match error {
        DtlsError::Tls(e) => AttemptError::Tls(e),
        DtlsError::NoAnswer => AttemptError::TimedOut,
        other => AttemptError::Tls(TlsError::Local(other.to_string().into())),
    }
}

fn connection_error(error: DtlsError) -> ConnectionError {
    match error {
        DtlsError::Tls(e) => ConnectionError::Tls(e),
        DtlsError::NoAnswer => ConnectionError::TimedOut,
        other => ConnectionError::Tls(TlsError::Local(other.to_string().into())),
    }
}

impl Carriers {
    /// Ends a session, and notifies the peer if there is one. A socket without sessions goes with the last, unless its
    /// listener still listens.
    pub(crate) fn drop_dtls<N: Net>(&mut self, cx: &mut Context<N>, key: Key, listens: impl FnOnce(Key) -> bool) {
        let Some(mut d) = self.dtls.sessions.remove(key) else { return };
        d.session.close(cx.now);
        let Some(ch) = self.channels.get_mut(d.channel) else { return };
        while let Some(datagram) = d.session.poll_transmit() {
            if ch.writable {
                // A farewell may be lost.
                let _ = cx.net.send(ch.sock, &d.transmit(&datagram));
            }
        }
        let Kind::Dtls(peers) = &mut ch.kind else { return };
        peers.remove(d.peer(), key);
        if peers.is_empty()
            && !matches!(ch.behind, Behind::Listener(l) if listens(l))
            && let Some(ch) = self.channels.remove(d.channel)
        {
            cx.net.close(ch.sock);
        }
    }
}

impl<N: Net> Engine<N> {
    /// Begins a session with a server, on a socket of its own.
    pub(crate) fn dtls_connect(
        &mut self,
        attempt: (Key, Option<CandidateId>),
        addr: SocketAddr,
        name: &str,
        request: &Compiled,
        options: &SocketOptions,
        via: u8,
    ) -> Result<SessionId, AttemptError> {
        let config = request.setups.dtls.0.as_ref().ok_or(AttemptError::Net(ErrorKind::Unsupported.into()))?;
        let name = ServerName::try_from(name.to_owned()).map_err(|_| AttemptError::NoAddress)?;
        let key = self.carriers.channels.next_key();
        let sock = self.cx.net.udp(CarrierSocket::channel(key).token(), addr, options).map_err(AttemptError::Net)?;
        if let Err(e) = self.cx.net.udp_connect(sock, addr) {
            self.cx.net.close(sock);
            return Err(AttemptError::Net(e));
        }
        let session = Session::client(config, name, self.cx.now, &mut self.cx.rng);
        let dtls = Dtls { attempt: Some(attempt), ..Dtls::new(session, key, addr, self.cx.now) };
        let dtls = self.carriers.dtls.sessions.insert(dtls);
        let peers = Box::new(Peers::of(addr.into(), dtls));
        let mut channel =
            Channel::new(sock, Kind::Dtls(peers), Behind::Attempt(attempt.0, attempt.1), addr, self.cx.now);
        (channel.connected, channel.writable, channel.readable, channel.via) = (true, true, true, via);
        self.carriers.channels.insert(channel);
        // The first flight leaves, and an error comes, when the attempt is in the books.
        self.cx.timers.push(self.cx.now, Due::Dtls(dtls).into());
        Ok(SessionId::Dtls(dtls))
    }

    pub(crate) fn dtls_timeout(&mut self, key: Key) {
        let now = self.cx.now;
        let Some(d) = self.carriers.dtls.sessions.get_mut(key) else { return };
        d.armed = d.armed.filter(|at| *at > self.cx.now);
        // Nothing has been read from a new socket, so no event is promised: the first read has to be tried.
        let channel = d.channel;
        if self.carriers.channels.get(channel).is_some_and(|ch| ch.readable) {
            self.dtls_readable(channel);
        }
        let Some(d) = self.carriers.dtls.sessions.get_mut(key) else { return };
        d.session.handle_timeout(now);
        self.dtls_progress(key, Ecn::NotEct);
    }

    /// A socket of DTLS sessions is ready.
    pub(crate) fn dtls_socket_ready(&mut self, channel: Key, readable: bool, writable: bool) {
        if writable {
            if let Some(socket) = self.dtls_sctp(channel) {
                for key in self.dtls_peers(channel) {
                    self.dtls_transmit(key);
                }
                let up = |key: &Key| self.carriers.dtls.sessions.get(*key).is_some_and(Dtls::is_taken);
                if self.carriers.channels.get(channel).is_some_and(|c| c.writable)
                    && self.dtls_peers(channel).iter().any(up)
                {
                    self.sctp_session_up(socket);
                }
            }
            for key in self.dtls_peers(channel) {
                self.dtls_transmit(key);
                if let Some(conn) = self.carriers.dtls.sessions.get(key).and_then(|d| d.conn) {
                    self.conn_ready_stream(conn, false);
                }
            }
        }
        if readable {
            self.dtls_readable(channel);
        }
    }

    /// The socket of SCTP's whose packets the sessions of a channel carry.
    fn dtls_sctp(&self, channel: Key) -> Option<Key> {
        match &self.carriers.channels.get(channel)?.kind {
            Kind::Dtls(peers) => peers.sctp,
            _ => None,
        }
    }

    pub(crate) fn dtls_peers(&self, channel: Key) -> Vec<Key> {
        match self.carriers.channels.get(channel).map(|c| &c.kind) {
            Some(Kind::Dtls(peers)) => peers.keys().collect(),
            _ => Vec::new(),
        }
    }

    /// Reads a socket empty, within the budget of a turn.
    pub(crate) fn dtls_readable(&mut self, channel: Key) {
        if let Some(Channel { behind: Behind::Listener(l), sock, kind: Kind::Dtls(peers), .. }) =
            self.carriers.channels.get(channel)
        {
            let anybody =
                || peers.keys().find_map(|k| Some(&self.conns.get(self.carriers.dtls.sessions.get(k)?.conn?)?.request));
            let request = self.listeners.get(*l).map(|l| &l.request.0).or_else(anybody);
            if request.is_some_and(|r| r.soft_errors) {
                self.dtls_listener_icmp(channel, *sock);
            }
        }
        let mut batch = self.cx.batch.take().unwrap_or_else(|| Box::new(RecvBatch::default()));
        for round in 0.. {
            // A session that ends may take the socket with it.
            let Some(sock) = self.carriers.channels.get(channel).map(|c| c.sock) else { break };
            if round >= RECV_BUDGET {
                self.look_again_at(channel, channel);
                break;
            }
            match self.cx.net.recv(sock, &mut batch) {
                Ok(_) => {
                    for (meta, data) in batch.filled() {
                        let peer = Peer::of(&meta);
                        for one in data.chunks(meta.stride.max(1)) {
                            self.dtls_datagram(channel, peer, one, meta.ecn);
                        }
                    }
                    if batch.drained {
                        self.dtls_drained(channel);
                        break;
                    }
                }
                Err(e) if e.is_would_block() => {
                    self.dtls_drained(channel);
                    break;
                }
                Err(e) => self.dtls_icmp(channel, e),
            }
        }
        self.cx.batch = Some(batch);
    }

    /// There is nothing to be read.
    fn dtls_drained(&mut self, channel: Key) {
        if let Some(ch) = self.carriers.channels.get_mut(channel) {
            ch.drained();
        }
    }

    /// The network has something to say about what was sent: to an attempt it is the end, as for QUIC; whoever has an
    /// authenticated peer does not listen to strangers.
    fn dtls_icmp(&mut self, channel: Key, error: NetError) {
        let Some(ch) = self.carriers.channels.get(channel) else { return };
        let (sock, behind) = (ch.sock, ch.behind);
        match behind {
            Behind::Attempt(conn, _) => {
                if let [key] = self.dtls_peers(channel)[..]
                    && self.carriers.dtls.sessions.get(key).is_some_and(|d| !d.session.is_connected())
                {
                    self.carriers.dtls.events.push_back(CarrierEvent::Failed {
                        attempt: conn,
                        session: SessionId::Dtls(key),
                        error: AttemptError::Net(error),
                    });
                }
            }
            Behind::Conn(conn) if self.conns.get(conn).is_some_and(|c| c.request.soft_errors) => {
                if let Some(icmp) = self.cx.net.take_icmp_error(sock) {
                    self.notify(conn, Event::SoftError(icmp));
                }
            }
            Behind::Sctp => {
                let up = |key: &Key| self.carriers.dtls.sessions.get(*key).is_some_and(Dtls::is_taken);
                // The queue of errors is emptied, so that the socket does not go on telling.
                for _ in 0..64 * ICMP_BUDGET {
                    if self.cx.net.take_icmp_error(sock).is_none() {
                        break;
                    }
                }
                if let Some(socket) = self.dtls_sctp(channel)
                    && !self.dtls_peers(channel).iter().any(up)
                {
                    self.sctp_session_refused(socket, error);
                }
            }
            Behind::Listener(_) => self.dtls_listener_icmp(channel, sock),
            _ => {}
        }
    }

    /// Empties the queue of ICMP errors of a listener's socket, and tells each to the connections that it is about, if they want to know.
    fn dtls_listener_icmp(&mut self, channel: Key, sock: Sock) {
        for _ in 0..ICMP_BUDGET {
            let Some(icmp) = self.cx.net.take_icmp_error(sock) else { return };
            let (Some(remote), Some(Channel { kind: Kind::Dtls(peers), .. })) =
                (icmp.destination, self.carriers.channels.get(channel))
            else {
                continue;
            };
            for key in peers.of_remote(remote).collect::<Vec<_>>() {
                if let Some(conn) = self.carriers.dtls.sessions.get(key).and_then(|d| d.conn)
                    && self.conns.get(conn).is_some_and(|c| c.request.soft_errors)
                {
                    self.notify(conn, Event::SoftError(icmp));
                }
            }
        }
        // There may be more of them.
        self.look_again_at(channel, channel);
    }

    /// Takes what a session has to send and to say, and arms its timer.
    fn dtls_progress(&mut self, key: Key, ecn: Ecn) {
        self.dtls_transmit(key);
        loop {
            let now = self.cx.now;
            let Some(d) = self.carriers.dtls.sessions.get_mut(key) else { return };
            let Some(said) = d.session.poll_event() else { break };
            match said {
                Said::Reachable => {
                    d.answered = Some(now);
                    let rtt = now - d.started;
                    if let Some(socket) = d.sctp {
                        self.sctp_session_answered(socket);
                    } else if let Some((conn, _)) = d.attempt {
                        self.carriers.dtls.events.push_back(CarrierEvent::Reachable {
                            attempt: conn,
                            session: SessionId::Dtls(key),
                            rtt,
                        });
                    }
                }
                Said::Connected => self.dtls_connected(key),
                Said::Received => self.dtls_take(key, ecn),
                Said::Closed => self.dtls_lost(key, None),
                Said::Failed(e) => self.dtls_lost(key, Some(e)),
            }
        }
        let Some(d) = self.carriers.dtls.sessions.get_mut(key) else { return };
        if let Some(at) = d.session.next_timeout()
            && d.armed.is_none_or(|armed| at < armed)
        {
            d.armed = Some(at);
            self.cx.timers.push(at, Due::Dtls(key).into());
        }
    }

    /// Sends what a session has to send. What the socket does not take is lost, as on the way, but for one datagram.
    fn dtls_transmit(&mut self, key: Key) {
        let Some(d) = self.carriers.dtls.sessions.get_mut(key) else { return };
        let Some(ch) = self.carriers.channels.get_mut(d.channel) else { return };
        while ch.writable {
            let next = d.blocked.take().or_else(|| d.session.poll_transmit().map(Sealed::one));
            let Some(sealed) = next else { return };
            match self.cx.net.send(ch.sock, &d.transmit_all(&sealed)) {
                Ok(()) => {}
                Err(e) if e.is_would_block() => {
                    ch.writable = false;
                    d.blocked = Some(sealed);
                }
                // About an earlier datagram (RFC 1122 section 4.1.3.3), or for good: an attempt ends with it.
                Err(e) => {
                    let channel = d.channel;
                    return self.dtls_icmp(channel, e);
                }
            }
        }
        while d.session.poll_transmit().is_some() {}
    }

    fn dtls_connected(&mut self, key: Key) {
        let Some(d) = self.carriers.dtls.sessions.get(key) else { return };
        if let Some((conn, _)) = d.attempt {
            return self
                .carriers
                .dtls
                .events
                .push_back(CarrierEvent::Established { attempt: conn, session: SessionId::Dtls(key) });
        }
        match self.carriers.channels.get(d.channel).map(|c| c.behind) {
            Some(Behind::Listener(listener)) => self.dtls_arrived(listener, key),
            Some(Behind::Sctp) => {
                if let Some(socket) = d.sctp {
                    self.sctp_session_up(socket);
                }
            }
            _ => self.dtls_drop(key),
        }
    }

    /// The session has won the race for a connection.
    pub(crate) fn dtls_won(&mut self, conn: Key, key: Key) {
        let (Some(d), Some(c)) = (self.carriers.dtls.sessions.get_mut(key), self.conns.get_mut(conn)) else { return };
        d.attempt = None;
        d.conn = Some(conn);
        c.flow = FlowId::Dtls { dtls: key };
        if let Some(ch) = self.carriers.channels.get_mut(d.channel) {
            ch.behind = Behind::Conn(conn);
        }
    }

    /// Gives a connection what has arrived for it.
    pub(crate) fn dtls_take(&mut self, key: Key, ecn: Ecn) {
        if let Some((socket, remote)) = self.carriers.dtls.sessions.get(key).and_then(|d| Some((d.sctp?, d.remote))) {
            // What a packet says may end the session.
            let came = Came { from: remote, to: None, marked: ecn == Ecn::Ce };
            while let Some(packet) = self.carriers.dtls.sessions.get_mut(key).and_then(|d| d.session.recv()) {
                self.sctp_datagram(socket, came, &packet);
            }
            return;
        }
        let Some(conn) = self.carriers.dtls.sessions.get(key).and_then(|d| d.conn) else { return };
        let mut got = false;
        while let Some(data) = self.carriers.dtls.sessions.get_mut(key).and_then(|d| d.session.recv()) {
            got |= self.queue_datagram(conn, ReceivedDatagram { data, ecn });
        }
        if got {
            self.arrived(conn);
        }
    }

    /// A session is over: the peer has closed it (`None`), or it has failed.
    fn dtls_lost(&mut self, key: Key, error: Option<DtlsError>) {
        let Some(d) = self.carriers.dtls.sessions.get_mut(key) else { return };
        if let Some(socket) = d.sctp {
            let remote = d.remote;
            let end = error.map_or(SessionEnd::Closed, SessionEnd::Failed);
            self.sctp_session_lost(socket, remote, &end);
            return self.dtls_drop(key);
        }
        d.lost = Some(error.clone().map_or(ConnectionError::Closed, connection_error));
        if let Some((conn, _)) = d.attempt {
            let error = error.map_or(AttemptError::ClosedByPeer, attempt_error);
            return self.carriers.dtls.events.push_back(CarrierEvent::Failed {
                attempt: conn,
                session: SessionId::Dtls(key),
                error,
            });
        }
        let Some(conn) = d.conn else {
            tracing::debug!(target: "neater::listen", "handshake failed: {error:?}");
            return self.dtls_drop(key);
        };
        // The program may keep the connection as long as it likes; the address is its next client's.
        if let Some(ch) = self.carriers.channels.get_mut(d.channel)
            && let (Kind::Dtls(peers), Behind::Listener(_)) = (&mut ch.kind, ch.behind)
        {
            peers.remove(d.peer(), key);
        }
        let Some(c) = self.conns.get(conn) else { return };
        if c.is_greeting() {
            return self.greeting_failed(conn, &error.map_or(ConnectionError::Closed, connection_error));
        }
        match (c.state, error) {
            // What has arrived can still be read, and then the end; what the peer can no longer take is reported.
            (ConnectionState::Established, None) => {
                self.end_message(conn);
                self.report_unsent(conn, &ConnectionError::Closed);
                self.notify(conn, Event::Readable);
                self.notify(conn, Event::Closed);
                self.set_closed(conn);
            }
            (ConnectionState::Closed, _) => {}
            (_, error) => self.fail_connection(conn, error.map_or(ConnectionError::Closed, connection_error)),
        }
    }

    /// See [`Carriers::drop_dtls`].
    pub(crate) fn dtls_drop(&mut self, key: Key) {
        let listeners = &self.listeners;
        self.carriers.drop_dtls(&mut self.cx, key, |l| listeners.contains(l));
    }

    /// A listener stops: handshakes under way are over. True if its socket is still needed.
    pub(crate) fn dtls_stop_listening(&mut self, channel: Key) -> bool {
        if let Some(Channel { kind: Kind::Dtls(peers), .. }) = self.carriers.channels.get_mut(channel) {
            peers.unverified.clear();
        }
        for key in self.dtls_peers(channel) {
            if self.carriers.dtls.sessions.get(key).is_some_and(|d| !d.is_taken()) {
                self.dtls_drop(key);
            }
        }
        !self.dtls_peers(channel).is_empty()
    }

    /// Sends packets of SCTP's, each `segment` bytes long but the last: as many datagrams of one length, in one call.
    ///
    /// # Errors
    /// What the network says: `WouldBlock` means that the packets are kept until the socket takes them.
    pub(crate) fn dtls_send_packets(&mut self, key: Key, packets: &[u8], segment: usize) -> Result<(), NetError> {
        let now = self.cx.now;
        let Some(d) = self.carriers.dtls.sessions.get_mut(key) else { return Ok(()) };
        let Some(ch) = self.carriers.channels.get_mut(d.channel) else { return Ok(()) };
        for packet in packets.chunks(segment.max(1)) {
            if d.session.send(now, packet).is_err() {
                // What the session has said about its end is heard in the next turn.
                self.cx.timers.push(now, Due::Dtls(key).into());
                return Ok(());
            }
        }
        let mut result = Ok(());
        let mut next = d.session.poll_transmit();
        while let Some(first) = next {
            let mut sealed = Sealed::one(first);
            next = d.session.poll_transmit();
            while let Some(datagram) = next.take_if(|datagram| sealed.takes(datagram)) {
                sealed.bytes.extend_from_slice(&datagram);
                next = d.session.poll_transmit();
            }
            let sent = self.cx.net.send(ch.sock, &d.transmit_all(&sealed));
            if sent.is_err_and(|e| e.is_would_block()) {
                ch.writable = false;
                d.blocked = Some(sealed);
            }
            result = result.and(sent);
        }
        result
    }
}

impl DtlsCarrier {
    /// Writes as much of a connection's queue as the socket takes.
    pub(crate) fn send<N: Net>(
        &mut self,
        channels: &mut Slab<Channel>,
        cx: &mut Context<N>,
        key: Key,
        queue: &mut SendQueue,
        budget: &mut Budget,
        done: &mut Flushed,
    ) {
        // Calls do not look at the clock, and there may have been no turn for a long time.
        let now = cx.net.now();
        let Some(d) = self.sessions.get_mut(key) else { return };
        let Some(ch) = channels.get_mut(d.channel) else { return };
        let mut retried = false;
        while let Some(front) = queue.queue.front() {
            if !ch.writable || d.blocked.is_some() || !budget.take_datagram(front.data.len()) {
                return;
            }
            let n = front.data.len();
            let sent = d.session.send(now, &front.data);
            let id = queue.pop();
            let failed = match sent {
                Ok(()) => None,
                Err(neater_dtls::SendError::TooLarge) => {
                    Some(SendError::MessageTooLarge { max: d.session.max_message(UDP_MAX) })
                }
                Err(_) => {
                    let lost = d.lost.clone().unwrap_or(ConnectionError::Closed);
                    Some(SendError::Connection(lost))
                }
            };
            let mut failed = failed;
            while let Some(datagram) = d.session.poll_transmit() {
                match cx.net.send(ch.sock, &d.transmit(&datagram)) {
                    Ok(()) => {}
                    Err(e) if e.is_would_block() => {
                        ch.writable = false;
                        d.blocked = Some(Sealed::one(datagram));
                        break;
                    }
                    // An ICMP error of an earlier datagram: not this one's fault.
                    Err(e) if e.kind == ErrorKind::ConnectionRefused && !core::mem::replace(&mut retried, true) => {
                        let _ = cx.net.send(ch.sock, &d.transmit(&datagram));
                    }
                    Err(e) if e.kind == ErrorKind::MessageTooLarge => {
                        failed = Some(SendError::MessageTooLarge { max: 0 });
                    }
                    Err(e) => failed = Some(SendError::Connection(ConnectionError::Net(e))),
                }
            }
            match (failed, id) {
                (None, id) => {
                    done.bytes += n;
                    done.sent.extend(id);
                }
                (Some(error), Some(id)) => done.failed.push((id, error)),
                (Some(_), None) => {}
            }
        }
        if d.session.is_over() {
            // What the session has said about its end is handled in the next turn.
            cx.timers.push(now, Due::Dtls(key).into());
        }
    }
}
