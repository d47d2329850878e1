//! A connection's own state.

use crate::carrier::FlowId;
use crate::carrier::peer::Peer;
use crate::connection::fast_path::DirectBytes;
use crate::connection::state::Sides;
use crate::connection::state::{RecvSide, SendSide};
use crate::establish::Establishing;
use crate::event::{CandidateOutcome, ConnectionError, SendError, TimelineEntry};
use crate::lazy_box::LazyBox;
use crate::policy::{self, AdviceOf};
use crate::queue::{ReceivedDatagram, SendQueue};
use crate::rate::Rates;
use crate::request::Compiled;
use crate::{LocalEndpoint, RemoteEndpoint, Stack};
use bytes::Bytes;
use core::num::NonZeroU64;
use core::time::Duration;
use neater_base::net::{Ecn, SocketOption};
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
    /// Datagrams dropped because the program did not take them in time, or because its framer could
    /// make nothing of them.
    pub datagrams_dropped: u64,
    /// How long establishment took.
    pub establishment: Duration,
    /// Smoothed round-trip time, where the transport knows it.
    pub rtt: Option<Duration>,
    /// Congestion window in bytes, where the transport knows it.
    pub congestion_window: Option<u64>,
    /// Bytes that wait in the engine's send queue.
    pub queued: usize,
    /// This side's direction has ended, and that end, with all that was sent before it, needs this
    /// process no more: the peer has acknowledged it (QUIC, SCTP), or the system has it (TCP, TLS).
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

/// What most connections never need.
#[derive(Default)]
pub(crate) struct ColdState {
    pub(crate) framer: Option<Box<dyn Framer>>,
    pub(crate) receiver: Receiver,
    /// The framer's handshake, until it is over.
    pub(crate) framer_handshake: Option<Box<crate::framer_handshake::FramerHandshake>>,
    /// Datagrams received and not taken.
    pub(crate) datagrams: VecDeque<ReceivedDatagram>,
    pub(crate) datagram_bytes: usize,
    /// ECN codepoint of the datagram whose messages the framer has found last.
    pub(crate) framed_ecn: Ecn,
    /// How the race went, if there was one.
    pub(crate) timeline: Vec<TimelineEntry>,
    pub(crate) candidates: Vec<CandidateOutcome>,
    /// The idle timeout: of a peer that shares a socket, or as the application has set it.
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) last_activity: Instant,
    pub(crate) idle_armed: bool,
    /// Options set by the program while the connection was not yet established.
    pub(crate) options: Vec<SocketOption>,
    pub(crate) priority: Option<u32>,
    /// Why the connection failed, if it did.
    pub(crate) error: Option<ConnectionError>,
    /// The peer, where several share a socket.
    pub(crate) peer: Option<Peer>,
    /// Sent as early data in a race: sent again if what has won it did not accept it.
    pub(crate) early: Option<Bytes>,
    /// It was accepted, and that is still to be reported.
    pub(crate) first_taken: bool,
    /// Its sending direction was abandoned before it was established, with this code: see
    /// [`crate::Engine::reset_sending`].
    pub(crate) abandoned: Option<u64>,
    /// Receiving was refused before that, with this code: see [`crate::Engine::stop_receiving`].
    pub(crate) refusal: Option<u64>,
    /// When the next message expires, as far as its deadline is set: one is enough, however many
    /// messages have a lifetime.
    pub(crate) expiry_armed: Option<Instant>,
    /// The next deadline of a connection that waits for room for a limited time.
    pub(crate) look_armed: Option<Instant>,
    /// `maxSendRate` and `maxRecvRate`, if either is set.
    pub(crate) rates: Option<Box<Rates>>,
    /// The local endpoints that the program asked for, if any: a clone needs them, too.
    pub(crate) locals: Arc<[LocalEndpoint]>,
    /// The advice of policies, if it changed anything.
    pub(crate) advice: Option<AdviceOf>,
    /// The Connection Properties, if they are not those of the request any more.
    pub(crate) changed: Option<Box<neater_property::ConnectionProperties>>,
    /// The defaults for its messages, if they are not those of the request any more.
    pub(crate) messages: Option<Box<neater_property::MessageProperties>>,
    /// When something was last sent, where only silence shows that the peer is gone
    /// ([`FlowId::ends_by_silence`]).
    pub(crate) spoke: Option<Instant>,
    /// It is only to be found out what would be tried: see [`crate::Engine::plan`].
    pub(crate) planning: bool,
    /// Where its outcome is remembered, of a connection that has no [`Conn::network`]: the network,
    /// and the key.
    pub(crate) outcome_key: Option<(NonZeroU64, CacheKey)>,
    /// The order of stacks that rates of earlier transfers make, if it is another than the
    /// request's.
    pub(crate) order: Option<Box<[Stack]>>,
    /// While it was being established, a peer was found not to be the one that was meant: see
    /// [`crate::establish`].
    pub(crate) refused: bool,
}

impl core::fmt::Debug for ColdState {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ColdState").field("framed", &self.framer.is_some()).finish_non_exhaustive()
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) state: ConnectionState,
    pub(crate) flow: FlowId,
    pub(crate) stack: Option<Stack>,
    /// The direction in which this side sends.
    pub(crate) send: SendSide,
    /// The direction in which this side receives.
    pub(crate) recv: RecvSide,
    /// The program has closed the connection before it was established: it is closed when what was
    /// sent is delivered.
    pub(crate) close_wanted: bool,
    /// No handle refers to it: no events, removed as soon as it is closed.
    pub(crate) released: bool,
    /// A Writable event is owed when there is room.
    pub(crate) wants_room: bool,
    /// PacketInfo from a listener.
    pub(crate) passive: bool,
    /// Writes are gathered until the batch ends.
    pub(crate) batching: bool,
    pub(crate) request: Arc<Compiled>,
    /// Where the connection was to go: needed again for a clone.
    pub(crate) remotes: Arc<[RemoteEndpoint]>,
    pub(crate) est: Option<Box<Establishing>>,
    pub(crate) cold: LazyBox<ColdState>,
    pub(crate) tx: SendQueue,
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
    pub(crate) fast: DirectBytes,
}

/// The connections.
#[derive(Debug, Default)]
pub(crate) struct Conns(Slab<Conn>);

impl Conns {
    /// The connection, to be changed: what is known of its bytes need not hold any more.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Conn> {
        let c = self.0.get_mut(key)?;
        if c.fast.is_known() {
            c.fast.forget();
        }
        Some(c)
    }

    /// The connection, to count its bytes, to note whether there are any and which task waits for
    /// them, and to change nothing else.
    #[inline]
    pub(crate) fn get_fast(&mut self, key: Key) -> Option<&mut Conn> {
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
    /// Why nothing can be sent any more: the program has ended it, or the peer.
    pub(crate) fn send_refusal(&self) -> SendError {
        match self.error() {
            Some(e) if self.send.is_unwanted() => SendError::Connection(e.clone()),
            _ => SendError::AfterFinal,
        }
    }

    #[inline(always)]
    pub(crate) fn new(request: Arc<Compiled>, remotes: Arc<[RemoteEndpoint]>, now: Instant) -> Self {
        Self {
            state: ConnectionState::Establishing,
            flow: FlowId::None,
            stack: None,
            send: SendSide::Open,
            recv: RecvSide::Open,
            close_wanted: false,
            released: false,
            wants_room: false,
            passive: false,
            batching: false,
            request,
            remotes,
            est: None,
            cold: LazyBox::NOTHING,
            tx: SendQueue::default(),
            group: None,
            began: now,
            since: now,
            network: None,
            bytes_sent: 0,
            bytes_received: 0,
            messages_sent: 0,
            messages_received: 0,
            dropped: 0,
            fast: DirectBytes::NONE,
        }
    }

    /// Under which the outcome of its race is remembered, if it is.
    pub(crate) fn cache_key(&self) -> Option<CacheKey> {
        self.cache_key_of(self.network?, 0)
    }

    /// Where outcomes of this connection with one of its remote endpoints are remembered.
    pub(crate) fn cache_key_of(&self, network: NonZeroU64, remote: usize) -> Option<CacheKey> {
        let mut key = cache_key(network, self.remotes.get(remote)?, &self.request);
        key.request ^= policy::number(self.advice(), remote);
        Some(key)
    }

    /// The advice of policies, if it changed anything.
    pub(crate) fn advice(&self) -> Option<&AdviceOf> {
        self.cold.as_ref()?.advice.as_ref()
    }

    /// The rarely needed part, made when first asked for.
    pub(crate) fn cold(&mut self) -> &mut ColdState {
        self.cold.get_or_insert_default()
    }

    /// Whether nothing waits for its being established but the program: no race, no queue, no
    /// framer, no call.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        let waited_for = !self.send.is_open() || self.wants_room || self.close_wanted;
        self.est.is_none() && self.cold.is_none() && self.tx.is_empty() && self.request.direct && !waited_for
    }

    /// Why the connection failed, if it did.
    pub(crate) fn error(&self) -> Option<&ConnectionError> {
        self.cold.as_ref()?.error.as_ref()
    }

    /// See [`ConnectionStats::ended`].
    pub(crate) fn end_is_out(&self) -> bool {
        self.send.is_finished() && (self.send.is_settled() || self.send.is_absent() || !self.flow.acknowledges_end())
    }

    /// Its two directions.
    pub(crate) fn sides(&self) -> Sides {
        Sides {
            untouched: self.bytes_sent == 0 && self.bytes_received == 0,
            read_closed: !self.recv.may_read(),
            peer_ended: self.recv.has_peer_finished(),
            fin_done: self.send.is_finished(),
            fin_acked: self.send.is_settled(),
        }
    }

    /// Whether its stream's sending direction was given up before the peer had everything.
    pub(crate) fn given_up(&self) -> bool {
        self.send.is_unwanted() && !self.send.is_settled() && self.error().is_some()
    }

    /// With what the connection ends, if that is so.
    pub(crate) fn refusal(&self) -> Option<ConnectionError> {
        self.error().filter(|_| self.given_up()).cloned()
    }

    /// Whether bytes may be written, and nothing waits to be written before them.
    #[inline]
    pub(crate) fn may_write_bytes(&self) -> bool {
        self.is_open() && self.send.is_open() && self.tx.is_empty() && !self.is_special() && self.request.may_send
    }

    /// Whether bytes may be read.
    #[inline]
    pub(crate) fn may_read_bytes(&self) -> bool {
        self.is_open() && self.recv.may_read() && !self.is_special() && self.request.may_receive
    }

    /// Whether something stands between the program and the bytes of the transport: a framer, or a
    /// rate.
    #[inline]
    fn is_special(&self) -> bool {
        self.cold.as_ref().is_some_and(|e| e.framer.is_some() || e.rates.is_some())
    }

    /// Whether nothing waits for its socket to take it: no data, no end, and no call that wants
    /// room. Known of plain streams only.
    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        self.stack.is_some_and(Stack::is_plain_stream)
            && self.tx.is_empty()
            && !self.wants_room
            && (self.send.is_finished() || self.send.is_open())
            && self.state == ConnectionState::Established
    }

    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.state == ConnectionState::Established
    }

    #[inline]
    pub(crate) fn framed(&self) -> bool {
        self.cold.as_ref().is_some_and(|e| e.framer.is_some())
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
        assert!(size <= 312, "{} + {}", size_of::<Conn>(), size_of::<crate::carrier::channel::Channel>());
    }
}
