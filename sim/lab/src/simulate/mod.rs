//! `neater-lab sim`: a scenario in the simulator, once or many times.

pub mod chart;
pub mod objects;
pub mod sweep;

use crate::source::Source;
use crate::timeline::{self, Course};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use neater_link::Counters;
use neater_netsim::{FlowStats, Samples, World};
use neater_scenario::{Carrier, SHIPPED, Scenario};
use neater_testkit::Programs;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use sweep::{Axis, Sweep, are_alike, mean_of};

const HELP: &str = "Examples:
  neater-lab sim dumbbell                                  a scenario that comes with neater
  neater-lab sim my.toml --set rtt='100 ms' --seed 7       one of your own, with a parameter and a seed
  neater-lab sim dumbbell --out results --trace pcapng     files: tables of flows, links and samples, a drawing of their
                                                           course (timeline.png), packets for Wireshark
  neater-lab sim cellular --set trace=my.trace             a link that follows a trace in mahimahi's format
  neater-lab sim dumbbell --sweep 'loss=0 %,1 %,2 %' --seeds 10 --jobs 2 --out results
                                                           runs.csv, and curves with intervals (sweep.svg, sweep.png)

A sweep goes on where an earlier one into the same --out stopped, if scenario, overrides and program are the same.
docs/scenarios.md describes scenario files.";

/// What `neater-lab sim` was asked.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct Arguments {
    /// A scenario file, or the name of one that comes with neater; without, they are listed.
    scenario: Option<PathBuf>,
    /// The first seed; the scenario's otherwise.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How many seeds, counting up; with --sweep the scenario's number otherwise, else one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    seeds: Option<u32>,
    /// Runs at once; as many as there are processors otherwise.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    jobs: Option<u32>,
    /// Another value for a parameter, or for any key by its dotted name.
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// Values to run one after another; with several of them, all combinations.
    #[arg(long, value_name = "KEY=VALUE,VALUE...", value_parser = pair)]
    sweep: Vec<(String, String)>,
    /// Where files are written; none otherwise.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Records of packets to write into --out (one run only): pcapng of the scenario's captures or else of all links, csv
    /// of every packet at every place, qlog of the QUIC connections that programs have (`over = "quic"`).
    #[arg(long, value_name = "FORMATS", value_delimiter = ',', requires = "out")]
    trace: Vec<Format>,
    /// The most bytes of a packet that pcapng keeps.
    #[arg(long, value_name = "BYTES", default_value_t = 128, value_parser = clap::value_parser!(u32).range(20..=65_535))]
    snap: u32,
    /// One JSON object per flow, link and run instead of tables.
    #[arg(long)]
    json: bool,
}

/// A format of packet records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Pcapng,
    Csv,
    Qlog,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => Err("it is KEY=VALUE".to_owned()),
    }
}

/// Runs the command; the exit code is 0 if the runs were made, 1 if not.
#[must_use]
pub fn command(a: &Arguments) -> ExitCode {
    match run(a) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("neater-lab: {e}");
            ExitCode::from(1)
        }
    }
}

fn run(a: &Arguments) -> Result<(), String> {
    let Some(path) = &a.scenario else {
        for (name, text) in SHIPPED {
            let s = Scenario::parse(text, &[]).map_err(|e| format!("{name}: {e}"))?;
            println!("{name:<14} {}", s.description);
        }
        return Ok(());
    };
    let (source, name) = (Source::open(path)?, path.display().to_string());
    let s = source.parse(&a.set).map_err(|e| format!("{name}: {e}"))?;
    if let Some(out) = &a.out {
        std::fs::create_dir_all(out).map_err(|e| format!("{}: {e}", out.display()))?;
    }
    if a.sweep.is_empty() && a.seeds.unwrap_or(1) == 1 {
        return single(a, &s, &name);
    }
    if !a.trace.is_empty() {
        return Err("--trace is for one run: leave --sweep and --seeds out".to_owned());
    }
    let axis = |(key, values): &(String, String)| Axis { key: key.clone(), values: list(values) };
    let sweep = Sweep {
        source,
        set: a.set.clone(),
        axes: a.sweep.iter().map(axis).collect(),
        seed: a.seed.unwrap_or(s.seed),
        seeds: a.seeds.unwrap_or(s.seeds),
        jobs: a.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), |n| n as usize),
    };
    many(a, &sweep, &name)
}

/// Values between commas, but for commas in brackets, braces and quotes.
fn list(text: &str) -> Vec<String> {
    let (mut depth, mut quoted, mut values) = (0, false, vec![String::new()]);
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            '[' | '{' if !quoted => depth += 1,
            ']' | '}' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                values.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = values.last_mut() {
            last.push(c);
        }
    }
    values.iter().map(|v| v.trim().to_owned()).collect()
}

/// The version of the program that tables of runs belong to: that of the code, as far as the executable tells.
fn version() -> String {
    let stamp = std::env::current_exe().and_then(std::fs::metadata).map(|m| {
        let at = m.modified().ok().and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
        format!("{}-{}", m.len(), at.map_or(0, |t| t.as_nanos()))
    });
    format!("{} {}", env!("CARGO_PKG_VERSION"), stamp.unwrap_or_default())
}

fn bar(total: u64, json: bool) -> ProgressBar {
    if json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(total);
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} {elapsed} left {eta}") {
        bar.set_style(style);
    }
    bar
}

fn many(a: &Arguments, sweep: &Sweep, name: &str) -> Result<(), String> {
    let table = a.out.as_ref().map(|out| out.join("runs.csv"));
    let bar = bar(0, a.json);
    let rows = sweep.run(table.as_deref(), &version(), |done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
        true
    });
    bar.finish_and_clear();
    let rows = rows.map_err(|e| format!("{name}: {e}"))?;
    let mut out = String::new();
    let keys: Vec<_> = sweep.axes.iter().map(|x| x.key.as_str()).collect();
    if !a.json {
        let _ = writeln!(out, "{name}: {} runs at each point, mean and 95 % interval", sweep.seeds);
    }
    let mut lines = vec![keys.iter().map(|k| (*k).to_owned()).collect::<Vec<_>>()];
    lines[0].extend(["traffic", "goodput Mbit/s", "RTT ms", "loss %", "sent again", "object ms"].map(str::to_owned));
    for point in sweep.points() {
        let names: Vec<_> = {
            let mut all: Vec<_> = rows.iter().filter(|r| r.point == point).map(|r| &r.traffic).collect();
            all.dedup();
            let mut seen = std::collections::BTreeSet::new();
            all.into_iter().filter(|n| seen.insert((*n).clone())).collect()
        };
        for traffic in names {
            let own: Vec<_> = rows.iter().filter(|r| r.point == point && r.traffic == *traffic).collect();
            let of = |pick: fn(&sweep::Row) -> Option<f64>| mean_of(&own, pick);
            let (goodput, rtt) = (of(|r| Some(r.goodput_mbit)), of(|r| r.rtt_ms));
            let (loss, again) = (of(|r| r.loss.map(|l| l * 100.0)), of(|r| r.retransmits.map(|n| n as f64)));
            let object = of(|r| r.object_ms);
            if a.json {
                let at: serde_json::Map<_, _> =
                    keys.iter().zip(&point).map(|(k, v)| ((*k).to_owned(), json!(v))).collect();
                let mut line = json!({"scenario": name, "point": at, "traffic": traffic, "runs": own.len()});
                let all = [
                    ("goodput_mbit", goodput),
                    ("rtt_ms", rtt),
                    ("loss_percent", loss),
                    ("retransmits", again),
                    ("object_ms", object),
                ];
                for (what, mean) in all {
                    line[what] = json!(mean.map(|m| m.mean));
                    line[format!("{what}_ci95")] = json!(mean.and_then(|m| m.half));
                }
                let _ = writeln!(out, "{line}");
            } else {
                let mut line = point.clone();
                line.extend([traffic.clone(), pm(goodput), pm(rtt), pm(loss), pm(again), pm(object)]);
                lines.push(line);
            }
        }
    }
    if let Some(dir) = &a.out {
        let short = Path::new(name).file_stem().map_or_else(|| name.to_owned(), |s| s.to_string_lossy().into_owned());
        let drawing = chart::drawing(sweep, &rows, &short);
        timeline::write(dir, "sweep", &drawing).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    if !a.json {
        out.push_str(&columns(&lines));
        if sweep.points().iter().any(|p| are_alike(rows.iter().filter(|r| r.point == *p))) {
            out.push_str("  values without ±: the runs of all seeds are alike, for nothing in them is random\n");
        }
    }
    print(&out);
    Ok(())
}

fn pm(mean: Option<sweep::Mean>) -> String {
    match mean {
        None => "-".to_owned(),
        Some(sweep::Mean { mean, half: Some(half), .. }) => format!("{mean:.3} ± {half:.3}"),
        Some(sweep::Mean { mean, .. }) => format!("{mean:.3}"),
    }
}

/// Lines of cells as a table.
fn columns(lines: &[Vec<String>]) -> String {
    let count = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |i: usize| lines.iter().filter_map(|l| l.get(i)).map(|c| c.chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..count).map(width).collect();
    let mut out = String::new();
    for line in lines {
        let cells: Vec<_> = line.iter().zip(&widths).map(|(c, w)| format!("{c:<w$}")).collect();
        let _ = writeln!(out, "  {}", cells.join("  ").trim_end());
    }
    out
}

/// A closed pipe is the reader's decision, not a failure of the run.
fn print(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

fn single(a: &Arguments, s: &Scenario, name: &str) -> Result<(), String> {
    let seed = a.seed.unwrap_or(s.seed);
    let mut network = World::build(s, seed).map_err(|e| format!("{name}: {e}"))?;
    if a.trace.contains(&Format::Qlog) && network.programs().iter().all(|p| p.over != Carrier::Quic) {
        return Err(format!("{name}: --trace qlog is of QUIC, and no traffic of this scenario has over = \"quic\""));
    }
    if a.trace.contains(&Format::Pcapng) && s.captures.is_empty() {
        (0..s.links.len()).for_each(|link| network.capture(link, a.snap as usize));
    }
    network.world.trace(a.trace.contains(&Format::Csv));
    let mut programs = Programs::on(network, seed).map_err(|e| format!("{name}: {e}"))?;
    let (bar, began) = (bar(100, a.json), Instant::now());
    let ran = programs.run(|done| {
        bar.set_position((done * 100.0) as u64);
        true
    });
    bar.finish_and_clear();
    ran.map_err(|e| format!("{name}: {e}"))?;
    let took = began.elapsed();
    let fault = |out: &Path, e: std::io::Error| format!("{}: {e}", out.display());
    if let Some(out) = &a.out {
        files(out, &mut programs, a).map_err(|e| fault(out, e))?;
    }
    print(&if a.json { as_json(&programs, name, seed, took) } else { as_table(&programs, name, seed, took) });
    if let Some(out) = a.out.as_ref().filter(|_| a.trace.contains(&Format::Qlog)) {
        for (file, bytes) in programs.into_qlogs() {
            std::fs::write(out.join(file), bytes).map_err(|e| fault(out, e))?;
        }
    }
    Ok(())
}

fn label(s: &Scenario, f: &FlowStats) -> String {
    let t = &s.traffic[f.traffic];
    if t.flows == 1 { t.name.clone() } else { format!("{}.{}", t.name, f.flow) }
}

/// The share of packets that a flow lost: of datagrams, or as retransmissions for TCP there is none.
fn as_table(programs: &Programs, name: &str, seed: u64, took: Duration) -> String {
    let network = programs.network();
    let s = network.scenario();
    let mut out = format!(
        "{name}: seed {seed}, {:.1} s measured after {:.1} s of warm-up\n",
        s.duration.as_secs_f64(),
        s.warm_up.as_secs_f64()
    );
    let mut lines = vec![
        ["flow", "goodput Mbit/s", "loss", "sent again", "RTT ms (min mean max)", "object ms"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for f in programs.flows() {
        let rtt = f.rtt;
        lines.push(vec![
            label(s, &f),
            format!("{:.3}", f.goodput(s.duration) / 1e6),
            f.loss().map_or("-".into(), |l| format!("{:.2} %", l * 100.0)),
            f.retransmits.map_or("-".into(), |n| n.to_string()),
            if rtt.count == 0 {
                "-".into()
            } else {
                format!("{:.2} {:.2} {:.2}", rtt.min * 1e3, rtt.mean * 1e3, rtt.max * 1e3)
            },
            if f.object_time.count == 0 { "-".into() } else { format!("{:.1}", f.object_time.mean * 1e3) },
        ]);
    }
    out.push_str(&columns(&lines));
    out.push_str(&objects::lines(s, &network.objects()));
    // What does not happen in most scenarios has a column where it does.
    type Count = fn(&Counters) -> u64;
    let seldom: [(&str, Count); 7] = [
        ("by discipline", |c| c.managed),
        ("ECN marked", |c| c.marked),
        ("too big", |c| c.too_big),
        ("filtered, down", |c| c.filtered + c.down),
        ("corrupted", |c| c.corrupted),
        ("doubled", |c| c.duplicated),
        ("overtook", |c| c.overtakers),
    ];
    let measured = network.measured();
    let happens = |count: Count| measured.iter().flatten().any(|c| count(c) > 0);
    let columns_there: Vec<_> = seldom.into_iter().filter(|(_, count)| happens(*count)).collect();
    let mut heading = ["link", "packets", "MB", "queue full", "lost", "longest queue kB"].map(str::to_owned).to_vec();
    heading.extend(columns_there.iter().map(|(name, _)| (*name).to_owned()));
    let mut lines = vec![heading];
    for (link, pair) in s.links.iter().zip(&measured) {
        for (way, c) in ["forward", "backward"].iter().zip(pair).filter(|(_, c)| c.offered > 0) {
            let mut line = vec![
                format!("{} {way}", link.name),
                c.delivered.to_string(),
                format!("{:.3}", c.delivered_bytes as f64 / 1e6),
                c.queue_full.to_string(),
                c.lost.to_string(),
                format!("{:.1}", c.max_queued_bytes as f64 / 1e3),
            ];
            line.extend(columns_there.iter().map(|(_, count)| count(c).to_string()));
            lines.push(line);
        }
    }
    // A fat tree has hundreds of links: the file has them all.
    const SHOWN: usize = 40;
    if lines.len() > SHOWN {
        let more = lines.len() - SHOWN;
        lines.truncate(SHOWN);
        lines.push(vec![format!("and {more} more: see links.csv of --out")]);
    }
    out.push_str(&columns(&lines));
    let hops = network.packet_hops();
    let _ = writeln!(
        out,
        "  {hops} packets over links in {:.3} s, {:.0} per second; digest {:016x}",
        took.as_secs_f64(),
        hops as f64 / took.as_secs_f64(),
        network.world.digest()
    );
    out
}

fn as_json(programs: &Programs, name: &str, seed: u64, took: Duration) -> String {
    let network = programs.network();
    let s = network.scenario();
    let mut out = String::new();
    let objects = network.objects();
    for f in programs.flows() {
        let summary = |x: neater_netsim::Summary| match x.count {
            0 => json!({"count": 0}),
            _ => json!({"count": x.count, "mean": x.mean, "min": x.min, "max": x.max}),
        };
        let finished = f.finished.zip(f.started).map(|(end, start)| (end - start).as_secs_f64());
        let mut object = summary(f.object_time);
        let own = objects.iter().filter(|o| (o.0, o.1) == (f.traffic, f.flow)).map(|o| &o.2);
        for (name, seconds) in objects::quantiles(own).into_iter().flatten() {
            object[name] = json!(seconds);
        }
        let line = json!({
            "scenario": name, "seed": seed, "flow": label(s, &f), "traffic": s.traffic[f.traffic].name,
            "goodput_mbit": f.goodput(s.duration) / 1e6, "delivered_bytes": f.delivered, "seconds": finished,
            "loss": f.loss(), "retransmits": f.retransmits, "failures": f.failures, "rtt_s": summary(f.rtt),
            "object_s": object, "page_s": summary(f.page_time),
        });
        let _ = writeln!(out, "{line}");
    }
    for (link, pair) in s.links.iter().zip(network.measured()) {
        for (way, c) in ["forward", "backward"].iter().zip(pair) {
            let mut line = json!({"scenario": name, "seed": seed, "link": link.name, "direction": way});
            for (what, n) in counted(&c) {
                line[what] = json!(n);
            }
            let _ = writeln!(out, "{line}");
        }
    }
    let hops = network.packet_hops();
    let line = json!({
        "scenario": name, "seed": seed, "packet_hops": hops, "wall_s": took.as_secs_f64(),
        "packets_per_second": hops as f64 / took.as_secs_f64(), "digest": format!("{:016x}", network.world.digest()),
    });
    let _ = writeln!(out, "{line}");
    out
}

/// What a link counts, by its names in files.
pub(crate) fn counted(c: &Counters) -> [(&'static str, u64); 14] {
    [
        ("offered", c.offered),
        ("delivered", c.delivered),
        ("delivered_bytes", c.delivered_bytes),
        ("queue_full", c.queue_full),
        ("managed", c.managed),
        ("marked", c.marked),
        ("lost", c.lost),
        ("corrupted", c.corrupted),
        ("duplicated", c.duplicated),
        ("overtakers", c.overtakers),
        ("too_big", c.too_big),
        ("filtered", c.filtered),
        ("down", c.down),
        ("max_queued_bytes", c.max_queued_bytes),
    ]
}

fn files(out: &Path, programs: &mut Programs, a: &Arguments) -> std::io::Result<()> {
    let samples = programs.take_samples();
    let network = programs.network();
    let s = network.scenario();
    let mut flows = String::from(
        "flow,goodput_mbit,delivered_bytes,measured_bytes,started_s,finished_s,datagrams_sent,datagrams_received,\
         measured_datagrams_sent,measured_datagrams_received,retransmits,failures,rtt_count,rtt_mean_s,rtt_min_s,rtt_max_s,\
         object_count,object_mean_s,object_min_s,object_max_s,page_count,page_mean_s,page_min_s,page_max_s\n",
    );
    for f in programs.flows() {
        let known = |x: Option<f64>| x.map_or(String::new(), |x| x.to_string());
        let since = |at: Option<neater_base::Instant>| known(at.map(|at| (at - network.start()).as_secs_f64()));
        let summary = |x: neater_netsim::Summary| {
            let of = |v: f64| known((x.count > 0).then_some(v));
            [x.count.to_string(), of(x.mean), of(x.min), of(x.max)].join(",")
        };
        let cells = [
            label(s, &f),
            (f.goodput(s.duration) / 1e6).to_string(),
            f.delivered.to_string(),
            f.measured.to_string(),
            since(f.started),
            since(f.finished),
            f.datagrams.0.to_string(),
            f.datagrams.1.to_string(),
            f.measured_datagrams.0.to_string(),
            f.measured_datagrams.1.to_string(),
            f.retransmits.map_or(String::new(), |n| n.to_string()),
            f.failures.to_string(),
            summary(f.rtt),
            summary(f.object_time),
            summary(f.page_time),
        ];
        flows += &(cells.join(",") + "\n");
    }
    std::fs::write(out.join("flows.csv"), flows)?;
    let objects = network.objects();
    if !objects.is_empty() {
        let name = |traffic: usize, flow: u32| label(s, &FlowStats { traffic, flow, ..FlowStats::default() });
        std::fs::write(out.join("objects.csv"), objects::csv(&objects, network.start(), name))?;
        let most = neater_netsim::MAX_OBJECTS as u64;
        if programs.flows().iter().any(|f| f.object_time.count > most) {
            eprintln!("neater-lab: objects.csv, and the quantiles, have the first {most} objects of a flow only");
        }
    }
    let mut links = format!("link,direction,{}\n", counted(&Counters::default()).map(|(name, _)| name).join(","));
    for (link, pair) in s.links.iter().zip(network.measured()) {
        for (way, c) in ["forward", "backward"].iter().zip(pair) {
            let _ = writeln!(links, "{},{way},{}", link.name, counted(&c).map(|(_, n)| n.to_string()).join(","));
        }
    }
    std::fs::write(out.join("links.csv"), links)?;
    let (panels, changes) = (courses(&samples), timeline::changes(s));
    if !panels.is_empty() {
        let about = format!("Scenario {}, seed {}; sampled as its probes say.", s.name, a.seed.unwrap_or(s.seed));
        let title = format!("{}: the course of the run", s.name);
        timeline::write(out, "timeline", &timeline::drawing(&title, &about, panels, &changes))?;
    }
    for table in samples {
        if table.truncated {
            eprintln!(
                "neater-lab: {}.csv has the first {} samples only: sample less often",
                table.name,
                table.rows.len()
            );
        }
        std::fs::write(out.join(format!("{}.csv", table.name)), table.to_csv())?;
    }
    for (link, bytes) in network.captures_so_far() {
        std::fs::write(out.join(format!("trace-{link}.pcapng")), bytes)?;
    }
    if a.trace.contains(&Format::Csv) {
        let events = network.world.take_trace();
        if events.len() >= neater_netsim::MAX_TRACE {
            eprintln!("neater-lab: trace.csv has the last {} events only: make the run shorter", events.len());
        }
        std::fs::write(out.join("trace.csv"), network.trace_csv(&events))?;
    }
    Ok(())
}

/// What is drawn over time: goodput of flows, their round trips and windows, and queues.
fn courses(samples: &[Samples]) -> Vec<Course> {
    // Columns of tables in one panel: what the simulator knows of its TCP, and engines of what programs send.
    let course = |from: &[(&str, usize)], factor: f64, title: &str, axis: (&str, &str)| {
        let mut subjects: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for (name, column) in from {
            let Some(table) = samples.iter().find(|t| t.name == *name) else { continue };
            for row in table.rows.iter().filter(|r| r.values[*column].is_finite()) {
                let name = table.subjects.get(row.subject as usize).cloned().unwrap_or_default();
                subjects.entry(name).or_default().push((row.at.as_secs_f64(), row.values[*column] * factor));
            }
        }
        // A queue that never held anything is no course.
        subjects.retain(|_, values| values.iter().any(|v| v.1 > 0.0));
        Course { title: title.to_owned(), axis: (axis.0.to_owned(), axis.1.to_owned()), subjects }
    };
    let mut all = vec![
        course(&[("goodput", 1)], 1.0, "Goodput of each flow", ("goodput", "Mbit/s")),
        course(&[("tcp", 3), ("program", 1)], 1e3, "Smoothed round-trip time of each flow", ("round trip", "ms")),
        course(&[("tcp", 0), ("program", 0)], 1e-3, "Congestion window of each flow", ("window", "kB")),
        course(&[("queue", 0)], 1e-3, "Queues", ("waiting", "kB")),
    ];
    all.retain(|c| !c.subjects.is_empty());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_separated_by_commas_outside_of_brackets() {
        assert_eq!(list("0 %, 1 %"), ["0 %", "1 %"]);
        assert_eq!(list("{ packets = [1, 2] },\"a,b\""), ["{ packets = [1, 2] }", "\"a,b\""]);
    }
}
