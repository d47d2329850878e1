//! A sans-IO stub resolver: A, AAAA and HTTPS records in parallel, with cache and retries.
//!
//! *Responsible for* turning a name into addresses and service bindings: the hosts file, the search
//! list, the cache, one question's life over several servers, truncation, and RFC 9460's chains.
//! [`Resolver`] is the machine; [`Config`] and [`Hosts`] read the system's two files. [`answer`]
//! and [`Zone`] are a tiny authoritative responder, for simulations and demonstrations.
//!
//! *Deliberately not here*: sockets and clocks (effects are [`Output`]s, time is an argument),
//! recursion, DNSSEC, DNS over TLS or HTTPS, multicast DNS, internationalised names (a non-ASCII
//! name is refused with advice) and literal addresses. The wire format is hickory-proto's; the walk
//! over a hostile answer and the SVCB parameters are ours, so that one broken record costs no more
//! than RFC 9460 allows.
//!
//! *Invariants*: every lookup ends with exactly one [`Output::Answer`] per requested kind and one
//! [`Output::Done`], unless it is cancelled; every table is bounded by a named constant; a run is a
//! function of its inputs and the seed.
//!
//! ```
//! use neater_base::Instant;
//! use neater_dns::*;
//!
//! let (config, _) = Config::parse(b"nameserver 192.0.2.53");
//! let mut resolver = Resolver::new(config, Hosts::default(), [7; 32]);
//! let zone = Zone::parse("h.test A 192.0.2.1")?;
//! let now = Instant::ZERO;
//! let q = Question { name: "h.test", a: true, aaaa: false, https: None, interface: None };
//! resolver.lookup(now, &q);
//! let mut found = Vec::new();
//! while let Some(output) = resolver.poll_output(now) {
//!     match output {
//!         // A driver would send this to the server; here the server is a table.
//!         Output::Send { transport, data } => {
//!             let reply = answer(&data, &zone).unwrap_or_default();
//!             resolver.handle_input(now, Input::UdpReceived { transport, data: &reply });
//!         }
//!         Output::Answer { answer, .. } => found.push(answer),
//!         _ => {}
//!     }
//! }
//! assert_eq!(found, [Answer::Addresses(vec![[192, 0, 2, 1].into()])]);
//! # Ok::<(), ZoneError>(())
//! ```

#![forbid(unsafe_code)]

mod api;
mod cache;
mod error;
mod external;
mod hosts;
mod lookup;
mod name;
mod query;
mod resolv_conf;
mod resolver;
mod server;
mod svcb;
mod wire;

pub use api::{Answer, CachedAddresses, Input, LookupId, Output, Question, RecordKind, TransportId};
pub use cache::{MAX_CACHE_BYTES, MAX_CACHE_ENTRIES, MAX_NEGATIVE_TTL, MAX_TTL, MIN_TTL};
pub use error::{ResolveError, check_name};
pub use hosts::{Hosts, MAX_ADDRESSES_PER_HOST, MAX_HOST_NAMES, MAX_HOSTS_BYTES};
pub use query::{MAX_OPEN_TRIES, SERVER_PENALTY};
pub use resolv_conf::{Config, MAX_LINE, MAX_SEARCH, MAX_SERVERS, Warning};
pub use resolver::{MAX_LOOKUPS, MAX_QUERIES, Resolver};
pub use server::{UDP_LIMIT, Zone, ZoneError, answer, answer_stream};
pub use svcb::{MAX_ALIASES, MAX_TARGETS, ServiceBinding};
pub use wire::{EDNS_PAYLOAD, MAX_CNAMES, MAX_MESSAGE, MAX_RECORDS, MAX_RECORDS_READ};
