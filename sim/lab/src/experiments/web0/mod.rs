//! WEB0: what users look at first. Downloads beside curl, serving beside nginx, and the async API beside tokio-rustls and quinn.
//!
//! *Responsible for* the rows, the order of runs in a row, and what becomes of them. Servers, clients and the processors that they have are
//! in [`bench`], downloads in [`fetch`], serving in [`load`].
//!
//! *Invariants*: a row compares runs that alternate, ours, reference, control, control, reference, ours; the control is the reference once
//! more, and a row whose control is not known within 3 % is void. Only the width of that interval decides whether more pairs are taken.

mod bench;
mod fetch;
mod load;

use super::{Lab, Outcome, bulk};
use crate::measure::stats::{Estimate, median, ratio_of_medians};
use crate::measure::{Exit, Result};
use crate::programs::Program;
use crate::report::{Bound, Figure};
use bench::Bench;
use neater_base::Rng;

const ID: &str = "WEB0";
/// Pairs of a full run, which a verdict needs, and of a quick one.
const PAIRS: (usize, usize) = (20, 5);
/// How often the pairs are taken at most, while the control is too wide.
const STEADYING: usize = 2;
/// A control interval wider than this makes a row void.
const CONTROL_MAX: f64 = 0.03;
/// From here on a processor of the generator limits what servers could do.
const GENERATOR_MAX: f64 = 0.85;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// A program of ours.
    Ours,
    /// What it is compared with.
    Reference,
}

/// One run.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    /// What was done in a second: megabytes, files or requests.
    rate: f64,
    /// CPU time of the measured process, in the unit of the row.
    cpu: f64,
    /// The part of the time in which the generator used its processor; 0 where there is none.
    generator: f64,
}

impl Run {
    /// Of a command that has done so much.
    fn of(amount: f64, exit: &Exit) -> Self {
        Self { rate: amount / exit.wall.as_secs_f64(), cpu: exit.cpu.as_secs_f64(), generator: 0.0 }
    }
}

/// One number of a run.
type Pick = fn(&Run) -> f64;
const RATE: Pick = |r| r.rate;
const CPU: Pick = |r| r.cpu;

/// One ratio that a row gives: ours over the reference.
struct Ratio {
    name: &'static str,
    pick: Pick,
    /// What is compared, with its unit.
    of: &'static str,
    /// `None`: it is reported only.
    bound: Option<Bound>,
    /// What the lower end of the interval is to reach.
    low: Option<f64>,
    /// Void where the generator had no time left.
    by_generator: bool,
}

const GET: &[Ratio] = &[
    Ratio {
        name: "get_ratio_vs_curl",
        pick: RATE,
        of: "megabytes_per_second",
        bound: Some(Bound::AtLeast(0.97)),
        low: Some(0.93),
        by_generator: false,
    },
    Ratio {
        name: "get_cpu_ratio_vs_curl",
        pick: CPU,
        of: "cpu_seconds",
        bound: Some(Bound::AtMost(1.10)),
        low: None,
        by_generator: false,
    },
];

const SMALL: &[Ratio] = &[Ratio {
    name: "small_files_ratio_vs_curl",
    pick: RATE,
    of: "files_per_second",
    bound: Some(Bound::AtLeast(0.97)),
    low: Some(0.93),
    by_generator: false,
}];

const SMALL_AT_ONCE: &[Ratio] = &[Ratio {
    name: "small_files_ratio_vs_curl",
    pick: RATE,
    of: "files_per_second",
    bound: None,
    low: None,
    by_generator: false,
}];

/// The ratios of a load; `cpu`: the unit of its CPU time.
fn of_serving(cpu: &'static str) -> [Ratio; 2] {
    [
        Ratio {
            name: "serve_cpu_ratio_vs_nginx",
            pick: CPU,
            of: cpu,
            bound: Some(Bound::AtMost(1.25)),
            low: None,
            by_generator: false,
        },
        Ratio {
            name: "serve_ratio_vs_nginx",
            pick: RATE,
            of: "requests_per_second",
            bound: Some(Bound::AtLeast(0.8)),
            low: None,
            by_generator: true,
        },
    ]
}

/// The series of a row, as indices.
const OURS: usize = 0;
const REFERENCE: usize = 1;
const CONTROL: usize = 2;

/// All runs of a row, by series; each has as many.
#[derive(Debug, Default)]
struct Rounds([Vec<Run>; 3]);

impl Rounds {
    /// Takes so many pairs, and a control with each.
    fn add(&mut self, pairs: usize, sample: &mut dyn FnMut(Side) -> Result<Run>) -> Result<()> {
        for pair in 0..pairs {
            // The reference is next to both of the others, and what drifts meets all three alike.
            let order = if pair % 2 == 0 { [OURS, REFERENCE, CONTROL] } else { [CONTROL, REFERENCE, OURS] };
            for series in order {
                self.0[series].push(sample(if series == OURS { Side::Ours } else { Side::Reference })?);
            }
        }
        Ok(())
    }

    fn all(&self, series: usize, pick: Pick) -> Vec<f64> {
        self.0[series].iter().map(pick).collect()
    }

    /// A series over the reference.
    fn ratio(&self, series: usize, pick: Pick, rng: &mut Rng) -> Option<Estimate> {
        ratio_of_medians(&self.all(series, pick), &self.all(REFERENCE, pick), rng)
    }

    /// The part of its time for which the generator was busy, where it was busier.
    fn generator(&self) -> f64 {
        let of = |series| median(&self.all(series, |r| r.generator));
        of(OURS).max(of(REFERENCE))
    }
}

impl Ratio {
    /// The figures of this ratio: ours, its lower end where that has a bound, and the control.
    fn figures(&self, row: &Row<'_>, got: &std::result::Result<Rounds, String>, rng: &mut Rng) -> Vec<Figure> {
        let new = |end: &str| Figure::new(ID, format!("{}{end}", self.name), row.variant, "1").with("of", self.of);
        let rounds = match got {
            Ok(rounds) => rounds,
            Err(why) => {
                let judge = |f: Figure, bound| f.missing(why.clone()).judge(bound);
                let ours = match self.bound {
                    Some(bound) => judge(new(""), bound),
                    None => new("").missing(why.clone()),
                };
                let low = self.low.map(|low| judge(new("_low"), Bound::LowAtLeast(low)));
                return [ours].into_iter().chain(low).collect();
            }
        };
        let control = rounds.ratio(CONTROL, self.pick, rng);
        let wide = control.is_none_or(|c| c.width() > CONTROL_MAX);
        let busy = self.by_generator.then(|| rounds.generator()).filter(|busy| *busy >= GENERATOR_MAX);
        let busy = busy.map(|busy| format!("the generator's processor was {:.0} % busy", busy * 100.0));
        let runs = rounds.0[OURS].len();
        let estimated = rounds.ratio(OURS, self.pick, rng);
        let ours = |end: &str| {
            let f = new(end).with("program", "neater").needs(PAIRS.0);
            match estimated {
                Some(e) => f
                    .estimate(e, runs)
                    .with("median", median(&rounds.all(OURS, self.pick)))
                    .with("median_reference", median(&rounds.all(REFERENCE, self.pick)))
                    .void_for(busy.as_deref()),
                None => f.missing("no samples"),
            }
        };
        // The generator's reason is the more useful one, where both hold.
        let void = |f: Figure| if f.void { f } else { f.void_if(wide) };
        let mut figures = vec![match self.bound {
            Some(bound) => void(ours("")).judge(bound),
            None => void(ours("")),
        }];
        if let Some(low) = self.low {
            figures.push(void(ours("_low")).judge(Bound::LowAtLeast(low)));
        }
        let aa = new("_aa").with("program", row.reference);
        figures.push(match control {
            Some(e) => aa.estimate(e, runs).void_if(wide).with("width", e.width()),
            None => aa.missing("no samples of the control"),
        });
        figures
    }
}

/// Runs of one kind that are compared.
struct Row<'a> {
    /// Its name for `--only`.
    point: &'a str,
    variant: &'a str,
    /// The program that ours is compared with.
    reference: &'static str,
    ratios: &'a [Ratio],
}

impl Row<'_> {
    /// Takes the row and adds its figures; one that cannot be taken is named in them.
    fn measure(&self, lab: &Lab, out: &mut Outcome, sample: &mut dyn FnMut(Side) -> Result<Run>) {
        if !lab.is_wanted(self.point) {
            return;
        }
        let mut rng = lab.rng(0x30);
        let got = self.take(lab, &mut rng, sample).map_err(|e| e.to_string());
        match &got {
            Ok(rounds) => self.keep(out, rounds),
            Err(why) => (lab.progress)(&format!("SKIP: {}: {why}", self.point)),
        }
        for ratio in self.ratios {
            let figures = ratio.figures(self, &got, &mut rng);
            for f in &figures {
                if let Some(why) = &f.void_why {
                    out.remarks.push(format!("{} {} is void: {why}", f.name, f.variant));
                }
            }
            out.figures.extend(figures);
        }
    }

    fn take(&self, lab: &Lab, rng: &mut Rng, sample: &mut dyn FnMut(Side) -> Result<Run>) -> Result<Rounds> {
        let pairs = pairs(lab);
        (lab.progress)(&format!("{}, {pairs} pairs", self.point));
        let mut got = Rounds::default();
        // Caches are warm before anything counts.
        sample(Side::Ours)?;
        sample(Side::Reference)?;
        for taken in 1..=STEADYING {
            got.add(pairs, sample)?;
            let widths = self.ratios.iter().map(|r| got.ratio(CONTROL, r.pick, rng).map_or(0.0, |c| c.width()));
            let widest = widths.fold(0.0, f64::max);
            if widest <= CONTROL_MAX || lab.quick || taken == STEADYING {
                break;
            }
            (lab.progress)(&format!("the control is known within {widest:.3} only: {pairs} pairs more"));
        }
        Ok(got)
    }

    /// Keeps the raw numbers.
    fn keep(&self, out: &mut Outcome, rounds: &Rounds) {
        for ratio in self.ratios {
            for (series, name) in [(OURS, "neater"), (REFERENCE, self.reference), (CONTROL, "control")] {
                for (run, value) in rounds.all(series, ratio.pick).into_iter().enumerate() {
                    out.sample(ratio.of, name, self.point, run, value);
                }
            }
        }
        for (series, name) in [(OURS, "neater"), (REFERENCE, self.reference)] {
            for (run, r) in rounds.0[series].iter().enumerate().filter(|(_, r)| r.generator > 0.0) {
                out.sample("generator_busy", name, self.point, run, r.generator);
            }
        }
    }
}

/// Pairs of a row.
fn pairs(lab: &Lab) -> usize {
    lab.seeds.unwrap_or(if lab.quick { PAIRS.1 } else { PAIRS.0 })
}

pub(super) fn run(lab: &Lab) -> Result<Outcome> {
    let mut out = Outcome { runs: Some(pairs(lab)), ..Outcome::default() };
    {
        let bench = Bench::new(lab)?;
        downloads(&bench, &mut out);
        serving(&bench, &mut out);
    }
    // Without other servers on the machine.
    peers(lab, &mut out);
    for (name, title, unit) in [
        ("get_ratio_vs_curl", "Throughput of a download over curl's", "ratio"),
        ("get_cpu_ratio_vs_curl", "CPU time of a download over curl's", "ratio"),
        ("small_files_ratio_vs_curl", "Small files in a second over curl's", "ratio"),
        ("serve_cpu_ratio_vs_nginx", "CPU time of serving over nginx's", "ratio"),
        ("serve_ratio_vs_nginx", "Requests in a second over nginx's", "ratio"),
        ("tls_ratio_vs_tokio_rustls", "TLS through the async API over tokio-rustls", "ratio"),
        ("quic_ratio_vs_quinn", "QUIC through the async API over quinn", "ratio"),
        ("startup_ms", "A command that fetches one byte", "ms"),
        ("syscalls_per_request", "System calls for a request of 1 kB", "calls"),
    ] {
        if out.figures.iter().any(|f| f.name == name) {
            out.panel(name, title, unit, |f| {
                let program = f.extra.get("program").and_then(|p| p.as_str()).unwrap_or("neater");
                (f.variant.clone(), program.to_owned())
            });
        }
    }
    Ok(out)
}

fn downloads(bench: &Bench<'_>, out: &mut Outcome) {
    let lab = bench.lab;
    for (point, variant, tls) in [("get-plain", "plain", false), ("get-tls", "tls", true)] {
        let row = Row { point, variant, reference: "curl", ratios: GET };
        row.measure(lab, out, &mut |side| fetch::large(bench, tls, side));
    }
    for (point, variant, tls, at_once, ratios) in [
        ("small-plain", "plain", false, 1, SMALL),
        ("small-tls", "tls", true, 1, SMALL),
        ("small-plain-4", "plain-4-at-once", false, 4, SMALL_AT_ONCE),
    ] {
        let row = Row { point, variant, reference: "curl", ratios };
        row.measure(lab, out, &mut |side| fetch::small(bench, tls, at_once, side));
    }
    if lab.is_wanted("startup") {
        fetch::startup(bench, out);
    }
}

fn serving(bench: &Bench<'_>, out: &mut Outcome) {
    for load in &load::LOADS {
        let ratios = of_serving(load.unit());
        let point = format!("serve-{}", load.name);
        let row = Row { point: &point, variant: load.name, reference: "nginx", ratios: &ratios };
        row.measure(bench.lab, out, &mut |side| load.run(bench, side));
    }
    if bench.lab.is_wanted("syscalls") {
        load::syscalls(bench, out);
    }
}

/// The same comparison as that of BULK, by the rules of this experiment.
fn peers(lab: &Lab, out: &mut Outcome) {
    for (point, name, security, reference) in [
        ("peers-tls", "tls_ratio_vs_tokio_rustls", "tls", Program::Tokio),
        ("peers-quic", "quic_ratio_vs_quinn", "quic", Program::Quinn),
    ] {
        let ratios = [Ratio {
            name,
            pick: RATE,
            of: "bytes_per_second",
            bound: Some(Bound::AtLeast(0.97)),
            low: None,
            by_generator: false,
        }];
        let row = Row { point, variant: security, reference: reference.name(), ratios: &ratios };
        row.measure(lab, out, &mut |side| {
            let program = if side == Side::Ours { Program::Neater } else { reference };
            Ok(Run { rate: bulk::throughput(lab, program, security)?, ..Run::default() })
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: Row<'static> = Row { point: "serve-x", variant: "x", reference: "nginx", ratios: &[] };

    /// Rounds of steady runs, ours with this rate, the control with these deviations.
    fn rounds(ours: f64, generator: f64, control: &[f64]) -> Rounds {
        let run = |rate| Run { rate, cpu: 1.0, generator };
        let steady = vec![run(1.0); control.len()];
        let ours = vec![run(ours); control.len()];
        Rounds([ours, steady, control.iter().map(|c| run(*c)).collect()])
    }

    fn figures(ratio: &Ratio, got: std::result::Result<Rounds, String>) -> Vec<Figure> {
        ratio.figures(&ROW, &got, &mut Rng::from_number(1))
    }

    #[test]
    fn runs_alternate_with_the_reference_in_the_middle() {
        let (mut got, mut order) = (Rounds::default(), String::new());
        let taken = got.add(3, &mut |side| {
            order.push(if side == Side::Ours { 'o' } else { 'r' });
            Ok(Run::default())
        });
        taken.expect("taken");
        assert_eq!(order, "orrrroorr");
        assert!(got.0.iter().all(|series| series.len() == 3));
    }

    #[test]
    fn both_bounds_of_a_ratio_are_judged_and_the_control_is_last() {
        let all = figures(&GET[0], Ok(rounds(0.95, 0.0, &[1.0; 20])));
        let names: Vec<_> = all.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["get_ratio_vs_curl", "get_ratio_vs_curl_low", "get_ratio_vs_curl_aa"]);
        assert_eq!((all[0].met, all[1].met, all[2].bound), (Some(false), Some(true), None));
        let few = figures(&GET[0], Ok(rounds(0.95, 0.0, &[1.0; 5])));
        assert!(few[0].not_judged && few[1].not_judged);
    }

    #[test]
    fn a_wide_control_or_a_busy_generator_makes_a_ratio_void() {
        let restless: Vec<f64> = (0..20_u8).map(|i| 1.0 + 0.1 * f64::from(i % 3)).collect();
        let wide = figures(&GET[0], Ok(rounds(1.0, 0.0, &restless)));
        assert!(wide.iter().all(|f| f.void && f.met.is_none()), "{wide:?}");
        let [cpu, rate] = of_serving("cpu_us_per_request");
        let busy = figures(&rate, Ok(rounds(1.0, 0.9, &[1.0; 20])));
        assert!(busy[0].void && busy[0].void_why.as_deref().is_some_and(|w| w.contains("90 % busy")), "{busy:?}");
        assert!(!busy[1].void, "the control is judged by its width alone");
        assert_eq!(figures(&cpu, Ok(rounds(1.0, 0.9, &[1.0; 20])))[0].met, Some(true));
        assert_eq!(figures(&rate, Ok(rounds(1.0, 0.8, &[1.0; 20])))[0].met, Some(true));
    }

    #[test]
    fn a_row_that_was_not_taken_misses_its_bounds() {
        let all = figures(&GET[0], Err("no server".to_owned()));
        assert_eq!(all.len(), 2);
        assert!(all.iter().all(|f| f.bound.is_some() && f.met.is_none() && f.missing.is_some()));
        assert_eq!(figures(&SMALL_AT_ONCE[0], Err("no server".to_owned()))[0].bound, None);
    }
}
