//! A connection's own state.

use crate::advised::{self, AdviceOf};
use crate::carrier::FlowId;
use crate::carrier::channel::Peer;
use crate::establish::Establishing;
use crate::event::{CandidateOutcome, ConnectionError, TimelineEntry};
use crate::rate::Rates;
use crate::request::Compiled;
use crate::{LocalEndpoint, MessageId, RemoteEndpoint, Stack};
use bytes::Bytes;
use core::num::NonZeroU64;
use core::time::Duration;
use neater_base::net::{Ecn, Lane, Sock, SocketOption};
use neater_base::{Instant, Key, Slab};
use neater_framing::{Framer, Receiver};
use neater_race::CacheKey;
use std::collections::VecDeque;
use std::sync::Arc;

/// The states of RFC 9622 section 11.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConnectionState {
    /// Being set up.
    Establishing,
    /// In use.
    Established,
    /// Closed from this side; accepted messages are still being delivered.
    Closing,
    /// Over.
    Closed,
}

/// A piece of a message that waits to be written.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) data: Bytes,
    /// The message is sent when this piece is written.
    pub(crate) completes: Option<MessageId>,
    /// First piece of a message that may expire as long as none of it is written.
    pub(crate) expires: Option<(Instant, MessageId)>,
    /// What was asked for the message.
    pub(crate) how: How,
}

/// What was asked for a message, as far as it matters when it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct How {
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

impl Default for How {
    fn default() -> Self {
        Self { replayable: true, unordered: false, unreliable: false, whole: false, priority: 100, stream: 0, ppid: 0 }
    }
}

/// What a piece that waits costs beside its bytes: without it, empty messages would cost nothing and could be any number.
pub(crate) const PIECE: usize = size_of::<Segment>();

/// The send queue of a connection: made when it is first written to, so that a connection whose bytes go straight to the
/// transport has none. Until then it reads as an empty one.
#[derive(Debug, Default)]
pub(crate) struct Tx(Seldom<SendQueue>);

/// See [`Tx`].
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    pub(crate) queue: VecDeque<Segment>,
    pub(crate) bytes: usize,
    /// Bytes of an unfinished message that the framer has taken and not given back.
    pub(crate) held: usize,
    /// Those of a message that was refused, until the next one begins: the framer may still have them.
    pub(crate) stale: usize,
    /// What of [`SendQueue::cost`] is part of the engine's sum.
    pub(crate) counted: usize,
    /// It waits until the engine as a whole has room.
    pub(crate) crowded_out: bool,
    pub(crate) next_id: u64,
    /// Messages whose last bytes are in records that the socket has not taken: not sent, and not queued either.
    pub(crate) sealed: Vec<MessageId>,
    /// A part of a message was sent and its end was not.
    pub(crate) in_message: bool,
    /// A part of that message was refused, so that all others are until its end.
    pub(crate) refusing: bool,
    /// What its parts have cost so far, in bytes of memory.
    pub(crate) parts: usize,
    /// Data that has left the queue, until the engine counts anew: see [`crate::Spent`].
    pub(crate) spent: Vec<Bytes>,
}

static NO_QUEUE: SendQueue = SendQueue {
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

impl Tx {
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
    pub(crate) fn made(&mut self) -> Option<&mut SendQueue> {
        self.0.as_deref_mut()
    }
}

impl SendQueue {
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

    /// A part of a message is refused, and with it the message: `end` if it was to be its last part.
    pub(crate) fn part_refused(&mut self, end: bool) {
        self.refusing = !end;
        self.in_message = !end;
        if end {
            // The framer begins anew with the next.
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

    /// Throws away what waits and returns the messages that are not sent now. `framed`: one that is not finished is not sent,
    /// even if nothing of it waits here.
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

impl core::ops::Deref for Tx {
    type Target = SendQueue;
    fn deref(&self) -> &SendQueue {
        self.0.as_deref().unwrap_or(&NO_QUEUE)
    }
}

impl core::ops::DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut SendQueue {
        self.0.get_or_insert_default()
    }
}

/// Counters of one connection (RFC 9621 section 3.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionStats {
    /// Bytes handed to the transport.
    pub bytes_sent: u64,
    /// Bytes handed to the program.
    pub bytes_received: u64,
    /// Messages handed to the transport.
    pub messages_sent: u64,
    /// Messages handed to the program.
    pub messages_received: u64,
    /// Datagrams dropped because the program did not take them in time, or because its framer could make nothing of them.
    pub datagrams_dropped: u64,
    /// How long establishment took.
    pub establishment: Duration,
    /// Smoothed round-trip time, where the transport knows it.
    pub rtt: Option<Duration>,
    /// Congestion window in bytes, where the transport knows it.
    pub congestion_window: Option<u64>,
    /// Bytes that wait in the engine's send queue.
    pub queued: usize,
    /// This side's direction has ended, and that end, with all that was sent before it, needs this process no more: the
    /// peer has acknowledged it (QUIC), or the system has it (TCP, TLS).
    pub ended: bool,
}

/// How far what was sent on a connection has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// Grows with what the peer has acknowledged, of all streams of its session together, and with
    /// nothing else but (over QUIC) a few bytes for each packet that asks whether it is there. In
    /// bytes on the wire; it may begin again on another path.
    pub acknowledged: u64,
    /// Bytes that were taken for delivery and that the peer has not acknowledged: in the engine and
    /// in the system, or (streams) in the engine, and one for an end that is not acknowledged.
    pub pending: u64,
    /// Bytes that have come.
    pub received: u64,
}

/// A received datagram that waits for the program.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) data: Bytes,
    pub(crate) ecn: Ecn,
}

/// What most connections never need.
#[derive(Default)]
pub(crate) struct Ext {
    pub(crate) framer: Option<Box<dyn Framer>>,
    pub(crate) receiver: Receiver,
    /// The framer's handshake, until it is over.
    pub(crate) greeting: Option<Box<crate::greeting::Greeting>>,
    /// Datagrams received and not taken.
    pub(crate) datagrams: VecDeque<Queued>,
    pub(crate) datagram_bytes: usize,
    /// ECN codepoint of the datagram whose messages the framer has found last.
    pub(crate) framed_ecn: Ecn,
    /// How the race went, if there was one.
    pub(crate) timeline: Vec<TimelineEntry>,
    pub(crate) candidates: Vec<CandidateOutcome>,
    /// The idle timeout of a peer of a shared UDP socket, or of a program's wish.
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) last_activity: Instant,
    pub(crate) idle_armed: bool,
    /// Options set by the program while the connection was not yet established.
    pub(crate) options: Vec<SocketOption>,
    pub(crate) priority: Option<u32>,
    /// Why the connection failed, if it did.
    pub(crate) error: Option<ConnectionError>,
    /// The peer, where several share a UDP socket.
    pub(crate) peer: Option<Peer>,
    /// Sent as early data in a race that QUIC or TLS may win: sent again if it was not accepted.
    pub(crate) early: Option<Bytes>,
    /// It was accepted, and that is still to be reported.
    pub(crate) first_taken: bool,
    /// Its sending direction was abandoned before it was established, with this code: see [`crate::Engine::reset_sending`].
    pub(crate) abandoned: Option<u64>,
    /// What the peer says was refused before that, with this code: see [`crate::Engine::stop_receiving`].
    pub(crate) refusal: Option<u64>,
    /// With which code the peer has abandoned its direction.
    pub(crate) reset_code: u64,
    /// When the next message expires, as far as its deadline is set: one is enough, however many messages have a lifetime.
    pub(crate) expiry_armed: Option<Instant>,
    /// When the next of those ends who wait for room for a while only.
    pub(crate) look_armed: Option<Instant>,
    /// `maxSendRate` and `maxRecvRate`, if either is set.
    pub(crate) rates: Option<Box<Rates>>,
    /// Where the connection was to come from, if that was said: needed again for a clone.
    pub(crate) locals: Arc<[LocalEndpoint]>,
    /// What policies said, if they changed anything.
    pub(crate) advice: Option<AdviceOf>,
    /// The Connection Properties, if they are not those of the request any more.
    pub(crate) changed: Option<Box<neater_property::ConnectionProperties>>,
    /// The defaults for its messages, if they are not those of the request any more.
    pub(crate) messages: Option<Box<neater_property::MessageProperties>>,
    /// When something was last sent to the peer of a shared UDP socket.
    pub(crate) spoke: Option<Instant>,
    /// It is only to be found out what would be tried: see [`crate::Engine::plan`].
    pub(crate) planning: bool,
    /// Where its outcome is remembered, of a connection that has no [`Conn::network`]: the network,
    /// and the key.
    pub(crate) outcome_key: Option<(NonZeroU64, CacheKey)>,
    /// While it was being established, a peer was found not to be the one that was meant: see [`crate::establish`].
    pub(crate) refused: bool,
}

impl core::fmt::Debug for Ext {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Ext").field("framed", &self.framer.is_some()).finish_non_exhaustive()
    }
}

/// What most connections have nothing of. That there is nothing to be dropped is seen where the connection is dropped, without a
/// call (26 instructions of the way of a flow, for two of them).
#[derive(Debug)]
pub(crate) struct Seldom<T>(Option<Box<T>>);

impl<T> Seldom<T> {
    const NOTHING: Self = Self(None);
}

impl<T> Default for Seldom<T> {
    fn default() -> Self {
        Self::NOTHING
    }
}

impl<T> core::ops::Deref for Seldom<T> {
    type Target = Option<Box<T>>;
    #[inline]
    fn deref(&self) -> &Option<Box<T>> {
        &self.0
    }
}

impl<T> core::ops::DerefMut for Seldom<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Option<Box<T>> {
        &mut self.0
    }
}

impl<T> Drop for Seldom<T> {
    #[inline(always)]
    fn drop(&mut self) {
        #[cold]
        #[inline(never)]
        fn drop_it<T>(it: Box<T>) {
            drop(it);
        }
        match self.0.take() {
            None => {}
            Some(it) => drop_it(it),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) state: ConnectionState,
    pub(crate) flow: FlowId,
    pub(crate) stack: Option<Stack>,
    /// The peer has ended its direction.
    pub(crate) read_closed: bool,
    /// The peer's end was really read: there is nothing more to come.
    pub(crate) peer_ended: bool,
    /// The program has closed the connection before it was established: it is closed when what was sent is delivered.
    pub(crate) close_wanted: bool,
    /// This side's direction is ended, or will be when the queue is empty.
    pub(crate) final_sent: bool,
    /// The FIN, or its like, has been handed to the transport.
    pub(crate) fin_done: bool,
    /// The peer's stream of one direction: there is nothing to end on this side.
    pub(crate) one_way: bool,
    /// No handle refers to it: no events, removed as soon as it is closed.
    pub(crate) released: bool,
    /// A Writable event is owed when there is room.
    pub(crate) wants_room: bool,
    /// Came from a listener.
    pub(crate) passive: bool,
    /// Writes are gathered until the batch ends.
    pub(crate) batching: bool,
    pub(crate) request: Arc<Compiled>,
    /// Where the connection was to go: needed again for a clone.
    pub(crate) remotes: Arc<[RemoteEndpoint]>,
    pub(crate) est: Option<Box<Establishing>>,
    pub(crate) ext: Seldom<Ext>,
    pub(crate) tx: Tx,
    /// The peer has acknowledged everything, the end included.
    pub(crate) fin_acked: bool,
    /// The peer does not want what this side sends: the stream's sending direction was reset.
    pub(crate) stopped: bool,
    /// The peer has abandoned its direction.
    pub(crate) reset: bool,
    pub(crate) group: Option<Key>,
    /// When initiate was called.
    pub(crate) began: Instant,
    /// When initiate was called, then when the connection was established.
    pub(crate) since: Instant,
    /// The network under which the outcome of its race is remembered, if it is.
    pub(crate) network: Option<NonZeroU64>,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) messages_sent: u32,
    pub(crate) messages_received: u32,
    pub(crate) dropped: u32,
    pub(crate) quick: Quick,
}

/// What is known of a connection whose bytes can go straight to its socket and come straight from it. It holds as long as
/// nobody has touched the connection, which [`Conns::get_mut`] sees to: so whoever changes a connection need not think of it.
#[derive(Debug)]
pub(crate) struct Quick {
    /// The socket of the connection's own TCP.
    pub(crate) sock: Sock,
    /// Bytes may be written, nothing waits before them, and the socket may take some.
    pub(crate) write: bool,
    /// Bytes may be written, nothing waits before them, and the socket takes none: an event will tell, and whoever wants room is
    /// told, as if nothing had been between.
    pub(crate) full: bool,
    /// Bytes may be read, and there may be some.
    pub(crate) read: bool,
    /// Bytes may be read, and there are none: an event will tell, and then they may be read as if nothing had been between.
    pub(crate) dry: bool,
    /// For those who would not even come here: open in the directions that are quick. In a box because most have none.
    pub(crate) lane: Option<Box<Box<dyn Lane>>>,
}

impl Quick {
    const NO: Self = Self { sock: Sock(0), write: false, full: false, read: false, dry: false, lane: None };

    /// Whether anything is known that need not hold any more when the connection changes.
    #[inline]
    fn knows(&self) -> bool {
        self.write || self.full || self.read || self.dry
    }

    /// The socket has nothing to be read now.
    pub(crate) fn ran_dry(&mut self) {
        (self.read, self.dry) = (false, true);
    }

    /// The socket takes nothing now.
    pub(crate) fn filled_up(&mut self) {
        (self.write, self.full) = (false, true);
    }

    /// The socket takes something again. False: it is not known whether bytes may be written.
    pub(crate) fn has_room(&mut self) -> bool {
        // A lane may have been full before this was told of it.
        if self.may_be_written() {
            (self.write, self.full) = (true, false);
            if let Some(lane) = &self.lane {
                lane.open(true, false);
            }
        }
        self.write
    }

    /// Whether bytes may be written quickly, if there is room.
    #[inline]
    pub(crate) fn may_be_written(&self) -> bool {
        self.write || self.full
    }

    /// Whether bytes may be read quickly, if there are any.
    #[inline]
    pub(crate) fn may_be_read(&self) -> bool {
        self.read || self.dry
    }

    /// The socket has something to be read again.
    #[inline]
    pub(crate) fn refilled(&mut self) {
        if self.may_be_read() {
            (self.read, self.dry) = (true, false);
            if let Some(lane) = &self.lane {
                lane.open(false, true);
            }
        }
    }

    /// It need not hold any more.
    #[inline(never)]
    fn forget(&mut self) {
        (self.write, self.full, self.read, self.dry) = (false, false, false, false);
        if let Some(lane) = &self.lane {
            lane.close();
        }
    }
}

/// The connections.
#[derive(Debug, Default)]
pub(crate) struct Conns(Slab<Conn>);

impl Conns {
    /// The connection, to be changed: what made its bytes quick need not hold any more.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Conn> {
        let c = self.0.get_mut(key)?;
        if c.quick.knows() {
            c.quick.forget();
        }
        Some(c)
    }

    /// The connection, to count its bytes, to note whether there are any and who waits for them, and to change nothing else.
    #[inline]
    pub(crate) fn get_quick(&mut self, key: Key) -> Option<&mut Conn> {
        self.0.get_mut(key)
    }

    /// As [`Slab::insert`].
    pub(crate) fn insert(&mut self, conn: Conn) -> Key {
        self.0.insert(conn)
    }

    /// As [`Slab::try_insert_with`].
    #[inline(always)]
    pub(crate) fn try_insert_with(&mut self, f: impl FnOnce(Key) -> Option<Conn>) -> Option<Key> {
        self.0.try_insert_with(f)
    }

    /// As [`Slab::discard_if`]. `f` ends the connection or leaves its bytes as they are.
    #[inline]
    pub(crate) fn discard_if<R>(&mut self, key: Key, f: impl FnOnce(&mut Conn) -> Option<R>) -> Option<R> {
        self.0.discard_if(key, f)
    }
}

/// To look at.
impl core::ops::Deref for Conns {
    type Target = Slab<Conn>;
    #[inline]
    fn deref(&self) -> &Slab<Conn> {
        &self.0
    }
}

impl Conn {
    #[inline(always)]
    pub(crate) fn new(request: Arc<Compiled>, remotes: Arc<[RemoteEndpoint]>, now: Instant) -> Self {
        Self {
            state: ConnectionState::Establishing,
            flow: FlowId::None,
            stack: None,
            read_closed: false,
            peer_ended: false,
            close_wanted: false,
            final_sent: false,
            fin_done: false,
            one_way: false,
            released: false,
            wants_room: false,
            passive: false,
            batching: false,
            request,
            remotes,
            est: None,
            ext: Seldom::NOTHING,
            tx: Tx::default(),
            fin_acked: false,
            stopped: false,
            reset: false,
            group: None,
            began: now,
            since: now,
            network: None,
            bytes_sent: 0,
            bytes_received: 0,
            messages_sent: 0,
            messages_received: 0,
            dropped: 0,
            quick: Quick::NO,
        }
    }

    /// Under which the outcome of its race is remembered, if it is.
    pub(crate) fn cache_key(&self) -> Option<CacheKey> {
        self.cache_key_of(self.network?, 0)
    }

    /// Where outcomes of this connection with one of its remote endpoints are remembered.
    pub(crate) fn cache_key_of(&self, network: NonZeroU64, remote: usize) -> Option<CacheKey> {
        let mut key = cache_key(network, self.remotes.get(remote)?, &self.request);
        key.request ^= advised::number(self.advice(), remote);
        Some(key)
    }

    /// What policies said, if they changed anything.
    pub(crate) fn advice(&self) -> Option<&AdviceOf> {
        self.ext.as_ref()?.advice.as_ref()
    }

    /// The rarely needed part, made when first asked for.
    pub(crate) fn ext(&mut self) -> &mut Ext {
        self.ext.get_or_insert_default()
    }

    /// Whether nothing waits for its being established but the program: no race, no queue, no framer, no call.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        let waited_for = self.final_sent || self.wants_room || self.close_wanted;
        self.est.is_none() && self.ext.is_none() && self.tx.is_empty() && self.request.direct && !waited_for
    }

    /// Why the connection failed, if it did.
    pub(crate) fn error(&self) -> Option<&ConnectionError> {
        self.ext.as_ref()?.error.as_ref()
    }

    /// See [`ConnectionStats::ended`].
    pub(crate) fn end_is_out(&self) -> bool {
        self.fin_done
            && (self.fin_acked || self.one_way || !matches!(self.flow, FlowId::Stream { .. } | FlowId::Sctp { .. }))
    }

    /// Whether its stream's sending direction was given up before the peer had everything.
    pub(crate) fn given_up(&self) -> bool {
        self.stopped && !self.fin_acked && self.error().is_some()
    }

    /// With what the connection ends, if that is so.
    pub(crate) fn refusal(&self) -> Option<ConnectionError> {
        self.error().filter(|_| self.given_up()).cloned()
    }

    /// Whether bytes may be written, and nothing waits to be written before them.
    #[inline]
    pub(crate) fn may_write_bytes(&self) -> bool {
        self.is_open() && !self.final_sent && self.tx.is_empty() && !self.is_special() && self.request.may_send
    }

    /// Whether bytes may be read.
    #[inline]
    pub(crate) fn may_read_bytes(&self) -> bool {
        self.is_open() && !self.read_closed && !self.is_special() && self.request.may_receive
    }

    /// Whether something stands between the program and the bytes of the transport: a framer, or a rate.
    #[inline]
    fn is_special(&self) -> bool {
        self.ext.as_ref().is_some_and(|e| e.framer.is_some() || e.rates.is_some())
    }

    /// Over TCP, whether nothing waits for its socket to take it: no data, no end, and nobody who wants room.
    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        self.stack == Some(Stack::Tcp)
            && self.tx.is_empty()
            && !self.wants_room
            && (self.fin_done || !self.final_sent)
            && self.state == ConnectionState::Established
    }

    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.state == ConnectionState::Established
    }

    #[inline]
    pub(crate) fn framed(&self) -> bool {
        self.ext.as_ref().is_some_and(|e| e.framer.is_some())
    }

    /// Whether the program may read bytes from it, or why not.
    pub(crate) fn bytes_possible(&self) -> Result<(), ConnectionError> {
        if self.framed() {
            return Err(ConnectionError::Unsupported("this connection has a message framer: receive messages from it"));
        }
        match self.stack {
            Some(s) if !s.is_stream() => {
                Err(ConnectionError::Unsupported("this connection carries datagrams: receive messages from it"))
            }
            _ => Ok(()),
        }
    }
}

/// The circumstances of an outcome.
#[inline]
pub(crate) fn cache_key(network: NonZeroU64, remote: &RemoteEndpoint, request: &Compiled) -> CacheKey {
    CacheKey {
        network: network.get(),
        endpoint: remote.hash,
        request: request.fingerprint,
        isolation: request.isolation,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        // The budget is 2 kB for an idle TCP connection, everything included.
        let size = size_of::<Conn>() + size_of::<crate::carrier::channel::Channel>();
        assert!(size <= 288, "{} + {}", size_of::<Conn>(), size_of::<crate::carrier::channel::Channel>());
    }
}
