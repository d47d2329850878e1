//! A host whose network changes while a connection is being established.

use neater_base::net::{InterfaceAddr, InterfaceKind, NameConfig};
use neater_engine::{LocalEndpoint, NameFailure, Reason, RemoteEndpoint, SendOptions, Stack, Step};
use neater_link::{Filter, LinkConfig, Match, Protocol};
use neater_netsim::IfaceId;
use neater_property::Value;
use neater_testkit::town::{NAME_SERVER, SERVER_NAME, SERVER_V4, server_v4, server_v6};
use neater_testkit::{Ask, FlowId, Manner, Plan, Temper, Town};
use std::net::SocketAddr;
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn message() -> SendOptions {
    SendOptions::default()
}

fn town(plan: Plan, ask: &Ask) -> Town {
    let mut town = plan.build();
    town.listen(ask, 443, Manner::echo());
    town
}

/// Another network of the client's, of both families.
fn wifi(town: &Town) -> IfaceId {
    let world = town.play.world();
    let addrs = ["203.0.113.9", "2001:db8:9::9"].map(|a| a.parse().unwrap());
    let iface = world.add_interface(town.play.host(town.client), "wlan0", InterfaceKind::WiFi, &addrs);
    world.attach(iface, LinkConfig::delay(MS), LinkConfig::delay(MS));
    iface
}

/// Leaves the cable, and some time later there is another network.
fn move_over(town: &mut Town, gap: Duration) {
    town.play.world().set_interface_up(town.client_iface, false);
    town.play.run_for(gap);
    wifi(town);
}

fn began(town: &mut Town, flow: FlowId, stack: Stack) -> usize {
    let steps = town.play.engine(flow.node).timeline(flow.conn);
    steps.iter().filter(|t| matches!(t.step, Step::Started { stack: s, .. } if s == stack)).count()
}

#[test]
fn an_attempt_from_an_address_that_is_gone_is_made_anew_from_where_the_host_is_now() {
    for stack in [Stack::Tcp, Stack::Tls, Stack::Quic, Stack::Dtls] {
        // Who sends again while there is no way at all is told so, which is the end of an attempt over UDP.
        let wait = if stack.over_udp() { 5 * MS } else { 2 * S };
        for gap in [Duration::ZERO, wait] {
            let ask = Ask::over(&[stack]);
            let mut town = town(Plan::new(1).delay(100 * MS), &ask);
            let flow = town.open(&ask, Manner::patient());
            town.play.say(flow, "hello", message());
            town.play.run_for(50 * MS);
            move_over(&mut town, gap);
            let ready = town.play.run_until(2 * S, |p| p.flow(flow).count == 5);
            assert!(ready, "{stack}, {gap:?}: {:?}", town.play.flow(flow).end());
            town.play.end();
        }
    }
}

#[test]
fn the_cached_outcome_is_no_better_from_an_address_that_is_gone() {
    for stack in [Stack::Tcp, Stack::Quic, Stack::Dtls] {
        let ask = Ask::over(&[stack]);
        let mut town = town(Plan::new(2).delay(100 * MS), &ask);
        let first = town.open(&ask, Manner::patient());
        town.play.say(first, "hello", message());
        assert!(town.play.run_until(5 * S, |p| p.flow(first).count == 5));
        town.play.close(first);
        town.play.run_for(S);
        let flow = town.open(&ask, Manner::patient());
        town.play.say(flow, "hello", message());
        assert_eq!(town.play.stats(town.client).cache_hits, 1, "{stack}");
        town.play.run_for(50 * MS);
        move_over(&mut town, 10 * MS);
        let ready = town.play.run_until(2 * S, |p| p.flow(flow).count == 5);
        assert!(ready, "{stack}: {:?}", town.play.flow(flow).end());
        // What was found out here is of this network.
        let hits = town.play.stats(town.client).cache_hits;
        let again = town.open(&ask, Manner::patient());
        assert!(town.play.run_until(5 * S, |p| p.flow(again).is_ready()));
        assert_eq!(town.play.stats(town.client).cache_hits, hits + 1, "{stack}");
        town.play.end();
    }
}

#[test]
fn an_attempt_is_not_begun_again_for_another_network_that_comes() {
    for stack in [Stack::Tls, Stack::Quic] {
        let ask = Ask::over(&[stack]);
        let mut town = town(Plan::new(3).delay(200 * MS), &ask);
        let flow = town.open(&ask, Manner::patient());
        for n in 0..5 {
            town.play.run_for(30 * MS);
            let iface = wifi(&town);
            town.play.run_for(10 * MS);
            town.play.world().set_interface_up(iface, n == 4);
        }
        assert!(town.play.run_until(5 * S, |p| p.flow(flow).is_ready()));
        let trips = if stack == Stack::Tls { 2 } else { 1 };
        assert_eq!(town.play.flow(flow).establishment(), Some(400 * MS * trips), "{stack}");
        assert_eq!(began(&mut town, flow, stack), 1, "{stack}");
        // It was found out while the network changed: nobody relies on it.
        town.open(&ask, Manner::patient());
        assert_eq!(town.play.stats(town.client).cache_hits, 0, "{stack}");
        town.play.end();
    }
}

#[test]
fn names_are_asked_for_anew_where_the_host_is_now() {
    let ask = Ask::over(&[Stack::Tls]);
    // The name server of the old network does not answer.
    let mut town = town(Plan::new(4).temper(Temper { delay: 60 * S, ..Temper::default() }), &ask);
    let flow = town.open_by_name(&ask, Manner::patient());
    town.play.run_for(300 * MS);
    move_over(&mut town, 10 * MS);
    town.play.run_for(10 * MS);
    // Whoever tells of the new network's name server does so a little later.
    let (world, names) = (town.play.world().clone(), "203.0.113.77");
    let host = world.add_host("other names");
    let iface = world.add_interface(host, "eth0", InterfaceKind::Wired, &[names.parse().unwrap()]);
    world.attach(iface, LinkConfig::delay(MS), LinkConfig::delay(MS));
    let zone = neater_dns::Zone::parse(&format!("{SERVER_NAME} A {SERVER_V4}\n")).unwrap();
    let other = neater_testkit::NameServer::install(&world, host, zone, Temper::default());
    let resolv_conf = format!("nameserver {names}\n").into_bytes();
    world.set_name_config(town.play.host(town.client), NameConfig { resolv_conf, hosts: Vec::new() });
    assert!(town.play.run_until(S, |p| p.flow(flow).is_ready()), "{:?}", town.play.flow(flow).end());
    assert!(other.questions() > 0);
    town.play.end();
}

#[test]
fn what_a_name_means_is_of_its_network_even_if_the_name_server_is_called_the_same() {
    let ask = Ask::over(&[Stack::Tls]);
    let mut town = town(Plan::new(5), &ask);
    let flow = town.open_by_name(&ask, Manner::patient());
    assert!(town.play.run_until(S, |p| p.flow(flow).is_ready()));
    let questions = town.names.questions();
    let again = town.open_by_name(&ask, Manner::patient());
    assert!(town.play.run_until(S, |p| p.flow(again).is_ready()));
    assert_eq!(town.names.questions(), questions, "known");
    let moved = InterfaceAddr { addr: "192.0.2.77".parse().unwrap(), prefix: 24, temporary: false, deprecated: false };
    town.play.world().add_address(town.client_iface, moved);
    town.play.run_for(10 * MS);
    let elsewhere = town.open_by_name(&ask, Manner::patient());
    assert!(town.play.run_until(S, |p| p.flow(elsewhere).is_ready()));
    assert!(town.names.questions() > questions, "{NAME_SERVER} may know other names here");
    town.play.end();
}

#[test]
fn the_time_allowed_is_counted_from_the_beginning() {
    let ask = Ask::over(&[Stack::Tls]);
    let mut town = Plan::new(6).fault(neater_testkit::Fault::BlackHole).build();
    let flow = town.open(&ask.within(S), Manner::patient());
    town.play.run_for(600 * MS);
    move_over(&mut town, 10 * MS);
    assert!(town.play.run_until(S, |p| p.flow(flow).is_over()));
    let error = town.play.flow(flow).establishment_error().expect("nobody answers");
    assert_eq!(error.reason, Reason::Timeout, "{error}");
    assert_eq!(town.play.flow(flow).over.as_ref().unwrap().0 - town.play.flow(flow).opened_at, S);
    town.play.end();
}

#[test]
fn a_race_with_an_attempt_that_lives_goes_on_when_another_interface_goes() {
    let ask = Ask::over(&[Stack::Tls]);
    let mut town = town(Plan::new(7).delay(200 * MS), &ask);
    let wlan = wifi(&town);
    town.play.run_for(MS);
    let request = town.request(&ask);
    let locals = ["eth0", "wlan0"].map(|i| LocalEndpoint::new().with_interface(i));
    let client = town.client;
    let remotes = [server_v4()].into();
    let conn = town.play.engine(client).initiate_from(&request, &remotes, &locals, None).expect("it begins");
    let flow = town.play.adopt(client, conn, Manner::patient());
    town.play.run_for(350 * MS);
    assert_eq!(began(&mut town, flow, Stack::Tls), 2, "one by each interface: {:?}", town.play.flow(flow).end());
    town.play.world().set_interface_up(wlan, false);
    assert!(town.play.run_until(5 * S, |p| p.flow(flow).is_ready()));
    assert_eq!(town.play.flow(flow).establishment(), Some(800 * MS), "two round trips from the beginning");
    town.play.end();
}

#[test]
fn the_program_is_asked_anew_for_names_and_what_it_says_of_another_network_reaches_nobody() {
    let ask = Ask::over(&[Stack::Tls]);
    let mut town = town(Plan::new(8), &ask);
    let client = town.client;
    town.play.engine(client).ask_program_for_names(true);
    let flow = town.open_by_name(&ask, Manner::patient());
    town.play.run_for(300 * MS);
    let [old] = &town.play.engine(client).take_name_questions()[..] else { panic!("one question") };
    let old = old.id;
    move_over(&mut town, 10 * MS);
    town.play.run_for(10 * MS);
    let [new] = &town.play.engine(client).take_name_questions()[..] else { panic!("one question more") };
    let new = new.id;
    town.play.engine(client).answer_name(old, Err(NameFailure::NoSuchName), S);
    town.play.run_for(S);
    assert!(!town.play.flow(flow).is_over(), "what was asked there is not told here");
    town.play.engine(client).answer_name(new, Ok(&[SERVER_V4.parse().unwrap()]), S);
    assert!(town.play.run_until(S, |p| p.flow(flow).is_ready()), "{:?}", town.play.flow(flow).end());
    town.play.end();
}

/// What comes from the server although the client has said nothing since it moved: it has shown where it is now.
fn hears_where_it_is(mut town: Town, flow: FlowId, moves: impl FnOnce(&mut Town)) {
    town.play.say(flow, "hello", message());
    assert!(town.play.run_until(S, |p| p.flow(flow).count == 5), "{:?}", town.play.flow(flow).end());
    town.play.run_for(2 * S);
    let at = town.play.accepted(town.server)[0];
    moves(&mut town);
    town.play.run_for(100 * MS);
    assert!(town.play.flow(flow).path_changes > 0, "the program is told");
    town.play.say(at, "news", message());
    assert!(town.play.run_until(S, |p| p.flow(flow).count == 9), "the server has not followed");
    // What the host is attached to for all others has not changed: what was learnt there holds.
    let hits = town.play.stats(town.client).cache_hits;
    let again = town.open(&Ask::over(&[Stack::Quic]), Manner::patient());
    assert!(town.play.run_until(S, |p| p.flow(again).is_ready()));
    let other = town.open(&Ask::over(&[Stack::Quic]), Manner::patient());
    assert!(town.play.run_until(S, |p| p.flow(other).is_ready()));
    assert!(town.play.stats(town.client).cache_hits > hits);
    town.play.end();
}

fn with_address(town: &Town, iface: IfaceId, addr: &str, temporary: bool) {
    let addr = InterfaceAddr { addr: addr.parse().unwrap(), prefix: 64, temporary, deprecated: false };
    town.play.world().add_address(iface, addr);
}

#[test]
fn a_session_follows_its_host_by_an_interface_without_a_default_route() {
    let ask = Ask::over(&[Stack::Quic]);
    let mut town = town(Plan::new(9), &ask);
    let world = town.play.world().clone();
    let [client, server] = [(town.client, "10.0.0.1"), (town.server, "10.0.0.2")].map(|(node, addr)| {
        world.add_interface(town.play.host(node), "lan0", InterfaceKind::Wired, &[addr.parse().unwrap()])
    });
    world.connect(client, server, LinkConfig::delay(MS), LinkConfig::delay(MS));
    town.play.run_for(MS);
    let remote = RemoteEndpoint::from(SocketAddr::new("10.0.0.2".parse().unwrap(), 443));
    let mut security = ask.security(neater_property::Role::Initiate);
    security.server_name = Some(SERVER_NAME.into());
    let flow = town.open_to(&Ask { security: Some(security), ..ask }, &[remote], Manner::patient());
    hears_where_it_is(town, flow, |town| {
        with_address(town, client, "10.0.0.3", false);
        town.play.world().remove_address(client, "10.0.0.1".parse().unwrap());
    });
}

#[test]
fn a_session_follows_its_host_from_a_temporary_address_that_goes() {
    let ask = Ask::over(&[Stack::Quic]);
    let mut town = town(Plan::new(10), &ask);
    let temporary = "2001:db8:1::77";
    let iface = town.client_iface;
    with_address(&town, iface, temporary, true);
    town.play.run_for(MS);
    let flow = town.open_to(&ask, &[server_v6()], Manner::patient());
    hears_where_it_is(town, flow, |town| {
        let at = town.play.accepted(town.server)[0];
        let from = town.play.engine(at.node).remote_addr(at.conn).unwrap().ip();
        assert_eq!(from.to_string(), temporary);
        town.play.world().remove_address(town.client_iface, from);
    });
}

/// RFC 9260 has no words for it, but an association follows a peer whose address has changed and that shows it is the same; who asks
/// where the peer is hears it.
#[test]
fn an_association_follows_the_client_and_the_program_is_told_where_it_is() {
    let ask = Ask::over(&[Stack::Sctp]);
    let mut town = town(Plan::new(6), &ask);
    let flow = town.open(&ask, Manner::patient());
    town.play.say(flow, "before ", message());
    assert!(town.play.run_until(S, |p| p.flow(flow).received == b"before "));
    let at = town.play.accepted(town.server)[0];
    let before = town.play.engine(at.node).remote_addr(at.conn).unwrap();
    move_over(&mut town, 10 * MS);
    town.play.say(flow, "after", message());
    assert!(town.play.run_until(60 * S, |p| p.flow(flow).received == b"before after"), "{:?}", town.play.flow(flow));
    let after = town.play.engine(at.node).remote_addr(at.conn).unwrap();
    assert_ne!(after.ip(), before.ip());
    assert_eq!(after.port(), before.port(), "the port of SCTP");
    town.play.end();
}

/// From the cable to a wireless network that lets no UDP through, where a program does not want to wait for QUIC's idle timeout.
fn move_to_where_udp_is_blocked(town: &mut Town) -> IfaceId {
    move_over_to(town, LinkConfig::delay(MS).with_filter(Filter::drop(Match::Protocol(Protocol::Udp))))
}

fn move_over_to(town: &mut Town, link: LinkConfig) -> IfaceId {
    town.play.world().set_interface_up(town.client_iface, false);
    let iface = wifi(town);
    town.play.world().attach(iface, link.clone(), link);
    iface
}

fn speaks(town: &mut Town, ask: &Ask) -> FlowId {
    let flow = town.open(ask, Manner::patient());
    town.play.say(flow, "hello", message());
    assert!(town.play.run_until(2 * S, |p| p.flow(flow).count == 5), "{:?}", town.play.flow(flow).end());
    flow
}

#[test]
fn a_session_ends_soon_where_udp_is_blocked_and_the_next_goes_over_tcp() {
    for says in [true, false] {
        let ask = Ask::over(&[Stack::Quic, Stack::Tls]);
        let mut town = town(Plan::new(13), &ask);
        let flow = speaks(&mut town, &ask);
        assert_eq!(town.play.engine(flow.node).stack(flow.conn), Some(Stack::Quic));
        move_to_where_udp_is_blocked(&mut town);
        if says {
            town.play.say(flow, "are you there?", message());
        }
        assert!(town.play.run_until(7 * S, |p| p.flow(flow).is_over()), "{says}: it waits for its idle timeout");
        let why = format!("{:?}", town.play.flow(flow).end());
        assert!(why.contains("no viable path"), "{why}");
        let next = town.open(&ask, Manner::patient());
        town.play.say(next, "again", message());
        assert!(town.play.run_until(S, |p| p.flow(next).count == 5), "{:?}", town.play.flow(next).end());
        assert_eq!(town.play.engine(next.node).stack(next.conn), Some(Stack::Tls));
        town.play.end();
    }
}

#[test]
fn a_session_waits_where_there_is_no_network_and_where_the_next_one_is_slow_or_loses() {
    let lossy = |seed| LinkConfig::delay(20 * MS + seed as u32 * MS).with_loss(0.3);
    for seed in 0..20 {
        let ask = Ask::over(&[Stack::Quic]);
        let mut town = town(Plan::new(100 + seed), &ask);
        let flow = speaks(&mut town, &ask);
        if seed % 2 == 0 {
            // A tunnel, in which there is nothing.
            town.play.world().set_interface_up(town.client_iface, false);
            town.play.run_for(15 * S);
            assert!(!town.play.flow(flow).is_over(), "{seed}: {:?}", town.play.flow(flow).end());
        }
        let link = if seed == 1 { LinkConfig::delay(1200 * MS) } else { lossy(seed) };
        move_over_to(&mut town, link);
        town.play.say(flow, " and on", message());
        let got = town.play.run_until(12 * S, |p| p.flow(flow).count == 12);
        assert!(got, "{seed}: {:?}", town.play.flow(flow).end());
        town.play.end();
    }
}

#[test]
fn a_program_that_has_said_how_long_it_waits_is_not_told_sooner() {
    let ask = Ask::over(&[Stack::Quic]);
    let mut town = town(Plan::new(14), &ask);
    let flow = speaks(&mut town, &ask);
    town.play.engine(flow.node).set_property(flow.conn, "connTimeout", &Value::from(20u64)).unwrap();
    let iface = move_to_where_udp_is_blocked(&mut town);
    town.play.run_for(12 * S);
    assert!(!town.play.flow(flow).is_over(), "{:?}", town.play.flow(flow).end());
    town.play.world().attach(iface, LinkConfig::delay(MS), LinkConfig::delay(MS));
    town.play.say(flow, " and on", message());
    assert!(town.play.run_until(10 * S, |p| p.flow(flow).count == 12), "{:?}", town.play.flow(flow).end());
    town.play.end();
}

/// Further addresses of a network that lets nothing through are no new chance.
#[test]
fn addresses_that_come_where_nobody_answers_do_not_begin_the_wait_anew() {
    let ask = Ask::over(&[Stack::Quic]);
    let mut town = town(Plan::new(15), &ask);
    let flow = speaks(&mut town, &ask);
    let iface = move_to_where_udp_is_blocked(&mut town);
    let began = town.play.now();
    for n in 0..4 {
        if !town.play.run_until(2 * S, |p| p.flow(flow).is_over()) {
            with_address(&town, iface, &format!("2001:db8:9::a{n}"), true);
        }
    }
    assert!(town.play.flow(flow).is_over() && town.play.now() - began < 7 * S, "{:?}", town.play.flow(flow).end());
    town.play.end();
}
