//! REST over HTTP/1.1 on the loopback.

use super::{PATIENCE, Shared, now};
use bytes::Bytes;
use http::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderName};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use neater_command::failure::{Exit, Failure};
use neater_policy_daemon::rest::{Request, Response};
use neater_property::neat::MAX_JSON;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// How many connections there may be.
const MAX_CONNECTIONS: usize = 64;
/// How long a connection may last, whatever happens on it.
const LIFETIME: Duration = Duration::from_secs(300);

/// Where REST is listened for.
pub(super) struct Door(TcpListener, SocketAddr);

impl Door {
    pub(super) const fn addr(&self) -> SocketAddr {
        self.1
    }
}

pub(super) async fn listen(at: SocketAddr) -> Result<Door, Failure> {
    if !at.ip().is_loopback() {
        let why = format!("REST is for this host alone, and {} is not of the loopback", at.ip());
        return Err(Failure::usage(why).advise("use --rest 127.0.0.1:PORT, and forward it to others by SSH"));
    }
    let failed = |e: std::io::Error| {
        Failure::new(Exit::Failed, "local", format!("REST cannot listen on {at}: {e}"))
            .advise("choose another port with --rest 127.0.0.1:PORT, or --no-rest")
    };
    let listener = TcpListener::bind(at).await.map_err(failed)?;
    let addr = listener.local_addr().map_err(failed)?;
    Ok(Door(listener, addr))
}

pub(super) async fn accept(door: Door, shared: Arc<Shared>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match door.0.accept().await {
            Ok((stream, _)) => {
                let shared = shared.clone();
                tokio::spawn(async move {
                    // What goes wrong on a connection ends it, and nothing else.
                    let _ = tokio::time::timeout(LIFETIME, serve(stream, shared)).await;
                    drop(place);
                });
            }
            Err(e) => {
                shared.refused("rest", None, &e.to_string());
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) -> hyper::Result<()> {
    let answer = |request| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(answer(request, &shared).await) }
    };
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(stream), service_fn(answer))
        .await
}

async fn answer(request: http::Request<Incoming>, shared: &Shared) -> http::Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let body = tokio::time::timeout(PATIENCE, Limited::new(body, MAX_JSON + 1).collect()).await;
    let response = match body {
        Ok(Ok(body)) => handle(&parts, &body.to_bytes(), shared),
        Ok(Err(_)) => Response::error(413, &format!("a document has at most {MAX_JSON} bytes")),
        Err(_) => Response::error(408, "the body took too long"),
    };
    if response.status >= 400 {
        shared.refused("rest", None, response.body.trim_end());
    }
    let mut built = http::Response::builder()
        .status(response.status)
        .header(CONTENT_TYPE, response.content_type)
        // What a page of another origin embeds must not be taken for something else.
        .header(HeaderName::from_static("x-content-type-options"), "nosniff")
        .header(HeaderName::from_static("cross-origin-resource-policy"), "same-origin")
        .header(CACHE_CONTROL, "no-store");
    if let Some(allow) = &response.allow {
        built = built.header(ALLOW, allow);
    }
    built.body(Full::new(Bytes::from(response.body))).unwrap_or_default()
}

fn handle(parts: &http::request::Parts, body: &[u8], shared: &Shared) -> Response {
    // Two fields of one name contradict each other.
    let field = |name: HeaderName| {
        let mut all = parts.headers.get_all(name).iter();
        let first = all.next().and_then(|v| v.to_str().ok());
        first.filter(|_| all.next().is_none())
    };
    let request = Request {
        method: parts.method.as_str(),
        path: parts.uri.path(),
        host: field(HOST),
        authorization: field(AUTHORIZATION),
        content_type: field(CONTENT_TYPE),
        body,
    };
    let (response, effects) = {
        let mut daemon = shared.daemon();
        (daemon.rest(&request, shared.port, &shared.token, now()), daemon.take_effects())
    };
    if let Err(why) = shared.perform(&effects) {
        return Response::error(500, &why);
    }
    if response.reload {
        let report = shared.reload(true).unwrap_or_default();
        let faults: String = report.faults.iter().map(|f| format!("\n{f}")).collect();
        return Response { body: response.body + &faults, ..response };
    }
    response
}
