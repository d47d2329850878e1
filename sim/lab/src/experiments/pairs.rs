//! Rows of pairs: programs of ours beside what people would use instead, by turns, with a control.
//!
//! *Responsible for* the order of runs, how many pairs are taken, ratios with their intervals, and when a row is void. *Not here*: what a
//! run is; each experiment has its own.
//!
//! *Invariants*: a row compares runs that alternate, ours, reference, control, control, reference, ours; the control is the reference once
//! more, and a row whose control is not known within 3 % is void. Only the width of that interval decides whether more pairs are taken.

use super::{Lab, Outcome};
use crate::measure::stats::{Estimate, median, ratio_of_medians};
use crate::measure::{Exit, Result};
use crate::report::{Bound, Figure};
use neater_base::Rng;

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
pub(super) enum Side {
    /// A program of ours.
    Ours,
    /// What it is compared with.
    Reference,
}

/// One run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    /// What was done in a second: megabytes, files or requests.
    pub(super) rate: f64,
    /// CPU time of the measured process, in the unit of the row.
    pub(super) cpu: f64,
    /// The part of the time in which the generator used its processor; 0 where there is none.
    pub(super) generator: f64,
}

impl Run {
    /// Of a command that has done so much.
    pub(super) fn of(amount: f64, exit: &Exit) -> Self {
        Self { rate: amount / exit.wall.as_secs_f64(), cpu: exit.cpu.as_secs_f64(), generator: 0.0 }
    }
}

/// One number of a run.
pub(super) type Pick = fn(&Run) -> f64;
pub(super) const RATE: Pick = |r| r.rate;
pub(super) const CPU: Pick = |r| r.cpu;

/// One ratio that a row gives: ours over the reference.
pub(super) struct Ratio {
    pub(super) name: &'static str,
    pub(super) pick: Pick,
    /// What is compared, with its unit.
    pub(super) of: &'static str,
    /// `None`: it is reported only.
    pub(super) bound: Option<Bound>,
    /// What the lower end of the interval is to reach.
    pub(super) low: Option<f64>,
    /// Void where the generator had no time left.
    pub(super) by_generator: bool,
}

/// The series of a row, as indices.
const OURS: usize = 0;
const REFERENCE: usize = 1;
const CONTROL: usize = 2;

/// All runs of a row, by series; each has as many.
#[derive(Debug, Default)]
pub(super) struct Rounds([Vec<Run>; 3]);

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
        let new = |end: &str| Figure::new(row.id, format!("{}{end}", self.name), row.variant, "1").with("of", self.of);
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
pub(super) struct Row<'a> {
    /// The experiment.
    pub(super) id: &'static str,
    /// Its name for `--only`.
    pub(super) point: &'a str,
    pub(super) variant: &'a str,
    /// The program that ours is compared with.
    pub(super) reference: &'static str,
    pub(super) ratios: &'a [Ratio],
}

impl Row<'_> {
    /// Takes the row and adds its figures; one that cannot be taken is named in them.
    pub(super) fn measure(&self, lab: &Lab, out: &mut Outcome, sample: &mut dyn FnMut(Side) -> Result<Run>) {
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
pub(super) fn pairs(lab: &Lab) -> usize {
    lab.seeds.unwrap_or(if lab.quick { PAIRS.1 } else { PAIRS.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: Row<'static> = Row { id: "WEB0", point: "serve-x", variant: "x", reference: "nginx", ratios: &[] };

    const BOTH: Ratio = Ratio {
        name: "x_ratio",
        pick: RATE,
        of: "things_per_second",
        bound: Some(Bound::AtLeast(0.97)),
        low: Some(0.93),
        by_generator: false,
    };
    const REPORTED: Ratio = Ratio { bound: None, low: None, ..BOTH };
    const LOADED: Ratio = Ratio { bound: Some(Bound::AtLeast(0.8)), low: None, by_generator: true, ..BOTH };
    const FRUGAL: Ratio = Ratio { pick: CPU, bound: Some(Bound::AtMost(1.25)), low: None, ..BOTH };

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
        let all = figures(&BOTH, Ok(rounds(0.95, 0.0, &[1.0; 20])));
        let names: Vec<_> = all.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["x_ratio", "x_ratio_low", "x_ratio_aa"]);
        assert_eq!((all[0].met, all[1].met, all[2].bound), (Some(false), Some(true), None));
        let few = figures(&BOTH, Ok(rounds(0.95, 0.0, &[1.0; 5])));
        assert!(few[0].not_judged && few[1].not_judged);
    }

    #[test]
    fn a_wide_control_or_a_busy_generator_makes_a_ratio_void() {
        let restless: Vec<f64> = (0..20_u8).map(|i| 1.0 + 0.1 * f64::from(i % 3)).collect();
        let wide = figures(&BOTH, Ok(rounds(1.0, 0.0, &restless)));
        assert!(wide.iter().all(|f| f.void && f.met.is_none()), "{wide:?}");
        let busy = figures(&LOADED, Ok(rounds(1.0, 0.9, &[1.0; 20])));
        assert!(busy[0].void && busy[0].void_why.as_deref().is_some_and(|w| w.contains("90 % busy")), "{busy:?}");
        assert!(!busy[1].void, "the control is judged by its width alone");
        assert_eq!(figures(&FRUGAL, Ok(rounds(1.0, 0.9, &[1.0; 20])))[0].met, Some(true));
        assert_eq!(figures(&LOADED, Ok(rounds(1.0, 0.8, &[1.0; 20])))[0].met, Some(true));
    }

    #[test]
    fn a_row_that_was_not_taken_misses_its_bounds() {
        let all = figures(&BOTH, Err("no server".to_owned()));
        assert_eq!(all.len(), 2);
        assert!(all.iter().all(|f| f.bound.is_some() && f.met.is_none() && f.missing.is_some()));
        assert_eq!(figures(&REPORTED, Err("no server".to_owned()))[0].bound, None);
    }
}
