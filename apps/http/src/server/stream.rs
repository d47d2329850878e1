//! A byte stream for hyper.

use core::pin::Pin;
use core::task::{Context, Poll, ready};
use neater::ByteStream;
use std::io::{self, IoSlice};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What of a request is read at a time, in bytes.
const READ_MOST: usize = 4 << 10;

/// The bytes of a connection for hyper, which leaves the connection to us when it has done.
pub(super) struct Shared {
    bytes: Arc<ByteStream>,
    /// What is read goes through here: hyper's buffer is not initialised, and to do that for each
    /// read costs more than to copy the few hundred bytes of a request.
    buffer: Box<[u8]>,
}

impl Shared {
    pub(super) fn new(bytes: Arc<ByteStream>) -> Self {
        Self { bytes, buffer: vec![0; READ_MOST].into() }
    }
}

impl AsyncRead for Shared {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let Self { bytes, buffer } = &mut *self;
        let most = buf.remaining().min(READ_MOST);
        let n = ready!(bytes.poll_read_bytes(cx, &mut buffer[..most])).map_err(io::Error::other)?;
        buf.put_slice(&buffer[..n]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Shared {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.bytes.poll_write_bytes(cx, &[IoSlice::new(buf)]).map_err(io::Error::other)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.bytes.poll_write_bytes(cx, bufs).map_err(io::Error::other)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.bytes.poll_end(cx).map_err(io::Error::other)
    }
}
