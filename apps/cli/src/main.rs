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
mod explain;
mod get;
mod lab;
mod man;
mod mptcp;
mod outcomes;
mod paths;
mod ping;
mod policy;
mod program;
mod resolve;
mod seen;
mod serve;
mod why;

use args::{Cli, Command};
use clap::CommandFactory;
use failure::{Exit, Failure};
use neater_command::{descriptors, failure, folder, output, signals};
use output::Output;
use serde_json::json;
use std::process::ExitCode;

fn main() -> ExitCode {
    neater_command::main(|cli: &Cli| &cli.globals, |cli, output| run(cli.command, output))
}

fn run(command: Command, output: &Output) -> Result<Exit, Failure> {
    match command {
        Command::Get(args) => on_one_thread(get::run(args, output.clone())),
        Command::Serve(args) => on_tokio(serve::run(args, output)),
        Command::Explain(args) => on_tokio(signals::unless_interrupted(explain::run(args, output))),
        Command::Paths(args) => on_tokio(signals::unless_interrupted(paths::run(args, output))),
        Command::Mptcp(args) => mptcp::run(&args, output),
        Command::Ping(args) => on_tokio(ping::run(args, output)),
        Command::Policy(args) => policy::run(args.command, output),
        Command::Pm(_) => {
            // They were read here for their help and their faults alone.
            program::execute("neater-pm", "pm", program::without("pm", std::env::args_os()), "apps/pm")
        }
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
