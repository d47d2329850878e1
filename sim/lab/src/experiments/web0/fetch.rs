//! Downloads by the commands of users: one large file, many small ones, and one byte.

use super::bench::{Bench, SMALL, large as large_bytes, small_files};
use super::{ID, Run, Side, pairs};
use crate::experiments::{LIMIT, Outcome};
use crate::measure::stats::{median, quantile};
use crate::measure::{Result, failed, process};
use crate::report::Figure;
use std::fs;
use std::process::Command;

/// Starts of a command for each pair of the other rows: they take milliseconds.
const STARTS: usize = 4;

/// The large file, to where nothing is kept.
pub(super) fn large(bench: &Bench<'_>, tls: bool, side: Side) -> Result<Run> {
    let mut command = bench.client(side, tls)?;
    command.args(["-o", "/dev/null"]).arg(bench.url(Side::Reference, tls, "large"));
    let (exit, _) = bench.run(&command)?;
    Ok(Run::of(large_bytes(bench.lab) as f64 / 1e6, &exit))
}

/// The small files in one invocation, `at_once` at a time, into a folder.
pub(super) fn small(bench: &Bench<'_>, tls: bool, at_once: usize, side: Side) -> Result<Run> {
    let into = bench.work().join("files");
    let _ = fs::remove_dir_all(&into);
    fs::create_dir_all(&into)?;
    let mut command = bench.client(side, tls)?;
    let number = at_once.to_string();
    match (side, at_once) {
        (Side::Ours, _) => command.args(["--parallel", &number]),
        (Side::Reference, 1) => command.arg("--remote-name-all"),
        (Side::Reference, _) => command.args(["--remote-name-all", "--parallel", "--parallel-max", &number]),
    };
    command.arg("--output-dir").arg(&into).args(bench.small_urls(tls));
    let (exit, _) = bench.run(&command)?;
    let files = small_files(bench.lab);
    let mut whole = 0;
    for entry in fs::read_dir(&into)? {
        whole += usize::from(entry?.metadata()?.len() == SMALL as u64);
    }
    fs::remove_dir_all(&into)?;
    if whole != files {
        return failed(format!("{whole} of {files} small files are there"));
    }
    Ok(Run::of(files as f64, &exit))
}

/// A command that fetches one byte, or that does nothing.
type Subject = (&'static str, &'static str, Option<(Side, bool)>);

/// Name of the variant, program, what is run.
const SUBJECTS: [Subject; 5] = [
    ("neater-plain", "neater", Some((Side::Ours, false))),
    ("curl-plain", "curl", Some((Side::Reference, false))),
    ("neater-tls", "neater", Some((Side::Ours, true))),
    ("curl-tls", "curl", Some((Side::Reference, true))),
    ("true", "true", None),
];

/// How long a command takes that has next to nothing to do, beside `true`, which has nothing to do.
pub(super) fn startup(bench: &Bench<'_>, out: &mut Outcome) {
    let rounds = STARTS * pairs(bench.lab);
    (bench.lab.progress)(&format!("startup, {rounds} rounds"));
    let taken = starts(bench, rounds);
    for (subject, (variant, program, _)) in SUBJECTS.into_iter().enumerate() {
        let figure = Figure::new(ID, "startup_ms", variant, "ms").with("program", program);
        let figure = match &taken {
            Ok(all) => {
                let times = &all[subject];
                for (run, ms) in times.iter().enumerate() {
                    out.sample("startup_ms", program, variant, run, *ms);
                }
                let (low, high) = (quantile(times, 0.25), quantile(times, 0.75));
                figure.value(median(times), times.len()).with("quartile_low", low).with("quartile_high", high)
            }
            Err(why) => figure.missing(why.to_string()),
        };
        out.figures.push(figure);
    }
}

/// Milliseconds of each subject, in rounds whose order is turned around each time.
fn starts(bench: &Bench<'_>, rounds: usize) -> Result<[Vec<f64>; SUBJECTS.len()]> {
    let mut times: [Vec<f64>; SUBJECTS.len()] = Default::default();
    let mut order: Vec<usize> = (0..SUBJECTS.len()).collect();
    // Round 0 warms caches and is not kept.
    for round in 0..=rounds {
        for subject in order.iter().copied() {
            let command = match SUBJECTS[subject].2 {
                Some((side, tls)) => {
                    let mut command = bench.client(side, tls)?;
                    command.args(["-o", "/dev/null"]).arg(bench.url(Side::Reference, tls, "byte"));
                    command
                }
                None => Command::new("true"),
            };
            let exit = process::run(&mut bench.on_client(&command), LIMIT)?;
            if round > 0 {
                times[subject].push(exit.wall.as_secs_f64() * 1e3);
            }
        }
        order.reverse();
    }
    Ok(times)
}
