//! What can be asked about a connection, and changes nothing.

use crate::carrier::channel::Peer;
use crate::conn::{Conn, ConnectionState, ConnectionStats, Delivery};
use crate::event::{CandidateOutcome, ConnectionError, TimelineEntry};
use crate::{ConnectionId, Engine, GroupId, Stack};
use neater_base::net::Net;
use std::net::SocketAddr;

impl<N: Net> Engine<N> {
    /// The state of a connection; [`ConnectionState::Closed`] if there is none of that id, and in a child of `fork`.
    #[must_use]
    pub fn state(&self, conn: ConnectionId) -> ConnectionState {
        if self.is_forked() {
            return ConnectionState::Closed;
        }
        self.conns.get(conn.0).map_or(ConnectionState::Closed, |c| c.state)
    }

    /// How a connection has ended, if it has: for whoever takes it after its last event.
    #[must_use]
    pub fn ending(&self, conn: ConnectionId) -> Option<Result<(), Box<ConnectionError>>> {
        match self.conns.get(conn.0) {
            Some(c) if c.state != ConnectionState::Closed => None,
            // The peer wanted no more of a stream that has ended in order all the same.
            Some(c) if c.send.is_settled() && c.recv.has_peer_finished() => Some(Ok(())),
            Some(c) => Some(c.error().map_or(Ok(()), |e| Err(Box::new(e.clone())))),
            None => Some(Ok(())),
        }
    }

    /// The stack that was chosen, once it was.
    #[must_use]
    pub fn stack(&self, conn: ConnectionId) -> Option<Stack> {
        self.conns.get(conn.0)?.stack
    }

    /// The request that the connection was made with.
    #[must_use]
    pub fn request(&self, conn: ConnectionId) -> Option<crate::Request> {
        Some(crate::Request(self.conns.get(conn.0)?.request.clone()))
    }

    /// Whether the connection can be seen as a stream of bytes.
    ///
    /// # Errors
    /// [`ConnectionError::Unsupported`]: a framer makes messages of them, or what carries it does.
    pub fn check_bytes(&self, conn: ConnectionId) -> Result<(), ConnectionError> {
        let Some(c) = self.conns.get(conn.0) else { return Ok(()) };
        if c.request.framer.frames() {
            return Err(ConnectionError::Unsupported("a connection with a message framer has no byte view"));
        }
        if c.stack.is_some_and(|stack| !stack.is_stream()) {
            return Err(ConnectionError::Unsupported("a connection that carries datagrams has no byte view"));
        }
        Ok(())
    }

    /// Whether the program may send (RFC 9622 section 8.1.11.2).
    #[must_use]
    pub fn can_send(&self, conn: ConnectionId) -> bool {
        self.conns
            .get(conn.0)
            .is_some_and(|c| c.state <= ConnectionState::Established && c.send.is_open() && c.request.may_send)
    }

    /// Whether the program may receive (RFC 9622 section 8.1.11.3).
    #[must_use]
    pub fn can_receive(&self, conn: ConnectionId) -> bool {
        self.conns
            .get(conn.0)
            .is_some_and(|c| c.state <= ConnectionState::Established && c.recv.may_read() && c.request.may_receive)
    }

    /// The peer's address.
    #[must_use]
    pub fn remote_addr(&self, conn: ConnectionId) -> Option<SocketAddr> {
        let c = self.conns.get(conn.0)?;
        self.carriers.remote_addr(c.flow, shared_peer(c))
    }

    /// Our address.
    #[must_use]
    pub fn local_addr(&self, conn: ConnectionId) -> Option<SocketAddr> {
        let c = self.conns.get(conn.0)?;
        self.carriers.local_addr(&self.cx, c.flow, shared_peer(c))
    }

    /// The application protocol that the security protocol has negotiated (RFC 7301).
    #[must_use]
    pub fn alpn(&self, conn: ConnectionId) -> Option<Vec<u8>> {
        self.carriers.alpn(self.conns.get(conn.0)?.flow)
    }

    /// The peer's certificates, leaf first, in DER; empty without security or client authentication.
    #[must_use]
    pub fn peer_certificates(&self, conn: ConnectionId) -> Vec<Vec<u8>> {
        self.conns.get(conn.0).map(|c| self.carriers.peer_certificates(c.flow)).unwrap_or_default()
    }

    /// The version of the security protocol in use, in words.
    #[must_use]
    pub fn security(&self, conn: ConnectionId) -> Option<String> {
        self.carriers.security(self.conns.get(conn.0)?.flow)
    }

    /// How the race went: every candidate and what became of it. Empty when a cached outcome was used alone.
    #[must_use]
    pub fn candidates(&self, conn: ConnectionId) -> Vec<CandidateOutcome> {
        self.conns.get(conn.0).and_then(|c| c.ext.as_ref()).map(|e| e.candidates.clone()).unwrap_or_default()
    }

    /// The steps of establishment so far.
    #[must_use]
    pub fn timeline(&self, conn: ConnectionId) -> Vec<TimelineEntry> {
        self.conns.get(conn.0).and_then(|c| c.ext.as_ref()).map(|e| e.timeline.clone()).unwrap_or_default()
    }

    /// How far what was sent on a connection has come; `None` when nothing carries it any more, or
    /// what does keeps no such figures.
    #[must_use]
    pub fn delivery(&self, conn: ConnectionId) -> Option<Delivery> {
        let c = self.conns.get(conn.0)?;
        let read = c.fast.lane_bytes().1;
        let received = c.bytes_received + read;
        let queued = c.tx.bytes as u64;
        // Of a stream it is not known what has been acknowledged but its end.
        let end = u64::from(c.send.is_finished() && !c.send.is_settled());
        let below = self.carriers.flow_delivery(&self.cx, c.flow)?;
        let pending = queued + below.unacknowledged.unwrap_or(end);
        Some(Delivery { acknowledged: below.acknowledged, pending, received })
    }

    /// As [`Engine::delivery`], of all streams of a session together; what comes, and what waits,
    /// is not counted.
    #[must_use]
    pub fn group_delivery(&self, group: GroupId) -> Option<Delivery> {
        let acknowledged = self.carriers.session_acknowledged(self.groups.get(group.0)?.session?)?;
        Some(Delivery { acknowledged, ..Delivery::default() })
    }

    /// Figures of a connection.
    #[must_use]
    pub fn connection_stats(&self, conn: ConnectionId) -> Option<ConnectionStats> {
        let c = self.conns.get(conn.0)?;
        let (written, read) = c.fast.lane_bytes();
        let (rtt, congestion_window) = self.carriers.path_figures(&self.cx, c.flow);
        Some(ConnectionStats {
            bytes_sent: c.bytes_sent + written,
            bytes_received: c.bytes_received + read,
            messages_sent: u64::from(c.messages_sent),
            messages_received: u64::from(c.messages_received),
            datagrams_dropped: u64::from(c.dropped),
            establishment: c.since - c.began,
            rtt,
            congestion_window,
            queued: c.tx.bytes,
            ended: c.end_is_out(),
        })
    }
}

/// The peer of a connection that shares its socket with others.
fn shared_peer(c: &Conn) -> Option<Peer> {
    c.ext.as_ref()?.peer
}
