//! Received datagrams that the program has not taken: how many of them are kept.
//!
//! Nothing tells a peer to wait, so what is beyond the bound is dropped and counted. *Invariant*: `Engine::kept` is the sum over all
//! connections.

use crate::Engine;
use crate::conn::Conn;
use crate::queue::ReceivedDatagram;
use bytes::Bytes;
use neater_base::Key;
use neater_base::net::{Ecn, Net};

/// What a datagram costs beside its bytes: an empty one takes memory, too.
const EACH: usize = 64;

impl<N: Net> Engine<N> {
    /// Hands a datagram to a connection's queue; false if there was no room.
    pub(crate) fn queue_datagram(&mut self, conn: Key, d: ReceivedDatagram) -> bool {
        let limits = &self.cx.limits;
        // Many peers that nobody listens to keep a little each when they keep much together.
        let crowded = self.cx.kept >= limits.engine_bytes;
        let limit = if crowded { limits.datagram_buffer.min(limits.send_floor) } else { limits.datagram_buffer };
        let now = self.cx.now;
        let Some(c) = self.conns.get_mut(conn) else { return false };
        let unwanted = !c.recv.may_read();
        let ext = c.ext();
        // The peer is there, whether somebody wants what it says or not.
        ext.last_activity = now;
        if unwanted {
            return false;
        }
        let cost = d.data.len() + EACH;
        // The first has room, whatever the others keep.
        let limit = if ext.datagrams.is_empty() { limits.datagram_buffer } else { limit };
        if ext.datagram_bytes + cost > limit {
            c.dropped = c.dropped.saturating_add(1);
            self.cx.stats.refusals.datagrams += 1;
            return false;
        }
        ext.datagram_bytes += cost;
        ext.datagrams.push_back(d);
        self.cx.kept += cost;
        true
    }
}

/// The next datagram, out of the accounts: `kept` is the engine's.
pub(crate) fn take_queued(c: &mut Conn, kept: &mut usize) -> Option<(Bytes, Ecn)> {
    let ext = c.ext.as_deref_mut()?;
    let d = ext.datagrams.pop_front()?;
    let cost = d.data.len() + EACH;
    ext.datagram_bytes = ext.datagram_bytes.saturating_sub(cost);
    *kept = kept.saturating_sub(cost);
    Some((d.data, d.ecn))
}
