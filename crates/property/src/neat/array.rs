//! Properties by key, and groups of alternatives.

use super::property::{Conflict, NeatProperty};
use core::cmp::Ordering;
use core::fmt;
use std::collections::BTreeMap;

/// How many arrays an expansion may have.
pub const MAX_EXPANSION: usize = 10_000;
/// How many properties the arrays of an expansion may have together.
pub const MAX_EXPANDED_PROPERTIES: usize = 200_000;
/// How many groups may be expanded.
pub const MAX_GROUPS: usize = 1024;

/// Properties by key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NeatArray(BTreeMap<String, NeatProperty>);

/// The score of an array: that of its evaluated properties counts first, that of the others decides between equals.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// The sum over the evaluated properties.
    pub evaluated: f64,
    /// The sum over the others.
    pub others: f64,
}

impl Score {
    /// Orders scores from low to high; total, whatever the numbers.
    #[must_use]
    pub fn order(&self, other: &Self) -> Ordering {
        // Adding 0 makes -0 and 0 the same.
        let by = |a: f64, b: f64| (a + 0.0).total_cmp(&(b + 0.0));
        by(self.evaluated, other.evaluated).then(by(self.others, other.others))
    }
}

impl NeatArray {
    /// An array without properties.
    pub const EMPTY: Self = Self(BTreeMap::new());

    /// An array without properties.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The array of `properties`; equal keys are folded with [`NeatProperty::update`], left to right.
    ///
    /// # Errors
    /// [`Conflict`] when two immutable properties of one key do not match.
    pub fn fold(properties: impl IntoIterator<Item = NeatProperty>) -> Result<Self, Conflict> {
        let mut array = Self::new();
        properties.into_iter().try_for_each(|p| array.insert(p))?;
        Ok(array)
    }

    /// Adds a property; one of the same key is updated by it.
    ///
    /// # Errors
    /// [`Conflict`] as for [`NeatProperty::update`].
    pub fn insert(&mut self, property: NeatProperty) -> Result<(), Conflict> {
        match self.0.get_mut(&property.key) {
            Some(held) => held.update(&property),
            None => {
                self.0.insert(property.key.clone(), property);
                Ok(())
            }
        }
    }

    /// Sets a property; one of the same key is replaced entirely.
    pub fn replace(&mut self, property: NeatProperty) {
        self.0.insert(property.key.clone(), property);
    }

    /// Takes a property out.
    pub fn remove(&mut self, key: &str) -> Option<NeatProperty> {
        self.0.remove(&key.to_lowercase())
    }

    /// A property by key, in any case.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&NeatProperty> {
        self.0.get(key).or_else(|| self.0.get(&key.to_lowercase()))
    }

    /// The properties in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = &NeatProperty> {
        self.0.values()
    }

    /// How many properties there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Both arrays: properties of one side only as they are, common ones by [`NeatProperty::sum`].
    ///
    /// # Errors
    /// [`Conflict`] when one pair clashes: then the whole sum does.
    pub fn sum(&self, other: &Self) -> Result<Self, Conflict> {
        let mut sum = self.clone();
        for theirs in other.iter() {
            let property = match self.0.get(&theirs.key) {
                Some(ours) => ours.sum(theirs)?,
                None => theirs.clone(),
            };
            sum.replace(property);
        }
        Ok(sum)
    }

    /// Whether every key of this array is in `other` and the values match. The empty array is part of everything.
    #[must_use]
    pub fn is_subset_of(&self, other: &Self) -> bool {
        self.0.iter().all(|(key, ours)| other.0.get(key).is_some_and(|theirs| ours.matches(theirs)))
    }

    /// The score, summed in the order of the keys.
    #[must_use]
    pub fn score(&self) -> Score {
        self.iter().fold(Score::default(), |sum, p| {
            if p.evaluated {
                Score { evaluated: sum.evaluated + p.score, ..sum }
            } else {
                Score { others: sum.others + p.score, ..sum }
            }
        })
    }
}

impl FromIterator<(String, NeatProperty)> for NeatArray {
    /// Later properties replace earlier ones of the same key.
    fn from_iter<I: IntoIterator<Item = (String, NeatProperty)>>(iter: I) -> Self {
        let mut array = Self::new();
        iter.into_iter().for_each(|(_, p)| array.replace(p));
        array
    }
}

/// An expansion would be larger than [`MAX_EXPANSION`] or [`MAX_EXPANDED_PROPERTIES`], or has more than [`MAX_GROUPS`]
/// groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TooMany;

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "alternatives multiply to more than {MAX_EXPANSION} combinations or {MAX_EXPANDED_PROPERTIES} properties, or \
             stand in more than {MAX_GROUPS} groups"
        )
    }
}

impl std::error::Error for TooMany {}

/// Groups of alternative arrays: one of each group makes a combination.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NeatMultiArray {
    groups: Vec<Vec<NeatArray>>,
}

impl NeatMultiArray {
    /// No group: expands to one empty array.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a group. One without alternatives leaves no combination at all.
    pub fn push(&mut self, alternatives: Vec<NeatArray>) {
        self.groups.push(alternatives);
    }

    /// The groups.
    #[must_use]
    pub fn groups(&self) -> &[Vec<NeatArray>] {
        &self.groups
    }

    /// How many combinations there are before those that clash are dropped.
    ///
    /// # Errors
    /// [`TooMany`] when they are more than [`MAX_EXPANSION`], could have more than [`MAX_EXPANDED_PROPERTIES`] together, or
    /// the groups are more than [`MAX_GROUPS`].
    pub fn combinations(&self) -> Result<usize, TooMany> {
        if self.groups.len() > MAX_GROUPS {
            return Err(TooMany);
        }
        let product = self.groups.iter().fold(1usize, |n, group| n.saturating_mul(group.len()));
        let longest: usize = self.groups.iter().filter_map(|g| g.iter().map(NeatArray::len).max()).sum();
        if product > MAX_EXPANSION || product.saturating_mul(longest) > MAX_EXPANDED_PROPERTIES {
            return Err(TooMany);
        }
        Ok(product)
    }

    /// Every combination of one alternative from each group, folded group by group, the last group varying fastest.
    /// Combinations that clash are dropped.
    ///
    /// # Errors
    /// [`TooMany`] as for [`combinations`](Self::combinations).
    pub fn expand(&self) -> Result<Vec<NeatArray>, TooMany> {
        let mut arrays = vec![NeatArray::new(); usize::from(self.combinations()? > 0)];
        for group in &self.groups {
            let with_each = |array: &NeatArray| -> Vec<NeatArray> {
                let folded = |alternative: &NeatArray| {
                    let mut array = array.clone();
                    alternative.iter().cloned().try_for_each(|p| array.insert(p)).ok().map(|()| array)
                };
                group.iter().filter_map(folded).collect()
            };
            arrays = arrays.iter().flat_map(with_each).collect();
        }
        Ok(arrays)
    }
}
