//! The decision made fast: the same as the plain form, with numbers for keys and values, an index
//! of the rules, and candidates side by side.
//!
//! Where a request leads to more candidates than fit side by side, the plain form decides instead;
//! no answer depends on which one did.

mod block;
mod column;
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
}
