//! From connections to associations: messages and bytes, whose turn it is, and what has become of what was handed over.

use super::wire::{PPID_DATA, PPID_EMPTY};
use super::{SEND_BUFFER_MAX, Sctp, SctpEnd};
use crate::Engine;
use crate::carrier::SctpCarrier;
use crate::carrier::data::{Sender, WriteError};
use crate::event::{ConnectionError, Event, SendError};
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

impl<N: Net> Engine<N> {
    /// There is room again: everybody who waits gets a share in turn, the most important first if that is what was asked for.
    pub(super) fn sctp_writable(&mut self, key: Key) {
        self.sctp_tune(key);
        let Some(a) = self.carriers.sctp.associations.get_mut(key) else { return };
        a.blocked = false;
        let Some(e) = self.carriers.sctp.endpoints.get_mut(a.end) else { return };
        let scheduler = e.profile.scheduler;
        let (ranked, room) = (scheduler == Scheduler::Priority, e.endpoint.room(a.id));
        let fair = shares(scheduler);
        let (before, after): (Vec<_>, Vec<_>) =
            a.streams.iter().filter_map(|(k, s)| Some((*k, s.conn?))).partition(|(k, _)| *k < a.turn);
        let mut waiting: VecDeque<(u32, Key)> = after.into_iter().chain(before).collect();
        waiting.retain(|(_, c)| self.conns.get(*c).is_some_and(|c| !c.tx.is_empty() || c.wants_room));
        self.sctp_reserve(key, scheduler, room, &mut waiting);
        if fair {
            return self.sctp_feed_fairly(key, &Vec::from(waiting));
        }
        if ranked {
            let rank = |c: &Key| self.conns.get(*c).map_or(u32::MAX, crate::conn::Conn::priority);
            waiting.make_contiguous().sort_by_key(|(_, c)| rank(c));
        }
        while let Some((stream, conn)) = waiting.pop_front() {
            let Some(a) = self.carriers.sctp.associations.get_mut(key).filter(|a| !a.blocked) else { return };
            a.turn = stream;
            match (self.sctp_has_turn(key, conn), ranked) {
                (true, true) => waiting.push_front((stream, conn)),
                (true, false) => waiting.push_back((stream, conn)),
                (false, _) => {}
            }
        }
    }

    /// The buffer follows the path: twice what may be in flight, as far as there is room for the windows of all.
    fn sctp_tune(&mut self, key: Key) {
        let want = |this: &Self| {
            let a = this.carriers.sctp.associations.get(key)?;
            let window = usize::try_from(2 * this.carriers.sctp.endpoints.get(a.end)?.endpoint.window(a.id))
                .unwrap_or(usize::MAX);
            let (least, has) = (this.cx.limits.send_buffer, a.send_buffer);
            let want = window.clamp(least, SEND_BUFFER_MAX.max(least));
            (want > has.saturating_add(has / 4)).then(|| (want - has) as u64)
        };
        let Some(more) = want(self) else { return };
        // What is left after it is for others: it is given back when nothing waits here any more.
        let grow = more.min(self.find_room(more) / 2) as usize;
        let Some(a) = self.carriers.sctp.associations.get_mut(key) else { return };
        if grow > a.send_buffer / 4 {
            self.sctp_set_buffer(key, grow as isize);
        }
    }

    /// By how much buffers may grow now, after sessions that need less have given back if that is little.
    fn find_room(&mut self, wanted: u64) -> u64 {
        let room = self.cx.room_for_windows();
        if room >= wanted || !self.cx.may_look_at_windows() {
            return room;
        }
        self.carriers.quic.take_back_windows(&mut self.cx, None);
        self.sctp_take_back();
        self.cx.room_for_windows()
    }

    /// Makes the buffer of an association so much larger, or smaller.
    pub(crate) fn sctp_set_buffer(&mut self, key: Key, by: isize) {
        let Some(a) = self.carriers.sctp.associations.get_mut(key) else { return };
        a.send_buffer = a.send_buffer.saturating_add_signed(by);
        self.cx.windows.has_grown(by);
        // Of one that has ended the endpoint may have another by that name.
        if let Some(e) = self.carriers.sctp.endpoints.get_mut(a.end).filter(|_| a.lost.is_none()) {
            e.endpoint.set_send_buffer(a.id, a.send_buffer);
        }
    }

    /// Makes the buffers small again of associations that have nothing in them.
    pub(crate) fn sctp_take_back(&mut self) {
        self.carriers.sctp.looked = self.cx.windows.looks;
        for key in self.carriers.sctp.associations.keys() {
            let Some(a) = self.carriers.sctp.associations.get(key) else { continue };
            let idle = self.carriers.sctp.endpoints.get(a.end).is_some_and(|e| e.endpoint.buffered(a.id) == 0);
            if idle && a.lost.is_none() {
                self.sctp_give_back(key);
            }
        }
    }

    /// An association is over, or has nothing to keep.
    pub(super) fn sctp_give_back(&mut self, key: Key) {
        let Some(grown) =
            self.carriers.sctp.associations.get(key).map(|a| a.send_buffer.saturating_sub(self.cx.limits.send_buffer))
        else {
            return;
        };
        if grown > 0 {
            self.sctp_set_buffer(key, -(grown as isize));
        }
    }

    /// Those who wait with nothing queued write when their programs get to it. Until then a share of the room is kept for each of them,
    /// or whoever gets to it first would take everything, every time. A share that is not used is less each time, so that a program that
    /// does not write after all holds nobody up; and what is acknowledged meanwhile is room for all.
    fn sctp_reserve(&mut self, key: Key, scheduler: Scheduler, room: usize, waiting: &mut VecDeque<(u32, Key)>) {
        let Some(a) = self.carriers.sctp.associations.get_mut(key) else { return };
        let mut carried = 0;
        for s in a.streams.values_mut().filter(|s| s.reserved > 0) {
            s.reserved /= 2;
            carried += s.reserved;
        }
        a.reserved = carried;
        if waiting.len() < 2 {
            return;
        }
        let free = room.saturating_sub(carried);
        let conns = &self.conns;
        let priority = |c: &Key| conns.get(*c).map_or(u32::MAX, crate::conn::Conn::priority);
        let weight = |c: &Key| u64::from(weight_of(scheduler, priority(c)));
        let first = waiting.iter().map(|(_, c)| priority(c)).min();
        let all: u64 = waiting.iter().map(|(_, c)| weight(c)).sum();
        for (stream, conn) in waiting.iter() {
            if conns.get(*conn).is_none_or(|c| !c.tx.is_empty()) {
                continue;
            }
            let share = match scheduler {
                // The most important: the others have the rest, or what it does not use would hold them up.
                Scheduler::Priority if first != Some(priority(conn)) => 0,
                Scheduler::Priority => free / 2,
                _ => (free as u64 * weight(conn) / all.max(1)) as usize,
            };
            if let Some(s) = a.streams.get_mut(stream) {
                a.reserved = a.reserved - s.reserved + share.max(s.reserved);
                s.reserved = s.reserved.max(share);
            }
        }
    }

    /// A connection hands over its share; returns whether it has more.
    fn sctp_has_turn(&mut self, key: Key, conn: Key) -> bool {
        if let Some(a) = self.carriers.sctp.associations.get_mut(key) {
            a.share = SHARE;
        }
        let before = self.conns.get(conn).map_or((0, 0), |c| (c.bytes_sent, c.tx.queue.len()));
        self.conn_ready_stream(conn, false);
        if let Some(a) = self.carriers.sctp.associations.get_mut(key) {
            a.share = usize::MAX;
        }
        let moved = |c: &crate::conn::Conn| c.bytes_sent > before.0 || c.tx.queue.len() < before.1;
        self.conns.get(conn).is_some_and(|c| !c.tx.is_empty() && moved(c))
    }

    /// The bytes are shared, by weights or not: next is who has had the least by its weight. The association shares what it has been
    /// given, which says nothing where the buffer is full of what others were let hand over.
    fn sctp_feed_fairly(&mut self, key: Key, waiting: &[(u32, Key)]) {
        let Some(a) = self.carriers.sctp.associations.get_mut(key) else { return };
        let mut heap: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::with_capacity(waiting.len());
        for (i, (stream, _)) in waiting.iter().enumerate() {
            heap.push(Reverse((a.streams.get(stream).map_or(0, |s| s.fed.max(a.fed)), i)));
        }
        while let Some(Reverse((fed, i))) = heap.pop() {
            let (stream, conn) = waiting[i];
            let Some(a) = self.carriers.sctp.associations.get_mut(key).filter(|a| !a.blocked) else { return };
            a.fed = a.fed.max(fed);
            if self.sctp_has_turn(key, conn)
                && let Some(s) = self.carriers.sctp.associations.get(key).and_then(|a| a.streams.get(&stream))
            {
                heap.push(Reverse((s.fed, i)));
            }
        }
    }

    /// Where what is more important goes first, its turn comes as soon as there is room, and not when half the buffer is empty:
    /// otherwise the rest of the buffer would be sent before it.
    pub(super) fn sctp_feed_ranked(&mut self, end: Key) {
        let Some(e) = self.carriers.sctp.endpoints.get_mut(end) else { return };
        for key in core::mem::take(&mut e.hungry) {
            let Some(a) = self.carriers.sctp.associations.get(key).filter(|a| a.blocked && a.lost.is_none()) else {
                continue;
            };
            let Some(e) = self.carriers.sctp.endpoints.get_mut(end) else { return };
            if e.endpoint.buffered(a.id) + SHARE <= a.send_buffer {
                self.sctp_writable(key);
            } else {
                e.hungry.push(key);
            }
        }
    }

    /// What has become of a message that might have been given up.
    pub(super) fn sctp_reported(&mut self, key: Key, message: u64, delivered: bool) {
        let Some(a) = self.carriers.sctp.associations.get_mut(key) else { return };
        let Some((conn, id)) = a.reports.remove(&message) else { return };
        let over = self.carriers.sctp.endpoints.get(a.end).is_none_or(|e| e.endpoint.is_over(a.id));
        if delivered {
            if let Some(c) = self.conns.get_mut(conn) {
                c.messages_sent = c.messages_sent.saturating_add(1);
            }
            self.notify(conn, Event::Sent(id));
        } else if over {
            self.notify(conn, Event::SendError(id, SendError::Connection(ConnectionError::Closed)));
        } else {
            self.notify(conn, Event::Expired(id));
        }
    }
}

impl SctpCarrier {
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
        // What is more important than what waits there makes room for itself (RFC 7496 section 3.2).
        let goes = |s: &Segment| s.expires.is_none() && ranks(s.flags);
        while let Some(front) = queue.queue.front().filter(|s| (!a.blocked || goes(s)) && share > 0) {
            // Without a framer a message may have come in parts; the end of the direction is the end of the last.
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
            // Copied, because the endpoint drops what it keeps at any time, and the application may own it.
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
                        // The end of the direction is reported when this is acknowledged (the I bit: RFC 9260 section 6.1, RFC 7053).
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
                        // Its end is among the events that have not been looked at, and says why.
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

    /// Writes bytes: each write is a message, and what they mean together is the receiver's business.
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
    /// The most bytes that a connection may hand over now, for what others have been promised. No limit where nobody was promised
    /// anything, or nothing is buffered: something must go on.
    fn allowance(&self, stream: u32, e: &SctpEnd) -> usize {
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
            // Nobody had to wait for it: it is not to be paid back to whoever comes later.
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

/// What tells our own messages apart.
const fn ppid(empty: bool) -> u32 {
    if empty { PPID_EMPTY } else { PPID_DATA }
}

/// Hands a message to the endpoint; returns its number if what becomes of it will be reported.
fn hand_over(
    end: &mut SctpEnd,
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
