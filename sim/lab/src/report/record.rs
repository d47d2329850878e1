//! What a run leaves behind for the report: a description of the experiment as it was measured, in `experiment.json`.

use crate::runner::environment::Environment;
use serde::{Deserialize, Serialize};

/// A published result beside ours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beside {
    /// What is compared.
    pub what: String,
    /// What was published.
    pub published: String,
    /// What we measured; empty when it was not measured in this run.
    pub ours: String,
    /// Where it was published.
    pub source: String,
}

/// A metric of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricRecord {
    /// Its name in the figures.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// What it is held against, in words.
    pub bound: String,
    /// How it is drawn.
    pub drawn: String,
}

/// A drawing that was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrawingRecord {
    /// Its file, without its ending.
    pub file: String,
    /// What it shows.
    pub title: String,
    /// What a reader must know.
    pub caption: String,
}

/// An experiment as it was run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// Its id.
    pub id: String,
    /// What it is about.
    pub title: String,
    /// What was asked.
    pub asked: String,
    /// How it was measured.
    pub method: String,
    /// Under which conditions.
    pub parameters: Vec<(String, String)>,
    /// What was measured.
    pub metrics: Vec<MetricRecord>,
    /// What was published, beside ours.
    pub beside: Vec<Beside>,
    /// What a reader must know of this run: differences explained, runs that failed.
    pub remarks: Vec<String>,
    /// Whether it was the quick form.
    pub quick: bool,
    /// The seed.
    pub seed: u64,
    /// Runs of each point, if the experiment counts them so.
    pub runs: Option<usize>,
    /// The command that makes it again.
    pub command: String,
    /// When it began, in seconds since 1970.
    pub started: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// The build of the programs.
    pub version: String,
    /// Drawings, in order.
    pub drawings: Vec<DrawingRecord>,
    /// Files of raw data.
    pub raw: Vec<String>,
    /// What it was measured on.
    pub environment: Environment,
}
