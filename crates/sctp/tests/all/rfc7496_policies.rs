//! RFC 3758 from the sender's side, RFC 7496 and RFC 7053: when messages are given up, how the peer
//! is notified, and what asks for an acknowledgment at once.

use crate::support::ms;
use crate::support::raw::{FIRST, Raw, data};
use crate::support::watch::{datas, each, reports};
use core::time::Duration;
use neater_cc::InitialWindow;
use neater_sctp::{AssociationConfig, Burst, Event, Extensions, MessageId, Reliability, SendError, SendOptions};
use neater_sctp_wire::chunk::{Data, ForwardTsn, IData, IForwardTsn};
use neater_sctp_wire::parameter::{ForwardTsnSupported, SupportedExtensions};
use neater_sctp_wire::{Chunk, Parameters, StreamId, Tsn};

const WIDE: u32 = 1_000_000;

fn connected_with(interleaving: bool, change: impl FnOnce(&mut AssociationConfig)) -> Raw {
    let mut config = AssociationConfig {
        extensions: Extensions { partial_reliability: true, interleaving, ..Extensions::NONE },
        heartbeat_interval: None,
        ..AssociationConfig::rfc9260()
    };
    change(&mut config);
    let kinds = [IData::KIND, ForwardTsn::KIND, IForwardTsn::KIND];
    let list = [ForwardTsnSupported.into(), SupportedExtensions(&kinds).into()];
    Raw::connected_with(config, Parameters::new(if interleaving { &list } else { &list[..1] }))
}

fn connected(interleaving: bool) -> Raw {
    connected_with(interleaving, |_| {})
}

fn send(raw: &mut Raw, stream: u16, len: usize, reliability: Reliability, unordered: bool) -> MessageId {
    let options = SendOptions { reliability, unordered, ..SendOptions::default() };
    raw.server.send(raw.id.unwrap(), StreamId(stream), vec![stream as u8; len].into(), options).unwrap()
}

/// A FORWARD TSN or I-FORWARD-TSN chunk: the number of the chunk that it moves to, and per stream
/// what is skipped.
type Forward = (u32, Vec<(u16, bool, u32)>);

fn forwards(initial: Tsn, packets: &[Vec<u8>]) -> Vec<Forward> {
    let mut found = Vec::new();
    let number = |tsn: u32| tsn.wrapping_sub(initial.0).wrapping_add(1);
    each(packets, |_, chunk| match chunk {
        Chunk::ForwardTsn(f) => {
            let list = f.skipped.iter().map(|s| (s.stream.0, false, u32::from(s.ssn.0))).collect();
            found.push((number(f.cumulative.0), list));
        }
        Chunk::IForwardTsn(f) => {
            let list = f.skipped.iter().map(|s| (s.stream.0, s.unordered, s.mid.0)).collect();
            found.push((number(f.cumulative.0), list));
        }
        _ => {}
    });
    found
}

fn failed(raw: &mut Raw) -> Vec<(MessageId, bool)> {
    let events = raw.events().into_iter();
    events
        .filter_map(|e| if let Event::Failed { message, sent, .. } = e { Some((message, sent)) } else { None })
        .collect()
}

#[test]
fn rfc3758_3_5_a_message_whose_time_is_over_before_it_was_sent_uses_no_number() {
    let mut raw = connected(false);
    // The window is full of others.
    raw.send(&[1204; 4]);
    raw.take();
    let late = Reliability::Until(raw.now + ms(100));
    let message = send(&mut raw, 3, 500, late, false);
    raw.send(&[10]);
    assert!(raw.wait(ms(200)).is_empty(), "nothing was sent of it: there is nothing to tell");
    assert_eq!(failed(&mut raw), [(message, false)]);
    raw.sack(4, WIDE, &[]);
    let sent = raw.take();
    assert_eq!(datas(&sent).iter().map(|d| (d.stream, d.number)).collect::<Vec<_>>(), [(0, 4)]);
    // And the next on that stream has the number that it would have had.
    send(&mut raw, 3, 10, Reliability::Full, false);
    assert_eq!(datas(&raw.take())[0].number, 0);
}

#[test]
fn rfc3758_3_5_what_was_sent_and_is_given_up_is_skipped_and_named() {
    for interleaving in [false, true] {
        let mut raw = connected(interleaving);
        let late = Reliability::Until(raw.now + ms(100));
        let first = send(&mut raw, 3, 100, late, false);
        let second = send(&mut raw, 5, 100, late, true);
        send(&mut raw, 7, 100, Reliability::Full, false);
        assert_eq!(raw.sent(), [1, 2, 3]);
        let told = raw.wait(ms(200));
        assert_eq!(failed(&mut raw), [(first, true), (second, true)]);
        // C4: unordered messages are not named; with message identifiers they are (RFC 8260 section
        // 2.3.1).
        let named: Vec<_> = if interleaving { vec![(3, false, 0), (5, true, 0)] } else { vec![(3, false, 0)] };
        assert_eq!(forwards(raw.initial, &told), [(2, named)], "interleaving {interleaving}");
        // The peer has moved on, and got the third.
        raw.sack(3, WIDE, &[]);
        assert!(forwards(raw.initial, &raw.wait(Duration::from_secs(10))).is_empty());
        assert_eq!((raw.server.buffered(raw.id.unwrap()), raw.path().in_flight), (0, 0));
        assert_eq!(raw.stats().abandoned, 2);
    }
}

#[test]
fn rfc3758_3_5_what_was_given_up_opens_no_window() {
    let mut raw = connected(false);
    let before = raw.path().window;
    let late = Reliability::Until(raw.now + ms(100));
    send(&mut raw, 7, 100, Reliability::Full, false);
    // More than the window takes; all but the first are given up.
    for _ in 0..6 {
        send(&mut raw, 3, 1204, late, false);
    }
    let sent = raw.sent().len() as u32;
    raw.wait(ms(200));
    raw.sack(sent, WIDE, &[]);
    let grown = raw.path().window - before;
    assert!((1..300).contains(&grown), "{grown}: more than what has arrived");
}

/// Stream sequence numbers have 16 bits: a peer takes those that are more than 32,767 ahead for
/// old. Giving up this many at once must not look through all that is outstanding for each of them,
/// either (that took half a minute).
#[test]
fn rfc3758_3_5_more_messages_than_a_sequence_number_tells_apart_are_skipped_in_two_steps() {
    const MANY: u32 = 40_000;
    for interleaving in [false, true] {
        for expire in [true, false] {
            let mut raw = connected_with(interleaving, |c| {
                c.max_messages = MANY as usize;
                c.recovery.initial_window = InitialWindow::Bytes(2_000_000);
                c.recovery.burst = Burst::Packets(u32::from(u16::MAX));
            });
            let until = Reliability::Until(raw.now + ms(100));
            for _ in 0..MANY {
                send(&mut raw, 1, 1, if expire { until } else { Reliability::Retransmissions(0) }, false);
            }
            assert_eq!(raw.sent().len() as u32, MANY);
            let told = raw.wait(ms(if expire { 200 } else { 1500 }));
            assert_eq!(failed(&mut raw).len() as u32, MANY);
            let told = forwards(raw.initial, &told);
            if interleaving {
                assert_eq!(told, [(MANY, vec![(1, false, MANY - 1)])], "message identifiers have 32 bits");
                continue;
            }
            let step = (1 << 15) - 1;
            assert_eq!(told, [(step, vec![(1, false, step - 1)])]);
            raw.sack(step, WIDE, &[]);
            let told = raw.take();
            assert_eq!(forwards(raw.initial, &told), [(MANY, vec![(1, false, MANY - 1)])]);
        }
    }
}

#[test]
fn rfc3758_3_5_the_point_stops_below_what_is_still_wanted() {
    let mut raw = connected(false);
    let late = Reliability::Until(raw.now + ms(100));
    send(&mut raw, 1, 100, late, false);
    send(&mut raw, 2, 100, Reliability::Full, false);
    send(&mut raw, 3, 100, late, false);
    raw.take();
    let told = raw.wait(ms(200));
    assert_eq!(forwards(raw.initial, &told), [(1, vec![(1, false, 0)])], "the second is in the way");
    // It arrives: now the third is skipped, too.
    raw.sack(2, WIDE, &[]);
    let told = raw.take();
    assert_eq!(forwards(raw.initial, &told), [(3, vec![(3, false, 0)])]);
}

#[test]
fn rfc3758_3_5_a_forward_tsn_that_is_lost_is_sent_again_by_the_timer() {
    let mut raw = connected(false);
    let late = Reliability::Until(raw.now + ms(100));
    send(&mut raw, 1, 100, late, false);
    raw.take();
    assert_eq!(forwards(raw.initial, &raw.wait(ms(150))).len(), 1);
    // No answer comes: T3-rtx repeats it (C5), with the doubling of a timeout.
    let again = raw.wait(Duration::from_secs(8));
    let again = forwards(raw.initial, &again);
    assert!((2..=4).contains(&again.len()) && again.iter().all(|f| f.0 == 1), "{again:?}");
    assert!(raw.path().errors >= 2);
    raw.sack(1, WIDE, &[]);
    assert_eq!(raw.path().errors, 0, "the peer is there");
    assert!(raw.wait(Duration::from_secs(10)).is_empty());
}

#[test]
fn rfc3758_f2_a_peer_that_keeps_missing_it_is_told_once_in_a_round_trip() {
    let mut raw = connected(false);
    // A round trip of 100 ms is known.
    for count in 1..=6 {
        raw.send(&[10]);
        raw.take();
        raw.now += ms(100);
        raw.sack(count, WIDE, &[]);
    }
    raw.events();
    let late = Reliability::Until(raw.now + ms(50));
    send(&mut raw, 1, 100, late, false);
    raw.send(&[10; 8]);
    raw.take();
    let mut told = forwards(raw.initial, &raw.wait(ms(60))).len();
    assert_eq!(told, 1);
    for last in 8..=15 {
        raw.sack(6, WIDE, &[(8, last)]);
        let packets = raw.take();
        told += forwards(raw.initial, &packets).len();
    }
    assert_eq!(told, 1, "eight reports within a round trip");
    raw.now += ms(120);
    raw.sack(6, WIDE, &[(8, 15)]);
    let packets = raw.take();
    assert_eq!(forwards(raw.initial, &packets).len(), 1);
}

#[test]
fn rfc7496_3_1_so_many_retransmissions_and_no_more() {
    for most in 0..=2u32 {
        let mut raw = connected(false);
        let message = send(&mut raw, 1, 100, Reliability::Retransmissions(most), false);
        let mut sent = raw.sent().len() as u32;
        let packets = raw.wait(Duration::from_secs(20));
        sent += datas(&packets).len() as u32;
        assert_eq!(sent, 1 + most);
        assert_eq!(failed(&mut raw), [(message, true)]);
        assert!(!forwards(raw.initial, &packets).is_empty());
    }
}

#[test]
fn rfc7496_3_1_a_fragment_that_is_lost_too_often_ends_the_whole_message() {
    let mut raw = connected(false);
    let message = send(&mut raw, 1, 4000, Reliability::Retransmissions(0), false);
    send(&mut raw, 1, 100, Reliability::Full, false);
    // Four fragments and the next message; the second fragment is missing.
    assert_eq!(raw.sent(), [1, 2, 3, 4, 5]);
    raw.sack(1, WIDE, &[]);
    for last in 3..=5 {
        raw.sack(1, WIDE, &[(3, last)]);
    }
    let packets = raw.take();
    assert_eq!(failed(&mut raw), [(message, true)]);
    assert!(datas(&packets).is_empty(), "nothing is sent again: {:?}", datas(&packets));
    assert_eq!(forwards(raw.initial, &packets), [(4, vec![(1, false, 0)])]);
}

#[test]
fn rfc7496_3_2_when_room_is_needed_the_least_important_go_first() {
    let mut raw = connected_with(false, |c| c.send_buffer = 20_000);
    // The peer has no room: nothing leaves.
    raw.send(&[100]);
    raw.take();
    raw.sack(1, 0, &[]);
    let ids: Vec<MessageId> =
        [9, 3, 7].into_iter().map(|p| send(&mut raw, 1, 6000, Reliability::Priority(p), false)).collect();
    assert!(failed(&mut raw).is_empty());
    // 9 is the least important that is less important than 5; then 7.
    send(&mut raw, 2, 6000, Reliability::Priority(5), false);
    assert_eq!(failed(&mut raw), [(ids[0], false)]);
    send(&mut raw, 2, 6000, Reliability::Priority(5), false);
    assert_eq!(failed(&mut raw), [(ids[2], false)]);
    // What is as important or more stays, and the new one must wait.
    let options = SendOptions { reliability: Reliability::Priority(5), ..SendOptions::default() };
    let id = raw.id.unwrap();
    assert_eq!(raw.server.send(id, StreamId(2), vec![1; 6000].into(), options), Err(SendError::Blocked));
    assert!(failed(&mut raw).is_empty());
    // A message without a priority displaces no other.
    assert_eq!(raw.server.send(id, StreamId(2), vec![1; 6000].into(), SendOptions::default()), Err(SendError::Blocked));
}

#[test]
fn more_streams_than_a_packet_has_room_for_are_skipped_in_several_steps() {
    for interleaving in [false, true] {
        let mut raw = connected_with(interleaving, |c| {
            c.recovery.initial_window = neater_cc::InitialWindow::Bytes(1_000_000);
            c.recovery.burst = neater_sctp::Burst::Unlimited;
        });
        // The client takes 100 streams. An entry for each fits into a packet with SSNs, of which
        // there is one kind; with message identifiers there are twice as many, of twice the size.
        let late = Reliability::Until(raw.now + ms(100));
        for stream in 0..100 {
            for n in 0..4 {
                send(&mut raw, stream, 10, late, interleaving && n % 2 == 1);
            }
        }
        assert_eq!(raw.sent().len(), 400);
        let packets = raw.wait(ms(150));
        assert!(packets.iter().all(|p| p.len() <= 1232));
        let mut told = forwards(raw.initial, &packets);
        assert_eq!(failed(&mut raw).len(), 400);
        let last = |told: &[Forward]| told.last().map_or(0, |f| f.0);
        if interleaving {
            assert!(last(&told) < 400, "not all of it fits: {}", last(&told));
            for _ in 0..3 {
                raw.now += ms(20);
                raw.sack(last(&told), WIDE, &[]);
                let packets = raw.take();
                told.extend(forwards(raw.initial, &packets));
            }
        }
        assert_eq!(last(&told), 400);
        let named: std::collections::BTreeMap<(u16, bool), u32> =
            told.iter().flat_map(|f| &f.1).map(|(s, u, n)| ((*s, *u), *n)).collect();
        assert_eq!(named.len(), if interleaving { 200 } else { 100 });
        let number = if interleaving { 1 } else { 3 };
        assert!(named.values().all(|n| *n == number), "each with its last message: {named:?}");
    }
}

#[test]
fn rfc7053_the_last_fragment_asks_and_a_receiver_answers_at_once() {
    let mut raw = Raw::connected(AssociationConfig::rfc9260());
    let immediate = SendOptions { immediate: true, ..SendOptions::default() };
    raw.server.send(raw.id.unwrap(), StreamId(0), vec![1; 3000].into(), immediate).unwrap();
    raw.send(&[10]);
    let asks: Vec<bool> = datas(&raw.take()).iter().map(|d| d.immediate).collect();
    assert_eq!(asks, [false, false, true, false]);
    // Section 5.2: the receiver does not wait.
    raw.chunk(&Data { immediate: true, ..data(FIRST, true, true, b"x") });
    assert_eq!(reports(&raw.take()).len(), 1);
    raw.chunk(&Data { unordered: true, ..data(FIRST + 1, true, true, b"x") });
    assert!(reports(&raw.take()).is_empty(), "and without it waits");
}

#[test]
fn rfc7053_4_1_in_shutdown_pending_every_chunk_asks() {
    let mut raw = Raw::connected(AssociationConfig::rfc9260());
    raw.send(&[1204; 6]);
    assert!(datas(&raw.take()).iter().all(|d| !d.immediate));
    let (now, id) = (raw.now, raw.id.unwrap());
    raw.server.shutdown(now, id);
    raw.sack(4, WIDE, &[]);
    let rest = datas(&raw.take());
    assert_eq!((rest.len(), rest.iter().all(|d| d.immediate)), (2, true));
}

#[test]
fn rfc8260_2_1_every_message_has_an_identifier_of_its_stream_and_kind() {
    let mut raw = connected(true);
    send(&mut raw, 1, 10, Reliability::Full, false);
    send(&mut raw, 1, 10, Reliability::Full, true);
    send(&mut raw, 1, 10, Reliability::Full, false);
    send(&mut raw, 2, 10, Reliability::Full, true);
    send(&mut raw, 1, 10, Reliability::Full, true);
    let sent = datas(&raw.take());
    let numbers: Vec<_> = sent.iter().map(|d| (d.stream, d.unordered, d.number)).collect();
    for wanted in [(1, false, 0), (1, true, 0), (1, false, 1), (2, true, 0), (1, true, 1)] {
        assert!(numbers.contains(&wanted), "{wanted:?}: {numbers:?}");
    }
}

#[test]
fn rfc8260_2_3_1_without_i_forward_tsn_interleaving_excludes_giving_up_what_we_send() {
    // What Linux (6.1) declares: I-DATA, and partial reliability, and not I-FORWARD-TSN.
    let config = AssociationConfig {
        extensions: Extensions { partial_reliability: true, interleaving: true, ..Extensions::NONE },
        heartbeat_interval: None,
        ..AssociationConfig::rfc9260()
    };
    let kinds = [IData::KIND, ForwardTsn::KIND];
    let list = [ForwardTsnSupported.into(), SupportedExtensions(&kinds).into()];
    let mut raw = Raw::connected_with(config.clone(), Parameters::new(&list));
    let id = raw.id.unwrap();
    let agreed = raw.server.agreed(id).unwrap().0;
    assert!(agreed.interleaving && !agreed.partial_reliability, "{agreed:?}");
    let options = SendOptions { reliability: Reliability::Retransmissions(0), ..SendOptions::default() };
    let refused = raw.server.send(id, StreamId(1), vec![1; 10].into(), options);
    assert_eq!(refused, Err(SendError::NotPartiallyReliable));
    // What it gives up itself is passed over, named or not by the handshake: it sends that chunk.
    let whole = |tsn: u32, mid: u32| IData {
        tsn: Tsn(FIRST + tsn),
        stream: StreamId(1),
        mid: neater_sctp_wire::Mid(mid),
        part: neater_sctp_wire::chunk::Part::First(neater_sctp_wire::Ppid(0)),
        immediate: false,
        unordered: false,
        ending: true,
        payload: b"x",
    };
    raw.chunk(&whole(1, 1));
    assert!(raw.read().is_empty());
    let skipped = [neater_sctp_wire::chunk::SkippedMessage {
        stream: StreamId(1),
        unordered: false,
        mid: neater_sctp_wire::Mid(0),
    }];
    raw.chunk(&IForwardTsn { cumulative: Tsn(FIRST), skipped: neater_sctp_wire::Array::new(&skipped) });
    assert_eq!((raw.read().len(), raw.closed()), (1, None));
    // Without interleaving FORWARD TSN is enough.
    let config = AssociationConfig { extensions: Extensions { interleaving: false, ..config.extensions }, ..config };
    let raw = Raw::connected_with(config, Parameters::new(&list));
    assert!(raw.server.agreed(raw.id.unwrap()).unwrap().0.partial_reliability);
}

#[test]
fn nothing_is_given_up_for_a_message_that_would_not_fit_all_the_same() {
    let mut raw = connected_with(false, |c| c.send_buffer = 20_000);
    raw.send(&[100]);
    raw.take();
    raw.sack(1, 0, &[]);
    send(&mut raw, 1, 12_000, Reliability::Full, false);
    send(&mut raw, 1, 6000, Reliability::Priority(9), false);
    let options = SendOptions { reliability: Reliability::Priority(5), ..SendOptions::default() };
    let id = raw.id.unwrap();
    assert_eq!(raw.server.send(id, StreamId(2), vec![1; 9000].into(), options), Err(SendError::Blocked));
    assert!(failed(&mut raw).is_empty());
    assert!(raw.server.send(id, StreamId(2), vec![1; 7000].into(), options).is_ok());
    assert_eq!(failed(&mut raw).len(), 1);
}

#[test]
fn a_message_larger_than_the_buffer_goes_when_everything_less_important_is_gone() {
    let mut raw = connected_with(false, |c| c.send_buffer = 20_000);
    raw.send(&[100]);
    raw.take();
    raw.sack(1, 0, &[]);
    send(&mut raw, 1, 6000, Reliability::Priority(9), false);
    let options = SendOptions { reliability: Reliability::Priority(5), ..SendOptions::default() };
    let id = raw.id.unwrap();
    assert!(raw.server.send(id, StreamId(2), vec![1; 30_000].into(), options).is_ok());
    assert_eq!(failed(&mut raw).len(), 1);
}

#[test]
fn what_may_be_sent_once_is_not_sent_again_into_a_closed_window() {
    let mut raw = connected_with(false, |_| {});
    for _ in 0..3 {
        send(&mut raw, 1, 100, Reliability::Retransmissions(0), false);
    }
    assert_eq!(raw.sent(), [1, 2, 3]);
    raw.wait(ms(50));
    // Nothing of it has arrived, and there is no room for it.
    raw.sack(0, 0, &[]);
    let packets = raw.wait(Duration::from_secs(10));
    assert!(datas(&packets).is_empty(), "{:?}", datas(&packets));
    assert!(!failed(&mut raw).is_empty() && !forwards(raw.initial, &packets).is_empty());
}
