//! S3: bulk goodput of SCTP over UDP beside that of the kernel's TCP, over emulated paths.
//!
//! A pair of runs has the same path and the same seed, so that the same packets are lost: the first, the hundredth, whichever
//! protocol they are of.

use super::{Lab, Outcome};
use crate::measure::stats::{Estimate, bootstrap};
use crate::measure::{MeasureError, Result, soundest};
use crate::plot::{Axis, Curve, Drawing, Lines, Panel};
use crate::programs::Program;
use crate::report::{Bound, Figure};
use neater_base::Rng;
use neater_emulator::{self as live, Cmd, Options, Output, Plan};
use neater_link::{LinkConfig, QueueLimit};
use std::process::Command;
use std::time::Duration;

/// Mbit/s, round-trip times in ms, loss in percent.
const RATES: [f64; 2] = [100.0, 500.0];
const RTTS: [f64; 6] = [0.0, 10.0, 20.0, 50.0, 100.0, 200.0];
const LOSSES: [f64; 2] = [0.0, 0.1];
/// What the quick form has: rate, round-trip time, loss.
const QUICK: [(f64, f64, f64); 3] = [(100.0, 20.0, 0.0), (500.0, 50.0, 0.0), (100.0, 50.0, 0.1)];
/// Where it is shown what an ordinary user's socket buffers do.
const ORDINARY: [(f64, f64, f64); 2] = [(100.0, 50.0, 0.0), (500.0, 100.0, 0.0)];
/// Pairs of runs: full and quick.
const PAIRS: (usize, usize) = (10, 2);
/// How long a program sends, in seconds: without loss, with, and in the quick form. With loss it takes many round trips until it counts
/// no more whether the first loss came early.
const SECONDS: (f64, f64, f64) = (5.0, 10.0, 1.5);
/// More bytes than can be sent in that time.
const BYTES: &str = "1000000000000";
/// The queue of the middle link has room for so many packets at least.
const QUEUE_MIN: usize = 64;
/// TCP's buffers: least, first, most.
const BUFFERS: [(&str, &str); 2] =
    [("net.ipv4.tcp_rmem", "4096 131072 67108864"), ("net.ipv4.tcp_wmem", "4096 65536 67108864")];
/// The port of the receivers.
const PORT: u16 = 9899;
/// Bytes of a message.
const MESSAGE: &str = "16000";
/// Setting up, tearing down, and a transfer that is slower than it should be.
const PATIENCE: Duration = Duration::from_secs(60);

/// A path.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Path {
    rate: f64,
    rtt: f64,
    loss: f64,
}

impl Path {
    fn name(&self) -> String {
        format!("{}Mbit-{}ms-{}%", self.rate, self.rtt, self.loss)
    }

    /// The middle link in one direction.
    fn link(&self) -> LinkConfig {
        let bdp = self.rate * 1e6 * self.rtt / 1e3 / 8.0 / 1500.0;
        let link = LinkConfig::rate((self.rate * 1e6) as u64, Duration::from_secs_f64(self.rtt / 2e3))
            .with_queue(QueueLimit::Packets((bdp.round() as usize).max(QUEUE_MIN)));
        if self.loss > 0.0 { link.with_loss(self.loss / 100.0) } else { link }
    }

    /// How long a program sends. A time and no volume, as a user measures: a volume is soon over where the first loss comes late, in seven
    /// round trips sometimes, and then one round trip more to set up counts more than how fast anybody is.
    fn seconds(&self, quick: bool) -> f64 {
        match self.loss > 0.0 {
            _ if quick => SECONDS.2,
            false => SECONDS.0,
            true => SECONDS.1,
        }
    }
}

/// Who transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stack {
    Tcp,
    Sctp,
    /// With the socket buffers that every user has.
    SctpOrdinary,
}

impl Stack {
    const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "kernel TCP",
            Self::Sctp => "neater-sctp",
            Self::SctpOrdinary => "neater-sctp, ordinary socket buffers",
        }
    }
}

/// A command of the programs as the lab takes it.
fn cmd(command: &Command) -> Cmd {
    Cmd::new(command.get_program()).args(command.get_args())
}

/// The goodput of one transfer, in Mbit/s, by the receiver's clock from the first it hears of its peer to the last byte. `Err`
/// within: what disturbed it.
fn transfer(lab: &Lab, path: &Path, stack: Stack, seed: u64) -> Result<core::result::Result<f64, String>> {
    let mut plan = Plan::dumbbell(1, path.link(), path.link(), seed);
    plan.sysctl_everywhere("net.ipv4.tcp_congestion_control", "cubic");
    for (key, value) in BUFFERS {
        plan.sysctl_everywhere(key, value);
    }
    let net = live::Lab::up(&plan, &Options::default())?;
    let address = net.address("server1", false)?;
    let program = if stack == Stack::Tcp { Program::Epoll } else { Program::Sctp };
    let side = |mode: &str| -> Result<Cmd> {
        let mut command = lab.programs.command(program, mode)?;
        command.args(["--addr", &format!("{address}:{PORT}"), "--bytes", BYTES]);
        command.args(["--seconds", &path.seconds(lab.quick).to_string()]);
        match stack {
            Stack::Tcp => {}
            Stack::Sctp => drop(command.args(["--object", MESSAGE])),
            Stack::SctpOrdinary => drop(command.args(["--object", MESSAGE, "--socket-buffer", "0"])),
        }
        Ok(cmd(&command).limit(PATIENCE))
    };
    let mut receiver = net.spawn("server1", side("recv")?)?;
    receiver.wait_for_output("listening", Duration::from_secs(10))?;
    let sender = net.run("client1", side("send")?)?.success()?;
    let output = receiver.wait()?.success()?;
    if let Some(why) = net.disturbance(f64::INFINITY)? {
        return Ok(Err(why));
    }
    let said = |output: &Output| -> serde_json::Value {
        let text = output.text();
        text.lines().last().and_then(|l| serde_json::from_str(l).ok()).unwrap_or_default()
    };
    let (sent, got) = (said(&sender), said(&output));
    match (sent["bytes"].as_u64(), got["bytes"].as_u64(), got["ns"].as_f64()) {
        (Some(sent), Some(got), Some(ns)) if got == sent && ns > 0.0 => Ok(Ok(got as f64 * 8e3 / ns)),
        _ => Err(MeasureError::Failed(format!("sent: {sent}; received: {got}"))),
    }
}

/// The geometric mean of the ratios of pairs.
fn mean_ratio(a: &[f64], b: &[f64]) -> f64 {
    let logs: f64 = a.iter().zip(b).map(|(a, b)| (a / b).ln()).sum();
    (logs / a.len() as f64).exp()
}

/// Goodputs of one path: ours and TCP's, pair by pair.
#[derive(Debug, Default)]
struct Pairs {
    ours: Vec<f64>,
    tcp: Vec<f64>,
}

impl Pairs {
    fn estimate(&self, rng: &mut Rng) -> Option<Estimate> {
        bootstrap(&self.ours, &self.tcp, rng, mean_ratio)
    }
}

/// Pairs of runs over one path.
fn pairs(lab: &Lab, out: &mut Outcome, path: &Path, stack: Stack, count: usize, rng: &mut Rng) -> Result<Pairs> {
    let mut got = Pairs::default();
    for run in 0..count {
        let seed = lab.seed.wrapping_mul(7919).wrapping_add(run as u64);
        let mut order = [Stack::Tcp, stack];
        rng.shuffle(&mut order);
        for who in order {
            let goodput = soundest(|_| 0.0, 0.0, || transfer(lab, path, who, seed))?;
            out.sample("goodput_mbit", who.name(), &path.name(), run, goodput);
            if who == Stack::Tcp { got.tcp.push(goodput) } else { got.ours.push(goodput) }
        }
    }
    Ok(got)
}

pub(super) fn run(lab: &Lab) -> Result<Outcome> {
    let mut out = Outcome::default();
    let mut rng = lab.rng(53);
    let count = lab.seeds.unwrap_or(if lab.quick { PAIRS.1 } else { PAIRS.0 });
    out.runs = Some(count);
    let all: Vec<(f64, f64, f64)> = if lab.quick {
        QUICK.to_vec()
    } else {
        RATES.iter().flat_map(|r| LOSSES.iter().flat_map(move |l| RTTS.iter().map(move |t| (*r, *t, *l)))).collect()
    };
    let mut every = Pairs::default();
    let mut measured = Vec::new();
    for (rate, rtt, loss) in all {
        let path = Path { rate, rtt, loss };
        if !lab.is_wanted(&path.name()) {
            continue;
        }
        (lab.progress)(&format!("{}, {count} pairs", path.name()));
        let f = Figure::new("S3", "goodput_ratio_vs_tcp", path.name(), "1");
        let f = match pairs(lab, &mut out, &path, Stack::Sctp, count, &mut rng) {
            Ok(got) => {
                let medians = [&got.ours, &got.tcp].map(|v| crate::measure::stats::median(v));
                measured.push((path, medians));
                every.ours.push(mean_ratio(&got.ours, &got.tcp));
                every.tcp.push(1.0);
                match got.estimate(&mut rng) {
                    Some(e) => f.estimate(e, count).with("median", medians[0]).with("median_reference", medians[1]),
                    None => f.missing("no pairs"),
                }
            }
            Err(e @ MeasureError::MissingTool { .. }) => return Err(e),
            Err(e) => f.missing(e.to_string()),
        };
        // Two pairs have no interval that says anything.
        out.figures.push(f.needs(PAIRS.0).judge(Bound::LowAtLeast(0.90)));
    }
    if !every.ours.is_empty() {
        let points = every.ours.len();
        let f = Figure::new("S3", "goodput_ratio_vs_tcp", "geomean", "1").with("points", points as u64);
        let f = f.value(mean_ratio(&every.ours, &every.tcp), count).needs(PAIRS.0);
        let whole = !lab.quick && lab.only.is_none();
        out.figures.push(if whole { f.judge(Bound::AtLeast(1.0)) } else { f });
    }
    if !lab.quick {
        ordinary(lab, &mut out, count, &mut rng)?;
    }
    draw(&mut out, &measured);
    Ok(out)
}

/// The same with the socket buffers that every user has.
fn ordinary(lab: &Lab, out: &mut Outcome, count: usize, rng: &mut Rng) -> Result<()> {
    for (rate, rtt, loss) in ORDINARY {
        let path = Path { rate, rtt, loss };
        let variant = format!("{}-ordinary-buffers", path.name());
        if !lab.is_wanted(&variant) {
            continue;
        }
        (lab.progress)(&format!("{variant}, {count} pairs"));
        let got = pairs(lab, out, &path, Stack::SctpOrdinary, count, rng)?;
        let f = Figure::new("S3", "goodput_ratio_vs_tcp", variant, "1");
        out.figures.push(match got.estimate(rng) {
            Some(e) => f.estimate(e, count),
            None => f.missing("no pairs"),
        });
    }
    Ok(())
}

/// Goodput over the round-trip time, a panel for each rate and loss.
fn draw(out: &mut Outcome, measured: &[(Path, [f64; 2])]) {
    let mut panels = Vec::new();
    for rate in RATES {
        for loss in LOSSES {
            let here: Vec<_> = measured.iter().filter(|(p, _)| (p.rate, p.loss) == (rate, loss)).collect();
            if here.is_empty() {
                continue;
            }
            let curve = |name: &str, which: usize| Curve::plain(name, here.iter().map(|(p, m)| (p.rtt, m[which])));
            panels.push(Panel::Lines(Lines {
                title: format!("{rate} Mbit/s, loss {loss} %"),
                x: Axis::linear("round-trip time", "ms"),
                y: Axis::linear("goodput", "Mbit/s"),
                curves: vec![curve(Stack::Sctp.name(), 0), curve(Stack::Tcp.name(), 1)],
            }));
        }
    }
    if !panels.is_empty() {
        let caption = "Medians; one association over UDP, one connection of CUBIC with buffers of 64 MB.";
        out.drawings.push(Drawing::new("goodput", "S3: goodput over the round-trip time", caption, panels));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_a_name_a_queue_and_a_time() {
        let clean = Path { rate: 100.0, rtt: 50.0, loss: 0.0 };
        assert_eq!(clean.name(), "100Mbit-50ms-0%");
        assert!(matches!(clean.link().queue, QueueLimit::Packets(417)));
        assert!(matches!(Path { rtt: 0.0, ..clean }.link().queue, QueueLimit::Packets(QUEUE_MIN)));
        let lossy = Path { rate: 500.0, rtt: 200.0, loss: 0.1 };
        assert!(clean.seconds(false) < lossy.seconds(false), "where every loss counts, more of them are waited for");
        assert!(lossy.seconds(true) < clean.seconds(false));
    }

    #[test]
    fn ratios_are_averaged_as_ratios() {
        assert!((mean_ratio(&[2.0, 1.0], &[1.0, 2.0]) - 1.0).abs() < 1e-12);
        let pairs = Pairs { ours: vec![3.0; 4], tcp: vec![2.0; 4] };
        let e = pairs.estimate(&mut Rng::from_number(1)).expect("pairs");
        assert!((e.low - 1.5).abs() < 1e-9 && (e.high - 1.5).abs() < 1e-9);
    }
}
