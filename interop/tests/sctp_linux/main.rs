//! Our SCTP and the SCTP of Linux' kernel, in a virtual machine: every message is accounted for.
//!
//! Without arguments these are the tests that take a minute together; with `--full` all of them, and what was agreed upon is
//! written to `target/interop-linux/report.md`. Other arguments are words of tests' names, or, after `--exact`, names. The machine
//! is booted once, and ended with this program.

mod engine;
mod messages;
mod paths;
mod protocol;
mod rest;

use neater_interop::sctp::{Image, Machine, Shared};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// What the quick tests may take together, with booting: those that would begin so late that they may last longer are skipped.
const QUICK: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(15);

/// What a test is given.
struct Ground {
    machine: Shared,
    /// Lines for the report: what was agreed upon.
    agreed: Vec<String>,
    /// The same: what passed.
    report: Vec<String>,
}

/// A test's name, whether it is in the quick form, and itself.
type Test = (&'static str, bool, fn(&mut Ground));

fn wanted(name: &str, quick: bool, arguments: &[String]) -> bool {
    let words: Vec<_> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let has = |flag: &str| arguments.iter().any(|a| a == flag);
    if has("--exact") {
        return words.iter().any(|w| *w == name);
    }
    (quick || has("--full")) && (words.is_empty() || words.iter().any(|w| name.contains(w.as_str())))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let full = arguments.iter().any(|a| a == "--full");
    let tests: Vec<Test> = [messages::TESTS, protocol::TESTS, paths::TESTS, engine::TESTS, rest::TESTS].concat();
    let all = tests.len();
    let tests: Vec<Test> = tests.into_iter().filter(|(name, quick, _)| wanted(name, *quick, &arguments)).collect();
    if arguments.iter().any(|a| a == "--list") {
        tests.iter().for_each(|(name, ..)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", tests.len());
    if tests.is_empty() {
        return summary(0, &[], all);
    }
    let begun = Instant::now();
    let machine = match Image::find().and_then(|image| Machine::boot(&image)) {
        Ok(machine) => machine,
        Err(why) => {
            neater_interop::say_skipped(format_args!("{why}"));
            // Who asks for all of them wants to know.
            return if full { ExitCode::FAILURE } else { summary(0, &[], all) };
        }
    };
    println!("Linux {} is up after {:.1} s", machine.kernel, begun.elapsed().as_secs_f64());
    let mut report = vec![format!("Linux {}, up after {:.1} s.\n", machine.kernel, begun.elapsed().as_secs_f64())];
    report.extend(["| Test | Outcome | Seconds |", "|---|---|---|"].map(str::to_owned));
    let mut ground = Ground { report, agreed: Vec::new(), machine: Rc::new(RefCell::new(machine)) };
    let (mut passed, mut failed) = (0, Vec::new());
    for (name, _, test) in tests {
        let start = Instant::now();
        if !full && begun.elapsed() > QUICK - LONGEST {
            neater_interop::say_skipped(format_args!(
                "{name}: {:.0} s are gone of {QUICK:?}",
                begun.elapsed().as_secs_f64()
            ));
            continue;
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| test(&mut ground)));
        let word = if outcome.is_ok() { "ok" } else { "FAILED" };
        // As the usual harness says it, which ./test reads.
        println!("test {name} ... {word}");
        ground.report.push(format!("| {name} | {word} | {:.1} |", start.elapsed().as_secs_f64()));
        match outcome {
            Ok(()) => passed += 1,
            Err(_) => failed.push(name),
        }
    }
    if full {
        let text = [ground.report, ground.agreed].concat().join("\n") + "\n";
        print!("\n{text}");
        let path = neater_interop::here("../target/interop-linux/report.md");
        std::fs::write(&path, text).unwrap_or_else(|e| eprintln!("{}: {e}", path.display()));
    }
    let out = all - passed - failed.len();
    summary(passed, &failed, out)
}

fn summary(passed: usize, failed: &[&str], out: usize) -> ExitCode {
    failed.iter().for_each(|name| println!("    {name}"));
    let word = if failed.is_empty() { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {passed} passed; {} failed; 0 ignored; 0 measured; {out} filtered out\n",
        failed.len()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(101) }
}
