//! From connections to associations: messages and bytes, whose turn it is, and what has become of
//! what was handed over.

use super::wire::{PPID_DATA, PPID_EMPTY};
use super::{SEND_BUFFER_MAX, Sctp, SctpEndpoint};
use crate::carrier::event::CarrierEvent;
use crate::carrier::terms::{Sender, WriteError};
use crate::carrier::{SctpCarrier, SessionId};
use crate::context::Context;
use crate::event::{ConnectionError, SendError};
use crate::queue::{Budget, Flushed, Segment, SendFlags, SendQueue};
use bytes::Bytes;
use core::cmp::Reverse;
use neater_base::net::Net;
use neater_base::{Instant, Key};
use neater_sctp::{AssociationId, CloseReason, Reliability, Scheduler, SendOptions, StreamId};
use std::collections::{BinaryHeap, VecDeque};
use std::io::IoSlice;

/// How many bytes a connection hands over at a time while others wait, too.
const SHARE: usize = 16 << 10;
/// The longest message that a write of bytes makes.
const BYTES_MAX: usize = 64 << 10;
/// What a byte of a connection of weight 1 counts.
const FED_SCALE: u64 = 1 << 16;

/// A connection that waits for its turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) conn: Key,
    /// Its stream.
    stream: u32,
    /// It has something in its queue. Others write when there is room.
    pub(crate) queued: bool,
    /// `connPriority`: lower is more important.
    pub(crate) priority: u32,
}

/// The turns of those that wait for room.
#[derive(Debug)]
pub(super) struct Turns {
    waiting: Vec<Waiter>,
    order: Order,
    /// Whose turn it is, by its place among those that wait.
    current: usize,
}

/// Which connection is next.
#[derive(Debug)]
enum Order {
    /// One after the other: a connection with more comes again at the end.
    Ring(VecDeque<usize>),
    /// The most important for as long as it has more.
    Ranked(VecDeque<usize>),
    /// The connection that has been given the least, by its weight.
    Fair(BinaryHeap<Reverse<(u64, usize)>>),
}

impl Order {
    fn pop(&mut self) -> Option<(usize, Option<u64>)> {
        match self {
            Self::Ring(queue) | Self::Ranked(queue) => queue.pop_front().map(|i| (i, None)),
            Self::Fair(heap) => heap.pop().map(|Reverse((fed, i))| (i, Some(fed))),
        }
    }
}

impl SctpCarrier {
    /// There is room again: whatever waits is to get a share in turn.
    pub(super) fn writable<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        self.tune(cx, key);
        let Some(a) = self.associations.get_mut(key) else { return };
        a.blocked = false;
        self.events.push_back(CarrierEvent::Turns { session: SessionId::Sctp(key) });
    }

    /// The connections of an association, in the order in which their turns come. Those that do not
    /// wait are to be left out.
    pub(crate) fn in_turn(&self, key: Key) -> Vec<Waiter> {
        let Some(a) = self.associations.get(key) else { return Vec::new() };
        let all = a.streams.iter().filter_map(|(stream, s)| {
            Some(Waiter { conn: s.user.conn()?, stream: *stream, queued: false, priority: u32::MAX })
        });
        let (mut first, mut rest): (Vec<_>, Vec<_>) = all.partition(|w| w.stream >= a.turn);
        first.append(&mut rest);
        first
    }

    /// Begins the turns of those that wait, the most important first if that is what was asked for.
    pub(crate) fn begin_turns(&mut self, key: Key, mut waiting: Vec<Waiter>) {
        let Some(a) = self.associations.get_mut(key) else { return };
        let Some(e) = self.endpoints.get_mut(a.end) else { return };
        let scheduler = e.profile.scheduler;
        a.reserve(scheduler, e.endpoint.room(a.id), &waiting);
        let order = if shares(scheduler) {
            let fed = |w: &Waiter| a.streams.get(&w.stream).map_or(0, |s| s.fed.max(a.fed));
            Order::Fair(waiting.iter().enumerate().map(|(i, w)| Reverse((fed(w), i))).collect())
        } else if scheduler == Scheduler::Priority {
            waiting.sort_by_key(|w| w.priority);
            Order::Ranked((0..waiting.len()).collect())
        } else {
            Order::Ring((0..waiting.len()).collect())
        };
        a.turns = Some(Box::new(Turns { waiting, order, current: 0 }));
    }

    /// Whose turn it is: until [`SctpCarrier::end_turn`] it may hand over its share. `None`:
    /// nothing waits any more, or there is no room.
    pub(crate) fn next_turn(&mut self, key: Key) -> Option<Key> {
        let a = self.associations.get_mut(key)?;
        let mut turns = a.turns.take().filter(|_| !a.blocked)?;
        let (i, fed) = turns.order.pop()?;
        turns.current = i;
        let Waiter { conn, stream, .. } = *turns.waiting.get(i)?;
        match fed {
            Some(fed) => a.fed = a.fed.max(fed),
            None => a.turn = stream,
        }
        a.share = SHARE;
        a.turns = Some(turns);
        Some(conn)
    }

    /// A connection has handed over its share. `more`: it has something left.
    pub(crate) fn end_turn(&mut self, key: Key, more: bool) {
        let Some(a) = self.associations.get_mut(key) else { return };
        a.share = usize::MAX;
        let Some(turns) = a.turns.as_deref_mut().filter(|_| more) else { return };
        let i = turns.current;
        match &mut turns.order {
            Order::Ring(queue) => queue.push_back(i),
            Order::Ranked(queue) => queue.push_front(i),
            Order::Fair(heap) => {
                if let Some(s) = turns.waiting.get(i).and_then(|w| a.streams.get(&w.stream)) {
                    heap.push(Reverse((s.fed, i)));
                }
            }
        }
    }

    /// The buffer follows the paths: twice what leaves on them in a round trip of the slowest, as
    /// far as there is room for the windows of all.
    fn tune<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(a) = self.associations.get(key) else { return };
        let Some(e) = self.endpoints.get(a.end) else { return };
        let window = usize::try_from(e.endpoint.window(a.id).saturating_mul(2)).unwrap_or(usize::MAX);
        let (least, has) = (cx.limits.send_buffer, a.send_buffer);
        let want = window.clamp(least, SEND_BUFFER_MAX.max(least));
        if want <= has.saturating_add(has / 4) {
            return;
        }
        let more = (want - has) as u64;
        // What is left after it is for others: it is given back when nothing waits here any more.
        let grow = more.min(self.find_room(cx, more) / 2) as usize;
        let Some(a) = self.associations.get(key) else { return };
        if grow > a.send_buffer / 4 {
            self.set_buffer(cx, key, grow as isize);
        }
    }

    /// By how much buffers may grow now, after those that need less have given back if that is
    /// little.
    fn find_room<N: Net>(&mut self, cx: &mut Context<N>, wanted: u64) -> u64 {
        let room = cx.room_for_windows();
        if room >= wanted || !cx.may_look_at_windows() {
            return room;
        }
        self.take_back(cx);
        cx.room_for_windows()
    }

    /// Makes the buffer of an association so much larger, or smaller.
    fn set_buffer<N: Net>(&mut self, cx: &mut Context<N>, key: Key, by: isize) {
        let Some(a) = self.associations.get_mut(key) else { return };
        a.send_buffer = a.send_buffer.saturating_add_signed(by);
        cx.windows.has_grown(by);
        // Of one that has ended the endpoint may have another by that name.
        if let Some(e) = self.endpoints.get_mut(a.end).filter(|_| a.lost.is_none()) {
            e.endpoint.set_send_buffer(a.id, a.send_buffer);
        }
    }

    /// Makes the buffers small again of associations that have nothing in them, if others have
    /// asked for room since that was done last.
    pub(crate) fn take_back_if_asked<N: Net>(&mut self, cx: &mut Context<N>) {
        if self.looked != cx.windows.looks {
            self.take_back(cx);
        }
    }

    fn take_back<N: Net>(&mut self, cx: &mut Context<N>) {
        self.looked = cx.windows.looks;
        for key in self.associations.keys() {
            let Some(a) = self.associations.get(key) else { continue };
            let idle = self.endpoints.get(a.end).is_some_and(|e| e.endpoint.buffered(a.id) == 0);
            if idle && a.lost.is_none() {
                self.give_back(cx, key);
            }
        }
    }

    /// An association is over, or has nothing to keep.
    pub(super) fn give_back<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(a) = self.associations.get(key) else { return };
        let grown = a.send_buffer.saturating_sub(cx.limits.send_buffer);
        if grown > 0 {
            self.set_buffer(cx, key, -(grown as isize));
        }
    }

    /// Where what is more important goes first, its turn comes as soon as there is room, and not
    /// when half the buffer is empty: otherwise the rest of the buffer would be sent before it.
    pub(super) fn feed_ranked<N: Net>(&mut self, cx: &mut Context<N>, end: Key) {
        let Some(e) = self.endpoints.get_mut(end) else { return };
        for key in core::mem::take(&mut e.hungry) {
            let Some(a) = self.associations.get(key).filter(|a| a.blocked && a.lost.is_none()) else {
                continue;
            };
            let Some(e) = self.endpoints.get_mut(end) else { return };
            if e.endpoint.buffered(a.id) + SHARE <= a.send_buffer {
                self.writable(cx, key);
            } else {
                e.hungry.push(key);
            }
        }
    }

    /// What has become of a message that might have been given up.
    pub(super) fn reported(&mut self, key: Key, message: u64, delivered: bool) {
        let Some(a) = self.associations.get_mut(key) else { return };
        let Some((conn, id)) = a.reports.remove(&message) else { return };
        let over = || self.endpoints.get(a.end).is_none_or(|e| e.endpoint.is_over(a.id));
        self.events.push_back(if delivered {
            CarrierEvent::MessageAcked { conn, id }
        } else {
            CarrierEvent::MessageLost {
                conn,
                id,
                error: over().then_some(SendError::Connection(ConnectionError::Closed)),
            }
        });
    }

    /// Hands over as many messages of a connection's queue as there is room for.
    pub(crate) fn send(
        &mut self,
        sender: &Sender,
        (key, stream): (Key, u32),
        queue: &mut SendQueue,
        budget: &mut Budget,
        done: &mut Flushed,
    ) {
        let Sender { conn, framed, last, priority, .. } = *sender;
        let Some(a) = self.associations.get_mut(key) else { return };
        let Some(e) = self.endpoints.get_mut(a.end) else { return };
        let mut share = a.share;
        let handed = done.bytes;
        // What is more important than what waits there makes room for itself (RFC 7496 section
        // 3.2).
        let goes = |s: &Segment| s.expires.is_none() && ranks(s.flags);
        while let Some(front) = queue.queue.front().filter(|s| (!a.blocked || goes(s)) && share > 0) {
            // Without a framer a message may have come in parts; the end of the direction is the
            // end of the last.
            let parts = match queue.queue.iter().position(|s| s.completes.is_some()) {
                _ if framed => 1,
                Some(at) => at + 1,
                None if last => queue.queue.len(),
                None => break,
            };
            let (flags, expires) = (front.flags, front.expires);
            let len: usize = queue.queue.iter().take(parts).map(|s| s.data.len()).sum();
            let before = *budget;
            if !budget.take_datagram(len) {
                break;
            }
            // Copied, because the endpoint drops what it keeps at any time, and the application may
            // own it.
            let mut data = Vec::with_capacity(len.max(1));
            queue.queue.iter().take(parts).for_each(|s| data.extend_from_slice(&s.data));
            let sent = match (len, framed, a.mux) {
                (0, true, _) => Ok(None),
                (0, false, false) => Err(SendError::InvalidMessageProperties(
                    "a message of SCTP has at least one byte (RFC 9260 section 6.2)".into(),
                )),
                _ => {
                    let options = SendOptions {
                        ppid: if a.mux { ppid(len == 0) } else { flags.ppid },
                        // The end of the direction is reported when this is acknowledged (the I
                        // bit: RFC 9260 section 6.1, RFC 7053).
                        immediate: last && parts == queue.queue.len(),
                        ..options(flags, expires.map(|e| e.0), framed)
                    };
                    if len == 0 {
                        data.push(0);
                    }
                    let number = a.number_of(stream, flags);
                    if len > a.allowance(stream, e) {
                        e.endpoint.tell_when_writable(a.id);
                        break;
                    }
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
                        // Its end is among the unread events, with the reason.
                        Err(Refusal::Gone) if a.lost.is_none() => break,
                        Err(Refusal::Gone | Refusal::Over) => {
                            let why = a.lost.clone().unwrap_or(CloseReason::Shutdown);
                            done.error = Some(ConnectionError::Sctp(why));
                            break;
                        }
                    }
                }
            };
            match sent {
                Ok(_) => share = share.saturating_sub(len.max(1)),
                Err(_) => *budget = before,
            }
            let mut id = None;
            for _ in 0..parts {
                id = queue.pop().or(id);
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
        a.has_used(stream, done.bytes - handed);
        if shares(e.profile.scheduler) {
            let scheduler = e.profile.scheduler;
            a.has_handed_over(stream, done.bytes - handed, weight_of(scheduler, priority));
        }
        self.mark_dirty_of(key);
    }

    /// Writes bytes: each write is a message, and what they mean together is the receiver's
    /// business.
    pub(crate) fn write(&mut self, (key, stream): (Key, u32), bufs: &[IoSlice<'_>]) -> Result<usize, WriteError> {
        let gone = || WriteError::Refused(ConnectionError::Closed);
        let Some(a) = self.associations.get_mut(key) else { return Err(gone()) };
        let Some(e) = self.endpoints.get_mut(a.end) else { return Err(gone()) };
        let mut total = 0;
        let mut cut = false;
        for whole in bufs.iter().flat_map(|b| b.chunks(BYTES_MAX)) {
            let allowed = if a.blocked || cut { 0 } else { a.allowance(stream, e) };
            let piece = &whole[..whole.len().min(allowed)];
            cut = piece.len() < whole.len();
            if piece.is_empty() {
                e.endpoint.tell_when_writable(a.id);
                break;
            }
            let number = a.number_of(stream, SendFlags::default());
            let options = SendOptions { ppid: PPID_DATA, ..SendOptions::default() };
            match hand_over(e, a.id, number, Bytes::copy_from_slice(piece), options) {
                Ok(_) => {
                    total += piece.len();
                    a.has_used(stream, piece.len());
                }
                Err(Refusal::Blocked) => a.blocked = true,
                Err(_) if total > 0 => break,
                Err(_) => {
                    let error = a.lost.clone().map_or(ConnectionError::Closed, ConnectionError::Sctp);
                    return Err(WriteError::Refused(error));
                }
            }
        }
        self.mark_dirty_of(key);
        if total > 0 || bufs.iter().all(|b| b.is_empty()) { Ok(total) } else { Err(WriteError::Blocked) }
    }
}

impl Sctp {
    /// Those that wait with nothing queued write when their applications get to it. Until then a
    /// share of the room is kept for each of them, or the first to get to it would take everything,
    /// every time. A share that is not used is less each time, so that an application that does not
    /// write after all holds nothing up; and what is acknowledged meanwhile is room for all.
    fn reserve(&mut self, scheduler: Scheduler, room: usize, waiting: &[Waiter]) {
        let mut carried = 0;
        for s in self.streams.values_mut().filter(|s| s.reserved > 0) {
            s.reserved /= 2;
            carried += s.reserved;
        }
        self.reserved = carried;
        if waiting.len() < 2 {
            return;
        }
        let free = room.saturating_sub(carried);
        let weight = |w: &Waiter| u64::from(weight_of(scheduler, w.priority));
        let first = waiting.iter().map(|w| w.priority).min();
        let all: u64 = waiting.iter().map(weight).sum();
        for waiter in waiting.iter().filter(|w| !w.queued) {
            let share = match scheduler {
                // The most important: the others have the rest, or what it does not use would hold
                // them up.
                Scheduler::Priority if first != Some(waiter.priority) => 0,
                Scheduler::Priority => free / 2,
                _ => (free as u64 * weight(waiter) / all.max(1)) as usize,
            };
            if let Some(s) = self.streams.get_mut(&waiter.stream) {
                self.reserved = self.reserved - s.reserved + share.max(s.reserved);
                s.reserved = s.reserved.max(share);
            }
        }
    }

    /// The most bytes that a connection may hand over now, for the room that is reserved for
    /// others. No limit where none is reserved anything, or nothing is buffered: something must go
    /// on.
    fn allowance(&self, stream: u32, e: &SctpEndpoint) -> usize {
        if self.reserved == 0 || e.endpoint.buffered(self.id) == 0 {
            return usize::MAX;
        }
        let own = self.streams.get(&stream).map_or(0, |s| s.reserved);
        let others = self.reserved.saturating_sub(own);
        e.endpoint.room(self.id).saturating_sub(others)
    }

    /// A connection has used what was reserved for it.
    fn has_used(&mut self, stream: u32, bytes: usize) {
        if let Some(s) = self.streams.get_mut(&stream) {
            let used = bytes.min(s.reserved);
            s.reserved -= used;
            self.reserved = self.reserved.saturating_sub(used);
        }
    }

    /// Counts what a connection has handed over: less the more weight it has.
    fn has_handed_over(&mut self, stream: u32, bytes: usize, weight: u16) {
        let Some(s) = self.streams.get_mut(&stream) else { return };
        let begins = s.fed.max(self.fed);
        s.fed = begins + (bytes as u64 * FED_SCALE) / u64::from(weight.max(1));
        if self.share == usize::MAX && bytes > 0 {
            // Nothing had to wait for it: it is not to be paid back to what comes later.
            self.fed = begins;
        }
    }
}

/// The weight of a connection where the bytes are shared.
fn weight_of(scheduler: Scheduler, priority: u32) -> u16 {
    if scheduler == Scheduler::WeightedFair { super::open::value_of(scheduler, priority).max(1) } else { 1 }
}

/// Whether a scheduler shares the bytes.
const fn shares(scheduler: Scheduler) -> bool {
    matches!(scheduler, Scheduler::FairBandwidth | Scheduler::WeightedFair)
}

/// Whether a message is given up for more important ones only.
fn ranks(flags: SendFlags) -> bool {
    flags.unreliable && flags.priority != SendFlags::default().priority
}

/// Why the endpoint did not take a message.
enum Refusal {
    Blocked,
    /// The association has ended, perhaps a moment ago.
    Gone,
    /// It is ending.
    Over,
    Message(SendError),
}

/// How a message is sent that was asked for like this.
fn options(flags: SendFlags, expires: Option<Instant>, framed: bool) -> SendOptions {
    if framed {
        // Bytes of a stream, whatever the messages in it are.
        return SendOptions::default();
    }
    let reliability = match expires {
        Some(at) => Reliability::Until(at),
        None if ranks(flags) => Reliability::Priority(u32::from(flags.priority)),
        None if flags.unreliable => Reliability::Retransmissions(0),
        None => Reliability::Full,
    };
    let report = reliability != Reliability::Full;
    SendOptions { unordered: flags.unordered, reliability, whole: flags.whole, report, ..SendOptions::default() }
}

/// The payload protocol identifier that distinguishes the engine's own messages.
const fn ppid(empty: bool) -> u32 {
    if empty { PPID_EMPTY } else { PPID_DATA }
}

/// Hands a message to the endpoint; returns its number if what becomes of it will be reported.
fn hand_over(
    end: &mut SctpEndpoint,
    id: AssociationId,
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
        Err(E::Closed) => Err(Refusal::Gone),
        Err(E::TooLong { most }) => Err(Refusal::Message(SendError::MessageTooLarge { max: most })),
        Err(e @ (E::NoSuchStream { .. } | E::Empty)) => {
            Err(Refusal::Message(SendError::InvalidMessageProperties(e.to_string())))
        }
        Err(_) => Err(Refusal::Over),
    }
}
