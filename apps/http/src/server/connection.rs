//! One connection of a server, whatever its HTTP.

use super::Common;
use super::body::FileBody;
use super::watch::Activity;
use crate::streams::Session;
use bytes::Bytes;
use core::time::Duration;
use h3::error::Code;
use http::header::ALT_SVC;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use neater::{Accepted, ByteStream, Group, Stack};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// How long the last bytes of answers may need to arrive when a session ends.
const DELIVERY: Duration = Duration::from_secs(3);
/// How often it is asked whether they have.
const DELIVERY_CHECK: Duration = Duration::from_millis(5);
/// Header fields of a request over HTTP/1.1.
const FIELDS_MAX: usize = 100;
/// The smallest buffer that hyper works with.
const H1_BUFFER_MIN: usize = 8 << 10;
/// Bytes of one HTTP/2 stream that may wait in memory for their turn.
const H2_SEND_BUFFER: usize = 256 << 10;
/// Streams that a client of HTTP/2 may open and reset before it is taken for an attack.
const H2_RESETS: usize = 64;

type H3Request = h3::server::RequestResolver<Session, Bytes>;

/// Serves a connection until it ends, is idle for too long, or the server stops.
pub(super) async fn serve(common: Arc<Common>, accepted: Accepted, stop: watch::Receiver<bool>) {
    let done = match accepted {
        Accepted::Group(group) => serve_h3(common, group, stop).await,
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
                Ok(bytes) if alpn == b"h2" => serve_h2(common, bytes, stop).await,
                Ok(bytes) => serve_h1(common, bytes, stop).await,
                Err((_, e)) => Err(e.to_string()),
            }
        }
    };
    if let Err(why) = done {
        tracing::debug!(target: "neater::serve", "connection over: {why}");
    }
}

/// Answers a request, and says so to whom it concerns.
async fn answer<B>(common: Arc<Common>, activity: Activity, request: Request<B>) -> Response<FileBody>
where
    B: Send + 'static,
{
    activity.touch();
    let turn = common.turns.clone().acquire_owned().await.ok();
    let (parts, _) = request.into_parts();
    let request = Request::from_parts(parts, ());
    let asked = (request.method().clone(), request.uri().clone(), request.version());
    // The file system may keep us waiting; connections must not.
    let shared = common.clone();
    let response = tokio::task::spawn_blocking(move || shared.files.answer(&request)).await.unwrap_or_else(|_| {
        let mut r = Response::new(FileBody::empty());
        *r.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
        r
    });
    let (method, uri, version) = asked;
    let (status, bytes) = (response.status().as_u16(), response.body().left());
    tracing::info!(target: "neater::serve", %status, bytes, ?version, "{method} {}", uri.path());
    common.counters.requests.fetch_add(1, Ordering::Relaxed);
    activity.touch();
    let (mut parts, body) = response.into_parts();
    if version != http::Version::HTTP_3
        && let Some(alt) = &common.alt_svc
    {
        parts.headers.insert(ALT_SVC, alt.clone());
    }
    Response::from_parts(parts, body.witnessed(activity, common, turn))
}

/// Ends when the server stops.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|s| *s).await;
}

/// Drives a connection of hyper's: to its end, to its idle limit, or out when the server stops.
macro_rules! drive {
    ($connection:expr, $common:expr, $activity:expr, $stop:expr) => {{
        let connection = $connection;
        tokio::pin!(connection);
        let mut told = false;
        loop {
            tokio::select! {
                done = connection.as_mut() => break done.map_err(|e| crate::error::chain(&e)),
                () = $activity.idle_for($common.limits.idle) => break Err("idle".into()),
                () = stopped(&mut $stop), if !told => {
                    told = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }};
}

async fn serve_h1(common: Arc<Common>, bytes: ByteStream, mut stop: watch::Receiver<bool>) -> Result<(), String> {
    let activity = Activity::new();
    let (c, a) = (common.clone(), activity.clone());
    let service = service_fn(move |r| {
        let (c, a) = (c.clone(), a.clone());
        async move { Ok::<_, Infallible>(answer(c, a, r).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(common.limits.head_time.min(common.limits.idle))
        .max_buf_size(common.limits.head.max(H1_BUFFER_MIN))
        .max_headers(FIELDS_MAX)
        .serve_connection(TokioIo::new(bytes), service);
    drive!(connection, common, activity, stop)
}

async fn serve_h2(common: Arc<Common>, bytes: ByteStream, mut stop: watch::Receiver<bool>) -> Result<(), String> {
    let activity = Activity::new();
    let (c, a) = (common.clone(), activity.clone());
    let service = service_fn(move |r| {
        let (c, a) = (c.clone(), a.clone());
        async move { Ok::<_, Infallible>(answer(c, a, r).await) }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(u32::try_from(common.limits.requests_per_connection).unwrap_or(u32::MAX))
        .max_header_list_size(u32::try_from(common.limits.head).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(H2_RESETS)
        .max_send_buf_size(H2_SEND_BUFFER)
        .serve_connection(TokioIo::new(bytes), service);
    drive!(connection, common, activity, stop)
}

async fn serve_h3(common: Arc<Common>, group: Group, mut stop: watch::Receiver<bool>) -> Result<(), String> {
    let activity = Activity::new();
    // A head comes compressed, in frames: twice the room is enough for any that is allowed.
    let session = Session::server(group, 2 * common.limits.head as u64);
    let undelivered = session.undelivered();
    let made = h3::server::builder().max_field_section_size(common.limits.head as u64).build(session).await;
    let mut connection = made.map_err(|e| e.to_string())?;
    let slots = Arc::new(Semaphore::new(common.limits.requests_per_connection));
    let mut requests = JoinSet::new();
    let mut told = false;
    let done = loop {
        if told && requests.is_empty() {
            break Ok(());
        }
        tokio::select! {
            accepted = connection.accept() => match accepted {
                Ok(Some(request)) => {
                    // The transport bounds how many can be waiting here: it allows so many streams at once.
                    requests.spawn(serve_h3_request(common.clone(), activity.clone(), slots.clone(), request));
                }
                Ok(None) => break Ok(()),
                Err(e) if e.is_h3_no_error() => break Ok(()),
                Err(e) => break Err(e.to_string()),
            },
            Some(_) = requests.join_next() => {}
            () = activity.idle_for(common.limits.idle) => break Err("idle".into()),
            () = stopped(&mut stop), if !told => {
                told = true;
                if connection.shutdown(0).await.is_err() {
                    break Ok(());
                }
            }
        }
    };
    if done.is_ok() {
        // Closing the session throws away what is on its way: let it arrive first.
        while requests.join_next().await.is_some() {}
        let delivered = async {
            while undelivered.load(Ordering::Acquire) > 0 {
                tokio::time::sleep(DELIVERY_CHECK).await;
            }
        };
        let _ = tokio::time::timeout(DELIVERY, delivered).await;
    }
    done
}

async fn serve_h3_request(common: Arc<Common>, activity: Activity, slots: Arc<Semaphore>, request: H3Request) {
    let _slot = slots.acquire_owned().await;
    let head = tokio::time::timeout(common.limits.head_time, request.resolve_request());
    let Ok(Ok((request, mut stream))) = head.await else { return };
    activity.touch();
    let (parts, mut body) = answer(common.clone(), activity, request).await.into_parts();
    let idle = common.limits.idle;
    if !matches!(tokio::time::timeout(idle, stream.send_response(Response::from_parts(parts, ()))).await, Ok(Ok(()))) {
        return;
    }
    while let Some(frame) = body.frame().await {
        let Some(data) = frame.ok().and_then(|f| f.into_data().ok()) else {
            return stream.stop_stream(Code::H3_INTERNAL_ERROR);
        };
        // A client that takes nothing for so long has gone, or is an attack.
        if !matches!(tokio::time::timeout(idle, stream.send_data(data)).await, Ok(Ok(()))) {
            return stream.stop_stream(Code::H3_REQUEST_CANCELLED);
        }
    }
    let _ = tokio::time::timeout(idle, stream.finish()).await;
}
