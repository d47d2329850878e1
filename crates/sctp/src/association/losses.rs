//! Losses: found by miss indications or by time, probed for at the end, or assumed after a timeout
//! (RFC 9260 sections 6.3.3 and 7.2.4, RFC 8985).

use super::Association;
use crate::config::LossDetection;
use crate::recovery::{Fate, Look};
use neater_base::Instant;
use neater_cc::{Cause, Loss};
use neater_sctp_wire::{Array, Tsn};

/// Miss indications that make a loss (RFC 9260 section 7.2.4).
const MISSES: u8 = 3;

impl Association {
    /// Looks for losses on a path after an acknowledgment.
    pub(super) fn find_losses(&mut self, now: Instant, index: usize, advanced: bool, packets: u8) {
        match self.config.recovery.detection {
            LossDetection::MissIndications => self.count_misses(index, advanced, packets),
            LossDetection::RackTlp => self.look_for_late(now, index),
        }
    }

    /// Miss indications for what is missing below the highest TSN that is newly acknowledged, or in
    /// fast recovery with an advancing cumulative TSN for everything that is reported missing.
    fn count_misses(&mut self, index: usize, advanced: bool, packets: u8) {
        let several = self.multipath().is_some();
        let (top, step) = self.misses(index, advanced, packets);
        let id = self.paths[index].id;
        let mut lost = Vec::new();
        self.out.each_hole(|tsn, sent| {
            if tsn >= top {
                return false;
            }
            // What was sent again lies below what was sent before it on the same path, which shows
            // nothing of it.
            let shown = !several || sent.times == 1 || top >= sent.after;
            if sent.fate == Fate::InFlight && sent.path == id && shown {
                sent.misses += step(tsn);
                if sent.misses >= MISSES && !sent.fast {
                    sent.fast = true;
                    lost.push(tsn);
                }
                sent.misses = sent.misses.min(MISSES);
            }
            true
        });
        self.stats.lost += lost.len() as u64;
        for tsn in lost {
            self.lose(tsn, false);
        }
    }

    /// Chunks that are late by now (RFC 8985 section 6.2, step 5).
    pub(super) fn look_for_late(&mut self, now: Instant, index: usize) {
        let path = &self.paths[index];
        let sacked = self.out.received().iter().map(|r| r.end - r.start).take(3).sum::<u64>();
        let look = Look {
            now,
            path: path.id,
            least_rtt: path.rtt.least(),
            smoothed: path.rtt.smoothed(),
            late: path.rtt.late(),
            recovering: path.recovery.is_some(),
            three_above: sacked >= 3,
        };
        let mut lost = core::mem::take(&mut self.late);
        self.paths[index].reorder = self.paths[index].rack.detect(&look, &mut self.out, |tsn| lost.push(tsn));
        self.stats.lost += lost.len() as u64;
        for tsn in lost.drain(..) {
            self.lose(tsn, false);
        }
        self.late = lost;
    }

    /// The peer's window was closed and is open again: what it has not acknowledged after a round
    /// trip are probes that it had no room for. They go again at once, and not when a timer expires
    /// that has been doubled with each of them; the network has lost nothing.
    pub(super) fn probes_were_dropped(&mut self, now: Instant) {
        let mut dropped = core::mem::take(&mut self.late);
        for (tsn, sent) in self.out.iter().filter(|(_, s)| s.fate == Fate::InFlight) {
            let rtt = self.paths[usize::from(sent.path.0)].rtt.smoothed().unwrap_or_default();
            if now - sent.sent_at > rtt {
                dropped.push(tsn);
            }
        }
        for tsn in dropped.drain(..) {
            if let Some((path, size)) = self.out.lose(tsn, false) {
                self.paths[usize::from(path.0)].leave(size);
            }
        }
        self.late = dropped;
    }

    /// A chunk is lost.
    fn lose(&mut self, tsn: u64, timed_out: bool) {
        if let Some((path, size)) = self.out.lose(tsn, timed_out) {
            let path = &mut self.paths[usize::from(path.0)];
            path.leave(size);
            path.ack.lost += u64::from(size);
            if let Some(several) = &mut path.several {
                several.count.lost += 1;
            }
        }
    }

    /// Nothing that is on a path will be acknowledged: it goes another way.
    pub(super) fn lose_all_on(&mut self, index: usize) {
        let id = self.paths[index].id;
        self.lose_copies_on(index);
        let flying = self.out.iter().filter(|(_, s)| s.fate == Fate::InFlight && s.path == id).map(|(tsn, _)| tsn);
        for tsn in flying.collect::<Vec<u64>>() {
            if let Some((path, size)) = self.out.lose(tsn, true) {
                self.paths[usize::from(path.0)].leave(size);
            }
        }
    }

    /// The reordering timer of a path has expired (RFC 8985 section 6.3).
    pub(super) fn reorder_timeout(&mut self, now: Instant, index: usize) {
        self.paths[index].ack = crate::path::PathAck { before: self.paths[index].in_flight, ..Default::default() };
        self.look_for_late(now, index);
        let next = self.out.next();
        let path = &mut self.paths[index];
        if path.ack.lost > 0 && path.recovery.is_none() {
            path.recovery = Some(next);
            path.cc.on_congestion(&Loss { now, cause: Cause::Loss, flight: path.ack.before });
            path.forced = true;
            self.stats.fast_recoveries += 1;
        }
        self.after_losses(now);
    }

    /// The tail probe of a path is due (RFC 8985 section 7.3): new data, or the last chunk once
    /// more.
    pub(super) fn tail_probe(&mut self, now: Instant, index: usize) {
        let next = self.out.next();
        // What the peer has no room for cannot be the probe.
        let fresh = self.carries_new(index) && self.has_new_data(now);
        let path = &mut self.paths[index];
        path.tail.due = None;
        if path.tail.sent.is_some() || path.in_flight == 0 {
            return;
        }
        path.tail.sent = Some((next, !fresh));
        path.forced = true;
        // The probe is what restarts T3-rtx (section 7.3).
        path.t3 = Some(now + path.rtt.rto());
        self.stats.tail_probes += 1;
        if !fresh {
            let id = path.id;
            let last = self.out.iter().rev().find(|(_, s)| s.fate == Fate::InFlight && s.path == id).map(|(t, _)| t);
            if let Some(last) = last {
                self.lose(last, false);
            }
        }
    }

    /// Whether the probe has repaired a loss (RFC 8985 section 7.4): then the window comes down as
    /// after any other.
    pub(super) fn tail_probe_acknowledged(&mut self, now: Instant, duplicates: Array<'_, Tsn>) {
        for index in 0..self.paths.len() {
            let Some((end, retransmitted)) = self.paths[index].tail.sent else { continue };
            let base = self.acked_to(index);
            let path = &mut self.paths[index];
            let seen_twice = duplicates.iter().any(|t| t == Tsn((end - 1) as u32));
            if seen_twice || (!retransmitted && base >= end) || path.recovery.is_some() {
                path.tail.sent = None;
            } else if base > end {
                path.tail.sent = None;
                let flight = path.in_flight.max(path.ack.before);
                path.cc.on_congestion(&Loss { now, cause: Cause::Loss, flight });
                path.cc.on_recovered();
            }
        }
    }

    /// T3-rtx of a path has expired (section 6.3.3).
    pub(super) fn t3_timeout(&mut self, now: Instant, index: usize) {
        let next = self.out.next();
        let path = &mut self.paths[index];
        path.t3 = None;
        let id = path.id;
        let flight = path.in_flight;
        let probing = self.is_answered_probe(index);
        self.lose_copies_on(index);
        let mut flying = core::mem::take(&mut self.late);
        flying.extend(self.out.iter().filter(|(_, s)| s.fate == Fate::InFlight && s.path == id).map(|(t, _)| t));
        if probing {
            // One chunk probes; the others wait until there is room (see `probes_were_dropped`).
            flying.truncate(1);
        } else {
            self.stats.lost += flying.len() as u64;
        }
        for tsn in flying.drain(..) {
            self.lose(tsn, true);
        }
        self.late = flying;
        let path = &mut self.paths[index];
        if probing {
            // It goes again, later each time, and that is all (section 6.1, rule A).
            path.rtt.back_off();
            path.forced = true;
            (path.tail.due, path.tail.sent, path.reorder) = (None, None, None);
            self.stats.timeouts += 1;
            self.after_losses(now);
            self.outbox.forward |= self.out.has_advanced();
            return;
        }
        path.cc.on_timeout(&Loss { now, cause: Cause::Timeout, flight }, path.timeouts == 0, 0);
        path.timeouts += 1;
        if let Some(several) = &mut path.several {
            several.count.timeouts += 1;
        }
        let timeouts = path.timeouts;
        path.recovery = Some(next);
        path.rtt.back_off();
        path.refill_burst();
        path.forced = true;
        (path.tail.due, path.tail.sent, path.reorder) = (None, None, None);
        self.stats.timeouts += 1;
        self.outbox.forward |= self.out.has_advanced();
        if timeouts > 1 {
            self.suspect_size(index, timeouts);
        }
        self.failed(index, true);
        if !self.is_closed() {
            self.after_losses(now);
        }
    }

    /// Whether what is outstanding on a path are probes of a closed window that the peer has
    /// answered, having no room for them: neither the congestion window nor a count of errors is
    /// affected by that (section 6.1, rule A). That is so of what was under way when the window
    /// closed, too. What was not answered may be lost like anything else, or the peer gone. And
    /// what lies below something that has arrived is no probe: the peer may be waiting for just
    /// that to deliver what fills its window, and nothing shows that it had no room for it. One of
    /// them at each timeout, with the timer doubled, could take hours.
    fn is_answered_probe(&self, index: usize) -> bool {
        let id = self.paths[index].id;
        let first = || self.out.iter().find(|(_, s)| s.fate == Fate::InFlight && s.path == id).map(|(tsn, _)| tsn);
        let above = self.out.received().last().unwrap_or(0);
        self.peer_window == 0 && self.window_answered && first().is_some_and(|tsn| tsn >= above)
    }

    /// Bytes of payload that the peer has room for.
    pub(super) fn window_left(&self) -> usize {
        (self.peer_window as usize).saturating_sub(self.out.flying())
    }

    /// The largest payload of a chunk that fits every path: the AMDCS of section 7.3, less the
    /// header.
    pub(super) fn fragment_size(&self) -> usize {
        let room = self.live_paths().map(|p| p.room).min().unwrap_or(crate::config::MIN_ROOM);
        usize::from(room) - 12 - self.data_header() - self.auth_overhead()
    }

    /// The header of a chunk with data.
    pub(super) const fn data_header(&self) -> usize {
        if self.agreed.interleaving { 20 } else { 16 }
    }
}
