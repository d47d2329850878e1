//! Router discovery: the two sides, where one is allowed to (it takes `CAP_NET_RAW`). Messages that
//! arrive are a matter of the lab's tests, which have links of their own.

use crate::{Role, RouterDiscovery};
use std::io::ErrorKind;

#[test]
fn each_side_says_what_is_its_own_and_waits_for_nobody() {
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
}
