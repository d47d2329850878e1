//! What connections do with the streams of an association: messages, bytes, and the ends of both directions.

use super::wire::{Control, PPID_CONTROL, PPID_DATA, PPID_EMPTY};
use super::{SEND_BUFFER_MAX, Sctp};
use crate::Engine;
use crate::conn::{ConnectionState, How, Tx};
use crate::event::{ConnectionError, Event, SendError};
use crate::receive::{ReceiveOutcome, Received};
use crate::terminate::NO_CODE;
use crate::transport::{Budget, Flushed};
use bytes::{Buf, Bytes};
use neater_base::net::{ErrorKind, Net, NetError};
use neater_base::{Instant, Key};
use neater_sctp::{CloseReason, Message, Reliability, Scheduler, SendOptions, StreamId};
use std::collections::{BTreeSet, VecDeque};
use std::io::IoSlice;

/// What a piece that waits costs beside its bytes.
const PIECE: usize = 64;
/// How far the endpoint's idea of what is held may be from the truth: a quarter of what makes it say so to the peer.
const HELD_STEP: usize = 64 << 10;
/// How many bytes a connection hands over at a time while others wait, too.
const SHARE: usize = 16 << 10;
/// The longest message that a write of bytes makes.
const BYTES_MAX: usize = 64 << 10;
/// Directions that end together (RFC 6525 section 4.1: the list must fit into a packet).
const ENDS_TOGETHER: usize = 128;

/// Part of a message that waits for the program.
#[derive(Debug)]
struct Piece {
    data: Bytes,
    end: bool,
    /// The message: pieces of it have the same.
    number: u64,
    stream: u16,
}

impl Piece {
    fn cost(&self) -> usize {
        self.data.len() + PIECE
    }
}

/// One use of the number of a stream.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) conn: Option<Key>,
    rx: VecDeque<Piece>,
    /// The message of which more is to come, and what must wait until it is complete.
    partial: Option<u64>,
    parked: VecDeque<Piece>,
    /// Nobody wants what comes.
    deaf: bool,
    /// The peer's direction has ended, and with this code if not in order.
    peer_ended: bool,
    reset: Option<u64>,
    /// Our direction is to end, and has ended.
    ending: bool,
    ended: bool,
    /// The peer has shown that it knows of the end of the last use before it said so.
    stale: bool,
}

impl Sctp {
    /// Begins another use of a number.
    pub(super) fn open(&mut self, number: u16) -> u32 {
        self.uses = self.uses.wrapping_add(1);
        let stream = u32::from(self.uses) << 16 | u32::from(number);
        self.streams.insert(stream, Stream::default());
        self.numbers.insert(number, stream);
        stream
    }

    /// The number that a message for this stream is sent on.
    fn number_of(&self, stream: u32, how: How) -> StreamId {
        StreamId(if self.mux { stream as u16 } else { how.stream })
    }

    /// Adds what has arrived to the queue of its stream, parts of a message behind each other.
    fn keep(&mut self, stream: u32, piece: Piece) {
        let Some(s) = self.streams.get_mut(&stream) else { return };
        self.held += piece.cost();
        match s.partial {
            Some(n) if n != piece.number => return s.parked.push_back(piece),
            _ => {}
        }
        s.partial = (!piece.end).then_some(piece.number);
        s.rx.push_back(piece);
        // What was parked may be parts itself.
        while s.partial.is_none()
            && let Some(next) = s.parked.pop_front()
        {
            s.partial = (!next.end).then_some(next.number);
            let (number, whole) = (next.number, next.end);
            s.rx.push_back(next);
            if !whole {
                let (same, rest): (VecDeque<_>, VecDeque<_>) =
                    core::mem::take(&mut s.parked).into_iter().partition(|p| p.number == number);
                s.parked = rest;
                s.partial = (!same.back().is_some_and(|p| p.end)).then_some(number);
                s.rx.extend(same);
            }
        }
    }

    /// Throws away what has arrived on a stream.
    fn discard(&mut self, stream: u32) {
        let Some(s) = self.streams.get_mut(&stream) else { return };
        s.deaf = true;
        let cost: usize = s.rx.iter().chain(&s.parked).map(Piece::cost).sum();
        self.held -= cost;
        (s.rx, s.parked, s.partial) = (VecDeque::new(), VecDeque::new(), None);
    }

    /// Whether the peer gives out this number.
    fn is_peers(&self, number: u16) -> bool {
        number.is_multiple_of(2) != self.client
    }
}

impl<N: Net> Engine<N> {
    pub(super) fn sctp_bind(&mut self, key: Key, stream: u32, conn: Key) {
        if let Some(s) = self.sctps.get_mut(key).and_then(|a| a.streams.get_mut(&stream)) {
            s.conn = Some(conn);
        }
        if let Some(priority) = self.conns.get(conn).map(crate::conn::Conn::priority) {
            self.sctp_set_priority(key, stream, priority);
        }
    }

    /// `connPriority` of a connection among those of its group.
    pub(crate) fn sctp_set_priority(&mut self, key: Key, stream: u32, priority: u32) {
        let Some(a) = self.sctps.get(key).filter(|a| a.mux) else { return };
        if let Some(e) = self.sctp_ends.get_mut(a.end) {
            let value = super::open::value_of(e.profile.scheduler, priority);
            e.endpoint.set_stream_value(a.id, StreamId(stream as u16), value);
        }
    }

    /// A connection no longer uses its stream.
    pub(crate) fn sctp_unbind(&mut self, key: Key, stream: u32) {
        if let Some(a) = self.sctps.get_mut(key) {
            a.discard(stream);
            if let Some(s) = a.streams.get_mut(&stream) {
                s.conn = None;
            }
        }
        self.sctp_tell_held(key);
        self.sctp_tidy_stream(key, stream);
        self.sctp_close_spare(key);
        self.tidy_sctp(key);
        self.mark_sctp_of(key);
    }

    /// An association that is not its group's own ends with the last that uses it: the group will not end it.
    pub(crate) fn sctp_close_spare(&mut self, key: Key) {
        let Some(a) = self.sctps.get(key).filter(|a| a.client && a.lost.is_none() && a.attempt.is_none()) else {
            return;
        };
        let Some(g) = a.group.and_then(|g| self.groups.get(g)) else { return };
        if g.sctp != Some(key) && !a.is_used() && self.pending_on_sctp(key).is_empty() {
            let abort = g.abort_code;
            self.sctp_close(key, abort);
        }
    }

    /// Forgets a stream whose ends are both known, and that nobody reads.
    fn sctp_tidy_stream(&mut self, key: Key, stream: u32) {
        let Some(a) = self.sctps.get_mut(key) else { return };
        let Some(s) = a.streams.get(&stream) else { return };
        let number = stream as u16;
        if s.ended && s.peer_ended && a.numbers.get(&number) == Some(&stream) {
            a.numbers.remove(&number);
        }
        let Some(s) = a.streams.get(&stream) else { return };
        let waits = a.unaccepted.contains(&stream);
        if s.conn.is_none() && !waits && (a.over || a.numbers.get(&number) != Some(&stream)) {
            a.streams.remove(&stream);
        }
        self.sctp_open_pending(key);
    }

    /// Takes what has arrived to the connections that it is for.
    pub(super) fn sctp_take(&mut self, key: Key) {
        let mut told = BTreeSet::new();
        let mut opened = false;
        while let Some(a) = self.sctps.get(key)
            && let (end, id) = (a.end, a.id)
            && let Some(message) = self.sctp_ends.get_mut(end).and_then(|e| e.endpoint.receive(id))
        {
            let Some((stream, new)) = self.sctp_stream_for(key, message.stream.0) else {
                if let Some(e) = self.sctp_ends.get_mut(end) {
                    e.endpoint.recycle(id, message.payload);
                }
                continue;
            };
            opened |= new;
            self.sctp_arrived(key, stream, message);
            told.insert(stream);
        }
        self.sctp_tell_held(key);
        for stream in told {
            self.sctp_tell(key, stream);
        }
        if opened {
            self.sctp_accept(key);
        }
    }

    /// The stream that a message on this number is for, and whether it is new. `None`: nobody's.
    fn sctp_stream_for(&mut self, key: Key, number: u16) -> Option<(u32, bool)> {
        let a = self.sctps.get(key)?;
        let number = if a.mux { number } else { 0 };
        let current = a.numbers.get(&number).copied();
        if let Some(stream) = current {
            let s = a.streams.get(&stream)?;
            if !s.peer_ended {
                return Some((stream, false));
            }
            // A new use of the number: the peer would not do that before it knew of our end.
            if !s.ended {
                self.sctp_ended(key, number);
                let a = self.sctps.get_mut(key).filter(|a| a.mux && a.is_peers(number) && a.lost.is_none())?;
                let stream = a.open(number);
                a.streams.get_mut(&stream)?.stale = true;
                a.unaccepted.push_back(stream);
                return Some((stream, true));
            }
        }
        let a = self.sctps.get_mut(key).filter(|a| a.mux && a.is_peers(number) && a.lost.is_none())?;
        let stream = a.open(number);
        a.unaccepted.push_back(stream);
        Some((stream, true))
    }

    fn sctp_arrived(&mut self, key: Key, stream: u32, message: Message) {
        let Some(a) = self.sctps.get_mut(key) else { return };
        let Some(s) = a.streams.get_mut(&stream) else { return };
        if a.mux && message.ppid.0 == PPID_CONTROL {
            return match Control::parse(&message.payload) {
                Some(Control::Reset(code)) => s.reset = Some(code),
                Some(Control::Stop(code)) => self.sctp_stopped(key, stream, code),
                None => {}
            };
        }
        let gone = s.conn.is_some_and(|c| self.conns.get(c).is_none_or(|c| c.state == ConnectionState::Closing));
        if s.deaf || gone {
            return;
        }
        let empty = a.mux && message.ppid.0 == PPID_EMPTY;
        let data = if empty { Bytes::new() } else { Bytes::from(message.payload) };
        let piece = Piece { data, end: message.last, number: message.number, stream: message.stream.0 };
        a.keep(stream, piece);
    }

    /// Tells the endpoint how much is held, if that has changed enough to matter.
    fn sctp_tell_held(&mut self, key: Key) {
        let Some(a) = self.sctps.get_mut(key) else { return };
        if a.held != a.told && (a.held == 0 || a.held.abs_diff(a.told) >= HELD_STEP) {
            a.told = a.held;
            let (end, id, held) = (a.end, a.id, a.held);
            if let Some(e) = self.sctp_ends.get_mut(end) {
                e.endpoint.set_held(id, held);
            }
            self.mark_sctp(end);
        }
    }

    /// Tells a connection that there is something to read, or that there will be nothing more.
    pub(super) fn sctp_tell(&mut self, key: Key, stream: u32) {
        let Some(s) = self.sctps.get(key).and_then(|a| a.streams.get(&stream)) else { return };
        let (Some(conn), news) = (s.conn, !s.rx.is_empty() || s.peer_ended || s.reset.is_some()) else { return };
        let reset = s.reset.filter(|_| s.rx.is_empty());
        if news {
            self.conn_ready_stream(conn, true);
        }
        // A stream on which nothing can be sent any more is over when the peer has abandoned the other direction, too.
        if let (Some(code), Some(c)) = (reset, self.conns.get_mut(conn))
            && c.is_open()
            && (c.stopped || c.fin_acked)
        {
            c.reset = true;
            self.fail_connection(conn, ConnectionError::StreamReset(code));
        }
    }

    /// The peer has given up a message of which a part was taken out of the endpoint: what follows would be taken for the rest.
    pub(super) fn sctp_part_lost(&mut self, key: Key, number: u16, message: u64) {
        let Some(a) = self.sctps.get_mut(key) else { return };
        let number = if a.mux { number } else { 0 };
        let Some(stream) = a.numbers.get(&number).copied() else { return };
        let Some(s) = a.streams.get_mut(&stream).filter(|s| s.partial == Some(message)) else { return };
        if let Some(conn) = s.conn {
            let why = CloseReason::PeerMisbehaved("it gave up a message of which a part was delivered");
            self.fail_connection(conn, ConnectionError::Sctp(why));
        }
    }

    /// There is room again: everybody who waits gets a share in turn, the most important first if that is what was asked for.
    pub(super) fn sctp_writable(&mut self, key: Key) {
        let Some(a) = self.sctps.get_mut(key) else { return };
        a.blocked = false;
        let Some(e) = self.sctp_ends.get_mut(a.end) else { return };
        // The buffer follows the path: twice what may be in flight.
        let window = usize::try_from(2 * e.endpoint.window(a.id)).unwrap_or(usize::MAX);
        let want = window.clamp(self.limits.send_buffer, SEND_BUFFER_MAX.max(self.limits.send_buffer));
        if want > a.send_buffer + a.send_buffer / 4 {
            a.send_buffer = want;
            e.endpoint.set_send_buffer(a.id, want);
        }
        let ranked = e.profile.scheduler == Scheduler::Priority;
        let (before, after): (Vec<_>, Vec<_>) =
            a.streams.iter().filter_map(|(k, s)| Some((*k, s.conn?))).partition(|(k, _)| *k < a.turn);
        let mut waiting: VecDeque<(u32, Key)> = after.into_iter().chain(before).collect();
        waiting.retain(|(_, c)| self.conns.get(*c).is_some_and(|c| !c.tx.is_empty() || c.wants_room));
        if ranked {
            let rank = |c: &Key| self.conns.get(*c).map_or(u32::MAX, crate::conn::Conn::priority);
            waiting.make_contiguous().sort_by_key(|(_, c)| rank(c));
        }
        while let Some((stream, conn)) = waiting.pop_front() {
            let Some(a) = self.sctps.get_mut(key).filter(|a| !a.blocked) else { return };
            a.turn = stream;
            a.share = SHARE;
            let before = self.conns.get(conn).map_or(0, |c| c.bytes_sent);
            self.conn_ready_stream(conn, false);
            if let Some(a) = self.sctps.get_mut(key) {
                a.share = usize::MAX;
            }
            let more = self.conns.get(conn).is_some_and(|c| !c.tx.is_empty() && c.bytes_sent > before);
            match (more, ranked) {
                (true, true) => waiting.push_front((stream, conn)),
                (true, false) => waiting.push_back((stream, conn)),
                (false, _) => {}
            }
        }
    }

    /// Where what is more important goes first, its turn comes as soon as there is room, and not when half the buffer is empty:
    /// otherwise the rest of the buffer would be sent before it.
    pub(super) fn sctp_feed_ranked(&mut self, end: Key) {
        let Some(e) = self.sctp_ends.get_mut(end) else { return };
        for key in core::mem::take(&mut e.hungry) {
            let Some(a) = self.sctps.get(key).filter(|a| a.blocked && a.lost.is_none()) else { continue };
            let Some(e) = self.sctp_ends.get_mut(end) else { return };
            if e.endpoint.buffered(a.id) + SHARE <= a.send_buffer {
                self.sctp_writable(key);
            } else {
                e.hungry.push(key);
            }
        }
    }

    /// What has become of a message that might have been given up.
    pub(super) fn sctp_reported(&mut self, key: Key, message: u64, delivered: bool) {
        let Some(a) = self.sctps.get_mut(key) else { return };
        let Some((conn, id)) = a.reports.remove(&message) else { return };
        let over = self.sctp_ends.get(a.end).is_none_or(|e| e.endpoint.is_over(a.id));
        if delivered {
            if let Some(c) = self.conns.get_mut(conn) {
                c.messages_sent += 1;
            }
            self.notify(conn, Event::Sent(id));
        } else if over {
            self.notify(conn, Event::SendError(id, SendError::Connection(ConnectionError::Closed)));
        } else {
            self.notify(conn, Event::Expired(id));
        }
    }

    /// Ends our direction of a stream, after everything that was sent on it.
    pub(crate) fn sctp_finish(&mut self, key: Key, stream: u32) {
        let Some(a) = self.sctps.get_mut(key) else { return };
        let Some(s) = a.streams.get_mut(&stream) else { return };
        if !core::mem::replace(&mut s.ending, true) {
            a.ending.push_back(stream as u16);
            let (end, listed) = (a.end, core::mem::replace(&mut a.listed, true));
            if let Some(e) = self.sctp_ends.get_mut(end).filter(|_| !listed) {
                e.ending.push_back(key);
            }
            self.mark_sctp(end);
        }
    }

    fn sctp_say(&mut self, key: Key, stream: u32, word: Control) {
        let Some(a) = self.sctps.get(key).filter(|a| a.mux && a.lost.is_none()) else { return };
        let Some(s) = a.streams.get(&stream).filter(|s| !s.ending) else { return };
        debug_assert!(!s.ended, "what has ended is ending");
        let Some(e) = self.sctp_ends.get_mut(a.end) else { return };
        let options = SendOptions { ppid: PPID_CONTROL, ..SendOptions::default() };
        let data = Bytes::copy_from_slice(&word.to_bytes());
        // Without room for a word, the end has to do: it is rare, and the peer misses a code.
        let _ = e.endpoint.send(a.id, StreamId(stream as u16), data, options);
        self.mark_sctp_of(key);
    }

    /// Abandons our direction of a stream with a code.
    pub(crate) fn sctp_reset(&mut self, key: Key, stream: u32, code: u64) {
        self.sctp_say(key, stream, Control::Reset(code));
        self.sctp_finish(key, stream);
    }

    /// Wants nothing more of a stream: what has come is thrown away, and the peer is told, unless our direction has ended: then it
    /// finds out when it ends its own.
    pub(crate) fn sctp_stop(&mut self, key: Key, stream: u32, code: u64) {
        let Some(a) = self.sctps.get_mut(key) else { return };
        a.discard(stream);
        let over = a.streams.get(&stream).is_none_or(|s| s.peer_ended);
        if !over {
            self.sctp_say(key, stream, Control::Stop(code));
        }
        self.sctp_tell_held(key);
    }

    /// A stream of the peer's that nobody will ever take.
    pub(super) fn sctp_refuse_stream(&mut self, key: Key, stream: u32) {
        self.sctp_stop(key, stream, NO_CODE);
        if self.sctps.get(key).is_some_and(|a| !a.mux) {
            return self.sctp_close(key, Some(NO_CODE));
        }
        self.sctp_reset(key, stream, NO_CODE);
        self.sctp_tidy_stream(key, stream);
    }

    /// The peer does not want more of this stream.
    fn sctp_stopped(&mut self, key: Key, stream: u32, code: u64) {
        let Some(a) = self.sctps.get(key) else { return };
        let Some(conn) = a.streams.get(&stream).and_then(|s| s.conn) else {
            return self.sctp_finish(key, stream);
        };
        let idle = self.sctp_ends.get(a.end).is_none_or(|e| e.endpoint.is_stream_idle(a.id, StreamId(stream as u16)));
        let Some(c) = self.conns.get_mut(conn) else { return };
        if c.is_greeting() {
            return self.greeting_failed(conn, &ConnectionError::StreamReset(code));
        }
        c.stopped = true;
        if c.fin_done && code == NO_CODE && !c.reset {
            // Everything is on its way, the end included.
            return;
        }
        // A peer that closes in order has what it has acknowledged.
        let delivered = code == NO_CODE && c.tx.is_empty() && idle;
        self.sctp_reset(key, stream, code);
        let error = ConnectionError::StreamReset(code);
        let Some(c) = self.conns.get_mut(conn) else { return };
        (c.final_sent, c.fin_done, c.fin_acked) = (true, true, delivered);
        if c.state == ConnectionState::Closing && delivered {
            return self.finish_close(conn);
        }
        if c.state == ConnectionState::Closing || c.reset {
            return self.fail_connection(conn, error);
        }
        c.ext().error = Some(error.clone());
        self.report_unsent(conn, &error);
        // Whoever waits for room learns that there is none to come.
        self.notify(conn, Event::Writable);
    }

    /// Tells the peer of the directions that are to end and on which everything is acknowledged. Where streams mean nothing to
    /// the peer, nobody is told.
    pub(super) fn sctp_end_streams(&mut self, key: Key) {
        let Some(a) = self.sctps.get_mut(key).filter(|a| !a.ending.is_empty() && a.lost.is_none()) else { return };
        let (id, mux, waits) = (a.id, a.mux, a.resetting);
        let Some(e) = self.sctp_ends.get_mut(a.end) else { return };
        let mut now = Vec::new();
        if !waits {
            for _ in 0..a.ending.len().min(ENDS_TOGETHER) {
                let Some(number) = a.ending.pop_front() else { break };
                if e.endpoint.is_stream_idle(id, StreamId(number)) {
                    now.push(StreamId(number));
                } else {
                    a.ending.push_back(number);
                }
            }
        }
        if mux && !now.is_empty() {
            match e.endpoint.reset_outgoing(id, &now) {
                Ok(()) => a.resetting = true,
                // Later, or with the association.
                Err(_) => a.ending.extend(now.iter().map(|s| s.0)),
            }
        }
        if !a.ending.is_empty() && !core::mem::replace(&mut a.listed, true) {
            e.ending.push_back(key);
        }
        if !mux {
            for stream in now {
                self.sctp_ended(key, stream.0);
            }
        }
    }

    /// The peer knows that our direction of a stream has ended, and has everything that was sent on it.
    pub(super) fn sctp_ended(&mut self, key: Key, number: u16) {
        let Some(a) = self.sctps.get_mut(key) else { return };
        let Some(stream) = a.numbers.get(&number).copied() else { return };
        let Some(s) = a.streams.get_mut(&stream) else { return };
        if core::mem::take(&mut s.stale) {
            return;
        }
        s.ended = true;
        if let Some(conn) = s.conn
            && let Some(c) = self.conns.get_mut(conn)
        {
            c.fin_acked = true;
            if core::mem::take(&mut c.wants_room) {
                self.notify(conn, Event::Writable);
            }
            if self.conns.get(conn).is_some_and(|c| c.state == ConnectionState::Closing) {
                self.finish_close(conn);
            } else {
                self.both_ended(conn);
                self.sctp_tell(key, stream);
            }
        }
        self.sctp_tidy_stream(key, stream);
    }

    /// The peer's direction of a stream has ended, after everything that came on it.
    pub(super) fn sctp_peer_ended(&mut self, key: Key, number: u16) {
        let Some(a) = self.sctps.get_mut(key) else { return };
        let Some(stream) = a.numbers.get(&number).copied() else { return };
        let Some(s) = a.streams.get_mut(&stream) else { return };
        s.peer_ended = true;
        self.sctp_tell(key, stream);
        self.sctp_tidy_stream(key, stream);
    }

    /// Hands over as many messages of a connection's queue as there is room for.
    pub(crate) fn flush_sctp(
        &mut self,
        conn: Key,
        (key, stream): (Key, u32),
        tx: &mut Tx,
        budget: &mut Budget,
        done: &mut Flushed,
    ) {
        let Some(c) = self.conns.get(conn) else { return };
        let (framed, last) = (c.framed() || c.is_greeting(), c.final_sent);
        let Some(a) = self.sctps.get_mut(key) else { return };
        let Some(e) = self.sctp_ends.get_mut(a.end) else { return };
        let mut share = a.share;
        while let Some(front) = tx.queue.front().filter(|_| !a.blocked && share > 0) {
            // Without a framer a message may have come in parts; the end of the direction is the end of the last.
            let parts = match tx.queue.iter().position(|s| s.completes.is_some()) {
                _ if framed => 1,
                Some(at) => at + 1,
                None if last => tx.queue.len(),
                None => break,
            };
            let (how, expires) = (front.how, front.expires);
            let len: usize = tx.queue.iter().take(parts).map(|s| s.data.len()).sum();
            if !budget.take_datagram(len) {
                break;
            }
            // Copied, because what the endpoint keeps it drops when it likes, and the program may own it.
            let mut data = Vec::with_capacity(len.max(1));
            tx.queue.iter().take(parts).for_each(|s| data.extend_from_slice(&s.data));
            let sent = match (len, framed, a.mux) {
                (0, true, _) => Ok(None),
                (0, false, false) => Err(SendError::InvalidMessageProperties(
                    "a message of SCTP has at least one byte (RFC 9260 section 6.2)".into(),
                )),
                _ => {
                    let options = options(how, expires.map(|e| e.0), framed, len == 0);
                    if len == 0 {
                        data.push(0);
                    }
                    let number = a.number_of(stream, how);
                    match hand_over(e, a.id, number, Bytes::from(data), options) {
                        Ok(message) => Ok(message),
                        Err(Refusal::Blocked) => {
                            a.blocked = true;
                            if e.profile.scheduler == Scheduler::Priority && !e.hungry.contains(&key) {
                                e.hungry.push(key);
                            }
                            break;
                        }
                        Err(Refusal::Message(error)) => Err(error),
                        Err(Refusal::Over) => {
                            let why = a.lost.clone().unwrap_or(CloseReason::Shutdown);
                            done.error = Some(ConnectionError::Sctp(why));
                            break;
                        }
                    }
                }
            };
            share = share.saturating_sub(len.max(1));
            let mut id = None;
            for _ in 0..parts {
                id = tx.pop().or(id);
            }
            match (sent, id) {
                (Ok(None), id) => {
                    done.bytes += len;
                    done.sent.extend(id);
                }
                (Ok(Some(message)), id) => {
                    done.bytes += len;
                    a.reports.extend(id.map(|id| (message, (conn, id))));
                }
                (Err(error), Some(id)) => done.failed.push((id, error)),
                (Err(_), None) => {}
            }
        }
        self.mark_sctp_of(key);
    }

    /// Writes bytes: each write is a message, and what they mean together is the receiver's business.
    pub(crate) fn sctp_write(
        &mut self,
        key: Key,
        stream: u32,
        bufs: &[IoSlice<'_>],
    ) -> Result<Result<usize, NetError>, ConnectionError> {
        let blocked = NetError::new(ErrorKind::WouldBlock);
        let Some(a) = self.sctps.get_mut(key) else { return Err(ConnectionError::Closed) };
        let Some(e) = self.sctp_ends.get_mut(a.end) else { return Err(ConnectionError::Closed) };
        let mut total = 0;
        for piece in bufs.iter().flat_map(|b| b.chunks(BYTES_MAX)) {
            if a.blocked {
                break;
            }
            let number = a.number_of(stream, How::default());
            let options = SendOptions { ppid: PPID_DATA, ..SendOptions::default() };
            match hand_over(e, a.id, number, Bytes::copy_from_slice(piece), options) {
                Ok(_) => total += piece.len(),
                Err(Refusal::Blocked) => a.blocked = true,
                Err(_) if total > 0 => break,
                Err(_) => return Err(a.lost.clone().map_or(ConnectionError::Closed, ConnectionError::Sctp)),
            }
        }
        self.mark_sctp_of(key);
        Ok(if total > 0 || bufs.iter().all(|b| b.is_empty()) { Ok(total) } else { Err(blocked) })
    }

    /// What there is when nothing waits to be read: the end, an error, or nothing yet.
    fn sctp_nothing(&self, key: Key, stream: u32) -> Result<bool, ConnectionError> {
        let Some(a) = self.sctps.get(key) else { return Err(ConnectionError::Closed) };
        let Some(s) = a.streams.get(&stream) else { return Err(ConnectionError::Closed) };
        match (s.reset, &a.lost) {
            (Some(code), _) => Err(ConnectionError::StreamReset(code)),
            _ if s.peer_ended => Ok(true),
            (None, Some(CloseReason::Shutdown)) => Ok(a.over),
            (None, Some(reason)) => Err(ConnectionError::Sctp(reason.clone())),
            (None, None) => Ok(false),
        }
    }

    /// Reads bytes: messages one after the other, without their boundaries.
    pub(crate) fn sctp_read(
        &mut self,
        key: Key,
        stream: u32,
        buf: &mut [u8],
    ) -> Result<Option<usize>, ConnectionError> {
        let mut n = 0;
        if let Some(a) = self.sctps.get_mut(key)
            && let Some(s) = a.streams.get_mut(&stream)
        {
            while let Some(piece) = s.rx.front_mut() {
                let k = piece.data.len().min(buf.len() - n);
                piece.data.copy_to_slice(&mut buf[n..n + k]);
                n += k;
                a.held -= k;
                if !piece.data.is_empty() {
                    break;
                }
                a.held -= PIECE;
                s.rx.pop_front();
            }
        }
        if n > 0 || buf.is_empty() {
            self.sctp_tell_held(key);
            return Ok(Some(n));
        }
        Ok(self.sctp_nothing(key, stream)?.then_some(0))
    }

    /// Takes the next message of a connection, or the next part of a long one.
    pub(crate) fn receive_sctp(&mut self, conn: Key, key: Key, stream: u32) -> Result<ReceiveOutcome, ConnectionError> {
        if self.conns.get(conn).is_some_and(|c| c.read_closed) {
            return Ok(ReceiveOutcome::End);
        }
        let next = self.sctps.get_mut(key).and_then(|a| {
            let s = a.streams.get_mut(&stream)?;
            let piece = s.rx.pop_front()?;
            a.held -= piece.cost();
            let is_final = piece.end && s.rx.is_empty() && s.peer_ended && s.reset.is_none();
            Some((piece, is_final, (!a.mux)))
        });
        let Some((piece, is_final, whole)) = next else {
            let read = self.sctp_nothing(key, stream).map(|end| end.then_some(0));
            return match self.after_read(conn, true, read) {
                Ok(None) => Ok(ReceiveOutcome::Blocked),
                Ok(Some(_)) => Ok(ReceiveOutcome::End),
                Err(e) => Err(e),
            };
        };
        self.sctp_tell_held(key);
        if let Some(c) = self.conns.get_mut(conn) {
            c.bytes_received += piece.data.len() as u64;
            c.messages_received += u32::from(piece.end);
        }
        Ok(ReceiveOutcome::Received(Received {
            data: piece.data,
            end_of_message: piece.end,
            is_final,
            ecn: None,
            early: false,
            stream: whole.then_some(piece.stream),
        }))
    }
}

/// Why the endpoint did not take a message.
enum Refusal {
    Blocked,
    Over,
    Message(SendError),
}

/// How a message is sent that was asked for like this.
fn options(how: How, expires: Option<Instant>, framed: bool, empty: bool) -> SendOptions {
    let ppid = if empty { PPID_EMPTY } else { PPID_DATA };
    if framed {
        // Bytes of a stream, whatever the messages in it are.
        return SendOptions { ppid, ..SendOptions::default() };
    }
    let reliability = match expires {
        Some(at) => Reliability::Until(at),
        None if how.unreliable && how.priority != How::default().priority => {
            Reliability::Priority(u32::from(how.priority))
        }
        None if how.unreliable => Reliability::Retransmissions(0),
        None => Reliability::Full,
    };
    let report = reliability != Reliability::Full;
    SendOptions { ppid, unordered: how.unordered, reliability, whole: how.whole, report, immediate: false }
}

/// Hands a message to the endpoint; returns its number if what becomes of it will be reported.
fn hand_over(
    end: &mut super::SctpEnd,
    id: neater_sctp::AssociationId,
    stream: StreamId,
    data: Bytes,
    options: SendOptions,
) -> Result<Option<u64>, Refusal> {
    use neater_sctp::SendError as E;
    match end.endpoint.send(id, stream, data.clone(), options) {
        Ok(message) => Ok(options.report.then_some(message.0)),
        Err(E::NotPartiallyReliable) => {
            // It need not be given up.
            let options = SendOptions { reliability: Reliability::Full, report: false, ..options };
            hand_over(end, id, stream, data, options)
        }
        Err(E::Blocked) => Err(Refusal::Blocked),
        Err(E::TooLong { most }) => Err(Refusal::Message(SendError::MessageTooLarge { max: most })),
        Err(e @ (E::NoSuchStream { .. } | E::Empty)) => {
            Err(Refusal::Message(SendError::InvalidMessageProperties(e.to_string())))
        }
        Err(_) => Err(Refusal::Over),
    }
}
