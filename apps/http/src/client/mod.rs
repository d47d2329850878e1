//! Asking for things.
//!
//! *Responsible for* one request's way: a connection of the origin, the request, redirections, one
//! more try when a kept connection turns out to be dead, another candidate when one does not serve.
//! *Not responsible for* resuming or saving.
//!
//! *Invariants*: a request goes over a connection that was made for its origin only; nothing that
//! came for https is asked for again over http.

mod busy;
mod pool;
mod proxy;
mod response;
mod service;

pub use proxy::{Proxies, Proxy};
pub use response::{Paths, Response, Transport};

use crate::{Error, HttpVersion, Origin, Scheme, Url};
use bytes::Bytes;
use core::time::Duration;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LOCATION, CONTENT_TYPE, COOKIE, HOST,
    LAST_MODIFIED, LOCATION, PROXY_AUTHORIZATION, TE,
};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use neater::{Event, LocalEndpoint, Neater, SecurityParameters, Stack, TransportProperties};
use pool::Pool;
use std::net::IpAddr;
use std::sync::Arc;

/// Called with the events of every connection that is made, the timeline of its establishment
/// included.
pub type Observer = Arc<dyn Fn(&Origin, &Event) + Send + Sync>;

/// Redirections followed for one request, unless configured otherwise.
const REDIRECTS: u8 = 10;
/// How long nothing may come, unless configured otherwise.
const SILENCE: Duration = Duration::from_secs(60);
/// How long the first answer of a connection may take before another candidate is asked beside it,
/// unless configured otherwise.
const SECOND_AFTER: Duration = Duration::from_secs(5);
/// Connections of HTTP/1.1 to one origin (RFC 9112 section 9.4 asks to limit them and names no
/// number).
const H1_CONNECTIONS: usize = 6;

/// How a [`Client`] is made.
#[derive(Clone)]
pub struct Builder {
    pub(crate) neater: Neater,
    pub(crate) properties: TransportProperties,
    pub(crate) security: SecurityParameters,
    pub(crate) stacks: Vec<Stack>,
    pub(crate) udp_port: Option<u16>,
    pub(crate) policy: Vec<(String, String)>,
    pub(crate) version: Option<HttpVersion>,
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) silence: Duration,
    pub(crate) second_after: Duration,
    pub(crate) observer: Option<Observer>,
    pub(crate) local: Option<LocalEndpoint>,
    pub(crate) places: Vec<(String, u16, IpAddr)>,
    pub(crate) proxies: Proxies,
}

impl Builder {
    /// What is asked of the transport.
    #[must_use]
    pub fn properties(mut self, properties: TransportProperties) -> Self {
        self.properties = properties;
        self
    }

    /// What is asked of security for `https`; its ALPN is overwritten.
    #[must_use]
    pub fn security(mut self, security: SecurityParameters) -> Self {
        self.security = security;
        self
    }

    /// The UDP port of servers that SCTP is encapsulated to (RFC 6951), where it is not 9899.
    #[must_use]
    pub fn udp_port(mut self, port: u16) -> Self {
        self.udp_port = Some(port);
        self
    }

    /// The local endpoint of connections: an interface, an address. Without it the system and the
    /// policies decide.
    #[must_use]
    pub fn local(mut self, endpoint: LocalEndpoint) -> Self {
        self.local = Some(endpoint);
        self
    }

    /// Where a host is at a port, whatever names and addresses would give; given more than once,
    /// each is a candidate. The certificate is still looked at for the host.
    #[must_use]
    pub fn place(mut self, host: &str, port: u16, address: IpAddr) -> Self {
        self.places.push((host.to_ascii_lowercase(), port, address));
        self
    }

    /// The proxies that origins are asked by. By default there is none, regardless of variables
    /// ([`Proxies::from_variables`]). By a proxy there are TCP and TLS alone, and it is the proxy's
    /// name that is resolved. With a proxy, a field Proxy-Authorization of a request is not sent
    /// ([`Proxies::authorize`] sets it).
    #[must_use]
    pub fn proxies(mut self, proxies: Proxies) -> Self {
        self.proxies = proxies;
        self
    }

    /// A property for policies to look at: see [`neater::Preconnection::policy_property`].
    #[must_use]
    pub fn policy_property(mut self, name: &str, value: &str) -> Self {
        self.policy.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Only these stacks; empty: all that can carry HTTP, but SCTP only where the properties ask
    /// for streams.
    #[must_use]
    pub fn stacks(mut self, stacks: &[Stack]) -> Self {
        self.stacks = stacks.to_vec();
        self
    }

    /// Only this version of HTTP.
    #[must_use]
    pub fn version(mut self, version: HttpVersion) -> Self {
        self.version = Some(version);
        self
    }

    /// How long establishment may take.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = Some(timeout);
        self
    }

    /// How long nothing may come once there is a connection. Default 60 s.
    #[must_use]
    pub fn silence(mut self, timeout: Duration) -> Self {
        self.silence = timeout;
        self
    }

    /// How long a connection may be silent that has not answered anything yet, before the same is
    /// asked beside it of another candidate, that is another address or protocol of the server, if
    /// there is one. Default 5 s, and never more than half of [`Builder::silence`]. The answer that
    /// comes first is taken; the other request is given up.
    #[must_use]
    pub fn second_after(mut self, time: Duration) -> Self {
        self.second_after = time;
        self
    }

    /// A function that gets every event of every connection.
    #[must_use]
    pub fn on_event(mut self, observer: impl Fn(&Origin, &Event) + Send + Sync + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// The client.
    #[must_use]
    pub fn build(self) -> Client {
        Client { pool: Arc::new(Pool::new(self)) }
    }
}

/// A client. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct Client {
    pool: Arc<Pool>,
}

/// What to ask for besides the URL.
#[derive(Clone, Debug)]
pub struct RequestOptions {
    /// Header fields. Those that name the client to a server (Authorization, Cookie), and Host, are
    /// not sent to another origin. Host, if given, is what the server is asked for instead of the
    /// URL's authority: over HTTP/2 and 3 it travels as `:authority` (RFC 9113 section 8.3.1, RFC
    /// 9114 section 4.3.1). The certificate is still that of the URL.
    pub headers: HeaderMap,
    /// Redirections that are followed.
    pub redirects: u8,
}

impl Default for RequestOptions {
    fn default() -> Self {
        Self { headers: HeaderMap::new(), redirects: REDIRECTS }
    }
}

impl Client {
    /// How to make one.
    #[must_use]
    pub fn builder(neater: Neater) -> Builder {
        Builder {
            neater,
            properties: TransportProperties::new(),
            security: SecurityParameters::new(),
            stacks: Vec::new(),
            udp_port: None,
            policy: Vec::new(),
            version: None,
            connect_timeout: None,
            silence: SILENCE,
            second_after: SECOND_AFTER,
            observer: None,
            local: None,
            places: Vec::new(),
            proxies: Proxies::default(),
        }
    }

    /// Asks for `url` and returns the answer when its head is there; the body streams. Any status
    /// is an answer.
    ///
    /// # Errors
    /// [`Error`], by what can be done about it.
    pub async fn get(&self, url: &Url, options: &RequestOptions) -> Result<Response, Error> {
        self.send(Method::GET, url, Bytes::new(), options).await
    }

    /// As [`Client::get`], where no redirection is followed: a redirection is returned as an
    /// answer, for callers that decide themselves which hosts are asked.
    ///
    /// # Errors
    /// [`Error`], by what can be done about it.
    pub async fn get_once(&self, url: &Url, headers: &HeaderMap) -> Result<Response, Error> {
        let (method, body) = (Method::GET, Bytes::new());
        self.pool.request(&Asked { method: &method, url, headers, body: &body }).await
    }

    /// As [`Client::get`], without the body.
    ///
    /// # Errors
    /// [`Error`], by what can be done about it.
    pub async fn head(&self, url: &Url, options: &RequestOptions) -> Result<Response, Error> {
        self.send(Method::HEAD, url, Bytes::new(), options).await
    }

    /// As [`Client::get`], by any method and with content, which is sent when the connection is
    /// there. A method that is not idempotent (RFC 9110 section 9.2.2) is never sent twice, unless
    /// the server has not looked at the request.
    ///
    /// # Errors
    /// [`Error`], by what can be done about it.
    pub async fn send(
        &self,
        method: Method,
        url: &Url,
        body: Bytes,
        options: &RequestOptions,
    ) -> Result<Response, Error> {
        let first = method.clone();
        let (mut method, mut body) = (method, body);
        let (mut url, mut headers) = (url.clone(), options.headers.clone());
        for round in 0..=options.redirects {
            let asked = Asked { method: &method, url: &url, headers: &headers, body: &body };
            // What was asked first may have been done: it is not to be asked again because of what
            // followed.
            let done = round > 0 && !first.is_idempotent();
            let response = self.pool.request(&asked).await.map_err(|e| match e {
                e if done => Error::Redirect(format!("{url}, to which it was redirected: {e}")),
                e => e,
            })?;
            let Some(location) = redirection(&response) else { return Ok(response) };
            // An error names what was asked for.
            let from = || if round == 0 { "it".to_owned() } else { url.to_string() };
            let next = url.join(&location).map_err(|e| match e {
                Error::Url(why) => {
                    Error::Redirect(format!("{} redirects to where it cannot be followed: {why}", from()))
                }
                e => e,
            })?;
            if next.origin() != url.origin() {
                if (url.origin().scheme, next.origin().scheme) == (Scheme::Https, Scheme::Http) {
                    return Err(Error::Redirect(format!(
                        "{} redirects to {next}, which is not encrypted: ask for that yourself if you mean it",
                        from()
                    )));
                }
                for secret in [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION, HOST] {
                    headers.remove(secret);
                }
            }
            if becomes_get(response.status().as_u16(), &method) {
                (method, body) = (Method::GET, Bytes::new());
                // What was of the content (RFC 9110 section 15.4).
                for name in [CONTENT_TYPE, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LOCATION, LAST_MODIFIED] {
                    headers.remove(name);
                }
            }
            url = next;
        }
        Err(Error::Redirect(format!("more than {} redirections, the last to {url}", options.redirects)))
    }
}

/// A request as it is made of one connection after another.
#[derive(Clone, Copy)]
struct Asked<'a> {
    method: &'a Method,
    url: &'a Url,
    headers: &'a HeaderMap,
    body: &'a Bytes,
}

/// Whether the place that an answer names is asked for with GET, whatever was asked before (RFC
/// 9110 sections 15.4.2 to 15.4.4).
fn becomes_get(status: u16, method: &Method) -> bool {
    match status {
        303 => *method != Method::HEAD,
        301 | 302 => *method == Method::POST,
        _ => false,
    }
}

/// Where an answer sends us, if it does (RFC 9110 section 15.4).
fn redirection(response: &Response) -> Option<String> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    Some(location(response.headers().get(LOCATION)?.as_bytes()))
}

/// A location as the URL that it is meant to be: many servers leave out the escapes of bytes that
/// are no ASCII (RFC 3986 section 2.1), whatever the encoding.
fn location(bytes: &[u8]) -> String {
    let as_is = |b: u8| char::from(b).to_string();
    bytes.iter().map(|b| if b.is_ascii() { as_is(*b) } else { format!("%{b:02X}") }).collect()
}

/// The request's fields: ours, then the caller's over them.
fn fields(url: &Url, extra: &HeaderMap, version: HttpVersion) -> HeaderMap {
    let mut all = HeaderMap::new();
    // RFC 9110 section 7.2: first.
    if version == HttpVersion::Http11
        && !extra.contains_key(HOST)
        && let Ok(host) = HeaderValue::from_str(&url.origin().authority())
    {
        all.insert(HOST, host);
    }
    let given = extra.iter().partition::<Vec<_>, _>(|(name, _)| **name == HOST);
    all.extend(given.0.into_iter().map(|(name, value)| (name.clone(), value.clone())));
    all.insert(http::header::ACCEPT, HeaderValue::from_static("*/*"));
    all.insert(http::header::USER_AGENT, HeaderValue::from_static(concat!("neater/", env!("CARGO_PKG_VERSION"))));
    for name in extra.keys().filter(|name| **name != HOST) {
        all.remove(name);
    }
    for (name, value) in given.1 {
        // RFC 9114 section 4.2, RFC 9113 section 8.2.2: fields of the connection have no place in
        // these versions.
        let trailers = *name != TE || value.as_bytes().eq_ignore_ascii_case(b"trailers");
        if version == HttpVersion::Http11 || !is_hop(name) && trailers {
            all.append(name, value.clone());
        }
    }
    if version != HttpVersion::Http11 {
        all.remove(HOST);
    } else if all.contains_key(TE) && !names_te(&all) {
        // RFC 9110 section 10.1.4: so that no proxy passes it on.
        all.append(CONNECTION, HeaderValue::from_static("TE"));
    }
    all
}

/// Whether Connection names TE.
fn names_te(fields: &HeaderMap) -> bool {
    let mut options = fields.get_all(CONNECTION).iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(','));
    options.any(|option| option.trim().eq_ignore_ascii_case("te"))
}

/// What the caller's Host field names, if there is one.
fn host(extra: &HeaderMap) -> Result<Option<Authority>, Error> {
    let mut all = extra.get_all(HOST).iter();
    let Some(value) = all.next() else { return Ok(None) };
    let bad = || Error::Url("the Host field must be one, and name a host and perhaps a port".into());
    // RFC 9112 section 3.2: neither two fields nor user information.
    if all.next().is_some() || value.as_bytes().contains(&b'@') {
        return Err(bad());
    }
    Authority::try_from(value.as_bytes()).map(Some).map_err(|_| bad())
}

fn is_hop(name: &HeaderName) -> bool {
    matches!(name.as_str(), "connection" | "keep-alive" | "proxy-connection" | "transfer-encoding" | "upgrade")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn te_is_named_as_a_field_of_the_connection() {
        let url = Url::parse("https://h/a").expect("a URL");
        let of = |given: &[(HeaderName, &'static str)], version| {
            let given = given.iter().map(|(n, v)| (n.clone(), HeaderValue::from_static(v))).collect();
            let all = fields(&url, &given, version);
            let options = all.get_all(CONNECTION).iter().map(|v| v.to_str().unwrap_or_default());
            options.collect::<Vec<_>>().join(", ")
        };
        assert_eq!(of(&[(TE, "trailers")], HttpVersion::Http11), "TE");
        assert_eq!(of(&[(TE, "trailers"), (CONNECTION, "close, te")], HttpVersion::Http11), "close, te");
        assert_eq!(of(&[(TE, "trailers"), (CONNECTION, "close")], HttpVersion::Http11), "close, TE");
        assert_eq!(of(&[], HttpVersion::Http11), "");
        assert_eq!(of(&[(TE, "trailers")], HttpVersion::Http2), "");
    }

    #[test]
    fn a_location_without_escapes_is_followed() {
        let from = Url::parse("https://h/a/b").expect("a URL");
        let to = |bytes: &[u8]| from.join(&location(bytes)).map(|u| u.to_string()).map_err(|e| e.to_string());
        assert_eq!(to("/\u{fc}ber uns?q=\u{20ac}".as_bytes()).as_deref(), Ok("https://h/%C3%BCber%20uns?q=%E2%82%AC"));
        assert_eq!(to(b"\xfcber").as_deref(), Ok("https://h/a/%FCber"));
        assert_eq!(to(b"/plain%20/x").as_deref(), Ok("https://h/plain%20/x"));
        assert!(to("http://\u{fc}.example/".as_bytes()).is_err(), "a host has its xn-- form");
    }
}
