//! A1: instructions, allocations and system calls of the client per TCP flow.

use super::{FEW, FLOW_PROGRAMS_AND_NEATS, Lab, MANY, Outcome, counts, flows, for_each};
use crate::measure::stats::slope;
use crate::measure::{Counter, Result};
use crate::programs::Program;
use crate::report::{Bound, Figure};
use std::collections::BTreeSet;

const COUNTERS: [(Counter, &str, &str, &str); 3] = [
    (Counter::Instructions, "instructions_per_flow", "instructions", "User-space instructions per flow"),
    (Counter::Allocations, "allocations_per_flow", "allocations", "Allocations per flow"),
    (Counter::SystemCalls, "syscalls_per_flow", "calls", "System calls per flow"),
];

fn bound(counter: Counter, program: Program) -> Option<f64> {
    match (counter, program) {
        (Counter::Instructions, Program::NeaterFd) => Some(1300.0),
        (Counter::Instructions, Program::Neater) => Some(2000.0),
        // NEAT's interface is to cost 2,400 and does not yet: what it costs is kept in counts.toml.
        (Counter::SystemCalls, Program::NeaterFd | Program::Neater) => Some(5.0),
        _ => None,
    }
}

/// The slope of each system call in the first run, in calls per flow; those that do not grow with the flows are left out.
fn parts(out: &Outcome, counter: Counter, series: &str) -> Option<serde_json::Value> {
    let prefix = format!("{counter:?} ");
    let at = |call: &str, flows: u64| {
        let variant = format!("{flows} flows");
        let found = out.samples.iter().find(|s| {
            s.run == 0 && s.series == series && s.variant == variant && s.metric.strip_prefix(&prefix) == Some(call)
        });
        found.map_or(0, |s| s.value as u64)
    };
    let calls: BTreeSet<&str> =
        out.samples.iter().filter(|s| s.series == series).filter_map(|s| s.metric.strip_prefix(&prefix)).collect();
    let slopes = calls.into_iter().map(|c| (c.to_owned(), slope((FEW, at(c, FEW)), (MANY, at(c, MANY)))));
    let growing: serde_json::Map<_, _> = slopes.filter(|(_, v)| *v != 0.0).map(|(c, v)| (c, v.into())).collect();
    (!growing.is_empty()).then_some(growing.into())
}

pub(super) fn run(lab: &Lab) -> Result<Outcome> {
    let mut out = Outcome::default();
    for (counter, name, unit, title) in COUNTERS {
        (lab.progress)(title);
        let got = for_each(&FLOW_PROGRAMS_AND_NEATS, |p| {
            let runs = flows::runs(lab);
            flows::client_slope(lab, &mut out, counter, p.name(), runs, &|addr| flows::client(lab, p, addr))
        })?;
        for (program, value) in got {
            let f = Figure::new("A1", name, program.name(), unit);
            let f = match value {
                Ok(v) => f.value(v, flows::runs(lab)),
                Err(why) => f.missing(why),
            };
            let f = match bound(counter, program) {
                Some(b) => f.judge(Bound::AtMost(b)),
                None => f,
            };
            let f = match parts(&out, counter, program.name()) {
                Some(parts) => f.with("by_call", parts),
                None => f,
            };
            let published = counter == Counter::Instructions && program.is_ours();
            out.figures.push(if published { f.published("202,000 per flow") } else { f });
        }
        out.panel(name, title, unit, |f| (f.variant.clone(), f.variant.clone()));
    }
    let over = counts::over_kept("A1", &out.figures)?;
    out.figures.extend(over);
    Ok(out)
}
