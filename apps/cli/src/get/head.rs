//! `neater get -I`: the head of a server's answer, and not the file.

use super::asked::Request;
use crate::failure::{Exit, Failure};
use crate::output::{Output, zoned};
use crate::seen::Seen;
use neater_http::{Client, Url};
use serde_json::json;
use std::fmt::Write as _;
use std::path::Path;

/// Asks for the head of each, one after the other, and shows it: to standard output, or to a file.
pub(super) async fn run(
    client: &Client,
    asked: &Request,
    urls: &[Url],
    file: Option<&Path>,
    (seen, output): (&Seen, &Output),
) -> Result<Exit, Failure> {
    let (mut text, mut failures) = (String::new(), Vec::new());
    for url in urls {
        match client.send(asked.method.clone(), url, asked.content.clone(), &asked.options).await {
            Err(e) => {
                let f = seen.pin_of(Failure::from(e), &url.origin().host);
                super::show(Some(&url.to_string()), &f, output);
                failures.push(f);
            }
            Ok(response) => {
                let (t, status) = (response.transport(), response.status());
                let value = |v: &http::HeaderValue| String::from_utf8_lossy(v.as_bytes()).into_owned();
                if output.json {
                    let fields: Vec<_> =
                        response.headers().iter().map(|(n, v)| json!([n.as_str(), value(v)])).collect();
                    output.event(&json!({
                        "event": "head", "url": url.to_string(), "status": status.as_u16(), "http": t.version.to_string(),
                        "transport": t.stack.as_str(), "address": t.remote.map(|a| zoned(&a.to_string())), "fields": fields,
                        "proxy": t.proxy.as_ref().map(ToString::to_string),
                    }));
                } else {
                    let _ = writeln!(text, "{} {}", t.version, super::transfer::status(status));
                    for (name, v) in response.headers() {
                        let _ = writeln!(text, "{name}: {}", value(v));
                    }
                    text.push('\n');
                }
                if status.as_u16() >= 400 {
                    failures.push(super::proxies::refused(status, t));
                }
            }
        }
    }
    match file.filter(|p| *p != Path::new("-")) {
        Some(path) if !output.json => std::fs::write(path, &text).map_err(|e| super::file("write", path, &e))?,
        _ => text.lines().for_each(|line| output.line(line)),
    }
    Ok(match failures.first() {
        None => Exit::Ok,
        Some(_) if failures.len() < urls.len() => Exit::Partial,
        Some(f) => f.exit,
    })
}
