//! Whether a connection is still of use, and what became of its answers.
//!
//! *Responsible for* distinguishing a client that reads slowly from one that reads nothing: what
//! counts is what the peer has acknowledged, and not what has gone into some buffer on the way to
//! it; and for the log, which names what was delivered of an answer. *Not responsible for* ending
//! anything.
//!
//! *Invariants*: every answer that was begun is logged once, if anything is logged; one that is
//! logged as delivered was acknowledged, as far as its transport reports.

use crate::lock;
use core::time::Duration;
use http::{Method, Version};
use neater::Delivery;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use tokio::time::Instant;

/// How often a connection is looked at: in a quarter of the shorter limit, but not more and not
/// less often than this.
const PACE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(5));
/// How often at least while something is to be delivered.
const BUSY_PACE: Duration = Duration::from_secs(1);
/// How soon after an answer has left it is first asked whether it has arrived, for the log.
const FIRST_LOOK: Duration = Duration::from_millis(5);

/// How long a connection may be of no use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// With nothing to be answered or delivered.
    pub(crate) idle: Duration,
    /// With something to be delivered, of which nothing is.
    pub(crate) standstill: Duration,
    /// Fewer bytes that are acknowledged are no progress: QUIC's packets without content are
    /// acknowledged, too.
    pub(crate) step: u64,
    /// The transport reports what is pending, so that an answer is known to be delivered while its
    /// connection goes on.
    pub(crate) exact: bool,
}

/// Why a connection is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// Nothing is asked for, and nothing to be delivered.
    Idle,
    /// Of what is to be delivered, nothing is taken.
    Standstill,
    /// There are too many, and others have a better claim.
    Evicted,
}

impl Over {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Standstill => "its client takes nothing",
            Self::Evicted => "its place is needed for another connection",
        }
    }
}

/// What goes on on a connection.
#[derive(Clone, Debug)]
pub(crate) struct Activity {
    shared: Arc<Shared>,
    /// That of the connection that this one is a stream of.
    whole: Option<Arc<Shared>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Answers of which something is still with HTTP.
    answers: AtomicUsize,
    /// An answer has left, and waits for being logged.
    news: Notify,
    /// The connection has to go.
    evicted: Notify,
    leaves: AtomicBool,
}

#[derive(Debug)]
struct State {
    /// The last time that anything went on.
    last: Instant,
    /// The last report of the transport.
    seen: Delivery,
    /// Answers that have left and are not known to have arrived, in the order in which they left.
    left: Vec<Left>,
}

/// An answer that HTTP has passed on.
#[derive(Debug)]
struct Left {
    record: Arc<Record>,
    /// It has arrived when so much is acknowledged. Not known until the transport is asked.
    at: Option<u64>,
}

impl Activity {
    pub(crate) fn new() -> Self {
        let state = State { last: Instant::now(), seen: Delivery::default(), left: Vec::new() };
        let shared = Shared {
            state: Mutex::new(state),
            answers: AtomicUsize::new(0),
            news: Notify::new(),
            evicted: Notify::new(),
            leaves: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared), whole: None }
    }

    /// Of a stream that is served as a connection of its own: what goes on there goes on here, too.
    pub(crate) fn of_stream(&self) -> Self {
        Self { whole: Some(self.shared.clone()), ..Self::new() }
    }

    /// Something goes on.
    pub(crate) fn touch(&self) {
        let now = Instant::now();
        lock(&self.shared.state).last = now;
        if let Some(whole) = &self.whole {
            lock(&whole.state).last = now;
        }
    }

    /// An answer begins.
    pub(crate) fn begin(&self) -> UnderWay {
        self.shared.answers.fetch_add(1, Ordering::Relaxed);
        self.touch();
        UnderWay { activity: self.clone(), record: None }
    }

    /// Whether something is to be answered or delivered, and when anything went on last.
    pub(crate) fn standing(&self) -> (bool, Instant) {
        let state = lock(&self.shared.state);
        (self.has_answers() || state.seen.pending > 0, state.last)
    }

    /// The connection has to go.
    pub(crate) fn evict(&self) {
        self.shared.leaves.store(true, Ordering::Release);
        self.shared.evicted.notify_one();
    }

    /// As [`Activity::evicted`], also for a connection that was notified before.
    pub(crate) async fn leaves(&self) {
        if !self.shared.leaves.load(Ordering::Acquire) {
            self.evicted().await;
        }
    }

    /// Ends when the connection has to go for others.
    pub(crate) async fn evicted(&self) {
        self.shared.evicted.notified().await;
    }

    fn has_answers(&self) -> bool {
        self.shared.answers.load(Ordering::Relaxed) > 0
    }

    /// Ends when the connection is of no use any more. `delivery` returns what its transport has
    /// delivered; `moved` is called when that has become more.
    pub(crate) async fn over(
        &self,
        timeouts: Timeouts,
        delivery: impl Fn() -> Option<Delivery>,
        moved: impl Fn(&Delivery),
    ) -> Over {
        let pace = (timeouts.idle.min(timeouts.standstill) / 4).clamp(PACE.0, PACE.1);
        let mut soon = FIRST_LOOK;
        let mut counted = Delivery::default();
        let mut was_busy = false;
        loop {
            let sample = delivery();
            let seen = sample.unwrap_or_default();
            let busy = self.has_answers() || seen.pending > 0;
            let delivers = busy || was_busy;
            let progress = if delivers {
                seen.acknowledged.abs_diff(counted.acknowledged) >= timeouts.step
            } else {
                // A client that reads what has arrived sends something now and then.
                seen.received != counted.received
            };
            if progress || !delivers {
                counted.acknowledged = seen.acknowledged;
            }
            counted.received = seen.received;
            was_busy = busy;
            if progress {
                self.touch();
                moved(&seen);
            }
            // Without a transport nothing is known to have arrived.
            let waits = sample.is_some_and(|seen| self.look(&seen, timeouts.exact));
            let now = Instant::now();
            let limit = if busy { timeouts.standstill } else { timeouts.idle };
            let end = lock(&self.shared.state).last + limit;
            if end <= now {
                return if busy { Over::Standstill } else { Over::Idle };
            }
            let next = if waits {
                soon
            } else if busy {
                pace.min(BUSY_PACE)
            } else {
                pace
            };
            soon = if waits { (soon * 2).min(pace).min(BUSY_PACE) } else { FIRST_LOOK };
            tokio::select! {
                () = tokio::time::sleep_until(end.min(now + next)) => {}
                () = self.shared.news.notified() => soon = FIRST_LOOK,
                () = self.evicted() => return Over::Evicted,
            }
        }
    }

    /// Notes what the transport reports, and logs what has arrived by that. True: something has
    /// not.
    pub(crate) fn look(&self, seen: &Delivery, exact: bool) -> bool {
        let mut state = lock(&self.shared.state);
        state.seen = *seen;
        if !exact || state.left.is_empty() {
            return false;
        }
        for left in &mut state.left {
            left.at.get_or_insert(seen.acknowledged + seen.pending);
        }
        let arrived = |left: &mut Left| seen.pending == 0 || left.at.is_some_and(|at| at <= seen.acknowledged);
        let arrived: Vec<_> = state.left.extract_if(.., arrived).collect();
        let waits = !state.left.is_empty();
        drop(state);
        arrived.iter().for_each(|left| left.record.delivered());
        waits
    }

    /// Notes what the transport reports when HTTP has done with the connection: then nothing else
    /// looks whether it moves.
    pub(crate) fn follow(&self, seen: &Delivery, exact: bool) {
        if lock(&self.shared.state).seen.acknowledged != seen.acknowledged {
            self.touch();
        }
        self.look(seen, exact);
    }

    /// The connection is over; `delivered`: with everything that was passed on delivered.
    pub(crate) fn settle(&self, delivered: bool) {
        let (left, seen) = {
            let mut state = lock(&self.shared.state);
            (core::mem::take(&mut state.left), state.seen)
        };
        left.iter().for_each(|left| if delivered { left.record.delivered() } else { left.cut(&seen) });
    }
}

impl Left {
    fn cut(&self, seen: &Delivery) {
        // What of it is missing at least, if that is known.
        let missing = self.at.map_or(seen.pending, |at| at.saturating_sub(seen.acknowledged).min(seen.pending));
        self.record.cut(missing);
    }
}

impl Drop for Shared {
    /// A connection that was ended from outside has not logged its last answers.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        state.left.iter().for_each(|left| left.cut(&state.seen));
    }
}

/// An answer that is under way: from its request until all of it has been passed on by HTTP.
#[derive(Debug)]
pub(crate) struct UnderWay {
    activity: Activity,
    /// Of an answer that is logged when its connection has delivered it.
    pub(crate) record: Option<Arc<Record>>,
}

impl UnderWay {
    /// The client wants more.
    pub(crate) fn moves(&self) {
        self.activity.touch();
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let shared = &self.activity.shared;
        shared.answers.fetch_sub(1, Ordering::Relaxed);
        self.activity.touch();
        let Some(record) = self.record.take() else { return };
        if record.is_whole() {
            lock(&shared.state).left.push(Left { record, at: None });
            shared.news.notify_one();
        } else {
            record.cut(0);
        }
    }
}

/// An answer, for the log.
/// What a server has answered, when its connection is done with it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Answered {
    /// The client's address, as far as it is known.
    pub client: Option<IpAddr>,
    /// The request's method.
    pub method: Method,
    /// The path that was asked for, without the query: as the client has sent it.
    pub path: String,
    /// The version of HTTP.
    pub version: Version,
    /// The status.
    pub status: u16,
    /// Bytes of the content that were delivered; where it was cut short, at most so many.
    pub bytes: u64,
    /// Bytes that the content has.
    pub length: u64,
    /// From the request's head to the delivery of the last byte, or to the end.
    pub took: Duration,
    /// All of it was delivered.
    pub whole: bool,
}

/// Called with each answer.
pub(crate) type OnAnswer = Arc<dyn Fn(&Answered) + Send + Sync>;

pub(crate) struct Record {
    answered: Answered,
    begun: Instant,
    /// Bytes of the body that HTTP was given.
    given: AtomicU64,
    call: Option<OnAnswer>,
}

impl core::fmt::Debug for Record {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Record").field("answered", &self.answered).field("given", &self.given).finish_non_exhaustive()
    }
}

impl Record {
    /// An answer whose body has so many bytes, to a request that came at `begun`; `None` where
    /// nothing is logged.
    pub(crate) fn new(
        client: Option<IpAddr>,
        (method, path, version): (Method, &str, Version),
        (status, length): (u16, u64),
        begun: Instant,
        call: Option<&OnAnswer>,
    ) -> Option<Arc<Self>> {
        if call.is_none() && !tracing::enabled!(target: "neater::serve", tracing::Level::INFO) {
            return None;
        }
        let path = path.to_owned();
        let (took, whole, bytes) = (Duration::ZERO, false, 0);
        let answered = Answered { client, method, path, version, status, bytes, length, took, whole };
        Some(Arc::new(Self { answered, begun, given: AtomicU64::new(0), call: call.cloned() }))
    }

    /// HTTP was given so many bytes of the body.
    pub(crate) fn gives(&self, bytes: u64) {
        self.given.fetch_add(bytes, Ordering::Relaxed);
    }

    fn is_whole(&self) -> bool {
        self.given.load(Ordering::Relaxed) >= self.answered.length
    }

    /// The stream that carried it is over, in order or not.
    pub(crate) fn conclude(&self, in_order: bool) {
        if in_order && self.is_whole() { self.delivered() } else { self.cut(0) }
    }

    fn delivered(&self) {
        self.report(self.answered.length, true);
    }

    /// It was not delivered whole: of what HTTP was given, at least so many bytes are missing.
    fn cut(&self, missing: u64) {
        self.report(self.given.load(Ordering::Relaxed).saturating_sub(missing), false);
    }

    fn report(&self, bytes: u64, whole: bool) {
        let answered = Answered { bytes, whole, took: self.begun.elapsed(), ..self.answered.clone() };
        if let Some(call) = &self.call {
            call(&answered);
        }
        let Answered { client, method, path, version, status, length, took, .. } = &answered;
        let (client, ms) = (client.map(|c| c.to_string()).unwrap_or_default(), took.as_millis() as u64);
        match whole {
            true => tracing::info!(target: "neater::serve", %client, %status, bytes, ms, ?version, "{method} {path}"),
            false => tracing::info!(
                target: "neater::serve", %client, %status, at_most = bytes, of = length, ms, ?version,
                "{method} {path}: cut short, or the client went away"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn timeouts() -> Timeouts {
        Timeouts { idle: 10 * S, standstill: 40 * S, step: 1, exact: true }
    }

    fn record() -> Arc<Record> {
        Arc::new(Record {
            answered: Answered {
                client: None,
                method: Method::GET,
                path: "/".into(),
                version: Version::HTTP_11,
                status: 200,
                bytes: 0,
                length: 10,
                took: Duration::ZERO,
                whole: false,
            },
            begun: Instant::now(),
            given: AtomicU64::new(10),
            call: None,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn activity_puts_the_end_off() {
        let activity = Activity::new();
        let started = Instant::now();
        let watcher = activity.clone();
        let end = tokio::spawn(async move { watcher.over(timeouts(), || None, |_| ()).await });
        tokio::time::sleep(7 * S).await;
        activity.touch();
        assert_eq!(end.await.expect("watched"), Over::Idle);
        assert_eq!(started.elapsed().as_secs(), 17);
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_peer_acknowledges_counts_and_what_waits_in_a_buffer_does_not() {
        let activity = Activity::new();
        let started = Instant::now();
        let moves = AtomicUsize::new(0);
        // 100 bytes every 30 s, of 500; then nothing more of the last 100.
        let delivery = || {
            let acknowledged = (started.elapsed().as_secs() / 30 * 100).min(400);
            Some(Delivery { acknowledged, pending: 500 - acknowledged, received: 0 })
        };
        let over = activity
            .over(timeouts(), delivery, |_| {
                moves.fetch_add(1, Ordering::Relaxed);
            })
            .await;
        assert_eq!(over, Over::Standstill);
        assert_eq!(moves.load(Ordering::Relaxed), 4);
        let at = started.elapsed().as_secs();
        assert!((160..=165).contains(&at), "{at}");
    }

    #[tokio::test(start_paused = true)]
    async fn packets_that_only_ask_whether_the_peer_is_there_are_no_progress() {
        let activity = Activity::new();
        let started = Instant::now();
        let _answer = activity.begin();
        // Four bytes a second, and none of them content.
        let delivery = || Some(Delivery { acknowledged: started.elapsed().as_secs() * 4, ..Delivery::default() });
        let timeouts = Timeouts { step: 4096, ..timeouts() };
        assert_eq!(activity.over(timeouts, delivery, |_| ()).await, Over::Standstill);
        assert_eq!(started.elapsed().as_secs(), 40);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_logged_as_delivered_when_it_is_and_no_sooner() {
        let activity = Activity::new();
        let mut answer = activity.begin();
        answer.record = Some(record());
        drop(answer);
        let waiting = |acknowledged, pending| {
            let seen = Delivery { acknowledged, pending, received: 0 };
            (activity.look(&seen, true), lock(&activity.shared.state).left.len())
        };
        assert_eq!(waiting(1000, 50), (true, 1));
        assert_eq!(waiting(1049, 900), (true, 1), "others have followed");
        assert_eq!(waiting(1050, 899), (false, 0));
        // One that is not passed on whole has no one to wait for.
        let mut answer = activity.begin();
        let cut = record();
        cut.given.store(9, Ordering::Relaxed);
        answer.record = Some(cut);
        drop(answer);
        assert_eq!(waiting(1050, 899), (false, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_whose_connection_is_lost_is_not_logged_as_delivered() {
        let activity = Activity::new();
        let mut answer = activity.begin();
        answer.record = Some(record());
        drop(answer);
        let left = || lock(&activity.shared.state).left.len();
        assert_eq!(activity.over(timeouts(), || None, |_| ()).await, Over::Idle);
        assert_eq!(left(), 1);
        activity.settle(false);
        assert_eq!(left(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_delivered_after_http_has_done_counts_and_so_does_what_goes_on_on_a_stream() {
        let activity = Activity::new();
        let seen = |acknowledged| Delivery { acknowledged, pending: 100, received: 0 };
        for (acknowledged, still) in [(1, 0_u32), (1, 10), (1, 20), (2, 0)] {
            tokio::time::advance(10 * S).await;
            activity.follow(&seen(acknowledged), true);
            let (busy, last) = activity.standing();
            assert_eq!((busy, last.elapsed()), (true, still * S));
        }
        // What has arrived by then is logged so, however the connection ends.
        let mut answer = activity.begin();
        answer.record = Some(record());
        drop(answer);
        activity.follow(&Delivery { pending: 0, ..seen(3) }, true);
        assert!(lock(&activity.shared.state).left.is_empty());
        let whole = Activity::new();
        let stream = whole.of_stream();
        tokio::time::advance(10 * S).await;
        assert_eq!(whole.standing().1.elapsed(), 10 * S);
        stream.touch();
        assert!(whole.standing().1.elapsed().is_zero() && !whole.standing().0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_looks_late_learns_all_the_same_that_a_connection_has_to_go() {
        let activity = Activity::new();
        activity.evict();
        activity.evicted().await;
        let told = tokio::time::timeout(S, activity.leaves()).await;
        assert!(told.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_has_to_go_goes() {
        let activity = Activity::new();
        let gone = AtomicBool::new(false);
        let ends = async {
            assert_eq!(activity.over(timeouts(), || None, |_| ()).await, Over::Evicted);
            gone.store(true, Ordering::Relaxed);
        };
        let evicts = async {
            tokio::time::sleep(S).await;
            assert!(!gone.load(Ordering::Relaxed));
            activity.evict();
        };
        tokio::join!(ends, evicts);
    }
}
