//! Paths that fall silent, that carry only short packets, that come back, and copies that make up
//! for them.

use crate::support::{World, config, ms};
use core::time::Duration;
use neater_base::Instant;
use neater_link::{Filter, LinkConfig, Match, QueueLimit};
use neater_sctp::{AssociationConfig, AssociationId, Multipath, PathScheduler, PathState, PathVerdict};

const SECOND: Duration = Duration::from_secs(1);

fn association(multipath: Multipath) -> AssociationConfig {
    AssociationConfig { multipath: Some(multipath), ..AssociationConfig::default() }
}

fn world(multipath: Multipath, links: &[LinkConfig]) -> (World, [AssociationId; 2]) {
    let configs = [0, 1].map(|end| config(end, links.len(), association(multipath)));
    let mut w = World::with(7, configs, links.to_vec());
    let ids = w.established();
    w.run(2 * SECOND);
    (w, ids)
}

fn cut(w: &mut World, path: usize, down: bool) {
    let now = w.now;
    for way in 0..2 {
        let config = w.links[way][path].config().clone().with_down(down);
        w.links[way][path].set_config(now, config);
    }
}

/// A message of 1,000 bytes every other millisecond for so long; returns when something was read.
fn talk(w: &mut World, [a, b]: [AssociationId; 2], time: Duration) -> Vec<Instant> {
    let end = w.now + time;
    let mut read = Vec::new();
    while w.now < end {
        w.send(0, a, 0, &[7; 1000]);
        w.flush();
        let next = w.now + ms(2);
        while w.step(next) {
            let n = w.read(1, b).len();
            read.extend(core::iter::repeat_n(w.now, n));
        }
        w.now = next;
    }
    read
}

fn longest_wait(from: Instant, read: &[Instant]) -> Duration {
    let before = core::iter::once(&from).chain(read);
    before.zip(read).map(|(a, b)| *b - *a).max().unwrap()
}

fn state(w: &World, id: AssociationId, path: usize) -> PathState {
    w.ends[0].paths(id)[path].state
}

#[test]
fn a_silent_path_is_left_after_a_probe_timeout_and_taken_back_when_it_answers() {
    let links = [20, 25].map(|delay| LinkConfig::rate(20_000_000, ms(delay)));
    for multipath in [Multipath::aggregate(), Multipath::interactive(), Multipath::handover()] {
        let (mut w, ids) = world(multipath, &links);
        talk(&mut w, ids, SECOND);
        cut(&mut w, 0, true);
        let died = w.now;
        let read = talk(&mut w, ids, SECOND);
        // A probe timeout of two round trips of 40 ms, and the way over the other path.
        let wait = longest_wait(died, &read);
        assert!(wait < ms(80 + 25 + 25), "{multipath:?}: {wait:?}");
        assert_eq!(state(&w, ids[0], 0), PathState::PotentiallyFailed, "{multipath:?}");
        cut(&mut w, 0, false);
        talk(&mut w, ids, 4 * SECOND);
        assert_eq!(state(&w, ids[0], 0), PathState::Active, "{multipath:?}");
        w.run(SECOND);
        let stats = w.ends[0].association_stats(ids[0]).unwrap();
        assert_eq!((stats.timeouts, stats.silences), (0, 1), "{multipath:?}");
        assert!(w.ends[0].paths(ids[0]).iter().all(|p| p.in_flight == 0), "{multipath:?}");
    }
}

#[test]
fn without_that_it_takes_a_retransmission_timeout() {
    let links = [20, 25].map(|delay| LinkConfig::rate(20_000_000, ms(delay)));
    let (mut w, ids) = world(Multipath { leave_silent: false, reinject: false, ..Multipath::aggregate() }, &links);
    talk(&mut w, ids, SECOND);
    cut(&mut w, 0, true);
    let died = w.now;
    let read = talk(&mut w, ids, 2 * SECOND);
    let wait = longest_wait(died, &read);
    assert!(wait > ms(200), "{wait:?}");
}

#[test]
fn where_everything_goes_twice_nobody_waits_for_a_path_that_dies() {
    let links = [20, 25].map(|delay| LinkConfig::rate(20_000_000, ms(delay)));
    let redundant = Multipath { scheduler: PathScheduler::Redundant, ..Multipath::interactive() };
    for dies in 0..2 {
        let (mut w, ids) = world(redundant, &links);
        let read = talk(&mut w, ids, SECOND);
        assert!(read.len() > 480);
        cut(&mut w, dies, true);
        let died = w.now;
        let read = talk(&mut w, ids, SECOND);
        let wait = longest_wait(died, &read);
        assert!(wait < ms(20), "path {dies}: {wait:?}");
        cut(&mut w, dies, false);
        w.run(20 * SECOND);
        assert!(w.ends[0].paths(ids[0]).iter().all(|p| p.in_flight == 0 && p.state == PathState::Active));
        let received = w.ends[1].association_stats(ids[1]).unwrap().bytes_received;
        assert_eq!(received, 1_000_000, "each byte once");
    }
}

/// Data is lost on a path and heartbeats are not, for they are short: packets get shorter, and the
/// path is used.
#[test]
fn a_path_that_swallows_long_packets_gets_short_ones() {
    let links = [20, 25].map(|delay| LinkConfig::rate(20_000_000, ms(delay)));
    let (mut w, ids) = world(Multipath::aggregate(), &links);
    talk(&mut w, ids, SECOND);
    let now = w.now;
    let hole = w.links[0][0].config().clone().with_filter(Filter::drop(Match::Any).larger_than(1000));
    w.links[0][0].set_config(now, hole);
    let read = talk(&mut w, ids, 10 * SECOND);
    assert!(read.len() > 4800, "{}", read.len());
    w.run(SECOND);
    assert!(w.ends[0].association_stats(ids[0]).unwrap().black_holes > 0);
    assert!(w.ends[0].paths(ids[0])[0].room < 1000);
    let before = w.ends[0].paths(ids[0])[0].delivered;
    talk(&mut w, ids, 2 * SECOND);
    let paths = w.ends[0].paths(ids[0]);
    assert!(paths[0].state == PathState::Active && paths[0].delivered > before, "{paths:?}");
}

/// What the second host sends on the first path is lost, what it gets by it arrives.
#[test]
fn a_path_that_carries_one_direction_blocks_nothing() {
    let links = [20, 25].map(|delay| LinkConfig::rate(20_000_000, ms(delay)));
    for way in 0..2 {
        let (mut w, ids) = world(Multipath::aggregate(), &links);
        talk(&mut w, ids, SECOND);
        let now = w.now;
        let down = w.links[way][0].config().clone().with_down(true);
        w.links[way][0].set_config(now, down);
        let read = talk(&mut w, ids, 5 * SECOND);
        let wait = longest_wait(now, &read);
        assert!(read.len() > 2400 && wait < ms(200), "way {way}: {} after {wait:?}", read.len());
    }
}

#[test]
fn the_end_of_a_transfer_does_not_wait_for_a_slow_path() {
    let links = [LinkConfig::rate(50_000_000, ms(10)), LinkConfig::rate(5_000_000, ms(150))];
    let time = |multipath| {
        let (mut w, ids) = world(multipath, &links);
        let begin = w.now;
        (0..400).for_each(|_| w.send(0, ids[0], 0, &[1; 1100]));
        let mut read = 0;
        while read < 400 {
            let limit = w.now + SECOND;
            assert!(w.step(limit), "only {read}");
            read += w.read(1, ids[1]).len();
        }
        w.now - begin
    };
    let (plain, default) = (
        time(Multipath { scheduler: PathScheduler::LowestRtt, ..Multipath::as_published() }),
        time(Multipath::aggregate()),
    );
    // Of 440,000 bytes all could go by the first path in 70 ms and its slow start; what goes by the
    // second is there after 150 ms and its own time on the link.
    assert!(plain > ms(170) && default < ms(140), "{plain:?} and {default:?}");
}

#[test]
fn a_path_says_why_it_is_not_used() {
    let links = [LinkConfig::rate(50_000_000, ms(10)), LinkConfig::rate(5_000_000, ms(150))];
    let (mut w, ids) = world(Multipath::handover(), &links);
    talk(&mut w, ids, SECOND);
    let verdicts = |w: &World| w.ends[0].paths(ids[0]).iter().map(|p| p.verdict).collect::<Vec<_>>();
    assert_eq!(verdicts(&w), [PathVerdict::Used, PathVerdict::Standby]);
    let (mut w, ids) = world(Multipath::aggregate(), &links);
    for _ in 0..50 {
        w.send(0, ids[0], 0, &[1; 1100]);
    }
    w.flush();
    let verdicts: Vec<_> = w.ends[0].paths(ids[0]).iter().map(|p| p.verdict).collect();
    assert_eq!(verdicts, [PathVerdict::Used, PathVerdict::FasterSuffice]);
}

/// What the owner keeps for sending is by this: a loss on the slow path takes two of its round
/// trips, in which the fast one goes on. A slow path that carries nothing asks for nothing.
#[test]
fn what_may_wait_follows_the_slowest_path_that_carries_something() {
    let links = [(10, 40), (100, 400)]
        .map(|(d, q)| LinkConfig { queue: QueueLimit::Packets(q), ..LinkConfig::rate(20_000_000, ms(d)) });
    for (multipath, follows) in [(Multipath::aggregate(), true), (Multipath::interactive(), false)] {
        let (mut w, ids) = world(multipath, &links);
        talk(&mut w, ids, SECOND);
        let windows = |w: &World| w.ends[0].paths(ids[0]).iter().map(|p| p.window).sum::<u64>();
        assert_eq!(w.ends[0].paths(ids[0])[1].in_flight, 0, "4 Mbit/s go on the fast one");
        assert!(w.ends[0].window(ids[0]) <= windows(&w), "{multipath:?}");
        let until = w.now + 4 * SECOND;
        let mut most = 0.0_f64;
        while w.now < until {
            while w.ends[0].room(ids[0]) >= 10_000 {
                w.send(0, ids[0], 0, &[7; 10_000]);
            }
            w.flush();
            let next = w.now + ms(5);
            while w.step(next) {
                w.read(1, ids[1]);
            }
            w.now = next;
            most = most.max(w.ends[0].window(ids[0]) as f64 / windows(&w) as f64);
        }
        assert_eq!(most > 1.5, follows, "{multipath:?}: {most}");
        assert!(most < 16.0, "{most}");
    }
}

/// Two paths that are alike, and a receive buffer that both together fill: a copy there would take
/// the place of what comes next.
#[test]
fn a_full_receive_window_leads_to_no_copies_while_both_paths_have_enough_to_carry() {
    let links =
        [10, 10].map(|d| LinkConfig { queue: QueueLimit::Packets(1000), ..LinkConfig::rate(50_000_000, ms(d)) });
    let (mut w, [a, b]) = world(Multipath::aggregate(), &links);
    let (began, total) = (w.now, 20_000_000);
    let (mut sent, mut read) = (0, 0);
    while read < total {
        while sent < total && w.ends[0].room(a) >= 10_000 {
            w.send(0, a, 0, &[7; 10_000]);
            sent += 10_000;
        }
        w.flush();
        let next = w.now + ms(5);
        while w.step(next) {
            read += w.read(1, b).iter().map(|m| m.payload.len()).sum::<usize>();
        }
        w.now = next;
    }
    let rate = total as f64 * 8.0 / (w.now - began).as_secs_f64() / 1e6;
    let copies = w.ends[0].association_stats(a).unwrap().copies;
    assert!(copies < 100, "{copies} copies of {} packets", total / 1400);
    assert!(rate > 85.0, "{rate} of 100 Mbit/s");
}
