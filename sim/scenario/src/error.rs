//! What is wrong with a scenario, and where.

use core::fmt;

/// Where a value stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// In the file: line and column, both from 1; the column counts characters.
    File {
        /// The line.
        line: u32,
        /// The column.
        column: u32,
    },
    /// In an override (`--set KEY=VALUE`): the key.
    Override(String),
    /// In a scenario made by code, or nowhere in particular.
    #[default]
    Nowhere,
}

/// Why a scenario cannot be used: where, which key, what is wrong and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// Where.
    pub place: Place,
    /// The dotted key, as `--set` would name it; may be empty.
    pub key: String,
    /// What is wrong, and what is allowed.
    pub message: String,
}

impl ScenarioError {
    /// An error at a place.
    pub(crate) fn new(place: Place, key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { place, key: key.into(), message: message.into() }
    }

    /// An error in a scenario that has no file.
    pub(crate) fn plain(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Place::Nowhere, key, message)
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::File { line, column } => write!(f, "line {line}, column {column}: ")?,
            Place::Override(key) => write!(f, "--set {key}: ")?,
            Place::Nowhere => {}
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for ScenarioError {}
