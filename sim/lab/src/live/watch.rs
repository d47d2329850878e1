//! What the links carried over time, while a command ran: a table and a drawing.

use super::error::{Result, failed};
use super::lab::{Lab, LinkReport};
use crate::timeline::{self, Course};
use neater_scenario::Scenario;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How often the links are asked.
const INTERVAL: Duration = Duration::from_millis(100);
/// The most samples that are kept: a day.
const SAMPLES_MAX: usize = 864_000;

/// The counters of all links at a time, in seconds from the start of the schedules.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    at: f64,
    links: Vec<LinkReport>,
}

/// Does something, and watches the links meanwhile.
pub(super) fn while_running<T>(lab: &Lab, work: impl FnOnce() -> Result<T>) -> Result<(T, Vec<Seen>)> {
    let (stop, stopped) = channel::<()>();
    std::thread::scope(|scope| {
        let watcher = scope.spawn(move || {
            let mut course = Vec::new();
            let mut next = Instant::now();
            loop {
                // A link that cannot be asked is told about when the run is over: its record fails for the same reason.
                if let Ok(links) = lab.links()
                    && course.len() < SAMPLES_MAX
                {
                    course.push(Seen { at: lab.elapsed().as_secs_f64(), links });
                }
                next += INTERVAL;
                match stopped.recv_timeout(next.saturating_duration_since(Instant::now())) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => return course,
                }
            }
        });
        let done = work();
        drop(stop);
        let course = watcher.join().unwrap_or_default();
        Ok((done?, course))
    })
}

/// Writes `links.csv` and `timeline.svg` and `.png`.
pub(super) fn keep(dir: &Path, scenario: &Scenario, course: &[Seen]) -> Result<()> {
    if course.len() < 2 {
        return Ok(());
    }
    let mut csv = String::from("time_s,link,from,to,offered,delivered,delivered_bytes,queue_full,lost,other\n");
    let mut subjects: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for seen in course {
        for l in &seen.links {
            let _ = writeln!(
                csv,
                "{:.6},{},{},{},{},{},{},{},{},{}",
                seen.at, l.link, l.from, l.to, l.offered, l.delivered, l.delivered_bytes, l.queue_full, l.lost, l.other
            );
        }
    }
    for pair in course.windows(2) {
        for (before, now) in pair[0].links.iter().zip(&pair[1].links) {
            let seconds = (pair[1].at - pair[0].at).max(1e-3);
            let mbit = now.delivered_bytes.saturating_sub(before.delivered_bytes) as f64 * 8e-6 / seconds;
            subjects.entry(format!("{}: {} to {}", now.link, now.from, now.to)).or_default().push((pair[1].at, mbit));
        }
    }
    subjects.retain(|_, values| values.iter().any(|v| v.1 > 0.0));
    let links = Course { title: "What links delivered".into(), axis: ("rate".into(), "Mbit/s".into()), subjects };
    let about =
        format!("Scenario {} in the lab; IP packets, sampled every {} ms.", scenario.name, INTERVAL.as_millis());
    let drawing = timeline::drawing(
        &format!("{}: the course of the run", scenario.name),
        &about,
        vec![links],
        &timeline::changes(scenario),
    );
    let written = std::fs::write(dir.join("links.csv"), csv).and_then(|()| timeline::write(dir, "timeline", &drawing));
    written.or_else(|e| failed(&dir.display().to_string(), e))
}
