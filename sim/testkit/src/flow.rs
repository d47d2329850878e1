//! A program's side of one connection: what it has to say, how it behaves, what it has seen.
//!
//! *Responsible for* bookkeeping. *Not for* calling the engine, which the [`crate::Playground`] does, and only when an
//! event says that it is worth it: what an engine forgets to report, no flow will find out.

use crate::Node;
use bytes::{Bytes, BytesMut};
use neater_base::Instant;
use neater_engine::{ConnectionError, ConnectionId, EstablishmentError, MessageId, SendError, SendOptions};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Names a flow of a playground.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowId {
    /// Whose side.
    pub node: Node,
    /// Which connection.
    pub conn: ConnectionId,
}

/// What a program does when its peer has ended its direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenEnded {
    /// Nothing.
    #[default]
    Stay,
    /// Ends its own direction.
    Finish,
    /// Closes the connection, after what it still has to say.
    Close,
}

/// How a program behaves on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manner {
    /// Takes what arrives. Otherwise it stalls, and its peer after it.
    pub reads: bool,
    /// Sends back every message, or every piece of a byte stream.
    pub echoes: bool,
    /// Keeps what it receives; otherwise only counts it.
    pub keeps: bool,
    /// Says this first.
    pub greeting: Option<Bytes>,
    /// At the peer's end.
    pub when_ended: WhenEnded,
}

impl Default for Manner {
    /// Reads, keeps, and closes after its peer.
    fn default() -> Self {
        Self { reads: true, echoes: false, keeps: true, greeting: None, when_ended: WhenEnded::Close }
    }
}

impl Manner {
    /// Reads and keeps, and leaves closing to the test.
    #[must_use]
    pub fn patient() -> Self {
        Self { when_ended: WhenEnded::Stay, ..Self::default() }
    }

    /// Sends everything back, and ends after its peer.
    #[must_use]
    pub fn echo() -> Self {
        Self { echoes: true, ..Self::default() }
    }

    /// Never reads.
    #[must_use]
    pub fn stalled() -> Self {
        Self { reads: false, ..Self::patient() }
    }
}

/// How a connection ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Over {
    /// In order.
    Closed,
    /// By an error.
    Failed(ConnectionError),
    /// It never began.
    NotEstablished(Box<EstablishmentError>),
}

/// One side of a connection.
#[derive(Debug)]
pub struct Flow {
    /// How the program behaves.
    pub manner: Manner,
    pub(crate) outbox: VecDeque<(Bytes, SendOptions)>,
    /// Where it was received, of one that was.
    pub received_by: Option<SocketAddr>,
    /// When it was made.
    pub opened_at: Instant,
    /// When it was established.
    pub ready_at: Option<Instant>,
    /// When the last bytes came.
    pub received_at: Option<Instant>,
    /// When the peer's end was found.
    pub ended_at: Option<Instant>,
    /// How and when it ended.
    pub over: Option<(Instant, Over)>,
    /// All bytes received, in order, if they are kept.
    pub received: Vec<u8>,
    /// How many bytes were received.
    pub count: usize,
    /// How many of them came before the peer's handshake was complete.
    pub early: usize,
    /// Whole messages received, if they are kept.
    pub messages: Vec<Bytes>,
    pub(crate) partial: BytesMut,
    /// The error that receiving ended with.
    pub receive_error: Option<ConnectionError>,
    /// Messages reported as sent.
    pub sent: Vec<MessageId>,
    /// Messages reported as expired.
    pub expired: Vec<MessageId>,
    /// Messages reported as not sent.
    pub unsent: Vec<(MessageId, SendError)>,
    /// Messages that were refused when they were sent.
    pub refused: Vec<SendError>,
    /// Ids given to messages, in order.
    pub given: Vec<MessageId>,
    /// How often sending was blocked.
    pub blocked: usize,
    /// How often there was room again.
    pub writables: usize,
    /// ICMP errors that were reported.
    pub soft_errors: usize,
    /// Changes of the path that were reported.
    pub path_changes: usize,
    pub(crate) finish_after: bool,
    pub(crate) close_after: bool,
    pub(crate) released: bool,
}

impl Flow {
    pub(crate) fn new(manner: Manner, now: Instant) -> Self {
        Self {
            manner,
            outbox: VecDeque::new(),
            received_by: None,
            opened_at: now,
            ready_at: None,
            received_at: None,
            ended_at: None,
            over: None,
            received: Vec::new(),
            count: 0,
            early: 0,
            messages: Vec::new(),
            partial: BytesMut::new(),
            receive_error: None,
            sent: Vec::new(),
            expired: Vec::new(),
            unsent: Vec::new(),
            refused: Vec::new(),
            given: Vec::new(),
            blocked: 0,
            writables: 0,
            soft_errors: 0,
            path_changes: 0,
            finish_after: false,
            close_after: false,
            released: false,
        }
    }

    /// Whether it is established, or was.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready_at.is_some()
    }

    /// Whether it is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.is_some()
    }

    /// How many messages and pieces wait for room, or for their turn.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.outbox.len()
    }

    /// Whether it has said everything that it was given to say.
    #[must_use]
    pub fn has_said_all(&self) -> bool {
        self.outbox.is_empty()
    }

    /// How it ended.
    #[must_use]
    pub fn end(&self) -> Option<&Over> {
        self.over.as_ref().map(|(_, over)| over)
    }

    /// Why it could not be established.
    #[must_use]
    pub fn establishment_error(&self) -> Option<&EstablishmentError> {
        match self.end() {
            Some(Over::NotEstablished(e)) => Some(e),
            _ => None,
        }
    }

    /// How long establishment took.
    #[must_use]
    pub fn establishment(&self) -> Option<core::time::Duration> {
        self.ready_at.map(|at| at - self.opened_at)
    }
}
