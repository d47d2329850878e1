//! Rates of earlier transfers decide which of equally good stacks goes first.

use neater_engine::{ServiceOutcome, Stack, Step};
use neater_property::TransportProperties;
use neater_testkit::town::{SERVER_V4, server_v4};
use neater_testkit::{Ask, FlowId, Manner, Plan, Town};
use neater_tls::SecurityParameters;
use std::net::SocketAddr;
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const BYTES: u64 = 50_000_000;

fn town(seed: u64) -> Town {
    let mut town = Plan::new(seed).build();
    town.listen(&any(), 443, Manner::echo());
    town
}

fn any() -> Ask {
    Ask::over(&[])
}

fn with(name: &str, value: &str) -> Ask {
    let mut properties = TransportProperties::new();
    properties.set_text(name, value).unwrap();
    any().properties(properties)
}

/// Opens a connection, reports of a transfer, and says what carried it.
fn fetch(town: &mut Town, ask: &Ask, took: Option<Duration>) -> (FlowId, Stack) {
    let flow = town.open(ask, Manner::default());
    assert!(town.play.run_until(10 * S, |p| p.flow(flow).is_ready()), "{:?}", town.play.flow(flow).end());
    let engine = town.play.engine(flow.node);
    let stack = engine.stack(flow.conn).unwrap();
    if let Some(took) = took {
        let carrier = engine.carrier(flow.conn).expect("a carrier");
        engine.report_service(&carrier, ServiceOutcome::Transferred { bytes: BYTES, took });
    }
    (flow, stack)
}

/// Which stack carries, of this many connections.
fn carriers(town: &mut Town, ask: &Ask, count: usize) -> Vec<Stack> {
    (0..count).map(|_| fetch(town, ask, None).1).collect()
}

fn by_rate(town: &mut Town, flow: FlowId) -> Option<Step> {
    let steps = town.play.engine(flow.node).timeline(flow.conn);
    steps.into_iter().map(|t| t.step).find(|s| matches!(s, Step::ByRate { .. }))
}

/// QUIC brought 10 MB/s, and TLS 50.
fn measured(seed: u64) -> Town {
    let mut town = town(seed);
    assert_eq!(fetch(&mut town, &any(), Some(5 * S)).1, Stack::Quic);
    assert_eq!(fetch(&mut town, &Ask::over(&[Stack::Tls]), Some(S)).1, Stack::Tls);
    town
}

#[test]
fn the_stack_whose_transfers_were_fastest_goes_first_and_the_timeline_says_why() {
    let mut town = measured(1);
    let (flow, stack) = fetch(&mut town, &any(), None);
    assert_eq!(stack, Stack::Tls);
    let step = by_rate(&mut town, flow).expect("a step");
    assert_eq!(step.to_string(), "TLS/TCP first: earlier transfers from this host: TLS/TCP 50.0 MB/s, QUIC 10.0 MB/s");
    // Then it is what has worked before.
    let (flow, stack) = fetch(&mut town, &any(), None);
    assert_eq!((stack, by_rate(&mut town, flow).is_some()), (Stack::Tls, true));
    town.play.end();
}

#[test]
fn one_race_in_twenty_begins_with_the_other() {
    let mut town = measured(2);
    let all = carriers(&mut town, &any(), 400);
    let others = all.iter().filter(|s| **s == Stack::Quic).count();
    assert!((8..=36).contains(&others), "{others} of 400");
    town.play.end();
    // The same seed gives the same connections.
    let mut again = measured(2);
    assert_eq!(carriers(&mut again, &any(), 400), all);
    again.play.end();
}

#[test]
fn rates_do_not_outvote_the_program_nor_security_nor_other_networks() {
    let mut town = measured(3);
    for (name, value) in [
        ("_neater.measuredRates", "false"),
        ("multistreaming", "prefer"),
        ("connCapacityProfile", "Low Latency/Interactive"),
        ("isolateSession", "true"),
        ("maxRecvRate", "1000000000"),
    ] {
        let ask = with(name, value);
        assert_eq!(carriers(&mut town, &ask, 40), vec![Stack::Quic; 40], "{name}");
    }
    // What is in the clear may be as fast as it likes.
    let clear = Ask::over(&[Stack::Tcp]);
    town.listen(&clear, 80, Manner::echo());
    let flow = town.open_to(&clear, &[SocketAddr::new(SERVER_V4.parse().unwrap(), 80).into()], Manner::default());
    assert!(town.play.run_until(10 * S, |p| p.flow(flow).is_ready()));
    let carrier = town.play.engine(flow.node).carrier(flow.conn).expect("a carrier");
    for _ in 0..3 {
        let outcome = ServiceOutcome::Transferred { bytes: BYTES, took: S / 100 };
        town.play.engine(flow.node).report_service(&carrier, outcome);
    }
    let opportunistic = Ask { security: Some(SecurityParameters::opportunistic()), ..any() };
    assert!(carriers(&mut town, &opportunistic, 40).iter().all(|s| s.is_secure()));
    town.play.end();
}

#[test]
fn short_transfers_do_not_count_and_a_day_is_long_enough() {
    let mut town = town(4);
    let report = |town: &mut Town, flow: FlowId, bytes, took| {
        let carrier = town.play.engine(flow.node).carrier(flow.conn).expect("a carrier");
        town.play.engine(flow.node).report_service(&carrier, ServiceOutcome::Transferred { bytes, took });
    };
    fetch(&mut town, &any(), Some(5 * S));
    let (tls, _) = fetch(&mut town, &Ask::over(&[Stack::Tls]), None);
    report(&mut town, tls, 999_999, S / 1000);
    report(&mut town, tls, BYTES, Duration::ZERO);
    let (flow, _) = fetch(&mut town, &any(), None);
    let step = by_rate(&mut town, flow);
    assert!(step.is_none_or(|s| matches!(s, Step::ByRate { tries_other: true, .. })));
    report(&mut town, tls, BYTES, S);
    let others = carriers(&mut town, &any(), 40).iter().filter(|s| **s == Stack::Quic).count();
    assert!(others < 10, "{others} of 40");
    town.play.run_for(25 * 3600 * S);
    assert_eq!(carriers(&mut town, &any(), 40), vec![Stack::Quic; 40]);
    town.play.end();
}

#[test]
fn a_plan_shows_the_order_that_rates_make() {
    let mut town = measured(5);
    for _ in 0..40 {
        let (client, request) = (town.client, town.request(&any()));
        let plan = town.play.engine(client).plan(&request, &[server_v4()].into(), &[]).expect("a plan");
        let steps = town.play.engine(client).timeline(plan);
        let first = steps.iter().find_map(|t| match &t.step {
            Step::ByRate { first, tries_other, .. } => Some((*first, *tries_other)),
            _ => None,
        });
        assert_eq!(first, Some((Stack::Tls, false)));
    }
}
