//! A byte stream for hyper.

use core::pin::Pin;
use core::task::{Context, Poll, ready};
use neater::ByteStream;
use std::io::{self, IoSlice};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What of a request is read at a time, in bytes: the buffer for it is zeroed first.
const READ_MOST: usize = 4 << 10;

/// The bytes of a connection for hyper, which leaves the connection to us when it has done.
pub(super) struct Shared(pub(super) Arc<ByteStream>);

impl AsyncRead for Shared {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let most = buf.remaining().min(READ_MOST);
        let n = ready!(self.0.poll_read_bytes(cx, buf.initialize_unfilled_to(most))).map_err(io::Error::other)?;
        buf.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Shared {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_write_bytes(cx, &[IoSlice::new(buf)]).map_err(io::Error::other)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write_bytes(cx, bufs).map_err(io::Error::other)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_end(cx).map_err(io::Error::other)
    }
}
