//! S2 and A3: what opening SCTP associations costs, and what they hold.

use super::{CONTROL_MAX, LIMIT, Lab, Outcome, PAIRS, Ratios};
use crate::measure::cpu::interleave;
use crate::measure::stats::{median, ratio_of_medians, slope};
use crate::measure::{Child, Exit, Result, Server, failed, process};
use crate::programs::Program;
use crate::report::{Bound, Figure};
use std::process::Command;

/// Associations of the two runs whose difference is what one holds. The tables of an endpoint double when they are full; these
/// numbers are equally far from that.
const HELD: (u64, u64) = (1_200, 4_800);
/// Streams that have carried a message each way, in the two runs whose difference is what one holds.
const STREAMS: (u64, u64) = (128, 1_024);
/// An idle association, and a pair of streams, may hold this much, in bytes.
const ASSOCIATION_MAX: f64 = 4096.0;
const STREAM_MAX: f64 = 64.0;
/// Flows at once, and rounds of a sample of A3.
const SAMPLES: [(u64, u64); 2] = [(1, 200), (256, 1)];
/// Pairs of the quick form: 256 at once took usrsctp 3.5 s where it was tried.
const QUICK_PAIRS: usize = 2;
/// Where the servers listen: usrsctp speaks IPv4 alone with this peer.
const ANY: &str = "127.0.0.1:0";

/// A server of ours that takes associations until its input ends.
fn server(lab: &Lab, wrap: &dyn Fn(&Command) -> Result<Command>) -> Result<Server> {
    let mut command = lab.programs.command(Program::Sctp, "server")?;
    command.args(["--addr", ANY, "--flows", "0", "--limit", "600"]);
    Server::start(&mut wrap(&command)?)
}

fn client(lab: &Lab, program: Program, server: &Server, flows: u64, rounds: u64) -> Result<Command> {
    let mut command = lab.programs.command(program, "client")?;
    command.args(["--addr", &server.addr.to_string(), "--flows", &flows.to_string()]);
    command.args(["--rounds", &rounds.to_string(), "--mark"]);
    Ok(command)
}

/// Runs a client; returns how it ended, and its CPU time from when it was ready.
fn run_client(mut command: Command, flows: u64) -> Result<(Exit, f64)> {
    let mut child = Child::start(&mut command)?;
    child.line(LIMIT)?;
    let before = child.cpu_so_far()?;
    child.say("go")?;
    let exit = child.wait(LIMIT)?;
    if exit.line["done"].as_u64() != Some(flows) {
        return failed(format!("{flows} associations were to be opened: {}", exit.line));
    }
    let cpu = exit.cpu.saturating_sub(before).as_secs_f64();
    Ok((exit, cpu))
}

/// What the server of the memory mode holds.
fn held(lab: &Lab, flows: u64, streams: u64) -> Result<u64> {
    let mut command = lab.programs.command(Program::Sctp, "memory")?;
    command.args(["--flows", &flows.to_string(), "--streams", &streams.to_string()]);
    let exit = process::run(&mut command, LIMIT)?;
    match exit.line["live_bytes"].as_u64() {
        Some(bytes) => Ok(bytes),
        None => failed(format!("no bytes: {}", exit.line)),
    }
}

/// S2: handshakes per second, bytes per association and per stream.
pub(super) fn run(lab: &Lab) -> Result<Outcome> {
    let mut out = Outcome::default();
    let runs = lab.seeds.unwrap_or(if lab.quick { 3 } else { 10 });
    out.runs = Some(runs);
    (lab.progress)("handshakes on one core");
    let (flows, rounds) = (256, if lab.quick { 20 } else { 100 });
    let (mut both, mut alone) = (Vec::new(), Vec::new());
    for run in 0..runs {
        let server = server(lab, &process::together)?;
        let before = server.child.cpu_so_far()?;
        let client = process::together(&client(lab, Program::Sctp, &server, flows, rounds)?)?;
        let (exit, _) = run_client(client, flows * rounds)?;
        let cpu = server.child.cpu_so_far()?.saturating_sub(before).as_secs_f64();
        server.stop()?;
        let done = (flows * rounds) as f64;
        both.push(done / exit.line["ns"].as_f64().unwrap_or(f64::NAN) * 1e9);
        alone.push(done / cpu);
        out.sample("handshakes_per_second", "neater-sctp", "both sides", run, both[run]);
        out.sample("handshakes_per_second", "neater-sctp", "server", run, alone[run]);
    }
    for (variant, values) in [("both-sides-on-one-core", &both), ("server-on-one-core", &alone)] {
        let f = Figure::new("S2", "handshakes_per_second", variant, "1/s");
        out.figures.push(f.value(median(values), runs));
    }
    (lab.progress)("memory of associations and streams");
    let of = |flows, streams| held(lab, flows, streams);
    let f = Figure::new("S2", "bytes_per_association", "server", "bytes");
    let bytes = slope((HELD.0, of(HELD.0, 0)?), (HELD.1, of(HELD.1, 0)?));
    out.figures.push(f.value(bytes, 1).judge(Bound::AtMost(ASSOCIATION_MAX)));
    let f = Figure::new("S2", "bytes_per_stream", "server", "bytes");
    let bytes = slope((STREAMS.0, of(1, STREAMS.0)?), (STREAMS.1, of(1, STREAMS.1)?));
    out.figures.push(f.value(bytes, 1).judge(Bound::AtMost(STREAM_MAX)));
    out.panel("handshakes_per_second", "Handshakes per second", "1/s", |f| (f.variant.clone(), f.variant.clone()));
    Ok(out)
}

/// A3: CPU time of a client that opens associations and ends them, over usrsctp's.
pub(super) fn clients(lab: &Lab) -> Result<Outcome> {
    let mut out = Outcome::default();
    let mut rng = lab.rng(52);
    let server = server(lab, &process::together)?;
    for ((flows, rounds), published) in SAMPLES.into_iter().zip(["+949 % over libuv's TCP", "+739 % over libuv's TCP"])
    {
        let variant = format!("client-{flows}");
        let pairs = if lab.quick { QUICK_PAIRS } else { lab.pairs() };
        (lab.progress)(&format!("{variant}: {pairs} pairs of {rounds} x {flows} associations"));
        let sample = |p| {
            let client = process::together(&client(lab, p, &server, flows, rounds)?)?;
            Ok(run_client(client, flows * rounds)?.1)
        };
        let got = interleave(Program::Usrsctp, &[Program::Sctp], pairs, &mut rng, sample)?;
        out.samples_of("cpu_seconds", &variant, &got);
        let ratios = Ratios {
            id: "A3",
            name: "cpu_ratio",
            variant: &variant,
            unit: "1",
            reference: Program::Usrsctp,
            programs: &[Program::Sctp],
            statistic: ratio_of_medians,
            control_max: CONTROL_MAX * 3.0,
            needs: PAIRS.0,
            judge: &|f| f,
        };
        for mut f in ratios.figures(&got, &mut rng) {
            if f.name == "cpu_ratio_neater_sctp" {
                "cpu_ratio_vs_usrsctp".clone_into(&mut f.name);
                f = f.judge(Bound::AtMost(1.0)).published(published);
            }
            out.figures.push(f.with("associations_per_sample", flows * rounds));
        }
    }
    server.stop()?;
    let title = "CPU time of opening and ending associations, over usrsctp's";
    out.panel("cpu_ratio_vs_usrsctp", title, "ratio", |f| (f.variant.clone(), "neater-sctp".to_owned()));
    Ok(out)
}
