//! Finding losses by time: RACK and TLP (RFC 8985) with TSNs in place of sequence numbers.
//!
//! A chunk is lost when one that was sent sufficiently later has arrived. "Sufficiently" adapts to
//! the reordering that is seen (section 6.2, steps 3 and 4).

use super::outstanding::{Fate, Outstanding};
use crate::ids::PathId;
use core::time::Duration;
use neater_base::Instant;

/// How many recoveries a widened window lasts (RFC 8985 section 6.2, step 4: 16).
const PERSIST: u32 = 16;

/// What a path remembers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rack {
    /// When the chunk was sent that was sent last of those that arrived, and its TSN:
    /// `RACK.xmit_ts` and `RACK.end_seq`.
    newest: Option<(Instant, u64)>,
    /// Its round-trip time: `RACK.rtt`.
    rtt: Duration,
    /// The highest TSN that has arrived: `RACK.fack`.
    highest: u64,
    /// Something arrived below `highest` that was sent once: `RACK.reordering_seen`.
    reordering: bool,
    /// `RACK.reo_wnd_mult` less one, so that the default is right.
    wider: u32,
    /// Recoveries until the window is narrow again: `RACK.reo_wnd_persist`.
    persist: u32,
    /// The window was widened for the data up to here.
    widened_at: u64,
    /// By how much something came late that was overtaken: at most, fading with each recovery.
    /// Where delays vary, the least round trip that the window of RFC 8985 is made of is no measure
    /// of that.
    lateness: Duration,
}

/// What the path knows when losses are looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) now: Instant,
    pub(crate) path: PathId,
    pub(crate) least_rtt: Option<Duration>,
    pub(crate) smoothed: Option<Duration>,
    /// After so long an acknowledgment is late by any measure.
    pub(crate) late: Duration,
    /// In fast recovery, or after a timeout.
    pub(crate) recovering: bool,
    /// At least three packets' worth of data arrived above a hole.
    pub(crate) three_above: bool,
}

impl Rack {
    /// A chunk that was sent `times` times, last at `sent_at`, has arrived (steps 1 to 3).
    pub(crate) fn delivered(&mut self, now: Instant, tsn: u64, sent_at: Instant, times: u16, least: Option<Duration>) {
        let rtt = now - sent_at;
        if times == 1 {
            self.reordering |= tsn < self.highest;
            if self.newest.is_some_and(|(at, last)| (sent_at, tsn) < (at, last)) {
                self.lateness = self.lateness.max(rtt.saturating_sub(self.rtt));
            }
        } else if least.is_some_and(|l| rtt < l) {
            return; // The acknowledgment is for an earlier copy.
        }
        self.highest = self.highest.max(tsn);
        if self.newest.is_none_or(|(at, last)| (at, last) < (sent_at, tsn)) {
            self.newest = Some((sent_at, tsn));
            self.rtt = rtt;
        }
    }

    /// The peer reported duplicates: we sent something again too early (step 4). Once a round trip.
    pub(crate) fn duplicates(&mut self, acked_to: u64, next: u64) {
        if acked_to >= self.widened_at {
            self.widened_at = next;
            self.wider = (self.wider + 1).min(16);
            self.persist = PERSIST;
            self.reordering = true;
        }
    }

    /// A recovery is over.
    pub(crate) fn recovered(&mut self) {
        self.lateness -= self.lateness / 16;
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.wider = 0;
        }
    }

    /// How long an older chunk may be late: `RACK.reo_wnd`.
    fn window(&self, look: &Look) -> Duration {
        if !self.reordering && (look.recovering || look.three_above) {
            return Duration::ZERO;
        }
        let quarter = look.least_rtt.unwrap_or_default() / 4;
        let standard = (quarter * (1 + self.wider)).min(look.smoothed.unwrap_or_default());
        standard.max((self.lateness + self.lateness / 8).min(look.late))
    }

    /// Calls `lost` with each chunk of the path that is lost by now, and returns when to look again
    /// (step 5).
    pub(crate) fn detect(&self, look: &Look, out: &mut Outstanding, mut lost: impl FnMut(u64)) -> Option<Instant> {
        let newest = self.newest?;
        let patience = self.rtt + self.window(look);
        let mut again: Option<Instant> = None;
        out.each_hole(|tsn, sent| {
            if (sent.sent_at, tsn) > newest && sent.times == 1 {
                return false; // What follows was sent later still.
            }
            if sent.fate != Fate::InFlight || sent.path != look.path || (sent.sent_at, tsn) > newest {
                return true;
            }
            let late = sent.sent_at + patience;
            if late <= look.now {
                lost(tsn);
            } else {
                again = Some(again.map_or(late, |a| a.max(late)));
            }
            true
        });
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::MessageId;
    use crate::send::{Piece, Reliability};
    use bytes::Bytes;
    use neater_sctp_wire::{Ppid, StreamId};

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn sent(n: u64) -> Outstanding {
        let mut out = Outstanding::new(100);
        for i in 0..n {
            let piece = Piece {
                id: MessageId(i),
                stream: StreamId(0),
                ppid: Ppid(0),
                unordered: false,
                immediate: false,
                report: false,
                reliability: Reliability::Full,
                number: 0,
                fsn: 0,
                begins: true,
                ends: true,
                payload: Bytes::from_static(b"x"),
            };
            out.push(at(i), PathId(0), 20, piece);
        }
        out
    }

    fn arrive(rack: &mut Rack, out: &mut Outstanding, now: Instant, tsn: u64) {
        out.acknowledge(99, core::iter::once(tsn..tsn + 1), |tsn, s, _| {
            rack.delivered(now, tsn, s.sent_at, s.times, None);
        });
    }

    fn look(now: Instant) -> Look {
        Look {
            now,
            path: PathId(0),
            least_rtt: Some(Duration::from_millis(40)),
            smoothed: Some(Duration::from_millis(40)),
            late: Duration::from_millis(80),
            recovering: false,
            three_above: false,
        }
    }

    fn losses(rack: &Rack, look: &Look, out: &mut Outstanding) -> (Vec<u64>, Option<Instant>) {
        let mut lost = Vec::new();
        let again = rack.detect(look, out, |tsn| lost.push(tsn));
        (lost, again)
    }

    #[test]
    fn what_was_sent_before_something_that_arrived_is_given_a_quarter_of_a_round_trip() {
        let (mut rack, mut out) = (Rack::default(), sent(5));
        assert_eq!(losses(&rack, &look(at(41)), &mut out), (vec![], None));
        arrive(&mut rack, &mut out, at(42), 102);
        // Sent at 0 and 1 ms, round trip 40 ms, a quarter is 10 ms.
        assert_eq!(losses(&rack, &look(at(42)), &mut out), (vec![], Some(at(51))));
        assert_eq!(losses(&rack, &look(at(50)), &mut out), (vec![100], Some(at(51))));
        assert_eq!(losses(&rack, &look(at(51)), &mut out).0, [100, 101]);
        assert_eq!(losses(&rack, &Look { three_above: true, ..look(at(42)) }, &mut out).0, [100, 101]);
        assert_eq!(losses(&rack, &Look { path: PathId(1), ..look(at(99)) }, &mut out).0, []);
    }

    #[test]
    fn reordering_keeps_the_window_open_and_duplicates_widen_it() {
        let (mut rack, mut out) = (Rack::default(), sent(5));
        arrive(&mut rack, &mut out, at(44), 104);
        arrive(&mut rack, &mut out, at(45), 103);
        assert!(rack.reordering);
        let three = Look { three_above: true, ..look(at(45)) };
        assert_eq!(losses(&rack, &three, &mut out).0, []);
        rack.duplicates(100, 105);
        rack.duplicates(101, 106);
        assert_eq!(rack.window(&three), Duration::from_millis(20), "once a round trip");
        rack.duplicates(105, 110);
        assert_eq!(rack.window(&three), Duration::from_millis(30));
        for _ in 0..PERSIST {
            rack.recovered();
        }
        assert_eq!(rack.window(&three), Duration::from_millis(10));
    }

    #[test]
    fn an_acknowledgment_of_an_earlier_copy_proves_nothing() {
        let (mut rack, mut out) = (Rack::default(), sent(3));
        out.lose(101, false);
        out.resend(at(60), 101, PathId(0));
        rack.delivered(at(61), 101, at(60), 2, Some(Duration::from_millis(40)));
        assert_eq!(losses(&rack, &look(at(200)), &mut out), (vec![], None));
        arrive(&mut rack, &mut out, at(101), 101);
        assert_eq!(losses(&rack, &look(at(112)), &mut out).0, [100, 102], "also above what was sent again");
    }
}
