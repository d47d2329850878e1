//! What lies under every neater crate: time, randomness, identifiers, serial numbers, byte cursors,
//! and [`net::Net`], the only door to the outside.
//!
//! *Responsible for* the vocabulary that sans-IO code shares. *Not responsible for* any protocol,
//! any decision, or any contact with an operating system: nothing here reads a clock, opens a
//! socket or draws from a global random source.
//!
//! *Invariants*: an [`Instant`] is a number the caller chose; a [`Rng`] is a function of its seed;
//! a [`Slab`] key is never mistaken for its successor in the same slot.

#![forbid(unsafe_code)]

mod cursor;
pub mod net;
mod rng;
mod serial;
mod slab;
mod time;
mod timers;

pub use cursor::{Reader, Short};
pub use rng::Rng;
pub use serial::Serial32;
pub use slab::{Key, Slab};
pub use time::{Instant, WallTime};
pub use timers::Timers;
