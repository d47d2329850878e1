//! RFC 9260 section 7: congestion control as the standard has it, acknowledgment by acknowledgment,
//! and RFC 3168 beside it.

use crate::support::ms;
use crate::support::raw::Raw;
use crate::support::watch::{datas, each};
use core::time::Duration;
use neater_sctp::{AssociationConfig, Extensions};
use neater_sctp_wire::chunk::{Cwr, Ecne};
use neater_sctp_wire::parameter::EcnCapable;
use neater_sctp_wire::{Chunk, Parameters};

/// The largest payload of a chunk; with its header, the unit of the window.
const FULL: usize = 1204;
const UNIT: u64 = 1220;
const WIDE: u32 = 10_000_000;
const ROUND: Duration = Duration::from_millis(50);

/// A peer whose round trips take 50 ms, and more to send than will be needed.
fn connected() -> Raw {
    let mut raw = Raw::connected(AssociationConfig { heartbeat_interval: None, ..AssociationConfig::rfc9260() });
    raw.send(&[FULL; 300]);
    raw
}

/// A round trip goes by; then the peer has everything up to this chunk.
fn acknowledge(raw: &mut Raw, count: u32) -> Vec<u32> {
    raw.now += ROUND;
    raw.sack(count, WIDE, &[]);
    raw.sent()
}

#[test]
fn section_7_2_1_in_slow_start_each_sack_adds_what_it_acknowledges_and_at_most_one_packet() {
    let mut raw = connected();
    assert_eq!(raw.sent().len(), 4);
    let begin = raw.path().window;
    // One chunk: one packet more.
    acknowledge(&mut raw, 1);
    assert_eq!(raw.path().window, begin + UNIT);
    // Several at once count as one (L = 1): no reward for a peer that acknowledges seldom.
    acknowledge(&mut raw, 4);
    assert_eq!(raw.path().window, begin + 2 * UNIT);
    assert_eq!(raw.path().threshold, None, "arbitrarily high");
}

#[test]
fn section_7_2_1_acknowledging_a_chunk_in_pieces_does_not_open_the_window() {
    // Savage et al.: SCTP acknowledges chunks and not bytes; the same report again is worth
    // nothing.
    let mut raw = connected();
    raw.take();
    acknowledge(&mut raw, 1);
    let window = raw.path().window;
    for _ in 0..50 {
        raw.sack(1, WIDE, &[]);
    }
    assert_eq!(raw.path().window, window);
    // Blocks within what is outstanding count once, too.
    for _ in 0..50 {
        raw.sack(1, WIDE, &[(3, 3)]);
    }
    assert!(raw.path().window <= window + UNIT);
}

#[test]
fn section_7_2_1_a_window_that_is_not_used_does_not_grow() {
    let mut raw = Raw::connected(AssociationConfig::rfc9260());
    let begin = raw.path().window;
    for i in 0..20 {
        raw.send(&[100]);
        raw.take();
        raw.now += ROUND;
        raw.sack(i + 1, WIDE, &[]);
    }
    assert_eq!(raw.path().window, begin);
}

#[test]
fn section_7_2_4_the_third_miss_indication_and_no_earlier_repairs_a_loss() {
    let mut raw = connected();
    raw.take();
    // A larger window first.
    let mut count = 0;
    for _ in 0..8 {
        count += 1;
        acknowledge(&mut raw, count);
    }
    let before = raw.path();
    let next = count + 1;
    raw.now += ROUND;
    for last in 2..=3u16 {
        raw.sack(count, WIDE, &[(next as u16 + 1, next as u16 + last)]);
        assert!(!raw.sent().contains(&next), "{last}");
    }
    assert_eq!(raw.stats().fast_recoveries, 0);
    raw.sack(count, WIDE, &[(next as u16 + 1, next as u16 + 4)]);
    // Section 7.2.4, step 3: regardless of the window, at once, and first.
    let sent = raw.sent();
    assert_eq!(sent.first(), Some(&next), "{sent:?}");
    let after = raw.path();
    assert_eq!(raw.stats().fast_recoveries, 1);
    assert!(after.window < before.window && after.window >= before.window / 2 - 2 * UNIT, "{before:?} {after:?}");
    assert_eq!(after.threshold, Some(after.window), "section 7.2.3");
}

#[test]
fn section_7_2_4_only_what_is_below_the_highest_newly_acknowledged_counts_as_missing() {
    let mut raw = connected();
    raw.take();
    for count in 1..=8 {
        acknowledge(&mut raw, count);
    }
    raw.now += ROUND;
    // The same report again acknowledges nothing new (HTNA): it is no further indication.
    for _ in 0..10 {
        raw.sack(8, WIDE, &[(10, 10)]);
    }
    assert!(!raw.sent().contains(&9));
    // What is above the highest that is reported is not missing.
    for last in 11..=14 {
        raw.sack(8, WIDE, &[(10, last)]);
    }
    let sent = raw.sent();
    assert!(sent.contains(&9) && !sent.iter().any(|n| (10..=16).contains(n)), "{sent:?}");
}

#[test]
fn section_7_2_4_in_a_recovery_the_window_comes_down_once_and_a_chunk_is_repaired_fast_once() {
    let mut raw = connected();
    raw.take();
    for count in 1..=12 {
        acknowledge(&mut raw, count);
    }
    raw.now += ROUND;
    let lose = |raw: &mut Raw, from: u16| (from..from + 4).for_each(|last| raw.sack(12, WIDE, &[(14, last)]));
    lose(&mut raw, 14);
    assert_eq!(raw.sent().first(), Some(&13));
    let window = raw.path().window;
    // It is lost once more: that is found by the timer alone (steps 5 and 6).
    lose(&mut raw, 18);
    assert!(!raw.sent().contains(&13));
    assert_eq!((raw.path().window, raw.stats().fast_recoveries), (window, 1));
    let again = raw.wait(Duration::from_secs(2));
    assert!(datas(&again).iter().any(|d| d.tsn == raw.initial.0.wrapping_add(12)));
    assert_eq!((raw.stats().timeouts, raw.path().window), (1, UNIT));
}

#[test]
fn section_7_2_2_in_congestion_avoidance_the_window_grows_by_one_packet_in_a_round_trip() {
    let mut raw = connected();
    let mut all = raw.sent();
    for count in 1..=10 {
        all.extend(acknowledge(&mut raw, count));
    }
    // A loss sets the threshold.
    raw.now += ROUND;
    for last in 12..=15 {
        raw.sack(10, WIDE, &[(12, last)]);
        all.extend(raw.sent());
    }
    let top = *all.iter().max().unwrap();
    raw.now += ROUND;
    raw.sack(top, WIDE, &[]);
    let (window, threshold) = (raw.path().window, raw.path().threshold.unwrap());
    // It acknowledged far more than a window, which is half of what was under way: still one
    // packet.
    assert!(window >= threshold && window <= threshold + UNIT, "{threshold} {window}");
    let mut flight = raw.sent();
    for round in 1..=8 {
        // Everything that was sent in the last round trip, packet by packet.
        assert!(!flight.is_empty());
        raw.now += ROUND;
        let mut next = Vec::new();
        for n in flight {
            raw.sack(n, WIDE, &[]);
            next.extend(raw.sent());
        }
        flight = next;
        let grown = raw.path().window - window;
        assert!(grown <= round * UNIT, "round {round}: {grown}");
    }
    assert!(raw.path().window >= window + 4 * UNIT, "and it does grow: {:?}", raw.path());
}

#[test]
fn section_7_2_1_a_window_that_was_large_shrinks_while_nothing_is_sent() {
    let mut raw = Raw::connected(AssociationConfig { heartbeat_interval: None, ..AssociationConfig::rfc9260() });
    raw.send(&[FULL; 60]);
    let mut last = *raw.sent().last().unwrap();
    let mut count = 0;
    while count < 60 {
        count += 1;
        last = acknowledge(&mut raw, count).last().copied().unwrap_or(last);
    }
    let large = raw.path().window;
    assert!(large > 12 * UNIT, "{large}");
    raw.wait(Duration::from_secs(30));
    raw.send(&[FULL; 60]);
    let burst = raw.sent().len();
    let small = raw.path().window;
    assert!(small < large / 2 && small >= 2 * UNIT, "{large} {small}");
    assert!(burst <= 4, "Max.Burst: {burst}");
}

#[test]
fn section_6_1_d_at_most_max_burst_packets_answer_one_sack() {
    let mut raw = connected();
    raw.take();
    for count in 1..=40 {
        let sent = acknowledge(&mut raw, count);
        assert!(sent.len() <= 4, "{count}: {sent:?}");
    }
    // All that is under way is acknowledged at once: still no more than four.
    let under_way = (raw.path().in_flight / UNIT) as u32;
    assert!(under_way > 8);
    assert_eq!(acknowledge(&mut raw, 40 + under_way).len(), 4);
}

/// The reports of congestion marks in these packets: lowest TSNs of CWR chunks.
fn reductions(packets: &[Vec<u8>]) -> Vec<u32> {
    let mut found = Vec::new();
    each(packets, |_, chunk| {
        if let Chunk::Cwr(cwr) = chunk {
            found.push(cwr.lowest.0);
        }
    });
    found
}

fn marked() -> Raw {
    let config = AssociationConfig {
        extensions: Extensions { ecn: true, ..Extensions::NONE },
        heartbeat_interval: None,
        ..AssociationConfig::rfc9260()
    };
    let list = [EcnCapable.into()];
    let mut raw = Raw::connected_with(config, Parameters::new(&list));
    raw.send(&[FULL; 300]);
    raw.take();
    for count in 1..=12 {
        acknowledge(&mut raw, count);
    }
    raw
}

#[test]
fn rfc3168_a_mark_halves_the_window_once_in_a_round_trip_and_every_echo_is_answered() {
    let mut raw = marked();
    let before = raw.path().window;
    let lowest = raw.initial.plus(14);
    raw.chunk(&Ecne { lowest });
    let after = raw.path().window;
    assert!(after < before && after >= before / 2 - UNIT, "{before} {after}");
    assert_eq!(reductions(&raw.take()), [lowest.0], "CWR goes with the next packet");
    // The answer was lost, and the peer repeats it: answered again, and not taken for another mark.
    raw.chunk(&Ecne { lowest });
    assert_eq!(reductions(&raw.take()), [lowest.0]);
    assert_eq!(raw.path().window, after);
    assert_eq!((raw.stats().retransmissions, raw.stats().timeouts), (0, 0), "nothing is taken for lost");
    // A mark on what was sent after the reduction is another one, once the recovery is over.
    let mut count = 12;
    for _ in 0..30 {
        count += 1;
        acknowledge(&mut raw, count);
    }
    let grown = raw.path().window;
    raw.chunk(&Ecne { lowest });
    assert_eq!(raw.path().window, grown, "the old mark, said once more when the recovery is over");
    raw.take();
    let lowest = raw.initial.plus(count);
    raw.chunk(&Ecne { lowest });
    assert!(raw.path().window < grown, "{grown} {:?}", raw.path());
}

#[test]
fn rfc3168_an_echo_of_what_was_never_sent_is_nothing() {
    let mut raw = marked();
    let before = raw.path().window;
    raw.chunk(&Ecne { lowest: raw.initial.plus(100_000) });
    assert_eq!(raw.path().window, before);
    assert!(reductions(&raw.take()).is_empty());
    // Of what was acknowledged long ago it is late, and still answered, so that the peer stops.
    raw.chunk(&Ecne { lowest: raw.initial });
    assert_eq!(reductions(&raw.take()), [raw.initial.0]);
}

#[test]
fn rfc3168_the_lowest_mark_is_echoed_with_every_sack_until_it_is_answered() {
    use crate::support::raw::{FIRST, data};
    let mut raw = marked();
    raw.take();
    let give = |raw: &mut Raw, tsn: u32, ce: bool| {
        let chunk = neater_sctp_wire::chunk::Data { unordered: true, ..data(tsn, true, true, b"x") };
        let bytes = crate::support::packet(crate::support::PORTS, raw.tag, &[chunk.into()]);
        let route = neater_sctp::Route { layer: neater_sctp::LayerId(0), remote: crate::support::address(0, 0) };
        raw.server.handle_packet(raw.now, route, ce, &bytes);
    };
    let echoes = |raw: &mut Raw| {
        let mut found = Vec::new();
        each(&raw.wait(ms(300)), |_, chunk| {
            if let Chunk::Ecne(e) = chunk {
                found.push(e.lowest.0);
            }
        });
        found
    };
    give(&mut raw, FIRST, false);
    assert!(echoes(&mut raw).is_empty());
    give(&mut raw, FIRST + 2, true);
    assert_eq!(echoes(&mut raw), [FIRST + 2]);
    // A lower one that was marked, too: that is named from now on.
    give(&mut raw, FIRST + 1, true);
    assert_eq!(echoes(&mut raw), [FIRST + 1]);
    give(&mut raw, FIRST + 3, false);
    assert_eq!(echoes(&mut raw), [FIRST + 1], "until it is answered");
    raw.chunk(&Cwr { lowest: neater_sctp_wire::Tsn(FIRST) });
    give(&mut raw, FIRST + 4, false);
    assert_eq!(echoes(&mut raw), [FIRST + 1], "an answer to something older is none");
    raw.chunk(&Cwr { lowest: neater_sctp_wire::Tsn(FIRST + 1) });
    give(&mut raw, FIRST + 5, false);
    assert!(echoes(&mut raw).is_empty());
}
