//! What `llvm-cov export -format=lcov` says, read as far as it is needed: `SF` (a file), `DA` (a line) and `BRDA` (one way of a
//! branch).

use core::fmt;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

/// Some of so many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    reached: usize,
    all: usize,
}

impl Part {
    /// In percent; of nothing everything is reached.
    pub(super) fn percent(self) -> f64 {
        if self.all == 0 { 100.0 } else { 100.0 * self.reached as f64 / self.all as f64 }
    }

    fn of(counts: impl Iterator<Item = u64>) -> Self {
        counts.fold(Self::default(), |p, n| Self { reached: p.reached + usize::from(n > 0), all: p.all + 1 })
    }

    const fn plus(self, other: Self) -> Self {
        Self { reached: self.reached + other.reached, all: self.all + other.all }
    }
}

/// What is reached of a file or of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reached {
    pub(super) lines: Part,
    pub(super) branches: Part,
}

impl Reached {
    pub(super) const fn plus(self, other: Self) -> Self {
        Self { lines: self.lines.plus(other.lines), branches: self.branches.plus(other.branches) }
    }
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lines, branches } = self;
        write!(f, "{:.2} % of {} lines", lines.percent(), lines.all)?;
        if branches.all > 0 {
            write!(f, ", {:.2} % of {} branches", branches.percent(), branches.all)?;
        }
        Ok(())
    }
}

/// One way that a branch can go: its line, its block, and its number there; even ones are those that are taken when the condition
/// holds.
type Way = (usize, usize, usize);

/// How often the lines and branches of a file were reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) path: String,
    lines: BTreeMap<usize, u64>,
    branches: BTreeMap<Way, u64>,
}

impl Source {
    /// The same without these lines.
    pub(super) fn without(mut self, items: &[RangeInclusive<usize>]) -> Self {
        let kept = |line: &usize| !items.iter().any(|item| item.contains(line));
        self.lines.retain(|line, _| kept(line));
        self.branches.retain(|(line, ..), _| kept(line));
        self
    }

    pub(super) fn at(self, path: String) -> Self {
        Self { path, ..self }
    }

    pub(super) fn reached(&self) -> Reached {
        Reached { lines: Part::of(self.lines.values().copied()), branches: Part::of(self.branches.values().copied()) }
    }

    pub(super) fn is_all(&self) -> bool {
        self.lines.values().chain(self.branches.values()).all(|n| *n > 0)
    }

    /// The lines that were not reached, or not in every way: number, what is missing, and the text.
    pub(super) fn missed<'a>(&'a self, text: &'a str) -> impl Iterator<Item = String> + 'a {
        text.lines().enumerate().filter_map(move |(index, line)| {
            let number = index + 1;
            let never = self.lines.get(&number) == Some(&0);
            let mut ways: Vec<&str> = self
                .branches
                .range((number, 0, 0)..=(number, usize::MAX, usize::MAX))
                .filter(|(_, n)| **n == 0)
                .map(|((.., way), _)| if way % 2 == 0 { "true" } else { "false" })
                .collect();
            ways.dedup();
            let why = match (never, ways.is_empty()) {
                (true, _) => "never".to_owned(),
                (false, false) => format!("never {}", ways.join(", ")),
                (false, true) => return None,
            };
            Some(format!("{number:>4} {why:<18} {}", line.trim()))
        })
    }
}

/// The files whose paths, relative to `root`, begin with `prefix`. A file that is named more than once is one.
pub(super) fn read(text: &str, root: &Path, prefix: &str) -> BTreeMap<String, Source> {
    let mut sources: BTreeMap<String, Source> = BTreeMap::new();
    let mut current = None;
    for line in text.lines() {
        let Some((kind, rest)) = line.split_once(':') else { continue };
        let numbers = || rest.split(',').map(|n| if n == "-" { Some(0) } else { n.parse::<u64>().ok() });
        let numbers = || numbers().collect::<Option<Vec<u64>>>();
        match kind {
            "SF" => {
                let path = Path::new(rest).strip_prefix(root).map(|p| p.to_string_lossy().into_owned());
                current = path.ok().filter(|p| p.starts_with(prefix));
            }
            "DA" => {
                if let (Some(path), Some([line, count, ..])) = (&current, numbers().as_deref()) {
                    *sources.entry(path.clone()).or_default().lines.entry(*line as usize).or_default() += count;
                }
            }
            "BRDA" => {
                if let (Some(path), Some([line, block, way, count])) = (&current, numbers().as_deref()) {
                    let way = (*line as usize, *block as usize, *way as usize);
                    *sources.entry(path.clone()).or_default().branches.entry(way).or_default() += count;
                }
            }
            _ => {}
        }
    }
    sources
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "SF:/w/crates/a/src/x.rs\nFN:1,f\nDA:1,4\nDA:2,0\nDA:3,1\nBRDA:3,0,0,1\nBRDA:3,0,1,-\nDA:9,0\nend_of_record\n\
        SF:/w/crates/b/src/y.rs\nDA:1,0\nend_of_record\nSF:/elsewhere/z.rs\nDA:1,0\nend_of_record\n\
        SF:/w/crates/a/src/x.rs\nDA:2,5\nnonsense\nDA:x,y\n";

    #[test]
    fn lines_and_branches_are_counted_and_named() {
        let sources = read(TEXT, Path::new("/w"), "crates/a/src/");
        assert_eq!(sources.keys().collect::<Vec<_>>(), ["crates/a/src/x.rs"]);
        let source = sources["crates/a/src/x.rs"].clone();
        assert_eq!(source.reached().to_string(), "75.00 % of 4 lines, 50.00 % of 2 branches");
        let source = source.without(&[8..=10]);
        assert_eq!(source.reached().lines.percent(), 100.0);
        assert!(!source.is_all());
        let missed: Vec<String> = source.missed("one\ntwo\nif three {\n").collect();
        assert_eq!(missed, ["   3 never false        if three {"]);
    }

    #[test]
    fn of_nothing_everything_is_reached() {
        assert_eq!(Reached::default().lines.percent(), 100.0);
        assert!(Source::default().is_all());
    }
}
