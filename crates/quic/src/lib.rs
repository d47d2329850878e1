//! QUIC (RFC 9000, 9001, 9002, 9221) as a state machine: an adapter over quinn-proto.
//!
//! *Responsible for* giving QUIC the shape of this project: our [`neater_base::Instant`], seeds
//! instead of a random source, connection ids that carry the engine's number, configuration from
//! ready TLS configurations, and errors that can be compared. *Not responsible for* sockets,
//! certificates (the `tls` crate), or what a stream means to a program (the engine).
//!
//! The engine uses only the traits [`EndpointApi`] and [`ConnectionApi`]; [`Endpoint`] and
//! [`Connection`] name the implementation that fills them. A second implementation (noq-proto, for
//! multipath) has to fill the same two, and to bring its own in place of what of quinn-proto they
//! still name: ids of streams, and the events between endpoint and connection.
//!
//! *Invariants*: after any call that changes a connection the caller drains `poll_endpoint_event`,
//! `poll_event` and `poll_transmit`, then reads `next_timeout`; nothing here reads a clock.

#![forbid(unsafe_code)]

mod api;
mod clock;
mod closing;
mod config;
mod congestion;
mod error;
mod quinn;
mod receive;

pub use api::{
    Acknowledgements, Arrival, ClientSetup, ConnectionApi, Datagram, Direction, EndpointApi, Event, Foreign,
    ReadOutcome, Stats, StreamId, Transmit,
};
pub use clock::Epoch;
pub use config::{Identity, Qlog, QlogOf, Tuning, reset_key_at};
pub use error::QuicError;
pub use quinn::{Connection, ConnectionEvent, Endpoint, EndpointEvent, Handle};

#[cfg(test)]
mod tests;
