//! The log of what is answered.

use crate::output::{Output, bytes, ms};
use core::time::Duration;
use neater_http::Answered;
use serde_json::json;
use std::io::{IsTerminal, stderr};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::SystemTime;

/// Whether requests are logged: at a terminal, or where it was asked for.
pub(super) fn are_logged(output: &Output, quiet: bool) -> bool {
    output.verbose || !quiet && !output.json && stderr().is_terminal()
}

/// Lines that wait for a slow terminal or pipe: then they are left out, for the server must not
/// wait.
const WAITING: usize = 4096;
/// How long the last lines may take.
const LAST: Duration = Duration::from_secs(1);

/// A log on a thread of its own.
pub(super) struct Log {
    lines: SyncSender<(SystemTime, Answered)>,
    done: Receiver<()>,
}

impl Log {
    pub(super) fn new(output: Output) -> Self {
        let (lines, waiting) = sync_channel::<(SystemTime, Answered)>(WAITING);
        let (over, done) = sync_channel(1);
        std::thread::spawn(move || {
            waiting.into_iter().for_each(|(at, answered)| log(&output, at, &answered));
            let _ = over.send(());
        });
        Self { lines, done }
    }

    /// What takes answers.
    pub(super) fn taker(&self) -> impl Fn(&Answered) + Send + Sync + 'static {
        let lines = self.lines.clone();
        move |answered| {
            // Full: the line is left out.
            let _ = lines.try_send((SystemTime::now(), answered.clone()));
        }
    }

    /// Lets the last lines be written; the server is gone.
    pub(super) fn finish(self) {
        drop(self.lines);
        let _ = self.done.recv_timeout(LAST);
    }
}

/// A line, or an object, for an answer.
fn log(output: &Output, at: SystemTime, a: &Answered) {
    let now = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    if !output.json {
        return output.note(&line(now, a));
    }
    output.event(&json!({
        "event": "request", "time": now.as_secs_f64(), "client": a.client.map(|c| c.to_string()),
        "method": a.method.as_str(), "path": a.path, "http": format!("{:?}", a.version), "status": a.status,
        "bytes": a.bytes, "of": a.length, "ms": ms(a.took), "whole": a.whole,
    }));
}

/// `14:05:59Z 192.0.2.1 "GET /a HTTP/2.0" 200 12.30 kB in 3 ms`.
fn line(now: Duration, a: &Answered) -> String {
    let of_day = now.as_secs() % 86_400;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let client = a.client.map_or_else(|| "-".to_owned(), |c| c.to_string());
    let end = match a.whole {
        true => bytes(a.bytes),
        false => format!("cut short: at most {} of {}", a.bytes, bytes(a.length)),
    };
    // A path must not look like the end of its line.
    let plain = |c: char| c.is_ascii_graphic() && c != '"';
    let path: String = a.path.chars().map(|c| if plain(c) { c } else { '?' }).collect();
    let (method, version, status) = (&a.method, a.version, a.status);
    let took = a.took.as_millis();
    format!("{hour:02}:{minute:02}:{second:02}Z {client} \"{method} {path} {version:?}\" {status} {end} in {took} ms")
}
