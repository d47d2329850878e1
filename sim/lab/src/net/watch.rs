//! What the links carried over time, while a command ran: a table and a drawing.

use crate::timeline::{self, Course};
use neater_emulator::{Lab, LinkReport, LiveError, Result};
use neater_scenario::Scenario;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How often the links are asked, at first.
const INTERVAL: Duration = Duration::from_millis(100);
/// The most counters of a link at a time that are kept: some 50 MB. When there are more, the links are asked half as often, and
/// the whole run is kept at that: with two links after 110 minutes, with a hundred after two.
const ROWS_MAX: usize = 1 << 18;

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
            let mut interval = INTERVAL;
            let mut next = Instant::now();
            loop {
                // A link that cannot be asked is told about when the run is over: its record fails for the same reason.
                if let Ok(links) = lab.links() {
                    course.push(Seen { at: lab.elapsed().as_secs_f64(), links });
                    while thin(&mut course, ROWS_MAX) {
                        interval *= 2;
                    }
                }
                next += interval;
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

/// Forgets every second sample if there are more rows than so many. True if it did.
fn thin(course: &mut Vec<Seen>, rows: usize) -> bool {
    let many = course.len() > 2 && course.iter().map(|s| s.links.len()).sum::<usize>() > rows;
    if many {
        let mut n = 0usize;
        course.retain(|_| {
            n += 1;
            n % 2 == 1
        });
    }
    many
}

/// Writes `links.csv` and `timeline.svg` and `.png`.
pub(super) fn keep(dir: &Path, scenario: &Scenario, course: &[Seen]) -> Result<()> {
    if course.len() < 2 {
        return Ok(());
    }
    let mut csv =
        String::from("time_s,link,from,to,offered,delivered,delivered_bytes,queue_full,managed,marked,lost,other\n");
    let mut subjects: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for seen in course {
        for l in &seen.links {
            let _ = writeln!(
                csv,
                "{:.6},{},{},{},{},{},{},{},{},{},{},{}",
                seen.at,
                l.link,
                l.from,
                l.to,
                l.offered,
                l.delivered,
                l.delivered_bytes,
                l.queue_full,
                l.managed,
                l.marked,
                l.lost,
                l.other
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
    let about = format!(
        "Scenario {} in the lab; IP packets, sampled every {} ms or, in a long run, less often.",
        scenario.name,
        INTERVAL.as_millis()
    );
    let drawing = timeline::drawing(
        &format!("{}: the course of the run", scenario.name),
        &about,
        vec![links],
        &timeline::changes(scenario),
    );
    let written = std::fs::write(dir.join("links.csv"), csv).and_then(|()| timeline::write(dir, "timeline", &drawing));
    written.map_err(|e| LiveError::Failed(format!("{}: {e}", dir.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_is_kept_from_its_start_to_its_end_in_bounded_room() {
        let link = LinkReport {
            link: "middle".into(),
            from: "left".into(),
            to: "right".into(),
            offered: 1,
            delivered: 1,
            delivered_bytes: 1500,
            lost: 0,
            queue_full: 0,
            managed: 0,
            marked: 0,
            other: 0,
        };
        let (mut course, mut interval, mut at) = (Vec::new(), 1u32, 0u32);
        while at < 10_000 {
            course.push(Seen { at: f64::from(at), links: vec![link.clone(); 2] });
            while thin(&mut course, 64) {
                interval *= 2;
            }
            assert!(course.len() * 2 <= 64);
            at += interval;
        }
        assert_eq!(course[0].at, 0.0);
        assert!(course.len() >= 16 && course.last().is_some_and(|s| s.at > 9_000.0), "{}", course.len());
        // However many links there are, there is something to draw.
        let mut wide = vec![Seen { at: 0.0, links: vec![link; 100] }; 2];
        assert!(!thin(&mut wide, 64) && wide.len() == 2);
    }
}
