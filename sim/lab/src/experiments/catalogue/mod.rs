//! What each experiment declares: what is asked, under which conditions, what was published, what
//! is measured.
//!
//! Sources: **T** Weinrank and Tüxen's measurements of NEAT's resource cost; **U** the thesis on
//! reliable UDP transports under emulation; **F** the browser demonstration; **S** the dissertation
//! on SCTP's streams, acknowledgments and paths. They are among the founding documents of this
//! project.

mod decisions;
mod emulated;
mod paths;
mod programs;
mod resources;
mod sctp;

use super::{Experiment, Metric, Need};
use decisions::{F1, F3, X1, X2};
use emulated::{B0, B1, B2, B3, B4};
use paths::{E1, E2, E3, E4A, E4B, E5, E6, I1, I1L, I2, I2L};
use programs::{BULK, F2, P1, PY, WEB0};
use resources::{A1, A2, A3, A4, A5, A6, A7, A8, A9, A10, AR};
use sctp::{D1, D2, S1, S2, S3};

const TASKSET: Need = Need::Tool("taskset", "util-linux");
const TOOLS: &[Need] = &[
    Need::Peers,
    Need::Tool("valgrind", "valgrind"),
    Need::Tool("strace", "strace"),
    Need::Tool("cc", "gcc"),
    TASKSET,
];
const LOOPBACK: (&str, &str) =
    ("network", "loopback, no router between; TCP with the machine's own congestion control, which every record names");
const BARS: &str = "bars with 95 % intervals and bounds";

const TCP: (&str, &str) = ("kernel TCP", "CUBIC, named in every host");
const CURVES: &str = "curves with smallest, median and largest";

const PUBLISHED_SCTP: (&str, &str) = (
    "SCTP",
    "RFC 9260 with CMT of 2006 (split fast retransmit, window update, delayed acknowledgments, RTX-SSTHRESH), CMT-PF2",
);

const fn metric(name: &'static str, unit: &'static str, bound: &'static str) -> Metric {
    Metric { name, unit, bound, drawn: BARS }
}

/// All experiments, in the order of `run all`.
pub const ALL: &[Experiment] = &[
    A1, A2, A3, A4, A5, A6, A7, A8, A9, A10, AR, BULK, WEB0, PY, B0, B1, B2, B3, B4, I1, I1L, I2, I2L, S1, S2, S3, D1,
    D2, E1, E2, E3, E4A, E4B, E5, E6, F1, F2, F3, P1, X1, X2,
];
