//! Acknowledgments that arrive (RFC 9260 sections 6.2.1, 6.3.2, 7.2).

use super::{Association, State};
use crate::config::LossDetection;
use crate::event::Event;
use crate::path::PathAck;
use crate::send::Reliability;
use crate::serial::unwrap32;
use core::ops::Range;
use neater_base::Instant;
use neater_cc::{Ack, Cause, Loss};
use neater_sctp_wire::chunk::{GapBlock, NrSack, Sack};
use neater_sctp_wire::{Array, Tsn};

impl Association {
    pub(super) fn on_sack(&mut self, now: Instant, sack: &Sack<'_>) {
        let Some(cumulative) = self.acknowledged_to(sack.cumulative) else { return };
        let gaps = sack.gaps.iter().map(|g| cumulative + u64::from(g.start)..cumulative + u64::from(g.end) + 1);
        self.acknowledge(now, cumulative, Some(sack.a_rwnd), gaps, (sack.duplicates, sack.packets));
    }

    /// An NR-SACK chunk: what it calls non-renegable is acknowledged, and is not kept any longer.
    pub(super) fn on_nr_sack(&mut self, now: Instant, sack: &NrSack<'_>) {
        let Some(cumulative) = self.acknowledged_to(sack.cumulative) else { return };
        let blocks = |list: Array<'_, GapBlock>| {
            list.iter()
                .map(|g| cumulative + u64::from(g.start)..cumulative + u64::from(g.end) + 1)
                .collect::<Vec<Range<u64>>>()
        };
        let (gaps, non_renegable) = (blocks(sack.gaps), blocks(sack.non_renegable));
        // Either list may have blocks that lie between those of the other.
        let all = gaps.iter().chain(&non_renegable).cloned();
        self.acknowledge(now, cumulative, Some(sack.a_rwnd), all, (sack.duplicates, sack.packets));
        for block in non_renegable {
            self.out.release(block);
        }
        self.tell_writable();
    }

    /// The cumulative TSN of an acknowledgment that is to be looked at.
    fn acknowledged_to(&mut self, cumulative: Tsn) -> Option<u64> {
        let counts = matches!(
            self.state,
            State::Established | State::ShutdownPending | State::ShutdownReceived | State::ShutdownSent
        );
        if !counts {
            return None;
        }
        self.stats.sacks_received += 1;
        let cumulative = unwrap32(self.out.base(), cumulative.0);
        if cumulative >= self.out.next() {
            self.violation("SACK chunk acknowledges data that was not sent");
            return None;
        }
        // Overtaken by a later one (rule D i)?
        (cumulative + 1 >= self.out.base()).then_some(cumulative)
    }

    /// Takes an acknowledgment: what it means for the data, the paths, the windows and the timers.
    /// It lists duplicates, and may have the number of packets that it stands for.
    pub(super) fn acknowledge(
        &mut self,
        now: Instant,
        cumulative: u64,
        window: Option<u32>,
        gaps: impl Iterator<Item = Range<u64>>,
        (duplicates, packets): (Array<'_, Tsn>, u8),
    ) {
        for path in &mut self.paths {
            path.ack = PathAck { before: path.in_flight, lowest: u64::MAX, ..PathAck::default() };
        }
        self.note_earliest();
        self.acknowledged_in_silence(now);
        let advanced = self.read_acknowledgment(now, cumulative, gaps);
        self.settle_copies();
        if self.out.has_reneged() && !self.out.forget_received() {
            return self.violation("data is taken back that was called non-renegable");
        }
        let opened = self.peer_window == 0 && window.is_some_and(|w| w > 0);
        if let Some(window) = window {
            self.peer_window = window;
        }
        let any = self.paths.iter().any(|p| p.ack.delivered > 0);
        if any || advanced || opened {
            self.unanswered = now;
        }
        if any {
            self.errors = 0;
        }
        self.window_answered |= window.is_some();
        if window == Some(0) {
            // A peer that keeps its window closed and answers is alive (section 6.1, rule A).
            self.errors = 0;
        }
        if window == Some(0) && self.timers.window_probe.is_some() {
            self.paths.iter_mut().for_each(|p| p.errors = 0);
        }
        if self.peer_window > 0 {
            self.timers.window_probe = None;
            self.probes = 0;
        }
        for index in 0..self.paths.len() {
            self.path_acknowledged(now, index, advanced, (duplicates, packets));
        }
        if opened {
            self.probes_were_dropped(now);
        }
        self.tail_probe_acknowledged(now, duplicates);
        self.after_losses(now);
        for index in 0..self.paths.len() {
            self.path_timers(now, index);
        }
        self.measure_gain(now);
        self.forward_again(now, advanced);
    }

    /// Marks what has arrived, and collects what it means to each path.
    fn read_acknowledgment(&mut self, now: Instant, cumulative: u64, gaps: impl Iterator<Item = Range<u64>>) -> bool {
        let rack = self.config.recovery.detection == LossDetection::RackTlp;
        let (paths, events, stats) = (&mut self.paths, &mut self.events, &mut self.stats);
        let expiries = &mut self.expiries;
        self.out.acknowledge(cumulative, gaps, |tsn, sent, acked| {
            let path = &mut paths[usize::from(sent.path.0)];
            if acked.in_flight {
                path.leave(sent.size);
            }
            if acked.delivered {
                path.ack.delivered += u64::from(sent.size);
                path.ack.highest = path.ack.highest.max(tsn);
                path.ack.lowest = path.ack.lowest.min(tsn);
                if let Some(several) = &mut path.several {
                    several.highest = several.highest.max(tsn);
                    path.ack.advanced |= tsn == several.earliest.0 || tsn == several.earliest.1;
                    several.count.delivered += sent.piece.payload.len() as u64;
                }
                let shows = path.shows(sent.sent_at);
                path.ack.certain |= shows && !sent.elsewhere && !sent.copied;
                path.ack.mistaken |= acked.mistaken;
                // Karn: only what was sent once measures (rule C5).
                if shows && sent.times == 1 && !sent.copied {
                    path.ack.measured = path.ack.measured.max(Some(sent.sent_at));
                }
                if rack && !sent.copied {
                    path.rack.delivered(now, tsn, sent.sent_at, sent.times, path.rtt.least());
                }
                stats.bytes_acknowledged += sent.piece.payload.len() as u64;
            }
            if acked.cumulative {
                path.ack.cumulative += u64::from(sent.size);
                if let Reliability::Until(deadline) = sent.piece.reliability
                    && sent.piece.ends
                {
                    expiries.remove(&(deadline, sent.piece.stream.0, sent.piece.id));
                }
                // What was given up is no evidence about the path (RFC 3758 section 3.5, rule A2).
                if sent.fate != crate::recovery::Fate::Abandoned {
                    path.ack.credited += u64::from(sent.size);
                    if sent.piece.report && sent.piece.ends {
                        events.push_back(Event::Acknowledged { message: sent.piece.id });
                    }
                }
            }
        })
    }

    /// Round-trip time, errors, losses and the window of one path.
    fn path_acknowledged(
        &mut self,
        now: Instant,
        index: usize,
        advanced: bool,
        (duplicates, packets): (Array<'_, Tsn>, u8),
    ) {
        let path = &mut self.paths[index];
        let rtt = path.ack.measured.map(|at| now - at);
        if let Some(rtt) = rtt {
            path.rtt.sample(rtt);
        }
        if path.ack.delivered > 0 {
            path.timeouts = 0;
            // Of a chunk that was sent on several paths it is not known on which it arrived (RFC
            // 7829 section 3.2, 9 and 10).
            if path.ack.certain && (path.errors > 0 || !path.is_active()) {
                self.answered_by_data(index);
            }
        }
        if !duplicates.is_empty() {
            self.paths[index].rack.duplicates(self.out.base(), self.out.next());
        }
        self.find_losses(now, index, advanced, packets);
        let (base, next, credited) = (self.acked_to(index), self.out.next(), self.credited(index));
        let coupled = self.coupled();
        let path = &mut self.paths[index];
        let recovered = path.recovery.is_some_and(|exit| base >= exit);
        if recovered {
            path.recovery = None;
            path.cc.on_recovered();
            path.rack.recovered();
        }
        if path.ack.lost > 0 && path.recovery.is_none() {
            path.recovery = Some(next);
            path.cc.on_congestion(&Loss { now, cause: Cause::Loss, flight: path.ack.before });
            path.forced = true; // Section 7.2.4, step 3.
            if let Some(several) = &mut path.several {
                several.has_lost();
            }
            self.stats.fast_recoveries += 1;
        }
        if path.ack.delivered > 0 || path.ack.lost > 0 {
            path.cc.set_coupled(coupled.map(|all| all.growth(index)));
            let limited =
                base <= path.limited_to || (path.cc.in_slow_start() && 2 * path.ack.before >= path.cc.window());
            path.cc.on_ack(&Ack {
                acked: credited,
                delivered: path.ack.delivered,
                lost: path.ack.lost,
                in_flight: path.in_flight,
                rtt,
                srtt: path.rtt.smoothed(),
                limited,
                acked_to: base,
                sent_to: next,
                ..Ack::at(now)
            });
        }
        path.refill_burst();
    }

    /// T3-rtx and the tail probe of one path (rules R2 and R3).
    fn path_timers(&mut self, now: Instant, index: usize) {
        let rack = self.config.recovery.detection == LossDetection::RackTlp;
        let restart = self.restarts_timer(index);
        // The chunk that moves the peer on is acknowledged like data, and waits where it was sent.
        let forwarded = self.outbox.forwarded.is_some_and(|f| f.path == index);
        let forwarding = self.out.has_advanced() && (forwarded || index == self.current);
        let single = self.out.len() == 1;
        let delay = self.config.sack_delay;
        let lost = self.out.has_lost();
        self.watch_silence(now, index, self.paths[index].ack.certain);
        let path = &mut self.paths[index];
        if path.in_flight == 0 {
            (path.tail.due, path.reorder) = (None, None);
            if !forwarding {
                path.t3 = None;
            }
            return;
        }
        if restart || path.t3.is_none() {
            path.t3 = Some(now + path.rtt.rto());
        }
        if rack && restart {
            let may = path.recovery.is_none() && !lost;
            path.tail.due = if may { path.tail_deadline(now, delay, single) } else { None };
        }
    }

    /// The network has marked what we sent: as a loss, once in a window (RFC 3168 section 6.1.2).
    pub(super) fn on_ecne(&mut self, now: Instant, lowest: Tsn) {
        if !self.agreed.ecn || !self.is_sending() {
            return;
        }
        let tsn = unwrap32(self.out.base(), lowest.0);
        if tsn >= self.out.next() {
            return;
        }
        self.outbox.cwr = Some(lowest);
        if tsn < self.reduced_to {
            return;
        }
        self.reduced_to = self.out.next();
        let index = self.out.get(tsn).map_or(self.current, |s| usize::from(s.path.0));
        let next = self.out.next();
        let path = &mut self.paths[index];
        if path.recovery.is_none() {
            path.recovery = Some(next);
            path.cc.on_congestion(&Loss { now, cause: Cause::Ecn, flight: path.in_flight });
        }
    }
}
