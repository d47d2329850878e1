//! Bulk goodput of SCTP over UDP beside the simulator's TCP CUBIC, which is calibrated against the
//! kernel's: experiment S3 in virtual time.
//!
//! `tests/goodput/table.csv` is the recorded state: a change of behaviour shows as a difference,
//! and `SNAPSHOT=overwrite` rewrites it. For people, in release: `explore` runs the whole grid with
//! transfers of five seconds, or what `GOODPUT=500Mbit-20ms` names of it, of `SECONDS`, with
//! `SEEDS`; with `TRACE=1` it prints the course of both senders for `SEED`. `fairness` shares a
//! bottleneck with TCP.

#![allow(
    clippy::disallowed_methods,
    reason = "the table is a file, and what to look at comes from whoever runs the test"
)]

mod bulk;

use bulk::{Done, Flow, Path, Sight, Stack, run, shipped};
use core::time::Duration;
use std::fmt::Write;

const RATES: [f64; 2] = [100.0, 500.0];
const RTTS: [f64; 6] = [0.0, 10.0, 20.0, 50.0, 100.0, 200.0];
const LOSSES: [f64; 2] = [0.0, 0.1];

fn grid() -> Vec<Path> {
    let paths = RATES.iter().flat_map(|r| LOSSES.iter().flat_map(move |l| RTTS.iter().map(move |t| (*r, *t, *l))));
    paths.map(|(rate, rtt, loss)| Path { rate, rtt, loss }).collect()
}

/// One transfer of each over the same path, with the same packets lost.
fn pair(path: &Path, seconds: f64, seed: u64) -> [Done; 2] {
    [Stack::Sctp, Stack::Tcp].map(|stack| {
        let flow = Flow { stack, start: Duration::ZERO, bytes: path.bytes(seconds) };
        let done = run(path, &[flow], &shipped(), seed, Duration::from_secs(120), None)[0];
        assert_eq!(done.bytes, flow.bytes, "{stack:?} over {}", path.name());
        done
    })
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = values.map(f64::ln).collect();
    (logs.iter().sum::<f64>() / logs.len() as f64).exp()
}

/// Half of the grid with short transfers, in which the start counts for more than in the
/// experiment's.
#[test]
fn goodput_beside_tcp_is_what_it_was() {
    let mut table = String::from("path,sctp_mbit,tcp_mbit,ratio\n");
    for path in grid().into_iter().filter(|p| p.rate < 200.0) {
        let seeds = if path.loss > 0.0 { 1..=2 } else { 1..=1 };
        let runs: Vec<[Done; 2]> = seeds.map(|seed| pair(&path, 1.0, seed)).collect();
        let [sctp, tcp] = [0, 1].map(|i| mean(runs.iter().map(|r| r[i].goodput())));
        let _ = writeln!(table, "{},{sctp:.2},{tcp:.2},{:.3}", path.name(), sctp / tcp);
        // Of a packet of 1,500 bytes TCP with timestamps carries 1,448 and we 1,440, less 20 at the
        // end of a message of 16,000; our handshake takes a round trip more (RFC 9260 section 5.1:
        // before COOKIE ACK nothing but one packet). What is left is ours.
        let seconds = |mbit: f64| path.bytes(1.0) as f64 * 8e-6 / mbit;
        let explained = seconds(tcp) * 1448.0 / 1440.0 * 1.00125 + path.rtt / 1e3;
        assert!(seconds(sctp) < 1.04 * explained, "{table}");
    }
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goodput/table.csv");
    if std::env::var("SNAPSHOT").is_ok_and(|v| v == "overwrite") {
        return std::fs::write(&file, &table).unwrap();
    }
    let known = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        known == table,
        "{} says\n{known}and it is\n{table}If that is meant: SNAPSHOT=overwrite cargo test -p neater-sctp --test goodput, and say \
         why in the commit",
        file.display()
    );
}

/// The whole grid, or the course of one point.
#[test]
#[ignore = "for people: see the head of this file"]
fn explore() {
    let wanted = std::env::var("GOODPUT").unwrap_or_else(|_| "all".into());
    let number = |name: &str, otherwise: f64| std::env::var(name).map_or(otherwise, |v| v.parse().unwrap());
    let seconds = number("SECONDS", 5.0);
    let mut ratios = Vec::new();
    for path in grid().into_iter().filter(|p| wanted == "all" || p.name().contains(&wanted)) {
        let seeds = if path.loss > 0.0 { number("SEEDS", 10.0) as u64 } else { 1 };
        let runs: Vec<[Done; 2]> = (1..=seeds).map(|seed| pair(&path, seconds, seed)).collect();
        let side = |i: usize| {
            let n = runs.len() as f64;
            let sum = |f: fn(&Done) -> f64| runs.iter().map(|r| f(&r[i])).sum::<f64>() / n;
            let (again, times) = (sum(|d| d.retransmissions as f64), sum(|d| d.timeouts as f64));
            let rate = mean(runs.iter().map(|r| r[i].goodput()));
            format!("{rate:7.2} Mbit/s, {again:.1} again in {:.1}, {times:.1} timeouts", sum(|d| d.recoveries as f64))
        };
        let each: Vec<f64> = runs.iter().map(|r| r[0].goodput() / r[1].goodput()).collect();
        let ratio = mean(each.iter().copied());
        let least = each.iter().copied().fold(f64::INFINITY, f64::min);
        println!("{:20} {ratio:.3} (least {least:.3})  sctp {}  tcp {}", path.name(), side(0), side(1));
        ratios.push(ratio);
        if std::env::var("TRACE").is_ok() {
            trace(&path, seconds);
        }
    }
    println!("geometric mean of {} points: {:.4}", ratios.len(), mean(ratios.iter().copied()));
}

fn trace(path: &Path, seconds: f64) {
    let seed = std::env::var("SEED").map_or(1, |v| v.parse().unwrap());
    for stack in [Stack::Sctp, Stack::Tcp] {
        println!("{stack:?}: ms, window, threshold, in flight, kB; round trip, ms; packets sent again; packet; Mbit/s");
        let mut before = (Duration::ZERO, 0);
        let mut look = |at: Duration, _: usize, s: &Sight| {
            let rate = (s.received - before.1) as f64 * 8e-6 / (at - before.0).as_secs_f64();
            before = (at, s.received);
            println!(
                "{:7.1} {:7} {:7} {:7} {:7.2} {:5} {:5} {rate:7.2}",
                at.as_secs_f64() * 1e3,
                s.window / 1000,
                s.threshold.map_or(0, |t| t / 1000),
                s.in_flight / 1000,
                s.srtt.unwrap_or_default().as_secs_f64() * 1e3,
                s.retransmissions,
                s.packet,
            );
        };
        let every = Duration::from_secs_f64((path.rtt / 1e3).max(0.02));
        let flow = Flow { stack, start: Duration::ZERO, bytes: path.bytes(seconds) };
        run(path, &[flow], &shipped(), seed, Duration::from_secs(120), Some((every, &mut look)));
    }
}

/// Jain's index (Jain, Chiu and Hawe 1984).
fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    sum * sum / (rates.len() as f64 * rates.iter().map(|r| r * r).sum::<f64>())
}

/// Goodputs of flows that share a path for `seconds`, the second of each two starting a little
/// later.
fn together(path: &Path, stacks: &[Stack], seconds: u64, seed: u64) -> Vec<f64> {
    let start = |i: usize| Duration::from_millis(37 * i as u64 * (1 + seed));
    let flows: Vec<Flow> =
        stacks.iter().enumerate().map(|(i, s)| Flow { stack: *s, start: start(i), bytes: u64::MAX }).collect();
    let done = run(path, &flows, &shipped(), seed, Duration::from_secs(seconds), None);
    done.iter().map(|d| d.bytes as f64 * 8e-6 / seconds as f64).collect()
}

/// Beside TCP at a shared bottleneck.
#[test]
#[ignore = "for people: how fair it is"]
fn fairness() {
    use Stack::{Sctp, Tcp};
    for (rate, rtt, loss) in [(20.0, 20.0, 0.0), (50.0, 20.0, 0.0), (20.0, 100.0, 0.0), (50.0, 50.0, 0.1)] {
        let path = Path { rate, rtt, loss };
        let mut line = path.name();
        for stacks in [[Sctp, Tcp], [Tcp, Sctp], [Tcp, Tcp], [Sctp, Sctp]] {
            let runs: Vec<Vec<f64>> = (1..=4).map(|seed| together(&path, &stacks, 30, seed)).collect();
            let index = runs.iter().map(|r| jain(r)).sum::<f64>() / runs.len() as f64;
            let first = runs.iter().map(|r| r[0] / (r[0] + r[1])).sum::<f64>() / runs.len() as f64;
            line += &format!("   {stacks:?} Jain {index:.3} first has {first:.3}");
        }
        println!("{line}");
    }
}
