//! A decision: what is ranked, what is ruled out, and why.

use crate::path::{NoPaths, RankedPath, rank_paths};
use crate::select::weight;
use crate::stack::{Facts, Shape};
use core::fmt;
use neater_property::{CapacityProfile, Needs, Preference, SecurityLevel, SecurityNeed};

/// What a property does to a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Rules it out.
    Excludes,
    /// Speaks for it, by so much.
    Adds(i32),
    /// Speaks against it, by so much.
    Subtracts(i32),
}

impl Verdict {
    /// What the verdict does to the score.
    #[must_use]
    pub const fn points(self) -> i32 {
        match self {
            Self::Excludes => 0,
            Self::Adds(n) => n,
            Self::Subtracts(n) => -n,
        }
    }
}

/// Why a candidate stands where it does, or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The property by its name in RFC 9622; `security` and `stack` stand for what has no name
    /// there.
    pub property: &'static str,
    /// What was wanted of it.
    pub preference: Preference,
    /// What follows.
    pub verdict: Verdict,
    /// The same in words that fit into brackets behind the property.
    pub text: String,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.verdict {
            Verdict::Excludes => write!(f, "{} ({})", self.property, self.text),
            Verdict::Adds(n) => write!(f, "{} +{n} ({})", self.property, self.text),
            Verdict::Subtracts(n) => write!(f, "{} -{n} ({})", self.property, self.text),
        }
    }
}

/// A stack that may serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranked {
    /// The engine's number for it.
    pub stack: u16,
    /// Its name.
    pub name: &'static str,
    /// The sum of the reasons; higher is better.
    pub score: i32,
    /// What speaks for and against it.
    pub reasons: Vec<Reason>,
}

/// A stack that cannot serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excluded {
    /// The engine's number for it.
    pub stack: u16,
    /// Its name.
    pub name: &'static str,
    /// Everything that rules it out; at least one reason.
    pub reasons: Vec<Reason>,
}

/// Writes "TCP is ruled out by a (why) and b (why)".
pub(crate) fn write_ruled_out(f: &mut fmt::Formatter<'_>, name: &str, reasons: &[Reason]) -> fmt::Result {
    write!(f, "{name} is ruled out by ")?;
    for (i, reason) in reasons.iter().enumerate() {
        write!(f, "{}{reason}", if i == 0 { "" } else { " and " })?;
    }
    Ok(())
}

impl fmt::Display for Excluded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_ruled_out(f, self.name, &self.reasons)
    }
}

/// Needs for which the stacks have been ranked: compiled once, used for every connection with the
/// same needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The stacks that may serve, best first; never empty. With security required, all of them meet
    /// the same minimum, so that they may be raced against each other (RFC 9621 section 3.3).
    pub ranked: Vec<Ranked>,
    /// The stacks that cannot, in the order of their numbers.
    pub excluded: Vec<Excluded>,
    /// What was asked.
    pub needs: Needs,
    /// What security was asked for.
    pub security: SecurityNeed,
    /// What passes between program and connection.
    pub shape: Shape,
    /// How the network is asked to treat the connections.
    pub capacity_profile: CapacityProfile,
    /// A number that is the same for equal requests, on every machine and in every run; the stacks
    /// do not enter it.
    pub fingerprint: u64,
}

/// A stack's place among those of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The engine's number for it.
    pub stack: u16,
    /// Its score, with what the past taught.
    pub score: i32,
}

impl Request {
    /// The ranked stacks in the order in which to try them now: attempts that failed lately count
    /// against a stack, and those that succeeded for it, but never more than what the program
    /// states.
    #[must_use]
    pub fn standing(&self, facts: &Facts<'_>) -> Vec<Standing> {
        let score = |ranked: &Ranked| {
            let sum: i32 = facts
                .history
                .iter()
                .filter(|o| o.stack == ranked.stack)
                .take(weight::MAX_OUTCOMES)
                .map(|o| if o.succeeded { weight::OUTCOME } else { -weight::OUTCOME })
                .sum();
            ranked.score + sum
        };
        let mut order: Vec<Standing> =
            self.ranked.iter().map(|r| Standing { stack: r.stack, score: score(r) }).collect();
        // Stable: equals keep the order of the request.
        order.sort_by_key(|s| core::cmp::Reverse(s.score));
        order
    }

    /// The interfaces that may serve, best first.
    ///
    /// # Errors
    /// [`NoPaths`] when what is asked of paths leaves none.
    pub fn paths(&self, facts: &Facts<'_>) -> Result<Vec<RankedPath>, NoPaths> {
        rank_paths(&self.needs, facts.interfaces)
    }

    /// The weakest security that a connection of this request may end up with.
    #[must_use]
    pub const fn minimum_security(&self) -> SecurityLevel {
        match self.security {
            SecurityNeed::Required { minimum } => minimum,
            SecurityNeed::Disabled | SecurityNeed::Opportunistic => SecurityLevel::None,
        }
    }
}

/// No stack can do what was asked (RFC 9623 section 3.1: an error as early as possible).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoCandidates {
    /// What rules out each stack, in the order of their numbers.
    pub stacks: Vec<Excluded>,
}

impl fmt::Display for NoCandidates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no transport can do this: ")?;
        if self.stacks.is_empty() {
            return f.write_str("there is none");
        }
        for (i, stack) in self.stacks.iter().enumerate() {
            write!(f, "{}{stack}", if i == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl std::error::Error for NoCandidates {}
