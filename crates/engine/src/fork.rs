//! An engine in a child of `fork`.
//!
//! *Responsible for* saying so, at once, by every call that could otherwise promise something. *Not responsible for* keeping
//! the child from the parent's sockets: that is the network's business, which refuses every operation.
//!
//! *Invariant*: nothing that a child does with an inherited engine succeeds, except looking at figures of the past.

use crate::Engine;
use crate::event::{ConnectionError, EstablishmentError, Reason, SendError};
use neater_base::net::{ErrorKind, Net, NetError};

/// What a call answers in a child.
pub(crate) const FORKED: NetError = NetError::new(ErrorKind::Forked);

impl<N: Net> Engine<N> {
    /// Whether this is the copy of an engine that a child of `fork` has inherited. It is of no use: every call that would
    /// do something fails with [`ErrorKind::Forked`], and nothing that it does reaches the parent or its peers. The child
    /// makes an engine of its own.
    #[must_use]
    #[inline]
    pub fn is_forked(&self) -> bool {
        self.net.forked()
    }

    /// Refuses to do anything in a child.
    #[inline]
    pub(crate) fn own(&self) -> Result<(), ConnectionError> {
        if self.is_forked() { Err(ConnectionError::Net(FORKED)) } else { Ok(()) }
    }

    /// As [`Engine::own`], for what sends.
    #[inline]
    pub(crate) fn own_to_send(&self) -> Result<(), SendError> {
        self.own().map_err(SendError::Connection)
    }

    /// As [`Engine::own`], for what makes connections and listeners.
    #[inline]
    pub(crate) fn own_to_establish(&self) -> Result<(), EstablishmentError> {
        if self.is_forked() { Err(forked()) } else { Ok(()) }
    }
}

#[cold]
fn forked() -> EstablishmentError {
    EstablishmentError::new(Reason::EstablishmentFailed, ErrorKind::Forked.as_str())
}
