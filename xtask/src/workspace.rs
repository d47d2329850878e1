//! What `cargo metadata` and the file tree say, as plain data that the rules take.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Files above this size are data, not text that a rule reads.
const LARGEST_TEXT: u64 = 2 << 20;

/// Directories that hold products, not sources.
const SKIPPED: &[&str] = &["target", ".git", "out", "node_modules", "__pycache__", "corpus", "artifacts", ".venv"];

/// For which purpose a package depends on another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Linked into the product, or run to build it.
    Normal,
    /// Only for tests, examples and benchmarks.
    Dev,
}

/// A dependency of one workspace member on another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dep {
    /// The folder of the package depended on, relative to the root: its room.
    pub(crate) dir: String,
    /// What for.
    pub(crate) kind: Kind,
}

/// A workspace member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Package {
    /// Its folder, relative to the root.
    pub(crate) dir: String,
    /// What its manifest says it is.
    pub(crate) description: Option<String>,
    /// Its dependencies within the workspace.
    pub(crate) deps: Vec<Dep>,
    /// Its library's root file, or its program's, relative to the root.
    pub(crate) root_file: Option<String>,
    /// Whether it has a library.
    pub(crate) is_library: bool,
}

/// The text files of the project by path relative to the root, with `/` between the parts.
pub(crate) type Files = BTreeMap<String, String>;

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_path_buf()
}

/// The version that all members share, from the text of the root's `Cargo.toml`.
///
/// # Errors
/// When it is not there.
pub(crate) fn version(manifest: &str) -> Result<String, String> {
    let package = manifest.split_once("\n[workspace.package]\n").ok_or("Cargo.toml has no [workspace.package]")?.1;
    let lines = package.lines().take_while(|line| !line.starts_with('['));
    let found = lines.filter_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"')).next();
    found.map(str::to_owned).ok_or_else(|| "[workspace.package] has no version".into())
}

/// Where cargo puts what it builds.
pub(crate) fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}

/// Runs `cargo metadata` with further arguments.
///
/// # Errors
/// What cargo said, or that its answer is not JSON.
pub(crate) fn metadata(root: &Path, args: &[&str]) -> Result<Value, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let out = Command::new(cargo)
        .args(["metadata", "--format-version", "1"])
        .args(args)
        .current_dir(root)
        .output()
        .map_err(|e| format!("cannot run cargo metadata: {e}"))?;
    if !out.status.success() {
        return Err(format!("cargo metadata failed:\n{}", String::from_utf8_lossy(&out.stderr)));
    }
    serde_json::from_slice(&out.stdout).map_err(|e| format!("cargo metadata is not JSON: {e}"))
}

/// The workspace members of `metadata`, by folder.
///
/// # Errors
/// When a field that cargo promises is missing.
pub(crate) fn members(metadata: &Value, root: &Path) -> Result<Vec<Package>, String> {
    let relative = |path: &str| Path::new(path).strip_prefix(root).ok().map(slashes);
    let mut members = Vec::new();
    for package in array(metadata, "packages")? {
        let manifest = string(package, "manifest_path")?;
        let Some(dir) = Path::new(manifest).parent().and_then(Path::to_str).and_then(relative) else { continue };
        let mut deps = Vec::new();
        for dep in array(package, "dependencies")? {
            let Some(dir) = dep.get("path").and_then(Value::as_str).and_then(relative) else { continue };
            let dev = dep.get("kind").and_then(Value::as_str) == Some("dev");
            deps.push(Dep { dir, kind: if dev { Kind::Dev } else { Kind::Normal } });
        }
        let mut library = None;
        let mut program = None;
        for target in array(package, "targets")? {
            let source = relative(string(target, "src_path")?);
            for kind in array(target, "kind")?.iter().filter_map(Value::as_str) {
                match kind {
                    "lib" | "rlib" | "cdylib" | "staticlib" | "proc-macro" => library = source.clone(),
                    "bin" if program.is_none() => program.clone_from(&source),
                    _ => {}
                }
            }
        }
        members.push(Package {
            dir,
            description: package.get("description").and_then(Value::as_str).map(str::to_owned),
            deps,
            is_library: library.is_some(),
            root_file: library.or(program),
        });
    }
    members.sort_by(|a, b| a.dir.cmp(&b.dir));
    Ok(members)
}

/// The subjects of the commits since a commit, the last first; or why they cannot be had: without
/// git, or in a part of the history.
///
/// # Errors
/// The message of git, or that it cannot be run.
pub(crate) fn subjects(root: &Path, since: &str) -> Result<Vec<String>, String> {
    let range = format!("{since}..HEAD");
    let out = Command::new("git")
        .args(["log", "--format=%s", &range])
        .current_dir(root)
        .output()
        .map_err(|e| format!("cannot run git: {e}"))?;
    if !out.status.success() {
        return Err(String::from_utf8_lossy(&out.stderr).trim().to_owned());
    }
    Ok(String::from_utf8_lossy(&out.stdout).lines().map(str::to_owned).collect())
}

/// An array that cargo promises.
///
/// # Errors
/// When it is not there.
pub(crate) fn array<'a>(value: &'a Value, key: &str) -> Result<&'a [Value], String> {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).ok_or_else(|| format!("cargo metadata without `{key}`"))
}

/// A string that cargo promises.
///
/// # Errors
/// When it is not there.
pub(crate) fn string<'a>(value: &'a Value, key: &str) -> Result<&'a str, String> {
    value.get(key).and_then(Value::as_str).ok_or_else(|| format!("cargo metadata without `{key}`"))
}

/// The text files below `root`, products left out.
///
/// # Errors
/// When a folder or file cannot be read.
pub(crate) fn text_files(root: &Path) -> Result<Files, String> {
    let mut files = Files::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for entry in entries {
            let entry = entry.map_err(|e| format!("{}: {e}", folder.display()))?;
            let path = entry.path();
            let kind = entry.file_type().map_err(|e| format!("{}: {e}", path.display()))?;
            // In a worktree `.git` is a file.
            if SKIPPED.iter().any(|s| entry.file_name() == **s) {
                continue;
            }
            if kind.is_dir() {
                folders.push(path);
                continue;
            }
            let small = entry.metadata().is_ok_and(|m| m.len() <= LARGEST_TEXT);
            if !kind.is_file() || !small {
                continue;
            }
            // A file that vanished meanwhile, or is not UTF-8, is not ours to judge.
            let Some(text) = std::fs::read(&path).ok().and_then(|bytes| String::from_utf8(bytes).ok()) else {
                continue;
            };
            if let Ok(relative) = path.strip_prefix(root) {
                files.insert(slashes(relative), text);
            }
        }
    }
    Ok(files)
}

fn slashes(path: &Path) -> String {
    path.components().map(|c| c.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_with_their_room_their_arrows_and_their_root_file() {
        let json = serde_json::json!({ "packages": [
            {
                "manifest_path": "/w/sim/link/Cargo.toml", "description": "d",
                "dependencies": [
                    { "name": "neater-base", "kind": null, "path": "/w/crates/base" },
                    { "name": "neater-engine", "kind": "dev", "path": "/w/crates/engine" },
                    { "name": "bytes", "kind": null },
                ],
                "targets": [
                    { "kind": ["bin"], "src_path": "/w/sim/link/src/main.rs" },
                    { "kind": ["lib"], "src_path": "/w/sim/link/src/lib.rs" },
                ],
            },
            { "manifest_path": "/elsewhere/Cargo.toml", "dependencies": [], "targets": [] },
        ]});
        let got = members(&json, Path::new("/w")).unwrap();
        assert_eq!(
            got,
            [Package {
                dir: "sim/link".into(),
                description: Some("d".into()),
                deps: vec![
                    Dep { dir: "crates/base".into(), kind: Kind::Normal },
                    Dep { dir: "crates/engine".into(), kind: Kind::Dev },
                ],
                root_file: Some("sim/link/src/lib.rs".into()),
                is_library: true,
            }]
        );
    }

    #[test]
    fn the_version_is_that_of_the_workspace_and_of_no_dependency() {
        let text = "[workspace]\nx = 1\n\n[workspace.package]\nedition = \"2024\"\nversion = \"1.2.3\"\n\n[x]\n";
        assert_eq!(version(text).unwrap(), "1.2.3");
        assert!(version("\n[workspace.package]\n\n[x]\nversion = \"1.2.3\"\n").is_err());
        assert!(version("[package]\nversion = \"1.2.3\"\n").is_err());
    }

    #[test]
    fn metadata_that_lacks_a_promised_field_is_an_error() {
        assert!(members(&serde_json::json!({}), Path::new("/w")).unwrap_err().contains("packages"));
    }

    #[test]
    fn text_files_finds_this_file_and_no_product() {
        let files = text_files(&root()).unwrap();
        assert!(files.contains_key("xtask/src/workspace.rs"));
        assert!(!files.keys().any(|path| path.starts_with("target/") || path.starts_with(".git/")));
    }
}
