//! DTLS over datagrams: an adapter over dimpl.
//!
//! *Responsible for* one association of DTLS 1.2 (RFC 6347) or 1.3 (RFC 9147) as a machine
//! ([`Session`]): datagrams and the time go in, datagrams, messages and events come out; for the
//! cryptography that dimpl asks for, taken from rustls's provider and *ring* so that there is one
//! set of primitives and one source of randomness; and for the peer's identity, which dimpl leaves
//! to its caller: the same verifiers as in `neater-tls` decide, with the chain that the peer has
//! sent, before anything is sent that the peer could take for the end of the handshake.
//!
//! *Deliberately not* responsible for sockets, for which peer a datagram is from, or for how many
//! handshakes may be under way at once (the caller bounds those; [`look()`] shows what is worth a
//! [`Session`], and whose it may be). There is no session resumption, no connection id (RFC 9146),
//! no ALPN, no server name in the ClientHello, and no RSA or Ed25519 key in the handshake itself,
//! because dimpl has none of them; `docs/decisions/0024-dtls-is-dimpl-with-our-judgement.md` lists
//! the consequences.
//!
//! *Invariants*: time is an argument. Randomness is that of [`neater_tls::Crypto`] for keys, and
//! for the rest (hello randoms, cookies, jitter of timers, nonces of AES-GCM in 1.2) the operating
//! system's, or a seed's where `Crypto` is repeatable; one thing is out of reach: the first four
//! bytes of a DTLS 1.2 client's random are the system's wall clock, as dimpl reads it. What a peer
//! can make a session hold is bounded: [`HANDSHAKE_LIMIT`] bytes taken during the handshake,
//! [`RECEIVE_LIMIT`] bytes of messages not fetched. Before the peer has proved that it receives at
//! its address, a server sends it no more bytes than it has sent.

#![forbid(unsafe_code)]

mod certificates;
mod clock;
mod config;
mod crypto;
mod error;
mod look;
mod scope;
mod session;

pub use config::{ClientConfig, ServerConfig, Tuning};
pub use error::{DtlsError, SendError};
pub use look::{HelloRandom, Look, look};
pub use session::{
    Event, HANDSHAKE_LIMIT, MAX_DATAGRAM, MAX_MESSAGE, OVERHEAD_12_CHACHA, OVERHEAD_12_GCM, OVERHEAD_13, RECEIVE_LIMIT,
    Session, Version,
};

#[cfg(test)]
mod tests;
