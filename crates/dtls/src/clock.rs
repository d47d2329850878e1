//! Between our time and the standard library's.

use core::time::Duration;
use neater_base::Instant;

/// Timers that are further away than this are none: dimpl returns "in ten years" when it waits for
/// nothing.
const NEVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Maps our constructible instants to the opaque ones that dimpl takes.
///
/// The standard library's `Instant` cannot be built from a number, so one is read when a session
/// begins and everything is counted from it; only differences are ever used, so the origin cancels
/// out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Epoch {
    theirs: std::time::Instant,
    ours: Instant,
}

impl Epoch {
    #[allow(clippy::disallowed_methods, reason = "an opaque origin; only differences to it are ever used")]
    pub(crate) fn new(now: Instant) -> Self {
        Self { theirs: std::time::Instant::now(), ours: now }
    }

    pub(crate) fn theirs(self, t: Instant) -> std::time::Instant {
        self.theirs + t.saturating_since(self.ours)
    }

    /// `None`: so far away that it means never.
    pub(crate) fn ours(self, t: std::time::Instant, now: Instant) -> Option<Instant> {
        let at = self.ours + t.saturating_duration_since(self.theirs);
        (at.saturating_since(now) < NEVER).then_some(at)
    }
}
