//! How much a property is wanted, and by which source.

use crate::value::is_word;
use core::fmt;

/// How much a program wants a property (RFC 9622 section 4.2), from least to most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Preference {
    /// Only protocols and paths without it, else fail.
    Prohibit,
    /// Those without it first, else proceed.
    Avoid,
    /// It does not matter.
    #[default]
    NoPreference,
    /// Those with it first, else proceed.
    Prefer,
    /// Only protocols and paths with it, else fail.
    Require,
}

impl Preference {
    /// All five, from least to most.
    pub const ALL: [Self; 5] = [Self::Prohibit, Self::Avoid, Self::NoPreference, Self::Prefer, Self::Require];

    /// The name as RFC 9622 section 4.2 has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Prohibit => "Prohibit",
            Self::Avoid => "Avoid",
            Self::NoPreference => "No Preference",
            Self::Prefer => "Prefer",
            Self::Require => "Require",
        }
    }

    /// Reads a preference in any case and with any separator; `true` is Require and `false` is
    /// Prohibit, as RFC 9622 section 6.2 allows when properties are read.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        const WORDS: [(Preference, &[&str]); 5] = [
            (Preference::Require, &["require", "required", "true", "yes", "on"]),
            (Preference::Prefer, &["prefer", "preferred"]),
            (Preference::NoPreference, &["nopreference", "none", "any"]),
            (Preference::Avoid, &["avoid", "avoided"]),
            (Preference::Prohibit, &["prohibit", "prohibited", "false", "no", "off"]),
        ];
        WORDS.iter().find(|(_, words)| words.iter().any(|w| is_word(text, w))).map(|(p, _)| *p)
    }

    /// Whether a candidate that does not comply is ruled out.
    #[must_use]
    pub const fn is_binding(self) -> bool {
        matches!(self, Self::Require | Self::Prohibit)
    }
}

impl fmt::Display for Preference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How connections come about (RFC 9622 section 7); some defaults depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// This side opens (section 7.1).
    #[default]
    Initiate,
    /// This side waits (section 7.2).
    Listen,
    /// Both sides open at once (section 7.3).
    Rendezvous,
}

impl Role {
    /// The name of the action.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Initiate => "Initiate",
            Self::Listen => "Listen",
            Self::Rendezvous => "Rendezvous",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preference_is_read_back_from_its_own_name() {
        for p in Preference::ALL {
            assert_eq!(Preference::from_text(p.as_str()), Some(p));
            assert_eq!(Preference::from_text(&p.as_str().to_uppercase().replace(' ', "_")), Some(p));
        }
        assert_eq!(Preference::from_text("no-preference"), Some(Preference::NoPreference));
        assert_eq!(Preference::from_text("true"), Some(Preference::Require));
        assert_eq!(Preference::from_text("requireme"), None);
        assert_eq!(Preference::from_text(""), None);
    }

    #[test]
    fn preferences_are_ordered_from_prohibit_to_require() {
        assert!(Preference::ALL.windows(2).all(|w| w[0] < w[1]));
    }
}
