use super::*;

const QUIC: StackId = StackId(1);
const TLS: StackId = StackId(2);
const SECOND: Duration = Duration::from_secs(1);

fn key(stack: StackId) -> RateKey {
    RateKey { network: 1, host: 2, stack }
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn stack(stack: StackId, class: i32, secure: bool) -> RatedStack {
    RatedStack { stack, class, secure }
}

/// In how many of 1000 races the stacks begin with that of this place.
fn firsts(rates: &Rates, now: Instant, stacks: &[RatedStack]) -> Vec<usize> {
    let mut rng = Rng::from_number(7);
    let mut firsts = vec![0; stacks.len()];
    for _ in 0..1000 {
        let mut order = stacks.to_vec();
        rates.order(now, 1, 2, &mut order, Some(&mut rng));
        let first = stacks.iter().position(|s| *s == order[0]).unwrap();
        firsts[first] += 1;
        order.sort_by_key(|s| s.stack);
        let mut same = stacks.to_vec();
        same.sort_by_key(|s| s.stack);
        assert_eq!(order, same, "none is lost");
    }
    firsts
}

fn two() -> [RatedStack; 2] {
    [stack(QUIC, 0, true), stack(TLS, 0, true)]
}

fn measured(quic: u64, tls: u64) -> Rates {
    let mut rates = Rates::default();
    assert!(rates.record(at(0), key(QUIC), quic * 10, SECOND * 10));
    assert!(rates.record(at(0), key(TLS), tls * 10, SECOND * 10));
    rates
}

#[test]
fn the_faster_of_two_equals_goes_first_but_for_one_race_in_twenty() {
    let quic = firsts(&measured(113_000_000, 430_000_000), at(1), &two())[0];
    assert!((25..=80).contains(&quic), "{quic}");
    let tls = firsts(&measured(430_000_000, 113_000_000), at(1), &two())[1];
    assert!((25..=80).contains(&tls), "{tls}");
}

#[test]
fn what_is_about_as_fast_changes_nothing() {
    assert!(firsts(&measured(400_000, 500_000), at(1), &two())[0] > 900);
    assert!(firsts(&measured(300_000, 500_000), at(1), &two())[1] > 900);
}

#[test]
fn without_rates_nothing_changes_and_no_number_is_drawn() {
    let rates = Rates::default();
    let (mut rng, mut stacks) = (Rng::from_number(1), two());
    rates.order(at(0), 1, 2, &mut stacks, Some(&mut rng));
    assert_eq!((stacks, rng.u64()), (two(), Rng::from_number(1).u64()));
}

#[test]
fn one_that_is_not_measured_is_tried_one_time_in_twenty() {
    let mut rates = Rates::default();
    assert!(rates.record(at(0), key(QUIC), MIN_TRANSFER, SECOND));
    let tls = firsts(&rates, at(1), &two())[1];
    assert!((25..=80).contains(&tls), "{tls}");
    // It is put behind the fastest, and before what stands behind it.
    let three = [stack(QUIC, 0, true), stack(StackId(9), 0, true), stack(TLS, 0, true)];
    let mut order = three;
    let mut rng = Rng::from_number(2);
    measured(100_000, 900_000).order(at(1), 1, 2, &mut order, Some(&mut rng));
    assert_eq!(order.map(|s| s.stack), [TLS, QUIC, StackId(9)]);
}

#[test]
fn none_goes_before_one_of_another_class_or_with_more_security() {
    let rates = measured(100_000, 900_000);
    for other in [stack(TLS, 1, true), stack(TLS, 0, false)] {
        assert_eq!(firsts(&rates, at(1), &[stack(QUIC, 0, true), other]), [1000, 0]);
    }
}

#[test]
fn short_transfers_do_not_count_and_rates_are_forgotten_after_a_day() {
    let mut rates = Rates::default();
    assert!(!rates.record(at(0), key(TLS), MIN_TRANSFER - 1, SECOND));
    assert!(!rates.record(at(0), key(TLS), u64::MAX, Duration::ZERO));
    assert!(rates.record(at(0), key(TLS), u64::MAX, Duration::from_nanos(1)), "no overflow");
    let end = at(24 * 60 * 60);
    assert!(rates.get(at(24 * 60 * 60 - 1), &key(TLS)).is_some());
    assert_eq!(rates.get(end, &key(TLS)), None);
    assert_eq!(rates.iter(end).count(), 0);
    assert!(rates.record(end, key(TLS), MIN_TRANSFER, SECOND));
    assert_eq!(rates.get(end, &key(TLS)).map(|r| r.bytes_per_second), Some(1_000_000), "of the old one nothing");
    assert!(rates.record(end, key(TLS), 3 * MIN_TRANSFER, SECOND));
    assert_eq!(rates.get(end, &key(TLS)).map(|r| r.bytes_per_second), Some(2_000_000));
}

#[test]
fn rates_of_other_hosts_and_networks_say_nothing() {
    let mut rates = Rates::default();
    for other in [RateKey { network: 9, ..key(TLS) }, RateKey { host: 9, ..key(TLS) }] {
        assert!(rates.record(at(0), other, MIN_TRANSFER, SECOND));
    }
    assert_eq!(firsts(&rates, at(1), &two()), [1000, 0]);
}

#[test]
fn there_is_a_bound_and_the_earliest_makes_room() {
    let mut rates = Rates::default();
    for n in 0..MAX_RATES as u64 + 1 {
        assert!(rates.record(at(n), RateKey { host: n, ..key(TLS) }, MIN_TRANSFER, SECOND));
    }
    assert_eq!(rates.iter(at(5000)).count(), MAX_RATES);
    assert_eq!(rates.get(at(5000), &RateKey { host: 0, ..key(TLS) }), None);
}
