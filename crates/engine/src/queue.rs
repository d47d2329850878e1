//! What waits to be sent, and what a flush of it did: shared by connections and by what carries
//! them.
//!
//! *Responsible for* the send queue, for what it costs in memory, and for the budget and the result
//! of a flush. *Not responsible for* when it is flushed, nor for what a piece becomes on the wire.
//! Nothing here names a connection or a protocol.

use crate::MessageId;
use crate::event::{ConnectionError, SendError};
use crate::lazy_box::LazyBox;
use bytes::{Buf, Bytes};
use neater_base::Instant;
use neater_base::net::{Ecn, NetError};
use std::collections::VecDeque;

/// A piece of a message that waits to be written.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) data: Bytes,
    /// The message is sent when this piece is written.
    pub(crate) completes: Option<MessageId>,
    /// First piece of a message that may expire as long as none of it is written.
    pub(crate) expires: Option<(Instant, MessageId)>,
    /// What was asked for the message.
    pub(crate) flags: SendFlags,
}

/// What was asked for a message, as far as it matters when it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendFlags {
    /// It may be delivered twice.
    pub(crate) replayable: bool,
    /// It need not keep its place among the others.
    pub(crate) unordered: bool,
    /// It need not be sent again when it is lost.
    pub(crate) unreliable: bool,
    /// It is to leave in one packet or not at all.
    pub(crate) whole: bool,
    /// `msgPriority`: lower is more important.
    pub(crate) priority: u16,
    /// The stream, where one connection is a whole association.
    pub(crate) stream: u16,
    /// And the payload protocol identifier there.
    pub(crate) ppid: u32,
}

impl Default for SendFlags {
    fn default() -> Self {
        Self { replayable: true, unordered: false, unreliable: false, whole: false, priority: 100, stream: 0, ppid: 0 }
    }
}

/// What a piece that waits costs beside its bytes: without it, empty messages would cost nothing
/// and could be any number.
pub(crate) const PIECE: usize = size_of::<Segment>();

/// The send queue of a connection: made when it is first written to, so that a connection whose
/// bytes go straight to the transport has none. Until then it reads as an empty one.
#[derive(Debug, Default)]
pub(crate) struct SendQueue(LazyBox<SendQueueState>);

/// See [`SendQueue`].
#[derive(Debug, Default)]
pub(crate) struct SendQueueState {
    pub(crate) queue: VecDeque<Segment>,
    pub(crate) bytes: usize,
    /// Bytes of an unfinished message that the framer has taken and not given back.
    pub(crate) held: usize,
    /// Those of a message that was refused, until the next one begins: the framer may still have
    /// them.
    pub(crate) stale: usize,
    /// What of [`SendQueueState::cost`] is part of the engine's sum.
    pub(crate) counted: usize,
    /// It waits until the engine as a whole has room.
    pub(crate) crowded_out: bool,
    pub(crate) next_id: u64,
    /// Messages whose last bytes are in records that the socket has not taken: not sent, and not
    /// queued either.
    pub(crate) sealed: Vec<MessageId>,
    /// A part of a message was sent and its end was not.
    pub(crate) in_message: bool,
    /// A part of that message was refused, so that all others are until its end.
    pub(crate) refusing: bool,
    /// What its parts have cost so far, in bytes of memory.
    pub(crate) parts: usize,
    /// Data that has left the queue, until the engine counts again: see [`crate::Spent`].
    pub(crate) spent: Vec<Bytes>,
}

static NO_QUEUE: SendQueueState = SendQueueState {
    queue: VecDeque::new(),
    bytes: 0,
    held: 0,
    stale: 0,
    counted: 0,
    crowded_out: false,
    next_id: 0,
    sealed: Vec::new(),
    in_message: false,
    refusing: false,
    parts: 0,
    spent: Vec::new(),
};

impl SendQueue {
    /// Whether nothing waits to be written.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|q| q.queue.is_empty())
    }

    /// Throws away what waits.
    pub(crate) fn clear(&mut self) {
        if let Some(q) = &mut *self.0 {
            let waiting = core::mem::take(&mut q.queue);
            q.spent.extend(waiting.into_iter().map(|s| s.data));
            q.sealed.clear();
            (q.bytes, q.held, q.stale) = (0, 0, 0);
        }
    }

    /// The queue, if one was made.
    #[inline]
    pub(crate) fn made(&mut self) -> Option<&mut SendQueueState> {
        self.0.as_deref_mut()
    }
}

impl SendQueueState {
    /// What waits for the transport, in bytes of memory.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.bytes + PIECE * self.queue.len()
    }

    /// All that is kept for sending, in bytes of memory.
    #[inline]
    pub(crate) fn cost(&self) -> usize {
        self.waiting() + self.held + self.stale + size_of::<MessageId>() * self.sealed.len()
    }

    /// Forgets an unfinished message: there will be no more of it.
    pub(crate) fn give_up_message(&mut self) -> Option<MessageId> {
        self.held = 0;
        core::mem::take(&mut self.in_message).then_some(MessageId(self.next_id))
    }

    /// A part of a message is refused, and with it the message: `end` if it was to be its last
    /// part.
    pub(crate) fn part_refused(&mut self, end: bool) {
        self.refusing = !end;
        self.in_message = !end;
        if end {
            // The framer starts over with the next.
            self.stale += core::mem::take(&mut self.held);
        }
    }

    /// Throws away the parts of an unfinished message that wait here.
    pub(crate) fn drop_parts(&mut self) {
        let whole = self.queue.iter().rposition(|s| s.completes.is_some()).map_or(0, |last| last + 1);
        for s in self.queue.drain(whole..) {
            self.bytes -= s.data.len();
            self.spent.push(s.data);
        }
    }

    /// Throws away what waits and returns the messages that are not sent now. `framed`: one that is
    /// not finished is not sent, even if nothing of it waits here.
    pub(crate) fn give_up(&mut self, framed: bool) -> Vec<MessageId> {
        let mut unsent = core::mem::take(&mut self.sealed);
        let cut = framed || self.queue.back().is_some_and(|s| s.completes.is_none());
        for segment in self.queue.drain(..) {
            unsent.extend(segment.completes);
            self.spent.push(segment.data);
        }
        self.bytes = 0;
        unsent.extend(self.give_up_message().filter(|_| cut));
        unsent
    }
}

impl core::ops::Deref for SendQueue {
    type Target = SendQueueState;
    fn deref(&self) -> &SendQueueState {
        self.0.as_deref().unwrap_or(&NO_QUEUE)
    }
}

impl core::ops::DerefMut for SendQueue {
    fn deref_mut(&mut self) -> &mut SendQueueState {
        self.0.get_or_insert_default()
    }
}

/// The budget of a flush.
#[derive(Clone, Copy)]
pub(crate) struct Budget {
    /// What is left, in bytes.
    room: usize,
    /// A datagram may go although it is larger than that: there will never be more room.
    full: bool,
    /// The length of the message for which there was no room.
    refused: Option<usize>,
}

impl Budget {
    /// A budget of `room` bytes; `full`: the first datagram may be larger.
    pub(crate) const fn new(room: usize, full: bool) -> Self {
        Self { room, full, refused: None }
    }

    /// What is left, in bytes.
    pub(crate) const fn room(&self) -> usize {
        self.room
    }

    /// The length of the message for which there was no room.
    pub(crate) const fn refused(&self) -> Option<usize> {
        self.refused
    }

    /// Takes `n` bytes, of those that are left.
    pub(crate) const fn take(&mut self, n: usize) {
        self.room -= n;
    }

    /// Takes the bytes of a whole datagram; false: there is no room for it.
    pub(crate) fn take_datagram(&mut self, len: usize) -> bool {
        let may = len <= self.room || self.full;
        if may {
            self.full &= self.room == usize::MAX;
            self.room = self.room.saturating_sub(len);
        } else {
            self.refused = Some(len);
        }
        may
    }
}

/// The result of a flush.
#[derive(Debug, Default)]
pub(crate) struct Flushed {
    pub(crate) bytes: usize,
    pub(crate) sent: Vec<MessageId>,
    /// How many of them have left the layer that encrypts them, too.
    pub(crate) out: usize,
    pub(crate) failed: Vec<(MessageId, SendError)>,
    pub(crate) error: Option<ConnectionError>,
    /// The ICMP error of an earlier datagram.
    pub(crate) refused: Option<NetError>,
}

impl SendQueue {
    /// Takes `n` written bytes off the front, and empty pieces with them.
    pub(crate) fn advance(&mut self, mut n: usize, done: &mut Flushed) {
        self.bytes -= n;
        done.bytes += n;
        while let Some(front) = self.queue.front_mut() {
            if n > 0 {
                front.expires = None;
            }
            let k = n.min(front.data.len());
            front.data.advance(k);
            n -= k;
            if !front.data.is_empty() {
                return;
            }
            if let Some(id) = front.completes {
                done.sent.push(id);
            }
            let written = self.queue.pop_front();
            self.spent.extend(written.map(|s| s.data));
        }
    }

    /// Takes the front piece off, written or not. Returns the message that it completed.
    pub(crate) fn pop(&mut self) -> Option<MessageId> {
        let s = self.queue.pop_front()?;
        self.bytes -= s.data.len();
        self.spent.push(s.data);
        s.completes
    }
}

/// A received datagram, until the application takes it.
#[derive(Debug)]
pub(crate) struct ReceivedDatagram {
    pub(crate) data: Bytes,
    pub(crate) ecn: Ecn,
}
