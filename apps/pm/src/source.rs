//! Sources of one's own for the CIB: files and HTTP endpoints that are asked again and again.
//!
//! A fault of a source is reported once, until it changes; the last answer of the source stays in
//! force until it expires. Nothing waits for a source: each is read by a task of its own.

use super::{PATIENCE, Shared, now};
use neater::{Neater, SecurityParameters, Trust, tls::certificates_from_pem};
use neater_command::failure::{Exit, Failure};
use neater_command::file;
use neater_http::{Client, RequestOptions, Url};
use neater_policy_daemon::{MAX_SOURCE_TEXT, MAX_SOURCES};
use serde_json::json;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// How often in a row a source may fail before its last answer expires.
const MISSES: u32 = 3;

/// A source as it stands on the command line.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Source {
    File(PathBuf),
    Http(Url),
}

impl Source {
    fn new(text: &str) -> Result<Self, Failure> {
        let wrong = |why: String| Failure::usage(format!("--source {text}: {why}"));
        if !text.contains("://") {
            return Ok(Self::File(text.into()));
        }
        if !text.starts_with("http://") && !text.starts_with("https://") {
            return Err(wrong("a file, or a URL of http or https".into()));
        }
        Url::parse(text).map(Self::Http).map_err(|e| wrong(e.to_string()))
    }

    fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Http(url) => url.to_string(),
        }
    }
}

/// What asks the sources.
pub(super) struct Sources {
    all: Vec<Source>,
    every: Duration,
    client: Option<Client>,
}

impl Sources {
    /// Reads the command line. Must be called on tokio.
    pub(super) fn new(named: &[String], every: Duration, ca: Option<&Path>) -> Result<Self, Failure> {
        if named.len() > MAX_SOURCES {
            return Err(Failure::usage(format!("--source: at most {MAX_SOURCES}, not {}", named.len())));
        }
        let all = named.iter().map(|text| Source::new(text)).collect::<Result<Vec<_>, _>>()?;
        if let Some(twice) = (1..all.len()).find(|i| all[..*i].contains(&all[*i])) {
            return Err(Failure::usage(format!("--source {} stands there twice", all[twice].name())));
        }
        let http = all.iter().any(|s| matches!(s, Source::Http(_)));
        // Authorities that were named must be used: a missing file is an error, whatever the
        // sources are.
        let trust = ca.map(authorities).transpose()?;
        if !http && trust.is_some() {
            return Err(Failure::usage(
                "--source-ca names the authorities of https sources, and there is no such source",
            ));
        }
        let client = if http { Some(client(trust)?) } else { None };
        Ok(Self { all, every, client })
    }

    /// Asks each for as long as the program runs.
    pub(super) fn follow(self, shared: &Arc<Shared>) {
        for source in self.all {
            tokio::spawn(follow(source, self.every, self.client.clone(), shared.clone()));
        }
    }
}

/// The authorities that a file names.
fn authorities(path: &Path) -> Result<Trust, Failure> {
    let all = certificates_from_pem(&file::read(path)?)
        .map_err(|e| Failure::usage(format!("--source-ca {}: {e}", path.display())))?;
    Ok(Trust::Only(all))
}

/// A client that asks no policies: they are made here.
fn client(trust: Option<Trust>) -> Result<Client, Failure> {
    let neater = Neater::builder().without_policies().build();
    let neater = neater.map_err(|e| Failure::new(Exit::Failed, "local", format!("this system: {e}")))?;
    let mut security = SecurityParameters::new();
    if let Some(trust) = trust {
        security.trust = trust;
    }
    Ok(Client::builder(neater).security(security).silence(PATIENCE).connect_timeout(PATIENCE).build())
}

async fn follow(source: Source, every: Duration, client: Option<Client>, shared: Arc<Shared>) {
    let name = source.name();
    let silence = (every * MISSES).max(Duration::from_secs(1)) + PATIENCE;
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The last report, so that each is made once.
    let mut last: Option<Result<usize, String>> = None;
    loop {
        ticks.tick().await;
        let text = match &source {
            Source::File(path) => read(path).map_err(|e| plain(&e)),
            Source::Http(url) => match &client {
                Some(client) => timeout(PATIENCE, fetch(client, url))
                    .await
                    .unwrap_or_else(|_| Err(format!("no whole answer within {} s", PATIENCE.as_secs()))),
                None => Err("there is no client for it".into()),
            },
        };
        let came = text.and_then(|text| shared.daemon().set_source(&name, &text, silence, now()));
        if last.as_ref() != Some(&came) {
            report(&name, &came, &shared);
            last = Some(came);
        }
    }
}

fn report(name: &str, came: &Result<usize, String>, shared: &Shared) {
    let output = &shared.output;
    match came {
        Ok(nodes) if output.json => output.event(&json!({"event": "source", "source": name, "nodes": nodes})),
        Ok(nodes) => output.note(&format!("{name}: {nodes} nodes")),
        Err(why) if output.json => output.event(&json!({"event": "source", "source": name, "why": why})),
        Err(why) => output.note(&format!("{name}: {why}; its last answer stays in force until it expires")),
    }
}

/// The system's words without its number.
fn plain(e: &io::Error) -> String {
    let text = e.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

/// A file as a whole. Anything but a regular file could block.
fn read(path: &Path) -> io::Result<String> {
    let mut text = Vec::new();
    neater::policies::folder::open(path)?.take(MAX_SOURCE_TEXT as u64 + 1).read_to_end(&mut text)?;
    if text.len() > MAX_SOURCE_TEXT {
        return Err(io::Error::other(format!("more than {MAX_SOURCE_TEXT} bytes")));
    }
    String::from_utf8(text).map_err(|_| io::Error::other("it is not UTF-8"))
}

/// An answer as a whole. Redirections are not followed: only the named server is asked.
async fn fetch(client: &Client, url: &Url) -> Result<String, String> {
    let options = RequestOptions { redirects: 0, ..RequestOptions::default() };
    let mut response = client.get(url, &options).await.map_err(|e| e.to_string())?;
    if response.status() != 200 {
        return Err(format!("the answer is {}, not 200", response.status()));
    }
    let mut text = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|e| e.to_string())? {
        if text.len() + piece.len() > MAX_SOURCE_TEXT {
            return Err(format!("more than {MAX_SOURCE_TEXT} bytes"));
        }
        text.extend_from_slice(&piece);
    }
    String::from_utf8(text).map_err(|_| "it is not UTF-8".into())
}
