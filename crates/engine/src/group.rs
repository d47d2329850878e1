//! Connection groups (RFC 9622 section 7.4).

use crate::StreamDirection as Direction;
use crate::carrier::SessionId;
use crate::carrier::session::{Cloning, OpenedStream};
use crate::conn::{Conn, ConnectionState};
use crate::connection::state::RecvSide;
use crate::event::{ConnectionError, EstablishmentError, Event, Reason};
use crate::{ConnectionId, Engine, GroupId, ListenerId};
use neater_base::Key;
use neater_base::net::Net;

use std::collections::VecDeque;

/// Connections that belong together: streams of one session, or transport connections to the same place.
#[derive(Debug)]
pub(crate) struct Group {
    /// The session whose streams members are, if they are.
    pub(crate) session: Option<SessionId>,
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
    pub(crate) fn new_group(&mut self, session: Option<SessionId>, listener: Option<Key>) -> Key {
        self.groups.insert(Group {
            session,
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
        let Some(session) = self.groups.get(group).and_then(|g| g.session) else { return };
        if self.carriers.may_accept(session) {
            self.cx.now = self.cx.net.now();
            self.accept_streams(session);
            self.accept_datagrams(session);
            self.carriers.allow_more_streams(session);
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
        match self.carriers.cloning(c.flow) {
            Cloning::Stream(session) => {
                let group = c.group;
                let clone = self.open_in_group(group, session, direction)?;
                self.inherit_properties(conn.0, clone.0);
                Ok(clone)
            }
            Cloning::Never => Err(EstablishmentError::new(
                Reason::InvalidConfiguration,
                "this connection is one of its kind with its peer: not cloneable",
            )),
            Cloning::Connection if direction == Direction::One => {
                Err(EstablishmentError::new(Reason::InvalidConfiguration, "this transport has no one-way streams"))
            }
            Cloning::Connection if c.passive => Err(EstablishmentError::new(
                Reason::InvalidConfiguration,
                "the peer opened this connection and cannot be connected to",
            )),
            Cloning::Connection => {
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
        let session = self.groups.get(group.0).and_then(|g| g.session).ok_or_else(|| {
            EstablishmentError::new(Reason::InvalidConfiguration, "the group's transport is gone, or has no streams")
        })?;
        self.open_in_group(Some(group.0), session, direction)
    }

    fn open_in_group(
        &mut self,
        group: Option<Key>,
        session: SessionId,
        direction: Direction,
    ) -> Result<ConnectionId, EstablishmentError> {
        let OpenedStream { flow, stack, request, remotes } = self.carriers.open_stream(session, direction)?;
        let mut c = Conn::new(request, remotes, self.cx.now);
        c.stack = Some(stack);
        if direction == Direction::One {
            c.recv = RecvSide::Absent;
        }
        c.flow = flow;
        let conn = self.conns.insert(c);
        if let Some(group) = group {
            self.join_group(group, conn);
        }
        if flow.waits_on().is_some() {
            if let Some(g) = group.and_then(|g| self.groups.get_mut(g)) {
                g.pending.push_back((conn, direction));
            }
            self.await_room_beside_others(conn);
        } else {
            self.bind_flow(flow, conn);
            self.enter_established(conn);
        }
        Ok(ConnectionId(conn))
    }

    /// The peer allows more streams: gives them to the members that wait, oldest first.
    pub(crate) fn open_pending(&mut self, session: SessionId) {
        for conn in self.pending_on(session) {
            let group = self.carriers.group_of(session);
            let Some(g) = group.and_then(|g| self.groups.get_mut(g)) else { return };
            let Some(at) = g.pending.iter().position(|(c, _)| *c == conn) else { continue };
            if self.conns.get(conn).is_none_or(|c| c.state != ConnectionState::Establishing) {
                g.pending.remove(at);
                continue;
            }
            let Some((_, direction)) = g.pending.get(at).copied() else { return };
            let Some(flow) = self.carriers.open_waiting(session, direction) else { return };
            g.pending.remove(at);
            if let Some(c) = self.conns.get_mut(conn) {
                c.flow = flow;
            }
            self.bind_flow(flow, conn);
            self.enter_established(conn);
        }
    }

    /// The connections that wait for a stream of this session, in the order in which they get one.
    pub(crate) fn pending_on(&self, session: SessionId) -> Vec<Key> {
        let group = self.carriers.group_of(session).and_then(|g| self.groups.get(g));
        let waits = |conn: &Key| self.conns.get(*conn).is_some_and(|c| c.flow.waits_on() == Some(session));
        group.map_or_else(Vec::new, |g| g.pending.iter().map(|(c, _)| *c).filter(waits).collect())
    }

    /// The group of a connection that has got a session of its own, made if it has none yet. The session is the group's unless
    /// that has one that works: several members of a group without streams may have raced, and each have won a session.
    pub(crate) fn carry_group(&mut self, conn: Key, session: SessionId) -> Key {
        let Some(group) = self.conns.get(conn).and_then(|c| c.group) else {
            let group = self.new_group(Some(session), None);
            self.join_group(group, conn);
            return group;
        };
        let carriers = &self.carriers;
        if let Some(g) = self.groups.get_mut(group).filter(|g| g.session.is_none_or(|s| carriers.is_lost(s))) {
            g.session = Some(session);
        }
        group
    }

    /// Ends a session that is not its group's own with the last that uses it: the group will not.
    pub(crate) fn close_spare(&mut self, session: SessionId) {
        if !self.carriers.is_unused(session) {
            return;
        }
        let Some(g) = self.carriers.group_of(session).and_then(|g| self.groups.get(g)) else { return };
        if g.session != Some(session) && self.pending_on(session).is_empty() {
            let code = g.abort_code;
            self.end_session(session, code);
        }
    }

    /// A session of a group is over, and its carrier has dropped it.
    pub(crate) fn session_is_gone(&mut self, group: Key, session: SessionId) {
        if let Some(g) = self.groups.get_mut(group).filter(|g| g.session == Some(session)) {
            g.session = None;
        }
        self.tidy_group(group);
    }

    /// Closes a group's session with an application error code and words for the peer (HTTP/3 has such codes).
    pub fn close_session(&mut self, group: GroupId, code: u64, reason: &[u8]) {
        self.cx.now = self.cx.net.now();
        if let Some(session) = self.groups.get(group.0).and_then(|g| g.session) {
            self.end_session_saying(session, code, reason);
        }
    }

    /// Why a group's session is over, if it is.
    #[must_use]
    pub fn session_error(&self, group: GroupId) -> Option<ConnectionError> {
        if let Err(e) = self.own() {
            return Some(e);
        }
        match self.groups.get(group.0)?.session {
            Some(session) => self.carriers.session_error(session),
            None => Some(ConnectionError::Closed),
        }
    }

    /// Whether the group lives on a transport with streams.
    #[must_use]
    pub fn group_has_streams(&self, group: GroupId) -> bool {
        let session = self.groups.get(group.0).and_then(|g| g.session);
        session.is_some_and(|s| self.carriers.has_streams(s))
    }

    /// The stack that carries a group's session; `None` if the session is gone, or there is none.
    #[must_use]
    pub fn group_stack(&self, group: GroupId) -> Option<crate::Stack> {
        self.carriers.session_stack(self.groups.get(group.0)?.session?)
    }

    /// The application protocol of a group's session.
    #[must_use]
    pub fn group_alpn(&self, group: GroupId) -> Option<Vec<u8>> {
        self.carriers.session_alpn(self.groups.get(group.0)?.session?)
    }

    /// The peer's address of a group's session.
    #[must_use]
    pub fn group_remote(&self, group: GroupId) -> Option<std::net::SocketAddr> {
        self.carriers.session_remote(self.groups.get(group.0)?.session?)
    }

    /// The number of a connection's stream on the wire, where it is one.
    #[must_use]
    pub fn stream_number(&self, conn: ConnectionId) -> Option<u64> {
        self.conns.get(conn.0)?.flow.stream_number()
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
        let session = self.groups.get(group).and_then(|g| g.session);
        if let Some(session) = session.filter(|s| self.carriers.may_hold_streams(*s, waited)) {
            self.accept_streams(session);
            self.accept_datagrams(session);
        }
    }

    /// The group whose session this is. One that a member has for itself is no other's.
    pub(crate) fn group_of(&self, session: SessionId) -> Option<Key> {
        let group = self.carriers.group_of(session)?;
        self.groups.get(group).filter(|g| g.session == Some(session)).map(|_| group)
    }

    /// How many connections of a group the peer has opened that have not ended in order.
    pub(crate) fn peers_streams(&self, group: Key) -> usize {
        let Some(g) = self.groups.get(group) else { return 0 };
        g.members.iter().filter(|m| self.conns.get(**m).is_some_and(Conn::is_peers_stream)).count()
    }

    /// Drops a group without members and handle, and ends the session that this side has initiated.
    pub(crate) fn tidy_group(&mut self, group: Key) {
        let Some(g) = self.groups.get(group) else { return };
        // Streams that the peer opened and nobody took do not keep a group alive.
        if g.members.len() > g.waiting.len() || (g.held > 0 && !g.closing) {
            return;
        }
        let (session, held, abort_code) = (g.session, g.held > 0, g.abort_code);
        let unclaimed = self.groups.get_mut(group).map(|g| core::mem::take(&mut g.waiting)).unwrap_or_default();
        if !unclaimed.is_empty() {
            // The last of them to leave brings us back here.
            for conn in unclaimed {
                self.release(ConnectionId(conn));
            }
            return self.tidy_group(group);
        }
        let ends = session.and_then(|s| Some((s, self.carriers.ends_with_group(s)?)));
        if let Some((session, ours)) = ends {
            if ours || self.groups.get(group).is_some_and(|g| g.closing) {
                self.end_session(session, abort_code);
            } else if !held {
                // The peer may open another stream: the session lives until the peer or the idle timeout ends it.
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
