//! UDP-Lite (RFC 3828) over loopback. On a kernel without it the tests print that and pass.

use super::datagrams::{receive, to};
use super::*;
use neater_base::net::{Ecn, ErrorKind, RecvBatch, SocketOption, Transmit};

const PROTOCOL: u8 = 136;
/// Bytes of the header.
const HEADER: u16 = 8;

/// Whether this kernel has UDP-Lite. Where it is reported as missing, opening fails accordingly.
fn may(net: &mut OsNet) -> bool {
    let obstacle = net.udp_lite_obstacle();
    if let Some(why) = obstacle {
        eprintln!("skipped: {why}");
        let refused = net.udp(Token(9), at(V4), &lite(V4)).map(|_| ()).unwrap_err();
        assert!(matches!(refused.kind, ErrorKind::Unsupported | ErrorKind::PermissionDenied), "{refused:?}");
    }
    obstacle.is_none()
}

fn lite(ip: IpAddr) -> SocketOptions {
    SocketOptions { udp_lite: true, ..bound(ip) }
}

fn with(ip: IpAddr, set: &[SocketOption]) -> SocketOptions {
    SocketOptions { set: set.to_vec(), ..lite(ip) }
}

fn open(net: &mut OsNet, token: u64, options: &SocketOptions) -> (Sock, SocketAddr) {
    let sock = net.udp(Token(token), options.local.unwrap(), options).unwrap();
    (sock, net.local_addr(sock).unwrap())
}

#[test]
fn a_datagram_that_is_covered_in_part_arrives_where_that_is_enough() {
    let mut net = OsNet::new().unwrap();
    if !may(&mut net) {
        return;
    }
    for ip in families() {
        let (sender, _) = open(&mut net, 1, &lite(ip));
        // What the receiver demands, and of datagrams of 8 + 100 bytes that are covered so far,
        // which it gets.
        for (least, gets) in [
            (None, [8, 20, 107, 108, 5000, 0].as_slice()),
            (Some(8), &[8, 20, 107, 108, 5000, 0]),
            (Some(20), &[20, 107, 108, 5000, 0]),
            (Some(0), &[108, 5000, 0]),
            // More than there is: only what is covered whole is enough.
            (Some(200), &[108, 5000, 0]),
        ] {
            let demand: Vec<_> = least.map(SocketOption::MinChecksumCoverage).into_iter().collect();
            let (receiver, addr) = open(&mut net, 2, &with(ip, &demand));
            for coverage in [8, 20, 107, 108, 5000, 0_u16] {
                net.set(sender, SocketOption::ChecksumCoverage(coverage)).unwrap();
                let mut contents = [7; 100];
                contents[..2].copy_from_slice(&coverage.to_be_bytes());
                net.send(sender, &to(addr, &contents)).unwrap();
            }
            let found = receive(&mut net, receiver, 100 * gets.len());
            let coverage = |d: &[u8]| u16::from_be_bytes([d[0], d[1]]);
            assert_eq!(found.iter().map(|(_, d)| coverage(d)).collect::<Vec<_>>(), gets, "{ip} {least:?}");
            assert!(net.recv(receiver, &mut RecvBatch::default()).unwrap_err().is_would_block());
            net.close(receiver);
        }
        net.close(sender);
    }
}

#[test]
fn all_that_is_known_of_a_datagram_of_udp_is_known_of_one_of_udp_lite() {
    let mut net = OsNet::new().unwrap();
    if !may(&mut net) {
        return;
    }
    for ip in families() {
        let (a, from) = open(&mut net, 1, &lite(ip));
        let (b, addr) = open(&mut net, 2, &lite(ip));
        net.set(a, SocketOption::ChecksumCoverage(HEADER)).unwrap();
        assert_eq!(
            (net.max_segments(a), net.max_segments(b)),
            (1, 1),
            "nothing is cut up or put together by the kernel"
        );
        net.set(a, SocketOption::Dscp(10)).unwrap();
        let contents = [7; 250];
        // A train is cut up by us.
        net.send(a, &Transmit { ecn: Ecn::Ect0, source: Some(ip), segment_size: Some(100), ..to(addr, &contents) })
            .unwrap();
        let found = receive(&mut net, b, 250);
        assert_eq!(found.iter().map(|(_, d)| d.len()).collect::<Vec<_>>(), [100, 100, 50]);
        for (meta, _) in found {
            assert_eq!((meta.source, meta.local, meta.ecn), (from, Some(ip), Ecn::Ect0));
            let lo = net.interfaces().iter().find(|i| i.name == "lo").map(|i| i.index);
            assert_eq!(meta.interface, lo.or(meta.interface));
        }
        // A connected socket receives its peer's datagrams only.
        let (stranger, _) = open(&mut net, 3, &lite(ip));
        net.udp_connect(b, from).unwrap();
        net.send(stranger, &to(addr, b"stranger")).unwrap();
        net.send(a, &to(addr, b"peer")).unwrap();
        assert_eq!(receive(&mut net, b, 4)[0].1, b"peer");
        for sock in [a, b, stranger] {
            net.close(sock);
        }
    }
}

#[test]
fn the_ports_of_udp_lite_are_its_own() {
    let mut net = OsNet::new().unwrap();
    if !may(&mut net) {
        return;
    }
    for ip in families() {
        // Another program may have the port of UDP.
        let both = (0..20).find_map(|_| {
            let (light, addr) = open(&mut net, 1, &lite(ip));
            let twin = net.udp(Token(2), addr, &SocketOptions { local: Some(addr), ..SocketOptions::default() });
            if twin.is_err() {
                net.close(light);
            }
            Some((light, twin.ok()?, addr))
        });
        let (light, twin, addr) = both.expect("a port that is free in both");
        let same = SocketOptions { local: Some(addr), ..lite(ip) };
        assert_eq!(net.udp(Token(3), addr, &same).unwrap_err().kind, ErrorKind::AddrInUse);
        let udp = net.udp(Token(4), at(ip), &bound(ip)).unwrap();
        let (sender, _) = open(&mut net, 5, &lite(ip));
        net.send(udp, &to(addr, b"udp")).unwrap();
        net.send(sender, &to(addr, b"lite")).unwrap();
        assert_eq!(receive(&mut net, twin, 3)[0].1, b"udp");
        assert_eq!(receive(&mut net, light, 4)[0].1, b"lite");
        for sock in [light, twin, udp, sender] {
            net.close(sock);
        }
    }
}

#[test]
fn the_icmp_error_of_a_datagram_says_who_refused_what() {
    let mut net = OsNet::new().unwrap();
    if !may(&mut net) {
        return;
    }
    for ip in families() {
        let (a, _) = open(&mut net, 1, &with(ip, &[SocketOption::IcmpErrors(true)]));
        let (gone, closed) = open(&mut net, 2, &lite(ip));
        net.close(gone);
        net.send(a, &to(closed, b"anyone?")).unwrap();
        ready(&mut net, Token(1), |r| r.error);
        let error = net.take_icmp_error(a).unwrap();
        assert_eq!((error.destination, error.offender), (Some(closed), Some(ip)));
        // Port unreachable: RFC 792 and RFC 4443 section 3.1.
        assert_eq!((error.icmp_type, error.icmp_code), if ip.is_ipv6() { (1, 4) } else { (3, 3) });
        assert_eq!((error.error.kind, error.quoted.as_slice()), (ErrorKind::ConnectionRefused, b"anyone?".as_slice()));
        net.close(a);
    }
}

#[test]
fn coverage_reaches_the_socket_and_is_refused_elsewhere() {
    let mut net = OsNet::new().unwrap();
    if !may(&mut net) {
        return;
    }
    let both = |n| [SocketOption::ChecksumCoverage(n), SocketOption::MinChecksumCoverage(n)];
    for ip in families() {
        let (sock, _) = open(&mut net, 1, &with(ip, &both(12)));
        assert_eq!(get(&net, sock, libc::SOL_SOCKET, libc::SO_PROTOCOL), libc::IPPROTO_UDPLITE);
        // UDPLITE_SEND_CSCOV and UDPLITE_RECV_CSCOV.
        let seen = |net: &OsNet| [10, 11].map(|o| get(net, sock, PROTOCOL.into(), o));
        assert_eq!(seen(&net), [12, 12]);
        for bytes in [8, 1000, u16::MAX, 0] {
            for option in both(bytes) {
                net.set(sock, option).unwrap();
            }
            assert_eq!(seen(&net), [libc::c_int::from(bytes); 2]);
        }
        // Less than the header: illegal.
        for bytes in 1..HEADER {
            for option in both(bytes) {
                assert_eq!(net.set(sock, option).unwrap_err().kind, ErrorKind::InvalidInput);
                assert_eq!(net.udp(Token(2), at(ip), &with(ip, &[option])).unwrap_err().kind, ErrorKind::InvalidInput);
            }
        }
        // Its checksum cannot be left out.
        let unchecked = SocketOption::NoUdpChecksum(true);
        assert_eq!(net.set(sock, unchecked).unwrap_err().kind, ErrorKind::Unsupported);
        let udp = net.udp(Token(3), at(ip), &bound(ip)).unwrap();
        let (tcp, peer) = plain_pair(&mut net, ip);
        for option in both(20) {
            for other in [udp, tcp] {
                assert_eq!(net.set(other, option).unwrap_err().kind, ErrorKind::Unsupported);
            }
        }
        for sock in [sock, udp, tcp, peer] {
            net.close(sock);
        }
    }
}

/// A datagram of UDP-Lite without its IP header, from a port of the same address.
fn datagram(from: u16, to: SocketAddr, coverage: u16, contents: &[u8]) -> Vec<u8> {
    let mut datagram = Vec::new();
    for field in [from, to.port(), coverage, 0] {
        datagram.extend(field.to_be_bytes());
    }
    datagram.extend(contents);
    // Addresses, protocol and length, in whatever order: a sum does not mind.
    let mut covered = vec![0, PROTOCOL];
    for _ in 0..2 {
        match to.ip() {
            IpAddr::V4(ip) => covered.extend(ip.octets()),
            IpAddr::V6(ip) => covered.extend(ip.octets()),
        }
    }
    covered.extend((datagram.len() as u16).to_be_bytes());
    let until = if coverage == 0 { datagram.len() } else { datagram.len().min(coverage.into()) };
    covered.extend(&datagram[..until]);
    let sum = match super::forged::checksum(&covered) {
        0 => 0xffff,
        sum => sum,
    };
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    datagram
}

/// A damaged datagram can be sent by a raw socket only, which takes a privilege.
#[test]
fn damage_where_the_checksum_does_not_cover_is_received_and_elsewhere_loses_the_datagram() {
    let mut net = OsNet::new().unwrap();
    if !may(&mut net) {
        return;
    }
    if let Some(why) = net.raw_obstacle(PROTOCOL) {
        eprintln!("skipped: {why}");
        return;
    }
    for ip in families() {
        let raw = net.raw(Token(1), PROTOCOL, at(ip), &bound(ip)).unwrap();
        let (receiver, addr) = open(&mut net, 2, &lite(ip));
        let sound = [7; 40];
        // Coverage, and the byte of the datagram that is damaged; whether it arrives.
        for (coverage, at, arrives) in [
            (8, 8, true),
            (20, 19, false),
            (20, 20, true),
            (20, 47, true),
            (20, 3, false),
            (20, 5, false),
            (0, 47, false),
            (48, 47, false),
        ] {
            let mut damaged = datagram(4711, addr, coverage, &sound);
            damaged[at] ^= 1;
            net.send(raw, &to(addr, &damaged)).unwrap();
            net.send(raw, &to(addr, &datagram(4711, addr, 0, b"sound"))).unwrap();
            let found = receive(&mut net, receiver, 5 + if arrives { 40 } else { 0 });
            assert_eq!(found.len(), 1 + usize::from(arrives), "{ip} {coverage} {at}");
            if arrives {
                assert_eq!(found[0].1, damaged[8..]);
            }
            assert_eq!(found[usize::from(arrives)].1, b"sound");
        }
        // Coverage that is less than the header or more than the datagram is illegal (RFC 3828
        // section 3.1).
        for coverage in [1, 7, 49] {
            net.send(raw, &to(addr, &datagram(4711, addr, coverage, &sound))).unwrap();
        }
        net.send(raw, &to(addr, &datagram(4711, addr, 8, b"sound"))).unwrap();
        assert_eq!(receive(&mut net, receiver, 5)[0].1, b"sound");
        // A sent datagram states its checksum coverage, and has the checksum of that.
        for coverage in [8, 20, 0] {
            net.set(receiver, SocketOption::ChecksumCoverage(coverage)).unwrap();
            net.send(receiver, &to(addr, &sound)).unwrap();
            let expected = datagram(addr.port(), addr, coverage, &sound);
            // The socket is given what others send, too.
            let seen = loop {
                let mut all = receive(&mut net, raw, 1).into_iter().map(|(_, d)| d);
                if let Some(ours) = all.find(|d| d[..4] == expected[..4]) {
                    break ours;
                }
            };
            assert_eq!(seen, expected);
        }
        net.close(raw);
        net.close(receiver);
    }
}
