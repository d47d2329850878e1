use super::*;
use neater_base::net::{DirectStream as _, ErrorKind, NetError};
use std::io::IoSlice;

fn kind<T: core::fmt::Debug>(result: Result<T, NetError>) -> ErrorKind {
    result.unwrap_err().kind
}

#[test]
fn a_connection_carries_bytes_both_ways_and_ends_one_direction_at_a_time() {
    for ip in families() {
        let mut net = OsNet::new().unwrap();
        let (c, s) = plain_pair(&mut net, ip);
        let mut buf = [0; 64];
        assert_eq!(kind(net.read(s, &mut buf)), ErrorKind::WouldBlock);

        assert_eq!(net.write(c, &[IoSlice::new(b"one")]), Ok(3));
        ready(&mut net, Token(2), |r| r.readable);
        assert_eq!(net.read(s, &mut buf), Ok(3));
        assert_eq!(&buf[..3], b"one");

        assert_eq!(net.write(s, &[IoSlice::new(b"two"), IoSlice::new(b""), IoSlice::new(b" three")]), Ok(9));
        net.shutdown_write(s).unwrap();
        ready(&mut net, Token(1), |r| r.readable && r.hangup);
        assert_eq!(net.read(c, &mut buf), Ok(9));
        assert_eq!(&buf[..9], b"two three");
        assert_eq!(net.read(c, &mut buf), Ok(0));
        assert_eq!(net.write(c, &[IoSlice::new(b"still open")]), Ok(10));
        assert_eq!(net.write(c, &[]), Ok(0));
        assert_eq!(kind(net.read(c, &mut [])), ErrorKind::InvalidInput);
        net.close(c);
        net.close(s);
    }
}

#[test]
fn how_a_connection_ended_is_known_when_it_is_reported_and_not_before() {
    let mut net = OsNet::new().unwrap();
    let l = net.listen(Token(0), at(V4), &SocketOptions::default()).unwrap();
    let to = net.local_addr(l).unwrap();
    let c = net.connect(Token(1), to, &SocketOptions::default()).unwrap();
    assert_eq!(kind(net.connect_result(c)), ErrorKind::WouldBlock);
    ready(&mut net, Token(1), |r| r.writable);
    assert_eq!(net.connect_result(c), Ok(()));
    assert_eq!(net.connect_result(c), Ok(()), "and stays known");
    assert_eq!(kind(net.connect_result(l)), ErrorKind::InvalidInput);

    net.close(l);
    let c = net.connect(Token(3), to, &SocketOptions::default()).unwrap();
    ready(&mut net, Token(3), |r| r.writable && r.error);
    assert_eq!(kind(net.connect_result(c)), ErrorKind::ConnectionRefused);
    assert_eq!(kind(net.connect_result(c)), ErrorKind::NotConnected);
}

#[test]
fn an_ipv4_address_in_ipv6_form_is_reached_over_ipv4() {
    let mut net = OsNet::new().unwrap();
    let l = net.listen(Token(0), at(V4), &SocketOptions::default()).unwrap();
    let to = net.local_addr(l).unwrap();
    let mapped = SocketAddr::new(Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(), to.port());
    let c = net.connect(Token(1), mapped, &SocketOptions::default()).unwrap();
    ready(&mut net, Token(1), |r| r.writable);
    assert_eq!(net.connect_result(c), Ok(()));
    assert!(net.local_addr(c).unwrap().is_ipv4());
}

#[test]
fn an_aborted_connection_resets_its_peer() {
    let mut net = OsNet::new().unwrap();
    let (c, s) = plain_pair(&mut net, V4);
    net.abort(c);
    ready(&mut net, Token(2), |r| r.hangup && r.error);
    assert_eq!(kind(net.read(s, &mut [0; 8])), ErrorKind::ConnectionReset);
    assert_eq!(kind(net.write(s, &[IoSlice::new(b"x")])), ErrorKind::BrokenPipe);
    assert_eq!(kind(net.stream_info(s)), ErrorKind::NotConnected);
}

#[test]
fn a_closed_connection_still_delivers_what_was_written() {
    let mut net = OsNet::new().unwrap();
    let (c, s) = plain_pair(&mut net, V4);
    net.write(c, &[IoSlice::new(b"last words")]).unwrap();
    net.close(c);
    ready(&mut net, Token(2), |r| r.hangup);
    let mut buf = [0; 32];
    assert_eq!(net.read(s, &mut buf), Ok(10));
    assert_eq!(net.read(s, &mut buf), Ok(0));
}

/// A stream of ours and, as the peer, one of the standard library's.
fn with_std(net: &mut OsNet) -> (Sock, std::net::TcpStream) {
    let l = std::net::TcpListener::bind(at(V4)).unwrap();
    let c = net.connect(Token(1), l.local_addr().unwrap(), &SocketOptions::default()).unwrap();
    ready(net, Token(1), |r| r.writable);
    (c, l.accept().unwrap().0)
}

/// Waits until the kernel has `n` bytes for the stream, without looking at its readiness.
fn arrived(net: &OsNet, sock: Sock, n: i32) {
    let fd = net.slots.get(sock).unwrap().0;
    let (mut got, end) = (0, std::time::Instant::now() + PATIENCE);
    while got < n && std::time::Instant::now() < end {
        // SAFETY: `got` is an integer, as the request wants it.
        assert_eq!(unsafe { libc::ioctl(fd, libc::FIONREAD, &mut got) }, 0);
    }
    assert!(got >= n, "{got} of {n} bytes have come");
}

#[test]
fn a_short_read_has_taken_all_and_what_comes_then_is_reported() {
    use std::io::Write;
    let mut net = OsNet::new().unwrap();
    let (c, mut peer) = with_std(&mut net);
    let mut buf = [0; 64];
    for round in 0..3 {
        peer.write_all(b"some").unwrap();
        ready(&mut net, Token(1), |r| r.readable);
        assert_eq!(net.read(c, &mut buf), Ok(4), "round {round}");
        peer.write_all(b"more").unwrap();
        arrived(&net, c, 4);
        // The system is not asked: it would give the four bytes. They have made an edge, though.
        assert_eq!(kind(net.read(c, &mut buf)), ErrorKind::WouldBlock);
        ready(&mut net, Token(1), |r| r.readable);
        // A read that fills its room may have left something.
        assert_eq!(net.read(c, &mut buf[..2]), Ok(2));
        assert_eq!(net.read(c, &mut buf[..2]), Ok(2));
        assert_eq!(kind(net.read(c, &mut buf)), ErrorKind::WouldBlock);
    }
}

#[test]
fn an_end_that_came_with_the_last_bytes_is_found_without_another_report() {
    use std::io::Write;
    for with_direct in [false, true] {
        let mut net = OsNet::new().unwrap();
        let (c, mut peer) = with_std(&mut net);
        let direct = with_direct.then(|| net.direct_stream(c).unwrap());
        peer.write_all(b"last words").unwrap();
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        ready(&mut net, Token(1), |r| r.readable && r.hangup);
        let mut buf = [0; 64];
        if let Some(direct) = direct {
            direct.open(false, true);
            assert_eq!(direct.read(&mut buf).map(usize::from), Some(10));
            assert_eq!(direct.read(&mut buf), None, "the end is for the owner");
        } else {
            assert_eq!(net.read(c, &mut buf), Ok(10));
        }
        assert_eq!(net.read(c, &mut buf), Ok(0));
    }
}

#[test]
fn a_lane_that_read_all_there_was_tells_its_owner_until_more_is_reported() {
    use std::io::Write;
    let mut net = OsNet::new().unwrap();
    let (c, mut peer) = with_std(&mut net);
    let direct: Box<dyn std::any::Any> = net.direct_stream(c).unwrap();
    let direct = direct.downcast::<crate::OsDirectStream>().expect("byte streams look for it by this type");
    let mut buf = [0; 64];
    for round in 0..3 {
        peer.write_all(b"some").unwrap();
        ready(&mut net, Token(1), |r| r.readable);
        direct.open(false, true);
        assert!(!direct.is_dry(), "nobody has found that");
        assert_eq!(direct.read(&mut buf).map(usize::from), Some(4), "round {round}");
        peer.write_all(b"more").unwrap();
        arrived(&net, c, 4);
        assert_eq!(direct.read(&mut buf), None);
        assert!(direct.is_dry(), "it has not been reported");
        direct.open(false, true);
        assert_eq!(direct.read(&mut buf), None, "opening it does not change that");
        assert!(direct.is_dry());
        if round > 0 {
            assert_eq!(kind(net.read(c, &mut buf)), ErrorKind::WouldBlock);
        }
        ready(&mut net, Token(1), |r| r.readable);
        assert!(!direct.is_dry());
        assert_eq!(net.read(c, &mut buf), Ok(4));
    }
}

#[test]
fn a_lane_that_its_owner_has_closed_is_not_dry() {
    use std::io::Write;
    let mut net = OsNet::new().unwrap();
    let (c, mut peer) = with_std(&mut net);
    let direct = net.direct_stream(c).unwrap();
    let mut buf = [0; 64];
    for _ in 0..2 {
        peer.write_all(b"some").unwrap();
        ready(&mut net, Token(1), |r| r.readable);
        direct.open(false, true);
        assert_eq!(direct.read(&mut []), None, "there is no room for anything");
        assert_eq!(direct.read(&mut buf).map(usize::from), Some(4), "and that is all that it says");
        assert!(direct.is_dry());
    }
    direct.close();
    assert!(!direct.is_dry(), "whoever waits is to ask the owner");
    direct.open(false, true);
    assert!(direct.is_dry(), "what the system has said still holds");
    net.close(c);
    assert!(!direct.is_dry());
}

#[test]
fn reading_into_nothing_says_nothing_of_a_lane() {
    let mut net = OsNet::new().unwrap();
    let (c, _peer) = with_std(&mut net);
    let direct = net.direct_stream(c).unwrap();
    direct.open(false, true);
    assert_eq!(direct.read(&mut []), None);
    // It is still open: this asks the system.
    assert_eq!(direct.read(&mut [0; 8]), None);
    assert!(direct.is_dry());
}

#[test]
fn urgent_data_in_the_middle_does_not_hide_what_follows_it() {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    let mut net = OsNet::new().unwrap();
    let (c, mut peer) = with_std(&mut net);
    for _ in 0..2 {
        peer.write_all(b"before").unwrap();
        // SAFETY: one readable byte.
        assert_eq!(unsafe { libc::send(peer.as_raw_fd(), b"!".as_ptr().cast(), 1, libc::MSG_OOB) }, 1);
        peer.write_all(b"after").unwrap();
        // The urgent byte is not in line.
        arrived(&net, c, 6);
        let (mut got, mut buf) = (Vec::new(), [0; 64]);
        while got.len() < 11 {
            // Only what is reported is read, to its end.
            ready(&mut net, Token(1), |r| r.readable);
            while let Ok(n) = net.read(c, &mut buf) {
                got.extend_from_slice(&buf[..n]);
            }
        }
        assert_eq!(got, b"beforeafter");
    }
}

#[test]
fn a_stream_that_was_read_in_time_wakes_nobody_because_it_may_be_written() {
    let mut net = OsNet::new().unwrap();
    let (c, s) = plain_pair(&mut net, V4);
    until(&mut net, "quiet", |_| true);
    // One that connected has been watched for room, which ends with the first report that was for
    // nothing.
    for (from, to, token, spared) in [(c, s, Token(2), 0), (s, c, Token(1), 1)] {
        let (mut for_nothing, mut buf) = (0, [0; 64]);
        for _ in 0..5 {
            net.write(from, &[IoSlice::new(b"some")]).unwrap();
            ready(&mut net, token, |r| r.readable);
            net.write(from, &[IoSlice::new(b"more")]).unwrap();
            arrived(&net, to, 8);
            assert_eq!(net.read(to, &mut buf), Ok(8));
            if readable(net.as_raw_fd(), Duration::from_millis(20)) {
                for_nothing += 1;
                until(&mut net, "quiet", |_| true);
            }
        }
        assert!(for_nothing <= spared, "{for_nothing} of 5");
    }
}

#[test]
fn a_writer_that_had_to_stop_is_told_when_there_is_room_again() {
    for accepted in [false, true] {
        for with_direct in [false, true] {
            stop_and_go(accepted, with_direct);
        }
    }
}

/// Writes on one side of a connection, or on its direct stream, until nothing is taken, and reads
/// on the other.
fn stop_and_go(accepted: bool, with_direct: bool) {
    let mut net = OsNet::new().unwrap();
    let (c, s) = plain_pair(&mut net, V4);
    let (c, s, token) = if accepted { (s, c, Token(2)) } else { (c, s, Token(1)) };
    until(&mut net, "quiet", |_| true);
    let block = [7u8; 65_536];
    let mut written = 0;
    if with_direct {
        let direct = net.direct_stream(c).unwrap();
        direct.open(true, false);
        while let Some(n) = direct.write(&block) {
            written += n.get();
        }
    }
    while let Ok(n) = net.write(c, &[IoSlice::new(&block)]) {
        written += n;
    }
    assert_eq!(kind(net.write(c, &[IoSlice::new(&block), IoSlice::new(&block)])), ErrorKind::WouldBlock);
    let info = net.stream_info(c).unwrap();
    assert!(info.in_flight.unwrap() > 0 && info.in_flight.unwrap() <= written as u64);
    let (mut read, mut buf, mut told) = (0, vec![0; 65_536], false);
    let mut events = Vec::new();
    while read < written {
        match net.read(s, &mut buf) {
            Ok(n) => read += n,
            Err(_) => {
                readable(net.as_raw_fd(), PATIENCE);
            }
        }
        net.poll(&mut events);
        told |=
            events.drain(..).any(|e| matches!(e, NetEvent::Ready { token: t, ready } if t == token && ready.writable));
    }
    assert_eq!(read, written);
    assert!(told, "accepted: {accepted}, laned: {with_direct}");
}

#[test]
fn what_the_system_knows_of_a_stream_is_told() {
    for ip in families() {
        let mut net = OsNet::new().unwrap();
        let (c, s) = plain_pair(&mut net, ip);
        for _ in 0..4 {
            net.write(c, &[IoSlice::new(&[1; 50_000])]).unwrap();
            ready(&mut net, Token(2), |r| r.readable);
            let mut got = 0;
            while got < 50_000 {
                match net.read(s, &mut [0; 65_536]) {
                    Ok(n) => got += n,
                    Err(_) => assert!(readable(net.as_raw_fd(), PATIENCE)),
                }
                net.poll(&mut Vec::new());
            }
        }
        let info = net.stream_info(c).unwrap();
        assert!(info.rtt.is_some_and(|rtt| rtt < Duration::from_secs(1)), "{info:?}");
        assert!(info.rtt_var.is_some() && info.congestion_window.is_some_and(|w| w > 1000));
        assert!(info.retransmits == Some(0) && info.path_mtu.is_some_and(|mtu| mtu >= 65_535), "{info:?}");
        assert!(info.in_flight.is_some() && info.delivery_rate.is_some());
        // The acknowledgement of the last bytes may be on its way.
        assert!(info.acknowledged.is_some_and(|n| (100_000..=200_002).contains(&n)), "{info:?}");
        assert!(info.last_heard.is_some_and(|ago| ago < PATIENCE), "{info:?}");
    }
}

#[test]
fn a_handle_of_a_closed_socket_finds_nothing_although_its_descriptor_is_used_again() {
    let mut net = OsNet::new().unwrap();
    let any = SocketOptions::default();
    // The system gives the lowest free number, which another test may have taken in the meantime.
    let again = |net: &mut OsNet| {
        let old = net.udp(Token(1), at(V4), &any).unwrap();
        let number = fd(net, old);
        net.close(old);
        let new = net.udp(Token(2), at(V4), &any).unwrap();
        if fd(net, new) == number {
            return Some((old, new));
        }
        net.close(new);
        None
    };
    let (old, new) = (0..1000).find_map(|_| again(&mut net)).expect("the same number twice");
    assert_eq!(kind(net.local_addr(old)), ErrorKind::NotConnected);
    assert_eq!(kind(net.read(old, &mut [0; 1])), ErrorKind::NotConnected);
    net.close(old);
    net.abort(old);
    assert!(net.local_addr(new).is_ok());
    assert_eq!(kind(net.read(new, &mut [0; 1])), ErrorKind::InvalidInput, "a datagram socket is no stream");
}

#[test]
fn a_closed_socket_is_never_reported_even_if_another_process_still_holds_it() {
    let mut net = OsNet::new().unwrap();
    let (c, s) = plain_pair(&mut net, V4);
    until(&mut net, "quiet", |_| true);
    // As a child of `fork` would.
    // SAFETY: takes a number.
    let copy = unsafe { libc::dup(fd(&net, c)) };
    net.write(s, &[IoSlice::new(b"news")]).unwrap();
    net.close(c);
    let mut events = Vec::new();
    for _ in 0..3 {
        readable(net.as_raw_fd(), Duration::from_millis(20));
        net.poll(&mut events);
    }
    assert!(!events.iter().any(|e| matches!(e, NetEvent::Ready { token: Token(1), .. })), "{events:?}");
    sys_close(copy);
}

fn sys_close(fd: i32) {
    crate::sys::close(fd);
}

#[test]
fn a_port_in_use_is_refused_and_can_be_shared_when_both_say_so() {
    let mut net = OsNet::new().unwrap();
    let shared = SocketOptions { reuse_address: true, ..SocketOptions::default() };
    let a = net.listen(Token(1), at(V4), &shared).unwrap();
    let port = net.local_addr(a).unwrap();
    assert_eq!(kind(net.listen(Token(2), port, &SocketOptions::default())), ErrorKind::AddrInUse);
    net.listen(Token(3), port, &shared).unwrap();
    let elsewhere = SocketAddr::from(([192, 0, 2, 77], 0));
    assert_eq!(kind(net.listen(Token(4), elsewhere, &shared)), ErrorKind::AddrNotAvailable);
    assert_eq!(kind(net.accept(a, Token(5))), ErrorKind::WouldBlock);
}

#[test]
fn both_families_can_listen_on_the_same_port() {
    if families().len() < 2 {
        return;
    }
    let mut net = OsNet::new().unwrap();
    let a = net.listen(Token(1), "[::]:0".parse().unwrap(), &SocketOptions::default()).unwrap();
    assert_eq!(get(&net, a, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY), 1);
    let port = net.local_addr(a).unwrap().port();
    net.listen(Token(2), SocketAddr::from(([0, 0, 0, 0], port)), &SocketOptions::default()).unwrap();
}

#[test]
fn what_has_no_route_or_family_fails_at_once_and_leaves_no_socket() {
    let mut net = OsNet::new().unwrap();
    let local = SocketOptions { local: Some(at(V4)), ..SocketOptions::default() };
    let v6 = SocketAddr::new(V6, 9);
    assert_eq!(kind(net.connect(Token(1), v6, &local)), ErrorKind::InvalidInput);
    let broadcast = SocketAddr::from(([255, 255, 255, 255], 9));
    assert!(net.connect(Token(2), broadcast, &SocketOptions::default()).is_err());
    assert_eq!(net.slots.iter().count(), 0);
}

#[test]
fn more_events_than_one_call_holds_come_in_the_next() {
    many_descriptors();
    let mut net = OsNet::new().unwrap();
    let n = 300;
    let socks: Vec<_> = (0..n).map(|i| net.udp(Token(i), at(V4), &SocketOptions::default()).unwrap()).collect();
    let mut events = Vec::new();
    assert!(net.poll(&mut events), "the array was full");
    assert_eq!(events.len(), 256);
    assert!(!net.poll(&mut events));
    let mut tokens: Vec<_> = events
        .iter()
        .map(|e| match e {
            NetEvent::Ready { token, .. } => token.0,
            other => panic!("{other:?}"),
        })
        .collect();
    tokens.sort_unstable();
    assert_eq!(tokens, (0..n).collect::<Vec<_>>());
    socks.into_iter().for_each(|s| net.close(s));
}
