//! Statistics: medians, slopes, and the bootstrap interval of a ratio over interleaved pairs.

use neater_base::Rng;

/// How often the bootstrap draws. Its interval then moves by less than a tenth of its width between seeds.
const RESAMPLES: usize = 4000;

/// A value with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Estimate {
    /// From the lower to the upper end.
    #[must_use]
    pub fn width(&self) -> f64 {
        self.high - self.low
    }
}

/// The quantile `q` (0 to 1) by linear interpolation; NaN of nothing.
#[must_use]
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = q.clamp(0.0, 1.0) * sorted.len().saturating_sub(1) as f64;
    match (sorted.get(at.floor() as usize), sorted.get(at.ceil() as usize)) {
        (Some(a), Some(b)) => a + (b - a) * at.fract(),
        _ => f64::NAN,
    }
}

/// The median; NaN of nothing.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// How far values typically lie from their median, as a part of it: the median of the distances, which one outlier does
/// not move. NaN of nothing.
#[must_use]
pub fn spread(values: &[f64]) -> f64 {
    let middle = median(values);
    let distances: Vec<f64> = values.iter().map(|v| (v - middle).abs()).collect();
    median(&distances) / middle.abs()
}

/// Cost of one more: the slope of the line through two points, so that what every run pays once does not count.
#[must_use]
pub fn slope(small: (u64, u64), large: (u64, u64)) -> f64 {
    (large.1 as f64 - small.1 as f64) / (large.0 as f64 - small.0 as f64)
}

/// A statistic of paired samples with its percentile bootstrap interval of 95 %. Pairs are drawn as pairs, so that what
/// disturbs both sides of one does not widen the interval. `None` if there are no pairs or they are of unequal number.
#[must_use]
pub fn bootstrap(a: &[f64], b: &[f64], rng: &mut Rng, statistic: impl Fn(&[f64], &[f64]) -> f64) -> Option<Estimate> {
    if a.is_empty() || a.len() != b.len() {
        return None;
    }
    let value = statistic(a, b);
    let mut draws: Vec<f64> = Vec::with_capacity(RESAMPLES);
    let (mut ra, mut rb) = (a.to_vec(), b.to_vec());
    for _ in 0..RESAMPLES {
        for i in 0..a.len() {
            let j = rng.below(a.len() as u64) as usize;
            (ra[i], rb[i]) = (a[j], b[j]);
        }
        draws.push(statistic(&ra, &rb));
    }
    Some(Estimate { value, low: quantile(&draws, 0.025), high: quantile(&draws, 0.975) })
}

/// The ratio of the medians, `a` over `b`.
#[must_use]
pub fn ratio_of_medians(a: &[f64], b: &[f64], rng: &mut Rng) -> Option<Estimate> {
    bootstrap(a, b, rng, |a, b| median(a) / median(b))
}

/// The difference of the medians, `a` minus `b`.
#[must_use]
pub fn difference_of_medians(a: &[f64], b: &[f64], rng: &mut Rng) -> Option<Estimate> {
    bootstrap(a, b, rng, |a, b| median(a) - median(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
        assert_eq!(quantile(&[0.0, 10.0], 0.9), 9.0);
        assert_eq!(quantile(&[7.0], 0.1), 7.0);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn the_spread_is_a_part_of_the_median_and_ignores_an_outlier() {
        assert_eq!(spread(&[100.0, 101.0, 99.0]), 0.01);
        assert_eq!(spread(&[100.0, 5000.0, 98.0]), 0.02);
        assert_eq!(spread(&[7.0]), 0.0);
    }

    #[test]
    fn a_slope_ignores_what_is_paid_once() {
        assert_eq!(slope((256, 1000 + 256 * 7), (2048, 1000 + 2048 * 7)), 7.0);
        assert_eq!(slope((256, 500), (2048, 500)), 0.0);
    }

    #[test]
    fn the_bootstrap_finds_a_known_ratio_and_is_a_function_of_its_seed() {
        let mut rng = Rng::from_number(1);
        let noisy: Vec<f64> = (0..40).map(|_| 100.0 + 4.0 * rng.unit()).collect();
        let slower: Vec<f64> = (0..40).map(|_| 1.2 * (100.0 + 4.0 * rng.unit())).collect();
        let e = ratio_of_medians(&slower, &noisy, &mut Rng::from_number(2)).expect("pairs");
        assert!(e.low <= e.value && e.value <= e.high, "{e:?}");
        assert!(e.low > 1.17 && e.high < 1.23, "{e:?}");
        assert_eq!(Some(e), ratio_of_medians(&slower, &noisy, &mut Rng::from_number(2)));
        let same = ratio_of_medians(&noisy, &noisy, &mut rng).expect("pairs");
        assert_eq!((same.low, same.high), (1.0, 1.0), "pairs are drawn as pairs");
    }

    #[test]
    fn the_interval_covers_the_truth_about_as_often_as_it_says() {
        let mut rng = Rng::from_number(9);
        let mut covered = 0;
        for _ in 0..60 {
            let mut draw = || (0..30).map(|_| 50.0 + 10.0 * (rng.unit() + rng.unit())).collect::<Vec<_>>();
            let (a, b) = (draw(), draw());
            let e = difference_of_medians(&a, &b, &mut rng).expect("pairs");
            covered += u32::from(e.low <= 0.0 && 0.0 <= e.high);
        }
        assert!((50..=60).contains(&covered), "{covered} of 60");
    }

    #[test]
    fn no_pairs_give_no_estimate() {
        let mut rng = Rng::from_number(3);
        assert_eq!(ratio_of_medians(&[], &[], &mut rng), None);
        assert_eq!(ratio_of_medians(&[1.0], &[], &mut rng), None);
    }
}
