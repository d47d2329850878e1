//! Objects of web sessions, one by one: their sizes have heavy tails, and a mean alone says little of the times that they take.

use crate::measure::stats::quantile;
use neater_base::Instant;
use neater_netsim::WebObject;
use neater_scenario::Scenario;
use std::fmt::Write as _;

/// The quantiles that are told, and their names.
const TOLD: [(f64, &str); 4] = [(0.5, "p50"), (0.9, "p90"), (0.95, "p95"), (0.99, "p99")];

/// The quantiles of the seconds that these objects took, by linear interpolation; `None` of none.
#[must_use]
pub fn quantiles<'a>(objects: impl Iterator<Item = &'a WebObject>) -> Option<[(&'static str, f64); 4]> {
    let seconds: Vec<f64> = objects.map(|o| o.seconds).collect();
    (!seconds.is_empty()).then(|| TOLD.map(|(q, name)| (name, quantile(&seconds, q))))
}

/// A line for each traffic that has any.
#[must_use]
pub fn lines(s: &Scenario, objects: &[(usize, u32, WebObject)]) -> String {
    let mut out = String::new();
    for (i, traffic) in s.traffic.iter().enumerate() {
        let own = || objects.iter().filter(|o| o.0 == i).map(|o| &o.2);
        let Some(all) = quantiles(own()) else { continue };
        let told: Vec<String> = all.iter().map(|(name, s)| format!("{name} {:.1}", s * 1e3)).collect();
        let _ = writeln!(out, "  {}: {} objects, ms: {}", traffic.name, own().count(), told.join(", "));
    }
    out
}

/// The file of all of them, times from `start`; `label` names a flow.
#[must_use]
pub fn csv(objects: &[(usize, u32, WebObject)], start: Instant, label: impl Fn(usize, u32) -> String) -> String {
    let mut out = "flow,asked_s,seconds,bytes\n".to_owned();
    for (traffic, flow, o) in objects {
        let asked = (o.asked - start).as_secs_f64();
        let _ = writeln!(out, "{},{asked},{},{}", label(*traffic, *flow), o.seconds, o.bytes);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    fn object(ms: u64) -> WebObject {
        WebObject { asked: Instant::ZERO + Duration::from_secs(3), seconds: ms as f64 / 1e3, bytes: ms * 10 }
    }

    #[test]
    fn quantiles_are_of_what_there_is() {
        let all: Vec<WebObject> = (1..=101).map(object).collect();
        let told = quantiles(all.iter()).expect("some");
        assert_eq!(
            told.map(|(name, s)| (name, (s * 1e3).round())),
            [("p50", 51.0), ("p90", 91.0), ("p95", 96.0), ("p99", 100.0)]
        );
        assert_eq!(quantiles([].iter()), None);
        let rows = [(0, 2, object(7))];
        let text = csv(&rows, Instant::ZERO + Duration::from_secs(1), |t, f| format!("web{t}.{f}"));
        assert_eq!(text, "flow,asked_s,seconds,bytes\nweb0.2,2,0.007,70\n");
    }
}
