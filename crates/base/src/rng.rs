//! Randomness as a seed given at creation.

use rand_chacha::ChaCha12Rng;
use rand_core::{RngCore, SeedableRng};

/// A deterministic, cryptographically strong generator: ChaCha12 over a 32-byte seed.
///
/// In production the seed comes from the operating system once per engine; in the simulator from
/// the run's number.
#[derive(Clone, Debug)]
pub struct Rng(ChaCha12Rng);

impl Rng {
    /// A generator that is a function of `seed` alone.
    #[must_use]
    pub fn new(seed: [u8; 32]) -> Self {
        Self(ChaCha12Rng::from_seed(seed))
    }

    /// A generator for tests and simulations, from a number that can be printed and typed.
    #[must_use]
    pub fn from_number(seed: u64) -> Self {
        Self(ChaCha12Rng::seed_from_u64(seed))
    }

    /// A generator independent of later draws from this one.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.seed())
    }

    /// 32 fresh bytes, to seed something else.
    #[must_use]
    pub fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        self.0.fill_bytes(&mut seed);
        seed
    }

    /// Uniform over all values.
    pub fn u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform over all values.
    pub fn u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// Uniform over all values.
    pub fn u16(&mut self) -> u16 {
        self.0.next_u32() as u16
    }

    /// Uniform over `0..bound`; 0 when `bound` is 0. The bias is below 2⁻³² for bounds under 2³²
    /// (Lemire 2019, without rejection).
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform over `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// Fills `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        self.0.fill_bytes(out);
    }

    /// Puts `items` into random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = self.below(i as u64 + 1) as usize;
            items.swap(i, j);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_sequence() {
        let (mut a, mut b) = (Rng::from_number(7), Rng::from_number(7));
        assert!((0..100).all(|_| a.u64() == b.u64()));
        assert_ne!(Rng::from_number(7).u64(), Rng::from_number(8).u64());
    }

    #[test]
    fn below_stays_below_and_reaches_everything() {
        let mut rng = Rng::from_number(1);
        let mut seen = [0u32; 6];
        for _ in 0..6000 {
            seen[rng.below(6) as usize] += 1;
        }
        assert!(seen.iter().all(|n| (800..1200).contains(n)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
    }

    #[test]
    fn unit_is_in_range() {
        let mut rng = Rng::from_number(2);
        assert!((0..1000).map(|_| rng.unit()).all(|u| (0.0..1.0).contains(&u)));
    }
}
