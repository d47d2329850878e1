//! Provisioning domains (RFC 8801): a network's own description, received in router advertisements
//! and requested over HTTPS.
//!
//! *Responsible for* reading and writing router advertisements with the PvD option
//! ([`Advertisement`]), for the document that a domain's name leads to ([`Information`]), and for
//! which domains there are now, when their documents are asked for and for how long they count
//! ([`Domains`]). *Not responsible for* sockets, clocks and randomness: bytes, the time and a seed
//! are handed in; nor for addresses and routes, which are the system's own business.
//!
//! *Invariants*: whatever is received, memory stays within bounds; a document counts only while its
//! domain is announced, its sequence number is the announced one, it has not expired, and it covers
//! every prefix that is announced; no document is asked for whose domain does not offer one, and
//! none more often than section 4.1 allows; a network describes itself and nothing else: it
//! replaces no statement of the system or of a program.

mod advertisement;
mod domains;
mod information;

pub use advertisement::{
    Advertisement, BadAdvertisement, Configuration, Header, MAX_ITEMS, Prefix, PrefixInfo, PvdOption,
};
pub use domains::{Domains, Failure, Fetch, Heard, MAX_DOMAINS, Provisioned};
pub(crate) use information::same_name;
pub use information::{Information, MAX_DOCUMENT, MEDIA_TYPE};

#[cfg(test)]
mod tests;
