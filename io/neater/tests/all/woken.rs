//! A waiting task is woken when there is an answer, whatever its cause.

use crate::common::{LIMIT, loopback, security};
use neater::tls::TlsVersion;
use neater::{
    Accepted, Connection, FramerSpec, Group, Listener, MessageContext, Neater, Preconnection, SecurityParameters,
    Stack, StreamDirection,
};
use std::future::Future;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

/// What comes of something within the time allowed.
async fn soon<T>(what: &str, waiting: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, waiting).await.unwrap_or_else(|_| panic!("{what}: it waits for ever"))
}

/// What waits is begun, and so far waits.
async fn begun<T: Send + 'static>(waiting: impl Future<Output = T> + Send + 'static) -> tokio::task::JoinHandle<T> {
    let task = tokio::spawn(waiting);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!task.is_finished(), "it does not wait");
    task
}

fn plain(neater: &Neater) -> Preconnection {
    neater.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Tcp])
}

fn over(stack: Stack, near: &Neater, far: &Neater) -> (Listener, Preconnection) {
    let (client, server) = security();
    let pre = far.preconnection().stacks(&[stack]).security(server).local(loopback(0));
    let listener = pre.listen().expect("listening");
    let pre = near.preconnection().stacks(&[stack]).security(client).remote(loopback(listener.port()));
    (listener, pre)
}

fn engines() -> (Neater, Neater) {
    (Neater::new().expect("engine"), Neater::new().expect("engine"))
}

/// A connection of two engines whose first end has spoken.
async fn pair(stack: Stack) -> (Arc<Connection>, Arc<Connection>, Listener) {
    let (near, far) = engines();
    let (listener, pre) = if stack == Stack::Sctp {
        let clear = |n: &Neater| n.preconnection().stacks(&[stack]).security(SecurityParameters::disabled());
        let listener = clear(&far).local(neater::LocalEndpoint::from(loopback(0)).with_udp_port(0)).listen();
        let listener = listener.expect("listening");
        let remote = neater::RemoteEndpoint::from(loopback(listener.port())).with_udp_port(listener.udp_ports()[0]);
        let pre = clear(&near).remote(remote);
        (listener, pre)
    } else {
        over(stack, &near, &far)
    };
    let ours = pre.initiate().await.expect("connected");
    ours.send("hello").await.expect("sent");
    let theirs = soon("accept", listener.accept()).await.expect("accepted");
    let hello = soon("receive", theirs.receive_partial(100)).await.expect("open");
    assert_eq!(hello.as_deref(), Some(&b"hello"[..]));
    (Arc::new(ours), Arc::new(theirs), listener)
}

/// A session whose groups both programs have taken.
async fn groups() -> (Connection, Group, Group) {
    let (near, far) = engines();
    let (listener, pre) = over(Stack::Quic, &near, &far);
    listener.deliver_groups(true);
    let ours = pre.initiate().await.expect("connected");
    ours.send("hello").await.expect("sent");
    let Some(Accepted::Group(theirs)) = soon("group", listener.accept_any()).await else { panic!("no group") };
    let group = ours.group().expect("open");
    (ours, group, theirs)
}

#[tokio::test]
async fn who_receives_before_the_connection_is_ready_gets_what_came_with_its_last_packet() {
    // Of TLS 1.2, the last message of a handshake is the server's: its first data is read together
    // with that.
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let (near, driver) = Neater::builder().without_driver().expect("engine");
        let far = Neater::new().expect("engine");
        let (listener, pre) = over(Stack::Tls, &near, &far);
        let (mut client, _) = security();
        client.max_version = version;
        let _serving = tokio::spawn(async move {
            let connection = listener.accept().await.expect("accepted");
            connection.send("banner").await.expect("sent");
            std::future::pending::<(Listener, Connection)>().await
        });
        let connection = Arc::new(pre.security(client).initiate().connection().expect("begun"));
        let reader = connection.clone();
        let reading = begun(async move { reader.receive_partial(100).await }).await;
        let turning = async {
            loop {
                driver.turn();
                // Everything that the server sends is there by the next.
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
        };
        tokio::select! {
            () = turning => {}
            got = soon("receive", reading) => {
                assert_eq!(got.expect("no panic").expect("open").as_deref(), Some(&b"banner"[..]), "{version:?}");
            }
        }
    }
}

#[tokio::test]
async fn who_waits_for_a_slow_rate_is_told_of_a_faster_one() {
    let near = Neater::new().expect("engine");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listening");
    let pre = plain(&near).remote(listener.local_addr().expect("bound"));
    let connection = Arc::new(pre.initiate().await.expect("connected"));
    let (mut peer, _) = listener.accept().expect("accepted");
    connection.set("maxRecvRate", 8_000).expect("set");
    peer.write_all(&[1; 100_000]).expect("written");
    let reader = connection.clone();
    let reading = begun(async move {
        let mut got = 0;
        while got < 100_000 {
            got += reader.receive_partial(100_000).await.expect("open").expect("more").len();
        }
    })
    .await;
    connection.set("maxRecvRate", 800_000_000).expect("set");
    // At the first rate it takes 100 s.
    soon("receive", reading).await.expect("no panic");
}

#[tokio::test]
async fn who_receives_what_is_not_wanted_any_more_gets_the_end() {
    for stack in [Stack::Tls, Stack::Quic] {
        let (ours, theirs, _listener) = pair(stack).await;
        let reader = ours.clone();
        let reading = begun(async move { reader.receive_partial(100).await }).await;
        ours.stop_receiving(0);
        let end = soon("receive", reading).await.expect("no panic").expect("in order");
        assert!(end.is_none(), "{stack}: {end:?}");
        // The other direction goes on.
        ours.send("more").await.expect("sent");
        let more = soon("receive", theirs.receive_partial(100)).await.expect("open");
        assert_eq!(more.as_deref(), Some(&b"more"[..]), "{stack}");
    }
}

#[tokio::test]
async fn half_a_message_that_is_not_wanted_any_more_ends_nothing_else() {
    let near = Neater::new().expect("engine");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listening");
    let framed = plain(&near).framer(FramerSpec::LengthPrefixed { width: 2, max: 100 });
    let pre = framed.remote(listener.local_addr().expect("bound"));
    let connection = Arc::new(pre.initiate().await.expect("connected"));
    let (mut peer, _) = listener.accept().expect("accepted");
    peer.write_all(b"\x00\x05ha").expect("written");
    let reader = connection.clone();
    let reading = begun(async move { reader.receive().await }).await;
    connection.stop_receiving(0);
    assert!(soon("receive", reading).await.expect("no panic").expect("in order").is_none());
    connection.send("still").await.expect("the other direction is open");
    let mut got = [0; 7];
    std::io::Read::read_exact(&mut peer, &mut got).expect("read");
    assert_eq!(&got, b"\x00\x05still");
}

#[tokio::test]
async fn what_is_refused_before_the_stream_is_there_is_refused_when_it_is() {
    let (near, far) = engines();
    let (listener, pre) = over(Stack::Quic, &near, &far);
    let ours = pre.initiate().connection().expect("begun");
    ours.stop_receiving(7);
    ours.ready().await.expect("connected");
    ours.send("hello").await.expect("sent");
    let theirs = soon("accept", listener.accept()).await.expect("accepted");
    let told = soon("send", async {
        loop {
            if let Err(e) = theirs.send(vec![1; 10_000]).await {
                return e;
            }
        }
    });
    assert!(told.await.to_string().contains('7'));
    assert!(soon("receive", ours.receive_partial(100)).await.expect("in order").is_none());
}

#[tokio::test]
async fn who_waits_for_streams_of_a_session_that_this_program_ends_is_told() {
    for way in ["close", "abort", "session"] {
        let (_ours, _group, theirs) = groups().await;
        let theirs = Arc::new(theirs);
        let first = soon("accept", theirs.accept()).await.expect("a stream");
        let waiting = theirs.clone();
        let accepting = begun(async move { waiting.accept().await.map(drop) }).await;
        match way {
            "close" => theirs.close(),
            "abort" => theirs.abort(),
            _ => theirs.close_session(0, b""),
        }
        soon(way, accepting).await.expect("no panic").expect_err("the session is over");
        drop(first);
    }
}

#[tokio::test]
async fn a_stream_that_both_sides_have_ended_is_closed_in_whatever_order_and_way() {
    for (theirs_first, theirs_resets) in [(true, false), (true, true), (false, false)] {
        let (ours, theirs, _listener) = pair(Stack::Quic).await;
        let end = || if theirs_resets { theirs.reset_sending(5) } else { theirs.finish().expect("open") };
        if theirs_first {
            end();
            let read = soon("receive", ours.receive_partial(100)).await;
            assert_eq!(read.is_err(), theirs_resets, "{read:?}");
        }
        ours.reset_sending(3);
        if !theirs_first {
            end();
            assert!(soon("receive", ours.receive_partial(100)).await.expect("in order").is_none());
        }
        let closed = soon("closed", ours.closed()).await;
        assert_eq!(closed.is_err(), theirs_resets, "{theirs_first}: {closed:?}");
    }
    // A reset that was read, and an end that is acknowledged later.
    let (ours, theirs, _listener) = pair(Stack::Quic).await;
    theirs.reset_sending(5);
    soon("receive", ours.receive_partial(100)).await.expect_err("reset");
    ours.finish().expect("open");
    soon("closed", ours.closed()).await.expect_err("the peer has given up");
}

#[tokio::test]
async fn a_stream_that_has_no_way_back_has_nothing_to_end() {
    let (_ours, group, theirs) = groups().await;
    let one_way = group.open(StreamDirection::One).expect("open");
    one_way.send("there").await.expect("sent");
    soon("accept", theirs.accept()).await.expect("the first");
    let taken = soon("accept", theirs.accept()).await.expect("the second");
    let bytes = taken.into_bytes().map_err(|(_, e)| e).expect("bytes");
    soon("end", bytes.end()).await.expect("nothing to say");
}

#[tokio::test]
async fn a_stream_of_one_way_is_closed_when_that_way_is() {
    let (_ours, group, theirs) = groups().await;
    let one_way = group.open(StreamDirection::One).expect("open");
    one_way.send("there").await.expect("sent");
    soon("accept", theirs.accept()).await.expect("the first");
    let taken = soon("accept", theirs.accept()).await.expect("the second");
    one_way.finish().expect("open");
    while soon("receive", taken.receive_partial(100)).await.expect("in order").is_some() {}
    soon("closed", one_way.closed()).await.expect("the peer has everything");
    soon("closed", taken.closed()).await.expect("all was received, and there is nothing to be said");
}

#[tokio::test]
async fn who_wants_no_more_and_has_said_everything_waits_for_nothing() {
    for finish_first in [true, false] {
        let (ours, theirs, _listener) = pair(Stack::Quic).await;
        if !finish_first {
            ours.stop_receiving(0);
        }
        ours.finish().expect("open");
        assert!(soon("receive", theirs.receive_partial(100)).await.expect("in order").is_none());
        if finish_first {
            tokio::time::sleep(Duration::from_millis(50)).await;
            ours.stop_receiving(0);
        }
        soon("closed", ours.closed()).await.expect("the peer has everything");
    }
}

#[tokio::test]
async fn who_wants_no_more_and_is_not_wanted_either_is_told() {
    for (stack, refused_first) in [(Stack::Quic, true), (Stack::Quic, false), (Stack::Sctp, true), (Stack::Sctp, false)]
    {
        let (ours, theirs, _listener) = pair(stack).await;
        if !refused_first {
            ours.stop_receiving(0);
        }
        theirs.stop_receiving(7);
        let told = async { while ours.send(vec![1; 1000]).await.is_ok() {} };
        soon("send", told).await;
        if refused_first {
            ours.stop_receiving(0);
        }
        let closed = soon("closed", ours.closed()).await;
        closed.err().unwrap_or_else(|| panic!("{stack}: the peer did not want it"));
    }
}

/// To close a stream whose peer does not want what was sent takes no longer than the news of that,
/// whatever else their session carries.
#[tokio::test]
async fn who_closes_what_the_peer_does_not_want_is_told() {
    for stack in [Stack::Quic, Stack::Sctp] {
        for wait in [false, true] {
            let (ours, theirs, listener) = pair(stack).await;
            let beside = ours.clone_connection().expect("a stream");
            soon("ready", beside.ready()).await.expect("ready");
            beside.send("busy").await.expect("sent");
            let busy = soon("accept", listener.accept()).await.expect("accepted");
            let chatter = tokio::spawn(async move { while beside.send("busy").await.is_ok() {} });
            let reader = tokio::spawn(async move { while let Ok(Some(_)) = busy.receive_partial(10_000).await {} });
            theirs.stop_receiving(7);
            let told = async { while ours.send(vec![1; 1000]).await.is_ok() {} };
            soon("send", told).await;
            if wait {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            let closed = tokio::time::timeout(Duration::from_secs(5), ours.close()).await;
            let closed = closed.unwrap_or_else(|_| panic!("{stack}: it waits for what cannot come"));
            closed.err().unwrap_or_else(|| panic!("{stack}: the peer did not want it"));
            chatter.abort();
            reader.abort();
        }
    }
}

/// Messages that expire leave their room to others, whether the peer takes anything or not.
#[tokio::test]
async fn who_waits_for_room_has_that_of_messages_that_have_expired() {
    let limits = neater::Limits { send_buffer: 100_000, ..neater::Limits::default() };
    let near = Neater::builder().limits(limits).build().expect("engine");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listening");
    let pre = plain(&near).remote(listener.local_addr().expect("bound"));
    let connection = pre.initiate().await.expect("connected");
    // Nothing is read: until neither the system nor the queue takes anything.
    let brief = MessageContext::new().lifetime(Duration::from_millis(500));
    let mut quiet = 0;
    while quiet < 5 {
        quiet = if connection.try_send(vec![7; 10_000], &brief).is_ok() { 0 } else { quiet + 1 };
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    soon("send", connection.send("for this there is room")).await.expect("taken");
    connection.abort();
}

/// A member of a group that waits for a stream waits as long as its request allows; its session is
/// none the worse.
#[tokio::test]
async fn who_waits_for_a_stream_beside_others_waits_as_long_as_he_says() {
    let (near, far) = engines();
    let (client, server) = security();
    let mut properties = neater_property::TransportProperties::new();
    properties.set_text("groupConnLimit", "1").expect("known");
    let pre = far.preconnection().properties(properties).stacks(&[Stack::Quic]).security(server).local(loopback(0));
    let listener = pre.listen().expect("listening");
    let pre = near.preconnection().stacks(&[Stack::Quic]).security(client).remote(loopback(listener.port()));
    let first = pre.timeout(Duration::from_millis(700)).initiate().await.expect("connected");
    first.send("hello").await.expect("sent");
    let taken = soon("accept", listener.accept()).await.expect("accepted");
    let more: Vec<_> = (0..300).map(|_| first.clone_connection().expect("begun")).collect();
    let mut refused = 0;
    for clone in &more {
        if let Err(e) = soon("ready", clone.ready()).await {
            assert_eq!(e.reason, neater::Reason::Timeout, "{e}");
            refused += 1;
        }
    }
    assert!(refused > 100, "{refused} of 300");
    taken.send("still here").await.expect("open");
    let got = soon("receive", first.receive_partial(100)).await.expect("open");
    assert_eq!(got.as_deref(), Some(&b"still here"[..]));
}

#[tokio::test]
async fn who_waits_for_room_is_told_that_the_connection_is_closed() {
    for stack in [Stack::Tls, Stack::Quic] {
        let (ours, theirs, _listener) = pair(stack).await;
        let sender = ours.clone();
        let sending = tokio::spawn(async move { while sender.send(vec![1; 50_000]).await.is_ok() {} });
        // Nothing is read: until nothing more is taken.
        let mut sent = None;
        while ours.stats().map(|s| s.bytes_sent) != sent || sent == Some(0) {
            sent = ours.stats().map(|s| s.bytes_sent);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let closer = ours.clone();
        let closing = tokio::spawn(async move { closer.close().await });
        let told = tokio::time::timeout(Duration::from_secs(5), sending).await;
        told.unwrap_or_else(|_| panic!("{stack}: the sender is told at the end only")).expect("no panic");
        theirs.abort();
        let _ = soon("close", closing).await;
    }
}

#[tokio::test]
async fn bytes_do_not_wait_for_the_end_of_a_batch_of_messages() {
    let near = Neater::new().expect("engine");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listening");
    let pre = plain(&near).remote(listener.local_addr().expect("bound"));
    let connection = pre.initiate().await.expect("connected");
    let (mut peer, _) = listener.accept().expect("accepted");
    connection.start_batch();
    connection.try_send("first", &MessageContext::new()).expect("taken");
    let bytes = connection.into_bytes().map_err(|(_, e)| e).expect("bytes");
    soon("write", bytes.write_all(b"second")).await.expect("written");
    let mut got = [0; 11];
    std::io::Read::read_exact(&mut peer, &mut got).expect("read");
    assert_eq!(&got, b"firstsecond");
}

#[tokio::test]
async fn who_receives_datagrams_that_are_not_wanted_any_more_gets_the_end() {
    let near = Neater::new().expect("engine");
    let peer = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
    let properties = neater_property::profile("unreliable-datagram").expect("known");
    let pre = near.preconnection().properties(properties).security(SecurityParameters::disabled());
    let pre = pre.stacks(&[Stack::Udp]).remote(peer.local_addr().expect("bound"));
    let ours = Arc::new(pre.initiate().await.expect("connected"));
    ours.try_send("hello", &MessageContext::new().safely_replayable_as(true)).expect("sent");
    let (_, from) = peer.recv_from(&mut [0; 10]).expect("received");
    let reader = ours.clone();
    let reading = begun(async move { reader.receive().await }).await;
    ours.stop_receiving(0);
    assert!(soon("receive", reading).await.expect("no panic").expect("in order").is_none());
    peer.send_to(b"late", from).expect("sent");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(soon("receive", ours.receive()).await.expect("in order").is_none(), "nobody wants it");
}

#[tokio::test]
async fn datagrams_that_had_arrived_come_before_the_end() {
    let near = Neater::new().expect("engine");
    let peer = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
    let properties = neater_property::profile("unreliable-datagram").expect("known");
    let pre = near.preconnection().properties(properties).security(SecurityParameters::disabled());
    let ours = pre.stacks(&[Stack::Udp]).remote(peer.local_addr().expect("bound")).initiate().await.expect("connected");
    ours.try_send("hello", &MessageContext::new().safely_replayable_as(true)).expect("sent");
    let (_, from) = peer.recv_from(&mut [0; 10]).expect("received");
    for _ in 0..3 {
        peer.send_to(b"in time", from).expect("sent");
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    ours.stop_receiving(0);
    for _ in 0..3 {
        assert_eq!(soon("receive", ours.receive()).await.expect("in order").as_deref(), Some(&b"in time"[..]));
    }
    assert!(soon("receive", ours.receive()).await.expect("in order").is_none());
}

/// It stays with the listener's socket as long as it talks, and does not come back as another.
#[tokio::test]
async fn a_peer_that_nobody_listens_to_is_there_as_long_as_it_talks() {
    let far = Neater::new().expect("engine");
    let mut properties = neater_property::profile("unreliable-datagram").expect("known");
    properties.set_text("connTimeout", "1").expect("known");
    let pre = far.preconnection().properties(properties).security(SecurityParameters::disabled()).stacks(&[Stack::Udp]);
    let listener = pre.local(loopback(0)).listen().expect("listening");
    let peer = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
    peer.connect(loopback(listener.port())).expect("connected");
    peer.send(b"hello").expect("sent");
    let accepted = soon("accept", listener.accept()).await.expect("accepted");
    accepted.stop_receiving(0);
    for _ in 0..12 {
        peer.send(b"still here").expect("sent");
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(accepted.state(), neater::ConnectionState::Established, "it has said something just now");
    }
    let again = tokio::time::timeout(Duration::from_millis(100), listener.accept()).await;
    assert!(again.is_err(), "it is the one that was accepted");
}

#[tokio::test]
async fn who_came_to_a_listener_that_stops_before_it_took_him_is_told() {
    for limit in [0, 1] {
        let (near, far) = engines();
        let (listener, pre) = over(Stack::Quic, &near, &far);
        listener.set_new_connection_limit(Some(limit));
        let first = pre.initiate().await.expect("connected");
        first.send("hello").await.expect("sent");
        let second = pre.initiate().await.expect("connected");
        second.send("hello").await.expect("sent");
        tokio::time::sleep(Duration::from_millis(100)).await;
        let taken = if limit == 1 { listener.accept().await } else { None };
        listener.stop();
        soon("receive", second.receive_partial(100)).await.map(|m| assert!(m.is_none())).ok();
        soon("closed", second.closed()).await.expect_err("nobody has taken what was said");
        if let Some(taken) = taken {
            taken.send("still here").await.expect("what was delivered goes on");
            let got = soon("receive", first.receive_partial(100)).await.expect("open");
            assert_eq!(got.as_deref(), Some(&b"still here"[..]));
        }
    }
}

#[tokio::test]
async fn a_message_that_was_refused_in_its_middle_leaves_room_for_the_next() {
    let limits = neater::Limits { message: 100_000, ..neater::Limits::default() };
    let near = Neater::builder().limits(limits).build().expect("engine");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listening");
    let framed = plain(&near).framer(FramerSpec::LengthPrefixed { width: 4, max: 1 << 20 });
    let connection = framed.remote(listener.local_addr().expect("bound")).initiate().await.expect("connected");
    let context = MessageContext::new();
    connection.send_partial(vec![1; 60_000], &context, false).await.expect("the framer keeps it");
    connection.send_partial(vec![1; 60_000], &context, false).await.expect_err("too large");
    connection.send_partial("", &context, true).await.expect_err("the rest of what was refused");
    connection.send(vec![2; 50_000]).await.expect("it fits");
    drop(listener);
}
