//! SCTP raced against TCP: who wins, what losers leave, and what the next connect has learnt.

use neater_engine::{SendOptions, Stack};
use neater_property::{SelectionProperty, TransportProperties};
use neater_testkit::town::server_v4;
use neater_testkit::{Ask, Fault, Manner, Plan, Town};
use std::sync::Arc;
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn last() -> SendOptions {
    SendOptions { is_final: true, ..SendOptions::default() }
}

/// A stream of bytes over either: whether SCTP's messages reach the program depends on nothing
/// then.
fn bytes(stacks: &[Stack], properties: TransportProperties) -> Ask {
    let mut ask = Ask::over(stacks).properties(properties);
    ask.options.bytes = true;
    ask
}

/// SCTP preferred, TCP started ten milliseconds later.
fn raced() -> Ask {
    let mut properties = TransportProperties::new();
    properties.set("multistreaming", "prefer").unwrap();
    properties.set("_neater.attemptDelay", 10.0).unwrap();
    bytes(&[Stack::Sctp, Stack::Tcp], properties)
}

/// Connects and uses the connection: which stack, and how long it took.
fn race(town: &mut Town) -> (Stack, Duration) {
    let f = town.open(&raced(), Manner::default());
    assert!(town.play.run_until(10 * S, |p| p.flow(f).is_ready()), "{:?}", town.play.flow(f).end());
    let result = (town.play.engine(f.node).stack(f.conn).unwrap(), town.play.flow(f).establishment().unwrap());
    town.play.say(f, "ping", last());
    assert!(town.play.run_until(10 * S, |p| p.flow(f).is_over()));
    assert_eq!(town.play.flow(f).received, b"ping");
    result
}

#[test]
fn where_sctp_is_preferred_it_wins_a_race_although_its_handshake_is_longer() {
    let mut town = Plan::new(24).build();
    town.listen(&raced(), 443, Manner::echo());
    assert_eq!(race(&mut town), (Stack::Sctp, 40 * MS));
    assert_eq!(race(&mut town), (Stack::Sctp, 40 * MS), "from the cache");
    town.play.end();
}

#[test]
fn where_sctp_does_not_get_through_tcp_wins_and_the_loser_leaves_nothing() {
    let unanswered = || {
        let mut plan = Plan::new(25);
        plan.v4.1.filters.push(neater_link::Filter::drop(neater_link::Match::Protocol(neater_link::Protocol::Udp)));
        plan
    };
    let plans = [Plan::new(25).fault(Fault::UdpBlocked), unanswered(), Plan::new(25).fault(Fault::UdpRejected)];
    for (i, plan) in plans.into_iter().enumerate() {
        let mut town = plan.build();
        town.listen(&raced(), 443, Manner::echo());
        let (stack, took) = race(&mut town);
        // TCP's start and its round trip; then at most as long as between the starts.
        assert!(stack == Stack::Tcp && took <= 40 * MS, "plan {i}: {stack} after {took:?}");
        assert_eq!(town.play.stats(town.server).sctp_associations, 0, "plan {i}");
        if i == 0 {
            // The delay between attempts is shorter than TCP's round trip, and nothing counts against SCTP yet.
            assert_eq!(race(&mut town), (Stack::Tcp, 20 * MS), "at once: what has won is tried alone");
        }
        // Silence is known as such after a while.
        town.play.run_for(2 * S);
        assert_eq!(race(&mut town), (Stack::Tcp, 20 * MS), "plan {i}: from the cache nothing is added");
        town.play.end();
    }
}

/// A race by the preferences alone, with the attempt delay that is usual.
fn usual() -> Ask {
    let mut properties = TransportProperties::new();
    properties.set("multistreaming", "prefer").unwrap();
    bytes(&[Stack::Sctp, Stack::Tcp], properties)
}

/// A handshake of SCTP has two round trips: the second connect must not take the first of them for silence, nor the second.
#[test]
fn the_second_connect_makes_one_attempt() {
    let delays = [1, 10, 70, 110, 300];
    for (ask, delay) in [usual(), raced()].into_iter().flat_map(|ask| delays.map(|ms| (ask.clone(), ms * MS))) {
        let mut town = Plan::new(26).delay(delay).build();
        town.listen(&ask, 443, Manner::echo());
        for round in 0..4 {
            let before = town.play.stats(town.client);
            let f = town.open(&ask, Manner::default());
            assert!(town.play.run_until(10 * S, |p| p.flow(f).is_ready()), "{:?}", town.play.flow(f).end());
            let after = town.play.stats(town.client);
            let steps: Vec<_> = town.play.engine(f.node).timeline(f.conn);
            assert_eq!(town.play.engine(f.node).stack(f.conn), Some(Stack::Sctp), "{delay:?} {steps:#?}");
            if round > 0 {
                assert_eq!(after.attempts - before.attempts, 1, "{delay:?}, round {round}: {steps:#?}");
                assert_eq!(after.cache_hits - before.cache_hits, 1, "{delay:?}, round {round}: {steps:#?}");
            }
            // Every other one while the last is still open.
            if round != 1 {
                town.play.say(f, "ping", last());
                assert!(town.play.run_until(10 * S, |p| p.flow(f).is_over()));
            }
        }
        town.play.end();
    }
}

/// TCP is better and silent: an association is up, and its peer has said everything, before the race is decided.
#[test]
fn what_the_peer_says_and_ends_while_the_race_is_being_decided_is_not_lost() {
    // The server lets go of the connection; or it ends the association, which is over before the race is.
    for whole in [false, true] {
        said_and_ended_before_the_race(whole);
    }
}

fn said_and_ended_before_the_race(whole: bool) {
    let mut properties = TransportProperties::new();
    properties.avoid(SelectionProperty::Multistreaming);
    let both = bytes(&[Stack::Tcp, Stack::Sctp], properties);
    // The first INIT chunk is lost, which makes the handshake long and the grace with it.
    let mut plan = Plan::new(27).fault(Fault::TcpBlocked);
    plan.v4.0.loss = neater_link::Loss::Indices(Arc::new([0, 1].into()));
    let mut town = plan.build();
    let greets = Manner { greeting: Some("welcome, ".into()), ..Manner::patient() };
    town.listen(&Ask::over(&[Stack::Sctp]), 443, greets);
    let (request, first) = (town.request(&both), Some("question".into()));
    let c = town.play.initiate_with(town.client, &request, &[server_v4()], None, first, Manner::patient()).unwrap();
    let server = town.server;
    let came = town.play.run_until(10 * S, |p| !p.accepted(server).is_empty());
    assert!(came, "{:#?}", town.play.engine(town.client).timeline(c.conn));
    let s = town.play.accepted(server)[0];
    town.play.say(s, "and farewell", SendOptions::default());
    if whole {
        let group = town.play.engine(server).group(s.conn).unwrap();
        town.play.engine(server).close_group(group);
        town.play.engine(server).release_group(group);
    } else {
        town.play.release(s);
    }
    town.play.run_for(200 * MS);
    assert!(!town.play.flow(c).is_ready(), "the race was decided too early for this test");
    let associations = town.play.stats(server).sctp_associations;
    assert_eq!(associations, u64::from(!whole), "what the server has left");
    assert!(town.play.run_until(10 * S, |p| p.flow(c).ended_at.is_some()), "{whole} {:?}", town.play.flow(c));
    assert_eq!(town.play.flow(c).received, b"welcome, and farewell");
    assert_eq!(town.play.flow(s).received, b"question");
    town.play.close(c);
    assert!(town.play.run_until(10 * S, |p| p.flow(c).is_over()));
    town.play.end();
}
