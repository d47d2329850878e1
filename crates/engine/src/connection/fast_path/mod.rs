//! The fast path: what most connections need most of the time, in the fewest instructions.
//!
//! A plain TCP connection whose bytes are not framed, limited or queued needs no more than its
//! socket: it is opened where the last race ended, its bytes go straight to the socket and come
//! straight from it, and it is released without an orderly close if nothing was sent or received on
//! it. This folder is the one place that touches a connection, its socket, listeners and events
//! together. Everything here has a general way beside it, which is taken where the fast one
//! declines, and does the same: a test runs a scenario both ways and compares what the program sees
//! ([`crate::EngineConfig::fast_path`] switches this one off).
//!
//! *Invariants*
//!
//! 1. Nothing of the program's runs here: no framer, no callback, no destructor. No protocol above
//!    TCP does either. So [`FastPath::on_event`] may run where a turn may not, among the work of
//!    another reactor.
//! 2. What is not so simple is left to the general way, with nothing lost: an event that is not
//!    finished here is handled by the next turn, an error that the system reports once is kept for
//!    it ([`FastPath::refused`]).
//! 3. [`DirectBytes`] holds as long as the connection is not changed:
//!    [`crate::conn::Conns::get_mut`] forgets it, so that the code that changes a connection need
//!    not think of it. [`crate::conn::Conns::get_fast`] does not, and is for this folder, and for
//!    code that only counts bytes or notes waiters.
//! 4. A direction is open only if its bytes may pass (the connection is open, not ended, not
//!    framed, not limited), nothing is queued before them, and the socket was not seen to block
//!    since. Blocked, it opens again with the socket's next event.
//! 5. A [`DirectStream`](neater_base::net::DirectStream) has the same two gates as the connection,
//!    and is closed with them.
//! 6. A connection that is opened here has no race, no state that is rarely needed, no queue, and a
//!    request that allows it ([`Compiled::direct`]). Policies see every connection, so there is no
//!    fast way to open one where policies are asked.

mod bytes;
mod connect;
mod poll;
mod state;

pub(crate) use self::bytes::{FastRead, FastWrite};
pub(crate) use self::poll::NextDeadline;
pub(crate) use self::state::DirectBytes;

use crate::carrier::channel::Channel;
use crate::conn::Conns;
use crate::context::Context;
use crate::listen::Listener;
use crate::notices::Notices;
use neater_base::net::NetError;
use neater_base::{Key, Slab};

#[cfg(doc)]
use crate::request::Compiled;

/// The parts of the engine that the fast path works with.
pub(crate) struct FastPath<'a, N> {
    pub(crate) cx: &'a mut Context<N>,
    pub(crate) conns: &'a mut Conns,
    pub(crate) sockets: &'a mut Slab<Channel>,
    pub(crate) listeners: &'a mut Slab<Listener>,
    pub(crate) notices: &'a mut Notices,
    /// An error that the system has reported of an attempt whose end is for the next turn, or of a
    /// listener that cannot accept: it is not reported again. It concerns the first event that is
    /// left to the turn.
    pub(crate) refused: &'a mut Option<(Key, NetError)>,
    /// Policies are asked.
    pub(crate) advised: bool,
}
