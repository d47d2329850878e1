//! SCTP over DTLS (RFC 8261): packets go through a layer.
//!
//! *Responsible for* what ties a socket of [`super`] to a layer ([`crate::carrier::layer`]): by
//! which path a packet goes, when a client's association may begin to speak, and what the end of a
//! path means to its associations. *Not responsible for* the layer: which peers may open a path,
//! which have proved an address, which make room.
//!
//! *Invariants*: an association has one path, or, between two of our engines, one for each network
//! of the client's; it is gone with the last. Nothing else uses a client's path, those of a
//! listener share a socket. A further path leads to a peer with the same certificate, and to the
//! association only behind an AUTH chunk (RFC 4895), whose key follows from what was exchanged on
//! the first (decision 0039). ICMP errors, which anyone may forge, reach only a client that has no
//! path yet: the path MTU is found by probes alone (RFC 8261 section 4.1).

use super::socket::{LINGER, PACKET_MAX, wishes};
use super::{PacketLayer, Sctp, SctpSocket, Tie};
use crate::carrier::event::CarrierEvent;
use crate::carrier::layer::{LayerEnd, Layers};
use crate::carrier::{SctpCarrier, SessionId};
use crate::context::Context;
use crate::event::AttemptError;
use crate::request::Compiled;
use neater_base::Key;
use neater_base::net::{Net, NetError, Sock, SocketOptions};
use neater_sctp::{CloseReason, Route};
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

    /// A socket with a session more for an association that is up, by another interface.
    pub(super) fn open_layer_beside<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        layers: &mut Layers<'_>,
        key: Key,
        options: &SocketOptions,
    ) -> Result<Key, AttemptError> {
        let a = self.associations.get(key).ok_or(AttemptError::ClosedByPeer)?;
        let (path, to, request) = (a.session().ok_or(AttemptError::ClosedByPeer)?, a.route, a.request.clone());
        let user = self.sockets.next_key();
        let (layer, sock) = layers.open_beside(cx, user, (path, to), &request, &wishes(options))?;
        let opened = self.insert_layer(sock, layer, to, options, false);
        if let Some(s) = self.sockets.get_mut(opened) {
            // The others do not wait for it.
            s.writable = true;
        }
        Ok(opened)
    }

    fn insert_layer(&mut self, sock: Sock, layer: Key, addr: SocketAddr, options: &SocketOptions, server: bool) -> Key {
        let socket = SctpSocket::new(sock, PacketLayer::Dtls, addr.is_ipv6(), options, server);
        // A client's association has nothing to send before the layer is up.
        self.sockets.insert(SctpSocket { layer: Some(layer), writable: server, ..socket })
    }

    /// Does what associations have left to do to the layers below them.
    pub(crate) fn tie<N: Net>(&mut self, cx: &mut Context<N>, layers: &mut Layers<'_>) {
        for tie in core::mem::take(&mut self.ties) {
            match tie {
                Tie::Join(key) => self.join(cx, layers, key),
                Tie::Widen(key) => self.widen_over(cx, Some(&mut *layers), key),
                Tie::Open(key, way) => {
                    // What cannot be opened is tried again when the host's addresses change.
                    let _ = self.open(cx, Some(&mut *layers), key, way, None);
                }
                // A peer may still ask for the answers that it has missed.
                Tie::Leave(path) => layers.leave(cx, path, cx.now + LINGER),
                Tie::Close(layer) => layers.close(cx, layer),
            }
        }
    }

    /// An association uses the paths of the layer below that carry its own.
    fn join<N: Net>(&mut self, cx: &mut Context<N>, layers: &mut Layers<'_>, key: Key) {
        let Some(a) = self.associations.get(key).filter(|a| !a.over) else { return };
        let Some(e) = self.endpoints.get(a.end) else { return };
        let below = |route: Route| {
            let s = self.sockets.get(e.way(route.layer).0)?;
            Some((route, layers.path(s.layer?, route.remote)?))
        };
        let now: Vec<_> = e.endpoint.paths(a.id).into_iter().filter_map(|p| below(p.route)).collect();
        let Some(a) = self.associations.get_mut(key) else { return };
        for (route, path) in now {
            let first = a.session();
            match (a.paths.iter_mut().find(|(r, _)| *r == route), first) {
                (Some((_, known)), _) if *known == path => {}
                // Its peer is another one, whatever it knows.
                (_, Some(first)) if !layers.is_same_peer(first, path) => layers.close_path(cx, path),
                (Some((_, known)), _) => {
                    let before = core::mem::replace(known, path);
                    layers.join(path);
                    layers.leave(cx, before, cx.now);
                }
                (None, _) => {
                    a.paths.push((route, path));
                    layers.join(path);
                }
            }
        }
        self.fit(layers, key);
    }

    /// An association's packets may be as long as its path lets them be: an endpoint was made for
    /// what takes most, and the paths of a listener's clients differ.
    fn fit(&mut self, layers: &Layers<'_>, key: Key) {
        let Some(a) = self.associations.get(key) else { return };
        let Some(e) = self.endpoints.get_mut(a.end) else { return };
        let headers = if a.route.is_ipv6() { 48 } else { 28 };
        let datagram = usize::from(e.profile.mtu).saturating_sub(headers);
        if let Some(most) = a.session().and_then(|path| layers.largest_in(path, datagram)) {
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
            self.way_up(key, socket);
        }
        self.socket_writable(cx, socket);
        for end in self.ends_on(socket) {
            self.mark_dirty(end);
        }
    }

    /// The path that led to a peer is over, and with it those of its associations that have no
    /// other. What the peer had sent before comes first: data, the end of a shutdown, or an
    /// association that is new.
    pub(crate) fn layer_lost<N: Net>(&mut self, cx: &mut Context<N>, socket: Key, peer: SocketAddr, end: &LayerEnd) {
        for endpoint in self.ends_on(socket) {
            while self.collect(cx, endpoint) {}
        }
        for key in self.on_socket(socket, Some(peer)) {
            self.way_lost(cx, key, socket);
            let Some(a) = self.associations.get_mut(key).filter(|a| !a.over) else { continue };
            let (endpoint, id, attempt, connected) = (a.end, a.id, a.attempt, a.connected);
            // Nothing that it would still send gets there.
            let Some(e) = self.endpoints.get(endpoint) else { continue };
            let (lost, left) = a.paths.drain(..).partition(|(r, _)| e.way(r.layer).0 == socket && r.remote == peer);
            a.paths = left;
            self.ties.extend(Vec::<(Route, Key)>::into_iter(lost).map(|(_, path)| Tie::Leave(path)));
            if !a.paths.is_empty() && connected {
                self.first_way_lost(key, socket);
                continue;
            }
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
            if self.way_lost(cx, key, socket) {
                continue;
            }
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
        let leads = |a: &Sctp, to: SocketAddr| a.route == to || a.paths.iter().any(|(r, _)| r.remote == to);
        all.filter(|k| self.associations.get(*k).is_some_and(|a| peer.is_none_or(|p| leads(a, p)))).collect()
    }
}
