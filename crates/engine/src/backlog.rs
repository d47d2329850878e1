//! What a listener holds for the program, and for peers that are slow.
//!
//! *Responsible for* bounding both: connections that were delivered and that the program has not
//! taken ([`crate::Limits::untaken`]), and handshakes that make no haste while others wait
//! ([`crate::Limits::handshakes`]). What comes beyond the first bound waits in the kernel, or is
//! refused where no kernel keeps it (QUIC, UDP). *Not responsible for* accepting.
//!
//! Where one source holds more than half of the room over TCP, clients are examined before it is
//! full again: one from elsewhere takes the place of one of that source's, and that source's own
//! wait in a second room of the same size. Where that is full, too, more are left in the kernel,
//! until the oldest has waited for a tenth of a second and goes.
//!
//! *Invariants*: a listener that is full accepts again when a quarter of its room is free; no
//! handshake is given up while there is room for others, nor before
//! [`HASTE`](crate::eviction::HASTE), unless its source (an address, or of IPv6 a network of 64
//! bits) has more of them than that of the newcomer would have: no source keeps others out by
//! coming more often.

use neater_base::Key;
use std::collections::VecDeque;

/// What a listener holds.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Delivered, and not taken.
    pub(crate) untaken: usize,
    /// No more is delivered until some are taken.
    pub(crate) full: bool,
    /// Channels in their handshake, oldest first, and some whose handshake is over.
    pub(crate) handshakes: VecDeque<Key>,
    /// Channels of a crowd that wait for their handshake to begin, oldest first.
    pub(crate) waiting: VecDeque<Key>,
}

impl Backlog {
    /// Whether the program must take something first.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// Something was delivered, of which there may be `max` that were not taken.
    #[inline]
    pub(crate) fn count_untaken(&mut self, max: usize) {
        self.untaken += 1;
        self.full |= self.untaken >= max;
    }

    /// Whether connections that were accepted wait for their handshake to begin.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}
