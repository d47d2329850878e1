//! The whole system under random faults, by seed: hosts, networks, programs over the public API, and what must hold.
//!
//! A seed gives a [`Plan`]: two to six hosts with interfaces of their own on links that delay, lose, reorder, queue and block;
//! programs that talk over every stack; and faults: cut and changed links, interfaces and addresses that go, power cuts,
//! stopped processes, clocks that jump, name servers that lie, forged resets and ICMP errors, missing descriptors, and a
//! system that does the rarest things often. [`run()`] does it in virtual time. When the faults are over, the network is
//! healed, and everything must come to its end. It is FoundationDB's and TigerBeetle's way of testing.
//!
//! What must hold is checked throughout:
//!
//! * what is heard was said: the right bytes, in order, once, messages whole; an end is heard only where one was said;
//!   nothing arrives twice that is not safely replayable; nothing at the wrong host or service;
//! * what was acknowledged was heard, unless somebody reset a connection of one of its two hosts or the power went there;
//! * events of a connection follow its state machine, and each message is told of once;
//! * in the calm no flow stands still for longer than [`STALL`], and all programs end within [`FINISH`]: every future ends;
//! * when all of them are over, each service that a host used and can reach is used once more, and it works: what was wrong
//!   has left nothing behind ([`Outcome::proofs`]);
//! * send queues keep their bounds;
//! * at the end no engine holds anything ([`EMPTY`]), no process has a socket, and the network is empty ([`GONE`]);
//! * nothing panics or spins; the same plan does the same again.
//!
//! *Responsible for* plans, doing them, and making failing ones smaller ([`smaller`]). *Not responsible for* the network
//! (`neater-netsim`), for the system's moods (`neater_net::FaultNet`), nor for running many seeds at once (`cargo xtask vopr`).
//!
//! *Invariants*: a run is a function of its plan, and a plan of its seed; nothing here reads a clock or the environment.

#![forbid(unsafe_code)]

mod cancel;
mod client;
mod content;
mod dice;
mod draw;
mod events;
mod ledger;
mod minimise;
mod node;
mod pipe;
pub mod plan;
mod proof;
mod run;
mod server;
mod talk;
mod world;

pub use minimise::smaller;
pub use plan::Plan;
pub use run::{EMPTY, FINISH, GONE, Outcome, STALL, Telling, run};
