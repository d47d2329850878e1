//! E1 to E4b: concurrent multipath transfer while a path fails or loses, with and without the
//! potentially-failed state, in virtual time (Natarajan, "Leveraging Innovative Transport Layer
//! Services for Improved Application Performance", 2009, chapter 4).

mod cross;
mod transfer;
pub(super) mod world;

use super::{Lab, Outcome};
use crate::measure::Result;
use crate::plot::{Axis, Curve, Drawing, Lines, Panel};
use crate::report::{Bound, Figure};
use neater_link::{LinkConfig, QueueLimit};
use neater_sctp::{AssociationConfig, Multipath};
use std::time::Duration;
pub(super) use transfer::each;
use transfer::{Plan, Seen, run};

const RATE: u64 = 10_000_000;
const DELAY: Duration = Duration::from_millis(45);
/// The buffer of the receiver, in bytes.
const BUFFER: u32 = 65_536;
/// What is transferred, in bytes.
const BYTES: u64 = 8_000_000;
/// When the second path fails.
const FAILS: Duration = Duration::from_secs(5);
/// The least retransmission timeout of RFC 9260, in seconds.
const RTO: f64 = 1.0;
/// Runs of each point: full and quick.
const SEEDS: (usize, usize) = (30, 3);

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Cmt,
    CmtPf,
    /// With what blocks the receive buffer sent once more on the other path.
    CmtPfOpportunistic,
}

impl Variant {
    const fn name(self) -> &'static str {
        match self {
            Self::Cmt => "cmt",
            Self::CmtPf => "cmt-pf",
            Self::CmtPfOpportunistic => "cmt-pf-or",
        }
    }

    fn association(self, buffer: u32) -> AssociationConfig {
        let base = AssociationConfig::as_published(self != Self::Cmt);
        let opportunistic = self == Self::CmtPfOpportunistic;
        let multipath = Multipath { opportunistic, penalise: opportunistic, ..Multipath::as_published() };
        AssociationConfig {
            multipath: Some(multipath),
            receive_buffer: buffer,
            first_receive_buffer: buffer,
            send_buffer: 1 << 20,
            heartbeat_interval: None,
            // The association is not to end before the path is given up.
            max_association_retransmits: 100,
            ..base
        }
    }
}

fn link(delay: Duration, loss: f64) -> LinkConfig {
    let link = LinkConfig::rate(RATE, delay);
    if loss > 0.0 { link.with_loss(loss) } else { link }
}

fn plan(variant: Variant, loss: f64) -> Plan {
    Plan {
        association: variant.association(BUFFER),
        links: vec![link(DELAY, loss); 2],
        cross: Vec::new(),
        bytes: Some(BYTES),
        failure: Some((FAILS, None)),
        until_found: false,
        limit: Duration::from_secs(400),
    }
}

pub(super) fn jobs(lab: &Lab) -> usize {
    lab.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}

pub(super) fn seeds(lab: &Lab) -> usize {
    lab.seeds.unwrap_or(if lab.quick { SEEDS.1 } else { SEEDS.0 })
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

pub(super) fn geometric_mean(values: &[f64]) -> f64 {
    mean(&values.iter().map(|v| v.ln()).collect::<Vec<_>>()).exp()
}

/// What a curve of one transfer looks like: MB that had arrived by each second.
fn course(name: &str, seen: &Seen) -> Curve {
    let end = seen.received.last().map_or(0, |(t, _)| t.as_secs() + 1);
    Curve::plain(name, (0..=end).map(|s| (s as f64, seen.by(Duration::from_secs(s)) as f64 / 1e6)))
}

/// A panel of the courses of two transfers, and figures of when they ended.
fn courses(out: &mut Outcome, id: &'static str, title: &str, each: &[(Variant, Seen)]) {
    for (variant, seen) in each {
        let f = Figure::new(id, "completion_s", variant.name(), "s");
        let f = match seen.completed {
            Some(t) => f.value(t.as_secs_f64(), 1),
            None => f.missing("the transfer was not done in 400 s"),
        };
        let timeouts = seen.paths.get(1).map_or(0, |p| p.timeouts);
        let f = f.with("timeouts_path_2", timeouts);
        out.figures.push(f);
    }
    let curves = each.iter().map(|(variant, seen)| course(variant.name(), seen)).collect();
    let (x, y) = (Axis::linear("time", "s"), Axis::linear("received", "MB"));
    let panel = Panel::Lines(Lines { title: title.into(), x, y, curves });
    let caption = "Two paths of 10 Mbit/s and 45 ms each way, a receive buffer of 64 kB, no loss.";
    out.drawings.push(Drawing::new("course", format!("{id}: {title}"), caption, vec![panel]));
}

pub(super) fn e1(lab: &Lab) -> Result<Outcome> {
    (lab.progress)("one transfer each, no loss");
    let mut out = Outcome::default();
    let variants = [Variant::Cmt, Variant::CmtPf];
    let seen: Vec<(Variant, Seen)> = variants.iter().map(|v| (*v, run(&plan(*v, 0.0), lab.seed))).collect();
    courses(&mut out, "E1", "path 2 fails for good after 5 s", &seen);
    let rtt = 2.0 * DELAY.as_secs_f64() + 1500.0 * 8.0 / RATE as f64;
    let bound = BYTES as f64 / (f64::from(BUFFER) / rtt) + RTO;
    if let Some(cmt) = out.figures.first_mut() {
        *cmt = cmt.clone().judge(Bound::AtLeast(75.0)).published("about 80 s");
    }
    let upper = Figure::new("E1", "completion_s_at_most", "cmt", "s");
    let completed = |i: usize| seen[i].1.completed.map(|t| t.as_secs_f64());
    out.figures.push(match completed(0) {
        Some(t) => upper.value(t, 1).judge(Bound::AtMost(85.0)),
        None => upper.missing("the transfer was not done"),
    });
    let ratio = Figure::new("E1", "bound_ratio", "cmt-pf", "1").with("bound_s", bound);
    out.figures.push(match completed(1) {
        Some(t) => ratio.value(t / bound, 1).judge(Bound::AtMost(1.1)),
        None => ratio.missing("the transfer was not done"),
    });
    Ok(out)
}

pub(super) fn e2(lab: &Lab) -> Result<Outcome> {
    const LOSS: f64 = 0.01;
    let mut out = Outcome::default();
    let (count, jobs) = (seeds(lab), jobs(lab));
    out.runs = Some(count);
    // What one path carries, by the same losses.
    let alone = each(count, jobs, |seed| {
        let plan = Plan { failure: None, links: vec![link(DELAY, LOSS)], ..plan(Variant::Cmt, LOSS) };
        let seen = run(&plan, seed);
        seen.completed.map_or(f64::NAN, |t| BYTES as f64 / t.as_secs_f64())
    });
    let most = mean(&alone);
    let mut curves = Vec::new();
    for variant in [Variant::Cmt, Variant::CmtPf, Variant::CmtPfOpportunistic] {
        let mut points = Vec::new();
        for pmr in 0..=5u32 {
            (lab.progress)(&format!("{}, Path.Max.Retrans {pmr}, {count} runs", variant.name()));
            let mut plan = Plan { bytes: None, until_found: true, ..plan(variant, LOSS) };
            plan.association.max_path_retransmits = pmr;
            let fractions = each(count, jobs, |seed| {
                let seen = run(&plan, seed);
                seen.found.filter(|t| *t > FAILS).map(|found| seen.goodput(FAILS, found) / most)
            });
            let values: Vec<f64> = fractions.into_iter().flatten().collect();
            let name = match variant {
                Variant::Cmt => format!("cmt-pmr{pmr}"),
                Variant::CmtPf => format!("pmr{pmr}"),
                Variant::CmtPfOpportunistic => format!("pmr{pmr}-or"),
            };
            for (i, v) in values.iter().enumerate() {
                out.sample("goodput_fraction", variant.name(), &name, i, *v);
            }
            let f = Figure::new("E2", "goodput_fraction", name, "1").with("single_path_bytes_per_s", most);
            if values.is_empty() {
                out.figures.push(f.missing("the failure was not found out"));
                continue;
            }
            points.push((f64::from(pmr), mean(&values)));
            let f = f.value(mean(&values), values.len()).needs(SEEDS.0);
            let bound = match (variant, pmr) {
                (Variant::CmtPf, 1) => Some(0.75),
                (Variant::CmtPf, 2) => Some(0.88),
                (Variant::CmtPf, 3) => Some(0.94),
                (Variant::CmtPf, 5) => Some(0.97),
                (Variant::CmtPfOpportunistic, 1..) => Some(0.95),
                _ => None,
            };
            out.figures.push(match bound {
                Some(bound) => f.judge(Bound::AtLeast(bound)),
                None => f,
            });
        }
        curves.push(Curve::plain(variant.name(), points));
    }
    let (x, y) = (Axis::linear("Path.Max.Retrans", ""), Axis::linear("goodput over that of one path", "1"));
    let title = "goodput until the failure is found out";
    let panel = Panel::Lines(Lines { title: title.into(), x, y, curves });
    let caption =
        "1 % of Bernoulli loss on both paths; path 2 fails after 5 s; a receive buffer of 64 kB; means over runs.";
    out.drawings.push(Drawing::new("goodput", format!("E2: {title}"), caption, vec![panel]));
    Ok(out)
}

/// Goodputs of CMT and of CMT-PF at one point, pair by pair, and what is said of them.
fn pair(
    out: &mut Outcome,
    id: &'static str,
    name: &str,
    count: usize,
    jobs: usize,
    goodput: impl Fn(Variant, u64) -> f64 + Sync,
) -> (f64, f64, f64) {
    let pairs = each(count, jobs, |seed| (goodput(Variant::Cmt, seed), goodput(Variant::CmtPf, seed)));
    for (i, (cmt, pf)) in pairs.iter().enumerate() {
        out.sample("goodput_kb_s", "cmt", name, i, cmt / 1e3);
        out.sample("goodput_kb_s", "cmt-pf", name, i, pf / 1e3);
    }
    let [cmt, pf] = [0, 1].map(|i| mean(&pairs.iter().map(|p| if i == 0 { p.0 } else { p.1 }).collect::<Vec<_>>()));
    // Of means: while a path is down CMT carries nothing in some runs.
    let ratio = pf / cmt;
    let f = Figure::new(id, "goodput_ratio", name, "1").value(ratio, count).needs(SEEDS.0);
    out.figures.push(f.with("cmt_kb_s", cmt / 1e3).with("cmt_pf_kb_s", pf / 1e3).judge(Bound::AtLeast(0.99)));
    (cmt, pf, ratio)
}

fn overall(out: &mut Outcome, id: &'static str, ratios: &[f64], count: usize) {
    let f = Figure::new(id, "goodput_ratio", "geomean", "1").value(geometric_mean(ratios), count).needs(SEEDS.0);
    out.figures.push(f.with("points", ratios.len() as u64).judge(Bound::AtLeast(1.0)));
}

pub(super) fn e3(lab: &Lab) -> Result<Outcome> {
    const RESTORED: Duration = Duration::from_secs(10);
    let mut out = Outcome::default();
    let failure = Some((FAILS, Some(RESTORED)));
    let variants = [Variant::Cmt, Variant::CmtPf];
    let seen: Vec<(Variant, Seen)> =
        variants.iter().map(|v| (*v, run(&Plan { failure, ..plan(*v, 0.0) }, lab.seed))).collect();
    courses(&mut out, "E3", "path 2 fails for 5 s", &seen);
    let (count, jobs) = (seeds(lab), jobs(lab));
    out.runs = Some(count);
    let (mut ratios, mut points) = (Vec::new(), [Vec::new(), Vec::new()]);
    for kb in [32u32, 64, 96, 128, 192, 256] {
        (lab.progress)(&format!("receive buffer {kb} kB, {count} pairs"));
        let (cmt, pf, ratio) = pair(&mut out, "E3", &format!("rbuf{kb}"), count, jobs, |variant, seed| {
            let association = variant.association(kb * 1024);
            let limit = RESTORED + Duration::from_secs(1);
            run(&Plan { association, failure, bytes: None, limit, ..plan(variant, 0.01) }, seed)
                .goodput(FAILS, RESTORED)
        });
        ratios.push(ratio);
        points[0].push((f64::from(kb), cmt / 1e3));
        points[1].push((f64::from(kb), pf / 1e3));
    }
    overall(&mut out, "E3", &ratios, count);
    let curves = variants.iter().zip(points).map(|(v, p)| Curve::plain(v.name(), p)).collect();
    let (x, y) = (Axis::linear("receive buffer", "kB"), Axis::linear("goodput while path 2 is down", "kB/s"));
    let panel = Panel::Lines(Lines { title: "a short failure".into(), x, y, curves });
    let caption = "1 % of Bernoulli loss on both paths; path 2 is down from 5 s to 10 s; means over runs.";
    out.drawings.push(Drawing::new("buffers", "E3: goodput while path 2 is down", caption, vec![panel]));
    Ok(out)
}

pub(super) fn e4a(lab: &Lab) -> Result<Outcome> {
    let mut out = Outcome::default();
    let (count, jobs) = (seeds(lab), jobs(lab));
    out.runs = Some(count);
    let losses: &[u32] = if lab.quick { &[1, 8] } else { &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10] };
    let delays: &[u64] = if lab.quick { &[45, 360] } else { &[45, 90, 180, 360, 450] };
    let (mut ratios, mut curves) = (Vec::new(), Vec::new());
    for delay in delays {
        let mut points = Vec::new();
        for loss in losses {
            let name = format!("delay{delay}-loss{loss}");
            if !lab.is_wanted(&name) {
                continue;
            }
            (lab.progress)(&format!("{delay} ms, {loss} %, {count} pairs"));
            let p = f64::from(*loss) / 100.0;
            let (.., ratio) = pair(&mut out, "E4a", &name, count, jobs, |variant, seed| {
                let links = vec![link(DELAY, p), link(Duration::from_millis(*delay), p)];
                let limit = Duration::from_secs(3000);
                let plan = Plan { links, failure: None, limit, ..plan(variant, p) };
                run(&plan, seed).completed.map_or(f64::NAN, |t| BYTES as f64 / t.as_secs_f64())
            });
            ratios.push(ratio);
            points.push((f64::from(*loss), 1.0 / ratio));
        }
        curves.push(Curve::plain(format!("{delay} ms"), points));
    }
    if lab.only.is_none() {
        overall(&mut out, "E4a", &ratios, count);
    }
    let (x, y) = (Axis::linear("loss", "%"), Axis::linear("goodput of CMT over that of CMT-PF", "1"));
    let panel = Panel::Lines(Lines { title: "delay of path 2, one way".into(), x, y, curves });
    let caption =
        "Path 1 has 45 ms each way; the same Bernoulli loss on both; 8 MB, a receive buffer of 64 kB; paired by seed.";
    out.drawings.push(Drawing::new("ratio", "E4a: paths of different delay", caption, vec![panel]));
    Ok(out)
}

/// Two paths that others use as well, for this part of what the links carry.
fn crossed(variant: Variant, loads: [f64; 2], bytes: u64) -> Plan {
    // Of the link that is shared, both twice what it holds.
    let queue = QueueLimit::Bytes((RATE as f64 / 8.0 * 2.0 * CORE.as_secs_f64()) as u64);
    Plan {
        links: vec![LinkConfig::rate(RATE, DELAY).with_queue(queue); 2],
        cross: loads.iter().map(|load| load * RATE as f64 / 8.0).collect(),
        bytes: Some(bytes),
        failure: None,
        limit: Duration::from_secs(3000),
        ..plan(variant, 0.0)
    }
}

/// The part of a path's delay that its shared link has, one way.
const CORE: Duration = Duration::from_millis(25);
/// What is transferred while others send, in bytes: full and quick.
const BYTES_E4B: (u64, u64) = (32_000_000, 4_000_000);

pub(super) fn e4b(lab: &Lab) -> Result<Outcome> {
    let mut out = Outcome::default();
    let (count, jobs) = (seeds(lab), jobs(lab));
    out.runs = Some(count);
    let bytes = if lab.quick { BYTES_E4B.1 } else { BYTES_E4B.0 };
    let symmetric: &[u32] = if lab.quick { &[60] } else { &[40, 50, 60, 70, 80, 90, 100] };
    let asymmetric: &[u32] = if lab.quick { &[90] } else { &[50, 60, 70, 80, 90, 100] };
    let both = symmetric.iter().map(|l| ("symmetric", *l, *l)).chain(asymmetric.iter().map(|l| ("asymmetric", 50, *l)));
    let (mut ratios, mut points) = (Vec::new(), [Vec::new(), Vec::new()]);
    for (kind, first, second) in both {
        let name = format!("{kind}-{second}");
        if !lab.is_wanted(&name) {
            continue;
        }
        (lab.progress)(&format!("{kind}, others send {first} and {second} %, {count} pairs"));
        let loads = [f64::from(first) / 100.0, f64::from(second) / 100.0];
        let seen = each(count, jobs, |seed| {
            [Variant::Cmt, Variant::CmtPf].map(|variant| run(&crossed(variant, loads, bytes), seed))
        });
        let goodput = |seen: &Seen| seen.completed.map_or(f64::NAN, |t| bytes as f64 / t.as_secs_f64());
        let of =
            |variant: Variant, seed: u64| goodput(&seen[seed as usize - 1][usize::from(variant == Variant::CmtPf)]);
        let (.., ratio) = pair(&mut out, "E4b", &name, count, 1, of);
        ratios.push(ratio);
        points[usize::from(kind == "asymmetric")].push((f64::from(second), ratio));
        if kind == "asymmetric" && second >= 70 {
            tables(&mut out, second, &seen);
        }
    }
    if lab.only.is_none() {
        overall(&mut out, "E4b", &ratios, count);
    }
    let [symmetric, asymmetric] = points;
    let curves = vec![Curve::plain("both paths", symmetric), Curve::plain("path 2, path 1 at 50 %", asymmetric)];
    let (x, y) =
        (Axis::linear("what others send, of the link", "%"), Axis::linear("goodput of CMT-PF over that of CMT", "1"));
    let panel = Panel::Lines(Lines { title: "bursty losses".into(), x, y, curves });
    let caption = "Two paths of 10 Mbit/s and 45 ms, 32 sources of others on each (Pareto), queues of 50 ms; 32 MB, a receive \
                   buffer of 64 kB; paired by seed.";
    out.drawings.push(Drawing::new("ratio", "E4b: paths that others use".to_owned(), caption, vec![panel]));
    Ok(out)
}

/// Tables 4.1 and 4.2 of the source beside ours: timeouts in a row on the second path, and
/// transmissions on both, means over runs.
fn tables(out: &mut Outcome, load: u32, seen: &[[Seen; 2]]) {
    // (load, variant): the second to fifth timeout in a row, transmissions on path 1 and 2.
    const PUBLISHED: [(u32, [&str; 6]); 8] = [
        (70, ["0.49", "0.02", "0", "0", "13,857", "9,486"]),
        (70, ["0", "0", "0", "0", "14,002", "9,344"]),
        (80, ["1.13", "0.07", "0", "0", "15,530", "7,902"]),
        (80, ["0", "0", "0", "0", "16,029", "7,416"]),
        (90, ["3.73", "0.60", "0.09", "0.02", "17,137", "6,401"]),
        (90, ["0.02", "0.02", "0", "0", "18,153", "5,362"]),
        (100, ["9.42", "1.62", "0.18", "0.04", "18,093", "5,508"]),
        (100, ["0.04", "0.04", "0", "0", "20,318", "3,193"]),
    ];
    for (v, variant) in [Variant::Cmt, Variant::CmtPf].into_iter().enumerate() {
        let of = |pick: &dyn Fn(&Seen) -> f64| mean(&seen.iter().map(|pair| pick(&pair[v])).collect::<Vec<_>>());
        let sent = |path: usize| of(&|s| s.paths.get(path).map_or(0.0, |p| p.sent as f64));
        let row = PUBLISHED.iter().filter(|(l, _)| *l == load).nth(v).map(|(_, row)| row);
        let published = |i: usize| row.map_or("", |r| r[i]);
        let name = format!("{}-{load}", variant.name());
        for i in 0..4 {
            let f = Figure::new("E4b", "timeouts_in_a_row", format!("{name}-{}", i + 2), "1");
            out.figures.push(f.value(of(&|s| s.consecutive[i] as f64), seen.len()).published(published(i)));
        }
        for path in 0..2 {
            let f = Figure::new("E4b", "transmissions", format!("{name}-path{}", path + 1), "1");
            out.figures.push(f.value(sent(path), seen.len()).published(published(4 + path)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_a_function_of_its_seed() {
        let plan = Plan { bytes: Some(500_000), failure: None, ..plan(Variant::CmtPf, 0.05) };
        let ended = |seed| run(&plan, seed).completed;
        assert!(ended(1).is_some());
        assert_eq!(ended(1), ended(1));
        assert_ne!(ended(1), ended(2));
        assert_eq!(each(3, 2, ended), [ended(1), ended(2), ended(3)]);
    }

    #[test]
    fn goodput_is_counted_between_two_times() {
        let s = Duration::from_secs;
        let seen = Seen { received: vec![(s(1), 100), (s(2), 300), (s(3), 700)], ..Seen::default() };
        assert_eq!((seen.by(Duration::ZERO), seen.by(s(2)), seen.by(s(9))), (0, 300, 700));
        assert!((seen.goodput(s(1), s(3)) - 300.0).abs() < 1e-9);
    }
}
