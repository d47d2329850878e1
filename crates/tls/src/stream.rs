//! TLS over a byte stream: records in, plaintext out, and back.
//!
//! *Responsible for* one connection's handshake, records, early data, the orderly end and
//! distinguishing it from a truncation. *Not* for moving bytes: the caller reads and writes the
//! stream through `io::Read` and `io::Write` that never block.
//!
//! The turn of a caller: while [`TlsStream::wants_read`] and the stream gives bytes,
//! [`TlsStream::read_tls`] then [`TlsStream::process`]; then [`TlsStream::read_plain`] until it has
//! no more; while [`TlsStream::wants_write`] and the stream takes bytes, [`TlsStream::write_tls`].
//! After an error of `process` too: there may be an alert to send.
//!
//! *Invariants*: plaintext written before the handshake is done travels after it; `close_notify`
//! travels after all plaintext; an end without `close_notify` is never reported as an orderly one.

use crate::error::{Looks, TlsError};
use core::fmt;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, Connection, HandshakeKind, ProtocolVersion, ServerConfig,
    ServerConnection,
};
use std::io::{self, BufRead, ErrorKind, IoSlice, Read, Write};
use std::sync::Arc;

/// How much a peer may send before its handshake is complete, in bytes. Two certificate chains of
/// the largest size that rustls takes (64 kB) and refused early data fit.
pub const HANDSHAKE_LIMIT: usize = 256 * 1024;
/// How much written plaintext or its records may wait to be sent, in bytes, unless set otherwise.
pub const DEFAULT_BUFFER_LIMIT: usize = 64 * 1024;
/// How many of the first bytes are kept to recognise the protocol of a peer that does not speak
/// TLS.
const FIRST: usize = 8;

/// Where a session stands after [`TlsStream::process`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The handshake goes on.
    pub handshaking: bool,
    /// Bytes that [`TlsStream::read_plain`] would give.
    pub plain: usize,
    /// The peer has sent `close_notify`: nothing follows those bytes.
    pub peer_closed: bool,
}

/// Why [`TlsStream::read_plain`] gives no bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadState {
    /// There is none now; more may come.
    WouldBlock,
    /// The peer has ended its direction with `close_notify`: everything it sent was received.
    Closed,
    /// The stream ended without `close_notify`: what the peer sent may have been cut short, by
    /// accident or by an attacker.
    UnexpectedEof,
    /// The session has failed.
    Failed(TlsError),
}

impl fmt::Display for ReadState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WouldBlock => f.write_str("no data yet"),
            Self::Closed => f.write_str("the peer has finished sending"),
            Self::UnexpectedEof => f.write_str(
                "the connection was cut without close_notify: data may be missing; trust only what its own format proves \
                 complete",
            ),
            Self::Failed(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for ReadState {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    /// Not asked for.
    No,
    /// As soon as the handshake is done and what was written before is on its way.
    Wanted,
    /// Queued or sent.
    Done,
}

/// One TLS session over a byte stream.
pub struct TlsStream {
    connection: Connection,
    first: [u8; FIRST],
    first_len: u8,
    /// Nothing was read since the last [`TlsStream::process`].
    processed: bool,
    /// The stream below has ended.
    eof: bool,
    closing: Closing,
    /// Bytes received while handshaking.
    handshake_bytes: usize,
    failed: Option<TlsError>,
    /// Plaintext that waits in rustls.
    plain: usize,
    /// A server's accepted early data that was not read yet: at most [`crate::EARLY_DATA_LIMIT`]
    /// bytes.
    early: Vec<u8>,
    early_read: usize,
    early_total: usize,
    /// How much early data a client has written.
    early_sent: usize,
}

/// Passes a reader through, noticing the first bytes and the end.
struct Tap<'a> {
    inner: &'a mut dyn Read,
    first: &'a mut [u8; FIRST],
    first_len: &'a mut u8,
    eof: &'a mut bool,
}

impl Read for Tap<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        // A reader that claims more than it was given room for would break the slices below.
        let n = self.inner.read(buf)?.min(buf.len());
        *self.eof |= n == 0 && !buf.is_empty();
        let (have, got) = (usize::from(*self.first_len), buf.get(..n).unwrap_or_default());
        for (to, from) in self.first.iter_mut().skip(have).zip(got) {
            *to = *from;
            *self.first_len += 1;
        }
        Ok(n)
    }
}

impl TlsStream {
    /// The client's side of a session with the server of this name.
    ///
    /// # Errors
    /// [`TlsError::NoRandomness`], or a configuration that rustls refuses.
    pub fn client(config: Arc<ClientConfig>, name: &ServerName<'_>) -> Result<Self, TlsError> {
        Ok(Self::new(Connection::Client(ClientConnection::new(config, name.to_owned())?)))
    }

    /// The server's side of a session.
    ///
    /// # Errors
    /// A configuration that rustls refuses.
    pub fn server(config: Arc<ServerConfig>) -> Result<Self, TlsError> {
        Ok(Self::new(Connection::Server(ServerConnection::new(config)?)))
    }

    fn new(mut connection: Connection) -> Self {
        connection.set_buffer_limit(Some(DEFAULT_BUFFER_LIMIT));
        Self {
            connection,
            first: [0; FIRST],
            first_len: 0,
            processed: true,
            eof: false,
            closing: Closing::No,
            handshake_bytes: 0,
            failed: None,
            plain: 0,
            early: Vec::new(),
            early_read: 0,
            early_total: 0,
            early_sent: 0,
        }
    }

    /// Reads records from the stream, by one call of `rd.read`. Follow it with
    /// [`TlsStream::process`].
    ///
    /// `Ok(0)` is the end of the stream, or of this session: the peer has sent `close_notify`, or
    /// the session has failed.
    ///
    /// # Errors
    /// Those of `rd`; and [`ErrorKind::QuotaExceeded`], without a call of `rd`, while plaintext
    /// waits to be read or records wait for [`TlsStream::process`].
    pub fn read_tls(&mut self, rd: &mut dyn Read) -> io::Result<usize> {
        if self.failed.is_some() {
            return Ok(0);
        }
        let handshaking = self.connection.is_handshaking();
        let mut asked = false;
        let mut once = Once { inner: rd, asked: &mut asked };
        let Self { connection, first, first_len, eof, .. } = self;
        let n = match connection.read_tls(&mut Tap { inner: &mut once, first, first_len, eof }) {
            Ok(n) => n,
            Err(e) if asked => return Err(e),
            // rustls refuses before it asks the reader: with `InvalidData` if its buffer of records
            // is full. If all of it has been processed, a handshake message is in there that is
            // larger than any may be.
            Err(e) if e.kind() == ErrorKind::InvalidData && self.processed => {
                self.fail(TlsError::HandshakeTooLarge);
                return Ok(0);
            }
            Err(_) => return Err(ErrorKind::QuotaExceeded.into()),
        };
        self.processed = false;
        if handshaking {
            self.handshake_bytes = self.handshake_bytes.saturating_add(n);
        }
        Ok(n)
    }

    /// Processes the records read: the handshake advances, plaintext becomes readable.
    ///
    /// # Errors
    /// Why the session has failed; every later call returns the same. An alert may wait to be
    /// written.
    pub fn process(&mut self) -> Result<State, TlsError> {
        if let Some(e) = &self.failed {
            return Err(e.clone());
        }
        self.processed = true;
        let state = match self.connection.process_new_packets() {
            Ok(state) => state,
            Err(e) => {
                // Early data that was accepted before the session failed is still the peer's word.
                self.take_early_data();
                self.plain = self.connection.reader().fill_buf().map_or(0, <[u8]>::len);
                return Err(self.fail(self.diagnose(&e)));
            }
        };
        self.plain = state.plaintext_bytes_to_read();
        self.take_early_data();
        let handshaking = self.connection.is_handshaking();
        if handshaking {
            if self.handshake_bytes > HANDSHAKE_LIMIT {
                return Err(self.fail(TlsError::HandshakeTooLarge));
            }
            if self.eof || state.peer_has_closed() {
                let looks = Looks::guess(self.first());
                return Err(self.fail(looks.map_or(TlsError::ClosedDuringHandshake, TlsError::NotTls)));
            }
        } else if self.closing == Closing::Wanted {
            self.send_close_notify();
        }
        Ok(State { handshaking, plain: self.pending_plain(), peer_closed: state.peer_has_closed() })
    }

    fn first(&self) -> &[u8] {
        self.first.get(..usize::from(self.first_len)).unwrap_or_default()
    }

    fn fail(&mut self, e: TlsError) -> TlsError {
        self.failed = Some(e.clone());
        e
    }

    fn diagnose(&self, e: &rustls::Error) -> TlsError {
        match Looks::guess(self.first()) {
            // The first record already was none.
            Some(looks) if !matches!(e, rustls::Error::AlertReceived(_)) => TlsError::NotTls(looks),
            _ => e.into(),
        }
    }

    /// Writes records to the stream, by one call of `wr.write` or `wr.write_vectored`. Returns how
    /// many bytes it took.
    ///
    /// # Errors
    /// Those of `wr`.
    pub fn write_tls(&mut self, wr: &mut dyn Write) -> io::Result<usize> {
        self.connection.write_tls(wr)
    }

    /// Whether the session wants bytes of the stream. Not while plaintext waits to be read: that
    /// slows the peer down.
    #[must_use]
    pub fn wants_read(&self) -> bool {
        self.failed.is_none() && !self.eof && self.connection.wants_read()
    }

    /// Whether there are records to write.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Reads plaintext: at least one byte, unless `buf` is empty. On a server accepted early data
    /// comes first.
    ///
    /// # Errors
    /// Why there is none. What was received before the end or a failure is given out first.
    pub fn read_plain(&mut self, buf: &mut [u8]) -> Result<usize, ReadState> {
        if buf.is_empty() {
            return Ok(0);
        }
        let early = self.early_unread();
        if !early.is_empty() {
            let n = early.len().min(buf.len());
            for (to, from) in buf.iter_mut().zip(early) {
                *to = *from;
            }
            self.early_read += n;
            if self.early_unread().is_empty() {
                (self.early, self.early_read) = (Vec::new(), 0);
            }
            return Ok(n);
        }
        match self.connection.reader().read(buf) {
            Ok(0) => Err(ReadState::Closed),
            Ok(n) => {
                self.plain = self.plain.saturating_sub(n);
                Ok(n)
            }
            Err(e) => Err(match (&self.failed, e.kind()) {
                (Some(failed), _) => ReadState::Failed(failed.clone()),
                (None, ErrorKind::UnexpectedEof) => ReadState::UnexpectedEof,
                (None, _) => ReadState::WouldBlock,
            }),
        }
    }

    /// How many bytes of plaintext wait to be read. After a failure there may be more than it
    /// returns, but never some when it returns 0.
    #[must_use]
    pub fn pending_plain(&self) -> usize {
        self.plain + self.early_unread().len()
    }

    /// Takes plaintext to be sent and returns how many bytes: fewer than given when the buffer
    /// limit is reached, none after [`TlsStream::close_notify`] or a failure.
    pub fn write_plain(&mut self, bufs: &[IoSlice<'_>]) -> usize {
        if self.closing != Closing::No || self.failed.is_some() {
            return 0;
        }
        self.connection.writer().write_vectored(bufs).unwrap_or(0)
    }

    /// Limits how much written plaintext, or its records, may wait to be sent. In bytes; 1 is the
    /// least.
    pub fn set_buffer_limit(&mut self, bytes: usize) {
        self.connection.set_buffer_limit(Some(bytes.max(1)));
    }

    /// Ends the sending direction after everything written so far; no plaintext is taken any more.
    /// Called during the handshake, it waits for its end. Close the stream's sending direction once
    /// nothing wants to be written.
    pub fn close_notify(&mut self) {
        if self.closing != Closing::No {
            return;
        }
        self.closing = Closing::Wanted;
        if !self.connection.is_handshaking() {
            self.send_close_notify();
        }
    }

    fn send_close_notify(&mut self) {
        self.connection.send_close_notify();
        self.closing = Closing::Done;
    }

    /// Whether [`TlsStream::close_notify`] was called and all it promises is on its way: only
    /// [`TlsStream::write_tls`] is left.
    #[must_use]
    pub fn close_notify_queued(&self) -> bool {
        self.closing == Closing::Done
    }

    /// Whether the handshake goes on.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Why the session has failed, if it has.
    #[must_use]
    pub fn error(&self) -> Option<&TlsError> {
        self.failed.as_ref()
    }

    /// The application protocol agreed upon.
    #[must_use]
    pub fn alpn(&self) -> Option<&[u8]> {
        self.connection.alpn_protocol()
    }

    /// The TLS version agreed upon.
    #[must_use]
    pub fn version(&self) -> Option<ProtocolVersion> {
        self.connection.protocol_version()
    }

    /// The cipher suite agreed upon.
    #[must_use]
    pub fn cipher(&self) -> Option<CipherSuite> {
        self.connection.negotiated_cipher_suite().map(|s| s.suite())
    }

    /// The peer's certificates, its own first; of the first session if this one was resumed.
    #[must_use]
    pub fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.connection.peer_certificates()
    }

    /// Whether an earlier session was resumed; `None` until it is known.
    #[must_use]
    pub fn resumed(&self) -> Option<bool> {
        self.connection.handshake_kind().map(|k| k == HandshakeKind::Resumed)
    }

    /// The name that the client asked for; always `None` on a client.
    #[must_use]
    pub fn server_name(&self) -> Option<&str> {
        match &self.connection {
            Connection::Client(_) => None,
            Connection::Server(server) => server.server_name(),
        }
    }

    /// Sends data with the client's first flight and returns how many bytes were taken: 0 if no
    /// session that permits it is being resumed, or once the server has answered.
    ///
    /// Early data can be replayed by any observer. Keep a copy: when the handshake is done and
    /// [`TlsStream::early_data_accepted`] is `Some(false)`, the server has dropped it and it must
    /// be written again.
    pub fn early_write(&mut self, data: &[u8]) -> usize {
        match &mut self.connection {
            Connection::Client(client) if self.closing == Closing::No && self.failed.is_none() => {
                let taken = client.early_data().map_or(0, |mut early| early.write(data).unwrap_or(0));
                self.early_sent += taken;
                taken
            }
            _ => 0,
        }
    }

    /// How many bytes [`TlsStream::early_write`] would take now.
    pub fn early_capacity(&mut self) -> usize {
        match &mut self.connection {
            Connection::Client(client) => client.early_data().map_or(0, |early| early.bytes_left()),
            Connection::Server(_) => 0,
        }
    }

    /// On a client, whether the server takes the early data: `None` until the handshake is done.
    #[must_use]
    pub fn early_data_accepted(&self) -> Option<bool> {
        match &self.connection {
            Connection::Client(client) if !client.is_handshaking() => Some(client.is_early_data_accepted()),
            _ => None,
        }
    }

    /// On a client, how many bytes of early data were written, whether or not the server takes
    /// them.
    #[must_use]
    pub fn early_data_sent(&self) -> usize {
        self.early_sent
    }

    /// On a server, how many bytes of early data were accepted. [`TlsStream::read_plain`] gives
    /// them first.
    #[must_use]
    pub fn early_data_received(&self) -> usize {
        self.early_total
    }

    fn early_unread(&self) -> &[u8] {
        self.early.get(self.early_read..).unwrap_or_default()
    }

    /// Moves accepted early data to where it can be counted. rustls bounds it by what the
    /// configuration permits.
    fn take_early_data(&mut self) {
        if let Connection::Server(server) = &mut self.connection
            && let Some(mut data) = server.early_data()
        {
            // Reading rustls' buffer cannot fail.
            self.early_total += data.read_to_end(&mut self.early).unwrap_or(0);
        }
    }
}

/// Notes whether the reader was asked at all.
struct Once<'a> {
    inner: &'a mut dyn Read,
    asked: &'a mut bool,
}

impl Read for Once<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        *self.asked = true;
        self.inner.read(buf)
    }
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream")
            .field("handshaking", &self.is_handshaking())
            .field("version", &self.version())
            .field("closing", &self.closing)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Crypto, SecurityParameters, client_config};

    /// rustls' own bounds make it hard to get here; what they may miss must not go on for ever.
    #[test]
    fn a_handshake_beyond_the_limit_is_given_up() {
        let crypto = Crypto::deterministic([1; 32]);
        let parameters = SecurityParameters::opportunistic();
        let config = client_config(&parameters, &crypto, &[], false, &crypto.sessions).unwrap();
        let mut tls = TlsStream::client(config, &parameters.name_for("a.example").unwrap()).unwrap();
        // The beginning of a ServerHello.
        let piece = [22, 3, 3, 0, 4, 2, 0, 0, 90];
        tls.handshake_bytes = HANDSHAKE_LIMIT - piece.len();
        assert_eq!(tls.read_tls(&mut &piece[..]).unwrap(), piece.len());
        assert!(tls.process().is_ok());
        assert_eq!(tls.read_tls(&mut &[22][..]).unwrap(), 1);
        assert_eq!(tls.process(), Err(TlsError::HandshakeTooLarge));
        assert!(!tls.wants_read());
    }
}
