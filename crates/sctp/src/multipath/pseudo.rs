//! What is outstanding longest on one path: the pseudo-cumulative TSNs of the congestion window
//! update for CMT (Iyengar 2006, section 4.2).
//!
//! *Invariant*: no chunk in flight on the path lies below the cursor of its kind.

use crate::ids::PathId;
use crate::recovery::{Fate, Outstanding};

/// The earliest chunks in flight on a path: of those sent once, and of those sent again, which lie
/// below them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pseudo {
    first: u64,
    again: u64,
}

impl Pseudo {
    /// A chunk was sent again on the path.
    pub(crate) fn resent(&mut self, tsn: u64) {
        self.again = self.again.min(tsn);
    }

    /// The earliest chunk in flight of each kind, or where the next one will be.
    pub(crate) fn find(&mut self, out: &Outstanding, path: PathId) -> (u64, u64) {
        let find = |from: u64, again: bool| {
            let from = from.max(out.base());
            let mut tsns = from..out.next();
            let is = |tsn: &u64| {
                out.get(*tsn).is_some_and(|s| s.fate == Fate::InFlight && s.path == path && (s.times > 1) == again)
            };
            tsns.find(is).unwrap_or_else(|| out.next())
        };
        (self.first, self.again) = (find(self.first, false), find(self.again, true));
        (self.first, self.again)
    }
}
