//! Framers of the program's own: what goes wrong in one is the affair of its connection alone.

mod common;

use bytes::Bytes;
use common::{LIMIT, loopback, nothing_left};
use neater::{
    Connection, ConnectionError, Framer, FramerError, FramerSpec, Input, Neater, Outbound, Preconnection, Readiness,
    SecurityParameters, SendError, Stack,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    tokio::time::timeout(LIMIT, future).await.unwrap_or_else(|_| panic!("{what} does not end"))
}

fn clear(neater: &Neater) -> Preconnection {
    neater.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Tcp])
}

/// Passes bytes on, and calls `visit` with the name of each function.
struct Visited(Arc<dyn Fn(&str) + Send + Sync>);

impl Framer for Visited {
    fn name(&self) -> &str {
        "visited"
    }
    fn start(&mut self, _: &mut Outbound) -> Result<Readiness, FramerError> {
        (self.0)("start");
        Ok(Readiness::Ready)
    }
    fn new_sent_message(&mut self, out: &mut Outbound, data: Bytes, _: bool, _: bool) -> Result<(), FramerError> {
        (self.0)("send");
        out.send(data);
        Ok(())
    }
    fn handle_received_data(&mut self, input: &mut Input<'_>) -> Result<Readiness, FramerError> {
        (self.0)("receive");
        let n = input.parse().len() as u64;
        if n > 0 {
            input.deliver_and_advance_receive_cursor(n, true);
        }
        Ok(Readiness::Ready)
    }
}

fn visited(visit: impl Fn(&str) + Send + Sync + 'static) -> FramerSpec {
    let visit: Arc<dyn Fn(&str) + Send + Sync> = Arc::new(visit);
    FramerSpec::Custom(Arc::new(move || Box::new(Visited(visit.clone()))))
}

async fn works(ours: &Connection, theirs: &Connection) {
    soon("sending", ours.send("hello")).await.expect("sent");
    let message = soon("receiving", theirs.receive()).await.expect("alive").expect("a message");
    assert_eq!(&message[..], b"hello");
}

#[tokio::test]
async fn a_framer_that_panics_on_one_incoming_connection_disturbs_no_other() {
    let neater = Neater::new().expect("engine");
    let starts = Arc::new(AtomicUsize::new(0));
    let count = starts.clone();
    let framer = visited(move |what| {
        assert!(what != "start" || count.fetch_add(1, Ordering::Relaxed) != 1, "the second connection is bad luck");
    });
    let listener = clear(&neater).framer(framer).local(loopback(0)).listen().expect("listening");
    let pre = clear(&neater).framer(visited(|_| {})).remote(loopback(listener.port()));
    let first = soon("initiate", pre.initiate()).await.expect("connected");
    let accepted = soon("accept", listener.accept()).await.expect("a connection");
    let second = soon("initiate", pre.initiate()).await.expect("connected");
    // The peer of the bad one sees its end.
    assert!(!matches!(soon("receive", second.receive()).await, Ok(Some(_))));
    works(&first, &accepted).await;
    let third = soon("initiate", pre.initiate()).await.expect("connected");
    works(&third, &soon("accept", listener.accept()).await.expect("a connection")).await;
    drop((first, second, third, accepted, listener));
    nothing_left(&neater).await;
}

#[tokio::test]
async fn a_panic_while_sending_or_receiving_ends_the_connection_with_what_it_said() {
    for place in ["send", "receive"] {
        let neater = Neater::new().expect("engine");
        let framer = visited(move |what| assert!(what != place, "no luck today"));
        let listener = clear(&neater).framer(visited(|_| {})).local(loopback(0)).listen().expect("listening");
        let pre = clear(&neater).framer(framer).remote(loopback(listener.port()));
        let ours = soon("initiate", pre.initiate()).await.expect("connected");
        let theirs = soon("accept", listener.accept()).await.expect("a connection");
        if place == "send" {
            let error = soon("send", ours.send("x")).await.expect_err("it panics");
            assert!(matches!(&error, SendError::Framer(e) if e.contains("no luck today")), "{error}");
        } else {
            soon("send", theirs.send("x")).await.expect("sent");
            assert!(soon("receive", ours.receive()).await.is_err());
        }
        let error = soon("closed", ours.closed()).await.expect_err("it has failed");
        assert!(matches!(&error, ConnectionError::Framer(e) if e.contains("no luck today")), "{error}");
        drop((ours, theirs, listener));
        nothing_left(&neater).await;
    }
}

#[tokio::test]
async fn a_framer_that_calls_its_own_engine_is_told_instead_of_waiting_for_ever() {
    let neater = Neater::new().expect("engine");
    let other = Neater::new().expect("engine");
    let (own, another) = (neater.clone(), other.clone());
    let listener = clear(&neater).local(loopback(0)).listen().expect("listening");
    // Another engine is free.
    let framer = visited(move |_| assert!(another.stats().connections < 1000));
    let pre = clear(&neater).remote(loopback(listener.port()));
    let fine = soon("initiate", pre.clone().framer(framer).initiate()).await.expect("connected");
    soon("send", fine.send("x")).await.expect("sent");
    let framer = visited(move |what| assert!(what != "send" || own.stats().connections > 0));
    let bad = soon("initiate", pre.framer(framer).initiate()).await.expect("connected");
    let error = soon("send", bad.send("x")).await.expect_err("it calls its own engine");
    assert!(error.to_string().contains("must not call the objects of its own engine"), "{error}");
    soon("send", fine.send("y")).await.expect("sent");
}
