//! An engine that is of no use: in a child of `fork`, or because nobody drives it any more.
//!
//! *Responsible for* saying so, at once, by every call that could otherwise promise something. *Not responsible for* keeping
//! the child from the parent's sockets: that is the network's business, which refuses every operation.
//!
//! *Invariant*: nothing that is done with such an engine succeeds, except looking at figures of the past.

use crate::conn::ConnectionState;
use crate::event::{ConnectionError, EstablishmentError, Reason, SendError};
use crate::{Engine, ListenerId};
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
        self.cx.net.forked()
    }

    /// Refuses to do anything in a child.
    #[inline]
    pub(crate) fn own(&self) -> Result<(), ConnectionError> {
        self.unusable().map_or(Ok(()), |e| Err(ConnectionError::Net(e)))
    }

    /// As [`Engine::own`], for what sends.
    #[inline]
    pub(crate) fn own_to_send(&self) -> Result<(), SendError> {
        self.own().map_err(SendError::Connection)
    }

    /// As [`Engine::own`], for what makes connections and listeners.
    #[inline]
    pub(crate) fn own_to_establish(&self) -> Result<(), EstablishmentError> {
        self.unusable().map_or(Ok(()), |e| Err(not_established(e)))
    }

    /// Why no call on this engine will do anything any more, if that is so.
    #[must_use]
    #[inline]
    pub fn unusable(&self) -> Option<NetError> {
        if self.is_forked() {
            Some(FORKED)
        } else if self.orphaned {
            Some(NOT_DRIVEN)
        } else {
            None
        }
    }

    /// Whoever drove this engine has stopped, and nobody will: what waits would wait for ever. Every connection ends with
    /// [`ErrorKind::NotDriven`], every listener stops, and every further call fails with it.
    pub fn orphan(&mut self) {
        self.cx.now = self.cx.net.now();
        self.orphaned = true;
        for listener in self.listeners.keys() {
            self.stop(ListenerId(listener));
        }
        for conn in self.conns.keys() {
            let Some(c) = self.conns.get(conn) else { continue };
            if c.state == ConnectionState::Establishing {
                self.cancel_establishment(conn);
                self.fail(conn, not_established(NOT_DRIVEN));
                continue;
            }
            // The peer must not take a part for the whole. What the system has all of, it may still deliver.
            if !c.tx.is_empty() {
                self.carriers.abort_socket(&mut self.cx, c.flow);
            }
            self.fail_connection(conn, ConnectionError::Net(NOT_DRIVEN));
        }
        self.abort_sessions();
        // What can be said once is said: that it is over.
        self.settle();
    }
}

const NOT_DRIVEN: NetError = NetError::new(ErrorKind::NotDriven);

#[cold]
fn not_established(e: NetError) -> EstablishmentError {
    EstablishmentError::new(Reason::EstablishmentFailed, e.kind.as_str())
}
