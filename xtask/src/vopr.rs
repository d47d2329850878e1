//! The whole system under random faults, many seeds at once: `neater-vopr` processes, each with every n-th seed.
//!
//! *Responsible for* dividing the seeds, showing progress, and collecting failures with the command that repeats each. *Not
//! for* what a seed means (`sim/vopr`).

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// A process that says nothing for this long hangs.
const SILENCE: Duration = Duration::from_secs(120);
/// Between two signs of progress.
const BEAT: Duration = Duration::from_millis(500);

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    seeds: u64,
    first: u64,
    jobs: u64,
}

impl Request {
    /// `--seeds N` (300), `--seed FIRST` (0), `--jobs N` (as many as there are processors).
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        let jobs = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        let mut request = Self { seeds: 300, first: 0, jobs };
        let mut args = args.iter();
        while let Some(flag) = args.next() {
            let mut number = |least: u64, most: u64| {
                let text = args.next().ok_or_else(|| format!("{flag} takes a number"))?;
                match text.parse() {
                    Ok(n) if (least..=most).contains(&n) => Ok(n),
                    _ => Err(format!("{flag} takes a number from {least} to {most}, not `{text}`")),
                }
            };
            match flag.as_str() {
                "--seeds" => request.seeds = number(1, 100_000_000)?,
                "--seed" => request.first = number(0, u64::MAX / 2)?,
                "--jobs" => request.jobs = number(1, 1024)?,
                other => return Err(format!("vopr takes --seeds, --seed and --jobs, not `{other}`")),
            }
        }
        request.jobs = request.jobs.min(request.seeds);
        Ok(request)
    }
}

/// What a process says.
enum Word {
    /// A line of its output.
    Line(u64, String),
    /// It is over.
    Over(u64),
}

/// Builds the program in release, and runs it. False if a seed fails.
pub(crate) fn chore(request: &Request) -> Result<bool, String> {
    let program = build()?;
    let (tell, hear) = channel();
    let mut children = Vec::new();
    for job in 0..request.jobs {
        children.push(start(&program, request, job, tell.clone())?);
    }
    drop(tell);
    let began = Instant::now();
    let outcome = collect(request, &hear, children);
    let took = began.elapsed();
    let failures = outcome?;
    let mean = took.as_secs_f64() * 1000.0 * request.jobs as f64 / request.seeds as f64;
    println!(
        "{} seeds in {:.1} s, {mean:.1} ms of one processor each at most, {} failed",
        request.seeds,
        took.as_secs_f64(),
        failures.len()
    );
    for (seed, why) in &failures {
        println!("  seed {seed}: {why}");
        println!("    repeat it: cargo run --release -p neater-vopr -- --seed {seed} --trace   (smaller: --small)");
    }
    Ok(failures.is_empty())
}

fn build() -> Result<PathBuf, String> {
    let out = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "--locked", "-p", "neater-vopr", "--message-format=json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("cargo cannot be run: {e}"))?;
    if !out.status.success() {
        return Err("neater-vopr cannot be built".into());
    }
    let text = String::from_utf8_lossy(&out.stdout);
    // The last artifact with an executable is the program.
    let line = text.lines().rev().find(|l| l.contains("\"executable\":\"")).ok_or("cargo names no executable")?;
    let path = line.split("\"executable\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
    Ok(PathBuf::from(path.replace("\\\\", "\\")))
}

fn start(program: &PathBuf, request: &Request, job: u64, tell: Sender<Word>) -> Result<Child, String> {
    let seeds = (request.seeds - job).div_ceil(request.jobs);
    let mut child = Command::new(program)
        .args(["--seed", &(request.first + job).to_string()])
        .args(["--seeds", &seeds.to_string()])
        .args(["--step", &request.jobs.to_string()])
        .stdout(Stdio::piped())
        // A panic is told by the line of its seed.
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("{}: {e}", program.display()))?;
    let out = child.stdout.take().ok_or("the program has no output")?;
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            let _ = tell.send(Word::Line(job, line));
        }
        let _ = tell.send(Word::Over(job));
    });
    Ok(child)
}

/// Listens until all are over. The seeds that fail, with why.
fn collect(request: &Request, hear: &Receiver<Word>, mut children: Vec<Child>) -> Result<Vec<(u64, String)>, String> {
    let mut failures = Vec::new();
    // The next seed of each job.
    let mut next: Vec<u64> = (0..request.jobs).map(|j| request.first + j).collect();
    let mut heard: Vec<Instant> = vec![Instant::now(); children.len()];
    let mut over = vec![false; children.len()];
    let mut done = 0;
    let mut shown = Instant::now();
    while over.iter().any(|o| !o) {
        match hear.recv_timeout(BEAT) {
            Ok(Word::Line(job, line)) => {
                let job = job as usize;
                heard[job] = Instant::now();
                let mut words = line.splitn(3, ' ');
                let kind = words.next();
                let seed = words.next().and_then(|s| s.parse::<u64>().ok());
                let (Some("ok" | "FAILED"), Some(seed)) = (kind, seed) else { continue };
                done += 1;
                next[job] = seed + request.jobs;
                if kind == Some("FAILED") {
                    failures.push((seed, words.next().unwrap_or_default().to_owned()));
                }
            }
            Ok(Word::Over(job)) => {
                let job = job as usize;
                over[job] = true;
                if next[job] < request.first + request.seeds {
                    failures.push((next[job], "the process ended in the middle of it".into()));
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        for (job, child) in children.iter_mut().enumerate() {
            if !over[job] && heard[job].elapsed() > SILENCE {
                // Its end is heard as everybody's; the seed is told there.
                let _ = child.kill();
            }
        }
        if shown.elapsed() > BEAT {
            shown = Instant::now();
            eprint!("\r{done} of {} seeds, {} failed ", request.seeds, failures.len());
            let _ = std::io::stderr().flush();
        }
    }
    eprintln!("\r{done} of {} seeds, {} failed ", request.seeds, failures.len());
    for mut child in children {
        child.wait().map_err(|e| format!("a process cannot be waited for: {e}"))?;
    }
    failures.sort();
    Ok(failures)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(s: &str) -> Result<Request, String> {
        Request::parse(&s.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn numbers_are_numbers_or_errors_that_say_so() {
        assert_eq!(parse("--seeds 10 --seed 5 --jobs 3"), Ok(Request { seeds: 10, first: 5, jobs: 3 }));
        assert_eq!(parse("--seeds 2 --jobs 8").map(|r| r.jobs), Ok(2));
        assert_eq!(parse("").map(|r| (r.seeds, r.first)), Ok((300, 0)));
        assert!(parse("--seeds many").is_err_and(|e| e.contains("many")));
        assert!(parse("--seeds 0").is_err());
        assert!(parse("--what").is_err_and(|e| e.contains("--what")));
        assert!(parse("--jobs").is_err_and(|e| e.contains("--jobs")));
    }
}
