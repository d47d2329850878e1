//! Many runs, some of them at once, in an order that serves whoever interrupts: first one run of everything, then a second.
//!
//! *Invariants*: what the journal has is not made again; runs at once are at most so many as asked for, and together need
//! no more than the machine has; a run that fails is a row with its reason, and the others go on.

use super::journal::{Journal, Key};
use super::progress::Bar;
use crate::measure::{MeasureError, Result};
use neater_base::Rng;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};

/// One run to be made.
#[derive(Clone, Debug)]
pub struct Task {
    /// Which.
    pub key: Key,
    /// The part of the machine that it needs: runs whose sum is at most 1 are made at once.
    pub weight: f64,
    /// How long it takes, in seconds, more or less: for the time left.
    pub seconds: f64,
}

/// What came of a grid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// Runs that were in the journal.
    pub before: usize,
    /// Runs made now.
    pub now: usize,
    /// Why runs failed, each reason once.
    pub failures: Vec<String>,
}

struct State<'a> {
    waiting: VecDeque<Task>,
    running: usize,
    weight: f64,
    journal: &'a mut Journal,
    made: Made,
    broken: Option<MeasureError>,
}

/// Makes all runs that the journal has not, at most `jobs` at once.
///
/// # Errors
/// The journal cannot be written, or a tool is missing.
pub fn run(
    what: &str,
    journal: &mut Journal,
    tasks: Vec<Task>,
    jobs: usize,
    rng: &mut Rng,
    measure: &(dyn Fn(&Key) -> Result<Vec<f64>> + Sync),
) -> Result<Made> {
    let all = tasks.len();
    let mut waiting: Vec<Task> = tasks.into_iter().filter(|t| journal.get(&t.key).is_none()).collect();
    let before = all - waiting.len();
    // What changes on the machine over time must not meet one series more than another.
    rng.shuffle(&mut waiting);
    waiting.sort_by_key(|t| t.key.seed);
    let bar = Bar::new(what, waiting.iter().map(|t| t.seconds).sum());
    if before > 0 {
        bar.note(&format!("{what}: {before} of {all} runs were made before; --fresh makes them again"));
    }
    let made = Made { before, ..Made::default() };
    let workers = jobs.clamp(1, waiting.len().max(1));
    let state = State { waiting: waiting.into(), running: 0, weight: 0.0, journal, made, broken: None };
    let (state, changed) = (Mutex::new(state), Condvar::new());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| work(&state, &changed, &bar, measure));
        }
    });
    let mut state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
    bar.finish();
    state.made.failures.sort_unstable();
    state.made.failures.dedup();
    state.broken.map_or(Ok(state.made), Err)
}

fn work(state: &Mutex<State<'_>>, changed: &Condvar, bar: &Bar, measure: &(dyn Fn(&Key) -> Result<Vec<f64>> + Sync)) {
    let mut s = state.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if s.broken.is_some() || s.waiting.is_empty() {
            return;
        }
        // The first in order that there is room for; what needs the whole machine waits until it is free.
        let room = 1.0 - s.weight;
        let fits = |t: &Task| t.weight.min(1.0) <= room + 1e-9;
        let next = if s.running == 0 { Some(0) } else { s.waiting.iter().position(fits).filter(|i| *i < 64) };
        let Some(task) = next.and_then(|i| s.waiting.remove(i)) else {
            s = changed.wait(s).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        s.running += 1;
        s.weight += task.weight.min(1.0);
        drop(s);
        let outcome = measure(&task.key);
        s = state.lock().unwrap_or_else(PoisonError::into_inner);
        s.running -= 1;
        s.weight -= task.weight.min(1.0);
        bar.done(task.seconds);
        s.take(task, outcome, bar);
        changed.notify_all();
    }
}

impl State<'_> {
    fn take(&mut self, task: Task, outcome: Result<Vec<f64>>, bar: &Bar) {
        let outcome = match outcome {
            Err(e @ MeasureError::MissingTool { .. }) => {
                self.broken.get_or_insert(e);
                return;
            }
            Err(e) => {
                let Key { scenario, series, seed } = &task.key;
                bar.note(&format!("failed: {series}, {scenario}, seed {seed}: {e}"));
                self.made.failures.push(format!("{series}, {scenario}: {e}"));
                Err(e.to_string())
            }
            Ok(values) => {
                self.made.now += 1;
                Ok(values)
            }
        };
        if let Err(e) = self.journal.add(task.key, &outcome) {
            self.broken.get_or_insert(e);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    fn tasks(weight: f64) -> Vec<Task> {
        (1..=2)
            .flat_map(|seed| (0..6).map(move |i| (seed, i)))
            .map(|(seed, i)| Task {
                key: Key { scenario: format!("n={i}"), series: "s".into(), seed },
                weight,
                seconds: 1.0,
            })
            .collect()
    }

    fn with_journal(name: &str, test: impl FnOnce(&mut Journal)) {
        let path = std::env::temp_dir().join(format!("neater-grid-{}-{name}.csv", std::process::id()));
        let _ = std::fs::remove_file(&path);
        test(&mut Journal::open(&path, "v", &["x"], false).expect("opens"));
        let _ = std::fs::remove_file(&path);
    }

    #[test]
    fn every_run_is_made_once_by_seed_and_a_failed_one_again() {
        with_journal("once", |journal| {
            let order = Mutex::new(Vec::new());
            let measure = |k: &Key| {
                order.lock().expect("unpoisoned").push(k.seed);
                if k.scenario == "n=3" { Err(MeasureError::Failed("broke".into())) } else { Ok(vec![1.0]) }
            };
            let mut rng = Rng::from_number(1);
            let made = run("t", journal, tasks(1.0), 1, &mut rng, &measure).expect("runs");
            assert_eq!((made.before, made.now), (0, 10));
            assert_eq!(made.failures, ["s, n=3: broke"]);
            let seeds = order.lock().expect("unpoisoned").clone();
            assert!(seeds.is_sorted() && seeds.len() == 12, "{seeds:?}");
            let made = run("t", journal, tasks(1.0), 1, &mut rng, &|_| Ok(vec![2.0])).expect("runs");
            assert_eq!((made.before, made.now), (10, 2));
        });
    }

    #[test]
    fn runs_at_once_are_bounded_by_jobs_and_by_weight() {
        for (weight, jobs, most) in [(0.01, 3, 3), (0.5, 8, 2), (1.0, 8, 1), (7.0, 8, 1)] {
            with_journal(&format!("bound-{weight}"), |journal| {
                let (now, peak) = (AtomicUsize::new(0), AtomicUsize::new(0));
                let measure = |_: &Key| {
                    peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(20));
                    now.fetch_sub(1, Ordering::SeqCst);
                    Ok(vec![1.0])
                };
                run("t", journal, tasks(weight), jobs, &mut Rng::from_number(1), &measure).expect("runs");
                assert_eq!(peak.load(Ordering::SeqCst), most, "weight {weight}, {jobs} jobs");
            });
        }
    }

    #[test]
    fn a_missing_tool_ends_the_grid() {
        with_journal("tool", |journal| {
            let missing = || MeasureError::MissingTool { tool: "nginx".into(), package: "nginx-light".into() };
            let error = run("t", journal, tasks(1.0), 2, &mut Rng::from_number(1), &|_| Err(missing()));
            assert_eq!(error, Err(missing()));
        });
    }
}
