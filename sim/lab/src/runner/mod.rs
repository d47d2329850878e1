//! Runs experiments: what they need is looked for, what they give is kept, shown and drawn.
//!
//! *Responsible for* the order, the time left, what is skipped and why, and the files of each experiment: `figures.json`,
//! `figures.jsonl`, `samples.csv`, drawings as SVG and PNG, and `experiment.json`, from which the report is made. *Not for*
//! measuring (`experiments`). [`journal`] and [`grid`] serve experiments that go on where an earlier run stopped.

pub mod busy;
pub mod environment;
pub mod grid;
pub mod journal;
mod progress;

use crate::experiments::{ALL, Experiment, Lab, Need, Outcome};
use crate::measure::{MeasureError, process};
use crate::plot::{self, Drawing};
use crate::programs::{Build, Programs, Wanted};
use crate::report::record::{Beside, DrawingRecord, MetricRecord, Record};
use crate::report::{self, Figure};
use busy::{Others, Reading};
use environment::Environment;
use neater_emulator as live;
use progress::span;
use std::cell::RefCell;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// How experiments are to be run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Fewer runs and fewer points.
    pub quick: bool,
    /// One JSON object per figure and line instead of tables.
    pub json: bool,
    /// Where everything is kept.
    pub out: PathBuf,
    /// The first seed.
    pub seed: u64,
    /// Runs per point, or pairs; each experiment has its own number unless this is given.
    pub seeds: Option<usize>,
    /// Runs at once where that is possible.
    pub jobs: Option<usize>,
    /// Make runs again that were made before.
    pub fresh: bool,
    /// Measure the programs beside this one, and judge nothing.
    pub unoptimised: bool,
    /// Only points whose names contain this.
    pub only: Option<String>,
    /// Where a bound that is not met is a failure, and so is one of which nothing is known.
    pub strict: Strict,
}

/// Where a bound that is not met is a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Strict {
    /// Nowhere.
    #[default]
    No,
    /// In the experiments of these ids; one that is skipped for lack of something is none.
    These(Vec<&'static str>),
    /// Everywhere, and in an experiment that is skipped.
    All,
}

impl Strict {
    /// Whether it is for the figures of this experiment.
    fn holds(&self, id: &str) -> bool {
        match self {
            Self::No => false,
            Self::These(ids) => ids.contains(&id),
            Self::All => true,
        }
    }
}

impl Options {
    /// The command line that does the same again for one experiment.
    fn command(&self, id: &str) -> String {
        let mut words = format!("neater-lab run {id}");
        if self.quick {
            words.push_str(" --quick");
        }
        if self.unoptimised {
            words.push_str(" --unoptimised");
        }
        if self.seed != 1 {
            words.push_str(&format!(" --seed {}", self.seed));
        }
        for (name, value) in [("seeds", self.seeds), ("jobs", self.jobs)] {
            if let Some(v) = value {
                words.push_str(&format!(" --{name} {v}"));
            }
        }
        if let Some(text) = &self.only {
            words.push_str(&format!(" --only {text}"));
        }
        words
    }
}

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Everything was measured, or skipped where that is allowed.
    Measured,
    /// An experiment could not be measured.
    Failed,
    /// A bound is not met, or an experiment was skipped, although all bounds were to be met.
    Missed,
}

/// How long each takes, more or less, in seconds. Runs that one shares with another are counted where they are made first:
/// not again when the other is among these and earlier, or when `made` knows of its runs.
fn seconds(these: &[&Experiment], quick: bool, made: impl Fn(&str) -> bool) -> Vec<f64> {
    let earlier = |i: usize, id: &str| these[..i].iter().any(|e| e.id == id || e.shares().contains(&id));
    let one = |(i, e): (usize, &&Experiment)| e.minutes_without(quick, |id| earlier(i, id) || made(id)) * 60.0;
    these.iter().enumerate().map(one).collect()
}

/// Shows E5 on a page of this host, at a port or, for 0, at a free one, until the process ends.
///
/// # Errors
/// A tool or a privilege is missing, or the port is taken.
pub fn watch(port: u16, unoptimised: bool) -> Result<(), MeasureError> {
    let e5: Vec<&Experiment> = ALL.iter().filter(|e| e.id == "E5").collect();
    able(&e5, |e| e.needs.iter().find_map(|n| n.lacking()))?;
    let progress = |what: &str| eprintln!("neater-lab: {what}");
    let scratch = std::env::temp_dir().join(format!("neater-lab-watch-{}", std::process::id()));
    fs::create_dir_all(&scratch)?;
    let scratch = scratch.canonicalize()?;
    let build = if unoptimised { Build::Beside } else { Build::Wanted };
    let wanted = Wanted { neater: true, build, ..Wanted::default() };
    let programs = Programs::prepare(&scratch, wanted, &progress)?;
    let version = version(&programs)?;
    let lab = Lab {
        quick: false,
        seed: 1,
        seeds: None,
        jobs: None,
        fresh: false,
        freshened: RefCell::default(),
        only: None,
        out: scratch.clone(),
        version,
        programs,
        scratch: scratch.clone(),
        progress: Box::new(progress),
    };
    let shown = crate::experiments::networks::watch::run(&lab, port);
    let _ = fs::remove_dir_all(&scratch);
    shown
}

/// Runs the experiments of these ids. What one of several lacks is said, and it is skipped; a single one fails.
///
/// # Errors
/// A tool is missing that a single experiment needs; files cannot be written.
pub fn run(ids: &[&str], options: &Options) -> Result<Ended, MeasureError> {
    let chosen: Vec<&Experiment> = ALL.iter().filter(|e| ids.contains(&e.id)).collect();
    let able = able(&chosen, |e| e.needs.iter().find_map(|n| n.lacking()))?;
    // Of what was not measured no bound is known to be met.
    let skipped = options.strict == Strict::All;
    let mut unmet = skipped && able.len() < chosen.len();
    if able.is_empty() {
        return Ok(ended(false, unmet));
    }
    let progress = |what: &str| eprintln!("neater-lab: {what}");
    let peers = options.out.join("peers");
    fs::create_dir_all(&peers)?;
    // Children are started with these paths whatever their directory is.
    let peers = peers.canonicalize()?;
    let wants = |need: Need| able.iter().any(|e| e.needs.contains(&need));
    let build = match options {
        Options { unoptimised: true, .. } => Build::Beside,
        Options { quick: true, .. } => Build::Wanted,
        _ => Build::All,
    };
    let wanted = Wanted {
        peers: wants(Need::Peers),
        flows: wants(Need::FlowPeers),
        rust: wants(Need::RustPeers),
        neater: wants(Need::Neater),
        build,
    };
    let programs = Programs::prepare(&peers, wanted, &progress)?;
    let version = version(&programs)?;
    let &Options { quick, seed, seeds, jobs, fresh, .. } = options;
    let out = options.out.canonicalize()?;
    let progress = Box::new(progress);
    let freshened = RefCell::default();
    let only = options.only.clone();
    let lab =
        Lab { quick, seed, seeds, jobs, fresh, freshened, only, out, version, programs, scratch: peers, progress };
    let mut failed = false;
    let runs = |id: &str| fs::read_to_string(lab.out.join(id).join("runs.csv")).is_ok_and(|t| t.contains(&lab.version));
    let times = seconds(&able, quick, |id| !fresh && runs(id));
    let mut left: f64 = times.iter().sum();
    for (i, (e, &mine)) in able.iter().zip(&times).enumerate() {
        let (n, all) = (i + 1, able.len());
        (lab.progress)(&format!("{} ({n} of {all}): about {}, {} in all", e.id, span(mine), span(left)));
        match one(e, &lab, options) {
            Ok(bounds) => {
                unmet |= bounds.any() && options.strict.holds(e.id);
                if bounds.any() || bounds.not_judged > 0 {
                    (lab.progress)(&format!("{}: {bounds}", e.id));
                }
            }
            Err(lack) if lack.is_lack() && able.len() > 1 => {
                eprintln!("SKIP: {}: {lack}", e.id);
                unmet |= skipped;
            }
            Err(lack) if lack.is_lack() => return Err(lack),
            Err(why) => {
                eprintln!("neater-lab: {}: {why}", e.id);
                failed = true;
            }
        }
        left -= mine;
    }
    Ok(ended(failed, unmet))
}

/// Those of the chosen ones that lack nothing. What one of several lacks is said.
///
/// # Errors
/// What the only one lacks.
fn able<'a>(
    chosen: &[&'a Experiment],
    lacking: impl Fn(&Experiment) -> Option<MeasureError>,
) -> Result<Vec<&'a Experiment>, MeasureError> {
    let mut able = Vec::new();
    for e in chosen {
        match lacking(e) {
            None => able.push(*e),
            Some(lack) if chosen.len() > 1 => eprintln!("SKIP: {}: {lack}", e.id),
            Some(lack) => return Err(lack),
        }
    }
    Ok(able)
}

/// How all went; `unmet`: a bound is not met, or not known to be, where that is a failure.
const fn ended(failed: bool, unmet: bool) -> Ended {
    match (failed, unmet) {
        (true, _) => Ended::Failed,
        (false, true) => Ended::Missed,
        (false, false) => Ended::Measured,
    }
}

/// Figures with a bound that they do not meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Unmet {
    judged: usize,
    missed: usize,
    missing: usize,
    void: usize,
    /// Not a failure: more runs are needed to know.
    not_judged: usize,
}

impl Unmet {
    fn of(figures: &[Figure]) -> Self {
        let mut unmet = Self::default();
        for f in figures.iter().filter(|f| f.bound.is_some()) {
            unmet.judged += 1;
            match (f.met, f.void) {
                _ if f.not_judged => unmet.not_judged += 1,
                (Some(true), _) => {}
                (Some(false), _) => unmet.missed += 1,
                (None, true) => unmet.void += 1,
                (None, false) => unmet.missing += 1,
            }
        }
        unmet
    }

    const fn any(self) -> bool {
        self.missed + self.missing + self.void > 0
    }
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { judged, missed, missing, void, not_judged } = self;
        write!(f, "of {judged} bounds {missed} are missed, {missing} without a value, {void} void")?;
        if *not_judged > 0 {
            write!(f, ", {not_judged} not judged")?;
        }
        Ok(())
    }
}

/// What rows of raw data must have in common to stand in one table: the build of this program and of the command that it
/// measures, the kernel, whose TCP it measures, and the outside references.
fn version(programs: &Programs) -> io::Result<String> {
    let me = std::env::current_exe()?;
    let mut files = vec![me.as_path()];
    files.extend(programs.neater().ok());
    environment::fingerprint(&files, &environment::references())
}

fn one(e: &Experiment, lab: &Lab, options: &Options) -> Result<Unmet, MeasureError> {
    let mut environment = Environment::now();
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (clock, before) = (Instant::now(), Reading::now());
    let mut outcome = (e.run)(lab)?;
    if options.unoptimised && !e.is_of_decisions() {
        outcome.figures.iter_mut().for_each(Figure::not_optimised);
    }
    environment.load_after = environment::load();
    let others = before.zip(Reading::now()).and_then(|(before, after)| before.others(&after));
    if let Some(others) = others {
        note_others(lab, &mut outcome, &mut environment, others);
    }
    let dir = lab.out.join(e.id);
    report::keep(&dir, &outcome.figures, &outcome.samples)?;
    let mut record = describe(e, lab, options, &outcome);
    record.started = started;
    record.seconds = clock.elapsed().as_secs_f64();
    record.environment = environment;
    record.drawings = draw(e, &dir, &outcome)?;
    record.raw = raw_files(&dir)?;
    let text = serde_json::to_string_pretty(&record).map_err(io::Error::from)?;
    fs::write(dir.join("experiment.json"), text)?;
    // A closed pipe is the reader's decision, not a failure of the measurement.
    let mut stdout = io::stdout().lock();
    if options.json {
        let _ = stdout.write_all(report::lines(&outcome.figures)?.as_bytes());
    } else {
        let quick = if lab.quick { " (quick)" } else { "" };
        let _ = writeln!(stdout, "{}{quick}\n{}", e.title, report::table(&outcome.figures));
        for remark in &outcome.remarks {
            let _ = writeln!(stdout, "  {remark}");
        }
    }
    Ok(Unmet::of(&outcome.figures))
}

/// Keeps what others have used of the machine with the raw data, and names a busy machine beside the figures.
fn note_others(lab: &Lab, outcome: &mut Outcome, environment: &mut Environment, others: Others) {
    (environment.others, environment.pressure) = (Some(others.processors), others.pressure);
    outcome.sample("processors_of_others", "others", "whole experiment", 0, others.processors);
    if let Some(words) = others.busy((environment.load_before, environment.load_after)) {
        (lab.progress)(&words);
        for f in &mut outcome.figures {
            f.extra.insert("busy_processors", others.processors.into());
        }
        outcome.remarks.push(words);
    }
}

fn describe(e: &Experiment, lab: &Lab, options: &Options, outcome: &Outcome) -> Record {
    let own = |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    let metric = |m: &crate::experiments::Metric| MetricRecord {
        name: m.name.into(),
        unit: m.unit.into(),
        bound: m.bound.into(),
        drawn: m.drawn.into(),
    };
    Record {
        id: e.id.into(),
        title: e.title.into(),
        asked: e.asked.into(),
        method: e.note.into(),
        parameters: own(e.parameters),
        metrics: e.metrics.iter().map(metric).collect(),
        beside: beside(e, outcome),
        remarks: outcome.remarks.clone(),
        quick: lab.quick,
        seed: lab.seed,
        runs: outcome.runs,
        command: options.command(e.id),
        version: lab.version.clone(),
        ..Record::default()
    }
}

/// What was published beside ours; where an experiment puts nothing beside, the figures do.
fn beside(e: &Experiment, outcome: &Outcome) -> Vec<Beside> {
    if !outcome.beside.is_empty() {
        return outcome.beside.clone();
    }
    let ours = "in the figures below";
    let row = |(published, source): &(&str, &str)| Beside {
        what: String::new(),
        published: (*published).to_owned(),
        ours: ours.to_owned(),
        source: (*source).to_owned(),
    };
    e.published.iter().map(row).collect()
}

/// Draws what there is to draw into `dir`, as SVG and PNG.
fn draw(e: &Experiment, dir: &Path, outcome: &Outcome) -> Result<Vec<DrawingRecord>, MeasureError> {
    let main = (!outcome.panels.is_empty()).then(|| Drawing::new("", e.title, e.note, outcome.panels.clone()));
    let mut records = Vec::new();
    for drawing in main.iter().chain(&outcome.drawings) {
        let file = if drawing.name.is_empty() { e.id.to_owned() } else { format!("{}-{}", e.id, drawing.name) };
        let svg = plot::draw(drawing);
        let image = plot::png(&svg).map_err(|why| MeasureError::Failed(format!("{file}.png: {why}")))?;
        fs::write(dir.join(format!("{file}.svg")), svg)?;
        fs::write(dir.join(format!("{file}.png")), image)?;
        records.push(DrawingRecord { file, title: drawing.title.clone(), caption: drawing.caption.clone() });
    }
    Ok(records)
}

/// The files of `dir` that hold raw data, by name.
fn raw_files(dir: &Path) -> io::Result<Vec<String>> {
    let mut names: Vec<String> = fs::read_dir(dir)?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|n| [".csv", ".pcapng", ".pcap", ".qlog"].iter().any(|end| n.ends_with(end)))
        .collect();
    names.push("figures.jsonl".to_owned());
    names.sort_unstable();
    Ok(names)
}

impl Need {
    /// What is not there, if it is not.
    #[must_use]
    pub fn lacking(self) -> Option<MeasureError> {
        match self {
            Self::Peers | Self::FlowPeers | Self::RustPeers | Self::Neater => None,
            Self::Lab => live::privileges::check().err().map(|e| MeasureError::NotPossible(e.to_string())),
            Self::Tool(tool, package) => process::need(tool, package).err(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_to_repeat_has_what_was_asked_for() {
        let mut o = Options {
            quick: true,
            json: true,
            out: "x".into(),
            seed: 7,
            seeds: Some(3),
            jobs: None,
            fresh: true,
            unoptimised: false,
            only: None,
            strict: Strict::No,
        };
        assert_eq!(o.command("B1"), "neater-lab run B1 --quick --seed 7 --seeds 3");
        (o.quick, o.seed, o.seeds, o.jobs) = (false, 1, None, Some(4));
        assert_eq!(o.command("B1"), "neater-lab run B1 --jobs 4");
    }

    #[test]
    fn the_time_told_counts_shared_runs_where_they_are_made_first() {
        let some = |ids: &[&str]| ALL.iter().filter(|e| ids.contains(&e.id)).collect::<Vec<_>>();
        let own = |id: &str| some(&[id])[0].minutes(false) * 60.0;
        let all = own("B1") + own("B2") + own("B3");
        assert_eq!(seconds(&some(&["B3"]), false, |_| false), [all]);
        assert_eq!(seconds(&some(&["B3"]), false, |id| id == "B1"), [all - own("B1")]);
        let (together, expected) = (some(&["B1", "B2", "B3"]), ["B1", "B2", "B3"].map(own));
        assert_eq!(seconds(&together, false, |_| false), expected);
        assert!(
            together[2].describe().contains("of B1 and B2 are there; 121 and 3 min where"),
            "{}",
            together[2].describe()
        );
    }

    #[test]
    fn what_is_skipped_is_not_met() {
        let chosen: Vec<&Experiment> = ALL.iter().take(2).collect();
        let lack = || MeasureError::MissingTool { tool: "t".into(), package: "p".into() };
        let got = able(&chosen, |e| (e.id == chosen[0].id).then(lack)).expect("one of several is skipped");
        assert_eq!(got.iter().map(|e| e.id).collect::<Vec<_>>(), [chosen[1].id]);
        assert_eq!(able(&chosen[..1], |_| Some(lack())).err(), Some(lack()));
        assert_eq!(ended(false, true), Ended::Missed);
        assert_eq!(ended(false, false), Ended::Measured);
        assert_eq!(ended(true, true), Ended::Failed);
        let these = Strict::These(vec!["A1"]);
        assert!(these.holds("A1") && !these.holds("A2") && Strict::All.holds("A2") && !Strict::No.holds("A1"));
    }

    #[test]
    fn a_bound_of_which_nothing_is_known_is_not_met() {
        let f = || Figure::new("B1", "goodput_ratio", "", "1");
        let bound = report::Bound::AtLeast(1.0);
        let good = [f().value(2.0, 1).judge(bound), f().value(0.5, 1), f().missing("not asked for")];
        assert!(!Unmet::of(&good).any(), "what has no bound is not judged");
        let few = Unmet::of(&[f().value(0.5, 1).needs(5).judge(bound)]);
        assert!(!few.any() && few.not_judged == 1, "more runs may turn it: {few}");
        assert!(few.to_string().ends_with("1 not judged"), "{few}");
        for bad in [f().value(0.5, 1), f().missing("it failed"), f().value(2.0, 1).void_if(true)] {
            let unmet = Unmet::of(&[f().value(2.0, 1).judge(bound), bad.judge(bound)]);
            assert!(unmet.any() && unmet.judged == 2 && unmet.missed + unmet.missing + unmet.void == 1, "{unmet}");
        }
    }
}
