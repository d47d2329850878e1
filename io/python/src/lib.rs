//! The native half of the Python package `neater`: classes over the public API, awaitables that any
//! loop with readers drives, and the simulator.
//!
//! *Responsible for* turning futures into awaitables (`operation.rs`), waking them from the one
//! descriptor of the engine (`hub.rs`), and conversions both ways. *Not responsible for* any
//! decision or protocol, nor for what Python writes better itself: streams, transports, scenarios
//! and frames are in `python/neater`.
//!
//! *Invariants*: there is no thread; nothing that runs while the engine is borrowed needs the
//! interpreter, so that a thread which has it may wait for the engine; the engine keeps no strong
//! reference to a Python object that could lead back to it, but for the functions of `on_event`.

#![deny(unsafe_code)]

mod buffers;
mod bytestream;
mod connection;
mod errors;
mod facts;
mod hub;
mod listener;
mod message;
mod operation;
mod preconnection;
mod properties;
mod security;
mod sim;
mod system;
mod values;

use pyo3::prelude::*;

/// Of what is Rust's here; Python has its own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The native module `neater._neater`.
#[pymodule(gil_used = true)]
mod _neater {
    #[pymodule_export]
    use crate::bytestream::ByteStream;
    #[pymodule_export]
    use crate::connection::Connection;
    #[pymodule_export]
    use crate::facts::{
        Candidate, ConnectionStats, Delivery, Event, Explanation, PathInfo, Plan, PolicyStory, TimelineEntry,
    };
    #[pymodule_export]
    use crate::listener::{Group, Listener};
    #[pymodule_export]
    use crate::message::{Message, MessageContext};
    #[pymodule_export]
    use crate::operation::Operation;
    #[pymodule_export]
    use crate::preconnection::{Framer, LocalEndpoint, Preconnection, RemoteEndpoint};
    #[pymodule_export]
    use crate::properties::{TransportProperties, needs_words, property_effect};
    #[pymodule_export]
    use crate::security::{SecurityParameters, self_signed};
    #[pymodule_export]
    use crate::sim::{check_scenario, shipped_scenarios, simulate};
    #[pymodule_export]
    use crate::system::Neater;
}
