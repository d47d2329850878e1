//! Interleaved samples of several programs, and their comparison with one of them.
//!
//! *Invariants*: in each round every program runs once, in an order drawn anew, so that what changes on the machine over
//! time meets all of them alike; the reference runs twice, and the second is the control.

use super::stats::{self, Estimate};
use super::{MeasureError, Result};
use crate::programs::Program;
use neater_base::Rng;
use std::collections::BTreeMap;

/// One series of samples: a program, or the reference against itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Series {
    /// A program.
    Of(Program),
    /// The reference once more.
    Control,
}

impl Series {
    /// The name in raw data.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Of(p) => p.name(),
            Self::Control => "control",
        }
    }

    /// Which program is run for it.
    pub(super) const fn program(self, reference: Program) -> Program {
        match self {
            Self::Of(p) => p,
            Self::Control => reference,
        }
    }
}

/// Samples of all series, round by round.
#[derive(Debug, Default)]
pub struct Interleaved {
    /// Each has as many values as there were rounds.
    pub samples: BTreeMap<Series, Vec<f64>>,
    /// Programs that could not be measured, and why.
    pub missing: BTreeMap<Program, String>,
}

/// Takes `rounds` samples of each program and of the control.
///
/// A program other than the reference that fails is left out from then on.
///
/// # Errors
/// The reference failed.
pub fn interleave(
    reference: Program,
    programs: &[Program],
    rounds: usize,
    rng: &mut Rng,
    mut sample: impl FnMut(Program) -> Result<f64>,
) -> Result<Interleaved> {
    let mut out = Interleaved::default();
    let mut order: Vec<Series> = programs.iter().map(|p| Series::Of(*p)).collect();
    order.extend([Series::Of(reference), Series::Control]);
    // Round 0 warms caches and is not kept.
    for round in 0..=rounds {
        rng.shuffle(&mut order);
        for series in order.clone() {
            match sample(series.program(reference)) {
                Ok(_) if round == 0 => {}
                Ok(value) => out.samples.entry(series).or_default().push(value),
                Err(e) => {
                    out.leave_out(series, reference, e)?;
                    order.retain(|s| *s != series);
                }
            }
        }
    }
    Ok(out)
}

impl Interleaved {
    /// A program has failed, and is left out from now on.
    ///
    /// # Errors
    /// It is the reference.
    pub(super) fn leave_out(&mut self, series: Series, reference: Program, error: MeasureError) -> Result<()> {
        let program = series.program(reference);
        if program == reference {
            return Err(error);
        }
        self.missing.insert(program, error.to_string());
        self.samples.remove(&series);
        Ok(())
    }

    /// Adds the rounds of another measurement of the same programs.
    pub fn extend(&mut self, more: Self) {
        for (series, values) in more.samples {
            self.samples.entry(series).or_default().extend(values);
        }
        self.missing.extend(more.missing);
        // Of one that has failed on the way, the rounds would not be those of the others.
        let missing = &self.missing;
        self.samples.retain(|s, _| !matches!(s, Series::Of(p) if missing.contains_key(p)));
    }

    /// Compares a series with the reference; `None` if there are no samples of it.
    #[must_use]
    pub fn compare(
        &self,
        series: Series,
        reference: Program,
        rng: &mut Rng,
        statistic: fn(&[f64], &[f64], &mut Rng) -> Option<Estimate>,
    ) -> Option<Estimate> {
        statistic(self.samples.get(&series)?, self.samples.get(&Series::Of(reference))?, rng)
    }

    /// The median of a series.
    #[must_use]
    pub fn median(&self, series: Series) -> Option<f64> {
        self.samples.get(&series).map(|s| stats::median(s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::failed;

    #[test]
    fn every_round_has_each_program_once_and_the_reference_twice() {
        let mut calls = Vec::new();
        let got = interleave(Program::Libuv, &[Program::Epoll], 10, &mut Rng::from_number(1), |p| {
            calls.push(p);
            Ok(if p == Program::Epoll { 0.5 } else { 1.0 })
        })
        .expect("measured");
        assert_eq!(calls.len(), 33);
        for round in calls.chunks(3) {
            assert_eq!(round.iter().filter(|p| **p == Program::Libuv).count(), 2, "{round:?}");
        }
        assert!(calls.chunks(3).any(|r| r != &calls[..3]), "the order is drawn anew");
        let mut rng = Rng::from_number(2);
        let e = got.compare(Series::Of(Program::Epoll), Program::Libuv, &mut rng, stats::ratio_of_medians);
        assert_eq!(e.map(|e| (e.value, e.low, e.high)), Some((0.5, 0.5, 0.5)));
    }

    #[test]
    fn a_program_that_fails_is_left_out_and_named_but_the_reference_must_not() {
        let mut n = 0;
        let got = interleave(Program::Libuv, &[Program::Tokio], 4, &mut Rng::from_number(1), |p| {
            n += 1;
            if p == Program::Tokio && n > 5 { failed("broke") } else { Ok(1.0) }
        })
        .expect("the reference is there");
        assert_eq!(got.missing.get(&Program::Tokio).map(String::as_str), Some("broke"));
        assert!(!got.samples.contains_key(&Series::Of(Program::Tokio)));
        assert_eq!(got.samples[&Series::Control].len(), 4);
        let none = interleave(Program::Libuv, &[], 4, &mut Rng::from_number(1), |_| failed("broke"));
        assert!(none.is_err());
    }
}
