//! Files and functions under `crates/` that have grown past what one person reads in one go.
//!
//! A long one is allowed if it says why: `// tidy: long because …` in the first comments of a file, or in a function or the
//! comments right above it.

use super::{Finding, mask};
use crate::workspace::Files;

/// Lines in a file.
const FILE_LINES: usize = 900;
/// Lines in a function, from `fn` to its closing brace.
const FUNCTION_LINES: usize = 120;
const EXCUSE: &str = "tidy: long because ";

/// Every file and function that is too long and does not say why.
pub(super) fn check(files: &Files) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in files {
        if !path.starts_with("crates/") || !path.ends_with(".rs") {
            continue;
        }
        let lines: Vec<&str> = text.lines().collect();
        let head = lines.iter().take_while(|line| line.is_empty() || line.starts_with("//"));
        if lines.len() > FILE_LINES && !excused(head) {
            findings.push(Finding::error(
                path.as_str(),
                format!(
                    "{} lines, more than {FILE_LINES}: split it by idea, or say `// {EXCUSE}...` at its head",
                    lines.len()
                ),
            ));
        }
        let masked = mask::mask(text);
        for function in functions(&masked) {
            let length = function.last_line - function.first_line + 1;
            let above = lines
                .iter()
                .take(function.first_line - 1)
                .rev()
                .take_while(|line| line.trim_start().starts_with("//") || line.trim_start().starts_with("#["));
            let inside = lines.iter().take(function.last_line).skip(function.first_line - 1);
            if length > FUNCTION_LINES && !excused(above.chain(inside)) {
                findings.push(Finding::error(
                    format!("{path}:{}", function.first_line),
                    format!(
                        "function `{}` has {length} lines, more than {FUNCTION_LINES}: split it, or say `// {EXCUSE}...` in it",
                        function.name
                    ),
                ));
            }
        }
    }
    findings
}

fn excused<'a>(mut lines: impl Iterator<Item = &'a &'a str>) -> bool {
    lines.any(|line| line.contains("//") && line.split_once(EXCUSE).is_some_and(|(_, why)| !why.trim().is_empty()))
}

struct Function {
    name: String,
    first_line: usize,
    last_line: usize,
}

/// The functions with a body in source that [`mask::mask`] has made plain.
fn functions(masked: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for at in mask::words(masked, "fn") {
        let rest = &masked[at + 2..];
        let start = rest.trim_start();
        let name: String = start.chars().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '#')).collect();
        if name.is_empty() {
            continue; // a function pointer type
        }
        if let Some(end) = body_end(rest) {
            found.push(Function {
                name,
                first_line: mask::line_of(masked, at),
                last_line: mask::line_of(masked, at + 2 + end),
            });
        }
    }
    found
}

/// Where the body closes, from after `fn`; `None` for a declaration.
fn body_end(rest: &str) -> Option<usize> {
    let (mut brackets, mut braces) = (0usize, 0usize);
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            b'(' | b'[' => brackets += 1,
            b')' | b']' => brackets = brackets.saturating_sub(1),
            b';' if brackets == 0 && braces == 0 => return None,
            b'{' if brackets == 0 || braces > 0 => braces += 1,
            b'}' if braces > 0 => {
                braces -= 1;
                if braces == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: String) -> Files {
        Files::from([(path.to_owned(), text)])
    }

    fn function(body_lines: usize) -> String {
        format!("/// Doc.\nfn long(x: [u8; {{ 3 }}]) -> u8 {{\n{}}}\n", "    f();\n".repeat(body_lines))
    }

    #[test]
    fn a_function_over_the_limit_is_reported_and_one_at_the_limit_is_not() {
        let at_limit = FUNCTION_LINES - 2;
        assert!(check(&file("crates/a/src/lib.rs", function(at_limit))).is_empty());
        let findings = check(&file("crates/a/src/lib.rs", function(at_limit + 1)));
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].place, "crates/a/src/lib.rs:2");
        assert!(findings[0].message.contains("`long` has 121 lines"), "{}", findings[0]);
    }

    #[test]
    fn a_reason_excuses_a_long_function_and_an_empty_one_does_not() {
        let long = function(200);
        for (comment, excused) in
            [("// tidy: long because a flat dispatch\n", true), ("// tidy: long because \n", false)]
        {
            let above = format!("{comment}{long}");
            assert_eq!(check(&file("crates/a/src/lib.rs", above)).is_empty(), excused, "{comment}");
        }
        let inside = long.replacen("    f();\n", "    // tidy: long because a flat dispatch\n", 1);
        assert!(check(&file("crates/a/src/lib.rs", inside)).is_empty());
    }

    #[test]
    fn a_long_file_is_reported_unless_its_head_says_why() {
        let long = "const A: u8 = 1;\n".repeat(FILE_LINES + 1);
        assert_eq!(check(&file("crates/a/src/lib.rs", long.clone())).len(), 1);
        assert!(
            check(&file("crates/a/src/lib.rs", format!("//! Doc.\n// tidy: long because one table\n{long}")))
                .is_empty()
        );
        assert!(check(&file("sim/lab/src/lib.rs", long)).is_empty());
    }

    #[test]
    fn declarations_pointers_and_nested_bodies_are_told_apart() {
        let masked =
            "trait T { fn a(&self) -> [u8; 2]; }\ntype P = fn(u8);\nfn b() {\n  if x { y() }\n  fn c() {}\n}\n";
        let got: Vec<_> = functions(masked).into_iter().map(|f| (f.name, f.first_line, f.last_line)).collect();
        assert_eq!(got, [("b".to_owned(), 3, 6), ("c".to_owned(), 5, 5)]);
    }
}
