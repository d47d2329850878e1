//! The tables of the founding document, and ours beside them.

use super::Scenario;
use super::attempt::{Course, Result3};
use crate::measure::{Result, failed};
use serde::Deserialize;

const PUBLISHED: &str = include_str!("../../../data/f3-published.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    places: Vec<String>,
    table: Vec<Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    name: String,
    rows: Vec<(String, String, String)>,
}

/// A cell as it was published, and ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) workload: String,
    pub(super) network: String,
    pub(super) place: String,
    pub(super) published: Result3,
    pub(super) ours: Result3,
    /// Where the two differ: why.
    pub(super) why: Option<String>,
}

/// Compares a course of the day with the scenario's table, cell by cell.
pub(super) fn compare(scenario: &Scenario, course: &Course) -> Result<Vec<Cell>> {
    let file: File = match toml::from_str(PUBLISHED) {
        Ok(file) => file,
        Err(e) => return failed(format!("data/f3-published.toml: {e}")),
    };
    let Some(table) = file.table.iter().find(|t| t.name == scenario.table) else {
        return failed(format!("data/f3-published.toml has no {}", scenario.table));
    };
    let mut cells = Vec::new();
    for (workload, network, row) in &table.rows {
        let letters: Vec<&str> = row.split_whitespace().collect();
        if letters.len() != file.places.len() {
            return failed(format!("data/f3-published.toml, {}: {row:?} has not as many places", table.name));
        }
        for (place, letter) in file.places.iter().zip(letters) {
            let published = match letter {
                "S" => Result3::Success,
                "F" => Result3::Fail,
                "-" => Result3::NotAttempted,
                other => return failed(format!("data/f3-published.toml: {other:?} is no result")),
            };
            let ours = course.result(workload, network, place);
            let why =
                (ours != published).then(|| because(scenario, course, (workload, network, place), published, ours));
            let (workload, network, place) = (workload.clone(), network.clone(), place.clone());
            cells.push(Cell { workload, network, place, published, ours, why });
        }
    }
    Ok(cells)
}

/// Why ours differs, from what was seen and from the rules that the document states in words.
fn because(
    scenario: &Scenario,
    course: &Course,
    (workload, network, place): (&str, &str, &str),
    published: Result3,
    ours: Result3,
) -> String {
    let seen = course.attempts.iter().find(|a| (&*a.workload, &*a.network, &*a.place) == (workload, network, place));
    let took =
        seen.map_or_else(String::new, |a| format!(" (after {:.1} s, {:.2} MB)", a.seconds, a.bytes as f64 / 1e6));
    let done = course.attempts.iter().find(|a| a.workload == workload && a.result == Result3::Success);
    match (ours, done) {
        (Result3::NotAttempted, Some(done)) => format!(
            "it had succeeded over {} ({}) by then, and by the document's own rules a second network is tried only if the first \
             was unsuccessful, and what has succeeded is not tried again",
            done.network, done.place
        ),
        (Result3::NotAttempted, None) if scenario.domains => {
            "what the networks there say of themselves does not meet what it requires".into()
        }
        (Result3::NotAttempted, None) => "its turn did not come".into(),
        (_, _) if published == Result3::NotAttempted && !scenario.domains => format!(
            "without provisioning domains nothing tells the host not to try what has not succeeded yet; the document has it not \
             attempted and gives no reason{took}"
        ),
        (Result3::Success, _) => format!("the network let it through and was quick enough{took}"),
        (Result3::Fail, _) => format!("it was not done within the limit{took}"),
    }
}
