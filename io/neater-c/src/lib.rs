//! `neater.h`: the Transport Services API of RFC 9622 for programs in C, and in every language that
//! can call C.
//!
//! *Responsible for* opaque handles, one queue of events and one descriptor for each context,
//! properties by name, and stopping panics at the border. *Not responsible for* any decision or
//! protocol: all of that is `neater`'s.
//!
//! *Invariants*: no function blocks, except [`context::neater_poll_event`] and
//! [`context::neater_context_drain`], which are given a time; no panic leaves a function; NULL and
//! a struct of a wrong size are answered with an error; a callback of the program runs without any
//! lock held, so it may call every function.
//!
//! The names are those of C in Rust, too, so that one search finds both. `include/neater.h` is
//! written from these definitions.
//!
//! # Safety All functions share one promise of their caller, so it stands here alone: a pointer to
//! an object is NULL or came from this library and has not been given back; a pointer to a struct,
//! text or buffer is NULL or valid for what the function's manual states.

#![allow(unsafe_code, reason = "functions for C take raw pointers")]
#![allow(non_camel_case_types, reason = "the types have their names of C")]
#![allow(clippy::missing_safety_doc, reason = "the promise is the same for all: see the top of the crate")]

pub mod border;
pub mod challenge;
pub mod connection;
pub mod connection_properties;
pub mod context;
pub mod endpoint;
pub mod error;
pub mod event;
pub mod group;
mod inbox;
pub mod info;
pub mod listener;
pub mod lookup;
pub mod message;
pub mod preconnection;
pub mod properties;
pub mod race;
mod receive;
pub mod security;
pub mod status;
mod values;
