//! What every part of the engine works with: the network, the time, deadlines, chance, limits and memory.
//!
//! *Responsible for* lending these to whichever part is called, so that a part needs no access to the others. *Not
//! responsible for* any decision. Nothing here names a connection, a race or a protocol.

use crate::config::{EngineConfig, EngineStats, Limits};
use crate::timer::Timer;
use neater_base::net::{Net, RecvBatch};
use neater_base::{Instant, Rng, Timers};

/// See the module's documentation.
pub(crate) struct Context<N> {
    pub(crate) net: N,
    /// The time of this turn, or call.
    pub(crate) now: Instant,
    pub(crate) rng: Rng,
    pub(crate) config: EngineConfig,
    pub(crate) limits: Limits,
    pub(crate) timers: Timers<Timer>,
    /// Buffers for received datagrams, between two uses.
    pub(crate) batch: Option<Box<RecvBatch>>,
    /// A buffer for received bytes, between two uses.
    pub(crate) scratch: Vec<u8>,
    /// A buffer for the packet that is being sent.
    pub(crate) packet: Vec<u8>,
    /// Work was left over by a budget: the network is to wake the engine at once.
    pub(crate) again: bool,
    /// Bytes in the send queues of all connections.
    pub(crate) queued: usize,
    /// Bytes of received datagrams that the program has not taken.
    pub(crate) kept: usize,
    /// What flow-control windows promise beside that.
    pub(crate) windows: Windows,
    /// When the system last had no descriptor for a connection that was to be accepted, or opened.
    pub(crate) starved: Option<Instant>,
    pub(crate) stats: EngineStats,
}

impl<N: Net> Context<N> {
    pub(crate) fn new(net: N, config: EngineConfig, rng: Rng) -> Self {
        Self {
            now: net.now(),
            rng,
            limits: config.limits.usable(),
            config,
            net,
            timers: Timers::new(),
            batch: None,
            scratch: Vec::new(),
            packet: Vec::new(),
            again: false,
            queued: 0,
            kept: 0,
            windows: Windows::default(),
            starved: None,
            stats: EngineStats::default(),
        }
    }
}

/// What the windows of an engine's QUIC connections and SCTP associations have grown.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    /// Beyond [`neater_quic::Tuning::SEND_WINDOW_MIN`] each, in bytes; and buffers of SCTP associations, beyond [`crate::Limits::send_buffer`] each.
    pub(crate) grown: u64,
    /// What peers may send beyond [`neater_quic::Tuning::RECEIVE_WINDOW_MIN`] each, in bytes.
    pub(crate) granted: u64,
    /// When all may be looked at again.
    pub(crate) look_at: neater_base::Instant,
}

impl Windows {
    /// What connections and associations may keep of what they have sent, beyond what each begins with, in bytes.
    pub(crate) const fn grown(&self) -> u64 {
        self.grown
    }

    /// The buffer of an SCTP association has grown, or become smaller.
    pub(crate) const fn has_grown(&mut self, by: isize) {
        self.grown = self.grown.saturating_add_signed(by as i64);
    }

    /// What peers may send beyond [`neater_quic::Tuning::RECEIVE_WINDOW_MIN`] each, in bytes.
    pub(crate) const fn granted(&self) -> u64 {
        self.granted
    }
}
