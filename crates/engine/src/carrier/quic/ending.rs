//! How streams end, and what the end of a session means to what used it.

use crate::carrier::QuicCarrier;
use crate::carrier::terms::SessionLost;
use crate::event::ConnectionError;
use neater_base::Key;
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

    /// The connection of a session's datagrams is being closed. True: it waits until all of them
    /// have left, which is reported.
    pub(crate) fn close_datagrams(&mut self, quic: Key) -> bool {
        let Some(q) = self.connections.get_mut(quic) else { return false };
        q.datagrams_closing = q.lost.is_none() && q.conn.queued_datagrams() > 0;
        q.datagrams_closing
    }

    /// Whether the peer has all that was sent on a stream.
    pub(crate) fn is_delivered(&mut self, quic: Key, stream: StreamId) -> bool {
        self.connections.get_mut(quic).is_some_and(|q| !q.conn.has_unacknowledged(stream))
    }
}

/// What the end of a session means to a flow that used it. `unsent`: something of a stream has not
/// left; `all_left`: all datagrams have.
pub(super) fn lost(error: &QuicError, unsent: bool, all_left: bool) -> SessionLost {
    SessionLost {
        error: ConnectionError::Quic(error.clone()),
        orderly: matches!(error, QuicError::Closed { code: 0, .. } | QuicError::LocallyClosed),
        unsent,
        all_left,
        ends_complete: false,
    }
}
