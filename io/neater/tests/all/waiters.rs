//! Any number of tasks wait on one object, and each is woken.

use crate::common::{LIMIT, loopback, security};
use core::future::Future;
use core::pin::pin;
use core::task::Context;
use neater::{Connection, FramerSpec, Listener, Neater, Preconnection, SecurityParameters, Stack};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const TASKS: usize = 8;

fn framer() -> FramerSpec {
    FramerSpec::LengthPrefixed { width: 4, max: 1 << 20 }
}

/// A listener, and what connects to it from another engine.
fn pair(stack: Stack) -> (Listener, Preconnection) {
    let (near, far) = (Neater::new().expect("engine"), Neater::new().expect("engine"));
    let (client, server) = match stack.is_secure() {
        true => security(),
        false => (SecurityParameters::disabled(), SecurityParameters::disabled()),
    };
    let pre = far.preconnection().local(loopback(0)).security(server).framer(framer()).stacks(&[stack]);
    let listener = pre.listen().expect("listening");
    let port = listener.port();
    (listener, near.preconnection().remote(loopback(port)).security(client).framer(framer()).stacks(&[stack]))
}

/// A connection and its peer, over which one message has gone.
async fn connected(listener: &Listener, pre: &Preconnection) -> (Arc<Connection>, Arc<Connection>) {
    let near = pre.initiate().await.expect("established");
    near.send("first").await.expect("sent");
    let far = listener.accept().await.expect("listening");
    far.receive().await.expect("alive").expect("the first message");
    (Arc::new(near), Arc::new(far))
}

/// Starts the same thing in many tasks, and lets all of them wait.
async fn many<T, F, Fut>(make: F) -> Vec<JoinHandle<T>>
where
    T: Send + 'static,
    F: Fn(usize) -> Fut,
    Fut: Future<Output = T> + Send + 'static,
{
    let tasks = (0..TASKS).map(|n| tokio::spawn(make(n))).collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    tasks
}

async fn all<T>(tasks: Vec<JoinHandle<T>>) -> Vec<T> {
    let mut results = Vec::new();
    for (n, task) in tasks.into_iter().enumerate() {
        let result = timeout(LIMIT, task).await;
        results.push(result.unwrap_or_else(|_| panic!("task {n} sleeps forever")).expect("no panic"));
    }
    results
}

const STACKS: [Stack; 3] = [Stack::Tcp, Stack::Tls, Stack::Quic];

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn all_tasks_that_send_on_one_connection_get_their_messages_through() {
    for stack in STACKS {
        let (listener, pre) = pair(stack);
        let (near, far) = connected(&listener, &pre).await;
        let senders = many(|n| {
            let near = near.clone();
            async move {
                for _ in 0..200 {
                    near.send(vec![n as u8; 10_000]).await.expect("sent");
                }
            }
        })
        .await;
        let mut received = [0; TASKS];
        for _ in 0..200 * TASKS {
            let message = timeout(LIMIT, far.receive()).await.unwrap_or_else(|_| panic!("{stack}: {received:?}"));
            let message = message.expect("alive").expect("a message");
            assert!(message.len() == 10_000 && message.iter().all(|b| *b == message[0]));
            received[usize::from(message[0])] += 1;
        }
        all(senders).await;
        assert_eq!(received, [200; TASKS], "{stack}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn all_tasks_that_receive_on_one_connection_hear_of_messages_and_of_the_end() {
    for stack in STACKS {
        let (listener, pre) = pair(stack);
        let (near, far) = connected(&listener, &pre).await;
        let heard = Arc::new(AtomicUsize::new(0));
        let receivers = many(|_| {
            let (far, heard) = (far.clone(), heard.clone());
            async move {
                while let Some(message) = far.receive().await.expect("alive") {
                    heard.fetch_add(message.len(), Ordering::Relaxed);
                }
            }
        })
        .await;
        for _ in 0..1000 {
            near.send(vec![1; 1000]).await.expect("sent");
        }
        near.finish().expect("finished");
        all(receivers).await;
        assert_eq!(heard.load(Ordering::Relaxed), 1_000_000, "{stack}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn all_tasks_that_accept_on_one_listener_are_served_and_hear_that_it_has_stopped() {
    for stack in STACKS {
        let (listener, pre) = pair(stack);
        let listener = Arc::new(listener);
        let accepters = many(|_| {
            let listener = listener.clone();
            async move {
                let mut served = 0;
                while let Some(one) = listener.accept().await {
                    let message = one.receive().await.expect("alive").expect("a message");
                    assert_eq!(&message[..], b"hello");
                    served += 1;
                }
                served
            }
        })
        .await;
        let mut kept = Vec::new();
        for _ in 0..5 * TASKS {
            let connection = pre.initiate().await.expect("established");
            connection.send("hello").await.expect("sent");
            kept.push(connection);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        listener.stop();
        assert_eq!(all(accepters).await.iter().sum::<usize>(), 5 * TASKS, "{stack}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn all_tasks_that_wait_for_a_connection_to_begin_and_to_end_hear_of_both() {
    for stack in STACKS {
        let (listener, pre) = pair(stack);
        let near = Arc::new(pre.initiate().connection().expect("begun"));
        let watchers = many(|n| {
            let near = near.clone();
            async move {
                near.ready().await.expect("established");
                match n % 3 {
                    0 => near.closed().await.is_err(),
                    1 => near.receive().await.is_err(),
                    _ => {
                        while near.next_event().await.is_some() {}
                        true
                    }
                }
            }
        })
        .await;
        near.send("hello").await.expect("sent");
        let _far = listener.accept().await.expect("listening");
        near.abort();
        assert_eq!(all(watchers).await, [true; TASKS], "{stack}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn all_tasks_that_wait_for_streams_of_one_group_get_all_of_them_and_hear_of_the_end() {
    let (listener, pre) = pair(Stack::Quic);
    let (near, far) = connected(&listener, &pre).await;
    let group = Arc::new(far.group().expect("a group"));
    let takers = many(|_| {
        let group = group.clone();
        async move {
            let mut taken = 0;
            while let Ok(stream) = group.accept().await {
                stream.receive().await.expect("alive").expect("a message");
                taken += 1;
            }
            taken
        }
    })
    .await;
    let mut kept = Vec::new();
    for _ in 0..5 * TASKS {
        let stream = near.clone_connection().expect("a stream");
        stream.ready().await.expect("ready");
        stream.send("hello").await.expect("sent");
        kept.push(stream);
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    group.close_session(0, b"enough");
    assert_eq!(all(takers).await.iter().sum::<usize>(), 5 * TASKS);
}

struct Quiet;
impl Wake for Quiet {
    fn wake(self: Arc<Self>) {}
}

#[tokio::test]
async fn who_gives_up_waiting_leaves_no_waker_behind() {
    let (listener, pre) = pair(Stack::Quic);
    let (near, far) = connected(&listener, &pre).await;
    let group = far.group().expect("a group");
    while let Ok(Ok(_)) = timeout(Duration::from_millis(300), near.send(vec![0; 60_000])).await {}
    let all: Vec<Arc<Quiet>> = (0..100).map(|_| Arc::new(Quiet)).collect();
    for quiet in &all {
        let waker = Waker::from(quiet.clone());
        let mut cx = Context::from_waker(&waker);
        let mut polls = 0;
        macro_rules! wait {
            ($($future:expr),*) => { $(
                let mut future = pin!($future);
                polls += usize::from(future.as_mut().poll(&mut cx).is_pending());
            )* };
        }
        wait!(near.send(vec![0; 60_000]), near.receive(), near.closed(), near.next_event());
        wait!(listener.accept(), listener.accept_any(), group.accept());
        assert_eq!(polls, 7, "all of them wait");
        assert!(Arc::strong_count(quiet) >= 2 + 7);
    }
    for (n, quiet) in all.iter().enumerate() {
        assert_eq!(Arc::strong_count(quiet), 1, "the waker of number {n} is still there");
    }
}

/// A waiter behind another that moves up is looked for in one place.
#[tokio::test]
async fn who_moves_up_and_gives_up_leaves_no_waker_behind() {
    struct Nobody;
    impl Wake for Nobody {
        fn wake(self: Arc<Self>) {}
    }
    let listener = tokio::net::TcpListener::bind(loopback(0)).await.expect("listening");
    let near = Neater::new().expect("engine");
    let pre = near.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]);
    let connection = pre.remote(listener.local_addr().expect("bound")).initiate().await.expect("connected");
    let _peer = listener.accept().await.expect("accepted");
    let wakers: Vec<Arc<Nobody>> = (0..100).map(|_| Arc::new(Nobody)).collect();
    for waker in &wakers {
        let waker = Waker::from(waker.clone());
        let mut cx = Context::from_waker(&waker);
        let (mut first, mut second) = (Box::pin(connection.receive()), Box::pin(connection.receive()));
        assert!(first.as_mut().poll(&mut cx).is_pending() && second.as_mut().poll(&mut cx).is_pending());
        drop(first);
        assert!(second.as_mut().poll(&mut cx).is_pending());
    }
    assert_eq!(wakers.iter().filter(|w| Arc::strong_count(w) > 1).count(), 0);
}
