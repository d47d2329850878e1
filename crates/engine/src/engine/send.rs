//! Sending messages.

use crate::conn::{Conn, ConnectionState};
use crate::event::{ConnectionError, SendError};
use crate::kept::EACH;
use crate::properties::NO_RELIABILITY_PER_MESSAGE;
use crate::queue::{PIECE, ReceivedDatagram, Segment, SendFlags};
use crate::send::{RECEIVE_ONLY, SendOptions, send_flags};
use crate::{ConnectionId, Engine, MessageId, Stack};
use bytes::Bytes;
use core::cmp::Reverse;
use neater_base::Key;
use neater_base::net::{ErrorKind, Net, NetError, SocketOption};
use neater_framing::Outbound;

impl<N: Net> Engine<N> {
    /// Sends a message, or part of one. Nothing is copied: the engine keeps a reference to `data`
    /// until it is written. Messages sent before the connection is established wait for it.
    ///
    /// # Errors
    /// [`SendError::Blocked`]: no room now, and nothing was taken; [`crate::Event::Writable`]
    /// follows when there is room. A message that is larger than the buffer is taken when the queue
    /// is empty and the engine's queues have room ([`crate::Limits::engine_bytes`]). The other
    /// errors are final for this message.
    pub fn send(&mut self, conn: ConnectionId, data: Bytes, options: SendOptions) -> Result<MessageId, SendError> {
        let mut data = Some(data);
        let result = self.send_if_possible(conn, &mut data, options);
        if let Some(refused) = data {
            self.notices.spend(conn, |s| s.keep(refused));
        }
        result
    }

    /// Whether connections of this request can take a message of `len` bytes at all, whatever they
    /// will be carried by.
    ///
    /// # Errors
    /// The error that [`Engine::send`] would return.
    pub fn check_message(&self, request: &crate::Request, len: usize) -> Result<(), SendError> {
        if !request.0.may_send {
            return Err(SendError::Connection(ConnectionError::Unsupported(RECEIVE_ONLY)));
        }
        if len > self.cx.limits.message {
            return Err(SendError::MessageTooLarge { max: self.cx.limits.message });
        }
        Ok(())
    }

    /// See [`Engine::send`]; what is not taken stays in `data`.
    pub(crate) fn send_if_possible(
        &mut self,
        conn: ConnectionId,
        data: &mut Option<Bytes>,
        options: SendOptions,
    ) -> Result<MessageId, SendError> {
        self.own_to_send()?;
        let len = data.as_ref().map_or(0, Bytes::len);
        let closed = SendError::Connection(ConnectionError::Closed);
        let limits = self.cx.limits;
        if self.conns.get(conn.0).is_some_and(|c| c.batching && !c.tx.is_empty() && len + PIECE > self.room_of(c)) {
            // What follows does not fit beside what was gathered of a batch: that leaves now, or
            // nothing ever makes room.
            self.flush_batch(conn.0);
        }
        let crowded = self.cx.queued >= limits.engine_bytes;
        let Some(c) = self.conns.get_mut(conn.0) else { return Err(closed) };
        match c.state {
            ConnectionState::Closed => {
                return Err(SendError::Connection(c.error().cloned().unwrap_or(ConnectionError::Closed)));
            }
            ConnectionState::Closing => return Err(SendError::AfterFinal),
            ConnectionState::Establishing | ConnectionState::Established => {}
        }
        if !c.send.is_open() {
            return Err(c.send_refusal());
        }
        if !c.request.may_send {
            return Err(SendError::Connection(ConnectionError::Unsupported(RECEIVE_ONLY)));
        }
        let datagram = c.stack.is_some_and(|s| !s.is_stream());
        if c.stack.is_some_and(Stack::may_duplicate) && !options.safely_replayable {
            return Err(SendError::InvalidMessageProperties(
                "safelyReplayable is false, and UDP may deliver a datagram twice".into(),
            ));
        }
        if options.begins
            && c.tx.in_message
            && (c.framed() || c.stack.is_some_and(Stack::takes_whole_messages) || c.tx.refusing)
        {
            return Err(SendError::InvalidMessageProperties(UNFINISHED.into()));
        }
        if c.tx.refusing {
            // What is left of it would be taken for a message of its own.
            self.refuse_part(conn.0, options.end_of_message);
            return Err(SendError::Framer("an earlier part of this message was refused".into()));
        }
        if !c.may_state_reliability(options.reliable) {
            if c.tx.in_message || !options.end_of_message {
                self.refuse_part(conn.0, options.end_of_message);
            }
            return Err(SendError::InvalidMessageProperties(NO_RELIABILITY_PER_MESSAGE.into()));
        }
        // Of a message in parts, those that the framer keeps count.
        if len > limits.message.saturating_sub(c.tx.held) {
            if c.tx.in_message || !options.end_of_message {
                self.refuse_part(conn.0, options.end_of_message);
            }
            return Err(SendError::MessageTooLarge { max: limits.message });
        }
        if datagram {
            let max = self.datagram_max(conn.0);
            if len > max {
                return Err(SendError::MessageTooLarge { max });
            }
            if !options.end_of_message {
                return Err(SendError::InvalidMessageProperties("a datagram cannot be sent in parts".into()));
            }
        }
        let Some(c) = self.conns.get_mut(conn.0) else { return Err(SendError::Connection(ConnectionError::Closed)) };
        // Where the transport takes a message when all of it is there, its parts are gathered here.
        let gathered = c.tx.in_message && c.stack.is_some_and(Stack::takes_whole_messages) && !c.framed();
        if gathered {
            let max = limits.message;
            if c.tx.parts + PIECE + len > max {
                self.refuse_part(conn.0, options.end_of_message);
                return Err(SendError::MessageTooLarge { max });
            }
        } else if !c.tx.is_empty() {
            let limit = if crowded { limits.send_floor } else { limits.send_buffer };
            let room = limit.saturating_sub(c.tx.waiting());
            if len + PIECE > room && !self.make_room_by_priority(conn.0, len + PIECE - room, &options) {
                if let Some(c) = self.conns.get_mut(conn.0) {
                    c.wants_room = true;
                }
                return Err(SendError::Blocked { room: room.saturating_sub(PIECE) });
            }
        } else if crowded && len > limits.send_buffer && c.tx.held == 0 && c.state != ConnectionState::Establishing {
            // Nothing of this connection's own will be written and bring it back here.
            c.wants_room = true;
            if !core::mem::replace(&mut c.tx.crowded_out, true) {
                self.crowded_out.push(conn.0);
                if self.crowded_out.len() > 2 * self.conns.len() + 64 {
                    let conns = &self.conns;
                    self.crowded_out.retain(|k| conns.contains(*k));
                }
            }
            return Err(SendError::Blocked { room: limits.send_buffer });
        }
        if options.lifetime.is_some() {
            self.cx.now = self.cx.net.now();
        }
        let expires = options.lifetime.map(|l| self.cx.now + l);
        let id = self.queue_message(conn.0, data.take().unwrap_or_default(), options, expires)?;
        if let Some(at) = expires {
            self.arm_expiry(conn.0, at);
        }
        let Some(c) = self.conns.get(conn.0) else { return Ok(id) };
        // Parts of a message that the transport is to have as a whole go with the last.
        let part = c.tx.in_message && !c.framed() && c.stack.is_some_and(Stack::takes_whole_messages);
        if c.is_open() && !c.batching && !part {
            self.flush_and_report(conn.0);
        }
        Ok(id)
    }

    /// See [`crate::queue::SendQueueState::part_refused`].
    #[cold]
    pub(crate) fn refuse_part(&mut self, conn: Key, end: bool) {
        if let Some(c) = self.conns.get_mut(conn) {
            c.tx.part_refused(end);
            // What else keeps the parts of a message together, or will, would join them to the next
            // one.
            if !c.framed() && c.stack.is_none_or(Stack::takes_whole_messages) {
                c.tx.drop_parts();
            }
        }
        self.recount(conn);
    }

    /// Gives up messages that wait, need not arrive and are less important than one that need not
    /// either, until `needed` bytes are free; the least important first, and of those the oldest.
    /// False: there are not enough of them, and all stay.
    pub(crate) fn make_room_by_priority(&mut self, conn: Key, needed: usize, options: &SendOptions) -> bool {
        let Some(c) = self.conns.get_mut(conn) else { return false };
        let flags = send_flags(&c.request.properties, options);
        let whole = c.stack.is_some_and(Stack::takes_whole_messages);
        if !whole || !flags.unreliable || !options.end_of_message || c.tx.in_message || c.framed() {
            return false;
        }
        let mut less = Vec::new();
        let mut begins = true;
        for (i, s) in c.tx.queue.iter().enumerate() {
            if let Some(id) = s.completes.filter(|_| begins && s.flags.unreliable && s.flags.priority > flags.priority)
            {
                less.push((Reverse(s.flags.priority), i, id, s.data.len() + PIECE));
            }
            begins = s.completes.is_some();
        }
        less.sort_unstable();
        let (mut free, mut enough) = (0, 0);
        for (.., cost) in &less {
            if free >= needed {
                break;
            }
            (free, enough) = (free + cost, enough + 1);
        }
        if free < needed {
            return false;
        }
        less.truncate(enough);
        // From the back, so that the places of the others stay what they are.
        less.sort_unstable_by_key(|m| Reverse(m.1));
        for (_, i, ..) in &less {
            if let Some(s) = c.tx.queue.remove(*i) {
                c.tx.bytes -= s.data.len();
                c.tx.spent.push(s.data);
            }
        }
        self.recount(conn);
        for (_, _, id, _) in less.into_iter().rev() {
            self.notify(conn, crate::Event::Expired(id));
        }
        true
    }

    /// How much more a connection may keep for its peer: less where the connections of this engine
    /// keep much together.
    pub(crate) fn room_of(&self, c: &Conn) -> usize {
        let crowded = self.cx.queued >= self.cx.limits.engine_bytes;
        let limit = if crowded { self.cx.limits.send_floor } else { self.cx.limits.send_buffer };
        limit.saturating_sub(c.tx.waiting())
    }

    #[cold]
    pub(crate) fn flush_batch(&mut self, conn: Key) {
        if self.conns.get(conn).is_some_and(Conn::is_open) {
            self.flush_and_report(conn);
        }
    }

    pub(crate) fn queue_message(
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
        // Framers keep state: a message that is sent before the connection is established is framed
        // by the framer that the connection will have.
        if c.state == ConnectionState::Establishing
            && !c.framed()
            && let Some(framer) = c.request.framer.make()
        {
            c.cold().framer = Some(framer);
        }
        match c.cold.as_mut().and_then(|e| e.framer.as_mut()) {
            Some(framer) => {
                let mut out = Outbound::default();
                let kept = data.clone();
                let given = c.tx.held + data.len();
                if first {
                    c.tx.stale = 0;
                }
                let framed = framer.new_sent_message(&mut out, data, first, options.end_of_message);
                c.tx.spent.push(kept);
                pieces = out.pieces;
                let back = pieces.iter().map(Bytes::len).sum();
                c.tx.held = if options.end_of_message || framed.is_err() { 0 } else { given.saturating_sub(back) };
                if let Err(e) = framed {
                    let broken = framer.is_broken();
                    c.tx.spent.append(&mut pieces);
                    if !first || !options.end_of_message {
                        c.tx.part_refused(options.end_of_message);
                    }
                    self.recount(conn);
                    if broken {
                        self.fail_connection(conn, ConnectionError::Framer(e.0.clone()));
                    }
                    return Err(SendError::Framer(e.0));
                }
                if pieces.is_empty() && options.end_of_message {
                    pieces.push(Bytes::new());
                }
                if c.stack.is_some_and(|s| !s.is_stream()) && pieces.len() > 1 {
                    // A datagram is one piece.
                    let whole = Bytes::from(pieces.concat());
                    c.tx.spent.append(&mut pieces);
                    pieces.push(whole);
                }
            }
            None => pieces.push(data),
        }
        c.tx.next_id = id.max(1);
        c.tx.in_message = !options.end_of_message;
        if first {
            c.tx.parts = 0;
        }
        let id = MessageId(c.tx.next_id);
        let flags = send_flags(&c.request.properties, &options);
        let last = pieces.len().saturating_sub(1);
        for (i, data) in pieces.into_iter().enumerate() {
            c.tx.bytes += data.len();
            c.tx.parts += data.len() + PIECE;
            c.tx.queue.push_back(Segment {
                data,
                completes: (i == last && options.end_of_message).then_some(id),
                // A message that is sent in parts cannot be taken back whole.
                expires: if i == 0 && first && options.end_of_message { expires.map(|at| (at, id)) } else { None },
                flags,
            });
        }
        if options.is_final && options.end_of_message {
            c.send = c.send.on_end();
        }
        self.recount(conn);
        Ok(id)
    }

    /// A datagram stack has won, and what was sent before that was known must fit it: each message
    /// is one datagram, and none may be delivered twice that must not be.
    pub(crate) fn fit_datagrams(&mut self, conn: Key) {
        let max = self.datagram_max(conn);
        let Some(c) = self.conns.get_mut(conn) else { return };
        let twice = c.stack.is_some_and(Stack::may_duplicate);
        let mut failed = Vec::new();
        let mut fitted = std::collections::VecDeque::new();
        let mut gathered: Vec<Segment> = Vec::new();
        let mut spent = Vec::new();
        for segment in core::mem::take(&mut c.tx.queue) {
            let completes = segment.completes;
            gathered.push(segment);
            let Some(id) = completes else { continue };
            let parts = core::mem::take(&mut gathered);
            let expires = parts.first().and_then(|s| s.expires);
            let replayable = parts.iter().all(|s| s.flags.replayable);
            let flags = parts.first().map_or_else(SendFlags::default, |s| SendFlags { replayable, ..s.flags });
            let data = match <[Segment; 1]>::try_from(parts) {
                Ok([one]) => one.data,
                Err(many) => {
                    let whole = Bytes::from(many.iter().flat_map(|s| s.data.iter().copied()).collect::<Vec<u8>>());
                    spent.extend(many.into_iter().map(|s| s.data));
                    whole
                }
            };
            if twice && !replayable {
                let why = "safelyReplayable is false, and UDP may deliver a datagram twice";
                failed.push((id, SendError::InvalidMessageProperties(why.into())));
                spent.push(data);
            } else if data.len() > max {
                failed.push((id, SendError::MessageTooLarge { max }));
                spent.push(data);
            } else {
                fitted.push_back(Segment { data, completes: Some(id), expires, flags });
            }
        }
        c.tx.bytes = fitted.iter().map(|s| s.data.len()).sum();
        c.tx.queue = fitted;
        spent.extend(gathered.into_iter().map(|s| s.data));
        c.tx.spent.append(&mut spent);
        if let Some(id) = c.tx.give_up_message() {
            failed.push((id, SendError::InvalidMessageProperties("a datagram cannot be sent in parts".into())));
        }
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
        let (in_message, parts) = (core::mem::take(&mut c.tx.in_message), core::mem::take(&mut c.tx.parts));
        // It has had its number since the connection was initiated.
        let next_id = core::mem::replace(&mut c.tx.next_id, crate::early::FIRST.0 - 1);
        // What waited was framed before it, each message by itself.
        if let Err(error) = self.queue_message(conn, data, SendOptions::default(), None) {
            self.notify(conn, crate::Event::SendError(crate::early::FIRST, error));
        }
        let Some(c) = self.conns.get_mut(conn) else { return };
        c.tx.next_id = next_id;
        (c.tx.in_message, c.tx.parts) = (in_message, parts);
        c.tx.queue.extend(waiting);
        c.tx.bytes += bytes;
        self.recount(conn);
    }

    /// Ends this side's direction after what was sent, as a final message without content does.
    /// Called again it does nothing, but that [`crate::Event::Writable`] follows when
    /// [`crate::ConnectionStats::ended`] has become true.
    ///
    /// # Errors
    /// When the connection is over, or the peer has stopped the stream before it had everything.
    pub fn finish(&mut self, conn: ConnectionId) -> Result<(), SendError> {
        self.own_to_send()?;
        // There may have been no turn for a long time, and how long the end takes is measured from
        // here.
        self.cx.now = self.cx.net.now();
        let Some(c) = self.conns.get_mut(conn.0) else { return Err(SendError::Connection(ConnectionError::Closed)) };
        match c.state {
            ConnectionState::Closed => {
                return Err(SendError::Connection(c.error().cloned().unwrap_or(ConnectionError::Closed)));
            }
            _ if c.given_up() => return Err(c.send_refusal()),
            _ => {
                let was_open = c.send.is_open();
                c.send = c.send.on_end();
                // A sender that waits for room is to learn that none will come.
                if was_open && core::mem::take(&mut c.wants_room) {
                    self.notify(conn.0, crate::Event::Writable);
                }
            }
        }
        self.end_message(conn.0);
        self.flush_and_report(conn.0);
        if let Some(c) = self.conns.get_mut(conn.0)
            && !c.end_is_out()
        {
            c.wants_room = true;
        }
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
        self.carriers.datagram_max(self.conns.get(conn).map(|c| c.flow))
    }

    /// The largest message that can be sent (RFC 9622 section 8.1.11.5), in bytes.
    pub fn send_msg_max_len(&mut self, conn: ConnectionId) -> usize {
        match self.conns.get(conn.0).map(|c| (c.stack, !c.send.is_open())) {
            None | Some((_, true)) => 0,
            Some((Some(s), _)) if !s.is_stream() => self.datagram_max(conn.0),
            Some(_) => self.cx.limits.message,
        }
    }

    /// Sets an option of the connection's socket, now or when it is established.
    ///
    /// # Errors
    /// The error of the operating system, or [`ErrorKind::Unsupported`] if the transport has no
    /// such option.
    pub fn set_option(&mut self, conn: ConnectionId, option: SocketOption) -> Result<(), NetError> {
        if self.is_forked() {
            return Err(crate::fork::FORKED);
        }
        let Some(c) = self.conns.get_mut(conn.0) else { return Err(ErrorKind::NotConnected.into()) };
        if c.state == ConnectionState::Establishing {
            c.cold().options.push(option);
            return Ok(());
        }
        self.apply_option(conn.0, option)
    }

    pub(crate) fn apply_option(&mut self, conn: Key, option: SocketOption) -> Result<(), NetError> {
        let Some(c) = self.conns.get(conn) else { return Err(ErrorKind::Unsupported.into()) };
        self.carriers.set_option(&mut self.cx, (c.flow, conn), option)
    }

    /// Sets the priority among the connections of a group: lower goes first (RFC 9622 section
    /// 8.1.2). Streams of one transport keep that order; the packets of connections with sockets of
    /// their own are ranked in this host's queues, as far as the system lets them.
    pub fn set_priority(&mut self, conn: ConnectionId, priority: u32) {
        let Some(c) = self.conns.get_mut(conn.0) else { return };
        if c.priority() != priority {
            c.cold().priority = Some(priority);
            if c.state != ConnectionState::Establishing {
                self.apply_priority(conn.0, priority);
            }
        }
    }

    pub(crate) fn apply_priority(&mut self, conn: Key, priority: u32) {
        let Some(flow) = self.conns.get(conn).map(|c| c.flow) else { return };
        if !self.carriers.set_priority(flow, priority) {
            // A wish: the packets leave without it, too.
            let _ = self.apply_option(conn, SocketOption::Priority(crate::preferences::socket_priority(priority)));
        }
    }

    /// Hands a datagram to a connection's queue; false if there was no room.
    pub(crate) fn queue_datagram(&mut self, conn: Key, d: ReceivedDatagram) -> bool {
        let limits = &self.cx.limits;
        // Many peers that are not read keep a little each when they keep much together.
        let crowded = self.cx.kept >= limits.engine_bytes;
        let limit = if crowded { limits.datagram_buffer.min(limits.send_floor) } else { limits.datagram_buffer };
        let now = self.cx.now;
        let Some(c) = self.conns.get_mut(conn) else { return false };
        let unwanted = !c.recv.may_read();
        let cold = c.cold();
        // The peer is there, whether what it sends is read or not.
        cold.last_activity = now;
        if unwanted {
            return false;
        }
        let cost = d.data.len() + EACH;
        // The first has room, whatever the others keep.
        let limit = if cold.datagrams.is_empty() { limits.datagram_buffer } else { limit };
        if cold.datagram_bytes + cost > limit {
            c.dropped = c.dropped.saturating_add(1);
            self.cx.stats.refusals.datagrams += 1;
            return false;
        }
        cold.datagram_bytes += cost;
        cold.datagrams.push_back(d);
        self.cx.kept += cost;
        true
    }
}

/// Two messages are never made one.
const UNFINISHED: &str = "a message was begun in parts, and its end has not been sent";
