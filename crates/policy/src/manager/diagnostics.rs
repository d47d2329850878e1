//! Diagnostics of unknown names: most are typing errors, and a misspelt rule does not do what it
//! seems to.

use super::document::SECURITY;
use super::file::Fault;
use crate::option::never;
use neater_property::neat::{NeatProperty, NeatValue};
use serde_json::{Map, Value};

/// The attributes of a property.
const ATTRIBUTES: [&str; 5] = ["value", "precedence", "score", "evaluated", "banned"];
/// How many diagnostics of one file are reported.
const MAX_DIAGNOSTICS: usize = 64;

/// How many letters must be put in, taken out or changed to make one word of another; a few is all
/// that matters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let cost = (corner + usize::from(x != *y)).min(row[j] + 1).min(row[j + 1] + 1);
            corner = std::mem::replace(&mut row[j + 1], cost);
        }
    }
    row.last().copied().unwrap_or_default()
}

/// The word of a list that was probably meant, as a suggestion.
fn meant(name: &str, words: &[&str]) -> String {
    // A long name costs time and is near to none.
    let near = |word: &&&str| name.len() <= 32 && distance(&name.to_lowercase(), word) <= 2;
    words.iter().find(near).map_or(String::new(), |word| format!(": is {word} meant?"))
}

/// A member that is most likely `match` or `properties`, where that one is missing: without it the
/// document would be about everything, or have no content.
pub(super) fn misspelt(map: &Map<String, Value>, known: &[&str]) -> Option<(String, &'static str)> {
    [
        ("match", "this means nothing here: is match meant?"),
        ("properties", "this means nothing here: is properties meant?"),
    ]
    .into_iter()
    .filter(|(word, _)| !map.contains_key(*word))
    .find_map(|(word, why)| {
        let near = |name: &&String| {
            let close = name.len() <= 32 && distance(&name.to_lowercase(), word) <= 2;
            close && !known.contains(&name.as_str())
        };
        map.keys().find(near).map(|name| (name.clone(), why))
    })
}

/// The transport of neater's that was probably meant. Any other word is a name of the author's own,
/// for a profile to match.
fn misspelt_transport(name: &str) -> Option<&'static str> {
    const NAMES: [&str; 6] = ["TCP", "TLS", "QUIC", "UDP", "DTLS", "SCTP"];
    let name =
        Some(name).filter(|name| name.len() <= 8).map(str::to_uppercase).filter(|n| !NAMES.contains(&n.as_str()))?;
    let letters = |word: &str| {
        let mut letters: Vec<char> = word.chars().collect();
        letters.sort_unstable();
        letters
    };
    NAMES.into_iter().find(|known| distance(&name, known) <= 1 || letters(&name) == letters(known))
}

/// What is odd in a file, by the pointer to it.
pub(super) struct Diagnostics<'a> {
    file: &'a str,
    text: &'a str,
    found: Vec<Fault>,
}

impl<'a> Diagnostics<'a> {
    pub(super) const fn new(file: &'a str, text: &'a str) -> Self {
        Self { file, text, found: Vec::new() }
    }

    pub(super) fn take(self) -> Vec<Fault> {
        self.found
    }

    fn found(&mut self, pointer: &str, why: String) {
        // Without a text there is no reader.
        if self.found.len() < MAX_DIAGNOSTICS && !self.text.is_empty() {
            self.found.push(Fault::harmless(self.file, self.text, pointer, why));
        }
    }

    /// Members that are none of these.
    pub(super) fn members(&mut self, others: &Map<String, Value>, known: &[&str]) {
        for name in others.keys().filter(|name| !known.contains(&name.as_str())) {
            let why = format!("{} means nothing here{}", quoted(name), meant(name, known));
            self.found(&format!("/{}", escaped(name)), why);
        }
    }

    /// An object of properties, or a list of groups or alternatives of such objects; `says`: they
    /// state what is to be, rather than what must be there, which matters for their values. Under
    /// this name among the members of a file.
    pub(super) fn properties(&mut self, name: &str, json: &Value, says: bool) {
        self.among(&Place { above: None, step: Step::Name(name) }, json, says);
    }

    fn among(&mut self, place: &Place<'_>, json: &Value, says: bool) {
        match json {
            Value::Array(list) => {
                for (i, inner) in list.iter().enumerate() {
                    self.among(&place.number(i), inner, says);
                }
            }
            Value::Object(properties) => {
                for (key, property) in properties {
                    let place = place.name(key);
                    self.property(&place, property);
                    if says && is_judged(key) {
                        self.value(&place, key, property);
                    }
                }
            }
            _ => {}
        }
    }

    /// A property whose value no program on neater can do anything with.
    fn value(&mut self, place: &Place<'_>, key: &str, json: &Value) {
        let all = match json {
            Value::Array(alternatives) => alternatives.as_slice(),
            one => core::slice::from_ref(one),
        };
        for json in all {
            let Ok(property) = NeatProperty::from_json(key, json) else { continue };
            if let Some(why) = never(&property.key, &property.value) {
                self.found(&place.pointer(), format!("{} = {} has no effect: {why}", property.key, property.value));
            }
            let elements = match &property.value {
                NeatValue::Set(elements) => elements.iter().collect(),
                one => vec![one],
            };
            for name in elements.into_iter().filter(|_| property.key == "transport") {
                if let NeatValue::Text(name) = name
                    && let Some(meant) = misspelt_transport(name)
                {
                    let why = format!("{} is no transport of neater's: is {meant} meant?", quoted(name));
                    self.found(&place.pointer(), why);
                }
            }
            let is_truth = matches!(property.value, NeatValue::Bool(_) | NeatValue::Any)
                || property.value == NeatValue::Number(0.0)
                || property.value == NeatValue::Number(1.0);
            if property.key == SECURITY && property.precedence >= NeatProperty::IMMUTABLE && !is_truth {
                let why = format!("security = {} is neither true nor false: no connection meets it", property.value);
                self.found(&place.pointer(), why);
            }
        }
    }

    fn property(&mut self, place: &Place<'_>, json: &Value) {
        match json {
            Value::Array(list) => {
                for (i, inner) in list.iter().enumerate() {
                    self.property(&place.number(i), inner);
                }
            }
            Value::Object(attributes) => {
                for name in attributes.keys() {
                    if name == "banned" {
                        let why =
                            "banned is kept, and nothing follows from it: a policy with \"properties\": [[]] denies";
                        self.found(&place.name(name).pointer(), why.into());
                    } else if !ATTRIBUTES.contains(&name.as_str()) {
                        let why = format!("{} is no attribute of a property{}", quoted(name), meant(name, &ATTRIBUTES));
                        self.found(&place.name(name).pointer(), why);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Whether a value under this key may be one that gets a diagnostic: most are not, and taking them
/// apart is most of the work.
fn is_judged(key: &str) -> bool {
    let begins = |word: &str| key.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
    begins("so/") || ["dscp", "transport", SECURITY].iter().any(|word| key.eq_ignore_ascii_case(word))
}

/// Where something stands in a document: a pointer (RFC 6901) that is written out only where it
/// will be read.
#[derive(Clone, Copy)]
struct Place<'a> {
    above: Option<&'a Place<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Name(&'a str),
    Number(usize),
}

impl Place<'_> {
    fn name<'a>(&'a self, name: &'a str) -> Place<'a> {
        Place { above: Some(self), step: Step::Name(name) }
    }

    fn number(&self, number: usize) -> Place<'_> {
        Place { above: Some(self), step: Step::Number(number) }
    }

    fn pointer(&self) -> String {
        let mut pointer = self.above.map_or_else(String::new, Place::pointer);
        pointer.push('/');
        pointer += &match self.step {
            Step::Name(name) => escaped(name),
            Step::Number(number) => number.to_string(),
        };
        pointer
    }
}

fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// An untrusted name, as it can be shown.
fn quoted(name: &str) -> String {
    format!("{name:.40?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_counted() {
        for (a, b, n) in [("mach", "match", 1), ("valeu", "value", 2), ("", "abc", 3), ("same", "same", 0)] {
            assert_eq!(distance(a, b), n, "{a} {b}");
        }
    }
}
