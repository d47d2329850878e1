//! A5: the delay that opening a flow has, over libuv's.

use super::flows::Batch;
use super::{Lab, Outcome, PAIRS, Ratios};
use crate::measure::cpu::interleave;
use crate::measure::stats::difference_of_medians;
use crate::measure::{MeasureError, Result};
use crate::programs::Program;
use crate::report::Bound;

const PROGRAMS: [Program; 4] = [Program::Epoll, Program::Tokio, Program::NeaterFd, Program::Neater];

pub(super) fn run(lab: &Lab) -> Result<Outcome> {
    let mut out = Outcome::default();
    let mut rng = lab.rng(5);
    let cases = [(1, 400, 0.2, "+72 ms"), (256, 6, 2.0, "+109 ms")];
    for (flows, rounds, bound, published) in cases {
        let variant = flows.to_string();
        (lab.progress)(&format!("delay of {flows} flows at once, {} pairs", lab.pairs()));
        let batch = Batch { flows, rounds };
        let got = interleave(Program::Libuv, &PROGRAMS, lab.pairs(), &mut rng, |p| {
            let exit = batch.client(lab, p, &["--delays"])?;
            let ns = exit.line["delay_median_ns"].as_f64();
            ns.map(|ns| ns / 1e6).ok_or_else(|| MeasureError::Failed("the peer reported no delay".to_owned()))
        })?;
        out.samples_of("median_delay_ms", &variant, &got);
        let ratios = Ratios {
            id: "A5",
            name: "added_delay_ms",
            variant: &variant,
            unit: "ms",
            reference: Program::Libuv,
            programs: &PROGRAMS,
            statistic: difference_of_medians,
            control_max: bound,
            needs: PAIRS.0,
            judge: &|f| f.judge(Bound::AtMost(bound)).published(published),
        };
        out.figures.extend(ratios.figures(&got, &mut rng));
        let rows = out.figures.iter().filter(|f| f.variant == variant).map(super::row_by_program).collect();
        let title = format!("{flows} flow{} at once: delay added to libuv's", if flows == 1 { "" } else { "s" });
        out.bars(title, "ms", rows);
    }
    Ok(out)
}
