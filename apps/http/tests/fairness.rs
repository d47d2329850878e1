//! Clients that ask for much and take nothing, and what becomes of the others.

mod common;

use common::{World, noise};
use neater::{ByteStream, Group, RemoteEndpoint, Stack, StreamDirection};
use neater_http::{HttpVersion, RequestOptions, ServerLimits};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const VERSIONS: [HttpVersion; 3] = [HttpVersion::Http11, HttpVersion::Http2, HttpVersion::Http3];
/// Types of RFC 9113 section 6.
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let mut all = length[1..].to_vec();
    all.extend_from_slice(&[kind, flags]);
    all.extend_from_slice(&stream.to_be_bytes());
    all.extend_from_slice(payload);
    all
}

/// An HTTP/2 connection that asks for `/huge` so often, and gives the answers windows of `window`
/// bytes.
async fn greedy(world: &World, requests: u32, window: u32) -> ByteStream {
    let mut security = world.trust.clone();
    security.alpn = vec![b"h2".to_vec()];
    let remote = RemoteEndpoint::from(SocketAddr::from(([127, 0, 0, 1], world.port)));
    let preconnection = world.neater.preconnection().remote(remote).security(security).stacks(&[Stack::Tls]);
    let c = preconnection.connect_bytes().await.expect("connected");
    let mut all = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    // SETTINGS_INITIAL_WINDOW_SIZE.
    all.extend(frame(SETTINGS, 0, 0, &[&[0, 4][..], &window.to_be_bytes()].concat()));
    for i in 0..requests {
        // GET, https, a path and an authority; the end of both headers and stream.
        all.extend(frame(HEADERS, 5, 2 * i + 1, b"\x82\x87\x04\x05/huge\x41\x09localhost"));
    }
    c.write_all(&all).await.expect("written");
    c
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_takes_none_of_its_answers_does_not_keep_others_waiting() {
    let limits = ServerLimits {
        requests: 12,
        requests_per_address: 10,
        requests_per_connection: 8,
        stall: Duration::from_millis(200),
        ..ServerLimits::default()
    };
    let world = World::new("greedy", limits, false);
    world.put("huge", &noise(2_000_000, 1));
    world.put("a", b"a");
    for window in [0, 1] {
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(greedy(&world, 8, window).await);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        for version in VERSIONS {
            let started = Instant::now();
            let response =
                world.client(Some(version)).get(&world.url("a"), &RequestOptions::default()).await.expect("answered");
            assert_eq!(response.bytes(10).await.expect("a body"), b"a");
            assert!(started.elapsed() < Duration::from_secs(3), "{version}: {:?}", started.elapsed());
        }
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_nobody_takes_ends_although_its_connection_stays_busy() {
    // Also where all but the last of it is out of the server's hands.
    for (name, size, window) in [("untaken", 2_000_000, 0), ("untaken-end", 60_000, 1)] {
        untaken(name, size, window).await;
    }
}

async fn untaken(name: &str, size: usize, window: u32) {
    let limits = ServerLimits { standstill: Duration::from_millis(600), ..ServerLimits::default() };
    let world = World::new(name, limits, false);
    world.put("huge", &noise(size, 1));
    let c = greedy(&world, 2, window).await;
    let started = Instant::now();
    let mut reset = 0;
    let mut came = Vec::new();
    // A new request now and then keeps the connection from being idle.
    let mut next = 5;
    while reset < 2 && started.elapsed() < Duration::from_secs(5) {
        let more = [frame(HEADERS, 5, next, b"\x82\x87\x04\x05/none\x41\x09localhost"), frame(PING, 0, 0, &[0; 8])];
        c.write_all(&more.concat()).await.expect("written");
        next += 2;
        let mut piece = [0; 4096];
        while let Ok(Ok(n)) = tokio::time::timeout(Duration::from_millis(100), c.read(&mut piece)).await {
            assert!(n > 0, "the connection is of use");
            came.extend_from_slice(&piece[..n]);
        }
        // Frames from the beginning: a length of three bytes, a type, flags, a stream.
        reset = 0;
        let mut rest = &came[..];
        while let [a, b, c, kind, _, _, _, _, stream, ..] = *rest {
            reset += usize::from(kind == RST_STREAM && (stream == 1 || stream == 3));
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            rest = rest.get(9 + length..).unwrap_or_default();
        }
    }
    assert_eq!(reset, 2);
    assert!(started.elapsed() > Duration::from_millis(500), "{:?}", started.elapsed());
    drop(c);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_takes_nothing_is_gone_after_the_documented_time() {
    for plain in [true, false] {
        let standstill = Duration::from_millis(500);
        let limits = ServerLimits { standstill, connections: 1, ..ServerLimits::default() };
        let world = World::new(if plain { "idle-plain" } else { "idle-h2" }, limits, plain);
        world.put("huge", &noise(40_000_000, 1));
        let started = Instant::now();
        let (mut h1, mut h2) = (None, None);
        if plain {
            let mut c = tokio::net::TcpStream::connect(("127.0.0.1", world.port)).await.expect("connected");
            c.write_all(b"GET /huge HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("written");
            h1 = Some(c);
        } else {
            h2 = Some(greedy(&world, 50, 0).await);
        }
        // There is room for one: the next is let in when the first is gone.
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let url = world.url("none");
            let url = if plain {
                neater_http::Url::parse(&url.to_string().replace("https", "http")).expect("a URL")
            } else {
                url
            };
            if world.client(None).get(&url, &RequestOptions::default()).await.is_ok() {
                break;
            }
            assert!(started.elapsed() < Duration::from_secs(4), "{plain}");
        }
        assert!(started.elapsed() > Duration::from_millis(400), "{:?}", started.elapsed());
        drop((h1.take(), h2.take()));
        world.end().await;
    }
}

/// HTTP has done with it after `head_time`, and the system has all of the answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_an_answer_that_nobody_takes_is_given_up_after_the_documented_time_too() {
    let (head_time, standstill) = (Duration::from_millis(100), Duration::from_millis(600));
    let limits = ServerLimits { head_time, standstill, connections: 1, ..ServerLimits::default() };
    let world = World::new("tail", limits, true);
    world.put("large", &noise(800_000, 1));
    let mut held = tokio::net::TcpStream::connect(("127.0.0.1", world.port)).await.expect("connected");
    held.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("written");
    let started = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(started.elapsed() < Duration::from_secs(8), "it is kept");
        let Ok(mut next) = tokio::net::TcpStream::connect(("127.0.0.1", world.port)).await else { continue };
        let _ = next.write_all(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        if matches!(next.read(&mut [0; 1024]).await, Ok(n) if n > 0) {
            break;
        }
    }
    assert!(started.elapsed() > Duration::from_millis(500), "{:?}", started.elapsed());
    drop(held);
    world.end().await;
}

async fn open(group: &Group) -> Option<ByteStream> {
    let c = group.open(StreamDirection::Both).ok()?;
    std::future::poll_fn(|cx| c.poll_ready(cx)).await.ok()?;
    c.into_bytes().ok()
}

/// Opens and resets at most so many streams: as many as the server has room for, or wants.
async fn reset_streams(group: &Group, most: usize) -> usize {
    for done in 0..most {
        let Ok(Some(stream)) = tokio::time::timeout(Duration::from_secs(2), open(group)).await else { return done };
        if stream.write_all(&[1]).await.is_err() {
            return done;
        }
        stream.connection().abort();
    }
    most
}

/// A client of HTTP/3 for streams that it fills itself, and the first of them.
async fn by_hand(world: &World) -> (neater::Neater, Group, ByteStream) {
    let client = neater::Neater::new().expect("engine");
    let mut security = world.trust.clone();
    security.alpn = vec![b"h3".to_vec()];
    let remote = RemoteEndpoint::from(SocketAddr::from(([127, 0, 0, 1], world.port)));
    let first = client.preconnection().remote(remote).security(security).stacks(&[Stack::Quic]).initiate();
    let first = first.await.expect("connected");
    let group = first.group().expect("a group");
    (client, group, first.into_bytes().expect("bytes"))
}

/// HEADERS (RFC 9114 section 7.2.2) of 16 bytes, from the static table of RFC 9204 appendix A: GET,
/// https, `/`, and an authority.
const REQUEST: &[u8] = b"\x01\x10\0\0\xd1\xd7\xc1\x50\x09localhost";

/// A stream that was opened and reset does not count for QUIC's limit of streams: a client may have
/// any number of them, as long as it holds what the server does at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_are_reset_while_others_stall_cost_a_bounded_number() {
    const MANY: usize = 6000;
    let limits = ServerLimits { requests_per_connection: 2, ..ServerLimits::default() };
    let world = World::new("resets", limits, false);
    world.put("a", b"a");
    let (_client, group, first) = by_hand(&world).await;
    // Heads that are never whole.
    let stalled = [first, open(&group).await.expect("room")];
    for stream in &stalled {
        stream.write_all(&[1]).await.expect("written");
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let reset = reset_streams(&group, MANY).await;
    assert!(reset > 50 && reset < MANY, "{reset} streams");
    let held = world.neater.stats().connections;
    assert!(held < 1500, "the server holds {held}, of {reset}");
    // Once they are looked at, the client is found out.
    for stream in &stalled {
        stream.connection().abort();
    }
    assert!(reset_streams(&group, MANY).await < MANY);
    let over = async {
        loop {
            if let Err(e) = group.accept().await {
                break e.to_string();
            }
        }
    };
    let over = tokio::time::timeout(Duration::from_secs(10), over).await.expect("the session is over");
    assert!(over.contains("without a whole head"), "{over}");
    world.end().await;
}

/// As many as that are what a browser takes back in a day: it is not sent away for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_broken_off_do_no_harm_among_whole_ones() {
    let world = World::new("mixed", ServerLimits::default(), false);
    let (_client, group, first) = by_hand(&world).await;
    drop(first);
    for i in 0..1200 {
        let mut stream = open(&group).await.unwrap_or_else(|| panic!("{i}: no room"));
        stream.write_all(REQUEST).await.expect("written");
        // The server may have answered without it, and reports that (RFC 9114 section 4.1).
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap_or_else(|e| panic!("{i}: {e}"));
        assert!(!answer.is_empty(), "{i}");
        assert_eq!(reset_streams(&group, 1).await, 1, "{i}");
    }
    assert!(!group.is_over());
    world.end().await;
}

/// One turn at a time for all, and so many requests of a connection, one of which waits because
/// another client has the turn.
async fn waiting(
    name: &str,
    requests_per_connection: usize,
) -> (World, ByteStream, (neater::Neater, Group, ByteStream)) {
    let limits = ServerLimits {
        requests: 1,
        requests_per_address: 1,
        requests_per_connection,
        stall: Duration::from_secs(60),
        ..ServerLimits::default()
    };
    let world = World::new(name, limits, false);
    world.put("huge", &noise(2_000_000, 1));
    let held = greedy(&world, 1, 0).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let client = by_hand(&world).await;
    client.2.write_all(REQUEST).await.expect("written");
    tokio::time::sleep(Duration::from_millis(300)).await;
    (world, held, client)
}

/// While a client has all the requests that it may have at once, no stream of its is waited for;
/// and where it has not, it has gone all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_goes_while_its_requests_wait_for_their_turn_is_not_kept() {
    for (name, slots) in [("gone-full", 1), ("gone", 5)] {
        let (world, held, (_client, group, stream)) = waiting(name, slots).await;
        assert_eq!(world.neater.stats().quic_connections, 1, "it waits");
        group.close_session(0x100, b"");
        let started = Instant::now();
        while world.neater.stats().quic_connections > 0 {
            assert!(started.elapsed() < Duration::from_secs(20), "{name}: its session is kept");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        drop((held, stream));
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_taken_back_while_it_waits_leaves_its_place() {
    for ended in [true, false] {
        let (world, held, (_client, group, stream)) = waiting(if ended { "back-ended" } else { "back" }, 1).await;
        let before = world.neater.stats().connections;
        if ended {
            stream.connection().finish().expect("ended");
            tokio::time::sleep(Duration::from_millis(100)).await;
            stream.connection().stop_receiving(0x10c);
        } else {
            stream.connection().abort_with(0x10c);
        }
        let started = Instant::now();
        while world.neater.stats().connections >= before {
            assert!(started.elapsed() < Duration::from_secs(20), "{ended}: it is kept");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // The next one waits in its place, for the turn that the other client gives back.
        let next = open(&group).await.expect("room");
        next.write_all(REQUEST).await.expect("written");
        held.connection().abort();
        let answered = tokio::time::timeout(Duration::from_secs(20), next.read(&mut [0; 10])).await;
        assert!(matches!(answered, Ok(Ok(n)) if n > 0), "{ended}: {answered:?}");
        drop((held, stream, next));
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_address_cannot_have_all_connections() {
    let limits = ServerLimits { connections: 100, connections_per_address: 2, ..ServerLimits::default() };
    let world = World::new("seats", limits, true);
    let mut kept = Vec::new();
    for i in 0..3 {
        // The reset may come before or after the connection is known to be made.
        let answered = match tokio::net::TcpStream::connect(("127.0.0.1", world.port)).await {
            Ok(mut c) => {
                let _ = c.write_all(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").await;
                let answered = matches!(c.read(&mut [0; 1024]).await, Ok(n) if n > 0);
                kept.push(c);
                answered
            }
            Err(_) => false,
        };
        assert_eq!(answered, i < 2, "{i}");
    }
    // Another address is let in, and a place that comes free is given again.
    let from = tokio::net::TcpSocket::new_v4().expect("a socket");
    from.bind(SocketAddr::from(([127, 0, 0, 2], 0))).expect("bound");
    let mut other = from.connect(SocketAddr::from(([127, 0, 0, 1], world.port))).await.expect("connected");
    other.write_all(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("written");
    assert!(other.read(&mut [0; 1024]).await.expect("answered") > 0);
    drop(kept);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut c = tokio::net::TcpStream::connect(("127.0.0.1", world.port)).await.expect("connected");
    c.write_all(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("written");
    assert!(c.read(&mut [0; 1024]).await.expect("answered") > 0);
    drop((other, c));
    assert_eq!(world.end().await.refused, 1);
}

/// Bytes that a slow reader takes at a time, and how often.
const SIP: usize = 150_000;
const SIPS_APART: Duration = Duration::from_millis(100);
const SLOW: usize = 3_000_000;

/// Limits that a slow reader exceeds many times over, if what has gone into a buffer is taken for
/// what was delivered.
fn short() -> ServerLimits {
    ServerLimits { idle: Duration::from_millis(300), standstill: Duration::from_secs(3), ..ServerLimits::default() }
}

/// Reads everything, slowly and steadily but for one pause that is longer than a connection may be
/// idle.
async fn sip(mut read: impl AsyncFnMut(&mut [u8]) -> usize) -> usize {
    let (mut total, mut in_sip, mut paused) = (0, 0, false);
    let mut piece = vec![0; 50_000];
    loop {
        let n = read(&mut piece[..]).await;
        if n == 0 {
            return total;
        }
        (total, in_sip) = (total + n, in_sip + n);
        if in_sip >= SIP {
            in_sip = 0;
            tokio::time::sleep(SIPS_APART).await;
        }
        if total > SLOW / 2 && !core::mem::replace(&mut paused, true) {
            tokio::time::sleep(Duration::from_millis(900)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_is_slow_and_steady_gets_everything_over_http_1_1() {
    let world = World::new("slow-1", short(), true);
    world.put("huge", &noise(SLOW, 1));
    let mut c = tokio::net::TcpStream::connect(("127.0.0.1", world.port)).await.expect("connected");
    c.write_all(b"GET /huge HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("written");
    // The end is the server's, which has nothing more to do.
    let total = sip(async |buf: &mut [u8]| c.read(buf).await.expect("not cut")).await;
    assert!((SLOW + 50..SLOW + 1000).contains(&total), "{total}");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_is_slow_and_steady_gets_everything_over_http_2() {
    let world = World::new("slow-2", short(), false);
    world.put("huge", &noise(SLOW, 1));
    let c = greedy(&world, 1, 16 << 20).await;
    c.write_all(&frame(WINDOW_UPDATE, 0, 0, &(16_u32 << 20).to_be_bytes())).await.expect("written");
    let mut left = SLOW;
    let total = sip(async |buf: &mut [u8]| {
        if left == 0 {
            return 0;
        }
        let n = c.read(buf).await.expect("not cut");
        left = left.saturating_sub(n);
        n
    });
    assert!(total.await >= SLOW);
    drop(c);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_is_slow_and_steady_gets_everything_over_http_3() {
    let world = World::new("slow-3", short(), false);
    world.put("huge", &noise(SLOW, 1));
    let client = world.client(Some(HttpVersion::Http3));
    let mut answer = client.get(&world.url("huge"), &RequestOptions::default()).await.expect("answered");
    let total = sip(async |_: &mut [u8]| answer.chunk().await.expect("not cut").map_or(0, |piece| piece.len())).await;
    assert_eq!(total, SLOW);
    drop(client);
    world.end().await;
}

/// Many people are behind one address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_address_may_have_hundreds_of_connections_while_there_is_room() {
    let world = World::new("many", ServerLimits::default(), true);
    let mut kept = Vec::new();
    for i in 0..300 {
        let mut c = tokio::net::TcpStream::connect(("127.0.0.1", world.port)).await.expect("connected");
        c.write_all(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap_or_else(|e| panic!("{i}: {e}"));
        let n = c.read(&mut [0; 1024]).await.unwrap_or_else(|e| panic!("{i}: {e}"));
        assert!(n > 0, "{i}");
        kept.push(c);
    }
    drop(kept);
    assert_eq!(world.end().await.refused, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_idle_ends_for_another_where_there_is_no_room() {
    let limits = ServerLimits { connections: 2, stall: Duration::from_millis(200), ..ServerLimits::default() };
    let world = World::new("idle-goes", limits, true);
    let mut kept = Vec::new();
    for _ in 0..3 {
        let mut c = tokio::net::TcpStream::connect(("127.0.0.1", world.port)).await.expect("connected");
        c.write_all(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("written");
        assert!(c.read(&mut [0; 1024]).await.expect("answered") > 0);
        kept.push(c);
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    // The oldest has gone.
    assert!(matches!(kept[0].read(&mut [0; 10]).await, Ok(0) | Err(_)));
    let mut second = kept.swap_remove(1);
    second.write_all(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("written");
    assert!(second.read(&mut [0; 1024]).await.expect("answered") > 0);
    drop((kept, second));
    let summary = world.end().await;
    assert_eq!((summary.refused, summary.ended_for_others), (0, 1));
}
