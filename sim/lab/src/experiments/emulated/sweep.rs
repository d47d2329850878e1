//! Sweeps of transfers over conditions: made, kept, turned into figures and curves.

use super::path::Path;
use super::{METRICS, Stack, Transfer, Work, real, simulated};
use crate::experiments::{Lab, Outcome};
use crate::measure::stats::median;
use crate::measure::{MeasureError, Result, soundest};
use crate::plot::{Axis, Curve, Drawing, Lines, Panel, Point};
use crate::report::{Bound, Figure};
use crate::runner::grid::{self, Made, Task};
use crate::runner::journal::{Journal, Key, are_enough};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// Runs of a point: full and quick.
pub(super) const RUNS: (usize, usize) = (5, 1);
/// Runs of a point of the simulator at which chance decides: full and quick. They cost little, and show how far single runs
/// of the lab lie apart for no other reason than which packets are lost.
const CHANCES: (usize, usize) = (20, 6);
/// Transfers in the lab at once, unless it is said otherwise, and the goodput that they may have together, in Mbit/s. Each
/// has an emulator that must be on time to some microseconds; on a machine of two processors, four at 10 Mbit/s made each
/// other late by milliseconds, two by less than 0.1 ms.
pub(super) const JOBS: usize = 4;
pub(super) const RATE_AT_ONCE: f64 = 20.0;

/// How late the emulator may be at the 99th percentile, in microseconds, before a run says nothing: half a millisecond and
/// one percent of the round trip.
pub(super) fn late_max(path: &Path) -> f64 {
    500.0 + 10.0 * path.rtt
}

/// A path for each value of a parameter.
#[derive(Clone, Debug)]
pub(super) struct Sweep {
    /// In file names.
    pub name: &'static str,
    /// What is kept the same, in words.
    pub title: String,
    /// The parameter, its unit, and whether its axis is logarithmic.
    pub axis: (&'static str, &'static str, bool),
    /// Its values with their paths.
    pub points: Vec<(f64, Path)>,
}

impl Sweep {
    pub(super) fn new(
        name: &'static str,
        title: impl Into<String>,
        axis: (&'static str, &'static str, bool),
        values: &[f64],
        path: impl Fn(f64) -> Path,
    ) -> Self {
        Self { name, title: title.into(), axis, points: values.iter().map(|v| (*v, path(*v))).collect() }
    }

    fn x(&self) -> Axis {
        let (label, unit, log) = self.axis;
        if log { Axis::log(label, unit) } else { Axis::linear(label, unit) }
    }
}

/// What is to be measured under an id.
#[derive(Debug)]
pub(super) struct Grid {
    pub id: &'static str,
    pub work: Work,
    pub stacks: Vec<Stack>,
    pub sweeps: Vec<Sweep>,
}

/// A grid that was measured.
#[derive(Debug)]
pub(super) struct Measured {
    pub grid: Grid,
    pub journal: Journal,
    pub seeds: RangeInclusive<u64>,
    /// Those of the simulator where chance decides.
    pub chances: RangeInclusive<u64>,
    pub made: Made,
}

/// Smallest, median and largest of some runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub min: f64,
    pub median: f64,
    pub max: f64,
    pub runs: usize,
}

impl Spread {
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let fold = |f: fn(f64, f64) -> f64, start| values.iter().copied().fold(start, f);
        (!values.is_empty()).then(|| Self {
            min: fold(f64::min, f64::INFINITY),
            median: median(values),
            max: fold(f64::max, f64::NEG_INFINITY),
            runs: values.len(),
        })
    }

    /// The same with the ends of an interval for the median, as near to 95 % as so many runs allow and never closer than that if there
    /// are six or more: between two of the runs by rank, whatever their distribution (of five the least and the most: 94 %). The ends of
    /// all runs would lie further apart the more runs there are, and meet more easily.
    pub(super) fn of_median(values: &[f64]) -> Option<Self> {
        let whole = Self::of(values)?;
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let cut = ranks_cut(sorted.len());
        let (min, max) = (sorted[cut], sorted[sorted.len() - 1 - cut]);
        Some(Self { min, max, ..whole })
    }

    /// Whether the error bars of two points meet, give or take this part of their values.
    pub(super) fn meets(&self, other: &Self, slack: f64) -> bool {
        self.min * (1.0 - slack) <= other.max * (1.0 + slack) && other.min * (1.0 - slack) <= self.max * (1.0 + slack)
    }
}

/// So many runs at each end lie outside of the interval for the median of `n`: the most for which that is wrong in at most 5 % (each of
/// the runs is as likely above the median as below it).
fn ranks_cut(n: usize) -> usize {
    let (mut below, mut term) = (0.0, 0.5f64.powi(i32::try_from(n).unwrap_or(i32::MAX)));
    for k in 0..n {
        below += term;
        if 2.0 * below > 0.05 {
            return k.saturating_sub(1);
        }
        term *= (n - k) as f64 / (k + 1) as f64;
    }
    0
}

pub(super) fn seeds(lab: &Lab, runs: (usize, usize)) -> RangeInclusive<u64> {
    let n = lab.seeds.unwrap_or(if lab.quick { runs.1 } else { runs.0 });
    lab.seed..=lab.seed + n.saturating_sub(1) as u64
}

/// The seeds that a stack runs a path with. In the simulator without chance, one run is all runs.
fn seeds_of(
    path: &Path,
    stack: Stack,
    seeds: &RangeInclusive<u64>,
    chances: &RangeInclusive<u64>,
) -> RangeInclusive<u64> {
    match (stack.is_simulated(), path.has_chance()) {
        (false, _) => seeds.clone(),
        (true, true) => chances.clone(),
        (true, false) => *seeds.start()..=*seeds.start(),
    }
}

impl Grid {
    /// Measures what is not measured yet: first the simulator, on all processors, then the lab.
    pub(super) fn measure(self, lab: &Lab) -> Result<Measured> {
        let path = lab.out.join(self.id).join("runs.csv");
        let mut journal = Journal::open(&path, &lab.version, METRICS, lab.fresh(self.id))?;
        let tools = real::Tools::prepare(lab)?;
        let (chances, seeds) = (seeds(lab, CHANCES), seeds(lab, RUNS));
        let paths: BTreeSet<String> = self.sweeps.iter().flat_map(|s| &s.points).map(|p| p.1.to_string()).collect();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let work = self.work;
        let mut made = Made::default();
        for simulated_ones in [true, false] {
            let mut tasks = Vec::new();
            for stack in self.stacks.iter().filter(|s| s.is_simulated() == simulated_ones) {
                let runs = paths.iter().filter_map(|p| Some((p, Path::parse(p)?)));
                let runs = runs
                    .flat_map(|(p, path)| seeds_of(&path, *stack, &seeds, &chances).map(move |seed| (p, path, seed)));
                for (scenario, path, seed) in runs {
                    let key = Key { scenario: scenario.clone(), series: stack.name(), seed };
                    let (weight, seconds) = if simulated_ones {
                        (1.0 / processors as f64, 0.2 + 0.3 * work.payload() as f64 / 1e7)
                    } else {
                        let seconds = path.seconds(work.payload());
                        let goodput = work.payload() as f64 * 8.0 / 1e6 / seconds;
                        // Building the lab and starting the programs takes most of a second, and a processor: of short
                        // transfers fewer are made at once.
                        let least = if work == Work::Ten { 0.5 } else { 1.0 / JOBS as f64 };
                        ((goodput / RATE_AT_ONCE).max(least), seconds + 0.7)
                    };
                    tasks.push(Task { key, weight, seconds });
                }
            }
            let (place, jobs) = if simulated_ones { ("simulator", processors) } else { ("lab", JOBS) };
            let what = format!("{}, {place}", self.id);
            let measure = |key: &Key| one(&tools, work, key);
            let jobs = lab.jobs.unwrap_or(jobs);
            let part = grid::run(&what, &mut journal, tasks, jobs, &mut lab.rng(20), &measure)?;
            made.before += part.before;
            made.now += part.now;
            made.failures.extend(part.failures);
        }
        if made.before + made.now == 0 {
            let why = made.failures.first().map_or("there was nothing to measure", String::as_str);
            return Err(MeasureError::Failed(why.to_owned()));
        }
        Ok(Measured { grid: self, journal, seeds, chances, made })
    }
}

/// One run.
fn one(tools: &real::Tools, work: Work, key: &Key) -> Result<Vec<f64>> {
    let unknown = || MeasureError::Failed(format!("neither a path nor a stack of ours: {key:?}"));
    let (path, stack) = Path::parse(&key.scenario).zip(Stack::named(&key.series)).ok_or_else(unknown)?;
    if stack.is_simulated() {
        let over = if stack == Stack::SimulatedTcp { neater_engine::Stack::Tcp } else { neater_engine::Stack::Quic };
        return Ok(simulated::transfer(&path, over, work, key.seed)?.row());
    }
    let transfer = || real::transfer(tools, &path, stack, work, key.seed);
    Ok(soundest(|t: &Transfer| t.late_p99_us, late_max(&path), transfer)?.row())
}

impl Measured {
    /// One metric of all runs of a stack on a path.
    pub(super) fn values(&self, path: &Path, stack: Stack, metric: &str) -> Vec<f64> {
        let seeds = seeds_of(path, stack, &self.seeds, &self.chances);
        self.journal.values(&path.to_string(), &stack.name(), metric, seeds)
    }

    /// One metric of each run of a stack on a path, by its seed.
    pub(super) fn by_seed(&self, path: &Path, stack: Stack, metric: &str) -> BTreeMap<u64, f64> {
        let seeds = seeds_of(path, stack, &self.seeds, &self.chances);
        self.journal.by_seed(&path.to_string(), &stack.name(), metric, seeds)
    }

    /// How many runs of a stack on a path were planned.
    pub(super) fn planned(&self, path: &Path, stack: Stack) -> usize {
        seeds_of(path, stack, &self.seeds, &self.chances).count()
    }

    /// Whether more runs of a stack on a path failed than may, so that those that are left cannot be judged.
    pub(super) fn lacks_runs(&self, path: &Path, stack: Stack) -> bool {
        !are_enough(self.values(path, stack, "goodput_mbit").len(), self.planned(path, stack))
    }

    /// Whether the emulator was so late in most runs of a stack on a path that they say nothing.
    pub(super) fn is_void(&self, path: &Path, stack: Stack) -> bool {
        let late = self.values(path, stack, "late_p99_us");
        !late.is_empty() && median(&late) > late_max(path)
    }

    /// Median goodput of our QUIC and of another stack, in words.
    pub(super) fn pair(&self, path: &Path, other: Stack) -> String {
        let at = |stack| Spread::of(&self.values(path, stack, "goodput_mbit"));
        match (at(Stack::Quic), at(other)) {
            (Some(a), Some(b)) => format!("QUIC {:.1}, HTTPS {:.1} Mbit/s", a.median, b.median),
            _ => "not measured in this form".to_owned(),
        }
    }

    /// Something computed from each run's payload and metrics.
    pub(super) fn derived(&self, path: &Path, stack: Stack, of: &str) -> Vec<f64> {
        let payload = self.grid.work.payload() as f64;
        let per = |metric: &str, f: &dyn Fn(f64) -> f64| self.values(path, stack, metric).into_iter().map(f).collect();
        match of {
            "overhead_bytes_ratio" => per("sent_bytes", &|v| v / payload),
            "overhead_packets_per_mb" => per("sent_packets", &|v| v / (payload / 1e6)),
            "back_bytes_ratio" => per("back_bytes", &|v| v / payload),
            "own_goodput_mbit" => per("own_seconds", &|v| payload * 8.0 / 1e6 / v),
            metric => self.values(path, stack, metric),
        }
    }

    /// All paths, each once, in the order of the sweeps.
    pub(super) fn paths(&self) -> Vec<Path> {
        let mut all: Vec<Path> = Vec::new();
        for (_, path) in self.grid.sweeps.iter().flat_map(|s| &s.points) {
            if !all.contains(path) {
                all.push(*path);
            }
        }
        all
    }

    /// A figure for each stack and path.
    pub(super) fn figures(&self, id: &'static str, name: &'static str, unit: &'static str, out: &mut Outcome) {
        for path in self.paths() {
            for stack in &self.grid.stacks {
                let series = stack.name();
                let f = Figure::new(id, name, format!("{series}, {path}"), unit).with("stack", series);
                let f = f.with("scenario", path.to_string());
                out.figures.push(match Spread::of(&self.derived(&path, *stack, name)) {
                    Some(s) => f
                        .value(s.median, s.runs)
                        .with("min", s.min)
                        .with("max", s.max)
                        .void_for(self.is_void(&path, *stack).then_some("the emulator was late")),
                    None => f.missing("no run came to its end"),
                });
            }
        }
    }

    /// A drawing of one metric for each sweep, with what was published beside it.
    pub(super) fn draw(
        &self,
        out: &mut Outcome,
        metric: &str,
        y: &Axis,
        caption: &str,
        extra: impl Fn(&Sweep) -> Vec<Curve>,
    ) {
        for sweep in &self.grid.sweeps {
            let curve = |stack: &Stack| {
                let point = |(x, path): &(f64, Path)| {
                    let s = Spread::of(&self.derived(path, *stack, metric));
                    Point { x: *x, y: s.map(|s| s.median), bar: s.filter(|s| s.runs > 1).map(|s| (s.min, s.max)) }
                };
                Curve { name: stack.name(), points: sweep.points.iter().map(point).collect(), steps: false }
            };
            let mut curves: Vec<Curve> = self.grid.stacks.iter().map(curve).collect();
            curves.extend(extra(sweep));
            let lines = Lines { title: sweep.title.clone(), x: sweep.x(), y: y.clone(), curves };
            let name =
                if metric == "goodput_mbit" { sweep.name.to_owned() } else { format!("{}-{metric}", sweep.name) };
            let n = self.seeds.clone().count();
            let bars = if n > 1 {
                format!("Median of {n} runs with the smallest and the largest")
            } else {
                "One run".to_owned()
            };
            let chances = self.chances.clone().count();
            let bars = format!("{bars}; {chances} runs in the simulator where chance decides.");
            let caption = format!("{caption} {bars}");
            let title = format!("{}: {} over {}", self.grid.id, y.label, sweep.axis.0);
            out.drawings.push(Drawing::new(name, title, caption, vec![Panel::Lines(lines)]));
        }
    }

    /// Says what failed and what was there before.
    pub(super) fn remarks(&self, out: &mut Outcome) {
        out.runs = Some(self.seeds.clone().count());
        if self.made.before > 0 {
            out.remarks.push(format!(
                "{} of {} runs were made earlier by the same build, and not again.",
                self.made.before,
                self.made.before + self.made.now
            ));
        }
        for why in &self.made.failures {
            out.remarks.push(format!("A run failed: {why}"));
        }
        let late: Vec<f64> = self
            .paths()
            .iter()
            .flat_map(|p| self.grid.stacks.iter().map(move |s| (p, *s)))
            .filter(|(_, s)| !s.is_simulated())
            .flat_map(|(p, s)| self.values(p, s, "late_p99_us"))
            .collect();
        if let Some(s) = Spread::of(&late) {
            out.remarks.push(format!(
                "The emulator handed packets over late by {:.0} µs (99th percentile; the median of all runs), {:.0} µs in \
                 the worst run. Figures of runs in which that was more than 0.5 ms and one percent of the round trip are void.",
                s.median, s.max
            ));
        }
    }

    /// How far lab and simulator agree in one metric: a figure for each path, one for all, and a remark on those that do not.
    pub(super) fn agreement(&self, id: &'static str, metric: &str, real: Stack, simulated: Stack, out: &mut Outcome) {
        let what = match metric {
            "own_goodput_mbit" => real.name(),
            other => format!("{}, {other}", real.name()),
        };
        let (mut agree, mut all, mut planned, mut apart, mut outside) = (0, 0, 0, Vec::new(), Vec::new());
        let mut unexplained = 0;
        for path in self.paths() {
            let boxed = simulated != Stack::SimulatedTcp || path.in_tcp_box();
            planned += usize::from(boxed);
            let at = |stack| Spread::of_median(&self.derived(&path, stack, metric));
            let f = Figure::new(id, "simulator_over_lab", format!("{what}, {path}"), "1");
            let (Some(l), Some(s)) = (at(real), at(simulated)) else {
                out.figures.push(f.missing("not measured in both places"));
                continue;
            };
            let meets = l.meets(&s, SLACK);
            let void = self.why_void(&path, real).or((l.runs < 2).then_some(ONE_RUN));
            if void.is_none() && boxed {
                all += 1;
                agree += usize::from(meets);
            }
            let ratio = s.median / l.median;
            if !boxed {
                outside.push(format!("{path} ({ratio:.2})"));
            } else if !meets && void.is_none() {
                let why = self.explanation(&path, real, simulated);
                unexplained += usize::from(why.is_none());
                apart.push(format!("{path} ({ratio:.2}; {})", why.as_deref().unwrap_or("unexplained")));
            }
            let f = f.value(ratio, l.runs.min(s.runs)).with("error_bars_meet", meets);
            let f = if boxed { f } else { f.with("outside_box", true) };
            out.figures.push(f.void_for(void));
        }
        // Runs that are too few to be judged are no failure.
        let few = !are_enough(self.seeds.clone().count(), RUNS.0);
        out.figures.push(agrees(id, &what, agree, all, planned, few));
        let f =
            Figure::new(id, "unexplained_points", format!("{what}: points apart of which the runs say nothing"), "1");
        out.figures.push(match all {
            0 => f.missing(NOWHERE).needs(RUNS.0).judge_unless(few, Bound::AtMost(0.0)),
            _ => f.value(f64::from(unexplained as u32), all).needs(RUNS.0).judge_unless(few, Bound::AtMost(0.0)),
        });
        if !outside.is_empty() {
            out.remarks.push(format!(
                "{what}, simulator over lab, outside of the conditions that the simulated TCP is calibrated for, reported and not \
                 judged: {}.",
                outside.join(", ")
            ));
        }
        if !apart.is_empty() {
            let apart = apart.join(", ");
            out.remarks.push(format!("{what}, simulator over lab, where their error bars are apart: {apart}. {WHY}"));
        }
    }

    /// What the runs themselves say of a difference between the two places, if they say anything.
    fn explanation(&self, path: &Path, real: Stack, simulated: Stack) -> Option<String> {
        let mid = |stack, metric: &str| {
            let all = self.values(path, stack, metric);
            if all.is_empty() { f64::NAN } else { median(&all) }
        };
        let mut causes = Vec::new();
        let payload = self.grid.work.payload() as f64;
        let metrics: [(&str, &str, f64); 3] = [
            ("queue_drops", "dropped by the queue", 2.0),
            ("lost", "lost by chance", 2.0),
            ("sent_packets", "sent", 20.0),
        ];
        for (metric, words, least) in metrics {
            let (l, s) = (mid(real, metric), mid(simulated, metric));
            if (l - s).abs() > least.max(0.05 * l.max(s)) {
                causes.push(format!("{words}: {l:.0} packets in the lab, {s:.0} in the simulator"));
            }
        }
        let trips = mid(real, "own_seconds") / (path.rtt / 1e3);
        if path.round_trips(payload as u64) < 20.0 && path.loss == 0.0 {
            causes.push(format!("a transfer of {trips:.1} round trips, most of them start-up"));
        }
        (!causes.is_empty()).then(|| causes.join("; "))
    }

    /// Why the runs of a stack on a path say nothing, if they do not.
    pub(super) fn why_void(&self, path: &Path, stack: Stack) -> Option<&'static str> {
        if self.is_void(path, stack) {
            return Some("the emulator was late");
        }
        self.lacks_runs(path, stack).then_some("too many runs failed")
    }
}

/// What differs between the two places, whatever the point.
const WHY: &str = "Beside what is said of each point, the lab pays for what the simulator does not have: processor time for \
    cryptography and system calls, timers of the kernel, and a process that is scheduled late. Goodput is compared by the \
    client's own clock, so that starting the process does not count. Intervals for the median are compared; what is drawn has the \
    smallest and the largest run.";

/// A single run of the lab is a value without an error bar: that it lies within some percent of another says nothing.
pub(super) const ONE_RUN: &str = "one run in the lab has no error bar";
/// Why no point can be judged.
const NOWHERE: &str = "no point was measured in both places, in time and more than once";

/// Points agree when their intervals for the median, widened by this part, meet.
const SLACK: f64 = 0.02;
/// So many of the points must agree: fewer, and what is said of single points explains nothing.
const AGREE: f64 = 0.8;

/// The part of the points that agree, of those that were measured in both places and in time; void if too few were, and not judged if each
/// has too `few` runs.
fn agrees(id: &'static str, name: &str, agree: usize, measured: usize, points: usize, few: bool) -> Figure {
    let what = format!("{name}: part of the points whose error bars meet within 2 %");
    let f = Figure::new(id, "simulator_agrees", what, "1").with("points", points).needs(RUNS.0);
    if measured == 0 {
        return f.missing(NOWHERE).judge_unless(few, Bound::AtLeast(AGREE));
    }
    f.value(agree as f64 / measured as f64, measured)
        .void_for((!are_enough(measured, points)).then_some("too few points were measured in both places and in time"))
        .judge_unless(few, Bound::AtLeast(AGREE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_bars_meet_or_do_not() {
        let of = |v: &[f64]| Spread::of(v).expect("values");
        let (a, b, c) = (of(&[1.0, 2.0, 3.0]), of(&[2.9, 4.0]), of(&[3.2, 5.0]));
        assert_eq!((a.min, a.median, a.max, a.runs), (1.0, 2.0, 3.0, 3));
        assert!(a.meets(&b, 0.0) && b.meets(&a, 0.0));
        assert!(!a.meets(&c, 0.0) && !c.meets(&a, 0.02));
        assert!(a.meets(&c, 0.05));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn the_interval_for_a_median_narrows_with_the_runs() {
        // Ranks of distribution-free 95 % intervals: 1 and 5 of 5 (94 %), 1 and 6 of 6, 2 and 9 of 10, 6 and 15 of 20, 10 and 21 of 30.
        for (n, cut) in [(1, 0), (2, 0), (5, 0), (6, 0), (10, 1), (20, 5), (30, 9)] {
            assert_eq!(ranks_cut(n), cut, "{n}");
        }
        let values: Vec<f64> = (1..=20).rev().map(f64::from).collect();
        let s = Spread::of_median(&values).expect("values");
        assert_eq!((s.min, s.median, s.max, s.runs), (6.0, 10.5, 15.0, 20));
        assert_eq!(Spread::of_median(&[2.0]).map(|s| (s.min, s.max)), Some((2.0, 2.0)));
        assert_eq!(Spread::of_median(&[]), None);
    }

    #[test]
    fn lab_and_simulator_agree_if_most_points_do_and_most_were_measured() {
        let of = |agree, measured, points| agrees("B1", "neater QUIC", agree, measured, points, false);
        assert_eq!(of(8, 10, 10).met, Some(true));
        assert_eq!(of(7, 10, 10).met, Some(false));
        assert_eq!((of(5, 5, 10).met, of(5, 5, 10).void), (None, true));
        assert!(of(0, 0, 10).missing.is_some());
    }
}
