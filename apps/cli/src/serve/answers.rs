//! The log of what is answered.

use crate::output::{Output, bytes, ms};
use core::time::Duration;
use neater_http::Answered;
use serde_json::json;
use std::io::{IsTerminal, stderr};
use std::time::SystemTime;

/// Whether requests are logged: where somebody watches, or where it was asked for.
pub(super) fn are_logged(output: &Output, quiet: bool) -> bool {
    output.verbose || !quiet && !output.json && stderr().is_terminal()
}

/// A line, or an object, for an answer.
pub(super) fn log(output: &Output, a: &Answered) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
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
    let (method, path, version, status) = (&a.method, &a.path, a.version, a.status);
    let took = a.took.as_millis();
    format!("{hour:02}:{minute:02}:{second:02}Z {client} \"{method} {path} {version:?}\" {status} {end} in {took} ms")
}
