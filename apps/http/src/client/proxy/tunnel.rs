//! A tunnel through a proxy, and TLS in it.
//!
//! *Responsible for* CONNECT (RFC 9110 section 9.3.6) over a byte stream, what an answer means that
//! opens none, and TLS to the origin over the stream that is then there. *Not responsible for*
//! which proxy that is.
//!
//! *Invariants*: TLS is that of every other connection: its configuration comes from the transport
//! system, and what fails of it is the same error. A proxy can make this side keep no more than
//! [`HEAD_MAX`] and [`BODY_MAX`], and wait no longer than it is given.

use super::Proxy;
use crate::client::response::Transport;
use crate::error::chain;
use crate::{Error, Origin};
use bytes::Bytes;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use http::header::{HOST, PROXY_AUTHENTICATE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use neater::tls::rustls::{self, ClientConfig, ProtocolVersion};
use neater::tls::{ServerName, TlsError};
use neater::{AttemptError, ByteStream, CandidateOutcome, ConnectionError, EstablishmentError, Fate, Reason, Stack};
use std::io::{self, IoSlice};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The head of an answer to CONNECT, in bytes.
const HEAD_MAX: usize = 64 << 10;
/// What is read of the content of an answer that opens no tunnel, in bytes, and how long at most.
const BODY_MAX: usize = 8 << 10;
const BODY_TIME: Duration = Duration::from_secs(2);
/// Characters of it that an error shows.
const BODY_SHOWN: usize = 300;
/// Names of authentication schemes that an error shows.
const SCHEMES_SHOWN: usize = 5;

/// Asks the proxy for a tunnel to the origin.
pub(super) async fn open(
    proxy: &Proxy,
    origin: &Origin,
    bytes: ByteStream,
    patience: Duration,
) -> Result<ByteStream, Error> {
    match timeout(patience, ask(proxy, origin, bytes)).await {
        Ok(opened) => opened,
        Err(_) => {
            let seconds = patience.as_secs_f64();
            Err(failed(proxy, None, &format!("opened no tunnel to {origin} within {seconds:.1} s")))
        }
    }
}

/// A failure of the proxy's; `what` goes on where its name ends.
fn failed(proxy: &Proxy, status: Option<StatusCode>, what: &str) -> Error {
    let why = proxy.without_secrets(&format!("the proxy {proxy} {what}"));
    Error::Proxy { status: status.map(|s| s.as_u16()), why }
}

async fn ask(proxy: &Proxy, origin: &Origin, bytes: ByteStream) -> Result<ByteStream, Error> {
    let broken = |e: &hyper::Error| {
        let why = chain(e);
        failed(
            proxy,
            None,
            &match e.is_parse() || e.is_parse_too_large() {
                true => format!("does not answer as a proxy for HTTP does: {why}"),
                false => format!("opened no tunnel to {origin}: {why}"),
            },
        )
    };
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_MAX).allow_obsolete_multiline_headers_in_responses(true);
    let begun = builder.handshake::<_, Empty<Bytes>>(TokioIo::new(bytes)).await;
    let (mut sender, connection) = begun.map_err(|e| broken(&e))?;
    // It ends with this future, whatever becomes of it.
    let mut driver = JoinSet::new();
    driver.spawn(async move { drop(connection.with_upgrades().await) });
    let response = sender.send_request(request(proxy, origin)?).await.map_err(|e| broken(&e))?;
    let status = response.status();
    if !status.is_success() {
        return Err(refusal(proxy, origin, response).await);
    }
    let upgraded = hyper::upgrade::on(response).await.map_err(|e| broken(&e))?;
    let parts = upgraded.downcast::<TokioIo<ByteStream>>().map_err(|_| failed(proxy, None, "opened no tunnel"))?;
    // In TLS the client speaks first: what is there already is not the server's.
    if !parts.read_buf.is_empty() {
        return Err(failed(proxy, Some(status), "sent something behind its answer before the server was asked"));
    }
    Ok(parts.io.into_inner())
}

/// The request for a tunnel.
fn request(proxy: &Proxy, origin: &Origin) -> Result<Request<Empty<Bytes>>, Error> {
    let host = origin.host.split('%').next().unwrap_or_default();
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    // Always with its port (RFC 9110 section 9.3.6).
    let authority = format!("{host}:{}", origin.port);
    let bad = || Error::Url(format!("{origin} cannot be asked for by way of a proxy"));
    let mut request = Request::new(Empty::new());
    *request.method_mut() = Method::CONNECT;
    *request.uri_mut() = Uri::builder().authority(authority.as_str()).build().map_err(|_| bad())?;
    let fields = request.headers_mut();
    fields.insert(HOST, HeaderValue::from_str(&authority).map_err(|_| bad())?);
    fields.insert(USER_AGENT, HeaderValue::from_static(concat!("neater/", env!("CARGO_PKG_VERSION"))));
    proxy.authorize(fields);
    Ok(request)
}

/// What an answer means that opens no tunnel. Its content is often more precise than its status.
async fn refusal(proxy: &Proxy, origin: &Origin, response: Response<Incoming>) -> Error {
    let status = response.status();
    let mut what = match status {
        StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
            wants_authentication(proxy.authorization.is_some(), response.headers())
        }
        status => {
            let reason = status.canonical_reason().map_or_else(String::new, |r| format!(" {r}"));
            format!("opened no tunnel to {origin}: it answered {}{reason}", status.as_u16())
        }
    };
    let text = content(proxy, response.into_body()).await;
    if !text.is_empty() {
        what.push_str(&format!(", and with it: {text}"));
    }
    failed(proxy, Some(status), &what)
}

/// What a proxy is missing that answers 407 (RFC 9110 section 15.5.8).
fn wants_authentication(shown: bool, headers: &HeaderMap) -> String {
    let of = |value: &HeaderValue| -> Option<String> {
        let scheme = value.to_str().ok()?.split([' ', ',']).next()?;
        let known =
            !scheme.is_empty() && scheme.len() <= 20 && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        known.then(|| scheme.to_owned())
    };
    let schemes: Vec<String> = headers.get_all(PROXY_AUTHENTICATE).iter().filter_map(of).take(SCHEMES_SHOWN).collect();
    let basic = schemes.is_empty() || schemes.iter().any(|s| s.eq_ignore_ascii_case("basic"));
    let mut what = match shown {
        true => "does not take the name and the password that it was given (407)".to_owned(),
        false => "wants a name and a password (407): http://USER:PASSWORD@HOST:PORT has them".to_owned(),
    };
    if !basic {
        what.push_str(&format!("; it offers {}, and neater knows Basic", schemes.join(" and ")));
    }
    what
}

/// The beginning of the content, as one line of text; empty where there is none, or it does not
/// come soon.
async fn content(proxy: &Proxy, mut body: Incoming) -> String {
    let mut bytes = Vec::new();
    let read = async {
        while let Some(Ok(frame)) = body.frame().await {
            let data = frame.into_data().unwrap_or_default();
            bytes.extend_from_slice(&data[..data.len().min(BODY_MAX - bytes.len())]);
            if bytes.len() == BODY_MAX {
                return;
            }
        }
    };
    let _ = timeout(BODY_TIME, read).await;
    // Before it is cut, which could leave half of a password.
    in_one_line(&proxy.without_secrets(&String::from_utf8_lossy(&bytes)))
}

/// The words of a text, also of one in HTML: without tags, and what is between those of parts that
/// are not shown.
fn in_one_line(text: &str) -> String {
    let mut words = String::new();
    let mut rest = text;
    while let Some((before, tag)) = rest.split_once('<') {
        words.push_str(before);
        words.push(' ');
        let name: String = tag.chars().take_while(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
        let end = match name.as_str() {
            "head" | "style" | "script" => format!("</{name}"),
            _ if tag.starts_with("!--") => "-->".into(),
            _ => String::new(),
        };
        // ASCII alone is made lower case, so that places stay what they are.
        let from = match end.as_str() {
            "" => 0,
            end => tag.to_ascii_lowercase().find(end).unwrap_or(tag.len()),
        };
        rest = tag.get(from..).and_then(|t| t.split_once('>')).map_or("", |(_, after)| after);
    }
    words.push_str(rest);
    let words = words.split(|c: char| c.is_whitespace() || c.is_control()).filter(|w| !w.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(BODY_SHOWN) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

/// TLS to the origin, over what a tunnel carries.
pub(super) async fn secure(
    bytes: ByteStream,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    patience: Duration,
) -> Result<Wire, AttemptError> {
    let connecting = TlsConnector::from(config).connect(name, bytes);
    match timeout(patience, connecting).await {
        Err(_) => Err(AttemptError::TimedOut),
        Ok(Ok(tls)) => Ok(Wire::Secured(Box::new(tls))),
        Ok(Err(e)) => Err(match tls_error(&e) {
            Some(e) => AttemptError::Tls(e),
            None if e.kind() == io::ErrorKind::UnexpectedEof => AttemptError::Tls(TlsError::ClosedDuringHandshake),
            None => AttemptError::ClosedByPeer,
        }),
    }
}

/// The error that a handshake in a tunnel is: the same as without one, so that it is judged by the
/// same rules.
pub(super) fn insecure(
    why: AttemptError,
    proxy: &Proxy,
    origin: &Origin,
    transport: &Transport,
    took: Duration,
) -> Error {
    let outcome = transport.remote.map(|addr| CandidateOutcome {
        stack: Stack::Tls,
        addr,
        encapsulation_port: None,
        started: Some(Duration::ZERO),
        reachable: Some(transport.establishment),
        ended: Some(took),
        doubt: None,
        fate: Fate::Failed(why),
    });
    let error = EstablishmentError {
        reason: Reason::EstablishmentFailed,
        message: format!("no TLS with {origin} in the tunnel through the proxy {proxy}"),
        candidates: outcome.into_iter().collect(),
        excluded: Vec::new(),
        resolution: Vec::new(),
    };
    error.into()
}

/// The name of a version, as connections without a proxy have it.
pub(super) fn name_of(version: ProtocolVersion) -> String {
    match version {
        ProtocolVersion::TLSv1_3 => "TLS 1.3".into(),
        ProtocolVersion::TLSv1_2 => "TLS 1.2".into(),
        other => format!("{other:?}"),
    }
}

/// What a failure is in TLS's words, if it is one of TLS.
fn tls_error(e: &io::Error) -> Option<TlsError> {
    e.get_ref()?.downcast_ref::<rustls::Error>().map(TlsError::from)
}

/// The bytes of a connection of HTTP.
pub(in crate::client) enum Wire {
    /// As neater carries them, secured or not.
    Plain(ByteStream),
    /// Secured in a tunnel.
    Secured(Box<TlsStream<ByteStream>>),
}

/// An error of TLS in a tunnel as one without it would be.
fn as_without<T>(done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
    done.map_err(|e| match tls_error(&e) {
        Some(why) => io::Error::new(e.kind(), ConnectionError::Tls(why)),
        None => e,
    })
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(bytes) => Pin::new(bytes).poll_read(cx, buf),
            Self::Secured(tls) => as_without(Pin::new(tls).poll_read(cx, buf)),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(bytes) => Pin::new(bytes).poll_write(cx, buf),
            Self::Secured(tls) => as_without(Pin::new(tls).poll_write(cx, buf)),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(bytes) => Pin::new(bytes).poll_write_vectored(cx, bufs),
            Self::Secured(tls) => as_without(Pin::new(tls).poll_write_vectored(cx, bufs)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(bytes) => bytes.is_write_vectored(),
            Self::Secured(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(bytes) => Pin::new(bytes).poll_flush(cx),
            Self::Secured(tls) => as_without(Pin::new(tls).poll_flush(cx)),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(bytes) => Pin::new(bytes).poll_shutdown(cx),
            Self::Secured(tls) => as_without(Pin::new(tls).poll_shutdown(cx)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_shown_in_one_line() {
        assert_eq!(in_one_line("no\r\n\tsuch  host\x1b[31m\n"), "no such host [31m");
        let page =
            "<!DOCTYPE html><HTML><Head><title>t</title><style>b{}</style></HEAD><!-- <b> --><body><p>Not <b>there</b>";
        assert_eq!(in_one_line(page), "Not there");
        for cut in ["<head>never closed", "<a href=\"", "<", "<!--"] {
            assert_eq!(in_one_line(cut), "");
        }
        assert_eq!(in_one_line("\u{fc}<\u{fc}>\u{fc}"), "\u{fc} \u{fc}");
        assert_eq!(in_one_line(&"\u{fc}".repeat(9000)).chars().count(), BODY_SHOWN + 3);
    }

    #[test]
    fn what_a_proxy_wants_of_its_clients_is_said() {
        let of = |shown, fields: &[&'static str]| {
            let fields = fields.iter().map(|f| (PROXY_AUTHENTICATE, HeaderValue::from_static(f)));
            wants_authentication(shown, &fields.collect())
        };
        assert!(of(false, &["Basic realm=\"x\""]).ends_with("has them"));
        assert!(of(false, &["Negotiate", "NTLM"]).ends_with("it offers Negotiate and NTLM, and neater knows Basic"));
        assert!(of(true, &["Negotiate", "basic realm=x"]).ends_with("given (407)"));
        assert!(of(true, &["<b>", ""]).ends_with("given (407)"));
    }
}
