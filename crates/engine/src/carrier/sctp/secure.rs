//! SCTP over DTLS (RFC 8261): packets are the messages of a session.
//!
//! *Responsible for* what ties a socket of [`super`] to a packet layer ([`crate::carrier::layer`]): which path a packet takes, when a
//! client's association may begin to send, and what the end of a path means to its associations. *Not responsible for* the layer: who
//! may begin a session, who has proved an address, who makes room.
//!
//! *Invariants*: an association has one path, is gone with it, and keeps it; a client's layer is used by no other association, a
//! listener's associations share one. What a stranger says (ICMP) is heard by a client that has no session yet, and ignored otherwise:
//! how large packets may be is found out by probes alone (RFC 8261 section 4.1).

use super::socket::PACKET_MAX;
use super::{Below, LINGER, SctpSocket};
use crate::carrier::SessionId;
use crate::carrier::event::CarrierEvent;
use crate::carrier::layer::LayerEnd;

use crate::Engine;
use crate::event::AttemptError;
use crate::request::Compiled;
use neater_base::Key;
use neater_base::net::{Net, NetError, Sock, SocketOptions};
use neater_sctp::{CloseReason, Train};
use std::net::SocketAddr;

/// Why an association is over whose path is.
fn close_reason(end: &LayerEnd) -> CloseReason {
    match end {
        LayerEnd::Closed => {
            CloseReason::PeerAborted { cause: None, reason: b"it has closed the DTLS session".to_vec() }
        }
        LayerEnd::Superseded => CloseReason::PeerAborted { cause: None, reason: b"it has restarted".to_vec() },
        LayerEnd::Failed(AttemptError::TimedOut) => CloseReason::Unreachable,
        LayerEnd::Failed(_) => CloseReason::PeerMisbehaved("the DTLS session has failed"),
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
        let (user, with) = (self.carriers.sctp.sockets.next_key(), super::socket::wishes(options));
        let (layer, sock) = self.carriers.layers().open(&mut self.cx, user, (addr, name), request, &with)?;
        Ok(self.insert_sctp_session_socket((layer, sock), addr, options, false))
    }

    /// A listener's socket, for the sessions of its clients.
    pub(super) fn listen_sctp_sessions(
        &mut self,
        listener: Key,
        addr: SocketAddr,
        request: &Compiled,
        options: &SocketOptions,
    ) -> Result<Key, AttemptError> {
        let (user, with) = (self.carriers.sctp.sockets.next_key(), super::socket::wishes(options));
        let layer = self.carriers.layers().listen(&mut self.cx, (user, listener), addr, request, &with)?;
        Ok(self.insert_sctp_session_socket(layer, addr, options, true))
    }

    fn insert_sctp_session_socket(
        &mut self,
        (layer, sock): (Key, Sock),
        addr: SocketAddr,
        options: &SocketOptions,
        server: bool,
    ) -> Key {
        let socket = SctpSocket::new(sock, Below::Dtls, addr.is_ipv6(), options, server);
        // A client's association has nothing to say before the session is up.
        self.carriers.sctp.sockets.insert(SctpSocket { layer: Some(layer), writable: server, ..socket })
    }

    /// The path that leads to a peer.
    pub(super) fn sctp_session(&mut self, socket: Key, peer: SocketAddr) -> Option<Key> {
        let layer = self.carriers.sctp.sockets.get(socket)?.layer?;
        self.carriers.layers().path(layer, peer)
    }

    /// Sends a train of packets through the path that leads there. Without one it is lost, as on the way.
    pub(super) fn sctp_seal(&mut self, socket: Key, train: &Train, packets: &[u8]) -> Result<(), NetError> {
        let Some(layer) = self.carriers.sctp.sockets.get(socket).and_then(|s| s.layer) else { return Ok(()) };
        self.carriers.layers().send(&mut self.cx, layer, train.route.remote, packets, train.segment)
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
        let headers = if route.is_ipv6() { 48 } else { 28 };
        let payload = usize::from(mtu).saturating_sub(headers);
        let path = self.sctp_session(socket, route);
        let Some(most) = path.and_then(|path| self.carriers.layers().largest_in(path, payload)) else { return };
        let most = most.min(usize::from(PACKET_MAX));
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
    pub(crate) fn sctp_session_lost(&mut self, socket: Key, peer: SocketAddr, end: &LayerEnd) {
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
            let shut = shut && matches!(end, LayerEnd::Closed);
            let error = match end {
                LayerEnd::Failed(e) => e.clone(),
                LayerEnd::Closed | LayerEnd::Superseded => AttemptError::ClosedByPeer,
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
                        e.endpoint.end(id, if shut { CloseReason::Shutdown } else { close_reason(end) });
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
    pub(super) fn sctp_leaves_session(&mut self, path: Key) {
        let until = self.cx.now + LINGER;
        self.carriers.layers().leave(&mut self.cx, path, until);
    }

    /// Closes the layer of a socket, though its listener may be there until it has closed everything.
    pub(super) fn close_sctp_sessions(&mut self, layer: Key) {
        self.carriers.layers().close(&mut self.cx, layer);
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
