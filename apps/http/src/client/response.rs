//! An answer: its head at once, its body as it comes.

use super::pool::{Kept, Line, Stream3, within};
use super::proxy::Proxy;
use super::service::{Coming, Service};
use crate::streams::Budget;
use crate::{Error, HttpVersion, Url};
use bytes::{Buf, Bytes};
use core::time::Duration;
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderName, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use neater::{CandidateOutcome, Stack};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// What carries an answer.
#[derive(Clone, Debug)]
pub struct Transport {
    /// The protocol stack that the race has chosen.
    pub stack: Stack,
    /// The version of HTTP on it.
    pub version: HttpVersion,
    /// The server's address, or that of the proxy.
    pub remote: Option<SocketAddr>,
    /// The proxy that it goes through, if it goes through one. The stack is then what the server is
    /// asked over: TLS in a tunnel, or TCP.
    pub proxy: Option<Arc<Proxy>>,
    /// The security protocol; `None` in the clear.
    pub security: Option<String>,
    /// How long establishment took.
    pub establishment: Duration,
    /// Every candidate of the race and what became of it.
    pub candidates: Vec<CandidateOutcome>,
    /// Whether the connection had carried an earlier request.
    pub reused: bool,
}

/// The rest of an answer.
pub(super) enum Body {
    Hyper {
        body: hyper::body::Incoming,
        kept: Option<Kept>,
    },
    H3 {
        stream: Box<Stream3>,
        budget: Option<Arc<Budget>>,
        _sender: h3::client::SendRequest<crate::streams::Session, Bytes>,
    },
    End,
}

/// Bytes in a row before others have their turn.
const IN_A_ROW: usize = 512 << 10;

/// An answer. Dropping it gives up what has not been read.
pub struct Response {
    url: Url,
    status: StatusCode,
    headers: HeaderMap,
    transport: Transport,
    body: Body,
    received: u64,
    /// Bytes that were passed on since others had their turn.
    in_a_row: usize,
    expected: Option<u64>,
    silence: Duration,
    /// What is to learn how the connection serves.
    service: Arc<Service>,
    /// There is a body, and it has not come to its end.
    coming: Option<Coming>,
    /// When a piece was last passed on, and for how long the program was busy with pieces.
    passed_at: Option<Instant>,
    program: Duration,
}

/// The paths of a transport, to be looked at while an answer comes.
#[derive(Clone)]
pub struct Paths(Arc<Service>);

impl Paths {
    /// What is known of each now; nothing when the connection is gone.
    #[must_use]
    pub fn now(&self) -> Vec<neater::PathInfo> {
        self.0.paths()
    }
}

impl core::fmt::Debug for Paths {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.now()).finish()
    }
}

/// How many bytes the fields of an answer announce.
///
/// # Errors
/// They contradict each other or mean nothing, or declare a coding of the body that was not asked
/// for.
pub(super) fn announced(headers: &HeaderMap, version: HttpVersion) -> Result<Option<u64>, Error> {
    let refuse = |what: &str| Err(Error::Protocol(what.into()));
    if version == HttpVersion::Http3 {
        // RFC 9114 section 4.2; h2 refuses them itself.
        let of_connections = [CONNECTION, PROXY_CONNECTION, KEEP_ALIVE, TRANSFER_ENCODING, UPGRADE];
        if let Some(name) = of_connections.iter().find(|name| headers.contains_key(*name)) {
            return refuse(&format!("the answer has the field {name}, which HTTP/3 does not have"));
        }
    }
    let mut codings = list(headers, &TRANSFER_ENCODING).peekable();
    if codings.peek().is_some() {
        // RFC 9112 section 7.4: nothing but chunked may come without being asked for, and once
        // (section 6.1). hyper has undone one.
        let chunked = codings.next().is_some_and(|c| c.eq_ignore_ascii_case("chunked")) && codings.next().is_none();
        // RFC 9112 section 6.3, item 3: it overrides Content-Length.
        return if chunked { Ok(None) } else { refuse("the answer has a transfer coding that was not asked for") };
    }
    let mut length = None;
    for text in list(headers, &CONTENT_LENGTH) {
        let number = text.parse().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()));
        match number {
            Some(number) if length.is_none_or(|l| l == number) => length = Some(number),
            _ => return refuse("the answer's Content-Length is no number, or several that are not the same"),
        }
    }
    Ok(length)
}

/// The members of a field that is a list (RFC 9110 section 5.6.1).
fn list<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    let values = headers.get_all(name).into_iter().map(|v| v.to_str().unwrap_or("?"));
    values.flat_map(|v| v.split(',')).map(str::trim).filter(|member| !member.is_empty())
}

const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

impl Response {
    pub(super) fn new(
        url: Url,
        head: bool,
        (parts, announced): (http::response::Parts, Option<u64>),
        line: Line,
        body: Body,
        silence: Duration,
    ) -> Self {
        // RFC 9110 section 6.4.1: no body, regardless of the length.
        let none = head || parts.status == StatusCode::NO_CONTENT || parts.status == StatusCode::NOT_MODIFIED;
        let expected = if none { Some(0) } else { announced };
        Self {
            url,
            status: parts.status,
            headers: parts.headers,
            transport: line.transport,
            body,
            received: 0,
            in_a_row: 0,
            expected,
            silence,
            coming: (expected != Some(0)).then(|| Coming::new(&line.service)),
            service: line.service,
            passed_at: None,
            program: Duration::ZERO,
        }
    }

    /// Where the answer came from, after redirections.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The header fields.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// What carries it.
    #[must_use]
    pub fn transport(&self) -> &Transport {
        &self.transport
    }

    /// The paths of the transport that carries it: several where an SCTP association has them.
    #[must_use]
    pub fn paths(&self) -> Paths {
        Paths(self.service.clone())
    }

    /// Bytes of the body, if the server has announced them.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.expected
    }

    /// The next piece of the body; `None` when it is complete.
    ///
    /// # Errors
    /// [`Error::Interrupted`], [`Error::Silent`], or [`Error::Length`] when as much came as was
    /// announced, or less, and the two do not agree: what was returned before is what came.
    ///
    /// A task for which there is always a next piece lets others have their turn all the same,
    /// after each half MiB.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        if self.in_a_row >= IN_A_ROW {
            self.in_a_row = 0;
            tokio::task::yield_now().await;
        }
        self.program += self.passed_at.map_or(Duration::ZERO, |at| at.elapsed());
        let piece = self.piece().await;
        self.passed_at = Some(Instant::now());
        self.in_a_row += piece.as_ref().ok().and_then(Option::as_ref).map_or(0, Bytes::len);
        if let Err(e) = &piece {
            self.service.after(e);
        }
        piece
    }

    async fn piece(&mut self) -> Result<Option<Bytes>, Error> {
        let (received, expected) = (self.received, self.expected);
        let piece = match &mut self.body {
            Body::End => return Ok(None),
            Body::Hyper { body, .. } => loop {
                match within(self.silence, body.frame()).await? {
                    // RFC 9113 section 8.1: complete is what has END_STREAM. hyper takes a stream
                    // that was reset with NO_ERROR for complete.
                    None if self.transport.version == HttpVersion::Http2 && !body.is_end_stream() => {
                        self.body = Body::End;
                        let cause = "the server has reset the stream before its end".into();
                        return Err(Error::Interrupted { received, expected, cause });
                    }
                    None => break None,
                    Some(Ok(frame)) => {
                        if let Ok(data) = frame.into_data() {
                            break Some(data);
                        }
                    }
                    Some(Err(e)) => {
                        self.body = Body::End;
                        return Err(self.service.failed(&e, received, expected));
                    }
                }
            },
            Body::H3 { stream, budget, .. } => {
                let e = match within(self.silence, stream.recv_data()).await? {
                    // What follows the last of the body is trailers or nothing: h3 judges that.
                    Ok(None) => within(self.silence, stream.recv_trailers()).await?.err(),
                    Ok(Some(mut data)) => {
                        if let Some(b) = budget {
                            b.renew();
                        }
                        let n = data.remaining();
                        return self.passed(Some(data.copy_to_bytes(n)));
                    }
                    Err(e) => Some(e),
                };
                if let Some(e) = e {
                    self.body = Body::End;
                    return Err(self.service.failed_h3(&e, received, expected));
                }
                None
            }
        };
        self.passed(piece)
    }

    /// A piece as it is passed on, and the end if there is none.
    fn passed(&mut self, piece: Option<Bytes>) -> Result<Option<Bytes>, Error> {
        let (received, expected) = (self.received, self.expected);
        match piece {
            Some(data) => {
                self.received += data.len() as u64;
                match expected {
                    Some(expected) if self.received > expected => {
                        self.body = Body::End;
                        Err(Error::Length { received: self.received, expected })
                    }
                    _ => Ok(Some(data)),
                }
            }
            None => {
                if let Body::Hyper { kept: Some(kept), .. } = core::mem::replace(&mut self.body, Body::End) {
                    kept.give_back();
                }
                match expected {
                    Some(expected) if received < expected => Err(Error::Length { received, expected }),
                    _ => {
                        if let Some(coming) = self.coming.take() {
                            coming.complete(received, self.program);
                        }
                        Ok(None)
                    }
                }
            }
        }
    }

    /// The whole body, if it has at most `max` bytes.
    ///
    /// # Errors
    /// As [`Response::chunk`], and [`Error::Protocol`] if there is more.
    pub async fn bytes(mut self, max: usize) -> Result<Vec<u8>, Error> {
        let mut all = Vec::new();
        while let Some(piece) = self.chunk().await? {
            if all.len() + piece.len() > max {
                return Err(Error::Protocol(format!("the answer has more than {max} bytes")));
            }
            all.extend_from_slice(&piece);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_announces_a_length_is_a_number_and_the_same_one() {
        let of = |version, fields: &[(&'static str, &'static str)]| {
            let all = fields.iter().map(|(n, v)| (HeaderName::from_static(n), http::HeaderValue::from_static(v)));
            announced(&all.collect::<HeaderMap>(), version).ok()
        };
        let (h1, h3) = (HttpVersion::Http11, HttpVersion::Http3);
        assert_eq!(of(h1, &[]), Some(None));
        assert_eq!(of(h1, &[("content-length", "5")]), Some(Some(5)));
        assert_eq!(of(h1, &[("content-length", "5, 5")]), Some(Some(5)));
        // RFC 9112 section 6.3, item 3.
        assert_eq!(of(h1, &[("content-length", "3"), ("transfer-encoding", "chunked")]), Some(None));
        for bad in ["5, 6", "+5", "abc", "-1", "99999999999999999999"] {
            for version in [h1, HttpVersion::Http2, h3] {
                assert_eq!(of(version, &[("content-length", bad)]), None, "{bad}");
            }
        }
        for coding in ["gzip", "gzip, chunked", "x-foo", "chunked, chunked", "chunked, identity", "identity"] {
            assert_eq!(of(h1, &[("transfer-encoding", coding)]), None, "{coding}");
        }
        for name in ["connection", "transfer-encoding", "upgrade", "keep-alive", "proxy-connection"] {
            assert_eq!(of(h3, &[(name, "x")]), None, "{name}");
        }
    }
}
