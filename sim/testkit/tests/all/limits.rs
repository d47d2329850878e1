//! Bounds: what happens at each of them, and that nothing is taken from others.

use bytes::Bytes;
use neater_base::net::ErrorKind;
use neater_engine::{Event, Limits, Reason, RemoteEndpoint, SendError, SendOptions, Stack, StreamDirection};
use neater_netsim::{BufferSize, TcpConfig};
use neater_testkit::town::{server_v4, server_v6};
use neater_testkit::{Ask, FlowId, Manner, Over, Plan, Town, WhenEnded};
use std::net::SocketAddr;
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn message() -> SendOptions {
    SendOptions::default()
}

/// Raises the number of descriptors that each host has.
fn many_sockets(town: &Town, n: usize) {
    for node in [town.client, town.server] {
        town.play.world().set_max_sockets(town.play.host(node), n);
    }
}

/// Bytes per second that a flow of this many bytes reaches from the server to the client.
fn goodput(town: &mut Town, ask: &Ask, bytes: usize) -> f64 {
    let c = town.open(ask, Manner { keeps: false, ..Manner::default() });
    town.play.say(c, "!", message());
    let (me, node) = (town.server, c.node);
    let peer = |p: &neater_testkit::Playground| p.accepted(me).last().copied().filter(|s| p.flow(*s).count == 1);
    let before = town.play.accepted(me).len();
    assert!(town.play.run_until(10 * S, |p| p.accepted(me).len() > before && peer(p).is_some()));
    let s = peer(&town.play).unwrap();
    let began = town.play.now();
    town.play.say_bytes(s, &vec![7; bytes], 64 << 10, true);
    assert!(town.play.run_until(120 * S, |p| p.flow(c).ended_at.is_some()), "{:?}", town.play.stats(node));
    assert_eq!(town.play.flow(c).count, bytes);
    bytes as f64 / (town.play.now() - began).as_secs_f64()
}

/// A thousand connections whose clients read nothing, and a server that has `count` messages of 2 kB for each of them; the most that
/// it had queued within so much time.
fn stalled(town: &mut Town, ask: &Ask, count: usize, time: Duration) -> (Vec<FlowId>, u64) {
    many_sockets(town, 3000);
    town.listen(ask, 443, Manner::patient());
    let me = town.server;
    let mut flows = Vec::new();
    for _ in 0..10 {
        let before = flows.len();
        // Clients of a stack that waits for its peer's first word say one.
        flows.extend((0..100).map(|_| town.open(ask, Manner::stalled())));
        flows[before..].iter().for_each(|f| town.play.say(*f, "!", message()));
        assert!(town.play.run_until(20 * S, |p| p.accepted(me).len() == before + 100));
    }
    let data = Bytes::from(vec![9; 2 << 10]);
    for s in town.play.accepted(me).to_vec() {
        for _ in 0..count {
            town.play.say(s, data.clone(), message());
        }
    }
    let mut most = 0;
    town.play.run_until(time, |p| {
        most = most.max(p.stats(me).bytes_queued);
        false
    });
    assert!(flows.iter().all(|f| town.play.flow(*f).count == 0 && town.play.flow(*f).is_ready()));
    (flows, most)
}

#[test]
fn a_thousand_stalled_readers_stay_within_the_budget_and_the_next_flow_runs_at_full_rate() {
    for stack in [Stack::Tcp, Stack::Tls] {
        let limits = Limits { engine_bytes: 4 << 20, send_floor: 4 << 10, ..Limits::default() };
        let mut plan = Plan::new(1).delay(5 * MS).rate(100_000_000);
        plan.server_limits = limits;
        let ask = Ask::over(&[stack]);
        let alone = {
            let mut town = plan.clone().build();
            town.listen(&ask, 443, Manner::patient());
            goodput(&mut town, &ask, 1 << 20)
        };
        let mut town = plan.build();
        // Long enough for all that kernels buffer to cross the link.
        let (flows, most) = stalled(&mut town, &ask, 512, 20 * S);
        // What is beyond the budget is at most the floor of each, and one message.
        let bound = (limits.engine_bytes + 1000 * limits.send_floor + (4 << 10)) as u64;
        assert!(most > 0 && most <= bound, "{stack}: {most} bytes queued, {bound} allowed");
        assert!(flows.iter().all(|f| town.play.flow(*f).is_ready()));
        let crowded = goodput(&mut town, &ask, 1 << 20);
        assert!(crowded > 0.8 * alone, "{stack}: {crowded:.0} B/s among stalled ones, {alone:.0} B/s alone");
        town.play.end();
    }
}

#[test]
fn a_thousand_stalled_readers_over_quic_stay_within_the_budget_of_either_side() {
    let limits = Limits { engine_bytes: 4 << 20, send_floor: 4 << 10, ..Limits::default() };
    let mut plan = Plan::new(1).delay(5 * MS).rate(50_000_000);
    (plan.client_limits, plan.server_limits) = (limits, limits);
    let mut town = plan.build();
    let (_, most) = stalled(&mut town, &Ask::over(&[Stack::Quic]), 256, 5 * S);
    let bound = (limits.engine_bytes + 1000 * limits.send_floor + (4 << 10)) as u64;
    assert!(most > 0 && most <= bound, "{most} bytes queued, {bound} allowed");
    let (client, server) = (town.play.stats(town.client), town.play.stats(town.server));
    assert_eq!(client.receive_windows, 0, "who reads nothing has what it had");
    assert!(server.send_windows <= limits.engine_bytes as u64, "{server:?}");
    town.play.end();
}

#[test]
fn long_messages_wait_for_room_in_the_engine_and_all_arrive_when_there_is_some() {
    for stack in [Stack::Tcp, Stack::Tls, Stack::Quic] {
        let limits = Limits { engine_bytes: 1 << 20, send_buffer: 32 << 10, ..Limits::default() };
        let mut plan = Plan::new(20).delay(5 * MS).rate(20_000_000);
        plan.server_limits = limits;
        let ask = Ask::over(&[stack]).framed();
        let mut town = plan.build();
        town.listen(&ask, 443, Manner { keeps: false, ..Manner::patient() });
        let flows: Vec<FlowId> = (0..12).map(|_| town.open(&ask, Manner::stalled())).collect();
        for f in &flows {
            town.play.say(*f, "!", message());
        }
        let me = town.server;
        assert!(town.play.run_until(20 * S, |p| p.accepted(me).len() == 12));
        let long = Bytes::from(vec![9; 300_000]);
        let mut most = 0;
        for _ in 0..4 {
            for s in town.play.accepted(me).to_vec() {
                town.play.say(s, long.clone(), message());
            }
            town.play.run_for(S);
            most = most.max(town.play.stats(me).bytes_queued);
        }
        // One more than fits, and one piece of those that a framer makes.
        let bound = (limits.engine_bytes + 310_000) as u64;
        assert!(
            most > limits.engine_bytes as u64 / 2 && most <= bound,
            "{stack}: {most} bytes queued, {bound} allowed"
        );
        for f in &flows {
            let flow = town.play.flow_mut(*f);
            (flow.manner.reads, flow.manner.keeps) = (true, false);
            town.play.read(*f);
        }
        let all = |p: &mut neater_testkit::Playground| flows.iter().all(|f| p.flow(*f).count == 1_200_000);
        assert!(town.play.run_until(300 * S, all), "{stack}: nobody waits for ever");
        town.play.end();
    }
}

#[test]
fn messages_cost_what_keeping_them_costs_even_empty_ones() {
    for (stack, len) in [(Stack::Tcp, 0), (Stack::Tls, 1), (Stack::Quic, 1)] {
        let ask = Ask::over(&[stack]);
        let mut town = Plan::new(21).build();
        let (c, _) = town.pair(&ask, Manner::patient(), Manner::stalled());
        let engine = town.play.engine(c.node);
        // More than the network keeps.
        while engine.send(c.conn, vec![0; 50_000].into(), message()).is_ok() {}
        town.play.run_for(5 * S);
        let engine = town.play.engine(c.node);
        while engine.send(c.conn, vec![0; 50_000].into(), message()).is_ok() {}
        let data = Bytes::from(vec![0; len]);
        let (mut taken, before) = (0u64, engine.stats().bytes_queued);
        while engine.send(c.conn, data.clone(), message()).is_ok() {
            taken += 1;
            assert!(taken < 10_000, "{stack}: as many as one likes");
        }
        let cost = engine.stats().bytes_queued - before;
        assert!(cost >= taken * 64, "{stack}: {taken} messages are said to cost {cost} bytes");
        assert!(engine.stats().bytes_queued <= 257 << 10, "{stack}");
        town.play.abort(c);
        town.play.end();
    }
}

#[test]
fn what_a_framer_keeps_of_a_message_in_parts_is_bounded() {
    let mut plan = Plan::new(22);
    plan.client_limits.message = 500_000;
    let mut town = plan.build();
    let (c, _) = town.pair(&Ask::over(&[Stack::Tcp]).framed(), Manner::patient(), Manner::patient());
    let engine = town.play.engine(c.node);
    let part = SendOptions { end_of_message: false, ..message() };
    for i in 1..=5 {
        engine.send(c.conn, vec![1; 100_000].into(), part).unwrap();
        assert!(engine.stats().bytes_queued >= i * 100_000);
    }
    let refused = engine.send(c.conn, vec![1; 100_000].into(), part);
    assert_eq!(refused, Err(SendError::MessageTooLarge { max: 500_000 }));
    town.play.abort(c);
    assert_eq!(town.play.stats(c.node).bytes_queued, 0);
    town.play.end();
}

/// Opens a stream from the server's side, says a word on it and aborts it.
fn flash(town: &mut Town, s: FlowId) {
    let engine = town.play.engine(s.node);
    let conn = engine.clone_connection(s.conn, StreamDirection::Both).unwrap();
    let _ = engine.send(conn, "!".into(), message());
    let flow = town.play.adopt(s.node, conn, Manner::patient());
    town.play.run_for(30 * MS);
    town.play.abort(flow);
    town.play.run_for(30 * MS);
    town.play.release(flow);
}

#[test]
fn a_group_holds_no_more_streams_that_nobody_takes_than_it_may() {
    let mut plan = Plan::new(23);
    plan.client_limits.untaken = 16;
    let mut town = plan.build();
    let (c, s) = town.pair(&Ask::over(&[Stack::Quic]).framed(), Manner::patient(), Manner::patient());
    let group = town.play.engine(c.node).group(c.conn).unwrap();
    town.play.take_no_streams();
    for _ in 0..60 {
        flash(&mut town, s);
    }
    let held = town.play.stats(c.node).connections;
    assert!((16..=17).contains(&held), "{held} connections");
    // The session is as good as ever, and when there is room its streams come.
    town.play.say(c, "x", message());
    town.play.run_for(S);
    assert_eq!(town.play.flow(s).messages, ["x"]);
    let before = town.play.accepted(c.node).len();
    let conn = town.play.engine(s.node).clone_connection(s.conn, StreamDirection::Both).unwrap();
    let last = town.play.adopt(s.node, conn, Manner::patient());
    town.play.say(last, "the last", message());
    town.play.run_for(S);
    assert_eq!(town.play.accepted(c.node).len(), before, "it waits");
    let mut came = Vec::new();
    for _ in 0..20 {
        for _ in 0..16 {
            town.play.engine(c.node).taken_stream(group);
        }
        town.play.run_for(S);
        let accepted = &town.play.accepted(c.node)[before..];
        assert!(accepted.len() - came.len() <= 16, "{} came at once", accepted.len() - came.len());
        came = accepted.to_vec();
    }
    assert!(came.iter().any(|f| town.play.flow(*f).messages == ["the last"]), "{} more came", came.len());
    town.play.engine(c.node).release_group(group);
    town.play.end();
}

#[test]
fn streams_that_wait_to_be_claimed_are_not_lost_with_one_that_dies() {
    let mut town = Plan::new(24).build();
    let (c, s) = town.pair(&Ask::over(&[Stack::Quic]).framed(), Manner::patient(), Manner::patient());
    let mut open = |said: &'static str| {
        let conn = town.play.engine(s.node).clone_connection(s.conn, StreamDirection::Both).unwrap();
        let flow = town.play.adopt(s.node, conn, Manner::patient());
        town.play.say(flow, said, message());
        flow
    };
    let (first, second) = (open("A"), open("B, important"));
    town.play.run_for(S);
    town.play.abort(first);
    town.play.run_for(S);
    let group = town.play.engine(c.node).group(c.conn).unwrap();
    town.play.run_for(S);
    let accepted = town.play.accepted(c.node).to_vec();
    assert_eq!(accepted.len(), 1, "the one that lives");
    assert_eq!(town.play.flow(accepted[0]).messages, ["B, important"]);
    town.play.say(accepted[0], "thanks", message());
    town.play.run_for(S);
    assert_eq!(town.play.flow(second).messages, ["thanks"]);
    town.play.engine(c.node).release_group(group);
    town.play.end();
}

#[test]
fn a_listener_delivers_no_more_connections_than_it_was_allowed() {
    for stack in [Stack::Tcp, Stack::Tls, Stack::Udp] {
        let ask = Ask::over(&[stack]);
        let mut town = Plan::new(2).build();
        let listener = town.listen(&ask, 443, Manner::echo());
        town.play.engine(town.server).set_new_connection_limit(listener, Some(3));
        let flows: Vec<FlowId> = (0..6).map(|_| town.open(&ask, Manner::patient())).collect();
        for f in &flows {
            town.play.say(*f, "x", message());
        }
        town.play.run_for(2 * S);
        assert_eq!(town.play.accepted(town.server).len(), 3, "{stack}");
        town.play.engine(town.server).set_new_connection_limit(listener, Some(2));
        for f in &flows {
            town.play.say(*f, "y", message());
        }
        town.play.run_for(5 * S);
        assert_eq!(town.play.accepted(town.server).len(), 5, "{stack}: what waited is delivered when it may be");
        town.play.engine(town.server).set_new_connection_limit(listener, None);
        for f in &flows {
            town.play.say(*f, "z", message());
        }
        town.play.run_for(5 * S);
        assert_eq!(town.play.accepted(town.server).len(), 6, "{stack}");
        town.play.end();
    }
}

#[test]
fn a_limit_of_new_connections_holds_for_quic() {
    let ask = Ask::over(&[Stack::Quic]);
    let mut town = Plan::new(3).build();
    let listener = town.listen(&ask, 443, Manner::echo());
    town.play.engine(town.server).set_new_connection_limit(listener, Some(3));
    for _ in 0..6 {
        let f = town.open(&ask.clone().within(5 * S), Manner::patient());
        town.play.say(f, "x", message());
    }
    town.play.run_for(10 * S);
    assert_eq!(town.play.accepted(town.server).len(), 3);
    town.play.end();
}

#[test]
fn half_open_peers_do_not_keep_others_out_for_ever() {
    // TCP connections that never say anything, at a listener that speaks TLS.
    let mut plan = Plan::new(4);
    plan.server_limits.handshakes = 8;
    let mut town = plan.build();
    let tls = Ask::over(&[Stack::Tls]);
    town.listen(&tls, 443, Manner::echo());
    let silent = Ask::over(&[Stack::Tcp]);
    for _ in 0..20 {
        town.open(&silent, Manner::patient());
    }
    town.play.run_for(100 * MS);
    let held = town.play.stats(town.server).channels;
    assert!(
        held <= 8 + 8 + 2,
        "{held} sockets: two of the listener, the handshakes that are allowed, as many that wait"
    );
    let c = town.open(&tls, Manner::default());
    town.play.say(c, "x", SendOptions { is_final: true, ..message() });
    // Each batch of silent ones is given its time; then it is the next one's turn.
    let reached = town.play.run_until(60 * S, |p| p.flow(c).is_over());
    assert!(reached, "{:?}", town.play.stats(town.server));
    assert_eq!(town.play.flow(c).received, b"x");
    assert!(town.play.stats(town.server).refused >= 8);
    town.play.end();
}

#[test]
fn a_listener_without_descriptors_goes_on_when_there_are_some() {
    for stack in [Stack::Tcp, Stack::Tls] {
        let ask = Ask::over(&[stack]);
        let mut town = Plan::new(5).build();
        town.listen(&ask, 443, Manner::echo());
        let host = town.play.host(town.server);
        let open = town.play.world().open_sockets(host);
        town.play.world().set_max_sockets(host, open + 1);
        let flows: Vec<FlowId> = (0..3).map(|_| town.open(&ask, Manner::default())).collect();
        for f in &flows {
            town.play.say(*f, "x", message());
        }
        town.play.run_for(500 * MS);
        let missing = |event: &Event| matches!(event, Event::ListenerError(e) if e.kind == ErrorKind::TooManyFiles);
        let told = town.play.log(town.server).iter().filter(|(_, n)| missing(&n.event)).count();
        assert!((1..=10).contains(&told), "{stack}: told {told} times in half a second");
        // One has its answer and ends; then the next can be taken, and so on.
        assert_eq!(flows.iter().filter(|f| town.play.flow(**f).count == 1).count(), 1, "{stack}");
        for f in &flows {
            town.play.finish(*f);
        }
        assert!(town.play.run_until(30 * S, |p| flows.iter().all(|f| p.flow(*f).is_over())), "{stack}");
        assert!(flows.iter().all(|f| town.play.flow(*f).received == b"x"), "{stack}");
        town.play.end();
    }
}

#[test]
fn handshakes_that_are_never_finished_do_not_keep_others_out() {
    let mut plan = Plan::new(7);
    plan.server_limits = Limits { handshakes: 16, ..Limits::default() };
    let mut town = plan.build();
    town.listen(&Ask::over(&[Stack::Tls]), 443, Manner::echo());
    // They connect, send the beginning of a record, and nothing more.
    let idlers: Vec<FlowId> = (0..24).map(|_| town.open(&Ask::over(&[Stack::Tcp]), Manner::patient())).collect();
    for f in &idlers {
        town.play.say_bytes(*f, b"\x16\x03\x01", 3, false);
    }
    town.play.run_for(500 * MS);
    let f = town.open(&Ask::over(&[Stack::Tls]), Manner::patient());
    town.play.say(f, "x", message());
    assert!(town.play.run_until(4 * S, |p| p.flow(f).count == 1), "kept out by those who do nothing");
    let stats = town.play.stats(town.server);
    assert!(stats.refused >= 9, "the oldest made room: {stats:?}");
    assert_eq!(stats.refusals.handshakes + stats.refusals.not_begun, stats.refused, "{stats:?}");
    town.play.end();
}

#[test]
fn a_crowd_from_one_address_keeps_nobody_else_waiting_and_waits_for_its_own_turn() {
    let mut plan = Plan::new(9);
    plan.server_limits = Limits { handshakes: 16, ..Limits::default() };
    let mut town = plan.build();
    let tls = Ask::over(&[Stack::Tls]);
    town.listen(&tls, 443, Manner::echo());
    for _ in 0..100 {
        let f = town.open_to(&Ask::over(&[Stack::Tcp]), &[server_v4()], Manner::patient());
        town.play.say_bytes(f, b"\x16\x03\x01", 3, false);
    }
    town.play.run_for(500 * MS);
    let held = town.play.stats(town.server).channels;
    assert!(held <= 16 + 16 + 2, "{held} sockets");
    // Before any of them has had its time, whoever comes from elsewhere is served.
    for _ in 0..4 {
        let f = town.open_to(&tls, &[server_v6()], Manner::patient());
        town.play.say(f, "x", message());
        assert!(town.play.run_until(250 * MS, |p| p.flow(f).count == 1), "kept out by a crowd");
    }
    // One of the crowd's that means it has its turn.
    let f = town.open_to(&tls, &[server_v4()], Manner::patient());
    town.play.say(f, "x", message());
    assert!(town.play.run_until(6 * S, |p| p.flow(f).count == 1), "{:?}", town.play.flow(f).end());
    town.play.end();
}

#[test]
fn handshakes_are_left_in_peace_while_there_is_room() {
    let mut plan = Plan::new(8).delay(900 * MS);
    plan.server_limits = Limits { handshakes: 16, ..Limits::default() };
    let mut town = plan.build();
    town.listen(&Ask::over(&[Stack::Tls]), 443, Manner::echo());
    // Their handshakes last longer than is granted to them when others wait.
    let flows: Vec<FlowId> = (0..16).map(|_| town.open(&Ask::over(&[Stack::Tls]), Manner::patient())).collect();
    assert!(town.play.run_until(20 * S, |p| flows.iter().all(|f| p.flow(*f).is_ready())));
    assert_eq!(town.play.stats(town.server).refused, 0);
    town.play.end();
}

#[test]
fn a_client_without_descriptors_gets_an_error_that_says_so() {
    for stack in [Stack::Tcp, Stack::Tls, Stack::Quic, Stack::Udp] {
        let ask = Ask::over(&[stack]);
        let mut town = Plan::new(6).build();
        town.listen(&ask, 443, Manner::echo());
        let host = town.play.host(town.client);
        town.play.world().set_max_sockets(host, 0);
        let f = town.open(&ask, Manner::default());
        assert!(town.play.run_until(5 * S, |p| p.flow(f).is_over()), "{stack}");
        let error = town.play.flow(f).establishment_error().expect("not established").to_string();
        assert!(error.contains("too many open files"), "{stack}: {error}");
        town.play.world().set_max_sockets(host, 10);
        let f = town.open(&ask, Manner::patient());
        town.play.say(f, "x", message());
        assert!(town.play.run_until(5 * S, |p| p.flow(f).count == 1), "{stack}: it works again");
        town.play.end();
    }
}

#[test]
fn an_engine_that_is_full_refuses_at_once_and_serves_again_later() {
    let ask = Ask::over(&[Stack::Tcp]);
    let mut plan = Plan::new(7);
    plan.client_limits.connections = 2;
    plan.server_limits.connections = 1;
    let mut town = plan.build();
    town.listen(&ask, 443, Manner::echo());
    let request = town.request(&ask);
    let a = town.open(&ask, Manner::default());
    let b = town.open(&ask, Manner::default());
    let error = town.play.initiate(town.client, &request, &[server_v4()], Manner::default()).unwrap_err();
    assert_eq!(error.reason, Reason::Exhausted);
    for f in [a, b] {
        town.play.say(f, "x", SendOptions { is_final: true, ..message() });
    }
    // The server takes one at a time, as its own limit says, and does not spin meanwhile.
    assert!(town.play.run_until(5 * S, |p| p.flow(a).count + p.flow(b).count == 1));
    let first = town.play.accepted(town.server)[0];
    assert!(town.play.run_until(5 * S, |p| p.flow(first).is_over()));
    town.play.release(first);
    assert!(town.play.run_until(5 * S, |p| p.flow(a).is_over() && p.flow(b).is_over()));
    town.play.release(a);
    town.play.release(b);
    town.play.run_for(S);
    let c = town.play.initiate(town.client, &request, &[server_v4()], Manner::default());
    assert!(c.is_ok());
    town.play.end();
}

#[test]
fn a_flow_that_floods_does_not_starve_another() {
    // Without a rate, one flow could keep its receiver busy for ever. The other one's round trips must not suffer.
    for stack in [Stack::Tcp, Stack::Tls, Stack::Quic] {
        let flood = Ask::over(&[stack]);
        let ping = Ask::over(&[stack]).framed();
        let mut town = Plan::new(8).delay(5 * MS).rate(50_000_000).build();
        // Windows that fit the link's queue: what a lost ping costs is the network's matter.
        let size = BufferSize::Fixed(256 * 1024);
        for node in [town.client, town.server] {
            let tcp = TcpConfig { send_buffer: size, receive_buffer: size, ..TcpConfig::linux() };
            town.play.world().set_tcp(town.play.host(node), tcp);
        }
        town.listen(&flood, 443, Manner { keeps: false, ..Manner::patient() });
        let loud = town.open(&flood, Manner::patient());
        town.play.say_bytes(loud, &vec![1; 24 << 20], 64 << 10, true);
        let other = town.compile(town.server, neater_property::Role::Listen, &ping).unwrap();
        town.play.serve(town.server, Manner { keeps: false, ..Manner::patient() });
        let local = neater_engine::LocalEndpoint::new().with_port(444);
        town.play.listen(town.server, &other, &[local]).unwrap();
        town.play.run_for(S);
        town.play.serve(town.server, Manner::echo());
        let remote: RemoteEndpoint = SocketAddr::from(([198, 51, 100, 1], 444)).into();
        let quiet = town.open_to(&ping, &[remote], Manner::patient());
        for i in 0..20usize {
            town.play.say(quiet, "ping", message());
            let began = town.play.now();
            assert!(town.play.run_until(5 * S, |p| p.flow(quiet).messages.len() == i + 1), "{stack}, ping {i}");
            let took = town.play.now() - began;
            // The queue of the link is 256 packets, which are 62 ms at this rate, and connecting takes some round trips.
            assert!(took < Duration::from_millis(if i == 0 { 400 } else { 150 }), "{stack}, ping {i}: {took:?}");
        }
        assert!(!town.play.flow(loud).has_said_all() || town.play.flow(loud).over.is_none(), "{stack}");
        town.play.end();
    }
}

#[test]
fn datagrams_that_nobody_takes_are_dropped_at_the_bound_and_counted() {
    for stack in [Stack::Udp, Stack::QuicDatagram] {
        let ask = Ask::over(&[stack]);
        let mut plan = Plan::new(9);
        plan.server_limits.datagram_buffer = 10_000;
        let mut town = plan.build();
        town.listen(&ask, 443, Manner::stalled());
        let c = town.open(&ask, Manner::patient());
        for _ in 0..100 {
            town.play.say(c, vec![3; 1000], message());
        }
        town.play.run_for(2 * S);
        let s = town.play.accepted(town.server)[0];
        let stats = town.play.engine(s.node).connection_stats(s.conn).unwrap();
        // On QUIC the protocol's own buffer drops the oldest before the engine sees them.
        assert!(stack != Stack::Udp || stats.datagrams_dropped > 80, "{stack}: {stats:?}");
        town.play.flow_mut(s).manner.reads = true;
        town.play.read(s);
        let taken = town.play.flow(s).messages.len();
        assert!((1..=10).contains(&taken), "{stack}: {taken} datagrams were kept");
        town.play.end();
    }
}

#[test]
fn peers_of_a_shared_udp_port_are_bounded_and_forgotten_when_they_are_silent() {
    let ask = Ask::over(&[Stack::Udp]);
    let mut plan = Plan::new(10);
    plan.server_limits.udp_peers = 3;
    let mut town = plan.build();
    town.listen(&ask, 443, Manner { when_ended: WhenEnded::Stay, ..Manner::echo() });
    let flows: Vec<FlowId> = (0..5).map(|_| town.open(&ask, Manner::patient())).collect();
    for f in &flows {
        town.play.say(*f, "x", message());
    }
    town.play.run_for(S);
    assert_eq!(town.play.accepted(town.server).len(), 3);
    let stats = town.play.stats(town.server);
    assert_eq!((stats.refused, stats.refusals.peers), (2, 2));
    // After two minutes of silence there is room again.
    town.play.run_for(130 * S);
    let gone =
        town.play.accepted(town.server).iter().filter(|s| {
            matches!(town.play.flow(**s).end(), Some(Over::Failed(neater_engine::ConnectionError::TimedOut)))
        });
    assert_eq!(gone.count(), 3);
    for s in town.play.accepted(town.server).to_vec() {
        town.play.release(s);
    }
    town.play.say(flows[4], "y", message());
    assert!(town.play.run_until(S, |p| p.flow(flows[4]).messages.len() == 1));
    town.play.end();
}

#[test]
fn a_message_larger_than_the_engine_takes_is_refused() {
    let ask = Ask::over(&[Stack::Tcp]).framed();
    let mut plan = Plan::new(11);
    plan.client_limits.message = 100_000;
    let mut town = plan.build();
    let (c, s) = town.pair(&ask, Manner::patient(), Manner::patient());
    town.play.say(c, vec![0; 100_001], message());
    assert_eq!(town.play.flow(c).refused, [neater_engine::SendError::MessageTooLarge { max: 100_000 }]);
    town.play.say(c, vec![5; 100_000], message());
    assert!(town.play.run_until(5 * S, |p| p.flow(s).messages.len() == 1));
    town.play.end();
}

#[test]
fn a_peer_that_claims_an_enormous_message_fails_alone() {
    let framed = Ask::over(&[Stack::Tcp]).framed();
    let mut town = Plan::new(12).build();
    town.listen(&framed, 443, Manner::patient());
    // Somebody who speaks another protocol: its first bytes are a length of almost 4 GB.
    let liar = town.open(&Ask::over(&[Stack::Tcp]), Manner::patient());
    town.play.say(liar, vec![0xff; 1000], SendOptions { end_of_message: false, ..message() });
    let me = town.server;
    assert!(town.play.run_until(S, |p| p.accepted(me).first().is_some_and(|s| p.flow(*s).is_over())));
    let s = town.play.accepted(me)[0];
    let framer = matches!(town.play.flow(s).end(), Some(Over::Failed(neater_engine::ConnectionError::Framer(_))));
    assert!(framer, "{:?}", town.play.flow(s).end());
    let c = town.open(&framed, Manner::patient());
    town.play.say(c, "fine", message());
    assert!(town.play.run_until(S, |p| p.accepted(me).len() == 2 && p.flow(p.accepted(me)[1]).messages.len() == 1));
    town.play.end();
}

#[test]
fn garbage_at_a_listener_harms_nobody_else() {
    let secure = Ask::over(&[]);
    let mut town = Plan::new(13).build();
    town.listen(&secure, 443, Manner::echo());
    let mut rng = neater_base::Rng::from_number(13);
    for _ in 0..50 {
        for stack in [Stack::Tcp, Stack::Udp] {
            let liar = town.open(&Ask::over(&[stack]), Manner::patient());
            for _ in 0..4 {
                let mut bytes = vec![0; 1 + rng.below(1400) as usize];
                rng.fill(&mut bytes);
                // Half of them begin as a TLS handshake record or a QUIC Initial packet does.
                if rng.chance(0.5) {
                    let like: &[u8] = if stack == Stack::Tcp { &[22, 3, 1] } else { &[0xc3, 0, 0, 0, 1, 8] };
                    bytes.splice(..like.len().min(bytes.len()), like.iter().copied());
                }
                town.play.say(liar, bytes, message());
            }
        }
    }
    town.play.run_for(S);
    assert!(town.play.accepted(town.server).is_empty(), "garbage became a connection");
    for stack in [Stack::Tls, Stack::Quic] {
        let c = town.open(&Ask::over(&[stack]), Manner::default());
        town.play.say(c, "x", SendOptions { is_final: true, ..message() });
        assert!(town.play.run_until(10 * S, |p| p.flow(c).is_over()), "{stack}");
        assert_eq!(town.play.flow(c).received, b"x", "{stack}");
    }
    town.play.run_for(30 * S);
    let stats = town.play.stats(town.server);
    assert!(stats.connections <= 2 && stats.quic_connections <= 1, "{stats:?}");
    town.play.end();
}

#[test]
fn who_says_nothing_does_not_use_up_the_connections_that_may_still_come() {
    let mut town = Plan::new(9).build();
    let tls = Ask::over(&[Stack::Tls]);
    let listener = town.listen(&tls, 443, Manner::echo());
    let server = town.server;
    town.play.engine(server).set_new_connection_limit(listener, Some(1));
    for _ in 0..2 {
        town.open(&Ask::over(&[Stack::Tcp]), Manner::patient());
    }
    town.play.run_for(100 * MS);
    let f = town.open(&tls, Manner::patient());
    town.play.say(f, "x", message());
    // Two seconds for each of them.
    assert!(town.play.run_until(5 * S, |p| p.flow(f).count == 1), "kept out by two that say nothing");
    // The limit holds all the same.
    let more = town.open(&tls.clone().within(4 * S), Manner::patient());
    town.play.run_for(5 * S);
    assert!(town.play.flow(more).establishment_error().is_some());
    town.play.end();
}

#[test]
fn a_peer_of_a_shared_udp_socket_may_do_nothing_but_listen() {
    let mut town = Plan::new(10).build();
    let ask = Ask::over(&[Stack::Udp]);
    town.listen(&ask, 443, Manner::patient());
    let c = town.open(&ask, Manner::patient());
    town.play.say(c, "more of it", message());
    let server = town.server;
    assert!(town.play.run_until(S, |p| p.accepted(server).len() == 1));
    let s = town.play.accepted(server)[0];
    for i in 0..600 {
        town.play.say(s, "tick", message());
        town.play.run_for(500 * MS);
        assert!(!town.play.flow(s).is_over(), "after {} ms: {:?}", 500 * i, town.play.flow(s).end());
    }
    assert!(town.play.flow(c).received.len() >= 4 * 600, "all of them arrived");
    // Silence on both sides ends it.
    assert!(town.play.run_until(121 * S, |p| p.flow(s).is_over()));
    town.play.release(c);
    town.play.end();
}

#[test]
fn nothing_stands_still_at_limits_of_nothing() {
    for stack in [Stack::Tcp, Stack::Tls, Stack::Quic] {
        let mut plan = Plan::new(11);
        let nothing =
            Limits { send_buffer: 0, engine_bytes: 0, send_floor: 0, handshakes: 0, untaken: 0, ..Limits::default() };
        (plan.client_limits, plan.server_limits) = (nothing, nothing);
        let mut town = plan.build();
        town.listen(&Ask::over(&[stack]), 443, Manner::echo());
        for _ in 0..3 {
            let f = town.open(&Ask::over(&[stack]), Manner::patient());
            town.play.say(f, "x", message());
            assert!(town.play.run_until(5 * S, |p| p.flow(f).count == 1), "{stack}");
        }
        town.play.end();
    }
}

#[test]
fn a_queue_of_nothing_is_told_when_it_is_empty() {
    for stack in [Stack::Tcp, Stack::Tls, Stack::Quic, Stack::Sctp] {
        let mut plan = Plan::new(12).rate(1_000_000);
        plan.client_limits = Limits { send_buffer: 1, ..Limits::default() };
        let mut town = plan.build();
        let framed = Ask::over(&[stack]).framed();
        town.listen(&framed, 443, Manner::patient());
        let f = town.open(&framed, Manner::patient());
        for _ in 0..40 {
            town.play.say(f, vec![7; 50_000], message());
        }
        assert!(
            town.play.run_until(60 * S, |p| p.flow(f).sent.len() == 40),
            "{stack}: {}",
            town.play.flow(f).sent.len()
        );
        town.play.end();
    }
}

#[test]
fn no_limit_is_no_limit() {
    let sctp = Ask::over(&[Stack::Sctp]);
    let mut plan = Plan::new(14);
    plan.client_limits = Limits { engine_bytes: usize::MAX, send_buffer: usize::MAX, ..Limits::default() };
    let mut town = plan.build();
    let (f, s) = town.pair(&sctp, Manner::patient(), Manner::patient());
    for _ in 0..100 {
        town.play.say(f, vec![7; 10_000], message());
    }
    assert!(town.play.run_until(20 * S, |p| p.flow(s).count == 1_000_000), "{}", town.play.flow(s).count);
    town.play.end();
}
