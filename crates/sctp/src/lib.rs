//! SCTP (RFC 9260 and its extensions) as sans-IO state machines.
//!
//! *Responsible for* associations: handshake, streams, reliability, congestion control, paths,
//! shutdown, and finding the association that a packet belongs to. *Not responsible for* sockets,
//! clocks, IP and UDP headers, or the bytes of chunks (`neater-sctp-wire` has those). It sits on
//! packet layers ([`Layer`]): UDP, raw IP or DTLS.
//!
//! Key types: [`Endpoint`] is one SCTP port with all its associations; [`Config`] and
//! [`AssociationConfig`] configure it; [`Event`] what happened.
//!
//! After any call, drain [`Endpoint::poll_transmit`] and [`Endpoint::poll_event`], then read
//! [`Endpoint::next_timeout`]. Calling [`Endpoint::handle_timeout`] early or again does nothing.
//!
//! *Invariants*: no packet makes it panic, or use more memory than the configuration allows; a run
//! is a function of the configuration, the seed, and the calls with their times; a message that was
//! accepted is delivered once, or reported as failed; nothing is kept of an association that was
//! released.

#![forbid(unsafe_code)]

mod association;
mod config;
mod endpoint;
mod error;
mod event;
mod handshake;
mod ids;
mod multipath;
mod pages;
mod path;
mod ranges;
mod receive;
mod recovery;
mod send;
mod serial;
mod stats;

pub use config::{
    AssociationConfig, Authentication, Burst, Config, Extensions, INITIAL_BUFFER, Layer, LossDetection, MIN_ROOM,
    Policy, Recovery, RtoConfig, Scheduler, SharedKey,
};
pub use endpoint::{Endpoint, Train, Transmit};
pub use error::{AddressError, ConnectError, ReconfigError, SendError};
pub use event::{AddressChange, CloseReason, Event, IcmpError};
pub use ids::{AssociationId, LayerId, MessageId, PathId, Route, StreamUse};
pub use multipath::{Coupling, Multipath, PathScheduler, PathVerdict, Retransmission, SilentProbing};
pub use neater_sctp_wire::{Ppid, StreamId, UDP_PORT};
pub use path::PathState;
pub use receive::Message;
pub use send::{Reliability, SendOptions};
pub use stats::{AssociationStats, EndpointStats, PathStats};
