//! DTLS 1.2 with pion, wolfSSL and mbedTLS: each as a client of our listener, and pion and mbedTLS as servers, too.

use neater::{Connection, Listener, Neater, Stack, TransportProperties};
use neater_interop::{Certificate, LIMIT, Running, Scratch, c_peer, certificate, go_peer, run, security, skip, which};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn datagrams() -> TransportProperties {
    TransportProperties::parse("unreliable-datagram").expect("words").properties
}

fn on_two_threads<T>(future: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(LIMIT, future).await.expect("the test is through in time") })
}

fn listen(neater: &Neater, certificate: &Certificate) -> (Listener, String) {
    let pre = neater.preconnection().properties(datagrams()).security(security(certificate).1);
    let listener = pre.stacks(&[Stack::Dtls]).local(loopback(0)).listen().expect("listening");
    let port = listener.local_addrs()[0].1.port().to_string();
    (listener, port)
}

async fn connect(port: u16, certificate: &Certificate) -> (Neater, Connection) {
    let neater = Neater::new().expect("engine");
    let pre = neater.preconnection().remote(loopback(port)).properties(datagrams()).security(security(certificate).0);
    let connection = pre.stacks(&[Stack::Dtls]).initiate().await.unwrap_or_else(|e| panic!("{e}"));
    (neater, connection)
}

/// A client that sends a message, takes it back, and ends with `ok`.
fn our_listener_and(command: impl Fn(&str, &Path) -> Command) {
    let scratch = Scratch::new("dtls-clients");
    let certificate = certificate(&scratch, "server");
    on_two_threads(async {
        let neater = Neater::new().expect("engine");
        let (listener, port) = listen(&neater, &certificate);
        let echo = tokio::spawn(async move {
            let connection = listener.accept().await.expect("a connection");
            let message = connection.receive().await.expect("alive").expect("a message");
            connection.send(message.to_vec()).await.expect("sent");
            let _ = connection.receive().await;
        });
        let mut client = command(&port, &certificate.cert);
        let done = tokio::task::block_in_place(|| run(&mut client, Duration::from_secs(15)));
        assert!(done.status.success() && done.said.contains("ok\n"), "{}", done.said);
        echo.await.expect("no panic");
    });
}

/// A server that says `port N` and echoes.
fn our_client_and(mut command: Command, certificate: &Certificate) {
    let server = Running::start(&mut command);
    let port = server.wait_to_say("port ").trim().parse().expect("a port");
    on_two_threads(async {
        let (_neater, connection) = connect(port, certificate).await;
        assert_eq!(connection.security().as_deref(), Some("DTLS 1.2"));
        connection.send("a word from neater").await.expect("sent");
        let back = connection.receive().await.expect("alive").expect("a message");
        assert_eq!(&back[..], b"a word from neater");
        connection.close().await.expect("closed");
    });
}

/// pion/dtls takes `use_srtp` without a profile of its own for an error.
#[test]
fn pion_as_server_and_as_client() {
    let peer = match go_peer() {
        Ok(peer) => peer,
        Err(why) => skip!("{why}"),
    };
    let scratch = Scratch::new("dtls-pion");
    let certificate = certificate(&scratch, "server");
    let mut server = Command::new(&peer);
    server.arg("dtls-server").arg(&certificate.cert).arg(&certificate.key);
    our_client_and(server, &certificate);
    our_listener_and(|port, cert| {
        let mut client = Command::new(&peer);
        client.args(["dtls-client", port]).arg(cert);
        client
    });
}

/// wolfSSL aborts at a `renegotiation_info` that it has not asked for.
#[test]
fn wolfssl_as_client() {
    let scratch = Scratch::new("dtls-wolfssl");
    let peer = scratch.file("wolfssl", String::new());
    if let Err(why) = c_peer("wolfssl_peer.c", ("wolfssl/ssl.h", "libwolfssl-dev"), &["wolfssl"], &peer) {
        skip!("{why}");
    }
    our_listener_and(|port, cert| {
        let mut client = Command::new(&peer);
        client.arg(port).arg(cert);
        client
    });
}

#[test]
fn mbedtls_as_server_and_as_client() {
    let scratch = Scratch::new("dtls-mbedtls");
    let peer = scratch.file("mbedtls", String::new());
    let libraries = ["mbedtls", "mbedx509", "mbedcrypto"];
    if let Err(why) = c_peer("mbedtls_peer.c", ("mbedtls/ssl_cookie.h", "libmbedtls-dev"), &libraries, &peer) {
        skip!("{why}");
    }
    let certificate = certificate(&scratch, "server");
    let mut server = Command::new(&peer);
    server.arg("server").arg(&certificate.cert).arg(&certificate.key);
    our_client_and(server, &certificate);
    our_listener_and(|port, cert| {
        let mut client = Command::new(&peer);
        client.args(["client", port]).arg(cert);
        client
    });
}

/// A client with no suite, group or version in common is not left to its time-out.
#[test]
fn a_client_with_nothing_in_common_gets_an_alert() {
    let Some(openssl) = which("openssl") else { skip!("no openssl (package openssl)") };
    let scratch = Scratch::new("dtls-alerts");
    let certificate = certificate(&scratch, "server");
    on_two_threads(async {
        let neater = Neater::new().expect("engine");
        let (_listener, port) = listen(&neater, &certificate);
        for options in [&["-cipher", "ECDHE-ECDSA-AES128-SHA256"][..], &["-groups", "P-521"]] {
            let begun = Instant::now();
            let mut client = Command::new(&openssl);
            client.args(["s_client", "-dtls1_2", "-connect", &format!("127.0.0.1:{port}")]).args(options);
            let done = tokio::task::block_in_place(|| run(&mut client, Duration::from_secs(20)));
            assert!(done.said.contains("alert handshake failure"), "{options:?}: {}", done.said);
            assert!(begun.elapsed() < Duration::from_secs(3), "{options:?}: {:?}", begun.elapsed());
        }
    });
}
