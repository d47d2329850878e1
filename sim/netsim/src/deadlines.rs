//! Deadlines of TCP connections: which is the next.
//!
//! A connection's deadline moves with nearly every packet, nearly always to a later time. So an entry here is a time at which
//! the connection is to be looked at, and not its deadline: a deadline that moves later leaves its entry where it is, and the
//! entry is put off when its time comes. That costs a comparison per packet where a sorted set costs two searches.
//!
//! *Invariants*: every connection with a deadline has an entry that is not later ([`Alarm::entry`]); the first entry is a
//! deadline indeed, so that time never stops where nothing happens; deadlines of one instant come in the order of hosts and
//! connections, whatever was put off before.

use crate::sim::Sim;
use crate::world::HostId;
use core::cmp::Reverse;
use neater_base::{Instant, Key};
use std::collections::BinaryHeap;

/// The deadline of one connection, and what the queue holds of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Alarm {
    /// When the connection is to be called.
    due: Option<Instant>,
    /// Its earliest entry that counts.
    entry: Option<Instant>,
    /// A later entry, which counts when that one is gone: of a timeout while something shorter is waited for.
    spare: Option<Instant>,
}

impl Alarm {
    /// Sets the deadline. Returns the entry that it needs beside those that are there.
    #[inline]
    fn set(&mut self, due: Option<Instant>) -> Option<Instant> {
        self.due = due;
        let at = due?;
        if self.entry.is_some_and(|entry| entry <= at) {
            return None;
        }
        self.spare = self.entry.replace(at);
        Some(at)
    }

    /// The entry at `at` is taken out. Returns whether it counted.
    fn pop(&mut self, at: Instant) -> bool {
        if self.entry == Some(at) {
            self.entry = self.spare.take();
            true
        } else if self.spare == Some(at) {
            self.spare = None;
            true
        } else {
            false
        }
    }
}

type Entry = (Instant, HostId, Key);

/// The entries.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    heap: BinaryHeap<Reverse<Entry>>,
    /// How many are enough to look for those that no longer count.
    many: usize,
}

/// Entries that are never too many.
const FEW: usize = 4096;

impl Deadlines {
    /// The first deadline.
    #[inline]
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(e)| e.0)
    }
}

impl Sim {
    /// A connection may have another deadline than before.
    pub(crate) fn reschedule(&mut self, id: HostId, key: Key) {
        let Some(entry) = self.hosts[id.0].conns.get_mut(key) else { return };
        let due = entry.conn.next_timeout();
        if let Some(at) = entry.alarm.set(due) {
            self.deadlines.heap.push(Reverse((at, id, key)));
            if self.deadlines.heap.len() > self.deadlines.many.max(FEW) {
                self.drop_stale_deadlines();
            }
        }
        if self.deadlines.heap.peek().is_some_and(|Reverse(e)| e.1 == id && e.2 == key) {
            self.put_off_deadlines();
        }
    }

    /// Takes out the first deadline; there must be one.
    pub(crate) fn pop_deadline(&mut self) -> Option<(HostId, Key)> {
        let Reverse((at, host, key)) = self.deadlines.heap.pop()?;
        if let Some(entry) = self.hosts[host.0].conns.get_mut(key) {
            entry.alarm.pop(at);
            entry.alarm.due = None;
        }
        self.put_off_deadlines();
        Some((host, key))
    }

    /// Puts entries off that come before their deadlines, until the first one is a deadline.
    fn put_off_deadlines(&mut self) {
        while let Some(Reverse((at, host, key))) = self.deadlines.heap.peek().copied() {
            let alarm = self.hosts[host.0].conns.get_mut(key).map(|e| &mut e.alarm);
            if alarm.as_ref().is_some_and(|a| a.due == Some(at)) {
                return;
            }
            self.deadlines.heap.pop();
            let Some(alarm) = alarm else { continue };
            if alarm.pop(at)
                && let Some(later) = alarm.set(alarm.due)
            {
                self.deadlines.heap.push(Reverse((later, host, key)));
            }
        }
    }

    /// Forgets the deadlines of a host, which has forgotten its connections.
    pub(crate) fn forget_deadlines(&mut self, host: HostId) {
        self.deadlines.heap.retain(|Reverse(e)| e.1 != host);
        self.put_off_deadlines();
    }

    /// Drops entries that no longer count.
    fn drop_stale_deadlines(&mut self) {
        let hosts = &self.hosts;
        self.deadlines.heap.retain(|Reverse((at, host, key))| {
            let alarm = hosts[host.0].conns.get(*key).map(|e| e.alarm);
            alarm.is_some_and(|a| a.entry == Some(*at) || a.spare == Some(*at))
        });
        self.deadlines.many = 2 * self.deadlines.heap.len();
    }
}
