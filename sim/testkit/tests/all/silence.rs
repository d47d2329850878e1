//! Connections that say nothing for a long time.

use neater_engine::{ConnectionError, SendOptions, Stack};
use neater_link::LinkConfig;
use neater_property::{SelectionProperty, TransportProperties, Value};
use neater_testkit::{Ask, Manner, Over, Plan};
use std::time::Duration;

const S: Duration = Duration::from_secs(1);

#[test]
fn a_reliable_connection_that_says_nothing_is_not_over() {
    for stack in [Stack::Tcp, Stack::Tls, Stack::Quic] {
        let mut town = Plan::new(1).build();
        let (c, s) = town.pair(&Ask::over(&[stack]).framed(), Manner::default(), Manner::echo());
        town.play.run_for(600 * S);
        for flow in [c, s] {
            assert!(!town.play.flow(flow).is_over(), "{stack}: {:?}", town.play.flow(flow).end());
        }
        town.play.say(c, "still there?", SendOptions::default());
        let answered = town.play.run_until(5 * S, |p| p.flow(c).messages == ["still there?"]);
        assert!(answered, "{stack}: {:?}", town.play.flow(c).end());
        town.play.close(c);
        town.play.end();
    }
}

#[test]
fn a_session_lives_by_whoever_holds_a_stream() {
    // The client is no neater, as far as it does not ask after its peer: the server does.
    let mut properties = TransportProperties::default();
    properties.prohibit(SelectionProperty::KeepAlive);
    let quiet = Ask::over(&[Stack::Quic]).properties(properties);
    let mut town = Plan::new(2).build();
    town.listen(&Ask::over(&[Stack::Quic]), 443, Manner::patient());
    let c = town.open(&quiet, Manner::patient());
    town.play.say(c, "hello", SendOptions::default());
    town.play.run_for(300 * S);
    assert!(!town.play.flow(c).is_over(), "{:?}", town.play.flow(c).end());
    town.play.close(c);
    town.play.end();
}

#[test]
fn whoever_wants_no_keep_alives_is_ended_by_silence() {
    let mut properties = TransportProperties::default();
    properties.prohibit(SelectionProperty::KeepAlive);
    let mut town = Plan::new(3).build();
    let (c, s) = town.pair(&Ask::over(&[Stack::Quic]).properties(properties), Manner::patient(), Manner::patient());
    town.play.run_for(40 * S);
    for flow in [c, s] {
        assert!(town.play.flow(flow).is_over(), "{:?}", town.play.flow(flow).end());
    }
    town.play.end();
}

#[test]
fn a_peer_that_is_gone_is_found_out() {
    let mut town = Plan::new(4).build();
    let (c, _) = town.pair(&Ask::over(&[Stack::Quic]), Manner::patient(), Manner::patient());
    let (up, down) = town.client_links;
    for link in [up, down] {
        town.play.world().set_link(link, LinkConfig::default().with_loss(1.0));
    }
    let over = town.play.run_until(60 * S, |p| p.flow(c).is_over());
    assert!(over, "nobody answers the questions");
    assert!(
        matches!(town.play.flow(c).end(), Some(Over::Failed(ConnectionError::Quic(_)))),
        "{:?}",
        town.play.flow(c).end()
    );
    town.play.end();
}

#[test]
fn a_time_that_is_set_for_a_session_is_how_long_it_waits() {
    for (stack, limit) in [(Stack::Quic, 3u32), (Stack::Quic, 12), (Stack::QuicDatagram, 5)] {
        let ask = Ask::over(&[stack]);
        let mut town = Plan::new(5).build();
        town.listen(&ask, 443, Manner::patient());
        let c = town.open(&ask, Manner::patient());
        assert!(town.play.run_until(S, |p| p.flow(c).is_ready()), "{stack}");
        town.play.say(c, "hello", SendOptions::default());
        let engine = town.play.engine(c.node);
        engine.set_property(c.conn, "connTimeout", &Value::from(u64::from(limit))).expect("it can be set");
        assert_eq!(engine.get_property(c.conn, "connTimeout"), Some(Value::from(f64::from(limit))));
        // A peer that has nothing to say, but is there.
        town.play.run_for(100 * S);
        assert!(!town.play.flow(c).is_over(), "{stack}: {:?}", town.play.flow(c).end());
        let (up, down) = town.client_links;
        for link in [up, down] {
            town.play.world().set_link(link, LinkConfig::default().with_loss(1.0));
        }
        town.play.run_for(limit / 2 * S);
        assert!(!town.play.flow(c).is_over(), "{stack}: {:?}", town.play.flow(c).end());
        let over = town.play.run_until((limit / 2 + 2) * S, |p| p.flow(c).is_over());
        assert!(over, "{stack}: after {limit} s");
        let end = town.play.flow(c).end();
        let timed_out = |e: &ConnectionError| e.to_string().contains("timed out");
        assert!(matches!(&end, Some(Over::Failed(e)) if timed_out(e)), "{stack}: {end:?}");
        town.play.end();
    }
    // No time lasts longer than what the session has agreed on.
    let mut town = Plan::new(6).build();
    let (c, _) = town.pair(&Ask::over(&[Stack::Quic]), Manner::patient(), Manner::patient());
    let engine = town.play.engine(c.node);
    assert_eq!(engine.get_property(c.conn, "connTimeout"), Some(Value::from(30.0)));
    engine.set_property(c.conn, "connTimeout", &Value::from(300u64)).expect("it can be set");
    assert_eq!(engine.get_property(c.conn, "connTimeout"), Some(Value::from(30.0)));
    town.play.end();
}

/// RFC 9622 section 8.1.4: asked for before the session is established, which quinn-proto sees to, and since.
#[test]
fn keep_alives_over_quic_come_as_often_as_they_were_asked_for() {
    let (quic, datagrams) = (Stack::Quic, Stack::QuicDatagram);
    for (stack, before, since, sent) in [
        (quic, "", None, 5..15),
        (quic, "keepAliveTimeout=2", None, 45..60),
        (quic, "", Some(2.0), 45..60),
        (quic, "keepAliveTimeout=4", Some(2.0), 45..60),
        (datagrams, "datagrams", None, 0..1),
        (datagrams, "datagrams, keepAliveTimeout=2", None, 45..60),
        (datagrams, "datagrams", Some(2.0), 45..60),
    ] {
        let case = format!("{stack}, {before:?}, {since:?}");
        let mut town = Plan::new(7).build();
        // Questions of the server's would be answered.
        let mut quiet = Ask::over(&[stack]).needs(if stack.is_stream() { "" } else { "datagrams" });
        if let Some(properties) = &mut quiet.properties {
            properties.prohibit(SelectionProperty::KeepAlive);
        }
        town.listen(&quiet, 443, Manner::patient());
        let c = town.open(&Ask::over(&[stack]).needs(before), Manner::patient());
        assert!(town.play.run_until(S, |p| p.flow(c).is_ready()), "{case}");
        town.play.say(c, "hello", SendOptions::default());
        if let Some(seconds) = since {
            let engine = town.play.engine(c.node);
            engine.set_property(c.conn, "keepAliveTimeout", &Value::from(seconds)).expect("it can be set");
            assert_eq!(engine.get_property(c.conn, "keepAliveTimeout"), Some(Value::from(seconds)), "{case}");
        }
        town.play.run_for(S);
        let offered = |town: &neater_testkit::Town| town.play.world().link_counters(town.client_links.0).offered;
        let already = offered(&town);
        town.play.run_for(if stack.is_stream() || before.contains("keep") || since.is_some() {
            100 * S
        } else {
            20 * S
        });
        let count = offered(&town) - already;
        assert!(sent.contains(&count), "{case}: {count} packets");
        assert!(!town.play.flow(c).is_over(), "{case}: {:?}", town.play.flow(c).end());
        // Those of quinn-proto go on as they are.
        let engine = town.play.engine(c.node);
        let off = engine.set_property(c.conn, "keepAliveTimeout", &Value::from("Disabled"));
        assert_eq!(off.is_ok(), !before.contains("keep"), "{case}: {off:?}");
        if off.is_ok() && stack.is_stream() {
            town.play.run_for(S);
            let already = offered(&town);
            town.play.run_for(100 * S);
            assert!(offered(&town) - already < 15, "{case}: they stop");
        }
        town.play.end();
    }
}

/// Loses everything that the client (`up`) or the server sends, or nothing any more.
fn lose(town: &neater_testkit::Town, up: bool, all: bool) {
    let link = if up { town.client_links.0 } else { town.client_links.1 };
    let world = town.play.world();
    world.set_link(link, world.link_config(link).with_loss(if all { 1.0 } else { 0.0 }));
}

/// Packets of the peer go on arriving, and each restarts the idle timeout.
#[test]
fn a_session_ends_where_nothing_that_it_sends_arrives_although_its_peer_sends() {
    for (up, delay, limit, most) in [
        (true, 20, None, 31),
        (false, 20, None, 31),
        (true, 20, Some(6u64), 8),
        (false, 20, Some(6), 8),
        // Half a dozen round trips are not long.
        (true, 2_500, None, 62),
    ] {
        let case = format!("client: {up}, {delay} ms, {limit:?}");
        let mut town = Plan::new(8).delay(Duration::from_millis(delay)).build();
        let (c, s) = town.pair(&Ask::over(&[Stack::Quic]).framed(), Manner::patient(), Manner::patient());
        let (dead, peer) = if up { (c, s) } else { (s, c) };
        if let Some(seconds) = limit {
            let engine = town.play.engine(dead.node);
            engine.set_property(dead.conn, "connTimeout", &Value::from(seconds)).expect("it can be set");
        }
        town.play.run_for(60 * S);
        lose(&town, up, true);
        town.play.say(dead, "lost", SendOptions::default());
        let began = town.play.world().now();
        let over = (0..most).any(|_| {
            if !town.play.flow(peer).is_over() {
                town.play.say(peer, "news", SendOptions::default());
            }
            town.play.run_until(S, |p| p.flow(dead).is_over())
        });
        let took = town.play.world().now() - began;
        let end = town.play.flow(dead).end();
        assert!(over && took <= most * S, "{case}: {took:?}, {end:?}");
        assert!(took >= limit.map_or(29 * S, Duration::from_secs), "{case}: {took:?}");
        let in_vain = |e: &ConnectionError| e.to_string().contains("was acknowledged");
        assert!(matches!(&end, Some(Over::Failed(e)) if in_vain(e)), "{case}: {end:?}");
        town.play.end();
    }
}

#[test]
fn eight_seconds_in_which_one_direction_carries_nothing_are_survived() {
    for up in [true, false] {
        for after in [Duration::from_millis(1), S, 9 * S] {
            let case = format!("client: {up}, {after:?}");
            let mut town = Plan::new(9).build();
            let (c, s) = town.pair(&Ask::over(&[Stack::Quic]).framed(), Manner::patient(), Manner::patient());
            town.play.run_for(after);
            for _ in 0..3 {
                lose(&town, up, true);
                let before = (town.play.flow(c).messages.len(), town.play.flow(s).messages.len());
                for flow in [c, s] {
                    town.play.say(flow, "on the way", SendOptions::default());
                }
                town.play.run_for(8 * S);
                lose(&town, up, false);
                let whole = town.play.run_until(10 * S, |p| {
                    (p.flow(c).messages.len(), p.flow(s).messages.len()) == (before.0 + 1, before.1 + 1)
                });
                assert!(whole, "{case}: {:?}", town.play.flow(c).end());
            }
            town.play.run_for(100 * S);
            for flow in [c, s] {
                assert!(!town.play.flow(flow).is_over(), "{case}: {:?}", town.play.flow(flow).end());
            }
            town.play.close(c);
            town.play.end();
        }
    }
}

/// A side that only receives, on short and on very long ways, and one that loses a third of its
/// packets.
#[test]
fn a_session_that_sends_little_or_waits_long_goes_on() {
    for (delay, loss) in [(10, 0.0), (2_500, 0.0), (100, 0.3)] {
        let mut town = Plan::new(10).delay(Duration::from_millis(delay)).build();
        let (c, s) = town.pair(&Ask::over(&[Stack::Quic]).framed(), Manner::patient(), Manner::patient());
        let link = town.client_links.0;
        let config = town.play.world().link_config(link).with_loss(loss);
        town.play.world().set_link(link, config);
        for second in 0..300 {
            if second % 3 == 0 {
                town.play.say(s, "news", SendOptions::default());
            }
            town.play.run_for(S);
            for flow in [c, s] {
                assert!(!town.play.flow(flow).is_over(), "{delay}, {second}: {:?}", town.play.flow(flow).end());
            }
        }
        let arrived = town.play.run_until(20 * S, |p| p.flow(c).messages.len() == 100);
        assert!(arrived, "{delay}: {}", town.play.flow(c).messages.len());
        town.play.close(c);
        town.play.end();
    }
}
