//! Worlds, pairs and an executor in virtual time: what tests of the whole system stand on.
//!
//! *Responsible for* a [`Playground`] of engines on the hosts of a simulated network, with programs on their connections
//! that act on events alone; for a ready-made topology with everything that can be wrong with it ([`Plan`], [`Town`],
//! [`NameServer`]); for certificates that follow from seeds ([`security`]); for scenarios with programs ([`Programs`]); for an
//! [`Executor`] of futures; and for seeds that replay ([`for_each_seed`]). *Not responsible for* the network (`neater-netsim`), nor for
//! the public API, which brings its own hooks to the executor.
//!
//! *Invariants*: a run is a function of its seed; nothing here reads a clock. Only `SIM_SEED` and `SIM_SEEDS` are read
//! from the environment.

#![forbid(unsafe_code)]

mod executor;
mod flow;
pub mod names;
mod playground;
mod programs;
mod qlogs;
pub mod replay;
pub mod security;
mod seeds;
pub mod town;

pub use executor::{Clock, Executor, Sleep, Spawner, Turn};
pub use flow::{Flow, FlowId, Manner, Over, WhenEnded};
pub use names::{Lie, NameServer, Temper};
pub use playground::{Node, Playground};
pub use programs::Programs;
pub use seeds::{SEED, SEEDS, for_each_seed, with_seeds};
pub use town::{Ask, Fault, Plan, Town, Way};
