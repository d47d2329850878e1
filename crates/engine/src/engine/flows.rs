//! What becomes of a connection when its carrier reports something of its flow.

use super::Engine;
use crate::conn::ConnectionState;
use crate::event::{ConnectionError, Event};
use crate::terminate::NO_CODE;
use neater_base::Key;
use neater_base::net::Net;

impl<N: Net> Engine<N> {
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
