//! Packets in trains: for sockets that take several of one length at once (UDP segmentation
//! offload).

use super::{Endpoint, TURN, Transmit};
use crate::association::{Bulk, Like};
use crate::ids::Route;
use neater_base::Instant;

/// Packets to one destination, behind each other in a buffer: all of one length but the last, which
/// may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Train {
    /// Where they go.
    pub route: Route,
    /// How many bytes of the buffer they have together.
    pub len: usize,
    /// How many bytes each has, but the last.
    pub segment: usize,
    /// Send them as capable of congestion marks: ECT(0) (RFC 3168).
    pub ect: bool,
    /// Forbid routers to cut them: see [`Transmit::whole`].
    pub whole: bool,
}

/// A packet that was written into a train that it does not fit into.
#[derive(Debug, Default)]
pub(super) struct Held {
    transmit: Option<Transmit>,
    bytes: Vec<u8>,
}

impl Held {
    pub(super) const fn is_empty(&self) -> bool {
        self.transmit.is_none()
    }

    fn put(&mut self, transmit: Transmit, bytes: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.transmit = Some(transmit);
    }

    /// Moves it into `buffer`.
    pub(super) fn take(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let transmit = self.transmit.take()?;
        buffer.get_mut(..transmit.len)?.copy_from_slice(&self.bytes);
        Some(transmit)
    }
}

impl Endpoint {
    /// Writes the next packets into `buffer`, at most `most` of them, as a train. `None`: there is
    /// none now.
    ///
    /// As many are written as have one destination and one length, and as the buffer has room for:
    /// it is not filled further than the largest packet of every layer would still fit. A train
    /// ends behind its first shorter packet. A probe of the path's size is alone, and so is what
    /// may be cut on the way.
    pub fn poll_train(&mut self, now: Instant, buffer: &mut [u8], most: usize) -> Option<Train> {
        let first = self.poll_transmit(now, buffer)?;
        let mut train =
            Train { route: first.route, len: first.len, segment: first.len, ect: first.ect, whole: first.whole };
        let most = if first.probe || !first.whole { 1 } else { most };
        let more = self.extend(now, &mut buffer[train.len..], &train, most.saturating_sub(1));
        train.len += more.len;
        if let Some(len) = more.over {
            let next = Transmit { len, ..first };
            self.held.put(next, &buffer[train.len..][..len]);
            return Some(train);
        }
        if !train.len.is_multiple_of(train.segment) {
            return Some(train);
        }
        for _ in 1 + more.packets..most {
            let rest = &mut buffer[train.len..];
            if rest.len() < self.largest {
                break;
            }
            let Some(next) = self.poll_transmit(now, rest) else { break };
            let same = (next.route, next.ect, next.whole) == (train.route, train.ect, train.whole);
            let fits = same && next.len <= train.segment && !next.probe;
            if !fits {
                self.held.put(next, &rest[..next.len]);
                break;
            }
            train.len += next.len;
            if next.len < train.segment {
                break;
            }
        }
        Some(train)
    }

    /// Lets the association whose turn it is write what it has of new data behind a train, at most
    /// `most` packets.
    fn extend(&mut self, now: Instant, buffer: &mut [u8], train: &Train, most: usize) -> Bulk {
        if most == 0 || !self.held.is_empty() || !self.replies.is_empty() {
            return Bulk::default();
        }
        let alone = self.eager.len() == 1;
        let most = if alone { most } else { most.min(TURN.saturating_sub(self.turn) as usize) };
        let entry = self.eager.front().and_then(|key| self.associations.get_mut(*key)).filter(|e| e.eager);
        let Some(entry) = entry else { return Bulk::default() };
        let like = Like { route: train.route, ect: train.ect, segment: train.segment };
        let bulk = entry.association.poll_bulk(now, buffer, &like, self.largest, most);
        self.turn += (bulk.packets + usize::from(bulk.over.is_some())) as u32;
        self.take_turns();
        bulk
    }
}
