//! The machine: entrance, queue, transmitter and wire of one direction.
//!
//! *Responsible for* the order of these stages: firewall and MTU at the entrance, then the queue, then the transmitter,
//! then the wire. A packet lost on the wire has therefore used its share of the rate. *Not responsible for* what happens in
//! a stage: the queue, the rate and the models of the wire have files of their own.
//!
//! The machine is lazy: what happens at a time is worked out when it is looked at, always as if it had been looked at in
//! time. A packet is put on the wire when the transmitter begins with it, because its end is known then; so a link that
//! only queues has one deadline per packet, and not two.

use crate::config::{Action, Discipline, Family, LinkConfig, PacketMeta, Protocol, QueueLimit, TooBig};
use crate::draw::{Stream, mix};
use crate::queue::{Queue, Waiting};
use crate::rate::{Rate, Transmitter};
use crate::schedule::{Change, Schedule, Timeline};
use crate::wire::{Corruption, Wire};
use neater_base::{Instant, Rng, Timers};
use std::collections::VecDeque;
use std::net::SocketAddr;

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
    /// The queue was full: for this packet, or for another one that came later.
    QueueFull,
    /// The queue's discipline dropped it before the queue was full (RED, CoDel).
    Managed,
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
        /// The queue has marked it: its ECN codepoint is to become CE.
        ce: bool,
        /// A bit has flipped.
        corrupt: Option<Corruption>,
        /// It is the second of two.
        copy: bool,
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
    /// Packets delivered, or on their way along the wire, without copies.
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
    /// Dropped by the discipline of the queue.
    pub managed: u64,
    /// Marked by the discipline of the queue, and not dropped by it.
    pub marked: u64,
    /// Lost on the wire.
    pub lost: u64,
    /// Of those delivered: with a wrong bit.
    pub corrupted: u64,
    /// Copies that were made.
    pub duplicated: u64,
    /// Of those delivered: overtook others.
    pub overtakers: u64,
    /// The most bytes that were in the queue at once.
    pub max_queued_bytes: u64,
}

impl Counters {
    /// What was done since `earlier`, which is from the same link. The fullest queue is that since [`Link::restart_peak`].
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            offered: self.offered - earlier.offered,
            delivered: self.delivered - earlier.delivered,
            delivered_bytes: self.delivered_bytes - earlier.delivered_bytes,
            down: self.down - earlier.down,
            filtered: self.filtered - earlier.filtered,
            too_big: self.too_big - earlier.too_big,
            queue_full: self.queue_full - earlier.queue_full,
            managed: self.managed - earlier.managed,
            marked: self.marked - earlier.marked,
            lost: self.lost - earlier.lost,
            corrupted: self.corrupted - earlier.corrupted,
            duplicated: self.duplicated - earlier.duplicated,
            overtakers: self.overtakers - earlier.overtakers,
            max_queued_bytes: self.max_queued_bytes,
        }
    }
}

/// A packet on the wire.
#[derive(Debug)]
struct Flight<P> {
    packet: P,
    /// When it arrives, or is lost.
    at: Instant,
    corrupt: Option<Corruption>,
    lost: bool,
    ce: bool,
    copy: bool,
}

/// One direction of a link. It holds the packets that wait or travel; `P` is whatever the user moves.
///
/// After [`Link::offer`] and at [`Link::next_timeout`], call [`Link::poll`] until it returns `None`. Time must not run
/// backwards. A late call finds what a call in time would have found, with the time at which it happened.
#[derive(Debug)]
pub struct Link<P> {
    config: LinkConfig,
    /// How many packets each rule of the firewall has concerned.
    concerned: Vec<u64>,
    queue: Queue<P>,
    /// When the first that waits may be sent.
    next_start: Instant,
    transmitter: Transmitter,
    /// Bytes of the packet that is being sent.
    sending: u32,
    wire: Wire,
    flying: Timers<Flight<P>>,
    last_arrival: Instant,
    dropped: VecDeque<(P, DropReason, Instant)>,
    /// For what the queue drops while it chooses a packet.
    victims: Vec<Waiting<P>>,
    timeline: Option<Timeline<Change>>,
    next_change: Instant,
    early: Stream,
    flow_key: u64,
    counters: Counters,
}

impl<P: Clone> Link<P> {
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
            concerned: vec![0; config.filters.len()],
            queue: Queue::new(&config.discipline),
            config,
            next_start: Instant::ZERO,
            transmitter: Transmitter::new(origin),
            sending: 0,
            wire: Wire::new(origin, &mut rng),
            flying: Timers::new(),
            last_arrival: Instant::ZERO,
            dropped: VecDeque::new(),
            victims: Vec::new(),
            timeline: None,
            next_change: Instant::FAR_FUTURE,
            early: Stream::new(&mut rng),
            flow_key: rng.u64(),
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
    /// trace begins now, and so do the times of a new loss model.
    pub fn set_config(&mut self, now: Instant, config: LinkConfig) {
        self.advance(now);
        self.replace_config(now, config);
    }

    fn replace_config(&mut self, now: Instant, config: LinkConfig) {
        let old = core::mem::replace(&mut self.config, config);
        if self.config.rate != old.rate {
            self.transmitter.restart(now);
        }
        if self.config.loss != old.loss {
            self.wire.restart_loss(now);
        }
        if self.config.filters != old.filters {
            self.concerned = vec![0; self.config.filters.len()];
        }
        if self.config.discipline != old.discipline {
            self.queue.change(&self.config.discipline);
        }
        if self.is_down() {
            self.counters.down += self.queue.len() as u64;
            self.dropped.extend(self.queue.drain().into_iter().map(|w| (w.packet, DropReason::Down, now)));
        }
        self.next_start = self.transmitter.start(&self.config.rate, now);
    }

    /// Lets the link change by itself from `origin` on, which must not be past. It replaces the schedule that there was.
    pub fn set_schedule(&mut self, origin: Instant, schedule: Schedule<Change>) {
        let timeline = Timeline::new(schedule, origin);
        self.next_change = timeline.next_timeout().unwrap_or(Instant::FAR_FUTURE);
        self.timeline = Some(timeline);
    }

    /// Makes the changes of the schedule that are due.
    #[cold]
    fn change(&mut self, now: Instant) {
        while let Some(timeline) = &mut self.timeline
            && let Some((at, change)) = timeline.pop_due(now)
        {
            let mut config = self.config.clone();
            change.apply(&mut config);
            self.next_change = timeline.next_timeout().unwrap_or(Instant::FAR_FUTURE);
            self.send_until(at);
            self.replace_config(at, config);
        }
    }

    /// What the link has done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Forgets how full the queue has been, so that the most is that from `now` on, and returns what the link has done so far.
    pub fn restart_peak(&mut self, now: Instant) -> Counters {
        self.counters.max_queued_bytes = self.queued_bytes(now);
        self.counters
    }

    /// When the last bit of everything accepted so far will have left, if nothing changes and nothing more is dropped: in
    /// the past if the link is idle.
    #[must_use]
    pub fn drained_at(&self) -> Instant {
        if self.queue.is_empty() {
            return self.transmitter.busy_until;
        }
        let bytes = u32::try_from(self.queue.bytes()).unwrap_or(u32::MAX);
        self.transmitter.clone().send(&self.config.rate, self.next_start, bytes)
    }

    /// Bytes that wait or are being sent at `now`.
    pub fn queued_bytes(&mut self, now: Instant) -> u64 {
        self.advance(now);
        self.queue.bytes() + if self.is_sending(now) { u64::from(self.sending) } else { 0 }
    }

    /// Packets that wait or are being sent at `now`.
    pub fn queued_packets(&mut self, now: Instant) -> usize {
        self.advance(now);
        self.queue.len() + usize::from(self.is_sending(now))
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
        let on_wire = self.flying.next();
        let mut next = on_wire.unwrap_or(Instant::FAR_FUTURE);
        if !self.queue.is_empty() {
            if on_wire.is_none() || self.config.reorder || self.config.overtaking.is_some() {
                next = next.min(self.next_start);
            }
            // It may drop what waits.
            next = next.min(self.next_change);
        }
        (next < Instant::FAR_FUTURE).then_some(next)
    }

    /// Takes out what has happened up to `now`.
    #[inline]
    pub fn poll(&mut self, now: Instant) -> Option<Output<P>> {
        self.advance(now);
        if let Some((packet, reason, at)) = self.dropped.pop_front() {
            return Some(Output::Drop { packet, reason, at });
        }
        let Flight { packet, at, corrupt, lost, ce, copy } = self.flying.pop_due(now)?;
        Some(if lost {
            Output::Drop { packet, reason: DropReason::Lost, at }
        } else {
            Output::Deliver { packet, at, ce, corrupt, copy }
        })
    }

    /// Offers one IP packet of `len` bytes, headers included.
    pub fn offer(&mut self, now: Instant, packet: P, len: u32, meta: &PacketMeta) {
        self.advance(now);
        let index = self.counters.offered;
        self.counters.offered += 1;
        if let Err(reason) = self.enter(len, meta) {
            return self.refuse(now, packet, reason);
        }
        let header = if Family::of(&meta.source) == Family::V4 { 20 } else { 40 };
        let idle = self.queue.is_empty() && !self.is_sending(now);
        if idle && matches!(self.config.discipline, Discipline::DropTail | Discipline::HeadDrop) {
            let start = self.transmitter.start(&self.config.rate, now);
            if start <= now {
                // As through the queue, which would hold it for no time.
                let sent = self.transmitter.send(&self.config.rate, start, len);
                self.launch(packet, index, len, header, false, sent);
                return self.note_depth(now);
            }
        }
        let flow = if matches!(self.config.discipline, Discipline::FqCodel(_)) { self.flow(meta) } else { 0 };
        let mut newcomer = Waiting { packet, index, since: now, len, flow, header, ecn: meta.ecn, marked: false };
        if !idle && !self.make_room(now, len) {
            return self.refuse(now, newcomer.packet, DropReason::QueueFull);
        }
        if matches!(self.config.discipline, Discipline::Red(_)) && !self.admit(now, &mut newcomer) {
            return self.refuse(now, newcomer.packet, DropReason::Managed);
        }
        if self.queue.is_empty() {
            self.next_start = self.transmitter.start(&self.config.rate, now);
        }
        self.queue.push(&self.config.discipline, newcomer);
        self.send_until(now);
        self.note_depth(now);
    }

    /// Remembers how full the queue is.
    fn note_depth(&mut self, now: Instant) {
        if self.is_sending(now) {
            let queued = self.queue.bytes() + u64::from(self.sending);
            self.counters.max_queued_bytes = self.counters.max_queued_bytes.max(queued);
        }
    }

    fn refuse(&mut self, now: Instant, packet: P, reason: DropReason) {
        match reason {
            DropReason::Down => self.counters.down += 1,
            DropReason::QueueFull | DropReason::WireFull => self.counters.queue_full += 1,
            DropReason::Managed => self.counters.managed += 1,
            DropReason::TooBig { .. } | DropReason::BlackHole => self.counters.too_big += 1,
            DropReason::Filtered | DropReason::Rejected => self.counters.filtered += 1,
            DropReason::Lost => self.counters.lost += 1,
        }
        self.dropped.push_back((packet, reason, now));
    }

    fn is_down(&self) -> bool {
        self.config.down || self.config.rate == Rate::Fixed(0)
    }

    fn is_sending(&self, now: Instant) -> bool {
        self.transmitter.busy_until > now
    }

    /// Whether the packet gets as far as the queue.
    fn enter(&mut self, len: u32, meta: &PacketMeta) -> Result<(), DropReason> {
        if self.is_down() {
            return Err(DropReason::Down);
        }
        for (filter, concerned) in self.config.filters.iter().zip(&mut self.concerned) {
            if filter.concerns(meta, len) {
                *concerned += 1;
                if *concerned > filter.after {
                    return Err(match filter.action {
                        Action::Drop => DropReason::Filtered,
                        Action::Reject => DropReason::Rejected,
                    });
                }
            }
        }
        if len > self.config.mtu {
            return Err(match self.config.too_big {
                TooBig::Report => DropReason::TooBig { mtu: self.config.mtu },
                TooBig::BlackHole => DropReason::BlackHole,
            });
        }
        if self.flying.len() >= MAX_PACKETS_ON_WIRE {
            return Err(DropReason::WireFull);
        }
        Ok(())
    }

    /// What the queue holds, in the unit of its limit.
    fn depth(&self, now: Instant) -> u64 {
        let sending = self.is_sending(now);
        match self.config.queue {
            QueueLimit::Bytes(_) => self.queue.bytes() + if sending { u64::from(self.sending) } else { 0 },
            QueueLimit::Packets(_) => self.queue.len() as u64 + u64::from(sending),
        }
    }

    /// Whether there is room for `len` bytes more; some disciplines drop others for it.
    fn make_room(&mut self, now: Instant, len: u32) -> bool {
        // What does not fit beside the packet that is being sent does not fit at all.
        let sending = self.is_sending(now);
        let hopeless = match self.config.queue {
            QueueLimit::Bytes(limit) => u64::from(len) + if sending { u64::from(self.sending) } else { 0 } > limit,
            QueueLimit::Packets(limit) => usize::from(sending) >= limit,
        };
        if hopeless {
            return false;
        }
        loop {
            let depth = self.depth(now);
            let full = match self.config.queue {
                QueueLimit::Bytes(limit) => depth + u64::from(len) > limit,
                QueueLimit::Packets(limit) => depth >= limit as u64,
            };
            if !full && self.queue.len() + usize::from(sending) < MAX_QUEUED_PACKETS {
                return true;
            }
            let Some(victim) = self.queue.make_room(&self.config.discipline) else { return false };
            self.refuse(now, victim.packet, DropReason::QueueFull);
        }
    }

    /// Asks RED.
    fn admit(&mut self, now: Instant, newcomer: &mut Waiting<P>) -> bool {
        let depth = self.depth(now);
        let typical = self.config.rate.mean().map_or(0.0, |rate| f64::from(self.config.mtu) * 8e9 / rate);
        let luck = self.early.unit(newcomer.index);
        self.queue.admit(&self.config.discipline, newcomer, depth, typical, luck)
    }

    /// A hash of what makes a flow (RFC 8290 section 5.1.1): addresses, ports and protocol, with a key of this link's own.
    fn flow(&self, meta: &PacketMeta) -> u32 {
        let protocol = match meta.protocol {
            Protocol::Udp => 17,
            Protocol::Tcp => 6,
            Protocol::Icmp => 1,
            Protocol::Other(number) => u64::from(number),
        };
        let mut hash = mix(self.flow_key ^ protocol);
        for address in [&meta.source, &meta.destination] {
            let (high, low) = match address {
                SocketAddr::V4(a) => (0, u64::from(a.ip().to_bits())),
                SocketAddr::V6(a) => ((a.ip().to_bits() >> 64) as u64, a.ip().to_bits() as u64),
            };
            hash = mix(mix(hash ^ high) ^ low).wrapping_add(u64::from(address.port()));
        }
        (mix(hash) >> 32) as u32
    }

    /// Lets everything happen that happens up to `now`.
    #[inline]
    fn advance(&mut self, now: Instant) {
        if self.next_change <= now {
            self.change(now);
        }
        self.send_until(now);
    }

    /// Sends what is sent up to `now`.
    #[inline]
    fn send_until(&mut self, now: Instant) {
        while !self.queue.is_empty() && self.next_start <= now {
            let start = self.next_start;
            let waiting = self.queue.pop(&self.config.discipline, start, self.config.mtu, &mut self.victims);
            if !self.victims.is_empty() {
                for victim in core::mem::take(&mut self.victims) {
                    self.refuse(start, victim.packet, DropReason::Managed);
                }
            }
            let Some(Waiting { packet, index, len, header, marked, .. }) = waiting else { break };
            let sent = self.transmitter.send(&self.config.rate, start, len);
            self.launch(packet, index, len, header, marked, sent);
            if !self.queue.is_empty() {
                self.next_start = self.transmitter.start(&self.config.rate, sent);
            }
        }
    }

    /// Puts a packet on the wire, whose last bit leaves at `sent`.
    #[inline]
    fn launch(&mut self, packet: P, index: u64, len: u32, header: u8, marked: bool, sent: Instant) {
        self.sending = len;
        let fate = self.wire.fate(&self.config, index, len.saturating_sub(u32::from(header)), sent);
        self.counters.marked += u64::from(marked);
        if fate.lost {
            self.counters.lost += 1;
            let flight = Flight { packet, at: sent, corrupt: None, lost: true, ce: false, copy: false };
            return self.flying.push(sent, flight);
        }
        self.counters.delivered += 1;
        self.counters.delivered_bytes += u64::from(len);
        self.counters.corrupted += u64::from(fate.corrupt.is_some());
        let copy = fate.copy.map(|delay| (packet.clone(), delay));
        let mut at = sent + fate.delay;
        if fate.overtakes {
            self.counters.overtakers += 1;
        } else {
            at = self.in_order(at);
        }
        let flight = Flight { packet, at, corrupt: fate.corrupt, lost: false, ce: marked, copy: false };
        self.flying.push_in_order(at, flight);
        if let Some((packet, delay)) = copy {
            self.counters.duplicated += 1;
            let at = self.in_order(sent + delay);
            let flight = Flight { packet, at, corrupt: None, lost: false, ce: marked, copy: true };
            self.flying.push_in_order(at, flight);
        }
    }

    /// When a packet arrives that would arrive at `at` if it did not have to keep its place.
    fn in_order(&mut self, at: Instant) -> Instant {
        let at = if self.config.reorder { at } else { at.max(self.last_arrival) };
        self.last_arrival = self.last_arrival.max(at);
        at
    }
}

#[cfg(test)]
mod tests;
