//! What a developer leaves behind: paths of their machine, and work not done.

use super::{Finding, mask};
use crate::workspace::Files;

/// This file, which must name what it looks for.
const OWN: &str = "xtask/src/tidy/leftovers.rs";
/// Folders of one person's machine.
const MACHINE: &[&str] = &["/work/", "/home/"];
/// A folder that a test may use and a product should not name.
const SCRATCH: &str = "/tmp/";
/// Macros that stand for code not written.
const STUBS: &[&str] = &["todo", "unimplemented"];
/// Words that stand for work not done.
const MARKS: &[&str] = &["FIXME", "XXX"];

/// Every leftover, by file and line.
pub(super) fn check(files: &Files) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in files {
        if path == OWN || path.ends_with(".lock") || path.starts_with("LICENSE") {
            continue;
        }
        paths(path, text, &mut findings);
        if path.ends_with(".rs") {
            stubs(path, text, &mut findings);
        }
        if is_source(path, text) {
            marks(path, text, &mut findings);
        }
    }
    findings
}

fn paths(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let tests_begin =
        if is_test(path) { 0 } else { text.lines().position(|l| l.trim() == "#[cfg(test)]").unwrap_or(usize::MAX) };
    for (index, line) in text.lines().enumerate() {
        let place = || format!("{path}:{}", index + 1);
        for folder in MACHINE {
            if begins_a_path(line, folder) {
                findings.push(Finding::error(place(), format!("`{folder}` is a folder of somebody's machine")));
            }
        }
        if index < tests_begin && begins_a_path(line, SCRATCH) {
            findings.push(Finding::warning(
                place(),
                format!("`{SCRATCH}` in what is not a test: is it the user's to choose?"),
            ));
        }
    }
}

/// Whether a path that starts with `folder` starts in `line`; a longer path or a URL that contains it does not count.
fn begins_a_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = at.checked_sub(1).and_then(|i| line.as_bytes().get(i)).copied();
        !before.is_some_and(|b| mask::is_word(b) || b".~-/})>*".contains(&b))
    })
}

fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("tests.rs") || path.starts_with("interop/")
}

fn stubs(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let masked = mask::mask(text);
    for stub in STUBS {
        for at in mask::words(&masked, stub) {
            if masked.as_bytes().get(at + stub.len()) == Some(&b'!') {
                findings.push(Finding::error(
                    format!("{path}:{}", mask::line_of(&masked, at)),
                    format!("`{stub}!`: an unwritten path panics; write it, or return an error that says so"),
                ));
            }
        }
    }
}

/// Code and scripts; prose may speak of the marks.
fn is_source(path: &str, text: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name.rsplit_once('.') {
        Some((_, extension)) => {
            matches!(extension, "rs" | "c" | "h" | "py" | "sh" | "toml" | "js" | "mjs" | "ts" | "go" | "yml" | "yaml")
        }
        None => text.starts_with("#!"),
    }
}

fn marks(path: &str, text: &str, findings: &mut Vec<Finding>) {
    for mark in MARKS {
        for at in mask::words(text, mark) {
            findings.push(Finding::error(
                format!("{path}:{}", mask::line_of(text, at)),
                format!("`{mark}`: do it, or write down in docs/ what is missing and why"),
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(path: &str, text: &str) -> Vec<Finding> {
        check(&Files::from([(path.to_owned(), text.to_owned())]))
    }

    #[test]
    fn a_path_of_a_machine_is_an_error_in_any_file() {
        for text in ["see /home/ann/x", "\"/work/x\"", "/home/ann", "P=/home/ann"] {
            for path in ["docs/a.md", "crates/a/src/lib.rs", "test", "interop/src/tests.rs"] {
                assert_eq!(one(path, &format!("\n{text}\n")).len(), 1, "{path}: {text}");
            }
        }
        assert_eq!(one("docs/a.md", "x\n/work/\n")[0].place, "docs/a.md:2");
    }

    #[test]
    fn a_url_or_a_longer_path_is_not_a_path_of_a_machine() {
        for text in ["https://example.org/home/x", "a/work/b", "~/work/b", "$HOME/home/", "${ROOT}/tmp/x", "/var/tmp/x"]
        {
            assert!(one("docs/a.md", text).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_scratch_folder_is_a_warning_outside_tests_only() {
        let text = "const P: &str = \"/tmp/x\";\n#[cfg(test)]\nmod tests { const P: &str = \"/tmp/x\"; }\n";
        let findings = one("io/net/src/lib.rs", text);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0], Finding::warning("io/net/src/lib.rs:1", findings[0].message.clone()));
        assert!(one("io/net/tests/a.rs", text).is_empty());
    }

    #[test]
    fn stubs_are_errors_in_code_and_not_in_comments() {
        assert_eq!(one("crates/a/src/lib.rs", "fn f() { todo!() }").len(), 1);
        assert_eq!(one("crates/a/src/lib.rs", "fn f() { unimplemented!(\"x\") }").len(), 1);
        assert!(one("crates/a/src/lib.rs", "// todo!()\nconst A: &str = \"todo!()\"; fn todo() {}").is_empty());
    }

    #[test]
    fn marks_of_unfinished_work_are_errors_in_sources() {
        let mark = MARKS[0];
        let triple = MARKS[1];
        assert_eq!(one("crates/a/src/lib.rs", &format!("// {mark}: later")).len(), 1);
        assert_eq!(one("test", &format!("#!/bin/sh\n# {triple}")).len(), 1);
        assert!(one("test", "#!/bin/sh\nmktemp -t a.XXXXXX").is_empty());
        assert!(one("docs/a.md", mark).is_empty());
    }
}
