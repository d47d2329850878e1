//! Partial reliability, interleaving and stream reconfiguration between two associations.

use crate::support::{World, config, ms};
use bytes::Bytes;
use core::time::Duration;
use neater_link::LinkConfig;
use neater_sctp::{
    AssociationConfig, AssociationId, Event, Extensions, Layer, ReconfigError, Reliability, Scheduler, SendError,
    SendOptions,
};
use neater_sctp_wire::{Packet as Wire, StreamId};

fn world(interleaving: bool, scheduler: Scheduler, link: LinkConfig) -> (World, [AssociationId; 2]) {
    let extensions = Extensions { interleaving, ..Extensions::default() };
    let association = AssociationConfig { extensions, scheduler, outbound_streams: 20, ..AssociationConfig::default() };
    let mut w = World::new(1, association, link);
    let ids = w.established();
    w.run(ms(100));
    (w, ids)
}

fn cut(w: &mut World, down: bool) {
    let now = w.now;
    w.links[0][0].set_config(now, LinkConfig::delay(ms(10)).with_down(down));
}

/// None of them is long enough for its beginning to be worth delivering, and together they are more
/// than the buffer holds.
#[test]
fn many_messages_at_once_that_fill_the_receive_buffer_together_go_on() {
    for scheduler in [Scheduler::RoundRobin, Scheduler::FairBandwidth] {
        let association = AssociationConfig { receive_buffer: 100_000, scheduler, ..AssociationConfig::default() };
        let mut w = World::new(1, association, LinkConfig::delay(ms(10)));
        let [a, b] = w.established();
        for stream in 0..16 {
            w.send(0, a, stream, &[stream as u8; 20_000]);
        }
        let (mut got, mut ends) = (std::collections::BTreeMap::<u16, usize>::new(), 0);
        for _ in 0..200 {
            w.run(ms(50));
            for m in w.read(1, b) {
                assert!(m.payload.iter().all(|x| u16::from(*x) == m.stream.0), "parts of one message have its stream");
                *got.entry(m.stream.0).or_default() += m.payload.len();
                ends += usize::from(m.last);
            }
        }
        assert!(got.len() == 16 && got.values().all(|n| *n == 20_000) && ends == 16, "{ends} {got:?}");
    }
}

#[test]
fn an_association_that_ended_with_its_buffer_full_of_beginnings_is_forgotten() {
    let association =
        AssociationConfig { receive_buffer: 100_000, scheduler: Scheduler::RoundRobin, ..AssociationConfig::default() };
    let mut w = World::new(1, association, LinkConfig::delay(ms(10)));
    let [a, b] = w.established();
    for stream in 0..8 {
        w.send(0, a, stream, &[stream as u8; 100_000]);
    }
    w.run(Duration::from_secs(5));
    w.ends[0].abort(a, b"no more");
    w.run(ms(100));
    assert!(w.closed(1).is_some());
    assert!(!w.read(1, b).is_empty());
    w.flush();
    assert_eq!(w.ends[1].kept(), 0, "everything that can be read was");
}

#[test]
fn a_word_is_taken_when_there_is_no_room_for_messages() {
    let association = AssociationConfig { send_buffer: 10_000, ..AssociationConfig::default() };
    let mut w = World::new(1, association, LinkConfig::delay(ms(10)));
    let [a, b] = w.established();
    let send = |w: &mut World| w.ends[0].send(a, StreamId(0), Bytes::from(vec![1; 5000]), SendOptions::default());
    while send(&mut w).is_ok() {}
    assert_eq!(send(&mut w), Err(SendError::Blocked));
    w.ends[0].send_word(a, StreamId(0), Bytes::from_static(b"that was all"), SendOptions::default()).unwrap();
    w.run(Duration::from_secs(2));
    assert_eq!(w.read(1, b).pop().map(|m| m.payload), Some(b"that was all".to_vec()));
    assert!(w.saw(0, &Event::Writable));
}

#[test]
fn a_message_whose_time_is_over_is_given_up_and_the_next_ones_go_on() {
    for interleaving in [false, true] {
        let (mut w, [a, b]) = world(interleaving, Scheduler::FirstCome, LinkConfig::delay(ms(10)));
        cut(&mut w, true);
        let options = SendOptions { reliability: Reliability::Until(w.now + ms(300)), ..SendOptions::default() };
        // Longer than a packet: part of it is sent and lost.
        let late = w.ends[0].send(a, StreamId(1), Bytes::from(vec![1; 50_000]), options).unwrap();
        w.send(0, a, 1, b"after it");
        w.run(ms(400));
        assert!(w.saw(0, &Event::Failed { message: late, stream: StreamId(1), sent: true }));
        cut(&mut w, false);
        w.run(Duration::from_secs(5));
        let got: Vec<_> = w.read(1, b).into_iter().map(|m| m.payload).collect();
        assert_eq!(got, [b"after it".to_vec()], "interleaving: {interleaving}");
        assert_eq!(w.ends[0].buffered(a), 0);
    }
}

#[test]
fn retransmissions_are_limited_for_ordered_and_unordered_messages() {
    for (interleaving, unordered) in [(false, false), (false, true), (true, false), (true, true)] {
        let (mut w, [a, b]) = world(interleaving, Scheduler::FirstCome, LinkConfig::delay(ms(10)));
        let options = SendOptions { reliability: Reliability::Retransmissions(0), unordered, ..SendOptions::default() };
        for i in 0..100u8 {
            cut(&mut w, i % 10 == 3);
            w.ends[0].send(a, StreamId(2), Bytes::from(vec![i; 100]), options).unwrap();
            w.run(ms(15));
        }
        cut(&mut w, false);
        w.run(Duration::from_secs(3));
        let got: Vec<u8> = w.read(1, b).into_iter().map(|m| m.payload[0]).collect();
        let expected: Vec<u8> = (0..100).filter(|i| i % 10 != 3).collect();
        assert_eq!(got, expected, "{interleaving} {unordered}");
        let failed = w.events[0].iter().filter(|(_, e)| matches!(e, Event::Failed { .. })).count();
        assert_eq!(failed, 10);
    }
}

#[test]
fn less_important_messages_make_room() {
    let association = AssociationConfig { send_buffer: 10_000, ..AssociationConfig::default() };
    let mut w = World::new(1, association, LinkConfig::delay(ms(10)));
    let [a, b] = w.established();
    w.run(ms(100));
    cut(&mut w, true);
    let send = |w: &mut World, priority, byte: u8| {
        let options = SendOptions { reliability: Reliability::Priority(priority), ..SendOptions::default() };
        w.ends[0].send(a, StreamId(0), Bytes::from(vec![byte; 3000]), options)
    };
    let low = send(&mut w, 9, 1).unwrap();
    let middle = send(&mut w, 5, 2).unwrap();
    send(&mut w, 5, 3).unwrap();
    send(&mut w, 1, 4).unwrap();
    assert_eq!(send(&mut w, 7, 5), Err(SendError::Blocked), "nothing is less important");
    w.flush();
    assert!(w.events[0].iter().any(|(_, e)| matches!(e, Event::Failed { message, .. } if *message == low)));
    assert!(!w.events[0].iter().any(|(_, e)| matches!(e, Event::Failed { message, .. } if *message == middle)));
    cut(&mut w, false);
    w.run(Duration::from_secs(5));
    assert_eq!(w.read(1, b).iter().map(|m| m.payload[0]).collect::<Vec<_>>(), [2, 3, 4]);
}

#[test]
fn a_short_message_passes_a_long_one_only_with_interleaving() {
    for interleaving in [false, true] {
        let link = LinkConfig::rate(2_000_000, ms(10));
        let (mut w, [a, b]) = world(interleaving, Scheduler::RoundRobin, link);
        w.send(0, a, 0, &[0; 200_000]);
        w.run(ms(50));
        w.send(0, a, 1, b"short");
        let mut order = Vec::new();
        for _ in 0..200 {
            w.run(ms(10));
            order.extend(w.read(1, b).into_iter().map(|m| m.stream.0));
        }
        assert_eq!(order, if interleaving { [1, 0] } else { [0, 1] });
    }
}

/// What is behind a message that was given up waits for FORWARD TSN; one that is lost itself is
/// repeated with a round trip's delay by what the peer answers to later messages (RFC 3758 section
/// 3.5, C3 and F2), and not by a timer that doubles.
#[test]
fn forward_tsn_is_repeated_while_the_peer_shows_that_it_has_not_come() {
    for interleaving in [false, true] {
        let lossy = LinkConfig::delay(ms(10)).with_loss(0.2);
        let (mut w, [a, b]) = world(interleaving, Scheduler::FirstCome, LinkConfig::delay(ms(10)));
        let now = w.now;
        w.links.iter_mut().for_each(|way| way[0].set_config(now, lossy.clone()));
        let options = SendOptions { reliability: Reliability::Retransmissions(0), ..SendOptions::default() };
        let (mut sent, mut waited) = (Vec::new(), Vec::new());
        for i in 0..3000u32 {
            w.ends[0].send(a, StreamId(2), Bytes::copy_from_slice(&i.to_be_bytes()), options).unwrap();
            sent.push(w.now);
            w.run(ms(20));
            for message in w.read(1, b) {
                let number = u32::from_be_bytes(message.payload[..4].try_into().unwrap());
                waited.push(w.now - sent[number as usize]);
            }
        }
        waited.sort_unstable();
        assert!(waited.len() > 2000, "{} of 3000 have come", waited.len());
        let (median, most) = (waited[waited.len() / 2], waited[waited.len() - 1]);
        let late = waited[waited.len() * 99 / 100];
        println!("interleaving {interleaving}: median {median:?}, 99 % {late:?}, most {most:?}");
        assert!(late <= ms(250) && most <= ms(500), "median {median:?}, 99 % {late:?}, most {most:?}");
    }
}

#[test]
fn a_peer_without_partial_reliability_is_not_asked_for_it() {
    let mut w = World::new(1, AssociationConfig::rfc9260(), LinkConfig::delay(ms(10)));
    let [a, _] = w.established();
    let options = SendOptions { reliability: Reliability::Retransmissions(1), ..SendOptions::default() };
    let refused = w.ends[0].send(a, StreamId(0), Bytes::from_static(b"x"), options);
    assert_eq!(refused, Err(SendError::NotPartiallyReliable));
}

#[test]
fn streams_begin_anew_and_messages_that_wait_are_numbered_anew() {
    for interleaving in [false, true] {
        for loss in [0.0, 0.2] {
            let link = LinkConfig::delay(ms(10)).with_loss(loss);
            let (mut w, [a, b]) = world(interleaving, Scheduler::FirstCome, link);
            for round in 0..5u8 {
                w.send(0, a, 3, &[round; 2000]);
                w.send(0, a, 4, &[round; 10]);
                w.ends[0].reset_outgoing(a, &[StreamId(3)]).unwrap();
                assert_eq!(w.ends[0].reset_outgoing(a, &[]), Err(ReconfigError::Busy));
                w.send(0, a, 3, &[100 + round; 20]);
                w.run(Duration::from_secs(30));
                let got: Vec<(u16, u8)> = w.read(1, b).iter().map(|m| (m.stream.0, m.payload[0])).collect();
                let on = |s| got.iter().filter(|(t, _)| *t == s).map(|(_, p)| *p).collect::<Vec<_>>();
                assert_eq!((on(3), on(4)), (vec![round, 100 + round], vec![round]), "{interleaving} {loss}");
            }
            let streams = vec![StreamId(3)];
            assert!(w.saw(0, &Event::OutgoingReset { streams: streams.clone(), done: true }));
            assert!(w.saw(1, &Event::IncomingReset { streams, number: 5 }));
        }
    }
}

/// RFC 6525 section 5.1.2, A1: what is provided from then on waits, and what came before goes
/// before.
#[test]
fn what_was_accepted_before_a_reset_arrives_before_it() {
    for scheduler in [Scheduler::FirstCome, Scheduler::RoundRobin, Scheduler::WeightedFair] {
        for (interleaving, loss, all) in
            [(false, 0.0, false), (true, 0.1, false), (true, 0.0, true), (false, 0.1, true)]
        {
            let case = format!("{scheduler:?} {interleaving} {loss} {all}");
            let (mut w, [a, b]) = world(interleaving, scheduler, LinkConfig::delay(ms(10)).with_loss(loss));
            let streams: Vec<StreamId> = if all { vec![] } else { vec![StreamId(3), StreamId(5)] };
            for n in 0..60u8 {
                w.send(0, a, 3 + u16::from(n % 3), &[n; 3000]);
            }
            w.ends[0].reset_outgoing(a, &streams).unwrap();
            for n in 60..66u8 {
                w.send(0, a, 3 + u16::from(n % 3), &[n; 20]);
            }
            let mut got = Vec::new();
            for _ in 0..300 {
                w.run(ms(100));
                got.extend(w.read(1, b).into_iter().filter(|m| m.first).map(|m| (m.stream.0, m.reset, m.payload[0])));
            }
            for stream in [3, 4, 5] {
                let on: Vec<_> = got.iter().filter(|(s, ..)| *s == stream).map(|(_, reset, n)| (*reset, *n)).collect();
                let of = |n: u8| u32::from(n >= 60 && (all || stream != 4));
                let sent: Vec<_> = (0..66).filter(|n| 3 + u16::from(n % 3) == stream).map(|n| (of(n), n)).collect();
                assert_eq!(on, sent, "{case}, {stream}");
            }
            assert!(w.saw(0, &Event::OutgoingReset { streams: streams.clone(), done: true }), "{case}");
        }
    }
}

/// What goes before a reset is given up: the reset must not wait for ever.
#[test]
fn a_reset_follows_messages_that_are_given_up() {
    let (mut w, [a, _]) = world(true, Scheduler::FirstCome, LinkConfig::delay(ms(10)));
    let until = Reliability::Until(w.now + ms(300));
    for _ in 0..30 {
        let options = SendOptions { reliability: until, ..SendOptions::default() };
        w.ends[0].send(a, StreamId(3), Bytes::from(vec![1; 5000]), options).unwrap();
    }
    cut(&mut w, true);
    w.ends[0].reset_outgoing(a, &[StreamId(3)]).unwrap();
    w.run(ms(400));
    cut(&mut w, false);
    w.run(Duration::from_secs(10));
    assert!(w.saw(0, &Event::OutgoingReset { streams: vec![StreamId(3)], done: true }));
}

#[test]
fn a_peer_can_be_asked_to_reset_and_to_add() {
    let (mut w, [a, b]) = world(true, Scheduler::FirstCome, LinkConfig::delay(ms(10)));
    w.ends[0].reset_incoming(a, &[StreamId(1)]).unwrap();
    w.run(Duration::from_secs(2));
    assert!(w.saw(0, &Event::IncomingReset { streams: vec![StreamId(1)], number: 1 }));
    assert!(w.saw(1, &Event::OutgoingReset { streams: vec![StreamId(1)], done: true }));
    assert_eq!(w.ends[0].streams(a), (20, 20));
    w.ends[0].add_outgoing(a, 5).unwrap();
    w.run(Duration::from_secs(2));
    assert!(w.saw(0, &Event::StreamsAdded { outbound: 25, done: true }));
    assert_eq!((w.ends[0].streams(a), w.ends[1].streams(b)), ((25, 20), (20, 25)));
    w.send(0, a, 24, b"on a new stream");
    w.run(ms(500));
    assert_eq!(w.read(1, b)[0].stream, StreamId(24));
    // Our own limit is 20 outbound streams for what peers ask.
    w.ends[1].add_incoming(b, 100).unwrap();
    w.run(Duration::from_secs(2));
    assert_eq!(w.ends[0].streams(a).0, 25);
    assert_eq!(w.ends[0].add_outgoing(a, u16::MAX), Err(ReconfigError::Streams));
}

#[test]
fn the_checksum_is_left_out_only_over_layers_that_authenticate() {
    for authenticates in [false, true] {
        let configs = [0, 1].map(|end| {
            let mut c = config(end, 1, AssociationConfig::default());
            c.layers = vec![Layer { authenticates, ..crate::support::layer(0, end) }];
            c
        });
        let mut w = World::with(1, configs, vec![LinkConfig::delay(ms(10))]);
        let zero = std::rc::Rc::new(core::cell::Cell::new([0, 0]));
        let log = std::rc::Rc::clone(&zero);
        w.tap = Some(Box::new(move |_, packet| {
            let mut n = log.get();
            let parsed = Wire::parse(&packet.bytes).unwrap();
            n[usize::from(parsed.checksum() == 0)] += 1;
            log.set(n);
            let first = parsed.chunks().next().unwrap().unwrap().kind;
            assert!(parsed.checksum() != 0 || !matches!(first, 1 | 2 | 10), "INIT and COOKIE ECHO have a checksum");
            true
        }));
        let [a, b] = w.established();
        w.send(0, a, 0, b"x");
        w.run(ms(500));
        assert_eq!(w.read(1, b).len(), 1);
        assert_eq!(zero.get()[1] > 0, authenticates);
    }
}
