//! Early data (0-RTT): a first message that travels with the handshake, over TLS and over QUIC.

use bytes::Bytes;
use neater_engine::{ConnectionState, ListenerId, SendOptions, Stack};
use neater_link::LinkConfig;
use neater_property::{SelectionProperty as P, TransportProperties};
use neater_testkit::town::server_v4;
use neater_testkit::{Ask, FlowId, Manner, Over, Plan, Town, WhenEnded, with_seeds};
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
/// From the client to the server.
const WAY: Duration = Duration::from_millis(10);

/// Each stack that has early data, with the ways to the server after which it is there: TCP's handshake takes two.
const STACKS: [(Stack, u32); 2] = [(Stack::Tls, 3), (Stack::Quic, 1)];

fn last() -> SendOptions {
    SendOptions { is_final: true, ..SendOptions::default() }
}

/// A request over this stack that asks for `zeroRttMsg`, or is against it.
fn ask(stack: Stack, wanted: bool) -> Ask {
    let mut properties = TransportProperties::new();
    if wanted {
        properties.prefer(P::ZeroRttMsg)
    } else {
        properties.prohibit(P::ZeroRttMsg)
    };
    Ask::over(&[stack]).properties(properties)
}

/// A client that has been connected before, by whatever the server was asked with.
fn with_a_session(seed: u64, server: &Ask, client: &Ask) -> Town {
    visited(seed, server, client).0
}

fn visited(seed: u64, server: &Ask, client: &Ask) -> (Town, ListenerId) {
    let mut town = Plan::new(seed).build();
    let listener = town.listen(server, 443, Manner::echo());
    let c = town.open(client, Manner::patient());
    town.play.say(c, "first", last());
    assert!(town.play.run_until(5 * S, |p| p.flow(c).ended_at.is_some()));
    town.play.close(c);
    assert!(town.play.run_until(5 * S, |p| p.flow(c).is_over()));
    town.play.run_for(S);
    (town, listener)
}

/// Opens a connection with a first message.
fn open(town: &mut Town, ask: &Ask, first: impl Into<Bytes>, manner: Manner) -> FlowId {
    let request = town.request(ask);
    town.play.initiate_with(town.client, &request, &[server_v4()], None, Some(first.into()), manner).unwrap()
}

/// The server's flow number `n`, when it has received this much.
fn arrival(town: &mut Town, n: usize, bytes: usize) -> FlowId {
    let server = town.server;
    let came = town.play.run_until(20 * S, |p| p.accepted(server).get(n).is_some_and(|s| p.flow(*s).count >= bytes));
    assert!(came, "only {} connections", town.play.accepted(server).len());
    town.play.accepted(server)[n]
}

fn took(town: &Town, client: FlowId, receiver: FlowId) -> Duration {
    town.play.flow(receiver).received_at.unwrap() - town.play.flow(client).opened_at
}

#[test]
fn the_first_message_of_a_second_connection_arrives_with_the_first_flight_and_is_answered_at_once() {
    for (stack, ways) in STACKS {
        let ask = ask(stack, true);
        let mut town = with_a_session(1, &ask, &ask);
        let c = open(&mut town, &ask, "early", Manner::default());
        let s = arrival(&mut town, 1, 5);
        assert_eq!(took(&town, c, s), WAY * ways, "{stack}: not with the first flight");
        assert!(!town.play.flow(c).is_ready(), "{stack}: the client has heard nothing yet");
        assert_eq!(town.play.flow(s).early, 5, "{stack}: the server can tell that it may be a replay");
        assert!(town.play.run_until(S, |p| p.flow(c).count == 5));
        assert_eq!(took(&town, c, c), WAY * (ways + 1), "{stack}: the answer did not wait for anything");
        town.play.say(c, " late", last());
        assert!(town.play.run_until(5 * S, |p| p.flow(c).is_over() && p.flow(s).is_over()), "{stack}");
        assert_eq!(town.play.flow(s).received, b"early late", "{stack}: once, and before the rest");
        assert_eq!(town.play.flow(s).early, 5, "{stack}: what came after the handshake is no replay");
        assert_eq!(town.play.flow(c).received, b"early late");
        let sent: Vec<u64> = town.play.flow(c).sent.iter().map(|id| id.0).collect();
        assert_eq!(sent, [1, 2], "{stack}: each message is reported as sent, once");
        assert_eq!(town.play.flow(s).end(), Some(&Over::Closed), "{stack}");
        town.play.end();
    }
}

#[test]
fn the_first_connection_of_all_sends_its_first_message_after_the_handshake() {
    for (stack, _) in STACKS {
        let ask = ask(stack, true);
        let mut town = Plan::new(2).build();
        town.listen(&ask, 443, Manner::patient());
        let c = open(&mut town, &ask, "early", Manner::patient());
        let s = arrival(&mut town, 0, 5);
        let handshake = if stack == Stack::Tls { 4 } else { 2 };
        assert_eq!(took(&town, c, s), WAY * (handshake + 1), "{stack}");
        assert_eq!(town.play.flow(s).early, 0, "{stack}");
        town.play.end();
    }
}

#[test]
fn a_listener_that_does_not_ask_for_it_takes_no_early_data_and_loses_none() {
    for (stack, ways) in STACKS {
        let client = ask(stack, true);
        let mut town = with_a_session(3, &Ask::over(&[stack]), &client);
        let c = open(&mut town, &client, "early", Manner::patient());
        let s = arrival(&mut town, 1, 5);
        assert_eq!(took(&town, c, s), WAY * (ways + 2), "{stack}: a round trip later");
        assert_eq!((town.play.flow(s).early, &town.play.flow(s).received[..]), (0, &b"early"[..]), "{stack}");
        town.play.end();
    }
}

#[test]
fn a_client_that_prohibits_it_sends_nothing_early() {
    for (stack, ways) in STACKS {
        let mut town = with_a_session(4, &ask(stack, true), &ask(stack, true));
        let c = open(&mut town, &ask(stack, false), "patient", Manner::patient());
        let s = arrival(&mut town, 1, 7);
        assert_eq!(took(&town, c, s), WAY * (ways + 2), "{stack}");
        assert_eq!(town.play.flow(s).early, 0, "{stack}");
        town.play.end();
    }
}

#[test]
fn early_data_that_the_server_refuses_is_sent_again_once_and_before_the_rest() {
    for (stack, ways) in STACKS {
        let ask = ask(stack, true);
        let (mut town, listener) = visited(5, &ask, &ask);
        // The next listener has none of the sessions of this one.
        town.play.engine(town.server).stop(listener);
        town.play.run_for(60 * S);
        town.listen(&ask, 443, Manner::patient());
        let c = open(&mut town, &ask, "early", Manner::patient());
        town.play.say(c, " late", last());
        let s = arrival(&mut town, 1, 10);
        assert_eq!(took(&town, c, s), WAY * (ways + 2), "{stack}: a round trip later");
        assert_eq!((town.play.flow(s).early, &town.play.flow(s).received[..]), (0, &b"early late"[..]), "{stack}");
        assert_eq!(town.play.flow(c).sent.len(), 2, "{stack}");
        town.play.end();
    }
}

#[test]
fn a_first_message_that_is_too_long_to_be_early_goes_whole_after_the_handshake() {
    let ask = ask(Stack::Tls, true);
    let mut town = with_a_session(6, &ask, &ask);
    let long: Vec<u8> = (0..40_000u32).map(|i| i as u8).collect();
    let c = open(&mut town, &ask, long.clone(), Manner::patient());
    town.play.say(c, "", last());
    let s = arrival(&mut town, 1, long.len());
    assert_eq!((town.play.flow(s).early, town.play.flow(s).received == long), (0, true));
    town.play.end();
}

#[test]
fn over_a_bad_network_a_first_message_arrives_once_and_in_order_whatever_becomes_of_early_data() {
    with_seeds(
        "early",
        "over_a_bad_network_a_first_message_arrives_once_and_in_order_whatever_becomes_of_early_data",
        40,
        |seed| {
            for (stack, _) in STACKS {
                let ask = ask(stack, true);
                let mut town = with_a_session(seed, &ask, &ask);
                let up = town.client_links.0;
                town.play.world().set_link(up, LinkConfig::default().with_loss(0.3));
                let start = town.play.world().now();
                let c = open(&mut town, &ask, "early,", Manner::default());
                town.play.say(c, "late", last());
                assert!(town.play.run_until(300 * S, |p| p.flow(c).is_over()), "{stack}");
                let server = town.server;
                for s in town.play.accepted(server).to_vec().into_iter().skip(1) {
                    let received = &town.play.flow(s).received;
                    assert!(b"early,late".starts_with(received), "{stack}: {:?}", String::from_utf8_lossy(received));
                }
                // Retransmissions may outlast the ten seconds that a server waits for a handshake.
                if town.play.flow(c).end() != Some(&Over::Closed) {
                    assert!(town.play.world().now() - start > 10 * S, "{stack}: {:?}", town.play.flow(c).end());
                    town.play.end();
                    continue;
                }
                // The echo of what the server has received, over a way back that loses nothing.
                assert_eq!(town.play.flow(c).received, b"early,late", "{stack}");
                town.play.end();
            }
        },
    );
}

#[test]
fn a_server_may_answer_at_length_and_close_before_the_handshake_is_complete() {
    for (stack, _) in STACKS {
        let ask = ask(stack, true);
        let mut town = with_a_session(8, &ask, &ask);
        town.play.serve(town.server, Manner::patient());
        let long: Vec<u8> = (0..300_000u32).map(|i| (i * 7) as u8).collect();
        let c = open(&mut town, &ask, "GET", Manner::patient());
        let s = arrival(&mut town, 1, 3);
        town.play.say_bytes(s, &long, 10_000, true);
        town.play.close(s);
        assert!(town.play.run_until(20 * S, |p| p.flow(c).ended_at.is_some()), "{stack}");
        assert!(town.play.flow(c).received == long, "{stack}: {} bytes", town.play.flow(c).count);
        town.play.close(c);
        assert!(town.play.run_until(20 * S, |p| p.flow(c).is_over() && p.flow(s).is_over()), "{stack}");
        assert_eq!(town.play.flow(s).end(), Some(&Over::Closed), "{stack}");
        town.play.end();
    }
}

#[test]
fn a_server_program_that_does_not_read_does_not_keep_the_handshake_from_its_end() {
    for (stack, _) in STACKS {
        let ask = ask(stack, true);
        let mut town = with_a_session(9, &ask, &ask);
        town.play.serve(town.server, Manner::stalled());
        let c = open(&mut town, &ask, "early", Manner::patient());
        assert!(town.play.run_until(S, |p| p.flow(c).is_ready()), "{stack}");
        town.play.run_for(60 * S);
        let s = town.play.accepted(town.server)[1];
        assert!(!town.play.flow(s).is_over(), "{stack}: {:?}", town.play.flow(s).end());
        town.play.end();
    }
}

#[test]
fn a_client_that_goes_away_after_its_first_flight_is_forgotten_in_time() {
    for (stack, ways) in STACKS {
        for manner in [Manner::patient(), Manner::stalled(), Manner { when_ended: WhenEnded::Close, ..Manner::echo() }]
        {
            let ask = ask(stack, true);
            let mut town = with_a_session(10, &ask, &ask);
            town.play.serve(town.server, manner);
            let c = open(&mut town, &ask, "early", Manner::patient());
            town.play.run_for(WAY * ways - MS);
            // The first flight is on its way, and nothing follows it.
            let (up, down) = town.client_links;
            town.play.world().set_link(up, LinkConfig::default().with_loss(1.0));
            town.play.world().set_link(down, LinkConfig::default().with_loss(1.0));
            let server = town.server;
            assert!(town.play.run_until(S, |p| p.accepted(server).len() == 2), "{stack}");
            let s = town.play.accepted(server)[1];
            assert_eq!(town.play.engine(server).state(s.conn), ConnectionState::Established);
            assert!(town.play.run_until(40 * S, |p| p.flow(s).is_over()), "{stack}: never given up");
            assert!(matches!(town.play.flow(s).end(), Some(Over::Failed(_))), "{stack}: {:?}", town.play.flow(s).end());
            assert!(town.play.flow(s).count <= 5);
            town.play.abort(c);
            town.play.end();
        }
    }
}

#[test]
fn a_race_gives_a_copy_of_the_first_message_to_each_attempt_and_the_winner_sends_it_once() {
    let mut properties = TransportProperties::new();
    properties.prefer(P::ZeroRttMsg);
    let both = Ask::over(&[Stack::Quic, Stack::Tls]).properties(properties);
    for blocked in [false, true] {
        let mut town = with_a_session(11, &both, &both);
        if blocked {
            // UDP was fine last time: the cached outcome fails, and TLS, without a session, has to do.
            use neater_link::{Filter, Match, Protocol};
            let up = town.client_links.0;
            let swallow = Filter::drop(Match::Protocol(Protocol::Udp));
            town.play.world().set_link(up, LinkConfig::default().with_filter(swallow));
        }
        let c = open(&mut town, &both, "early,", Manner::patient());
        town.play.say(c, "late", last());
        let s = arrival(&mut town, 1, 10);
        assert_eq!(town.play.flow(s).received, b"early,late", "UDP blocked: {blocked}");
        let engine = town.play.engine(c.node);
        assert_eq!(engine.stack(c.conn), Some(if blocked { Stack::Tls } else { Stack::Quic }));
        town.play.end();
    }
}

#[test]
fn a_server_that_wants_no_more_is_heard_even_before_the_race_is_decided() {
    let ask = ask(Stack::Quic, true);
    let mut town = with_a_session(12, &ask, &ask);
    town.play.serve(town.server, Manner::patient());
    let request = town.request(&ask);
    // The better address is silent: the other one has to wait for it, and its server answers and goes away meanwhile.
    let silent: std::net::SocketAddr = "192.0.2.99:443".parse().unwrap();
    let c = town
        .play
        .initiate_with(
            town.client,
            &request,
            &[silent.into(), server_v4()],
            None,
            Some("early".into()),
            Manner::patient(),
        )
        .unwrap();
    let s = arrival(&mut town, 1, 5);
    town.play.say(s, "answer", last());
    town.play.release(s);
    assert!(town.play.run_until(20 * S, |p| p.flow(c).ended_at.is_some()));
    assert_eq!(town.play.flow(c).received, b"answer");
    town.play.finish(c);
    assert!(town.play.run_until(20 * S, |p| p.flow(c).is_over()), "it waits for ever");
    town.play.end();
}
