use super::*;
use crate::config::Overtaking;
use std::sync::Arc;

const MS: Duration = Duration::from_millis(1);

fn fates(config: &LinkConfig, n: u64) -> Vec<Fate> {
    let mut wire = Wire::new(Instant::ZERO, &mut Rng::from_number(11));
    // A packet each millisecond, of 100 bytes after the header.
    (0..n).map(|i| wire.fate(config, i, 100, Instant::ZERO + MS * i as u32)).collect()
}

fn losses(loss: Loss, n: u64) -> Vec<bool> {
    fates(&LinkConfig { loss, ..LinkConfig::default() }, n).iter().map(|f| f.lost).collect()
}

/// The lengths of runs of `true`.
fn runs(lost: &[bool]) -> Vec<usize> {
    lost.split(|l| !l).map(<[bool]>::len).filter(|n| *n > 0).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn deviation(values: &[f64]) -> f64 {
    let m = mean(values);
    mean(&values.iter().map(|v| (v - m).powi(2)).collect::<Vec<_>>()).sqrt()
}

fn near(value: f64, expected: f64, tolerance: f64) {
    assert!((value - expected).abs() <= tolerance, "{value} is not {expected} ± {tolerance}");
}

#[test]
fn bernoulli_losses_come_in_geometric_runs() {
    let n = 200_000;
    let lost = losses(Loss::Random(0.2), n);
    let runs = runs(&lost);
    // Five standard deviations each.
    near(lost.iter().filter(|l| **l).count() as f64 / n as f64, 0.2, 5.0 * (0.16 / n as f64).sqrt());
    let lengths: Vec<f64> = runs.iter().map(|r| *r as f64).collect();
    near(mean(&lengths), 1.25, 5.0 * (0.2 / 0.64 / lengths.len() as f64).sqrt());
    for k in 1..4 {
        let share = runs.iter().filter(|r| **r == k).count() as f64 / runs.len() as f64;
        let p = 0.8 * 0.2f64.powi(k as i32 - 1);
        near(share, p, 5.0 * (p * (1.0 - p) / runs.len() as f64).sqrt());
    }
}

#[test]
fn gilbert_elliott_has_the_loss_rate_and_the_runs_of_its_two_states() {
    let (p, r, n) = (0.01, 0.25, 500_000);
    let gilbert = |loss_good, loss_bad| Loss::GilbertElliott { to_bad: p, to_good: r, loss_good, loss_bad };
    // The simple model, where the bad state loses everything: runs are stays, geometric with mean 1 / r.
    let lost = losses(gilbert(0.0, 1.0), n);
    let lengths: Vec<f64> = runs(&lost).iter().map(|r| *r as f64).collect();
    near(mean(&lengths), 4.0, 5.0 * (12.0 / lengths.len() as f64).sqrt());
    let one = lengths.iter().filter(|l| **l == 1.0).count() as f64 / lengths.len() as f64;
    near(one, 0.25, 5.0 * (0.1875 / lengths.len() as f64).sqrt());
    let bad = p / (p + r);
    // Neighbours are correlated by 1 - p - r, which widens the deviation of the mean by this factor.
    let widening = ((2.0 - p - r) / (p + r)).sqrt();
    let rate = |lost: &[bool]| lost.iter().filter(|l| **l).count() as f64 / n as f64;
    near(rate(&lost), bad, 5.0 * widening * (bad * (1.0 - bad) / n as f64).sqrt());
    // All four parameters: Elliott's loss rate.
    let expected = bad * 0.6 + (1.0 - bad) * 0.02;
    near(rate(&losses(gilbert(0.02, 0.6), n)), expected, 5.0 * widening * (expected / n as f64).sqrt());
}

#[test]
fn every_nth_and_listed_packets_are_lost() {
    let at = |lost: Vec<bool>| -> Vec<usize> { (0..lost.len()).filter(|i| lost[*i]).collect() };
    assert_eq!(at(losses(Loss::EveryNth(4), 13)), [3, 7, 11]);
    assert_eq!(at(losses(Loss::EveryNth(0), 13)), [0; 0]);
    assert_eq!(at(losses(Loss::Indices(std::sync::Arc::new([0, 5].into())), 13)), [0, 5]);
}

#[test]
fn bursts_have_their_length_and_begin_as_often_as_they_should() {
    let n = 300_000;
    let lost = losses(Loss::Bursts { start: 0.01, length: 5 }, n);
    let runs = runs(&lost);
    // Two bursts may touch; otherwise a run is a burst.
    assert!(runs.iter().all(|r| r.is_multiple_of(5)));
    let bursts = lost.iter().filter(|l| **l).count() as f64 / 5.0;
    // One starts after 100 packets in the mean, and lasts five, of which the first is the hundredth.
    near(bursts, n as f64 / 104.0, 5.0 * (n as f64 / 104.0).sqrt());
}

#[test]
fn bursts_at_given_times_take_the_packets_sent_then() {
    let at = |times: &[u32], length| -> Vec<usize> {
        let times: Arc<[Duration]> = times.iter().map(|t| MS * *t).collect();
        let lost = losses(Loss::BurstsAt { times, length }, 50);
        (0..50).filter(|i| lost[*i]).collect()
    };
    assert_eq!(at(&[0, 10, 20], 2), [0, 1, 10, 11, 20, 21]);
    // A time within a run is used up by it.
    assert_eq!(at(&[5, 6, 30], 3), [5, 6, 7, 30, 31, 32]);
}

fn delays(config: &LinkConfig, n: u64) -> Vec<f64> {
    fates(config, n).iter().map(|f| f.delay.as_secs_f64() * 1e3).collect()
}

/// The correlation of neighbours.
fn correlation(values: &[f64]) -> f64 {
    let (m, d) = (mean(values), deviation(values));
    mean(&values.windows(2).map(|w| (w[0] - m) * (w[1] - m)).collect::<Vec<_>>()) / (d * d)
}

#[test]
fn jitter_has_the_moments_of_its_distribution() {
    let n = 100_000;
    let root = (n as f64).sqrt();
    let with = |jitter| LinkConfig { jitter, ..LinkConfig::delay(MS * 50) };
    let uniform = delays(&with(Jitter::Uniform(MS * 12)), n);
    near(mean(&uniform), 56.0, 5.0 * 3.464 / root);
    near(deviation(&uniform), 12.0 / 12f64.sqrt(), 0.03);
    assert!(uniform.iter().all(|d| (50.0..62.0).contains(d)));
    let normal = delays(&with(Jitter::Normal(MS * 5)), n);
    near(mean(&normal), 50.0, 5.0 * 5.0 / root);
    near(deviation(&normal), 5.0, 0.06);
    // Within one, two and three deviations: 68.27, 95.45 and 99.73 per cent.
    for (k, p) in [(1.0, 0.6827), (2.0, 0.9545), (3.0, 0.9973f64)] {
        let share = normal.iter().filter(|d| (*d - 50.0).abs() < 5.0 * k).count() as f64 / n as f64;
        near(share, p, 5.0 * (p * (1.0 - p)).sqrt() / root);
    }
    // Shape 4 and scale 6 ms: mean 2 ms, variance 6² · 4 / (3² · 2) = 8.
    let pareto = delays(&with(Jitter::Pareto { scale: MS * 6, shape: 4.0 }), n);
    near(mean(&pareto), 52.0, 5.0 * 8f64.sqrt() / root);
    near(deviation(&pareto), 8f64.sqrt(), 0.3);
    // The tail itself: P(X > x) = (1 + x / 6)⁻⁴.
    for x in [1.0, 6.0, 20.0] {
        let share = pareto.iter().filter(|d| **d > 50.0 + x).count() as f64 / n as f64;
        let p = (1.0 + x / 6.0f64).powi(-4);
        near(share, p, 5.0 * (p * (1.0 - p)).sqrt() / root);
    }
}

#[test]
fn no_jitter_makes_a_delay_negative_or_endless() {
    let normal = LinkConfig { jitter: Jitter::Normal(MS * 10), ..LinkConfig::delay(MS * 5) };
    let got = delays(&normal, 20_000);
    // A normal variable is below half a deviation under its mean in 30.85 per cent.
    near(got.iter().filter(|d| **d == 0.0).count() as f64 / 20_000.0, 0.3085, 0.017);
    let endless = LinkConfig { jitter: Jitter::Pareto { scale: MS * 1000, shape: 0.01 }, ..LinkConfig::default() };
    assert!(delays(&endless, 1000).iter().all(|d| *d <= 3_600_000.0));
}

#[test]
fn recorded_jitter_is_repeated() {
    let jitter = Jitter::Values([MS, MS * 5, MS * 2].into());
    let got = delays(&LinkConfig { jitter, ..LinkConfig::delay(MS * 10) }, 5);
    assert_eq!(got.iter().map(|d| d.round() as u32).collect::<Vec<_>>(), [11, 15, 12, 11, 15]);
    let none = LinkConfig { jitter: Jitter::Values([].into()), ..LinkConfig::delay(MS * 10) };
    assert_eq!(delays(&none, 1), [10.0]);
}

#[test]
fn correlation_joins_neighbours_and_leaves_the_distribution_alone() {
    let n = 100_000;
    let with = |jitter, rho| LinkConfig { jitter, jitter_correlation: rho, ..LinkConfig::delay(MS * 50) };
    let normal = delays(&with(Jitter::Normal(MS * 5), 0.8), n);
    near(correlation(&normal), 0.8, 0.02);
    near(deviation(&normal), 5.0, 0.2);
    near(correlation(&delays(&with(Jitter::Normal(MS * 5), 0.0), n)), 0.0, 0.016);
    // For a uniform variable behind a normal one the correlation is 6/π · asin(ρ/2).
    let uniform = delays(&with(Jitter::Uniform(MS * 12), 0.8), n);
    near(correlation(&uniform), 6.0 / core::f64::consts::PI * 0.4f64.asin(), 0.02);
    near(deviation(&uniform), 12.0 / 12f64.sqrt(), 0.08);
    assert!(uniform.iter().all(|d| (50.0..62.0).contains(d)));
}

#[test]
fn copies_wrong_bits_and_overtakers_are_as_frequent_as_they_should() {
    let n = 50_000;
    let config = LinkConfig {
        duplicate: 0.1,
        corrupt: 0.2,
        overtaking: Some(Overtaking { probability: 0.25, gap: 0 }),
        ..LinkConfig::delay(MS)
    };
    let fates = fates(&config, n);
    let share = |pick: fn(&Fate) -> bool| fates.iter().filter(|f| pick(f)).count() as f64 / n as f64;
    near(share(|f| f.copy.is_some()), 0.1, 0.007);
    near(share(|f| f.corrupt.is_some()), 0.2, 0.009);
    near(share(|f| f.overtakes), 0.25, 0.01);
    assert!(fates.iter().all(|f| f.overtakes == f.delay.is_zero()));
    // The bits are spread over the payload.
    let bits: Vec<f64> = fates.iter().filter_map(|f| f.corrupt).map(|c| f64::from(c.bit)).collect();
    assert!(bits.iter().all(|b| *b < 800.0));
    near(mean(&bits), 399.5, 5.0 * 231.0 / 100.0);
}

#[test]
fn with_a_gap_every_nth_packet_overtakes() {
    let overtaking = Some(Overtaking { probability: 1.0, gap: 5 });
    let got = fates(&LinkConfig { overtaking, ..LinkConfig::delay(MS) }, 21);
    let at: Vec<usize> = (0..21).filter(|i| got[*i].overtakes).collect();
    assert_eq!(at, [4, 9, 14, 19]);
}

#[test]
fn each_chance_is_independent_of_the_others() {
    let base = LinkConfig { jitter: Jitter::Normal(MS), ..LinkConfig::delay(MS * 10) };
    let plain = fates(&base, 500);
    let all = LinkConfig { loss: Loss::Random(0.3), duplicate: 0.5, corrupt: 0.5, ..base };
    let mixed = fates(&all, 500);
    assert!(mixed.iter().zip(&plain).all(|(m, p)| m.lost || m.delay == p.delay));
    let lost: Vec<bool> = mixed.iter().map(|f| f.lost).collect();
    assert_eq!(lost, losses(Loss::Random(0.3), 500));
    // What a lower rate loses, a higher one loses too.
    let fewer = losses(Loss::Random(0.1), 500);
    assert!(fewer.iter().zip(&lost).all(|(f, l)| !f || *l));
}
