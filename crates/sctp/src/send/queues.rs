//! Messages that wait, stream by stream, and which goes next (RFC 8260 section 3).
//!
//! *Responsible for* the queues of the streams, the numbering of their messages, the schedulers,
//! and cutting the next piece. *Not responsible for* TSNs, windows, or packets.
//!
//! *Invariants*: a stream is in the heap exactly once if it has something to send and may; without
//! interleaving a message that was begun is finished before another begins; `bytes` is the sum of
//! what waits.

use super::message::{Pending, Piece};
use crate::config::Scheduler;
use crate::ids::MessageId;
use crate::pages::Pages;
use core::cmp::Reverse;
use neater_sctp_wire::StreamId;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// The scale of virtual time: a byte of a stream of weight 1 takes this much of it.
const SCALE: u64 = 1 << 16;
/// No queue.
const NONE: u32 = u32::MAX;
/// Empty queues that keep their memory.
const MAX_SPARE: usize = 64;

/// What is known of an outbound stream, also while it has nothing to send.
#[derive(Clone, Copy, Debug)]
struct Stream {
    /// The number of the next ordered message.
    ordered: u32,
    /// The number of the next unordered message (with message identifiers).
    unordered: u32,
    /// Its queue, or [`NONE`].
    queue: u32,
    /// Its priority, or its weight.
    value: u16,
    /// It is about to be reset: it must not begin a message that came after that was asked for.
    held: bool,
}

impl Default for Stream {
    fn default() -> Self {
        Self { ordered: 0, unordered: 0, queue: NONE, value: 1, held: false }
    }
}

#[derive(Debug, Default)]
struct Queue {
    stream: u16,
    messages: VecDeque<(u64, Pending)>,
    /// The start tag of what it sends next: virtual time up to which it has been served.
    served: u64,
    /// The number of its entry in the heap; older entries mean nothing.
    ticket: u64,
}

/// Fair sharing by start tags (Goyal, Vin and Cheng 1996, "Start-time Fair Queuing", section 2).
#[derive(Debug, Default)]
struct Fair {
    /// The virtual time: the tag of what is being sent.
    now: u64,
    /// Streams that have nothing to send and have had more than the others.
    ahead: BTreeMap<u16, u64>,
}

impl Fair {
    /// Where a stream begins that has something to send again: with the others, or where it has
    /// stopped if that is later.
    fn start_of(&mut self, stream: u16) -> u64 {
        self.now.max(self.ahead.remove(&stream).unwrap_or(0))
    }

    /// A stream has nothing left to send; `all`: none has.
    fn stopped(&mut self, stream: u16, served: u64, all: bool) {
        if all {
            // No stream waits for a share: the next one begins with the others.
            self.now = self.ahead.values().copied().fold(self.now.max(served), u64::max);
            self.ahead.clear();
        } else if served > self.now {
            self.ahead.insert(stream, served);
        }
    }
}

/// All outbound streams.
#[derive(Debug)]
pub(crate) struct Queues {
    scheduler: Scheduler,
    /// I-DATA: messages of different streams may alternate.
    interleaving: bool,
    streams: Pages<Stream>,
    count: u16,
    queues: Vec<Queue>,
    free: Vec<u32>,
    heap: BinaryHeap<Reverse<(u64, u64, u16)>>,
    /// The stream whose turn it is still: its message is not finished, or the packet is not.
    current: Option<StreamId>,
    /// Counts what came and what stood in line: arrivals and tickets.
    counter: u64,
    /// The number of the last message that streams which are held may begin.
    held_after: u64,
    /// With the schedulers that share by bytes.
    fair: Option<Box<Fair>>,
    messages: usize,
    bytes: usize,
}

impl Queues {
    pub(crate) const fn new(scheduler: Scheduler, interleaving: bool, count: u16) -> Self {
        Self {
            scheduler,
            interleaving,
            streams: Pages::new(),
            count,
            queues: Vec::new(),
            free: Vec::new(),
            heap: BinaryHeap::new(),
            current: None,
            counter: 0,
            held_after: 0,
            fair: None,
            messages: 0,
            bytes: 0,
        }
    }

    /// Empty ones for an association that restarts. If it is the same to the application, the
    /// application's settings of its streams stay in force.
    pub(crate) fn anew(&mut self, count: u16, same: bool) -> Self {
        let mut anew = Self::new(self.scheduler, false, count);
        for (stream, s) in self.streams.iter_mut().filter(|(_, s)| same && s.value != Stream::default().value) {
            anew.streams.get_mut(stream).value = s.value;
        }
        anew
    }

    /// What the handshake agreed on.
    pub(crate) fn agree(&mut self, interleaving: bool, count: u16) {
        self.interleaving = interleaving;
        self.count = count;
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// Messages that are not completely sent.
    pub(crate) const fn messages(&self) -> usize {
        self.messages
    }

    /// Bytes that were not sent at all.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of outbound streams.
    pub(crate) const fn count(&self) -> u16 {
        self.count
    }

    pub(crate) fn add_streams(&mut self, more: u16) {
        self.count = self.count.saturating_add(more);
    }

    /// Whether something waits to be sent on a stream.
    pub(crate) fn has_stream(&self, stream: StreamId) -> bool {
        self.streams.get(stream).is_some_and(|s| s.queue != NONE)
    }

    /// Sets the priority (smaller is sooner) or the weight (at least 1) of a stream, for the
    /// scheduler.
    pub(crate) fn set_value(&mut self, stream: StreamId, value: u16) {
        self.streams.get_mut(stream).value = value;
        self.requeue(stream);
    }

    /// Adds a message to its stream.
    pub(crate) fn push(&mut self, stream: StreamId, message: Pending) {
        self.messages += 1;
        self.bytes += message.payload.len();
        self.counter += 1;
        let s = self.streams.get_mut(stream);
        let fresh = s.queue == NONE;
        if fresh {
            s.queue = self.free.pop().unwrap_or_else(|| {
                self.queues.push(Queue::default());
                self.queues.len() as u32 - 1
            });
        }
        let q = &mut self.queues[s.queue as usize];
        if fresh {
            q.stream = stream.0;
            q.served = self.fair.as_mut().map_or(0, |f| f.start_of(stream.0));
        }
        q.messages.push_back((self.counter, message));
        if fresh && self.current != Some(stream) {
            self.enqueue(stream);
        }
    }

    /// Puts a stream that has something to send into the heap.
    fn enqueue(&mut self, stream: StreamId) {
        let s = *self.streams.get_mut(stream);
        if s.queue == NONE {
            return;
        }
        let q = &mut self.queues[s.queue as usize];
        let Some((arrival, message)) = q.messages.front() else { return };
        if s.held && *arrival > self.held_after && message.started.is_none() {
            // The heap may have an entry for a message that was begun and given up.
            q.ticket = 0;
            return;
        }
        self.counter += 1;
        q.ticket = self.counter;
        let key = match self.scheduler {
            Scheduler::FirstCome => *arrival,
            Scheduler::RoundRobin | Scheduler::RoundRobinPerPacket => 0,
            Scheduler::Priority => u64::from(s.value),
            Scheduler::FairBandwidth | Scheduler::WeightedFair => q.served,
        };
        self.heap.push(Reverse((key, self.counter, stream.0)));
    }

    /// As [`Queues::enqueue`] for a stream that may be in the heap already.
    fn requeue(&mut self, stream: StreamId) {
        if self.current != Some(stream) {
            self.enqueue(stream);
        }
    }

    /// The stream whose turn it is.
    #[inline]
    fn turn(&mut self) -> Option<StreamId> {
        // Asked for several times with every packet.
        self.current.or_else(|| self.elect())
    }

    /// Gives the first of the heap its turn.
    fn elect(&mut self) -> Option<StreamId> {
        while let Some(Reverse((_, ticket, stream))) = self.heap.pop() {
            let stream = StreamId(stream);
            let queue = self.streams.get(stream).map_or(NONE, |s| s.queue);
            if queue != NONE && self.queues[queue as usize].ticket == ticket {
                self.current = Some(stream);
                break;
            }
        }
        self.current
    }

    /// The message whose turn it is, if there is one.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<(StreamId, &Pending)> {
        let stream = self.turn()?;
        let q = &self.queues[self.streams.get(stream)?.queue as usize];
        q.messages.front().map(|(_, m)| (stream, m))
    }

    /// Cuts at most `most` bytes, at least one, off the message whose turn it is.
    pub(crate) fn take(&mut self, most: usize) -> Option<Piece> {
        let stream = self.turn()?;
        let s = self.streams.get_mut(stream);
        let q = &mut self.queues[s.queue as usize];
        let (_, m) = q.messages.front_mut()?;
        let begins = m.started.is_none();
        let (number, fsn) = *m.started.get_or_insert_with(|| {
            // Without message identifiers only ordered messages are numbered.
            let next = if m.unordered { &mut s.unordered } else { &mut s.ordered };
            let number = *next;
            *next = next.wrapping_add(1);
            (number, 0)
        });
        let ends = m.payload.len() <= most;
        let Pending { id, ppid, unordered, immediate, report, reliability, .. } = *m;
        let payload = if ends {
            q.messages.pop_front().map(|(_, m)| m.payload)?
        } else {
            m.started = Some((number, fsn.wrapping_add(1)));
            m.payload.split_to(most.max(1))
        };
        self.messages -= usize::from(ends);
        self.bytes -= payload.len();
        self.served(stream, payload.len(), (begins, ends));
        Some(Piece { id, stream, ppid, unordered, immediate, report, reliability, number, fsn, begins, ends, payload })
    }

    /// A piece of a stream was taken: counts it, and decides whether its turn is over.
    fn served(&mut self, stream: StreamId, bytes: usize, (begins, ends): (bool, bool)) {
        let Some(s) = self.streams.get(stream).copied() else { return };
        let q = &mut self.queues[s.queue as usize];
        if matches!(self.scheduler, Scheduler::FairBandwidth | Scheduler::WeightedFair) {
            let weight = if self.scheduler == Scheduler::WeightedFair { u64::from(s.value.max(1)) } else { 1 };
            if begins || self.interleaving {
                // Without interleaving a message is sent as one.
                let fair = self.fair.get_or_insert_default();
                fair.now = fair.now.max(q.served);
            }
            q.served += (bytes as u64 * SCALE / weight).max(1);
        }
        if q.messages.is_empty() {
            self.release(stream);
            self.current = None;
            return;
        }
        let next = q.messages.front().map(|(arrival, _)| *arrival);
        let may_begin = !s.held || next.is_some_and(|n| n <= self.held_after);
        let stays = match self.scheduler {
            _ if !ends && !self.interleaving => true,
            // What was begun first is finished first; and if what follows on this stream came
            // before all that waits elsewhere, it need not stand in line.
            Scheduler::FirstCome => {
                let elsewhere = self.heap.peek().map(|Reverse((arrival, ..))| *arrival);
                !ends || may_begin && elsewhere.is_none_or(|e| next.is_some_and(|n| n < e))
            }
            Scheduler::RoundRobinPerPacket => !ends || may_begin,
            _ => false,
        };
        if !stays {
            self.current = None;
            self.enqueue(stream);
        }
    }

    /// The stream has nothing left.
    fn release(&mut self, stream: StreamId) {
        let s = self.streams.get_mut(stream);
        let queue = core::mem::replace(&mut s.queue, NONE);
        let q = &mut self.queues[queue as usize];
        q.ticket = 0;
        if let Some(fair) = &mut self.fair {
            fair.stopped(stream.0, q.served, self.messages == 0);
        }
        if self.free.len() >= MAX_SPARE {
            q.messages = VecDeque::new();
        }
        self.free.push(queue);
    }

    /// A packet is complete: with [`Scheduler::RoundRobinPerPacket`] the next stream has its turn.
    pub(crate) fn end_of_packet(&mut self) {
        let Some(stream) = self.current.filter(|_| self.scheduler == Scheduler::RoundRobinPerPacket) else { return };
        let begun = self.peek().is_some_and(|(_, m)| m.started.is_some());
        if self.interleaving || !begun {
            self.current = None;
            self.enqueue(stream);
        }
    }

    /// Takes a message out that is not completely sent; returns it, with what is left of it.
    pub(crate) fn remove(&mut self, stream: StreamId, id: MessageId) -> Option<Pending> {
        let queue = self.streams.get(stream).map_or(NONE, |s| s.queue);
        if queue == NONE {
            return None;
        }
        let q = &mut self.queues[queue as usize];
        // They have stood in line in the order of their numbers.
        let at = q.messages.binary_search_by_key(&id, |(_, m)| m.id).ok()?;
        let (_, message) = q.messages.remove(at)?;
        let empty = q.messages.is_empty();
        self.messages -= 1;
        self.bytes -= message.payload.len();
        if empty {
            self.release(stream);
        }
        if at == 0 {
            if self.current == Some(stream) {
                self.current = None;
            }
            self.enqueue(stream);
        }
        Some(message)
    }

    /// The least important message that waits and may be given up for one of `priority` (RFC 7496
    /// section 3.2).
    pub(crate) fn least_important(&self, priority: u32) -> Option<(StreamId, MessageId)> {
        let live = self.queues.iter().flat_map(|q| q.messages.iter().map(|(_, m)| (q.stream, m)));
        let with = live.filter_map(|(s, m)| match m.reliability {
            super::Reliability::Priority(p) if p > priority => Some((p, m.id, s)),
            _ => None,
        });
        with.max().map(|(_, id, stream)| (StreamId(stream), id))
    }

    /// How many messages that wait are less important, and the bytes that they still have.
    pub(crate) fn less_important(&self, priority: u32) -> (usize, usize) {
        let live = self.queues.iter().flat_map(|q| q.messages.iter().map(|(_, m)| m));
        let less = live.filter(|m| matches!(m.reliability, super::Reliability::Priority(p) if p > priority));
        less.fold((0, 0), |(n, bytes), m| (n + 1, bytes + m.payload.len()))
    }

    /// The messages for streams that do not exist.
    pub(crate) fn beyond(&self) -> Vec<(StreamId, MessageId)> {
        let beyond = self.queues.iter().filter(|q| q.stream >= self.count);
        beyond.flat_map(|q| q.messages.iter().map(|(_, m)| (StreamId(q.stream), m.id))).collect()
    }

    /// The peer does not let messages be given up: none of those that wait may be.
    pub(crate) fn make_reliable(&mut self) {
        for (_, message) in self.queues.iter_mut().flat_map(|q| q.messages.iter_mut()) {
            message.reliability = super::Reliability::Full;
        }
    }

    /// Takes everything out, stream by stream.
    pub(crate) fn drain(&mut self) -> Vec<(StreamId, Pending)> {
        let mut all: Vec<_> = Vec::with_capacity(self.messages);
        for q in &mut self.queues {
            all.extend(q.messages.drain(..).map(|(_, m)| (StreamId(q.stream), m)));
        }
        for (_, s) in self.streams.iter_mut() {
            s.queue = NONE;
        }
        self.free = Vec::new();
        self.queues = Vec::new();
        self.heap.clear();
        (self.current, self.messages, self.bytes) = (None, 0, 0);
        all.sort_unstable_by_key(|(_, m)| m.id);
        all
    }

    /// Gives memory back that nothing is in.
    pub(crate) fn trim(&mut self) {
        if self.messages == 0 {
            // No stream has a queue then.
            (self.queues, self.free, self.heap) = (Vec::new(), Vec::new(), BinaryHeap::new());
        }
    }

    /// Whether a stream has something left that goes before its reset: messages that came before
    /// that was asked for, or the rest of one.
    pub(crate) fn is_unfinished(&self, stream: StreamId) -> bool {
        let Some(s) = self.streams.get(stream).filter(|s| s.queue != NONE) else { return false };
        let front = self.queues[s.queue as usize].messages.front();
        front.is_some_and(|(arrival, m)| m.started.is_some() || s.held && *arrival <= self.held_after)
    }

    /// Whether any stream has, when all are to be reset.
    pub(crate) fn is_any_unfinished(&self) -> bool {
        let mut fronts = self.queues.iter().filter_map(|q| q.messages.front());
        fronts.any(|(arrival, m)| m.started.is_some() || *arrival <= self.held_after)
    }

    /// Keeps these streams from beginning messages that come from now on.
    pub(crate) fn hold(&mut self, streams: &[StreamId]) {
        self.held_after = self.counter;
        for stream in streams {
            self.streams.get_mut(*stream).held = true;
        }
    }

    /// Lets a stream begin messages again.
    pub(crate) fn let_go(&mut self, stream: StreamId) {
        self.streams.get_mut(stream).held = false;
        self.requeue(stream);
    }

    /// Numbering begins again (RFC 6525 section 5.1.2).
    pub(crate) fn restart_numbers(&mut self, stream: StreamId) {
        let s = self.streams.get_mut(stream);
        (s.ordered, s.unordered) = (0, 0);
    }
}

#[cfg(test)]
#[path = "queues_tests.rs"]
mod tests;
