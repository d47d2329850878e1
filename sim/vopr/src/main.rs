//! `neater-vopr`: runs seeds, one after the other. `cargo xtask vopr` runs many of these at once, with a progress bar.
//!
//! Every seed that is over is a line on standard output: `ok SEED FLOWS DONE PROOFS BYTES` (flows opened, flows whose opener did
//! all it had to do, services proven alive at the end, bytes that programs heard), or `FAILED SEED WHY`. Exit 1 if one failed.

#![forbid(unsafe_code)]

use neater_vopr::{Plan, Telling, run, smaller};
use std::io::Write;
use std::process::ExitCode;

const HELP: &str = "\
usage: neater-vopr [--seed FIRST] [--seeds N] [--step N]   run N seeds (default 1) from FIRST (default 0), every N-th
       neater-vopr --seed S --trace [--last N]             run one seed, with its plan and its time line (its last N lines)
                           --packets                       the same with each packet at each place
       neater-vopr --seed S --twice                        run it twice: both must do the same
       neater-vopr --seed S --small                        leave out of its plan what it does not need to fail";

/// Plans that are done to make one small.
const TRIES: usize = 400;

#[derive(Debug, Default)]
struct Args {
    seed: u64,
    seeds: u64,
    step: u64,
    last: usize,
    trace: bool,
    packets: bool,
    twice: bool,
    small: bool,
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut a = Args { seeds: 1, step: 1, last: usize::MAX, ..Args::default() };
    while let Some(flag) = args.next() {
        let mut number = || {
            let text = args.next().ok_or_else(|| format!("{flag} takes a number"))?;
            text.parse::<u64>().map_err(|_| format!("{flag} takes a number, not `{text}`"))
        };
        match flag.as_str() {
            "--seed" => a.seed = number()?,
            "--seeds" => a.seeds = number()?,
            "--step" => a.step = number()?.max(1),
            "--last" => a.last = number()? as usize,
            "--trace" => a.trace = true,
            "--packets" => a.packets = true,
            "--twice" => a.twice = true,
            "--small" => a.small = true,
            other => return Err(format!("there is no {other}")),
        }
    }
    Ok(a)
}

fn main() -> ExitCode {
    let args = match parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(why) => {
            eprintln!("neater-vopr: {why}\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let telling = if args.packets { Telling::Packets } else { Telling::Events };
    if args.small {
        return small(args.seed, telling);
    }
    if args.trace || args.packets {
        return trace(args.seed, args.last, telling);
    }
    let mut good = true;
    let mut out = std::io::stdout().lock();
    for n in 0..args.seeds {
        let seed = args.seed.saturating_add(n.saturating_mul(args.step));
        let plan = Plan::draw(seed);
        let mut came = run(&plan, Telling::Nothing);
        if args.twice && came.failure.is_none() && run(&plan, Telling::Nothing) != came {
            came.failure = Some("the same plan did something else the second time".into());
        }
        let line = match came.failure {
            None => format!("ok {seed} {} {} {} {}", came.flows, came.done, came.proofs, came.bytes),
            Some(why) => {
                good = false;
                format!("FAILED {seed} {}", why.replace('\n', " | "))
            }
        };
        // Whoever reads no more needs no more.
        if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
            break;
        }
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One seed with everything that can be told of it.
fn trace(seed: u64, last: usize, telling: Telling) -> ExitCode {
    let plan = Plan::draw(seed);
    print!("{plan}");
    let outcome = run(&plan, telling);
    let skip = outcome.lines.len().saturating_sub(last);
    for line in &outcome.lines[skip..] {
        println!("{line}");
    }
    println!(
        "{} flows, {} done, {} proofs of life, {} bytes heard, {:?} of virtual time, digest {:016x}",
        outcome.flows, outcome.done, outcome.proofs, outcome.bytes, outcome.virtual_time, outcome.digest
    );
    match outcome.failure {
        None => ExitCode::SUCCESS,
        Some(why) => {
            println!("FAILED {seed} {why}");
            ExitCode::FAILURE
        }
    }
}

/// One failing seed, with as little as it needs to fail.
fn small(seed: u64, telling: Telling) -> ExitCode {
    match smaller(&Plan::draw(seed), TRIES) {
        None => {
            println!("seed {seed} does not fail");
            ExitCode::SUCCESS
        }
        Some((plan, why)) => {
            print!("{plan}");
            for line in run(&plan, telling).lines {
                println!("{line}");
            }
            println!("FAILED {seed} {why}");
            ExitCode::FAILURE
        }
    }
}
