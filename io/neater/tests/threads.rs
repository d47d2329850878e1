//! Public objects are used, cloned and dropped from any task and any thread.

mod common;

use common::{LIMIT, echo, loopback, nothing_left, security};
use neater::{Connection, FramerSpec, Neater, Preconnection, SecurityParameters, Stack};
use neater_base::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const CONNECTIONS: u64 = 200;
const MESSAGE_MAX: u64 = 40_000;

/// Sends messages of random length and takes their echoes; returns how many bytes came back.
async fn exchange(connection: &Connection, rng: &mut Rng) -> usize {
    let mut bytes = 0;
    for _ in 0..=rng.below(4) {
        let mut message = vec![0; rng.below(MESSAGE_MAX) as usize + 1];
        rng.fill(&mut message);
        connection.send(message.clone()).await.expect("sent");
        let echo = connection.receive().await.expect("alive").expect("echo");
        assert!(echo[..] == message[..], "{} bytes went, {} came", message.len(), echo.len());
        bytes += message.len();
    }
    bytes
}

/// Drops a connection here, in another task, on a blocking thread or on a thread that tokio does
/// not know.
fn drop_somewhere(connection: Connection, rng: &mut Rng) {
    match rng.below(4) {
        0 => drop(connection),
        1 => drop(tokio::spawn(async move { drop(connection) })),
        2 => drop(tokio::task::spawn_blocking(move || drop(connection))),
        _ => drop(std::thread::spawn(move || drop(connection))),
    }
}

async fn one(pre: Preconnection, stack: Stack, mut rng: Rng, bytes: Arc<AtomicUsize>) {
    let connection = pre.initiate().await.unwrap_or_else(|e| panic!("{stack}: {e}"));
    bytes.fetch_add(exchange(&connection, &mut rng).await, Ordering::Relaxed);
    if stack == Stack::Quic {
        // Streams of one QUIC connection, each in a task of its own, some of which outlive the
        // first.
        let mut tasks = Vec::new();
        for _ in 0..rng.below(3) {
            let clone = connection.clone_connection().expect("a stream");
            let (mut theirs, bytes) = (rng.fork(), bytes.clone());
            tasks.push(tokio::spawn(async move {
                clone.ready().await.expect("ready");
                bytes.fetch_add(exchange(&clone, &mut theirs).await, Ordering::Relaxed);
                drop_somewhere(clone, &mut theirs);
            }));
        }
        if rng.chance(0.5) {
            drop_somewhere(connection, &mut rng);
            for task in tasks {
                task.await.expect("a stream outlives the connection it was cloned from");
            }
            return;
        }
        for task in tasks {
            task.await.expect("a stream");
        }
    }
    drop_somewhere(connection, &mut rng);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_hundred_connections_are_used_and_dropped_from_everywhere() {
    let before = common::descriptors();
    let neater = Neater::new().expect("engine");
    let (client, server) = security();
    let framer = FramerSpec::LengthPrefixed { width: 4, max: 1 << 20 };
    let pre = neater.preconnection().framer(framer);
    let secure = pre.clone().local(loopback(0)).security(server).listen().expect("listening");
    let in_the_clear = |pre: Preconnection| pre.security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]);
    let clear = in_the_clear(pre.clone().local(loopback(0))).listen().expect("listening");
    let (secure_port, clear_port) = (secure.port(), clear.port());
    let servers = [tokio::spawn(echo(secure)), tokio::spawn(echo(clear))];

    let mut rng = Rng::from_number(1);
    let bytes = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for n in 0..CONNECTIONS {
        let (stack, port, security) = match n % 4 {
            0 => (Stack::Tls, secure_port, client.clone()),
            1 | 2 => (Stack::Quic, secure_port, client.clone()),
            _ => (Stack::Tcp, clear_port, SecurityParameters::disabled()),
        };
        let pre = pre.clone().remote(loopback(port)).security(security).stacks(&[stack]);
        tasks.push(tokio::spawn(one(pre, stack, rng.fork(), bytes.clone())));
    }
    let all = async {
        for task in tasks {
            task.await.expect("a connection");
        }
    };
    tokio::time::timeout(LIMIT, all).await.expect("no deadlock");
    assert!(bytes.load(Ordering::Relaxed) > 1_000_000);
    for server in servers {
        server.abort();
        let _ = server.await;
    }
    nothing_left(&neater).await;
    drop((pre, neater));
    // The driver's task ends by itself, and with it the last descriptors. The runtime may keep one
    // for itself.
    for _ in 0..500 {
        if common::descriptors() <= before {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{before} descriptors before, {} after", common::descriptors());
}
