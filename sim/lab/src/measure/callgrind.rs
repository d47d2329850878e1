//! User-space instructions, counted by `valgrind --tool=callgrind`.

use super::{Child, MeasureError, Result, process};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// `command` under a tool of valgrind, with the tool's arguments before the program.
pub(super) fn under_valgrind(command: &Command, tool_args: &[&str]) -> Command {
    let mut v = super::wrap(command, "valgrind", tool_args);
    // Symbols are bound at the start, so that the first call of each does not count.
    v.env("LD_BIND_NOW", "y");
    v
}

/// `command` under callgrind, which writes to `out`.
#[must_use]
pub fn under(command: &Command, out: &Path) -> Command {
    let file = format!("--callgrind-out-file={}", out.display());
    under_valgrind(command, &["--tool=callgrind", "-q", &file])
}

/// As [`under`], but nothing is counted until [`start_counting`].
#[must_use]
pub fn under_stopped(command: &Command, out: &Path) -> Command {
    let file = format!("--callgrind-out-file={}", out.display());
    under_valgrind(command, &["--tool=callgrind", "-q", "--instr-atstart=no", &file])
}

/// Lets a child that runs under callgrind be counted from now on.
///
/// # Errors
/// It cannot be reached.
pub fn start_counting(child: &Child) -> Result<()> {
    let mut control = Command::new("callgrind_control");
    process::run(control.args(["-i", "on", &child.pid().to_string()]), CONTROL).map(|_| ())
}

/// Reaching a process under valgrind takes at most this long.
const CONTROL: Duration = Duration::from_secs(20);

/// The instructions that callgrind has written to `out`.
///
/// # Errors
/// It wrote nothing that makes sense.
pub fn read(out: &Path) -> Result<u64> {
    parse(&fs::read_to_string(out)?).ok_or_else(|| MeasureError::Failed("callgrind wrote no total".to_owned()))
}

/// The total of a callgrind file: `summary:` of the parts, or `totals:`.
#[must_use]
pub fn parse(text: &str) -> Option<u64> {
    let of = |key: &str| {
        let sums: Vec<u64> = text
            .lines()
            .filter_map(|l| l.strip_prefix(key))
            .filter_map(|rest| rest.split_whitespace().next()?.parse().ok())
            .collect();
        (!sums.is_empty()).then(|| sums.iter().sum())
    };
    of("totals:").or_else(|| of("summary:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_a_callgrind_file_is_found() {
        let text = "# callgrind format\nversion: 1\nevents: Ir\nsummary: 1165\n\nfn=(1) main\n3 17\ntotals: 1163\n";
        assert_eq!(parse(text), Some(1163));
        assert_eq!(parse("events: Ir\nsummary: 40\npart: 2\nsummary: 2\n"), Some(42));
        assert_eq!(parse("fn=(1) totals\n"), None);
        assert_eq!(parse(""), None);
    }
}
