//! What carriers report is handled, and what they have to send is sent.
//!
//! *Invariants*: a session sends nothing before its events are handled: what is queued in answer to them is to be in the packets that
//! leave now.

use super::Engine;
use crate::carrier::FlowId;
use crate::carrier::dispatch::{Flush, Flushed};
use neater_base::net::Net;

/// How often those are looked at that are marked while others are flushed, before they wait for the next turn.
const ROUNDS: usize = 8;

impl<N: Net> Engine<N> {
    /// Sends what sessions have to send, and reports what has happened to them.
    #[inline(never)]
    pub(crate) fn flush_carriers(&mut self) {
        self.carriers.take_back_windows(&mut self.cx);
        self.drain_carriers();
        self.flush_all();
        // What was reported may have something sent in turn.
        while self.carriers.has_events() {
            self.drain_carriers();
            self.flush_all();
        }
    }

    fn flush_all(&mut self) {
        for of in Flushed::ALL {
            self.flush_dirty(of);
        }
    }

    /// Lets every session of a carrier that has something to do do it.
    fn flush_dirty(&mut self, of: Flushed) {
        // One may mark another; what is marked again by the budget waits for the next turn.
        for _ in 0..ROUNDS {
            if !self.carriers.is_dirty(of) {
                return;
            }
            let mut list = self.carriers.take_dirty(of);
            for key in list.drain(..) {
                self.carriers.unmark(of, key);
                self.flush_session(Flush::new(of, key));
            }
            self.carriers.keep_list(of, list);
        }
        self.cx.again |= self.carriers.is_dirty(of);
    }

    fn flush_session(&mut self, mut flush: Flush) {
        loop {
            // Events first: they may produce more to send.
            while self.carriers.collect(&mut self.cx, &mut flush) {
                self.drain_carriers();
            }
            self.drain_carriers();
            if !self.carriers.transmit(&mut self.cx, &mut flush) {
                break;
            }
        }
        self.carriers.rest(&mut self.cx, &flush);
        self.drain_carriers();
        self.carriers.tidy(&mut self.cx, &flush);
        self.drain_carriers();
    }

    /// Sends what the session of a flow has queued itself and may send now.
    pub(crate) fn send_queued(&mut self, flow: FlowId) {
        if let Some(flush) = Flush::of(flow) {
            self.flush_session(flush);
        }
    }
}
