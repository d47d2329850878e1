//! The programs that cargo builds for the tests, and running them side by side.
//!
//! *Responsible for* the one build that the parts share, several test programs at a time, each with a limit of time, and
//! a second try, alone, of what failed. *Not here*: which programs a part runs, and what its output counts for.
//!
//! *Invariants*: a program runs in its package's folder with the environment that `cargo test` gives it; the output of one
//! program stands in one piece.

use super::log::Log;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Cargo builds a crate once for each set of features, and which set it is follows from the packages and features of a
/// command. So everything is built by one command, and the parts run what it has built.
pub(super) const EVERYTHING: &[&str] = &["--workspace", "--features", "neater/hyper", "--locked"];

/// A test program that takes longer than this hangs.
const LIMIT: Duration = Duration::from_secs(600);
/// Between two looks at the programs that run.
const LOOK: Duration = Duration::from_millis(20);
/// So many failed tests are run again, alone, and no more: of more than a handful the machine is not the cause.
const AGAIN: usize = 4;

/// A program that was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// The package that it is of.
    pub(super) package: String,
    /// The package's folder.
    pub(super) folder: PathBuf,
    /// Its target: a name of a file in `tests`, or of the package's library or program.
    pub(super) target: String,
    /// Whether it is a test program.
    pub(super) test: bool,
    /// Whether it is an example.
    pub(super) example: bool,
    /// Where it is.
    pub(super) path: PathBuf,
}

impl Program {
    /// The name in logs.
    pub(super) fn name(&self) -> String {
        format!("{} {}", self.package, self.target)
    }

    /// A command that runs it as `cargo test` does.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command.env("CARGO_PKG_NAME", &self.package).env("CARGO", cargo_path());
        command
    }
}

fn cargo_path() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Cargo, as it was found.
pub(super) fn cargo() -> Command {
    crate::tools::cargo(&crate::workspace::root())
}

/// Builds with these arguments of cargo; the programs that were built, or were there and are still good.
pub(super) fn build(args: &[&str], root: &Path, log: &Log) -> Option<Vec<Program>> {
    log.line(&format!("cargo {}", args.join(" ")));
    let mut command = cargo();
    command.args(args).arg("--message-format=json-render-diagnostics").current_dir(root);
    let messages = log.output(&mut command)?;
    Some(messages.lines().filter_map(program).collect())
}

/// The program that a message of cargo is about, if it is about one.
fn program(message: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(message).ok()?;
    let path = PathBuf::from(message["executable"].as_str()?);
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    // path+file:///x/io/neater#0.1.0 or path+file:///x/apps/cli#neater-cli@0.1.0
    let id = message["package_id"].as_str()?;
    let (url, version) = id.rsplit_once('#')?;
    let named = version.split_once('@').map(|(name, _)| name).or_else(|| url.rsplit('/').next());
    let kinds = message["target"]["kind"].as_array()?;
    Some(Program {
        package: named?.to_owned(),
        folder,
        target: message["target"]["name"].as_str()?.to_owned(),
        test: message["profile"]["test"].as_bool()?,
        example: kinds.iter().any(|k| k == "example"),
        path,
    })
}

/// A run of a test program.
#[derive(Clone, Debug)]
pub(super) struct Job<'a> {
    pub(super) program: &'a Program,
    /// After the program's name.
    pub(super) args: Vec<String>,
    /// Besides cargo's.
    pub(super) env: Vec<(&'static str, String)>,
}

impl<'a> Job<'a> {
    /// All tests of a program, with what those print that pass: why they skipped themselves, say.
    pub(super) fn all(program: &'a Program) -> Self {
        Self { program, args: vec!["--show-output".into()], env: Vec::new() }
    }

    /// As this one, with a variable in its environment.
    pub(super) fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.env.push((name, value.to_string()));
        self
    }

    /// As this one, for the tests whose names contain this.
    pub(super) fn only(mut self, text: &str) -> Self {
        self.args.push(text.into());
        self
    }
}

struct Running<'a> {
    job: &'a Job<'a>,
    child: Child,
    output: PathBuf,
    began: Instant,
}

/// Runs these jobs, so many at once, in the order given. True if all pass, where a handful of failures may be passed alone.
pub(super) fn run(jobs: &[Job<'_>], at_once: usize, scratch: &Path, log: &Log) -> bool {
    let _ = fs::create_dir_all(scratch);
    let mut waiting = jobs.iter().enumerate();
    let mut running: Vec<Running<'_>> = Vec::new();
    let mut failed: Vec<(&Job<'_>, String)> = Vec::new();
    let mut took: BTreeMap<String, f64> = BTreeMap::new();
    loop {
        while running.len() < at_once {
            let Some((i, job)) = waiting.next() else { break };
            let output = scratch.join(format!("{i}.log"));
            match start(job, &output) {
                Ok(child) => running.push(Running { job, child, output, began: Instant::now() }),
                Err(e) => {
                    log.line(&format!("error: {} cannot be run: {e}", job.program.path.display()));
                    failed.push((job, String::new()));
                }
            }
        }
        if running.is_empty() {
            break;
        }
        let mut i = 0;
        while i < running.len() {
            let hangs = running[i].began.elapsed() > LIMIT;
            if hangs {
                let _ = running[i].child.kill();
            }
            match running[i].child.try_wait() {
                Ok(None) if !hangs => i += 1,
                ended => {
                    let mut done = running.swap_remove(i);
                    let status = ended.ok().flatten().or_else(|| done.child.wait().ok());
                    let text = fs::read(&done.output).map(|b| String::from_utf8_lossy(&b).into_owned());
                    let text = text.unwrap_or_default();
                    let seconds = done.began.elapsed().as_secs_f64();
                    took.insert(format!("{} {}", done.job.program.name(), done.job.args[1..].join(" ")), seconds);
                    log.line(&format!("     Running {} ({seconds:.1} s)\n{text}", done.job.program.name()));
                    if !status.is_some_and(|s| s.success()) {
                        let how = match status {
                            _ if hangs => format!("hangs: it was ended after {} s", LIMIT.as_secs()),
                            Some(status) => format!("ended with {status}"),
                            None => "ended, and its status is lost".into(),
                        };
                        log.line(&format!("error: {} {how}", done.job.program.name()));
                        failed.push((done.job, text));
                    }
                }
            }
        }
        std::thread::sleep(LOOK);
    }
    let mut slowest: Vec<_> = took.into_iter().collect();
    slowest.sort_by(|a, b| b.1.total_cmp(&a.1));
    for (name, seconds) in slowest.iter().take(12) {
        log.line(&format!("slow: {seconds:6.1} s {name}"));
    }
    failed.is_empty() || again(&failed, log)
}

fn start(job: &Job<'_>, output: &Path) -> std::io::Result<Child> {
    let file = File::create(output)?;
    let mut command = job.program.command();
    command.args(&job.args).envs(job.env.iter().map(|(name, value)| (*name, value.as_str())));
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn()
}

/// Runs the tests that failed once more, alone: a machine that stood still for a second is told apart from a defect, and
/// the test named in the summary, since the next one to meet it is a user.
fn again(failed: &[(&Job<'_>, String)], log: &Log) -> bool {
    let tests: Vec<(&Job<'_>, Vec<String>)> = failed.iter().map(|(job, text)| (*job, failed_tests(text))).collect();
    let all: usize = tests.iter().map(|(_, names)| names.len()).sum();
    // A program that ended without naming a test was killed, or does not start: that is no accident.
    if all > AGAIN || tests.iter().any(|(_, names)| names.is_empty()) {
        return false;
    }
    for (job, names) in &tests {
        log.line(&format!("== again, alone: {}: {}", job.program.name(), names.join(" ")));
        let mut command = job.program.command();
        command.envs(job.env.iter().map(|(name, value)| (*name, value.as_str())));
        let Ok(out) = command.args(["--exact", "--test-threads=1"]).args(names).output() else { return false };
        let text = String::from_utf8_lossy(&out.stdout).replace("test result:", "again:");
        log.line(&format!("{text}{}", String::from_utf8_lossy(&out.stderr)));
        if !out.status.success() {
            return false;
        }
    }
    let names: Vec<&str> = tests.iter().flat_map(|(_, names)| names.iter().map(String::as_str)).collect();
    log.line(&format!("FLAKY: {}", names.join(" ")));
    true
}

/// The tests that failed, by what a test program prints.
fn failed_tests(text: &str) -> Vec<String> {
    let name = |l: &str| l.strip_prefix("test ")?.strip_suffix(" ... FAILED").map(str::to_owned);
    let mut names: Vec<String> =
        text.lines().filter_map(name).map(|n| n.trim_end_matches(" - should panic").to_owned()).collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_read_from_a_message_of_cargo() {
        let text = r#"{"reason":"compiler-artifact","package_id":"path+file:///x/apps/cli#neater-cli@0.1.0",
            "manifest_path":"/x/apps/cli/Cargo.toml","target":{"kind":["test"],"name":"get"},
            "profile":{"test":true},"executable":"/x/target/debug/deps/get-1"}"#;
        let got = program(&text.replace('\n', " ")).expect("a program");
        assert_eq!((got.name().as_str(), got.test, got.example), ("neater-cli get", true, false));
        assert_eq!(got.folder, Path::new("/x/apps/cli"));
        let unnamed = text.replace("apps/cli#neater-cli@0.1.0", "io/neater#0.1.0").replace('\n', " ");
        assert_eq!(program(&unnamed).map(|p| p.package).as_deref(), Some("neater"));
        assert_eq!(program(r#"{"reason":"build-finished","success":true}"#), None);
        assert_eq!(program("warning: not JSON"), None);
    }

    #[test]
    fn failed_tests_are_named_once() {
        let text = "test a::b ... ok\ntest a::c ... FAILED\ntest d - should panic ... FAILED\n    a::c\ntest a::c ... FAILED\n";
        assert_eq!(failed_tests(text), ["a::c", "d"]);
    }

    #[test]
    fn a_failure_counts_unless_the_test_passes_alone() {
        let scratch = std::env::temp_dir().join(format!("neater-xtask-{}", std::process::id()));
        let _ = fs::create_dir_all(&scratch);
        let log = Log::begin(&scratch, "log", false).expect("a log");
        let sh = |text: &str| {
            let path = scratch.join("program");
            fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a file");
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(&path, mode).expect("a mode");
            let name = || "x".to_owned();
            let folder = scratch.clone();
            let program = Program { package: name(), folder, target: name(), test: true, example: false, path };
            run(&[Job::all(&program), Job::all(&program)], 2, &scratch, &log)
        };
        assert!(sh("echo test a ... ok"));
        assert!(!sh("echo test a ... FAILED; exit 1"));
        assert!(!sh("exit 1"), "without a test that failed it is not run again");
        assert!(sh("case $1 in --exact) ;; *) echo test a ... FAILED; exit 1 ;; esac"));
        assert!(log.text().contains("FLAKY: a a\n"), "{}", log.text());
        drop(log);
        let _ = fs::remove_dir_all(scratch);
    }
}
