//! B1: one file of 10 MB over bandwidth, round-trip time and loss.

use super::path::Path;
use super::sweep::{Grid, Measured, RUNS, Sweep};
use super::{Stack, Work};
use crate::experiments::{Lab, Outcome};
use crate::measure::Result;
use crate::measure::stats::{bootstrap, median};
use crate::plot::{Axis, Curve};
use crate::report::record::Beside;
use crate::report::{Bound, Figure};
use crate::runner::journal::{are_enough, paired};
use neater_base::Rng;
use std::collections::BTreeMap;

const RATES: &[f64] = &[2.0, 5.0, 10.0, 20.0, 30.0, 50.0, 70.0];
const RTTS: &[f64] = &[80.0, 150.0, 200.0, 300.0, 400.0, 600.0, 800.0];
const LOSSES: &[f64] = &[0.0, 0.1, 0.5, 1.0, 2.0, 5.0];
/// The points of the quick form: one of each kind, a link that limits, a long start-up, loss.
const QUICK: (&[f64], &[f64], &[f64]) = (&[50.0], &[400.0], &[0.1]);
/// The link limits a transfer that takes at least so many round trips at the full rate; shorter ones are start-up.
const LIMITED: f64 = 50.0;
/// The kernel's TCP, by other people's programs.
const REFERENCE: Stack = Stack::CurlHttp;

pub(super) fn grid(lab: &Lab) -> Grid {
    let (rates, rtts, losses) = if lab.quick { QUICK } else { (RATES, RTTS, LOSSES) };
    let sweeps = vec![
        Sweep::new("rate", "10 MB, 20 ms, no loss", ("link rate", "Mbit/s", false), rates, |v| Path::new(v, 20.0)),
        Sweep::new("rtt", "10 MB, 10 Mbit/s, no loss", ("round-trip time", "ms", false), rtts, |v| Path::new(10.0, v)),
        Sweep::new("loss", "10 MB, 5 Mbit/s, 160 ms", ("loss in each direction", "%", false), losses, |v| Path {
            loss: v,
            ..Path::new(5.0, 160.0)
        }),
    ];
    // What is judged, and what the simulator is compared with.
    let mut stacks = vec![Stack::Quic, Stack::SimulatedQuic, Stack::Tcp, Stack::SimulatedTcp, Stack::CurlHttp];
    if !lab.quick {
        stacks.extend([Stack::Tls, Stack::CurlHttps]);
    }
    Grid { id: "B1", work: Work::One, stacks, sweeps }
}

/// What the text of the thesis gives in numbers (its curves are figures without a table).
fn published(sweep: &Sweep) -> Vec<Curve> {
    if sweep.name == "rate" {
        return vec![
            Curve::plain("published QUIC", [(70.0, 36.0)]),
            Curve::plain("published HTTPS", [(70.0, 56.0)]),
            Curve::plain("link rate", sweep.points.iter().map(|(x, p)| (*x, p.rate))),
        ];
    }
    vec![Curve::plain("link rate", sweep.points.iter().map(|(x, p)| (*x, p.rate)))]
}

pub(crate) fn run(lab: &Lab) -> Result<Outcome> {
    let m = grid(lab).measure(lab)?;
    let mut out = Outcome::default();
    m.figures("B1", "goodput_mbit", "Mbit/s", &mut out);
    ratios(lab, &m, &mut out);
    m.agreement("B1", "own_goodput_mbit", Stack::Quic, Stack::SimulatedQuic, &mut out);
    m.agreement("B1", "own_goodput_mbit", Stack::Tcp, Stack::SimulatedTcp, &mut out);
    let caption = "Goodput of one file over the dumbbell; the middle link alone is shaped, its queue holds one \
                   bandwidth-delay product, at least ten packets. Points at one place stand side by side.";
    m.draw(&mut out, "goodput_mbit", &Axis::linear("goodput", "Mbit/s"), caption, published);
    beside(&m, &mut out);
    m.remarks(&mut out);
    Ok(out)
}

/// The ratio of two stacks at a path with its interval over runs paired by seed. Void if the emulator was late for either, or
/// if too few pairs came to their end.
pub(super) fn ratio(lab: &Lab, m: &Measured, path: &Path, ours: Stack, theirs: Stack, f: Figure) -> Figure {
    let of = |stack| m.by_seed(path, stack, "goodput_mbit");
    let late = m.is_void(path, ours) || m.is_void(path, theirs);
    let f = f.needs(RUNS.0).void_for(late.then_some("the emulator was late"));
    let planned = m.planned(path, ours).max(m.planned(path, theirs));
    ratio_of_pairs(f, &of(ours), &of(theirs), planned, &mut lab.rng(21))
}

/// The ratio of the medians over the seeds that both sides have, of so many that were planned.
fn ratio_of_pairs(
    f: Figure,
    ours: &BTreeMap<u64, f64>,
    theirs: &BTreeMap<u64, f64>,
    planned: usize,
    rng: &mut Rng,
) -> Figure {
    let (a, b) = paired(ours, theirs);
    if a.is_empty() {
        return f.missing("not both came to their end");
    }
    let n = a.len();
    let few = !are_enough(n, planned);
    let f = if few { f.with("planned", planned).void_for(Some("too many runs failed")) } else { f };
    let statistic = |a: &[f64], b: &[f64]| median(a) / median(b);
    match bootstrap(&a, &b, rng, statistic) {
        // One or two runs have no interval.
        Some(e) if n >= 3 => f.estimate(e, n),
        _ => f.value(statistic(&a, &b), n),
    }
}

fn ratios(lab: &Lab, m: &Measured, out: &mut Outcome) {
    let (mut points, mut fewest) = (Vec::new(), usize::MAX);
    for path in m.paths() {
        let limited = path.loss == 0.0 && path.round_trips(m.grid.work.payload()) >= LIMITED;
        let kind = if limited { "link limits" } else { "start-up or loss" };
        let f =
            Figure::new("B1", "goodput_ratio", format!("neater QUIC over kernel TCP, {path}"), "1").with("kind", kind);
        let f = ratio(lab, m, &path, Stack::Quic, REFERENCE, f);
        if !limited {
            let value = f.value.filter(|_| !f.void);
            fewest = if value.is_some() { fewest.min(f.runs) } else { fewest };
            points.push(value);
        }
        out.figures.push(if limited { f.judge(Bound::AtLeast(0.97)) } else { f });
    }
    out.figures.push(mean(&points, fewest));
}

/// The geometric mean over the points where the link does not limit, as far as they say something; void if too few do, and not judged if
/// the `fewest` runs of a point are too few.
fn mean(points: &[Option<f64>], fewest: usize) -> Figure {
    let f = Figure::new("B1", "goodput_ratio_mean", "neater QUIC over kernel TCP, start-up and loss points", "1");
    let logs: Vec<f64> = points.iter().flatten().map(|v| v.ln()).collect();
    if logs.is_empty() {
        return f.missing("no such point was measured").judge(Bound::AtLeast(1.0));
    }
    let mean = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
    let f = f.value(mean, logs.len()).with("mean", "geometric").with("points", points.len());
    f.needs(RUNS.0)
        .void_for((!are_enough(logs.len(), points.len())).then_some("too few points say something"))
        .judge_unless(!are_enough(fewest, RUNS.0), Bound::AtLeast(1.0))
}

fn beside(m: &Measured, out: &mut Outcome) {
    const SOURCE: &str = "U, section 5.2.1";
    let pair = |path: Path| m.pair(&path, Stack::CurlHttps);
    let row = |what: &str, published: &str, ours: String| Beside {
        what: what.into(),
        published: published.into(),
        ours,
        source: SOURCE.into(),
    };
    let lossy = |loss| Path { loss, ..Path::new(5.0, 160.0) };
    out.beside = vec![
        row("70 Mbit/s, 20 ms", "QUIC 36, HTTPS 56 Mbit/s", pair(Path::new(70.0, 20.0))),
        row("30 Mbit/s, 20 ms", "QUIC level with HTTPS up to here", pair(Path::new(30.0, 20.0))),
        row("50 Mbit/s, 20 ms", "QUIC behind HTTPS", pair(Path::new(50.0, 20.0))),
        row("10 Mbit/s, 200 ms", "QUIC level with HTTPS up to here", pair(Path::new(10.0, 200.0))),
        row("10 Mbit/s, 400 ms", "QUIC behind HTTPS", pair(Path::new(10.0, 400.0))),
        row("0.1 % loss, 5 Mbit/s, 160 ms", "QUIC almost unaffected", pair(lossy(0.1))),
        row("1 % loss, 5 Mbit/s, 160 ms", "QUIC about twice HTTPS (with forward error correction)", pair(lossy(1.0))),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_limits_long_transfers_and_not_those_of_a_few_round_trips() {
        let trips = |rate, rtt| Path::new(rate, rtt).round_trips(Work::One.payload());
        assert!(trips(70.0, 20.0) >= LIMITED && trips(10.0, 80.0) >= LIMITED);
        assert!(trips(10.0, 200.0) < LIMITED && trips(10.0, 800.0) < LIMITED);
    }

    fn of(values: &[(u64, f64)]) -> BTreeMap<u64, f64> {
        values.iter().copied().collect()
    }

    #[test]
    fn a_ratio_is_that_of_pairs_of_the_same_seed() {
        let f = || Figure::new("B1", "goodput_ratio", "", "1");
        let ratio = |a: &[(u64, f64)], b: &[(u64, f64)], planned| {
            ratio_of_pairs(f(), &of(a), &of(b), planned, &mut Rng::from_number(1)).judge(Bound::AtLeast(0.97))
        };
        // Our second run failed: what is left is level with theirs, seed by seed.
        let ours: Vec<(u64, f64)> = (1..=10).filter(|s| *s != 2).map(|s| (s, s as f64)).collect();
        let theirs: Vec<(u64, f64)> = (1..=10).map(|s| (s, s as f64)).collect();
        let level = ratio(&ours, &theirs, 10);
        assert_eq!((level.value, level.ci_low, level.ci_high, level.runs), (Some(1.0), Some(1.0), Some(1.0), 9));
        assert_eq!((level.void, level.met), (false, Some(true)));
        // Four of five failed, and the one that is left was good: that is nothing to be proud of.
        let lucky = ratio(&[(3, 9.0)], &theirs[..5], 5);
        assert_eq!((lucky.value, lucky.void, lucky.met), (Some(3.0), true, None));
        assert!(ratio(&[(1, 9.0)], &[(2, 9.0)], 2).missing.is_some());
    }

    #[test]
    fn a_mean_over_a_part_of_the_points_is_not_judged() {
        assert_eq!(mean(&[Some(2.0), Some(0.5)], RUNS.0).met, Some(true));
        assert_eq!(mean(&[Some(0.9), Some(0.9)], RUNS.0).met, Some(false));
        let quick = mean(&[Some(0.9), Some(0.9)], RUNS.1);
        assert_eq!((quick.value.is_some(), quick.met, quick.not_judged), (true, None, true));
        let part = mean(&[Some(2.0), None], RUNS.0);
        assert_eq!((part.value, part.void, part.met), (Some(2.0), true, None));
        assert!(mean(&[None], RUNS.0).missing.is_some());
    }
}
