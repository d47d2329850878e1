//! Properties, and how one is updated by another.

use super::value::NeatValue;
use crate::preference::Preference;
use core::fmt;

/// How many values a property may ban.
pub const MAX_BANNED: usize = 64;
/// The largest score of a property, and with a minus the least: so that every sum of scores is a
/// number.
pub(super) const MAX_SCORE: f64 = 1e15;

/// A property of NEAT.
#[derive(Clone, Debug, PartialEq)]
pub struct NeatProperty {
    /// The name, in lower case.
    pub key: String,
    /// The value.
    pub value: NeatValue,
    /// 2 is immutable, 1 optional, 0 a base: a default that gives way to everything.
    pub precedence: u8,
    /// How much the property speaks for a candidate.
    pub score: f64,
    /// Values that are banned. Kept and merged, never enforced and never written, as in NEAT.
    pub banned: Vec<String>,
    /// Whether the property has been updated by another; scores of such properties rank first.
    pub evaluated: bool,
}

/// Two immutable properties of the same name with values that do not match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The name.
    pub key: String,
    /// The value that stood.
    pub held: String,
    /// The value that was to be merged.
    pub wanted: String,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, held, wanted } = self;
        write!(f, "{key} is immutable as {held} and cannot be {wanted}")
    }
}

impl std::error::Error for Conflict {}

const fn bounded(score: f64) -> f64 {
    score.clamp(-MAX_SCORE, MAX_SCORE)
}

impl NeatProperty {
    /// The highest precedence.
    pub const IMMUTABLE: u8 = 2;
    /// The precedence of a property that states none.
    pub const OPTIONAL: u8 = 1;
    /// The precedence of a default.
    pub const BASE: u8 = 0;

    /// A property with the default attributes: optional, score 0, not evaluated. The key is
    /// lower-cased.
    #[must_use]
    pub fn new(key: &str, value: impl Into<NeatValue>) -> Self {
        Self {
            key: key.to_lowercase(),
            value: value.into(),
            precedence: Self::OPTIONAL,
            score: 0.0,
            banned: Vec::new(),
            evaluated: false,
        }
    }

    /// With this precedence; more than 2 is 2.
    #[must_use]
    pub fn with_precedence(self, precedence: u8) -> Self {
        Self { precedence: precedence.min(Self::IMMUTABLE), ..self }
    }

    /// With this score, at most 1e15 either way; what is not finite is 0.
    #[must_use]
    pub fn with_score(self, score: f64) -> Self {
        Self { score: if score.is_finite() { bounded(score) } else { 0.0 }, ..self }
    }

    /// A preference of RFC 9622 in NEAT's terms: Require is an immutable true, Prefer an optional
    /// true, Avoid an optional false, Prohibit an immutable false, and No Preference a base without
    /// a value.
    #[must_use]
    pub fn from_preference(key: &str, preference: Preference) -> Self {
        let (value, precedence) = match preference {
            Preference::Require => (true.into(), Self::IMMUTABLE),
            Preference::Prefer => (true.into(), Self::OPTIONAL),
            Preference::NoPreference => (NeatValue::Any, Self::BASE),
            Preference::Avoid => (false.into(), Self::OPTIONAL),
            Preference::Prohibit => (false.into(), Self::IMMUTABLE),
        };
        Self::new(key, value).with_precedence(precedence)
    }

    /// The property as a preference of RFC 9622, if it is a Boolean or without a value. A base
    /// preference does not bind, so that it is at most Prefer or Avoid.
    #[must_use]
    pub fn to_preference(&self) -> Option<Preference> {
        match (&self.value, self.precedence >= Self::IMMUTABLE) {
            (NeatValue::Bool(true), true) => Some(Preference::Require),
            (NeatValue::Bool(true), false) => Some(Preference::Prefer),
            (NeatValue::Bool(false), false) => Some(Preference::Avoid),
            (NeatValue::Bool(false), true) => Some(Preference::Prohibit),
            (NeatValue::Any, _) => Some(Preference::NoPreference),
            _ => None,
        }
    }

    /// Merges `other` into this property. Of another key, it has no effect.
    ///
    /// Values that match give their intersection, the greater precedence and the sum of the scores.
    /// Otherwise `other` replaces value, precedence and score, unless this property has the greater
    /// precedence, which then stands. In any case this property counts as evaluated from now on.
    ///
    /// # Errors
    /// [`Conflict`] when both are immutable and do not match; value, precedence and score stand.
    pub fn update(&mut self, other: &Self) -> Result<(), Conflict> {
        if self.key != other.key {
            return Ok(());
        }
        self.evaluated = true;
        for banned in &other.banned {
            if self.banned.len() < MAX_BANNED && !self.banned.contains(banned) {
                self.banned.push(banned.clone());
            }
        }
        if let Some(common) = self.value.intersect(&other.value) {
            self.value = common;
            self.precedence = self.precedence.max(other.precedence);
            self.score = bounded(self.score + other.score);
        } else if self.precedence >= Self::IMMUTABLE && other.precedence >= Self::IMMUTABLE {
            return Err(Conflict {
                key: self.key.clone(),
                held: self.value.to_string(),
                wanted: other.value.to_string(),
            });
        } else if other.precedence >= self.precedence {
            self.value = other.value.clone();
            self.precedence = other.precedence;
            self.score = other.score;
        }
        Ok(())
    }

    /// This property, updated by `other`.
    pub(super) fn updated(&self, other: &Self) -> Result<Self, Conflict> {
        let mut updated = self.clone();
        updated.update(other)?;
        Ok(updated)
    }

    /// This property merged with `other`: as [`update`](Self::update), but a base is only a default
    /// here. It gives way to this property, also to an older base, and does not mark the result as
    /// evaluated. Of another key, it has no effect.
    ///
    /// # Errors
    /// [`Conflict`] as for [`update`](Self::update).
    pub fn sum(&self, other: &Self) -> Result<Self, Conflict> {
        if self.key != other.key {
            return Ok(self.clone());
        }
        let is_default = other.precedence == Self::BASE;
        let (mut sum, with) = if is_default { (other.clone(), self) } else { (self.clone(), other) };
        sum.update(with)?;
        if is_default {
            sum.evaluated = self.evaluated;
        }
        Ok(sum)
    }

    /// Whether both are of the same key and some value satisfies both; precedence and score do not
    /// count.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.key == other.key && self.value.matches(&other.value)
    }
}

/// Whether both are of the same key and some value satisfies both.
#[must_use]
pub fn matches(a: &NeatProperty, b: &NeatProperty) -> bool {
    a.matches(b)
}

/// Merges `b` into `a`: see [`NeatProperty::update`].
///
/// # Errors
/// [`Conflict`] when both are immutable and do not match.
pub fn update(a: &mut NeatProperty, b: &NeatProperty) -> Result<(), Conflict> {
    a.update(b)
}
