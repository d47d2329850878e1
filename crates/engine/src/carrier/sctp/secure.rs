//! SCTP over DTLS (RFC 8261): packets are the messages of a session.
//!
//! *Responsible for* what ties a socket of [`super`] to a channel of DTLS sessions ([`crate::dtls`]): whose session a packet goes
//! through, when a client's association may begin to speak, and what the end of a session means to its associations. *Not
//! responsible for* the sessions: who may begin one, who has proved an address, who makes room.
//!
//! *Invariants*: an association has one session, is gone with it, and keeps it; a client's session is used by nobody else, a
//! listener's share a socket. What a stranger says (ICMP) is heard by a client that has no session yet, and by nobody else: how large
//! packets may be is found out by probes alone (RFC 8261 section 4.1).

use super::socket::PACKET_MAX;
use super::{Below, LINGER, SctpSocket};
use crate::carrier::SessionId;
use crate::carrier::channel::{Behind, Channel, Kind};
use crate::carrier::dispatch::{CarrierSocket, Due};
use crate::carrier::dtls::{Dtls, Peers};
use crate::carrier::event::CarrierEvent;

use crate::Engine;
use crate::event::AttemptError;
use crate::request::Compiled;
use neater_base::Key;
use neater_base::net::{ErrorKind, Net, NetError, Sock, SocketOptions};
use neater_dtls::{DtlsError, Session};
use neater_sctp::{CloseReason, Train};
use neater_tls::ServerName;
use std::net::SocketAddr;

/// Why the session below an association is over.
#[derive(Clone, Debug)]
pub(crate) enum SessionEnd {
    /// The peer has closed it.
    Closed,
    /// The peer has come back to its address without it.
    Superseded,
    /// It has failed.
    Failed(DtlsError),
}

impl SessionEnd {
    fn reason(&self) -> CloseReason {
        match self {
            Self::Closed => {
                CloseReason::PeerAborted { cause: None, reason: b"it has closed the DTLS session".to_vec() }
            }
            Self::Superseded => CloseReason::PeerAborted { cause: None, reason: b"it has restarted".to_vec() },
            Self::Failed(DtlsError::NoAnswer) => CloseReason::Unreachable,
            Self::Failed(_) => CloseReason::PeerMisbehaved("the DTLS session has failed"),
        }
    }
}

impl<N: Net> Engine<N> {
    /// A socket for one association of a client's, with a session that begins to shake hands.
    pub(super) fn open_sctp_session(
        &mut self,
        (addr, name): (SocketAddr, &str),
        request: &Compiled,
        options: &SocketOptions,
    ) -> Result<Key, AttemptError> {
        let config = request.setups.dtls.0.as_ref().ok_or(AttemptError::Net(ErrorKind::Unsupported.into()))?;
        let name = ServerName::try_from(name.to_owned()).map_err(|_| AttemptError::NoAddress)?;
        let with = super::socket::wishes(options);
        let channel = self.carriers.channels.next_key();
        let sock = self.cx.net.udp(CarrierSocket::channel(channel).token(), addr, &with).map_err(AttemptError::Net)?;
        if let Err(e) = self.cx.net.udp_connect(sock, addr) {
            self.cx.net.close(sock);
            return Err(AttemptError::Net(e));
        }
        let session = Session::client(config, name, self.cx.now, &mut self.cx.rng);
        let socket = self.insert_sctp_session_socket(sock, channel, addr, options, false);
        let dtls = self.carriers.dtls.sessions.insert(Dtls::below_sctp(session, channel, addr, self.cx.now, socket));
        let peers = Box::new(Peers::of(addr.into(), dtls).below_sctp(socket));
        let mut ch = Channel::new(sock, Kind::Dtls(peers), Behind::Sctp, addr, self.cx.now);
        (ch.connected, ch.writable, ch.readable) = (true, true, true);
        self.carriers.channels.insert(ch);
        // The first flight leaves, and an error comes, when the attempt is in the books.
        self.cx.timers.push(self.cx.now, Due::Dtls(dtls).into());
        Ok(socket)
    }

    /// A listener's socket, for the sessions of its clients.
    pub(super) fn listen_sctp_sessions(
        &mut self,
        listener: Key,
        addr: SocketAddr,
        options: &SocketOptions,
    ) -> Result<Key, AttemptError> {
        let channel = self.carriers.channels.next_key();
        let with = super::socket::wishes(options);
        let sock = self.cx.net.udp(CarrierSocket::channel(channel).token(), addr, &with).map_err(AttemptError::Net)?;
        let socket = self.insert_sctp_session_socket(sock, channel, addr, options, true);
        let peers = Box::new(Peers::default().below_sctp(socket));
        let mut ch = Channel::new(sock, Kind::Dtls(peers), Behind::Listener(listener), addr, self.cx.now);
        (ch.connected, ch.writable) = (true, true);
        self.carriers.channels.insert(ch);
        Ok(socket)
    }

    fn insert_sctp_session_socket(
        &mut self,
        sock: Sock,
        channel: Key,
        addr: SocketAddr,
        options: &SocketOptions,
        server: bool,
    ) -> Key {
        let socket = SctpSocket::new(sock, Below::Dtls, addr.is_ipv6(), options, server);
        // A client's association has nothing to say before the session is up.
        self.carriers.sctp.sockets.insert(SctpSocket { channel: Some(channel), writable: server, ..socket })
    }

    /// The session that leads to a peer.
    pub(super) fn sctp_session(&self, socket: Key, peer: SocketAddr) -> Option<Key> {
        let channel = self.carriers.sctp.sockets.get(socket)?.channel?;
        match &self.carriers.channels.get(channel)?.kind {
            Kind::Dtls(peers) => peers.of_remote(peer).next(),
            _ => None,
        }
    }

    /// Sends a train of packets through the session that leads there. Without one it is lost, as on the way.
    pub(super) fn sctp_seal(&mut self, socket: Key, train: &Train, packets: &[u8]) -> Result<(), NetError> {
        let Some(session) = self.sctp_session(socket, train.route.remote) else { return Ok(()) };
        self.dtls_send_packets(session, packets, train.segment)
    }

    /// The peer has answered the client's hello.
    pub(crate) fn sctp_session_answered(&mut self, socket: Key) {
        let now = self.cx.now;
        for key in self.sctps_on(socket, None) {
            let Some(a) = self.carriers.sctp.associations.get_mut(key).filter(|a| !a.answered) else { continue };
            a.answered = true;
            let (attempt, rtt) = (a.attempt, now - a.started);
            if let Some((conn, _)) = attempt {
                self.carriers.sctp.events.push_back(CarrierEvent::Reachable {
                    attempt: conn,
                    session: SessionId::Sctp(key),
                    rtt,
                });
            }
        }
    }

    /// An association's packets may be as long as its session lets them be: an endpoint was made for the version of DTLS that takes
    /// most, and the sessions of a listener's differ.
    pub(super) fn sctp_fit_session(&mut self, key: Key) {
        let Some((end, id, route)) = self.carriers.sctp.associations.get(key).map(|a| (a.end, a.id, a.route)) else {
            return;
        };
        let Some((socket, mtu)) = self.carriers.sctp.endpoints.get(end).map(|e| (e.socket, e.profile.mtu)) else {
            return;
        };
        let Some(session) = self.sctp_session(socket, route).and_then(|s| self.carriers.dtls.sessions.get(s)) else {
            return;
        };
        let headers = if route.is_ipv6() { 48 } else { 28 };
        let most = session.largest_in(usize::from(mtu).saturating_sub(headers)).min(usize::from(PACKET_MAX));
        if let Some(e) = self.carriers.sctp.endpoints.get_mut(end) {
            e.endpoint.set_largest_packet(id, most as u16);
        }
    }

    /// The session is up: a client's association says its INIT.
    pub(crate) fn sctp_session_up(&mut self, socket: Key) {
        for key in self.sctps_on(socket, None) {
            self.sctp_fit_session(key);
        }
        self.sctp_socket_writable(socket);
        let ends = self.carriers.sctp.sockets.get(socket).map(|s| s.ends.values().copied().collect::<Vec<_>>());
        for end in ends.unwrap_or_default() {
            self.mark_sctp(end);
        }
    }

    /// The session that led to a peer is over, and its associations with it. What the peer had sent
    /// before comes first: data, the end of a shutdown, or an association that is new.
    pub(crate) fn sctp_session_lost(&mut self, socket: Key, peer: SocketAddr, end: &SessionEnd) {
        let ends = self.carriers.sctp.sockets.get(socket).map(|s| s.ends.values().copied().collect::<Vec<_>>());
        for sctp_end in ends.unwrap_or_default() {
            self.sctp_events(sctp_end);
        }
        for key in self.sctps_on(socket, Some(peer)) {
            let Some(a) = self.carriers.sctp.associations.get_mut(key).filter(|a| !a.over) else { continue };
            let (sctp_end, id, attempt) = (a.end, a.id, a.attempt);
            // Nothing that it would still send gets there.
            if let Some(session) = a.dtls.take() {
                self.sctp_leaves_session(session);
            }
            // A session that is closed in place of the last chunks of a shutdown loses no data.
            let shut = self.carriers.sctp.endpoints.get(sctp_end).is_some_and(|e| e.endpoint.is_shut(id));
            let shut = shut && matches!(end, SessionEnd::Closed);
            let error = match end {
                SessionEnd::Failed(e) => crate::carrier::dtls::attempt_error(e.clone()),
                SessionEnd::Closed | SessionEnd::Superseded => AttemptError::ClosedByPeer,
            };
            match attempt.filter(|_| !shut) {
                Some((conn, _)) => {
                    if let Some(a) = self.carriers.sctp.associations.get_mut(key) {
                        a.over = true;
                    }
                    self.carriers.sctp.events.push_back(CarrierEvent::Failed {
                        attempt: conn,
                        session: SessionId::Sctp(key),
                        error,
                    });
                }
                None => {
                    if let Some(e) = self.carriers.sctp.endpoints.get_mut(sctp_end) {
                        e.endpoint.end(id, if shut { CloseReason::Shutdown } else { end.reason() });
                    }
                    self.sctp_events(sctp_end);
                }
            }
            self.tidy_sctp(key);
        }
    }

    /// The network does not take a client's hello to where it should go.
    pub(crate) fn sctp_session_refused(&mut self, socket: Key, error: NetError) {
        for key in self.sctps_on(socket, None) {
            if self.carriers.sctp.associations.get(key).is_some_and(|a| !a.connected && !a.over) {
                self.sctp_attempt_refused(key, error);
            }
        }
    }

    /// An association has gone. A listener's session without any is closed after a while in which a peer may still ask for the
    /// answers that it has missed.
    pub(super) fn sctp_leaves_session(&mut self, session: Key) {
        if self.carriers.dtls.sessions.get_mut(session).is_some_and(Dtls::leave) {
            self.cx.timers.push(self.cx.now + LINGER, Due::DtlsIncoming(session).into());
        }
    }

    /// Closes what a socket has of sessions, and itself, though its listener may be there until it has closed everything.
    pub(super) fn close_sctp_sessions(&mut self, channel: Key) {
        for session in self.dtls_peers(channel) {
            self.dtls_drop(session);
        }
        if let Some(ch) = self.carriers.channels.remove(channel) {
            self.cx.net.close(ch.sock);
        }
    }

    /// The associations on a socket, with this peer or with all.
    fn sctps_on(&self, socket: Key, peer: Option<SocketAddr>) -> Vec<Key> {
        let Some(s) = self.carriers.sctp.sockets.get(socket) else { return Vec::new() };
        let ends = s.ends.values().filter_map(|e| self.carriers.sctp.endpoints.get(*e));
        let all = ends.flat_map(|e| e.associations.values().copied());
        all.filter(|k| self.carriers.sctp.associations.get(*k).is_some_and(|a| peer.is_none_or(|p| a.route == p)))
            .collect()
    }
}
