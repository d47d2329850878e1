//! The machine: rate, queue, delay, jitter, loss and filter of one direction.
//!
//! *Responsible for* the order of these stages: firewall and MTU at the entrance, then the queue and the transmitter,
//! then the wire. A packet lost on the wire has therefore used its share of the rate. *Not responsible for* looking
//! into the future: a verdict once given stands, so a change of configuration concerns the packets offered after it.
//!
//! Because the queue is first in, first out, the time a packet will wait is known when it arrives; an active queue
//! manager that decides by sojourn time can therefore decide in [`Link::offer`] too.

use crate::config::{Action, LinkConfig, Loss, PacketMeta, QueueLimit, TooBig};
use core::time::Duration;
use neater_base::{Instant, Rng};
use std::collections::VecDeque;

/// The most packets that wait in one link, whatever [`QueueLimit`] says.
pub const MAX_QUEUED_PACKETS: usize = 65_536;

/// Why a packet did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DropReason {
    /// The link is down.
    Down,
    /// A firewall rule dropped it silently.
    Filtered,
    /// A firewall rule rejected it: the sender is to be told.
    Rejected,
    /// Larger than the MTU: the sender is to be told what fits.
    TooBig {
        /// The MTU of the link, in bytes.
        mtu: u32,
    },
    /// Larger than the MTU, and nobody says so.
    BlackHole,
    /// The queue was full.
    QueueFull,
    /// Lost on the wire.
    Lost,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// It arrives at this time.
    Deliver(Instant),
    /// It does not arrive.
    Drop(DropReason),
}

/// What a link has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets offered.
    pub offered: u64,
    /// Packets delivered, or on their way.
    pub delivered: u64,
    /// Bytes of them, IP headers included.
    pub delivered_bytes: u64,
    /// Dropped because the link was down.
    pub down: u64,
    /// Dropped or rejected by the firewall.
    pub filtered: u64,
    /// Dropped because larger than the MTU.
    pub too_big: u64,
    /// Dropped by the full queue.
    pub queue_full: u64,
    /// Lost on the wire.
    pub lost: u64,
    /// The most bytes that were in the queue at once.
    pub max_queued_bytes: u64,
}

/// One direction of a link.
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    rng: Rng,
    /// When the last bit of each packet leaves, and its length, for packets whose last bit has not left.
    queue: VecDeque<(Instant, u32)>,
    queued_bytes: u64,
    busy_until: Instant,
    last_arrival: Instant,
    counters: Counters,
}

impl Link {
    /// A link whose random choices are a function of `seed`.
    #[must_use]
    pub fn new(config: LinkConfig, seed: u64) -> Self {
        Self {
            config,
            rng: Rng::from_number(seed),
            queue: VecDeque::new(),
            queued_bytes: 0,
            busy_until: Instant::ZERO,
            last_arrival: Instant::ZERO,
            counters: Counters::default(),
        }
    }

    /// What the link is like now.
    #[must_use]
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Changes the link. Packets already accepted keep their time of arrival, and later ones wait for them.
    pub fn set_config(&mut self, config: LinkConfig) {
        self.config = config;
    }

    /// What the link has done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// When the last bit of everything accepted so far has left the queue: in the past if the link is idle.
    #[must_use]
    pub fn busy_until(&self) -> Instant {
        self.busy_until
    }

    /// Bytes that wait or are being sent at `now`.
    pub fn queued_bytes(&mut self, now: Instant) -> u64 {
        self.expire(now);
        self.queued_bytes
    }

    /// Offers one IP packet of `packet_len` bytes, headers included. `now` must not run backwards.
    pub fn offer(&mut self, now: Instant, packet_len: u32, meta: &PacketMeta) -> Verdict {
        let index = self.counters.offered;
        self.counters.offered += 1;
        if let Err(reason) = self.enter(now, packet_len, meta) {
            match reason {
                DropReason::Down => self.counters.down += 1,
                DropReason::QueueFull => self.counters.queue_full += 1,
                DropReason::TooBig { .. } | DropReason::BlackHole => self.counters.too_big += 1,
                _ => self.counters.filtered += 1,
            }
            return Verdict::Drop(reason);
        }
        let sent = self.transmit(now, packet_len);
        // Both numbers are drawn for every packet so that a changed loss rate does not change the jitter.
        let (luck, stretch) = (self.rng.unit(), self.rng.unit());
        let lost = match &self.config.loss {
            Loss::None => false,
            Loss::Random(p) => luck < *p,
            Loss::Indices(indices) => indices.contains(&index),
        };
        if lost {
            self.counters.lost += 1;
            return Verdict::Drop(DropReason::Lost);
        }
        let mut arrival = sent + self.config.delay + self.config.jitter.mul_f64(stretch);
        if !self.config.reorder {
            arrival = arrival.max(self.last_arrival);
        }
        self.last_arrival = self.last_arrival.max(arrival);
        self.counters.delivered += 1;
        self.counters.delivered_bytes += u64::from(packet_len);
        Verdict::Deliver(arrival)
    }

    /// Whether the packet gets as far as the transmitter.
    fn enter(&mut self, now: Instant, packet_len: u32, meta: &PacketMeta) -> Result<(), DropReason> {
        if self.config.down || self.config.rate == Some(0) {
            return Err(DropReason::Down);
        }
        match self.config.filters.iter().find(|f| f.what.matches(meta)).map(|f| f.action) {
            Some(Action::Drop) => return Err(DropReason::Filtered),
            Some(Action::Reject) => return Err(DropReason::Rejected),
            None => {}
        }
        if packet_len > self.config.mtu {
            return Err(match self.config.too_big {
                TooBig::Report => DropReason::TooBig { mtu: self.config.mtu },
                TooBig::BlackHole => DropReason::BlackHole,
            });
        }
        self.expire(now);
        let full = match self.config.queue {
            QueueLimit::Bytes(limit) => self.queued_bytes + u64::from(packet_len) > limit,
            QueueLimit::Packets(limit) => self.queue.len() >= limit,
        };
        if !self.queue.is_empty() && (full || self.queue.len() >= MAX_QUEUED_PACKETS) {
            return Err(DropReason::QueueFull);
        }
        Ok(())
    }

    /// Puts the packet behind the others and returns when its last bit is sent.
    fn transmit(&mut self, now: Instant, packet_len: u32) -> Instant {
        let start = self.busy_until.max(now);
        let sent = start + self.config.rate.map_or(Duration::ZERO, |rate| serialisation(packet_len, rate));
        self.busy_until = sent;
        if sent > now {
            self.queue.push_back((sent, packet_len));
            self.queued_bytes += u64::from(packet_len);
            self.counters.max_queued_bytes = self.counters.max_queued_bytes.max(self.queued_bytes);
        }
        sent
    }

    fn expire(&mut self, now: Instant) {
        while let Some(&(sent, len)) = self.queue.front() {
            if sent > now {
                break;
            }
            self.queue.pop_front();
            self.queued_bytes -= u64::from(len);
        }
    }
}

/// How long `len` bytes take at `rate` bits per second, rounded up to a nanosecond. `rate` is not 0.
fn serialisation(len: u32, rate: u64) -> Duration {
    let nanos = (u128::from(len) * 8 * 1_000_000_000).div_ceil(u128::from(rate.max(1)));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
