//! PY: the Python package beside the Rust API and beside asyncio's own streams.
//!
//! *Responsible for* the rows, and for which interpreter has the package. What is measured in Python is in `io/python/measure`, in Rust
//! in `peer-messages`. *Not here*: building the wheel (`cargo xtask wheel`).

use super::pairs::{RATE, Ratio, Row, Run, Side, pairs};
use super::{LIMIT, Lab, Outcome};
use crate::measure::stats::median;
use crate::measure::{MeasureError, Result, failed, process};
use crate::programs::Program;
use crate::report::{Bound, Figure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const ID: &str = "PY";
/// Names the interpreter that has the package.
const INTERPRETER: &str = "NEATER_PYTHON";
/// Megabytes of a run: full and quick.
const MEGABYTES: (u64, u64) = (640, 128);
/// Connections of a run: full and quick.
const CONNECTIONS: (u64, u64) = (10_000, 1000);
/// Runs of these connections: full and quick.
const RUNS: (usize, usize) = (5, 1);
/// An event loop may not be kept from its other tasks for longer, in ms of its thread's CPU time.
const STALL_MS: f64 = 5.0;

/// Variant, what ours is called in the script, what is beside it, bound.
const THROUGHPUT: [(&str, &str, Beside, f64); 3] = [
    ("quic", "quic", Beside::Rust("quic"), 0.8),
    ("tls", "tls", Beside::Rust("tls"), 0.6),
    ("tcp-vs-asyncio", "tcp", Beside::Python("asyncio"), 1.0),
];
/// Variants of `many.py`, the program that they measure.
const MANY: [(&str, &str); 3] =
    [("neater", "neater"), ("neater-streams", "neater's streams"), ("asyncio", "asyncio's streams")];

/// What a row is compared with.
#[derive(Clone, Copy, Debug)]
enum Beside {
    /// A variant of `peer-messages`.
    Rust(&'static str),
    /// A variant of `throughput.py`.
    Python(&'static str),
}

/// The interpreter, and where the scripts are.
struct Python {
    interpreter: PathBuf,
    scripts: PathBuf,
}

impl Python {
    /// # Errors
    /// [`MeasureError::MissingPeer`]: no interpreter has the package.
    fn find() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let interpreter =
            std::env::var_os(INTERPRETER).map_or_else(|| root.join("target/wheel/fresh/bin/python"), PathBuf::from);
        let mut asked = Command::new(&interpreter);
        // Not from the folder of the sources, where the package is not whole.
        asked.args(["-I", "-c", "import neater"]);
        if let Err(e) = process::run(&mut asked, LIMIT) {
            return Err(MeasureError::MissingPeer(format!(
                "{} cannot import neater ({e}): run `cargo xtask wheel`, or name an interpreter with {INTERPRETER}",
                interpreter.display()
            )));
        }
        Ok(Self { interpreter, scripts: root.join("io/python/measure") })
    }

    /// The last line that a script prints.
    fn line(&self, script: &str, args: &[&str]) -> Result<Value> {
        let mut command = Command::new(&self.interpreter);
        command.arg("-I").arg(self.scripts.join(script)).args(args);
        Ok(process::run(&mut process::together(&command)?, LIMIT)?.line)
    }
}

fn pick<T>(lab: &Lab, (full, quick): (T, T)) -> T {
    if lab.quick { quick } else { full }
}

pub(super) fn run(lab: &Lab) -> Result<Outcome> {
    let mut out = Outcome { runs: Some(pairs(lab)), ..Outcome::default() };
    let python = Python::find()?;
    for (variant, ours, beside, bound) in THROUGHPUT {
        let ratios = [Ratio {
            name: "throughput_ratio",
            pick: RATE,
            of: "megabytes_per_cpu_second",
            bound: Some(Bound::AtLeast(bound)),
            low: None,
            by_generator: false,
        }];
        let reference = match beside {
            Beside::Rust(_) => Program::Messages.name(),
            Beside::Python(_) => "asyncio",
        };
        let row = Row { id: ID, point: variant, variant, reference, ratios: &ratios };
        row.measure(lab, &mut out, &mut |side| throughput(lab, &python, ours, beside, side));
    }
    for (variant, program) in MANY {
        many(lab, &python, variant, program, &mut out);
    }
    for (name, title, unit) in [
        ("throughput_ratio", "64 kB messages: megabytes for each second of CPU time, over the reference's", "ratio"),
        ("bytes_per_connection", "Memory of the loop's process for each connection", "B"),
        ("stall_p999_ms", "How long the loop's thread computes without a turn for others, 99.9 %", "ms"),
    ] {
        if out.figures.iter().any(|f| f.name == name) {
            out.panel(name, title, unit, |f| {
                let program = f.extra.get("program").and_then(|p| p.as_str()).unwrap_or("neater");
                (f.variant.clone(), program.to_owned())
            });
        }
    }
    Ok(out)
}

/// Megabytes for each second of CPU time of a process that has both ends.
fn throughput(lab: &Lab, python: &Python, ours: &str, beside: Beside, side: Side) -> Result<Run> {
    let megabytes = pick(lab, MEGABYTES).to_string();
    let of_python = |variant: &str| {
        python.line("throughput.py", &["--rounds", "1", "--megabytes", &megabytes, "--variant", variant])
    };
    let line = match (side, beside) {
        (Side::Ours, _) => of_python(ours)?,
        (Side::Reference, Beside::Python(variant)) => of_python(variant)?,
        (Side::Reference, Beside::Rust(variant)) => {
            let mut command = lab.programs.command(Program::Messages, variant)?;
            command.arg(&megabytes);
            process::run(&mut process::together(&command)?, LIMIT)?.line
        }
    };
    match line["mb_per_cpu_s"].as_f64() {
        Some(rate) if rate > 0.0 => Ok(Run { rate, ..Run::default() }),
        _ => failed(format!("no rate: {line}")),
    }
}

/// Many connections from one loop.
fn many(lab: &Lab, python: &Python, variant: &'static str, program: &'static str, out: &mut Outcome) {
    let point = format!("many-{variant}");
    if !lab.is_wanted(&point) {
        return;
    }
    let (connections, runs) = (pick(lab, CONNECTIONS), pick(lab, RUNS));
    (lab.progress)(&format!("{point}, {connections} connections, {runs} times"));
    let number = connections.to_string();
    let lines: Result<Vec<Value>> =
        (0..runs).map(|_| python.line("many.py", &["--connections", &number, "--variant", variant])).collect();
    let ours = variant != "asyncio";
    for (name, unit, field, bound) in [
        ("lost", "1", "lost", Some(Bound::AtMost(0.0))),
        ("stall_p999_ms", "ms", "stall_p999_ms", Some(Bound::AtMost(STALL_MS))),
        ("bytes_per_connection", "B", "bytes_each", None),
        ("cpu_us_per_connection", "us", "cpu_us_each", None),
    ] {
        let figure = Figure::new(ID, name, variant, unit).with("program", program);
        let bound = bound.filter(|_| ours);
        let judge = |f: Figure| match bound {
            Some(bound) => f.judge(bound),
            None => f,
        };
        let values: Result<Vec<f64>> = match &lines {
            Ok(lines) => lines
                .iter()
                .map(|l| l[field].as_f64().ok_or_else(|| MeasureError::Failed(format!("no {field}: {l}"))))
                .collect(),
            Err(e) => failed(e.to_string()),
        };
        let figure = match values {
            Ok(values) => {
                for (run, value) in values.iter().enumerate() {
                    out.sample(field, program, &point, run, *value);
                }
                // None of the runs may lose one, and none may stall.
                let worst = values.iter().copied().fold(0.0, f64::max);
                let value = if bound.is_some() { worst } else { median(&values) };
                judge(figure.value(value, values.len()))
            }
            Err(e) => judge(figure.missing(e.to_string())),
        };
        out.figures.push(figure);
    }
}
