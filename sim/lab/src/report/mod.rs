//! Figures, how they are judged, and how they are shown and kept.

pub mod page;
pub mod record;

use crate::measure::stats::Estimate;
use crate::runner::journal::are_enough;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

/// What a figure must satisfy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// The value is at most this.
    AtMost(f64),
    /// The value is at least this.
    AtLeast(f64),
    /// The lower end of the interval is at most this: the bound cannot be excluded to hold.
    LowAtMost(f64),
    /// The lower end of the interval is at least this: the bound is shown to hold.
    LowAtLeast(f64),
    /// The upper end of the interval is at least this: the bound cannot be excluded to hold.
    HighAtLeast(f64),
}

impl Bound {
    /// The number.
    #[must_use]
    pub const fn number(self) -> f64 {
        match self {
            Self::AtMost(b) | Self::AtLeast(b) | Self::LowAtMost(b) | Self::LowAtLeast(b) | Self::HighAtLeast(b) => b,
        }
    }

    const fn kind(self) -> &'static str {
        match self {
            Self::AtMost(_) => "value at most",
            Self::AtLeast(_) => "value at least",
            Self::LowAtMost(_) => "ci_low at most",
            Self::LowAtLeast(_) => "ci_low at least",
            Self::HighAtLeast(_) => "ci_high at least",
        }
    }
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// The experiment.
    pub id: &'static str,
    /// What is measured.
    pub name: String,
    /// Of what, or under which conditions.
    pub variant: String,
    /// The figure; `None` when it could not be measured.
    pub value: Option<f64>,
    /// Its unit; "1" for ratios.
    pub unit: &'static str,
    /// How many runs it is made from.
    pub runs: usize,
    /// How many it needs before it is held against its bound: 1 for what comes out the same in each
    /// run, as a count of instructions does.
    #[serde(skip_serializing_if = "is_one")]
    pub needs: usize,
    /// Lower end of the 95 % interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ci_low: Option<f64>,
    /// Upper end of the 95 % interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ci_high: Option<f64>,
    /// What it is held against.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
    /// How.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_kind: Option<&'static str>,
    /// Whether it holds; absent when there is no bound, no value, the run is void, or it is not
    /// judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub met: Option<bool>,
    /// There is a bound, and too few runs for a verdict that the next ones would not change.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub not_judged: bool,
    /// The programs were built without optimisation, so that nothing is judged.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unoptimised: bool,
    /// The run says nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub void: bool,
    /// Why, if it is not that the control was wider than the bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub void_why: Option<String>,
    /// Why there is no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// What NEAT's authors published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<&'static str>,
    /// Anything else.
    #[serde(flatten)]
    pub extra: BTreeMap<&'static str, Value>,
}

fn is_one(runs: &usize) -> bool {
    *runs == 1
}

/// What is shown in place of a verdict, for a figure that needs so many runs.
fn not_judged(needs: usize, unoptimised: bool) -> String {
    match needs {
        _ if unoptimised => "not judged: the programs are not optimised".to_owned(),
        0 | 1 => "not judged: it needs the full form".to_owned(),
        n => format!("not judged: it needs {n} runs"),
    }
}

impl Figure {
    /// A figure without a value yet.
    #[must_use]
    pub fn new(id: &'static str, name: impl Into<String>, variant: impl Into<String>, unit: &'static str) -> Self {
        Self {
            id,
            name: name.into(),
            variant: variant.into(),
            value: None,
            unit,
            runs: 0,
            needs: 1,
            ci_low: None,
            ci_high: None,
            bound: None,
            bound_kind: None,
            met: None,
            not_judged: false,
            unoptimised: false,
            void: false,
            void_why: None,
            missing: None,
            published: None,
            extra: BTreeMap::new(),
        }
    }

    /// With a value from so many runs.
    #[must_use]
    pub fn value(mut self, value: f64, runs: usize) -> Self {
        // JSON has no NaN; a figure that is none is missing.
        if value.is_finite() {
            self.value = Some(value);
        } else {
            self.missing = Some("the runs gave no number".to_owned());
        }
        self.runs = runs;
        self
    }

    /// With a value and its interval.
    #[must_use]
    pub fn estimate(self, e: Estimate, runs: usize) -> Self {
        let mut f = self.value(e.value, runs);
        f.ci_low = Some(e.low).filter(|v| v.is_finite());
        f.ci_high = Some(e.high).filter(|v| v.is_finite());
        f
    }

    /// Not measured, for this reason.
    #[must_use]
    pub fn missing(mut self, why: impl Into<String>) -> Self {
        self.missing = Some(why.into());
        self
    }

    /// With something to say beside the value.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        self.extra.insert(key, value.into());
        self
    }

    /// With the figure that NEAT's authors published.
    #[must_use]
    pub fn published(mut self, text: &'static str) -> Self {
        self.published = Some(text);
        self
    }

    /// Void: the control was wider than what is to be told apart. To be called before [`Figure::judge`].
    #[must_use]
    pub fn void_if(mut self, void: bool) -> Self {
        self.void = void;
        self.void_why = None;
        self
    }

    /// Void for another reason, if there is one; the first that is given stays. To be called before [`Figure::judge`].
    #[must_use]
    pub fn void_for(mut self, why: Option<&str>) -> Self {
        if let Some(why) = why.filter(|_| !self.void) {
            (self.void, self.void_why) = (true, Some(why.to_owned()));
        }
        self
    }

    /// Needs so many runs before it is held against a bound; one of ten may have failed. To be called
    /// before [`Figure::judge`].
    #[must_use]
    pub fn needs(mut self, runs: usize) -> Self {
        self.needs = runs;
        self
    }

    /// Of programs without optimisation: not judged.
    pub fn not_optimised(&mut self) {
        if self.bound.is_some() {
            (self.met, self.not_judged, self.unoptimised) = (None, true, true);
        }
    }

    /// Holds the figure against a bound, if it has the runs that it needs.
    #[must_use]
    pub fn judge(self, bound: Bound) -> Self {
        let few = self.needs > 1 && self.value.is_some() && !are_enough(self.runs, self.needs);
        self.judge_unless(few, bound)
    }

    /// As [`Figure::judge`], where something else than the number of runs says whether they are too
    /// `few`.
    #[must_use]
    pub fn judge_unless(mut self, few: bool, bound: Bound) -> Self {
        self.bound = Some(bound.number());
        self.bound_kind = Some(bound.kind());
        self.not_judged = few && !self.void;
        self.met = if self.void || few {
            None
        } else {
            match bound {
                Bound::AtMost(b) => self.value.map(|v| v <= b),
                Bound::AtLeast(b) => self.value.map(|v| v >= b),
                Bound::LowAtMost(b) => self.ci_low.map(|v| v <= b),
                Bound::LowAtLeast(b) => self.ci_low.map(|v| v >= b),
                Bound::HighAtLeast(b) => self.ci_high.map(|v| v >= b),
            }
        };
        self
    }
}

/// One raw number.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// What was measured, with its unit.
    pub metric: String,
    /// The program or series.
    pub series: String,
    /// The conditions.
    pub variant: String,
    /// Which run.
    pub run: usize,
    /// The number.
    pub value: f64,
}

/// A number for people: three or four digits that count, thousands set apart.
#[must_use]
pub fn number(v: f64) -> String {
    let a = v.abs();
    let text = match a {
        _ if !v.is_finite() => return "–".to_owned(),
        _ if a >= 1000.0 => format!("{v:.0}"),
        _ if a >= 100.0 => format!("{v:.1}"),
        _ if a >= 1.0 || a == 0.0 => format!("{v:.2}"),
        _ => format!("{v:.3}"),
    };
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), None), |(w, f)| (w, Some(f)));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |d| ("-", d));
    let mut grouped = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(c);
    }
    fraction.map_or_else(|| format!("{sign}{grouped}"), |f| format!("{sign}{grouped}.{f}"))
}

/// The table for people.
#[must_use]
pub fn table(figures: &[Figure]) -> String {
    let header = ["figure", "variant", "value", "95 % interval", "bound", "met", "NEAT (published)"];
    let rows: Vec<[String; 7]> = figures
        .iter()
        .map(|f| {
            let value = f.value.map_or_else(|| "missing".to_owned(), |v| format!("{} {}", number(v), unit(f.unit)));
            let interval = match (f.ci_low, f.ci_high) {
                (Some(l), Some(h)) => format!("{} … {}", number(l), number(h)),
                _ => String::new(),
            };
            let bound = f.bound.map_or_else(String::new, |b| {
                let sign = if f.bound_kind.is_some_and(|k| k.ends_with("at least")) { "≥" } else { "≤" };
                format!("{sign} {}", number(b))
            });
            let met = match (f.void, f.met) {
                (true, _) => "void".to_owned(),
                (_, Some(true)) => "yes".to_owned(),
                (_, Some(false)) => "NO".to_owned(),
                _ if f.not_judged => not_judged(f.needs, f.unoptimised),
                _ => String::new(),
            };
            let published = f.published.unwrap_or_default().to_owned();
            [f.name.clone(), f.variant.clone(), value.trim().to_owned(), interval, bound, met, published]
        })
        .collect();
    let mut out = String::new();
    let width = |c: usize| {
        rows.iter().map(|r| r[c].chars().count()).chain([header[c].chars().count()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut line = |cells: Vec<&str>| {
        let padded: Vec<String> = cells.iter().zip(&widths).map(|(c, w)| format!("{c:<w$}", w = *w)).collect();
        let _ = writeln!(out, "  {}", padded.join("  ").trim_end());
    };
    line(header.to_vec());
    for row in &rows {
        line(row.iter().map(String::as_str).collect());
    }
    let mut whys: Vec<&str> = figures.iter().filter_map(|f| f.missing.as_deref()).collect();
    whys.sort_unstable();
    whys.dedup();
    for why in whys {
        let _ = writeln!(out, "  missing: {why}");
    }
    out
}

fn unit(unit: &str) -> &str {
    if unit == "1" { "" } else { unit }
}

/// Figures as one JSON object per line.
///
/// # Errors
/// None that can happen to figures; they are those of the serializer.
pub fn lines(figures: &[Figure]) -> io::Result<String> {
    let mut out = String::new();
    for f in figures {
        out.push_str(&serde_json::to_string(f)?);
        out.push('\n');
    }
    Ok(out)
}

/// Keeps figures and samples under `dir`: `figures.json`, `figures.jsonl`, and, if there are samples, `samples.csv` and
/// `samples.json`.
///
/// # Errors
/// The files cannot be written.
pub fn keep(dir: &Path, figures: &[Figure], samples: &[Sample]) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::write(dir.join("figures.json"), serde_json::to_string_pretty(figures)?)?;
    fs::write(dir.join("figures.jsonl"), lines(figures)?)?;
    if samples.is_empty() {
        return Ok(());
    }
    fs::write(dir.join("samples.json"), serde_json::to_string(samples)?)?;
    fs::write(dir.join("samples.csv"), csv(samples))
}

fn csv(samples: &[Sample]) -> String {
    let quoted = |text: &str| {
        if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
    };
    let mut out = "metric,series,variant,run,value\n".to_owned();
    for s in samples {
        let _ =
            writeln!(out, "{},{},{},{},{}", quoted(&s.metric), quoted(&s.series), quoted(&s.variant), s.run, s.value);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure() -> Figure {
        Figure::new("A1", "instructions_per_flow", "neater", "instructions")
    }

    #[test]
    fn a_figure_is_held_against_its_bound_unless_it_is_void_or_missing() {
        assert_eq!(figure().value(1999.0, 1).judge(Bound::AtMost(2000.0)).met, Some(true));
        assert_eq!(figure().value(2001.0, 1).judge(Bound::AtMost(2000.0)).met, Some(false));
        assert_eq!(figure().value(0.94, 1).judge(Bound::AtLeast(0.95)).met, Some(false));
        let wide = Estimate { value: 1.2, low: 1.05, high: 1.3 };
        assert_eq!(figure().estimate(wide, 30).judge(Bound::LowAtMost(1.1)).met, Some(true));
        assert_eq!(figure().estimate(wide, 30).void_if(true).judge(Bound::LowAtMost(1.1)).met, None);
        assert_eq!(figure().estimate(wide, 30).judge(Bound::LowAtLeast(1.1)).met, Some(false));
        assert_eq!(figure().estimate(wide, 30).judge(Bound::HighAtLeast(wide.high + 0.1)).met, Some(false));
        assert_eq!(figure().estimate(wide, 30).judge(Bound::HighAtLeast(wide.high)).met, Some(true));
        assert_eq!(figure().estimate(wide, 30).judge(Bound::LowAtLeast(1.0)).met, Some(true));
        assert_eq!(figure().missing("not built").judge(Bound::AtMost(1.0)).met, None);
    }

    #[test]
    fn a_figure_from_fewer_runs_than_it_needs_is_not_judged() {
        let of = |value, runs| figure().value(value, runs).needs(5).judge(Bound::AtMost(2000.0));
        for value in [1.0, 3000.0] {
            let f = of(value, 1);
            assert_eq!((f.met, f.not_judged, f.bound), (None, true, Some(2000.0)));
            assert!(table(&[f]).contains("not judged: it needs 5 runs"));
        }
        let f = of(3000.0, 5);
        assert_eq!((f.met, f.not_judged), (Some(false), false));
        // One of ten may have failed.
        let f = figure().value(1.0, 27).needs(30).judge(Bound::AtMost(2000.0));
        assert_eq!((f.met, f.not_judged), (Some(true), false));
        // What is void or missing is that.
        let void = figure().value(1.0, 1).needs(5).void_if(true).judge(Bound::AtMost(2000.0));
        assert!(void.void && !void.not_judged);
        assert!(!figure().missing("not built").needs(5).judge(Bound::AtMost(1.0)).not_judged);
        let v = serde_json::to_value(of(1.0, 1)).expect("serializes");
        assert_eq!((&v["needs"], &v["not_judged"]), (&5.into(), &true.into()));
        let v = serde_json::to_value(figure().value(1.0, 1).judge(Bound::AtMost(2.0))).expect("serializes");
        assert!(v.get("needs").is_none() && v.get("not_judged").is_none());
        let f = figure().value(1.0, 1).judge_unless(true, Bound::AtMost(2.0));
        assert!(f.not_judged && table(&[f]).contains("it needs the full form"));
        let mut f = figure().value(1.0, 1).judge(Bound::AtMost(2.0));
        f.not_optimised();
        assert!(f.met.is_none() && f.not_judged && table(&[f]).contains("the programs are not optimised"));
    }

    #[test]
    fn json_has_the_fields_of_the_contract_on_one_line() {
        let f = figure().value(945.5, 3).with("side", "client").judge(Bound::AtMost(2000.0));
        let text = serde_json::to_string(&f).expect("serializes");
        assert!(!text.contains('\n'));
        let v: Value = serde_json::from_str(&text).expect("JSON");
        for (key, value) in
            [("id", "A1".into()), ("value", Value::from(945.5)), ("runs", 3.into()), ("side", "client".into())]
        {
            assert_eq!(v[key], value);
        }
        assert!(v["name"].is_string() && v["variant"].is_string() && v["unit"].is_string());
        assert!(v.get("ci_low").is_none() && v.get("void").is_none());
        let missing = serde_json::to_value(figure().value(f64::NAN, 1)).expect("serializes");
        assert!(missing["value"].is_null() && missing["missing"].is_string());
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(number(63_800_000.0), "63,800,000");
        assert_eq!(number(999.0), "999.0");
        assert_eq!(number(1.02), "1.02");
        assert_eq!(number(-1234.0), "-1,234");
        assert_eq!(number(0.0512), "0.051");
    }

    #[test]
    fn the_table_shows_missed_bounds_and_says_what_is_missing() {
        let t = table(&[
            figure().value(3000.0, 1).judge(Bound::AtMost(2000.0)).published("202,000"),
            figure().missing("peer-neater was not built"),
        ]);
        assert!(t.contains("NO") && t.contains("≤ 2,000") && t.contains("202,000"), "{t}");
        assert!(t.contains("missing: peer-neater was not built"), "{t}");
    }

    #[test]
    fn raw_data_survives_commas() {
        let s = Sample { metric: "a,b".into(), series: "x".into(), variant: "v".into(), run: 0, value: 1.5 };
        assert_eq!(csv(&[s]), "metric,series,variant,run,value\n\"a,b\",x,v,0,1.5\n");
    }
}
