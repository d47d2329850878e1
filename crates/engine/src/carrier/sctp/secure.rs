//! SCTP over DTLS (RFC 8261): packets go through a layer.
//!
//! *Responsible for* what ties a socket of [`super`] to a layer ([`crate::carrier::layer`]): by which path a packet goes, when a
//! client's association may begin to speak, and what the end of a path means to its associations. *Not responsible for* the layer:
//! which peers may open a path, which have proved an address, which make room.
//!
//! *Invariants*: an association has one path, is gone with it, and keeps it; nothing else uses a client's path, those of a listener
//! share a socket. What a stranger says (ICMP) reaches a client that has no path yet, and nothing else: how large packets may be is
//! found out by probes alone (RFC 8261 section 4.1).

use super::socket::{LINGER, PACKET_MAX, wishes};
use super::{Below, SctpSocket, Tie};
use crate::carrier::event::CarrierEvent;
use crate::carrier::layer::{LayerEnd, Layers};
use crate::carrier::{SctpCarrier, SessionId};
use crate::context::Context;
use crate::event::AttemptError;
use crate::request::Compiled;
use neater_base::Key;
use neater_base::net::{Net, NetError, Sock, SocketOptions};
use neater_sctp::CloseReason;
use std::net::SocketAddr;

/// What the end of its path means to an association.
fn reason(end: &LayerEnd) -> CloseReason {
    match end {
        LayerEnd::Closed => {
            CloseReason::PeerAborted { cause: None, reason: b"it has closed the DTLS session".to_vec() }
        }
        LayerEnd::Superseded => CloseReason::PeerAborted { cause: None, reason: b"it has restarted".to_vec() },
        LayerEnd::Failed(AttemptError::TimedOut) => CloseReason::Unreachable,
        LayerEnd::Failed(_) => CloseReason::PeerMisbehaved("the DTLS session has failed"),
    }
}

impl SctpCarrier {
    /// A socket for one association of a client's, with a layer that begins to shake hands.
    pub(super) fn open_layer<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        layers: &mut Layers<'_>,
        to: (SocketAddr, &str),
        request: &Compiled,
        options: &SocketOptions,
    ) -> Result<Key, AttemptError> {
        let (layer, sock) = layers.open(cx, self.sockets.next_key(), to, request, &wishes(options))?;
        Ok(self.insert_layer(sock, layer, to.0, options, false))
    }

    /// A listener's socket, for the paths of its clients.
    pub(super) fn listen_layer<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        layers: &mut Layers<'_>,
        listener: Key,
        addr: SocketAddr,
        request: &Compiled,
        options: &SocketOptions,
    ) -> Result<Key, AttemptError> {
        let user = (self.sockets.next_key(), listener);
        let (layer, sock) = layers.listen(cx, user, addr, request, &wishes(options))?;
        Ok(self.insert_layer(sock, layer, addr, options, true))
    }

    fn insert_layer(&mut self, sock: Sock, layer: Key, addr: SocketAddr, options: &SocketOptions, server: bool) -> Key {
        let socket = SctpSocket::new(sock, Below::Dtls, addr.is_ipv6(), options, server);
        // A client's association has nothing to send before the layer is up.
        self.sockets.insert(SctpSocket { layer: Some(layer), writable: server, ..socket })
    }

    /// Does what associations have left to do to the layers below them.
    pub(crate) fn tie<N: Net>(&mut self, cx: &mut Context<N>, layers: &mut Layers<'_>) {
        for tie in core::mem::take(&mut self.ties) {
            match tie {
                Tie::Join(key) => self.join(layers, key),
                // A peer may still ask for the answers that it has missed.
                Tie::Leave(path) => layers.leave(cx, path, cx.now + LINGER),
                Tie::Close(layer) => layers.close(cx, layer),
            }
        }
    }

    fn join(&mut self, layers: &mut Layers<'_>, key: Key) {
        let Some(a) = self.associations.get_mut(key) else { return };
        let socket = self.endpoints.get(a.end).and_then(|e| self.sockets.get(e.socket));
        a.path = socket.and_then(|s| layers.path(s.layer?, a.route));
        if let Some(path) = a.path {
            layers.join(path);
            self.fit(layers, key);
        }
    }

    /// An association's packets may be as long as its path lets them be: an endpoint was made for what takes most, and the paths of a
    /// listener's clients differ.
    fn fit(&mut self, layers: &Layers<'_>, key: Key) {
        let Some(a) = self.associations.get(key) else { return };
        let Some(e) = self.endpoints.get_mut(a.end) else { return };
        let headers = if a.route.is_ipv6() { 48 } else { 28 };
        let datagram = usize::from(e.profile.mtu).saturating_sub(headers);
        if let Some(most) = a.path.and_then(|path| layers.largest_in(path, datagram)) {
            e.endpoint.set_largest_packet(a.id, most.min(usize::from(PACKET_MAX)) as u16);
        }
    }

    /// The peer has answered for the first time.
    pub(crate) fn layer_answered<N: Net>(&mut self, cx: &Context<N>, socket: Key) {
        for key in self.on_socket(socket, None) {
            let Some(a) = self.associations.get_mut(key).filter(|a| !a.answered) else { continue };
            a.answered = true;
            let (session, rtt) = (SessionId::Sctp(key), cx.now - a.started);
            if let Some(attempt) = a.attempt {
                self.events.push_back(CarrierEvent::Reachable { attempt, session, rtt });
            }
        }
    }

    /// The layer takes packets: a client's association sends its INIT.
    pub(crate) fn layer_up<N: Net>(&mut self, cx: &mut Context<N>, layers: &Layers<'_>, socket: Key) {
        for key in self.on_socket(socket, None) {
            self.fit(layers, key);
        }
        self.socket_writable(cx, socket);
        for end in self.ends_on(socket) {
            self.mark_dirty(end);
        }
    }

    /// The path that led to a peer is over, and its associations with it. What the peer had sent before comes first: data, the end of
    /// a shutdown, or an association that is new.
    pub(crate) fn layer_lost<N: Net>(&mut self, cx: &mut Context<N>, socket: Key, peer: SocketAddr, end: &LayerEnd) {
        for endpoint in self.ends_on(socket) {
            while self.collect(cx, endpoint) {}
        }
        for key in self.on_socket(socket, Some(peer)) {
            let Some(a) = self.associations.get_mut(key).filter(|a| !a.over) else { continue };
            let (endpoint, id, attempt, connected) = (a.end, a.id, a.attempt, a.connected);
            // Nothing that it would still send gets there.
            self.ties.extend(a.path.take().map(Tie::Leave));
            // A path that is closed in place of the last chunks of a shutdown loses no data.
            let shut = self.endpoints.get(endpoint).is_some_and(|e| e.endpoint.is_shut(id));
            let shut = shut && matches!(end, LayerEnd::Closed);
            // One that is up has won its race or lost it: its streams end as over UDP.
            match attempt.filter(|_| !shut && !connected) {
                Some(attempt) => {
                    if let Some(a) = self.associations.get_mut(key) {
                        a.over = true;
                    }
                    let error = match end {
                        LayerEnd::Failed(e) => e.clone(),
                        LayerEnd::Closed | LayerEnd::Superseded => AttemptError::ClosedByPeer,
                    };
                    self.events.push_back(CarrierEvent::Failed { attempt, session: SessionId::Sctp(key), error });
                }
                None => {
                    if let Some(e) = self.endpoints.get_mut(endpoint) {
                        e.endpoint.end(id, if shut { CloseReason::Shutdown } else { reason(end) });
                    }
                    while self.collect(cx, endpoint) {}
                }
            }
            self.tidy_later(key);
        }
    }

    /// The network does not take a client's first packets to where they should go.
    pub(crate) fn layer_refused<N: Net>(&mut self, cx: &mut Context<N>, socket: Key, error: NetError) {
        for key in self.on_socket(socket, None) {
            if self.associations.get(key).is_some_and(|a| !a.connected && !a.over) {
                self.attempt_refused(cx, key, error);
            }
        }
    }

    fn ends_on(&self, socket: Key) -> Vec<Key> {
        self.sockets.get(socket).map(|s| s.ends.values().copied().collect()).unwrap_or_default()
    }

    /// The associations on a socket, with this peer or with all.
    fn on_socket(&self, socket: Key, peer: Option<SocketAddr>) -> Vec<Key> {
        let Some(s) = self.sockets.get(socket) else { return Vec::new() };
        let ends = s.ends.values().filter_map(|e| self.endpoints.get(*e));
        let all = ends.flat_map(|e| e.associations.values().copied());
        all.filter(|k| self.associations.get(*k).is_some_and(|a| peer.is_none_or(|p| a.route == p))).collect()
    }
}
