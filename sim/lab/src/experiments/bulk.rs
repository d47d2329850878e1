//! BULK: throughput of one flow, QUIC beside quinn and TLS beside tokio-rustls.

use super::{CONTROL_MAX, LIMIT, Lab, Outcome, Ratios, steadied};
use crate::measure::cpu::interleave;
use crate::measure::process::{self, together};
use crate::measure::stats::ratio_of_medians;
use crate::measure::{MeasureError, Result, Server};
use crate::programs::Program;
use crate::report::Bound;

/// Pairs of a full run, which a verdict needs, and of a quick one.
const PAIRS: (usize, usize) = (30, 6);
/// Bytes of a sample: quick and full.
const BYTES: (u64, u64) = (256_000_000, 1_024_000_000);

pub(super) fn run(lab: &Lab) -> Result<Outcome> {
    let mut out = Outcome::default();
    let mut rng = lab.rng(11);
    let pairs = lab.seeds.unwrap_or(if lab.quick { PAIRS.1 } else { PAIRS.0 });
    let cases = [
        ("throughput_ratio_vs_quinn", "quic", Program::Quinn),
        ("throughput_ratio_vs_tokio_rustls", "tls", Program::Tokio),
    ];
    for (name, security, reference) in cases {
        (lab.progress)(&format!("throughput over {security}, {pairs} pairs"));
        let got = steadied(lab, pairs, reference, &mut |pairs| {
            interleave(reference, &[Program::Neater], pairs, &mut rng, |p| throughput(lab, p, security))
        })?;
        out.samples_of("bytes_per_second", security, &got);
        let ratios = Ratios {
            id: "BULK",
            name,
            variant: security,
            unit: "1",
            reference,
            programs: &[Program::Neater],
            statistic: ratio_of_medians,
            control_max: CONTROL_MAX,
            needs: PAIRS.0,
            judge: &|f| f.judge(Bound::AtLeast(0.95)),
        };
        out.figures.extend(ratios.figures(&got, &mut rng));
        let rows = out.figures.iter().filter(|f| f.variant == security).map(super::row_by_program).collect();
        let beside = if security == "tls" { "tokio-rustls" } else { "plain quinn" };
        let title = format!("{}: throughput over that of {beside}", security.to_uppercase());
        out.bars(title, "ratio", rows);
    }
    Ok(out)
}

/// Bytes per second, by the clock of the receiving peer, from the first byte to the end. Both sides share a processor.
pub(super) fn throughput(lab: &Lab, program: Program, security: &str) -> Result<f64> {
    let bytes = if lab.quick { BYTES.0 } else { BYTES.1 };
    let mut receiver = lab.programs.command(program, "recv")?;
    receiver.args(["--addr", "127.0.0.1:0", "--security", security]);
    lab.programs.add_credentials(&mut receiver);
    let receiver = Server::start(&mut together(&receiver)?)?;
    let mut sender = lab.programs.command(program, "send")?;
    sender.args(["--addr", &receiver.addr.to_string(), "--security", security, "--bytes", &bytes.to_string()]);
    lab.programs.add_credentials(&mut sender);
    process::run(&mut together(&sender)?, LIMIT)?;
    let exit = receiver.child.wait(LIMIT)?;
    match (exit.line["bytes"].as_u64(), exit.line["ns"].as_f64()) {
        (Some(got), Some(ns)) if got == bytes && ns > 0.0 => Ok(got as f64 / ns * 1e9),
        _ => Err(MeasureError::Failed(format!("{bytes} bytes were sent: {}", exit.line))),
    }
}
