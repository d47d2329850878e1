//! A program that has not looked for a while finds what has happened, and not that time is over.

use crate::common::{LIMIT, loopback};
use neater::{Neater, SecurityParameters, Stack};
use std::net::TcpListener;
use std::time::Duration;

/// More than the engine takes in one turn.
const FLOWS: usize = 1500;

/// A listener that keeps all of them, as far as the system allows (`net.core.somaxconn`).
fn listener() -> TcpListener {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.bind(&loopback(0).into()).expect("a port");
    socket.listen(2 * FLOWS as i32).expect("a listener");
    socket.into()
}

#[tokio::test]
async fn connects_that_nobody_looked_at_in_time_begin_no_rivals() {
    let limits = std::fs::read_to_string("/proc/self/limits").expect("Linux");
    let open = limits.lines().find_map(|l| l.strip_prefix("Max open files")?.split_whitespace().next()?.parse().ok());
    if open.is_some_and(|n: usize| n < 3 * FLOWS) {
        eprintln!("skipped: this process may open {open:?} files, and {} are needed (ulimit -n)", 3 * FLOWS);
        return;
    }
    let (first, second) = (listener(), listener());
    let port = |l: &TcpListener| l.local_addr().expect("bound").port();
    // Connections beyond the queue of a listener wait for their peers to try again, which is not
    // what this is about: the queue is long, and a thread empties it.
    let accepted = std::thread::spawn({
        let first = first.try_clone().expect("a descriptor");
        move || (0..FLOWS).map(|_| first.accept().expect("a connection")).collect::<Vec<_>>()
    });
    let neater = Neater::new().expect("engine");
    let pre = neater.preconnection().remote(loopback(port(&first))).remote(loopback(port(&second)));
    let mut pre = pre.security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]);
    pre.compile(neater::Role::Initiate).expect("possible");
    let begun: Vec<_> = (0..FLOWS).map(|_| pre.initiate()).collect();
    // Longer than the delay between attempts: all are connected, and the engine has not polled.
    std::thread::sleep(Duration::from_millis(400));
    let mut flows = Vec::new();
    for flow in begun {
        flows.push(tokio::time::timeout(LIMIT, flow).await.expect("in time").expect("connected"));
    }
    second.set_nonblocking(true).expect("a listener");
    let rivals = std::iter::from_fn(|| second.accept().ok()).count();
    assert_eq!(rivals, 0, "of {FLOWS}");
    assert_eq!(accepted.join().expect("accepted").len(), FLOWS);
}
