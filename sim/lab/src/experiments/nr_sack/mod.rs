//! D1 to D3: what the retransmission queue is used for, with and without NR-SACK, over one path and over two that others use, too, in
//! virtual time (Natarajan, "Leveraging Innovative Transport Layer Services for Improved Application Performance", 2009, chapter 3).

mod dumbbell;
mod traffic;

use super::multipath::{each, geometric_mean, jobs, mean, seeds};
use super::{Lab, Outcome};
use crate::measure::Result;
use crate::plot::{Axis, Curve, Drawing, Lines, Panel};
use crate::report::{Bound, Figure};
use crate::simulate::sweep;
use dumbbell::{Plan, Seen, run};
use neater_sctp::{AssociationConfig, Extensions, Multipath};
use std::time::Duration;
use traffic::Load;

/// Send buffers, in bytes; the last is more than is ever used.
const BUFFERS: [(usize, &str); 4] = [(32 << 10, "32k"), (64 << 10, "64k"), (128 << 10, "128k"), (256 << 10, "256k")];
const UNBOUNDED: (usize, &str) = (64 << 20, "inf");

fn association(nr_sack: bool, send_buffer: usize, paths: usize) -> AssociationConfig {
    let base = AssociationConfig::as_published(true);
    AssociationConfig {
        multipath: (paths > 1).then(Multipath::as_published),
        extensions: Extensions { nr_sack, interleaving: false, ..base.extensions },
        receive_buffer: 64 << 20,
        first_receive_buffer: 64 << 20,
        send_buffer,
        ..base
    }
}

fn plan(lab: &Lab, nr_sack: bool, send_buffer: usize, loads: &[Load]) -> Plan {
    let s = Duration::from_secs;
    let (start, watch) = if lab.quick { (s(4), (s(5), s(9))) } else { (s(18), (s(38), s(70))) };
    Plan { association: association(nr_sack, send_buffer, loads.len()), loads: loads.to_vec(), start, watch }
}

/// What was seen at one point by SACK and by NR-SACK, seed by seed.
fn pairs(lab: &Lab, send_buffer: usize, loads: &[Load]) -> Vec<(Seen, Seen)> {
    let (plans, first) = ([false, true].map(|nr| plan(lab, nr, send_buffer, loads)), lab.seed * 1000);
    let runs = each(seeds(lab), jobs(lab), |seed| Some((run(&plans[0], first + seed)?, run(&plans[1], first + seed)?)));
    runs.into_iter().flatten().collect()
}

fn values(pairs: &[(Seen, Seen)], pick: impl Fn(&Seen) -> Option<f64>) -> [Vec<f64>; 2] {
    let sack = pairs.iter().filter_map(|p| pick(&p.0)).collect();
    [sack, pairs.iter().filter_map(|p| pick(&p.1)).collect()]
}

/// What is said of one point: how the queue is used, and that NR-SACK is not the slower one.
fn point(out: &mut Outcome, id: &'static str, name: &str, pairs: &[(Seen, Seen)]) -> f64 {
    for (i, (sack, nr)) in pairs.iter().enumerate() {
        for (variant, seen) in [("sack", sack), ("nr-sack", nr)] {
            out.sample("rtxq_util", variant, name, i, seen.used);
            out.sample("goodput_kb_s", variant, name, i, seen.goodput / 1e3);
        }
    }
    let [used_sack, used_nr] = values(pairs, |s| Some(s.used)).map(|v| mean(&v));
    let [loss, _] = values(pairs, |s| Some(s.loss)).map(|v| mean(&v));
    let [peak_sack, peak_nr] = values(pairs, |s| Some(s.peak as f64)).map(|v| mean(&v));
    let [late_sack, late_nr] = values(pairs, |s| Some(s.timeouts as f64)).map(|v| mean(&v));
    let [sack, nr] = values(pairs, |s| Some(s.goodput)).map(|v| mean(&v));
    let differences: Vec<f64> = pairs.iter().map(|(s, n)| (n.goodput - s.goodput) / sack.max(1.0)).collect();
    let f = Figure::new(id, "goodput_difference", name, "1");
    let f = f.with("loss_of_others", loss).with("rtxq_util_sack", used_sack).with("rtxq_util_nr_sack", used_nr);
    let f = f.with("peak_sack", peak_sack).with("peak_nr_sack", peak_nr);
    let f = f.with("timeouts_sack", late_sack).with("timeouts_nr_sack", late_nr).with("sack_kb_s", sack / 1e3);
    out.figures.push(match sweep::mean(&differences) {
        Some(m) => {
            let half = m.half.unwrap_or(0.0);
            let e = crate::measure::stats::Estimate { value: m.mean, low: m.mean - half, high: m.mean + half };
            f.estimate(e, m.runs).needs(FULL).judge(Bound::LowAtLeast(-0.01))
        }
        None => f.missing("no run came to an end"),
    });
    nr / sack
}

/// Runs of each point in the full form.
const FULL: usize = 30;

fn curves(out: &mut Outcome, id: &str, title: &str, lines: Vec<Curve>) {
    let (x, y) =
        (Axis::linear("load: low, mild, medium, heavy", ""), Axis::linear("part of the queue that is needed", "1"));
    let panel = Panel::Lines(Lines { title: title.into(), x, y, curves: lines });
    let caption =
        "A bottleneck of 100 Mbit/s with files, pages and videos of others in both directions; 60 ms there and back.";
    out.drawings.push(Drawing::new("queue", format!("{id}: {title}"), caption, vec![panel]));
}

pub(super) fn d1(lab: &Lab) -> Result<Outcome> {
    let mut out = Outcome { runs: Some(seeds(lab)), ..Outcome::default() };
    let loads: &[Load] = if lab.quick { &[Load::Medium] } else { &Load::ALL };
    let buffers: &[(usize, &str)] = if lab.quick { &[UNBOUNDED] } else { &[BUFFERS[0], BUFFERS[1], UNBOUNDED] };
    let (mut ratios, mut lines) = (Vec::new(), [Vec::new(), Vec::new()]);
    let (mut busy, mut recovering) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for (i, load) in loads.iter().enumerate() {
        for (buffer, name) in buffers {
            (lab.progress)(&format!("{} load, send buffer {name}, {} pairs", load.name(), seeds(lab)));
            let pairs = pairs(lab, *buffer, &[*load]);
            ratios.push(point(&mut out, "D1", &format!("{}-{name}", load.name()), &pairs));
            if *buffer != UNBOUNDED.0 {
                continue;
            }
            let (all, lost) = (values(&pairs, |s| Some(s.used)), values(&pairs, |s| s.used_in_recovery));
            for variant in 0..2 {
                lines[variant].push((i as f64, mean(&all[variant])));
                if matches!(load, Load::Medium | Load::Heavy) {
                    busy[variant].extend(&all[variant]);
                    recovering[variant].extend(&lost[variant]);
                }
            }
        }
    }
    let bounds = [("sack", Some(0.85), 0.65), ("nr-sack", None, 0.97)];
    for (i, (variant, most, least)) in bounds.into_iter().enumerate() {
        let f = |name: &str, values: &[f64]| Figure::new("D1", name, variant, "1").value(mean(values), values.len());
        out.figures.push(
            f("rtxq_util", &busy[i]).published(if i == 0 { "0.7 to 0.8" } else { "1.0" }).judge(Bound::AtLeast(least)),
        );
        out.figures.extend(most.map(|most| f("rtxq_util_at_most", &busy[i]).judge(Bound::AtMost(most))));
        let f = f("rtxq_util_l", &recovering[i]).published(if i == 0 { "about 0.5" } else { "1.0" });
        out.figures.push(f.judge(Bound::AtLeast(if i == 0 { 0.45 } else { 0.97 })));
    }
    out.figures.push(
        Figure::new("D1", "rtxq_util_l_at_most", "sack", "1")
            .value(mean(&recovering[0]), recovering[0].len())
            .judge(Bound::AtMost(0.6)),
    );
    let f = Figure::new("D1", "throughput_ratio", "geomean", "1").value(geometric_mean(&ratios), seeds(lab));
    out.figures.push(f.judge(Bound::AtLeast(0.99)));
    let [sack, nr] = lines;
    curves(&mut out, "D1", "one path", vec![Curve::plain("sack", sack), Curve::plain("nr-sack", nr)]);
    Ok(out)
}

pub(super) fn d2(lab: &Lab) -> Result<Outcome> {
    let mut out = Outcome { runs: Some(seeds(lab)), ..Outcome::default() };
    let loads: &[Load] = if lab.quick { &[Load::Medium] } else { &Load::ALL };
    let (mut ratios, mut small, mut lines) = (Vec::new(), Vec::new(), [Vec::new(), Vec::new()]);
    for (i, load) in loads.iter().enumerate() {
        let loads = [*load, Load::Low];
        let mut of = Vec::new();
        let buffers: &[(usize, &str)] =
            if lab.quick { &[BUFFERS[2], BUFFERS[3]] } else { &[BUFFERS[2], BUFFERS[3], UNBOUNDED] };
        for (buffer, name) in buffers {
            (lab.progress)(&format!("path 1 {}, send buffer {name}, {} pairs", load.name(), seeds(lab)));
            let pairs = pairs(lab, *buffer, &loads);
            ratios.push(point(&mut out, "D2", &format!("{}-{name}", load.name()), &pairs));
            of.push(pairs);
        }
        // Seed by seed: NR-SACK with the smallest buffer, and SACK with twice as much.
        small.extend(of[0].iter().zip(&of[1]).map(|(half, whole)| half.1.goodput / whole.0.goodput.max(1.0)));
        let used = of.last().map(|pairs| values(pairs, |s| Some(s.used)).map(|v| mean(&v))).unwrap_or_default();
        for variant in 0..2 {
            lines[variant].push((i as f64, used[variant]));
        }
    }
    let f = Figure::new("D2", "throughput_ratio", "nr128_vs_sack256", "1").value(geometric_mean(&small), small.len());
    out.figures.push(f.published("about 1").judge(Bound::AtLeast(0.98)));
    let f = Figure::new("D2", "throughput_ratio", "geomean", "1").value(geometric_mean(&ratios), seeds(lab));
    out.figures.push(f.judge(Bound::AtLeast(0.99)));
    let [sack, nr] = lines;
    curves(
        &mut out,
        "D2",
        "two paths, the second with a low load",
        vec![Curve::plain("sack", sack), Curve::plain("nr-sack", nr)],
    );
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(nr: bool, load: Load) -> Plan {
        let s = Duration::from_secs;
        let association = association(nr, UNBOUNDED.0, 1);
        Plan { association, loads: vec![load], start: s(3), watch: (s(4), s(6)) }
    }

    #[test]
    fn a_run_is_a_function_of_its_seed_and_the_witness_knows_what_is_needed() {
        let of = |nr, seed| run(&short(nr, Load::Medium), seed).unwrap();
        let (a, b) = (of(false, 1), of(false, 1));
        assert_eq!((a.goodput, a.used), (b.goodput, b.used));
        assert_ne!(a.goodput, of(false, 2).goodput);
        let nr = of(true, 1);
        assert!(a.used < 0.95 && nr.used > 0.95 && nr.used <= 1.0, "{a:?} {nr:?}");
    }
}
