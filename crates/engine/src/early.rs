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

use crate::carrier::Early;
use crate::conn::ConnectionState;
use crate::event::{ConnectionError, Event};
use crate::{ConnectionId, Engine, MessageId, SendError};
use bytes::Bytes;
use neater_base::Key;
use neater_base::net::Net;

/// The number of a first message that may be early data: it is the first of its connection, whenever it is written.
pub(crate) const FIRST: MessageId = MessageId(1);

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
            if let Some(c) = self.conns.get(conn) {
                let attempts = c.est.as_deref().map_or(&[][..], |est| &est.attempts).iter().map(|a| a.session);
                for session in attempts.chain(c.flow.awaited()) {
                    self.carriers.withdraw_first(session);
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
        match self.carriers.shake_early(&mut self.cx, key, reads) {
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
        if !self.carriers.may_still_shake(&mut self.cx, key) {
            return self.fail_connection(conn, ConnectionError::TimedOut);
        }
        self.drive_early(key, conn);
        if self.conns.get(conn).is_some_and(|c| c.state == ConnectionState::Closing) {
            self.advance_close(conn);
        }
    }

    /// Whether what the program receives now came before the peer's handshake was complete, and may be a replay.
    pub(crate) fn is_early(&self, conn: Key) -> bool {
        self.conns
            .get(conn)
            .filter(|c| c.passive && c.state == ConnectionState::Established)
            .is_some_and(|c| self.carriers.is_early(c.flow))
    }
}
