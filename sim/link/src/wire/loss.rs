//! Which packets are lost.

use crate::draw::Stream;
use core::time::Duration;
use neater_base::{Instant, Rng};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Which packets are lost on the wire, after they have been through the queue.
///
/// The first packet ever offered to the link has index 0; packets that the filter, the MTU or the queue stop count too.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// Each with this probability, 0 to 1, independently (Bernoulli).
    Random(f64),
    /// The packets with these indices. Copies of a configuration share them.
    Indices(Arc<BTreeSet<u64>>),
    /// The packets whose index plus one is a multiple of this; 0 is none.
    EveryNth(u64),
    /// Two states, good and bad, each with a loss rate of its own (Gilbert 1960, Elliott 1963). Before each packet the
    /// state may change. It begins good.
    ///
    /// The share of the bad state is `to_bad / (to_bad + to_good)`; a stay there has `1 / to_good` packets in the mean.
    GilbertElliott {
        /// The probability that the good state ends: p.
        to_bad: f64,
        /// The probability that the bad state ends: r.
        to_good: f64,
        /// The probability that a packet is lost in the good state: 1 - k.
        loss_good: f64,
        /// The probability that a packet is lost in the bad state: 1 - h.
        loss_bad: f64,
    },
    /// Runs of lost packets that begin by chance.
    Bursts {
        /// The probability that a packet that is not in a run begins one, 0 to 1.
        start: f64,
        /// How many packets are lost in a run.
        length: u32,
    },
    /// Runs of lost packets at given times.
    BurstsAt {
        /// Times after the link got this loss model, ascending: the first packet whose last bit leaves then or later begins
        /// a run. Times that pass while a run goes on are used up by it.
        times: Arc<[Duration]>,
        /// How many packets are lost in a run.
        length: u32,
    },
}

#[derive(Debug)]
pub(super) struct LossState {
    luck: Stream,
    change: Stream,
    origin: Instant,
    bad: bool,
    /// How many packets of a run are still to be lost.
    left: u32,
    /// How many of the times have been used up.
    used: usize,
}

impl LossState {
    pub(super) fn new(origin: Instant, rng: &mut Rng) -> Self {
        Self { luck: Stream::new(rng), change: Stream::new(rng), origin, bad: false, left: 0, used: 0 }
    }

    pub(super) fn restart(&mut self, now: Instant) {
        (self.origin, self.bad, self.left, self.used) = (now, false, 0, 0);
    }

    pub(super) fn loses(&mut self, loss: &Loss, index: u64, sent: Instant) -> bool {
        match loss {
            Loss::None => false,
            Loss::Random(p) => self.luck.unit(index) < *p,
            Loss::Indices(indices) => indices.contains(&index),
            Loss::EveryNth(n) => (index + 1).is_multiple_of(*n),
            Loss::GilbertElliott { to_bad, to_good, loss_good, loss_bad } => {
                let ends = if self.bad { to_good } else { to_bad };
                self.bad ^= self.change.unit(index) < *ends;
                self.luck.unit(index) < if self.bad { *loss_bad } else { *loss_good }
            }
            Loss::Bursts { start, length } => {
                if self.left == 0 && self.luck.unit(index) < *start {
                    self.left = *length;
                }
                self.run()
            }
            Loss::BurstsAt { times, length } => {
                let passed = |t: &&Duration| self.origin + **t <= sent;
                let due = times.iter().skip(self.used).take_while(passed).count();
                if due > 0 && self.left == 0 {
                    self.left = *length;
                }
                self.used += due;
                self.run()
            }
        }
    }

    fn run(&mut self) -> bool {
        let lost = self.left > 0;
        self.left = self.left.saturating_sub(1);
        lost
    }
}
