//! From needs and facts to ranked candidates, with an explanation.
//!
//! *Responsible for* the decision which protocol stacks and which interfaces may serve a program's
//! [`Needs`], in which order, and why: [`compile`] for stacks, once for all connections with the
//! same needs; [`Request::standing`] with what the past taught; [`rank_paths`] for interfaces;
//! [`explain`] for people.
//!
//! *Not responsible for* knowing any protocol (the engine states what its stacks provide, as
//! [`StackFeatures`]), for racing candidates, or for opening anything. [`manager`] is NEAT's policy
//! manager, [`advice`] its application to real connections, [`rows`] what the
//! CIB has of this host, [`pvd`] the networks' own descriptions, [`protocol`] how a program and a
//! daemon talk.
//!
//! *Invariants*: no ranked candidate ever lacks a required property or has a prohibited one, and
//! security filters and is never traded; every exclusion names its property; the outcome is a
//! function of the arguments and does not depend on the order in which candidates are given.
//!
//! [`Needs`]: neater_property::Needs

#![forbid(unsafe_code)]

#[cfg(feature = "json")]
pub mod advice;
mod explain;
#[cfg(feature = "json")]
pub mod manager;
#[cfg(feature = "json")]
mod option;
mod path;
#[cfg(feature = "json")]
pub mod protocol;
#[cfg(feature = "json")]
pub mod pvd;
mod request;
#[cfg(feature = "json")]
pub mod rows;
mod select;
mod stack;

pub use explain::{ExplainedCandidate, ExplainedReason, Explanation, explain, explanation};
pub use neater_property::{SecurityLevel, SecurityNeed};
pub use path::{ExcludedPath, NoPaths, RankedPath, rank_paths};
pub use request::{Excluded, NoCandidates, Ranked, Reason, Request, Standing, Verdict};
pub use select::{compile, compile_with, weight};
pub use stack::{Facts, Outcome, Shape, StackFeatures};

#[cfg(test)]
mod tests;
