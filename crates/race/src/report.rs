//! The report of a race afterwards, or while it runs.

use crate::{Candidate, Doubt, PathId};
use core::time::Duration;
use neater_base::Instant;

/// How a candidate has fared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CandidateOutcome<F> {
    /// Its turn has not come.
    NotStarted,
    /// Under way.
    Running,
    /// Established, while the race waits for a better one.
    Established,
    /// It is the connection.
    Won,
    /// Withdrawn before it was established: another one won, or the deadline passed.
    Cancelled,
    /// Established and then withdrawn, because a better one won.
    Superseded,
    /// It came to nothing.
    Failed(F),
}

/// What is known of one candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateReport<F> {
    /// Which one.
    pub candidate: Candidate,
    /// When it was started.
    pub started_at: Option<Instant>,
    /// When the peer first answered.
    pub reachable_at: Option<Instant>,
    /// When it was established.
    pub established_at: Option<Instant>,
    /// The round-trip time that came with the first answer.
    pub rtt: Option<Duration>,
    /// When it won, failed or was withdrawn.
    pub ended_at: Option<Instant>,
    /// The outcome history against it, if it was deprioritised for that.
    pub doubt: Option<Doubt>,
    /// How it has fared.
    pub outcome: CandidateOutcome<F>,
}

/// What was asked of the resolver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Record {
    /// HTTPS or SVCB records.
    Services,
    /// IPv6 addresses.
    Aaaa,
    /// IPv4 addresses.
    A,
}

/// What became of a question to the resolver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolutionState<F> {
    /// No answer yet.
    Pending,
    /// Answered with this many usable addresses or services; zero is a negative answer.
    Answered {
        /// When, by the last answer.
        at: Instant,
        /// How many, after duplicates and what exceeds the bounds were left out.
        count: usize,
    },
    /// Not answered, and this is why.
    Failed {
        /// When.
        at: Instant,
        /// The reason.
        reason: F,
    },
}

/// What became of one question on one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolutionReport<F> {
    /// The path.
    pub path: PathId,
    /// The record type.
    pub record: Record,
    /// The answer.
    pub state: ResolutionState<F>,
}
