//! What happens where tokio's reactor reports the engine: a task that waits for bytes is woken, and
//! nothing else of the program's runs.

use crate::common::{LIMIT, loopback};
use neater::{ByteStream, Neater, Preconnection, SecurityParameters, Stack};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Pieces that a peer sends, one after the other has surely been read.
const PIECES: usize = 60;
const PIECE: usize = 3000;

fn to(neater: &Neater, port: u16) -> Preconnection {
    neater.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]).remote(loopback(port))
}

/// A thread that sends pieces, each after it has got a byte for the last.
fn source() -> u16 {
    let listener = TcpListener::bind(loopback(0)).expect("bound");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().expect("a connection");
        for n in 0..PIECES {
            std::thread::sleep(Duration::from_millis(1));
            peer.write_all(&[n as u8; PIECE]).expect("written");
            peer.read_exact(&mut [0]).expect("asked for more");
        }
    });
    port
}

/// Reads all pieces and asks for each.
async fn read_all(stream: &ByteStream) {
    let mut buf = vec![0; 1 << 16];
    for n in 0..PIECES {
        let mut got = 0;
        while got < PIECE {
            let more = stream.read(&mut buf).await.expect("bytes");
            assert!(more > 0 && buf[..more].iter().all(|b| *b == n as u8), "piece {n}");
            got += more;
        }
        stream.write_all(&[1]).await.expect("asked");
    }
    assert_eq!(stream.read(&mut buf).await.expect("the end"), 0);
}

/// tokio wakes a task that polls with no budget left within that call where no scheduler runs, as
/// in the future of `block_on`.
#[test]
fn a_driver_that_is_polled_without_any_budget_left_does_not_wake_within_its_waker() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (neater, driver) = Neater::builder().without_driver().expect("an engine");
        let mut task = std::pin::pin!(driver.into_task().expect("a runtime is here"));
        let pre = to(&neater, source());
        let mut reads = std::pin::pin!(tokio::time::timeout(LIMIT, async {
            let stream = pre.connect_bytes().await.expect("connected");
            read_all(&stream).await;
        }));
        std::future::poll_fn(|cx| {
            let mut spent = std::pin::pin!(async {
                loop {
                    tokio::task::consume_budget().await;
                }
            });
            assert!(spent.as_mut().poll(cx).is_pending(), "the budget is used up");
            let _ = task.as_mut().poll(cx);
            reads.as_mut().poll(cx)
        })
        .await
        .expect("in time");
    });
}

/// What may not be done among the reactor's doings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_s_function_runs_where_it_may_block_in_place() {
    let (begun, done) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let neater = Neater::new().expect("engine");
    let (b, d) = (begun.clone(), done.clone());
    let pre = to(&neater, source()).on_event(move |_| {
        b.fetch_add(1, Ordering::Relaxed);
        tokio::task::block_in_place(|| std::thread::sleep(Duration::from_micros(50)));
        d.fetch_add(1, Ordering::Relaxed);
    });
    let stream = pre.connect_bytes().await.expect("connected");
    tokio::time::timeout(LIMIT, read_all(&stream)).await.expect("in time");
    assert!(begun.load(Ordering::Relaxed) > PIECES as u32 / 2, "{begun:?}");
    // The last may still be at it.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(begun.load(Ordering::Relaxed), done.load(Ordering::Relaxed), "none was cut short");
}

/// A waker that asks the engine something before it wakes its thread.
struct Curious {
    neater: Neater,
    calls: AtomicU32,
    tell: mpsc::Sender<()>,
}

impl Wake for Curious {
    fn wake(self: Arc<Self>) {
        assert_eq!(self.neater.stats().connections, 1);
        self.calls.fetch_add(1, Ordering::Relaxed);
        let _ = self.tell.send(());
    }
}

#[tokio::test]
async fn a_waker_that_calls_back_finds_the_engine_free() {
    let neater = Neater::new().expect("engine");
    let stream = to(&neater, source()).connect_bytes().await.expect("connected");
    let (tell, told) = mpsc::channel();
    let curious = Arc::new(Curious { neater: neater.clone(), calls: AtomicU32::new(0), tell });
    let waker = Waker::from(curious.clone());
    let reader = tokio::task::spawn_blocking(move || {
        let (mut got, mut buf) = (0, vec![0; 1 << 16]);
        loop {
            match stream.poll_read_bytes(&mut Context::from_waker(&waker), &mut buf) {
                Poll::Ready(Ok(0)) => return got,
                Poll::Ready(Ok(n)) => {
                    got += n;
                    if got % PIECE == 0 {
                        let asked =
                            stream.poll_write_bytes(&mut Context::from_waker(&waker), &[std::io::IoSlice::new(&[1])]);
                        assert!(matches!(asked, Poll::Ready(Ok(1))));
                    }
                }
                Poll::Ready(Err(e)) => panic!("{e}"),
                Poll::Pending => told.recv_timeout(LIMIT).expect("woken"),
            }
        }
    });
    let got = tokio::time::timeout(LIMIT, reader).await.expect("in time").expect("no panic");
    assert_eq!(got, PIECES * PIECE);
    assert!(curious.calls.load(Ordering::Relaxed) > PIECES as u32 / 2, "{:?}", curious.calls);
}

/// Wakes by panicking.
struct Rude;

impl Wake for Rude {
    fn wake(self: Arc<Self>) {
        panic!("this is meant to happen");
    }
}

/// The driver goes down with what a waker of the program's panics with, as it does in a turn; the
/// runtime does not.
#[tokio::test]
async fn a_waker_that_panics_does_not_take_the_reactor_with_it() {
    let neater = Neater::new().expect("engine");
    let listener = TcpListener::bind(loopback(0)).expect("bound");
    let stream = to(&neater, listener.local_addr().expect("bound").port()).connect_bytes().await.expect("connected");
    let mut peer = listener.accept().expect("accepted").0;
    let mut buf = [0; 100];
    // Once the long way, so that it is known how bytes come.
    peer.write_all(b"a").expect("written");
    assert_eq!(stream.read(&mut buf).await.expect("bytes"), 1);
    let waker = Waker::from(Arc::new(Rude));
    assert!(stream.poll_read_bytes(&mut Context::from_waker(&waker), &mut buf).is_pending());
    peer.write_all(b"b").expect("written");
    // A later call fails because there is no driver, or gets what has arrived.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let after = tokio::time::timeout(LIMIT, stream.read(&mut buf)).await.expect("in time");
    assert!(!matches!(after, Ok(0)), "{after:?}");
    let late = tokio::time::timeout(LIMIT, to(&neater, 1).connect_bytes()).await.expect("in time");
    assert!(late.is_err(), "nobody drives");
    // Tokio's own sockets go on.
    let own = tokio::net::TcpListener::bind(loopback(0)).await.expect("bound");
    let to = own.local_addr().expect("bound");
    let (a, b) = tokio::join!(tokio::net::TcpStream::connect(to), own.accept());
    assert!(a.is_ok() && b.is_ok());
}

/// An engine, and how often its task has been polled.
fn counted() -> (Neater, Arc<AtomicU32>) {
    let (neater, driver) = Neater::builder().without_driver().expect("an engine");
    let turns = Arc::new(AtomicU32::new(0));
    let (mut task, count) = (Box::pin(driver.into_task().expect("a runtime is here")), turns.clone());
    tokio::spawn(std::future::poll_fn(move |cx| {
        count.fetch_add(1, Ordering::Relaxed);
        task.as_mut().poll(cx)
    }));
    (neater, turns)
}

/// A connection that is made as the last one was needs no turn of the task, also when deadlines of
/// earlier ones have come meanwhile; and a peer that is gone is reported as ever.
#[tokio::test]
async fn a_connection_by_a_cached_outcome_is_made_in_a_fast_poll() {
    const CONNECTIONS: u32 = 400;
    let (neater, turns) = counted();
    let listener = TcpListener::bind(loopback(0)).expect("bound");
    let pre = to(&neater, listener.local_addr().expect("bound").port());
    let accepting =
        std::thread::spawn(move || (0..=CONNECTIONS).for_each(|_| drop(listener.accept().expect("a peer"))));
    drop(pre.initiate().await.expect("connected"));
    let before = turns.load(Ordering::Relaxed);
    for _ in 0..CONNECTIONS {
        let connected = tokio::time::timeout(LIMIT, pre.initiate()).await.expect("in time").expect("connected");
        assert_eq!(connected.state(), neater::ConnectionState::Established);
        drop(connected);
        // Over 400 of these, the deadlines of the first ones come: 250 ms after each.
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(neater.stats().cache_hits, u64::from(CONNECTIONS));
    let taken = turns.load(Ordering::Relaxed) - before;
    assert!(taken < CONNECTIONS / 4, "{taken} turns for {CONNECTIONS} connections");
    accepting.join().expect("no panic");
    for _ in 0..3 {
        let refused = tokio::time::timeout(LIMIT, pre.initiate()).await.expect("in time");
        assert!(refused.is_err(), "nobody listens any more");
    }
}

fn local(neater: &Neater) -> Preconnection {
    let pre = neater.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]);
    pre.local(neater::LocalEndpoint::new().with_ip_address(loopback(0).ip()))
}

/// A connection over plain TCP is accepted without a turn of the task, however many come at once,
/// and an error that keeps a listener from accepting is handled as ever.
#[tokio::test]
async fn a_plain_connection_is_accepted_in_a_fast_poll() {
    const CONNECTIONS: u32 = 400;
    let (neater, turns) = counted();
    let listener = local(&neater).listen().expect("listens");
    let to = loopback(listener.port());
    let before = turns.load(Ordering::Relaxed);
    for n in 0..CONNECTIONS {
        let mut peer = std::net::TcpStream::connect(to).expect("connected");
        let accepted = tokio::time::timeout(LIMIT, listener.accept()).await.expect("in time").expect("a connection");
        assert_eq!(accepted.remote_addr(), peer.local_addr().ok());
        let stream = accepted.into_bytes().expect("bytes");
        peer.write_all(&n.to_be_bytes()).expect("written");
        let mut got = [0; 9];
        let read = tokio::time::timeout(LIMIT, stream.read(&mut got)).await.expect("in time").expect("bytes");
        assert_eq!(got[..read], n.to_be_bytes());
        // The side that closes first keeps the TIME-WAIT state.
        drop(peer);
        let end = tokio::time::timeout(LIMIT, stream.read(&mut got)).await.expect("in time");
        assert_eq!(end.expect("in order"), 0);
    }
    let taken = turns.load(Ordering::Relaxed) - before;
    assert!(taken < CONNECTIONS / 4, "{taken} turns for {CONNECTIONS} connections");

    // More at once than a fast poll takes, and than a turn does.
    let peers: Vec<_> = (0..100).map(|_| std::net::TcpStream::connect(to).expect("connected")).collect();
    let mut missing: Vec<_> = peers.iter().map(|peer| peer.local_addr().ok()).collect();
    for _ in &peers {
        let accepted = tokio::time::timeout(LIMIT, listener.accept()).await.expect("in time").expect("a connection");
        let at = missing.iter().position(|peer| *peer == accepted.remote_addr()).expect("one of them, and once");
        missing.swap_remove(at);
    }

    listener.set_new_connection_limit(Some(2));
    let peers: Vec<_> = (0..3).map(|_| std::net::TcpStream::connect(to).expect("connected")).collect();
    for _ in 0..2 {
        assert!(tokio::time::timeout(LIMIT, listener.accept()).await.expect("in time").is_some());
    }
    assert!(tokio::time::timeout(Duration::from_millis(50), listener.accept()).await.is_err(), "two, and no more");
    listener.set_new_connection_limit(None);
    assert!(tokio::time::timeout(LIMIT, listener.accept()).await.expect("in time").is_some());
    drop(peers);
}

/// A framer is the program's: it is not made among the reactor's doings, where it could not block
/// in place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_framer_is_made_where_it_may_block_in_place() {
    let made = Arc::new(AtomicU32::new(0));
    let neater = Neater::new().expect("engine");
    let count = made.clone();
    let framer = neater::FramerSpec::Custom(Arc::new(move || {
        tokio::task::block_in_place(|| std::thread::sleep(Duration::from_micros(50)));
        count.fetch_add(1, Ordering::Relaxed);
        Box::new(neater::LengthPrefixed::new(4, 1 << 16))
    }));
    let listener = local(&neater).framer(framer).listen().expect("listens");
    let to = loopback(listener.port());
    for _ in 0..50 {
        let mut peer = std::net::TcpStream::connect(to).expect("connected");
        let accepted = tokio::time::timeout(LIMIT, listener.accept()).await.expect("in time").expect("a connection");
        peer.write_all(b"\0\0\0\x03abc").expect("written");
        let got =
            tokio::time::timeout(LIMIT, accepted.receive()).await.expect("in time").expect("alive").expect("a message");
        assert_eq!(got.data[..], *b"abc");
    }
    assert_eq!(made.load(Ordering::Relaxed), 50);
}
