//! What waits for the transmitter, and who is dropped or marked when there is too much of it.
//!
//! *Responsible for* disciplines: first in, first out with several ways to overflow, RED, CoDel and FQ-CoDel. *Not
//! responsible for* the limit itself, which also counts the packet that is being sent: the link knows it.

mod codel;
mod fq_codel;
mod red;

use crate::config::Discipline;
use codel::CodelState;
use fq_codel::FlowQueues;
use neater_base::Instant;
use neater_base::net::Ecn;
use red::RedState;
use std::collections::VecDeque;

pub use codel::Codel;
pub use fq_codel::FqCodel;
pub use red::Red;

/// A packet that waits.
#[derive(Debug)]
pub(crate) struct Waiting<P> {
    pub(crate) packet: P,
    /// Its number: how many were offered before it.
    pub(crate) index: u64,
    /// Since when it waits.
    pub(crate) since: Instant,
    /// Bytes of the IP packet.
    pub(crate) len: u32,
    /// Which flow it belongs to: a hash.
    pub(crate) flow: u32,
    /// Bytes of the IP header.
    pub(crate) header: u8,
    pub(crate) ecn: Ecn,
    /// The queue has marked it.
    pub(crate) marked: bool,
}

impl<P> Waiting<P> {
    /// Marks the packet instead of dropping it, if its transport understands that (RFC 3168 section 5). A packet that has
    /// been marked on its way already is as good as marked.
    fn mark(&mut self, wanted: bool) -> bool {
        let marked = wanted && self.ecn != Ecn::NotEct;
        self.marked |= marked;
        marked
    }
}

/// Packets in their order, and their bytes.
#[derive(Debug)]
pub(crate) struct Fifo<P> {
    packets: VecDeque<Waiting<P>>,
    bytes: u64,
}

impl<P> Default for Fifo<P> {
    fn default() -> Self {
        Self { packets: VecDeque::new(), bytes: 0 }
    }
}

impl<P> Fifo<P> {
    fn push(&mut self, packet: Waiting<P>) {
        self.bytes += u64::from(packet.len);
        self.packets.push_back(packet);
    }

    fn pop(&mut self) -> Option<Waiting<P>> {
        let packet = self.packets.pop_front()?;
        self.bytes -= u64::from(packet.len);
        Some(packet)
    }
}

#[derive(Debug)]
enum State<P> {
    Plain(Fifo<P>),
    Red(Fifo<P>, RedState),
    Codel(Fifo<P>, CodelState),
    Flows(Box<FlowQueues<P>>),
}

impl<P> State<P> {
    fn new(discipline: &Discipline) -> Self {
        match discipline {
            Discipline::DropTail | Discipline::HeadDrop => Self::Plain(Fifo::default()),
            Discipline::Red(_) => Self::Red(Fifo::default(), RedState::default()),
            Discipline::Codel(_) => Self::Codel(Fifo::default(), CodelState::default()),
            Discipline::FqCodel(config) => Self::Flows(Box::new(FlowQueues::new(config.flows))),
        }
    }
}

/// The queue of a link.
#[derive(Debug)]
pub(crate) struct Queue<P> {
    packets: usize,
    bytes: u64,
    state: State<P>,
}

impl<P> Queue<P> {
    pub(crate) fn new(discipline: &Discipline) -> Self {
        Self { packets: 0, bytes: 0, state: State::new(discipline) }
    }

    pub(crate) fn len(&self) -> usize {
        self.packets
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.packets == 0
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Puts what waits under another discipline, in the order in which it came.
    pub(crate) fn change(&mut self, discipline: &Discipline) {
        let waiting = self.drain();
        *self = Self::new(discipline);
        for packet in waiting {
            self.push(discipline, packet);
        }
    }

    /// Takes out everything, in the order in which it came.
    pub(crate) fn drain(&mut self) -> Vec<Waiting<P>> {
        (self.packets, self.bytes) = (0, 0);
        let mut all: Vec<_> = match &mut self.state {
            State::Plain(fifo) | State::Red(fifo, _) | State::Codel(fifo, _) => {
                fifo.bytes = 0;
                fifo.packets.drain(..).collect()
            }
            State::Flows(flows) => flows.drain(),
        };
        all.sort_by_key(|w| w.index);
        all
    }

    /// What RED thinks of a newcomer; everybody else lets it in. `depth` is what the queue holds in the unit of its limit,
    /// `typical` how long a full packet takes in nanoseconds, `luck` uniform over `[0, 1)`.
    pub(crate) fn admit(
        &mut self,
        discipline: &Discipline,
        newcomer: &mut Waiting<P>,
        depth: u64,
        typical: f64,
        luck: f64,
    ) -> bool {
        match (&mut self.state, discipline) {
            (State::Red(_, state), Discipline::Red(red)) => {
                let verdict = state.arrive(red, newcomer.since, depth, typical, luck);
                match verdict {
                    red::Verdict::Pass => true,
                    red::Verdict::Early => newcomer.mark(red.ecn),
                    red::Verdict::Forced => false,
                }
            }
            _ => true,
        }
    }

    pub(crate) fn push(&mut self, discipline: &Discipline, packet: Waiting<P>) {
        self.packets += 1;
        self.bytes += u64::from(packet.len);
        match (&mut self.state, discipline) {
            (State::Plain(fifo) | State::Red(fifo, _) | State::Codel(fifo, _), _) => fifo.push(packet),
            (State::Flows(flows), Discipline::FqCodel(config)) => flows.push(config, packet),
            (State::Flows(flows), _) => flows.push(&FqCodel::default(), packet),
        }
    }

    /// Drops one packet to make room: the oldest, under FQ-CoDel that of the fattest flow. `None`: this queue does not, or
    /// is empty.
    pub(crate) fn make_room(&mut self, discipline: &Discipline) -> Option<Waiting<P>> {
        let victim = match (&mut self.state, discipline) {
            (State::Plain(fifo), Discipline::HeadDrop) => fifo.pop(),
            (State::Flows(flows), _) => flows.drop_from_fattest(),
            _ => None,
        };
        if let Some(w) = &victim {
            self.gone(w);
        }
        victim
    }

    fn gone(&mut self, packet: &Waiting<P>) {
        self.packets -= 1;
        self.bytes -= u64::from(packet.len);
    }

    /// Takes out the packet that is sent at `now`; those that the discipline drops instead go to `dropped`. `mtu` is that
    /// of the link.
    #[inline]
    pub(crate) fn pop(
        &mut self,
        discipline: &Discipline,
        now: Instant,
        mtu: u32,
        dropped: &mut Vec<Waiting<P>>,
    ) -> Option<Waiting<P>> {
        let packet = match (&mut self.state, discipline) {
            (State::Plain(fifo), _) => fifo.pop(),
            (State::Red(fifo, state), _) => {
                let packet = fifo.pop();
                if fifo.packets.is_empty() {
                    state.empty(now);
                }
                packet
            }
            (State::Codel(fifo, state), Discipline::Codel(config)) => state.pop(config, fifo, now, mtu, dropped),
            (State::Flows(flows), Discipline::FqCodel(config)) => flows.pop(config, now, mtu, dropped),
            (State::Codel(fifo, _), _) => fifo.pop(),
            (State::Flows(flows), _) => flows.pop(&FqCodel::default(), now, mtu, dropped),
        };
        for w in dropped.iter() {
            self.packets -= 1;
            self.bytes -= u64::from(w.len);
        }
        if let Some(w) = &packet {
            self.gone(w);
        }
        packet
    }
}

#[cfg(test)]
mod tests;
