use super::*;
use bytes::Bytes;
use neater_base::Rng;
use neater_sctp_wire::Ppid;

fn piece(id: u64) -> Piece {
    Piece {
        id: MessageId(id),
        stream: StreamId(0),
        ppid: Ppid(0),
        unordered: false,
        immediate: false,
        report: false,
        reliability: Reliability::Full,
        number: id as u32,
        fsn: 0,
        begins: true,
        ends: true,
        payload: Bytes::from_static(&[0; 10]),
    }
}

fn outstanding(n: u64) -> Outstanding {
    let mut out = Outstanding::new(100);
    for id in 0..n {
        assert_eq!(out.push(Instant::from_nanos(id), PathId(0), 28, piece(id)), 100 + id);
    }
    out
}

fn ack(out: &mut Outstanding, cumulative: u64, gaps: &[(u64, u64)]) -> (bool, Vec<u64>) {
    let mut delivered = Vec::new();
    let advanced = out.acknowledge(cumulative, gaps.iter().map(|(a, b)| *a..*b + 1), |tsn, _, acked| {
        if acked.delivered {
            delivered.push(tsn);
        }
    });
    (advanced, delivered)
}

#[test]
fn an_acknowledgment_tells_what_is_new_and_only_that() {
    let mut out = outstanding(10);
    assert_eq!(ack(&mut out, 101, &[(104, 105)]), (true, vec![100, 101, 104, 105]));
    assert_eq!(ack(&mut out, 101, &[(104, 107)]), (false, vec![106, 107]));
    assert_eq!((out.base(), out.next(), out.len(), out.payload(), out.flying()), (102, 110, 8, 80, 40));
    assert_eq!(ack(&mut out, 108, &[]), (true, vec![102, 103, 108]));
    assert_eq!(ack(&mut out, 108, &[(109, 200)]), (false, vec![109]), "what was not sent is cut off");
    assert!(out.has_reneged(), "109 cannot be in a gap block above 108");
    assert!(!out.any_in_flight());
}

#[test]
fn holes_are_seen_in_order() {
    let mut out = outstanding(10);
    ack(&mut out, 99, &[(101, 102), (105, 105)]);
    let mut holes = Vec::new();
    out.each_hole(|tsn, _| {
        holes.push(tsn);
        tsn < 107
    });
    assert_eq!(holes, [100, 103, 104, 106, 107]);
    assert!(!out.has_reneged());
}

#[test]
fn what_is_lost_is_sent_again_and_may_have_been_there_all_along() {
    let mut out = outstanding(4);
    assert_eq!(out.lose(101, false), Some((PathId(0), 28)));
    assert_eq!(out.lose(101, false), None, "it is lost already");
    assert_eq!((out.next_lost(0), out.next_lost(102), out.flying()), (Some(101), None, 30));
    out.resend(Instant::from_nanos(9), 101, PathId(1));
    assert_eq!((out.has_lost(), out.get(101).unwrap().times, out.get(101).unwrap().path), (false, 2, PathId(1)));
    out.lose(102, true);
    let mut mistaken = Vec::new();
    out.acknowledge(103, core::iter::empty(), |tsn, _, a| {
        if a.mistaken {
            mistaken.push(tsn);
        }
    });
    assert_eq!((mistaken, out.has_lost(), out.is_empty(), out.payload(), out.flying()), (vec![102], false, true, 0, 0));
}

#[test]
fn what_is_abandoned_moves_the_advanced_point() {
    let mut out = outstanding(6);
    out.lose(101, false);
    ack(&mut out, 99, &[(103, 103)]);
    assert_eq!(out.abandon(101), None);
    assert_eq!(out.advanced(), None, "the first is still wanted");
    assert_eq!(out.abandon(100), Some((PathId(0), 28)));
    assert_eq!(out.advanced(), Some(101));
    out.abandon(102);
    out.abandon(103);
    assert_eq!(out.advanced(), Some(103));
    assert_eq!((out.payload(), out.flying(), out.has_lost()), (20, 20, false));
    assert_eq!(ack(&mut out, 104, &[]), (true, vec![104]));
    assert_eq!((out.payload(), out.flying()), (10, 10));
}

#[test]
fn what_the_peer_forgot_is_lost() {
    let mut out = outstanding(5);
    ack(&mut out, 99, &[(101, 102)]);
    assert!(out.forget_received());
    assert_eq!((out.next_lost(0), out.next_lost(102), out.received().is_empty()), (Some(101), Some(102), true));
}

#[test]
fn what_the_peer_keeps_for_good_is_not_kept_here_and_never_lost() {
    let mut out = outstanding(6);
    ack(&mut out, 99, &[(101, 101), (103, 104)]);
    out.release(103..105);
    out.release(103..105);
    assert_eq!((out.payload(), out.flying()), (40, 30));
    ack(&mut out, 100, &[]);
    assert!(out.has_reneged() && out.forget_received());
    assert_eq!((out.next_lost(0), out.next_lost(102)), (Some(101), None));
    assert!(out.received().contains(103) && !out.received().contains(101));
    ack(&mut out, 102, &[]);
    assert!(out.has_reneged() && !out.forget_received(), "103 was released");
    ack(&mut out, 105, &[]);
    assert_eq!((out.payload(), out.flying()), (0, 0));
}

/// The sums agree with the fates after any sequence of events.
#[test]
fn the_account_is_always_right() {
    for seed in 0..100 {
        let mut rng = Rng::from_number(seed);
        let mut out = outstanding(5);
        let mut id = 5;
        for step in 0..200 {
            let at = out.base() + rng.below(out.len() as u64 + 1);
            match rng.below(6) {
                0 | 1 => {
                    out.push(Instant::from_nanos(step), PathId(0), 28, piece(id));
                    id += 1;
                }
                2 => drop(out.lose(at, rng.chance(0.5))),
                3 => drop(out.abandon(at)),
                4 => {
                    if let Some(tsn) = out.next_lost(0) {
                        out.resend(Instant::from_nanos(step), tsn, PathId(0));
                    }
                }
                _ => {
                    let cumulative = out.base() - 1 + rng.below(2).min(out.len() as u64);
                    let gap = cumulative + 2 + rng.below(5);
                    ack(&mut out, cumulative, &[(gap, gap + rng.below(3))]);
                }
            }
            let sum = |f: &dyn Fn(&Sent) -> bool| {
                out.iter().filter(|(_, s)| f(s)).map(|(_, s)| s.piece.payload.len()).sum::<usize>()
            };
            assert_eq!(out.flying(), sum(&|s| s.fate == Fate::InFlight), "seed {seed}");
            assert_eq!(out.payload(), sum(&|s| s.fate != Fate::Abandoned), "seed {seed}");
            assert_eq!(out.any_in_flight(), out.iter().any(|(_, s)| s.fate == Fate::InFlight));
            for (tsn, s) in out.iter() {
                assert_eq!(s.fate == Fate::Lost, out.lost.contains(&tsn), "seed {seed}");
                assert!(s.fate != Fate::Received || out.received.contains(tsn), "seed {seed}");
            }
            out.each_hole(|tsn, _| tsn > 0);
        }
        out.drain();
        assert_eq!((out.payload(), out.flying(), out.is_empty()), (0, 0, true));
    }
}
