//! Our SCTP against usrsctp: an endpoint over a real UDP socket with an emulated link in between, the peer's program, and an
//! account of every message.

mod capture;
mod driver;
mod ledger;
mod peer;
mod world;

pub use capture::{Capture, decode_errors};
pub use driver::Driver;
pub use ledger::{Batch, Ledger, Received, fill, hash};
pub use peer::{Usrsctp, usrsctp_program};
pub use world::{Role, Wish, World};
