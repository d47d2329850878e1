//! Bytes and datagrams of QUIC connections (RFC 9000, RFC 9221).

use super::Quic;
use crate::carrier::QuicCarrier;
use crate::carrier::terms::{Read, WriteError};
use crate::context::Context;
use crate::event::{ConnectionError, SendError};
use crate::queue::{Budget, Flushed, SendQueue};
use bytes::Bytes;
use neater_base::Key;
use neater_base::net::Net;
use neater_quic::{ConnectionApi, ReadOutcome, StreamId};
use std::io::IoSlice;

impl QuicCarrier {
    /// Writes as much of a queue as a stream and its session take.
    pub(crate) fn send(
        &mut self,
        (key, stream): (Key, StreamId),
        queue: &mut SendQueue,
        budget: &mut Budget,
        done: &mut Flushed,
    ) {
        if let Some(q) = self.connections.get_mut(key) {
            flush_stream(q, stream, queue, budget, done);
            self.mark_dirty(key);
        }
    }

    /// Sends as many datagrams of a queue as the session takes.
    pub(crate) fn send_datagrams(&mut self, key: Key, queue: &mut SendQueue, budget: &mut Budget, done: &mut Flushed) {
        let Some(q) = self.connections.get_mut(key) else { return };
        while let Some(front) = queue.queue.front() {
            let before = *budget;
            if !budget.take_datagram(front.data.len()) {
                break;
            }
            // Copied, because QUIC drops what it keeps at any time, and the application may own it.
            match q.conn.send_datagram(Bytes::copy_from_slice(&front.data)) {
                Ok(true) => {
                    let n = front.data.len();
                    done.bytes += n;
                    if let Some(id) = queue.pop() {
                        done.sent.push(id);
                    }
                }
                Ok(false) => break,
                Err(max) => {
                    *budget = before;
                    if let Some(id) = queue.pop() {
                        done.failed.push((id, SendError::MessageTooLarge { max }));
                    }
                }
            }
        }
        self.mark_dirty(key);
    }

    /// Writes bytes on a stream.
    pub(crate) fn write(&mut self, (key, stream): (Key, StreamId), bufs: &[IoSlice<'_>]) -> Result<usize, WriteError> {
        let Some(q) = self.connections.get_mut(key) else { return Err(WriteError::Refused(ConnectionError::Closed)) };
        let mut total = 0;
        for buf in bufs.iter().filter(|b| !b.is_empty()) {
            match q.conn.write(stream, buf) {
                Ok(n) => {
                    total += n;
                    if n < buf.len() {
                        break;
                    }
                }
                Err(code) => {
                    let error = code.map(ConnectionError::StreamReset);
                    let error = error.or_else(|| q.lost.clone().map(ConnectionError::Quic));
                    return Err(WriteError::Refused(error.unwrap_or(ConnectionError::Closed)));
                }
            }
        }
        self.mark_dirty(key);
        if total > 0 { Ok(total) } else { Err(WriteError::Blocked) }
    }

    /// Reads bytes of a stream.
    pub(crate) fn read<N: Net>(&mut self, cx: &mut Context<N>, (key, stream): (Key, StreamId), buf: &mut [u8]) -> Read {
        let Some(q) = self.connections.get_mut(key) else { return Read::Gone };
        let outcome = q.conn.read(stream, buf);
        let lost = q.lost.clone();
        let read = match outcome {
            ReadOutcome::Data(n) => Read::Bytes(n),
            ReadOutcome::Blocked => match lost {
                None => Read::Blocked,
                // A stream that has not ended before its session was cut short, however politely
                // that ended.
                Some(e) => Read::Failed(ConnectionError::Quic(e)),
            },
            ReadOutcome::End => Read::Bytes(0),
            ReadOutcome::Reset(code) => Read::Failed(ConnectionError::StreamReset(code)),
            ReadOutcome::Closed => lost.map_or(Read::Gone, |e| Read::Failed(ConnectionError::Quic(e))),
        };
        self.tune_receiving(cx, key);
        self.mark_dirty(key);
        read
    }
}

fn flush_stream(q: &mut Quic, stream: StreamId, queue: &mut SendQueue, budget: &mut Budget, done: &mut Flushed) {
    loop {
        queue.advance(0, done);
        let Some(front) = queue.queue.front() else { break };
        if budget.room() == 0 {
            break;
        }
        let piece = &front.data[..front.data.len().min(budget.room())];
        match q.conn.write(stream, piece) {
            Ok(0) => break,
            Ok(n) => {
                budget.take(n);
                queue.advance(n, done);
            }
            Err(code) => {
                done.error = Some(match (code, &q.lost) {
                    (Some(code), _) => ConnectionError::StreamReset(code),
                    (None, Some(e)) => ConnectionError::Quic(e.clone()),
                    (None, None) => ConnectionError::Closed,
                });
                break;
            }
        }
    }
}
