//! `cargo xtask coverage`: which lines and branches the tests of a package reach.
//!
//! *Responsible for* building with LLVM's instrumentation in a target folder of its own, running the tests, and reading what they
//! leave behind with tools that are found and not installed. *Not for* saying what a test is worth: a line that was reached may still
//! be untested.
//!
//! Branches are counted by nightly only; where there is none, lines are. Code that is there only for tests is left out.

mod lcov;
mod tools;

use crate::tidy::tested;
use crate::workspace;
use lcov::{Reached, Source};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tools::Tools;

/// The exit code for what cannot be had on this machine.
const SKIPPED: u8 = 77;
/// What is measured unless told: the packages that have promised it.
const PACKAGES: &[&str] = &["neater-sctp", "neater-sctp-wire"];
/// How much must be reached, in percent.
const GOAL: f64 = 90.0;

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    packages: Vec<String>,
    list: bool,
}

impl Request {
    /// From the arguments after `coverage`.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        let mut request = Self { packages: Vec::new(), list: false };
        for arg in args {
            match arg.as_str() {
                "--list" => request.list = true,
                flag if flag.starts_with('-') => return Err(format!("coverage has no option `{flag}`")),
                package => request.packages.push(package.to_owned()),
            }
        }
        if request.packages.is_empty() {
            request.packages = PACKAGES.iter().map(|p| (*p).to_owned()).collect();
        }
        Ok(request)
    }
}

/// Measures; the exit code: 0 when every package reaches the goal, 1 when one does not, 77 without the tools.
///
/// # Errors
/// When a test fails or a tool cannot be run.
pub(crate) fn chore(request: &Request) -> Result<u8, String> {
    let root = workspace::root();
    let tools = match Tools::find() {
        Ok(tools) => tools,
        Err(why) => {
            eprintln!("coverage: SKIPPED: {why}");
            return Ok(SKIPPED);
        }
    };
    let rooms = rooms(&root, &request.packages)?;
    let lcov = measure(&root, &tools, &request.packages)?;
    let files = workspace::text_files(&root)?;
    let mut enough = true;
    for (package, room) in request.packages.iter().zip(&rooms) {
        let sources: Vec<Source> = lcov::read(&lcov, &root, &format!("{room}/src/"))
            .into_iter()
            .filter(|(path, _)| !path.ends_with("_tests.rs"))
            .filter_map(|(path, source)| Some(source.without(&tested::test_items(files.get(&path)?)).at(path)))
            .collect();
        let total = sources.iter().map(Source::reached).fold(Reached::default(), Reached::plus);
        let lines = tested::count(&files, room);
        println!("{package}: {total}; {} lines of code, {} of tests", lines.code, lines.tests);
        let percent = if tools.branches { total.branches.percent() } else { total.lines.percent() };
        if percent < GOAL {
            println!("  too little: at least {GOAL} % are promised");
            enough = false;
        }
        for source in sources.iter().filter(|s| !s.is_all()) {
            println!("  {}: {}", source.path, source.reached());
            if request.list {
                let text = files.get(&source.path).map(String::as_str).unwrap_or_default();
                source.missed(text).for_each(|line| println!("    {line}"));
            }
        }
    }
    Ok(u8::from(!enough))
}

/// The folders of packages, relative to the root.
fn rooms(root: &Path, packages: &[String]) -> Result<Vec<String>, String> {
    let metadata = workspace::metadata(root, &["--no-deps"])?;
    let find = |name: &String| {
        let known = workspace::array(&metadata, "packages").ok()?;
        let package = known.iter().find(|p| workspace::string(p, "name").is_ok_and(|n| n == name))?;
        let manifest = Path::new(workspace::string(package, "manifest_path").ok()?);
        Some(manifest.parent()?.strip_prefix(root).ok()?.to_string_lossy().into_owned())
    };
    packages.iter().map(|name| find(name).ok_or_else(|| format!("there is no package `{name}` here"))).collect()
}

/// Builds and runs the tests; what they have reached, in the format of lcov.
fn measure(root: &Path, tools: &Tools, packages: &[String]) -> Result<String, String> {
    let folder = target(root).join("coverage");
    let raw = folder.join("raw");
    // What an earlier run has left would count as reached.
    if raw.exists() {
        std::fs::remove_dir_all(&raw).map_err(|e| format!("{}: {e}", raw.display()))?;
    }
    let cargo = |args: &[&str]| {
        let mut command = tools.cargo();
        command.args(["test", "--locked", "--tests", "--target-dir"]).arg(&folder).args(args).current_dir(root);
        packages.iter().for_each(|p| {
            command.args(["-p", p]);
        });
        command.env("LLVM_PROFILE_FILE", raw.join("%p-%m.profraw"));
        command
    };
    let programs = executables(cargo(&["--no-run", "--message-format=json-render-diagnostics"]))?;
    if !run(&mut cargo(&["-q"]))? {
        return Err("the tests fail, so what they reach says nothing".into());
    }
    let merged = folder.join("all.profdata");
    let profiles = std::fs::read_dir(&raw).map_err(|e| format!("{}: {e}", raw.display()))?;
    let profiles: Vec<PathBuf> = profiles.flatten().map(|entry| entry.path()).collect();
    if !run(Command::new(&tools.profdata).args(["merge", "-sparse", "-o"]).arg(&merged).args(profiles))? {
        return Err("llvm-profdata cannot read what the tests have written".into());
    }
    let mut command = Command::new(&tools.cov);
    command.args(["export", "-format=lcov", "-instr-profile"]).arg(&merged);
    programs.iter().for_each(|program| {
        command.arg("-object").arg(program);
    });
    let out = command.stderr(Stdio::inherit()).output().map_err(|e| format!("cannot run llvm-cov: {e}"))?;
    if !out.status.success() {
        return Err("llvm-cov cannot read what the tests have written".into());
    }
    String::from_utf8(out.stdout).map_err(|e| format!("llvm-cov does not write UTF-8: {e}"))
}

/// The folder for products.
fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// The test programs that a build has made.
fn executables(mut build: Command) -> Result<Vec<String>, String> {
    let out = build.stderr(Stdio::inherit()).output().map_err(|e| format!("cannot run cargo: {e}"))?;
    if !out.status.success() {
        return Err("the tests cannot be built with instrumentation".into());
    }
    let text = String::from_utf8_lossy(&out.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    Ok(messages.filter_map(|m| m.get("executable")?.as_str().map(str::to_owned)).collect())
}

fn run(command: &mut Command) -> Result<bool, String> {
    command.stdout(Stdio::null()).status().map(|s| s.success()).map_err(|e| format!("cannot run {command:?}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Request, String> {
        Request::parse(&args.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn packages_can_be_named_and_are_those_of_sctp_else() {
        let all: Vec<String> = PACKAGES.iter().map(|p| (*p).to_owned()).collect();
        assert_eq!(parse(&[]), Ok(Request { packages: all, list: false }));
        assert_eq!(parse(&["--list", "a", "b"]), Ok(Request { packages: vec!["a".into(), "b".into()], list: true }));
        assert!(parse(&["--fast"]).unwrap_err().contains("--fast"));
    }

    #[test]
    fn a_package_has_its_room_and_an_unknown_one_is_named() {
        let root = workspace::root();
        assert_eq!(rooms(&root, &["neater-sctp".to_owned()]), Ok(vec!["crates/sctp".to_owned()]));
        assert!(rooms(&root, &["nobody".to_owned()]).unwrap_err().contains("`nobody`"));
    }
}
