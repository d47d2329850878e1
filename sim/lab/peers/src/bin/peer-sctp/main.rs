//! The peer on this project's SCTP over UDP: `neater_sctp::Endpoint`s over `neater-net`'s sockets, and nothing between.
//!
//! `send` and `recv` move messages over one association; `client` and `server` open associations and close them; `memory` has
//! both sides in one process without a network, and says what associations and streams hold. Its allocator counts.
//!
//! It stands alone, without the rest of the lab, so that what is profiled is small.

#![allow(unsafe_code, reason = "an allocator that counts, alarm(2) and ppoll(2)")]

mod alloc;
mod args;
mod driver;
mod memory;
mod open;
mod transfer;

use args::{Args, Mode};
use std::fmt::Display;

#[global_allocator]
static ALLOCATOR: alloc::Counting = alloc::Counting;

/// Everything random in an endpoint follows from this.
const SEED: [u8; 32] = [7; 32];

/// Ends the peer with an error.
fn fail(what: &str, why: &dyn Display) -> ! {
    eprintln!("{what}: {why}");
    std::process::exit(1);
}

fn main() {
    let args = Args::from_env();
    let result = match args.mode {
        Mode::Send => transfer::send(&args),
        Mode::Recv => transfer::recv(&args),
        Mode::Client => open::client(&args),
        Mode::Server => open::server(&args),
        Mode::Memory => memory::run(&args),
    };
    if let Err(error) = result {
        fail("neater-sctp", &error);
    }
}
