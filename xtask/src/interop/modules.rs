//! Modules of a kernel, and what they depend on, as they say themselves.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// These modules of the tree and what they depend on: names and contents, in an order in which they can be loaded. Those that
/// are not in the tree are taken to be part of the kernel.
///
/// # Errors
/// When the tree or a module cannot be read.
pub(crate) fn closure(tree: &Path, wanted: &[&str]) -> Result<Vec<(String, Vec<u8>)>, String> {
    let mut paths = BTreeMap::new();
    find(tree, &mut paths)?;
    let mut all = Vec::new();
    for name in wanted {
        add(name, &paths, &mut all)?;
    }
    Ok(all)
}

fn add(name: &str, paths: &BTreeMap<String, PathBuf>, all: &mut Vec<(String, Vec<u8>)>) -> Result<(), String> {
    let Some(path) = paths.get(name).filter(|_| all.iter().all(|(known, _)| known != name)) else { return Ok(()) };
    let bytes = read(path)?;
    for other in depends(&bytes) {
        add(&other, paths, all)?;
    }
    all.push((name.to_owned(), bytes));
    Ok(())
}

/// A module's name has no hyphens, whatever its file's has.
fn module(file: &str) -> Option<String> {
    let name = file.strip_suffix(".xz").unwrap_or(file).strip_suffix(".ko")?;
    Some(name.replace('-', "_"))
}

fn find(folder: &Path, paths: &mut BTreeMap<String, PathBuf>) -> Result<(), String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for entry in entries.filter_map(Result::ok) {
        let path = entry.path();
        // Links lead out of the tree, to sources.
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            find(&path, paths)?;
        } else if let Some(name) = entry.file_name().to_str().and_then(module) {
            paths.insert(name, path);
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    if path.extension().is_some_and(|e| e == "xz") {
        let out = Command::new("xz").arg("-dc").arg(path).output().map_err(|e| format!("xz cannot be run: {e}"))?;
        if !out.status.success() {
            return Err(format!("xz does not unpack {}", path.display()));
        }
        return Ok(out.stdout);
    }
    fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// What a module depends on: a string of its section `.modinfo`.
fn depends(bytes: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = bytes.windows(KEY.len()).position(|w| w == KEY) else { return Vec::new() };
    let value = bytes.get(at + KEY.len()..).unwrap_or_default();
    let value = value.split(|b| *b == 0).next().unwrap_or_default();
    String::from_utf8_lossy(value).split(',').filter(|n| !n.is_empty()).map(|n| n.replace('-', "_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_module_depends_on_comes_before_it_and_once() {
        let dir = crate::workspace::root().join(format!("target/xtask-modules-{}", std::process::id()));
        fs::create_dir_all(dir.join("net")).unwrap();
        let put = |name: &str, on: &str| fs::write(dir.join(name), format!("elf\0depends={on}\0name=x\0")).unwrap();
        put("net/a-b.ko", "c,d");
        put("c.ko", "d");
        put("d.ko", "");
        put("e.ko", "a-b,elsewhere");
        let names: Vec<String> = closure(&dir, &["e", "d", "built_in"]).unwrap().into_iter().map(|(n, _)| n).collect();
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(names, ["d", "c", "a_b", "e"]);
    }

    #[test]
    fn a_tree_that_is_not_there_is_an_error_that_names_it() {
        assert!(closure(Path::new("/nowhere/at/all"), &["x"]).is_err_and(|e| e.contains("/nowhere/at/all")));
    }
}
