//! TLS's early data: the first flight of a client, and connections that a server has delivered
//! before the end of their handshake.

use crate::carrier::SocketCarrier;
use crate::carrier::channel::{Channel, Kind};
use crate::carrier::ids::CarrierTimer;
use crate::context::Context;
use crate::event::{AttemptError, ConnectionError};
use bytes::Bytes;
use neater_base::Key;
use neater_base::net::Net;
use neater_tls::TlsStream;

/// How far the handshake of a connection is that was delivered before its end.
pub(crate) enum Early {
    /// Not over.
    Open,
    /// Complete: more may be read and written now.
    Complete,
    Failed(ConnectionError),
}

/// Offers a message to the first flight of a TLS client, all or nothing: of a message half sent it
/// could not be found out which half the server has dropped.
pub(crate) fn offer(tls: &mut TlsStream, data: &Bytes) {
    if !data.is_empty() && tls.early_capacity() >= data.len() {
        tls.early_write(data);
    }
}

/// Whether a TLS server waits for the end of its client's handshake, although the connection was
/// delivered.
pub(crate) fn unfinished(channel: &Channel) -> bool {
    matches!(&channel.kind, Kind::Tls(tls) if tls.is_handshaking())
}

impl SocketCarrier {
    /// Whether what is received of a socket now came before the peer's handshake was complete.
    pub(crate) fn is_early(&self, key: Key) -> bool {
        self.channels.get(key).is_some_and(unfinished)
    }

    /// Whether the TLS session of a won channel has carried the first message.
    pub(crate) fn tls_took_first(&self, key: Key) -> bool {
        matches!(self.channels.get(key).map(|c| &c.kind), Some(Kind::Tls(tls))
            if tls.early_data_sent() > 0 && tls.early_data_accepted() == Some(true))
    }

    /// An incoming TLS connection has brought early data that was accepted, before the end of its
    /// handshake.
    pub(crate) fn has_early(&self, key: Key) -> bool {
        matches!(self.channels.get(key).map(|c| &c.kind), Some(Kind::Tls(tls))
            if tls.is_handshaking() && tls.early_data_received() > 0)
    }

    /// Whether there is time left for the handshake of a connection that was delivered before its
    /// end; then the deadline is set again.
    pub(crate) fn may_still_shake<N: Net>(&self, cx: &mut Context<N>, key: Key) -> bool {
        match self.channels.get(key).and_then(|ch| ch.deadline) {
            Some(at) if at > cx.now => {
                cx.timers.push(at, CarrierTimer::channel(key));
                true
            }
            _ => false,
        }
    }

    /// Moves on the handshake of a connection that was delivered before its end. `reads`: after a
    /// failure the program reads what has come before it, and the failure then.
    pub(crate) fn shake_early<N: Net>(&mut self, cx: &mut Context<N>, key: Key, reads: bool) -> Early {
        let driven = self.drive_tls(cx, key);
        let Some(ch) = self.channels.get_mut(key) else { return Early::Open };
        match driven {
            Ok(_) if unfinished(ch) => Early::Open,
            Ok(_) => {
                ch.deadline = None;
                // Data may have come with the end of the handshake, and what was written before it
                // may leave now.
                ch.readable = true;
                Early::Complete
            }
            Err(error) => {
                ch.readable |= reads;
                Early::Failed(from_attempt(error))
            }
        }
    }
}

fn from_attempt(e: AttemptError) -> ConnectionError {
    match e {
        AttemptError::Net(e) => ConnectionError::Net(e),
        AttemptError::Tls(e) => ConnectionError::Tls(e),
        AttemptError::Quic(e) => ConnectionError::Quic(e),
        AttemptError::Sctp(e) => ConnectionError::Sctp(e),
        AttemptError::TimedOut => ConnectionError::TimedOut,
        _ => ConnectionError::Closed,
    }
}
