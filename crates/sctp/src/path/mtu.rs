//! How large a packet a path takes: searched for with probes (RFC 8899), each a HEARTBEAT chunk
//! with padding (section 6.2.1.2).
//!
//! All sizes are those of SCTP packets: what IP, UDP or DTLS add is known to the packet layer.
//!
//! *Invariants*: the size in use was acknowledged once, or is the base, or below it after the base
//! failed; a report from the network never sets it by itself, and never takes it below the base.

use crate::config::MIN_ROOM;
use core::time::Duration;
use neater_base::Instant;

/// `BASE_PLPMTU` unless it is configured: what the least link of IPv6 takes (1,280 bytes) with UDP.
/// RFC 8899 section 5.1.2: larger than 1,200.
pub(crate) const BASE: u16 = 1232;
/// `MAX_PROBES` (section 5.1.2).
const MAX_PROBES: u8 = 3;
/// A gain below this is not searched for.
const LEAST_GAIN: u16 = 16;
/// `PMTU_RAISE_TIMER` (section 5.1.1).
const RAISE: Duration = Duration::from_secs(600);
/// The base is probed again after this when it did not arrive, doubled each time.
const AGAIN: Duration = Duration::from_secs(5);
/// `PROBE_TIMER` is at least this (section 5.1.1).
const LEAST_WAIT: Duration = Duration::from_secs(1);
/// Timeouts in a row that are taken for a black hole.
const BLACK_HOLE: u32 = 2;

/// The states of section 5.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The path does not work yet, or no longer; or there is nothing to search.
    Disabled,
    /// Whether the base arrives is asked.
    Base,
    Searching,
    Complete,
    /// Not even the base arrives.
    Error,
}

/// A probe that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Probe {
    size: u16,
    nonce: u64,
    lost_at: Instant,
}

/// The search on one path.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    enabled: bool,
    state: State,
    /// The largest that the layer takes: `MAX_PLPMTU`.
    most: u16,
    /// What every path is believed to take: `BASE_PLPMTU`.
    base: u16,
    /// In use: `PLPMTU`.
    size: u16,
    /// Everything from here on is too large.
    too_large: u16,
    /// A size that the network has named, to be tried next.
    hint: Option<u16>,
    probe: Option<Probe>,
    /// Probes of one size that were not answered: `PROBE_COUNT`.
    lost: u8,
    /// When the search is resumed.
    raise: Option<Instant>,
    /// How often in a row not even the base has arrived.
    failures: u32,
    /// Without a search: packets are too large for the path, and are let be cut on the way.
    cut: bool,
}

impl Search {
    /// For a layer that takes packets of `most` bytes; without `enabled` that is believed, with it
    /// no more than `base` at first.
    pub(crate) fn new(most: u16, base: u16, enabled: bool) -> Self {
        let base = base.max(MIN_ROOM).min(most) / 4 * 4;
        Self {
            enabled,
            state: State::Disabled,
            most,
            base,
            size: if enabled { base } else { most },
            too_large: most.saturating_add(4),
            hint: None,
            probe: None,
            lost: 0,
            raise: None,
            failures: 0,
            cut: false,
        }
    }

    /// Whether routers may cut packets: where nothing is searched, and what was believed has turned
    /// out, or seems, to be too much.
    pub(crate) const fn may_be_cut(&self) -> bool {
        self.cut
    }

    /// The largest that the layer takes.
    pub(crate) const fn most(&self) -> u16 {
        self.most
    }

    /// The layer takes packets of so many bytes: more or less than was believed.
    pub(crate) fn set_most(&mut self, most: u16) {
        let most = most.max(MIN_ROOM) / 4 * 4;
        let none_refused = self.too_large > self.most;
        self.too_large = if none_refused { most.saturating_add(4) } else { self.too_large.min(most.saturating_add(4)) };
        self.most = most;
        // What is out and larger than that shows nothing that could be used.
        self.probe = self.probe.filter(|probe| probe.size <= most);
        self.hint = self.hint.filter(|hint| *hint <= most);
        self.base = self.base.min(most);
        self.size = if self.enabled { self.size.min(most) } else { most };
        if self.state == State::Complete {
            self.state = State::Searching;
            self.settle();
        }
    }

    /// What may be sent now.
    pub(crate) const fn size(&self) -> u16 {
        self.size
    }

    /// The path works: the search begins, or goes on. The handshake has shown that it works, not
    /// what it takes.
    pub(crate) fn start(&mut self) {
        if self.enabled && self.state == State::Disabled && self.raise.is_none() {
            self.state = if self.size < self.base { State::Error } else { State::Searching };
            self.lost = 0;
            self.settle();
        }
    }

    /// The path does not work: losses are no evidence about sizes.
    pub(crate) fn stop(&mut self) {
        self.state = State::Disabled;
        (self.probe, self.raise, self.hint) = (None, None, None);
    }

    /// The size to probe next, if one is to be sent now.
    pub(crate) fn wanted(&self) -> Option<u16> {
        if self.probe.is_some() {
            return None;
        }
        match self.state {
            State::Disabled | State::Complete => None,
            State::Base | State::Error => Some(self.base),
            State::Searching => Some(self.hint.filter(|h| self.is_candidate(*h)).unwrap_or_else(|| self.middle())),
        }
    }

    /// The largest of all first, for most paths take what their first link takes; then halfway
    /// between what arrives and what does not.
    fn middle(&self) -> u16 {
        if self.too_large > self.most {
            return self.most;
        }
        (self.size + (self.too_large - self.size) / 2) / 4 * 4
    }

    const fn is_candidate(&self, size: u16) -> bool {
        size > self.size && size < self.too_large && size <= self.most
    }

    /// A probe of that size was sent.
    pub(crate) fn sent(&mut self, now: Instant, size: u16, nonce: u64, rto: Duration) {
        let lost_at = now + rto.max(LEAST_WAIT);
        self.probe = Some(Probe { size, nonce, lost_at });
    }

    /// A heartbeat came back; whether it was the probe.
    pub(crate) fn answered(&mut self, now: Instant, nonce: u64) -> bool {
        let Some(probe) = self.probe.filter(|p| p.nonce == nonce) else { return false };
        self.probe = None;
        self.lost = 0;
        if matches!(self.state, State::Base | State::Error) {
            self.state = State::Searching;
            self.failures = 0;
            self.size = self.size.max(self.base);
        }
        self.size = self.size.max(probe.size);
        self.settle_at(now);
        true
    }

    /// Ends the search if there is little left to be found.
    fn settle_at(&mut self, now: Instant) {
        self.settle();
        if self.state == State::Complete {
            self.raise = Some(now + RAISE);
        }
    }

    fn settle(&mut self) {
        let left = self.too_large.min(self.most.saturating_add(4)) - self.size;
        if self.state == State::Searching && left < LEAST_GAIN.max(5) {
            self.state = State::Complete;
        }
    }

    /// What is due by now.
    pub(crate) fn timeout(&mut self, now: Instant) {
        if let Some(probe) = self.probe.filter(|p| p.lost_at <= now) {
            self.probe = None;
            self.lost += 1;
            if self.lost >= MAX_PROBES {
                self.failed(now, probe.size);
            }
        }
        if self.raise.is_some_and(|at| at <= now) {
            self.raise = None;
            self.lost = 0;
            match self.state {
                State::Complete => {
                    self.too_large = self.most.saturating_add(4);
                    self.state = State::Searching;
                    self.settle_at(now);
                }
                State::Disabled if self.enabled => {
                    self.too_large = self.most.saturating_add(4);
                    self.state = State::Error;
                }
                _ => {}
            }
        }
    }

    /// Packets of that size do not arrive.
    fn failed(&mut self, now: Instant, size: u16) {
        self.lost = 0;
        self.hint = None;
        match self.state {
            State::Base | State::Error => {
                self.state = State::Disabled;
                self.size = self.size.min(MIN_ROOM);
                // Perhaps nothing at all arrives just now: it is tried again soon, and then less
                // and less often.
                self.raise = Some(now + (AGAIN * (1 << self.failures.min(8))).min(RAISE));
                self.failures += 1;
            }
            State::Searching => {
                self.too_large = self.too_large.min(size);
                self.settle_at(now);
            }
            State::Disabled | State::Complete => {}
        }
    }

    /// Timeouts in a row: perhaps packets as large as ours no longer arrive (section 4.3). Returns
    /// whether the size has changed.
    pub(crate) fn suspect(&mut self, timeouts: u32) -> bool {
        self.cut |= !self.enabled && timeouts >= BLACK_HOLE;
        if !self.enabled || timeouts < BLACK_HOLE || !timeouts.is_multiple_of(BLACK_HOLE) || self.size <= MIN_ROOM {
            return false;
        }
        self.too_large = if self.size > self.base { self.size } else { self.too_large };
        let before = self.size;
        self.size = if before > self.base { self.base } else { MIN_ROOM };
        self.state = if self.size < self.base { State::Error } else { State::Base };
        (self.probe, self.raise, self.hint, self.lost) = (None, None, None, 0);
        before != self.size
    }

    /// The network reports that a packet was too large, and what it takes (section 4.6). Believed
    /// of a probe, and only as something to try; of what is in use it is a reason to ask again.
    /// Returns whether the size has changed.
    pub(crate) fn too_big(&mut self, now: Instant, size: u16) -> bool {
        let size = size / 4 * 4;
        self.cut |= !self.enabled && size < self.size;
        let asked = self.probe.map_or(self.size, |p| p.size.max(self.size));
        if !self.enabled || self.state == State::Disabled || size < self.base || size >= asked {
            return false;
        }
        if size >= self.size {
            self.too_large = self.too_large.min(asked);
            (self.probe, self.lost) = (None, 0);
            self.hint = (size > self.size).then_some(size);
            if self.state == State::Searching {
                self.too_large = self.too_large.min(size.saturating_add(4)).max(self.size + 4);
                self.settle_at(now);
            }
            return false;
        }
        // Below what is in use: back to the base, and what was named is asked for from there.
        self.too_large = size.saturating_add(4);
        self.hint = Some(size);
        self.size = self.base;
        self.state = State::Searching;
        (self.probe, self.raise, self.lost) = (None, None, 0);
        self.settle_at(now);
        true
    }

    /// The earliest deadline.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        [self.probe.map(|p| p.lost_at), self.raise].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(n)
    }

    const RTO: Duration = Duration::from_millis(300);

    /// Searches on a path that takes `limit` bytes; returns the size found, the probes it took, and
    /// how long.
    fn search(s: &mut Search, limit: u16, mut now: Instant) -> (u16, u32, Instant) {
        for probes in 0..100 {
            let Some(size) = s.wanted() else { return (s.size(), probes, now) };
            assert!(size.is_multiple_of(4) && size <= s.most && (size > s.size || size == BASE), "{size} {s:?}");
            s.sent(now, size, u64::from(probes), RTO);
            assert_eq!(s.wanted(), None, "one at a time");
            if size <= limit {
                now += Duration::from_millis(20);
                assert!(s.answered(now, u64::from(probes)) && !s.answered(now, u64::from(probes)));
            } else {
                let due = s.deadline().unwrap();
                assert!(due >= now + LEAST_WAIT);
                s.timeout(due - Duration::from_nanos(1));
                assert_eq!(s.wanted(), None);
                now = due;
                s.timeout(now);
            }
            assert!(s.size() <= limit.max(MIN_ROOM), "{s:?}");
        }
        panic!("it does not end: {s:?}");
    }

    #[test]
    fn a_path_that_takes_everything_is_found_with_one_probe() {
        let mut s = Search::new(8972, BASE, true);
        assert_eq!((s.size(), s.wanted()), (BASE, None), "nothing before the path works");
        s.start();
        assert_eq!(search(&mut s, u16::MAX, ms(0)), (8972, 1, ms(20)));
        assert_eq!(s.deadline(), Some(ms(20) + RAISE));
    }

    #[test]
    fn a_layer_that_takes_more_is_searched_again_and_one_that_takes_less_is_believed() {
        let mut s = Search::new(1432, BASE, true);
        s.start();
        assert_eq!(search(&mut s, u16::MAX, ms(0)).0, 1432);
        s.set_most(1450);
        assert_eq!((s.most(), s.size(), s.wanted()), (1448, 1432, Some(1448)));
        assert_eq!(search(&mut s, u16::MAX, ms(100)), (1448, 1, ms(120)));
        s.set_most(1400);
        assert_eq!((s.size(), s.wanted()), (1400, None));
        // What the path refused stays refused.
        let mut s = Search::new(1472, BASE, true);
        s.start();
        let (found, ..) = search(&mut s, 1300, ms(0));
        s.set_most(1476);
        assert_eq!((s.size(), s.wanted()), (found, None));
        // Before anything was asked, and where nothing is.
        let mut s = Search::new(1432, BASE, true);
        s.set_most(1448);
        s.start();
        assert_eq!(s.wanted(), Some(1448));
        let mut s = Search::new(1432, BASE, false);
        s.set_most(1448);
        assert_eq!((s.size(), s.wanted()), (1448, None));
    }

    #[test]
    fn any_limit_is_found_to_within_the_least_gain() {
        for limit in (BASE..=1472).step_by(4) {
            let mut s = Search::new(1472, BASE, true);
            s.start();
            let (size, probes, _) = search(&mut s, limit, ms(0));
            assert!(limit - size < LEAST_GAIN && probes <= 3 * 6, "{limit}: {size} with {probes}");
        }
    }

    #[test]
    fn one_lost_probe_says_nothing() {
        let mut s = Search::new(1472, BASE, true);
        s.start();
        for _ in 0..2 {
            assert_eq!(s.wanted(), Some(1472));
            s.sent(ms(0), 1472, 9, RTO);
            s.timeout(ms(1000));
        }
        s.sent(ms(1000), 1472, 10, RTO);
        assert!(s.answered(ms(1100), 10));
        assert_eq!(s.size(), 1472);
    }

    #[test]
    fn the_search_is_resumed_after_ten_minutes() {
        let mut s = Search::new(1472, BASE, true);
        s.start();
        let (size, _, end) = search(&mut s, 1400, ms(0));
        assert!(size <= 1400);
        s.timeout(end + RAISE - Duration::from_secs(1));
        assert_eq!(s.wanted(), None);
        let due = s.deadline().unwrap();
        s.timeout(due);
        assert_eq!(search(&mut s, 1472, due).0, 1472);
    }

    #[test]
    fn a_black_hole_leads_to_the_base_and_one_below_that_to_the_least() {
        let mut s = Search::new(1472, BASE, true);
        s.start();
        search(&mut s, 1472, ms(0));
        assert!(!s.suspect(1));
        assert!(s.suspect(2));
        assert_eq!((s.size(), s.wanted()), (BASE, Some(BASE)));
        let (size, _, now) = search(&mut s, 1300, ms(5000));
        assert!((1300 - LEAST_GAIN + 1..=1300).contains(&size), "{size}");
        // And now not even the base.
        assert!(s.suspect(2) && s.suspect(4));
        assert_eq!((s.size(), s.wanted()), (MIN_ROOM, Some(BASE)));
        let (size, probes, now) = search(&mut s, 600, now);
        assert_eq!((size, probes), (MIN_ROOM, 3));
        // It is asked again after five seconds, ten, and so on, and is right some time.
        let mut now = now;
        for wait in [5, 10, 20, 40, 80, 160, 320, 600] {
            s.start();
            assert_eq!((s.wanted(), s.deadline()), (None, Some(now + Duration::from_secs(wait))));
            now += Duration::from_secs(wait);
            s.timeout(now);
            if wait < 600 {
                now = search(&mut s, 600, now).2;
            }
        }
        assert_eq!(search(&mut s, 1472, now).0, 1472);
    }

    #[test]
    fn a_report_shortens_the_search_and_cannot_do_harm() {
        let mut s = Search::new(1472, BASE, true);
        s.start();
        s.sent(ms(0), 1472, 1, RTO);
        assert!(!s.too_big(ms(10), 1400));
        assert_eq!((s.size(), s.wanted()), (BASE, Some(1400)), "named, and still to be shown");
        s.sent(ms(10), 1400, 2, RTO);
        assert!(s.answered(ms(20), 2));
        assert_eq!((s.size(), s.wanted()), (1400, None));
        // Absurd ones.
        for size in [0, 68, 500, BASE - 4, 1400, 1500, u16::MAX] {
            assert!(!s.too_big(ms(30), size), "{size}");
            assert_eq!((s.size(), s.wanted()), (1400, None), "{size}");
        }
        // The path has become narrower.
        assert!(s.too_big(ms(40), 1300));
        assert_eq!((s.size(), s.wanted()), (BASE, Some(1300)));
        s.sent(ms(40), 1300, 3, RTO);
        assert!(s.answered(ms(50), 3));
        assert_eq!(s.size(), 1300);
    }

    #[test]
    fn nothing_is_searched_where_nothing_can_be_found_or_it_is_not_wanted() {
        let mut narrow = Search::new(1000, BASE, true);
        narrow.start();
        assert_eq!((narrow.size(), narrow.wanted()), (1000, None));
        let mut off = Search::new(9000, BASE, false);
        off.start();
        assert_eq!((off.size(), off.wanted(), off.deadline()), (9000, None, None));
        assert!(!off.too_big(ms(0), 9000) && !off.suspect(1) && !off.may_be_cut());
        let mut told = off.clone();
        assert!(!off.suspect(2) && !told.too_big(ms(0), 1300));
        assert!(off.may_be_cut() && told.may_be_cut(), "else nothing would ever arrive");
        assert!(!narrow.may_be_cut());
        let mut stopped = Search::new(1472, BASE, true);
        stopped.start();
        stopped.sent(ms(0), 1472, 1, RTO);
        stopped.stop();
        assert!(!stopped.answered(ms(1), 1), "the path has failed meanwhile");
        assert_eq!((stopped.wanted(), stopped.deadline()), (None, None));
    }
}
