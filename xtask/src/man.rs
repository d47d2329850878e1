//! `cargo xtask man`: the manual pages of the libraries.
//!
//! *Responsible for* an overview of libneat and of neater.h, and a page for each of their functions, written from the manuals in
//! `docs` and from the headers, so that they cannot differ. *Deliberately not*: the pages of the command, which `neater man` writes
//! from what it reads its arguments by. *Invariant*: every function of a header has a page; one without a description is an error.

mod header;
mod roff;

use header::Function;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// The texts that pages are written from.
pub(crate) struct Sources {
    pub(crate) version: String,
    /// `io/libneat/include/neat.h` and `docs/libneat.md`.
    pub(crate) neat: [String; 2],
    /// `io/neater-c/include/neater.h` and `docs/neater-h.md`.
    pub(crate) neater: [String; 2],
}

impl Sources {
    /// Reads them.
    ///
    /// # Errors
    /// The file that cannot be read.
    pub(crate) fn read(root: &Path) -> Result<Self, String> {
        let read = |path: &str| std::fs::read_to_string(root.join(path)).map_err(|e| format!("{path}: {e}"));
        Ok(Self {
            version: crate::workspace::version(&read("Cargo.toml")?)?,
            neat: [read("io/libneat/include/neat.h")?, read("docs/libneat.md")?],
            neater: [read("io/neater-c/include/neater.h")?, read("docs/neater-h.md")?],
        })
    }
}

/// The library whose pages are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    Neat,
    Neater,
}

/// A page of section 3: its name, and its text for man(1).
pub(crate) type Pages = BTreeMap<String, String>;

/// Writes all pages into `man3` of the folder.
///
/// # Errors
/// A function without a description, or a file that cannot be read or written.
pub(crate) fn chore(folder: &Path) -> Result<bool, String> {
    let sources = Sources::read(&crate::workspace::root())?;
    let mut count = 0;
    for library in [Library::Neat, Library::Neater] {
        count += write(&pages(&sources, library)?, folder)?;
    }
    println!("{count} pages in {}; those of the command: neater man {}", at(folder, "man3"), at(folder, "man1"));
    Ok(true)
}

fn at(folder: &Path, section: &str) -> String {
    folder.join(section).display().to_string()
}

/// Writes pages into `man3` of the folder; returns how many.
///
/// # Errors
/// The file that cannot be written.
pub(crate) fn write(pages: &Pages, folder: &Path) -> Result<usize, String> {
    let folder = folder.join("man3");
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for (name, text) in pages {
        let path = folder.join(format!("{name}.3"));
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(pages.len())
}

/// The pages of a library.
///
/// # Errors
/// A function without a description.
pub(crate) fn pages(sources: &Sources, library: Library) -> Result<Pages, String> {
    match library {
        Library::Neat => neat(sources),
        Library::Neater => neater(sources),
    }
}

fn neat(sources: &Sources) -> Result<Pages, String> {
    let [header, manual] = &sources.neat;
    let functions = header::functions(header, |name| !name.is_empty());
    let mut pages = Pages::new();
    pages.insert("libneat".into(), overview(sources, "libneat", "neat.h", manual)?);
    pages.insert("neat.h".into(), alias("libneat"));
    let rows = rows(manual, "## Functions");
    for (names, words) in &rows {
        let here: Vec<&Function> = functions.iter().filter(|f| names.contains(&f.name)).collect();
        if let Some(unknown) = names.iter().find(|name| !functions.iter().any(|f| f.name == **name)) {
            return Err(format!("docs/libneat.md describes {unknown}, which neat.h does not declare"));
        }
        let Some((first, others)) = here.split_first() else { continue };
        let about = first_sentence(words);
        let mut page = head(&first.name, "libneat", &sources.version);
        name_and_synopsis(&mut page, &here, &about, "neat.h", "libneat");
        let _ = write!(page, ".SH DESCRIPTION\n{}", roff::body(words));
        if here.iter().any(|f| f.declaration.starts_with("neat_error_code")) {
            page.push_str(
                ".SH RETURN VALUE\n.PP\n\\fBNEAT_ERROR_OK\\fR, or one of the numbers that \\fBlibneat\\fR(3) lists.\n",
            );
        }
        page.push_str(".SH SEE ALSO\n.PP\n\\fBlibneat\\fR(3)\n");
        pages.insert(first.name.clone(), page);
        pages.extend(others.iter().map(|f| (f.name.clone(), alias(&first.name))));
    }
    missing("docs/libneat.md", &functions, &pages)?;
    Ok(pages)
}

fn neater(sources: &Sources) -> Result<Pages, String> {
    let [header, manual] = &sources.neater;
    let functions = header::functions(header, |name| name.starts_with("neater_"));
    let mut pages = Pages::new();
    // A page has no table of contents with links.
    let manual: String =
        manual.lines().filter(|l| !l.starts_with("- [") || !l.contains("](#")).fold(String::new(), |mut all, line| {
            all.push_str(line);
            all.push('\n');
            all
        });
    pages.insert("libneater".into(), overview(sources, "libneater", "neater.h", &manual)?);
    pages.insert("neater.h".into(), alias("libneater"));
    for function in &functions {
        if function.comment.is_empty() {
            return Err(format!("neater.h has no description of {}", function.name));
        }
        let mut page = head(&function.name, "libneater", &sources.version);
        name_and_synopsis(&mut page, &[function], &first_sentence(&function.comment), "neater.h", "libneater");
        let (about, rules) = rules(&function.comment);
        let _ = write!(page, ".SH DESCRIPTION\n{}", roff::body(about));
        if function.declaration.starts_with("neater_status ") {
            page.push_str(
                ".SH RETURN VALUE\n.PP\n\\fBNEATER_OK\\fR, or a negative \\fBneater_status\\fR;\n\
                 \\fBneater_last_error\\fR(3) has the words.\n",
            );
        }
        if !rules.is_empty() {
            let _ = write!(page, ".SH OWNERSHIP AND THREADS\n{}", roff::body(rules));
        }
        page.push_str(".SH SEE ALSO\n.PP\n");
        for other in functions.iter().filter(|f| mentions(&function.comment, &f.name) && f.name != function.name) {
            let _ = writeln!(page, "\\fB{}\\fR(3),", other.name);
        }
        page.push_str("\\fBlibneater\\fR(3)\n");
        pages.insert(function.name.clone(), page);
    }
    missing("neater.h", &functions, &pages)?;
    Ok(pages)
}

fn missing(place: &str, functions: &[Function], pages: &Pages) -> Result<(), String> {
    let missing: Vec<&str> =
        functions.iter().map(|f| f.name.as_str()).filter(|name| !pages.contains_key(*name)).collect();
    if functions.is_empty() {
        return Err(format!("{place}: the header declares no function"));
    }
    if missing.is_empty() { Ok(()) } else { Err(format!("{place} does not describe {}", missing.join(", "))) }
}

/// The manual as a page.
fn overview(sources: &Sources, name: &str, include: &str, manual: &str) -> Result<String, String> {
    let (title, rest) = manual.split_once('\n').ok_or("an empty manual")?;
    let about = title.split_once(": ").ok_or_else(|| format!("the title `{title}` has no `: `"))?.1;
    let mut page = head(name, name, &sources.version);
    let _ = writeln!(page, ".SH NAME\n{name} \\- {}", roff::text(about));
    let _ = writeln!(page, ".SH SYNOPSIS\n.nf\n\\fB#include <{include}>\\fR\n.PP");
    let _ = writeln!(page, "cc program.c $(pkg\\-config \\-\\-cflags \\-\\-libs {name})\n.fi");
    let _ = write!(page, ".SH DESCRIPTION\n{}", roff::body(rest));
    Ok(page)
}

fn head(name: &str, library: &str, version: &str) -> String {
    format!(
        ".\\\" Written by `cargo xtask man`.\n.TH \"{}\" 3 \"\" \"{library} {version}\" \"neater\"\n",
        name.to_uppercase()
    )
}

fn alias(name: &str) -> String {
    format!(".so man3/{name}.3\n")
}

fn name_and_synopsis(page: &mut String, functions: &[&Function], about: &str, include: &str, library: &str) {
    let names: Vec<&str> = functions.iter().map(|f| f.name.as_str()).collect();
    let _ = writeln!(page, ".SH NAME\n{} \\- {}", names.join(", "), roff::text(about));
    let _ = writeln!(page, ".SH SYNOPSIS\n.nf\n\\fB#include <{include}>\\fR");
    for function in functions {
        let _ = writeln!(page, ".PP\n{}", roff::literal(&function.declaration));
    }
    let _ = writeln!(page, ".PP\ncc program.c $(pkg\\-config \\-\\-cflags \\-\\-libs {library})\n.fi");
}

/// The functions and the description of each row of the table below a heading.
fn rows(manual: &str, heading: &str) -> Vec<(Vec<String>, String)> {
    let section = manual.split_once(heading).map_or("", |(_, rest)| rest);
    let section = section.split_once("\n## ").map_or(section, |(own, _)| own);
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | "));
    cells.map(|(names, words)| (names.split("`, `").map(str::to_owned).collect(), words.to_owned())).collect()
}

/// The first sentence, without its end and in one line, for the line of a page's name.
fn first_sentence(words: &str) -> String {
    let line = words.split("\n\n").next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    let sentence = line.split_once(". ").map_or(line.as_str(), |(first, _)| first);
    sentence.trim_end_matches('.').replace(['`', '*'], "")
}

/// A description, and the paragraph behind it on ownership, lifetime and thread.
fn rules(comment: &str) -> (&str, &str) {
    match comment.rsplit_once("\n\n") {
        Some((about, last)) if ["Ownership:", "Lifetime:", "Thread:"].iter().any(|w| last.starts_with(w)) => {
            (about, last)
        }
        _ => (comment, ""),
    }
}

/// Whether the words name this function, and not one whose name is longer.
fn mentions(words: &str, name: &str) -> bool {
    words.contains(&format!("`{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn sources() -> Sources {
        Sources::read(&crate::workspace::root()).unwrap()
    }

    #[test]
    fn every_function_of_the_headers_has_a_page_that_says_something() {
        for (library, least) in [(Library::Neat, 40), (Library::Neater, 150)] {
            let pages = pages(&sources(), library).unwrap();
            assert!(pages.len() >= least, "{library:?}: {}", pages.len());
            for (name, text) in &pages {
                let real =
                    text.strip_prefix(".so man3/").map_or(text, |to| &pages[to.trim_end().trim_end_matches(".3")]);
                for section in [".SH NAME\n", ".SH SYNOPSIS\n", ".SH DESCRIPTION\n.PP\n"] {
                    assert!(real.contains(section), "{name}: {section}{real}");
                }
                let named = real.split_once(".SH NAME\n").and_then(|(_, r)| r.lines().next()).unwrap();
                assert!(named.split(" \\- ").nth(1).is_some_and(|about| about.len() > 4), "{name}: {named}");
            }
        }
    }

    #[test]
    fn a_function_that_the_manual_leaves_out_is_an_error() {
        let mut sources = sources();
        sources.neat[0].push_str("\nNEAT_EXTERN int neat_new_one(void);\n");
        assert_eq!(pages(&sources, Library::Neat).unwrap_err(), "docs/libneat.md does not describe neat_new_one");
        sources.neater[0].push_str("\nint neater_new_one(void);\n");
        assert_eq!(pages(&sources, Library::Neater).unwrap_err(), "neater.h has no description of neater_new_one");
    }

    #[test]
    fn a_page_shows_declaration_description_rules_and_relatives() {
        let page = &pages(&sources(), Library::Neater).unwrap()["neater_connection_free"];
        assert!(page.contains("\nvoid neater_connection_free(struct neater_connection *connection);\n"), "{page}");
        assert!(page.contains(".SH OWNERSHIP AND THREADS\n.PP\nOwnership:"), "{page}");
        let page = &pages(&sources(), Library::Neater).unwrap()["neater_remote_endpoint_new"];
        assert!(page.contains("\\fBneater_remote_endpoint_free\\fR(3),\n\\fBlibneater\\fR(3)\n"), "{page}");
        assert!(page.contains(".SH RETURN VALUE\n"), "{page}");
    }

    /// groff is the judge where it is installed.
    #[test]
    fn pages_are_formatted_without_a_warning() {
        let groff = |text: &str| {
            let mut child = Command::new("groff")
                .args(["-man", "-Kutf8", "-Tutf8", "-ww", "-z"])
                .stdin(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .ok()?;
            std::io::Write::write_all(&mut child.stdin.take()?, text.as_bytes()).ok()?;
            Some(String::from_utf8_lossy(&child.wait_with_output().ok()?.stderr).into_owned())
        };
        if groff(".TH X 3\n").is_none() {
            eprintln!("SKIPPED: no groff (package groff)");
            return;
        }
        for library in [Library::Neat, Library::Neater] {
            // All of them at once: a program for each would take seconds.
            let all: String =
                pages(&sources(), library).unwrap().into_values().filter(|p| !p.starts_with(".so ")).collect();
            assert_eq!(groff(&all).unwrap(), "", "{library:?}");
        }
    }
}
