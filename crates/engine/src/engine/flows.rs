//! What becomes of a connection when its carrier reports something of its flow.

use super::Engine;
use crate::MessageId;
use crate::carrier::{FlowId, SessionId};
use crate::conn::{Conn, ConnectionState};
use crate::event::{ConnectionError, Event, SendError};
use crate::terminate::NO_CODE;
use neater_base::Key;
use neater_base::net::Net;

impl<N: Net> Engine<N> {
    /// Data can be received on a flow, or its end.
    pub(super) fn flow_readable(&mut self, conn: Key) {
        // It may have left its flow since that was reported.
        if self.conns.get(conn).is_some_and(|c| c.flow != FlowId::None) {
            self.conn_ready_stream(conn, true);
        }
    }

    /// The peer has abandoned its direction of a flow. A stream on which nothing can be sent any more is over then.
    pub(super) fn peer_reset(&mut self, conn: Key, code: u64) {
        if let Some(c) = self.conns.get_mut(conn)
            && c.is_open()
            && c.send.is_over_for_peer()
        {
            c.recv = c.recv.on_reset(code);
            self.fail_connection(conn, ConnectionError::StreamReset(code));
        }
    }

    /// The peer has acknowledged a message.
    pub(super) fn message_acked(&mut self, conn: Key, id: MessageId) {
        if let Some(c) = self.conns.get_mut(conn) {
            c.messages_sent = c.messages_sent.saturating_add(1);
        }
        self.notify(conn, Event::Sent(id));
    }

    /// A message that need not arrive was given up.
    pub(super) fn message_lost(&mut self, conn: Key, id: MessageId, error: Option<SendError>) {
        self.notify(
            conn,
            match error {
                Some(error) => Event::SendError(id, error),
                None => Event::Expired(id),
            },
        );
    }

    /// Gives those that wait for room in a session their turns.
    pub(super) fn give_turns(&mut self, session: SessionId) {
        let mut waiting = self.carriers.in_turn(session);
        waiting.retain_mut(|w| {
            let Some(c) = self.conns.get(w.conn) else { return false };
            (w.queued, w.priority) = (!c.tx.is_empty(), c.priority());
            w.queued || c.wants_room
        });
        self.carriers.begin_turns(session, waiting);
        while let Some(conn) = self.carriers.next_turn(session) {
            let before = self.conns.get(conn).map_or((0, 0), |c| (c.bytes_sent, c.tx.queue.len()));
            self.conn_ready_stream(conn, false);
            let moved = |c: &Conn| c.bytes_sent > before.0 || c.tx.queue.len() < before.1;
            let more = self.conns.get(conn).is_some_and(|c| !c.tx.is_empty() && moved(c));
            self.carriers.end_turn(session, more);
        }
    }

    /// All that was sent on a flow that acknowledges nothing has left.
    pub(super) fn all_left(&mut self, conn: Key) {
        if self.conns.get(conn).is_some_and(|c| c.state == ConnectionState::Closing && c.tx.is_empty()) {
            self.finish_close(conn);
        }
    }

    /// The peer has acknowledged everything, the end of this side's direction included.
    pub(super) fn all_acked(&mut self, conn: Key) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        // What it did not want it has not got.
        if !c.given_up() {
            c.send = c.send.on_all_acked();
        }
        self.wake_sender(conn);
        let Some(c) = self.conns.get(conn) else { return };
        if c.state == ConnectionState::Closing {
            match c.refusal() {
                Some(error) => self.fail_connection(conn, error),
                None => self.finish_close(conn),
            }
        } else {
            self.both_ended(conn);
            self.find_reset(conn);
        }
    }

    /// The peer does not want more of what this side sends.
    pub(super) fn peer_stopped(&mut self, conn: Key, code: u64) {
        if self.conns.get(conn).is_some_and(|c| c.flow.is_stream_of_session()) {
            self.stream_stopped(conn, code);
            self.find_reset(conn);
            self.both_ended(conn);
        }
    }

    fn stream_stopped(&mut self, conn: Key, code: u64) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        if c.is_greeting() {
            return self.greeting_failed(conn, &ConnectionError::StreamReset(code));
        }
        if c.send.is_finished() && code == NO_CODE && c.recv.reset_code().is_none() {
            c.send = c.send.on_unwanted();
            // Everything is on its way, the end included: the acknowledgement will show what has become of it (RFC 9000
            // section 3.5 lets us wait for it).
            return;
        }
        // A peer that closes in order has what it has acknowledged.
        let delivered = code == NO_CODE && c.tx.is_empty() && self.carriers.is_delivered(c.flow);
        self.carriers.reset(c.flow, code);
        self.given_up_by_peer(conn, delivered, code);
    }

    /// The peer has closed what carries a connection.
    pub(super) fn flow_closed(&mut self, conn: Key) {
        let Some(c) = self.conns.get(conn) else { return };
        match c.state {
            // What has arrived can still be read, and then the end; what the peer can no longer take is reported.
            ConnectionState::Established if !c.is_greeting() => {
                self.end_message(conn);
                self.report_unsent(conn, &ConnectionError::Closed);
                self.notify(conn, Event::Readable);
                self.notify(conn, Event::Closed);
                self.set_closed(conn);
            }
            ConnectionState::Closed => {}
            _ => self.fail_connection(conn, ConnectionError::Closed),
        }
    }
}
