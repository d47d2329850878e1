//! What the output of a part comes to: how many tests passed, failed and were skipped, and why; and the table at the end.

use super::parts::Ended;

/// How many lines of a failed part's log are shown.
const TAIL: usize = 60;
/// How many failures are named, and lines of what they say are shown.
const NAMED: (usize, usize) = (20, 60);

/// Tests by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) skipped: usize,
}

/// What is known of a part that is over.
pub(super) struct Result {
    pub(super) part: &'static str,
    pub(super) seconds: f64,
    /// Of processors, by the part's programs and all that they started and waited for.
    pub(super) cpu: Option<f64>,
    pub(super) ended: Ended,
    pub(super) counts: Counts,
    pub(super) skips: Vec<String>,
    pub(super) flaky: Vec<String>,
    /// What failed and what it printed, if something did.
    pub(super) why: Vec<String>,
}

impl Result {
    /// From the text of the part's log.
    pub(super) fn of(part: &'static str, seconds: f64, cpu: Option<f64>, ended: Ended, log: &str) -> Self {
        let skips = skips(log);
        let flaky: Vec<String> = log.lines().filter_map(|l| l.strip_prefix("FLAKY: ")).map(str::to_owned).collect();
        let counts = counts(log, &ended, skips.len());
        let why = if ended == Ended::Failed { failures(log) } else { Vec::new() };
        Self { part, seconds, cpu, ended, counts, skips, flaky, why }
    }

    /// How it ended, in words.
    pub(super) fn words(&self) -> String {
        let Counts { passed, failed, skipped } = self.counts;
        let skipped = if skipped > 0 { format!(", {skipped} skipped") } else { String::new() };
        match &self.ended {
            Ended::Skipped(_) => "skipped".into(),
            Ended::Passed => format!("ok, {passed} passed{skipped}"),
            Ended::Failed => format!("FAILED, {passed} passed, {failed} failed{skipped}"),
        }
    }

    /// A row of the table.
    pub(super) fn row(&self) -> String {
        row(self.part, self.seconds, self.cpu, &self.words())
    }
}

/// The head of the table.
pub(super) fn head() -> String {
    format!("{:<12} {:>7} {:>7}  result", "part", "wall s", "cpu s")
}

/// A row of the table.
pub(super) fn row(name: &str, seconds: f64, cpu: Option<f64>, words: &str) -> String {
    let cpu = cpu.map_or_else(|| "-".to_owned(), |s| format!("{s:.0}"));
    format!("{name:<12} {seconds:>7.0} {cpu:>7}  {words}")
}

/// The last lines of a failed part's log.
pub(super) fn tail(log: &str) -> Vec<&str> {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(TAIL)..].to_vec()
}

/// What a part and its tests have skipped, with the reason that is in the log.
fn skips(log: &str) -> Vec<String> {
    let reason = |line: &str| {
        let marks = ["SKIP: ", "SKIPPED: ", "skipped: ", "not run: "];
        marks.iter().find_map(|mark| line.strip_prefix(mark)).map(|why| why.trim().to_owned())
    };
    log.lines().filter_map(reason).collect()
}

fn counts(log: &str, ended: &Ended, skips: usize) -> Counts {
    let (mut passed, mut failed, mut ignored) = (0, 0, 0);
    for line in log.lines().filter(|l| l.starts_with("test result: ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        for pair in words.windows(2) {
            let number = || pair[0].parse::<usize>().unwrap_or(0);
            match pair[1] {
                "passed;" => passed += number(),
                "failed;" => failed += number(),
                "ignored;" => ignored += number(),
                _ => {}
            }
        }
    }
    // For the harness a test that has skipped itself has passed; a part that says SKIP is no test.
    let is_test = |l: &&str| ["SKIPPED: ", "skipped: ", "not run: "].iter().any(|mark| l.starts_with(mark));
    let itself = log.lines().filter(is_test).count();
    passed -= passed.min(itself);
    match ended {
        // Failed, and passed when run again, alone.
        Ended::Passed => (passed, failed) = (passed + failed, 0),
        // A part that failed without a failed test did not get that far: a build that broke, say.
        Ended::Failed => failed = failed.max(1),
        Ended::Skipped(_) => {}
    }
    // A part without tests is one check.
    if *ended == Ended::Passed && passed + itself == 0 {
        passed = 1;
    }
    Counts { passed, failed, skipped: skips + ignored }
}

/// Which tests of a part failed, and what each printed.
fn failures(log: &str) -> Vec<String> {
    let lines: Vec<&str> = log.lines().collect();
    let is_failure = |l: &&&str| {
        (l.starts_with("test ") && l.ends_with(" FAILED")) || l.starts_with("error:") || l.starts_with("error[")
    };
    let mut named: Vec<String> = lines.iter().filter(is_failure).map(|l| (*l).to_owned()).collect();
    named.sort();
    named.dedup();
    named.truncate(NAMED.0);
    let failed: Vec<&str> = lines.iter().filter_map(|l| l.strip_prefix("test ")?.strip_suffix(" ... FAILED")).collect();
    let mut said = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        // A test that passes may panic, too: that is what it is about.
        let thread = line.strip_prefix("thread '").and_then(|l| l.split_once('\'')).map(|(name, _)| name);
        if thread.is_some_and(|name| failed.contains(&name)) && line.contains("panicked at") {
            said.extend(lines[i..].iter().take(4).map(|l| l.chars().take(200).collect::<String>()));
        }
    }
    said.truncate(NAMED.1);
    named.extend(said);
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
test a ... ok
skipped: no nginx here
test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out
SKIP: peers in Go: no go here
test b ... FAILED
thread 'b' panicked at x.rs:1:
it is 2
test result: FAILED. 4 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out
";

    fn result(ended: Ended, log: &str) -> Result {
        Result::of("unit", 61.4, Some(100.2), ended, log)
    }

    #[test]
    fn tests_are_counted_and_those_that_skipped_themselves_have_not_passed() {
        let failed = result(Ended::Failed, LOG);
        assert_eq!(failed.counts, Counts { passed: 6, failed: 1, skipped: 3 });
        assert_eq!(failed.skips, ["no nginx here", "peers in Go: no go here"]);
        assert_eq!(failed.row(), "unit              61     100  FAILED, 6 passed, 1 failed, 3 skipped");
        assert_eq!(
            failed.why,
            ["test b ... FAILED", "thread 'b' panicked at x.rs:1:", "it is 2", LOG.lines().last().unwrap_or_default()]
        );
    }

    #[test]
    fn a_test_that_passes_alone_has_passed_and_is_named() {
        let flaky = result(Ended::Passed, &format!("{LOG}FLAKY: b\n"));
        assert_eq!((flaky.counts.passed, flaky.counts.failed), (7, 0));
        assert_eq!(flaky.flaky, ["b"]);
    }

    #[test]
    fn a_part_without_tests_is_one_check_and_one_that_broke_has_failed() {
        assert_eq!(result(Ended::Passed, "").counts, Counts { passed: 1, failed: 0, skipped: 0 });
        assert_eq!(result(Ended::Failed, "error: it does not build\n").counts.failed, 1);
        let skipped = Ended::Skipped("no rustfmt".into());
        assert_eq!(result(skipped, "SKIP: no rustfmt\n").counts, Counts { passed: 0, failed: 0, skipped: 1 });
    }
}
