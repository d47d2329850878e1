//! Connections that are being closed: how long that may take, when it is done, and what it means to
//! give up.
//!
//! *Responsible for* distinguishing delivered data from undelivered data: a connection is closed
//! when its peer has acknowledged what was sent (RFC 9293 section 3.6), and has failed when it has
//! not and will not. *Not responsible for* what begins the closing (`engine/close.rs`).
//!
//! A closing lasts as long as something of what was sent is delivered now and then. A peer that
//! answers and takes nothing has paused: it has `STANDSTILL`, unless the engine is short of room,
//! when it has `LINGER`, as a peer that does not answer at all. Systems probe a closed window ever
//! more rarely: a peer that is not asked owes no answer.
//!
//! *Invariants*: a connection that is closing and waits has a [`Closing`] with a timer, so that it
//! ends at last; giving up before what was sent is acknowledged is an error, never
//! [`crate::Event::Closed`].

use neater_base::Instant;

/// How far the closing of a connection is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closing {
    pub(crate) since: Instant,
    /// When there was progress last.
    pub(crate) moved: Instant,
    /// What [`crate::carrier::terms::Progress::mark`] was then.
    pub(crate) mark: u64,
    /// How many packets had come from the peer by then, where they are counted.
    pub(crate) packets: u64,
    /// Since when the system waits for an answer to a retransmission or a probe.
    pub(crate) asked: Option<Instant>,
}

/// The application error code of a session that ends because its last connection was aborted
/// without one of its own: not 0, which is an orderly end.
pub(crate) const ABORTED: u64 = 1;

/// The application error code of a stream that is given up without one.
pub(crate) const NO_CODE: u64 = 0;
