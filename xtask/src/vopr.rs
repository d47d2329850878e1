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
/// What a seed may take of one processor in the mean, in milliseconds, by a program that was built with optimisation (and assertions,
/// which take a tenth more).
const MEAN_MS: f64 = 20.0;
/// A seed takes more on a slow machine, and on one whose processors are busy with other things at the same time: that is said.
/// What takes this many times as much has become slow.
const TOO_SLOW: f64 = 2.0;
/// So many seeds say something of means and shares; fewer may be of a world where little can be done.
const MANY: u64 = 100;
/// The part of all flows that must come to where they were to come: of 650 seeds 71 % did. The others end with an error, because
/// of the faults and of middleboxes.
const DONE: f64 = 0.6;
/// Between two signs of progress.
const BEAT: Duration = Duration::from_millis(500);

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    seeds: u64,
    first: u64,
    jobs: u64,
    /// A build that is there already, of any profile; by default one with optimisation and assertions is made.
    program: Option<PathBuf>,
}

impl Request {
    /// `--seeds N` (300), `--seed FIRST` (0), `--jobs N` (as many as there are processors), `--program PATH`.
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        let jobs = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        let mut request = Self { seeds: 300, first: 0, jobs, program: None };
        let mut args = args.iter();
        while let Some(flag) = args.next() {
            if flag == "--program" {
                let path = args.next().ok_or("--program takes the path of a build of neater-vopr")?;
                request.program = Some(PathBuf::from(path));
                continue;
            }
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
                other => return Err(format!("vopr takes --seeds, --seed, --jobs and --program, not `{other}`")),
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

/// Builds the program with optimisation and with its assertions, unless one was given, and runs it. False if a seed fails.
pub(crate) fn chore(request: &Request) -> Result<bool, String> {
    let program = request.program.clone().map_or_else(build, Ok)?;
    let (tell, hear) = channel();
    let mut children = Vec::new();
    for job in 0..request.jobs {
        children.push(start(&program, request, job, tell.clone())?);
    }
    drop(tell);
    let began = Instant::now();
    let outcome = collect(request, &hear, children);
    let took = began.elapsed();
    let (failures, totals, cpu) = outcome?;
    let mean = cpu.map(|cpu| cpu.as_secs_f64() * 1000.0 / request.seeds as f64);
    let each = mean.map_or_else(|| "an unknown time".to_owned(), |ms| format!("{ms:.1} ms"));
    // What is promised is promised of an optimised program.
    let (mean, promised) = match request.program {
        None => (mean, format!(" ({MEAN_MS} ms are promised)")),
        Some(_) => (None, String::new()),
    };
    println!(
        "{} seeds in {:.1} s, {each} of one processor each{promised}, {} failed",
        request.seeds,
        took.as_secs_f64(),
        failures.len()
    );
    if let Some(why) = slow(request.seeds, mean) {
        println!("  warning: {why}");
    }
    println!(
        "{} flows, {:.1} % of them done, {} services proven alive after the faults, {} bytes heard",
        totals.flows,
        totals.share() * 100.0,
        totals.proofs,
        totals.bytes
    );
    let weak = totals.weak(request.seeds, mean);
    weak.iter().for_each(|why| println!("  {why}"));
    for (seed, why) in &failures {
        println!("  seed {seed}: {why}");
        let again = request
            .program
            .as_ref()
            .map_or_else(|| "cargo run --profile vopr -p neater-vopr --".to_owned(), |path| path.display().to_string());
        println!("    repeat it: {again} --seed {seed} --trace   (smaller: --small)");
    }
    Ok(failures.is_empty() && weak.is_empty())
}

/// What the worlds that did not fail have done.
#[derive(Debug, Default, PartialEq, Eq)]
struct Totals {
    flows: u64,
    done: u64,
    proofs: u64,
    bytes: u64,
}

impl Totals {
    /// Adds what a line says after its seed; false if it does not say it.
    fn add(&mut self, words: &str) -> bool {
        let numbers: Vec<u64> = words.split(' ').map_while(|w| w.parse().ok()).collect();
        let [flows, done, proofs, bytes] = numbers[..] else { return false };
        self.flows += flows;
        self.done += done;
        self.proofs += proofs;
        self.bytes += bytes;
        true
    }

    fn share(&self) -> f64 {
        self.done as f64 / self.flows.max(1) as f64
    }

    /// Why so many seeds that have not failed show less than they should: nothing was done in them, or they took far too long, as
    /// far as that is known.
    fn weak(&self, seeds: u64, mean_ms: Option<f64>) -> Vec<String> {
        let mut why = Vec::new();
        if seeds < MANY {
            return why;
        }
        if self.share() < DONE {
            why.push(format!(
                "fewer than {} % of the flows came to their end: what is tested hardly works",
                DONE * 100.0
            ));
        }
        if self.bytes == 0 || self.proofs == 0 {
            why.push("nothing was heard, or nothing was proven alive: these worlds test nothing".into());
        }
        if let Some(ms) = mean_ms.filter(|ms| *ms > TOO_SLOW * MEAN_MS) {
            why.push(format!(
                "{ms:.1} ms for a seed in the mean, over {TOO_SLOW} times the {MEAN_MS} that are promised"
            ));
        }
        why
    }
}

/// What is to be said of so many seeds that took longer than is promised, but not so long that they fail.
fn slow(seeds: u64, mean_ms: Option<f64>) -> Option<String> {
    let ms = mean_ms.filter(|ms| seeds >= MANY && *ms > MEAN_MS && *ms <= TOO_SLOW * MEAN_MS)?;
    Some(format!(
        "{ms:.1} ms for a seed in the mean, and {MEAN_MS} are promised: a busy machine, or something has become slower"
    ))
}

fn build() -> Result<PathBuf, String> {
    let out = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args([
            "build",
            "--profile",
            "vopr",
            "--locked",
            "-p",
            "neater-vopr",
            "--message-format=json-render-diagnostics",
        ])
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

/// Seeds that failed, with why.
type Failures = Vec<(u64, String)>;

/// The processor time that a process has used, as long as it is not buried; `None` where the system does not tell.
fn cpu(pid: u32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the name, which may have anything in it: the state, and from the twelfth on ticks of 10 ms as user and as system.
    let ticks = text.rsplit_once(')')?.1.split_whitespace().skip(11).take(2).map(|w| w.parse::<u64>().ok());
    Some(Duration::from_millis(10 * ticks.sum::<Option<u64>>()?))
}

/// Listens until all are over. The seeds that fail, with why, what the others did, and the processor time of all.
fn collect(
    request: &Request,
    hear: &Receiver<Word>,
    mut children: Vec<Child>,
) -> Result<(Failures, Totals, Option<Duration>), String> {
    let mut failures = Failures::new();
    let mut totals = Totals::default();
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
                let rest = words.next().unwrap_or_default();
                if kind == Some("FAILED") {
                    failures.push((seed, rest.to_owned()));
                } else if !totals.add(rest) {
                    failures.push((seed, format!("it does not say what it did: `{rest}`")));
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
    let mut used = Some(Duration::ZERO);
    for mut child in children {
        used = used.zip(cpu(child.id())).map(|(a, b)| a + b);
        child.wait().map_err(|e| format!("a process cannot be waited for: {e}"))?;
    }
    failures.sort();
    Ok((failures, totals, used))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(s: &str) -> Result<Request, String> {
        Request::parse(&s.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn numbers_are_numbers_or_errors_that_say_so() {
        assert_eq!(parse("--seeds 10 --seed 5 --jobs 3"), Ok(Request { seeds: 10, first: 5, jobs: 3, program: None }));
        assert_eq!(parse("--program a/b").map(|r| r.program), Ok(Some(PathBuf::from("a/b"))));
        assert!(parse("--program").is_err_and(|e| e.contains("--program")));
        assert_eq!(parse("--seeds 2 --jobs 8").map(|r| r.jobs), Ok(2));
        assert_eq!(parse("").map(|r| (r.seeds, r.first)), Ok((300, 0)));
        assert!(parse("--seeds many").is_err_and(|e| e.contains("many")));
        assert!(parse("--seeds 0").is_err());
        assert!(parse("--what").is_err_and(|e| e.contains("--what")));
        assert!(parse("--jobs").is_err_and(|e| e.contains("--jobs")));
    }

    #[test]
    fn a_process_is_asked_for_the_time_that_it_has_used() {
        let began = Instant::now();
        let mut n = 0u64;
        while cfg!(target_os = "linux") && cpu(std::process::id()).expect("Linux tells") < Duration::from_millis(30) {
            n = (0..100_000).fold(n, |n, i| std::hint::black_box(n ^ i));
            assert!(began.elapsed() < Duration::from_secs(60), "{n}");
        }
        assert_eq!(cpu(u32::MAX), None);
    }

    #[test]
    fn worlds_in_which_nothing_works_do_not_pass() {
        let mut t = Totals::default();
        assert!(t.add("10 8 3 5000") && t.add("2 0 0 0"));
        assert_eq!(t, Totals { flows: 12, done: 8, proofs: 3, bytes: 5000 });
        assert!(!t.add("") && !t.add("1 2 3") && !t.add("1 2 x 4"));
        assert!(t.weak(300, Some(12.0)).is_empty());
        assert!(t.weak(300, Some(30.0)).is_empty(), "a machine may be busy");
        assert_eq!(t.weak(300, Some(40.1)).len(), 1, "too slow");
        assert!(t.weak(300, None).is_empty(), "what is not known is not judged");
        assert!(slow(300, Some(20.1)).is_some_and(|why| why.contains("20.1 ms")));
        assert_eq!(
            (slow(300, Some(19.9)), slow(300, Some(40.1)), slow(300, None), slow(1, Some(30.0))),
            (None, None, None, None)
        );
        let idle = Totals { flows: 100, done: 10, proofs: 0, bytes: 0 };
        assert_eq!(idle.weak(300, Some(12.0)).len(), 2);
        assert!(idle.weak(1, Some(50.0)).is_empty(), "of one seed nothing is known");
    }
}
