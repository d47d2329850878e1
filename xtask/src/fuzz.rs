//! `cargo xtask fuzz`: drives the targets of `fuzz/harness` with the best tools that this machine has.
//!
//! With a nightly toolchain and cargo-fuzz that is libFuzzer, which is led by coverage; without them the harness's own
//! driver, which mutates blindly but needs nothing. The targets are the same functions.

use crate::workspace;
use std::path::Path;
use std::process::{Command, Stdio};

/// How long each target runs unless told, in seconds.
const DEFAULT_SECONDS: u64 = 10;

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    target: Option<String>,
    seconds: u64,
    list: bool,
}

impl Request {
    /// From the arguments after `fuzz`.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        let mut request = Self { target: None, seconds: DEFAULT_SECONDS, list: false };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--list" => request.list = true,
                "--seconds" => {
                    let n = args.next().ok_or("--seconds needs a number")?;
                    request.seconds = n.parse().map_err(|_| format!("--seconds: `{n}` is not a number"))?;
                }
                flag if flag.starts_with('-') => return Err(format!("fuzz has no option `{flag}`")),
                name if request.target.is_none() => request.target = Some(name.to_owned()),
                name => return Err(format!("one target at a time; `{name}` is too many")),
            }
        }
        Ok(request)
    }
}

/// Fuzzes; false if a target failed.
///
/// # Errors
/// When a tool cannot be run.
pub(crate) fn chore(request: &Request) -> Result<bool, String> {
    let root = workspace::root();
    if request.list {
        return harness(&root, &["list".to_owned()]);
    }
    let seconds = request.seconds.to_string();
    if !has_cargo_fuzz(&root) {
        eprintln!(
            "fuzz: no nightly toolchain with cargo-fuzz here; driving the same targets on stable, without coverage"
        );
        let mut args = vec!["run".to_owned(), "--seconds".to_owned(), seconds];
        args.extend(request.target.clone());
        return harness(&root, &args);
    }
    let mut targets = targets(&root)?;
    if let Some(wanted) = &request.target {
        targets.retain(|t| t == wanted);
        if targets.is_empty() {
            return Err(format!("no fuzz target is called `{wanted}`; `cargo xtask fuzz --list` names them"));
        }
    }
    let mut clean = true;
    for target in &targets {
        // The corpus is a product (libFuzzer adds to it); it starts from the inputs that the harness knows.
        if !harness(&root, &["seeds".to_owned(), format!("fuzz/corpus/{target}"), target.clone()])? {
            return Ok(false);
        }
        let args = [
            "+nightly",
            "fuzz",
            "run",
            target,
            "--",
            &format!("-max_total_time={seconds}"),
            "-timeout=10",
            "-rss_limit_mb=2048",
        ];
        clean &= run(Command::new("cargo").args(args).env_remove("CARGO").current_dir(&root))?;
    }
    Ok(clean)
}

fn has_cargo_fuzz(root: &Path) -> bool {
    let mut probe = Command::new("cargo");
    probe.args(["+nightly", "fuzz", "--version"]).current_dir(root).stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

fn harness_command(root: &Path, args: &[String]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["run", "-q", "--locked", "-p", "neater-fuzz", "--"]).args(args).current_dir(root);
    command
}

fn harness(root: &Path, args: &[String]) -> Result<bool, String> {
    run(&mut harness_command(root, args))
}

fn targets(root: &Path) -> Result<Vec<String>, String> {
    let out = harness_command(root, &["list".to_owned()]).stderr(Stdio::inherit()).output();
    let out = out.map_err(|e| format!("cannot run cargo: {e}"))?;
    let text = String::from_utf8_lossy(&out.stdout);
    Ok(text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

fn run(command: &mut Command) -> Result<bool, String> {
    command.status().map(|status| status.success()).map_err(|e| format!("cannot run {command:?}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Request, String> {
        Request::parse(&args.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_target_and_a_time_can_be_given_in_any_order() {
        let wanted = Request { target: Some("dns_hosts".into()), seconds: 3, list: false };
        assert_eq!(parse(&["dns_hosts", "--seconds", "3"]), Ok(wanted.clone()));
        assert_eq!(parse(&["--seconds", "3", "dns_hosts"]), Ok(wanted));
        assert_eq!(parse(&[]), Ok(Request { target: None, seconds: DEFAULT_SECONDS, list: false }));
    }

    #[test]
    fn wrong_arguments_are_explained() {
        assert!(parse(&["--seconds"]).unwrap_err().contains("needs a number"));
        assert!(parse(&["--seconds", "x"]).unwrap_err().contains("not a number"));
        assert!(parse(&["a", "b"]).unwrap_err().contains("too many"));
        assert!(parse(&["--fast"]).unwrap_err().contains("--fast"));
    }
}
