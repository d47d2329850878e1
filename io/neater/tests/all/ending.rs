//! How connections end, with peers that are not ours.

use neater::{ConnectionError, Neater, RemoteEndpoint, SecurityParameters, Stack};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SECOND: Duration = Duration::from_secs(1);

/// A server that treats its first connection so; returns its endpoint.
fn server(treat: impl FnOnce(TcpStream) + Send + 'static) -> RemoteEndpoint {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || treat(listener.accept().unwrap().0));
    format!("127.0.0.1:{port}").parse().unwrap()
}

async fn connect(to: RemoteEndpoint) -> neater::Connection {
    let neater = Neater::new().unwrap();
    let pre = neater.preconnection().remote(to).security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]);
    pre.initiate().await.unwrap()
}

/// As HTTP's 413: it answers early and closes with the rest of the question unread, which resets
/// the connection.
#[tokio::test]
async fn an_early_answer_is_received_after_sending_has_failed() {
    let to = server(|mut peer| {
        peer.read_exact(&mut [0; 1000]).unwrap();
        peer.write_all(&[7; 50_000]).unwrap();
        std::thread::sleep(SECOND / 4);
    });
    let c = connect(to).await;
    let deadline = Instant::now() + 10 * SECOND;
    while c.send(vec![1; 20_000]).await.is_ok() {
        assert!(Instant::now() < deadline, "sending goes on although the peer has gone");
        tokio::time::sleep(SECOND / 50).await;
    }
    let mut got = 0;
    let error = loop {
        match c.receive().await {
            Ok(Some(m)) => got += m.data.len(),
            Ok(None) => panic!("cut short, and taken for the end"),
            Err(error) => break error,
        }
    };
    assert_eq!(got, 50_000, "{error}");
    assert!(matches!(error, ConnectionError::Net(_)), "{error}");
}

#[tokio::test]
async fn a_peer_that_goes_on_talking_gets_what_was_sent_before_closing() {
    const SENT: usize = 1_000_000;
    let (tell, told) = std::sync::mpsc::channel();
    let to = server(move |mut peer| {
        let mut talker = peer.try_clone().unwrap();
        std::thread::spawn(move || while talker.write_all(&[0; 1 << 16]).is_ok() {});
        std::thread::sleep(SECOND);
        let mut got = 0;
        let mut buf = vec![0; 1 << 16];
        while let Ok(n @ 1..) = peer.read(&mut buf) {
            got += n;
        }
        let _ = peer.shutdown(std::net::Shutdown::Both);
        tell.send(got).unwrap();
    });
    let c = connect(to).await;
    for _ in 0..SENT / 50_000 {
        c.send(vec![1; 50_000]).await.unwrap();
    }
    for _ in 0..100 {
        c.receive().await.unwrap();
    }
    c.close().await.unwrap();
    assert_eq!(tokio::task::spawn_blocking(move || told.recv().unwrap()).await.unwrap(), SENT);
}

#[tokio::test]
async fn a_reset_ends_the_connection_although_nobody_reads() {
    let to = server(|mut peer| {
        peer.write_all(b"unread").unwrap();
        peer.read_exact(&mut [0; 1]).unwrap();
        // Closing with something unread resets.
    });
    let c = connect(to).await;
    c.send(vec![1; 1000]).await.unwrap();
    let ended = tokio::time::timeout(10 * SECOND, c.closed()).await.expect("nothing is reported");
    assert!(matches!(ended, Err(ConnectionError::Net(_))), "{ended:?}");
    assert_eq!(c.receive().await.unwrap().unwrap().data, &b"unread"[..]);
    assert!(c.receive().await.is_err());
}

/// Two contexts, and the two ends of a byte stream over QUIC between them.
async fn quic_streams() -> (neater::ByteStream, neater::ByteStream) {
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let identity = neater::tls::self_signed(&["127.0.0.1"], neater_base::WallTime(wall), [7; 32]);
    let (mut client, mut server) = (SecurityParameters::new(), SecurityParameters::new());
    client.trust = neater::tls::Trust::Only(vec![identity.chain[0].clone()]);
    server.server_certificates = vec![identity];
    let (here, there) = (Neater::new().unwrap(), Neater::new().unwrap());
    let local: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
    let listener = there.preconnection().local(local).security(server).stacks(&[Stack::Quic]).listen().unwrap();
    let to: RemoteEndpoint = format!("127.0.0.1:{}", listener.port()).parse().unwrap();
    let c = here.preconnection().remote(to).security(client).stacks(&[Stack::Quic]).initiate().await.unwrap();
    c.send("!").await.unwrap();
    let s = listener.accept().await.unwrap();
    s.receive().await.unwrap();
    (c.into_bytes().unwrap(), s.into_bytes().unwrap())
}

#[tokio::test]
async fn shutting_a_quic_stream_down_waits_until_the_peer_has_everything() {
    let (mut c, mut s) = quic_streams().await;
    let everything = vec![5; 4 << 20];
    let reader = tokio::spawn(async move {
        tokio::time::sleep(SECOND / 4).await;
        let mut got = Vec::new();
        s.read_to_end(&mut got).await.unwrap();
        (got.len(), Instant::now(), s)
    });
    c.write_all(&everything).await.unwrap();
    c.shutdown().await.unwrap();
    let sent = c.connection().stats().unwrap();
    assert!(sent.ended, "{sent:?}");
    assert_eq!(reader.await.unwrap().0, everything.len());
}

#[tokio::test]
async fn shutting_down_is_an_error_when_the_peer_has_aborted_without_reading() {
    let (mut c, s) = quic_streams().await;
    while let Ok(written) = tokio::time::timeout(SECOND / 4, c.write(&[1; 1 << 16])).await {
        written.unwrap();
    }
    s.connection().abort();
    tokio::time::sleep(SECOND / 4).await;
    let ended = tokio::time::timeout(5 * SECOND, c.shutdown()).await.expect("shutting down ends");
    assert!(ended.is_err());
    let closed = tokio::time::timeout(12 * SECOND, c.connection().close()).await.expect("closing ends");
    assert!(closed.is_err());
}
