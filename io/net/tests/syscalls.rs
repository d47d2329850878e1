//! What the hot paths cost, as strace(1) sees it. The scenario runs in a process of its own, under
//! strace.

#![cfg(all(target_os = "linux", not(feature = "shell")))]
#![allow(unsafe_code, reason = "marks in the trace are system calls")]

use core::time::Duration;
use neater_base::net::{Ecn, Net, RecvBatch, SocketOptions, Token, Transmit};
use neater_net::OsNet;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::process::Command;

/// A number that no other call carries: `umask` is harmless and takes one.
fn mark(step: u32) {
    // SAFETY: sets the mask to one that nothing in this process uses.
    unsafe { libc::umask(0o700 + step) };
}

fn wait(net: &mut OsNet) {
    let mut poll = libc::pollfd { fd: net.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid `pollfd`.
    assert_eq!(unsafe { libc::poll(&mut poll, 1, 5000) }, 1);
    net.poll(&mut Vec::new());
}

#[test]
#[ignore = "runs under strace, started by the other test"]
fn scenario() {
    let mut net = OsNet::new().unwrap();
    let plain = SocketOptions::default();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let l = net.listen(Token(0), any, &plain).unwrap();
    let to = net.local_addr(l).unwrap();
    let far = net.now() + Duration::from_secs(60);
    net.arm(Some(far), false);
    let mut events = Vec::with_capacity(64);
    net.poll(&mut events);
    let mut buf = [0; 16];

    mark(1);
    let c = net.connect(Token(1), to, &plain).unwrap();
    mark(2);
    wait(&mut net);
    mark(3);
    net.connect_result(c).unwrap();
    mark(4);
    let (s, _) = net.accept(l, Token(2)).unwrap();
    mark(5);
    net.write(c, &[IoSlice::new(b"one")]).unwrap();
    mark(6);
    net.write(c, &[IoSlice::new(b"two"), IoSlice::new(b"three")]).unwrap();
    mark(7);
    net.read(s, &mut buf).unwrap();
    mark(8);
    // A flow that lives shorter than the deadline does not move the timer, and reads no clock in
    // the kernel.
    net.arm(Some(far + Duration::from_secs(1)), false);
    net.arm(None, false);
    net.now();
    mark(9);
    net.arm(None, true);
    net.arm(None, true);
    mark(10);
    net.poll(&mut events);
    mark(11);
    net.close(c);
    mark(12);
    net.abort(s);
    mark(13);

    // The first asks what the system can do; the second is the one that counts.
    net.udp(Token(3), any, &plain).unwrap();
    mark(14);
    let u = net.udp(Token(4), any, &plain).unwrap();
    mark(15);
    let destination = SocketAddr::new(any.ip(), net.local_addr(u).unwrap().port());
    let mut batch = RecvBatch::default();
    mark(16);
    let contents = [0; 300];
    let transmit = Transmit {
        destination,
        source: None,
        interface: None,
        ecn: Ecn::Ect0,
        segment_size: Some(100),
        contents: &contents,
    };
    net.send(u, &transmit).unwrap();
    mark(17);
    net.recv(u, &mut batch).unwrap();
    mark(18);

    // A connection that its peer has ended before this side looked at it.
    drop(std::net::TcpStream::connect(to).unwrap());
    mark(19);
    let (s, _) = net.accept(l, Token(5)).unwrap();
    assert_eq!(net.read(s, &mut buf), Ok(0));
    net.close(s);
    mark(20);
    // One on which nothing has come yet.
    let _c = std::net::TcpStream::connect(to).unwrap();
    mark(21);
    let (s, _) = net.accept(l, Token(5)).unwrap();
    net.read(s, &mut buf).unwrap_err();
    mark(22);
}

/// The names of the calls between one mark and the next.
fn between(trace: &str, step: u32) -> Vec<&str> {
    let mark = |step: u32| format!("umask({:#o})", 0o700 + step).replace("0o", "0");
    let from = trace.find(&mark(step)).expect("the mark is there");
    let rest = &trace[from..];
    let to = rest.find(&mark(step + 1)).expect("the next mark is there");
    // Each line begins with the number of the thread.
    rest[..to].lines().skip(1).filter_map(|l| l.split_whitespace().nth(1)?.split('(').next()).collect()
}

#[test]
fn hot_paths_cost_the_system_calls_that_they_need_and_no_other() {
    let file = std::env::temp_dir().join(format!("neater-trace-{}", std::process::id()));
    let run = Command::new("strace")
        .args(["-f", "-qq", "-o"])
        .arg(&file)
        .arg(std::env::current_exe().unwrap())
        .args(["scenario", "--exact", "--ignored", "--test-threads=1"])
        .output();
    let trace = std::fs::read_to_string(&file).unwrap_or_default();
    let _ = std::fs::remove_file(&file);
    match run {
        Ok(output) if output.status.success() && trace.contains("umask") => {}
        other => {
            assert!(!trace.contains("umask"), "the scenario failed: {other:?}");
            eprintln!("skipped: strace is not there or not allowed: {other:?}");
            return;
        }
    }
    for (step, calls) in [
        (1, &["socket", "connect", "epoll_ctl"][..]),
        (2, &["poll", "epoll_wait"]),
        // How the connection attempt ended is in the poller's report.
        (3, &[]),
        // The timer is for all that is accepted in the next 5 ms; the streams are registered later,
        // or never.
        (4, &["accept4", "timerfd_settime"]),
        (5, &["sendto"]),
        (6, &["sendmsg"]),
        (7, &["read", "epoll_ctl"]),
        (8, &[]),
        (9, &["write"]),
        (10, &["epoll_wait"]),
        (11, &["close"]),
        (12, &["setsockopt", "close"]),
        (14, &["socket", "setsockopt", "setsockopt", "setsockopt", "bind", "epoll_ctl"]),
        (16, &["sendmsg"]),
        (17, &["recvmmsg"]),
        (19, &["accept4", "read", "close"]),
        (21, &["accept4", "read", "epoll_ctl"]),
    ] {
        assert_eq!(between(&trace, step), calls, "step {step}");
    }
}
