//! The cookies that have opened an association, for as long as they are valid.
//!
//! SCTP has no TIME-WAIT: a COOKIE ECHO chunk that was copied or delayed would open an association
//! again that is over, and deliver what travelled with it a second time. A cookie is known by the
//! tag that we gave in it.

use core::time::Duration;
use neater_base::Instant;
use neater_sctp_wire::Tag;
use std::collections::{BTreeSet, VecDeque};

/// Cookies that are remembered; the oldest are forgotten beyond it.
const MOST: usize = 65_536;

#[derive(Debug, Default)]
pub(super) struct Spent {
    tags: BTreeSet<u32>,
    /// In the order of time: when each may be forgotten.
    ends: VecDeque<(Instant, u32)>,
}

impl Spent {
    /// The cookie with this tag has been used; it is stale after `life` at the latest.
    pub(super) fn add(&mut self, now: Instant, life: Duration, tag: Tag) {
        while self.ends.len() >= MOST || self.ends.front().is_some_and(|(end, _)| *end < now) {
            let Some((_, old)) = self.ends.pop_front() else { break };
            self.tags.remove(&old);
        }
        if self.tags.insert(tag.0) {
            self.ends.push_back((now + life, tag.0));
        }
    }

    /// Whether the cookie with this tag has been used.
    pub(super) fn has(&self, tag: Tag) -> bool {
        self.tags.contains(&tag.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_bounded_in_time_and_number() {
        let (mut spent, life) = (Spent::default(), Duration::from_secs(60));
        spent.add(Instant::ZERO, life, Tag(1));
        spent.add(Instant::ZERO + life, life, Tag(2));
        assert!(spent.has(Tag(1)) && spent.has(Tag(2)));
        spent.add(Instant::ZERO + life + Duration::from_secs(1), life, Tag(3));
        assert!(!spent.has(Tag(1)) && spent.has(Tag(2)));
        for tag in 10..10 + MOST as u32 {
            spent.add(Instant::ZERO + 2 * life, life, Tag(tag));
        }
        assert!(!spent.has(Tag(2)) && spent.has(Tag(10)) && spent.ends.len() == MOST && spent.tags.len() == MOST);
    }
}
