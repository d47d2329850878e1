//! The end of connections (RFC 9622 section 10).

use crate::channel::{Behind, Kind};
use crate::conn::{ConnectionState, ConnectionStats, Io};
use crate::engine::{LINGER, Timer};
use crate::event::{CandidateOutcome, ConnectionError, EstablishmentError, Event, Reason, SendError, TimelineEntry};
use crate::transport::tls_out;
use crate::{ConnectionId, Engine, Stack};
use neater_base::Key;
use neater_base::net::Net;
use neater_framing::Outbound;
use neater_quic::{ConnectionApi, Direction, QuicError};
use std::net::SocketAddr;

/// How soon after the end was sent it is first asked whether the peer has it.
const DELIVERY_CHECK: core::time::Duration = core::time::Duration::from_millis(2);

/// The application error code of a session that ends because its last connection was aborted without one of its own: not
/// 0, which is an orderly end.
const ABORTED: u64 = 1;
/// The application error code of a stream that is given up without one.
const NO_CODE: u64 = 0;
/// Bytes of a lingering peer that are thrown away before its socket is.
const LINGER_READS: usize = 64;

impl<N: Net> Engine<N> {
    /// Closes a connection: what was sent is delivered, then [`Event::Closed`] follows. What the peer still sends is not
    /// received any more.
    pub fn close(&mut self, conn: ConnectionId) {
        self.now = self.net.now();
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
                c.state = ConnectionState::Closing;
                c.final_sent = true;
                c.batching = false;
                if let Some(framer) = c.ext.as_mut().and_then(|e| e.framer.as_mut()) {
                    let mut out = Outbound::default();
                    framer.stop(&mut out);
                    for data in out.pieces {
                        c.tx.bytes += data.len();
                        c.tx.queue.push_back(crate::conn::Segment {
                            data,
                            completes: None,
                            expires: None,
                            replayable: true,
                        });
                    }
                    self.recount(conn.0);
                }
                self.advance_close(conn.0);
            }
            ConnectionState::Closing | ConnectionState::Closed => {}
        }
    }

    /// Moves a closing connection on: the queue first, then the transport's own end.
    pub(crate) fn advance_close(&mut self, conn: Key) {
        let Some(c) = self.conns.get(conn) else { return };
        if !c.tx.is_empty() {
            let done = self.flush(conn);
            let (error, empty) = (done.error.is_some(), self.conns.get(conn).is_none_or(|c| c.tx.is_empty()));
            if error || !empty {
                return self.report_close_flush(conn, done);
            }
            self.report_close_flush(conn, done);
        }
        let Some(c) = self.conns.get_mut(conn).filter(|c| c.state == ConnectionState::Closing) else { return };
        match c.io {
            Io::Channel(k) => self.close_channel(conn, k),
            Io::Stream { quic, stream } => {
                let (read_closed, fin) = (c.read_closed, core::mem::replace(&mut c.fin_done, true));
                let Some(q) = self.quics.get_mut(quic) else { return self.finish_close(conn) };
                if q.lost.is_some() {
                    return self.finish_close(conn);
                }
                if !read_closed {
                    q.conn.stop(stream, 0);
                }
                let receive_only = stream.direction() == Direction::One && stream.by_client() != q.client;
                if !fin {
                    q.conn.finish(stream);
                }
                self.mark_dirty(quic);
                // With nothing to be acknowledged there is no Finished to wait for.
                if receive_only || (fin && self.conns.get(conn).is_some_and(|c| c.fin_acked)) {
                    self.finish_close(conn);
                }
            }
            Io::Datagrams { quic } => {
                // What was queued leaves before the session may end.
                self.drive_quic(quic);
                self.finish_close(conn);
            }
            _ => self.finish_close(conn),
        }
    }

    fn report_close_flush(&mut self, conn: Key, done: crate::transport::Flushed) {
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

    fn close_channel(&mut self, conn: Key, key: Key) {
        let Some(c) = self.conns.get(conn) else { return };
        let (untouched, read_closed, fin_done) = (c.bytes_sent == 0 && c.bytes_received == 0, c.peer_ended, c.fin_done);
        let Some(ch) = self.channels.get_mut(key) else { return self.finish_close(conn) };
        match &mut ch.kind {
            Kind::Tls(tls) => {
                tls.close_notify();
                match tls_out(&mut self.net, ch) {
                    Ok(true) => {}
                    // Writability, which is progress, will bring us back.
                    Ok(false) => {
                        let until = self.now + LINGER;
                        if ch.deadline.replace(until).is_none() {
                            self.timers.push(until, Timer::Channel(key));
                        }
                        return;
                    }
                    Err(e) => return self.fail_connection(conn, ConnectionError::Net(e)),
                }
            }
            Kind::Tcp if untouched => return self.drop_channel(conn, key),
            Kind::Tcp => {}
            _ => return self.drop_channel(conn, key),
        }
        ch.deadline = None;
        if !fin_done && let Err(e) = self.net.shutdown_write(ch.sock) {
            return self.fail_connection(conn, ConnectionError::Net(e));
        }
        if read_closed {
            return self.drop_channel(conn, key);
        }
        // Closing a socket with unread data would reset the connection and destroy what the peer has not read yet.
        let until = self.now + LINGER;
        ch.behind = Behind::Lingering { until, conn: Some(conn) };
        self.timers.push(self.now + DELIVERY_CHECK, Timer::Channel(key));
        self.linger(key);
        self.check_delivered(key);
    }

    fn drop_channel(&mut self, conn: Key, key: Key) {
        if let Some(ch) = self.channels.remove(key) {
            self.net.close(ch.sock);
        }
        self.finish_close(conn);
    }

    /// Throws away what a peer still sends, until it ends its direction.
    pub(crate) fn linger(&mut self, key: Key) {
        let Some(ch) = self.channels.get_mut(key) else { return };
        let Behind::Lingering { conn, .. } = ch.behind else { return };
        let mut scratch = core::mem::take(&mut self.scratch);
        scratch.resize(64 << 10, 0);
        let mut over = false;
        let mut broken = None;
        for _ in 0..LINGER_READS {
            match ch.read(&mut self.net, &mut scratch) {
                Ok(0) => {
                    over = true;
                    break;
                }
                Ok(_) => {}
                Err(e) if e.is_would_block() => break,
                Err(e) => {
                    over = true;
                    broken = Some(e);
                    break;
                }
            }
        }
        self.scratch = scratch;
        // A peer that keeps sending after our end has had its chance.
        let stubborn = ch.readable && !over;
        if over || stubborn {
            if let Some(ch) = self.channels.remove(key) {
                self.net.close(ch.sock);
            }
            match (conn, broken) {
                // What was sent may not have arrived.
                (Some(conn), Some(e)) => self.fail_connection(conn, ConnectionError::Net(e)),
                (Some(conn), None) => self.finish_close(conn),
                (None, _) => {}
            }
        }
    }

    /// A connection is closed when its peer has everything; its socket may linger for the peer's end a little longer.
    fn check_delivered(&mut self, key: Key) {
        let Some(ch) = self.channels.get_mut(key) else { return };
        let Behind::Lingering { until, conn: Some(conn) } = ch.behind else { return };
        if self.net.stream_info(ch.sock).is_ok_and(|i| i.in_flight == Some(0) && i.unsent.unwrap_or(0) == 0) {
            ch.behind = Behind::Lingering { until, conn: None };
            self.finish_close(conn);
        }
    }

    pub(crate) fn channel_timeout(&mut self, key: Key) {
        let Some(ch) = self.channels.get(key) else { return };
        match ch.behind {
            Behind::Lingering { until, conn } => {
                if until > self.now {
                    // Half as often each time: the checks are cheap, and few.
                    let waited = self.now - (until - LINGER);
                    self.timers.push((self.now + waited.max(DELIVERY_CHECK)).min(until), Timer::Channel(key));
                    return self.check_delivered(key);
                }
                if let Some(ch) = self.channels.remove(key) {
                    self.net.close(ch.sock);
                }
                if let Some(conn) = conn {
                    self.finish_close(conn);
                }
            }
            Behind::Listener(listener) if !matches!(ch.kind, Kind::Accept | Kind::UdpShared(_)) => {
                if self.now - ch.started < core::time::Duration::from_secs(10) {
                    return self.drive_incoming(listener, key);
                }
                if let Some(ch) = self.channels.remove(key) {
                    self.net.abort(ch.sock);
                }
                self.stats.refused += 1;
                self.handshake_over(listener);
            }
            Behind::Attempt(conn, candidate) => {
                let silent = matches!(&ch.kind, Kind::Tls(t) if t.is_handshaking());
                if silent && ch.deadline.is_some_and(|d| d <= self.now) {
                    let what = crate::establish::What::Channel(key);
                    return self.attempt_failed(conn, candidate, what, crate::AttemptError::TimedOut);
                }
                self.drive_attempt(key);
            }
            // A peer that has taken nothing for so long will not take the rest.
            Behind::Conn(conn) if self.conns.get(conn).is_some_and(|c| c.state == ConnectionState::Closing) => {
                match ch.deadline {
                    Some(at) if at > self.now => self.timers.push(at, Timer::Channel(key)),
                    Some(_) => self.fail_connection(conn, ConnectionError::TimedOut),
                    None => {}
                }
            }
            _ => {}
        }
    }

    /// The last step of a graceful close.
    pub(crate) fn finish_close(&mut self, conn: Key) {
        let Some(c) = self.conns.get(conn) else { return };
        if c.state == ConnectionState::Closed {
            return;
        }
        self.report_unsent(conn, &ConnectionError::Closed);
        self.notify(conn, Event::Closed);
        self.detach(conn);
        self.set_closed(conn);
    }

    /// Reports every message that is still in the queue as not sent, before the last event of a connection.
    pub(crate) fn report_unsent(&mut self, conn: Key, error: &ConnectionError) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        if c.tx.is_empty() {
            return;
        }
        let unsent: Vec<_> = c.tx.queue.drain(..).filter_map(|s| s.completes).collect();
        c.tx.bytes = 0;
        self.recount(conn);
        for id in unsent {
            self.notify(conn, Event::SendError(id, SendError::Connection(error.clone())));
        }
    }

    /// Takes the transport away from a connection.
    pub(crate) fn detach(&mut self, conn: Key) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        match core::mem::replace(&mut c.io, Io::None) {
            Io::Channel(k) => {
                if self.channels.get(k).is_some_and(|ch| ch.behind == Behind::Conn(conn))
                    && let Some(ch) = self.channels.remove(k)
                {
                    self.net.close(ch.sock);
                }
            }
            Io::Stream { quic, stream } => {
                // What was not ended in order is given up, and the peer told. It changes nothing about what was.
                let (fin_done, read_closed) = (c.fin_done, c.read_closed);
                if let Some(q) = self.quics.get_mut(quic) {
                    if !fin_done {
                        q.conn.reset(stream, NO_CODE);
                    }
                    if !read_closed {
                        q.conn.stop(stream, NO_CODE);
                    }
                }
                self.quic_unbind(quic, Some(stream));
            }
            Io::Datagrams { quic } => self.quic_unbind(quic, None),
            Io::Peer { channel } => {
                let peer = c.ext.as_ref().and_then(|e| e.peer);
                let listener = self.channels.get(channel).map(|c| c.behind);
                if let (Some(Kind::UdpShared(peers)), Some(peer)) =
                    (self.channels.get_mut(channel).map(|c| &mut c.kind), peer)
                {
                    peers.remove(&peer);
                    // The last connection of a listener that has stopped takes the socket with it.
                    if peers.is_empty()
                        && !matches!(listener, Some(Behind::Listener(l)) if self.listeners.contains(l))
                        && let Some(c) = self.channels.remove(channel)
                    {
                        self.net.close(c.sock);
                    }
                }
            }
            Io::None | Io::StreamPending { .. } => {}
        }
        self.leave_group(conn);
    }

    /// Closes a connection's books. It is removed when nobody holds it.
    pub(crate) fn set_closed(&mut self, conn: Key) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        c.state = ConnectionState::Closed;
        c.tx.clear();
        self.recount(conn);
        if self.conns.get(conn).is_some_and(|c| c.released) {
            self.remove(conn);
        }
    }

    fn remove(&mut self, conn: Key) {
        self.detach(conn);
        self.conns.discard(conn);
    }

    /// Ends an established connection because of an error. Messages that were not sent are reported.
    pub(crate) fn fail_connection(&mut self, conn: Key, error: ConnectionError) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        if c.state == ConnectionState::Closed {
            return;
        }
        c.ext().error = Some(error.clone());
        self.note_early_death(conn);
        self.report_unsent(conn, &error);
        self.notify(conn, Event::ConnectionError(error));
        // What a QUIC stream has received can still be read.
        if self.conns.get(conn).is_some_and(|c| !matches!(c.io, Io::Stream { .. })) {
            self.detach(conn);
        }
        self.set_closed(conn);
    }

    /// The QUIC connection below is over.
    pub(crate) fn stream_transport_lost(&mut self, conn: Key, error: &QuicError) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        let orderly = matches!(error, QuicError::Closed { code: 0, .. } | QuicError::LocallyClosed);
        match c.state {
            ConnectionState::Establishing => {
                let error = EstablishmentError::new(Reason::EstablishmentFailed, error.to_string());
                self.fail(conn, error);
            }
            ConnectionState::Closing if orderly && c.tx.is_empty() => self.finish_close(conn),
            // What has arrived can still be read, and reading tells whether it is complete.
            ConnectionState::Established if orderly && c.tx.is_empty() => {
                self.notify(conn, Event::Readable);
                self.notify(conn, Event::Closed);
                self.set_closed(conn);
            }
            ConnectionState::Established | ConnectionState::Closing => {
                self.notify(conn, Event::Readable);
                self.fail_connection(conn, ConnectionError::Quic(error.clone()));
            }
            ConnectionState::Closed => {}
        }
    }

    /// The peer does not want more of this stream.
    pub(crate) fn stream_stopped(&mut self, conn: Key, code: u64) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        if c.state == ConnectionState::Closing {
            return self.finish_close(conn);
        }
        c.final_sent = true;
        c.fin_done = true;
        // The stream was reset in answer: nothing of it will be acknowledged any more.
        c.fin_acked = true;
        c.stopped = true;
        if c.reset {
            return self.fail_connection(conn, ConnectionError::StreamReset(code));
        }
        c.ext().error = Some(ConnectionError::StreamReset(code));
        let unsent: Vec<_> = c.tx.queue.drain(..).filter_map(|s| s.completes).collect();
        c.tx.bytes = 0;
        self.recount(conn);
        for id in unsent {
            self.notify(conn, Event::SendError(id, SendError::Connection(ConnectionError::StreamReset(code))));
        }
        // Whoever waits for room learns that there is none to come.
        self.notify(conn, Event::Writable);
    }

    /// Ends a connection at once: nothing more is delivered, and the peer is told where the protocol can.
    pub fn abort(&mut self, conn: ConnectionId) {
        self.abort_with(conn, 0);
    }

    /// As [`Engine::abort`], with an application error code for transports that carry one (QUIC).
    pub fn abort_with(&mut self, conn: ConnectionId, code: u64) {
        self.now = self.net.now();
        let Some(c) = self.conns.get(conn.0) else { return };
        match c.state {
            ConnectionState::Closed => return,
            ConnectionState::Establishing => self.cancel_establishment(conn.0),
            _ => {}
        }
        let Some(c) = self.conns.get(conn.0) else { return };
        match c.io {
            Io::Channel(k) => {
                if let Some(ch) = self.channels.remove(k) {
                    self.net.abort(ch.sock);
                }
            }
            Io::Stream { quic, stream } => {
                if let Some(q) = self.quics.get_mut(quic) {
                    q.conn.reset(stream, code);
                    q.conn.stop(stream, code);
                }
                self.mark_dirty(quic);
            }
            _ => {}
        }
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

    /// Refuses what the peer may still send on a stream, with an application error code.
    pub fn stop_receiving(&mut self, conn: ConnectionId, code: u64) {
        let Some(c) = self.conns.get_mut(conn.0) else { return };
        c.read_closed = true;
        if let Io::Stream { quic, stream } = c.io {
            if let Some(q) = self.quics.get_mut(quic) {
                q.conn.stop(stream, code);
            }
            self.mark_dirty(quic);
        }
    }

    /// Abandons the sending direction of a stream, with an application error code. The rest of its data is not delivered.
    pub fn reset_sending(&mut self, conn: ConnectionId, code: u64) {
        let Some(c) = self.conns.get_mut(conn.0) else { return };
        c.final_sent = true;
        c.fin_done = true;
        c.fin_acked = true;
        c.tx.clear();
        if let Io::Stream { quic, stream } = c.io {
            if let Some(q) = self.quics.get_mut(quic) {
                q.conn.reset(stream, code);
            }
            self.mark_dirty(quic);
        }
        self.recount(conn.0);
        if self.conns.get(conn.0).is_some_and(|c| c.state == ConnectionState::Closing) {
            self.advance_close(conn.0);
        }
    }

    /// The program will not use this connection again: it is closed gracefully if it is open, reports nothing more, and is
    /// removed, with its socket, when what was sent is delivered.
    pub fn release(&mut self, conn: ConnectionId) {
        let channels = &mut self.channels;
        let sock = self.conns.discard_if(conn.0, |c| {
            c.released = true;
            // A plain TCP connection on which nothing was said needs no farewell.
            let silent = c.state == ConnectionState::Established
                && (c.bytes_sent, c.bytes_received) == (0, 0)
                && c.ext.is_none()
                && c.group.is_none()
                && c.tx.is_empty();
            match c.io {
                Io::Channel(k) if silent => {
                    channels.discard_if(k, |ch| matches!(ch.kind, Kind::Tcp).then_some(ch.sock))
                }
                _ => None,
            }
        });
        match sock {
            Some(sock) => self.net.close(sock),
            None => self.release_in_full(conn),
        }
    }

    #[inline(never)]
    fn release_in_full(&mut self, conn: ConnectionId) {
        let Some(c) = self.conns.get(conn.0) else { return };
        match c.state {
            ConnectionState::Closed => self.remove(conn.0),
            _ => {
                self.now = self.net.now();
                self.close_now(conn);
            }
        }
    }

    pub(crate) fn idle_timeout(&mut self, conn: Key) {
        let now = self.now;
        let Some(c) = self.conns.get_mut(conn) else { return };
        let Some(ext) = &mut c.ext else { return };
        let Some(timeout) = ext.idle_timeout else { return };
        let at = ext.last_activity + timeout;
        if at > now {
            self.timers.push(at, Timer::Idle(conn));
        } else {
            ext.idle_armed = false;
            self.fail_connection(conn, ConnectionError::TimedOut);
        }
    }

    /// Takes expired messages out of the queue, if none of their bytes was written.
    pub(crate) fn expire_messages(&mut self, conn: Key) {
        let now = self.now;
        let Some(c) = self.conns.get_mut(conn) else { return };
        let mut expired = Vec::new();
        let mut dropping = None;
        let mut bytes = 0;
        c.tx.queue.retain(|s| {
            if let Some((at, id)) = s.expires
                && at <= now
            {
                dropping = Some(id);
                expired.push(id);
            }
            let drop = dropping.is_some();
            if drop {
                bytes += s.data.len();
                if s.completes.is_some() && s.completes == dropping {
                    dropping = None;
                }
            }
            !drop
        });
        c.tx.bytes -= bytes;
        self.recount(conn);
        for id in expired {
            self.notify(conn, Event::Expired(id));
        }
        self.flush_and_report(conn);
    }

    /// The state of a connection; [`ConnectionState::Closed`] if there is none of that id.
    #[must_use]
    pub fn state(&self, conn: ConnectionId) -> ConnectionState {
        self.conns.get(conn.0).map_or(ConnectionState::Closed, |c| c.state)
    }

    /// Why a connection failed, if it did.
    #[must_use]
    pub fn error(&self, conn: ConnectionId) -> Option<ConnectionError> {
        self.conns.get(conn.0)?.error().cloned()
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

    /// Whether the program may send (RFC 9622 section 8.1.11.2).
    #[must_use]
    pub fn can_send(&self, conn: ConnectionId) -> bool {
        self.conns
            .get(conn.0)
            .is_some_and(|c| c.state <= ConnectionState::Established && !c.final_sent && c.request.may_send)
    }

    /// Whether the program may receive (RFC 9622 section 8.1.11.3).
    #[must_use]
    pub fn can_receive(&self, conn: ConnectionId) -> bool {
        self.conns
            .get(conn.0)
            .is_some_and(|c| c.state <= ConnectionState::Established && !c.read_closed && c.request.may_receive)
    }

    /// The peer's address.
    #[must_use]
    pub fn remote_addr(&self, conn: ConnectionId) -> Option<SocketAddr> {
        let c = self.conns.get(conn.0)?;
        match c.io {
            Io::Channel(k) => self.channels.get(k).map(|c| c.remote),
            Io::Stream { quic, .. } | Io::Datagrams { quic } | Io::StreamPending { quic } => {
                self.quics.get(quic).map(|q| q.conn.remote())
            }
            Io::Peer { .. } => c.ext.as_ref()?.peer,
            Io::None => None,
        }
    }

    /// Our address.
    #[must_use]
    pub fn local_addr(&self, conn: ConnectionId) -> Option<SocketAddr> {
        match self.conns.get(conn.0)?.io {
            Io::Channel(k) | Io::Peer { channel: k } => self.net.local_addr(self.channels.get(k)?.sock).ok(),
            Io::Stream { quic, .. } | Io::Datagrams { quic } | Io::StreamPending { quic } => {
                let q = self.quics.get(quic)?;
                let bound = self.net.local_addr(self.quic_sockets.get(q.socket)?.sock).ok()?;
                Some(SocketAddr::new(q.conn.local_ip().unwrap_or(bound.ip()), bound.port()))
            }
            Io::None => None,
        }
    }

    /// The application protocol that TLS or QUIC agreed on.
    #[must_use]
    pub fn alpn(&self, conn: ConnectionId) -> Option<Vec<u8>> {
        match self.conns.get(conn.0)?.io {
            Io::Channel(k) => match &self.channels.get(k)?.kind {
                Kind::Tls(t) => t.alpn().map(<[u8]>::to_vec),
                _ => None,
            },
            Io::Stream { quic, .. } | Io::Datagrams { quic } => self.quics.get(quic)?.conn.alpn(),
            _ => None,
        }
    }

    /// The peer's certificates, leaf first, in DER; empty without security or client authentication.
    #[must_use]
    pub fn peer_certificates(&self, conn: ConnectionId) -> Vec<Vec<u8>> {
        match self.conns.get(conn.0).map(|c| c.io) {
            Some(Io::Channel(k)) => match self.channels.get(k).map(|c| &c.kind) {
                Some(Kind::Tls(t)) => {
                    t.peer_certificates().map(|l| l.iter().map(|c| c.to_vec()).collect()).unwrap_or_default()
                }
                _ => Vec::new(),
            },
            Some(Io::Stream { quic, .. } | Io::Datagrams { quic }) => {
                self.quics.get(quic).map(|q| q.conn.peer_certificates()).unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }

    /// The version of TLS in use, in words.
    #[must_use]
    pub fn security(&self, conn: ConnectionId) -> Option<String> {
        match self.conns.get(conn.0)?.io {
            Io::Channel(k) => match &self.channels.get(k)?.kind {
                Kind::Tls(t) => match t.version()? {
                    neater_tls::rustls::ProtocolVersion::TLSv1_3 => Some("TLS 1.3".into()),
                    neater_tls::rustls::ProtocolVersion::TLSv1_2 => Some("TLS 1.2".into()),
                    other => Some(format!("{other:?}")),
                },
                _ => None,
            },
            Io::Stream { .. } | Io::Datagrams { .. } => Some("TLS 1.3".into()),
            _ => None,
        }
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

    /// Figures of a connection.
    #[must_use]
    pub fn connection_stats(&self, conn: ConnectionId) -> Option<ConnectionStats> {
        let c = self.conns.get(conn.0)?;
        let mut stats = ConnectionStats {
            bytes_sent: c.bytes_sent,
            bytes_received: c.bytes_received,
            messages_sent: u64::from(c.messages_sent),
            messages_received: u64::from(c.messages_received),
            datagrams_dropped: u64::from(c.dropped),
            establishment: c.since - c.began,
            rtt: None,
            congestion_window: None,
            queued: c.tx.bytes,
        };
        match c.io {
            Io::Channel(k) => {
                if let Some(info) = self.channels.get(k).and_then(|ch| self.net.stream_info(ch.sock).ok()) {
                    stats.rtt = info.rtt;
                    stats.congestion_window = info.congestion_window;
                }
            }
            Io::Stream { quic, .. } | Io::Datagrams { quic } => {
                if let Some(s) = self.quics.get(quic).map(|q| q.conn.stats()) {
                    stats.rtt = Some(s.rtt);
                    stats.congestion_window = Some(s.congestion_window);
                }
            }
            _ => {}
        }
        Some(stats)
    }
}
