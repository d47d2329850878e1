//! I2 with real packets: links of the lab die under messages that a program sends, over SCTP, MPTCP and noq.

use super::failover::bound;
use crate::experiments::networks::{Core, Links, Place};
use crate::experiments::{Lab, Outcome};
use crate::measure::stats::quantile;
use crate::measure::{MeasureError, Result};
use crate::plot::{Axis, Curve, Drawing, Lines, Panel};
use crate::report::{Bound, Figure};
use neater_base::Rng;
use neater_peers::paced::{Load, now_us};
use serde_json::Value;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Deaths of each kind: full and quick.
const DEATHS: (usize, usize) = (50, 2);
/// A link dies no sooner than this after the connection is there, and later by up to a second.
const DIES_AFTER: Duration = Duration::from_secs(3);
/// How long messages go on after it.
const SENDS_AFTER: Duration = Duration::from_secs(3);
/// The link that has carried more within this time dies.
const OBSERVED: Duration = Duration::from_millis(300);
/// In idleness, that which has carried a single message, which is sent between these times.
const SINGLE: [Duration; 2] = [Duration::from_millis(1500), Duration::from_millis(2500)];
/// What is on a link at the death has come after this: half a round trip, and a full queue.
const DRAINED: Duration = Duration::from_millis(75);
/// The series: a name, and the transport where it is neater's; the last one is noq.
const SERIES: [(&str, Option<&str>); 3] = [("sctp", Some("SCTP")), ("mptcp", Some("TCP")), ("noq", None)];
/// The series that is judged.
const JUDGED: &str = "sctp";

/// What became of one death, in milliseconds. `None` of the bound: the sender had not measured both paths.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Resumed {
    after: f64,
    bound: Option<f64>,
}

/// A message that has come: when, when it was handed over, in microseconds, and the sender's round trip to each address.
#[derive(Clone, Debug)]
struct Arrival {
    at: u64,
    sent: u64,
    paths: Vec<(String, u64)>,
}

/// What the client has printed.
fn arrivals(text: &str) -> Option<(bool, Vec<Arrival>)> {
    let report: Value = serde_json::from_str(text.lines().last()?).ok()?;
    let path = |p: &Value| Some((p[0].as_str()?.to_owned(), p[1].as_u64()?));
    let row = |r: &Value| {
        let paths = r[3].as_array()?.iter().filter_map(path).collect();
        Some(Arrival { at: r[0].as_u64()?, sent: r[1].as_u64()?, paths })
    };
    Some((report["whole"].as_bool()?, report["arrivals"].as_array()?.iter().filter_map(row).collect()))
}

/// After which time what was lost has come, and what it was to be by what the sender knew at the death.
fn resumed(load: Load, arrivals: &[Arrival], dies: u64, [dead, survivor]: [&str; 2]) -> Option<Resumed> {
    let known = arrivals.iter().rev().find(|a| a.at <= dies);
    let rtt = |address: &str| {
        let (_, micros) = known?.paths.iter().find(|(a, micros)| a == address && *micros > 0)?;
        Some(Duration::from_micros(*micros))
    };
    let bound = rtt(survivor).zip(rtt(dead)).map(|(survivor, dead)| bound(load, survivor, dead).as_secs_f64() * 1e3);
    let micros = match load {
        Load::Idle => arrivals.last().filter(|a| a.sent > dies).map(|a| a.at - a.sent)?,
        // Nothing is in order until what the link has swallowed was sent again: the end of the longest gap of those that
        // begin before everything that was on the other link has come.
        _ => {
            let mut last = dies;
            let mut longest = None;
            for a in arrivals.iter().filter(|a| a.at > dies) {
                if last - dies < DRAINED.as_micros() as u64 {
                    longest = longest.max(Some((a.at - last, a.at)));
                }
                last = a.at;
            }
            longest?.1 - dies
        }
    };
    Some(Resumed { after: micros as f64 / 1e3, bound })
}

/// One death.
fn death(lab: &Lab, place: &Place, transport: Option<&str>, load: Load, rng: &mut Rng) -> Result<Option<Resumed>> {
    let dies = DIES_AFTER + Duration::from_micros(rng.below(1_000_000));
    let time = match load {
        Load::Idle => dies + Duration::from_millis(500 + rng.below(2000)),
        _ => dies + SENDS_AFTER,
    };
    let running = place.ask_messages(lab, transport, load, time)?;
    let begin = Instant::now();
    let until = |time: Duration| sleep(time.saturating_sub(begin.elapsed()));
    let [from, to] = if load == Load::Idle { SINGLE } else { [dies.saturating_sub(OBSERVED), dies] };
    until(from);
    let before = place.carried()?;
    until(to);
    let after = place.carried()?;
    let dead = usize::from(after[1] - before[1] > after[0] - before[0]);
    until(dies);
    let died = now_us();
    place.set_down(dead, true)?;
    let output = running.wait();
    place.set_down(dead, false)?;
    let output = output?;
    // A client that ends by its limit has not gone on either.
    let (whole, arrivals) = arrivals(&output.text()).unwrap_or_default();
    if !whole {
        (lab.progress)(&format!("it did not go on: {}", output.errors().trim()));
    }
    let addresses = place.client_addresses()?;
    let addresses = [&addresses[dead], &addresses[1 - dead]].map(String::as_str);
    Ok(resumed(load, &arrivals, died, addresses).filter(|_| whole))
}

pub(in crate::experiments) fn i2_live(lab: &Lab) -> Result<Outcome> {
    let count = lab.seeds.unwrap_or(if lab.quick { DEATHS.1 } else { DEATHS.0 });
    let mut out = Outcome { runs: Some(count), ..Outcome::default() };
    let mut place = Place::build(lab, lab.seed, 1, Links::Deaths, Core::Router)?;
    place.manage_paths()?;
    place.serve_paced(lab)?;
    // It is shown only: the others are measured without it.
    let noq = match place.serve_noq(lab) {
        Err(MeasureError::MissingPeer(why)) => {
            (lab.progress)(&why);
            false
        }
        served => served.map(|()| true)?,
    };
    let mut rng = lab.rng(41);
    let mut panels = Vec::new();
    for load in Load::ALL {
        let mut curves = Vec::new();
        for (name, transport) in SERIES.iter().filter(|(_, t)| noq || t.is_some()) {
            let variant = format!("{name}-{}", load.name());
            if !lab.is_wanted(&variant) {
                continue;
            }
            let mut one = |n: usize| {
                (lab.progress)(&format!("{variant}, death {} of {count}", n + 1));
                death(lab, &place, *transport, load, &mut rng)
            };
            let seen = match (0..count).map(&mut one).collect::<Result<Vec<_>>>() {
                Ok(seen) => seen,
                Err(why) if *name == JUDGED => return Err(why),
                Err(why) => {
                    out.figures.push(Figure::new("I2L", "resume_ms", variant, "ms").missing(why.to_string()));
                    continue;
                }
            };
            figures(&mut out, (name, load), &seen);
            let times: Vec<f64> = seen.iter().flatten().map(|r| r.after).collect();
            curves.push(Curve::distribution(*name, &times));
        }
        if !curves.is_empty() {
            let (x, y) = (Axis::log("until data goes on", "ms"), Axis::linear("share of deaths", "1"));
            panels.push(Panel::Lines(Lines { title: load.name().into(), x, y, curves }));
        }
    }
    if let Some(why) = place.disturbance()? {
        out.remarks.push(why);
    }
    let caption = "Two links of 20 Mbit/s and 50 ms there and back, of which the one that carries more dies.";
    out.drawings.push(Drawing::new("resume-live", "I2: real packets".to_owned(), caption, panels));
    Ok(out)
}

fn figures(out: &mut Outcome, (name, load): (&str, Load), seen: &[Option<Resumed>]) {
    let variant = format!("{name}-{}", load.name());
    let times: Vec<f64> = seen.iter().flatten().map(|r| r.after).collect();
    for (i, t) in times.iter().enumerate() {
        out.sample("resume_ms", name, load.name(), i, *t);
    }
    for (end, q) in [("p50", 0.5), ("p99", 0.99)] {
        let f = Figure::new("I2L", "resume_ms", format!("{variant}-{end}"), "ms");
        let f = if times.len() == seen.len() {
            f.value(quantile(&times, q), times.len())
        } else {
            f.missing(format!("{} of {} did not go on", seen.len() - times.len(), seen.len()))
        };
        let judged = name == JUDGED && load == Load::AppLimited && end == "p99";
        out.figures.push(if judged { f.needs(DEATHS.0).judge(Bound::AtMost(250.0)) } else { f });
    }
    let bounded: Vec<_> = seen.iter().map(|r| r.and_then(|r| Some((r.after, r.bound?)))).collect();
    let f = Figure::new("I2L", "within_bound", variant, "1");
    // Where the sender's paths cannot be read there is no bound; for what is judged that is no excuse.
    if name != JUDGED && bounded.iter().all(Option::is_none) {
        out.figures.push(f.missing("nothing went on, or the sender's round trips are not known"));
        return;
    }
    let within = bounded.iter().flatten().filter(|(after, bound)| after <= bound).count();
    let mean = |pick: &dyn Fn(&(f64, f64)) -> f64| {
        bounded.iter().flatten().map(pick).sum::<f64>() / bounded.iter().flatten().count().max(1) as f64
    };
    let f = f.value(within as f64 / seen.len() as f64, seen.len()).with("mean_bound_ms", mean(&|(_, b)| *b));
    let f = f.with("mean_ms", mean(&|(a, _)| *a));
    out.figures.push(if name == JUDGED { f.needs(DEATHS.0).judge(Bound::AtLeast(0.99)) } else { f });
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "{\"open\":true}\n\
        {\"whole\":true,\"messages\":9,\"arrivals\":[\
        [1000000,950000,1,[[\"10.0.0.2\",50000],[\"10.0.1.2\",60000]]],\
        [1005000,955000,2,[[\"10.0.0.2\",50000],[\"10.0.1.2\",60000]]],\
        [1120000,958000,3,[]],[1130000,1080000,9,[]],[1300000,1080000,10,[]]]}";

    #[test]
    fn what_was_lost_has_come_at_the_end_of_the_longest_gap() {
        let (whole, arrivals) = arrivals(TEXT).unwrap();
        assert!(whole);
        let addresses = ["10.0.0.2", "10.0.1.2"];
        let got = resumed(Load::AppLimited, &arrivals, 1_006_000, addresses).unwrap();
        assert_eq!(got, Resumed { after: 114.0, bound: Some(120.0 + 100.0 + 25.0) });
        // The message that was handed over after the death, from then on.
        let got = resumed(Load::Idle, &arrivals, 1_070_000, addresses).unwrap();
        assert_eq!((got.after, got.bound), (220.0, Some(120.0 + 100.0 + 100.0 + 25.0)));
        assert!(resumed(Load::Idle, &arrivals, 1_090_000, addresses).is_none());
        assert!(resumed(Load::Full, &arrivals, 1_310_000, addresses).is_none());
    }
}
