//! The public API on sockets: one program for all tests that need no process of their own, since
//! each program is linked by itself.

mod answers;
mod backlog;
mod behind;
mod bounds;
mod callbacks;
#[path = "../common/mod.rs"]
mod common;
mod direct_streams;
mod driver_gone;
mod ending;
mod first_message;
mod gathering;
mod isolation;
mod loopback;
mod needs;
mod own_framers;
mod owners;
mod quic;
mod reactor_waker;
mod received;
mod reentrancy;
mod shards;
mod sim_cancel;
mod timelines;
mod turns;
mod two_engines;
mod undelivered;
mod waiters;
mod without_futures;
mod woken;
