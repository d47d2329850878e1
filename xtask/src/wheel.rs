//! The wheel of the Python package: built, installed where nothing else is, and its quick start run there.
//!
//! *Responsible for* `cargo xtask wheel`: maturin from pip in a virtual environment of its own, a fresh environment for the wheel,
//! the quick start of docs/python.md, and the tests of io/python. With `--quick` the extension is cargo's own, not optimised and
//! not packed, so that `./test` builds nothing twice.
//!
//! *Deliberately not*: publishing. *Invariant*: what is tested is what was installed, never the folder of the sources.

use crate::tools::must;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How `wheel` ends where there is no Python, or pip may not or cannot install.
pub(crate) const LACKS: u8 = 77;

/// What the tests import.
const TESTED_WITH: &[&str] = &[
    "pytest",
    "mypy",
    "typing_extensions",
    "pandas",
    "pandas-stubs",
    "matplotlib",
    "nbclient",
    "nbformat",
    "ipykernel",
    "httpx",
    "trustme",
];
/// What the quick form of them imports.
const QUICK_WITH: &[&str] = &["pytest", "mypy", "typing_extensions"];

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// Unoptimised, not packed, and the tests that are not marked `slow`.
    quick: bool,
    /// All tests, and the types.
    tests: bool,
}

impl Request {
    /// `--quick` or `--tests`, or nothing.
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        match args {
            [] => Ok(Self::default()),
            [flag] if flag == "--quick" => Ok(Self { quick: true, tests: true }),
            [flag] if flag == "--tests" => Ok(Self { quick: false, tests: true }),
            other => Err(format!("wheel takes --quick or --tests, not `{}`", other.join(" "))),
        }
    }
}

/// Builds, installs and tries it; the exit code.
pub(crate) fn chore(request: &Request) -> Result<u8, String> {
    let root = crate::workspace::root();
    if !runs(Command::new("python3").args(["-c", "import sys; sys.exit(sys.version_info < (3, 11))"])) {
        println!("SKIP: the Python package: no python3 of version 3.11 or later here");
        return Ok(LACKS);
    }
    let folder = crate::workspace::target(&root).join("wheel");
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    // Fresh every time: what an earlier one left does not count.
    let python = match environment(
        &folder.join("fresh"),
        if request.quick {
            QUICK_WITH
        } else if request.tests {
            TESTED_WITH
        } else {
            &[]
        },
        true,
    ) {
        Ok(python) => python,
        Err(why) => {
            println!("SKIP: the Python package: {why}");
            return Ok(LACKS);
        }
    };
    if request.quick {
        install_unpacked(&root, &python)?;
    } else {
        let wheel = packed(&root, &folder)?;
        println!("{} ({:.1} MB)", wheel.display(), fs::metadata(&wheel).map_or(0, |m| m.len()) as f64 / 1e6);
        must(pip(&python).arg("--no-deps").arg(&wheel), "installing the wheel")?;
    }
    let script = folder.join("quick_start.py");
    let text = fs::read_to_string(root.join("docs/python.md")).map_err(|e| format!("docs/python.md: {e}"))?;
    let code =
        quick_start(&text).ok_or("docs/python.md has no quick start: a block of python behind `## Quick start`")?;
    fs::write(&script, code).map_err(|e| format!("{}: {e}", script.display()))?;
    // Not in the sources' folder, and not with its path: what is imported is what was installed.
    must(Command::new(&python).args(["-I", "-W", "error"]).arg(&script).current_dir(&folder), "the quick start")?;
    if !request.tests {
        return Ok(0);
    }
    let tests = root.join("io/python/tests");
    let mut pytest = Command::new(&python);
    pytest
        .args(["-m", "pytest", "-p", "no:cacheprovider", "--durations=5"])
        .arg("-c")
        .arg(root.join("io/python/pyproject.toml"));
    if request.quick {
        pytest.args(["-m", "not slow"]);
    }
    must(pytest.arg(tests).current_dir(&folder), "the tests of io/python")?;
    Ok(0)
}

/// The first block of Python behind the heading.
fn quick_start(text: &str) -> Option<&str> {
    let behind = text.split_once("\n## Quick start\n")?.1.split_once("```python\n")?.1;
    Some(behind.split_once("\n```")?.0)
}

fn runs(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

fn pip(python: &Path) -> Command {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    pip
}

/// A virtual environment with these packages; made again if `fresh`.
fn environment(at: &Path, packages: &[&str], fresh: bool) -> Result<PathBuf, String> {
    let python = at.join("bin/python");
    if fresh && at.exists() {
        fs::remove_dir_all(at).map_err(|e| format!("{}: {e}", at.display()))?;
    }
    if !python.exists() {
        must(Command::new("python3").args(["-m", "venv"]).arg(at), "a virtual environment (package python3-venv)")?;
    }
    if !packages.is_empty() {
        must(pip(&python).args(packages), "installing with pip")?;
    }
    Ok(python)
}

/// Has maturin build the wheel, optimised.
fn packed(root: &Path, folder: &Path) -> Result<PathBuf, String> {
    let python = environment(&folder.join("build"), &["maturin>=1.9.4,<2"], false)?;
    let out = folder.join("dist");
    if out.exists() {
        fs::remove_dir_all(&out).map_err(|e| format!("{}: {e}", out.display()))?;
    }
    let manifest = root.join("io/python/Cargo.toml");
    let mut maturin = Command::new(python);
    maturin
        .args(["-m", "maturin", "build", "--release", "--locked", "--manifest-path"])
        .arg(manifest)
        .arg("--out")
        .arg(&out);
    must(crate::tools::without_ours(&mut maturin), "maturin")?;
    let wheels = fs::read_dir(&out).map_err(|e| format!("{}: {e}", out.display()))?;
    let mut wheels = wheels.flatten().map(|e| e.path()).filter(|p| p.extension() == Some(OsStr::new("whl")));
    wheels.next().ok_or_else(|| format!("maturin has left no wheel in {}", out.display()))
}

/// Puts the package, with the extension that cargo builds for all parts of `./test`, where the interpreter finds it.
fn install_unpacked(root: &Path, python: &Path) -> Result<(), String> {
    // With the features of all tests, so that nothing but this crate is built for it.
    let features = ["build", "--lib", "--workspace", "--features", "neater/hyper", "--locked"];
    must(crate::tools::cargo(root).args(features), "cargo build")?;
    let asked = Command::new(python).args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).output();
    let packages = asked.map_err(|e| format!("{}: {e}", python.display()))?.stdout;
    let into = PathBuf::from(String::from_utf8_lossy(&packages).trim()).join("neater");
    copy(&root.join("io/python/python/neater"), &into).map_err(|e| format!("{}: {e}", into.display()))?;
    let built = crate::workspace::target(root).join("debug/lib_neater.so");
    fs::copy(&built, into.join("_neater.abi3.so")).map_err(|e| format!("{}: {e}", built.display()))?;
    Ok(())
}

/// Copies the files of a folder, but for what was built.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let (path, name) = entry.map(|e| (e.path(), e.file_name()))?;
        if path.is_dir() && name != "__pycache__" {
            copy(&path, &to.join(name))?;
        } else if path.is_file() && path.extension() != Some(OsStr::new("so")) {
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_start_is_the_first_block_behind_its_heading() {
        let text = "# A\n```python\nno\n```\n## Quick start\nwords\n```python\nimport neater\nneater.x()\n```\n```python\nno\n```\n";
        assert_eq!(quick_start(text), Some("import neater\nneater.x()"));
        assert_eq!(quick_start("# A\n```python\nno\n```\n"), None);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let parse = |s: &str| Request::parse(&s.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(parse(""), Ok(Request { quick: false, tests: false }));
        assert_eq!(parse("--quick"), Ok(Request { quick: true, tests: true }));
        assert!(parse("--fast").is_err_and(|e| e.contains("--fast")));
    }
}
