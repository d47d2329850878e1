//! Loss recovery, congestion control, paths, and the end in every state.

use crate::support::raw::Raw;
use crate::support::watch::datas;
use crate::support::{World, config, ms};
use bytes::Bytes;
use core::time::Duration;
use neater_link::{LinkConfig, QueueLimit};
use neater_sctp::{
    AssociationConfig, AssociationId, Burst, CloseReason, Event, PathState, Policy, Recovery, SendOptions,
};
use neater_sctp_wire::{Packet as Wire, StreamId};
use std::cell::RefCell;
use std::rc::Rc;

fn recoveries() -> [AssociationConfig; 3] {
    let rfc = AssociationConfig::rfc9260();
    let reno = Recovery { policy: Policy::NewReno, ..Recovery::modern() };
    let reno = AssociationConfig { recovery: reno, ..AssociationConfig::default() };
    [rfc, AssociationConfig::default(), reno]
}

/// Sends `bytes` in messages of 1,000 bytes, and returns how long they took.
fn transfer(w: &mut World, [a, b]: [AssociationId; 2], bytes: usize) -> Duration {
    let start = w.now;
    let payload = Bytes::from(vec![7; 1000]);
    let (mut sent, mut got) = (0, 0);
    while got < bytes {
        while sent < bytes && w.ends[0].send(a, StreamId(0), payload.clone(), SendOptions::default()).is_ok() {
            sent += 1000;
        }
        let limit = w.now + Duration::from_secs(100);
        assert!(w.step(limit), "{got} of {bytes} bytes arrived");
        while let Some(m) = w.ends[1].receive(b) {
            got += m.payload.len();
            w.ends[1].recycle(b, m.payload);
        }
    }
    w.now - start
}

#[test]
fn one_lost_packet_is_repaired_without_a_timeout() {
    for (i, association) in recoveries().into_iter().enumerate() {
        let mut w = World::new(1, association, LinkConfig::delay(ms(20)).without([12]));
        w.links[1] = vec![neater_link::Link::new(LinkConfig::delay(ms(20)), 1)];
        let ids = w.established();
        let took = transfer(&mut w, ids, 200_000);
        let stats = w.ends[0].association_stats(ids[0]).unwrap();
        assert_eq!((stats.retransmissions, stats.timeouts, stats.fast_recoveries), (1, 0, 1), "{i}: {stats:?}");
        // A window of a few packets, halved, grows by one packet a round trip.
        assert!(took < if i == 0 { ms(3000) } else { ms(1000) }, "{i}: {took:?}");
    }
}

#[test]
fn in_slow_start_what_fills_the_window_is_acknowledged_at_once() {
    // Three packets fill the window, and every second one is acknowledged: the last waits for
    // SACK.Delay unless it has the I bit.
    let took = |association: AssociationConfig| {
        let recovery = Recovery { initial_window: neater_cc::InitialWindow::Segments(3), ..association.recovery };
        let association = AssociationConfig { recovery, search_mtu: false, sack_delay: ms(100), ..association };
        // One after the other, for packets that arrive at once are acknowledged at once.
        let mut w = World::new(1, association, LinkConfig::rate(10_000_000, ms(20)));
        let [a, _] = w.established();
        w.run(ms(500));
        let start = w.now;
        (0..3).for_each(|_| w.send(0, a, 0, &[7; 1200]));
        w.run_until(Duration::from_secs(10), |w| w.ends[0].buffered(a) == 0);
        w.now - start
    };
    assert!(took(AssociationConfig::default()) < ms(50));
    assert!(took(AssociationConfig { recovery: Recovery::rfc9260(), ..AssociationConfig::default() }) > ms(100));
}

#[test]
fn a_loss_at_the_end_is_probed_for_or_waits_for_the_timer() {
    let took = |association| {
        let mut w = World::new(1, association, LinkConfig::delay(ms(20)));
        let ids = w.established();
        transfer(&mut w, ids, 20_000);
        w.run(ms(500));
        // The last packet of the next transfer is lost.
        let mut left = 3;
        w.tap = Some(Box::new(move |end, packet| {
            let data =
                end == 0 && Wire::parse(&packet.bytes).unwrap().chunks().flatten().any(|c| matches!(c.kind, 0 | 64));
            left -= i32::from(data);
            !(data && left == 0)
        }));
        let took = transfer(&mut w, ids, 3000);
        (took, w.ends[0].association_stats(ids[0]).unwrap())
    };
    let (slow, stats) = took(AssociationConfig::rfc9260());
    assert_eq!((stats.timeouts, stats.tail_probes), (1, 0));
    assert!(slow >= ms(1000));
    let (fast, stats) = took(AssociationConfig::default());
    assert_eq!((stats.timeouts, stats.tail_probes), (0, 1), "{stats:?}");
    assert!(fast < ms(400), "{fast:?}");
}

#[test]
fn reordering_is_not_taken_for_loss_for_long() {
    let link = LinkConfig { reorder: true, ..LinkConfig::delay(ms(20)).with_jitter(ms(8)) };
    let mut w = World::new(3, AssociationConfig::default(), link);
    let ids = w.established();
    transfer(&mut w, ids, 2_000_000);
    let stats = w.ends[0].association_stats(ids[0]).unwrap();
    assert!(stats.retransmissions * 20 < stats.chunks_sent, "{stats:?}");
}

#[test]
fn a_link_is_filled_and_its_queue_is_not_overrun_for_long() {
    for (i, association) in recoveries().into_iter().enumerate() {
        let link = LinkConfig::rate(20_000_000, ms(10)).with_queue(QueueLimit::Packets(40));
        let mut w = World::new(2, association, link);
        let ids = w.established();
        let took = transfer(&mut w, ids, 10_000_000);
        // 20 Mbit/s are 2.5 MB/s of IP packets: 4 s and headers.
        assert!(took < Duration::from_millis(6000), "{i}: {took:?}");
        let stats = w.ends[0].association_stats(ids[0]).unwrap();
        // A chunk that is lost twice waits for the timer where losses are counted by miss
        // indications.
        assert!(stats.timeouts <= if i == 0 { 3 } else { 0 }, "{i}: {stats:?}");
        assert!(stats.retransmissions * 20 < stats.chunks_sent, "{i}: {stats:?}");
    }
}

#[test]
fn random_loss_is_survived_and_the_modern_recovery_is_faster() {
    let took = |association: AssociationConfig| {
        let mut w = World::new(7, association, LinkConfig::rate(50_000_000, ms(20)).with_loss(0.02));
        let ids = w.established();
        transfer(&mut w, ids, 3_000_000)
    };
    let (old, new) = (took(AssociationConfig::rfc9260()), took(AssociationConfig::default()));
    assert!(new < old, "{new:?} {old:?}");
}

#[test]
fn bursts_are_limited_or_paced() {
    let longest_burst = |recovery| {
        let association = AssociationConfig { recovery, ..AssociationConfig::default() };
        let mut w = World::new(1, association, LinkConfig::rate(50_000_000, ms(50)));
        let ids = w.established();
        transfer(&mut w, ids, 300_000);
        w.run(ms(150));
        let times = Rc::new(RefCell::new(Vec::new()));
        let log = Rc::clone(&times);
        w.tap = Some(Box::new(move |end, packet| {
            if end == 0 {
                log.borrow_mut().push(packet.bytes.len());
            }
            true
        }));
        // All at once into an open window: how many packets leave before time passes?
        for _ in 0..30 {
            w.send(0, ids[0], 0, &[0; 1000]);
        }
        w.flush();
        times.borrow().len()
    };
    let few = longest_burst(Recovery { burst: Burst::Packets(4), ..Recovery::modern() });
    assert!((4..=5).contains(&few), "{few}: one may go beyond the limit");
    assert!(longest_burst(Recovery::modern()) <= 12);
    assert!(longest_burst(Recovery { burst: Burst::Unlimited, ..Recovery::modern() }) >= 25);
}

fn two_paths() -> (World, [AssociationId; 2]) {
    let configs = [0, 1].map(|end| {
        config(end, 2, AssociationConfig { max_association_retransmits: 20, ..AssociationConfig::default() })
    });
    let mut w = World::with(5, configs, vec![LinkConfig::delay(ms(10)), LinkConfig::delay(ms(15))]);
    let ids = w.established();
    w.run(Duration::from_secs(3));
    (w, ids)
}

#[test]
fn a_second_address_is_verified_before_it_is_used() {
    let (w, ids) = two_paths();
    for (end, id) in ids.into_iter().enumerate() {
        let paths = w.ends[end].paths(id);
        assert_eq!(paths.len(), 2, "end {end}: {paths:?}");
        assert!(paths.iter().all(|p| p.state == PathState::Active), "end {end}: {paths:?}");
    }
}

#[test]
fn data_takes_the_other_path_when_the_first_dies_and_comes_back() {
    let (mut w, ids) = two_paths();
    transfer(&mut w, ids, 100_000);
    let up = LinkConfig::delay(ms(10));
    for way in 0..2 {
        let now = w.now;
        w.links[way][0].set_config(now, up.clone().with_down(true));
    }
    let took = transfer(&mut w, ids, 100_000);
    assert!(took < Duration::from_secs(60), "{took:?}");
    // With nothing to send heartbeats find it out, and that it works again.
    w.run(Duration::from_secs(1000));
    let first = w.ends[0].paths(ids[0])[0];
    assert_eq!((first.state, w.closed(0)), (PathState::Inactive, None));
    assert!(w.events[0].iter().any(|(_, e)| matches!(e, Event::PrimaryPath { path } if path.0 == 1)));
    for way in 0..2 {
        let now = w.now;
        w.links[way][0].set_config(now, up.clone());
    }
    w.run(Duration::from_secs(200));
    assert_eq!(w.ends[0].paths(ids[0])[0].state, PathState::Active);
    assert!(transfer(&mut w, ids, 100_000) < Duration::from_secs(2));
}

#[test]
fn a_peer_that_vanishes_is_noticed_by_data_and_by_heartbeats() {
    for idle in [true, false] {
        let mut w = World::new(1, AssociationConfig::default(), LinkConfig::delay(ms(10)));
        let [a, _] = w.established();
        for way in 0..2 {
            let now = w.now;
            w.links[way][0].set_config(now, LinkConfig::delay(ms(10)).with_down(true));
        }
        if !idle {
            w.send(0, a, 0, b"is anybody there?");
        }
        w.run(Duration::from_secs(2000));
        assert_eq!(w.closed(0), Some(CloseReason::Unreachable), "idle: {idle}");
        let failed = w.events[0].iter().filter(|(_, e)| matches!(e, Event::Failed { sent: true, .. })).count();
        assert_eq!(failed, usize::from(!idle), "what was not delivered is reported");
    }
}

#[test]
fn a_peer_behind_a_nat_gets_another_port_and_is_followed() {
    let mut w = World::new(1, AssociationConfig::default(), LinkConfig::delay(ms(10)));
    let ids = w.established();
    transfer(&mut w, ids, 10_000);
    // From now on the client's packets come from another port.
    w.addresses[0][0].set_port(7777);
    for _ in 0..20 {
        w.send(0, ids[0], 0, b"still me");
        w.run(ms(300));
        w.read(1, ids[1]);
    }
    assert_eq!(w.ends[1].paths(ids[1])[0].route.remote.port(), 7777);
    w.send(1, ids[1], 0, b"found you");
    w.run(ms(500));
    assert_eq!(w.read(0, ids[0]).len(), 1);
}

#[test]
fn shutdown_delivers_everything_first_from_one_side_or_both() {
    for both in [false, true] {
        for loss in [0.0, 0.1] {
            let mut w =
                World::new(9, AssociationConfig::default(), LinkConfig::rate(5_000_000, ms(10)).with_loss(loss));
            let ids = w.established();
            for i in 0..100u8 {
                w.send(0, ids[0], 0, &[i; 700]);
                w.send(1, ids[1], 0, &[i; 300]);
            }
            let now = w.now;
            w.ends[0].shutdown(now, ids[0]);
            if both {
                w.ends[1].shutdown(now, ids[1]);
            }
            let mut got = [0, 0];
            for _ in 0..600 {
                w.run(ms(100));
                got[0] += w.read(0, ids[0]).len();
                got[1] += w.read(1, ids[1]).len();
            }
            assert_eq!(
                (got, w.closed(0), w.closed(1)),
                ([100, 100], Some(CloseReason::Shutdown), Some(CloseReason::Shutdown)),
                "{both} {loss}"
            );
            assert_eq!((w.ends[0].kept(), w.ends[1].kept()), (0, 0));
        }
    }
}

#[test]
fn abort_ends_it_at_once_and_says_why() {
    let mut w = World::new(1, AssociationConfig::default(), LinkConfig::delay(ms(10)));
    let [a, b] = w.established();
    w.send(1, b, 0, b"never acknowledged");
    w.ends[0].abort(a, b"had enough");
    w.run(ms(100));
    assert_eq!(w.closed(0), Some(CloseReason::Aborted));
    assert_eq!(w.closed(1), Some(CloseReason::PeerAborted { cause: Some(12), reason: b"had enough".to_vec() }));
    assert!(w.events[1].iter().any(|(_, e)| matches!(e, Event::Failed { .. })));
}

/// RFC 8985 section 7.3: without new data that may be sent, the last segment goes again.
#[test]
fn what_the_peer_has_no_room_for_is_not_the_tail_probe() {
    let mut raw = Raw::connected(AssociationConfig { recovery: Recovery::modern(), ..AssociationConfig::rfc9260() });
    raw.send(&[100]);
    raw.take();
    raw.now += ms(100);
    raw.sack(1, 2500, &[]);
    raw.send(&[1000; 4]);
    assert_eq!(raw.sent(), [2, 3]);
    raw.now += ms(100);
    // The third is lost, and there is half a chunk of room beside it.
    raw.sack(2, 1500, &[]);
    assert_eq!(raw.sent(), [0; 0]);
    let again = datas(&raw.wait(ms(600)));
    assert_eq!(again.iter().map(|d| d.tsn.wrapping_sub(raw.initial.0) + 1).collect::<Vec<_>>(), [3]);
    assert_eq!((raw.stats().tail_probes, raw.stats().timeouts), (1, 0));
}
