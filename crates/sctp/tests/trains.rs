//! Packets in trains, and buffers that grow.

mod support;

use bytes::Bytes;
use core::time::Duration;
use neater_link::{LinkConfig, QueueLimit};
use neater_sctp::{AssociationConfig, INITIAL_BUFFER, SendError, SendOptions, Train};
use neater_sctp_wire::{Packet, StreamId, ZeroChecksum};
use support::{World, ms};

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

/// Sends for so long, as fast as it is taken, and returns the bytes that arrived and the most that was in flight.
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
