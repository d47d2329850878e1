//! Writing what is queued, and readiness of connections.
//!
//! Bytes of raw streams, straight to the transport.
//!
//! *Invariants*: bytes overtake no message, and what is not taken stays with the program.

use crate::carrier::FlowId;
use crate::carrier::channel::ICMP_BUDGET;
use crate::carrier::terms::{Sender, WriteError};
use crate::conn::{Conn, ConnectionState};
use crate::connection::fast_path::FastWrite;
use crate::event::{ConnectionError, Event, SendError};
use crate::queue::{Budget, Flushed, Segment, SendFlags};
use crate::send::RECEIVE_ONLY;
use crate::{ConnectionId, Engine, Stack};
use neater_base::Key;
use neater_base::net::{DirectStream, Net};
use neater_framing::Outbound;
use std::io::IoSlice;

impl<N: Net> Engine<N> {
    /// A connection's socket has become ready.
    pub(crate) fn conn_ready(&mut self, key: Key, conn: Key, readable: bool, writable: bool) {
        let Some(c) = self.conns.get(conn) else { return };
        if c.stack.is_some_and(Stack::is_secure) && self.carriers.is_early(FlowId::Channel(key)) {
            self.drive_early(key, conn);
        }
        let Some(c) = self.conns.get(conn) else { return };
        if c.is_framer_handshaking() {
            return self.drive_framer_handshake(conn);
        }
        if c.state == ConnectionState::Closing {
            if readable {
                self.discard_incoming(conn);
            }
            return self.advance_close(conn);
        }
        // The first answer where there is no handshake, or an ICMP error instead of it: an
        // application that is not reading has to learn of that, too.
        if readable && self.is_unanswered(conn) {
            self.carriers.expect_data(FlowId::Channel(key));
            if self.fill_datagrams(conn, key).is_err() {
                return;
            }
        }
        let Some(c) = self.conns.get(conn) else { return };
        // The writability of a socket that was never full is not reported.
        if writable && !c.is_drained() {
            let Some(c) = self.conns.get_fast(conn) else { return };
            // Where bytes go straight to the socket, nothing is queued.
            if !c.fast.writable_again() {
                self.flush_and_report(conn);
            } else if core::mem::take(&mut c.wants_room) {
                self.notify(conn, Event::Writable);
            }
        }
        if readable {
            let Some(c) = self.conns.get_fast(conn) else { return };
            c.fast.readable_again();
            let (soft, fin_done) =
                (c.request.soft_errors && c.stack.is_some_and(|s| !s.has_handshake()), c.send.is_finished());
            if soft {
                self.take_soft_errors(key, conn);
            }
            self.notify(conn, Event::Readable);
            if fin_done {
                self.both_ended(conn);
            }
        }
    }

    /// The system reports an error of a connection's socket: the connection is gone, or its error
    /// queue holds something.
    pub(crate) fn conn_error(&mut self, key: Key, conn: Key) {
        if self.conns.get(conn).is_some_and(|c| c.state != ConnectionState::Closed)
            && let Some(error) = self.carriers.stream_error(&mut self.cx, key)
        {
            // What has arrived before it is the framer's, which may be ready with it, or report a
            // cause that explains more.
            if self.conns.get(conn).is_some_and(Conn::is_framer_handshaking) {
                self.drive_framer_handshake(conn);
                if self.conns.get(conn).is_none_or(|c| c.state == ConnectionState::Closed) {
                    return;
                }
            }
            return self.break_connection(conn, error);
        }
        self.conn_ready(key, conn, true, true);
    }

    pub(crate) fn take_soft_errors(&mut self, key: Key, conn: Key) {
        // Nothing else brings it back here before the next: all of it, however large the program
        // has made the queue.
        for _ in 0..64 * ICMP_BUDGET {
            let Some(icmp) = self.carriers.sockets.take_icmp_error(&mut self.cx, key) else { return };
            self.notify(conn, Event::SoftError(icmp));
        }
    }

    /// A connection on a shared transport may read, or write, again.
    pub(crate) fn conn_ready_stream(&mut self, conn: Key, readable: bool) {
        let Some(c) = self.conns.get(conn) else { return };
        if c.is_framer_handshaking() {
            return self.drive_framer_handshake(conn);
        }
        if c.state == ConnectionState::Closing {
            return self.advance_close(conn);
        }
        if readable {
            self.notify(conn, Event::Readable);
            self.find_reset(conn);
        } else {
            self.flush_and_report(conn);
        }
    }

    /// Writes what is queued, and reports what that has changed.
    pub(crate) fn flush_and_report(&mut self, conn: Key) {
        let done = self.flush(conn);
        self.report_flush(conn, done);
    }

    pub(crate) fn report_flush(&mut self, conn: Key, done: Flushed) {
        for id in done.sent {
            self.notify(conn, Event::Sent(id));
        }
        for (id, error) in done.failed {
            self.notify(conn, Event::SendError(id, error));
        }
        if let Some(error) = done.error {
            return self.break_connection(conn, error);
        }
        let limit = self.cx.limits.send_buffer;
        let Some(c) = self.conns.get_mut(conn) else { return };
        if c.state == ConnectionState::Closing && c.tx.is_empty() {
            return self.advance_close(conn);
        }
        if !c.send.is_open() && !c.send.is_finished() && c.tx.is_empty() && c.is_open() {
            self.send_fin(conn);
        }
        let writable = self.may_write(conn);
        let Some(c) = self.conns.get_mut(conn) else { return };
        // After the last message it is not room that is waited for, but that the end is out.
        let room = c.tx.is_empty() || c.tx.waiting() < limit / 2;
        let worth = if !c.send.is_open() { c.end_is_out() } else { room && writable };
        if c.wants_room && c.is_open() && worth {
            c.wants_room = false;
            self.notify(conn, Event::Writable);
        }
    }

    /// Whether a write would get somewhere, as far as is known.
    pub(crate) fn may_write(&self, conn: Key) -> bool {
        self.conns.get(conn).is_none_or(|c| self.carriers.may_write(c.flow))
    }

    /// Ends this side's direction, where the transport can report it.
    pub(crate) fn send_fin(&mut self, conn: Key) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        let Some(out) = self.carriers.finish(&mut self.cx, c.flow) else { return };
        if out {
            c.send = c.send.on_fin_sent();
        }
        self.both_ended(conn);
    }

    /// Sends what the transport itself holds back.
    pub(crate) fn flush_transport(&mut self, conn: Key) -> Flushed {
        let Some(c) = self.conns.get_mut(conn) else { return Flushed::default() };
        let done = self.carriers.flush_held(&mut self.cx, c.flow, &mut c.tx);
        c.messages_sent = c.messages_sent.saturating_add(done.sent.len() as u32);
        done
    }

    /// Writes as much of the queue as the transport takes.
    pub(crate) fn flush(&mut self, conn: Key) -> Flushed {
        let Some(c) = self.conns.get_mut(conn) else { return Flushed::default() };
        if !matches!(c.state, ConnectionState::Established | ConnectionState::Closing) {
            return Flushed::default();
        }
        if c.tx.is_empty() {
            return self.flush_transport(conn);
        }
        let (room, full) = c.may_send_now(self.cx.now);
        let mut budget = Budget::new(room, full);
        let mut tx = core::mem::take(&mut c.tx);
        if c.flow.ends_by_silence() {
            // Calls do not look at the clock, and there may have been no turn for a long time.
            c.cold().spoke = Some(self.cx.net.now());
        }
        let sender = Sender {
            conn,
            peer: c.cold.as_ref().and_then(|e| e.peer),
            framed: c.framed() || c.is_framer_handshaking(),
            last: !c.send.is_open(),
            priority: c.priority(),
        };
        let mut done = self.carriers.send(&mut self.cx, c.flow, &sender, &mut tx, &mut budget);
        let mut limited = None;
        let freed = match self.conns.get_mut(conn) {
            Some(c) => {
                let before = core::mem::replace(&mut c.tx, tx);
                debug_assert!(before.queue.is_empty(), "nothing is queued during a flush");
                c.note_sent(done.bytes);
                let datagram = c.stack.is_some_and(|s| !s.is_stream());
                limited =
                    c.tx.queue.front().map(|s| budget.refused().unwrap_or(if datagram { s.data.len() } else { 1 }));
                c.bytes_sent += done.bytes as u64;
                c.messages_sent = c.messages_sent.saturating_add(done.sent.len() as u32);
                true
            }
            None => false,
        };
        debug_assert!(freed, "a flush does not remove its connection");
        if let Some(bytes) = limited {
            self.wait_to_send(conn, bytes);
        }
        self.recount(conn);
        if let Some(e) = done.refused.take()
            && self.is_peer_missing_for_sender(conn, e)
        {
            done.error.get_or_insert(ConnectionError::Net(e));
        }
        if !done.failed.is_empty() {
            self.tell_maximum(conn, &mut done);
        }
        done
    }

    /// The socket reports that a message was too long, and not the limit.
    pub(crate) fn tell_maximum(&mut self, conn: Key, done: &mut Flushed) {
        for (_, error) in &mut done.failed {
            if let SendError::MessageTooLarge { max: max @ 0 } = error {
                *max = self.singular_transmission_msg_max_len(crate::ConnectionId(conn)).unwrap_or(0);
            }
        }
    }

    /// Keeps the sum of all queues, and what has left them. The part that a connection has counted
    /// is what it last held.
    pub(crate) fn recount(&mut self, conn: Key) {
        let Some(tx) = self.conns.get_mut(conn).and_then(|c| c.tx.made()) else { return };
        let (now, before) = (tx.cost(), tx.counted);
        if now != before {
            tx.counted = now;
            self.cx.queued = self.cx.queued + now - before;
        }
        if !tx.spent.is_empty() {
            self.notices.spend(crate::ConnectionId(conn), |s| s.keep_all(&mut tx.spent));
        }
        if now < before {
            self.let_in_if_room();
        }
    }

    /// Something has left the engine's queues.
    #[inline]
    pub(crate) fn let_in_if_room(&mut self) {
        if !self.crowded_out.is_empty() && self.cx.queued < self.cx.limits.engine_bytes {
            self.let_in();
        }
    }

    /// The engine's queues have room again: connections that others kept out may try.
    #[cold]
    pub(crate) fn let_in(&mut self) {
        for conn in core::mem::take(&mut self.crowded_out) {
            let Some(c) = self.conns.get_mut(conn) else { continue };
            c.tx.crowded_out = false;
            if c.is_open() && core::mem::take(&mut c.wants_room) {
                self.notify(conn, Event::Writable);
            }
        }
    }

    /// Puts a framer's own bytes before everything that is queued.
    pub(crate) fn queue_front(&mut self, conn: Key, out: Outbound) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        for data in out.pieces.into_iter().rev() {
            c.tx.bytes += data.len();
            c.tx.queue.push_front(Segment { data, completes: None, expires: None, flags: SendFlags::default() });
        }
        self.recount(conn);
    }

    /// What waited for the connection to be established.
    pub(crate) fn after_established(&mut self, conn: Key) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        let (options, early, priority) = match &mut *c.cold {
            Some(e) => (core::mem::take(&mut e.options), e.early.take(), e.priority),
            None => (Vec::new(), None, None),
        };
        let taken = c.cold.as_mut().is_some_and(|e| core::mem::take(&mut e.first_taken));
        let abandoned = c.cold.as_mut().and_then(|e| e.abandoned.take());
        if let Some(code) = c.cold.as_mut().and_then(|e| e.refusal.take()) {
            self.stop_receiving(crate::ConnectionId(conn), code);
        }
        for option in options {
            // Reported when it was set, if it could be known; best effort after that (RFC 9621
            // section 4.1.3).
            let _ = self.apply_option(conn, option);
        }
        self.apply_changed(conn);
        if let Some(p) = priority {
            self.apply_priority(conn, p);
        }
        if taken {
            self.notify(conn, Event::Sent(crate::early::FIRST));
        }
        if let Some(code) = abandoned {
            self.reset_sending(crate::ConnectionId(conn), code);
        } else {
            if let Some(data) = early {
                self.queue_first(conn, data);
            }
            self.flush_and_report(conn);
        }
        if self.conns.get(conn).is_some_and(|c| c.close_wanted) {
            self.close(crate::ConnectionId(conn));
        }
    }

    /// Writes bytes of a raw byte stream straight to the transport, without a queue. `None`:
    /// nothing can be taken now, and [`crate::Event::Writable`] follows.
    ///
    /// # Errors
    /// As [`Engine::send`]; [`ConnectionError::Unsupported`] on connections that carry messages.
    #[inline]
    pub fn write(&mut self, conn: ConnectionId, bufs: &[IoSlice<'_>]) -> Result<Option<usize>, SendError> {
        match fast_path!(self).write(conn.0, bufs) {
            FastWrite::Written(n) => return Ok(Some(n)),
            FastWrite::Blocked => return Ok(None),
            FastWrite::Failed(e) => self.break_connection(conn.0, ConnectionError::Net(e)),
            FastWrite::Unknown => {}
        }
        self.write_in_full(conn, bufs)
    }

    /// A direct path for the bytes of this connection past the engine and its lock: reading and
    /// writing on it works as [`Engine::read`] and [`Engine::write`], which report the reason where
    /// it does nothing. `None`: the stack or the network has no direct path, now or later.
    pub fn direct_stream(&mut self, conn: ConnectionId) -> Option<Box<dyn DirectStream>> {
        fast_path!(self).direct_stream(conn.0)
    }

    #[inline(never)]
    pub(crate) fn write_in_full(
        &mut self,
        conn: ConnectionId,
        bufs: &[IoSlice<'_>],
    ) -> Result<Option<usize>, SendError> {
        self.own_to_send()?;
        if let Some(c) = self.conns.get_fast(conn.0)
            && c.fast.is_write_blocked()
        {
            c.wants_room = true;
            return Ok(None);
        }
        let Some(c) = self.conns.get_mut(conn.0) else { return Err(SendError::Connection(ConnectionError::Closed)) };
        if !takes_bytes(c)? {
            c.wants_room = true;
            return Ok(None);
        }
        if c.batching && !c.tx.is_empty() {
            // Bytes do not wait for messages that wait for the end of their batch.
            self.flush_batch(conn.0);
        }
        let Some(c) = self.conns.get_mut(conn.0) else { return Err(SendError::Connection(ConnectionError::Closed)) };
        // The transport may have turned out to be gone.
        takes_bytes(c)?;
        if !c.tx.is_empty() {
            c.wants_room = true;
            return Ok(None);
        }
        let (room, _) = c.may_send_now(self.cx.now);
        if room == 0 && bufs.iter().any(|b| !b.is_empty()) {
            c.wants_room = true;
            self.wait_to_send(conn.0, 1);
            return Ok(None);
        }
        let within;
        let bufs = if bufs.iter().map(|b| b.len()).sum::<usize>() > room {
            within = first_bytes(bufs, room);
            &within[..]
        } else {
            bufs
        };
        match self.carriers.write(&mut self.cx, c.flow, bufs) {
            Ok(n) => {
                if let Some(c) = self.conns.get_mut(conn.0) {
                    c.bytes_sent += n as u64;
                    c.note_sent(n);
                }
                fast_path!(self).note(conn.0);
                Ok(Some(n))
            }
            Err(WriteError::Blocked) => {
                if let Some(c) = self.conns.get_mut(conn.0) {
                    c.wants_room = true;
                }
                Ok(None)
            }
            Err(WriteError::Broken(e)) => {
                self.break_connection(conn.0, e.clone());
                Err(SendError::Connection(e))
            }
            Err(WriteError::Refused(e)) => Err(SendError::Connection(e)),
        }
    }
}

/// Whether bytes can be written already, if they ever can.
fn takes_bytes(c: &mut Conn) -> Result<bool, SendError> {
    match c.state {
        ConnectionState::Established if c.send.is_open() => {}
        ConnectionState::Establishing => return Ok(false),
        ConnectionState::Closed => {
            return Err(SendError::Connection(c.error().cloned().unwrap_or(ConnectionError::Closed)));
        }
        _ => return Err(c.send_refusal()),
    }
    if !c.request.may_send {
        return Err(SendError::Connection(ConnectionError::Unsupported(RECEIVE_ONLY)));
    }
    if c.cold.is_some() {
        c.bytes_possible().map_err(SendError::Connection)?;
    }
    Ok(true)
}

/// The first `n` bytes of these.
fn first_bytes<'a>(bufs: &'a [IoSlice<'_>], mut n: usize) -> Vec<IoSlice<'a>> {
    let mut out = Vec::with_capacity(bufs.len());
    for buf in bufs.iter().filter(|b| !b.is_empty()) {
        let k = buf.len().min(n);
        if k == 0 {
            break;
        }
        out.push(IoSlice::new(&buf[..k]));
        n -= k;
    }
    out
}
