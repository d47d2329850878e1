//! The document behind a scenario: a tree of values that know where they stand.
//!
//! *Responsible for* reading TOML, for overrides and for parameters (`$name` in a string). *Not responsible for* what
//! keys mean. The tree is our own so that every error, also one found long after parsing, can name line and column.

use crate::error::{Place, ScenarioError};
use crate::files::{FileContent, FileKind};
use std::collections::BTreeMap;
use toml::de::{DeTable, DeValue};

/// The longest document, in bytes.
pub const MAX_DOCUMENT: usize = 1 << 20;
/// The longest string after parameters have been put in, in bytes.
const MAX_STRING: usize = 64 << 10;

/// A value and its place.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) place: Place,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Text(String),
    Number(f64),
    Bool(bool),
    List(Vec<Value>),
    Table(Table),
    /// What a file says, where the file's name stood.
    File(FileContent),
}

/// The most different files that a scenario may name.
const MAX_FILES: usize = 64;

/// The entries of a table in the order in which they stand.
pub(crate) type Table = Vec<(String, Place, Value)>;

impl Kind {
    /// What it is, for messages.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Number(_) => "a number",
            Self::Bool(_) => "true or false",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
            Self::File(_) => "a file",
        }
    }
}

/// Finds lines and columns.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(i, _)| i + 1)).collect();
        Self { text, starts }
    }

    fn place(&self, offset: usize) -> Place {
        let offset = offset.min(self.text.len());
        let line = self.starts.partition_point(|s| *s <= offset);
        let start = self.starts[line - 1];
        let column = self.text.get(start..offset).map_or(0, |s| s.chars().count()) + 1;
        Place::File { line: line as u32, column: column as u32 }
    }
}

/// Reads a document.
pub(crate) fn parse(text: &str) -> Result<Table, ScenarioError> {
    if text.len() > MAX_DOCUMENT {
        return Err(ScenarioError::plain("", format!("longer than {MAX_DOCUMENT} bytes")));
    }
    let lines = Lines::new(text);
    let root = DeTable::parse(text).map_err(|e| {
        let place = e.span().map_or(Place::Nowhere, |s| lines.place(s.start));
        ScenarioError::new(place, "", format!("not TOML: {}", e.message()))
    })?;
    table(root.get_ref(), &lines)
}

fn table(source: &DeTable<'_>, lines: &Lines<'_>) -> Result<Table, ScenarioError> {
    let mut entries: Vec<_> = source.iter().collect();
    // A table opened implicitly by `[a.b]` has the place of its first child; the order is that of the file.
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
        .into_iter()
        .map(|(key, v)| {
            let place = lines.place(key.span().start);
            Ok((key.get_ref().to_string(), place, value(v.get_ref(), lines.place(v.span().start), lines)?))
        })
        .collect()
}

fn value(source: &DeValue<'_>, place: Place, lines: &Lines<'_>) -> Result<Value, ScenarioError> {
    let kind = match source {
        DeValue::String(s) => Kind::Text(s.to_string()),
        DeValue::Integer(i) => {
            let digits = i64::from_str_radix(i.as_str(), i.radix())
                .map_err(|_| ScenarioError::new(place.clone(), "", "this number is too large"))?;
            Kind::Number(digits as f64)
        }
        DeValue::Float(f) => match f.as_str().parse::<f64>() {
            Ok(n) if n.is_finite() => Kind::Number(n),
            _ => return Err(ScenarioError::new(place, "", "not a finite number")),
        },
        DeValue::Boolean(b) => Kind::Bool(*b),
        DeValue::Datetime(_) => {
            return Err(ScenarioError::new(place, "", "dates mean nothing here; times are strings like \"50 ms\""));
        }
        DeValue::Array(items) => Kind::List(
            items.iter().map(|v| value(v.get_ref(), lines.place(v.span().start), lines)).collect::<Result<_, _>>()?,
        ),
        DeValue::Table(t) => Kind::Table(table(t, lines)?),
    };
    Ok(Value { place, kind })
}

/// Puts `key=value` pairs over the document. A key is dotted; one without dots that names a parameter sets the parameter.
pub(crate) fn override_with(root: &mut Table, overrides: &[(String, String)]) -> Result<(), ScenarioError> {
    for (key, text) in overrides {
        let place = Place::Override(key.clone());
        let parsed = DeValue::parse(text).ok().map(|v| value(v.get_ref(), place.clone(), &Lines::new("")));
        let mut new = match parsed {
            Some(v) => v.map_err(|e| ScenarioError::new(place.clone(), "", e.message))?,
            // What is not TOML is a string without quotes: --set rate=10Mbit/s.
            None => Value { place: place.clone(), kind: Kind::Text(text.clone()) },
        };
        replace_place(&mut new, &place);
        let parameter = find(root, "parameters").is_some_and(|p| match &p.kind {
            Kind::Table(t) => t.iter().any(|(k, ..)| k == key),
            _ => false,
        });
        let path: Vec<&str> = if parameter { vec!["parameters", key] } else { key.split('.').collect() };
        if path.iter().any(|p| p.is_empty()) {
            return Err(ScenarioError::new(place, "", "an empty name in this key"));
        }
        if path.len() == 1 && find(root, path[0]).is_none() && !crate::parse::TOP_LEVEL.contains(&path[0]) {
            let known = parameter_names(root);
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(ScenarioError::new(
                place,
                "",
                format!(
                    "neither a parameter (there are: {known}) nor a key of a scenario (those are: {})",
                    crate::parse::TOP_LEVEL.join(", ")
                ),
            ));
        }
        put(root, &path, new, &place)?;
    }
    Ok(())
}

fn parameter_names(root: &Table) -> Vec<String> {
    match find(root, "parameters").map(|p| &p.kind) {
        Some(Kind::Table(t)) => t.iter().map(|(k, ..)| k.clone()).collect(),
        _ => Vec::new(),
    }
}

fn replace_place(value: &mut Value, place: &Place) {
    value.place = place.clone();
    match &mut value.kind {
        Kind::List(items) => items.iter_mut().for_each(|v| replace_place(v, place)),
        Kind::Table(t) => {
            for (_, p, v) in t {
                *p = place.clone();
                replace_place(v, place);
            }
        }
        _ => {}
    }
}

pub(crate) fn find<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    table.iter().find(|(k, ..)| k == key).map(|(_, _, v)| v)
}

fn put(table: &mut Table, path: &[&str], new: Value, place: &Place) -> Result<(), ScenarioError> {
    let (first, rest) = (path[0], &path[1..]);
    let at = table.iter().position(|(k, ..)| k == first);
    if rest.is_empty() {
        match at {
            // A parameter with a table keeps its help.
            Some(i) => match &mut table[i].2.kind {
                Kind::Table(t) if !matches!(new.kind, Kind::Table(_)) => {
                    match t.iter_mut().find(|e| e.0 == "default") {
                        Some(entry) => entry.2 = new,
                        None => {
                            return Err(ScenarioError::new(place.clone(), "", "this is a table: name one of its keys"));
                        }
                    }
                }
                _ => table[i].2 = new,
            },
            None => table.push((first.to_owned(), place.clone(), new)),
        }
        return Ok(());
    }
    let i = at.unwrap_or_else(|| {
        let empty = Value { place: place.clone(), kind: Kind::Table(Vec::new()) };
        table.push((first.to_owned(), place.clone(), empty));
        table.len() - 1
    });
    match &mut table[i].2.kind {
        Kind::Table(t) => put(t, rest, new, place),
        other => Err(ScenarioError::new(place.clone(), "", format!("{first:?} is {}, not a table", other.name()))),
    }
}

/// Replaces `$name` in every string of the tree by the parameter of that name. A string that is nothing but `$name`
/// becomes the parameter's value whatever its kind.
pub(crate) fn substitute(value: &mut Value, parameters: &BTreeMap<String, Kind>) -> Result<(), ScenarioError> {
    match &mut value.kind {
        Kind::List(items) => items.iter_mut().try_for_each(|v| substitute(v, parameters)),
        Kind::Table(t) => t.iter_mut().try_for_each(|(_, _, v)| substitute(v, parameters)),
        Kind::Text(text) if text.contains('$') => {
            value.kind = expand(text, parameters).map_err(|e| ScenarioError::new(value.place.clone(), "", e))?;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Where the files that a scenario names come from: what the file of this name says, or what is wrong with it.
pub(crate) type Files<'a> = dyn FnMut(&str, FileKind) -> Result<FileContent, String> + 'a;

/// Puts the contents of files where their names stand.
pub(crate) fn load(
    value: &mut Value,
    files: &mut Files<'_>,
    known: &mut BTreeMap<(String, FileKind), FileContent>,
) -> Result<(), ScenarioError> {
    match &mut value.kind {
        Kind::List(items) => items.iter_mut().try_for_each(|v| load(v, files, known)),
        Kind::Table(t) => t.iter_mut().try_for_each(|(key, _, v)| match (&v.kind, FileKind::of_key(key)) {
            (Kind::Text(name), Some((kind, key))) => {
                let wrong = |message: String| ScenarioError::new(v.place.clone(), key, message);
                let content = match known.get(&(name.clone(), kind)) {
                    Some(content) => content.clone(),
                    None if known.len() == MAX_FILES => return Err(wrong(format!("more than {MAX_FILES} files"))),
                    None => files(name, kind).map_err(|e| wrong(format!("{name}: {e}")))?,
                };
                known.insert((name.clone(), kind), content.clone());
                v.kind = Kind::File(content);
                Ok(())
            }
            _ => load(v, files, known),
        }),
        _ => Ok(()),
    }
}

fn expand(text: &str, parameters: &BTreeMap<String, Kind>) -> Result<Kind, String> {
    let lookup = |name: &str| {
        parameters.get(name).ok_or_else(|| {
            let known: Vec<_> = parameters.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "there are none".to_owned() } else { known.join(", ") };
            format!("no parameter ${name}; [parameters] has: {known}")
        })
    };
    let name_end =
        |s: &str| s.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))).unwrap_or(s.len());
    if let Some(name) = text.strip_prefix('$').filter(|n| name_end(n) == n.len()) {
        return lookup(name).cloned();
    }
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let (name, after) = rest.split_at(name_end(rest));
        match lookup(name)? {
            Kind::Text(t) => out.push_str(t),
            Kind::Number(n) => out.push_str(&n.to_string()),
            Kind::Bool(b) => out.push_str(&b.to_string()),
            other => return Err(format!("${name} is {}, which does not fit into a string", other.name())),
        }
        if out.len() > MAX_STRING {
            return Err(format!("longer than {MAX_STRING} bytes once parameters are put in"));
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(Kind::Text(out))
}
