//! The decision made fast: the same as the plain form, with numbers for keys and values, an index of the rules, and
//! candidates side by side.
//!
//! Where a request leads to more candidates than fit side by side, the plain form decides instead; no answer depends on
//! which one did.

mod block;
mod decide;
mod index;
mod intern;
mod rows;

pub(super) use decide::Compiled;

use intern::{Interner, Val};
use neater_property::neat::NeatProperty;

/// A property without its key.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Prop {
    score: f64,
    value: Val,
    precedence: u8,
    evaluated: bool,
}

impl Prop {
    fn new(p: &NeatProperty, interner: &mut Interner) -> Self {
        let value = interner.value(&p.value);
        Self { score: p.score, value, precedence: p.precedence, evaluated: p.evaluated }
    }

    /// As [`NeatProperty::update`]; `None` when both are immutable and do not match.
    #[inline]
    fn update(mut self, other: Self, interner: &mut Interner) -> Option<Self> {
        self.evaluated = true;
        if let Some(common) = interner.intersect(self.value, other.value) {
            self.value = common;
            self.precedence = self.precedence.max(other.precedence);
            self.score += other.score;
        } else if self.precedence >= NeatProperty::IMMUTABLE && other.precedence >= NeatProperty::IMMUTABLE {
            return None;
        } else if other.precedence >= self.precedence {
            self = Self { evaluated: true, ..other };
        }
        Some(self)
    }

    /// As [`NeatProperty::sum`].
    #[inline]
    fn sum(self, other: Self, interner: &mut Interner) -> Option<Self> {
        if other.precedence == NeatProperty::BASE {
            let sum = other.update(self, interner)?;
            return Some(Self { evaluated: self.evaluated, ..sum });
        }
        self.update(other, interner)
    }
}
