//! Closing, failing and releasing connections.

use crate::carrier::terms::LINGER;
use crate::carrier::terms::{Closed, Delivery, End, Progress, SessionLost};
use crate::carrier::{Early, FlowId};
use crate::closing::ABORTED;
use crate::closing::Closing;
use crate::conn::{Conn, ConnectionState};
use crate::early::FIRST;
use crate::event::{ConnectionError, EstablishmentError, Event, Reason, SendError};
use crate::fork::FORKED;
use crate::timer::Timer;
use crate::{ConnectionId, Engine, ListenerId, Stack};
use bytes::Bytes;
use core::time::Duration;
use neater_base::Key;
use neater_base::net::{ErrorKind, Net, NetError};
use neater_framing::Outbound;

impl<N: Net> Engine<N> {
    /// A connection's closing has begun. If it is not done already, it is watched from now on.
    pub(crate) fn watch_closing(&mut self, conn: Key) {
        if self.conns.get(conn).is_some_and(|c| c.state == ConnectionState::Closing) {
            self.watch(conn);
        }
    }

    pub(crate) fn watch(&mut self, conn: Key) {
        let Progress { mark, packets, .. } = self.progress_of_closing(conn);
        // One that is watched already has its timer.
        if self
            .closings
            .insert(conn, Closing { since: self.cx.now, moved: self.cx.now, mark, packets, asked: None })
            .is_none()
        {
            self.cx.timers.push(self.cx.now + FIRST_CHECK, Timer::Closing(conn));
        }
    }

    /// Asks how far the closing of a connection is, gives it up, or asks again later.
    pub(crate) fn closing_timeout(&mut self, conn: Key) {
        let flow = self.conns.get(conn).map_or(FlowId::None, |c| c.flow);
        if flow.ends_when_sent() {
            self.advance_close(conn);
        } else {
            let end = self.carriers.check_closed(&mut self.cx, flow);
            self.closing_went_on(conn, end.into());
        }
        self.both_ended(conn);
        let Progress { mark, packets, unanswered } = self.progress_of_closing(conn);
        // When it is over, the timer may still come.
        let Some(c) = self.closings.get_mut(&conn) else { return };
        // A connection that both sides have ended and the program has not closed waits as long as
        // the system does.
        if mark != c.mark || self.conns.get(conn).is_some_and(|c| c.is_open()) {
            (c.mark, c.moved, c.packets) = (mark, self.cx.now, packets);
        }
        c.asked = unanswered.filter(|n| *n > 0).map(|_| c.asked.unwrap_or(self.cx.now));
        let c = *c;
        let flow = self.conns.get(conn).map_or(FlowId::None, |c| c.flow);
        let answers =
            unanswered == Some(0) || self.carriers.answered_since(&self.cx, flow, c.moved, packets > c.packets);
        let until = match c.asked {
            _ if self.is_short() => c.moved + LINGER,
            // It may be on its way.
            Some(asked) => (c.moved + LINGER).max(asked + LINGER / 2).min(c.moved + STANDSTILL),
            None if answers => c.moved + STANDSTILL,
            None => c.moved + LINGER,
        };
        if until <= self.cx.now {
            return self.give_up_closing(conn);
        }
        self.ask_peer_of_closing(conn, &c);
        // Half as often each time: the checks are cheap, and few.
        let next = self.cx.now + (self.cx.now - c.since).clamp(FIRST_CHECK, CHECKS_APART);
        self.cx.timers.push(next.min(until), Timer::Closing(conn));
    }

    /// How far the closing of a connection is.
    pub(crate) fn progress_of_closing(&mut self, conn: Key) -> Progress {
        match self.conns.get(conn) {
            Some(c) => self.carriers.progress(&self.cx, c.flow, c.tx.bytes as u64),
            None => Progress { mark: 0, packets: 0, unanswered: None },
        }
    }

    /// A peer that is silent is asked whether it is there, where the transport does not do so
    /// itself.
    pub(crate) fn ask_peer_of_closing(&mut self, conn: Key, closing: &Closing) {
        let Some(c) = self.conns.get(conn) else { return };
        // What the transport has taken, a peer that is there acknowledges.
        if c.tx.bytes == 0 {
            return;
        }
        let unwanted = c.state == ConnectionState::Closing && c.recv.may_read();
        let stands_still = self.cx.now.saturating_since(closing.moved) >= LINGER / 2;
        self.carriers.ask_peer(&self.cx, c.flow, LINGER / 2, stands_still, unwanted);
    }

    /// Whether room is short: what makes no progress is in the way of others.
    pub(crate) fn is_short(&self) -> bool {
        self.cx.queued >= self.cx.limits.engine_bytes
            || self.conns.len() >= self.cx.limits.connections
            || self.cx.starved.is_some_and(|at| self.cx.now.saturating_since(at) < SHORTAGE)
    }

    /// The system has no descriptor for another connection.
    pub(crate) fn note_shortage(&mut self) {
        self.cx.starved = Some(self.cx.now);
    }

    /// What was sent is not taken, or not acknowledged, and has not been for as long as we wait.
    pub(crate) fn give_up_closing(&mut self, conn: Key) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        let (group, flow) = (c.group, c.flow);
        let unwritten = !c.tx.is_empty() || !c.send.is_finished();
        if flow.acknowledges_end() {
            c.send = c.send.on_fin_sent();
            // If it is the last of its session, the session does not end in order either.
            if let Some(g) = group.and_then(|g| self.groups.get_mut(g)) {
                g.abort_code = Some(ABORTED);
            }
        }
        if let Some(over) = self.carriers.give_up(&mut self.cx, flow, unwritten) {
            self.session_over(over);
        }
        self.fail_connection(conn, ConnectionError::TimedOut);
        if let Some(g) = group.and_then(|g| self.groups.get_mut(g)) {
            g.abort_code = None;
        }
    }

    /// Nothing more can be sent on a stream: the peer has refused more with this code, and has
    /// received everything or not.
    pub(crate) fn given_up_by_peer(&mut self, conn: Key, delivered: bool, code: u64) {
        let error = ConnectionError::StreamReset(code);
        let Some(c) = self.conns.get_mut(conn) else { return };
        c.send = c.send.on_stopped(code, delivered);
        if c.state == ConnectionState::Closing && delivered {
            return self.finish_close(conn);
        }
        if c.state == ConnectionState::Closing || c.recv.reset_code().is_some() {
            return self.fail_connection(conn, error);
        }
        c.cold().error = Some(error.clone());
        self.report_unsent(conn, &error);
        // A task that waits for room learns that there is none to come.
        self.notify(conn, Event::Writable);
    }

    /// A stream on which nothing can be sent any more is over when the peer has abandoned the other
    /// direction, too: that is found out here, because the program may not be reading.
    pub(crate) fn find_reset(&mut self, conn: Key) {
        let Some(c) = self.conns.get_mut(conn).filter(|c| c.is_open() && c.send.is_over_for_peer()) else { return };
        // The transport forgets a reset that was read.
        let read = c.recv.reset_code();
        let code = self.carriers.peer_reset(c.flow, read);
        if let Some(code) = code {
            c.recv = c.recv.on_reset(code);
            self.fail_connection(conn, ConnectionError::StreamReset(code));
        }
    }

    /// A connection that both sides have ended is over when the peer has what was sent. What it has
    /// sent can still be read.
    pub(crate) fn both_ended(&mut self, conn: Key) {
        let Some(c) = self.conns.get(conn).filter(|c| c.is_open() && c.send.is_finished() && c.tx.is_empty()) else {
            return;
        };
        // Also where the peer has no direction, or this side, or the program wants no more and the
        // peer was notified of it.
        let nothing_comes = c.recv.has_peer_finished() || !c.recv.may_read() && self.carriers.reports_stop(c.flow);
        let nothing_goes = c.send.is_settled() || c.send.is_absent();
        if c.flow.acknowledges_end() {
            if nothing_comes && c.given_up() {
                if let Some(error) = c.refusal() {
                    self.fail_connection(conn, error);
                }
            } else if nothing_comes && nothing_goes && c.request.may_receive {
                self.ended(conn);
            }
            return;
        }
        match self.carriers.both_delivered(&mut self.cx, c.flow, c.recv.has_peer_finished()) {
            Some(Delivery::Done) => self.ended(conn),
            Some(Delivery::Failed(error)) => self.break_connection(conn, error),
            Some(Delivery::Open) if !self.closings.contains_key(&conn) => self.watch(conn),
            Some(Delivery::Open) | None => {}
        }
    }

    pub(crate) fn ended(&mut self, conn: Key) {
        let Some(c) = self.conns.get(conn) else { return };
        let unread = c.recv.may_read();
        let shared = c.flow.keeps_session();
        if unread {
            self.notify(conn, Event::Readable);
        }
        self.notify(conn, Event::Closed);
        if !unread && !shared {
            self.detach(conn);
        }
        let group = self.conns.get(conn).filter(|c| c.is_peers_stream()).and_then(|c| c.group);
        self.set_closed(conn);
        if let Some(group) = group {
            self.room_in_group(group, false);
        }
    }

    /// The closing of a connection has gone on.
    pub(crate) fn closing_went_on(&mut self, conn: Key, Closed { end, fin_done, peer_ended, session }: Closed) {
        if fin_done || peer_ended {
            let Some(c) = self.conns.get_mut(conn) else { return };
            if fin_done {
                c.send = c.send.on_fin_sent();
            }
            if peer_ended {
                c.recv = c.recv.on_peer_finished();
            }
        }
        if let Some(over) = session {
            self.session_over(over);
        }
        match end {
            End::Waits => {}
            End::Done => self.finish_close(conn),
            End::Failed(error) => self.fail_connection(conn, error),
        }
    }

    /// Drops what a peer sends to a connection that is closing and still has something to
    /// send: a peer that is closing, too, would wait for that, and this side for the peer.
    pub(crate) fn discard_incoming(&mut self, conn: Key) {
        let closing = self.conns.get(conn).filter(|c| c.state == ConnectionState::Closing);
        if let Some(flow) = closing.map(|c| c.flow) {
            let closed = self.carriers.discard_incoming(&mut self.cx, conn, flow);
            self.closing_went_on(conn, closed);
        }
    }

    /// Closes a connection: what was sent is delivered, then [`Event::Closed`] follows: the peer's
    /// transport has acknowledged everything (RFC 9293 section 3.6), which does not mean that its
    /// program has read it. What the peer still sends is not received any more.
    ///
    /// It takes as long as there is progress. When the peer does not answer within ten seconds of
    /// the last, when it answers and takes nothing for five minutes (ten seconds where the engine
    /// or the system is short of room; one that paused and is gone since is not distinguished from
    /// one that pauses), or when it ends the connection before it has everything,
    /// [`Event::ConnectionError`] follows instead, after [`Event::SendError`] for every message
    /// that waits.
    pub fn close(&mut self, conn: ConnectionId) {
        self.cx.now = self.cx.net.now();
        self.close_now(conn);
    }

    pub(crate) fn close_now(&mut self, conn: ConnectionId) {
        let Some(c) = self.conns.get_mut(conn.0) else { return };
        match c.state {
            // What was accepted is delivered: the connection is established for it, and closed
            // then.
            ConnectionState::Establishing if !c.tx.is_empty() || c.cold.as_ref().is_some_and(|e| e.early.is_some()) => {
                c.close_wanted = true;
            }
            ConnectionState::Establishing => {
                self.cancel_establishment(conn.0);
                self.report_unsent(conn.0, &ConnectionError::Closed);
                self.notify(conn.0, Event::Closed);
                self.set_closed(conn.0);
            }
            ConnectionState::Established => {
                self.end_message(conn.0);
                // A task that waits for room learns that there is none to come.
                self.wake_sender(conn.0);
                let Some(c) = self.conns.get_mut(conn.0) else { return };
                c.state = ConnectionState::Closing;
                c.send = c.send.on_end();
                c.batching = false;
                if let Some(framer) = c.cold.as_mut().and_then(|e| e.framer.as_mut()) {
                    let mut out = Outbound::default();
                    framer.stop(&mut out);
                    for data in out.pieces {
                        c.tx.bytes += data.len();
                        c.tx.queue.push_back(crate::queue::Segment {
                            data,
                            completes: None,
                            expires: None,
                            flags: crate::queue::SendFlags::default(),
                        });
                    }
                    self.recount(conn.0);
                }
                self.advance_close(conn.0);
                self.discard_incoming(conn.0);
                self.watch_closing(conn.0);
            }
            ConnectionState::Closing => {}
            // What a failed connection has received will not be read.
            ConnectionState::Closed if c.flow.has_own_socket() => self.detach(conn.0),
            ConnectionState::Closed => {}
        }
    }

    /// Nothing more is sent: of a message whose end was not, a framer keeps what it has. Without a
    /// framer, the end of the direction is the end of the message.
    pub(crate) fn end_message(&mut self, conn: Key) {
        let Some(c) = self.conns.get_mut(conn).filter(|c| c.framed()) else { return };
        if let Some(id) = c.tx.made().and_then(|q| q.give_up_message()) {
            self.recount(conn);
            self.notify(conn, Event::SendError(id, SendError::Unfinished));
        }
    }

    /// Moves a closing connection on: the queue first, then the transport's own end.
    pub(crate) fn advance_close(&mut self, conn: Key) {
        let Some(c) = self.conns.get(conn) else { return };
        if !c.tx.is_empty() || !c.tx.sealed.is_empty() {
            let done = self.flush(conn);
            let (error, empty) = (done.error.is_some(), self.conns.get(conn).is_none_or(|c| c.tx.is_empty()));
            if error || !empty {
                return self.report_close_flush(conn, done);
            }
            self.report_close_flush(conn, done);
        }
        let Some(c) = self.conns.get(conn).filter(|c| c.state == ConnectionState::Closing) else { return };
        let (flow, sides) = (c.flow, c.sides());
        if flow.ends_when_sent() {
            // What was queued leaves before the session may end.
            self.send_queued(flow);
        }
        let closed = self.carriers.close(&mut self.cx, conn, flow, sides);
        let waits = closed.end == End::Waits;
        self.closing_went_on(conn, closed);
        if waits && let Some(error) = self.conns.get(conn).and_then(Conn::refusal) {
            self.fail_connection(conn, error);
        }
    }

    pub(crate) fn report_close_flush(&mut self, conn: Key, done: crate::queue::Flushed) {
        for id in done.sent {
            self.notify(conn, Event::Sent(id));
        }
        for (id, error) in done.failed {
            self.notify(conn, Event::SendError(id, error));
        }
        if let Some(error) = done.error {
            self.fail_connection(conn, error);
        }
    }

    /// The last step of a graceful close.
    pub(crate) fn finish_close(&mut self, conn: Key) {
        let Some(c) = self.conns.get(conn) else { return };
        if c.state == ConnectionState::Closed {
            return;
        }
        // The peer has them.
        if let Some(queue) = self.conns.get_mut(conn).and_then(|c| c.tx.made()) {
            queue.in_message = false;
            for id in core::mem::take(&mut queue.sealed) {
                self.notify(conn, Event::Sent(id));
            }
        }
        self.report_unsent(conn, &ConnectionError::Closed);
        self.notify(conn, Event::Closed);
        self.detach(conn);
        self.set_closed(conn);
    }

    /// Reports every message that is still in the queue as not sent, before the last event of a
    /// connection.
    pub(crate) fn report_unsent(&mut self, conn: Key, error: &ConnectionError) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        let framed = c.framed();
        if c.tx.is_empty() && c.tx.sealed.is_empty() && !(framed && c.tx.in_message) {
            return;
        }
        let unsent = c.tx.give_up(framed);
        self.recount(conn);
        for id in unsent {
            self.notify(conn, Event::SendError(id, SendError::Connection(error.clone())));
        }
    }

    /// Takes the transport away from a connection.
    pub(crate) fn detach(&mut self, conn: Key) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        let flow = core::mem::replace(&mut c.flow, FlowId::None);
        let (sides, peer) = (c.sides(), c.cold.as_ref().and_then(|e| e.peer));
        let listeners = &self.listeners;
        if let Some(over) =
            self.carriers.release(&mut self.cx, conn, flow, sides, peer, |listener| listeners.contains(listener))
        {
            self.session_over(over);
        }
        if let Some(session) = flow.session() {
            self.close_spare(session);
        }
        self.leave_group(conn);
    }

    /// Closes a connection's books. It is removed when no handle holds it.
    pub(crate) fn set_closed(&mut self, conn: Key) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        c.state = ConnectionState::Closed;
        c.tx.clear();
        if c.is_framer_handshaking() {
            self.drop_framer_handshake(conn);
        }
        self.closings.remove(&conn);
        self.recount(conn);
        if self.conns.get(conn).is_some_and(|c| c.released) {
            self.remove(conn);
        }
    }

    pub(crate) fn remove(&mut self, conn: Key) {
        self.detach(conn);
        // The framer is the program's.
        if let Some(Some(rare)) = self.conns.discard_if(conn, |c| Some(c.cold.take())) {
            self.cx.kept = self.cx.kept.saturating_sub(rare.datagram_bytes);
            self.notices.spend(ConnectionId(conn), |s| s.keep_cold_state(rare));
        }
    }

    /// Ends an established connection because of an error. Messages that were not sent are
    /// reported.
    pub(crate) fn fail_connection(&mut self, conn: Key, error: ConnectionError) {
        if self.conns.get(conn).is_some_and(Conn::is_framer_handshaking) {
            return self.framer_handshake_failed(conn, &error);
        }
        // What a stream of a session has received can still be read.
        let keep = self.conns.get(conn).is_some_and(|c| c.flow.acknowledges_end());
        self.fail_and_keep(conn, error, keep);
    }

    /// As [`Engine::fail_connection`], of what sending has met or the system has reported: what has
    /// arrived before can still be read.
    pub(crate) fn break_connection(&mut self, conn: Key, error: ConnectionError) {
        let Some(c) = self.conns.get(conn) else { return };
        if c.is_framer_handshaking() {
            return self.framer_handshake_failed(conn, &error);
        }
        let stream = c.stack.is_some_and(Stack::is_stream);
        let keep = stream && c.recv.may_read() && c.request.may_receive;
        if keep {
            self.notify(conn, Event::Readable);
        }
        self.fail_and_keep(conn, error, keep);
    }

    pub(crate) fn fail_and_keep(&mut self, conn: Key, error: ConnectionError, keep: bool) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        if c.state == ConnectionState::Closed {
            return;
        }
        // The program has declared that it will not read from a closing connection.
        let keep = keep && c.state != ConnectionState::Closing;
        c.cold().error = Some(error.clone());
        self.note_early_death(conn, &error);
        self.report_unsent(conn, &error);
        self.notify(conn, Event::ConnectionError(error));
        if !keep {
            self.detach(conn);
        }
        self.set_closed(conn);
    }

    /// The session below a connection is over.
    pub(crate) fn session_lost(
        &mut self,
        conn: Key,
        SessionLost { error, orderly, unsent, all_left, ends_complete }: SessionLost,
    ) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        // What a peer did not want it has not got, in whatever order its session ends.
        let refused = c.refusal().filter(|_| ends_complete);
        let orderly = orderly && refused.is_none();
        let error = refused.unwrap_or(error);
        if c.is_framer_handshaking() {
            return self.framer_handshake_failed(conn, &error);
        }
        if ends_complete && orderly && c.tx.is_empty() {
            c.send = c.send.on_all_acked();
        }
        // A peer that ends its session in order is taken to have what has left for it, unless it
        // has refused it; so is the peer of a session that the program has ended.
        let delivered = !c.given_up() && (c.bytes_sent == 0 || c.send.is_settled() || !unsent);
        match c.state {
            ConnectionState::Establishing => {
                let error = EstablishmentError::new(Reason::EstablishmentFailed, error.to_string());
                self.fail(conn, error);
            }
            ConnectionState::Closing if orderly && c.tx.is_empty() && (c.send.is_settled() || all_left) => {
                self.finish_close(conn);
            }
            // What has arrived can still be read, and reading shows whether it is complete.
            ConnectionState::Established if orderly && c.tx.is_empty() && delivered => {
                self.end_message(conn);
                self.notify(conn, Event::Readable);
                self.notify(conn, Event::Closed);
                self.set_closed(conn);
            }
            ConnectionState::Established | ConnectionState::Closing => {
                let why = c.error().filter(|_| orderly).cloned().unwrap_or(error);
                self.notify(conn, Event::Readable);
                self.fail_connection(conn, why);
            }
            ConnectionState::Closed => {}
        }
    }

    /// Ends a connection at once: nothing more is delivered, and the peer is notified where the
    /// protocol can.
    pub fn abort(&mut self, conn: ConnectionId) {
        self.abort_with(conn, ABORTED);
    }

    /// As [`Engine::abort`], with an application error code for transports that carry one (QUIC).
    pub fn abort_with(&mut self, conn: ConnectionId, code: u64) {
        self.cx.now = self.cx.net.now();
        let Some(c) = self.conns.get(conn.0) else { return };
        match c.state {
            ConnectionState::Closed if c.flow.has_own_socket() => return self.detach(conn.0),
            ConnectionState::Closed => return,
            ConnectionState::Establishing => self.cancel_establishment(conn.0),
            _ => {}
        }
        let Some(c) = self.conns.get(conn.0) else { return };
        self.carriers.abort(&mut self.cx, c.flow, code);
        self.report_unsent(conn.0, &ConnectionError::LocalAbort);
        let Some(c) = self.conns.get_mut(conn.0) else { return };
        c.cold().error = Some(ConnectionError::LocalAbort);
        // If this was the last of its session, the session does not end in order either.
        let group = c.group;
        if let Some(g) = group.and_then(|g| self.groups.get_mut(g)) {
            g.abort_code = Some(code.max(ABORTED));
        }
        self.notify(conn.0, Event::ConnectionError(ConnectionError::LocalAbort));
        self.detach(conn.0);
        if let Some(g) = group.and_then(|g| self.groups.get_mut(g)) {
            g.abort_code = None;
        }
        self.set_closed(conn.0);
    }

    /// Refuses what the peer may still send on a stream, with an application error code. Messages
    /// that a framer, or the arrival of their datagram, has made whole already can still be
    /// received (without a framer, SCTP throws them away), and the end follows. What is not
    /// established yet is notified when it is.
    pub fn stop_receiving(&mut self, conn: ConnectionId, code: u64) {
        let Some(c) = self.conns.get_mut(conn.0) else { return };
        if c.state == ConnectionState::Establishing {
            // What will carry it is notified as soon as it is known.
            c.cold().refusal = Some(code);
            return;
        }
        if c.stack.is_some_and(|s| !s.is_stream()) {
            // What has arrived can still be received.
            let flow = c.flow;
            while let Some(socket) = flow.own_socket()
                && self.fill_datagrams(conn.0, socket).is_ok_and(|more| more)
            {}
        }
        let Some(c) = self.conns.get_mut(conn.0) else { return };
        c.recv = c.recv.on_stop(code);
        // Of datagrams, those that are here can still be looked at.
        let stream = c.stack.is_some_and(Stack::is_stream);
        if let Some(cold) = c.cold.as_mut().filter(|_| stream) {
            cold.receiver.stop();
        }
        if c.state != ConnectionState::Closed {
            // A task that waits for more learns that there is none to come.
            self.notify(conn.0, Event::Readable);
        }
        let Some(c) = self.conns.get_mut(conn.0) else { return };
        self.carriers.stop(&self.cx, c.flow, code);
        // The peer may have everything already.
        self.both_ended(conn.0);
    }

    /// Abandons the sending direction of a stream, with an application error code. The rest of its
    /// data is not delivered: [`Event::SendError`] follows for every message that waits. TCP and
    /// TLS cannot express it: there the connection is aborted, unless everything was sent and
    /// handed to the system, because the peer would take a part for the whole. On a connection that
    /// is not established yet the reset follows once it is.
    pub fn reset_sending(&mut self, conn: ConnectionId, code: u64) {
        let Some(c) = self.conns.get_mut(conn.0) else { return };
        if c.state == ConnectionState::Establishing {
            // What will carry it is notified as soon as it is known.
            c.send = c.send.on_end();
            c.cold().abandoned = Some(code);
            self.give_up_first(conn.0, &ConnectionError::LocalAbort);
            self.report_unsent(conn.0, &ConnectionError::LocalAbort);
            return self.wake_sender(conn.0);
        }
        if !self.carriers.can_reset(c.flow) {
            let said = c.send.is_finished() && c.tx.is_empty();
            if !said {
                self.abort_with(conn, code);
            }
            return;
        }
        c.send = c.send.on_reset(code);
        self.report_unsent(conn.0, &ConnectionError::LocalAbort);
        let Some(c) = self.conns.get_mut(conn.0) else { return };
        self.carriers.reset(c.flow, code);
        self.recount(conn.0);
        self.wake_sender(conn.0);
        if self.conns.get(conn.0).is_some_and(|c| c.state == ConnectionState::Closing) {
            return self.advance_close(conn.0);
        }
        // The peer may have ended its direction before.
        self.both_ended(conn.0);
        self.find_reset(conn.0);
    }

    /// Tasks that wait for room, or for the end to be out, are to ask again.
    pub(crate) fn wake_sender(&mut self, conn: Key) {
        if self.conns.get_mut(conn).is_some_and(|c| core::mem::take(&mut c.wants_room)) {
            self.notify(conn, Event::Writable);
        }
    }

    /// The program will not use this connection again: it is closed gracefully if it is open,
    /// reports nothing more, and is removed, with its socket, when what was sent is delivered, or
    /// not taken for ten seconds ([`Engine::close`]).
    pub fn release(&mut self, conn: ConnectionId) {
        if !fast_path!(self).release(conn.0) {
            self.release_in_full(conn);
        }
    }

    #[inline(never)]
    pub(crate) fn release_in_full(&mut self, conn: ConnectionId) {
        let Some(c) = self.conns.get(conn.0) else { return };
        match c.state {
            ConnectionState::Closed => self.remove(conn.0),
            _ => {
                self.cx.now = self.cx.net.now();
                self.close_now(conn);
            }
        }
    }

    /// Keeps the first message of a connection, which may be early data. It has its number from now
    /// on.
    pub(crate) fn keep_first(&mut self, conn: Key, data: Bytes) {
        if let Some(c) = self.conns.get_mut(conn) {
            c.tx.next_id = FIRST.0;
            c.cold().early = Some(data);
        }
    }

    /// The transport that has won took the first message with its handshake: it need not be sent
    /// any more.
    pub(crate) fn first_was_taken(&mut self, conn: Key) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        let Some(data) = c.cold.as_mut().and_then(|e| e.early.take()) else { return };
        c.bytes_sent += data.len() as u64;
        c.messages_sent = c.messages_sent.saturating_add(1);
        c.cold().first_taken = true;
        self.notices.spend(ConnectionId(conn), |s| s.keep(data));
    }

    /// The first message is not to be sent any more, and attempts that begin later do not offer it.
    pub(crate) fn give_up_first(&mut self, conn: Key, error: &ConnectionError) {
        let first = self.conns.get_mut(conn).and_then(|c| c.cold.as_mut()).and_then(|e| e.early.take());
        if let Some(data) = first {
            if let Some(c) = self.conns.get(conn) {
                let attempts = c.est.as_deref().map_or(&[][..], |est| &est.attempts).iter().map(|a| a.session);
                for session in attempts.chain(c.flow.awaited()) {
                    self.carriers.sockets.withdraw_first(session);
                }
            }
            self.notices.spend(ConnectionId(conn), |s| s.keep(data));
            self.notify(conn, Event::SendError(FIRST, SendError::Connection(error.clone())));
        }
    }

    /// Moves on the handshake of a connection that was delivered before its end.
    pub(crate) fn drive_early(&mut self, key: Key, conn: Key) {
        let c = self.conns.get(conn).filter(|c| c.is_open());
        let (open, reads) = (c.is_some(), c.is_some_and(|c| c.request.may_receive));
        match self.carriers.sockets.shake_early(&mut self.cx, key, reads) {
            Early::Complete if open => {
                self.notify(conn, Event::Readable);
                self.flush_and_report(conn);
            }
            Early::Open | Early::Complete => {}
            // What has come before the failure can still be read, and reading reports it then.
            Early::Failed(_) if reads => {
                self.notify(conn, Event::Readable);
                // A writer that waits for room may be the only one that there is.
                self.notify(conn, Event::Writable);
            }
            Early::Failed(error) => self.fail_connection(conn, error),
        }
    }

    /// The time for the handshake of such a connection may be over.
    pub(crate) fn early_timeout(&mut self, conn: Key) {
        let Some(key) = self.conns.get(conn).and_then(|c| c.flow.own_socket()) else { return };
        if !self.carriers.sockets.may_still_shake(&mut self.cx, key) {
            return self.fail_connection(conn, ConnectionError::TimedOut);
        }
        self.drive_early(key, conn);
        if self.conns.get(conn).is_some_and(|c| c.state == ConnectionState::Closing) {
            self.advance_close(conn);
        }
    }

    /// Whether what the program receives now came before the peer's handshake was complete, and may
    /// be a replay.
    pub(crate) fn is_early(&self, conn: Key) -> bool {
        self.conns
            .get(conn)
            .filter(|c| c.passive && c.state == ConnectionState::Established)
            .is_some_and(|c| self.carriers.is_early(c.flow))
    }

    /// Whether this is the copy of an engine that a child of `fork` has inherited. It is of no use:
    /// every call that would do something fails with [`ErrorKind::Forked`], and nothing that it
    /// does reaches the parent or its peers. The child makes an engine of its own.
    #[must_use]
    #[inline]
    pub fn is_forked(&self) -> bool {
        self.cx.net.forked()
    }

    /// Refuses to do anything in a child.
    #[inline]
    pub(crate) fn own(&self) -> Result<(), ConnectionError> {
        self.unusable().map_or(Ok(()), |e| Err(ConnectionError::Net(e)))
    }

    /// As [`Engine::own`], for what sends.
    #[inline]
    pub(crate) fn own_to_send(&self) -> Result<(), SendError> {
        self.own().map_err(SendError::Connection)
    }

    /// As [`Engine::own`], for what makes connections and listeners.
    #[inline]
    pub(crate) fn own_to_establish(&self) -> Result<(), EstablishmentError> {
        self.unusable().map_or(Ok(()), |e| Err(not_established(e)))
    }

    /// Why no call on this engine will do anything any more, if that is so.
    #[must_use]
    #[inline]
    pub fn unusable(&self) -> Option<NetError> {
        if self.is_forked() {
            Some(FORKED)
        } else if self.orphaned {
            Some(NOT_DRIVEN)
        } else {
            None
        }
    }

    /// The driver of this engine has stopped, and there will be no other: what waits would wait for
    /// ever. Every connection ends with [`ErrorKind::NotDriven`], every listener stops, and every
    /// further call fails with it.
    pub fn orphan(&mut self) {
        self.cx.now = self.cx.net.now();
        self.orphaned = true;
        for listener in self.listeners.keys() {
            self.stop(ListenerId(listener));
        }
        for conn in self.conns.keys() {
            let Some(c) = self.conns.get(conn) else { continue };
            if c.state == ConnectionState::Establishing {
                self.cancel_establishment(conn);
                self.fail(conn, not_established(NOT_DRIVEN));
                continue;
            }
            // The peer must not take a part for the whole. What the system has all of, it may still
            // deliver.
            if !c.tx.is_empty() {
                self.carriers.abort_socket(&mut self.cx, c.flow);
            }
            self.fail_connection(conn, ConnectionError::Net(NOT_DRIVEN));
        }
        self.abort_sessions();
        // The end is the only thing that can still be sent, and it is sent.
        self.settle();
    }
}

/// How soon after the closing has begun it is first asked how far it is.
const FIRST_CHECK: Duration = Duration::from_millis(2);

/// How much later it is asked again at most.
const CHECKS_APART: Duration = Duration::from_secs(1);

/// How long a peer that answers may take nothing of what is to be delivered before its connection
/// is closed. A reader that is slow seems to stand still, too: its kernel reports room when a good
/// part of its buffer is free (RFC 9293 section 3.8.6.2.2), which at 3 kB/s takes minutes.
const STANDSTILL: Duration = Duration::from_secs(300);

/// For how long a lack of descriptors is taken to last.
const SHORTAGE: Duration = Duration::from_secs(2);

const NOT_DRIVEN: NetError = NetError::new(ErrorKind::NotDriven);

#[cold]
fn not_established(e: NetError) -> EstablishmentError {
    EstablishmentError::new(Reason::EstablishmentFailed, e.kind.as_str())
}
