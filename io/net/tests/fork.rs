//! What happens in children of `fork`, and to signals. Alone in its process, because it forks it.

#![cfg(all(target_os = "linux", not(feature = "shell")))]
#![allow(unsafe_code, reason = "forking and signals are the system's")]

use core::time::Duration;
use neater_base::net::{
    ErrorKind, Net, NetError, NetEvent, RecvBatch, Sock, SocketOption, SocketOptions, Token, Transmit,
};
use neater_net::OsNet;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

/// Runs `child` in a child; returns how it ended, as waitpid(2) returns it.
fn fork(child: impl FnOnce() -> i32) -> libc::c_int {
    // SAFETY: the child calls what it is given, which does not wait for threads that it does not
    // have, and exits.
    unsafe {
        match libc::fork() {
            0 => {
                let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(101);
                libc::_exit(code)
            }
            pid => {
                assert!(pid > 0);
                let mut status = 0;
                assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
                status
            }
        }
    }
}

fn readable(fd: i32, millis: libc::c_int) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid `pollfd`.
    unsafe { libc::poll(&mut poll, 1, millis) == 1 }
}

fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn pair(net: &mut OsNet) -> (Sock, Sock, Sock) {
    let plain = SocketOptions::default();
    let l = net.listen(Token(0), any(), &plain).unwrap();
    let to = net.local_addr(l).unwrap();
    let c = net.connect(Token(1), to, &plain).unwrap();
    while net.connect_result(c).is_err() {
        assert!(readable(net.as_raw_fd(), 5000));
        net.poll(&mut Vec::new());
    }
    let (s, _) = net.accept(l, Token(2)).unwrap();
    (l, c, s)
}

/// Every operation, each with its error.
fn all_operations(net: &mut OsNet, l: Sock, c: Sock, u: Sock) -> Vec<(&'static str, Option<NetError>)> {
    let plain = SocketOptions::default();
    let to = any();
    let transmit = Transmit {
        destination: to,
        source: None,
        interface: None,
        ecn: Default::default(),
        segment_size: None,
        contents: b"x",
    };
    vec![
        ("connect", net.connect(Token(9), to, &plain).err()),
        ("connect_result", net.connect_result(c).err()),
        ("listen", net.listen(Token(9), to, &plain).err()),
        ("accept", net.accept(l, Token(9)).err()),
        ("read", net.read(c, &mut [0; 8]).err()),
        ("write", net.write(c, &[IoSlice::new(b"x")]).err()),
        ("shutdown_write", net.shutdown_write(c).err()),
        ("stream_info", net.stream_info(c).err()),
        ("udp", net.udp(Token(9), to, &plain).err()),
        ("udp_connect", net.udp_connect(u, to).err()),
        ("send", net.send(u, &transmit).err()),
        ("recv", net.recv(u, &mut RecvBatch::default()).err()),
        ("local_addr", net.local_addr(c).err()),
        ("set", net.set(c, SocketOption::NoDelay(true)).err()),
    ]
}

#[test]
fn a_child_is_told_and_cannot_disturb_its_parent() {
    let mut net = OsNet::new().unwrap();
    let (l, c, s) = pair(&mut net);
    let u = net.udp(Token(3), any(), &SocketOptions::default()).unwrap();
    // Also until what was accepted is watched, which has its time.
    while readable(net.as_raw_fd(), 20) {
        net.poll(&mut Vec::new());
    }
    let waker = net.waker();
    let deadline = net.now() + Duration::from_millis(100);
    net.arm(Some(deadline), false);

    let status = fork(|| {
        if !net.is_forked() {
            return 1;
        }
        for (what, error) in all_operations(&mut net, l, c, u) {
            if error.map(|e| e.kind) != Some(ErrorKind::Forked) {
                eprintln!("{what}: {error:?}");
                return 2;
            }
        }
        let (mut first, mut second) = (Vec::new(), Vec::new());
        net.poll(&mut first);
        net.poll(&mut second);
        let told = |token| {
            first.iter().any(|e| matches!(e, NetEvent::Ready { token: t, ready } if *t == Token(token) && ready.error))
        };
        if !(0..=3).all(told) || !second.is_empty() {
            eprintln!("{first:?} {second:?}");
            return 3;
        }
        // None of this may reach the parent.
        waker.wake();
        net.arm(Some(net.now()), true);
        net.abort(c);
        net.close(s);
        if net.take_icmp_error(u).is_some() || net.source_for(any().ip()).is_some() {
            return 4;
        }
        if !net.interfaces().is_empty() || !net.name_config().hosts.is_empty() {
            return 5;
        }
        // Its own works.
        drop(core::mem::replace(&mut net, OsNet::new().unwrap()));
        pair(&mut net);
        0
    });
    assert!(libc::WIFEXITED(status));
    assert_eq!(libc::WEXITSTATUS(status), 0);

    assert!(!net.is_forked());
    assert!(!readable(net.as_raw_fd(), 0), "nobody woke the parent");
    assert!(readable(net.as_raw_fd(), 5000));
    assert!(net.now() >= deadline, "the timer is where the parent set it");
    net.poll(&mut Vec::new());
    net.write(c, &[IoSlice::new(b"alive")]).unwrap();
    assert!(readable(net.as_raw_fd(), 5000));
    net.poll(&mut Vec::new());
    let mut buf = [0; 8];
    assert_eq!(net.read(s, &mut buf), Ok(5));

    writing_to_the_dead_raises_no_signal();
    descriptors_do_not_survive_exec();
}

/// Not tests of their own: tests run at the same time, and forking is no company.
fn writing_to_the_dead_raises_no_signal() {
    let status = fork(|| {
        // SAFETY: restores what Rust's runtime changed.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let mut net = OsNet::new().unwrap();
        let (_, c, s) = pair(&mut net);
        net.abort(s);
        let mut errors = Vec::new();
        for _ in 0..20 {
            readable(net.as_raw_fd(), 50);
            net.poll(&mut Vec::new());
            errors.extend(net.write(c, &[IoSlice::new(b"x")]).err());
            errors.extend(net.write(c, &[IoSlice::new(b"x"), IoSlice::new(b"y")]).err());
        }
        i32::from(!errors.iter().any(|e| e.kind == ErrorKind::BrokenPipe))
    });
    assert!(libc::WIFEXITED(status), "killed by signal {}", libc::WTERMSIG(status));
    assert_eq!(libc::WEXITSTATUS(status), 0);
}

fn descriptors_do_not_survive_exec() {
    let inherited = open_descriptors();
    let mut net = OsNet::new().unwrap();
    let (l, c, s) = pair(&mut net);
    net.udp(Token(3), any(), &SocketOptions::default()).unwrap();
    net.interfaces();
    net.source_for(any().ip());
    net.name_config();
    let ours: Vec<_> = open_descriptors().into_iter().filter(|fd| !inherited.contains(fd)).collect();
    assert!(ours.len() >= 10, "{ours:?}");
    for fd in ours {
        // SAFETY: asks for flags.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        // Negative: the directory that was being read.
        assert!(flags < 0 || flags & libc::FD_CLOEXEC != 0, "descriptor {fd}");
    }
    for sock in [l, c, s] {
        net.close(sock);
    }
}

fn open_descriptors() -> Vec<i32> {
    std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .map(|e| e.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect()
}
