//! URLs, as far as fetching needs them.

use crate::Error;
use core::fmt;
use http::Uri;
use http::uri::{Authority, PathAndQuery};

/// Characters of a text that an error shows.
const SHOWN: usize = 200;

/// How the answer travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// In the clear.
    Http,
    /// Encrypted and authenticated.
    Https,
}

impl Scheme {
    /// The port that is meant when none is named.
    #[must_use]
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    /// As it stands in a URL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// The server to ask: connections are shared within an origin (RFC 6454 section 4).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// How.
    pub scheme: Scheme,
    /// The name or address, in lower case, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Origin {
    /// What stands in Host and `:authority`.
    #[must_use]
    pub fn authority(&self) -> String {
        // RFC 6874 section 4: a zone means something on this host only, and is not sent to others.
        self.with_port(self.host.split('%').next().unwrap_or_default())
    }

    fn with_port(&self, host: &str) -> String {
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        if self.port == self.scheme.default_port() { host } else { format!("{host}:{}", self.port) }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.as_str(), self.with_port(&self.host))
    }
}

/// Whether this is the form of a scheme (RFC 3986 section 3.1): what stands before `://` may also
/// be a path with a URL in its query.
fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
}

/// A URL: an origin and what to ask it for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    origin: Origin,
    target: PathAndQuery,
}

/// The longest URL that is read, in bytes.
pub const URL_MAX: usize = 8 << 10;

impl Url {
    /// Reads a URL. Without a scheme, https is meant. A fragment is left out, as it never leaves
    /// the client.
    ///
    /// # Errors
    /// [`Error::Url`], with what to do.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let shown: String = text.chars().filter(|c| !c.is_control()).take(SHOWN).collect();
        let bad = |why: &str| Error::Url(format!("`{shown}` is not a URL that can be fetched: {why}"));
        if text.len() > URL_MAX {
            return Err(bad("it is longer than 8 kB"));
        }
        let text = text.trim().split('#').next().unwrap_or_default();
        if text.is_empty() {
            return Err(bad("it is empty"));
        }
        let (scheme, rest) = match text.split_once("://").filter(|(s, _)| is_scheme(s)) {
            Some((s, rest)) if s.eq_ignore_ascii_case("https") => (Scheme::Https, rest),
            Some((s, rest)) if s.eq_ignore_ascii_case("http") => (Scheme::Http, rest),
            Some((s, _)) => return Err(bad(&format!("the scheme is {s}; http and https are known"))),
            // A host may be called so, and have a port; what follows is no port here.
            None if ["http:/", "https:/"]
                .iter()
                .any(|s| text.get(..s.len()).is_some_and(|t| t.eq_ignore_ascii_case(s))) =>
            {
                return Err(bad("a slash is missing after its scheme"));
            }
            None => (Scheme::Https, text),
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err(bad("it names a user; credentials go into a header (neater get -H 'Authorization: ...')"));
        }
        if !authority.is_ascii() {
            return Err(bad("the host is not ASCII: use its xn-- form"));
        }
        if authority.starts_with('[') && !authority.contains(']') {
            return Err(bad("the bracket before its IPv6 address is not closed"));
        }
        let (host, port) = split_port(authority).ok_or_else(|| bad("the port must be a number from 1 to 65535"))?;
        let literal = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        let known = match literal {
            Some(v6) => v6.split('%').next().is_some_and(|a| a.parse::<std::net::Ipv6Addr>().is_ok()),
            None => {
                !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
            }
        };
        if !known {
            return Err(bad(if host.is_empty() {
                "the host is missing"
            } else {
                "the host is neither name nor address"
            }));
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let path = without_dots(&path);
        let target = escape(&path).parse().map_err(|_| bad("the path has characters that cannot stand there"))?;
        // RFC 6874 section 2: the percent sign before a zone is written as %25. Many write it as it
        // is.
        let (host, zone) = match literal.unwrap_or(host).split_once('%') {
            Some((addr, zone)) => (addr, Some(zone.strip_prefix("25").filter(|z| !z.is_empty()).unwrap_or(zone))),
            None => (literal.unwrap_or(host), None),
        };
        // RFC 5952 section 4: an address has one form.
        let address = literal.and_then(|_| host.parse::<std::net::Ipv6Addr>().ok());
        let host = address.map_or_else(|| host.to_ascii_lowercase(), |address| address.to_string())
            + &zone.map_or_else(String::new, |z| format!("%{z}"));
        Ok(Self { origin: Origin { scheme, host, port: port.unwrap_or(scheme.default_port()) }, target })
    }

    /// The server to ask.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Path and query.
    #[must_use]
    pub fn target(&self) -> &PathAndQuery {
        &self.target
    }

    /// What a Location header means here (RFC 9110 section 10.2.2).
    ///
    /// # Errors
    /// [`Error::Url`] if it means nothing.
    pub fn join(&self, location: &str) -> Result<Self, Error> {
        let location = location.trim();
        if location.split_once("://").is_some_and(|(s, _)| is_scheme(s)) {
            return Self::parse(location);
        }
        // Every other that begins with a scheme: none that can be fetched has no slashes (RFC 3986
        // section 4.2).
        if let Some((scheme, _)) = location.split_once(':').filter(|(s, _)| is_scheme(s)) {
            let shown = |text: &str| -> String { text.chars().take(SHOWN).collect() };
            let (location, scheme) = (shown(location), shown(scheme));
            return Err(Error::Url(format!("`{location}` is of the scheme {scheme}, or lacks its slashes")));
        }
        if let Some(rest) = location.strip_prefix("//") {
            return Self::parse(&format!("{}://{rest}", self.origin.scheme.as_str()));
        }
        let path = self.target.path();
        let folder = &path[..path.rfind('/').map_or(0, |i| i + 1)];
        let relative = match location.as_bytes().first() {
            Some(b'/') => location.to_owned(),
            Some(b'?') => format!("{path}{location}"),
            // The same resource (RFC 3986 section 5.2.2).
            Some(b'#') | None => self.target.as_str().to_owned(),
            _ => format!("{folder}{location}"),
        };
        Self::parse(&format!("{}{relative}", self.origin))
    }

    /// The last part of the path, without its escapes: the name to save it under. `None` when there
    /// is none that can be a file's name.
    #[must_use]
    pub fn file_name(&self) -> Option<String> {
        let last = self.target.path().rsplit('/').next().unwrap_or_default();
        let name = unescape(last)?;
        let fit = !name.is_empty()
            && name != "."
            && name != ".."
            && name.len() <= 255
            && !name.contains(|c: char| c == '/' || c.is_control());
        fit.then_some(name)
    }

    /// As hyper and h3 want it.
    pub(crate) fn uri(&self, absolute: bool, authority: Option<Authority>) -> Result<Uri, Error> {
        let mut parts = http::uri::Parts::default();
        parts.path_and_query = Some(self.target.clone());
        let bad = |_| Error::Url(format!("`{self}` cannot be asked for"));
        if absolute {
            parts.scheme = Some(match self.origin.scheme {
                Scheme::Http => http::uri::Scheme::HTTP,
                Scheme::Https => http::uri::Scheme::HTTPS,
            });
            let own =
                || self.origin.authority().parse().map_err(|_| Error::Url(format!("`{self}` cannot be asked for")));
            parts.authority = Some(authority.map_or_else(own, Ok)?);
        }
        Uri::from_parts(parts).map_err(bad)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin, self.target)
    }
}

/// Host and port of an authority; `None` if the port is none.
pub(crate) fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let after = authority.rfind(']').map_or(0, |i| i + 1);
    match authority[after..].rfind(':') {
        None => Some((authority, None)),
        Some(i) if authority[after + i + 1..].is_empty() => Some((&authority[..after + i], None)),
        Some(i) => {
            let port: u16 = authority[after + i + 1..].parse().ok()?;
            (port != 0).then_some((&authority[..after + i], Some(port)))
        }
    }
}

/// Works out the segments `.` and `..` of a path (RFC 3986 section 5.2.4), also where their dots
/// are escaped, which means the same (section 6.2.2.2). A query stays as it is.
fn without_dots(target: &str) -> String {
    let (path, query) = target.find('?').map_or((target, ""), |i| target.split_at(i));
    let dots = |segment: &str| match segment.to_ascii_lowercase().replace("%2e", ".").as_str() {
        "." => 1,
        ".." => 2,
        _ => 0,
    };
    if !path.split('/').any(|s| dots(s) > 0) {
        return target.to_owned();
    }
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match dots(segment) {
            0 => kept.push(segment),
            n => {
                if n == 2 {
                    kept.pop();
                }
                if last {
                    // It names a folder.
                    kept.push("");
                }
            }
        }
    }
    format!("/{}{query}", kept.join("/"))
}

/// Escapes what cannot travel in a request line; what is escaped already stays.
pub(crate) fn escape(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for b in path.bytes() {
        match b {
            b'!' | b'#'..=b';' | b'=' | b'?'..=b'[' | b']' | b'_' | b'a'..=b'z' | b'~' => out.push(char::from(b)),
            _ => out.push_str(&format!("%{b:02X}")),
        }
    }
    out
}

/// Undoes escapes; `None` if the result is not UTF-8 or an escape is broken.
pub(crate) fn unescape(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        if b == b'%' {
            let digit = |b: Option<u8>| b.and_then(|b| char::from(b).to_digit(16));
            let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
            out.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            out.push(b);
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn a_url_without_scheme_is_https() {
        let u = url("Example.com:8443/a b?q=1#frag");
        assert_eq!(u.to_string(), "https://example.com:8443/a%20b?q=1");
        assert_eq!(url("http://[::1]").to_string(), "http://[::1]/");
        assert_eq!(url("https://h:443?x").to_string(), "https://h/?x");
    }

    #[test]
    fn what_cannot_be_fetched_says_why() {
        for (text, word) in [
            ("", "empty"),
            ("ftp://h/", "ftp"),
            ("https:///x", "host is missing"),
            ("https://h:0/", "port"),
            ("https://h:99999/", "port"),
            ("https://user:pw@h/", "credentials"),
            ("https://b\u{fc}cher.example/", "xn--"),
            ("https://[::g]/", "neither name nor address"),
            ("https://a b/", "neither name nor address"),
        ] {
            let e = Url::parse(text).expect_err(text).to_string();
            assert!(e.contains(word), "{text}: {e}");
        }
    }

    #[test]
    fn locations_are_read_against_the_url_they_came_from() {
        let base = url("https://h:1/a/b?q");
        for (location, whole) in [
            ("c", "https://h:1/a/c"),
            ("/c", "https://h:1/c"),
            ("?z", "https://h:1/a/b?z"),
            ("#z", "https://h:1/a/b?q"),
            ("", "https://h:1/a/b?q"),
            ("./c:d", "https://h:1/a/c:d"),
            ("//other/x", "https://other/x"),
            ("http://other/", "http://other/"),
        ] {
            assert_eq!(base.join(location).map(|u| u.to_string()).ok().as_deref(), Some(whole));
        }
    }

    #[test]
    fn dots_are_worked_out_before_anybody_is_asked() {
        for (text, target) in [
            ("h/sub/../x", "/x"),
            ("h/a/./b/../../c/", "/c/"),
            ("h/..", "/"),
            ("h/../../x", "/x"),
            ("h/a/b/.", "/a/b/"),
            ("h/a/%2E%2e/x?y=../z", "/x?y=../z"),
            ("h/a..b/...", "/a..b/..."),
            ("h//a//../b", "//a/b"),
        ] {
            assert_eq!(url(text).target().as_str(), target, "{text}");
        }
        let base = url("https://h/a/b/c");
        assert_eq!(base.join("../d").map(|u| u.to_string()).ok().as_deref(), Some("https://h/a/d"));
    }

    #[test]
    fn a_file_name_never_leaves_its_folder() {
        assert_eq!(url("h/a%20b.txt?x").file_name().as_deref(), Some("a b.txt"));
        for hostile in ["h/", "h/..", "h/%2e%2e", "h/a%2Fb", "h/%00", "h/%ff", "h/%zz"] {
            assert_eq!(url(hostile).file_name(), None, "{hostile}");
        }
    }

    #[test]
    fn another_authority_takes_the_place_of_the_own_one_where_there_is_one() {
        let url = Url::parse("https://h:444/a").unwrap_or_else(|e| panic!("{e}"));
        let other: Authority = "other:1".parse().unwrap_or_else(|e| panic!("{e}"));
        let uri = |absolute, a| url.uri(absolute, a).map(|u| u.to_string()).unwrap_or_default();
        assert_eq!(uri(true, None), "https://h:444/a");
        assert_eq!(uri(true, Some(other.clone())), "https://other:1/a");
        // Over HTTP/1.1 the Host field carries it.
        assert_eq!(uri(false, Some(other)), "/a");
    }

    #[test]
    fn a_url_in_a_query_is_no_scheme() {
        let at = url("https://h/a/b");
        assert_eq!(at.join("/login?next=https://x/y").unwrap().to_string(), "https://h/login?next=https://x/y");
        assert_eq!(at.join("?next=https://x/y").unwrap().to_string(), "https://h/a/b?next=https://x/y");
        assert_eq!(at.join("HTTP://x/y").unwrap().to_string(), "http://x/y");
        assert_eq!(url("h:8443/a?u=http://x/").to_string(), "https://h:8443/a?u=http://x/");
        assert!(Url::parse("ftp://h/").is_err() && at.join("ftp://h/").is_err());
        for nowhere in ["mailto:a@b", "http:c", "https:/c"] {
            assert!(at.join(nowhere).is_err(), "{nowhere}");
        }
        for slash in ["http:/localhost", "HTTPS:/localhost/a"] {
            assert!(Url::parse(slash).expect_err(slash).to_string().contains("a slash is missing"), "{slash}");
        }
        assert_eq!(url("http:8080/a").to_string(), "https://http:8080/a");
    }

    #[test]
    fn an_address_is_written_in_its_one_form() {
        for text in ["https://[0::1]/a", "https://[::0001]/a", "https://[0:0:0:0:0:0:0:1]/a"] {
            assert_eq!((url(text).to_string().as_str(), url(text).origin().host.as_str()), ("https://[::1]/a", "::1"));
        }
        assert_eq!(url("https://[2001:DB8:0:0::A]/").to_string(), "https://[2001:db8::a]/");
        assert_eq!(url("https://[FE80:0::1%25eth0]/").origin().host, "fe80::1%eth0");
    }

    #[test]
    fn a_zone_is_for_this_host_alone() {
        for text in ["https://[fe80::1%25lo]:8443/a", "https://[FE80::1%lo]:8443/a"] {
            let u = url(text);
            assert_eq!((u.origin().host.as_str(), u.origin().authority().as_str()), ("fe80::1%lo", "[fe80::1]:8443"));
            assert_eq!(u.join("b").unwrap().origin(), u.origin());
        }
    }
}
