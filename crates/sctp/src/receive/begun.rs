//! Which beginnings of messages can be delivered before their ends.
//!
//! A peer that fills the buffer with thousands of beginnings must not cause a scan of all of them
//! for each packet. So from the first time that the buffer is short of room, those that can be
//! delivered are kept apart from those whose turn has not come.

use super::reassembly::{Place, Run};
use neater_sctp_wire::StreamId;
use std::collections::{BTreeMap, BTreeSet};

/// The beginnings among what waits, by what can be done with them.
#[derive(Debug, Default)]
pub(super) struct Begun {
    /// These are not sorted yet.
    unsorted: BTreeSet<Place>,
    /// Ordered messages whose turn has not come, by stream and number.
    waiting: BTreeMap<(StreamId, u32), Place>,
    /// Those that can be delivered, by their bytes.
    ready: BTreeSet<(usize, Place)>,
}

impl Begun {
    /// Something that waits is there.
    pub(super) fn put(&mut self, place: Place, run: &Run) {
        if run.begins && run.bytes > 0 {
            self.unsorted.insert(place);
        }
    }

    /// Something that waited is not there any more, or about to change.
    pub(super) fn pull(&mut self, place: Place, run: &Run) {
        if !run.begins || self.unsorted.remove(&place) || self.ready.remove(&(run.bytes, place)) {
            return;
        }
        let key = (run.stream, run.number);
        if self.waiting.get(&key) == Some(&place) {
            self.waiting.remove(&key);
        }
    }

    /// The turn of an ordered message has come.
    pub(super) fn turn(&mut self, stream: StreamId, number: u32) {
        self.unsorted.extend(self.waiting.remove(&(stream, number)));
    }

    /// The longest that can be delivered, if it has at least so many bytes.
    pub(super) fn longest(
        &mut self,
        least: usize,
        runs: &BTreeMap<Place, Run>,
        next_in_order: impl Fn(&Run) -> bool,
    ) -> Option<Place> {
        while let Some(place) = self.unsorted.pop_first() {
            let Some(run) = runs.get(&place) else { continue };
            if next_in_order(run) {
                self.ready.insert((run.bytes, place));
            } else {
                self.waiting.insert((run.stream, run.number), place);
            }
        }
        while let Some(&(bytes, place)) = self.ready.last() {
            let Some(run) = runs.get(&place) else { break };
            if next_in_order(run) {
                return (bytes >= least).then_some(place);
            }
            // Its turn is over: the peer contradicts itself.
            self.ready.pop_last();
            self.waiting.insert((run.stream, run.number), place);
        }
        None
    }
}
