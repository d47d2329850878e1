//! Every future may be dropped at any moment: nothing is lost, nothing is taken, nothing leaks.

mod common;

use common::{LIMIT, descriptors, loopback, nothing_left, security};
use neater::{Connection, FramerSpec, Listener, Neater, Preconnection, SecurityParameters, Stack};
use neater_base::Rng;
use std::future::Future;
use std::time::Duration;

/// Futures that are dropped at random, in each of the tests' parts together.
const CANCELLATIONS: u64 = 1000;

/// Gives a future up after a random number of steps or a random time; `None` if it was not done by
/// then.
async fn cancelled<F: Future>(rng: &mut Rng, future: F) -> Option<F::Output> {
    if rng.chance(0.7) {
        let steps = rng.below(12);
        tokio::select! {
            biased;
            output = future => Some(output),
            () = async { for _ in 0..steps { tokio::task::yield_now().await } } => None,
        }
    } else {
        tokio::time::timeout(Duration::from_micros(rng.below(3000)), future).await.ok()
    }
}

async fn pair(pre: &Preconnection, listener: &Listener) -> (Connection, Connection) {
    let (ours, theirs) = tokio::join!(pre.initiate(), async {
        // The first to come may be one whose initiator has given up already.
        listener.accept().await
    });
    (ours.expect("connected"), theirs.expect("a connection"))
}

/// Numbered messages through sends and receives that are dropped at random: what arrives is what
/// was sent, once, in order.
async fn send_and_receive(rng: &mut Rng, ours: &Connection, theirs: &Connection, cancellations: u64) {
    let (mut next, mut expected) = (0u32, 0u32);
    let mut done = 0;
    while done < cancellations {
        if rng.chance(0.5) {
            let mut message = vec![0x5a; 4 + rng.below(60_000) as usize];
            message[..4].copy_from_slice(&next.to_be_bytes());
            match cancelled(rng, ours.send(message)).await {
                Some(sent) => {
                    sent.expect("sent");
                    next += 1;
                }
                None => done += 1,
            }
        } else {
            match cancelled(rng, theirs.receive()).await {
                Some(message) => {
                    let message = message.expect("alive").expect("a message");
                    assert_eq!(message[..4], expected.to_be_bytes(), "in order, each once");
                    assert!(message[4..].iter().all(|b| *b == 0x5a));
                    expected += 1;
                }
                None => done += 1,
            }
        }
    }
    while expected < next {
        let message = theirs.receive().await.expect("alive").expect("a message");
        assert_eq!(message[..4], expected.to_be_bytes(), "what was sent before the last cancellation arrives");
        expected += 1;
    }
    assert!(next > 0);
}

/// Connections that are given up at random, and accepts that are given up at random: every
/// connection that its initiator got can be used, so none was lost by an accept that was dropped.
async fn initiate_and_accept(rng: &mut Rng, pre: &Preconnection, listener: Listener, cancellations: u64) {
    let mut done = 0;
    while done < cancellations {
        let Some(ours) = cancelled(rng, pre.initiate()).await else {
            done += 1;
            continue;
        };
        let ours = ours.expect("connected");
        ours.send("mine").await.expect("sent");
        loop {
            match cancelled(rng, listener.accept()).await {
                None => done += 1,
                Some(None) => panic!("the listener has stopped"),
                Some(Some(theirs)) => {
                    // It may be one whose initiator had given up: then nothing comes from it.
                    if let Ok(Some(message)) = theirs.receive().await {
                        assert_eq!(&message[..], b"mine");
                        break;
                    }
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_futures_dropped_at_random_leave_nothing() {
    // What the runtime opens when it is first used is not ours.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let before = descriptors();
    let neater = Neater::new().expect("engine");
    let (client, server) = security();
    let test = async {
        let mut rng = Rng::from_number(0x0ca7);
        let stacks = [Stack::Tcp, Stack::Tls, Stack::Quic];
        for stack in stacks {
            let (client, server) = match stack {
                Stack::Tcp => (SecurityParameters::disabled(), SecurityParameters::disabled()),
                _ => (client.clone(), server.clone()),
            };
            let framer = FramerSpec::LengthPrefixed { width: 4, max: 1 << 20 };
            let pre = neater.preconnection().framer(framer).stacks(&[stack]);
            let listener = pre.clone().local(loopback(0)).security(server).listen().expect("listening");
            let pre = pre.remote(loopback(listener.port())).security(client);
            if stack == Stack::Quic {
                // A stream is announced by its first bytes.
                let ours = pre.initiate().await.expect("connected");
                ours.send("hello").await.expect("sent");
                let theirs = listener.accept().await.expect("a connection");
                theirs.receive().await.expect("alive").expect("hello");
                send_and_receive(&mut rng, &ours, &theirs, CANCELLATIONS / 2 / stacks.len() as u64).await;
            } else {
                let (ours, theirs) = pair(&pre, &listener).await;
                send_and_receive(&mut rng, &ours, &theirs, CANCELLATIONS / 2 / stacks.len() as u64).await;
            }
            initiate_and_accept(&mut rng, &pre, listener, CANCELLATIONS / 2 / stacks.len() as u64 + 1).await;
        }
    };
    // Ten seconds where nothing else runs.
    tokio::time::timeout(3 * LIMIT, test).await.expect("in time");
    nothing_left(&neater).await;
    drop(neater);
    for _ in 0..500 {
        if descriptors() == before {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(descriptors(), before, "descriptors");
}
