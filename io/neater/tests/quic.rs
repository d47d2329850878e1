//! QUIC's groups and attempts over real sockets, where the moment matters.

mod common;

use common::{LIMIT, loopback, nothing_left, security};
use neater::{Accepted, Neater, Preconnection, Stack};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

fn preconnections(neater: &Neater) -> (Preconnection, Preconnection) {
    let (client, server) = security();
    let pre = neater.preconnection().stacks(&[Stack::Quic]);
    (pre.clone().security(client), pre.local(loopback(0)).security(server))
}

#[tokio::test]
async fn streams_that_come_before_their_group_is_taken_are_not_lost() {
    let neater = Neater::new().expect("engine");
    let (client, server) = preconnections(&neater);
    let listener = server.listen().expect("listening");
    listener.deliver_groups(true);
    let ours = client.remote(loopback(listener.port())).initiate().await.expect("connected");
    let second = ours.clone_connection().expect("a stream");
    for stream in [&ours, &second] {
        stream.send("early").await.expect("sent");
        stream.finish().expect("finished");
    }
    // Both have long arrived when the program takes the group.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let taking = async {
        let Some(Accepted::Group(group)) = listener.accept_any().await else { panic!("QUIC comes as groups") };
        for _ in 0..2 {
            let theirs = group.accept().await.expect("a stream");
            assert_eq!(&theirs.receive().await.expect("alive").expect("a message")[..], b"early");
        }
    };
    tokio::time::timeout(LIMIT, taking).await.expect("both streams are there");
}

#[tokio::test]
async fn a_group_that_nobody_takes_ends_with_its_listener() {
    let neater = Neater::new().expect("engine");
    let (client, server) = preconnections(&neater);
    let listener = server.listen().expect("listening");
    listener.deliver_groups(true);
    let ours = client.remote(loopback(listener.port())).initiate().await.expect("connected");
    ours.send("early").await.expect("sent");
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(listener);
    let _ = tokio::time::timeout(LIMIT, ours.receive()).await.expect("the peer ends it");
    drop(ours);
    nothing_left(&neater).await;
}

#[tokio::test]
async fn an_attempt_that_is_given_up_at_any_step_leaves_nothing_on_either_side() {
    let (a, b) = (Neater::new().expect("engine"), Neater::new().expect("engine"));
    let (client, _) = preconnections(&a);
    let (_, server) = preconnections(&b);
    let listener = server.listen().expect("listening");
    let client = client.remote(loopback(listener.port()));
    for steps in 0..60 {
        let mut attempt = pin!(client.initiate());
        for _ in 0..steps {
            if attempt.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    nothing_left(&a).await;
    drop(listener);
    nothing_left(&b).await;
}
