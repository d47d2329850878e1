//! Chance, by packet.
//!
//! *Responsible for* one idea: what chance decides about a packet depends on the link's seed, on what is being decided and
//! on the number of the packet, and on nothing else. So two variants of an experiment lose the same packets, a loss rate
//! that changes does not change the jitter, and a model that is switched off costs nothing.
//!
//! Each decision has a stream: SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators",
//! section 3), whose n-th number can be had without the others, from a start that `neater_base::Rng` draws.

use neater_base::Rng;

/// 2⁶⁴ divided by the golden ratio, made odd.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The next number of SplitMix64 whose state is `state`.
pub(crate) fn mix(state: u64) -> u64 {
    let z = state.wrapping_add(GAMMA);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// One stream of numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream(u64);

impl Stream {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        Self(rng.u64())
    }

    /// The number at `index`, uniform over all values.
    pub(crate) fn bits(self, index: u64) -> u64 {
        mix(self.0.wrapping_add(index.wrapping_mul(GAMMA)))
    }

    /// The number at `index`, uniform over `[0, 1)`.
    pub(crate) fn unit(self, index: u64) -> f64 {
        (self.bits(index) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_uniform_and_its_neighbours_are_independent() {
        let stream = Stream::new(&mut Rng::from_number(1));
        let n = 100_000;
        let draws: Vec<f64> = (0..n).map(|i| stream.unit(i)).collect();
        let mean = draws.iter().sum::<f64>() / n as f64;
        // The standard deviation of the mean is 0.29 / 316: five of them.
        assert!((mean - 0.5).abs() < 0.0046, "{mean}");
        let lag = draws.windows(2).map(|w| (w[0] - 0.5) * (w[1] - 0.5)).sum::<f64>() / n as f64 * 12.0;
        assert!(lag.abs() < 0.016, "{lag}");
        let mut cells = [0u32; 16];
        for u in &draws {
            cells[(u * 16.0) as usize] += 1;
        }
        let expected = n as f64 / 16.0;
        let chi2: f64 = cells.iter().map(|c| (f64::from(*c) - expected).powi(2) / expected).sum();
        // 15 degrees of freedom: 37.7 is exceeded once in a thousand.
        assert!(chi2 < 37.7, "{chi2}");
    }

    #[test]
    fn streams_differ() {
        let mut rng = Rng::from_number(1);
        let (a, b) = (Stream::new(&mut rng), Stream::new(&mut rng));
        assert!((0..100).all(|i| a.bits(i) != b.bits(i)));
    }
}
