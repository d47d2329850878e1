//! Bytes that a process copies, counted by `valgrind --tool=dhat --mode=copy`.

use super::{MeasureError, Result};
use std::process::Command;

/// `command` under dhat, which says at its end how much was copied with `memcpy` and its like.
#[must_use]
pub fn under(command: &Command) -> Command {
    super::callgrind::under_valgrind(command, &["--tool=dhat", "--mode=copy", "--dhat-out-file=/dev/null"])
}

/// The bytes that dhat has counted.
///
/// # Errors
/// It said nothing of them.
pub fn read(stderr: &str) -> Result<u64> {
    parse(stderr).ok_or_else(|| MeasureError::Failed("dhat wrote no total".to_owned()))
}

/// The total of what dhat says at its end.
fn parse(text: &str) -> Option<u64> {
    let rest = &text[text.find("Total:")? + "Total:".len()..];
    rest.split_whitespace().next()?.replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_found() {
        assert_eq!(parse("==1== Total:     1,234,567 bytes in 89 blocks\n==1== \n"), Some(1_234_567));
        assert_eq!(parse("==1== nothing\n"), None);
    }
}
