//! What later races learn from how a connection served.
//!
//! That a connection could be established does not mean that it is of use: a peer may accept and be
//! silent, speak another protocol, or break the rules of its own. *Responsible for* taking reports
//! of that from programs, and from the engine where it sees it by itself, to the history of
//! outcomes. *Not responsible for* what a race makes of them (`neater-race`).

use crate::Stack;
use core::num::NonZeroU64;
use core::time::Duration;
use neater_race::CacheKey;
use std::net::SocketAddr;

/// How a connection that was established has served, as far as it matters to later races: see
/// [`crate::Engine::report_service`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServiceOutcome {
    /// The peer has answered as it should. Withdraws what was reported before.
    Answered,
    /// The peer has not answered what it was asked, in the time that the program gives it.
    Silent,
    /// The peer has broken the rules of the protocol that was to be spoken, or has ended the
    /// connection in place of an answer.
    Broken,
    /// The peer has demanded that it be asked by another protocol, such as H3_VERSION_FALLBACK of
    /// HTTP/3 (RFC 9114 section 8.1).
    WantsOther,
    /// A transfer has ended as it should: so many bytes of it came within this time, from the first
    /// to the last. Where `_neater.measuredRates` is not switched off, later races to the same host
    /// on the same network begin, among stacks that are equally good for the request, with the one
    /// whose transfers were fastest. Fewer than 1,000,000 bytes do not count; a rate is forgotten
    /// after a day; one race in 20 begins with the second.
    Transferred {
        /// How many bytes.
        bytes: u64,
        /// How long they took. Zero does not count.
        took: Duration,
    },
}

/// What carries a connection, as the history of outcomes knows it: stack and remote address, and
/// for which network, endpoint and needs. It holds when the connection is over, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carrier {
    pub(crate) network: NonZeroU64,
    pub(crate) key: CacheKey,
    pub(crate) stack: Stack,
    pub(crate) addr: SocketAddr,
    /// Where rates of transfers are remembered, if they are.
    pub(crate) host: Option<u64>,
}

impl Carrier {
    /// The protocol stack.
    #[must_use]
    pub const fn stack(&self) -> Stack {
        self.stack
    }

    /// The remote address.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }
}
