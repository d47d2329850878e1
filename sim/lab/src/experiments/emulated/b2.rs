//! B2: ten files of 100 kB on one connection, over bandwidth, round-trip time, loss and jitter.

use super::b1::ratio;
use super::path::Path;
use super::sweep::{Grid, Measured, RUNS, Sweep};
use super::{Stack, Work};
use crate::experiments::{Lab, Outcome};
use crate::measure::Result;
use crate::measure::stats::median;
use crate::plot::{Axis, Curve};
use crate::report::record::Beside;
use crate::report::{Bound, Figure};

const RATES: &[f64] = &[2.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0];
const RTTS: &[f64] = &[10.0, 20.0, 50.0, 100.0, 200.0, 350.0, 500.0];
const LOSSES: &[f64] = &[0.0, 0.1, 0.5, 1.0, 2.0, 3.0, 5.0];
const JITTERS: &[f64] = &[0.0, 0.5, 1.0, 2.0, 5.0, 10.0];
/// The points of the quick form.
const QUICK: [&[f64]; 4] = [&[10.0], &[200.0], &[1.0], &[0.0, 5.0]];
/// Parallel connections that share one initial window.
const CONNECTIONS: [Stack; 3] = [Stack::CurlConnections(2), Stack::CurlConnections(5), Stack::CurlConnections(10)];

pub(super) fn grid(lab: &Lab) -> Grid {
    let [rates, rtts, losses, jitters] = if lab.quick { QUICK } else { [RATES, RTTS, LOSSES, JITTERS] };
    let jittered = |reorder| move |v| Path { jitter: v, reorder: reorder && v > 0.0, ..Path::new(10.0, 50.0) };
    let jitter = ("standard deviation of the delay in each direction", "ms", false);
    let sweeps = vec![
        Sweep::new("rate", "10 × 100 kB, 20 ms, no loss", ("link rate", "Mbit/s", false), rates, |v| {
            Path::new(v, 20.0)
        }),
        Sweep::new("rtt", "10 × 100 kB, 10 Mbit/s, no loss", ("round-trip time", "ms", false), rtts, |v| {
            Path::new(10.0, v)
        }),
        Sweep::new("loss", "10 × 100 kB, 10 Mbit/s, 100 ms", ("loss in each direction", "%", false), losses, |v| {
            Path { loss: v, ..Path::new(10.0, 100.0) }
        }),
        Sweep::new("jitter", "10 × 100 kB, 10 Mbit/s, 50 ms, order kept", jitter, jitters, jittered(false)),
        Sweep::new("reorder", "10 × 100 kB, 10 Mbit/s, 50 ms, reordered by jitter", jitter, jitters, jittered(true)),
    ];
    let mut stacks =
        vec![Stack::Quic, Stack::SimulatedQuic, Stack::CurlHttp, Stack::CurlHttps, Stack::CurlStreams, CONNECTIONS[1]];
    if !lab.quick {
        stacks.extend([Stack::Tls, Stack::TlsStreams, CONNECTIONS[0], CONNECTIONS[2]]);
    }
    Grid { id: "B2", work: Work::Ten, stacks, sweeps }
}

fn published(sweep: &Sweep) -> Vec<Curve> {
    match sweep.name {
        "reorder" => vec![Curve::plain("published QUIC", [(0.0, 7.0), (0.5, 2.0)])],
        "rate" => vec![Curve::plain("link rate", sweep.points.iter().map(|(x, p)| (*x, p.rate)))],
        _ => Vec::new(),
    }
}

pub(crate) fn run(lab: &Lab) -> Result<Outcome> {
    let m = grid(lab).measure(lab)?;
    let mut out = Outcome::default();
    m.figures("B2", "goodput_mbit", "Mbit/s", &mut out);
    against_one(lab, &m, &mut out);
    against_many(lab, &m, &mut out);
    jitter(&m, &mut out);
    m.agreement("B2", "own_goodput_mbit", Stack::Quic, Stack::SimulatedQuic, &mut out);
    let caption = "Ten files of 100 kB on one connection: streams at once over QUIC and HTTP/2, one after the other over \
                   HTTP/1.1. Parallel connections share one initial window. The middle link alone is shaped; its queue \
                   holds one bandwidth-delay product, at least ten packets.";
    m.draw(&mut out, "goodput_mbit", &Axis::linear("goodput", "Mbit/s"), caption, published);
    beside(&m, &mut out);
    m.remarks(&mut out);
    Ok(out)
}

/// Against one TCP connection with TLS whose requests follow each other, and against HTTP/2.
fn against_one(lab: &Lab, m: &Measured, out: &mut Outcome) {
    for path in m.paths() {
        for (theirs, judged) in [(Stack::CurlHttps, true), (Stack::CurlStreams, false)] {
            let f = Figure::new("B2", "goodput_ratio", format!("neater QUIC over {}, {path}", theirs.name()), "1");
            let f = ratio(lab, m, &path, Stack::Quic, theirs, f);
            // What reordering does is reported.
            out.figures.push(if judged && !path.reorder { f.judge(Bound::AtLeast(1.0)) } else { f });
        }
    }
}

/// Against the best number of TCP connections that share one initial window. It is the best only if each was measured.
fn against_many(lab: &Lab, m: &Measured, out: &mut Outcome) {
    let connections = m.grid.stacks.iter().copied().filter(|s| CONNECTIONS.contains(s));
    let all: Vec<Stack> = connections.chain([Stack::CurlHttp]).collect();
    for path in m.paths() {
        let f = Figure::new("B2", "goodput_over_best_n", format!("neater QUIC over the best N, {path}"), "1");
        let mid = |s: &Stack| Some(m.values(&path, *s, "goodput_mbit")).filter(|v| !v.is_empty()).map(|v| median(&v));
        let best = all.iter().filter_map(|s| Some((mid(s)?, *s))).max_by(|a, b| a.0.total_cmp(&b.0));
        let f = match best {
            Some((_, best)) => {
                let f = ratio(lab, m, &path, Stack::Quic, best, f).with("best", best.name());
                f.void_for(all.iter().find_map(|s| m.why_void(&path, *s)))
            }
            None => f.missing("no number of connections came to its end"),
        };
        out.figures.push(if path.reorder { f } else { f.judge(Bound::AtLeast(1.0)) });
    }
}

/// What jitter costs: with the order kept it is judged, with reordering reported.
fn jitter(m: &Measured, out: &mut Outcome) {
    let still = Path::new(10.0, 50.0);
    for stack in [Stack::Quic, Stack::SimulatedQuic, Stack::CurlHttps] {
        let base = m.values(&still, stack, "goodput_mbit");
        for path in m.paths().into_iter().filter(|p| p.jitter > 0.0) {
            let f = Figure::new("B2", "jitter_goodput_ratio", format!("{}, {path}", stack.name()), "1");
            let with = m.values(&path, stack, "goodput_mbit");
            let f = if base.is_empty() || with.is_empty() {
                f.missing("not both came to their end")
            } else {
                let f = f.value(median(&with) / median(&base), with.len().min(base.len())).needs(RUNS.0);
                f.void_for([&path, &still].iter().find_map(|p| m.why_void(p, stack)))
            };
            let judged = stack == Stack::Quic && !path.reorder;
            out.figures.push(if judged { f.judge(Bound::AtLeast(0.9)) } else { f });
        }
    }
}

fn beside(m: &Measured, out: &mut Outcome) {
    let pair = |path: Path| m.pair(&path, Stack::CurlHttps);
    let jittered = |jitter, reorder| Path { jitter, reorder, ..Path::new(10.0, 50.0) };
    let row = |what: &str, published: &str, ours: String| Beside {
        what: what.into(),
        published: published.into(),
        ours,
        source: "U, section 5.3.1".into(),
    };
    out.beside = vec![
        row("50 Mbit/s, 20 ms", "HTTPS stays at 10 Mbit/s, QUIC grows", pair(Path::new(50.0, 20.0))),
        row("10 Mbit/s, 200 ms", "QUIC ahead of sequential HTTPS", pair(Path::new(10.0, 200.0))),
        row("1 % loss, 10 Mbit/s, 100 ms", "QUIC ahead", pair(Path { loss: 1.0, ..Path::new(10.0, 100.0) })),
        row("no jitter, 10 Mbit/s, 50 ms", "QUIC 7 Mbit/s", pair(Path::new(10.0, 50.0))),
        row("0.5 ms of jitter, reordering", "QUIC 2 Mbit/s, HTTPS unaffected", pair(jittered(0.5, true))),
        row("5 ms of jitter, order kept", "–", pair(jittered(5.0, false))),
        row("5 ms of jitter, reordering", "–", pair(jittered(5.0, true))),
    ];
}

#[cfg(test)]
mod tests {
    use super::super::METRICS;
    use super::*;
    use crate::runner::grid::Made;
    use crate::runner::journal::Journal;

    #[test]
    fn jitter_that_was_not_measured_is_judged_too() {
        let dir = std::env::temp_dir().join(format!("neater-b2-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder");
        let sweeps = [false, true].map(|reorder| {
            let path = |jitter| Path { jitter, reorder, ..Path::new(10.0, 50.0) };
            Sweep::new("jitter", "jitter", ("jitter", "ms", false), &[0.0, 5.0], path)
        });
        let grid = Grid { id: "B2", work: Work::Ten, stacks: vec![Stack::Quic], sweeps: sweeps.to_vec() };
        let journal = Journal::open(&dir.join("runs.csv"), "1", METRICS, true).expect("a table");
        let m = Measured { grid, journal, seeds: 1..=5, chances: 1..=20, made: Made::default() };
        let mut out = Outcome::default();
        jitter(&m, &mut out);
        std::fs::remove_dir_all(&dir).expect("it was there");
        assert!(out.figures.len() > 2 && out.figures.iter().all(|f| f.missing.is_some()));
        let judged: Vec<_> = out.figures.iter().filter(|f| f.bound.is_some()).collect();
        assert!(
            judged.len() == 1 && judged[0].met.is_none() && judged[0].variant.starts_with("neater QUIC,"),
            "{judged:?}"
        );
    }
}
