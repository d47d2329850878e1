//! Moving bytes between a connection and what carries it.

mod datagrams;

use self::datagrams::flush_datagrams;
use crate::carrier::FlowId;
use crate::carrier::channel::{Behind, Channel, ICMP_BUDGET, Kind, Peer, SocketIo};
use crate::carrier::quic::Quic;
use crate::conn::{Conn, ConnectionState};
use crate::event::{AttemptError, ConnectionError, Event, SendError};
use crate::queue::{Budget, Flushed, Segment, SendFlags, SendQueue};
use crate::{Engine, Stack};
use bytes::Bytes;
use neater_base::Key;
use neater_base::net::{ErrorKind, Net, NetError};
use neater_framing::Outbound;
use neater_quic::{ConnectionApi, StreamId};
use std::io::{self, IoSlice};

/// Pieces written by one system call.
const IOV_MAX: usize = 32;

/// Drives the records of a TLS stream out of the socket. False: the socket is full.
pub(crate) fn tls_out<N: Net>(net: &mut N, c: &mut Channel) -> Result<bool, NetError> {
    let Kind::Tls(tls) = &mut c.kind else { return Ok(true) };
    let mut io = SocketIo { net, sock: c.sock, readable: &mut c.readable, writable: &mut c.writable, error: None };
    while tls.wants_write() {
        match tls.write_tls(&mut io) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(_) => return Err(io.error.unwrap_or(NetError::new(ErrorKind::Other))),
        }
    }
    Ok(true)
}

/// Why a TLS stream could not be read.
pub(crate) enum TlsIn {
    Blocked,
    End,
    Net(NetError),
    Tls(neater_tls::TlsError),
}

/// Takes records from the socket into a TLS stream, once.
pub(crate) fn tls_in<N: Net>(net: &mut N, c: &mut Channel) -> Result<(), TlsIn> {
    let Kind::Tls(tls) = &mut c.kind else { return Err(TlsIn::Blocked) };
    let mut io = SocketIo { net, sock: c.sock, readable: &mut c.readable, writable: &mut c.writable, error: None };
    let n = match tls.read_tls(&mut io) {
        Ok(n) => n,
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(TlsIn::Blocked),
        Err(_) => return Err(TlsIn::Net(io.error.unwrap_or(NetError::new(ErrorKind::Other)))),
    };
    match tls.process() {
        Ok(_) if n == 0 => Err(TlsIn::End),
        Ok(_) => Ok(()),
        Err(e) => {
            // An alert that tells the peer why is waiting to be sent.
            let _ = tls_out(net, c);
            Err(TlsIn::Tls(e))
        }
    }
}

impl<N: Net> Engine<N> {
    /// Moves a TLS handshake on. True: it is complete.
    pub(crate) fn drive_tls(&mut self, key: Key) -> Result<bool, AttemptError> {
        let Some(c) = self.carriers.channels.get_mut(key) else { return Err(AttemptError::ClosedByPeer) };
        // A handshake takes a handful of flights; each may come in several reads.
        for _ in 0..64 {
            let Kind::Tls(tls) = &c.kind else { return Ok(true) };
            let was_handshaking = tls.is_handshaking();
            let all_out = tls_out(&mut self.cx.net, c)?;
            if !was_handshaking {
                return Ok(true);
            }
            match tls_in(&mut self.cx.net, c) {
                Ok(()) => {}
                Err(TlsIn::Blocked) => {
                    let Kind::Tls(tls) = &c.kind else { return Ok(true) };
                    return Ok(!tls.is_handshaking() && all_out && !tls.wants_write());
                }
                Err(TlsIn::End) => return Err(AttemptError::ClosedByPeer),
                Err(TlsIn::Net(e)) => return Err(AttemptError::Net(e)),
                Err(TlsIn::Tls(e)) => return Err(AttemptError::Tls(e)),
            }
        }
        self.cx.again = true;
        if let Some(c) = self.carriers.channels.get_mut(key) {
            self.cx.timers.push(self.cx.now, crate::carrier::dispatch::CarrierTimer::channel(key));
            c.readable = true;
        }
        Ok(false)
    }

    /// A connection's socket has become ready.
    pub(crate) fn conn_ready(&mut self, key: Key, conn: Key, readable: bool, writable: bool) {
        let Some(c) = self.conns.get(conn) else { return };
        if c.stack == Some(Stack::Tls)
            && self.carriers.channels.get(key).is_some_and(crate::carrier::tcp::early::unfinished)
        {
            self.drive_early(key, conn);
        }
        let Some(c) = self.conns.get(conn) else { return };
        if c.is_greeting() {
            return self.drive_greeting(conn);
        }
        if c.state == ConnectionState::Closing {
            if readable {
                self.discard_incoming(conn);
            }
            return self.advance_close(conn);
        }
        // The first answer over UDP, or an ICMP error instead of it: a program that is not reading
        // has to learn of that, too.
        if readable && self.is_unanswered(conn) {
            if let Some(ch) = self.carriers.channels.get_mut(key) {
                ch.readable = true;
            }
            if self.fill_datagrams(conn, key).is_err() {
                return;
            }
        }
        let Some(c) = self.conns.get(conn) else { return };
        // A socket that was never full has nothing to say when it can be written.
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
            let (soft, fin_done) = (c.request.soft_errors && c.stack == Some(Stack::Udp), c.fin_done);
            if soft {
                self.take_soft_errors(key, conn);
            }
            self.notify(conn, Event::Readable);
            if fin_done {
                self.both_ended(conn);
            }
        }
    }

    /// The system reports an error of a connection's socket: the connection is gone, or its error queue holds something.
    pub(crate) fn conn_error(&mut self, key: Key, conn: Key) {
        if let Some(ch) = self.carriers.channels.get(key)
            && matches!(ch.kind, Kind::Tcp | Kind::Tls(_))
            && self.conns.get(conn).is_some_and(|c| c.state != ConnectionState::Closed)
            && let Some(error) = self.cx.net.take_error(ch.sock)
        {
            // What has arrived before it is the framer's, which may be ready with it, or report a
            // cause that explains more.
            if self.conns.get(conn).is_some_and(Conn::is_greeting) {
                self.drive_greeting(conn);
                if self.conns.get(conn).is_none_or(|c| c.state == ConnectionState::Closed) {
                    return;
                }
            }
            return self.break_connection(conn, ConnectionError::Net(error));
        }
        self.conn_ready(key, conn, true, true);
    }

    fn take_soft_errors(&mut self, key: Key, conn: Key) {
        // Nothing else brings it back here before the next: all of it, however large the program has made the queue.
        for _ in 0..64 * ICMP_BUDGET {
            let Some(sock) = self.carriers.channels.get(key).map(|c| c.sock) else { return };
            let Some(icmp) = self.cx.net.take_icmp_error(sock) else { return };
            self.notify(conn, Event::SoftError(icmp));
        }
    }

    /// A connection on a shared transport may read, or write, again.
    pub(crate) fn conn_ready_stream(&mut self, conn: Key, readable: bool) {
        let Some(c) = self.conns.get(conn) else { return };
        if c.is_greeting() {
            return self.drive_greeting(conn);
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
        if c.final_sent && !c.fin_done && c.tx.is_empty() && c.is_open() {
            self.send_fin(conn);
        }
        let writable = self.may_write(conn);
        let Some(c) = self.conns.get_mut(conn) else { return };
        // After the last message it is not room that is waited for, but that the end is out.
        let room = c.tx.is_empty() || c.tx.waiting() < limit / 2;
        let worth = if c.final_sent { c.end_is_out() } else { room && writable };
        if c.wants_room && c.is_open() && worth {
            c.wants_room = false;
            self.notify(conn, Event::Writable);
        }
    }

    /// Whether a write would get somewhere, as far as is known.
    fn may_write(&self, conn: Key) -> bool {
        match self.conns.get(conn).map(|c| c.flow) {
            Some(FlowId::Channel(k) | FlowId::Peer { channel: k }) => {
                self.carriers.channels.get(k).is_some_and(|c| c.writable)
            }
            Some(FlowId::Dtls { dtls }) => {
                let channel =
                    self.carriers.dtls.sessions.get(dtls).and_then(|d| self.carriers.channels.get(d.channel()));
                channel.is_some_and(|c| c.writable)
            }
            _ => true,
        }
    }

    /// Ends this side's direction, where the transport can report it.
    pub(crate) fn send_fin(&mut self, conn: Key) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        let Some(out) = self.carriers.finish(&mut self.cx, c.flow) else { return };
        c.fin_done |= out;
        self.both_ended(conn);
    }

    /// The transport itself may hold something back.
    fn flush_transport(&mut self, conn: Key, flow: FlowId) -> Flushed {
        let mut done = Flushed::default();
        let (FlowId::Channel(k), Some(c)) = (flow, self.conns.get_mut(conn)) else { return done };
        let Some(ch) = self.carriers.channels.get_mut(k) else { return done };
        match tls_out(&mut self.cx.net, ch) {
            Ok(true) if !c.tx.sealed.is_empty() => {
                done.sent = core::mem::take(&mut c.tx.sealed);
                c.messages_sent = c.messages_sent.saturating_add(done.sent.len() as u32);
            }
            Ok(_) => {}
            Err(e) => done.error = Some(ConnectionError::Net(e)),
        }
        done
    }

    /// Writes as much of the queue as the transport takes.
    pub(crate) fn flush(&mut self, conn: Key) -> Flushed {
        let mut done = Flushed::default();
        let Some(c) = self.conns.get_mut(conn) else { return done };
        if !matches!(c.state, ConnectionState::Established | ConnectionState::Closing) {
            return done;
        }
        let io = c.flow;
        if c.tx.is_empty() {
            return self.flush_transport(conn, io);
        }
        let (room, full) = c.may_send_now(self.cx.now);
        let mut budget = Budget::new(room, full);
        let mut tx = core::mem::take(&mut c.tx);
        match io {
            FlowId::Channel(k) => match self.carriers.channels.get_mut(k) {
                Some(ch) if matches!(ch.kind, Kind::Udp) => {
                    let peer = Peer::from(ch.remote);
                    flush_datagrams(&mut self.cx.net, ch, peer, &mut tx, &mut budget, (&mut done, &mut self.cx.packet));
                }
                Some(ch) => {
                    flush_stream(&mut self.cx.net, ch, &mut tx, &mut budget, &mut done);
                    seal(ch, &mut tx, &mut done);
                }
                None => {}
            },
            FlowId::Peer { channel } => {
                // Calls do not look at the clock, and there may have been no turn for a long time.
                c.ext().spoke = Some(self.cx.net.now());
                let peer = c.ext.as_ref().and_then(|e| e.peer);
                if let (Some(ch), Some(peer)) = (self.carriers.channels.get_mut(channel), peer) {
                    flush_datagrams(&mut self.cx.net, ch, peer, &mut tx, &mut budget, (&mut done, &mut self.cx.packet));
                }
            }
            FlowId::Stream { quic, stream } => {
                if let Some(q) = self.carriers.quic.connections.get_mut(quic) {
                    flush_quic_stream(q, stream, &mut tx, &mut budget, &mut done);
                    self.mark_dirty(quic);
                }
            }
            FlowId::Datagrams { quic } => {
                if let Some(q) = self.carriers.quic.connections.get_mut(quic) {
                    while let Some(front) = tx.queue.front() {
                        let before = budget;
                        if !budget.take_datagram(front.data.len()) {
                            break;
                        }
                        // Copied, because what QUIC keeps it drops when it likes, and the program may own it.
                        match q.conn.send_datagram(Bytes::copy_from_slice(&front.data)) {
                            Ok(true) => {
                                let n = front.data.len();
                                done.bytes += n;
                                if let Some(id) = tx.pop() {
                                    done.sent.push(id);
                                }
                            }
                            Ok(false) => break,
                            Err(max) => {
                                budget = before;
                                if let Some(id) = tx.pop() {
                                    done.failed.push((id, SendError::MessageTooLarge { max }));
                                }
                            }
                        }
                    }
                    self.mark_dirty(quic);
                }
            }
            FlowId::Sctp { sctp, stream } => self.flush_sctp(conn, (sctp, stream), &mut tx, &mut budget, &mut done),
            FlowId::Dtls { dtls } => {
                c.ext().spoke = Some(self.cx.net.now());
                self.flush_dtls(dtls, &mut tx, &mut budget, &mut done);
            }
            FlowId::None | FlowId::StreamPending { .. } | FlowId::SctpPending { .. } => {}
        }
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

    /// The socket says that a message was too long, and not for what.
    fn tell_maximum(&mut self, conn: Key, done: &mut Flushed) {
        for (_, error) in &mut done.failed {
            if let SendError::MessageTooLarge { max: max @ 0 } = error {
                *max = self.singular_transmission_msg_max_len(crate::ConnectionId(conn)).unwrap_or(0);
            }
        }
    }

    /// Keeps the sum of all queues, and what has left them. The part that a connection has counted is what it last held.
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

    /// The engine's queues have room again: whoever was kept out by others may try.
    #[cold]
    fn let_in(&mut self) {
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
        let (options, early, priority) = match &mut *c.ext {
            Some(e) => (core::mem::take(&mut e.options), e.early.take(), e.priority),
            None => (Vec::new(), None, None),
        };
        let taken = c.ext.as_mut().is_some_and(|e| core::mem::take(&mut e.first_taken));
        let abandoned = c.ext.as_mut().and_then(|e| e.abandoned.take());
        if let Some(code) = c.ext.as_mut().and_then(|e| e.refusal.take()) {
            self.stop_receiving(crate::ConnectionId(conn), code);
        }
        for option in options {
            // Reported when it was set, if it could be known; best effort after that (RFC 9621 section 4.1.3).
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

    /// Whether a channel is behind an open connection.
    pub(crate) fn channel_of(&self, conn: Key) -> Option<Key> {
        match self.conns.get(conn)?.flow {
            FlowId::Channel(k) => self.carriers.channels.get(k).filter(|c| c.behind == Behind::Conn(conn)).map(|_| k),
            FlowId::Dtls { dtls } => {
                let key = self.carriers.dtls.sessions.get(dtls)?.channel();
                self.carriers.channels.get(key).filter(|c| c.behind == Behind::Conn(conn)).map(|_| key)
            }
            _ => None,
        }
    }
}

/// Records that the socket has not taken are lost with it: the messages that end in them are not sent before all are out. A
/// socket that has become writable takes them all.
fn seal(ch: &Channel, tx: &mut SendQueue, done: &mut Flushed) {
    let Kind::Tls(tls) = &ch.kind else { return };
    if tls.wants_write() {
        if done.sent.len() > done.out {
            tx.sealed.extend(done.sent.drain(done.out..));
        }
    } else if !tx.sealed.is_empty() {
        let later = done.sent.split_off(done.out);
        done.sent.append(&mut tx.sealed);
        done.sent.extend(later);
    }
    done.out = done.sent.len();
}

/// Writes as much of a queue as a stream of QUIC and its session take.
fn flush_quic_stream(q: &mut Quic, stream: StreamId, tx: &mut SendQueue, budget: &mut Budget, done: &mut Flushed) {
    loop {
        tx.advance(0, done);
        let Some(front) = tx.queue.front() else { break };
        if budget.room() == 0 {
            break;
        }
        let piece = &front.data[..front.data.len().min(budget.room())];
        match q.conn.write(stream, piece) {
            Ok(0) => break,
            Ok(n) => {
                budget.take(n);
                tx.advance(n, done);
            }
            Err(code) => {
                done.error = Some(match (code, &q.lost) {
                    (Some(code), _) => ConnectionError::StreamReset(code),
                    (None, Some(e)) => ConnectionError::Quic(e.clone()),
                    (None, None) => ConnectionError::Closed,
                });
                break;
            }
        }
    }
}

fn flush_stream<N: Net>(net: &mut N, ch: &mut Channel, tx: &mut SendQueue, budget: &mut Budget, done: &mut Flushed) {
    loop {
        tx.advance(0, done);
        if tx.queue.is_empty() || budget.room() == 0 {
            break;
        }
        let mut slices = [IoSlice::new(&[]); IOV_MAX];
        let mut count = 0;
        let mut room = budget.room();
        for (slot, segment) in slices.iter_mut().zip(&tx.queue) {
            if room == 0 {
                break;
            }
            let piece = &segment.data[..segment.data.len().min(room)];
            room -= piece.len();
            *slot = IoSlice::new(piece);
            count += 1;
        }
        let slices = &slices[..count];
        let written = match &mut ch.kind {
            Kind::Tls(tls) => {
                let n = tls.write_plain(slices);
                match tls_out(net, ch) {
                    Ok(true) if n == 0 => {
                        // The records that filled the buffer are out now; a session that takes nothing even so has ended.
                        let Kind::Tls(tls) = &mut ch.kind else { return };
                        match tls.write_plain(slices) {
                            // Delivered before the end of its handshake: the rest waits for that.
                            0 if tls.is_handshaking() && tls.error().is_none() => return,
                            0 => {
                                let error = tls.error().cloned().map(ConnectionError::Tls);
                                done.error = Some(error.unwrap_or(ConnectionError::Closed));
                                return;
                            }
                            n => Ok(n),
                        }
                    }
                    Ok(true) => Ok(n),
                    Ok(false) if n > 0 => Ok(n),
                    Ok(false) => Err(NetError::new(ErrorKind::WouldBlock)),
                    Err(e) => Err(e),
                }
            }
            _ => ch.write(net, slices),
        };
        match written {
            Ok(n) => {
                budget.take(n);
                tx.advance(n, done);
                seal(ch, tx, done);
            }
            Err(e) if e.is_would_block() => return,
            Err(e) => {
                done.error = Some(ConnectionError::Net(e));
                return;
            }
        }
    }
    if let Err(e) = tls_out(net, ch) {
        done.error = Some(ConnectionError::Net(e));
    }
}
