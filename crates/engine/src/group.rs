//! Connection groups (RFC 9622 section 7.4).

use crate::carrier::FlowId;
use crate::conn::{Conn, ConnectionState};
use crate::event::{ConnectionError, EstablishmentError, Event, Reason};
use crate::{ConnectionId, Engine, GroupId, ListenerId};
use neater_base::Key;
use neater_base::net::Net;
use neater_quic::{ConnectionApi, Direction};
use std::collections::VecDeque;

/// Connections that belong together: streams of one QUIC connection, or transport connections to the same place.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) quic: Option<Key>,
    /// Likewise over SCTP.
    pub(crate) sctp: Option<Key>,
    pub(crate) members: Vec<Key>,
    /// Where streams that the peer opens are reported: to the listener, or to the group itself.
    pub(crate) listener: Option<Key>,
    pub(crate) claimed: bool,
    /// Streams of the peer that came before somebody claimed them.
    pub(crate) waiting: VecDeque<Key>,
    /// Streams that were reported to the group and that the program has not taken.
    pub(crate) untaken: usize,
    /// No more of the peer's streams are taken from the session until the program takes some.
    pub(crate) full: bool,
    /// Members that wait for the peer to allow another stream.
    pub(crate) pending: VecDeque<(Key, Direction)>,
    /// How many handles refer to it.
    pub(crate) held: u32,
    pub(crate) closing: bool,
    /// The session is to be closed with this code: its last member was aborted.
    pub(crate) abort_code: Option<u64>,
}

impl<N: Net> Engine<N> {
    pub(crate) fn new_group(&mut self, quic: Option<Key>, listener: Option<Key>) -> Key {
        self.groups.insert(Group {
            quic,
            sctp: None,
            members: Vec::new(),
            listener,
            claimed: false,
            waiting: VecDeque::new(),
            untaken: 0,
            full: false,
            pending: VecDeque::new(),
            held: 0,
            closing: false,
            abort_code: None,
        })
    }

    pub(crate) fn join_group(&mut self, group: Key, conn: Key) {
        if let Some(g) = self.groups.get_mut(group) {
            g.members.push(conn);
        }
        if let Some(c) = self.conns.get_mut(conn) {
            c.group = Some(group);
        }
    }

    /// The group of a connection, made if it has none yet. While it is held, streams that the peer opens are reported to
    /// it ([`Event::StreamReceived`]) and not to a listener; release it with [`Engine::release_group`].
    ///
    /// # Errors
    /// [`ConnectionError::Closed`] if there is no such connection.
    pub fn group(&mut self, conn: ConnectionId) -> Result<GroupId, ConnectionError> {
        self.own()?;
        let group = match self.conns.get(conn.0).ok_or(ConnectionError::Closed)?.group {
            Some(g) => g,
            None => {
                let g = self.new_group(None, None);
                self.join_group(g, conn.0);
                g
            }
        };
        self.claim_group(group);
        Ok(GroupId(group))
    }

    pub(crate) fn claim_group(&mut self, group: Key) {
        let Some(g) = self.groups.get_mut(group) else { return };
        g.held += 1;
        g.claimed = true;
        let waiting = core::mem::take(&mut g.waiting);
        let waited = !waiting.is_empty();
        for conn in waiting {
            let Some(c) = self.conns.get_mut(conn) else { continue };
            c.released = false;
            self.report_stream(group, conn);
        }
        if waited {
            self.accept_waiting(group);
        }
    }

    /// Reports a stream of the peer's to its group.
    pub(crate) fn report_stream(&mut self, group: Key, conn: Key) {
        let max = self.cx.limits.untaken;
        if let Some(g) = self.groups.get_mut(group) {
            g.untaken += 1;
            g.full |= g.untaken >= max;
        }
        self.notify_group(group, Event::StreamReceived(ConnectionId(conn)));
    }

    /// Whether streams of the peer's must wait in their session, because the group holds as many that nobody has taken as
    /// [`crate::Limits::untaken`] allows.
    pub(crate) fn is_group_full(&self, group: Key) -> bool {
        self.groups.get(group).is_some_and(|g| g.full || g.waiting.len() >= self.cx.limits.untaken)
    }

    /// The program has taken a stream that was reported to its group ([`Event::StreamReceived`]): there is room for another
    /// one. Whoever drives an engine calls this once for each, whatever has become of the stream.
    pub fn taken_stream(&mut self, group: GroupId) {
        let max = self.cx.limits.untaken;
        let Some(g) = self.groups.get_mut(group.0) else { return };
        g.untaken = g.untaken.saturating_sub(1);
        if g.full && g.untaken <= max / 4 * 3 {
            g.full = false;
            self.accept_waiting(group.0);
        }
    }

    /// Takes the peer's streams that have waited in the session for room in the group.
    fn accept_waiting(&mut self, group: Key) {
        if let Some(sctp) = self.groups.get(group).and_then(|g| g.sctp) {
            self.cx.now = self.cx.net.now();
            self.sctp_accept(sctp);
        }
        let Some(quic) = self.groups.get(group).and_then(|g| g.quic) else { return };
        if self.carriers.quic.connections.get(quic).is_some_and(|q| q.lost.is_none()) {
            self.cx.now = self.cx.net.now();
            self.quic_accept(quic, Direction::Both);
            self.quic_accept(quic, Direction::One);
            self.quic_take_datagrams(quic);
            // The peer may open as many more.
            self.mark_dirty(quic);
        }
    }

    /// Nobody uses the group's handle any more. Its connections go on.
    pub fn release_group(&mut self, group: GroupId) {
        let mut waited = false;
        if let Some(g) = self.groups.get_mut(group.0) {
            g.held = g.held.saturating_sub(1);
            g.claimed = g.held > 0;
            if !g.claimed {
                g.untaken = 0;
                waited = core::mem::take(&mut g.full);
            }
        }
        if waited {
            self.accept_waiting(group.0);
        }
        self.tidy_group(group.0);
    }

    /// The connections of a group, oldest first.
    #[must_use]
    pub fn grouped_connections(&self, group: GroupId) -> Vec<ConnectionId> {
        self.groups.get(group.0).map(|g| g.members.iter().map(|k| ConnectionId(*k)).collect()).unwrap_or_default()
    }

    /// Adds a connection to the group of `conn`: a stream where the transport has them, another transport connection
    /// otherwise. One-way streams only exist on multistreaming transports.
    ///
    /// # Errors
    /// The parent is not established, or its transport cannot do this.
    pub fn clone_connection(
        &mut self,
        conn: ConnectionId,
        direction: Direction,
    ) -> Result<ConnectionId, EstablishmentError> {
        self.own_to_establish()?;
        self.cx.now = self.cx.net.now();
        let c = self.conns.get(conn.0).filter(|c| c.is_open()).ok_or_else(|| {
            EstablishmentError::new(Reason::InvalidConfiguration, "only an established connection can be cloned")
        })?;
        match c.flow {
            FlowId::Stream { quic, .. } => {
                let group = c.group;
                let clone = self.open_in_group(group, quic, direction)?;
                self.inherit_properties(conn.0, clone.0);
                Ok(clone)
            }
            FlowId::Sctp { sctp, .. } if self.carriers.sctp.associations.get(sctp).is_some_and(|a| a.mux) => {
                let clone = self.sctp_open(sctp, direction)?;
                self.inherit_properties(conn.0, clone.0);
                Ok(clone)
            }
            FlowId::Datagrams { .. } | FlowId::Peer { .. } => Err(EstablishmentError::new(
                Reason::InvalidConfiguration,
                "this connection is one of its kind with its peer: not cloneable",
            )),
            _ if direction == Direction::One => {
                Err(EstablishmentError::new(Reason::InvalidConfiguration, "this transport has no one-way streams"))
            }
            _ if c.passive => Err(EstablishmentError::new(
                Reason::InvalidConfiguration,
                "the peer opened this connection and cannot be connected to",
            )),
            _ => {
                let (request, remotes) = (crate::Request(c.request.clone()), c.remotes.clone());
                let group = self.group(conn).map_err(|e| EstablishmentError::new(Reason::Cancelled, e.to_string()))?;
                // From where its parent was to come from, but for the port, which is the parent's.
                let locals = self.conns.get(conn.0).and_then(|c| c.ext.as_ref()).map(|e| e.locals.clone());
                let locals: Vec<_> = locals.unwrap_or_default().iter().map(|l| l.clone().with_port(0)).collect();
                let clone = self.initiate_from(&request, &remotes, &locals, None)?;
                self.join_group(group.0, clone.0);
                self.release_group(group);
                self.inherit_properties(conn.0, clone.0);
                Ok(clone)
            }
        }
    }

    /// Opens a stream in a group that lives on a multistreaming transport.
    ///
    /// # Errors
    /// The group is gone, or its transport has no streams.
    pub fn open_stream(&mut self, group: GroupId, direction: Direction) -> Result<ConnectionId, EstablishmentError> {
        self.own_to_establish()?;
        self.cx.now = self.cx.net.now();
        if let Some(sctp) = self.groups.get(group.0).and_then(|g| g.sctp) {
            return self.sctp_open(sctp, direction);
        }
        let quic = self.groups.get(group.0).and_then(|g| g.quic).ok_or_else(|| {
            EstablishmentError::new(Reason::InvalidConfiguration, "the group's transport is gone, or has no streams")
        })?;
        self.open_in_group(Some(group.0), quic, direction)
    }

    fn open_in_group(
        &mut self,
        group: Option<Key>,
        quic: Key,
        direction: Direction,
    ) -> Result<ConnectionId, EstablishmentError> {
        let Some(q) = self.carriers.quic.connections.get_mut(quic).filter(|q| q.connected && q.lost.is_none()) else {
            return Err(EstablishmentError::new(Reason::EstablishmentFailed, "the QUIC connection is over"));
        };
        let (request, stack, remotes) = (q.request.clone(), q.stack, q.remotes.clone());
        let stream = q.conn.open(direction);
        let mut c = Conn::new(request, remotes, self.cx.now);
        c.stack = Some(stack);
        if direction == Direction::One {
            c.read_closed = true;
        }
        c.flow = stream.map_or(FlowId::StreamPending { quic }, |stream| FlowId::Stream { quic, stream });
        let conn = self.conns.insert(c);
        if let Some(group) = group {
            self.join_group(group, conn);
        }
        match stream {
            Some(stream) => {
                self.quic_bind(quic, stream, conn);
                self.enter_established(conn);
            }
            None => {
                if let Some(g) = group.and_then(|g| self.groups.get_mut(g)) {
                    g.pending.push_back((conn, direction));
                }
                self.await_room_beside_others(conn);
            }
        }
        Ok(ConnectionId(conn))
    }

    /// The peer allows more streams: give them to the members that wait, oldest first.
    pub(crate) fn open_pending(&mut self, quic: Key) {
        let Some(group) = self.carriers.quic.connections.get(quic).and_then(|q| q.group) else { return };
        for conn in self.pending_on(quic) {
            let Some(g) = self.groups.get_mut(group) else { return };
            let Some(at) = g.pending.iter().position(|(c, _)| *c == conn) else { continue };
            if self.conns.get(conn).is_none_or(|c| c.state != ConnectionState::Establishing) {
                g.pending.remove(at);
                continue;
            }
            let Some((_, direction)) = g.pending.get(at).copied() else { return };
            let Some(stream) = self.carriers.quic.connections.get_mut(quic).and_then(|q| q.conn.open(direction)) else {
                return;
            };
            if let Some(g) = self.groups.get_mut(group) {
                g.pending.remove(at);
            }
            if let Some(c) = self.conns.get_mut(conn) {
                c.flow = FlowId::Stream { quic, stream };
            }
            self.quic_bind(quic, stream, conn);
            self.enter_established(conn);
        }
    }

    /// Whether the group lives on a transport with streams.
    #[must_use]
    pub fn group_has_streams(&self, group: GroupId) -> bool {
        self.groups.get(group.0).is_some_and(|g| {
            g.quic.is_some() || g.sctp.and_then(|k| self.carriers.sctp.associations.get(k)).is_some_and(|a| a.mux)
        })
    }

    /// The stack that carries a group's session; `None` if the session is gone, or there is none.
    #[must_use]
    pub fn group_stack(&self, group: GroupId) -> Option<crate::Stack> {
        let g = self.groups.get(group.0)?;
        match g.sctp {
            Some(sctp) => Some(self.carriers.sctp.associations.get(sctp)?.stack),
            None => Some(self.carriers.quic.connections.get(g.quic?)?.stack),
        }
    }

    /// The application protocol of a group's session.
    #[must_use]
    pub fn group_alpn(&self, group: GroupId) -> Option<Vec<u8>> {
        let quic = self.groups.get(group.0)?.quic?;
        self.carriers.quic.connections.get(quic)?.conn.alpn()
    }

    /// The peer's address of a group's session.
    #[must_use]
    pub fn group_remote(&self, group: GroupId) -> Option<std::net::SocketAddr> {
        let g = self.groups.get(group.0)?;
        match g.sctp {
            Some(sctp) => Some(self.carriers.sctp.associations.get(sctp)?.remote),
            None => Some(self.carriers.quic.connections.get(g.quic?)?.conn.remote()),
        }
    }

    /// The number of a connection's stream on the wire, where it is one.
    #[must_use]
    pub fn stream_number(&self, conn: ConnectionId) -> Option<u64> {
        match self.conns.get(conn.0)?.flow {
            FlowId::Stream { stream, .. } => Some(stream.number()),
            FlowId::Sctp { stream, .. } => Some(u64::from(stream as u16)),
            _ => None,
        }
    }

    /// Closes all connections of a group gracefully, and the session below when they are done.
    pub fn close_group(&mut self, group: GroupId) {
        self.cx.now = self.cx.net.now();
        let Some(g) = self.groups.get_mut(group.0) else { return };
        g.closing = true;
        for conn in g.members.clone() {
            self.close(ConnectionId(conn));
        }
        self.tidy_group(group.0);
    }

    /// Aborts all connections of a group.
    pub fn abort_group(&mut self, group: GroupId) {
        let Some(g) = self.groups.get_mut(group.0) else { return };
        g.closing = true;
        for conn in g.members.clone() {
            self.abort(ConnectionId(conn));
        }
        self.tidy_group(group.0);
    }

    pub(crate) fn leave_group(&mut self, conn: Key) {
        let Some(group) = self.conns.get_mut(conn).and_then(|c| c.group.take()) else { return };
        if let Some(g) = self.groups.get_mut(group) {
            g.members.retain(|m| *m != conn);
            g.pending.retain(|(m, _)| *m != conn);
        }
        let waited = self.groups.get_mut(group).is_some_and(|g| {
            let before = g.waiting.len();
            g.waiting.retain(|m| *m != conn);
            g.waiting.len() < before
        });
        self.room_in_group(group, waited);
        self.tidy_group(group);
    }

    /// There may be room for another connection of the peer's. `waited`: as one of those that nobody holds.
    pub(crate) fn room_in_group(&mut self, group: Key, waited: bool) {
        if let Some(quic) = self.groups.get(group).and_then(|g| g.quic)
            && self
                .carriers
                .quic
                .connections
                .get(quic)
                .is_some_and(|q| (q.peer_limit.is_some() || waited) && q.lost.is_none())
        {
            self.quic_accept(quic, Direction::Both);
            self.quic_accept(quic, Direction::One);
            self.quic_take_datagrams(quic);
        }
        if let Some(sctp) = self.groups.get(group).and_then(|g| g.sctp) {
            self.sctp_accept(sctp);
        }
    }

    /// The group whose session this is. One that a member has for itself is nobody else's.
    pub(crate) fn group_of_quic(&self, key: Key) -> Option<Key> {
        let group = self.carriers.quic.connections.get(key)?.group?;
        self.groups.get(group).filter(|g| g.quic == Some(key)).map(|_| group)
    }

    /// The same of an association.
    pub(crate) fn group_of_sctp(&self, key: Key) -> Option<Key> {
        let group = self.carriers.sctp.associations.get(key)?.group?;
        self.groups.get(group).filter(|g| g.sctp == Some(key)).map(|_| group)
    }

    /// How many connections of a group the peer has opened that have not ended in order.
    pub(crate) fn peers_streams(&self, group: Key) -> usize {
        let Some(g) = self.groups.get(group) else { return 0 };
        g.members.iter().filter(|m| self.conns.get(**m).is_some_and(Conn::is_peers_stream)).count()
    }

    /// A group without members and handle is dropped, and the QUIC connection that it initiated is closed.
    pub(crate) fn tidy_group(&mut self, group: Key) {
        let Some(g) = self.groups.get(group) else { return };
        // Streams that the peer opened and nobody took do not keep a group alive.
        if g.members.len() > g.waiting.len() || (g.held > 0 && !g.closing) {
            return;
        }
        let (quic, sctp, held, abort_code) = (g.quic, g.sctp, g.held > 0, g.abort_code);
        let unclaimed = self.groups.get_mut(group).map(|g| core::mem::take(&mut g.waiting)).unwrap_or_default();
        if !unclaimed.is_empty() {
            // The last of them to leave brings us back here.
            for conn in unclaimed {
                self.release(ConnectionId(conn));
            }
            return self.tidy_group(group);
        }
        if let Some(quic) = quic {
            let ours = self.carriers.quic.connections.get(quic).is_some_and(|q| q.client || q.is_spent());
            let closing = self.groups.get(group).is_some_and(|g| g.closing);
            if ours || closing {
                self.quic_close(quic, abort_code.unwrap_or(0));
            } else if !held {
                // The client may open another stream: the session lives until it closes it or the idle timeout does.
                return;
            }
        }
        if let Some(sctp) = sctp.filter(|k| self.carriers.sctp.associations.get(*k).is_some_and(|a| !a.is_over())) {
            let ours = self.carriers.sctp.associations.get(sctp).is_some_and(|a| a.client || !a.mux);
            if ours || self.groups.get(group).is_some_and(|g| g.closing) {
                self.sctp_close(sctp, abort_code);
            } else if !held {
                // The client may open another stream.
                return;
            }
        }
        if !held {
            self.groups.remove(group);
        }
    }

    /// Whether the group belongs to a listener that still listens.
    pub(crate) fn group_listener(&self, group: Key) -> Option<ListenerId> {
        let listener = self.groups.get(group)?.listener?;
        self.listeners.contains(listener).then_some(ListenerId(listener))
    }
}
