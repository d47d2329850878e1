//! Copies: what is under way on one path once more on another one, and paths that are left because
//! nothing comes back from them.
//!
//! A copy counts as in flight on its path until what it is a copy of is acknowledged, whichever of
//! the two has arrived: the peer cannot report which, so that an acknowledgment then measures
//! neither path and shows of neither that it works.
//!
//! *Invariant*: the bytes of every copy in the list are in flight on its path; a chunk of which
//! there is a copy is marked as copied.

use super::Association;
use crate::path::{PathState, TailProbe};
use crate::recovery::Fate;
use core::time::Duration;
use neater_base::Instant;
use neater_cc::{Cause, Loss};

/// The most chunks of which a copy is made at one time.
const MOST: usize = 32;
/// The most chunks that are looked at for that.
const LOOK: usize = 4096;
/// From one look that found nothing to the next, and the part of the round trip that it may last: a
/// peer whose window is closed makes this side poll with each packet that it sends.
const PAUSE: (Duration, u32) = (Duration::from_millis(1), 8);

/// Of what copies are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// Of all that is under way elsewhere.
    Everything,
    /// Of what would be acknowledged later there.
    Later,
    /// Of what is late by every measure.
    Late,
}

/// A copy that is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    tsn: u64,
    path: usize,
    size: u16,
    /// What it is a copy of was late by every measure before.
    late: bool,
}

impl Association {
    /// The path on which copies go now, other than `busy` ones: those that would arrive before what
    /// they are copies of; of everything where that is wanted. At the end of what there is to send,
    /// or while nothing new may be sent: then only where a path would carry nothing else, for with
    /// new data under way as much as it takes a copy is in the way of what comes next.
    pub(super) fn copy_path(&mut self, now: Instant, busy: u32) -> Option<usize> {
        let multipath = self.multipath()?;
        let everything = self.copies_everything();
        if !multipath.reinject && !everything || self.is_opening() || !self.out.any_in_flight() {
            return None;
        }
        if !everything && self.concurrent(&multipath).nothing_to_copy.is_some_and(|until| now < until) {
            return None;
        }
        let mut pause = None;
        let mut order: [usize; 32] = core::array::from_fn(|i| i);
        let order = order.get_mut(..self.paths.len())?;
        order.sort_by_key(|i| (self.paths[*i].rtt.smoothed().unwrap_or(Duration::MAX), *i));
        for index in order.iter().copied() {
            let elsewhere = self.paths.iter().enumerate().any(|(i, p)| i != index && p.in_flight > 0);
            let may = elsewhere && busy & 1 << index == 0 && self.paths[index].is_active();
            if !may || !self.may_leave(now, index) {
                continue;
            }
            let wanted = match everything {
                true => Wanted::Everything,
                false if self.queues.is_empty() || self.paths[index].is_drained() => Wanted::Later,
                false => Wanted::Late,
            };
            if let Some(tsns) = self.worth_copying(now, index, wanted) {
                self.concurrent(&multipath).copying = (index, tsns);
                return Some(index);
            }
            let round_trip = self.paths[index].rtt.smoothed().unwrap_or_default();
            pause = Some(pause.unwrap_or(PAUSE.0).min(round_trip / PAUSE.1));
        }
        self.concurrent(&multipath).nothing_to_copy = pause.map(|p| now + p);
        None
    }

    /// What is under way elsewhere and would be acknowledged earlier if a copy went on this path,
    /// one packet of it.
    fn worth_copying(&self, now: Instant, index: usize, wanted: Wanted) -> Option<Vec<u64>> {
        let path = &self.paths[index];
        let here = path.rtt.smoothed()? + path.rtt.variation().unwrap_or_default();
        let room = usize::from(path.room).saturating_sub(12 + self.auth_overhead());
        let (mut tsns, mut size) = (Vec::new(), 0);
        for (tsn, sent) in self.out.iter().take(LOOK) {
            if sent.fate != Fate::InFlight || sent.path == path.id || sent.copied {
                continue;
            }
            let there = &self.paths[usize::from(sent.path.0)].rtt;
            let due = sent.sent_at + there.smoothed().unwrap_or(Duration::MAX);
            // One that is late by every measure may never come.
            let late = now > sent.sent_at + there.late();
            let worth = match wanted {
                Wanted::Everything => true,
                Wanted::Later => late || due > now + here,
                Wanted::Late => late,
            };
            if !worth {
                continue;
            }
            // One that is too long for this path stays where it is.
            if usize::from(sent.size) > room {
                continue;
            }
            size += usize::from(sent.size);
            if size > room {
                break;
            }
            tsns.push(tsn);
            if tsns.len() == MOST {
                break;
            }
        }
        (!tsns.is_empty()).then_some(tsns)
    }

    /// The chunks of which a copy goes on this path now.
    pub(super) fn take_copying(&mut self, index: usize) -> Vec<u64> {
        match &mut self.concurrent {
            Some(c) if c.copying.0 == index => core::mem::take(&mut c.copying.1),
            _ => Vec::new(),
        }
    }

    /// A copy has left.
    pub(super) fn copied(&mut self, now: Instant, tsn: u64, index: usize) {
        let Some(sent) = self.out.get_mut(tsn) else { return };
        sent.copied = true;
        let late = now > sent.sent_at + self.paths[usize::from(sent.path.0)].rtt.late();
        let copy = Copy { tsn, path: index, size: sent.size, late };
        if let Some(concurrent) = &mut self.concurrent {
            concurrent.copies.push(copy);
        }
        self.stats.copies += 1;
        if let Some(several) = &mut self.paths[index].several {
            several.count.again += 1;
            several.count.sent += 1;
        }
    }

    /// Copies of what has been acknowledged or given up are no longer in flight.
    pub(super) fn settle_copies(&mut self) {
        let (out, paths) = (&self.out, &mut self.paths);
        let Some(concurrent) = self.concurrent.as_mut().filter(|c| !c.copies.is_empty()) else { return };
        concurrent.copies.retain(|copy| {
            let waits = out.get(copy.tsn).is_some_and(|s| matches!(s.fate, Fate::InFlight | Fate::Lost));
            if !waits {
                let path = &mut paths[copy.path];
                path.leave(copy.size);
                if path.in_flight > 0 {
                    // What is left is given its time from now on.
                    path.t3 = None;
                }
            }
            waits
        });
    }

    /// The copies on a path will not arrive.
    pub(super) fn lose_copies_on(&mut self, index: usize) {
        let paths = &mut self.paths;
        let Some(concurrent) = &mut self.concurrent else { return };
        concurrent.copies.retain(|copy| {
            if copy.path == index {
                paths[index].leave(copy.size);
            }
            copy.path != index
        });
    }

    /// There are no copies any more.
    pub(super) fn forget_copies(&mut self) {
        for index in 0..self.paths.len() {
            self.lose_copies_on(index);
        }
    }

    /// Something was sent on a path, or an answer has come: when it counts as silent.
    pub(super) fn watch_silence(&mut self, now: Instant, index: usize, answered: bool) {
        let leaves = self.multipath().is_some_and(|m| m.leave_silent) && self.config.potentially_failed.is_some();
        // Where everything goes everywhere no acknowledgment shows which way something has come,
        // and nothing waits for one of them.
        let leaves = leaves && !self.copies_everything();
        let delay = self.config.sack_delay;
        let path = &mut self.paths[index];
        let timeout = path.probe_timeout(delay).filter(|_| leaves && path.in_flight > 0 && path.is_active());
        let Some(several) = &mut path.several else { return };
        if answered {
            several.lapses = 0;
        }
        several.silent = match timeout {
            None => None,
            Some(timeout) if answered || several.silent.is_none() => Some(now + timeout),
            Some(_) => several.silent,
        };
    }

    /// Paths from which nothing has come back for too long.
    pub(super) fn leave_silent_paths(&mut self, now: Instant) {
        for index in 0..self.paths.len() {
            let due = self.paths[index].several.as_ref().and_then(|s| s.silent).is_some_and(|at| at <= now);
            if due {
                self.leave_silent_path(now, index);
            }
        }
    }

    /// A heartbeat is answered: the path works, though not yet for what was sent on it.
    pub(super) fn heartbeat_answered(&mut self, now: Instant, index: usize) {
        if let Some(several) = &mut self.paths[index].several {
            several.silent = None;
        }
        self.watch_silence(now, index, false);
    }

    /// Whether something has not been answered for so long that would show that the path works. An
    /// acknowledgment of what was copied before it was late does not.
    fn has_evidence(&self, now: Instant, index: usize, timeout: Duration) -> bool {
        let path = &self.paths[index];
        if path.heartbeat.unanswered().is_some_and(|at| at + timeout <= now) {
            return true;
        }
        let copies = self.concurrent.as_ref().map_or(&[][..], |c| c.copies.as_slice());
        let hidden = |tsn: u64| copies.iter().any(|c| c.tsn == tsn && !c.late);
        self.out.iter().any(|(tsn, s)| {
            let here = s.fate == Fate::InFlight && s.path == path.id;
            let old = s.times > 1 || s.sent_at + timeout <= now;
            here && old && !(s.copied && hidden(tsn))
        })
    }

    fn leave_silent_path(&mut self, now: Instant, index: usize) {
        if let Some(several) = &mut self.paths[index].several {
            several.silent = None;
        }
        let Some(timeout) = self.paths[index].probe_timeout(Duration::ZERO) else { return };
        if !self.has_evidence(now, index, timeout) {
            let path = &mut self.paths[index];
            if path.in_flight > 0 {
                path.heartbeat.wanted |= path.heartbeat.is_idle();
                self.watch_silence(now, index, false);
            }
            return;
        }
        let other = (0..self.paths.len()).any(|i| i != index && self.paths[i].is_active());
        // A closed window is no silence, and where there is nothing else the timers of the path
        // decide.
        if !other || self.peer_window == 0 || !self.paths[index].is_active() {
            return;
        }
        let flight = self.paths[index].in_flight;
        self.lose_all_on(index);
        let next = self.out.next();
        let path = &mut self.paths[index];
        (path.t3, path.reorder, path.tail) = (None, None, TailProbe::default());
        if path.recovery.is_none() {
            path.recovery = Some(next);
            path.cc.on_congestion(&Loss { now, cause: Cause::Loss, flight });
        }
        self.stats.silences += 1;
        // What made the peer move on may have been lost there, and no timer would send it again.
        self.outbox.forward |= self.out.has_advanced();
        self.failed(index, false);
        self.after_losses(now);
        let Some(several) = &mut self.paths[index].several else { return };
        several.left_at = Some(now);
        several.lapses += 1;
        let lapses = several.lapses;
        if lapses > 1 {
            // Heartbeats get through and data does not: packets may be too long for it.
            self.suspect_size(index, lapses);
        }
    }

    /// A heartbeat is answered on a path that was left for its silence; false if it was not.
    pub(super) fn is_back(&mut self, now: Instant, index: usize) -> bool {
        let path = &mut self.paths[index];
        let Some(left) = path.several.as_mut().and_then(|s| s.left_at.take()) else { return false };
        if path.state != PathState::PotentiallyFailed {
            return false;
        }
        path.recovery = None;
        path.cc.on_recovered();
        // After a longer absence nothing is known of it: slow start, up to half of what it had.
        if now - left > path.rtt.rto() {
            path.cc.set_window(self.config.recovery.initial_window.bytes(path.cc.mss()).min(path.cc.window()));
        }
        true
    }
}
