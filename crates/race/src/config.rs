//! What a race is given at its start: delays, bounds, paths and stacks.

use crate::{Family, PathId, StackId};
use core::time::Duration;
use neater_base::Instant;

/// "a subsequent connection MUST NOT be started within 10 milliseconds of the previous attempt"
/// (RFC 8305 section 5).
pub const MIN_ATTEMPT_DELAY: Duration = Duration::from_millis(10);
/// Maximum Connection Attempt Delay: "The current recommended value is 2 seconds" (RFC 8305 section
/// 5).
pub const MAX_ATTEMPT_DELAY: Duration = Duration::from_secs(2);
/// The longest that [`Config::resolution_delay`] may be. RFC 8305 gives no upper bound; this is
/// ours.
pub const MAX_RESOLUTION_DELAY: Duration = Duration::from_secs(2);
/// The most that [`Config::max_candidates`] may be.
pub const MAX_CANDIDATES: usize = 256;
/// The most attempts with the first family before another one's turn.
const MAX_FIRST_FAMILY_COUNT: usize = 16;
/// How many paths take part in one race; further ones are left out.
pub const MAX_PATHS: usize = 16;
/// How many stacks take part in one race; further ones are left out.
pub const MAX_STACKS: usize = 16;

/// Delays and bounds of a race. The defaults are those of RFC 8305 section 8 where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Connection Attempt Delay: time from one start to the next. 10 ms to 2 s, 250 ms by default.
    pub attempt_delay: Duration,
    /// Resolution Delay: how long addresses wait for better answers. At most 2 s, 50 ms by default.
    pub resolution_delay: Duration,
    /// First Address Family Count: attempts with the first family before another one's turn. 1 to
    /// 16, 1 by default.
    pub first_family_count: usize,
    /// The family whose answer is waited for. [`Family::V6`] (the default) leaves the order of
    /// families to RFC 6724; [`Family::V4`] puts IPv4 first wherever it is as usable as IPv6 (RFC
    /// 6724 section 6 rules 1, 2 and 5).
    pub preferred_family: Family,
    /// The most candidates there ever are, however many addresses DNS returns (RFC 9623 section
    /// 12.2). 1 to 256, 64 by default.
    pub max_candidates: usize,
    /// Whether an established candidate waits a little for a better one that is under way. True by
    /// default.
    pub grace: bool,
    /// When the whole establishment has to be decided.
    pub deadline: Option<Instant>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            attempt_delay: Duration::from_millis(250),
            resolution_delay: Duration::from_millis(50),
            first_family_count: 1,
            preferred_family: Family::V6,
            max_candidates: 64,
            grace: true,
            deadline: None,
        }
    }
}

impl Config {
    /// This configuration with every value moved into its range. A race applies it by itself.
    #[must_use]
    pub fn clamped(self) -> Self {
        Self {
            attempt_delay: self.attempt_delay.clamp(MIN_ATTEMPT_DELAY, MAX_ATTEMPT_DELAY),
            resolution_delay: self.resolution_delay.min(MAX_RESOLUTION_DELAY),
            first_family_count: self.first_family_count.clamp(1, MAX_FIRST_FAMILY_COUNT),
            max_candidates: self.max_candidates.clamp(1, MAX_CANDIDATES),
            ..self
        }
    }
}

/// A network path that takes part: its place in the list given to the race is its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSpec {
    /// The caller's name for it.
    pub id: PathId,
    /// The endpoint's port, where neither a service nor the stack names another.
    pub port: u16,
    /// An A answer, positive or negative, will be given.
    pub expect_v4: bool,
    /// An AAAA answer, positive or negative, will be given.
    pub expect_v6: bool,
    /// An answer about HTTPS or SVCB records, positive or negative, will be given.
    pub expect_services: bool,
}

/// A protocol stack that takes part: its place in the list given to the race is its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackOption {
    /// The caller's name for it.
    pub id: StackId,
    /// Stacks of one group tend to fail together, like all those that need UDP; attempts alternate
    /// between groups.
    pub group: u8,
    /// A port other than the endpoint's; a port in a service record goes before it.
    pub port: Option<u16>,
    /// Only where a service record names it.
    pub needs_service: bool,
    /// Whether it protects what is sent. History never lets one that does not go before one that
    /// does.
    pub secure: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8305 section 5: "a subsequent connection MUST NOT be started within 10 milliseconds of
    /// the previous attempt."
    #[test]
    fn values_out_of_range_are_moved_to_its_edge() {
        let low =
            Config { attempt_delay: Duration::ZERO, first_family_count: 0, max_candidates: 0, ..Config::default() };
        let low = low.clamped();
        assert_eq!(low.attempt_delay, Duration::from_millis(10));
        assert_eq!((low.first_family_count, low.max_candidates), (1, 1));
        let high = Config {
            attempt_delay: Duration::MAX,
            resolution_delay: Duration::MAX,
            first_family_count: usize::MAX,
            max_candidates: usize::MAX,
            ..Config::default()
        };
        let high = high.clamped();
        assert_eq!(high.attempt_delay, Duration::from_secs(2));
        assert_eq!(high.resolution_delay, Duration::from_secs(2));
        assert_eq!((high.first_family_count, high.max_candidates), (16, 256));
        assert_eq!(Config::default().clamped(), Config::default());
    }
}
