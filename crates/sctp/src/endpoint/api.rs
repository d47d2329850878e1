//! What the program calls.

use super::{Endpoint, Entry, TURN, Transmit};
use crate::association::{Association, Packed, Setup, Wish};
use crate::config::{Layer, SharedKey};
use crate::error::{AddressError, ConnectError, ReconfigError, SendError};
use crate::event::{AddressChange, Event};
use crate::ids::{AssociationId, LayerId, MessageId, PathId, Route};
use crate::receive::Message;
use crate::send::SendOptions;
use crate::stats::{AssociationStats, PathStats};
use bytes::Bytes;
use neater_base::{Instant, Key};
use neater_sctp_wire::{StreamId, Tsn};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

impl Endpoint {
    /// Opens an association with the SCTP port `port` of the peer, which all `routes` lead to; the
    /// first is tried first.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn connect(&mut self, now: Instant, port: u16, routes: &[Route]) -> Result<AssociationId, ConnectError> {
        if port == 0 {
            return Err(ConnectError::NoPort);
        }
        if routes.is_empty() {
            return Err(ConnectError::NoRoute);
        }
        if routes.iter().any(|r| usize::from(r.layer.0) >= self.config.layers.len()) {
            return Err(ConnectError::NoSuchLayer);
        }
        if routes.iter().any(|r| self.index.by_peer(r.remote, port).is_some()) {
            return Err(ConnectError::Exists);
        }
        if self.associations.len() >= self.config.max_associations {
            return Err(ConnectError::TooMany);
        }
        let (tag, ties, initial) = (self.fresh_tag(), self.fresh_ties(), Tsn(self.rng.u32()));
        let setup = Setup {
            config: Arc::clone(&self.association_config),
            layers: &self.config.layers,
            addresses: self.addresses(),
            port: self.config.port,
            peer_port: port,
            tag,
            initial,
            ties,
            random: self.keys.random(tag, initial),
        };
        let association = Association::connect(now, setup, routes);
        let key = self.insert(association);
        Ok(AssociationId(key))
    }

    pub(super) fn insert(&mut self, association: Association) -> Key {
        let key = self.associations.insert(Entry {
            association: Box::new(association),
            eager: false,
            eventful: false,
            scheduled: Instant::FAR_FUTURE,
            gone: false,
            released: false,
            opened_from: None,
            holds: 0,
        });
        self.touch(key);
        key
    }

    /// Probes all paths of an association that do not answer, at once: an interface has come up, or
    /// there is another reason to believe that one works again. Nothing happens to an association
    /// that is gone.
    pub fn probe_paths(&mut self, id: AssociationId) {
        if let Some(entry) = self.associations.get_mut(id.0) {
            entry.association.probe_paths();
            self.touch(id.0);
        }
    }

    /// Does what is due by now.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((key, at)) = self.timers.pop_due(now) {
            let Some(entry) = self.associations.get_mut(key).filter(|e| e.scheduled == at) else { continue };
            entry.scheduled = Instant::FAR_FUTURE;
            entry.association.handle_timeout(now, &mut self.rng);
            self.touch(key);
        }
        self.prune();
        if self.timers.len() > 64 + 8 * self.associations.len() {
            let associations = &self.associations;
            self.timers.compact(|_, (key, at)| associations.get(*key).is_some_and(|e| e.scheduled == *at));
        }
    }

    /// When [`Endpoint::handle_timeout`] is to be called next. Drain [`Endpoint::poll_transmit`]
    /// first.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Writes the next packet into `buffer`, which should have room for the largest packet of every
    /// layer. `None`: there is none now.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        if !self.held.is_empty() {
            return self.held.take(buffer);
        }
        while let Some((route, bytes)) = self.replies.pop() {
            if let Some(space) = buffer.get_mut(..bytes.len()) {
                space.copy_from_slice(&bytes);
                return Some(Transmit { route, len: bytes.len(), ect: false, whole: true, probe: false });
            }
        }
        while let Some(&key) = self.eager.front() {
            let Some(entry) = self.associations.get_mut(key).filter(|e| e.eager) else {
                self.eager.pop_front();
                continue;
            };
            if let Some(packed) = entry.association.poll_transmit(now, buffer, &mut self.rng) {
                self.turn += 1;
                self.take_turns();
                let Packed { route, len, ect, whole, probe } = packed;
                return Some(Transmit { route, len, ect, whole, probe });
            }
            entry.eager = false;
            self.turn = 0;
            self.eager.pop_front();
            if let Some(at) = entry.association.next_timeout().filter(|at| *at < entry.scheduled) {
                entry.scheduled = at;
                self.timers.push(at, (key, at));
            }
        }
        self.prune();
        None
    }

    /// The next association has its turn, if one had enough of it.
    pub(super) fn take_turns(&mut self) {
        if self.turn >= TURN && self.eager.len() > 1 {
            self.turn = 0;
            self.eager.rotate_left(1);
        }
    }

    /// The next thing that has happened.
    pub fn poll_event(&mut self) -> Option<(AssociationId, Event)> {
        while let Some(&key) = self.eventful.front() {
            if let Some(entry) = self.associations.get_mut(key) {
                let event = entry.association.poll_event();
                entry.eventful = entry.association.has_events();
                if let Some(event) = event {
                    if !entry.eventful {
                        self.eventful.pop_front();
                        self.sweep(key);
                    }
                    return Some((AssociationId(key), event));
                }
            }
            self.eventful.pop_front();
            self.sweep(key);
        }
        None
    }

    /// Whether packets, events or deadlines wait.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.held.is_empty() && self.replies.is_empty() && self.eager.is_empty() && self.eventful.is_empty()
    }

    pub(super) fn act<T>(&mut self, id: AssociationId, act: impl FnOnce(&mut Association) -> T) -> Option<T> {
        let entry = self.associations.get_mut(id.0).filter(|e| !e.released)?;
        let result = act(&mut entry.association);
        self.touch(id.0);
        Some(result)
    }

    /// Hands over a message. The bytes are kept until they are acknowledged.
    ///
    /// # Errors
    /// See [`SendError`]; the message was then not taken.
    pub fn send(
        &mut self,
        id: AssociationId,
        stream: StreamId,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<MessageId, SendError> {
        self.act(id, |a| a.send(stream, payload, options)).unwrap_or(Err(SendError::Closed))
    }

    /// The next message that has arrived on any stream, or part of one that is long: parts of
    /// several may alternate. What arrived before an association was over can still be read.
    /// [`Endpoint::receive_from`] reads one stream; an association is read in one way or the other.
    pub fn receive(&mut self, id: AssociationId) -> Option<Message> {
        self.act(id, Association::receive)?
    }

    /// Gives the buffer of a message back, to be used again.
    pub fn recycle(&mut self, id: AssociationId, buffer: Vec<u8>) {
        if let Some(entry) = self.associations.get_mut(id.0) {
            entry.association.recycle(buffer);
        }
    }

    /// Ends an association when everything is delivered.
    pub fn shutdown(&mut self, now: Instant, id: AssociationId) {
        self.act(id, |a| a.shutdown(now));
    }

    /// Ends an association at once; the peer's application is given `reason`, at most 256 bytes of
    /// it.
    pub fn abort(&mut self, id: AssociationId, reason: &[u8]) {
        self.act(id, |a| {
            if !a.is_another() {
                a.abort(reason);
            }
        });
    }

    /// Wants nothing more of an association: if it is not over it is aborted, and nothing of it is
    /// kept.
    pub fn release(&mut self, id: AssociationId) {
        self.act(id, |a| a.abort(b""));
        if let Some(entry) = self.associations.get_mut(id.0) {
            entry.released = true;
        }
        self.sweep(id.0);
    }

    /// Gives the association a key that its peer has too, or another secret for one that it has
    /// (RFC 4895 section 6.1). The first takes the place of the empty key 0. False if there is no
    /// such association or it has too many keys.
    pub fn set_key(&mut self, id: AssociationId, key: SharedKey) -> bool {
        self.act(id, |a| a.set_key(key)).unwrap_or(false)
    }

    /// Authenticates with this key from now on; what the peer sends may use any. False if there is
    /// none.
    pub fn use_key(&mut self, id: AssociationId, key: u16) -> bool {
        self.act(id, |a| a.use_key(key)).unwrap_or(false)
    }

    /// Forgets a key. False if there is none, or it is the one that is sent with.
    pub fn remove_key(&mut self, id: AssociationId, key: u16) -> bool {
        self.act(id, |a| a.remove_key(key)).unwrap_or(false)
    }

    /// Adds a packet layer: for example, when an interface has come up. Associations use it when
    /// they are configured to ([`Endpoint::change_addresses`]).
    pub fn add_layer(&mut self, layer: Layer) -> LayerId {
        self.largest = self.largest.max(usize::from(layer.room()));
        self.config.layers.push(layer);
        let rooms: Arc<[u16]> = self.config.layers.iter().map(Layer::room).collect();
        for (_, entry) in self.associations.iter_mut() {
            entry.association.set_rooms(Arc::clone(&rooms));
        }
        LayerId((self.config.layers.len() - 1) as u16)
    }

    /// Announces to the peer that local addresses change, one after the other;
    /// [`crate::Event::AddressChanged`] reports the result of each (RFC 5061). An address that is
    /// announced ([`crate::Config::tell_addresses`]) is named, any other meant by where the packet
    /// comes from.
    ///
    /// # Errors
    /// See [`AddressError`]; then none of the changes is made.
    pub fn change_addresses(&mut self, id: AssociationId, changes: &[AddressChange]) -> Result<(), AddressError> {
        let mut wishes = Vec::with_capacity(changes.len());
        for change in changes {
            let (AddressChange::Add(layer)
            | AddressChange::Remove(layer)
            | AddressChange::KeepOnly(layer)
            | AddressChange::Prefer(layer)) = *change;
            let layer = self.config.layers.get(usize::from(layer.0)).ok_or(AddressError::NoSuchLayer)?;
            wishes.push(Wish { change: *change, address: layer.address.filter(|_| self.config.tell_addresses) });
        }
        self.act(id, |a| a.change_addresses(&wishes)).unwrap_or(Err(AddressError::NotEstablished))
    }

    /// Announces to the peer that a local address is added, removed or preferred, and names it,
    /// regardless of [`crate::Config::tell_addresses`]: a server knows that the address leads to it
    /// from everywhere. [`crate::Event::AddressChanged`] reports the result.
    ///
    /// # Errors
    /// See [`AddressError`].
    pub fn change_named_address(
        &mut self,
        id: AssociationId,
        change: AddressChange,
        address: IpAddr,
    ) -> Result<(), AddressError> {
        let wish = Wish { change, address: Some(address) };
        self.act(id, |a| a.change_addresses(&[wish])).unwrap_or(Err(AddressError::NotEstablished))
    }

    /// Adds a path that the application knows of: an address of the peer's that its packets have
    /// not named. It is used when a heartbeat was answered from there (RFC 9260 section 5.4). One
    /// that is a path already stays as it is.
    ///
    /// # Errors
    /// [`AddressError::NotEstablished`], [`AddressError::NoSuchLayer`], [`AddressError::NotUsable`]
    /// or [`AddressError::TooMany`].
    pub fn add_path(&mut self, now: Instant, id: AssociationId, route: Route) -> Result<(), AddressError> {
        let layer = self.config.layers.get(usize::from(route.layer.0)).ok_or(AddressError::NoSuchLayer)?;
        let room = layer.room();
        self.act(id, |a| a.add_known_path(now, route, room)).unwrap_or(Err(AddressError::NotEstablished))
    }

    /// Uses an address of the peer's no more, and believes nothing that comes from there. The peer
    /// is not notified: RFC 5061 lets an endpoint announce and delete its own addresses alone
    /// (section 4.2.2). It may go on sending from there, and only learns from missing answers that
    /// this path does not work for it any more.
    ///
    /// # Errors
    /// [`AddressError::NotEstablished`], [`AddressError::NotUsable`] where no path leads there, or
    /// [`AddressError::LastAddress`].
    pub fn remove_remote(&mut self, id: AssociationId, remote: SocketAddr) -> Result<(), AddressError> {
        self.act(id, |a| a.remove_remote(remote)).unwrap_or(Err(AddressError::NotEstablished))
    }

    /// Spreads new data over the paths of an association from now on, or no longer:
    /// [`crate::AssociationConfig::multipath`] for this one.
    pub fn set_multipath(&mut self, id: AssociationId, multipath: Option<crate::Multipath>) {
        self.act(id, |a| a.set_multipath(multipath));
    }

    /// How new data is spread over the paths of an association.
    #[must_use]
    pub fn multipath(&self, id: AssociationId) -> Option<crate::Multipath> {
        self.live(id)?.spreading()
    }

    /// Lets data go a certain way while that works; false if there is no such path.
    pub fn set_primary(&mut self, id: AssociationId, path: PathId) -> bool {
        self.act(id, |a| a.set_primary(path)).unwrap_or(false)
    }

    /// Sets the priority of an outbound stream, smaller is sooner, or its weight, at least 1:
    /// whichever the scheduler uses. False if there is no such stream.
    pub fn set_stream_value(&mut self, id: AssociationId, stream: StreamId, value: u16) -> bool {
        self.act(id, |a| a.set_stream_value(stream, value)).unwrap_or(false)
    }

    /// Restarts the numbers of messages on these outbound streams, on all if the list is empty (RFC
    /// 6525). Messages that were accepted before this call are sent and acknowledged before the
    /// peer is asked; those that are accepted after it are sent when the peer has answered, and
    /// count among the first of the stream's new numbers if it has agreed. [`Event::OutgoingReset`]
    /// reports the answer.
    ///
    /// # Errors
    /// See [`ReconfigError`].
    pub fn reset_outgoing(&mut self, id: AssociationId, streams: &[StreamId]) -> Result<(), ReconfigError> {
        self.act(id, |a| a.reset_outgoing(streams)).unwrap_or(Err(ReconfigError::NotEstablished))
    }

    /// Asks the peer to do so with its streams.
    ///
    /// # Errors
    /// See [`ReconfigError`].
    pub fn reset_incoming(&mut self, id: AssociationId, streams: &[StreamId]) -> Result<(), ReconfigError> {
        self.act(id, |a| a.reset_incoming(streams)).unwrap_or(Err(ReconfigError::NotEstablished))
    }

    /// Asks for more outbound streams.
    ///
    /// # Errors
    /// See [`ReconfigError`].
    pub fn add_outgoing(&mut self, id: AssociationId, more: u16) -> Result<(), ReconfigError> {
        self.act(id, |a| a.add_outgoing(more)).unwrap_or(Err(ReconfigError::NotEstablished))
    }

    /// Asks the peer to have more outbound streams.
    ///
    /// # Errors
    /// See [`ReconfigError`].
    pub fn add_incoming(&mut self, id: AssociationId, more: u16) -> Result<(), ReconfigError> {
        self.act(id, |a| a.add_incoming(more)).unwrap_or(Err(ReconfigError::NotEstablished))
    }

    /// What has been counted.
    #[must_use]
    pub fn association_stats(&self, id: AssociationId) -> Option<AssociationStats> {
        self.live(id).map(Association::stats)
    }

    /// The paths and what is known of them.
    #[must_use]
    pub fn paths(&self, id: AssociationId) -> Vec<PathStats> {
        self.live(id).map(Association::path_stats).unwrap_or_default()
    }

    /// Bytes that wait to be sent or acknowledged.
    #[must_use]
    pub fn buffered(&self, id: AssociationId) -> usize {
        self.live(id).map_or(0, Association::buffered)
    }

    /// How many bytes more are taken now, as far as bytes limit it. A message is also taken where
    /// nothing is buffered.
    #[must_use]
    pub fn room(&self, id: AssociationId) -> usize {
        self.live(id).map_or(0, Association::room)
    }

    /// [`crate::Event::Writable`] follows as after [`crate::SendError::Blocked`], for programs that
    /// leave room for others.
    pub fn tell_when_writable(&mut self, id: AssociationId) {
        self.act(id, Association::tell_when_writable);
    }

    /// The number of streams, outbound and inbound.
    #[must_use]
    pub fn streams(&self, id: AssociationId) -> (u16, u16) {
        self.live(id).map_or((0, 0), Association::streams)
    }

    /// The extensions that both sides have, and the peer's adaptation indication.
    #[must_use]
    pub fn agreed(&self, id: AssociationId) -> Option<(crate::Extensions, Option<u32>)> {
        self.live(id).map(Association::agreed)
    }
}
