//! Properties by key, and groups of alternatives.

use super::property::{Conflict, NeatProperty};
use core::cmp::Ordering;
use core::fmt;
use std::sync::Arc;

/// How many arrays an expansion may have.
pub const MAX_EXPANSION: usize = 10_000;
/// How many properties the arrays of an expansion may have together.
pub const MAX_EXPANDED_PROPERTIES: usize = 200_000;
/// How many groups may be expanded.
pub const MAX_GROUPS: usize = 1024;

/// Properties by key.
///
/// They stand in the order of their keys: most arrays have a handful, of which a tree would take
/// more memory than they do themselves. What comes in numbers is sorted or merged, so that no list
/// takes longer than its length asks. Copies share the list until one of them is changed: tables,
/// the files they come from and the users' views of them have the same content.
#[derive(Clone, Debug, Default)]
pub struct NeatArray(Option<Arc<Vec<NeatProperty>>>);

impl PartialEq for NeatArray {
    fn eq(&self, other: &Self) -> bool {
        self.list() == other.list()
    }
}

/// The score of an array: that of its evaluated properties counts first, that of the others decides
/// between equals.
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
    pub const EMPTY: Self = Self(None);

    /// An array without properties.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The array of `properties`; equal keys are folded with [`NeatProperty::update`], left to
    /// right.
    ///
    /// # Errors
    /// [`Conflict`] when two immutable properties of one key do not match.
    pub fn fold(properties: impl IntoIterator<Item = NeatProperty>) -> Result<Self, Conflict> {
        let mut all: Vec<NeatProperty> = properties.into_iter().collect();
        // Stable: equal keys stay in their order.
        all.sort_by(|a, b| a.key.cmp(&b.key));
        let mut array: Vec<NeatProperty> = Vec::with_capacity(all.len());
        for property in all {
            match array.last_mut().filter(|held| held.key == property.key) {
                Some(held) => held.update(&property)?,
                None => array.push(property),
            }
        }
        array.shrink_to_fit();
        Ok(Self::of(array))
    }

    /// The array of `properties`, as [`fold`](Self::fold) makes it, but that a property which
    /// clashes with those before it is left out.
    #[must_use]
    pub fn gather(properties: impl IntoIterator<Item = NeatProperty>) -> Self {
        let mut all: Vec<NeatProperty> = properties.into_iter().collect();
        all.sort_by(|a, b| a.key.cmp(&b.key));
        // What is updated stays as it was where it clashes.
        all.dedup_by(|later, held| {
            let same = later.key == held.key;
            let _ = held.update(later);
            same
        });
        Self::of(all)
    }

    /// An array of properties that stand in the order of their keys, none twice.
    fn of(sorted: Vec<NeatProperty>) -> Self {
        Self((!sorted.is_empty()).then(|| Arc::new(sorted)))
    }

    fn list(&self) -> &[NeatProperty] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }

    /// The list, to be changed for this array alone.
    fn own(&mut self) -> &mut Vec<NeatProperty> {
        Arc::make_mut(self.0.get_or_insert_default())
    }

    fn find(&self, key: &str) -> Result<usize, usize> {
        self.list().binary_search_by(|p| p.key.as_str().cmp(key))
    }

    /// Adds a property; one of the same key is updated by it.
    ///
    /// # Errors
    /// [`Conflict`] as for [`NeatProperty::update`].
    pub fn insert(&mut self, property: NeatProperty) -> Result<(), Conflict> {
        match self.find(&property.key) {
            Ok(at) => self.own()[at].update(&property),
            Err(at) => {
                self.own().insert(at, property);
                Ok(())
            }
        }
    }

    /// Sets a property; one of the same key is replaced entirely.
    pub fn replace(&mut self, property: NeatProperty) {
        match self.find(&property.key) {
            Ok(at) => self.own()[at] = property,
            Err(at) => self.own().insert(at, property),
        }
    }

    /// Takes a property out.
    pub fn remove(&mut self, key: &str) -> Option<NeatProperty> {
        self.find(&key.to_lowercase()).ok().map(|at| self.own().remove(at))
    }

    /// A property by key, in any case.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&NeatProperty> {
        self.find(key).or_else(|_| self.find(&key.to_lowercase())).ok().map(|at| &self.list()[at])
    }

    /// The properties in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = &NeatProperty> {
        self.list().iter()
    }

    /// How many properties there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list().len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list().is_empty()
    }

    /// Both arrays: properties of one side only as they are, common ones by [`NeatProperty::sum`].
    ///
    /// # Errors
    /// [`Conflict`] when one pair clashes: then the whole sum does.
    pub fn sum(&self, other: &Self) -> Result<Self, Conflict> {
        self.merge(other, NeatProperty::sum)
    }

    /// Both arrays: of common keys, the properties of this one.
    #[must_use]
    pub fn over(&self, other: &Self) -> Self {
        self.merge(other, |ours, _| Ok(ours.clone())).unwrap_or_default()
    }

    /// Both arrays in one pass.
    fn merge(
        &self,
        other: &Self,
        both: impl Fn(&NeatProperty, &NeatProperty) -> Result<NeatProperty, Conflict>,
    ) -> Result<Self, Conflict> {
        match (self.is_empty(), other.is_empty()) {
            (_, true) => return Ok(self.clone()),
            (true, _) => return Ok(other.clone()),
            _ => {}
        }
        let mut merged = Vec::with_capacity(self.len() + other.len());
        let (mut ours, mut theirs) = (self.iter().peekable(), other.iter().peekable());
        loop {
            let order = match (ours.peek(), theirs.peek()) {
                (Some(a), Some(b)) => a.key.cmp(&b.key),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => break,
            };
            match order {
                Ordering::Less => merged.extend(ours.next().cloned()),
                Ordering::Greater => merged.extend(theirs.next().cloned()),
                Ordering::Equal => {
                    if let (Some(a), Some(b)) = (ours.next(), theirs.next()) {
                        merged.push(both(a, b)?);
                    }
                }
            }
        }
        Ok(Self::of(merged))
    }

    /// Whether every key of this array is in `other` and the values match. The empty array is part
    /// of everything.
    #[must_use]
    pub fn is_subset_of(&self, other: &Self) -> bool {
        self.iter().all(|ours| other.find(&ours.key).is_ok_and(|at| ours.matches(&other.list()[at])))
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
        let mut all: Vec<NeatProperty> = iter.into_iter().map(|(_, p)| p).collect();
        // Stable, and backwards, so that the last of equal keys is the one that stays.
        all.reverse();
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all.dedup_by(|later, held| later.key == held.key);
        all.shrink_to_fit();
        Self::of(all)
    }
}

/// An expansion would be larger than [`MAX_EXPANSION`] or [`MAX_EXPANDED_PROPERTIES`], or has more
/// than [`MAX_GROUPS`] groups.
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
    /// [`TooMany`] when they are more than [`MAX_EXPANSION`], could have more than
    /// [`MAX_EXPANDED_PROPERTIES`] together, or the groups are more than [`MAX_GROUPS`].
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

    /// Every combination of one alternative from each group, folded group by group, the last group
    /// varying fastest. Combinations that clash are dropped.
    ///
    /// # Errors
    /// [`TooMany`] as for [`combinations`](Self::combinations).
    pub fn expand(&self) -> Result<Vec<NeatArray>, TooMany> {
        let mut arrays = vec![NeatArray::new(); usize::from(self.combinations()? > 0)];
        for group in &self.groups {
            let with_each = |array: &NeatArray| -> Vec<NeatArray> {
                let folded = |alternative: &NeatArray| array.merge(alternative, NeatProperty::updated).ok();
                group.iter().filter_map(folded).collect()
            };
            arrays = arrays.iter().flat_map(with_each).collect();
        }
        Ok(arrays)
    }
}
