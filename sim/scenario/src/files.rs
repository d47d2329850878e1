//! Files that a scenario names: what kind each is, and what it says.

use crate::units;
use core::time::Duration;
use neater_link::DeliveryTrace;
use std::sync::Arc;

/// The most times that a file may have.
const MAX_TIMES: usize = 4_000_000;

/// What a file is named for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// Delivery opportunities in mahimahi's format: `rate = { trace-file = "NAME" }`.
    Trace,
    /// Times, one on a line: `jitter = { values-file = "NAME" }`. A number alone is milliseconds, with a fraction or not; other units are
    /// named (`250 us`). Empty lines, and what stands behind `#`, are passed over.
    Times,
}

/// What a file says.
#[derive(Clone, Debug, PartialEq)]
pub enum FileContent {
    /// Of [`FileKind::Trace`].
    Trace(Arc<DeliveryTrace>),
    /// Of [`FileKind::Times`].
    Times(Arc<[Duration]>),
}

impl FileKind {
    /// The kind of file whose name stands at this key.
    pub(crate) fn of_key(key: &str) -> Option<(Self, &'static str)> {
        match key {
            "trace-file" => Some((Self::Trace, "trace-file")),
            "values-file" => Some((Self::Times, "values-file")),
            _ => None,
        }
    }

    /// Reads the text of such a file.
    ///
    /// # Errors
    /// What is wrong, at which line.
    pub fn read(self, text: &str) -> Result<FileContent, String> {
        match self {
            Self::Trace => {
                DeliveryTrace::parse(text).map(|t| FileContent::Trace(Arc::new(t))).map_err(|e| e.to_string())
            }
            Self::Times => times(text).map(|t| FileContent::Times(t.into())),
        }
    }
}

fn times(text: &str) -> Result<Vec<Duration>, String> {
    let mut all = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let words = line.split('#').next().unwrap_or_default().trim();
        if words.is_empty() {
            continue;
        }
        if all.len() == MAX_TIMES {
            return Err(format!("line {}: more than {MAX_TIMES} times", i + 1));
        }
        let alone = words.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let time = if alone { units::time(&format!("{words} ms")) } else { units::time(words) };
        all.push(time.map_err(|e| format!("line {}: {e}", i + 1))?);
    }
    if all.is_empty() { Err("has no times: one on a line, in milliseconds".to_owned()) } else { Ok(all) }
}
