//! Real sockets on loopback.

use neater::tls::Trust;
use neater::{FramerSpec, LocalEndpoint, Neater, SecurityParameters, Stack, TransportProperties};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn wall() -> neater_base::WallTime {
    neater_base::WallTime(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970"))
}

fn identity() -> (SecurityParameters, SecurityParameters) {
    parameters(neater::tls::self_signed(&["localhost", "127.0.0.1"], wall(), [7; 32]))
}

/// With a key of the only kind that DTLS signs with.
fn identity_p256() -> (SecurityParameters, SecurityParameters) {
    parameters(neater::tls::self_signed_p256(&["localhost", "127.0.0.1"], wall()).expect("a certificate"))
}

fn parameters(identity: neater::Identity) -> (SecurityParameters, SecurityParameters) {
    let mut client = SecurityParameters::new();
    client.trust = Trust::Only(vec![identity.chain[0].clone()]);
    let mut server = SecurityParameters::new();
    server.server_certificates = vec![identity];
    (client, server)
}

fn loopback() -> LocalEndpoint {
    LocalEndpoint::from("127.0.0.1:0".parse::<SocketAddr>().expect("literal"))
}

#[tokio::test]
async fn bytes_over_tcp() {
    let neater = Neater::new().expect("engine");
    let listener = neater
        .preconnection()
        .local(loopback())
        .security(SecurityParameters::disabled())
        .stacks(&[Stack::Tcp])
        .listen()
        .expect("listening");
    let addr = listener.local_addrs()[0].1;
    let server = tokio::spawn(async move {
        let connection = listener.accept().await.expect("a connection");
        let mut stream = connection.into_bytes().expect("bytes");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("read");
        stream.write_all(text.to_uppercase().as_bytes()).await.expect("written");
        stream.shutdown().await.expect("shut down");
    });
    let mut stream = neater
        .preconnection()
        .remote(addr)
        .security(SecurityParameters::disabled())
        .connect_bytes()
        .await
        .expect("connected");
    assert_eq!(stream.connection().stack(), Some(Stack::Tcp));
    stream.write_all(b"hello").await.expect("written");
    stream.shutdown().await.expect("half-closed");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("read");
    assert_eq!(text, "HELLO");
    server.await.expect("server");
}

#[tokio::test]
async fn messages_over_every_stack() {
    let neater = Neater::new().expect("engine");
    let (client, server) = identity();
    for stack in [Stack::Tls, Stack::Quic, Stack::Tcp, Stack::Udp, Stack::QuicDatagram, Stack::Dtls] {
        let datagrams = !stack.is_stream();
        let (client, server) = if stack == Stack::Dtls {
            identity_p256()
        } else if stack.is_secure() {
            (client.clone(), server.clone())
        } else {
            (SecurityParameters::disabled(), SecurityParameters::disabled())
        };
        let properties = if datagrams {
            neater_property::profile("unreliable-datagram").expect("known")
        } else {
            TransportProperties::new()
        };
        let framer = if datagrams { FramerSpec::Raw } else { FramerSpec::LengthPrefixed { width: 4, max: 1 << 20 } };
        let pre = neater.preconnection().properties(properties).framer(framer).stacks(&[stack]);
        let listener = pre.clone().local(loopback()).security(server).listen().expect("listening");
        let addr = listener.local_addrs()[0].1;
        let task = tokio::spawn(async move {
            let connection = listener.accept().await.expect("a connection");
            for _ in 0..3 {
                let m = connection.receive().await.expect("alive").expect("a message");
                connection.send(m.data).await.expect("sent");
            }
            connection
        });
        let connection = pre.remote(addr).security(client).initiate().await.unwrap_or_else(|e| panic!("{stack}: {e}"));
        assert_eq!(connection.stack(), Some(stack));
        for text in ["one", "two", "three"] {
            connection.send(text).await.expect("sent");
            let echo = connection.receive().await.expect("alive").expect("a message");
            assert_eq!(&echo[..], text.as_bytes(), "{stack}");
        }
        let peer = task.await.expect("server");
        connection.close().await.expect("closed");
        drop(peer);
    }
    for _ in 0..200 {
        if neater.stats().connections == 0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(neater.stats().connections, 0, "{:?}", neater.stats());
}

#[tokio::test]
async fn a_refused_connection_lists_its_candidates() {
    let neater = Neater::new().expect("engine");
    let e = neater
        .preconnection()
        .remote("127.0.0.1:1".parse::<SocketAddr>().expect("literal"))
        .security(SecurityParameters::disabled())
        .initiate()
        .await
        .expect_err("nobody listens there");
    assert_eq!(e.candidates.len(), 1, "{e}");
    assert!(e.to_string().contains("connection refused"), "{e}");
}

#[tokio::test]
async fn quic_is_chosen_and_tls_is_when_udp_is_deaf() {
    let neater = Neater::new().expect("engine");
    let (client, server) = identity();
    let listener = neater.preconnection().local(loopback()).security(server.clone()).listen().expect("listening");
    let port = listener.port();
    let task = tokio::spawn(async move {
        while let Some(c) = listener.accept().await {
            tokio::spawn(async move {
                while let Ok(Some(m)) = c.receive().await {
                    let _ = c.send(m.data).await;
                }
            });
        }
    });
    let connection = neater
        .preconnection()
        .remote(SocketAddr::from(([127, 0, 0, 1], port)))
        .security(client.clone())
        .properties(TransportProperties::parse("reliable, low-delay").expect("words").properties)
        .initiate()
        .await
        .expect("connected");
    assert_eq!(connection.stack(), Some(Stack::Quic), "{:?}", connection.timeline());
    connection.send("x").await.expect("sent");
    assert_eq!(&connection.receive().await.expect("alive").expect("echo")[..], b"x");

    // A server with TLS only, whose UDP port swallows everything.
    let listener =
        neater.preconnection().local(loopback()).security(server).stacks(&[Stack::Tls]).listen().expect("listening");
    let port = listener.port();
    let _deaf = std::net::UdpSocket::bind(("127.0.0.1", port)).expect("bound");
    let started = std::time::Instant::now();
    let connection = neater
        .preconnection()
        .remote(SocketAddr::from(([127, 0, 0, 1], port)))
        .security(client)
        .initiate()
        .await
        .expect("connected");
    assert_eq!(connection.stack(), Some(Stack::Tls), "{:?}", connection.timeline());
    assert!(started.elapsed() < std::time::Duration::from_secs(2));
    task.abort();
}

fn sctp(neater: &Neater) -> neater::Preconnection {
    neater.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Sctp])
}

#[tokio::test]
async fn messages_bytes_and_streams_over_sctp() {
    let neater = Neater::new().expect("engine");
    streams_over_sctp(Stack::Sctp, || sctp(&neater), || sctp(&neater)).await;
}

#[tokio::test]
async fn messages_bytes_and_streams_over_sctp_over_dtls() {
    let neater = Neater::new().expect("engine");
    let (client, server) = identity_p256();
    let of =
        |security: &SecurityParameters| neater.preconnection().security(security.clone()).stacks(&[Stack::SctpDtls]);
    streams_over_sctp(Stack::SctpDtls, || of(&client), || of(&server)).await;
}

async fn streams_over_sctp(
    stack: Stack,
    client: impl Fn() -> neater::Preconnection,
    server: impl Fn() -> neater::Preconnection,
) {
    let listener = server().local(loopback().with_udp_port(0)).listen().expect("listening");
    let (addr, udp) = (listener.local_addrs()[0].1, listener.udp_ports()[0]);
    let remote = neater::RemoteEndpoint::from(addr).with_udp_port(udp);
    let server = tokio::spawn(async move {
        // Every stream is a connection; each has what it gets sent back.
        let mut echoes = Vec::new();
        for _ in 0..11 {
            let connection = listener.accept().await.expect("a connection");
            echoes.push(tokio::spawn(async move {
                while let Some(m) = connection.receive().await.expect("alive") {
                    connection.send(m.data).await.expect("sent");
                }
                connection.finish().expect("ended");
                connection.closed().await.expect("in order");
            }));
        }
        for e in echoes {
            e.await.expect("an echo");
        }
    });
    let first = client().remote(remote).initiate().await.expect("connected");
    assert_eq!(first.stack(), Some(stack));
    assert_eq!(first.security().as_deref(), (stack == Stack::SctpDtls).then_some("DTLS 1.3"));
    for size in [1, 0, 1000, 100_000, 2_000_000] {
        first.send(vec![size as u8; size]).await.expect("sent");
        let back = first.receive().await.expect("alive").expect("a message");
        assert!(back.data.len() == size && back.end_of_message, "{} of {size} bytes", back.data.len());
    }
    let clones: Vec<_> = (0..10).map(|_| first.clone_connection().expect("cloned")).collect();
    for (i, c) in clones.iter().enumerate() {
        c.send(format!("stream {i}")).await.expect("sent");
    }
    for (i, c) in clones.iter().enumerate() {
        assert_eq!(c.receive().await.expect("alive").expect("a message").data, format!("stream {i}"));
    }
    for c in clones.into_iter().chain([first]) {
        c.finish().expect("ended");
        assert!(c.receive().await.expect("in order").is_none());
        c.closed().await.expect("in order");
    }
    server.await.expect("server");
}

#[tokio::test]
async fn a_stream_of_sctp_is_read_and_written_as_bytes() {
    let neater = Neater::new().expect("engine");
    let listener = sctp(&neater).local(loopback().with_udp_port(0)).listen().expect("listening");
    let remote = neater::RemoteEndpoint::from(listener.local_addrs()[0].1).with_udp_port(listener.udp_ports()[0]);
    let server = tokio::spawn(async move {
        let mut stream = listener.accept().await.expect("a connection").into_bytes().expect("bytes");
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.expect("read");
        stream.write_all(&all).await.expect("written");
        stream.shutdown().await.expect("shut down");
    });
    let mut stream = sctp(&neater).remote(remote).connect_bytes().await.expect("connected");
    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i ^ (i >> 9)) as u8).collect();
    stream.write_all(&data).await.expect("written");
    stream.shutdown().await.expect("half-closed");
    let mut back = Vec::new();
    stream.read_to_end(&mut back).await.expect("read");
    assert!(back == data);
    server.await.expect("server");
}

#[tokio::test]
async fn datagrams_of_a_batch_arrive_each_as_it_was() {
    let neater = Neater::new().expect("engine");
    let properties = neater_property::profile("unreliable-datagram").expect("known");
    let pre = neater.preconnection().properties(properties).framer(FramerSpec::Raw).stacks(&[Stack::Udp]);
    let pre = pre.security(SecurityParameters::disabled());
    let listener = pre.clone().local(loopback()).listen().expect("listening");
    let addr = listener.local_addrs()[0].1;
    let there = pre.remote(addr).initiate().await.expect("a socket");
    there.send("!").await.expect("sent");
    let here = listener.accept().await.expect("a connection");
    assert_eq!(&here.receive().await.expect("alive").expect("a message")[..], b"!");
    // Trains of equal ones, a shorter last one, one that is longer than the path takes whole, an
    // empty one; there and back.
    let lens = [1000, 1000, 1000, 1000, 10, 1400, 0, 20_000, 20_000, 20_000, 20_000, 5, 5, 5, 5, 1];
    for (from, to) in [(&there, &here), (&here, &there)] {
        from.start_batch();
        for (i, len) in lens.iter().enumerate() {
            from.try_send(vec![i as u8; *len], &neater::MessageContext::default()).expect("room");
        }
        from.end_batch();
        for (i, len) in lens.iter().enumerate() {
            let message = tokio::time::timeout(std::time::Duration::from_secs(5), to.receive()).await;
            let message = message.expect("in time").expect("alive").expect("a message");
            assert_eq!(&message[..], vec![i as u8; *len], "{i}");
        }
    }
}
