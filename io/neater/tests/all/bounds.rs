//! What peers can make an engine keep, and how long they can make a program wait.

use crate::common::{LIMIT, loopback, security};
use neater::{Limits, Neater, Reason, SecurityParameters, Stack, Trust};
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[tokio::test]
async fn sessions_of_quic_in_which_nobody_speaks_are_bounded() {
    let limits = Limits { untaken: 5, ..Limits::default() };
    let (far, near) = (Neater::builder().limits(limits).build().expect("engine"), Neater::new().expect("engine"));
    let (client, server) = security();
    let pre = far.preconnection().stacks(&[Stack::Quic]).security(server);
    let listener = pre.local(loopback(0)).listen().expect("listening");
    let pre = near.preconnection().stacks(&[Stack::Quic]).security(client).remote(loopback(listener.port()));
    let mut held = Vec::new();
    for _ in 0..40 {
        held.push(tokio::time::timeout(LIMIT, pre.initiate()).await.expect("soon").expect("shaken hands"));
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let open = held.iter().filter(|c| c.state() == neater::ConnectionState::Established).count();
    assert_eq!((open, far.stats().refused), (5, 35));
    // One that sends data is received from, and counts among the silent no more.
    let speaking = held.iter().find(|c| c.state() == neater::ConnectionState::Established).expect("five are");
    speaking.send("hello").await.expect("sent");
    tokio::time::timeout(LIMIT, listener.accept()).await.expect("soon").expect("accepted");
    let one_more = tokio::time::timeout(LIMIT, pre.initiate()).await.expect("soon").expect("shaken hands");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(one_more.state(), neater::ConnectionState::Established);
}

#[tokio::test]
async fn datagrams_that_nobody_takes_are_bounded_in_all() {
    const PEERS: usize = 60;
    let limits = Limits { engine_bytes: 1 << 20, ..Limits::default() };
    let far = Neater::builder().limits(limits).build().expect("engine");
    let profile = neater_property::profile("unreliable-datagram").expect("known");
    let pre = far.preconnection().properties(profile).stacks(&[Stack::Udp]).security(SecurityParameters::disabled());
    let listener = pre.local(loopback(0)).listen().expect("listening");
    let mut peers = Vec::new();
    for _ in 0..PEERS {
        let peer = UdpSocket::bind("127.0.0.1:0").expect("bound");
        for _ in 0..24 {
            for _ in 0..10 {
                peer.send_to(&[0; 1000], loopback(listener.port())).expect("sent");
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        peers.push(peer);
    }
    let mut total = 0;
    for _ in 0..PEERS {
        let connection = tokio::time::timeout(LIMIT, listener.accept()).await.expect("soon").expect("accepted");
        while let Ok(Ok(Some(m))) = tokio::time::timeout(Duration::from_millis(5), connection.receive()).await {
            total += m.len();
        }
    }
    let most = limits.engine_bytes + PEERS * limits.send_floor;
    assert!(total > limits.engine_bytes / 2 && total <= most, "{total} bytes were kept, of {most}");
    // What was taken makes room again, of all connections together: one more peer keeps more than
    // its least share.
    let peer = UdpSocket::bind("127.0.0.1:0").expect("bound");
    for _ in 0..60 {
        peer.send_to(&[0; 1000], loopback(listener.port())).expect("sent");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let connection = tokio::time::timeout(LIMIT, listener.accept()).await.expect("soon").expect("accepted");
    let mut total = 0;
    while let Ok(Ok(Some(m))) = tokio::time::timeout(Duration::from_millis(50), connection.receive()).await {
        total += m.len();
    }
    assert!(total > 2 * limits.send_floor, "{total}");
}

/// A server that shakes hands, allows no stream, and keeps the session alive.
#[tokio::test]
async fn the_time_allowed_holds_where_a_session_allows_no_stream() {
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let id = neater::tls::self_signed(&["127.0.0.1"], neater::WallTime(wall), [7; 32]);
    let provider = Arc::new(neater_tls::rustls::crypto::ring::default_provider());
    let mut tls = neater_tls::rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&neater_tls::rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(id.chain.clone(), id.key.clone_key())
        .expect("a certificate");
    tls.alpn_protocols = vec![b"neater".to_vec()];
    let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(tls).expect("a suite for QUIC");
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    let mut transport = quinn::TransportConfig::default();
    transport.max_concurrent_bidi_streams(0u8.into()).keep_alive_interval(Some(Duration::from_secs(1)));
    // It offers no datagrams either: streams may be allowed later.
    transport.datagram_receive_buffer_size(None);
    config.transport_config(Arc::new(transport));
    let server = quinn::Endpoint::server(config, loopback(0)).expect("listening");
    let addr = server.local_addr().expect("bound");
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Some(incoming) = server.accept().await {
            held.extend(incoming.await);
        }
    });
    let near = Neater::new().expect("engine");
    let mut client = SecurityParameters::new();
    client.trust = Trust::Only(vec![id.chain[0].clone()]);
    let pre = near.preconnection().stacks(&[Stack::Quic]).security(client).remote(addr);
    let pre = pre.timeout(Duration::from_secs(1));
    // The second tries what is known of the first.
    for round in 0..2 {
        let began = Instant::now();
        let got = tokio::time::timeout(LIMIT, pre.initiate()).await.expect("the time allowed is a second");
        let error = got.expect_err("no stream");
        assert_eq!(error.reason, Reason::Timeout, "{round}: {error}");
        assert!(began.elapsed() >= Duration::from_millis(900), "{round}: {:?}", began.elapsed());
        assert_eq!(near.stats().failed, round + 1);
    }
}

/// The attempts of a race come from one port where a program has named one.
#[tokio::test]
async fn a_race_from_a_given_port_races() {
    // A listener that answers no SYN any more.
    let stream = || socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    let dead = stream();
    dead.bind(&"127.0.0.2:0".parse::<std::net::SocketAddr>().expect("an address").into()).expect("bound");
    dead.listen(0).expect("listening");
    let dead_addr = dead.local_addr().expect("bound").as_socket().expect("an address");
    let fill: Vec<_> = (0..4)
        .map(|_| {
            let s = stream();
            s.set_nonblocking(true).expect("set");
            let _ = s.connect(&dead_addr.into());
            s
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let live = std::net::TcpListener::bind("127.0.0.3:0").expect("listening");
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("listening").local_addr().expect("bound").port();
    let near = Neater::new().expect("engine");
    let pre = near.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]);
    let pre = pre.remote(dead_addr).remote(live.local_addr().expect("bound")).timeout(Duration::from_secs(4));
    let pre = pre.local(neater::LocalEndpoint::new().with_port(free));
    let connection = tokio::time::timeout(LIMIT, pre.initiate()).await.expect("soon").expect("connected");
    assert_eq!(connection.remote_addr(), live.local_addr().ok());
    assert_eq!(connection.local_addr().map(|a| a.port()), Some(free));
    drop(fill);
}
