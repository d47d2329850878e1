//! What goes into a race and what comes out of it.

use crate::Doubt;
use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

/// A network path, named by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u16);

/// A protocol stack, named by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(pub u16);

/// A candidate of one race, named by the race; never used twice within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CandidateId(pub u32);

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of an address.
    #[must_use]
    pub const fn of(addr: &IpAddr) -> Self {
        match addr {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// The family that this one is not.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::V4 => Self::V6,
            Self::V6 => Self::V4,
        }
    }
}

/// A destination address and what is known of the way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The destination.
    pub addr: IpAddr,
    /// The source address that would be used towards it; `None` means that there is no route.
    pub source: Option<IpAddr>,
    /// The round-trip time seen on this path to this address before. Implies that it has been used.
    pub rtt: Option<Duration>,
}

impl Address {
    /// An address towards which `source` would be used, never used before.
    #[must_use]
    pub const fn new(addr: IpAddr, source: Option<IpAddr>) -> Self {
        Self { addr, source, rtt: None }
    }

    /// Its family.
    #[must_use]
    pub const fn family(&self) -> Family {
        Family::of(&self.addr)
    }
}

/// One usable service: an HTTPS or SVCB record in ServiceMode (RFC 9460), or an SRV record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Lower numbers go first; among equal ones the race's seed decides.
    pub priority: u16,
    /// The stacks that its ALPN set allows. Unknown ones are ignored; a service without a known one
    /// is not used.
    pub stacks: Vec<StackId>,
    /// The port it names.
    pub port: Option<u16>,
    /// Its address hints, used for a family until the addresses themselves are known.
    pub hints: Vec<Address>,
    /// The addresses of its target name, if that is not the name that was asked for; empty until
    /// they are known.
    pub target: Option<Vec<Address>>,
}

/// How an attempt is getting on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress<F> {
    /// The peer has answered, but the connection is not yet established.
    Reachable {
        /// The round-trip time measured by that answer.
        rtt: Duration,
    },
    /// The connection is ready for use, security handshake included.
    Established,
    /// It came to nothing; also reported for a candidate that had been established, until the race
    /// is over.
    Failed(F),
}

/// One input of a race. Facts about unknown paths or candidates, and facts that come too late,
/// change nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<F> {
    /// The addresses of one family. An empty list is a negative answer. A later list replaces an
    /// earlier one; a failure after a success leaves the addresses as they are.
    Answer {
        /// Where it was asked.
        path: PathId,
        /// A or AAAA.
        family: Family,
        /// The addresses, or why there are none.
        result: Result<Vec<Address>, F>,
    },
    /// The services of the name. A later list replaces an earlier one, for example when the
    /// addresses of a target have become known.
    Services {
        /// Where it was asked.
        path: PathId,
        /// The services, or why there are none.
        result: Result<Vec<Service>, F>,
    },
    /// What is known of the services while their targets' addresses are looked up. It can be tried,
    /// and is no reason to begin before [`Input::Services`] has come or would be late; that
    /// replaces it.
    ServicesSoFar {
        /// Where it was asked.
        path: PathId,
        /// The services, with the addresses and hints that are known.
        services: Vec<Service>,
    },
    /// News of an attempt.
    Progress {
        /// Which one.
        candidate: CandidateId,
        /// The news.
        progress: Progress<F>,
    },
}

/// What the race wants done, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Nothing is to be done: a candidate has come up that stands behind others, because of this.
    /// Reported once for each.
    Doubted(Candidate, Doubt),
    /// Start an attempt.
    Start(Candidate),
    /// Withdraw an attempt that was started. It is not mentioned again.
    Cancel(CandidateId),
    /// This candidate is the connection. The others have been, or will be next, cancelled.
    Won(CandidateId),
    /// Every candidate has failed, or none exists, or the deadline has passed:
    /// [`crate::Race::report`] explains it.
    Lost,
}

/// A leaf of the tree of candidates: one path, one protocol stack, one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub id: CandidateId,
    /// The path.
    pub path: PathId,
    /// The protocol stack.
    pub stack: StackId,
    /// The endpoint.
    pub addr: SocketAddr,
}
