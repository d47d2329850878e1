//! Real traffic over loopback.

// Looking at sockets from outside takes system calls.
#![allow(unsafe_code)]

mod datagrams;
mod epolls;
mod forged;
mod fresh;
mod host;
mod multipath;
mod options;
mod raw;
mod routers;
mod streams;
mod udp_lite;

use super::OsNet;
use core::time::Duration;
use neater_base::net::{Net, NetEvent, Ready, Sock, SocketOptions, Token};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;

/// Longer than anything here takes, unless it is broken.
const PATIENCE: Duration = Duration::from_secs(5);

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// The loopback addresses that this machine has.
fn families() -> Vec<IpAddr> {
    if std::net::UdpSocket::bind((V6, 0)).is_ok() {
        return vec![V4, V6];
    }
    eprintln!("skipped: no IPv6 on this machine");
    vec![V4]
}

fn at(ip: IpAddr) -> SocketAddr {
    SocketAddr::new(ip, 0)
}

fn bound(ip: IpAddr) -> SocketOptions {
    SocketOptions { local: Some(at(ip)), ..SocketOptions::default() }
}

/// Lets this process have as many descriptors as it may.
fn many_descriptors() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: room for the answer, and a valid limit.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    }
}

/// Whether a descriptor becomes readable within a time.
fn readable(fd: i32, within: Duration) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid `pollfd`.
    unsafe { libc::poll(&mut poll, 1, within.as_millis() as libc::c_int) == 1 }
}

/// Polls, sleeping on nothing but the descriptor, until `done` finds what it wants in the events so
/// far.
fn until(net: &mut OsNet, what: &str, mut done: impl FnMut(&[NetEvent]) -> bool) -> Vec<NetEvent> {
    let (mut events, give_up) = (Vec::new(), net.now() + PATIENCE);
    loop {
        let more = net.poll(&mut events);
        if done(&events) {
            return events;
        }
        let left = give_up - net.now();
        assert!(!left.is_zero(), "waited in vain for {what}: {events:?}");
        if !more {
            readable(net.as_raw_fd(), left);
        }
    }
}

/// Waits for readiness of one socket.
fn ready(net: &mut OsNet, token: Token, wanted: impl Fn(Ready) -> bool) {
    until(net, "readiness", |events| {
        events.iter().any(|e| matches!(e, NetEvent::Ready { token: t, ready } if *t == token && wanted(*ready)))
    });
}

/// Two ends of a connection over loopback, with tokens 1 (client) and 2 (server); and the listener,
/// token 0.
fn pair(net: &mut OsNet, ip: IpAddr, listener: &SocketOptions, client: &SocketOptions) -> (Sock, Sock, Sock) {
    let l = net.listen(Token(0), at(ip), listener).unwrap();
    let to = net.local_addr(l).unwrap();
    let c = net.connect(Token(1), to, client).unwrap();
    ready(net, Token(1), |r| r.writable);
    net.connect_result(c).unwrap();
    let (s, peer) = net.accept(l, Token(2)).unwrap();
    assert_eq!(peer, net.local_addr(c).unwrap());
    (l, c, s)
}

/// A pair with nothing asked for.
fn plain_pair(net: &mut OsNet, ip: IpAddr) -> (Sock, Sock) {
    let (l, c, s) = pair(net, ip, &SocketOptions::default(), &SocketOptions::default());
    net.close(l);
    (c, s)
}

/// The descriptor behind a handle.
fn fd(net: &OsNet, sock: Sock) -> i32 {
    net.slots.get(sock).unwrap().0
}

/// An option of a socket as the kernel sees it.
fn get(net: &OsNet, sock: Sock, level: libc::c_int, name: libc::c_int) -> libc::c_int {
    let (mut value, mut len) = (0 as libc::c_int, 4);
    // SAFETY: `value` has room for four bytes.
    let result = unsafe { libc::getsockopt(fd(net, sock), level, name, (&raw mut value).cast(), &mut len) };
    assert_eq!(result, 0, "option {level}/{name}: {}", std::io::Error::last_os_error());
    value
}

impl OsNet {
    /// Where a datagram socket's state is.
    fn datagram_index(&self, sock: Sock) -> u32 {
        match self.slots.get(sock).unwrap().1.kind {
            super::slots::Kind::Datagram(index) => index,
            other => panic!("{other:?}"),
        }
    }
}
