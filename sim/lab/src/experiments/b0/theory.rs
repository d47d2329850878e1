//! What the figures are held against: closed forms that share nothing with the link model.

use crate::measure::stats::{median, quantile};

/// How long `len` bytes take at `rate` bits per second, in milliseconds.
pub(super) fn serialisation_ms(len: u32, rate: u64) -> f64 {
    f64::from(len) * 8e3 / rate as f64
}

/// The mean wait in the queue of an M/D/1 system, in units of its service time (Pollaczek and Khinchine).
pub(super) fn md1_wait(load: f64) -> f64 {
    load / (2.0 * (1.0 - load))
}

/// Waits, in milliseconds, of packets that arrive at these times (in milliseconds) and are served one after the other for
/// `service` milliseconds each (Lindley 1952).
pub(super) fn lindley(arrivals: &[f64], service: f64) -> Vec<f64> {
    let mut free = f64::NEG_INFINITY;
    arrivals
        .iter()
        .map(|at| {
            let start = at.max(free);
            free = start + service;
            start - at
        })
        .collect()
}

/// How far the part of lost packets may be from `p` in 997 of 1,000 runs of `n` packets: three standard deviations of the
/// binomial distribution.
pub(super) fn loss_tolerance(p: f64, n: usize) -> f64 {
    3.0 * (p * (1.0 - p) / n.max(1) as f64).sqrt()
}

/// The mean length of runs of `true`; `None` if there are none.
pub(super) fn mean_run(lost: impl IntoIterator<Item = bool>) -> Option<f64> {
    let (mut runs, mut total, mut before) = (0u64, 0u64, false);
    for l in lost {
        runs += u64::from(l && !before);
        total += u64::from(l);
        before = l;
    }
    (runs > 0).then(|| total as f64 / runs as f64)
}

/// Jain's index of fairness (Jain, Chiu and Hawe 1984): 1 if all have the same.
pub(super) fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|s| s * s).sum();
    sum * sum / (shares.len() as f64 * squares)
}

/// Mean and standard deviation.
pub(super) fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    (mean, variance.sqrt())
}

/// Half the distance between the quantiles of the normal distribution at one standard deviation: its standard deviation, and
/// not moved by a few values from elsewhere.
pub(super) fn robust_deviation(values: &[f64]) -> f64 {
    // The normal distribution at -1 and 1.
    const TAIL: f64 = 0.158_655_253_931_457;
    (quantile(values, 1.0 - TAIL) - quantile(values, TAIL)) / 2.0
}

/// The time from one to the next of things that come regularly: the median over pairs half of all apart, which a few that
/// come late do not move. `None` for fewer than four.
pub(super) fn spacing(times: &[f64]) -> Option<f64> {
    let apart = times.len() / 2;
    let pairs: Vec<f64> = times.iter().zip(times.get(apart..)?).map(|(a, b)| (b - a) / apart as f64).collect();
    (apart >= 2).then(|| median(&pairs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_robust_deviation_is_that_of_the_normal_distribution_and_bears_outliers() {
        let mut rng = neater_base::Rng::from_number(1);
        let mut values: Vec<f64> = (0..20_000)
            .map(|_| (-2.0 * (1.0 - rng.unit()).ln()).sqrt() * (std::f64::consts::TAU * rng.unit()).cos() * 3.0)
            .collect();
        values.extend([1000.0; 50]);
        let got = robust_deviation(&values);
        assert!((2.94..3.06).contains(&got), "{got}");
    }

    #[test]
    fn closed_forms_have_their_textbook_values() {
        assert_eq!(serialisation_ms(1250, 1_000_000), 10.0);
        assert_eq!(md1_wait(0.5), 0.5);
        assert_eq!(md1_wait(0.8), 2.0000000000000004);
        assert_eq!(lindley(&[0.0, 1.0, 2.0, 10.0], 2.0), [0.0, 1.0, 2.0, 0.0]);
        assert_eq!(mean_run([true, true, false, true, false]), Some(1.5));
        assert_eq!(mean_run([false]), None);
        assert_eq!((jain(&[1.0, 1.0, 1.0]), jain(&[1.0, 0.0])), (1.0, 0.5));
        assert_eq!(moments(&[1.0, 3.0]), (2.0, 2f64.sqrt()));
        assert_eq!(spacing(&[0.7, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]), Some(2.0));
        assert_eq!(spacing(&[1.0, 2.0]), None);
        assert!((loss_tolerance(0.05, 20_000) - 0.004_623).abs() < 1e-5);
    }
}
