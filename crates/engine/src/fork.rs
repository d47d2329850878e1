//! An engine that is of no use: in a child of `fork`, or because no driver drives it any more.
//!
//! *Responsible for* the error, at once, of every call that could otherwise promise something. *Not
//! responsible for* keeping the child from the parent's sockets: that is the network's business,
//! which refuses every operation.
//!
//! *Invariant*: nothing that is done with such an engine succeeds, except looking at figures of the
//! past.

use neater_base::net::{ErrorKind, NetError};

/// What a call answers in a child.
pub(crate) const FORKED: NetError = NetError::new(ErrorKind::Forked);
