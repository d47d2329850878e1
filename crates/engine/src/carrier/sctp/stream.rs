//! The streams of an association and the connections on them: who uses which, and how both directions end.

use super::Sctp;
use super::receiving::Piece;
use super::wire::{Control, PPID_CONTROL};
use crate::carrier::{SctpCarrier, SessionId};
use crate::conn::ConnectionState;
use crate::event::{ConnectionError, Event};
use crate::queue::SendFlags;
use crate::terminate::NO_CODE;
use crate::{Engine, Limits};
use bytes::Bytes;
use neater_base::Key;
use neater_base::net::Net;
use neater_sctp::{SendOptions, StreamId};
use std::collections::{BTreeMap, VecDeque};

/// Directions that end together (RFC 6525 section 4.1: the list must fit into a packet).
const ENDS_TOGETHER: usize = 128;

/// One use of the number of a stream.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) conn: Option<Key>,
    pub(super) rx: VecDeque<Piece>,
    /// The message of which more is to come, and what must wait until it is complete; where one connection is the whole association,
    /// that of which bytes were read.
    pub(super) partial: Option<u64>,
    pub(super) parked: BTreeMap<u64, VecDeque<Piece>>,
    /// Nobody has taken it yet: it is in the queue of those.
    pub(super) waits: bool,
    /// Nobody wants what comes.
    pub(super) deaf: bool,
    /// The peer's direction has ended, and with this code if not in order.
    pub(super) peer_ended: bool,
    pub(super) reset: Option<u64>,
    /// Our direction is to end, and has ended.
    ending: bool,
    pub(super) ended: bool,
    /// The peer has shown that it knows of the end of the last use before it said so.
    pub(super) stale: bool,
    /// What its connection has handed over by its weight: see [`Sctp::fed`].
    pub(super) fed: u64,
    /// Bytes of room that nobody else takes: its connection was told that there is room, and writes when the program gets to it.
    pub(super) reserved: usize,
}

impl Sctp {
    /// Begins another use of a number.
    pub(super) fn open(&mut self, number: u16) -> u32 {
        let stream = loop {
            self.uses = self.uses.wrapping_add(1);
            let stream = u32::from(self.uses) << 16 | u32::from(number);
            // There are fewer than 65,536 uses of one number: see `MAX_USES`.
            if !self.streams.contains_key(&stream) {
                break stream;
            }
        };
        self.streams.insert(stream, Stream::default());
        self.numbers.insert(number, stream);
        stream
    }

    /// The same, for a connection that nobody has asked for.
    pub(super) fn open_theirs(&mut self, number: u16) -> u32 {
        let stream = self.open(number);
        if let Some(s) = self.streams.get_mut(&stream) {
            s.waits = true;
        }
        self.unaccepted.push_back(stream);
        stream
    }

    /// The next stream that nobody has taken yet.
    pub(super) fn take_theirs(&mut self) -> Option<u32> {
        let stream = self.unaccepted.pop_front()?;
        if let Some(s) = self.streams.get_mut(&stream) {
            s.waits = false;
        }
        Some(stream)
    }

    /// The number that a message for this stream is sent on.
    pub(super) fn number_of(&self, stream: u32, flags: SendFlags) -> StreamId {
        StreamId(if self.mux { stream as u16 } else { flags.stream })
    }

    /// Whether the peer gives out this number.
    pub(super) fn is_peers(&self, number: u16) -> bool {
        number.is_multiple_of(2) != self.client
    }
}

impl SctpCarrier {
    /// Ends our direction of a stream, after everything that was sent on it.
    pub(crate) fn finish(&mut self, key: Key, stream: u32) {
        let Some(a) = self.associations.get_mut(key) else { return };
        let Some(s) = a.streams.get_mut(&stream) else { return };
        if !core::mem::replace(&mut s.ending, true) {
            a.ending.push_back(stream as u16);
            let (end, listed) = (a.end, core::mem::replace(&mut a.listed, true));
            if let Some(e) = self.endpoints.get_mut(end).filter(|_| !listed) {
                e.ending.push_back(key);
            }
            self.mark_dirty(end);
        }
    }

    /// Sends a control message between two of our engines.
    fn send_control(&mut self, key: Key, stream: u32, word: Control) {
        let Some(a) = self.associations.get(key).filter(|a| a.mux && a.lost.is_none()) else { return };
        let Some(s) = a.streams.get(&stream).filter(|s| !s.ending) else { return };
        debug_assert!(!s.ended, "what has ended is ending");
        let Some(e) = self.endpoints.get_mut(a.end) else { return };
        let options = SendOptions { ppid: PPID_CONTROL, immediate: true, ..SendOptions::default() };
        let data = Bytes::copy_from_slice(&word.to_bytes());
        // Room or not: without the word, a part would look to the peer like the whole. There are at most two for each use of a number.
        // It is not taken if the association ends, which the peer learns by itself.
        let _ = e.endpoint.send_word(a.id, StreamId(stream as u16), data, options);
        self.mark_dirty_of(key);
    }

    /// Abandons our direction of a stream with a code.
    pub(crate) fn reset(&mut self, key: Key, stream: u32, code: u64) {
        self.send_control(key, stream, Control::Reset(code));
        self.finish(key, stream);
    }

    /// Receives nothing more on a stream: what has come is dropped, and the peer is notified, unless our direction has
    /// ended: then it finds out when it ends its own.
    pub(crate) fn stop(&mut self, limits: &Limits, key: Key, stream: u32, code: u64) {
        let Some(a) = self.associations.get_mut(key) else { return };
        a.discard(stream);
        let over = a.streams.get(&stream).is_none_or(|s| s.peer_ended);
        if !over {
            self.send_control(key, stream, Control::Stop(code));
        }
        self.report_held(limits, key);
    }

    /// `connPriority` of a connection among those of its group.
    pub(crate) fn set_priority(&mut self, key: Key, stream: u32, priority: u32) {
        let Some(a) = self.associations.get(key).filter(|a| a.mux && !a.over) else { return };
        if let Some(e) = self.endpoints.get_mut(a.end) {
            let value = super::open::value_of(e.profile.scheduler, priority);
            e.endpoint.set_stream_value(a.id, StreamId(stream as u16), value);
        }
    }
}

impl<N: Net> Engine<N> {
    pub(crate) fn sctp_bind(&mut self, key: Key, stream: u32, conn: Key) {
        if let Some(s) = self.carriers.sctp.associations.get_mut(key).and_then(|a| a.streams.get_mut(&stream)) {
            s.conn = Some(conn);
        }
        if let Some(priority) = self.conns.get(conn).map(crate::conn::Conn::priority) {
            self.carriers.sctp.set_priority(key, stream, priority);
        }
    }

    /// A connection no longer uses its stream.
    pub(crate) fn sctp_unbind(&mut self, key: Key, stream: u32) {
        if let Some(a) = self.carriers.sctp.associations.get_mut(key) {
            a.discard(stream);
            if let Some(s) = a.streams.get_mut(&stream) {
                s.conn = None;
            }
        }
        self.carriers.sctp.report_held(&self.cx.limits, key);
        self.sctp_tidy_stream(key, stream);
        self.close_spare(SessionId::Sctp(key));
        self.tidy_sctp(key);
        self.mark_sctp_of(key);
    }

    /// Forgets a stream whose ends are both known, and that nobody reads.
    fn sctp_tidy_stream(&mut self, key: Key, stream: u32) {
        let Some(a) = self.carriers.sctp.associations.get_mut(key) else { return };
        let Some(s) = a.streams.get(&stream) else { return };
        let number = stream as u16;
        if s.ended && s.peer_ended && a.numbers.get(&number) == Some(&stream) {
            a.numbers.remove(&number);
        }
        let Some(s) = a.streams.get(&stream) else { return };
        if s.conn.is_none() && !s.waits && (a.over || a.numbers.get(&number) != Some(&stream)) {
            a.streams.remove(&stream);
        }
        self.open_pending(SessionId::Sctp(key));
    }

    /// Tells a connection that there is something to read, or that there will be nothing more.
    pub(super) fn sctp_tell(&mut self, key: Key, stream: u32) {
        let Some(s) = self.carriers.sctp.associations.get(key).and_then(|a| a.streams.get(&stream)) else { return };
        let (Some(conn), news) = (s.conn, !s.rx.is_empty() || s.peer_ended || s.reset.is_some()) else { return };
        let reset = s.reset.filter(|_| s.rx.is_empty());
        if news {
            self.conn_ready_stream(conn, true);
        }
        // A stream on which nothing can be sent any more is over when the peer has abandoned the other direction, too.
        if let (Some(code), Some(c)) = (reset, self.conns.get_mut(conn))
            && c.is_open()
            && c.send.is_over_for_peer()
        {
            c.recv = c.recv.on_reset(code);
            self.fail_connection(conn, ConnectionError::StreamReset(code));
        }
    }

    /// See [`SctpCarrier::finish`].
    pub(crate) fn sctp_finish(&mut self, key: Key, stream: u32) {
        self.carriers.sctp.finish(key, stream);
    }

    /// See [`SctpCarrier::reset`].
    pub(crate) fn sctp_reset(&mut self, key: Key, stream: u32, code: u64) {
        self.carriers.sctp.reset(key, stream, code);
    }

    /// See [`SctpCarrier::stop`].
    pub(crate) fn sctp_stop(&mut self, key: Key, stream: u32, code: u64) {
        self.carriers.sctp.stop(&self.cx.limits, key, stream, code);
    }

    /// A stream of the peer's that nobody will ever take.
    pub(super) fn sctp_refuse_stream(&mut self, key: Key, stream: u32) {
        self.sctp_stop(key, stream, NO_CODE);
        if self.carriers.sctp.associations.get(key).is_some_and(|a| !a.mux) {
            return self.sctp_close(key, Some(NO_CODE));
        }
        self.sctp_reset(key, stream, NO_CODE);
        self.sctp_tidy_stream(key, stream);
    }

    /// The peer does not want more of this stream.
    pub(super) fn sctp_stopped(&mut self, key: Key, stream: u32, code: u64) {
        let Some(a) = self.carriers.sctp.associations.get(key) else { return };
        let Some(conn) = a.streams.get(&stream).and_then(|s| s.conn) else {
            return self.sctp_finish(key, stream);
        };
        let idle = self
            .carriers
            .sctp
            .endpoints
            .get(a.end)
            .is_none_or(|e| e.endpoint.is_stream_idle(a.id, StreamId(stream as u16)));
        let Some(c) = self.conns.get_mut(conn) else { return };
        if c.is_greeting() {
            return self.greeting_failed(conn, &ConnectionError::StreamReset(code));
        }
        if c.send.is_finished() && code == NO_CODE && c.recv.reset_code().is_none() {
            c.send = c.send.on_unwanted();
            // Everything is on its way, the end included.
            return;
        }
        // A peer that closes in order has what it has acknowledged.
        let delivered = code == NO_CODE && c.tx.is_empty() && idle;
        self.sctp_reset(key, stream, code);
        self.given_up_by_peer(conn, delivered, code);
    }

    /// Tells the peer of the directions that are to end and on which everything is acknowledged. Where streams mean nothing to
    /// the peer, nobody is told.
    pub(super) fn sctp_end_streams(&mut self, key: Key) {
        let Some(a) = self.carriers.sctp.associations.get_mut(key).filter(|a| !a.ending.is_empty() && a.lost.is_none())
        else {
            return;
        };
        let (id, mux, waits) = (a.id, a.mux, a.resetting);
        let Some(e) = self.carriers.sctp.endpoints.get_mut(a.end) else { return };
        let mut now = Vec::new();
        if !waits {
            for _ in 0..a.ending.len().min(ENDS_TOGETHER) {
                let Some(number) = a.ending.pop_front() else { break };
                // Where streams have no meaning, messages may have gone on any.
                if e.endpoint.is_stream_idle(id, StreamId(number)) && (mux || e.endpoint.buffered(id) == 0) {
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
        let Some(a) = self.carriers.sctp.associations.get_mut(key) else { return };
        let Some(stream) = a.numbers.get(&number).copied() else { return };
        let Some(s) = a.streams.get_mut(&stream) else { return };
        // What we have not ended, or an earlier user of the number has, cannot be over because the peer says so.
        if core::mem::take(&mut s.stale) || !s.ending {
            return;
        }
        s.ended = true;
        if let Some(conn) = s.conn
            && let Some(c) = self.conns.get_mut(conn)
        {
            // What it did not want it has not got.
            if !c.given_up() {
                c.send = c.send.on_all_acked();
            }
            if core::mem::take(&mut c.wants_room) {
                self.notify(conn, Event::Writable);
            }
            if self.conns.get(conn).is_some_and(|c| c.state == ConnectionState::Closing) {
                match self.conns.get(conn).and_then(crate::conn::Conn::refusal) {
                    Some(error) => self.fail_connection(conn, error),
                    None => self.finish_close(conn),
                }
            } else {
                self.both_ended(conn);
                self.sctp_tell(key, stream);
            }
        }
        self.sctp_tidy_stream(key, stream);
    }

    /// The peer's direction of a stream has ended, after everything that came on it.
    pub(super) fn sctp_peer_ended(&mut self, key: Key, number: u16) {
        let Some(a) = self.carriers.sctp.associations.get_mut(key) else { return };
        let Some(stream) = a.numbers.get(&number).copied() else { return };
        let Some(s) = a.streams.get_mut(&stream) else { return };
        s.peer_ended = true;
        self.sctp_tell(key, stream);
        self.sctp_tidy_stream(key, stream);
    }
}
