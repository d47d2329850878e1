//! One URL into one target: the request, the body, and the rest after a break.
//!
//! *Invariants*: bytes are only appended when the server vouches that they belong behind those that
//! are there; what came is kept, whatever happens after.

use super::again::resume_command;
use super::asked::Request;
use super::coding::{self, Decoder};
use super::live::Live;
use super::progress::Progress;
use super::proxies::refused;
use super::target::{Sink, Target, Version, beside};
use crate::failure::{Exit, Failure};
use crate::output::{Output, ms};
use crate::why::why;
use core::time::Duration;
use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, DATE, ETAG, IF_RANGE, LAST_MODIFIED, RANGE,
    RETRY_AFTER,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use neater_http::{Client, ContentRange, Error, RequestOptions, Response, Transport, Url};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The wait before the first repetition; each further one waits twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Bytes beyond all that was there at earlier breaks with which a repetition counts as one that
/// helped: then as many are left as at first. A server that gives a few bytes each time, or begins
/// again and again, is not asked without end.
const HELPED: u64 = 1 << 20;

/// The longest wait that a server asks for and gets (RFC 9110 section 10.2.3).
pub(super) const BUSY_MOST: Duration = Duration::from_secs(120);
/// Answers that may be less than was asked for, before as much as that has come.
const PARTS: u32 = 64;

/// What to fetch, and where to.
pub(super) struct Job {
    pub(super) url: Url,
    pub(super) target: Target,
    pub(super) resume: bool,
    /// Another run could go on with what has come so far.
    pub(super) continuable: Arc<AtomicBool>,
}

/// How a transfer came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Fetched,
    Continued,
    /// And as long as the server's.
    AlreadyThere,
    /// As well, but the server does not report the length of its own.
    Unchecked,
}

impl Outcome {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Fetched => "fetched",
            Self::Continued => "continued",
            Self::AlreadyThere => "already-there",
            Self::Unchecked => "already-there-unchecked",
        }
    }
}

/// A transfer that is done.
pub(super) struct Done {
    pub(super) target: Target,
    /// What carried it, in turn: more than one if it broke, and the rest came another way.
    pub(super) transports: Vec<Transport>,
    /// Bytes of the whole.
    pub(super) written: u64,
    /// Bytes that came now.
    pub(super) came: u64,
    pub(super) took: Duration,
    pub(super) retries: u8,
    pub(super) outcome: Outcome,
}

/// Why one try did not do.
enum Trouble {
    /// Asking for the rest may help.
    Broken(Error),
    /// The server takes no requests at present, and perhaps states when it does.
    Busy(Failure, Option<Duration>),
    /// It would not.
    Final(Failure),
    /// What came was less than was asked for, and all that the server wanted to send at once (RFC
    /// 9110 section 14.2).
    More,
    /// What was there is of no use, and the whole is to be asked for.
    Anew,
}

impl From<Failure> for Trouble {
    fn from(f: Failure) -> Self {
        Self::Final(f)
    }
}

struct Transfer<'a> {
    client: &'a Client,
    asked: &'a Request,
    url: &'a Url,
    output: &'a Output,
    progress: Progress,
    live: Option<Live>,
    sink: Sink,
    transports: Vec<Transport>,
    came: u64,
    continuable: Arc<AtomicBool>,
}

pub(super) async fn run(
    client: &Client,
    asked: &Request,
    job: Job,
    retries: u8,
    output: &Output,
) -> Result<Done, Failure> {
    let started = Instant::now();
    if let Some(done) = already_there(client, asked, &job).await? {
        return Ok(done);
    }
    let Job { url, target, resume, continuable } = job;
    let sink = Sink::open(&target, &url.to_string(), resume).await?;
    let begun = sink.written();
    let name = url.file_name().unwrap_or_else(|| url.origin().host.clone());
    let progress = Progress::new(output, &url.to_string(), &name);
    let (transports, came, live) = (Vec::new(), 0, None);
    let mut transfer =
        Transfer { client, asked, url: &url, output, progress, live, sink, transports, came, continuable };
    let (mut tries, mut repeated) = (0, 0_u8);
    let mut wait = FIRST_WAIT;
    let (mut farthest, mut parts) = (begun, 0);
    loop {
        let trouble = match transfer.attempt(repeated > 0).await {
            Ok(()) => break,
            Err(trouble) => trouble,
        };
        // What comes next may begin the file again: nothing of this answer may be written behind
        // that.
        let trouble = match transfer.sink.flush().await {
            Ok(()) => trouble,
            Err(f) => Trouble::Final(f),
        };
        if transfer.sink.written() >= farthest.saturating_add(HELPED) {
            (farthest, tries, wait, parts) = (transfer.sink.written(), 0, FIRST_WAIT, 0);
        }
        match trouble {
            Trouble::More if parts < PARTS => parts += 1,
            Trouble::More => {
                let what =
                    format!("the server has sent less than a MiB in {PARTS} answers, each of a part of the file");
                return Err(transfer.give_up(Failure::new(Exit::Failed, "parts", what), repeated).await);
            }
            // Once: then there is nothing that could be of no use.
            Trouble::Anew => {}
            Trouble::Broken(e) if tries < retries => {
                tries += 1;
                repeated = repeated.saturating_add(1);
                transfer.announce(e.kind(), &e.to_string(), tries, retries);
                tokio::time::sleep(wait).await;
                // The waits before three retries are six seconds together: a server that is
                // restarted is back by then.
                wait = (wait * 5).min(LONGEST_WAIT);
            }
            Trouble::Busy(f, after) if tries < retries && after.is_none_or(|d| d <= BUSY_MOST) => {
                tries += 1;
                repeated = repeated.saturating_add(1);
                let wait_now = after.unwrap_or(wait).max(wait);
                transfer.announce(
                    f.kind,
                    &format!("{}, and waits {} s", f.message, wait_now.as_secs_f64().ceil()),
                    tries,
                    retries,
                );
                tokio::time::sleep(wait_now).await;
                wait = (wait * 5).min(LONGEST_WAIT);
            }
            Trouble::Broken(e) => return Err(transfer.give_up(e.into(), repeated).await),
            Trouble::Busy(f, _) => return Err(transfer.give_up(f, repeated).await),
            Trouble::Final(f) => return Err(transfer.give_up(f, repeated).await),
        }
    }
    transfer.continuable.store(false, Ordering::Relaxed);
    if let Err(f) = transfer.sink.finish().await {
        return Err(transfer.give_up(f, repeated).await);
    }
    let outcome =
        if begun > 0 && transfer.came < transfer.sink.written() { Outcome::Continued } else { Outcome::Fetched };
    let (written, came) = (transfer.sink.written(), transfer.came);
    let transports = core::mem::take(&mut transfer.transports);
    Ok(Done { target, transports, written, came, took: started.elapsed(), retries: repeated, outcome })
}

/// Whether what is to be fetched is there already, and no part of it: then there is nothing to go
/// on with. Its length must be the one that the server reports, if it reports any.
///
/// # Errors
/// The server cannot be asked, or has another length: it is unknown of what the file is a part.
pub(super) async fn already_there(client: &Client, asked: &Request, job: &Job) -> Result<Option<Done>, Failure> {
    let started = Instant::now();
    let Target::File(path) = &job.target else { return Ok(None) };
    let there = if job.resume { path.metadata().ok() } else { None };
    let Some(meta) = there.filter(|m| m.is_file()) else { return Ok(None) };
    if [".part", ".multi"].iter().any(|end| beside(path, end).exists()) {
        return Ok(None);
    }
    let outcome = match length(client, &asked.options, &job.url, meta.len()).await? {
        Some(there) if there == meta.len() => Outcome::AlreadyThere,
        None => Outcome::Unchecked,
        Some(there) => {
            let what = format!(
                "{} has {} bytes, {} has {there}, and nothing shows whether the one is a part of the other",
                path.display(),
                meta.len(),
                job.url
            );
            return Err(
                Failure::new(Exit::Local, "part", what).advise("without -C it is fetched from the start, and replaced")
            );
        }
    };
    let (target, written) = (job.target.clone(), meta.len());
    Ok(Some(Done { target, transports: Vec::new(), written, came: 0, took: started.elapsed(), retries: 0, outcome }))
}

/// The length of a file as the server reports it; `None` if it does not. Many answer HEAD, some
/// only parts, and some HEAD with the length of an answer without content: only where it is what is
/// `expected`, that is believed at once.
async fn length(client: &Client, options: &RequestOptions, url: &Url, expected: u64) -> Result<Option<u64>, Failure> {
    let mut options = options.clone();
    options.headers.entry(ACCEPT_ENCODING).or_insert(HeaderValue::from_static("identity"));
    let of = |headers: &HeaderMap| headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse::<u64>().ok();
    let head = client.head(url, &options).await.map_err(Failure::from)?;
    let stated = if head.status() == StatusCode::OK { of(head.headers()) } else { None };
    if stated == Some(expected) {
        return Ok(stated);
    }
    options.headers.insert(RANGE, HeaderValue::from_static("bytes=0-0"));
    let answer = client.get(url, &options).await.map_err(Failure::from)?;
    let whole = match answer.status() {
        StatusCode::PARTIAL_CONTENT => content_range(answer.headers()).and_then(|r| r.total),
        StatusCode::RANGE_NOT_SATISFIABLE => unsatisfied(answer.headers()),
        StatusCode::OK => of(answer.headers()),
        status if status.is_success() => None,
        status => return Err(refused(status, answer.transport())),
    };
    // The length of an empty content is no evidence about the file.
    Ok(whole.or(stated.filter(|length| *length > 0)))
}

/// A status that is no file.
pub(super) fn refused_by_server(answered: StatusCode) -> Failure {
    let exit = if answered.as_u16() >= 400 { Exit::Status } else { Exit::Failed };
    Failure::new(exit, "status", format!("the server answered {}", status(answered)))
}

/// A status in words, as far as there are any.
pub(super) fn status(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => status.as_u16().to_string(),
    }
}

impl Transfer<'_> {
    /// Asks for what is missing, and takes it.
    async fn attempt(&mut self, again: bool) -> Result<(), Trouble> {
        let offset = self.sink.written();
        let (method, content) = (self.asked.method.clone(), self.asked.content.clone());
        // What may have been done once is not asked for again (RFC 9110 section 9.2.2).
        let repeatable = |e: &Error| method.is_idempotent() || matches!(e, Error::Refused(_));
        let response = match self.client.send(method.clone(), self.url, content, &self.request(offset)).await {
            Ok(r) => r,
            Err(e) if e.is_transient() && repeatable(&e) => return Err(Trouble::Broken(e)),
            // A server that has just been there may be starting again.
            Err(e) if again && e.is_of_establishment() && repeatable(&e) => return Err(Trouble::Broken(e)),
            Err(e) => return Err(Trouble::Final(e.into())),
        };
        let t = response.transport();
        let way = |t: &Transport| (t.stack, t.version, t.remote, t.proxy.clone());
        if self.transports.last().is_none_or(|last| way(last) != way(t)) {
            self.connected(t);
        }
        let Some(total) = self.place(&response, offset)? else { return Ok(()) };
        self.continuable.store(self.sink.is_continuable(), Ordering::Relaxed);
        let over = format!("{} over {}", response.transport().version, response.transport().stack);
        let at = self.sink.written();
        self.progress.begin(&over, total, at);
        self.live = Some(Live::begin(self.output, &self.url.to_string(), &over, (at, total), response.paths()));
        let taken = self.take(response).await;
        self.live = None;
        taken
    }

    fn request(&self, offset: u64) -> RequestOptions {
        let mut options = self.asked.options.clone();
        // What is saved, and continued, is the file itself.
        let coding = if self.asked.compressed { coding::ASKED } else { "identity" };
        options.headers.entry(ACCEPT_ENCODING).or_insert(HeaderValue::from_static(coding));
        // Without a validator the rest may be that of another file: then the whole is asked for.
        if offset > 0
            && let Some(Ok(validator)) = self.sink.version().validator().map(HeaderValue::from_str)
            && let Ok(range) = HeaderValue::from_str(&format!("bytes={offset}-"))
        {
            options.headers.insert(RANGE, range);
            options.headers.insert(IF_RANGE, validator);
        }
        options
    }

    fn connected(&mut self, t: &Transport) {
        if self.output.json {
            self.output.event(&json!({
                "event": "connected", "url": self.url.to_string(), "transport": t.stack.as_str(),
                "http": t.version.to_string(), "address": t.remote.map(|a| crate::output::zoned(&a.to_string())), "security": t.security,
                "establishment_ms": ms(t.establishment), "reused": t.reused, "proxy": t.proxy.as_ref().map(ToString::to_string),
            }));
        } else if self.output.verbose && !t.reused {
            if let Some(proxy) = &t.proxy {
                self.output.note(&format!("              through the proxy {proxy}"));
            }
            // Each run has a cache of its own, and its first connection nothing from it.
            self.output.note(&format!("              {}: {}", t.stack, why(&t.candidates, false)));
        }
        self.transports.push(t.clone());
    }

    /// Makes sure that the body belongs where the sink stands. Returns how long the whole is, if
    /// that is known; `None`: nothing is missing.
    fn place(&mut self, response: &Response, offset: u64) -> Result<Option<Option<u64>>, Trouble> {
        let status = response.status();
        let fresh = version(response.headers());
        let url = self.url.to_string();
        let protocol = |what: String| Trouble::Final(Failure::new(Exit::Failed, "protocol", what));
        match status {
            StatusCode::PARTIAL_CONTENT if self.asked.part.is_some() => {
                // An answer of several parts has no range of its own (RFC 9110 section 15.3.7.2).
                let Some(part) = content_range(response.headers()).filter(|r| self.asked.is_it(*r)) else {
                    return Err(protocol("the server sends another part than was asked for".into()));
                };
                let total = Some(part.last - part.first + 1);
                self.sink.begin(&url, Version { total, ..Version::default() })?;
                Ok(Some(total))
            }
            status if status.is_success() && self.asked.part.is_some() => {
                Err(protocol("the server sends the whole file, and a part was asked for".into()))
            }
            StatusCode::PARTIAL_CONTENT if offset == 0 => {
                Err(protocol("the server sends a part of the file, and the whole was asked for".into()))
            }
            StatusCode::PARTIAL_CONTENT => {
                let range = content_range(response.headers()).filter(|r| r.first == offset);
                let Some(range) = range.filter(|r| response.length().is_none_or(|n| n == r.last - r.first + 1)) else {
                    let what = format!("bytes from {offset} on were asked for, and the server sends others");
                    let f = Failure::new(Exit::Failed, "protocol", what);
                    return Err(Trouble::Final(f.advise("remove the part, and fetch the file again")));
                };
                let known = self.sink.version().clone();
                let differs = |a: &Option<String>, b: &Option<String>| a.is_some() && b.is_some() && a != b;
                if differs(&known.etag, &fresh.etag)
                    || known.etag.is_none() && differs(&known.modified, &fresh.modified)
                    || known.total.is_some_and(|t| range.total.is_some_and(|n| n != t))
                {
                    return Err(Trouble::Final(
                        Failure::new(Exit::Failed, "changed", "the server sends a part of another version of the file")
                            .advise("remove the part, and fetch the file again"),
                    ));
                }
                // RFC 9110 section 15.3.7: a part of what has a tag has it, too. Without it the
                // part cannot be identified.
                if known.etag.is_some() && fresh.etag.is_none() && self.sink.restart() {
                    let what = "the server does not show that its part is of the same file: starting again";
                    self.output.report("restart", Some(&url), what);
                    return Err(Trouble::Anew);
                }
                let Some(total) = range.total.or(known.total) else {
                    return Err(protocol("the server sends a part without the length of the whole".into()));
                };
                self.sink.remember(&url, Version { total: Some(total), ..known })?;
                Ok(Some(Some(total)))
            }
            StatusCode::RANGE_NOT_SATISFIABLE if offset > 0 => match unsatisfied(response.headers()) {
                Some(total) if total == offset => Ok(None),
                _ if self.sink.restart() => {
                    let what = "the file on the server became shorter: starting again";
                    self.output.report("restart", Some(&url), what);
                    Err(Trouble::Anew)
                }
                _ => {
                    Err(Trouble::Final(Failure::new(Exit::Failed, "changed", "the file on the server became shorter")))
                }
            },
            status if status.is_success() => {
                if offset > 0 {
                    if !self.sink.restart() {
                        return Err(Trouble::Final(Failure::new(
                            Exit::Failed,
                            "interrupted",
                            format!(
                                "the connection broke after {offset} bytes, and the server does not send the rest alone"
                            ),
                        )));
                    }
                    let what = "the server has another version of the file, or only whole files: starting again";
                    self.output.report("restart", Some(&url), what);
                }
                let total = response.length().filter(|_| !self.asked.compressed);
                let fresh = if self.asked.is_plain() { fresh } else { Version::default() };
                self.sink.begin(&url, Version { total, ..fresh })?;
                Ok(Some(total))
            }
            // Where something has come of it before, the server is there, and will be again.
            StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::GATEWAY_TIMEOUT
                if self.asked.method.is_idempotent()
                    && (offset > 0 || response.headers().contains_key(RETRY_AFTER)) =>
            {
                Err(Trouble::Busy(refused(status, response.transport()), retry_after(response.headers())))
            }
            status => Err(Trouble::Final(refused(status, response.transport()))),
        }
    }

    async fn take(&mut self, mut response: Response) -> Result<(), Trouble> {
        let units = response.headers().get_all(ACCEPT_RANGES).into_iter().filter_map(|v| v.to_str().ok());
        let bytes = units.flat_map(|v| v.split(',')).any(|unit| unit.trim().eq_ignore_ascii_case("bytes"));
        let ranges = bytes || response.status() == StatusCode::PARTIAL_CONTENT;
        // RFC 9110 section 15.3.7.3: parts belong together if they share a strong validator.
        let ranges = ranges && self.sink.version().validator().is_some();
        let (part, before) = (response.status() == StatusCode::PARTIAL_CONTENT, self.came);
        // The range of a part holds, also where the answer has no length.
        let mut room = if part { content_range(response.headers()).map(|r| r.last + 1 - r.first) } else { None };
        let mut decoder = if self.asked.compressed { Decoder::of(response.headers())? } else { None };
        let mut guarded = self.asked.terminal && matches!(self.sink.target(), Target::Stdout);
        loop {
            match response.chunk().await {
                Ok(None) if decoder.is_some() => {
                    if let Some(rest) = decoder.map(Decoder::finish).transpose()?.filter(|rest| !rest.is_empty()) {
                        self.sink.write(rest).await?;
                    }
                    return Ok(());
                }
                Ok(None) => match self.whole() {
                    Err(Trouble::Broken(_)) if part && self.came > before => return Err(Trouble::More),
                    whole => return whole,
                },
                Ok(Some(data)) => {
                    let length = data.len() as u64;
                    if let Some(left) = &mut room {
                        *left = left.checked_sub(length).ok_or_else(|| {
                            let what = "more came than the part that the server has named";
                            Trouble::Final(Failure::new(Exit::Failed, "protocol", what))
                        })?;
                    }
                    match &mut decoder {
                        None => self.put(data, &mut guarded).await?,
                        Some(decoder) => {
                            // A little at a time: it may become a thousand times as much.
                            for coded in data.chunks(coding::PIECE) {
                                let plain = decoder.decode(coded)?;
                                if !plain.is_empty() {
                                    self.put(plain, &mut guarded).await?;
                                }
                            }
                        }
                    }
                    self.came += length;
                    if let Some(pace) = &self.asked.pace {
                        pace.take(length).await;
                    }
                    self.progress.at(self.sink.written());
                    if let Some(live) = &self.live {
                        live.at(self.sink.written());
                    }
                }
                Err(e) if ranges && (e.is_transient() || matches!(e, Error::Length { .. })) => {
                    return Err(Trouble::Broken(self.of_the_whole(e)));
                }
                Err(e) => {
                    let mut f: Failure = self.of_the_whole(e).into();
                    if !ranges && self.sink.can_be_continued() {
                        f = f.advise(
                            "the server does not state that it can send the rest of this very file alone, so it is asked for \
                             it only by -C",
                        );
                    }
                    return Err(Trouble::Final(f));
                }
            }
        }
    }

    /// Writes a piece, unless it is the first of what is no text, and goes to a terminal.
    async fn put(&mut self, data: bytes::Bytes, guarded: &mut bool) -> Result<(), Failure> {
        if core::mem::take(guarded) && data.contains(&0) {
            let f = Failure::new(Exit::Local, "terminal", "the content is no text, and goes to a terminal");
            return Err(f.advise("-o FILE saves it; -o - shows it all the same"));
        }
        self.sink.write(data).await
    }

    /// The error in the measures of the file, and not of the part of it that was asked for last.
    fn of_the_whole(&self, e: Error) -> Error {
        let (received, total) = (self.sink.written(), self.sink.version().total);
        match e {
            Error::Interrupted { expected, cause, .. } => {
                Error::Interrupted { received, expected: total.or(expected), cause }
            }
            e => e,
        }
    }

    /// Whether the bytes that are there are as many as the server has announced.
    fn whole(&self) -> Result<(), Trouble> {
        let written = self.sink.written();
        match self.sink.version().total {
            Some(total) if written != total => {
                let e = Error::Length { received: written, expected: total };
                Err(if written < total { Trouble::Broken(e) } else { Trouble::Final(e.into()) })
            }
            _ => Ok(()),
        }
    }

    fn announce(&self, kind: &str, what: &str, tries: u8, retries: u8) {
        self.progress.say(format!("retry {tries} of {retries}"));
        if self.output.quiet && !self.output.json {
            return;
        }
        if self.output.json {
            self.output.event(&json!({
                "event": "retry", "url": self.url.to_string(), "retry": tries, "of": retries,
                "from": self.sink.written(), "kind": kind, "message": what,
            }));
        } else {
            // The first line of what may have several.
            let (first, more) = what.split_once('\n').unwrap_or((what, ""));
            let next = if self.sink.written() == 0 { "asking again" } else { "asking for the rest" };
            self.output.note(&format!("neater: {}: {first}; {next} ({tries} of {retries})", self.url));
            more.lines().for_each(|line| self.output.note(line));
        }
    }

    /// Ends it: what has come is written, whatever has failed.
    async fn give_up(&mut self, mut f: Failure, tries: u8) -> Failure {
        let _ = self.sink.flush().await;
        if tries > 0 {
            let times = if tries == 1 { "one repetition".to_owned() } else { format!("{tries} repetitions") };
            f.message = format!("{} (after {times})", f.message);
        }
        if let Some(kept) = self.sink.kept() {
            f = f.advise(kept);
            // The server's file is another one now, or it does not answer as HTTP has it: going on
            // would fail again.
            let goes_on = !matches!(f.kind, "changed" | "protocol");
            if goes_on && self.sink.can_be_continued() {
                f = f.advise(format!("go on with: {}", resume_command()));
            } else if goes_on && self.sink.written() > 0 {
                f = f.advise("the server has sent nothing that shows whether the file is still the same: it will be fetched again");
            }
        }
        f
    }
}

/// When a server wants to be asked again: in so many seconds, or at a date (RFC 9110 section
/// 10.2.3).
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(value).ok()?;
    Some(at.duration_since(std::time::SystemTime::now()).unwrap_or_default())
}

pub(super) fn version(headers: &HeaderMap) -> Version {
    let text = |name| headers.get(name).and_then(|v: &HeaderValue| v.to_str().ok()).map(str::to_owned);
    Version { etag: text(ETAG), modified: text(LAST_MODIFIED), date: text(DATE), total: None }
}

/// `bytes 5-9/10`; the whole length may be `*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) total: Option<u64>,
}

pub(super) fn content_range(headers: &HeaderMap) -> Option<Range> {
    match ContentRange::parse(headers.get(CONTENT_RANGE)?)? {
        ContentRange::Part { first, last, total } => Some(Range { first, last, total }),
        ContentRange::None { .. } => None,
    }
}

/// The whole length of `bytes */10`.
fn unsatisfied(headers: &HeaderMap) -> Option<u64> {
    match ContentRange::parse(headers.get(CONTENT_RANGE)?)? {
        ContentRange::None { total } => Some(total),
        ContentRange::Part { .. } => None,
    }
}
