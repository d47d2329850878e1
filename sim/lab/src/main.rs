//! `neater-lab`: runs the experiments and shows their figures.
//!
//! Exit codes: 0 when the measurements ran (also when a bound is missed), 1 when one failed, 2 for bad usage, 3 when a
//! needed tool is missing.

use clap::{Parser, Subcommand};
use neater_lab::experiments::{ALL, Experiment, Lab};
use neater_lab::live::{self, LiveError};
use neater_lab::measure::{MeasureError, process};
use neater_lab::programs::Programs;
use neater_lab::{plot, report};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Experiments and figures: what neater costs, measured beside epoll, libuv and tokio.
#[derive(Parser, Debug)]
#[command(name = "neater-lab", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Net(live::cli::NetArgs),
    /// List the experiments.
    List,
    /// Run one experiment, or all.
    Run {
        /// An id of `neater-lab list`, or `all`.
        #[arg(value_parser = experiments)]
        id: Selection,
        /// Fewer runs and fewer points: minutes instead of an hour, for the same figures.
        #[arg(long)]
        quick: bool,
        /// One JSON object per figure and line instead of tables.
        #[arg(long)]
        json: bool,
        /// Where raw data and drawings are kept, in a directory for each experiment.
        #[arg(long, value_name = "DIR", default_value = "out")]
        out: PathBuf,
        /// The order of interleaved runs and the resampling of intervals follow from it.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

#[derive(Clone, Debug)]
struct Selection(Vec<&'static str>);

fn experiments(text: &str) -> Result<Selection, String> {
    let chosen: Vec<_> = ALL
        .iter()
        .map(|e| e.id)
        .filter(|id| text.eq_ignore_ascii_case("all") || text.eq_ignore_ascii_case(id))
        .collect();
    if chosen.is_empty() {
        let ids: Vec<_> = ALL.iter().map(|e| e.id).collect();
        return Err(format!("no such experiment; there are all, {}", ids.join(", ")));
    }
    Ok(Selection(chosen))
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Net(args) => live::cli::run(&args).map_or_else(ended, ExitCode::from),
        Command::List => {
            for e in ALL {
                println!("{:<5} {}", e.id, e.title.split_once(": ").map_or(e.title, |(_, t)| t));
            }
            ExitCode::SUCCESS
        }
        Command::Run { id, quick, json, out, seed } => {
            process::raise_descriptor_limit();
            match run(&id.0, quick, json, &out, seed) {
                Ok(true) => ExitCode::SUCCESS,
                Ok(false) => ExitCode::from(1),
                Err(e @ MeasureError::MissingTool { .. }) => {
                    eprintln!("neater-lab: {e}");
                    ExitCode::from(3)
                }
                Err(e) => {
                    eprintln!("neater-lab: {e}");
                    ExitCode::from(1)
                }
            }
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

/// Runs the chosen experiments; returns whether all of them could be measured.
fn run(ids: &[&str], quick: bool, json: bool, out: &Path, seed: u64) -> Result<bool, MeasureError> {
    for (tool, package) in [("valgrind", "valgrind"), ("strace", "strace"), ("cc", "gcc")] {
        process::need(tool, package)?;
    }
    let progress = |what: &str| eprintln!("neater-lab: {what}");
    let peers = out.join("peers");
    std::fs::create_dir_all(&peers)?;
    // Children are started with these paths whatever their directory is.
    let peers = peers.canonicalize()?;
    let programs = Programs::prepare(&peers, &progress)?;
    let lab = Lab { quick, seed, programs, scratch: peers, progress: Box::new(progress) };
    let mut all_measured = true;
    for e in ALL.iter().filter(|e| ids.contains(&e.id)) {
        match one(e, &lab, json, &out.join(e.id)) {
            Ok(()) => {}
            Err(e @ MeasureError::MissingTool { .. }) => return Err(e),
            Err(why) => {
                eprintln!("neater-lab: {}: {why}", e.id);
                all_measured = false;
            }
        }
    }
    Ok(all_measured)
}

fn one(e: &Experiment, lab: &Lab, json: bool, dir: &Path) -> Result<(), MeasureError> {
    let outcome = (e.run)(lab)?;
    report::keep(dir, &outcome.figures, &outcome.samples)?;
    std::fs::write(dir.join(format!("{}.svg", e.id)), plot::draw(e.title, e.note, &outcome.panels))?;
    // A closed pipe is the reader's decision, not a failure of the measurement.
    let mut stdout = std::io::stdout().lock();
    if json {
        for f in &outcome.figures {
            let line = serde_json::to_string(f).map_err(std::io::Error::from)?;
            let _ = writeln!(stdout, "{line}");
        }
    } else {
        let quick = if lab.quick { " (quick)" } else { "" };
        let _ = writeln!(stdout, "{}{quick}\n{}", e.title, report::table(&outcome.figures));
    }
    Ok(())
}
