//! The policy manager as a daemon that many programs share: its state for each user, and the
//! protocols of its sockets.
//!
//! *Responsible for* which user may write what and which users it applies to ([`Daemon`]), for
//! NEAT's JSON and the compact form on the Unix sockets ([`Session`], [`wire`]), for the REST
//! interface ([`rest`]) with its description, and for what is counted.
//!
//! *Not responsible for* sockets, files, clocks and randomness: the program `neater pm` brings
//! bytes, texts, the time and a token. *Deliberately not here*: what a decision is, which is the
//! [`manager`](crate::manager)'s.
//!
//! *Invariants*: what a user wrote applies to that user alone, unless the user is root or the one
//! the daemon runs as; no other user changes what they wrote; whatever clients send, memory stays
//! within bounds that do not depend on how often they send it; a document counts as a whole or not
//! at all.

mod facts;
mod feeds;
mod metadata;
mod metrics;
mod openapi;
mod published;
pub mod rest;
mod session;
mod sources;
mod store;
mod tables;
pub mod wire;

pub use facts::{MAX_FACTS, MAX_FACTS_OF_CLIENT, MAX_FACTS_OF_FRAME, put_told, told};
pub use feeds::{MAX_SOURCE_TEXT, MAX_SOURCES};
pub use metadata::{MAX_LINE, metadata_node};
pub use metrics::{Counters, Door};
pub use session::{MAX_BATCH, Session};
pub(crate) use sources::{DOMAIN_PREFIX, PREFIX as INTERFACE_PREFIX, interface_facts, interface_rows, row_addresses};
pub use sources::{interface_nodes, network_nodes};
pub use store::{
    Daemon, Effect, MAX_ALL_PROPERTIES, MAX_GUEST_BYTES, MAX_GUEST_NODES, MAX_GUEST_RULES, MAX_GUESTS, MAX_PROPERTIES,
    MAX_REQUESTS, MAX_VIEWS, Options, Refusal, TooMuch,
};

pub use tables::{Follower, Heard, Tables};

#[cfg(test)]
mod tests;
