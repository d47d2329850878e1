//! hyper's server over neater: HTTP/1.1 and HTTP/2 on byte streams.
//!
//! Shows `Connection::into_bytes` and `Preconnection::connect_bytes`, which give hyper what it reads and writes, and how the
//! protocol that was agreed on in the handshake (ALPN) chooses the version. A server of files, and HTTP/3, are in the crate
//! `neater-http`.
//!
//! ```text
//! cargo run -p neater-examples --bin hyper_server           # both sides, by itself
//! cargo run -p neater-examples --bin hyper_server -- 8443   # serves; try curl -k https://localhost:8443/
//! ```
//!
//! By itself it prints the answers of both versions: `HTTP/1.1 200 OK: HELLO, HYPER` and the same of HTTP/2.0.
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version, client};
use hyper_util::rt::{TokioExecutor, TokioIo};
use neater::{Connection, Listener, LocalEndpoint, Neater, Preconnection, Stack};
use std::net::{Ipv4Addr, SocketAddr};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let mut security = neater::self_signed(&["localhost", "127.0.0.1", "::1"])?;
    security.alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // These versions of HTTP are spoken over TLS and TCP only.
    let pre = Neater::new()?.preconnection().stacks(&[Stack::Tls]);
    let server = pre.clone().security(security.clone());
    if let Some(port) = std::env::args().nth(1) {
        serve(server.local(LocalEndpoint::new().with_port(port.parse()?)).listen()?).await;
        return Ok(());
    }
    let listener = server.local(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).listen()?;
    let pre = pre.remote(SocketAddr::from((Ipv4Addr::LOCALHOST, listener.port())));
    tokio::spawn(serve(listener));
    for (alpn, version) in [("http/1.1", Version::HTTP_11), ("h2", Version::HTTP_2)] {
        security.alpn = vec![alpn.into()];
        let request =
            Request::post("https://127.0.0.1/upper").header("host", "127.0.0.1").body("hello, hyper".into())?;
        let response = ask(&pre.clone().security(security.clone()), request).await?;
        println!("{:?} {}: {}", response.version(), response.status(), String::from_utf8_lossy(response.body()));
        assert_eq!((response.version(), response.status()), (version, StatusCode::OK));
        assert_eq!(response.body(), "HELLO, HYPER");
    }
    Ok(())
}

/// A task for each connection.
async fn serve(listener: Listener) {
    while let Some(connection) = listener.accept().await {
        tokio::spawn(async move { attend(connection).await.inspect_err(|e| eprintln!("server: {e}")) });
    }
}

/// Speaks the version that was agreed on, until the client closes.
async fn attend(connection: Connection) -> Outcome {
    let h2 = connection.alpn().as_deref() == Some(b"h2");
    let io = TokioIo::new(connection.into_bytes().map_err(|(_, e)| e)?);
    if h2 {
        http2::Builder::new(TokioExecutor::new()).serve_connection(io, service_fn(answer)).await?;
    } else {
        http1::Builder::new().serve_connection(io, service_fn(answer)).await?;
    }
    Ok(())
}

/// The program's part: one request, one response.
async fn answer(request: Request<Incoming>) -> hyper::Result<Response<Full<Bytes>>> {
    let (status, body): (_, Full<Bytes>) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/") => (StatusCode::OK, "POST to /upper for capitals\n".into()),
        (&Method::POST, "/upper") => {
            let body = request.into_body().collect().await?.to_bytes();
            (StatusCode::OK, body.to_ascii_uppercase().into())
        }
        _ => (StatusCode::NOT_FOUND, Full::default()),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    Ok(response)
}

/// The client's side: opens a connection for one request. `hyper_client` shows one with a pool.
async fn ask(pre: &Preconnection, request: Request<Full<Bytes>>) -> Outcome<Response<Bytes>> {
    let stream = pre.connect_bytes().await?;
    let h2 = stream.connection().alpn().as_deref() == Some(b"h2");
    let io = TokioIo::new(stream);
    // The sender is needed until the body is there, too.
    if h2 {
        let (mut sender, connection) = client::conn::http2::handshake(TokioExecutor::new(), io).await?;
        tokio::spawn(connection);
        whole(sender.send_request(request).await?).await
    } else {
        let (mut sender, connection) = client::conn::http1::handshake(io).await?;
        tokio::spawn(connection);
        whole(sender.send_request(request).await?).await
    }
}

async fn whole(response: Response<Incoming>) -> Outcome<Response<Bytes>> {
    let (head, body) = response.into_parts();
    Ok(Response::from_parts(head, body.collect().await?.to_bytes()))
}
