//! What happens to a packet between the last bit sent and the last bit received: loss, jitter, duplication, corruption.
//!
//! *Responsible for* deciding it. *Not responsible for* carrying packets: the link does.

mod jitter;
mod loss;

use crate::draw::Stream;
use jitter::JitterState;
use loss::LossState;
use neater_base::Rng;

pub use jitter::Jitter;
pub use loss::Loss;

use crate::config::LinkConfig;
use core::time::Duration;
use neater_base::Instant;

/// Which bit of a packet is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// Counted from the first bit after the IP header (of 20 bytes for IPv4 and 40 for IPv6), the most significant bit of
    /// each byte first.
    pub bit: u32,
}

/// What the wire does to one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Fate {
    pub(crate) lost: bool,
    /// How long it travels.
    pub(crate) delay: Duration,
    /// It overtakes others.
    pub(crate) overtakes: bool,
    pub(crate) corrupt: Option<Corruption>,
    /// A copy arrives too, and how long it travels.
    pub(crate) copy: Option<Duration>,
}

/// The chances and the state of a wire.
#[derive(Debug)]
pub(crate) struct Wire {
    loss: LossState,
    jitter: JitterState,
    copy_jitter: JitterState,
    duplicate: Stream,
    corrupt: Stream,
    which_bit: Stream,
    overtake: Stream,
    /// Packets since the last that overtook.
    since_overtaker: u32,
}

impl Wire {
    pub(crate) fn new(origin: Instant, rng: &mut Rng) -> Self {
        Self {
            loss: LossState::new(origin, rng),
            jitter: JitterState::new(rng),
            copy_jitter: JitterState::new(rng),
            duplicate: Stream::new(rng),
            corrupt: Stream::new(rng),
            which_bit: Stream::new(rng),
            overtake: Stream::new(rng),
            since_overtaker: 0,
        }
    }

    /// The loss model has changed: its times count from now.
    pub(crate) fn restart_loss(&mut self, now: Instant) {
        self.loss.restart(now);
    }

    /// Decides about packet number `index` with `payload` bytes after the IP header, whose last bit leaves at `sent`.
    #[inline]
    pub(crate) fn fate(&mut self, config: &LinkConfig, index: u64, payload: u32, sent: Instant) -> Fate {
        let mut fate = Fate { delay: config.delay, ..Fate::default() };
        if config.loss != Loss::None && self.loss.loses(&config.loss, index, sent) {
            fate.lost = true;
            return fate;
        }
        if config.jitter != Jitter::None {
            fate.delay = self.jitter.delay(config, index);
        }
        if config.corrupt > 0.0 && payload > 0 && self.corrupt.unit(index) < config.corrupt {
            let bits = u64::from(payload) * 8;
            let bit = (u128::from(self.which_bit.bits(index)) * u128::from(bits)) >> 64;
            fate.corrupt = Some(Corruption { bit: u32::try_from(bit).unwrap_or(u32::MAX) });
        }
        if config.duplicate > 0.0 && self.duplicate.unit(index) < config.duplicate {
            fate.copy = Some(self.copy_jitter.delay(config, index));
        }
        if let Some(overtaking) = &config.overtaking {
            self.since_overtaker = self.since_overtaker.saturating_add(1);
            if self.since_overtaker >= overtaking.gap && self.overtake.unit(index) < overtaking.probability {
                self.since_overtaker = 0;
                fate.overtakes = true;
                fate.delay = Duration::ZERO;
            }
        }
        fate
    }
}

#[cfg(test)]
mod tests;
