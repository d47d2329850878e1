//! Delay that differs from packet to packet.

use crate::config::LinkConfig;
use crate::draw::Stream;
use core::f64::consts::{FRAC_1_SQRT_2, TAU};
use core::time::Duration;
use neater_base::Rng;
use std::sync::Arc;

/// The longest delay that jitter makes: heavy tails have no end of their own.
pub(crate) const MAX_DELAY: Duration = Duration::from_secs(3600);

/// Extra delay that differs from packet to packet. No packet is delayed by less than nothing or more than an hour.
///
/// With [`LinkConfig::jitter_correlation`] ρ, the normal variable behind each packet's jitter is ρ times that of the packet
/// before it plus `sqrt(1 - ρ²)` times a new one; the other distributions take the quantile of its probability. So each
/// keeps its shape, exactly, and neighbours are correlated by about ρ. [`Jitter::Values`] has no chance to correlate.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Jitter {
    /// None.
    #[default]
    None,
    /// Uniform between zero and this.
    Uniform(Duration),
    /// Normal with this standard deviation and mean zero: it shortens the propagation delay as often as it lengthens it,
    /// but not below zero.
    Normal(Duration),
    /// Pareto, from zero on (Lomax): longer than x with probability `(1 + x / scale)` to the power of `-shape`. The mean is
    /// `scale / (shape - 1)` for shapes over 1, the variance is finite for shapes over 2.
    Pareto {
        /// The scale, in time.
        scale: Duration,
        /// The shape, over 0: the smaller, the heavier the tail.
        shape: f64,
    },
    /// These delays, by the packet's index, again and again.
    Values(Arc<[Duration]>),
}

impl From<Duration> for Jitter {
    /// Uniform between zero and this; none for zero.
    fn from(most: Duration) -> Self {
        if most.is_zero() { Self::None } else { Self::Uniform(most) }
    }
}

#[derive(Debug)]
pub(super) struct JitterState {
    radius: Stream,
    angle: Stream,
    /// The normal variable behind the last packet's jitter.
    last: Option<f64>,
}

impl JitterState {
    pub(super) fn new(rng: &mut Rng) -> Self {
        Self { radius: Stream::new(rng), angle: Stream::new(rng), last: None }
    }

    /// How long packet number `index` travels.
    pub(super) fn delay(&mut self, config: &LinkConfig, index: u64) -> Duration {
        let base = config.delay.as_nanos() as f64;
        let extra = match &config.jitter {
            Jitter::None => return config.delay,
            Jitter::Values(values) if values.is_empty() => return config.delay,
            Jitter::Values(values) => {
                return config.delay + values[(index % values.len() as u64) as usize].min(MAX_DELAY);
            }
            Jitter::Uniform(most) => most.as_nanos() as f64 * self.probability(config, index),
            Jitter::Normal(deviation) => deviation.as_nanos() as f64 * self.normal(config, index),
            Jitter::Pareto { scale, shape } => {
                let tail = 1.0 - self.probability(config, index);
                let quantile = libm::pow(tail.max(f64::MIN_POSITIVE), -1.0 / shape.max(1e-3)) - 1.0;
                (scale.as_nanos() as f64 * quantile).min(MAX_DELAY.as_nanos() as f64)
            }
        };
        // The cast saturates: below zero it is 0.
        Duration::from_nanos((base + extra) as u64)
    }

    /// Uniform over `[0, 1)`.
    fn probability(&mut self, config: &LinkConfig, index: u64) -> f64 {
        if config.jitter_correlation > 0.0 {
            let z = self.normal(config, index);
            (0.5 * libm::erfc(-z * FRAC_1_SQRT_2)).min(1.0 - f64::EPSILON)
        } else {
            self.radius.unit(index)
        }
    }

    /// Normal with mean 0 and deviation 1 (Box and Muller 1958), correlated with that of the packet before it.
    fn normal(&mut self, config: &LinkConfig, index: u64) -> f64 {
        let radius = (-2.0 * libm::log(1.0 - self.radius.unit(index))).sqrt();
        let new = radius * libm::cos(TAU * self.angle.unit(index));
        let rho = config.jitter_correlation.clamp(0.0, 0.999_999);
        let z = match self.last {
            Some(last) if rho > 0.0 => rho * last + (1.0 - rho * rho).sqrt() * new,
            _ => new,
        };
        self.last = Some(z);
        z
    }
}
