//! NEAT's property algebra: values, properties, arrays, alternatives, and how they match and merge.
//!
//! *Responsible for* the meaning that NEAT's property, policy and CIB files have, at NEAT commit
//! a5e1662, with its defects mended: a set and a range with nothing in common do not match,
//! Booleans are not numbers, equal empty strings are equal, a clash inside one combination drops
//! that combination only, and a sum keeps the mark of evaluation.
//!
//! *Not responsible for* tables, lookups and ranking, which are the policy manager's, nor for what
//! a key means.
//!
//! *Key types*: [`NeatValue`] and its intersection; [`NeatProperty`] with
//! [`update`](NeatProperty::update) and [`sum`](NeatProperty::sum); [`NeatArray`], properties by
//! key; [`NeatMultiArray`], groups of alternative arrays with their
//! [`expand`](NeatMultiArray::expand). Text goes in and out in `json` (feature `json`).
//!
//! *Invariants*: keys are in lower case; arrays iterate in the order of their keys; a set has no
//! element twice and never exactly one; an expansion has at most [`MAX_EXPANSION`] arrays.

mod array;
#[cfg(feature = "json")]
mod json;
mod property;
#[cfg(feature = "json")]
mod text;
mod value;

pub use array::{MAX_EXPANDED_PROPERTIES, MAX_EXPANSION, MAX_GROUPS, NeatArray, NeatMultiArray, Score, TooMany};
#[cfg(feature = "json")]
pub use json::NeatError;
pub use property::{Conflict, MAX_BANNED, NeatProperty, matches, update};
#[cfg(feature = "json")]
pub use text::{MAX_JSON, locate, read};
pub use value::{InvalidValue, MAX_SET, NeatValue};

#[cfg(test)]
mod tests;
