//! Heartbeats of one path (RFC 9260 sections 5.4 and 8.3).

use crate::ids::PathId;
use core::time::Duration;
use neater_base::{Instant, Reader};

/// What we put into a heartbeat, and check when it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Info {
    pub(crate) path: PathId,
    pub(crate) nonce: u64,
}

impl Info {
    pub(crate) const LEN: usize = 12;

    pub(crate) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = self.path.0;
        bytes[4..].copy_from_slice(&self.nonce.to_be_bytes());
        bytes
    }

    /// Reads what a peer returns; `None` if this side never sent such a thing.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != Self::LEN {
            return None;
        }
        let mut r = Reader::new(bytes);
        let path = PathId(r.u8().ok()?);
        r.take(3).ok()?;
        Some(Self { path, nonce: u64::from(r.u32().ok()?) << 32 | u64::from(r.u32().ok()?) })
    }
}

/// The heartbeat machine of a path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heartbeat {
    /// When the next one is due, if they are enabled.
    next: Option<Instant>,
    /// The one that was not answered yet: its nonce, when it was sent, and when it counts as lost.
    waiting: Option<(u64, Instant, Instant)>,
    /// The one that was not answered was sent more than once, and when it goes once more: while no
    /// path answers.
    repeated: bool,
    repeat: Option<Instant>,
    /// One is to be sent now.
    pub(crate) wanted: bool,
    /// When something was last sent that measures the path, and when the next one was scheduled.
    used: Instant,
    scheduled: Instant,
}

impl Heartbeat {
    /// The next one is due then; `None`: never.
    pub(crate) fn schedule(&mut self, now: Instant, next: Option<Instant>) {
        (self.next, self.scheduled) = (next, now);
    }

    /// Something was sent that measures the path: it is not idle.
    pub(crate) fn active(&mut self, now: Instant) {
        self.used = now;
    }

    /// When something else was last sent that measures the path, if that was after the next
    /// heartbeat was scheduled.
    pub(crate) fn used_at(&self) -> Option<Instant> {
        (self.used > self.scheduled).then_some(self.used)
    }

    /// One was sent, or the one that was not answered yet once more, which counts as lost when it
    /// would have.
    pub(crate) fn sent(&mut self, now: Instant, nonce: u64, rto: Duration) {
        self.repeated = self.nonce() == Some(nonce);
        if !self.repeated {
            self.waiting = Some((nonce, now, now + rto));
        }
        self.wanted = false;
        self.used = now;
    }

    /// The nonce of the one that was not answered yet: what is sent meanwhile is the same once
    /// more.
    pub(crate) fn nonce(&self) -> Option<u64> {
        self.waiting.map(|(nonce, ..)| nonce)
    }

    /// Whether one is to go now because no path answers, which each does `every` so often; `None`:
    /// some path does.
    pub(crate) fn take_repeat(&mut self, now: Instant, every: Option<Duration>) -> bool {
        let due = every.is_some() && self.repeat.is_none_or(|at| at <= now);
        if due || every.is_none() {
            self.repeat = every.map(|every| now + every);
        }
        due
    }

    /// One came back: returns how long it took, if it is the one that is waited for, and whether it
    /// was sent only once.
    pub(crate) fn answered(&mut self, now: Instant, nonce: u64) -> Option<(Duration, bool)> {
        let (expected, sent_at, _) = self.waiting?;
        if expected != nonce {
            return None;
        }
        self.waiting = None;
        Some((now - sent_at, !self.repeated))
    }

    /// Since when the one that is waited for has not been answered.
    pub(crate) fn unanswered(&self) -> Option<Instant> {
        self.waiting.map(|(_, at, _)| at)
    }

    /// Whether none is under way or wanted.
    pub(crate) const fn is_idle(&self) -> bool {
        self.waiting.is_none() && !self.wanted
    }

    /// Whether the one that is waited for is lost by now; it is then no longer waited for.
    pub(crate) fn take_lost(&mut self, now: Instant) -> bool {
        let lost = self.waiting.is_some_and(|(_, _, deadline)| deadline <= now);
        if lost {
            self.waiting = None;
        }
        lost
    }

    /// Whether the next one is due by now; it is then no longer scheduled.
    pub(crate) fn take_due(&mut self, now: Instant) -> bool {
        let due = self.next.is_some_and(|next| next <= now);
        if due {
            self.next = None;
        }
        due
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let lost = self.waiting.map(|(_, _, deadline)| deadline);
        [self.next, lost, self.repeat].into_iter().flatten().min()
    }

    /// No more heartbeats: the association ends.
    pub(crate) fn stop(&mut self) {
        (self.next, self.waiting, self.wanted, self.repeat) = (None, None, false, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_once_and_only_with_the_right_nonce() {
        let info = Info { path: PathId(3), nonce: 0x0102_0304_0506_0708 };
        assert_eq!(Info::read(&info.to_bytes()), Some(info));
        assert_eq!(Info::read(&info.to_bytes()[1..]), None);
        let (mut h, ms) = (Heartbeat::default(), |n| Instant::ZERO + Duration::from_millis(n));
        h.sent(ms(10), 7, Duration::from_millis(100));
        assert_eq!(h.answered(ms(50), 8), None);
        assert_eq!(h.answered(ms(50), 7), Some((Duration::from_millis(40), true)));
        assert_eq!(h.answered(ms(50), 7), None);
        h.sent(ms(60), 9, Duration::from_millis(100));
        h.schedule(ms(60), Some(ms(500)));
        assert_eq!(h.deadline(), Some(ms(160)));
        assert!(!h.take_lost(ms(159)) && h.take_lost(ms(160)) && !h.take_lost(ms(160)));
        assert_eq!(h.answered(ms(161), 9), None, "too late");
        assert_eq!(h.used_at(), None, "a heartbeat is no use");
        h.active(ms(200));
        assert_eq!(h.used_at(), Some(ms(200)));
        assert!(!h.take_due(ms(499)) && h.take_due(ms(500)) && !h.take_due(ms(500)));
    }

    #[test]
    fn what_is_repeated_keeps_its_nonce_and_measures_nothing() {
        let (mut h, ms) = (Heartbeat::default(), |n| Instant::ZERO + Duration::from_millis(n));
        let every = Some(Duration::from_millis(500));
        assert_eq!(h.nonce(), None);
        h.sent(ms(0), 7, Duration::from_secs(8));
        assert!(h.take_repeat(ms(10), every) && !h.take_repeat(ms(509), every));
        assert_eq!(h.deadline(), Some(ms(510)));
        assert!(h.take_repeat(ms(510), every));
        assert_eq!(h.nonce(), Some(7));
        h.sent(ms(510), 7, Duration::from_secs(8));
        assert_eq!(h.answered(ms(600), 7), Some((Duration::from_millis(600), false)));
        assert!(!h.take_repeat(ms(2000), None));
        assert_eq!(h.deadline(), None);
    }
}
