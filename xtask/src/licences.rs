//! `cargo xtask licences`: what we link may be linked by everybody.
//!
//! *Responsible for* the licence, ban and source checks of `deny.toml` over the whole lock file, for machines on which
//! building cargo-deny would take longer than everything else. *Deliberately not*: advisories, which need a database from
//! the network; cargo-deny does those where it is installed. The lists live in `deny.toml` alone; both read them there.

use crate::workspace;
use serde_json::Value;

/// One crate of the lock file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Crate {
    name: String,
    version: String,
    licence: Option<String>,
    /// `None` for our own.
    source: Option<String>,
}

/// The lists of `deny.toml`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Lists {
    licences: Vec<String>,
    banned: Vec<String>,
    registries: Vec<String>,
    /// Crates that may be under other licences besides, each with these.
    exceptions: Vec<(String, Vec<String>)>,
}

/// Checks every crate in the lock file; false if one may not be there.
///
/// # Errors
/// When `deny.toml` or the lock file cannot be read.
pub(crate) fn chore() -> Result<bool, String> {
    let root = workspace::root();
    let text = std::fs::read_to_string(root.join("deny.toml")).map_err(|e| format!("deny.toml: {e}"))?;
    let lists = lists(&text)?;
    let crates = crates(&workspace::metadata(&root, &["--locked"])?)?;
    let problems: Vec<String> = crates.iter().flat_map(|c| problems(c, &lists)).collect();
    for problem in &problems {
        println!("error: {problem}");
    }
    println!("licences: {} crates, {} errors", crates.len(), problems.len());
    Ok(problems.is_empty())
}

fn crates(metadata: &Value) -> Result<Vec<Crate>, String> {
    let text = |package: &Value, key: &str| package.get(key).and_then(Value::as_str).map(str::to_owned);
    workspace::array(metadata, "packages")?
        .iter()
        .map(|package| {
            Ok(Crate {
                name: workspace::string(package, "name")?.to_owned(),
                version: workspace::string(package, "version")?.to_owned(),
                licence: text(package, "license"),
                source: text(package, "source"),
            })
        })
        .collect()
}

fn problems(c: &Crate, lists: &Lists) -> Vec<String> {
    let mut problems = Vec::new();
    let name = format!("{} {}", c.name, c.version);
    if lists.banned.contains(&c.name) {
        problems.push(format!("{name} is banned (deny.toml says why)"));
    }
    if let Some(source) = &c.source {
        let registry = source.strip_prefix("registry+").or_else(|| source.strip_prefix("sparse+")).unwrap_or(source);
        if !lists.registries.iter().any(|allowed| allowed == registry) {
            problems.push(format!("{name} comes from {source}, not from {}", lists.registries.join(" or ")));
        }
    }
    match &c.licence {
        None => problems.push(format!("{name} does not state a licence")),
        Some(expression) => match permitted(expression, &lists.allowed(&c.name)) {
            Ok(true) => {}
            Ok(false) => {
                problems.push(format!("{name} is under {expression}, which the allowed licences do not satisfy"))
            }
            Err(why) => {
                problems.push(format!("{name}: the licence expression `{expression}` is not understood: {why}"))
            }
        },
    }
    problems
}

impl Lists {
    /// The licences under which a crate may be.
    fn allowed(&self, name: &str) -> Vec<String> {
        let more = self.exceptions.iter().filter(|(of, _)| of == name).flat_map(|(_, licences)| licences);
        self.licences.iter().chain(more).cloned().collect()
    }
}

/// Whether the SPDX expression can be satisfied by licences that are `allowed`. The old `A/B` means `A OR B`.
fn permitted(expression: &str, allowed: &[String]) -> Result<bool, String> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let result = any_of(&mut words, allowed, 0)?;
    match words.next() {
        None => Ok(result),
        Some(word) => Err(format!("`{word}` stands where it should end")),
    }
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

/// Parentheses in an expression, one in the other: more is not an honest licence.
const DEEPEST: usize = 8;

fn any_of(words: &mut Words<'_>, allowed: &[String], depth: usize) -> Result<bool, String> {
    let mut result = all_of(words, allowed, depth)?;
    while words.next_if_eq(&"OR").is_some() {
        result |= all_of(words, allowed, depth)?;
    }
    Ok(result)
}

fn all_of(words: &mut Words<'_>, allowed: &[String], depth: usize) -> Result<bool, String> {
    let mut result = one(words, allowed, depth)?;
    while words.next_if_eq(&"AND").is_some() {
        result &= one(words, allowed, depth)?;
    }
    Ok(result)
}

fn one(words: &mut Words<'_>, allowed: &[String], depth: usize) -> Result<bool, String> {
    match words.next() {
        Some("(") if depth < DEEPEST => {
            let result = any_of(words, allowed, depth + 1)?;
            words.next_if_eq(&")").map(|_| result).ok_or_else(|| "a parenthesis is not closed".to_owned())
        }
        None | Some("AND" | "OR" | "WITH" | "(" | ")") => Err("a licence is missing".to_owned()),
        Some(id) => {
            let id = match words.next_if_eq(&"WITH") {
                Some(_) => format!("{id} WITH {}", words.next().ok_or("an exception is missing")?),
                None => id.to_owned(),
            };
            Ok(allowed.contains(&id))
        }
    }
}

/// Reads the lists of `deny.toml`: the little TOML that this file uses, arrays of strings and of `{ crate = "…" }`.
fn lists(text: &str) -> Result<Lists, String> {
    let plain = |section, key| Ok::<_, String>(strings(array(text, section, key)?));
    let banned = array(text, "bans", "deny")?;
    let banned = banned.split("crate = ").skip(1).filter_map(|rest| strings(rest).into_iter().next()).collect();
    let (licences, registries) = (plain("licenses", "allow")?, plain("sources", "allow-registry")?);
    Ok(Lists { licences, banned, registries, exceptions: exceptions(text)? })
}

/// The tables `[[licenses.exceptions]]`.
fn exceptions(text: &str) -> Result<Vec<(String, Vec<String>)>, String> {
    let tables = text.split("\n[[licenses.exceptions]]\n").skip(1);
    tables
        .map(|table| {
            let table = table.split_once("\n[").map_or(table, |(own, _)| own);
            let name = table.split_once("crate = ").and_then(|(_, rest)| strings(rest).into_iter().next());
            let allow = table.split_once("allow = [").and_then(|(_, rest)| rest.split_once(']'));
            let missing = "deny.toml: an exception of licences without `crate` or `allow`";
            Ok((name.ok_or(missing)?, strings(allow.ok_or(missing)?.0)))
        })
        .collect()
}

/// What stands between the brackets of `key = [ … ]` in `[section]`.
fn array<'a>(text: &'a str, section: &str, key: &str) -> Result<&'a str, String> {
    let missing = || format!("deny.toml: no array `{key}` in [{section}]");
    let body = text.split_once(&format!("\n[{section}]\n")).ok_or_else(missing)?.1;
    let body = body.split_once("\n[").map_or(body, |(own, _)| own);
    let start = format!("{key} = [");
    let at = if body.starts_with(&start) { 0 } else { 1 + body.find(&format!("\n{start}")).ok_or_else(missing)? };
    let rest = &body[at + start.len()..];
    rest.split_once(']').map(|(inside, _)| inside).ok_or_else(missing)
}

/// The quoted strings of `text`, comments left out.
fn strings(text: &str) -> Vec<String> {
    let code = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    code.flat_map(|line| line.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed() -> Vec<String> {
        ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "ISC"].map(str::to_owned).to_vec()
    }

    fn a_crate(licence: Option<&str>, source: Option<&str>) -> Crate {
        Crate {
            name: "x".into(),
            version: "1".into(),
            licence: licence.map(str::to_owned),
            source: source.map(str::to_owned),
        }
    }

    fn some_lists() -> Lists {
        Lists {
            licences: allowed(),
            banned: vec!["openssl".into()],
            registries: vec!["https://r/index".into()],
            exceptions: vec![("a-tool".into(), vec!["MPL-2.0".into()])],
        }
    }

    #[test]
    fn an_exception_is_of_one_crate_alone() {
        let mut c = a_crate(Some("MPL-2.0"), Some("registry+https://r/index"));
        assert_eq!(problems(&c, &some_lists()).len(), 1);
        c.name = "a-tool".into();
        assert_eq!(problems(&c, &some_lists()), Vec::<String>::new());
        let text =
            "\n[[licenses.exceptions]]\n# why\ncrate = \"a-tool\"\nallow = [\"MPL-2.0\"]\n\n[bans]\nallow = [\"x\"]\n";
        assert_eq!(exceptions(text), Ok(some_lists().exceptions));
        assert!(exceptions("\n[[licenses.exceptions]]\nallow = [\"MIT\"]\n").is_err());
    }

    #[test]
    fn an_expression_is_permitted_if_some_choice_of_it_is() {
        for expression in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "Apache-2.0 AND ISC",
            "(GPL-3.0 OR MIT) AND ISC",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert_eq!(permitted(expression, &allowed()), Ok(true), "{expression}");
        }
        for expression in ["GPL-3.0", "MIT AND GPL-3.0", "(MIT OR ISC) AND MPL-2.0", "MIT WITH odd-exception"] {
            assert_eq!(permitted(expression, &allowed()), Ok(false), "{expression}");
        }
    }

    #[test]
    fn and_binds_tighter_than_or() {
        assert_eq!(permitted("MIT OR GPL-3.0 AND GPL-2.0", &allowed()), Ok(true));
        assert_eq!(permitted("GPL-3.0 AND MIT OR GPL-2.0", &allowed()), Ok(false));
    }

    #[test]
    fn a_malformed_expression_is_an_error_and_not_a_yes() {
        for expression in ["", "MIT OR", "(MIT", "MIT)", "MIT MIT", "AND", "MIT WITH", &"(".repeat(100_000)] {
            assert!(permitted(expression, &allowed()).is_err(), "{expression:.20}");
        }
    }

    #[test]
    fn a_banned_name_a_foreign_source_and_a_missing_licence_are_problems() {
        let fine = a_crate(Some("MIT"), Some("registry+https://r/index"));
        assert!(problems(&fine, &some_lists()).is_empty());
        assert!(problems(&a_crate(Some("MIT"), None), &some_lists()).is_empty());
        assert!(problems(&a_crate(None, None), &some_lists())[0].contains("does not state"));
        assert!(problems(&a_crate(Some("MIT"), Some("git+https://g/x")), &some_lists())[0].contains("comes from git"));
        assert!(problems(&Crate { name: "openssl".into(), ..fine }, &some_lists())[0].contains("banned"));
    }

    #[test]
    fn the_lists_of_a_deny_file_are_read_without_their_comments() {
        let text = "# x\n[licenses]\nallow = [\n  \"MIT\", # \"GPL-3.0\"\n  \"ISC\",\n]\nother = [\"no\"]\n\n[bans]\ndeny = [\n  { crate = \"a\", reason = \"b\" },\n  { crate = \"c\", reason = \"d\" },\n]\n\n[sources]\nallow-registry = [\"https://r/index\"]\n";
        let got = lists(text).unwrap();
        assert_eq!(got.licences, ["MIT", "ISC"]);
        assert_eq!(got.banned, ["a", "c"]);
        assert_eq!(got.registries, ["https://r/index"]);
        assert!(lists("\n[licenses]\n").unwrap_err().contains("no array"));
    }

    #[test]
    fn our_own_deny_file_bans_a_second_tls_and_a_second_runtime() {
        let lists = lists(include_str!("../../deny.toml")).unwrap();
        for name in ["openssl", "native-tls", "async-std"] {
            assert!(lists.banned.iter().any(|b| b == name), "{name}");
        }
        assert!(lists.licences.iter().any(|l| l == "Apache-2.0"));
        assert_eq!(lists.registries, ["https://github.com/rust-lang/crates.io-index"]);
    }
}
