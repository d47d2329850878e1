//! Long messages: received whole, in parts, and by receivers that give up.

use crate::common::{LIMIT, loopback};
use neater::{
    Connection, ConnectionError, FramerSpec, Listener, MessageContext, Neater, SecurityParameters, SendError, Stack,
};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tokio::time::timeout;

const FRAMER: FramerSpec = FramerSpec::LengthPrefixed { width: 8, max: 1 << 30 };

fn listening() -> (Neater, Listener) {
    let neater = Neater::new().expect("engine");
    let pre = neater.preconnection().local(neater::LocalEndpoint::from(loopback(0)));
    let pre = pre.security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]).framer(FRAMER);
    let listener = pre.listen().expect("listening");
    (neater, listener)
}

/// A connection whose peer writes each of these on command.
async fn fed(listener: &Listener, pieces: Vec<Vec<u8>>) -> (Connection, std::sync::mpsc::Sender<()>) {
    let port = listener.port();
    let (next, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut s = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        for piece in pieces {
            if told.recv().is_err() || s.write_all(&piece).is_err() {
                return;
            }
        }
        // Until the test is over.
        let _ = s.read(&mut [0]);
    });
    (listener.accept().await.expect("a connection"), next)
}

fn framed(message: &[u8]) -> Vec<u8> {
    let mut wire = (message.len() as u64).to_be_bytes().to_vec();
    wire.extend_from_slice(message);
    wire
}

#[tokio::test]
async fn a_message_that_is_too_long_to_be_received_whole_is_received_in_parts() {
    let (_neater, listener) = listening();
    let long: Vec<u8> = (0..70 << 20).map(|i: u32| (i >> 16) as u8).collect();
    let (c, next) = fed(&listener, vec![framed(&long), framed(b"hello")]).await;
    next.send(()).expect("there");
    for _ in 0..3 {
        let refused = timeout(LIMIT, c.receive()).await.expect("no wait");
        assert!(matches!(refused, Err(ConnectionError::Unsupported(_))), "{:?}", refused.map(|_| ()));
    }
    next.send(()).expect("there");
    let mut got = Vec::new();
    loop {
        let part = timeout(LIMIT, c.receive_partial(1 << 20)).await.expect("no wait").expect("alive").expect("a part");
        got.extend_from_slice(&part.data);
        if part.end_of_message {
            break;
        }
    }
    assert!(got == long, "all of it, in order: {} bytes", got.len());
    let m = timeout(LIMIT, c.receive()).await.expect("no wait").expect("alive").expect("a message");
    assert_eq!((&m.data[..], m.end_of_message), (&b"hello"[..], true));
}

#[tokio::test]
async fn what_a_receiver_that_gave_up_had_gathered_is_not_lost() {
    let (_neater, listener) = listening();
    let long: Vec<u8> = (0..4 << 20).map(|i: u32| (i >> 16) as u8).collect();
    let wire = framed(&long);
    let (front, back) = wire.split_at(2 << 20);
    let (c, next) = fed(&listener, vec![front.to_vec(), [back, &framed(b"hello")[..]].concat()]).await;
    next.send(()).expect("there");
    assert!(timeout(Duration::from_millis(500), c.receive()).await.is_err(), "the end has not come");
    let mut got = c.receive_partial(1000).await.expect("alive").expect("a part").data.to_vec();
    assert_eq!(got.len(), 1000, "it was gathered");
    next.send(()).expect("there");
    // The rest, whole.
    let rest = timeout(LIMIT, c.receive()).await.expect("it comes").expect("alive").expect("a message");
    assert!(rest.end_of_message);
    got.extend_from_slice(&rest.data);
    assert!(got == long, "{} bytes", got.len());
    let m = timeout(LIMIT, c.receive()).await.expect("it comes").expect("alive").expect("a message");
    assert_eq!(&m.data[..], b"hello");
}

#[tokio::test]
async fn a_lifetime_counts_while_a_message_waits_for_room() {
    let silent = std::net::TcpListener::bind(loopback(0)).expect("bound");
    let neater = Neater::new().expect("engine");
    let pre = neater.preconnection().remote(silent.local_addr().expect("bound"));
    let pre = pre.security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]).framer(FRAMER);
    let c = pre.initiate().await.expect("connected");
    let (mut peer, _) = silent.accept().expect("accepted");
    let first = vec![7; 16 << 20];
    c.send(first.clone()).await.expect("taken");
    let brief = MessageContext::new().lifetime(Duration::from_millis(200));
    let before = Instant::now();
    let late = timeout(LIMIT, c.send_with("late", &brief)).await.expect("it does not wait for room for ever");
    let took = before.elapsed();
    assert_eq!(late, Err(SendError::Expired));
    assert!(took >= Duration::from_millis(200) && took < Duration::from_secs(2), "{took:?}");
    // One that has time gets its room.
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; 8 + (16 << 20) + 8 + 7];
        peer.read_exact(&mut got).expect("all of it");
        got.split_off(got.len() - 7)
    });
    let patient = MessageContext::new().lifetime(LIMIT);
    timeout(LIMIT, c.send_with("patient", &patient)).await.expect("there is room").expect("taken");
    assert_eq!(reader.join().expect("no panic"), b"patient");
}
