//! FQ-CoDel (RFC 8290): flows take turns, sparse ones go first, and CoDel rules in each.

use super::codel::{Codel, CodelState};
use super::{Fifo, Waiting};
use neater_base::Instant;
use std::collections::VecDeque;

/// The smallest quantum: less would make turns without a packet.
const MIN_QUANTUM: u32 = 256;

/// The parameters of FQ-CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCodel {
    /// What rules in each queue.
    pub codel: Codel,
    /// How many queues flows are hashed into, 1 to 65,535: 1,024 (RFC 8290 section 5.2.4).
    pub flows: u16,
    /// How many bytes a queue may send in a turn: 1,514 (section 5.2.3), at least 256.
    pub quantum: u32,
}

impl Default for FqCodel {
    fn default() -> Self {
        Self { codel: Codel { ecn: true, ..Codel::default() }, flows: 1024, quantum: 1514 }
    }
}

#[derive(Debug)]
struct Flow<P> {
    fifo: Fifo<P>,
    codel: CodelState,
    /// What it may still send in this turn, in bytes.
    deficit: i64,
    /// It is in one of the lists.
    listed: bool,
}

/// The queues of all flows.
#[derive(Debug)]
pub(super) struct FlowQueues<P> {
    flows: Vec<Flow<P>>,
    /// Queues that have just become active, which go first, and those that have had their first turn.
    new: VecDeque<u16>,
    old: VecDeque<u16>,
}

impl<P> FlowQueues<P> {
    pub(super) fn new(flows: u16) -> Self {
        let flow = || Flow { fifo: Fifo::default(), codel: CodelState::default(), deficit: 0, listed: false };
        Self {
            flows: std::iter::repeat_with(flow).take(usize::from(flows.max(1))).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
        }
    }

    /// Section 4.1.
    pub(super) fn push(&mut self, config: &FqCodel, packet: Waiting<P>) {
        let index = packet.flow as usize % self.flows.len();
        let flow = &mut self.flows[index];
        flow.fifo.push(packet);
        if !flow.listed {
            flow.listed = true;
            flow.deficit = i64::from(config.quantum.max(MIN_QUANTUM));
            self.new.push_back(index as u16);
        }
    }

    /// Section 4.2.
    pub(super) fn pop(
        &mut self,
        config: &FqCodel,
        now: Instant,
        mtu: u32,
        dropped: &mut Vec<Waiting<P>>,
    ) -> Option<Waiting<P>> {
        // Bounded: every turn raises a deficit of at most a packet's size, or takes a queue out of a list.
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let index = list.front().copied()?;
            let flow = &mut self.flows[usize::from(index)];
            if flow.deficit <= 0 {
                flow.deficit += i64::from(config.quantum.max(MIN_QUANTUM));
                list.pop_front();
                self.old.push_back(index);
                continue;
            }
            if let Some(packet) = flow.codel.pop(&config.codel, &mut flow.fifo, now, mtu, dropped) {
                flow.deficit -= i64::from(packet.len);
                return Some(packet);
            }
            list.pop_front();
            // An empty new queue waits behind the old ones, so that it does not starve them by being new again.
            if is_new {
                self.old.push_back(index);
            } else {
                flow.listed = false;
            }
        }
    }

    /// Section 4.1: when there are too many, the head of the queue with most bytes goes.
    pub(super) fn drop_from_fattest(&mut self) -> Option<Waiting<P>> {
        let active = self.new.iter().chain(&self.old);
        let fattest = active.max_by_key(|i| self.flows[usize::from(**i)].fifo.bytes).copied()?;
        self.flows[usize::from(fattest)].fifo.pop()
    }

    pub(super) fn drain(&mut self) -> Vec<Waiting<P>> {
        self.flows.iter_mut().flat_map(|f| f.fifo.packets.drain(..)).collect()
    }
}
