//! From a request to an established connection: the cached outcome alone, or the race.

pub(crate) use self::cached::patience;
pub(crate) use self::penalties::Trials;
pub use self::served::{Carrier, ServiceOutcome};
use crate::Stack;
use crate::carrier::SessionId;
use crate::event::AttemptError;
use crate::policy::Way;
use core::num::NonZeroU64;
use neater_base::Instant;
use neater_base::net::NetError;
use neater_race::{CandidateId, Family, PathId, Race};
use std::net::SocketAddr;

pub(crate) mod cached;

pub(crate) mod check;

pub(crate) mod paths;
pub(crate) mod penalties;

pub(crate) mod rated;

pub(crate) mod served;

pub(crate) mod unanswered;

/// Endpoints that one connection may be given.
pub const MAX_REMOTES: usize = 8;

/// An attempt that is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) candidate: Option<CandidateId>,
    pub(crate) session: SessionId,
    pub(crate) stack: Stack,
    pub(crate) addr: SocketAddr,
}

/// One path of a race.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) remote: usize,
    pub(crate) interface: Option<u32>,
    pub(crate) local: Option<SocketAddr>,
    /// The local port, where there is no local address: 0 is any.
    pub(crate) port: u16,
    /// The path that policies advise, if they change anything.
    pub(crate) way: Option<Way>,
    /// The one family that the interface of such a way has addresses of.
    pub(crate) family: Option<Family>,
}

impl Path {
    /// The address that an attempt towards `addr` is bound to, if it matters.
    pub(crate) fn local_for(&self, addr: SocketAddr) -> Option<SocketAddr> {
        self.local.or_else(|| (self.port != 0).then(|| crate::listen::any_like(addr.ip(), self.port)))
    }
}

/// A connection that is being established by a race.
#[derive(Debug)]
pub(crate) struct Establishing {
    pub(crate) race: Race<AttemptError>,
    pub(crate) attempts: Vec<Attempt>,
    /// The cached outcome has become this candidate, and the race has not been notified yet.
    pub(crate) adopted: Option<CandidateId>,
    /// Answers that are known already are still being handed to the race.
    pub(crate) beginning: bool,
    pub(crate) paths: Vec<Path>,
    /// What the host was attached to when the race began.
    pub(crate) network: NonZeroU64,
    pub(crate) armed: Option<Instant>,
    /// Name resolutions without an answer yet: cancelled when the race is over.
    pub(crate) lookups: Vec<neater_dns::LookupId>,
    pub(crate) has_deadline: bool,
    /// When an attempt without a handshake is looked at again.
    pub(crate) unanswered_at: Option<Instant>,
    /// Nothing is tried: see [`crate::Engine::plan`].
    pub(crate) planning: bool,
}

/// The error of an operation on the network as that of an attempt.
impl From<NetError> for AttemptError {
    fn from(e: NetError) -> Self {
        Self::Net(e)
    }
}

impl Establishing {
    /// Of which family the addresses must be that this path leads to; `None`: of either.
    pub(crate) fn path_family(&self, path: PathId) -> Option<Family> {
        let path = self.paths.get(path.0 as usize)?;
        path.local.map(|l| Family::of(&l.ip())).or(path.family)
    }
}
