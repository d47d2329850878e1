//! What a part needs besides cargo: packages of the system, modules of Python, components of the toolchain.
//!
//! *Responsible for* finding them, installing them where that is allowed (root, or sudo without a password; Python's into
//! `target/venv`), and saying so. *Not here*: what goes without them; the part says `SKIP`.

use super::log::Log;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program, the name that a library has for pkg-config, or a header of one that has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thing {
    Program(&'static str),
    Library(&'static str),
    Header(&'static str),
}

/// A thing, the Debian package that has it, and what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Want {
    pub(super) thing: Thing,
    pub(super) package: &'static str,
    pub(super) purpose: &'static str,
}

/// A program of a package.
pub(super) const fn program(name: &'static str, package: &'static str, purpose: &'static str) -> Want {
    Want { thing: Thing::Program(name), package, purpose }
}

/// A library of a package, by its name for pkg-config.
pub(super) const fn library(name: &'static str, package: &'static str, purpose: &'static str) -> Want {
    Want { thing: Thing::Library(name), package, purpose }
}

/// A library of a package, by one of its headers.
pub(super) const fn header(name: &'static str, package: &'static str, purpose: &'static str) -> Want {
    Want { thing: Thing::Header(name), package, purpose }
}

impl Want {
    /// Whether it is here.
    pub(super) fn is_here(&self) -> bool {
        match self.thing {
            Thing::Program(name) => which(name).is_some(),
            Thing::Header(name) => Path::new("/usr/include").join(name).exists(),
            Thing::Library(name) => quiet(Command::new("pkg-config").args(["--exists", name])),
        }
    }

    const fn name(&self) -> &'static str {
        match self.thing {
            Thing::Program(name) | Thing::Library(name) | Thing::Header(name) => name,
        }
    }

    /// What goes without it, as a line that the summary counts as one skip.
    pub(super) fn skip(&self) -> String {
        let Self { package, purpose, .. } = self;
        format!("SKIP: {purpose}: no {} here, and package {package} could not be installed", self.name())
    }
}

/// Installs the packages of what is not here, all at once.
pub(super) fn install(wants: &[Want], log: &Log) {
    let mut packages: Vec<&str> = Vec::new();
    for want in wants.iter().filter(|w| !w.is_here()) {
        if matches!(want.thing, Thing::Library(_)) && which("pkg-config").is_none() {
            packages.push("pkg-config");
        }
        packages.push(want.package);
    }
    packages.sort_unstable();
    packages.dedup();
    if !packages.is_empty() {
        apt(&packages, log);
    }
}

/// Installs packages with apt-get; true if that went well.
pub(super) fn apt(packages: &[&str], log: &Log) -> bool {
    if which("apt-get").is_none() || !quiet(&mut as_root(&["true"])) {
        return false;
    }
    log.notice(&format!("installing with apt-get, because a test wants it: {}", packages.join(" ")));
    // A package that brings a server must not start it: the tests start their own, on loopback and on free ports.
    let policy = Path::new("/usr/sbin/policy-rc.d");
    let forbid = !policy.exists()
        && quiet(&mut as_root(&[
            "sh",
            "-c",
            "printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d && chmod 755 /usr/sbin/policy-rc.d",
        ]));
    let apt = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=120"];
    let install = [&apt[..], &["install", "--no-install-recommends"], packages].concat();
    let update = [&apt[..], &["update"]].concat();
    let done = log.run(&mut as_root(&install)) || (log.run(&mut as_root(&update)) && log.run(&mut as_root(&install)));
    if forbid {
        quiet(&mut as_root(&["rm", "-f", "/usr/sbin/policy-rc.d"]));
    }
    done
}

/// A virtual environment with these modules in `target/venv`: its interpreter, or a line that says what goes without it.
pub(super) fn python(root: &Path, modules: &[&str], may_install: bool, log: &Log) -> Result<PathBuf, String> {
    if which("python3").is_none() {
        return Err("SKIP: peers in Python: no python3 here".into());
    }
    let venv = root.join("target/venv");
    let python = venv.join("bin/python");
    // Without pip it is what an attempt without python3-venv left behind.
    if !quiet(Command::new(&python).args(["-m", "pip", "--version"])) {
        log.notice(&format!("making a virtual environment in target/venv for: {}", modules.join(" ")));
        let make = || log.run(Command::new("python3").args(["-m", "venv"]).arg(&venv));
        let made = make() || (may_install && apt(&["python3-venv"], log) && make());
        if !made {
            return Err("SKIP: peers in Python: no virtual environment (package python3-venv)".into());
        }
    }
    let missing: Vec<&str> = modules
        .iter()
        .filter(|m| !quiet(Command::new(&python).args(["-c", &format!("import {m}")])))
        .copied()
        .collect();
    if missing.is_empty() {
        return Ok(python);
    }
    let refused = format!("SKIP: peers in Python: {} could not be installed with pip", missing.join(" "));
    if !may_install {
        return Err(refused);
    }
    log.notice(&format!("installing with pip into target/venv, because a test wants it: {}", missing.join(" ")));
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(&missing);
    if log.run(&mut pip) { Ok(python) } else { Err(refused) }
}

/// A part of the Rust toolchain; `Err`: what goes without it.
pub(super) fn component(name: &str, program: &str, may_install: bool, log: &Log) -> Result<(), String> {
    let there = || quiet(Command::new(program).arg("--version"));
    let add = || may_install && log.run(Command::new("rustup").args(["component", "add", name]));
    if there() || (add() && there()) {
        return Ok(());
    }
    Err(format!("the toolchain has no {name} (rustup component add {name})"))
}

/// Whether a command ends well; what it prints is nobody's concern.
pub(super) fn quiet(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

/// Where a program is, on the path.
pub(super) fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// A command that is run as root, by sudo where this is not root.
fn as_root(words: &[&str]) -> Command {
    let root = fs::read_to_string("/proc/self/status")
        .is_ok_and(|text| text.lines().any(|l| l.starts_with("Uid:") && l.split_whitespace().nth(2) == Some("0")));
    let words = if root { words.to_vec() } else { [&["sudo", "-n"], words].concat() };
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_on_the_path_or_named_with_its_package() {
        assert!(program("sh", "dash", "everything").is_here());
        let none = program("no-such-program", "no-such-package", "a test");
        assert!(!none.is_here());
        assert_eq!(
            none.skip(),
            "SKIP: a test: no no-such-program here, and package no-such-package could not be installed"
        );
    }
}
