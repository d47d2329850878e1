//! Listeners at all addresses of a host answer from where they were asked, and receive the ICMP
//! errors about their answers.

use crate::common::{LIMIT, loopback};
use neater::{Event, Neater, Preconnection, SecurityParameters, SelectionProperty, Stack};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn datagrams(neater: &Neater, stack: Stack) -> Preconnection {
    let profile = neater_property::profile("unreliable-datagram").expect("known");
    neater.preconnection().properties(profile).stacks(&[stack]).security(SecurityParameters::disabled())
}

fn anywhere() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))
}

#[tokio::test]
async fn a_udp_listener_answers_from_the_address_at_which_it_was_asked() {
    let far = Neater::new().expect("engine");
    let listener = datagrams(&far, Stack::Udp).local(anywhere()).listen().expect("listening");
    // One client, two addresses of the server's: two connections.
    let client = UdpSocket::bind("0.0.0.0:0").expect("bound");
    client.set_read_timeout(Some(LIMIT)).expect("set");
    for last in [2, 3] {
        let asked = SocketAddr::from(([127, 0, 0, last], listener.port()));
        client.send_to(b"ask", asked).expect("sent");
        let connection = tokio::time::timeout(LIMIT, listener.accept()).await.expect("soon").expect("accepted");
        assert_eq!(connection.local_addr(), Some(asked));
        connection.send(b"answer".to_vec()).await.expect("sent");
        let mut buf = [0; 16];
        let (n, from) = client.recv_from(&mut buf).expect("answered");
        assert_eq!((&buf[..n], from), (&b"answer"[..], asked));
        assert_eq!(connection.receive().await.expect("open").as_deref(), Some(&b"ask"[..]));
    }
}

#[tokio::test]
async fn a_dtls_listener_answers_from_the_address_at_which_it_was_asked() {
    let (far, near) = (Neater::new().expect("engine"), Neater::new().expect("engine"));
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let id = neater::tls::self_signed_p256(&["127.0.0.2"], neater::WallTime(wall)).expect("a certificate");
    let mut client = SecurityParameters::new();
    client.trust = neater::Trust::Only(vec![id.chain[0].clone()]);
    let mut server = SecurityParameters::new();
    server.server_certificates = vec![id];
    let listener = datagrams(&far, Stack::Dtls).security(server).local(anywhere()).listen().expect("listening");
    let asked = SocketAddr::from(([127, 0, 0, 2], listener.port()));
    let connecting = datagrams(&near, Stack::Dtls).security(client).remote(asked).initiate();
    let connection = tokio::time::timeout(LIMIT, connecting).await.expect("soon").expect("connected");
    connection.send(b"ask".to_vec()).await.expect("sent");
    let accepted = tokio::time::timeout(LIMIT, listener.accept()).await.expect("soon").expect("accepted");
    assert_eq!(accepted.local_addr(), Some(asked));
    assert_eq!(accepted.receive().await.expect("open").as_deref(), Some(&b"ask"[..]));
}

/// The kernel charges errors about sent datagrams to the receive buffer of the socket.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_wants_soft_errors_is_told_of_each_peer_and_goes_on_hearing() {
    let far = Neater::new().expect("engine");
    let told = Arc::new(AtomicUsize::new(0));
    let count = told.clone();
    let pre = datagrams(&far, Stack::Udp).require(SelectionProperty::SoftErrorNotify).on_event(move |e| {
        if matches!(e, Event::SoftError(_)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let listener = pre.local(loopback(0)).listen().expect("listening");
    let mut held = Vec::new();
    for n in 0..600_u32 {
        // Each at an address of its own: a port that is given out again would be one that is known.
        let client = UdpSocket::bind((Ipv4Addr::from(0x7f01_0001 + n), 0)).expect("bound");
        client.send_to(b"ask", loopback(listener.port())).expect("sent");
        let accepted = tokio::time::timeout(LIMIT, listener.accept()).await;
        let connection = accepted.unwrap_or_else(|_| panic!("nobody is heard after {n} clients")).expect("accepted");
        // The client has gone, and its host answers with ICMP errors.
        drop(client);
        let _ = connection.send(vec![1; 500]).await;
        held.push(connection);
    }
    let heard = async {
        while told.load(Ordering::Relaxed) < 500 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, heard).await.unwrap_or_else(|_| panic!("{told:?} of 600 were told"));
    assert!(held.iter().all(|c| c.state() == neater::ConnectionState::Established), "no soft error ends anything");
}

#[tokio::test]
async fn tcp_tells_of_no_soft_errors_and_does_not_claim_to() {
    let neater = Neater::new().expect("engine");
    let asks = neater.preconnection().security(SecurityParameters::disabled()).remote(loopback(1));
    let error = asks.stacks(&[Stack::Tcp]).require(SelectionProperty::SoftErrorNotify).initiate().await;
    let error = error.expect_err("TCP cannot").to_string();
    assert!(error.contains("softErrorNotify"), "{error}");
}

/// No host can answer from an address that many hosts share.
#[tokio::test]
async fn a_broadcast_is_answered_from_an_address_of_this_host() {
    let far = Neater::new().expect("engine");
    let listener = datagrams(&far, Stack::Udp).local(anywhere()).listen().expect("listening");
    let client = UdpSocket::bind("127.0.0.1:0").expect("bound");
    client.set_broadcast(true).expect("set");
    client.set_read_timeout(Some(LIMIT)).expect("set");
    client.send_to(b"who is there?", ("127.255.255.255", listener.port())).expect("sent");
    let connection = tokio::time::timeout(LIMIT, listener.accept()).await.expect("soon").expect("accepted");
    connection.send(b"me".to_vec()).await.expect("sent");
    let mut buf = [0; 16];
    let (n, from) = client.recv_from(&mut buf).expect("answered");
    assert_eq!((&buf[..n], from.ip().is_loopback()), (&b"me"[..], true));
}
