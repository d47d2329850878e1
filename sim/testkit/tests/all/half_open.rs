//! QUIC handshakes that begin and do not end: peers that stall after their first flight, answer with garbage, or say hello
//! a thousand times. On either side it is bounded, nothing is left, the error is clear, and a race goes on.

use neater_base::net::{Ecn, InterfaceKind, Net, SocketOptions, Token, Transmit};
use neater_base::{Instant, Rng};
use neater_engine::{BadCause, EngineStats, Fate, Reason, SendOptions, Stack};
use neater_testkit::town::{SERVER_V4, server_by_name, server_v4};
use neater_testkit::{Ask, FlowId, Manner, Plan, Town, for_each_seed, security};
use std::net::SocketAddr;
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
/// There and back between the client and the name server.
const NAMES: Duration = Duration::from_millis(10);
/// RFC 8305 section 8: Connection Attempt Delay.
const DELAY: Duration = Duration::from_millis(250);
/// QUIC's idle timeout, and what its last probe adds (RFC 9000 section 10.1).
const IDLE: Duration = Duration::from_secs(30);
/// What rounding and processing may cost.
const SLACK: Duration = Duration::from_millis(5);
/// Packets of a link that are counted at all.
const FOR_EVER: u64 = 20_000;

fn any() -> Ask {
    Ask::over(&[])
}

fn quic() -> Ask {
    Ask::over(&[Stack::Quic])
}

/// A request over these stacks for a listener and one for its clients: the listener's certificate is so large that its first
/// flight takes several packets.
fn wordy(stacks: &[Stack]) -> (Ask, Ask) {
    let names: Vec<String> = (0..60).map(|i| format!("{}-{i}.server.test", "long".repeat(10))).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).chain(security::SERVER_NAMES).collect();
    let identity = neater_tls::self_signed(&names, neater_netsim::DEFAULT_WALL, [9; 32]);
    let (mut theirs, mut ours) = (security::server_security(), security::client_security());
    ours.trust = neater_tls::Trust::Only(identity.chain.clone());
    theirs.server_certificates = vec![identity];
    let ask = |security| Ask { security: Some(security), ..Ask::over(stacks) };
    (ask(theirs), ask(ours))
}

fn plan(rng: &mut Rng, seed: u64) -> (Plan, Duration) {
    let half = MS * (1 + rng.below(60) as u32);
    (Plan::new(seed).delay(half), 2 * half)
}

fn timeline(town: &mut Town, flow: FlowId) -> String {
    let steps = town.play.engine(flow.node).timeline(flow.conn);
    steps.iter().map(|t| format!("{:?} {}\n", t.at, t.step)).collect()
}

fn finish(town: &mut Town, flow: FlowId) {
    town.play.say(flow, "ping", SendOptions { is_final: true, ..SendOptions::default() });
    assert!(town.play.run_until(30 * S, |p| p.flow(flow).is_over()), "{:?}", town.play.flow(flow));
    assert_eq!(town.play.flow(flow).received, b"ping");
}

/// Lets `n` more packets through a link, and no other.
fn only(town: &Town, link: neater_netsim::LinkId, n: u64) {
    let world = town.play.world();
    let from = world.link_counters(link).offered + n;
    world.set_link(link, world.link_config(link).without(from..FOR_EVER));
}

// --- the client ------------------------------------------------------------------------------------------------------

#[test]
fn a_server_that_stalls_after_its_first_flight_lets_the_race_go_on() {
    for_each_seed("half_open", "a_server_that_stalls_after_its_first_flight_lets_the_race_go_on", 100, |seed| {
        let mut rng = Rng::from_number(seed);
        let (plan, rtt) = plan(&mut rng, seed);
        let mut town = plan.build();
        let (theirs, ours) = wordy(&[]);
        town.listen(&theirs, 443, Manner::echo());
        // IPv6 is started first, with QUIC; TLS follows over IPv4. The rest of the server's flight never comes.
        only(&town, town.v6.from, 1);
        let flow = town.open_by_name(&ours, Manner::default());
        assert!(town.play.run_until(20 * S, |p| p.flow(flow).is_ready()), "{:?}", town.play.flow(flow).end());
        let told = timeline(&mut town, flow);
        assert!(told.contains("QUIC to [2001:db8:1::1]:443: reachable"), "{told}");
        assert_eq!(town.play.engine(flow.node).stack(flow.conn), Some(Stack::Tls), "{told}");
        let took = town.play.flow(flow).establishment().unwrap();
        // Held back while QUIC was thought to be about to finish, and waited for two round trips at last.
        let bound = NAMES + rtt + DELAY.max(2 * rtt) + 2 * rtt + 2 * rtt + SLACK;
        assert!(took <= bound, "{took:?}, {bound:?} was promised: {told}");
        finish(&mut town, flow);
        // The next race does not begin with what stalled.
        town.play.run_for(2 * S);
        let world = town.play.world().clone();
        let tcp = neater_link::Filter::reject(neater_link::Match::Protocol(neater_link::Protocol::Tcp));
        world.set_link(town.v4.to, world.link_config(town.v4.to).with_filter(tcp));
        let again = town.open_by_name(&ours.clone().within(10 * S), Manner::default());
        town.play.run_until(11 * S, |p| p.flow(again).is_ready() || p.flow(again).is_over());
        let stalled = town.play.engine(again.node).candidates(again.conn);
        let stalled = stalled.iter().find(|c| c.stack == Stack::Quic && c.addr.is_ipv6()).expect("a candidate");
        assert!(stalled.doubt.is_some_and(|d| d.cause == BadCause::Stalled), "{}", timeline(&mut town, again));
        town.play.end();
    });
}

#[test]
fn where_nothing_but_quic_may_be_used_a_stalled_handshake_is_an_error_in_bounded_time() {
    let test = "where_nothing_but_quic_may_be_used_a_stalled_handshake_is_an_error_in_bounded_time";
    for_each_seed("half_open", test, 60, |seed| {
        let mut rng = Rng::from_number(seed);
        let (plan, _) = plan(&mut rng, seed);
        let mut town = plan.build();
        let (theirs, ours) = wordy(&[Stack::Quic]);
        town.listen(&theirs, 443, Manner::echo());
        // The first packet of the server's flight arrives, or its first flight alone.
        let (to, from) = if rng.chance(0.5) { (FOR_EVER, 1) } else { (1, 1 + rng.below(2)) };
        for way in [town.v4, town.v6] {
            only(&town, way.to, to);
            only(&town, way.from, from);
        }
        let flow = town.open_by_name(&ours, Manner::default());
        town.play.run_until(3 * IDLE, |p| p.flow(flow).is_over());
        let told = timeline(&mut town, flow);
        let error = town.play.flow(flow).establishment_error();
        let error = error.unwrap_or_else(|| panic!("{:?}: {told}", town.play.flow(flow).end()));
        assert_eq!(error.reason, Reason::EstablishmentFailed, "{error}");
        assert!(error.candidates.iter().all(|c| matches!(c.fate, Fate::Failed(_))), "{error}");
        assert!(error.to_string().contains("timed out"), "{error}");
        town.play.end();
    });
}

/// What a liar says to a packet of a client.
fn lie(kind: u64, packet: &[u8], rng: &mut Rng) -> Vec<u8> {
    let random = |rng: &mut Rng, len: u64| {
        let mut out = vec![0; len as usize];
        rng.fill(&mut out);
        out
    };
    // RFC 8999 section 5.1: version, then both connection ids, each with its length before it.
    let cut = |at: usize| -> Option<(&[u8], usize)> {
        let len = usize::from(*packet.get(at)?);
        Some((packet.get(at + 1..at + 1 + len)?, at + 1 + len))
    };
    let ids = cut(5).and_then(|(dcid, at)| Some((dcid, cut(at)?.0)));
    let Some((theirs, ours)) = ids.filter(|_| packet[0] & 0x80 != 0) else {
        let len = rng.below(1500);
        return random(rng, len);
    };
    let header = |first: u8, version: u32| {
        let mut out = vec![first];
        out.extend(version.to_be_bytes());
        for id in [ours, theirs] {
            out.push(id.len() as u8);
            out.extend(id);
        }
        out
    };
    let mut out;
    match kind {
        0 => {
            let len = rng.below(1500);
            out = random(rng, len);
        }
        1 => out = packet.to_vec(),
        // An Initial packet, a Handshake packet, a Retry of garbage.
        2..=4 => {
            out = header([0xc0, 0xe0, 0xf0][kind as usize - 2], 1);
            let len = 20 + rng.below(1200);
            out.extend(random(rng, len));
        }
        // Version Negotiation that names the version in use must be ignored (RFC 9000 section 6.2).
        5 => {
            out = header(0x80 | rng.below(128) as u8, 0);
            out.extend([0, 0, 0, 1, 0x1a, 0x2a, 0x3a, 0x4a]);
        }
        // And one that names no version of ours is the end of the attempt.
        6 => {
            out = header(0x80 | rng.below(128) as u8, 0);
            out.extend([0x1a, 0x2a, 0x3a, 0x4a]);
        }
        // A short header for the client's connection id, as a stateless reset has.
        _ => {
            out = vec![0x40 | rng.below(64) as u8];
            out.extend(ours);
            let len = 21 + rng.below(100);
            out.extend(random(rng, len));
        }
    }
    out
}

/// Puts a liar at the server's UDP port. It answers each packet up to `n` times, in the ways of `kinds`.
fn install_liar(town: &Town, kinds: Vec<u64>, n: u64) {
    let host = town.play.host(town.server);
    let answers = move |_: Instant, _: SocketAddr, packet: &[u8], rng: &mut Rng| {
        let mut out = Vec::new();
        for _ in 0..1 + rng.below(n) {
            let kind = kinds[rng.below(kinds.len() as u64) as usize];
            out.push((MS * rng.below(20) as u32, lie(kind, packet, rng)));
        }
        out
    };
    town.play.world().udp_service(host, 443, Box::new(answers));
}

#[test]
fn garbage_answers_to_quic_do_not_stop_a_race() {
    for_each_seed("half_open", "garbage_answers_to_quic_do_not_stop_a_race", 150, |seed| {
        let mut rng = Rng::from_number(seed);
        let (plan, rtt) = plan(&mut rng, seed);
        let mut town = plan.build();
        town.listen(&Ask::over(&[Stack::Tls]), 443, Manner::echo());
        install_liar(&town, vec![seed % 8, rng.below(8)], 30);
        let flow = town.open_by_name(&any(), Manner::default());
        assert!(town.play.run_until(20 * S, |p| p.flow(flow).is_ready()), "{:?}", town.play.flow(flow).end());
        let took = town.play.flow(flow).establishment().unwrap();
        let answer = rtt + 20 * MS;
        let bound = NAMES + answer + DELAY.max(4 * answer) + 2 * rtt + 2 * answer + SLACK;
        assert!(took <= bound, "{took:?}, {bound:?} was promised: {}", timeline(&mut town, flow));
        assert_eq!(town.play.engine(flow.node).stack(flow.conn), Some(Stack::Tls));
        finish(&mut town, flow);
        town.play.world().remove_service(town.play.host(town.server), 443);
        town.play.end();
    });
}

#[test]
fn garbage_answers_alone_are_an_error_in_bounded_time_and_leave_nothing() {
    for_each_seed("half_open", "garbage_answers_alone_are_an_error_in_bounded_time_and_leave_nothing", 80, |seed| {
        let mut rng = Rng::from_number(seed);
        let (plan, _) = plan(&mut rng, seed);
        let mut town = plan.build();
        let kind = seed % 8;
        install_liar(&town, vec![kind], 30);
        let flow = town.open_to(&quic(), &[server_v4()], Manner::default());
        town.play.run_until(3 * IDLE, |p| p.flow(flow).is_over());
        let told = timeline(&mut town, flow);
        let error = town.play.flow(flow).establishment_error();
        let error = error.unwrap_or_else(|| panic!("kind {kind}: {:?}: {told}", town.play.flow(flow).end()));
        let wanted = if kind == 6 { "no common version of QUIC" } else { "timed out" };
        assert!(error.to_string().contains(wanted), "kind {kind}: {error}");
        town.play.world().remove_service(town.play.host(town.server), 443);
        town.play.end();
    });
}

// --- the listener ----------------------------------------------------------------------------------------------------

fn held(s: EngineStats) -> (u64, u64, u64) {
    (s.connections, s.quic_connections, s.groups)
}

#[test]
fn clients_that_fall_silent_in_their_handshake_are_forgotten_and_leave_room_for_others() {
    let test = "clients_that_fall_silent_in_their_handshake_are_forgotten_and_leave_room_for_others";
    for_each_seed("half_open", test, 20, |seed| {
        let mut rng = Rng::from_number(seed);
        let (mut plan, _) = plan(&mut rng, seed);
        plan.server_limits.handshakes = 5;
        let mut town = plan.build();
        town.listen(&quic(), 443, Manner::echo());
        // Of all that the clients say together, this many packets arrive: twenty hellos, and some of what follows them.
        only(&town, town.v4.to, 20 + rng.below(10));
        let flows: Vec<_> =
            (0..20).map(|_| town.open_to(&quic().within(5 * S), &[server_v4()], Manner::default())).collect();
        town.play.run_for(2 * S);
        let begun = town.play.stats(town.server);
        assert!(begun.refused > 0, "there is room for five: {begun:?}");
        let decided =
            |p: &mut neater_testkit::Playground| flows.iter().all(|f| p.flow(*f).is_over() || p.flow(*f).is_ready());
        assert!(town.play.run_until(10 * S, decided));
        town.play.run_for(IDLE + 10 * S);
        assert_eq!(held(town.play.stats(town.server)), (0, 0, 0));
        // Nobody is counted who is gone.
        let world = town.play.world().clone();
        world.set_link(town.v4.to, world.link_config(town.v4.to).without([]));
        for _ in 0..7 {
            let flow = town.open_to(&quic(), &[server_v4()], Manner::default());
            assert!(town.play.run_until(S, |p| p.flow(flow).is_ready()), "{:?}", town.play.flow(flow).end());
            finish(&mut town, flow);
        }
        town.play.end();
    });
}

/// Throws datagrams at the server from a host of its own, without an engine.
fn throw(town: &mut Town, seed: u64, count: usize, mut make: impl FnMut(&mut Rng) -> Vec<u8>) {
    let world = town.play.world().clone();
    let mut rng = Rng::from_number(seed ^ 0x0074_6872_6f77);
    let host = world.add_host("attacker");
    let iface = world.add_interface(host, "eth0", InterfaceKind::Wired, &["203.0.113.66".parse().unwrap()]);
    world.attach(iface, neater_link::LinkConfig::delay(MS), neater_link::LinkConfig::delay(MS));
    let mut net = world.net(host);
    let to: SocketAddr = format!("{SERVER_V4}:443").parse().unwrap();
    let sock = net.udp(Token(1), to, &SocketOptions::default()).expect("a socket");
    for i in 0..count {
        let contents = make(&mut rng);
        let packet = Transmit {
            destination: to,
            source: None,
            interface: None,
            ecn: Ecn::NotEct,
            segment_size: None,
            contents: &contents,
        };
        // What does not fit is lost, as on any network.
        let _ = net.send(sock, &packet);
        if i % 50 == 49 {
            town.play.run_for(MS);
        }
    }
    town.play.run_for(S);
    net.close(sock);
}

#[test]
fn garbage_at_a_listener_makes_no_connection_and_a_client_gets_through() {
    for_each_seed("half_open", "garbage_at_a_listener_makes_no_connection_and_a_client_gets_through", 15, |seed| {
        let mut town = Plan::new(seed).build();
        town.listen(&quic(), 443, Manner::echo());
        throw(&mut town, seed, 2000, |rng| {
            let len = [rng.below(30), rng.below(1500), 1200][rng.below(3) as usize];
            let mut out = vec![0; len as usize];
            rng.fill(&mut out);
            // Half of them begin as an Initial packet of version 1 does, with ids of eight bytes.
            if out.len() > 30 && rng.chance(0.5) {
                out[..6].copy_from_slice(&[0xc0 | rng.below(16) as u8, 0, 0, 0, 1, 8]);
                out[14] = 8;
                // No token, and the length of the rest.
                out[23] = 0;
                let rest = (out.len() - 26) as u16 | 0x4000;
                out[24..26].copy_from_slice(&rest.to_be_bytes());
            }
            out
        });
        assert_eq!(held(town.play.stats(town.server)), (0, 0, 0));
        let flow = town.open_to(&quic(), &[server_v4()], Manner::default());
        assert!(town.play.run_until(S, |p| p.flow(flow).is_ready()), "{:?}", town.play.flow(flow).end());
        finish(&mut town, flow);
        town.play.end();
    });
}

#[test]
fn a_race_to_a_listener_that_is_flooded_with_hellos_falls_back_to_tls() {
    let mut plan = Plan::new(1);
    plan.server_limits.handshakes = 5;
    let mut town = plan.build();
    town.listen(&any(), 443, Manner::echo());
    // The handshakes of five others are under way, and stall.
    only(&town, town.v4.to, 5);
    let flows: Vec<_> =
        (0..5).map(|_| town.open_to(&quic().within(20 * S), &[server_v4()], Manner::default())).collect();
    town.play.run_for(S);
    assert_eq!(town.play.stats(town.server).quic_connections, 5);
    let world = town.play.world().clone();
    world.set_link(town.v4.to, world.link_config(town.v4.to).without([]));
    for way in [town.v4, town.v6] {
        let udp = neater_link::Filter::drop(neater_link::Match::Protocol(neater_link::Protocol::Udp));
        world.set_link(way.from, world.link_config(way.from).with_filter(udp));
    }
    let flow = town.open_to(&any(), &[server_by_name()], Manner::default());
    assert!(town.play.run_until(5 * S, |p| p.flow(flow).is_ready()), "{:?}", town.play.flow(flow).end());
    assert_eq!(town.play.engine(flow.node).stack(flow.conn), Some(Stack::Tls));
    finish(&mut town, flow);
    assert!(town.play.run_until(60 * S, |p| flows.iter().all(|f| p.flow(*f).is_over())));
    town.play.end();
}

/// A listener of QUIC with room for five handshakes, five that are under way and stall, and the links whole again.
fn crowded(seed: u64) -> Town {
    let mut plan = Plan::new(seed).delay(10 * MS);
    plan.server_limits.handshakes = 5;
    let mut town = plan.build();
    town.listen(&quic(), 443, Manner::echo());
    only(&town, town.v4.to, 5);
    let flows: Vec<_> = (0..5).map(|_| town.open_to(&quic(), &[server_v4()], Manner::default())).collect();
    town.play.run_for(100 * MS);
    // They go without a word that arrives.
    for f in flows {
        town.play.abort(f);
    }
    town.play.run_for(S + 400 * MS);
    assert_eq!(town.play.stats(town.client).quic_connections, 0);
    assert_eq!(town.play.stats(town.server).quic_connections, 5);
    let world = town.play.world().clone();
    world.set_link(town.v4.to, world.link_config(town.v4.to).without([]));
    town
}

#[test]
fn quic_handshakes_that_are_never_finished_do_not_keep_others_out() {
    let mut town = crowded(2);
    // They are left in peace for two seconds.
    let early = town.open_to(&quic(), &[server_v4()], Manner::default());
    assert!(town.play.run_until(S, |p| p.flow(early).is_over()));
    assert!(town.play.flow(early).establishment_error().is_some(), "there is no room yet");
    town.play.run_for(S);
    let before = town.play.stats(town.server).refused;
    let flow = town.open_to(&quic(), &[server_v4()], Manner::default());
    assert!(town.play.run_until(S, |p| p.flow(flow).is_ready()), "{:?}", town.play.flow(flow).end());
    assert_eq!(town.play.stats(town.server).refused, before + 1, "one of them made room");
    finish(&mut town, flow);
    town.play.run_for(IDLE + 10 * S);
    assert_eq!(town.play.stats(town.server).quic_connections, 0);
    town.play.end();
}

#[test]
fn connections_that_were_refused_are_not_counted_as_handshakes_for_ever() {
    let mut town = crowded(3);
    for _ in 0..11 {
        let flows: Vec<_> = (0..100).map(|_| town.open_to(&quic(), &[server_v4()], Manner::default())).collect();
        assert!(town.play.run_until(S, |p| flows.iter().all(|f| p.flow(*f).is_over() || p.flow(*f).is_ready())));
        for f in flows {
            town.play.abort(f);
        }
    }
    assert!(town.play.stats(town.server).refused >= 1000, "{:?}", town.play.stats(town.server));
    town.play.run_for(IDLE + 10 * S);
    assert_eq!(held(town.play.stats(town.server)), (0, 0, 0));
    // Were it in doubt whether there is room, the server would have the client prove its address first.
    let flow = town.open_to(&quic(), &[server_v4()], Manner::default());
    assert!(town.play.run_until(S, |p| p.flow(flow).is_ready()));
    let took = town.play.flow(flow).establishment().unwrap();
    assert!(took < 2 * 20 * MS, "one round trip of 20 ms, not two: {took:?}");
    finish(&mut town, flow);
    town.play.end();
}
