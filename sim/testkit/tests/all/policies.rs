//! What policies make of connections: which transport, by which interface, and none at all; whatever was remembered.

use neater_base::net::InterfaceKind;
use neater_engine::{Reason, SendOptions, Stack};
use neater_link::LinkConfig;
use neater_netsim::IfaceId;
use neater_policy::advice::Adviser;
use neater_policy::manager::{Rule, Stage};
use neater_testkit::town::{SERVER_NAME, SERVER_PORT};
use neater_testkit::{Ask, FlowId, Manner, Plan, Town, for_each_seed};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const SECOND_V4: &str = "203.0.113.9";

fn town(seed: u64) -> Town {
    let mut town = Plan::new(seed).build();
    town.listen(&Ask::over(&[]), SERVER_PORT, Manner::echo());
    town
}

/// A second interface of the client's.
fn mobile(town: &mut Town) -> IfaceId {
    let world = town.play.world().clone();
    let host = town.play.host(town.client);
    let iface = world.add_interface(host, "wwan0", InterfaceKind::Cellular, &[second()]);
    world.attach(iface, LinkConfig::delay(Duration::from_millis(5)), LinkConfig::delay(Duration::from_millis(5)));
    world.set_default_routes(iface, true, false);
    town.play.run_for(S);
    iface
}

fn second() -> IpAddr {
    SECOND_V4.parse().unwrap()
}

/// Gives the client's engine these policies and no others.
fn advise(town: &mut Town, rules: &[(&str, Value, Value)]) {
    let mut adviser = Adviser::new();
    for (uid, wanted, properties) in rules {
        let rule = json!({"uid": uid, "match": wanted, "properties": properties});
        adviser.manager_mut().insert_rule(Stage::Policy, Rule::from_json(rule, "", "").unwrap().0);
    }
    let client = town.client;
    town.play.engine(client).policies().set_adviser(Some(adviser), "test");
}

/// Connects by name, uses the connection and ends it: by what, and whether the server has seen it come from the second
/// interface, and none from elsewhere.
fn visit(town: &mut Town) -> (FlowId, Stack, bool) {
    let before = town.play.accepted(town.server).len();
    let flow = town.open_by_name(&Ask::over(&[]), Manner::default());
    assert!(town.play.run_until(30 * S, |p| p.flow(flow).is_ready()), "{:?}", town.play.flow(flow).end());
    let stack = town.play.engine(flow.node).stack(flow.conn).unwrap();
    town.play.say(flow, "ping", SendOptions { is_final: true, ..SendOptions::default() });
    let server = town.server;
    assert!(town.play.run_until(30 * S, |p| p.accepted(server).len() > before));
    let accepted = town.play.accepted(server)[before..].to_vec();
    let from = |f: &FlowId| town.play.engine(f.node).remote_addr(f.conn).map(|a| a.ip());
    let from = accepted.iter().map(from).collect::<Vec<_>>() == [Some(second())];
    assert!(town.play.run_until(30 * S, |p| p.flow(flow).is_over()), "{:?}", town.play.flow(flow));
    assert_eq!(town.play.flow(flow).received, b"ping");
    (flow, stack, from)
}

/// What was tried for a connection, in order.
fn tried(town: &mut Town, flow: FlowId) -> Vec<Stack> {
    let mut all = town.play.engine(flow.node).candidates(flow.conn);
    all.retain(|c| c.started.is_some());
    all.sort_by_key(|c| c.started);
    all.iter().map(|c| c.stack).collect()
}

fn tcp_first() -> (&'static str, Value, Value) {
    let wanted = json!({"domain_name": {"value": SERVER_NAME}, "transport": {"value": "TCP"}});
    ("tcp-first", wanted, json!({"transport": {"value": "TCP", "score": 10}}))
}

#[test]
fn a_policy_ranks_tcp_over_quic_for_one_host_and_what_it_brought_is_remembered_for_it_alone() {
    let name = "a_policy_ranks_tcp_over_quic_for_one_host_and_what_it_brought_is_remembered_for_it_alone";
    for_each_seed("policies", name, 20, |seed| {
        let mut town = town(seed);
        assert_eq!(visit(&mut town).1, Stack::Quic);
        advise(&mut town, &[tcp_first()]);
        let (flow, stack, _) = visit(&mut town);
        assert_eq!((stack, tried(&mut town, flow)), (Stack::Tls, vec![Stack::Tls]), "not what had worked before");
        let hits = town.play.stats(town.client).cache_hits;
        assert_eq!(visit(&mut town).1, Stack::Tls);
        assert_eq!(town.play.stats(town.client).cache_hits, hits + 1, "its own outcome is remembered");
        advise(&mut town, &[]);
        assert_eq!(visit(&mut town).1, Stack::Quic, "the policy is gone, and what it brought with it");
        let client = town.client;
        town.play.engine(client).policies().set_adviser(None, "");
        assert_eq!(visit(&mut town).1, Stack::Quic);
        town.play.end();
    });
}

#[test]
fn a_policy_forbids_quic_on_one_interface_and_prefers_the_other() {
    for_each_seed("policies", "a_policy_forbids_quic_on_one_interface_and_prefers_the_other", 20, |seed| {
        let mut town = town(seed);
        let iface = mobile(&mut town);
        let no_quic = json!({"interface": {"value": "eth0"}, "transport": {"value": "QUIC"}});
        advise(&mut town, &[("no-quic", no_quic.clone(), json!([[]]))]);
        let (flow, stack, from) = visit(&mut town);
        assert_eq!(stack, Stack::Tls, "the better interface first, by what it may");
        assert!(!from);
        assert_eq!(tried(&mut town, flow), [Stack::Tls]);
        let mobile = (
            "mobile",
            json!({"link_type": {"value": "cellular"}}),
            json!({"link_type": {"value": "cellular", "score": 5}}),
        );
        advise(&mut town, &[("no-quic", no_quic, json!([[]])), mobile]);
        let (_, stack, from) = visit(&mut town);
        assert_eq!((stack, from), (Stack::Quic, true));
        // The interface goes: the next connection finds the other.
        town.play.world().set_interface_up(iface, false);
        town.play.run_for(S);
        let (_, stack, from) = visit(&mut town);
        assert_eq!((stack, from), (Stack::Tls, false));
        town.play.end();
    });
}

#[test]
fn what_policies_forbid_is_not_tried() {
    let mut town = town(1);
    visit(&mut town);
    let before = town.play.stats(town.client).attempts;
    advise(&mut town, &[("nobody", json!({"domain_name": {"value": SERVER_NAME}}), json!([[]]))]);
    let request = town.request(&Ask::over(&[]));
    let remote = neater_engine::RemoteEndpoint::new().with_host_name(SERVER_NAME).with_port(SERVER_PORT);
    let client = town.client;
    let error = town.play.engine(client).initiate(&request, &[remote].into(), None, None).unwrap_err();
    assert_eq!(error.reason, Reason::PolicyProhibited);
    assert!(error.to_string().contains("denied by policy nobody"), "{error}");
    assert_eq!(town.play.stats(client).attempts, before);
    town.play.end();
}

/// Policies know of ways by the address that they come from: any of a family contradicts none of that family.
#[test]
fn a_program_that_asks_for_a_family_has_the_ways_of_policies_by_that_family() {
    for (any, is_v4) in [("0.0.0.0", true), ("::", false)] {
        let mut town = town(1);
        advise(&mut town, &[tcp_first()]);
        let request = town.request(&Ask::over(&[]));
        let remote = neater_engine::RemoteEndpoint::new().with_host_name(SERVER_NAME).with_port(SERVER_PORT);
        let local = neater_engine::LocalEndpoint::new().with_ip_address(any.parse().unwrap());
        let client = town.client;
        let conn = town.play.engine(client).initiate_from(&request, &[remote].into(), &[local], None).unwrap();
        let flow = town.play.adopt(client, conn, Manner::default());
        assert!(town.play.run_until(30 * S, |p| p.flow(flow).is_ready()), "{:?}", town.play.flow(flow).end());
        let engine = town.play.engine(client);
        assert_eq!(engine.stack(conn), Some(Stack::Tls), "as the policy says");
        assert_eq!(engine.remote_addr(conn).map(|a| a.is_ipv4()), Some(is_v4));
    }
}

#[test]
fn a_way_that_does_not_work_is_left_for_the_next() {
    let mut town = town(2);
    mobile(&mut town);
    // Only what fails is preferred: the interface that leads nowhere.
    let world = town.play.world().clone();
    for link in [town.client_links.0, town.client_links.1] {
        let mut config = world.link_config(link);
        config.filters.push(neater_link::Filter::drop(neater_link::Match::Protocol(neater_link::Protocol::Tcp)));
        config.filters.push(neater_link::Filter::drop(neater_link::Match::DestinationPort(SERVER_PORT)));
        world.set_link(link, config);
    }
    let wired = json!({"wired": {"value": true}});
    advise(&mut town, &[("wired", wired, json!({"wired": {"value": true, "score": 5}}))]);
    assert!(visit(&mut town).2);
    town.play.end();
}

/// A way on which round trips have taken long lately comes behind the others.
fn avoid_slow() -> (&'static str, Value, Value) {
    let slow = json!({"measured_rtt": {"value": {"start": 150, "end": "inf"}}});
    ("avoid-slow", slow, json!({"measured_rtt": {"value": null, "score": -5}}))
}

/// Makes the way by the client's first interface so much slower.
fn slow_down(town: &mut Town, delay: Duration) {
    let world = town.play.world().clone();
    let (up, down) = town.client_links;
    [up, down].into_iter().for_each(|link| world.set_link(link, LinkConfig::delay(delay)));
}

#[test]
fn a_choice_follows_the_network_as_connections_see_it() {
    for_each_seed("policies", "a_choice_follows_the_network_as_connections_see_it", 20, |seed| {
        let mut town = town(seed);
        mobile(&mut town);
        advise(&mut town, &[avoid_slow()]);
        assert!(!visit(&mut town).2, "nothing is known, and the first interface is the system's choice");
        slow_down(&mut town, Duration::from_millis(200));
        assert!(!visit(&mut town).2, "this one finds out");
        assert!(visit(&mut town).2, "and this one knows");
        town.play.run_for(601 * S);
        assert!(!visit(&mut town).2, "what was seen so long ago counts no more");
        slow_down(&mut town, Duration::from_millis(5));
        visit(&mut town);
        town.play.run_for(601 * S);
        assert!(!visit(&mut town).2);
        assert!(!visit(&mut town).2, "it is quick again");
        town.play.end();
    });
}

/// A connection by a cached outcome has not raced, and is looked at all the same.
#[test]
fn a_connection_that_did_not_race_tells_the_next_what_it_sees() {
    for stack in [Stack::Tls, Stack::Quic] {
        let mut town = town(5);
        mobile(&mut town);
        advise(&mut town, &[avoid_slow()]);
        for flows in 1..=2 {
            let flow = town.open_by_name(&Ask::over(&[stack]), Manner::default());
            assert!(town.play.run_until(30 * S, |p| p.flow(flow).is_ready()), "{:?}", town.play.flow(flow).end());
            if flows == 2 {
                slow_down(&mut town, Duration::from_millis(250));
                for _ in 0..20 {
                    town.play.say(flow, "ping", SendOptions::default());
                    town.play.run_for(S);
                }
            }
            town.play.say(flow, "", SendOptions { is_final: true, ..SendOptions::default() });
            town.play.run_for(2 * S);
        }
        assert_eq!(town.play.stats(town.client).cache_hits, 1, "{stack}");
        assert!(visit(&mut town).2, "{stack}: the smoothed round trip has risen meanwhile");
        town.play.run_for(60 * S);
        town.play.end();
    }
}

#[test]
fn a_connection_that_runs_tells_the_next_what_it_sees() {
    for_each_seed("policies", "a_connection_that_runs_tells_the_next_what_it_sees", 20, |seed| {
        let mut town = town(seed);
        mobile(&mut town);
        advise(&mut town, &[avoid_slow()]);
        let flow = town.open_by_name(&Ask::over(&[]), Manner::default());
        assert!(town.play.run_until(30 * S, |p| p.flow(flow).is_ready()), "{:?}", town.play.flow(flow).end());
        slow_down(&mut town, Duration::from_millis(250));
        for _ in 0..20 {
            town.play.say(flow, "ping", SendOptions::default());
            town.play.run_for(S);
        }
        assert!(visit(&mut town).2, "the smoothed round trip of the first has risen meanwhile");
        // A connection that is silent is looked at ever less often, so that hardly anything wakes the engine for it.
        town.play.say(flow, "", SendOptions { is_final: true, ..SendOptions::default() });
        town.play.run_for(60 * S);
        town.play.end();
    });
}

#[test]
fn a_connection_that_was_silent_for_long_is_looked_at_again() {
    for_each_seed("policies", "a_connection_that_was_silent_for_long_is_looked_at_again", 20, |seed| {
        let mut town = town(seed);
        mobile(&mut town);
        advise(&mut town, &[avoid_slow()]);
        let flow = town.open_by_name(&Ask::over(&[Stack::Tls]), Manner::default());
        assert!(town.play.run_until(30 * S, |p| p.flow(flow).is_ready()), "{:?}", town.play.flow(flow).end());
        town.play.run_for(300 * S);
        slow_down(&mut town, Duration::from_millis(250));
        for _ in 0..66 {
            town.play.say(flow, "ping", SendOptions::default());
            town.play.run_for(S);
        }
        assert!(visit(&mut town).2, "what it has seen after a silence of five minutes counts");
        town.play.say(flow, "", SendOptions { is_final: true, ..SendOptions::default() });
        town.play.run_for(60 * S);
        town.play.end();
    });
}

#[test]
fn losses_that_a_connection_meets_count_whatever_carries_it() {
    for stack in [Stack::Tls, Stack::Quic, Stack::Sctp] {
        let mut town = town(7);
        if stack == Stack::Sctp {
            town.listen(&Ask::over(&[stack]), SERVER_PORT, Manner::echo());
        }
        mobile(&mut town);
        let lossy = json!({"measured_loss": {"value": {"start": 3, "end": "inf"}}});
        advise(&mut town, &[("avoid-lossy", lossy, json!({"measured_loss": {"value": null, "score": -5}}))]);
        let flow = town.open_by_name(&Ask::over(&[stack]), Manner { keeps: false, ..Manner::default() });
        assert!(town.play.run_until(30 * S, |p| p.flow(flow).is_ready()), "{:?}", town.play.flow(flow).end());
        let chatter = |town: &mut Town| {
            for _ in 0..20 {
                town.play.say(flow, vec![7; 60_000], SendOptions::default());
                town.play.run_for(S);
            }
        };
        chatter(&mut town);
        assert!(!visit(&mut town).2, "{stack}: nothing is lost");
        let world = town.play.world().clone();
        let up = town.client_links.0;
        world.set_link(up, LinkConfig { loss: neater_link::Loss::Random(0.1), ..world.link_config(up) });
        chatter(&mut town);
        world.set_link(up, LinkConfig { loss: neater_link::Loss::None, ..world.link_config(up) });
        assert!(visit(&mut town).2, "{stack}: one of ten was lost");
        town.play.say(flow, "", SendOptions { is_final: true, ..SendOptions::default() });
        town.play.run_for(60 * S);
        town.play.end();
    }
}

#[test]
fn without_a_policy_that_wants_to_know_nothing_is_looked_at() {
    let mut town = town(3);
    mobile(&mut town);
    advise(&mut town, &[tcp_first()]);
    slow_down(&mut town, Duration::from_millis(200));
    for _ in 0..3 {
        assert!(!visit(&mut town).2);
    }
    town.play.end();
}
