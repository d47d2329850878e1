//! Needs from a command line: `reliable,encrypted,low-delay,multistreaming=avoid`.
//!
//! *Responsible for* words and their conflicts. *Not for* contradictions between properties, which
//! [`TransportProperties::check`] finds, nor for values, which [`TransportProperties::set`] checks.
//!
//! *Invariants*: the order of the words does not matter, but for the order of interface
//! preferences; any text gives properties or an error, in time and space bounded by
//! [`MAX_REQUEST_TEXT`].

use crate::catalogue::{Class, PROPERTIES, close_matches, lookup};
use crate::profile::{PROFILES, profile};
use crate::security::SecurityNeed;
use crate::selection::SelectionProperty;
use crate::transport::TransportProperties;
use crate::value::{PropertyError, is_name, is_word, shortened, write_close};
use crate::words::{Meaning, SPELLINGS, WORDS};
use core::fmt;
use std::collections::BTreeMap;

/// The longest text that is read, in bytes.
pub const MAX_REQUEST_TEXT: usize = 4096;
/// The most words that are read.
pub const MAX_REQUEST_WORDS: usize = 64;

/// What a text asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// The properties.
    pub properties: TransportProperties,
    /// The need of security, if a word stated one. A caller that takes the properties alone loses
    /// it: a program that hands both on, as `Preconnection::needs` does, does not.
    pub security: Option<SecurityNeed>,
}

/// Why a text could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// No word, property or profile has this name.
    Unknown {
        /// The word, shortened.
        word: String,
        /// What looks like it, best first; at most three.
        close: Vec<&'static str>,
    },
    /// Two words ask for different things.
    Conflict {
        /// The earlier word, shortened.
        first: String,
        /// The later word, shortened.
        second: String,
        /// What both are about: the name of a property, or `security`.
        property: &'static str,
    },
    /// A word that stands for several properties was given a value, as only a property takes one.
    TakesNoValue(String),
    /// A property does not take its value, or needs one.
    Property(PropertyError),
    /// The text is longer than [`MAX_REQUEST_TEXT`] bytes or has more than [`MAX_REQUEST_WORDS`]
    /// words.
    TooLong,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { word, close } => {
                write!(f, "'{word}' is no property and no word for one")?;
                write_close(f, close)
            }
            Self::Conflict { first, second, property } => {
                write!(f, "'{first}' and '{second}' ask for different things ({property})")
            }
            Self::TakesNoValue(word) => {
                write!(
                    f,
                    "'{word}' is a word and takes no value: write '{word}', leave it out, or name the property that you mean"
                )
            }
            Self::Property(error) => error.fmt(f),
            Self::TooLong => {
                write!(f, "needs take at most {MAX_REQUEST_WORDS} words and {MAX_REQUEST_TEXT} bytes")
            }
        }
    }
}

impl std::error::Error for ParseError {}

impl From<PropertyError> for ParseError {
    fn from(error: PropertyError) -> Self {
        Self::Property(error)
    }
}

impl TransportProperties {
    /// Reads words separated by commas or blanks, in any order:
    ///
    /// * a friendly word of [`crate::WORDS`], such as `reliable`, `low-delay` or `encrypted`;
    /// * a profile of [`PROFILES`], whose properties other words override;
    /// * `name=value` with a property of [`PROPERTIES`]; `_` or `-` may stand for the blanks of a
    ///   value;
    /// * a property alone, which requires it or makes it true, and `no-` before it, which prohibits
    ///   it or makes it false.
    ///
    /// ```
    /// use neater_property::{Preference, Role, SecurityNeed};
    /// use neater_property::{SelectionProperty, TransportProperties};
    /// let words = "reliable, low-delay, encrypted, multistreaming=avoid";
    /// let parsed = TransportProperties::parse(words)?;
    /// let needs = parsed.properties.compile(Role::Initiate).unwrap();
    /// assert!(matches!(parsed.security, Some(SecurityNeed::Required { .. })));
    /// assert_eq!(needs.preference(SelectionProperty::Multistreaming), Preference::Avoid);
    /// # Ok::<(), neater_property::ParseError>(())
    /// ```
    ///
    /// # Errors
    /// [`ParseError`] for the first word that is not understood, or that contradicts an earlier
    /// one.
    pub fn parse(text: &str) -> Result<Parsed, ParseError> {
        if text.len() > MAX_REQUEST_TEXT {
            return Err(ParseError::TooLong);
        }
        let mut reader = Reader::default();
        let words = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|w| !w.is_empty());
        for (i, word) in words.enumerate() {
            if i >= MAX_REQUEST_WORDS {
                return Err(ParseError::TooLong);
            }
            reader.word(word)?;
        }
        reader.finish()
    }
}

/// What has been read: first what is implied, then what is stated, so that the order of words does
/// not matter.
#[derive(Default)]
struct Reader<'a> {
    base: TransportProperties,
    profile: Option<&'a str>,
    implied: Vec<(&'static str, &'static str)>,
    /// What is stated, and by which word.
    stated: BTreeMap<&'static str, (String, &'a str)>,
    security: Option<(SecurityNeed, &'a str)>,
}

impl<'a> Reader<'a> {
    fn word(&mut self, word: &'a str) -> Result<(), ParseError> {
        if let Some((name, value)) = word.split_once('=') {
            return self.assignment(word, name, value);
        }
        let spelt = SPELLINGS.iter().find(|(s, _)| is_word(word, s)).map_or(word, |(_, word)| *word);
        if let Some(known) = WORDS.iter().find(|w| is_word(spelt, w.word)) {
            return match known.meaning {
                Meaning::Properties { stated, implied } => {
                    self.implied.extend(implied);
                    stated.iter().try_for_each(|(name, value)| self.state(name, value, word))
                }
                Meaning::Security(need) => self.secure(need, word),
            };
        }
        if let Some(mut found) = profile(word) {
            if let Some(first) = self.profile.filter(|first| !is_name(first, word)) {
                return Err(conflict(first, word, "profile"));
            }
            add_sets(&mut found, &self.base)?;
            (self.base, self.profile) = (found, Some(word));
            return Ok(());
        }
        let (name, value) = match word.get(..3) {
            Some(no) if no.eq_ignore_ascii_case("no-") && lookup(word).is_none() => (&word[3..], "false"),
            _ => (word, "true"),
        };
        match lookup(name) {
            Some(info) => self.state(info.name, value, word),
            None => Err(unknown(word)),
        }
    }

    fn assignment(&mut self, word: &'a str, name: &str, value: &str) -> Result<(), ParseError> {
        let Some(info) = lookup(name) else {
            let spelt = SPELLINGS.iter().find(|(s, _)| is_word(name, s)).map_or(name, |(_, word)| *word);
            let alone = WORDS.iter().any(|w| is_word(spelt, w.word)) || profile(name).is_some();
            return Err(if alone { ParseError::TakesNoValue(shortened(name)) } else { unknown(name) });
        };
        // Preferences for several interfaces add up: each word is one more member of the set.
        if matches!(info.name, "interface" | "pvd") {
            let mut one = TransportProperties::new();
            one.set_text(info.name, value)?;
            return Ok(add_sets(&mut self.base, &one)?);
        }
        self.state(info.name, value, word)
    }

    fn state(&mut self, property: &'static str, value: &str, word: &'a str) -> Result<(), ParseError> {
        // A word is checked where it stands, so that the first wrong one is reported.
        let mut one = TransportProperties::new();
        one.set_text(property, value)?;
        if let Some((earlier, first)) = self.stated.get(property) {
            let mut other = TransportProperties::new();
            other.set_text(property, earlier)?;
            if one.get(property) != other.get(property) {
                return Err(conflict(first, word, property));
            }
            return Ok(());
        }
        self.stated.insert(property, (value.into(), word));
        Ok(())
    }

    fn secure(&mut self, need: SecurityNeed, word: &'a str) -> Result<(), ParseError> {
        self.security = Some(match (self.security, need) {
            (None, _) => (need, word),
            // Of two minima the higher one holds both.
            (Some((SecurityNeed::Required { minimum: a }, first)), SecurityNeed::Required { minimum: b }) => {
                (SecurityNeed::Required { minimum: a.max(b) }, if b > a { word } else { first })
            }
            (Some((earlier, first)), _) if earlier == need => (earlier, first),
            (Some((_, first)), _) => return Err(conflict(first, word, "security")),
        });
        Ok(())
    }

    fn finish(self) -> Result<Parsed, ParseError> {
        let mut properties = self.base;
        for (name, value) in self.implied {
            // A profile is as much a statement as a word, and an implication less than either.
            let in_profile =
                SelectionProperty::from_name(name).is_some_and(|p| properties.explicit_preference(p).is_some());
            if !in_profile {
                properties.set_text(name, value)?;
            }
        }
        for (name, (value, _)) in self.stated {
            properties.set_text(name, &value)?;
        }
        Ok(Parsed { properties, security: self.security.map(|(need, _)| need) })
    }
}

/// Adds the preferences of `from` for interfaces and provisioning domains.
fn add_sets(to: &mut TransportProperties, from: &TransportProperties) -> Result<(), PropertyError> {
    from.interfaces().iter().try_for_each(|(preference, name)| to.interface(*preference, name).map(drop))?;
    from.pvds().iter().try_for_each(|(preference, name)| to.pvd(*preference, name).map(drop))
}

fn conflict(first: &str, second: &str, property: &'static str) -> ParseError {
    ParseError::Conflict { first: shortened(first), second: shortened(second), property }
}

fn unknown(word: &str) -> ParseError {
    let names = PROPERTIES.iter().filter(|p| p.class != Class::ReadOnly).map(|p| p.name);
    let known = WORDS.iter().map(|w| w.word).chain(PROFILES).chain(names);
    ParseError::Unknown { word: shortened(word), close: close_matches(word, known) }
}

#[cfg(test)]
mod tests;
