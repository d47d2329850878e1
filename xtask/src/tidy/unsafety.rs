//! `unsafe` only where the operating system or another language is met.

use super::{Finding, mask};
use crate::workspace::Files;

const ALLOWED: &[&str] = &["io/", "bindings/", "sim/emulator/", "sim/lab/", "interop/"];

/// Every `unsafe` in the code of another folder.
pub(super) fn check(files: &Files) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in files {
        if !path.ends_with(".rs") || ALLOWED.iter().any(|room| path.starts_with(room)) {
            continue;
        }
        let masked = mask::mask(text);
        for at in mask::words(&masked, "unsafe") {
            findings.push(Finding::error(
                format!("{path}:{}", mask::line_of(&masked, at)),
                format!(
                    "`unsafe` lives only under {}: what needs it belongs there, behind a safe function",
                    ALLOWED.join(", ")
                ),
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(path: &str, text: &str) -> Files {
        Files::from([(path.to_owned(), text.to_owned())])
    }

    #[test]
    fn unsafe_in_a_sans_io_crate_is_found_with_its_line() {
        let findings = check(&files("crates/base/src/x.rs", "fn f() {\n    unsafe { g() }\n}\n"));
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].place, "crates/base/src/x.rs:2");
    }

    #[test]
    fn unsafe_is_allowed_where_the_system_is_met() {
        for path in ["io/net/src/sys.rs", "sim/emulator/src/tun.rs", "bindings/c/src/lib.rs", "interop/src/lib.rs"] {
            assert!(check(&files(path, "unsafe fn f() {}")).is_empty(), "{path}");
        }
        assert_eq!(check(&files("sim/link/src/lib.rs", "unsafe fn f() {}")).len(), 1);
    }

    #[test]
    fn the_word_in_a_comment_a_string_or_a_lint_name_is_not_code() {
        let text = "#![forbid(unsafe_code)]\n// unsafe\nconst S: &str = \"unsafe\";\n";
        assert!(check(&files("crates/base/src/x.rs", text)).is_empty());
        assert!(check(&files("docs/x.md", "unsafe")).is_empty());
    }
}
