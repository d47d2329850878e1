//! The `neater` command: fetch, serve and explain.
//!
//! *Responsible for* arguments, what people and programs read, files, and exit codes. *Not
//! responsible for* transports (neater's) and HTTP (neater-http's).
//!
//! *Invariants*: standard output carries what was asked for and nothing else; every failure advises
//! what to do next and ends in a documented exit code; data that came is never thrown away by a
//! failure.

#![forbid(unsafe_code)]

mod args;
mod connect;
mod descriptors;
mod explain;
mod failure;
mod folder;
mod get;
mod lab;
mod man;
mod outcomes;
mod output;
mod paths;
mod ping;
mod pm;
mod policy;
mod resolve;
mod seen;
mod serve;
mod signals;
mod why;

use args::{Cli, Command};
use clap::{CommandFactory, Parser};
use failure::{Exit, Failure};
use output::Output;
use serde_json::json;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let usage = e.use_stderr();
            if usage && wants_json() {
                Output::new(true, false).failure(&unusable(&e));
                return Exit::Usage.into();
            }
            if wants_json() {
                return as_json(&e);
            }
            let output = Output::new(false, false);
            let printed = e.print();
            if usage {
                return Exit::Usage.into();
            }
            // Help that is not read to its end is no error.
            output.keep_error(printed);
            return output.check().map_or_else(
                |f| {
                    output.failure(&f);
                    f.exit.into()
                },
                |()| ExitCode::SUCCESS,
            );
        }
    };
    let output = Output::new(cli.json, cli.verbose);
    let done = start_log(cli.log.as_deref()).and_then(|()| run(cli.command, &output));
    let done = done.and_then(|exit| output.check().map(|()| exit));
    match done {
        Ok(exit) => exit.into(),
        Err(failure) => {
            output.failure(&failure);
            failure.exit.into()
        }
    }
}

/// Whether the command line, that makes no sense, asks for objects.
fn wants_json() -> bool {
    std::env::args_os().skip(1).take_while(|a| a != "--").any(|a| a == "--json")
}

/// Help, or the version, for programs.
fn as_json(text: &clap::Error) -> ExitCode {
    let event = if text.kind() == clap::error::ErrorKind::DisplayVersion { "version" } else { "help" };
    let output = Output::new(true, false);
    output.event(&json!({"event": event, "text": text.render().to_string().trim_end()}));
    output.check().map_or_else(|f| f.exit.into(), |()| ExitCode::SUCCESS)
}

/// What is wrong with a command line, and what may be meant.
fn unusable(e: &clap::Error) -> Failure {
    use clap::error::ErrorKind as K;
    if e.kind() == K::DisplayHelpOnMissingArgumentOrSubcommand {
        return Failure::usage("a subcommand is missing").advise("`neater --help` lists them");
    }
    let text = e.render().to_string();
    let mut parts = text.split("\n\n").map(str::trim).filter(|p| !p.is_empty());
    let what = parts.next().unwrap_or_default();
    let what = what.strip_prefix("error: ").unwrap_or(what).split_whitespace().collect::<Vec<_>>().join(" ");
    parts.fold(Failure::usage(what), |f, more| f.advise(more.split_whitespace().collect::<Vec<_>>().join(" ")))
}

fn run(command: Command, output: &Output) -> Result<Exit, Failure> {
    match command {
        Command::Get(args) => on_one_thread(get::run(args, output.clone())),
        Command::Serve(args) => on_tokio(serve::run(args, output)),
        Command::Explain(args) => on_tokio(signals::unless_interrupted(explain::run(args, output))),
        Command::Paths(args) => on_tokio(signals::unless_interrupted(paths::run(args, output))),
        Command::Ping(args) => on_tokio(ping::run(args, output)),
        Command::Policy(args) => policy::run(args.command, output),
        Command::Pm(args) => pm::run(args, output),
        Command::Lab(args) => lab::run(&args, output.json),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "neater", &mut script);
            if output.json {
                let script = String::from_utf8_lossy(&script);
                output.event(&json!({"event": "completions", "shell": shell.to_string(), "script": script}));
            } else {
                output.raw(&script)?;
            }
            Ok(Exit::Ok)
        }
        Command::Man { directory } => man::run(&directory, output),
    }
}

/// Descriptors that a runtime takes for itself, and some more.
#[cfg(unix)]
const DESCRIPTORS: usize = 8;

/// Whether there are descriptors for a runtime: tokio panics where there is none for its signals.
fn enough_descriptors() -> Result<(), Failure> {
    #[cfg(unix)]
    {
        let spare: Result<Vec<_>, _> = (0..DESCRIPTORS).map(|_| std::fs::File::open("/dev/null")).collect();
        if let Err(e) = spare {
            return Err(Failure::new(Exit::Failed, "local", format!("no descriptors: {e}"))
                .advise("raise the limit on open files (ulimit -n)"));
        }
    }
    Ok(())
}

/// Threads for what waits for a disk or a terminal: more requests wait for one of them.
const BLOCKING: usize = 32;

fn on_tokio(job: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    enough_descriptors()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(BLOCKING)
        .enable_all()
        .build();
    let runtime = runtime.map_err(|e| Failure::new(Exit::Failed, "local", format!("no threads: {e}")))?;
    let done = runtime.block_on(job);
    // A read of standard input or a slow disk must not keep a command that is done from ending.
    runtime.shutdown_timeout(core::time::Duration::from_millis(200));
    done
}

/// The same on this thread alone: where bytes go from one task to the next, another thread would
/// have to be woken for each piece.
fn on_one_thread(job: impl Future<Output = Result<Exit, Failure>> + Send + 'static) -> Result<Exit, Failure> {
    enough_descriptors()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::new(Exit::Failed, "local", format!("no threads: {e}")))?;
    // As a task: each time that what is blocked on itself is woken, the runtime looks for events
    // first.
    let done = runtime.block_on(async { tokio::spawn(job).await });
    runtime.shutdown_timeout(core::time::Duration::from_millis(200));
    match done {
        Ok(done) => done,
        Err(e) => match e.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(e) => Err(Failure::new(Exit::Failed, "local", e.to_string())),
        },
    }
}

/// The library's log, on standard error: `--log` or `RUST_LOG` sets its level.
fn start_log(filter: Option<&str>) -> Result<(), Failure> {
    use tracing_subscriber::EnvFilter;
    let set = |name: &&str| std::env::var_os(name).is_some_and(|v| !v.is_empty());
    let filter = match (filter, ["NEATER_LOG", "RUST_LOG"].into_iter().find(set)) {
        (Some(text), _) => EnvFilter::try_new(text).map_err(|e| Failure::usage(format!("--log {text}: {e}")))?,
        (None, Some("NEATER_LOG")) => {
            EnvFilter::try_from_env("NEATER_LOG").map_err(|e| Failure::usage(format!("NEATER_LOG: {e}")))?
        }
        (None, Some(_)) => EnvFilter::from_default_env(),
        (None, None) => return Ok(()),
    };
    let writer = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
    writer.with_ansi(ansi).try_init().map_err(|e| Failure::usage(format!("--log: {e}")))
}
