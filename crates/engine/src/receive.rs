//! Receiving (RFC 9622 section 9.3).

use crate::event::ConnectionError;
use bytes::Bytes;
use neater_base::net::Ecn;

/// A received message, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The bytes.
    pub data: Bytes,
    /// Whether the message ends with them. Without boundaries and framer, all bytes of a direction
    /// are one message.
    pub end_of_message: bool,
    /// No message follows.
    pub is_final: bool,
    /// The ECN codepoint of a datagram.
    pub ecn: Option<Ecn>,
    /// It came as early data, and the peer has not finished its handshake yet: it may be a replay
    /// of what was seen on the way (RFC 9622 section 9.3.3.2). Only on connections of a listener
    /// that asks for `zeroRttMsg`.
    pub early: bool,
    /// The stream that it came on, where one connection is a whole SCTP association (see
    /// [`crate::SendOptions::stream`]).
    pub stream: Option<u16>,
    /// The payload protocol identifier that the sender gave it there (see
    /// [`crate::SendOptions::ppid`]).
    pub ppid: Option<u32>,
    /// Which message it is part of there: parts of several may alternate, because the peer sends
    /// them at the same time on several streams (RFC 8260). Elsewhere those of one message come one
    /// after the other.
    pub message: Option<u64>,
}

/// What receiving found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiveOutcome {
    /// Something.
    Received(Received),
    /// Nothing now; [`crate::Event::Readable`] follows.
    Blocked,
    /// The peer has sent its last message, and it was taken.
    End,
}

/// What reading found: `Some(0)` is the end, `None` is "not now".
pub(crate) type Read = Result<Option<usize>, ConnectionError>;

/// How much is read from a transport at once.
pub(crate) const CHUNK: usize = 64 << 10;

/// Rounds of reading for one message before others have their turn.
pub(crate) const ROUNDS: usize = 64;
