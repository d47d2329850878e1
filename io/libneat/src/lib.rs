//! **libneat**: the C interface of NEAT 1.0.9 (`neat.h`) over neater's engine, for programs that
//! were written for NEAT.
//!
//! *Responsible for* NEAT's functions, callbacks, properties and event loop, written from a
//! description of their behaviour.
//! *Not responsible for* any decision or protocol: those are the engine's.
//!
//! A context has an engine of its own over the system's sockets, and a loop of libuv's with one
//! `uv_poll` handle on the engine's one descriptor. `docs/libneat.md` describes each function, and
//! what differs from NEAT on purpose.
//!
//! *Invariants*: a panic never crosses the border to C; a NULL where there must be something is
//! `NEAT_ERROR_BAD_ARGUMENT`; every function may be called in every callback.

#![cfg(has_libuv)]
#![allow(unsafe_code, reason = "C has pointers")]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod abi;
mod api;
mod context;
mod dispatch;
mod flow;
mod log;
mod manager;
mod open;
mod properties;
mod security;
mod settings;
mod stats;
mod transfer;
mod uv;

pub use api::*;
pub use context::Context;
pub use flow::Flow;
pub use uv::UvLoop;
