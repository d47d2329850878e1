//! The functions that a header declares, with the comments before them.
//!
//! *Responsible for* `neat.h`, whose functions begin with `NEAT_EXTERN`, and `neater.h`, which cbindgen writes. *Deliberately
//! not*: C in general.

/// A function of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    /// As it stands in the header, without `NEAT_EXTERN`, up to the semicolon.
    pub(super) declaration: String,
    /// The text of the comment right before it, without its stars.
    pub(super) comment: String,
}

/// Every function that `header` declares whose name `ours` takes.
pub(super) fn functions(header: &str, ours: impl Fn(&str) -> bool) -> Vec<Function> {
    let mut found = Vec::new();
    let mut comment = Vec::new();
    let mut in_comment = false;
    let mut declaration = String::new();
    for line in header.lines() {
        let trimmed = line.trim();
        if declaration.is_empty() && (in_comment || trimmed.starts_with("/*")) {
            if !in_comment {
                comment.clear();
            }
            in_comment = !trimmed.ends_with("*/");
            comment.push(words(trimmed).to_owned());
            continue;
        }
        // A declaration begins at the margin; what lies within structs does not, and macros end with a backslash.
        let begins = line.starts_with(|c: char| c.is_ascii_alphabetic()) && !line.ends_with('\\');
        if declaration.is_empty() && !(begins && line.contains('(') && !line.starts_with("typedef")) {
            if !trimmed.is_empty() {
                comment.clear();
            }
            continue;
        }
        if !declaration.is_empty() {
            declaration.push('\n');
        }
        declaration.push_str(line.trim_end());
        if !trimmed.ends_with(';') {
            continue;
        }
        let whole = core::mem::take(&mut declaration);
        let name = name(&whole);
        if ours(name) {
            let name = name.to_owned();
            found.push(Function { name, declaration: plain(&whole), comment: comment.join("\n").trim().to_owned() });
        }
        comment.clear();
    }
    found
}

/// What stands before the first parenthesis, without the type.
fn name(declaration: &str) -> &str {
    let before = declaration.split('(').next().unwrap_or_default();
    before.rsplit([' ', '*']).next().unwrap_or_default()
}

/// Without `NEAT_EXTERN`, and the lines that follow moved to the left by as much.
fn plain(declaration: &str) -> String {
    const MARK: &str = "NEAT_EXTERN ";
    let Some(rest) = declaration.strip_prefix(MARK) else { return declaration.to_owned() };
    let indent = " ".repeat(MARK.len());
    rest.lines().map(|line| line.strip_prefix(&indent).unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

/// A line of a comment without its marks.
fn words(line: &str) -> &str {
    let line = line.strip_prefix("/**").or_else(|| line.strip_prefix("/*")).unwrap_or(line);
    let line = line.strip_suffix("*/").unwrap_or(line);
    let line = line.trim_start_matches('*');
    line.strip_prefix(' ').unwrap_or(line).trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "\
#define NEAT_X(a) \\
    f(a);
/* Structs. */
struct s {
    int (*f)(int);
};
typedef void (*fn)(int);
/**
 * Does it. `x` counts.
 *
 * Thread: any.
 */
neater_status neater_do(int a,
                        int b);

/* A group. */
NEAT_EXTERN char *neat_a(void);
NEAT_EXTERN int neat_b(int a,
                       int b);
int other(void);
";

    #[test]
    fn functions_come_with_their_comment_and_their_declaration() {
        let found = functions(HEADER, |name| name.starts_with("neat"));
        let names: Vec<_> = found.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["neater_do", "neat_a", "neat_b"]);
        assert_eq!(found[0].comment, "Does it. `x` counts.\n\nThread: any.");
        assert_eq!(found[0].declaration, "neater_status neater_do(int a,\n                        int b);");
        assert_eq!((found[1].declaration.as_str(), found[1].comment.as_str()), ("char *neat_a(void);", "A group."));
        assert_eq!(found[2].declaration, "int neat_b(int a,\n           int b);");
        assert_eq!(found[2].comment, "");
    }
}
