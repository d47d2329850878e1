//! Connection Properties whose effect is seen on the network: rates, isolation, priorities, limits, source addresses.

use neater_base::net::InterfaceAddr;
use neater_engine::{SendOptions, Stack, StreamDirection};
use neater_property::{SelectionProperty as P, TransportProperties, Value};
use neater_testkit::town::{CLIENT_V6, SERVER_NAME, SERVER_V4, SERVER_V6, default_zone, server_v4, server_v6};
use neater_testkit::{Ask, Fault, FlowId, Manner, Plan, Town};
use std::net::IpAddr;
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
const STREAMS: [Stack; 3] = [Stack::Tcp, Stack::Tls, Stack::Quic];

fn message() -> SendOptions {
    SendOptions::default()
}

fn last() -> SendOptions {
    SendOptions { is_final: true, ..message() }
}

fn with(stack: Stack, properties: &[(&str, &str)]) -> Ask {
    let mut all = if stack.is_stream() {
        TransportProperties::new()
    } else {
        neater_property::profile("unreliable-datagram").unwrap()
    };
    all.message.safely_replayable = !stack.is_stream();
    for (name, value) in properties {
        all.set_text(name, value).unwrap_or_else(|e| panic!("{e}"));
    }
    Ask::over(&[stack]).properties(all)
}

/// The most that arrives in any second, by samples of what had arrived when: times in ms, bytes.
fn busiest_second(samples: &[(u64, usize)]) -> usize {
    let in_second = |(at, before): &(u64, usize)| {
        let until = samples.iter().take_while(|(t, _)| *t <= at + 1000).last().map_or(0, |(_, n)| *n);
        until - before
    };
    samples.iter().map(in_second).max().unwrap_or(0)
}

/// Sends 500 kB and samples how much has arrived.
fn arrivals(mut town: Town, client: &Ask, server: &Ask) -> Vec<(u64, usize)> {
    town.listen(server, 443, Manner::patient());
    let c = town.open(client, Manner::patient());
    town.play.say_bytes(c, &vec![7; 500_000], 20_000, true);
    let node = town.server;
    let mut samples = vec![(0, 0)];
    for at in 1..=30_000 {
        town.play.run_for(MS);
        let n = town.play.accepted(node).first().map_or(0, |s| town.play.flow(*s).count);
        samples.push((at, n));
        if n == 500_000 {
            break;
        }
    }
    assert_eq!(samples.last().unwrap().1, 500_000, "all of it arrives");
    assert!(town.play.run_until(5 * S, |p| p.flow(p.accepted(node)[0]).ended_at.is_some()));
    town.play.end();
    samples
}

#[test]
fn no_more_than_max_send_rate_is_sent_in_any_second_over_any_stream() {
    for stack in STREAMS {
        let free = with(stack, &[]);
        let samples = arrivals(Plan::new(1).build(), &free, &free);
        assert!(samples.last().unwrap().0 < 500, "{stack}: nothing else is slow here");
        let samples = arrivals(Plan::new(1).build(), &with(stack, &[("maxSendRate", "800000")]), &free);
        assert!(busiest_second(&samples) <= 100_000, "{stack}: {} bytes in a second", busiest_second(&samples));
        let took = samples.last().unwrap().0;
        assert!((4_900..6_000).contains(&took), "{stack}: 500 kB at 100 kB/s took {took} ms");
    }
}

#[test]
fn no_more_than_max_recv_rate_is_delivered_in_any_second_over_any_stream() {
    for stack in STREAMS {
        let slow = with(stack, &[("maxRecvRate", "1600000")]);
        let samples = arrivals(Plan::new(2).build(), &with(stack, &[]), &slow);
        assert!(busiest_second(&samples) <= 200_000, "{stack}: {} bytes in a second", busiest_second(&samples));
        let took = samples.last().unwrap().0;
        assert!((2_400..3_000).contains(&took), "{stack}: 500 kB at 200 kB/s took {took} ms");
    }
}

#[test]
fn datagrams_wait_for_max_send_rate_and_expire_there() {
    for stack in [Stack::Udp, Stack::QuicDatagram, Stack::Dtls] {
        let mut town = Plan::new(3).build();
        town.listen(&with(stack, &[]), 443, Manner::patient());
        let c = town.open(&with(stack, &[("maxSendRate", "80000")]), Manner::patient());
        for _ in 0..20 {
            town.play.say(c, vec![1; 1000], message());
        }
        let hurried = SendOptions { lifetime: Some(300 * MS), ..message() };
        town.play.say(c, vec![2; 1000], hurried);
        let node = town.server;
        town.play.run_for(S);
        let s = town.play.accepted(node)[0];
        let first = town.play.flow(s).count;
        assert!((8_000..=10_000).contains(&first), "{stack}: {first} bytes in the first second");
        town.play.run_for(2 * S);
        assert_eq!(town.play.flow(s).count, 20_000, "{stack}");
        assert_eq!(town.play.flow(c).expired.len(), 1, "{stack}: waiting for the rate counts");
        town.play.end();
    }
}

/// SCTP takes its messages from the rate as a whole, and what waits for its next one need not wait for anything else.
#[test]
fn messages_over_sctp_wait_for_max_send_rate_and_for_nothing_else() {
    for (count, length) in [(3, 700), (4, 1700), (2, 9000)] {
        let mut town = Plan::new(8).build();
        town.listen(&with(Stack::Sctp, &[]), 443, Manner::patient());
        let c = town.open(&with(Stack::Sctp, &[("maxSendRate", "800000")]), Manner::patient());
        for _ in 0..count {
            town.play.say(c, vec![1; length], message());
        }
        assert!(
            town.play.run_until(2 * S, |p| p.flow(c).sent.len() == count),
            "{} of {count} messages of {length} bytes have left",
            town.play.flow(c).sent.len()
        );
        town.play.end();
    }
    // One that the association cannot carry as it is to be carried has used up nothing.
    let mut town = Plan::new(8).build();
    town.listen(&with(Stack::Sctp, &[]), 443, Manner::patient());
    let c = town.open(&with(Stack::Sctp, &[("maxSendRate", "800000")]), Manner::patient());
    town.play.say(c, vec![1; 1900], message());
    town.play.say(c, vec![1; 30_000], SendOptions { whole: true, ..message() });
    town.play.say(c, vec![1; 100], message());
    assert!(town.play.run_until(2 * S, |p| p.flow(c).sent.len() == 2), "{} have left", town.play.flow(c).sent.len());
    town.play.end();
}

#[test]
fn a_close_waits_until_the_rate_has_let_everything_out() {
    for stack in STREAMS {
        let mut town = Plan::new(4).build();
        town.listen(&with(stack, &[]), 443, Manner::default());
        let c = town.open(&with(stack, &[("maxSendRate", "80000")]), Manner::patient());
        town.play.say(c, vec![1; 30_000], last());
        town.play.close(c);
        assert!(town.play.run_until(20 * S, |p| p.flow(c).is_over()), "{stack}");
        let s = town.play.accepted(town.server)[0];
        assert_eq!(town.play.flow(s).count, 30_000, "{stack}");
        assert_eq!(town.play.flow(c).sent.len(), 1, "{stack}");
        town.play.end();
    }
}

/// A client that has been connected before with this request, which was compiled once, and what a first message comes to on
/// the next connection: whether it was early, and the client's ports of both connections.
fn visit_twice(stack: Stack, isolated: bool) -> (bool, u16, u16, u64) {
    let mut listening = TransportProperties::new();
    listening.prefer(P::ZeroRttMsg);
    let mut town = Plan::new(5).build();
    town.listen(&Ask::over(&[stack]).properties(listening), 443, Manner::echo());
    let request = town.request(&with(stack, &[("isolateSession", if isolated { "true" } else { "false" })]));
    let node = town.server;
    let mut ports = Vec::new();
    let mut held = Vec::new();
    for round in 0..2 {
        let first = Some(bytes::Bytes::from_static(b"hello"));
        let c = town.play.initiate_with(town.client, &request, &[server_v4()], None, first, Manner::patient()).unwrap();
        assert!(town.play.run_until(5 * S, |p| p.flow(c).count == 5), "{stack}, round {round}");
        ports.push(town.play.engine(c.node).local_addr(c.conn).unwrap().port());
        // The first stays open, so that QUIC's socket is there to be shared.
        held.push(c);
        town.play.run_for(S);
    }
    let s = town.play.accepted(node)[1];
    let early = town.play.flow(s).early > 0;
    let hits = town.play.engine(town.client).stats().cache_hits;
    town.play.end();
    (early, ports[0], ports[1], hits)
}

#[test]
fn an_isolated_connection_uses_no_ticket_no_outcome_and_no_socket_of_another() {
    for stack in [Stack::Tls, Stack::Quic] {
        let (early, a, b, hits) = visit_twice(stack, false);
        assert!(early && hits == 1, "{stack}: others resume and remember");
        assert_eq!(a == b, stack == Stack::Quic, "{stack}: others share a socket where they can");
        let (early, a, b, hits) = visit_twice(stack, true);
        assert!(!early, "{stack}: a ticket of another connection was used");
        assert_eq!(hits, 0, "{stack}: the outcome of another connection's race was used");
        assert_ne!(a, b, "{stack}: the same port tells that it is the same client");
    }
}

#[test]
fn clones_of_an_isolated_connection_share_its_state_and_it_ends_with_them() {
    let ask = with(Stack::Tls, &[("isolateSession", "true")]);
    let mut town = Plan::new(6).build();
    town.listen(&ask, 443, Manner::echo());
    let c = town.open(&ask, Manner::patient());
    town.play.say(c, "x", message());
    assert!(town.play.run_until(5 * S, |p| p.flow(c).count == 1));
    let (client, sessions) = (town.client, town.play.engine(town.client).crypto().sessions);
    assert!(!sessions.is_empty(), "the ticket is kept for the group");
    let clone = town.play.engine(client).clone_connection(c.conn, StreamDirection::Both).unwrap();
    let clone = town.play.adopt(client, clone, Manner::patient());
    assert!(town.play.run_until(5 * S, |p| p.flow(clone).is_ready()));
    assert_eq!(town.play.engine(client).stats().cache_hits, 1, "the clone knows what worked for its group");
    for flow in [c, clone] {
        town.play.close(flow);
        assert!(town.play.run_until(20 * S, |p| p.flow(flow).is_over()));
        town.play.release(flow);
    }
    assert!(sessions.is_empty(), "nobody can resume them any more");
    town.play.end();
}

/// Two of these fit into the send window that a QUIC connection begins with.
const STREAM: usize = 100_000;

/// How much of each of two streams has arrived when one of them is complete.
fn two_streams(town: &mut Town, first: FlowId, priorities: [&str; 2]) -> [usize; 2] {
    let client = town.client;
    let flows = priorities.map(|priority| {
        let conn = town.play.engine(client).clone_connection(first.conn, StreamDirection::Both).unwrap();
        let flow = town.play.adopt(client, conn, Manner::patient());
        town.play.engine(client).set_property(conn, "connPriority", &Value::from(priority)).unwrap();
        flow
    });
    for (i, flow) in flows.iter().enumerate() {
        town.play.say_bytes(*flow, &vec![i as u8; STREAM], 20_000, true);
    }
    let server = town.server;
    let arrived = |p: &neater_testkit::Playground| {
        [0u8, 1].map(|i| {
            let of = |s: &&FlowId| p.flow(**s).received.first() == Some(&i) && p.flow(**s).received.len() > 1;
            p.accepted(server).iter().find(of).map_or(0, |s| p.flow(*s).count)
        })
    };
    assert!(town.play.run_until(60 * S, |p| arrived(p).contains(&STREAM)));
    arrived(&town.play)
}

#[test]
fn of_two_streams_the_one_with_the_lower_conn_priority_is_sent_first() {
    let ask = with(Stack::Quic, &[]);
    for (priorities, expected) in [(["10", "200"], Some(0)), (["200", "10"], Some(1)), (["100", "100"], None)] {
        let mut town = Plan::new(7).rate(2_000_000).build();
        town.listen(&ask, 443, Manner::patient());
        let c = town.open(&ask, Manner::patient());
        town.play.say(c, "!", message());
        assert!(town.play.run_until(5 * S, |p| p.flow(c).is_ready()));
        let arrived = two_streams(&mut town, c, priorities);
        match expected {
            Some(first) => assert!(arrived[first] == STREAM && arrived[1 - first] < STREAM / 4, "{arrived:?}"),
            None => assert!(arrived.iter().all(|n| *n > STREAM * 3 / 4), "equals share: {arrived:?}"),
        }
        town.play.end();
    }
}

#[test]
fn the_peer_may_have_as_many_connections_in_the_group_as_group_conn_limit_says() {
    let limited = with(Stack::Quic, &[("groupConnLimit", "2")]);
    let mut town = Plan::new(8).build();
    town.listen(&limited, 443, Manner::default());
    let c = town.open(&with(Stack::Quic, &[]), Manner::patient());
    town.play.say(c, "0", message());
    assert!(town.play.run_until(5 * S, |p| p.flow(c).is_ready()));
    let (client, server) = (town.client, town.server);
    let mut flows = vec![c];
    for direction in [StreamDirection::Both, StreamDirection::Both, StreamDirection::One, StreamDirection::One] {
        let conn = town.play.engine(client).clone_connection(c.conn, direction).unwrap();
        let flow = town.play.adopt(client, conn, Manner::patient());
        town.play.say(flow, "x", message());
        flows.push(flow);
    }
    town.play.run_for(S);
    assert_eq!(town.play.accepted(server).len(), 2, "two at a time, whatever their direction");
    for flow in &flows {
        town.play.finish(*flow);
    }
    assert!(town.play.run_until(20 * S, |p| p.accepted(server).len() == 5), "each makes room for another");
    town.play.end();
}

#[test]
fn a_temporary_local_address_is_used_where_it_is_required_and_not_where_it_is_prohibited() {
    let temporary: IpAddr = "2001:db8::7e3a".parse().unwrap();
    for stack in [Stack::Tcp, Stack::Tls, Stack::Quic, Stack::Udp] {
        for (wanted, expected) in [("require", temporary), ("prohibit", CLIENT_V6.parse().unwrap())] {
            let mut town = Plan::new(9).build();
            let addr = InterfaceAddr { addr: temporary, prefix: 64, temporary: true, deprecated: false };
            town.play.world().add_address(town.client_iface, addr);
            // The engine hears of it in its next turn.
            town.play.run_for(MS);
            town.listen(&with(stack, &[]), 443, Manner::patient());
            let ask = with(stack, &[("useTemporaryLocalAddress", wanted)]);
            let c = town.open_to(&ask, &[server_v6()], Manner::patient());
            town.play.say(c, "x", message());
            let server = town.server;
            assert!(town.play.run_until(5 * S, |p| !p.accepted(server).is_empty()), "{stack} {wanted}");
            let s = town.play.accepted(server)[0];
            let seen = town.play.engine(server).remote_addr(s.conn).unwrap().ip();
            assert_eq!(seen, expected, "{stack}: {wanted}");
            if stack != Stack::Quic {
                let read = town.play.engine(c.node).get_property(c.conn, "useTemporaryLocalAddress");
                assert_eq!(read, Some(Value::from(wanted == "require")), "{stack}");
            }
            town.play.end();
        }
    }
}

#[test]
fn what_is_set_on_one_connection_holds_for_its_group_except_the_priority() {
    for stack in STREAMS {
        let ask = with(stack, &[]);
        let mut town = Plan::new(10).build();
        town.listen(&ask, 443, Manner::patient());
        let c = town.open(&ask, Manner::patient());
        town.play.say(c, "x", message());
        assert!(town.play.run_until(5 * S, |p| p.flow(c).is_ready()));
        let client = town.client;
        let engine = town.play.engine(client);
        let clone = |engine: &mut neater_engine::Engine<_>| engine.clone_connection(c.conn, StreamDirection::Both);
        let before = clone(engine).unwrap();
        engine.set_property(c.conn, "maxSendRate", &Value::from(5_000_000u64)).unwrap();
        engine.set_property(c.conn, "connPriority", &Value::from(7u64)).unwrap();
        let after = clone(engine).unwrap();
        for (conn, rate, priority) in [(c.conn, 5_000_000u64, 7u64), (before, 5_000_000, 100), (after, 5_000_000, 7)] {
            assert_eq!(engine.get_property(conn, "maxSendRate"), Some(Value::from(rate)), "{stack}");
            assert_eq!(engine.get_property(conn, "connPriority"), Some(Value::from(priority)), "{stack}");
        }
        for (name, value, words) in [
            ("connstate", "closed", "can be read but not set"),
            ("reliability", "false", "reliability"),
            ("maxSendRate", "0", "maxSendRate"),
            ("isolateSession", "true", "cannot be changed on a connection"),
            ("nonsense", "1", "there is no property"),
        ] {
            let error = engine.set_property(c.conn, name, &Value::from(value)).unwrap_err().to_string();
            assert!(error.contains(words), "{name}: {error}");
        }
        assert_eq!(engine.get_property(c.conn, "connState"), Some(Value::from("established")));
        for conn in [before, after] {
            town.play.adopt(client, conn, Manner::patient());
        }
        town.play.run_for(S);
        town.play.end();
    }
}

#[test]
fn the_largest_messages_are_told() {
    let get = |town: &mut Town, c: FlowId, name: &str| town.play.engine(c.node).get_property(c.conn, name).unwrap();
    for stack in [Stack::Tcp, Stack::Tls, Stack::Quic, Stack::Udp, Stack::QuicDatagram, Stack::Dtls] {
        let ask = with(stack, &[]);
        let mut town = Plan::new(11).build();
        town.listen(&ask, 443, Manner::patient());
        let c = town.open(&ask, Manner::patient());
        assert!(town.play.run_until(5 * S, |p| p.flow(c).is_ready()));
        let number = |v: Value| v.as_integer();
        let single = get(&mut town, c, "singularTransmissionMsgMaxLen");
        let (send, recv) = (get(&mut town, c, "sendMsgMaxLen"), get(&mut town, c, "recvMsgMaxLen"));
        match stack {
            Stack::Udp => {
                assert_eq!(number(single), Some(1500 - 28), "an Ethernet frame over IPv4");
                assert_eq!((number(send), number(recv)), (Some(65_507), Some(65_507)));
            }
            Stack::Dtls => {
                assert_eq!(number(single), Some(1500 - 28 - 22), "and the record of DTLS 1.3");
                assert_eq!((number(send), number(recv)), (Some(16_384), Some(16_384)));
            }
            Stack::QuicDatagram => {
                assert_eq!(number(single.clone()), number(send), "one packet each");
                assert!((1100..1473).contains(&number(single).unwrap()));
                assert_eq!(number(recv), Some(65_507));
            }
            _ => {
                assert_eq!(single, Value::from("Not applicable"), "{stack}");
                assert_eq!((number(send), number(recv)), (Some(64 << 20), Some(64 << 20)), "{stack}");
            }
        }
        town.play.engine(c.node).finish(c.conn).unwrap();
        assert_eq!(get(&mut town, c, "sendMsgMaxLen"), Value::from(0u64), "{stack}: nothing can be sent any more");
        town.play.end();
    }
    let framed = with(Stack::Tcp, &[]).framed();
    let mut town = Plan::new(12).build();
    town.listen(&framed, 443, Manner::patient());
    let c = town.open(&framed, Manner::patient());
    town.play.run_for(S);
    assert_eq!(get(&mut town, c, "recvMsgMaxLen"), Value::from(1u64 << 20), "what the framer takes");
    let receiving = with(Stack::Tcp, &[("direction", "Unidirectional send")]);
    let c = town.open(&receiving, Manner::patient());
    assert_eq!(get(&mut town, c, "recvMsgMaxLen"), Value::from(0u64));
    town.play.end();
}

#[test]
fn what_no_path_can_do_fails_before_anything_is_sent_and_names_the_property() {
    let cases = [
        ("pvd", "require:example.com", server_v6(), "pvd"),
        ("useTemporaryLocalAddress", "require", server_v6(), "useTemporaryLocalAddress"),
        ("useTemporaryLocalAddress", "require", server_v4(), "only IPv6"),
        ("interface", "require:nosuch0", server_v6(), "nosuch0"),
    ];
    for (property, value, remote, words) in cases {
        let mut town = Plan::new(13).build();
        let request = town.request(&with(Stack::Tcp, &[(property, value)]));
        let error = match town.play.initiate(town.client, &request, &[remote], Manner::patient()) {
            Err(e) => e,
            Ok(c) => {
                town.play.run_for(S);
                town.play.flow(c).establishment_error().unwrap_or_else(|| panic!("{property}: no error")).clone()
            }
        };
        assert!(error.to_string().contains(words), "{property}: {error}");
        assert_eq!(town.play.engine(town.client).stats().attempts, 0, "{property}");
        town.play.end();
    }
}

/// Also that of hints and of another host's addresses (RFC 9460).
#[test]
fn a_required_temporary_address_leaves_ipv4_out_of_the_race() {
    let hints = format!("server.test HTTPS 1 . alpn=h3,h2 ipv4hint={SERVER_V4} ipv6hint={SERVER_V6}\n");
    let service = format!("server.test HTTPS 1 cdn.test alpn=h3,h2 ipv4hint={SERVER_V4}\n");
    let elsewhere = format!("{service}cdn.test A {SERVER_V4}\ncdn.test AAAA {SERVER_V6}\n");
    for records in [String::new(), hints, elsewhere] {
        let plan = Plan::new(14).fault_v6(Fault::BlackHole).zone(format!("{}{records}", default_zone()));
        let mut town = plan.build();
        let addr =
            InterfaceAddr { addr: "2001:db8::7e3a".parse().unwrap(), prefix: 64, temporary: true, deprecated: false };
        town.play.world().add_address(town.client_iface, addr);
        // The engine hears of it in its next turn.
        town.play.run_for(MS);
        let all = || Ask::over(&[Stack::Quic, Stack::Tls]).alpn(&["h3", "h2"]);
        town.listen(&all(), 443, Manner::patient());
        let mut properties = TransportProperties::new();
        properties.set_text("useTemporaryLocalAddress", "require").unwrap();
        let c = town.open_by_name(&all().properties(properties).within(5 * S), Manner::patient());
        assert!(
            town.play.run_until(10 * S, |p| p.flow(c).is_over()),
            "{records}: IPv4 would work, and is not what was asked for"
        );
        let error = town.play.flow(c).establishment_error().unwrap();
        assert!(
            !error.candidates.is_empty() && error.candidates.iter().all(|c| c.addr.is_ipv6()),
            "{records}: {error}"
        );
        town.play.end();
    }
}

#[test]
fn setting_a_selection_property_says_that_it_is_one() {
    let mut town = Plan::new(15).build();
    let (c, _) = town.pair(&with(Stack::Tcp, &[]), Manner::patient(), Manner::patient());
    let engine = town.play.engine(c.node);
    let error = engine.set_property(c.conn, "reliability", &Value::Integer(1)).unwrap_err().to_string();
    assert!(error.contains("reliability is a Selection Property"), "{error}");
    let error = engine.set_property(c.conn, "reliabilty", &Value::Integer(1)).unwrap_err().to_string();
    assert!(error.contains("did you mean reliability?"), "{error}");
    town.play.end();
}

#[test]
fn datagrams_without_a_checksum_go_where_they_can_and_with_one_where_they_must() {
    let (v4, v6) = (server_v4(), server_v6());
    for (stack, wanted) in
        [(Stack::Udp, "avoid"), (Stack::QuicDatagram, "avoid"), (Stack::Dtls, "avoid"), (Stack::Udp, "prohibit")]
    {
        let ask = with(stack, &[("fullChecksumSend", wanted)]);
        let mut town = Plan::new(30).build();
        town.listen(&ask, 443, Manner::echo());
        let only_v4 = wanted == "prohibit";
        for (remote, works) in [(&v4, true), (&v6, !only_v4)] {
            let c = town.open_to(&ask.clone().within(2 * S), core::slice::from_ref(remote), Manner::patient());
            town.play.say(c, "x", message());
            assert_eq!(town.play.run_until(5 * S, |p| p.flow(c).count == 1), works, "{stack} {wanted} {remote}");
        }
        town.play.end();
    }
}

#[test]
fn what_cannot_be_set_on_a_transport_is_not_said_to_be_set() {
    for (stack, name, value) in [
        (Stack::Tcp, "groupConnLimit", 2u64),
        (Stack::Tls, "groupConnLimit", 2),
        (Stack::Udp, "groupConnLimit", 2),
        (Stack::Dtls, "groupConnLimit", 2),
        (Stack::Udp, "maxRecvRate", 80_000),
        (Stack::QuicDatagram, "maxRecvRate", 80_000),
        (Stack::Dtls, "maxRecvRate", 80_000),
    ] {
        let mut town = Plan::new(31).build();
        town.listen(&with(stack, &[]), 443, Manner::patient());
        let c = town.open(&with(stack, &[]), Manner::patient());
        assert!(town.play.run_until(S, |p| p.flow(c).is_ready()), "{stack}");
        let engine = town.play.engine(c.node);
        let before = engine.get_property(c.conn, name);
        let error = engine.set_property(c.conn, name, &Value::from(value)).expect_err("no effect").to_string();
        assert!(error.contains("no effect on this transport"), "{stack}: {error}");
        assert_eq!(engine.get_property(c.conn, name), before, "{stack}: {name}");
        engine.set_property(c.conn, name, &Value::from("Unlimited")).expect("as it is");
        town.play.end();
    }
}

#[test]
fn a_group_conn_limit_that_is_set_later_holds_over_sctp_too() {
    let mut properties = TransportProperties::new();
    properties.require(P::PreserveMsgBoundaries).require(P::Multistreaming);
    let ask = Ask::over(&[Stack::Sctp]).properties(properties);
    let mut town = Plan::new(32).build();
    let (c, s) = town.pair(&ask, Manner::patient(), Manner::patient());
    let server = town.server;
    town.play.engine(server).set_property(s.conn, "groupConnLimit", &Value::from(2u64)).unwrap();
    let mut flows = vec![c];
    for _ in 0..3 {
        let conn = town.play.engine(c.node).clone_connection(c.conn, StreamDirection::Both).unwrap();
        let flow = town.play.adopt(c.node, conn, Manner::patient());
        town.play.say(flow, "x", message());
        flows.push(flow);
    }
    town.play.run_for(2 * S);
    assert_eq!(town.play.accepted(server).len(), 2, "two at a time");
    town.play.engine(server).set_property(s.conn, "groupConnLimit", &Value::from(3u64)).unwrap();
    town.play.run_for(2 * S);
    assert_eq!(town.play.accepted(server).len(), 3, "one more");
    town.play.end();
}

#[test]
fn icmp_errors_are_told_to_who_asks_for_them_and_end_nothing() {
    for (stack, wanted, told) in [
        // The system would make them errors of the socket's.
        (Stack::Tcp, "Prefer", 0),
        (Stack::Tls, "Prefer", 0),
        (Stack::Tcp, "No Preference", 0),
        (Stack::Udp, "Require", 1),
        (Stack::Udp, "No Preference", 0),
    ] {
        let mut town = Plan::new(35).delay(50 * MS).build();
        town.listen(&with(stack, &[]), 443, Manner::patient());
        let c = town.open(&with(stack, &[("softErrorNotify", wanted)]), Manner::patient());
        assert!(town.play.run_until(2 * S, |p| p.flow(c).is_ready()), "{stack}");
        town.play.say(c, "on the way", message());
        town.play.run_for(10 * MS);
        let host = town.play.host(town.client);
        assert!(town.play.world().forge_icmp(host, 0, neater_netsim::ForgedIcmp::HostUnreachable), "{stack}");
        town.play.run_for(S);
        assert_eq!(town.play.flow(c).soft_errors, told, "{stack}, {wanted}");
        town.play.say(c, "and on", message());
        town.play.run_for(S);
        let [s] = *town.play.accepted(town.server) else { panic!("{stack}: one peer") };
        assert_eq!(town.play.flow(s).count, 16, "{stack}: {:?}", town.play.flow(c).end());
        town.play.end();
    }
}

/// A cable comes back that takes UDP away with it and brings none: whoever follows the system there hears nothing more, and the server,
/// which answers where packets come from, follows.
#[test]
fn quic_stays_at_an_address_that_works_and_leaves_one_that_does_not() {
    use neater_link::{Filter, LinkConfig, Match, Protocol};
    for (wireless_dies, wired_blocks) in [(false, true), (true, false)] {
        let mut town = Plan::new(34).build();
        town.listen(&with(Stack::Quic, &[]), 443, Manner::echo());
        let (world, host) = (town.play.world().clone(), town.play.host(town.client));
        let kind = neater_base::net::InterfaceKind::WiFi;
        let wifi = world.add_interface(host, "wlan0", kind, &["203.0.113.9".parse().unwrap()]);
        let (up, down) = world.attach(wifi, LinkConfig::delay(MS), LinkConfig::delay(MS));
        world.set_interface_up(town.client_iface, false);
        let c = town.open(&with(Stack::Quic, &[]), Manner::patient());
        town.play.say(c, "over the air", message());
        assert!(town.play.run_until(2 * S, |p| p.flow(c).count == 12), "{}", town.play.flow(c).count);
        if wired_blocks {
            let back = world.link_config(town.client_links.1).with_filter(Filter::drop(Match::Protocol(Protocol::Udp)));
            world.set_link(town.client_links.1, back);
        }
        if wireless_dies {
            // Its address remains.
            let nothing = LinkConfig::delay(MS).with_filter(Filter::drop(Match::Any));
            world.set_link(up, nothing.clone());
            world.set_link(down, nothing);
        }
        world.set_interface_up(town.client_iface, true);
        town.play.run_for(3 * S);
        let before = town.play.flow(c).count;
        town.play.say(c, "and on", message());
        assert!(town.play.run_until(3 * S, |p| p.flow(c).count == before + 6), "{wireless_dies} {wired_blocks}");
        town.play.end();
    }
}

#[test]
fn quic_leaves_an_address_that_it_has_only_if_nobody_answers_there_whatever_multipath_says() {
    use neater_link::{Filter, LinkConfig, Match};
    for (wanted, dies) in ["Disabled", "Passive", "Active"].into_iter().flat_map(|w| [(w, false), (w, true)]) {
        let quic = with(Stack::Quic, &[("multipath", wanted)]);
        let mut town = Plan::new(33).build();
        town.listen(&with(Stack::Quic, &[]), 443, Manner::echo());
        let (world, host) = (town.play.world().clone(), town.play.host(town.client));
        let kind = neater_base::net::InterfaceKind::WiFi;
        let wifi = world.add_interface(host, "wlan0", kind, &["203.0.113.9".parse().unwrap()]);
        let (up, down) = world.attach(wifi, LinkConfig::delay(MS), LinkConfig::delay(MS));
        world.set_interface_up(town.client_iface, false);
        let c = town.open(&quic, Manner::patient());
        town.play.say(c, "before", message());
        assert!(town.play.run_until(2 * S, |p| p.flow(c).count == 6));
        for link in [up, down].into_iter().filter(|_| dies) {
            world.set_link(link, LinkConfig::delay(MS).with_filter(Filter::drop(Match::Any)));
        }
        let before = world.link_counters(town.client_links.0).offered;
        world.set_interface_up(town.client_iface, true);
        town.play.run_for(25 * S);
        let sent = world.link_counters(town.client_links.0).offered - before;
        assert_eq!(sent > 0, dies, "{wanted}: {sent} packets from the other address");
        town.play.end();
    }
}

#[test]
fn a_quic_listener_follows_its_peer_to_another_address_unless_multipath_is_disabled() {
    use neater_base::net::InterfaceKind;
    use neater_link::LinkConfig;
    for (wanted, follows) in [("Disabled", false), ("Passive", true), ("Active", true)] {
        let mut town = Plan::new(36).build();
        town.listen(&with(Stack::Quic, &[("multipath", wanted)]), 443, Manner::echo());
        let (world, wired, way) = (town.play.world().clone(), InterfaceKind::Wired, LinkConfig::delay(MS));
        let [here, there] = ["10.0.0.1", "10.0.0.2"].map(|a| a.parse::<IpAddr>().unwrap());
        let iface = world.add_interface(town.play.host(town.client), "lan0", wired, &[here]);
        let server = world.add_interface(town.play.host(town.server), "lan0", wired, &[there]);
        world.connect(iface, server, way.clone(), way);
        let ask = with(Stack::Quic, &[]);
        let mut security = ask.security(neater_property::Role::Initiate);
        security.server_name = Some(SERVER_NAME.into());
        let remote = std::net::SocketAddr::new(there, 443).into();
        let c = town.open_to(&Ask { security: Some(security), ..ask }, &[remote], Manner::patient());
        town.play.say(c, "before", message());
        assert!(town.play.run_until(S, |p| p.flow(c).count == 6));
        let moved =
            InterfaceAddr { addr: "10.0.0.3".parse().unwrap(), prefix: 24, temporary: false, deprecated: false };
        world.add_address(iface, moved);
        world.remove_address(iface, here);
        town.play.say(c, "after", message());
        assert_eq!(town.play.run_until(10 * S, |p| p.flow(c).count == 11), follows, "{wanted}");
    }
}

/// RFC 9000 section 9.5: "An endpoint MUST NOT reuse a connection ID when sending from more than one local address".
#[test]
fn no_connection_id_is_seen_from_two_addresses_when_the_first_is_gone() {
    use neater_base::net::InterfaceKind;
    use neater_link::LinkConfig;
    use std::sync::{Arc, Mutex};
    for wanted in ["Disabled", "Passive", "Active"] {
        let mut town = Plan::new(35).build();
        town.listen(&with(Stack::Quic, &[]), 443, Manner::echo());
        let (world, wired, way) = (town.play.world().clone(), InterfaceKind::Wired, LinkConfig::delay(MS));
        let [here, there] = ["10.0.0.1", "10.0.0.2"].map(|a| a.parse::<IpAddr>().unwrap());
        let iface = world.add_interface(town.play.host(town.client), "lan0", wired, &[here]);
        let server = world.add_interface(town.play.host(town.server), "lan0", wired, &[there]);
        world.connect(iface, server, way.clone(), way.clone());
        let remote = std::net::SocketAddr::new(there, 443).into();
        let ask = with(Stack::Quic, &[("multipath", wanted)]);
        let mut security = ask.security(neater_property::Role::Initiate);
        security.server_name = Some(SERVER_NAME.into());
        let c = town.open_to(&Ask { security: Some(security), ..ask }, &[remote], Manner::patient());
        town.play.say(c, "before", message());
        assert!(town.play.run_until(S, |p| p.flow(c).count == 6));
        town.play.run_for(5 * S);
        // Somebody takes the server's place, and writes down who sends there under which id (of eight bytes).
        world.remove_address(server, there);
        let tap = world.add_host("tap");
        let other = world.add_interface(tap, "lan0", wired, &[there]);
        world.connect(iface, other, way.clone(), way);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let notes = seen.clone();
        let write_down = move |_, from: std::net::SocketAddr, packet: &[u8], _: &mut _| {
            notes.lock().unwrap().push((from.ip(), packet[1..9].to_vec()));
            Vec::new()
        };
        world.udp_service(tap, 443, Box::new(write_down));
        town.play.say(c, "here", message());
        town.play.run_for(100 * MS);
        let moved =
            InterfaceAddr { addr: "10.0.0.3".parse().unwrap(), prefix: 24, temporary: false, deprecated: false };
        world.add_address(iface, moved);
        world.remove_address(iface, here);
        town.play.run_for(S);
        let seen = seen.lock().unwrap();
        let ids = |new: bool| seen.iter().filter(move |(from, _)| (*from == moved.addr) == new).map(|(_, id)| id);
        assert!(ids(false).count() > 0 && ids(true).count() > 0, "{wanted}: {seen:?}");
        assert!(ids(true).all(|new| ids(false).all(|old| old != new)), "{wanted}: {seen:?}");
    }
}
