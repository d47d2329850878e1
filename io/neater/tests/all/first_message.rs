//! The first message of `initiate_with_send` arrives, or the program gets the reason.

use crate::common::{LIMIT, loopback, security};
use neater::{
    Event, FramerSpec, MessageContext, Neater, Preconnection, Reason, SecurityParameters, SendError, Stack,
    TransportProperties,
};
use std::sync::{Arc, Mutex};

type Heard = Arc<Mutex<Vec<Event>>>;

/// A Preconnection to a listener that exists, and the events that it gets.
fn client(neater: &Neater, port: u16) -> (Preconnection, Heard) {
    let heard = Heard::default();
    let events = heard.clone();
    let pre = neater
        .preconnection()
        .remote(loopback(port))
        .security(SecurityParameters::disabled())
        .stacks(&[Stack::Tcp])
        .on_event(move |e| events.lock().expect("not poisoned").push(e.clone()));
    (pre, heard)
}

/// The message is refused: by the future, and by the event.
async fn refused(pre: Preconnection, heard: &Heard, len: usize, context: &MessageContext) -> SendError {
    let initiate = pre.initiate_with_send(vec![1; len], context);
    let error = tokio::time::timeout(LIMIT, initiate).await.expect("in time").expect_err("the message cannot be sent");
    assert_eq!(error.reason, Reason::InvalidConfiguration);
    let heard = core::mem::take(&mut *heard.lock().expect("not poisoned"));
    let mut told = heard.into_iter().filter_map(|e| match e {
        Event::SendError(id, e) => Some((id, e)),
        _ => None,
    });
    let (id, why) = told.next().expect("SendError");
    assert_eq!(id.0, 1);
    assert!(told.next().is_none());
    assert!(error.to_string().contains(&why.to_string()), "{error} says why: {why}");
    why
}

#[tokio::test]
async fn a_first_message_that_cannot_be_sent_fails_the_future_and_is_reported() {
    let neater = Neater::new().expect("engine");
    let limits = neater::Limits { message: 100_000, ..neater::Limits::default() };
    let small = Neater::builder().limits(limits).build().expect("engine");
    let clear = neater.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]);
    let listener = clear.local(loopback(0)).listen().expect("listening");
    let replayable = MessageContext::new().safely_replayable_as(true);
    for context in [MessageContext::new(), replayable] {
        let (pre, heard) = client(&small, listener.port());
        let why = refused(pre, &heard, 100_001, &context).await;
        assert!(matches!(why, SendError::MessageTooLarge { max: 100_000 }), "{why}");

        let (pre, heard) = client(&neater, listener.port());
        let pre = pre.framer(FramerSpec::LengthPrefixed { width: 2, max: 1000 });
        let why = refused(pre, &heard, 1001, &context).await;
        assert!(matches!(why, SendError::Framer(_)), "{why}");

        let (pre, heard) = client(&neater, listener.port());
        let mut properties = TransportProperties::new();
        properties.set("direction", "unidirectional-receive").expect("a property");
        let why = refused(pre.properties(properties), &heard, 10, &context).await;
        assert!(matches!(why, SendError::Connection(_)), "{why}");
    }
    assert_eq!((neater.stats().connections, small.stats().connections), (0, 0), "nothing is left");
}

#[tokio::test]
async fn a_first_message_that_can_be_sent_arrives_over_every_stack() {
    let (client, server) = security();
    for stack in [Stack::Tcp, Stack::Tls, Stack::Quic] {
        let (client, server) = match stack.is_secure() {
            true => (client.clone(), server.clone()),
            false => (SecurityParameters::disabled(), SecurityParameters::disabled()),
        };
        let neater = Neater::new().expect("engine");
        let pre = neater.preconnection().stacks(&[stack]);
        let listener = pre.clone().local(loopback(0)).security(server).listen().expect("listening");
        let pre = pre.remote(loopback(listener.port())).security(client);
        for replayable in [false, true] {
            let context = MessageContext::new().safely_replayable_as(replayable);
            let _near = pre.initiate_with_send("hello", &context).await.expect("established");
            let far = listener.accept().await.expect("listening");
            let message = tokio::time::timeout(LIMIT, far.receive()).await.expect("in time");
            assert_eq!(&message.expect("alive").expect("a message")[..], b"hello", "{stack}");
        }
    }
}
