//! `neater pm`: the policy manager that the programs of a host share. Its state and its answers are
//! neater-policy-daemon's; here are sockets, files, the clock and the token.

#![forbid(unsafe_code)]

mod domains;
mod interfaces;
mod openapi;
mod place;
mod rest;
mod sockets;
mod source;
mod watch;

use clap::Parser;
use neater_base::WallTime;
use neater_command::Globals;
use neater_command::args::{EXITS, PmArgs};
use neater_command::failure::{Exit, Failure};
use neater_command::output::Output;
use neater_command::signals::stop_signal;
use neater_policy::manager::Report;
use neater_policy_daemon::{Daemon, Effect, Options};
use serde_json::json;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::sync::Notify;
use watch::Watch;

/// How long a client may take for a document, a frame or a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the parts of the program share. One thread runs them all, so that no lock is ever waited
/// for.
struct Shared {
    daemon: Mutex<Daemon>,
    watch: Mutex<Watch>,
    /// A file was written, or a client wants the directories read.
    look: Notify,
    output: Output,
    token: String,
    port: u16,
    /// The folder of the sockets, to which no other user writes.
    folder: std::path::PathBuf,
}

impl Shared {
    fn daemon(&self) -> MutexGuard<'_, Daemon> {
        self.daemon.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports why a client's request was refused, in verbose mode.
    fn refused(&self, what: &str, user: Option<u32>, why: &str) {
        let user = user.map_or_else(|| "a user".to_owned(), |uid| format!("user {uid}"));
        tracing::info!(target: "neater::pm", "{what}: refused {user}: {why}");
        if self.output.verbose {
            if self.output.json {
                self.output.event(&json!({"event": "refused", "socket": what, "who": user, "why": why}));
            } else {
                self.output.note(&format!("{what}: refused {user}: {why}"));
            }
        }
    }

    /// Reads the directories where they changed, or in any case, and reports faults.
    fn reload(&self, in_any_case: bool) -> Option<Report> {
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        let report = watch.load(&mut self.daemon(), in_any_case, now())?;
        for fault in &report.faults {
            if self.output.json {
                self.output.event(&json!({"event": "fault", "file": fault.file, "line": fault.line,
                    "column": fault.column, "harmless": fault.harmless, "why": fault.why}));
            } else {
                self.output.note(&fault.to_string());
            }
        }
        if report.changed && self.output.json {
            self.output.event(&json!({"event": "loaded", "profiles": report.profiles, "policies": report.policies,
                "nodes": report.nodes}));
        } else if report.changed {
            self.output.note(&format!(
                "{} profiles, {} policies and {} nodes apply to all users",
                report.profiles, report.policies, report.nodes
            ));
        }
        Some(report)
    }

    /// Does what the daemon wants done to files; failures are reported.
    fn perform(&self, effects: &[Effect]) -> Result<(), String> {
        if effects.is_empty() {
            return Ok(());
        }
        let mut failed = Ok(());
        let mut unsaved = Vec::new();
        for effect in effects {
            let (Effect::Save { file, .. } | Effect::Remove { file }) = effect;
            if unsaved.contains(file) {
                continue;
            }
            let done = self.watch.lock().unwrap_or_else(PoisonError::into_inner).perform(effect);
            let Err(e) = done else { continue };
            let what = match effect {
                Effect::Save { .. } => "it counts until the daemon ends, but was not written",
                Effect::Remove { .. } => {
                    "it counts no more until the daemon reads its file again, which was not removed"
                }
            };
            let why = format!("{what}: {}", e.message);
            self.output.note(&why);
            self.daemon().not_saved(file);
            unsaved.push(file.clone());
            failed = failed.and(Err(why));
        }
        self.reload(false);
        failed
    }
}

fn now() -> WallTime {
    WallTime(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

/// The policy manager that the programs of a host share; `neater pm` executes it.
#[derive(Parser)]
#[command(name = "neater-pm", version, after_help = EXITS, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(flatten)]
    args: PmArgs,
}

fn main() -> ExitCode {
    neater_command::main(|cli: &Cli| &cli.globals, |cli, output| run(cli.args, output))
}

fn run(args: PmArgs, output: &Output) -> Result<Exit, Failure> {
    // A thousand clients are more than many shells allow for.
    place::raise_descriptors();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::new(Exit::Failed, "local", format!("no event loop: {e}")))?;
    runtime.block_on(manage(args, output))
}

async fn manage(args: PmArgs, output: &Output) -> Result<Exit, Failure> {
    let limits = args.tables.limits()?;
    let owner = rustix::process::geteuid().as_raw();
    let stop = stop_signal(output)?;
    let options = Options { limits, owner, ready: !args.tables.bare, keeps_rules: args.tables.pib.is_some() };
    let sources = source::Sources::new(&args.source, args.source_every, args.source_ca.as_deref())?;
    let rest = if args.no_rest { None } else { Some(rest::listen(args.rest).await?) };
    let dir = place::prepare(args.sock.as_deref(), args.shared || owner == 0)?;
    let token = place::token(&dir)?;
    let rest_at = rest.as_ref().map(rest::Door::addr);
    let mut daemon = Daemon::new(options);
    for user in &args.trust_user {
        daemon.trust(place::user(user)?);
    }
    let shared = Arc::new(Shared {
        daemon: Mutex::new(daemon),
        watch: Mutex::new(Watch::new(args.tables.pib.clone(), args.tables.cib.clone())?),
        look: Notify::new(),
        output: output.clone(),
        token,
        port: rest_at.map_or(0, |at| at.port()),
        folder: dir.path.clone(),
    });
    let report = shared.reload(true);
    let unusable = report.map_or(0, |r| r.faults.iter().filter(|f| !f.harmless).count());
    if args.strict && unusable > 0 {
        let what = format!("{unusable} of the files cannot be used, and with --strict nothing begins without them");
        return Err(Failure::new(Exit::Failed, "policy", what));
    }
    let interfaces = if args.no_interfaces { None } else { Some(interfaces::begin(&shared)?) };
    let listener = match &interfaces {
        Some(_) if !args.no_pvd => domains::Listener::begin(args.pvd_ca.as_deref(), &shared)?,
        _ => None,
    };
    let doors = sockets::listen(&dir)?;
    announce(&shared, &dir, rest_at);
    for door in doors {
        tokio::spawn(sockets::accept(door, shared.clone()));
    }
    if let Some(rest) = rest {
        tokio::spawn(rest::accept(rest, shared.clone()));
    }
    if let Some(net) = interfaces {
        tokio::spawn(interfaces::follow(net, listener, shared.clone()));
    }
    sources.follow(&shared);
    tokio::spawn(watch::keep_looking(shared.clone()));
    stop.await;
    dir.remove();
    let counters = shared.daemon().counters.clone();
    if output.json {
        output.event(&json!({"event": "stopped", "decisions": counters.decisions, "cached": counters.cached}));
    } else {
        output.note(&format!("stopped: {} decisions, {} of them made before", counters.decisions, counters.cached));
    }
    Ok(Exit::Ok)
}

/// Reports the addresses of the daemon.
fn announce(shared: &Shared, dir: &place::Dir, rest_at: Option<std::net::SocketAddr>) {
    let url = rest_at.map(|at| format!("http://{at}"));
    if shared.output.json {
        shared.output.event(&json!({"event": "managing", "sockets": dir.path, "shared": dir.shared, "rest": url,
            "token_file": dir.token()}));
    } else {
        shared.output.line(&format!("sockets in {}", dir.path.display()));
        if let Some(url) = url {
            shared.output.line(&format!("REST at {url}, its token in {}", dir.token().display()));
        }
    }
}

/// A manager without anything but what comes with it, for tests.
#[cfg(test)]
fn bare(ready: bool) -> Shared {
    let limits = neater_policy::manager::Limits::default();
    let options = Options { limits, owner: 0, ready, keeps_rules: false };
    Shared {
        daemon: Mutex::new(Daemon::new(options)),
        watch: Mutex::new(Watch::new(None, None).expect("no folders")),
        look: Notify::new(),
        output: Output::new(false, false),
        token: String::new(),
        port: 0,
        folder: std::env::temp_dir(),
    }
}
