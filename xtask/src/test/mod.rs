//! `cargo xtask test`, which `./test` calls: everything that must hold before a change is merged.
//!
//! *Responsible for* which parts run in which order, their logs, the time of each, and the summary. *Not here*: what a part
//! does (`parts`), how test programs run (`programs`), what is installed (`packages`), how output is counted (`report`).
//!
//! *Invariants*: downloads and the shared build are parts of their own, so that each part's time is its own; a part that
//! fails keeps none of the others from running; what is skipped is said, with the reason.

mod log;
mod packages;
mod parts;
mod programs;
mod report;

use crate::workspace;
use log::Log;
use parts::{BUILD, Ended, FETCH, PARTS, Part, Shared};
use std::time::Instant;

const HELP: &str = "\
Everything that must hold before a change is merged, in one command. A newcomer and CI run the same thing.

  ./test                 run every part
  ./test PART...         run some parts, in the order given
  ./test --list          name the parts
  ./test --no-install    never install a package; skip what is missing
  ./test --verbose       show a part's output while it runs, not only in its log

It needs cargo, a C compiler and, for some parts, Python 3. What else a part needs it installs by package name, into the
system if it may (root, or sudo without a password) and into target/ where that will do, and says so. What it cannot have
it skips, with the reason. Logs are in target/test-logs. The last line is `N passed, N failed, N skipped`.
";

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    help: bool,
    list: bool,
    no_install: bool,
    verbose: bool,
    parts: Vec<&'static str>,
}

impl Request {
    /// From the arguments after `test`.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        let mut request = Self::default();
        for arg in args {
            match arg.as_str() {
                "--help" | "-h" => request.help = true,
                "--list" => request.list = true,
                "--no-install" => request.no_install = true,
                "--verbose" | "-v" => request.verbose = true,
                name => match PARTS.iter().find(|p| p.name == name) {
                    Some(part) => request.parts.push(part.name),
                    None => {
                        let all: Vec<&str> = PARTS.iter().map(|p| p.name).collect();
                        return Err(format!("no part is called `{name}`; the parts are: {}", all.join(" ")));
                    }
                },
            }
        }
        Ok(request)
    }
}

/// Runs the parts. False if one failed.
///
/// # Errors
/// The logs cannot be written.
pub(crate) fn chore(request: &Request) -> Result<bool, String> {
    if request.help {
        print!("{HELP}");
        return Ok(true);
    }
    if request.list {
        PARTS.iter().for_each(|p| println!("{:<12} {}", p.name, p.what));
        return Ok(true);
    }
    let chosen: Vec<&Part> = match request.parts.as_slice() {
        [] => PARTS.iter().collect(),
        some => some.iter().filter_map(|name| PARTS.iter().find(|p| p.name == *name)).collect(),
    };
    let root = workspace::root();
    let logs = root.join("target/test-logs");
    std::fs::create_dir_all(&logs).map_err(|e| format!("{}: {e}", logs.display()))?;
    std::env::set_current_dir(&root).map_err(|e| format!("{}: {e}", root.display()))?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut shared = Shared { root, logs, may_install: !request.no_install, cores, programs: Vec::new(), python: None };
    println!("neater: {} parts on {cores} processors, logs in target/test-logs", chosen.len());

    let mut results = vec![one(&FETCH, &chosen, request.verbose, &mut shared)?];
    if results[0].ended == Ended::Passed && chosen.iter().any(|p| p.runs) {
        results.push(one(&BUILD, &[], request.verbose, &mut shared)?);
    }
    // Of what was not built nothing can run; what needs no programs is looked at all the same.
    let built = results.iter().all(|r| r.ended == Ended::Passed);
    for part in chosen.iter().filter(|p| built || !p.runs) {
        results.push(one(part, &[], request.verbose, &mut shared)?);
    }
    summary(&results);
    Ok(results.iter().all(|r| r.ended != Ended::Failed))
}

/// Runs a part; `installs`: the parts whose packages it installs, which only downloads do.
fn one(part: &Part, installs: &[&Part], verbose: bool, shared: &mut Shared) -> Result<report::Result, String> {
    println!("== {}: {}", part.name, part.what);
    let log = Log::begin(&shared.logs, part.name, verbose).map_err(|e| format!("{}: {e}", shared.logs.display()))?;
    let (began, before) = (Instant::now(), cpu());
    let ended = (part.run)(shared, &log);
    if !installs.is_empty() {
        parts::install(shared, installs, &log);
    }
    if let Ended::Skipped(why) = &ended {
        log.line(&format!("SKIP: {why}"));
    }
    let seconds = began.elapsed().as_secs_f64();
    let used = before.zip(cpu()).map(|(before, after)| after - before);
    let (text, path) = (log.text(), log.path().to_path_buf());
    drop(log);
    let result = report::Result::of(part.name, seconds, used, ended, &text);
    result.skips.iter().for_each(|why| println!("   SKIPPED {why}"));
    result.flaky.iter().for_each(|names| println!("   FLAKY: {names}"));
    if result.ended == Ended::Failed && !verbose {
        println!("   the last lines of {}:", path.display());
        report::tail(&text).iter().for_each(|line| println!("   | {line}"));
        result.why.iter().for_each(|line| println!("   ! {line}"));
    }
    println!("   {} ({seconds:.0} s)", result.words());
    Ok(result)
}

/// The table, what failed once more (those who see only the end of the output must still learn it), and the last line.
fn summary(results: &[report::Result]) {
    println!("\n{}", report::head());
    results.iter().for_each(|r| println!("{}", r.row()));
    // Downloads depend on the network, and are made once.
    let counted = || results.iter().filter(|r| r.part != FETCH.name);
    let cpu = counted().map(|r| r.cpu).sum::<Option<f64>>();
    println!("{}", report::row("in all", counted().map(|r| r.seconds).sum(), cpu, "without downloads"));
    for result in results.iter().filter(|r| !r.why.is_empty()) {
        println!("\n{}:", result.part);
        result.why.iter().for_each(|line| println!("   ! {line}"));
    }
    let flaky: Vec<&str> = results.iter().flat_map(|r| r.flaky.iter().map(String::as_str)).collect();
    if !flaky.is_empty() {
        println!("\nfailed once and passed alone, which is a defect, too: {}", flaky.join(" "));
    }
    let sum = |of: fn(&report::Counts) -> usize| results.iter().map(|r| of(&r.counts)).sum::<usize>();
    println!("\n{} passed, {} failed, {} skipped", sum(|c| c.passed), sum(|c| c.failed), sum(|c| c.skipped));
}

/// The processor time of all children that have ended, in seconds; `None` where the system does not have it.
fn cpu() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // After the name, which may have anything in it, the fields are counted from the state; ticks are hundredths of a second.
    let ticks = text.rsplit_once(')')?.1.split_whitespace().skip(13).take(2).map(|w| w.parse::<u64>().ok());
    Some(ticks.sum::<Option<u64>>()? as f64 / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(s: &str) -> Result<Request, String> {
        Request::parse(&s.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn parts_and_options_are_understood_or_refused_with_the_names_that_there_are() {
        assert_eq!(parse(""), Ok(Request::default()));
        let some = parse("unit --no-install tidy -v").expect("a request");
        assert_eq!((some.parts, some.no_install, some.verbose), (vec!["unit", "tidy"], true, true));
        assert!(parse("units").is_err_and(|e| e.contains("units") && e.contains("unit sim vopr")));
    }

    #[test]
    fn children_that_have_ended_have_used_a_processor() {
        let before = cpu();
        let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        assert!(std::process::Command::new("sh").args(["-c", busy]).status().is_ok_and(|s| s.success()));
        assert!(before.zip(cpu()).is_none_or(|(before, after)| after > before));
    }
}
