//! nginx for our client, in HTTP/1.1 and HTTP/2 over TLS; curl for our listener.

use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo};
use neater::{ByteStream, Neater, SecurityParameters, Stack};
use neater_interop::{
    Certificate, Running, Scratch, certificate, free_port, run, security, skip, wait_for, which, within_limit,
};
use std::fmt::Write;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The size of the file that nginx serves.
const BYTES: usize = 3_000_000;

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn contents() -> Vec<u8> {
    (0..BYTES).map(|i| (i % 251) as u8).collect()
}

/// nginx with one file, on ports for TLS and for the clear.
fn nginx(scratch: &Scratch, certificate: &Certificate) -> Option<(Running, u16, u16)> {
    let nginx = which("nginx")?;
    let (tls, clear) = (free_port(), free_port());
    let dir = scratch.path();
    scratch.file("file.bin", contents());
    let mut temporary = String::new();
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        let _ = writeln!(temporary, "{kind}_temp_path {};", dir.join(kind).display());
    }
    let conf = format!(
        "daemon off; master_process off; pid {pid}; error_log stderr;\n\
         events {{ worker_connections 256; }}\n\
         http {{\n access_log off; {temporary} root {root};\n server {{\n\
         listen 127.0.0.1:{clear}; listen 127.0.0.1:{tls} ssl http2;\n\
         ssl_certificate {cert}; ssl_certificate_key {key};\n }}\n}}\n",
        pid = dir.join("pid").display(),
        root = dir.display(),
        cert = certificate.cert.display(),
        key = certificate.key.display(),
    );
    let conf = scratch.file("nginx.conf", conf);
    let mut command = Command::new(nginx);
    command.arg("-p").arg(dir).arg("-e").arg("stderr").arg("-c").arg(conf);
    let server = Running::start(&mut command);
    wait_for(tls);
    Some((server, tls, clear))
}

/// A request on a connection of its own; returns head and body.
async fn get_by_hand(stream: &mut ByteStream, path: &str) -> (String, Vec<u8>) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("written");
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.expect("read, to a proper end");
    let split = all.windows(4).position(|w| w == b"\r\n\r\n").expect("a head") + 4;
    let body = all.split_off(split);
    (String::from_utf8(all).expect("a head in ASCII"), body)
}

#[test]
fn our_client_gets_a_file_from_nginx_in_http_1_in_the_clear_and_over_tls() {
    let scratch = Scratch::new("nginx");
    let certificate = certificate(&scratch, "server");
    let Some((_nginx, tls, clear)) = nginx(&scratch, &certificate) else { skip!("no nginx (package nginx-light)") };
    within_limit(async {
        let neater = Neater::new().expect("engine");
        let mut secure = security(&certificate).0;
        secure.alpn = vec![b"http/1.1".to_vec()];
        for (port, security) in [(clear, SecurityParameters::disabled()), (tls, secure)] {
            let pre = neater.preconnection().remote(loopback(port)).security(security);
            let mut stream = pre.stacks(&[Stack::Tcp, Stack::Tls]).connect_bytes().await.expect("connected");
            let (head, body) = get_by_hand(&mut stream, "/file.bin").await;
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
            assert!(body == contents(), "{} bytes", body.len());
        }
    });
}

#[test]
fn our_client_gets_files_from_nginx_in_http_2() {
    let scratch = Scratch::new("nginx2");
    let certificate = certificate(&scratch, "server");
    let Some((_nginx, tls, _)) = nginx(&scratch, &certificate) else { skip!("no nginx (package nginx-light)") };
    within_limit(async {
        let neater = Neater::new().expect("engine");
        let mut security = security(&certificate).0;
        security.alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let pre = neater.preconnection().remote(loopback(tls)).security(security).stacks(&[Stack::Tls]);
        let stream = pre.connect_bytes().await.expect("connected");
        assert_eq!(stream.connection().alpn().as_deref(), Some(&b"h2"[..]));
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP/2");
        let driving = tokio::spawn(connection);
        let mut tasks = Vec::new();
        // Several at once on one connection: the flow control of HTTP/2 over ours.
        for _ in 0..4 {
            let mut sender = sender.clone();
            tasks.push(tokio::spawn(async move {
                let uri = "https://localhost/file.bin";
                let request = Request::get(uri).body(Empty::<bytes::Bytes>::new()).expect("a request");
                let response = sender.send_request(request).await.expect("a response");
                assert_eq!(response.status(), 200);
                response.into_body().collect().await.expect("a body").to_bytes()
            }));
        }
        for task in tasks {
            assert!(task.await.expect("a task") == contents());
        }
        drop(sender);
        driving.await.expect("a task").expect("a proper end");
    });
}

/// Serves one request on a connection, in HTTP/1.1 by hand: a GET with a fixed text, a POST with what it carried.
async fn serve_one(mut stream: ByteStream) -> std::io::Result<()> {
    let mut all = Vec::new();
    let head = loop {
        if stream.read_buf(&mut all).await? == 0 {
            return Ok(());
        }
        if let Some(at) = all.windows(4).position(|w| w == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let text = String::from_utf8_lossy(&all[..head]).to_ascii_lowercase();
    let length = text.lines().find_map(|l| l.strip_prefix("content-length: ")).and_then(|n| n.trim().parse().ok());
    let body = match length {
        Some(length) => {
            if text.contains("expect: 100-continue") {
                stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
            }
            let mut body = all.split_off(head);
            while body.len() < length {
                if stream.read_buf(&mut body).await? == 0 {
                    return Ok(());
                }
            }
            body
        }
        None => b"hello, curl\n".to_vec(),
    };
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&body).await?;
    stream.shutdown().await
}

#[test]
fn curl_gets_from_and_posts_to_our_listener() {
    let Some(curl) = which("curl") else { skip!("no curl (package curl)") };
    let scratch = Scratch::new("curl");
    let certificate = certificate(&scratch, "server");
    let upload = scratch.file("upload", contents());
    let mut secure = security(&certificate).1;
    secure.alpn = vec![b"http/1.1".to_vec()];
    for (scheme, security) in [("http", SecurityParameters::disabled()), ("https", secure)] {
        within_limit(async {
            let neater = Neater::new().expect("engine");
            let pre = neater.preconnection().local(loopback(0)).security(security);
            let listener = pre.stacks(&[Stack::Tcp, Stack::Tls]).listen().expect("listening");
            let url = format!("{scheme}://localhost:{}/", listener.port());
            let port = listener.port();
            let serving = tokio::spawn(async move {
                while let Some(connection) = listener.accept().await {
                    let stream = connection.into_bytes().expect("bytes");
                    tokio::spawn(async move { serve_one(stream).await.expect("served") });
                }
            });
            let base = || {
                let mut command = Command::new(&curl);
                command.args(["--silent", "--show-error", "--fail", "--noproxy", "*", "--max-time", "10"]);
                command.args(["--resolve", &format!("localhost:{port}:127.0.0.1"), "--cacert"]).arg(&certificate.cert);
                command
            };
            let mut get = base();
            get.arg(&url);
            let got = tokio::task::spawn_blocking(move || run(&mut get, Duration::from_secs(10))).await.expect("runs");
            assert!(got.status.success(), "{}", got.said);
            assert_eq!(got.said, "hello, curl\n");
            let echo = scratch.path().join(scheme);
            let mut post = base();
            post.arg("--data-binary").arg(format!("@{}", upload.display())).arg("-o").arg(&echo).arg(&url);
            let done =
                tokio::task::spawn_blocking(move || run(&mut post, Duration::from_secs(10))).await.expect("runs");
            assert!(done.status.success(), "{}", done.said);
            assert!(std::fs::read(&echo).expect("what came back") == contents());
            serving.abort();
        });
    }
}
