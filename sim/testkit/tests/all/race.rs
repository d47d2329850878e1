//! Racing candidates against each other, and remembering who won.

use neater_base::net::{InterfaceAddr, InterfaceKind};
use neater_engine::{AttemptError, Fate, Reason, SendOptions, Stack};
use neater_testkit::town::{SERVER_NAME, SERVER_V4, SERVER_V6, server_by_name, server_v4, server_v6};
use neater_testkit::{Ask, Fault, FlowId, Manner, Plan, Town};
use neater_tls::SecurityParameters;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
/// From the question to the name server's answer.
const NAMES: Duration = Duration::from_millis(10);
/// RFC 8305 section 8: Connection Attempt Delay.
const DELAY: Duration = Duration::from_millis(250);
/// There and back with [`Plan::new`].
const RTT: Duration = Duration::from_millis(20);

/// Any secure stack.
fn any() -> Ask {
    Ask::over(&[])
}

fn message() -> SendOptions {
    SendOptions::default()
}

/// A town whose server listens with every secure stack.
fn town(plan: Plan) -> Town {
    let mut town = plan.build();
    town.listen(&any(), 443, Manner::echo());
    town
}

/// Connects by name and tells how: the stack, the family, how long it took.
fn connect(town: &mut Town, ask: &Ask) -> (FlowId, Stack, bool, Duration) {
    let flow = town.open_by_name(ask, Manner::default());
    assert!(town.play.run_until(20 * S, |p| p.flow(flow).is_ready()), "{:?}", town.play.flow(flow).end());
    let took = town.play.flow(flow).establishment().unwrap();
    let engine = town.play.engine(flow.node);
    (flow, engine.stack(flow.conn).unwrap(), engine.remote_addr(flow.conn).unwrap().is_ipv6(), took)
}

/// Uses a connection and ends it: it was a good one.
fn finish(town: &mut Town, flow: FlowId) {
    town.play.say(flow, "ping", SendOptions { is_final: true, ..message() });
    assert!(town.play.run_until(10 * S, |p| p.flow(flow).is_over()));
    assert_eq!(town.play.flow(flow).received, b"ping");
}

#[test]
fn on_a_good_path_the_best_candidate_wins_alone() {
    let mut town = town(Plan::new(1));
    let (flow, stack, v6, took) = connect(&mut town, &any());
    assert_eq!((stack, v6, took), (Stack::Quic, true, NAMES + RTT));
    assert_eq!(town.play.stats(town.client).attempts, 1);
    finish(&mut town, flow);
    town.play.end();
}

#[test]
fn where_udp_is_blocked_tls_wins_one_attempt_delay_later() {
    let mut town = town(Plan::new(2).fault(Fault::UdpBlocked));
    let (flow, stack, v6, took) = connect(&mut town, &any());
    // Two round trips of TCP and TLS, and half of that as the grace for the better one that is silent.
    assert_eq!((stack, v6, took), (Stack::Tls, false, NAMES + DELAY + 2 * RTT + RTT));
    finish(&mut town, flow);
    town.play.end();
}

#[test]
fn where_udp_is_rejected_tls_does_not_wait() {
    let mut town = town(Plan::new(3).fault(Fault::UdpRejected));
    let (flow, stack, _, took) = connect(&mut town, &any());
    assert_eq!(stack, Stack::Tls);
    assert!(took < NAMES + 4 * RTT, "{took:?}");
    finish(&mut town, flow);
    town.play.end();
}

#[test]
fn a_dead_family_costs_one_attempt_delay() {
    let mut town = town(Plan::new(4).fault_v6(Fault::BlackHole));
    let (flow, stack, v6, took) = connect(&mut town, &any());
    assert_eq!((stack, v6, took), (Stack::Tls, false, NAMES + DELAY + 2 * RTT + RTT));
    finish(&mut town, flow);
    // With one stack alone the other family is next.
    let quic = Ask::over(&[Stack::Quic]);
    let (flow, stack, v6, took) = connect(&mut town, &quic);
    assert_eq!((stack, v6), (Stack::Quic, false));
    // Another address of the same stack is no better, so there is no grace; the name is known by now.
    assert_eq!(took, DELAY + RTT);
    finish(&mut town, flow);
    town.play.end();
}

#[test]
fn an_unreachable_family_costs_a_round_trip_at_most() {
    let mut town = town(Plan::new(5).fault_v6(Fault::Unreachable));
    let (flow, _, v6, took) = connect(&mut town, &any());
    assert!(!v6);
    assert!(took <= NAMES + 4 * RTT, "{took:?}");
    finish(&mut town, flow);
    town.play.end();
}

#[test]
fn a_dead_family_and_blocked_udp_together_are_left_with_the_second_start() {
    let mut plan = Plan::new(6).fault_v6(Fault::BlackHole).fault_v4(Fault::UdpBlocked);
    plan.v6.0.filters.clear();
    let mut town = town(plan);
    let (flow, stack, v6, took) = connect(&mut town, &any());
    assert_eq!((stack, v6, took), (Stack::Tls, false, NAMES + DELAY + 2 * RTT + RTT));
    assert_eq!(town.play.stats(town.client).attempts, 2);
    finish(&mut town, flow);
    town.play.end();
}

#[test]
fn a_refused_port_lets_the_next_candidate_start_at_once() {
    let mut town = Plan::new(7).build();
    town.listen(&Ask::over(&[Stack::Tls]), 443, Manner::echo());
    let (flow, stack, _, took) = connect(&mut town, &any());
    // The refusal takes one round trip, TCP and TLS two.
    assert_eq!((stack, took), (Stack::Tls, NAMES + 3 * RTT));
    finish(&mut town, flow);
    town.play.end();
}

#[test]
fn a_refused_tcp_port_lets_the_other_family_start_at_once() {
    let mut town = Plan::new(8).build();
    let tls = Ask::over(&[Stack::Tls]);
    let request = town.compile(town.server, neater_property::Role::Listen, &tls).unwrap();
    let local = SocketAddr::new(SERVER_V4.parse().unwrap(), 443);
    town.play.serve(town.server, Manner::echo());
    town.play.listen(town.server, &request, &[local.into()]).unwrap();
    let (flow, _, v6, took) = connect(&mut town, &tls);
    assert_eq!((v6, took), (false, NAMES + 3 * RTT));
    finish(&mut town, flow);
    town.play.end();
}

#[test]
fn a_path_of_400_milliseconds_works_and_its_losers_leave_no_trace() {
    let mut town = town(Plan::new(9).delay(200 * MS));
    let (flow, stack, v6, took) = connect(&mut town, &any());
    assert_eq!((stack, v6, took), (Stack::Quic, true, NAMES + 400 * MS));
    finish(&mut town, flow);
    assert_eq!(town.play.accepted(town.server).len(), 1, "no loser became a connection");
    town.play.end();
}

#[test]
fn each_loser_costs_the_server_one_short_lived_connection_at_most() {
    // So slow that every candidate is started before the first answer.
    for (v4, v6) in [(700, 700), (150, 600), (600, 150), (130, 131), (131, 130)] {
        let mut town = town(Plan::new(10).delays(v4 * MS, v6 * MS));
        let flow = town.open_by_name(&any(), Manner::default());
        assert!(town.play.run_until(30 * S, |p| p.flow(flow).is_ready()), "{:?}", town.play.flow(flow).end());
        let losers = town.play.stats(town.client).attempts - 1;
        town.play.run_for(5 * S);
        let server = town.play.stats(town.server);
        let received = town.play.accepted(town.server).len() as u64;
        assert!(received <= 1 + losers, "{received} connections of {losers} losers");
        let won = town.play.engine(town.client).candidates(flow.conn);
        assert_eq!(won.iter().filter(|c| c.fate == Fate::Won).count(), 1, "{won:?}");
        assert!(won.iter().filter(|c| c.started.is_some()).count() as u64 == 1 + losers, "{won:?}");
        // What the losers left is gone: one connection, at most; its own socket if TCP carries it.
        assert!(server.connections <= 1 && server.quic_connections <= 1, "{server:?}");
        finish(&mut town, flow);
        town.play.end();
    }
}

#[test]
fn a_second_connection_makes_one_attempt_without_asking_anybody() {
    for fault in [Fault::None, Fault::UdpBlocked] {
        let mut town = town(Plan::new(11).fault(fault));
        let (flow, first, ..) = connect(&mut town, &any());
        finish(&mut town, flow);
        let (attempts, questions) = (town.play.stats(town.client).attempts, town.names.questions());
        let (flow, stack, _, took) = connect(&mut town, &any());
        let trips = if stack == Stack::Tls { 2 } else { 1 };
        assert_eq!((stack, took), (first, RTT * trips));
        assert_eq!(town.play.stats(town.client).attempts, attempts + 1);
        assert_eq!(town.play.stats(town.client).cache_hits, 1);
        assert_eq!(town.names.questions(), questions);
        finish(&mut town, flow);
        town.play.end();
    }
}

/// Blocks UDP to the server from now on.
fn block_udp(town: &mut Town) {
    for way in [town.v4, town.v6] {
        let config = town.play.world().link_config(way.to);
        let rule = neater_link::Filter::drop(neater_link::Match::Protocol(neater_link::Protocol::Udp));
        town.play.world().set_link(way.to, config.with_filter(rule));
    }
}

#[test]
fn a_cached_outcome_that_went_dead_falls_back_within_an_attempt_delay() {
    let mut town = town(Plan::new(12));
    let (flow, ..) = connect(&mut town, &any());
    finish(&mut town, flow);
    block_udp(&mut town);
    let before = town.play.stats(town.client).attempts;
    let (flow, stack, v6, took) = connect(&mut town, &any());
    // The cached attempt counts as the first start of the race: the second one follows after one delay, and the first is
    // not made again. The grace is for it.
    assert_eq!((stack, v6, took), (Stack::Tls, false, DELAY + 2 * RTT + RTT));
    assert_eq!(town.play.stats(town.client).attempts, before + 2);
    finish(&mut town, flow);
    // And the next one goes straight there.
    let (flow, stack, _, took) = connect(&mut town, &any());
    assert_eq!((stack, took), (Stack::Tls, 2 * RTT));
    finish(&mut town, flow);
    town.play.end();
}

#[test]
fn a_cached_outcome_that_is_refused_falls_back_at_once() {
    let mut town = Plan::new(13).build();
    let quic = town.listen(&Ask::over(&[Stack::Quic]), 443, Manner::echo());
    let (flow, stack, ..) = connect(&mut town, &any());
    assert_eq!(stack, Stack::Quic);
    finish(&mut town, flow);
    town.play.run_for(S);
    town.play.engine(town.server).stop(quic);
    town.play.run_for(60 * S);
    town.listen(&Ask::over(&[Stack::Tls]), 443, Manner::echo());
    let (flow, stack, _, took) = connect(&mut town, &any());
    assert_eq!(stack, Stack::Tls);
    // The refusal of the cached attempt, the name anew, the refusal of the first candidate, TCP and TLS.
    assert!(took <= RTT + NAMES + RTT + 2 * RTT, "{took:?}");
    finish(&mut town, flow);
    town.play.end();
}

#[test]
fn a_slow_cached_outcome_is_not_given_up() {
    let mut town = town(Plan::new(14).delay(200 * MS));
    let (flow, ..) = connect(&mut town, &any());
    finish(&mut town, flow);
    let (flow, stack, v6, took) = connect(&mut town, &any());
    assert_eq!((stack, v6, took), (Stack::Quic, true, 400 * MS));
    finish(&mut town, flow);
    town.play.end();
}

#[test]
fn another_network_has_a_history_of_its_own() {
    let mut town = town(Plan::new(15));
    let (flow, ..) = connect(&mut town, &any());
    finish(&mut town, flow);
    let iface = town.client_iface;
    let moved: IpAddr = "192.0.2.77".parse().unwrap();
    let address = |addr| InterfaceAddr { addr, prefix: 24, temporary: false, deprecated: false };
    town.play.world().add_address(iface, address(moved));
    town.play.run_for(10 * MS);
    let before = town.play.stats(town.client);
    let (flow, ..) = connect(&mut town, &any());
    finish(&mut town, flow);
    assert_eq!(town.play.stats(town.client).cache_hits, before.cache_hits, "elsewhere, nothing is known");
    // Back where we were, it is.
    town.play.world().remove_address(iface, moved);
    town.play.run_for(10 * MS);
    let (flow, ..) = connect(&mut town, &any());
    finish(&mut town, flow);
    assert_eq!(town.play.stats(town.client).cache_hits, before.cache_hits + 1);
    town.play.end();
}

#[test]
fn a_connection_that_fails_right_after_set_up_teaches_the_cache() {
    let tls = Ask::over(&[Stack::Tls]);
    let mut town = Plan::new(16).build();
    town.listen(&tls, 443, Manner::patient());
    let (flow, ..) = connect(&mut town, &tls);
    let me = town.server;
    assert!(town.play.run_until(S, |p| p.accepted(me).len() == 1));
    let peer = town.play.accepted(me)[0];
    town.play.abort(peer);
    assert!(town.play.run_until(S, |p| p.flow(flow).is_over()));
    let before = town.play.stats(town.client);
    let (flow, ..) = connect(&mut town, &tls);
    assert_eq!(town.play.stats(town.client).cache_hits, before.cache_hits, "the outcome was no good");
    town.play.release(flow);
    town.play.end();
}

#[test]
fn isolated_sessions_and_other_needs_share_no_history() {
    let mut town = town(Plan::new(17));
    let (flow, ..) = connect(&mut town, &any());
    finish(&mut town, flow);
    let mut isolated = any();
    isolated.options.isolation = 7;
    let framed = any().framed();
    for ask in [isolated, framed] {
        let before = town.play.stats(town.client).cache_hits;
        let (flow, ..) = connect(&mut town, &ask);
        assert_eq!(town.play.stats(town.client).cache_hits, before);
        town.play.release(flow);
    }
    town.play.end();
}

#[test]
fn where_security_is_required_cleartext_is_never_tried() {
    let mut town = Plan::new(18).build();
    // Somebody listens in the clear at the port; nothing else does.
    town.listen(&Ask::over(&[Stack::Tcp]), 443, Manner::echo());
    let flow = town.open_by_name(&any().within(20 * S), Manner::default());
    assert!(town.play.run_until(30 * S, |p| p.flow(flow).is_over()));
    let error = town.play.flow(flow).establishment_error().expect("not established");
    assert!(error.candidates.iter().all(|c| c.stack.is_secure()), "{error}");
    assert!(error.candidates.iter().all(|c| matches!(c.fate, Fate::Failed(_))), "{error}");
    assert!(error.candidates.iter().any(|c| matches!(c.fate, Fate::Failed(AttemptError::Tls(_)))), "{error}");
    town.play.end();
}

#[test]
fn an_error_lists_every_candidate_with_what_became_of_it() {
    let mut town = Plan::new(19).fault_v6(Fault::BlackHole).build();
    let flow = town.open_by_name(&any().within(2 * S), Manner::default());
    assert!(town.play.run_until(3 * S, |p| p.flow(flow).is_over()));
    let error = town.play.flow(flow).establishment_error().expect("not established").clone();
    assert_eq!(town.play.flow(flow).over.as_ref().unwrap().0 - town.play.flow(flow).opened_at, 2 * S);
    assert_eq!(error.reason, Reason::Timeout, "{error}");
    let mut seen: Vec<_> = error.candidates.iter().map(|c| (c.stack, c.addr.ip())).collect();
    seen.sort();
    let (v4, v6) = (SERVER_V4.parse::<IpAddr>().unwrap(), SERVER_V6.parse::<IpAddr>().unwrap());
    assert_eq!(seen, [(Stack::Tls, v4), (Stack::Tls, v6), (Stack::Quic, v4), (Stack::Quic, v6)], "{error}");
    for c in &error.candidates {
        let refused = matches!(c.fate, Fate::Failed(AttemptError::Net(e)) if e.kind == neater_base::net::ErrorKind::ConnectionRefused);
        assert_eq!(refused, c.addr.is_ipv4(), "{error}");
    }
    let text = error.to_string();
    assert!(text.contains(SERVER_V4) && text.contains(SERVER_V6) && text.contains("connection refused"), "{text}");
    assert!(text.contains(SERVER_NAME), "{text}");
    town.play.end();
}

#[test]
fn when_every_candidate_fails_the_error_comes_at_once() {
    let mut town = Plan::new(20).build();
    let flow = town.open_by_name(&any(), Manner::default());
    assert!(town.play.run_until(3 * S, |p| p.flow(flow).is_over()));
    let error = town.play.flow(flow).establishment_error().expect("not established");
    assert_eq!((error.reason, error.candidates.len()), (Reason::EstablishmentFailed, 4), "{error}");
    // Four refusals, one after the other.
    let took = town.play.flow(flow).over.as_ref().unwrap().0 - town.play.flow(flow).opened_at;
    assert_eq!(took, NAMES + 4 * RTT);
    town.play.end();
}

#[test]
fn two_endpoints_for_one_service_are_raced_like_addresses() {
    let mut town = town(Plan::new(21).fault_v6(Fault::BlackHole));
    let flow = town.open_to(&Ask::over(&[Stack::Tls]), &[server_v6(), server_v4()], Manner::default());
    assert!(town.play.run_until(5 * S, |p| p.flow(flow).is_ready()));
    assert!(!town.play.engine(flow.node).remote_addr(flow.conn).unwrap().is_ipv6());
    finish(&mut town, flow);
    town.play.end();
}

#[test]
fn a_connection_survives_a_change_of_address_where_its_transport_can() {
    let quic = Ask::over(&[Stack::Quic]);
    let mut properties = neater_property::TransportProperties::new();
    properties.set_multipath(neater_property::Multipath::Active);
    let quic = quic.properties(properties);
    let mut town = Plan::new(22).build();
    town.listen(&quic, 443, Manner::echo());
    let flow = town.open(&quic, Manner::default());
    town.play.say(flow, "before ", message());
    assert!(town.play.run_until(S, |p| p.flow(flow).count == 7));
    // The old address goes, a new one comes.
    let world = town.play.world().clone();
    let wifi = world.add_interface(
        town.play.host(town.client),
        "wlan0",
        InterfaceKind::WiFi,
        &["203.0.113.9".parse().unwrap()],
    );
    world.attach(wifi, neater_link::LinkConfig::delay(30 * MS), neater_link::LinkConfig::delay(30 * MS));
    world.set_interface_up(town.client_iface, false);
    town.play.run_for(100 * MS);
    town.play.say(flow, "after", SendOptions { is_final: true, ..message() });
    assert!(town.play.run_until(10 * S, |p| p.flow(flow).is_over()), "{:?}", town.play.flow(flow));
    assert_eq!(town.play.flow(flow).received, b"before after");
    assert!(town.play.flow(flow).path_changes > 0);
    town.play.end();
}

#[test]
fn a_name_and_its_address_keep_apart_what_they_have_learnt() {
    let mut town = town(Plan::new(23));
    let (flow, ..) = connect(&mut town, &any());
    finish(&mut town, flow);
    let flow = town.open_to(&any(), &[server_v4()], Manner::default());
    assert!(town.play.run_until(5 * S, |p| p.flow(flow).is_ready()));
    assert_eq!(town.play.stats(town.client).cache_hits, 0);
    finish(&mut town, flow);
    let flow = town.open_to(&any(), &[server_by_name()], Manner::default());
    assert!(town.play.run_until(5 * S, |p| p.flow(flow).is_ready()));
    assert_eq!(town.play.stats(town.client).cache_hits, 1);
    finish(&mut town, flow);
    town.play.end();
}

/// Security as it comes, but for a judgement on who may be talked to with it.
fn judged(trusted: bool) -> Ask {
    let mut security = SecurityParameters::opportunistic();
    security.trust_verification = Some(std::sync::Arc::new(move |_: &[_], _: &str| trusted));
    Ask { security: Some(security), ..any() }
}

#[test]
fn a_peer_that_was_refused_gets_nothing_in_the_clear() {
    for plan in [Plan::new(5), Plan::new(6).fault(Fault::UdpBlocked), Plan::new(7).delay(90 * MS)] {
        let mut town = town(plan);
        let flow = town.open_by_name(&judged(false), Manner::default());
        town.play.say(flow, "secret", message());
        let over = town.play.run_until(90 * S, |p| p.flow(flow).is_over());
        assert!(over, "{:?}", town.play.engine(flow.node).timeline(flow.conn));
        let error = town.play.flow(flow).establishment_error().expect("no connection");
        let bare: Vec<_> = error.candidates.iter().filter(|c| c.stack == Stack::Tcp).collect();
        assert!(!bare.is_empty(), "{error}");
        for c in bare {
            assert!(matches!(c.fate, Fate::Failed(AttemptError::PeerRefused)), "{:?}", c.fate);
        }
        assert!(town.play.accepted(town.server).is_empty(), "the server has a connection");
        town.play.end();
    }
}

#[test]
fn opportunistic_security_takes_a_trusted_peer_with_it_and_a_bare_one_without() {
    let mut with = town(Plan::new(8));
    assert_eq!(connect(&mut with, &judged(true)).1, Stack::Quic);
    let mut without = Plan::new(9).build();
    without.listen(&Ask::over(&[Stack::Tcp]), 443, Manner::echo());
    assert_eq!(connect(&mut without, &judged(false)).1, Stack::Tcp);
}

/// The server's place is taken by somebody who has another certificate, and nobody's tickets.
fn take_its_place(town: &mut Town) {
    use neater_testkit::security;
    let (server, world) = (town.server, town.play.world().clone());
    let config = neater_engine::EngineConfig::new([9; 32], security::crypto(9, 2));
    // The sockets of a host are closed with the last that holds them: before there are others.
    let nowhere = world.add_host("nowhere");
    *town.play.engine(server) = neater_engine::Engine::new(world.net(nowhere), config.clone());
    let host = town.play.host(server);
    *town.play.engine(server) = neater_engine::Engine::new(world.net(host), config);
    let mut security = security::server_security();
    security.server_certificates = vec![security::stranger()];
    town.listen(&Ask { security: Some(security), ..any() }, 443, Manner::echo());
}

#[test]
fn a_peer_that_is_refused_when_it_comes_from_the_cache_gets_nothing_in_the_clear_either() {
    for plan in [Plan::new(24), Plan::new(25).fault(Fault::UdpBlocked), Plan::new(26).delay(200 * MS)] {
        let mut security = SecurityParameters::opportunistic();
        let pinned = neater_tls::Pin::of(&neater_testkit::security::identity().chain[0]);
        security.trust = neater_tls::Trust::Pinned(vec![pinned]);
        let ask = Ask { security: Some(security), ..any() };
        let mut town = plan.zone(format!("$TTL 3600\n{}", neater_testkit::town::default_zone())).build();
        town.listen(&any(), 443, Manner::echo());
        let (flow, stack, ..) = connect(&mut town, &ask);
        assert!(stack.is_secure());
        finish(&mut town, flow);
        town.play.run_for(20 * S);
        take_its_place(&mut town);
        let before = town.play.accepted(town.server).len();
        for hits in [1, 1] {
            let flow = town.open_by_name(&ask, Manner::default());
            town.play.say(flow, "secret", message());
            let over = town.play.run_until(90 * S, |p| p.flow(flow).is_over());
            let timeline = town.play.engine(flow.node).timeline(flow.conn);
            let stack = town.play.engine(flow.node).stack(flow.conn);
            assert!(over, "{stack:?} {:?} {timeline:?}", town.play.flow(flow));
            assert_eq!(town.play.stats(town.client).cache_hits, hits, "what was refused is not what is tried first");
            let error = town.play.flow(flow).establishment_error();
            let error = error.unwrap_or_else(|| panic!("{:?} {timeline:?}", town.play.flow(flow).end()));
            let bare = error.candidates.iter().filter(|c| c.stack == Stack::Tcp);
            assert!(bare.clone().count() > 0, "{error}");
            for c in bare {
                assert!(matches!(c.fate, Fate::Failed(AttemptError::PeerRefused)), "{error}");
            }
            assert_eq!(town.play.accepted(town.server).len(), before, "{timeline:?}");
        }
    }
}
