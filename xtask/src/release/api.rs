//! The public interfaces as lists of lines, and whether a version may differ from the one before as it does.
//!
//! *Responsible for* the interface of a header in C, the comparison with the list that is kept in the repository, and semantic
//! versioning. *Deliberately not*: reading Rust, whose list cargo-public-api writes. *Invariant*: an interface that differs from its
//! list is never passed over in silence.

use std::collections::BTreeSet;

/// A list as it is kept: the version that it is of, and its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Baseline {
    pub(super) version: String,
    pub(super) lines: BTreeSet<String>,
}

impl Baseline {
    /// Reads it: the first line is `# VERSION`.
    ///
    /// # Errors
    /// When the first line is another.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (first, rest) = text.split_once('\n').ok_or("an empty list")?;
        let version =
            first.strip_prefix("# ").and_then(|f| f.split_whitespace().next()).ok_or("a list without a version")?;
        Ok(Self { version: version.to_owned(), lines: rest.lines().map(str::to_owned).collect() })
    }

    /// As it is kept.
    pub(super) fn text(&self) -> String {
        let lines: String = self.lines.iter().map(|line| format!("{line}\n")).collect();
        format!("# {} (written by `cargo xtask release --accept-api`)\n{lines}", self.version)
    }
}

/// What a version does with the interface of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Nothing,
    Adds,
    Breaks,
}

/// Why `now` may not differ from what is kept as it does, or `None`.
pub(super) fn objection(kept: &Baseline, now: &Baseline) -> Option<String> {
    let gone: Vec<&str> = kept.lines.difference(&now.lines).map(String::as_str).collect();
    let new: Vec<&str> = now.lines.difference(&kept.lines).map(String::as_str).collect();
    let change = match (gone.is_empty(), new.is_empty()) {
        (true, true) => return None,
        (true, false) => Change::Adds,
        (false, _) => Change::Breaks,
    };
    let allowed = match allowed(&kept.version, &now.version) {
        Ok(allowed) => allowed,
        Err(why) => return Some(why),
    };
    if change <= allowed {
        return None;
    }
    let verb = if change == Change::Breaks { "breaks" } else { "adds to" };
    let listed = |sign: char, lines: &[&str]| -> String {
        let more = lines.len().saturating_sub(MOST);
        let shown: String = lines.iter().take(MOST).map(|line| format!("\n  {sign} {line}")).collect();
        if more > 0 { format!("{shown}\n  {sign} and {more} more") } else { shown }
    };
    Some(format!(
        "{} {verb} what {} is recorded with:{}{}\n  raise the version, or, while {} is not published, record it again by --accept-api",
        now.version,
        kept.version,
        listed('-', &gone),
        listed('+', &new),
        kept.version
    ))
}

/// Lines that are shown of each kind.
const MOST: usize = 20;

/// What semantic versioning allows from one version to another.
fn allowed(from: &str, to: &str) -> Result<Change, String> {
    let (old, new) = (numbers(from)?, numbers(to)?);
    if new < old {
        return Err(format!("{to} is earlier than {from}, whose interface is recorded"));
    }
    // Before 1.0 the second number counts as the first, and the third as the second.
    let shift = |v: [u64; 3]| if v[0] == 0 { [v[1], v[2], 0] } else { v };
    Ok(if old == new {
        Change::Nothing
    } else if old[0] != new[0] || shift(old)[0] != shift(new)[0] {
        Change::Breaks
    } else if shift(old)[1] != shift(new)[1] {
        Change::Adds
    } else {
        Change::Nothing
    })
}

fn numbers(version: &str) -> Result<[u64; 3], String> {
    let parts: Option<Vec<u64>> = version.split('.').map(|part| part.parse().ok()).collect();
    parts.and_then(|p| p.try_into().ok()).ok_or_else(|| format!("`{version}` is not a version of three numbers"))
}

/// What a header in C promises: declarations, members, enumerators and constants, each on a line of its own. Members of structs have
/// their number, for their order is their layout.
pub(super) fn of_header(header: &str) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    let (constants, code) = split(&without_comments(header));
    lines.extend(constants);
    // What lies around the place: the head of a struct, a union or an enumeration.
    let mut around: Vec<Place> = Vec::new();
    let mut now = String::new();
    let mut parentheses = 0_usize;
    for c in code.chars() {
        let in_enumeration = around.last().is_some_and(|place| place.head.contains("enum"));
        match c {
            '{' if now.contains("extern \"C\"") => now.clear(),
            '{' if parentheses == 0 => {
                around.push(Place { head: squeezed(&now), members: 0 });
                now.clear();
            }
            '}' if parentheses == 0 => {
                keep(&mut lines, &mut around, &now);
                now.clear();
                around.pop();
            }
            ';' if parentheses == 0 => {
                keep(&mut lines, &mut around, &now);
                now.clear();
            }
            ',' if in_enumeration => {
                keep(&mut lines, &mut around, &now);
                now.clear();
            }
            c => {
                match c {
                    '(' => parentheses += 1,
                    ')' => parentheses = parentheses.saturating_sub(1),
                    _ => {}
                }
                now.push(c);
            }
        }
    }
    lines
}

/// A struct, a union or an enumeration that is being read.
struct Place {
    head: String,
    members: usize,
}

fn keep(lines: &mut BTreeSet<String>, around: &mut [Place], now: &str) {
    let now = squeezed(now);
    if now.is_empty() {
        return;
    }
    let heads: String = around.iter().map(|place| format!("{}: ", place.head)).collect();
    match around.last_mut() {
        Some(place) if !place.head.contains("enum") => {
            place.members += 1;
            lines.insert(format!("{heads}{} {now}", place.members));
        }
        _ => {
            lines.insert(format!("{heads}{}", now.strip_prefix("NEAT_EXTERN ").unwrap_or(&now)));
        }
    }
}

fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn without_comments(header: &str) -> String {
    let mut out = String::new();
    let mut rest = header;
    while let Some((before, comment)) = rest.split_once("/*") {
        out.push_str(before);
        out.push(' ');
        rest = comment.split_once("*/").map_or("", |(_, rest)| rest);
    }
    out.push_str(rest);
    out.lines().map(|line| format!("{}\n", line.split("//").next().unwrap_or_default())).collect()
}

/// The constants and macros, without what they stand for if they take arguments, and the rest of the header without the
/// preprocessor's lines.
fn split(code: &str) -> (Vec<String>, String) {
    let (mut constants, mut rest) = (Vec::new(), String::new());
    let joined = code.replace("\\\n", " ");
    for line in joined.lines() {
        let Some(directive) = line.trim_start().strip_prefix('#') else {
            rest.push_str(line);
            rest.push('\n');
            continue;
        };
        let Some(definition) = directive.trim_start().strip_prefix("define ") else { continue };
        let definition = squeezed(definition);
        let name = definition.split(' ').next().unwrap_or_default();
        let private = name.ends_with('_') || name.contains("_H") || name.contains("EXTERN") || name.starts_with('_');
        if !private {
            let shown =
                definition.split_once(')').filter(|_| name.contains('(')).map_or(definition.as_str(), |(head, _)| head);
            constants.push(format!("define {shown}"));
        }
    }
    (constants, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(version: &str, lines: &[&str]) -> Baseline {
        Baseline { version: version.into(), lines: lines.iter().map(|l| (*l).to_owned()).collect() }
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let kept = list("0.1.0", &["fn a()", "fn b()"]);
        assert_eq!(Baseline::parse(&kept.text()), Ok(kept));
        assert!(Baseline::parse("fn a()\n").is_err());
    }

    #[test]
    fn versions_allow_what_semantic_versioning_says() {
        for (from, to, may) in [
            ("0.1.0", "0.1.0", Change::Nothing),
            ("0.1.0", "0.1.1", Change::Adds),
            ("0.1.0", "0.2.0", Change::Breaks),
            ("0.9.0", "1.0.0", Change::Breaks),
            ("1.0.0", "1.0.1", Change::Nothing),
            ("1.0.0", "1.1.0", Change::Adds),
            ("1.1.0", "2.0.0", Change::Breaks),
        ] {
            assert_eq!(allowed(from, to), Ok(may), "{from} {to}");
        }
        assert!(allowed("0.2.0", "0.1.9").is_err());
        assert!(allowed("0.2.0", "0.3").is_err());
    }

    #[test]
    fn what_a_version_may_not_do_is_shown_line_by_line() {
        let kept = list("0.1.0", &["a", "b"]);
        assert_eq!(objection(&kept, &list("0.1.0", &["a", "b"])), None);
        assert_eq!(objection(&kept, &list("0.1.1", &["a", "b", "c"])), None);
        assert_eq!(objection(&kept, &list("0.2.0", &["c"])), None);
        let added = objection(&kept, &list("0.1.0", &["a", "b", "c"])).unwrap();
        assert!(added.contains("0.1.0 adds to") && added.contains("\n  + c"), "{added}");
        let broken = objection(&kept, &list("0.1.1", &["a", "B"])).unwrap();
        assert!(broken.contains("breaks what 0.1.0") && broken.contains("\n  - b\n  + B\n"), "{broken}");
    }

    #[test]
    fn a_header_promises_functions_members_enumerators_and_constants() {
        let header = "/* a; */\n#ifndef X_H\n#define X_H\n#define A 1 /* one */\n#define F(x) \\\n    g(x)\n#include <a.h>\n\
                      #ifdef __cplusplus\nextern \"C\" {\n#endif\nenum e\n : int32_t {\n  E_A = 0,\n  /** b */\n  E_B = -1,\n};\n\
                      struct s { size_t size; int (*f)(int a,\n   int b); };\n// x;\nint g(int a,\n      int b);\n\
                      #ifdef __cplusplus\n}\n#endif\n";
        let got: Vec<String> = of_header(header).into_iter().collect();
        assert_eq!(
            got,
            [
                "define A 1",
                "define F(x",
                "enum e : int32_t: E_A = 0",
                "enum e : int32_t: E_B = -1",
                "int g(int a, int b)",
                "struct s: 1 size_t size",
                "struct s: 2 int (*f)(int a, int b)",
            ]
        );
    }

    #[test]
    fn our_own_headers_are_read_whole() {
        let neat = of_header(include_str!("../../../io/libneat/include/neat.h"));
        assert!(neat.iter().any(|l| l.contains(" neat_open(")) && neat.contains("define NEAT_ERROR_IO 3"), "{neat:#?}");
        let neater = of_header(include_str!("../../../io/neater-c/include/neater.h"));
        let functions = neater.iter().filter(|line| line.contains("neater_") && line.contains('(')).count();
        assert!(functions > 150, "{functions}");
    }
}
