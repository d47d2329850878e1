//! Early data (0-RTT): a first message that travels with the handshake (RFC 9622 sections 6.2.5 and 9.2.5, RFC 9623
//! section 5.3).
//!
//! *The client* offers the first message to every attempt that resumes a session which permits it, whole or not at all, and
//! keeps a copy. What the winner's server has taken is sent; what it has refused is sent again, before everything else. A
//! losing attempt may have delivered it, too: that is what `safelyReplayable` allows.
//!
//! *The server* takes early data only where its listener asks for it (`zeroRttMsg` preferred or required). It delivers the
//! connection at once then, before the client has finished its handshake, and may answer it. Until then what is received
//! may be a replay, and says so ([`crate::Received::early`]). The rest of the handshake is driven here, whether or not the
//! program reads; it must be finished in the time that every incoming handshake has.

use crate::carrier::FlowId;
use crate::carrier::channel::{Channel, Kind};
use crate::carrier::dispatch::CarrierTimer;
use crate::conn::ConnectionState;
use crate::event::{AttemptError, ConnectionError, Event};
use crate::{ConnectionId, Engine, MessageId, SendError};
use bytes::Bytes;
use neater_base::Key;
use neater_base::net::Net;
use neater_quic::ConnectionApi;
use neater_tls::TlsStream;

/// The number of a first message that may be early data: it is the first of its connection, whenever it is written.
pub(crate) const FIRST: MessageId = MessageId(1);

/// Offers a message to the first flight of a TLS client, all or nothing: of a message half sent nobody could tell which
/// half the server has dropped.
pub(crate) fn offer(tls: &mut TlsStream, data: &Bytes) {
    if !data.is_empty() && tls.early_capacity() >= data.len() {
        tls.early_write(data);
    }
}

/// Whether a TLS server waits for the end of its client's handshake, although the connection was delivered.
pub(crate) fn unfinished(channel: &Channel) -> bool {
    matches!(&channel.kind, Kind::Tls(tls) if tls.is_handshaking())
}

impl<N: Net> Engine<N> {
    /// Keeps the first message of a connection, which may be early data. It has its number from now on.
    pub(crate) fn keep_first(&mut self, conn: Key, data: Bytes) {
        if let Some(c) = self.conns.get_mut(conn) {
            c.tx.next_id = FIRST.0;
            c.ext().early = Some(data);
        }
    }

    /// The transport that has won took the first message with its handshake: it need not be sent any more.
    pub(crate) fn first_was_taken(&mut self, conn: Key) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        let Some(data) = c.ext.as_mut().and_then(|e| e.early.take()) else { return };
        c.bytes_sent += data.len() as u64;
        c.messages_sent = c.messages_sent.saturating_add(1);
        c.ext().first_taken = true;
        self.notices.spend(ConnectionId(conn), |s| s.keep(data));
    }

    /// The first message is not to be sent any more, and attempts that begin later do not offer it.
    pub(crate) fn give_up_first(&mut self, conn: Key, error: &ConnectionError) {
        let first = self.conns.get_mut(conn).and_then(|c| c.ext.as_mut()).and_then(|e| e.early.take());
        if let Some(data) = first {
            self.notices.spend(ConnectionId(conn), |s| s.keep(data));
            self.notify(conn, Event::SendError(FIRST, SendError::Connection(error.clone())));
        }
    }

    /// Whether the TLS session of a won channel has carried the first message.
    pub(crate) fn tls_took_first(&self, key: Key) -> bool {
        matches!(self.carriers.channels.get(key).map(|c| &c.kind), Some(Kind::Tls(tls))
            if tls.early_data_sent() > 0 && tls.early_data_accepted() == Some(true))
    }

    /// An incoming TLS connection has brought early data that was accepted, before the end of its handshake.
    pub(crate) fn has_early(&self, key: Key) -> bool {
        matches!(self.carriers.channels.get(key).map(|c| &c.kind), Some(Kind::Tls(tls))
            if tls.is_handshaking() && tls.early_data_received() > 0)
    }

    /// Moves on the handshake of a connection that was delivered before its end.
    pub(crate) fn drive_early(&mut self, key: Key, conn: Key) {
        let driven = self.drive_tls(key);
        let Some(ch) = self.carriers.channels.get_mut(key) else { return };
        let open = self.conns.get(conn).is_some_and(|c| c.is_open());
        match driven {
            Ok(_) if unfinished(ch) => {}
            Ok(_) => {
                ch.deadline = None;
                // Data may have come with the end of the handshake, and what was written before it may leave now.
                ch.readable = true;
                if open {
                    self.notify(conn, Event::Readable);
                    self.flush_and_report(conn);
                }
            }
            // What has come before the failure can still be read, and reading tells of it then.
            Err(_) if open && self.conns.get(conn).is_some_and(|c| c.request.may_receive) => {
                ch.readable = true;
                self.notify(conn, Event::Readable);
                // Whoever waits for room may be the only one there is.
                self.notify(conn, Event::Writable);
            }
            Err(error) => self.fail_connection(conn, from_attempt(error)),
        }
    }

    /// The time for the handshake of such a connection may be over.
    pub(crate) fn early_timeout(&mut self, key: Key, conn: Key) {
        let Some(ch) = self.carriers.channels.get(key) else { return };
        match ch.deadline {
            Some(at) if at > self.cx.now => {
                self.cx.timers.push(at, CarrierTimer::channel(key));
                self.drive_early(key, conn);
                if self.conns.get(conn).is_some_and(|c| c.state == ConnectionState::Closing) {
                    self.advance_close(conn);
                }
            }
            _ => self.fail_connection(conn, ConnectionError::TimedOut),
        }
    }

    /// Whether what the program receives now came before the peer's handshake was complete, and may be a replay.
    pub(crate) fn is_early(&self, conn: Key) -> bool {
        let Some(c) = self.conns.get(conn).filter(|c| c.passive && c.state == ConnectionState::Established) else {
            return false;
        };
        match c.flow {
            FlowId::Channel(k) => self.carriers.channels.get(k).is_some_and(unfinished),
            FlowId::Stream { quic, .. } => {
                self.carriers.quic.connections.get(quic).is_some_and(|q| q.conn.is_handshaking())
            }
            _ => false,
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
