use super::*;
use neater_base::net::{Ecn, ErrorKind, RecvBatch, SocketOption, Transmit};

pub(super) fn to(destination: SocketAddr, contents: &[u8]) -> Transmit<'_> {
    Transmit { destination, source: None, interface: None, ecn: Ecn::NotEct, segment_size: None, contents }
}

/// Receives until `bytes` have come; each datagram with what is known of its batch.
pub(super) fn receive(net: &mut OsNet, sock: Sock, bytes: usize) -> Vec<(neater_base::net::RecvMeta, Vec<u8>)> {
    let (mut batch, mut found, mut got) = (RecvBatch::default(), Vec::new(), 0);
    while got < bytes {
        match net.recv(sock, &mut batch) {
            Ok(n) => {
                assert_eq!(n, batch.metas.len());
                for (meta, data) in batch.filled() {
                    got += data.len();
                    found.extend(data.chunks(meta.stride.max(1)).map(|d| (meta, d.to_vec())));
                }
            }
            Err(e) => {
                assert!(e.is_would_block(), "{e:?}");
                assert!(readable(net.as_raw_fd(), PATIENCE), "{got} of {bytes} bytes came");
                net.poll(&mut Vec::new());
            }
        }
    }
    found
}

fn two(net: &mut OsNet, ip: IpAddr) -> (Sock, Sock, SocketAddr) {
    let a = net.udp(Token(1), at(ip), &SocketOptions::default()).unwrap();
    let b = net.udp(Token(2), at(ip), &bound(ip)).unwrap();
    let addr = net.local_addr(b).unwrap();
    (a, b, addr)
}

#[test]
fn a_batch_arrives_datagram_by_datagram_with_all_that_is_known_of_it() {
    for ip in families() {
        for offload in [true, false] {
            let mut net = OsNet::new().unwrap();
            let (a, b, addr) = two(&mut net, ip);
            if !offload {
                // As if the device had refused.
                let index = net.datagram_index(a);
                net.datagrams.get_mut(index).unwrap().offload = false;
                assert_eq!(net.max_segments(a), 1);
            }
            let contents: Vec<u8> = (0..10_u32).flat_map(|i| vec![i as u8; 1000]).take(9_500).collect();
            let transmit = Transmit { segment_size: Some(1000), ecn: Ecn::Ect0, ..to(addr, &contents) };
            net.send(a, &transmit).unwrap();
            let found = receive(&mut net, b, 9_500);
            assert_eq!(found.len(), 10);
            assert_eq!(found.iter().map(|(_, d)| d.len()).collect::<Vec<_>>(), [[1000; 9].as_slice(), &[500]].concat());
            assert_eq!(found.iter().flat_map(|(_, d)| d.clone()).collect::<Vec<_>>(), contents);
            let meta = found[0].0;
            assert_eq!((meta.ecn, meta.local, meta.source.ip()), (Ecn::Ect0, Some(ip), ip));
            assert_eq!(meta.source.port(), net.local_addr(a).unwrap().port());
            let lo = net.interfaces().iter().find(|i| i.name == "lo").map(|i| i.index);
            assert_eq!(meta.interface, lo.or(meta.interface));
        }
    }
}

#[test]
fn a_drained_batch_is_told_of_what_comes_next_without_asking_again() {
    for ip in families() {
        let mut net = OsNet::new().unwrap();
        let (a, b, addr) = two(&mut net, ip);
        let mut batch = RecvBatch::default();
        for round in 0..3 {
            // Different lengths, which the system does not join.
            let lens = |n: usize| (0..n).map(|i| if i % 2 == 0 { 300 } else { 301 });
            for len in lens(batch.buffers.len() + 1) {
                net.send(a, &to(addr, &vec![0; len])).unwrap();
            }
            assert!(readable(net.as_raw_fd(), PATIENCE), "round {round}");
            let mut events = Vec::new();
            net.poll(&mut events);
            let told = |e: &NetEvent| matches!(e, NetEvent::Ready { token: Token(2), ready } if ready.readable);
            assert!(events.iter().any(told), "round {round}: {events:?}");
            assert_eq!((net.recv(b, &mut batch).unwrap(), batch.drained), (batch.buffers.len(), false));
            // Here there is no second call, and the next round is reported all the same.
            assert_eq!((net.recv(b, &mut batch).unwrap(), batch.drained), (1, true));
        }
    }
}

#[test]
fn every_ecn_codepoint_and_the_dscp_arrive_together() {
    for ip in families() {
        let mut net = OsNet::new().unwrap();
        let a = net.udp(Token(1), at(ip), &SocketOptions { set: vec![SocketOption::Dscp(34)], ..bound(ip) }).unwrap();
        let receiver = std::net::UdpSocket::bind((ip, 0)).unwrap();
        let (level, name) = if ip.is_ipv6() {
            (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS)
        } else {
            (libc::IPPROTO_IP, libc::IP_RECVTOS)
        };
        let on: libc::c_int = 1;
        // SAFETY: four readable bytes.
        assert_eq!(unsafe { libc::setsockopt(receiver.as_raw_fd(), level, name, (&raw const on).cast(), 4) }, 0);
        let addr = receiver.local_addr().unwrap();
        for (dscp, ecn) in [(34, Ecn::NotEct), (34, Ecn::Ect1), (46, Ecn::Ect0), (46, Ecn::NotEct), (0, Ecn::Ce)] {
            net.set(a, SocketOption::Dscp(dscp)).unwrap();
            net.send(a, &Transmit { ecn, ..to(addr, b"x") }).unwrap();
            assert_eq!(traffic_class(&receiver), dscp << 2 | ecn as u8, "{dscp} {ecn:?}");
        }
    }
}

/// The whole traffic class of the next datagram.
fn traffic_class(socket: &std::net::UdpSocket) -> u8 {
    let (mut data, mut control) = ([0u8; 16], [0u64; 16]);
    let mut part = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: data.len() };
    // SAFETY: zero is an empty message; its buffers are writable for their lengths; the first
    // control message is the only one asked for, and begins with its value's low byte on either
    // byte order's `u8` or little-endian `int`.
    unsafe {
        let mut message: libc::msghdr = core::mem::zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = 128;
        assert_eq!(libc::recvmsg(socket.as_raw_fd(), &mut message, 0), 1);
        let header = libc::CMSG_FIRSTHDR(&message);
        assert!(!header.is_null());
        match (*header).cmsg_level {
            libc::IPPROTO_IP => *libc::CMSG_DATA(header),
            _ => libc::CMSG_DATA(header).cast::<libc::c_int>().read_unaligned() as u8,
        }
    }
}

#[test]
fn the_source_address_can_be_chosen_and_one_that_is_not_ours_is_refused() {
    let mut net = OsNet::new().unwrap();
    let (a, b, addr) = two(&mut net, V4);
    let source = IpAddr::from([127, 0, 0, 2]);
    net.send(a, &Transmit { source: Some(source), ..to(addr, b"hello") }).unwrap();
    assert_eq!(receive(&mut net, b, 5)[0].0.source.ip(), source);
    let foreign = Transmit { source: Some(IpAddr::from([198, 51, 100, 9])), ecn: Ecn::Ect0, ..to(addr, b"hello") };
    let error = net.send(a, &foreign).unwrap_err();
    assert!(matches!(error.kind, ErrorKind::AddrNotAvailable | ErrorKind::NetworkUnreachable), "{error:?}");
    // Nothing is switched off by that.
    assert!(net.max_segments(a) > 1 || net.max_segments(b) == 1);
    net.send(a, &Transmit { source: None, ..foreign }).unwrap();
    assert_eq!(receive(&mut net, b, 5)[0].0.ecn, Ecn::Ect0);
    if families().len() > 1 {
        let v6 = net.udp(Token(3), at(V6), &bound(V6)).unwrap();
        let addr = net.local_addr(v6).unwrap();
        let foreign = Transmit { source: Some("2001:db8::9".parse().unwrap()), ..to(addr, b"hello") };
        assert_eq!(net.send(v6, &foreign).unwrap_err().kind, ErrorKind::AddrNotAvailable);
        net.send(v6, &Transmit { source: Some(V6), ..foreign }).unwrap();
        assert_eq!(receive(&mut net, v6, 5)[0].0.source.ip(), V6);
    }
}

#[test]
fn the_interface_can_be_chosen_with_the_source_and_one_that_is_not_there_is_refused() {
    let mut net = OsNet::new().unwrap();
    for ip in families() {
        let (a, b, addr) = two(&mut net, ip);
        let is_loopback = |i: &&neater_base::net::Interface| i.addrs.iter().any(|a| a.addr.is_loopback());
        let index = net.interfaces().iter().find(is_loopback).expect("a loopback interface").index;
        let here = Transmit { source: Some(ip), interface: Some(index), ..to(addr, b"hello") };
        net.send(a, &here).unwrap();
        assert_eq!(receive(&mut net, b, 5)[0].0.source.ip(), ip);
        assert!(net.send(a, &Transmit { interface: Some(1 << 20), ..here }).is_err(), "the system has heard which");
    }
}

#[test]
fn a_connected_socket_hears_its_peer_only() {
    let mut net = OsNet::new().unwrap();
    let (a, b, addr) = two(&mut net, V4);
    let c = net.udp(Token(3), at(V4), &bound(V4)).unwrap();
    net.udp_connect(b, net.local_addr(c).unwrap()).unwrap();
    net.send(a, &to(addr, b"stranger")).unwrap();
    net.send(c, &to(addr, b"friend")).unwrap();
    let found = receive(&mut net, b, 6);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].1, b"friend");
    let friend = net.local_addr(c).unwrap();
    net.send(b, &Transmit { ecn: Ecn::Ect1, ..to(friend, b"answer") }).unwrap();
    assert_eq!(receive(&mut net, c, 6)[0].0.ecn, Ecn::Ect1);
    assert_eq!(net.udp_connect(b, SocketAddr::new(V6, 9)).unwrap_err().kind, ErrorKind::FamilyNotSupported);
}

#[test]
fn batches_that_make_no_sense_are_refused_before_they_are_sent() {
    let mut net = OsNet::new().unwrap();
    let (a, b, addr) = two(&mut net, V4);
    let contents = vec![0; 70_000];
    let batch = |segment_size, len: usize| Transmit { segment_size, ..to(addr, &contents[..len]) };
    for (segment_size, len, kind) in [
        (None, 65_508, ErrorKind::MessageTooLarge),
        (Some(65_508), 70_000, ErrorKind::MessageTooLarge),
        (Some(0), 100, ErrorKind::InvalidInput),
        (Some(1), 65, ErrorKind::InvalidInput),
    ] {
        assert_eq!(net.send(a, &batch(segment_size, len)).unwrap_err().kind, kind, "{segment_size:?} {len}");
    }
    let v6 = Transmit { destination: SocketAddr::new(V6, 9), ..batch(None, 1) };
    assert_eq!(net.send(a, &v6).unwrap_err().kind, ErrorKind::FamilyNotSupported);
    let v6 = Transmit { source: Some(V6), ..batch(None, 1) };
    assert_eq!(net.send(a, &v6).unwrap_err().kind, ErrorKind::FamilyNotSupported);
    assert!(net.recv(b, &mut RecvBatch::default()).unwrap_err().is_would_block());
    let mut none = RecvBatch { buffers: Vec::new(), ..RecvBatch::default() };
    assert_eq!(net.recv(b, &mut none).unwrap_err().kind, ErrorKind::InvalidInput);
    // The limits themselves hold; a batch larger than the system takes at once is cut up here.
    net.send(a, &batch(None, 65_507)).unwrap();
    assert_eq!(receive(&mut net, b, 65_507).len(), 1);
    net.send(a, &batch(Some(1), 64)).unwrap();
    assert_eq!(receive(&mut net, b, 64).len(), 64);
    net.send(a, &batch(Some(10_000), 70_000)).unwrap();
    assert_eq!(receive(&mut net, b, 70_000).len(), 7);
}

#[test]
fn an_empty_datagram_is_a_datagram() {
    let mut net = OsNet::new().unwrap();
    let (a, b, addr) = two(&mut net, V4);
    net.send(a, &to(addr, b"")).unwrap();
    let mut batch = RecvBatch::default();
    ready(&mut net, Token(2), |r| r.readable);
    assert_eq!(net.recv(b, &mut batch), Ok(1));
    assert_eq!((batch.metas[0].len, batch.metas[0].stride), (0, 0));
}

#[test]
fn many_datagrams_come_in_batches() {
    let mut net = OsNet::new().unwrap();
    let (a, b, addr) = two(&mut net, V4);
    for i in 0..40u8 {
        net.send(a, &to(addr, &[i; 30])).unwrap();
    }
    let mut batch = RecvBatch::default();
    assert_eq!(net.recv(b, &mut batch), Ok(neater_base::net::BATCH));
    let rest = receive(&mut net, b, 24 * 30);
    assert_eq!(rest.iter().map(|(_, d)| d[0]).collect::<Vec<_>>(), (16..40).collect::<Vec<_>>());
}

#[test]
fn the_icmp_error_of_a_datagram_says_who_refused_what() {
    for ip in families() {
        for connected in [false, true] {
            let mut net = OsNet::new().unwrap();
            let options = SocketOptions { set: vec![SocketOption::IcmpErrors(true)], ..bound(ip) };
            let a = net.udp(Token(1), at(ip), &options).unwrap();
            assert_eq!(net.take_icmp_error(a), None);
            let closed = std::net::UdpSocket::bind((ip, 0)).unwrap().local_addr().unwrap();
            if connected {
                net.udp_connect(a, closed).unwrap();
            }
            net.send(a, &to(closed, b"anyone?")).unwrap();
            ready(&mut net, Token(1), |r| r.error);
            let error = net.take_icmp_error(a).unwrap();
            assert_eq!((error.destination, error.offender), (Some(closed), Some(ip)));
            // Port unreachable: RFC 792 and RFC 4443 section 3.1.
            let expected = if ip.is_ipv6() { (1, 4) } else { (3, 3) };
            assert_eq!((error.icmp_type, error.icmp_code), expected);
            assert_eq!((error.error.kind, error.mtu), (ErrorKind::ConnectionRefused, None));
            assert_eq!(net.take_icmp_error(a), None);
        }
    }
}

#[test]
fn without_the_option_a_connected_socket_learns_of_a_refusal_by_an_error() {
    let mut net = OsNet::new().unwrap();
    let a = net.udp(Token(1), at(V4), &SocketOptions::default()).unwrap();
    let closed = std::net::UdpSocket::bind((V4, 0)).unwrap().local_addr().unwrap();
    net.udp_connect(a, closed).unwrap();
    net.send(a, &to(closed, b"anyone?")).unwrap();
    ready(&mut net, Token(1), |r| r.error);
    assert_eq!(net.take_icmp_error(a), None);
    assert_eq!(net.recv(a, &mut RecvBatch::default()).unwrap_err().kind, ErrorKind::ConnectionRefused);
}

#[test]
fn the_local_address_is_asked_for_once_and_again_when_it_may_have_changed() {
    let lo = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    let mut net = OsNet::new().unwrap();
    let peer = net.udp(Token(1), at(lo), &bound(lo)).unwrap();
    let remote = net.local_addr(peer).unwrap();
    let wildcard = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);
    let sock = net.udp(Token(2), at(lo), &bound(wildcard)).unwrap();
    let before = net.local_addr(sock).unwrap();
    assert!(before.ip().is_unspecified());
    assert_eq!(net.locals.get(sock), Some(before));
    net.udp_connect(sock, remote).unwrap();
    assert_eq!(net.locals.get(sock), None);
    assert_eq!(net.local_addr(sock).unwrap(), SocketAddr::new(remote.ip(), before.port()));
    // The next socket may get the same descriptor.
    net.close(sock);
    let next = net.udp(Token(3), at(lo), &bound(lo)).unwrap();
    assert_eq!(net.locals.get(next), None);
    assert_ne!(net.local_addr(next).unwrap().port(), 0);
    assert!(net.local_addr(sock).is_err());
}
