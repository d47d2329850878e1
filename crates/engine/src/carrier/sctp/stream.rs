//! The streams of an association and the connections on them: which connection uses which stream,
//! and how both directions end.

use super::direction::{Incoming, Outgoing, User};
use super::receiving::Piece;
use super::wire::{Control, PPID_CONTROL};
use super::{Sctp, SctpEndpoint};
use crate::Limits;
use crate::carrier::event::CarrierEvent;
use crate::carrier::terms::{SessionLost, SessionOver};
use crate::carrier::{SctpCarrier, SessionId};
use crate::closing::NO_CODE;
use crate::context::Context;
use crate::event::ConnectionError;
use crate::queue::SendFlags;
use bytes::Bytes;
use neater_base::Key;
use neater_base::net::Net;
use neater_sctp::{CloseReason, SendOptions, StreamId};
use std::collections::{BTreeMap, VecDeque};

/// Directions that end together (RFC 6525 section 4.1: the list must fit into a packet).
const ENDS_TOGETHER: usize = 128;

/// One use of the number of a stream.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) user: User,
    pub(super) outgoing: Outgoing,
    pub(super) incoming: Incoming,
    pub(super) rx: VecDeque<Piece>,
    /// The message of which more is to come, and what must wait until it is complete; where one
    /// connection is the whole association, that of which bytes were read.
    pub(super) partial: Option<u64>,
    pub(super) parked: BTreeMap<u64, VecDeque<Piece>>,
    /// What its connection has handed over by its weight: see [`Sctp::fed`].
    pub(super) fed: u64,
    /// Bytes of room that no other stream takes: its connection was notified that there is room,
    /// and writes when the program gets to it.
    pub(super) reserved: usize,
}

impl Stream {
    fn new(user: User) -> Self {
        let (outgoing, incoming) = (Outgoing::Open { renewed: false }, Incoming::Open { unwanted: false });
        let (rx, parked) = (VecDeque::new(), BTreeMap::new());
        Self { user, outgoing, incoming, rx, partial: None, parked, fed: 0, reserved: 0 }
    }
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
        self.streams.insert(stream, Stream::new(User::None));
        self.numbers.insert(number, stream);
        stream
    }

    /// The same, for a stream that the peer has opened.
    pub(super) fn open_theirs(&mut self, number: u16) -> u32 {
        let stream = self.open(number);
        if let Some(s) = self.streams.get_mut(&stream) {
            s.user = User::Unaccepted;
        }
        self.unaccepted.push_back(stream);
        stream
    }

    /// The next stream of the peer's that was not accepted yet.
    pub(super) fn take_theirs(&mut self) -> Option<u32> {
        let stream = self.unaccepted.pop_front()?;
        if let Some(s) = self.streams.get_mut(&stream) {
            s.user = User::None;
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
        if s.outgoing.is_open() {
            s.outgoing = s.outgoing.on_finish();
            a.ending.push_back(stream as u16);
            let (end, listed) = (a.end, core::mem::replace(&mut a.listed, true));
            if let Some(e) = self.endpoints.get_mut(end).filter(|_| !listed) {
                e.ending.push_back(key);
            }
            self.mark_dirty(end);
        }
    }

    /// Sends a control message between two of our engines.
    /// False: that direction has ended.
    pub(super) fn send_control(&mut self, key: Key, stream: u32, word: Control) -> bool {
        let Some(a) = self.associations.get(key).filter(|a| a.mux && a.lost.is_none()) else { return false };
        if !a.streams.get(&stream).is_some_and(|s| s.outgoing.is_open()) {
            return false;
        }
        let Some(e) = self.endpoints.get_mut(a.end) else { return false };
        let options = SendOptions { ppid: PPID_CONTROL, immediate: true, ..SendOptions::default() };
        let data = Bytes::copy_from_slice(&word.to_bytes());
        // Room or not: without the word, a part would look to the peer like the whole. There are at
        // most two for each use of a number, and one each time that the program changes a property.
        // It is not taken if the association ends, which the peer learns by itself.
        let _ = e.endpoint.send_word(a.id, StreamId(stream as u16), data, options);
        self.mark_dirty_of(key);
        true
    }

    /// Abandons our direction of a stream with a code.
    pub(crate) fn reset(&mut self, key: Key, stream: u32, code: u64) {
        self.send_control(key, stream, Control::Reset(code));
        self.finish(key, stream);
    }

    /// Receives nothing more on a stream: what has come is dropped, and the peer is notified,
    /// unless our direction has ended: then it finds out when it ends its own.
    pub(crate) fn stop(&mut self, limits: &Limits, key: Key, stream: u32, code: u64) {
        let Some(a) = self.associations.get_mut(key) else { return };
        a.discard(stream);
        let over = a.streams.get(&stream).is_none_or(|s| s.incoming.is_ended());
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

    /// A connection uses a stream from now on. What has arrived before is reported, and that
    /// nothing follows it if the association is over: a stream may have waited for longer than its
    /// association existed.
    pub(crate) fn bind(&mut self, key: Key, stream: u32, conn: Key, priority: u32) {
        let Some(a) = self.associations.get_mut(key) else { return };
        let Some(s) = a.streams.get_mut(&stream) else { return };
        s.user = User::Conn(conn);
        let over = a.lost.clone().filter(|_| a.over);
        self.set_priority(key, stream, priority);
        self.report_readable(key, stream);
        if let Some(reason) = over {
            self.events.push_back(CarrierEvent::FlowLost { conn, lost: flow_lost(reason) });
        }
    }

    /// A connection no longer uses its stream.
    pub(crate) fn unbind(&mut self, limits: &Limits, key: Key, stream: u32) {
        if let Some(a) = self.associations.get_mut(key) {
            a.discard(stream);
            if let Some(s) = a.streams.get_mut(&stream) {
                s.user = User::None;
            }
        }
        self.report_held(limits, key);
        self.tidy_stream(key, stream);
        self.tidy_later(key);
        self.mark_dirty_of(key);
    }

    /// Drops what still arrives on a stream whose connection is being closed. What has arrived
    /// keeps its place in the window until the stream is stopped.
    pub(crate) fn ignore_incoming(&mut self, key: Key, stream: u32) {
        if let Some(s) = self.associations.get_mut(key).and_then(|a| a.streams.get_mut(&stream)) {
            s.incoming = s.incoming.on_discard();
        }
    }

    /// Whether everything that was sent on a stream is acknowledged.
    pub(crate) fn is_idle(&self, key: Key, stream: u32) -> bool {
        let Some(a) = self.associations.get(key) else { return true };
        let idle = |e: &SctpEndpoint| e.endpoint.is_stream_idle(a.id, StreamId(stream as u16));
        self.endpoints.get(a.end).is_none_or(idle)
    }

    /// Forgets a stream whose ends are both known, and that nothing reads.
    fn tidy_stream(&mut self, key: Key, stream: u32) {
        let Some(a) = self.associations.get_mut(key) else { return };
        let Some(s) = a.streams.get(&stream) else { return };
        let number = stream as u16;
        if s.outgoing.is_ended() && s.incoming.is_ended() && a.numbers.get(&number) == Some(&stream) {
            a.numbers.remove(&number);
            self.events.push_back(CarrierEvent::StreamsAllowed { session: SessionId::Sctp(key) });
        }
        if s.user == User::None && (a.over || a.numbers.get(&number) != Some(&stream)) {
            a.streams.remove(&stream);
        }
    }

    /// Reports to a connection that there is something to read, or that there will be nothing more.
    pub(super) fn report_readable(&mut self, key: Key, stream: u32) {
        let Some(s) = self.associations.get(key).and_then(|a| a.streams.get(&stream)) else { return };
        let Some(conn) = s.user.conn() else { return };
        let news = !s.rx.is_empty() || s.incoming.is_ended() || s.incoming.reset().is_some();
        if news {
            self.events.push_back(CarrierEvent::Readable { conn });
        }
        // Where this side wants nothing more, that the peer gives it up is what was asked for.
        let answered = s.incoming.is_unwanted();
        if let Some(code) = s.incoming.reset().filter(|_| s.rx.is_empty() && !answered) {
            self.events.push_back(CarrierEvent::PeerReset { conn, code });
        }
    }

    /// A stream of the peer's that will never be taken is refused.
    pub(crate) fn refuse_stream<N: Net>(&mut self, cx: &Context<N>, key: Key, stream: u32) -> Option<SessionOver> {
        self.stop(&cx.limits, key, stream, NO_CODE);
        if self.associations.get(key).is_some_and(|a| !a.mux) {
            return self.close(cx.now, key, Some(NO_CODE));
        }
        self.reset(key, stream, NO_CODE);
        self.tidy_stream(key, stream);
        None
    }

    /// The peer does not want more of this stream.
    pub(super) fn peer_stopped(&mut self, key: Key, stream: u32, code: u64) {
        let (idle, to) = (self.is_idle(key, stream), self.acknowledged(key));
        let Some(a) = self.associations.get_mut(key) else { return };
        let buffered = self.endpoints.get(a.end).map_or(0, |e| e.endpoint.buffered(a.id) as u64);
        match a.streams.get(&stream).and_then(|s| s.user.conn()) {
            // A peer that closes in order has read what it acknowledges, and its acknowledgement
            // may come by another path: without it, what was sent would count as lost.
            Some(_) if code == NO_CODE && !idle && !a.stops.iter().any(|(s, _)| *s == stream) => {
                a.stops.push((stream, to + buffered));
                let key_listed = core::mem::replace(&mut a.listed, true);
                if let Some(e) = self.endpoints.get_mut(a.end).filter(|_| !key_listed) {
                    e.ending.push_back(key);
                }
            }
            Some(conn) => self.events.push_back(CarrierEvent::PeerStopped { conn, code }),
            None => self.finish(key, stream),
        }
    }

    /// Notifies the peer of the directions that are to end and on which everything is acknowledged;
    /// not where streams mean nothing to the peer.
    pub(super) fn end_streams(&mut self, key: Key) {
        let some = |a: &&mut Sctp| !(a.ending.is_empty() && a.stops.is_empty()) && a.lost.is_none();
        let Some(a) = self.associations.get_mut(key).filter(some) else { return };
        if !a.stops.is_empty() {
            // Of what the peer wants no more of, everything is acknowledged; what the program has
            // sent since is not waited for.
            let (waiting, had) = (core::mem::take(&mut a.stops), self.acknowledged(key));
            let waits = |(stream, to): &(u32, u64)| had < *to && !self.is_idle(key, *stream);
            let (still, now): (Vec<_>, Vec<_>) = waiting.into_iter().partition(waits);
            let Some(a) = self.associations.get_mut(key) else { return };
            a.stops = still;
            for (stream, _) in now {
                if let Some(conn) = a.streams.get(&stream).and_then(|s| s.user.conn()) {
                    self.events.push_back(CarrierEvent::PeerStopped { conn, code: NO_CODE });
                }
            }
        }
        let Some(a) = self.associations.get_mut(key) else { return };
        let (id, mux, waits) = (a.id, a.mux, a.resetting);
        let Some(e) = self.endpoints.get_mut(a.end) else { return };
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
        let more = !(a.ending.is_empty() && a.stops.is_empty());
        if more && !core::mem::replace(&mut a.listed, true) {
            e.ending.push_back(key);
        }
        if !mux {
            for stream in now {
                self.ended(key, stream.0);
            }
        }
    }

    /// The peer knows that our direction of a stream has ended, and has everything that was sent on
    /// it.
    pub(super) fn ended(&mut self, key: Key, number: u16) {
        let Some(a) = self.associations.get_mut(key) else { return };
        let Some(stream) = a.numbers.get(&number).copied() else { return };
        let Some(s) = a.streams.get_mut(&stream) else { return };
        s.outgoing = s.outgoing.on_known();
        if !s.outgoing.is_ended() {
            return;
        }
        if let Some(conn) = s.user.conn() {
            self.events.push_back(CarrierEvent::AllAcked { conn });
            self.report_readable(key, stream);
        }
        self.tidy_stream(key, stream);
    }

    /// The peer's direction of a stream has ended, after everything that came on it.
    pub(super) fn peer_ended(&mut self, key: Key, number: u16) {
        let Some(a) = self.associations.get_mut(key) else { return };
        let Some(stream) = a.numbers.get(&number).copied() else { return };
        let Some(s) = a.streams.get_mut(&stream) else { return };
        s.incoming = s.incoming.on_end();
        self.report_readable(key, stream);
        self.tidy_stream(key, stream);
    }
}

/// What the end of an association means to a connection on it. Neither side ends in order before
/// the other has everything (RFC 9260 section 9.2).
pub(super) fn flow_lost(reason: CloseReason) -> SessionLost {
    let orderly = reason == CloseReason::Shutdown;
    SessionLost { error: ConnectionError::Sctp(reason), orderly, unsent: false, all_left: true, ends_complete: true }
}
