//! hyper's client over neater: HTTP/1.1 and HTTP/2, with hyper's pool of connections.
//!
//! Shows `neater::hyper::Connector`, which opens what hyper's client asks for: TLS for `https`, TCP for `http`. Which of the
//! two versions is spoken follows from the handshake (ALPN). For HTTP/3 there is the crate `neater-http`.
//!
//! ```text
//! cargo run -p neater-examples --bin hyper_client                            # with a server of its own
//! cargo run -p neater-examples --bin hyper_client -- https://example.com/    # trusts the authorities of this system
//! ```
//!
//! It prints a line for each response, with version, status, address of the server and length: `HTTP/2.0 200 OK from
//! 127.0.0.1:40123: 24 bytes`. By itself it also shows that three requests share one connection.
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response, Uri, Version};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use neater::hyper::{Connector, Remote};
use neater::{Listener, Neater, Stack};
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
type Http = Client<Connector, Full<Bytes>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let neater = Neater::new()?;
    if let Some(uri) = std::env::args().nth(1) {
        let http: Http = Client::builder(TokioExecutor::new()).build(Connector::new(&neater));
        get(&http, uri.parse()?).await?;
        return Ok(());
    }
    let mut security = neater::self_signed(&["localhost", "127.0.0.1", "::1"])?;
    let http: Http = Client::builder(TokioExecutor::new()).build(Connector::new(&neater).security(security.clone()));

    security.alpn = vec![b"h2".to_vec()];
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = neater.preconnection().local(local).security(security).stacks(&[Stack::Tls]).listen()?;
    let (port, accepted) = (listener.port(), Arc::new(AtomicUsize::new(0)));
    tokio::spawn(serve(listener, accepted.clone()));
    for path in ["/one", "/two", "/three"] {
        let response = get(&http, format!("https://127.0.0.1:{port}{path}").parse()?).await?;
        assert_eq!(response.version(), Version::HTTP_2);
        assert_eq!(*response.body(), format!("this is {path}"));
    }
    assert_eq!(accepted.load(Ordering::Relaxed), 1, "the requests share a connection");
    println!("3 requests over 1 connection");
    Ok(())
}

/// A request, and its response when all of it is there.
async fn get(http: &Http, uri: Uri) -> Outcome<Response<Bytes>> {
    let (head, body) = http.get(uri).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    let server = head.extensions.get::<Remote>().ok_or("the connector names the server")?.0;
    println!("{:?} {} from {server}: {} bytes", head.version, head.status, body.len());
    Ok(Response::from_parts(head, body))
}

/// The server of this example: `hyper_server` shows how to write one.
async fn serve(listener: Listener, accepted: Arc<AtomicUsize>) {
    while let Some(connection) = listener.accept().await {
        accepted.fetch_add(1, Ordering::Relaxed);
        let Ok(stream) = connection.into_bytes() else { continue };
        let answer = |request: Request<Incoming>| async move {
            Ok::<_, Infallible>(Response::new(format!("this is {}", request.uri().path())))
        };
        let http = http2::Builder::new(TokioExecutor::new());
        tokio::spawn(http.serve_connection(TokioIo::new(stream), service_fn(answer)));
    }
}
