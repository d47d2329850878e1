//! Streams that were accepted and are not registered with the poller: nothing about them is missed.

use super::super::fresh;
use super::*;
use neater_base::net::{ErrorKind, NetError};
use std::io::IoSlice;

fn blocked<T: core::fmt::Debug>(result: Result<T, NetError>) {
    assert_eq!(result.unwrap_err().kind, ErrorKind::WouldBlock);
}

/// Polls once, so that what is due is seen to.
fn polled(net: &mut OsNet) -> Vec<NetEvent> {
    let mut events = Vec::new();
    net.poll(&mut events);
    events
}

/// The server's side is readable with the next poll, and not only when it is due.
fn readable_at_once(net: &mut OsNet) {
    let events = polled(net);
    let readable = |e: &NetEvent| matches!(e, NetEvent::Ready { token: Token(2), ready } if ready.readable);
    assert!(events.iter().any(readable), "{events:?}");
}

#[test]
fn what_nobody_looks_at_is_watched_in_time() {
    let mut net = OsNet::new().unwrap();
    let (c, s) = plain_pair(&mut net, V4);
    net.write(c, &[IoSlice::new(b"hello")]).unwrap();
    // By the descriptor alone, with no deadline of the driver's.
    net.arm(None, false);
    ready(&mut net, Token(2), |r| r.readable);
    assert_eq!(net.read(s, &mut [0; 16]), Ok(5));

    let (c, _) = plain_pair(&mut net, V4);
    net.abort(c);
    ready(&mut net, Token(2), |r| r.error || r.hangup);
}

#[test]
fn a_read_that_finds_nothing_is_told_when_something_comes_and_does_not_wait_for_that() {
    let mut net = OsNet::new().unwrap();
    let (c, s) = plain_pair(&mut net, V4);
    blocked(net.read(s, &mut [0; 16]));
    net.write(c, &[IoSlice::new(b"hello")]).unwrap();
    readable_at_once(&mut net);
}

#[test]
fn a_short_read_is_told_of_what_came_behind_it() {
    let mut net = OsNet::new().unwrap();
    let (c, s) = plain_pair(&mut net, V4);
    net.write(c, &[IoSlice::new(b"hello")]).unwrap();
    assert_eq!(net.read(s, &mut [0; 16]), Ok(5));
    // Known without asking the system; the news comes as news.
    blocked(net.read(s, &mut [0; 16]));
    net.write(c, &[IoSlice::new(b"again")]).unwrap();
    readable_at_once(&mut net);
    assert_eq!(net.read(s, &mut [0; 16]), Ok(5));
}

#[test]
fn a_short_read_and_the_end_behind_it() {
    let mut net = OsNet::new().unwrap();
    let (c, s) = plain_pair(&mut net, V4);
    net.write(c, &[IoSlice::new(b"hello")]).unwrap();
    net.shutdown_write(c).unwrap();
    assert_eq!(net.read(s, &mut [0; 16]), Ok(5));
    ready(&mut net, Token(2), |r| r.readable && r.hangup);
    assert_eq!(net.read(s, &mut [0; 16]), Ok(0));
}

#[test]
fn a_writer_without_room_is_told_when_there_is_some() {
    let mut net = OsNet::new().unwrap();
    let (c, s) = plain_pair(&mut net, V4);
    let piece = vec![7; 1 << 20];
    while let Ok(n) = net.write(s, &[IoSlice::new(&piece)]) {
        assert!(n > 0);
    }
    let mut buf = vec![0; 1 << 20];
    let give_up = net.now() + PATIENCE;
    loop {
        while net.read(c, &mut buf).is_ok() {}
        let events = polled(&mut net);
        if events.iter().any(|e| matches!(e, NetEvent::Ready { token: Token(2), ready } if ready.writable)) {
            break;
        }
        assert!(net.now() < give_up, "nobody said that there is room");
    }
    assert!(net.write(s, &[IoSlice::new(b"more")]).is_ok());
}

#[test]
fn a_lane_begins_with_a_stream_that_is_watched() {
    let mut net = OsNet::new().unwrap();
    let (c, s) = plain_pair(&mut net, V4);
    let direct = net.direct_stream(s).unwrap();
    direct.open(true, true);
    assert_eq!(direct.read(&mut [0; 16]), None);
    net.write(c, &[IoSlice::new(b"hello")]).unwrap();
    readable_at_once(&mut net);
}

#[test]
fn many_that_are_accepted_at_once_and_left_alone_are_all_watched() {
    many_descriptors();
    let mut net = OsNet::new().unwrap();
    let l = net.listen(Token(0), at(V4), &SocketOptions::default()).unwrap();
    let to = net.local_addr(l).unwrap();
    let n = fresh::MOST + 100;
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    // None of them has come of age in between: no poll.
    for i in 0..n {
        clients.push(std::net::TcpStream::connect(to).unwrap());
        servers.push(net.accept(l, Token(10 + i as u64)).unwrap().0);
    }
    for client in &mut clients {
        std::io::Write::write_all(client, b"x").unwrap();
    }
    let mut heard = std::collections::BTreeSet::new();
    until(&mut net, "all of them", |events| {
        heard.extend(events.iter().filter_map(|e| match e {
            NetEvent::Ready { token: Token(t @ 10..), ready } if ready.readable => Some(*t),
            _ => None,
        }));
        heard.len() == n
    });
    servers.into_iter().for_each(|s| net.close(s));
}

#[test]
fn a_socket_that_is_gone_before_it_is_due_disturbs_nobody() {
    let mut net = OsNet::new().unwrap();
    let (_, s) = plain_pair(&mut net, V4);
    net.close(s);
    // The descriptor's next owner is not watched under the old name.
    let (c, again) = plain_pair(&mut net, V4);
    net.write(c, &[IoSlice::new(b"hello")]).unwrap();
    ready(&mut net, Token(2), |r| r.readable);
    assert_eq!(net.read(again, &mut [0; 16]), Ok(5));
    assert!(net.fresh.due().is_none(), "and nothing is left to be seen to");
}
