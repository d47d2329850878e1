//! A child of `fork` cannot use its parent's engine and does its parent no harm.

#![allow(unsafe_code, reason = "fork")]

mod common;

use common::{LIMIT, loopback};
use neater::{AttemptError, Connection, EstablishmentError, Fate, Neater, SecurityParameters, Stack};
use neater_base::net::ErrorKind;
use std::future::Future;
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// Drives an engine by poll(2) until a future ends.
fn drive<T>(driver: &neater::Driver, future: impl Future<Output = T>) -> T {
    let (mut future, until) = (pin!(future), Instant::now() + LIMIT);
    loop {
        if let Poll::Ready(v) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return v;
        }
        assert!(Instant::now() < until, "it takes too long");
        let mut fd = libc::pollfd { fd: driver.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, and the count says so.
        unsafe { libc::poll(&mut fd, 1, 1000) };
        driver.turn();
    }
}

fn forked(e: &EstablishmentError) -> bool {
    let by_fate = |f: &Fate| matches!(f, Fate::Failed(AttemptError::Net(n)) if n.kind == ErrorKind::Forked);
    e.candidates.iter().any(|c| by_fate(&c.fate)) || e.message.contains(ErrorKind::Forked.as_str())
}

fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(v) => Some(v),
        Poll::Pending => None,
    }
}

/// What the child does; its exit status says which of its expectations was wrong.
fn child(neater: &Neater, driver: &neater::Driver, inherited: &Connection, port: u16) -> i32 {
    let pre = neater.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]);
    match now(pre.clone().remote(loopback(port)).initiate()) {
        Some(Err(e)) if forked(&e) => {}
        other => {
            eprintln!("initiate: {other:?}");
            return 1;
        }
    }
    match pre.local(loopback(0)).listen() {
        Err(e) if forked(&e) => {}
        other => {
            eprintln!("listen: {other:?}");
            return 2;
        }
    }
    // The inherited connection gives nothing to the peer, and fails for the same reason.
    let _ = now(inherited.send("from the child"));
    driver.turn();
    match now(inherited.receive()) {
        Some(Err(e)) if e.to_string().contains(ErrorKind::Forked.as_str()) => {}
        other => {
            eprintln!("receive: {other:?}");
            return 3;
        }
    }
    // An engine of its own works.
    let Ok((own, driver)) = Neater::builder().without_driver() else { return 4 };
    let pre = own.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]);
    let Ok(listener) = pre.clone().local(loopback(0)).listen() else { return 5 };
    let Ok(ours) = drive(&driver, pre.remote(loopback(listener.port())).initiate()) else { return 6 };
    drop((ours, listener));
    0
}

#[test]
fn the_first_use_in_a_child_fails_and_the_parent_goes_on() {
    let (neater, driver) = Neater::builder().without_driver().expect("engine");
    let pre = neater.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]);
    let listener = pre.clone().local(loopback(0)).listen().expect("listening");
    let port = listener.port();
    let ours = drive(&driver, pre.clone().remote(loopback(port)).initiate()).expect("connected");
    let theirs = drive(&driver, listener.accept()).expect("a connection");

    // SAFETY: the child uses this thread's state only, and leaves by _exit.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork");
    if pid == 0 {
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| child(&neater, &driver, &ours, port)));
        // SAFETY: nothing of the parent's is flushed or dropped.
        unsafe { libc::_exit(code.unwrap_or(99)) };
    }
    let (mut status, until) = (0, Instant::now() + LIMIT);
    // SAFETY: `pid` is our child, and `status` an int.
    while unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } == 0 {
        if Instant::now() > until {
            // SAFETY: it is our child, not waited for yet.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(libc::WIFEXITED(status), "status {status:x}");
    assert_eq!(libc::WEXITSTATUS(status), 0, "which expectation was wrong is in the child's code");

    // The parent's connection has neither been closed nor written to.
    drive(&driver, ours.send("from the parent")).expect("sent");
    let message = drive(&driver, theirs.receive()).expect("alive").expect("a message");
    assert_eq!(&message[..], b"from the parent");
    let another = drive(&driver, pre.remote(loopback(port)).initiate()).expect("connected");
    drop((another, ours, theirs, listener));
}
