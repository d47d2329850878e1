//! What was handed over and does not arrive: it is reported.

use crate::common::{LIMIT, loopback, security};
use neater::{
    Connection, Driver, FramerSpec, Limits, Listener, LocalEndpoint, MessageContext, Neater, Preconnection,
    RemoteEndpoint, SecurityParameters, SendError, Stack,
};
use std::io::Read;
use std::time::Duration;

fn plain(neater: &Neater) -> Preconnection {
    neater.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Tcp])
}

/// A connection of messages with a length before each.
async fn framed(near: &Neater, far: &Neater) -> (Listener, Connection, Connection) {
    let framer = FramerSpec::LengthPrefixed { width: 2, max: 1000 };
    let listener = plain(far).framer(framer.clone()).local(loopback(0)).listen().expect("listening");
    let pre = plain(near).framer(framer).remote(loopback(listener.port()));
    let connection = pre.initiate().await.expect("connected");
    let accepted = tokio::time::timeout(LIMIT, listener.accept()).await.expect("soon").expect("accepted");
    (listener, connection, accepted)
}

async fn turns(driver: &Driver, count: usize) {
    for _ in 0..count {
        driver.turn();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A listener of one, and what the other needs in order to connect to it.
fn over(stack: Stack, far: &Neater, near: &Neater) -> (Listener, Preconnection) {
    let (client, server) = security();
    let pre = far.preconnection().stacks(&[stack]).security(server);
    let listener = pre.local(loopback(0)).listen().expect("listening");
    let pre = near.preconnection().stacks(&[stack]).security(client).remote(loopback(listener.port()));
    (listener, pre)
}

/// A connection on which everything was asked and answered.
async fn answered(listener: &Listener, pre: &Preconnection) -> (Connection, Connection) {
    let client = pre.initiate().await.expect("connected");
    client.send("ask").await.expect("sent");
    let server = tokio::time::timeout(LIMIT, listener.accept()).await.expect("soon").expect("accepted");
    assert_eq!(server.receive().await.expect("open").as_deref(), Some(&b"ask"[..]));
    server.send("answer").await.expect("sent");
    assert_eq!(client.receive().await.expect("open").as_deref(), Some(&b"answer"[..]));
    (client, server)
}

/// A stream of QUIC on which the client has spoken, and whose server polls its socket only on
/// command.
async fn framer_ready() -> (Driver, Connection, Connection) {
    let (far, driver) = Neater::builder().without_driver().expect("engine");
    let near = Neater::new().expect("engine");
    let (listener, pre) = over(Stack::Quic, &far, &near);
    let begun = tokio::spawn(async move {
        let connection = pre.initiate().await.expect("connected");
        connection.send("hello").await.expect("sent");
        connection
    });
    turns(&driver, 50).await;
    let client = begun.await.expect("no panic");
    turns(&driver, 20).await;
    let server = tokio::time::timeout(LIMIT, listener.accept()).await.expect("soon").expect("accepted");
    assert_eq!(server.receive().await.expect("open").as_deref(), Some(&b"hello"[..]));
    (driver, client, server)
}

/// The peer ends its session in order, and has not taken what it was sent.
#[tokio::test]
async fn closed_in_order_is_no_word_for_what_the_peer_has_not_taken() {
    let (driver, client, server) = framer_ready().await;
    let closing = tokio::spawn(async move { client.close().await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    // The client's notice of its end is in the socket, and this engine has not polled.
    server.try_send(vec![7; 100_000], &MessageContext::new()).expect("taken");
    turns(&driver, 200).await;
    closing.await.expect("no panic").expect("the client has all that it was sent and wanted");
    let closed = tokio::time::timeout(LIMIT, server.closed()).await.expect("over");
    closed.expect_err("the peer has not got it, and nobody says so");
}

/// What the peer has taken when it ends its session is delivered, and its end is no error.
#[tokio::test]
async fn closed_in_order_is_the_word_where_the_peer_has_everything() {
    let (far, near) = (Neater::new().expect("engine"), Neater::new().expect("engine"));
    let (listener, pre) = over(Stack::Quic, &far, &near);
    for _ in 0..20 {
        let (client, server) = answered(&listener, &pre).await;
        client.close().await.expect("in order");
        tokio::time::timeout(LIMIT, server.closed()).await.expect("over").expect("in order");
    }
}

#[tokio::test]
async fn datagrams_that_were_taken_leave_before_their_session_ends() {
    let (far, near) = (Neater::new().expect("engine"), Neater::new().expect("engine"));
    let (client, server) = security();
    let profile = neater_property::profile("unreliable-datagram").expect("known");
    let over = |n: &Neater| n.preconnection().properties(profile.clone()).stacks(&[Stack::QuicDatagram]);
    let listener = over(&far).security(server).local(loopback(0)).listen().expect("listening");
    let pre = over(&near).security(client).remote(loopback(listener.port()));
    let connection = pre.initiate().await.expect("connected");
    let counting = tokio::spawn(async move {
        let accepted = listener.accept().await.expect("accepted");
        let mut count = 0;
        while let Ok(Ok(Some(_))) = tokio::time::timeout(LIMIT, accepted.receive()).await {
            count += 1;
        }
        count
    });
    for _ in 0..150 {
        tokio::time::timeout(LIMIT, connection.send(vec![7; 1000])).await.expect("soon").expect("taken");
    }
    connection.close().await.expect("in order");
    // On loopback nothing is lost but what no buffer of the receiver's has room for.
    let arrived = counting.await.expect("no panic");
    assert!(arrived >= 140, "{arrived} of 150 have left");
}

/// TCP has no word for a direction that is abandoned: the connection is aborted.
#[tokio::test]
async fn a_part_that_is_abandoned_over_tcp_does_not_end_like_the_whole() {
    let near = Neater::new().expect("engine");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listening");
    let pre = plain(&near).remote(loopback(listener.local_addr().expect("bound").port()));
    for backlog in [false, true] {
        let connection = pre.initiate().await.expect("connected");
        let (mut peer, _) = listener.accept().expect("accepted");
        peer.set_read_timeout(Some(LIMIT)).expect("set");
        connection.send("half a mess").await.expect("sent");
        while backlog && connection.try_send(vec![1; 60_000], &MessageContext::new()).is_ok() {}
        connection.reset_sending(7);
        drop(connection);
        let read = tokio::task::spawn_blocking(move || peer.read_to_end(&mut Vec::new())).await.expect("no panic");
        assert_eq!(read.expect_err("a reset").kind(), std::io::ErrorKind::ConnectionReset, "backlog: {backlog}");
    }
}

#[tokio::test]
async fn a_part_that_is_abandoned_over_tls_does_not_end_like_the_whole() {
    let (far, near) = (Neater::new().expect("engine"), Neater::new().expect("engine"));
    let (listener, pre) = over(Stack::Tls, &far, &near);
    let connection = pre.initiate().await.expect("connected");
    let accepted = tokio::time::timeout(LIMIT, listener.accept()).await.expect("soon").expect("accepted");
    while connection.try_send(vec![1; 60_000], &MessageContext::new()).is_ok() {}
    connection.reset_sending(7);
    drop(connection);
    let end = loop {
        match tokio::time::timeout(LIMIT, accepted.receive()).await.expect("it ends") {
            Ok(Some(_)) => {}
            end => break end,
        }
    };
    end.expect_err("TLS vouches for a part");
}

/// The peer goes on as if nothing had happened: it is the framer that has given up.
#[tokio::test]
async fn whole_messages_before_a_broken_one_come_before_the_error() {
    for stack in [Stack::Tcp, Stack::Tls, Stack::Quic] {
        let (far, near) = (Neater::new().expect("engine"), Neater::new().expect("engine"));
        let (client, server) = match stack {
            Stack::Tcp => (SecurityParameters::disabled(), SecurityParameters::disabled()),
            _ => security(),
        };
        let framed = far.preconnection().stacks(&[stack]).security(server);
        let framed = framed.framer(FramerSpec::LengthPrefixed { width: 2, max: 100 });
        let listener = framed.local(loopback(0)).listen().expect("listening");
        let pre = near.preconnection().stacks(&[stack]).security(client).remote(loopback(listener.port()));
        let peer = pre.initiate().await.expect("connected");
        // Two that are whole, and one that is longer than any may be.
        peer.send(&b"\x00\x02ok\x00\x03yes\xff\xffno"[..]).await.expect("sent");
        let connection = tokio::time::timeout(LIMIT, listener.accept()).await.expect("soon").expect("accepted");
        tokio::time::sleep(Duration::from_millis(50)).await;
        for expected in ["ok", "yes"] {
            let got = tokio::time::timeout(LIMIT, connection.receive()).await.expect("soon");
            assert_eq!(got.expect("before the error").as_deref(), Some(expected.as_bytes()), "{stack}");
        }
        for _ in 0..2 {
            let end = tokio::time::timeout(LIMIT, connection.receive()).await.expect("it does not wait for ever");
            end.expect_err("the third is too long");
        }
        drop(peer);
    }
}

/// What is sent in a batch on a connection that turns out to be broken is refused, and nothing of
/// it stays.
#[tokio::test]
async fn a_batch_on_a_connection_that_has_failed_takes_no_more() {
    let (near, driver) = Neater::builder().without_driver().expect("engine");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listening");
    let pre = plain(&near).remote(listener.local_addr().expect("bound"));
    let begun = tokio::spawn(async move { pre.initiate().await.expect("connected") });
    turns(&driver, 20).await;
    let connection = begun.await.expect("no panic");
    let peer = socket2::Socket::from(listener.accept().expect("accepted").0);
    peer.set_linger(Some(Duration::ZERO)).expect("set");
    drop(peer);
    tokio::time::sleep(Duration::from_millis(20)).await;
    connection.start_batch();
    let context = MessageContext::new();
    let refused = (0..200).find_map(|_| connection.try_send(vec![1; 10_000], &context).err());
    assert!(matches!(refused, Some(SendError::Connection(_))), "{refused:?}");
    drop(connection);
    turns(&driver, 20).await;
    assert_eq!((near.stats().bytes_queued, near.stats().connections), (0, 0));
}

/// A program that ends its session with a code of its own has no error, and neither has its peer,
/// which received everything.
#[tokio::test]
async fn a_session_that_is_ended_after_everything_was_said_has_no_error() {
    let (far, near) = (Neater::new().expect("engine"), Neater::new().expect("engine"));
    let (listener, pre) = over(Stack::Quic, &far, &near);
    for wait in [0, 1, 5, 30, 200] {
        let (client, server) = answered(&listener, &pre).await;
        tokio::time::sleep(Duration::from_millis(wait)).await;
        client.group().expect("open").close_session(0, b"");
        client.closed().await.expect("the end is its own");
        tokio::time::timeout(LIMIT, server.closed()).await.expect("over").expect("in order");
    }
}

/// What was written after the peer had ended its session has never left.
#[tokio::test]
async fn what_has_never_left_is_an_error_although_the_peer_ended_in_order() {
    let (driver, client, server) = framer_ready().await;
    // Without a word on the stream.
    client.group().expect("open").close_session(0, b"");
    tokio::time::sleep(Duration::from_millis(20)).await;
    server.try_send("too late", &MessageContext::new()).expect("taken");
    turns(&driver, 20).await;
    let closed = tokio::time::timeout(LIMIT, server.closed()).await.expect("over");
    closed.expect_err("it has never left this host");
}

/// A batch is sent together as far as there is room for it.
#[tokio::test]
async fn a_batch_that_is_larger_than_the_buffer_goes_on() {
    let (far, near) = (Neater::new().expect("engine"), Neater::new().expect("engine"));
    let listener = plain(&far).local(loopback(0)).listen().expect("listening");
    let connection = plain(&near).remote(loopback(listener.port())).initiate().await.expect("connected");
    let accepted = tokio::time::timeout(LIMIT, listener.accept()).await.expect("soon").expect("accepted");
    const SIZE: usize = 64 << 10;
    let reading = tokio::spawn(async move {
        let mut n = 0;
        while n < 10 * SIZE
            && let Ok(Some(m)) = accepted.receive().await
        {
            n += m.len();
        }
        n
    });
    connection.start_batch();
    for i in 0..10 {
        let sent = tokio::time::timeout(LIMIT, connection.send(vec![1; SIZE])).await;
        sent.unwrap_or_else(|_| panic!("message {i} waits for ever")).expect("sent");
    }
    connection.end_batch();
    assert_eq!(reading.await.expect("no panic"), 10 * SIZE);
}

/// UDP reports what would have fitted.
#[tokio::test]
async fn a_datagram_that_is_too_long_is_told_what_is_not() {
    let near = Neater::new().expect("engine");
    let peer = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
    let profile = neater_property::profile("unreliable-datagram").expect("known");
    let pre = near.preconnection().properties(profile).stacks(&[Stack::Udp]).security(SecurityParameters::disabled());
    let connection = pre.remote(peer.local_addr().expect("bound")).initiate().await.expect("ready");
    match connection.try_send(vec![0; 70_000], &MessageContext::new().safely_replayable_as(true)) {
        Err(SendError::MessageTooLarge { max }) => assert!((1000..=65_507).contains(&max), "{max}"),
        other => panic!("{other:?}"),
    }
}

/// Two messages are never made one.
#[tokio::test]
async fn a_message_is_refused_while_another_one_is_sent_in_parts() {
    let (far, near) = (Neater::new().expect("engine"), Neater::new().expect("engine"));
    let (_listener, connection, accepted) = framed(&near, &far).await;
    let context = MessageContext::new();
    connection.send_partial("in ", &context, false).await.expect("begun");
    let refused = connection.send("whole").await.expect_err("another one is not finished");
    assert!(matches!(refused, SendError::InvalidMessageProperties(_)), "{refused}");
    connection.try_send("whole", &context).expect_err("another one is not finished");
    connection.send_partial("parts", &context, true).await.expect("ended");
    connection.send("whole").await.expect("sent");
    for expected in ["in parts", "whole"] {
        let got = tokio::time::timeout(LIMIT, accepted.receive()).await.expect("soon").expect("open");
        assert_eq!(got.as_deref(), Some(expected.as_bytes()));
    }
}

/// The rest of a message of which a part was refused is refused too, whatever other tasks send in
/// between.
#[tokio::test]
async fn a_whole_message_does_not_end_another_one_that_was_refused() {
    let limits = Limits { message: 1000, ..Limits::default() };
    let far = Neater::new().expect("engine");
    let near = Neater::builder().limits(limits).build().expect("engine");
    let (_listener, connection, accepted) = framed(&near, &far).await;
    let context = MessageContext::new();
    connection.send_partial("one, ", &context, false).await.expect("begun");
    connection.send_partial(vec![7; 2000], &context, false).await.expect_err("too large");
    connection.send("whole").await.expect_err("another one is not finished");
    connection.send_partial("three", &context, true).await.expect_err("of a message that was refused");
    connection.send("whole").await.expect("sent");
    let got = tokio::time::timeout(LIMIT, accepted.receive()).await.expect("soon").expect("open");
    assert_eq!(got.as_deref(), Some(&b"whole"[..]));
}

/// Where no framer keeps them apart either.
#[tokio::test]
async fn parts_of_a_message_that_was_refused_do_not_become_part_of_the_next() {
    let limits = Limits { message: 1000, ..Limits::default() };
    let far = Neater::new().expect("engine");
    let near = Neater::builder().limits(limits).build().expect("engine");
    let over = |n: &Neater| n.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Sctp]);
    let listener = over(&far).local(LocalEndpoint::from(loopback(0)).with_udp_port(0)).listen().expect("listening");
    let remote = RemoteEndpoint::from(loopback(listener.port())).with_udp_port(listener.udp_ports()[0]);
    let connection = over(&near).remote(remote).initiate().await.expect("connected");
    let accepted = tokio::time::timeout(LIMIT, listener.accept()).await.expect("soon").expect("accepted");
    let context = MessageContext::new();
    for _ in 0..3 {
        connection.send_partial(vec![1; 500], &context, false).await.expect("begun");
        connection.send_partial(vec![1; 600], &context, true).await.expect_err("too large");
        connection.send("next").await.expect("it has room");
        let got = tokio::time::timeout(LIMIT, accepted.receive()).await.expect("soon").expect("open");
        assert_eq!(got.as_deref(), Some(&b"next"[..]));
    }
    // Parts of nothing are bounded too.
    let mut taken = 0;
    while taken < 1000 && connection.send_partial("", &context, false).await.is_ok() {
        taken += 1;
    }
    assert!(taken < 100, "{taken} parts of a message of at most 1000 bytes");
}

/// What was sent on it has for the most part never left this host, and that is reported.
async fn ends_in_an_error(driver: &Driver, server: &Connection) {
    turns(driver, 20).await;
    let closed = tokio::time::timeout(LIMIT, server.closed()).await.expect("over");
    closed.expect_err("most of it has never left this host");
}

#[tokio::test]
async fn what_waits_behind_the_window_is_an_error_although_the_peer_ended_in_order() {
    let (driver, client, server) = framer_ready().await;
    server.try_send(vec![1; 200_000], &MessageContext::new()).expect("taken");
    // As much as the congestion window lets leave, leaves. Nothing is awaited between this and the
    // next line.
    driver.turn();
    client.group().expect("open").close_session(0, b"");
    tokio::time::sleep(Duration::from_millis(20)).await;
    ends_in_an_error(&driver, &server).await;
}

#[tokio::test]
async fn an_end_that_is_said_before_a_connection_is_ready_is_said() {
    let near = Neater::new().expect("engine");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listening");
    let first = plain(&near).remote(listener.local_addr().expect("bound")).initiate().await.expect("connected");
    let _peer = listener.accept().expect("accepted");
    let second = first.clone_connection().expect("begun");
    assert_eq!(second.state(), neater::ConnectionState::Establishing);
    second.reset_sending(1);
    second.ready().await.expect("established all the same");
    let (peer, _) = listener.accept().expect("accepted");
    peer.set_read_timeout(Some(Duration::from_secs(3))).expect("set");
    let read = tokio::task::spawn_blocking(move || (&peer).read(&mut [0; 10])).await.expect("no panic");
    // An end or a reset; not silence (WouldBlock).
    let silent = matches!(&read, Err(e) if e.kind() == std::io::ErrorKind::WouldBlock);
    assert!(!silent, "{read:?}");
    drop(second);
}

#[tokio::test]
async fn a_message_that_is_cut_off_is_an_error_however_often_one_asks() {
    let near = Neater::new().expect("engine");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listening");
    let framed = plain(&near).framer(FramerSpec::LengthPrefixed { width: 2, max: 100 });
    let framed = framed.remote(listener.local_addr().expect("bound"));
    for both_ended in [false, true] {
        let connection = framed.initiate().await.expect("connected");
        let (mut peer, _) = listener.accept().expect("accepted");
        if both_ended {
            connection.finish().expect("open");
        }
        std::io::Write::write_all(&mut peer, b"\x00\x02ok\x00\x05cut").expect("written");
        drop(peer);
        if both_ended {
            tokio::time::timeout(LIMIT, connection.closed())
                .await
                .expect("soon")
                .expect("in order, as far as is known");
        }
        let got = tokio::time::timeout(LIMIT, connection.receive()).await.expect("soon").expect("whole");
        assert_eq!(got.as_deref(), Some(&b"ok"[..]));
        for n in 0..2 {
            let end = tokio::time::timeout(LIMIT, connection.receive()).await.expect("soon");
            assert!(end.is_err(), "receive number {n} after it: {end:?}");
        }
    }
}

#[tokio::test]
async fn who_waits_for_room_is_told_that_the_sending_direction_is_given_up() {
    for stack in [Stack::Quic, Stack::Tls, Stack::Sctp] {
        let (far, near) = (Neater::new().expect("engine"), Neater::new().expect("engine"));
        let (listener, pre) = if stack == Stack::Sctp {
            let of = |n: &Neater| n.preconnection().security(SecurityParameters::disabled()).stacks(&[stack]);
            let udp = LocalEndpoint::from(loopback(0)).with_udp_port(0);
            let listener = of(&far).local(udp).listen().expect("listening");
            let to = RemoteEndpoint::from(loopback(listener.port())).with_udp_port(listener.udp_ports()[0]);
            (listener, of(&near).remote(to))
        } else {
            over(stack, &far, &near)
        };
        let (client, server) = answered(&listener, &pre).await;
        let client = std::sync::Arc::new(client);
        let sender = client.clone();
        let sending = tokio::spawn(async move {
            loop {
                if let Err(e) = sender.send(vec![1; 50_000]).await {
                    return e;
                }
            }
        });
        // Nothing is read: until nothing more is taken.
        let mut sent = None;
        while client.stats().map(|s| s.bytes_sent) != sent || sent == Some(0) {
            sent = client.stats().map(|s| s.bytes_sent);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        client.reset_sending(3);
        let told = tokio::time::timeout(LIMIT, sending).await;
        told.unwrap_or_else(|_| panic!("{stack}: the sender waits for ever")).expect("no panic");
        drop(server);
    }
}

#[tokio::test]
async fn what_a_program_takes_back_by_ending_its_session_is_an_error() {
    let (driver, _client, server) = framer_ready().await;
    server.try_send(vec![1; 200_000], &MessageContext::new()).expect("taken");
    driver.turn();
    server.group().expect("open").close_session(0, b"");
    ends_in_an_error(&driver, &server).await;
}

#[tokio::test]
async fn what_has_never_left_is_an_error_also_where_the_peer_does_not_want_it() {
    let (driver, client, server) = framer_ready().await;
    server.try_send(vec![1; 200_000], &MessageContext::new()).expect("taken");
    server.finish().expect("open");
    // As much as the congestion window lets leave, leaves.
    driver.turn();
    client.stop_receiving(0);
    tokio::time::sleep(Duration::from_millis(20)).await;
    client.group().expect("open").close_session(0, b"");
    tokio::time::sleep(Duration::from_millis(20)).await;
    ends_in_an_error(&driver, &server).await;
}

#[tokio::test]
async fn a_batch_in_a_crowded_engine_goes_on() {
    // send_buffer is 256 kB, so that the connection's own bound is not reached before the engine's.
    let limits = Limits { engine_bytes: 100_000, ..Limits::default() };
    let near = Neater::builder().limits(limits).build().expect("engine");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listening");
    let pre = near.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]);
    let connection = pre.remote(listener.local_addr().expect("bound")).initiate().await.expect("connected");
    let (mut peer, _) = listener.accept().expect("accepted");
    std::thread::spawn(move || {
        let mut buf = [0; 1 << 16];
        while matches!(peer.read(&mut buf), Ok(1..)) {}
    });
    connection.start_batch();
    for i in 0..20 {
        let sent = tokio::time::timeout(Duration::from_secs(5), connection.send(vec![1; 10_000])).await;
        sent.unwrap_or_else(|_| panic!("message {i} waits for ever")).expect("sent");
    }
    connection.end_batch();
}
