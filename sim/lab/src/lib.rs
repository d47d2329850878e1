//! Experiments and figures: what this project claims about its cost, measured beside other people's programs.
//!
//! *Responsible for* running the experiments of part A on loopback, from programs that do the same work on each API
//! ([`neater_peers`], and `peers/*.c`), with figures that come from outside the measured process ([`measure`]), kept with their raw
//! data, drawings and a page ([`runner`], [`report`], [`plot`]).
//!
//! *Deliberately not here*: judging by exit codes (a missed bound is a figure, not a failure) and measuring this process.
//!
//! *Invariants*: every child has a time limit of its own and is ended by its process id; everything random (the order of
//! interleaved samples, the bootstrap) follows from one seed.

#![allow(unsafe_code, reason = "process limits, timers and resource usage are only reachable through libc")]

pub mod calibrate;
pub mod call;
pub mod experiments;
pub mod measure;
pub mod net;
pub mod plot;
pub mod programs;
pub mod report;
pub mod runner;
pub mod simulate;
pub mod source;
pub mod timeline;
