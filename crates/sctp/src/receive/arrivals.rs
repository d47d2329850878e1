//! Which TSNs have arrived, and when that is to be reported (RFC 9260 section 6.2).

use crate::ranges::RangeSet;
use crate::serial::unwrap32;
use core::time::Duration;
use neater_base::Instant;
use neater_sctp_wire::Tsn;
use neater_sctp_wire::chunk::{GapBlock, Sack};

/// The most stretches of TSNs above the cumulative one: a chunk that would open another is not
/// accepted.
pub(crate) const MAX_GAPS: usize = 2048;
/// The most duplicates that one SACK chunk reports.
pub(crate) const MAX_DUPLICATES: usize = 20;
/// Gap blocks are 16-bit offsets from the cumulative TSN (RFC 9260 section 3.3.4): what is further
/// away cannot be reported.
const REACH: u64 = 65_535;

/// What becomes of a TSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    New,
    /// It was here before, and is remembered for the next SACK chunk.
    Duplicate,
    /// It cannot be accounted for: as if it had not come.
    OutOfReach,
}

/// The account of TSNs and the timer of acknowledgments.
#[derive(Debug)]
pub(crate) struct Arrivals {
    /// Everything up to here has arrived, or was given up by the peer.
    cumulative: u64,
    above: RangeSet,
    duplicates: Vec<Tsn>,
    /// Packets with data since the last SACK chunk.
    packets: u32,
    /// When the next SACK chunk is due, if something is not acknowledged.
    due: Option<Instant>,
    now: bool,
    /// Blocks and duplicates of the chunk that is being built.
    blocks: Vec<GapBlock>,
}

impl Arrivals {
    /// Nothing has arrived; the peer begins with `initial`.
    pub(crate) fn new(initial: u64) -> Self {
        Self {
            cumulative: initial - 1,
            above: RangeSet::new(),
            duplicates: Vec::new(),
            packets: 0,
            due: None,
            now: false,
            blocks: Vec::new(),
        }
    }

    pub(crate) const fn cumulative(&self) -> u64 {
        self.cumulative
    }

    /// The highest TSN that has arrived.
    pub(crate) fn highest(&self) -> u64 {
        self.above.last().unwrap_or(self.cumulative)
    }

    pub(crate) fn unwrap(&self, tsn: Tsn) -> u64 {
        unwrap32(self.cumulative, tsn.0)
    }

    /// Whether there is a hole.
    pub(crate) fn has_gaps(&self) -> bool {
        !self.above.is_empty()
    }

    /// Whether a TSN has arrived, or was given up.
    pub(crate) fn has(&self, tsn: u64) -> bool {
        tsn <= self.cumulative || self.above.contains(tsn)
    }

    /// Judges a TSN without counting it as arrived, except as a duplicate.
    pub(crate) fn judge(&mut self, tsn: u64) -> Arrival {
        if self.has(tsn) {
            if self.duplicates.len() < MAX_DUPLICATES {
                self.duplicates.push(Tsn(tsn as u32));
            }
            return Arrival::Duplicate;
        }
        let full = self.above.len() >= MAX_GAPS && tsn != self.cumulative + 1 && self.above.would_open(tsn);
        if tsn - self.cumulative > REACH || full { Arrival::OutOfReach } else { Arrival::New }
    }

    /// The TSN has arrived and is kept.
    pub(crate) fn insert(&mut self, tsn: u64) {
        if tsn == self.cumulative + 1 {
            self.cumulative = tsn;
            if let Some(end) = self.above.take_starting_at(tsn + 1) {
                self.cumulative = end - 1;
            }
        } else {
            self.above.insert(tsn);
        }
    }

    /// The peer has given up everything up to here (RFC 3758 section 3.6).
    pub(crate) fn skip_to(&mut self, tsn: u64) {
        if tsn <= self.cumulative {
            return;
        }
        self.cumulative = tsn;
        self.above.remove_below(tsn + 1);
        if let Some(end) = self.above.take_starting_at(tsn + 1) {
            self.cumulative = end - 1;
        }
    }

    /// A packet with data was processed: an acknowledgment is due at once, or after `delay`, or
    /// with the `every`th packet. A hole is a reason for one at once, unless the sender uses
    /// several paths.
    pub(crate) fn packet(&mut self, now: Instant, at_once: bool, every: u32, delay: Duration, several: bool) {
        self.packets += 1;
        self.now |= at_once || self.packets >= every || self.has_gaps() && !several;
        self.due.get_or_insert(now + delay);
    }

    /// An acknowledgment is due at once, for another reason.
    pub(crate) fn acknowledge_now(&mut self) {
        self.now = true;
    }

    /// Whether a SACK chunk is to be sent even if there is nothing to send it with.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.now || self.due.is_some_and(|due| due <= now)
    }

    /// Whether something arrived that no SACK chunk has reported yet.
    pub(crate) const fn is_owed(&self) -> bool {
        self.now || self.due.is_some()
    }

    /// When [`Arrivals::is_due`] becomes true.
    pub(crate) const fn deadline(&self) -> Option<Instant> {
        if self.now { Some(Instant::ZERO) } else { self.due }
    }

    /// The content of a SACK chunk, as many blocks as fit: cumulative TSN, blocks, duplicates.
    /// Acknowledged from here on.
    ///
    /// When there are more blocks than fit the lowest are reported (RFC 9260 section 6.7), or with
    /// `both_ends` as many of the lowest as of the highest: a sender that gets no report of what
    /// has arrived last can neither go on nor find what was lost again.
    pub(crate) fn report(&mut self, max_blocks: usize, both_ends: bool) -> (Tsn, &[GapBlock], &[Tsn]) {
        self.blocks.clear();
        let base = self.cumulative;
        let count = self.above.len();
        let low = if both_ends && count > max_blocks { max_blocks / 2 } else { max_blocks };
        let high = count - (max_blocks - low).min(count);
        let told = self.above.iter().enumerate().filter(|(i, _)| *i < low || *i >= high).map(|(_, r)| r);
        let reachable = told.take(max_blocks).filter(|r| r.end - 1 - base <= REACH);
        self.blocks
            .extend(reachable.map(|r| GapBlock { start: (r.start - base) as u16, end: (r.end - 1 - base) as u16 }));
        (Tsn(base as u32), &self.blocks, &self.duplicates)
    }

    /// How many packets with data the next SACK chunk stands for, as far as it can express that.
    pub(crate) fn packets(&self) -> u8 {
        self.packets.min(u32::from(Sack::MOST_PACKETS)) as u8
    }

    /// How many blocks and duplicates there are to report.
    pub(crate) fn report_size(&self) -> (usize, usize) {
        (self.above.len(), self.duplicates.len())
    }

    /// The report was sent.
    pub(crate) fn reported(&mut self) {
        self.duplicates.clear();
        self.packets = 0;
        self.due = None;
        self.now = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serial::first;

    fn arrivals() -> Arrivals {
        Arrivals::new(first(10))
    }

    fn blocks(a: &mut Arrivals, max: usize) -> (u32, Vec<(u16, u16)>, Vec<u32>) {
        let (cum, blocks, dups) = a.report(max, false);
        (cum.0, blocks.iter().map(|b| (b.start, b.end)).collect(), dups.iter().map(|t| t.0).collect())
    }

    #[test]
    fn holes_become_gap_blocks_and_are_filled() {
        let mut a = arrivals();
        for t in [10, 12, 13, 15] {
            assert_eq!(a.judge(first(t)), Arrival::New);
            a.insert(first(t));
        }
        assert_eq!(a.judge(first(13)), Arrival::Duplicate);
        assert_eq!(a.judge(first(9)), Arrival::Duplicate);
        assert_eq!(blocks(&mut a, 10), (10, vec![(2, 3), (5, 5)], vec![13, 9]));
        assert_eq!(blocks(&mut a, 1).1, [(2, 3)]);
        a.insert(first(20));
        a.insert(first(30));
        assert_eq!(blocks(&mut a, 2).1, [(2, 3), (5, 5)]);
        let ends = |a: &mut Arrivals, max| a.report(max, true).1.iter().map(|b| b.start).collect::<Vec<_>>();
        assert_eq!((ends(&mut a, 2), ends(&mut a, 3)), (vec![2, 20], vec![2, 10, 20]));
        assert_eq!((ends(&mut a, 4), ends(&mut a, 0)), (vec![2, 5, 10, 20], vec![]));
        (a.above, a.cumulative) = (RangeSet::new(), first(10));
        for t in [12, 13, 15] {
            a.insert(first(t));
        }
        a.reported();
        a.insert(first(11));
        assert_eq!(blocks(&mut a, 10), (13, vec![(2, 2)], vec![]));
        a.skip_to(first(14));
        assert_eq!((a.cumulative(), a.has_gaps()), (first(15), false));
        a.skip_to(first(12));
        assert_eq!(a.cumulative(), first(15), "never back");
        a.skip_to(first(20));
        assert_eq!(a.cumulative(), first(20));
    }

    #[test]
    fn the_number_of_gaps_duplicates_and_the_reach_are_bounded() {
        let mut a = arrivals();
        assert_eq!(a.judge(first(10) + REACH), Arrival::OutOfReach);
        assert_eq!(a.judge(first(9) + REACH), Arrival::New);
        for i in 0..MAX_GAPS as u64 {
            let t = first(12) + 2 * i;
            assert_eq!(a.judge(t), Arrival::New);
            a.insert(t);
        }
        assert_eq!(a.judge(first(14) + 2 * MAX_GAPS as u64), Arrival::OutOfReach);
        assert_eq!(a.judge(first(10)), Arrival::New);
        assert_eq!(a.judge(first(13)), Arrival::New, "it closes a hole");
        for _ in 0..100 {
            a.judge(first(9));
        }
        assert_eq!(a.report_size().1, MAX_DUPLICATES);
    }

    #[test]
    fn every_second_packet_and_every_hole_is_acknowledged_at_once() {
        let (now, delay) = (Instant::from_nanos(5), Duration::from_millis(200));
        let mut a = arrivals();
        a.insert(first(10));
        a.packet(now, false, 2, delay, false);
        assert_eq!((a.is_due(now), a.is_owed(), a.deadline()), (false, true, Some(now + delay)));
        assert!(a.is_due(now + delay));
        a.insert(first(11));
        a.packet(now, false, 2, delay, false);
        assert!(a.is_due(now));
        a.reported();
        assert_eq!((a.is_due(now), a.is_owed(), a.deadline()), (false, false, None));
        a.insert(first(13));
        a.packet(now, false, 2, delay, false);
        assert!(a.is_due(now), "a hole");
        a.insert(first(12));
        a.reported();
        a.insert(first(14));
        a.packet(now, true, 2, delay, false);
        assert!(a.is_due(now), "the sender asked for it (RFC 7053)");
    }
}
