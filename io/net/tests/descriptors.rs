//! No descriptor is lost, however an operation ends. Alone in its process, because it counts and
//! limits descriptors.

#![cfg(all(target_os = "linux", not(feature = "shell")))]
#![allow(unsafe_code, reason = "limits are the system's")]

use neater_base::net::{ErrorKind, Net, SocketOption, SocketOptions, Token};
use neater_net::OsNet;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

fn count() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn wait(net: &mut OsNet) {
    let mut poll = libc::pollfd { fd: net.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid `pollfd`.
    assert_eq!(unsafe { libc::poll(&mut poll, 1, 5000) }, 1);
    net.poll(&mut Vec::new());
}

/// Everything that can be opened, opened.
fn use_everything(net: &mut OsNet, close: bool) {
    let plain = SocketOptions::default();
    let l = net.listen(Token(0), any(), &plain).unwrap();
    let to = net.local_addr(l).unwrap();
    let c = net.connect(Token(1), to, &plain).unwrap();
    while net.connect_result(c).is_err() {
        wait(net);
    }
    let (s, _) = net.accept(l, Token(2)).unwrap();
    let u = net.udp(Token(3), any(), &plain).unwrap();
    net.interfaces();
    net.source_for(any().ip());
    net.name_config();
    // Those that fail half-way.
    let bad = SocketOptions { set: vec![SocketOption::Dscp(99)], ..SocketOptions::default() };
    assert!(net.connect(Token(4), to, &bad).is_err());
    assert!(net.listen(Token(4), any(), &bad).is_err());
    assert!(net.udp(Token(4), any(), &bad).is_err());
    assert!(net.listen(Token(4), to, &plain).is_err());
    if close {
        net.abort(c);
        [l, s, u].into_iter().for_each(|sock| net.close(sock));
    }
}

#[test]
fn descriptors_are_given_back_and_their_lack_is_survived() {
    let before = count();
    for close in [true, false] {
        let mut net = OsNet::new().unwrap();
        for _ in 0..3 {
            use_everything(&mut net, close);
        }
        let open = count() - before;
        assert!(if close { open <= 8 } else { open > 12 }, "{open} descriptors while in use");
        drop(net);
        assert_eq!(count(), before);
    }

    // At the limit: a connection waits to be accepted, and nothing can be opened.
    let mut net = OsNet::new().unwrap();
    let plain = SocketOptions::default();
    let l = net.listen(Token(0), any(), &plain).unwrap();
    let to = net.local_addr(l).unwrap();
    net.udp(Token(9), any(), &plain).unwrap();
    let c = net.connect(Token(1), to, &plain).unwrap();
    while net.connect_result(c).is_err() {
        wait(&mut net);
    }
    let mut old = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `old` has room for the answer.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut old) };
    let none = libc::rlimit { rlim_cur: 3, ..old };
    // SAFETY: a valid limit.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &none) };
    let failures = [
        net.accept(l, Token(2)).map(|_| ()),
        net.connect(Token(2), to, &plain).map(|_| ()),
        net.listen(Token(2), any(), &plain).map(|_| ()),
        net.udp(Token(2), any(), &plain).map(|_| ()),
    ];
    let made = OsNet::new().is_ok();
    let (interfaces, source) = (net.interfaces().len(), net.source_for(any().ip()));
    let names = net.name_config().hosts.len();
    // SAFETY: the limit that was.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &old) };
    assert!(failures.iter().all(|f| f.is_err_and(|e| e.kind == ErrorKind::TooManyFiles)), "{failures:?}");
    assert!(!made && interfaces == 0 && source.is_none() && names == 0);
    // What could not be answered then is answered now.
    assert_eq!(net.source_for(any().ip()), Some(any().ip()));
    assert_eq!(net.interfaces().is_empty(), OsNet::new().unwrap().interfaces().is_empty());
    assert_eq!(net.name_config(), OsNet::new().unwrap().name_config());
    net.accept(l, Token(2)).expect("it waited in the queue");
    drop(net);
    assert_eq!(count(), before);
}
