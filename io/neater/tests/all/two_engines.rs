//! Several engines in one process share nothing.

use crate::common::{LIMIT, echo, loopback, nothing_left, security};
use neater::{FramerSpec, Limits, Neater, SecurityParameters, Stack};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_engine_talks_to_the_other_and_neither_counts_for_both() {
    let (a, b) = (Neater::new().expect("engine"), Neater::new().expect("engine"));
    let (client, server) = security();
    let framer = FramerSpec::LengthPrefixed { width: 4, max: 1 << 20 };
    let listener = b.preconnection().framer(framer.clone()).local(loopback(0)).security(server).listen();
    let listener = listener.expect("listening");
    let port = listener.port();
    let task = tokio::spawn(echo(listener));
    for stack in [Stack::Tls, Stack::Quic] {
        let pre = a.preconnection().framer(framer.clone()).remote(loopback(port)).security(client.clone());
        let connection = pre.stacks(&[stack]).initiate().await.expect("connected");
        connection.send("hello").await.expect("sent");
        assert_eq!(&connection.receive().await.expect("alive").expect("echo")[..], b"hello");
        assert_eq!(a.stats().connections, 1);
    }
    assert_eq!((a.stats().initiated, a.stats().received), (2, 0));
    assert_eq!((b.stats().initiated, b.stats().received), (0, 2));
    task.abort();
    let _ = task.await;
    nothing_left(&a).await;
    nothing_left(&b).await;
}

#[tokio::test]
async fn what_one_engine_has_learnt_another_does_not_know() {
    let (a, b) = (Neater::new().expect("engine"), Neater::new().expect("engine"));
    let peer = Neater::new().expect("engine");
    let pre = peer.preconnection().local(loopback(0)).security(SecurityParameters::disabled());
    let listener = pre.stacks(&[Stack::Tcp]).listen().expect("listening");
    let port = listener.port();
    let task = tokio::spawn(echo(listener));
    let open = async |engine: &Neater| {
        let pre = engine.preconnection().remote(loopback(port)).security(SecurityParameters::disabled());
        drop(pre.initiate().await.expect("connected"));
    };
    open(&a).await;
    open(&a).await;
    assert_eq!(a.stats().cache_hits, 1, "the second connection of an engine uses the outcome of the first");
    open(&b).await;
    assert_eq!(b.stats().cache_hits, 0);
    a.flush_caches();
    open(&b).await;
    assert_eq!(b.stats().cache_hits, 1, "flushing another engine's cache leaves this one's alone");
    task.abort();
}

#[tokio::test]
async fn the_limit_of_one_engine_does_not_bind_another() {
    let small = Neater::builder().limits(Limits { connections: 2, ..Limits::default() }).build().expect("engine");
    let large = Neater::new().expect("engine");
    let pre = large.preconnection().local(loopback(0)).security(SecurityParameters::disabled());
    let listener = pre.stacks(&[Stack::Tcp]).listen().expect("listening");
    let port = listener.port();
    let task = tokio::spawn(echo(listener));
    let open = async |engine: &Neater| {
        engine.preconnection().remote(loopback(port)).security(SecurityParameters::disabled()).initiate().await
    };
    let _held = (open(&small).await.expect("the first"), open(&small).await.expect("the second"));
    let refused = open(&small).await.expect_err("the third is over the limit");
    assert_eq!(refused.reason, neater::Reason::Exhausted, "{refused}");
    let mut others = Vec::new();
    for _ in 0..5 {
        others.push(open(&large).await.expect("another engine's limit"));
    }
    task.abort();
}

#[tokio::test]
async fn an_engine_that_is_dropped_takes_nothing_of_another_with_it() {
    let (a, b) = (Neater::new().expect("engine"), Neater::new().expect("engine"));
    let pre = b.preconnection().local(loopback(0)).security(SecurityParameters::disabled());
    let listener = pre.stacks(&[Stack::Tcp]).listen().expect("listening");
    let port = listener.port();
    let task = tokio::spawn(echo(listener));
    let through_b = b.preconnection().remote(loopback(port)).security(SecurityParameters::disabled());
    let through_b = through_b.initiate().await.expect("connected");
    let through_a = a.preconnection().remote(loopback(port)).security(SecurityParameters::disabled());
    drop(through_a.initiate().await.expect("connected"));
    drop((through_a, a));
    let exchange = async {
        through_b.send("still there").await.expect("sent");
        through_b.receive().await.expect("alive").expect("echo")
    };
    let echo = tokio::time::timeout(LIMIT, exchange).await.expect("in time");
    assert_eq!(&echo[..], b"still there");
    task.abort();
}
