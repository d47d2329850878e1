//! Connection groups (RFC 9622 section 7.4), and the sessions that carry them.
//!
//! Sessions that carry several connections: how they come to a group, what their peers open in
//! them, and their end.
//!
//! *Responsible for* what is the same whichever carrier has the session. *Not responsible for*
//! groups themselves ([`crate::group`]).

use crate::carrier::terms::{Arrived, Cloning, OpenedStream, Taken};
use crate::carrier::terms::{SessionLost, SessionOver};
use crate::carrier::{FlowId, SessionId};
use crate::closing::ABORTED;
use crate::config::Refusal;
use crate::conn::{Conn, ConnectionState};
use crate::connection::state::{RecvSide, SendSide};
use crate::event::{ConnectionError, EstablishmentError, Event, Reason, Step};
use crate::framer_handshake::HandOver;
use crate::group::Group;
use crate::queue::ReceivedDatagram;
use crate::{ConnectionId, Engine, GroupId, ListenerId, Stack, StreamDirection};
use neater_base::Key;
use neater_base::net::{Ecn, Net};
use std::collections::VecDeque;

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

    /// The group of a connection, made if it has none yet. While it is held, streams that the peer
    /// opens are reported to it ([`Event::StreamReceived`]) and not to a listener; release it with
    /// [`Engine::release_group`].
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

    /// Whether streams of the peer's must wait in their session, because the group holds as many
    /// that the program has not taken as [`crate::Limits::untaken`] allows.
    pub(crate) fn is_group_full(&self, group: Key) -> bool {
        self.groups.get(group).is_some_and(|g| g.full || g.waiting.len() >= self.cx.limits.untaken)
    }

    /// The program has taken a stream that was reported to its group ([`Event::StreamReceived`]):
    /// there is room for another one. The driver of an engine calls this once for each, whatever
    /// has become of the stream.
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
    pub(crate) fn accept_waiting(&mut self, group: Key) {
        let Some(session) = self.groups.get(group).and_then(|g| g.session) else { return };
        if self.carriers.may_accept(session) {
            self.cx.now = self.cx.net.now();
            self.accept_streams(session);
            self.accept_datagrams(session);
            self.carriers.allow_more_streams(session);
        }
    }

    /// The group's handle was dropped. Its connections go on.
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

    /// Adds a connection to the group of `conn`: a stream where the transport has them, another
    /// transport connection otherwise. One-way streams only exist on multistreaming transports.
    ///
    /// # Errors
    /// The parent is not established, or its transport cannot do this.
    pub fn clone_connection(
        &mut self,
        conn: ConnectionId,
        direction: StreamDirection,
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
            Cloning::Connection if direction == StreamDirection::One => {
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
                let locals = self.conns.get(conn.0).and_then(|c| c.cold.as_ref()).map(|e| e.locals.clone());
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
    pub fn open_stream(
        &mut self,
        group: GroupId,
        direction: StreamDirection,
    ) -> Result<ConnectionId, EstablishmentError> {
        self.own_to_establish()?;
        self.cx.now = self.cx.net.now();
        let session = self.groups.get(group.0).and_then(|g| g.session).ok_or_else(|| {
            EstablishmentError::new(Reason::InvalidConfiguration, "the group's transport is gone, or has no streams")
        })?;
        self.open_in_group(Some(group.0), session, direction)
    }

    pub(crate) fn open_in_group(
        &mut self,
        group: Option<Key>,
        session: SessionId,
        direction: StreamDirection,
    ) -> Result<ConnectionId, EstablishmentError> {
        let OpenedStream { flow, stack, request, remotes } = self.carriers.open_stream(session, direction)?;
        let mut c = Conn::new(request, remotes, self.cx.now);
        c.stack = Some(stack);
        if direction == StreamDirection::One {
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

    /// The group of a connection that has got a session of its own, made if it has none yet. The
    /// session is the group's unless that has one that works: several members of a group without
    /// streams may have raced, and each have won a session.
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

    /// Closes a group's session with an application error code and words for the peer (HTTP/3 has
    /// such codes).
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

    /// There may be room for another connection of the peer's. `waited`: as one of those that the
    /// program does not hold.
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
        // Streams that the peer opened and the program did not take do not keep a group alive.
        if g.members.len() > g.waiting.len() || (g.held > 0 && !g.closing) {
            return;
        }
        let (session, held, abort_code) = (g.session, g.held > 0, g.abort_code);
        let untaken = self.groups.get_mut(group).map(|g| core::mem::take(&mut g.waiting)).unwrap_or_default();
        if !untaken.is_empty() {
            // The last of them to leave brings us back here.
            for conn in untaken {
                self.release(ConnectionId(conn));
            }
            return self.tidy_group(group);
        }
        let ends = session.and_then(|s| Some((s, self.carriers.ends_with_group(s)?)));
        if let Some((session, ours)) = ends {
            if ours || self.groups.get(group).is_some_and(|g| g.closing) {
                self.end_session(session, abort_code);
            } else if !held {
                // The peer may open another stream: the session lives until the peer or the idle
                // timeout ends it.
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

    /// An attempt goes on as what its peer offers.
    pub(crate) fn attempt_became(&mut self, conn: Key, session: SessionId, before: Stack, stack: Stack) {
        let Some((_, addr)) = self.carriers.describe(session) else { return };
        let attempts = self.est(conn).map(|est| &mut est.attempts[..]).unwrap_or_default();
        for attempt in attempts.iter_mut().filter(|a| a.session == session) {
            attempt.stack = stack;
        }
        self.step(conn, Step::Became { stack, addr, before });
    }

    /// A connection is carried by this session from now on, which has won its race.
    pub(crate) fn session_won(&mut self, conn: Key, session: SessionId) {
        let group = self.carry_group(conn, session);
        let Some(Taken { flow, waits, first }) = self.carriers.take_session(session, group, conn) else { return };
        let Some(c) = self.conns.get_mut(conn) else { return };
        c.flow = flow;
        if let Some(direction) = waits {
            if let Some(g) = self.groups.get_mut(group) {
                g.pending.push_back((conn, direction));
            }
            return self.await_stream(conn);
        }
        self.bind_flow(flow, conn);
        if first {
            self.first_was_taken(conn);
        }
    }

    /// A connection uses this flow from now on, with its priority.
    pub(crate) fn bind_flow(&mut self, flow: FlowId, conn: Key) {
        if let Some(priority) = self.conns.get(conn).map(Conn::priority) {
            self.carriers.bind(&mut self.cx, flow, conn, priority);
        }
    }

    /// A peer's session has come to a listener, which takes it or refuses it.
    pub(crate) fn session_arrived(&mut self, session: SessionId, listener: Key) {
        let Some(arrived) = self.carriers.arrived(session) else { return };
        if arrived == Arrived::Connection {
            return self.connection_arrived(session, listener);
        }
        let listens = self.listeners.get(listener);
        let groups = listens.is_some_and(|l| l.groups);
        // Streams wait in their session until the listener may deliver more; nothing keeps groups
        // and datagrams for it.
        let waits = arrived == Arrived::Streams && !groups;
        let full = listens.is_none_or(|l| l.backlog.is_full()) || !waits && self.is_full(listener);
        // Its first connection needs a place at once.
        let crowded = arrived == Arrived::Begun && self.conns.len() >= self.cx.limits.connections;
        if full || crowded {
            // The program takes nothing, and no kernel keeps this for it.
            self.cx.stats.refuse(if full { Refusal::Untaken } else { Refusal::Connection });
            return self.carriers.turn_away(&mut self.cx, session);
        }
        let group = self.new_group(Some(session), Some(listener));
        self.carriers.set_group(session, group);
        if groups {
            self.claim_group(group);
            self.count_received(listener);
            self.notify_listener(listener, Event::GroupReceived(GroupId(group)));
        }
        if arrived == Arrived::Datagrams
            && let Some(datagrams) = self.carriers.datagrams(session)
        {
            let conn = self.received(datagrams);
            self.join_group(group, conn);
            self.carriers.begin_datagrams(session, conn);
            self.deliver_incoming(listener, conn);
        }
        self.accept_streams(session);
        self.accept_datagrams(session);
        if waits && let Some(over) = self.carriers.await_first(&mut self.cx, session) {
            self.session_over(over);
        }
    }

    /// The same, of a session that carries one connection and no group.
    pub(crate) fn connection_arrived(&mut self, session: SessionId, listener: Key) {
        let room = !self.is_full(listener) && self.conns.len() < self.cx.limits.connections;
        if !room || !self.listeners.contains(listener) {
            // The program takes nothing, and no kernel keeps this for it.
            self.cx.stats.refuse(Refusal::Untaken);
            return self.carriers.release_attempt(&mut self.cx, session, false);
        }
        if let Some(conn) = self.accepted(session, listener) {
            self.take_early(conn, session);
        }
    }

    /// A connection that the peer has opened.
    pub(crate) fn received(&mut self, OpenedStream { flow, stack, request, remotes }: OpenedStream) -> Key {
        let mut c = Conn::new(request, remotes, self.cx.now);
        c.stack = Some(stack);
        c.passive = true;
        c.flow = flow;
        self.conns.insert(c)
    }

    /// Makes connections of the streams that the peer has opened, as far as there is room for them.
    pub(crate) fn accept_streams(&mut self, session: SessionId) {
        loop {
            let Some(group) = self.carriers.group_of(session) else { return };
            if self.is_group_full(group) {
                // They wait where they are until the program has taken some.
                return;
            }
            let claimed = self.groups.get(group).is_some_and(|g| g.claimed);
            let listener = self.group_listener(group);
            if !claimed && listener.is_some_and(|l| self.is_full(l.0)) {
                // They wait where they are until the limit is raised.
                return;
            }
            // Nothing will ever take it: a server whose listener is gone.
            let unwanted = !claimed && listener.is_none() && !self.carriers.is_client(session);
            if let Some(limit) = self.carriers.peer_limit(session).filter(|_| !unwanted)
                && self.peers_streams(group) >= limit as usize
            {
                // Until one of them leaves.
                return;
            }
            let Some((stream, direction)) = self.carriers.accept_stream(session) else { return };
            let flow = stream.flow;
            // Or there is no room for another connection.
            if unwanted || self.conns.len() >= self.cx.limits.connections {
                if let Some(over) = self.carriers.refuse_stream(&self.cx, flow) {
                    self.session_over(over);
                }
                self.cx.stats.refuse(Refusal::Stream);
                continue;
            }
            let conn = self.received(stream);
            if direction == StreamDirection::One
                && let Some(c) = self.conns.get_mut(conn)
            {
                c.send = SendSide::Absent;
            }
            self.bind_flow(flow, conn);
            self.join_group(group, conn);
            self.deliver(conn, HandOver::Group(group));
        }
    }

    /// Takes the datagrams that have come to the connection that they are for.
    pub(crate) fn accept_datagrams(&mut self, session: SessionId) {
        let begun = self.carriers.datagrams_of(session);
        let Some(conn) = begun.or_else(|| self.begin_datagrams(session)) else { return };
        let mut got = false;
        while let Some(data) = self.carriers.receive_datagram(session) {
            got |= self.queue_datagram(conn, ReceivedDatagram { data, ecn: Ecn::NotEct });
        }
        if got {
            self.arrived(conn);
        }
    }

    /// The first datagram of a session whose listener delivers streams and datagrams. Until the
    /// program takes more, datagrams wait in the session.
    pub(crate) fn begin_datagrams(&mut self, session: SessionId) -> Option<Key> {
        if !self.carriers.may_begin_datagrams(session) {
            return None;
        }
        let group = self.carriers.group_of(session)?;
        let claimed = self.groups.get(group)?.claimed;
        let listener = self.group_listener(group);
        let undeliverable = !claimed && listener.is_none_or(|l| self.is_full(l.0));
        if undeliverable || self.is_group_full(group) {
            return None;
        }
        if self.conns.len() >= self.cx.limits.connections {
            // Whose end will make room is not known, and a session reports a datagram only if none
            // waits there: the next one asks again.
            let mut any = false;
            while self.carriers.receive_datagram(session).is_some() {
                any = true;
            }
            if any {
                self.cx.stats.refuse(Refusal::Connection);
            }
            return None;
        }
        let data = self.carriers.receive_datagram(session)?;
        let datagrams = self.carriers.datagrams(session)?;
        let conn = self.received(datagrams);
        self.carriers.begin_datagrams(session, conn);
        self.join_group(group, conn);
        self.queue_datagram(conn, ReceivedDatagram { data, ecn: Ecn::NotEct });
        self.deliver(conn, HandOver::Group(group));
        Some(conn)
    }

    /// A carrier asks whether the program still uses a flow of a session.
    pub(crate) fn say_if_used(&mut self, session: SessionId) {
        let conns = &self.conns;
        let held = |conn: Key| conns.get(conn).is_some_and(|c| !c.released && c.is_open());
        self.carriers.used(&mut self.cx, session, held);
    }

    /// The session of a group is over, after its flows were: members that wait for a stream of it
    /// get none.
    pub(crate) fn group_lost(&mut self, session: SessionId, group: Key, lost: &SessionLost, known: bool) {
        let whose = self.group_of(session);
        let pending = self.pending_on(session);
        if let Some(g) = self.groups.get_mut(group) {
            g.pending.retain(|(c, _)| !pending.contains(c));
        }
        for conn in pending {
            self.session_lost(conn, lost.clone());
        }
        if !known {
            self.no_more_streams(whose, lost.error.clone());
        }
    }

    /// Ends a session: at once with a code, or as its protocol ends in order.
    pub(crate) fn end_session(&mut self, session: SessionId, code: Option<u64>) {
        if let Some(over) = self.carriers.end_session(&self.cx, session, code) {
            self.session_over(over);
        }
    }

    /// Ends a session with a code of the application's and words for the peer, where its protocol
    /// has room for them.
    pub(crate) fn end_session_saying(&mut self, session: SessionId, code: u64, reason: &[u8]) {
        if let Some(over) = self.carriers.end_session_for_all(&self.cx, session, code, reason) {
            self.session_over(over);
        }
        self.drain_carriers();
    }

    /// A session was ended from this side.
    pub(crate) fn session_over(&mut self, SessionOver { session, error }: SessionOver) {
        self.no_more_streams(self.group_of(session), error);
    }

    /// Aborts all sessions.
    pub(crate) fn abort_sessions(&mut self) {
        for session in self.carriers.sessions() {
            self.end_session(session, Some(ABORTED));
        }
    }
}
