//! Router discovery over the loopback, where one is allowed to (it takes `CAP_NET_RAW`).

use crate::{Role, RouterDiscovery};
use std::io::ErrorKind;
use std::time::{Duration, Instant};

#[test]
fn an_advertisement_arrives_with_its_interface_source_and_hop_limit() {
    let host = match RouterDiscovery::open(Role::Host) {
        Err(e) if e.kind() == ErrorKind::PermissionDenied => return println!("SKIP: no raw sockets: {e}"),
        host => host.expect("a socket"),
    };
    let router = RouterDiscovery::open(Role::Router).expect("a socket");
    router.bind_to("lo").expect("the loopback is there");
    host.bind_to("lo").expect("the loopback is there");
    assert!(router.bind_to("no-such-interface").is_err());
    let mut buffer = [0; 1500];
    assert!(host.receive(&mut buffer).expect("nothing").is_none());
    assert_eq!(router.solicit(1).expect_err("a router").kind(), ErrorKind::InvalidInput);
    assert_eq!(host.advertise(1, &[]).expect_err("a host").kind(), ErrorKind::InvalidInput);
    // No multicast comes back on the loopback with the socket's own loop off; a message to the address itself does.
    let sent = super::super::routers::advertise_to_loopback(&router, &[134, 0, 0, 0, 64, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0]);
    sent.expect("sent");
    let end = Instant::now() + Duration::from_secs(5);
    let (message, from) = loop {
        let mut buffer = [0; 1500];
        if let Some((message, from)) = host.receive(&mut buffer).expect("received") {
            break (message.to_vec(), from);
        }
        assert!(Instant::now() < end, "nothing came");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!((message.len(), message[0], message[7]), (16, 134, 9));
    assert_ne!(message[2..4], [0, 0], "the system has computed the checksum");
    assert_eq!((from.source, from.interface), (std::net::Ipv6Addr::LOCALHOST, 1));
}
