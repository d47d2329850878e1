//! B4: who gets how much when connections of ours and of the kernel's TCP share a link.

use super::Stack;
use super::path::Path;
use super::real::Tools;
use super::simulated;
use super::sweep::{JOBS, ONE_RUN, Spread, late_max, seeds};
use crate::experiments::{Lab, Outcome};
use crate::measure::stats::{bootstrap, difference_of_medians, median};
use crate::measure::{MeasureError, Result, soundest};
use crate::plot::{Axis, Curve, Drawing, Lines, Panel};
use crate::report::record::Beside;
use crate::report::{Bound, Figure};
use crate::runner::grid::{self, Task};
use crate::runner::journal::{Journal, Key, are_enough, paired};
use neater_base::Rng;
use neater_emulator::{self as live, Options, Plan, Running};
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

/// Runs of each mix: full and quick.
const RUNS: (usize, usize) = (30, 3);
/// How long the flows run: full and quick, in seconds. The thesis does not say; its totals are those of about 40 s.
const SECONDS: (u64, u64) = (40, 12);
/// How often the links are read.
const SLICE: Duration = Duration::from_millis(500);
/// By how much the median of Jain's index may be below that of four flows of the kernel's TCP.
const LESS_FAIR: f64 = 0.02;
const METRICS: &[&str] =
    &["jain", "our_share", "flow1_mbit", "flow2_mbit", "flow3_mbit", "flow4_mbit", "utilisation", "late_p99_us"];

/// Who shares the link. Flows of the kernel's TCP come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mix {
    /// Two QUIC connections of ours and two of TCP.
    TwoAndTwo,
    /// One QUIC connection of ours with two streams, and two of TCP.
    StreamsAndTwo,
    /// Four of TCP: what fairness is like without us.
    Four,
}

const MIXES: [Mix; 3] = [Mix::TwoAndTwo, Mix::StreamsAndTwo, Mix::Four];

impl Mix {
    const fn name(self) -> &'static str {
        match self {
            Self::TwoAndTwo => "2 QUIC + 2 TCP",
            Self::StreamsAndTwo => "1 QUIC of 2 streams + 2 TCP",
            Self::Four => "4 TCP",
        }
    }

    /// The name in the simulator.
    fn simulated(self) -> String {
        format!("{}, simulator", self.name())
    }

    /// The mix of a name, and whether it is the simulator's.
    fn named(name: &str) -> Option<(Self, bool)> {
        MIXES
            .into_iter()
            .find_map(|m| (m.name() == name).then_some((m, false)).or((m.simulated() == name).then_some((m, true))))
    }

    /// How many streams each of our connections has, and how many TCP connections there are.
    const fn flows(self) -> (&'static [usize], usize) {
        match self {
            Self::TwoAndTwo => (&[1, 1], 2),
            Self::StreamsAndTwo => (&[2], 2),
            Self::Four => (&[], 4),
        }
    }
}

/// Jain's index of fairness: 1 when all are equal, 1/n when one has everything.
fn jain(rates: &[f64]) -> f64 {
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(s, q), r| (s + r, q + r * r));
    if squares > 0.0 { sum * sum / (rates.len() as f64 * squares) } else { f64::NAN }
}

const fn path() -> Path {
    Path { queue: 5.0, ..Path::new(5.0, 100.0) }
}

/// Rates of each flow over time, in Mbit/s per slice.
type Course = Vec<(f64, Vec<f64>)>;

/// The mean rate of each flow in Mbit/s, its course, and how late the emulator was.
type Shared = (Vec<f64>, Course, f64);

/// One run. `Err` within: what disturbed it.
fn measure(tools: &Tools, mix: Mix, seconds: u64, seed: u64) -> Result<core::result::Result<Shared, String>> {
    let (ours, tcp) = mix.flows();
    let n = ours.len() + tcp;
    let folder = tools.folder()?;
    let path = path();
    let mut plan = Plan::dumbbell(n, path.config(), path.config(), seed);
    plan.sysctl_everywhere("net.ipv4.tcp_congestion_control", "cubic");
    let lab = live::Lab::up(&plan, &Options::default())?;
    let mut servers = Vec::new();
    let mut commands = Vec::new();
    for i in 0..n {
        let (host, client) = (format!("server{}", i + 1), format!("client{}", i + 1));
        let (stack, streams) = ours.get(i).map_or((Stack::CurlHttp, 1), |s| (Stack::Quic, *s));
        let dir = folder.path().join(&client);
        fs::create_dir_all(&dir)?;
        let (server, base) = tools.serve(&lab, &host, stack, folder.path())?;
        servers.push(server);
        let limit = Duration::from_secs(seconds + 30);
        commands.push((client, tools.endless(stack, streams, &base, &dir)?.limit(limit)));
    }
    let start = Instant::now();
    let clients: Vec<Running> =
        commands.into_iter().map(|(host, cmd)| lab.spawn(&host, cmd)).collect::<live::Result<_>>()?;
    let mut course = Course::new();
    let mut before = (0.0, vec![0.0; n]);
    let end = Duration::from_secs(seconds);
    while start.elapsed() < end {
        std::thread::sleep(SLICE.min(end.saturating_sub(start.elapsed())));
        let links = lab.links()?;
        let at = start.elapsed().as_secs_f64();
        let mbit = |i: usize| {
            let name = format!("client{}", i + 1);
            // What reaches the client: behind the middle link, and without its losses.
            let found = links.iter().find(|l| l.link == name && l.to == name);
            found.map(|l| l.delivered_bytes as f64 * 8.0 / 1e6)
        };
        let now = (0..n).map(mbit).collect::<Option<Vec<f64>>>();
        let now = now.ok_or_else(|| MeasureError::Failed("the lab has not the links that were planned".to_owned()))?;
        let span = (at - before.0).max(1e-3);
        course.push((at, now.iter().zip(&before.1).map(|(a, b)| (a - b) / span).collect()));
        before = (at, now);
    }
    if let Some(i) = clients.iter().position(|c| !c.is_running()) {
        return Err(MeasureError::Failed(format!("flow {} of {} ended before its time", i + 1, mix.name())));
    }
    if let Some(why) = lab.disturbance(f64::INFINITY)? {
        return Ok(Err(why));
    }
    let late = lab.emulator()?.late_p99_us;
    for process in clients.into_iter().chain(servers) {
        process.stop(libc::SIGKILL)?;
    }
    Ok(Ok((before.1.iter().map(|v| v / before.0).collect(), course, late)))
}

/// One run in the simulator: the mean rate of each flow in Mbit/s.
fn simulate(mix: Mix, seconds: u64, seed: u64) -> Result<Vec<f64>> {
    let (ours, tcp) = mix.flows();
    let ours = ours.iter().map(|streams| (neater_engine::Stack::Quic, *streams));
    let all: Vec<_> = ours.chain((0..tcp).map(|_| (neater_engine::Stack::Tcp, 1))).collect();
    simulated::share(&path(), &all, seconds, seed)
}

fn row(mix: Mix, rates: &[f64], late: f64) -> Vec<f64> {
    let ours: f64 = rates.iter().take(mix.flows().0.len()).sum();
    let total: f64 = rates.iter().sum();
    let flow = |i: usize| rates.get(i).copied().unwrap_or(f64::NAN);
    vec![jain(rates), ours / total, flow(0), flow(1), flow(2), flow(3), total / path().rate, late]
}

fn scenario(seconds: u64) -> String {
    format!("{} seconds={seconds}", path())
}

pub(crate) fn run(lab: &Lab) -> Result<Outcome> {
    let tools = Tools::prepare(lab)?;
    let seconds = if lab.quick { SECONDS.1 } else { SECONDS.0 };
    let seeds = seeds(lab, RUNS);
    let dir = lab.out.join("B4");
    let mut journal = Journal::open(&dir.join("runs.csv"), &lab.version, METRICS, lab.fresh("B4"))?;
    let first = *seeds.start();
    let one = |key: &Key| {
        let unknown = || MeasureError::Failed(format!("no such mix: {}", key.series));
        let (mix, simulated) = Mix::named(&key.series).ok_or_else(unknown)?;
        if simulated {
            return Ok(row(mix, &simulate(mix, seconds, key.seed)?, 0.0));
        }
        // Late runs are not made again: they are long, and many.
        let (rates, course, late) = soundest(|_| 0.0, 0.0, || measure(&tools, mix, seconds, key.seed))?;
        if key.seed == first {
            fs::write(dir.join(format!("course-{}.csv", mix_file(mix))), course_csv(mix, &course))?;
        }
        Ok(row(mix, &rates, late))
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut made = grid::Made::default();
    for (place, name, at_once, took) in [
        ("simulator", Mix::simulated as fn(Mix) -> String, processors, 0.05 * seconds as f64),
        ("lab", |m: Mix| m.name().to_owned(), JOBS, seconds as f64 + 1.0),
    ] {
        let task = |mix: Mix, seed| Task {
            key: Key { scenario: scenario(seconds), series: name(mix), seed },
            weight: 1.0 / at_once as f64,
            seconds: took,
        };
        let tasks = seeds.clone().flat_map(|seed| MIXES.map(|m| task(m, seed))).collect();
        let what = format!("B4, {place}");
        let part = grid::run(&what, &mut journal, tasks, lab.jobs.unwrap_or(at_once), &mut lab.rng(24), &one)?;
        made.before += part.before;
        made.failures.extend(part.failures);
    }
    let series = |name: &str, metric: &str| journal.values(&scenario(seconds), name, metric, seeds.clone());
    let values = |mix: Mix, metric: &str| series(mix.name(), metric);
    let by_seed = |mix: Mix, metric: &str| journal.by_seed(&scenario(seconds), mix.name(), metric, seeds.clone());
    let planned = seeds.clone().count();
    let mut out = Outcome { runs: Some(planned), ..Outcome::default() };
    figures(&mut lab.rng(25), &by_seed, planned, &mut out);
    in_simulator(&|mix, metric| series(&mix.simulated(), metric), &values, &mut out);
    drawings(&dir, &values, &mut out)?;
    out.remarks.push(WHY.to_owned());
    out.remarks.extend(made.failures.iter().map(|why| format!("A run failed: {why}")));
    if made.before > 0 {
        out.remarks.push(format!("{} runs were made earlier by the same build, and not again.", made.before));
    }
    Ok(out)
}

/// What is known to make a difference.
const WHY: &str = "All leave slow start when the round trip grows: the kernel's CUBIC and ours by the same rule. What one side has \
    got by then evens out slowly, since CUBIC grows by time: the shorter the run, the more the first seconds count. In the \
    simulator the same engine shares the link with the simulated TCP, and nothing is late.";

type BySeed<'a> = &'a dyn Fn(Mix, &str) -> BTreeMap<u64, f64>;

fn figures(rng: &mut Rng, by_seed: BySeed<'_>, planned: usize, out: &mut Outcome) {
    let values = |mix: Mix, metric: &str| by_seed(mix, metric).into_values().collect::<Vec<f64>>();
    let late = |mix: Mix| Spread::of(&values(mix, "late_p99_us")).is_some_and(|s| s.median > late_max(&path()));
    // Late, or too few runs came to their end.
    let void = |mix: Mix| late(mix) || !are_enough(values(mix, "jain").len(), planned);
    let four = Spread::of(&values(Mix::Four, "jain"));
    for mix in MIXES {
        let all = values(mix, "jain");
        let f = Figure::new("B4", "jain", mix.name(), "1");
        let f = match Spread::of(&all) {
            Some(s) => {
                // The interval of one median; the two are compared seed by seed below.
                let interval = bootstrap(&all, &all, rng, |a, _| median(a)).filter(|_| s.runs >= 3);
                let f = interval.map_or_else(|| f.clone().value(s.median, s.runs), |e| f.clone().estimate(e, s.runs));
                f.with("min", s.min).with("max", s.max).void_if(void(mix) || void(Mix::Four))
            }
            None => f.missing("no run came to its end"),
        };
        // Without runs of four it is void; the most that the bound could be stands for it.
        let least = four.map_or(1.0, |four| four.median) - LESS_FAIR;
        out.figures.push(if mix == Mix::TwoAndTwo {
            f.needs(RUNS.0).judge(Bound::AtLeast(least)).published("0.84")
        } else {
            f
        });
    }
    let (ours, theirs) = paired(&by_seed(Mix::TwoAndTwo, "jain"), &by_seed(Mix::Four, "jain"));
    let f = Figure::new("B4", "jain_over_four", "2 QUIC + 2 TCP less 4 TCP, by seed", "1");
    let f = f.void_if(void(Mix::TwoAndTwo) || void(Mix::Four) || !are_enough(ours.len(), planned));
    out.figures.push(match difference_of_medians(&ours, &theirs, rng) {
        Some(e) if ours.len() >= 3 => f.estimate(e, ours.len()),
        Some(e) => f.value(e.value, ours.len()),
        None => f.missing("not both came to their end"),
    });
    for mix in [Mix::TwoAndTwo, Mix::StreamsAndTwo] {
        let f = Figure::new("B4", "our_share", mix.name(), "1");
        let f = match Spread::of(&values(mix, "our_share")) {
            Some(s) => f.value(s.median, s.runs).with("min", s.min).with("max", s.max).void_if(void(mix)),
            None => f.missing("no run came to its end"),
        };
        if mix == Mix::TwoAndTwo {
            let f = f.needs(RUNS.0);
            out.figures.push(f.clone().judge(Bound::AtLeast(0.4)).published("0.63 in the run that is shown"));
            out.figures.push(f.judge(Bound::AtMost(0.6)));
        } else {
            out.figures.push(f.published("0.56 in the run that is shown"));
        }
    }
    let more = values(Mix::StreamsAndTwo, "our_share");
    let f = Figure::new("B4", "runs_with_more_than_tcp", Mix::StreamsAndTwo.name(), "1").published("0.6");
    let f = f.void_if(void(Mix::StreamsAndTwo));
    let part = more.iter().filter(|s| **s > 0.5).count() as f64 / more.len() as f64;
    out.figures.push(if more.is_empty() { f.missing("no run came to its end") } else { f.value(part, more.len()) });
    for mix in MIXES {
        let f = Figure::new("B4", "utilisation", mix.name(), "1").void_if(void(mix));
        out.figures.push(match Spread::of(&values(mix, "utilisation")) {
            Some(s) => f.value(s.median, s.runs).with("min", s.min).with("max", s.max),
            None => f.missing("no run came to its end"),
        });
    }
    let show = |mix: Mix, metric: &str| {
        Spread::of(&values(mix, metric))
            .map_or_else(|| "–".to_owned(), |s| format!("{:.2} ({:.2} to {:.2})", s.median, s.min, s.max))
    };
    let beside = |what: &str, published: &str, ours: String| Beside {
        what: what.into(),
        published: published.into(),
        ours,
        source: "U, section 5.4.1".into(),
    };
    out.beside = vec![
        beside("Jain's index, 2 QUIC + 2 TCP, median", "0.84", show(Mix::TwoAndTwo, "jain")),
        beside("Jain's index, 4 TCP, median", "–", show(Mix::Four, "jain")),
        beside("share of the QUIC connections, 2 + 2", "over a half in all 30 runs", show(Mix::TwoAndTwo, "our_share")),
        beside("share of one connection of two streams", "over a half in 60 %", show(Mix::StreamsAndTwo, "our_share")),
    ];
}

/// What a difference between the places may come from.
const APART: &str = "Neither several flows at once nor a queue of five bandwidth-delay products is among the conditions that the \
    simulated TCP is calibrated for, so its shares are reported and not judged.";

/// The same figures in the simulator, where nothing is late, and how far they are from those of the lab; reported.
fn in_simulator(values: &dyn Fn(Mix, &str) -> Vec<f64>, lab: &dyn Fn(Mix, &str) -> Vec<f64>, out: &mut Outcome) {
    let mut apart = Vec::new();
    for (mix, metric) in MIXES.into_iter().flat_map(|m| [(m, "jain"), (m, "our_share")]) {
        if metric == "our_share" && mix == Mix::Four {
            continue;
        }
        let f = Figure::new("B4", metric, mix.simulated(), "1");
        out.figures.push(match Spread::of(&values(mix, metric)) {
            Some(s) => f.value(s.median, s.runs).with("min", s.min).with("max", s.max),
            None => f.missing("no run came to its end"),
        });
        let f = Figure::new("B4", "simulator_over_lab", format!("{metric}, {}", mix.name()), "1");
        let both = [lab, values].map(|of| Spread::of_median(&of(mix, metric)));
        out.figures.push(match both {
            [Some(l), Some(s)] => {
                let meets = l.meets(&s, 0.02);
                if !meets {
                    apart.push(format!("{metric}, {} ({:.2})", mix.name(), s.median / l.median));
                }
                let f = f.value(s.median / l.median, l.runs.min(s.runs));
                f.with("error_bars_meet", meets).with("outside_box", true).void_for((l.runs < 2).then_some(ONE_RUN))
            }
            _ => f.missing("not measured in both places"),
        });
    }
    let which = if apart.is_empty() {
        "The intervals of the medians in lab and simulator meet everywhere.".to_owned()
    } else {
        format!("Simulator over lab, where the intervals of their medians are apart: {}.", apart.join(", "))
    };
    out.remarks.push(format!("{which} {APART}"));
}

const fn mix_file(mix: Mix) -> &'static str {
    match mix {
        Mix::TwoAndTwo => "2-2",
        Mix::StreamsAndTwo => "streams",
        Mix::Four => "4",
    }
}

fn flow_names(mix: Mix) -> Vec<String> {
    let (ours, tcp) = mix.flows();
    let quic = (1..=ours.len()).map(|i| format!("QUIC {i}"));
    quic.chain((1..=tcp).map(|i| format!("TCP {i}"))).collect()
}

fn course_csv(mix: Mix, course: &Course) -> String {
    let mut out = format!("seconds,{}\n", flow_names(mix).join(","));
    for (at, rates) in course {
        let rates: Vec<String> = rates.iter().map(|r| format!("{r:.4}")).collect();
        out.push_str(&format!("{at:.3},{}\n", rates.join(",")));
    }
    out
}

/// The course of a run that was kept, flow by flow.
fn read_course(text: &str) -> Vec<Curve> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split(',').skip(1).collect();
    let rows: Vec<Vec<f64>> = lines.map(|l| l.split(',').filter_map(|f| f.parse().ok()).collect()).collect();
    let curve = |(i, name): (usize, &&str)| {
        Curve::plain(*name, rows.iter().filter_map(|r| Some((*r.first()?, *r.get(i + 1)?))))
    };
    names.iter().enumerate().map(curve).collect()
}

fn drawings(dir: &std::path::Path, values: &dyn Fn(Mix, &str) -> Vec<f64>, out: &mut Outcome) -> Result<()> {
    let link = "5 Mbit/s, 100 ms, a queue of five bandwidth-delay products; all flows begin together.";
    let distribution = |metric: &str, label: &str, mixes: &[Mix]| {
        let curves = mixes.iter().map(|m| Curve::distribution(m.name(), &values(*m, metric))).collect();
        let axes = (Axis::close(label, ""), Axis::linear("part of the runs", ""));
        Panel::Lines(Lines { title: label.into(), x: axes.0, y: axes.1, curves })
    };
    let panels = vec![
        distribution("jain", "Jain's index", &MIXES),
        distribution("our_share", "part of the QUIC connections", &[Mix::TwoAndTwo, Mix::StreamsAndTwo]),
    ];
    out.drawings.push(Drawing::new("shares", "B4: who gets how much", format!("Over all runs: {link}"), panels));
    let mut panels = Vec::new();
    for mix in MIXES {
        let path = dir.join(format!("course-{}.csv", mix_file(mix)));
        if path.exists() {
            let curves = read_course(&fs::read_to_string(path)?);
            let axes = (Axis::linear("time", "s"), Axis::linear("rate at the client", "Mbit/s"));
            panels.push(Panel::Lines(Lines { title: mix.name().into(), x: axes.0, y: axes.1, curves }));
        }
    }
    if !panels.is_empty() {
        let caption = format!("The run of the first seed, IP bytes per half second: {link}");
        out.drawings.push(Drawing::new("course", "B4: one run over time", caption, panels));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_is_one_for_equals_and_one_over_n_for_a_winner() {
        assert!((jain(&[2.0, 2.0, 2.0, 2.0]) - 1.0).abs() < 1e-12);
        assert!((jain(&[1.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
        assert!(jain(&[]).is_nan() && jain(&[0.0]).is_nan());
    }

    #[test]
    fn a_row_has_each_flow_and_what_is_ours() {
        let r = row(Mix::TwoAndTwo, &[1.0, 2.0, 1.0, 0.5], 80.0);
        assert_eq!(r.len(), METRICS.len());
        assert!((r[1] - 3.0 / 4.5).abs() < 1e-12 && (r[6] - 0.9).abs() < 1e-12);
        assert!(row(Mix::StreamsAndTwo, &[1.0, 1.0, 1.0], 80.0)[5].is_nan());
    }

    #[test]
    fn fairness_is_judged_over_all_runs_and_compared_by_seed() {
        // In each run of ours the index is 0.01 less than in the run of the kernel with the same seed.
        let index = |mix: Mix, seed: u64| seed as f64 / 100.0 - if mix == Mix::TwoAndTwo { 0.01 } else { 0.0 };
        let made = |failed: &[u64]| {
            let by_seed = |mix: Mix, metric: &str| -> BTreeMap<u64, f64> {
                let seeds = (60..90u64).filter(|s| mix != Mix::TwoAndTwo || !failed.contains(s));
                let value = |seed| match metric {
                    "late_p99_us" => 80.0,
                    "jain" => index(mix, seed),
                    _ => 0.5,
                };
                seeds.map(|s| (s, value(s))).collect()
            };
            let mut out = Outcome::default();
            figures(&mut Rng::from_number(1), &by_seed, 30, &mut out);
            let of = |name: &str| out.figures.iter().find(|f| f.name == name).cloned().expect("a figure");
            (of("jain"), of("jain_over_four"), of("our_share"))
        };
        let (jain, over, share) = made(&[]);
        assert_eq!((jain.met, share.met, over.void), (Some(true), Some(true), false));
        assert!(
            (over.value.expect("a value") + 0.01).abs() < 1e-9 && over.ci_low.is_some_and(|v| v > -0.011),
            "{over:?}"
        );
        // The three lowest failed: the median of the rest has risen, the difference of the pairs has not.
        let (_, over, _) = made(&[60, 61, 62]);
        assert!((over.value.expect("a value") + 0.01).abs() < 1e-9, "{over:?}");
        let (jain, over, share) = made(&[60, 61, 62, 63]);
        assert!(jain.void && over.void && share.void && jain.met.is_none() && share.met.is_none());
    }

    #[test]
    fn what_could_not_be_measured_is_judged_too() {
        let judged = |made: &[Mix]| {
            let by_seed = |mix: Mix, metric: &str| -> BTreeMap<u64, f64> {
                let runs = if made.contains(&mix) { 30 } else { 0 };
                (0..runs).map(|s| (s, if metric == "late_p99_us" { 80.0 } else { 0.5 })).collect()
            };
            let mut out = Outcome::default();
            figures(&mut Rng::from_number(1), &by_seed, 30, &mut out);
            out.figures.into_iter().filter(|f| f.bound.is_some()).collect::<Vec<_>>()
        };
        assert!(judged(&MIXES).iter().all(|f| f.met == Some(true)));
        let without_four = judged(&[Mix::TwoAndTwo, Mix::StreamsAndTwo]);
        assert!(without_four.iter().any(|f| f.name == "jain" && f.void && f.met.is_none()), "{without_four:?}");
        let without_ours = judged(&[Mix::Four]);
        assert!(without_ours.len() == 3 && without_ours.iter().all(|f| f.met.is_none() && f.missing.is_some()));
    }

    #[test]
    fn a_course_is_read_as_it_was_written() {
        let text = course_csv(Mix::Four, &vec![(0.5, vec![1.0, 2.0, 0.5, 0.25]), (1.0, vec![1.5, 2.0, 0.5, 0.25])]);
        let curves = read_course(&text);
        assert_eq!(curves.len(), 4);
        assert_eq!(curves[0].points[1].y, Some(1.5));
        assert_eq!(curves[3].name, "TCP 4");
        assert!(read_course("").iter().all(|c| c.points.is_empty()));
    }
}
