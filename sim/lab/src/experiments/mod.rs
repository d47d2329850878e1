//! The experiments, one file each.
//!
//! Every experiment gives figures, the raw numbers behind them, and panels to draw. A program that cannot be measured is a
//! figure that says so; an experiment fails only when what it compares with cannot be measured.

mod a1;
mod a10;
mod a5;
mod a8;
mod bulk;
mod cpu;
mod flows;
mod memory;

use crate::measure::cpu::{Interleaved, Series};
use crate::measure::stats::Estimate;
use crate::measure::{MeasureError, Result};
use crate::plot::{Panel, Row};
use crate::programs::{Program, Programs};
use crate::report::{Figure, Sample};
use neater_base::Rng;
use std::collections::BTreeMap;
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

/// What an experiment runs with.
pub struct Lab {
    /// Fewer runs and fewer points.
    pub quick: bool,
    /// Everything random follows from it.
    pub seed: u64,
    /// What is measured.
    pub programs: Programs,
    /// For the tools' output.
    pub scratch: PathBuf,
    /// Told what is going on.
    pub progress: Box<dyn Fn(&str)>,
}

impl Lab {
    pub(crate) fn pairs(&self) -> usize {
        if self.quick { PAIRS.1 } else { PAIRS.0 }
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
    /// What is drawn.
    pub panels: Vec<Panel>,
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
        self.panels.push(Panel { title: title.into(), unit: unit.into(), rows: rows.collect() });
    }
}

/// A figure as a bar with its program's name and colour.
pub(crate) fn row_by_program(f: &Figure) -> Row {
    let program = f.extra.get("program").and_then(|p| p.as_str()).unwrap_or(&f.variant).to_owned();
    let interval = f.ci_low.zip(f.ci_high);
    Row { label: program.clone(), series: program, value: f.value, interval, bound: f.bound }
}

/// An experiment.
#[derive(Clone, Copy)]
pub struct Experiment {
    /// Its id, as in the list of what the founding documents measured.
    pub id: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// What a reader of the drawing must know.
    pub note: &'static str,
    /// Does it.
    pub run: fn(&Lab) -> Result<Outcome>,
}

/// All experiments, in the order of `run all`.
pub const ALL: [Experiment; 9] = [
    Experiment {
        id: "A1",
        title: "A1: what opening a TCP flow costs the client",
        note: "Whole life of a flow (open, connected, closed), slope between 256 and 2,048 flows opened at once on \
               loopback. neater connects by name (two A and two AAAA records) with the outcome cached; the others to \
               the address.",
        run: a1::run,
    },
    Experiment {
        id: "A2",
        title: "A2: client CPU time over libuv",
        note: "User and system time from the first open to the end (libraries loaded, outcome of the race cached), ratio \
               of medians over interleaved pairs, 95 % bootstrap interval. 1 or 256 TCP flows at once, repeated.",
        run: cpu::clients,
    },
    Experiment {
        id: "A4",
        title: "A4: server CPU time over libuv",
        note: "User and system time of the whole process, ratio of medians over interleaved pairs, 95 % bootstrap \
               interval. 1 or 256 TCP flows at once, repeated; the client is the same for all.",
        run: cpu::servers,
    },
    Experiment {
        id: "A5",
        title: "A5: connect delay added to libuv's",
        note: "Median over the flows from the call to the connection, difference of medians over interleaved pairs, \
               95 % bootstrap interval.",
        run: a5::run,
    },
    Experiment {
        id: "A6",
        title: "A6: client memory per open TCP flow",
        note: "Slope between 256 and 2,048 open flows: bytes the allocator has given out (memcheck), and anonymous \
               resident memory (/proc).",
        run: memory::clients,
    },
    Experiment {
        id: "A7",
        title: "A7: server memory per open TCP flow",
        note: "Slope between 256 and 2,048 open flows: bytes the allocator has given out (memcheck), and anonymous \
               resident memory (/proc).",
        run: memory::servers,
    },
    Experiment {
        id: "A8",
        title: "A8: what a transferred megabyte costs",
        note: "Objects one after the other over 1 or 8 TCP flows, handed over in pieces of at most 64 kB, read with \
               64 kB. Counts are slopes between two amounts, with both sides on one processor.",
        run: a8::run,
    },
    Experiment {
        id: "A10",
        title: "A10: a cached connect over a single-protocol connect",
        note: "User-space instructions per flow: by name with the race's outcome cached, over one protocol and a \
               literal address.",
        run: a10::run,
    },
    Experiment {
        id: "BULK",
        title: "BULK: throughput over other people's programs",
        note: "One flow on loopback, the same program on both sides, 64 kB writes and reads, one thread each; ratio of \
               medians over interleaved pairs, 95 % bootstrap interval.",
        run: bulk::run,
    },
];

/// The values that could be measured, and why the others could not. Nothing can be measured without tools.
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

/// The ratio figures of one interleaved measurement, ours first, the control last. What is ours is judged by `judge`.
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
            let f = Figure::new(self.id, name, self.variant, self.unit).with("program", p.name());
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
        assert_eq!(ids, ["A1", "A2", "A4", "A5", "A6", "A7", "A8", "A10", "BULK"]);
    }
}
