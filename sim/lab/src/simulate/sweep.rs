//! Many runs of a scenario: over seeds and over values of its parameters, on some threads, resumable.
//!
//! Each run is a world of its own, so runs disturb each other in nothing but time. A run is known by its overrides and its
//! seed; what has been run is kept in a table that is read again when the sweep is repeated, and belongs to one text of the
//! scenario and one version of the program ([`Sweep::identity`]).

use crate::source::Source;
use neater_netsim::FlowStats;
use neater_scenario::{Scenario, ScenarioError};
use neater_testkit::Programs;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// The most runs of one sweep.
pub const MAX_RUNS: usize = 1_000_000;

/// A key and the values that it takes, one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// As for `--set`.
    pub key: String,
    /// As for `--set`.
    pub values: Vec<String>,
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The scenario.
    pub source: Source,
    /// Overrides that hold for all runs.
    pub set: Vec<(String, String)>,
    /// All combinations of their values are run.
    pub axes: Vec<Axis>,
    /// The first seed.
    pub seed: u64,
    /// How many seeds at each combination.
    pub seeds: u32,
    /// Runs at once.
    pub jobs: usize,
}

/// What one traffic of one run came to, all its flows together.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The values of the axes.
    pub point: Vec<String>,
    /// The seed.
    pub seed: u64,
    /// The traffic.
    pub traffic: String,
    /// Application data delivered, in Mbit/s, measured.
    pub goodput_mbit: f64,
    /// Mean round trip in milliseconds, measured.
    pub rtt_ms: Option<f64>,
    /// Datagrams lost of those sent, measured; `None` for TCP.
    pub loss: Option<f64>,
    /// Segments sent again, measured; `None` where there are none, or they are not known.
    pub retransmits: Option<u64>,
    /// Web: mean time of an object in milliseconds.
    pub object_ms: Option<f64>,
    /// Connections that failed.
    pub failures: u64,
    /// The digest of the run: equal for equal runs.
    pub digest: u64,
}

/// A mean with its interval of 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// Half the width of the interval, by Student's t; a single run has none.
    pub half: Option<f64>,
    /// How many runs.
    pub runs: usize,
}

/// The mean of some runs and its interval of 95 %; `None` without runs.
#[must_use]
pub fn mean(values: &[f64]) -> Option<Mean> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let half = || {
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
        student(values.len() - 1) * (variance / n).sqrt()
    };
    (!values.is_empty()).then(|| Mean { mean, half: (values.len() > 1).then(half), runs: values.len() })
}

/// Whether there are several runs and all came to the same: nothing that matters in them is random, and an interval of no width would
/// say that much is known of chance.
pub fn are_alike<'a>(rows: impl IntoIterator<Item = &'a Row>) -> bool {
    let (mut seeds, mut first) = (HashSet::new(), HashMap::new());
    let same = rows.into_iter().all(|r| {
        seeds.insert(r.seed);
        let values = (r.goodput_mbit.to_bits(), r.rtt_ms.map(f64::to_bits), r.loss.map(f64::to_bits), r.retransmits);
        *first.entry(r.traffic.as_str()).or_insert(values) == values
    });
    same && seeds.len() > 1
}

/// The mean of one of the values of some runs at one point; without an interval if [`are_alike`].
#[must_use]
pub fn mean_of(rows: &[&Row], pick: fn(&Row) -> Option<f64>) -> Option<Mean> {
    let all: Vec<f64> = rows.iter().filter_map(|r| pick(r)).collect();
    let alike = are_alike(rows.iter().copied());
    mean(&all).map(|m| Mean { half: m.half.filter(|_| !alike), ..m })
}

/// The 97.5 % quantile of Student's t. Beyond the table: the expansion of Cornish and Fisher (1938) to the second term.
fn student(freedom: usize) -> f64 {
    const TABLE: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    let (z, f) = (1.959_964_f64, freedom as f64);
    TABLE.get(freedom.wrapping_sub(1)).copied().unwrap_or_else(|| {
        let g1 = (z.powi(3) + z) / 4.0;
        let g2 = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
        z + g1 / f + g2 / (f * f)
    })
}

/// Why a sweep failed.
#[derive(Debug)]
pub enum SweepError {
    /// The scenario makes no sense, perhaps at one of the points only.
    Scenario(ScenarioError),
    /// It cannot be built or is too much.
    Plan(String),
    /// The table cannot be read or written.
    Io(io::Error),
}

impl core::fmt::Display for SweepError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Scenario(e) => e.fmt(f),
            Self::Plan(e) => f.write_str(e),
            Self::Io(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for SweepError {}

impl From<io::Error> for SweepError {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

impl Sweep {
    /// The combinations of the axes, the last changing fastest.
    #[must_use]
    pub fn points(&self) -> Vec<Vec<String>> {
        self.axes.iter().fold(vec![Vec::new()], |points, axis| {
            let longer = |p: &Vec<String>| {
                axis.values.iter().map(|v| p.iter().cloned().chain([v.clone()]).collect()).collect::<Vec<_>>()
            };
            points.iter().flat_map(longer).collect()
        })
    }

    /// The scenario at a point.
    ///
    /// # Errors
    /// As [`Scenario::parse`].
    pub fn scenario(&self, point: &[String]) -> Result<Scenario, SweepError> {
        let own = self.axes.iter().zip(point).map(|(a, v)| (a.key.clone(), v.clone()));
        let set: Vec<_> = self.set.iter().cloned().chain(own).collect();
        self.source.parse(&set).map_err(SweepError::Scenario)
    }

    /// A hash of the scenario's text and of the files it has read, the overrides, the axes and the program's version: runs of equal
    /// identity can be used together.
    #[must_use]
    pub fn identity(&self, version: &str) -> String {
        let axes: Vec<_> = self.axes.iter().map(|a| a.key.as_str()).collect();
        let mut text = format!("{version}\0{:016x}\0{}", self.source.fingerprint(), axes.join("\0"));
        for (key, value) in &self.set {
            text.push_str(&format!("\0{key}={value}"));
        }
        // FNV-1a (RFC 9923), 64 bits: nobody attacks it here.
        let hash =
            text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        format!("{hash:016x}")
    }

    /// Runs what has not been run, and returns all rows in the order of points and seeds. `table` is the file that keeps
    /// them, if they are to be kept; `progress` is told how many runs are done and how many there are, and returns whether to
    /// go on: if not, the rows so far are returned.
    ///
    /// # Errors
    /// A point whose scenario makes no sense (before anything is run), too many runs, or a table that cannot be written.
    pub fn run(
        &self,
        table: Option<&Path>,
        version: &str,
        mut progress: impl FnMut(usize, usize) -> bool,
    ) -> Result<Vec<Row>, SweepError> {
        let points = self.points();
        let total = points.len().saturating_mul(self.seeds as usize);
        if total > MAX_RUNS {
            return Err(SweepError::Plan(format!("{total} runs are more than {MAX_RUNS}")));
        }
        let scenarios = points.iter().map(|p| self.scenario(p)).collect::<Result<Vec<_>, _>>()?;
        let identity = self.identity(version);
        // Each point by what it says: a table may have as many rows as there may be runs.
        let numbers: HashMap<&[String], usize> = points.iter().enumerate().map(|(n, p)| (p.as_slice(), n)).collect();
        let number = |point: &[String]| numbers.get(point).copied();
        let (mut file, mut rows) = match table {
            Some(path) => self.open(path, &identity, |r| number(&r.point).map_or(0, |p| scenarios[p].traffic.len()))?,
            None => (None, Vec::new()),
        };
        let seeds = self.seed..self.seed.saturating_add(u64::from(self.seeds));
        rows.retain(|r| seeds.contains(&r.seed) && number(&r.point).is_some());
        let there: HashSet<_> = rows.iter().map(|r| (number(&r.point), r.seed)).collect();
        let all = seeds.flat_map(|seed| (0..points.len()).map(move |p| (p, seed)));
        let todo: Vec<_> = all.filter(|(p, seed)| !there.contains(&(number(&points[*p]), *seed))).collect();
        let mut done = total - todo.len();
        if !progress(done, total) {
            return Ok(rows);
        }
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..self.jobs.clamp(1, 1024).min(todo.len()) {
                let (sender, next, stop) = (sender.clone(), &next, &stop);
                let (todo, scenarios, points) = (&todo, &scenarios, &points);
                scope.spawn(move || {
                    while let Some((point, seed)) = todo.get(next.fetch_add(1, Ordering::Relaxed)).copied() {
                        let result = one(&scenarios[point], &points[point], seed, stop);
                        if sender.send(result).is_err() || stop.load(Ordering::Relaxed) {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            for result in receiver {
                let Some(new) = result.inspect_err(|_| stop.store(true, Ordering::Relaxed))? else { continue };
                if let Some(file) = &mut file {
                    let text: String = new.iter().map(Row::to_csv).collect();
                    file.write_all(text.as_bytes()).inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
                }
                rows.extend(new);
                done += 1;
                if !progress(done, total) {
                    stop.store(true, Ordering::Relaxed);
                }
            }
            Ok::<_, SweepError>(())
        })?;
        rows.sort_by_key(|r| (number(&r.point), r.seed));
        Ok(rows)
    }

    /// Opens the table: runs of the same identity that are there with all their rows (`expected` of them) are kept; a
    /// table of another identity is put aside under the name `*.old`.
    fn open(
        &self,
        path: &Path,
        identity: &str,
        expected: impl Fn(&Row) -> usize,
    ) -> Result<(Option<File>, Vec<Row>), SweepError> {
        let head = format!("# {identity}\n{}\n", self.heading());
        let mut old = String::new();
        if let Ok(mut file) = File::open(path) {
            file.read_to_string(&mut old)?;
        }
        let mut rows = Vec::new();
        if let Some(body) = old.strip_prefix(&head) {
            // A number whose last digits were cut off is a number still: a line counts with its end.
            let body = &body[..body.rfind('\n').map_or(0, |i| i + 1)];
            let all: Vec<_> = body.lines().filter_map(|l| Row::parse(l, self.axes.len())).collect();
            // Those of a run whose writing was cut off by the end of the process are made again.
            let mut parts: HashMap<(u64, &[String]), usize> = HashMap::new();
            all.iter().for_each(|r| *parts.entry((r.seed, r.point.as_slice())).or_default() += 1);
            let whole = |r: &&Row| parts.get(&(r.seed, r.point.as_slice())) == Some(&expected(r));
            rows = all.iter().filter(whole).cloned().collect();
        } else if !old.is_empty() {
            std::fs::rename(path, path.with_extension("csv.old"))?;
        }
        let mut file = File::create(path)?;
        let text: String = rows.iter().map(Row::to_csv).collect();
        file.write_all((head + &text).as_bytes())?;
        Ok((Some(file), rows))
    }

    fn heading(&self) -> String {
        let keys: Vec<_> = self.axes.iter().map(|a| quote(&a.key)).collect();
        let own = "seed,traffic,goodput_mbit,rtt_ms,loss,retransmits,object_ms,failures,digest";
        if keys.is_empty() { own.to_owned() } else { format!("{},{own}", keys.join(",")) }
    }
}

/// One run; `None` if it was stopped.
fn one(s: &Scenario, point: &[String], seed: u64, stop: &AtomicBool) -> Result<Option<Vec<Row>>, SweepError> {
    let mut programs = Programs::build(s, seed).map_err(SweepError::Plan)?;
    programs.run(|_| !stop.load(Ordering::Relaxed)).map_err(SweepError::Plan)?;
    if stop.load(Ordering::Relaxed) {
        return Ok(None);
    }
    Ok(Some(rows(&programs, point, seed)))
}

/// The rows of a run that has ended.
#[must_use]
pub fn rows(programs: &Programs, point: &[String], seed: u64) -> Vec<Row> {
    let network = programs.network();
    let s = network.scenario();
    let (flows, digest) = (programs.flows(), network.world.digest());
    let row = |(index, traffic): (usize, &neater_scenario::Traffic)| {
        let own: Vec<&FlowStats> = flows.iter().filter(|f| f.traffic == index).collect();
        let weighted = |pick: fn(&FlowStats) -> neater_netsim::Summary| {
            let count: u64 = own.iter().map(|f| pick(f).count).sum();
            let sum: f64 = own.iter().map(|f| pick(f).mean * pick(f).count as f64).sum();
            (count > 0).then(|| sum / count as f64 * 1e3)
        };
        let together = |(s, r), f: &&FlowStats| (s + f.measured_datagrams.0, r + f.measured_datagrams.1);
        let (sent, received) = own.iter().fold((0, 0), together);
        Row {
            point: point.to_vec(),
            seed,
            traffic: traffic.name.clone(),
            goodput_mbit: own.iter().map(|f| f.goodput(s.duration)).sum::<f64>() / 1e6,
            rtt_ms: weighted(|f| f.rtt),
            loss: (sent > 0).then(|| 1.0 - received as f64 / sent as f64),
            retransmits: own.iter().map(|f| f.retransmits).sum(),
            object_ms: weighted(|f| f.object_time),
            failures: own.iter().map(|f| f.failures).sum(),
            digest,
        }
    };
    s.traffic.iter().enumerate().map(row).collect()
}

fn quote(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

/// A cell that may be empty; `None` if it holds something else.
#[allow(clippy::option_option, reason = "a cell may be wrong, empty or a number")]
fn known<T: core::str::FromStr>(cell: &str) -> Option<Option<T>> {
    if cell.is_empty() { Some(None) } else { cell.parse().ok().map(Some) }
}

impl Row {
    fn to_csv(&self) -> String {
        let mut cells: Vec<String> = self.point.iter().map(|v| quote(v)).collect();
        cells.extend([self.seed.to_string(), self.traffic.clone()]);
        let known = |value: Option<f64>| value.map_or(String::new(), |v| v.to_string());
        cells.extend([self.goodput_mbit.to_string(), known(self.rtt_ms), known(self.loss)]);
        cells.extend([self.retransmits.map_or(String::new(), |n| n.to_string()), known(self.object_ms)]);
        cells.push(self.failures.to_string());
        cells.push(format!("{:016x}", self.digest));
        cells.join(",") + "\n"
    }

    fn parse(line: &str, axes: usize) -> Option<Self> {
        let mut cells = Vec::new();
        let mut rest = line;
        while !rest.is_empty() {
            if let Some(quoted) = rest.strip_prefix('"') {
                let mut end = 0;
                while let Some(at) = quoted[end..].find('"') {
                    end += at;
                    if !quoted[end + 1..].starts_with('"') {
                        break;
                    }
                    end += 2;
                }
                cells.push(quoted.get(..end)?.replace("\"\"", "\""));
                rest = quoted.get(end + 1..)?;
                rest = rest.strip_prefix(',').unwrap_or(rest);
            } else {
                let (cell, after) = rest.split_once(',').unwrap_or((rest, ""));
                cells.push(cell.to_owned());
                rest = after;
            }
        }
        if cells.len() != axes + 9 {
            return None;
        }
        let own = cells.split_off(axes);
        Some(Self {
            point: cells,
            seed: own[0].parse().ok()?,
            traffic: own[1].clone(),
            goodput_mbit: own[2].parse().ok()?,
            rtt_ms: known(&own[3])?,
            loss: known(&own[4])?,
            retransmits: known(&own[5])?,
            object_ms: known(&own[6])?,
            failures: own[7].parse().ok()?,
            digest: u64::from_str_radix(&own[8], 16).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Sweep {
        Sweep {
            source: Source::from_text(neater_scenario::shipped("dumbbell").unwrap()),
            set: vec![("duration".into(), "2 s".into()), ("warm-up".into(), "0 s".into())],
            axes: vec![
                Axis { key: "rate".into(), values: vec!["2 Mbit/s".into(), "8 Mbit/s".into()] },
                Axis { key: "link.bottleneck.loss".into(), values: vec!["{ packets = [5, 9] }".into(), "0 %".into()] },
            ],
            seed: 3,
            seeds: 2,
            jobs: 2,
        }
    }

    #[test]
    fn rows_do_not_depend_on_the_number_of_threads_and_are_read_back() {
        let two = small().run(None, "1", |_, _| true).unwrap();
        let one = Sweep { jobs: 1, ..small() }.run(None, "1", |_, _| true).unwrap();
        assert_eq!(two, one);
        assert_eq!(two.len(), 4 * 2 * 2);
        assert!(two.iter().all(|r| r.goodput_mbit > 0.1), "{two:?}");
        for row in &two {
            assert_eq!(Row::parse(row.to_csv().trim_end(), 2).as_ref(), Some(row));
        }
    }

    #[test]
    fn a_sweep_goes_on_where_it_stopped() {
        let dir = std::env::temp_dir().join(format!("neater-sweep-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("runs.csv");
        let sweep = small();
        let part = sweep.run(Some(&path), "1", |done, _| done < 3).unwrap();
        assert!(part.len() >= 6 && part.len() < 16, "{}", part.len());
        // A process that was ended in the middle of a line.
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.truncate(text.len() - 5);
        std::fs::write(&path, text).unwrap();
        let mut first = None;
        let note = |done, _| {
            first.get_or_insert(done);
            true
        };
        let all = sweep.run(Some(&path), "1", note).unwrap();
        assert!(first.unwrap() >= 2, "runs that were there are not made again");
        assert_eq!(all, sweep.run(None, "1", |_, _| true).unwrap());
        // Another version begins anew and keeps the old table.
        let mut first = None;
        let refuse = |done, _| {
            first.get_or_insert(done);
            false
        };
        sweep.run(Some(&path), "2", refuse).unwrap();
        assert_eq!(first, Some(0));
        assert!(dir.join("runs.csv.old").exists());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_long_table_is_gone_on_with_at_once() {
        // 20,000 runs that are there; compared each with each they would take minutes.
        let values = |n: usize| (0..n).map(|i| format!("{} kbit/s", 100 + i)).collect();
        let sweep = Sweep { axes: vec![Axis { key: "rate".into(), values: values(100) }], seeds: 200, ..small() };
        let dir = std::env::temp_dir().join(format!("neater-sweep-long-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("runs.csv");
        sweep.run(Some(&path), "1", |_, _| false).unwrap();
        let traffic: Vec<String> =
            sweep.scenario(&sweep.points()[0]).unwrap().traffic.iter().map(|t| t.name.clone()).collect();
        let mut text = std::fs::read_to_string(&path).unwrap();
        for seed in (3..203).rev() {
            for point in sweep.points() {
                for name in &traffic {
                    text += &format!("{},{seed},{name},1,1,,0,,0,{:016x}\n", point[0], 7);
                }
            }
        }
        std::fs::write(&path, text).unwrap();
        let began = std::time::Instant::now();
        let rows = sweep.run(Some(&path), "1", |_, _| true).unwrap();
        assert_eq!(rows.len(), 20_000 * traffic.len());
        assert!(
            rows.is_sorted_by_key(|r| (r.point[0][..3].parse::<u32>().unwrap(), r.seed)),
            "in the order of points and seeds"
        );
        assert!(began.elapsed() < std::time::Duration::from_secs(30), "{:?}", began.elapsed());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn the_interval_is_students() {
        // Three numbers of standard deviation 1: 4.303 / sqrt(3).
        let m = mean(&[1.0, 2.0, 3.0]).unwrap();
        assert_eq!((m.mean, m.runs), (2.0, 3));
        assert!((m.half.unwrap() - 2.4843).abs() < 1e-3, "{m:?}");
        assert!((student(30) - 2.042).abs() < 1e-3 && (student(100_000) - 1.96).abs() < 1e-3);
        assert_eq!(mean(&[5.0]).map(|m| m.half), Some(None), "one run has no interval");
        assert_eq!(mean(&[]), None);
    }
}
