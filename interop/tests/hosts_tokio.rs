//! The engine on tokio, with one thread and with four: what the programs in `hosts/` do, and turns are counted, too.

use neater::{Driver, FramerSpec, Neater, SecurityParameters, Stack};
use neater_interop::{LIMIT, Scratch, black_hole, certificate, echo_server, nothing_left, security, skip};
use std::future::{Future, poll_fn};
use std::net::{SocketAddr, TcpStream};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};

const CONNECTIONS: usize = 50;
const BYTES: usize = 100_000;
/// More connections at once than an engine accepts in a turn.
const FLOOD: usize = 200;
/// How often the driver's task may be polled in all, and while nothing happens. Some hundred are usual, since every use of
/// an object from another task wakes it; a task that spins is polled hundreds of thousands of times.
const POLLS_MAX: u64 = 3_000;
const IDLE_POLLS_MAX: u64 = 16;

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// The driver as a task that counts how often it is polled.
fn counted(driver: Driver, polls: Arc<AtomicU64>) -> impl Future<Output = ()> + Send {
    let task = driver.into_task().expect("a runtime");
    async move {
        let mut task = pin!(task);
        poll_fn(|cx| {
            polls.fetch_add(1, Ordering::Relaxed);
            task.as_mut().poll(cx)
        })
        .await;
    }
}

async fn echo(neater: Neater, port: u16, number: usize) {
    let pre = neater.preconnection().remote(loopback(port)).security(SecurityParameters::disabled());
    let stream = pre.connect_bytes().await.expect("connected");
    let data: Vec<u8> = (0..BYTES).map(|i| ((number * 7 + i) % 251) as u8).collect();
    let (mut reader, mut writer) = tokio::io::split(stream);
    let sent = data.clone();
    let writing = tokio::spawn(async move {
        writer.write_all(&sent).await.expect("written");
        writer.shutdown().await.expect("half-closed");
    });
    let mut back = Vec::new();
    reader.read_to_end(&mut back).await.expect("read");
    writing.await.expect("written");
    assert!(back == data, "connection {number}: {} bytes", back.len());
}

async fn flood(neater: Neater) {
    let pre = neater.preconnection().local(loopback(0)).security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]);
    let listener = pre.listen().expect("listening");
    let addr = loopback(listener.port());
    let connect = move || (0..FLOOD).map(|_| TcpStream::connect(addr).expect("connected")).collect::<Vec<_>>();
    let clients = tokio::task::spawn_blocking(connect).await.expect("connected");
    let mut accepted = Vec::new();
    while accepted.len() < FLOOD {
        accepted.push(listener.accept().await.expect("a connection"));
    }
    drop(clients);
}

/// Establishes and uses QUIC from a thread that is not the runtime's.
fn quic_from_a_thread(neater: &Neater) {
    let scratch = Scratch::new("tokio");
    let (client, server) = security(&certificate(&scratch, "server"));
    let framer = FramerSpec::LengthPrefixed { width: 4, max: 1 << 20 };
    let pre = neater.preconnection().framer(framer).stacks(&[Stack::Quic]);
    // Parks this thread; the engine is driven elsewhere.
    futures(async {
        let listener = pre.clone().local(loopback(0)).security(server).listen().expect("listening");
        let ours = pre.remote(loopback(listener.port())).security(client).initiate().await.expect("connected");
        ours.send(vec![7; 300_000]).await.expect("sent");
        let theirs = listener.accept().await.expect("a connection");
        let received = theirs.receive().await.expect("alive").expect("a message");
        theirs.send(received.data).await.expect("sent");
        assert_eq!(ours.receive().await.expect("alive").expect("echo").len(), 300_000);
        // When all timers of the handshake are over, only the call itself can wake the driver.
        std::thread::sleep(Duration::from_millis(400));
        let begun = Instant::now();
        ours.send("still there").await.expect("sent");
        assert_eq!(&theirs.receive().await.expect("alive").expect("a message")[..], b"still there");
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    });
}

/// Runs a future by parking the thread, without any runtime.
fn futures<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::task::Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let std::task::Poll::Ready(v) = future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            return v;
        }
        std::thread::park();
    }
}

fn scenario(runtime: &Runtime) {
    let server = echo_server();
    let Some(hole) = black_hole() else { skip!("this kernel answers a SYN although the queue is full") };
    let (port, hole_port) = (server.port(), hole.port());
    let polls = Arc::new(AtomicU64::new(0));
    runtime.block_on(async {
        let (neater, driver) = Neater::builder().without_driver().expect("an engine");
        let driving = tokio::spawn(counted(driver, polls.clone()));
        let working = async {
            let tasks: Vec<_> = (0..CONNECTIONS).map(|n| tokio::spawn(echo(neater.clone(), port, n))).collect();
            let started = Instant::now();
            let pre = neater.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]);
            let both = pre.remote(loopback(hole_port)).remote(loopback(port));
            let connection = both.initiate().await.expect("the second address answers");
            let waited = started.elapsed();
            assert!(waited >= Duration::from_millis(200), "the first address is tried first, not {waited:?}");
            assert_eq!(connection.remote_addr(), Some(loopback(port)));
            for task in tasks {
                task.await.expect("a task");
            }
            // One after the other, so that nothing hides a wake-up that does not come.
            flood(neater.clone()).await;
            let theirs = neater.clone();
            tokio::task::spawn_blocking(move || quic_from_a_thread(&theirs)).await.expect("the thread");
        };
        tokio::time::timeout(LIMIT, working).await.expect("in time");
        nothing_left(&neater).await;

        // Silence, with a connection open, ended by another thread.
        let pre = neater.preconnection().remote(loopback(port)).security(SecurityParameters::disabled());
        let keeper = Arc::new(pre.connect_bytes().await.expect("connected").into_connection());
        let before = polls.load(Ordering::Relaxed);
        let theirs = keeper.clone();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(400));
            futures(theirs.send("w")).expect("sent");
        });
        assert_eq!(&keeper.receive().await.expect("alive").expect("echo")[..], b"w");
        let idle = polls.load(Ordering::Relaxed) - before;
        thread.join().expect("the thread");
        assert!(idle <= IDLE_POLLS_MAX, "{idle} polls while nothing happened");

        drop(keeper);
        drop(pre);
        drop(neater);
        tokio::time::timeout(Duration::from_secs(5), driving).await.expect("the driver ends").expect("well");
        let polls = polls.load(Ordering::Relaxed);
        println!("polls={polls} idle={idle}");
        assert!(polls <= POLLS_MAX, "it spins: {polls} polls");
    });
}

#[test]
fn tokio_with_one_thread() {
    scenario(&Builder::new_current_thread().enable_all().build().expect("a runtime"));
}

#[test]
fn tokio_with_four_threads() {
    scenario(&Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("a runtime"));
}
