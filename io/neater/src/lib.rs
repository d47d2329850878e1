//! **neater**: a program states what it needs from the network, and neater chooses and tries
//! protocols, addresses, interfaces and options until the best one that really works is carrying
//! the data.
//!
//! The vocabulary is that of the IETF's Transport Services (RFC 9621 and RFC 9622): a
//! [`Preconnection`] holds endpoints, [`TransportProperties`] and [`SecurityParameters`]; it is
//! initiated and becomes a [`Connection`], or listens and becomes a [`Listener`]. Messages go in
//! and out; [`Connection::into_bytes`] gives a stream of bytes instead.
//!
//! ```no_run
//! use neater::{FramerSpec, Neater};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let neater = Neater::new()?;
//! let connection = neater
//!     .preconnection()
//!     .remote("example.com:443".parse::<neater::RemoteEndpoint>()?)
//!     .needs("reliable, low-delay")?
//!     .framer(FramerSpec::LengthPrefixed { width: 4, max: 1 << 20 })
//!     .initiate()
//!     .await?;
//! println!("carried by {}", connection.stack().expect("established"));
//! connection.send("hello").await?;
//! let answer = connection.receive().await?;
//! # Ok(()) }
//! ```
//!
//! [`Preconnection::needs`] lists the words in which a program states its needs.
//!
//! *Responsible for* the public objects, their futures, and driving the engine: on tokio by a task
//! ([`Neater::new`]), anywhere else through one descriptor ([`Driver`]). *Not responsible for* any
//! decision or protocol: those are below.
//!
//! *Invariants*: public objects are `Send + Sync`; no waker, callback or destructor of the program
//! runs while the engine is borrowed; a future that is dropped has done all of what it is for, or
//! nothing ([`ByteStream::write_all`] and similar functions document where it may be a part);
//! dropping the last handle of anything releases it.

#![deny(unsafe_code)]

mod after_fork;
mod bytes_view;
mod carrier;
mod connection;
mod context;
mod gather;
#[cfg(feature = "hyper")]
pub mod hyper;
mod listener;
mod logs;
mod message;
mod names;
pub mod policies;
mod preconnection;
#[cfg(feature = "tokio")]
mod reactor_waker;
mod reentrancy;
mod roots;
#[cfg(feature = "self-signed")]
mod self_made;
mod shards;
mod shared;
mod waiting;

pub use bytes_view::ByteStream;
pub use carrier::Carrier;
pub use connection::Connection;
pub use context::{Builder, Driver, Neater, Turner};
pub use listener::{Accepted, Group, Listener};
pub use message::{Message, MessageContext};
pub use names::Lookup;
pub use policies::{PolicySource, PolicyStory};
pub use preconnection::{Initiate, Plan, PlannedCandidate, Preconnection, security_for};
pub use roots::with_system_roots;
#[cfg(feature = "self-signed")]
pub use self_made::self_signed;
pub use shards::EngineShards;

pub use neater_base::WallTime;
pub use neater_base::net::{ErrorKind, NetError};
pub use neater_engine::SavedError as SavedOutcomesError;
pub use neater_engine::{
    AttemptError, BadCause, BadEndpoint, CandidateOutcome, ConnectionError, ConnectionId, ConnectionState,
    ConnectionStats, Delivery, Doubt, EndpointError, EngineConfig, EngineStats, EstablishmentError, Event, Fate,
    GroupId, Limits, ListenerId, LocalEndpoint, MIN_TRANSFER, MessageId, PathInfo, PathUse, QuicError, Reason,
    Refusals, RemoteEndpoint, Request, SctpClose, SendError, ServiceOutcome, SetPropertyError, Stack, Step,
    StreamDirection, TimelineEntry,
};
pub use neater_framing::{Framer, FramerError, FramerSpec, Input, LengthPrefixed, Lines, Outbound, Readiness};
pub use neater_policy::manager::Fault as PolicyFault;
pub use neater_policy::{Explanation, explain, explanation};
pub use neater_property::{
    CapacityProfile, Direction, Effect, Multipath, ParseError, Parsed, Preference, Role, SecurityLevel, SecurityNeed,
    SelectionProperty, TransportProperties, Value, effect,
};
pub use neater_tls as tls;
pub use neater_tls::{Identity, Protection, SecurityParameters, Trust};

/// A program's own function for events.
pub type EventHandler = std::sync::Arc<dyn Fn(&Event) + Send + Sync>;

/// The public objects may be used from any thread.
const _: fn() = || {
    fn assert<T: Send + Sync>() {}
    assert::<Neater>();
    assert::<Preconnection>();
    assert::<Initiate>();
    assert::<Connection>();
    assert::<ByteStream>();
    assert::<Listener>();
    assert::<Group>();
    assert::<Driver>();
    assert::<Request>();
    assert::<EngineShards>();
    assert::<EstablishmentError>();
    assert::<Builder>();
    assert::<Turner>();
    assert::<Accepted>();
    assert::<Message>();
    assert::<Carrier>();
    assert::<MessageContext>();
    assert::<Event>();
    assert::<SendError>();
    assert::<ConnectionError>();
    assert::<Lookup>();
    #[cfg(feature = "hyper")]
    assert::<hyper::Connector>();
    #[cfg(feature = "hyper")]
    assert::<hyper::HttpStream>();
};
