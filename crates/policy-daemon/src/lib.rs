//! The state of a policy manager that many programs share, for each user, and its side of the
//! connections to them.
//!
//! *Responsible for* which user may write what and which users it applies to ([`Daemon`]), for
//! NEAT's JSON and the compact form on the Unix sockets ([`Session`]), and for what is counted.
//!
//! *Not responsible for* sockets, REST, files, clocks and randomness: the program `neater pm`
//! brings bytes, texts and the time. *Deliberately not here*: what a decision is, which is
//! neater-policy's [`manager`](neater_policy::manager), and what programs need to talk to a daemon,
//! its [`protocol`](neater_policy::protocol): a program that links neater compiles none of this.
//!
//! *Invariants*: what a user wrote applies to that user alone, unless the user is root or the one
//! the daemon runs as; no other user changes what they wrote; whatever clients send, memory stays
//! within bounds that do not depend on how often they send it; a document counts as a whole or not
//! at all.

#![forbid(unsafe_code)]

mod document;
mod facts;
mod feeds;
mod metadata;
mod metrics;
mod networks;
mod published;
mod session;
mod store;
mod tables;

pub use document::{DocumentError, MAX_BATCH};
pub use facts::{MAX_FACTS, MAX_FACTS_OF_CLIENT};
pub use feeds::{MAX_SOURCE_TEXT, MAX_SOURCES};
pub use metadata::{MAX_LINE, metadata_node};
pub use metrics::Counters;
pub use session::Session;
pub use store::{
    Daemon, Effect, MAX_ALL_PROPERTIES, MAX_GUEST_BYTES, MAX_GUEST_NODES, MAX_GUEST_RULES, MAX_GUESTS, MAX_PROPERTIES,
    MAX_REQUESTS, MAX_VIEWS, Options, Refusal, TooMuch,
};

#[cfg(test)]
mod tests;
