//! Sending (RFC 9622 section 9.2).

use crate::channel::Kind;
use crate::conn::{Conn, ConnectionState, Io, Segment};
use crate::event::{ConnectionError, SendError};
use crate::transport::tls_out;
use crate::{ConnectionId, Engine, MessageId, Stack};
use bytes::Bytes;
use core::time::Duration;
use neater_base::Key;
use neater_base::net::{ErrorKind, Net, NetError, SocketOption};
use neater_framing::Outbound;
use neater_quic::ConnectionApi;
use std::io::IoSlice;

/// The properties of a message that this engine acts on (RFC 9622 section 9.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendOptions {
    /// The message ends with this data.
    pub end_of_message: bool,
    /// No message follows: the direction is closed after it, where the protocol can (`final`).
    pub is_final: bool,
    /// The message may be delivered more than once (`safelyReplayable`).
    pub safely_replayable: bool,
    /// The message is pointless when it could not be sent within this time (`msgLifetime`).
    pub lifetime: Option<Duration>,
}

impl Default for SendOptions {
    fn default() -> Self {
        Self { end_of_message: true, is_final: false, safely_replayable: true, lifetime: None }
    }
}

const RECEIVE_ONLY: &str = "this connection was opened for receiving only (direction: Unidirectional receive)";

/// Why nothing can be sent any more: the program has said so, or the peer.
fn refused(c: &Conn) -> SendError {
    match c.error() {
        Some(e) if c.stopped => SendError::Connection(e.clone()),
        _ => SendError::AfterFinal,
    }
}

/// The largest payload of a UDP datagram over IPv4; IPv6 allows 20 bytes more, which nobody can count on.
const UDP_PAYLOAD_MAX: usize = 65_507;

impl<N: Net> Engine<N> {
    /// Sends a message, or part of one. Nothing is copied: the engine keeps a reference to `data` until it is written.
    /// Messages sent before the connection is established wait for it.
    ///
    /// # Errors
    /// [`SendError::Blocked`]: no room now, and nothing was taken; [`crate::Event::Writable`] tells when to try again. A message that
    /// is larger than the buffer is taken when the queue is empty. The other errors are final for this message.
    pub fn send(&mut self, conn: ConnectionId, data: Bytes, options: SendOptions) -> Result<MessageId, SendError> {
        let closed = SendError::Connection(ConnectionError::Closed);
        let limits = self.limits;
        let crowded = self.queued >= limits.engine_bytes;
        let Some(c) = self.conns.get_mut(conn.0) else { return Err(closed) };
        match c.state {
            ConnectionState::Closed => {
                return Err(SendError::Connection(c.error().cloned().unwrap_or(ConnectionError::Closed)));
            }
            ConnectionState::Closing => return Err(SendError::AfterFinal),
            ConnectionState::Establishing | ConnectionState::Established => {}
        }
        if c.final_sent {
            return Err(refused(c));
        }
        if !c.request.may_send {
            return Err(SendError::Connection(ConnectionError::Unsupported(RECEIVE_ONLY)));
        }
        let datagram = c.stack.is_some_and(|s| !s.is_stream());
        if c.stack.is_some_and(|s| s == Stack::Udp) && !options.safely_replayable {
            return Err(SendError::InvalidMessageProperties(
                "safelyReplayable is false, and UDP may deliver a datagram twice".into(),
            ));
        }
        if data.len() > limits.message {
            return Err(SendError::MessageTooLarge { max: limits.message });
        }
        if datagram {
            let max = self.datagram_max(conn.0);
            if data.len() > max {
                return Err(SendError::MessageTooLarge { max });
            }
            if !options.end_of_message {
                return Err(SendError::InvalidMessageProperties("a datagram cannot be sent in parts".into()));
            }
        }
        let Some(c) = self.conns.get_mut(conn.0) else { return Err(SendError::Connection(ConnectionError::Closed)) };
        let limit = if crowded { limits.send_floor } else { limits.send_buffer };
        let room = limit.saturating_sub(c.tx.bytes);
        if data.len() > room && !c.tx.is_empty() {
            c.wants_room = true;
            return Err(SendError::Blocked { room });
        }
        if options.lifetime.is_some() {
            self.now = self.net.now();
        }
        let expires = options.lifetime.map(|l| self.now + l);
        let id = self.queue_message(conn.0, data, options, expires)?;
        if let Some(at) = expires {
            self.timers.push(at, crate::engine::Timer::Expiry(conn.0));
        }
        let Some(c) = self.conns.get(conn.0) else { return Ok(id) };
        if c.is_open() && !c.batching {
            self.flush_and_report(conn.0);
        }
        Ok(id)
    }

    fn queue_message(
        &mut self,
        conn: Key,
        data: Bytes,
        options: SendOptions,
        expires: Option<neater_base::Instant>,
    ) -> Result<MessageId, SendError> {
        let Some(c) = self.conns.get_mut(conn) else { return Err(SendError::Connection(ConnectionError::Closed)) };
        let first = !c.tx.in_message;
        let id = if first { c.tx.next_id + 1 } else { c.tx.next_id };
        let mut pieces = Vec::new();
        // Framers keep state: a message that is sent before the connection is established is framed by the framer that
        // the connection will have.
        if c.state == ConnectionState::Establishing
            && !c.framed()
            && let Some(framer) = c.request.framer.make()
        {
            c.ext().framer = Some(framer);
        }
        match c.ext.as_mut().and_then(|e| e.framer.as_mut()) {
            Some(framer) => {
                let mut out = Outbound::default();
                framer
                    .new_sent_message(&mut out, data, first, options.end_of_message)
                    .map_err(|e| SendError::Framer(e.0))?;
                pieces = out.pieces;
                if pieces.is_empty() && options.end_of_message {
                    pieces.push(Bytes::new());
                }
                if c.stack.is_some_and(|s| !s.is_stream()) && pieces.len() > 1 {
                    // A datagram is one piece.
                    pieces = vec![Bytes::from(pieces.concat())];
                }
            }
            None => pieces.push(data),
        }
        c.tx.next_id = id.max(1);
        c.tx.in_message = !options.end_of_message;
        let id = MessageId(c.tx.next_id);
        let last = pieces.len().saturating_sub(1);
        for (i, data) in pieces.into_iter().enumerate() {
            c.tx.bytes += data.len();
            c.tx.queue.push_back(Segment {
                data,
                completes: (i == last && options.end_of_message).then_some(id),
                // A message that is sent in parts cannot be taken back whole.
                expires: if i == 0 && first && options.end_of_message { expires.map(|at| (at, id)) } else { None },
                replayable: options.safely_replayable,
            });
        }
        if options.is_final && options.end_of_message {
            c.final_sent = true;
        }
        self.recount(conn);
        Ok(id)
    }

    /// A datagram stack has won, and what was sent before that was known must fit it: each message is one datagram, and
    /// none may be delivered twice that must not be.
    pub(crate) fn fit_datagrams(&mut self, conn: Key) {
        let max = self.datagram_max(conn);
        let Some(c) = self.conns.get_mut(conn) else { return };
        let twice = c.stack == Some(Stack::Udp);
        let mut failed = Vec::new();
        let mut fitted = std::collections::VecDeque::new();
        let mut gathered: Vec<Segment> = Vec::new();
        for segment in core::mem::take(&mut c.tx.queue) {
            let completes = segment.completes;
            gathered.push(segment);
            let Some(id) = completes else { continue };
            let parts = core::mem::take(&mut gathered);
            let expires = parts.first().and_then(|s| s.expires);
            let replayable = parts.iter().all(|s| s.replayable);
            let data = match <[Segment; 1]>::try_from(parts) {
                Ok([one]) => one.data,
                Err(many) => Bytes::from(many.iter().flat_map(|s| s.data.iter().copied()).collect::<Vec<u8>>()),
            };
            if twice && !replayable {
                let why = "safelyReplayable is false, and UDP may deliver a datagram twice";
                failed.push((id, SendError::InvalidMessageProperties(why.into())));
            } else if data.len() > max {
                failed.push((id, SendError::MessageTooLarge { max }));
            } else {
                fitted.push_back(Segment { data, completes: Some(id), expires, replayable });
            }
        }
        c.tx.bytes = fitted.iter().map(|s| s.data.len()).sum();
        c.tx.queue = fitted;
        c.tx.in_message = false;
        self.recount(conn);
        for (id, error) in failed {
            self.notify(conn, crate::Event::SendError(id, error));
        }
    }

    /// Queues the message that was to be early data, before everything else.
    pub(crate) fn queue_first(&mut self, conn: Key, data: Bytes) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        let waiting = core::mem::take(&mut c.tx.queue);
        let bytes = core::mem::take(&mut c.tx.bytes);
        let in_message = core::mem::take(&mut c.tx.in_message);
        // What waited was framed before it, each message by itself.
        if let Err(error) = self.queue_message(conn, data, SendOptions::default(), None) {
            let id = MessageId(self.conns.get(conn).map_or(0, |c| c.tx.next_id));
            self.notify(conn, crate::Event::SendError(id, error));
        }
        let Some(c) = self.conns.get_mut(conn) else { return };
        c.tx.in_message = in_message;
        c.tx.queue.extend(waiting);
        c.tx.bytes += bytes;
        self.recount(conn);
    }

    /// Writes bytes of a raw byte stream straight to the transport, without a queue. `None`: nothing can be taken now,
    /// and [`crate::Event::Writable`] will tell.
    ///
    /// # Errors
    /// As [`Engine::send`]; [`ConnectionError::Unsupported`] on connections that carry messages.
    #[inline]
    pub fn write(&mut self, conn: ConnectionId, bufs: &[IoSlice<'_>]) -> Result<Option<usize>, SendError> {
        // The short path: plain TCP that has room, and nothing that waits before these bytes. Found out once, it halves
        // what a write of a kilobyte costs.
        if let Some(c) = self.conns.get_mut(conn.0)
            && c.may_write_bytes()
            && let Io::Channel(k) = c.io
            && let Some(ch) = self.channels.get_mut(k)
            && matches!(ch.kind, Kind::Tcp)
            && ch.writable
        {
            return match self.net.write(ch.sock, bufs) {
                Ok(n) => {
                    c.bytes_sent += n as u64;
                    Ok(Some(n))
                }
                Err(e) if e.is_would_block() => {
                    ch.writable = false;
                    c.wants_room = true;
                    Ok(None)
                }
                Err(e) => self.write_failed(conn, e),
            };
        }
        self.write_in_full(conn, bufs)
    }

    #[cold]
    fn write_failed<T>(&mut self, conn: ConnectionId, e: NetError) -> Result<T, SendError> {
        let error = ConnectionError::Net(e);
        self.fail_connection(conn.0, error.clone());
        Err(SendError::Connection(error))
    }

    #[inline(never)]
    fn write_in_full(&mut self, conn: ConnectionId, bufs: &[IoSlice<'_>]) -> Result<Option<usize>, SendError> {
        let Some(c) = self.conns.get_mut(conn.0) else { return Err(SendError::Connection(ConnectionError::Closed)) };
        match c.state {
            ConnectionState::Established if !c.final_sent => {}
            ConnectionState::Establishing => {
                c.wants_room = true;
                return Ok(None);
            }
            ConnectionState::Closed => {
                return Err(SendError::Connection(c.error().cloned().unwrap_or(ConnectionError::Closed)));
            }
            _ => return Err(refused(c)),
        }
        if !c.request.may_send {
            return Err(SendError::Connection(ConnectionError::Unsupported(RECEIVE_ONLY)));
        }
        if c.ext.is_some() {
            c.bytes_possible().map_err(SendError::Connection)?;
        }
        if !c.tx.is_empty() {
            c.wants_room = true;
            return Ok(None);
        }
        let result = match c.io {
            Io::Channel(k) => {
                let Some(ch) = self.channels.get_mut(k) else {
                    return Err(SendError::Connection(ConnectionError::Closed));
                };
                match &mut ch.kind {
                    Kind::Tcp => ch.write(&mut self.net, bufs),
                    Kind::Tls(tls) => {
                        let n = tls.write_plain(bufs);
                        match tls_out(&mut self.net, ch) {
                            Ok(_) if n > 0 => Ok(n),
                            Ok(true) => {
                                // The records that filled the buffer are out now.
                                let Kind::Tls(tls) = &mut ch.kind else { return Ok(None) };
                                let n = tls.write_plain(bufs);
                                tls_out(&mut self.net, ch)
                                    .and_then(|_| if n > 0 { Ok(n) } else { Err(NetError::new(ErrorKind::WouldBlock)) })
                            }
                            Ok(false) => Err(NetError::new(ErrorKind::WouldBlock)),
                            Err(e) => Err(e),
                        }
                    }
                    _ => {
                        return Err(SendError::Connection(ConnectionError::Unsupported(
                            "this connection carries datagrams: send messages on it",
                        )));
                    }
                }
            }
            Io::Stream { quic, stream } => {
                let Some(q) = self.quics.get_mut(quic) else {
                    return Err(SendError::Connection(ConnectionError::Closed));
                };
                let mut total = 0;
                for buf in bufs.iter().filter(|b| !b.is_empty()) {
                    match q.conn.write(stream, buf) {
                        Ok(n) => {
                            total += n;
                            if n < buf.len() {
                                break;
                            }
                        }
                        Err(code) => {
                            let error = code.map(ConnectionError::StreamReset);
                            let error = error.or_else(|| q.lost.clone().map(ConnectionError::Quic));
                            return Err(SendError::Connection(error.unwrap_or(ConnectionError::Closed)));
                        }
                    }
                }
                self.mark_dirty(quic);
                if total > 0 { Ok(total) } else { Err(NetError::new(ErrorKind::WouldBlock)) }
            }
            _ => {
                return Err(SendError::Connection(ConnectionError::Unsupported(
                    "this connection carries datagrams: send messages on it",
                )));
            }
        };
        match result {
            Ok(n) => {
                if let Some(c) = self.conns.get_mut(conn.0) {
                    c.bytes_sent += n as u64;
                }
                Ok(Some(n))
            }
            Err(e) if e.is_would_block() => {
                if let Some(c) = self.conns.get_mut(conn.0) {
                    c.wants_room = true;
                }
                Ok(None)
            }
            Err(e) => self.write_failed(conn, e),
        }
    }

    /// Ends this side's direction after what was sent, as a final message without content does.
    ///
    /// # Errors
    /// When the connection is over.
    pub fn finish(&mut self, conn: ConnectionId) -> Result<(), SendError> {
        let Some(c) = self.conns.get_mut(conn.0) else { return Err(SendError::Connection(ConnectionError::Closed)) };
        match c.state {
            ConnectionState::Closed => {
                return Err(SendError::Connection(c.error().cloned().unwrap_or(ConnectionError::Closed)));
            }
            _ => c.final_sent = true,
        }
        self.flush_and_report(conn.0);
        Ok(())
    }

    /// Sends until [`Engine::end_batch`] may be gathered (RFC 9622 section 9.2.4).
    pub fn start_batch(&mut self, conn: ConnectionId) {
        if let Some(c) = self.conns.get_mut(conn.0) {
            c.batching = true;
        }
    }

    /// Writes what was gathered.
    pub fn end_batch(&mut self, conn: ConnectionId) {
        if let Some(c) = self.conns.get_mut(conn.0) {
            c.batching = false;
            self.flush_and_report(conn.0);
        }
    }

    /// Largest datagram that this connection can send now, in bytes.
    pub(crate) fn datagram_max(&mut self, conn: Key) -> usize {
        match self.conns.get(conn).map(|c| c.io) {
            Some(Io::Datagrams { quic }) => self.quics.get_mut(quic).and_then(|q| q.conn.max_datagram()).unwrap_or(0),
            _ => UDP_PAYLOAD_MAX,
        }
    }

    /// The largest message that can be sent (RFC 9622 section 8.1.11.5), in bytes.
    pub fn send_msg_max_len(&mut self, conn: ConnectionId) -> usize {
        match self.conns.get(conn.0).map(|c| (c.stack, c.final_sent)) {
            None | Some((_, true)) => 0,
            Some((Some(s), _)) if !s.is_stream() => self.datagram_max(conn.0),
            Some(_) => self.limits.message,
        }
    }

    /// Sets an option of the connection's socket, now or when it is established.
    ///
    /// # Errors
    /// What the system says, or [`ErrorKind::Unsupported`] if the transport has no such option.
    pub fn set_option(&mut self, conn: ConnectionId, option: SocketOption) -> Result<(), NetError> {
        let Some(c) = self.conns.get_mut(conn.0) else { return Err(ErrorKind::NotConnected.into()) };
        if c.state == ConnectionState::Establishing {
            c.ext().options.push(option);
            return Ok(());
        }
        self.apply_option(conn.0, option)
    }

    pub(crate) fn apply_option(&mut self, conn: Key, option: SocketOption) -> Result<(), NetError> {
        match self.channel_of(conn).and_then(|k| self.channels.get(k)) {
            Some(ch) => self.net.set(ch.sock, option),
            None => Err(ErrorKind::Unsupported.into()),
        }
    }

    /// Sets the priority among the connections of a group: lower goes first (RFC 9622 section 8.1.2). It has an effect
    /// where the group shares a transport.
    pub fn set_priority(&mut self, conn: ConnectionId, priority: u32) {
        if let Some(c) = self.conns.get_mut(conn.0) {
            c.ext().priority = Some(priority);
            self.apply_priority(conn.0, priority);
        }
    }

    pub(crate) fn apply_priority(&mut self, conn: Key, priority: u32) {
        if let Some(Conn { io: Io::Stream { quic, stream }, .. }) = self.conns.get(conn)
            && let Some(q) = self.quics.get_mut(*quic)
        {
            // QUIC has it the other way round: higher goes first, 0 is the default, as 100 is here.
            q.conn.set_priority(*stream, 100i32.saturating_sub(i32::try_from(priority).unwrap_or(i32::MAX)));
        }
    }
}
