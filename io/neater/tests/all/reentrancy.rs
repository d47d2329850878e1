//! Code of the program that runs inside calls of ours may call back: wakers, handlers and
//! destructors never run while the engine is borrowed, so none of them deadlocks.

use crate::common::{echo, loopback, nothing_left};
use neater::{Connection, Event, Listener, Neater, Preconnection, SecurityParameters, Stack};
use std::future::Future;
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

fn over_tcp(neater: &Neater) -> Preconnection {
    neater.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Tcp])
}

fn listen(neater: &Neater) -> Listener {
    over_tcp(neater).local(loopback(0)).listen().expect("listening")
}

async fn pair(neater: &Neater, listener: &Listener) -> (Connection, Connection) {
    let ours = over_tcp(neater).remote(loopback(listener.port())).initiate().await.expect("connected");
    (ours, listener.accept().await.expect("a connection"))
}

/// A thread that is stuck in a lock does not let a runtime shut down: whether a test has ended is
/// watched from outside.
fn without_deadlock(test: impl Future<Output = ()> + Send + 'static) {
    let (done, ended) = channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("a runtime").block_on(test);
        let _ = done.send(());
    });
    match ended.recv_timeout(Duration::from_secs(10)) {
        Ok(()) => {}
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("deadlock"),
        Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => panic!("the test has failed; see above"),
    }
}

async fn told(receiver: Receiver<&'static str>) -> &'static str {
    let wait = move || receiver.recv_timeout(Duration::from_secs(5));
    tokio::task::spawn_blocking(wait).await.expect("a thread").expect("told")
}

/// Calls back when it is woken, and when it is dropped.
struct Caller {
    neater: Neater,
    connection: Arc<Connection>,
    other: Mutex<Option<Connection>>,
    woken: Sender<&'static str>,
}

impl Wake for Caller {
    fn wake(self: Arc<Self>) {
        // Each of these takes the engine.
        let _ = (self.neater.stats(), self.connection.state(), self.connection.stats());
        let _ = self.connection.try_send("from wake", &neater::MessageContext::new());
        drop(self.other.lock().expect("not poisoned").take());
        let again = over_tcp(&self.neater).remote(self.connection.remote_addr().expect("connected")).initiate();
        drop(again);
        let _ = self.woken.send("woken");
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let _ = self.neater.stats();
        drop(self.other.lock().expect("not poisoned").take());
        let _ = self.woken.send("dropped");
    }
}

fn caller(neater: &Neater, connection: &Arc<Connection>, other: Connection) -> (Waker, Receiver<&'static str>) {
    let (woken, told) = channel();
    let caller =
        Caller { neater: neater.clone(), connection: connection.clone(), other: Mutex::new(Some(other)), woken };
    (Waker::from(Arc::new(caller)), told)
}

#[test]
fn a_waker_calls_back_when_woken() {
    without_deadlock(async {
        let neater = Neater::new().expect("engine");
        let listener = listen(&neater);
        let (ours, theirs) = pair(&neater, &listener).await;
        let (other, _other_end) = pair(&neater, &listener).await;
        let ours = Arc::new(ours);
        let (waker, woken) = caller(&neater, &ours, other);
        assert!(ours.poll_receive(&mut Context::from_waker(&waker), usize::MAX, true).is_pending());
        theirs.send("wake up").await.expect("sent");
        assert_eq!(told(woken).await, "woken");
        assert_eq!(&theirs.receive().await.expect("alive").expect("a message")[..], b"from wake");
    });
}

#[test]
fn a_waker_that_is_replaced_calls_back_from_its_destructor() {
    without_deadlock(async {
        let neater = Neater::new().expect("engine");
        let listener = listen(&neater);
        let (ours, _theirs) = pair(&neater, &listener).await;
        let ours = Arc::new(ours);
        for wait in 0..4 {
            let (other, _other_end) = pair(&neater, &listener).await;
            let (waker, events) = caller(&neater, &ours, other);
            let (mut receive, mut closed) = (pin!(ours.receive()), pin!(ours.closed()));
            let (mut event, mut accept) = (pin!(ours.next_event()), pin!(listener.accept()));
            let mut poll = |waker: &Waker| {
                let cx = &mut Context::from_waker(waker);
                match wait {
                    0 => receive.as_mut().poll(cx).is_pending(),
                    1 => closed.as_mut().poll(cx).is_pending(),
                    2 => event.as_mut().poll(cx).is_pending(),
                    _ => accept.as_mut().poll(cx).is_pending(),
                }
            };
            assert!(poll(&waker));
            drop(waker);
            // The engine has the only reference; this replaces it.
            assert!(poll(Waker::noop()));
            assert_eq!(told(events).await, "dropped", "waiting {wait}");
        }
    });
}

#[test]
fn a_waker_calls_back_from_its_destructor_when_its_future_is_dropped() {
    without_deadlock(async {
        let neater = Neater::new().expect("engine");
        let listener = listen(&neater);
        let (ours, _theirs) = pair(&neater, &listener).await;
        let ours = Arc::new(ours);
        let (first, mut second) = (pin!(ours.closed()), Box::pin(ours.closed()));
        assert!(first.poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let (other, _other_end) = pair(&neater, &listener).await;
        let (waker, events) = caller(&neater, &ours, other);
        assert!(second.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        drop(second);
        assert_eq!(told(events).await, "dropped");
    });
}

#[test]
fn a_waker_calls_back_from_its_destructor_when_what_it_waits_for_is_dropped() {
    without_deadlock(async {
        let neater = Neater::new().expect("engine");
        let listener = listen(&neater);
        let (keeper, _kept) = pair(&neater, &listener).await;
        let keeper = Arc::new(keeper);
        let (ours, _theirs) = pair(&neater, &listener).await;
        let (other, _other_end) = pair(&neater, &listener).await;
        let (waker, events) = caller(&neater, &keeper, other);
        assert!(ours.poll_receive(&mut Context::from_waker(&waker), usize::MAX, true).is_pending());
        drop(waker);
        drop(ours);
        assert_eq!(told(events).await, "dropped");

        let (other, _other_end) = pair(&neater, &listener).await;
        let (waker, events) = caller(&neater, &keeper, other);
        assert!(listener.poll_accept(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        drop(listener);
        assert_eq!(told(events).await, "dropped");
    });
}

#[test]
fn an_event_handler_opens_another_connection() {
    without_deadlock(async {
        let neater = Neater::new().expect("engine");
        let listener = listen(&neater);
        let addr = loopback(listener.port());
        let server = tokio::spawn(echo(listener));
        let (opened, connections) = channel();
        let theirs = neater.clone();
        let handler = move |event: &Event| {
            if matches!(event, Event::Ready) {
                let second = over_tcp(&theirs).remote(addr).initiate().connection().expect("begun");
                let _ = opened.send(second);
            }
        };
        let first = over_tcp(&neater).remote(addr).on_event(handler).initiate().await.expect("connected");
        let wait = move || connections.recv_timeout(Duration::from_secs(5));
        let second = tokio::task::spawn_blocking(wait).await.expect("a thread").expect("the handler was called");
        second.ready().await.expect("connected");
        for connection in [&first, &second] {
            connection.send("x").await.expect("sent");
            assert_eq!(&connection.receive().await.expect("alive").expect("echo")[..], b"x");
        }
        drop((first, second));
        server.abort();
        let _ = server.await;
        nothing_left(&neater).await;
    });
}

/// Closes a connection and looks at the engine when it is destroyed.
struct Closer(Option<Connection>, Neater, Sender<&'static str>);

impl Drop for Closer {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            connection.abort();
        }
        let _ = self.1.stats();
        let _ = self.2.send("dropped");
    }
}

#[test]
fn a_destructor_of_an_event_handler_closes_a_connection() {
    without_deadlock(async {
        let neater = Neater::new().expect("engine");
        let listener = listen(&neater);
        let (victim, _its_end) = pair(&neater, &listener).await;
        let (sender, events) = channel();
        let closer = Closer(Some(victim), neater.clone(), sender);
        let handler = move |_: &Event| {
            let _ = &closer;
        };
        let pre = over_tcp(&neater).remote(loopback(listener.port())).on_event(handler);
        let ours = pre.initiate().await.expect("connected");
        drop(pre);
        // The connection has the only reference.
        drop(ours);
        assert_eq!(told(events).await, "dropped");
    });
}

#[test]
fn a_destructor_of_a_task_closes_a_connection() {
    without_deadlock(async {
        let neater = Neater::new().expect("engine");
        let listener = listen(&neater);
        let (victim, its_end) = pair(&neater, &listener).await;
        let (ours, theirs) = pair(&neater, &listener).await;
        let (sender, events) = channel();
        let closer = Closer(Some(victim), neater.clone(), sender);
        let task = tokio::spawn(async move {
            let _closer = closer;
            // Ends when the message has come; then the destructor runs.
            let _ = ours.receive().await;
        });
        theirs.send("go").await.expect("sent");
        task.await.expect("the task");
        assert_eq!(told(events).await, "dropped");
        let Poll::Ready(end) = poll_soon(&its_end).await else { panic!("the victim's other end is not told") };
        assert!(end.is_err(), "it was aborted");
    });
}

async fn poll_soon(connection: &Connection) -> Poll<Result<(), neater::ConnectionError>> {
    match tokio::time::timeout(Duration::from_secs(5), connection.receive()).await {
        Ok(r) => Poll::Ready(r.map(|_| ())),
        Err(_) => Poll::Pending,
    }
}

#[test]
fn an_event_handler_that_panics_stops_nobody() {
    without_deadlock(async {
        let neater = Neater::new().expect("engine");
        let listener = listen(&neater);
        let addr = loopback(listener.port());
        let server = tokio::spawn(echo(listener));
        let calls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = calls.clone();
        let handler = move |_: &Event| {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            panic!("this is meant to happen");
        };
        let bad = over_tcp(&neater).remote(addr).on_event(handler).initiate().await.expect("connected");
        let good = over_tcp(&neater).remote(addr).initiate().await.expect("another connection");
        for connection in [&bad, &good] {
            connection.send("x").await.expect("sent");
            assert_eq!(&connection.receive().await.expect("alive").expect("echo")[..], b"x");
        }
        assert!(calls.load(std::sync::atomic::Ordering::Relaxed) > 1, "it is called again");
        drop((bad, good));
        server.abort();
    });
}
