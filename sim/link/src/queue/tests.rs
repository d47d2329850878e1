use super::*;
use core::time::Duration;

const MS: Duration = Duration::from_millis(1);

fn at(ms: f64) -> Instant {
    Instant::from_nanos((ms * 1e6) as u64)
}

fn waiting(index: u64, since: Instant, len: u32, flow: u32, ecn: Ecn) -> Waiting<u64> {
    Waiting { packet: index, index, since, len, flow, header: 20, ecn, marked: false }
}

/// Whether a packet was dropped (or marked, if it could be), and when.
fn drop_times(config: Codel, ecn: Ecn, fill: impl Fn(f64) -> bool, end: f64) -> (Vec<f64>, usize) {
    let discipline = Discipline::Codel(config);
    let mut queue = Queue::new(&discipline);
    let (mut dropped, mut times, mut sent) = (Vec::new(), Vec::new(), 0);
    // Every 0.1 ms a packet may leave; those that are there have waited 50 ms, or nothing where `fill` says so.
    for step in 0..(end * 10.0) as u64 {
        let now = at(step as f64 / 10.0);
        while queue.len() < 20 {
            let since = if fill(step as f64 / 10.0) { now - MS * 50 } else { now };
            queue.push(&discipline, waiting(step, since, 1000, 0, ecn));
        }
        let packet = queue.pop(&discipline, now, 1500, &mut dropped).unwrap();
        if !dropped.is_empty() || packet.marked {
            times.extend(std::iter::repeat_n(step as f64 / 10.0, dropped.len() + usize::from(packet.marked)));
        }
        dropped.clear();
        sent += 1;
    }
    (times, sent)
}

#[test]
fn codel_drops_as_its_control_law_says() {
    let (times, _) = drop_times(Codel::default(), Ecn::NotEct, |_| true, 600.0);
    // Time begins at 0, so the first that has waited for 5 ms leaves then. An interval later the first is dropped; then each
    // sooner by the square root of their number.
    let mut expected = vec![105.0];
    while expected.len() < times.len() {
        expected.push(expected.last().unwrap() + 100.0 / (expected.len() as f64).sqrt());
    }
    assert!(times.len() >= 10, "{times:?}");
    assert!(times.iter().zip(&expected).all(|(t, e)| (t - e).abs() <= 0.11), "{times:?} is not {expected:?}");
}

#[test]
fn codel_lets_bursts_and_short_queues_pass() {
    // Half an interval too long, and again: never a whole one.
    let (times, _) = drop_times(Codel::default(), Ecn::NotEct, |t| t % 100.0 < 50.0, 1000.0);
    assert!(times.is_empty(), "{times:?}");
    // One full packet is no queue.
    let discipline = Discipline::Codel(Codel::default());
    let (mut queue, mut dropped) = (Queue::new(&discipline), Vec::new());
    for i in 0..1000 {
        queue.push(&discipline, waiting(i, at(0.0), 1500, 0, Ecn::NotEct));
        assert!(queue.pop(&discipline, at(1000.0 + i as f64), 1500, &mut dropped).is_some() && dropped.is_empty());
    }
}

#[test]
fn codel_begins_again_where_it_was_if_it_has_to_soon() {
    // Away for 200 ms, which is less than 16 intervals: the rate of drops that it had reached is where it begins.
    let pause = |t: f64| !(500.0..700.0).contains(&t);
    let (times, _) = drop_times(Codel::default(), Ecn::NotEct, pause, 900.0);
    let before = times.iter().filter(|t| **t < 500.0).count();
    let after: Vec<_> = times.iter().filter(|t| **t >= 700.0).collect();
    assert!((after[0] - 803.0).abs() < 4.0, "an interval after the queue stood again: {after:?}");
    // Since dropping began before, `before` packets less one were dropped; that is the new count.
    let gap = 100.0 / ((before - 1) as f64).sqrt();
    assert!((after[1] - after[0] - gap).abs() <= 0.2, "{after:?}, {before}");
    // Away for two seconds, it has forgotten.
    let (times, _) = drop_times(Codel::default(), Ecn::NotEct, |t| !(500.0..2500.0).contains(&t), 2750.0);
    let after: Vec<_> = times.iter().filter(|t| **t >= 2500.0).collect();
    assert!((after[1] - after[0] - 100.0).abs() <= 0.2, "{after:?}");
}

#[test]
fn codel_marks_those_who_understand() {
    let ecn = Codel { ecn: true, ..Codel::default() };
    let (dropped, _) = drop_times(Codel::default(), Ecn::Ect0, |_| true, 400.0);
    let (marked, sent) = drop_times(ecn, Ecn::Ect0, |_| true, 400.0);
    assert_eq!(marked.len(), dropped.len(), "the same law");
    assert_eq!(sent, 4000);
    assert_eq!(drop_times(ecn, Ecn::NotEct, |_| true, 400.0).0, dropped);
}

/// Sends for a while what flows always have more of, and counts the bytes of each.
fn share(flows: &[(u32, u32)], turns: usize) -> Vec<u64> {
    let discipline = Discipline::FqCodel(FqCodel::default());
    let (mut queue, mut dropped) = (Queue::new(&discipline), Vec::new());
    let mut sent = vec![0; flows.len()];
    let push = |queue: &mut Queue<u64>, i: usize| {
        let (flow, len) = flows[i];
        queue.push(&discipline, waiting(i as u64, at(0.0), len, flow, Ecn::NotEct));
    };
    for i in 0..flows.len() {
        (0..40).for_each(|_| push(&mut queue, i));
    }
    for _ in 0..turns {
        let packet = queue.pop(&discipline, at(1.0), 1500, &mut dropped).unwrap();
        sent[packet.packet as usize] += u64::from(packet.len);
        push(&mut queue, packet.packet as usize);
    }
    assert!(dropped.is_empty());
    sent
}

#[test]
fn fq_codel_shares_bytes_and_not_packets() {
    let sent = share(&[(1, 1500), (2, 300), (3, 700)], 20_000);
    let mean = sent.iter().sum::<u64>() / 3;
    // Fair up to a packet and a quantum.
    assert!(sent.iter().all(|s| s.abs_diff(mean) <= 3100), "{sent:?}");
    let two = share(&[(1, 1500), (1, 1500), (2, 1500)], 3000);
    assert!((two[0] + two[1]).abs_diff(two[2]) <= 3100, "two of one flow get one share: {two:?}");
}

#[test]
fn fq_codel_lets_sparse_flows_go_first() {
    let discipline = Discipline::FqCodel(FqCodel::default());
    let (mut queue, mut dropped) = (Queue::new(&discipline), Vec::new());
    for i in 0..200 {
        queue.push(&discipline, waiting(i, at(0.0), 1500, (i % 4) as u32, Ecn::NotEct));
    }
    for i in 0..40 {
        queue.pop(&discipline, at(1.0), 1500, &mut dropped);
        if i % 10 == 9 {
            queue.push(&discipline, waiting(1000 + i, at(1.0), 100, 77, Ecn::NotEct));
            let next = queue.pop(&discipline, at(1.0), 1500, &mut dropped).unwrap();
            assert_eq!(next.index, 1000 + i);
        }
    }
    // One that has had its turn and comes again at once is not new again: it waits for the old ones.
    queue.push(&discipline, waiting(5000, at(1.0), 1500, 99, Ecn::NotEct));
    assert_eq!(queue.pop(&discipline, at(1.0), 1500, &mut dropped).unwrap().index, 5000);
    queue.push(&discipline, waiting(5001, at(1.0), 1500, 99, Ecn::NotEct));
    queue.push(&discipline, waiting(5002, at(1.0), 1500, 99, Ecn::NotEct));
    assert_eq!(
        queue.pop(&discipline, at(1.0), 1500, &mut dropped).unwrap().index,
        5001,
        "14 bytes of the quantum were left"
    );
    assert_ne!(queue.pop(&discipline, at(1.0), 1500, &mut dropped).unwrap().index, 5002);
}

#[test]
fn fq_codel_drops_from_the_fattest_flow() {
    let discipline = Discipline::FqCodel(FqCodel::default());
    let mut queue = Queue::new(&discipline);
    for i in 0..30 {
        queue.push(&discipline, waiting(i, at(0.0), 100, 1, Ecn::NotEct));
    }
    for i in 30..40 {
        queue.push(&discipline, waiting(i, at(0.0), 1500, 2, Ecn::NotEct));
    }
    assert_eq!(queue.make_room(&discipline).map(|w| w.index), Some(30), "fewer packets, and more bytes");
    assert_eq!((queue.len(), queue.bytes()), (39, 3000 + 13_500));
}

#[test]
fn red_follows_its_mean() {
    let red = Red { max_probability: 0.1, weight: 0.5, ..Red::new(10, 20) };
    let mut state = RedState::default();
    // Below the threshold nothing, whatever the luck.
    assert!((0..20).all(|_| state.arrive(&red, at(0.0), 5, 1e6, 0.0) == red::Verdict::Pass));
    // The mean settles at 15: half of the probability, and gaps between drops uniform over 1 to 19.
    let (mut state, stream) = (RedState::default(), crate::draw::Stream::new(&mut neater_base::Rng::from_number(1)));
    (0..50).for_each(|_| assert_ne!(state.arrive(&red, at(0.0), 15, 1e6, 1.0), red::Verdict::Forced));
    let (mut gaps, mut since) = (Vec::new(), 0u32);
    for i in 0..40_000 {
        since += 1;
        if state.arrive(&red, at(0.0), 15, 1e6, stream.unit(i)) == red::Verdict::Early {
            gaps.push(since);
            since = 0;
        }
    }
    let mean = gaps.iter().sum::<u32>() as f64 / gaps.len() as f64;
    assert!((mean - 10.0).abs() < 0.5 && gaps.iter().max() == Some(&19), "{mean}");
    // Gentle: certain only from twice the upper threshold on.
    let verdict = |red: &Red, depth| {
        let mut state = RedState::default();
        (0..100).fold(red::Verdict::Pass, |_, _| state.arrive(red, at(0.0), depth, 1e6, 0.999))
    };
    assert_eq!(verdict(&red, 41), red::Verdict::Forced);
    assert_ne!(verdict(&red, 30), red::Verdict::Forced);
    assert_eq!(verdict(&Red { gentle: false, ..red }, 21), red::Verdict::Forced);
    // While the queue is empty the mean shrinks as if packets had come all the time.
    state.empty(at(0.0));
    state.arrive(&red, at(4.0), 0, 1e6, 1.0);
    assert_eq!(state.arrive(&red, at(4.0), 12, 1e6, 0.0), red::Verdict::Pass);
}

#[test]
fn a_change_of_discipline_keeps_what_waits() {
    let fair = Discipline::FqCodel(FqCodel::default());
    let mut queue = Queue::new(&fair);
    for i in 0..20 {
        queue.push(&fair, waiting(i, at(0.0), 100, i as u32 % 3, Ecn::NotEct));
    }
    queue.change(&Discipline::DropTail);
    assert_eq!((queue.len(), queue.bytes()), (20, 2000));
    let mut dropped = Vec::new();
    let got: Vec<_> = std::iter::from_fn(|| queue.pop(&Discipline::DropTail, at(9.0), 1500, &mut dropped)).collect();
    assert!(got.iter().map(|w| w.index).eq(0..20));
    assert!(queue.is_empty() && queue.bytes() == 0);
}
