//! The end of connections (RFC 9622 section 10).

use crate::carrier::FlowId;
use crate::carrier::end::{End, SessionLost};
use crate::conn::{Conn, ConnectionState};
use crate::engine::fast_path;
use crate::event::{ConnectionError, EstablishmentError, Event, Reason, SendError};
use crate::{ConnectionId, Engine, Stack};
use neater_base::Key;
use neater_base::net::Net;
use neater_framing::Outbound;

/// The application error code of a session that ends because its last connection was aborted without one of its own: not
/// 0, which is an orderly end.
pub(crate) const ABORTED: u64 = 1;
/// The application error code of a stream that is given up without one.
pub(crate) const NO_CODE: u64 = 0;

impl<N: Net> Engine<N> {
    /// Closes a connection: what was sent is delivered, then [`Event::Closed`] follows: the peer's transport has acknowledged
    /// everything (RFC 9293 section 3.6), which does not say that its program has read it. What the peer still sends is not
    /// received any more.
    ///
    /// It takes as long as there is progress. When the peer does not answer within ten seconds of
    /// the last, when it answers and takes nothing for five minutes (ten seconds where the engine
    /// or the system is short of room; one that paused and is gone since is not told from one that
    /// pauses), or when it ends the connection before it has everything,
    /// [`Event::ConnectionError`] follows instead, after [`Event::SendError`] for every message
    /// that waits.
    pub fn close(&mut self, conn: ConnectionId) {
        self.cx.now = self.cx.net.now();
        self.close_now(conn);
    }

    fn close_now(&mut self, conn: ConnectionId) {
        let Some(c) = self.conns.get_mut(conn.0) else { return };
        match c.state {
            // What was accepted is delivered: the connection is established for it, and closed then.
            ConnectionState::Establishing if !c.tx.is_empty() || c.ext.as_ref().is_some_and(|e| e.early.is_some()) => {
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
                // Whoever waits for room learns that there is none to come.
                self.wake_sender(conn.0);
                let Some(c) = self.conns.get_mut(conn.0) else { return };
                c.state = ConnectionState::Closing;
                c.send = c.send.on_end();
                c.batching = false;
                if let Some(framer) = c.ext.as_mut().and_then(|e| e.framer.as_mut()) {
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

    /// Nothing more is sent: of a message whose end was not, a framer keeps what it has. Without a framer, the end of the
    /// direction is the end of the message.
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

    fn report_close_flush(&mut self, conn: Key, done: crate::queue::Flushed) {
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

    /// Reports every message that is still in the queue as not sent, before the last event of a connection.
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
        let (sides, peer) = (c.sides(), c.ext.as_ref().and_then(|e| e.peer));
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

    /// Closes a connection's books. It is removed when nobody holds it.
    pub(crate) fn set_closed(&mut self, conn: Key) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        c.state = ConnectionState::Closed;
        c.tx.clear();
        if c.is_greeting() {
            self.drop_greeting(conn);
        }
        self.closings.remove(&conn);
        self.recount(conn);
        if self.conns.get(conn).is_some_and(|c| c.released) {
            self.remove(conn);
        }
    }

    fn remove(&mut self, conn: Key) {
        self.detach(conn);
        // The framer is the program's.
        if let Some(Some(rare)) = self.conns.discard_if(conn, |c| Some(c.ext.take())) {
            self.cx.kept = self.cx.kept.saturating_sub(rare.datagram_bytes);
            self.notices.spend(ConnectionId(conn), |s| s.keep_rare(rare));
        }
    }

    /// Ends an established connection because of an error. Messages that were not sent are reported.
    pub(crate) fn fail_connection(&mut self, conn: Key, error: ConnectionError) {
        if self.conns.get(conn).is_some_and(Conn::is_greeting) {
            return self.greeting_failed(conn, &error);
        }
        // What a stream of a session has received can still be read.
        let keep = self.conns.get(conn).is_some_and(|c| c.flow.acknowledges_end());
        self.fail_and_keep(conn, error, keep);
    }

    /// As [`Engine::fail_connection`], of what sending has met or the system has reported: what has arrived before can
    /// still be read.
    pub(crate) fn break_connection(&mut self, conn: Key, error: ConnectionError) {
        let Some(c) = self.conns.get(conn) else { return };
        if c.is_greeting() {
            return self.greeting_failed(conn, &error);
        }
        let stream = c.stack.is_some_and(Stack::is_stream);
        let keep = stream && c.recv.may_read() && c.request.may_receive;
        if keep {
            self.notify(conn, Event::Readable);
        }
        self.fail_and_keep(conn, error, keep);
    }

    fn fail_and_keep(&mut self, conn: Key, error: ConnectionError, keep: bool) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        if c.state == ConnectionState::Closed {
            return;
        }
        // The program has said that it will not read what is being closed.
        let keep = keep && c.state != ConnectionState::Closing;
        c.ext().error = Some(error.clone());
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
        if c.is_greeting() {
            return self.greeting_failed(conn, &error);
        }
        if ends_complete && orderly && c.tx.is_empty() {
            c.send = c.send.on_all_acked();
        }
        // A peer that ends its session in order is taken to have what has left for it, unless it has said that it does not want it; so is
        // the peer of a session that the program has ended.
        let delivered = !c.given_up() && (c.bytes_sent == 0 || c.send.is_settled() || !unsent);
        match c.state {
            ConnectionState::Establishing => {
                let error = EstablishmentError::new(Reason::EstablishmentFailed, error.to_string());
                self.fail(conn, error);
            }
            ConnectionState::Closing if orderly && c.tx.is_empty() && (c.send.is_settled() || all_left) => {
                self.finish_close(conn);
            }
            // What has arrived can still be read, and reading tells whether it is complete.
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

    /// Ends a connection at once: nothing more is delivered, and the peer is told where the protocol can.
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
        c.ext().error = Some(ConnectionError::LocalAbort);
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

    /// Refuses what the peer may still send on a stream, with an application error code. Messages that a framer, or the arrival of their
    /// datagram, has made whole already can still be received (without a framer, SCTP throws them away), and the end follows. What is not
    /// established yet is told so when it is.
    pub fn stop_receiving(&mut self, conn: ConnectionId, code: u64) {
        let Some(c) = self.conns.get_mut(conn.0) else { return };
        if c.state == ConnectionState::Establishing {
            // What will carry it is told as soon as it is known.
            c.ext().refusal = Some(code);
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
        if let Some(ext) = c.ext.as_mut().filter(|_| stream) {
            ext.receiver.stop();
        }
        if c.state != ConnectionState::Closed {
            // Whoever waits for more learns that there is none to come.
            self.notify(conn.0, Event::Readable);
        }
        let Some(c) = self.conns.get_mut(conn.0) else { return };
        self.carriers.stop(&self.cx, c.flow, code);
        // The peer may have everything already.
        self.both_ended(conn.0);
    }

    /// Abandons the sending direction of a stream, with an application error code. The rest of its data is not delivered:
    /// [`Event::SendError`] follows for every message that waits. TCP and TLS have no word for it: there the connection is aborted, unless
    /// all was said and handed to the system, because the peer would take a part for the whole. What is not established yet is told so
    /// when it is.
    pub fn reset_sending(&mut self, conn: ConnectionId, code: u64) {
        let Some(c) = self.conns.get_mut(conn.0) else { return };
        if c.state == ConnectionState::Establishing {
            // What will carry it is told as soon as it is known.
            c.send = c.send.on_end();
            c.ext().abandoned = Some(code);
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

    /// Whoever waits for room, or for the end to be out, is to ask again.
    pub(crate) fn wake_sender(&mut self, conn: Key) {
        if self.conns.get_mut(conn).is_some_and(|c| core::mem::take(&mut c.wants_room)) {
            self.notify(conn, Event::Writable);
        }
    }

    /// The program will not use this connection again: it is closed gracefully if it is open, reports nothing more, and is
    /// removed, with its socket, when what was sent is delivered, or not taken for ten seconds ([`Engine::close`]).
    pub fn release(&mut self, conn: ConnectionId) {
        if !fast_path!(self).release(conn.0) {
            self.release_in_full(conn);
        }
    }

    #[inline(never)]
    fn release_in_full(&mut self, conn: ConnectionId) {
        let Some(c) = self.conns.get(conn.0) else { return };
        match c.state {
            ConnectionState::Closed => self.remove(conn.0),
            _ => {
                self.cx.now = self.cx.net.now();
                self.close_now(conn);
            }
        }
    }
}
