//! What connections see of their ways, for policies that want to know.
//!
//! A connection that was initiated reports its time to establishment, and as long as it carries
//! something its round trip, rate and loss, once a second. One that carries nothing is looked at
//! ever less often, so that an idle program is hardly woken, and once a second again when it
//! carries something. Nothing is looked at where no policy wants a property of these
//! ([`MEASURED`]), and never more than `MAX_FLOWS` connections: the one that has been silent
//! longest gives way to a new one. Looking is reading counters, so that no byte waits for it.
//!
//! [`MEASURED`]: neater_policy::advice::MEASURED

use crate::{RemoteEndpoint, Stack};
use core::time::Duration;
use neater_base::{Instant, Key};

/// How many looks a connection may carry nothing until the pauses between them grow, each to twice
/// the one before.
pub(crate) const SILENT_LOOKS: u8 = 10;

/// What a transport has counted, for policies.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TransportCounters {
    /// Bytes that have left this host and are not on their way; QUIC, where it does not know what
    /// is on its way, counts what has left.
    pub(crate) carried: u64,
    /// Packets sent, and those that were lost; of TCP, which does not count the former, only those
    /// that were sent again.
    pub(crate) packets: (u64, u64),
    /// What one packet of TCP carries, in bytes.
    pub(crate) segment: Option<u64>,
}

/// The counters of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    /// What the application has handed over, and what it has received, in bytes.
    pub(crate) bytes: (u64, u64),
    /// The transport's counters: bytes in buffers and windows are no evidence about the network.
    pub(crate) transport: TransportCounters,
}

/// Which of a connection's remote endpoints it has reached, and by which interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) remote: usize,
    pub(crate) interface: u32,
}

/// Between two tellings of what was seen to other programs, at least.
pub(crate) const TELL: Duration = Duration::from_secs(1);

/// How many facts are published at once.
pub(crate) const MAX_TOLD: usize = 64;

/// A way to a remote endpoint, and the transport that was tried there.
#[derive(Clone, Debug)]
pub(crate) struct Tried {
    pub(crate) interface: Box<str>,
    pub(crate) remote: RemoteEndpoint,
    pub(crate) stack: Stack,
}

/// A connection that is looked at.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) conn: Key,
    pub(crate) way: Way,
    /// When it was looked at last.
    pub(crate) at: Instant,
    pub(crate) counters: Counters,
    /// How many looks it has been silent for, up to [`SILENT_LOOKS`].
    pub(crate) silent: u8,
    /// How long after the last look the next one is.
    pub(crate) pause: Duration,
}

/// The connections that are looked at.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    pub(crate) all: Vec<Flow>,
    /// When the next look is.
    pub(crate) armed: Option<Instant>,
    /// The earliest time of the next publication.
    pub(crate) tell: Instant,
}
