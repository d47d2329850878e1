//! AR: the A experiments between hosts with a router between them, as they were published: 10 Mbit/s, 50 ms each way.
//!
//! One lab for all runs. A run gives delay, CPU time and memory at once: the peer is started, says that it is ready, is told to
//! go, and says when all its flows are open. It is entered into its host by `nsenter`, which becomes the peer, so that what the
//! kernel accounts for it can be read from here.

use super::{CONTROL_MAX, FLOW_PROGRAMS, LIMIT, Lab, Outcome, Ratios};
use crate::measure::cpu::{Interleaved, Series};
use crate::measure::stats::{difference_of_medians, median, quantile, ratio_of_medians};
use crate::measure::{Child, Counter, MeasureError, Result, Server, failed, memory, process, wrap};
use crate::plot::{Axis, Curve, Drawing, Lines, Panel, Point};
use crate::programs::{HOST, Program};
use crate::report::{Bound, Figure};
use neater_base::Rng;
use neater_emulator::{self as live, Kind, Options, Plan};
use neater_link::{LinkConfig, QueueLimit};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// What links client and router, and router and server: each way.
const RATE: u64 = 10_000_000;
const DELAY: Duration = Duration::from_millis(50);
/// Room for the first packets of all flows at once, so that none is lost and no retransmission is measured.
const QUEUE: QueueLimit = QueueLimit::Packets(1000);
const FLOWS: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// Runs of each point, in full and quick.
const RUNS: (usize, usize) = (10, 3);
/// Peers end by themselves after so many seconds, whatever happens.
const PEER_LIMIT: &str = "120";
const REFERENCE: Program = Program::Libuv;
/// What the quick form leaves out.
const SLOW_BUILD: Program = Program::Tokio;

/// Two hosts and a router.
fn plan(seed: u64) -> Plan {
    let mut plan = Plan::new(seed);
    let [client, router, server] =
        [("client", Kind::Host), ("router", Kind::Router), ("server", Kind::Host)].map(|(n, k)| plan.add(n, k));
    let shaped = LinkConfig::rate(RATE, DELAY).with_queue(QUEUE);
    plan.connect("near", client, router, shaped.clone(), LinkConfig::default());
    plan.connect("far", router, server, LinkConfig::default(), shaped);
    plan.sysctl_everywhere("net.ipv4.tcp_congestion_control", "cubic");
    // Every run leaves its ports waiting for a minute.
    plan.sysctl_everywhere("net.ipv4.ip_local_port_range", "1024 65535");
    plan
}

/// What one run of a peer gave.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// From the call to the connection, over the flows.
    median_ms: f64,
    p90_ms: f64,
    /// From when it was told to go to its end.
    cpu_s: f64,
    /// Anonymous memory while all flows are open.
    resident: f64,
}

struct Bench<'a> {
    lab: &'a Lab,
    net: live::Lab,
    /// What the name that neater connects to means here.
    hosts: PathBuf,
    server: IpAddr,
}

impl<'a> Bench<'a> {
    fn new(lab: &'a Lab) -> Result<Self> {
        process::need("nsenter", "util-linux")?;
        let net = live::Lab::up(&plan(lab.seed), &Options::default())?;
        let (v4, v6) = (net.address("server", false)?, net.address("server", true)?);
        let hosts = lab.scratch.join("hosts-router");
        std::fs::write(&hosts, format!("{v6} {HOST}\n{v4} {HOST}\n"))?;
        Ok(Self { lab, net, hosts, server: v6 })
    }

    /// A command in a host, as the same process.
    fn inside(&self, host: &str, command: &Command) -> Result<Command> {
        let netns = format!("--net={}", self.net.netns_path(host)?);
        Ok(wrap(command, "nsenter", &[&netns, "--"]))
    }

    fn server(&self, program: Program, more: &[&str]) -> Result<Server> {
        let mut command = self.lab.programs.command(program, "server")?;
        command.args(["--addr", &SocketAddr::new(self.server, 0).to_string(), "--limit", "3000"]).args(more);
        Server::start(&mut self.inside("server", &command)?)
    }

    fn client(&self, program: Program, addr: SocketAddr, flows: u64) -> Result<Command> {
        let mut command = self.lab.programs.command(program, "client")?;
        command.args(["--addr", &addr.to_string(), "--flows", &flows.to_string(), "--limit", PEER_LIMIT]);
        if program.is_ours() {
            command.args(["--name", HOST, "--hosts"]).arg(&self.hosts);
        }
        Ok(command)
    }

    /// One run of a client: `flows` at once.
    fn run_client(&self, program: Program, addr: SocketAddr, flows: u64) -> Result<Run> {
        let mut command = self.client(program, addr, flows)?;
        command.args(["--mark", "--hold", "--delays"]);
        let mut child = Child::start(&mut self.inside("client", &command)?)?;
        child.line(LIMIT)?;
        let before = child.cpu_so_far()?;
        child.say("go")?;
        child.line(LIMIT)?;
        let resident = memory::resident(child.pid())? as f64;
        child.close_stdin();
        let exit = child.wait(LIMIT)?;
        let ms = |key: &str| exit.line[key].as_f64().map(|ns| ns / 1e6);
        match (ms("delay_median_ns"), ms("delay_p90_ns")) {
            (Some(median_ms), Some(p90_ms)) if exit.line["done"] == flows && exit.line["failed"] == 0 => {
                Ok(Run { median_ms, p90_ms, cpu_s: exit.cpu.saturating_sub(before).as_secs_f64(), resident })
            }
            _ => failed(format!("{flows} flows were to be opened: {}", exit.line)),
        }
    }

    /// One run of a server, against the plain client. It measures no delays.
    fn run_server(&self, program: Program, flows: u64) -> Result<Run> {
        let mut server = self.server(program, &["--flows", &flows.to_string(), "--hold"])?;
        let before = server.child.cpu_so_far()?;
        let mut command = self.client(Program::Epoll, server.addr, flows)?;
        let mut client = Child::start(&mut self.inside("client", command.arg("--hold"))?)?;
        client.line(LIMIT)?;
        server.child.line(LIMIT)?;
        let resident = memory::resident(server.child.pid())? as f64;
        server.child.close_stdin();
        client.close_stdin();
        client.wait(LIMIT)?;
        let exit = server.child.wait(LIMIT)?;
        if exit.line["done"] != flows {
            return failed(format!("{flows} flows were to be served: {}", exit.line));
        }
        let cpu_s = exit.cpu.saturating_sub(before).as_secs_f64();
        Ok(Run { median_ms: f64::NAN, p90_ms: f64::NAN, cpu_s, resident })
    }

    /// Instructions of a client in user space, from when it is ready to its end.
    fn instructions(&self, program: Program, addr: SocketAddr, flows: u64) -> Result<u64> {
        let mut command = self.client(program, addr, flows)?;
        Counter::instructions_from_mark(&mut command, &self.lab.scratch, LIMIT, |counted| {
            self.inside("client", &counted)
        })
    }
}

/// All runs of a point: every series has as many as there were rounds.
type Runs = BTreeMap<Series, Vec<Run>>;

/// Rounds in which every program runs once and the reference twice, in an order drawn anew. A program that fails is left out.
fn rounds(
    programs: &[Program],
    count: usize,
    rng: &mut Rng,
    missing: &mut BTreeMap<Program, String>,
    mut run: impl FnMut(Program) -> Result<Run>,
) -> Result<Runs> {
    let mut order: Vec<Series> = programs.iter().map(|p| Series::Of(*p)).collect();
    order.push(Series::Control);
    let mut all = Runs::new();
    for _ in 0..count {
        rng.shuffle(&mut order);
        for series in order.clone() {
            let program = match series {
                Series::Of(p) => p,
                Series::Control => REFERENCE,
            };
            match run(program) {
                Ok(got) => all.entry(series).or_default().push(got),
                Err(e) if program == REFERENCE => return Err(e),
                Err(e) => {
                    missing.insert(program, e.to_string());
                    all.remove(&series);
                    order.retain(|s| *s != series);
                }
            }
        }
    }
    Ok(all)
}

fn of(runs: &Runs, missing: &BTreeMap<Program, String>, pick: fn(&Run) -> f64) -> Interleaved {
    let samples = runs.iter().map(|(s, all)| (*s, all.iter().map(pick).collect())).collect();
    Interleaved { samples, missing: missing.clone() }
}

pub(super) fn run(lab: &Lab) -> Result<Outcome> {
    let bench = Bench::new(lab)?;
    let mut out = Outcome::default();
    let mut rng = lab.rng(31);
    let programs: Vec<Program> = FLOW_PROGRAMS.into_iter().filter(|p| !(lab.quick && *p == SLOW_BUILD)).collect();
    let count = lab.seeds.unwrap_or(if lab.quick { RUNS.1 } else { RUNS.0 });
    let flows: &[u64] = if lab.quick { &[1, 16, 256] } else { &FLOWS };
    out.runs = Some(count);
    let mut missing = BTreeMap::new();
    let plain = bench.server(Program::Epoll, &["--flows", "0"])?;
    let mut clients = BTreeMap::new();
    for n in flows {
        (lab.progress)(&format!("clients with {n} flows at once, {count} rounds of {} runs", programs.len() + 1));
        let runs = rounds(&programs, count, &mut rng, &mut missing, |p| bench.run_client(p, plain.addr, *n))?;
        delays(&mut out, *n, &runs, &missing, &programs, &mut rng);
        costs(&mut out, "client", *n, &runs, &missing, &programs, &mut rng);
        clients.insert(*n, runs);
    }
    if !lab.quick {
        instructions(&bench, plain.addr, &mut out);
    }
    plain.stop()?;
    let mut servers = BTreeMap::new();
    for n in if lab.quick { &[256][..] } else { &[1, 256] } {
        (lab.progress)(&format!("servers with {n} flows at once, {count} rounds"));
        let runs = rounds(&programs, count, &mut rng, &mut missing, |p| bench.run_server(p, *n))?;
        costs(&mut out, "server", *n, &runs, &missing, &programs, &mut rng);
        servers.insert(*n, runs);
    }
    memory_slopes(&mut out, "client", &clients, &missing);
    memory_slopes(&mut out, "server", &servers, &missing);
    draw(&mut out, &clients);
    honesty(&bench, &mut out)?;
    Ok(out)
}

/// The delay of opening a flow, and what it is over the reference's.
fn delays(
    out: &mut Outcome,
    n: u64,
    runs: &Runs,
    missing: &BTreeMap<Program, String>,
    programs: &[Program],
    rng: &mut Rng,
) {
    let variant = format!("client-{n}");
    let (bound, published) = if n == 1 { (0.2, "+72 ms") } else { (2.0, "+109 ms with 256") };
    for (name, pick) in
        [("connect_delay_ms", (|r| r.median_ms) as fn(&Run) -> f64), ("connect_delay_p90_ms", |r| r.p90_ms)]
    {
        out.samples_of(name, &variant, &of(runs, missing, pick));
    }
    for (series, all) in runs {
        let Series::Of(program) = series else { continue };
        let values: Vec<f64> = all.iter().map(|r| r.median_ms).collect();
        let mut f = Figure::new("AR", "connect_delay_ms", format!("{variant}-{}", program.name()), "ms")
            .value(median(&values), values.len());
        for (key, q) in [("min", 0.0), ("p10", 0.1), ("p90", 0.9), ("max", 1.0)] {
            f = f.with(key, quantile(&values, q));
        }
        out.figures.push(f);
    }
    let others: Vec<Program> = programs.iter().copied().filter(|p| *p != REFERENCE).collect();
    let ratios = Ratios {
        id: "AR",
        name: "added_delay_ms",
        variant: &variant,
        unit: "ms",
        reference: REFERENCE,
        programs: &others,
        statistic: difference_of_medians,
        control_max: bound,
        needs: RUNS.0,
        judge: &|f| f.judge(Bound::AtMost(bound)).published(published),
    };
    out.figures.extend(ratios.figures(&of(runs, missing, |r| r.median_ms), rng));
}

/// CPU time over the reference's, and memory.
fn costs(
    out: &mut Outcome,
    side: &str,
    n: u64,
    runs: &Runs,
    missing: &BTreeMap<Program, String>,
    programs: &[Program],
    rng: &mut Rng,
) {
    let variant = format!("{side}-{n}");
    let cpu = of(runs, missing, |r| r.cpu_s);
    out.samples_of("cpu_seconds", &variant, &cpu);
    out.samples_of("resident_bytes", &variant, &of(runs, missing, |r| r.resident));
    let others: Vec<Program> = programs.iter().copied().filter(|p| *p != REFERENCE).collect();
    // The CPU time of a single flow is some hundred microseconds: too little to be judged over a network.
    let judged = n == 256;
    let judge = |f: Figure| if judged { f.judge(Bound::LowAtMost(1.10)) } else { f };
    let ratios = Ratios {
        id: "AR",
        name: "cpu_ratio",
        variant: &variant,
        unit: "1",
        reference: REFERENCE,
        programs: &others,
        statistic: ratio_of_medians,
        control_max: if judged { CONTROL_MAX * 2.0 } else { f64::INFINITY },
        needs: RUNS.0,
        judge: &judge,
    };
    out.figures.extend(ratios.figures(&cpu, rng));
}

/// Memory per flow: the slope between the fewest flows and the most.
fn memory_slopes(out: &mut Outcome, side: &str, all: &BTreeMap<u64, Runs>, missing: &BTreeMap<Program, String>) {
    let (Some((few, small)), Some((many, large))) = (all.first_key_value(), all.last_key_value()) else { return };
    let resident =
        |runs: &Runs, s: &Series| runs.get(s).map(|all| median(&all.iter().map(|r| r.resident).collect::<Vec<_>>()));
    for series in large.keys() {
        let Series::Of(program) = series else { continue };
        let f = Figure::new("AR", "resident_bytes", format!("{side}-{many}-{}", program.name()), "bytes");
        let Some(most) = resident(large, series) else { continue };
        out.figures.push(f.value(most, large[series].len()));
        if few == many {
            continue;
        }
        let Some(least) = resident(small, series) else { continue };
        let f = Figure::new("AR", "resident_bytes_per_flow", format!("{side}-{}", program.name()), "bytes");
        let f = f.value((most - least) / (many - few) as f64, large[series].len()).needs(RUNS.0);
        out.figures.push(if program.is_ours() { f.judge(Bound::AtMost(2048.0)) } else { f });
    }
    for (program, why) in missing {
        let f = Figure::new("AR", "resident_bytes", format!("{side}-{}", program.name()), "bytes");
        out.figures.push(f.missing(why.clone()));
        let there = |runs: &Runs| runs.contains_key(&Series::Of(*program));
        if program.is_ours() && few != many && !(there(small) && there(large)) {
            let f = Figure::new("AR", "resident_bytes_per_flow", format!("{side}-{}", program.name()), "bytes");
            out.figures.push(f.missing(why.clone()).judge(Bound::AtMost(2048.0)));
        }
    }
}

/// Instructions of the client, in all and per flow.
fn instructions(bench: &Bench<'_>, addr: SocketAddr, out: &mut Outcome) {
    for program in FLOW_PROGRAMS {
        (bench.lab.progress)(&format!("instructions of {}", program.name()));
        let count = |n| bench.instructions(program, addr, n);
        let both = count(1).and_then(|one| Ok((one, count(256)?)));
        let bound = match program {
            Program::NeaterFd => Some(1200.0),
            Program::Neater => Some(2000.0),
            _ => None,
        };
        let judge = |f: Figure| bound.map_or(f.clone(), |b| f.judge(Bound::AtMost(b)));
        let total = Figure::new("AR", "instructions", format!("client-256-{}", program.name()), "instructions");
        let each = Figure::new("AR", "instructions_per_flow", format!("client-{}", program.name()), "instructions");
        match both {
            Ok((one, many)) => {
                for (n, v) in [(1, one), (256, many)] {
                    out.sample("instructions", program.name(), &format!("client-{n}"), 0, v as f64);
                }
                out.figures.push(total.value(many as f64, 1));
                out.figures.push(judge(each.value((many as f64 - one as f64) / 255.0, 1)));
            }
            Err(e) => {
                out.figures.extend([total.missing(e.to_string()), judge(each.missing(e.to_string()))]);
            }
        }
    }
}

fn draw(out: &mut Outcome, clients: &BTreeMap<u64, Runs>) {
    let series: Vec<Series> = clients.values().next().into_iter().flat_map(|r| r.keys().copied()).collect();
    let curves = |pick: fn(&Run) -> f64| -> Vec<Curve> {
        let curve = |s: &Series| {
            let points = clients.iter().map(|(n, runs)| {
                let values: Vec<f64> = runs.get(s).into_iter().flatten().map(pick).collect();
                let bar = (quantile(&values, 0.0), quantile(&values, 1.0));
                Point {
                    x: *n as f64,
                    y: Some(median(&values)).filter(|v| v.is_finite()),
                    bar: Some(bar).filter(|b| b.0.is_finite()),
                }
            });
            Curve { name: s.name().to_owned(), points: points.collect(), steps: false }
        };
        series.iter().filter(|s| matches!(s, Series::Of(_))).map(curve).collect()
    };
    let flows = || Axis::log("flows at once", "");
    let panel = |title: &str, y: Axis, curves| Panel::Lines(Lines { title: title.to_owned(), x: flows(), y, curves });
    let panels = vec![
        panel(
            "Delay of a flow, from the call to the connection (median over the flows)",
            Axis::close("delay", "ms"),
            curves(|r| r.median_ms),
        ),
        panel("CPU time of the client", Axis::log("CPU time", "ms"), curves(|r| r.cpu_s * 1e3)),
        panel(
            "Memory of the client with all flows open",
            Axis::log("anonymous memory", "MB"),
            curves(|r| r.resident / 1e6),
        ),
    ];
    let caption = "Client and server with a router between them, 10 Mbit/s and 50 ms each way. Medians over the runs. \
                   The round trip is 100 ms.";
    out.drawings.push(Drawing::new("clients", "AR: clients through a router", caption, panels));
}

/// Whether the network was what it should be.
fn honesty(bench: &Bench<'_>, out: &mut Outcome) -> Result<()> {
    // What the last run left behind is still on its way, and counts as neither delivered nor lost.
    std::thread::sleep(DELAY * 10);
    let report = bench.net.emulator()?;
    let dropped: u64 = bench.net.links()?.iter().map(|l| l.lost + l.queue_full + l.managed + l.other).sum();
    let unread = bench.net.unread()?;
    if dropped + unread + report.packets.no_buffer + report.refused > 0 {
        return Err(MeasureError::Failed(format!(
            "packets were lost where none should be: {dropped} on links, {} in the emulator",
            unread + report.packets.no_buffer + report.refused
        )));
    }
    out.remarks.push(format!(
        "The emulator handed packets over {:.0} us late at the median, {:.0} us at the 99th percentile; no packet was lost.",
        report.late_median_us, report.late_p99_us
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_ten_megabits_and_a_hundred_milliseconds_there_and_back() {
        let plan = plan(1);
        plan.check().expect("sound");
        for side in 0..2 {
            let (delay, rates): (Duration, Vec<_>) = (
                plan.wires.iter().map(|w| w.config[side].delay).sum(),
                plan.wires.iter().map(|w| w.config[side].rate.mean()).collect(),
            );
            assert_eq!(delay, DELAY);
            assert_eq!(rates.iter().flatten().collect::<Vec<_>>(), [&1e7]);
        }
        let client = plan.node("client").expect("there");
        let to = plan.address(plan.node("server").expect("there"), true).expect("address");
        assert_eq!(plan.routes()[client][&to], [0]);
    }

    #[test]
    fn every_round_has_the_reference_twice_and_who_fails_is_left_out() {
        let mut missing = BTreeMap::new();
        let mut calls = 0;
        let got = rounds(&[Program::Libuv, Program::Neater], 4, &mut Rng::from_number(1), &mut missing, |p| {
            calls += 1;
            if p == Program::Neater && calls > 4 {
                return failed("broke");
            }
            Ok(Run { median_ms: 100.0, p90_ms: 101.0, cpu_s: 0.001, resident: 1e6 })
        });
        let got = got.expect("the reference runs");
        assert_eq!(got[&Series::Control].len(), 4);
        assert_eq!(got[&Series::Of(Program::Libuv)].len(), 4);
        assert!(!got.contains_key(&Series::Of(Program::Neater)) && missing[&Program::Neater] == "broke");
    }

    #[test]
    fn memory_that_was_not_measured_is_judged_too() {
        let run = || Run { median_ms: 100.0, p90_ms: 101.0, cpu_s: 0.001, resident: 1e6 };
        let point = |programs: &[Program]| {
            programs.iter().map(|p| (Series::Of(*p), (0..RUNS.0).map(|_| run()).collect())).collect::<Runs>()
        };
        let all = BTreeMap::from([
            (1, point(&[Program::Libuv, Program::Neater, Program::NeaterFd])),
            (256, point(&[Program::Libuv, Program::Neater])),
        ]);
        let mut out = Outcome::default();
        memory_slopes(&mut out, "client", &all, &[(Program::NeaterFd, "broke".to_owned())].into());
        let judged: Vec<_> = out.figures.iter().filter(|f| f.bound.is_some()).map(|f| (&*f.variant, f.met)).collect();
        assert_eq!(judged, [("client-neater", Some(true)), ("client-neater-fd", None)]);
    }
}
