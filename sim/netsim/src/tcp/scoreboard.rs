//! What was sent and what became of it (RFC 6675 section 3, RFC 8985 section 5.2).
//!
//! *Responsible for* every segment between the first unacknowledged byte and the last one sent: delivered out of order,
//! believed lost, sent again. *Not responsible for* deciding that something is lost: `rack.rs` and `recovery.rs` ask for
//! it by time or by count.
//!
//! *Invariants*: the segments cover `una..max` without a gap; the four sums are those of the segments; every unfinished
//! transmission is in `order` exactly once, by the time it was sent.

use super::segment::Seq;
use core::time::Duration;
use neater_base::Instant;
use std::collections::VecDeque;

/// One segment that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) seq: Seq,
    pub(crate) end: Seq,
    /// When it was last sent.
    pub(crate) at: Instant,
    /// What had been delivered by then, for the delivery rate.
    delivered: u64,
    /// Which transmission that was: finds stale entries of `order`.
    serial: u64,
    /// It carries the FIN.
    pub(crate) fin: bool,
    pub(crate) sacked: bool,
    pub(crate) lost: bool,
    /// A retransmission is in flight.
    pub(crate) resent: bool,
    /// It was sent more than once.
    pub(crate) ever_resent: bool,
}

impl Sent {
    pub(crate) fn len(&self) -> u64 {
        self.end.since(self.seq)
    }
}

/// A transmission, in the order of sending.
#[derive(Clone, Copy, Debug)]
struct Transmission {
    end: Seq,
    serial: u64,
}

/// What an acknowledgment delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delivered {
    /// Bytes acknowledged in order.
    pub(crate) acked: u64,
    /// Bytes delivered for the first time, in order or not.
    pub(crate) bytes: u64,
    /// The round-trip time of the oldest segment acknowledged in order that was sent once.
    pub(crate) rtt: Option<Duration>,
    /// The same of the newest segment: free of the receiver's delay where the acknowledgment answers it.
    pub(crate) fresh_rtt: Option<Duration>,
    /// The same for segments delivered out of order.
    pub(crate) sack_rtt: Option<Duration>,
    /// The delivery rate that the newest delivered segment saw, in bytes per second.
    pub(crate) rate: Option<u64>,
    /// The lowest segment, sent once, that was delivered after a higher one: the network reorders.
    pub(crate) reordered: Option<Seq>,
    /// Something that was sent once was delivered from below this number.
    pub(crate) original_below: Option<Seq>,
    /// The segment that was first in line when it was acknowledged had been sent again.
    pub(crate) resent_acked: bool,
    newest_delivered: u64,
    newest_at: Option<Instant>,
}

/// The most recently sent segment that was delivered: `RACK.segment` of RFC 8985.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Newest {
    pub(crate) at: Instant,
    pub(crate) end: Seq,
    pub(crate) rtt: Duration,
}

/// The scoreboard.
#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    segments: VecDeque<Sent>,
    order: VecDeque<Transmission>,
    serial: u64,
    total: u64,
    sacked: u64,
    lost: u64,
    resent: u64,
    /// Below this number nothing waits to be sent again.
    hint: Seq,
    /// The blocks of the last acknowledgment: what they cover is known.
    known: [(Seq, Seq); 4],
    /// The number after the highest segment delivered out of order.
    highest_sacked: Seq,
    /// Bytes delivered since the beginning.
    pub(crate) delivered: u64,
}

impl Scoreboard {
    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Outstanding segments.
    pub(crate) fn count(&self) -> usize {
        self.segments.len()
    }

    /// Bytes sent, not delivered, not believed lost: the pipe of RFC 6675 section 4.
    pub(crate) fn in_flight(&self) -> u64 {
        (self.total + self.resent).saturating_sub(self.sacked + self.lost)
    }

    pub(crate) fn sacked(&self) -> u64 {
        self.sacked
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    pub(crate) fn resent(&self) -> u64 {
        self.resent
    }

    pub(crate) fn first(&self) -> Option<&Sent> {
        self.segments.front()
    }

    /// The number after the highest segment delivered out of order, or `una`.
    pub(crate) fn highest_sacked(&self, una: Seq) -> Seq {
        if self.sacked == 0 { una } else { self.highest_sacked }
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Sent> {
        self.segments.get(index)
    }

    pub(crate) fn clear(&mut self) {
        *self = Self { delivered: self.delivered, ..Self::default() };
    }

    fn transmitted(&mut self, end: Seq) -> u64 {
        self.serial += 1;
        let serial = self.serial;
        self.order.push_back(Transmission { end, serial });
        serial
    }

    /// New data have been sent.
    pub(crate) fn push(&mut self, now: Instant, seq: Seq, end: Seq, fin: bool) {
        let serial = self.transmitted(end);
        let delivered = self.delivered;
        self.total += end.since(seq);
        self.segments.push_back(Sent {
            seq,
            end,
            at: now,
            delivered,
            serial,
            fin,
            sacked: false,
            lost: false,
            resent: false,
            ever_resent: false,
        });
    }

    /// The segment at `index` has been sent again.
    pub(crate) fn retransmitted(&mut self, now: Instant, index: usize) {
        let Some(end) = self.segments.get(index).map(|s| s.end) else { return };
        let serial = self.transmitted(end);
        let delivered = self.delivered;
        let Some(s) = self.segments.get_mut(index) else { return };
        if !s.resent {
            self.resent += s.len();
        }
        (s.at, s.serial, s.resent, s.ever_resent, s.delivered) = (now, serial, true, true, delivered);
        if s.seq == self.hint {
            self.hint = s.end;
        }
    }

    /// Where the segment with the byte `at` is.
    fn find(&self, at: Seq) -> Option<usize> {
        let first = self.segments.front()?;
        if at < first.seq {
            return None;
        }
        // Nearly always all segments are equally long.
        let guess = (at.since(first.seq) / first.len().max(1)) as usize;
        if self.segments.get(guess).is_some_and(|s| s.seq <= at && at < s.end) {
            return Some(guess);
        }
        let index = self.segments.partition_point(|s| s.end <= at);
        (index < self.segments.len()).then_some(index)
    }

    /// The transmission that this entry of `order` stands for, if it is unfinished.
    fn current(&self, entry: Transmission) -> Option<usize> {
        let index = self.find(entry.end.minus(1))?;
        let s = &self.segments[index];
        (s.serial == entry.serial && !s.sacked).then_some(index)
    }

    fn note(s: &Sent, now: Instant, d: &mut Delivered, newest: &mut Option<Newest>, least_rtt: Option<Duration>) {
        let rtt = now - s.at;
        if d.newest_at.is_none_or(|at| at <= s.at) {
            d.newest_at = Some(s.at);
            d.newest_delivered = s.delivered;
        }
        // An answer sooner than any before belongs to an earlier transmission (RFC 8985 section 6.2, step 2).
        if s.ever_resent && least_rtt.is_some_and(|least| rtt < least) {
            return;
        }
        let later = |n: &Newest| (s.at, s.end) > (n.at, n.end);
        if newest.as_ref().is_none_or(later) {
            *newest = Some(Newest { at: s.at, end: s.end, rtt });
        } else if let Some(n) = newest {
            n.rtt = rtt;
        }
    }

    /// Everything below `una` has arrived.
    pub(crate) fn acknowledge(
        &mut self,
        now: Instant,
        una: Seq,
        d: &mut Delivered,
        newest: &mut Option<Newest>,
        least_rtt: Option<Duration>,
    ) {
        let highest = if self.sacked == 0 { Seq(0) } else { self.highest_sacked };
        let mut first_at = None;
        let mut last_at = None;
        while let Some(s) = self.segments.front_mut() {
            if s.seq >= una {
                break;
            }
            if s.end > una {
                // A part of it: the rest stays.
                let part = una.since(s.seq);
                self.total -= part;
                self.sacked -= if s.sacked { part } else { 0 };
                self.lost -= if s.lost { part } else { 0 };
                self.resent -= if s.resent { part } else { 0 };
                d.acked += part;
                if !s.sacked {
                    d.bytes += part;
                    self.delivered += part;
                }
                s.seq = una;
                break;
            }
            let s = *s;
            self.segments.pop_front();
            let len = s.len();
            self.total -= len;
            d.acked += len;
            if s.sacked {
                self.sacked -= len;
            } else {
                d.bytes += len;
                self.delivered += len;
                Self::note(&s, now, d, newest, least_rtt);
                if s.ever_resent {
                    d.resent_acked = true;
                } else {
                    first_at.get_or_insert(s.at);
                    last_at = Some(s.at);
                    d.original_below = Some(d.original_below.map_or(s.end, |o| o.min(s.end)));
                    if s.seq < highest && d.reordered.is_none_or(|r| s.seq < r) {
                        d.reordered = Some(s.seq);
                    }
                }
            }
            self.lost -= if s.lost { len } else { 0 };
            self.resent -= if s.resent { len } else { 0 };
        }
        self.hint = self.hint.max(una);
        if !d.resent_acked {
            d.rtt = first_at.map(|at| now - at);
            d.fresh_rtt = last_at.map(|at| now - at);
        }
        while self.order.front().is_some_and(|t| t.end <= una) {
            self.order.pop_front();
        }
        if self.segments.is_empty() {
            self.order.clear();
        }
    }

    /// These blocks have arrived out of order. Bytes of segments that they cover completely count.
    pub(crate) fn sack(
        &mut self,
        now: Instant,
        blocks: &[(Seq, Seq)],
        d: &mut Delivered,
        newest: &mut Option<Newest>,
        least_rtt: Option<Duration>,
    ) {
        let mut seen = [(Seq(0), Seq(0)); 4];
        let before = if self.sacked == 0 { Seq(0) } else { self.highest_sacked };
        for (slot, &(start, end)) in seen.iter_mut().zip(blocks) {
            *slot = (start, end);
            // What the last acknowledgment said of the beginning of this block need not be looked at again.
            let known = self.known.iter().find(|k| k.0 <= start && start < k.1);
            let from = known.map_or(start, |k| k.1);
            if from < end {
                self.sack_range(now, from, end, before, d, newest, least_rtt);
            }
        }
        self.known = seen;
    }

    #[expect(clippy::too_many_arguments, reason = "one block of `sack`, split off for its length")]
    fn sack_range(
        &mut self,
        now: Instant,
        from: Seq,
        to: Seq,
        before: Seq,
        d: &mut Delivered,
        newest: &mut Option<Newest>,
        least_rtt: Option<Duration>,
    ) {
        let Some(first) = self.find(from) else { return };
        for s in self.segments.range_mut(first..) {
            if s.seq < from {
                continue;
            }
            if s.end > to {
                break;
            }
            if s.sacked {
                continue;
            }
            let len = s.len();
            s.sacked = true;
            self.sacked += len;
            d.bytes += len;
            self.delivered += len;
            if !s.ever_resent {
                d.sack_rtt = Some(now - s.at);
                d.original_below = Some(d.original_below.map_or(s.end, |o| o.min(s.end)));
                if s.seq < before && d.reordered.is_none_or(|r| s.seq < r) {
                    d.reordered = Some(s.seq);
                }
            }
            Self::note(s, now, d, newest, least_rtt);
            if std::mem::take(&mut s.lost) {
                self.lost -= len;
            }
            if std::mem::take(&mut s.resent) {
                self.resent -= len;
            }
            let end = s.end;
            self.highest_sacked = if self.sacked == len { end } else { self.highest_sacked.max(end) };
        }
    }

    /// Completes what an acknowledgment says of the delivery rate.
    pub(crate) fn rate(&self, now: Instant, d: &mut Delivered) {
        if let Some(at) = d.newest_at {
            let bytes = u128::from(self.delivered.saturating_sub(d.newest_delivered));
            d.rate = (bytes * 1_000_000_000).checked_div((now - at).as_nanos()).and_then(|r| u64::try_from(r).ok());
        }
    }

    /// The segment at `index` is lost. Returns the bytes that became lost by it.
    pub(crate) fn mark_lost(&mut self, index: usize) -> u64 {
        let Some(s) = self.segments.get_mut(index) else { return 0 };
        if s.sacked {
            return 0;
        }
        let len = s.len();
        let again = std::mem::take(&mut s.resent);
        let fresh = !std::mem::replace(&mut s.lost, true);
        let seq = s.seq;
        self.resent -= if again { len } else { 0 };
        self.lost += if fresh { len } else { 0 };
        if fresh || again {
            self.hint = self.hint.min(seq);
            len
        } else {
            0
        }
    }

    /// Marks what was sent so long before `newest` that it must be lost (RFC 8985 section 6.2, step 5). Returns the bytes
    /// newly lost, and how long to wait for the rest that was sent before.
    pub(crate) fn detect_by_time(
        &mut self,
        now: Instant,
        newest: &Newest,
        patience: Duration,
    ) -> (u64, Option<Duration>) {
        let mut lost = 0;
        let mut wait: Option<Duration> = None;
        let mut keep = 0;
        while let Some(entry) = self.order.get(keep).copied() {
            let Some(index) = self.current(entry) else {
                self.forget(keep);
                continue;
            };
            let s = self.segments[index];
            if s.lost && !s.resent {
                self.forget(keep);
                continue;
            }
            if (s.at, s.end) >= (newest.at, newest.end) {
                break;
            }
            let age = now - s.at;
            if age >= newest.rtt + patience {
                lost += self.mark_lost(index);
                self.forget(keep);
            } else {
                let left = newest.rtt + patience - age;
                wait = Some(wait.map_or(left, |w| w.max(left)));
                keep += 1;
            }
        }
        (lost, wait)
    }

    fn forget(&mut self, place: usize) {
        if place == 0 {
            self.order.pop_front();
        } else {
            let _ = self.order.remove(place);
        }
    }

    /// Marks what `threshold` segments of `mss` bytes, delivered above it, prove lost (RFC 6675 section 4, `IsLost`). Returns
    /// the bytes newly lost.
    pub(crate) fn detect_by_count(&mut self, threshold: u64, mss: u64) -> u64 {
        if self.sacked == 0 {
            return 0;
        }
        // From the highest delivered one down until enough lies above.
        let Some(top) = self.find(self.highest_sacked.minus(1)) else { return 0 };
        let mut above = 0;
        let mut limit = None;
        for index in (0..=top).rev() {
            if self.segments[index].sacked {
                above += self.segments[index].len();
                if above > (threshold - 1) * mss {
                    limit = Some(index);
                    break;
                }
            }
        }
        let Some(limit) = limit else { return 0 };
        let mut lost = 0;
        for index in (0..limit).rev() {
            let s = &self.segments[index];
            if s.lost {
                break;
            }
            if !s.sacked && !s.resent {
                lost += self.mark_lost(index);
            }
        }
        lost
    }

    /// After a timeout everything is lost that was not delivered, but what `recent` says was sent a moment ago.
    pub(crate) fn lose_all(&mut self, recent: impl Fn(&Sent) -> bool) -> u64 {
        // A receiver that does not acknowledge what it has reported has thrown it away (RFC 2018 section 8).
        let reneged = self.segments.front().is_some_and(|s| s.sacked);
        let mut lost = 0;
        for index in 0..self.segments.len() {
            if reneged && std::mem::take(&mut self.segments[index].sacked) {
                self.sacked -= self.segments[index].len();
                self.delivered -= self.segments[index].len();
            }
            if index == 0 || !recent(&self.segments[index]) {
                lost += self.mark_lost(index);
            }
        }
        if reneged {
            self.known = Default::default();
        }
        lost
    }

    /// Nothing is lost after all.
    pub(crate) fn unlose_all(&mut self) {
        for s in &mut self.segments {
            s.lost = false;
        }
        self.lost = 0;
    }

    /// The lowest segment that is lost and not yet sent again.
    pub(crate) fn next_lost(&mut self) -> Option<usize> {
        if self.lost == 0 {
            return None;
        }
        let start = self.find(self.hint).unwrap_or(0);
        for index in start..self.segments.len() {
            let s = &self.segments[index];
            if s.lost && !s.resent {
                self.hint = s.seq;
                return Some(index);
            }
        }
        self.hint = self.segments.back().map_or(self.hint, |s| s.end);
        None
    }

    /// Cuts the segment at `index` after `len` bytes, because segments have become smaller.
    pub(crate) fn split(&mut self, index: usize, len: u64) {
        let Some(s) = self.segments.get_mut(index) else { return };
        if len == 0 || len >= s.len() {
            return;
        }
        let mut rest = *s;
        s.end = s.seq.plus(len);
        s.fin = false;
        rest.seq = s.end;
        // The first part is a transmission of its own from its next sending on; it keeps its number, the rest its entry.
        let end = s.end;
        let serial = self.transmitted(end);
        if let Some(s) = self.segments.get_mut(index) {
            s.serial = serial;
        }
        self.segments.insert(index + 1, rest);
    }

    /// Indices of segments longer than `mss` bytes of data, believed undelivered.
    pub(crate) fn oversized(&self, mss: u64) -> Vec<usize> {
        let too_long = |s: &Sent| !s.sacked && s.len() - u64::from(s.fin) > mss;
        (0..self.segments.len()).filter(|i| too_long(&self.segments[*i])).collect()
    }

    #[cfg(test)]
    pub(crate) fn check(&self) {
        let sum = |f: fn(&Sent) -> bool| self.segments.iter().filter(|s| f(s)).map(Sent::len).sum::<u64>();
        assert_eq!(self.total, sum(|_| true));
        assert_eq!(self.sacked, sum(|s| s.sacked));
        assert_eq!(self.lost, sum(|s| s.lost));
        assert_eq!(self.resent, sum(|s| s.resent));
        assert!(self.segments.iter().all(|s| !(s.sacked && (s.lost || s.resent))));
        let pairs = self.segments.iter().zip(self.segments.iter().skip(1));
        assert!(pairs.into_iter().all(|(a, b)| a.end == b.seq));
    }
}

#[cfg(test)]
mod tests;
