//! Bytes, straight to the socket and straight from it.

use super::FastPath;
use crate::ConnectionId;
use crate::carrier::FlowId;
use crate::event::{Event, Source};
use neater_base::Key;
use neater_base::net::{DirectStream, Net, NetError};
use std::io::IoSlice;

/// What has become of a write.
pub(crate) enum FastWrite {
    /// The socket has taken so many bytes.
    Written(usize),
    /// There is no room; [`Event::Writable`] follows.
    Blocked,
    Failed(NetError),
    /// The general way knows more.
    Unknown,
}

/// What has become of a read that has found no bytes.
pub(crate) enum FastRead {
    /// There are none now.
    Blocked,
    /// The end of the stream, or an error.
    Ended(Result<(), NetError>),
}

impl<N: Net> FastPath<'_, N> {
    /// Writes to the socket, if nothing else has to happen.
    #[inline]
    pub(crate) fn write(&mut self, conn: Key, bufs: &[IoSlice<'_>]) -> FastWrite {
        if let [buf] = bufs
            && let Some(c) = self.conns.get_fast(conn)
            && c.fast.write
        {
            return match self.cx.net.write(c.fast.sock, &[IoSlice::new(buf)]) {
                Ok(n) => {
                    c.bytes_sent += n as u64;
                    FastWrite::Written(n)
                }
                Err(e) => self.write_ended(conn, e),
            };
        }
        FastWrite::Unknown
    }

    #[inline(never)]
    fn write_ended(&mut self, conn: Key, e: NetError) -> FastWrite {
        if !e.is_would_block() {
            return FastWrite::Failed(e);
        }
        if let Some(c) = self.conns.get_fast(conn)
            && let FlowId::Channel(k) = c.flow
            && let Some(ch) = self.sockets.get_mut(k)
        {
            ch.writable = false;
            c.fast.set_write_blocked();
            c.wants_room = true;
            return FastWrite::Blocked;
        }
        FastWrite::Unknown
    }

    /// Reads from the socket, if nothing else has to happen. 0: the general path must decide; the
    /// socket's result is in `ended`.
    #[inline]
    pub(crate) fn read(&mut self, conn: Key, buf: &mut [u8], ended: &mut Option<FastRead>) -> usize {
        if let Some(c) = self.conns.get_fast(conn)
            && c.fast.read
            && !buf.is_empty()
        {
            match self.cx.net.read(c.fast.sock, buf) {
                Ok(n) if n > 0 => {
                    c.bytes_received += n as u64;
                    return n;
                }
                result => *ended = Some(self.read_ended(conn, result)),
            }
        }
        0
    }

    #[inline(never)]
    fn read_ended(&mut self, conn: Key, result: Result<usize, NetError>) -> FastRead {
        match result {
            Err(e) if e.is_would_block() => {
                if let Some(c) = self.conns.get_fast(conn)
                    && let FlowId::Channel(k) = c.flow
                    && let Some(ch) = self.sockets.get_mut(k)
                {
                    ch.drained();
                    c.fast.set_read_blocked();
                }
                FastRead::Blocked
            }
            result => FastRead::Ended(result.map(drop)),
        }
    }

    /// The connection's bytes have just been written or read: notes whether the next ones may go
    /// straight.
    pub(crate) fn note(&mut self, conn: Key) {
        if !self.cx.config.fast_path {
            return;
        }
        if let Some(c) = self.conns.get_mut(conn)
            && let FlowId::Channel(k) = c.flow
            && let Some(ch) = self.sockets.get(k)
            && ch.is_plain()
        {
            let (may_write, may_read) = (c.may_write_bytes(), c.may_read_bytes());
            let (write, read) = (ch.writable && may_write, ch.readable && may_read);
            (c.fast.sock, c.fast.write, c.fast.read) = (ch.sock, write, read);
            (c.fast.write_blocked, c.fast.read_blocked) = (may_write && !write, may_read && !read);
            if let Some(direct_stream) = &c.fast.direct_stream {
                direct_stream.open(write, read);
            }
        }
    }

    /// A way around the engine: see [`crate::Engine::direct_stream`].
    pub(crate) fn direct_stream(&mut self, conn: Key) -> Option<Box<dyn DirectStream>> {
        let c = self.conns.get_mut(conn).filter(|c| c.is_open() && self.cx.config.fast_path)?;
        let FlowId::Channel(k) = c.flow else { return None };
        let ch = self.sockets.get(k).filter(|ch| ch.is_plain())?;
        let direct_stream = self.cx.net.direct_stream(ch.sock)?;
        c.fast.direct_stream = Some(Box::new(self.cx.net.direct_stream(ch.sock)?));
        self.note(conn);
        Some(direct_stream)
    }

    /// A connection's socket has become ready, and nothing is to be done but to report it. False:
    /// the general way knows more.
    #[inline]
    pub(crate) fn on_ready(&mut self, conn: Key, readable: bool, writable: bool) -> bool {
        let Some(c) = self.conns.get_fast(conn) else { return false };
        let plain = c.fast.may_be_read() && !c.send.is_finished() && !c.released;
        if !plain || writable && !c.fast.may_be_written() && !c.is_drained() {
            return false;
        }
        // Where bytes go straight, nothing is queued: only a waiting writer is to be notified.
        if writable && c.fast.writable_again() && core::mem::take(&mut c.wants_room) {
            self.notices.push(Source::Connection(ConnectionId(conn)), Event::Writable);
        }
        if readable {
            c.fast.readable_again();
            self.notices.push_readable(ConnectionId(conn));
        }
        true
    }
}
