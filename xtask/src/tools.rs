//! Programs of others that chores call, which cargo installs into `target/tools`.
//!
//! *Responsible for* having them in the version that chores were written for. *Deliberately not*: what the system has by its
//! own packages.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that a crate of the same name has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
}

impl Tool {
    /// Where it is; installed first, and that printed, if it is not there.
    ///
    /// # Errors
    /// That it cannot be installed.
    pub(crate) fn get(self, root: &Path) -> Result<PathBuf, String> {
        let Self { name, version } = self;
        let folder = crate::workspace::target(root).join("tools").join(format!("{name}-{version}"));
        let program = folder.join("bin").join(name);
        if !program.is_file() {
            println!("installing {name} {version} into {} with cargo install, once", folder.display());
            let mut install = cargo(root);
            install.args(["install", "--locked", "--quiet", "--version", version, "--root"]).arg(&folder).arg(name);
            must(&mut install, &format!("installing {name}"))?;
        }
        Ok(program)
    }
}

/// Cargo, in the folder of the workspace.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    without_ours(&mut cargo).current_dir(root);
    cargo
}

/// A program that runs cargo, without what `cargo xtask` puts into the environment: build scripts that look at it (ring's)
/// would run again, and everything above them would be compiled again.
pub(crate) fn without_ours(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let theirs = name.to_str().is_some_and(|n| n.starts_with("CARGO_PKG_") || n.starts_with("CARGO_MANIFEST_"));
        if theirs || name == "CARGO" {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a command that must succeed.
///
/// # Errors
/// How it ended, or that it cannot be run.
pub(crate) fn must(command: &mut Command, what: &str) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{what} failed ({status})")),
        Err(e) => Err(format!("{what}: {} cannot be run: {e}", command.get_program().to_string_lossy())),
    }
}

/// What a command prints that must succeed.
///
/// # Errors
/// How it ended and what it printed as an error, or that it cannot be run.
pub(crate) fn output(command: &mut Command, what: &str) -> Result<String, String> {
    let out = command
        .output()
        .map_err(|e| format!("{what}: {} cannot be run: {e}", command.get_program().to_string_lossy()))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    Err(format!("{what} failed ({})\n{}", out.status, String::from_utf8_lossy(&out.stderr)))
}
