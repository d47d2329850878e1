//! JSON text in and out, as NEAT's files and sockets have it.
//!
//! Everything read is bounded: the text by [`MAX_JSON`], its depth by the parser, sets and
//! expansions by their own limits. Members are taken in the order of their names, so that the order
//! in the text does not matter. An error gives its place as a JSON pointer (RFC 6901), from which
//! [`locate`](super::locate) finds line and column.

use super::array::{MAX_EXPANDED_PROPERTIES, MAX_EXPANSION, MAX_GROUPS, NeatArray, NeatMultiArray, TooMany};
use super::property::{Conflict, MAX_BANNED, MAX_SCORE, NeatProperty};
use super::text::read;
use super::value::{InvalidValue, NeatValue};
use core::fmt;
use core::fmt::Write as _;
use serde_json::{Map, Number, Value};

/// How long a key may be, in bytes.
const MAX_KEY: usize = 256;
/// Integers up to here are doubles, and doubles up to here are written as integers.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Why a text is no property, array or multi-array.
#[derive(Clone, Debug, PartialEq)]
pub enum NeatError {
    /// It is not JSON, or longer than [`MAX_JSON`](super::MAX_JSON).
    Syntax(String),
    /// Something is not the object or list it should be.
    Shape(&'static str),
    /// A value cannot be.
    Value(InvalidValue),
    /// Immutable properties clash.
    Conflict(Conflict),
    /// There are too many alternatives.
    TooMany(TooMany),
    /// One of the others, at a place within the document.
    At {
        /// The place, as a JSON pointer (RFC 6901).
        pointer: String,
        /// What is wrong there.
        error: Box<NeatError>,
    },
}

impl NeatError {
    /// The same error, seen from one level further out: `step` is a member's name or an element's
    /// number.
    #[must_use]
    pub fn within(self, step: &str) -> Self {
        let step = step.replace('~', "~0").replace('/', "~1");
        match self {
            Self::At { pointer, error } => Self::At { pointer: format!("/{step}{pointer}"), error },
            error => Self::At { pointer: format!("/{step}"), error: Box::new(error) },
        }
    }

    /// What is wrong, without the place.
    #[must_use]
    pub fn kind(&self) -> &Self {
        match self {
            Self::At { error, .. } => error.kind(),
            error => error,
        }
    }

    /// The place as a JSON pointer, empty for the whole document.
    #[must_use]
    pub fn pointer(&self) -> &str {
        match self {
            Self::At { pointer, .. } => pointer,
            _ => "",
        }
    }
}

impl fmt::Display for NeatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(why) => write!(f, "not JSON: {why}"),
            Self::Shape(why) => f.write_str(why),
            Self::Value(e) => e.fmt(f),
            Self::Conflict(e) => e.fmt(f),
            Self::TooMany(e) => e.fmt(f),
            Self::At { pointer, error } => write!(f, "{error} (at {pointer})"),
        }
    }
}

impl std::error::Error for NeatError {}

impl From<InvalidValue> for NeatError {
    fn from(e: InvalidValue) -> Self {
        Self::Value(e)
    }
}

impl From<Conflict> for NeatError {
    fn from(e: Conflict) -> Self {
        Self::Conflict(e)
    }
}

impl From<TooMany> for NeatError {
    fn from(e: TooMany) -> Self {
        Self::TooMany(e)
    }
}

/// The members of an object in the order of their names.
fn members(map: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut members: Vec<_> = map.iter().collect();
    members.sort_by_key(|(key, _)| *key);
    members
}

impl NeatValue {
    /// Reads a value: `null` is any, a list a set (of one element: that element), an object with
    /// `start` and `end` a range.
    ///
    /// # Errors
    /// [`InvalidValue`].
    pub fn from_json(json: &Value) -> Result<Self, InvalidValue> {
        match json {
            Value::Null => Ok(Self::Any),
            Value::Bool(b) => Ok(Self::Bool(*b)),
            Value::Number(n) => finite(n).map(Self::Number),
            Value::String(s) => Ok(Self::Text(s.clone())),
            Value::Array(items) => {
                let elements: Result<Vec<Self>, _> = items
                    .iter()
                    .map(|item| match item {
                        Value::Bool(_) | Value::Number(_) | Value::String(_) => Self::from_json(item),
                        _ => Err(InvalidValue::Element),
                    })
                    .collect();
                Self::set(elements?)
            }
            Value::Object(range) => {
                let bound = |name| range.get(name).and_then(bound).ok_or(InvalidValue::Range);
                Self::range(bound("start")?, bound("end")?)
            }
        }
    }

    /// The value as JSON. Infinite bounds are the texts `inf` and `-inf`, integral numbers are
    /// integers.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match self {
            Self::Any => Value::Null,
            Self::Bool(b) => Value::Bool(*b),
            Self::Number(n) => number(*n),
            Self::Text(t) => Value::String(t.clone()),
            Self::Set(elements) => Value::Array(elements.iter().map(Self::to_json).collect()),
            Self::Range { start, end } => {
                Value::Object(Map::from_iter([("end".into(), number(*end)), ("start".into(), number(*start))]))
            }
        }
    }
}

fn finite(n: &Number) -> Result<f64, InvalidValue> {
    n.as_f64().filter(|n| n.is_finite()).ok_or(InvalidValue::NotFinite)
}

/// The bound of a range: a number, a Boolean as 1 or 0, or infinity in words.
fn bound(json: &Value) -> Option<f64> {
    match json {
        Value::Number(n) => finite(n).ok(),
        Value::Bool(b) => Some(f64::from(u8::from(*b))),
        Value::String(s) => match s.trim().to_ascii_lowercase().as_str() {
            "inf" | "infinity" => Some(f64::INFINITY),
            "-inf" | "-infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn number(n: f64) -> Value {
    if n.fract() == 0.0 && n.abs() <= EXACT {
        return Value::from(n as i64);
    }
    // What is not finite has no JSON number.
    Number::from_f64(n).map_or_else(|| Value::from(if n > 0.0 { "inf" } else { "-inf" }), Value::Number)
}

impl NeatProperty {
    /// Reads the property `key` from its object. Unknown attributes are ignored, as are banned
    /// values that are no texts.
    ///
    /// # Errors
    /// [`NeatError`] when it is no object, or an attribute is of another type or out of range.
    pub fn from_json(key: &str, json: &Value) -> Result<Self, NeatError> {
        let Value::Object(object) = json else {
            return Err(NeatError::Shape("a property must be a JSON object: {\"value\": ...}"));
        };
        if key.is_empty() || key.len() > MAX_KEY {
            return Err(NeatError::Shape("a property needs a name of 1 to 256 bytes"));
        }
        if key.contains(char::is_control) {
            return Err(NeatError::Shape("the name of a property has no control characters"));
        }
        let shape = |attribute, why| NeatError::Shape(why).within(attribute);
        let value = object.get("value").map_or(Ok(NeatValue::Any), NeatValue::from_json);
        let value = value.map_err(|e| NeatError::from(e).within("value"))?;
        let precedence = match object.get("precedence") {
            None => Self::OPTIONAL,
            Some(p) => p
                .as_f64()
                .filter(|p| [0.0, 1.0, 2.0].contains(p))
                .map(|p| p as u8)
                .ok_or_else(|| shape("precedence", "precedence is 0, 1 or 2"))?,
        };
        let score = match object.get("score") {
            None => 0.0,
            // So that no sum of scores is infinite, or no number.
            Some(s) => s
                .as_f64()
                .filter(|s| s.abs() <= MAX_SCORE)
                .ok_or_else(|| shape("score", "score is a number from -1e15 to 1e15"))?,
        };
        let evaluated = match object.get("evaluated") {
            None => false,
            Some(e) => e.as_bool().ok_or_else(|| shape("evaluated", "evaluated is true or false"))?,
        };
        let banned = object.get("banned").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let banned = banned.iter().filter_map(Value::as_str).take(MAX_BANNED).map(String::from).collect();
        Ok(Self { banned, evaluated, ..Self::new(key, value).with_precedence(precedence).with_score(score) })
    }

    /// The property as JSON: always `evaluated`, `precedence`, `score` and `value`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        Value::Object(Map::from_iter([
            ("evaluated".into(), self.evaluated.into()),
            ("precedence".into(), self.precedence.into()),
            ("score".into(), number(self.score)),
            ("value".into(), self.value.to_json()),
        ]))
    }
}

impl NeatArray {
    /// Reads an array from an object of properties. Keys that differ only in case, and lists of
    /// properties, are folded.
    ///
    /// # Errors
    /// [`NeatError`].
    pub fn from_json(json: &Value) -> Result<Self, NeatError> {
        Ok(Self::fold(properties(json)?.into_iter().flat_map(|(_, properties)| properties))?)
    }

    /// Reads an array from text.
    ///
    /// # Errors
    /// [`NeatError`].
    pub fn from_text(text: &str) -> Result<Self, NeatError> {
        Self::from_json(&read(text)?)
    }

    /// The array as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        Value::Object(self.iter().map(|p| (p.key.clone(), p.to_json())).collect())
    }

    /// The array as text: members in the order of their names, and ASCII only, as NEAT's C library
    /// expects it.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = String::from("{");
        for (i, p) in self.iter().enumerate() {
            let key = Value::String(p.key.clone());
            let (evaluated, precedence, score) = (p.evaluated, p.precedence, number(p.score));
            let value = p.value.to_json();
            let comma = if i == 0 { "" } else { ", " };
            // Writing to a string cannot fail.
            let _ = write!(
                out,
                "{comma}{key}: {{\"evaluated\": {evaluated}, \"precedence\": {precedence}, \"score\": {score}, \"value\": {value}}}"
            );
        }
        out.push('}');
        ascii(&out)
    }
}

/// JSON text with everything beyond ASCII escaped; it stands only inside strings.
fn ascii(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    out
}

/// The properties of an object by key, in the order of the keys: several where the object has a
/// list, or spellings that differ in case.
fn properties(json: &Value) -> Result<Vec<(String, Vec<NeatProperty>)>, NeatError> {
    let Value::Object(object) = json else { return Err(NeatError::Shape("properties must be a JSON object")) };
    let mut by_key: std::collections::BTreeMap<String, Vec<NeatProperty>> = std::collections::BTreeMap::new();
    for (key, value) in members(object) {
        let entry = by_key.entry(key.to_lowercase()).or_default();
        match value {
            Value::Array(list) => {
                for (i, item) in list.iter().enumerate() {
                    let property = NeatProperty::from_json(key, item);
                    entry.push(property.map_err(|e| e.within(&i.to_string()).within(key))?);
                }
            }
            one => entry.push(NeatProperty::from_json(key, one).map_err(|e| e.within(key))?),
        }
    }
    Ok(by_key.into_iter().collect())
}

impl NeatMultiArray {
    /// Reads the `properties` of a policy or CIB node, or a request: an object, or a list of
    /// groups; a group is an object, or a list of alternative objects. A list of properties under
    /// one key means alternatives.
    ///
    /// # Errors
    /// [`NeatError`].
    pub fn from_json(json: &Value) -> Result<Self, NeatError> {
        let mut multi = Self::new();
        // Alternatives within alternatives multiply before the expansion proper is counted.
        let mut properties = 0;
        match json {
            Value::Array(groups) => {
                for (i, group) in groups.iter().enumerate() {
                    let place = |e: NeatError| e.within(&i.to_string());
                    match group {
                        Value::Array(alternatives) => {
                            let mut arrays = Vec::new();
                            for (j, alternative) in alternatives.iter().enumerate() {
                                let mut inner = Self::new();
                                inner.add_object(alternative).map_err(|e| place(e.within(&j.to_string())))?;
                                let expanded = inner.expand()?;
                                properties += expanded.iter().map(NeatArray::len).sum::<usize>();
                                arrays.extend(expanded);
                                if arrays.len() > MAX_EXPANSION || properties > MAX_EXPANDED_PROPERTIES {
                                    return Err(TooMany.into());
                                }
                            }
                            multi.push(arrays);
                        }
                        object => multi.add_object(object).map_err(place)?,
                    }
                    if multi.groups().len() > MAX_GROUPS {
                        return Err(TooMany.into());
                    }
                }
            }
            object => multi.add_object(object)?,
        }
        Ok(multi)
    }

    /// Reads a multi-array from text.
    ///
    /// # Errors
    /// [`NeatError`].
    pub fn from_text(text: &str) -> Result<Self, NeatError> {
        Self::from_json(&read(text)?)
    }

    /// One group of the properties that stand alone, and one for each key with several, in the
    /// order of the keys.
    fn add_object(&mut self, json: &Value) -> Result<(), NeatError> {
        let mut alone = NeatArray::new();
        let mut groups = Vec::new();
        for (_, mut several) in properties(json)? {
            if several.len() > 1 {
                let alternatives: Result<Vec<_>, _> = several.into_iter().map(|p| NeatArray::fold([p])).collect();
                groups.push(alternatives?);
            } else if let Some(one) = several.pop() {
                alone.replace(one);
            }
        }
        self.push(vec![alone]);
        groups.into_iter().for_each(|g| self.push(g));
        Ok(())
    }
}
