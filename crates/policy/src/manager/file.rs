//! The content of a policy, profile or CIB file.

use super::diagnostics::{Diagnostics, misspelt};
use neater_base::WallTime;
use neater_property::Fingerprint;
use neater_property::neat::{NeatArray, NeatError, NeatMultiArray, NeatProperty, NeatValue, locate, read};
use serde_json::{Map, Value};
use std::fmt;
use std::time::Duration;

/// How long a uid may be, in bytes.
pub const MAX_UID: usize = 256;
/// The members of a policy or profile, and those of a node.
const OF_RULE: [&str; 8] =
    ["uid", "priority", "replace_matched", "match", "properties", "description", "policy_type", "filename"];
const OF_NODE: [&str; 11] = [
    "uid",
    "priority",
    "root",
    "link",
    "match",
    "properties",
    "description",
    "expire",
    "expires",
    "filename",
    "file_timestamp",
];
/// The lifetime of a node that states none.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(600);

/// Something in a file that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file.
    pub file: String,
    /// The line, from 1; 0 where the whole file is meant.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// What is wrong, and what to do.
    pub why: String,
    /// Whether the file is used nevertheless.
    pub harmless: bool,
}

impl Fault {
    /// What `error` means for a file of this text.
    #[must_use]
    pub fn new(file: &str, text: &str, error: &NeatError) -> Self {
        // The reader of the syntax knows its place already, in words.
        let (line, column, why) = match error.kind() {
            NeatError::Syntax(why) => {
                let number = |word: &str| -> Option<usize> {
                    let after = why.split(word).last()?;
                    after.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
                };
                let bare = why.rsplit_once(" at line ").map_or(why.as_str(), |(bare, _)| bare);
                (number(" at line ").unwrap_or(1), number(" column ").unwrap_or(1), format!("not JSON: {bare}"))
            }
            kind => {
                let (line, column) = locate(text, error.pointer());
                (line, column, kind.to_string())
            }
        };
        Self { file: file.into(), line, column, why, harmless: false }
    }

    pub(super) fn harmless(file: &str, text: &str, pointer: &str, why: String) -> Self {
        let (line, column) = locate(text, pointer);
        Self { file: file.into(), line, column, why, harmless: true }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What is wrong with a file as a whole has no line.
        match self.line {
            0 if self.file.is_empty() => {}
            0 => write!(f, "{}: ", self.file)?,
            _ => write!(f, "{}:{}:{}: ", self.file, self.line, self.column)?,
        }
        f.write_str(if self.harmless { "warning: " } else { "error: " })?;
        f.write_str(&self.why)
    }
}

impl std::error::Error for Fault {}

/// One entry of a table: a policy or a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// What it is called, in lower case; unique within its table.
    pub uid: String,
    /// Its place: lower ones are tried first.
    pub priority: i64,
    /// Whether the properties it matched are taken out of a candidate before its own come in.
    pub replace_matched: bool,
    /// What a candidate must have.
    pub matches: NeatArray,
    /// Its properties, as they were written.
    pub properties: NeatMultiArray,
    /// Its properties, one array for each combination of alternatives; none denies the candidate.
    pub alternatives: Vec<NeatArray>,
    /// What it is for.
    pub description: String,
    /// Members that mean nothing to the manager.
    pub others: Map<String, Value>,
}

/// An entry of the characteristics information base.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What it is called; unique, and its case counts.
    pub uid: String,
    /// Whether rows begin here.
    pub root: bool,
    /// Whether it joins itself to the nodes it matches.
    pub link: bool,
    /// What it matches: any of these.
    pub matches: Vec<NeatArray>,
    /// Its properties, as they were written.
    pub properties: NeatMultiArray,
    /// Its properties, one array for each combination of alternatives.
    pub alternatives: Vec<NeatArray>,
    /// Kept, but without effect, as in NEAT.
    pub priority: i64,
    /// When it ends to count; `None` for never.
    pub expires: Option<WallTime>,
    /// What it is for.
    pub description: String,
    /// Members that mean nothing to the manager.
    pub others: Map<String, Value>,
}

/// A document being taken apart.
struct Members<'a> {
    map: Map<String, Value>,
    file: &'a str,
    text: &'a str,
    warnings: Vec<Fault>,
}

impl Members<'_> {
    /// A Boolean. Anything else counts as false: NEAT took the text `"false"` for true.
    fn boolean(&mut self, name: &str) -> bool {
        match self.map.remove(name) {
            None | Some(Value::Null) => false,
            Some(Value::Bool(b)) => b,
            Some(other) => {
                let why = format!("{name} is true or false, not {}; it counts as false", kind_of(&other));
                self.warnings.push(Fault::harmless(self.file, self.text, &format!("/{name}"), why));
                false
            }
        }
    }

    /// An integer: a number cut to one, or a text of one.
    fn priority(&mut self) -> Result<i64, NeatError> {
        let wrong = || NeatError::Shape("priority is a number").within("priority");
        match self.map.remove("priority") {
            None | Some(Value::Null) => Ok(0),
            Some(Value::Number(n)) => n.as_f64().map(|n| n.trunc() as i64).ok_or_else(wrong),
            Some(Value::String(s)) => s.trim().parse().map_err(|_| wrong()),
            Some(_) => Err(wrong()),
        }
    }

    fn text(&mut self, name: &'static str) -> Result<Option<String>, NeatError> {
        match self.map.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(s)) if name == "uid" && (s.is_empty() || s.len() > MAX_UID) => {
                Err(NeatError::Shape("a uid has 1 to 256 bytes").within(name))
            }
            Some(Value::String(s)) if name == "uid" && s.contains(char::is_control) => {
                Err(NeatError::Shape("a uid has no control characters").within(name))
            }
            Some(Value::String(s)) => Ok(Some(s)),
            Some(Value::Number(n)) if name == "uid" => Ok(Some(n.to_string())),
            Some(_) => Err(NeatError::Shape("this is a text").within(name)),
        }
    }

    fn properties(&mut self) -> Result<(NeatMultiArray, Vec<NeatArray>), NeatError> {
        let properties = self.map.remove("properties").filter(|p| !p.is_null());
        let properties = properties.map_or(Ok(NeatMultiArray::new()), |p| NeatMultiArray::from_json(&p));
        let properties = properties.map_err(|e| e.within("properties"))?;
        let alternatives = properties.expand().map_err(|e| NeatError::from(e).within("properties"))?;
        let denies = properties.groups().iter().any(Vec::is_empty);
        if alternatives.is_empty() && !denies {
            let why = "every combination of these alternatives clashes with itself, so that nothing is left".into();
            self.warnings.push(Fault::harmless(self.file, self.text, "/properties", why));
        }
        Ok((properties, alternatives))
    }
}

fn kind_of(json: &Value) -> &'static str {
    match json {
        Value::Null => "null",
        Value::Bool(_) => "a Boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A uid for something that states none: a number that depends on its content alone. `None` for
/// what states one.
fn own_uid(json: &Map<String, Value>) -> Option<String> {
    if json.get("uid").is_some_and(|uid| !uid.is_null()) {
        return None;
    }
    let mut f = Fingerprint::default();
    for name in ["description", "link", "match", "priority", "properties", "root", "replace_matched"] {
        f.text(&json.get(name).unwrap_or(&Value::Null).to_string());
    }
    Some(format!("{:016x}", f.finish()))
}

/// Attributes of properties that mean nothing.
fn diagnostics(map: &Map<String, Value>, file: &str, text: &str) -> Vec<Fault> {
    let mut diagnostics = Diagnostics::new(file, text);
    for name in ["match", "properties"] {
        if let Some(json) = map.get(name).filter(|_| !text.is_empty()) {
            diagnostics.properties(name, json, name == "properties");
        }
    }
    diagnostics.take()
}

/// Members that mean nothing.
fn strange(others: &Map<String, Value>, known: &[&str], file: &str, text: &str) -> Vec<Fault> {
    let mut diagnostics = Diagnostics::new(file, text);
    diagnostics.members(others, known);
    diagnostics.take()
}

impl Rule {
    /// Reads a policy or profile from the JSON text of a file.
    ///
    /// # Errors
    /// [`Fault`] with the place; what is merely odd comes back beside the rule.
    pub fn from_text(file: &str, text: &str) -> Result<(Self, Vec<Fault>), Fault> {
        let json = read(text).map_err(|e| Fault::new(file, text, &e))?;
        Self::from_json(json, file, text).map_err(|e| Fault::new(file, text, &e))
    }

    /// Reads a policy or profile from JSON; `file` and `text` are for warnings, and may be empty.
    ///
    /// # Errors
    /// [`NeatError`] with the place as a pointer.
    pub fn from_json(json: Value, file: &str, text: &str) -> Result<(Self, Vec<Fault>), NeatError> {
        let Value::Object(map) = json else { return Err(NeatError::Shape("a policy or profile is one JSON object")) };
        if let Some((name, why)) = misspelt(&map, &OF_RULE) {
            return Err(NeatError::Shape(why).within(&name));
        }
        if map.get("policy_type").is_some_and(|t| !matches!(t.as_str(), Some("policy" | "profile"))) {
            return Err(NeatError::Shape("policy_type is \"policy\" or \"profile\"").within("policy_type"));
        }
        let named = own_uid(&map);
        let mut warnings = diagnostics(&map, file, text);
        if !map.contains_key("match") && !map.contains_key("properties") {
            let why = "neither match nor properties: this has no content, and matches everything".into();
            warnings.push(Fault::harmless(file, text, "", why));
        }
        let mut m = Members { map, file, text, warnings };
        let uid = m.text("uid")?.or(named).unwrap_or_default().to_lowercase();
        let priority = m.priority()?;
        let replace_matched = m.boolean("replace_matched");
        let matches = m.map.remove("match").filter(|p| !p.is_null());
        let matches = matches.map_or(Ok(NeatArray::new()), |j| NeatArray::from_json(&j));
        let matches = matches.map_err(|e| e.within("match"))?;
        let (properties, alternatives) = m.properties()?;
        let description = m.text("description").unwrap_or_default().unwrap_or_default();
        for name in ["link", "root", "expire", "expires"] {
            if m.map.contains_key(name) {
                let why = format!("{name} belongs to the CIB and means nothing here");
                m.warnings.push(Fault::harmless(file, text, &format!("/{name}"), why));
            }
        }
        let Members { map: others, mut warnings, .. } = m;
        let of_cib = ["link", "root", "expire", "expires"];
        let known: Vec<&str> = OF_RULE.into_iter().chain(of_cib).collect();
        warnings.extend(strange(&others, &known, file, text));
        Ok((Self { uid, priority, replace_matched, matches, properties, alternatives, description, others }, warnings))
    }

    /// About how many bytes it takes.
    #[must_use]
    pub fn weight(&self) -> usize {
        weight(&self.uid, &self.description, &self.others)
            + of_array(&self.matches)
            + of_groups(&self.properties)
            + self.alternatives.iter().map(of_array).sum::<usize>()
    }

    /// The rule as JSON, from which an equal one can be read.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut map = self.others.clone();
        map.insert("uid".into(), self.uid.clone().into());
        map.insert("priority".into(), self.priority.into());
        map.insert("replace_matched".into(), self.replace_matched.into());
        map.insert("match".into(), array_json(&self.matches));
        map.insert("properties".into(), properties_json(&self.properties));
        map.insert("description".into(), self.description.clone().into());
        Value::Object(map)
    }
}

impl Node {
    /// Reads a node from the JSON text of a file, at `now`.
    ///
    /// # Errors
    /// As [`Rule::from_text`].
    pub fn from_text(file: &str, text: &str, now: WallTime) -> Result<(Self, Vec<Fault>), Fault> {
        let json = read(text).map_err(|e| Fault::new(file, text, &e))?;
        Self::from_json(json, file, text, now).map_err(|e| Fault::new(file, text, &e))
    }

    /// Reads a node from JSON, at `now`.
    ///
    /// # Errors
    /// As [`Rule::from_json`].
    pub fn from_json(json: Value, file: &str, text: &str, now: WallTime) -> Result<(Self, Vec<Fault>), NeatError> {
        let Value::Object(map) = json else { return Err(NeatError::Shape("a CIB node is one JSON object")) };
        if map.is_empty() {
            return Err(NeatError::Shape("a CIB node needs at least one member"));
        }
        if let Some((name, why)) = misspelt(&map, &OF_NODE) {
            return Err(NeatError::Shape(why).within(&name));
        }
        let named = own_uid(&map);
        let warnings = diagnostics(&map, file, text);
        let mut m = Members { map, file, text, warnings };
        let uid = m.text("uid")?.or(named).unwrap_or_default();
        let priority = m.priority()?;
        // Only exactly true makes a root, in NEAT as here.
        let root = m.boolean("root");
        let link = m.boolean("link");
        let matches = match m.map.remove("match") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(entries)) => {
                let read = |(i, entry): (usize, &Value)| {
                    NeatArray::from_json(entry).map_err(|e| e.within(&i.to_string()).within("match"))
                };
                entries.iter().enumerate().map(read).collect::<Result<_, _>>()?
            }
            Some(_) => return Err(NeatError::Shape("match of a CIB node is a list of objects").within("match")),
        };
        let expire = m.map.remove("expire");
        let expires = m.map.remove("expires");
        let expires = match expire.or(expires) {
            None | Some(Value::Null) => now.0.checked_add(DEFAULT_LIFETIME).map(WallTime),
            Some(Value::Number(n)) => match n.as_f64().unwrap_or_default() {
                -1.0 => None,
                0.0 => now.0.checked_add(DEFAULT_LIFETIME).map(WallTime),
                seconds => Duration::try_from_secs_f64(seconds.max(0.0)).ok().map(WallTime),
            },
            Some(_) => {
                return Err(NeatError::Shape("expire is a number of seconds since 1970, or -1").within("expire"));
            }
        };
        let (properties, alternatives) = m.properties()?;
        let description = m.text("description").unwrap_or_default().unwrap_or_default();
        if !root && matches.is_empty() {
            let why = "neither a root nor with a match: this node appears in no row".into();
            m.warnings.push(Fault::harmless(file, text, "", why));
        }
        let Members { map: others, mut warnings, .. } = m;
        warnings.extend(strange(&others, &OF_NODE, file, text));
        let node = Self { uid, root, link, matches, properties, alternatives, priority, expires, description, others };
        Ok((node, warnings))
    }

    /// About how many bytes it takes.
    #[must_use]
    pub fn weight(&self) -> usize {
        weight(&self.uid, &self.description, &self.others)
            + self.matches.iter().map(of_array).sum::<usize>()
            + of_groups(&self.properties)
            + self.alternatives.iter().map(of_array).sum::<usize>()
    }

    /// Whether another has the same content, whatever its lifetime.
    #[must_use]
    pub fn says_the_same(&self, other: &Self) -> bool {
        (&self.uid, self.root, self.link, self.priority, &self.description)
            == (&other.uid, other.root, other.link, other.priority, &other.description)
            && (&self.matches, &self.properties, &self.alternatives, &self.others)
                == (&other.matches, &other.properties, &other.alternatives, &other.others)
    }

    /// Whether the node still counts at `now`.
    #[must_use]
    pub fn counts(&self, now: WallTime) -> bool {
        self.expires.is_none_or(|at| now.0 < at.0)
    }

    /// The node as JSON, from which an equal one can be read.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut map = self.others.clone();
        map.insert("uid".into(), self.uid.clone().into());
        map.insert("root".into(), self.root.into());
        map.insert("link".into(), self.link.into());
        map.insert("priority".into(), self.priority.into());
        map.insert("expire".into(), self.expires.map_or(Value::from(-1), |at| at.0.as_secs_f64().into()));
        map.insert("match".into(), Value::Array(self.matches.iter().map(array_json).collect()));
        map.insert("properties".into(), properties_json(&self.properties));
        map.insert("description".into(), self.description.clone().into());
        Value::Object(map)
    }
}

/// About how many bytes an array takes.
pub(crate) fn of_array(array: &NeatArray) -> usize {
    array.iter().map(|p| 128 + 2 * p.key.len() + of_value(&p.value) + 64 * p.banned.len()).sum::<usize>() + 48
}

/// About how many bytes a value takes.
pub(crate) fn of_value(value: &NeatValue) -> usize {
    match value {
        NeatValue::Text(text) => text.len(),
        NeatValue::Set(elements) => elements.iter().map(|e| 40 + of_value(e)).sum(),
        _ => 0,
    }
}

fn of_groups(properties: &NeatMultiArray) -> usize {
    properties.groups().iter().flatten().map(of_array).sum()
}

/// About how many bytes the rest of a rule or node takes. JSON values are larger than their texts.
fn weight(uid: &str, description: &str, others: &Map<String, Value>) -> usize {
    let others = if others.is_empty() { 0 } else { 8 * Value::Object(others.clone()).to_string().len() };
    512 + uid.len() + description.len() + others
}

fn array_json(array: &NeatArray) -> Value {
    Value::Object(array.iter().map(|p| (p.key.clone(), property_json(p))).collect())
}

fn property_json(property: &NeatProperty) -> Value {
    let mut json = property.to_json();
    if let (Value::Object(map), false) = (&mut json, property.banned.is_empty()) {
        map.insert("banned".into(), property.banned.clone().into());
    }
    json
}

fn properties_json(properties: &NeatMultiArray) -> Value {
    let group = |alternatives: &Vec<NeatArray>| Value::Array(alternatives.iter().map(array_json).collect());
    Value::Array(properties.groups().iter().map(group).collect())
}
