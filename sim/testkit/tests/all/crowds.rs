//! Many at once: names that are looked up, and peers that take a lot and acknowledge nothing.

use neater_engine::{RemoteEndpoint, SendOptions, Stack};
use neater_link::{Filter, Match, Protocol};
use neater_testkit::town::{SERVER_V4, server_by_name};
use neater_testkit::{Ask, FlowId, Manner, Plan, Temper};
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

#[test]
fn hundreds_of_connections_to_one_name_share_its_questions() {
    let ask = Ask::over(&[Stack::Tcp]);
    let mut town = Plan::new(1).build();
    for node in [town.client, town.server] {
        town.play.world().set_max_sockets(town.play.host(node), 5000);
    }
    town.listen(&ask, 443, Manner::echo());
    let request = town.request(&ask);
    let flows: Vec<FlowId> = (0..1000)
        .map(|_| town.play.initiate(town.client, &request, &[server_by_name()], Manner::patient()).unwrap())
        .collect();
    town.play.run_for(2 * S);
    let failed: Vec<_> = flows.iter().filter_map(|f| town.play.flow(*f).establishment_error()).collect();
    assert!(failed.is_empty(), "{} failed: {}", failed.len(), failed[0]);
    assert!(flows.iter().all(|f| town.play.flow(*f).is_ready()));
    assert_eq!(town.names.questions(), 2);
    town.play.end();
}

#[test]
fn hundreds_of_names_are_looked_up_one_after_the_other() {
    let ask = Ask::over(&[Stack::Tcp]);
    let zone: String = (0..900).map(|i| format!("n{i}.test A {SERVER_V4}\n")).collect();
    let mut town = Plan::new(2).zone(zone).build();
    for node in [town.client, town.server] {
        town.play.world().set_max_sockets(town.play.host(node), 5000);
    }
    town.listen(&ask, 443, Manner::echo());
    let request = town.request(&ask);
    let to = |i: usize| [RemoteEndpoint::new().with_host_name(&format!("n{i}.test")).with_port(443)];
    let flows: Vec<FlowId> =
        (0..900).map(|i| town.play.initiate(town.client, &request, &to(i), Manner::patient()).unwrap()).collect();
    // The server's system takes only so many at once; the others come again later.
    let all = town.play.run_until(30 * S, |p| flows.iter().all(|f| p.flow(*f).is_ready()));
    assert!(all, "{:?}", town.play.stats(town.client));
    assert_eq!(town.names.questions(), 1800, "nothing was asked twice");
    town.play.end();
}

#[test]
fn connections_that_are_given_up_keep_nobody_from_asking() {
    let ask = Ask::over(&[Stack::Tcp]);
    // The name server answers late, and those who have asked do not wait for it.
    let zone: String = (0..1000).map(|i| format!("n{i}.test A {SERVER_V4}\n")).collect();
    let mut town = Plan::new(3).zone(zone).temper(Temper { delay: 800 * MS, ..Temper::default() }).build();
    town.play.world().set_max_sockets(town.play.host(town.client), 5000);
    town.listen(&ask, 443, Manner::echo());
    let request = town.request(&ask);
    let to = |i: usize| [RemoteEndpoint::new().with_host_name(&format!("n{i}.test")).with_port(443)];
    for i in 0..999 {
        let flow = town.play.initiate(town.client, &request, &to(i), Manner::patient()).unwrap();
        town.play.abort(flow);
        town.play.release(flow);
    }
    let last = town.play.initiate(town.client, &request, &to(999), Manner::patient()).unwrap();
    assert!(town.play.run_until(900 * MS, |p| p.flow(last).is_ready()), "{:?}", town.play.flow(last).end());
    town.play.end();
}

#[test]
fn what_quic_keeps_for_its_peers_stays_within_the_budget_of_the_engine() {
    const FLOWS: usize = 8;
    let mut plan = Plan::new(4).delay(50 * MS).rate(2_000_000_000);
    plan.server_limits.engine_bytes = 2 << 20;
    let ask = Ask::over(&[Stack::Quic]);
    let mut town = plan.build();
    town.listen(&ask, 443, Manner { keeps: false, ..Manner::patient() });
    let flows: Vec<FlowId> = (0..FLOWS)
        .map(|_| {
            let c = town.open(&ask, Manner { keeps: false, ..Manner::patient() });
            // A session of its own for each.
            town.play.say(c, "!", SendOptions::default());
            c
        })
        .collect();
    let me = town.server;
    assert!(town.play.run_until(5 * S, |p| p.accepted(me).len() == FLOWS));
    let servers = town.play.accepted(me).to_vec();
    let chunk = bytes::Bytes::from(vec![7; 64 << 10]);
    let fill = |town: &mut neater_testkit::Town| {
        for s in &servers {
            while town.play.flow(*s).has_said_all() && town.play.flow(*s).end().is_none() {
                town.play.say(*s, chunk.clone(), SendOptions::default());
            }
        }
    };
    // As much as the path carries, until it carries nothing back any more.
    for _ in 0..60 {
        fill(&mut town);
        town.play.run_for(50 * MS);
    }
    let carried: usize = flows.iter().map(|c| town.play.flow(*c).count).sum();
    assert!(carried > 30 << 20, "{carried} bytes: the path is a fast one");
    let config = town.play.world().link_config(town.v4.from);
    town.play.world().set_link(town.v4.from, config.with_filter(Filter::drop(Match::Protocol(Protocol::Udp))));
    for _ in 0..20 {
        fill(&mut town);
        town.play.run_for(50 * MS);
    }
    let sent =
        |town: &mut neater_testkit::Town, s: &FlowId| town.play.engine(me).connection_stats(s.conn).unwrap().bytes_sent;
    let sent: u64 = servers.iter().map(|s| sent(&mut town, s)).sum();
    let arrived: usize = flows.iter().map(|c| town.play.flow(*c).count).sum();
    let kept = sent as usize - arrived;
    let bound = (2 << 20) + FLOWS * (256 << 10);
    assert!(kept > 1 << 20 && kept <= bound, "{kept} bytes are kept, {bound} may be");
}
