//! `cargo xtask tidy`: the rules of the house that no compiler checks.
//!
//! *Responsible for* collecting what the rules look at, running all of them, and one line per finding. Each rule lives in
//! its own module, takes data and returns [`Finding`]s. *Deliberately not*: mending anything, or matters of taste.

mod arrows;
mod clippy_ban;
mod crates;
mod language;
mod leftovers;
mod length;
mod links;
mod mask;
pub(crate) mod publication;
mod records;
mod subjects;
pub(crate) mod tested;
mod unsafety;
mod walls;

use crate::workspace;
use core::fmt;

/// Whether a finding fails the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// Worth a look.
    Warning,
    /// Must be mended.
    Error,
}

/// One place where a rule does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    severity: Severity,
    /// The file or folder, and the line where there is one.
    place: String,
    message: String,
}

impl Finding {
    fn error(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, place: place.into(), message: message.into() }
    }

    fn warning(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, place: place.into(), message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.severity == Severity::Error { "error" } else { "warning" };
        write!(f, "{word}: {}: {}", self.place, self.message)
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Check every rule.
    Check,
    /// Print how far the engine is one object, and how far the project has one language.
    Figures {
        /// As one line of JSON.
        json: bool,
    },
}

impl Request {
    /// Understands the arguments.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [] => Ok(Self::Check),
            ["--figures"] => Ok(Self::Figures { json: false }),
            ["--figures", "--json"] => Ok(Self::Figures { json: true }),
            _ => Err(format!("tidy does not understand {}", args.join(" "))),
        }
    }
}

/// Does what is asked for; false if a rule is broken.
///
/// # Errors
/// When the project cannot be read.
pub(crate) fn chore(request: Request) -> Result<bool, String> {
    match request {
        Request::Check => check(),
        Request::Figures { json } => walls::print(json),
    }
}

/// Runs every rule; false if one is broken.
///
/// # Errors
/// When the project cannot be read.
fn check() -> Result<bool, String> {
    let root = workspace::root();
    // Without `--locked`, but also without dependencies: the lock file is neither needed nor touched.
    let metadata = workspace::metadata(&root, &["--no-deps"])?;
    let packages = workspace::members(&metadata, &root)?;
    let files = workspace::text_files(&root)?;

    let subjects = workspace::subjects(&root, subjects::SINCE);
    let version = workspace::version(files.get("Cargo.toml").map_or("", String::as_str))?;

    let rules: [(&str, Vec<Finding>); 12] = [
        ("arrows between the rooms", arrows::check(&packages)),
        ("unsafe only where the system is met", unsafety::check(&files)),
        ("length of files and functions", length::check(&files)),
        ("tests no shorter than what they test", tested::check(&files)),
        ("engine and language keep within their walls", walls::check(&files)),
        ("commits have short subjects", subjects::check(&subjects)),
        ("nothing left over", leftovers::check(&files)),
        ("crates say what they are", crates::check(&packages, &files)),
        ("crates could be published", publication::check(&metadata, &root, &version)?),
        ("the sans-IO ban covers its rooms", clippy_ban::check(&packages, &files)),
        ("decision records are in their index", records::check(&files)),
        ("links lead somewhere", links::check(&files, |path| root.join(path).exists())),
    ];

    let mut clean = true;
    let (mut errors, mut warnings) = (0, 0);
    for (name, findings) in &rules {
        let broken = findings.iter().filter(|f| f.severity == Severity::Error).count();
        errors += broken;
        warnings += findings.len() - broken;
        clean &= broken == 0;
        println!("{} {name}", if broken == 0 { "ok    " } else { "BROKEN" });
        for finding in findings {
            println!("       {finding}");
        }
    }
    println!("tidy: {} files, {errors} errors, {warnings} warnings", files.len());
    Ok(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_asked_for_with_or_without_json() {
        let parse = |args: &[&str]| Request::parse(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>());
        assert_eq!(parse(&[]), Ok(Request::Check));
        assert_eq!(parse(&["--figures"]), Ok(Request::Figures { json: false }));
        assert_eq!(parse(&["--figures", "--json"]), Ok(Request::Figures { json: true }));
        assert!(parse(&["--json"]).is_err());
    }

    #[test]
    fn a_finding_prints_as_one_line_that_an_editor_can_follow() {
        assert_eq!(Finding::error("a/b.rs:3", "too long").to_string(), "error: a/b.rs:3: too long");
        assert_eq!(Finding::warning("a", "hm").to_string(), "warning: a: hm");
    }
}
