//! Connections and streams that have ended before the program takes them.

use crate::common::{LIMIT, loopback, nothing_left, security};
use neater::{ConnectionError, ConnectionState, Event, Neater, SecurityParameters, Stack};
use std::sync::{Arc, Mutex};
use std::time::Duration;

async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    tokio::time::timeout(LIMIT, future).await.unwrap_or_else(|_| panic!("{what} does not end"))
}

/// Waits for what only the driver can bring about.
async fn until(what: &str, mut done: impl FnMut() -> bool) {
    soon(what, async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_was_reset_before_it_was_accepted_is_over_in_every_way() {
    let neater = Neater::new().expect("engine");
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = events.clone();
    let pre = neater.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]);
    let pre = pre.on_event(move |e| seen.lock().expect("alive").push(e.clone()));
    let listener = pre.local(loopback(0)).listen().expect("listening");
    let peer = std::net::TcpStream::connect(loopback(listener.port())).expect("connected");
    until("arriving", || neater.stats().connections == 1).await;
    socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).expect("set");
    drop(peer);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let connection = soon("accept", listener.accept()).await.expect("a connection");
    assert_eq!(connection.state(), ConnectionState::Closed);
    assert!(matches!(soon("closed", connection.closed()).await, Err(ConnectionError::Net(_))));
    assert!(matches!(soon("close", connection.close()).await, Err(ConnectionError::Net(_))));
    assert_eq!(soon("next_event", connection.next_event()).await, None);
    assert!(soon("receive", connection.receive()).await.is_err());
    let events = core::mem::take(&mut *events.lock().expect("alive"));
    assert!(matches!(events[..], [Event::ConnectionError(ConnectionError::Net(_))]), "{events:?}");
    drop((connection, listener));
    nothing_left(&neater).await;
}

#[tokio::test]
async fn a_stream_that_was_aborted_before_it_was_taken_is_over_in_every_way() {
    let (client, server) = security();
    let neater = Neater::new().expect("engine");
    let pre = neater.preconnection().stacks(&[Stack::Quic]);
    let listener = pre.clone().security(server).local(loopback(0)).listen().expect("listening");
    let pre = pre.security(client).remote(loopback(listener.port()));
    let ours = soon("initiate", pre.initiate()).await.expect("connected");
    ours.send("hello").await.expect("sent");
    let theirs = soon("accept", listener.accept()).await.expect("a connection");
    let group = ours.group().expect("a group");
    let stream = theirs.clone_connection().expect("a stream");
    stream.send("!").await.expect("sent");
    until("arriving", || group.len() == 2).await;
    stream.abort_with(7);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let taken = soon("accept", group.accept()).await.expect("the stream");
    taken.abort();
    assert!(soon("closed", taken.closed()).await.is_err());
    assert_eq!(soon("next_event", taken.next_event()).await, None);
    drop((taken, stream, ours, theirs, group, listener));
    nothing_left(&neater).await;
}

/// As programs take them that work on streams.
#[tokio::test]
async fn a_listener_is_a_stream_of_connections_that_ends_when_it_stops() {
    use futures_util::StreamExt;
    let neater = neater::Neater::new().expect("engine");
    let clear =
        || neater.preconnection().security(neater::SecurityParameters::disabled()).stacks(&[neater::Stack::Tcp]);
    let mut listener = clear().local(crate::common::loopback(0)).listen().expect("listening");
    let port = listener.port();
    for _ in 0..3 {
        let ours = clear().remote(crate::common::loopback(port)).initiate().await.expect("connected");
        let theirs = listener.next().await.expect("a connection");
        ours.send("x").await.expect("sent");
        assert!(theirs.receive().await.expect("alive").is_some());
    }
    listener.stop();
    assert!(listener.next().await.is_none());
}

#[tokio::test]
async fn what_waits_for_a_listener_that_has_stopped_is_not_lost_to_the_next_one() {
    let (far, near) = (Neater::new().expect("engine"), Neater::new().expect("engine"));
    let plain = |n: &Neater| n.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]);
    let listener = plain(&far).local(loopback(0)).listen().expect("listening");
    let client = plain(&near).remote(loopback(listener.port())).initiate().await.expect("connected");
    client.send("x").await.expect("sent");
    until("the arrival", || far.stats().received == 1).await;
    listener.stop();
    let next = plain(&far).local(loopback(0)).listen().expect("listening");
    let accepted = soon("accept", listener.accept()).await.expect("it had been received");
    assert_eq!(accepted.receive().await.expect("open").as_deref(), Some(&b"x"[..]));
    assert!(soon("accept", listener.accept()).await.is_none(), "no more come");
    // The next one is none the worse for it.
    let other = plain(&near).remote(loopback(next.port())).initiate().await.expect("connected");
    soon("accept", next.accept()).await.expect("accepted");
    drop((accepted, client, other, listener, next));
    nothing_left(&far).await;
}
