//! Needs against needs: what one side asks of reliability and what the other does, over every
//! stack. Every pair carries messages both ways as they were sent, or the client learns in words
//! that it does not, before its connection is established (decision 0034).

use bytes::Bytes;
use neater_engine::{Fate, SendOptions, Stack, Step};
use neater_property::Role;
use neater_testkit::town::{SERVER_NAME, SERVER_V4};
use neater_testkit::{Ask, Fault, FlowId, Manner, Plan, Temper, Town};
use neater_tls::SecurityParameters;
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// So that a transport without congestion control may serve, too.
const OPEN: &str = "congestionControl=none";
const RELIABLE: &str = "reliable, ordered, replayable";
const UNRELIABLE: &str = "unreliable, low-delay, replayable";
const PREFERRED: &str = "reliability=prefer, preserveOrder=none, replayable";
const IGNORED: &str = "reliability=none, preserveOrder=none, replayable";
const DATAGRAMS: &str = "reliability=prohibit, preserveOrder=none, messages, congestionControl=none, replayable";
const NEEDS: [&str; 5] = [RELIABLE, UNRELIABLE, PREFERRED, IGNORED, DATAGRAMS];

/// Different lengths, the longest of which fits into a datagram.
const LENGTHS: [usize; 6] = [1, 900, 17, 1000, 2, 400];

fn messages(mark: u8) -> Vec<Bytes> {
    (mark..).zip(LENGTHS).map(|(byte, len)| Bytes::from(vec![byte; len])).collect()
}

/// A request by needs, with security or in the clear.
fn ask(stacks: &[Stack], needs: &str, framed: bool, secure: bool) -> Ask {
    let ask = Ask::over(stacks).needs(needs);
    let ask = if framed { ask.framed() } else { ask };
    Ask { security: (!secure).then(SecurityParameters::disabled), ..ask }
}

/// What has become of a pair.
#[derive(Debug)]
enum Pair {
    /// Messages were carried both ways, over this stack.
    Carried(Stack),
    /// In these words: before anything was sent, or by the end of the establishment.
    Refused(String),
    /// It was established, and this many messages arrived at the server, and at the client.
    Hole(Stack, usize, usize),
}

/// The server listens, the client connects and sends its messages, and the server answers with its
/// own.
fn meet(town: &mut Town, client: &Ask, server: &Ask) -> Pair {
    if let Err(e) = town.compile(town.server, Role::Listen, server) {
        return Pair::Refused(e.to_string());
    }
    if let Err(e) = town.compile(town.client, Role::Initiate, client) {
        return Pair::Refused(e.to_string());
    }
    town.listen(server, 443, Manner::patient());
    let c = town.open(client, Manner::patient());
    let settled = town.play.run_until(60 * S, |p| p.flow(c).is_ready() || p.flow(c).is_over());
    assert!(settled, "{:#?}", town.play.engine(c.node).timeline(c.conn));
    if let Some(error) = town.play.flow(c).establishment_error() {
        return Pair::Refused(error.to_string());
    }
    let stack = town.play.engine(c.node).stack(c.conn).expect("established");
    let (there, back) = (messages(1), messages(101));
    for message in &there {
        town.play.say(c, message.clone(), SendOptions::default());
    }
    let node = town.server;
    let all = there.len();
    let came = town.play.run_until(5 * S, |p| p.accepted(node).iter().any(|s| p.flow(*s).messages.len() == all));
    let served: Vec<FlowId> = town.play.accepted(node).to_vec();
    if !came {
        return Pair::Hole(stack, served.iter().map(|s| town.play.flow(*s).messages.len()).sum(), 0);
    }
    // One more may be there that is over: of an attempt that found out what the server offers.
    let s = served.into_iter().find(|s| town.play.flow(*s).messages == there);
    let s = s.unwrap_or_else(|| panic!("{stack}: the messages are not as they were sent"));
    for message in &back {
        town.play.say(s, message.clone(), SendOptions::default());
    }
    if !town.play.run_until(5 * S, |p| p.flow(c).messages.len() == back.len()) {
        return Pair::Hole(stack, all, town.play.flow(c).messages.len());
    }
    assert_eq!(town.play.flow(c).messages, back, "{stack}: as they were sent");
    Pair::Carried(stack)
}

/// All needs against all needs, with what the network lets through.
fn matrix(framed: bool, secure: bool, faults: &[Fault], mut judge: impl FnMut(&str, &str, &str, Fault, Pair)) {
    for fault in faults {
        for (client, server) in NEEDS.iter().flat_map(|c| NEEDS.map(|s| (*c, s))) {
            let of = |needs: &str| {
                let needs = if secure { needs.to_owned() } else { format!("{needs}, {OPEN}") };
                ask(&[], &needs, framed, secure)
            };
            let mut town = Plan::new(1).fault(*fault).build();
            let pair = meet(&mut town, &of(client), &of(server));
            let case = format!("{client:?} with {server:?}, {fault:?}, framed {framed}, secure {secure}");
            judge(&case, client, server, *fault, pair);
            town.play.end();
        }
    }
}

/// Every candidate is named with what is wrong with it.
fn is_helpful(text: &str) -> bool {
    text.lines().count() > 1
}

#[test]
fn with_a_framer_all_needs_meet_that_have_a_transport_in_common() {
    let faults = [Fault::None, Fault::UdpBlocked, Fault::UdpRejected];
    matrix(true, true, &faults, |case, client, server, fault, pair| {
        let both = [client, server];
        // A side that prohibits reliability has nothing in common with one that requires it, and
        // nothing where UDP is blocked.
        let apart = both.contains(&DATAGRAMS) && (both.contains(&RELIABLE) || fault != Fault::None);
        match pair {
            Pair::Carried(stack) => {
                assert!(!apart, "{case}: {stack}");
                assert!(fault == Fault::None || stack == Stack::Tls, "{case}: {stack}");
            }
            Pair::Refused(text) => assert!(apart && is_helpful(&text), "{case}: {text}"),
            hole => panic!("{case}: {hole:?}"),
        }
    });
}

#[test]
fn without_a_framer_the_network_does_not_change_what_a_message_is() {
    let faults = [Fault::None, Fault::UdpBlocked];
    matrix(false, true, &faults, |case, client, server, fault, pair| {
        // These ask for a stream: of bytes, in which messages have no ends.
        let bytes = [RELIABLE, PREFERRED].contains(&client);
        match pair {
            Pair::Carried(stack) => assert!(!bytes && !stack.is_stream() && fault == Fault::None, "{case}: {stack}"),
            Pair::Hole(stack, 0, 0) => assert!(bytes && stack.is_stream(), "{case}: {stack}"),
            Pair::Refused(text) => {
                assert!(is_helpful(&text), "{case}: {text}");
                // The error names what a framer would change.
                let more = !bytes && client != DATAGRAMS;
                assert!(!more || text.contains("set a framer"), "{case}: {text}");
                assert!(server == RELIABLE || fault != Fault::None || server == DATAGRAMS, "{case}: {text}");
            }
            hole @ Pair::Hole(..) => panic!("{case}: {hole:?}"),
        }
    });
}

#[test]
fn in_the_clear_a_message_is_lost_in_silence_only_where_nothing_but_udp_is_left() {
    let faults = [Fault::None, Fault::UdpBlocked, Fault::UdpRejected];
    matrix(true, false, &faults, |case, client, server, fault, pair| match pair {
        Pair::Carried(stack) => assert!(fault == Fault::None || stack == Stack::Tcp, "{case}: {stack}"),
        Pair::Refused(text) => {
            assert!((client, server) == (RELIABLE, DATAGRAMS) && is_helpful(&text), "{case}: {text}");
        }
        Pair::Hole(stack, there, back) => {
            assert_eq!((stack, there, back), (Stack::Udp, 0, 0), "{case}");
            assert!([client, server].contains(&DATAGRAMS), "{case}");
        }
    });
}

/// Each stack alone: needs that it does not meet are refused before anything is sent, and the
/// others are served.
#[test]
fn each_stack_alone_carries_all_needs_that_it_meets() {
    for stack in Stack::ALL {
        let mut carried = 0;
        for (client, server) in NEEDS.iter().flat_map(|c| NEEDS.map(|s| (*c, s))) {
            let of = |needs: &str| {
                let ask = Ask::over(&[stack]).needs(&format!("{needs}, {OPEN}"));
                // The others keep messages apart by themselves.
                if matches!(stack, Stack::Tcp | Stack::Tls | Stack::Quic) { ask.framed() } else { ask }
            };
            let case = format!("{stack}: {client:?} with {server:?}");
            let mut town = Plan::new(2).build();
            match meet(&mut town, &of(client), &of(server)) {
                Pair::Carried(used) => {
                    assert_eq!(used, stack, "{case}");
                    carried += 1;
                }
                Pair::Refused(text) => assert!(text.contains("ruled out by"), "{case}: {text}"),
                hole => panic!("{case}: {hole:?}"),
            }
            town.play.end();
        }
        // Of five needs one is not met, but by SCTP, which has reliability message by message.
        let expected = match stack {
            // The simulated hosts have no raw sockets: that is the reason given.
            Stack::SctpIp => 0,
            stack if stack.is_sctp() => 25,
            _ => 16,
        };
        assert_eq!(carried, expected, "{stack}");
    }
}

/// One stack against another: a connection is made only of what both have.
#[test]
fn a_peer_that_serves_another_stack_is_found_out_during_establishment() {
    use Stack::{Dtls, Quic, QuicDatagram, Sctp, Tcp, Tls};
    for (mine, theirs) in [
        (Quic, QuicDatagram),
        (QuicDatagram, Quic),
        (Quic, Dtls),
        (QuicDatagram, Dtls),
        (Dtls, Quic),
        (Dtls, QuicDatagram),
        (Tls, Quic),
        (Tls, QuicDatagram),
        (QuicDatagram, Tls),
        (Quic, Tls),
        (Dtls, Tls),
        (Sctp, Tcp),
        (Tcp, Sctp),
    ] {
        let mut town = Plan::new(3).build();
        match meet(&mut town, &Ask::over(&[mine]), &Ask::over(&[theirs])) {
            Pair::Refused(text) => {
                assert!(text.contains(&format!("{mine} to ")), "{mine} to {theirs}: {text}");
                let offers = match (mine, theirs) {
                    (Quic, QuicDatagram) => "offers datagrams",
                    (QuicDatagram, Quic) => "offers streams",
                    _ => "",
                };
                assert!(text.contains(offers), "{mine} to {theirs}: {text}");
            }
            other => panic!("{mine} to {theirs}: {other:?}"),
        }
        town.play.end();
    }
}

/// A plain server takes no datagrams, which its handshake shows: the attempt becomes a
/// stream of the same session.
#[test]
fn an_attempt_for_datagrams_becomes_a_stream_where_the_peer_has_only_these() {
    let mut town = Plan::new(4).build();
    town.listen(&ask(&[], RELIABLE, true, true), 443, Manner::echo());
    for round in 0..2 {
        let c = town.open(&ask(&[], UNRELIABLE, true, true), Manner::patient());
        town.play.say(c, "hello", SendOptions::default());
        assert!(town.play.run_until(S, |p| p.flow(c).messages == ["hello"]), "round {round}");
        assert_eq!(town.play.engine(c.node).stack(c.conn), Some(Stack::Quic));
        let took = town.play.flow(c).establishment();
        assert!(took.is_some_and(|took| took < 40 * MS), "round {round}: one handshake and no more, {took:?}");
        let steps = town.play.engine(c.node).timeline(c.conn);
        let turned = |s: &Step| matches!(s, Step::Became { stack: Stack::Quic, before: Stack::QuicDatagram, .. });
        assert_eq!(steps.iter().any(|e| turned(&e.step)), round == 0, "the second time it is known");
        let won = town.play.engine(c.node).candidates(c.conn).into_iter().find(|c| c.fate == Fate::Won);
        assert!(round == 1 || won.is_some_and(|c| c.stack == Stack::Quic));
        town.play.release(c);
        town.play.run_for(S);
    }
    town.play.end();
}

/// A listener of both has both kinds of clients, also at once, and the next one of either kind.
#[test]
fn a_listener_that_ignores_reliability_serves_streams_and_datagrams() {
    let mut town = Plan::new(5).build();
    town.listen(&ask(&[], IGNORED, true, true), 443, Manner::echo());
    let mut flows = Vec::new();
    for needs in [RELIABLE, UNRELIABLE, RELIABLE, UNRELIABLE] {
        let c = town.open(&ask(&[], needs, true, true), Manner::patient());
        for message in messages(7) {
            town.play.say(c, message, SendOptions::default());
        }
        flows.push((c, if needs == RELIABLE { Stack::Quic } else { Stack::QuicDatagram }));
    }
    let all = messages(7);
    let came = town.play.run_until(5 * S, |p| flows.iter().all(|(c, _)| p.flow(*c).messages == all));
    assert!(came, "{:?}", flows.iter().map(|(c, _)| town.play.flow(*c).messages.len()).collect::<Vec<_>>());
    for (c, stack) in flows {
        assert_eq!(town.play.engine(c.node).stack(c.conn), Some(stack));
    }
    assert_eq!(town.play.accepted(town.server).len(), 4);
    town.play.end();
}

/// What waits for a listener that may deliver nothing is delivered when it may.
#[test]
fn datagrams_of_a_session_wait_until_the_listener_may_deliver() {
    let mut town = Plan::new(6).build();
    let listener = town.listen(&ask(&[], IGNORED, true, true), 443, Manner::echo());
    town.play.engine(town.server).set_new_connection_limit(listener, Some(0));
    let c = town.open(&ask(&[], UNRELIABLE, true, true), Manner::patient());
    town.play.say(c, "early", SendOptions::default());
    town.play.run_for(2 * S);
    assert_eq!((town.play.flow(c).is_ready(), town.play.accepted(town.server).len()), (true, 0));
    town.play.engine(town.server).set_new_connection_limit(listener, Some(1));
    assert!(town.play.run_until(S, |p| p.flow(c).messages == ["early"]));
    assert_eq!(town.play.accepted(town.server).len(), 1);
    town.play.end();
}

/// Nothing would ever come of what a client goes on sending there.
#[test]
fn a_session_of_datagrams_ends_with_its_connection_at_the_server() {
    let both = (ask(&[], IGNORED, true, true), ask(&[], UNRELIABLE, true, true));
    let alone = (Ask::over(&[Stack::QuicDatagram]), Ask::over(&[Stack::QuicDatagram]));
    for (server, client) in [both, alone] {
        let mut town = Plan::new(12).build();
        town.listen(&server, 443, Manner::echo());
        let c = town.open(&client, Manner::patient());
        town.play.say(c, "hello", SendOptions::default());
        assert!(town.play.run_until(5 * S, |p| p.flow(c).messages == ["hello"]));
        assert_eq!(town.play.engine(c.node).stack(c.conn), Some(Stack::QuicDatagram));
        let s = town.play.accepted(town.server)[0];
        town.play.close(s);
        assert!(town.play.run_until(S, |p| p.flow(c).is_over()), "the client is notified");
        town.play.end();
    }
}

/// A server that is full drops the first datagrams of a session, and takes those that come when it
/// has room again.
#[test]
fn datagrams_that_come_when_a_full_server_has_room_again_are_delivered() {
    let mut plan = Plan::new(13);
    plan.server_limits.connections = 2;
    let mut town = plan.build();
    town.listen(&ask(&[], IGNORED, true, true), 443, Manner::echo());
    let open = |town: &mut Town, ask: &Ask| {
        let c = town.open(ask, Manner::patient());
        assert!(town.play.run_until(5 * S, |p| p.flow(c).is_ready()));
        c
    };
    let greet = |town: &mut Town, c: FlowId| {
        town.play.say(c, "hello", SendOptions::default());
        assert!(town.play.run_until(5 * S, |p| p.flow(c).messages == ["hello"]));
    };
    // Both sessions begin while there is room, and what fills the server is no session.
    let datagrams = ask(&[Stack::QuicDatagram], UNRELIABLE, true, true);
    let first = open(&mut town, &datagrams);
    greet(&mut town, first);
    let second = open(&mut town, &datagrams);
    let other = open(&mut town, &ask(&[Stack::Tls], RELIABLE, true, true));
    greet(&mut town, other);
    town.play.say(second, "too early", SendOptions::default());
    town.play.run_for(S);
    assert!(town.play.stats(town.server).refusals.connections > 0);
    let served = town.play.accepted(town.server)[1];
    town.play.close(other);
    assert!(town.play.run_until(5 * S, |p| p.flow(served).is_over()));
    town.play.release(served);
    town.play.run_for(S);
    town.play.say(second, "in time", SendOptions::default());
    assert!(town.play.run_until(5 * S, |p| p.flow(second).messages == ["in time"]));
    town.play.end();
}

/// Names that are found late delay UDP no longer than they have to.
#[test]
fn udp_has_its_turn_soon_after_the_last_answer_about_names() {
    // The name has no IPv6 address, which takes half a second to find out.
    let temper = Temper { slow: [(28, 500 * MS)].into(), ..Temper::default() };
    let zone = format!("{SERVER_NAME} A {SERVER_V4}\n");
    let mut town = Plan::new(14).fault(Fault::TcpBlocked).zone(zone).temper(temper).build();
    let both = ask(&[], &format!("{UNRELIABLE}, {OPEN}"), true, false);
    town.listen(&both, 443, Manner::echo());
    let c = town.open_by_name(&both, Manner::patient());
    town.play.say(c, "hello", SendOptions::default());
    assert!(town.play.run_until(10 * S, |p| p.flow(c).messages == ["hello"]));
    assert_eq!(town.play.engine(c.node).stack(c.conn), Some(Stack::Udp));
    let took = town.play.flow(c).establishment();
    assert!(took.is_some_and(|took| took >= S && took <= 2 * S), "{took:?}");
    town.play.end();
}

/// TCP that answers late is better than UDP, which does not ask.
#[test]
fn udp_waits_for_an_answer_to_others_and_ends_where_no_peer_is() {
    let needs = format!("{UNRELIABLE}, {OPEN}");
    let both = || ask(&[], &needs, true, false);
    // Nothing is silent for long: TCP wins, also over a path that is longer than the delay between
    // attempts.
    for delay in [10, 200] {
        let mut town = Plan::new(7).delay(delay * MS).build();
        town.listen(&both(), 443, Manner::echo());
        let c = town.open(&both(), Manner::patient());
        assert!(town.play.run_until(5 * S, |p| p.flow(c).is_ready()));
        assert_eq!(town.play.engine(c.node).stack(c.conn), Some(Stack::Tcp), "{delay} ms");
        town.play.end();
    }
    // TCP does not get through: UDP has its turn, and has it again.
    let mut town = Plan::new(8).fault(Fault::TcpBlocked).build();
    town.listen(&both(), 443, Manner::echo());
    for _ in 0..2 {
        let c = town.open(&both(), Manner::patient());
        town.play.say(c, "hello", SendOptions::default());
        assert!(town.play.run_until(5 * S, |p| p.flow(c).messages == ["hello"]));
        assert_eq!(town.play.engine(c.node).stack(c.conn), Some(Stack::Udp));
        assert!(town.play.flow(c).establishment().is_some_and(|took| took >= S && took <= 2 * S));
    }
    town.play.end();
    // The host sends ICMP errors: the program is notified, whether it reads or only sends.
    for manner in [Manner::patient(), Manner::stalled()] {
        let mut town = Plan::new(9).build();
        let c = town.open(&ask(&[Stack::Udp], &needs, false, false), manner);
        town.play.say(c, "is a peer there?", SendOptions::default());
        town.play.run_for(100 * MS);
        town.play.say(c, "not even now?", SendOptions::default());
        assert!(town.play.run_until(S, |p| p.flow(c).is_over()), "the program is notified");
        let end = format!("{:?}", town.play.flow(c).end());
        assert!(end.contains("connection refused"), "{end}");
        town.play.end();
    }
    // Nothing ever answers one that only sends: its receiver may be away, and come back.
    let mut town = Plan::new(11).build();
    let c = town.open(&ask(&[Stack::Udp], &format!("{needs}, send-only"), false, false), Manner::stalled());
    for _ in 0..3 {
        town.play.say(c, "is a receiver there?", SendOptions::default());
        town.play.run_for(100 * MS);
    }
    assert!(!town.play.flow(c).is_over(), "{:?}", town.play.flow(c).end());
    town.listen(&ask(&[Stack::Udp], &needs, false, false), 443, Manner::patient());
    town.play.say(c, "and now?", SendOptions::default());
    let node = town.server;
    assert!(town.play.run_until(S, |p| p.accepted(node).iter().any(|s| p.flow(*s).messages == ["and now?"])));
    town.play.end();
    // A port of another protocol sends nothing, and its engine counts what it has dropped.
    let mut town = Plan::new(10).build();
    town.listen(&ask(&[Stack::Quic], RELIABLE, true, true), 443, Manner::echo());
    let c = town.open(&ask(&[Stack::Udp], &needs, false, false), Manner::patient());
    town.play.say(c, vec![0; 3], SendOptions::default());
    town.play.run_for(S);
    assert_eq!(town.play.stats(town.server).unclaimed_datagrams, 1);
    town.play.end();
}
