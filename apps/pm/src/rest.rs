//! REST over HTTP/1.1 on the loopback: what is asked, and what is answered. Only this host may ask.
//!
//! A page in a browser on this host can send requests to this host, too. So the `Host` must be a
//! literal address of the loopback (RFC 6761 leaves what `localhost` means to resolvers, and a name
//! may be made to mean anything), nothing lets a page of another origin read an answer, and
//! whatever changes something needs the token, which only a user who may read the daemon's files
//! knows.

use super::{PATIENCE, Shared, now, openapi};
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Request, State};
use axum::http::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use neater_command::failure::{Exit, Failure};
use neater_policy::manager::{Fault, Row, Stage, Table};
use neater_policy_daemon::{Daemon, DocumentError, Refusal};
use neater_property::neat::MAX_JSON;
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// How many connections there may be.
const MAX_CONNECTIONS: usize = 64;
/// How long a connection may last, whatever happens on it.
const LIFETIME: Duration = Duration::from_secs(300);
const JSON: &str = "application/json";

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
    let router = router(&shared);
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match door.0.accept().await {
            Ok((stream, _)) => {
                let served = timeout(LIFETIME, serve(stream, router.clone()));
                tokio::spawn(async move {
                    // What goes wrong on a connection ends it, and nothing else.
                    let _ = served.await;
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

async fn serve(stream: TcpStream, router: Router) -> hyper::Result<()> {
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await
}

fn router(shared: &Arc<Shared>) -> Router {
    let paths = Router::new()
        .route("/pib", get(policies))
        .route("/profiles", get(profiles))
        .route("/pib/{uid}", get(rule).put(put_rule).delete(remove_rule))
        .route("/cib", get(nodes))
        .route("/cib/rows", get(rows))
        .route("/cib/{uid}", get(node).put(put_node).delete(remove_node))
        .route("/reload", get(reload).post(reload))
        .route("/metrics", get(metrics))
        .route("/openapi.json", get(description))
        .fallback(|| async { Error::nothing() })
        .with_state(shared.clone());
    // Around it, and not its layer: what it answers to a method is known behind its paths alone.
    Router::new().fallback_service(paths).layer(from_fn_with_state(shared.clone(), guard))
}

/// The state of handlers.
type Manager = State<Arc<Shared>>;

/// What holds for every request and every answer.
async fn guard(State(shared): Manager, request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let mut response = match admit(request, shared.port).await {
        Ok(request) => next.run(request).await,
        Err(e) => e.into_response(),
    };
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        response = wrong_method(&method, response.headers());
    }
    shared.daemon().counters.rest(response.status().as_u16());
    if let Some(Why(why)) = response.extensions().get() {
        shared.refused("rest", None, why);
    }
    let own = [
        // What a page of another origin embeds must not be taken for something else.
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (CACHE_CONTROL, "no-store"),
    ];
    response.headers_mut().extend(own.map(|(name, value)| (name, HeaderValue::from_static(value))));
    response
}

/// A request for this host, with its body as a whole.
async fn admit(request: Request, port: u16) -> Result<Request, Error> {
    if !field(request.headers(), HOST).is_some_and(|host| is_here(host, port)) {
        return Err(Error::new(421, format!("Host must be 127.0.0.1:{port} or [::1]:{port}, not a name")));
    }
    let (mut parts, body) = request.into_parts();
    if parts.method == Method::HEAD {
        // A path that has GET would answer it, and none has this.
        parts.method = Method::TRACE;
    }
    match timeout(PATIENCE, to_bytes(body, MAX_JSON)).await {
        Ok(Ok(body)) => Ok(Request::from_parts(parts, Body::from(body))),
        Ok(Err(_)) => Err(Error::new(413, format!("a document has at most {MAX_JSON} bytes"))),
        Err(_) => Err(Error::new(408, "the body took too long")),
    }
}

/// The answer where a path has other methods.
fn wrong_method(method: &Method, headers: &HeaderMap) -> Response {
    let all = field(headers, ALLOW).unwrap_or_default().split(',').filter(|m| *m != "HEAD");
    let allow = all.collect::<Vec<_>>().join(", ");
    let why = format!("{method} is not for this path, only {allow}");
    ([(ALLOW, allow)], Error::new(405, why)).into_response()
}

/// Why a request is refused, for the administrator of the daemon.
#[derive(Clone)]
struct Why(String);

/// A refusal: an object with `error`, or NEAT's words.
#[derive(Debug)]
struct Error {
    status: u16,
    why: String,
    is_text: bool,
}

impl Error {
    fn new(status: u16, why: impl Into<String>) -> Self {
        Self { status, why: why.into(), is_text: false }
    }

    fn missing(why: impl Into<String>) -> Self {
        Self { is_text: true, ..Self::new(404, why) }
    }

    fn nothing() -> Self {
        Self::new(404, "there is nothing here; /openapi.json lists what there is")
    }
}

impl From<Refusal> for Error {
    fn from(why: Refusal) -> Self {
        let status = match why {
            Refusal::Unknown => 404,
            Refusal::Filed | Refusal::Ready => 409,
            Refusal::NotYours | Refusal::Full | Refusal::Crowded => 403,
        };
        Self::new(status, why.to_string())
    }
}

impl From<DocumentError> for Error {
    fn from(e: DocumentError) -> Self {
        match e {
            DocumentError::Malformed(why) => Self::new(400, why),
            DocumentError::Refused(why) => why.into(),
        }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let body = if self.is_text { self.why.clone().into_response() } else { document(&json!({"error": self.why})) };
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, body).into_response();
        response.extensions_mut().insert(Why(self.why));
        response
    }
}

/// A JSON text on a line of its own.
fn document(json: &Value) -> Response {
    ([(CONTENT_TYPE, JSON)], format!("{json}\n")).into_response()
}

/// A field that stands there once: two of one name contradict each other.
fn field(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut all = headers.get_all(name).iter();
    let first = all.next().and_then(|v| v.to_str().ok());
    first.filter(|_| all.next().is_none())
}

/// Whether a `Host` is a literal address of the loopback with the port that is listened on.
fn is_here(host: &str, port: u16) -> bool {
    let (address, asked) = match host.rsplit_once(':') {
        Some((address, number)) if !number.ends_with(']') => (address, number.parse().ok()),
        _ => (host, Some(80)),
    };
    let bare = address.strip_prefix('[').and_then(|a| a.strip_suffix(']'));
    let address = match bare {
        Some(six) => six.parse().ok().filter(IpAddr::is_ipv6),
        None => address.parse().ok().filter(IpAddr::is_ipv4),
    };
    address.is_some_and(|a: IpAddr| a.is_loopback()) && asked == Some(port)
}

/// Whether two texts are the same, in a time that does not depend on where they differ.
fn same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// A request carries the token: it may do what the daemon's own user may.
struct Token;

impl FromRequestParts<Arc<Shared>> for Token {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Error> {
        let given = field(&parts.headers, AUTHORIZATION).and_then(|field| field.split_once(' '));
        let holds = given.is_some_and(|(scheme, held)| {
            scheme.eq_ignore_ascii_case("bearer") && !shared.token.is_empty() && same(held.trim(), &shared.token)
        });
        let why = "this needs the token: Authorization: Bearer TOKEN, which stands in the file rest_token beside the \
                   sockets";
        if holds { Ok(Self) } else { Err(Error::new(401, why)) }
    }
}

/// The uid of a path, without its escapes.
struct Uid(String);

impl FromRequestParts<Arc<Shared>> for Uid {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Error> {
        let uid = Path::from_request_parts(parts, shared).await;
        uid.map(|Path(uid)| Self(uid)).map_err(|_| Error::nothing())
    }
}

/// The body of a request that puts something in.
struct Document(String);

impl FromRequest<Arc<Shared>> for Document {
    type Rejection = Error;

    async fn from_request(request: Request, shared: &Arc<Shared>) -> Result<Self, Error> {
        let media = field(request.headers(), CONTENT_TYPE).and_then(|t| t.split(';').next()).unwrap_or_default();
        if !media.trim().eq_ignore_ascii_case(JSON) {
            return Err(Error::new(415, "the body must be of Content-Type: application/json"));
        }
        let body = Bytes::from_request(request, shared).await.map_err(|e| Error::new(400, e.body_text()))?;
        String::from_utf8(body.into()).map(Self).map_err(|_| Error::new(400, "the body is not UTF-8"))
    }
}

/// Changes something, and the files that it is kept in.
fn change<T, E: Into<Error>>(shared: &Shared, f: impl FnOnce(&mut Daemon) -> Result<T, E>) -> Result<T, Error> {
    let (done, effects) = {
        let mut daemon = shared.daemon();
        (f(&mut daemon), daemon.take_effects())
    };
    shared.perform(&effects).map_err(|why| Error::new(500, why))?;
    done.map_err(Into::into)
}

/// The answer to what was put in. A client that expects NEAT's finds it; diagnostics stand behind.
fn ok(found: &[Fault]) -> String {
    let diagnostics = found.iter().map(|f| format!("\n{}:{}: warning: {}", f.line, f.column, f.why));
    format!("OK{}", diagnostics.collect::<String>())
}

fn uids(table: &Table) -> Response {
    document(&table.rules().iter().map(|r| r.uid.as_str()).collect())
}

async fn policies(State(shared): Manager) -> Response {
    uids(shared.daemon().base().policies())
}

async fn profiles(State(shared): Manager) -> Response {
    uids(shared.daemon().base().profiles())
}

async fn rule(Uid(uid): Uid, State(shared): Manager) -> Result<Response, Error> {
    let daemon = shared.daemon();
    let held = daemon.base().policies().get(&uid).or_else(|| daemon.base().profiles().get(&uid));
    held.map(|rule| document(&rule.to_json())).ok_or_else(|| Error::missing("unknown UID"))
}

async fn put_rule(_: Token, Uid(uid): Uid, State(shared): Manager, Document(text): Document) -> Result<String, Error> {
    change(&shared, |daemon| daemon.put_rules_of(&text, Some(&uid), daemon.owner(), now())).map(|found| ok(&found))
}

async fn remove_rule(_: Token, Uid(uid): Uid, State(shared): Manager) -> Result<&'static str, Error> {
    let remove = |daemon: &mut Daemon| {
        let owner = daemon.owner();
        let policy = daemon.remove_rule(owner, Stage::Policy, &uid);
        policy.or_else(|_| daemon.remove_rule(owner, Stage::Profile, &uid)).map_err(|why| match why {
            Refusal::Unknown => Error::missing(format!("Policy not found (uid '{uid}').")),
            why => why.into(),
        })
    };
    change(&shared, remove).map(|()| "Policy removed")
}

async fn nodes(State(shared): Manager) -> Response {
    let (daemon, now) = (shared.daemon(), now());
    document(&daemon.base().cib().nodes().filter(|n| n.counts(now)).map(|n| n.uid.as_str()).collect())
}

async fn rows(State(shared): Manager) -> Response {
    document(&shared.daemon().rows(now()).rows.iter().map(|row: &Row| row.properties.to_json()).collect())
}

async fn node(Uid(uid): Uid, State(shared): Manager) -> Result<Response, Error> {
    let (daemon, now) = (shared.daemon(), now());
    let held = daemon.base().cib().get(&uid).filter(|n| n.counts(now));
    held.map(|node| document(&node.to_json())).ok_or_else(|| Error::missing("unknown UID"))
}

async fn put_node(_: Token, Uid(uid): Uid, State(shared): Manager, Document(text): Document) -> Result<String, Error> {
    change(&shared, |daemon| daemon.put_nodes_of(&text, Some(&uid), daemon.owner(), now())).map(|found| ok(&found))
}

async fn remove_node(_: Token, Uid(uid): Uid, State(shared): Manager) -> Result<&'static str, Error> {
    let remove = |daemon: &mut Daemon| {
        daemon.remove_node(daemon.owner(), &uid).map_err(|why| match why {
            Refusal::Unknown => Error::missing(format!("CIB node not found (uid '{uid}').")),
            why => why.into(),
        })
    };
    change(&shared, remove).map(|()| "CIB node removed")
}

async fn reload(_: Token, State(shared): Manager) -> String {
    let report = shared.reload(true).unwrap_or_default();
    let faults: String = report.faults.iter().map(|f| format!("\n{f}")).collect();
    format!("PM repositories reloaded.{faults}")
}

async fn metrics(State(shared): Manager) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], shared.daemon().metrics(now())).into_response()
}

async fn description() -> Response {
    document(&openapi::description())
}

#[cfg(test)]
mod tests;
