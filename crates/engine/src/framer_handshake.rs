//! Framers that talk to each other before the program may (RFC 9623 section 6.1).
//!
//! *Responsible for* connections whose transport is up and whose framer is
//! `Readiness::Handshaking`: for the rest of the engine they are being established. The framer's
//! output has a queue of its own, which the program's messages wait behind; received bytes go to
//! the framer at once, whether or not the program reads. *Not responsible for* anything after that.
//!
//! *Invariants*: nothing of the program's is on the wire before the framer is ready; a connection
//! that was received is delivered when it is; a handshake that is not finished in time ends its
//! connection.

use crate::conn::Conn;
use crate::queue::SendQueue;
use neater_base::{Instant, Key};

/// The receiver of a connection when it is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandOver {
    /// The program that has initiated or cloned it.
    Opener,
    Listener(Key),
    /// A stream of the peer's: its group, or the listener of that.
    Group(Key),
}

/// A framer's handshake.
#[derive(Debug)]
pub(crate) struct FramerHandshake {
    /// Output of the framer that the transport has not taken.
    pub(crate) tx: SendQueue,
    pub(crate) to: HandOver,
    pub(crate) until: Instant,
    /// Its next turn is due.
    pub(crate) due: bool,
    /// It counts among the handshakes of this listener.
    pub(crate) counted: Option<Key>,
}

impl Conn {
    /// Whether its framer is handshaking.
    #[inline]
    pub(crate) fn is_framer_handshaking(&self) -> bool {
        self.cold.as_ref().is_some_and(|e| e.framer_handshake.is_some())
    }
}
