//! Seeds: which ones a test runs with, and what a failing one prints.
//!
//! *Responsible for* `SIM_SEED` (one seed, to replay), `SIM_SEEDS` (how many) and the line that replays a failure. *Not
//! for* what a seed means.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Replays one seed: `SIM_SEED=17 cargo test -p neater-testkit --test all pair`.
pub const SEED: &str = "SIM_SEED";
/// Sets how many seeds a test with many of them runs.
pub const SEEDS: &str = "SIM_SEEDS";

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    match text.parse() {
        Ok(n) => Some(n),
        Err(_) => panic!("{name}={text} is not a number"),
    }
}

/// Runs `run` with the seed in [`SEED`], or else with as many seeds as [`SEEDS`] or `usual` says, counted from 0.
///
/// # Panics
/// With the first run that panics, after printing its seed and the command that replays it.
pub fn for_each_seed(file: &str, test: &str, usual: u64, mut run: impl FnMut(u64)) {
    let seeds = match number(SEED) {
        Some(seed) => seed..seed.saturating_add(1),
        None => 0..number(SEEDS).unwrap_or(usual),
    };
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
            eprintln!(
                "{test}: seed {seed} failed. Replay: {SEED}={seed} cargo test -p neater-testkit --test all {file}::{test}"
            );
            resume_unwind(panic);
        }
    }
}

/// As [`for_each_seed`], for a test that needs few seeds: they are not multiplied by [`SEEDS`].
///
/// # Panics
/// As [`for_each_seed`].
pub fn with_seeds(file: &str, test: &str, seeds: u64, mut run: impl FnMut(u64)) {
    let only = number(SEED);
    for seed in only.map_or(0..seeds, |s| s..s.saturating_add(1)) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
            eprintln!(
                "{test}: seed {seed} failed. Replay: {SEED}={seed} cargo test -p neater-testkit --test all {file}::{test}"
            );
            resume_unwind(panic);
        }
    }
}
