//! How streams end, and what the end of a session means to what used it.

use crate::Engine;
use crate::carrier::end::SessionLost;
use crate::carrier::{FlowId, QuicCarrier};
use crate::event::ConnectionError;
use crate::terminate::NO_CODE;
use neater_base::Key;
use neater_base::net::Net;
use neater_quic::{ConnectionApi, QuicError, StreamId};

impl QuicCarrier {
    /// Abandons this side's direction of a stream.
    pub(crate) fn reset(&mut self, quic: Key, stream: StreamId, code: u64) {
        if let Some(q) = self.connections.get_mut(quic) {
            q.conn.reset(stream, code);
        }
        self.mark_dirty(quic);
    }

    /// Receives nothing more on a stream.
    pub(crate) fn stop(&mut self, quic: Key, stream: StreamId, code: u64) {
        if let Some(q) = self.connections.get_mut(quic) {
            q.conn.stop(stream, code);
        }
        self.mark_dirty(quic);
    }

    /// What the end of a session means to a flow that used it.
    pub(super) fn session_lost(&mut self, flow: FlowId, error: &QuicError) -> SessionLost {
        let unsent = match flow {
            FlowId::Stream { quic, stream } => self.connections.get(quic).is_some_and(|q| q.conn.has_unsent(stream)),
            _ => false,
        };
        // Datagrams are not acknowledged: that they have left is all that can be known.
        let all_left = match flow {
            FlowId::Datagrams { quic } => self.connections.get_mut(quic).is_none_or(|q| q.conn.queued_datagrams() == 0),
            _ => false,
        };
        SessionLost {
            error: ConnectionError::Quic(error.clone()),
            orderly: matches!(error, QuicError::Closed { code: 0, .. } | QuicError::LocallyClosed),
            unsent,
            all_left,
        }
    }
}

// Until the protocols report events.
impl<N: Net> Engine<N> {
    /// The peer does not want more of this stream.
    pub(super) fn stream_stopped(&mut self, conn: Key, quic: Key, stream: StreamId, code: u64) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        if c.is_greeting() {
            return self.greeting_failed(conn, &ConnectionError::StreamReset(code));
        }
        let Some(q) = self.carriers.quic.connections.get_mut(quic) else { return };
        if c.send.is_finished() && code == NO_CODE && c.recv.reset_code().is_none() {
            c.send = c.send.on_unwanted();
            // Everything is on its way, the end included: the acknowledgement will show what has become of it (RFC 9000
            // section 3.5 lets us wait for it).
            return;
        }
        // A peer that closes in order has what it has acknowledged.
        let delivered = code == NO_CODE && c.tx.is_empty() && !q.conn.has_unacknowledged(stream);
        q.conn.reset(stream, code);
        self.carriers.quic.mark_dirty(quic);
        self.given_up_by_peer(conn, delivered, code);
    }
}
