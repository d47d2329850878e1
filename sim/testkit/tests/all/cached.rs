//! The cached outcome, tried alone: how long, and what becomes of it.

use neater_engine::{Reason, SendOptions, Stack};
use neater_link::{Filter, Match, Protocol};
use neater_testkit::{Ask, FlowId, Manner, Plan, Town, security};
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn town(plan: Plan, ask: &Ask) -> Town {
    let mut town = plan.build();
    town.listen(ask, 443, Manner::echo());
    town
}

/// Connects, and leaves an outcome behind.
fn visit(town: &mut Town, ask: &Ask) {
    let flow = town.open(ask, Manner::default());
    town.play.say(flow, "ping", SendOptions::default());
    assert!(town.play.run_until(20 * S, |p| p.flow(flow).count == 4), "{:?}", town.play.flow(flow).end());
    town.play.close(flow);
    town.play.run_for(S);
}

/// Nothing that speaks this gets through any more.
fn block(town: &mut Town, what: Match) {
    let config = town.play.world().link_config(town.v4.to);
    town.play.world().set_link(town.v4.to, config.with_filter(Filter::drop(what)));
}

fn ended_after(town: &Town, flow: FlowId) -> Duration {
    town.play.flow(flow).over.as_ref().expect("over").0 - town.play.flow(flow).opened_at
}

#[test]
fn the_time_allowed_is_not_overshot_for_the_sake_of_what_was_remembered() {
    for stack in [Stack::Tcp, Stack::Tls, Stack::Quic, Stack::Dtls] {
        for allowed in [100 * MS, 300 * MS, 900 * MS] {
            // A round trip takes 800 ms, and waiting for it a quarter more.
            let ask = Ask::over(&[stack]);
            let mut town = town(Plan::new(1).delay(400 * MS), &ask);
            // What is allowed is no part of what is remembered.
            visit(&mut town, &ask);
            block(&mut town, Match::Any);
            let flow = town.open(&ask.clone().within(allowed), Manner::patient());
            assert_eq!(town.play.stats(town.client).cache_hits, 1, "{stack}");
            assert!(town.play.run_until(10 * S, |p| p.flow(flow).is_over()), "{stack}");
            assert_eq!(ended_after(&town, flow), allowed, "{stack}");
            let error = town.play.flow(flow).establishment_error().expect("nobody answers");
            assert_eq!(error.reason, Reason::Timeout, "{stack}: {error}");
            town.play.end();
        }
    }
}

#[test]
fn a_cached_session_of_dtls_falls_back_and_holds_to_its_time_like_any_other() {
    // DTLS alone is served at first, and then QUIC alone.
    let both = Ask::over(&[Stack::QuicDatagram, Stack::Dtls]);
    let dtls = Ask::over(&[Stack::Dtls]);
    let mut town = Plan::new(2).build();
    let listener = town.listen(&dtls, 443, Manner::echo());
    let trusting = {
        let mut client = security::on_p256(security::client_security());
        if let neater_tls::Trust::Only(all) = &mut client.trust {
            all.extend(security::identity().chain.clone());
        }
        Ask { security: Some(client), ..both }
    };
    visit(&mut town, &trusting);
    town.play.engine(town.server).stop(listener);
    town.play.run_for(5 * S);
    town.listen(&Ask::over(&[Stack::QuicDatagram]), 443, Manner::echo());
    let flow = town.open(&trusting, Manner::patient());
    assert_eq!(town.play.stats(town.client).cache_hits, 1);
    assert!(town.play.run_until(5 * S, |p| p.flow(flow).is_ready()), "{:?}", town.play.flow(flow).end());
    assert_eq!(town.play.engine(flow.node).stack(flow.conn), Some(Stack::QuicDatagram));
    town.play.end();

    // Nothing is served, nobody says so, and it is given up.
    let mut town = self::town(Plan::new(3), &dtls);
    visit(&mut town, &dtls);
    block(&mut town, Match::Protocol(Protocol::Udp));
    let flow = town.open(&dtls.within(3 * S), Manner::patient());
    assert!(town.play.run_until(10 * S, |p| p.flow(flow).is_over()), "{:?}", town.play.flow(flow));
    assert_eq!(ended_after(&town, flow), 3 * S);
    town.play.end();

    // It was slow, and is not lost.
    let slow = Ask::over(&[Stack::Dtls]);
    let mut town = self::town(Plan::new(4), &slow);
    visit(&mut town, &slow);
    for way in [town.v4.to, town.v4.from] {
        let mut config = town.play.world().link_config(way);
        config.delay = 400 * MS;
        town.play.world().set_link(way, config);
    }
    let flow = town.open(&slow, Manner::patient());
    assert!(town.play.run_until(5 * S, |p| p.flow(flow).is_ready()), "{:?}", town.play.flow(flow).end());
    assert_eq!(town.play.stats(town.client).attempts, 2, "it was not begun again");
    town.play.end();
}
