//! Random choices, as plans need them.

use neater_base::Rng;

/// A generator with the questions that plans ask.
#[derive(Debug)]
pub(crate) struct Dice(Rng);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Rng::from_number(seed))
    }

    /// Uniform over `from..=to`.
    pub(crate) fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.0.below(to - from + 1)
    }

    /// An index of a list of this length, which must not be 0.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        self.0.below(len as u64) as usize
    }

    /// Between `from` and `to`, every order of magnitude as likely as any other.
    pub(crate) fn magnitude(&mut self, from: u64, to: u64) -> u64 {
        let (low, high) = ((from.max(1) as f64).ln(), (to as f64).ln());
        ((low + self.0.unit() * (high - low)).exp() as u64).clamp(from, to)
    }

    /// True so many times in a hundred.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.0.below(100) < percent
    }

    pub(crate) fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        let at = self.index(all.len());
        all[at].clone()
    }

    /// As many times more of one thing as it has weight.
    pub(crate) fn weighted<T: Clone>(&mut self, all: &[(u64, T)]) -> T {
        let mut at = self.0.below(all.iter().map(|(w, _)| w).sum());
        for (weight, thing) in all {
            match at.checked_sub(*weight) {
                Some(rest) => at = rest,
                None => return thing.clone(),
            }
        }
        all[all.len() - 1].1.clone()
    }
}
