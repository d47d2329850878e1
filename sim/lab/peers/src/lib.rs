//! The programs that the laboratory measures: the same work, written once on each API.
//!
//! *Responsible for* what the programs in Rust share ([`peer`], [`paced`]), and the certificate of a run
//! ([`credentials`]). The programs are in `src/bin`, those in C beside this crate's manifest. *Deliberately not here*: measuring, and whatever the laboratory needs for it: a
//! peer is built with what programs on these APIs are built with, and with nothing of the laboratory.

#![allow(unsafe_code, reason = "a time limit and an end without destructors are only reachable through libc")]

pub mod credentials;
pub mod paced;
pub mod peer;
