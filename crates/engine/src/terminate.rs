//! The end of connections (RFC 9622 section 10).

use crate::channel::{Behind, Kind};
use crate::conn::{Conn, ConnectionState, ConnectionStats, Io};
use crate::engine::Timer;
use crate::event::{CandidateOutcome, ConnectionError, EstablishmentError, Event, Reason, SendError, TimelineEntry};
use crate::{ConnectionId, Engine, Stack};
use neater_base::Key;
use neater_base::net::Net;
use neater_framing::Outbound;
use neater_quic::{ConnectionApi, Direction, QuicError};
use std::net::SocketAddr;

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
    /// It takes as long as there is progress. When nothing is taken or acknowledged for ten seconds, or the peer ends the
    /// connection before it has everything, [`Event::ConnectionError`] follows instead, after [`Event::SendError`] for every
    /// message that waits.
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
                self.end_message(conn.0);
                // Whoever waits for room learns that there is none to come.
                self.wake_sender(conn.0);
                let Some(c) = self.conns.get_mut(conn.0) else { return };
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
                            how: crate::conn::How::default(),
                        });
                    }
                    self.recount(conn.0);
                }
                self.advance_close(conn.0);
                self.watch_closing(conn.0);
            }
            ConnectionState::Closing => {}
            // What a failed connection has received will not be read.
            ConnectionState::Closed if matches!(c.io, Io::Channel(_)) => self.detach(conn.0),
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
        let Some(c) = self.conns.get_mut(conn).filter(|c| c.state == ConnectionState::Closing) else { return };
        match c.io {
            Io::Channel(k) => self.close_channel(conn, k),
            Io::Stream { quic, stream } => {
                let (read_closed, fin) = (c.read_closed, core::mem::replace(&mut c.fin_done, true));
                let Some(q) = self.quics.get_mut(quic) else { return self.finish_close(conn) };
                if let Some(e) = q.lost.clone() {
                    return self.fail_connection(conn, ConnectionError::Quic(e));
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
                let Some(c) = self.conns.get(conn) else { return };
                if receive_only || (fin && c.fin_acked) {
                    self.finish_close(conn);
                } else if c.given_up() {
                    let error = c.error().cloned().unwrap_or(ConnectionError::StreamReset(NO_CODE));
                    self.fail_connection(conn, error);
                }
            }
            Io::Sctp { sctp, stream } => {
                let fin = core::mem::replace(&mut c.fin_done, true);
                let (read_closed, acked) = (c.read_closed, c.fin_acked);
                let Some(a) = self.sctps.get(sctp) else { return self.finish_close(conn) };
                match (a.is_over(), a.lost.clone(), a.mux) {
                    (true, Some(reason), _) if !acked => {
                        return self.fail_connection(conn, ConnectionError::Sctp(reason));
                    }
                    // One connection, one association: it ends when the peer has everything (RFC 9260 section 9.2).
                    (false, None, false) => return self.sctp_close(sctp, None),
                    _ => {}
                }
                if !read_closed {
                    self.sctp_stop(sctp, stream, NO_CODE);
                }
                self.sctp_finish(sctp, stream);
                if fin && acked {
                    self.finish_close(conn);
                }
            }
            Io::Datagrams { quic } => {
                // What was queued leaves before the session may end. Datagrams are not acknowledged one by one.
                self.drive_quic(quic);
                let waits = |q: &mut crate::quic::Quic| q.lost.is_none() && q.conn.queued_datagrams() > 0;
                if !self.quics.get_mut(quic).is_some_and(waits) {
                    self.finish_close(conn);
                }
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

    pub(crate) fn channel_timeout(&mut self, key: Key) {
        let Some(ch) = self.channels.get(key) else { return };
        match ch.behind {
            Behind::Lingering { .. } => self.lingered(key),
            Behind::Listener(listener)
                if !matches!(ch.kind, Kind::Accept | Kind::UdpShared(_) | Kind::Dtls(_) | Kind::TlsPending) =>
            {
                if self.now - ch.started < core::time::Duration::from_secs(10) {
                    return self.drive_incoming(listener, key);
                }
                if let Some(ch) = self.channels.remove(key) {
                    self.net.abort(ch.sock);
                }
                self.stats.refused += 1;
                self.handshake_over(listener);
            }
            Behind::Listener(_) if matches!(ch.kind, Kind::TlsPending) => {
                // It has waited so long for its handshake to begin that its peer will have given up.
                if let Some(ch) = self.channels.remove(key) {
                    self.net.abort(ch.sock);
                }
                self.stats.refused += 1;
            }
            Behind::Attempt(conn, candidate) => {
                let silent = matches!(&ch.kind, Kind::Tls(t) if t.is_handshaking());
                if silent && ch.deadline.is_some_and(|d| d <= self.now) {
                    let what = crate::establish::What::Channel(key);
                    return self.attempt_failed(conn, candidate, what, crate::AttemptError::TimedOut);
                }
                self.drive_attempt(key);
            }
            Behind::Conn(conn) if crate::early::unfinished(ch) => self.early_timeout(key, conn),
            _ => {}
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
            Io::Sctp { sctp, stream } => {
                let (fin_done, read_closed) = (c.fin_done, c.read_closed);
                match self.sctps.get(sctp).map(|a| (a.mux, a.lost.is_some())) {
                    Some((true, false)) => {
                        // What was not ended in order is given up, and the peer told.
                        if !read_closed {
                            self.sctp_stop(sctp, stream, NO_CODE);
                        }
                        if fin_done {
                            self.sctp_finish(sctp, stream);
                        } else {
                            self.sctp_reset(sctp, stream, NO_CODE);
                        }
                    }
                    Some((false, false)) => self.sctp_close(sctp, Some(NO_CODE)),
                    _ => {}
                }
                self.sctp_unbind(sctp, stream);
            }
            Io::SctpPending { sctp } => self.sctp_close_spare(sctp),
            Io::Dtls { dtls } => self.dtls_drop(dtls),
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
            Io::StreamPending { quic } => self.close_spare(quic),
            Io::None => {}
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
            self.kept = self.kept.saturating_sub(rare.datagram_bytes);
            self.notices.spend(ConnectionId(conn), |s| s.keep_rare(rare));
        }
    }

    /// Ends an established connection because of an error. Messages that were not sent are reported.
    pub(crate) fn fail_connection(&mut self, conn: Key, error: ConnectionError) {
        if self.conns.get(conn).is_some_and(Conn::is_greeting) {
            return self.greeting_failed(conn, &error);
        }
        // What a QUIC stream has received can still be read.
        let keep = self.conns.get(conn).is_some_and(|c| matches!(c.io, Io::Stream { .. } | Io::Sctp { .. }));
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
        let keep = stream && !c.read_closed && c.request.may_receive;
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

    /// The QUIC connection below is over.
    pub(crate) fn stream_transport_lost(&mut self, conn: Key, error: &QuicError) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        if c.is_greeting() {
            return self.greeting_failed(conn, &ConnectionError::Quic(error.clone()));
        }
        let orderly = matches!(error, QuicError::Closed { code: 0, .. } | QuicError::LocallyClosed);
        // A peer that ends its session in order is taken to have what has left for it, unless it has said that it does not want it; so is
        // the peer of a session that the program has ended.
        let kept = match c.io {
            Io::Stream { quic, stream } => self.quics.get(quic).is_some_and(|q| q.conn.has_unsent(stream)),
            _ => false,
        };
        let delivered = !c.given_up() && (c.bytes_sent == 0 || c.fin_acked || !kept);
        let why = c.error().filter(|_| orderly).cloned().unwrap_or_else(|| ConnectionError::Quic(error.clone()));
        // Datagrams are not acknowledged: what has left is all that can be known.
        let all_left = match c.io {
            Io::Datagrams { quic } => self.quics.get_mut(quic).is_none_or(|q| q.conn.queued_datagrams() == 0),
            _ => false,
        };
        match c.state {
            ConnectionState::Establishing => {
                let error = EstablishmentError::new(Reason::EstablishmentFailed, error.to_string());
                self.fail(conn, error);
            }
            ConnectionState::Closing if orderly && c.tx.is_empty() && (c.fin_acked || all_left) => {
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
        self.now = self.net.now();
        let Some(c) = self.conns.get(conn.0) else { return };
        match c.state {
            ConnectionState::Closed if matches!(c.io, Io::Channel(_)) => return self.detach(conn.0),
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
            Io::Sctp { sctp, stream } => {
                self.sctp_stop(sctp, stream, code);
                self.sctp_reset(sctp, stream, code);
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
        if let Io::Channel(k) = c.io
            && c.stack.is_some_and(|s| !s.is_stream())
        {
            // What has arrived can still be received.
            while self.fill_datagrams(conn.0, k).is_ok_and(|more| more) {}
        }
        let Some(c) = self.conns.get_mut(conn.0) else { return };
        c.read_closed = true;
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
        if let Io::Stream { quic, stream } = c.io {
            if let Some(q) = self.quics.get_mut(quic) {
                q.conn.stop(stream, code);
            }
            self.mark_dirty(quic);
        } else if let Io::Sctp { sctp, stream } = c.io {
            self.sctp_stop(sctp, stream, code);
        }
    }

    /// Abandons the sending direction of a stream, with an application error code. The rest of its data is not delivered:
    /// [`Event::SendError`] follows for every message that waits. TCP and TLS have no word for it: there the connection is aborted, unless
    /// all was said and handed to the system, because the peer would take a part for the whole. What is not established yet is told so
    /// when it is.
    pub fn reset_sending(&mut self, conn: ConnectionId, code: u64) {
        let Some(c) = self.conns.get_mut(conn.0) else { return };
        if c.state == ConnectionState::Establishing {
            // What will carry it is told as soon as it is known.
            c.final_sent = true;
            c.ext().abandoned = Some(code);
            self.give_up_first(conn.0, &ConnectionError::LocalAbort);
            self.report_unsent(conn.0, &ConnectionError::LocalAbort);
            return self.wake_sender(conn.0);
        }
        let stream = |k| self.channels.get(k).is_some_and(|ch| matches!(ch.kind, Kind::Tcp | Kind::Tls(_)));
        if let Io::Channel(k) = c.io
            && stream(k)
        {
            let said = c.fin_done && c.tx.is_empty();
            if !said {
                self.abort_with(conn, code);
            }
            return;
        }
        c.final_sent = true;
        c.fin_done = true;
        c.fin_acked = true;
        self.report_unsent(conn.0, &ConnectionError::LocalAbort);
        let Some(c) = self.conns.get_mut(conn.0) else { return };
        if let Io::Stream { quic, stream } = c.io {
            if let Some(q) = self.quics.get_mut(quic) {
                q.conn.reset(stream, code);
            }
            self.mark_dirty(quic);
        } else if let Io::Sctp { sctp, stream } = c.io {
            self.sctp_reset(sctp, stream, code);
        }
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
    fn wake_sender(&mut self, conn: Key) {
        if self.conns.get_mut(conn).is_some_and(|c| core::mem::take(&mut c.wants_room)) {
            self.notify(conn, Event::Writable);
        }
    }

    /// The program will not use this connection again: it is closed gracefully if it is open, reports nothing more, and is
    /// removed, with its socket, when what was sent is delivered, or not taken for ten seconds ([`Engine::close`]).
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
        let Some(ext) = &mut *c.ext else { return };
        let Some(timeout) = ext.idle_timeout else { return };
        // A peer may do nothing but listen. If the program has set a time, it wants to know.
        let spoke = ext.spoke.filter(|_| c.request.idle_timeout.is_none());
        let at = spoke.map_or(ext.last_activity, |s| s.max(ext.last_activity)) + timeout;
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
        if c.ext().expiry_armed.is_some_and(|at| at > now) {
            // Another deadline is for that.
            return;
        }
        c.ext().expiry_armed = None;
        let mut expired = Vec::new();
        let mut dropping = None;
        let mut bytes = 0;
        let mut spent = Vec::new();
        c.tx.queue.retain_mut(|s| {
            if let Some((at, id)) = s.expires
                && at <= now
            {
                dropping = Some(id);
                expired.push(id);
            }
            let drop = dropping.is_some();
            if drop {
                bytes += s.data.len();
                spent.push(core::mem::take(&mut s.data));
                if s.completes.is_some() && s.completes == dropping {
                    dropping = None;
                }
            }
            !drop
        });
        c.tx.bytes -= bytes;
        c.tx.spent.append(&mut spent);
        self.recount(conn);
        for id in expired {
            self.notify(conn, Event::Expired(id));
        }
        self.flush_and_report(conn);
        let next = self.conns.get(conn).and_then(|c| c.tx.queue.iter().filter_map(|s| Some(s.expires?.0)).min());
        if let Some(at) = next {
            self.arm_expiry(conn, at);
        }
    }

    /// A message expires then.
    pub(crate) fn arm_expiry(&mut self, conn: Key, at: neater_base::Instant) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        if c.ext().expiry_armed.is_none_or(|armed| at < armed) {
            c.ext().expiry_armed = Some(at);
            self.timers.push(at, Timer::Expiry(conn));
        }
    }

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
            Some(c) if c.fin_acked && c.peer_ended => Some(Ok(())),
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
            Io::Sctp { sctp, .. } | Io::SctpPending { sctp } => self.sctps.get(sctp).map(|a| a.remote),
            Io::Peer { .. } => Some(c.ext.as_ref()?.peer?.remote),
            Io::Dtls { dtls } => self.dtlses.get(dtls).map(|d| d.remote),
            Io::None => None,
        }
    }

    /// Our address.
    #[must_use]
    pub fn local_addr(&self, conn: ConnectionId) -> Option<SocketAddr> {
        let bound = |channel: Key| self.net.local_addr(self.channels.get(channel)?.sock).ok();
        let c = self.conns.get(conn.0)?;
        match c.io {
            Io::Channel(k) => bound(k),
            Io::Peer { channel } => Some(c.ext.as_ref()?.peer?.local(bound(channel)?)),
            Io::Stream { quic, .. } | Io::Datagrams { quic } | Io::StreamPending { quic } => {
                let q = self.quics.get(quic)?;
                let bound = self.net.local_addr(self.quic_sockets.get(q.socket)?.sock).ok()?;
                Some(SocketAddr::new(q.local.or_else(|| q.conn.local_ip()).unwrap_or(bound.ip()), bound.port()))
            }
            Io::Sctp { sctp, .. } | Io::SctpPending { sctp } => self.sctp_addrs(sctp).map(|(_, ours)| ours),
            Io::Dtls { dtls } => {
                let d = self.dtlses.get(dtls)?;
                Some(d.peer().local(bound(d.channel())?))
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
            Some(Io::Sctp { sctp, .. }) => {
                let session = self.sctps.get(sctp).and_then(|a| self.dtlses.get(a.dtls?));
                session.map(crate::dtls::Dtls::peer_certificates).unwrap_or_default()
            }
            Some(Io::Dtls { dtls }) => {
                self.dtlses.get(dtls).map(crate::dtls::Dtls::peer_certificates).unwrap_or_default()
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
            Io::Dtls { dtls } => self.dtlses.get(dtls)?.version(),
            Io::Sctp { sctp, .. } => self.dtlses.get(self.sctps.get(sctp)?.dtls?)?.version(),
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
        let (written, read) = c.quick.lane.as_ref().map_or((0, 0), |lane| lane.bytes());
        let mut stats = ConnectionStats {
            bytes_sent: c.bytes_sent + written,
            bytes_received: c.bytes_received + read,
            messages_sent: u64::from(c.messages_sent),
            messages_received: u64::from(c.messages_received),
            datagrams_dropped: u64::from(c.dropped),
            establishment: c.since - c.began,
            rtt: None,
            congestion_window: None,
            queued: c.tx.bytes,
            ended: c.end_is_out(),
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
            Io::Sctp { sctp, .. } => {
                if let Some((rtt, window)) = self.sctp_path(sctp) {
                    stats.rtt = rtt;
                    stats.congestion_window = Some(window);
                }
            }
            _ => {}
        }
        Some(stats)
    }
}
