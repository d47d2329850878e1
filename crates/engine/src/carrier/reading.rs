//! Sockets that several connections share, and that are read batch by batch: each when everything
//! that was reported before is handled, so that what the engine does about one batch counts for the
//! next.
//!
//! *Invariant*: the sockets are read one after the other, each until it is empty or its budget of
//! the turn is used up.

use super::Carriers;
use super::dtls::RECV_BUDGET;
use crate::carrier::terms::{At, Reading};
use crate::context::Context;
use neater_base::Key;
use neater_base::net::Net;

impl Carriers {
    /// A socket of DTLS sessions is to be read; `late`: the one whose deadline has passed, which is
    /// looked at after that.
    pub(in crate::carrier) fn read_sessions(&mut self, socket: Key, late: Option<Key>) {
        self.sockets.reading.push_back(Reading(At::Sessions { socket, budget: RECV_BUDGET, late }));
    }

    /// The listener to which new peers would come by what is read.
    pub(crate) fn listener_read(&self, Reading(at): &Reading) -> Option<Key> {
        match at {
            At::Shared { socket, .. } => self.sockets.channels.get(*socket)?.used_by.listener(),
            At::Sessions { socket, .. } => self.dtls.listener_at(*socket),
            At::Late { .. } => None,
        }
    }

    /// Reads a batch. `full`: the listener takes no new peer.
    pub(crate) fn read_on<N: Net>(&mut self, cx: &mut Context<N>, Reading(at): Reading, full: bool) {
        match at {
            At::Shared { socket, round } => {
                if self.sockets.receive_shared(cx, socket, round) {
                    self.sockets.reading.push_front(Reading(At::Shared { socket, round: round + 1 }));
                }
            }
            At::Sessions { socket, mut budget, late } => {
                if self.dtls.receive(cx, socket, full, &mut budget) {
                    self.sockets.reading.push_front(Reading(At::Sessions { socket, budget, late }));
                } else if let Some(session) = late {
                    self.sockets.reading.push_front(Reading(At::Late { session }));
                }
            }
            At::Late { session } => self.dtls.on_timeout(cx, session),
        }
    }
}
