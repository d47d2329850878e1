//! RFC 7829: a path in doubt is left at once, and what becomes of the primary path.

use crate::support::{World, ms};
use core::time::Duration;
use neater_link::LinkConfig;
use neater_sctp::{AssociationConfig, AssociationId, Event, PathId, PathState};

fn world(association: AssociationConfig) -> (World, [AssociationId; 2]) {
    let association = AssociationConfig { max_association_retransmits: 30, ..association };
    let configs = [0, 1].map(|end| crate::support::config(end, 2, association.clone()));
    let mut w = World::with(5, configs, vec![LinkConfig::delay(ms(10)), LinkConfig::delay(ms(15))]);
    let ids = w.established();
    w.run(Duration::from_secs(3));
    (w, ids)
}

fn cut(w: &mut World, path: usize, down: bool) {
    let now = w.now;
    for way in 0..2 {
        w.links[way][path].set_config(now, LinkConfig::delay(ms(10)).with_down(down));
    }
}

fn state(w: &World, id: AssociationId, path: usize) -> PathState {
    w.ends[0].paths(id)[path].state
}

fn arrives(w: &mut World, [a, b]: [AssociationId; 2], limit: Duration) -> Duration {
    let begin = w.now;
    w.send(0, a, 0, b"are you there?");
    while w.read(1, b).is_empty() {
        w.run(ms(5));
        assert!(w.now - begin < limit, "{:?}", w.events[0]);
    }
    w.now - begin
}

#[test]
fn one_timeout_is_enough_to_try_the_other_path() {
    let (mut w, ids) = world(AssociationConfig::default());
    cut(&mut w, 0, true);
    let first = arrives(&mut w, ids, Duration::from_secs(3));
    assert_eq!(state(&w, ids[0], 0), PathState::PotentiallyFailed);
    assert!(w.events[0].iter().any(|(_, e)| *e == Event::PrimaryPath { path: PathId(1) }));
    let second = arrives(&mut w, ids, Duration::from_secs(3));
    assert!(second < ms(50) && first > second, "{first:?} {second:?}: the next goes the good way at once");
    // Doubt is settled by heartbeats, one each RTO: with PMR = 5 it takes a while, but not minutes.
    w.run(Duration::from_secs(200));
    assert_eq!(state(&w, ids[0], 0), PathState::Inactive);
}

#[test]
fn without_it_data_stays_until_the_path_has_failed() {
    let (mut w, ids) = world(AssociationConfig { potentially_failed: None, ..AssociationConfig::default() });
    cut(&mut w, 0, true);
    arrives(&mut w, ids, Duration::from_secs(10));
    assert_eq!(state(&w, ids[0], 0), PathState::Active);
}

#[test]
fn a_doubted_path_that_answers_is_used_again() {
    let (mut w, ids) = world(AssociationConfig::default());
    cut(&mut w, 0, true);
    arrives(&mut w, ids, Duration::from_secs(3));
    cut(&mut w, 0, false);
    w.run(Duration::from_secs(3));
    assert_eq!(state(&w, ids[0], 0), PathState::Active);
    let last = w.events[0].iter().rev().find_map(|(_, e)| match e {
        Event::PrimaryPath { path } => Some(*path),
        _ => None,
    });
    assert_eq!(last, Some(PathId(0)), "back to the preferred one");
}

#[test]
fn when_all_are_in_doubt_the_one_with_fewest_errors_is_used() {
    let (mut w, ids) = world(AssociationConfig::default());
    cut(&mut w, 0, true);
    arrives(&mut w, ids, Duration::from_secs(3));
    cut(&mut w, 1, true);
    w.send(0, ids[0], 0, b"into the dark");
    w.run(Duration::from_secs(3));
    assert_eq!([0, 1].map(|p| state(&w, ids[0], p)), [PathState::PotentiallyFailed; 2]);
    cut(&mut w, 1, false);
    w.run(Duration::from_secs(10));
    assert_eq!(w.read(1, ids[1]).len(), 1);
}

#[test]
fn a_single_path_is_never_only_in_doubt() {
    let mut w = World::new(1, AssociationConfig::default(), LinkConfig::delay(ms(10)));
    let [a, _] = w.established();
    cut(&mut w, 0, true);
    w.send(0, a, 0, b"x");
    w.run(Duration::from_secs(4));
    assert!(w.ends[0].paths(a)[0].errors >= 2);
    assert_eq!(state(&w, a, 0), PathState::Active);
}

#[test]
fn the_primary_path_is_given_up_for_good_if_that_is_wanted() {
    for (limit, expected) in [(Some(2), PathId(1)), (None, PathId(0))] {
        let (mut w, ids) = world(AssociationConfig { primary_switchover: limit, ..AssociationConfig::default() });
        cut(&mut w, 0, true);
        arrives(&mut w, ids, Duration::from_secs(3));
        w.run(Duration::from_secs(30));
        cut(&mut w, 0, false);
        w.run(Duration::from_secs(200));
        assert_eq!(state(&w, ids[0], 0), PathState::Active);
        let last = w.events[0].iter().rev().find_map(|(_, e)| match e {
            Event::PrimaryPath { path } => Some(*path),
            _ => None,
        });
        assert_eq!(last, Some(expected), "{limit:?}");
    }
}
