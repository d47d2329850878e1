//! One connection of a server, whatever its HTTP.

use super::Common;
use super::admission::{Admitted, ClientKey};
use super::body::FileBody;
use super::files::{complete, date, text};
use super::liveness::{Activity, Over, Record, Timeouts};
use super::stream::Shared;
use super::target::{self, has_fields_of_connections};
use crate::streams::{Session, Taken, TwoWay};
use bytes::Bytes;
use core::time::Duration;
use h3::error::{Code, StreamError};
use http::header::{ALT_SVC, DATE};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use neater::{Accepted, ByteStream, Delivery, Group, Stack};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::SystemTime;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How long a client may need to give room for being sent away.
const FAREWELL: Duration = Duration::from_secs(3);
/// How soon it is asked whether the last answers of a session have arrived, and how much later
/// again at most.
const DELIVERY_CHECKS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));
/// How often it is looked at how far a connection is that HTTP has done with.
const SETTLING: Duration = Duration::from_secs(1);
/// How long [`neater::Connection::close`] waits for a client that has paused.
const CLOSING: Duration = Duration::from_secs(300);
/// With so much pending in the transport, what keeps the answers of a connection is the transport,
/// and not their streams.
const FULL: u64 = 64 << 10;
/// Fewer bytes that are acknowledged over QUIC may all be packets that ask whether the client is
/// there.
const QUIC_STEP: u64 = 4 << 10;
/// Header fields of a request over HTTP/1.1.
const FIELDS_MAX: usize = 100;
/// The smallest buffer that hyper works with.
const H1_BUFFER_MIN: usize = 8 << 10;
/// Bytes of one HTTP/2 stream that may wait in memory for their turn.
const H2_SEND_BUFFER: usize = 256 << 10;
/// Streams that a client of HTTP/2 may open and reset before it is taken for an attack.
const H2_RESETS: usize = 64;
/// Requests of one HTTP/3 connection that may end before their head is whole, more than there are
/// whole ones, before the client is taken for an attack: a browser takes many back.
const H3_BROKEN: usize = 1000;
/// As many in all, and the connection has served for long enough: h3 keeps the number of every one.
const H3_KEPT: usize = 10_000;
/// How often it is asked whether a client has gone, while it has all the requests that it may have
/// at once: no task waits for its next stream then, and so none would notice.
const LOOK: Duration = Duration::from_secs(1);

/// How long to wait for a descriptor before another look.
const NO_DESCRIPTOR: Duration = Duration::from_millis(100);

type H3Request = h3::server::RequestResolver<Session, Bytes>;
type H3Stream = h3::server::RequestStream<TwoWay, Bytes>;

/// Serves a connection until it ends, is idle for too long, has to go for others, or the server
/// stops.
pub(super) async fn serve(
    common: Arc<Common>,
    accepted: Accepted,
    (client_key, activity): (ClientKey, Activity),
    stop: watch::Receiver<bool>,
) {
    let stack = match &accepted {
        Accepted::Connection(c) => c.stack(),
        Accepted::Group(g) => g.stack(),
    };
    let secured = stack.is_some_and(Stack::is_secure);
    let client = Client { common, activity, client_key, peer: super::address(&accepted), secured };
    let done = match accepted {
        Accepted::Group(group) if group.stack().is_some_and(Stack::is_sctp) => serve_streams(client, group, stop).await,
        Accepted::Group(group) => serve_h3(client, group, stop).await,
        // Of a listener that was not asked for sessions: a stream alone is not HTTP/3.
        Accepted::Connection(c) if c.stack() == Some(Stack::Quic) => {
            if let Ok(group) = c.group() {
                group.close_session(Code::H3_REQUEST_REJECTED.value(), b"not listening for sessions yet");
            }
            Err("a stream without its session".into())
        }
        Accepted::Connection(c) => {
            let alpn = c.alpn().unwrap_or_default();
            match c.into_bytes() {
                Ok(bytes) if alpn == b"h2" => serve_h2(client, bytes, stop).await,
                Ok(bytes) => serve_h1(client, bytes, stop).await,
                Err((_, e)) => Err(e.to_string()),
            }
        }
    };
    if let Err(why) = done {
        tracing::debug!(target: "neater::serve", "connection over: {why}");
    }
}

/// One connection, for its requests.
#[derive(Clone)]
struct Client {
    common: Arc<Common>,
    activity: Activity,
    client_key: ClientKey,
    /// Its whole address, of which `client_key` has a network.
    peer: Option<IpAddr>,
    /// Whether it is encrypted and authenticated.
    secured: bool,
}

impl Client {
    /// A stream that is served as a connection of its own.
    fn of_stream(&self) -> Self {
        Self { activity: self.activity.of_stream(), ..self.clone() }
    }

    /// How long it may be of no use.
    fn timeouts(&self, step: u64, exact: bool) -> Timeouts {
        let limits = &self.common.limits;
        Timeouts { idle: limits.idle, standstill: limits.standstill, step, exact }
    }
}

/// Answers a request. `end` is notified when the answer has to be given up. It is logged when its
/// connection has delivered it.
async fn answer<B>(client: Client, end: Arc<Notify>, request: Request<B>) -> Response<FileBody>
where
    B: Send + 'static,
{
    answer_with(client, end, request, true).await.0
}

/// Answers a request. With its record for the log, if that is not for the
/// connection to do (`by_connection`).
async fn answer_with<B>(
    client: Client,
    end: Arc<Notify>,
    request: Request<B>,
    by_connection: bool,
) -> (Response<FileBody>, Option<Arc<Record>>)
where
    B: Send + 'static,
{
    let Client { common, activity, client_key, peer, secured } = client;
    let (begun, mut under_way) = (Instant::now(), activity.begin());
    let admitted = common.admission.wait(client_key, end).await;
    let (parts, _) = request.into_parts();
    let request = Request::from_parts(parts, ());
    let refused = target::refused(&request, secured, common.serves_host.as_ref());
    let asked = (request.method().clone(), request.uri().clone(), request.version());
    // The file system may keep us waiting; connections must not. The admission goes where the work
    // is: a client that cancels a request has not ended the work for it, and could have any amount
    // of it done at once otherwise.
    let shared = common.clone();
    let (response, admitted) = match refused {
        Some(status) => (complete(&request, text(status)), admitted),
        None => answer_in_time(shared, request, admitted).await,
    };
    let (method, uri, version) = asked;
    let answered = (response.status().as_u16(), response.body().left());
    let record = Record::new(peer, (method, uri.path(), version), answered, begun, common.on_answer.as_ref());
    common.counters.requests.fetch_add(1, Ordering::Relaxed);
    let (mut parts, mut body) = response.into_parts();
    if version == http::Version::HTTP_2 {
        body = body.tailed();
    }
    if version != http::Version::HTTP_3
        && let Some(alt) = &common.alt_svc
    {
        parts.headers.insert(ALT_SVC, alt.clone());
    }
    if by_connection {
        under_way.record.clone_from(&record);
    }
    (Response::from_parts(parts, body.witnessed(under_way, record.clone(), common, admitted)), record)
}

/// Answers when there is a descriptor for the file, which others give back.
async fn answer_in_time(
    common: Arc<Common>,
    request: Request<()>,
    mut admitted: Option<Admitted>,
) -> (Response<FileBody>, Option<Admitted>) {
    // Most files are in memory: another thread would cost more than they do.
    if let Some(response) = common.files.answer_at_once(&request) {
        return (response, admitted);
    }
    let request = Arc::new(request);
    let timeouts = Instant::now() + common.limits.head_time;
    loop {
        let (common, asked) = (common.clone(), request.clone());
        let answered = tokio::task::spawn_blocking(move || (common.files.answer(&asked), admitted)).await;
        let Ok((response, kept)) = answered else { return (bare(StatusCode::INTERNAL_SERVER_ERROR), None) };
        if response.status() != StatusCode::SERVICE_UNAVAILABLE || Instant::now() >= timeouts {
            return (response, kept);
        }
        admitted = kept;
        tokio::time::sleep(NO_DESCRIPTOR).await;
    }
}

/// An answer where even the request is gone.
fn bare(status: StatusCode) -> Response<FileBody> {
    let mut r = Response::new(FileBody::empty());
    *r.status_mut() = status;
    r.headers_mut().insert(DATE, date(SystemTime::now()));
    r
}

/// How long, and how much, content that has no meaning is taken beside its answer.
const CONTENT_TIME: Duration = Duration::from_secs(1);
const CONTENT_MAX: usize = 256 << 10;
/// How long a stream with more content is left as it is, so that its answer is sent.
const ANSWER_TIME: Duration = Duration::from_millis(200);
/// GOAWAY names the first request that is not served (RFC 9114 section 5.2): one more than what h3
/// has taken last.
const LAST: usize = 1;

/// What the requests of an HTTP/3 connection were.
#[derive(Debug, Default)]
struct Heads {
    /// Counted when the head is there: its answer may stall for long.
    whole: AtomicUsize,
    /// Those of which h3 keeps the number, because they ended before.
    broken: AtomicUsize,
}

/// What follows from that.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Welcome,
    /// The client may come again.
    Enough,
    Attack,
}

impl Heads {
    fn verdict(&self) -> Verdict {
        let (whole, broken) = (self.whole.load(Ordering::Relaxed), self.broken.load(Ordering::Relaxed));
        match broken {
            n if n > H3_BROKEN + whole => Verdict::Attack,
            n if n > H3_KEPT => Verdict::Enough,
            _ => Verdict::Welcome,
        }
    }
}

/// Ends when a session is over.
async fn gone(is_over: impl Fn() -> bool) {
    while !is_over() {
        tokio::time::sleep(LOOK).await;
    }
}

/// Ends when the server stops.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|s| *s).await;
}

tokio::task_local! {
    /// Notified when the answer of the task has to be given up.
    static END: Arc<Notify>;
}

/// Runs hyper's streams of HTTP/2 so that each can be ended alone: hyper itself has no way to give
/// up an answer that the client does not read.
#[derive(Clone)]
struct Streams;

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let end = Arc::new(Notify::new());
        let told = end.clone();
        tokio::spawn(END.scope(end, async move {
            tokio::select! {
                _ = stream => {}
                () = told.notified() => {}
            }
        }));
    }
}

/// Drives a connection of hyper's: to its end, to its limits, to its notified end, or out
/// when the server stops; and then until what it has passed on is delivered.
macro_rules! drive {
    ($connection:expr, $client:expr, $bytes:expr, $end:expr, $stop:expr, $over:expr) => {{
        let done = {
            let connection = $connection;
            let over = $over;
            tokio::pin!(connection, over);
            let grace = $client.common.limits.grace;
            let (mut stops, mut leaves) = (false, false);
            loop {
                let why = tokio::select! {
                    done = connection.as_mut() => break done.map_err(|e| crate::error::chain(&e)),
                    why = over.as_mut(), if !leaves => match why {
                        // A reset would take what the client has not read along.
                        Over::Idle => {
                            (stops, leaves) = (true, true);
                            connection.as_mut().graceful_shutdown();
                            continue;
                        }
                        Over::Evicted if !$client.activity.standing().0 => break Err(Over::Evicted.as_str().into()),
                        why => why.as_str(),
                    },
                    // It does not answer. It has everything, and may not have read it.
                    () = tokio::time::sleep(grace), if leaves => match $client.activity.standing() {
                        // Its next request has crossed ours to go.
                        (true, last) if last.elapsed() < $client.common.limits.standstill => continue,
                        _ => break Err(Over::Idle.as_str().into()),
                    },
                    () = $client.activity.evicted(), if leaves => break Err(Over::Evicted.as_str().into()),
                    () = $end.notified() => "its answer is not taken",
                    () = stopped(&mut $stop), if !stops => {
                        stops = true;
                        connection.as_mut().graceful_shutdown();
                        continue;
                    }
                };
                // Closing would wait for a peer that takes nothing.
                $bytes.connection().abort();
                break Err(why.into());
            }
        };
        settle(&$client, &$bytes, done).await
    }};
}

/// HTTP has done with a connection. What it has passed on is delivered as long as that goes on: see
/// [`neater::Connection::close`].
async fn settle(client: &Client, bytes: &ByteStream, done: Result<(), String>) -> Result<(), String> {
    let (activity, standstill) = (&client.activity, client.common.limits.standstill);
    let connection = bytes.connection();
    let exact = connection.stack().is_none_or(|s| !s.is_sctp());
    let delivers = || {
        let seen = connection.delivery();
        seen.inspect(|seen| activity.follow(seen, exact)).is_some_and(|seen| seen.pending > 0)
    };
    // What has arrived is logged so, whatever comes now.
    delivers();
    let closed = async {
        while standstill > CLOSING && delivers() {
            tokio::time::sleep(SETTLING).await;
        }
        connection.close().await.is_ok()
    };
    let stands_still = async {
        let begun = Instant::now();
        while !delivers() || activity.standing().1.max(begun).elapsed() < standstill {
            tokio::time::sleep(SETTLING.min(standstill)).await;
        }
    };
    let leaves = async {
        activity.leaves().await;
        // Where there is nothing to be delivered, the end is; but a client could put that off.
        if !activity.standing().0 {
            tokio::time::sleep(FAREWELL).await;
        }
    };
    let delivered = tokio::select! {
        delivered = closed => delivered,
        () = stands_still => false,
        () = leaves => false,
    };
    if !delivered {
        connection.abort();
    }
    activity.settle(delivered);
    done
}

async fn serve_h1(client: Client, bytes: ByteStream, mut stop: watch::Receiver<bool>) -> Result<(), String> {
    let bytes = Arc::new(bytes);
    let end = Arc::new(Notify::new());
    let (c, told) = (client.clone(), end.clone());
    let service = service_fn(move |r| {
        let (c, end) = (c.clone(), told.clone());
        async move { Ok::<_, Infallible>(answer(c, end, r).await) }
    });
    // An association reports what it has delivered for all its streams together.
    let alone = bytes.connection().stack().is_none_or(|s| !s.is_sctp());
    let limits = client.common.limits;
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time.min(limits.idle))
        .max_buf_size(limits.head.max(H1_BUFFER_MIN))
        .max_headers(FIELDS_MAX)
        // A client that has sent its whole request still gets its answer.
        .half_close(true)
        .serve_connection(TokioIo::new(Shared::new(bytes.clone())), service);
    let delivery = || bytes.connection().delivery();
    // One answer at a time: it moves as its connection does.
    let moved = |_: &Delivery| client.common.admission.all_move(client.client_key);
    let over = client.activity.over(client.timeouts(1, alone), delivery, moved);
    drive!(connection, client, bytes, end, stop, over)
}

/// Over SCTP, each stream of an association is a connection of HTTP/1.1 (decision 0023).
async fn serve_streams(client: Client, group: Group, mut stop: watch::Receiver<bool>) -> Result<(), String> {
    let limits = client.common.limits;
    let timeouts = client.timeouts(1, false);
    let slots = Arc::new(Semaphore::new(limits.requests_per_connection));
    let mut streams = JoinSet::new();
    // Without one no stream is taken: those that wait are bounded where they wait, and the client
    // feels it.
    let mut slot = None;
    let mut told = false;
    let done = loop {
        if told && streams.is_empty() {
            break Ok(());
        }
        tokio::select! {
            got = slots.clone().acquire_owned(), if slot.is_none() => slot = got.ok(),
            accepted = group.accept(), if !told && slot.is_some() => match accepted {
                Ok(stream) => {
                    let busy = client.activity.begin();
                    let (client, slot, stop) = (client.of_stream(), slot.take(), stop.clone());
                    streams.spawn(async move {
                        let _while_served = (slot, busy);
                        let Ok(bytes) = stream.into_bytes() else { return };
                        if let Err(why) = serve_h1(client, bytes, stop).await {
                            tracing::debug!(target: "neater::serve", "stream over: {why}");
                        }
                    });
                }
                Err(e) => break Err(e.to_string()),
            },
            Some(_) = streams.join_next() => client.activity.touch(),
            () = gone(|| group.is_over()), if slot.is_none() => break Err("gone".into()),
            // Each stream has limits of its own.
            why = client.activity.over(timeouts, || None, |_| ()), if streams.is_empty() => break Err(why.as_str().into()),
            () = client.activity.evicted(), if !streams.is_empty() => break Err(Over::Evicted.as_str().into()),
            () = stopped(&mut stop), if !told => told = true,
        }
    };
    streams.shutdown().await;
    group.close();
    done
}

async fn serve_h2(client: Client, bytes: ByteStream, mut stop: watch::Receiver<bool>) -> Result<(), String> {
    let c = client.clone();
    let service = service_fn(move |r: Request<Incoming>| {
        let c = c.clone();
        // Called in the connection's task, and polled in the stream's.
        async move {
            let end = END.try_with(Clone::clone).unwrap_or_default();
            let (parts, content) = r.into_parts();
            let answered = answer(c, end, Request::from_parts(parts, ())).await;
            pass_over(content);
            Ok::<_, Infallible>(answered)
        }
    });
    let bytes = Arc::new(bytes);
    let limits = client.common.limits;
    let connection = http2::Builder::new(Streams)
        .timer(TokioTimer::new())
        .max_concurrent_streams(u32::try_from(limits.requests_per_connection).unwrap_or(u32::MAX))
        .max_header_list_size(u32::try_from(limits.head).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(H2_RESETS)
        .max_send_buf_size(H2_SEND_BUFFER)
        .serve_connection(TokioIo::new(Shared::new(bytes.clone())), service);
    let end = Notify::new();
    let delivery = || bytes.connection().delivery();
    let moved = |seen: &Delivery| {
        // Else a stream that does not move is kept by its own window.
        if seen.pending >= FULL {
            client.common.admission.all_move(client.client_key);
        }
    };
    let over = client.activity.over(client.timeouts(1, true), delivery, moved);
    drive!(connection, client, bytes, end, stop, over)
}

/// Takes content that has no meaning here for a while: were its stream reset at once, a client that
/// is still sending might not look at the answer, although RFC 9113 section 8.1 has it.
fn pass_over(mut content: Incoming) {
    if content.is_end_stream() {
        return;
    }
    tokio::spawn(async move {
        let taken = tokio::time::timeout(CONTENT_TIME, async {
            let mut left = CONTENT_MAX;
            while let Some(Ok(frame)) = content.frame().await {
                let Some(rest) = left.checked_sub(frame.data_ref().map_or(0, bytes::Bytes::len)) else { return false };
                left = rest;
            }
            true
        });
        if taken.await != Ok(true) {
            // What of the answer waits to be sent is dropped when the stream is reset.
            tokio::time::sleep(ANSWER_TIME).await;
        }
    });
}

async fn serve_h3(client: Client, group: Group, mut stop: watch::Receiver<bool>) -> Result<(), String> {
    let limits = client.common.limits;
    // A head comes compressed, in frames: twice the room is enough for any that is allowed.
    let session = Session::server(group, 2 * limits.head as u64);
    let (undelivered, close, is_over) = (session.undelivered(), session.closer(), session.is_over());
    let (taken, delivery) = (session.taken(), session.delivery());
    let mut builder = h3::server::builder();
    let made = builder.max_field_section_size(limits.head as u64).build(session);
    // A client that gives no room for our control streams must not have a slot for it.
    let made = tokio::select! {
        made = tokio::time::timeout(limits.head_time.min(limits.idle), made) => made,
        () = stopped(&mut stop) => return Ok(()),
        () = client.activity.evicted() => {
            let why = Over::Evicted.as_str();
            close(Code::H3_EXCESSIVE_LOAD, why.as_bytes());
            return Err(why.into());
        }
    };
    let Ok(made) = made else {
        // Nothing else ends it: a client that keeps it alive would have a connection and no slot.
        const LATE: &str = "no HTTP/3 came about in time";
        close(Code::H3_GENERAL_PROTOCOL_ERROR, LATE.as_bytes());
        return Err(LATE.into());
    };
    let mut connection = made.map_err(|e| e.to_string())?;
    let slots = Arc::new(Semaphore::new(limits.requests_per_connection));
    let mut requests = JoinSet::new();
    // Without one no stream is taken. A stream that was opened and reset does not count for the
    // transport, so that its limit alone would let any number wait for a slot.
    let mut slot = None;
    let heads = Arc::new(Heads::default());
    let timeouts = client.timeouts(QUIC_STEP, false);
    let done = {
        let over = client.activity.over(timeouts, &delivery, |_| ());
        tokio::pin!(over);
        let mut told = false;
        loop {
            if told && requests.is_empty() {
                break Ok(());
            }
            tokio::select! {
                got = slots.clone().acquire_owned(), if slot.is_none() => slot = got.ok(),
                accepted = connection.accept(), if slot.is_some() => match accepted {
                    Ok(Some(request)) => {
                        let (client, heads) = (client.clone(), heads.clone());
                        requests.spawn(serve_h3_request(client, heads, slot.take(), taken(), request));
                    }
                    Ok(None) => break Ok(()),
                    // Also where the client has closed in order: whatever it has asked for, it does
                    // not want any more.
                    Err(e) => break Err(e.to_string()),
                },
                Some(_) = requests.join_next() => match heads.verdict() {
                    Verdict::Welcome => {}
                    Verdict::Enough if told => {}
                    Verdict::Enough => {
                        told = true;
                        // A client that gives no room for it cannot be notified.
                        if !matches!(tokio::time::timeout(FAREWELL, connection.shutdown(LAST)).await, Ok(Ok(()))) {
                            break Err("a client that has cancelled many requests does not accept the end of the connection".into());
                        }
                    }
                    Verdict::Attack => {
                        const BROKEN: &str = "too many requests without a whole head";
                        close(Code::H3_EXCESSIVE_LOAD, BROKEN.as_bytes());
                        break Err(BROKEN.into());
                    }
                },
                () = gone(&is_over), if slot.is_none() => break Err("gone".into()),
                why = over.as_mut() => match why {
                    Over::Idle => break Ok(()),
                    why => {
                        close(Code::H3_EXCESSIVE_LOAD, why.as_str().as_bytes());
                        break Err(why.as_str().into());
                    }
                },
                () = stopped(&mut stop), if !told => {
                    told = true;
                    if connection.shutdown(LAST).await.is_err() {
                        break Ok(());
                    }
                }
            }
        }
    };
    if done.is_ok() {
        // Closing the session throws away what is on its way: let it arrive first.
        let arrived = async {
            while requests.join_next().await.is_some() {}
            let (mut after, most) = DELIVERY_CHECKS;
            while undelivered.load(Ordering::Acquire) > 0 {
                tokio::time::sleep(after).await;
                after = (after * 2).min(most);
            }
        };
        tokio::select! {
            () = arrived => {}
            () = gone(&is_over) => {}
            why = client.activity.over(timeouts, &delivery, |_| ()) => {
                if why != Over::Idle {
                    close(Code::H3_EXCESSIVE_LOAD, why.as_str().as_bytes());
                }
            }
        }
    }
    done
}

/// Ends when a request is not wanted any more whose answer has not begun.
async fn taken_back(stream: &mut H3Stream, taken: &Taken) {
    // QUIC reports the end of the client's data once it has passed it all on. A body has no meaning
    // here, and is left where it is.
    if stream.recv_data().await.is_ok() {
        taken.over().await;
    }
}

/// Keeps the admission of an answer whose stream takes more now and then. A whole piece of a file
/// takes longer than an admission may stand still, where a client is slow.
async fn keep_turn(taken: &Taken, admitted: Option<Weak<Admitted>>, pace: Duration) -> Infallible {
    let mut counted = 0;
    loop {
        tokio::time::sleep(pace.max(Duration::from_millis(1))).await;
        let written = taken.written();
        if written.abs_diff(counted) >= QUIC_STEP {
            counted = written;
            if let Some(admitted) = admitted.as_ref().and_then(Weak::upgrade) {
                admitted.moves();
            }
        }
    }
}

async fn serve_h3_request(
    client: Client,
    heads: Arc<Heads>,
    _slot: Option<OwnedSemaphorePermit>,
    taken: Taken,
    request: H3Request,
) {
    let limits = client.common.limits;
    let head = tokio::time::timeout(limits.head_time, request.resolve_request());
    let (request, mut stream) = match head.await {
        Ok(Ok(whole)) => whole,
        // Whole, and refused: h3 lets go of their numbers.
        Ok(Err(StreamError::HeaderTooBig { .. } | StreamError::StreamError { code: Code::H3_MESSAGE_ERROR, .. })) => {
            return;
        }
        _ => {
            heads.broken.fetch_add(1, Ordering::Relaxed);
            return;
        }
    };
    heads.whole.fetch_add(1, Ordering::Relaxed);
    if has_fields_of_connections(request.headers()) {
        return stream.stop_stream(Code::H3_MESSAGE_ERROR);
    }
    let end = Arc::new(Notify::new());
    let answered = tokio::select! {
        answered = answer_with(client, end.clone(), request, false) => answered,
        () = taken_back(&mut stream, &taken) => return stream.stop_stream(Code::H3_REQUEST_CANCELLED),
    };
    let (answered, record) = answered;
    if let Some(record) = record {
        taken.on_end(move |in_order| record.conclude(in_order));
    }
    let admitted = answered.body().admitted();
    let sent = async {
        let (parts, mut body) = answered.into_parts();
        stream.send_response(Response::from_parts(parts, ())).await.map_err(|_| Code::H3_REQUEST_CANCELLED)?;
        while let Some(frame) = body.frame().await {
            let Some(data) = frame.ok().and_then(|f| f.into_data().ok()) else {
                return Err(Code::H3_INTERNAL_ERROR);
            };
            stream.send_data(data).await.map_err(|_| Code::H3_REQUEST_CANCELLED)?;
        }
        // The last piece may still be on its way, but the admission ends with the body.
        drop(body);
        match tokio::time::timeout(limits.standstill, stream.finish()).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(Code::H3_REQUEST_CANCELLED),
        }
    };
    let done = tokio::select! {
        done = sent => done,
        // A client that takes nothing for so long has gone, or is an attack.
        () = end.notified() => Err(Code::H3_REQUEST_CANCELLED),
        never = keep_turn(&taken, admitted, limits.stall / 4) => match never {},
    };
    if let Err(code) = done {
        stream.stop_stream(code);
    }
}

#[cfg(test)]
mod tests {
    use super::super::admission::{Admission, Bounds};
    use super::super::body::CHUNK;
    use super::super::{Counters, Files, ServerLimits};
    use super::*;
    use core::future::poll_fn;
    use core::task::Poll;
    use http::header::HOST;

    /// What a server has that gives one admission at a time.
    fn common(folder: &std::path::Path) -> Arc<Common> {
        let bounds = Bounds { total: 1, per_address: 1, stall: Duration::from_secs(60), idle: Duration::from_secs(60) };
        Arc::new(Common {
            files: Files::new(folder).expect("a folder").never_at_once(),
            limits: ServerLimits::default(),
            counters: Counters::default(),
            admission: Admission::new(bounds),
            alt_svc: None,
            on_answer: None,
            serves_host: None,
        })
    }

    #[test]
    fn a_client_is_welcome_as_long_as_most_of_its_requests_are_whole_and_their_numbers_few() {
        use Verdict::{Attack, Enough, Welcome};
        for (whole, broken, verdict) in [
            (0, 0, Welcome),
            (0, 1000, Welcome),
            (0, 1001, Attack),
            (1, 1001, Welcome),
            (8999, 10_000, Attack),
            (9000, 10_000, Welcome),
            (9001, 10_001, Enough),
            (1_000_000, 10_001, Enough),
        ] {
            let heads = Heads { whole: whole.into(), broken: broken.into() };
            assert_eq!(heads.verdict(), verdict, "{whole} {broken}");
        }
    }

    #[test]
    fn a_request_that_is_taken_back_keeps_its_turn_until_its_work_is_done() {
        let folder = std::env::temp_dir().join(format!("neater-http-turn-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("made");
        std::fs::write(folder.join("a"), vec![7; CHUNK as usize + 1000]).expect("written");
        // One thread for all that blocks, and it is busy: the work of a request does not begin.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
        runtime.expect("a runtime").block_on(async {
            let common = common(&folder);
            let client = Client {
                common: common.clone(),
                activity: Activity::new(),
                client_key: ClientKey::new(None, 1),
                peer: None,
                secured: false,
            };
            let request = || Request::get("http://h/a").header(HOST, "h").body(()).expect("a request");
            for reads in [false, true] {
                let busy = std::sync::mpsc::channel::<()>();
                let mut response = None;
                if reads {
                    // What leaves with the head is there already.
                    let answered = response.insert(answer(client.clone(), Arc::default(), request()).await);
                    assert!(answered.body_mut().frame().await.is_some_and(|f| f.is_ok()));
                }
                let held = tokio::task::spawn_blocking(move || busy.1.recv());
                // Begun, and given up: what it has asked the file system for is still to be done.
                match &mut response {
                    Some(response) => {
                        let mut frame = response.body_mut().frame();
                        let pending = poll_fn(|cx| Poll::Ready(core::pin::Pin::new(&mut frame).poll(cx).is_pending()));
                        assert!(pending.await);
                    }
                    None => {
                        let mut asked = Box::pin(answer(client.clone(), Arc::default(), request()));
                        for _ in 0..3 {
                            assert!(poll_fn(|cx| Poll::Ready(asked.as_mut().poll(cx).is_pending())).await);
                        }
                    }
                }
                drop(response);
                let mut next = Box::pin(common.admission.wait(ClientKey::new(None, 2), Arc::default()));
                for _ in 0..3 {
                    assert!(poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx).is_pending())).await, "{reads}");
                    tokio::task::yield_now().await;
                }
                drop(busy.0);
                assert!(held.await.expect("ran").is_err());
                assert!(next.await.is_some(), "{reads}");
            }
        });
        std::fs::remove_dir_all(&folder).expect("ours");
    }
}
