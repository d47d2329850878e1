//! Connections by origin.
//!
//! *Responsible for* making a connection as the needs and the race decide, putting the right HTTP
//! on it, and using it again: many requests at once where the version has streams, one after the
//! other where it has not.
//!
//! *Invariants*: while the first connection to an origin is being made, other requests to it wait
//! for what it turns out to be; a connection on which a request failed is not used again.

use super::proxy::{Proxy, Wire};
use super::response::{Body, Response, Transport, announced};
use super::service::{Service, Tap};
use super::{Asked, Builder, H1_CONNECTIONS, fields, host};
use crate::error::{Fault, chain};
use crate::streams::{Session, TwoWay, connection_error};
use crate::{Error, HttpVersion, Origin, Scheme, lock};
use bytes::Bytes;
use core::time::Duration;
use http::{Method, Request};
use http_body_util::Full;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use neater::{
    Connection, Direction, Fate, Group, Preference, Protection, RemoteEndpoint, SecurityParameters, SelectionProperty,
    ServiceOutcome, Stack, StreamDirection,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Bytes of an answer's head over HTTP/3, and between two pieces of its body: more is a defect or
/// an attack.
const H3_HEAD_BUDGET: u64 = 512 << 10;
/// The largest field section that we declare to accept.
const HEAD_MAX: u64 = 64 << 10;
/// Fields that an answer over HTTP/1.1 may have. Servers set more than the hundred that are usual
/// for requests; their bytes are bounded as well.
const FIELDS_MAX: usize = 1000;
/// Bytes that may be on their way on one HTTP/2 stream, and on all of a connection: 670 Mbit/s and
/// 1.3 Gbit/s at 200 ms. A window is a promise to keep what comes until it is read, so the second
/// is also the memory that a server can take while the program does not read. hyper's adaptive
/// windows end at the same 16 MiB, but begin at 64 KiB and would have to grow first.
const H2_WINDOWS: (u32, u32) = (16 << 20, 32 << 20);
/// Candidates that one request is tried by, while each of them is there and does not serve.
const CANDIDATES: usize = 4;
/// Bytes of content that even a slow network takes in a second.
const SLOWEST: u64 = 8 << 10;
/// How often a request is sent again that the server has not looked at, and how much longer it
/// waits each time.
const REFUSALS: u32 = 4;
const REFUSED_WAIT: Duration = Duration::from_millis(100);
/// How long an origin that has demanded HTTP/1.1 is asked over that alone: as long as a race
/// remembers a refusal.
const HTTP11_LIFETIME: Duration = Duration::from_secs(600);

type Sender1 = http1::SendRequest<Full<Bytes>>;
type Sender2 = http2::SendRequest<Full<Bytes>>;
type Sender3 = h3::client::SendRequest<Session, Bytes>;
pub(super) type Stream3 = h3::client::RequestStream<TwoWay, Bytes>;

/// The connections of a client.
pub(super) struct Pool {
    pub(super) config: Builder,
    origins: Mutex<BTreeMap<Route, Arc<Place>>>,
}

/// What connections are kept apart by: a connection through a proxy is another one than a
/// connection without, and serves one origin all the same.
type Route = (Option<Arc<Proxy>>, Origin);

/// The connections of an origin.
struct Place {
    /// What they go through.
    proxy: Option<Arc<Proxy>>,
    known: tokio::sync::Mutex<Known>,
    /// Permits for connections of HTTP/1.1.
    turns: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<(Sender1, Line)>>>,
    /// Over SCTP, each connection of HTTP/1.1 is a stream of this association.
    streams: Mutex<Option<(Group, Line)>>,
    /// Until when it is asked over HTTP/1.1 alone, because it has demanded that.
    http11_until: Mutex<Option<Instant>>,
}

impl Place {
    /// Another stream of the association that there is.
    fn stream(&self) -> Option<(Connection, Line)> {
        let mut streams = lock(&self.streams);
        let (group, line) = streams.as_ref()?;
        match group.open(StreamDirection::Both) {
            Ok(connection) => Some((connection, Line { service: line.service.sibling(), ..line.clone() }.reused())),
            Err(e) => {
                tracing::debug!(target: "neater::http", "the association takes no more streams: {e}");
                *streams = None;
                None
            }
        }
    }

    fn only_http11(&self) -> bool {
        lock(&self.http11_until).is_some_and(|until| Instant::now() < until)
    }

    /// Notes that the server demands HTTP/1.1; false if that was known.
    fn demands_http11(&self) -> bool {
        let (mut until, now) = (lock(&self.http11_until), Instant::now());
        let is_new = until.is_none_or(|until| until <= now);
        if is_new {
            *until = Some(now + HTTP11_LIFETIME);
        }
        is_new
    }
}

/// What carries requests, and how it serves.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) transport: Transport,
    pub(super) service: Arc<Service>,
}

impl Line {
    fn reused(self) -> Self {
        Self { transport: Transport { reused: true, ..self.transport }, ..self }
    }
}

/// The candidates that connections of one request were made to.
#[derive(Clone, Default)]
pub(super) struct Tried(Vec<(Stack, Option<SocketAddr>)>);

impl Tried {
    /// Takes a candidate in; false if it was tried before.
    pub(super) fn note(&mut self, t: &Transport) -> bool {
        let way = (t.stack, t.remote);
        let new = !self.0.contains(&way);
        if new {
            self.0.push(way);
        }
        new
    }

    /// A connection to this candidate had died while it was kept: that is no evidence about another
    /// one.
    fn forget(&mut self, t: &Transport) {
        self.0.retain(|way| *way != (t.stack, t.remote));
    }

    /// Whether there may be another one than this and those before. A race knows all its
    /// candidates; without one, nothing is known.
    fn may_have_more(&self, t: &Transport) -> bool {
        // Those of a proxy all lead to the same server.
        if t.proxy.is_some() {
            return false;
        }
        let alive = t.candidates.iter().filter(|c| !matches!(c.fate, Fate::Failed(_))).count();
        self.0.len() < CANDIDATES && (t.candidates.is_empty() || alive > self.0.len().max(1))
    }
}

/// Why a request has no connection.
pub(super) enum Stop {
    Failed(Error),
    /// One was made, and no HTTP came about on it.
    Served(Box<Line>, Error),
    /// The race has nothing that this request was not tried by.
    Exhausted,
}

impl From<Error> for Stop {
    fn from(e: Error) -> Self {
        Self::Failed(e)
    }
}

/// What is known of an origin.
enum Known {
    Nothing,
    /// One connection for all requests.
    Shared(Box<Open>),
    /// It speaks HTTP/1.1.
    Serial,
}

/// A connection that many requests share.
#[derive(Clone)]
pub(super) struct Open {
    shared: Shared,
    line: Line,
}

#[derive(Clone)]
enum Shared {
    H2(Sender2),
    H3(Sender3, Session),
}

/// A new connection.
pub(super) enum Made {
    Shared(Box<Open>),
    Serial(Sender1, Line),
}

impl Open {
    fn lease(self) -> (Lease, Line) {
        match self.shared {
            Shared::H2(s) => (Lease::H2(s), self.line),
            Shared::H3(s, session) => (Lease::H3(s, session), self.line),
        }
    }
}

/// A connection for one request.
enum Lease {
    H1(Sender1, Keep),
    H2(Sender2),
    H3(Sender3, Session),
}

/// What brings a connection of HTTP/1.1 back when its answer is read.
pub(super) struct Keep {
    idle: Arc<Mutex<Vec<(Sender1, Line)>>>,
    _turn: OwnedSemaphorePermit,
}

/// The connection of an answer that is being read.
pub(super) struct Kept {
    sender: Sender1,
    line: Line,
    keep: Keep,
}

impl Kept {
    /// The answer is read to its end: the next request may have the connection.
    pub(super) fn give_back(self) {
        if !self.sender.is_closed() {
            lock(&self.keep.idle).push((self.sender, self.line));
        }
    }
}

impl Pool {
    pub(super) fn new(config: Builder) -> Self {
        Self { config, origins: Mutex::default() }
    }

    fn place(&self, origin: &Origin) -> Result<Arc<Place>, Error> {
        let proxy = self.config.proxies.of(origin)?;
        let new = || {
            Arc::new(Place {
                proxy: proxy.clone(),
                known: tokio::sync::Mutex::new(Known::Nothing),
                turns: Arc::new(Semaphore::new(H1_CONNECTIONS)),
                idle: Arc::default(),
                streams: Mutex::default(),
                http11_until: Mutex::default(),
            })
        };
        Ok(lock(&self.origins).entry((proxy.clone(), origin.clone())).or_insert_with(new).clone())
    }

    /// Asks once; once more when a connection that was kept from earlier had died meanwhile; by the
    /// other candidates when one is there and does not serve; and over HTTP/1.1 when the server
    /// demands that.
    pub(super) async fn request(&self, asked: &Asked<'_>) -> Result<Response, Error> {
        let (origin, place) = (asked.url.origin(), self.place(asked.url.origin())?);
        let (mut tried, mut last) = (Tried::default(), None);
        let (mut demanded, mut refused) = (false, 0);
        let idempotent = asked.method.is_idempotent();
        loop {
            let (line, e, sent) = match self.checkout(origin, &mut tried).await {
                Ok((lease, line)) => match self.ask_twice(lease, line.clone(), &tried, asked).await {
                    Ok(response) => return Ok(response),
                    Err(e) => (line, e, true),
                },
                Err(Stop::Served(line, e)) => (*line, e, false),
                // The answer of a server explains more than the failure of another way to it.
                Err(Stop::Failed(e)) => return Err(last.unwrap_or(e)),
                Err(Stop::Exhausted) => return Err(last.unwrap_or_else(|| no_other_way(origin))),
            };
            if matches!(e, Error::Refused(_)) {
                // It was not looked at (RFC 9113 section 8.7, RFC 9114 section 4.1.1), so that it
                // may be sent again, whatever it is.
                if refused == REFUSALS {
                    return Err(e);
                }
                tokio::time::sleep(REFUSED_WAIT * refused).await;
                refused += 1;
                tried.forget(&line.transport);
                continue;
            }
            // HTTP_1_1_REQUIRED, too, means that the request was not processed.
            if sent && !idempotent && !line.service.wants_http11() {
                return Err(e);
            }
            if line.service.wants_http11() {
                if let Some(version) = self.config.version {
                    return Err(Error::Protocol(format!(
                        "{origin} wants to be asked over HTTP/1.1, and not over {version}"
                    )));
                }
                if core::mem::replace(&mut demanded, true) {
                    return Err(e);
                }
                tried = Tried::default();
                // Others that were asked at the same time may know it already, and have gone on.
                if place.demands_http11() {
                    tracing::debug!(target: "neater::http", "{origin} demands HTTP/1.1");
                    self.forget(origin).await;
                }
            } else if line.transport.reused && matches!(e, Error::Interrupted { received: 0, .. }) {
                tracing::debug!(target: "neater::http", "{origin}: the kept connection was dead: {e}");
                self.forget(origin).await;
                tried.forget(&line.transport);
                continue;
            } else if line.service.is_broken() && tried.may_have_more(&line.transport) {
                tracing::debug!(target: "neater::http", "{origin}: {} is of no use: {e}", line.transport.stack);
            } else {
                return Err(e);
            }
            last = Some(e);
        }
    }

    /// How long the first answer of a connection is waited for, where there are others.
    fn second_wait(&self) -> Duration {
        self.config.second_after.min(self.config.silence / 2)
    }

    /// Asks over a connection, and over one to another candidate beside it when the first has never
    /// answered anything and is silent for long ([`Builder::second_after`]): what is asked here is
    /// safe to be asked twice (RFC 9110 section 9.2.1). The first answer that comes is taken.
    async fn ask_twice(&self, lease: Lease, line: Line, tried: &Tried, what: &Asked<'_>) -> Result<Response, Error> {
        let mut first = pin!(self.ask(lease, line.clone(), what));
        if !what.method.is_safe() || line.service.has_answered() || !tried.may_have_more(&line.transport) {
            return first.await;
        }
        if let Ok(done) = tokio::time::timeout(self.second_wait(), first.as_mut()).await {
            return done;
        }
        line.service.suspect();
        let mut tried = tried.clone();
        tried.note(&line.transport);
        let mut second = pin!(async {
            let (lease, other) = self.checkout(what.url.origin(), &mut tried).await.ok()?;
            // Another request may have made it meanwhile, or it was kept.
            let same = (other.transport.stack, other.transport.remote) == (line.transport.stack, line.transport.remote);
            if same { None } else { self.ask(lease, other, what).await.ok() }
        });
        tokio::select! {
            done = first.as_mut() => match done {
                Ok(response) => Ok(response),
                Err(e) => second.as_mut().await.ok_or(e),
            },
            done = second.as_mut() => match done {
                Some(response) => Ok(response),
                None => first.as_mut().await,
            },
        }
    }

    /// What was kept of an origin is of no use.
    async fn forget(&self, origin: &Origin) {
        let Ok(place) = self.place(origin) else { return };
        *place.known.lock().await = Known::Nothing;
        lock(&place.idle).clear();
        *lock(&place.streams) = None;
    }

    async fn checkout(&self, origin: &Origin, tried: &mut Tried) -> Result<(Lease, Line), Stop> {
        let place = self.place(origin)?;
        let mut known = place.known.lock().await;
        match &*known {
            Known::Shared(open) if open.line.service.is_usable() => {
                let (lease, line) = Open::clone(open).lease();
                return Ok((lease, line.reused()));
            }
            Known::Serial => {
                drop(known);
                return self.serial(origin, &place, tried).await;
            }
            _ => {}
        }
        // Other requests to this origin wait for the lock, and for the result.
        match self.connect(origin, &place, tried).await? {
            Made::Shared(open) => {
                *known = Known::Shared(open.clone());
                Ok(open.lease())
            }
            Made::Serial(sender, line) => {
                *known = Known::Serial;
                drop(known);
                let keep = Keep { idle: place.idle.clone(), _turn: turn(&place).await? };
                Ok((Lease::H1(sender, keep), line))
            }
        }
    }

    async fn serial(&self, origin: &Origin, place: &Arc<Place>, tried: &mut Tried) -> Result<(Lease, Line), Stop> {
        let keep = Keep { idle: place.idle.clone(), _turn: turn(place).await? };
        loop {
            let Some((mut sender, line)) = lock(&place.idle).pop() else { break };
            if sender.ready().await.is_ok() {
                return Ok((Lease::H1(sender, keep), line.reused()));
            }
        }
        match self.connect(origin, place, tried).await? {
            Made::Serial(sender, line) => Ok((Lease::H1(sender, keep), line)),
            // The origin has learnt something since, or its demand for HTTP/1.1 has expired.
            Made::Shared(open) => {
                *place.known.lock().await = Known::Shared(open.clone());
                Ok(open.lease())
            }
        }
    }

    /// Makes a connection, and puts on it the HTTP that it is for.
    async fn connect(&self, origin: &Origin, place: &Place, tried: &mut Tried) -> Result<Made, Stop> {
        if let Some((connection, line)) = place.stream() {
            return match tried.note(&line.transport) {
                true => start_h1(Wire::Plain(bytes_of(connection)?), line).await,
                false => Err(Stop::Exhausted),
            };
        }
        if let Some(proxy) = &place.proxy {
            return self.connect_by(proxy, origin, place.only_http11(), tried).await;
        }
        let connection = self.establish(origin, place.only_http11()).await?;
        let alpn = connection.alpn().unwrap_or_default();
        let over = || {
            let cause = "it was over as soon as it was established".into();
            Error::Interrupted { received: 0, expected: None, cause }
        };
        let stack = connection.stack().ok_or_else(over)?;
        let version = match (stack, &alpn[..]) {
            (Stack::Quic, b"h3") => HttpVersion::Http3,
            // QUIC has always agreed on one (RFC 9001 section 8.1), as long as it is there.
            (Stack::Quic, b"") => return Err(over().into()),
            (Stack::Quic, other) => {
                let name = String::from_utf8_lossy(other).into_owned();
                connection.report(ServiceOutcome::Broken);
                return Err(Error::Protocol(format!("{origin} speaks `{name}` over QUIC, not h3")).into());
            }
            (_, b"h2") => HttpVersion::Http2,
            _ => HttpVersion::Http11,
        };
        let transport = Transport {
            stack,
            version,
            remote: connection.remote_addr(),
            proxy: None,
            security: connection.security(),
            establishment: connection.stats().map(|s| s.establishment).unwrap_or_default(),
            candidates: connection.candidates(),
            reused: false,
        };
        if !tried.note(&transport) {
            return Err(Stop::Exhausted);
        }
        tracing::debug!(target: "neater::http", "{origin}: {version} over {stack}");
        let service = Service::new(version, connection.carrier());
        let line = Line { transport, service: service.clone() };
        match version {
            HttpVersion::Http3 => {
                // A peer that gives no room for its control streams would keep us waiting for ever.
                let more = tried.may_have_more(&line.transport);
                let patience = if more { self.second_wait() } else { self.config.silence };
                let begun = within(patience, start_h3(connection, service.clone())).await;
                let begun = begun.map_err(|e| service.not_begun(e)).and_then(|begun| begun);
                let (shared, driver) = match begun {
                    Ok(begun) => begun,
                    Err(e) => return Err(Stop::Served(Box::new(line), e)),
                };
                spawn_until_over(driver, service);
                Ok(Made::Shared(Box::new(Open { shared, line })))
            }
            HttpVersion::Http2 => start_h2(Wire::Plain(bytes_of(connection)?), line).await,
            HttpVersion::Http11 => {
                let group = if stack.is_sctp() { connection.group().ok() } else { None };
                if let Some(group) = group.filter(Group::has_streams) {
                    *lock(&place.streams) = Some((group, line.clone()));
                }
                start_h1(Wire::Plain(bytes_of(connection)?), line).await
            }
        }
    }

    /// Names, addresses, protocols: whatever stands behind an origin, the needs and the race
    /// choose.
    async fn establish(&self, origin: &Origin, only_http11: bool) -> Result<Connection, Error> {
        let c = &self.config;
        let (security, eligible) = self.demands(origin, only_http11)?;
        let stacks: Vec<Stack> =
            eligible.iter().copied().filter(|s| c.stacks.is_empty() || c.stacks.contains(s)).collect();
        if stacks.is_empty() {
            let names = |list: &[Stack]| list.iter().map(|s| s.as_str()).collect::<Vec<_>>().join(" or ");
            return Err(Error::Needs(format!(
                "{origin} can be reached over {} only, and {} was asked for",
                names(eligible),
                names(&c.stacks)
            )));
        }
        Ok(self.preconnection(origin, origin, security, &stacks).connect_bytes().await?.into_connection())
    }

    /// What an origin is asked with: security, and the stacks that can carry it.
    pub(super) fn demands(
        &self,
        origin: &Origin,
        only_http11: bool,
    ) -> Result<(SecurityParameters, &'static [Stack]), Error> {
        let c = &self.config;
        let only = c.version.or(only_http11.then_some(HttpVersion::Http11));
        // SCTP is for programs that ask for it by name, or for streams (decision 0023).
        let streams = c.properties.explicit_preference(SelectionProperty::Multistreaming);
        let sctp = c.stacks.iter().any(|s| s.is_sctp()) || streams.is_some_and(|p| p >= Preference::Prefer);
        let (security, eligible): (SecurityParameters, &'static [Stack]) = match origin.scheme {
            Scheme::Http => {
                if let Some(v @ (HttpVersion::Http2 | HttpVersion::Http3)) = c.version {
                    return Err(Error::Needs(format!("{origin}: {v} needs https")));
                }
                let eligible: &[Stack] = if sctp { &[Stack::Tcp, Stack::Sctp, Stack::SctpIp] } else { &[Stack::Tcp] };
                (SecurityParameters::disabled(), eligible)
            }
            Scheme::Https => {
                if c.security.protection != Protection::Required {
                    return Err(Error::Needs(format!("{origin}: https is always encrypted; ask for http instead")));
                }
                let mut security = c.security.clone();
                let versions: &[HttpVersion] = match &only {
                    Some(v) => core::slice::from_ref(v),
                    None => &[HttpVersion::Http3, HttpVersion::Http2, HttpVersion::Http11],
                };
                security.alpn = versions.iter().map(|v| v.alpn().to_vec()).collect();
                let eligible: &[Stack] = match only {
                    Some(HttpVersion::Http3) => &[Stack::Quic],
                    // A stream of SCTP is a connection of HTTP/1.1.
                    Some(HttpVersion::Http11) if sctp => &[Stack::Tls, Stack::SctpDtls],
                    Some(_) => &[Stack::Tls],
                    None if sctp => &[Stack::Quic, Stack::Tls, Stack::SctpDtls],
                    None => &[Stack::Quic, Stack::Tls],
                };
                (security, eligible)
            }
        };
        if c.properties.direction() != Direction::Bidirectional {
            return Err(Error::Needs(format!(
                "{origin}: HTTP asks and is answered, so a connection must carry both directions"
            )));
        }
        Ok((security, eligible))
    }

    /// The beginning of a connection to where `to` is, for requests to `origin`.
    pub(super) fn preconnection(
        &self,
        to: &Origin,
        origin: &Origin,
        security: SecurityParameters,
        stacks: &[Stack],
    ) -> neater::Preconnection {
        let c = &self.config;
        let endpoint = RemoteEndpoint::new().with_host_name(&to.host).with_port(to.port);
        let endpoint = c.udp_port.map_or(endpoint.clone(), |p| endpoint.with_udp_port(p));
        let known = c.places.iter().filter(|(h, p, _)| (h.as_str(), *p) == (to.host.as_str(), to.port));
        let mut remotes: Vec<_> = known.map(|(.., at)| endpoint.clone().with_ip_address(*at)).collect();
        if remotes.is_empty() {
            remotes.push(endpoint);
        }
        let preconnection = remotes.into_iter().fold(c.neater.preconnection(), neater::Preconnection::remote);
        let mut preconnection = preconnection.properties(c.properties.clone()).security(security).stacks(stacks);
        for (name, value) in &c.policy {
            preconnection = preconnection.policy_property(name, value);
        }
        if let Some(local) = &c.local {
            preconnection = preconnection.local(local.clone());
        }
        if let Some(t) = c.connect_timeout {
            preconnection = preconnection.timeout(t);
        }
        if let Some(observer) = c.observer.clone() {
            let origin = origin.clone();
            preconnection = preconnection.on_event(move |e| observer(&origin, e));
        }
        preconnection
    }

    async fn ask(&self, lease: Lease, line: Line, asked: &Asked<'_>) -> Result<Response, Error> {
        let Asked { method, url, headers: extra, body } = *asked;
        let (version, service) = (line.transport.version, line.service.clone());
        let mut request = Request::new(());
        *request.method_mut() = method.clone();
        let (mut headers, named) = (fields(url, extra, version), host(extra)?);
        // A proxy connects to the host of the target, and not to that of the Host field.
        *request.uri_mut() = match self.config.proxies.settle(url, &line.transport, &mut headers) {
            Some(_) => url.uri(true, None)?,
            None => url.uri(version != HttpVersion::Http11, named)?,
        };
        *request.headers_mut() = headers;
        // RFC 9110 section 8.6: a method that has content by its meaning states its length, also
        // where there is none.
        if !body.is_empty() || matches!(*method, Method::POST | Method::PUT | Method::PATCH) {
            request.headers_mut().insert(http::header::CONTENT_LENGTH, body.len().into());
        }
        let full = || Full::new(body.clone());
        // Content takes its time, and nothing comes meanwhile: a slow network has a second for each
        // of so many bytes.
        let silence = self.config.silence;
        let patience = silence + Duration::from_secs(body.len() as u64 / SLOWEST);
        let asked = match lease {
            Lease::H1(mut sender, keep) => {
                let asked = within(patience, sender.send_request(request.map(|()| full()))).await;
                service.asked(asked).map(|answer| {
                    let (parts, body) = answer.into_parts();
                    (parts, Body::Hyper { body, kept: Some(Kept { sender, line: line.clone(), keep }) })
                })
            }
            Lease::H2(mut sender) => {
                let asked = within(patience, sender.send_request(request.map(|()| full()))).await;
                service.asked(asked).map(|answer| {
                    let (parts, body) = answer.into_parts();
                    (parts, Body::Hyper { body, kept: None })
                })
            }
            Lease::H3(sender, session) => {
                let asked = within(patience, ask_h3(sender, &session, &service, request, body)).await;
                asked.map_err(|e| service.silent(e)).and_then(|answer| answer)
            }
        };
        let (parts, body) = asked.inspect_err(|e| service.after(e))?;
        service.answer();
        let announced = announced(&parts.headers, version)?;
        Ok(Response::new(url.clone(), method == Method::HEAD, (parts, announced), line, body, silence))
    }
}

/// Over HTTP/3 the sender stays with the body: when the last sender goes, the session is closed.
async fn ask_h3(
    mut sender: Sender3,
    session: &Session,
    service: &Service,
    request: Request<()>,
    content: &Bytes,
) -> Result<(http::response::Parts, Body), Error> {
    let broken = |e: h3::error::StreamError| {
        let refused = service.refused(Fault::of_h3(&e), || chain(&e));
        refused.unwrap_or_else(|| service.failed_h3(&e, 0, None))
    };
    let mut stream = sender.send_request(request).await.map_err(broken)?;
    let budget = session.budget(stream.id().into_inner());
    let sent = async {
        if !content.is_empty() {
            stream.send_data(content.clone()).await?;
        }
        stream.finish().await
    };
    match sent.await {
        // RFC 9114 section 4.1: a server that has answered may not want the end of the request; its
        // answer is complete.
        Ok(()) | Err(h3::error::StreamError::RemoteTerminate { .. }) => {}
        Err(e) => return Err(broken(e)),
    }
    loop {
        let (parts, ()) = stream.recv_response().await.map_err(broken)?.into_parts();
        if let Some(b) = &budget {
            b.renew();
        }
        // RFC 9110 section 15.2: any number of interim answers may come first.
        if !parts.status.is_informational() {
            return Ok((parts, Body::H3 { stream: Box::new(stream), budget, _sender: sender }));
        }
    }
}

fn no_other_way(origin: &Origin) -> Error {
    Error::Protocol(format!("{origin} cannot be asked in another way"))
}

async fn turn(place: &Place) -> Result<OwnedSemaphorePermit, Error> {
    let permit = place.turns.clone().acquire_owned().await;
    permit.map_err(|_| Error::Protocol("the client is gone".into()))
}

fn bytes_of(connection: Connection) -> Result<neater::ByteStream, Error> {
    connection.into_bytes().map_err(|(_, e)| Error::Protocol(e.to_string()))
}

async fn start_h3(
    connection: Connection,
    service: Arc<Service>,
) -> Result<(Shared, impl Future<Output = Result<(), String>>), Error> {
    let broken = |cause: String| Error::Interrupted { received: 0, expected: None, cause };
    let group = connection.group().map_err(|e| {
        let cause = e.to_string();
        service.note(Fault::of_session(&connection_error(e)));
        broken(cause)
    })?;
    let session = Session::client(connection, group, H3_HEAD_BUDGET);
    let made = h3::client::builder().max_field_section_size(HEAD_MAX).build(session.clone()).await;
    let (mut driver, sender) = made.map_err(|e| {
        service.note(Fault::of_h3_connection(&e));
        broken(e.to_string())
    })?;
    let run = async move {
        let end = core::future::poll_fn(|cx| driver.poll_close(cx)).await;
        if end.is_h3_no_error() { Ok(()) } else { Err(end.to_string()) }
    };
    Ok((Shared::H3(sender, session), run))
}

/// How a connection of HTTP/2 begins.
fn h2() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .initial_stream_window_size(H2_WINDOWS.0)
        .initial_connection_window_size(H2_WINDOWS.1)
        .max_header_list_size(HEAD_MAX as u32);
    builder
}

pub(super) async fn start_h2(wire: Wire, line: Line) -> Result<Made, Stop> {
    let (sender, driver) = match h2().handshake(TokioIo::new(wire)).await {
        Ok(begun) => begun,
        Err(e) => {
            let e = line.service.failed(&e, 0, None);
            return Err(Stop::Served(Box::new(line), e));
        }
    };
    let driver = async move { driver.await.map_err(|e| chain(&e)) };
    spawn_until_over(driver, line.service.clone());
    Ok(Made::Shared(Box::new(Open { shared: Shared::H2(sender), line })))
}

pub(super) async fn start_h1(wire: Wire, line: Line) -> Result<Made, Stop> {
    let io = TokioIo::new(Tap::new(wire, line.service.clone()));
    let mut builder = http1::Builder::new();
    // RFC 9112 section 5.2: folded lines are taken, as one.
    builder.max_headers(FIELDS_MAX).allow_obsolete_multiline_headers_in_responses(true);
    let (sender, driver) = match builder.handshake(io).await {
        Ok(begun) => begun,
        Err(e) => {
            let e = line.service.failed(&e, 0, None);
            return Err(Stop::Served(Box::new(line), e));
        }
    };
    let driver = async move { driver.await.map_err(|e| chain(&e)) };
    spawn_until_over(driver, line.service.clone());
    Ok(Made::Serial(sender, line))
}

/// Runs a connection until it ends, and reports that.
fn spawn_until_over(driver: impl Future<Output = Result<(), String>> + Send + 'static, service: Arc<Service>) {
    tokio::spawn(async move {
        if let Err(why) = driver.await {
            tracing::debug!(target: "neater::http", "connection over: {why}");
        }
        service.end();
    });
}

/// How long a piece of a body may take to come.
pub(super) async fn within<T>(silence: Duration, piece: impl Future<Output = T>) -> Result<T, Error> {
    tokio::time::timeout(silence, piece).await.map_err(|_| Error::Silent(silence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Url;
    use tokio::io::AsyncReadExt;

    #[test]
    fn a_candidate_whose_kept_connection_has_died_may_be_connected_to_again() {
        let transport = Transport {
            stack: Stack::Sctp,
            version: HttpVersion::Http11,
            remote: Some(SocketAddr::from(([192, 0, 2, 1], 80))),
            proxy: None,
            security: None,
            establishment: Duration::ZERO,
            candidates: Vec::new(),
            reused: true,
        };
        let mut tried = Tried::default();
        assert!(tried.note(&transport));
        assert!(!tried.note(&transport));
        tried.forget(&transport);
        assert!(tried.note(&transport));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_origin_that_is_not_asked_over_http_1_1_alone_any_more_has_one_connection() {
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let identity = neater::tls::self_signed(&["127.0.0.1"], neater::WallTime(wall), [9; 32]);
        let mut trust = SecurityParameters::new();
        trust.trust = neater::Trust::Only(vec![identity.chain[0].clone()]);
        let mut security = SecurityParameters::new();
        security.server_certificates = vec![identity];
        security.alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let neater = neater::Neater::new().expect("engine");
        let local = neater::LocalEndpoint::from(SocketAddr::from(([127, 0, 0, 1], 0)));
        let preconnection = neater.preconnection().local(local).security(security).stacks(&[Stack::Tls]);
        let listener = crate::Server::listen(&preconnection).expect("listening");
        let url = Url::parse(&format!("https://127.0.0.1:{}/", listener.port())).expect("a URL");
        let folder = std::env::temp_dir().join(format!("neater-http-learns-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("made");
        let server = crate::Server::new(crate::Files::new(&folder).expect("a folder"));
        let serving = tokio::spawn(server.run(vec![listener], core::future::pending()));

        let pool = Pool::new(crate::Client::builder(neater).security(trust).stacks(&[Stack::Tls]));
        let place = pool.place(url.origin()).expect("no proxy");
        assert!(place.demands_http11());
        assert!(!place.demands_http11(), "it is known");
        let ask = async || {
            let asked =
                Asked { method: &Method::HEAD, url: &url, headers: &http::HeaderMap::new(), body: &Bytes::new() };
            let response = pool.request(&asked).await.expect("answered");
            (response.transport().version, response.transport().reused)
        };
        assert_eq!(ask().await, (HttpVersion::Http11, false));
        // The time is over, and so is the connection.
        *lock(&place.http11_until) = Some(Instant::now());
        lock(&place.idle).clear();
        assert_eq!(ask().await, (HttpVersion::Http2, false));
        assert_eq!(ask().await, (HttpVersion::Http2, true));
        serving.abort();
        std::fs::remove_dir_all(&folder).expect("ours");
    }

    /// What is declared to the peer (RFC 9113 sections 6.5.2 and 6.9) lets half a gigabit per
    /// second be on its way for 200 ms.
    #[tokio::test]
    async fn windows_are_wide_enough_for_fast_long_paths() {
        let (ours, mut theirs) = tokio::io::duplex(1 << 16);
        let (_sender, driver): (Sender2, _) = h2().handshake(TokioIo::new(ours)).await.expect("begun");
        tokio::spawn(driver);
        let read = async {
            let mut preface = [0; 24];
            theirs.read_exact(&mut preface).await.expect("a preface");
            let (mut stream, mut connection) = (None, None);
            while stream.is_none() || connection.is_none() {
                let mut head = [0; 9];
                theirs.read_exact(&mut head).await.expect("a frame");
                let mut body = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
                theirs.read_exact(&mut body).await.expect("all of it");
                let number = |b: &[u8]| u32::from_be_bytes([b[0], b[1], b[2], b[3]]);
                match head[3] {
                    // SETTINGS, with SETTINGS_INITIAL_WINDOW_SIZE.
                    4 => stream = body.chunks(6).find(|s| s[..2] == [0, 4]).map(|s| number(&s[2..])).or(stream),
                    // WINDOW_UPDATE, to what a connection begins with.
                    8 => connection = Some(65_535 + number(&body)),
                    _ => {}
                }
            }
            (stream, connection)
        };
        let (stream, connection) = tokio::time::timeout(Duration::from_secs(5), read).await.expect("soon");
        let needed = 500_000_000 / 8 / 5;
        assert!(stream.is_some_and(|n| n >= needed), "{stream:?}");
        assert!(connection.is_some_and(|n| n >= 2 * needed), "{connection:?}");
    }
}
