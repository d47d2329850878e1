use super::*;
use proptest::prelude::*;

const MS: Duration = Duration::from_millis(1);

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(1000 + ms)
}

/// `n` segments of 1000 bytes from number 0 on, one per millisecond.
fn board(n: u64) -> Scoreboard {
    let mut b = Scoreboard::default();
    for i in 0..n {
        b.push(at(i), Seq(i * 1000), Seq((i + 1) * 1000), false);
    }
    b
}

fn sack(b: &mut Scoreboard, ms: u64, blocks: &[(u64, u64)], newest: &mut Option<Newest>) -> Delivered {
    let blocks: Vec<_> = blocks.iter().map(|(s, e)| (Seq(s * 1000), Seq(e * 1000))).collect();
    let mut d = Delivered::default();
    b.sack(at(ms), &blocks, &mut d, newest, None);
    b.check();
    d
}

fn ack(b: &mut Scoreboard, ms: u64, una: u64, newest: &mut Option<Newest>) -> Delivered {
    let mut d = Delivered::default();
    b.acknowledge(at(ms), Seq(una * 1000), &mut d, newest, None);
    b.check();
    d
}

#[test]
fn the_pipe_is_what_was_sent_less_what_arrived_or_was_lost() {
    let (mut b, mut newest) = (board(10), None);
    assert_eq!(b.in_flight(), 10_000);
    let d = sack(&mut b, 50, &[(3, 6)], &mut newest);
    assert_eq!((d.bytes, d.acked, b.in_flight()), (3000, 0, 7000));
    // The same again, and one more: only that counts.
    let d = sack(&mut b, 51, &[(3, 7)], &mut newest);
    assert_eq!(d.bytes, 1000);
    assert_eq!(b.detect_by_count(3, 1000), 3000);
    assert_eq!(b.in_flight(), 3000);
    let first = b.next_lost().unwrap();
    b.retransmitted(at(52), first);
    assert_eq!((first, b.in_flight(), b.next_lost()), (0, 4000, Some(1)));
    let d = ack(&mut b, 100, 1, &mut newest);
    assert_eq!((d.acked, d.bytes, d.rtt, d.resent_acked), (1000, 1000, None, true));
    let d = ack(&mut b, 101, 10, &mut newest);
    assert_eq!((d.acked, d.bytes), (9000, 5000), "four had been reported before");
    assert_eq!((b.in_flight(), b.delivered), (0, 10_000));
}

#[test]
fn three_segments_above_a_hole_prove_it_lost_and_two_do_not() {
    let (mut b, mut newest) = (board(10), None);
    sack(&mut b, 50, &[(1, 3)], &mut newest);
    assert_eq!(b.detect_by_count(3, 1000), 0);
    sack(&mut b, 51, &[(1, 4)], &mut newest);
    assert_eq!((b.detect_by_count(3, 1000), b.detect_by_count(3, 1000)), (1000, 0));
}

#[test]
fn time_proves_lost_what_was_sent_before_something_that_arrived() {
    let (mut b, mut newest) = (board(10), None);
    sack(&mut b, 53, &[(3, 4)], &mut newest);
    let n = newest.unwrap();
    assert_eq!((n.at, n.rtt), (at(3), MS * 50));
    // Sent at 0, 1 and 2 ms; a round trip of 50 and patience of 12 makes them late at 62, 63 and 64.
    assert_eq!(b.detect_by_time(at(53), &n, MS * 12), (0, Some(MS * 11)));
    assert_eq!(b.detect_by_time(at(63), &n, MS * 12), (2000, Some(MS)));
    assert_eq!(b.detect_by_time(at(64), &n, MS * 12), (1000, None));
    assert_eq!(b.detect_by_time(at(99), &n, MS * 12), (0, None));
    b.check();
}

#[test]
fn a_lost_retransmission_is_found_by_what_was_sent_after_it() {
    let (mut b, mut newest) = (board(10), None);
    sack(&mut b, 53, &[(1, 4)], &mut newest);
    assert_eq!(b.detect_by_time(at(53), &newest.unwrap(), Duration::ZERO).0, 1000);
    b.retransmitted(at(54), 0);
    sack(&mut b, 60, &[(1, 10)], &mut newest);
    assert_eq!(b.detect_by_time(at(60), &newest.unwrap(), Duration::ZERO).0, 0, "sent after all of these");
    b.push(at(55), Seq(10_000), Seq(11_000), false);
    sack(&mut b, 105, &[(1, 11)], &mut newest);
    assert_eq!(b.detect_by_time(at(105), &newest.unwrap(), Duration::ZERO).0, 1000);
    assert_eq!((b.next_lost(), b.in_flight()), (Some(0), 0));
    b.check();
}

#[test]
fn an_answer_sooner_than_any_before_is_to_the_first_transmission() {
    let mut b = board(3);
    let mut newest = None;
    b.mark_lost(0);
    b.retransmitted(at(100), 0);
    let mut d = Delivered::default();
    b.acknowledge(at(103), Seq(1000), &mut d, &mut newest, Some(MS * 50));
    assert_eq!(newest, None);
}

#[test]
fn overtaken_segments_are_noticed() {
    let (mut b, mut newest) = (board(10), None);
    sack(&mut b, 50, &[(5, 6)], &mut newest);
    let d = sack(&mut b, 51, &[(3, 4), (5, 6)], &mut newest);
    assert_eq!(d.reordered, Some(Seq(3000)));
    let d = ack(&mut b, 52, 2, &mut newest);
    assert_eq!(d.reordered, Some(Seq(0)));
}

#[test]
fn a_timeout_loses_everything_and_reneging_takes_reports_back() {
    let (mut b, mut newest) = (board(5), None);
    sack(&mut b, 50, &[(2, 3)], &mut newest);
    assert_eq!(b.lose_all(|_| false), 4000);
    assert_eq!(b.in_flight(), 0);
    b.unlose_all();
    assert_eq!(b.in_flight(), 4000);
    let (mut b, mut newest) = (board(5), None);
    sack(&mut b, 50, &[(0, 2)], &mut newest);
    assert_eq!((b.lose_all(|_| false), b.sacked()), (5000, 0));
    b.check();
}

#[test]
fn segments_that_have_become_too_long_are_cut() {
    let (mut b, mut newest) = (board(2), None);
    assert_eq!(b.oversized(600), [0, 1]);
    b.mark_lost(0);
    b.split(0, 600);
    b.check();
    assert_eq!((b.count(), b.get(0).unwrap().len(), b.get(1).unwrap().len()), (3, 600, 400));
    b.retransmitted(at(5), 0);
    b.retransmitted(at(5), 1);
    sack(&mut b, 60, &[(1, 2)], &mut newest);
    assert_eq!(b.next_lost(), None);
}

proptest! {
    /// Whatever is acknowledged, reported, lost and sent again: the sums are right, and everything is delivered once.
    #[test]
    fn prop_the_sums_are_those_of_the_segments(
        steps in proptest::collection::vec((0u8..7, 0u64..40, 1u64..8), 1..120),
    ) {
        let mut b = Scoreboard::default();
        let (mut newest, mut una, mut max, mut now) = (None, 0, 0, 0);
        for (what, a, n) in steps {
            now += 3;
            match what {
                0 | 1 => for _ in 0..n {
                    b.push(at(now), Seq(max * 1000), Seq((max + 1) * 1000), false);
                    max += 1;
                },
                2 => { una = (una + a % 5).min(max); ack(&mut b, now, una, &mut newest); }
                3 => {
                    let start = una + 1 + a % 20;
                    if start + n <= max {
                        sack(&mut b, now, &[(start, start + n)], &mut newest);
                    }
                }
                4 => if let Some(newest) = newest { b.detect_by_time(at(now), &newest, MS * (a % 9) as u32); },
                5 => if let Some(i) = b.next_lost() {
                    prop_assert!(b.get(i).is_some_and(|s| s.lost && !s.resent));
                    b.retransmitted(at(now), i);
                },
                _ if a < 4 => { b.lose_all(|_| false); }
                _ => { b.detect_by_count(3, 1000); }
            }
            b.check();
            let waiting = (0..b.count()).any(|i| b.get(i).is_some_and(|s| s.lost && !s.resent));
            prop_assert_eq!(b.next_lost().is_some(), waiting);
        }
        ack(&mut b, now + 1, max, &mut newest);
        prop_assert_eq!((b.in_flight(), b.delivered, b.order.len()), (0, max * 1000, 0));
    }
}
