//! Connections that wait in the kernel until they are accepted.
//!
//! *Responsible for* accepting within the budget and the bounds of a listener.
//! *Not responsible for* which connection a full listener gives up for others ([`crate::backlog`]).

use super::Listener;
use neater_base::net::{ErrorKind, NetError};

impl Listener {
    /// One more of what the listener may deliver is delivered; `max`: how many the program may
    /// leave untaken.
    pub(crate) fn count_received(&mut self, max: usize) {
        self.backlog.count_untaken(max);
        if let Some(limit) = &mut self.limit {
            *limit = limit.saturating_sub(1);
        }
    }

    /// Whether it has room, and what is accepted can be delivered as soon as it has its whole
    /// stack: no framer, no rate.
    pub(crate) fn delivers_plainly(&self) -> bool {
        let has_room = self.limit.is_none_or(|n| n > 0) && !self.backlog.is_full() && !self.backlog.has_waiting();
        has_room && self.takes_sockets() && self.handshaking == 0
    }

    /// Whether a connection over TCP is ready as soon as TCP is: no framer, no rate.
    #[inline]
    pub(crate) fn takes_sockets(&self) -> bool {
        let request = &self.request.0;
        !request.framer.frames() && request.rates == (None, None)
    }
}

/// Whether it concerns the connection alone that was to be accepted: its peer has gone while it
/// waited.
pub(crate) fn gave_up(error: &NetError) -> bool {
    matches!(error.kind, ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset)
}
