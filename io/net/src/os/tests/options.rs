//! Every option is seen on the socket by `getsockopt`.

use super::*;
use neater_base::net::{ErrorKind, SocketOption};

fn udp(net: &mut OsNet, ip: IpAddr) -> Sock {
    net.udp(Token(9), at(ip), &SocketOptions::default()).unwrap()
}

#[track_caller]
fn refused(net: &mut OsNet, sock: Sock, option: SocketOption, kind: ErrorKind) {
    assert_eq!(net.set(sock, option).map_err(|e| e.kind), Err(kind), "{option:?}");
}

#[test]
fn stream_options_reach_the_socket_and_are_refused_elsewhere() {
    for ip in families() {
        let mut net = OsNet::new().unwrap();
        let (c, _) = plain_pair(&mut net, ip);
        let tcp = libc::IPPROTO_TCP;
        for on in [true, false] {
            net.set(c, SocketOption::NoDelay(on)).unwrap();
            assert_eq!(get(&net, c, tcp, libc::TCP_NODELAY) != 0, on);
        }
        net.set(c, SocketOption::KeepAlive(Some(Duration::from_millis(59_500)))).unwrap();
        assert_eq!(get(&net, c, libc::SOL_SOCKET, libc::SO_KEEPALIVE), 1);
        assert_eq!(get(&net, c, tcp, libc::TCP_KEEPIDLE), 60);
        assert_eq!(get(&net, c, tcp, libc::TCP_KEEPINTVL), 6);
        assert_eq!(get(&net, c, tcp, libc::TCP_KEEPCNT), 9);
        net.set(c, SocketOption::KeepAlive(Some(Duration::ZERO))).unwrap();
        assert_eq!((get(&net, c, tcp, libc::TCP_KEEPIDLE), get(&net, c, tcp, libc::TCP_KEEPINTVL)), (1, 1));
        net.set(c, SocketOption::KeepAlive(Some(Duration::MAX))).unwrap();
        assert_eq!(get(&net, c, tcp, libc::TCP_KEEPIDLE), 32_767);
        net.set(c, SocketOption::KeepAlive(None)).unwrap();
        assert_eq!(get(&net, c, libc::SOL_SOCKET, libc::SO_KEEPALIVE), 0);

        for (asked, millis) in [
            (Some(Duration::from_secs(30)), 30_000),
            (Some(Duration::from_nanos(1)), 1),
            (Some(Duration::MAX), libc::c_int::MAX),
            (None, 0),
        ] {
            net.set(c, SocketOption::UserTimeout(asked)).unwrap();
            assert_eq!(get(&net, c, tcp, libc::TCP_USER_TIMEOUT), millis);
        }
        net.set(c, SocketOption::NotSentLowWater(16_384)).unwrap();
        assert_eq!(get(&net, c, tcp, libc::TCP_NOTSENT_LOWAT), 16_384);

        let u = udp(&mut net, ip);
        for option in [
            SocketOption::NoDelay(true),
            SocketOption::KeepAlive(None),
            SocketOption::UserTimeout(None),
            SocketOption::NotSentLowWater(1),
        ] {
            refused(&mut net, u, option, ErrorKind::Unsupported);
        }
    }
}

#[test]
fn buffers_are_enlarged_as_far_as_the_system_lets() {
    let mut net = OsNet::new().unwrap();
    for sock in [udp(&mut net, V4), plain_pair(&mut net, V4).0] {
        // The kernel doubles what is asked for (socket(7)), up to twice its limit, which is at
        // least this on any system.
        net.set(sock, SocketOption::ReceiveBuffer(50_000)).unwrap();
        assert_eq!(get(&net, sock, libc::SOL_SOCKET, libc::SO_RCVBUF), 100_000);
        net.set(sock, SocketOption::SendBuffer(60_000)).unwrap();
        assert_eq!(get(&net, sock, libc::SOL_SOCKET, libc::SO_SNDBUF), 120_000);
        net.set(sock, SocketOption::SendBuffer(usize::MAX)).unwrap();
        assert!(get(&net, sock, libc::SOL_SOCKET, libc::SO_SNDBUF) > 120_000);
    }
}

#[test]
fn the_codepoint_is_set_beside_the_ecn_bits() {
    for ip in families() {
        let mut net = OsNet::new().unwrap();
        let (level, name) =
            if ip.is_ipv6() { (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) } else { (libc::IPPROTO_IP, libc::IP_TOS) };
        for sock in [udp(&mut net, ip), plain_pair(&mut net, ip).0] {
            net.set(sock, SocketOption::Dscp(46)).unwrap();
            assert_eq!(get(&net, sock, level, name) & !3, 46 << 2);
            net.set(sock, SocketOption::Dscp(0)).unwrap();
            assert_eq!(get(&net, sock, level, name) & !3, 0);
            refused(&mut net, sock, SocketOption::Dscp(64), ErrorKind::InvalidInput);
        }
        let u = udp(&mut net, ip);
        let ect1: libc::c_int = 1;
        // SAFETY: four readable bytes.
        assert_eq!(unsafe { libc::setsockopt(fd(&net, u), level, name, (&raw const ect1).cast(), 4) }, 0);
        net.set(u, SocketOption::Dscp(10)).unwrap();
        assert_eq!(get(&net, u, level, name), 10 << 2 | 1);
    }
}

#[test]
fn the_rank_in_the_queues_of_this_host_is_set_as_far_as_it_needs_no_privilege() {
    for ip in families() {
        let mut net = OsNet::new().unwrap();
        for sock in [udp(&mut net, ip), plain_pair(&mut net, ip).0] {
            for rank in [6, 2, 0] {
                net.set(sock, SocketOption::Priority(rank)).unwrap();
                assert_eq!(get(&net, sock, libc::SOL_SOCKET, libc::SO_PRIORITY), libc::c_int::from(rank));
            }
            refused(&mut net, sock, SocketOption::Priority(7), ErrorKind::InvalidInput);
        }
    }
}

#[test]
fn fragmentation_is_forbidden_and_allowed_again() {
    for ip in families() {
        let mut net = OsNet::new().unwrap();
        let (level, name) = if ip.is_ipv6() {
            (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER)
        } else {
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER)
        };
        let (u, c) = (udp(&mut net, ip), plain_pair(&mut net, ip).0);
        assert_eq!(get(&net, u, level, name), libc::IP_PMTUDISC_WANT, "nothing asked for, nothing changed");
        for sock in [u, c] {
            net.set(sock, SocketOption::DontFragment(true)).unwrap();
        }
        assert_eq!(get(&net, u, level, name), libc::IP_PMTUDISC_PROBE);
        assert_eq!(get(&net, c, level, name), libc::IP_PMTUDISC_DO);
        if ip.is_ipv6() {
            assert_eq!(get(&net, u, level, libc::IPV6_DONTFRAG), 1);
        }
        for sock in [u, c] {
            net.set(sock, SocketOption::DontFragment(false)).unwrap();
            assert_eq!(get(&net, sock, level, name), libc::IP_PMTUDISC_WANT);
        }
        if ip.is_ipv6() {
            assert_eq!(get(&net, u, level, libc::IPV6_DONTFRAG), 0);
        }
    }
}

#[test]
fn icmp_errors_are_asked_for_and_refrained_from() {
    for ip in families() {
        let mut net = OsNet::new().unwrap();
        let (level, name) =
            if ip.is_ipv6() { (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) } else { (libc::IPPROTO_IP, libc::IP_RECVERR) };
        for sock in [udp(&mut net, ip), plain_pair(&mut net, ip).0] {
            for on in [true, false] {
                net.set(sock, SocketOption::IcmpErrors(on)).unwrap();
                assert_eq!(get(&net, sock, level, name) != 0, on);
            }
        }
    }
}

#[test]
fn the_udp_checksum_can_be_left_out_over_ipv4_only() {
    let mut net = OsNet::new().unwrap();
    let u = udp(&mut net, V4);
    for on in [true, false] {
        net.set(u, SocketOption::NoUdpChecksum(on)).unwrap();
        assert_eq!(get(&net, u, libc::SOL_SOCKET, libc::SO_NO_CHECK) != 0, on);
    }
    let c = plain_pair(&mut net, V4).0;
    refused(&mut net, c, SocketOption::NoUdpChecksum(true), ErrorKind::Unsupported);
    if families().len() > 1 {
        let u = udp(&mut net, V6);
        refused(&mut net, u, SocketOption::NoUdpChecksum(true), ErrorKind::Unsupported);
    }
}

#[test]
fn what_is_asked_for_at_the_opening_is_set_before_it() {
    for ip in families() {
        let mut net = OsNet::new().unwrap();
        let set = vec![
            SocketOption::NoDelay(true),
            SocketOption::KeepAlive(Some(Duration::from_secs(100))),
            SocketOption::UserTimeout(Some(Duration::from_secs(7))),
            SocketOption::ReceiveBuffer(40_000),
            SocketOption::Dscp(12),
        ];
        let both = SocketOptions { set, reuse_address: true, ..SocketOptions::default() };
        let client = SocketOptions { local: Some(at(ip)), ..both.clone() };
        let (l, c, s) = pair(&mut net, ip, &both, &client);
        // An accepted connection inherits its listener's.
        for sock in [l, c, s] {
            assert_ne!(get(&net, sock, libc::IPPROTO_TCP, libc::TCP_NODELAY), 0);
            assert_eq!(get(&net, sock, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE), 100);
            assert_eq!(get(&net, sock, libc::SOL_SOCKET, libc::SO_KEEPALIVE), 1);
            assert_eq!(get(&net, sock, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT), 7000);
            assert_eq!(get(&net, sock, libc::SOL_SOCKET, libc::SO_RCVBUF), 80_000);
            assert_eq!(get(&net, sock, libc::SOL_SOCKET, libc::SO_REUSEPORT), 1);
            assert_eq!(get(&net, sock, libc::SOL_SOCKET, libc::SO_REUSEADDR), 1);
        }
        assert_eq!(get(&net, c, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT), 1);
        assert_eq!(net.local_addr(c).unwrap().ip(), ip);
        let plain = net.listen(Token(7), at(ip), &SocketOptions::default()).unwrap();
        assert_eq!(get(&net, plain, libc::SOL_SOCKET, libc::SO_REUSEADDR), 1, "always on a listener");
        assert_eq!(get(&net, plain, libc::SOL_SOCKET, libc::SO_REUSEPORT), 0);
        let bad = SocketOptions { set: vec![SocketOption::Dscp(99)], ..SocketOptions::default() };
        assert_eq!(net.connect(Token(8), SocketAddr::new(ip, 9), &bad).unwrap_err().kind, ErrorKind::InvalidInput);
        assert_eq!(net.listen(Token(8), at(ip), &bad).unwrap_err().kind, ErrorKind::InvalidInput);
        assert_eq!(net.udp(Token(8), at(ip), &bad).unwrap_err().kind, ErrorKind::InvalidInput);
    }
}

#[test]
fn a_listener_queues_as_many_as_it_was_told_to() {
    let mut net = OsNet::new().unwrap();
    for (asked, backlog) in [(None, 1024), (Some(3), 3)] {
        let options = SocketOptions { backlog: asked, ..SocketOptions::default() };
        let l = net.listen(Token(1), at(V4), &options).unwrap();
        // For a listener, `tcpi_sacked` of TCP_INFO is the limit of its queue.
        let (mut info, mut len) = ([0u32; 32], 128);
        // SAFETY: room for `len` bytes.
        let result = unsafe {
            libc::getsockopt(fd(&net, l), libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &mut len)
        };
        assert_eq!(result, 0);
        let somaxconn: u32 = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse().unwrap();
        assert_eq!(info[7], backlog.min(somaxconn));
    }
}

#[test]
fn a_socket_is_tied_to_the_interface_that_was_asked_for() {
    let mut net = OsNet::new().unwrap();
    let Some(lo) = net.interfaces().iter().find(|i| i.name == "lo").map(|i| i.index) else {
        eprintln!("skipped: this process may not ask for interfaces");
        return;
    };
    for ip in families() {
        let tied = SocketOptions { interface: Some(lo), ..bound(ip) };
        let u = net.udp(Token(1), at(ip), &tied).unwrap();
        // SO_BINDTOIFINDEX.
        assert_eq!(get(&net, u, libc::SOL_SOCKET, 62), lo as libc::c_int);
        let (l, c, s) = pair(&mut net, ip, &SocketOptions::default(), &tied);
        assert_eq!(get(&net, c, libc::SOL_SOCKET, 62), lo as libc::c_int);
        for sock in [u, l, c, s] {
            net.close(sock);
        }
        for index in [0, u32::MAX] {
            let nowhere = SocketOptions { interface: Some(index), ..bound(ip) };
            assert_eq!(net.udp(Token(1), at(ip), &nowhere).unwrap_err().kind, ErrorKind::InvalidInput);
        }
        let nowhere = SocketOptions { interface: Some(1_000_000), ..bound(ip) };
        assert_eq!(net.udp(Token(1), at(ip), &nowhere).unwrap_err().kind, ErrorKind::NetworkDown);
    }
}

#[test]
fn temporary_source_addresses_are_preferred_or_avoided() {
    if families().len() < 2 {
        return;
    }
    let mut net = OsNet::new().unwrap();
    for (asked, bits) in [(Some(true), libc::IPV6_PREFER_SRC_TMP), (Some(false), libc::IPV6_PREFER_SRC_PUBLIC)] {
        let options = SocketOptions { temporary_address: asked, ..SocketOptions::default() };
        let u = net.udp(Token(1), at(V6), &options).unwrap();
        assert_eq!(get(&net, u, libc::IPPROTO_IPV6, libc::IPV6_ADDR_PREFERENCES) & 3, bits);
        // IPv4 has no such thing, and nothing to prefer.
        net.udp(Token(2), at(V4), &options).unwrap();
    }
}
