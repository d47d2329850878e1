//! Connections with `isolateSession` share cached state with those that were cloned from them, and
//! with no others.

use crate::common::{LIMIT, loopback, security};
use neater::{Listener, Neater, Preconnection, Role, SecurityParameters, Stack, TransportProperties};

fn pair(stack: Stack, isolated: bool) -> (Neater, Listener, Preconnection) {
    let neater = Neater::new().expect("engine");
    let (client, server) = match stack.is_secure() {
        true => security(),
        false => (SecurityParameters::disabled(), SecurityParameters::disabled()),
    };
    let listener = neater.preconnection().stacks(&[stack]).local(loopback(0)).security(server).listen();
    let listener = listener.expect("listening");
    let mut properties = TransportProperties::new();
    properties.set("isolateSession", isolated).expect("a property");
    let pre = neater.preconnection().stacks(&[stack]).security(client).properties(properties);
    let pre = pre.remote(loopback(listener.port()));
    (neater, listener, pre)
}

/// Four connections, one after the other, each used; returns how many a cached outcome has opened.
async fn hits(stack: Stack, isolated: bool, compiled: bool) -> u64 {
    let (neater, listener, mut pre) = pair(stack, isolated);
    if compiled {
        pre.compile(Role::Initiate).expect("possible");
    }
    for _ in 0..4 {
        let near = pre.initiate().await.expect("established");
        near.send("x").await.expect("sent");
        let far = tokio::time::timeout(LIMIT, listener.accept()).await.expect("in time").expect("listening");
        far.receive().await.expect("alive").expect("a message");
        near.close().await.expect("closed");
    }
    neater.stats().cache_hits
}

#[tokio::test]
async fn connections_of_one_compiled_request_are_isolated_from_each_other() {
    for stack in [Stack::Tcp, Stack::Tls, Stack::Quic] {
        for compiled in [false, true] {
            assert_eq!(hits(stack, true, compiled).await, 0, "{stack}, compiled: {compiled}");
            assert_eq!(hits(stack, false, compiled).await, 3, "{stack}, compiled: {compiled}, not isolated");
        }
    }
}

#[tokio::test]
async fn a_clone_shares_what_its_group_has_learnt() {
    let (neater, listener, mut pre) = pair(Stack::Tcp, true);
    pre.compile(Role::Initiate).expect("possible");
    let first = pre.initiate().await.expect("established");
    let second = first.clone_connection().expect("cloned");
    second.ready().await.expect("established");
    assert_eq!(neater.stats().cache_hits, 1);
    let _other = pre.initiate().await.expect("established");
    assert_eq!(neater.stats().cache_hits, 1, "another group");
    drop(listener);
}
