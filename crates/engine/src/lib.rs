//! The transport system as one machine: connections, listeners, groups and timers over
//! [`neater_base::net::Net`].
//!
//! *Responsible for* everything between a program's needs and the network: compiling them to a
//! [`Request`], resolving, racing, carrying messages over whichever stack has won, framing,
//! back-pressure, closing, and the events of RFC 9622. *Not responsible for* sockets and clocks
//! (`Net`), for decisions (`policy`, `race`), for protocols (`tls`, `quic`, `sctp`, `dtls`, `dns`),
//! or for waking tasks: the driver of the engine does that.
//!
//! Driving it:
//!
//! 1. Call [`Engine::turn`] when the network's descriptor is readable or [`Engine::next_timeout`]
//!    has come.
//! 2. Take every [`Notice`] with [`Engine::poll_notice`].
//! 3. Call what the program wants ([`Engine::initiate`], [`Engine::send`], [`Engine::read`], ...),
//!    as often as it wants.
//! 4. Call [`Engine::settle`] before waiting again.
//!
//! *Invariants*: no call blocks; no connection uses more than its budget in a turn; every queue has
//! a bound in [`Limits`]; a connection that was [`Engine::release`]d is removed when its data is
//! delivered, and its socket with it; after [`Event::Closed`], [`Event::ConnectionError`] or
//! [`Event::EstablishmentError`] a connection reports nothing more.

#![forbid(unsafe_code)]

mod backlog;
mod caches;
mod carrier;
mod closing;
mod config;
mod conn;
mod connection;
mod context;
mod early;
mod endpoint;
mod engine;
mod establish;
mod event;
mod eviction;
mod fork;
mod framer_handshake;
mod group;
mod ids;
mod isolate;
mod kept;
mod lazy_box;
mod listen;
mod measured;
mod names;
mod notices;
mod path;
mod policy;
mod preferences;
mod properties;
mod queue;
mod rate;
mod receive;
mod request;
mod send;
mod shards;
mod spent;
mod stacks;
mod timer;

pub use caches::Caches;
pub use config::{EngineConfig, EngineStats, Limits, Refusals};
pub use conn::{ConnectionState, ConnectionStats, Delivery};
pub use endpoint::{BadEndpoint, LocalEndpoint, RemoteEndpoint};
pub use engine::Engine;
pub use establish::{Carrier, MAX_REMOTES, ServiceOutcome};
pub use event::{
    AttemptError, CandidateOutcome, ConnectionError, Doubt, EstablishmentError, Event, Fate, Notice, Reason, SendError,
    Source, Step, TimelineEntry,
};
pub use ids::{ConnectionId, GroupId, ListenerId, MessageId};
pub use names::external::{NameFailure, NameQuestion};
pub use neater_quic::{Direction as StreamDirection, Qlog, QlogOf, QuicError};
pub use neater_race::{BadCause, MAX_SAVED, MIN_TRANSFER, SavedError};
pub use neater_sctp::CloseReason as SctpClose;
pub use path::{EndpointChange, EndpointError, PathInfo, PathUse};
pub use policy::PolicyAccess;
pub use preferences::dscp;
pub use properties::SetPropertyError;
pub use receive::{ReceiveOutcome, Received};
pub use request::{Request, RequestOptions};
pub use send::SendOptions;
pub use shards::MisroutedDatagram;
pub use spent::Spent;
pub use stacks::Stack;
