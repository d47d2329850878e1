//! What the tests against peers stand on, tested itself: the tests beside the code of `frames`, `ledger` and `tls`.
//!
//! They are a test target of its own, and not the library's, because targets can be chosen by name in the whole workspace: so the
//! library is built once, with the features it has for all other tests (`./test`).
#![allow(dead_code, unreachable_pub, reason = "what is not tested here is used by the library")]

use neater_interop::Scratch;

#[path = "../src/sctp/frames.rs"]
mod frames;
#[path = "../src/sctp/ledger.rs"]
mod ledger;
#[path = "../src/tls.rs"]
mod tls;
