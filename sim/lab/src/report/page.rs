//! One page of everything that was measured: self-contained, for light and dark screens and for paper.
//!
//! *Responsible for* what a reader needs to judge each experiment: what was asked, the published result beside ours, the
//! figures with their bounds met or missed and by how much, runs that say nothing marked as void, the drawings, how to
//! repeat it, and where the raw data is. *Not for* measuring: it reads what `run` has kept, also of another version.
//!
//! *Invariants*: the page fetches nothing; whatever comes from a file is escaped, and a drawing with anything in it that is
//! not drawn is refused.

use super::number;
use super::record::{Beside, Record};
use crate::measure::{MeasureError, Result};
use crate::plot::escape;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The largest file that is read, in bytes.
const SIZE_MAX: u64 = 64 << 20;
/// More figures than this are folded away below those that have a bound.
const FOLD: usize = 30;
const STYLE: &str = include_str!("page.css");
/// The elements that our drawings consist of.
const ELEMENTS: [&str; 6] = ["svg", "rect", "line", "text", "polyline", "path"];

/// A figure as it was kept.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Kept {
    name: String,
    variant: String,
    value: Option<f64>,
    unit: String,
    runs: usize,
    needs: usize,
    ci_low: Option<f64>,
    ci_high: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
    bound: Option<f64>,
    bound_kind: Option<String>,
    met: Option<bool>,
    not_judged: bool,
    unoptimised: bool,
    void: bool,
    void_why: Option<String>,
    missing: Option<String>,
    published: Option<String>,
}

fn failed<T>(path: &Path, why: impl std::fmt::Display) -> Result<T> {
    Err(MeasureError::Failed(format!("{}: {why}", path.display())))
}

fn read(path: &Path) -> Result<String> {
    match fs::metadata(path) {
        Ok(m) if m.len() > SIZE_MAX => failed(path, format_args!("larger than {} MiB", SIZE_MAX >> 20)),
        Ok(_) => fs::read_to_string(path).or_else(|e| failed(path, e)),
        Err(e) => failed(path, e),
    }
}

fn parse<T: DeserializeOwned>(path: &Path) -> Result<T> {
    // The error has the line and the column.
    serde_json::from_str(&read(path)?)
        .or_else(|e| failed(path, format_args!("{e}; measure the experiment again, or move its directory away")))
}

/// Writes the page of all experiments under `dir`, and returns how many there are.
///
/// # Errors
/// There is none; a file cannot be read, makes no sense, or cannot be written.
pub fn write(dir: &Path, output: &Path) -> Result<usize> {
    let entries = fs::read_dir(dir).or_else(|e| failed(dir, e))?;
    let mut names: Vec<String> = entries
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .filter(|n| dir.join(n).join("experiment.json").is_file())
        .collect();
    names.sort_by_key(|n| (n.chars().next(), n.len(), n.clone()));
    if names.is_empty() {
        return failed(dir, "no experiment was kept here; run some with: neater-lab run ID --out DIR");
    }
    let mut sections = String::new();
    let mut rows = String::new();
    for name in &names {
        let home = dir.join(name);
        let record: Record = parse(&home.join("experiment.json"))?;
        let figures: Vec<Kept> = parse(&home.join("figures.json"))?;
        rows.push_str(&index_row(&record, &figures));
        section(&mut sections, &record, &figures, &home, &link_to(&home, output))?;
    }
    let page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>neater: what was measured</title>\n<style>\n{STYLE}</style></head><body>\n\
         <h1>neater: what was measured</h1>\n\
         <p>One row for each experiment. A bound is what we set ourselves before measuring; a void run says nothing: \
         its control was too restless, or what is said beside it. A figure from fewer runs than it needs is not judged: \
         the next runs could turn the verdict.</p>\n\
         <div class=\"wide\"><table><thead><tr><th>experiment</th><th>form</th><th class=\"n\">figures</th>\
         <th class=\"n\">bounds met</th><th class=\"n\">missed</th><th class=\"n\">not judged</th><th class=\"n\">void</th>\
         <th class=\"n\">not measured</th></tr></thead><tbody>\n{rows}</tbody></table></div>\n{sections}</body></html>\n"
    );
    fs::write(output, page).or_else(|e| failed(output, e))?;
    Ok(names.len())
}

/// The way from the page to an experiment's directory.
fn link_to(home: &Path, output: &Path) -> String {
    let base = output.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (home.canonicalize(), base.canonicalize()) {
        (Ok(home), Ok(base)) => match home.strip_prefix(&base) {
            Ok(relative) => relative.display().to_string(),
            Err(_) => home.display().to_string(),
        },
        _ => home.display().to_string(),
    }
}

struct Counts {
    met: usize,
    missed: usize,
    not_judged: usize,
    void: usize,
    missing: usize,
}

fn count(figures: &[Kept]) -> Counts {
    let n = |test: &dyn Fn(&Kept) -> bool| figures.iter().filter(|f| test(f)).count();
    Counts {
        met: n(&|f| !f.void && f.met == Some(true)),
        missed: n(&|f| !f.void && f.met == Some(false)),
        not_judged: n(&|f| f.not_judged),
        void: n(&|f| f.void),
        missing: n(&|f| f.value.is_none()),
    }
}

fn form(record: &Record) -> String {
    let runs = record.runs.map_or_else(String::new, |n| format!(", {n} run{} each", if n == 1 { "" } else { "s" }));
    format!("{}{runs}", if record.quick { "quick" } else { "full" })
}

fn index_row(record: &Record, figures: &[Kept]) -> String {
    let Counts { met, missed, not_judged, void, missing } = count(figures);
    let cell = |n: usize, class: &str| {
        let class = if n > 0 { class } else { "" };
        format!("<td class=\"n {class}\">{n}</td>")
    };
    format!(
        "<tr><td><a href=\"#{id}\">{}</a></td><td>{}</td><td class=\"n\">{}</td>{}{}{}{}{}</tr>\n",
        escape(&record.title),
        form(record),
        figures.len(),
        cell(met, "met"),
        cell(missed, "missed"),
        cell(not_judged, "void"),
        cell(void, "void"),
        cell(missing, "void"),
        id = escape(&record.id),
    )
}

fn section(out: &mut String, record: &Record, figures: &[Kept], home: &Path, link: &str) -> Result<()> {
    let _ = writeln!(out, "<section id=\"{}\"><h2>{}</h2>", escape(&record.id), escape(&record.title));
    let _ = writeln!(out, "<p class=\"asked\">{}</p>", escape(&record.asked));
    let _ = writeln!(out, "<p>{}</p>", escape(&record.method));
    if !record.parameters.is_empty() {
        out.push_str("<dl>");
        for (k, v) in &record.parameters {
            let _ = write!(out, "<dt>{}</dt><dd>{}</dd>", escape(k), escape(v));
        }
        out.push_str("</dl>\n");
    }
    beside(out, &record.beside);
    judged(out, figures);
    for remark in &record.remarks {
        let _ = writeln!(out, "<p class=\"remark\">{}</p>", escape(remark));
    }
    for drawing in &record.drawings {
        let path = home.join(format!("{}.svg", drawing.file));
        let svg = read(&path)?;
        if let Err(why) = harmless(&svg) {
            return failed(&path, why);
        }
        let _ = writeln!(out, "<figure>{svg}</figure>");
    }
    others(out, figures);
    footer(out, record, link);
    out.push_str("</section>\n");
    Ok(())
}

fn beside(out: &mut String, rows: &[Beside]) {
    if rows.is_empty() {
        return;
    }
    out.push_str(
        "<h3>Published and ours</h3><div class=\"wide\"><table><thead><tr><th></th><th>published</th><th>ours</th>\
         <th>source</th></tr></thead><tbody>\n",
    );
    for b in rows {
        let cells = [&b.what, &b.published, &b.ours, &b.source].map(|c| format!("<td>{}</td>", escape(c)));
        let _ = writeln!(out, "<tr>{}</tr>", cells.concat());
    }
    out.push_str("</tbody></table></div>\n");
}

const HEAD: &str = "<div class=\"wide\"><table><thead><tr><th>figure</th><th>variant</th><th class=\"n\">value</th>\
                    <th class=\"n\">from – to</th><th class=\"n\">runs</th><th class=\"n\">bound</th><th>result</th>\
                    <th>published</th></tr></thead><tbody>\n";
const TAIL: &str = "</tbody></table></div>\n";

/// The figures that have a bound.
fn judged(out: &mut String, figures: &[Kept]) {
    let rows: Vec<&Kept> = figures.iter().filter(|f| f.bound.is_some() || f.void || f.published.is_some()).collect();
    if rows.is_empty() {
        return;
    }
    out.push_str("<h3>Held against bounds</h3>");
    out.push_str(HEAD);
    rows.iter().for_each(|f| out.push_str(&row(f)));
    out.push_str(TAIL);
}

/// The other figures.
fn others(out: &mut String, figures: &[Kept]) {
    let rows: Vec<&Kept> = figures.iter().filter(|f| f.bound.is_none() && !f.void && f.published.is_none()).collect();
    if rows.is_empty() {
        return;
    }
    let folded = rows.len() > FOLD;
    let title = format!("{} figures without a bound", rows.len());
    let _ = if folded {
        write!(out, "<details><summary>{title}</summary>{HEAD}")
    } else {
        write!(out, "<h3>{title}</h3>{HEAD}")
    };
    rows.iter().for_each(|f| out.push_str(&row(f)));
    out.push_str(TAIL);
    if folded {
        out.push_str("</details>\n");
    }
}

fn row(f: &Kept) -> String {
    let value = f.value.map_or_else(
        || "not measured".to_owned(),
        |v| format!("{} {}", number(v), super::unit(&f.unit)).trim().to_owned(),
    );
    let range = match (f.ci_low.or(f.min), f.ci_high.or(f.max)) {
        (Some(l), Some(h)) => format!("{} – {}", number(l), number(h)),
        _ => String::new(),
    };
    let sign = |kind: &str| if kind.contains("at least") { "≥" } else { "≤" };
    let kind = f.bound_kind.as_deref().unwrap_or_default();
    let bound = f.bound.map_or_else(String::new, |b| format!("{} {}", sign(kind), number(b)));
    let (class, result) = result(f);
    format!(
        "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{range}</td><td class=\"n\">{}</td>\
         <td class=\"n\">{bound}</td><td class=\"{class}\">{}</td><td>{}</td></tr>\n",
        escape(&f.name),
        escape(&f.variant),
        escape(&value),
        f.runs,
        escape(&result),
        escape(f.published.as_deref().unwrap_or_default()),
    )
}

/// Whether the bound holds, and by how much.
fn result(f: &Kept) -> (&'static str, String) {
    if f.void {
        let why = f.void_why.as_deref().unwrap_or("the control was too restless");
        return ("void", format!("void: {why}"));
    }
    if f.not_judged {
        return ("void", super::not_judged(f.needs, f.unoptimised));
    }
    if let Some(why) = &f.missing {
        return ("void", format!("not measured: {why}"));
    }
    let judged = if f.bound_kind.as_deref().is_some_and(|k| k.starts_with("ci_low")) { f.ci_low } else { f.value };
    let by = match (judged, f.bound) {
        (Some(v), Some(b)) if b != 0.0 => format!(" by {} %", number(((v - b) / b).abs() * 100.0)),
        (Some(v), Some(b)) => format!(" by {}", number((v - b).abs())),
        _ => String::new(),
    };
    match f.met {
        Some(true) => ("met", format!("met{by}")),
        Some(false) => ("missed", format!("MISSED{by}")),
        None => ("", String::new()),
    }
}

fn footer(out: &mut String, record: &Record, link: &str) {
    let _ = writeln!(out, "<p>Repeat it: <code>{}</code></p>", escape(&record.command));
    let links: Vec<String> =
        record.raw.iter().map(|f| format!("<a href=\"{}/{f}\">{f}</a>", escape(link), f = escape(f))).collect();
    let _ = writeln!(out, "<p>Raw data: {}</p>", links.join(", "));
    let e = &record.environment;
    let mut lines = vec![
        ("build".to_owned(), record.version.clone()),
        ("seed".to_owned(), record.seed.to_string()),
        ("took".to_owned(), format!("{:.0} s", record.seconds)),
        ("system".to_owned(), e.system.clone()),
        ("processor".to_owned(), format!("{} ({} at once)", e.processor, e.processors)),
        ("memory".to_owned(), format!("{} MiB", e.memory >> 20)),
        ("TCP by default".to_owned(), e.congestion_control.clone()),
        ("load before and after".to_owned(), format!("{:.2}, {:.2}", e.load_before, e.load_after)),
    ];
    if let Some(others) = e.others {
        lines.push(("processors that others had".to_owned(), format!("{others:.2}")));
    }
    if let Some(waited) = e.pressure {
        lines.push(("time in which something waited for a processor".to_owned(), format!("{:.0} %", waited * 100.0)));
    }
    lines.extend(e.programs.iter().cloned());
    out.push_str("<details><summary>Machine and programs</summary><dl>");
    for (k, v) in lines {
        let _ = write!(out, "<dt>{}</dt><dd>{}</dd>", escape(&k), escape(&v));
    }
    out.push_str("</dl></details>\n");
}

/// Whether a drawing consists of nothing but what we draw with.
fn harmless(svg: &str) -> std::result::Result<(), String> {
    for tag in svg.split('<').skip(1) {
        let name = tag.trim_start_matches('/').split([' ', '>', '\n', '/']).next().unwrap_or_default();
        if !ELEMENTS.contains(&name) {
            return Err(format!("the drawing has an element <{name}>, which none of ours has; make it again"));
        }
        let inside = tag.split('>').next().unwrap_or_default();
        // The names of attributes stand between the quoted values; ours are escaped, so quotes come in pairs.
        let names: String = inside.split('"').step_by(2).collect();
        let values_refer = inside.split('"').skip(1).step_by(2).any(|v| v.contains("url("));
        if names.contains("href") || names.contains(" on") || names.contains(" style=") || values_refer {
            return Err(format!("the drawing's <{name}> refers to something else; make it again"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{self, Axis, Curve, Drawing, Lines, Panel};
    use crate::report::{Bound, Figure, keep, record::DrawingRecord};
    use std::path::PathBuf;

    fn folder(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("neater-page-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("B1")).expect("a folder");
        dir
    }

    fn kept(dir: &Path) {
        let figures = [
            Figure::new("B1", "goodput_ratio", "<rate>", "1").value(0.99, 5).judge(Bound::AtLeast(0.97)),
            Figure::new("B1", "goodput_ratio", "loss", "1").value(0.9, 5).judge(Bound::AtLeast(1.0)),
            Figure::new("B1", "cpu", "x", "1").value(2.0, 5).void_if(true).judge(Bound::AtMost(1.0)),
            Figure::new("B1", "goodput_mbit", "y", "Mbit/s").missing("no nginx here"),
            Figure::new("B1", "goodput_ratio", "rtt", "1").value(0.9, 1).needs(5).judge(Bound::AtLeast(1.0)),
        ];
        keep(&dir.join("B1"), &figures, &[]).expect("writes");
        let lines = Lines {
            title: "one run on a line".into(),
            x: Axis::linear("x", "s"),
            y: Axis::linear("y", ""),
            curves: vec![Curve::plain("a & b", [(0.0, 1.0), (1.0, 2.0)])],
        };
        let svg = plot::draw(&Drawing::new("", "one < two, on the href of style=x", "", vec![Panel::Lines(lines)]));
        fs::write(dir.join("B1/B1.svg"), svg).expect("writes");
        let record = Record {
            id: "B1".into(),
            title: "B1: goodput".into(),
            asked: "Is it <fast>?".into(),
            command: "neater-lab run B1 --quick".into(),
            drawings: vec![DrawingRecord { file: "B1".into(), ..DrawingRecord::default() }],
            raw: vec!["runs.csv".into()],
            remarks: vec!["this machine was busy: others had 0.9 of its 2 processors".into()],
            ..Record::default()
        };
        fs::write(dir.join("B1/experiment.json"), serde_json::to_string(&record).expect("JSON")).expect("writes");
    }

    #[test]
    fn a_page_says_what_was_met_and_missed_and_by_how_much_and_fetches_nothing() {
        let dir = folder("says");
        kept(&dir);
        let output = dir.join("report.html");
        assert_eq!(write(&dir, &output), Ok(1));
        let page = fs::read_to_string(&output).expect("a page");
        for words in [
            "Is it &lt;fast&gt;?",
            "met by 2.06 %",
            "MISSED by 10.00 %",
            "void: the control",
            "not judged: it needs 5 runs",
            "this machine was busy: others",
            "not measured: no nginx here",
            "<code>neater-lab run B1 --quick</code>",
            "href=\"B1/runs.csv\"",
            "&lt;rate&gt;",
            "<svg ",
        ] {
            assert!(page.contains(words), "{words}\n{page}");
        }
        let without_namespace = page.replace("http://www.w3.org/2000/svg", "");
        for external in ["http:", "https:", "<script", "<link", "@import", "url("] {
            assert!(!without_namespace.contains(external), "{external}");
        }
        let _ = fs::remove_dir_all(&dir);
    }

    #[test]
    fn what_cannot_be_shown_is_named() {
        let dir = folder("named");
        let output = dir.join("report.html");
        assert!(write(&dir, &output).expect_err("nothing").to_string().contains("neater-lab run"));
        kept(&dir);
        fs::write(dir.join("B1/B1.svg"), "<svg><script>x</script></svg>").expect("writes");
        assert!(write(&dir, &output).expect_err("a script").to_string().contains("<script>"));
        fs::write(dir.join("B1/B1.svg"), "<svg><path onload=\"x\"/></svg>").expect("writes");
        assert!(write(&dir, &output).expect_err("a handler").to_string().contains("<path>"));
        fs::write(dir.join("B1/experiment.json"), "{\n \"id\": 7}").expect("writes");
        let error = write(&dir, &output).expect_err("no string").to_string();
        assert!(error.contains("experiment.json") && error.contains("line 2"), "{error}");
        let _ = fs::remove_dir_all(&dir);
    }
}
