//! The order of messages within streams, and which use of a stream they belong to (RFC 9260 section
//! 6.6).

use super::reassembly::{Fragment, OVERHEAD, Partial, Run};
use super::unread::Unread;
use super::{Buffers, Message};
use crate::ids::StreamUse;
use crate::pages::Pages;
use neater_sctp_wire::{Ppid, StreamId};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How ordered messages of a stream are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbering {
    /// By 16-bit stream sequence numbers: DATA chunks.
    Ssn,
    /// By 32-bit message identifiers: I-DATA chunks.
    Mid,
}

/// In the place of a message that will not come.
const GIVEN_UP: u32 = u32::MAX;

/// Streams, messages that wait for earlier ones, and messages that wait for the application.
#[derive(Debug)]
pub(crate) struct Order {
    numbering: Numbering,
    /// The number of the next ordered message of each stream, continued to 64 bits.
    next: Pages<u64>,
    /// Where the complete messages are whose turn has not come, or [`GIVEN_UP`]: a tree moves what
    /// is in it again and again.
    waiting: BTreeMap<(u16, u64), u32>,
    /// Those messages, and the ones that can be taken.
    unread: Unread,
    /// How many places in `waiting` are of messages that will not come.
    given_up: u32,
    /// Messages delivered so far, in whole or in part.
    delivered: u64,
    /// What few associations need.
    cold: Option<Box<ColdState>>,
}

/// Of streams that the peer resets, or skips messages of, or that the application does not read.
#[derive(Debug, Default)]
struct ColdState {
    /// Of unordered messages with identifiers, the last of each stream that the peer has given up;
    /// those before it have come.
    skipped: BTreeMap<u16, u32>,
    /// How often the peer has reset streams, when it did so last with all of them, and with each.
    resets: u32,
    all: u32,
    each: Pages<u32>,
    /// Streams that the application does not read.
    discarded: BTreeSet<u16>,
    /// The identifier of words, and where those are that were not taken.
    word: Option<Ppid>,
    words: VecDeque<u32>,
}

impl Order {
    pub(crate) const fn new(numbering: Numbering) -> Self {
        Self {
            numbering,
            next: Pages::new(),
            waiting: BTreeMap::new(),
            unread: Unread::new(),
            given_up: 0,
            delivered: 0,
            cold: None,
        }
    }

    /// What is charged for everything that is kept.
    pub(crate) const fn charged(&self) -> usize {
        self.given_up as usize * OVERHEAD + self.unread.charged()
    }

    /// The number of the next message that is delivered.
    pub(crate) const fn next_number(&self) -> u64 {
        self.delivered
    }

    /// The number, as the wire has it, of the next ordered message of a stream.
    pub(crate) fn next_of(&self, stream: StreamId) -> u32 {
        let next = self.next.get(stream).copied().unwrap_or(0);
        if self.numbering == Numbering::Ssn { u32::from(next as u16) } else { next as u32 }
    }

    /// The messages that can be taken.
    pub(super) const fn unread(&self) -> &Unread {
        &self.unread
    }

    pub(super) const fn unread_mut(&mut self) -> &mut Unread {
        &mut self.unread
    }

    /// How often the peer has reset streams.
    pub(crate) fn resets(&self) -> u32 {
        self.cold.as_ref().map_or(0, |c| c.resets)
    }

    /// The use of a stream that messages belong to now.
    pub(crate) fn current(&self, stream: StreamId) -> StreamUse {
        let reset = self.cold.as_ref().map_or(0, |c| c.each.get(stream).copied().unwrap_or(0).max(c.all));
        StreamUse { stream, reset }
    }

    /// Whether the application does not read what comes on a stream.
    pub(crate) fn is_discarded(&self, stream: StreamId) -> bool {
        self.cold.as_ref().is_some_and(|c| c.discarded.contains(&stream.0))
    }

    /// Continues a number of the wire, always forward: a sender may have 2¹⁶ - 1 ordered messages
    /// under way (RFC 9260 section 6.1), more than half the circle.
    fn continued(&self, next: u64, wire: u32) -> u64 {
        match self.numbering {
            Numbering::Ssn => next + u64::from((wire as u16).wrapping_sub(next as u16)),
            Numbering::Mid => next + u64::from(wire.wrapping_sub(next as u32)),
        }
    }

    /// Whether an incomplete message is the next one of its stream.
    pub(crate) fn is_next(&self, run: &Run) -> bool {
        let next = self.next.get(run.stream).copied().unwrap_or(0);
        run.unordered || self.continued(next, run.number) == next
    }

    /// Whether a fragment is of a message that the peer has announced not to complete. Only message
    /// identifiers show it: a stream sequence number may be any that follows.
    pub(crate) fn is_behind(&self, f: &Fragment<'_>) -> bool {
        if self.numbering != Numbering::Mid {
            return false;
        }
        if f.unordered {
            // Those that are meant were under way when the last one was given up; the numbers come
            // round again.
            let last = self.cold.as_ref().and_then(|c| c.skipped.get(&f.stream.0));
            return last.is_some_and(|last| last.wrapping_sub(f.number) < 1 << 16);
        }
        let next = self.next.get(f.stream).copied().unwrap_or(0);
        self.continued(next, f.number) - next >= self.half()
    }

    /// Takes a complete message; it and those that waited for it become readable.
    ///
    /// # Errors
    /// There is one with this number already.
    pub(crate) fn insert(&mut self, run: Run, buffers: &mut Buffers) -> Result<(), super::Misfit> {
        let wire = run.number;
        let message = Message {
            number: run.continues.unwrap_or_default(),
            stream: run.stream,
            reset: 0,
            ppid: run.ppid,
            unordered: run.unordered,
            first: run.continues.is_none(),
            last: true,
            payload: run.into_payload(buffers),
        };
        self.take(wire, message)
    }

    /// As [`Order::insert`], for a message of one fragment.
    ///
    /// # Errors
    /// There is one with this number already.
    pub(crate) fn insert_whole(&mut self, f: &Fragment<'_>, buffers: &mut Buffers) -> Result<(), super::Misfit> {
        self.take(f.number, whole(f, buffers))
    }

    /// Takes a message of one fragment out of turn.
    pub(crate) fn insert_at_once(&mut self, f: &Fragment<'_>, buffers: &mut Buffers) {
        let index = self.unread.put(whole(f, buffers));
        self.deliver(index);
    }

    /// Takes a complete message, which has `wire` for its number.
    #[inline]
    fn take(&mut self, wire: u32, message: Message) -> Result<(), super::Misfit> {
        if message.unordered {
            let index = self.unread.put(message);
            self.deliver(index);
            return Ok(());
        }
        let stream = message.stream;
        let next = *self.next.get_mut(stream);
        let number = self.continued(next, wire);
        if number == next {
            let index = self.unread.put(message);
            self.deliver(index);
            self.continue_stream(stream, next + 1);
            return Ok(());
        }
        if self.numbering == Numbering::Mid && number - next >= self.half() {
            return Ok(()); // Its turn is over: the peer has given it up.
        }
        let Entry::Vacant(place) = self.waiting.entry((stream.0, number)) else {
            return Err(super::Misfit("two messages of a stream have the same number"));
        };
        place.insert(self.unread.put(message));
        Ok(())
    }

    /// Delivers from `next` on what is there, and remembers what comes then.
    fn continue_stream(&mut self, stream: StreamId, mut next: u64) {
        if !self.waiting.is_empty() {
            while self.release((stream.0, next)) {
                next += 1;
            }
        }
        *self.next.get_mut(stream) = next;
    }

    /// Delivers what waits there. False if that is nothing.
    fn release(&mut self, key: (u16, u64)) -> bool {
        match self.waiting.remove(&key) {
            None => return false,
            Some(GIVEN_UP) => self.given_up -= 1,
            // It goes on being charged until it is read.
            Some(index) => self.deliver(index),
        }
        true
    }

    /// Of a stream's ordered messages this one will not come; those before it may.
    pub(crate) fn give_up(&mut self, stream: StreamId, number: u32) {
        let next = *self.next.get_mut(stream);
        let number = self.continued(next, number);
        if number == next {
            self.continue_stream(stream, next + 1);
        } else if number - next < self.half() && !self.waiting.contains_key(&(stream.0, number)) {
            self.waiting.insert((stream.0, number), GIVEN_UP);
            self.given_up += 1;
        }
    }

    /// What is further away than this is behind.
    fn half(&self) -> u64 {
        if self.numbering == Numbering::Ssn { 1 << 15 } else { 1 << 31 }
    }

    /// The application may read it. What continues a message has its number already.
    #[inline]
    fn deliver(&mut self, index: u32) {
        let Some(stream) = self.unread.get(index).map(|m| m.stream) else { return };
        let StreamUse { reset, .. } = self.current(stream);
        let Some(message) = self.unread.get_mut(index) else { return };
        message.reset = reset;
        if message.first {
            message.number = self.delivered;
            self.delivered += 1;
        }
        let (ppid, whole) = (message.ppid, message.first && message.last);
        match &mut self.cold {
            Some(cold) if whole && cold.word == Some(ppid) => cold.words.push_back(index),
            _ => self.unread.ready(index),
        }
    }

    /// Messages with this identifier are words from now on.
    pub(crate) fn set_word(&mut self, ppid: Ppid) {
        let words = self.unread.extract(|m| m.ppid == ppid && m.first && m.last);
        let cold = self.cold.get_or_insert_default();
        cold.word = Some(ppid);
        cold.words.extend(words.into_iter().map(|word| self.unread.put(word)));
    }

    /// Whether a fragment is a word.
    pub(crate) fn is_word(&self, f: &Fragment<'_>) -> bool {
        f.begins && f.ends && self.cold.as_ref().is_some_and(|c| c.word == Some(f.ppid))
    }

    fn names_word(&self, m: &Message) -> bool {
        m.first && m.last && self.cold.as_ref().is_some_and(|c| c.word == Some(m.ppid))
    }

    pub(crate) fn has_words(&self) -> bool {
        self.cold.as_ref().is_some_and(|c| !c.words.is_empty())
    }

    /// Takes the next word.
    pub(crate) fn take_word(&mut self) -> Option<Message> {
        let index = self.cold.as_mut()?.words.pop_front()?;
        self.unread.remove(index)
    }

    /// Delivers part of a message that is not complete.
    pub(crate) fn deliver_part(&mut self, p: Partial) {
        let Partial { number, stream, unordered, ppid, first, payload } = p;
        let message = Message { number, stream, reset: 0, ppid, unordered, first, last: false, payload };
        let index = self.unread.put(message);
        self.deliver(index);
    }

    /// The rest of a message will not come that was delivered in part. Whether the application has
    /// taken any of it.
    pub(crate) fn lose(&mut self, stream: StreamId, number: u64, buffers: &mut Buffers) -> bool {
        let from = self.current(stream);
        self.unread.lose(from, number, buffers)
    }

    /// Throws away what was delivered of a stream, and what waits for its turn if that is the use
    /// of it that goes on: then nothing of it is read any more. Whether it is.
    pub(crate) fn discard(&mut self, from: StreamUse, buffers: &mut Buffers) -> bool {
        self.unread.discard(from, buffers);
        if from != self.current(from.stream) {
            return false;
        }
        self.cold.get_or_insert_default().discarded.insert(from.stream.0);
        let StreamId(stream) = from.stream;
        while let Some((&key, &index)) = self.waiting.range((stream, 0)..=(stream, u64::MAX)).next() {
            self.waiting.remove(&key);
            // A word is not the stream's data: what it waits for is not read, so its turn has come.
            if self.unread.get(index).is_some_and(|m| self.names_word(m)) {
                self.deliver(index);
                continue;
            }
            match self.unread.remove(index) {
                Some(message) => buffers.recycle(message.payload),
                None => self.given_up -= 1,
            }
        }
        true
    }

    /// The peer will not send the ordered messages of a stream up to this number (RFC 3758 section
    /// 3.6, RFC 8260 section 2.3.1): those that waited for them are delivered.
    pub(crate) fn skip_to(&mut self, stream: StreamId, number: u32) {
        let next = *self.next.get_mut(stream);
        let last = self.continued(next, number);
        if last - next >= self.half() {
            return; // Behind us.
        }
        while let Some((&key, _)) = self.waiting.range((stream.0, next)..=(stream.0, last)).next() {
            self.release(key);
        }
        self.continue_stream(stream, last + 1);
    }

    /// The peer will not send more of the unordered messages of a stream up to this number.
    pub(crate) fn skip_unordered_to(&mut self, stream: StreamId, mid: u32) {
        let last = self.cold.get_or_insert_default().skipped.entry(stream.0).or_insert(mid);
        if mid.wrapping_sub(*last) < 1 << 31 {
            *last = mid;
        }
    }

    /// The peer has reset these streams, all if there are none (RFC 6525 section 5.2.2): another
    /// use of them begins, and numbering begins again. Messages that still waited can never be in
    /// order: they are delivered as they are.
    pub(crate) fn reset(&mut self, streams: &[StreamId]) {
        let all = streams.is_empty();
        let every: Vec<StreamId> = if all { self.next.iter_mut().map(|(s, _)| s).collect() } else { Vec::new() };
        let streams = if all { &every[..] } else { streams };
        for stream in streams {
            while let Some((&key, _)) = self.waiting.range((stream.0, 0)..=(stream.0, u64::MAX)).next() {
                self.release(key);
            }
            *self.next.get_mut(*stream) = 0;
        }
        let cold = self.cold.get_or_insert_default();
        cold.resets = cold.resets.saturating_add(1);
        if all {
            cold.all = cold.resets;
            cold.skipped.clear();
            cold.discarded.clear();
            return;
        }
        for stream in streams {
            *cold.each.get_mut(*stream) = cold.resets;
            cold.skipped.remove(&stream.0);
            cold.discarded.remove(&stream.0);
        }
    }

    /// Gives memory back that nothing is in.
    pub(crate) fn trim(&mut self) {
        self.unread.trim();
    }
}

fn whole(f: &Fragment<'_>, buffers: &mut Buffers) -> Message {
    Message {
        number: 0,
        stream: f.stream,
        reset: 0,
        ppid: f.ppid,
        unordered: f.unordered,
        first: true,
        last: true,
        payload: buffers.filled(f.payload),
    }
}

#[cfg(test)]
mod tests {
    use super::super::reassembly::{Fragment, Place, Reassembly};
    use super::*;
    use neater_sctp_wire::Ppid;

    fn message(order: &mut Order, stream: u16, number: u32, unordered: bool) -> Result<(), super::super::Misfit> {
        let (mut r, mut b) = (Reassembly::default(), Buffers::default());
        let f = Fragment {
            place: Place::data(1),
            stream: StreamId(stream),
            unordered,
            number,
            ppid: Ppid(number),
            begins: true,
            ends: true,
            payload: b"x",
        };
        order.insert(r.insert(&f, &mut b, None).unwrap().unwrap(), &mut b)
    }

    fn readable(order: &mut Order) -> Vec<(u16, u32)> {
        core::iter::from_fn(|| order.unread.take()).map(|m| (m.stream.0, m.ppid.0)).collect()
    }

    #[test]
    fn a_stream_waits_for_its_own_messages_only() {
        let mut order = Order::new(Numbering::Ssn);
        message(&mut order, 1, 1, false).unwrap();
        message(&mut order, 2, 0, false).unwrap();
        message(&mut order, 1, 9, true).unwrap();
        assert_eq!(readable(&mut order), [(2, 0), (1, 9)]);
        message(&mut order, 1, 0, false).unwrap();
        assert_eq!(readable(&mut order), [(1, 0), (1, 1)]);
        assert_eq!(order.charged(), 0);
    }

    #[test]
    fn numbers_wrap() {
        let mut order = Order::new(Numbering::Ssn);
        *order.next.get_mut(StreamId(0)) = 65_535;
        for n in [1, 0, 40_000, 65_535] {
            message(&mut order, 0, n, false).unwrap();
        }
        assert_eq!(readable(&mut order), [(0, 65_535), (0, 0), (0, 1)]);
        let mut order = Order::new(Numbering::Mid);
        *order.next.get_mut(StreamId(0)) = u64::from(u32::MAX);
        message(&mut order, 0, 0, false).unwrap();
        message(&mut order, 0, u32::MAX, false).unwrap();
        assert_eq!(readable(&mut order), [(0, u32::MAX), (0, 0)]);
    }

    #[test]
    fn a_number_that_is_used_twice_is_refused() {
        let mut order = Order::new(Numbering::Ssn);
        message(&mut order, 1, 1, false).unwrap();
        assert!(message(&mut order, 1, 1, false).is_err());
    }

    #[test]
    fn one_that_will_not_come_is_passed_over_when_its_turn_is_there() {
        let mut order = Order::new(Numbering::Ssn);
        message(&mut order, 1, 2, false).unwrap();
        order.give_up(StreamId(1), 1);
        order.give_up(StreamId(1), 1);
        assert!(readable(&mut order).is_empty(), "the first may yet come");
        message(&mut order, 1, 0, false).unwrap();
        assert_eq!(readable(&mut order), [(1, 0), (1, 2)]);
        order.give_up(StreamId(1), 3);
        order.give_up(StreamId(1), 2);
        message(&mut order, 1, 4, false).unwrap();
        assert_eq!(readable(&mut order), [(1, 4)], "what is behind changes nothing");
        assert_eq!((order.charged(), order.waiting.len()), (0, 0));
        assert!((0..9).all(|i| order.unread.get(i).is_none()), "and nothing is kept of it");
    }

    #[test]
    fn abandoned_messages_are_skipped_and_the_rest_is_delivered() {
        let mut order = Order::new(Numbering::Ssn);
        for n in [1, 3, 4, 7] {
            message(&mut order, 1, n, false).unwrap();
        }
        order.skip_to(StreamId(1), 2);
        assert_eq!(readable(&mut order), [(1, 1), (1, 3), (1, 4)]);
        order.skip_to(StreamId(1), 2);
        message(&mut order, 1, 5, false).unwrap();
        assert_eq!(readable(&mut order), [(1, 5)], "what is behind changes nothing");
        order.reset(&[StreamId(1)]);
        assert_eq!(readable(&mut order), [(1, 7)]);
        message(&mut order, 1, 0, false).unwrap();
        assert_eq!(readable(&mut order), [(1, 0)]);
    }
}
