//! Where values are on an axis, and where the axis has its marks.

/// How values are spread over an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// Equal distances are equal differences; the axis contains zero.
    #[default]
    Linear,
    /// Equal distances are equal differences; the axis is about the data alone.
    Close,
    /// Equal distances are equal ratios; values must be positive, others are left out.
    Log,
}

/// A scale from values to pixels.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    from: f64,
    to: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    log: bool,
    marks: Vec<f64>,
}

impl Scale {
    /// A scale that has room for all values between the pixels `from` and `to`, with about `most` marks at the most.
    pub(super) fn new(values: impl Iterator<Item = f64>, spread: Spread, (from, to): (f64, f64), most: f64) -> Self {
        let log = spread == Spread::Log;
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for v in values.filter(|v| v.is_finite() && !(log && *v <= 0.0)) {
            (low, high) = (low.min(v), high.max(v));
        }
        if low > high {
            (low, high) = if log { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        if log {
            return Self::logarithmic(low, high, (from, to), most);
        }
        if spread == Spread::Linear {
            (low, high) = (low.min(0.0), high.max(0.0));
        }
        if high - low <= f64::EPSILON * high.abs().max(low.abs()) {
            let half = if high == 0.0 { 0.5 } else { high.abs() * 0.05 };
            (low, high) = if spread == Spread::Linear { (low, low + 1.0) } else { (low - half, high + half) };
        }
        let span = high - low;
        let power = 10f64.powf((span / most).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|s| s * power).into_iter().find(|s| span / s <= most).unwrap_or(span);
        let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
        let n = ((high - low) / step).round() as usize;
        // The product of a whole number keeps marks such as 0.3 free of rounding errors that would be printed.
        let first = (low / step).round();
        let marks = (0..=n).map(|i| (first + i as f64) * step).collect();
        Self { from, to, low, high, log, marks }
    }

    fn logarithmic(low: f64, high: f64, (from, to): (f64, f64), most: f64) -> Self {
        let at = |v: f64| (v.log10() + 1e-9).floor() as i32;
        let decades = at(low)..=at(high) + 1;
        let steps = |parts: &'static [f64]| -> Vec<f64> {
            let all: Vec<f64> =
                decades.clone().flat_map(|d| parts.iter().map(move |p| round(p * 10f64.powi(d)))).collect();
            let first = all.iter().rposition(|m| *m <= low * (1.0 + 1e-9)).unwrap_or(0);
            let last = all.iter().position(|m| *m >= high * (1.0 - 1e-9)).unwrap_or(all.len() - 1);
            all[first..=last.max((first + 1).min(all.len() - 1))].to_vec()
        };
        let fine = steps(&[1.0, 2.0, 5.0]);
        let mut marks = if fine.len() as f64 <= most + 2.0 { fine } else { steps(&[1.0]) };
        if marks.len() < 2 {
            marks = vec![low / 2.0, low, low * 2.0];
        }
        let (low, high) = (marks[0], marks[marks.len() - 1]);
        Self { from, to, low, high, log: true, marks }
    }

    /// The pixel of a value; values outside are at the ends.
    pub(super) fn at(&self, v: f64) -> f64 {
        let v = v.clamp(self.low, self.high);
        let part = if self.log {
            (v / self.low).ln() / (self.high / self.low).ln()
        } else {
            (v - self.low) / (self.high - self.low)
        };
        self.from + part * (self.to - self.from)
    }

    /// Whether a value can be drawn at all.
    pub(super) fn has(&self, v: f64) -> bool {
        v.is_finite() && !(self.log && v <= 0.0)
    }

    pub(super) fn marks(&self) -> &[f64] {
        &self.marks
    }

    /// The words at the marks: as many digits as the marks need, the same for all of a linear scale.
    pub(super) fn labels(&self) -> Vec<String> {
        let digits = |v: f64| {
            (0..6)
                .find(|d| (v * 10f64.powi(*d)).fract().abs().min(1.0 - (v * 10f64.powi(*d)).fract().abs()) < 1e-6)
                .unwrap_or(6) as usize
        };
        let all = self.marks.iter().map(|m| digits(*m)).max().unwrap_or(0);
        self.marks.iter().map(|m| grouped(*m, if self.log { digits(*m) } else { all })).collect()
    }
}

fn round(v: f64) -> f64 {
    let scale = 10f64.powf(12.0 - v.abs().log10().ceil());
    (v * scale).round() / scale
}

/// A number with so many decimals and its thousands set apart.
fn grouped(v: f64, decimals: usize) -> String {
    let text = format!("{v:.decimals$}");
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), None), |(w, f)| (w, Some(f)));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |d| ("−", d));
    let mut out = sign.to_owned();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    if let Some(f) = fraction {
        out.push('.');
        out.push_str(f);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(values: &[f64], spread: Spread) -> Scale {
        Scale::new(values.iter().copied(), spread, (0.0, 100.0), 6.0)
    }

    #[test]
    fn linear_marks_are_round_and_contain_zero_and_the_data() {
        let s = scale(&[3.0, 68.0], Spread::Linear);
        assert_eq!(s.marks(), [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!(s.labels(), ["0", "20", "40", "60", "80"]);
        assert_eq!((s.at(0.0), s.at(40.0), s.at(200.0)), (0.0, 50.0, 100.0));
        let close = scale(&[0.93, 0.99], Spread::Close);
        assert!(close.low >= 0.9 && close.high <= 1.0, "{close:?}");
        assert!(close.labels().iter().all(|l| l.len() == 4), "{:?}", close.labels());
    }

    #[test]
    fn marks_below_zero_have_a_sign_and_thousands_are_set_apart() {
        assert_eq!(scale(&[-0.3, 0.1], Spread::Linear).labels(), ["−0.3", "−0.2", "−0.1", "0.0", "0.1"]);
        assert_eq!(scale(&[4000.0], Spread::Linear).labels().last().map(String::as_str), Some("4,000"));
    }

    #[test]
    fn logarithmic_marks_are_one_two_five_or_decades() {
        let s = scale(&[80.0, 800.0], Spread::Log);
        assert_eq!(s.marks(), [50.0, 100.0, 200.0, 500.0, 1000.0]);
        let wide = scale(&[0.001, 1000.0], Spread::Log);
        assert_eq!(wide.labels(), ["0.001", "0.01", "0.1", "1", "10", "100", "1,000"]);
        assert!(!wide.has(0.0) && wide.has(0.5));
        assert!((wide.at(1.0) - 50.0).abs() < 1e-9);
    }

    #[test]
    fn any_data_gives_a_scale_of_finite_pixels() {
        for spread in [Spread::Linear, Spread::Close, Spread::Log] {
            for values in [&[][..], &[0.0], &[5.0], &[-3.0, -3.0], &[f64::NAN], &[1e-9, 1e9], &[7.0, 7.1]] {
                let s = scale(values, spread);
                assert!(s.marks().len() >= 2, "{spread:?} {values:?}");
                assert!(values.iter().filter(|v| s.has(**v)).all(|v| (0.0..=100.0).contains(&s.at(*v))));
            }
        }
    }
}
