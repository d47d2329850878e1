//! TCP (RFC 9293), with or without TLS (RFC 8446) over it: bytes and records over a socket of its
//! own.
//!
//! *Responsible for* moving bytes between a connection's queue and its socket, through TLS where
//! there is some, and for TLS handshakes; how connections are accepted, begin early and end is in
//! the files beside. *Not responsible for* connections, nor for TLS itself (`neater-tls`).

pub(crate) mod accept;
pub(crate) mod connect;
pub(crate) mod early;
pub(crate) mod linger;
pub(crate) mod paths;
mod stranded;

use super::SocketCarrier;
use super::channel::{Channel, Kind, SocketIo};
use crate::carrier::ids::CarrierTimer;
use crate::carrier::terms::{Read, Remains, WriteError};
use crate::context::Context;
use crate::event::{AttemptError, ConnectionError};
use crate::queue::{Budget, Flushed, SendQueue};
use neater_base::Key;
use neater_base::net::{ErrorKind, Net, NetError};
use neater_tls::ReadState;
use std::io::{self, IoSlice};

/// Pieces written by one system call.
const IOV_MAX: usize = 32;
/// Reads of a TLS connection that may bring no plaintext before other connections have their turn.
/// A whole record comes in five, of 4 kB each; a server may send tickets without end, of 20 bytes
/// each, and every one is work.
const RECORD_ROUNDS: usize = 8;
/// Reads of a broken connection until its socket reports whether anything is left.
const REMAINS_ROUNDS: usize = crate::receive::ROUNDS;

/// Drives the records of a TLS stream out of the socket. False: the socket is full.
pub(crate) fn tls_out<N: Net>(net: &mut N, c: &mut Channel) -> Result<bool, NetError> {
    let Kind::Tls(tls) = &mut c.kind else { return Ok(true) };
    let mut io = SocketIo { net, sock: c.sock, readable: &mut c.readable, writable: &mut c.writable, error: None };
    while tls.wants_write() {
        match tls.write_tls(&mut io) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(_) => return Err(io.error.unwrap_or(NetError::new(ErrorKind::Other))),
        }
    }
    Ok(true)
}

/// Why a TLS stream could not be read.
enum TlsIn {
    Blocked,
    End,
    Net(NetError),
    Tls(neater_tls::TlsError),
}

/// Takes records from the socket into a TLS stream, once.
fn tls_in<N: Net>(net: &mut N, c: &mut Channel) -> Result<(), TlsIn> {
    let Kind::Tls(tls) = &mut c.kind else { return Err(TlsIn::Blocked) };
    let mut io = SocketIo { net, sock: c.sock, readable: &mut c.readable, writable: &mut c.writable, error: None };
    let n = match tls.read_tls(&mut io) {
        Ok(n) => n,
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(TlsIn::Blocked),
        Err(_) => return Err(TlsIn::Net(io.error.unwrap_or(NetError::new(ErrorKind::Other)))),
    };
    match tls.process() {
        Ok(_) if n == 0 => Err(TlsIn::End),
        Ok(_) => Ok(()),
        Err(e) => {
            // An alert with the reason is waiting to be sent to the peer.
            let _ = tls_out(net, c);
            Err(TlsIn::Tls(e))
        }
    }
}

impl SocketCarrier {
    /// Moves a TLS handshake on. True: it is complete.
    pub(crate) fn drive_tls<N: Net>(&mut self, cx: &mut Context<N>, key: Key) -> Result<bool, AttemptError> {
        let Some(c) = self.channels.get_mut(key) else { return Err(AttemptError::ClosedByPeer) };
        // A handshake takes a handful of flights; each may come in several reads.
        for _ in 0..64 {
            let Kind::Tls(tls) = &c.kind else { return Ok(true) };
            let was_handshaking = tls.is_handshaking();
            let all_out = tls_out(&mut cx.net, c)?;
            if !was_handshaking {
                return Ok(true);
            }
            match tls_in(&mut cx.net, c) {
                Ok(()) => {}
                Err(TlsIn::Blocked) => {
                    let Kind::Tls(tls) = &c.kind else { return Ok(true) };
                    return Ok(!tls.is_handshaking() && all_out && !tls.wants_write());
                }
                Err(TlsIn::End) => return Err(AttemptError::ClosedByPeer),
                Err(TlsIn::Net(e)) => return Err(AttemptError::Net(e)),
                Err(TlsIn::Tls(e)) => return Err(AttemptError::Tls(e)),
            }
        }
        cx.again = true;
        cx.timers.push(cx.now, CarrierTimer::channel(key));
        c.readable = true;
        Ok(false)
    }
}

/// Sends what TLS holds back, and reports the messages that have left with it.
pub(super) fn flush_held<N: Net>(net: &mut N, ch: &mut Channel, queue: &mut SendQueue, done: &mut Flushed) {
    match tls_out(net, ch) {
        Ok(true) if !queue.sealed.is_empty() => done.sent = core::mem::take(&mut queue.sealed),
        Ok(_) => {}
        Err(e) => done.error = Some(broken(net, ch, e)),
    }
}

/// Why a socket really failed. A peer that refuses a session sends an alert and goes, which with
/// TLS 1.3 may be after this side has taken the session for established (RFC 8446 section 4.4.2.4):
/// then the socket reports the reset, and what has arrived before is still to be read. Plaintext
/// that comes before an alert stays for its reader.
#[cold]
pub(super) fn broken<N: Net>(net: &mut N, ch: &mut Channel, error: NetError) -> ConnectionError {
    for _ in 0..REMAINS_ROUNDS {
        if !matches!(ch.kind, Kind::Tls(_)) {
            break;
        }
        // A socket that is gone does not block.
        ch.readable = true;
        match tls_in(net, ch) {
            Ok(()) => {}
            Err(TlsIn::Tls(e)) => return ConnectionError::Tls(e),
            Err(_) => break,
        }
    }
    ConnectionError::Net(error)
}

/// Writes as much of a queue as the socket takes.
pub(super) fn send<N: Net>(
    net: &mut N,
    ch: &mut Channel,
    queue: &mut SendQueue,
    budget: &mut Budget,
    done: &mut Flushed,
) {
    flush_stream(net, ch, queue, budget, done);
    seal(ch, queue, done);
}

/// Records that the socket has not taken are lost with it: the messages that end in them are not
/// sent before all are out. A socket that has become writable takes them all.
fn seal(ch: &Channel, queue: &mut SendQueue, done: &mut Flushed) {
    let Kind::Tls(tls) = &ch.kind else { return };
    if tls.wants_write() {
        if done.sent.len() > done.out {
            queue.sealed.extend(done.sent.drain(done.out..));
        }
    } else if !queue.sealed.is_empty() {
        let later = done.sent.split_off(done.out);
        done.sent.append(&mut queue.sealed);
        done.sent.extend(later);
    }
    done.out = done.sent.len();
}

fn flush_stream<N: Net>(net: &mut N, ch: &mut Channel, queue: &mut SendQueue, budget: &mut Budget, done: &mut Flushed) {
    loop {
        queue.advance(0, done);
        if queue.queue.is_empty() || budget.room() == 0 {
            break;
        }
        let mut slices = [IoSlice::new(&[]); IOV_MAX];
        let mut count = 0;
        let mut room = budget.room();
        for (slot, segment) in slices.iter_mut().zip(&queue.queue) {
            if room == 0 {
                break;
            }
            let piece = &segment.data[..segment.data.len().min(room)];
            room -= piece.len();
            *slot = IoSlice::new(piece);
            count += 1;
        }
        let slices = &slices[..count];
        let written = match &mut ch.kind {
            Kind::Tls(tls) => {
                let n = tls.write_plain(slices);
                match tls_out(net, ch) {
                    Ok(true) if n == 0 => {
                        // The records that filled the buffer are out now; a session that takes
                        // nothing even so has ended.
                        let Kind::Tls(tls) = &mut ch.kind else { return };
                        match tls.write_plain(slices) {
                            // Delivered before the end of its handshake: the rest waits for that.
                            0 if tls.is_handshaking() && tls.error().is_none() => return,
                            0 => {
                                let error = tls.error().cloned().map(ConnectionError::Tls);
                                done.error = Some(error.unwrap_or(ConnectionError::Closed));
                                return;
                            }
                            n => Ok(n),
                        }
                    }
                    Ok(true) => Ok(n),
                    Ok(false) if n > 0 => Ok(n),
                    Ok(false) => Err(NetError::new(ErrorKind::WouldBlock)),
                    Err(e) => Err(e),
                }
            }
            _ => ch.write(net, slices),
        };
        match written {
            Ok(n) => {
                budget.take(n);
                queue.advance(n, done);
                seal(ch, queue, done);
            }
            Err(e) if e.is_would_block() => return,
            Err(e) => {
                done.error = Some(broken(net, ch, e));
                return;
            }
        }
    }
    if let Err(e) = tls_out(net, ch) {
        done.error = Some(broken(net, ch, e));
    }
}

/// Writes bytes to the socket, or as records.
pub(super) fn write<N: Net>(net: &mut N, ch: &mut Channel, bufs: &[IoSlice<'_>]) -> Result<usize, WriteError> {
    let Kind::Tls(tls) = &mut ch.kind else { return ch.write(net, bufs).map_err(WriteError::from) };
    let n = tls.write_plain(bufs);
    match tls_out(net, ch).map_err(|e| WriteError::Broken(broken(net, ch, e)))? {
        _ if n > 0 => Ok(n),
        true => {
            // The records that filled the buffer are out now.
            let Kind::Tls(tls) = &mut ch.kind else { return Err(WriteError::Blocked) };
            let n = tls.write_plain(bufs);
            if let (0, Some(e)) = (n, tls.error()) {
                return Err(WriteError::Refused(ConnectionError::Tls(e.clone())));
            }
            tls_out(net, ch).map_err(|e| WriteError::Broken(broken(net, ch, e)))?;
            if n > 0 { Ok(n) } else { Err(WriteError::Blocked) }
        }
        false => Err(WriteError::Blocked),
    }
}

/// Reads bytes from the socket, or from records.
#[inline]
pub(super) fn read<N: Net>(net: &mut N, ch: &mut Channel, buf: &mut [u8]) -> Read {
    match &ch.kind {
        Kind::Tls(_) => match read_tls(net, ch, buf) {
            Ok(None) if ch.readable => Read::Again,
            read => read.into(),
        },
        _ => read_plain(net, ch, buf).into(),
    }
}

#[inline]
fn read_plain<N: Net>(net: &mut N, ch: &mut Channel, buf: &mut [u8]) -> Result<Option<usize>, ConnectionError> {
    match ch.read(net, buf) {
        Ok(n) => Ok(Some(n)),
        Err(e) if e.is_would_block() => Ok(None),
        Err(e) => Err(ConnectionError::Net(e)),
    }
}

/// Reads what had arrived before a connection broke.
pub(super) fn read_remains<N: Net>(net: &mut N, ch: &mut Channel, buf: &mut [u8]) -> Remains {
    let authenticates_end = matches!(ch.kind, Kind::Tls(_));
    // A socket that is gone does not block. If it reports `WouldBlock` all the same, no event
    // follows that could bring a reader back.
    for _ in 0..REMAINS_ROUNDS {
        ch.readable = true;
        let read = match ch.kind {
            Kind::Tls(_) => read_tls(net, ch, buf),
            _ => read_plain(net, ch, buf),
        };
        match read {
            Ok(None) => {}
            Ok(Some(n)) if n > 0 || buf.is_empty() => return Remains::Bytes(n),
            Ok(Some(_)) => return Remains::End { authenticated: authenticates_end },
            Err(e) => return Remains::Failed(e),
        }
    }
    Remains::Nothing
}

/// `None` with a channel that is still readable: there is more, and other connections have their
/// turn first.
fn read_tls<N: Net>(net: &mut N, ch: &mut Channel, buf: &mut [u8]) -> Result<Option<usize>, ConnectionError> {
    for _ in 0..RECORD_ROUNDS {
        let Kind::Tls(tls) = &mut ch.kind else { return Ok(None) };
        match tls.read_plain(buf) {
            Ok(n) => return Ok(Some(n)),
            Err(ReadState::WouldBlock) => {}
            Err(ReadState::Closed) => return Ok(Some(0)),
            Err(ReadState::UnexpectedEof) => return Err(ConnectionError::Truncated),
            Err(ReadState::Failed(e)) => return Err(ConnectionError::Tls(e)),
        }
        match tls_in(net, ch) {
            Ok(()) | Err(TlsIn::End) => {}
            Err(TlsIn::Blocked) => return Ok(None),
            Err(TlsIn::Net(e)) => return Err(ConnectionError::Net(e)),
            // What came before the failure is read first; the session remembers its failure.
            Err(TlsIn::Tls(_)) if has_plain(ch) => {}
            Err(TlsIn::Tls(e)) => return Err(ConnectionError::Tls(e)),
        }
    }
    Ok(None)
}

fn has_plain(ch: &Channel) -> bool {
    matches!(&ch.kind, Kind::Tls(tls) if tls.pending_plain() > 0)
}
