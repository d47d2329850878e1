//! TCP with several paths (RFC 8684), as far as one host shows it.

use super::*;
use neater_base::net::{ErrorKind, SocketOption, StreamPaths};
use std::io::IoSlice;

fn wants(set: &[SocketOption]) -> SocketOptions {
    SocketOptions { multipath: true, set: set.to_vec(), ..SocketOptions::default() }
}

/// Whether this system has MPTCP, and it is switched on.
fn here() -> bool {
    // SAFETY: takes numbers and returns a new descriptor.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP) };
    // SAFETY: the descriptor is owned here.
    unsafe { libc::close(fd) };
    if fd < 0 {
        eprintln!("skipped: no MPTCP on this machine");
    }
    fd >= 0
}

/// Exchanges something each way, after which both know what they have agreed on.
fn talk(net: &mut OsNet, c: Sock, s: Sock) {
    for (from, to, token) in [(c, s, Token(2)), (s, c, Token(1))] {
        assert_eq!(net.read(to, &mut [0; 8]).map_err(|e| e.is_would_block()), Err(true));
        net.write(from, &[IoSlice::new(b"hello")]).unwrap();
        ready(net, token, |r| r.readable);
        assert_eq!(net.read(to, &mut [0; 8]), Ok(5));
    }
}

#[test]
fn both_ends_take_part_and_the_system_tells_of_their_path() {
    if !here() {
        return;
    }
    for ip in families() {
        let mut net = OsNet::new().unwrap();
        let set = [SocketOption::NoDelay(true), SocketOption::KeepAlive(Some(PATIENCE))];
        let (_, c, s) = pair(&mut net, ip, &wants(&[]), &wants(&set));
        talk(&mut net, c, s);
        let (ours, theirs) = (net.local_addr(c).unwrap(), net.local_addr(s).unwrap());
        for (sock, local, remote) in [(c, ours, theirs), (s, theirs, ours)] {
            let Some(StreamPaths::Several(subflows)) = net.stream_paths(sock) else {
                panic!("{ip}: {:?}", net.stream_paths(sock));
            };
            assert_eq!(subflows.len(), 1, "{subflows:?}");
            assert_eq!((subflows[0].local, subflows[0].remote), (local, remote));
            let info = subflows[0].info;
            assert!(info.rtt.is_some() && info.congestion_window.is_some() && info.path_mtu.is_some(), "{info:?}");
            assert!(info.received.is_some_and(|n| n >= 5) && info.acknowledged.is_some_and(|n| n >= 5), "{info:?}");
            assert!(net.stream_info(sock).unwrap().rtt.is_some());
            // What is asked later and cannot be had is refused, and not passed over.
            let refused = net.set(sock, SocketOption::UserTimeout(Some(PATIENCE))).map_err(|e| e.kind);
            assert_eq!(refused, Err(ErrorKind::Unsupported));
            assert_eq!(net.set(sock, SocketOption::NoDelay(false)), Ok(()));
        }
    }
}

#[test]
fn where_one_end_has_none_of_it_it_is_tcp_and_the_other_is_told() {
    if !here() {
        return;
    }
    let plain = SocketOptions::default();
    for ip in families() {
        let mut net = OsNet::new().unwrap();
        let (_, c, s) = pair(&mut net, ip, &plain, &wants(&[]));
        talk(&mut net, c, s);
        assert_eq!((net.stream_paths(c), net.stream_paths(s)), (Some(StreamPaths::FellBack), None));
        let mut net = OsNet::new().unwrap();
        let (_, c, s) = pair(&mut net, ip, &wants(&[]), &plain);
        talk(&mut net, c, s);
        // The listener's socket for a peer that asks for nothing is one of TCP.
        assert_eq!((net.stream_paths(c), net.stream_paths(s)), (None, None));
    }
}

/// `TCP_USER_TIMEOUT` is no option of Linux' MPTCP: what was asked of the connection counts more.
#[test]
fn an_option_that_such_sockets_do_not_have_makes_it_tcp() {
    let mut net = OsNet::new().unwrap();
    let set = [SocketOption::UserTimeout(Some(PATIENCE))];
    let (_, c, s) = pair(&mut net, V4, &wants(&set), &wants(&set));
    talk(&mut net, c, s);
    assert_eq!((net.stream_paths(c), net.stream_paths(s)), (None, None));
    assert!(net.stream_paths(Sock(u64::MAX)).is_none());
}
