//! Connections by origin.
//!
//! *Responsible for* making a connection as the needs and the race decide, putting the right HTTP on it, and using it again:
//! many requests at once where the version has streams, one after the other where it has not.
//!
//! *Invariants*: while the first connection to an origin is being made, other requests to it wait for what it turns out to
//! be; a connection on which a request failed is not used again.

use super::response::{Body, Response, Transport};
use super::{Builder, H1_CONNECTIONS, fields, host};
use crate::error::{chain, of_h3, of_hyper};
use crate::streams::{Session, TwoWay};
use crate::{Error, HttpVersion, Origin, Scheme, Url, lock};
use bytes::Bytes;
use core::time::Duration;
use http::{HeaderMap, Method, Request};
use http_body_util::Empty;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use neater::{
    Connection, Direction, Group, Preference, Protection, RemoteEndpoint, SecurityParameters, SelectionProperty, Stack,
    StreamDirection,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of an answer's head over HTTP/3, and between two pieces of its body: more is a defect or an attack.
const H3_HEAD_BUDGET: u64 = 512 << 10;
/// The largest field section that we declare to accept.
const HEAD_MAX: u64 = 64 << 10;
/// Bytes that may be on their way on one HTTP/2 stream, and on all of a connection: 670 Mbit/s and 1.3 Gbit/s at 200 ms. A window is a
/// promise to keep what comes until it is read, so the second is also the memory that a server can take while nobody reads. hyper's
/// adaptive windows end at the same 16 MiB, but begin at 64 KiB and would have to grow first.
const H2_WINDOWS: (u32, u32) = (16 << 20, 32 << 20);

type Sender1 = http1::SendRequest<Empty<Bytes>>;
type Sender2 = http2::SendRequest<Empty<Bytes>>;
type Sender3 = h3::client::SendRequest<Session, Bytes>;
pub(super) type Stream3 = h3::client::RequestStream<TwoWay, Bytes>;

/// The connections of a client.
pub(super) struct Pool {
    config: Builder,
    origins: Mutex<BTreeMap<Origin, Arc<Place>>>,
}

/// The connections of an origin.
struct Place {
    known: tokio::sync::Mutex<Known>,
    /// Who may have a connection of HTTP/1.1.
    turns: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<(Sender1, Transport)>>>,
    /// Over SCTP, each connection of HTTP/1.1 is a stream of this association.
    streams: Mutex<Option<(Group, Transport)>>,
}

impl Place {
    /// Another stream of the association that there is.
    fn stream(&self) -> Option<(Connection, Transport)> {
        let mut streams = lock(&self.streams);
        let (group, transport) = streams.as_ref()?;
        match group.open(StreamDirection::Both) {
            Ok(connection) => Some((connection, Transport { reused: true, ..transport.clone() })),
            Err(e) => {
                tracing::debug!(target: "neater::http", "the association takes no more streams: {e}");
                *streams = None;
                None
            }
        }
    }
}

/// What is known of an origin.
enum Known {
    Nothing,
    /// One connection for everybody.
    Shared(Box<Open>),
    /// It speaks HTTP/1.1.
    Serial,
}

/// A connection that many requests share.
#[derive(Clone)]
struct Open {
    shared: Shared,
    transport: Transport,
    alive: Arc<AtomicBool>,
}

#[derive(Clone)]
enum Shared {
    H2(Sender2),
    H3(Sender3, Session),
}

/// A new connection.
enum Made {
    Shared(Box<Open>),
    Serial(Sender1, Transport),
}

impl Open {
    fn lease(self) -> (Lease, Transport) {
        match self.shared {
            Shared::H2(s) => (Lease::H2(s, Retire(self.alive)), self.transport),
            Shared::H3(s, session) => (Lease::H3(s, session, Retire(self.alive)), self.transport),
        }
    }
}

/// Keeps a connection that many requests share from being used for another one. Those that are on it go on.
pub(super) struct Retire(Arc<AtomicBool>);

impl Retire {
    /// A request has ended with this error: what its connection is to blame for, the next request is spared.
    pub(super) fn after(&self, e: &Error) {
        if matches!(e, Error::Silent(_) | Error::Interrupted { .. }) {
            self.0.store(false, Ordering::Release);
        }
    }
}

/// A connection for one request.
enum Lease {
    H1(Sender1, Keep),
    H2(Sender2, Retire),
    H3(Sender3, Session, Retire),
}

/// What brings a connection of HTTP/1.1 back when its answer is read.
pub(super) struct Keep {
    idle: Arc<Mutex<Vec<(Sender1, Transport)>>>,
    _turn: OwnedSemaphorePermit,
}

/// The connection of an answer that is being read.
pub(super) struct Kept {
    sender: Sender1,
    transport: Transport,
    keep: Keep,
}

impl Kept {
    /// The answer is read to its end: the next request may have the connection.
    pub(super) fn give_back(self) {
        if !self.sender.is_closed() {
            lock(&self.keep.idle).push((self.sender, self.transport));
        }
    }
}

impl Pool {
    pub(super) fn new(config: Builder) -> Self {
        Self { config, origins: Mutex::default() }
    }

    fn place(&self, origin: &Origin) -> Arc<Place> {
        let new = || {
            Arc::new(Place {
                known: tokio::sync::Mutex::new(Known::Nothing),
                turns: Arc::new(Semaphore::new(H1_CONNECTIONS)),
                idle: Arc::default(),
                streams: Mutex::default(),
            })
        };
        lock(&self.origins).entry(origin.clone()).or_insert_with(new).clone()
    }

    /// Asks once, and once more when a connection that was kept from earlier had died meanwhile.
    pub(super) async fn request(&self, method: &Method, url: &Url, headers: &HeaderMap) -> Result<Response, Error> {
        loop {
            let (lease, transport) = self.checkout(url.origin()).await?;
            let reused = transport.reused;
            match self.ask(lease, transport, method, url, headers).await {
                Err(Error::Interrupted { received: 0, cause, .. }) if reused => {
                    tracing::debug!(target: "neater::http", "{}: the kept connection was dead: {cause}", url.origin());
                    self.forget(url.origin()).await;
                }
                done => return done,
            }
        }
    }

    /// What was kept of an origin is of no use.
    async fn forget(&self, origin: &Origin) {
        let place = self.place(origin);
        *place.known.lock().await = Known::Nothing;
        lock(&place.idle).clear();
        *lock(&place.streams) = None;
    }

    async fn checkout(&self, origin: &Origin) -> Result<(Lease, Transport), Error> {
        let place = self.place(origin);
        let mut known = place.known.lock().await;
        match &*known {
            Known::Shared(open) if open.alive.load(Ordering::Acquire) => {
                let (lease, transport) = Open::clone(open).lease();
                return Ok((lease, Transport { reused: true, ..transport }));
            }
            Known::Serial => {
                drop(known);
                return self.serial(origin, &place).await;
            }
            _ => {}
        }
        // Whoever else wants this origin waits for the lock, and for what we find out.
        match self.connect(origin, &place).await? {
            Made::Shared(open) => {
                *known = Known::Shared(open.clone());
                Ok(open.lease())
            }
            Made::Serial(sender, transport) => {
                *known = Known::Serial;
                drop(known);
                let keep = Keep { idle: place.idle.clone(), _turn: turn(&place).await? };
                Ok((Lease::H1(sender, keep), transport))
            }
        }
    }

    async fn serial(&self, origin: &Origin, place: &Arc<Place>) -> Result<(Lease, Transport), Error> {
        let keep = Keep { idle: place.idle.clone(), _turn: turn(place).await? };
        loop {
            let Some((mut sender, transport)) = lock(&place.idle).pop() else { break };
            if sender.ready().await.is_ok() {
                return Ok((Lease::H1(sender, keep), Transport { reused: true, ..transport }));
            }
        }
        match self.connect(origin, place).await? {
            Made::Serial(sender, transport) => Ok((Lease::H1(sender, keep), transport)),
            // The origin has learnt something since: use it for this request, and let the next find out.
            Made::Shared(open) => Ok(open.lease()),
        }
    }

    /// Makes a connection, and puts on it the HTTP that it is for.
    async fn connect(&self, origin: &Origin, place: &Place) -> Result<Made, Error> {
        if let Some((connection, transport)) = place.stream() {
            return start_h1(connection, transport).await;
        }
        let connection = self.establish(origin).await?;
        let alpn = connection.alpn().unwrap_or_default();
        let stack = connection.stack().ok_or_else(|| Error::Protocol("the connection is over already".into()))?;
        let version = match (stack, &alpn[..]) {
            (Stack::Quic, b"h3") => HttpVersion::Http3,
            (Stack::Quic, other) => {
                let name = String::from_utf8_lossy(other).into_owned();
                return Err(Error::Protocol(format!("{origin} speaks `{name}` over QUIC, not h3")));
            }
            (_, b"h2") => HttpVersion::Http2,
            _ => HttpVersion::Http11,
        };
        let transport = Transport {
            stack,
            version,
            remote: connection.remote_addr(),
            security: connection.security(),
            establishment: connection.stats().map(|s| s.establishment).unwrap_or_default(),
            candidates: connection.candidates(),
            reused: false,
        };
        tracing::debug!(target: "neater::http", "{origin}: {version} over {stack}");
        let alive = Arc::new(AtomicBool::new(true));
        let broken = |e: hyper::Error| of_hyper(&e, 0, None);
        match version {
            HttpVersion::Http3 => {
                // A peer that gives no room for its control streams would keep us waiting for ever.
                let (shared, driver) = within(self.config.silence, start_h3(connection)).await??;
                spawn_until_over(driver, alive.clone());
                Ok(Made::Shared(Box::new(Open { shared, transport, alive })))
            }
            HttpVersion::Http2 => {
                let (sender, driver) = h2().handshake(TokioIo::new(bytes_of(connection)?)).await.map_err(broken)?;
                let driver = async move { driver.await.map_err(|e| chain(&e)) };
                spawn_until_over(driver, alive.clone());
                Ok(Made::Shared(Box::new(Open { shared: Shared::H2(sender), transport, alive })))
            }
            HttpVersion::Http11 => {
                let group = if stack.is_sctp() { connection.group().ok() } else { None };
                if let Some(group) = group.filter(Group::has_streams) {
                    *lock(&place.streams) = Some((group, transport.clone()));
                }
                start_h1(connection, transport).await
            }
        }
    }

    /// Names, addresses, protocols: whatever stands behind an origin, the needs and the race choose.
    async fn establish(&self, origin: &Origin) -> Result<Connection, Error> {
        let c = &self.config;
        // SCTP is for those who ask for it by name, or for streams (decision 0023).
        let streams = c.properties.explicit_preference(SelectionProperty::Multistreaming);
        let sctp = c.stacks.iter().any(|s| s.is_sctp()) || streams.is_some_and(|p| p >= Preference::Prefer);
        let (security, eligible): (SecurityParameters, &[Stack]) = match origin.scheme {
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
                let versions: &[HttpVersion] = match &c.version {
                    Some(v) => core::slice::from_ref(v),
                    None => &[HttpVersion::Http3, HttpVersion::Http2, HttpVersion::Http11],
                };
                security.alpn = versions.iter().map(|v| v.alpn().to_vec()).collect();
                let eligible: &[Stack] = match c.version {
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
        let endpoint = RemoteEndpoint::new().with_host_name(&origin.host).with_port(origin.port);
        let endpoint = c.udp_port.map_or(endpoint.clone(), |p| endpoint.with_udp_port(p));
        let mut preconnection = c
            .neater
            .preconnection()
            .remote(endpoint)
            .properties(c.properties.clone())
            .security(security)
            .stacks(&stacks);
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
        Ok(preconnection.connect_bytes().await?.into_connection())
    }

    async fn ask(
        &self,
        lease: Lease,
        transport: Transport,
        method: &Method,
        url: &Url,
        extra: &HeaderMap,
    ) -> Result<Response, Error> {
        let version = transport.version;
        let mut request = Request::new(());
        *request.method_mut() = method.clone();
        *request.uri_mut() = url.uri(version != HttpVersion::Http11, host(extra)?)?;
        *request.headers_mut() = fields(url, extra, version);
        let silence = self.config.silence;
        let mut retire = None;
        let (parts, body) = match lease {
            Lease::H1(mut sender, keep) => {
                let answer = within(silence, sender.send_request(request.map(|()| Empty::new()))).await?;
                let (parts, body) = answer.map_err(|e| of_hyper(&e, 0, None))?.into_parts();
                let kept = Kept { sender, transport: transport.clone(), keep };
                (parts, Body::Hyper { body, kept: Some(kept) })
            }
            Lease::H2(mut sender, shared) => {
                let asked = within(silence, sender.send_request(request.map(|()| Empty::new()))).await;
                let asked = asked.and_then(|answer| answer.map_err(|e| of_hyper(&e, 0, None)));
                let (parts, body) = asked.inspect_err(|e| shared.after(e))?.into_parts();
                retire = Some(shared);
                (parts, Body::Hyper { body, kept: None })
            }
            Lease::H3(sender, session, shared) => {
                let asked = within(silence, ask_h3(sender, &session, request)).await.and_then(|answer| answer);
                let answer = asked.inspect_err(|e| shared.after(e))?;
                retire = Some(shared);
                answer
            }
        };
        Ok(Response::new(url.clone(), method == Method::HEAD, parts, transport, body, silence, retire))
    }
}

/// Over HTTP/3 the sender stays with the body: when the last sender goes, the session is closed.
async fn ask_h3(
    mut sender: Sender3,
    session: &Session,
    request: Request<()>,
) -> Result<(http::response::Parts, Body), Error> {
    let broken = |e: h3::error::StreamError| of_h3(&e, 0, None);
    let mut stream = sender.send_request(request).await.map_err(broken)?;
    let budget = session.budget(stream.id().into_inner());
    match stream.finish().await {
        // RFC 9114 section 4.1: a server that has answered may not want the end of the request; its answer is complete.
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

async fn turn(place: &Place) -> Result<OwnedSemaphorePermit, Error> {
    let permit = place.turns.clone().acquire_owned().await;
    permit.map_err(|_| Error::Protocol("the client is gone".into()))
}

fn bytes_of(connection: Connection) -> Result<neater::ByteStream, Error> {
    connection.into_bytes().map_err(|(_, e)| Error::Protocol(e.to_string()))
}

async fn start_h3(connection: Connection) -> Result<(Shared, impl Future<Output = Result<(), String>>), Error> {
    let broken = |cause: String| Error::Interrupted { received: 0, expected: None, cause };
    let group = connection.group().map_err(|e| broken(e.to_string()))?;
    let session = Session::client(connection, group, H3_HEAD_BUDGET);
    let made = h3::client::builder().max_field_section_size(HEAD_MAX).build(session.clone()).await;
    let (mut driver, sender) = made.map_err(|e| broken(e.to_string()))?;
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

async fn start_h1(connection: Connection, transport: Transport) -> Result<Made, Error> {
    let io = TokioIo::new(bytes_of(connection)?);
    let (sender, driver) = http1::Builder::new().handshake(io).await.map_err(|e| of_hyper(&e, 0, None))?;
    let driver = async move { driver.await.map_err(|e| chain(&e)) };
    spawn_until_over(driver, Arc::default());
    Ok(Made::Serial(sender, transport))
}

/// Runs a connection until it ends, and says so.
fn spawn_until_over(driver: impl Future<Output = Result<(), String>> + Send + 'static, alive: Arc<AtomicBool>) {
    tokio::spawn(async move {
        if let Err(why) = driver.await {
            tracing::debug!(target: "neater::http", "connection over: {why}");
        }
        alive.store(false, Ordering::Release);
    });
}

/// How long a piece of a body may take to come.
pub(super) async fn within<T>(silence: Duration, piece: impl Future<Output = T>) -> Result<T, Error> {
    tokio::time::timeout(silence, piece).await.map_err(|_| Error::Silent(silence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    /// What is declared to the peer (RFC 9113 sections 6.5.2 and 6.9) lets half a gigabit per second be on its way for 200 ms.
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
