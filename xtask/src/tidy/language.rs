//! One language: words that comments and messages avoid, and comments that are wider than a page of two.
//!
//! Parts act in sentences, not persons: a driver, a task, a peer, the kernel. They notify, report, return, send and receive. The
//! words are those of the glossary in `CONTRIBUTING.md`.

use super::mask::{self, Kind};
use super::tested;
use crate::workspace::Files;

/// Where it holds.
const ROOMS: &[&str] = &["crates/", "io/", "apps/"];
/// Columns of a comment.
pub(super) const COLUMNS: usize = 100;

/// Words to avoid, and what is written instead.
const AVOIDED: &[(&[&str], &str)] = &[
    (
        &["told", "tell", "tells", "telling", "teller", "tellers"],
        "notify, report, return, show; of two things, distinguish",
    ),
    (&["said", "say", "says", "saying"], "report, state, return, mean"),
    (&["hear", "hears", "heard", "hearing"], "receive, be notified"),
    (&["nobody", "somebody", "someone", "anybody", "everybody"], "the part: task, driver, peer, user"),
    (&["whoever", "whomever", "whence"], "the part: task, driver, peer, user; the source"),
    (&["anew"], "again, restart, rebuild"),
    (&["heed", "heeds", "heeded", "heeding"], "use, apply, support"),
    (&["glance", "glances", "glanced"], "fast poll"),
    (&["greeting", "greetings"], "framer handshake; of a protocol, first line"),
    (&["lesson", "lessons"], "penalty, outcome history"),
    (&["slip", "slips"], "typing error, diagnostic"),
    (&["siblings"], "engine shards"),
    (&["playground", "cradle", "whim", "whims"], "fixture, pid namespace, cancel"),
];

/// Every word to avoid in comments, and in texts that are not only tests', with its place and what is written instead.
pub(super) fn avoided(files: &Files) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in sources(files) {
        let tests = tested::test_items(text);
        let only_tests = is_test(path);
        for (kind, range) in mask::parts(text) {
            let line = mask::line_of(text, range.start);
            let seen = match kind {
                Kind::Comment => true,
                Kind::Text => !only_tests && !tests.iter().any(|item| item.contains(&line)),
                Kind::Character => false,
            };
            if !seen {
                continue;
            }
            let part = &text[range];
            let words = if kind == Kind::Comment { without(part, '`', '`') } else { without(part, '{', '}') };
            for (at, word) in self::words(&words) {
                if let Some((_, instead)) = AVOIDED.iter().find(|(avoided, _)| avoided.contains(&word.as_str())) {
                    found.push(format!("{path}:{} `{word}` (write {instead})", line + mask::line_of(&words, at) - 1));
                }
            }
        }
    }
    found
}

/// Every line of a comment that is too long, with its place, unless one word makes it so.
pub(super) fn long_lines(files: &Files) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in sources(files) {
        let comments = mask::parts(text).into_iter().filter(|(kind, _)| *kind == Kind::Comment);
        for (_, range) in comments {
            let begin = text[..range.start].rfind('\n').map_or(0, |at| at + 1);
            let first = mask::line_of(text, begin);
            for (n, line) in text[begin..range.end].lines().enumerate() {
                let columns = line.chars().count();
                // A link cannot be broken.
                let unbroken = line.split_whitespace().last().is_some_and(|word| word.contains("://"));
                if columns > COLUMNS && !unbroken {
                    found.push(format!("{path}:{} ({columns} columns)", first + n));
                }
            }
        }
    }
    found
}

fn sources(files: &Files) -> impl Iterator<Item = (&String, &String)> {
    files.iter().filter(|(path, _)| path.ends_with(".rs") && ROOMS.iter().any(|room| path.starts_with(room)))
}

/// Whether a file is there only for tests.
fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs") || path.ends_with("_tests.rs")
}

/// The text with the same lines, in which what stands between two marks on one line is spaces: names of code.
fn without(text: &str, open: char, close: char) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let mut rest = line;
        while let Some(begin) = rest.find(open) {
            let Some(end) = rest[begin + 1..].find(close) else { break };
            let end = begin + 1 + end + close.len_utf8();
            out.push_str(&rest[..begin]);
            out.extend(core::iter::repeat_n(' ', end - begin));
            rest = &rest[end..];
        }
        out.push_str(rest);
    }
    out
}

/// The words of a text in small letters, with where each begins. What follows a backslash is not part of a word.
fn words(text: &str) -> impl Iterator<Item = (usize, String)> + '_ {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut at = 0;
    core::iter::from_fn(move || {
        loop {
            let begin = at + text[at..].find(is_word)?;
            let end = text[begin..].find(|c| !is_word(c)).map_or(text.len(), |len| begin + len);
            at = end;
            let escaped = text[..begin].ends_with('\\');
            let begin = if escaped { begin + text[begin..].chars().next().map_or(0, char::len_utf8) } else { begin };
            if begin < end {
                return Some((begin, text[begin..end].to_lowercase()));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> Files {
        Files::from([(path.to_owned(), text.to_owned())])
    }

    #[test]
    fn a_word_to_avoid_is_found_with_its_line_and_what_to_write_instead() {
        let text = "//! a\n//! It tells\n//! nobody.\nfn f() -> &'static str {\n    \"\\nSay so\"\n}\n";
        let found = avoided(&file("io/neater/src/x.rs", text));
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("io/neater/src/x.rs:2 `tells` (write notify, report"), "{}", found[0]);
        assert!(found[1].starts_with("io/neater/src/x.rs:3 `nobody` (write the part"), "{}", found[1]);
        assert!(found[2].starts_with("io/neater/src/x.rs:5 `say` (write report"), "{}", found[2]);
        assert_eq!(avoided(&file("sim/lab/src/x.rs", text)), [""; 0]);
    }

    #[test]
    fn names_of_code_and_texts_of_tests_are_not_read() {
        let text = "//! See `Engine::tell`, foretold, tell_tale.\nfn f(told: u8) { format!(\"{told} x\"); }\n\
                    #[cfg(test)]\nmod tests { fn g() { panic!(\"nobody says\"); } }\n";
        assert_eq!(avoided(&file("crates/a/src/x.rs", text)), [""; 0]);
        assert_eq!(avoided(&file("crates/a/tests/x.rs", "fn f() { panic!(\"nobody\"); }")), [""; 0]);
        assert_eq!(avoided(&file("crates/a/tests/x.rs", "// nobody\n")).len(), 1);
        let open = "// a ` that is not closed tells\n";
        assert_eq!(avoided(&file("crates/a/src/x.rs", open)).len(), 1);
    }

    #[test]
    fn a_comment_may_be_as_wide_as_the_limit_and_a_link_wider() {
        let line = |columns: usize| format!("fn f() {{}} // {}\n", "a ".repeat(columns).split_at(columns - 13).0);
        assert_eq!(long_lines(&file("apps/cli/src/x.rs", &line(COLUMNS))), [""; 0]);
        let found = long_lines(&file("apps/cli/src/x.rs", &format!("\n{}", line(COLUMNS + 1))));
        assert_eq!(found, ["apps/cli/src/x.rs:2 (101 columns)"]);
        let link = format!("// see https://example.com/{}\n", "a".repeat(COLUMNS));
        assert_eq!(long_lines(&file("apps/cli/src/x.rs", &link)), [""; 0]);
        let code = format!("const A: &str = \"// {}\";\n", "a ".repeat(COLUMNS));
        assert_eq!(long_lines(&file("apps/cli/src/x.rs", &code)), [""; 0]);
    }
}
