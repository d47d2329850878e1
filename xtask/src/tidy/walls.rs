//! How far the engine is one object, and how far the project has one language, in figures, each
//! with the bound that it is to keep.
//!
//! *Responsible for* the table of bounds, for failing when a figure gets worse, and for printing
//! all of them. *Deliberately not*: types of expressions. What the figures count is read by syn,
//! and where that does not suffice the module says how it is approximated.

mod circles;
mod functions;
mod protocols;
mod sources;

use super::{Finding, language};
use crate::workspace::{self, Files};
use circles::Arrows;
use functions::Functions;
use sources::Sources;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The crate that is measured.
const CRATE: &str = "crates/engine/src/";
/// Where the language is measured.
const ALL: &str = "crates, io, apps";

/// Between a file of a circle and those that it leads to.
const TO: &str = " -> ";

/// A figure, its bound, and what it was when it was last written down here.
struct Wall {
    figure: &'static str,
    meaning: &'static str,
    bound: usize,
    /// The figure must not get worse than this, until it is within the bound. Write down a better
    /// one in the change that brings it.
    recorded: usize,
}

const fn wall(figure: &'static str, bound: usize, recorded: usize, meaning: &'static str) -> Wall {
    Wall { figure, meaning, bound, recorded }
}

/// The walls.
const WALLS: [Wall; 11] = [
    wall("engine_methods", 250, 408, "methods of Engine, and functions outside carrier/ that take it"),
    wall("engine_impl_blocks", 20, 20, "`impl Engine` blocks"),
    wall("engine_fields", 25, 22, "fields of Engine"),
    wall("largest_circle", 12, 7, "files in the largest circle, those of engine/ as one"),
    wall("protocol_names_outside_carrier", 0, 0, "identifiers that name a protocol outside carrier/"),
    wall("largest_type", 120, 147, "methods of the type other than Engine that has most"),
    wall("carrier_circles", 0, 0, "files of carrier/ in a circle with a file outside"),
    wall("engine_impls_outside", 0, 0, "files outside engine/ with an `impl Engine`"),
    wall("engine_types_used", 0, 0, "types of engine/, but for Engine, that other files use"),
    wall("avoided_words", 0, 0, "words to avoid in comments and texts of crates, io and apps"),
    wall("lines_over_100", 0, 0, "lines of comments over 100 columns there"),
];

/// What one figure is.
#[derive(Debug, Default, PartialEq, Eq)]
struct Figure {
    value: usize,
    /// Whose figure it is, where one thing has it.
    of: Option<String>,
    /// What it consists of, the largest part first where parts have a size.
    parts: Vec<String>,
}

impl Figure {
    fn of_parts(parts: Vec<String>) -> Self {
        Self { value: parts.len(), of: None, parts }
    }

    /// A count by file.
    fn by_file(files: impl IntoIterator<Item = String>) -> Self {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for file in files {
            *counts.entry(file).or_default() += 1;
        }
        Self::table(counts.into_iter().collect())
    }

    fn table(mut counts: Vec<(String, usize)>) -> Self {
        counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        Self {
            value: counts.iter().map(|(_, count)| count).sum(),
            of: None,
            parts: counts.into_iter().map(|(file, count)| format!("{file} {count}")).collect(),
        }
    }
}

/// The figures of the crate, by their names.
type Figures = BTreeMap<&'static str, Figure>;

/// A finding for each figure that is worse than it may be, and a warning for each that may be
/// written down as better.
pub(super) fn check(files: &Files) -> Vec<Finding> {
    let place = CRATE.trim_end_matches('/');
    let ours = files.iter().filter_map(|(path, text)| Some((path.strip_prefix(CRATE)?.to_owned(), text.clone())));
    let mut findings = match measure(&ours.collect()) {
        Ok(figures) => judge_all(place, &figures),
        Err(why) => vec![Finding::error(place, why)],
    };
    findings.extend(judge_all(ALL, &measure_language(files)));
    findings
}

fn judge_all(place: &str, figures: &Figures) -> Vec<Finding> {
    WALLS.iter().filter_map(|wall| judge(place, wall, figures.get(wall.figure)?)).collect()
}

fn judge(place: &str, wall: &Wall, figure: &Figure) -> Option<Finding> {
    /// How many parts are named.
    const PARTS: usize = 8;
    let Wall { figure: name, meaning, bound, recorded } = wall;
    let (value, limit) = (figure.value, (*recorded).max(*bound));
    if value > limit {
        let known = if recorded > bound {
            format!("{recorded} recorded in {} (bound: {bound})", file!())
        } else {
            format!("the bound, {bound}")
        };
        let names = figure.of.iter().chain(&figure.parts).map(|part| part.split(TO).next().unwrap_or(part));
        let mut message = format!("{name} ({meaning}) is {value}, more than {known}");
        for (at, part) in names.take(PARTS).enumerate() {
            let _ = write!(message, "{}{part}", if at == 0 { ": " } else { ", " });
        }
        if figure.parts.len() > PARTS {
            message += ", ...";
        }
        return Some(Finding::error(place, message));
    }
    // What is within a twentieth need not be written down each time.
    (recorded > bound && value + recorded / 20 < *recorded).then(|| {
        Finding::warning(place, format!("{name} is {value}, better than {recorded}: record it in {}", file!()))
    })
}

/// Prints all figures, or only their values as one line of JSON.
///
/// # Errors
/// When the crate cannot be read.
pub(super) fn print(json: bool) -> Result<bool, String> {
    let mut figures = measure(&workspace::text_files(&workspace::root().join(CRATE))?)?;
    figures.extend(measure_language(&workspace::text_files(&workspace::root())?));
    if json {
        println!("{}", line(&figures));
    } else {
        print!("{}", table(&figures));
    }
    Ok(true)
}

fn line(figures: &Figures) -> String {
    let value = |figure: &Figure| match &figure.of {
        Some(of) => serde_json::json!([of, figure.value]),
        None => figure.value.into(),
    };
    // In the order of the table, which a map would not keep.
    let entries =
        WALLS.iter().filter_map(|wall| Some(format!("\"{0}\":{1}", wall.figure, value(figures.get(wall.figure)?))));
    format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
}

fn table(figures: &Figures) -> String {
    let mut text = format!("{:<32}{:>7}{:>10}{:>7}\n", "figure", "value", "recorded", "bound");
    let mut parts = String::new();
    for Wall { figure: name, meaning, bound, recorded } in &WALLS {
        let Some(figure) = figures.get(name) else { continue };
        let of = figure.of.as_ref().map(|of| format!(" ({of})")).unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<32}{:>7}{recorded:>10}{bound:>7}  {meaning}{of}", figure.value);
        if !figure.parts.is_empty() {
            let _ = writeln!(parts, "\n{name}");
        }
        for part in &figure.parts {
            let _ = writeln!(parts, "  {part}");
        }
    }
    text + &parts
}

/// Measures the crate whose `src` folder has these files.
fn measure(files: &Files) -> Result<Figures, String> {
    let sources = Sources::read(files)?;
    let engine = sources.engine().ok_or("engine/ defines no type `Engine`")?;
    let functions = Functions::of(&sources);
    let arrows = Arrows::of(&sources, &functions);
    let path = |file: usize| sources.files[file].path.clone();

    let methods = functions.of_engine(&sources).map(|function| path(function.file));
    let blocks: Vec<String> =
        functions.blocks.iter().filter(|(_, of)| *of == engine).map(|(file, _)| path(*file)).collect();
    let outside: BTreeSet<&String> = blocks.iter().filter(|path| !in_engine(path)).collect();
    let circle = arrows.circles().into_iter().next().unwrap_or_default();
    let (largest, methods_of_largest) = functions.largest_type(&sources).unwrap_or_default();
    Ok(Figures::from([
        ("engine_methods", Figure::by_file(methods)),
        ("engine_impl_blocks", Figure::by_file(blocks.iter().cloned())),
        ("engine_fields", Figure { value: sources.defs[engine].fields, ..Figure::default() }),
        (
            "largest_circle",
            Figure {
                // A file alone is no circle, but the least that there can be.
                value: circle.len().max(1),
                of: None,
                parts: circle.iter().map(|from| format!("{from}{TO}{}", arrows.within(&circle, from))).collect(),
            },
        ),
        ("protocol_names_outside_carrier", Figure::table(protocols::outside_carrier(&sources))),
        ("largest_type", Figure { value: methods_of_largest, of: Some(largest), parts: Vec::new() }),
        ("carrier_circles", Figure::of_parts(arrows.carrier_circles())),
        ("engine_impls_outside", Figure::of_parts(outside.into_iter().cloned().collect())),
        ("engine_types_used", Figure::of_parts(arrows.engine_types.iter().cloned().collect())),
    ]))
}

/// Measures the language of the whole project.
fn measure_language(files: &Files) -> Figures {
    Figures::from([
        ("avoided_words", Figure::of_parts(language::avoided(files))),
        ("lines_over_100", Figure::of_parts(language::long_lines(files))),
    ])
}

/// Whether a file of the crate is the engine's own.
fn in_engine(path: &str) -> bool {
    path == "engine.rs" || path.starts_with("engine/")
}

/// Whether a file of the crate is a carrier's.
fn in_carrier(path: &str) -> bool {
    path == "carrier.rs" || path.starts_with("carrier/")
}

#[cfg(test)]
fn read(files: &[(&str, &str)]) -> Sources {
    Sources::read(&texts("", files)).unwrap()
}

#[cfg(test)]
fn texts(folder: &str, files: &[(&str, &str)]) -> Files {
    files.iter().map(|(path, text)| (format!("{folder}{path}"), (*text).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    const SMALL: &[(&str, &str)] = &[
        ("lib.rs", "mod engine; mod conn; mod carrier;"),
        (
            "engine.rs",
            "use crate::conn::Conn; pub struct Engine { conns: Vec<Conn>, udp: u8 } pub enum Timer {} impl Engine { fn turn(&mut self) {} }",
        ),
        (
            "conn.rs",
            "use crate::engine::{Engine, Timer}; pub struct Conn; impl Conn { fn a(&self) {} fn b(&self) {} }
             impl Engine { fn close(&mut self) {} }",
        ),
        ("carrier/mod.rs", "use crate::conn::Conn; pub struct Tcp;"),
    ];

    fn judged(bound: usize, recorded: usize, value: usize) -> Option<Finding> {
        let parts = (0..10).map(|at| format!("{at}.rs{TO}other.rs")).collect();
        judge("here", &wall("size", bound, recorded, "what it is"), &Figure { value, of: None, parts })
    }

    #[test]
    fn a_crate_is_measured_and_its_figures_are_one_line_of_json() {
        let figures = measure(&texts("", SMALL)).unwrap();
        assert_eq!(
            line(&figures),
            "{\"engine_methods\":2,\"engine_impl_blocks\":2,\"engine_fields\":2,\"largest_circle\":2,\
             \"protocol_names_outside_carrier\":1,\"largest_type\":[\"Conn\",2],\"carrier_circles\":0,\
             \"engine_impls_outside\":1,\"engine_types_used\":1}"
        );
        assert_eq!(
            figures["largest_circle"].parts,
            ["conn.rs -> engine/ (Engine, Timer)", "engine/ -> conn.rs (Conn)"]
        );
        assert_eq!(figures["engine_impls_outside"].parts, ["conn.rs"]);
    }

    #[test]
    fn every_wall_has_its_line_in_the_table() {
        let mut figures = measure(&texts("", SMALL)).unwrap();
        figures.extend(measure_language(&texts("crates/a/src/", &[("b.rs", "// nobody\n")])));
        let text = table(&figures);
        for wall in &WALLS {
            assert!(text.lines().any(|line| line.starts_with(wall.figure) && line.contains(wall.meaning)), "{text}");
        }
        assert!(text.contains("\nengine_methods\n  conn.rs 1\n  engine.rs 1\n"), "{text}");
        assert!(text.contains("\navoided_words\n  crates/a/src/b.rs:1 `nobody` "), "{text}");
        assert!(line(&figures).ends_with(",\"avoided_words\":1,\"lines_over_100\":0}"), "{}", line(&figures));
    }

    #[test]
    fn a_figure_that_is_worse_than_recorded_fails_and_names_its_parts() {
        let finding = judged(5, 40, 41).unwrap().to_string();
        assert!(
            finding.starts_with("error: here: size (what it is) is 41, more than 40 recorded in xtask"),
            "{finding}"
        );
        assert!(finding.ends_with(" (bound: 5): 0.rs, 1.rs, 2.rs, 3.rs, 4.rs, 5.rs, 6.rs, 7.rs, ..."), "{finding}");
        assert_eq!(judged(5, 40, 40), None);
    }

    #[test]
    fn what_was_recorded_within_the_bound_does_not_count() {
        assert_eq!(judged(5, 3, 5), None);
        assert!(judged(5, 3, 6).unwrap().message.starts_with("size (what it is) is 6, more than the bound, 5: 0.rs"));
    }

    #[test]
    fn a_figure_that_is_much_better_than_recorded_is_to_be_recorded() {
        assert_eq!(judged(5, 40, 38), None);
        let finding = judged(5, 40, 37).unwrap();
        assert_eq!(finding.severity, Severity::Warning);
        assert!(finding.message.starts_with("size is 37, better than 40: record it in "), "{finding}");
    }

    #[test]
    fn only_the_files_of_the_crate_are_measured_and_it_must_have_an_engine() {
        let mut files = texts(CRATE, SMALL);
        files.insert("crates/other/src/lib.rs".to_owned(), "does not parse".to_owned());
        assert!(check(&files).iter().all(|finding| !finding.message.contains("parse")));
        files.insert("apps/a/src/lib.rs".to_owned(), "// It tells.\n".to_owned());
        let found = check(&files);
        assert!(
            found.iter().any(|f| f.to_string().starts_with("error: crates, io, apps: avoided_words (")
                && f.message.ends_with("distinguish)")),
            "{found:?}"
        );
        files.remove("apps/a/src/lib.rs");
        files.insert(format!("{CRATE}engine.rs"), "pub struct Motor;".to_owned());
        let of_crate: Vec<_> =
            check(&files).into_iter().filter(|finding| finding.place == "crates/engine/src").collect();
        assert_eq!(of_crate, [Finding::error("crates/engine/src", "engine/ defines no type `Engine`")]);
    }
}
