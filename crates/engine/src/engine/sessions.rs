//! Sessions that carry several connections: how they come to a group, what their peers open in them, and their end.
//!
//! *Responsible for* what is the same whichever carrier has the session. *Not responsible for* groups themselves ([`crate::group`]).

use super::Engine;
use crate::GroupId;
use crate::carrier::end::{SessionLost, SessionOver};
use crate::carrier::session::{Arrived, OpenedStream, Taken};
use crate::carrier::{FlowId, SessionId};
use crate::config::Refusal;
use crate::conn::Conn;
use crate::connection::state::SendSide;
use crate::event::{Event, Step};
use crate::greeting::HandOver;
use crate::queue::ReceivedDatagram;
use crate::terminate::ABORTED;
use crate::{Stack, StreamDirection};
use neater_base::Key;
use neater_base::net::{Ecn, Net};

impl<N: Net> Engine<N> {
    /// An attempt goes on as what its peer offers.
    pub(super) fn attempt_became(&mut self, conn: Key, session: SessionId, before: Stack, stack: Stack) {
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
    pub(super) fn session_arrived(&mut self, session: SessionId, listener: Key) {
        let Some(arrived) = self.carriers.arrived(session) else { return };
        if arrived == Arrived::Connection {
            return self.connection_arrived(session, listener);
        }
        let listens = self.listeners.get(listener);
        let groups = listens.is_some_and(|l| l.groups);
        // Streams wait in their session until the listener may deliver more; nothing keeps groups and datagrams for it.
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
    fn connection_arrived(&mut self, session: SessionId, listener: Key) {
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
    fn received(&mut self, OpenedStream { flow, stack, request, remotes }: OpenedStream) -> Key {
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

    /// The first datagram of a session whose listener delivers streams and datagrams. Until the program takes more, datagrams wait
    /// in the session.
    fn begin_datagrams(&mut self, session: SessionId) -> Option<Key> {
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
            // Whose end will make room is not known, and a session reports a datagram only if none waits there: the next one asks again.
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
    pub(super) fn say_if_used(&mut self, session: SessionId) {
        let conns = &self.conns;
        let held = |conn: Key| conns.get(conn).is_some_and(|c| !c.released && c.is_open());
        self.carriers.used(&mut self.cx, session, held);
    }

    /// The session of a group is over, after its flows were: members that wait for a stream of it get none.
    pub(super) fn group_lost(&mut self, session: SessionId, group: Key, lost: &SessionLost, known: bool) {
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

    /// Ends a session with a code of the application's and words for the peer, where its protocol has room for them.
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
