//! A8: system calls, instructions and CPU time per transferred megabyte, and throughput with small writes.

use super::{CONTROL_MAX, FLOW_PROGRAMS_AND_NEATS, LIMIT, Lab, Outcome, PAIRS, Ratios, for_each, steadied};
use crate::measure::cpu::interleave;
use crate::measure::stats::{self, ratio_of_medians};
use crate::measure::turns::{self, Pair, in_turns};
use crate::measure::{Child, Counter, Exit, MeasureError, Result, Server, failed, process, wrap};
use crate::plot::Row;
use crate::programs::Program;
use crate::report::{Bound, Figure};
use neater_emulator::netns::Netns;
use std::collections::BTreeMap;
use std::process::Command;

/// A megabyte of the figures.
const MB: u64 = 1_000_000;
/// An object and how it is called.
const OBJECTS: [(u64, &str); 4] = [(1000, "1kB"), (100_000, "100kB"), (10 * MB, "10MB"), (1000 * MB, "1GB")];
/// The least that is transferred for a count, in bytes, in a quick run.
const AMOUNT: u64 = 16 * MB;
/// The same in a full run. How often a receiver waits is chance, and its system calls are the same few in any case: in 16 MB the wake-ups
/// alone moved libuv's count by 8 %. A sender does not wait at all before the buffers are full, which are as long as that for 8 flows.
const FULL_AMOUNT: u64 = 8 * AMOUNT;
/// What is transferred for a sample of CPU time, in bytes: full and quick; of a larger object, so much of its beginning. The smallest
/// objects cost more CPU time per byte, and a quarter of it is enough.
const CPU_AMOUNT: (u64, u64) = (600 * MB, 240 * MB);
/// "Equal" for counts that depend on how sender and receiver happen to meet.
const EQUAL: f64 = 1.02;
/// NEAT's interface may cost so much of what Rust's does.
const OVER_RUST: f64 = 1.2;
/// The point that is judged by throughput.
const SMALL_WRITES: &str = "1kB-writes";
const OTHERS: [Program; 4] = [Program::Epoll, Program::Tokio, Program::NeaterFd, Program::Neater];

/// The receive buffer of every socket, in bytes: what Linux arrives at for a plain receiver on loopback in the first 20 MB that is
/// not slowed down, or less.
const RECEIVE_BUFFER: u32 = 2 << 20;

/// The congestion control there; every kernel has it.
const CONGESTION_CONTROL: &str = "reno";

/// Where everything is measured: a network namespace whose receive buffers are of one size, and whose congestion control has no
/// pace.
///
/// Linux enlarges a window when more than one window was read in one round-trip time. Under callgrind a program is slowed down some
/// fifty times, and the round-trip time of the loopback is not: whether two reads fall into one then depends on how fast the
/// program's code is translated when it runs for the first time, and the window is 95 kB or ten times as much for the rest of the
/// transfer, for each program in another share of its runs. How often a receiver is woken, which is most of its cost, follows from
/// it. With one size for all, a program is counted as it is.
///
/// BBR, the default of some hosts, paces a flow by what it has measured of a path, and on loopback that is the programs. Whoever spends
/// less on a write then finds the buffer full more often and waits more: a sender of 1 GB objects took 1,600 instructions per megabyte
/// with Reno, and between 1,600 and 3,600 with BBR; what is more was for waiting.
struct Place(Option<Netns>);

impl Place {
    fn new() -> Self {
        let made = || -> std::result::Result<Netns, neater_emulator::LiveError> {
            let namespace = Netns::new()?;
            namespace.ip("link set lo up")?;
            namespace.sysctl("net.ipv4.tcp_rmem", &format!("4096 {RECEIVE_BUFFER} {RECEIVE_BUFFER}"))?;
            namespace.sysctl("net.ipv4.tcp_congestion_control", CONGESTION_CONTROL)?;
            Ok(namespace)
        };
        Self(made().ok().filter(|_| process::need("nsenter", "util-linux").is_ok()))
    }

    /// `command` in there.
    fn enter(&self, command: Command) -> Command {
        match &self.0 {
            // The descriptor is found through this process, because it is closed in the child.
            Some(namespace) => {
                let at = format!("--net=/proc/{}/fd/{}", std::process::id(), namespace.raw());
                wrap(&command, "nsenter", &[&at])
            }
            None => command,
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Send,
    Recv,
}

impl Side {
    const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Recv => "recv",
        }
    }
}

/// What is transferred.
#[derive(Clone, Copy)]
struct Load {
    object: u64,
    name: &'static str,
    flows: u64,
    side: Side,
}

impl Load {
    fn variant(&self) -> String {
        format!("{}-{}-x{}", self.side.name(), self.name, self.flows)
    }

    /// Whole objects on every flow, at least `least` bytes in all.
    fn bytes(&self, least: u64) -> u64 {
        let round = self.object * self.flows;
        least.div_ceil(round) * round
    }

    /// Transfers `bytes`; the side of `program` runs under the counter, if there is one, the other is plain epoll. Returns how the
    /// measured side and the receiver ended. Both share a processor and a place, which makes what is measured repeatable.
    fn run(
        &self,
        lab: &Lab,
        program: Program,
        bytes: u64,
        (counter, place): (Option<Counter>, &Place),
    ) -> Result<(Exit, Exit)> {
        let prepare = |command: Command, side: Side| -> Result<Command> {
            let command = match counter {
                Some(counter) if side == self.side => counter.wrap(&command, &lab.scratch)?,
                _ => command,
            };
            // Timed or counted, the receiver does not displace its sender when it wakes up: how often it does that, which is
            // chance, spread the control of small writes over a fifth.
            Ok(place.enter(process::on_one_processor(&command, side == Side::Recv)?))
        };
        let (sender, receiver) = match self.side {
            Side::Send => (program, Program::Epoll),
            Side::Recv => (Program::Epoll, program),
        };
        let mut recv = lab.programs.command(receiver, "recv")?;
        recv.args(["--addr", "[::1]:0", "--flows", &self.flows.to_string()]);
        let recv = Server::start(&mut prepare(recv, Side::Recv)?)?;
        let mut send = lab.programs.connecting(sender, "send", recv.addr)?;
        send.args(["--flows", &self.flows.to_string(), "--bytes", &bytes.to_string()]);
        send.args(["--object", &self.object.to_string()]);
        let sent = process::run(&mut prepare(send, Side::Send)?, LIMIT)?;
        let received = recv.child.wait(LIMIT)?;
        if received.line["bytes"] != bytes {
            return failed(format!("{bytes} bytes were sent: {}", received.line));
        }
        Ok(if self.side == Side::Send { (sent, received) } else { (received.clone(), received) })
    }

    /// The slopes between two amounts, per megabyte.
    fn per_mb(&self, lab: &Lab, out: &mut Outcome, program: Program, by: (Counter, &Place)) -> Result<Vec<f64>> {
        let counter = by.0;
        let small = self.bytes(if lab.quick { AMOUNT } else { FULL_AMOUNT });
        let mut slopes = Vec::new();
        for run in 0..lab.seeds.unwrap_or(self.runs(lab.quick)) {
            let mut points = [(small, 0), (2 * small, 0)];
            for (bytes, count) in &mut points {
                let (exit, _) = self.run(lab, program, *bytes, (Some(counter), by.1))?;
                *count = counter.read(&lab.scratch, &exit)?;
                let variant = format!("{} {bytes} bytes", self.variant());
                out.sample(&format!("{counter:?}"), program.name(), &variant, run, *count as f64);
            }
            slopes.push(stats::slope(points[0], points[1]) * MB as f64);
        }
        Ok(slopes)
    }

    /// How often each program finds its buffer full, or empty, is not the same each time.
    const fn runs(&self, quick: bool) -> usize {
        match quick {
            true => 3,
            // Gigabytes are many calls already, and take their time.
            false if self.object >= 1000 * MB => 3,
            false => 9,
        }
    }
}

/// What is measured: everything, or three points of it.
fn loads(quick: bool) -> Vec<Load> {
    let mut loads = Vec::new();
    for (object, name) in OBJECTS {
        for flows in [1, 8] {
            for side in [Side::Send, Side::Recv] {
                let chosen = flows == 1 && (name == "10MB" || (name == "1kB" && side == Side::Send));
                if chosen || !quick {
                    loads.push(Load { object, name, flows, side });
                }
            }
        }
    }
    loads
}

pub(super) fn run(lab: &Lab) -> Result<Outcome> {
    let mut out = Outcome::default();
    let loads: Vec<Load> = loads(lab.quick).into_iter().filter(|load| lab.is_wanted(&load.variant())).collect();
    if loads.is_empty() && !lab.is_wanted(SMALL_WRITES) {
        return failed(format!("A8 has no point with {} in its name", lab.only.as_deref().unwrap_or_default()));
    }
    let place = Place::new();
    if place.0.is_none() {
        out.remarks.push(
            "Measured with receive buffers that Linux sizes by the speed of reading, and with this host's congestion control, which \
             may pace a sender, because making a network namespace is not allowed here (run it as root): the figures say more of \
             that than of the programs."
                .into(),
        );
    }
    for load in &loads {
        counts(lab, &mut out, *load, &place)?;
    }
    for (name, title, unit) in [
        ("syscalls_per_mb", "System calls per megabyte", "calls"),
        ("instruction_ratio", "User-space instructions per megabyte over libuv's", "ratio"),
    ] {
        out.panel(name, title, unit, |f| (f.variant.clone(), program_of(f)));
    }
    for load in loads {
        // One point is enough for a quick look, and the sender's calls are the same for all large objects.
        if !lab.quick || load.name == "10MB" {
            cpu(lab, &mut out, load, &place)?;
        }
    }
    if lab.is_wanted(SMALL_WRITES) {
        small_writes(lab, &mut out, &place)?;
    }
    Ok(out)
}

fn program_of(f: &Figure) -> String {
    f.extra.get("program").and_then(|p| p.as_str()).unwrap_or_default().to_owned()
}

/// System calls and instructions of one load, for every program.
fn counts(lab: &Lab, out: &mut Outcome, load: Load, place: &Place) -> Result<()> {
    (lab.progress)(&format!("system calls and instructions per megabyte, {}", load.variant()));
    let calls = for_each(&FLOW_PROGRAMS_AND_NEATS, |p| load.per_mb(lab, out, p, (Counter::SystemCalls, place)))?;
    let instructions =
        for_each(&FLOW_PROGRAMS_AND_NEATS, |p| load.per_mb(lab, out, p, (Counter::Instructions, place)))?;
    let figure = |name: &str, unit, p: Program| {
        Figure::new("A8", name, format!("{}-{}", p.name(), load.variant()), unit)
            .with("program", p.name())
            .with("side", load.side.name())
            .with("flows", load.flows)
            .with("object", load.object)
    };
    let control = Control::of(&calls)?;
    for (p, slopes) in &calls {
        let f = figure("syscalls_per_mb", "calls", *p);
        let f = match slopes {
            Ok(v) => f.value(stats::median(v), v.len()).with("spread", stats::spread(v)).void_if(control.void),
            Err(why) => f.missing(why),
        };
        out.figures.push(if p.is_ours() { f.judge(Bound::AtMost(control.median * EQUAL)) } else { f });
    }
    let control = Control::of(&instructions)?;
    for (p, slopes) in &instructions {
        let f = figure("instruction_ratio", "1", *p);
        let f = match slopes {
            Ok(v) => f
                .value(stats::median(v) / control.median, v.len())
                .with("instructions_per_mb", stats::median(v))
                .with("spread", stats::spread(v))
                .void_if(control.void),
            Err(why) => f.missing(why),
        };
        out.figures.push(if p.is_ours() { f.judge(Bound::AtMost(EQUAL)) } else { f });
    }
    let of = |p| instructions.get(&p).and_then(|got| got.as_ref().ok());
    let f = figure("instruction_ratio_vs_rust", "1", Program::Libneat);
    out.figures.push(match (of(Program::Libneat), of(Program::Neater)) {
        (Some(c), Some(rust)) => f
            .value(stats::median(c) / stats::median(rust), c.len().min(rust.len()))
            .void_if(control.void)
            .judge(Bound::AtMost(OVER_RUST)),
        _ => f.missing("libneat, or neater in Rust, was not counted"),
    });
    Ok(())
}

/// What libuv's runs say of the others'.
struct Control {
    median: f64,
    /// They differ among themselves by more than what is to be told apart.
    void: bool,
}

impl Control {
    fn of(slopes: &BTreeMap<Program, std::result::Result<Vec<f64>, String>>) -> Result<Self> {
        match slopes.get(&Program::Libuv) {
            Some(Ok(v)) => Ok(Self { median: stats::median(v), void: stats::spread(v) > EQUAL - 1.0 }),
            Some(Err(why)) => failed(why.clone()),
            None => failed("libuv was not measured"),
        }
    }
}

/// A sender and a receiver that wait for the word, the one of interest among them. Both are on one processor.
fn pair(lab: &Lab, load: Load, program: Program, bytes: u64, place: &Place) -> Result<Pair> {
    let (sender, receiver, measured) = match load.side {
        Side::Send => (program, Program::Epoll, turns::Side::Client),
        Side::Recv => (Program::Epoll, program, turns::Side::Server),
    };
    let mut recv = lab.programs.command(receiver, "recv")?;
    recv.args(["--addr", "[::1]:0", "--mark", "--flows", &load.flows.to_string()]);
    let server = Server::start(&mut place.enter(process::together(&recv)?))?;
    let mut send = lab.programs.connecting(sender, "send", server.addr)?;
    send.args(["--mark", "--flows", &load.flows.to_string(), "--bytes", &bytes.to_string()]);
    send.args(["--object", &load.object.to_string()]);
    let mut client = Child::start(&mut place.enter(process::together(&send)?))?;
    client.line(LIMIT)?;
    Ok(Pair { client, server, measured })
}

/// CPU time of one load over libuv's. The programs take turns, as in A2.
fn cpu(lab: &Lab, out: &mut Outcome, load: Load, place: &Place) -> Result<()> {
    let variant = load.variant();
    let pairs = lab.pairs();
    let amount = if lab.quick { CPU_AMOUNT.1 } else { CPU_AMOUNT.0 };
    let bytes = if load.object < 10_000 { amount / 4 } else { amount } / load.flows * load.flows;
    (lab.progress)(&format!("CPU time, {variant}: {pairs} pairs of {} MB", bytes / MB));
    let mut rng = lab.rng(8);
    let start = |p| pair(lab, load, p, bytes, place);
    let all = |exit: Exit| {
        if exit.line["bytes"] == bytes { Ok(exit) } else { failed(format!("{bytes} bytes were sent: {}", exit.line)) }
    };
    let got = steadied(lab, pairs, Program::Libuv, &mut |pairs| {
        in_turns(Program::Libuv, &OTHERS, pairs, &mut rng, LIMIT, &start, &all)
    })?;
    out.samples_of("cpu_seconds", &variant, &got);
    let sender = load.side == Side::Send;
    let published = match (load.name, load.flows) {
        ("10MB", 1) => Some(if sender { "+41 %" } else { "+33 %" }),
        ("10MB", 8) => Some(if sender { "+42 %" } else { "+35 %" }),
        _ => None,
    };
    let ratios = Ratios {
        id: "A8",
        name: "cpu_ratio",
        variant: &variant,
        unit: "1",
        reference: Program::Libuv,
        programs: &OTHERS,
        statistic: ratio_of_medians,
        control_max: CONTROL_MAX,
        needs: PAIRS.0,
        // CPU time of transfers is reported, not judged.
        judge: &|f| if let Some(p) = published { f.published(p) } else { f },
    };
    let figures = ratios.figures(&got, &mut rng);
    let rows = figures.iter().map(super::row_by_program).collect();
    out.figures.extend(figures);
    out.bars(format!("CPU time over libuv's, {variant}"), "ratio", rows);
    Ok(())
}

/// 200 MB in writes of 1 kB, by the clock of the plain receiver.
fn small_writes(lab: &Lab, out: &mut Outcome, place: &Place) -> Result<()> {
    let load = Load { object: 1000, name: "1kB", flows: 1, side: Side::Send };
    let pairs = if lab.quick { 5 } else { lab.pairs() };
    (lab.progress)(&format!("throughput of 200 MB in 1 kB writes, {pairs} pairs"));
    let mut rng = lab.rng(88);
    let got = steadied(lab, pairs, Program::Libuv, &mut |pairs| {
        interleave(Program::Libuv, &OTHERS, pairs, &mut rng, |p| {
            let (_, received) = load.run(lab, p, 200 * MB, (None, place))?;
            let ns = received.line["ns"].as_f64().filter(|ns| *ns > 0.0);
            ns.map(|ns| 200e6 / ns * 1e9)
                .ok_or_else(|| MeasureError::Failed("the receiver reported no time".to_owned()))
        })
    })?;
    out.samples_of("bytes_per_second", SMALL_WRITES, &got);
    let ratios = Ratios {
        id: "A8",
        name: "throughput_ratio",
        variant: SMALL_WRITES,
        unit: "1",
        reference: Program::Libuv,
        programs: &OTHERS,
        statistic: ratio_of_medians,
        control_max: CONTROL_MAX,
        needs: PAIRS.0,
        judge: &|f| f.judge(Bound::AtLeast(0.95)).published("0.23"),
    };
    let figures = ratios.figures(&got, &mut rng);
    let rows: Vec<Row> = figures.iter().map(super::row_by_program).collect();
    out.figures.extend(figures);
    out.bars("Throughput of 1 kB writes over libuv's", "ratio", rows);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_made_of_whole_objects_on_every_flow() {
        let load = |object, flows| Load { object, name: "x", flows, side: Side::Send };
        assert_eq!(load(1000, 1).bytes(AMOUNT), AMOUNT);
        assert_eq!(load(10 * MB, 8).bytes(AMOUNT), 80 * MB);
        assert_eq!(load(1000 * MB, 8).bytes(AMOUNT), 8000 * MB);
        for (object, _) in OBJECTS {
            assert_eq!(load(object, 8).bytes(AMOUNT) % (8 * object), 0);
        }
    }

    #[test]
    fn restless_runs_of_libuv_make_a_count_void() {
        let control = |v: &[f64]| Control::of(&[(Program::Libuv, Ok(v.to_vec()))].into()).expect("there");
        assert!(!control(&[100.0]).void && !control(&[100.0, 101.0, 250.0]).void);
        assert!(control(&[100.0, 110.0, 250.0]).void);
        assert!(Control::of(&[(Program::Libuv, Err("broke".to_owned()))].into()).is_err());
        assert!(Control::of(&BTreeMap::new()).is_err());
    }

    #[test]
    fn a_quick_run_has_a_few_points_and_a_full_one_all() {
        assert_eq!(loads(true).len(), 3);
        assert_eq!(loads(false).len(), 16);
    }
}
