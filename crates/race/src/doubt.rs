//! The outcome history against a candidate, and how much of it concerns another one.
//!
//! *Responsible for* the words of a bad mark, and for judging a candidate by the marks of its
//! circumstances. *Not responsible for* how long a mark lives (`cache`), nor for what is done about
//! it (`race`): it is advice, and excludes no candidate.

use crate::{Family, StackId};
use core::fmt;
use neater_base::Instant;
use std::net::SocketAddr;

/// How a candidate came to be bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum BadCause {
    /// The attempt failed, by whatever error.
    Failed,
    /// The peer never answered, although it had more than its fair time.
    Silent,
    /// The peer answered, and the handshake did not go on.
    Stalled,
    /// The connection was lost right after set-up, before anything had come back.
    Died,
    /// It was established, and what was asked over it was not answered.
    Unanswered,
    /// It was established, and the peer broke the rules of what was to be spoken over it.
    Broken,
    /// It was established, and the peer demanded another protocol: a refusal, and no accident.
    WantsOther,
}

impl BadCause {
    /// Whether it is about a connection that was established: another set-up that succeeds shows
    /// nothing against it.
    #[must_use]
    pub const fn is_of_service(self) -> bool {
        matches!(self, Self::Died | Self::Unanswered | Self::Broken | Self::WantsOther)
    }
}

impl fmt::Display for BadCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed => "failed",
            Self::Silent => "did not answer",
            Self::Stalled => "answered, but did not finish its handshake",
            Self::Died => "was lost right after set-up",
            Self::Unanswered => "was established, but did not answer",
            Self::Broken => "was established, but broke the rules of its protocol",
            Self::WantsOther => "was established, but asked for another protocol",
        })
    }
}

/// What is to be remembered of a candidate that was no good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Penalty {
    /// The protocol stack.
    pub stack: StackId,
    /// The endpoint.
    pub addr: SocketAddr,
    /// What was wrong with it.
    pub cause: BadCause,
    /// It may be the group of its stack that does not get through, as where UDP is blocked: nothing
    /// of the same group worked at that time.
    pub suspect_group: bool,
    /// It may be its address family that does not get through: nothing of the same family worked at
    /// that time.
    pub suspect_family: bool,
}

impl Penalty {
    /// A penalty of this candidate alone.
    #[must_use]
    pub const fn new(stack: StackId, addr: SocketAddr, cause: BadCause) -> Self {
        Self { stack, addr, cause, suspect_group: false, suspect_family: false }
    }
}

/// A bad mark: a [`Penalty`] that is still remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// What was learnt.
    pub penalty: Penalty,
    /// When, the last time.
    pub since: Instant,
    /// Until when it counts.
    pub until: Instant,
}

/// The outcome history that deprioritises a candidate of a race: it stands behind candidates with
/// less against them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// The mark that weighs most.
    pub mark: Mark,
    /// Whether the mark is the candidate's own. Otherwise they have the group of the stack or the
    /// family in common.
    pub own: bool,
    /// The weight: higher is worse.
    pub(crate) weight: u8,
}

/// The weight of a mark of the candidate's own: more than all suspicions together.
const OWN: u8 = 4;
/// A blocked protocol is commoner than a broken address family, and is what a silent candidate is
/// first suspected of.
const GROUP: u8 = 2;
const FAMILY: u8 = 1;

/// Judges a candidate. `group` returns the group of a stack, if it takes part.
///
/// From one silent candidate it cannot be known whether its protocol or its family is dead, so that
/// both are suspected: first goes what has neither, and the stack of the other group before the one
/// of the other family.
pub(crate) fn judge<'a>(
    marks: impl Iterator<Item = &'a Mark>,
    stack: StackId,
    addr: SocketAddr,
    group: impl Fn(StackId) -> Option<u8>,
) -> Option<Doubt> {
    let (mut by_group, mut by_family) = (None, None);
    for mark in marks {
        let bad = &mark.penalty;
        if (bad.stack, bad.addr) == (stack, addr) {
            return Some(Doubt { mark: *mark, own: true, weight: OWN });
        }
        if bad.suspect_group && group(bad.stack).is_some_and(|g| group(stack) == Some(g)) {
            by_group = by_group.or(Some(*mark));
        }
        if bad.suspect_family && Family::of(&bad.addr.ip()) == Family::of(&addr.ip()) {
            by_family = by_family.or(Some(*mark));
        }
    }
    let weight = by_group.map_or(0, |_| GROUP) + by_family.map_or(0, |_| FAMILY);
    Some(Doubt { mark: by_group.or(by_family)?, own: false, weight })
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    /// The stacks 1 and 2 are of one group, 7 of another.
    fn group(stack: StackId) -> Option<u8> {
        match stack.0 {
            1 | 2 => Some(0),
            7 => Some(1),
            _ => None,
        }
    }

    fn addr(text: &str) -> SocketAddr {
        SocketAddr::new(text.parse().unwrap(), 443)
    }

    fn mark(stack: u16, to: &str, suspect_group: bool, suspect_family: bool) -> Mark {
        let penalty =
            Penalty { suspect_group, suspect_family, ..Penalty::new(StackId(stack), addr(to), BadCause::Silent) };
        Mark { penalty, since: Instant::ZERO, until: Instant::ZERO + Duration::from_secs(60) }
    }

    fn weight(marks: &[Mark], stack: u16, to: &str) -> u8 {
        judge(marks.iter(), StackId(stack), addr(to), group).map_or(0, |d| d.weight)
    }

    #[test]
    fn what_shares_neither_protocol_nor_family_with_a_silent_candidate_is_beyond_doubt() {
        let marks = [mark(1, "2001:db8::1", true, true)];
        assert_eq!(weight(&marks, 7, "192.0.2.1"), 0);
        assert_eq!(weight(&marks, 7, "2001:db8::1"), FAMILY);
        assert_eq!(weight(&marks, 2, "192.0.2.1"), GROUP);
        assert_eq!(weight(&marks, 1, "2001:db8::9"), GROUP + FAMILY);
        assert_eq!(weight(&marks, 1, "2001:db8::1"), OWN);
    }

    #[test]
    fn a_mark_without_suspicion_is_about_its_own_candidate_alone() {
        let marks = [mark(1, "2001:db8::1", false, false)];
        assert_eq!(weight(&marks, 1, "2001:db8::2"), 0);
        assert_eq!(weight(&marks, 1, "2001:db8::1"), OWN);
    }

    #[test]
    fn an_own_mark_goes_before_suspicions_whatever_their_order() {
        let mut marks = [mark(1, "2001:db8::1", true, true), mark(1, "2001:db8::2", false, false)];
        for _ in 0..2 {
            let doubt = judge(marks.iter(), StackId(1), addr("2001:db8::2"), group).unwrap();
            assert!(doubt.own && doubt.mark.penalty.addr == addr("2001:db8::2"));
            marks.reverse();
        }
    }

    #[test]
    fn a_stack_that_takes_no_part_has_no_group() {
        assert_eq!(weight(&[mark(99, "2001:db8::1", true, false)], 98, "192.0.2.1"), 0);
    }
}
