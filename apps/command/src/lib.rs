//! What the `neater` command and the programs that it executes have in common.
//!
//! *Responsible for* the arguments that several of them read, what people and programs read, exit
//! codes, and the small things that need the system: files that are read whole, folders of
//! policies, names, signals. *Not responsible for* any subcommand.
//!
//! *Invariants*: every failure advises what to do next and ends in a documented exit code; standard
//! output carries what was asked for and nothing else.

#![forbid(unsafe_code)]

pub mod args;
pub mod descriptors;
pub mod failure;
pub mod file;
pub mod folder;
pub mod output;
pub mod resolve;
pub mod signals;

pub use args::Globals;

use clap::Parser;
use failure::{Exit, Failure};
use neater_base::net::{Interface, Net};
use neater_net::OsNet;
use output::Output;
use serde_json::json;
use std::process::ExitCode;

/// Reads the command line, starts the log, does the job, and reports its failure.
pub fn main<C: Parser>(
    globals: impl FnOnce(&C) -> &Globals,
    run: impl FnOnce(C, &Output) -> Result<Exit, Failure>,
) -> ExitCode {
    let cli = match C::try_parse() {
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
    let given = globals(&cli);
    let output = Output::new(given.json, given.verbose);
    let done = start_log(given.log.as_deref()).and_then(|()| run(cli, &output));
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

/// The interfaces of this host as they are now.
///
/// # Errors
/// The system does not report them.
pub fn interfaces() -> Result<Vec<Interface>, Failure> {
    let net =
        OsNet::new().map_err(|e| Failure::new(Exit::Failed, "local", format!("the interfaces of this host: {e}")))?;
    Ok(net.interfaces().to_vec())
}
