//! What people and programs read.

use crate::failure::{Exit, Failure};
use indicatif::MultiProgress;
use neater::{Event, Step, TimelineEntry};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Where output goes. Cheap to clone.
#[derive(Clone)]
pub struct Output {
    /// Objects for programs instead of text.
    pub json: bool,
    /// Every step.
    pub verbose: bool,
    /// Nothing but failures.
    pub quiet: bool,
    /// Standard output carries data: objects go to standard error.
    data_on_stdout: Arc<AtomicBool>,
    /// Why standard output took something not: the first time.
    lost: Arc<OnceLock<io::Error>>,
    bars: MultiProgress,
}

impl Output {
    /// Output as the command line asks for it.
    #[must_use]
    pub fn new(json: bool, verbose: bool) -> Self {
        Self {
            json,
            verbose,
            quiet: false,
            data_on_stdout: Arc::default(),
            lost: Arc::default(),
            bars: MultiProgress::new(),
        }
    }

    /// Standard output is for data from now on.
    pub fn reserve_stdout(&self) {
        self.data_on_stdout.store(true, Ordering::Release);
    }

    /// Where progress is drawn, if it would be seen.
    pub fn bars(&self) -> Option<&MultiProgress> {
        let data = self.data_on_stdout.load(Ordering::Acquire) && io::stdout().is_terminal();
        (!self.json && !self.verbose && !self.quiet && !data && io::stderr().is_terminal()).then_some(&self.bars)
    }

    /// An object for programs.
    pub fn event(&self, value: &Value) {
        let line = format!("{value}\n");
        if self.data_on_stdout.load(Ordering::Acquire) {
            // If this cannot be written, nothing can.
            let _ = io::stderr().lock().write_all(line.as_bytes());
        } else {
            self.keep_error(io::stdout().lock().write_all(line.as_bytes()));
        }
    }

    /// Keeps why something could not be written, for the end of the command. A reader that has gone
    /// wants no more.
    pub fn keep_error(&self, done: io::Result<()>) {
        if let Err(e) = done
            && e.kind() != io::ErrorKind::BrokenPipe
        {
            let _ = self.lost.set(e);
        }
    }

    /// Whether all of the answer went to standard output.
    pub fn check(&self) -> Result<(), Failure> {
        self.keep_error(io::stdout().lock().flush());
        match self.lost.get() {
            None => Ok(()),
            Some(e) => {
                // There it would be lost as well.
                self.reserve_stdout();
                Err(Failure::file("write", std::path::Path::new("standard output"), e))
            }
        }
    }

    /// A line of the answer.
    pub fn line(&self, text: &str) {
        self.keep_error(writeln!(io::stdout().lock(), "{}", harmless(text)));
    }

    /// Something that programs may want to know of as well as people, about a URL or not.
    pub fn report(&self, event: &str, url: Option<&str>, text: &str) {
        if self.json {
            let mut value = json!({ "event": event, "message": text });
            if let Some(url) = url {
                value["url"] = url.into();
            }
            return self.event(&value);
        }
        let of = url.map_or_else(String::new, |url| format!("neater: {url}: "));
        self.note(&format!("{of}{text}"));
    }

    /// A file that was written.
    pub fn file(&self, path: &std::path::Path) {
        if self.json {
            self.event(&json!({ "event": "file", "path": path.display().to_string() }));
        } else {
            self.line(&path.display().to_string());
        }
    }

    /// A line about what goes on.
    pub fn note(&self, text: &str) {
        let text = harmless(text);
        self.bars.suspend(|| {
            let _ = writeln!(io::stderr().lock(), "{text}");
        });
    }

    /// Bytes of the answer.
    pub fn raw(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        match out.write_all(bytes).and_then(|()| out.flush()) {
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::new(Exit::Local, "file", format!("standard output: {e}")))
            }
            _ => Ok(()),
        }
    }

    /// The failure of the whole command.
    pub fn failure(&self, f: &Failure) {
        if self.json {
            return self.event(&failed(None, f));
        }
        self.note(&format!("neater: {}", f.message));
        for advice in &f.advice {
            self.note(&format!("  {advice}"));
        }
    }

    /// A step of establishment, when it happens.
    pub fn step(&self, origin: &str, event: &Event) {
        let Event::Timeline(entry) = event else { return };
        if !self.verbose {
            return;
        }
        if self.json {
            let mut value = step(entry);
            value["target"] = origin.into();
            self.event(&value);
        } else {
            self.note(&format!("{:>9.1} ms  {}", ms(entry.at), zoned(&entry.step.to_string())));
        }
    }
}

/// A text that a terminal takes for nothing but text, whatever its source: reasons of peers, names,
/// headers. Lines and tabs stay; what would move the cursor, colour, or turn the direction of
/// writing is shown as a mark.
fn harmless(text: &str) -> Cow<'_, str> {
    let bad = |c: char| {
        c.is_control() && !matches!(c, '\n' | '\t') || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if text.contains(bad) { text.replace(bad, "\u{fffd}").into() } else { text.into() }
}

/// The object of a failure.
pub fn failed(url: Option<&str>, f: &Failure) -> Value {
    let mut value =
        json!({ "event": "failed", "exit": f.exit as u8, "kind": f.kind, "message": f.message, "advice": f.advice });
    if let Some(url) = url {
        value["url"] = url.into();
    }
    value
}

/// A text with the zones of its link-local addresses as people name them, by their interfaces (RFC
/// 4007 section 11.2), and not by numbers that change with every boot.
pub fn zoned(text: &str) -> String {
    with_names(text, |index| {
        let socket =
            rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::DGRAM, None).ok()?;
        rustix::net::netdevice::index_to_name(&socket, index).ok()
    })
}

/// Puts a name in the place of each number between `%` and `]`, where there is one.
fn with_names(text: &str, name: impl Fn(u32) -> Option<String>) -> String {
    let mut pieces = text.split('%');
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        out.push('%');
        let named = piece.split_once(']').and_then(|(number, rest)| Some((name(number.parse().ok()?)?, rest)));
        match named {
            Some((name, rest)) => {
                out.push_str(&name);
                out.push(']');
                out.push_str(rest);
            }
            None => out.push_str(piece),
        }
    }
    out
}

/// Milliseconds, as people and programs get them.
pub fn ms(d: core::time::Duration) -> f64 {
    (d.as_secs_f64() * 1e6).round() / 1e3
}

/// The object of a step.
pub fn step(entry: &TimelineEntry) -> Value {
    let mut value = json!({ "event": "timeline", "ms": ms(entry.at), "text": zoned(&entry.step.to_string()) });
    let (name, place) = match &entry.step {
        Step::Resolving { .. } => ("resolving", None),
        Step::Resolved { .. } => ("resolved", None),
        Step::Policy { .. } => ("policy", None),
        Step::ByRate { .. } => ("by-rate", None),
        Step::FromCache { stack, addr } => ("from-cache", Some((stack, addr))),
        Step::Doubted { stack, addr, .. } => ("doubted", Some((stack, addr))),
        Step::Started { stack, addr } => ("started", Some((stack, addr))),
        Step::Reachable { stack, addr, .. } => ("reachable", Some((stack, addr))),
        Step::Established { stack, addr } => ("established", Some((stack, addr))),
        Step::SeveralPaths { stack, addr, agreed: true } => ("several-paths", Some((stack, addr))),
        Step::SeveralPaths { stack, addr, agreed: false } => ("one-path", Some((stack, addr))),
        Step::Became { stack, addr, .. } => ("became", Some((stack, addr))),
        Step::Failed { stack, addr, .. } => ("failed", Some((stack, addr))),
        Step::Withdrawn { stack, addr } => ("withdrawn", Some((stack, addr))),
        Step::Chosen { stack, addr } => ("chosen", Some((stack, addr))),
        _ => ("other", None),
    };
    value["step"] = name.into();
    if let Some((stack, addr)) = place {
        value["transport"] = stack.as_str().into();
        value["address"] = zoned(&addr.to_string()).into();
    }
    value
}

/// Bytes for people.
pub fn bytes(n: u64) -> String {
    let mut value = n as f64;
    if n == 1 {
        return "1 byte".to_owned();
    }
    if value < 1000.0 {
        return format!("{n} bytes");
    }
    for unit in ["kB", "MB", "GB"] {
        value /= 1000.0;
        if value < 1000.0 {
            return format!("{value:.2} {unit}");
        }
    }
    format!("{:.2} TB", value / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_says_is_nothing_but_text() {
        assert_eq!(harmless("a\tb\nc \u{fc}"), "a\tb\nc \u{fc}");
        assert!(matches!(harmless("plain"), Cow::Borrowed(_)));
        let shown = harmless("\x1b]0;title\x07\x1b[2J\r\u{9b}31m\u{202e}\u{8}");
        assert!(!shown.chars().any(|c| c.is_control() || c == '\u{202e}') && shown.contains("31m"), "{shown:?}");
    }

    #[test]
    fn zones_have_the_names_of_their_interfaces() {
        let name = |index: u32| (index == 2).then(|| "eth0".to_owned());
        let of = |text: &str| with_names(text, name);
        assert_eq!(of("QUIC to [fe80::1%2]:443 and [fe80::2%3]:1"), "QUIC to [fe80::1%eth0]:443 and [fe80::2%3]:1");
        assert_eq!(of("50% of [::1]:2, 100%"), "50% of [::1]:2, 100%");
        assert_eq!(zoned("[fe80::1%1]:443"), "[fe80::1%lo]:443");
        assert_eq!(of(""), "");
    }
}
