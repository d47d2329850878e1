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
