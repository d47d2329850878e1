//! Received datagrams that the program has not taken: how many of them are kept.
//!
//! These protocols have no flow control, so what is beyond the bound is dropped and counted.
//! *Invariant*: `Engine::kept` is the sum over all connections.

use crate::conn::Conn;
use bytes::Bytes;
use neater_base::net::Ecn;

/// What a datagram costs beside its bytes: an empty one takes memory, too.
pub(crate) const EACH: usize = 64;

/// The next datagram, out of the accounts: `kept` is the engine's.
pub(crate) fn take_queued(c: &mut Conn, kept: &mut usize) -> Option<(Bytes, Ecn)> {
    let cold = c.cold.as_deref_mut()?;
    let d = cold.datagrams.pop_front()?;
    let cost = d.data.len() + EACH;
    cold.datagram_bytes = cold.datagram_bytes.saturating_sub(cost);
    *kept = kept.saturating_sub(cost);
    Some((d.data, d.ecn))
}
