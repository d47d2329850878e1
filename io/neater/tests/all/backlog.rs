//! A listener whose program takes nothing holds a bounded number of connections, and goes on when
//! it does.

use crate::common::{LIMIT, loopback, security};
use neater::{
    Connection, Limits, Listener, MessageContext, Neater, Preconnection, SecurityParameters, Stack, TransportProperties,
};
use std::time::Duration;

const UNTAKEN: usize = 8;
const CLIENTS: usize = 5 * UNTAKEN;

/// A listener of an engine with this limit, and what connects to it from another engine.
fn pair(stack: Stack) -> (Neater, Listener, Preconnection) {
    let limits = Limits { untaken: UNTAKEN, handshakes: UNTAKEN, ..Limits::default() };
    let far = Neater::builder().limits(limits).build().expect("engine");
    let (client, server) = match stack.is_secure() {
        true => security(),
        false => (SecurityParameters::disabled(), SecurityParameters::disabled()),
    };
    let properties = match stack {
        Stack::Udp => neater_property::profile("unreliable-datagram").expect("known"),
        _ => TransportProperties::new(),
    };
    let from = |engine: &Neater| engine.preconnection().properties(properties.clone()).stacks(&[stack]);
    let listener = from(&far).local(loopback(0)).security(server).listen().expect("listening");
    let near = Neater::new().expect("engine");
    let pre = from(&near).remote(loopback(listener.port())).security(client);
    (far, listener, pre)
}

fn knock(pre: &Preconnection) -> Vec<Connection> {
    let context = MessageContext::new().safely_replayable_as(true);
    (0..CLIENTS)
        .map(|_| {
            let connection = pre.initiate().connection().expect("begun");
            connection.try_send("x", &context).expect("room for it");
            connection
        })
        .collect()
}

async fn take(listener: &Listener) -> Connection {
    let next = tokio::time::timeout(LIMIT, listener.accept()).await.expect("what waits is delivered");
    next.expect("listening")
}

#[tokio::test]
async fn what_the_program_does_not_take_waits_in_the_kernel() {
    for stack in [Stack::Tcp, Stack::Tls] {
        let (far, listener, pre) = pair(stack);
        let clients = knock(&pre);
        tokio::time::sleep(Duration::from_millis(300)).await;
        let received = far.stats().received as usize;
        // Handshakes that were under way at the limit are finished.
        let most = if stack == Stack::Tcp { UNTAKEN } else { 2 * UNTAKEN };
        assert!((UNTAKEN..=most).contains(&received), "{stack}: {received} were received, and none was taken");
        let mut taken = Vec::new();
        for _ in 0..CLIENTS {
            let one = take(&listener).await;
            assert_eq!(&one.receive().await.expect("alive").expect("a message")[..], b"x", "{stack}");
            taken.push(one);
        }
        drop(clients);
    }
}

#[tokio::test]
async fn quic_and_udp_turn_away_what_nobody_takes_and_serve_again_afterwards() {
    for stack in [Stack::Quic, Stack::Udp] {
        let (far, listener, pre) = pair(stack);
        let clients = knock(&pre);
        tokio::time::sleep(Duration::from_millis(300)).await;
        let stats = far.stats();
        assert_eq!(stats.received as usize, UNTAKEN, "{stack}");
        assert!(stats.refused > 0, "{stack}");
        for _ in 0..UNTAKEN {
            drop(take(&listener).await);
        }
        drop(clients);
        let late = knock(&pre);
        let one = take(&listener).await;
        assert_eq!(&one.receive().await.expect("alive").expect("a message")[..], b"x", "{stack}");
        drop(late);
    }
}
