//! Each property that claims an effect is observed on the socket or on the wire.
#![allow(unsafe_code, reason = "asking the kernel for socket options")]

use neater::{
    CapacityProfile, Connection, LocalEndpoint, MessageContext, Neater, Preconnection, SecurityParameters,
    SelectionProperty as P, Stack, TransportProperties, Value,
};
use std::net::SocketAddr;
use std::time::Duration;

/// The value of an integer option of the socket that has these two addresses.
fn option(connection: &Connection, level: i32, name: i32) -> i32 {
    let fd = descriptor(connection);
    let (mut value, mut len) = (0i32, size_of::<i32>() as libc::socklen_t);
    // SAFETY: `value` is an int of `len` bytes.
    let r = unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len) };
    assert_eq!(r, 0, "getsockopt({level}, {name}): {}", std::io::Error::last_os_error());
    value
}

fn descriptor(connection: &Connection) -> i32 {
    let local = connection.local_addr().expect("bound");
    let remote = connection.remote_addr().expect("connected");
    (3..1024)
        .find(|fd| name(*fd, libc::getsockname) == Some(local) && name(*fd, libc::getpeername) == Some(remote))
        .expect("the connection's socket")
}

type NameOf = unsafe extern "C" fn(i32, *mut libc::sockaddr, *mut libc::socklen_t) -> i32;

fn name(fd: i32, of: NameOf) -> Option<SocketAddr> {
    // SAFETY: an all-zero sockaddr_in is a valid value; the kernel fills at most `len` bytes.
    let (r, addr) = unsafe {
        let mut addr: libc::sockaddr_in = std::mem::zeroed();
        let mut len = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        (of(fd, (&raw mut addr).cast(), &raw mut len), addr)
    };
    (r == 0 && addr.sin_family == libc::AF_INET as u16)
        .then(|| SocketAddr::from((u32::from_be(addr.sin_addr.s_addr).to_be_bytes(), u16::from_be(addr.sin_port))))
}

fn clear(neater: &Neater) -> Preconnection {
    neater.preconnection().security(SecurityParameters::disabled())
}

fn loopback() -> LocalEndpoint {
    LocalEndpoint::from("127.0.0.1:0".parse::<SocketAddr>().expect("literal"))
}

/// A TCP connection with these properties, its other end, and its engine.
async fn tcp(set: impl FnOnce(&mut TransportProperties)) -> (Connection, Connection, Neater) {
    let neater = Neater::new().expect("engine");
    let listener = clear(&neater).local(loopback()).listen().expect("listening");
    let mut properties = TransportProperties::new();
    set(&mut properties);
    let pre = clear(&neater).remote(listener.local_addrs()[0].1).properties(properties);
    let (connection, peer) = tokio::join!(pre.initiate(), listener.accept());
    (connection.expect("connected"), peer.expect("accepted"), neater)
}

#[tokio::test]
async fn nothing_is_set_that_was_not_asked_for() {
    let (c, _peer, _n) = tcp(|_| {}).await;
    assert_eq!(option(&c, libc::SOL_SOCKET, libc::SO_KEEPALIVE), 0);
    assert_eq!(option(&c, libc::IPPROTO_TCP, libc::TCP_NODELAY), 0);
    assert_eq!(option(&c, libc::IPPROTO_IP, libc::IP_TOS), 0);
    assert_eq!(option(&c, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT), 0);
    assert_eq!(option(&c, libc::IPPROTO_IP, libc::IP_RECVERR), 0);
}

#[tokio::test]
async fn keep_alive_and_its_timeout_reach_the_socket() {
    let (c, _peer, _n) = tcp(|p| {
        p.require(P::KeepAlive);
    })
    .await;
    assert_eq!(option(&c, libc::SOL_SOCKET, libc::SO_KEEPALIVE), 1);
    assert_eq!(option(&c, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE), 30);
    let (c, _peer, _n) = tcp(|p| p.connection.keep_alive_timeout = Some(Duration::from_secs(77))).await;
    assert_eq!(option(&c, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE), 77);
    c.set("keepAliveTimeout", 55.0).expect("settable");
    assert_eq!(option(&c, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE), 55);
}

#[tokio::test]
async fn a_keep_alive_beyond_the_connection_timeout_switches_keep_alives_off() {
    let (c, _peer, _n) = tcp(|p| {
        p.connection.keep_alive_timeout = Some(Duration::from_secs(77));
        p.connection.timeout = Some(Duration::from_secs(20));
    })
    .await;
    assert_eq!(option(&c, libc::SOL_SOCKET, libc::SO_KEEPALIVE), 0);
    assert_eq!(option(&c, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT), 20_000);
    c.set("connTimeout", 30.0).expect("settable");
    assert_eq!(option(&c, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT), 30_000);
}

#[tokio::test]
async fn the_capacity_profile_sets_dscp_and_nagle() {
    for (profile, dscp, no_delay) in [
        (CapacityProfile::Scavenger, 1, 0),
        (CapacityProfile::LowLatencyInteractive, 34, 1),
        (CapacityProfile::LowLatencyNonInteractive, 18, 1),
        (CapacityProfile::ConstantRateStreaming, 26, 1),
        (CapacityProfile::CapacitySeeking, 10, 0),
    ] {
        let (c, _peer, _n) = tcp(|p| p.connection.capacity_profile = profile).await;
        assert_eq!(option(&c, libc::IPPROTO_IP, libc::IP_TOS) >> 2, dscp, "{profile:?}");
        assert_eq!(i32::from(option(&c, libc::IPPROTO_TCP, libc::TCP_NODELAY) != 0), no_delay, "{profile:?}");
    }
    let (c, _peer, _n) = tcp(|_| {}).await;
    c.set("connCapacityProfile", Value::from("lowLatencyInteractive")).expect("settable");
    assert_eq!(option(&c, libc::IPPROTO_IP, libc::IP_TOS) >> 2, 34);
    assert_ne!(option(&c, libc::IPPROTO_TCP, libc::TCP_NODELAY), 0);
}

#[tokio::test]
async fn soft_errors_are_asked_for_and_delivered() {
    // To TCP this option would make them fatal.
    let (c, _peer, _n) = tcp(|p| {
        p.prefer(P::SoftErrorNotify);
    })
    .await;
    assert_eq!(option(&c, libc::IPPROTO_IP, libc::IP_RECVERR), 0);

    // A datagram to a port that is closed comes back as an ICMP error, which ends no connection
    // whose peer has answered.
    let neater = Neater::new().expect("engine");
    let mut properties = neater_property::profile("unreliable-datagram").expect("known");
    properties.require(P::SoftErrorNotify);
    let peer = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("bound");
    let (tx, mut rx) = tokio::sync::mpsc::unbounded_channel();
    let c = clear(&neater)
        .remote(peer.local_addr().expect("addr"))
        .properties(properties)
        .on_event(move |e| {
            if let neater::Event::SoftError(icmp) = e {
                let _ = tx.send(*icmp);
            }
        })
        .initiate()
        .await
        .expect("a datagram connection needs no peer");
    c.send("who is there").await.expect("sent");
    let mut question = [0; 32];
    let (n, from) = peer.recv_from(&mut question).await.expect("asked");
    peer.send_to(b"the peer", from).await.expect("answered");
    assert_eq!(
        (&question[..n], &*c.receive().await.expect("received").expect("a message")),
        (&b"who is there"[..], &b"the peer"[..])
    );
    drop(peer);
    c.send_with("knock", &MessageContext::new().safely_replayable_as(true)).await.expect("sent");
    let receive = c.receive();
    tokio::select! {
        icmp = rx.recv() => {
            let icmp = icmp.expect("an error");
            assert_eq!((icmp.icmp_type, icmp.icmp_code), (3, 3), "port unreachable");
        }
        m = receive => panic!("the peer is gone: {m:?}"),
        () = tokio::time::sleep(Duration::from_secs(5)) => panic!("no soft error"),
    }
    assert_eq!(c.get("connState"), Some(Value::from("established")));
}

/// Linux reports an ICMP error before what has arrived.
#[tokio::test]
async fn an_answer_that_came_before_an_icmp_error_is_not_lost() {
    let neater = Neater::new().expect("engine");
    let needs = TransportProperties::parse("datagrams").expect("words").properties;
    let peer = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
    peer.set_read_timeout(Some(Duration::from_secs(5))).expect("settable");
    let pre = clear(&neater).properties(needs).stacks(&[Stack::Udp]);
    let c = pre.remote(peer.local_addr().expect("bound")).initiate().await.expect("UDP");
    c.send("question").await.expect("sent");
    let (_, from) = peer.recv_from(&mut [0; 32]).expect("asked");
    peer.send_to(b"answer", from).expect("answered");
    // What is sent to it now comes back as an error, before the answer is read.
    drop(peer);
    for _ in 0..2 {
        c.send("another question").await.expect("sent");
    }
    let answer = tokio::time::timeout(Duration::from_secs(5), c.receive()).await.expect("in time");
    assert_eq!(&*answer.expect("received").expect("a message"), &b"answer"[..]);
}

#[tokio::test]
async fn avoiding_full_checksums_switches_the_udp_checksum_off() {
    let neater = Neater::new().expect("engine");
    let peer = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
    for (avoid, expected) in [(false, 0), (true, 1)] {
        let mut properties = neater_property::profile("unreliable-datagram").expect("known");
        if avoid {
            properties.avoid(P::FullChecksumSend);
        }
        let c = clear(&neater)
            .remote(peer.local_addr().expect("addr"))
            .properties(properties)
            .initiate()
            .await
            .expect("opened");
        assert_eq!(option(&c, libc::SOL_SOCKET, libc::SO_NO_CHECK), expected);
    }
}

#[tokio::test]
async fn the_attempt_delay_staggers_attempts() {
    // Two remote endpoints: the first swallows every SYN, for its accept queue is full.
    let full = socket_with_full_queue();
    let neater = Neater::new().expect("engine");
    let listener = clear(&neater).local(loopback()).listen().expect("listening");
    let good = listener.local_addrs()[0].1;
    for ms in [20u64, 400] {
        let mut properties = TransportProperties::new();
        properties.set("_neater.attemptDelay", ms as f64).expect("in range");
        let started = std::time::Instant::now();
        let c = clear(&neater)
            .remote(full.0)
            .remote(good)
            .properties(properties)
            .initiate()
            .await
            .expect("the second endpoint works");
        let took = started.elapsed();
        assert_eq!(c.remote_addr(), Some(good), "{:?}", c.timeline());
        assert!(took >= Duration::from_millis(ms), "{took:?}");
        assert!(took < Duration::from_millis(ms + 300), "{took:?}");
    }
}

/// A listening address that accepts no more connections, and what keeps it so.
fn socket_with_full_queue() -> (SocketAddr, Vec<std::net::TcpStream>, i32) {
    // SAFETY: plain socket calls on a descriptor that is ours; the address structure is
    // initialised.
    let (fd, addr) = unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        let mut sin: libc::sockaddr_in = std::mem::zeroed();
        sin.sin_family = libc::AF_INET as u16;
        sin.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
        assert_eq!(libc::bind(fd, (&raw const sin).cast(), size_of_val(&sin) as u32), 0);
        assert_eq!(libc::listen(fd, 0), 0);
        (fd, name(fd, libc::getsockname).expect("bound"))
    };
    let mut held = Vec::new();
    for _ in 0..4 {
        match std::net::TcpStream::connect_timeout(&addr, Duration::from_millis(150)) {
            Ok(s) => held.push(s),
            Err(_) => break,
        }
    }
    (addr, held, fd)
}

#[tokio::test]
async fn selection_properties_read_as_what_the_stack_does() {
    let (c, _peer, _n) = tcp(|p| {
        p.prefer(P::PreserveMsgBoundaries);
    })
    .await;
    assert_eq!(c.stack(), Some(Stack::Tcp));
    assert_eq!(c.get("reliability"), Some(Value::from(true)));
    assert_eq!(c.get("preserveMsgBoundaries"), Some(Value::from(false)));
    assert_eq!(c.get("multistreaming"), Some(Value::from(false)));
    assert_eq!(c.get("keepAlive"), Some(Value::from(false)));
    assert_eq!(c.get("canSend"), Some(Value::from(true)));
    c.finish().expect("open");
    assert_eq!(c.get("canSend"), Some(Value::from(false)));
    assert!(c.set("reliability", true).is_err(), "selection properties are fixed");
    assert!(c.set("nonsense", true).is_err());
    assert_eq!(c.get("connState"), Some(Value::from("established")), "a failed set does not end the connection");
}

#[tokio::test]
async fn a_message_that_is_not_safely_replayable_is_refused_by_udp() {
    let neater = Neater::new().expect("engine");
    let peer = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
    let properties = neater_property::profile("unreliable-datagram").expect("known");
    let pre = clear(&neater).remote(peer.local_addr().expect("addr")).properties(properties);
    let c = pre.initiate().await.expect("opened");
    let e = c.send_with("x", &MessageContext::new().safely_replayable_as(false)).await.expect_err("may arrive twice");
    assert!(e.to_string().contains("safelyReplayable"), "{e}");
    c.send_with("x", &MessageContext::new()).await.expect("sent");
    let e = c.send(vec![0; 70_000]).await.expect_err("no datagram is that large");
    assert!(matches!(e, neater::SendError::MessageTooLarge { .. }), "{e}");
}

#[tokio::test]
async fn the_direction_restricts_what_the_program_may_do() {
    use neater_property::Direction;
    let (c, peer, _n) = tcp(|p| {
        p.set_direction(Direction::UnidirectionalReceive);
    })
    .await;
    assert_eq!((c.get("canSend"), c.get("canReceive")), (Some(Value::from(false)), Some(Value::from(true))));
    let e = c.send("x").await.expect_err("for receiving only");
    assert!(e.to_string().contains("receiving only"), "{e}");
    peer.send("x").await.expect("the peer may");
    assert_eq!(&c.receive().await.expect("alive").expect("data")[..], b"x");

    let (c, peer, _n) = tcp(|p| {
        p.set_direction(Direction::UnidirectionalSend);
    })
    .await;
    assert_eq!((c.get("canSend"), c.get("canReceive")), (Some(Value::from(true)), Some(Value::from(false))));
    let e = c.receive().await.expect_err("for sending only");
    assert!(e.to_string().contains("sending only"), "{e}");
    c.send("x").await.expect("may send");
    assert_eq!(&peer.receive().await.expect("alive").expect("data")[..], b"x");
}

#[tokio::test]
async fn a_final_message_ends_the_direction_and_nothing_follows_it() {
    let (c, peer, _n) = tcp(|_| {}).await;
    c.send_with("last", &MessageContext::new().final_as(true)).await.expect("sent");
    let e = c.send("more").await.expect_err("after the final message");
    assert_eq!(e, neater::SendError::AfterFinal);
    let mut got = Vec::new();
    while let Some(m) = peer.receive().await.expect("alive") {
        got.extend_from_slice(&m);
    }
    assert_eq!(got, b"last");
    peer.send("answer").await.expect("the other direction is open");
    assert_eq!(&c.receive().await.expect("alive").expect("answer")[..], b"answer");
}

#[tokio::test]
async fn a_message_whose_lifetime_ends_in_the_queue_is_reported_as_expired() {
    let (c, _peer, _n) = tcp(|_| {}).await;
    // Nothing is read: the kernel's buffers fill, then ours.
    let mut sent = 0;
    let block = vec![0u8; 64 << 10];
    while c.try_send(block.clone(), &MessageContext::new()).is_ok() {
        sent += 1;
        assert!(sent < 10_000, "the connection never fills");
    }
    // There is room for a small one still, and it will never be written in time.
    let short = MessageContext::new().lifetime(Duration::from_millis(30));
    let id = c.try_send("too late", &short).expect("a little room is left");
    loop {
        match tokio::time::timeout(Duration::from_secs(5), c.next_event()).await.expect("an event") {
            Some(neater::Event::Expired(e)) if e == id => break,
            Some(_) => {}
            None => panic!("the connection ended"),
        }
    }
}

/// Which test observes the effect of which property, by its file; where selection is all there is
/// to it, see below.
const OBSERVED: &[(&str, &[(&str, &str)])] = &[
    (
        "io/neater/tests/properties.rs",
        &[
            ("keepAlive", "keep_alive_and_its_timeout_reach_the_socket"),
            ("connCapacityProfile", "the_capacity_profile_marks_what_is_on_the_wire"),
            ("softErrorNotify", "soft_errors_are_asked_for_and_delivered"),
            ("fullChecksumSend", "avoiding_full_checksums_switches_the_udp_checksum_off"),
            ("_neater.attemptDelay", "the_attempt_delay_staggers_attempts"),
            ("safelyReplayable", "a_message_that_is_not_safely_replayable_is_refused_by_udp"),
            ("direction", "the_direction_restricts_what_the_program_may_do"),
            ("final", "a_final_message_ends_the_direction_and_nothing_follows_it"),
            ("msgLifetime", "a_message_whose_lifetime_ends_in_the_queue_is_reported_as_expired"),
        ],
    ),
    (
        "sim/testkit/tests/all/properties.rs",
        &[
            ("maxSendRate", "no_more_than_max_send_rate_is_sent_in_any_second_over_any_stream"),
            ("maxRecvRate", "no_more_than_max_recv_rate_is_delivered_in_any_second_over_any_stream"),
            ("groupConnLimit", "the_peer_may_have_as_many_connections_in_the_group_as_group_conn_limit_says"),
            ("isolateSession", "an_isolated_connection_uses_no_ticket_no_outcome_and_no_socket_of_another"),
            ("connPriority", "of_two_streams_the_one_with_the_lower_conn_priority_is_sent_first"),
            ("softErrorNotify", "icmp_errors_are_told_to_who_asks_for_them_and_end_nothing"),
            (
                "useTemporaryLocalAddress",
                "a_temporary_local_address_is_used_where_it_is_required_and_not_where_it_is_prohibited",
            ),
            ("multipath", "a_quic_listener_follows_its_peer_to_another_address_unless_multipath_is_disabled"),
        ],
    ),
    (
        "sim/testkit/tests/all/sctp_paths.rs",
        &[
            ("multipath", "an_active_client_has_a_path_by_each_network_and_any_other_has_one"),
            ("multipathPolicy", "two_networks_carry_what_one_cannot_where_the_policy_is_to_aggregate"),
        ],
    ),
    (
        "sim/testkit/tests/all/rates.rs",
        &[("_neater.measuredRates", "rates_do_not_outvote_the_program_nor_security_nor_other_networks")],
    ),
    (
        "sim/testkit/tests/all/silence.rs",
        &[
            ("keepAlive", "keep_alives_over_quic_come_as_often_as_they_were_asked_for"),
            ("keepAliveTimeout", "keep_alives_over_quic_come_as_often_as_they_were_asked_for"),
            ("connTimeout", "a_time_that_is_set_for_a_session_is_how_long_it_waits"),
        ],
    ),
    (
        "sim/testkit/tests/all/early.rs",
        &[(
            "zeroRttMsg",
            "the_first_message_of_a_second_connection_arrives_with_the_first_flight_and_is_answered_at_once",
        )],
    ),
    (
        "sim/testkit/tests/all/sctp.rs",
        &[
            ("connScheduler", "connections_that_always_have_something_to_send_share_as_the_scheduler_says"),
            ("msgOrdered", "messages_that_need_not_arrive_may_be_lost_and_are_told_apart"),
            ("msgReliable", "messages_that_need_not_arrive_may_be_lost_and_are_told_apart"),
            ("noSegmentation", "a_message_that_must_not_be_cut_is_refused_when_it_is_too_long"),
        ],
    ),
    (
        "sim/testkit/tests/all/sctp_properties.rs",
        &[
            // Of messages that may be given up, the less important ones make room.
            ("msgPriority", "less_important_messages_give_way_to_more_important_ones_when_the_buffers_are_full"),
            ("connTimeout", "the_program_says_for_how_long_an_acknowledgment_is_waited_for"),
            ("keepAliveTimeout", "keep_alives_that_nobody_answers_are_the_end"),
        ],
    ),
    (
        "sim/testkit/tests/all/messages.rs",
        &[("perMsgReliability", "a_message_says_whether_it_must_arrive_only_where_that_was_asked_for")],
    ),
    (
        "crates/policy/src/tests.rs",
        &[
            ("interface", "paths_are_ranked_by_name_and_by_type"),
            ("pvd", "a_path_that_cannot_be_had_is_an_error_that_names_the_property"),
        ],
    ),
];

/// Whether `source` has a test of this name.
fn has_test(source: &str, name: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let is_it = |line: &str| {
        let rest = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ").and_then(|l| l.strip_prefix(name));
        rest.is_some_and(|rest| rest.starts_with('('))
    };
    lines.windows(2).any(|w| matches!(w[0], "#[test]" | "#[tokio::test]") && is_it(w[1]))
}

#[tokio::test]
async fn every_effect_that_is_claimed_is_tested_somewhere() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut observed = std::collections::BTreeSet::new();
    for (file, tests) in OBSERVED {
        let source = std::fs::read_to_string(root.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        for (property, test) in *tests {
            assert!(
                neater_property::lookup(property).is_some_and(|p| p.name == *property),
                "{property} is no property"
            );
            assert!(has_test(&source, test), "{property} is said to be observed by {test}, which {file} has not");
            observed.insert(*property);
        }
    }
    // Where selection is all there is to it, it is observed here: some stacks have it, some have
    // not, and a program that requires it gets others than one that prohibits it.
    let neater = Neater::new().expect("engine");
    let stacks = |p: P, preference: &str| {
        let mut properties = TransportProperties::new();
        for other in [P::Reliability, P::PreserveOrder, P::CongestionControl, P::FullChecksumSend, P::FullChecksumRecv]
        {
            properties.set(other.name(), Value::from("No Preference")).expect("a property");
        }
        properties.set("safelyReplayable", true).expect("a property");
        properties.set(p.name(), Value::from(preference)).expect("a property");
        let pre = neater.preconnection().security(SecurityParameters::opportunistic());
        let request = pre.stacks(&Stack::ALL).properties(properties).compile(neater::Role::Initiate);
        request.map(|r| r.stacks().to_vec()).unwrap_or_default()
    };
    let decides = |p: P| {
        let (with, without) = (stacks(p, "Require"), stacks(p, "Prohibit"));
        !with.is_empty() && !without.is_empty() && with != without
    };
    for p in neater_property::PROPERTIES {
        use neater_property::{Class, Effect};
        if matches!(p.effect, Effect::Implemented | Effect::InPart(_)) && p.class != Class::ReadOnly {
            let of_stacks = P::from_name(p.name).filter(|p| !p.is_of_paths());
            assert!(of_stacks.is_none_or(decides), "{} is to decide between stacks, and does not", p.name);
            let seen = observed.contains(p.name) || of_stacks.is_some();
            assert!(seen, "{} claims an effect, and no test observes it", p.name);
        }
    }
}

#[test]
fn a_test_is_found_by_its_name() {
    let source = "#[test]\nfn a() {}\n\nfn b() {}\n#[tokio::test]\nasync fn c(x: u8) {}\n// fn d()\n";
    assert_eq!(["a", "b", "c", "d", ""].map(|name| has_test(source, name)), [true, false, true, false, false]);
}

#[tokio::test]
async fn conn_priority_ranks_the_packets_of_connections_with_sockets_of_their_own() {
    let priority = |c: &Connection| option(c, libc::SOL_SOCKET, libc::SO_PRIORITY);
    for (wanted, rank) in [(0u32, 6), (99, 6), (100, 0), (101, 2)] {
        let (c, _peer, _n) = tcp(|p| p.connection.priority = wanted).await;
        assert_eq!(priority(&c), rank, "{wanted}");
    }
    let (c, _peer, _n) = tcp(|p| p.connection.capacity_profile = CapacityProfile::CapacitySeeking).await;
    c.set("connPriority", 5u64).expect("settable");
    assert_eq!(priority(&c), 6);
    assert_eq!(c.get("connPriority"), Some(Value::from(5u64)));
    c.set("connCapacityProfile", Value::from("scavenger")).expect("settable");
    assert_eq!(priority(&c), 6, "the codepoint does not undo it");
    assert_eq!(option(&c, libc::IPPROTO_IP, libc::IP_TOS) >> 2, 1);
    assert_eq!(c.get("connCapacityProfile"), Some(Value::from("Scavenger")), "what was set is read");
}

#[tokio::test]
async fn the_capacity_profile_marks_what_is_on_the_wire() {
    use std::os::fd::AsRawFd;
    let peer = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
    peer.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
    let on = 1i32;
    // SAFETY: four readable bytes.
    let r =
        unsafe { libc::setsockopt(peer.as_raw_fd(), libc::IPPROTO_IP, libc::IP_RECVTOS, (&raw const on).cast(), 4) };
    assert_eq!(r, 0);
    for (profile, dscp) in [(CapacityProfile::Default, 0), (CapacityProfile::LowLatencyInteractive, 34)] {
        let neater = Neater::new().expect("engine");
        let mut properties = neater_property::profile("unreliable-datagram").expect("known");
        properties.connection.capacity_profile = profile;
        let pre = clear(&neater).remote(peer.local_addr().expect("addr")).properties(properties);
        let c = pre.initiate().await.expect("opened");
        c.send_with("x", &MessageContext::new().safely_replayable_as(true)).await.expect("sent");
        assert_eq!(traffic_class(&peer) >> 2, dscp, "{profile:?}");
        c.set("connCapacityProfile", Value::from("capacity-seeking")).expect("settable");
        c.send_with("y", &MessageContext::new().safely_replayable_as(true)).await.expect("sent");
        assert_eq!(traffic_class(&peer) >> 2, 10, "changed on the way");
    }
}

/// The traffic class of the next datagram.
fn traffic_class(socket: &std::net::UdpSocket) -> u8 {
    use std::os::fd::AsRawFd;
    let (mut data, mut control) = ([0u8; 16], [0u64; 8]);
    let mut iov = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: data.len() };
    // SAFETY: an all-zero msghdr is valid; its pointers are to buffers that outlive the call, with
    // their lengths. The control message that is read was written by the kernel into an aligned
    // buffer.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut iov;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        assert!(libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) > 0, "{}", std::io::Error::last_os_error());
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        assert!(!header.is_null(), "the kernel tells the traffic class");
        assert_eq!(((*header).cmsg_level, (*header).cmsg_type), (libc::IPPROTO_IP, libc::IP_TOS));
        *libc::CMSG_DATA(header)
    }
}

#[tokio::test]
async fn a_first_message_that_is_final_ends_the_direction() {
    let neater = Neater::new().expect("engine");
    let listener = clear(&neater).local(loopback()).listen().expect("listening");
    let pre = clear(&neater).remote(listener.local_addrs()[0].1);
    for replayable in [true, false] {
        let context = MessageContext::new().safely_replayable_as(replayable).final_as(true);
        let (c, peer) = tokio::join!(pre.initiate_with_send("all", &context), listener.accept());
        let (c, peer) = (c.expect("connected"), peer.expect("accepted"));
        let mut got = Vec::new();
        while let Some(part) = peer.receive().await.expect("alive") {
            got.extend_from_slice(&part);
        }
        assert_eq!(got, b"all");
        assert_eq!(c.send("more").await, Err(neater::SendError::AfterFinal));
    }
}

#[tokio::test]
async fn what_is_set_before_the_stack_is_known_takes_effect_when_it_is_or_is_taken_back() {
    // TCP: the profile changes an option of the socket.
    let neater = Neater::new().expect("engine");
    let listener = clear(&neater).local(loopback()).listen().expect("listening");
    let pre = clear(&neater).remote(listener.local_addrs()[0].1);
    let c = pre.initiate().connection().expect("begun");
    c.set("connCapacityProfile", "Low Latency/Interactive").expect("a property");
    c.set("keepAliveTimeout", 7u64).expect("a property");
    c.ready().await.expect("connected");
    assert_eq!(option(&c, libc::IPPROTO_TCP, libc::TCP_NODELAY), 1);
    assert_eq!(option(&c, libc::SOL_SOCKET, libc::SO_KEEPALIVE), 1);
    assert_eq!(c.get("keepAliveTimeout"), Some(Value::from(7.0)));
    // QUIC has no such options, but does the same by itself; and how many the peer may open, it can
    // bound.
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let identity = neater::tls::self_signed(&["127.0.0.1"], neater::WallTime(wall), [7; 32]);
    let mut ours = SecurityParameters::new();
    ours.trust = neater::Trust::Only(vec![identity.chain[0].clone()]);
    let mut theirs = SecurityParameters::new();
    theirs.server_certificates = vec![identity];
    let pre = neater.preconnection().stacks(&[Stack::Quic]);
    let listener = pre.clone().security(theirs).local(loopback()).listen().expect("listening");
    let c = pre.security(ours).remote(listener.local_addrs()[0].1).initiate().connection().expect("begun");
    for (name, value) in [("groupConnLimit", 1u64), ("keepAliveTimeout", 5), ("connTimeout", 7)] {
        c.set(name, value).expect("a property");
    }
    c.ready().await.expect("connected");
    c.send("hello").await.expect("sent");
    let kept: Vec<_> = ["groupConnLimit", "keepAliveTimeout", "connTimeout"].map(|name| c.get(name)).into();
    assert_eq!(kept, [Some(Value::from(1u64)), Some(Value::from(5.0)), Some(Value::from(7.0))]);
    // It waits half a minute for its peer, whatever is asked of it.
    c.set("connTimeout", "Disabled").expect("a property");
    assert_eq!(c.get("connTimeout"), Some(Value::from(30.0)));
    let peer = listener.accept().await.expect("accepted");
    peer.receive().await.expect("open");
    let group = c.group().expect("open");
    let streams: Vec<_> = (0..3).map(|_| peer.clone_connection().expect("open")).collect();
    for s in &streams {
        let _ = s.try_send("from the peer", &MessageContext::new());
    }
    let first = group.accept().await.expect("one is allowed");
    let second = tokio::time::timeout(Duration::from_millis(300), group.accept()).await;
    assert!(second.is_err(), "one at a time");
    drop(first);
}

#[tokio::test]
async fn message_properties_of_the_preconnection_are_those_of_its_messages() {
    let far = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let neater = Neater::new().expect("engine");
    let with = |name: &str, value: Value| {
        let mut properties = TransportProperties::new();
        properties.set(name, value).expect("a property");
        clear(&neater).remote(far.local_addr().expect("bound")).properties(properties)
    };
    // Nothing is read: what is sent behind 8 MB waits, and expires.
    let c = with("msgLifetime", Value::from(0.1)).initiate().await.expect("connected");
    let for_ever = || {
        let mut context = MessageContext::new();
        context.add("msgLifetime", "Infinite").expect("a property");
        context
    };
    c.send_with(vec![0; 8 << 20], &for_ever()).await.expect("taken");
    let late = tokio::time::timeout(Duration::from_secs(5), c.send("late")).await.expect("it expires");
    assert_eq!(late, Err(neater::SendError::Expired));
    let late = c.send_with("late", &MessageContext::new());
    let late = tokio::time::timeout(Duration::from_secs(5), late).await.expect("a context that says nothing");
    assert_eq!(late, Err(neater::SendError::Expired));
    // A context's own word counts, and so does what is set on the connection afterwards.
    let patient = tokio::time::timeout(Duration::from_millis(400), c.send_with("x", &for_ever())).await;
    assert!(patient.is_err(), "{patient:?}");
    c.set("msgLifetime", "Infinite").expect("a property");
    assert_eq!(c.get("msgLifetime"), Some(Value::from("Infinite")));
    let patient = tokio::time::timeout(Duration::from_millis(400), c.send("x")).await;
    assert!(patient.is_err(), "{patient:?}");
    // The last message of a connection.
    let c = with("final", Value::from(true)).initiate().await.expect("connected");
    c.send("one").await.expect("sent");
    assert_eq!(c.send("two").await, Err(neater::SendError::AfterFinal));
    // And what may be delivered twice.
    let needs = TransportProperties::parse("datagrams").expect("words").properties;
    let pre = clear(&neater).properties(needs).stacks(&[Stack::Udp]);
    // A port without a socket would end the connection, by ICMP.
    let peer = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
    let c = pre.remote(peer.local_addr().expect("bound")).initiate().await.expect("UDP");
    c.send_with("x", &MessageContext::new()).await.expect("it may by default");
    let once = c.send_with("x", &MessageContext::new().safely_replayable_as(false)).await;
    assert!(matches!(once, Err(neater::SendError::InvalidMessageProperties(_))), "{once:?}");
}
