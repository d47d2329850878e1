//! Every crate says what it is: a description, the workspace's lints, and a module doc that answers the questions a reader has.

use super::{Finding, mask};
use crate::workspace::{Files, Package};

/// Rooms whose crate docs must also say what the crate is for, what it is not for, and what always holds.
const STRICT: &[&str] = &["crates/", "io/", "sim/link", "sim/netsim"];

/// What a strict crate doc must say: any of the phrases answers the question.
const QUESTIONS: &[(&str, &[&str])] = &[
    ("what it is responsible for", &["responsible for"]),
    ("what it deliberately is not", &["not responsible", "deliberately", "does not ", "not here"]),
    ("its invariants", &["invariant"]),
];

/// Every crate that leaves something out.
pub(super) fn check(packages: &[Package], files: &Files) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        let manifest_path = format!("{}/Cargo.toml", package.dir);
        if package.description.as_deref().is_none_or(|d| d.trim().is_empty()) {
            findings
                .push(Finding::error(manifest_path.as_str(), "no `description`: say in one line what the crate is"));
        }
        if !files.get(&manifest_path).is_some_and(|manifest| takes_workspace_lints(manifest)) {
            findings.push(Finding::error(
                manifest_path,
                "no `[lints]` table with `workspace = true`: the crate escapes the house's lints",
            ));
        }
        let Some((path, text)) = package.root_file.as_ref().and_then(|path| files.get_key_value(path)) else {
            findings.push(Finding::error(package.dir.as_str(), "neither a library nor a program"));
            continue;
        };
        if !text.starts_with("//!") {
            findings.push(Finding::error(format!("{path}:1"), "the first line is not a module doc (`//! ...`)"));
            continue;
        }
        // A crate that is only a name so far has nothing to answer for.
        let empty = mask::mask(text).trim().is_empty();
        if !empty && package.is_library && STRICT.iter().any(|room| package.dir.starts_with(room)) {
            findings.extend(unanswered(path, text));
        }
    }
    findings
}

fn takes_workspace_lints(manifest: &str) -> bool {
    let mut in_lints = false;
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            in_lints = line == "[lints]";
        } else if in_lints && line.replace(' ', "") == "workspace=true"
            || line.replace(' ', "") == "lints.workspace=true"
        {
            return true;
        }
    }
    false
}

fn unanswered(path: &str, text: &str) -> Vec<Finding> {
    let doc = text.lines().map_while(|line| line.strip_prefix("//!")).collect::<Vec<_>>().join(" ").to_lowercase();
    let missing = QUESTIONS.iter().filter(|(_, phrases)| !phrases.iter().any(|phrase| doc.contains(phrase)));
    missing
        .map(|(what, phrases)| {
            Finding::error(
                format!("{path}:1"),
                format!("the crate doc does not say {what} (one of: {})", phrases.join(", ")),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "[package]\nname = \"x\"\n\n[lints]\nworkspace = true\n";
    const DOC: &str =
        "//! A thing.\n//!\n//! *Responsible for* it. *Not responsible for* that. *Invariants*: none.\n\nfn f() {}\n";

    fn run(dir: &str, description: Option<&str>, manifest: &str, root: &str) -> Vec<String> {
        let package = Package {
            dir: dir.into(),
            description: description.map(str::to_owned),
            deps: Vec::new(),
            root_file: Some(format!("{dir}/src/lib.rs")),
            is_library: true,
        };
        let files = Files::from([
            (format!("{dir}/Cargo.toml"), manifest.to_owned()),
            (format!("{dir}/src/lib.rs"), root.to_owned()),
        ]);
        check(&[package], &files).into_iter().map(|f| f.message).collect()
    }

    #[test]
    fn a_crate_that_says_everything_passes() {
        assert!(run("crates/a", Some("A thing"), MANIFEST, DOC).is_empty());
    }

    #[test]
    fn a_missing_description_doc_or_lints_table_is_reported() {
        assert!(run("crates/a", None, MANIFEST, DOC)[0].contains("description"));
        assert!(run("crates/a", Some(" "), MANIFEST, DOC)[0].contains("description"));
        assert!(run("crates/a", Some("A"), "[package]\n[lints.rust]\nworkspace = true\n", DOC)[0].contains("[lints]"));
        assert!(run("sim/lab", Some("A"), MANIFEST, "#![allow(x)]\n//! Doc.\n")[0].contains("module doc"));
    }

    #[test]
    fn a_library_of_a_strict_room_must_answer_every_question() {
        let silent = "//! A thing.\n\nfn f() {}\n";
        assert_eq!(run("crates/a", Some("A"), MANIFEST, silent).len(), QUESTIONS.len());
        assert!(run("sim/lab", Some("A"), MANIFEST, silent).is_empty());
        assert!(run("crates/a", Some("A"), MANIFEST, "//! A thing to come.\n").is_empty());
    }
}
