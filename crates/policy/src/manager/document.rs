//! What is asked and what is answered: documents of requests in, candidates out.

use neater_property::Fingerprint;
use neater_property::neat::{NeatArray, NeatError, NeatMultiArray, NeatProperty, NeatValue, TooMany, read};
use serde_json::Value;
use std::borrow::Cow;

/// How many requests and candidates one document may lead to, at any stage.
pub const MAX_CANDIDATES: usize = 10_000;
/// The property with the kind of the request.
const REQUEST_TYPE: &str = "__request_type";
/// The kind that asks for the combinations of endpoints alone, before names are resolved.
const PRE_RESOLVE: &str = "pre-resolve";
/// Properties that count in the ranking but are not reported.
const UNTOLD: [&str; 2] = ["default_profile", "uid"];

/// The property by which a program requires security.
pub(crate) const SECURITY: &str = "security";

/// Whether a property is what a program requires for its security. No rule takes that out of a
/// candidate.
#[must_use]
pub(crate) fn is_requirement(property: &NeatProperty) -> bool {
    property.precedence >= NeatProperty::IMMUTABLE && property.key == SECURITY
}

/// What one document asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Requests {
    /// One array for each combination of alternatives, in the order of the document.
    pub arrays: Vec<NeatArray>,
    /// Whether these are the answer already: NEAT's first request, before names are resolved.
    pub pre_resolve: bool,
    /// What was left out, and why.
    pub dropped: Vec<String>,
    fingerprint: u64,
}

impl Requests {
    /// Reads a document: a list of requests, each an object or a list of groups of alternatives.
    ///
    /// # Errors
    /// [`NeatError`], when the document is no such list, a property is none, or there are too many
    /// alternatives.
    pub fn from_text(text: &str) -> Result<Self, NeatError> {
        Self::from_json(&read(text)?)
    }

    /// As [`from_text`](Self::from_text), from JSON.
    ///
    /// # Errors
    /// As there.
    pub fn from_json(json: &Value) -> Result<Self, NeatError> {
        let Value::Array(requests) = json else { return Err(NeatError::Shape("a document is a list of requests")) };
        let mut read = Self::default();
        for (i, request) in requests.iter().enumerate() {
            let place = |e: NeatError| e.within(&i.to_string());
            let multi = NeatMultiArray::from_json(request).map_err(place)?;
            for array in multi.expand().map_err(|e| place(e.into()))? {
                read.add(array);
                if read.arrays.len() > MAX_CANDIDATES {
                    return Err(TooMany.into());
                }
            }
        }
        read.settle();
        Ok(read)
    }

    /// The requests that these arrays are, as they would stand in a document.
    #[must_use]
    pub fn from_arrays(arrays: impl IntoIterator<Item = NeatArray>) -> Self {
        let mut read = Self::default();
        arrays.into_iter().for_each(|a| read.add(a));
        read.settle();
        read
    }

    /// A number that is the same for equal requests; different ones differ in it, but for chance or
    /// malice.
    #[must_use]
    pub const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn add(&mut self, mut array: NeatArray) {
        match split_endpoint(&mut array) {
            Ok(()) => self.arrays.push(array),
            Err(why) => self.dropped.push(why),
        }
    }

    /// One request before resolution makes the whole document one.
    fn settle(&mut self) {
        let is_first = |a: &NeatArray| a.get(REQUEST_TYPE).is_some_and(|p| p.value == PRE_RESOLVE.into());
        self.pre_resolve = self.arrays.iter().any(is_first);
        let mut f = Fingerprint::default();
        for array in &self.arrays {
            f.byte(0);
            for p in array.iter() {
                f.text(&p.key);
                f.byte(p.precedence);
                f.number(p.score.to_bits());
                match &p.value {
                    NeatValue::Text(t) => f.text(t),
                    other => f.text(&other.to_string()),
                }
            }
        }
        self.fingerprint = f.finish();
        if self.pre_resolve {
            for array in &mut self.arrays {
                array.remove(REQUEST_TYPE);
            }
        }
    }
}

/// Replaces `local_endpoint`, `address@interface`, by `local_ip` and `interface`, each with its
/// attributes.
fn split_endpoint(array: &mut NeatArray) -> Result<(), String> {
    let Some(endpoint) = array.remove("local_endpoint") else { return Ok(()) };
    let parts = match &endpoint.value {
        NeatValue::Text(t) => t.split_once('@').filter(|(_, interface)| !interface.contains('@')),
        _ => None,
    };
    let Some((address, interface)) = parts else {
        return Err(format!("local_endpoint is address@interface, not {}", endpoint.value));
    };
    for (key, value) in [("local_ip", address), ("interface", interface)] {
        let part = NeatProperty { key: key.into(), value: value.into(), ..endpoint.clone() };
        array.insert(part).map_err(|clash| clash.to_string())?;
    }
    Ok(())
}

/// A candidate for each transport: of a set, one for each element in its order. Empty where there
/// is no transport, or one that is no text, which NEAT's library cannot survive.
#[must_use]
pub(crate) fn for_each_transport(candidate: &NeatArray) -> Vec<NeatArray> {
    let Some(transport) = candidate.get("transport") else { return Vec::new() };
    let with = |value: &NeatValue| {
        let mut candidate = candidate.clone();
        candidate.replace(NeatProperty { value: value.clone(), ..transport.clone() });
        candidate
    };
    match &transport.value {
        NeatValue::Text(_) => vec![candidate.clone()],
        NeatValue::Set(elements) => elements.iter().filter(|e| matches!(e, NeatValue::Text(_))).map(with).collect(),
        _ => Vec::new(),
    }
}

/// A candidate without what is banned, which is never part of an answer.
pub(crate) fn as_answer(candidate: &NeatArray) -> NeatArray {
    let bare = |p: &NeatProperty| (p.key.clone(), NeatProperty { banned: Vec::new(), ..p.clone() });
    candidate.iter().map(bare).collect()
}

/// The key under which a property is reported, if it is.
pub(crate) fn told_key(key: &str) -> Option<Cow<'_, str>> {
    match key.strip_prefix("so/") {
        Some(option) => crate::option::by_number(option).map(|numbers| format!("so/{numbers}").into()),
        None if UNTOLD.contains(&key) => None,
        None => Some(key.into()),
    }
}

/// A candidate as it is reported: without what is for the manager alone, and with socket options by
/// number.
#[must_use]
pub fn told(candidate: &NeatArray) -> NeatArray {
    let told = |property: &NeatProperty| {
        let key = told_key(&property.key)?.into_owned();
        Some(NeatProperty { key, ..property.clone() })
    };
    // Two spellings of one option: the later one of two that clash is lost.
    NeatArray::gather(candidate.iter().filter_map(told))
}

/// Candidates as NEAT's library expects them: one list, members in the order of their names, ASCII
/// only.
#[must_use]
pub fn to_text(candidates: &[NeatArray]) -> String {
    let texts: Vec<String> = candidates.iter().map(NeatArray::to_text).collect();
    format!("[{}]", texts.join(", "))
}

/// Whether two values are the same; the order within sets does not count.
#[must_use]
pub(crate) fn same_value(a: &NeatValue, b: &NeatValue) -> bool {
    match (a, b) {
        (NeatValue::Set(a), NeatValue::Set(b)) => a.len() == b.len() && a.iter().all(|x| b.contains(x)),
        (a, b) => a == b,
    }
}

/// Whether two arrays have the same keys with the same values: then the second one is no candidate
/// of its own.
#[must_use]
pub(crate) fn same_candidate(a: &NeatArray, b: &NeatArray) -> bool {
    a.len() == b.len() && a.iter().zip(b.iter()).all(|(x, y)| x.key == y.key && same_value(&x.value, &y.value))
}
