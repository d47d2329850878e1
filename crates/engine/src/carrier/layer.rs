//! Packet layers: what lies under a protocol that makes packets of its own.
//!
//! *Responsible for* the terms between a carrier that uses a layer and the carrier that provides
//! it: commands down ([`Layers`]), events up ([`LayerEvent`]). [`super::Carriers`] moves both, so
//! that no carrier calls another. *Not responsible for* layers that are a socket and no more: UDP
//! and IP, whose sockets the user has itself.
//!
//! A layer is named by a key of its provider. It leads to one peer, or to any number of a
//! listener's: a *path* is what leads to one of them, and is named likewise. The user of a layer is
//! named by a key of its own, which means nothing to the provider.
//!
//! Every layer authenticates its peer, and adds [`OVERHEAD`] bytes at most to a packet. It takes
//! trains of packets, and hands packets up one by one. What may be lost on a network may be lost in
//! a layer.

use super::dtls::{Dtls, DtlsCarrier};
use crate::context::Context;
use crate::event::AttemptError;
use crate::request::Compiled;
use bytes::Bytes;
use neater_base::net::{Ecn, Net, NetError, Sock, SocketOptions};
use neater_base::{Instant, Key};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// What a layer puts between the headers of IP and a packet, in bytes, at most: which it is turns
/// out with the peer.
pub(crate) const OVERHEAD: u16 = 8 + RECORD_OVERHEAD;
/// What a layer adds to the payload of a datagram, in bytes, at most.
pub(crate) const RECORD_OVERHEAD: u16 = neater_dtls::OVERHEAD_12_GCM as u16;

/// What layers have to report, oldest first.
pub(crate) type LayerEvents = VecDeque<LayerEvent>;

/// What a layer reports to its `user`. As with [`super::event::CarrierEvent`], the layer or path
/// may be gone when it is handled.
#[derive(Debug)]
pub(crate) enum LayerEvent {
    /// The peer of a layer that was opened to it has answered for the first time.
    Answered { user: Key },
    /// A layer that was opened to a peer is up: packets can be sent.
    Up { user: Key },
    /// It takes packets again, after [`Layers::send`] has returned `WouldBlock`.
    Writable { user: Key },
    /// A packet has come from a peer.
    Packet { user: Key, from: SocketAddr, ecn: Ecn, data: Bytes },
    /// The path to a peer is over.
    Lost { user: Key, from: SocketAddr, end: LayerEnd },
    /// The network does not take the layer's first packets to the peer.
    Refused { user: Key, error: NetError },
}

/// Why the path to a peer is over.
#[derive(Clone, Debug)]
pub(crate) enum LayerEnd {
    /// The peer has closed it.
    Closed,
    /// The peer has come back to its address without it.
    Superseded,
    /// It has failed; [`AttemptError::TimedOut`]: the peer does not answer.
    Failed(AttemptError),
}

/// The layers, lent to the carrier that uses them for one call.
pub(crate) struct Layers<'a>(pub(super) &'a mut DtlsCarrier);

impl Layers<'_> {
    /// Opens a layer to a peer of that name, and returns it and its socket, which remains the
    /// layer's. [`LayerEvent::Up`] follows, or [`LayerEvent::Lost`].
    ///
    /// # Errors
    /// Why this host cannot open it. Nothing has been sent then.
    pub(crate) fn open<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        user: Key,
        to: (SocketAddr, &str),
        request: &Compiled,
        options: &SocketOptions,
    ) -> Result<(Key, Sock), AttemptError> {
        self.0.open_layer(cx, user, to, request, options)
    }

    /// The same, to the peer that a path leads to: it has to be the same one, as shown by its
    /// certificate.
    ///
    /// # Errors
    /// As [`Self::open`]; [`AttemptError::ClosedByPeer`]: that path is over.
    pub(crate) fn open_beside<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        user: Key,
        (path, to): (Key, SocketAddr),
        request: &Compiled,
        options: &SocketOptions,
    ) -> Result<(Key, Sock), AttemptError> {
        self.0.open_layer_beside(cx, user, (path, to), request, options)
    }

    /// Whether the peers of two paths are the same one, as far as their certificates show.
    pub(crate) fn is_same_peer(&self, one: Key, other: Key) -> bool {
        let shown = |path: Key| self.0.sessions.get(path).map(Dtls::peer_certificates);
        shown(one) == shown(other)
    }

    /// Closes one path.
    pub(crate) fn close_path<N: Net>(&mut self, cx: &mut Context<N>, path: Key) {
        self.0.drop_session(cx, path);
    }

    /// Opens a layer for the peers that come to a listener, and returns it and its socket, which
    /// remains the layer's.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn listen<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        (user, listener): (Key, Key),
        addr: SocketAddr,
        request: &Compiled,
        options: &SocketOptions,
    ) -> Result<(Key, Sock), AttemptError> {
        self.0.listen_layer(cx, (user, listener), addr, request, options)
    }

    /// The path that leads to a peer.
    pub(crate) fn path(&self, layer: Key, to: SocketAddr) -> Option<Key> {
        self.0.path(layer, to)
    }

    /// The longest packet of a path that fits into a UDP datagram of so many bytes.
    pub(crate) fn largest_in(&self, path: Key, datagram: usize) -> Option<usize> {
        self.0.sessions.get(path).map(|d| d.largest_in(datagram))
    }

    /// Sends a train of packets to a peer: each `segment` bytes long but the last, which may be
    /// shorter. Without a path there they are lost, as on the way.
    ///
    /// # Errors
    /// The error of the network; `WouldBlock`: the layer keeps the packets, and
    /// [`LayerEvent::Writable`] follows.
    pub(crate) fn send<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        layer: Key,
        to: SocketAddr,
        packets: &[u8],
        segment: usize,
    ) -> Result<(), NetError> {
        match self.0.path(layer, to) {
            Some(path) => self.0.send_packets(cx, path, packets, segment),
            None => Ok(()),
        }
    }

    /// One more of the user's sessions uses a path, which remains until it [leaves](Self::leave).
    pub(crate) fn join(&mut self, path: Key) {
        self.0.join(path);
    }

    /// One less does. What a listener's peer uses for nothing is closed, but not before `until`.
    pub(crate) fn leave<N: Net>(&mut self, cx: &mut Context<N>, path: Key, until: Instant) {
        self.0.leave(cx, path, until);
    }

    /// A listener's layer takes no more peers. Paths that are up go on, and it is closed with the
    /// last of them.
    pub(crate) fn stop_listening<N: Net>(&mut self, cx: &mut Context<N>, layer: Key) {
        self.0.stop_listening(cx, layer);
    }

    /// Closes a layer with all its paths.
    pub(crate) fn close<N: Net>(&mut self, cx: &mut Context<N>, layer: Key) {
        self.0.close_socket(cx, layer);
    }
}
