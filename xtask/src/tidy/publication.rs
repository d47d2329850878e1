//! Crates that others could depend on have what a registry asks for, although none is published yet.
//!
//! *Responsible for* description, licence, repository, readme, keywords and categories, one version for all, and dependencies on each
//! other that state it. *Deliberately not*: whether names are free, or dependencies published. *Invariant*: `publish` is off everywhere.

use super::Finding;
use crate::workspace::{array, string};
use serde_json::Value;
use std::path::Path;

/// Where crates are that others could depend on, or install.
const ROOMS: &[&str] = &["crates/", "io/", "apps/"];
/// Those of them that are something else: the wheel is not built from a registry of Rust, and SCTP has no keywords yet.
const OTHERS: &[&str] = &["io/python"];
/// How many keywords and categories a registry takes, and how long a keyword may be.
const MOST: usize = 5;
const LONGEST: usize = 20;
/// The categories of crates.io that are used here; others are refused there.
const CATEGORIES: &[&str] = &[
    "algorithms",
    "asynchronous",
    "command-line-utilities",
    "config",
    "cryptography",
    "data-structures",
    "development-tools::ffi",
    "encoding",
    "network-programming",
    "no-std",
    "os::linux-apis",
    "parser-implementations",
    "web-programming::http-client",
    "web-programming::http-server",
];

/// Whether the crate in this folder must have what a registry asks for.
fn publishable(dir: &str) -> bool {
    ROOMS.iter().any(|room| dir.starts_with(room)) && !OTHERS.contains(&dir)
}

/// Whether the crate in this folder is packed for a release.
pub(crate) fn packed(dir: &str) -> bool {
    ROOMS.iter().any(|room| dir.starts_with(room)) && dir != "io/python"
}

/// Everything that a registry would refuse or users would miss.
///
/// # Errors
/// When a field that cargo promises is missing.
pub(crate) fn check(metadata: &Value, root: &Path, version: &str) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for package in array(metadata, "packages")? {
        let manifest = Path::new(string(package, "manifest_path")?);
        let Ok(place) = manifest.strip_prefix(root) else { continue };
        let place = place.to_string_lossy().into_owned();
        let dir = place.strip_suffix("/Cargo.toml").unwrap_or_default();
        let mut error = |message: String| findings.push(Finding::error(place.as_str(), message));
        if string(package, "version")? != version {
            error(format!("its version is not {version}, that of the workspace"));
        }
        if package.get("publish").and_then(Value::as_array).is_none_or(|registries| !registries.is_empty()) {
            error("`publish` is not off: write `publish.workspace = true`".into());
        }
        if !publishable(dir) {
            continue;
        }
        for key in ["description", "license", "repository", "readme"] {
            if package.get(key).and_then(Value::as_str).is_none_or(|text| text.trim().is_empty()) {
                error(format!("no `{key}`"));
            }
        }
        if package
            .get("readme")
            .and_then(Value::as_str)
            .is_some_and(|readme| !manifest.with_file_name(readme).is_file())
        {
            error("its `readme` is no file".into());
        }
        let words = |key: &str| -> Result<Vec<&str>, String> {
            Ok(array(package, key)?.iter().filter_map(Value::as_str).collect())
        };
        for (key, is_fine) in
            [("keywords", is_keyword as fn(&str) -> bool), ("categories", |c| CATEGORIES.contains(&c))]
        {
            let words = words(key)?;
            if words.is_empty() || words.len() > MOST {
                error(format!("{} {key}: there should be 1 to {MOST}", words.len()));
            }
            words
                .iter()
                .filter(|word| !is_fine(word))
                .for_each(|word| error(format!("`{word}` cannot be one of the {key}")));
        }
        for dep in array(package, "dependencies")? {
            let Some(path) = dep.get("path").and_then(Value::as_str) else { continue };
            let development = dep.get("kind").and_then(Value::as_str) == Some("dev");
            let ours =
                Path::new(path).strip_prefix(root).is_ok_and(|dir| ROOMS.iter().any(|room| dir.starts_with(room)));
            let wanted = string(dep, "req")?;
            if !development && ours && wanted != format!("^{version}") {
                error(format!(
                    "depends on {} {wanted}: `path` needs `version = \"{version}\"` beside it",
                    string(dep, "name")?
                ));
            }
        }
    }
    Ok(findings)
}

fn is_keyword(word: &str) -> bool {
    word.len() <= LONGEST
        && word.starts_with(|c: char| c.is_ascii_alphanumeric())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || "_-+".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What is found in a crate of `dir`, changed by `change`.
    fn found(dir: &str, change: impl Fn(&mut Value)) -> Vec<String> {
        let root = crate::workspace::root();
        let mut package = json!({
            "manifest_path": root.join(dir).join("Cargo.toml"), "version": "0.1.0", "publish": [],
            "description": "d", "license": "MIT", "repository": "r", "readme": "../../README.md",
            "keywords": ["sctp", "sans-io"], "categories": ["network-programming"],
            "dependencies": [
                { "name": "neater-base", "req": "^0.1.0", "kind": null, "path": root.join("crates/base") },
                { "name": "neater-testkit", "req": "*", "kind": "dev", "path": root.join("sim/testkit") },
                { "name": "bytes", "req": "^1", "kind": null },
            ],
        });
        change(&mut package);
        let found = check(&json!({ "packages": [package] }), &root, "0.1.0").unwrap();
        found.into_iter().map(|f| f.message).collect()
    }

    #[test]
    fn a_crate_that_a_registry_would_take_passes() {
        assert_eq!(found("crates/base", |_| {}), [""; 0]);
    }

    #[test]
    fn whatever_is_missing_or_refused_is_reported() {
        for key in ["description", "license", "repository", "readme"] {
            assert_eq!(found("crates/base", |p| p[key] = Value::Null), [format!("no `{key}`")]);
        }
        for (key, value, words) in [
            ("readme", json!("no.md"), "no file"),
            ("keywords", json!([]), "0 keywords"),
            ("keywords", json!(["a", "b", "c", "d", "e", "f"]), "6 keywords"),
            ("keywords", json!(["two words"]), "`two words` cannot"),
            ("keywords", json!(["a-word-of-more-than-20"]), "cannot"),
            ("categories", json!(["networking"]), "`networking` cannot"),
            ("version", json!("0.2.0"), "not 0.1.0"),
            ("publish", Value::Null, "not off"),
            ("publish", json!(["crates-io"]), "not off"),
        ] {
            let found = found("crates/base", |p| p[key] = value.clone());
            assert!(found.len() == 1 && found[0].contains(words), "{key} {value}: {found:?}");
        }
        let found = found("crates/base", |p| p["dependencies"][0]["req"] = json!("*"));
        assert!(found[0].contains("depends on neater-base *"), "{found:?}");
    }

    #[test]
    fn a_program_of_the_project_alone_needs_a_version_and_nothing_else() {
        let bare = |p: &mut Value| {
            for key in ["keywords", "categories"] {
                p[key] = json!([]);
            }
            p["readme"] = Value::Null;
        };
        assert_eq!(found("sim/lab", bare), [""; 0]);
        assert_eq!(found("xtask", |p| p["version"] = json!("1.0.0")).len(), 1);
    }
}
