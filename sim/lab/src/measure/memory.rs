//! Allocations and bytes in use, counted by `valgrind --tool=memcheck`; resident memory from `/proc`.

use super::callgrind::under_valgrind;
use super::{MeasureError, Result};
use std::fs;
use std::process::Command;

/// What a process has done with its allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heap {
    /// Calls that allocated, over its life.
    pub allocations: u64,
    /// Bytes it held when it ended.
    pub in_use: u64,
}

/// `command` under memcheck, which counts what it allocates and says so at its end.
#[must_use]
pub fn under(command: &Command) -> Command {
    under_valgrind(command, &["--tool=memcheck", "--leak-check=no", "--undef-value-errors=no", "--run-libc-freeres=no"])
}

/// What memcheck said of the heap.
///
/// # Errors
/// It said nothing of it.
pub fn read(stderr: &str) -> Result<Heap> {
    parse(stderr).ok_or_else(|| MeasureError::Failed("memcheck wrote no summary of the heap".to_owned()))
}

fn parse(text: &str) -> Option<Heap> {
    let number = |key: &str| -> Option<u64> {
        let rest = &text[text.find(key)? + key.len()..];
        rest.split_whitespace().next()?.replace(',', "").parse().ok()
    };
    Some(Heap { in_use: number("in use at exit:")?, allocations: number("total heap usage:")? })
}

/// Resident memory of a process that is its own, in bytes: anonymous pages, so that shared libraries do not count.
///
/// # Errors
/// The process is gone.
pub fn resident(pid: i32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    parse_rollup(&text).ok_or_else(|| MeasureError::Failed("smaps_rollup has no line `Anonymous`".to_owned()))
}

fn parse_rollup(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix("Anonymous:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_of_memcheck_is_understood() {
        let text = "==1== HEAP SUMMARY:\n==1==     in use at exit: 1,234,567 bytes in 8 blocks\n\
                    ==1==   total heap usage: 2,056 allocs, 2,048 frees, 9,999 bytes allocated\n";
        assert_eq!(parse(text), Some(Heap { allocations: 2056, in_use: 1_234_567 }));
        assert_eq!(parse("==1== nothing"), None);
    }

    #[test]
    fn anonymous_memory_is_read_in_bytes() {
        assert_eq!(parse_rollup("Rss:      5000 kB\nAnonymous:         1524 kB\n"), Some(1524 * 1024));
        assert_eq!(parse_rollup("Rss: 1 kB\n"), None);
        assert!(resident(std::process::id() as i32).expect("this process") > 4096);
    }
}
