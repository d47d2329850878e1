//! From associations to connections: messages and bytes that have arrived, and the window that they
//! take.

use super::socket::receive_buffer;
use super::stream::Stream;
use super::wire::{Control, PPID_CONTROL, PPID_EMPTY};
use super::{Before, Sctp};
use crate::Limits;
use crate::carrier::event::CarrierEvent;
use crate::carrier::{SctpCarrier, SessionId};
use crate::event::ConnectionError;
use crate::receive::Received;
use bytes::{Buf, Bytes};
use neater_base::Key;
use neater_sctp::{CloseReason, Message};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What a piece that waits costs beside its bytes.
const PIECE: usize = 64;
/// How far the endpoint's count of unread bytes may differ from the true one, in bytes; and at most
/// this part of the receive buffer, so that the advertised window never exceeds the free buffer.
const HELD_STEP: usize = 16 << 10;
const HELD_PART: usize = 16;
/// How many uses of streams there may be before the peer may open no more. It may have some
/// thousand streams at a time; only one that ends them and opens them again, and again, while
/// nothing takes or ends what it has opened comes so far.
const MAX_USES: usize = 1 << 15;

/// Part of a message that waits for the program.
#[derive(Debug)]
pub(super) struct Piece {
    data: Bytes,
    end: bool,
    /// The message: pieces of it have the same.
    number: u64,
    stream: u16,
    ppid: u32,
}

impl Piece {
    fn cost(&self) -> usize {
        self.data.len() + PIECE
    }
}

impl Stream {
    /// What was parked comes in turn when nothing is begun; it may be parts itself.
    fn unpark(&mut self) {
        while self.partial.is_none()
            && let Some((number, parts)) = self.parked.pop_first()
        {
            self.partial = (!parts.back().is_some_and(|p| p.end)).then_some(number);
            self.rx.extend(parts);
        }
    }

    /// Which piece is the next to be read as bytes. Where parts of several messages may alternate,
    /// the one that was begun is read to its end, or to that of the peer's direction.
    fn next_to_read(&self, alternating: bool) -> Option<usize> {
        let first = self.rx.front().map(|_| 0);
        match self.partial.filter(|_| alternating) {
            Some(begun) => {
                self.rx.iter().position(|p| p.number == begun).or(first.filter(|_| self.incoming.is_ended()))
            }
            None => first,
        }
    }
}

impl Sctp {
    /// Whether what comes on this number is a stream that the peer opens.
    fn may_open(&self, number: u16) -> bool {
        self.mux && self.is_peers(number) && self.lost.is_none() && self.streams.len() < MAX_USES
    }

    /// Adds what has arrived to the queue of its stream, parts of a message behind each other.
    /// Where one connection is the whole association, parts of several messages may alternate: were
    /// the others to wait for the end of one, the window could be full of them before that.
    fn keep(&mut self, stream: u32, piece: Piece) {
        let Some(s) = self.streams.get_mut(&stream) else { return };
        self.held += piece.cost();
        if !self.mux {
            return s.rx.push_back(piece);
        }
        match s.partial {
            Some(n) if n != piece.number => return s.parked.entry(piece.number).or_default().push_back(piece),
            _ => {}
        }
        s.partial = (!piece.end).then_some(piece.number);
        s.rx.push_back(piece);
        s.unpark();
    }

    /// Throws away what has arrived on a stream.
    pub(super) fn discard(&mut self, stream: u32) {
        let Some(s) = self.streams.get_mut(&stream) else { return };
        s.incoming = s.incoming.on_discard();
        let cost: usize = s.rx.iter().chain(s.parked.values().flatten()).map(Piece::cost).sum();
        self.held -= cost;
        (s.rx, s.parked, s.partial) = (VecDeque::new(), BTreeMap::new(), None);
    }
}

impl SctpCarrier {
    /// Reports to the endpoint how much is held, if that has changed enough to matter.
    pub(super) fn report_held(&mut self, limits: &Limits, key: Key) {
        let step = HELD_STEP.min(receive_buffer(limits) as usize / HELD_PART);
        // When it is over, the endpoint may have another of the same name.
        let Some(a) = self.associations.get_mut(key).filter(|a| !a.over) else { return };
        if a.held != a.told && (a.held == 0 || a.held.abs_diff(a.told) >= step) {
            a.told = a.held;
            let (end, id, held) = (a.end, a.id, a.held);
            if let Some(e) = self.endpoints.get_mut(end) {
                e.endpoint.set_held(id, held);
            }
            self.mark_dirty(end);
        }
    }

    /// The peer's reports that are kept until the race of an association is decided; `None`: it is
    /// decided, and they can be passed on.
    pub(super) fn racing(&mut self, key: Key) -> Option<&mut Before> {
        let a = self.associations.get_mut(key).filter(|a| a.attempt.is_some())?;
        Some(a.before.get_or_insert_default())
    }

    /// The peer has ended its direction of these streams.
    pub(super) fn reset_received(&mut self, limits: &Limits, key: Key, streams: impl Iterator<Item = u16>) {
        // What came before it is read first.
        self.take_arrived(limits, key);
        for stream in streams {
            self.peer_ended(key, stream);
        }
    }

    /// The peer has ended its direction of all streams.
    pub(super) fn shutdown_received(&mut self, limits: &Limits, key: Key) {
        self.take_arrived(limits, key);
        let Some(a) = self.associations.get(key) else { return };
        let streams: Vec<u16> = a.numbers.keys().copied().collect();
        self.reset_received(limits, key, streams.into_iter());
    }

    /// Takes what has arrived to the connections that it is for: not before it is certain that
    /// there will be one.
    pub(super) fn take_arrived(&mut self, limits: &Limits, key: Key) {
        if self.associations.get(key).is_some_and(|a| a.attempt.is_some()) {
            return;
        }
        let mut readable = BTreeSet::new();
        let mut opened = false;
        while let Some(a) = self.associations.get(key)
            && let (end, id) = (a.end, a.id)
            && let Some(message) = self.endpoints.get_mut(end).and_then(|e| e.endpoint.receive(id))
        {
            let Some((stream, new)) = self.stream_for(key, message.stream.0) else {
                let full = |a: &Sctp| a.streams.len() >= MAX_USES && a.lost.is_none();
                let crowded = self.associations.get(key).is_some_and(full);
                if let Some(e) = self.endpoints.get_mut(end) {
                    e.endpoint.recycle(id, message.payload);
                    if crowded {
                        e.endpoint.abort(id, b"too many streams are not ended");
                    }
                }
                if crowded {
                    self.mark_dirty(end);
                }
                continue;
            };
            opened |= new;
            self.arrived(key, stream, message);
            readable.insert(stream);
        }
        self.report_held(limits, key);
        for stream in readable {
            self.report_readable(key, stream);
        }
        if opened {
            self.events.push_back(CarrierEvent::StreamsWaiting { session: SessionId::Sctp(key) });
        }
    }

    /// The stream that a message on this number is for, and whether it is new. `None`: for none.
    fn stream_for(&mut self, key: Key, number: u16) -> Option<(u32, bool)> {
        let a = self.associations.get(key)?;
        let number = if a.mux { number } else { 0 };
        let current = a.numbers.get(&number).copied();
        if let Some(stream) = current {
            let s = a.streams.get(&stream)?;
            if !s.incoming.is_ended() {
                return Some((stream, false));
            }
            // A new use of the number: the peer would not do that before it knew of our end.
            if !s.outgoing.is_ended() {
                self.ended(key, number);
                let a = self.associations.get_mut(key).filter(|a| a.may_open(number))?;
                let stream = a.open_theirs(number);
                let s = a.streams.get_mut(&stream)?;
                s.outgoing = s.outgoing.on_renewed();
                return Some((stream, true));
            }
        }
        let a = self.associations.get_mut(key).filter(|a| a.may_open(number))?;
        Some((a.open_theirs(number), true))
    }

    fn arrived(&mut self, key: Key, stream: u32, message: Message) {
        let Some(a) = self.associations.get_mut(key) else { return };
        let Some(s) = a.streams.get_mut(&stream) else { return };
        if a.mux && message.ppid.0 == PPID_CONTROL {
            return match Control::parse(&message.payload) {
                Some(Control::Reset(code)) => s.incoming = s.incoming.on_reset(code),
                Some(Control::Stop(code)) => self.peer_stopped(key, stream, code),
                Some(Control::Paths(code)) => self.peer_asks_paths(key, code),
                None => {}
            };
        }
        if s.incoming.is_unwanted() {
            return;
        }
        let empty = a.mux && message.ppid.0 == PPID_EMPTY;
        let data = if empty { Bytes::new() } else { Bytes::from(message.payload) };
        let piece =
            Piece { data, end: message.last, number: message.number, stream: message.stream.0, ppid: message.ppid.0 };
        a.keep(stream, piece);
    }

    /// The peer has given up a message of which a part was taken out of the endpoint: what follows
    /// would be taken for the rest.
    pub(super) fn part_lost(&mut self, limits: &Limits, key: Key, number: u16, message: u64) {
        let Some(a) = self.associations.get_mut(key) else { return };
        let (mux, number) = (a.mux, if a.mux { number } else { 0 });
        let Some(stream) = a.numbers.get(&number).copied() else { return };
        let Some(s) = a.streams.get_mut(&stream) else { return };
        // Nothing of it is where the program reads: so nothing of it was.
        if let Some(parts) = s.parked.remove(&message) {
            a.held -= parts.iter().map(Piece::cost).sum::<usize>();
            return self.report_held(limits, key);
        }
        if mux && s.partial != Some(message) {
            return;
        }
        if let Some(conn) = s.user.conn() {
            let why = CloseReason::PeerMisbehaved("it gave up a message of which a part was delivered");
            return self.events.push_back(CarrierEvent::FlowFailed { conn, error: ConnectionError::Sctp(why) });
        }
        // The stream is not taken yet, so none of it was read.
        let gone: usize = s.rx.iter().filter(|p| p.number == message).map(Piece::cost).sum();
        s.rx.retain(|p| p.number != message);
        s.partial = None;
        s.unpark();
        a.held -= gone;
        self.report_held(limits, key);
    }

    /// Whether a stream from which nothing can be read has ended, or why it has failed.
    pub(crate) fn has_ended(&self, (key, stream): (Key, u32)) -> Result<bool, ConnectionError> {
        let Some(a) = self.associations.get(key) else { return Err(ConnectionError::Closed) };
        let Some(s) = a.streams.get(&stream) else { return Err(ConnectionError::Closed) };
        match (s.incoming.reset(), &a.lost) {
            (Some(code), _) => Err(ConnectionError::StreamReset(code)),
            _ if s.incoming.is_ended() => Ok(true),
            (None, Some(CloseReason::Shutdown)) => Ok(a.over),
            (None, Some(reason)) => Err(ConnectionError::Sctp(reason.clone())),
            (None, None) => Ok(false),
        }
    }

    /// Reads bytes: messages one after the other, without their boundaries.
    pub(crate) fn read(
        &mut self,
        limits: &Limits,
        (key, stream): (Key, u32),
        buf: &mut [u8],
    ) -> Result<Option<usize>, ConnectionError> {
        let mut n = 0;
        if let Some(a) = self.associations.get_mut(key)
            && let Some(s) = a.streams.get_mut(&stream)
        {
            while let Some(at) = s.next_to_read(!a.mux) {
                let piece = &mut s.rx[at];
                let k = piece.data.len().min(buf.len() - n);
                piece.data.copy_to_slice(&mut buf[n..n + k]);
                n += k;
                a.held -= k;
                if !piece.data.is_empty() {
                    break;
                }
                if !a.mux {
                    s.partial = (!piece.end).then_some(piece.number);
                }
                a.held -= PIECE;
                s.rx.remove(at);
            }
        }
        if n > 0 || buf.is_empty() {
            self.report_held(limits, key);
            return Ok(Some(n));
        }
        Ok(self.has_ended((key, stream))?.then_some(0))
    }

    /// Takes the next message of a stream, or the next part of a long one.
    pub(crate) fn receive(&mut self, limits: &Limits, (key, stream): (Key, u32)) -> Option<Received> {
        let a = self.associations.get_mut(key)?;
        let s = a.streams.get_mut(&stream)?;
        let piece = s.rx.pop_front()?;
        a.held -= piece.cost();
        let is_final = piece.end && s.rx.is_empty() && s.incoming.is_ended() && s.incoming.reset().is_none();
        let whole = !a.mux;
        self.report_held(limits, key);
        Some(Received {
            data: piece.data,
            end_of_message: piece.end,
            is_final,
            ecn: None,
            early: false,
            stream: whole.then_some(piece.stream),
            message: whole.then_some(piece.number),
            ppid: whole.then_some(piece.ppid),
        })
    }
}
