//! A task for which there is always something to do leaves turns to the others of its thread.

use crate::common::{LIMIT, loopback};
use neater::{Connection, FramerSpec, Neater, Preconnection, SecurityParameters, Stack};
use std::future::{Future, poll_fn};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::pin::pin;
use std::time::{Duration, Instant};

fn to(neater: &Neater, port: u16) -> Preconnection {
    neater.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]).remote(loopback(port))
}

/// Polls `future` until it is done, and returns how many of its polls were pending.
async fn pendings<F: Future>(future: F) -> (F::Output, usize) {
    let (mut future, mut count) = (pin!(future), 0);
    let output = poll_fn(|cx| {
        let polled = future.as_mut().poll(cx);
        count += usize::from(polled.is_pending());
        polled
    })
    .await;
    (output, count)
}

/// A thread that writes zeros for as long as there is a reader.
fn source() -> u16 {
    let listener = TcpListener::bind(loopback(0)).expect("bound");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().expect("a connection");
        while peer.write_all(&[0; 1 << 16]).is_ok() {}
    });
    port
}

/// A thread that reads all that comes.
fn sink() -> u16 {
    let listener = TcpListener::bind(loopback(0)).expect("bound");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().expect("a connection");
        let mut buf = vec![0; 1 << 16];
        while peer.read(&mut buf).is_ok_and(|n| n > 0) {}
    });
    port
}

/// How often another task of this thread runs while `one` does its work over and over.
async fn turns_of_others(one: impl AsyncFn()) -> usize {
    let count = std::rc::Rc::new(std::cell::Cell::new(0));
    let others = count.clone();
    let local = tokio::task::LocalSet::new();
    local.spawn_local(async move {
        loop {
            tokio::task::yield_now().await;
            others.set(others.get() + 1);
        }
    });
    local
        .run_until(async {
            let until = Instant::now() + Duration::from_millis(300);
            let mut rounds = 0;
            while Instant::now() < until || rounds < 3000 {
                one().await;
                rounds += 1;
            }
            rounds / count.get().max(1)
        })
        .await
}

#[tokio::test]
async fn receiving_and_sending_without_end_leave_turns_to_others() {
    let neater = Neater::new().expect("engine");
    let from = tokio::time::timeout(LIMIT, to(&neater, source()).initiate()).await.expect("soon").expect("connected");
    // There is always something: the thread that writes is faster than small pieces are read.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let receive = async || drop(from.receive_partial(64).await.expect("alive").expect("more"));
    let rounds = turns_of_others(receive).await;
    assert!(rounds <= 260, "{rounds} messages received between two turns of others");
    let into = tokio::time::timeout(LIMIT, to(&neater, sink()).initiate()).await.expect("soon").expect("connected");
    let send = async || {
        into.send("x").await.expect("sent");
    };
    let rounds = turns_of_others(send).await;
    assert!(rounds <= 260, "{rounds} messages sent between two turns of others");
}

#[tokio::test]
async fn a_message_that_is_gathered_for_long_leaves_turns_to_others() {
    let neater = Neater::new().expect("engine");
    let framer = FramerSpec::LengthPrefixed { width: 4, max: 1 << 30 };
    let listener = TcpListener::bind(loopback(0)).expect("bound");
    let port = listener.local_addr().expect("bound").port();
    let peer = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().expect("a connection");
        peer.write_all(&(60u32 << 20).to_be_bytes()).expect("written");
        peer.write_all(&vec![7; 60 << 20]).expect("written");
    });
    let connection: Connection = to(&neater, port).framer(framer).initiate().await.expect("connected");
    let (message, pendings) = pendings(connection.receive()).await;
    assert_eq!(message.expect("alive").expect("a message").data.len(), 60 << 20);
    assert!(pendings >= 2, "{pendings} turns for others while 60 MB were gathered");
    peer.join().expect("written");
}
