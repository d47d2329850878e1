//! Happy eyeballs over paths, protocols and endpoints as a pure state machine.
//!
//! *Responsible for* turning the answers of name resolution into a bounded, ordered list of
//! candidates (RFC 9623 section 4.1: path, then protocol, then endpoint), for starting them one
//! after another (RFC 8305, widened from addresses to protocols), for deciding which one wins, and
//! for remembering what won ([`OutcomeCache`]).
//!
//! *Deliberately not*: resolving names, opening anything, knowing any protocol. A protocol stack is
//! a [`StackId`] and the group it fails with; a path is a [`PathId`] and a rank. Which stacks and
//! paths take part, and in which order, is policy's decision; all of them must offer equivalent
//! security (RFC 9623 section 12.2). NAT64 synthesis (RFC 8305 section 7) is not implemented
//! anywhere yet.
//!
//! *Invariants*: a race ends in exactly one [`Output::Won`] or [`Output::Lost`]; every candidate
//! that was started ends exactly once, by winning, by being cancelled or by its own failure;
//! nothing is started after a candidate is established, unless that one fails again; two starts
//! without a failure between them are at least [`MIN_ATTEMPT_DELAY`] apart; whatever DNS returns,
//! there are at most [`Config::max_candidates`] candidates; and a race is a function of its inputs
//! and its seed.

#![forbid(unsafe_code)]

mod cache;
mod config;
mod doubt;
mod event;
mod order;
mod race;
mod rates;
mod report;
mod resolution;
mod sort;

pub use cache::{
    BAD_LIFETIME, BAD_MEMORY, CacheKey, DEFAULT_CAPACITY, DEFAULT_LIFETIME, MAX_BAD, MAX_BAD_LIFETIME, MAX_SAVED,
    Outcome, OutcomeCache, REFUSAL_LIFETIME, SavedError,
};
pub use config::{
    Config, MAX_ATTEMPT_DELAY, MAX_CANDIDATES, MAX_PATHS, MAX_RESOLUTION_DELAY, MAX_STACKS, MIN_ATTEMPT_DELAY,
    PathSpec, StackOption,
};
pub use doubt::{BadCause, Doubt, Mark, Penalty};
pub use event::{Address, Candidate, CandidateId, Family, Input, Output, PathId, Progress, Service, StackId};
pub use race::{RTT_LIMIT, Race};
pub use rates::{
    MAX_RATES, MIN_TRANSFER, RATE_LIFETIME, Rate, RateKey, RatedStack, Rates, TRY_OTHER_ONE_IN, is_slower,
};
pub use report::{CandidateOutcome, CandidateReport, Record, ResolutionReport, ResolutionState};
pub use resolution::{MAX_ADDRESSES, MAX_SERVICES};
pub use sort::sort_destinations;
