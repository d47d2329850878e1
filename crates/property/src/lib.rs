//! Properties: what a program may ask of a transport.
//!
//! *Responsible for* the vocabulary of RFC 9622 (Selection, Connection and Message Properties with
//! their names, types, defaults and ranges), for the compiled form [`Needs`] that policy and engine
//! read, for the friendly words of the command line ([`TransportProperties::parse`]), and for
//! NEAT's property algebra ([`neat`]).
//!
//! *Not responsible for* any decision: which stack or path serves a request is the business of
//! `neater-policy`. Nothing here knows a protocol, and JSON is met only in [`neat`]'s edge (feature
//! `json`).
//!
//! *Key types*: [`TransportProperties`] is what a program fills in;
//! [`TransportProperties::compile`] checks it for contradictions and gives [`Needs`];
//! [`PROPERTIES`] lists every property with its section, type, default and [`Effect`].
//!
//! *Invariants*: every property of RFC 9622 can be set and read by name, also where it has no
//! effect yet, and [`effect`] reports that; a value out of range is an error and never clamped;
//! everything iterates in a defined order and [`Needs::fingerprint`] is a function of the needs
//! alone.

#![forbid(unsafe_code)]

mod catalogue;
mod check;
mod connection;
mod fingerprint;
mod message;
pub mod neat;
mod needs;
mod parse;
mod preference;
mod profile;
mod security;
mod selection;
mod transport;
mod value;
mod words;

pub use catalogue::{Class, Effect, PROPERTIES, PropertyInfo, close_matches, effect, lookup};
pub use check::Contradiction;
pub use connection::{
    CapacityProfile, ConnectionProperties, ConnectionProperty, MAX_BIT_RATE, MAX_SECONDS, MultipathPolicy, Scheduler,
};
pub use fingerprint::Fingerprint;
pub use message::{MessageProperties, MessageProperty};
pub use needs::Needs;
pub use parse::{MAX_REQUEST_TEXT, MAX_REQUEST_WORDS, ParseError, Parsed};
pub use preference::{Preference, Role};
pub use profile::{PROFILES, profile};
pub use security::{SecurityLevel, SecurityNeed};
pub use selection::{PropertySet, SelectionProperty};
pub use transport::{
    Direction, MAX_ATTEMPT_DELAY, MAX_PREFERENCE_NAME, MAX_PREFERENCES, MIN_ATTEMPT_DELAY, Multipath,
    TransportProperties,
};
pub use value::{PropertyError, Value};
pub use words::{WORDS, Word};
