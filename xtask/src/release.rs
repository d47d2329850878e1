//! `cargo xtask release --dry-run`: whether this state could be a release, and what it would consist of.
//!
//! *Responsible for* versions, changelog, licences, what a registry asks of crates, the public interfaces (`api`), and what is given
//! away: sources, packages, bills of materials, checksums. *Deliberately not*: publishing, which is off; RELEASING.md has the steps.
//! *Invariant*: what could not be checked is printed as `SKIP`, and never as fine.

mod api;

use crate::tidy::publication;
use crate::tools::{Tool, cargo, must, output};
use crate::{debs, licences, workspace};
use api::Baseline;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const CARGO_SBOM: Tool = Tool { name: "cargo-sbom", version: "0.10.0" };
const CARGO_PUBLIC_API: Tool = Tool { name: "cargo-public-api", version: "0.52.0" };

/// The interfaces in C: the list that is kept, and the header.
const HEADERS: &[(&str, &str)] = &[
    ("io/libneat/public-api.txt", "io/libneat/include/neat.h"),
    ("io/neater-c/public-api.txt", "io/neater-c/include/neater.h"),
];
/// The interface in Rust: the list that is kept, and the crate.
const RUST: (&str, &str) = ("io/neater/public-api.txt", "neater");
/// What a bill of materials is of: the package, and the name of its file.
const BILLS: &[(&str, &str)] =
    &[("neater-cli", "neater"), ("neater-pm", "neater-pm"), ("libneat", "libneat"), ("neater-c", "libneater")];

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Check everything; quick: nothing that has to be compiled or downloaded.
    DryRun { quick: bool },
    /// Record the interfaces as those of this version.
    AcceptApi,
}

impl Request {
    /// `--dry-run [--quick]` or `--accept-api`.
    ///
    /// # Errors
    /// What is not understood, or that releases are not made here.
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["--dry-run"] => Ok(Self::DryRun { quick: false }),
            ["--dry-run", "--quick"] => Ok(Self::DryRun { quick: true }),
            ["--accept-api"] => Ok(Self::AcceptApi),
            [] => Err("nothing is published by a chore: use --dry-run, and RELEASING.md for the rest".into()),
            _ => Err(format!("release does not understand {}", args.join(" "))),
        }
    }
}

/// How a step ended.
enum Ended {
    Fine(String),
    Broken(Vec<String>),
    Skipped(String),
}

impl From<Result<Vec<String>, String>> for Ended {
    fn from(problems: Result<Vec<String>, String>) -> Self {
        match problems {
            Ok(problems) if problems.is_empty() => Self::Fine(String::new()),
            Ok(problems) => Self::Broken(problems),
            Err(why) => Self::Broken(vec![why]),
        }
    }
}

/// Checks everything, or records the interfaces; false if something is wrong.
///
/// # Errors
/// When the project cannot be read.
pub(crate) fn chore(request: Request) -> Result<bool, String> {
    let root = workspace::root();
    let version = workspace::version(&read(&root, "Cargo.toml")?)?;
    let Request::DryRun { quick } = request else { return accept(&root, &version) };
    let out = workspace::target(&root).join(format!("neater-{version}"));
    fs::create_dir_all(&out).map_err(|e| format!("{}: {e}", out.display()))?;
    let mut ended: Vec<(&str, Ended)> = Vec::new();
    let mut step = |what: &'static str, end: Ended| {
        match &end {
            Ended::Fine(words) if words.is_empty() => println!("ok     {what}"),
            Ended::Fine(words) => println!("ok     {what}: {words}"),
            Ended::Broken(problems) => {
                println!("BROKEN {what}");
                problems.iter().for_each(|problem| println!("       {problem}"));
            }
            Ended::Skipped(why) => println!("SKIP   {what}: {why}"),
        }
        ended.push((what, end));
    };
    let metadata = workspace::metadata(&root, &["--no-deps"])?;
    let findings = publication::check(&metadata, &root, &version)?;
    step("crates could be published, in one version", Ok(findings.iter().map(ToString::to_string).collect()).into());
    step("the changelog has the version", changelog(&read(&root, "CHANGELOG.md")?, &version));
    step("the version is not tagged yet", untagged(&root, &version));
    step("everything is committed", committed(&root));
    step(
        "licences, bans and sources",
        licences::chore().map(|fine| if fine { vec![] } else { vec!["see above".into()] }).into(),
    );
    for (list, header) in HEADERS {
        let now = Baseline { version: version.clone(), lines: api::of_header(&read(&root, header)?) };
        step(header, compare(&root, list, &now));
    }
    if quick {
        step("the interface in Rust", Ended::Skipped("--quick".into()));
        step("every crate can be packed", Ended::Skipped("--quick".into()));
    } else {
        let end = match rust_interface(&root, &version) {
            Ok(Some(now)) => compare(&root, RUST.0, &now),
            Ok(None) => Ended::Skipped("no nightly toolchain, which cargo-public-api needs".into()),
            Err(why) => Ended::Broken(vec![why]),
        };
        step("the interface in Rust", end);
        step("every crate can be packed", pack(&root, &metadata).map(|()| vec![]).into());
    }
    step("sources", archive(&root, &out, &version).map(|()| vec![]).into());
    step("packages of this version", packages(&root, &out)?);
    let bills = if quick { Ended::Skipped("--quick".into()) } else { bills(&root, &out).map(|()| vec![]).into() };
    step("bills of materials (CycloneDX)", bills);
    step("checksums", checksums(&out));
    let count = |is: fn(&Ended) -> bool| ended.iter().filter(|(_, end)| is(end)).count();
    let (broken, skipped) = (count(|e| matches!(e, Ended::Broken(_))), count(|e| matches!(e, Ended::Skipped(_))));
    println!("release {version}: {} steps, {broken} broken, {skipped} skipped; {}", ended.len(), out.display());
    Ok(broken == 0)
}

fn read(root: &Path, path: &str) -> Result<String, String> {
    fs::read_to_string(root.join(path)).map_err(|e| format!("{path}: {e}"))
}

/// Whether users can read what is in the version, and whether something is left that is in none.
fn changelog(text: &str, version: &str) -> Ended {
    // 0.1.0 may be called 0.1.
    let short = version.strip_suffix(".0").filter(|v| v.contains('.'));
    let named = |heading: &str| {
        let heading = heading.split_whitespace().next().unwrap_or_default();
        heading == version || Some(heading) == short
    };
    let headings: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    if !headings.iter().any(|heading| named(heading)) {
        return Ended::Broken(vec![format!("CHANGELOG.md has no heading `## {version}`")]);
    }
    let unreleased = text.split_once("\n## Unreleased\n").map_or("", |(_, rest)| rest);
    let unreleased = unreleased.split_once("\n## ").map_or(unreleased, |(own, _)| own);
    let left = unreleased.lines().filter(|line| line.starts_with("- ")).count();
    Ended::Fine(if left == 0 {
        String::new()
    } else {
        format!("{left} entries under `## Unreleased` are to be moved there")
    })
}

fn untagged(root: &Path, version: &str) -> Ended {
    let tag = format!("v{version}");
    match output(Command::new("git").args(["tag", "--list", &tag]).current_dir(root), "git tag") {
        Ok(found) if found.trim().is_empty() => Ended::Fine(String::new()),
        Ok(_) => Ended::Broken(vec![format!("{tag} is there: raise the version")]),
        Err(why) => Ended::Skipped(why),
    }
}

fn committed(root: &Path) -> Ended {
    match output(Command::new("git").args(["status", "--porcelain"]).current_dir(root), "git status") {
        Ok(changes) if changes.is_empty() => Ended::Fine(String::new()),
        Ok(changes) => Ended::Fine(format!("not yet: {} files differ", changes.lines().count())),
        Err(why) => Ended::Skipped(why),
    }
}

fn compare(root: &Path, list: &str, now: &Baseline) -> Ended {
    if !root.join(list).exists() {
        return Ended::Skipped(format!("{list} is not there: record it by --accept-api"));
    }
    match read(root, list).and_then(|text| Baseline::parse(&text)) {
        Ok(kept) => match api::objection(&kept, now) {
            None => Ended::Fine(format!("as {} has it, or with what {} may change", kept.version, now.version)),
            Some(why) => Ended::Broken(vec![format!("{list}: {why}")]),
        },
        Err(why) => Ended::Broken(vec![format!("{list}: {why}")]),
    }
}

/// The interface of the crate; `None` without the toolchain that is needed.
fn rust_interface(root: &Path, version: &str) -> Result<Option<Baseline>, String> {
    let nightly = Command::new("rustup").args(["run", "nightly", "cargo", "--version"]).output();
    if !nightly.is_ok_and(|out| out.status.success()) {
        return Ok(None);
    }
    let tool = CARGO_PUBLIC_API.get(root)?;
    let mut list = Command::new(tool);
    list.args(["public-api", "-sss", "--color", "never", "-p", RUST.1])
        .current_dir(root)
        .env_remove("CARGO")
        .env_remove("RUSTUP_TOOLCHAIN");
    let lines = output(&mut list, "cargo-public-api")?.lines().map(str::to_owned).collect();
    Ok(Some(Baseline { version: version.to_owned(), lines }))
}

/// Packs what a registry would be sent, without compiling it.
fn pack(root: &Path, metadata: &serde_json::Value) -> Result<(), String> {
    let mut command = cargo(root);
    // A lock file of each would be made from what the registry has, where nothing is published yet.
    command.args(["package", "--locked", "--no-verify", "--exclude-lockfile", "--allow-dirty", "--quiet"]);
    for package in workspace::array(metadata, "packages")? {
        let manifest = Path::new(workspace::string(package, "manifest_path")?);
        let dir = manifest.parent().and_then(|dir| dir.strip_prefix(root).ok()).map(Path::to_string_lossy);
        if dir.is_some_and(|dir| publication::packed(&dir)) {
            command.args(["-p", workspace::string(package, "name")?]);
        }
    }
    must(&mut command, "cargo package")
}

fn archive(root: &Path, out: &Path, version: &str) -> Result<(), String> {
    let file = out.join(format!("neater-{version}.tar.gz"));
    let mut git = Command::new("git");
    git.args(["archive", "--format=tar.gz", &format!("--prefix=neater-{version}/"), "-o"]).arg(&file).arg("HEAD");
    must(git.current_dir(root), "git archive")
}

/// Takes the packages for Debian, and the wheel of Python, if they are there.
fn packages(root: &Path, out: &Path) -> Result<Ended, String> {
    let wheels =
        fs::read_dir(workspace::target(root).join("wheel/dist")).into_iter().flatten().flatten().map(|e| e.path());
    let wheels: Vec<PathBuf> = wheels.filter(|p| p.extension().is_some_and(|e| e == "whl")).collect();
    let debs = debs::present(root)?;
    for file in debs.iter().chain(&wheels) {
        let to = out.join(file.file_name().unwrap_or_default());
        fs::copy(file, &to).map_err(|e| format!("{}: {e}", to.display()))?;
    }
    Ok(match (debs.len(), wheels.len()) {
        (0, _) => Ended::Skipped("none for Debian: run `cargo xtask debs --try`".into()),
        (debs, 0) => Ended::Skipped(format!("{debs} for Debian, no wheel: run `cargo xtask wheel --tests`")),
        (debs, wheels) => Ended::Fine(format!("{debs} for Debian, {wheels} for Python")),
    })
}

fn bills(root: &Path, out: &Path) -> Result<(), String> {
    let tool = CARGO_SBOM.get(root)?;
    for (package, name) in BILLS {
        let mut bill = Command::new(&tool);
        bill.args(["sbom", "--output-format", "cyclone_dx_json_1_6", "--cargo-package", package]).current_dir(root);
        let text = output(&mut bill, "cargo-sbom")?;
        serde_json::from_str::<serde_json::Value>(&text)
            .map_err(|e| format!("the bill of {package} is not JSON: {e}"))?;
        let path = out.join(format!("{name}.cdx.json"));
        fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

/// Writes `SHA256SUMS` of everything that lies there.
fn checksums(out: &Path) -> Ended {
    const NAME: &str = "SHA256SUMS";
    let list = || -> Result<String, String> {
        let files = fs::read_dir(out).map_err(|e| format!("{}: {e}", out.display()))?.flatten().map(|e| e.file_name());
        let mut files: Vec<_> = files.filter(|name| name != NAME).collect();
        files.sort();
        let sums = output(Command::new("sha256sum").arg("--").args(&files).current_dir(out), "sha256sum")?;
        fs::write(out.join(NAME), sums).map_err(|e| format!("{NAME}: {e}"))?;
        output(Command::new("sha256sum").args(["--check", "--quiet", NAME]).current_dir(out), "sha256sum --check")?;
        Ok(format!("{} files", files.len()))
    };
    list().map_or_else(|why| Ended::Broken(vec![why]), Ended::Fine)
}

/// Records the interfaces as those of this version.
fn accept(root: &Path, version: &str) -> Result<bool, String> {
    let write = |list: &str, now: &Baseline| {
        println!("{list}: {} lines", now.lines.len());
        fs::write(root.join(list), now.text()).map_err(|e| format!("{list}: {e}"))
    };
    for (list, header) in HEADERS {
        write(list, &Baseline { version: version.to_owned(), lines: api::of_header(&read(root, header)?) })?;
    }
    match rust_interface(root, version)? {
        Some(now) => write(RUST.0, &now)?,
        None => println!("SKIP: {}: no nightly toolchain, which cargo-public-api needs", RUST.0),
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_understood_is_named_and_nothing_is_published() {
        let parse = |s: &str| Request::parse(&s.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(parse("--dry-run"), Ok(Request::DryRun { quick: false }));
        assert_eq!(parse("--dry-run --quick"), Ok(Request::DryRun { quick: true }));
        assert_eq!(parse("--accept-api"), Ok(Request::AcceptApi));
        assert!(parse("").unwrap_err().contains("RELEASING.md"));
        assert!(parse("--publish").unwrap_err().contains("--publish"));
    }

    #[test]
    fn the_changelog_names_the_version_and_what_is_left_over_is_counted() {
        let text = "# C\n\n## Unreleased\n\n### Added\n- a\n- b\n\n## 0.1\n\n- c\n";
        assert!(matches!(changelog(text, "0.1.0"), Ended::Fine(words) if words.starts_with("2 entries")));
        assert!(matches!(changelog(text, "0.1.1"), Ended::Broken(_)));
        let text = "# C\n\n## 0.2.1 (2026-01-01)\n- c\n";
        assert!(matches!(changelog(text, "0.2.1"), Ended::Fine(words) if words.is_empty()));
    }

    #[test]
    fn the_headers_are_what_their_lists_record() {
        let root = workspace::root();
        let version = workspace::version(&read(&root, "Cargo.toml").unwrap()).unwrap();
        for (list, header) in HEADERS {
            let lines = api::of_header(&read(&root, header).unwrap());
            let now = Baseline { version: version.clone(), lines };
            let kept = Baseline::parse(&read(&root, list).unwrap()).unwrap();
            assert_eq!(api::objection(&kept, &now), None, "cargo xtask release --accept-api");
        }
    }
}
