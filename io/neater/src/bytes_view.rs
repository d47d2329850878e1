//! A connection as a stream of bytes.

use crate::shared::Wait;
use crate::{Connection, ConnectionError, SendError};
use core::task::{Context, Poll};
use std::io::{self, IoSlice};

/// A connection without framer over a transport without boundaries, as bytes.
///
/// Implements [`tokio::io::AsyncRead`] and [`tokio::io::AsyncWrite`]. Writes go straight to the transport; shutting down
/// ends this side's direction and leaves the other open.
#[derive(Debug)]
pub struct ByteStream {
    connection: Connection,
}

impl ByteStream {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { connection }
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

    /// Reads into `buf`; `Ok(0)` is the end of the peer's direction.
    ///
    /// # Errors
    /// Why the connection is over.
    pub fn poll_read_bytes(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<Result<usize, ConnectionError>> {
        let id = self.connection.id();
        let read = self.connection.handle().with(|s| {
            let read = s.engine.read(id, buf).map_err(Box::new);
            if let Ok(None) = read {
                s.wait(id, Wait::Readable, cx.waker());
            }
            read
        });
        match read {
            Ok(Some(n)) => Poll::Ready(Ok(n)),
            Ok(None) => Poll::Pending,
            Err(e) => Poll::Ready(Err(*e)),
        }
    }

    /// Writes some of `bufs`.
    ///
    /// # Errors
    /// Why nothing can be written any more.
    pub fn poll_write_bytes(&self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<Result<usize, SendError>> {
        if bufs.iter().all(|b| b.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        let id = self.connection.id();
        // The error is boxed inside: what is carried out on every call is small.
        let written = self.connection.handle().with(|s| {
            let written = s.engine.write(id, bufs).map_err(Box::new);
            if let Ok(None) = written {
                s.wait(id, Wait::Writable, cx.waker());
            }
            written
        });
        match written {
            Ok(Some(n)) => Poll::Ready(Ok(n)),
            Ok(None) => Poll::Pending,
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
        ConnectionError::TimedOut => io::ErrorKind::TimedOut,
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
    use core::task::{Context, Poll, ready};
    use std::io::{self, IoSlice};
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    impl AsyncRead for ByteStream {
        fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            if buf.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            let n = ready!(self.poll_read_bytes(cx, buf.initialize_unfilled())).map_err(read_error)?;
            buf.advance(n);
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for ByteStream {
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

        /// Nothing is held back: what was written has been handed to the transport.
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            match self.connection.finish() {
                Ok(()) => Poll::Ready(Ok(())),
                // A connection that is over has nothing to shut down.
                Err(_) => Poll::Ready(Ok(())),
            }
        }
    }
}
