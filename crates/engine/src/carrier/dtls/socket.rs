//! The sockets of DTLS sessions: a client's session has one for itself, those of a listener's
//! clients share one.
//!
//! *Responsible for* opening, reading and closing them, for listening, and for ICMP errors. *Not
//! responsible for* whose a datagram on a listener's socket is ([`super::incoming`]).

use super::peers::Peers;
use super::{Dtls, DtlsCarrier};
use crate::carrier::SessionId;
use crate::carrier::channel::ICMP_BUDGET;
use crate::carrier::event::CarrierEvent;
use crate::carrier::ids::CarrierSocket;
use crate::carrier::layer::LayerEvent;
use crate::carrier::peer::Peer;
use crate::context::Context;
use crate::event::AttemptError;
use crate::request::Compiled;
use neater_base::Key;
use neater_base::net::{Net, NetError, Ready, RecvBatch, Sock, SocketOptions};
use neater_dtls::ServerConfig;
use std::net::SocketAddr;

/// Batches of datagrams taken from one socket in a turn.
pub(in crate::carrier) const RECV_BUDGET: usize = 64;

/// A UDP socket with the sessions on it.
#[derive(Debug)]
pub(crate) struct DtlsSocket {
    pub(super) sock: Sock,
    pub(super) peers: Peers,
    /// The user of the layer, if that is what the socket is.
    pub(super) user: Option<Key>,
    /// Clients come to it, or came.
    server: bool,
    /// With what new clients are served; `None`: they are not.
    pub(super) serves: Option<Serves>,
    /// ICMP errors are to be reported.
    pub(super) soft_errors: bool,
    /// Worth reading, as far as is known.
    pub(super) readable: bool,
    /// Worth writing, as far as is known.
    pub(super) writable: bool,
    /// What a listener has opened it with, with the port that it got: the next that asks for the
    /// same gets it.
    opened_with: Option<Box<SocketOptions>>,
}

/// A listener, as far as its clients' handshakes concern it.
#[derive(Debug)]
pub(super) struct Serves {
    pub(super) listener: Key,
    pub(super) config: Option<ServerConfig>,
    soft_errors: bool,
}

impl Serves {
    pub(super) fn new(listener: Key, request: &Compiled) -> Self {
        Self { listener, config: request.setups.dtls.1.clone(), soft_errors: request.soft_errors }
    }
}

impl DtlsSocket {
    fn new(sock: Sock) -> Self {
        Self {
            sock,
            peers: Peers::default(),
            user: None,
            server: false,
            serves: None,
            soft_errors: false,
            readable: false,
            writable: true,
            opened_with: None,
        }
    }

    /// The socket of a client's session. Nothing has been read from it, so no event is promised.
    pub(super) fn client(sock: Sock, to: SocketAddr, session: Key, soft_errors: bool) -> Self {
        Self { peers: Peers::of(to.into(), session), soft_errors, readable: true, ..Self::new(sock) }
    }

    /// The socket of a listener's clients.
    pub(super) fn server(sock: Sock, serves: Serves) -> Self {
        Self { server: true, soft_errors: serves.soft_errors, serves: Some(serves), ..Self::new(sock) }
    }

    /// Whether clients come to it, or came.
    pub(super) fn is_server(&self) -> bool {
        self.server
    }

    /// Notes readiness; returns whether it is news that the socket can be written.
    fn note(&mut self, ready: Ready) -> bool {
        let writable = (ready.writable || ready.error) && !self.writable;
        self.readable |= ready.readable || ready.hangup || ready.error;
        self.writable |= writable;
        writable
    }
}

impl DtlsCarrier {
    /// Opens a socket, which is to be inserted next.
    pub(super) fn open_socket<N: Net>(
        &self,
        cx: &mut Context<N>,
        addr: SocketAddr,
        options: &SocketOptions,
    ) -> Result<(Key, Sock), AttemptError> {
        let key = self.sockets.next_key();
        let sock = cx.net.udp(CarrierSocket::dtls(key).token(), addr, options).map_err(AttemptError::Net)?;
        Ok((key, sock))
    }

    /// Closes a socket and the sessions on it.
    pub(in crate::carrier) fn close_socket<N: Net>(&mut self, cx: &mut Context<N>, socket: Key) {
        for session in self.sessions_on(socket) {
            self.drop_session(cx, session);
        }
        if let Some(s) = self.sockets.remove(socket) {
            cx.net.close(s.sock);
        }
    }

    /// The sessions on a socket.
    pub(super) fn sessions_on(&self, socket: Key) -> Vec<Key> {
        self.sockets.get(socket).map(|s| s.peers.keys().collect()).unwrap_or_default()
    }

    /// Whether one of the sessions on a socket is up.
    fn has_taken(&self, socket: Key) -> bool {
        let taken = |key| self.sessions.get(key).is_some_and(Dtls::is_taken);
        self.sockets.get(socket).is_some_and(|s| s.peers.keys().any(taken))
    }

    /// Listens at a UDP port: at the socket of a listener that has stopped, if one is left for its
    /// connections, since another cannot have its port.
    ///
    /// # Errors
    /// The error of the operating system. Nothing stays open then.
    pub(in crate::carrier) fn listen<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        listener: Key,
        addr: SocketAddr,
        request: &Compiled,
        options: &SocketOptions,
    ) -> Result<Key, AttemptError> {
        let serves = Serves::new(listener, request);
        let left = |s: &DtlsSocket| s.serves.is_none() && s.opened_with.as_deref() == Some(options);
        let left = self.sockets.iter().find(|(_, s)| left(s)).map(|(k, _)| k);
        if let Some((key, s)) = left.and_then(|key| Some((key, self.sockets.get_mut(key)?))) {
            (s.soft_errors, s.serves) = (serves.soft_errors, Some(serves));
            return Ok(key);
        }
        let (_, sock) = self.open_socket(cx, addr, options)?;
        let local = cx.net.local_addr(sock).inspect_err(|_| cx.net.close(sock))?;
        let opened_with = Some(Box::new(SocketOptions { local: Some(local), ..options.clone() }));
        Ok(self.sockets.insert(DtlsSocket { opened_with, ..DtlsSocket::server(sock, serves) }))
    }

    /// A listener stops at a socket. Handshakes under way are over; sessions that are in use go on,
    /// and the socket is closed with the last of them.
    pub(in crate::carrier) fn stop_listening<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        if let Some(s) = self.sockets.get_mut(key) {
            s.serves = None;
            s.peers.unverified.clear();
        }
        for session in self.sessions_on(key) {
            if self.sessions.get(session).is_some_and(|d| !d.is_taken()) {
                self.drop_session(cx, session);
            }
        }
        if self.sockets.get(key).is_some_and(|s| s.peers.is_empty())
            && let Some(s) = self.sockets.remove(key)
        {
            cx.net.close(s.sock);
        }
    }

    /// The socket itself.
    pub(in crate::carrier) fn sock(&self, key: Key) -> Option<Sock> {
        self.sockets.get(key).map(|s| s.sock)
    }

    /// The listener at a socket.
    pub(in crate::carrier) fn listener_at(&self, socket: Key) -> Option<Key> {
        Some(self.sockets.get(socket)?.serves.as_ref()?.listener)
    }

    /// Whether clients come to a socket, or came.
    pub(super) fn is_server(&self, socket: Key) -> bool {
        self.sockets.get(socket).is_some_and(DtlsSocket::is_server)
    }

    /// A socket is ready. True: [`DtlsCarrier::receive`] is to follow.
    pub(in crate::carrier) fn on_ready<N: Net>(&mut self, cx: &mut Context<N>, key: Key, ready: Ready) -> bool {
        let Some(s) = self.sockets.get_mut(key) else { return false };
        if s.note(ready) {
            self.on_writable(cx, key);
        }
        ready.readable || ready.hangup || ready.error
    }

    fn on_writable<N: Net>(&mut self, cx: &mut Context<N>, socket: Key) {
        let sessions = self.sessions_on(socket);
        for key in &sessions {
            self.transmit(cx, *key);
        }
        let Some(s) = self.sockets.get(socket) else { return };
        match s.user {
            Some(user) if s.writable && self.has_taken(socket) => {
                self.layer_events.push_back(LayerEvent::Writable { user });
            }
            Some(_) => {}
            None => {
                let conns = sessions.iter().filter_map(|key| self.sessions.get(*key)?.conn);
                self.events.extend(conns.map(|conn| CarrierEvent::Writable { conn }));
            }
        }
    }

    /// Takes a batch of datagrams from a socket, within the budget of a turn, which is
    /// [`RECV_BUDGET`] at first. `full`: its listener takes no more. True: there may be more, and
    /// the events come first.
    pub(in crate::carrier) fn receive<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        socket: Key,
        full: bool,
        budget: &mut usize,
    ) -> bool {
        // A session that ends may take the socket with it.
        let Some(s) = self.sockets.get(socket) else { return false };
        let sock = s.sock;
        if *budget == RECV_BUDGET && s.server && s.soft_errors {
            self.take_icmp_errors(cx, socket, sock);
        }
        if *budget == 0 {
            self.read_on_later(cx, socket);
            return false;
        }
        *budget -= 1;
        let mut batch = cx.batch.take().unwrap_or_else(|| Box::new(RecvBatch::default()));
        let more = match cx.net.recv(sock, &mut batch) {
            Ok(_) => {
                for (meta, data) in batch.filled() {
                    let peer = Peer::of(&meta);
                    for one in data.chunks(meta.stride.max(1)) {
                        self.on_datagram(cx, (socket, full), peer, one, meta.ecn);
                    }
                }
                !batch.drained
            }
            Err(e) if e.is_would_block() => false,
            Err(e) => {
                self.on_icmp(cx, socket, e);
                true
            }
        };
        cx.batch = Some(batch);
        if let Some(s) = self.sockets.get_mut(socket).filter(|_| !more) {
            s.readable = false;
        }
        more
    }

    /// There may be more at a socket: the next turn sees to it.
    fn read_on_later<N: Net>(&mut self, cx: &mut Context<N>, socket: Key) {
        cx.again = true;
        if !self.unread.contains(&socket) {
            self.unread.push(socket);
        }
    }

    /// The network reports an error about what was sent: to an attempt it is the end, as for QUIC;
    /// a session whose peer is authenticated does not end because of what a stranger may have sent.
    pub(super) fn on_icmp<N: Net>(&mut self, cx: &mut Context<N>, socket: Key, error: NetError) {
        let Some(s) = self.sockets.get(socket) else { return };
        let sock = s.sock;
        if s.server {
            return self.take_icmp_errors(cx, socket, sock);
        }
        if let Some(user) = s.user {
            // The queue of errors is emptied, so that the socket does not go on reporting them.
            for _ in 0..64 * ICMP_BUDGET {
                if cx.net.take_icmp_error(sock).is_none() {
                    break;
                }
            }
            if !self.has_taken(socket) {
                self.layer_events.push_back(LayerEvent::Refused { user, error });
            }
            return;
        }
        let Some((key, d)) = s.peers.keys().next().and_then(|key| Some((key, self.sessions.get(key)?))) else { return };
        match (d.attempt, d.conn) {
            (Some(attempt), _) if !d.session.is_connected() => self.events.push_back(CarrierEvent::Failed {
                attempt,
                session: SessionId::Dtls(key),
                error: AttemptError::Net(error),
            }),
            (None, Some(conn)) if s.soft_errors => {
                if let Some(error) = cx.net.take_icmp_error(sock) {
                    self.events.push_back(CarrierEvent::SoftError { conn, error });
                }
            }
            _ => {}
        }
    }

    /// Empties the queue of ICMP errors of a listener's socket, and reports each to the connections
    /// that it is about.
    fn take_icmp_errors<N: Net>(&mut self, cx: &mut Context<N>, socket: Key, sock: Sock) {
        for _ in 0..ICMP_BUDGET {
            let Some(error) = cx.net.take_icmp_error(sock) else { return };
            let (Some(remote), Some(s)) = (error.destination, self.sockets.get(socket)) else { continue };
            let about = s.peers.of_remote(remote).filter_map(|key| self.sessions.get(key)?.conn);
            self.events.extend(about.map(|conn| CarrierEvent::SoftError { conn, error }));
        }
        // There may be more of them.
        self.read_on_later(cx, socket);
    }

    /// The local address of a session's socket.
    pub(in crate::carrier) fn local_addr<N: Net>(&self, net: &N, key: Key) -> Option<SocketAddr> {
        let d = self.sessions.get(key)?;
        let bound = net.local_addr(self.sockets.get(d.socket)?.sock).ok()?;
        Some(d.peer().local(bound))
    }

    /// The socket of a session, if `conn` alone uses it.
    pub(in crate::carrier) fn socket_of(&self, key: Key, conn: Key) -> Option<Sock> {
        let d = self.sessions.get(key).filter(|d| d.conn == Some(conn))?;
        self.sockets.get(d.socket).filter(|s| !s.server).map(|s| s.sock)
    }

    /// Whether a session's socket takes datagrams, as far as is known.
    pub(in crate::carrier) fn may_write(&self, key: Key) -> bool {
        self.sessions.get(key).and_then(|d| self.sockets.get(d.socket)).is_some_and(|s| s.writable)
    }
}
