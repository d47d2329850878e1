//! Messages that are refused, for their framing or for what they say of themselves, and framed datagrams that are no good.

use bytes::Bytes;
use neater_engine::{SendError, SendOptions, Stack};
use neater_framing::FramerSpec;
use neater_property::Value;
use neater_testkit::{Ask, Manner, Plan};
use std::time::Duration;

const S: Duration = Duration::from_secs(1);

fn framed(stack: Stack, max: u64) -> Ask {
    let mut ask = Ask::over(&[stack]);
    ask.options.framer = FramerSpec::LengthPrefixed { width: 2, max };
    ask
}

fn part(end_of_message: bool) -> SendOptions {
    SendOptions { end_of_message, ..SendOptions::default() }
}

#[test]
fn after_a_refused_part_the_rest_of_the_message_is_refused() {
    for stack in [Stack::Tcp, Stack::Quic] {
        let mut town = Plan::new(1).build();
        let (c, s) = town.pair(&framed(stack, 10), Manner::patient(), Manner::patient());
        for (data, end) in [("AAAA", false), ("BBBBBBBBBB", false), ("C", false), ("CC", true)] {
            town.play.say(c, data, part(end));
        }
        town.play.say(c, "whole", part(true));
        // The last part may be the one that is too much.
        town.play.say(c, "DDDDDD", part(false));
        town.play.say(c, "EEEEEE", part(true));
        // A whole message that is too long spoils no other.
        town.play.say(c, "FFFFFFFFFFF", part(true));
        town.play.say(c, "in ", part(false));
        town.play.say(c, "parts", part(true));
        town.play.run_for(S);
        assert_eq!(town.play.flow(s).messages, ["whole", "in parts"], "{stack}");
        let refused = &town.play.flow(c).refused;
        assert_eq!(refused.len(), 5, "{stack}: {refused:?}");
        assert!(refused.iter().all(|e| matches!(e, SendError::Framer(_))), "{stack}: {refused:?}");
        town.play.close(c);
        town.play.end();
    }
}

#[test]
fn a_part_that_is_larger_than_any_message_spoils_its_message_only() {
    let mut plan = Plan::new(2);
    plan.client_limits.message = 1000;
    let mut town = plan.build();
    let (c, s) = town.pair(&framed(Stack::Tcp, 60_000), Manner::patient(), Manner::patient());
    town.play.say(c, "A", part(false));
    town.play.say(c, Bytes::from(vec![b'B'; 1001]), part(false));
    town.play.say(c, "C", part(true));
    town.play.say(c, "whole", part(true));
    town.play.run_for(S);
    assert_eq!(town.play.flow(s).messages, ["whole"]);
    assert_eq!(town.play.flow(c).refused.len(), 2);
    town.play.close(c);
    town.play.end();
}

#[test]
fn a_bad_datagram_does_not_break_a_framer() {
    let mut town = Plan::new(3).build();
    town.listen(&framed(Stack::Udp, 10_000), 443, Manner::patient());
    // Without a framer, so that what is sent is what is on the wire.
    let c = town.open(&Ask::over(&[Stack::Udp]), Manner::patient());
    let wire: [&[u8]; 7] = [b"\0\x01a", b"\0\x09!", b"\0\x01b\0\x02cc", b"\xff\xff", b"", b"\0", b"\0\x01d"];
    for datagram in wire {
        town.play.say(c, Bytes::copy_from_slice(datagram), part(true));
    }
    town.play.run_for(S);
    let [s] = *town.play.accepted(town.server) else { panic!("one peer") };
    assert_eq!(town.play.flow(s).messages, ["a", "b", "cc", "d"]);
    assert!(!town.play.flow(s).is_over(), "{:?}", town.play.flow(s).end());
    let stats = town.play.engine(s.node).connection_stats(s.conn).expect("open");
    assert_eq!((stats.messages_received, stats.datagrams_dropped), (4, 3), "an empty datagram is an empty one");
    // And back, framed.
    town.play.say(s, "answer", part(true));
    town.play.run_for(S);
    assert_eq!(town.play.flow(c).messages, [&b"\0\x06answer"[..]]);
}

/// RFC 9622 section 9.1.3.7.
#[test]
fn a_message_says_whether_it_must_arrive_only_where_that_was_asked_for() {
    use Stack::{Quic, Sctp, Tcp, Udp};
    for (stack, needs, reliable, taken, obtained) in [
        (Sctp, "", false, false, false),
        (Sctp, "", true, true, false),
        (Sctp, "perMsgReliability=avoid, msgReliable=false", false, false, false),
        (Sctp, "partial-reliability", false, true, true),
        (Sctp, "perMsgReliability=prefer", false, true, true),
        // Said of all messages before the connection was opened.
        (Sctp, "msgReliable=true", false, true, true),
        (Tcp, "", false, false, false),
        (Tcp, "", true, true, false),
        (Quic, "", false, false, false),
        // It was asked for, and need not be lost (RFC 9623 section 5.1.1).
        (Tcp, "perMsgReliability=prefer", false, true, false),
        (Tcp, "msgReliable=false", false, true, false),
        // Who would rather have no reliability may have said so of each message.
        (Tcp, "unreliable", false, true, false),
        (Udp, "datagrams", false, true, false),
        (Udp, "datagrams", true, false, false),
    ] {
        let case = format!("{stack}, {needs:?}, {reliable}");
        let mut town = Plan::new(4).build();
        let ask = Ask::over(&[stack]).needs(needs);
        town.listen(&ask, 443, Manner::patient());
        let c = town.open(&ask, Manner::patient());
        assert!(town.play.run_until(S, |p| p.flow(c).is_ready()), "{case}");
        let engine = town.play.engine(c.node);
        assert_eq!(engine.get_property(c.conn, "perMsgReliability"), Some(Value::from(obtained)), "{case}");
        let options = SendOptions { reliable: Some(reliable), ..SendOptions::default() };
        match engine.send(c.conn, Bytes::from_static(b"x"), options) {
            Ok(_) => assert!(taken, "{case}"),
            Err(SendError::InvalidMessageProperties(why)) => {
                assert!(!taken && why.contains("perMsgReliability"), "{case}: {why}");
                let set = engine.set_property(c.conn, "msgReliable", &Value::from(reliable));
                let said = engine.message_defaults(c.conn).reliable == Some(reliable);
                assert!(said || set.is_err_and(|e| e.to_string().contains("perMsgReliability")), "{case}");
            }
            Err(e) => panic!("{case}: {e}"),
        }
        town.play.run_for(S);
        // What is left of a message that was refused is no message.
        if !taken {
            town.play.say(c, "A", SendOptions { end_of_message: stack == Udp, ..options });
            town.play.say(c, "B", part(true));
            town.play.run_for(S);
            assert_eq!(town.play.flow(c).refused.len(), if stack == Udp { 1 } else { 2 }, "{case}");
        }
        town.play.end();
    }
}

/// One deadline is set for all messages of a connection: it is always that of the next.
#[test]
fn each_message_expires_when_its_own_time_has_come_in_whatever_order_they_were_sent() {
    const MS: Duration = Duration::from_millis(1);
    for stack in [Stack::Tcp, Stack::Quic] {
        let mut plan = Plan::new(5).delay(10 * MS);
        plan.client_limits.send_buffer = 64 << 20;
        let mut town = plan.build();
        let (c, _) = town.pair(&framed(stack, 60_000), Manner::patient(), Manner::stalled());
        // Far more than windows and buffers take from somebody whose peer does not read.
        for _ in 0..600 {
            town.play.say(c, vec![7; 50_000], part(true));
        }
        town.play.run_for(20 * S);
        let lives: [u32; 9] = [700, 100, 400, 100, 900, 50, 300, 50, 1000];
        let first = town.play.flow(c).given.len();
        for life in lives {
            town.play.say(c, "short-lived", SendOptions { lifetime: Some(life * MS), ..part(true) });
        }
        let mut elapsed = 0;
        for at in [50, 100, 300, 400, 700, 900, 1000] {
            town.play.run_for((at - elapsed) * MS - MS);
            let before = lives.iter().filter(|l| **l < at).count();
            assert_eq!(town.play.flow(c).expired.len(), before, "{stack}: just before {at}");
            town.play.run_for(2 * MS);
            elapsed = at + 1;
            let flow = town.play.flow(c);
            let due = lives.iter().enumerate().filter(|(_, l)| **l <= at).map(|(i, _)| flow.given[first + i]);
            let (mut due, mut expired): (Vec<_>, _) = (due.collect(), flow.expired.clone());
            due.sort();
            expired.sort();
            assert_eq!(expired, due, "{stack}: at {at}");
        }
        town.play.abort(c);
        town.play.end();
    }
}
