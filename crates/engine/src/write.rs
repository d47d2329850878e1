//! Bytes of raw streams, straight to the transport.
//!
//! *Invariants*: bytes overtake no message, and what is not taken stays with the program.

use crate::carrier::data::WriteError;
use crate::conn::{Conn, ConnectionState};
use crate::connection::fast_path::FastWrite;
use crate::engine::fast_path;
use crate::event::{ConnectionError, SendError};
use crate::send::{RECEIVE_ONLY, refused};
use crate::{ConnectionId, Engine};
use neater_base::net::{Lane, Net, NetError};
use std::io::IoSlice;

/// Whether bytes can be written already, if they ever can.
fn takes_bytes(c: &mut Conn) -> Result<bool, SendError> {
    match c.state {
        ConnectionState::Established if c.send.is_open() => {}
        ConnectionState::Establishing => return Ok(false),
        ConnectionState::Closed => {
            return Err(SendError::Connection(c.error().cloned().unwrap_or(ConnectionError::Closed)));
        }
        _ => return Err(refused(c)),
    }
    if !c.request.may_send {
        return Err(SendError::Connection(ConnectionError::Unsupported(RECEIVE_ONLY)));
    }
    if c.ext.is_some() {
        c.bytes_possible().map_err(SendError::Connection)?;
    }
    Ok(true)
}

/// The first `n` bytes of these.
fn first_bytes<'a>(bufs: &'a [IoSlice<'_>], mut n: usize) -> Vec<IoSlice<'a>> {
    let mut out = Vec::with_capacity(bufs.len());
    for buf in bufs.iter().filter(|b| !b.is_empty()) {
        let k = buf.len().min(n);
        if k == 0 {
            break;
        }
        out.push(IoSlice::new(&buf[..k]));
        n -= k;
    }
    out
}

impl<N: Net> Engine<N> {
    /// Writes bytes of a raw byte stream straight to the transport, without a queue. `None`: nothing can be taken now,
    /// and [`crate::Event::Writable`] will tell.
    ///
    /// # Errors
    /// As [`Engine::send`]; [`ConnectionError::Unsupported`] on connections that carry messages.
    #[inline]
    pub fn write(&mut self, conn: ConnectionId, bufs: &[IoSlice<'_>]) -> Result<Option<usize>, SendError> {
        match fast_path!(self).write(conn.0, bufs) {
            FastWrite::Written(n) => return Ok(Some(n)),
            FastWrite::Blocked => return Ok(None),
            FastWrite::Failed(e) => self.break_connection(conn.0, ConnectionError::Net(e)),
            FastWrite::Unknown => {}
        }
        self.write_in_full(conn, bufs)
    }

    /// A way for the bytes of this connection around the engine, and around whatever guards the engine: reading and
    /// writing on it is as [`Engine::read`] and [`Engine::write`], which tell what is the matter where it does nothing.
    /// `None`: there is none, and there will be none (the stack or the network has no such way).
    pub fn lane(&mut self, conn: ConnectionId) -> Option<Box<dyn Lane>> {
        fast_path!(self).lane(conn.0)
    }

    #[cold]
    fn write_failed<T>(&mut self, conn: ConnectionId, e: NetError) -> Result<T, SendError> {
        let error = ConnectionError::Net(e);
        self.break_connection(conn.0, error.clone());
        Err(SendError::Connection(error))
    }

    #[inline(never)]
    fn write_in_full(&mut self, conn: ConnectionId, bufs: &[IoSlice<'_>]) -> Result<Option<usize>, SendError> {
        self.own_to_send()?;
        if let Some(c) = self.conns.get_fast(conn.0)
            && c.fast.is_write_blocked()
        {
            c.wants_room = true;
            return Ok(None);
        }
        let Some(c) = self.conns.get_mut(conn.0) else { return Err(SendError::Connection(ConnectionError::Closed)) };
        if !takes_bytes(c)? {
            c.wants_room = true;
            return Ok(None);
        }
        if c.batching && !c.tx.is_empty() {
            // Bytes do not wait for messages that wait for the end of their batch.
            self.flush_batch(conn.0);
        }
        let Some(c) = self.conns.get_mut(conn.0) else { return Err(SendError::Connection(ConnectionError::Closed)) };
        // The transport may have turned out to be gone.
        takes_bytes(c)?;
        if !c.tx.is_empty() {
            c.wants_room = true;
            return Ok(None);
        }
        let (room, _) = c.may_send_now(self.cx.now);
        if room == 0 && bufs.iter().any(|b| !b.is_empty()) {
            c.wants_room = true;
            self.wait_to_send(conn.0, 1);
            return Ok(None);
        }
        let within;
        let bufs = if bufs.iter().map(|b| b.len()).sum::<usize>() > room {
            within = first_bytes(bufs, room);
            &within[..]
        } else {
            bufs
        };
        match self.carriers.write(&mut self.cx, c.flow, bufs) {
            Ok(n) => {
                if let Some(c) = self.conns.get_mut(conn.0) {
                    c.bytes_sent += n as u64;
                    c.note_sent(n);
                }
                fast_path!(self).note(conn.0);
                Ok(Some(n))
            }
            Err(WriteError::Blocked) => {
                if let Some(c) = self.conns.get_mut(conn.0) {
                    c.wants_room = true;
                }
                Ok(None)
            }
            Err(WriteError::Net(e)) => self.write_failed(conn, e),
            Err(WriteError::Refused(e)) => Err(SendError::Connection(e)),
        }
    }
}
