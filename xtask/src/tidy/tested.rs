//! Rooms whose tests are to have no fewer lines than their code.
//!
//! Counted are lines that are neither blank nor comments. Tests are what stands under `tests/`, in files named `..._tests.rs`, and in
//! items behind `#[cfg(test)]`.

use super::{Finding, mask};
use crate::workspace::Files;
use std::ops::RangeInclusive;

/// The rooms that have promised it.
const ROOMS: &[&str] = &["crates/sctp"];

/// Lines of a room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Of what is shipped.
    pub(crate) code: usize,
    /// Of what tests it.
    pub(crate) tests: usize,
}

/// Every room with more code than tests.
pub(super) fn check(files: &Files) -> Vec<Finding> {
    let broken = ROOMS.iter().map(|room| (room, count(files, room))).filter(|(_, c)| c.tests < c.code);
    broken
        .map(|(room, Count { code, tests })| {
            Finding::error(
                *room,
                format!(
                    "{code} lines of code and {tests} of tests: {} are missing, or the code is too long",
                    code - tests
                ),
            )
        })
        .collect()
}

/// Counts the lines of a room.
pub(crate) fn count(files: &Files, room: &str) -> Count {
    let mut count = Count::default();
    for (path, text) in files.iter().filter(|(path, _)| path.ends_with(".rs")) {
        let Some(inside) = path.strip_prefix(room).and_then(|p| p.strip_prefix('/')) else { continue };
        let only_tests = inside.starts_with("tests/") || inside.ends_with("_tests.rs");
        let items = test_items(text);
        for (index, line) in text.lines().map(str::trim).enumerate() {
            if line.is_empty() || line.starts_with("//") {
                continue;
            }
            if only_tests || items.iter().any(|item| item.contains(&(index + 1))) {
                count.tests += 1;
            } else {
                count.code += 1;
            }
        }
    }
    count
}

/// The lines, from 1, of the items of a source that are there only for tests.
pub(crate) fn test_items(text: &str) -> Vec<RangeInclusive<usize>> {
    let masked = mask::mask(text);
    let mut items = Vec::new();
    let mut from = 0;
    while let Some(at) = masked[from..].find("#[cfg(test)]").map(|at| from + at) {
        let end = at + item_end(&masked[at..]);
        items.push(mask::line_of(&masked, at)..=mask::line_of(&masked, end));
        from = end;
    }
    items
}

/// Where an item ends: at its semicolon or at the brace that closes its body, attributes before it included.
fn item_end(masked: &str) -> usize {
    let (mut braces, mut others) = (0usize, 0usize);
    for (at, byte) in masked.bytes().enumerate() {
        match byte {
            b'(' | b'[' => others += 1,
            b')' | b']' => others = others.saturating_sub(1),
            b'{' => braces += 1,
            b'}' => {
                braces = braces.saturating_sub(1);
                if braces == 0 && others == 0 {
                    return at;
                }
            }
            b';' if braces == 0 && others == 0 => return at,
            _ => {}
        }
    }
    masked.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "//! What it is.\n\nfn code() {\n    // why\n    x();\n}\n\n\
        #[cfg(test)]\nfn only(a: [u8; 2]) -> u8 {\n    \"}\";\n    a[0]\n}\n\n\
        fn more() {}\n\n#[cfg(test)]\n#[path = \"a_tests.rs\"]\nmod tests;\nconst LAST: u8 = 1;\n";

    #[test]
    fn items_for_tests_are_told_from_code_and_blanks_and_comments_are_not_counted() {
        assert_eq!(test_items(SOURCE), [8..=12, 16..=18]);
        let mut files = Files::new();
        files.insert("crates/sctp/src/lib.rs".into(), SOURCE.into());
        files.insert("crates/sctp-wire/src/lib.rs".into(), SOURCE.into());
        assert_eq!(count(&files, "crates/sctp"), Count { code: 5, tests: 8 });
        files.insert("crates/sctp/tests/a.rs".into(), "a\n\nb // c\n// d\n".into());
        files.insert("crates/sctp/src/a_tests.rs".into(), "a\n".into());
        files.insert("crates/sctp/tests/data.txt".into(), "a\n".into());
        assert_eq!(count(&files, "crates/sctp"), Count { code: 5, tests: 11 });
    }

    #[test]
    fn a_room_with_fewer_lines_of_tests_than_of_code_is_found() {
        let mut files = Files::new();
        files.insert("crates/sctp/src/lib.rs".into(), "a\nb\n".into());
        files.insert("crates/sctp/tests/a.rs".into(), "a\n".into());
        let found = check(&files);
        assert_eq!(found.len(), 1);
        assert!(found[0].to_string().contains("2 lines of code and 1 of tests: 1 are missing"), "{}", found[0]);
        files.insert("crates/sctp/tests/b.rs".into(), "b\n".into());
        assert!(check(&files).is_empty());
    }
}
