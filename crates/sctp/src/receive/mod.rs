//! Receiving data: from chunks to messages in order.
//!
//! *Responsible for* the receive buffer, what is acknowledged and when, reassembly, order, and the
//! queue to the application. *Not responsible for* writing packets, timers of the association, or
//! what a peer that errs deserves.
//!
//! *Invariant*: a TSN that was acknowledged is never forgotten (we do not renege), and what is kept
//! is bounded by three times the receive buffer: once by what fills no hole, twice by what fills
//! any, thrice by what fills the first.

mod arrivals;
mod begun;
mod buffers;
mod order;
mod reassembly;
mod sizing;
mod unread;

use crate::ids::StreamUse;
use arrivals::Arrival;
pub(crate) use arrivals::Arrivals;
pub(crate) use buffers::Buffers;
pub(crate) use order::{Numbering, Order};
use reassembly::Run;
pub(crate) use reassembly::{Fragment, Misfit, Place, Reassembly};

use core::time::Duration;
use neater_base::Instant;
use neater_sctp_wire::{Ppid, StreamId};
use sizing::Sizing;

/// A message, or part of one that was too long to wait for the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Distinguishes messages of one association: parts of one message have the same number.
    pub number: u64,
    /// The stream it came on.
    pub stream: StreamId,
    /// Which use of the stream it belongs to: [`StreamUse::reset`].
    pub reset: u32,
    /// The payload protocol identifier that the sender gave it.
    pub ppid: Ppid,
    /// It was sent unordered.
    pub unordered: bool,
    /// The message begins with this payload.
    pub first: bool,
    /// The message ends with this payload.
    pub last: bool,
    /// The bytes. Hand the buffer back with `recycle` and it is used again.
    pub payload: Vec<u8>,
}

impl Message {
    /// The use of a stream that it belongs to.
    #[must_use]
    pub const fn origin(&self) -> StreamUse {
        StreamUse { stream: self.stream, reset: self.reset }
    }
}

/// What became of a chunk with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It is new.
    New,
    /// It has been here before.
    Duplicate,
    /// There is no room for it: it was not accepted.
    Dropped,
    /// It is new, but for a stream that does not exist (RFC 9260 section 6.5).
    NoSuchStream,
}

/// The receiving half of an association.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) arrivals: Arrivals,
    reassembly: Reassembly,
    order: Order,
    buffers: Buffers,
    /// The size of the receive buffer now, in bytes, and how it grows.
    limit: usize,
    sizing: Sizing,
    streams: u16,
    /// The peer may give messages up.
    partial: bool,
    /// Messages that broke off after part of them had been taken.
    lost: Vec<(StreamId, u64)>,
    /// What was read and the application keeps in queues of its own.
    held: usize,
    /// What the last SACK chunk advertised.
    advertised: u32,
    /// How much more all associations of the endpoint together may hold.
    room: usize,
}

/// What each association may hold in any case, in bytes, so that it gets on when others have taken
/// all that the endpoint has.
const FLOOR: usize = 64 << 10;

impl Receiver {
    /// A buffer of `first` bytes that grows up to `most`.
    pub(crate) fn new(initial: u64, numbering: Numbering, streams: u16, (first, most): (u32, u32)) -> Self {
        Self {
            arrivals: Arrivals::new(initial),
            reassembly: Reassembly::default(),
            order: Order::new(numbering),
            buffers: Buffers::default(),
            limit: first.min(most) as usize,
            sizing: Sizing::new(most as usize),
            streams,
            partial: false,
            lost: Vec::new(),
            held: 0,
            advertised: first.min(most),
            room: usize::MAX,
        }
    }

    /// Whether all associations together hold nearly as much as they may.
    const fn is_cramped(&self) -> bool {
        self.room < FLOOR
    }

    /// The size of the receive buffer, as far as others leave it.
    const fn limit(&self) -> usize {
        if self.is_cramped() && self.limit > FLOOR { FLOOR } else { self.limit }
    }

    /// All associations of the endpoint together may hold so much more.
    pub(crate) const fn set_room(&mut self, room: usize) {
        self.room = room;
    }

    /// The peer may give messages up (RFC 3758).
    pub(crate) const fn allow_giving_up(&mut self) {
        self.partial = true;
    }

    /// Whether it may.
    pub(crate) const fn may_give_up(&self) -> bool {
        self.partial
    }

    /// What is charged against the buffer.
    pub(crate) const fn used(&self) -> usize {
        self.reassembly.charged() + self.order.charged() + self.held
    }

    /// Whether nothing that arrived waits for anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.reassembly.is_empty() && self.order.charged() == 0
    }

    /// The application keeps so many bytes of what was read: they are not taken yet.
    pub(crate) const fn set_held(&mut self, bytes: usize) {
        self.sizing.held(self.held, bytes);
        self.held = bytes;
    }

    /// The number of inbound streams.
    pub(crate) const fn streams(&self) -> u16 {
        self.streams
    }

    pub(crate) fn add_streams(&mut self, more: u16) {
        self.streams = self.streams.saturating_add(more);
    }

    /// The window to advertise: 0 when less than `silly` bytes are left (RFC 1122 section 4.2.3.3).
    pub(crate) fn window(&self, silly: usize) -> u32 {
        let free = self.limit().saturating_sub(self.used());
        if free < silly.min(self.limit() / 2) { 0 } else { u32::try_from(free).unwrap_or(u32::MAX) }
    }

    /// The window that was last advertised.
    pub(crate) fn set_advertised(&mut self, window: u32) {
        self.advertised = window;
    }

    /// Whether the window has opened so far that the peer should be notified (RFC 9260 section 6.2:
    /// a quarter of the buffer).
    pub(crate) fn has_opened(&self, silly: usize) -> bool {
        let quarter = self.limit() / 4;
        (self.advertised as usize) < quarter && self.window(silly).saturating_sub(self.advertised) as usize >= quarter
    }

    /// Takes a chunk.
    ///
    /// # Errors
    /// The chunk contradicts others: the peer violates the protocol.
    pub(crate) fn take(&mut self, tsn: u64, f: &Fragment<'_>) -> Result<Taken, Misfit> {
        match self.arrivals.judge(tsn) {
            Arrival::Duplicate => return Ok(Taken::Duplicate),
            Arrival::OutOfReach => return Ok(Taken::Dropped),
            Arrival::New => {}
        }
        let discarded = self.order.is_discarded(f.stream);
        if discarded && !self.order.is_word(f) {
            return self.pass_over(tsn, f);
        }
        // What fills a hole lets others go: it is let in beyond the limit, up to twice of it (RFC
        // 9260 section 6.2). When that is full as well, only what fills the first hole can be
        // delivered, so there must be room for it, or nothing would ever move.
        let limit = match tsn {
            _ if tsn >= self.arrivals.highest() => self.limit(),
            _ if tsn == self.arrivals.cumulative() + 1 => 3 * self.limit(),
            _ => 2 * self.limit(),
        };
        if self.used() + f.payload.len() > limit {
            // What it holds may be more than it may hold since others hold so much. Where nothing
            // of it can be read and the application has nothing either, only what comes next in
            // order can change that, within what the buffer itself allows.
            let hopeless = tsn == self.arrivals.cumulative() + 1
                && self.is_cramped()
                && self.held == 0
                && self.used() + f.payload.len() <= 3 * self.limit
                && !self.has_something(0);
            if !hopeless {
                return Ok(Taken::Dropped);
            }
        }
        if f.stream.0 >= self.streams {
            self.arrivals.insert(tsn);
            return Ok(Taken::NoSuchStream);
        }
        if discarded {
            self.order.insert_at_once(f, &mut self.buffers);
            return self.pass_over(tsn, f);
        }
        // A message of one packet is copied once and described once.
        if f.begins && f.ends && self.reassembly.is_empty() {
            self.arrivals.insert(tsn);
            self.order.insert_whole(f, &mut self.buffers)?;
            return Ok(Taken::New);
        }
        if self.partial && self.order.is_behind(f) {
            // Of a message that the peer has given up: it was on its way when the peer reported
            // that.
            self.arrivals.insert(tsn);
            return Ok(Taken::New);
        }
        let arrivals = self.partial.then_some(&self.arrivals);
        let whole = self.reassembly.insert(f, &mut self.buffers, arrivals)?;
        self.arrivals.insert(tsn);
        self.give_up_cut();
        if let Some(run) = whole {
            let (stream, ordered) = (run.stream, !run.unordered);
            self.order.insert(run, &mut self.buffers)?;
            if ordered {
                self.turn(stream);
            }
        }
        Ok(Taken::New)
    }

    /// Takes a chunk of which nothing is kept.
    fn pass_over(&mut self, tsn: u64, f: &Fragment<'_>) -> Result<Taken, Misfit> {
        if !self.reassembly.is_empty() {
            // What it follows breaks off, as before any other that is not its continuation.
            let nothing = Fragment { begins: true, ends: true, payload: &[], ..*f };
            let arrivals = self.partial.then_some(&self.arrivals);
            let run = self.reassembly.insert(&nothing, &mut self.buffers, arrivals)?;
            run.into_iter().for_each(|run| run.discard(&mut self.buffers));
        }
        self.arrivals.insert(tsn);
        self.give_up_cut();
        Ok(Taken::New)
    }

    /// A stream's next message is perhaps another one than before.
    fn turn(&mut self, stream: StreamId) {
        if !self.reassembly.is_empty() {
            self.reassembly.turn(stream, self.order.next_of(stream));
        }
    }

    /// Passes over the messages that will not be complete.
    fn give_up_cut(&mut self) {
        for run in core::mem::take(&mut self.reassembly.cut) {
            let taken = run.continues.filter(|number| self.order.lose(run.stream, *number, &mut self.buffers));
            self.lost.extend(taken.map(|number| (run.stream, number)));
            if !run.unordered {
                self.order.give_up(run.stream, run.number);
                self.turn(run.stream);
            }
            run.discard(&mut self.buffers);
        }
    }

    /// Of messages that broke off after part of them had been delivered, those of which the
    /// application has taken any.
    fn taken_of(&mut self, mut cut: Vec<(StreamId, u64)>) -> Vec<(StreamId, u64)> {
        cut.retain(|(stream, number)| self.order.lose(*stream, *number, &mut self.buffers));
        cut
    }

    /// Streams and numbers of messages that broke off after part of them had been taken.
    pub(crate) fn take_lost(&mut self) -> Vec<(StreamId, u64)> {
        core::mem::take(&mut self.lost)
    }

    /// How many bytes of a message are worth delivering before the rest has come; `None`: there is
    /// room to wait for it. When the window is about to close any are: the beginnings of many
    /// messages, each too short to be worth it, can fill the buffer together, and then nothing more
    /// would come of any of them. `silly` is what [`Receiver::window`] is asked with.
    fn hurry(&self, silly: usize) -> Option<usize> {
        let limit = self.limit();
        let worth = limit / 8;
        if self.used() + worth.max(silly) > limit {
            return Some(1);
        }
        (self.reassembly.charged() + self.held > limit / 2).then_some(worth)
    }

    /// Delivers the longest beginning of a message that is worth it. False: there is none.
    fn deliver_part(&mut self, silly: usize) -> bool {
        let Some(least) = self.hurry(silly) else { return false };
        let order = &self.order;
        let is_next = |run: &Run| order.is_next(run);
        let Some(part) = self.reassembly.take_partial(least, &mut self.buffers, order.next_number(), is_next) else {
            return false;
        };
        self.order.deliver_part(part);
        true
    }

    /// The next message for the application, or the beginning of a long one when the buffer is more
    /// than half full.
    pub(crate) fn read(&mut self, silly: usize) -> Option<Message> {
        if self.order.unread().is_empty() {
            self.deliver_part(silly);
        }
        let message = self.order.unread_mut().take();
        self.taken(message)
    }

    /// The same of one stream.
    pub(crate) fn read_from(&mut self, from: StreamUse, silly: usize) -> Option<Message> {
        loop {
            let message = self.order.unread_mut().take_from(from);
            if message.is_some() || !self.deliver_part(silly) {
                return self.taken(message);
            }
        }
    }

    /// The next word for the application.
    pub(crate) fn read_word(&mut self) -> Option<Message> {
        let message = self.order.take_word();
        self.taken(message)
    }

    fn taken(&mut self, message: Option<Message>) -> Option<Message> {
        if let Some(message) = &message {
            self.sizing.taken(message.payload.len());
        }
        message
    }

    /// The next stream that has something to be read and was not reported since it had nothing.
    pub(crate) fn next_readable(&mut self, silly: usize) -> Option<StreamUse> {
        loop {
            let readable = self.order.unread_mut().next_readable();
            if readable.is_some() || !self.deliver_part(silly) {
                return readable;
            }
        }
    }

    /// What [`Receiver::read_from`] would return of what was delivered.
    pub(crate) fn peek(&self, from: StreamUse) -> Option<&Message> {
        self.order.unread().peek(from)
    }

    /// Whether anything that was delivered of a stream is unread.
    pub(crate) fn has_unread(&self, from: StreamUse) -> bool {
        self.order.unread().has(from)
    }

    /// The use of a stream that goes on.
    pub(crate) fn current(&self, stream: StreamId) -> StreamUse {
        self.order.current(stream)
    }

    /// Nothing of a stream is read any more.
    pub(crate) fn discard(&mut self, from: StreamUse) {
        if from.stream.0 < self.streams && self.order.discard(from, &mut self.buffers) {
            self.reassembly.drop_stream(from.stream, &mut self.buffers);
        }
    }

    /// Nothing more will come.
    pub(crate) fn end(&mut self) {
        self.order.unread_mut().end();
    }

    /// Messages with this identifier are words.
    pub(crate) fn set_word(&mut self, ppid: Ppid) {
        self.order.set_word(ppid);
    }

    /// Lets the buffer grow if that is called for; `rtt` is what is known of the round-trip time.
    pub(crate) fn resize(&mut self, now: Instant, rtt: Duration) {
        self.limit = self.sizing.size(self.limit, now, rtt);
    }

    /// Whether there is anything to be read.
    pub(crate) fn has_something(&mut self, silly: usize) -> bool {
        !self.order.unread().is_empty() || self.order.has_words() || self.has_part(silly)
    }

    /// Whether there may be something to be read that was not reported.
    pub(crate) fn has_news(&mut self, silly: usize) -> bool {
        self.order.unread().has_news() || self.order.has_words() || self.has_part(silly)
    }

    /// Whether the beginning of a message is worth delivering.
    fn has_part(&mut self, silly: usize) -> bool {
        let hurry = self.hurry(silly);
        let Self { order, reassembly, .. } = self;
        hurry.is_some_and(|least| reassembly.has_partial(least, |run| order.is_next(run)))
    }

    pub(crate) fn recycle(&mut self, buffer: Vec<u8>) {
        self.buffers.recycle(buffer);
    }

    pub(crate) fn trim(&mut self) {
        self.buffers.trim();
        self.order.trim();
    }

    /// The peer gave up everything up to `tsn` (RFC 3758 section 3.6): the messages that it names,
    /// and those that have begun and not ended, which Linux (6.1) does not name if what it sent of
    /// them was acknowledged. Those of which part had been delivered are in
    /// [`Receiver::take_lost`].
    pub(crate) fn skip_data(&mut self, tsn: u64, skipped: impl Iterator<Item = (StreamId, u32)>) {
        self.reassembly.cut_data_to(tsn);
        self.give_up_cut();
        self.arrivals.skip_to(tsn);
        let streams = self.streams;
        for (stream, ssn) in skipped.filter(|(s, _)| s.0 < streams) {
            self.order.skip_to(stream, ssn);
            self.turn(stream);
        }
    }

    /// The same with message identifiers (RFC 8260 section 2.3.1).
    pub(crate) fn skip_messages(
        &mut self,
        tsn: u64,
        skipped: impl Iterator<Item = (StreamId, bool, u32)>,
    ) -> Vec<(StreamId, u64)> {
        self.arrivals.skip_to(tsn);
        let (mut cut, streams) = (Vec::new(), self.streams);
        for (stream, unordered, mid) in skipped.filter(|(s, ..)| s.0 < streams) {
            cut.extend(self.reassembly.drop_messages_to(stream, unordered, mid, &mut self.buffers));
            if unordered {
                self.order.skip_unordered_to(stream, mid);
            } else {
                self.order.skip_to(stream, mid);
                self.turn(stream);
            }
        }
        self.taken_of(cut)
    }

    /// Another use of streams begins, of all if the list is empty, and numbering begins again. What
    /// had come of messages that are not complete is dropped: the rest of them can never come, and
    /// a message of the same number would be joined with it. Returns those of which part had been
    /// taken, and the number of the reset.
    pub(crate) fn reset_streams(&mut self, streams: &[StreamId]) -> (Vec<(StreamId, u64)>, u32) {
        let mut sorted = streams.to_vec();
        sorted.sort_unstable();
        let gone = |stream: StreamId| sorted.is_empty() || sorted.binary_search(&stream).is_ok();
        let cut = self.reassembly.drop_where(&mut self.buffers, |r, _| gone(r.stream));
        let cut = self.taken_of(cut);
        self.order.reset(streams);
        (cut, self.order.resets())
    }
}
