//! Accepted streams that are not registered with the poller yet.
//!
//! Most of what is accepted is read at once, and many connections have been ended by then: a short
//! exchange costs its server no call to the poller, neither to register it nor, inside the system,
//! to remove it. So a stream is registered when a call finds nothing to do, and between one
//! [`PATIENCE`] and two after the connection was accepted in any case.
//!
//! *Responsible for* that every accepted stream that is still open is watched in time.
//! *Deliberately not here*: the calls on the streams, which register with the poller themselves.
//!
//! *Invariants*
//!
//! * A caller that gets `WouldBlock` is notified of readiness later: the stream is registered
//!   before the call returns. What arrived in between makes an edge at the registration.
//! * A stream without reads or writes is watched two [`PATIENCE`] after it was accepted at the
//!   latest: that its peer has gone is noticed. All that is accepted within one of them is due at
//!   once, so that the timer goes off once for it, not once for each.

use super::Result;
use super::slots::{Slot, Writes};
use crate::sys::{Fd, Poller};
use core::time::Duration;
use neater_base::Instant;
use neater_base::net::Sock;
use std::collections::VecDeque;

/// How long an accepted stream may stay unused before it is registered. Long enough for a program
/// that takes a whole queue of connections to get round to each, and far below a noticeable delay
/// for a peer that has gone.
const PATIENCE: Duration = Duration::from_millis(5);

/// So many are remembered at most; others are registered at once.
pub(crate) const MOST: usize = 1024;

/// What was accepted lately, and when it is registered at the latest. Some of it is watched or gone
/// already.
#[derive(Debug)]
pub(crate) struct Fresh {
    queue: VecDeque<(Instant, Sock)>,
    /// When the poller was last asked: a clock that costs nothing.
    turned: Instant,
}

impl Default for Fresh {
    fn default() -> Self {
        Self { queue: VecDeque::new(), turned: Instant::ZERO }
    }
}

impl Fresh {
    /// Remembers a stream and returns when it is due; `None`: it must be registered at once.
    #[inline]
    pub(crate) fn push(&mut self, sock: Sock) -> Option<Instant> {
        if self.queue.len() >= MOST {
            return None;
        }
        const STEP: u64 = PATIENCE.as_nanos() as u64;
        let at = Instant::from_nanos((self.turned.as_nanos() / STEP).saturating_add(2).saturating_mul(STEP));
        self.queue.push_back((at, sock));
        self.due()
    }

    /// When the first is due.
    #[inline]
    pub(crate) fn due(&self) -> Option<Instant> {
        self.queue.front().map(|(at, _)| *at)
    }

    /// The poller has been asked.
    #[inline]
    pub(crate) fn turned(&mut self, now: Instant) {
        self.turned = now;
    }

    /// Takes one that is due.
    #[inline]
    pub(crate) fn next_due(&mut self, now: Instant) -> Option<Sock> {
        if self.due()? > now {
            return None;
        }
        self.queue.pop_front().map(|(_, sock)| sock)
    }
}

/// Registers a stream with the poller, unless it is registered.
///
/// # Errors
/// No memory, or the user's limit of watched descriptors.
#[inline]
pub(crate) fn tell(poller: &Poller, fd: Fd, sock: Sock, slot: &mut Slot) -> Result<()> {
    if slot.writes == Writes::Untold {
        poller.add_socket(fd, sock.0, false)?;
        slot.writes = Writes::Unwatched;
    }
    Ok(())
}
