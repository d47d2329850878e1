//! Our SCTP against usrsctp and against Linux' kernel: an endpoint over a real UDP socket, or over the cables of a virtual machine,
//! with an emulated link in between; the peer's program; and an account of every message.

mod cable_net;
mod capture;
mod driver;
mod frames;
mod ledger;
mod links;
mod machine;
mod peer;
mod wire;
mod world;

pub use cable_net::CableNet;
pub use capture::{Capture, decode_errors};
pub use driver::Driver;
pub use ledger::{Batch, Ledger, Received, fill, hash};
pub use links::{between_links, link_address};
pub use machine::{Cable, Image, Machine, Shared, address};
pub use peer::{Peer, Program, usrsctp_program};
pub use wire::{Arrived, Loopback, Wire};
pub use world::{Place, Role, Wish, World};
