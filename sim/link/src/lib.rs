//! The link model shared by simulator and lab.
//!
//! *Responsible for* one direction of one link: which of the packets offered to it come out at the other end, when, and in
//! what order. *Not responsible for* what is in packets, for the way back, or for ICMP: a drop is reported with its reason
//! and the network around the link decides what to tell the sender.
//!
//! Key types: [`Link`] is the machine, [`LinkConfig`] what it is like (changeable while it runs), [`Output`] what comes out
//! of it, [`Counters`] its account.
//!
//! *Invariants*: a link is a function of its configuration, its seed and the packets offered; without
//! [`LinkConfig::reorder`] packets arrive in the order in which they were sent; what chance decides about a packet is a
//! function of the seed and of the packet's number (Gilbert-Elliott, bursts and correlated jitter also remember the packets
//! before it), whatever the rest of the configuration; queue and wire are bounded ([`MAX_QUEUED_PACKETS`],
//! [`MAX_PACKETS_ON_WIRE`]); every packet offered comes out once, and its copy once if it has one.

#![forbid(unsafe_code)]

mod config;
mod delivery;
mod draw;
mod link;
mod nat;
mod queue;
mod rate;
mod schedule;
mod wire;

pub use config::{
    Action, Discipline, Family, Filter, LinkConfig, Match, Overtaking, PacketMeta, Protocol, QueueLimit, TooBig,
};
pub use delivery::{DeliveryTrace, MAX_OPPORTUNITIES, TraceError, TraceErrorKind};
pub use link::{Counters, DropReason, Link, MAX_PACKETS_ON_WIRE, MAX_QUEUED_PACKETS, Output};
pub use nat::{
    Dependence, MAX_MAPPINGS, MAX_PEERS, Nat, NatConfig, NatCounters, NatDrop, NatPacket, PortAllocation, TcpFlags,
    Translation,
};
pub use queue::{Codel, FqCodel, Red};
pub use rate::{MAX_RATE_STEPS, Rate, RateSteps, RateStepsError};
pub use schedule::{Change, MAX_CHANGES, Schedule, ScheduleError, Timeline};
pub use wire::{Corruption, Jitter, Loss};
