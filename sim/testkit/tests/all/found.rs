//! What random worlds (`sim/vopr`) have found, each made small.

use neater_engine::{Stack, StreamDirection};
use neater_link::{Filter, Match, Protocol};
use neater_testkit::{Ask, Manner, Plan};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

#[test]
fn who_asks_again_whether_the_end_is_out_is_not_told_that_there_is_room() {
    let mut town = Plan::new(1).build();
    let (c, _) = town.pair(&Ask::over(&[Stack::Quic]), Manner::patient(), Manner::patient());
    let before = town.play.flow(c).writables;
    // Each of them would wake a task that asks once more: it would spin for as long as the peer takes to answer.
    for _ in 0..5 {
        town.play.engine(c.node).finish(c.conn).unwrap();
        town.play.run_for(MS);
        assert_eq!(town.play.flow(c).writables, before);
    }
    town.play.run_for(100 * MS);
    assert_eq!(town.play.flow(c).writables, before + 1, "the peer has it");
    town.play.end();
}

#[test]
fn clones_that_win_sessions_of_their_own_leave_none_behind() {
    let ask = Ask::over(&[Stack::Quic, Stack::Tls]);
    let mut town = Plan::new(2).fault(neater_testkit::Fault::UdpBlocked).build();
    let (c, _) = town.pair(&ask, Manner::default(), Manner::default());
    assert_eq!(town.play.engine(c.node).stack(c.conn), Some(Stack::Tls));
    let world = town.play.world().clone();
    for way in [town.v4, town.v6] {
        let mut config = world.link_config(way.to);
        config.filters = vec![Filter::drop(Match::Protocol(Protocol::Tcp))];
        world.set_link(way.to, config);
    }
    let mut clones = Vec::new();
    for _ in 0..3 {
        town.play.engine(c.node).caches().flush();
        let clone = town.play.engine(c.node).clone_connection(c.conn, StreamDirection::Both).unwrap();
        clones.push(town.play.adopt(c.node, clone, Manner::default()));
    }
    assert!(town.play.run_until(10 * S, |p| clones.iter().all(|f| p.flow(*f).is_ready())));
    assert!(town.play.stats(c.node).quic_connections >= 3);
    for way in [town.v4, town.v6] {
        let mut config = world.link_config(way.to);
        config.filters.clear();
        world.set_link(way.to, config);
    }
    for flow in clones {
        town.play.release(flow);
    }
    town.play.run_for(10 * S);
    assert!(town.play.stats(c.node).quic_connections <= 1, "each ends with the clone that it was for");
    town.play.close(c);
    town.play.end();
}
