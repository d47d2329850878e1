//! P1: what a decision of the policy manager costs: anew, kept, and through the socket of `neater pm`.

use super::{LIMIT, Lab, Outcome};
use crate::measure::process::together;
use crate::measure::stats::{difference_of_medians, median, quantile, slope};
use crate::measure::{Child, Counter, MeasureError, Result};
use crate::programs::Program;
use crate::report::{Bound, Figure};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Bounds in microseconds: a decision with 10,000 policies, a kept one, and what the socket adds.
const COLD: f64 = 10.0;
const CACHED: f64 = 1.0;
const SOCKET: f64 = 20.0;
/// Decisions of a run under the tool that counts instructions; the difference is what is counted.
const COUNTED: (u64, u64) = (2, 34);
/// Runs of the full form, which a verdict needs, and of the quick one.
const RUNS: (usize, usize) = (15, 3);

fn said(command: &mut Command) -> Result<Value> {
    let mut child = Child::start(command)?;
    let said = child.line(LIMIT)?;
    child.wait(LIMIT)?;
    Ok(said)
}

fn of(said: &Value, key: &str) -> Result<f64> {
    said[key].as_f64().ok_or_else(|| MeasureError::from(std::io::Error::other(format!("the peer says no {key}"))))
}

pub(super) fn run(lab: &Lab) -> Result<Outcome> {
    let mut out = Outcome::default();
    let runs = lab.seeds.unwrap_or(if lab.quick { RUNS.1 } else { RUNS.0 });
    for (form, variant, turns, bound) in [("cold", "cold_10k", 2000, COLD), ("cached", "cached", 500, CACHED)] {
        let mut medians = Vec::new();
        for run in 0..runs {
            (lab.progress)(&format!("decisions, {form}, {} of {runs}", run + 1));
            let turns = if lab.quick { turns / 4 } else { turns };
            let said = said(lab.programs.command(Program::Policy, form)?.args(["--turns", &turns.to_string()]))?;
            medians.push(of(&said, "median_us")?);
            out.sample("decision_us", "embedded", variant, run, of(&said, "median_us")?);
        }
        let figure = Figure::new("P1", "decision_us", variant, "us").value(median(&medians), runs);
        let figure = figure.needs(RUNS.0).judge(Bound::AtMost(bound));
        let figure = figure.published("8,000 to 16,000 us (measured with NEAT's manager)");
        let figure = figure.with("least", quantile(&medians, 0.0)).with("most", quantile(&medians, 1.0));
        (lab.progress)(&format!("instructions, {form}"));
        let count = |turns: u64| -> Result<u64> {
            let mut command = lab.programs.command(Program::Policy, form)?;
            command.args(["--turns", &turns.to_string()]);
            Counter::Instructions.count(&command, &lab.scratch, LIMIT)
        };
        let each = slope((COUNTED.0, count(COUNTED.0)?), (COUNTED.1, count(COUNTED.1)?));
        // A turn of the kept form is 200 decisions.
        let each = if form == "cached" { each / 200.0 } else { each };
        out.figures.push(figure.with("instructions", each.round()));
    }
    socket(lab, &mut out, runs)?;
    out.runs = Some(runs);
    out.panel("decision_us", "A decision with 10,000 policies", "us", |f| (f.variant.clone(), "neater".to_owned()));
    Ok(out)
}

/// What the socket adds to a ping-pong of the same bytes.
fn socket(lab: &Lab, out: &mut Outcome, runs: usize) -> Result<()> {
    let dir = lab.scratch.join("p1");
    let _ = std::fs::remove_dir_all(&dir);
    (lab.progress)("writing 10,000 files");
    said(lab.programs.command(Program::Policy, "files")?.arg(&dir))?;
    let manager = start(lab, &dir)?;
    let measured = ask(lab, out, &dir, runs);
    // It would go on for ever.
    drop(manager);
    let (decided, echoed, last) = measured?;
    let figure = Figure::new("P1", "decision_us", "socket", "us");
    let figure = match difference_of_medians(&decided, &echoed, &mut lab.rng(1)) {
        Some(e) => figure.estimate(e, runs),
        None => figure.value(median(&decided) - median(&echoed), runs),
    };
    let figure = figure.needs(RUNS.0).judge(Bound::AtMost(SOCKET)).with("round_trip_us", median(&decided));
    let figure = figure.with("ping_pong_us", median(&echoed)).with("reply_bytes", last["reply_bytes"].clone());
    out.figures.push(figure.with("request_bytes", last["request_bytes"].clone()));
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

/// `neater pm` with the tables of the workload, and nothing beside.
fn start(lab: &Lab, dir: &Path) -> Result<Child> {
    let sockets = dir.join("sock");
    std::fs::create_dir_all(&sockets)?;
    let mut command = Command::new(lab.programs.neater()?);
    command.args(["--json", "pm", "--bare", "--no-rest", "--no-interfaces", "--rows", "100", "--candidates", "10"]);
    command.arg("--pib").arg(dir.join("pib")).arg("--cib").arg(dir.join("cib")).arg("--sock").arg(&sockets);
    Child::start(&mut together(&command)?)
}

type Asked = (Vec<f64>, Vec<f64>, Value);

fn ask(lab: &Lab, out: &mut Outcome, dir: &Path, runs: usize) -> Result<Asked> {
    let (mut decided, mut echoed, mut last) = (Vec::new(), Vec::new(), Value::Null);
    for run in 0..runs {
        (lab.progress)(&format!("through the socket, {} of {runs}", run + 1));
        let mut command = lab.programs.command(Program::Policy, "socket")?;
        command.arg(dir.join("sock").join("neat_pm_socket"));
        command.args(["--turns", if lab.quick { "1000" } else { "4000" }]);
        // With the manager and the echo: which of them were woken on another processor would decide the figure.
        last = said(&mut together(&command)?)?;
        decided.push(of(&last, "decide_us")?);
        echoed.push(of(&last, "ping_us")?);
        out.sample("decision_us", "socket", "socket", run, of(&last, "decide_us")?);
        out.sample("decision_us", "ping-pong", "socket", run, of(&last, "ping_us")?);
    }
    Ok((decided, echoed, last))
}
