//! The front doors in C under the sanitizers of the compiler.
//!
//! *Responsible for* `cargo xtask sanitize`: the libraries and all their dependencies in Rust, built
//! by nightly with the address or the thread sanitizer, and the tests of both packages, whose
//! programs in C are built with the same one. For the thread sanitizer the standard library is
//! built, too: a lock that had to be waited for is taken within it, and without that every use of
//! what the lock protects would be reported.
//!
//! *Deliberately not*: an instrumented standard library for the address sanitizer, which sees its
//! memory all the same. *Invariant*: a test that fails, or a report, is a failure; no report is
//! suppressed.

use crate::workspace;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How it ends where nightly or its sanitizers are not to be had.
pub(crate) const LACKS: u8 = 77;

const TARGET: &str = "x86_64-unknown-linux-gnu";
const PACKAGES: [&str; 2] = ["libneat", "neater-c"];

/// The source of the standard library, from the folder of its libraries.
const SOURCE: &str = "../../src/rust/library/Cargo.lock";

/// A sanitizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sanitizer {
    Address,
    Thread,
}

impl Sanitizer {
    const ALL: [Self; 2] = [Self::Address, Self::Thread];

    const fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Thread => "thread",
        }
    }

    /// The file that nightly has it in.
    const fn runtime(self) -> &'static str {
        match self {
            Self::Address => "librustc-nightly_rt.asan.a",
            Self::Thread => "librustc-nightly_rt.tsan.a",
        }
    }
}

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    sanitizers: Vec<Sanitizer>,
    /// Arguments of the tests: names, `--nocapture`.
    tests: Vec<String>,
}

impl Request {
    /// Names of sanitizers, all if there is none; behind `--`, arguments of the tests.
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        let end = args.iter().position(|a| a == "--").unwrap_or(args.len());
        let (names, tests) = args.split_at(end);
        let mut sanitizers = Vec::new();
        for name in names {
            let found = Sanitizer::ALL.into_iter().find(|s| s.name() == name);
            sanitizers.push(found.ok_or_else(|| format!("sanitize takes address or thread, not `{name}`"))?);
        }
        if sanitizers.is_empty() {
            sanitizers.extend(Sanitizer::ALL);
        }
        Ok(Self { sanitizers, tests: tests.iter().skip(1).cloned().collect() })
    }
}

/// Builds and runs; the exit code.
pub(crate) fn chore(request: &Request) -> Result<u8, String> {
    let root = workspace::root();
    let Some(libraries) = libraries_of_nightly() else {
        println!("SKIP: sanitizers: no nightly toolchain for {TARGET} here (rustup toolchain install nightly)");
        return Ok(LACKS);
    };
    for sanitizer in &request.sanitizers {
        if !libraries.join(sanitizer.runtime()).is_file() {
            println!("SKIP: the {} sanitizer: this nightly has no {}", sanitizer.name(), sanitizer.runtime());
            return Ok(LACKS);
        }
        if *sanitizer == Sanitizer::Thread && !libraries.join(SOURCE).is_file() {
            println!(
                "SKIP: the thread sanitizer: no source of the standard library (rustup component add rust-src \
                 --toolchain nightly)"
            );
            return Ok(LACKS);
        }
        println!("the {} sanitizer: {}", sanitizer.name(), PACKAGES.join(", "));
        let status = tests(&root, &libraries, *sanitizer, &request.tests)?
            .status()
            .map_err(|e| format!("cargo +nightly cannot be run: {e}"))?;
        if !status.success() {
            return Err(format!("the tests under the {} sanitizer failed ({status})", sanitizer.name()));
        }
    }
    Ok(0)
}

/// Where nightly has its libraries.
fn libraries_of_nightly() -> Option<PathBuf> {
    let mut rustc = Command::new("rustc");
    rustc.args(["+nightly", "--print", "target-libdir", "--target", TARGET]).env_remove("RUSTUP_TOOLCHAIN");
    let out = rustc.stderr(Stdio::null()).output().ok().filter(|o| o.status.success())?;
    Some(PathBuf::from(String::from_utf8_lossy(&out.stdout).trim()))
}

/// With what programs in C are compiled and linked. The runtime is the compiler's own but for the
/// thread sanitizer: that of GCC before 13 lacks functions that Rust's libraries call.
fn options(libraries: &Path, folder: &Path, sanitizer: Sanitizer) -> Result<String, String> {
    let option = format!("-fsanitize={}", sanitizer.name());
    if sanitizer == Sanitizer::Address {
        return Ok(option);
    }
    let link = folder.join("libtsan.a");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(libraries.join(sanitizer.runtime()), &link)
        .map_err(|e| format!("{}: {e}", link.display()))?;
    Ok(format!("{option} -static-libtsan -L{}", folder.display()))
}

/// The tests of the front doors under a sanitizer.
fn tests(root: &Path, libraries: &Path, sanitizer: Sanitizer, arguments: &[String]) -> Result<Command, String> {
    let name = sanitizer.name();
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let folder = target.join(format!("sanitize-{name}"));
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut cargo = Command::new("cargo");
    // This chore runs under a toolchain's own cargo, which has left its name for those that follow.
    for inherited in ["RUSTUP_TOOLCHAIN", "CARGO", "RUSTC", "RUSTDOC"] {
        cargo.env_remove(inherited);
    }
    cargo.args(["+nightly", "test", "--target", TARGET, "--no-fail-fast", "--tests"]);
    if sanitizer == Sanitizer::Thread {
        cargo.arg("-Zbuild-std");
    }
    for package in PACKAGES {
        cargo.args(["-p", package]);
    }
    cargo
        .arg("--")
        .args(arguments)
        .current_dir(root)
        .env("CARGO_TARGET_DIR", &folder)
        .env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only")
        .env("RUSTFLAGS", format!("-Zsanitizer={name} -Cunsafe-allow-abi-mismatch=sanitizer"))
        .env("NEATER_SANITIZER", options(libraries, &folder, sanitizer)?)
        .env("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=0:exitcode=99")
        .env("TSAN_OPTIONS", "exitcode=99");
    Ok(cargo)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Request, String> {
        Request::parse(&args.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn sanitizers_are_chosen_by_name() {
        assert_eq!(parse(&[]).unwrap().sanitizers, Sanitizer::ALL);
        let one = parse(&["thread", "--", "careless", "--nocapture"]).unwrap();
        assert_eq!((one.sanitizers, one.tests.len()), (vec![Sanitizer::Thread], 2));
        assert!(parse(&["memory"]).is_err());
    }

    #[test]
    fn the_libraries_are_built_with_what_is_asked_for() {
        let folder = std::env::temp_dir().join(format!("neater-sanitize-{}", std::process::id()));
        let command = super::tests(&folder, Path::new("/nightly"), Sanitizer::Address, &["x".to_owned()]).unwrap();
        let flags = command.get_envs().find(|(k, _)| *k == "RUSTFLAGS").and_then(|(_, v)| v).unwrap();
        assert!(flags.to_string_lossy().starts_with("-Zsanitizer=address "));
        assert_eq!(command.get_args().last().unwrap(), "x");
        assert!(!command.get_args().any(|a| a == "-Zbuild-std"));
        let command = super::tests(&folder, Path::new("/nightly"), Sanitizer::Thread, &[]).unwrap();
        assert!(command.get_args().any(|a| a == "-Zbuild-std"));
        std::fs::create_dir_all(&folder).unwrap();
        let options = options(Path::new("/nightly"), &folder, Sanitizer::Thread).unwrap();
        assert_eq!(options, format!("-fsanitize=thread -static-libtsan -L{}", folder.display()));
        let runtime = std::fs::read_link(folder.join("libtsan.a")).unwrap();
        assert_eq!(runtime, Path::new("/nightly/librustc-nightly_rt.tsan.a"));
        let _ = std::fs::remove_dir_all(folder);
    }
}
