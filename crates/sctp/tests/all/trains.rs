//! Packets in trains, and buffers that grow.

use crate::support::{World, ms};
use bytes::Bytes;
use core::time::Duration;
use neater_base::Rng;
use neater_link::{LinkConfig, QueueLimit};
use neater_sctp::{AssociationConfig, Extensions, INITIAL_BUFFER, Scheduler, SendError, SendOptions, Train};
use neater_sctp_wire::{Packet, StreamId, ZeroChecksum};

const ROOM: usize = 1232;

fn world() -> (World, [neater_sctp::AssociationId; 2]) {
    let mut w = World::new(1, AssociationConfig::default(), LinkConfig::delay(ms(5)));
    let ids = w.established();
    w.run(ms(500));
    (w, ids)
}

/// Takes the trains that an end has, and checks every packet of them.
fn trains(w: &mut World, end: usize, size: usize, most: usize) -> Vec<(Train, usize)> {
    let mut buffer = vec![0; size];
    let mut all = Vec::new();
    while let Some(train) = w.ends[end].poll_train(w.now, &mut buffer, most) {
        let packets: Vec<&[u8]> = buffer[..train.len].chunks(train.segment).collect();
        for packet in &packets {
            let parsed = Packet::parse(packet).expect("a packet");
            parsed.verify(ZeroChecksum::Refused).expect("a checksum");
            assert!(parsed.chunks().all(|c| c.is_ok()));
        }
        all.push((train, packets.len()));
    }
    all
}

#[test]
fn full_packets_travel_together_and_a_shorter_one_ends_the_train() {
    let (mut w, [a, _]) = world();
    w.send(0, a, 0, &vec![7; 5 * (ROOM - 32)]);
    w.send(0, a, 0, &[8; 100]);
    let all = trains(&mut w, 0, 65_535, 64);
    let [(train, count)] = all[..] else { panic!("{all:?}") };
    assert_eq!((train.segment, count), (ROOM, 6));
    assert!(train.len > 5 * ROOM && train.len < 6 * ROOM);
}

#[test]
fn a_train_keeps_to_its_buffer_and_its_number() {
    let (mut w, [a, _]) = world();
    w.send(0, a, 0, &vec![7; 8 * (ROOM - 32)]);
    let all = trains(&mut w, 0, 3 * ROOM + ROOM - 1, 64);
    assert_eq!(all.iter().map(|(_, n)| *n).collect::<Vec<_>>(), [3, 3, 2], "{all:?}");
    let (mut w, [a, _]) = world();
    w.send(0, a, 0, &vec![7; 8 * (ROOM - 32)]);
    let all = trains(&mut w, 0, 65_535, 5);
    assert_eq!(all.iter().map(|(_, n)| *n).collect::<Vec<_>>(), [5, 3], "{all:?}");
}

#[test]
fn a_packet_that_is_longer_than_the_first_is_kept_for_the_next_train() {
    let (mut w, [a, _]) = world();
    // It does not share a packet with what follows, which fits into a packet of its own.
    w.send(0, a, 0, &[1; 600]);
    w.send(0, a, 0, &vec![2; ROOM - 32]);
    let mut buffer = vec![0; 65_535];
    let first = w.ends[0].poll_train(w.now, &mut buffer, 64).expect("a train");
    assert_eq!((first.len, first.segment), (632, 632));
    assert!(!w.ends[0].is_idle());
    let second = w.ends[0].poll_transmit(w.now, &mut buffer).expect("what was kept");
    assert_eq!(second.len, ROOM);
    assert_eq!(w.ends[0].poll_train(w.now, &mut buffer, 64), None);
}

/// What happens between two ends that take their packets in trains of at most `train`: every
/// packet, event and message, and when.
fn story(seed: u64, train: usize) -> Vec<String> {
    let mut rng = Rng::from_number(seed);
    let schedulers = [
        Scheduler::FirstCome,
        Scheduler::RoundRobin,
        Scheduler::RoundRobinPerPacket,
        Scheduler::FairBandwidth,
        Scheduler::WeightedFair,
    ];
    let config = AssociationConfig {
        scheduler: schedulers[rng.below(schedulers.len() as u64) as usize],
        extensions: Extensions { interleaving: rng.below(2) == 0, ..Extensions::default() },
        receive_buffer: [20_000, 200_000, 4_000_000][rng.below(3) as usize],
        search_mtu: rng.below(2) == 0,
        ..AssociationConfig::default()
    };
    let config = if rng.below(4) == 0 {
        AssociationConfig { recovery: AssociationConfig::rfc9260().recovery, ..config }
    } else {
        config
    };
    let link = LinkConfig::rate(1_000_000 << rng.below(7), ms(rng.below(40))).with_queue(QueueLimit::Packets(60));
    let mut w = World::new(seed, config, link.with_loss([0.0, 0.0, 0.02][rng.below(3) as usize]));
    w.train = train;
    let ids = w.established();
    let log = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let packets = std::rc::Rc::clone(&log);
    w.tap = Some(Box::new(move |end, packet| {
        packets.borrow_mut().push(format!("{end} {} {} {:02x?}", packet.ect, packet.whole, packet.bytes));
        true
    }));
    for _ in 0..60 {
        for _ in 0..rng.below(8) {
            let end = usize::from(rng.below(4) == 0);
            let len = [100, 1000, 1200, 5000, 40_000][rng.below(5) as usize] + rng.below(200);
            let options =
                SendOptions { unordered: rng.below(4) == 0, immediate: rng.below(8) == 0, ..SendOptions::default() };
            let message = Bytes::from(vec![len as u8; len as usize]);
            let sent = w.ends[end].send(ids[end], StreamId(rng.below(5) as u16), message, options);
            log.borrow_mut().push(format!("{sent:?}"));
        }
        if rng.below(2) == 0 {
            for (end, id) in ids.into_iter().enumerate() {
                let read = w.read(end, id).iter().map(|m| (m.number, m.payload.len())).collect::<Vec<_>>();
                log.borrow_mut().push(format!("{end} reads {read:?}"));
            }
        }
        let until = w.now + ms(rng.below(30));
        while w.step(until) {}
        w.now = until;
        log.borrow_mut().push(format!("{:?} {:?} {:?}", w.now, w.ends.each_ref().map(|e| e.next_timeout()), w.events));
    }
    drop(w);
    std::rc::Rc::into_inner(log).expect("the world is gone").into_inner()
}

#[test]
fn trains_change_nothing_about_what_is_sent_and_when() {
    for seed in 0..24 {
        let (one, many) = (story(seed, 1), story(seed, 64));
        let differs = one.iter().zip(&many).position(|(a, b)| a != b);
        assert!(differs.is_none() && one.len() == many.len(), "{seed}: {differs:?} of {}, {}", one.len(), many.len());
        assert!(one.len() > 100, "{seed}: something happened");
    }
}

/// Sends for so long, as fast as it is taken, and returns the bytes that arrived and the most that
/// was in flight.
fn bulk(w: &mut World, [a, b]: [neater_sctp::AssociationId; 2], time: Duration, reads: bool) -> (usize, u64) {
    let (until, payload) = (w.now + time, Bytes::from(vec![3; 16_000]));
    let (mut got, mut most) = (0, 0);
    while w.now < until {
        loop {
            match w.ends[0].send(a, StreamId(0), payload.clone(), SendOptions::default()) {
                Ok(_) => {}
                Err(SendError::Blocked) => break,
                Err(e) => panic!("{e}"),
            }
        }
        if !w.step(until) {
            break; // Nothing more happens until then.
        }
        most = most.max(w.ends[0].paths(a)[0].in_flight);
        if reads {
            got += w.read(1, b).iter().map(|m| m.payload.len()).sum::<usize>();
        }
    }
    (got, most)
}

#[test]
fn a_long_fast_path_is_filled_beyond_the_first_buffers() {
    // 50 Mbit/s and 400 ms: 2.5 MB are under way, and as much may wait.
    let link = LinkConfig::rate(50_000_000, ms(200)).with_queue(QueueLimit::Packets(1700));
    let mut w = World::new(1, AssociationConfig::default(), link.clone());
    let ids = w.established();
    let (_, most) = bulk(&mut w, ids, Duration::from_secs(6), true);
    assert!(most > 2_000_000, "{most} bytes were in flight at most");
    let (got, _) = bulk(&mut w, ids, Duration::from_secs(2), true);
    assert!(got > 10_000_000, "{got} bytes in 2 s");
    // An application that takes nothing is sent no more than the first buffer holds.
    let mut w = World::new(2, AssociationConfig::default(), link);
    let ids = w.established();
    let (_, most) = bulk(&mut w, ids, Duration::from_secs(6), false);
    assert!(most <= u64::from(INITIAL_BUFFER) * 11 / 10, "{most} bytes for who does not read");
    assert!(w.ends[0].buffered(ids[0]) <= 3 * INITIAL_BUFFER as usize);
}
