//! `neater-lab`: runs the experiments and shows their figures.
//!
//! Exit codes: 0 when the measurements ran (also when a bound is missed, unless with `--strict`), 1 when one failed or a bound
//! was missed with `--strict` or where `--strict-for` says so, 2 for bad usage, 3 when a needed tool is missing.

use clap::{Parser, Subcommand};
use neater_emulator::LiveError;
use neater_lab::calibrate;
use neater_lab::experiments::ALL;
use neater_lab::measure::process;
use neater_lab::net;
use neater_lab::report::page;
use neater_lab::runner::{self, Ended, Options, Strict};
use neater_lab::simulate;
use std::path::PathBuf;
use std::process::ExitCode;

/// Experiments and figures: what neater costs and how fast it is, measured beside other people's programs.
#[derive(Parser, Debug)]
#[command(name = "neater-lab", version, after_help = HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const HELP: &str = "Examples:
  neater-lab list                          the experiments
  neater-lab list B1                       what B1 asks, how it is measured, what was published
  neater-lab run B1 --quick                minutes instead of an hour
  neater-lab run B1 B2 --seeds 10 --jobs 4 --out results
  neater-lab run all --json                one JSON object per figure and line
  neater-lab watch E5                      a page with a transfer over two networks, and switches
  neater-lab report results                one page of everything in results: results/report.html

Exit codes:
  0  measured, also when a bound was missed, unless with --strict or --strict-for
  1  a measurement failed, or a bound was missed with --strict or where --strict-for says so
  2  the command line makes no sense
  3  a tool or a privilege is missing";

const RUN_HELP: &str =
    "Each experiment has a directory in --out with its raw data (CSV), its figures (JSON lines), drawings (SVG
and PNG) and a description of the machine; `neater-lab report` makes a page of them.

The B experiments go on where an earlier run stopped: a run is not made again if the same scenario, series
and seed were measured by the same build of the programs, on the same kernel, beside the same curl and
nginx. The A experiments compare programs in interleaved
pairs, and are measured as a whole each time.

A figure from fewer runs than it needs is not judged, as most are with --quick: the next runs could turn the
verdict. Counts (instructions, allocations, system calls, bytes) and what follows from the seed need one run.
If others use the machine meanwhile, that is printed beside the figures and kept: measure again when it is
quiet.";

const WATCH_HELP: &str =
    "The page's address is printed. The network has two links of 10 Mbit/s; `neater get` fetches one file after
the other from `neater serve`. At first SCTP is blocked, and TCP carries what it can over one link; allowed,
SCTP uses both. Each link can be made a black hole. Nothing leaves this host; everything is gone with the
process (Ctrl-C).";

#[derive(Subcommand, Debug)]
enum Command {
    /// List the experiments, or describe some.
    List {
        /// Ids of `neater-lab list`.
        #[arg(value_parser = experiment)]
        ids: Vec<&'static str>,
        /// One JSON object per experiment and line.
        #[arg(long)]
        json: bool,
    },
    /// Run experiments.
    #[command(after_help = RUN_HELP)]
    Run {
        /// Ids of `neater-lab list`, or `all`.
        #[arg(required = true, value_parser = experiment)]
        ids: Vec<&'static str>,
        /// Fewer runs and fewer points: minutes instead of an hour, for the same figures. Those that need more runs are not judged.
        #[arg(long)]
        quick: bool,
        /// One JSON object per figure and line instead of tables.
        #[arg(long)]
        json: bool,
        /// Where everything is kept, in a directory for each experiment.
        #[arg(long, value_name = "DIR", default_value = "out")]
        out: PathBuf,
        /// The first seed: everything random that is ours follows from it.
        #[arg(long, value_name = "N", default_value_t = 1)]
        seed: u64,
        /// Runs of each point, with seeds from --seed on; pairs in the A experiments. Each has its own number otherwise.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
        seeds: Option<u32>,
        /// Runs at once, where runs do not disturb each other; as many as the machine allows otherwise.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
        jobs: Option<u32>,
        /// Go on where an earlier run into the same --out stopped. This is what happens anyway.
        #[arg(long, conflicts_with = "fresh")]
        resume: bool,
        /// Make all runs again; earlier raw data is kept as runs.csv.old.
        #[arg(long)]
        fresh: bool,
        /// Measure the programs that lie beside this one, as they are: those that cargo builds for tests. Shows that an experiment
        /// runs; no figure is judged that depends on how programs were built, which is all but those of A9, F1, F3 and X2.
        #[arg(long, conflicts_with = "strict")]
        unoptimised: bool,
        /// Exit with 1 if a figure does not meet its bound, has no value, or is void, or if an experiment is skipped. One that is not
        /// judged for want of runs is no failure.
        #[arg(long)]
        strict: bool,
        /// As --strict, for these experiments and not for the others; one that lacks what it needs is skipped all the same.
        #[arg(long, value_name = "IDS", value_delimiter = ',', value_parser = experiment, conflicts_with = "strict")]
        strict_for: Vec<&'static str>,
        /// Only the points of A8 and S3, the parts of B0, the scenarios of F3, or the rows of E4b, E5, E6, I1L, I2L, PY, S1 and WEB0 whose
        /// names contain this: send-10MB, 1kB-writes; delay, rate; one, two, domains; mptcp, alike, bottleneck, sctp-idle; get, small,
        /// startup, serve-h2, syscalls, peers.
        #[arg(long, value_name = "TEXT")]
        only: Option<String>,
    },
    /// Show an experiment on a page, with switches that act while it runs: E5, one transfer over two networks.
    #[command(after_help = WATCH_HELP)]
    Watch {
        /// E5.
        #[arg(value_parser = watched)]
        id: &'static str,
        /// The port of the page on this host; 0 takes a free one.
        #[arg(long, short, default_value_t = 8000)]
        port: u16,
        /// Show the `neater` that lies beside this program, as it is.
        #[arg(long)]
        unoptimised: bool,
    },
    /// The run that X2 compares, for X2.
    #[command(hide = true)]
    Replay {
        #[arg(long)]
        seed: u64,
        #[arg(long)]
        out: PathBuf,
    },
    /// The audio conference of F3, for F3.
    #[command(hide = true)]
    Call(neater_lab::call::CallArgs),
    /// Run a scenario in the simulator.
    Sim(simulate::Arguments),
    Net(net::NetArgs),
    Calibrate(calibrate::CalibrateArgs),
    /// Make one page of what `run` has kept: DIR/report.html.
    Report {
        /// What was given to `run` as --out.
        #[arg(value_name = "DIR", default_value = "out")]
        dir: PathBuf,
        /// Another place for the page.
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

const EVERYTHING: &str = "all";
/// Experiments whose points can be chosen by `--only`.
const WITH_ROWS: [&str; 12] = ["A8", "B0", "E4b", "E5", "E6", "F3", "I1L", "I2L", "PY", "S1", "S3", "WEB0"];

fn experiment(text: &str) -> Result<&'static str, String> {
    if text.eq_ignore_ascii_case(EVERYTHING) {
        return Ok(EVERYTHING);
    }
    ALL.iter().map(|e| e.id).find(|id| text.eq_ignore_ascii_case(id)).ok_or_else(|| {
        let ids: Vec<_> = ALL.iter().map(|e| e.id).collect();
        format!("no such experiment; there are all, {}", ids.join(", "))
    })
}

/// What can be watched.
fn watched(text: &str) -> Result<&'static str, String> {
    if text.eq_ignore_ascii_case("E5") { Ok("E5") } else { Err("E5 can be watched, and no other yet".into()) }
}

fn selected(ids: &[&'static str]) -> Vec<&'static str> {
    ALL.iter().map(|e| e.id).filter(|id| ids.contains(&EVERYTHING) || ids.contains(id)).collect()
}

fn list(ids: &[&'static str], json: bool) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    let chosen = selected(ids);
    for e in ALL {
        if json {
            if ids.is_empty() || chosen.contains(&e.id) {
                let value =
                    serde_json::json!({"event": "experiment", "id": e.id, "title": e.title, "text": e.describe()});
                writeln!(out, "{value}")?;
            }
        } else if ids.is_empty() {
            writeln!(out, "{:<5} {}", e.id, e.title.split_once(": ").map_or(e.title, |(_, t)| t))?;
        } else if chosen.contains(&e.id) {
            writeln!(out, "{}", e.describe())?;
        }
    }
    out.flush()
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::List { ids, json } => {
            return match list(&ids, json) {
                Ok(()) => ExitCode::SUCCESS,
                // Whoever reads has had enough.
                Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
                Err(e) => ended(LiveError::Failed(format!("the list cannot be written: {e}"))),
            };
        }
        Command::Calibrate(args) => return calibrate::run(&args).map_or_else(ended, |()| ExitCode::SUCCESS),
        Command::Net(args) => return net::run(&args).map_or_else(ended, ExitCode::from),
        Command::Run {
            ids,
            quick,
            json,
            out,
            seed,
            seeds,
            jobs,
            resume: _,
            fresh,
            unoptimised,
            strict,
            strict_for,
            only,
        } => {
            if only.is_some() && !matches!(ids.as_slice(), [one] if WITH_ROWS.contains(one)) {
                let (last, others) = WITH_ROWS.split_last().unwrap_or((&"", &[]));
                let others = others.join(", ");
                eprintln!(
                    "neater-lab: --only chooses among the points of {others} or {last}; run that one alone, or leave it out"
                );
                return ExitCode::from(2);
            }
            process::raise_descriptor_limit();
            let number = |n: Option<u32>| n.map(|n| n as usize);
            let (seeds, jobs) = (number(seeds), number(jobs));
            let (ids, strictly) = (selected(&ids), selected(&strict_for));
            if let Some(absent) = strictly.iter().find(|id| !ids.contains(id)) {
                eprintln!(
                    "neater-lab: --strict-for {absent}: it is not among those to be run; add it, or leave it out there"
                );
                return ExitCode::from(2);
            }
            let strict = match strict {
                true => Strict::All,
                false if strictly.is_empty() => Strict::No,
                false => Strict::These(strictly),
            };
            runner::run(&ids, &Options { quick, json, out, seed, seeds, jobs, fresh, unoptimised, only, strict })
        }
        Command::Watch { id: _, port, unoptimised } => runner::watch(port, unoptimised).map(|()| Ended::Measured),
        Command::Replay { seed, out } => {
            neater_lab::experiments::x2::write(seed, &out).map(|_| Ended::Measured).map_err(Into::into)
        }
        Command::Call(args) => {
            return match neater_lab::call::run(&args) {
                Ok(well) => ExitCode::from(u8::from(!well)),
                Err(e) => {
                    eprintln!("neater-lab: {e}");
                    ExitCode::from(2)
                }
            };
        }
        Command::Sim(arguments) => return simulate::command(&arguments),
        Command::Report { dir, output } => {
            let output = output.unwrap_or_else(|| dir.join("report.html"));
            page::write(&dir, &output).map(|n| {
                eprintln!("neater-lab: {n} experiments in {}", output.display());
                Ended::Measured
            })
        }
    };
    match result {
        Ok(Ended::Measured) => ExitCode::SUCCESS,
        Ok(Ended::Failed | Ended::Missed) => ExitCode::from(1),
        Err(e) => {
            eprintln!("neater-lab: {e}");
            ExitCode::from(if e.is_lack() { 3 } else { 1 })
        }
    }
}

/// The exit code of a lab that could not be used.
fn ended(e: LiveError) -> ExitCode {
    eprintln!("neater-lab: {e}");
    ExitCode::from(match e {
        LiveError::Usage(_) => 2,
        LiveError::MissingTool { .. } | LiveError::Privileges(_) => 3,
        LiveError::Failed(_) => 1,
    })
}
