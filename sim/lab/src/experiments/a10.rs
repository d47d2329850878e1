//! A10: what a connect with a cached outcome costs over one that has nothing to choose from.

use super::{Lab, Outcome, flows};
use crate::measure::{Counter, MeasureError, Result};
use crate::plot::Row;
use crate::programs::Program;
use crate::report::{Bound, Figure};
use std::net::SocketAddr;
use std::process::Command;

/// What is asked for.
#[derive(Clone, Copy)]
enum How {
    /// By name, several protocols, the outcome of the race in the cache.
    Cached,
    /// One protocol and a literal address, after a first connect as well: the least that a connect can cost.
    Single,
    /// The same with no connect before.
    ColdSingle,
}

impl How {
    const fn name(self) -> &'static str {
        match self {
            Self::Cached => "cached",
            Self::Single => "single",
            Self::ColdSingle => "cold single",
        }
    }

    fn command(self, lab: &Lab, program: Program, addr: SocketAddr) -> Result<Command> {
        if let Self::Cached = self {
            return flows::client(lab, program, addr);
        }
        // Without a name the peer asks for one protocol and a literal address.
        let mut c = lab.programs.command(program, "client")?;
        c.args(["--addr", &addr.to_string()]);
        if let Self::ColdSingle = self {
            c.arg("--cold");
        }
        Ok(c)
    }
}

pub(super) fn run(lab: &Lab) -> Result<Outcome> {
    let mut out = Outcome::default();
    let mut rows = Vec::new();
    for program in [Program::NeaterFd, Program::Neater] {
        let (name, suffix) = (program.name(), if program == Program::NeaterFd { "-fd" } else { "" });
        let mut slopes = Vec::new();
        for how in [How::Cached, How::Single, How::ColdSingle] {
            (lab.progress)(&format!("instructions per flow, {name}, {}", how.name()));
            let command = |addr: SocketAddr| how.command(lab, program, addr);
            let series = format!("{name} {}", how.name());
            let runs = flows::runs(lab);
            let slope = flows::client_slope(lab, &mut out, Counter::Instructions, &series, runs, &command);
            if let Err(e @ MeasureError::MissingTool { .. }) = slope {
                return Err(e);
            }
            let label = format!("{name}, {}", how.name());
            let value = slope.as_ref().ok().copied();
            rows.push(Row { label, series: name.into(), value, interval: None, bound: None });
            slopes.push(slope);
        }
        let [cached, single, cold] = slopes.as_slice() else { continue };
        let ratio = |variant: &str, over: &Result<f64>, of: &'static str| {
            let f = Figure::new("A10", "instruction_ratio", format!("{variant}{suffix}"), "1").with("program", name);
            match (cached, over) {
                (Ok(c), Ok(o)) => f.value(c / o, flows::runs(lab)).with("cached", *c).with(of, *o),
                (Err(e), _) | (_, Err(e)) => f.missing(e.to_string()),
            }
        };
        let published = "CPU falls by over 40 % with cache hits";
        let judged = ratio("cached-over-single", single, "single").judge(Bound::AtMost(1.05)).published(published);
        out.figures.extend([judged, ratio("cached-over-cold-single", cold, "cold_single")]);
    }
    out.panel("instruction_ratio", "Cached over single", "ratio", |f| {
        let program = f.extra.get("program").and_then(|p| p.as_str()).unwrap_or_default();
        (f.variant.clone(), program.to_owned())
    });
    out.bars("User-space instructions per flow", "instructions", rows);
    Ok(out)
}
