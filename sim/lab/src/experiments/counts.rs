//! Counts of instructions beside those that are kept in the repository (`data/counts.toml`).
//!
//! A bound says what a flow or a datagram may cost. What is kept says what it did cost: a change that makes it dearer is seen in the
//! change itself, long before the bound is reached.

use crate::measure::{Result, failed};
use crate::report::{Bound, Figure};
use std::collections::BTreeMap;

const KEPT: &str = include_str!("../../data/counts.toml");
/// How much more than what is kept is no fault: as much as a new release of the compiler or of a library changes.
const MORE: f64 = 1.03;

/// By experiment and metric, the count of each variant.
type Kept = BTreeMap<String, BTreeMap<String, BTreeMap<String, f64>>>;

fn kept() -> Result<Kept> {
    toml::from_str(KEPT).or_else(|e| failed(format!("data/counts.toml: {e}")))
}

/// Those of these figures of which a count is kept, over that count.
///
/// # Errors
/// The file is not as it should be.
pub(super) fn over_kept(id: &'static str, figures: &[Figure]) -> Result<Vec<Figure>> {
    let kept = kept()?;
    let of = |f: &Figure| kept.get(id)?.get(&f.name)?.get(&f.variant).copied();
    let over = figures.iter().filter_map(|f| {
        let before = of(f)?;
        let over = Figure::new(id, "over_kept_count", f.variant.clone(), "ratio").with("kept", before);
        let over = match (f.value, &f.missing) {
            (Some(now), _) => over.value(now / before, f.runs),
            (None, why) => over.missing(why.clone().unwrap_or_else(|| "it was not counted".to_owned())),
        };
        Some(over.judge(Bound::AtMost(MORE)))
    });
    Ok(over.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_held_against_the_one_that_is_kept() {
        let before = kept().unwrap()["A1"]["instructions_per_flow"]["neater"];
        let figure = |n: f64| Figure::new("A1", "instructions_per_flow", "neater", "instructions").value(n, 1);
        let met = |n: f64| over_kept("A1", &[figure(n)]).unwrap()[0].met;
        assert_eq!([met(before), met(before * 1.02), met(before * 1.05)], [Some(true), Some(true), Some(false)]);
        let other = Figure::new("A1", "instructions_per_flow", "libuv", "instructions").value(1.0, 1);
        assert!(over_kept("A1", &[other]).unwrap().is_empty());
    }
}
