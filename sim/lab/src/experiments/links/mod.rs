//! I1 and I2: several links as one. One flow with default settings is never slower than over the
//! better link alone, and goes on within round trips when a link dies. In virtual time; the
//! association is opened as the engine opens it.

pub(super) mod environments;
pub(super) mod failover;
mod fairness;
mod live;
mod live_deaths;
mod live_fairness;
mod transfer;

use super::multipath::{each, jobs};
use super::{Lab, Outcome};
use crate::measure::Result;
use crate::measure::stats::{Estimate, quantile};
use crate::plot::{Bars, Drawing, Panel, Row};
use crate::report::{Bound, Figure};
use crate::simulate::sweep;
pub(super) use live::i1_live;
pub(super) use live_deaths::i2_live;

use environments::{ALL, Environment, Queue};
use failover::Resumed;
use neater_peers::paced::Load;
use neater_sctp::{Coupling, Multipath};
use transfer::{Seen, transfer};

/// What is transferred, in bytes.
const BYTES: u64 = 20 << 20;
/// Seeds of each environment: full and quick, and as many deaths of each kind.
const SEEDS: (usize, usize) = (100, 20);
const DEATHS: (usize, usize) = (1000, 50);
/// Seeds of each policy on a shared bottleneck.
const SHARED: (usize, usize) = (30, 6);

/// One flow over both links, and over each of them alone, with the same seed.
struct Compared {
    to_best: f64,
    to_sum: f64,
    /// Mbit/s over both, the first and the second.
    goodput: [f64; 3],
    /// Of what was delivered, what went over the first.
    share: f64,
    delay_ms: [f64; 2],
    reordered: [f64; 2],
}

fn compare(environment: &Environment, queue: Queue, seed: u64) -> Compared {
    let links = environment.sides.map(|side| side.link(queue));
    let run = |links: &[_]| transfer(links, Some(Multipath::aggregate()), BYTES, seed);
    let (both, first, second) = (run(&links), run(&links[..1]), run(&links[1..]));
    let rate = |seen: &Seen| seen.completed.map_or(0.0, |t| BYTES as f64 * 8.0 / t.as_secs_f64() / 1e6);
    let goodput = [rate(&both), rate(&first), rate(&second)];
    // What a run that does not come to an end has is nothing, and that of which nothing comes is no
    // measure.
    let sum = both.completed.map_or(f64::INFINITY, |t| (first.by(t) + second.by(t)) as f64);
    let delivered = |i: usize| both.paths.get(i).map_or(0.0, |p| p.delivered as f64);
    let carried = |i: usize| both.carried.get(i).copied().unwrap_or_default();
    Compared {
        to_best: goodput[0] / goodput[1].max(goodput[2]),
        to_sum: BYTES as f64 / sum,
        goodput,
        share: delivered(0) / (delivered(0) + delivered(1)).max(1.0),
        delay_ms: [0, 1].map(|i| carried(i).mean_delay_ms()),
        reordered: [0, 1].map(|i| carried(i).reordered as f64 / carried(i).delivered.max(1) as f64),
    }
}

fn estimate(values: &[f64]) -> Estimate {
    let Some(m) = sweep::mean(values) else { return Estimate { value: f64::NAN, low: f64::NAN, high: f64::NAN } };
    // Where nothing is left to chance all runs are the same.
    let half = m.half.unwrap_or(0.0);
    Estimate { value: m.mean, low: m.mean - half, high: m.mean + half }
}

/// What a share of the sum is to be: nothing is asked where round trips differ by more than 100 ms
/// or rates by more than five times.
fn least_sum(environment: &Environment) -> Option<f64> {
    if ["jitter-20", "loss-2", "congested"].contains(&environment.name) {
        return Some(0.80);
    }
    let [a, b] = environment.sides;
    let near = a.rtt.abs_diff(b.rtt) <= 100 && a.rate.max(b.rate) <= 5 * a.rate.min(b.rate);
    near.then_some(0.90)
}

fn environment(out: &mut Outcome, environment: &Environment, queue: Queue, pairs: &[Compared]) -> Row {
    let deep = queue == Queue::Deep;
    let name = if deep { environment.name.to_owned() } else { format!("{}-bdp", environment.name) };
    let of = |pick: &dyn Fn(&Compared) -> f64| pairs.iter().map(pick).collect::<Vec<f64>>();
    let mean = |pick: &dyn Fn(&Compared) -> f64| super::multipath::mean(&of(pick));
    let best = of(&|c| c.to_best);
    for (i, c) in pairs.iter().enumerate() {
        for (series, value) in ["both", "first", "second"].into_iter().zip(c.goodput) {
            out.sample("goodput_mbit", series, &name, i, value);
        }
        out.sample("ratio_to_sum", "both", &name, i, c.to_sum);
    }
    let e = estimate(&best);
    let (value, interval) = (e.value, (e.low, e.high));
    let runs = best.len();
    // The second table is shown beside the first; the rule is for that.
    let judge = |f: Figure, bound| if deep { f.needs(SEEDS.1).judge(bound) } else { f };
    let f = Figure::new("I1", "ratio_to_best", name.clone(), "1").estimate(estimate(&best), runs);
    let f = f.published(environment.published).with("goodput_mbit", mean(&|c| c.goodput[0]));
    let f = f.with("first_alone_mbit", mean(&|c| c.goodput[1])).with("second_alone_mbit", mean(&|c| c.goodput[2]));
    let f = f.with("share_of_first", mean(&|c| c.share));
    let f = f.with("mean_delay_ms", vec![mean(&|c| c.delay_ms[0]), mean(&|c| c.delay_ms[1])]);
    let f = f.with("reordered_share", vec![mean(&|c| c.reordered[0]), mean(&|c| c.reordered[1])]);
    out.figures.push(judge(f, Bound::AtLeast(0.97)));
    let low = Figure::new("I1", "ratio_to_best_low", name.clone(), "1").estimate(e, runs);
    out.figures.push(judge(low, Bound::LowAtLeast(0.95)));
    let least = best.iter().copied().fold(f64::INFINITY, f64::min);
    let f = Figure::new("I1", "ratio_to_best_least", name.clone(), "1").value(least, runs);
    out.figures.push(judge(f, Bound::AtLeast(0.80)));
    let sums = of(&|c| c.to_sum);
    let f = Figure::new("I1", "ratio_to_sum", name.clone(), "1").estimate(estimate(&sums), runs);
    out.figures.push(match least_sum(environment) {
        Some(bound) => judge(f, Bound::AtLeast(bound)),
        None => f,
    });
    Row {
        label: name,
        series: "over the better link alone".into(),
        value: Some(value),
        interval: Some(interval),
        bound: Some(0.97),
    }
}

/// What two paths through one bottleneck get of it beside another flow.
fn bottleneck(lab: &Lab, out: &mut Outcome) {
    let count = lab.seeds.unwrap_or(if lab.quick { SHARED.1 } else { SHARED.0 }).min(SHARED.0);
    let default = Multipath::aggregate();
    let uncoupled = Multipath { measure_gain: false, ..default };
    let variants = [
        ("default", default, Some(0.6)),
        ("uncoupled", uncoupled, None),
        ("lia", Multipath { coupling: Coupling::Lia, ..uncoupled }, None),
        ("olia", Multipath { coupling: Coupling::Olia, ..uncoupled }, None),
    ];
    for (name, multipath, most) in variants {
        (lab.progress)(&format!("a shared bottleneck, {name}, {count} seeds"));
        let shares: Vec<f64> =
            each(count, jobs(lab), |seed| fairness::share(multipath, seed)).into_iter().flatten().collect();
        for (i, share) in shares.iter().enumerate() {
            out.sample("bottleneck_share", "sctp", name, i, *share);
        }
        let f = Figure::new("I1", "bottleneck_share", name, "1");
        let f = if shares.len() == count {
            f.estimate(estimate(&shares), count)
        } else {
            f.missing("a flow carried nothing")
        };
        out.figures.push(match most {
            Some(most) => f.needs(SHARED.1).judge(Bound::AtMost(most)),
            None => f,
        });
    }
}

pub(super) fn i1(lab: &Lab) -> Result<Outcome> {
    let count = lab.seeds.unwrap_or(if lab.quick { SEEDS.1 } else { SEEDS.0 });
    let mut out = Outcome { runs: Some(count), ..Outcome::default() };
    let queues: &[Queue] = if lab.quick { &[Queue::Deep] } else { &[Queue::Deep, Queue::Bdp] };
    for queue in queues {
        let mut rows = Vec::new();
        for e in &ALL {
            (lab.progress)(&format!("{}, {count} seeds, three transfers each", e.name));
            let pairs = each(count, jobs(lab), |seed| compare(e, *queue, seed));
            rows.push(environment(&mut out, e, *queue, &pairs));
        }
        let (id, title) = match queue {
            Queue::Deep => ("ratio", "queues of 1,000 packets, jitter reorders"),
            Queue::Bdp => ("ratio-bdp", "queues of one bandwidth-delay product, order kept"),
        };
        let panel = Panel::Bars(Bars { title: title.into(), unit: "1".into(), rows });
        let caption = "Goodput of 20 MiB over both links, over that of the better one alone; means and 95 % intervals of pairs by seed.";
        out.drawings.push(Drawing::new(id, format!("I1: {title}"), caption, vec![panel]));
    }
    bottleneck(lab, &mut out);
    Ok(out)
}

pub(super) fn i2(lab: &Lab) -> Result<Outcome> {
    let count = lab.seeds.unwrap_or(if lab.quick { DEATHS.1 } else { DEATHS.0 });
    let mut out = Outcome { runs: Some(count), ..Outcome::default() };
    for load in Load::ALL {
        (lab.progress)(&format!("{}, {count} deaths", load.name()));
        let seen: Vec<Option<Resumed>> = each(count, jobs(lab), |seed| failover::run(load, seed));
        let resumed: Vec<Resumed> = seen.iter().copied().flatten().collect();
        let mut times: Vec<f64> = resumed.iter().map(|r| r.after.as_secs_f64() * 1e3).collect();
        for (i, t) in times.iter().enumerate() {
            out.sample("resume_ms", "sctp", load.name(), i, *t);
        }
        times.sort_by(f64::total_cmp);
        for (name, q) in [("p50", 0.5), ("p99", 0.99)] {
            let f = Figure::new("I2", "resume_ms", format!("{}-{name}", load.name()), "ms");
            let f = if times.len() == count && count > 0 {
                f.value(quantile(&times, q), times.len())
            } else {
                f.missing(format!("{} of {count} did not go on", count - times.len()))
            };
            // The absolute bound is for an application that uses half of what the survivor carries.
            let judged = load == Load::AppLimited && name == "p99";
            out.figures.push(if judged { f.needs(DEATHS.1).judge(Bound::AtMost(250.0)) } else { f });
        }
        let within = resumed.iter().filter(|r| r.after <= r.bound).count() as f64 / count.max(1) as f64;
        let f = Figure::new("I2", "within_bound", load.name(), "1").value(within, count);
        out.figures.push(f.needs(DEATHS.1).judge(Bound::AtLeast(0.99)));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_a_function_of_its_seed_and_two_links_carry_more_than_one() {
        let of = |seed| {
            let links = ALL[7].sides.map(|s| s.link(Queue::Deep));
            transfer(&links, Some(Multipath::aggregate()), 2 << 20, seed).completed
        };
        assert!(of(1).is_some());
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn a_flow_goes_on_when_the_link_that_carries_it_dies() {
        for load in Load::ALL {
            let resumed = failover::run(load, 3).unwrap();
            assert!(resumed.after <= resumed.bound, "{load:?}: {resumed:?}");
        }
    }

    #[test]
    fn the_sum_is_asked_for_where_links_are_not_too_different() {
        let asked: Vec<&str> = ALL.iter().filter(|e| least_sum(e).is_some()).map(|e| e.name).collect();
        assert_eq!(asked.len(), 12, "{asked:?}");
        for name in ["rtt-320", "rate-10-1", "fibre-lte", "lte-geo"] {
            assert!(!asked.contains(&name));
        }
    }
}
