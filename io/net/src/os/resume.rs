//! Noticing that time has passed without us.

use core::time::Duration;
use neater_base::Instant;

/// What is shorter than this is a busy machine, not an absence.
pub(crate) const ABSENCE: Duration = Duration::from_secs(10);

/// Compares two clocks, of which one stands still while the machine sleeps, and a deadline with its
/// delivery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResumeWatch {
    /// When both were read last.
    boot: Instant,
    awake: Instant,
    /// When the process was last seen to be there.
    looked: Instant,
}

impl ResumeWatch {
    /// Starts at these times.
    pub(crate) const fn new(boot: Instant, awake: Instant) -> Self {
        Self { boot, awake, looked: boot }
    }

    /// The clocks now stand here; `missed` is a deadline that lay ahead when it was set and has
    /// just been reported. The clock that stands still is not read after less than [`ABSENCE`], so
    /// that shorter absences may count together. Returns how long the process was away, if it was
    /// away for more than [`ABSENCE`]: the machine slept, or the process was stopped and its
    /// deadline waited.
    #[inline]
    pub(crate) fn observe(
        &mut self,
        boot: Instant,
        awake: impl FnOnce() -> Instant,
        missed: Option<Instant>,
    ) -> Option<Duration> {
        if boot <= self.looked + ABSENCE && missed.is_none() {
            self.looked = boot;
            return None;
        }
        self.look(boot, awake(), missed)
    }

    #[inline(never)]
    fn look(&mut self, boot: Instant, awake: Instant, missed: Option<Instant>) -> Option<Duration> {
        self.looked = boot;
        let asleep = (boot - self.boot).saturating_sub(awake - self.awake);
        let stopped = missed.map_or(Duration::ZERO, |deadline| boot - deadline);
        (self.boot, self.awake) = (boot, awake);
        Some(asleep.max(stopped)).filter(|gap| *gap > ABSENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(secs: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(secs)
    }

    #[test]
    fn sleep_is_told_once_and_mere_idleness_never() {
        let mut watch = ResumeWatch::new(s(100), s(50));
        assert_eq!(watch.observe(s(5000), || s(4950), None), None, "an hour without a poll is no absence");
        assert_eq!(watch.observe(s(5020), || s(4959), None), Some(Duration::from_secs(11)));
        assert_eq!(watch.observe(s(5021), || s(4960), None), None);
        assert_eq!(watch.observe(s(5031), || s(4960), None), None, "10 s are not more than 10 s");
    }

    #[test]
    fn a_deadline_that_comes_far_too_late_means_that_the_process_was_stopped() {
        let mut watch = ResumeWatch::new(s(100), s(100));
        assert_eq!(watch.observe(s(130), || s(130), Some(s(125))), None);
        assert_eq!(watch.observe(s(160), || s(160), Some(s(140))), Some(Duration::from_secs(20)));
    }
}
