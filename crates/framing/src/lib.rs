//! Message framers: how messages travel over a transport that has none (RFC 9622 section 9.1.2, RFC
//! 9623 section 6).
//!
//! *Responsible for* the [`Framer`] trait in the words of RFC 9623, framers by length and by lines,
//! and the bookkeeping that lets a framer see one contiguous receive buffer. *Not responsible for*
//! reading or writing a connection (the engine).
//!
//! *Invariants*: a framer never sees bytes out of order or twice; what it holds back is bounded by
//! [`Framer::buffer_limit`]; an error of a framer ends its connection, never the process.

#![forbid(unsafe_code)]

mod guard;
mod length;
mod lines;
mod receive;

pub use length::LengthPrefixed;
pub use lines::Lines;
pub use receive::{Delivered, Receiver};

use bytes::{Bytes, BytesMut};
use core::fmt;
use std::sync::Arc;

/// Why a framer gave up on a connection. The text explains what was wrong with the bytes or the
/// message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FramerError(pub String);

impl fmt::Display for FramerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FramerError {}

/// Where a framer puts the bytes for the transport (`Send` of RFC 9623 section 6.2).
#[derive(Debug, Default)]
pub struct Outbound {
    /// Pieces in order; a piece passed through is not copied.
    pub pieces: Vec<Bytes>,
}

impl Outbound {
    /// Sends bytes to the transport below.
    pub fn send(&mut self, data: impl Into<Bytes>) {
        let data = data.into();
        if !data.is_empty() {
            self.pieces.push(data);
        }
    }
}

/// Whether a connection may be used yet, as far as its framer is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// `MakeConnectionReady` of RFC 9623 section 6.1.
    Ready,
    /// The framer needs to exchange bytes with the peer first. Until it returns
    /// [`Readiness::Ready`] the connection is being established: nothing of the program's is sent,
    /// and a listener does not deliver it. It has the time that the request allows for
    /// establishment, or 30 s, and 10 s on a connection that a listener received.
    Handshaking,
}

/// Turns messages into bytes and bytes into messages; one value per connection.
///
/// Its functions run while the engine is borrowed: they must not call the engine, nor anything that
/// waits for a caller of it. (`neater` notices a call of its objects from here and panics.) A panic
/// in a framer that a program has given is an error of its connection, which ends; nothing else is
/// disturbed.
pub trait Framer: Send {
    /// A name for people.
    fn name(&self) -> &str;

    /// The transport below is established: the framer may write before the program does.
    ///
    /// # Errors
    /// Ends the connection attempt.
    fn start(&mut self, _out: &mut Outbound) -> Result<Readiness, FramerError> {
        Ok(Readiness::Ready)
    }

    /// The connection is being closed: the framer may write its farewell.
    fn stop(&mut self, _out: &mut Outbound) {}

    /// The program sends (part of) a message. `first` and `end` show whether this is its beginning
    /// and its end. A first part after one that was not the end: what was sent of the message
    /// before is given up.
    ///
    /// # Errors
    /// The message cannot be framed; the connection stays usable if nothing of the message was
    /// sent.
    fn new_sent_message(&mut self, out: &mut Outbound, data: Bytes, first: bool, end: bool) -> Result<(), FramerError>;

    /// Bytes have arrived, or the peer has ended its direction (`input.ended()`).
    ///
    /// # Errors
    /// The bytes make no sense: the connection fails with this reason.
    fn handle_received_data(&mut self, input: &mut Input<'_>) -> Result<Readiness, FramerError>;

    /// How many bytes may wait for the rest of their message. A longer message is delivered in
    /// parts if the framer can, or fails the connection.
    fn buffer_limit(&self) -> usize {
        1 << 20
    }

    /// Whether it cannot go on, whatever is asked of it: after an error of sending the connection
    /// ends then, too.
    fn is_broken(&self) -> bool {
        false
    }
}

/// What a framer sees when bytes arrive (RFC 9623 section 6.3).
#[derive(Debug)]
pub struct Input<'a> {
    pub(crate) buffer: &'a mut BytesMut,
    pub(crate) delivered: &'a mut std::collections::VecDeque<Delivered>,
    pub(crate) earmarked: &'a mut Option<(u64, bool)>,
    pub(crate) out: &'a mut Outbound,
    pub(crate) ended: bool,
    pub(crate) datagram: bool,
}

impl Input<'_> {
    /// `Parse`: the bytes that have arrived and are not yet consumed.
    #[must_use]
    pub fn parse(&self) -> &[u8] {
        self.buffer
    }

    /// Whether the peer has ended its direction: no more bytes will come.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Whether the bytes are one datagram, which is not joined to another.
    #[must_use]
    pub fn is_datagram(&self) -> bool {
        self.datagram
    }

    /// `AdvanceReceiveCursor`: discards up to `length` bytes that have arrived.
    pub fn advance_receive_cursor(&mut self, length: usize) {
        let n = length.min(self.buffer.len());
        let _ = self.buffer.split_to(n);
    }

    /// `DeliverAndAdvanceReceiveCursor`: the next `length` bytes are (part of) a message;
    /// `end_of_message` shows whether it ends with them. More bytes than have arrived may be named:
    /// they are delivered in parts as they come, and the framer is called again after the last of
    /// them.
    pub fn deliver_and_advance_receive_cursor(&mut self, length: u64, end_of_message: bool) {
        let here = usize::try_from(length).unwrap_or(usize::MAX).min(self.buffer.len());
        let rest = length - here as u64;
        let data = self.buffer.split_to(here).freeze();
        if rest > 0 {
            *self.earmarked = Some((rest, end_of_message));
        }
        if rest == 0 || !data.is_empty() {
            self.delivered.push_back(Delivered { data, end_of_message: end_of_message && rest == 0 });
        }
    }

    /// `Deliver`: data that the framer made itself.
    pub fn deliver(&mut self, data: Bytes, end_of_message: bool) {
        self.delivered.push_back(Delivered { data, end_of_message });
    }

    /// Sends bytes to the peer, such as an answer in a handshake.
    pub fn send(&mut self, data: impl Into<Bytes>) {
        self.out.send(data);
    }
}

/// Which framer the connections of a Preconnection get.
#[derive(Clone, Default)]
pub enum FramerSpec {
    /// None: on a byte stream all bytes of a direction are one message; a datagram is a message.
    #[default]
    Raw,
    /// [`LengthPrefixed`] with this many bytes of length (1, 2, 4 or 8) and this largest message.
    LengthPrefixed {
        /// Bytes of the length field.
        width: u8,
        /// Largest message accepted, in bytes.
        max: u64,
    },
    /// [`Lines`] of up to so many bytes: text protocols.
    Lines {
        /// The longest line accepted, in bytes, without its end.
        max: usize,
        /// Whether lines are sent with CR LF, as most protocols of the Internet have it, and not
        /// with LF alone. Both are accepted.
        crlf: bool,
    },
    /// The program's own.
    Custom(Arc<dyn Fn() -> Box<dyn Framer> + Send + Sync>),
}

impl FramerSpec {
    /// Whether messages keep their boundaries over a byte stream.
    #[must_use]
    pub fn frames(&self) -> bool {
        !matches!(self, Self::Raw)
    }

    /// A framer for a new connection; `None` for raw.
    #[must_use]
    pub fn make(&self) -> Option<Box<dyn Framer>> {
        match self {
            Self::Raw => None,
            Self::LengthPrefixed { width, max } => Some(Box::new(LengthPrefixed::new(*width, *max))),
            Self::Lines { max, crlf } => Some(Box::new(Lines::new(*max, *crlf))),
            Self::Custom(make) => Some(Box::new(guard::Guarded::make(make.as_ref()))),
        }
    }
}

impl fmt::Debug for FramerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Raw => f.write_str("Raw"),
            Self::LengthPrefixed { width, max } => write!(f, "LengthPrefixed({width} bytes, max {max})"),
            Self::Lines { max, crlf } => write!(f, "Lines(max {max} bytes, crlf {crlf})"),
            Self::Custom(_) => f.write_str("Custom"),
        }
    }
}
