//! The experiments, one file each.
//!
//! Every experiment gives figures, the raw numbers behind them, and panels to draw. A program that
//! cannot be measured is a figure that says so; an experiment fails only when what it compares with
//! cannot be measured.

mod a1;
mod a10;
mod a5;
mod a8;
mod a9;
mod b0;
mod bulk;
mod catalogue;
mod counts;
mod cpu;
mod emulated;
mod f1;
mod f2;
mod f3;
mod flows;
mod links;
mod memory;
mod multipath;
pub(crate) mod networks;
mod nr_sack;
mod p1;
mod pairs;
mod py;
mod router;
mod s1;
mod s2;
mod s3;
mod web0;
mod x1;
pub mod x2;

pub use catalogue::ALL;

use crate::measure::cpu::{Interleaved, Series};
use crate::measure::stats::{self, Estimate};
use crate::measure::{MeasureError, Result};
use crate::plot::{Bars, Drawing, Panel, Row};
use crate::programs::{Program, Programs};
use crate::report::record::Beside;
use crate::report::{Figure, Sample};
use neater_base::Rng;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

/// No child of an experiment may take longer.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);
/// The two numbers of flows whose difference gives the cost of one.
pub(crate) const FEW: u64 = 256;
/// See [`FEW`].
pub(crate) const MANY: u64 = 2048;
/// A control interval wider than this says that the machine was too restless: the run is void.
pub(crate) const CONTROL_MAX: f64 = 0.10;
/// Interleaved pairs of a full run, and of a quick one.
pub(crate) const PAIRS: (usize, usize) = (30, 8);
/// The programs that open flows.
pub(crate) const FLOW_PROGRAMS: [Program; 5] =
    [Program::Epoll, Program::Libuv, Program::Tokio, Program::NeaterFd, Program::Neater];
/// Those, and the one on NEAT's interface.
pub(crate) const FLOW_PROGRAMS_AND_NEATS: [Program; 6] =
    [Program::Epoll, Program::Libuv, Program::Tokio, Program::NeaterFd, Program::Neater, Program::Libneat];

/// What an experiment runs with.
pub struct Lab {
    /// Fewer runs and fewer points.
    pub quick: bool,
    /// Everything random follows from it.
    pub seed: u64,
    /// Runs per point, or pairs, if it was asked for.
    pub seeds: Option<usize>,
    /// Runs at once, if it was asked for.
    pub jobs: Option<usize>,
    /// Make runs again that were made before.
    pub fresh: bool,
    /// Only points whose names contain this.
    pub only: Option<String>,
    /// The experiments whose runs this process has made again already.
    pub freshened: RefCell<BTreeSet<&'static str>>,
    /// Where each experiment has its directory.
    pub out: PathBuf,
    /// The build of the programs.
    pub version: String,
    /// What is measured.
    pub programs: Programs,
    /// For the tools' output.
    pub scratch: PathBuf,
    /// Told what is going on.
    pub progress: Box<dyn Fn(&str)>,
}

impl Lab {
    pub(crate) fn pairs(&self) -> usize {
        self.seeds.unwrap_or(if self.quick { PAIRS.1 } else { PAIRS.0 })
    }

    /// Whether a point is to be measured.
    pub(crate) fn is_wanted(&self, point: &str) -> bool {
        self.only.as_ref().is_none_or(|text| point.contains(text.as_str()))
    }

    /// Whether runs of an experiment are to be made again: the first time in this process that
    /// one is wanted, if they are.
    pub(crate) fn fresh(&self, id: &'static str) -> bool {
        self.fresh && self.freshened.borrow_mut().insert(id)
    }

    pub(crate) fn rng(&self, stream: u64) -> Rng {
        Rng::from_number(self.seed.wrapping_mul(1009).wrapping_add(stream))
    }
}

/// What an experiment gives.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The figures.
    pub figures: Vec<Figure>,
    /// The raw numbers.
    pub samples: Vec<Sample>,
    /// What is drawn under the experiment's own title.
    pub panels: Vec<Panel>,
    /// Further drawings.
    pub drawings: Vec<Drawing>,
    /// What was published, beside ours.
    pub beside: Vec<Beside>,
    /// What a reader must know of this run.
    pub remarks: Vec<String>,
    /// Runs of each point, where that is what was counted.
    pub runs: Option<usize>,
}

impl Outcome {
    pub(crate) fn sample(&mut self, metric: &str, series: &str, variant: &str, run: usize, value: f64) {
        self.samples.push(Sample { metric: metric.into(), series: series.into(), variant: variant.into(), run, value });
    }

    pub(crate) fn samples_of(&mut self, metric: &str, variant: &str, got: &Interleaved) {
        for (series, values) in &got.samples {
            for (run, v) in values.iter().enumerate() {
                self.sample(metric, series.name(), variant, run, *v);
            }
        }
    }

    /// Draws the figures of one name as one panel; `label` and `series` say how each is drawn.
    pub(crate) fn panel(&mut self, name: &str, title: &str, unit: &str, row: impl Fn(&Figure) -> (String, String)) {
        let rows = self.figures.iter().filter(|f| f.name == name).map(|f| {
            let (label, series) = row(f);
            Row { label, series, value: f.value, interval: f.ci_low.zip(f.ci_high), bound: f.bound }
        });
        let rows = rows.collect();
        self.bars(title, unit, rows);
    }

    /// Draws these bars as one panel.
    pub(crate) fn bars(&mut self, title: impl Into<String>, unit: &str, rows: Vec<Row>) {
        self.panels.push(Panel::Bars(Bars { title: title.into(), unit: unit.into(), rows }));
    }
}

/// A figure as a bar with its program's name and colour.
pub(crate) fn row_by_program(f: &Figure) -> Row {
    let program = f.extra.get("program").and_then(|p| p.as_str()).unwrap_or(&f.variant).to_owned();
    let interval = f.ci_low.zip(f.ci_high);
    Row { label: program.clone(), series: program, value: f.value, interval, bound: f.bound }
}

/// What an experiment needs beyond this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The peers on other people's APIs, which are compiled.
    Peers,
    /// Of those, with `--quick`, ours alone in Rust: the one that opens flows.
    FlowPeers,
    /// Of the peers, those in Rust.
    RustPeers,
    /// The `neater` command, in release.
    Neater,
    /// A live lab: what it takes to make namespaces and devices.
    Lab,
    /// A program and the Debian package that has it.
    Tool(&'static str, &'static str),
}

/// A metric, as an experiment declares it.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name in the figures.
    pub name: &'static str,
    /// Its unit; "1" for ratios.
    pub unit: &'static str,
    /// What it is held against, in words; empty if it is only reported.
    pub bound: &'static str,
    /// How it is drawn.
    pub drawn: &'static str,
}

/// An experiment.
#[derive(Clone, Copy)]
pub struct Experiment {
    /// Its id, as in the list of what the founding documents measured.
    pub id: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// What is asked.
    pub asked: &'static str,
    /// How it is measured: what a reader of the drawing must know.
    pub note: &'static str,
    /// Under which conditions, by name.
    pub parameters: &'static [(&'static str, &'static str)],
    /// What was published, and where.
    pub published: &'static [(&'static str, &'static str)],
    /// What is measured.
    pub metrics: &'static [Metric],
    /// What must be there.
    pub needs: &'static [Need],
    /// How long the quick and the full form take, more or less, in minutes.
    pub minutes: (f64, f64),
    /// Does it.
    pub run: fn(&Lab) -> Result<Outcome>,
}

impl Experiment {
    /// Whether its figures are of decisions and of simulations, which do not depend on how programs
    /// were built.
    #[must_use]
    pub fn is_of_decisions(&self) -> bool {
        ["A9", "D1", "D2", "E1", "E2", "E3", "E4a", "E4b", "F1", "F3", "I1", "I2", "X2"].contains(&self.id)
    }

    /// How long it takes, more or less.
    #[must_use]
    pub const fn minutes(&self, quick: bool) -> f64 {
        if quick { self.minutes.0 } else { self.minutes.1 }
    }

    /// The experiments whose runs this one looks at; it makes those that are not there.
    #[must_use]
    pub fn shares(&self) -> &'static [&'static str] {
        if self.id == "B3" { &["B1", "B2"] } else { &[] }
    }

    /// How long it takes, more or less, with the runs it shares that are not there: those of `made`
    /// are.
    #[must_use]
    pub fn minutes_without(&self, quick: bool, made: impl Fn(&str) -> bool) -> f64 {
        let shared = ALL.iter().filter(|e| self.shares().contains(&e.id) && !made(e.id));
        self.minutes(quick) + shared.map(|e| e.minutes(quick)).sum::<f64>()
    }

    /// What it declares, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut out = format!("{}\n  {}\n\n  {}\n", self.title, self.asked, self.note);
        let mut part = |head: &str, lines: Vec<String>| {
            if !lines.is_empty() {
                out.push_str(&format!("\n  {head}\n"));
                lines.iter().for_each(|l| out.push_str(&format!("    {l}\n")));
            }
        };
        part("parameters", self.parameters.iter().map(|(k, v)| format!("{k}: {v}")).collect());
        part("published", self.published.iter().map(|(what, source)| format!("{what} [{source}]")).collect());
        let metric = |m: &Metric| {
            let bound = if m.bound.is_empty() { String::new() } else { format!("; {}", m.bound) };
            format!("{} ({}){bound}; drawn as {}", m.name, m.unit, m.drawn)
        };
        part("metrics", self.metrics.iter().map(metric).collect());
        out.push_str(&format!("\n  takes about {} min, {} min with --quick", self.minutes.1, self.minutes.0));
        if !self.shares().is_empty() {
            let [full, quick] = [false, true].map(|quick| self.minutes_without(quick, |_| false));
            let runs = self.shares().join(" and ");
            out.push_str(&format!(
                " where the runs of {runs} are there; {full:.0} and {quick:.0} min where they are to be made"
            ));
        }
        out.push('\n');
        out
    }
}

/// The values that could be measured, and why the others could not. Nothing can be measured without
/// tools.
pub(crate) fn for_each<T>(
    programs: &[Program],
    mut measure: impl FnMut(Program) -> Result<T>,
) -> Result<BTreeMap<Program, std::result::Result<T, String>>> {
    let mut out = BTreeMap::new();
    for p in programs {
        match measure(*p) {
            Err(e @ MeasureError::MissingTool { .. }) => return Err(e),
            Err(e) => out.insert(*p, Err(e.to_string())),
            Ok(v) => out.insert(*p, Ok(v)),
        };
    }
    Ok(out)
}

/// How often the pairs that were asked for are taken at most, while the control says that the
/// machine is restless.
const STEADYING: usize = 4;

/// Interleaved samples, as many pairs as asked for, and as many again while the ratio of the
/// medians of the reference and of its control is not known well enough for a verdict. Only the
/// width of that interval decides: no program's figure does, and not whether the control lies above
/// or below. With `--quick` it is what it is.
pub(crate) fn steadied(
    lab: &Lab,
    pairs: usize,
    reference: Program,
    take: &mut dyn FnMut(usize) -> Result<Interleaved>,
) -> Result<Interleaved> {
    let mut got = take(pairs)?;
    for taken in 1..STEADYING {
        let mut rng = lab.rng(taken as u64);
        let control = got.compare(Series::Control, reference, &mut rng, stats::ratio_of_medians);
        match control {
            Some(c) if c.width() > CONTROL_MAX && !lab.quick => {
                (lab.progress)(&format!(
                    "after {} pairs the control is known within {:.3} only: {pairs} more",
                    taken * pairs,
                    c.width()
                ));
                got.extend(take(pairs)?);
            }
            _ => break,
        }
    }
    Ok(got)
}

/// The ratio figures of one interleaved measurement, ours first, the control last. What is ours is
/// judged by `judge`.
pub(crate) struct Ratios<'a> {
    pub id: &'static str,
    /// The name of the figure of ours; other programs' have theirs appended, the control `_aa`.
    pub name: &'a str,
    pub variant: &'a str,
    pub unit: &'static str,
    pub reference: Program,
    pub programs: &'a [Program],
    pub statistic: fn(&[f64], &[f64], &mut Rng) -> Option<Estimate>,
    /// A control interval wider than this makes the run void.
    pub control_max: f64,
    /// How many pairs a verdict needs.
    pub needs: usize,
    pub judge: &'a dyn Fn(Figure) -> Figure,
}

impl Ratios<'_> {
    pub(crate) fn figures(&self, got: &Interleaved, rng: &mut Rng) -> Vec<Figure> {
        let runs = got.samples.get(&Series::Control).map_or(0, Vec::len);
        let control = got.compare(Series::Control, self.reference, rng, self.statistic);
        let void = control.is_none_or(|c| c.width() > self.control_max);
        let mut figures = Vec::new();
        for p in self.programs.iter().rev() {
            let name = match p {
                Program::Neater => self.name.to_owned(),
                p => format!("{}_{}", self.name, p.name().replace('-', "_")),
            };
            let f = Figure::new(self.id, name, self.variant, self.unit).with("program", p.name()).needs(self.needs);
            let f = match got.compare(Series::Of(*p), self.reference, rng, self.statistic) {
                Some(e) => f.estimate(e, runs).void_if(void),
                None => f.missing(got.missing.get(p).cloned().unwrap_or_else(|| "no samples".to_owned())),
            };
            let f = match got.median(Series::Of(*p)) {
                Some(m) => f.with("median", m).with("median_reference", got.median(Series::Of(self.reference))),
                None => f,
            };
            figures.push(if p.is_ours() { (self.judge)(f) } else { f });
        }
        let aa = Figure::new(self.id, format!("{}_aa", self.name), self.variant, self.unit).with("program", "control");
        figures.push(match control {
            Some(e) => aa.estimate(e, runs).void_if(void).with("width", e.width()),
            None => aa.missing("no samples of the control"),
        });
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::stats::ratio_of_medians;
    use crate::report::Bound;

    fn ratios(samples: &[(Series, &[f64])]) -> Vec<Figure> {
        let got = Interleaved {
            samples: samples.iter().map(|(s, v)| (*s, v.to_vec())).collect(),
            missing: [(Program::NeaterFd, "not built".to_owned())].into(),
        };
        let r = Ratios {
            id: "A2",
            name: "cpu_ratio",
            variant: "client-1",
            unit: "1",
            reference: Program::Libuv,
            programs: &[Program::NeaterFd, Program::Neater],
            statistic: ratio_of_medians,
            control_max: CONTROL_MAX,
            needs: 1,
            judge: &|f| f.judge(Bound::LowAtMost(1.1)),
        };
        r.figures(&got, &mut Rng::from_number(1))
    }

    #[test]
    fn ratios_name_ours_plainly_and_others_by_name_and_end_with_the_control() {
        let steady: &[f64] = &[1.0, 1.001, 0.999, 1.0, 1.0, 1.002];
        let figures = ratios(&[
            (Series::Of(Program::Libuv), steady),
            (Series::Control, steady),
            (Series::Of(Program::Neater), &[1.2; 6]),
        ]);
        let names: Vec<_> = figures.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["cpu_ratio", "cpu_ratio_neater_fd", "cpu_ratio_aa"]);
        assert_eq!((figures[0].met, figures[0].void), (Some(false), false));
        assert_eq!(figures[1].missing.as_deref(), Some("not built"));
    }

    #[test]
    fn a_restless_control_makes_the_run_void() {
        let figures = ratios(&[
            (Series::Of(Program::Libuv), &[1.0, 1.4, 0.8, 1.1, 0.7, 1.5]),
            (Series::Control, &[1.3, 0.7, 1.2, 0.9, 1.6, 0.8]),
            (Series::Of(Program::Neater), &[1.0; 6]),
        ]);
        assert!(figures[0].void && figures[2].void);
        assert_eq!(figures[0].met, None);
    }

    #[test]
    fn every_experiment_has_its_own_id() {
        let mut ids: Vec<_> = ALL.iter().map(|e| e.id).collect();
        ids.dedup();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
        assert!(["A1", "A10", "BULK", "B0", "B4", "X2"].iter().all(|id| ids.contains(id)), "{ids:?}");
    }
}
