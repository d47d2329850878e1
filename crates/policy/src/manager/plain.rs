//! The decision in its plainest form: every rule tried on every candidate, every row joined, one
//! after the other.
//!
//! This form is the reference. The compiled form must give the same candidates, which tests check;
//! explanations are made here, because here every step can be seen.

use super::cib::Row;
use super::document::{MAX_CANDIDATES, Requests, as_answer, for_each_transport, is_requirement, same_candidate};
use super::file::{Rule, of_value};
use super::trace::{Event, Miss, Origin, Stage, Trace};
use super::{Limits, Ranked};
use neater_property::Fingerprint;
use neater_property::neat::{NeatArray, NeatProperty, NeatValue, Score, TooMany};
use std::collections::BTreeMap;

/// What is left of the work that one decision may be.
#[derive(Debug)]
pub(crate) struct Steps(u64);

impl Steps {
    pub(crate) const fn new(steps: u64) -> Self {
        Self(steps)
    }

    /// Takes as many steps as this.
    ///
    /// # Errors
    /// [`TooMany`] when there are not as many left.
    fn take(&mut self, n: usize) -> Result<(), TooMany> {
        self.0 = self.0.checked_sub(n as u64).ok_or(TooMany)?;
        Ok(())
    }
}

/// How many steps it takes to copy an array: one for each property, and more for long values.
fn work(array: &NeatArray) -> usize {
    array.iter().map(|p| 1 + of_value(&p.value) / 128).sum()
}

/// A candidate and its number in the trace.
pub(crate) type Numbered = (usize, NeatArray);

/// The first property of `wanted` that `held` does not match; `None` when it is a subset.
fn miss(wanted: &NeatArray, held: &NeatArray) -> Option<Miss> {
    let fails = |p: &&NeatProperty| held.get(&p.key).is_none_or(|h| !p.matches(h));
    wanted.iter().find(fails).map(|p| Miss {
        key: p.key.clone(),
        wanted: p.value.to_string(),
        held: held.get(&p.key).map(|h| h.value.to_string()),
    })
}

/// Tries the rules, one after the other, on the candidates that came out of those before.
///
/// # Errors
/// [`TooMany`] when there are more than [`MAX_CANDIDATES`] at once, or no steps left.
pub(crate) fn apply(
    rules: &[Rule],
    stage: Stage,
    input: Vec<Numbered>,
    steps: &mut Steps,
    trace: &mut Trace,
) -> Result<Vec<Numbered>, TooMany> {
    let mut candidates = input;
    for rule in rules {
        steps.take(candidates.len() * (1 + rule.matches.len()))?;
        if candidates.iter().all(|(_, c)| !rule.matches.is_subset_of(c)) {
            for (id, c) in &candidates {
                unmatched(rule, stage, *id, c, trace);
            }
            continue;
        }
        let mut next = Vec::with_capacity(candidates.len());
        for (id, candidate) in candidates {
            if !rule.matches.is_subset_of(&candidate) {
                unmatched(rule, stage, id, &candidate, trace);
                next.push((id, candidate));
                continue;
            }
            let mut bare = candidate;
            if rule.replace_matched {
                let kept = |p: &&NeatProperty| bare.get(&p.key).is_some_and(is_requirement);
                let taken: Vec<&NeatProperty> = rule.matches.iter().filter(|p| !kept(p)).collect();
                taken.into_iter().for_each(|p| drop(bare.remove(&p.key)));
            }
            let (mut children, mut clashes) = (Vec::new(), Vec::new());
            for (i, alternative) in rule.alternatives.iter().enumerate() {
                steps.take(work(&bare) + work(alternative))?;
                match bare.sum(alternative) {
                    Ok(sum) => {
                        let origin = Origin::Rule { stage, uid: rule.uid.clone(), alternative: i };
                        let child = trace.candidate(&sum, Some(id), origin);
                        children.push(child);
                        next.push((child, sum));
                    }
                    Err(clash) => clashes.push((i, clash)),
                }
                if next.len() > MAX_CANDIDATES || trace.is_full() {
                    return Err(TooMany);
                }
            }
            trace.siblings(&children);
            trace.event(|| Event::Fired { stage, uid: rule.uid.clone(), candidate: id, children, clashes });
        }
        candidates = next;
    }
    Ok(candidates)
}

fn unmatched(rule: &Rule, stage: Stage, candidate: usize, held: &NeatArray, trace: &mut Trace) {
    trace.event(|| {
        let miss = miss(&rule.matches, held).unwrap_or(Miss { key: String::new(), wanted: String::new(), held: None });
        Event::Unmatched { stage, uid: rule.uid.clone(), candidate, miss }
    });
}

/// Joins rows to an input: the input itself and every row that can serve it, best first, as many as
/// are kept.
pub(crate) fn join(rows: &[Row], input: &Numbered, limit: usize, trace: &mut Trace) -> Vec<Numbered> {
    let (id, input) = input;
    let mut joined = vec![(trace.candidate(input, Some(*id), Origin::Bare), input.clone())];
    for row in rows {
        let against = row.against(input);
        let nodes = || row.path.iter().chain(&row.extended_by).cloned().collect();
        if let Some(p) = against {
            trace.event(|| {
                let held = row.properties.get(&p.key).map(|r| r.value.to_string());
                let miss = Miss { key: p.key.clone(), wanted: p.value.to_string(), held };
                Event::RowSkipped { nodes: nodes(), candidate: *id, miss }
            });
            continue;
        }
        // What could clash has been looked at.
        if let Ok(sum) = row.properties.sum(input) {
            joined.push((trace.candidate(&sum, Some(*id), Origin::Row { nodes: nodes() }), sum));
        }
    }
    sort(&mut joined);
    for (candidate, _) in joined.iter().skip(limit) {
        trace.event(|| Event::Cut { candidate: *candidate, limit });
    }
    joined.truncate(limit);
    joined
}

/// Sorts by score, best first; equals stay in the order in which they came.
fn sort(candidates: &mut [Numbered]) {
    candidates.sort_by(|(_, a), (_, b)| b.score().order(&a.score()));
}

/// Candidates of which no two are the same, in the order in which they came.
#[derive(Default)]
struct Distinct {
    list: Vec<Numbered>,
    /// The places of those that could be the same.
    places: BTreeMap<u64, Vec<usize>>,
}

impl Distinct {
    /// Adds the candidates that are not there yet.
    fn append(&mut self, more: Vec<Numbered>, trace: &mut Trace) {
        for (id, candidate) in more {
            let places = self.places.entry(likeness(&candidate)).or_default();
            let mut held = places.iter().map(|place| &self.list[*place]);
            match held.find(|(_, held)| same_candidate(held, &candidate)) {
                Some((of, _)) => trace.event(|| Event::Duplicate { candidate: id, of: *of }),
                None => {
                    places.push(self.list.len());
                    self.list.push((id, candidate));
                }
            }
        }
    }
}

/// A number that is the same for candidates that are the same.
fn likeness(candidate: &NeatArray) -> u64 {
    fn of(value: &NeatValue) -> u64 {
        let mut f = Fingerprint::default();
        match value {
            // The order of a set does not count, and 0 is -0.
            NeatValue::Set(elements) => f.number(elements.iter().fold(1, |sum, e| u64::wrapping_add(sum, of(e)))),
            NeatValue::Number(n) => f.number((n + 0.0).to_bits()),
            NeatValue::Range { start, end } => {
                f.number((start + 0.0).to_bits());
                f.number((end + 0.0).to_bits());
            }
            NeatValue::Text(text) => f.text(text),
            NeatValue::Bool(b) => f.byte(u8::from(*b)),
            NeatValue::Any => f.byte(2),
        }
        f.finish()
    }
    let mut f = Fingerprint::default();
    for p in candidate.iter() {
        f.text(&p.key);
        f.number(of(&p.value));
    }
    f.finish()
}

/// The whole decision.
///
/// # Errors
/// [`TooMany`] when there are more than [`MAX_CANDIDATES`] at any stage, or no steps left.
pub(crate) fn decide(
    requests: &Requests,
    profiles: &[Rule],
    policies: &[Rule],
    rows: &[Row],
    limits: Limits,
    steps: &mut Steps,
    trace: &mut Trace,
) -> Result<Vec<Ranked>, TooMany> {
    let mut all = Distinct::default();
    for (i, request) in requests.arrays.iter().enumerate() {
        let id = trace.candidate(request, None, Origin::Request(i));
        let profiled = apply(profiles, Stage::Profile, vec![(id, request.clone())], steps, trace)?;
        let mut found = Distinct::default();
        for candidate in &profiled {
            let known: usize = rows.iter().map(|row| work(&row.properties)).sum();
            steps.take(known + (1 + rows.len()) * work(&candidate.1))?;
            found.append(join(rows, candidate, limits.rows, trace), trace);
            if found.list.len() > MAX_CANDIDATES || trace.is_full() {
                return Err(TooMany);
            }
        }
        let mut found = found.list;
        sort(&mut found);
        let finished = apply(policies, Stage::Policy, found, steps, trace)?;
        all.append(finished, trace);
        if all.list.len() > MAX_CANDIDATES {
            return Err(TooMany);
        }
    }
    let mut ranked: Vec<(usize, NeatArray, Score)> = Vec::new();
    for (id, candidate) in all.list {
        let copies = candidate.get("transport").map_or(1, |p| match &p.value {
            NeatValue::Set(elements) => elements.len(),
            _ => 1,
        });
        steps.take(copies * work(&candidate))?;
        let each = for_each_transport(&candidate);
        match each.as_slice() {
            [] => trace.event(|| Event::NoTransport { candidate: id }),
            [one] => ranked.push((id, one.clone(), one.score())),
            several => {
                for one in several {
                    let number = trace.candidate(one, Some(id), Origin::Transport);
                    ranked.push((number, one.clone(), one.score()));
                }
            }
        }
        if ranked.len() > MAX_CANDIDATES || trace.is_full() {
            return Err(TooMany);
        }
    }
    ranked.sort_by(|(_, _, a), (_, _, b)| b.order(a));
    for (candidate, _, _) in ranked.iter().skip(limits.candidates) {
        trace.event(|| Event::Cut { candidate: *candidate, limit: limits.candidates });
    }
    ranked.truncate(limits.candidates);
    trace.ranked = ranked.iter().map(|(id, _, score)| (*id, *score)).collect();
    Ok(ranked.into_iter().map(|(_, candidate, score)| Ranked { properties: as_answer(&candidate), score }).collect())
}
