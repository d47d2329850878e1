//! DTLS over UDP: sessions, the sockets they use, and what they carry.
//!
//! *Responsible for* moving datagrams between sockets and [`Session`]s, for their timers, and for
//! what becomes of a session: an attempt of a race, a connection, an incoming handshake, or a layer
//! for the packets of another carrier. A client's session has a socket of its own; those of a
//! listener share one, where each peer that has shaken hands becomes a connection (RFC 9623 section
//! 4.7.2). *Not* responsible for the protocol, which is `neater-dtls`'s.
//!
//! *Invariants*: a listener sets up state for nothing but the beginning of a ClientHello: for at
//! most [`crate::Limits::unverified`] clients that have not proved their address ([`peers`]),
//! [`crate::Limits::handshakes`] that have, and [`crate::Limits::udp_peers`] peers at once; which
//! one makes room is decided as for other handshakes ([`crate::eviction`]). A session that is over
//! holds no address.

mod incoming;
mod layer;
mod peers;
mod socket;

pub(in crate::carrier) use socket::RECV_BUDGET;

use crate::carrier::SessionId;
use crate::carrier::event::{CarrierEvent, Events};
use crate::carrier::ids::Due;
use crate::carrier::layer::{LayerEnd, LayerEvent, LayerEvents};
use crate::carrier::peer::Peer;
use crate::context::Context;
use crate::event::{AttemptError, ConnectionError, SendError};
use crate::queue::{Budget, Flushed, SendQueue};
use crate::request::Compiled;
use core::time::Duration;
use neater_base::net::{Ecn, ErrorKind, Net, Sock, SocketOptions, Transmit};
use neater_base::{Instant, Key, Slab};
use neater_dtls::{DtlsError, Event, HelloRandom, Session};
use neater_tls::{ServerName, TlsError};
use socket::DtlsSocket;
use std::net::{IpAddr, SocketAddr};

/// DTLS (RFC 9147, 6347) over UDP.
#[derive(Debug, Default)]
pub(crate) struct DtlsCarrier {
    pub(in crate::carrier) events: Events,
    /// What is reported to the users of layers.
    pub(in crate::carrier) layer_events: LayerEvents,
    pub(in crate::carrier) sessions: Slab<Dtls>,
    pub(in crate::carrier) sockets: Slab<DtlsSocket>,
    /// Sockets that were not read empty within the budget.
    pub(in crate::carrier) unread: Vec<Key>,
}

/// The largest datagram over UDP and IPv4, in bytes.
const UDP_MAX: usize = 65_507;
/// How long a client may take over the handshake with a listener.
pub(crate) const INCOMING_TIMEOUT: Duration = crate::context::HANDSHAKE_TIMEOUT;

/// Datagrams of one length behind each other, of which the last may be shorter: for the system to
/// cut up.
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
    socket: Key,
    pub(crate) remote: SocketAddr,
    /// At which address of this host a listener's client found it, and by which interface (see
    /// [`Peer`]).
    at: (Option<IpAddr>, u32),
    /// The random of a listener's client.
    random: Option<HelloRandom>,
    attempt: Option<Key>,
    /// The connection that it carries.
    conn: Option<Key>,
    /// It was reported as a listener's, and is not accepted or refused yet.
    offered: bool,
    /// The user of the layer that it is a path of.
    user: Option<Key>,
    /// How many of the user's sessions use it.
    users: usize,
    started: Instant,
    /// When the peer has answered, if it has.
    answered: Option<Instant>,
    armed: Option<Instant>,
    /// A datagram that the socket could not take.
    blocked: Option<Sealed>,
    /// The peer has ended it ([`ConnectionError::Closed`]), or it has failed.
    lost: Option<ConnectionError>,
    /// The mark of the last datagram from the peer.
    ecn: Ecn,
}

impl Dtls {
    fn new(session: Session, socket: Key, remote: SocketAddr, started: Instant) -> Self {
        Self {
            session,
            socket,
            remote,
            at: (None, 0),
            random: None,
            attempt: None,
            conn: None,
            offered: false,
            user: None,
            users: 0,
            started,
            answered: None,
            armed: None,
            blocked: None,
            lost: None,
            ecn: Ecn::NotEct,
        }
    }

    /// Its handshake is finished, and it is used or may be.
    fn is_taken(&self) -> bool {
        self.conn.is_some() || self.offered || self.user.is_some() && self.session.is_connected()
    }

    /// One of the user's sessions does not use it any more. True: none does.
    fn leave(&mut self) -> bool {
        self.users = self.users.saturating_sub(1);
        self.users == 0
    }

    pub(crate) fn answered_after(&self) -> Option<Duration> {
        self.answered.map(|at| at - self.started)
    }

    /// Whether it has had at least so much time to be answered, and was not.
    pub(crate) fn silent_since(&self, now: Instant, fair: Duration) -> bool {
        self.answered.is_none() && now - self.started >= fair
    }

    /// It is an attempt for this connection from now on.
    pub(crate) fn adopt(&mut self, attempt: Key) {
        self.attempt = Some(attempt);
    }

    /// What it is an attempt for.
    pub(crate) fn attempt(&self) -> Option<Key> {
        self.attempt
    }

    fn peer(&self) -> Peer {
        Peer { remote: self.remote, here: self.at.0, interface: self.at.1 }
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

fn attempt_error(error: DtlsError) -> AttemptError {
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

impl DtlsCarrier {
    /// Opens a socket with a session with a server, and returns both: the socket's key, the socket,
    /// the session. The first flight leaves, and an error is reported, when the user has noted the
    /// session.
    fn open_client<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        (addr, name): (SocketAddr, &str),
        request: &Compiled,
        options: &SocketOptions,
    ) -> Result<(Key, Sock, Key), AttemptError> {
        let config = request.setups.dtls.0.as_ref().ok_or(AttemptError::Net(ErrorKind::Unsupported.into()))?;
        let name = ServerName::try_from(name.to_owned()).map_err(|_| AttemptError::NoAddress)?;
        let session = Session::client(config, name, cx.now, &mut cx.rng);
        self.insert_client(cx, (addr, session), request, options)
    }

    /// The same, with the server of a session that is up.
    fn open_client_beside<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        (addr, beside): (SocketAddr, Key),
        request: &Compiled,
        options: &SocketOptions,
    ) -> Result<(Key, Sock, Key), AttemptError> {
        let config = request.setups.dtls.0.as_ref().ok_or(AttemptError::Net(ErrorKind::Unsupported.into()))?;
        let beside = self.sessions.get(beside).ok_or(AttemptError::ClosedByPeer)?;
        let session = Session::beside(&beside.session, config, cx.now, &mut cx.rng);
        self.insert_client(cx, (addr, session.ok_or(AttemptError::ClosedByPeer)?), request, options)
    }

    fn insert_client<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        (addr, session): (SocketAddr, Session),
        request: &Compiled,
        options: &SocketOptions,
    ) -> Result<(Key, Sock, Key), AttemptError> {
        let (socket, sock) = self.open_socket(cx, addr, options)?;
        if let Err(e) = cx.net.udp_connect(sock, addr) {
            cx.net.close(sock);
            return Err(AttemptError::Net(e));
        }
        let session = self.sessions.insert(Dtls::new(session, socket, addr, cx.now));
        self.sockets.insert(DtlsSocket::client(sock, addr, session, request.soft_errors));
        cx.timers.push(cx.now, Due::Dtls(session).into());
        Ok((socket, sock, session))
    }

    /// Begins an attempt: a session with a server, on a socket of its own.
    ///
    /// # Errors
    /// Why this host cannot make it. Nothing has been sent then.
    pub(in crate::carrier) fn connect<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        attempt: Key,
        to: (SocketAddr, &str),
        request: &Compiled,
        options: &SocketOptions,
    ) -> Result<Key, AttemptError> {
        let (_, _, session) = self.open_client(cx, to, request, options)?;
        if let Some(d) = self.sessions.get_mut(session) {
            d.attempt = Some(attempt);
        }
        Ok(session)
    }

    /// Ends a session, and notifies the peer if there is one. A socket without sessions goes with
    /// the last, unless a listener listens at it.
    pub(in crate::carrier) fn drop_session<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(mut d) = self.sessions.remove(key) else { return };
        d.session.close(cx.now);
        let Some(s) = self.sockets.get_mut(d.socket) else { return };
        while let Some(datagram) = d.session.poll_transmit() {
            if s.writable {
                // A farewell may be lost.
                let _ = cx.net.send(s.sock, &d.transmit(&datagram));
            }
        }
        s.peers.remove(d.peer(), key);
        if s.peers.is_empty()
            && s.serves.is_none()
            && let Some(s) = self.sockets.remove(d.socket)
        {
            cx.net.close(s.sock);
        }
    }

    /// A session's deadline has passed. Returns its socket if that may have something unread, which
    /// is to be read first.
    pub(in crate::carrier) fn begin_timeout<N>(&mut self, cx: &Context<N>, key: Key) -> Option<Key> {
        let d = self.sessions.get_mut(key)?;
        d.armed = d.armed.filter(|at| *at > cx.now);
        Some(d.socket).filter(|socket| self.sockets.get(*socket).is_some_and(|s| s.readable))
    }

    /// The same, after reading.
    pub(in crate::carrier) fn on_timeout<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(d) = self.sessions.get_mut(key) else { return };
        d.session.handle_timeout(cx.now);
        self.progress(cx, key, Ecn::NotEct);
    }

    /// Takes what a session has to send and to report, and arms its timer.
    fn progress<N: Net>(&mut self, cx: &mut Context<N>, key: Key, ecn: Ecn) {
        self.transmit(cx, key);
        loop {
            let now = cx.now;
            let Some(d) = self.sessions.get_mut(key) else { return };
            let Some(event) = d.session.poll_event() else { break };
            match event {
                Event::Reachable => {
                    d.answered = Some(now);
                    let rtt = now - d.started;
                    if let Some(user) = d.user {
                        self.layer_events.push_back(LayerEvent::Answered { user });
                    } else if let Some(attempt) = d.attempt {
                        let session = SessionId::Dtls(key);
                        self.events.push_back(CarrierEvent::Reachable { attempt, session, rtt });
                    }
                }
                Event::Connected => self.on_connected(cx, key),
                Event::Received => self.take_received(key, ecn),
                Event::Closed => self.on_lost(cx, key, None),
                Event::Failed(e) => self.on_lost(cx, key, Some(e)),
            }
        }
        let Some(d) = self.sessions.get_mut(key) else { return };
        if let Some(at) = d.session.next_timeout()
            && d.armed.is_none_or(|armed| at < armed)
        {
            d.armed = Some(at);
            cx.timers.push(at, Due::Dtls(key).into());
        }
    }

    /// Sends what a session has to send. What the socket does not take is lost, as on the way, but
    /// for one datagram.
    fn transmit<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(d) = self.sessions.get_mut(key) else { return };
        let Some(s) = self.sockets.get_mut(d.socket) else { return };
        while s.writable {
            let next = d.blocked.take().or_else(|| d.session.poll_transmit().map(Sealed::one));
            let Some(sealed) = next else { return };
            match cx.net.send(s.sock, &d.transmit_all(&sealed)) {
                Ok(()) => {}
                Err(e) if e.is_would_block() => {
                    s.writable = false;
                    d.blocked = Some(sealed);
                }
                // About an earlier datagram (RFC 1122 section 4.1.3.3), or for good: an attempt
                // ends with it.
                Err(e) => {
                    let socket = d.socket;
                    return self.on_icmp(cx, socket, e);
                }
            }
        }
        while d.session.poll_transmit().is_some() {}
    }

    fn on_connected<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(d) = self.sessions.get(key) else { return };
        if let Some(attempt) = d.attempt {
            return self.events.push_back(CarrierEvent::Established { attempt, session: SessionId::Dtls(key) });
        }
        match d.user {
            _ if self.is_server(d.socket) => self.on_arrived(cx, key),
            Some(user) => self.layer_events.push_back(LayerEvent::Up { user }),
            None => self.drop_session(cx, key),
        }
    }

    /// A session has won the race for a connection, which it carries from now on.
    pub(in crate::carrier) fn take(&mut self, key: Key, conn: Key) {
        if let Some(d) = self.sessions.get_mut(key) {
            d.attempt = None;
            d.conn = Some(conn);
        }
    }

    /// Reports to the connection of a session what has come before it had one.
    pub(in crate::carrier) fn take_early(&mut self, key: Key) {
        let Some(d) = self.sessions.get(key) else { return };
        let ecn = if self.is_server(d.socket) { d.ecn } else { Ecn::NotEct };
        self.take_received(key, ecn);
        if self.sessions.get(key).is_some_and(|d| d.lost.is_some()) {
            self.report_end(key);
        }
    }

    /// Reports the messages that have arrived.
    fn take_received(&mut self, key: Key, ecn: Ecn) {
        let Some(d) = self.sessions.get_mut(key) else { return };
        if let Some(user) = d.user {
            let from = d.remote;
            while let Some(data) = d.session.recv() {
                self.layer_events.push_back(LayerEvent::Packet { user, from, ecn, data });
            }
        } else if let Some(conn) = d.conn {
            while let Some(data) = d.session.recv() {
                self.events.push_back(CarrierEvent::Datagram { conn, data, ecn });
            }
        } else {
            d.ecn = ecn;
        }
    }

    /// A session is over: the peer has closed it (`None`), or it has failed.
    fn on_lost<N: Net>(&mut self, cx: &mut Context<N>, key: Key, error: Option<DtlsError>) {
        let Some(d) = self.sessions.get_mut(key) else { return };
        if let Some(user) = d.user {
            let end = error.map_or(LayerEnd::Closed, |e| LayerEnd::Failed(attempt_error(e)));
            self.layer_events.push_back(LayerEvent::Lost { user, from: d.remote, end });
            return self.drop_session(cx, key);
        }
        d.lost = Some(error.clone().map_or(ConnectionError::Closed, connection_error));
        if let Some(attempt) = d.attempt {
            let error = error.map_or(AttemptError::ClosedByPeer, attempt_error);
            let session = SessionId::Dtls(key);
            return self.events.push_back(CarrierEvent::Failed { attempt, session, error });
        }
        if d.conn.is_some() {
            self.report_end(key);
        } else if !d.offered {
            tracing::debug!(target: "neater::listen", "handshake failed: {error:?}");
            self.drop_session(cx, key);
        }
    }

    /// Reports the end of a session to its connection, which may be kept for as long as the program
    /// likes; the address is its next client's.
    fn report_end(&mut self, key: Key) {
        let Some(d) = self.sessions.get(key) else { return };
        if let Some(s) = self.sockets.get_mut(d.socket)
            && s.user.is_none()
            && s.is_server()
        {
            s.peers.remove(d.peer(), key);
        }
        match (d.conn, d.lost.clone()) {
            (Some(conn), Some(ConnectionError::Closed)) => self.events.push_back(CarrierEvent::FlowClosed { conn }),
            (Some(conn), Some(error)) => self.events.push_back(CarrierEvent::FlowFailed { conn, error }),
            _ => {}
        }
    }

    /// Writes as much of a connection's queue as the socket takes.
    pub(crate) fn send<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        key: Key,
        queue: &mut SendQueue,
        budget: &mut Budget,
        done: &mut Flushed,
    ) {
        // Calls do not look at the clock, and there may have been no turn for a long time.
        let now = cx.net.now();
        let Some(d) = self.sessions.get_mut(key) else { return };
        let Some(s) = self.sockets.get_mut(d.socket) else { return };
        let mut retried = false;
        while let Some(front) = queue.queue.front() {
            if !s.writable || d.blocked.is_some() || !budget.take_datagram(front.data.len()) {
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
                match cx.net.send(s.sock, &d.transmit(&datagram)) {
                    Ok(()) => {}
                    Err(e) if e.is_would_block() => {
                        s.writable = false;
                        d.blocked = Some(Sealed::one(datagram));
                        break;
                    }
                    // An ICMP error of an earlier datagram: not this one's fault.
                    Err(e) if e.kind == ErrorKind::ConnectionRefused && !core::mem::replace(&mut retried, true) => {
                        let _ = cx.net.send(s.sock, &d.transmit(&datagram));
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
            // The session's report of its end is handled in the next turn.
            cx.timers.push(now, Due::Dtls(key).into());
        }
    }
}
