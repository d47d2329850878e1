//! How far a long piece of work is and how long it still takes: a bar on a terminal, a line now and then elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Without a terminal, a line at most this often.
const EVERY: Duration = Duration::from_secs(10);

/// The progress of work whose parts take different times.
#[derive(Debug)]
pub(crate) struct Bar {
    what: String,
    total: f64,
    started: Instant,
    bar: Option<ProgressBar>,
    /// Seconds' worth of work that is done, and when it was last told.
    state: Mutex<(f64, Instant)>,
}

/// A duration for people.
#[must_use]
pub(crate) fn span(seconds: f64) -> String {
    let s = seconds.max(0.0).round() as u64;
    if s >= 90 { format!("{} min", s.div_ceil(60)) } else { format!("{s} s") }
}

impl Bar {
    /// Work that was thought to take `total` seconds if nothing is done at once.
    pub(crate) fn new(what: &str, total: f64) -> Self {
        let bar = (std::io::stderr().is_terminal() && total > 0.0).then(|| {
            let bar = ProgressBar::new(1000);
            let style = ProgressStyle::with_template("{prefix} {wide_bar} {percent:>3} %  {msg}");
            if let Ok(style) = style {
                bar.set_style(style);
            }
            bar.set_prefix(what.to_owned());
            bar
        });
        let now = Instant::now();
        Self { what: what.to_owned(), total, started: now, bar, state: Mutex::new((0.0, now)) }
    }

    /// Says something beside it.
    pub(crate) fn note(&self, words: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("neater-lab: {words}")),
            None => eprintln!("neater-lab: {words}"),
        }
    }

    /// So many of the seconds are done.
    pub(crate) fn done(&self, seconds: f64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 += seconds;
        let part = if self.total > 0.0 { (state.0 / self.total).min(1.0) } else { 1.0 };
        // What is left takes as much longer than was thought as what is done did.
        let left = span(self.started.elapsed().as_secs_f64() * (1.0 - part) / part.max(1e-6));
        if let Some(bar) = &self.bar {
            bar.set_position((part * 1000.0) as u64);
            bar.set_message(format!("{left} left"));
        } else if state.1.elapsed() >= EVERY {
            state.1 = Instant::now();
            eprintln!("neater-lab: {}: {:.0} %, {left} left", self.what, part * 100.0);
        }
    }

    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_seconds_then_in_minutes() {
        assert_eq!([0.2, 59.0, 89.0, 100.0, 3600.0].map(span), ["0 s", "59 s", "89 s", "2 min", "60 min"]);
        assert_eq!(span(-5.0), "0 s");
    }
}
