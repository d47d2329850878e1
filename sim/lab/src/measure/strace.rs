//! System calls, counted by `strace -c -f`.

use super::{MeasureError, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// How often each system call was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls(pub BTreeMap<String, u64>);

impl Calls {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

/// `command` under strace, whose summary goes to `out`.
#[must_use]
pub fn under(command: &Command, out: &Path) -> Command {
    super::wrap(command, "strace", &["-c", "-f", "-o", &out.display().to_string()])
}

/// Reads the summary that strace has written.
///
/// # Errors
/// It is missing or makes no sense.
pub fn read(out: &Path) -> Result<Calls> {
    parse(&fs::read_to_string(out)?).ok_or_else(|| MeasureError::Failed("strace wrote no summary".to_owned()))
}

/// Parses the table of `strace -c`; `None` if it has no rows or its total disagrees with them.
#[must_use]
pub fn parse(text: &str) -> Option<Calls> {
    let mut calls = Calls::default();
    let mut total = None;
    for line in text.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // % time, seconds, usecs/call, calls, [errors,] syscall
        let (Some(count), Some(name)) = (fields.get(3).and_then(|n| n.parse::<u64>().ok()), fields.last()) else {
            continue;
        };
        if !(5..=6).contains(&fields.len()) {
            continue;
        }
        if *name == "total" {
            total = Some(count);
        } else {
            *calls.0.entry((*name).to_owned()).or_default() += count;
        }
    }
    (total == Some(calls.total()) && !calls.0.is_empty()).then_some(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 90.00    0.000900           3       256       256 connect
 10.00    0.000100           0       512           epoll_ctl
------ ----------- ----------- --------- --------- ----------------
100.00    0.001000           1       768       256 total
";

    #[test]
    fn the_table_of_strace_is_understood_with_and_without_errors() {
        let calls = parse(TABLE).expect("a table");
        assert_eq!(calls.total(), 768);
        assert_eq!(calls.0.get("connect"), Some(&256));
        assert_eq!(calls.0.get("epoll_ctl"), Some(&512));
    }

    #[test]
    fn a_table_that_does_not_add_up_is_refused() {
        assert_eq!(parse(&TABLE.replace(" 768 ", " 769 ")), None);
        assert_eq!(parse(""), None);
        assert_eq!(parse("strace: attach: Operation not permitted"), None);
    }
}
