//! neater's groups and connections as h3's QUIC: the one place where the two meet.
//!
//! *Responsible for* opening, accepting, reading, writing and ending streams in the words of
//! `h3::quic`, and for how many bytes h3 may be made to gather. *Not responsible for* HTTP: that is
//! h3's.
//!
//! *Invariants*: a stream that was neither finished nor reset when its sending half goes is reset,
//! so that half an answer never looks like a whole one; h3 gathers a field section before it looks
//! at it, so each stream has a [`Budget`], and a peer that exceeds it loses the stream.

use crate::frames::{Frames, OutOfOrder};
use crate::lock;
use bytes::{Buf, Bytes, BytesMut};
use core::task::{Context, Poll, ready};
use h3::error::Code;
use h3::quic::{
    BidiStream, Connection as QuicConnection, ConnectionErrorIncoming, OpenStreams, RecvStream, SendStream,
    StreamErrorIncoming, StreamId, WriteBuf,
};
use neater::{ByteStream, Connection, ConnectionError, Delivery, Group, SendError, StreamDirection};
use neater_quic::QuicError;
use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// Bytes taken from a stream at once.
const READ: usize = 64 << 10;
/// Less room than this is not worth a call.
const READ_MIN: usize = 4 << 10;
/// Room that is made at first, which is enough for control streams and most requests, and later on.
const ROOM: [usize; 2] = [8 << 10, 256 << 10];
/// Streams of one kind that wait here while h3 asks for the other. More wait in the engine, whose
/// bounds the peer feels.
const ASIDE: usize = 64;
/// Bytes that a peer may send on one of its control streams: settings and a few frames, for as long
/// as it lasts.
const CONTROL_BUDGET: u64 = 1 << 20;

/// How many bytes may still arrive before the earlier ones are parsed.
#[derive(Debug)]
pub(crate) struct Budget {
    left: AtomicU64,
    full: u64,
}

impl Budget {
    fn new(full: u64) -> Arc<Self> {
        Arc::new(Self { left: AtomicU64::new(full), full })
    }

    /// What came was of use: as much again may come.
    pub(crate) fn renew(&self) {
        self.left.store(self.full, Ordering::Relaxed);
    }

    /// Takes `n` bytes; false when there were not so many.
    fn take(&self, n: u64) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(n), Ordering::Relaxed);
        left >= n
    }
}

/// Which side this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

/// A QUIC connection for h3.
pub(crate) struct Session {
    shared: Arc<Shared>,
    /// Streams that wait for the peer's permission: two-way, one-way.
    opening: [Option<Connection>; 2],
}

struct Shared {
    group: Group,
    side: Side,
    /// Streams of the peer that came while the other kind was asked for: at most [`ASIDE`] of each,
    /// because the transport counts no stream that the peer has opened and reset.
    accepted: Mutex<[VecDeque<Connection>; 2]>,
    /// The stream that the race opened: the first request travels on it.
    first: Mutex<Option<Connection>>,
    /// Bytes of a request or answer before its end of head, and between two pieces of its body.
    head: u64,
    /// Of the streams that this side opened for requests and that were not requested yet.
    budgets: Mutex<BTreeMap<u64, Arc<Budget>>>,
    /// Streams that are ended and not yet delivered.
    undelivered: Arc<AtomicUsize>,
    /// The request that h3 has got last.
    taken: Mutex<Weak<Stream>>,
}

/// A request that h3 has got.
pub(crate) struct Taken(Weak<Stream>);

impl Taken {
    /// `call` is called when the stream is over: with true if the peer has all that was sent on it.
    pub(crate) fn on_end(&self, call: impl FnOnce(bool) + Send + 'static) {
        match self.0.upgrade() {
            Some(stream) => *lock(&stream.on_end) = Some(Box::new(call)),
            None => call(false),
        }
    }

    /// How many bytes of the answer the transport has taken: it takes more when the peer has room.
    pub(crate) fn written(&self) -> u64 {
        self.0.upgrade().map_or(0, |stream| stream.written.load(Ordering::Relaxed))
    }

    /// Ends when the peer has given it up, or has gone: in either direction nothing more comes, or
    /// can go.
    pub(crate) async fn over(&self) {
        if let Some(stream) = self.0.upgrade()
            && let Some(bytes) = &stream.bytes
        {
            let _ = bytes.connection().closed().await;
        }
    }
}

/// Two-way, one-way.
const fn index(direction: StreamDirection) -> usize {
    match direction {
        StreamDirection::Both => 0,
        StreamDirection::One => 1,
    }
}

impl Session {
    fn new(group: Group, side: Side, first: Option<Connection>, head: u64) -> Self {
        let shared = Shared {
            group,
            side,
            accepted: Mutex::default(),
            first: Mutex::new(first),
            head,
            budgets: Mutex::default(),
            undelivered: Arc::default(),
            taken: Mutex::default(),
        };
        Self { shared: Arc::new(shared), opening: [None, None] }
    }

    /// The connection that a race has given, with its group. An answer's head may have `head`
    /// bytes.
    pub(crate) fn client(first: Connection, group: Group, head: u64) -> Self {
        Self::new(group, Side::Client, Some(first), head)
    }

    /// A group that a listener has received. A whole request may have `head` bytes.
    pub(crate) fn server(group: Group, head: u64) -> Self {
        Self::new(group, Side::Server, None, head)
    }

    /// The budget of a request's stream; once.
    pub(crate) fn budget(&self, stream: u64) -> Option<Arc<Budget>> {
        lock(&self.shared.budgets).remove(&stream)
    }

    /// How many ended streams the peer has not yet acknowledged.
    pub(crate) fn undelivered(&self) -> Arc<AtomicUsize> {
        self.shared.undelivered.clone()
    }

    /// Ends the session with this code, also when the session itself has gone into a future that is
    /// given up.
    pub(crate) fn closer(&self) -> impl Fn(h3::error::Code, &[u8]) + use<> {
        let shared = self.shared.clone();
        move |code, why| shared.group.close_session(code.value(), why)
    }

    /// Whether the session is over, for tasks that do not wait for streams.
    pub(crate) fn is_over(&self) -> impl Fn() -> bool + use<> {
        let shared = self.shared.clone();
        move || shared.group.is_over()
    }

    /// Returns what the peer has acknowledged. What is pending is the number of its streams that
    /// are ended and not delivered.
    pub(crate) fn delivery(&self) -> impl Fn() -> Option<Delivery> + use<> {
        let shared = self.shared.clone();
        move || {
            let pending = shared.undelivered.load(Ordering::Acquire) as u64;
            shared.group.delivery().map(|seen| Delivery { pending, ..seen })
        }
    }

    /// Gives the request that h3 has got last.
    pub(crate) fn taken(&self) -> impl Fn() -> Taken + use<> {
        let shared = self.shared.clone();
        move || Taken(core::mem::take(&mut *lock(&shared.taken)))
    }

    fn poll_accept(
        &mut self,
        cx: &mut Context<'_>,
        direction: StreamDirection,
    ) -> Poll<Result<Connection, ConnectionErrorIncoming>> {
        let wanted = index(direction);
        loop {
            if let Some(c) = lock(&self.shared.accepted)[wanted].pop_front() {
                return Poll::Ready(Ok(c));
            }
            if lock(&self.shared.accepted)[1 - wanted].len() >= ASIDE {
                // h3 asks for both kinds from one task: it takes some of the others first.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let c = ready!(self.shared.group.poll_accept(cx)).map_err(connection_error)?;
            // RFC 9000 section 2.1: the second-lowest bit of a stream's number is set for a stream
            // of one direction.
            let kind = usize::from(c.stream_number().is_some_and(|n| n & 2 != 0));
            lock(&self.shared.accepted)[kind].push_back(c);
            if kind != wanted {
                // h3 asks for both kinds from one task: let it come round again.
                cx.waker().wake_by_ref();
            }
        }
    }

    fn poll_open(
        &mut self,
        cx: &mut Context<'_>,
        direction: StreamDirection,
    ) -> Poll<Result<Connection, StreamErrorIncoming>> {
        let Some(slot) = self.opening.get_mut(index(direction)) else { return Poll::Pending };
        if slot.is_none() {
            let first = if direction == StreamDirection::Both { lock(&self.shared.first).take() } else { None };
            *slot = Some(match first {
                Some(c) => c,
                None => self.shared.group.open(direction).map_err(lost)?,
            });
        }
        if let Some(c) = slot {
            ready!(c.poll_ready(cx)).map_err(lost)?;
        }
        match slot.take() {
            Some(c) => Poll::Ready(Ok(c)),
            None => Poll::Pending,
        }
    }
}

impl Clone for Session {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), opening: [None, None] }
    }
}

/// The end of a session in h3's words.
pub(crate) fn connection_error(e: ConnectionError) -> ConnectionErrorIncoming {
    match e {
        ConnectionError::Quic(QuicError::Closed { code, .. }) => {
            ConnectionErrorIncoming::ApplicationClose { error_code: code }
        }
        ConnectionError::Quic(QuicError::TimedOut | QuicError::NoViablePath) | ConnectionError::TimedOut => {
            ConnectionErrorIncoming::Timeout
        }
        e => ConnectionErrorIncoming::Undefined(Arc::new(e)),
    }
}

fn lost(e: neater::EstablishmentError) -> StreamErrorIncoming {
    let connection_error = ConnectionErrorIncoming::Undefined(Arc::new(e));
    StreamErrorIncoming::ConnectionErrorIncoming { connection_error }
}

fn stream_error(e: ConnectionError) -> StreamErrorIncoming {
    match e {
        ConnectionError::StreamReset(error_code) => StreamErrorIncoming::StreamTerminated { error_code },
        e => StreamErrorIncoming::ConnectionErrorIncoming { connection_error: connection_error(e) },
    }
}

impl QuicConnection<Bytes> for Session {
    type RecvStream = Receiving;
    type OpenStreams = Self;

    fn poll_accept_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Receiving, ConnectionErrorIncoming>> {
        let c = ready!(self.poll_accept(cx, StreamDirection::One))?;
        let stream = Stream::new(c, None).map_err(connection_error)?;
        Poll::Ready(Ok(Receiving::new(stream, Budget::new(CONTROL_BUDGET), None)))
    }

    fn poll_accept_bidi(&mut self, cx: &mut Context<'_>) -> Poll<Result<TwoWay, ConnectionErrorIncoming>> {
        let c = ready!(self.poll_accept(cx, StreamDirection::Both))?;
        let stream = Stream::new(c, Some(self.shared.undelivered.clone())).map_err(connection_error)?;
        *lock(&self.shared.taken) = Arc::downgrade(&stream);
        // A server that has answered does not need the rest of the request (RFC 9114 section 4.1).
        let receiving = Receiving::new(stream.clone(), Budget::new(self.shared.head), Some(Code::H3_NO_ERROR));
        Poll::Ready(Ok(TwoWay { sending: Sending::new(stream), receiving }))
    }

    fn opener(&self) -> Self {
        self.clone()
    }
}

impl OpenStreams<Bytes> for Session {
    type BidiStream = TwoWay;
    type SendStream = Sending;

    fn poll_open_bidi(&mut self, cx: &mut Context<'_>) -> Poll<Result<TwoWay, StreamErrorIncoming>> {
        let c = ready!(self.poll_open(cx, StreamDirection::Both))?;
        let stream = Stream::new(c, None).map_err(stream_error)?;
        let budget = Budget::new(self.shared.head);
        if self.shared.side == Side::Client {
            lock(&self.shared.budgets).insert(stream.id.into_inner(), budget.clone());
        }
        let mut receiving = Receiving::new(stream.clone(), budget, Some(Code::H3_REQUEST_CANCELLED));
        receiving.frames = (self.shared.side == Side::Client).then(Frames::default);
        Poll::Ready(Ok(TwoWay { sending: Sending::new(stream), receiving }))
    }

    fn poll_open_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<Sending, StreamErrorIncoming>> {
        let c = ready!(self.poll_open(cx, StreamDirection::One))?;
        Poll::Ready(Ok(Sending::new(Stream::new(c, None).map_err(stream_error)?)))
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.shared.group.close_session(code.value(), reason);
    }
}

/// What both halves of a stream share.
struct Stream {
    bytes: Option<ByteStream>,
    id: StreamId,
    /// Counts the stream from its end to its delivery.
    undelivered: Option<Arc<AtomicUsize>>,
    /// Bytes that the transport has taken.
    written: AtomicU64,
    /// What wants to know how it ended.
    on_end: Mutex<Option<OnEnd>>,
}

/// See [`Taken::on_end`].
type OnEnd = Box<dyn FnOnce(bool) + Send>;

impl Stream {
    fn new(c: Connection, undelivered: Option<Arc<AtomicUsize>>) -> Result<Arc<Self>, ConnectionError> {
        let number = c.stream_number().ok_or(ConnectionError::Closed)?;
        let id = StreamId::try_from(number).map_err(|_| ConnectionError::Closed)?;
        let bytes = c.into_bytes().map_err(|(_, e)| e)?;
        Ok(Arc::new(Self { bytes: Some(bytes), id, undelivered, written: AtomicU64::new(0), on_end: Mutex::default() }))
    }

    fn bytes(&self) -> Result<&ByteStream, StreamErrorIncoming> {
        self.bytes.as_ref().ok_or_else(|| stream_error(ConnectionError::Closed))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let (Some(bytes), Some(count)) = (self.bytes.take(), self.undelivered.take()) else { return };
        let on_end = lock(&self.on_end).take();
        // Closing goes on without us in any case; what is wanted here is to know when it is done.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        count.fetch_add(1, Ordering::AcqRel);
        let closing = async move {
            let closed = bytes.into_connection().close().await;
            count.fetch_sub(1, Ordering::AcqRel);
            if let Some(on_end) = on_end {
                on_end(closed.is_ok());
            }
        };
        drop(runtime.spawn(closing));
    }
}

/// The sending half of a stream.
pub(crate) struct Sending {
    stream: Arc<Stream>,
    writing: Option<WriteBuf<Bytes>>,
    ended: bool,
}

impl Sending {
    fn new(stream: Arc<Stream>) -> Self {
        Self { stream, writing: None, ended: false }
    }
}

impl SendStream<Bytes> for Sending {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        while let Some(buf) = self.writing.as_mut().filter(|b| b.has_remaining()) {
            let written = ready!(self.stream.bytes()?.poll_write_bytes(cx, &[IoSlice::new(buf.chunk())]));
            match written {
                Ok(n) => {
                    buf.advance(n);
                    self.stream.written.fetch_add(n as u64, Ordering::Relaxed);
                }
                Err(SendError::Connection(e)) => return Poll::Ready(Err(stream_error(e))),
                Err(e) => return Poll::Ready(Err(StreamErrorIncoming::Unknown(Box::new(e)))),
            }
        }
        self.writing = None;
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        if self.writing.is_some() {
            return Err(StreamErrorIncoming::Unknown("the stream was not ready for more".into()));
        }
        self.writing = Some(data.into());
        Ok(())
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        ready!(self.poll_ready(cx))?;
        self.ended = true;
        Poll::Ready(match self.stream.bytes()?.connection().finish() {
            Ok(()) => Ok(()),
            Err(SendError::Connection(e)) => Err(stream_error(e)),
            Err(e) => Err(StreamErrorIncoming::Unknown(Box::new(e))),
        })
    }

    fn reset(&mut self, reset_code: u64) {
        self.ended = true;
        if let Ok(bytes) = self.stream.bytes() {
            bytes.connection().reset_sending(reset_code);
        }
    }

    fn send_id(&self) -> StreamId {
        self.stream.id
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if !self.ended {
            self.reset(Code::H3_REQUEST_CANCELLED.value());
        }
    }
}

/// The receiving half of a stream.
pub(crate) struct Receiving {
    stream: Arc<Stream>,
    buffer: BytesMut,
    used: bool,
    /// How the peer's direction has ended, behind what is still to be passed on.
    end: Option<Result<(), ConnectionError>>,
    budget: Arc<Budget>,
    /// The code for the peer when the rest is not wanted.
    cancel: Option<Code>,
    /// Of an answer.
    frames: Option<Frames>,
}

impl Receiving {
    fn new(stream: Arc<Stream>, budget: Arc<Budget>, cancel: Option<Code>) -> Self {
        Self { stream, buffer: BytesMut::new(), used: false, end: None, budget, cancel, frames: None }
    }
}

impl RecvStream for Receiving {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        loop {
            let came = ready!(self.poll_bytes(cx))?;
            let broken = |code: Code| StreamErrorIncoming::StreamTerminated { error_code: code.value() };
            return Poll::Ready(match (came, &mut self.frames) {
                (Some(came), Some(frames)) => match frames.take(came) {
                    Ok(passed) if passed.is_empty() => continue,
                    Ok(passed) => Ok(Some(passed)),
                    Err(OutOfOrder) => {
                        self.stop_sending(Code::H3_FRAME_UNEXPECTED.value());
                        Err(broken(Code::H3_FRAME_UNEXPECTED))
                    }
                },
                // RFC 9114 section 7.1: a stream ends between two frames.
                (None, Some(frames)) if !frames.is_whole() => Err(broken(Code::H3_FRAME_ERROR)),
                (came, _) => Ok(came),
            });
        }
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.cancel = None;
        if let Ok(bytes) = self.stream.bytes() {
            bytes.connection().stop_receiving(error_code);
        }
    }

    fn recv_id(&self) -> StreamId {
        self.stream.id
    }
}

impl Receiving {
    /// What has come, whatever it is.
    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        if self.buffer.len() < READ_MIN {
            let [first, later] = ROOM;
            self.buffer = BytesMut::zeroed(if core::mem::replace(&mut self.used, true) { later } else { first });
        }
        let room = self.buffer.len().min(READ);
        let mut n = 0;
        // QUIC brings a packet's worth at a time: gather what is there, so that it is worth passing
        // on.
        while n < room && self.end.is_none() {
            match self.stream.bytes()?.poll_read_bytes(cx, &mut self.buffer[n..room]) {
                Poll::Pending if n == 0 => return Poll::Pending,
                Poll::Pending => break,
                Poll::Ready(Ok(0)) => self.end = Some(Ok(())),
                Poll::Ready(Ok(more)) => n += more,
                Poll::Ready(Err(e)) => self.end = Some(Err(e)),
            }
        }
        if n == 0 {
            self.cancel = None;
            return Poll::Ready(match self.end.clone() {
                Some(Err(e)) => Err(stream_error(e)),
                _ => Ok(None),
            });
        }
        if !self.budget.take(n as u64) {
            self.stop_sending(Code::H3_EXCESSIVE_LOAD.value());
            let error_code = Code::H3_EXCESSIVE_LOAD.value();
            return Poll::Ready(Err(StreamErrorIncoming::StreamTerminated { error_code }));
        }
        Poll::Ready(Ok(Some(self.buffer.split_to(n).freeze())))
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if let Some(code) = self.cancel.take() {
            self.stop_sending(code.value());
        }
    }
}

/// A stream of both directions.
pub(crate) struct TwoWay {
    sending: Sending,
    receiving: Receiving,
}

impl SendStream<Bytes> for TwoWay {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.sending.poll_ready(cx)
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.sending.send_data(data)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.sending.poll_finish(cx)
    }

    fn reset(&mut self, reset_code: u64) {
        self.sending.reset(reset_code);
    }

    fn send_id(&self) -> StreamId {
        self.sending.send_id()
    }
}

impl RecvStream for TwoWay {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.receiving.poll_data(cx)
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.receiving.stop_sending(error_code);
    }

    fn recv_id(&self) -> StreamId {
        self.receiving.recv_id()
    }
}

impl BidiStream<Bytes> for TwoWay {
    type SendStream = Sending;
    type RecvStream = Receiving;

    fn split(self) -> (Sending, Receiving) {
        (self.sending, self.receiving)
    }
}
