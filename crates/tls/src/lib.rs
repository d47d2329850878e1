//! TLS over a byte stream: an adapter over rustls, and every security setting of TLS and QUIC.
//!
//! *Responsible for* the parameters in which an application states its security
//! ([`SecurityParameters`], RFC 9622 section 6.3), the configurations that follow from them
//! ([`client_config`], [`server_config`]; the QUIC crate uses the same ones), the memory of past
//! sessions ([`SessionStore`]), the machine that turns plaintext into records and back
//! ([`TlsStream`]), and errors that name the cause and what to do next ([`TlsError`],
//! [`SecurityError`]).
//!
//! *Deliberately not* responsible for bytes on the wire (the caller moves them), files
//! (certificates and system roots are read outside and handed in), revocation lists, or DTLS.
//!
//! *Invariants*: time is what the [`Clock`] was set to and randomness is what [`Crypto`] draws, so
//! that with [`Crypto`] made from a seed a run is a function of that seed. What a peer can make
//! this crate hold is bounded: [`HANDSHAKE_LIMIT`], [`EARLY_DATA_LIMIT`], [`DEFAULT_BUFFER_LIMIT`],
//! [`MAX_SESSIONS`]. A session of one isolation key is never offered under another, and a
//! certificate for client authentication never authenticates a server.

#![forbid(unsafe_code)]

mod challenge;
mod config;
#[cfg(feature = "deterministic")]
mod deterministic;
mod error;
mod identity;
mod outline;
mod params;
mod parts;
mod pem;
mod provider;
#[cfg(feature = "self-signed")]
mod self_signed;
mod server_sessions;
mod sessions;
mod stream;
mod ticket;
mod verify;

pub use challenge::{Answer, Challenge, IdentityChallenge};
pub use config::{EARLY_DATA_LIMIT, client_config, quic_initial_suite, server_config, with_sessions};
pub use error::{Blame, Looks, SecurityError, TlsError};
pub use identity::{Identity, certifies};
pub use outline::{Validity, validity};
pub use params::{
    CertificateObserver, ClientAuthentication, Effect, Pin, PreSharedKey, Protection, SecurityParameters, TlsVersion,
    Trust, TrustVerification,
};
pub use parts::{Parts, client_parts, server_parts};
pub use pem::{
    PEM_LIMIT, PemError, certificates_from_pem, certificates_to_pem, identity_from_pem, private_key_from_pem,
    private_key_to_pem,
};
pub use provider::{Clock, Crypto};
#[cfg(feature = "self-signed")]
pub use self_signed::{certificate_authority, self_signed, self_signed_p256, try_self_signed};
pub use server_sessions::MAX_SESSION_BYTES;
pub use sessions::{MAX_LIFETIME, MAX_SESSIONS, MAX_TICKETS_PER_SERVER, SessionStore};
pub use stream::{DEFAULT_BUFFER_LIMIT, HANDSHAKE_LIMIT, ReadState, State, TlsStream};
pub use ticket::TICKET_LIFETIME;

pub use rustls;
pub use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};

#[cfg(test)]
mod tests;
