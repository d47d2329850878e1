//! A connector for `hyper_util::client::legacy::Client`: HTTP/1.1 and HTTP/2 over whatever neater
//! finds.
//!
//! *Responsible for* turning a URI into a byte stream: `https` over TLS with `h2` and `http/1.1`
//! offered, `http` over TCP in the clear. *Not responsible for* HTTP, pooling or redirections,
//! which are hyper's, nor for HTTP/3, which hyper does not speak.
//!
//! *Invariants*: `https` is never answered by anything unauthenticated; a connector shares its
//! transport system's caches with everything else that uses it.

use crate::{
    ByteStream, EstablishmentError, Neater, Preconnection, Protection, Reason, RemoteEndpoint, SecurityParameters,
    Stack, TransportProperties,
};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use std::io::{self, IoSlice};
use std::net::SocketAddr;

/// Connects hyper's client through neater. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Connector {
    neater: Neater,
    properties: TransportProperties,
    security: SecurityParameters,
}

impl Connector {
    /// A connector with the defaults: any byte stream that is reliable and in order, and the
    /// system's roots of trust.
    #[must_use]
    pub fn new(neater: &Neater) -> Self {
        Self { neater: neater.clone(), properties: TransportProperties::new(), security: SecurityParameters::new() }
    }

    /// What is asked of the transport.
    #[must_use]
    pub fn properties(mut self, properties: TransportProperties) -> Self {
        self.properties = properties;
        self
    }

    /// What is asked of security for `https`. Its ALPN is overwritten.
    #[must_use]
    pub fn security(mut self, security: SecurityParameters) -> Self {
        self.security = security;
        self
    }

    fn preconnection(&self, uri: &Uri) -> Result<Preconnection, EstablishmentError> {
        let https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(invalid(format!("{uri}: only http and https are connected to"))),
        };
        let host = uri.host().ok_or_else(|| invalid(format!("{uri}: the host is missing")))?;
        let port = uri.port_u16().unwrap_or(if https { 443 } else { 80 });
        let security = if https {
            if self.security.protection != Protection::Required {
                return Err(invalid(format!("{uri}: https is always encrypted and authenticated")));
            }
            let mut security = self.security.clone();
            security.alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
            security
        } else {
            SecurityParameters::disabled()
        };
        Ok(self
            .neater
            .preconnection()
            .remote(RemoteEndpoint::new().with_host_name(host).with_port(port))
            .properties(self.properties.clone())
            .security(security)
            .stacks(if https { &[Stack::Tls] } else { &[Stack::Tcp] }))
    }
}

fn invalid(message: String) -> EstablishmentError {
    EstablishmentError {
        reason: Reason::InvalidConfiguration,
        message,
        candidates: Vec::new(),
        excluded: Vec::new(),
        resolution: Vec::new(),
    }
}

impl tower_service::Service<Uri> for Connector {
    type Response = HttpStream;
    type Error = EstablishmentError;
    type Future = Pin<Box<dyn Future<Output = Result<HttpStream, EstablishmentError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), EstablishmentError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let preconnection = self.preconnection(&uri);
        Box::pin(async move {
            let stream = preconnection?.connect_bytes().await?;
            let h2 = stream.connection().alpn().as_deref() == Some(b"h2");
            let remote = stream.connection().remote_addr();
            Ok(HttpStream { io: TokioIo::new(stream), h2, remote })
        })
    }
}

/// A connection for hyper. Its [`Connected`] shows whether HTTP/2 was negotiated and carries a
/// [`Remote`].
#[derive(Debug)]
pub struct HttpStream {
    io: TokioIo<ByteStream>,
    h2: bool,
    remote: Option<SocketAddr>,
}

/// The server's address, among the extensions of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote(pub SocketAddr);

impl HttpStream {
    /// The connection behind it.
    #[must_use]
    pub fn connection(&self) -> &crate::Connection {
        self.io.inner().connection()
    }
}

impl Connection for HttpStream {
    fn connected(&self) -> Connected {
        let connected = Connected::new();
        let connected = if self.h2 { connected.negotiated_h2() } else { connected };
        match self.remote {
            Some(a) => connected.extra(Remote(a)),
            None => connected,
        }
    }
}

impl Read for HttpStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl Write for HttpStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Listener, LocalEndpoint, Trust};
    use hyper::body::{Body, Incoming};
    use hyper::{Request, Response, Version};
    use hyper_util::client::legacy::Client;
    use hyper_util::rt::TokioExecutor;
    use std::convert::Infallible;

    /// Answers with the path, on whichever version the client has chosen.
    async fn serve(listener: Listener) {
        let answer =
            |r: Request<Incoming>| async move { Ok::<_, Infallible>(Response::new(r.uri().path().to_owned())) };
        while let Some(c) = listener.accept().await {
            let h2 = c.alpn().as_deref() == Some(b"h2");
            let io = TokioIo::new(c.into_bytes().expect("bytes"));
            tokio::spawn(async move {
                let service = hyper::service::service_fn(answer);
                if h2 {
                    let h2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    drop(h2.serve_connection(io, service).await);
                } else {
                    drop(hyper::server::conn::http1::Builder::new().serve_connection(io, service).await);
                }
            });
        }
    }

    async fn text(mut body: Incoming) -> String {
        let mut all = Vec::new();
        while let Some(frame) = core::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            all.extend_from_slice(&frame.expect("a frame").into_data().expect("data"));
        }
        String::from_utf8(all).expect("text")
    }

    fn listening(neater: &Neater, security: SecurityParameters, stack: Stack) -> u16 {
        let local = LocalEndpoint::from(SocketAddr::from(([127, 0, 0, 1], 0)));
        let listener = neater.preconnection().local(local).security(security).stacks(&[stack]).listen();
        let listener = listener.expect("listening");
        let port = listener.port();
        tokio::spawn(serve(listener));
        port
    }

    #[tokio::test]
    async fn hyper_speaks_the_version_that_was_agreed_on() {
        let neater = Neater::new().expect("engine");
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let identity = neater_tls::self_signed(&["127.0.0.1"], neater_base::WallTime(wall), [9; 32]);
        let mut client = SecurityParameters::new();
        client.trust = Trust::Only(vec![identity.chain[0].clone()]);
        let server = |alpn: &[&[u8]]| {
            let mut security = SecurityParameters::new();
            security.server_certificates = vec![identity.clone()];
            security.alpn = alpn.iter().map(|a| a.to_vec()).collect();
            security
        };
        let both = listening(&neater, server(&[b"h2", b"http/1.1"]), Stack::Tls);
        let old = listening(&neater, server(&[b"http/1.1"]), Stack::Tls);
        let clear = listening(&neater, SecurityParameters::disabled(), Stack::Tcp);
        let connector = Connector::new(&neater).security(client);
        let hyper: Client<_, String> = Client::builder(TokioExecutor::new()).build(connector);
        for (scheme, port, version) in
            [("https", both, Version::HTTP_2), ("https", old, Version::HTTP_11), ("http", clear, Version::HTTP_11)]
        {
            for path in ["/one", "/two"] {
                let uri = format!("{scheme}://127.0.0.1:{port}{path}").parse().expect("a URI");
                let response = hyper.get(uri).await.unwrap_or_else(|e| panic!("{scheme} {version:?}: {e:?}"));
                assert_eq!(response.version(), version);
                let remote = response.extensions().get::<Remote>().map(|r| r.0.port());
                assert_eq!(remote, Some(port));
                assert_eq!(text(response.into_body()).await, path);
            }
        }
    }

    #[tokio::test]
    async fn what_cannot_be_connected_to_says_why() {
        let neater = Neater::new().expect("engine");
        let refused = |c: &Connector, uri: &str| {
            c.preconnection(&uri.parse().expect("a URI")).err().map(|e| e.message).unwrap_or_default()
        };
        let connector = Connector::new(&neater);
        assert!(refused(&connector, "ftp://h/").contains("only http and https"));
        assert!(refused(&connector, "/path").contains("only http and https"));
        let weak = connector.security(SecurityParameters::opportunistic());
        assert!(refused(&weak, "https://h/").contains("always encrypted"));
        assert_eq!(refused(&weak, "http://h/"), "");
    }
}
