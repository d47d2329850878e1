//! F3: provisioning domains. A day of four workloads at four places, with one network, with two, and with two that say what they
//! are; compared with the founding document's tables cell by cell.
//!
//! *Responsible for* the day as data ([`day`]), each place as a network ([`network`]), what became of each attempt
//! ([`attempt`]) and the published tables beside it ([`tables`]). *Invariant*: no code here knows a place, a network, a
//! workload or a cell.

mod attempt;
mod day;
mod network;
mod tables;

use super::{Lab, Outcome};
use crate::measure::Result;
use crate::plot::{Box3, Fill, Grid, Panel};
use crate::report::record::Beside;
use crate::report::{Bound, Figure};
use attempt::{Course, Result3};
use day::Day;
use std::collections::BTreeMap;
use std::path::Path;
use tables::Cell;

const SOURCE: &str = "NEAT, Validation and Evaluation Results, 2018";

/// A deployment scenario (section 2.2.1).
struct Scenario {
    id: &'static str,
    title: &'static str,
    table: &'static str,
    /// How many networks the host has.
    networks: usize,
    /// Whether they say what they are, and the host listens.
    domains: bool,
}

const SCENARIOS: [Scenario; 3] = [
    Scenario { id: "one", title: "one network", table: "table 11", networks: 1, domains: false },
    Scenario { id: "two", title: "two networks", table: "table 12", networks: 2, domains: false },
    Scenario {
        id: "domains",
        title: "two networks with provisioning domains",
        table: "table 13",
        networks: 2,
        domains: true,
    },
];

/// What one day comes to, by the name of the figure.
fn figures_of(day: &Day, course: &Course, cells: &[Cell]) -> [(&'static str, &'static str, f64); 5] {
    let doomed = || course.attempts.iter().filter(|a| a.result == Result3::Fail);
    let done = day
        .workloads
        .iter()
        .filter(|w| course.attempts.iter().any(|a| a.workload == w.name && a.result == Result3::Success));
    [
        ("doomed_attempts", "attempts", doomed().count() as f64),
        ("doomed_mb", "MB", doomed().map(|a| a.bytes).sum::<u64>() as f64 / 1e6),
        ("workloads_done", "workloads", done.count() as f64),
        ("day_seconds", "s", course.places.iter().sum()),
        ("cells_as_published", "cells", cells.iter().filter(|c| c.ours == c.published).count() as f64),
    ]
}

pub(super) fn run(lab: &Lab) -> Result<Outcome> {
    // In memory, where there is such a folder: a browser does not wait for the disk after each object, and neater get does.
    let memory = Path::new("/dev/shm");
    let scratch = if memory.is_dir() { memory } else { &lab.scratch };
    let scratch = scratch.join(format!("neater-f3-{}", std::process::id()));
    let outcome = days_of(lab, &scratch);
    let _ = std::fs::remove_dir_all(&scratch);
    outcome
}

fn days_of(lab: &Lab, scratch: &Path) -> Result<Outcome> {
    let day = Day::read()?;
    let days = lab.seeds.unwrap_or(if lab.quick { 1 } else { 5 });
    let mut out = Outcome { runs: Some(days), ..Outcome::default() };
    // A quick look is at what neater does with what networks say: days without that take four minutes to go wrong.
    let looked_at = |s: &&Scenario| lab.is_wanted(s.id) && (s.domains || !lab.quick || lab.only.is_some());
    for scenario in SCENARIOS.iter().filter(looked_at) {
        let (mut courses, mut all_cells, mut values) = (Vec::new(), Vec::new(), BTreeMap::<&str, Vec<f64>>::new());
        for run in 0..days {
            let seed = lab.seed.wrapping_mul(1009).wrapping_add(run as u64 * 16);
            let course = attempt::day(lab, &day, scenario, seed, scratch)?;
            let cells = tables::compare(scenario, &course)?;
            for (name, _, value) in figures_of(&day, &course, &cells) {
                out.sample(name, scenario.title, scenario.id, run, value);
                values.entry(name).or_default().push(value);
            }
            for a in &course.attempts {
                let variant = format!("{}: {}, {}, {}", scenario.id, a.workload, a.network, a.place);
                out.sample("attempt_seconds", a.result.words(), &variant, run, a.seconds);
                out.sample("attempt_began", a.result.words(), &variant, run, a.began);
                out.sample("attempt_mb", a.result.words(), &variant, run, a.bytes as f64 / 1e6);
            }
            courses.push(course);
            all_cells.push(cells);
        }
        let (Some(course), Some(cells)) = (courses.first(), all_cells.first()) else { continue };
        for (name, unit, _) in figures_of(&day, course, cells) {
            let of = &values[name];
            let mean = of.iter().sum::<f64>() / of.len() as f64;
            let figure = Figure::new("F3", name, scenario.id, unit).value(mean, days);
            let figure = figure.with("least", of.iter().copied().fold(f64::INFINITY, f64::min));
            let figure = figure.with("most", of.iter().copied().fold(f64::NEG_INFINITY, f64::max));
            let figure = match name {
                "doomed_attempts" if scenario.domains => figure.judge(Bound::AtMost(0.0)).published("0"),
                "workloads_done" if scenario.domains => figure.judge(Bound::AtLeast(day.workloads.len() as f64)),
                "cells_as_published" => figure.with("cells", cells.len() as u64),
                _ => figure,
            };
            out.figures.push(figure);
        }
        beside(&mut out, scenario, cells, &all_cells);
        out.panels.push(Panel::Grid(grid(&day, scenario, course, cells)));
    }
    Ok(out)
}

/// Each cell where the first day differs from the document, and in how many days it was so.
fn beside(out: &mut Outcome, scenario: &Scenario, cells: &[Cell], days: &[Vec<Cell>]) {
    for (i, cell) in cells.iter().enumerate() {
        let alike = days.iter().filter(|d| d.get(i).is_some_and(|c| c.ours == cell.ours)).count();
        if cell.why.is_none() && alike == days.len() {
            continue;
        }
        let why = cell.why.as_deref().unwrap_or("other days differ");
        let often = if alike < days.len() { format!(" ({alike} of {} days)", days.len()) } else { String::new() };
        out.beside.push(Beside {
            what: format!("{}: {}, {}, {}", scenario.title, cell.workload, cell.network, cell.place),
            published: cell.published.words().into(),
            ours: format!("{}{often}: {why}", cell.ours.words()),
            source: format!("{SOURCE}, {}", scenario.table),
        });
    }
    let same = cells.iter().filter(|c| c.why.is_none()).count();
    let all = cells.len();
    out.remarks.push(format!("{} ({}): {same} of {all} cells as published", scenario.title, scenario.table));
}

/// The dependency plot (figures 5 to 7).
fn grid(day: &Day, scenario: &Scenario, course: &Course, cells: &[Cell]) -> Grid {
    let columns: Vec<(String, Vec<String>)> = day
        .places
        .iter()
        .map(|p| (p.name.clone(), p.networks.iter().take(scenario.networks).map(|n| n.name.clone()).collect()))
        .collect();
    let rows = day.workloads.iter().map(|workload| {
        let boxes = columns.iter().flat_map(|(place, names)| names.iter().map(move |name| (place, name)));
        let boxes = boxes.map(|(place, name)| {
            let of = |a: &&attempt::Attempt| a.workload == workload.name && a.network == *name && a.place == *place;
            let seen = course.attempts.iter().find(of);
            let differs = cells
                .iter()
                .any(|c| (&c.workload, &c.network, &c.place) == (&workload.name, name, place) && c.why.is_some());
            let mark = if differs { " *" } else { "" };
            let fill = match seen.map(|a| a.result) {
                Some(Result3::Success) => Fill::Good,
                Some(Result3::Fail) => Fill::Bad,
                Some(Result3::NotAttempted) | None => Fill::Empty,
            };
            let text = seen.map_or_else(String::new, |a| format!("{:.1} s", a.seconds));
            Box3 { fill, text: format!("{text}{mark}").trim().to_owned() }
        });
        (workload.name.clone(), boxes.collect())
    });
    Grid { title: format!("{} ({})", scenario.title, scenario.table), rows: rows.collect(), columns }
}
