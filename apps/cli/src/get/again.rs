//! The command that goes on where this one ended, for people to copy.
//!
//! *Invariants*: the value of a header field is not in it: it may be a password, and output goes to
//! terminals and logs.

use std::ffi::OsString;

/// The options of `get` that stand alone, and those of one letter that are followed by a value.
const ALONE: &str = "OCvhqskI46";
const WITH_VALUE: &str = "oPHiudXrx";

/// The options whose values may be secret.
const SECRET: [&str; 5] = ["--header", "--user", "--data", "--data-binary", "--proxy"];

/// The command that goes on where this one ended.
pub(super) fn resume_command() -> String {
    command(std::env::args_os().skip(1))
}

fn command(words: impl Iterator<Item = OsString>) -> String {
    // What is no text cannot be copied from a terminal either.
    let mut words: Vec<String> = words.map(|w| w.to_string_lossy().into_owned()).collect();
    let mut has = false;
    let mut i = 0;
    while i < words.len() && words[i] != "--" {
        has |= words[i] == "--continue";
        let next = i + 1;
        if let Some((option, field)) = words[i].split_once('=').filter(|(option, _)| SECRET.contains(option)) {
            words[i] = format!("{option}={}", hidden(option, field));
        } else if SECRET.contains(&&words[i][..]) {
            let option = words[i].clone();
            hide(&option, words.get_mut(next));
            i += 1;
        } else if words[i].starts_with('-') && !words[i].starts_with("--") {
            let short: Vec<char> = words[i].chars().skip(1).collect();
            let alone = short.iter().take_while(|c| ALONE.contains(**c)).count();
            has |= short[..alone].contains(&'C');
            match short.get(alone) {
                Some(c @ ('H' | 'u' | 'd' | 'x')) if short.len() > alone + 1 => {
                    let field: String = short[alone + 1..].iter().collect();
                    let field = hidden(&c.to_string(), field.strip_prefix('=').unwrap_or(&field));
                    words[i] = format!("-{}{c}{field}", short[..alone].iter().collect::<String>());
                }
                Some(c @ ('H' | 'u' | 'd' | 'x')) => {
                    hide(&c.to_string(), words.get_mut(next));
                    i += 1;
                }
                // Its value is the next word.
                Some(c) if WITH_VALUE.contains(*c) && short.len() == alone + 1 => i += 1,
                _ => {}
            }
        }
        i += 1;
    }
    if !has && let Some(i) = words.iter().position(|w| w == "get") {
        words.insert(i + 1, "-C".into());
    }
    let quoted = words.iter().map(|w| quote(w)).collect::<Vec<_>>();
    format!("neater {}", quoted.join(" "))
}

fn hide(option: &str, word: Option<&mut String>) {
    if let Some(word) = word {
        *word = hidden(option, word);
    }
}

/// The value of an option without what is secret in it: a header field without its value, a proxy
/// without name and password.
fn hidden(option: &str, field: &str) -> String {
    if matches!(option, "--proxy" | "x") {
        return field.rsplit_once('@').map_or_else(|| field.to_owned(), |(_, host)| format!("...@{host}"));
    }
    match field.split_once(':').filter(|(name, _)| !name.contains(|c: char| "={[&\"".contains(c))) {
        Some((name, _)) => format!("{name}: ..."),
        None => "...".to_owned(),
    }
}

/// A word as a shell takes it for one.
pub(crate) fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_would_take_apart_is_quoted() {
        assert_eq!(quote("https://h/a?b&c"), "'https://h/a?b&c'");
        assert_eq!(quote("it's"), r"'it'\''s'");
        assert_eq!(quote("a-b/c"), "a-b/c");
    }

    fn of(words: &[&str]) -> String {
        command(words.iter().map(OsString::from))
    }

    #[test]
    fn the_command_goes_on_and_tells_no_secret() {
        assert_eq!(of(&["get", "-O", "http://h/a"]), "neater get -C -O http://h/a");
        assert_eq!(of(&["get", "-OC", "http://h/a"]), "neater get -OC http://h/a");
        assert_eq!(of(&["get", "-o", "-C", "http://h/a"]), "neater get -C -o -C http://h/a", "a file's name");
        for words in [
            &["get", "-H", "Authorization: Bearer secret", "-O", "u"][..],
            &["get", "-OH", "Authorization: Bearer secret", "u"],
            &["get", "-HAuthorization: Bearer secret", "-O", "u"],
            &["get", "-OH=Authorization: Bearer secret", "u"],
            &["get", "--header", "Authorization: Bearer secret", "-O", "u"],
            &["get", "--header=Authorization: Bearer secret", "-O", "u"],
            &["get", "-H", "secret", "-O", "u"],
            &["get", "-u", "name:secret", "-O", "u"],
            &["get", "-Ouname:secret", "u"],
            &["get", "--user=name:secret", "-O", "u"],
            &["get", "--user", "name:secret", "-O", "u"],
            &["get", "-u", "name:very@secret", "-O", "u"],
            &["get", "-x", "http://me:secret@p:1", "-O", "u"],
            &["get", "-Oxme:secret@p:1", "u"],
            &["get", "--proxy", "me:secret@p:1", "-O", "u"],
            &["get", "--proxy=http://me:secret@p:1", "-O", "u"],
        ] {
            let shown = of(words);
            assert!(!shown.contains("secret") && shown.contains("...") && shown.contains(" -C "), "{shown}");
        }
        assert!(of(&["get", "-H"]).ends_with("-H"));
        assert_eq!(of(&["get", "-x", "http://me:secret@p:1", "u"]), "neater get -C -x ...@p:1 u");
        assert_eq!(of(&["get", "-x", "p:1", "--proxy=q:1", "u"]), "neater get -C -x p:1 --proxy=q:1 u");
    }

    #[test]
    fn words_that_are_no_text_are_no_end() {
        use std::os::unix::ffi::OsStringExt;
        let words = [OsString::from("get"), OsString::from_vec(b"-o\xff".to_vec()), OsString::from("u")];
        assert_eq!(command(words.into_iter()), "neater get -C '-o\u{fffd}' u");
    }
}
