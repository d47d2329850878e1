//! A2 and A4: CPU time of client and server over libuv's.

use super::flows::Batch;
use super::{CONTROL_MAX, LIMIT, Lab, Outcome, PAIRS, Ratios, steadied};
use crate::measure::stats::ratio_of_medians;
use crate::measure::turns::{Pair, Side, in_turns};
use crate::measure::{Exit, Result};
use crate::programs::Program;
use crate::report::Bound;

/// A sample has at least this much CPU time of libuv, in seconds, which is far above what the kernel's clock resolves and
/// what starting a process costs.
const SAMPLE: f64 = 0.07;
/// Flows of a sample at most: a client has some 28,000 ports towards one address.
const FLOWS_MAX: u64 = 20_000;
const PROGRAMS: [Program; 4] = [Program::Epoll, Program::Tokio, Program::NeaterFd, Program::Neater];
/// Those, and the one on NEAT's interface, whose clients are measured.
const CLIENTS: [Program; 5] = [Program::Epoll, Program::Tokio, Program::NeaterFd, Program::Neater, Program::Libneat];

pub(super) fn clients(lab: &Lab) -> Result<Outcome> {
    let published = ["+1046 % (1 flow)", "+952 % (256 flows)"];
    run(lab, "A2", Side::Client, published)
}

pub(super) fn servers(lab: &Lab) -> Result<Outcome> {
    let published = ["+744 % (1 flow)", "+295 % (256 flows)"];
    run(lab, "A4", Side::Server, published)
}

impl Side {
    const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }

    fn start(self, lab: &Lab, batch: Batch, program: Program) -> Result<Pair> {
        match self {
            Self::Client => batch.start_client(lab, program, &[]),
            Self::Server => batch.start_server(lab, program),
        }
    }
}

fn run(lab: &Lab, id: &'static str, sides: Side, published: [&'static str; 2]) -> Result<Outcome> {
    let side = sides.name();
    let programs = if matches!(sides, Side::Client) { &CLIENTS[..] } else { &PROGRAMS[..] };
    let mut out = Outcome::default();
    let mut rng = lab.rng(2);
    for (flows, published) in [1, 256].into_iter().zip(published) {
        let variant = format!("{side}-{flows}");
        let batch = calibrate(flows, &|batch| match sides {
            Side::Client => batch.client(lab, Program::Libuv, &[]),
            Side::Server => batch.server(lab, Program::Libuv),
        })?;
        (lab.progress)(&format!("{variant}: {} pairs of {} x {flows} flows", lab.pairs(), batch.rounds));
        let start = |p| sides.start(lab, batch, p);
        let got = steadied(lab, lab.pairs(), Program::Libuv, &mut |pairs| {
            in_turns(Program::Libuv, programs, pairs, &mut rng, LIMIT, &start, &|exit| batch.check(exit))
        })?;
        out.samples_of("cpu_seconds", &variant, &got);
        let ratios = Ratios {
            id,
            name: "cpu_ratio",
            variant: &variant,
            unit: "1",
            reference: Program::Libuv,
            programs,
            statistic: ratio_of_medians,
            control_max: CONTROL_MAX,
            needs: PAIRS.0,
            judge: &|f| f.judge(Bound::LowAtMost(1.10)).published(published),
        };
        for f in ratios.figures(&got, &mut rng) {
            out.figures.push(f.with("flows_per_sample", batch.flows * batch.rounds));
        }
        let of_this = |f: &&crate::report::Figure| f.variant == variant;
        let rows = out.figures.iter().filter(of_this).map(super::row_by_program).collect();
        let title = format!("{side}, {flows} flow{} at once: CPU time over libuv's", if flows == 1 { "" } else { "s" });
        out.bars(title, "ratio", rows);
    }
    Ok(out)
}

/// As many rounds as make a sample long enough.
fn calibrate(flows: u64, sample: &dyn Fn(Batch) -> Result<Exit>) -> Result<Batch> {
    let mut batch = Batch { flows, rounds: if flows == 1 { 500 } else { 4 } };
    for _ in 0..3 {
        let cpu = sample(batch)?.cpu.as_secs_f64();
        if cpu >= SAMPLE {
            break;
        }
        let factor = (1.15 * SAMPLE / cpu.max(0.001)).max(1.2);
        batch.rounds = ((batch.rounds as f64 * factor).ceil() as u64).clamp(1, FLOWS_MAX / flows);
    }
    Ok(batch)
}
