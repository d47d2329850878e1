//! Scenarios as data: a network, what happens in it, and what is measured.
//!
//! *Responsible for* what a scenario is ([`Scenario`]), reading one from TOML ([`Scenario::parse`]), making one by code
//! ([`Builder`], [`topology`]), and what follows from it: addresses, queues in bytes, [`Routes`]. *Not responsible for*
//! running it: simulator and lab do that, from the same data. The keys of a file are described in `docs/scenarios.md`.
//!
//! A scenario may name files beside it (traces): who calls [`Scenario::parse_with`] says where those come from.
//!
//! *Invariants*: a scenario that [`Builder::build`] or [`Scenario::parse`] returned is complete and consistent (every index
//! is valid, every interface has a name and addresses of both families, no name or address twice); nothing here reads a
//! file, a clock or a random source; every error about a file says line, column and what is allowed.
//!
//! ```
//! let scenario = neater_scenario::Scenario::parse(
//!     r#"
//!     name = "slow-link"
//!     [topology]
//!     kind = "dumbbell"
//!     pairs = 2
//!     bottleneck = { rate = "10 Mbit/s", delay = "$rtt / 2", queue = "1 BDP" }
//!     [parameters]
//!     rtt = "50 ms"
//!     [traffic.bulk]
//!     from = "l1"
//!     to = "r1"
//!     "#,
//!     &[("rtt".into(), "100 ms".into())],
//! )?;
//! assert_eq!(scenario.links[0].directions[0].config.delay.as_millis(), 50);
//! # Ok::<(), neater_scenario::ScenarioError>(())
//! ```

#![forbid(unsafe_code)]

mod builder;
mod chance;
mod document;
mod error;
mod fields;
mod files;
mod link_keys;
mod link_models;
mod model;
mod parse;
mod parse_schedule;
mod parse_topology;
mod parse_traffic;
mod routes;
mod shipped;
pub mod topology;
mod traffic;
pub mod units;

pub use builder::{Builder, Pair, both, both_bdp};
pub use chance::{interface_mtu, link_seed, router_salt, way};
pub use document::MAX_DOCUMENT;
pub use error::{Place, ScenarioError};
pub use files::{FileContent, FileKind};
pub use model::{
    Action, Capture, Direction, End, Event, LinkIndex, LinkSpec, MAX_EVENTS, MAX_FLOWS, MAX_LINKS, MAX_NODES,
    NatChange, NatSpec, Node, NodeIndex, NodeKind, Parameter, Probe, ProbeKind, RouteRule, Scenario,
};
pub use routes::Routes;
pub use shipped::{SHIPPED, shipped, shipped_file};
pub use traffic::{Carrier, Controller, Distribution, OnOff, RtoFloor, TcpSettings, Traffic, TrafficKind, Video, Web};
