//! What an establishment teaches the next one: what was no good is put back, for a while, on its own network, and never
//! excluded.

use neater_base::Rng;
use neater_base::net::{InterfaceAddr, InterfaceKind};
use neater_dns::Zone;
use neater_engine::{BadCause, ConnectionError, Fate, LocalEndpoint, SendOptions, ServiceOutcome, Stack, Step};
use neater_link::{Filter, LinkConfig, Match, Protocol};
use neater_property::TransportProperties;
use neater_testkit::town::{SERVER_NAME, SERVER_V4, SERVER_V6, server_v4, server_v6};
use neater_testkit::{Ask, Fault, FlowId, Manner, Over, Plan, Town, for_each_seed};
use neater_tls::SecurityParameters;
use std::net::IpAddr;
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
/// There and back between the client and the name server.
const NAMES: Duration = Duration::from_millis(10);
/// RFC 8305 section 8: Connection Attempt Delay.
const DELAY: Duration = Duration::from_millis(250);
/// How long a mark lives, the first time.
const BAD: Duration = Duration::from_secs(60);
/// How long an outcome lives.
const LIFETIME: Duration = Duration::from_secs(600);
/// How long a peer may be silent before that counts against it.
const FAIR: Duration = Duration::from_secs(1);
/// What rounding and processing may cost.
const SLACK: Duration = Duration::from_millis(5);
const MOVED_V4: &str = "198.51.100.77";
const MOVED_V6: &str = "2001:db8:1::77";

/// Any secure stack.
fn any() -> Ask {
    Ask::over(&[])
}

/// Names that are soon forgotten, so that a server may move.
fn zone(v4: &str, v6: &str) -> String {
    format!("$TTL 1\n{SERVER_NAME} A {v4}\n{SERVER_NAME} AAAA {v6}\n")
}

fn town(plan: Plan) -> Town {
    let mut town = plan.zone(zone(SERVER_V4, SERVER_V6)).build();
    town.listen(&any(), 443, Manner::echo());
    town
}

/// A round trip by either family, from a seed.
fn plan(seed: u64, max_rtt: u64) -> (Plan, Duration) {
    let mut rng = Rng::from_number(seed ^ 0x006c_6573_736f_6e73);
    let half = MS * (1 + rng.below(max_rtt / 2) as u32);
    (Plan::new(seed).delay(half), 2 * half)
}

/// Connects by name, and tells by what and how long it took.
fn connect(town: &mut Town, ask: &Ask) -> (FlowId, Stack, Duration) {
    let flow = town.open_by_name(ask, Manner::default());
    assert!(town.play.run_until(30 * S, |p| p.flow(flow).is_ready()), "{:?}", town.play.flow(flow).end());
    let took = town.play.flow(flow).establishment().unwrap();
    (flow, town.play.engine(flow.node).stack(flow.conn).unwrap(), took)
}

/// Uses a connection and ends it: it was a good one.
fn finish(town: &mut Town, flow: FlowId) {
    town.play.say(flow, "ping", SendOptions { is_final: true, ..SendOptions::default() });
    assert!(town.play.run_until(30 * S, |p| p.flow(flow).is_over()), "{:?}", town.play.flow(flow));
    assert_eq!(town.play.flow(flow).received, b"ping");
}

/// Connects, uses it, and tells by what and how long it took.
fn visit(town: &mut Town, ask: &Ask) -> (Stack, Duration) {
    let (flow, stack, took) = connect(town, ask);
    finish(town, flow);
    (stack, took)
}

/// What was tried for a connection, in order.
fn tried(town: &mut Town, flow: FlowId) -> Vec<Stack> {
    let mut all = town.play.engine(flow.node).candidates(flow.conn);
    all.retain(|c| c.started.is_some());
    all.sort_by_key(|c| c.started);
    all.iter().map(|c| c.stack).collect()
}

fn has_doubts(town: &mut Town, flow: FlowId) -> bool {
    town.play.engine(flow.node).candidates(flow.conn).iter().any(|c| c.doubt.is_some())
}

fn timeline(town: &mut Town, flow: FlowId) -> String {
    let steps = town.play.engine(flow.node).timeline(flow.conn);
    steps.iter().map(|t| format!("{:?} {}\n", t.at, t.step)).collect()
}

/// Lets UDP through to the server and back again, or no longer.
fn set_udp(town: &mut Town, passes: bool) {
    let world = town.play.world().clone();
    for link in [town.v4.to, town.v4.from, town.v6.to, town.v6.from] {
        let mut config = world.link_config(link);
        config.filters.clear();
        if !passes {
            config = config.with_filter(Filter::drop(Match::Protocol(Protocol::Udp)));
        }
        world.set_link(link, config);
    }
}

fn address(addr: &str, prefix: u8) -> InterfaceAddr {
    InterfaceAddr { addr: addr.parse().unwrap(), prefix, temporary: false, deprecated: false }
}

/// The server gets other addresses; nobody is at the old ones any more.
fn move_server(town: &mut Town) {
    let world = town.play.world().clone();
    for (iface, old, new, prefix) in
        [(town.v4.iface, SERVER_V4, MOVED_V4, 24), (town.v6.iface, SERVER_V6, MOVED_V6, 64)]
    {
        world.add_address(iface, address(new, prefix));
        world.remove_address(iface, old.parse().unwrap());
    }
    town.names.set_zone(Zone::parse(&zone(MOVED_V4, MOVED_V6)).unwrap());
    town.play.run_for(2 * S);
}

#[test]
fn swallowed_udp_costs_the_first_connection_alone_even_when_the_server_moves() {
    for_each_seed(
        "lessons",
        "swallowed_udp_costs_the_first_connection_alone_even_when_the_server_moves",
        100,
        |seed| {
            let (plan, rtt) = plan(seed, 100);
            let mut town = town(plan.fault(Fault::UdpBlocked));
            let (stack, took) = visit(&mut town, &any());
            assert_eq!((stack, took), (Stack::Tls, NAMES + DELAY + 2 * rtt + rtt));
            // The outcome is remembered.
            assert_eq!(visit(&mut town, &any()), (Stack::Tls, 2 * rtt));
            town.play.run_for(FAIR);
            move_server(&mut town);
            let (flow, stack, took) = connect(&mut town, &any());
            assert_eq!(stack, Stack::Tls);
            assert_eq!(tried(&mut town, flow), [Stack::Tls], "{}", timeline(&mut town, flow));
            // The attempt at the old address may be refused or silent; then nothing is lost to QUIC.
            assert!(took <= DELAY + NAMES + 2 * rtt + SLACK, "{took:?}: {}", timeline(&mut town, flow));
            let told = timeline(&mut town, flow);
            assert!(told.contains("put back: QUIC to [2001:db8:1::1]:443 did not answer"), "{told}");
            finish(&mut town, flow);
            town.play.end();
        },
    );
}

#[test]
fn what_was_bad_is_tried_again_when_its_mark_expires() {
    for_each_seed("lessons", "what_was_bad_is_tried_again_when_its_mark_expires", 30, |seed| {
        let (plan, rtt) = plan(seed, 100);
        let mut town = town(plan.fault(Fault::UdpBlocked));
        assert_eq!(visit(&mut town, &any()).0, Stack::Tls);
        town.play.run_for(BAD - 10 * S);
        // What the name meant is asked for again, and the outcome is gone with it.
        assert_eq!(visit(&mut town, &any()), (Stack::Tls, NAMES + 2 * rtt), "the mark lives");
        town.play.run_for(20 * S);
        // Still blocked: the next mark lives twice as long.
        let (stack, took) = visit(&mut town, &any());
        assert_eq!((stack, took), (Stack::Tls, NAMES + DELAY + 3 * rtt));
        town.play.run_for(2 * BAD - 10 * S);
        assert_eq!(visit(&mut town, &any()), (Stack::Tls, NAMES + 2 * rtt), "the second mark lives");
        set_udp(&mut town, true);
        town.play.run_for(20 * S);
        assert_eq!(visit(&mut town, &any()), (Stack::Quic, NAMES + rtt), "and QUIC is back");
        assert_eq!(visit(&mut town, &any()), (Stack::Quic, rtt));
        town.play.end();
    });
}

#[test]
fn one_forged_error_keeps_a_protocol_away_for_a_minute_at_most() {
    for_each_seed("lessons", "one_forged_error_keeps_a_protocol_away_for_a_minute_at_most", 30, |seed| {
        let (plan, rtt) = plan(seed, 100);
        let mut town = town(plan.fault(Fault::UdpRejected));
        let (flow, stack, _) = connect(&mut town, &any());
        assert_eq!(stack, Stack::Tls, "{}", timeline(&mut town, flow));
        // From here on nobody says such things any more.
        set_udp(&mut town, true);
        finish(&mut town, flow);
        assert_eq!(visit(&mut town, &any()).0, Stack::Tls);
        town.play.run_for(BAD);
        assert_eq!(visit(&mut town, &any()), (Stack::Quic, NAMES + rtt));
        town.play.end();
    });
}

#[test]
fn a_slow_path_is_not_taken_for_a_dead_one() {
    for_each_seed("lessons", "a_slow_path_is_not_taken_for_a_dead_one", 50, |seed| {
        let mut rng = Rng::from_number(seed);
        // IPv6 answers when IPv4 has long won.
        let v6 = MS * (180 + rng.below(250) as u32);
        let v4 = MS * (1 + rng.below(10) as u32);
        // What the name means holds for longer than the outcome.
        let zone = format!("$TTL 3600\n{}", neater_testkit::town::default_zone());
        let mut town = Plan::new(seed).delays(v4, v6).zone(zone).build();
        town.listen(&any(), 443, Manner::echo());
        let (flow, stack, _) = connect(&mut town, &any());
        assert_eq!(stack, Stack::Tls);
        assert_eq!(tried(&mut town, flow), [Stack::Quic, Stack::Tls]);
        finish(&mut town, flow);
        town.play.run_for(2 * S);
        // The outcome lives its full time, for nothing better is bad; and then nothing is said against anybody.
        town.play.run_for(LIFETIME - 20 * S);
        assert_eq!(visit(&mut town, &any()), (Stack::Tls, 4 * v4));
        town.play.run_for(20 * S);
        let (flow, ..) = connect(&mut town, &any());
        assert!(!has_doubts(&mut town, flow), "{}", timeline(&mut town, flow));
        assert_eq!(tried(&mut town, flow)[0], Stack::Quic);
        finish(&mut town, flow);
        town.play.end();
    });
}

#[test]
fn marks_of_another_network_do_not_count_and_those_of_a_network_come_back_with_it() {
    for_each_seed(
        "lessons",
        "marks_of_another_network_do_not_count_and_those_of_a_network_come_back_with_it",
        30,
        |seed| {
            let (plan, rtt) = plan(seed, 100);
            let mut town = town(plan.fault(Fault::UdpBlocked));
            assert_eq!(visit(&mut town, &any()).0, Stack::Tls);
            town.play.run_for(2 * S);
            let (iface, world) = (town.client_iface, town.play.world().clone());
            world.add_address(iface, address("192.0.2.77", 24));
            set_udp(&mut town, true);
            town.play.run_for(2 * S);
            // Elsewhere, QUIC is tried first, and wins.
            assert_eq!(visit(&mut town, &any()), (Stack::Quic, NAMES + rtt));
            // Back again: the marks live.
            let moved: IpAddr = "192.0.2.77".parse().unwrap();
            world.remove_address(iface, moved);
            set_udp(&mut town, false);
            town.play.run_for(2 * S);
            assert_eq!(visit(&mut town, &any()), (Stack::Tls, NAMES + 2 * rtt));
            move_server(&mut town);
            let (flow, stack, _) = connect(&mut town, &any());
            assert_eq!(
                (stack, tried(&mut town, flow)),
                (Stack::Tls, vec![Stack::Tls]),
                "{}",
                timeline(&mut town, flow)
            );
            finish(&mut town, flow);
            town.play.end();
        },
    );
}

#[test]
fn a_silence_during_which_the_network_changed_counts_against_nobody() {
    let mut town = town(Plan::new(1).fault(Fault::UdpBlocked));
    let (flow, stack, _) = connect(&mut town, &any());
    assert_eq!(stack, Stack::Tls);
    // Before the time of QUIC is up.
    let (iface, world) = (town.client_iface, town.play.world().clone());
    world.add_address(iface, address("192.0.2.77", 24));
    finish(&mut town, flow);
    town.play.run_for(2 * S);
    world.remove_address(iface, "192.0.2.77".parse().unwrap());
    town.play.run_for(S);
    move_server(&mut town);
    let (flow, ..) = connect(&mut town, &any());
    assert!(!has_doubts(&mut town, flow), "{}", timeline(&mut town, flow));
    finish(&mut town, flow);
    town.play.end();
}

#[test]
fn what_is_bad_is_tried_when_everything_else_fails() {
    let mut town = Plan::new(2).zone(zone(SERVER_V4, SERVER_V6)).fault(Fault::UdpBlocked).build();
    let tls = town.listen(&Ask::over(&[Stack::Tls]), 443, Manner::echo());
    assert_eq!(visit(&mut town, &any()).0, Stack::Tls);
    town.play.run_for(2 * S);
    // TLS is gone, and QUIC is there.
    town.play.engine(town.server).stop(tls);
    set_udp(&mut town, true);
    town.listen(&Ask::over(&[Stack::Quic]), 443, Manner::echo());
    town.play.run_for(S);
    let (flow, stack, _) = connect(&mut town, &any());
    assert_eq!(stack, Stack::Quic, "{}", timeline(&mut town, flow));
    assert_eq!(tried(&mut town, flow)[0], Stack::Tls);
    finish(&mut town, flow);
    town.play.end();
}

#[test]
fn a_connection_that_was_lost_right_after_set_up_lets_the_other_protocol_go_first() {
    for_each_seed(
        "lessons",
        "a_connection_that_was_lost_right_after_set_up_lets_the_other_protocol_go_first",
        20,
        |seed| {
            let (plan, rtt) = plan(seed, 100);
            let mut town = town(plan);
            let (flow, stack, _) = connect(&mut town, &any());
            assert_eq!(stack, Stack::Quic);
            // The handshake got through, and nothing after it: the server's answers vanish.
            set_udp(&mut town, false);
            town.play.say(flow, "lost", SendOptions::default());
            assert!(town.play.run_until(60 * S, |p| p.flow(flow).is_over()), "it hangs");
            let took = town.play.flow(flow).over.as_ref().unwrap().0 - town.play.flow(flow).opened_at;
            assert!(took <= 32 * S, "{took:?}");
            let Some(Over::Failed(error)) = town.play.flow(flow).end() else {
                panic!("{:?}", town.play.flow(flow).end())
            };
            assert!(error.to_string().contains("timed out: for longer than the idle timeout"), "{error}");
            let (flow, stack, took) = connect(&mut town, &any());
            assert_eq!(
                (stack, tried(&mut town, flow)),
                (Stack::Tls, vec![Stack::Tls]),
                "{}",
                timeline(&mut town, flow)
            );
            assert_eq!(took, NAMES + 2 * rtt);
            assert!(timeline(&mut town, flow).contains("put back: it was lost right after set-up"));
            finish(&mut town, flow);
            town.play.end();
        },
    );
}

#[test]
fn a_connection_that_has_brought_something_teaches_nothing_when_it_dies() {
    let mut town = town(Plan::new(3));
    let (flow, stack, _) = connect(&mut town, &any());
    assert_eq!(stack, Stack::Quic);
    town.play.say(flow, "ping", SendOptions::default());
    assert!(town.play.run_until(S, |p| p.flow(flow).count == 4));
    set_udp(&mut town, false);
    town.play.say(flow, "lost", SendOptions::default());
    assert!(town.play.run_until(60 * S, |p| p.flow(flow).is_over()));
    set_udp(&mut town, true);
    let (flow, stack, _) = connect(&mut town, &any());
    assert_eq!(stack, Stack::Quic, "{}", timeline(&mut town, flow));
    finish(&mut town, flow);
    town.play.end();
}

/// It is longer than what else counts as soon after set-up.
#[test]
fn a_connection_on_which_nothing_came_within_its_own_time_counts_as_lost_after_set_up() {
    let mut properties = TransportProperties::new();
    properties.set("connTimeout", 20u64).unwrap();
    let ask = Ask::over(&[Stack::Tls]).properties(properties);
    let mut town = town(Plan::new(11));
    let (flow, ..) = connect(&mut town, &ask);
    let world = town.play.world().clone();
    let links = [town.v6.to, town.v6.from];
    for link in links {
        let rule = Filter::drop(Match::Protocol(Protocol::Tcp));
        world.set_link(link, world.link_config(link).with_filter(rule));
    }
    town.play.say(flow, "lost", SendOptions::default());
    assert!(town.play.run_until(60 * S, |p| p.flow(flow).is_over()), "it hangs");
    for link in links {
        let mut config = world.link_config(link);
        config.filters.clear();
        world.set_link(link, config);
    }
    let (flow, ..) = connect(&mut town, &ask);
    let all = town.play.engine(flow.node).candidates(flow.conn);
    let silent = all.iter().find(|c| c.addr.is_ipv6()).expect("a candidate");
    let cause = silent.doubt.map(|d| d.cause);
    assert_eq!(cause, Some(BadCause::Died), "{}", timeline(&mut town, flow));
}

#[test]
fn what_a_program_reports_of_a_connection_lets_the_others_go_first_for_a_while() {
    let name = "what_a_program_reports_of_a_connection_lets_the_others_go_first_for_a_while";
    for_each_seed("lessons", name, 10, |seed| {
        for (outcome, lifetime, words) in [
            (ServiceOutcome::Silent, BAD, "it was established, but did not answer"),
            (ServiceOutcome::Broken, BAD, "it was established, but broke the rules of its protocol"),
            (ServiceOutcome::WantsOther, LIFETIME, "it was established, but asked for another protocol"),
        ] {
            let mut town = town(plan(seed, 100).0);
            let (flow, stack, _) = connect(&mut town, &any());
            assert_eq!(stack, Stack::Quic);
            let carrier = town.play.engine(flow.node).carrier(flow.conn).expect("a carrier");
            assert_eq!((carrier.stack(), carrier.addr().is_ipv6()), (Stack::Quic, true));
            // It has served the transport well: only its program knows better, and perhaps when it
            // is over.
            finish(&mut town, flow);
            let client = town.client;
            town.play.engine(client).report_service(&carrier, outcome);
            for _ in 0..2 {
                let (flow, stack, _) = connect(&mut town, &any());
                let steps = timeline(&mut town, flow);
                assert_eq!((stack, tried(&mut town, flow)), (Stack::Tls, vec![Stack::Tls]), "{outcome:?}: {steps}");
                assert!(steps.contains(words), "{outcome:?}: {steps}");
                finish(&mut town, flow);
                // What the name means, and the outcome with it, is soon forgotten.
                town.play.run_for(2 * S);
            }
            town.play.run_for(lifetime - 20 * S);
            assert_eq!(visit(&mut town, &any()).0, Stack::Tls, "{outcome:?}: it is remembered");
            town.play.run_for(30 * S);
            assert_eq!(visit(&mut town, &any()).0, Stack::Quic, "{outcome:?}: and not for ever");
            town.play.end();
        }
    });
}

#[test]
fn a_report_is_withdrawn_by_an_answer_and_excludes_no_candidate() {
    let mut town = town(Plan::new(12));
    let (flow, stack, _) = connect(&mut town, &any());
    assert_eq!(stack, Stack::Quic);
    let carrier = town.play.engine(flow.node).carrier(flow.conn).expect("a carrier");
    finish(&mut town, flow);
    let client = town.client;
    town.play.engine(client).report_service(&carrier, ServiceOutcome::Silent);
    town.play.engine(client).report_service(&carrier, ServiceOutcome::Answered);
    town.play.run_for(2 * S);
    assert_eq!(visit(&mut town, &any()).0, Stack::Quic);
    // The only one that there is: it is tried as before.
    let only = Ask::over(&[Stack::Quic]);
    for _ in 0..3 {
        let flow = town.open(&only, Manner::default());
        assert!(town.play.run_until(5 * S, |p| p.flow(flow).is_ready()), "{:?}", town.play.flow(flow).end());
        let carrier = town.play.engine(client).carrier(flow.conn).expect("a carrier");
        finish(&mut town, flow);
        town.play.engine(client).report_service(&carrier, ServiceOutcome::WantsOther);
    }
    town.play.end();
}

#[test]
fn a_report_of_another_network_is_dropped() {
    let mut town = town(Plan::new(13));
    let (flow, stack, _) = connect(&mut town, &any());
    assert_eq!(stack, Stack::Quic);
    let carrier = town.play.engine(flow.node).carrier(flow.conn).expect("a carrier");
    finish(&mut town, flow);
    let (iface, world) = (town.client_iface, town.play.world().clone());
    world.add_address(iface, address("192.0.2.77", 24));
    town.play.run_for(2 * S);
    let client = town.client;
    town.play.engine(client).report_service(&carrier, ServiceOutcome::Broken);
    world.remove_address(iface, "192.0.2.77".parse().unwrap());
    town.play.run_for(2 * S);
    let (flow, stack, _) = connect(&mut town, &any());
    assert_eq!((stack, has_doubts(&mut town, flow)), (Stack::Quic, false), "{}", timeline(&mut town, flow));
    finish(&mut town, flow);
    town.play.end();
}

#[test]
fn a_report_holds_where_no_outcome_is_remembered_too() {
    let mut town = town(Plan::new(14));
    let remotes = [server_v6(), server_v4()];
    let open = |town: &mut Town| {
        let flow = town.open_to(&any(), &remotes, Manner::default());
        assert!(town.play.run_until(5 * S, |p| p.flow(flow).is_ready()), "{:?}", town.play.flow(flow).end());
        flow
    };
    let first = open(&mut town);
    assert_eq!(town.play.engine(first.node).stack(first.conn), Some(Stack::Quic));
    let carrier = town.play.engine(first.node).carrier(first.conn).expect("a carrier");
    finish(&mut town, first);
    town.play.engine(first.node).report_service(&carrier, ServiceOutcome::Broken);
    let second = open(&mut town);
    assert_eq!(tried(&mut town, second), [Stack::Tls], "{}", timeline(&mut town, second));
    finish(&mut town, second);
    town.play.end();
}

/// Opportunistic security takes what a race came to, in the clear if it must be, for the lifetime of
/// an outcome, and then asks for security first again.
#[test]
fn an_outcome_in_the_clear_is_asked_for_security_again_after_its_lifetime() {
    let ask = Ask { security: Some(SecurityParameters::opportunistic()), ..any() };
    let mut town = Plan::new(15).zone(zone(SERVER_V4, SERVER_V6)).build();
    town.listen(&Ask::over(&[Stack::Tcp]), 443, Manner::echo());
    for (round, secure_first) in [true, false, true].into_iter().enumerate() {
        let (flow, stack, _) = connect(&mut town, &ask);
        assert_eq!(stack, Stack::Tcp);
        let tried = tried(&mut town, flow);
        assert_eq!(tried.first().is_some_and(|s| s.is_secure()), secure_first, "round {round}: {tried:?}");
        finish(&mut town, flow);
        if round == 1 {
            town.play.run_for(LIFETIME);
        }
    }
    assert_eq!(town.play.stats(town.client).cache_hits, 1);
}

#[test]
fn a_peer_that_is_not_framed_as_it_should_be_is_put_back() {
    for stacks in [&[Stack::Tcp][..], &[]] {
        let (theirs, ours) = (Ask::over(stacks), Ask::over(stacks).framed());
        let mut town = Plan::new(16).zone(zone(SERVER_V4, SERVER_V6)).build();
        town.listen(&theirs, 443, Manner { greeting: Some(vec![0xff; 64].into()), ..Manner::default() });
        let (flow, ..) = connect(&mut town, &ours);
        town.play.say(flow, "hello", SendOptions::default());
        assert!(town.play.run_until(30 * S, |p| p.flow(flow).is_over()), "it takes anything");
        let end = town.play.flow(flow).end();
        assert!(matches!(end, Some(Over::Failed(ConnectionError::Framer(_)))), "{end:?}");
        let (flow, ..) = connect(&mut town, &ours);
        let steps = timeline(&mut town, flow);
        assert!(steps.contains("put back: it was established, but broke the rules of its protocol"), "{steps}");
    }
}

/// The peer goes on probing until its own idle timeout, and each of its packets restarts ours (RFC
/// 9000 section 10.1): what ends the connection is that nothing of what it sends is acknowledged.
#[test]
fn a_path_that_is_dead_in_one_direction_ends_a_connection_in_bounded_time() {
    for_each_seed("lessons", "a_path_that_is_dead_in_one_direction_ends_a_connection_in_bounded_time", 20, |seed| {
        let (plan, _) = plan(seed, 200);
        let mut town = town(plan);
        let (flow, stack, _) = connect(&mut town, &any());
        assert_eq!(stack, Stack::Quic);
        town.play.say(flow, "ping", SendOptions::default());
        assert!(town.play.run_until(S, |p| p.flow(flow).count == 4));
        let world = town.play.world().clone();
        let rule = Filter::drop(Match::Protocol(Protocol::Udp));
        world.set_link(town.v6.to, world.link_config(town.v6.to).with_filter(rule));
        town.play.say(flow, "lost", SendOptions::default());
        assert!(!town.play.run_until(29 * S, |p| p.flow(flow).is_over()), "a path may be dead for a while");
        assert!(town.play.run_until(2 * S, |p| p.flow(flow).is_over()), "it hangs");
        let end = town.play.flow(flow).end();
        assert!(matches!(end, Some(Over::Failed(e)) if e.to_string().contains("was acknowledged")), "{end:?}");
        town.play.end();
    });
}

/// A program keeps running while its host moves to a network that swallows UDP, and later back.
#[test]
fn a_program_survives_a_move_to_a_network_that_swallows_udp() {
    for_each_seed("lessons", "a_program_survives_a_move_to_a_network_that_swallows_udp", 50, |seed| {
        let (plan, rtt) = plan(seed, 200);
        let mut town = town(plan);
        let (old, stack, _) = connect(&mut town, &any());
        assert_eq!(stack, Stack::Quic);
        town.play.say(old, "ping", SendOptions::default());
        assert!(town.play.run_until(S, |p| p.flow(old).count == 4));
        let (iface, world) = (town.client_iface, town.play.world().clone());
        world.add_address(iface, address("192.0.2.77", 24));
        world.remove_address(iface, "192.0.2.1".parse().unwrap());
        set_udp(&mut town, false);
        town.play.run_for(10 * MS);
        assert!(town.play.flow(old).path_changes > 0, "the program is told");
        // What it opens now races again.
        let (flow, stack, took) = connect(&mut town, &any());
        assert_eq!(stack, Stack::Tls);
        let names = NAMES + SLACK;
        assert!(took <= names + DELAY + 2 * rtt + rtt.min(DELAY), "{took:?}: {}", timeline(&mut town, flow));
        finish(&mut town, flow);
        // What it had says that it is dead, in bounded time.
        town.play.say(old, "more", SendOptions::default());
        assert!(town.play.run_until(6 * S, |p| p.flow(old).is_over()), "the old connection hangs");
        let end = town.play.flow(old).end();
        assert!(matches!(end, Some(Over::Failed(e)) if e.to_string().contains("no viable path")), "{end:?}");
        assert_eq!(visit(&mut town, &any()), (Stack::Tls, NAMES + 2 * rtt));
        // Home again, where QUIC has always worked; what the name means here is asked for anew.
        world.add_address(iface, address("192.0.2.1", 24));
        world.remove_address(iface, "192.0.2.77".parse().unwrap());
        set_udp(&mut town, true);
        town.play.run_for(10 * MS);
        assert_eq!(visit(&mut town, &any()), (Stack::Quic, NAMES + rtt));
        town.play.end();
    });
}

#[test]
fn connections_to_several_endpoints_learn_of_each_of_them() {
    for_each_seed("lessons", "connections_to_several_endpoints_learn_of_each_of_them", 20, |seed| {
        let (plan, rtt) = plan(seed, 100);
        let mut town = town(plan.fault(Fault::UdpBlocked));
        let remotes = [server_v6(), server_v4()];
        let mut took = Vec::new();
        for _ in 0..2 {
            let flow = town.open_to(&any(), &remotes, Manner::default());
            assert!(town.play.run_until(30 * S, |p| p.flow(flow).is_ready()), "{:?}", town.play.flow(flow).end());
            assert_eq!(town.play.engine(flow.node).stack(flow.conn), Some(Stack::Tls));
            took.push((tried(&mut town, flow), town.play.flow(flow).establishment().unwrap()));
            finish(&mut town, flow);
            town.play.run_for(2 * S);
        }
        // Such connections remember no outcome, but what was bad.
        assert_eq!(took[0].0[0], Stack::Quic);
        assert!(took[0].1 >= DELAY, "{took:?}");
        assert_eq!(took[1], (vec![Stack::Tls], 2 * rtt), "{took:?}");
        town.play.end();
    });
}

#[test]
fn what_was_learnt_by_one_interface_does_not_count_by_another() {
    let mut town = town(Plan::new(5).fault(Fault::UdpBlocked));
    let world = town.play.world().clone();
    let host = town.play.host(town.client);
    let addrs: [IpAddr; 2] = ["203.0.113.9".parse().unwrap(), "2001:db8:9::1".parse().unwrap()];
    let wifi = world.add_interface(host, "wlan0", InterfaceKind::WiFi, &addrs);
    world.attach(wifi, LinkConfig::delay(5 * MS), LinkConfig::delay(5 * MS));
    town.play.run_for(S);
    let request = town.request(&any());
    let client = town.client;
    let first = |town: &mut Town, interface: &str| {
        let local = LocalEndpoint::new().with_interface(interface);
        let made = town.play.initiate_with(client, &request, &[server_v4()], Some(&local), None, Manner::default());
        let flow = made.unwrap();
        assert!(town.play.run_until(30 * S, |p| p.flow(flow).is_ready()), "{:?}", town.play.flow(flow).end());
        let first = tried(town, flow)[0];
        finish(town, flow);
        town.play.run_for(2 * S);
        first
    };
    assert_eq!(first(&mut town, "eth0"), Stack::Quic);
    assert_eq!(first(&mut town, "eth0"), Stack::Tls, "it has learnt");
    assert_eq!(first(&mut town, "wlan0"), Stack::Quic, "that says nothing about another network");
    assert_eq!(first(&mut town, "eth0"), Stack::Tls);
    town.play.end();
}

#[test]
fn the_error_tells_why_a_candidate_was_put_back() {
    let mut town = town(Plan::new(4).fault(Fault::UdpBlocked));
    visit(&mut town, &any());
    town.play.run_for(2 * S);
    let world = town.play.world().clone();
    for way in [town.v4, town.v6] {
        world.set_link(way.to, world.link_config(way.to).with_down(true));
    }
    let flow = town.open_by_name(&any().within(5 * S), Manner::default());
    assert!(town.play.run_until(10 * S, |p| p.flow(flow).is_over()));
    let error = town.play.flow(flow).establishment_error().expect("not established").clone();
    let last = error.candidates.last().unwrap();
    assert_eq!((last.stack, last.addr.is_ipv6()), (Stack::Quic, true), "{error}");
    assert!(last.doubt.is_some_and(|d| d.cause == BadCause::Silent && d.of.is_none()), "{error}");
    assert!(last.started.is_some() && !matches!(last.fate, Fate::NotStarted), "it was tried: {error}");
    let text = error.to_string();
    assert!(text.contains("put back: it did not answer") && text.contains("s ago"), "{text}");
    let steps = town.play.engine(flow.node).timeline(flow.conn);
    assert!(steps.iter().any(|s| matches!(s.step, Step::Doubted { stack: Stack::Quic, .. })));
    town.play.end();
}
