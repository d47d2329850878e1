//! Reading the keys of one table: each is taken once, and what is left over is an error that lists what is allowed.

use crate::document::{Kind, Table, Value};
use crate::error::{Place, ScenarioError};
use crate::units;
use core::time::Duration;

type Result<T> = core::result::Result<T, ScenarioError>;

/// The keys of a table that have not been read yet.
#[derive(Debug)]
pub(crate) struct Fields {
    /// The dotted key of the table.
    pub(crate) path: String,
    pub(crate) place: Place,
    entries: Vec<(String, Place, Option<Value>)>,
    asked: Vec<&'static str>,
}

impl Fields {
    pub(crate) fn new(path: &str, place: Place, table: Table) -> Self {
        let entries = table.into_iter().map(|(k, p, v)| (k, p, Some(v))).collect();
        Self { path: path.to_owned(), place, entries, asked: Vec::new() }
    }

    pub(crate) fn of(path: &str, value: Value) -> Result<Self> {
        match value.kind {
            Kind::Table(t) => Ok(Self::new(path, value.place, t)),
            other => Err(ScenarioError::new(value.place, path, format!("is {}, but must be a table", other.name()))),
        }
    }

    pub(crate) fn key(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// An error about the whole table.
    pub(crate) fn error(&self, message: impl Into<String>) -> ScenarioError {
        ScenarioError::new(self.place.clone(), self.path.clone(), message)
    }

    pub(crate) fn take(&mut self, name: &'static str) -> Option<Value> {
        if !self.asked.contains(&name) {
            self.asked.push(name);
        }
        self.entries.iter_mut().find(|(k, ..)| k == name).and_then(|(_, _, v)| v.take())
    }

    /// Takes whatever is left, for tables whose keys are names.
    pub(crate) fn rest(&mut self) -> Vec<(String, Value)> {
        self.entries.drain(..).filter_map(|(k, _, v)| Some((k, v?))).collect()
    }

    /// Everything must have been taken.
    pub(crate) fn finish(self) -> Result<()> {
        let Some((key, place, _)) = self.entries.iter().find(|(.., v)| v.is_some()) else { return Ok(()) };
        let mut allowed = self.asked.clone();
        allowed.sort_unstable();
        let near = allowed.iter().find(|a| a.replace('-', "") == key.replace(['-', '_'], "").to_ascii_lowercase());
        let hint = near.map_or(String::new(), |n| format!("; did you mean {n}?"));
        let message = format!("unknown key{hint}; allowed here: {}", allowed.join(", "));
        Err(ScenarioError::new(place.clone(), self.key(key), message))
    }

    fn convert<T>(
        &mut self,
        name: &'static str,
        call: impl Fn(&Kind) -> core::result::Result<T, String>,
    ) -> Result<Option<T>> {
        let key = self.key(name);
        self.take(name).map(|v| call(&v.kind).map_err(|e| ScenarioError::new(v.place, key, e))).transpose()
    }

    pub(crate) fn text(&mut self, name: &'static str) -> Result<Option<String>> {
        self.convert(name, |k| match k {
            Kind::Text(t) => Ok(t.clone()),
            other => Err(format!("is {}, but must be a string", other.name())),
        })
    }

    pub(crate) fn flag(&mut self, name: &'static str) -> Result<Option<bool>> {
        self.convert(name, |k| match k {
            Kind::Bool(b) => Ok(*b),
            Kind::Text(t) if t == "true" => Ok(true),
            Kind::Text(t) if t == "false" => Ok(false),
            other => Err(format!("is {}, but must be true or false", other.name())),
        })
    }

    /// A whole number within bounds.
    pub(crate) fn whole(&mut self, name: &'static str, range: core::ops::RangeInclusive<u64>) -> Result<Option<u64>> {
        self.convert(name, |k| {
            let number = plain(k)?;
            let (low, high) = (*range.start(), *range.end());
            if number.fract() != 0.0 || number < low as f64 || number > high as f64 {
                return Err(format!("must be a whole number from {low} to {high}"));
            }
            Ok(number as u64)
        })
    }

    /// A number within bounds.
    pub(crate) fn number(&mut self, name: &'static str, range: core::ops::RangeInclusive<f64>) -> Result<Option<f64>> {
        self.convert(name, |k| {
            let number = plain(k)?;
            if range.contains(&number) {
                Ok(number)
            } else {
                Err(format!("must be from {} to {}", range.start(), range.end()))
            }
        })
    }

    pub(crate) fn rate(&mut self, name: &'static str) -> Result<Option<u64>> {
        self.convert(name, |k| units::rate(&quantity(k, "a rate like \"10 Mbit/s\"")?))
    }

    pub(crate) fn time(&mut self, name: &'static str) -> Result<Option<Duration>> {
        self.convert(name, |k| match k {
            Kind::Number(0.0) => Ok(Duration::ZERO),
            k => units::time(&quantity(k, "a time like \"50 ms\"")?),
        })
    }

    pub(crate) fn size(&mut self, name: &'static str) -> Result<Option<u64>> {
        self.convert(name, |k| units::size(&quantity(k, "an amount of data like \"20 kB\"")?))
    }

    pub(crate) fn fraction(&mut self, name: &'static str) -> Result<Option<f64>> {
        self.convert(name, share)
    }

    /// One of a few words.
    pub(crate) fn word<T: Copy>(&mut self, name: &'static str, words: &[(&str, T)]) -> Result<Option<T>> {
        self.convert(name, |k| {
            let allowed = || words.iter().map(|(w, _)| *w).collect::<Vec<_>>().join(", ");
            let Kind::Text(text) = k else { return Err(format!("is {}, but must be one of {}", k.name(), allowed())) };
            words
                .iter()
                .find(|(w, _)| w == text)
                .map(|(_, t)| *t)
                .ok_or_else(|| format!("{text:?} is not known; it is one of {}", allowed()))
        })
    }

    /// A list of strings; one string is a list of one.
    pub(crate) fn texts(&mut self, name: &'static str) -> Result<Option<Vec<(String, Place)>>> {
        let key = self.key(name);
        let Some(v) = self.take(name) else { return Ok(None) };
        let one = |v: Value| match v.kind {
            Kind::Text(t) => Ok((t, v.place)),
            other => {
                Err(ScenarioError::new(v.place, key.clone(), format!("is {}, but must be a string", other.name())))
            }
        };
        match v.kind {
            Kind::List(items) => items.into_iter().map(one).collect::<Result<_>>().map(Some),
            kind => one(Value { place: v.place, kind }).map(|t| Some(vec![t])),
        }
    }

    pub(crate) fn table(&mut self, name: &'static str) -> Result<Option<Self>> {
        let key = self.key(name);
        self.take(name).map(|v| Self::of(&key, v)).transpose()
    }

    /// A list of tables; one table is a list of one.
    pub(crate) fn tables(&mut self, name: &'static str) -> Result<Vec<Self>> {
        let key = self.key(name);
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(Value { kind: Kind::List(items), .. }) => {
                items.into_iter().enumerate().map(|(i, v)| Self::of(&format!("{key}[{i}]"), v)).collect()
            }
            Some(v) => Ok(vec![Self::of(&key, v)?]),
        }
    }
}

fn plain(kind: &Kind) -> core::result::Result<f64, String> {
    match kind {
        Kind::Number(n) => Ok(*n),
        Kind::Text(t) => t.trim().replace('_', "").parse().map_err(|_| format!("{t:?} is not a number")),
        other => Err(format!("is {}, but must be a number", other.name())),
    }
}

pub(crate) fn share(kind: &Kind) -> core::result::Result<f64, String> {
    match kind {
        Kind::Number(n) => units::fraction(&n.to_string()),
        Kind::Text(t) => units::fraction(t),
        other => Err(format!("is {}, but must be a share like \"1 %\" or 0.01", other.name())),
    }
}

pub(crate) fn quantity(kind: &Kind, what: &str) -> core::result::Result<String, String> {
    match kind {
        Kind::Text(t) => Ok(t.clone()),
        Kind::Number(n) => Err(format!("{n} has no unit: write {what}")),
        other => Err(format!("is {}, but must be {what}", other.name())),
    }
}
