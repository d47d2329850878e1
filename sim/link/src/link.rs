//! The machine: entrance, queue, transmitter and wire of one direction.
//!
//! *Responsible for* the order of these stages: firewall and MTU at the entrance, then the queue, then the transmitter,
//! then the wire. A packet lost on the wire has therefore used its share of the rate. *Not responsible for* what happens in
//! a stage: the queue, the rate and the models of the wire have files of their own.
//!
//! The machine is lazy: what happens at a time is worked out when it is looked at, always as if it had been looked at in
//! time. A packet is put on the wire when the transmitter begins with it, because its end is known then; so a link that
//! only queues has one deadline per packet, and not two.

use crate::config::{Action, LinkConfig, Loss, PacketMeta, QueueLimit, TooBig};
use crate::draw::Stream;
use crate::rate::{Rate, Transmitter};
use neater_base::{Instant, Rng, Timers};
use std::collections::VecDeque;

/// The most packets that wait in one link, whatever [`QueueLimit`] says.
pub const MAX_QUEUED_PACKETS: usize = 65_536;
/// The most packets on the wire of one link: what a Tbit/s of full packets needs for ten milliseconds.
pub const MAX_PACKETS_ON_WIRE: usize = 1 << 20;

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
    /// There were [`MAX_PACKETS_ON_WIRE`] packets on the wire.
    WireFull,
    /// Lost on the wire.
    Lost,
}

/// What comes out of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Output<P> {
    /// A packet has arrived at the other end.
    #[non_exhaustive]
    Deliver {
        /// The packet.
        packet: P,
        /// When: not later than the time given to [`Link::poll`].
        at: Instant,
    },
    /// A packet will not arrive.
    #[non_exhaustive]
    Drop {
        /// The packet.
        packet: P,
        /// Why.
        reason: DropReason,
        /// When: not later than the time given to [`Link::poll`].
        at: Instant,
    },
}

/// What a link has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets offered.
    pub offered: u64,
    /// Packets delivered, or on their way along the wire.
    pub delivered: u64,
    /// Bytes of them, IP headers included.
    pub delivered_bytes: u64,
    /// Dropped because the link was down, or went down while they waited.
    pub down: u64,
    /// Dropped or rejected by the firewall.
    pub filtered: u64,
    /// Dropped because larger than the MTU.
    pub too_big: u64,
    /// Dropped by the full queue, or because the wire was full.
    pub queue_full: u64,
    /// Lost on the wire.
    pub lost: u64,
    /// The most bytes that were in the queue at once.
    pub max_queued_bytes: u64,
}

/// A packet that waits.
#[derive(Debug)]
struct Waiting<P> {
    packet: P,
    /// Bytes of the IP packet.
    len: u32,
    /// Its number: how many were offered before it.
    index: u64,
}

/// A packet on the wire.
#[derive(Debug)]
struct Flight<P> {
    packet: P,
    /// When it arrives, or is lost.
    at: Instant,
    lost: bool,
}

/// The streams of chance.
#[derive(Debug)]
struct Draws {
    loss: Stream,
    jitter: Stream,
}

/// One direction of a link. It holds the packets that wait or travel; `P` is whatever the user moves.
///
/// After [`Link::offer`] and at [`Link::next_timeout`], call [`Link::poll`] until it returns `None`. Time must not run
/// backwards. A late call finds what a call in time would have found, with the time at which it happened.
#[derive(Debug)]
pub struct Link<P> {
    config: LinkConfig,
    draws: Draws,
    waiting: VecDeque<Waiting<P>>,
    waiting_bytes: u64,
    /// When the first that waits may be sent.
    next_start: Instant,
    transmitter: Transmitter,
    /// Bytes of the packet that is being sent.
    sending: u32,
    wire: Timers<Flight<P>>,
    last_arrival: Instant,
    dropped: VecDeque<(P, DropReason, Instant)>,
    counters: Counters,
}

impl<P> Link<P> {
    /// A link whose random choices are a function of `seed`. Its origin, from which schedules and traces count, is
    /// [`Instant::ZERO`].
    #[must_use]
    pub fn new(config: LinkConfig, seed: u64) -> Self {
        Self::starting_at(Instant::ZERO, config, seed)
    }

    /// A link with another origin.
    #[must_use]
    pub fn starting_at(origin: Instant, config: LinkConfig, seed: u64) -> Self {
        let mut rng = Rng::from_number(seed);
        Self {
            config,
            draws: Draws { loss: Stream::new(&mut rng), jitter: Stream::new(&mut rng) },
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            next_start: Instant::ZERO,
            transmitter: Transmitter::new(origin),
            sending: 0,
            wire: Timers::new(),
            last_arrival: Instant::ZERO,
            dropped: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// What the link is like now.
    #[must_use]
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Changes the link. What is on the wire arrives as before, the packet that is being sent too; those that wait are
    /// sent as the new configuration says, and dropped if it is [`LinkConfig::down`]. A new rate that is a schedule or a
    /// trace begins now.
    pub fn set_config(&mut self, now: Instant, config: LinkConfig) {
        self.advance(now);
        if config.rate != self.config.rate {
            self.transmitter.restart(now);
        }
        self.config = config;
        if self.is_down() {
            self.counters.down += self.waiting.len() as u64;
            self.waiting_bytes = 0;
            self.dropped.extend(self.waiting.drain(..).map(|w| (w.packet, DropReason::Down, now)));
        }
        self.next_start = self.transmitter.start(&self.config.rate, now);
    }

    /// What the link has done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// When the last bit of everything accepted so far will have left, if nothing changes: in the past if the link is
    /// idle.
    #[must_use]
    pub fn drained_at(&self) -> Instant {
        if self.waiting.is_empty() {
            return self.transmitter.busy_until;
        }
        let bytes = u32::try_from(self.waiting_bytes).unwrap_or(u32::MAX);
        self.transmitter.clone().send(&self.config.rate, self.next_start, bytes)
    }

    /// Bytes that wait or are being sent at `now`.
    pub fn queued_bytes(&mut self, now: Instant) -> u64 {
        self.advance(now);
        self.waiting_bytes + if self.is_sending(now) { u64::from(self.sending) } else { 0 }
    }

    /// Packets that wait or are being sent at `now`.
    pub fn queued_packets(&mut self, now: Instant) -> usize {
        self.advance(now);
        self.waiting.len() + usize::from(self.is_sending(now))
    }

    /// When [`Link::poll`] may have something; in the past if it has. Drops behind the entrance may be told later than they
    /// happened, together with the next packet that comes out, and with their own time.
    #[inline]
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        if let Some((_, _, at)) = self.dropped.front() {
            return Some(*at);
        }
        // Where order is kept, nothing that still waits can come before what is on the wire.
        let on_wire = self.wire.next();
        let wait = !self.waiting.is_empty() && (on_wire.is_none() || self.config.reorder);
        let start = (wait && self.next_start < Instant::FAR_FUTURE).then_some(self.next_start);
        match (on_wire, start) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Takes out what has happened up to `now`.
    #[inline]
    pub fn poll(&mut self, now: Instant) -> Option<Output<P>> {
        self.advance(now);
        if let Some((packet, reason, at)) = self.dropped.pop_front() {
            return Some(Output::Drop { packet, reason, at });
        }
        let Flight { packet, at, lost } = self.wire.pop_due(now)?;
        Some(if lost { Output::Drop { packet, reason: DropReason::Lost, at } } else { Output::Deliver { packet, at } })
    }

    /// Offers one IP packet of `len` bytes, headers included.
    pub fn offer(&mut self, now: Instant, packet: P, len: u32, meta: &PacketMeta) {
        self.advance(now);
        let index = self.counters.offered;
        self.counters.offered += 1;
        if let Err(reason) = self.enter(now, len, meta) {
            match reason {
                DropReason::Down => self.counters.down += 1,
                DropReason::QueueFull | DropReason::WireFull => self.counters.queue_full += 1,
                DropReason::TooBig { .. } | DropReason::BlackHole => self.counters.too_big += 1,
                _ => self.counters.filtered += 1,
            }
            self.dropped.push_back((packet, reason, now));
            return;
        }
        if self.waiting.is_empty() {
            self.next_start = self.transmitter.start(&self.config.rate, now);
        }
        self.waiting.push_back(Waiting { packet, len, index });
        self.waiting_bytes += u64::from(len);
        self.advance(now);
        if self.is_sending(now) {
            let queued = self.waiting_bytes + u64::from(self.sending);
            self.counters.max_queued_bytes = self.counters.max_queued_bytes.max(queued);
        }
    }

    fn is_down(&self) -> bool {
        self.config.down || self.config.rate == Rate::Fixed(0)
    }

    fn is_sending(&self, now: Instant) -> bool {
        self.transmitter.busy_until > now
    }

    /// Whether the packet gets into the queue.
    fn enter(&mut self, now: Instant, len: u32, meta: &PacketMeta) -> Result<(), DropReason> {
        if self.is_down() {
            return Err(DropReason::Down);
        }
        match self.config.filters.iter().find(|f| f.what.matches(meta)).map(|f| f.action) {
            Some(Action::Drop) => return Err(DropReason::Filtered),
            Some(Action::Reject) => return Err(DropReason::Rejected),
            None => {}
        }
        if len > self.config.mtu {
            return Err(match self.config.too_big {
                TooBig::Report => DropReason::TooBig { mtu: self.config.mtu },
                TooBig::BlackHole => DropReason::BlackHole,
            });
        }
        if self.wire.len() >= MAX_PACKETS_ON_WIRE {
            return Err(DropReason::WireFull);
        }
        let sending = self.is_sending(now);
        let packets = self.waiting.len() + usize::from(sending);
        let full = match self.config.queue {
            QueueLimit::Bytes(limit) => {
                let bytes = self.waiting_bytes + if sending { u64::from(self.sending) } else { 0 };
                bytes + u64::from(len) > limit
            }
            QueueLimit::Packets(limit) => packets >= limit,
        };
        if packets > 0 && (full || packets >= MAX_QUEUED_PACKETS) {
            return Err(DropReason::QueueFull);
        }
        Ok(())
    }

    /// Sends what has been sent by `now`.
    #[inline]
    fn advance(&mut self, now: Instant) {
        while self.next_start <= now
            && let Some(Waiting { packet, len, index }) = self.waiting.pop_front()
        {
            self.waiting_bytes -= u64::from(len);
            self.sending = len;
            let sent = self.transmitter.send(&self.config.rate, self.next_start, len);
            self.launch(packet, len, index, sent);
            if !self.waiting.is_empty() {
                self.next_start = self.transmitter.start(&self.config.rate, sent);
            }
        }
    }

    /// Puts a packet on the wire, whose last bit leaves at `sent`.
    fn launch(&mut self, packet: P, len: u32, index: u64, sent: Instant) {
        let lost = match &self.config.loss {
            Loss::None => false,
            Loss::Random(p) => self.draws.loss.unit(index) < *p,
            Loss::Indices(indices) => indices.contains(&index),
        };
        if lost {
            self.counters.lost += 1;
            self.wire.push(sent, Flight { packet, at: sent, lost });
            return;
        }
        let mut at = sent + self.config.delay;
        if !self.config.jitter.is_zero() {
            at += self.config.jitter.mul_f64(self.draws.jitter.unit(index));
        }
        if !self.config.reorder {
            at = at.max(self.last_arrival);
        }
        self.last_arrival = self.last_arrival.max(at);
        self.counters.delivered += 1;
        self.counters.delivered_bytes += u64::from(len);
        self.wire.push_in_order(at, Flight { packet, at, lost });
    }
}

#[cfg(test)]
mod tests;
