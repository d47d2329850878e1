//! RFC 9260 sections 6.1, 6.3, 6.9 and 6.10: what is sent when, and how it is cut and bundled,
//! towards a peer made by hand.

use crate::support::ms;
use crate::support::raw::{FIRST, Raw, data};
use crate::support::watch::{all_kinds, datas, reports};
use core::time::Duration;
use neater_sctp::{
    AssociationConfig, CloseReason, Event, LayerId, MessageId, PathState, Route, RtoConfig, SendError, SendOptions,
};
use neater_sctp_wire::chunk::{Abort, Data, Heartbeat, HeartbeatAck, Sack, Shutdown, ShutdownComplete};
use neater_sctp_wire::{Causes, Chunk, Ssn, StreamId, Tag};

/// The largest payload of a DATA chunk: 1,280 bytes of IPv6, less 48 for IP and UDP, 12 and 16.
const FULL: usize = 1204;
const WIDE: u32 = 1_000_000;

fn connected() -> Raw {
    Raw::connected(AssociationConfig::rfc9260())
}

/// A message that waits for no other.
fn note(tsn: u32, payload: &[u8]) -> Data<'_> {
    Data { unordered: true, ..data(tsn, true, true, payload) }
}

#[test]
fn rule_a_no_more_is_under_way_than_the_peer_has_room_for() {
    let mut raw = connected();
    raw.send(&[100]);
    assert_eq!(raw.sent(), [1]);
    // The peer has room for two and a half.
    raw.sack(1, 2500, &[]);
    raw.send(&[1000; 6]);
    assert_eq!(raw.sent(), [2, 3]);
    // What is under way counts against the advertised window (section 6.2.1).
    raw.sack(2, 2500, &[]);
    assert_eq!(raw.sent(), [4]);
    raw.sack(4, 1000, &[]);
    assert_eq!(raw.sent(), [5]);
    raw.sack(5, 999, &[]);
    assert_eq!(raw.sent(), [0; 0], "a chunk is not cut to fill a window");
    raw.sack(5, WIDE, &[]);
    assert_eq!(raw.sent(), [6, 7]);
}

#[test]
fn rule_a_one_chunk_may_probe_a_window_of_zero_and_only_when_nothing_is_under_way() {
    let mut raw = connected();
    raw.send(&[100]);
    raw.take();
    raw.sack(1, 0, &[]);
    raw.send(&[1000; 3]);
    assert_eq!(raw.sent(), [0; 0]);
    let sent = datas(&raw.wait(Duration::from_secs(3)));
    assert!(!sent.is_empty() && sent.iter().all(|d| d.tsn == sent[0].tsn), "the same chunk, again and again: {sent:?}");
    // It had no room for the probe, and reports that; then it has.
    raw.sack(1, 0, &[]);
    raw.sack(1, WIDE, &[]);
    raw.wait(ms(10));
    raw.sack(4, WIDE, &[]);
    assert_eq!(raw.server.buffered(raw.id.unwrap()), 0);
}

#[test]
fn rule_a_a_probe_that_is_answered_says_nothing_of_the_path_and_one_that_is_not_does() {
    for (answering, config) in [
        (true, AssociationConfig::default()),
        (true, AssociationConfig::rfc9260()),
        (false, AssociationConfig::rfc9260()),
    ] {
        let mut raw = Raw::connected(config);
        raw.send(&[100]);
        raw.take();
        raw.wait(ms(50));
        raw.sack(1, 0, &[]);
        raw.send(&[1000; 3]);
        let before = raw.path();
        let (mut probes, mut most) = (0, 0);
        for _ in 0..400 {
            let sent = datas(&raw.wait(ms(100))).len();
            probes += sent;
            if sent > 0 && answering {
                probes += datas(&raw.wait(ms(30))).len();
                raw.sack(1, 0, &[]);
            }
            most = most.max(raw.path().errors);
        }
        let after = raw.path();
        if answering {
            let same = (before.window, before.threshold, before.room) == (after.window, after.threshold, after.room);
            assert!(same && most == 0, "{before:?} {after:?} {most}");
            assert!((4..=10).contains(&probes), "later each time: {probes}");
            // It opens, and everything goes at once.
            raw.sack(1, WIDE, &[]);
            assert_eq!(raw.sent(), [2, 3, 4]);
        } else {
            assert!(most >= 3 && after.window < before.window, "{before:?} {after:?} {most}");
        }
    }
}

/// What was under way when the window closed probes it as well: one chunk at a time, and neither
/// path nor peer is blamed.
#[test]
fn rule_a_what_was_under_way_when_the_window_closed_is_no_loss_as_long_as_the_peer_answers() {
    for config in [AssociationConfig::default(), AssociationConfig::rfc9260()] {
        // This peer does not answer heartbeats.
        let mut raw = Raw::connected(AssociationConfig { heartbeat_interval: None, ..config });
        raw.send(&[100]);
        raw.take();
        raw.wait(ms(50));
        raw.sack(1, WIDE, &[]);
        raw.send(&[1000; 3]);
        assert_eq!(raw.sent(), [2, 3, 4]);
        raw.wait(ms(50));
        raw.sack(1, 0, &[]);
        let (before, mut most, mut probes) = (raw.path(), 0, 0);
        for _ in 0..3000 {
            let sent = datas(&raw.wait(ms(100))).len();
            probes += sent;
            assert!(sent <= 1, "one at a time");
            if sent > 0 {
                raw.wait(ms(30));
                raw.sack(1, 0, &[]);
            }
            most = most.max(raw.path().errors);
        }
        let after = raw.path();
        let same = (before.window, before.threshold, before.room) == (after.window, after.threshold, after.room);
        assert!(same && most == 0, "{before:?} {after:?} {most}");
        assert!((5..=20).contains(&probes), "later each time: {probes}");
        assert_eq!(raw.closed(), None);
        raw.wait(Duration::from_secs(1));
        raw.sack(1, WIDE, &[]);
        assert_eq!(raw.sent(), [2, 3, 4], "it opens, and everything goes at once");
    }
}

#[test]
fn what_a_closed_window_waits_for_is_no_probe_and_goes_again_as_after_any_timeout() {
    // By time as well: an answer to something that was sent again is no evidence about it when it
    // comes quicker than any before.
    for config in [AssociationConfig::rfc9260(), AssociationConfig::default()] {
        let mut raw = Raw::connected(config);
        raw.send(&[4; 100]);
        raw.take();
        // The window is full of what waits for the first thirty, and they were lost, a second time
        // too.
        raw.wait(ms(50));
        raw.sack(0, 0, &[(31, 100)]);
        let mut missing: Vec<u32> = (1..=30).collect();
        let mut flights = 0;
        for _ in 0..100 {
            let sent = raw.wait(ms(100));
            let numbers: Vec<u32> = datas(&sent).iter().map(|d| d.tsn - raw.initial.0 + 1).collect();
            assert!(numbers.iter().all(|n| *n <= 30), "the window is closed: {numbers:?}");
            if numbers.is_empty() {
                continue;
            }
            flights += 1;
            missing.retain(|n| flights == 1 || !numbers.contains(n));
            let Some(first) = missing.first() else { break };
            raw.wait(ms(10));
            raw.sack(first - 1, 0, &[(31, 100)]);
        }
        assert!(missing.is_empty(), "{missing:?} after {flights} flights in ten seconds");
    }
}

#[test]
fn rule_b_and_d_the_first_flight_is_the_initial_window_and_one_packet_may_go_beyond_it() {
    let mut raw = connected();
    raw.send(&[FULL; 20]);
    let window = raw.path().window;
    assert_eq!(window, 4380, "min(4 * PMDCS, max(2 * PMDCS, 4380)): specs/exceptions says why not 4404");
    let sent = raw.sent();
    assert_eq!(sent, [1, 2, 3, 4], "three fit, and the window was not full yet");
    assert_eq!(raw.path().in_flight, 4 * (FULL as u64 + 16));
    assert_eq!(raw.sent(), [0; 0]);
}

#[test]
fn rule_c_what_is_lost_goes_before_what_is_new() {
    let mut raw = connected();
    raw.send(&[FULL; 20]);
    assert_eq!(raw.sent(), [1, 2, 3, 4]);
    for last in 2..=4 {
        raw.sack(0, WIDE, &[(2, last)]);
    }
    let sent = raw.sent();
    assert_eq!(sent.first(), Some(&1), "{sent:?}");
    assert!(sent[1..].iter().all(|n| *n > 4), "{sent:?}");
}

#[test]
fn section_6_2_the_window_shrinks_with_what_is_not_read_and_reading_opens_it() {
    let config = AssociationConfig { receive_buffer: 10_000, ..AssociationConfig::rfc9260() };
    let mut raw = Raw::connected(config);
    for i in 0..8u32 {
        raw.chunk(&note(FIRST + i, &[i as u8; 1000]));
    }
    let last = reports(&raw.wait(Duration::from_secs(1))).pop().unwrap();
    assert!(last.window <= 2000, "{last:?}");
    // One more fits; a peer that goes on beyond its window is answered with 0, and what does not
    // fit is not acknowledged.
    for i in 8..12u32 {
        raw.chunk(&note(FIRST + i, &[i as u8; 1000]));
    }
    let last = reports(&raw.wait(Duration::from_secs(1))).pop().unwrap();
    assert_eq!(last.window, 0);
    assert!(last.cumulative < FIRST + 11 && raw.stats().dropped > 0, "{last:?}");
    let had = raw.read().len() as u32;
    let opened = reports(&raw.take()).pop().expect("section 6.2: the peer is told that there is room again");
    assert_eq!((opened.window, opened.cumulative), (10_000, FIRST + had - 1));
}

#[test]
fn section_6_2_more_gaps_than_a_packet_has_room_for_are_named_from_the_first_on() {
    let mut raw = connected();
    for i in 0..500u32 {
        raw.chunk(&note(FIRST + 2 * i + 1, b"x"));
        if i < 499 {
            raw.take();
        }
    }
    let sent = raw.take();
    assert!(sent.iter().all(|p| p.len() <= 1232));
    let last = reports(&sent).pop().unwrap();
    assert_eq!(last.cumulative, FIRST - 1);
    assert_eq!(last.gaps.len(), (1232 - 12 - 16) / 4);
    for (i, gap) in last.gaps.iter().enumerate() {
        let at = 2 * i as u16 + 2;
        assert_eq!(*gap, (at, at));
    }
}

#[test]
fn section_6_2_what_fills_the_first_hole_is_taken_however_full_the_buffer_is() {
    let mut raw = Raw::connected(AssociationConfig { receive_buffer: 16_384, ..AssociationConfig::rfc9260() });
    const LAST: u32 = 700;
    let give = |raw: &mut Raw, i: u32| {
        raw.chunk(&Data { ssn: Ssn(i as u16), ..data(FIRST + i, true, true, b"x") });
        raw.take();
    };
    // Each is charged with what it costs to keep it, of which the sender, which counts the payload,
    // knows nothing. From the back: all of them fill holes.
    for i in (1..=LAST).rev() {
        give(&mut raw, i);
    }
    let dropped = raw.stats().dropped;
    assert!(dropped > 0 && raw.read().is_empty());
    give(&mut raw, 0);
    assert_eq!((raw.stats().dropped, raw.read().len()), (dropped, 1), "the first is taken, and delivered");
    let mut got = 1;
    for i in 1..=LAST {
        give(&mut raw, i);
        got += raw.read().len() as u32;
    }
    assert_eq!((got, raw.stats().dropped), (LAST + 1, dropped));
}

#[test]
fn section_6_2_copies_are_named_with_the_next_sack_and_not_again() {
    let mut raw = connected();
    raw.chunk(&note(FIRST, b"x"));
    raw.wait(Duration::from_secs(1));
    for _ in 0..3 {
        raw.chunk(&note(FIRST, b"x"));
    }
    let named = reports(&raw.take()).pop().unwrap();
    assert_eq!(named.duplicates, [FIRST; 3], "as often as it came");
    raw.chunk(&note(FIRST + 1, b"y"));
    assert!(reports(&raw.wait(Duration::from_secs(1))).pop().unwrap().duplicates.is_empty());
    // However many: a report is bounded.
    for _ in 0..5000 {
        raw.chunk(&note(FIRST, b"x"));
    }
    let sent = raw.take();
    assert!(sent.iter().all(|p| p.len() <= 1232) && reports(&sent)[0].duplicates.len() > 10);
}

#[test]
fn section_6_2_1_a_block_may_be_said_again_and_blocks_may_overlap_or_come_in_any_order() {
    let mut raw = connected();
    raw.send(&[100; 10]);
    raw.take();
    raw.sack(1, WIDE, &[(7, 8), (3, 5), (4, 7)]);
    assert_eq!(raw.path().in_flight, 3 * 116, "2, 9 and 10");
    assert_eq!(raw.stats().bytes_acknowledged, 700);
    raw.sack(1, WIDE, &[(3, 8)]);
    assert_eq!((raw.path().in_flight, raw.stats().bytes_acknowledged), (348, 700));
    raw.sack(10, WIDE, &[]);
    assert_eq!((raw.path().in_flight, raw.stats().bytes_acknowledged), (0, 1000));
}

#[test]
fn section_6_2_1_a_block_far_beyond_what_was_sent_acknowledges_nothing_more() {
    let mut raw = connected();
    raw.send(&[100; 3]);
    raw.take();
    raw.sack(0, WIDE, &[(3, 60_000)]);
    assert_eq!(raw.path().in_flight, 2 * 116);
    assert_eq!(raw.closed(), None);
    raw.sack(3, WIDE, &[]);
    assert_eq!(raw.server.buffered(raw.id.unwrap()), 0);
}

#[test]
fn section_6_2_1_a_receiver_that_takes_back_what_it_had_gets_it_again() {
    let mut raw = connected();
    raw.send(&[100; 4]);
    raw.take();
    raw.sack(0, WIDE, &[(2, 3)]);
    // The cumulative TSN stops below what a block had reported: the receiver has thrown it away.
    raw.sack(1, WIDE, &[]);
    assert!(raw.path().in_flight >= 116);
    let again = datas(&raw.wait(Duration::from_secs(2)));
    let numbers: Vec<u32> = again.iter().map(|d| d.tsn - raw.initial.0 + 1).collect();
    assert!(numbers.contains(&2) && numbers.contains(&3), "{numbers:?}");
}

/// The retransmission timeout after these round trips of one chunk each.
fn rto_after(rto: RtoConfig, rtts: &[u64]) -> Duration {
    let mut raw = Raw::connected(AssociationConfig { rto, ..AssociationConfig::rfc9260() });
    for (i, rtt) in rtts.iter().enumerate() {
        raw.send(&[10]);
        raw.take();
        raw.now += ms(*rtt);
        raw.sack(i as u32 + 1, WIDE, &[]);
    }
    raw.path().rto
}

#[test]
fn section_6_3_1_the_timeout_follows_the_round_trips_within_its_bounds() {
    // The handshake of a peer made by hand takes no time: SRTT 0 and RTTVAR 1 ms, the granularity
    // (G1).
    let rto = RtoConfig { initial: ms(1000), min: ms(1), max: ms(700) };
    let near = |a: Duration, b: f64| (a.as_secs_f64() * 1000.0 - b).abs() < 0.5;
    // C3: RTTVAR = 3/4 RTTVAR + 1/4 |SRTT - R|, then SRTT = 7/8 SRTT + 1/8 R; RTO = SRTT + 4
    // RTTVAR.
    let (mut srtt, mut var) = (0.0f64, 1.0f64);
    let rtts = [80, 100, 60, 90];
    for n in 1..=rtts.len() {
        let r = rtts[n - 1] as f64;
        var = (0.75 * var + 0.25 * (srtt - r).abs()).max(1.0);
        srtt = 0.875 * srtt + 0.125 * r;
        let got = rto_after(rto, &rtts[..n]);
        assert!(near(got, srtt + 4.0 * var), "{n}: {got:?}, {srtt} {var}");
    }
    // C6 and C7.
    assert_eq!(rto_after(RtoConfig { min: ms(1000), max: ms(5000), ..rto }, &[80]), ms(1000));
    assert_eq!(rto_after(rto, &[690, 690]), ms(700));
}

#[test]
fn section_6_3_1_c5_what_was_sent_twice_does_not_measure() {
    let rto = RtoConfig { initial: ms(1000), min: ms(200), max: ms(60_000) };
    let mut raw = Raw::connected(AssociationConfig { rto, ..AssociationConfig::rfc9260() });
    raw.send(&[10]);
    raw.take();
    let before = raw.path();
    raw.wait(before.rto + ms(1));
    assert_eq!(raw.stats().retransmissions, 1);
    raw.sack(1, WIDE, &[]);
    assert_eq!(raw.path().srtt, before.srtt, "Karn");
    assert_eq!(raw.path().rto, 2 * before.rto, "the doubling stays until something measures");
    raw.send(&[10]);
    raw.take();
    raw.now += ms(20);
    raw.sack(2, WIDE, &[]);
    assert!(raw.path().rto <= before.rto, "C5: {:?}", raw.path().rto);
}

#[test]
fn section_6_3_2_t3_runs_while_anything_is_under_way_and_begins_anew_with_the_earliest() {
    let config = AssociationConfig { heartbeat_interval: None, ..AssociationConfig::rfc9260() };
    let mut raw = Raw::connected(config);
    raw.wait(Duration::from_secs(1));
    assert_eq!(raw.server.next_timeout(), None, "nothing to wait for");
    raw.send(&[100; 3]);
    raw.take();
    let begin = raw.now;
    // R1.
    assert_eq!(raw.server.next_timeout(), Some(begin + ms(1000)));
    // R3: what acknowledges the earliest restarts it; a report of a gap does not.
    raw.now = begin + ms(300);
    raw.sack(0, WIDE, &[(3, 3)]);
    raw.now = begin + ms(400);
    raw.sack(1, WIDE, &[(3, 3)]);
    assert!(raw.wait(ms(950)).is_empty(), "1,350 ms after the beginning");
    raw.sack(1, WIDE, &[(3, 3)]);
    let again = datas(&raw.wait(ms(60)));
    assert_eq!(again.iter().map(|d| d.tsn).collect::<Vec<_>>(), [raw.initial.0.wrapping_add(1)], "at 1,400 ms");
    // R2: when everything is acknowledged it is switched off.
    raw.sack(3, WIDE, &[]);
    assert!(raw.wait(Duration::from_secs(100)).is_empty());
    assert_eq!(raw.server.next_timeout(), None);
}

#[test]
fn section_6_3_3_after_a_timeout_one_packet_goes_and_the_window_is_one() {
    let mut raw = connected();
    raw.send(&[FULL; 12]);
    assert_eq!(raw.sent(), [1, 2, 3, 4]);
    // E1 to E3: all four are marked, and only what fits into one packet goes.
    let sent = raw.wait(ms(1001));
    let numbers: Vec<u32> = datas(&sent).iter().map(|d| d.tsn - raw.initial.0 + 1).collect();
    assert_eq!(numbers, [1]);
    let path = raw.path();
    assert_eq!((path.window, path.errors, path.state), (1220, 1, PathState::Active));
    assert!(path.threshold.unwrap() >= 2 * 1220, "{path:?}");
    assert_eq!(raw.stats().timeouts, 1);
    // The first acknowledgment lets two go: slow start.
    raw.now += ms(20);
    raw.sack(1, WIDE, &[]);
    assert_eq!(raw.sent(), [2, 3]);
}

#[test]
fn section_6_3_3_small_chunks_that_were_lost_are_bundled() {
    let mut raw = connected();
    raw.send(&[100; 8]);
    raw.take();
    let sent = raw.wait(ms(1001));
    assert_eq!((sent.len(), datas(&sent).len()), (1, 8), "E3: as many as fit into one packet");
}

#[test]
fn section_6_9_a_long_message_is_cut_into_chunks_of_consecutive_tsns() {
    let mut raw = connected();
    raw.send(&[100, 3000, 50]);
    let sent = datas(&raw.take());
    let shape: Vec<_> = sent.iter().map(|d| (d.number, d.begins, d.ends)).collect();
    assert_eq!(shape, [(0, true, true), (1, true, false), (1, false, false), (1, false, true), (2, true, true)]);
    assert_eq!(sent[1..4].iter().map(|d| d.len).sum::<usize>(), 3000);
    assert!(sent.windows(2).all(|w| w[1].tsn == w[0].tsn.wrapping_add(1)));
}

#[test]
fn section_6_9_what_must_not_be_cut_is_refused_if_it_would_be() {
    let mut raw = connected();
    let id = raw.id.unwrap();
    let whole = SendOptions { whole: true, ..SendOptions::default() };
    let too_long = raw.server.send(id, StreamId(0), vec![1; FULL + 1].into(), whole);
    assert_eq!(too_long, Err(SendError::TooLong { most: FULL }));
    raw.server.send(id, StreamId(0), vec![1; FULL].into(), whole).unwrap();
    let sent = datas(&raw.take());
    assert_eq!((sent.len(), sent[0].begins && sent[0].ends), (1, true));
}

#[test]
fn section_6_10_control_chunks_stand_before_data_and_small_messages_share_a_packet() {
    let mut raw = connected();
    raw.chunk(&data(FIRST, true, true, b"x"));
    raw.send(&[10; 20]);
    raw.chunk(&Heartbeat { info: b"\0\x01\0\x08abcd" });
    let sent = raw.take();
    let all = all_kinds(&sent);
    let first = all.iter().position(|k| *k == Data::KIND).unwrap();
    assert!(all[..first].contains(&Sack::KIND), "what is owed goes along: {all:?}");
    assert!(all[first..].iter().filter(|k| **k == Data::KIND).count() == 20, "{all:?}");
    assert!(all.contains(&HeartbeatAck::KIND));
    let packets: std::collections::BTreeSet<usize> = datas(&sent).iter().map(|d| d.packet).collect();
    assert_eq!(packets.len(), 1);
}

#[test]
fn section_6_6_numbers_of_a_stream_go_round() {
    let mut raw = connected();
    // 65,535 messages before: ordered delivery goes on over the end of the numbers.
    let mut expected = 0u32;
    for i in 0..65_600u32 {
        let ssn = neater_sctp_wire::Ssn(i as u16);
        raw.chunk(&Data { ssn, ..data(FIRST.wrapping_add(i), true, true, &i.to_be_bytes()) });
        if i % 64 == 63 {
            raw.take();
            for m in raw.read() {
                assert_eq!(m.payload, expected.to_be_bytes());
                expected += 1;
            }
        }
    }
    assert_eq!((expected, raw.closed()), (65_600, None));
}

#[test]
fn section_6_6_unordered_messages_pass_what_waits_and_do_not_use_numbers() {
    let mut raw = connected();
    raw.chunk(&Data { ssn: neater_sctp_wire::Ssn(1), ..data(FIRST + 1, true, true, b"second") });
    raw.chunk(&Data { unordered: true, ..data(FIRST + 2, true, true, b"now") });
    assert_eq!(raw.read().iter().map(|m| m.payload.clone()).collect::<Vec<_>>(), [b"now"]);
    raw.chunk(&data(FIRST, true, true, b"first"));
    assert_eq!(raw.read().iter().map(|m| &m.payload[..]).collect::<Vec<_>>(), [&b"first"[..], b"second"]);
    // And ours have none.
    let (id, unordered) = (raw.id.unwrap(), SendOptions { unordered: true, ..SendOptions::default() });
    raw.send(&[10]);
    raw.server.send(id, StreamId(0), vec![1; 10].into(), unordered).unwrap();
    raw.send(&[10]);
    let sent = datas(&raw.take());
    assert_eq!(sent.iter().filter(|d| !d.unordered).map(|d| d.number).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(sent.iter().filter(|d| d.unordered).count(), 1);
}

#[test]
fn what_was_to_be_reported_is_reported_when_all_of_it_is_acknowledged() {
    let mut raw = connected();
    let (id, report) = (raw.id.unwrap(), SendOptions { report: true, ..SendOptions::default() });
    let long: MessageId = raw.server.send(id, StreamId(0), vec![1; 3000].into(), report).unwrap();
    let short = raw.server.send(id, StreamId(1), vec![1; 10].into(), report).unwrap();
    raw.take();
    let told = |raw: &mut Raw| -> Vec<MessageId> {
        let events = raw.events().into_iter();
        events.filter_map(|e| if let Event::Acknowledged { message } = e { Some(message) } else { None }).collect()
    };
    raw.sack(2, WIDE, &[]);
    assert!(told(&mut raw).is_empty());
    raw.sack(4, WIDE, &[]);
    assert_eq!(told(&mut raw), [long, short]);
}

#[test]
fn section_9_2_a_shutdown_chunk_acknowledges_as_a_sack_does() {
    let mut raw = connected();
    raw.send(&[100; 3]);
    raw.take();
    raw.chunk(&Shutdown { cumulative: raw.initial.plus(1) });
    assert_eq!((raw.path().in_flight, raw.closed()), (116, None));
    raw.chunk(&Shutdown { cumulative: raw.initial.plus(2) });
    assert_eq!(all_kinds(&raw.take()), [8], "SHUTDOWN ACK: everything has arrived");
    raw.chunk(&neater_sctp_wire::chunk::ShutdownComplete { reflected: false });
    assert_eq!(raw.closed(), Some(CloseReason::Shutdown));
}

#[test]
fn behind_a_tag_that_was_sent_back_stands_nothing_else() {
    // Sections 6.10 and 8.5.1 B and C. An attacker that has seen the server's packets alone knows
    // the tag that the client gave, and no other.
    let complete: Chunk<'_> = ShutdownComplete { reflected: true }.into();
    let abort = |reflected| -> Chunk<'_> { Abort { reflected, causes: Causes::EMPTY }.into() };
    let give = |raw: &mut Raw, tag: Tag, chunks: &[Chunk<'_>]| {
        let bytes = crate::support::packet(crate::support::PORTS, tag, chunks);
        let route = Route { layer: LayerId(0), remote: crate::support::address(0, 0) };
        raw.server.handle_packet(raw.now, route, false, &bytes);
    };
    let mut raw = connected();
    give(&mut raw, Tag(7), &[complete, data(FIRST, true, true, b"forged").into()]);
    assert_eq!((raw.read().len(), raw.closed()), (0, None));
    // T belongs to the tag in front of it: with the server's own tag, this is not for the server.
    let tag = raw.tag;
    give(&mut raw, tag, &[data(FIRST, true, true, b"before").into(), abort(true)]);
    assert_eq!((raw.read().len(), raw.closed()), (1, None));
    give(&mut raw, tag, &[data(FIRST + 1, true, true, b"more").into(), abort(false)]);
    assert!(raw.closed().is_some());
    let mut raw = connected();
    give(&mut raw, Tag(7), &[abort(true)]);
    assert!(raw.closed().is_some(), "a peer that has forgotten us");
}
