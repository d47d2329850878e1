//! Which requests are for this server, by what they name.
//!
//! *Responsible for* the host that a request names, and whether it is served. *Not responsible for*
//! paths: those are [`super::Files`]'s.

use http::header::{HOST, TE};
use http::uri::{Authority, Scheme};
use http::{HeaderMap, Request, StatusCode, Version};
use std::sync::Arc;

/// Whether a host is served: its name or address in lower case, without port, brackets and a final
/// dot.
pub(super) type ServesHost = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// With what a request is refused before its path counts, if it is; `secured`: it came over a
/// secured connection.
pub(super) fn refused(request: &Request<()>, secured: bool, serves: Option<&ServesHost>) -> Option<StatusCode> {
    if !names_one_host(request) {
        return Some(StatusCode::BAD_REQUEST);
    }
    // RFC 9110 section 7.4: https is served over a secured connection alone.
    let unmet = !secured && request.uri().scheme() == Some(&Scheme::HTTPS);
    // A page of another origin can have its own name lead to this host, and would read what is
    // served here under that.
    let other = || serves.is_some_and(|serves| host(request).is_some_and(|host| !serves(&host)));
    (unmet || other()).then_some(StatusCode::MISDIRECTED_REQUEST)
}

/// RFC 9112 section 3.2: HTTP/1.1 has one Host field, no version has two, and it names a host or
/// nothing. Where a request has an authority beside it (HTTP/2 and HTTP/3), they are the same (RFC
/// 9114 section 4.3.1). Neither has user information (RFC 9110 section 4.2.4).
fn names_one_host(request: &Request<()>) -> bool {
    let authority = request.uri().authority().map(Authority::as_str);
    if authority.is_some_and(|authority| authority.contains('@')) {
        return false;
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    let Some(host) = hosts.next() else { return request.version() != Version::HTTP_11 };
    let named = host.as_bytes();
    let sound = named.is_empty() || !named.contains(&b'@') && Authority::try_from(named).is_ok();
    let same = match authority {
        Some(authority) if request.version() > Version::HTTP_11 => named.eq_ignore_ascii_case(authority.as_bytes()),
        _ => true,
    };
    sound && same && hosts.next().is_none()
}

/// The host that a request names: that of its target, or else that of its Host field (RFC 9112
/// section 3.2.2). HTTP/1.0 may name none.
fn host(request: &Request<()>) -> Option<String> {
    let field = || Authority::try_from(request.headers().get(HOST)?.as_bytes()).ok();
    let authority = request.uri().authority().cloned().or_else(field)?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    Some(host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase())
}

/// RFC 9114 section 4.2: such a request is malformed. h2 refuses it itself.
pub(super) fn has_fields_of_connections(fields: &HeaderMap) -> bool {
    let of_connections = ["connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade"];
    let trailers = |v: &http::HeaderValue| v.as_bytes().eq_ignore_ascii_case(b"trailers");
    of_connections.iter().any(|name| fields.contains_key(*name)) || !fields.get_all(TE).iter().all(trailers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(version: Version, uri: &str, host: Option<&str>) -> Request<()> {
        let request = Request::get(uri).version(version);
        let request = host.iter().fold(request, |request, host| request.header(HOST, *host));
        request.body(()).expect("a request")
    }

    #[test]
    fn a_host_field_beside_an_authority_is_the_same_host() {
        for (version, uri, host, sound) in [
            (Version::HTTP_2, "https://h.test:443/a", Some("h.test:443"), true),
            (Version::HTTP_2, "https://h.test/a", Some("H.test"), true),
            (Version::HTTP_2, "https://h.test/a", None, true),
            (Version::HTTP_2, "https://h.test/a", Some("other.test"), false),
            (Version::HTTP_3, "https://h.test/a", Some(""), false),
            (Version::HTTP_11, "/a", Some("h.test"), true),
            (Version::HTTP_11, "/a", None, false),
        ] {
            let request = asked(version, uri, host);
            assert_eq!(names_one_host(&request), sound, "{version:?} {uri} {host:?}");
        }
    }

    #[test]
    fn user_information_in_a_target_or_a_host_is_an_error() {
        for (version, uri, host) in [
            (Version::HTTP_11, "http://me@h.test/a", Some("h.test")),
            (Version::HTTP_11, "/a", Some("me@h.test")),
            (Version::HTTP_2, "https://me:secret@h.test/a", None),
            (Version::HTTP_3, "https://me@h.test/a", None),
        ] {
            assert_eq!(refused(&asked(version, uri, host), true, None), Some(StatusCode::BAD_REQUEST), "{uri}");
        }
    }

    #[test]
    fn a_request_for_another_host_is_misdirected() {
        let serves: ServesHost = Arc::new(|host: &str| ["localhost", "::1"].contains(&host));
        let of = |uri: &str, host| refused(&asked(Version::HTTP_11, uri, host), false, Some(&serves));
        for own in ["localhost", "LOCALHOST:8080", "localhost.", "[::1]", "[::1]:8080", ""] {
            assert_eq!(of("/a", Some(own)), None, "{own}");
        }
        for other in ["evil.test", "localhost.evil.test", "127.0.0.1:8080", "::2"] {
            assert!(of("/a", Some(other)).is_some(), "{other}");
        }
        assert_eq!(of("/a", Some("evil.test:8080")), Some(StatusCode::MISDIRECTED_REQUEST));
        // The target counts where it is absolute, regardless of the field.
        assert_eq!(of("http://evil.test/a", Some("localhost")), Some(StatusCode::MISDIRECTED_REQUEST));
        assert_eq!(of("http://localhost/a", Some("evil.test")), None);
        let two = asked(Version::HTTP_2, "https://evil.test/a", None);
        assert_eq!(refused(&two, true, Some(&serves)), Some(StatusCode::MISDIRECTED_REQUEST));
        // HTTP/1.0 may name none.
        assert_eq!(refused(&asked(Version::HTTP_10, "/a", None), false, Some(&serves)), None);
        // Where any host is served, one is not: https in the clear.
        assert_eq!(refused(&asked(Version::HTTP_11, "/a", Some("evil.test")), false, None), None);
        let clear = asked(Version::HTTP_11, "https://localhost/a", Some("localhost"));
        assert_eq!(refused(&clear, false, None), Some(StatusCode::MISDIRECTED_REQUEST));
        assert_eq!(refused(&clear, true, Some(&serves)), None);
    }
}
