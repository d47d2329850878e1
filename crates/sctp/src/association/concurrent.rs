//! Several paths in use at once: which of them carries new data, lost data, and what blocks the
//! peer's receive window (Iyengar 2006; [`crate::Multipath`] has what can be set).
//!
//! *Invariant*: as long as there is one path, or [`crate::AssociationConfig::multipath`] is `None`,
//! nothing here has an effect.

use super::Association;
use crate::config::LossDetection;
use crate::multipath::{
    Candidate, Demand, Gain, Multipath, PathScheduler, PathVerdict, Retransmission, Schedule, Tally,
};
use crate::path::{Count, Path, PathState};
use crate::recovery::{Fate, Sent};
use core::time::Duration;
use neater_base::Instant;
use neater_cc::{Cause, Loss};

/// The most lost chunks that are looked at to see which paths have something to send again.
const LOOK: usize = 256;
/// The most chunks that are sent once more at one time because they block the peer's window.
const MOST_RESCUED: usize = 32;

/// What there is where several paths are in use.
#[derive(Debug)]
pub(super) struct Concurrent {
    scheduler: Box<dyn Schedule>,
    candidates: Vec<Candidate>,
    /// What each path adds, and what of them is looked at for that.
    gain: Gain,
    tallies: Vec<Option<Tally>>,
    /// The application has more than there was room for.
    more: bool,
    /// Copies that are under way.
    pub(super) copies: Vec<super::copies::Copy>,
    /// Chunks of which a copy goes on this path now.
    pub(super) copying: (usize, Vec<u64>),
    /// Until then nothing is looked at for that: there was nothing a moment ago.
    pub(super) nothing_to_copy: Option<Instant>,
    /// Chunks that go once more on this path because they block the peer's window.
    rescue: (usize, Vec<u64>),
    /// When the chunk that blocks the window is late enough for that.
    pub(super) rescue_at: Option<Instant>,
}

/// A set of paths, by their indices: there are at most 32.
pub(super) type PathSet = u32;

impl Association {
    /// How data is spread, if there are several paths for it.
    pub(super) fn multipath(&self) -> Option<Multipath> {
        self.multipath.filter(|_| self.paths.len() > 1)
    }

    /// How data is spread as soon as there are several paths.
    pub(crate) const fn spreading(&self) -> Option<Multipath> {
        self.multipath
    }

    /// How data is spread from now on.
    pub(crate) fn set_multipath(&mut self, multipath: Option<Multipath>) {
        if self.multipath != multipath {
            self.forget_copies();
            (self.multipath, self.concurrent) = (multipath, None);
        }
    }

    pub(super) fn concurrent(&mut self, multipath: &Multipath) -> &mut Concurrent {
        self.concurrent.get_or_insert_with(|| {
            Box::new(Concurrent {
                scheduler: multipath.scheduler.build(),
                candidates: Vec::new(),
                gain: Gain::default(),
                tallies: Vec::new(),
                more: false,
                copies: Vec::new(),
                copying: (0, Vec::new()),
                nothing_to_copy: None,
                rescue: (0, Vec::new()),
                rescue_at: None,
            })
        })
    }

    /// Whether new data may go on a path: those that are active, or the one that was chosen where
    /// none is.
    pub(super) fn carries_new(&self, index: usize) -> bool {
        let one = self.multipath().is_none_or(|m| m.scheduler == PathScheduler::Preferred);
        if self.is_opening() || one {
            return index == self.current;
        }
        self.paths[index].is_active() || index == self.current && !self.paths.iter().any(Path::is_active)
    }

    /// The paths on which lost chunks go.
    pub(super) fn lost_targets(&self) -> PathSet {
        if !self.out.has_lost() {
            return 0;
        }
        if self.paths.len() == 1 {
            return 1;
        }
        let (mut set, mut from) = (0, 0);
        for _ in 0..LOOK {
            let Some(tsn) = self.out.next_lost(from) else { break };
            set |= 1 << self.retransmission_path(tsn);
            from = tsn + 1;
        }
        set
    }

    /// The first lost chunk that goes on a path, among those that [`Self::lost_targets`] looks at.
    pub(super) fn next_lost_on(&self, index: usize) -> Option<u64> {
        let mut from = 0;
        for _ in 0..LOOK {
            let tsn = self.out.next_lost(from)?;
            if self.paths.len() == 1 || self.retransmission_path(tsn) == index {
                return Some(tsn);
            }
            from = tsn + 1;
        }
        None
    }

    /// The path on which new data can leave now, other than `busy` ones.
    pub(super) fn fresh_path(&mut self, now: Instant, busy: PathSet) -> Option<usize> {
        let Some(multipath) = self.multipath().filter(|_| !self.is_opening()) else {
            return (busy & 1 << self.current == 0 && self.may_leave(now, self.current)).then_some(self.current);
        };
        let mut candidates = core::mem::take(&mut self.concurrent(&multipath).candidates);
        candidates.clear();
        let estimates = self.estimates_paths();
        for index in 0..self.paths.len() {
            if self.carries_new(index) && !self.is_resting(index) {
                let asks = estimates && self.paths[index].is_unknown();
                self.paths[index].heartbeat.wanted |= asks;
                let may = busy & 1 << index == 0 && self.within_share(&multipath, index);
                let ready = may && self.may_leave(now, index);
                candidates.push(self.candidate_path(index, ready));
            }
        }
        // What the application holds back for want of room is more than can be counted, and as much
        // until half of that has gone.
        let waiting = self.queues.bytes();
        let more = self.blocked || self.concurrent(&multipath).more && waiting > self.send_limit() / 2;
        self.concurrent(&multipath).more = more;
        let backlog = if more { u64::MAX } else { waiting as u64 };
        let demand = Demand { backlog, window: u64::from(self.peer_window) };
        let concurrent = self.concurrent(&multipath);
        let chosen = concurrent.scheduler.choose(&mut candidates, &demand);
        concurrent.candidates = candidates;
        chosen
    }

    /// Whether paths are chosen by estimates: one of which nothing is known is asked then, for none
    /// would ever choose it.
    pub(super) fn estimates_paths(&self) -> bool {
        self.multipath().is_some_and(|m| m.scheduler.estimates())
    }

    fn candidate_path(&self, index: usize, ready: bool) -> Candidate {
        let path = &self.paths[index];
        Candidate {
            index,
            ready,
            preferred: index == self.current,
            smoothed: path.rtt.smoothed(),
            expected: path.expected(),
            variation: path.rtt.variation().unwrap_or_default(),
            window: path.cc.window(),
            in_flight: path.in_flight,
            verdict: PathVerdict::Used,
        }
    }

    /// Whether a path is not used, to see what it adds or because it adds nothing; never where
    /// nothing else is active.
    pub(super) fn is_resting(&self, index: usize) -> bool {
        let rests = |i: usize| self.concurrent.as_ref().is_some_and(|c| c.gain.rests(i));
        rests(index) && (0..self.paths.len()).any(|i| self.paths[i].is_active() && !rests(i))
    }

    /// Whether a path was found to add nothing.
    pub(super) fn is_useless(&self, index: usize) -> bool {
        self.concurrent.as_ref().is_some_and(|c| c.gain.is_useless(index))
    }

    /// What was last made of a path.
    pub(super) fn verdict(&self, index: usize) -> PathVerdict {
        if self.multipath().is_none_or(|m| m.scheduler == PathScheduler::Preferred) {
            return if index == self.current { PathVerdict::Used } else { PathVerdict::Standby };
        }
        let Some(concurrent) = &self.concurrent else { return PathVerdict::Used };
        if concurrent.gain.is_useless(index) {
            return PathVerdict::NoGain;
        }
        concurrent.candidates.iter().find(|c| c.index == index).map_or(PathVerdict::Used, |c| c.verdict)
    }

    /// What all paths have together, where their windows grow together.
    pub(super) fn coupled(&self) -> Option<neater_cc::Coupled> {
        let coupling = self.multipath().map(|m| m.coupling).filter(|c| *c != neater_cc::Coupling::None)?;
        let part = |p: &Path| neater_cc::Part {
            window: if p.is_active() { p.cc.window() } else { 0 },
            mss: p.cc.mss(),
            round_trip: p.rtt.smoothed().unwrap_or_default(),
            between_losses: p.several.as_ref().map_or(0, |s| s.between_losses()),
        };
        Some(neater_cc::Coupled::new(coupling, self.paths.iter().map(part).collect()))
    }

    /// An acknowledgment has come: what each path adds is looked at.
    pub(super) fn measure_gain(&mut self, now: Instant) {
        // One path at a time shares no bottleneck with itself, and nothing else would carry data
        // while it rests.
        let measures = |m: &Multipath| m.measure_gain && m.scheduler != PathScheduler::Preferred;
        let Some(multipath) = self.multipath().filter(measures) else { return };
        let base = self.out.base();
        let mut tallies = core::mem::take(&mut self.concurrent(&multipath).tallies);
        tallies.clear();
        tallies.extend(self.paths.iter().map(|p| {
            let count = p.several.as_ref().map(|s| s.count).filter(|_| p.is_active())?;
            // The window was the limit not long ago.
            let busy = p.limited_to > base || p.in_flight + 2 * p.cc.mss() >= p.cc.window();
            let unsettled = p.cc.in_slow_start() || p.recovery.is_some();
            let round_trip = p.rtt.smoothed().unwrap_or_default();
            Some(Tally { delivered: count.delivered, busy, unsettled, round_trip })
        }));
        let concurrent = self.concurrent(&multipath);
        concurrent.gain.update(now, &tallies);
        concurrent.tallies = tallies;
    }

    /// The round-trip time that the receive buffer is to last for: of several paths that data comes
    /// by, what comes by the others waits for the slowest.
    pub(super) fn round_trip(&self, arrived: usize) -> Option<Duration> {
        let own = self.paths[arrived].rtt.smoothed();
        let carries = |p: &&Path| p.is_active() && p.several.as_ref().is_some_and(|s| s.count.received > 0);
        self.paths.iter().filter(carries).filter_map(|p| p.rtt.smoothed()).chain(own).max()
    }

    /// Whether everything goes once more on every other path.
    pub(super) fn copies_everything(&self) -> bool {
        self.concurrent.as_ref().is_some_and(|c| c.scheduler.copies_everything())
    }

    /// New data has left on a path.
    pub(super) fn fresh_data_left(&mut self, index: usize) {
        if let Some(concurrent) = &mut self.concurrent {
            concurrent.scheduler.sent(index);
        }
    }

    /// Whether a path has less outstanding than its share of the peer's receive window.
    fn within_share(&self, multipath: &Multipath, index: usize) -> bool {
        let n = self.paths.iter().filter(|p| p.is_active()).count().max(1) as u64;
        let in_flight = self.paths[index].in_flight;
        !multipath.split_buffer || in_flight == 0 || in_flight < u64::from(self.peer_window) / n
    }

    /// Where a lost chunk that was sent on path `last` goes.
    pub(super) fn lost_goes(&self, multipath: &Multipath, tsn: u64, last: usize) -> usize {
        if let Some(concurrent) = &self.concurrent
            && concurrent.rescue.1.contains(&tsn)
            && self.paths[concurrent.rescue.0].is_usable()
        {
            return concurrent.rescue.0;
        }
        if multipath.retransmission == Retransmission::SamePath && self.paths[last].is_active() {
            return last;
        }
        let active = (0..self.paths.len()).filter(|i| self.paths[*i].is_active());
        if multipath.retransmission == Retransmission::Fastest {
            // One path at a time: where data goes.
            if multipath.scheduler == PathScheduler::Preferred && self.paths[self.current].is_active() {
                return self.current;
            }
            let key = |i: &usize| (self.paths[*i].rtt.smoothed().unwrap_or(Duration::MAX), *i);
            return active.min_by_key(key).unwrap_or(self.current);
        }
        let key = |i: &usize| {
            let p = &self.paths[*i];
            let first = match multipath.retransmission {
                Retransmission::LargestThreshold | Retransmission::SamePath => p.cc.threshold().unwrap_or(u64::MAX),
                Retransmission::LargestWindow | Retransmission::Fastest => p.cc.window(),
                Retransmission::LowestLoss => {
                    let count = p.several.as_ref().map_or_else(Count::default, |s| s.count);
                    u64::MAX - count.lost * 1_000_000 / count.sent.max(1)
                }
            };
            // Of equal ones: another than the one that lost it, and then the one with more room.
            (first, *i != last, p.cc.window().saturating_sub(p.in_flight), core::cmp::Reverse(*i))
        };
        active.max_by_key(key).unwrap_or(self.current)
    }

    /// While the peer's window is the limit: the path on which what blocks it goes once more.
    pub(super) fn rescue_path(&mut self, now: Instant) -> Option<usize> {
        let multipath = self.multipath().filter(|m| m.opportunistic)?;
        if self.queues.is_empty() || self.is_opening() || !self.out.any_in_flight() {
            return None;
        }
        let above = self.out.received().last()?;
        // What blocks the window is the first chunk that is missing below something that has
        // arrived. By the measure of its own path it should have been acknowledged by now.
        let due = |s: &Sent, paths: &[Path]| s.sent_at + paths[usize::from(s.path.0)].rtt.late();
        let mut blocking = None;
        let paths = &self.paths;
        self.out.each_hole(|tsn, sent| {
            let waits = tsn < above && sent.fate == Fate::InFlight && sent.times == 1;
            blocking = waits.then(|| (usize::from(sent.path.0), due(sent, paths)));
            // One that goes again already may be what blocks it now; the next will.
            tsn < above && !waits
        });
        let (from, at) = blocking?;
        if at > now {
            self.concurrent(&multipath).rescue_at = Some(at);
            return None;
        }
        let target = self.fresh_path(now, 1 << from)?;
        let (room, id) = (usize::from(self.paths[target].room) - 12, self.paths[target].id);
        let paths = &self.paths;
        let (mut late, mut size) = (Vec::new(), 0);
        self.out.each_hole(|tsn, sent| {
            let waits = sent.fate == Fate::InFlight && sent.times == 1 && sent.path != id;
            if waits && due(sent, paths) <= now {
                size += usize::from(sent.size);
                if size > room && !late.is_empty() {
                    return false;
                }
                late.push(tsn);
            }
            tsn < above && late.len() < MOST_RESCUED
        });
        for tsn in &late {
            let Some((path, size)) = self.out.lose(*tsn, false) else { continue };
            let index = usize::from(path.0);
            self.paths[index].leave(size);
            if self.paths[index].in_flight == 0 {
                // Nothing else would show any more whether the path works.
                self.paths[index].heartbeat.wanted |= self.paths[index].heartbeat.is_idle();
            }
            if multipath.penalise {
                self.penalise(now, index);
            }
        }
        self.concurrent(&multipath).rescue = (target, late);
        self.stats.opportunistic += 1;
        Some(target)
    }

    /// Before it is looked at what can leave.
    pub(super) fn forget_rescue(&mut self) {
        if let Some(concurrent) = &mut self.concurrent {
            concurrent.rescue_at = None;
        }
    }

    /// What was to be sent once more was.
    pub(super) fn rescued(&mut self) {
        if let Some(concurrent) = &mut self.concurrent {
            concurrent.rescue.1.clear();
        }
    }

    /// A path has blocked the peer's window: its own comes down, at most once until what is
    /// outstanding now is acknowledged.
    fn penalise(&mut self, now: Instant, index: usize) {
        let next = self.out.next();
        let path = &mut self.paths[index];
        if path.recovery.is_none() {
            path.recovery = Some(next);
            let flight = path.in_flight.max(path.cc.mss());
            path.cc.on_congestion(&Loss { now, cause: Cause::Loss, flight });
        }
    }

    /// Before an acknowledgment is read: what is outstanding longest on each path.
    pub(super) fn note_earliest(&mut self) {
        if self.multipath().is_none() {
            return;
        }
        for path in &mut self.paths {
            if let Some(several) = &mut path.several {
                several.earliest = several.pseudo.find(&self.out, path.id);
            }
        }
    }

    /// The first TSN that is not acknowledged: where several paths are in use, of those on this
    /// path.
    pub(super) fn acked_to(&mut self, index: usize) -> u64 {
        if self.multipath().is_none() {
            return self.out.base();
        }
        let path = &mut self.paths[index];
        let Some(several) = &mut path.several else { return self.out.base() };
        let (first, again) = several.pseudo.find(&self.out, path.id);
        first.min(again)
    }

    /// The bytes for which the congestion window of a path may grow. With one path they are counted
    /// when the cumulative TSN passes them, whenever they arrived; with several when what was
    /// outstanding longest on the path is acknowledged, what arrived before included.
    pub(super) fn credited(&mut self, index: usize) -> u64 {
        let updates = self.multipath().is_some_and(|m| m.window_update);
        let path = &mut self.paths[index];
        let Some(several) = path.several.as_mut().filter(|_| updates) else { return path.ack.credited };
        several.uncredited += path.ack.delivered;
        if path.ack.advanced { core::mem::take(&mut several.uncredited) } else { 0 }
    }

    /// Whether an acknowledgment restarts T3-rtx of a path (RFC 9260 section 6.3.2, rule R3).
    pub(super) fn restarts_timer(&self, index: usize) -> bool {
        let ack = &self.paths[index].ack;
        if self.config.recovery.detection == LossDetection::RackTlp {
            return ack.delivered > 0;
        }
        match self.multipath() {
            Some(multipath) if multipath.window_update => ack.advanced,
            _ => ack.cumulative > 0,
        }
    }

    /// How many miss indications an acknowledgment is for a chunk of a path, and below which TSN:
    /// it stands for `packets`, if its sender delays acknowledgments for CMT (Iyengar 2006, section
    /// 4.3).
    pub(super) fn misses(&self, index: usize, advanced: bool, packets: u8) -> (u64, impl Fn(u64) -> u8 + use<>) {
        let path = &self.paths[index];
        let multipath = self.multipath();
        let top = match &multipath {
            // In recovery everything that is missing below what has arrived on the path counts (RFC
            // 9260 section 7.2.4).
            Some(m) if m.split_fast_retransmit && path.recovery.is_some() && path.ack.advanced => {
                path.several.as_ref().map_or(path.ack.highest, |s| s.highest)
            }
            Some(m) if m.split_fast_retransmit => path.ack.highest,
            _ if path.recovery.is_some() && advanced => self.out.received().last().unwrap_or(0),
            Some(_) => self.paths.iter().map(|p| p.ack.highest).max().unwrap_or(0),
            None => path.ack.highest,
        };
        let alone = self.paths.iter().filter(|p| p.ack.delivered > 0).count() == 1;
        let many = if multipath.is_some_and(|m| m.delayed_ack) && alone { packets.max(1) } else { 1 };
        let lowest = path.ack.lowest;
        (top, move |tsn| if tsn < lowest { many } else { 1 })
    }

    /// Whether no path is known to work, and several do not.
    pub(super) fn is_silent(&self) -> bool {
        let mut live = self.live_paths().filter(|p| p.state != PathState::Unconfirmed);
        self.paths.len() > 1 && live.all(|p| matches!(p.state, PathState::PotentiallyFailed | PathState::Inactive))
    }
}
