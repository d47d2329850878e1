//! Requests by way of a proxy.
//!
//! *Responsible for* which proxy an origin is asked by, with curl's variables, options and
//! precedence; for asking it: by the whole URL for http (RFC 9112 section 3.2.2), by a tunnel for
//! https (RFC 9110 section 9.3.6). *Not responsible for* where variables come from, nor for how the
//! proxy itself is reached: that is a connection as every other.
//!
//! *Invariants*: a proxy that cannot be used is an error, and never left out in silence; the name
//! and the password of a proxy go to that proxy alone, and into no text.

mod bypass;
mod tunnel;

pub(super) use tunnel::Wire;

use super::pool::{Line, Made, Pool, Stop, Tried, start_h1, start_h2};
use super::response::Transport;
use super::service::Service;
use crate::url::{split_port, unescape};
use crate::{Error, HttpVersion, Origin, Scheme, Url};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bypass::Bypass;
use core::fmt;
use http::header::PROXY_AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use neater::{EstablishmentError, Reason, Role, SecurityParameters, Stack};
use std::sync::Arc;
use std::time::Instant;

/// The port of a proxy that has none in its URL, as in curl.
const DEFAULT_PORT: u16 = 1080;
/// Characters of a text that an error shows.
const SHOWN: usize = 200;
/// What can be given, for errors.
const FORM: &str = "http://[USER:PASSWORD@]HOST[:PORT] is supported";

/// A proxy for HTTP over TCP. As text it is its URL without name and password.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Proxy {
    host: String,
    port: u16,
    /// What it is shown of a name and a password (RFC 9110 section 11.7.2): the whole value of the
    /// field.
    authorization: Option<String>,
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        write!(f, "http://{host}:{}", self.port)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Proxy {
    /// Reads the URL of a proxy, which `from` has given. Without a scheme it is http, without a
    /// port 1080; a path means nothing. Name and password may have escapes.
    fn parse(text: &str, from: &str) -> Result<Self, String> {
        let text = text.trim();
        // What may be a password is not shown.
        let shown = text.rsplit('@').next().unwrap_or_default();
        let shown: String = shown.chars().filter(|c| !c.is_control()).take(SHOWN).collect();
        let bad = |why: &str| format!("{from}: `{shown}` is no proxy that can be used: {why}; {FORM}");
        let rest = match text.split_once("://") {
            None => text,
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("https") => {
                return Err(bad("TLS to the proxy itself (https://) is not"));
            }
            Some((scheme, _)) if scheme.get(..5).is_some_and(|s| s.eq_ignore_ascii_case("socks")) => {
                return Err(bad("SOCKS is not"));
            }
            Some(_) => return Err(bad("its scheme is not known")),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (user, at) = authority.rsplit_once('@').map_or((None, authority), |(user, at)| (Some(user), at));
        let (host, port) = split_port(at).ok_or_else(|| bad("the port must be a number from 1 to 65535"))?;
        let port = port.unwrap_or(DEFAULT_PORT);
        let url =
            Url::parse(&format!("http://{host}:{port}/")).map_err(|_| bad("its host is neither name nor address"))?;
        let authorization = match user {
            None => None,
            Some(user) => {
                let (name, password) = user.split_once(':').unwrap_or((user, ""));
                let plain = unescape(name).zip(unescape(password));
                let (name, password) =
                    plain.ok_or_else(|| bad("an escape (%) in its name or password means nothing"))?;
                Some(format!("Basic {}", STANDARD.encode(format!("{name}:{password}"))))
            }
        };
        Ok(Self { host: url.origin().host.clone(), port, authorization })
    }

    /// The field that authenticates its clients; a table of header compression does not keep it.
    fn authorization(&self) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(self.authorization.as_deref()?).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// A text of its own without what it was shown: a proxy may repeat that.
    fn without_secrets(&self, text: &str) -> String {
        let Some(value) = &self.authorization else { return text.to_owned() };
        let token = value.split_once(' ').map_or(value.as_str(), |(_, token)| token);
        let plain = STANDARD.decode(token).ok().and_then(|plain| String::from_utf8(plain).ok()).unwrap_or_default();
        let password = plain.split_once(':').map_or("", |(_, password)| password);
        let secrets = [token, &plain, password].into_iter().filter(|s| !s.is_empty());
        secrets.fold(text.to_owned(), |text, secret| text.replace(secret, "..."))
    }

    /// The fields of a request that goes to it whole.
    fn authorize(&self, fields: &mut HeaderMap) {
        if let Some(value) = self.authorization() {
            fields.insert(PROXY_AUTHORIZATION, value);
        }
    }
}

/// A proxy that was named, or why it cannot be used.
type Named = Option<Result<Arc<Proxy>, String>>;

/// Which proxies there are, for which schemes, and which hosts are asked without. By default there
/// is none.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    http: Named,
    https: Named,
    bypass: Bypass,
}

impl Proxies {
    /// Those that environment variables name, with curl's names and precedence: `http_proxy` (only
    /// so, as `HTTP_PROXY` is what a CGI program has of a request's field `Proxy`) and
    /// `https_proxy` or `HTTPS_PROXY`; for both else `all_proxy` or `ALL_PROXY`; without them the
    /// hosts of `no_proxy` or `NO_PROXY`. A variable that is empty counts for one that is not
    /// there. What is wrong with a proxy is an error of the requests that would go by it.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let first = |names: &[&'static str]| {
            let found = names.iter().find_map(|n| variable(n).filter(|v| !v.is_empty()).map(|v| (*n, v)));
            found.map(|(name, value)| Proxy::parse(&value, name).map(Arc::new))
        };
        let list = ["no_proxy", "NO_PROXY"].iter().find_map(|n| variable(n).filter(|v| !v.is_empty()));
        Self {
            http: first(&["http_proxy", "all_proxy", "ALL_PROXY"]),
            https: first(&["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]),
            bypass: list.map(|list| Bypass::parse(&list)).unwrap_or_default(),
        }
    }

    /// This one for every scheme, regardless of variables; none at all if it is empty. Hosts that
    /// are asked without one still are.
    ///
    /// # Errors
    /// [`Error::Url`], with what is wrong with it.
    pub fn by(mut self, proxy: &str) -> Result<Self, Error> {
        let named = match proxy.trim() {
            "" => None,
            text => Some(Ok(Arc::new(Proxy::parse(text, "--proxy").map_err(Error::Url)?))),
        };
        (self.http, self.https) = (named.clone(), named);
        Ok(self)
    }

    /// The hosts that are asked without one, in place of those of the variables: names, which stand
    /// for all that end in them, addresses and networks (`192.0.2.0/24`), with commas between them;
    /// `*` is all, and nothing is none.
    #[must_use]
    pub fn except(mut self, list: &str) -> Self {
        self.bypass = Bypass::parse(list);
        self
    }

    /// What each proxy is shown as Proxy-Authorization, in place of name and password in its URL.
    #[must_use]
    pub fn authorize(mut self, value: &HeaderValue) -> Self {
        let shown = value.to_str().ok().map(str::to_owned);
        for named in [&mut self.http, &mut self.https] {
            if let Some(Ok(proxy)) = named {
                Arc::make_mut(proxy).authorization.clone_from(&shown);
            }
        }
        self
    }

    /// Whether no origin is asked by one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.http.is_none() && self.https.is_none()
    }

    /// By which one an origin is asked; `None`: by none.
    ///
    /// # Errors
    /// [`Error::Url`], if it is none that can be used.
    pub fn of(&self, origin: &Origin) -> Result<Option<Arc<Proxy>>, Error> {
        let named = match origin.scheme {
            Scheme::Http => &self.http,
            Scheme::Https => &self.https,
        };
        match named {
            None => Ok(None),
            Some(_) if self.bypass.has(&origin.host) => Ok(None),
            Some(Ok(proxy)) => Ok(Some(proxy.clone())),
            Some(Err(why)) => Err(Error::Url(why.clone())),
        }
    }

    /// Sees to it that the fields of a request have Proxy-Authorization only where a proxy reads
    /// them, which is then returned: it is asked for the whole URL.
    pub(super) fn settle<'t>(&self, url: &Url, over: &'t Transport, fields: &mut HeaderMap) -> Option<&'t Proxy> {
        if !self.is_empty() {
            fields.remove(PROXY_AUTHORIZATION);
        }
        let whole = over.proxy.as_deref().filter(|_| url.origin().scheme == Scheme::Http)?;
        whole.authorize(fields);
        Some(whole)
    }
}

impl Pool {
    /// As [`Pool::connect`], by way of a proxy: it carries TCP, so that there is neither QUIC nor
    /// SCTP.
    pub(super) async fn connect_by(
        &self,
        proxy: &Arc<Proxy>,
        origin: &Origin,
        only_http11: bool,
        tried: &mut Tried,
    ) -> Result<Made, Stop> {
        let begun = Instant::now();
        let secured = origin.scheme == Scheme::Https;
        let security = self.security_by(proxy, origin, only_http11)?;
        self.permitted(origin, &security)?;
        let to = Origin { scheme: Scheme::Http, host: proxy.host.clone(), port: proxy.port };
        let preconnection = self.preconnection(&to, origin, SecurityParameters::disabled(), &[Stack::Tcp]);
        let connection = preconnection.connect_bytes().await.map_err(Error::from)?.into_connection();
        let mut transport = Transport {
            stack: if secured { Stack::Tls } else { Stack::Tcp },
            version: HttpVersion::Http11,
            remote: connection.remote_addr(),
            proxy: Some(proxy.clone()),
            security: None,
            establishment: begun.elapsed(),
            candidates: connection.candidates(),
            reused: false,
        };
        if !tried.note(&transport) {
            return Err(Stop::Exhausted);
        }
        let carrier = connection.carrier();
        let bytes = connection.into_bytes().map_err(|(_, e)| Error::Protocol(e.to_string()))?;
        let wire = if secured {
            let patience = self.config.connect_timeout.unwrap_or(self.config.silence);
            let bytes = tunnel::open(proxy, origin, bytes, patience).await?;
            let name = |e: neater::tls::SecurityError| Error::Needs(format!("{origin}: {e}"));
            // Now, as the engine has just had a turn.
            let config = self.config.neater.tls_client(&security).map_err(name)?;
            let server = security.name_for(origin.host.split('%').next().unwrap_or_default()).map_err(name)?;
            let secured = tunnel::secure(bytes, config, server, patience).await;
            secured.map_err(|why| tunnel::insecure(why, proxy, origin, &transport, begun.elapsed()))?
        } else {
            Wire::Plain(bytes)
        };
        if let Wire::Secured(tls) = &wire {
            let (_, session) = tls.get_ref();
            transport.security = session.protocol_version().map(tunnel::name_of);
            transport.establishment = begun.elapsed();
            if session.alpn_protocol() == Some(HttpVersion::Http2.alpn()) {
                transport.version = HttpVersion::Http2;
            }
        }
        tracing::debug!(target: "neater::http", "{origin}: {} through the proxy {proxy}", transport.version);
        let service = Service::of_proxy(transport.version, carrier);
        let line = Line { transport, service };
        match line.transport.version {
            HttpVersion::Http2 => start_h2(wire, line).await,
            _ => start_h1(wire, line).await,
        }
    }

    /// What is asked of the origin's security, and whether a proxy can carry what is asked for.
    fn security_by(&self, proxy: &Proxy, origin: &Origin, only_http11: bool) -> Result<SecurityParameters, Error> {
        let needs =
            |why: String| Error::Needs(format!("{origin}: {why}; --noproxy names hosts that are asked without it"));
        let (mut security, eligible) = self.demands(origin, only_http11)?;
        let stack = if origin.scheme == Scheme::Https { Stack::Tls } else { Stack::Tcp };
        if self.config.version == Some(HttpVersion::Http3) {
            return Err(needs(format!("HTTP/3 goes over UDP, and the proxy {proxy} carries TCP alone")));
        }
        security.alpn.retain(|name| name != HttpVersion::Http3.alpn());
        let wanted = &self.config.stacks;
        if !eligible.contains(&stack) || !wanted.is_empty() && !wanted.contains(&stack) {
            let names = wanted.iter().map(|s| s.as_str()).collect::<Vec<_>>().join(" or ");
            return Err(needs(format!("the proxy {proxy} carries {stack} alone, and {names} was asked for")));
        }
        Ok(security)
    }

    /// Whether policies let the origin be connected to: they see the proxy alone when that is.
    fn permitted(&self, origin: &Origin, security: &SecurityParameters) -> Result<(), Error> {
        let stack = if origin.scheme == Scheme::Https { Stack::Tls } else { Stack::Tcp };
        let request = self.preconnection(origin, origin, security.clone(), &[stack]).compile(Role::Initiate)?;
        let endpoint = neater::RemoteEndpoint::new().with_host_name(&origin.host).with_port(origin.port);
        let story = self.config.neater.explain_policies(&request, &endpoint);
        let Some(why) = story.as_ref().and_then(neater::PolicyStory::prohibited) else { return Ok(()) };
        Err(EstablishmentError {
            reason: Reason::PolicyProhibited,
            message: why,
            candidates: Vec::new(),
            excluded: Vec::new(),
            resolution: Vec::new(),
        }
        .into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(url: &str) -> Origin {
        Url::parse(url).unwrap_or_else(|e| panic!("{e}")).origin().clone()
    }

    /// As a program with these variables asks.
    fn by(variables: &[(&str, &str)], url: &str) -> Result<Option<String>, String> {
        let get = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        let proxy = Proxies::from_variables(get).of(&origin(url)).map_err(|e| e.to_string())?;
        Ok(proxy.map(|p| p.to_string()))
    }

    #[test]
    fn variables_have_the_precedence_that_they_have_in_curl() {
        let (http, https) = ("http://h.example/", "https://h.example/");
        let found = |variables: &[(&str, &str)], url| by(variables, url).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(found(&[], http), None);
        assert_eq!(found(&[("http_proxy", "p:1")], http).as_deref(), Some("http://p:1"));
        assert_eq!(found(&[("http_proxy", "p:1")], https), None);
        // A request's field must not choose a proxy.
        assert_eq!(found(&[("HTTP_PROXY", "p:1")], http), None);
        assert_eq!(found(&[("HTTPS_PROXY", "p:1")], https).as_deref(), Some("http://p:1"));
        assert_eq!(found(&[("HTTPS_PROXY", "p:1"), ("https_proxy", "q:1")], https).as_deref(), Some("http://q:1"));
        assert_eq!(found(&[("HTTPS_PROXY", "p:1"), ("https_proxy", "")], https).as_deref(), Some("http://p:1"));
        let all = [("ALL_PROXY", "a:1"), ("all_proxy", "b:1")];
        assert_eq!(found(&all, http).as_deref(), Some("http://b:1"));
        assert_eq!(found(&all[..1], https).as_deref(), Some("http://a:1"));
        let both = [("http_proxy", "p:1"), ("all_proxy", "a:1")];
        assert_eq!(found(&both, http).as_deref(), Some("http://p:1"));
        assert_eq!(found(&both, https).as_deref(), Some("http://a:1"));
        let except = |list| found(&[("all_proxy", "a:1"), ("NO_PROXY", "x"), ("no_proxy", list)], http);
        assert_eq!(except("h.example"), None);
        assert_eq!(except("other").as_deref(), Some("http://a:1"));
        assert_eq!(found(&[("all_proxy", "a:1"), ("NO_PROXY", "example")], http), None);
    }

    #[test]
    fn options_count_more_than_variables() {
        let get = |name: &str| match name {
            "all_proxy" => Some("a:1".to_owned()),
            "no_proxy" => Some("h.example".to_owned()),
            _ => None,
        };
        let (here, there) = (origin("http://h.example/"), origin("https://other.example/"));
        let shown = |p: &Proxies, o| p.of(o).unwrap_or_else(|e| panic!("{e}")).map(|p| p.to_string());
        let one = Proxies::from_variables(get).by("http://b:2").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((shown(&one, &here), shown(&one, &there).as_deref()), (None, Some("http://b:2")));
        assert_eq!(shown(&one.except(""), &here).as_deref(), Some("http://b:2"));
        let none = Proxies::from_variables(get).by("").unwrap_or_else(|e| panic!("{e}"));
        assert!(none.is_empty() && shown(&none, &there).is_none());
        assert!(shown(&Proxies::from_variables(get).except("*"), &there).is_none());
    }

    #[test]
    fn urls_of_proxies_are_read_as_curl_reads_them() {
        for (text, shown, authorization) in [
            ("p.example", "http://p.example:1080", None),
            ("P.Example:3128", "http://p.example:3128", None),
            ("HTTP://p:80/path?x#y", "http://p:80", None),
            ("[2001:db8::1]:3128", "http://[2001:db8::1]:3128", None),
            // Aladdin:open sesame (RFC 7617 section 2).
            ("http://Aladdin:open%20sesame@p:1", "http://p:1", Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")),
            ("Aladdin:open sesame@p:1", "http://p:1", Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")),
            ("http://me@p:1", "http://p:1", Some("Basic bWU6")),
            ("http://a%40b:c@d@p:1", "http://p:1", Some("Basic YUBiOmNAZA==")),
        ] {
            let proxy = Proxy::parse(text, "x").unwrap_or_else(|e| panic!("{e}"));
            assert_eq!((proxy.to_string().as_str(), proxy.authorization.as_deref()), (shown, authorization), "{text}");
        }
    }

    #[test]
    fn a_proxy_that_cannot_be_used_says_why_and_shows_no_password() {
        for (text, word) in [
            ("socks5h://me:secret@127.0.0.1:9050", "SOCKS"),
            ("https://me:secret@p:1", "https://"),
            ("ftp://me:secret@p:1", "scheme"),
            ("http://me:secret@p:99999", "port"),
            ("http://me:secret@p:0", "port"),
            ("http://me:sec/ret@p:1", "port"),
            ("http://me:secret@p q:1", "neither name nor address"),
            ("http://me:secret%zz@p:1", "escape"),
            ("http://", "neither name nor address"),
        ] {
            let e = by(&[("http_proxy", text)], "http://h/").expect_err(text);
            assert!(e.contains(word) && e.starts_with("http_proxy: ") && e.contains("http://[USER"), "{text}: {e}");
            assert!(!e.contains("sec") && !e.contains("me:"), "{text}: {e}");
            // Where none is wanted, it is not looked at.
            assert_eq!(by(&[("http_proxy", text), ("no_proxy", "h")], "http://h/"), Ok(None));
        }
    }

    #[test]
    fn a_proxy_is_shown_without_its_secrets() {
        let proxy = Proxy::parse("http://me:hush@p:1", "x").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((format!("{proxy:?}"), proxy.to_string()), ("http://p:1".into(), "http://p:1".into()));
        assert_eq!(proxy.without_secrets("Basic bWU6aHVzaA== of me:hush, hush"), "Basic ... of ..., ...");
        let all = Proxies::default().by("http://me:hush@p:1").unwrap_or_else(|e| panic!("{e}"));
        let named = all.authorize(&HeaderValue::from_static("Bearer token"));
        assert!(!format!("{named:?}").contains("token"));
        let proxy = named.of(&origin("http://h/")).unwrap_or_else(|e| panic!("{e}")).expect("one");
        assert_eq!(proxy.authorization().expect("a field"), "Bearer token");
        assert_eq!(proxy.without_secrets("a token"), "a ...");
    }
}
