//! A link that holds its packets, around the link model's verdicts.

use neater_base::Instant;
use neater_link::{Counters, DropReason, LinkConfig, PacketMeta, Verdict};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

pub enum Output<P> {
    Deliver { packet: P, at: Instant, ce: bool, corrupt: Option<u64>, copy: bool },
    Drop { packet: P, reason: DropReason },
}

pub struct Link<P> {
    model: neater_link::Link,
    seq: u64,
    wire: BinaryHeap<Reverse<(Instant, u64, usize)>>,
    slots: Vec<Option<P>>,
    free: Vec<usize>,
    dropped: VecDeque<(P, DropReason)>,
}

impl<P> Link<P> {
    pub fn new(config: LinkConfig, seed: u64) -> Self {
        Self {
            model: neater_link::Link::new(config, seed),
            seq: 0,
            wire: BinaryHeap::with_capacity(1024),
            slots: Vec::with_capacity(1024),
            free: Vec::with_capacity(1024),
            dropped: VecDeque::new(),
        }
    }
    pub fn config(&self) -> &LinkConfig {
        self.model.config()
    }
    pub fn set_config(&mut self, _now: Instant, config: LinkConfig) {
        self.model.set_config(config);
    }
    pub fn offer(&mut self, now: Instant, packet: P, len: u32, meta: &PacketMeta) {
        match self.model.offer(now, len, meta) {
            Verdict::Deliver(at) => {
                let slot = self.free.pop().unwrap_or_else(|| {
                    self.slots.push(None);
                    self.slots.len() - 1
                });
                self.slots[slot] = Some(packet);
                self.seq += 1;
                self.wire.push(Reverse((at, self.seq, slot)));
            }
            Verdict::Drop(reason) => self.dropped.push_back((packet, reason)),
        }
    }
    pub fn next_timeout(&self) -> Option<Instant> {
        self.wire.peek().map(|r| r.0.0)
    }
    pub fn poll(&mut self, now: Instant) -> Option<Output<P>> {
        if let Some((packet, reason)) = self.dropped.pop_front() {
            return Some(Output::Drop { packet, reason });
        }
        let at = self.next_timeout().filter(|at| *at <= now)?;
        let Reverse((_, _, slot)) = self.wire.pop()?;
        let packet = self.slots[slot].take()?;
        self.free.push(slot);
        Some(Output::Deliver { packet, at, ce: false, corrupt: None, copy: false })
    }
    pub fn counters(&self) -> Counters {
        self.model.counters()
    }
    pub fn queued_bytes(&mut self, now: Instant) -> u64 {
        self.model.queued_bytes(now)
    }
}
