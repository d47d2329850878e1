//! S1: bulk over one SCTP association on loopback, beside usrsctp and quinn.
//!
//! All peers run in one network namespace whose loopback has an MTU of 1,500 bytes, sender and receiver each on a processor of
//! its own.

use super::{LIMIT, Lab, Outcome, counts};
use crate::measure::stats::{median, ratio_of_medians, slope};
use crate::measure::{Counter, Exit, MeasureError, Result, Server, copies, failed, process, wrap};
use crate::programs::Program;
use crate::report::{Bound, Figure};
use neater_base::Rng;
use neater_emulator::netns::Netns;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Bytes of a message, and what the variant is called.
const MESSAGES: [(u64, &str); 3] = [(1_000, "1kB"), (16_000, "16kB"), (64_000, "64kB")];
/// The MTU of the loopback interface, in bytes.
const MTU: u64 = 1500;
/// Transfers of a point: full and quick.
const RUNS: (usize, usize) = (10, 2);
/// Volumes of two transfers whose difference is counted under valgrind.
const COUNTED: (u64, u64) = (8_000_000, 32_000_000);
/// A transfer that is counted is made again if a socket's buffer had no room for part of it, which a side under valgrind is too slow
/// for: what repairs a loss is no steady state. So often at most.
const TRIES: usize = 6;
/// Until a capture has begun.
const START: Duration = Duration::from_millis(500);
/// With `--only` this: what valgrind counts alone, which does not depend on how busy a machine is.
const COUNTS: &str = "counts";
/// Packets of a capture, at most.
const CAPTURED: &str = "2000";

/// What is measured: a program, and with what options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Subject {
    program: Program,
    /// Without segmentation offload.
    plain: bool,
}

const USRSCTP: Subject = Subject { program: Program::Usrsctp, plain: false };
const QUINN: Subject = Subject { program: Program::Quinn, plain: false };
const OURS: Subject = Subject { program: Program::Sctp, plain: false };
const PLAIN: Subject = Subject { program: Program::Sctp, plain: true };

impl Subject {
    fn name(self) -> String {
        format!("{}{}", self.program.name(), if self.plain { " without GSO" } else { "" })
    }

    /// Bytes of one transfer: about a second each.
    const fn bytes(self, quick: bool) -> u64 {
        let unit = if quick { 1 } else { 4 };
        unit * match self.program {
            Program::Usrsctp => 64_000_000,
            _ => 512_000_000,
        }
    }
}

/// What one transfer gave.
#[derive(Clone, Copy, Debug)]
struct Run {
    bytes_per_second: f64,
    /// CPU seconds per GB of sender and receiver.
    cpu: [f64; 2],
    /// Allocations per datagram, once it is under way.
    allocations: [Option<f64>; 2],
}

/// The namespace.
struct Bench<'a> {
    lab: &'a Lab,
    netns: Netns,
}

impl<'a> Bench<'a> {
    fn new(lab: &'a Lab) -> Result<Self> {
        for (tool, package) in [("nsenter", "util-linux"), ("taskset", "util-linux"), ("ip", "iproute2")] {
            process::need(tool, package)?;
        }
        let netns = Netns::new()?;
        netns.ip(&format!("link set lo mtu {MTU} up"))?;
        Ok(Self { lab, netns })
    }

    /// A command in the namespace, as the same process; `cpu`: on this processor.
    fn inside(&self, command: &Command, cpu: Option<usize>) -> Command {
        let netns = format!("--net=/proc/{}/fd/{}", std::process::id(), self.netns.raw());
        let cpu = cpu.map(|cpu| cpu.to_string());
        let mut words = vec![netns.as_str(), "--"];
        if let Some(cpu) = &cpu {
            words.extend(["taskset", "-c", cpu]);
        }
        wrap(command, "nsenter", &words)
    }

    fn command(&self, subject: Subject, mode: &str, addr: &str, bytes: u64, message: u64) -> Result<Command> {
        let mut command = self.lab.programs.command(subject.program, mode)?;
        command.args(["--addr", addr, "--bytes", &bytes.to_string()]);
        command.args(["--object", &message.to_string()]);
        if subject.plain {
            command.arg("--no-gso");
        }
        if subject.program == Program::Quinn {
            command.args(["--security", "quic"]);
            self.lab.programs.add_credentials(&mut command);
        }
        Ok(command)
    }

    /// One transfer; what `change` makes of the two commands is run.
    fn transfer(
        &self,
        subject: Subject,
        bytes: u64,
        message: u64,
        change: &dyn Fn(Command, bool) -> Result<Command>,
    ) -> Result<[Exit; 2]> {
        let receiver = change(self.command(subject, "recv", "127.0.0.1:0", bytes, message)?, false)?;
        let receiver = Server::start(&mut self.inside(&receiver, Some(1)))?;
        let sender = self.command(subject, "send", &receiver.addr.to_string(), bytes, message)?;
        let sender = change(sender, true)?;
        let sent = process::run(&mut self.inside(&sender, Some(0)), LIMIT)?;
        let received = receiver.child.wait(LIMIT)?;
        if received.line["bytes"].as_u64() == Some(bytes) {
            Ok([sent, received])
        } else {
            failed(format!("{bytes} bytes were sent: {}", received.line))
        }
    }

    fn run(&self, subject: Subject, message: u64) -> Result<Run> {
        let bytes = subject.bytes(self.lab.quick);
        let exits = self.transfer(subject, bytes, message, &|c, _| Ok(c))?;
        let Some(ns) = exits[1].line["ns"].as_f64().filter(|ns| *ns > 0.0) else {
            return failed(format!("no time: {}", exits[1].line));
        };
        let per_gb = |e: &Exit| e.cpu.as_secs_f64() * 1e9 / bytes as f64;
        let allocations = |e: &Exit| {
            let count = |key: &str| e.line[key].as_f64();
            Some(count("steady_allocations")? / count("steady_datagrams")?.max(1.0))
        };
        Ok(Run {
            bytes_per_second: bytes as f64 / ns * 1e9,
            cpu: [per_gb(&exits[0]), per_gb(&exits[1])],
            allocations: [allocations(&exits[0]), allocations(&exits[1])],
        })
    }

    /// The largest packet on the wire, in bytes of IP, of a transfer whose segments the kernel cuts before they are captured.
    fn largest_packet(&self, subject: Subject) -> Result<u64> {
        for (tool, package) in [("tcpdump", "tcpdump"), ("ethtool", "ethtool")] {
            process::need(tool, package)?;
        }
        let offload = |on: &str| {
            let mut ethtool = Command::new("ethtool");
            ethtool.args(["-K", "lo", "tx-udp-segmentation", on]);
            process::run(&mut self.inside(&ethtool, None), LIMIT)
        };
        offload("off")?;
        let mut dump = Command::new("tcpdump");
        dump.args(["-i", "lo", "-n", "-q", "-t", "-c", CAPTURED, "--immediate-mode", "udp"]);
        let file = self.lab.scratch.join("s1-capture.txt");
        let mut dump = self.inside(&dump, None);
        let mut dump = dump.stdin(Stdio::null()).stdout(std::fs::File::create(&file)?).stderr(Stdio::null()).spawn()?;
        std::thread::sleep(START);
        let result = self.transfer(subject, 8_000_000, 16_000, &|c, _| Ok(c));
        // It may have missed some: it is not waited for, but told to write what it has.
        let told = process::run(Command::new("kill").args(["-INT", &dump.id().to_string()]), LIMIT);
        let ended = dump.wait();
        offload("on")?;
        result?;
        // Who has all its packets has ended by itself.
        drop(told);
        ended?;
        let text = std::fs::read_to_string(&file)?;
        largest(&text).ok_or_else(|| MeasureError::Failed("the capture has no packets".to_owned()))
    }

    /// A transfer of which every datagram has arrived.
    fn lossless(
        &self,
        bytes: u64,
        message: u64,
        change: &dyn Fn(Command, bool) -> Result<Command>,
    ) -> Result<[Exit; 2]> {
        for _ in 0..TRIES {
            let exits = self.transfer(OURS, bytes, message, change)?;
            if exits[0].line["sent"] == exits[1].line["received"] {
                return Ok(exits);
            }
        }
        failed(format!("in each of {TRIES} transfers datagrams were lost in a socket's buffer"))
    }

    /// By how much a count of one side grows with each of its datagrams, or for bytes with each byte of payload.
    fn counted(&self, message: u64, side: usize, tool: Tool) -> Result<f64> {
        process::need("valgrind", "valgrind")?;
        let mut points = [(0, 0); 2];
        for (point, bytes) in points.iter_mut().zip([COUNTED.0, COUNTED.1]) {
            let wrapped = |command: Command, sends: bool| {
                if sends == (side == 0) { tool.wrap(&command, &self.lab.scratch) } else { Ok(command) }
            };
            let exits = self.lossless(bytes, message, &wrapped)?;
            let datagrams = exits[side].line[["sent", "received"][side]].as_u64().unwrap_or_default();
            let per = if tool == Tool::Copies { bytes } else { datagrams };
            *point = (per, tool.read(&self.lab.scratch, &exits[side])?);
        }
        Ok(slope(points[0], points[1]))
    }
}

/// What counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    /// Instructions in user space.
    Instructions,
    /// Bytes copied in user space.
    Copies,
}

impl Tool {
    fn wrap(self, command: &Command, scratch: &Path) -> Result<Command> {
        match self {
            Self::Instructions => Counter::Instructions.wrap(command, scratch),
            Self::Copies => Ok(copies::under(command)),
        }
    }

    fn read(self, scratch: &Path, exit: &Exit) -> Result<u64> {
        match self {
            Self::Instructions => Counter::Instructions.read(scratch, exit),
            Self::Copies => copies::read(&exit.stderr),
        }
    }
}

/// The length of the longest packet in tcpdump's lines, with the headers of IPv4 and UDP.
fn largest(text: &str) -> Option<u64> {
    text.lines().filter_map(|l| l.rsplit_once("length ")?.1.trim().parse::<u64>().ok()).max().map(|n| n + 28)
}

/// All transfers of a point by subject; the reference once more as the control.
#[derive(Debug, Default)]
struct Runs {
    of: BTreeMap<Subject, Vec<Run>>,
    control: Vec<Run>,
    missing: BTreeMap<Subject, String>,
}

/// Rounds in which every subject runs once and usrsctp twice, in an order drawn anew.
fn rounds(bench: &Bench<'_>, message: u64, count: usize, rng: &mut Rng) -> Runs {
    let mut runs = Runs::default();
    let mut order = vec![(USRSCTP, false), (USRSCTP, true), (QUINN, false), (OURS, false), (PLAIN, false)];
    for _ in 0..count {
        rng.shuffle(&mut order);
        for (subject, control) in order.clone() {
            match bench.run(subject, message) {
                Ok(run) if control => runs.control.push(run),
                Ok(run) => runs.of.entry(subject).or_default().push(run),
                Err(e) => {
                    runs.missing.insert(subject, e.to_string());
                    runs.of.remove(&subject);
                    order.retain(|(s, _)| *s != subject);
                }
            }
        }
    }
    runs
}

/// One number of a run.
type Pick = fn(&Run) -> f64;

/// One number of all runs.
fn all(runs: &[Run], pick: impl Fn(&Run) -> f64) -> Vec<f64> {
    runs.iter().map(pick).collect()
}

/// A ratio of medians over a reference, or why there is none.
fn ratio(figure: Figure, runs: &Runs, (ours, over): (Subject, Subject), pick: Pick, rng: &mut Rng) -> Figure {
    let of = |s: Subject| runs.of.get(&s).map(|r| all(r, pick)).unwrap_or_default();
    let (a, b) = (of(ours), of(over));
    match ratio_of_medians(&a, &b, rng) {
        Some(e) => figure.estimate(e, a.len()).with("median", median(&a)).with("median_reference", median(&b)),
        None => {
            let why = [ours, over].iter().find_map(|s| runs.missing.get(s)).cloned();
            figure.missing(why.unwrap_or_else(|| "there are no runs".to_owned()))
        }
    }
}

/// The figures of one size of messages.
fn judge(out: &mut Outcome, variant: &str, runs: &Runs, rng: &mut Rng) {
    let speed = |r: &Run| r.bytes_per_second;
    let sides: [(&str, Pick); 2] = [("send", |r| r.cpu[0]), ("recv", |r| r.cpu[1])];
    let new = |name: &str, variant: String| Figure::new("S1", name, variant, "1");
    let f = new("throughput_ratio_vs_usrsctp", variant.into());
    out.figures.push(ratio(f, runs, (OURS, USRSCTP), speed, rng).needs(RUNS.0).judge(Bound::AtLeast(8.0)));
    let f = new("throughput_ratio_vs_quinn", variant.into());
    out.figures.push(ratio(f, runs, (OURS, QUINN), speed, rng).needs(RUNS.0).judge(Bound::AtLeast(1.0)));
    for (side, pick) in sides {
        let f = new("cpu_per_gb_ratio_vs_usrsctp", format!("{variant}-{side}"));
        out.figures.push(ratio(f, runs, (OURS, USRSCTP), pick, rng).needs(RUNS.0).judge(Bound::AtMost(0.125)));
    }
    let f = new("throughput_ratio_vs_usrsctp", format!("{variant}-no-gso"));
    out.figures.push(ratio(f, runs, (PLAIN, USRSCTP), speed, rng));
    for (side, pick) in sides {
        let f = new("cpu_per_gb_ratio_vs_usrsctp", format!("{variant}-{side}-no-gso"));
        out.figures.push(ratio(f, runs, (PLAIN, USRSCTP), pick, rng));
    }
    let control = all(&runs.control, speed);
    let usrsctp = runs.of.get(&USRSCTP).map(|r| all(r, speed)).unwrap_or_default();
    let f = new("throughput_ratio_vs_usrsctp_aa", variant.into());
    out.figures.push(match ratio_of_medians(&control, &usrsctp, rng) {
        Some(e) => f.estimate(e, control.len()),
        None => f.missing("no samples of the control"),
    });
    for (subject, all_runs) in &runs.of {
        let name = subject.name();
        for (run, r) in all_runs.iter().enumerate() {
            out.sample("bytes_per_second", &name, variant, run, r.bytes_per_second);
            out.sample("sender_cpu_seconds_per_gb", &name, variant, run, r.cpu[0]);
            out.sample("receiver_cpu_seconds_per_gb", &name, variant, run, r.cpu[1]);
        }
        let rate = median(&all(all_runs, speed)) / 1e6;
        out.figures
            .push(Figure::new("S1", "throughput", format!("{variant}-{name}"), "MB/s").value(rate, all_runs.len()));
    }
    for (side, name) in ["send", "recv"].into_iter().enumerate() {
        let counts: Vec<f64> = runs.of.get(&OURS).into_iter().flatten().filter_map(|r| r.allocations[side]).collect();
        let f = Figure::new("S1", "allocations_per_datagram", format!("{variant}-{name}"), "allocations");
        let f = if counts.is_empty() { f.missing("no runs") } else { f.value(median(&counts), counts.len()) };
        out.figures.push(f.judge(Bound::AtMost(0.0005)));
    }
}

/// What valgrind counts: instructions per datagram, and copies of each byte.
fn count(bench: &Bench<'_>, out: &mut Outcome, messages: &[(u64, &str)], counts_alone: bool) {
    for (message, variant) in messages {
        for (side, name) in ["send", "recv"].into_iter().enumerate() {
            for (tool, figure, unit, bound) in [
                (Tool::Instructions, "instructions_per_datagram", "instructions", 3000.0),
                (Tool::Copies, "copies_per_byte", "copies", 1.1),
            ] {
                if counts_alone && tool == Tool::Copies {
                    continue;
                }
                (bench.lab.progress)(&format!("{figure}, {name}, {variant}"));
                let f = Figure::new("S1", figure, format!("{variant}-{name}"), unit);
                let f = match bench.counted(*message, side, tool) {
                    Ok(v) => f.value(v, 1),
                    Err(e) => f.missing(e.to_string()),
                };
                // Alone, they are held against what is kept.
                out.figures.push(if counts_alone { f } else { f.judge(Bound::AtMost(bound)) });
            }
        }
    }
}

pub(super) fn run(lab: &Lab) -> Result<Outcome> {
    let bench = Bench::new(lab)?;
    let mut out = Outcome::default();
    let mut rng = lab.rng(51);
    let runs = lab.seeds.unwrap_or(if lab.quick { RUNS.1 } else { RUNS.0 });
    out.runs = Some(runs);
    let counts_alone = lab.only.as_deref() == Some(COUNTS);
    for subject in [USRSCTP, QUINN, OURS].into_iter().filter(|_| !counts_alone) {
        (lab.progress)(&format!("packets of {}", subject.name()));
        let f = Figure::new("S1", "largest_packet_bytes", subject.program.name(), "bytes");
        let f = match bench.largest_packet(subject) {
            Ok(bytes) => f.value(bytes as f64, 1),
            Err(e) => f.missing(e.to_string()),
        };
        out.figures.push(f.judge(Bound::AtMost(MTU as f64)));
    }
    let wanted = |v: &str| counts_alone || lab.is_wanted(v);
    let messages: Vec<(u64, &str)> = MESSAGES.into_iter().filter(|(_, v)| wanted(v)).collect();
    for (message, variant) in messages.iter().filter(|_| !counts_alone) {
        (lab.progress)(&format!("messages of {variant}, {runs} rounds"));
        let got = rounds(&bench, *message, runs, &mut rng);
        judge(&mut out, variant, &got, &mut rng);
    }
    let counted = if lab.quick { &messages[..messages.len().min(1)] } else { &messages[..] };
    count(&bench, &mut out, counted, counts_alone);
    let over = counts::over_kept("S1", &out.figures)?;
    out.figures.extend(over);
    for (name, title, unit) in [
        ("throughput", "Throughput", "MB/s"),
        ("throughput_ratio_vs_usrsctp", "Throughput over that of usrsctp", "ratio"),
        ("cpu_per_gb_ratio_vs_usrsctp", "CPU seconds per GB over those of usrsctp", "ratio"),
        ("instructions_per_datagram", "Instructions per datagram", "instructions"),
    ] {
        out.panel(name, title, unit, |f| (f.variant.clone(), f.variant.clone()));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_packet_is_found_in_a_capture() {
        let text =
            "IP 127.0.0.1.4 > 127.0.0.1.5: UDP, length 1472\nIP 127.0.0.1.5 > 127.0.0.1.4: UDP, length 28\nnothing\n";
        assert_eq!(largest(text), Some(1500));
        assert_eq!(largest(""), None);
    }

    #[test]
    fn a_ratio_names_what_is_missing() {
        let mut runs = Runs::default();
        let mut rng = Rng::from_number(1);
        let figure = || Figure::new("S1", "x", "y", "1");
        let run = Run { bytes_per_second: 8.0, cpu: [1.0, 2.0], allocations: [None; 2] };
        runs.of.insert(OURS, vec![run; 3]);
        runs.missing.insert(USRSCTP, "not installed".to_owned());
        let f = ratio(figure(), &runs, (OURS, USRSCTP), |r| r.bytes_per_second, &mut rng);
        assert_eq!(f.missing.as_deref(), Some("not installed"));
        runs.of.insert(USRSCTP, vec![Run { bytes_per_second: 1.0, ..run }; 3]);
        let f = ratio(figure(), &runs, (OURS, USRSCTP), |r| r.bytes_per_second, &mut rng);
        assert_eq!(f.value, Some(8.0));
    }
}
