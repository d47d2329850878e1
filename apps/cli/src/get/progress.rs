//! What is seen of a transfer while it goes on: a bar on a terminal, objects for programs, and now
//! and then a line for logs.

use crate::output::Output;
use core::time::Duration;
use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use serde_json::json;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The interval of reports to programs.
const OBJECT_EVERY: Duration = Duration::from_secs(1);
/// How often there is a line.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// How much longer than this it takes does not matter.
const LONG: Duration = Duration::from_secs(86_400);
/// Bytes in a second below which a transfer stands still.
const STANDS: f64 = 1.0;

/// See the module's documentation.
pub(super) enum Progress {
    Bar(ProgressBar),
    Words(Mutex<Words>),
}

/// The state of a transfer that is reported in words.
pub(super) struct Words {
    output: Output,
    url: String,
    every: Duration,
    /// The last report, and when; before, where the transfer began.
    last: (Instant, u64),
    total: Option<u64>,
}

const KNOWN: &str =
    "{prefix:24!} {bar:24} {decimal_bytes:>11}/{decimal_total_bytes:<11} {decimal_bytes_per_sec:>12} {left:>4} {msg}";
const UNKNOWN: &str = "{prefix:24!} {spinner} {decimal_bytes:>11} {decimal_bytes_per_sec:>12} {msg}";

impl Progress {
    pub(super) fn new(output: &Output, url: &str, name: &str) -> Self {
        let Some(bars) = output.bars() else {
            return Self::Words(Mutex::new(Words {
                output: output.clone(),
                url: url.to_owned(),
                every: match (output.json, output.quiet) {
                    (true, _) => OBJECT_EVERY,
                    (false, true) => Duration::MAX,
                    (false, false) => LINE_EVERY,
                },
                last: (Instant::now(), 0),
                total: None,
            }));
        };
        let bar = bars.add(ProgressBar::no_length());
        bar.set_style(style(UNKNOWN));
        bar.set_prefix(name.to_owned());
        bar.set_message("connecting");
        Self::Bar(bar)
    }

    /// The answer has begun, by the transport that `over` names: so many bytes in all, of which the
    /// first `at` are there.
    pub(super) fn begin(&self, over: &str, total: Option<u64>, at: u64) {
        match self {
            Self::Bar(bar) => {
                if let Some(total) = total {
                    bar.set_style(style(KNOWN));
                    bar.set_length(total);
                }
                bar.set_position(at);
                bar.reset_eta();
                bar.set_message(over.to_owned());
            }
            Self::Words(words) => {
                let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
                words.total = total;
                words.last = (Instant::now(), at);
            }
        }
    }

    pub(super) fn at(&self, written: u64) {
        match self {
            Self::Bar(bar) => bar.set_position(written),
            Self::Words(words) => words.lock().unwrap_or_else(PoisonError::into_inner).at(Instant::now(), written),
        }
    }

    pub(super) fn say(&self, text: String) {
        if let Self::Bar(bar) = self {
            bar.set_message(text);
        }
    }
}

impl Words {
    fn at(&mut self, now: Instant, written: u64) {
        let took = now - self.last.0;
        if took < self.every {
            return;
        }
        let rate = (written.saturating_sub(self.last.1) as f64 / took.as_secs_f64()) as u64;
        self.last = (now, written);
        if self.output.json {
            return self.output.event(&json!({
                "event": "progress", "url": self.url, "bytes": written, "total": self.total, "bytes_per_second": rate,
            }));
        }
        self.output.note(&format!("neater: {}: {}", self.url, line(written, self.total, rate)));
    }
}

/// `12.3 MB of 200 MB (6 %), 1.2 MB/s, 3 minutes left`.
fn line(written: u64, total: Option<u64>, rate: u64) -> String {
    let Some(total) = total.filter(|t| *t > 0) else { return format!("{}, {}/s", size(written), size(rate)) };
    let share = written as f64 * 100.0 / total as f64;
    let left = total.saturating_sub(written).checked_div(rate).map(Duration::from_secs);
    let left = match left {
        None => "stalled".into(),
        Some(left) if left > LONG => "more than a day left".into(),
        Some(left) => format!("{} left", HumanDuration(left)),
    };
    format!("{} of {} ({share:.0} %), {}/s, {left}", size(written), size(total), size(rate))
}

/// `12.3 MB`, `40.6 kB` or `17 bytes`.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("=> ").with_key("left", |state: &ProgressState, out: &mut dyn core::fmt::Write| {
        // Where this cannot be written, the bar cannot either.
        let _ = match state.eta() {
            left if state.per_sec() < STANDS || left > LONG => out.write_str("-"),
            left => write!(out, "{:#}", HumanDuration(left)),
        };
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_much_how_fast_and_how_long_still() {
        assert_eq!(
            line(12_300_000, Some(200_000_000), 1_200_000),
            "12.3 MB of 200.0 MB (6 %), 1.2 MB/s, 3 minutes left"
        );
        assert_eq!(line(12_300_000, None, 1_200_000), "12.3 MB, 1.2 MB/s");
        assert_eq!(line(50, Some(100), 0), "50 bytes of 100 bytes (50 %), 0 bytes/s, stalled");
        assert_eq!(line(0, Some(0), 1), "0 bytes, 1 bytes/s");
        assert_eq!(line(500_000, Some(5_000_000), 40_600), "500.0 kB of 5.0 MB (10 %), 40.6 kB/s, 2 minutes left");
    }

    #[test]
    fn words_come_no_more_often_than_they_may() {
        let began = Instant::now();
        let output = Output::new(true, false);
        let mut words = Words { output, url: "u".into(), every: OBJECT_EVERY, last: (began, 5), total: None };
        words.at(began + OBJECT_EVERY / 2, 100);
        assert_eq!(words.last, (began, 5));
        words.at(began + OBJECT_EVERY, 100);
        assert_eq!(words.last, (began + OBJECT_EVERY, 100));
        words.at(began + OBJECT_EVERY + OBJECT_EVERY / 2, 200);
        assert_eq!(words.last.1, 100);
    }
}
