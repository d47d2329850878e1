//! Concurrent multipath transfer (Iyengar 2006) and the potentially-failed state (Natarajan 2009,
//! chapter 4; RFC 7829).

use crate::support::{World, config, ms};
use bytes::Bytes;
use core::time::Duration;
use neater_link::{LinkConfig, QueueLimit};
use neater_sctp::{AssociationConfig, AssociationId, Multipath, PathState, Retransmission, SendOptions};
use neater_sctp_wire::StreamId;

const SECOND: Duration = Duration::from_secs(1);

/// 10 Mbit/s, 45 ms, a queue that is never full.
fn link() -> LinkConfig {
    LinkConfig::rate(10_000_000, ms(45))
}

fn world(seed: u64, association: &AssociationConfig, links: Vec<LinkConfig>) -> (World, [AssociationId; 2]) {
    let configs = [0, 1].map(|end| config(end, links.len(), association.clone()));
    let mut w = World::with(seed, configs, links);
    let ids = w.established();
    // The second path is confirmed.
    w.run(2 * SECOND);
    (w, ids)
}

fn published(potentially_failed: bool) -> AssociationConfig {
    AssociationConfig {
        receive_buffer: 65_536,
        first_receive_buffer: 65_536,
        max_association_retransmits: 30,
        heartbeat_interval: None,
        ..AssociationConfig::as_published(potentially_failed)
    }
}

/// Sends `bytes` and returns how long it takes; `each` is called before every 10 ms.
fn transfer(
    w: &mut World,
    [a, b]: [AssociationId; 2],
    bytes: usize,
    limit: Duration,
    mut each: impl FnMut(&mut World, Duration),
) -> Duration {
    let begin = w.now;
    let (mut sent, mut read) = (0, 0);
    let chunk = Bytes::from(vec![7; 1200]);
    while read < bytes {
        let at = w.now - begin;
        assert!(at < limit, "only {read} bytes after {at:?}");
        each(w, at);
        while sent < bytes {
            let payload = chunk.slice(..chunk.len().min(bytes - sent));
            let len = payload.len();
            if w.ends[0].send(a, StreamId(0), payload, SendOptions::default()).is_err() {
                break;
            }
            sent += len;
        }
        w.flush();
        let next = w.now + ms(10);
        while w.step(next) {
            read += w.read(1, b).iter().map(|m| m.payload.len()).sum::<usize>();
        }
        w.now = next;
    }
    w.now - begin
}

fn cut(w: &mut World, path: usize, down: bool) {
    let now = w.now;
    for way in 0..2 {
        let config = w.links[way][path].config().clone().with_down(down);
        w.links[way][path].set_config(now, config);
    }
}

fn state(w: &World, id: AssociationId, path: usize) -> PathState {
    w.ends[0].paths(id)[path].state
}

/// 8 MB over two paths, of which the second fails after 5 s (Natarajan 2009, section 4.4.1.1).
fn permanent_failure(association: &AssociationConfig) -> Duration {
    let (mut w, ids) = world(1, association, vec![link(), link()]);
    let mut failed = false;
    transfer(&mut w, ids, 8_000_000, 300 * SECOND, |w, at| {
        if at >= 5 * SECOND && !core::mem::replace(&mut failed, true) {
            cut(w, 1, true);
        }
    })
}

#[test]
fn a_failed_path_blocks_the_receive_buffer_until_it_is_found_out_and_with_the_new_state_it_does_not() {
    let took = permanent_failure(&published(false));
    assert!((75 * SECOND..85 * SECOND).contains(&took), "{took:?}");
    let took = permanent_failure(&published(true));
    // What the receive buffer allows in a round trip, and one timeout.
    let bound = 8e6 / (65_536.0 / 0.0911) + 1.0;
    assert!(took.as_secs_f64() < 1.1 * bound, "{took:?}, {bound}");
}

#[test]
fn what_blocks_the_receive_buffer_goes_another_way_at_once_if_that_is_wanted() {
    let multipath = Multipath { opportunistic: true, ..Multipath::as_published() };
    let took = permanent_failure(&AssociationConfig { multipath: Some(multipath), ..published(false) });
    // Without the new state, which would have done the same: data goes into the dark for 63 s, and
    // comes out again.
    assert!(took < 30 * SECOND, "{took:?}");
}

fn rate(w: &mut World, ids: [AssociationId; 2], bytes: usize) -> f64 {
    let took = transfer(w, ids, bytes, 600 * SECOND, |_, _| {});
    bytes as f64 * 8e-6 / took.as_secs_f64()
}

#[test]
fn two_paths_carry_what_both_have() {
    let link = LinkConfig::rate(10_000_000, ms(10));
    for multipath in [Multipath::default(), Multipath::as_published()] {
        let association = AssociationConfig { multipath: Some(multipath), ..AssociationConfig::default() };
        let (mut w, ids) = world(1, &association, vec![link.clone(), link.clone()]);
        let rate = rate(&mut w, ids, 16_000_000);
        assert!(rate > 18.5, "{multipath:?}: {rate} Mbit/s");
        let paths = w.ends[0].paths(ids[0]);
        assert!(paths.iter().all(|p| p.sent > 6000), "{paths:?}");
    }
}

#[test]
fn three_paths_of_different_speed_carry_what_all_have() {
    let links =
        [(10_000_000, 5), (5_000_000, 20), (2_000_000, 60)].map(|(rate, delay)| LinkConfig::rate(rate, ms(delay)));
    let association = AssociationConfig { multipath: Some(Multipath::default()), ..AssociationConfig::default() };
    let (mut w, ids) = world(1, &association, links.to_vec());
    let rate = rate(&mut w, ids, 16_000_000);
    assert!(rate > 0.88 * 17.0, "{rate} Mbit/s");
}

/// Of a transfer over paths of 10 and 60 ms that lose nothing.
fn unlike_paths(multipath: Multipath, bytes: usize) -> (f64, neater_sctp::AssociationStats, u64) {
    let association = AssociationConfig {
        multipath: Some(multipath),
        heartbeat_interval: None,
        ..AssociationConfig::as_published(true)
    };
    let association = AssociationConfig { receive_buffer: 400_000, first_receive_buffer: 400_000, ..association };
    let link = |delay| LinkConfig::rate(10_000_000, ms(delay)).with_queue(QueueLimit::Packets(5000));
    let (mut w, ids) = world(1, &association, vec![link(10), link(60)]);
    let before = w.packets[1];
    let rate = rate(&mut w, ids, bytes);
    (rate, w.ends[0].association_stats(ids[0]).unwrap(), w.packets[1] - before)
}

#[test]
fn a_difference_between_paths_is_no_loss() {
    let published = Multipath::as_published();
    let (with, stats, _) = unlike_paths(published, 4_000_000);
    assert_eq!((stats.fast_recoveries, stats.retransmissions), (0, 0));
    let (without, stats, _) = unlike_paths(Multipath { split_fast_retransmit: false, ..published }, 4_000_000);
    assert!(stats.fast_recoveries > 10 && without < 0.8 * with, "{stats:?}, {without} {with}");
}

#[test]
fn a_window_grows_although_another_path_lags_behind() {
    let published = Multipath::as_published();
    let (with, ..) = unlike_paths(published, 400_000);
    let (without, ..) = unlike_paths(Multipath { window_update: false, ..published }, 400_000);
    assert!(without < 0.9 * with, "{without} {with}");
}

#[test]
fn holes_that_are_no_losses_are_acknowledged_with_every_second_packet() {
    let published = Multipath::as_published();
    let (rate, stats, acks) = unlike_paths(published, 4_000_000);
    assert!(acks * 10 < stats.packets_sent * 6, "{acks} for {}", stats.packets_sent);
    let (other, stats, acks) = unlike_paths(Multipath { delayed_ack: false, ..published }, 4_000_000);
    assert!(acks * 10 > stats.packets_sent * 8, "{acks} for {}", stats.packets_sent);
    assert!(rate > 0.9 * other, "{rate} {other}");
}

#[test]
fn a_delayed_acknowledgment_says_for_how_many_packets_it_stands() {
    let (mut w, ids) = world(1, &published(true), vec![link(), link()]);
    let log = crate::support::record(&mut w);
    transfer(&mut w, ids, 300_000, 60 * SECOND, |_, _| {});
    let mut counts = [0; 4];
    for (_, bytes) in log.borrow().iter().filter(|(end, _)| *end == 1) {
        let packet = neater_sctp_wire::Packet::parse(bytes).unwrap();
        for chunk in packet.chunks().flatten() {
            if let Ok(neater_sctp_wire::Chunk::Sack(sack)) = neater_sctp_wire::Chunk::decode(&chunk) {
                counts[usize::from(sack.packets)] += 1;
            }
        }
    }
    assert!(counts[0] == 0 && counts[2] > 80 && counts[2] > 10 * counts[3], "{counts:?}");
}

/// Bernoulli losses are found by indications and not by timers, with acknowledgments that stand for
/// two packets.
#[test]
fn losses_are_found_with_delayed_acknowledgments() {
    let (mut w, ids) = world(3, &published(true), [link(), link()].map(|l| l.with_loss(0.01)).to_vec());
    transfer(&mut w, ids, 4_000_000, 200 * SECOND, |_, _| {});
    let stats = w.ends[0].association_stats(ids[0]).unwrap();
    assert!(stats.fast_recoveries > 20 && stats.timeouts * 5 < stats.fast_recoveries, "{stats:?}");
}

/// The window of the second path when it comes back, in packets.
fn window_after_doubt(packets: Option<u32>) -> u64 {
    let association = AssociationConfig { potentially_failed_window: packets, ..published(true) };
    let (mut w, ids) = world(1, &association, vec![link(), link()]);
    let (mut down, mut window) = (false, None);
    transfer(&mut w, ids, 6_000_000, 100 * SECOND, |w, at| {
        if at >= 2 * SECOND && !down {
            cut(w, 1, true);
            down = true;
        }
        if at > 4 * SECOND && state(w, ids[0], 1) == PathState::PotentiallyFailed {
            let path = w.ends[0].paths(ids[0])[1];
            assert_eq!(path.in_flight, 0, "no data goes there");
            cut(w, 1, false);
        }
        if at > 4 * SECOND && window.is_none() && state(w, ids[0], 1) == PathState::Active {
            window = Some(w.ends[0].paths(ids[0])[1].window);
        }
    });
    window.expect("it came back") / 1220
}

#[test]
fn a_path_that_was_potentially_failed_begins_with_one_or_two_packets() {
    // Looked at every 10 ms, less than a round trip after it has answered.
    assert_eq!([Some(1), Some(2), None].map(window_after_doubt), [1, 2, 1]);
}

#[test]
fn where_all_are_potentially_failed_the_one_with_fewest_timeouts_carries_data() {
    let (mut w, ids) = world(1, &published(true), vec![link(), link()]);
    let mut stage = 0;
    transfer(&mut w, ids, 4_000_000, 100 * SECOND, |w, at| {
        if stage == 0 && at > SECOND {
            cut(w, 0, true);
            stage = 1;
        }
        if stage == 1 && at > 4 * SECOND {
            assert_eq!(state(w, ids[0], 0), PathState::PotentiallyFailed);
            cut(w, 1, true);
            stage = 2;
        }
        if stage == 2 && at > 6 * SECOND {
            let paths = w.ends[0].paths(ids[0]);
            assert!(paths.iter().all(|p| p.state == PathState::PotentiallyFailed), "{paths:?}");
            assert!(paths[1].errors < paths[0].errors && paths[1].in_flight > 0, "{paths:?}");
            cut(w, 1, false);
            stage = 3;
        }
    });
    assert_eq!(stage, 3);
}

#[test]
fn an_acknowledgment_of_what_went_both_ways_makes_no_path_active() {
    let (mut w, ids) = world(1, &published(true), vec![link(), link()]);
    let mut down = false;
    transfer(&mut w, ids, 3_000_000, 100 * SECOND, |w, at| {
        if at > SECOND && !core::mem::replace(&mut down, true) {
            cut(w, 1, true);
        }
        // Everything that was on it has gone the other way and was acknowledged since.
        assert!(at < 3 * SECOND || state(w, ids[0], 1) != PathState::Active);
    });
    assert!(w.ends[0].paths(ids[0])[1].lost > 0);
}

/// Where the lost chunks of a path with 2 % of loss go, of two that are otherwise alike: the share
/// that goes the other way.
fn share_moved(retransmission: Retransmission) -> f64 {
    let multipath = Multipath { retransmission, ..Multipath::as_published() };
    let association = AssociationConfig {
        multipath: Some(multipath),
        receive_buffer: 256_000,
        first_receive_buffer: 256_000,
        ..published(true)
    };
    let (mut w, ids) = world(2, &association, vec![link(), link().with_loss(0.02)]);
    transfer(&mut w, ids, 4_000_000, 200 * SECOND, |_, _| {});
    let paths = w.ends[0].paths(ids[0]);
    paths[0].retransmissions as f64 / (paths[0].retransmissions + paths[1].retransmissions) as f64
}

#[test]
fn lost_chunks_go_where_the_policy_says() {
    for policy in [Retransmission::LargestThreshold, Retransmission::LargestWindow, Retransmission::LowestLoss] {
        let share = share_moved(policy);
        assert!(share > 0.95, "{policy:?}: {share}");
    }
    let share = share_moved(Retransmission::SamePath);
    assert!(share < 0.2, "after a timeout alone another one: {share}");
}

#[test]
fn no_path_has_more_than_its_share_of_the_receive_buffer() {
    let most = |split_buffer| {
        let multipath = Multipath { split_buffer, ..Multipath::as_published() };
        let association = AssociationConfig { multipath: Some(multipath), ..published(true) };
        let (mut w, ids) = world(1, &association, vec![link().with_loss(0.05), link()]);
        let mut most = 0;
        transfer(&mut w, ids, 2_000_000, 100 * SECOND, |w, _| {
            most = most.max(w.ends[0].paths(ids[0])[1].in_flight);
        });
        most
    };
    assert!(most(true) <= 65_536 / 2 + 2 * 1232, "{}", most(true));
    assert!(most(false) > 40_000, "{}", most(false));
}

#[test]
fn a_path_that_blocks_the_window_gets_a_smaller_one() {
    let run = |penalise| {
        let multipath = Multipath { opportunistic: true, penalise, ..Multipath::as_published() };
        let association = AssociationConfig { multipath: Some(multipath), ..published(true) };
        let links = [LinkConfig::rate(10_000_000, ms(10)), LinkConfig::rate(500_000, ms(150))];
        let (mut w, ids) = world(1, &association, links.to_vec());
        let rate = rate(&mut w, ids, 2_000_000);
        (rate, w.ends[0].association_stats(ids[0]).unwrap().opportunistic)
    };
    let ((with, _), (without, moved)) = (run(true), run(false));
    assert!(moved > 0 && with > 1.1 * without, "{with} {without} {moved}");
}

/// Both paths are dead for 10 s, then one comes back: data flows within a second, whatever the
/// timers had been doubled to.
#[test]
fn after_a_silence_the_first_path_that_answers_is_used_at_once() {
    for multipath in [None, Some(Multipath::default())] {
        for back in 0..2 {
            let association = AssociationConfig { multipath, ..AssociationConfig::default() };
            let (mut w, ids) = world(1, &association, vec![link(), link()]);
            let (mut stage, mut returned, mut flows) = (0, None, None);
            let mut seen = 0;
            transfer(&mut w, ids, 6_000_000, 60 * SECOND, |w, at| {
                if stage == 0 && at > SECOND {
                    (0..2).for_each(|path| cut(w, path, true));
                    stage = 1;
                }
                if stage == 1 && at > 11 * SECOND {
                    cut(w, back, false);
                    (stage, returned) = (2, Some(at));
                    seen = w.ends[1].association_stats(ids[1]).unwrap().bytes_received;
                }
                if stage == 2 && flows.is_none() {
                    let now = w.ends[1].association_stats(ids[1]).unwrap().bytes_received;
                    flows = (now > seen).then_some(at);
                }
            });
            let wait = flows.unwrap() - returned.unwrap();
            assert!(w.closed(0).is_none());
            assert!(wait < SECOND, "path {back} with {multipath:?}: {wait:?}");
        }
    }
}

#[test]
fn what_is_known_of_an_interface_makes_a_path_look_at_once() {
    let association = AssociationConfig { silent_probing: None, ..AssociationConfig::default() };
    let (mut w, ids) = world(1, &association, vec![link(), link()]);
    (0..2).for_each(|path| cut(&mut w, path, true));
    w.send(0, ids[0], 0, b"into the dark");
    w.run(20 * SECOND);
    assert_ne!(state(&w, ids[0], 1), PathState::Active);
    cut(&mut w, 1, false);
    w.ends[0].probe_paths(ids[0]);
    w.run(ms(200));
    assert_eq!(state(&w, ids[0], 1), PathState::Active);
    w.run(ms(500));
    assert_eq!(w.read(1, ids[1]).len(), 1);
}

#[test]
fn probes_of_a_silent_association_end() {
    let (mut w, ids) = world(1, &AssociationConfig::default(), vec![link(), link()]);
    (0..2).for_each(|path| cut(&mut w, path, true));
    w.run(40 * SECOND);
    let log = crate::support::record(&mut w);
    w.run(30 * SECOND);
    let probing = log.borrow().len();
    w.run(60 * SECOND);
    log.borrow_mut().clear();
    w.run(30 * SECOND);
    let seldom = log.borrow().len();
    assert!(probing > 60 && seldom < 30, "{probing} and later {seldom}: {:?}", w.ends[0].paths(ids[0]));
}
