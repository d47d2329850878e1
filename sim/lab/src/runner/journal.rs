//! The raw data of an experiment that measures points one by one: a CSV file with a row for every run, which is also what a
//! later run goes on from.
//!
//! *Invariants*: a row is written whole and at once when its run has ended; a run that failed leaves its reason in the last
//! column and is made again; a run counts only for the version of the programs that made it; a last line that was torn when
//! the machine stopped is forgotten.

use crate::measure::{MeasureError, Result};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// The largest file that is read, in bytes.
const SIZE_MAX: u64 = 256 << 20;
/// The columns before the metrics.
const FRONT: [&str; 4] = ["scenario", "series", "seed", "version"];

/// What one run measures.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The conditions.
    pub scenario: String,
    /// What is measured under them.
    pub series: String,
    /// Everything random in the run follows from it, as far as it is ours.
    pub seed: u64,
}

/// The rows of one file.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    version: String,
    metrics: &'static [&'static str],
    rows: BTreeMap<Key, Vec<f64>>,
    file: File,
}

/// A field without what separates fields.
fn field(text: &str) -> String {
    text.chars().map(|c| if matches!(c, ',' | '\n' | '\r' | '"') { ';' } else { c }).collect()
}

impl Journal {
    /// Opens `path` for runs of `version` with these metrics, and reads what it has of them. A file with other columns,
    /// and every file if `fresh`, is renamed to `*.old` first.
    ///
    /// # Errors
    /// The file cannot be read or written, or has a line that is no row.
    pub fn open(path: &Path, version: &str, metrics: &'static [&'static str], fresh: bool) -> Result<Self> {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        let header = FRONT.iter().chain(metrics).chain(&["note"]).copied().collect::<Vec<_>>().join(",");
        let mut rows = BTreeMap::new();
        let mut whole = 0;
        if path.exists() {
            let text = read(path)?;
            if fresh || text.lines().next() != Some(header.as_str()) {
                fs::rename(path, path.with_extension("csv.old"))?;
            } else {
                whole = text.rfind('\n').map_or(0, |i| i + 1);
                rows = parse(&text[..whole], version, metrics)
                    .map_err(|why| MeasureError::Failed(format!("{}: {why}", path.display())))?;
            }
        }
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        if whole == 0 {
            file.set_len(0)?;
            file.write_all(format!("{header}\n").as_bytes())?;
        } else {
            file.set_len(whole as u64)?;
        }
        Ok(Self { path: path.to_owned(), version: version.to_owned(), metrics, rows, file })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The metrics of a run, in the order of the columns, if it was made.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<&[f64]> {
        self.rows.get(key).map(Vec::as_slice)
    }

    /// One metric of all runs of a series under a scenario with one of these seeds. Runs that failed are not in it, so the
    /// place of a value says nothing of its seed: two series are compared by [`Journal::by_seed`].
    #[must_use]
    pub fn values(&self, scenario: &str, series: &str, metric: &str, seeds: impl Iterator<Item = u64>) -> Vec<f64> {
        self.by_seed(scenario, series, metric, seeds).into_values().collect()
    }

    /// The same, each with its seed.
    #[must_use]
    pub fn by_seed(
        &self,
        scenario: &str,
        series: &str,
        metric: &str,
        seeds: impl Iterator<Item = u64>,
    ) -> BTreeMap<u64, f64> {
        let Some(column) = self.metrics.iter().position(|m| *m == metric) else { return BTreeMap::new() };
        let value = |seed: u64| {
            let row = self.get(&Key { scenario: scenario.into(), series: series.into(), seed })?;
            row.get(column).copied().filter(|v| v.is_finite()).map(|v| (seed, v))
        };
        seeds.filter_map(value).collect()
    }

    /// Adds what a run gave.
    ///
    /// # Errors
    /// It cannot be written, or the run gave another number of metrics than it should.
    pub fn add(&mut self, key: Key, outcome: &std::result::Result<Vec<f64>, String>) -> Result<()> {
        let (values, note) = match outcome {
            Ok(values) if values.len() == self.metrics.len() => (values.clone(), String::new()),
            Ok(values) => {
                let (got, want) = (values.len(), self.metrics.len());
                return Err(MeasureError::Failed(format!("a run gave {got} metrics instead of {want}")));
            }
            Err(why) => (vec![f64::NAN; self.metrics.len()], field(why)),
        };
        let mut line = format!("{},{},{},{}", field(&key.scenario), field(&key.series), key.seed, self.version);
        for v in &values {
            line.push(',');
            if v.is_finite() {
                line.push_str(&v.to_string());
            }
        }
        line.push(',');
        line.push_str(&note);
        line.push('\n');
        self.file.write_all(line.as_bytes())?;
        if outcome.is_ok() {
            self.rows.insert(key, values);
        }
        Ok(())
    }
}

/// The values of the seeds that both have, pair by pair.
#[must_use]
pub fn paired(a: &BTreeMap<u64, f64>, b: &BTreeMap<u64, f64>) -> (Vec<f64>, Vec<f64>) {
    a.iter().filter_map(|(seed, v)| Some((*v, *b.get(seed)?))).unzip()
}

/// Whether so many runs of those that were planned are enough to be judged: one of ten may have failed. What fails more often
/// is no chance, and the runs that are left are those it did not happen to.
#[must_use]
pub const fn are_enough(have: usize, planned: usize) -> bool {
    have > 0 && have * 10 >= planned * 9
}

fn read(path: &Path) -> Result<String> {
    let file = File::open(path)?;
    if file.metadata()?.len() > SIZE_MAX {
        return Err(MeasureError::Failed(format!("{}: larger than {} MiB", path.display(), SIZE_MAX >> 20)));
    }
    let mut bytes = Vec::new();
    file.take(SIZE_MAX).read_to_end(&mut bytes)?;
    String::from_utf8(bytes).map_err(|_| {
        MeasureError::Failed(format!("{}: no text; rename it, or start anew with --fresh", path.display()))
    })
}

fn parse(text: &str, version: &str, metrics: &[&str]) -> std::result::Result<BTreeMap<Key, Vec<f64>>, String> {
    let mut rows = BTreeMap::new();
    for (n, line) in text.lines().enumerate().skip(1) {
        let bad = |what: String| format!("line {}: {what}; mend the line, or start anew with --fresh", n + 1);
        let fields: Vec<&str> = line.split(',').collect();
        let want = FRONT.len() + metrics.len() + 1;
        if fields.len() != want {
            return Err(bad(format!("{} columns instead of {want}", fields.len())));
        }
        if fields[3] != version || !fields[want - 1].is_empty() {
            continue;
        }
        let seed = fields[2].parse().map_err(|_| bad(format!("column 3: '{}' is no seed", fields[2])))?;
        let mut values = Vec::with_capacity(metrics.len());
        for (i, f) in fields[FRONT.len()..want - 1].iter().enumerate() {
            let column = FRONT.len() + i + 1;
            let number = if f.is_empty() { Ok(f64::NAN) } else { f.parse() };
            values.push(number.map_err(|_| bad(format!("column {column}: '{f}' is no number")))?);
        }
        rows.insert(Key { scenario: fields[0].into(), series: fields[1].into(), seed }, values);
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &[&str] = &["goodput", "bytes"];

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("neater-journal-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir_all(&dir).expect("a folder");
            Self(dir)
        }

        fn journal(&self, version: &str, fresh: bool) -> Result<Journal> {
            Journal::open(&self.0.join("runs.csv"), version, METRICS, fresh)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn key(seed: u64) -> Key {
        Key { scenario: "rate=10 rtt=20".into(), series: "a, b".replace(',', ""), seed }
    }

    #[test]
    fn a_run_is_found_again_by_its_scenario_series_seed_and_version() {
        let dir = Folder::new("again");
        let mut j = dir.journal("v1", false).expect("opens");
        j.add(key(1), &Ok(vec![9.5, 1e7])).expect("adds");
        j.add(key(2), &Err("no, it\nfailed".into())).expect("adds");
        assert!(j.add(key(3), &Ok(vec![1.0])).is_err(), "a metric is missing");
        drop(j);
        let j = dir.journal("v1", false).expect("opens");
        assert_eq!(j.get(&key(1)), Some(&[9.5, 1e7][..]));
        assert_eq!(j.get(&key(2)), None, "a failed run is made again");
        assert_eq!(j.values("rate=10 rtt=20", "a b", "goodput", 1..=5), [9.5]);
        assert!(j.values("rate=10 rtt=20", "a b", "other", 1..=5).is_empty());
        assert_eq!(dir.journal("v2", false).expect("opens").get(&key(1)), None, "another version");
        assert!(dir.journal("v1", false).expect("opens").get(&key(1)).is_some(), "which did not lose the first");
        assert_eq!(dir.journal("v1", true).expect("opens").get(&key(1)), None, "fresh");
        assert!(dir.0.join("runs.csv.old").exists());
    }

    #[test]
    fn runs_of_two_series_are_paired_by_their_seeds_whichever_failed() {
        let dir = Folder::new("pairs");
        let mut j = dir.journal("v", false).expect("opens");
        let of = |series: &str, seed| Key { scenario: "s".into(), series: series.into(), seed };
        for seed in 1..=4u64 {
            let ours = if seed == 2 { Err("failed".to_owned()) } else { Ok(vec![seed as f64, 0.0]) };
            j.add(of("ours", seed), &ours).expect("adds");
            let theirs = if seed == 4 { Err("failed".to_owned()) } else { Ok(vec![10.0 * seed as f64, 0.0]) };
            j.add(of("theirs", seed), &theirs).expect("adds");
        }
        let (ours, theirs) = (j.by_seed("s", "ours", "goodput", 1..=4), j.by_seed("s", "theirs", "goodput", 1..=4));
        assert_eq!(paired(&ours, &theirs), (vec![1.0, 3.0], vec![10.0, 30.0]));
        assert_eq!((ours.len(), theirs.len()), (3, 3), "each alone looks as if they could be paired in order");
    }

    #[test]
    fn one_run_of_ten_may_fail() {
        assert!(are_enough(1, 1) && are_enough(5, 5) && are_enough(9, 10) && are_enough(27, 30));
        assert!(!are_enough(0, 0) && !are_enough(4, 5) && !are_enough(8, 10) && !are_enough(26, 30));
    }

    #[test]
    fn a_torn_line_is_forgotten_and_a_wrong_one_is_named() {
        let dir = Folder::new("torn");
        let path = dir.0.join("runs.csv");
        dir.journal("v", false).expect("opens").add(key(1), &Ok(vec![1.0, 2.0])).expect("adds");
        let whole = fs::read_to_string(&path).expect("text");
        fs::write(&path, format!("{whole}rate=10 rtt=20,a b,2,v,3")).expect("writes");
        let mut j = dir.journal("v", false).expect("opens");
        assert_eq!(j.get(&key(2)), None);
        j.add(key(2), &Ok(vec![3.0, 4.0])).expect("adds");
        assert!(dir.journal("v", false).expect("opens").get(&key(2)).is_some());
        fs::write(&path, format!("{whole}x,y,1,v,one,2,\n")).expect("writes");
        let error = dir.journal("v", false).expect_err("no number").to_string();
        assert!(error.contains("line 3") && error.contains("column 5") && error.contains("--fresh"), "{error}");
        fs::write(&path, format!("{whole}x,y\n")).expect("writes");
        assert!(dir.journal("v", false).expect_err("columns").to_string().contains("2 columns instead of 7"));
    }
}
