//! Bytes that go around the engine: in order, to no other connection, with no error of the system
//! lost.

use crate::common::{LIMIT, loopback, nothing_left};
use neater::{ByteStream, Neater, Preconnection, SecurityParameters, Stack};
use neater_base::Rng;
use std::future::poll_fn;
use std::io::{IoSlice, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn plain(neater: &Neater, port: u16) -> Preconnection {
    neater.preconnection().remote(loopback(port)).security(SecurityParameters::disabled()).stacks(&[Stack::Tcp])
}

/// Reads connections one thread each, and counts bytes that were not their connection's.
fn judge(listener: TcpListener, strangers: Arc<AtomicU64>, stop: Arc<AtomicBool>) -> thread::JoinHandle<u64> {
    thread::spawn(move || {
        let mut readers = Vec::new();
        while let Ok((mut flow, _)) = listener.accept() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let strangers = strangers.clone();
            readers.push(thread::spawn(move || {
                let (mut name, mut total, mut buf) = (None, 0, vec![0; 65_536]);
                while let Ok(n) = flow.read(&mut buf) {
                    if n == 0 {
                        break;
                    }
                    let name = *name.get_or_insert(buf[0]);
                    strangers.fetch_add(buf[..n].iter().filter(|b| **b != name).count() as u64, Ordering::Relaxed);
                    total += n as u64;
                }
                total
            }));
        }
        readers.into_iter().map(|r| r.join().expect("a reader")).sum()
    })
}

/// Writers write as fast as they can while other threads abort and close under them, and new
/// connections get the descriptors of those that are gone. No byte may reach a connection that is
/// not its own.
#[test]
fn bytes_never_reach_the_connection_that_inherits_a_descriptor() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let (strangers, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let judge = judge(listener, strangers.clone(), stop.clone());

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("tokio");
    let written = runtime.block_on(async {
        let neater = Neater::new().expect("engine");
        let written = Arc::new(AtomicU64::new(0));
        let until = Instant::now() + Duration::from_secs(4);
        let tasks: Vec<_> = (0..6_u64)
            .map(|n| {
                let (pre, written) = (plain(&neater, port), written.clone());
                tokio::spawn(async move {
                    let mut rng = Rng::from_number(n);
                    let mut name = n as u8;
                    while Instant::now() < until {
                        name = name.wrapping_add(6);
                        let stream = Arc::new(pre.connect_bytes().await.expect("connected"));
                        let writer = thread::spawn(writer(stream.clone(), name, written.clone()));
                        tokio::time::sleep(Duration::from_micros(200 + rng.below(4000))).await;
                        match rng.below(3) {
                            0 => stream.connection().abort(),
                            // The peer reads to the end, and the writer has ended before that.
                            1 => stream.connection().close().await.expect("closed"),
                            _ => stream.connection().finish().expect("alive"),
                        }
                        // What is used after that finds the connection closed, and the descriptor
                        // is free.
                        drop(stream);
                        tokio::task::spawn_blocking(move || writer.join().expect("a writer")).await.expect("joined");
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("a task");
        }
        nothing_left(&neater).await;
        written.load(Ordering::Relaxed)
    });
    stop.store(true, Ordering::Relaxed);
    drop(std::net::TcpStream::connect(loopback(port)));
    let read = judge.join().expect("the judge");
    assert!(written > 10_000_000, "only {written} bytes were written");
    assert!(read > 0 && read <= written, "{read} of {written}");
    assert_eq!(strangers.load(Ordering::Relaxed), 0, "bytes of another connection");
}

/// Writes until the connection is over, giving way only when it must.
fn writer(stream: Arc<ByteStream>, name: u8, written: Arc<AtomicU64>) -> impl FnOnce() + Send {
    move || {
        let data = vec![name; 3000];
        let waker = std::task::Waker::noop();
        let mut cx = std::task::Context::from_waker(waker);
        loop {
            match stream.poll_write_bytes(&mut cx, &[IoSlice::new(&data)]) {
                std::task::Poll::Ready(Ok(n)) => drop(written.fetch_add(n as u64, Ordering::Relaxed)),
                std::task::Poll::Ready(Err(_)) => return,
                std::task::Poll::Pending => thread::yield_now(),
            }
        }
    }
}

#[tokio::test]
async fn a_reset_is_an_error_wherever_it_is_noticed() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let server = thread::spawn(move || {
        for _ in 0..50 {
            let (mut flow, _) = listener.accept().expect("a connection");
            flow.write_all(&[7; 5000]).expect("sent");
            let mut all = [0; 3];
            flow.read_exact(&mut all).expect("the client has read");
            // Closing with a timeout of zero resets the connection.
            let linger = socket2::SockRef::from(&flow).set_linger(Some(Duration::ZERO));
            linger.expect("set");
        }
    });
    let neater = Neater::new().expect("engine");
    for round in 0..50 {
        let stream = plain(&neater, port).connect_bytes().await.expect("connected");
        let mut got = 0;
        let mut buf = [0; 1000];
        while got < 5000 {
            got += poll_fn(|cx| stream.poll_read_bytes(cx, &mut buf)).await.expect("bytes");
        }
        let sent = poll_fn(|cx| stream.poll_write_bytes(cx, &[IoSlice::new(b"bye")])).await;
        assert_eq!(sent.expect("sent"), 3);
        if round % 2 == 0 {
            // Noticed on the direct stream, before the poller has notified the engine.
            thread::sleep(Duration::from_millis(5));
        }
        let end =
            tokio::time::timeout(LIMIT, poll_fn(|cx| stream.poll_read_bytes(cx, &mut buf))).await.expect("in time");
        let error = end.expect_err("a reset is not the end of a stream");
        assert!(error.to_string().contains("reset"), "{error}");
    }
    server.join().expect("the server");
    nothing_left(&neater).await;
}

/// A task that waits on an empty direct stream is notified of every end of it, although no call has
/// asked the engine.
#[tokio::test]
async fn who_waits_for_bytes_is_told_of_every_end() {
    let neater = Neater::new().expect("engine");
    for end in ["bytes", "end", "reset", "abort", "close"] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let stream = Arc::new(
            plain(&neater, listener.local_addr().expect("bound").port()).connect_bytes().await.expect("connected"),
        );
        let (mut peer, _) = listener.accept().expect("a peer");
        let mut buf = [0; 64];
        for _ in 0..3 {
            // The first makes the direct stream, the others use it.
            peer.write_all(b"some").expect("room");
            assert_eq!(stream.read(&mut buf).await.expect("bytes"), 4);
        }
        assert_eq!(poll_fn(|cx| stream.poll_read_bytes(cx, &mut [])).await.expect("nothing was asked for"), 0);
        let waits = tokio::spawn({
            let stream = stream.clone();
            async move { stream.read(&mut [0; 64]).await.map_err(|e| e.kind()) }
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!waits.is_finished(), "{end}");
        match end {
            "bytes" => peer.write_all(b"more").expect("room"),
            "end" => peer.shutdown(std::net::Shutdown::Write).expect("open"),
            "reset" => {
                stream.write_all(b"unread").await.expect("room");
                tokio::time::sleep(Duration::from_millis(20)).await;
                drop(peer);
            }
            "abort" => stream.connection().abort(),
            _ => {
                drop(peer);
                stream.connection().close().await.expect("closed");
            }
        }
        let told = tokio::time::timeout(LIMIT, waits)
            .await
            .unwrap_or_else(|_| panic!("{end}: nobody says so"))
            .expect("no panic");
        match end {
            "bytes" => assert_eq!(told, Ok(4)),
            "end" => assert_eq!(told, Ok(0)),
            // Whichever of the two ends is seen first.
            "close" => assert!(matches!(told, Ok(0) | Err(_)), "{told:?}"),
            "reset" => assert_eq!(told, Err(std::io::ErrorKind::ConnectionReset)),
            _ => assert!(told.is_err(), "{end}: {told:?}"),
        }
    }
    nothing_left(&neater).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_and_read_at_once_arrives_whole_and_is_counted() {
    let neater = Neater::new().expect("engine");
    let pre = neater.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]);
    let listener = pre.local(loopback(0)).listen().expect("listening");
    let port = listener.port();
    let server = tokio::spawn(async move {
        let stream = listener.accept().await.expect("a connection").into_bytes().expect("bytes");
        let (mut r, mut w) = tokio::io::split(stream);
        tokio::io::copy(&mut r, &mut w).await.expect("copied");
        w.shutdown().await.expect("shut down");
    });
    let stream = plain(&neater, port).connect_bytes().await.expect("connected");
    let mut data = vec![0; 20_000_000];
    Rng::from_number(5).fill(&mut data);
    let (mut r, mut w) = tokio::io::split(stream);
    let sent = data.clone();
    let sender = tokio::spawn(async move {
        let mut rng = Rng::from_number(6);
        let mut rest = &sent[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(1 + rng.below(100_000) as usize));
            w.write_all(now).await.expect("written");
            rest = later;
        }
        w.shutdown().await.expect("shut down");
        w
    });
    let mut got = Vec::new();
    tokio::time::timeout(LIMIT, r.read_to_end(&mut got)).await.expect("in time").expect("read");
    assert!(got == data, "{} of {} bytes, or others", got.len(), data.len());
    let stream = r.unsplit(sender.await.expect("the sender"));
    let stats = stream.connection().stats().expect("stats");
    assert_eq!((stats.bytes_sent, stats.bytes_received), (20_000_000, 20_000_000));
    server.await.expect("the server");
    drop(stream);
    nothing_left(&neater).await;
}

#[tokio::test]
async fn a_rate_that_is_set_later_holds_for_bytes_that_went_around_the_engine() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let neater = Neater::new().expect("engine");
    let stream = plain(&neater, port).connect_bytes().await.expect("connected");
    let data = [0; 1000];
    for _ in 0..20 {
        let n = poll_fn(|cx| stream.poll_write_bytes(cx, &[IoSlice::new(&data)])).await.expect("written");
        assert_eq!(n, 1000, "the socket has room for much more");
    }
    // 1,000 bytes in a second.
    stream.connection().set("maxSendRate", neater::Value::Integer(8000)).expect("set");
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let mut taken = 0;
    while let std::task::Poll::Ready(n) = stream.poll_write_bytes(&mut cx, &[IoSlice::new(&data)]) {
        taken += n.expect("alive");
        assert!(taken <= 20_000, "nothing holds it back");
    }
    assert!(taken <= 2000, "{taken} bytes at once");
}

/// A task whose reads never have to wait shares its thread with the others, whichever way it reads.
#[test]
fn a_task_that_never_has_to_wait_lets_others_have_their_turn() {
    const READS: u64 = 20_000;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let flood = thread::spawn(move || {
        for _ in 0..2 {
            let (mut flow, _) = listener.accept().expect("a connection");
            flow.write_all(&vec![7; READS as usize]).expect("it fits the buffers of the two sockets");
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("tokio");
    runtime.block_on(async {
        let neater = Neater::new().expect("engine");
        for own in [true, false] {
            let mut stream = plain(&neater, port).connect_bytes().await.expect("connected");
            // All of it has arrived: from here on no read need wait.
            tokio::time::sleep(Duration::from_millis(300)).await;
            let turns = Arc::new(AtomicU64::new(0));
            let other = tokio::spawn({
                let turns = turns.clone();
                async move {
                    loop {
                        turns.fetch_add(1, Ordering::Relaxed);
                        tokio::task::yield_now().await;
                    }
                }
            });
            tokio::task::yield_now().await;
            let before = turns.load(Ordering::Relaxed);
            for _ in 0..READS {
                let mut byte = [0];
                let n =
                    if own { stream.read(&mut byte).await } else { AsyncReadExt::read(&mut stream, &mut byte).await };
                assert_eq!((n.expect("alive"), byte[0]), (1, 7));
            }
            let after = turns.load(Ordering::Relaxed);
            assert!(after - before >= READS / 256, "{} turns, own method: {own}", after - before);
            other.abort();
        }
        nothing_left(&neater).await;
    });
    flood.join().expect("all sent");
}

/// What went around the engine counts, too: a connection that has carried something and is reset is
/// no failure of its transport.
#[tokio::test]
async fn a_reset_after_bytes_have_come_does_not_cost_the_cached_outcome() {
    let near = Neater::new().expect("engine");
    let listener = TcpListener::bind("127.0.0.1:0").expect("listening");
    let port = listener.local_addr().expect("bound").port();
    thread::spawn(move || {
        while let Ok((mut flow, _)) = listener.accept() {
            let _ = flow.read(&mut [0; 100]);
            let _ = flow.write_all(&[7; 1000]);
            thread::sleep(Duration::from_millis(50));
            let flow = socket2::Socket::from(flow);
            flow.set_linger(Some(Duration::ZERO)).expect("set");
        }
    });
    for round in 0..3 {
        let before = near.stats().cache_hits;
        let mut bytes = plain(&near, port).connect_bytes().await.expect("connected");
        assert_eq!(near.stats().cache_hits - before, u64::from(round > 0), "{round}");
        bytes.write_all(b"GET").await.expect("written");
        let mut answer = [0; 1000];
        bytes.read_exact(&mut answer).await.expect("read");
        bytes.read(&mut answer).await.expect_err("reset");
    }
}
