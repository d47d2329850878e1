//! Our client against our server, over real sockets on loopback.

mod common;

use common::{World, noise};
use http::header::HOST;
use http::header::{HeaderValue, RANGE};
use http::{HeaderMap, StatusCode};
use neater::{Neater, Stack};
use neater_http::{Client, Error, HttpVersion, RequestOptions, ServerLimits, Url};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const VERSIONS: [HttpVersion; 3] = [HttpVersion::Http11, HttpVersion::Http2, HttpVersion::Http3];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_version_brings_the_same_bytes() {
    let world = World::new("versions", ServerLimits::default(), false);
    let (small, large) = (noise(1_000_000, 1), noise(20_000_000, 2));
    world.put("small", &small);
    world.put("large", &large);
    world.put("empty", b"");
    for version in VERSIONS {
        let client = world.client(Some(version));
        for (name, contents) in [("small", &small[..]), ("large", &large[..]), ("empty", &[][..])] {
            let response = client.get(&world.url(name), &RequestOptions::default()).await.expect("answered");
            assert_eq!((response.status(), response.transport().version), (StatusCode::OK, version));
            let wanted = if version == HttpVersion::Http3 { Stack::Quic } else { Stack::Tls };
            assert_eq!(response.transport().stack, wanted);
            assert_eq!(response.length(), Some(contents.len() as u64));
            assert_eq!(response.headers().contains_key("alt-svc"), version != HttpVersion::Http3);
            let got = response.bytes(32 << 20).await.expect("a body");
            assert!(got == contents, "{version}: {name} differs");
        }
    }
    let summary = world.end().await;
    assert_eq!((summary.requests, summary.bytes, summary.cut_off), (9, 63_000_000, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_at_once_share_a_connection_where_it_has_streams() {
    let world = World::new("shared", ServerLimits::default(), false);
    let contents: Vec<Vec<u8>> = (0..20).map(|i| noise(100_000 + i, i as u64)).collect();
    contents.iter().enumerate().for_each(|(i, c)| world.put(&i.to_string(), c));
    for version in VERSIONS {
        let client = world.client(Some(version));
        let fetch = |i: usize| {
            let (client, url) = (client.clone(), world.url(&i.to_string()));
            async move {
                let r = client.get(&url, &RequestOptions::default()).await.expect("answered");
                let reused = r.transport().reused;
                (reused, r.bytes(1 << 20).await.expect("a body"))
            }
        };
        let all = futures_util::future::join_all((0..20).map(fetch)).await;
        assert!(all.iter().zip(&contents).all(|((_, got), c)| got == c), "{version}");
        let opened = all.iter().filter(|(reused, _)| !reused).count();
        let most = if version == HttpVersion::Http11 { 6 } else { 1 };
        assert!((1..=most).contains(&opened), "{version}: {opened} connections");
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_race_decides_when_nobody_else_does() {
    let world = World::new("race", ServerLimits::default(), false);
    world.put("a", b"a");
    let response = world.client(None).get(&world.url("a"), &RequestOptions::default()).await.expect("answered");
    assert_eq!((response.transport().stack, response.transport().version), (Stack::Quic, HttpVersion::Http3));
    drop(response);
    // Over TLS the versions of TLS are offered, and not that of QUIC.
    let builder = Client::builder(world.neater.clone()).security(world.trust.clone());
    let client = builder.stacks(&[Stack::Tls]).build();
    let response = client.get(&world.url("a"), &RequestOptions::default()).await.expect("answered");
    assert_eq!((response.transport().stack, response.transport().version), (Stack::Tls, HttpVersion::Http2));
    drop(response);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranges_and_statuses_are_the_same_over_every_version() {
    let world = World::new("ranges", ServerLimits::default(), false);
    world.put("digits", b"0123456789");
    for version in VERSIONS {
        let client = world.client(Some(version));
        let headers: HeaderMap = [(RANGE, HeaderValue::from_static("bytes=3-5"))].into_iter().collect();
        let options = RequestOptions { headers, ..RequestOptions::default() };
        let response = client.get(&world.url("digits"), &options).await.expect("answered");
        assert_eq!(response.status(), StatusCode::PARTIAL_CONTENT);
        assert_eq!(response.bytes(100).await.expect("a body"), b"345");
        let response = client.get(&world.url("nothing"), &RequestOptions::default()).await.expect("answered");
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        let response = client.head(&world.url("digits"), &RequestOptions::default()).await.expect("answered");
        assert_eq!(response.headers()["content-length"], "10");
        assert!(response.bytes(100).await.expect("no body").is_empty());
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_lets_answers_that_have_begun_end() {
    let world = World::new("stop", ServerLimits::default(), false);
    let contents = noise(8_000_000, 3);
    world.put("big", &contents);
    for version in VERSIONS {
        let world = World::new(&format!("stop-{version}").replace('/', ""), ServerLimits::default(), false);
        world.put("big", &contents);
        let client = world.client(Some(version));
        let mut response = client.get(&world.url("big"), &RequestOptions::default()).await.expect("answered");
        let mut got = response.chunk().await.expect("alive").expect("a piece").to_vec();
        let ending = tokio::spawn(world.end());
        tokio::time::sleep(Duration::from_millis(50)).await;
        while let Some(piece) = response.chunk().await.unwrap_or_else(|e| panic!("{version}: {e}")) {
            got.extend_from_slice(&piece);
        }
        assert!(got == contents, "{version}");
        drop((response, client));
        assert_eq!(ending.await.expect("ended").cut_off, 0, "{version}");
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_connection_that_has_died_is_replaced_without_the_caller_noticing() {
    for version in VERSIONS {
        let limits = ServerLimits { idle: Duration::from_millis(200), ..ServerLimits::default() };
        let world = World::new(&format!("dead-{version}").replace('/', ""), limits, false);
        world.put("a", b"a");
        let client = world.client(Some(version));
        for _ in 0..2 {
            let r = client
                .get(&world.url("a"), &RequestOptions::default())
                .await
                .unwrap_or_else(|e| panic!("{version}: {e}"));
            assert_eq!(r.bytes(10).await.expect("a body"), b"a");
            tokio::time::sleep(Duration::from_millis(600)).await;
        }
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_sends_its_head_a_byte_at_a_time_is_cut_off() {
    let limits = ServerLimits { head_time: Duration::from_millis(300), ..ServerLimits::default() };
    let world = World::new("loris", limits, true);
    let mut slow = tokio::net::TcpStream::connect(("127.0.0.1", world.port)).await.expect("connected");
    let started = std::time::Instant::now();
    let mut rest = [0; 1024];
    for byte in b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: yes, very slow, and slower still, until the end of time\r\n" {
        if slow.write_all(&[*byte]).await.is_err() {
            break;
        }
        if let Ok(Ok(n)) = tokio::time::timeout(Duration::from_millis(50), slow.read(&mut rest)).await {
            let text = String::from_utf8_lossy(&rest[..n]).into_owned();
            assert!(n == 0 || text.contains("408"), "{text}");
            break;
        }
    }
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_is_too_large_is_refused() {
    let world = World::new("head", ServerLimits::default(), false);
    world.put("a", b"a");
    for version in VERSIONS {
        let client = world.client(Some(version));
        let value = HeaderValue::from_str(&"x".repeat(40_000)).expect("a value");
        let headers: HeaderMap = [(http::HeaderName::from_static("x-large"), value)].into_iter().collect();
        let answer = client.get(&world.url("a"), &RequestOptions { headers, ..RequestOptions::default() }).await;
        let refused = match &answer {
            Ok(r) => r.status() == StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Err(_) => true,
        };
        assert!(refused, "{version}: {:?}", answer.map(|r| r.status()));
        // The server is none the worse for it.
        let r = world.client(Some(version)).get(&world.url("a"), &RequestOptions::default()).await.expect("answered");
        assert_eq!(r.status(), StatusCode::OK);
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_beyond_the_limit_are_turned_away() {
    let limits = ServerLimits { connections: 2, ..ServerLimits::default() };
    let world = World::new("limit", limits, true);
    let mut kept = Vec::new();
    for _ in 0..2 {
        let mut c = tokio::net::TcpStream::connect(("127.0.0.1", world.port)).await.expect("connected");
        c.write_all(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("written");
        assert!(c.read(&mut [0; 1024]).await.expect("answered") > 0);
        kept.push(c);
    }
    // The reset may come before or after the connection is known to be made.
    if let Ok(mut third) = tokio::net::TcpStream::connect(("127.0.0.1", world.port)).await {
        let _ = third.write_all(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(matches!(third.read(&mut [0; 1024]).await, Ok(0) | Err(_)));
    }
    drop(kept);
    assert_eq!(world.end().await.refused, 1);
}

/// A server that sends this and closes.
async fn liar(answer: Vec<u8>) -> Url {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        while let Ok((mut c, _)) = listener.accept().await {
            let _ = c.read(&mut [0; 4096]).await;
            let _ = c.write_all(&answer).await;
        }
    });
    Url::parse(&format!("http://127.0.0.1:{port}/")).expect("a URL")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_ends_early_is_an_error_and_never_an_end() {
    let client = Client::builder(Neater::new().expect("engine")).silence(Duration::from_millis(500)).build();
    let url = liar(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc".to_vec()).await;
    let mut response = client.get(&url, &RequestOptions::default()).await.expect("a head");
    assert_eq!(response.chunk().await.expect("alive").as_deref(), Some(&b"abc"[..]));
    let e = response.chunk().await.expect_err("cut short");
    assert!(e.is_transient() && e.to_string().contains("3 of 10 bytes"), "{e}");
    let url = liar(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab".to_vec()).await;
    let mut response = client.get(&url, &RequestOptions::default()).await.expect("a head");
    let mut end = response.chunk().await;
    while let Ok(Some(_)) = end {
        end = response.chunk().await;
    }
    assert!(end.is_err());
    let url = liar(b"SSH-2.0-OpenSSH_9.9\r\n".to_vec()).await;
    let e = client.get(&url, &RequestOptions::default()).await.err().expect("not HTTP");
    assert!(matches!(e, Error::Protocol(_)), "{e:?}");
}

/// A listener with a certificate of its own, where it is, and what trusts it.
fn certified(alpn: &[&str], stacks: &[Stack]) -> (Neater, neater::Listener, Url, neater::SecurityParameters) {
    let neater = Neater::new().expect("engine");
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let identity = neater::tls::self_signed(&["127.0.0.1"], neater_base::WallTime(wall), [8; 32]);
    let mut trust = neater::SecurityParameters::new();
    trust.trust = neater::Trust::Only(vec![identity.chain[0].clone()]);
    let mut security = neater::SecurityParameters::new();
    security.server_certificates = vec![identity];
    security.alpn = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let local = neater::LocalEndpoint::from(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
    let listener = neater.preconnection().local(local).security(security).stacks(stacks).listen().expect("listening");
    let url = Url::parse(&format!("https://127.0.0.1:{}/", listener.port())).expect("a URL");
    (neater, listener, url, trust)
}

/// A server of HTTP/2 that sends `hel` and then resets the stream in order, or ends it first.
async fn resetter(ends: bool) -> (Url, neater::SecurityParameters) {
    let (neater, listener, url, trust) = certified(&["h2"], &[Stack::Tls]);
    tokio::spawn(async move {
        // The engine lives as long as its listener.
        let _neater = neater;
        while let Some(connection) = listener.accept().await {
            let bytes = connection.into_bytes().map_err(|_| "bytes").expect("bytes");
            tokio::spawn(async move {
                let Ok(mut h2) = h2::server::handshake(bytes).await else { return };
                while let Some(Ok((_, mut respond))) = h2.accept().await {
                    let mut body = respond.send_response(http::Response::new(()), false).expect("a head");
                    body.send_data("hel".into(), ends).expect("a piece");
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        body.send_reset(h2::Reason::NO_ERROR);
                    });
                }
            });
        }
    });
    (url, trust)
}

/// A server of HTTP/2 that refuses the first stream, or goes away, and answers later requests.
async fn busy(goes: bool) -> (Url, neater::SecurityParameters) {
    use tokio::io::AsyncWriteExt;
    let (neater, listener, url, trust) = certified(&["h2"], &[Stack::Tls]);
    tokio::spawn(async move {
        let _neater = neater;
        let left = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(2));
        let refuses = move |left: &std::sync::atomic::AtomicU32| {
            let less = |n: u32| n.checked_sub(1);
            left.fetch_update(std::sync::atomic::Ordering::SeqCst, std::sync::atomic::Ordering::SeqCst, less).is_ok()
        };
        while let Some(connection) = listener.accept().await {
            let mut bytes = connection.into_bytes().map_err(|_| "bytes").expect("bytes");
            let left = left.clone();
            tokio::spawn(async move {
                if goes && refuses(&left) {
                    // SETTINGS, and when the request is there, GOAWAY that names no stream, without
                    // an error.
                    bytes.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.expect("taken");
                    let mut came = vec![0; 4096];
                    let mut n = 0;
                    while n < 120 {
                        n += bytes.read(&mut came).await.expect("a request");
                    }
                    let goaway = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                    bytes.write_all(&goaway).await.expect("taken");
                    bytes.flush().await.expect("taken");
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    return;
                }
                let Ok(mut h2) = h2::server::handshake(bytes).await else { return };
                while let Some(Ok((request, mut respond))) = h2.accept().await {
                    if refuses(&left) {
                        respond.send_reset(h2::Reason::REFUSED_STREAM);
                        continue;
                    }
                    tokio::spawn(async move {
                        let mut content = request.into_body();
                        let mut body = respond.send_response(http::Response::new(()), false).expect("a head");
                        while let Some(Ok(piece)) = content.data().await {
                            body.send_data(piece, false).expect("a piece");
                        }
                        body.send_data(bytes::Bytes::new(), true).expect("the end");
                    });
                }
            });
        }
    });
    (url, trust)
}

/// RFC 9113 sections 6.8 and 8.7: an unprocessed request may be sent again, whatever it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_was_not_looked_at_is_sent_again() {
    for goes in [false, true] {
        let (url, trust) = busy(goes).await;
        let client = Client::builder(Neater::new().expect("engine")).security(trust).build();
        let (method, content) = (http::Method::POST, bytes::Bytes::from_static(b"once"));
        let answer = client.send(method, &url, content, &RequestOptions::default()).await.expect("answered");
        assert_eq!(answer.bytes(10).await.expect("a body"), b"once", "goes: {goes}");
    }
}

/// RFC 9113 section 8.1: a stream reset without an error is complete only behind its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_reset_before_its_end_is_not_whole() {
    for ends in [true, false] {
        let (url, trust) = resetter(ends).await;
        let client = Client::builder(Neater::new().expect("engine")).security(trust).build();
        let mut response = client.get(&url, &RequestOptions::default()).await.expect("a head");
        assert_eq!(response.chunk().await.expect("alive").as_deref(), Some(&b"hel"[..]));
        let end = response.chunk().await;
        assert_eq!(end.is_ok(), ends, "{end:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folded_lines_and_a_length_beside_a_coding_are_taken_as_the_rules_say() {
    let client = Client::builder(Neater::new().expect("engine")).build();
    let url = liar(b"HTTP/1.1 200 OK\r\nX-A: one\r\n two\r\nContent-Length: 2\r\n\r\nok".to_vec()).await;
    let answer = client.get(&url, &RequestOptions::default()).await.expect("taken");
    assert!(answer.headers().get("x-a").is_some());
    assert_eq!(answer.bytes(10).await.expect("a body"), b"ok");
    let both = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let answer = client.get(&liar(both.to_vec()).await, &RequestOptions::default()).await.expect("taken");
    assert_eq!(answer.bytes(10).await.expect("a body"), b"hello");
    let coded = liar(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nxyz".to_vec()).await;
    let e = client.get(&coded, &RequestOptions::default()).await.err().expect("a coding that was not asked for");
    assert!(matches!(e, Error::Protocol(_)), "{e:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_may_have_hundreds_of_fields() {
    let client = Client::builder(Neater::new().expect("engine")).build();
    let fields: String = (0..500).map(|i| format!("X-Field-{i}: {i}\r\n")).collect();
    let url = liar(format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n{fields}\r\nok").into_bytes()).await;
    let answer = client.get(&url, &RequestOptions::default()).await.expect("taken");
    assert_eq!(answer.headers().get("x-field-499").map(|v| v.as_bytes()), Some(&b"499"[..]));
    assert_eq!(answer.bytes(10).await.expect("a body"), b"ok");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirections_are_followed_but_neither_for_ever_nor_into_the_clear() {
    let client = Client::builder(Neater::new().expect("engine")).build();
    let circle = liar(b"HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n".to_vec()).await;
    let e = client.get(&circle, &RequestOptions::default()).await.err().expect("a circle");
    assert!(e.to_string().contains("more than 10"), "{e}");
    let end = liar(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok".to_vec()).await;
    let answer = format!("HTTP/1.1 301 Moved\r\nLocation: {end}x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let r = client.get(&liar(answer.into_bytes()).await, &RequestOptions::default()).await.expect("followed");
    assert_eq!(r.url().origin(), end.origin());
    assert_eq!(r.bytes(10).await.expect("a body"), b"ok");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_is_not_trusted_is_a_matter_of_security() {
    let world = World::new("trust", ServerLimits::default(), false);
    for version in VERSIONS {
        let client = Client::builder(world.neater.clone()).version(version).build();
        let e = client.get(&world.url("a"), &RequestOptions::default()).await.err().expect("not trusted");
        assert!(e.is_security(), "{version}: {e}");
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_host_that_is_asked_for_reaches_the_server_over_every_version() {
    use http_body_util::Full;
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use neater::{Accepted, LocalEndpoint, SecurityParameters};
    let world = World::new("host", ServerLimits::default(), false);
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let identity = neater::tls::self_signed(&["127.0.0.1"], neater_base::WallTime(wall), [6; 32]);
    let mut trust = SecurityParameters::new();
    trust.trust = neater::Trust::Only(vec![identity.chain[0].clone()]);
    let mut security = SecurityParameters::new();
    security.server_certificates = vec![identity];
    security.alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let local = LocalEndpoint::from(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
    let listener =
        world.neater.preconnection().local(local).security(security).stacks(&[Stack::Tls]).listen().expect("listening");
    let port = listener.port();
    tokio::spawn(async move {
        while let Some(Accepted::Connection(c)) = listener.accept_any().await {
            let h2 = c.alpn().is_some_and(|a| a == b"h2");
            let io = TokioIo::new(c.into_bytes().map_err(|_| "bytes").expect("bytes"));
            // Returns the requested host, by the target and by the field.
            let service = service_fn(|r: http::Request<hyper::body::Incoming>| async move {
                let authority = r.uri().authority().map_or("-", |a| a.as_str());
                let field = r.headers().get(HOST).and_then(|h| h.to_str().ok()).unwrap_or("-");
                let text = format!("{authority} {field}");
                Ok::<_, std::convert::Infallible>(http::Response::new(Full::new(bytes::Bytes::from(text))))
            });
            tokio::spawn(async move {
                if h2 {
                    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                        .serve_connection(io, service)
                        .await;
                } else {
                    let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
                }
            });
        }
    });
    let url = Url::parse(&format!("https://127.0.0.1:{port}/")).expect("a URL");
    for (version, wanted) in [(HttpVersion::Http11, "- virtual.test:81"), (HttpVersion::Http2, "virtual.test:81 -")] {
        let client = Client::builder(world.neater.clone()).security(trust.clone()).version(version).build();
        let ask = |value: &'static str| {
            let headers: HeaderMap = [(HOST, HeaderValue::from_static(value))].into_iter().collect();
            let (client, url) = (client.clone(), url.clone());
            async move { client.get(&url, &RequestOptions { headers, ..RequestOptions::default() }).await }
        };
        let answer = ask("virtual.test:81").await.expect("answered").bytes(100).await.expect("a body");
        assert_eq!(String::from_utf8_lossy(&answer), wanted);
        for bad in ["a b", "me@host", ""] {
            assert!(matches!(ask(bad).await, Err(Error::Url(_))), "{version}: {bad}");
        }
    }
    world.end().await;
}

/// How long both sides wait for HTTP/3 to come about.
const SETUP: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_gives_no_room_for_control_streams_is_not_waited_for() {
    let neater = Neater::new().expect("engine");
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let identity = neater::tls::self_signed(&["127.0.0.1"], neater_base::WallTime(wall), [5; 32]);
    let mut trust = neater::SecurityParameters::new();
    trust.trust = neater::Trust::Only(vec![identity.chain[0].clone()]);
    let mut security = neater::SecurityParameters::new();
    security.server_certificates = vec![identity];
    security.alpn = vec![b"h3".to_vec()];
    let mut properties = neater::TransportProperties::new();
    properties.set("groupConnLimit", 1u64).expect("a property");
    let local = neater::LocalEndpoint::from(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
    let listener = neater.preconnection().local(local).properties(properties).security(security).stacks(&[Stack::Quic]);
    let listener = listener.listen().expect("listening");
    listener.deliver_groups(true);
    let url = Url::parse(&format!("https://127.0.0.1:{}/a", listener.port())).expect("a URL");
    let client = Client::builder(neater.clone()).security(trust).version(HttpVersion::Http3).silence(SETUP).build();
    let options = RequestOptions::default();
    let asked = tokio::time::timeout(Duration::from_secs(10), client.get(&url, &options));
    let answer = asked.await.expect("not waited for").err();
    assert!(matches!(answer, Some(Error::Silent(SETUP))), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_gives_no_room_for_control_streams_loses_its_seat() {
    let limits = ServerLimits { head_time: SETUP, connections: 1, ..ServerLimits::default() };
    let world = World::new("no-room", limits, false);
    world.put("a", b"a");
    let mut properties = neater::TransportProperties::new();
    properties.set("groupConnLimit", 1u64).expect("a property");
    let mut security = world.trust.clone();
    security.alpn = vec![b"h3".to_vec()];
    let remote = neater::RemoteEndpoint::from(std::net::SocketAddr::from(([127, 0, 0, 1], world.port)));
    let selfish = world.neater.preconnection().remote(remote).properties(properties).security(security);
    let mut selfish = selfish.stacks(&[Stack::Quic]).connect_bytes().await.expect("connected");
    // It is notified that it has lost it, on a busy machine later than after `SETUP`.
    let mut byte = [0];
    let told = tokio::io::AsyncReadExt::read(&mut selfish, &mut byte);
    tokio::time::timeout(Duration::from_secs(20), told).await.expect("told").expect_err("the connection is over");
    tokio::time::sleep(SETUP).await;
    let answer = world.client(Some(HttpVersion::Http3)).get(&world.url("a"), &RequestOptions::default()).await;
    assert_eq!(answer.expect("there is a seat").bytes(10).await.expect("a body"), b"a");
    drop(selfish);
    assert_eq!(world.end().await.refused, 0);
}

/// A task beside a body that never pauses has a turn, too: Ctrl-C beside a download.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_of_which_there_is_always_more_lets_others_have_their_turn() {
    let world = World::new("turns", ServerLimits::default(), false);
    world.put("large", &noise(8_000_000, 1));
    for version in VERSIONS {
        let client = world.client(Some(version));
        let mut response = client.get(&world.url("large"), &RequestOptions::default()).await.expect("answered");
        // What the peer may send ahead of the reader is there.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let (mut row, mut longest) = (0, 0);
        loop {
            let mut next = std::pin::pin!(response.chunk());
            let piece = std::future::poll_fn(|cx| {
                let polled = next.as_mut().poll(cx);
                if polled.is_pending() {
                    row = 0;
                }
                polled
            });
            let Some(piece) = piece.await.expect("a body") else { break };
            row += piece.len();
            longest = longest.max(row);
        }
        assert!(longest <= 1 << 20, "{version}: {longest} bytes in a row");
    }
    world.end().await;
}

/// A server with QUIC and TLS at one port.
struct Faces {
    url: Url,
    trust: neater::SecurityParameters,
    /// QUIC sessions that were begun.
    sessions: Arc<AtomicUsize>,
    /// Requests over HTTP/2.
    h2: Arc<AtomicUsize>,
}

impl Faces {
    /// A client of this server with an engine that others may have, too.
    fn client(&self, neater: &Neater) -> Client {
        let builder = Client::builder(neater.clone()).security(self.trust.clone());
        builder.silence(Duration::from_secs(10)).second_after(Duration::from_millis(200)).build()
    }

    async fn ask(&self, neater: &Neater) -> (HttpVersion, Vec<u8>) {
        let client = self.client(neater);
        let options = RequestOptions::default();
        let answer = tokio::time::timeout(Duration::from_secs(5), client.get(&self.url, &options));
        let answer = answer.await.expect("no full time-out").unwrap_or_else(|e| panic!("{e}"));
        (answer.transport().version, answer.bytes(10).await.expect("a body"))
    }
}

/// Over TLS it answers `ok` over HTTP/1.1, and HTTP/2 unless refused; `quic` serves QUIC sessions.
fn faces<F: Future<Output = ()> + Send + 'static>(
    h2_refused: bool,
    quic: impl Fn(neater::Group) -> F + Send + 'static,
) -> Faces {
    use http_body_util::Full;
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use neater::Accepted;
    let (neater, listener, url, trust) = certified(&["h3", "h2", "http/1.1"], &[Stack::Quic, Stack::Tls]);
    listener.deliver_groups(true);
    let (sessions, h2) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (begun, asked) = (sessions.clone(), h2.clone());
    tokio::spawn(async move {
        // The engine lives as long as its listener.
        let _neater = neater;
        while let Some(accepted) = listener.accept_any().await {
            let connection = match accepted {
                Accepted::Group(group) => {
                    begun.fetch_add(1, Ordering::SeqCst);
                    tokio::spawn(quic(group));
                    continue;
                }
                Accepted::Connection(c) => c,
            };
            let (is_h2, asked) = (connection.alpn().is_some_and(|a| a == b"h2"), asked.clone());
            let io = TokioIo::new(connection.into_bytes().map_err(|_| "bytes").expect("bytes"));
            let service = service_fn(move |_: http::Request<hyper::body::Incoming>| {
                asked.fetch_add(usize::from(is_h2), Ordering::SeqCst);
                let refused = is_h2 && h2_refused;
                async move {
                    match refused {
                        true => Err(h2::Error::from(h2::Reason::HTTP_1_1_REQUIRED)),
                        false => Ok(http::Response::new(Full::new(bytes::Bytes::from_static(b"ok")))),
                    }
                }
            });
            tokio::spawn(async move {
                if is_h2 {
                    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(io, service).await;
                } else {
                    let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
                }
            });
        }
    });
    Faces { url, trust, sessions, h2 }
}

/// Keeps a session, takes what the peer opens, and sends nothing.
async fn keep_silent(group: neater::Group) {
    let mut streams = Vec::new();
    while let Ok(stream) = group.accept().await {
        streams.push(stream);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_3_that_opens_and_never_answers_is_left_for_tls() {
    let neater = Neater::new().expect("engine");
    let server = faces(false, keep_silent);
    assert_eq!(server.ask(&neater).await, (HttpVersion::Http2, b"ok".to_vec()));
    // Another client of the same engine begins with what has answered.
    assert_eq!(server.ask(&neater).await, (HttpVersion::Http2, b"ok".to_vec()));
    assert_eq!(server.sessions.load(Ordering::SeqCst), 1, "it was asked again");
}

/// A server whose answers over HTTP/3 are these pieces, one after the other.
fn answers(pieces: &'static [&'static [u8]]) -> Faces {
    faces(false, move |group| async move {
        let mut streams = Vec::new();
        while let Ok(stream) = group.accept().await {
            if stream.stream_number().is_none_or(|n| n & 2 != 0) {
                streams.push(stream);
                continue;
            }
            let mut bytes = stream.into_bytes().map_err(|_| "bytes").expect("bytes");
            for piece in pieces {
                let _ = bytes.write_all(piece).await;
                let _ = bytes.flush().await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            // A client that has refused it is gone.
            let _ = bytes.shutdown().await;
        }
    })
}

/// RFC 9114 section 7.2.1: a DATA frame without bytes does not mean the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_3_may_have_frames_without_bytes_in_a_body() {
    // HEADERS with `:status: 200` (RFC 9204, appendix A), and DATA, many of them empty.
    let server = answers(&[
        b"\x01\x03\x00\x00\xd9\x00\x03hel\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
        b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02lo\x00\x00",
    ]);
    let neater = Neater::new().expect("engine");
    assert_eq!(server.ask(&neater).await, (HttpVersion::Http3, b"hello".to_vec()));
}

/// RFC 9114 sections 4.1 and 7.1: an answer cut within a frame, or with content behind trailers, is
/// not whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_3_that_is_cut_or_out_of_order_is_not_whole() {
    let cut: &'static [&'static [u8]] = &[b"\x01\x03\x00\x00\xd9\x00\x0ahel"];
    let behind: &'static [&'static [u8]] = &[b"\x01\x03\x00\x00\xd9\x00\x03hel", b"\x01\x02\x00\x00", b"\x00\x02lo"];
    for pieces in [cut, behind] {
        let server = answers(pieces);
        let client = Client::builder(Neater::new().expect("engine")).security(server.trust.clone()).build();
        let mut response = client.get(&server.url, &RequestOptions::default()).await.expect("a head");
        assert_eq!(response.transport().version, HttpVersion::Http3);
        let mut end = response.chunk().await;
        while matches!(end, Ok(Some(_))) {
            end = response.chunk().await;
        }
        assert!(end.as_ref().is_err_and(Error::is_transient), "{end:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_3_that_fails_within_is_left_for_tls_at_once() {
    const H3_INTERNAL_ERROR: u64 = 0x102;
    // With its first stream, and as soon as it can.
    for at_once in [false, true] {
        let neater = Neater::new().expect("engine");
        let server = faces(false, move |group| async move {
            let first = if at_once { None } else { group.accept().await.ok() };
            group.close_session(H3_INTERNAL_ERROR, b"out of order");
            drop(first);
        });
        for _ in 0..2 {
            assert_eq!(server.ask(&neater).await, (HttpVersion::Http2, b"ok".to_vec()), "{at_once}");
        }
        assert_eq!(server.sessions.load(Ordering::SeqCst), 1, "{at_once}: it was asked again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_3_that_demands_a_fallback_is_asked_over_http_1_1() {
    const H3_VERSION_FALLBACK: u64 = 0x110;
    let neater = Neater::new().expect("engine");
    let server = faces(false, |group| async move {
        let mut streams = Vec::new();
        while let Ok(stream) = group.accept().await {
            // A request travels on a stream of both directions (RFC 9000 section 2.1).
            if stream.stream_number().is_some_and(|n| n & 2 == 0) {
                stream.reset_sending(H3_VERSION_FALLBACK);
            }
            streams.push(stream);
        }
    });
    assert_eq!(server.ask(&neater).await, (HttpVersion::Http11, b"ok".to_vec()));
    assert_eq!((server.sessions.load(Ordering::SeqCst), server.h2.load(Ordering::SeqCst)), (1, 0));
    // Where nothing but HTTP/3 will do, the reason is given.
    let only = Client::builder(neater.clone()).security(server.trust.clone()).version(HttpVersion::Http3).build();
    let e = only.get(&server.url, &RequestOptions::default()).await.err().expect("refused");
    assert!(matches!(&e, Error::Protocol(why) if why.contains("wants to be asked over HTTP/1.1")), "{e}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_2_that_demands_http_1_1_is_asked_over_that_from_then_on() {
    let neater = Neater::new().expect("engine");
    let server = faces(true, keep_silent);
    let builder = Client::builder(neater.clone()).security(server.trust.clone()).stacks(&[Stack::Tls]);
    let client = builder.build();
    for round in 0..3 {
        let answer =
            client.get(&server.url, &RequestOptions::default()).await.unwrap_or_else(|e| panic!("{round}: {e}"));
        assert_eq!(answer.transport().version, HttpVersion::Http11);
        assert_eq!(answer.bytes(10).await.expect("a body"), b"ok");
    }
    assert_eq!(server.h2.load(Ordering::SeqCst), 1, "it was asked over HTTP/2 again");
}

/// They share a connection, so that all of them are refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_refused_together_over_http_2_are_all_asked_over_http_1_1() {
    let server = faces(true, keep_silent);
    let client = Client::builder(Neater::new().expect("engine")).security(server.trust.clone()).stacks(&[Stack::Tls]);
    let client = client.build();
    let (client, url) = (&client, &server.url);
    let ask = |i| async move {
        let answer = client.get(url, &RequestOptions::default()).await.unwrap_or_else(|e| panic!("{i}: {e}"));
        assert_eq!(answer.transport().version, HttpVersion::Http11, "{i}");
        assert_eq!(answer.bytes(10).await.expect("a body"), b"ok", "{i}");
    };
    futures_util::future::join_all((0..12_u8).map(ask)).await;
}

/// How a server at one of two addresses is no good.
#[derive(Clone, Copy, Debug)]
enum Useless {
    Silent,
    Closes,
    Speaks(&'static [u8]),
}

/// An engine for which `localhost` is both addresses, regardless of the machine's own file.
fn engine_with_both_addresses() -> Neater {
    let file = std::env::temp_dir().join(format!("neater-http-hosts-{}", std::process::id()));
    std::fs::write(&file, "::1 localhost\n127.0.0.1 localhost\n").expect("a file");
    Neater::builder().hosts(file).build().expect("engine")
}

/// A port at which `::1` is useless, and at which something may answer `ok` at `127.0.0.1`; how
/// often each was connected to. `None`: this host has no IPv6.
async fn two_addresses(v6: Useless, v4: Option<Useless>) -> Option<(Url, [Arc<AtomicUsize>; 2])> {
    let mut pair = None;
    for _ in 0..100 {
        let one = tokio::net::TcpListener::bind("[::1]:0").await.ok()?;
        let port = one.local_addr().expect("bound").port();
        if let Ok(other) = tokio::net::TcpListener::bind(("127.0.0.1", port)).await {
            pair = Some((port, one, other));
            break;
        }
    }
    let (port, one, other) = pair.expect("a port for both");
    let counts = [Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0))];
    for (listener, count, useless) in [(one, counts[0].clone(), Some(v6)), (other, counts[1].clone(), v4)] {
        tokio::spawn(async move {
            let mut kept = Vec::new();
            while let Ok((mut c, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                match useless {
                    Some(Useless::Silent) => kept.push(c),
                    Some(Useless::Closes) => drop(c),
                    Some(Useless::Speaks(what)) => {
                        let _ = c.write_all(what).await;
                        kept.push(c);
                    }
                    None => {
                        let _ = c.read(&mut [0; 4096]).await;
                        let _ =
                            c.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").await;
                    }
                }
            }
        });
    }
    Some((Url::parse(&format!("http://localhost:{port}/")).expect("a URL"), counts))
}

const SSH: &[u8] = b"SSH-2.0-OpenSSH_9.9\r\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_does_not_serve_is_left_for_the_other_one() {
    for useless in [Useless::Silent, Useless::Closes, Useless::Speaks(SSH)] {
        let Some((url, counts)) = two_addresses(useless, None).await else { return };
        let neater = engine_with_both_addresses();
        for _ in 0..2 {
            let builder = Client::builder(neater.clone()).silence(Duration::from_secs(10));
            let client = builder.second_after(Duration::from_millis(200)).build();
            let options = RequestOptions::default();
            let asked = client.get(&url, &options);
            let answer = tokio::time::timeout(Duration::from_secs(5), asked).await.expect("no full time-out");
            let answer = answer.unwrap_or_else(|e| panic!("{useless:?}: {e}"));
            assert!(answer.transport().remote.is_some_and(|a| a.is_ipv4()), "{useless:?}");
            assert_eq!(answer.bytes(10).await.expect("a body"), b"ok");
        }
        assert_eq!(counts[0].load(Ordering::SeqCst), 1, "{useless:?}: it was tried again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_http_is_shown_after_one_attempt_at_each_address() {
    let ssh = Useless::Speaks(SSH);
    let Some((url, counts)) = two_addresses(ssh, Some(ssh)).await else { return };
    let client = Client::builder(engine_with_both_addresses()).build();
    let e = client.get(&url, &RequestOptions::default()).await.err().expect("not HTTP");
    assert!(matches!(&e, Error::Protocol(why) if why.contains("it begins with \"SSH-2.0-OpenSSH_9.9\"")), "{e}");
    assert!(!e.is_transient(), "it would be asked again");
    assert_eq!(counts.map(|c| c.load(Ordering::SeqCst)), [1, 1]);
    let tls = Useless::Speaks(&[21, 3, 1, 0, 2, 2, 50]);
    let Some((url, _)) = two_addresses(tls, Some(tls)).await else { return };
    let e = client.get(&url, &RequestOptions::default()).await.err().expect("not HTTP");
    assert!(e.to_string().contains("ask for https"), "{e}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_answer_is_taken_when_no_other_candidate_has_one() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let port = listener.local_addr().expect("bound").port();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut c, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            let _ = c.read(&mut [0; 4096]).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
            let _ = c.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        }
    });
    let url = Url::parse(&format!("http://127.0.0.1:{port}/")).expect("a URL");
    let builder = Client::builder(Neater::new().expect("engine"));
    let client = builder.second_after(Duration::from_millis(50)).build();
    let answer = client.get(&url, &RequestOptions::default()).await.expect("slow, but an answer");
    assert_eq!(answer.bytes(10).await.expect("a body"), b"ok");
    assert_eq!(asked.load(Ordering::SeqCst), 1, "there is no other candidate");
}

/// RFC 8446 section 4.4.2.4: with TLS 1.3 a client learns late that its certificate is missed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_wants_a_certificate_is_not_asked_again() {
    let neater = Neater::new().expect("engine");
    for (stack, alpn) in [(Stack::Quic, "h3"), (Stack::Tls, "http/1.1"), (Stack::Tls, "h2")] {
        let mut security = neater::self_signed(&["127.0.0.1"]).expect("a certificate");
        let mut trust = neater::SecurityParameters::new();
        trust.trust = security.trust.clone();
        security.client_authentication = neater::tls::ClientAuthentication::Required;
        security.alpn = vec![alpn.into()];
        let local = neater::LocalEndpoint::from(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
        let preconnection = neater.preconnection().local(local).security(security);
        let listener = preconnection.stacks(&[stack]).listen().expect("listening");
        let url = Url::parse(&format!("https://127.0.0.1:{}/", listener.port())).expect("a URL");
        let client = Client::builder(Neater::new().expect("engine")).security(trust).stacks(&[stack]).build();
        let mut reasons = 0;
        for _ in 0..20 {
            let asked = async { client.get(&url, &RequestOptions::default()).await.err() };
            let e = tokio::time::timeout(Duration::from_secs(10), asked).await;
            let e = e.expect("in time").expect("refused");
            assert!(!e.is_security() || e.to_string().contains("certificate"), "{e:?}");
            reasons += u32::from(e.is_security());
        }
        // Where a QUIC session is over before the first stream is opened, nothing more is known;
        // and where a server's alert comes after its reset of the connection has been seen, it is
        // lost.
        let least = if stack == Stack::Quic { 1 } else { 5 };
        assert!(reasons >= least, "{stack} {alpn}: {reasons} of 20");
    }
}
