//! Listeners that stop and come back, and what they may deliver.

use neater_engine::{ConnectionError, LocalEndpoint, RemoteEndpoint, SendOptions, Stack};
use neater_property::Role;
use neater_testkit::{Ask, FlowId, Manner, Over, Plan, Town, security};
use neater_tls::{ClientAuthentication, TlsError, Trust};
use std::net::SocketAddr;
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn message() -> SendOptions {
    SendOptions::default()
}

/// The same with clients that must show who they are.
fn strict(ask: &Ask) -> Ask {
    let mut security = ask.security(Role::Listen);
    let dtls = ask.stacks.contains(&Stack::Dtls);
    let trusted = if dtls { security::identity_p256() } else { security::identity() };
    security.client_authentication = ClientAuthentication::Required;
    security.trust = Trust::Only(trusted.chain.clone());
    Ask { security: Some(security), ..ask.clone() }
}

#[test]
fn a_handshake_that_one_listener_began_is_not_delivered_to_the_next_one() {
    // The client's finish may be under way already, or even its hello.
    for (stack, times) in [(Stack::Quic, [15, 25, 29]), (Stack::Dtls, [15, 35, 49]), (Stack::Tls, [15, 35, 49])] {
        for after in times {
            let ask = Ask::over(&[stack]);
            let mut town = Plan::new(1).build();
            let first = town.listen(&ask, 443, Manner::echo());
            let flow = town.open(&ask.clone().within(5 * S), Manner::patient());
            town.play.say(flow, "let me in", message());
            town.play.run_for(MS * after);
            town.play.engine(town.server).stop(first);
            assert!(town.play.accepted(town.server).is_empty(), "{stack}: too late for the test");
            town.listen(&strict(&ask), 443, Manner::echo());
            town.play.run_for(10 * S);
            assert!(town.play.accepted(town.server).is_empty(), "{stack}, {after} ms: nobody knows who that is");
            // Of DTLS 1.3 a client's handshake ends before the server's, and silence says nothing.
            assert!(town.play.flow(flow).is_over() || stack == Stack::Dtls, "{stack}, {after} ms");
            town.play.end();
        }
    }
}

/// With TLS 1.3 a client has sent its last flight before the server can refuse it (RFC 8446 section
/// 4.4.2.4): the alert comes together with the reset that its first bytes are answered by, and a
/// write that meets this one reports that one.
#[test]
fn a_client_without_the_certificate_that_is_wanted_learns_that_from_a_write() {
    for (reads, between) in [(false, 0), (false, 10), (false, 19), (false, 30), (true, 0), (true, 10), (true, 30)] {
        let case = format!("reads: {reads}, every {between} ms");
        let ask = Ask::over(&[Stack::Tls]);
        let mut town = Plan::new(7).build();
        town.listen(&strict(&ask), 443, Manner::echo());
        let flow = town.open(&ask, if reads { Manner::patient() } else { Manner::stalled() });
        for _ in 0..50 {
            if !town.play.flow(flow).is_over() {
                town.play.say(flow, vec![1; 1000], message());
            }
            town.play.run_for(MS * between + MS);
        }
        town.play.run_for(S);
        let end = town.play.flow(flow).end();
        let Some(Over::Failed(ConnectionError::Tls(TlsError::RefusedByPeer(alert)))) = end else {
            panic!("{case}: {end:?}")
        };
        assert_eq!(u8::from(*alert), 116, "{case}: certificate_required");
        assert!(town.play.accepted(town.server).is_empty(), "{case}");
        town.play.end();
    }
}

/// A session to which the server may deliver.
fn visit(town: &mut Town, ask: &Ask) -> FlowId {
    let flow = town.open(&ask.clone().within(5 * S), Manner::patient());
    town.play.say(flow, "x", message());
    flow
}

#[test]
fn no_more_groups_are_delivered_than_may_be() {
    let ask = Ask::over(&[Stack::Quic]);
    let mut town = Plan::new(2).build();
    let listener = town.listen(&ask, 443, Manner::echo());
    let engine = town.play.engine(town.server);
    engine.deliver_groups(listener, true);
    engine.set_new_connection_limit(listener, Some(3));
    for _ in 0..6 {
        visit(&mut town, &ask);
    }
    town.play.run_for(8 * S);
    let delivered = |town: &Town| {
        let log = town.play.log(town.server);
        log.iter().filter(|(_, n)| matches!(n.event, neater_engine::Event::GroupReceived(_))).count()
    };
    assert_eq!(delivered(&town), 3);
    town.play.engine(town.server).set_new_connection_limit(listener, Some(1));
    for _ in 0..3 {
        visit(&mut town, &ask);
    }
    town.play.run_for(8 * S);
    assert_eq!(delivered(&town), 4);
}

#[test]
fn no_more_sessions_of_datagrams_are_delivered_than_may_be() {
    let ask = Ask::over(&[Stack::QuicDatagram]);
    let mut town = Plan::new(3).build();
    let listener = town.listen(&ask, 443, Manner::echo());
    town.play.engine(town.server).set_new_connection_limit(listener, Some(3));
    for _ in 0..6 {
        visit(&mut town, &ask);
    }
    town.play.run_for(8 * S);
    assert_eq!(town.play.accepted(town.server).len(), 3);
    town.play.end();
}

#[test]
fn a_listener_may_come_back_to_the_port_of_connections_that_live() {
    for stack in [Stack::Udp, Stack::Dtls, Stack::Quic] {
        let ask = Ask::over(&[stack]);
        let mut town = Plan::new(4).build();
        let mut listener = town.listen(&ask, 443, Manner::echo());
        let mut flows = Vec::new();
        for round in 0..3 {
            let flow = town.open(&ask, Manner::patient());
            town.play.say(flow, "hello", message());
            assert!(town.play.run_until(5 * S, |p| p.flow(flow).count == 5), "{stack}");
            flows.push(flow);
            assert_eq!(town.play.accepted(town.server).len(), round + 1, "{stack}");
            town.play.engine(town.server).stop(listener);
            town.play.run_for(S);
            // Nobody listens now; those that are there go on.
            let refused = town.open(&ask.clone().within(S), Manner::patient());
            town.play.say(refused, "hello", message());
            town.play.run_for(2 * S);
            assert_eq!(town.play.flow(refused).count, 0, "{stack}");
            town.play.release(refused);
            listener = town.listen(&ask, 443, Manner::echo());
            for flow in &flows {
                let before = town.play.flow(*flow).count;
                town.play.say(*flow, "still", message());
                let goes_on = town.play.run_until(5 * S, |p| p.flow(*flow).count == before + 5);
                assert!(goes_on, "{stack}, round {round}: {:?}", town.play.flow(*flow).end());
            }
        }
        town.play.end();
    }
}

#[test]
fn a_port_is_free_when_the_last_connection_on_it_has_gone() {
    for stack in [Stack::Udp, Stack::Dtls] {
        let ask = Ask::over(&[stack]);
        let mut town = Plan::new(5).build();
        let listener = town.listen(&ask, 443, Manner::echo());
        let flow = visit(&mut town, &ask);
        assert!(town.play.run_until(5 * S, |p| p.flow(flow).count == 1), "{stack}");
        town.play.engine(town.server).stop(listener);
        // Another protocol cannot have it meanwhile, and says so.
        let other = if stack == Stack::Udp { Stack::Dtls } else { Stack::Udp };
        let request = town.compile(town.server, Role::Listen, &Ask::over(&[other])).unwrap();
        let local = [LocalEndpoint::new().with_port(443)];
        assert!(town.play.engine(town.server).listen(&request, &local).is_err(), "{stack}");
        let server = town.play.accepted(town.server)[0];
        town.play.abort(server);
        town.play.run_for(S);
        town.play.listen(town.server, &request, &local).unwrap();
        town.play.end();
    }
}

/// Who accepts goes on in the next turn, however many timers there are.
#[test]
fn a_crowd_is_let_in_a_turn_at_a_time() {
    let ask = Ask::over(&[Stack::Tcp]);
    let mut town = Plan::new(5).build();
    town.listen(&ask, 443, Manner::echo());
    let request = town.request(&ask);
    let nowhere = RemoteEndpoint::from(SocketAddr::new("192.0.2.1".parse().unwrap(), 9));
    for _ in 0..50 {
        let remotes = std::slice::from_ref(&nowhere);
        town.play.initiate(town.server, &request, remotes, Manner::patient()).expect("opened");
    }
    town.play.run_for(100 * MS);
    for _ in 0..300 {
        town.open(&ask, Manner::patient());
    }
    let world = town.play.world().clone();
    let client = town.client;
    for _ in 0..100 {
        town.play.engine(client).turn();
        world.run_until(world.now() + MS);
    }
    let engine = town.play.engine(town.server);
    let before = engine.stats().connections;
    engine.turn();
    let let_in = engine.stats().connections - before;
    assert!((1..=128).contains(&let_in), "{let_in} in one turn");
    town.play.run_for(10 * S);
    assert_eq!(town.play.accepted(town.server).len(), 300);
}
