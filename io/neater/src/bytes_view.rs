//! A connection as a stream of bytes.

use crate::shared::{State, Wait};
use crate::{Connection, ConnectionError, ConnectionId, SendError};
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::task::{Context, Poll};
use neater_engine::QuicError;
use neater_net::OsDirectStream;
use std::any::Any;
use std::io::{self, IoSlice};
use std::sync::OnceLock;

/// A connection without framer over a transport without boundaries, as bytes.
///
/// Implements [`tokio::io::AsyncRead`] and [`tokio::io::AsyncWrite`]. Writes go straight to the
/// transport, so flushing has nothing to do: what was written is with the system (TCP) or with the
/// session in this process (TLS, QUIC), which sends it as soon as the path allows while the process
/// lives. Shutting down ends this side's direction and leaves the other open; it is done when the
/// end needs this process no more, which is when the system has everything (TCP, TLS) or the peer
/// has acknowledged everything, or has ended the session in order (QUIC). Only
/// [`Connection::close`] waits for the peer on every transport.
///
/// A task that never has to wait lets others have their turn all the same: after 128 reads and
/// writes in a row one of them is pending although it need not be, and wakes its task at once.
#[derive(Debug)]
pub struct ByteStream {
    connection: Connection,
    /// A way past the engine and its lock, made when bytes first flow.
    direct: OnceLock<OsDirectStream>,
    /// There is none.
    no_direct: AtomicBool,
    /// How many more reads and writes there may be before one has to wait.
    left: AtomicU32,
}

/// See [`ByteStream::write_all`]. By hand, because a program that writes little at a time makes one
/// for each write.
struct WriteAll<'a> {
    stream: &'a ByteStream,
    /// What is left.
    buf: &'a [u8],
}

impl Future for WriteAll<'_> {
    type Output = io::Result<()>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        while !this.buf.is_empty() {
            let quick = this.stream.direct_in_budget().and_then(|direct| direct.write(this.buf));
            let n = match quick {
                Some(n) => n.get(),
                None => match this.stream.poll_write_in_full(cx, &[IoSlice::new(this.buf)]) {
                    Poll::Ready(Ok(n)) => n,
                    Poll::Ready(Err(e)) => return Poll::Ready(Err(write_error(e))),
                    Poll::Pending => return Poll::Pending,
                },
            };
            match this.buf.get(n..) {
                Some(left) if !left.is_empty() => this.buf = left,
                // What is left of it is not looked at again.
                _ => return Poll::Ready(Ok(())),
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Reads and writes in a row before others have their turn.
const BUDGET: u32 = 128;

impl ByteStream {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { connection, direct: OnceLock::new(), no_direct: AtomicBool::new(false), left: AtomicU32::new(BUDGET) }
    }

    /// Counts one; `None` when it is time for others. A count that two threads lose makes that a
    /// little later.
    #[inline(always)]
    fn direct_in_budget(&self) -> Option<&OsDirectStream> {
        let direct = self.direct.get()?;
        // Counted down, because that it is over is seen from the sign.
        let left = self.left.load(Ordering::Relaxed).wrapping_sub(1);
        self.left.store(left, Ordering::Relaxed);
        (left.cast_signed() >= 0).then_some(direct)
    }

    /// Bytes have flowed: makes the direct stream, if there is none and may be one.
    fn find_direct(&self, s: &mut State, id: ConnectionId) {
        if self.direct.get().is_none() && !self.no_direct.load(Ordering::Relaxed) {
            // By its own name, so that it is compiled into the program's loop. No other network
            // here has direct streams.
            match s
                .engine
                .direct_stream(id)
                .and_then(|direct| (direct as Box<dyn Any>).downcast::<OsDirectStream>().ok())
            {
                Some(direct) => drop(self.direct.set(*direct)),
                None => self.no_direct.store(true, Ordering::Relaxed),
            }
        }
    }

    /// Whether others must have their turn first. They get it: this task is woken again behind
    /// them.
    #[inline]
    fn must_yield(&self, cx: &Context<'_>) -> bool {
        // The direct stream may have counted below it.
        let left = self.left.load(Ordering::Relaxed).cast_signed();
        let over = left <= 0;
        self.left.store(if over { BUDGET } else { left.cast_unsigned() - 1 }, Ordering::Relaxed);
        if over {
            cx.waker().wake_by_ref();
        }
        over
    }

    /// A waiter does not keep other callers from their turn.
    #[inline]
    fn waits(&self) {
        self.left.store(BUDGET, Ordering::Relaxed);
    }

    /// Reads into `buf` what there is, at least one byte unless `buf` is empty; `Ok(0)` is the end
    /// of the peer's direction. Cancel-safe: what is not returned is not read.
    ///
    /// # Errors
    /// Why the connection is over.
    pub async fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        if let Some(direct) = self.direct_in_budget()
            && let Some(n) = direct.read(buf)
        {
            return Ok(n.get());
        }
        poll_fn(|cx| self.poll_read_bytes(cx, buf)).await.map_err(read_error)
    }

    /// Writes all of `buf`. Dropping the future leaves it unknown how much was written.
    ///
    /// # Errors
    /// Why nothing can be written any more.
    #[inline]
    pub fn write_all<'a>(&'a self, buf: &'a [u8]) -> impl Future<Output = io::Result<()>> + Send + 'a {
        WriteAll { stream: self, buf }
    }

    /// Ends this side's direction, and waits until that end needs this process no more, as
    /// [`ByteStream::poll_end`] does.
    ///
    /// # Errors
    /// Why what was written may not arrive.
    pub async fn end(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_end(cx)).await.map_err(write_error)
    }

    /// The connection behind it.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Back to the connection.
    #[must_use]
    pub fn into_connection(self) -> Connection {
        self.connection
    }

    /// Reads into `buf`; `Ok(0)` is the end of the peer's direction, unless `buf` is empty.
    ///
    /// # Errors
    /// Why the connection is over.
    #[inline]
    pub fn poll_read_bytes(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<Result<usize, ConnectionError>> {
        if let Some(direct) = self.direct_in_budget()
            && let Some(n) = direct.read(buf)
        {
            return Poll::Ready(Ok(n.get()));
        }
        self.poll_read_in_full(cx, buf)
    }

    #[inline(never)]
    fn poll_read_in_full(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<Result<usize, ConnectionError>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if self.must_yield(cx) {
            return Poll::Pending;
        }
        let id = self.connection.id();
        let read = self.connection.handle().with(|s| {
            // What the engine would find, by a longer way.
            if self.direct.get().is_some_and(OsDirectStream::is_dry) {
                s.wait(id, Wait::Readable, cx.waker());
                return Ok(None);
            }
            let read = s.engine.read(id, buf).map_err(Box::new);
            match read {
                Ok(None) => s.wait(id, Wait::Readable, cx.waker()),
                // The end needs none: many connections carry nothing.
                Ok(Some(1..)) => self.find_direct(s, id),
                _ => {}
            }
            read
        });
        match read {
            Ok(Some(n)) => Poll::Ready(Ok(n)),
            Ok(None) => {
                self.waits();
                Poll::Pending
            }
            Err(e) => Poll::Ready(Err(*e)),
        }
    }

    /// Writes some of `bufs`.
    ///
    /// # Errors
    /// Why nothing can be written any more.
    #[inline]
    pub fn poll_write_bytes(&self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<Result<usize, SendError>> {
        if let [buf] = bufs
            && !buf.is_empty()
            && let Some(direct) = self.direct_in_budget()
            && let Some(n) = direct.write(buf)
        {
            return Poll::Ready(Ok(n.get()));
        }
        self.poll_write_in_full(cx, bufs)
    }

    /// Ends this side's direction, and waits until that end needs this process no more.
    ///
    /// # Errors
    /// Why what was written may not arrive. A connection that is closed in order has nothing to
    /// end: over QUIC, the peer of a session that either side has ended in order is taken to have
    /// what had left by then.
    pub fn poll_end(&self, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        let id = self.connection.id();
        self.connection.handle().with(|s| match s.engine.finish(id) {
            Ok(()) if s.engine.connection_stats(id).is_none_or(|stats| stats.ended) => Poll::Ready(Ok(())),
            Ok(()) => {
                s.wait(id, Wait::Writable, cx.waker());
                Poll::Pending
            }
            Err(SendError::Connection(ConnectionError::Closed)) => Poll::Ready(Ok(())),
            Err(e) => Poll::Ready(Err(e)),
        })
    }

    #[inline(never)]
    fn poll_write_in_full(&self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<Result<usize, SendError>> {
        if bufs.iter().all(|b| b.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        if self.must_yield(cx) {
            return Poll::Pending;
        }
        let id = self.connection.id();
        // The error is boxed inside: what is carried out on every call is small.
        let written = self.connection.handle().with(|s| {
            let written = s.engine.write(id, bufs).map_err(Box::new);
            match written {
                Ok(None) => s.wait(id, Wait::Writable, cx.waker()),
                Ok(Some(_)) => self.find_direct(s, id),
                _ => {}
            }
            written
        });
        match written {
            Ok(Some(n)) => Poll::Ready(Ok(n)),
            Ok(None) => {
                self.waits();
                Poll::Pending
            }
            Err(e) => Poll::Ready(Err(*e)),
        }
    }
}

fn read_error(e: ConnectionError) -> io::Error {
    use neater_base::net::ErrorKind as K;
    let kind = match &e {
        ConnectionError::Net(n) => match n.kind {
            K::ConnectionReset => io::ErrorKind::ConnectionReset,
            K::ConnectionAborted => io::ErrorKind::ConnectionAborted,
            K::BrokenPipe => io::ErrorKind::BrokenPipe,
            K::TimedOut => io::ErrorKind::TimedOut,
            _ => io::ErrorKind::Other,
        },
        ConnectionError::StreamReset(_) => io::ErrorKind::ConnectionReset,
        ConnectionError::Truncated => io::ErrorKind::UnexpectedEof,
        ConnectionError::LocalAbort => io::ErrorKind::ConnectionAborted,
        ConnectionError::TimedOut | ConnectionError::Quic(QuicError::TimedOut | QuicError::NoViablePath) => {
            io::ErrorKind::TimedOut
        }
        ConnectionError::Closed => io::ErrorKind::NotConnected,
        ConnectionError::Tls(_) => io::ErrorKind::InvalidData,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, e)
}

fn write_error(e: SendError) -> io::Error {
    match e {
        SendError::Connection(e) => read_error(e),
        SendError::AfterFinal => io::Error::new(io::ErrorKind::BrokenPipe, e),
        e => io::Error::other(e),
    }
}

#[cfg(feature = "tokio")]
mod tokio_traits {
    use super::{ByteStream, read_error, write_error};
    use core::pin::Pin;
    use core::sync::atomic::Ordering;
    use core::task::{Context, Poll, ready};
    use std::io::{self, IoSlice};
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    /// What is filled at a time, in bytes: what is to be read into is zeroed first, and so much of
    /// it stays in the processor's cache.
    const READ_MOST: usize = 64 << 10;
    /// What is filled at a time where there is no direct stream: a record of TLS (RFC 8446 section
    /// 5.1) or a packet of QUIC gives no more, and zeroing four times as much for each is a
    /// twentieth of what it costs.
    const READ_RECORD: usize = 16 << 10;

    impl AsyncRead for ByteStream {
        #[inline]
        fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            if buf.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            let most = if self.no_direct.load(Ordering::Relaxed) { READ_RECORD } else { READ_MOST };
            let most = buf.remaining().min(most);
            let n = ready!(self.poll_read_bytes(cx, buf.initialize_unfilled_to(most))).map_err(read_error)?;
            buf.advance(n);
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for ByteStream {
        #[inline]
        fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            self.poll_write_bytes(cx, &[IoSlice::new(buf)]).map_err(write_error)
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bufs: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            self.poll_write_bytes(cx, bufs).map_err(write_error)
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        /// Nothing is held back here: see [`ByteStream`] for what that means.
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.poll_end(cx).map_err(write_error)
        }
    }
}
