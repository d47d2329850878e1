//! Emulated networks: real programs and the kernel's TCP over emulated links.
//!
//! A [`Lab`] is a [`Plan`] (written in code, or made of a scenario) that has become namespaces and links, for as long as the
//! object lives. `neater lab net` is this crate as a command.
//!
//! *Responsible for* hosts as network namespaces ([`netns`], [`settle`]), the emulator that moves their packets through the
//! link model in real time ([`emulator`], [`fabric`]), commands in hosts ([`command`]), captures ([`capture`], [`pcap`]), a
//! record of what ran on what ([`record`]), and for nothing of it being left behind ([`pid_namespace`]).
//!
//! *Deliberately not here*: any model of a link (`neater-link` has them), any experiment.
//!
//! *Invariants*: what is built disappears with the process, however it ends; the emulator allocates nothing per packet, and
//! counts what it could not do in time; packets exist on TUN devices in namespaces of our own and nowhere else.

#![allow(
    unsafe_code,
    reason = "namespaces, TUN devices, process descriptors and timers are only reachable through libc"
)]

pub mod capture;
pub mod command;
pub mod emulator;
pub mod error;
pub mod fabric;
pub mod hosts;
pub mod lab;
pub mod netns;
pub mod packet;
pub mod pcap;
pub mod pid_namespace;
pub mod plan;
pub mod pool;
pub mod privileges;
pub mod provision;
pub mod record;
mod scenario;
pub mod settle;
pub mod sys;
pub mod tun;

pub use capture::{Capture, Captured};
pub use command::{Cmd, Output, Running};
pub use emulator::{Emulator, EmulatorReport};
pub use error::{LiveError, Result};
pub use lab::{Lab, LinkReport, Options};
pub use plan::{Kind, Plan};
