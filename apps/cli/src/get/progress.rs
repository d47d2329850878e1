//! What is seen of a transfer while it goes on.

use crate::output::Output;
use indicatif::{ProgressBar, ProgressStyle};
use neater_http::Transport;

/// A bar, where somebody sees it.
pub(super) struct Progress(Option<ProgressBar>);

const KNOWN: &str =
    "{prefix:24!} {bar:24} {decimal_bytes:>11}/{decimal_total_bytes:<11} {decimal_bytes_per_sec:>12} {eta:>4} {msg}";
const UNKNOWN: &str = "{prefix:24!} {spinner} {decimal_bytes:>11} {decimal_bytes_per_sec:>12} {msg}";

impl Progress {
    pub(super) fn new(output: &Output, name: &str) -> Self {
        let Some(bars) = output.bars() else { return Self(None) };
        let bar = bars.add(ProgressBar::no_length());
        bar.set_style(style(UNKNOWN));
        bar.set_prefix(name.to_owned());
        bar.set_message("connecting");
        Self(Some(bar))
    }

    /// The answer has begun: so many bytes in all, of which the first are there.
    pub(super) fn begin(&self, transport: &Transport, total: Option<u64>, at: u64) {
        let Some(bar) = &self.0 else { return };
        if let Some(total) = total {
            bar.set_style(style(KNOWN));
            bar.set_length(total);
        }
        bar.set_position(at);
        bar.reset_eta();
        bar.set_message(format!("{} over {}", transport.version, transport.stack));
    }

    pub(super) fn at(&self, written: u64) {
        if let Some(bar) = &self.0 {
            bar.set_position(written);
        }
    }

    pub(super) fn say(&self, text: String) {
        if let Some(bar) = &self.0 {
            bar.set_message(text);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}
