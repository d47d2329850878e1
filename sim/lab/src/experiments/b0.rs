//! B0: whether lab and simulator do what a scenario says, seen from outside the emulator.
//!
//! Every packet is captured by tcpdump where it leaves its host and where it arrives at the other. What was captured is held
//! against closed forms ([`theory`]) and against the simulator: two hosts and a link of the same scenario and seed, in which the same
//! packets are sent when they were seen to leave ([`journey`]). Rates are held against the kernel's token bucket filter besides.

mod journey;
mod parts;
mod theory;

use super::{Lab, Outcome};
use crate::measure::stats::{median, quantile};
use crate::measure::{MeasureError, Result};
use crate::plot::{Axis, Curve, Lines, Panel, Point};
use crate::report::record::Beside;
use crate::report::{Bound, Figure, number};
use neater_emulator::privileges;
use neater_link::{LinkConfig, Loss};
use parts::{Pairs, Seen, Share};
use std::path::Path;
use std::time::Duration;

const ID: &str = "B0";
const DELAYS: [u64; 4] = [0, 10, 25, 50];
const JITTERS: [u64; 6] = [0, 1, 2, 3, 4, 5];
const LOSSES: [f64; 6] = [0.0, 0.001, 0.005, 0.01, 0.025, 0.05];
const QUEUE_RATES: [u64; 6] = [1, 5, 10, 25, 50, 100];
/// Published averages of round trips, in ms, for [`DELAYS`].
const PUBLISHED_RTT: [f64; 4] = [0.054, 20.091, 50.093, 100.095];
/// Published deviations of arrival times, in ms, for [`JITTERS`].
const PUBLISHED_JITTER: [f64; 6] = [0.019, 0.807, 1.607, 2.436, 3.078, 3.970];
/// Published losses, in percent, for [`LOSSES`].
const PUBLISHED_LOSS: [f64; 6] = [0.0, 0.13, 0.46, 1.20, 2.13, 4.13];
const SOURCE: &str = "U, section 4.3";

pub(super) fn run(lab: &Lab) -> Result<Outcome> {
    privileges::check()?;
    let dir = lab.scratch.join("b0");
    std::fs::create_dir_all(&dir)?;
    // Of packets there are many; only TCP is run several times, as its figures say.
    let mut out = Outcome::default();
    let wanted: Vec<_> = PARTS.iter().filter(|(name, _)| lab.is_wanted(name)).collect();
    if wanted.is_empty() {
        let (text, names) = (lab.only.as_deref().unwrap_or_default(), PARTS.map(|(name, _)| name).join(", "));
        return Err(MeasureError::Failed(format!("B0 has no part with {text} in its name; there are {names}")));
    }
    for (_, part) in wanted {
        part(lab, &dir, &mut out)?;
    }
    let _ = std::fs::remove_dir(&dir);
    Ok(out)
}

type Part = fn(&Lab, &Path, &mut Outcome) -> Result<()>;

/// What is verified, one after another; each by itself with `--only`.
const PARTS: [(&str, Part); 8] = [
    ("delay", delay),
    ("jitter", jitter),
    ("loss", loss),
    ("queue", queue),
    ("waiting", waiting),
    ("rate", rate),
    ("capacity", capacity),
    ("sharing", sharing),
];

fn figure(name: &str, variant: impl Into<String>, unit: &'static str) -> Figure {
    Figure::new(ID, name, variant, unit)
}

/// What is wrong with what a lab did, if its emulator could not keep up.
fn disturbed(pairs: &Pairs) -> Result<Option<String>> {
    Ok(pairs.disturbed()?)
}

/// The median of absolute values.
fn typical(errors: &[f64]) -> f64 {
    median(&errors.iter().map(|e| e.abs()).collect::<Vec<_>>())
}

fn beside(out: &mut Outcome, what: String, published: String, ours: String) {
    out.beside.push(Beside { what, published, ours, source: SOURCE.into() });
}

/// Delay: what every packet took, less what the link is configured to take.
fn delay(lab: &Lab, dir: &Path, out: &mut Outcome) -> Result<()> {
    (lab.progress)("B0: delay");
    let n = if lab.quick { 75 } else { 500 };
    let mut configs = parts::delays(&DELAYS);
    // And one on which 1,500 bytes take 12 ms to be sent.
    configs.push(LinkConfig::rate(1_000_000, Duration::from_millis(10)));
    let pairs = Pairs::up(&configs, &LinkConfig::default(), lab.seed)?;
    let seen = pairs.ping(n, 1472, dir)?;
    let why = disturbed(&pairs)?;
    let mut curves = Vec::new();
    for (i, seen) in seen.iter().enumerate() {
        let (setting, due) = match DELAYS.get(i) {
            Some(ms) => (format!("{ms} ms"), *ms as f64),
            None => ("10 ms and 12 ms of sending".to_owned(), 10.0 + theory::serialisation_ms(1500, 1_000_000)),
        };
        for (place, values) in [("lab", seen.lab_ms()), ("simulator", seen.simulated_ms())] {
            let errors: Vec<f64> = values.iter().map(|v| v - due).collect();
            let variant = format!("{place}, {setting}");
            out.figures.push(
                figure("delay_error_ms", &variant, "ms")
                    .value(typical(&errors), errors.len())
                    .with("place", place)
                    .with("p99", quantile(&errors, 0.99))
                    .with("max", errors.iter().copied().fold(0.0, f64::max))
                    .void_for(why.as_deref().filter(|_| place == "lab"))
                    .judge_unless(lab.quick && place == "lab", Bound::AtMost(0.2)),
            );
            for (run, e) in errors.iter().enumerate() {
                out.sample("delay_error_ms", place, &setting, run, *e);
            }
            if place == "lab" {
                curves.push(Curve::distribution(setting.clone(), &errors));
            }
        }
        if let Some(ms) = DELAYS.get(i) {
            // The published figures are round trips over two delays; ours are one way.
            let ours = theory::moments(&seen.lab_ms());
            beside(
                out,
                format!("delay over the configured {ms} ms, each way, mean"),
                format!("{} ms", number((PUBLISHED_RTT[i] - 2.0 * *ms as f64) / 2.0)),
                format!("{} ms", number(ours.0 - *ms as f64)),
            );
        }
    }
    out.panels.push(Panel::Lines(Lines {
        title: "Lab: delay of each packet over the configured one".into(),
        x: Axis::linear("later than configured", "ms"),
        y: Axis::linear("part of packets", ""),
        curves,
    }));
    let report = pairs.lab.emulator()?;
    out.figures.push(
        figure("emulator_late_us", "median, delays", "us")
            .value(report.late_median_us, report.packets.delivered as usize)
            .with("p99", report.late_p99_us)
            .with("max", report.late_max_us)
            .with("cpu", report.cpu)
            .judge_unless(lab.quick, Bound::AtMost(100.0)),
    );
    Ok(())
}

/// Jitter: the deviation of the delay, and each packet's delay beside that in virtual time.
fn jitter(lab: &Lab, dir: &Path, out: &mut Outcome) -> Result<()> {
    (lab.progress)("B0: jitter");
    let n = if lab.quick { 150 } else { 2000 };
    let pairs = Pairs::up(&parts::jitters(&JITTERS), &LinkConfig::default(), lab.seed)?;
    let seen = pairs.ping(n, 56, dir)?;
    let why = disturbed(&pairs)?;
    let (mut ours, mut simulated) = (Vec::new(), Vec::new());
    for ((ms, seen), published) in JITTERS.iter().zip(&seen).zip(PUBLISHED_JITTER) {
        let setting = format!("{ms} ms");
        for (place, values) in [("lab", seen.lab_ms()), ("simulator", seen.simulated_ms())] {
            let (mean, plain) = theory::moments(&values);
            // A few packets that the machine held up say nothing about the link; the plain deviation is kept beside.
            let sd = theory::robust_deviation(&values);
            // The deviation of n values is known to within 1 in the square root of 2 n, and so is this three times that.
            let tolerance = 3.0 * *ms as f64 / (2.0 * values.len().max(1) as f64).sqrt() + 0.2;
            out.figures.push(
                figure("jitter_error_ms", format!("{place}, {setting}"), "ms")
                    .value((sd - *ms as f64).abs(), values.len())
                    .with("deviation", sd)
                    .with("plain_deviation", plain)
                    .with("mean", mean)
                    .void_for(why.as_deref().filter(|_| place == "lab"))
                    .judge_unless(lab.quick && place == "lab", Bound::AtMost(tolerance)),
            );
            for (run, v) in values.iter().enumerate() {
                out.sample("jitter_delay_ms", place, &setting, run, *v);
            }
            let point = Point { x: *ms as f64, y: Some(sd), bar: None };
            if place == "lab" { ours.push(point) } else { simulated.push(point) }
        }
        let errors = seen.errors();
        out.figures.push(
            figure("lab_over_simulator_ms", format!("jitter {setting}, per packet"), "ms")
                .value(typical(&errors), errors.len())
                .judge_unless(lab.quick, Bound::AtMost(0.2)),
        );
        let sd = theory::robust_deviation(&seen.lab_ms());
        beside(
            out,
            format!("deviation with {ms} ms of normal jitter"),
            format!("{} ms", number(published)),
            format!("{} ms", number(sd)),
        );
    }
    let curve = |name: &str, points| Curve { name: name.into(), points, steps: false };
    let published = JITTERS.iter().zip(PUBLISHED_JITTER).map(|(x, y)| (*x as f64, y));
    out.panels.push(Panel::Lines(Lines {
        title: "Deviation of the delay under normal jitter".into(),
        x: Axis::linear("configured", "ms"),
        y: Axis::linear("measured", "ms"),
        curves: vec![curve("lab", ours), curve("simulator", simulated), Curve::plain("published (netem)", published)],
    }));
    Ok(())
}

/// Loss: how many packets are lost, in which runs, and whether they are those that the simulator loses.
fn loss(lab: &Lab, dir: &Path, out: &mut Outcome) -> Result<()> {
    (lab.progress)("B0: loss");
    const N: usize = 20_000;
    let n = if lab.quick { N } else { 5 * N };
    let bursts = Loss::GilbertElliott { to_bad: 0.01, to_good: 0.25, loss_good: 0.0, loss_bad: 1.0 };
    let configs = parts::losses(&LOSSES, bursts);
    let (mut all, mut why): (Vec<Seen>, _) = (Vec::new(), None);
    // Three links at a time, so that tcpdump misses nothing.
    for some in configs.chunks(if lab.quick { 4 } else { 3 }) {
        let pairs = Pairs::up(some, &LinkConfig::default(), lab.seed.wrapping_add(all.len() as u64))?;
        all.extend(pairs.stream(n, 100, Duration::from_millis(n as u64 / 8), dir)?);
        why = why.or(disturbed(&pairs)?);
    }
    let mut same = true;
    let mut parts_lost: [Vec<Point>; 2] = [Vec::new(), Vec::new()];
    for (i, seen) in all.iter().enumerate() {
        let lost = |s: &Option<u64>| s.is_none();
        let lab_lost: Vec<bool> = seen.steps.iter().map(|s| lost(&s.seen)).collect();
        let simulated: Vec<bool> = seen.simulated.iter().map(lost).collect();
        same &= lab_lost == simulated;
        let (setting, p, run) = match LOSSES.get(i) {
            Some(p) => (format!("{} %", p * 100.0), *p, 1.0 / (1.0 - p)),
            // Runs end with probability 0.25 at each packet; the part of bad time is 0.01 / 0.26.
            None => ("in runs of 4 in the mean".to_owned(), 0.01 / 0.26, 4.0),
        };
        for (which, (place, lost)) in [("lab", &lab_lost), ("simulator", &simulated)].into_iter().enumerate() {
            let part = lost.iter().filter(|l| **l).count() as f64 / lost.len().max(1) as f64;
            // A run of losses counts as one event: it is what is independent.
            let independent = if i < LOSSES.len() { lost.len() } else { lost.len() / 8 };
            out.figures.push(
                figure("loss_error", format!("{place}, {setting}"), "1")
                    .value((part - p).abs(), lost.len())
                    .with("part", part)
                    .with("place", place)
                    .void_for(why.as_deref().filter(|_| place == "lab"))
                    .judge(Bound::AtMost(theory::loss_tolerance(p, independent))),
            );
            // One number for each thousand packets.
            for (run, some) in lost.chunks(1000).enumerate() {
                let part = some.iter().filter(|l| **l).count() as f64 / some.len() as f64;
                out.sample("loss_part", place, &setting, run, part);
            }
            if i < LOSSES.len() {
                parts_lost[which].push(Point { x: p * 100.0, y: Some(part * 100.0), bar: None });
            }
            if let Some(mean) = theory::mean_run(lost.iter().copied()) {
                let runs = lost.iter().filter(|l| **l).count() as f64 / mean;
                let f = figure("loss_run_length", format!("{place}, {setting}"), "packets").value(mean, lost.len());
                out.figures.push(f.with("closed_form", run));
                // The length of a run is geometric, and its mean is known to within three of its deviations.
                let tolerance = 3.0 * (run * (run - 1.0) / runs).sqrt();
                out.figures.push(
                    figure("loss_run_error", format!("{place}, {setting}"), "packets")
                        .value((mean - run).abs(), lost.len())
                        .void_for(why.as_deref().filter(|_| place == "lab"))
                        .judge(Bound::AtMost(tolerance)),
                );
            }
        }
        if let Some(p) = PUBLISHED_LOSS.get(i) {
            let part = lab_lost.iter().filter(|l| **l).count() as f64 / lab_lost.len().max(1) as f64;
            beside(
                out,
                format!("loss configured as {setting}"),
                format!("{p} % of 1,500"),
                format!("{} % of {}", number(part * 100.0), number(lab_lost.len() as f64)),
            );
        }
    }
    let differ =
        all.iter().map(|s| s.steps.iter().zip(&s.simulated).filter(|(a, b)| a.seen.is_none() != b.is_none()).count());
    let differ: usize = differ.sum();
    out.figures.push(
        figure("packets_lost_differently", "lab and simulator, all settings", "packets")
            .value(differ as f64, all.len() * n)
            .void_for(why.as_deref())
            .judge(Bound::AtMost(0.0)),
    );
    let [ours, simulated] = parts_lost;
    let curve = |name: &str, points| Curve { name: name.into(), points, steps: false };
    let published = LOSSES.iter().zip(PUBLISHED_LOSS).map(|(x, y)| (x * 100.0, y));
    out.panels.push(Panel::Lines(Lines {
        title: "Packets lost".into(),
        x: Axis::linear("configured", "%"),
        y: Axis::linear("measured", "%"),
        curves: vec![curve("lab", ours), curve("simulator", simulated), Curve::plain("published (netem)", published)],
    }));
    if same {
        out.remarks.push("Lab and simulator lost the same packets, one for one.".into());
    }
    Ok(())
}

/// Queues: many more packets than fit, while the link is held.
fn queue(lab: &Lab, dir: &Path, out: &mut Outcome) -> Result<()> {
    (lab.progress)("B0: queue length");
    const LEN: u32 = 1000;
    let queues = parts::queues(&QUEUE_RATES, LEN);
    let configs: Vec<LinkConfig> = queues.iter().map(|q| q.config.clone()).collect();
    let pairs = Pairs::up(&configs, &LinkConfig::default(), lab.seed)?;
    let bursts = pairs.bursts(parts::BURST, LEN, dir)?;
    let why = disturbed(&pairs)?;
    for (q, seen) in queues.iter().zip(bursts) {
        let arrived = |all: Vec<Option<u64>>| all.into_iter().flatten().collect::<Vec<u64>>();
        let lab_seen = arrived(seen.steps.iter().map(|s| s.seen).collect());
        for (place, seen) in [("lab", lab_seen), ("simulator", arrived(seen.simulated))] {
            let why = why.as_deref().filter(|_| place == "lab");
            out.sample("queue_packets", place, &q.setting(), 0, seen.len() as f64);
            out.figures.extend(queue_figures(place, q, LEN, &seen, why));
            if place == "lab" && q.is_published() {
                let of = |n: usize| format!("{n} of {} packets", parts::BURST);
                beside(out, format!("queue of {} at {} Mbit/s", q.packets, q.mbit), of(50), of(seen.len()));
            }
        }
    }
    // The kernel's token bucket filter cannot be held: while the burst comes, its first packets leave.
    for (mbit, seen) in parts::tbf_queues(&QUEUE_RATES, LEN, lab.seed, dir)? {
        let setting = format!("kernel's TBF, {mbit} Mbit/s");
        let more = seen as f64 - parts::QUEUE as f64;
        out.sample("queue_packets", "kernel's TBF", &format!("{mbit} Mbit/s"), 0, seen as f64);
        let f = figure("queue_error_packets", setting, "packets").value(more.abs(), parts::BURST);
        out.figures.push(f.with("received", seen).with("more", more));
    }
    Ok(())
}

/// What arrived of a burst, at these times in nanoseconds: by how many packets it differs from what fits into the queue, in
/// either direction, and whether it came as far apart as sending takes. Too few arrivals to tell that are a missing figure.
fn queue_figures(place: &str, q: &parts::Queue, len: u32, seen: &[u64], why: Option<&str>) -> [Figure; 2] {
    let variant = format!("{place}, {}", q.setting());
    let more = seen.len() as f64 - q.packets as f64;
    let length = figure("queue_error_packets", &variant, "packets")
        .value(more.abs(), parts::BURST)
        .with("received", seen.len())
        .with("more", more)
        .void_for(why)
        .judge(Bound::AtMost(0.0));
    let first = seen.first().copied().unwrap_or_default();
    let times: Vec<f64> = seen.iter().map(|t| t.saturating_sub(first) as f64 / 1e6).collect();
    let due = theory::serialisation_ms(len, q.mbit * 1_000_000);
    let spacing = figure("serialisation_error", &variant, "1").void_for(why);
    let spacing = match theory::spacing(&times) {
        Some(gap) => spacing.value((gap / due - 1.0).abs(), seen.len()).with("gap_ms", gap),
        None => {
            spacing.missing(format!("{} of the packets arrived: too few to tell how far apart they are", seen.len()))
        }
    };
    [length, spacing.judge(Bound::AtMost(0.01))]
}

/// Waiting: Poisson arrivals at one server with fixed service times.
fn waiting(lab: &Lab, dir: &Path, out: &mut Outcome) -> Result<()> {
    (lab.progress)("B0: waiting, M/D/1");
    const LEN: u32 = 1000;
    const RATE: u64 = 10_000_000;
    let n = if lab.quick { 2000 } else { 20_000 };
    let service = theory::serialisation_ms(LEN, RATE);
    for load in [0.5, 0.8] {
        let link = LinkConfig::rate(RATE, Duration::ZERO).with_queue(neater_link::QueueLimit::Packets(10_000));
        let pairs = Pairs::up(&[link], &LinkConfig::default(), lab.seed)?;
        let mean = Duration::from_secs_f64(service / 1e3 / load);
        let seen = pairs.poisson(mean, n, LEN, &mut lab.rng((load * 10.0) as u64), dir)?;
        let why = disturbed(&pairs)?;
        let Some(seen) = seen.first() else { continue };
        let first = seen.steps.first().map_or(0, |s| s.sent);
        let arrivals: Vec<f64> = seen.steps.iter().map(|s| (s.sent - first) as f64 / 1e6).collect();
        // What these very arrivals wait (Lindley), and what all such arrivals wait in the mean.
        let lindley = theory::moments(&theory::lindley(&arrivals, service)).0;
        let closed = theory::md1_wait(load) * service;
        for (place, values) in [("lab", seen.lab_ms()), ("simulator", seen.simulated_ms())] {
            let wait = theory::moments(&values).0 - service;
            out.figures.push(
                figure("md1_wait_error_ms", format!("{place}, load {load}"), "ms")
                    .value((wait - lindley).abs(), values.len())
                    .with("wait_ms", wait)
                    .with("lindley_ms", lindley)
                    .with("closed_form_ms", closed)
                    .void_for(why.as_deref().filter(|_| place == "lab"))
                    .judge_unless(lab.quick && place == "lab", Bound::AtMost(0.2)),
            );
            // One number for each hundred packets.
            for (run, some) in values.chunks(100).enumerate() {
                let wait = theory::moments(some).0 - service;
                out.sample("md1_wait_ms", place, &format!("load {load}"), run, wait);
            }
        }
    }
    Ok(())
}

/// Rates: what arrives when more is sent.
fn rate(lab: &Lab, _: &Path, out: &mut Outcome) -> Result<()> {
    let (groups, seconds): (&[&[u64]], f64) = if lab.quick {
        (&[&[1, 10, 100], &[500]], 1.5)
    } else {
        (&[&[1, 2, 5, 10, 20], &[50, 100], &[200], &[500]], 8.0)
    };
    let mut curves = Vec::new();
    let mut points = Vec::new();
    for mbit in groups.iter().copied().flatten() {
        let place = "simulator";
        (lab.progress)(&format!("B0: rate, {place}, {mbit} Mbit/s"));
        let rate = parts::simulated_rate(*mbit, Duration::from_secs_f64(seconds), lab.seed)?;
        let error = rate / (*mbit as f64 * 1e6) - 1.0;
        let f = figure("rate_error", format!("{place}, {mbit} Mbit/s"), "1").value(error.abs(), 1);
        out.figures.push(f.with("mbit", rate / 1e6).with("place", place).judge(Bound::AtMost(0.01)));
        out.sample("rate_mbit", place, &format!("{mbit} Mbit/s"), 0, rate / 1e6);
        points.push((*mbit as f64, error * 100.0));
    }
    curves.push(Curve::plain("simulator", points));
    for (place, tbf) in [("lab", false), ("kernel's TBF", true)] {
        let mut points = Vec::new();
        for group in groups {
            (lab.progress)(&format!("B0: rate, {place}, {group:?} Mbit/s"));
            let measured = parts::rates(group, tbf, Duration::from_secs_f64(seconds), lab.seed)?;
            for (mbit, m) in group.iter().zip(measured) {
                let error = m.rate / (*mbit as f64 * 1e6) - 1.0;
                let f = figure("rate_error", format!("{place}, {mbit} Mbit/s"), "1")
                    .value(error.abs(), 1)
                    .with("mbit", m.rate / 1e6)
                    .with("place", place)
                    .with("emulator_cpu", m.cpu)
                    .void_for(m.why.as_deref().filter(|_| !tbf));
                out.sample("rate_mbit", place, &format!("{mbit} Mbit/s"), 0, m.rate / 1e6);
                out.figures.push(if tbf { f } else { f.judge_unless(lab.quick, Bound::AtMost(0.01)) });
                points.push((*mbit as f64, error * 100.0));
            }
        }
        curves.push(Curve::plain(place, points));
    }
    out.panels.push(Panel::Lines(Lines {
        title: "Rate of IP packets over the configured one".into(),
        x: Axis::log("configured", "Mbit/s"),
        y: Axis::close("difference", "%"),
        curves,
    }));
    Ok(())
}

/// Capacity: TCP through a link that does not limit it.
fn capacity(lab: &Lab, _: &Path, out: &mut Outcome) -> Result<()> {
    (lab.progress)("B0: capacity");
    let m = parts::capacity(Duration::from_secs(if lab.quick { 2 } else { 10 }), lab.seed)?;
    out.figures.push(
        figure("lab_capacity_mbit", "four TCP connections, 1,500 bytes", "Mbit/s")
            .value(m.rate / 1e6, 1)
            .with("emulator_cpu", m.cpu)
            .judge_unless(lab.quick, Bound::AtLeast(500.0)),
    );
    out.sample("lab_capacity_mbit", "lab", "four TCP connections", 0, m.rate / 1e6);
    let share = |what: &str, value| figure("cpu_share", what, "processors").value(value, 1);
    out.figures.push(share("the emulator, at its capacity", m.cpu));
    out.figures.push(share("the whole machine, at its capacity", m.machine).with("processors", m.processors));
    Ok(())
}

/// Sharing: three TCP connections and one link.
fn sharing(lab: &Lab, _: &Path, out: &mut Outcome) -> Result<()> {
    let settings: Vec<Share> =
        ["reno", "cubic"].iter().flat_map(|c| [1, 10, 50].map(|mbit| Share { control: c, mbit })).collect();
    let (time, omit) = if lab.quick { (6, 2) } else { (50, 10) };
    let runs = lab.seeds.unwrap_or(if lab.quick { 1 } else { 5 });
    let mut all: Vec<(&str, usize, Share, Vec<f64>)> = Vec::new();
    let mut why = None;
    for run in 0..runs {
        (lab.progress)(&format!("B0: sharing, run {} of {runs}", run + 1));
        let seed = lab.seed.wrapping_add(run as u64);
        let (goodputs, disturbed) = parts::sharing(&settings, time, omit, seed)?;
        why = why.or(disturbed);
        for (s, goodputs) in settings.iter().zip(goodputs) {
            all.push(("lab", run, *s, goodputs));
            all.push(("simulator", run, *s, parts::simulated_sharing(*s, time, omit, seed)?));
        }
    }
    for (place, run, s, goodputs) in &all {
        let variant = format!("{}, {} Mbit/s", s.control, s.mbit);
        out.sample("jain", place, &variant, *run, theory::jain(goodputs));
        for g in goodputs {
            out.sample("goodput_mbit", place, &variant, *run, *g);
        }
    }
    for s in &settings {
        for place in ["lab", "simulator"] {
            let of = || all.iter().filter(|(p, _, t, _)| *p == place && t == s).map(|(.., g)| g);
            let jain: Vec<f64> = of().map(|g| theory::jain(g)).collect();
            let used: Vec<f64> = of().map(|g| g.iter().sum::<f64>() / s.mbit as f64).collect();
            let f = |name| figure(name, format!("{place}, {}, {} Mbit/s", s.control, s.mbit), "1");
            let low = |v: &[f64]| v.iter().copied().fold(f64::INFINITY, f64::min);
            let why = why.as_deref().filter(|_| place == "lab");
            let jains = f("jain").value(median(&jain), jain.len()).with("least", low(&jain)).with("place", place);
            out.figures.push(jains.void_for(why));
            out.figures.push(f("utilisation").value(median(&used), used.len()).with("least", low(&used)).void_for(why));
        }
        let published = match (s.control, s.mbit) {
            ("reno", _) => "above 0.92",
            (_, 50) => "quite bad: one connection got hardly anything",
            _ => "above 0.95",
        };
        let f = out
            .figures
            .iter()
            .find(|f| f.name == "jain" && f.variant == format!("lab, {}, {} Mbit/s", s.control, s.mbit));
        let ours = f.and_then(|f| f.value).map_or_else(String::new, number);
        beside(
            out,
            format!("Jain's index, three {} connections, {} Mbit/s", s.control, s.mbit),
            published.into(),
            ours,
        );
    }
    let curve = |place: &'static str, control: &'static str| {
        let of = |s: &Share| {
            let own = all.iter().filter(|(p, _, t, _)| *p == place && t == s);
            let jain: Vec<f64> = own.map(|(.., g)| theory::jain(g)).collect();
            let fold = |f: fn(f64, f64) -> f64, start| jain.iter().copied().fold(start, f);
            let bar = (fold(f64::min, f64::INFINITY), fold(f64::max, f64::NEG_INFINITY));
            Point { x: s.mbit as f64, y: Some(median(&jain)), bar: (jain.len() > 1).then_some(bar) }
        };
        let points = settings.iter().filter(|s| s.control == control).map(of).collect();
        Curve { name: format!("{control}, {place}"), points, steps: false }
    };
    out.panels.push(Panel::Lines(Lines {
        title: "Jain's index of three connections of TCP".into(),
        x: Axis::log("link rate", "Mbit/s"),
        y: Axis::close("Jain's index", ""),
        curves: ["reno", "cubic"].into_iter().flat_map(|c| [curve("lab", c), curve("simulator", c)]).collect(),
    }));
    out.remarks.push(
        "Three flows at once are not among the conditions that the simulated TCP is calibrated for: its shares are reported and \
         not judged."
            .into(),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_delivers_too_few_is_as_wrong_as_one_that_delivers_too_many() {
        // 1,000 bytes at 8 Mbit/s: one each millisecond.
        let arrivals = |n: u64| (0..n).map(|i| i * 1_000_000).collect::<Vec<_>>();
        let q = parts::queues(&[8], 1000).swap_remove(0);
        let met = |n: u64| queue_figures("lab", &q, 1000, &arrivals(n), None).map(|f| (f.value, f.met));
        let right = parts::QUEUE as u64;
        assert_eq!(met(right)[0], (Some(0.0), Some(true)));
        assert_eq!(met(right + 1)[0], (Some(1.0), Some(false)));
        assert_eq!(met(right - 40)[0], (Some(40.0), Some(false)));
        assert_eq!(met(right)[1].1, Some(true));
        let none = queue_figures("lab", &q, 1000, &[], None);
        assert_eq!(none[0].met, Some(false));
        assert!(none[1].missing.is_some() && none[1].bound.is_some() && none[1].met.is_none());
        let disturbed = queue_figures("lab", &q, 1000, &arrivals(right - 1), Some("two packets found no buffer"));
        assert!(disturbed.iter().all(|f| f.void && f.met.is_none()));
    }
}
