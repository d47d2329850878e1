//! The link model shared by simulator and lab.
//!
//! *Responsible for* one direction of one link: given a packet's length, what is known of it and the time, whether it
//! arrives and when. *Not responsible for* packets themselves, for queues of events, for the way back, or for ICMP: a
//! drop is reported with its reason and the network around the link decides what to tell the sender.
//!
//! Key types: [`Link`] is the machine, [`LinkConfig`] what it is like (changeable while it runs), [`Verdict`] its
//! answer, [`Counters`] its account.
//!
//! *Invariants*: a link is a function of its configuration, its seed and the packets offered; without
//! [`LinkConfig::reorder`] packets arrive in the order in which they were offered; every accepted packet draws the same
//! number of random numbers, whatever the configuration; the queue is bounded by [`MAX_QUEUED_PACKETS`].

#![forbid(unsafe_code)]

mod config;
mod link;

pub use config::{Action, Family, Filter, LinkConfig, Loss, Match, PacketMeta, Protocol, QueueLimit, TooBig};
pub use link::{Counters, DropReason, Link, MAX_QUEUED_PACKETS, Verdict};
