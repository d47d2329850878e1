//! A decision.

use super::Ranked;
use neater_property::neat::{NeatArray, NeatProperty, NeatValue, Score};
use std::sync::Arc;

/// A property of a candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    /// The name, in lower case.
    pub key: Arc<str>,
    /// The value.
    pub value: Arc<NeatValue>,
    /// 2 is immutable, 1 optional, 0 a base.
    pub precedence: u8,
    /// How much it speaks for the candidate.
    pub score: f64,
    /// Whether it was updated on the way.
    pub evaluated: bool,
}

impl Decided {
    /// The same as a property of an array.
    #[must_use]
    pub fn to_property(&self) -> NeatProperty {
        let property = NeatProperty::new(&self.key, (*self.value).clone()).with_precedence(self.precedence);
        NeatProperty { evaluated: self.evaluated, score: self.score, ..property }
    }
}

/// Candidates in rank order; what they share is held once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    properties: Vec<Decided>,
    /// The places of the properties of all candidates, one candidate after the other.
    indices: Vec<u32>,
    /// For each candidate its score, and where its places begin.
    candidates: Vec<(Score, u32)>,
}

impl Decision {
    /// How many candidates there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.candidates.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.candidates.is_empty()
    }

    /// The score by which a candidate is ranked; the best one is number 0.
    #[must_use]
    pub fn score(&self, candidate: usize) -> Option<Score> {
        self.candidates.get(candidate).map(|(score, _)| *score)
    }

    /// The properties of a candidate in the order of their names; none where there is no such
    /// candidate.
    pub fn properties(&self, candidate: usize) -> impl Iterator<Item = &Decided> {
        self.places(candidate).iter().map(|i| &self.properties[*i as usize])
    }

    /// A property of a candidate by its name in lower case.
    #[must_use]
    pub fn get(&self, candidate: usize, key: &str) -> Option<&Decided> {
        self.properties(candidate).find(|p| &*p.key == key)
    }

    /// The candidates as arrays.
    #[must_use]
    pub fn ranked(&self) -> Vec<Ranked> {
        let array = |i| self.properties(i).map(|p| (p.key.to_string(), p.to_property())).collect::<NeatArray>();
        (0..self.len()).map(|i| Ranked { properties: array(i), score: self.candidates[i].0 }).collect()
    }

    /// About how many bytes it takes.
    pub(crate) fn weight(&self) -> usize {
        let properties: usize = self.properties.iter().map(|p| 128 + p.key.len() + super::of_value(&p.value)).sum();
        properties + 4 * self.indices.len() + 32 * self.candidates.len()
    }

    /// All properties, each once.
    pub(crate) fn all(&self) -> &[Decided] {
        &self.properties
    }

    /// The places of a candidate's properties among all of them.
    pub(crate) fn places(&self, candidate: usize) -> &[u32] {
        let begin =
            |candidate: usize| self.candidates.get(candidate).map_or(self.indices.len(), |(_, begin)| *begin as usize);
        &self.indices[begin(candidate)..begin(candidate.saturating_add(1))]
    }

    /// An empty one, with room for so many properties, candidates and places.
    pub(crate) fn with_room(properties: usize, candidates: usize, places: usize) -> Self {
        Self {
            properties: Vec::with_capacity(properties),
            indices: Vec::with_capacity(places),
            candidates: Vec::with_capacity(candidates),
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, property: Decided) -> u32 {
        self.properties.push(property);
        self.properties.len() as u32 - 1
    }

    /// Begins with the next candidate.
    pub(crate) fn candidate(&mut self, score: Score) {
        self.candidates.push((score, self.indices.len() as u32));
    }

    /// Gives the candidate that was begun last a property.
    #[inline]
    pub(crate) fn has(&mut self, property: u32) {
        self.indices.push(property);
    }

    /// The candidates of the plain form.
    pub(crate) fn of(ranked: &[Ranked]) -> Self {
        let mut decision = Self::default();
        for candidate in ranked {
            decision.candidate(candidate.score);
            for p in candidate.properties.iter() {
                let index = decision.push(Decided {
                    key: p.key.as_str().into(),
                    value: Arc::new(p.value.clone()),
                    precedence: p.precedence,
                    score: p.score,
                    evaluated: p.evaluated,
                });
                decision.has(index);
            }
        }
        decision
    }
}
