//! Properties of connections and messages over SCTP that only show in trouble: who gives way in a full buffer, and for how long a peer
//! that does not answer is waited for.

use bytes::Bytes;
use neater_engine::{ConnectionError, Limits, MessageId, SctpClose, SendError, SendOptions, Stack};
use neater_link::LinkConfig;
use neater_property::TransportProperties;
use neater_testkit::{Ask, Manner, Over, Plan, Town};
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn ask() -> Ask {
    Ask::over(&[Stack::Sctp])
}

fn block(town: &Town) {
    for link in [town.v4.to, town.v4.from] {
        town.play.world().set_link(link, LinkConfig::delay(10 * MS).with_loss(1.0));
    }
}

/// RFC 7496 section 3.2, through both buffers: that of the connection and that of the association.
#[test]
fn less_important_messages_give_way_to_more_important_ones_when_the_buffers_are_full() {
    let mut plan = Plan::new(41).rate(1_000_000);
    plan.client_limits = Limits { send_buffer: 64 << 10, ..Limits::default() };
    let mut town = plan.build();
    let (c, s) = town.pair(&ask().needs("partial-reliability"), Manner::patient(), Manner::patient());
    let mut send = |priority: u32, tag: u8| {
        let options = SendOptions { reliable: Some(false), priority, ..SendOptions::default() };
        town.play.engine(c.node).send(c.conn, Bytes::from(vec![tag; 1000]), options)
    };
    // As many as there is room for, and then ten that may not displace them.
    let mut ordinary = Vec::new();
    loop {
        match send(200, 1) {
            Ok(id) => ordinary.push(id),
            Err(SendError::Blocked { .. }) => break,
            Err(e) => panic!("{e}"),
        }
    }
    assert!(ordinary.len() > 60, "{}", ordinary.len());
    assert!(matches!(send(200, 1), Err(SendError::Blocked { .. })), "as important is not more important");
    let important: Vec<MessageId> = (0..80).map(|_| send(3, 2).expect("it makes room")).collect();
    town.play.run_for(60 * S);
    let sent: Vec<u8> = town.play.flow(s).messages.iter().map(|m| m[0]).collect();
    assert_eq!(sent.iter().filter(|t| **t == 2).count(), 80, "all that are important");
    let flow = town.play.flow(c);
    assert!(important.iter().all(|id| flow.sent.contains(id) && !flow.expired.contains(id)));
    let given_up = ordinary.iter().filter(|id| flow.expired.contains(id)).count();
    assert!(given_up >= 60, "{given_up} of {} have given way", ordinary.len());
    assert_eq!(given_up + sent.iter().filter(|t| **t == 1).count(), ordinary.len(), "each is delivered or reported");
    town.play.end();
}

#[test]
fn the_program_says_for_how_long_an_acknowledgment_is_waited_for() {
    // Set before, and set on the way; without it, the retransmissions alone decide, in minutes.
    for (before, then, from, to) in [(Some(3.0), None, 3, 4), (None, Some(5.0), 5, 6), (Some(60.0), Some(2.0), 2, 3)] {
        let mut properties = TransportProperties::new();
        if let Some(seconds) = before {
            properties.set("connTimeout", seconds).unwrap();
        }
        let mut town = Plan::new(42).build();
        let (c, s) = town.pair(&ask().properties(properties), Manner::patient(), Manner::patient());
        if let Some(seconds) = then {
            town.play.engine(c.node).set_property(c.conn, "connTimeout", &seconds.into()).unwrap();
        }
        // Nothing to be acknowledged is nothing to be waited for.
        town.play.run_for(30 * S);
        town.play.say(c, "a word", SendOptions::default());
        town.play.run_for(30 * S);
        assert_eq!(town.play.flow(c).end(), None, "{before:?} {then:?}");
        assert_eq!(town.play.flow(s).messages.len(), 1);
        block(&town);
        town.play.say(c, "anybody?", SendOptions::default());
        let since = town.play.now();
        assert!(town.play.run_until(100 * S, |p| p.flow(c).is_over()));
        let took = town.play.now() - since;
        assert!(took >= from * S && took <= to * S, "{before:?} {then:?}: {took:?}");
        assert_eq!(town.play.flow(c).end(), Some(&Over::Failed(ConnectionError::Sctp(SctpClose::Unreachable))));
        town.play.end();
    }
}

/// Who asks for keep-alives hears that nobody answers them, although it has nothing to say; who does not waits for minutes.
#[test]
fn keep_alives_that_nobody_answers_are_the_end() {
    for (every, most) in [(Some(15.0), 46), (Some(1.0), 11), (None, 600)] {
        let mut properties = TransportProperties::new();
        if let Some(seconds) = every {
            properties.set("keepAliveTimeout", seconds).unwrap();
        }
        let mut town = Plan::new(45).build();
        let (c, _) = town.pair(&ask().properties(properties), Manner::patient(), Manner::patient());
        town.play.run_for(200 * S);
        assert_eq!(town.play.flow(c).end(), None, "{every:?}: while they are answered");
        block(&town);
        let over = town.play.run_until(most * S, |p| p.flow(c).is_over());
        assert!(over, "{every:?}: not after {most} s");
        assert_eq!(town.play.flow(c).end(), Some(&Over::Failed(ConnectionError::Sctp(SctpClose::Unreachable))));
        town.play.end();
    }
}

/// A peer that answers and does not read is alive, however long that lasts.
#[test]
fn a_reader_that_stalls_is_waited_for_whatever_the_patience() {
    let mut properties = TransportProperties::new();
    properties.set("connTimeout", 2.0).unwrap();
    let mut plan = Plan::new(43);
    plan.server_limits = Limits { datagram_buffer: 8 << 10, ..Limits::default() };
    let mut town = plan.build();
    let (c, s) = town.pair(&ask().properties(properties), Manner::patient(), Manner::stalled());
    for _ in 0..100 {
        town.play.say(c, vec![7; 4000], SendOptions::default());
    }
    town.play.run_for(120 * S);
    assert!(!town.play.flow(c).is_over(), "{:?}", town.play.flow(c).end());
    town.play.flow_mut(s).manner.reads = true;
    town.play.read(s);
    // The window has been closed for two minutes, and probes of it have become as seldom: what waits goes on at once.
    assert!(town.play.run_until(S, |p| p.flow(s).messages.len() == 100), "{}", town.play.flow(s).messages.len());
    town.play.end();
}

/// What a program sends after a pause leaves then: no timer has expired for it during the pause.
#[test]
fn what_is_sent_after_a_pause_is_sent_once() {
    for stack in [Stack::Sctp, Stack::Quic] {
        let mut town = Plan::new(44).build();
        let (c, s) = town.pair(&Ask::over(&[stack]), Manner::patient(), Manner::patient());
        for round in 1..=3 {
            town.play.run_for(9 * S);
            let before = town.play.world().link_counters(town.v4.to).offered;
            town.play.say(c, "again", SendOptions { end_of_message: stack == Stack::Sctp, ..SendOptions::default() });
            assert!(town.play.run_until(S, |p| p.flow(s).count == 5 * round));
            town.play.run_for(S / 2);
            let packets = town.play.world().link_counters(town.v4.to).offered - before;
            assert_eq!(packets, 1, "{stack}, round {round}");
        }
        town.play.end();
    }
}

/// What the association refuses, a stream that it does not have or a whole that it cannot carry in one packet, uses up nobody's turn.
#[test]
fn what_is_refused_in_a_full_buffer_does_not_strand_what_is_behind_it() {
    let mut plan = Plan::new(45).rate(2_000_000);
    plan.client_limits = Limits { send_buffer: 256 << 10, ..Limits::default() };
    let mut town = plan.build();
    let (c, s) = town.pair(&ask(), Manner::patient(), Manner::patient());
    let before = town.play.flow(s).messages.len();
    let mut send = |length: usize, options: SendOptions| {
        town.play.engine(c.node).send(c.conn, Bytes::from(vec![7; length]), options).expect("it has room")
    };
    // More than the association takes at once, so that what follows waits behind it.
    for _ in 0..20 {
        send(16 << 10, SendOptions::default());
    }
    let whole = send(30_000, SendOptions { whole: true, ..SendOptions::default() });
    let last = send(100, SendOptions::default());
    let all = town.play.run_until(20 * S, |p| p.flow(s).messages.len() == before + 21);
    assert!(all, "{} have come", town.play.flow(s).messages.len() - before);
    assert!(town.play.flow(c).sent.contains(&last) && !town.play.flow(c).sent.contains(&whole));
    town.play.end();
}
