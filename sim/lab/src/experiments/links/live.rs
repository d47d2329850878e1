//! I1 with real packets: the commands that users run, between hosts of the lab, over the pairs of links.

use super::environments::ALL;
use super::{BYTES, estimate, live_fairness};
use crate::experiments::networks::{BOTH, Core, Links, ONE, Place};
use crate::experiments::{Lab, Outcome};
use crate::measure::{MeasureError, Result};
use crate::plot::{Bars, Drawing, Panel, Row};
use crate::report::{Bound, Figure};

/// Runs of each row: full and quick.
const RUNS: (usize, usize) = (5, 1);
/// With --quick, every so many pairs.
const EVERY: usize = 8;
/// The client's interfaces.
const LINKS: [&str; 2] = ["eth0", "eth1"];
/// What is judged, and what is shown beside it.
const SERIES: [Series; 3] = [
    Series { name: "sctp", by: By::Get { transport: "SCTP", both: BOTH } },
    Series { name: "mptcp", by: By::Get { transport: "TCP", both: ONE } },
    Series { name: "noq", by: By::Noq },
];

/// What is compared with itself, over both links and over one.
#[derive(Clone, Copy, Debug)]
struct Series {
    name: &'static str,
    by: By,
}

/// What fetches.
#[derive(Clone, Copy, Debug)]
enum By {
    /// `neater get` over a transport, and what it needs to take both links.
    Get { transport: &'static str, both: &'static str },
    /// The peer on noq.
    Noq,
}

impl By {
    /// Seconds of one transfer by these interfaces.
    fn fetch(self, lab: &Lab, place: &Place, interfaces: &[&str]) -> Result<f64> {
        match (self, interfaces) {
            (Self::Noq, _) => place.fetch_noq(lab, interfaces),
            (Self::Get { transport, .. }, [one]) => {
                place.fetch_by(lab, transport, "multipath=Disabled", &["--interface", one])
            }
            (Self::Get { transport, both }, _) => place.fetch_by(lab, transport, both, &[]),
        }
    }
}

/// Seconds of one run: over both links, over each, and over each once more, which is the control.
struct Run {
    both: f64,
    alone: [f64; 2],
    again: [f64; 2],
}

fn run(fetch: impl Fn(&[&str]) -> Result<f64>) -> Result<Run> {
    let each = || -> Result<[f64; 2]> { Ok([fetch(&LINKS[..1])?, fetch(&LINKS[1..])?]) };
    Ok(Run { alone: each()?, both: fetch(&LINKS)?, again: each()? })
}

pub(in crate::experiments) fn i1_live(lab: &Lab) -> Result<Outcome> {
    let count = lab.seeds.unwrap_or(if lab.quick { RUNS.1 } else { RUNS.0 });
    let mut out = Outcome { runs: Some(count), ..Outcome::default() };
    let mut rows = Vec::new();
    let wanted = |series: &Series, name: &str| lab.is_wanted(&format!("{}-{name}", series.name));
    for (at, e) in ALL.iter().enumerate().filter(|(at, _)| !lab.quick || at % EVERY == 0) {
        if !SERIES.iter().any(|s| wanted(s, e.name)) {
            continue;
        }
        let mut place = Place::build(lab, lab.seed, BYTES as usize, Links::Pair(at), Core::Router)?;
        place.manage_paths()?;
        // It is shown only: the others are measured without it.
        let noq = match place.serve_noq(lab) {
            Err(MeasureError::MissingPeer(why)) => {
                (lab.progress)(&why);
                false
            }
            served => served.map(|()| true)?,
        };
        for series in SERIES.iter().filter(|s| (noq || !matches!(s.by, By::Noq)) && wanted(s, e.name)) {
            let runs: Result<Vec<Run>> = (0..count)
                .map(|n| {
                    (lab.progress)(&format!("{} over {}, run {} of {count}", e.name, series.name, n + 1));
                    run(|interfaces| series.by.fetch(lab, &place, interfaces))
                })
                .collect();
            match runs {
                Ok(runs) => rows.push(figure(&mut out, (e.name, series.name), &runs)),
                Err(why) if series.name != SERIES[0].name => {
                    let f = Figure::new("I1L", "ratio_to_best", format!("{}-{}", series.name, e.name), "1");
                    out.figures.push(f.missing(why.to_string()));
                }
                Err(why) => return Err(why),
            }
        }
    }
    // Last: what fails there costs nothing of the others.
    let shares = live_fairness::bottleneck(lab, &mut out).unwrap_or_else(|why| {
        out.figures.push(Figure::new("I1L", "bottleneck_share", "sctp", "1").missing(why.to_string()));
        Vec::new()
    });
    let mut draw = |name: &str, title: &str, caption: &str, rows: Vec<Row>| {
        let panel = Panel::Bars(Bars { title: title.into(), unit: "1".into(), rows });
        out.drawings.push(Drawing::new(name, format!("I1: {title}"), caption, vec![panel]));
    };
    if !rows.is_empty() {
        let caption = "Goodput of 20 MiB over both links, over that of the better one alone; means and 95 % intervals.";
        draw("ratio-live", "real packets", caption, rows);
    }
    if !shares.is_empty() {
        let caption = "What a download over two paths through one bottleneck gets of it beside one flow of TCP with CUBIC, \
                       between the seconds 10 and 60; `tcp`: over one path.";
        draw("bottleneck-live", "a bottleneck that both paths share", caption, shares);
    }
    Ok(out)
}

fn figure(out: &mut Outcome, (name, series): (&str, &str), runs: &[Run]) -> Row {
    let variant = format!("{series}-{name}");
    // The better link is that of all runs together: the better one of each run would be the luckier one.
    let total = |i: usize| runs.iter().map(|r| r.alone[i] + r.again[i]).sum::<f64>();
    let best = usize::from(total(1) < total(0));
    let ratios: Vec<f64> = runs.iter().map(|r| r.alone[best] / r.both).collect();
    let controls: Vec<f64> = runs.iter().map(|r| r.alone[best] / r.again[best]).collect();
    for (i, r) in runs.iter().enumerate() {
        for (which, seconds) in
            [("both", r.both), ("first", r.alone[0]), ("second", r.alone[1]), ("control", r.again[best])]
        {
            out.sample("seconds", which, &variant, i, seconds);
        }
    }
    let (e, control) = (estimate(&ratios), estimate(&controls));
    let f = Figure::new("I1L", "ratio_to_best", variant.clone(), "1").estimate(e, runs.len());
    let mbit = |pick: &dyn Fn(&Run) -> f64| {
        runs.iter().map(|r| BYTES as f64 * 8e-6 / pick(r)).sum::<f64>() / runs.len().max(1) as f64
    };
    let f = f.with("goodput_mbit", mbit(&|r| r.both)).with("better_alone_mbit", mbit(&|r| r.alone[best]));
    let f = f.with("control", vec![control.low, control.high]);
    // A row fails only where its whole interval lies below, and the control's does not: then it is not the machine.
    let judged = series == SERIES[0].name && control.high >= 0.97;
    out.figures.push(if judged { f.needs(RUNS.0).judge(Bound::HighAtLeast(0.97)) } else { f });
    Row {
        label: variant,
        series: series.to_owned(),
        value: Some(e.value),
        interval: Some((e.low, e.high)),
        bound: (series == SERIES[0].name).then_some(0.97),
    }
}
