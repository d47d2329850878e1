//! Names: slow, lying, dead and cutting name servers, service bindings, search lists.

use neater_base::net::NameConfig;
use neater_engine::{EstablishmentError, Fate, Reason, RemoteEndpoint, SendOptions, Stack};
use neater_testkit::names::{A, AAAA, HTTPS};
use neater_testkit::town::{NAME_SERVER, SERVER_V4, SERVER_V6, default_zone};
use neater_testkit::{Ask, Fault, FlowId, Lie, Manner, Plan, Temper, Town};
use std::net::IpAddr;
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
/// There and back between the client and the name server.
const NAMES: Duration = Duration::from_millis(10);
/// There and back between the client and the server.
const RTT: Duration = Duration::from_millis(20);
/// RFC 8305 section 8: Resolution Delay.
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);

fn quic() -> Ask {
    Ask::over(&[Stack::Quic])
}

fn town(plan: Plan) -> Town {
    let mut town = plan.build();
    town.listen(&Ask::over(&[]), 443, Manner::echo());
    town
}

/// Connects by a name and tells the address and how long it took.
fn connect_to(town: &mut Town, ask: &Ask, name: &str, port: u16) -> (FlowId, IpAddr, Duration) {
    let remote = RemoteEndpoint::new().with_host_name(name).with_port(port);
    let flow = town.open_to(ask, &[remote], Manner::default());
    let ready = town.play.run_until(60 * S, |p| p.flow(flow).is_ready());
    assert!(ready, "{}", failure(town, flow).map_or_else(|| "nothing".to_owned(), ToString::to_string));
    let took = town.play.flow(flow).establishment().unwrap();
    let addr = town.play.engine(flow.node).remote_addr(flow.conn).unwrap().ip();
    (flow, addr, took)
}

fn connect(town: &mut Town, ask: &Ask) -> (FlowId, IpAddr, Duration) {
    connect_to(town, ask, "server.test", 443)
}

fn failure(town: &Town, flow: FlowId) -> Option<&EstablishmentError> {
    town.play.flow(flow).establishment_error()
}

fn v4() -> IpAddr {
    SERVER_V4.parse().unwrap()
}

fn v6() -> IpAddr {
    SERVER_V6.parse().unwrap()
}

fn slow(kind: u16, by: Duration) -> Temper {
    Temper { slow: [(kind, by)].into(), ..Temper::default() }
}

#[test]
fn a_slow_name_server_costs_its_own_delay_and_no_more() {
    let mut town = town(Plan::new(1).temper(Temper { delay: 300 * MS, ..Temper::default() }));
    let (_, addr, took) = connect(&mut town, &quic());
    assert_eq!((addr, took), (v6(), 300 * MS + NAMES + RTT));
    town.play.end();
}

#[test]
fn addresses_wait_no_longer_than_the_resolution_delay_for_slow_aaaa() {
    let mut town = town(Plan::new(2).temper(slow(AAAA, S)));
    let (_, addr, took) = connect(&mut town, &quic());
    assert_eq!((addr, took), (v4(), NAMES + RESOLUTION_DELAY + RTT));
    town.play.end();
}

#[test]
fn slow_a_is_not_waited_for_at_all() {
    let mut town = town(Plan::new(3).temper(slow(A, S)));
    let (_, addr, took) = connect(&mut town, &quic());
    assert_eq!((addr, took), (v6(), NAMES + RTT));
    town.play.end();
}

#[test]
fn a_late_answer_still_joins_the_race() {
    // IPv4 is dead, and the AAAA answer comes long after the race has begun with it.
    let mut town = town(Plan::new(4).fault_v4(Fault::BlackHole).temper(slow(AAAA, 400 * MS)));
    let (_, addr, took) = connect(&mut town, &quic());
    assert_eq!((addr, took), (v6(), 400 * MS + NAMES + RTT));
    town.play.end();
}

#[test]
fn forged_answers_are_not_believed() {
    for lie in [Lie::OtherId, Lie::OtherName, Lie::Garbage] {
        let mut town = town(Plan::new(5).temper(Temper { lie, delay: 20 * MS, ..Temper::default() }));
        let (_, addr, took) = connect(&mut town, &quic());
        assert_eq!((addr, took), (v6(), 20 * MS + NAMES + RTT), "{lie:?}");
        town.play.end();
    }
}

#[test]
fn a_truncated_answer_is_asked_for_again_over_tcp() {
    let mut town = town(Plan::new(6).temper(Temper { truncates: true, ..Temper::default() }));
    let (_, addr, took) = connect(&mut town, &quic());
    // UDP, the handshake of TCP, the question over TCP.
    assert_eq!((addr, took), (v6(), 3 * NAMES + RTT));
    town.play.end();
}

#[test]
fn lost_questions_are_repeated() {
    let mut town = town(Plan::new(7).temper(Temper { drop_first: 2, ..Temper::default() }));
    let (_, addr, took) = connect(&mut town, &quic());
    assert!([v4(), v6()].contains(&addr));
    assert!(took < 2 * S, "{took:?}");
    town.play.end();
}

#[test]
fn a_dead_name_server_is_left_for_the_next() {
    let mut town = town(Plan::new(8));
    // Nobody is at the first address.
    let resolv_conf = format!("nameserver 203.0.113.99\nnameserver {NAME_SERVER}\n").into_bytes();
    let host = town.play.host(town.client);
    town.play.world().set_name_config(host, NameConfig { resolv_conf, hosts: Vec::new() });
    town.play.run_for(MS);
    let (flow, addr, took) = connect(&mut town, &quic());
    assert!([v4(), v6()].contains(&addr) && took > 100 * MS && took < 6 * S, "{took:?}");
    town.play.release(flow);
    town.play.end();
}

#[test]
fn without_any_answer_the_error_says_so() {
    let mut town = town(Plan::new(9).temper(Temper { dead: true, ..Temper::default() }));
    let flow = town.open_by_name(&quic(), Manner::default());
    assert!(town.play.run_until(120 * S, |p| p.flow(flow).is_over()));
    let error = failure(&town, flow).unwrap();
    assert_eq!((error.reason, error.candidates.len()), (Reason::ResolutionFailed, 0), "{error}");
    assert_eq!(error.resolution.len(), 2, "{error}");
    assert!(error.to_string().contains("server.test"), "{error}");
    town.play.end();
}

#[test]
fn a_time_limit_holds_during_resolution() {
    let mut town = town(Plan::new(10).temper(Temper { dead: true, ..Temper::default() }));
    let flow = town.open_by_name(&quic().within(700 * MS), Manner::default());
    assert!(town.play.run_until(S, |p| p.flow(flow).is_over()));
    assert_eq!(failure(&town, flow).unwrap().reason, Reason::Timeout);
    assert_eq!(town.play.flow(flow).over.as_ref().unwrap().0 - town.play.flow(flow).opened_at, 700 * MS);
    town.play.end();
}

#[test]
fn a_name_that_does_not_exist_is_an_error_that_names_it() {
    let mut town = town(Plan::new(11));
    let remote = RemoteEndpoint::new().with_host_name("nobody.test").with_port(443);
    let flow = town.open_to(&quic(), &[remote], Manner::default());
    assert!(town.play.run_until(5 * S, |p| p.flow(flow).is_over()));
    let error = failure(&town, flow).unwrap();
    let text = error.to_string();
    assert_eq!(error.reason, Reason::ResolutionFailed, "{text}");
    assert!(text.contains("nobody.test") && text.contains("no such name"), "{text}");
    assert_eq!(town.play.flow(flow).over.as_ref().unwrap().0 - town.play.flow(flow).opened_at, NAMES);
    town.play.end();
}

#[test]
fn a_name_without_addresses_is_told_from_one_that_does_not_exist() {
    let mut town = town(Plan::new(12).zone("server.test HTTPS 0 elsewhere.test\n"));
    let flow = town.open_by_name(&quic(), Manner::default());
    assert!(town.play.run_until(60 * S, |p| p.flow(flow).is_over()));
    let text = failure(&town, flow).unwrap().to_string();
    assert!(text.contains("A: the name has none") && text.contains("AAAA: the name has none"), "{text}");
    town.play.end();
}

#[test]
fn servfail_about_one_family_leaves_the_other() {
    let mut town = town(Plan::new(13).temper(Temper { servfail: vec![AAAA], ..Temper::default() }));
    let (_, addr, took) = connect(&mut town, &quic());
    assert_eq!(addr, v4());
    assert!(took <= NAMES + RESOLUTION_DELAY + RTT, "{took:?}");
    town.play.end();
}

#[test]
fn one_dead_address_among_several_costs_an_attempt_delay() {
    let zone = format!("server.test AAAA 2001:db8:dead::1\nserver.test A {SERVER_V4}\n");
    let mut town = town(Plan::new(14).zone(zone));
    let (_, addr, took) = connect(&mut town, &quic());
    assert_eq!((addr, took), (v4(), NAMES + 250 * MS + RTT));
    town.play.end();
}

/// A tunnelled address stands behind one of IPv4 (RFC 6724 section 2.1, 6to4), and is not begun with because it was read first.
#[test]
fn what_is_known_at_once_is_in_order_before_anything_begins() {
    let mut town = town(Plan::new(1).delays(RTT / 2, RTT / 2));
    let hosts = format!("2002:c633:6463::1 server.test\n{SERVER_V4} server.test\n").into_bytes();
    let host = town.play.host(town.client);
    town.play.world().set_name_config(host, NameConfig { resolv_conf: Vec::new(), hosts });
    town.play.run_for(MS);
    let (flow, addr, _) = connect(&mut town, &quic());
    let all = town.play.engine(flow.node).candidates(flow.conn);
    let tried: Vec<_> = all.iter().filter(|c| c.started.is_some()).map(|c| c.addr.ip()).collect();
    assert_eq!((addr, tried), (v4(), vec![v4()]), "{all:?}");
}

#[test]
fn the_hosts_file_goes_before_the_name_server() {
    let mut town = town(Plan::new(15));
    let hosts = format!("{SERVER_V4} server.test\n").into_bytes();
    let resolv_conf = format!("nameserver {NAME_SERVER}\n").into_bytes();
    let host = town.play.host(town.client);
    town.play.world().set_name_config(host, NameConfig { resolv_conf, hosts });
    town.play.run_for(MS);
    let (_, addr, took) = connect(&mut town, &quic());
    assert_eq!((addr, took), (v4(), RTT));
    assert_eq!(town.names.questions(), 0);
    town.play.end();
}

#[test]
fn without_a_server_in_the_file_this_host_is_asked_and_without_a_file_nobody() {
    for (text, expected) in [("options ndots:2\n", "refused"), ("", "no name server")] {
        let mut town = town(Plan::new(45));
        let host = town.play.host(town.client);
        let resolv_conf = text.as_bytes().to_vec();
        town.play.world().set_name_config(host, NameConfig { resolv_conf, hosts: Vec::new() });
        let flow = town.open_by_name(&quic(), Manner::default());
        assert!(town.play.run_until(30 * S, |p| p.flow(flow).is_over()));
        let error = failure(&town, flow).unwrap().to_string();
        assert!(error.contains(expected), "{text:?}: {error}");
    }
}

#[test]
fn a_search_list_completes_a_short_name() {
    let mut plan = Plan::new(16).zone(format!("short.search.test A {SERVER_V4}\n"));
    plan.resolv_conf = "search nowhere.test search.test\n".into();
    let mut town = town(plan);
    // The certificate is for the name that the program gave: say which one is meant.
    let mut security = neater_testkit::security::client_security();
    security.server_name = Some("short.search.test".into());
    let ask = Ask { security: Some(security), ..quic() };
    let (_, addr, _) = connect_to(&mut town, &ask, "short", 443);
    assert_eq!(addr, v4());
    town.play.end();
}

/// A request of an HTTP client.
fn http() -> Ask {
    Ask::over(&[]).alpn(&["h3", "h2"])
}

#[test]
fn service_bindings_steer_the_port() {
    let zone = format!("{}_8443._https.server.test HTTPS 1 server.test port=443 alpn=h3,h2\n", default_zone());
    let mut plan = Plan::new(17).zone(zone);
    plan.temper = Temper::default();
    let mut town = plan.build();
    town.listen(&http(), 443, Manner::echo());
    // Nothing listens at 8443; the record sends the client to 443.
    let (flow, _, took) = connect_to(&mut town, &http(), "server.test", 8443);
    assert_eq!(town.play.engine(flow.node).remote_addr(flow.conn).unwrap().port(), 443);
    assert_eq!(town.play.engine(flow.node).alpn(flow.conn).as_deref(), Some(&b"h3"[..]));
    assert!(took <= 3 * NAMES + RTT, "{took:?}");
    town.play.end();
}

#[test]
fn service_bindings_steer_the_stack() {
    for (alpn, stack) in [("h3", Stack::Quic), ("h2", Stack::Tls), ("h2,h3", Stack::Quic)] {
        let zone = format!("{}server.test HTTPS 1 . alpn={alpn} no-default-alpn=\n", default_zone());
        let zone = zone.replace(" no-default-alpn=", " no-default-alpn");
        let mut town = Plan::new(18).zone(zone).build();
        town.listen(&http(), 443, Manner::echo());
        let (flow, ..) = connect(&mut town, &http());
        assert_eq!(town.play.engine(flow.node).stack(flow.conn), Some(stack), "{alpn}");
        let trips = if stack == Stack::Tls { 2 } else { 1 };
        assert_eq!(town.play.flow(flow).establishment(), Some(NAMES + trips * RTT), "{alpn}");
        town.play.end();
    }
}

/// RFC 9460 section 3: no record says anything of the end of a chain of aliases, so it is as free as the host would be. There are no
/// addresses beside it, and a search list that would go on.
#[test]
fn a_name_that_is_only_an_alias_is_found_beside_a_search_list_and_may_speak_everything() {
    let mut plan = Plan::new(41).zone(format!("server.test HTTPS 0 cdn.test\ncdn.test A {SERVER_V4}\n"));
    plan.resolv_conf = "search nowhere.test\n".into();
    let mut town = plan.build();
    town.listen(&http(), 443, Manner::echo());
    let (flow, addr, _) = connect(&mut town, &http());
    assert_eq!((addr, town.play.engine(flow.node).stack(flow.conn)), (v4(), Some(Stack::Quic)));
    town.play.end();
}

#[test]
fn hints_of_another_host_are_not_tried_at_this_one() {
    // The other host has no addresses but the hint, where nobody is; this one listens at its port, too, and is not meant there.
    let service = "server.test HTTPS 1 cdn.test alpn=h2 no-default-alpn port=4600 ipv4hint=198.51.100.9\n";
    let mut town = Plan::new(42).zone(format!("{}{service}", default_zone())).build();
    town.listen(&http(), 443, Manner::echo());
    town.listen(&http(), 4600, Manner::echo());
    let (flow, ..) = connect(&mut town, &http());
    assert_eq!(town.play.engine(flow.node).remote_addr(flow.conn).unwrap().port(), 443);
    town.play.end();
}

#[test]
fn address_hints_are_used_until_the_addresses_are_known() {
    let zone = format!("{}server.test HTTPS 1 . alpn=h3 ipv6hint={SERVER_V6} ipv4hint={SERVER_V4}\n", default_zone());
    let mut temper = slow(A, 500 * MS);
    temper.slow.insert(AAAA, 500 * MS);
    let mut town = Plan::new(19).zone(zone).temper(temper).build();
    town.listen(&http(), 443, Manner::echo());
    let (_, addr, took) = connect(&mut town, &http());
    assert_eq!((addr, took), (v6(), NAMES + RTT));
    town.play.end();
}

#[test]
fn hints_of_another_host_are_tried_while_its_addresses_are_looked_up() {
    let zone = format!("server.test HTTPS 1 cdn.test alpn=h3 ipv4hint={SERVER_V4}\ncdn.test A {SERVER_V4}\n");
    let temper = Temper { silent: vec![AAAA], ..slow(A, 3 * S) };
    let mut town = Plan::new(43).zone(zone).temper(temper).build();
    town.listen(&http(), 443, Manner::echo());
    let (_, addr, took) = connect(&mut town, &http());
    assert_eq!((addr, took), (v4(), NAMES + RESOLUTION_DELAY + RTT));
    town.play.end();
}

#[test]
fn one_family_of_another_host_does_not_wait_for_the_other() {
    let zone = format!("server.test HTTPS 1 cdn.test alpn=h3\ncdn.test A {SERVER_V4}\n");
    let temper = Temper { silent: vec![AAAA], ..Temper::default() };
    let mut town = Plan::new(44).zone(zone).temper(temper).build();
    town.listen(&http(), 443, Manner::echo());
    let (_, addr, took) = connect(&mut town, &http());
    assert_eq!((addr, took), (v4(), 2 * NAMES + RESOLUTION_DELAY + RTT));
    town.play.end();
}

#[test]
fn a_slow_answer_about_services_holds_up_no_longer_than_the_resolution_delay() {
    let mut town = Plan::new(20).temper(slow(HTTPS, S)).build();
    town.listen(&http(), 443, Manner::echo());
    let (_, _, took) = connect(&mut town, &http());
    assert_eq!(took, NAMES + RESOLUTION_DELAY + RTT);
    town.play.end();
}

#[test]
fn a_name_server_that_does_not_know_service_bindings_does_no_harm() {
    for temper in
        [Temper { servfail: vec![HTTPS], ..Temper::default() }, Temper { silent: vec![HTTPS], ..Temper::default() }]
    {
        let mut town = Plan::new(21).temper(temper).build();
        town.listen(&http(), 443, Manner::echo());
        let (flow, _, took) = connect(&mut town, &http());
        assert!(took <= NAMES + RESOLUTION_DELAY + RTT, "{took:?}");
        town.play.release(flow);
        town.play.end();
    }
}

#[test]
fn resolution_goes_on_with_nobody_left_to_answer_for() {
    // Released while questions are open: everything is gone all the same.
    for at in [0, 5, 10, 100, 3000] {
        let mut town = town(Plan::new(22).temper(Temper { dead: true, ..Temper::default() }));
        let flow = town.open_by_name(&quic(), Manner::default());
        town.play.run_for(at * MS);
        town.play.release(flow);
        town.play.end();
    }
}

#[test]
fn many_connections_to_one_name_ask_once() {
    let mut town = town(Plan::new(23));
    let flows: Vec<_> = (0..20).map(|_| town.open_by_name(&quic(), Manner::default())).collect();
    assert!(town.play.run_until(5 * S, |p| flows.iter().all(|f| p.flow(*f).is_ready())));
    assert_eq!(town.names.questions(), 2, "one about A, one about AAAA");
    for f in &flows {
        town.play.say(*f, "x", SendOptions { is_final: true, ..SendOptions::default() });
    }
    assert!(town.play.run_until(5 * S, |p| flows.iter().all(|f| p.flow(*f).is_over())));
    town.play.end();
}

#[test]
fn addresses_that_are_refused_are_all_listed_with_the_name() {
    let zone = "server.test A 198.51.100.1\nserver.test A 198.51.100.2\nserver.test A 198.51.100.3\n";
    let mut town = Plan::new(24).zone(zone).build();
    town.play.world().set_unroutable(neater_netsim::Unroutable::Unreachable);
    let flow = town.open_by_name(&Ask::over(&[Stack::Tls]), Manner::default());
    assert!(town.play.run_until(30 * S, |p| p.flow(flow).is_over()));
    let error = failure(&town, flow).unwrap();
    assert_eq!(error.candidates.len(), 3, "{error}");
    assert!(error.candidates.iter().all(|c| matches!(c.fate, Fate::Failed(_))), "{error}");
    town.play.end();
}

#[test]
fn an_outcome_lives_no_longer_than_what_the_name_meant() {
    let old = "$NEGATIVE 5\nserver.test 20 A 198.51.100.1\n";
    let mut town = town(Plan::new(40).zone(old));
    let ask = Ask::over(&[Stack::Tcp]);
    assert_eq!(connect(&mut town, &ask).1, v4());
    town.names.set_zone(neater_dns::Zone::parse(&format!("server.test 20 AAAA {SERVER_V6}\n")).expect("a zone"));
    town.play.run_for(10 * S);
    let (_, addr, took) = connect(&mut town, &ask);
    assert_eq!((addr, took), (v4(), RTT), "the record still holds, and no question is asked");
    town.play.run_for(11 * S);
    let (_, addr, took) = connect(&mut town, &ask);
    assert_eq!((addr, took), (v6(), NAMES + RTT), "it does not any more");
}

#[test]
fn an_outcome_does_not_outlive_the_hosts_file() {
    let mut town = town(Plan::new(41));
    let host = town.play.host(town.client);
    let says = |addr: &str| NameConfig { resolv_conf: Vec::new(), hosts: format!("{addr} moved.test\n").into_bytes() };
    let ask = Ask::over(&[Stack::Tcp]);
    town.play.world().set_name_config(host, says(SERVER_V4));
    town.play.run_for(S);
    assert_eq!(connect_to(&mut town, &ask, "moved.test", 443).1, v4());
    town.play.run_for(100 * S);
    let (_, addr, took) = connect_to(&mut town, &ask, "moved.test", 443);
    assert_eq!((addr, took), (v4(), RTT));
    town.play.world().set_name_config(host, says(SERVER_V6));
    town.play.run_for(S);
    assert_eq!(connect_to(&mut town, &ask, "moved.test", 443).1, v6());
}
