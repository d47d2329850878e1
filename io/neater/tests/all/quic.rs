//! QUIC's groups and attempts over real sockets, where the moment matters.

use crate::common::{LIMIT, loopback, nothing_left, security};
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
async fn a_group_that_was_taken_and_dropped_leaves_nothing_of_its_session() {
    let (a, b) = (Neater::new().expect("engine"), Neater::new().expect("engine"));
    let (client, _) = preconnections(&a);
    let (_, server) = preconnections(&b);
    let listener = server.listen().expect("listening");
    listener.deliver_groups(true);
    let client = client.remote(loopback(listener.port()));
    let visit = async || {
        let ours = client.initiate().await.expect("connected");
        let mut streams = vec![ours];
        for _ in 0..9 {
            streams.push(streams[0].clone_connection().expect("a stream"));
        }
        for stream in &streams {
            stream.send("hello").await.expect("sent");
        }
        streams
    };
    // As a server does that rejects a client: the streams have been reported, and are not taken.
    let streams = visit().await;
    let Some(Accepted::Group(group)) = listener.accept_any().await else { panic!("QUIC comes as groups") };
    let first = group.accept().await.expect("a stream");
    tokio::time::sleep(Duration::from_millis(200)).await;
    group.close_session(7, b"full");
    drop((group, first));
    nothing_left(&b).await;
    assert_eq!(b.stats().groups, 0);
    drop(streams);
    // And as one does that does not want groups at all.
    let streams = visit().await;
    let nobody = tokio::time::timeout(Duration::from_millis(300), listener.accept()).await;
    assert!(nobody.is_err(), "there are only groups");
    nothing_left(&b).await;
    assert_eq!(b.stats().groups, 0);
    drop(streams);
    nothing_left(&a).await;
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

#[tokio::test]
async fn a_listener_may_come_back_to_a_port_on_which_sessions_live() {
    let (a, b) = (Neater::new().expect("engine"), Neater::new().expect("engine"));
    let (client, server) = preconnections(&b);
    let listener = server.listen().expect("listening");
    let to = loopback(listener.port());
    let from_a = a.preconnection().stacks(&[Stack::Quic]).security(security().0).remote(to);
    let ours = from_a.initiate().await.expect("connected");
    ours.send("before").await.expect("sent");
    let theirs = listener.accept().await.expect("accepted");
    assert_eq!(&theirs.receive().await.expect("open").expect("a message")[..], b"before");
    drop(listener);
    let refused = client.remote(to).timeout(Duration::from_secs(2)).initiate().await;
    assert!(refused.is_err(), "nobody listens");
    // With another certificate, perhaps the next year's.
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let identity = neater::tls::self_signed(&["127.0.0.1"], neater::WallTime(wall), [8; 32]);
    let (mut trusting, mut shown) = security();
    trusting.trust = neater::Trust::Only(vec![identity.chain[0].clone()]);
    shown.server_certificates = vec![identity];
    let again = b.preconnection().stacks(&[Stack::Quic]).security(shown).local(to).listen().expect("its own port");
    let pre = a.preconnection().stacks(&[Stack::Quic]).security(trusting).remote(to);
    let new = tokio::time::timeout(LIMIT, pre.initiate()).await.expect("in time").expect("connected");
    new.send("after").await.expect("sent");
    let accepted = tokio::time::timeout(LIMIT, again.accept()).await.expect("in time").expect("accepted");
    assert_eq!(&accepted.receive().await.expect("open").expect("a message")[..], b"after");
    // The session from before goes on.
    ours.send("still").await.expect("sent");
    assert_eq!(&theirs.receive().await.expect("open").expect("a message")[..], b"still");
    drop((ours, theirs, new, accepted, again));
    nothing_left(&a).await;
    nothing_left(&b).await;
}
