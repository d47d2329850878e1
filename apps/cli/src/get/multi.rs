//! One file by several interfaces at once: each fetches pieces of it, and what one does not bring,
//! another does.
//!
//! *Invariants*: every piece is of the version that the first answer named, because each answer
//! vouches for it (RFC 9110 section 14.2, If-Range with a strong validator); pieces are written
//! where they belong, and the file appears under its name only when all of them are there. What has
//! come of a file that is not finished is kept, so that another run goes on ([`Kept`]), and what
//! this run was killed in the middle of, too. A way that breaks, or that brings something else (the
//! page of a portal, another version), gives its piece back, and in the end gives up alone; one
//! that hangs does not keep the end waiting, because ways without work fetch again what others have
//! not finished. No single answer makes away with what came.
//!
//! A request costs a round trip in which its way carries nothing. So a way asks for a run of pieces
//! at once: half of what would be its share of all that is left by the rates seen so far, which
//! gets shorter towards the end, so that all ways end together.

use super::kept::Kept;
use super::progress::Progress;
use super::target::{Target, Version};
use super::transfer::{BUSY_MOST, Done, Outcome, content_range, retry_after, version};
use crate::failure::{Exit, Failure};
use crate::output::Output;
use core::ops::Range;
use core::time::Duration;
use futures_util::stream::{FuturesUnordered, StreamExt};
use http::HeaderValue;
use http::StatusCode;
use http::header::{ACCEPT_ENCODING, IF_RANGE, RANGE};
use neater_http::{Client, Error, RequestOptions, Response, Transport, Url};
use serde_json::json;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// The smallest and the largest piece, in bytes: requests cost a round trip each, and a slow way
/// must not hold too much.
const PIECE: (u64, u64) = (128 << 10, 4 << 20);
/// How many pieces each way has, if they are neither too small nor too large.
const PIECES_EACH: u64 = 16;
/// The most pieces.
const PIECES_MOST: u64 = 1 << 16;
/// Answers that a piece may come in.
const ANSWERS_EACH: usize = 64;
/// The wait after a failure; each further one in a row waits twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// What programs call it that the file is another now.
const CHANGED: &str = "changed";
/// What to do about pieces that nothing more can be learnt of.
const BY_ONE_WAY: &str = "try again later; if they are of no use, remove them, or fetch it without --multi";
/// How long other ways may take to answer as it should be, when one has answered otherwise.
const GRACE: Duration = Duration::from_secs(2);
/// How often is written down which pieces have come.
const NOTED_EVERY: Duration = Duration::from_secs(1);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// One way to the server.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) interface: String,
    pub(super) client: Client,
}

/// What a way has done.
#[derive(Clone, Debug, Default)]
struct Counts {
    bytes: u64,
    /// What it had brought at the end of its last run, and how long it had been fetching by then.
    measured: u64,
    busy: Duration,
    pieces: u64,
    failures: u32,
    transport: Option<Transport>,
    /// Why it does nothing any more.
    gave_up: Option<String>,
    /// What it brought in the end was of another file.
    strange: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Wanted,
    /// By so many ways.
    Asked(u32),
    There,
}

/// The state of all pieces and the paths that fetch them.
#[derive(Debug)]
struct Board {
    pieces: Vec<State>,
    left: usize,
    counts: Vec<Counts>,
    /// What ends it all: a disk that is full.
    fatal: Option<Failure>,
}

struct Shared {
    board: Mutex<Board>,
    changed: Notify,
    kept: Kept,
    url: Url,
    options: RequestOptions,
    total: u64,
    retries: u8,
}

/// Why a piece did not come.
enum Trouble {
    /// Another way, or another try, may bring it.
    Broken(String),
    /// As well: what came is no piece of this file.
    Strange(String),
    /// The server takes no requests at present, and wants to be asked again after that time (RFC
    /// 9110 section 10.2.3).
    Busy(String, Duration),
    Fatal(Failure),
}

/// What becomes of a download by several ways.
#[allow(clippy::large_enum_variant, reason = "there is one, and not for long")]
pub(super) enum Multi {
    Done(Done),
    /// It cannot be taken apart, and why.
    Whole(String),
}

/// A download while it goes on. What has come is kept when it ends early, by whatever; there may be
/// nothing worth it.
struct Running {
    shared: Arc<Shared>,
    done: bool,
}

impl Running {
    /// Keeps what has come; whether a later run can go on with it.
    fn keep(&mut self) -> bool {
        self.done = true;
        let kept = self.shared.keep();
        if !kept && self.shared.board().pieces.iter().all(|state| *state != State::There) {
            self.shared.kept.forget();
        }
        kept
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.done {
            self.keep();
        }
    }
}

impl Board {
    /// Pieces in a row to be fetched by a way: those that were not requested yet, or else one that
    /// the fewest others fetch. None if all are there.
    fn take(&mut self, way: usize) -> Option<Range<usize>> {
        if let Some(first) = self.pieces.iter().position(|state| *state == State::Wanted) {
            let most = self.run(way);
            let run = self.pieces[first..].iter().take(most).take_while(|state| **state == State::Wanted).count();
            self.pieces[first..first + run].fill(State::Asked(1));
            return Some(first..first + run);
        }
        let asked = |i: &usize| match self.pieces[*i] {
            State::Asked(n) => n,
            _ => 0,
        };
        let open = |i: &usize| self.pieces[*i] != State::There;
        // The last one: its run comes to that last.
        let piece = (0..self.pieces.len()).rev().filter(open).min_by_key(asked)?;
        self.pieces[piece] = State::Asked(asked(&piece) + 1);
        Some(piece..piece + 1)
    }

    /// How many pieces a way may ask for at once: half of its share of what is left, at least one;
    /// one as long as it has brought nothing.
    fn run(&self, way: usize) -> usize {
        let rate = |c: &Counts| c.measured as f64 / c.busy.as_secs_f64().max(1e-3);
        // What others will bring that have brought nothing yet is not known: as much as the best.
        let best = self.counts.iter().map(rate).fold(0.0, f64::max);
        let others = self.counts.iter().filter(|c| c.gave_up.is_none());
        let all: f64 = others.map(|c| if c.measured == 0 { best } else { rate(c) }).sum();
        let own = rate(&self.counts[way]);
        let wanted = self.pieces.iter().filter(|state| **state == State::Wanted).count();
        let share = if all > 0.0 { (own / all).min(1.0) } else { 0.0 };
        ((wanted as f64 * share / 2.0) as usize).max(1)
    }

    /// Gives back what has not come of a run.
    fn give_back_all(&mut self, run: Range<usize>) {
        for piece in run {
            self.give_back(piece);
        }
    }

    fn give_back(&mut self, piece: usize) {
        self.pieces[piece] = match self.pieces[piece] {
            State::There => State::There,
            State::Asked(n) if n > 1 => State::Asked(n - 1),
            _ => State::Wanted,
        };
    }

    fn has_come(&mut self, piece: usize) {
        if self.pieces[piece] != State::There {
            self.pieces[piece] = State::There;
            self.left -= 1;
        }
    }

    /// Nothing more will happen.
    fn is_over(&self) -> bool {
        self.left == 0 || self.fatal.is_some() || self.counts.iter().all(|d| d.gave_up.is_some())
    }
}

impl Shared {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes down which pieces are there; false if there is nothing worth it. May block.
    fn keep(&self) -> bool {
        self.kept.keep(|| self.board().pieces.iter().map(|state| *state == State::There).collect())
    }

    /// The first and the last byte of pieces in a row.
    fn span(&self, run: &Range<usize>) -> (u64, u64) {
        let at = |piece: usize| (piece as u64 * self.kept.piece).min(self.total);
        (at(run.start), at(run.end) - 1)
    }

    /// Fetches pieces in a row by one way. What came of them is written, even if the rest does not
    /// come.
    async fn fetch(&self, way: usize, client: &Client, run: &Range<usize>) -> Result<(), Trouble> {
        let (first, last) = self.span(run);
        let (mut at, mut answers) = (first, 0);
        // An answer may hold less than was asked for, and declares that: the client is to ask for
        // the rest (RFC 9110 section 15.3.7).
        while answers < ANSWERS_EACH {
            let before = at;
            match self.fetch_from(way, client, run, (at, last)).await? {
                None => return Ok(()),
                Some(next) if next == last + 1 => return Ok(()),
                Some(next) => at = next,
            }
            let piece = self.kept.piece;
            answers = if at / piece > before / piece { 0 } else { answers + 1 };
        }
        Err(Trouble::Broken(format!(
            "only {} of {} bytes came in answers of less than a piece",
            at - first,
            last + 1 - first
        )))
    }

    /// Fetches pieces from a byte on, as far as one answer brings them: the first byte that is
    /// missing then. None: others were quicker with all that is left of them.
    async fn fetch_from(
        &self,
        way: usize,
        client: &Client,
        run: &Range<usize>,
        (first, last): (u64, u64),
    ) -> Result<Option<u64>, Trouble> {
        let options = asking(&self.options, first, last, self.kept.version.validator());
        let mut response = client.get(&self.url, &options).await.map_err(|e| trouble(&e))?;
        let range = self.checked(&response, first, last)?;
        self.board().counts[way].transport = Some(response.transport().clone());
        let mut at = first;
        while let Some(data) = response.chunk().await.map_err(|e| trouble(&e))? {
            if at + data.len() as u64 > range.last + 1 {
                return Err(Trouble::Broken("more came than was asked for".into()));
            }
            let written = self.kept.file.write_all_at(&data, at);
            written.map_err(|e| Trouble::Fatal(super::file("write", &self.kept.path, &e)))?;
            let before = at;
            at += data.len() as u64;
            let mut board = self.board();
            board.counts[way].bytes += data.len() as u64;
            let (from, here) = ((before / self.kept.piece) as usize, (at / self.kept.piece) as usize);
            for piece in from.max(run.start)..(here + 1).min(run.end) {
                let came = (before..at).contains(&self.span(&(piece..piece + 1)).1);
                if came && board.pieces[piece] != State::There {
                    board.has_come(piece);
                    board.counts[way].pieces += 1;
                }
            }
            let rest = here.max(run.start)..run.end;
            // Few look further than the next piece.
            if board.pieces[rest].iter().all(|state| *state == State::There) {
                return Ok(None);
            }
        }
        if at == range.last + 1 {
            Ok(Some(at))
        } else {
            Err(Trouble::Broken(format!("only {} of {} bytes came", at - first, range.last + 1 - first)))
        }
    }

    /// What an answer brings of the bytes that were asked for.
    fn checked(&self, response: &Response, first: u64, last: u64) -> Result<super::transfer::Range, Trouble> {
        let other = || Trouble::Strange("the server sends another version of the file".into());
        match response.status() {
            StatusCode::PARTIAL_CONTENT => {}
            // If-Range did not hold, or an intermediary answers with something else, or leaves out
            // what we asked for.
            StatusCode::OK | StatusCode::RANGE_NOT_SATISFIABLE if !self.is_also(response.headers()) => {
                return Err(other());
            }
            status if status.is_success() => {
                let status = super::transfer::status(status);
                let what = format!("the server answered {status} with something else than the part that was asked for");
                return Err(Trouble::Strange(what));
            }
            status => {
                let what = format!("the server answered {}", super::transfer::status(status));
                return Err(match busy(response) {
                    Some(after) => Trouble::Busy(what, after),
                    None => Trouble::Broken(what),
                });
            }
        }
        let range = content_range(response.headers()).filter(|r| r.first == first && r.last <= last);
        let Some(range) = range else {
            return Err(Trouble::Broken(format!("bytes {first} to {last} were asked for, and others came")));
        };
        if range.total.is_some_and(|t| t != self.total) || !self.is_also(response.headers()) {
            return Err(other());
        }
        Ok(range)
    }

    /// Whether an answer is about the version that is fetched, as far as it shows.
    fn is_also(&self, headers: &http::HeaderMap) -> bool {
        self.kept.version.is_also(&version(headers))
    }

    /// What one way does until everything is there, or it has failed too often in a row.
    async fn work(self: Arc<Self>, way: usize, client: Client) {
        let (mut failures, mut wait) = (0, FIRST_WAIT);
        loop {
            let Some(run) = self.board().take(way) else { return };
            if failures > u32::from(self.retries) {
                wait = LONGEST_WAIT;
            }
            let (began, had) = (Instant::now(), self.board().counts[way].pieces);
            let done = self.fetch(way, &client, &run).await;
            let brought = self.ran(way, had, began.elapsed());
            let least = if let Err(Trouble::Busy(_, after)) = &done { *after } else { Duration::ZERO };
            failures = match &done {
                Ok(()) => 0,
                // What breaks after some pieces is not what brings nothing.
                Err(_) if brought => 1,
                Err(_) => failures + 1,
            };
            if brought {
                wait = FIRST_WAIT;
            }
            let goes_on = self.note(way, run, done, failures);
            if self.board().is_over() {
                self.changed.notify_one();
                return;
            }
            if !goes_on {
                return;
            }
            if failures == 0 {
                wait = FIRST_WAIT;
                continue;
            }
            tokio::time::sleep(wait.max(least)).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// A run is over: whether any piece of it came by this way.
    fn ran(&self, way: usize, had: u64, took: Duration) -> bool {
        let mut board = self.board();
        let counts = &mut board.counts[way];
        counts.busy += took;
        counts.measured = counts.bytes;
        counts.pieces > had
    }

    /// Writes down what became of pieces; whether the way goes on.
    fn note(&self, way: usize, run: Range<usize>, done: Result<(), Trouble>, failures: u32) -> bool {
        let mut board = self.board();
        let strange = matches!(done, Err(Trouble::Strange(_)));
        let long = matches!(done, Err(Trouble::Busy(_, after)) if after > BUSY_MOST);
        match done {
            Ok(()) => {
                // A way that had failed for long is as good as any again.
                board.counts[way].gave_up = None;
                true
            }
            Err(Trouble::Fatal(failure)) => {
                board.fatal = board.fatal.take().or(Some(failure));
                false
            }
            Err(Trouble::Broken(why) | Trouble::Strange(why) | Trouble::Busy(why, _)) => {
                board.give_back_all(run);
                board.counts[way].failures += 1;
                // What wants to be left alone for so long does not keep the end waiting.
                if failures > u32::from(self.retries) || long {
                    board.counts[way].strange = strange;
                    board.counts[way].gave_up = Some(why);
                    // What sends another file will do so again; what is broken may be well by and
                    // by, and the others go on meanwhile.
                    return !strange;
                }
                true
            }
        }
    }
}

/// How long a server wants to be left alone that takes no requests at present, where it names a
/// time.
fn busy(response: &Response) -> Option<Duration> {
    use StatusCode as S;
    let at_present = matches!(
        response.status(),
        S::SERVICE_UNAVAILABLE | S::TOO_MANY_REQUESTS | S::BAD_GATEWAY | S::GATEWAY_TIMEOUT
    );
    retry_after(response.headers()).filter(|_| at_present)
}

fn trouble(e: &Error) -> Trouble {
    // Security fails on one way alone where an attacker is on its path; the others may still bring
    // the file.
    Trouble::Broken(e.to_string())
}

/// What is asked for: bytes from the first to the last, of this version alone.
fn asking(options: &RequestOptions, first: u64, last: u64, validator: Option<&str>) -> RequestOptions {
    let mut options = options.clone();
    options.headers.entry(ACCEPT_ENCODING).or_insert(HeaderValue::from_static("identity"));
    if let Ok(range) = HeaderValue::from_str(&format!("bytes={first}-{last}")) {
        options.headers.insert(RANGE, range);
    }
    if let Some(Ok(validator)) = validator.map(HeaderValue::from_str) {
        options.headers.insert(IF_RANGE, validator);
    }
    options
}

/// What is known of a file before it is fetched.
struct Known {
    version: Version,
    total: u64,
    /// It is the one of which pieces are there, or another; then more than one path has reported
    /// the same one, or the only path has.
    is_certain: bool,
}

/// The result of answers that are about another version than the one of which pieces are there: the
/// one that two of them report, if there is such a one, or else the last. It is certain if two do,
/// or there is but one way.
fn agreed(mut others: Vec<(Version, u64)>, ways: usize) -> Option<Known> {
    let same = |a: &(Version, u64), b: &(Version, u64)| a.0.validator() == b.0.validator() && a.1 == b.1;
    let twice = (1..others.len()).find(|i| others[..*i].iter().any(|earlier| same(earlier, &others[*i])));
    let (version, total) = match twice {
        Some(i) => others.swap_remove(i),
        None => others.pop()?,
    };
    Some(Known { version, total, is_certain: twice.is_some() || ways == 1 })
}

/// The version of the file and its length; or why it cannot be taken apart. An answer that fits
/// counts at once: one with a part of a version that can be distinguished from others, and if
/// pieces of one are there (`held`), of that version. If none fits, the ways that answered are what
/// there is to go by, when all have or [`GRACE`] after the first.
async fn probe(
    ways: &[Way],
    url: &Url,
    options: &RequestOptions,
    held: Option<&Version>,
) -> Result<Result<Known, String>, Refused> {
    let first = asking(options, 0, 0, None);
    let mut asked: FuturesUnordered<_> = ways
        .iter()
        .map(|way| {
            let (way, first) = (way.clone(), first.clone());
            async move { way.client.get(url, &first).await }
        })
        .collect();
    let (mut others, mut whole, mut refused, mut failed) = (Vec::new(), None, None, None);
    let grace = tokio::time::sleep(GRACE);
    tokio::pin!(grace);
    loop {
        let has_answer = !others.is_empty() || whole.is_some() || refused.is_some();
        let answer = tokio::select! {
            answer = asked.next() => answer,
            () = &mut grace, if has_answer => None,
        };
        let Some(answer) = answer else { break };
        if !has_answer {
            grace.as_mut().reset(tokio::time::Instant::now() + GRACE);
        }
        match answer.map(|response| judged(&response)) {
            Ok(Ok(Ok((version, total)))) => match held {
                Some(held) if held.validator() != version.validator() || held.total != Some(total) => {
                    others.push((version, total));
                }
                _ => return Ok(Ok(Known { version, total, is_certain: true })),
            },
            Ok(Ok(Err(why))) => whole = whole.or(Some(why)),
            Ok(Err(failure)) => refused = refused.or(Some(failure)),
            Err(e) => failed = failed.or(Some(e)),
        }
    }
    if let Some(known) = agreed(others, ways.len()) {
        return Ok(Ok(known));
    }
    match (whole, refused, failed) {
        (Some(why), ..) => Ok(Err(why)),
        (None, Some(refused), _) => Err(refused),
        (None, None, Some(e)) => Err(Refused { failure: e.into(), after: None }),
        (None, None, None) => {
            let failure = Failure::new(Exit::Failed, "interfaces", "no interface leads to the server");
            Err(Refused { failure, after: None })
        }
    }
}

/// Why there is no answer to go by, and when the server wants to be asked again.
struct Refused {
    failure: Failure,
    after: Option<Duration>,
}

/// As [`probe`]; a server that is busy and states for how long is asked again then, as often as
/// that is wanted.
async fn learn(
    ways: &[Way],
    url: &Url,
    options: &RequestOptions,
    held: Option<&Version>,
    retries: u8,
    output: &Output,
) -> Result<Result<Known, String>, Failure> {
    let mut tries = 0;
    loop {
        match probe(ways, url, options, held).await {
            Ok(found) => return Ok(found),
            Err(Refused { failure, after: Some(after) }) if tries < retries && after <= BUSY_MOST => {
                tries += 1;
                let wait = after.max(FIRST_WAIT);
                let seconds = wait.as_secs_f64().ceil();
                let what = format!("{}; asking again in {seconds} s ({tries} of {retries})", failure.message);
                output.report("retry", Some(&url.to_string()), &what);
                tokio::time::sleep(wait).await;
            }
            Err(refused) => return Err(refused.failure),
        }
    }
}

/// The meaning of an answer to [`probe`]: version and length, or why there are no parts; or that
/// the server has none of it.
fn judged(response: &Response) -> Result<Result<(Version, u64), String>, Refused> {
    let status = response.status();
    if status.as_u16() >= 400 && status != StatusCode::RANGE_NOT_SATISFIABLE {
        let failure = Failure::new(Exit::Status, "status", format!("the server answered {status}"));
        return Err(Refused { failure, after: busy(response) });
    }
    let fresh = version(response.headers());
    let total = content_range(response.headers()).and_then(|r| r.total);
    Ok(match (status, total) {
        (StatusCode::PARTIAL_CONTENT, Some(total)) if fresh.validator().is_some() => {
            Ok((Version { total: Some(total), ..fresh }, total))
        }
        (StatusCode::PARTIAL_CONTENT, Some(_)) => Err("the server does not state the version of its parts".into()),
        _ => Err("the server sends only whole files".into()),
    })
}

/// Fetches one file by several ways.
///
/// # Errors
/// When no way brings all of it. What has come is kept, if a later run can go on with it.
pub(super) async fn run(
    ways: &[Way],
    options: &RequestOptions,
    url: &Url,
    target: &Target,
    resume: bool,
    retries: u8,
    output: &Output,
) -> Result<Multi, Failure> {
    let Target::File(path) = target else {
        return Err(Failure::usage("--multi writes pieces as they come, which needs a file: give -o FILE or -O"));
    };
    let started = Instant::now();
    if path.is_dir() {
        return Err(Failure::usage(format!("{} is a folder", path.display())));
    }
    let held = if resume { Kept::version_of(path, &url.to_string()) } else { None };
    let Known { version, total, is_certain } = match learn(ways, url, options, held.as_ref(), retries, output).await? {
        Ok(found) => found,
        // Pieces are there: the server that answered may not be the one that they came from.
        Err(why) if held.is_some() => {
            let what = format!("pieces of {url} are there, and now {why}");
            return Err(Failure::new(Exit::Failed, CHANGED, what).advise(BY_ONE_WAY));
        }
        Err(why) => return Ok(Multi::Whole(why)),
    };
    if !is_certain {
        let what =
            format!("pieces of {url} are there, and now one way brings another version of it, which no other has");
        return Err(Failure::new(Exit::Failed, CHANGED, what).advise(BY_ONE_WAY));
    }
    let kept = Kept::open(path, &url.to_string(), &version, total, cut(total, ways.len() as u64), resume)?;
    let continued = kept.is_continued();
    let pieces: Vec<State> = kept.there.iter().map(|there| if *there { State::There } else { State::Wanted }).collect();
    let left = kept.there.iter().filter(|there| !**there).count();
    let there = (kept.there.len() - left) as u64 * kept.piece;
    let progress = Progress::new(output, &url.to_string(), &url.file_name().unwrap_or_default());
    progress.begin(&format!("by {} ways", ways.len()), Some(total), there.min(total));
    let board = Board { pieces, left, counts: vec![Counts::default(); ways.len()], fatal: None };
    let (url, options) = (url.clone(), options.clone());
    let (board, changed) = (Mutex::new(board), Notify::new());
    let shared = Arc::new(Shared { board, changed, kept, url, options, total, retries });
    let mut running = Running { shared: shared.clone(), done: false };
    let mut tasks = JoinSet::new();
    for (i, way) in ways.iter().enumerate() {
        tasks.spawn(shared.clone().work(i, way.client.clone()));
    }
    let mut noting = tokio::time::interval_at(tokio::time::Instant::now() + NOTED_EVERY, NOTED_EVERY);
    noting.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !shared.board().is_over() {
        tokio::select! {
            () = shared.changed.notified() => {}
            // A way that has ended may have been the last.
            Some(_) = tasks.join_next() => {}
            // The pieces come meanwhile, and this run may be ended before it is through.
            _ = noting.tick() => {
                progress.at((there + shared.board().counts.iter().map(|d| d.bytes).sum::<u64>()).min(total));
                let shared = shared.clone();
                let _ = tokio::task::spawn_blocking(move || shared.keep()).await;
            }
        }
    }
    // Ways that hang have nothing to bring any more.
    tasks.shutdown().await;
    drop(progress);
    report_ways(ways, &shared.board().counts, output);
    let failed = failed(&shared, ways);
    if let Some(failure) = failed {
        return Err(match running.keep() {
            true => failure.advise(format!("what came is kept; go on with: {}", super::resume_command())),
            false => failure,
        });
    }
    shared.kept.finish(path)?;
    running.done = true;
    let board = shared.board();
    Ok(Multi::Done(Done {
        target: target.clone(),
        transports: alike_once(board.counts.iter().filter_map(|d| d.transport.clone())),
        written: total,
        came: board.counts.iter().map(|d| d.bytes).sum(),
        took: started.elapsed(),
        retries: board.counts.iter().map(|d| d.failures).sum::<u32>().try_into().unwrap_or(u8::MAX),
        outcome: if continued { Outcome::Continued } else { Outcome::Fetched },
    }))
}

/// Why it failed, if it did.
fn failed(shared: &Shared, ways: &[Way]) -> Option<Failure> {
    let board = shared.board();
    if let Some(failure) = &board.fatal {
        return Some(failure.clone());
    }
    if board.left == 0 {
        return None;
    }
    let reasons =
        board.counts.iter().zip(ways).filter_map(|(d, w)| Some(format!("{}: {}", w.interface, d.gave_up.as_ref()?)));
    let what = format!("no way brought all of it: {}", reasons.collect::<Vec<_>>().join("; "));
    if board.counts.iter().all(|d| d.strange) {
        return Some(Failure::new(Exit::Failed, CHANGED, what).advise("if the file has changed, -C begins it again"));
    }
    Some(Failure::new(Exit::Failed, "interrupted", what).advise("--retries lets each way try more often"))
}

/// Of transports that people would call the same, the first.
fn alike_once(all: impl Iterator<Item = Transport>) -> Vec<Transport> {
    let mut once: Vec<Transport> = Vec::new();
    for t in all {
        if !once.iter().any(|o| (o.version, o.stack) == (t.version, t.stack)) {
            once.push(t);
        }
    }
    once
}

/// How long a piece of a file of `total` bytes is for so many ways, and how many there are. The
/// server reports the length: no more pieces are kept account of than [`PIECES_MOST`], whatever the
/// length.
fn cut(total: u64, ways: u64) -> (u64, usize) {
    let piece = (total / (ways.max(1) * PIECES_EACH)).clamp(PIECE.0, PIECE.1).max(total.div_ceil(PIECES_MOST));
    (piece, usize::try_from(total.div_ceil(piece)).unwrap_or(usize::MAX))
}

fn report_ways(ways: &[Way], counts: &[Counts], output: &Output) {
    for (way, d) in ways.iter().zip(counts) {
        let transport = d.transport.as_ref().map(|t| t.stack.as_str());
        if output.json {
            output.event(&json!({"event": "way", "interface": way.interface, "bytes": d.bytes, "pieces": d.pieces,
                "failures": d.failures, "transport": transport, "gave_up": d.gave_up}));
            continue;
        }
        let end = d.gave_up.as_ref().map_or_else(String::new, |why| format!("; gave up: {why}"));
        let over = transport.map_or_else(String::new, |t| format!(" over {t}"));
        let brought = crate::output::bytes(d.bytes);
        output.note(&format!("{}: {brought} in {} pieces{over}{end}", way.interface, d.pieces));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(pieces: usize) -> Board {
        let counts = vec![Counts::default(); 2];
        Board { pieces: vec![State::Wanted; pieces], left: pieces, counts, fatal: None }
    }

    #[test]
    fn what_nobody_has_asked_for_comes_first_and_what_hangs_is_asked_for_again() {
        let mut b = board(2);
        assert_eq!((b.take(0), b.take(1)), (Some(0..1), Some(1..2)));
        b.has_come(1);
        assert_eq!(b.take(1), Some(0..1), "by a second way");
        b.give_back(0);
        assert_eq!(b.pieces[0], State::Asked(1));
        b.has_come(0);
        b.has_come(0);
        assert!(b.is_over());
        assert_eq!((b.left, b.take(0)), (0, None));
        b.give_back(0);
        assert_eq!(b.pieces[0], State::There, "what is there stays");
    }

    #[test]
    fn a_way_asks_for_half_of_its_share_of_what_is_left() {
        let mut b = board(101);
        assert_eq!((b.take(0), b.take(1)), (Some(0..1), Some(1..2)), "nothing is known yet");
        b.counts[0] = Counts { measured: 9000, busy: Duration::from_secs(1), ..Counts::default() };
        // As long as nothing came by the other, that may be as fast.
        assert_eq!(b.take(0), Some(2..26));
        b.counts[1] = Counts { measured: 2000, busy: Duration::from_secs(2), ..Counts::default() };
        assert_eq!(b.take(0), Some(26..59), "nine tenths of 75, halved");
        assert_eq!(b.take(1), Some(59..61));
        // What was given back is filled first, and no run goes over what another has.
        b.give_back_all(30..32);
        assert_eq!(b.take(0), Some(30..32));
        b.counts[0].gave_up = Some("x".into());
        assert_eq!(b.take(1), Some(61..81), "there is nobody else");
    }

    #[test]
    fn pieces_are_given_up_for_one_version_that_two_ways_name() {
        let says =
            |tag: &str, total| (Version { etag: Some(tag.into()), total: Some(total), ..Version::default() }, total);
        let of = |others: Vec<_>, ways| agreed(others, ways).map(|k| (k.version.etag.unwrap(), k.total, k.is_certain));
        let known = |tag: &str, total, is_certain| Some((tag.to_owned(), total, is_certain));
        assert_eq!(of(vec![], 2), None);
        assert_eq!(of(vec![says("\"a\"", 9)], 2), known("\"a\"", 9, false));
        assert_eq!(of(vec![says("\"a\"", 9)], 1), known("\"a\"", 9, true));
        assert_eq!(of(vec![says("\"a\"", 9), says("\"b\"", 9)], 2), known("\"b\"", 9, false), "two others");
        assert_eq!(of(vec![says("\"a\"", 9), says("\"a\"", 8)], 2), known("\"a\"", 8, false), "of two lengths");
        let three = vec![says("\"a\"", 9), says("\"b\"", 9), says("\"a\"", 9), says("\"c\"", 9)];
        assert_eq!(of(three, 4), known("\"a\"", 9, true));
    }

    #[test]
    fn whatever_length_a_server_tells_there_are_not_too_many_pieces() {
        assert_eq!(cut(0, 2), (128 << 10, 0));
        assert_eq!(cut(1, 2), (128 << 10, 1));
        assert_eq!(cut(64 << 20, 2), (2 << 20, 32));
        for total in [1 << 40, 9_000_000_000_000_000, u64::MAX] {
            let (piece, pieces) = cut(total, 2);
            assert!(pieces <= 1 << 16 && u128::from(piece) * pieces as u128 >= u128::from(total), "{total}");
        }
    }

    /// A server of one file, which is busy at first: `after` is what it names as the time to wait.
    fn busy_server(after: &'static str, times: usize) -> u16 {
        use std::io::{BufRead, BufReader, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for (n, stream) in listener.incoming().map_while(Result::ok).enumerate() {
                let lines = BufReader::new(&stream).lines().map_while(Result::ok);
                let head: Vec<String> = lines.take_while(|l| !l.is_empty()).map(|l| l.to_lowercase()).collect();
                let range = head.iter().find_map(|l| {
                    let (from, to) = l.strip_prefix("range: bytes=")?.split_once('-')?;
                    Some(from.parse::<usize>().ok()?..to.parse::<usize>().ok()? + 1)
                });
                let range = range.expect("a part is asked for");
                let head = if n < times {
                    format!(
                        "HTTP/1.1 503 Busy\r\nRetry-After: {after}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    )
                } else {
                    let (from, len) = (range.start, range.len());
                    let to = range.end - 1;
                    format!(
                        "HTTP/1.1 206 Part\r\nETag: \"1\"\r\nContent-Range: bytes {from}-{to}/10\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n"
                    )
                };
                let body = if n < times { &b""[..] } else { &b"0123456789"[range] };
                let _ = (&stream).write_all(&[head.as_bytes(), body].concat());
            }
        });
        port
    }

    async fn fetch_from_busy(after: &'static str, times: usize, retries: u8) -> (Duration, Arc<Shared>) {
        let port = busy_server(after, times);
        let url = Url::parse(&format!("http://127.0.0.1:{port}/f")).unwrap();
        let version = Version { etag: Some("\"1\"".into()), total: Some(10), ..Version::default() };
        let path = std::env::temp_dir().join(format!("neater-multi-busy-{}-{}", std::process::id(), port));
        let kept = Kept::open(&path, &url.to_string(), &version, 10, cut(10, 1), false).unwrap();
        let client = Client::builder(neater::Neater::new().unwrap()).build();
        let (board, changed, options) = (Mutex::new(board(1)), Notify::new(), RequestOptions::default());
        board.lock().unwrap().counts.truncate(1);
        let shared = Arc::new(Shared { board, changed, kept, url, options, total: 10, retries });
        let began = Instant::now();
        let working = shared.clone().work(0, client);
        tokio::time::timeout(Duration::from_secs(20), working).await.expect("in time");
        shared.kept.forget();
        (began.elapsed(), shared)
    }

    /// RFC 9110 section 10.2.3.
    #[tokio::test]
    async fn a_way_whose_server_is_busy_waits_as_long_as_it_asks() {
        let (took, shared) = fetch_from_busy("1", 2, 3).await;
        assert!(took >= Duration::from_secs(2) && shared.board().left == 0, "{took:?} {:?}", shared.board());
        // Too long to wait for, and too often: the way gives up.
        for (after, times, retries) in [("3600", 1, 3), ("0", 2, 1)] {
            let (took, shared) = fetch_from_busy(after, times, retries).await;
            let gave_up = shared.board().counts[0].gave_up.clone();
            assert!(took < Duration::from_secs(2) && gave_up.is_some_and(|why| why.contains("503")), "{after}");
        }
    }

    #[test]
    fn it_is_over_when_the_last_way_gives_up() {
        let mut b = board(1);
        b.counts[0].gave_up = Some("x".into());
        assert!(!b.is_over());
        b.counts[1].gave_up = Some("y".into());
        assert!(b.is_over());
    }
}
