//! Values as they come from a program or a command line, and what can be wrong with them.

use crate::preference::Preference;
use core::fmt;
use core::time::Duration;

/// How much of a foreign text an error repeats, in characters.
const ECHO: usize = 48;

/// The value of a property, not yet checked against its type.
///
/// Durations are numbers of seconds, rates numbers of bits per second. `Disabled`, `Unlimited`,
/// `Infinite` and `Full Coverage` are texts, as are the names of enumerations.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A preference.
    Preference(Preference),
    /// A Boolean.
    Bool(bool),
    /// An Integer; none of RFC 9622 is negative.
    Integer(u64),
    /// A Numeric.
    Number(f64),
    /// A text, or a value of any other type written as one.
    Text(String),
    /// Preferences for named things: interfaces or provisioning domains.
    Set(Vec<(Preference, String)>),
}

impl Value {
    /// The value as a preference: also a Boolean (true is Require, false Prohibit) or a text.
    #[must_use]
    pub fn as_preference(&self) -> Option<Preference> {
        match self {
            Self::Preference(p) => Some(*p),
            Self::Bool(true) => Some(Preference::Require),
            Self::Bool(false) => Some(Preference::Prohibit),
            Self::Text(text) => Preference::from_text(text),
            Self::Integer(_) | Self::Number(_) | Self::Set(_) => None,
        }
    }

    /// The value as a Boolean: also a text such as `yes` or `off`.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(b) => Some(*b),
            Self::Text(t) if ["true", "yes", "on"].iter().any(|w| is_word(t, w)) => Some(true),
            Self::Text(t) if ["false", "no", "off"].iter().any(|w| is_word(t, w)) => Some(false),
            _ => None,
        }
    }

    /// The value as a number that is neither infinite nor NaN.
    #[must_use]
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Self::Integer(n) => Some(*n as f64),
            Self::Number(n) => Some(*n),
            Self::Text(t) => t.trim().parse().ok(),
            _ => None,
        }
        .filter(|n| n.is_finite())
    }

    /// The value as an integer: also a number without a fraction.
    #[must_use]
    pub fn as_integer(&self) -> Option<u64> {
        /// Above this, not every integer is a double.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        match self {
            Self::Integer(n) => Some(*n),
            Self::Text(t) => t.trim().parse().ok(),
            Self::Number(n) if n.fract() == 0.0 && (0.0..=EXACT).contains(n) => Some(*n as u64),
            _ => None,
        }
    }

    /// Whether the value is the text `word`, whatever its case and separators.
    #[must_use]
    pub fn is_text(&self, word: &str) -> bool {
        matches!(self, Self::Text(t) if is_word(t, word))
    }

    /// The value as a length of time: a number of seconds, or a text with one of the units `us`,
    /// `ms`, `s`, `min`, `h`. Rounded to microseconds.
    #[must_use]
    pub fn as_duration(&self) -> Option<Duration> {
        const UNITS: [(&str, f64); 5] = [("us", 1e-6), ("ms", 1e-3), ("min", 60.0), ("h", 3600.0), ("s", 1.0)];
        let seconds = match self {
            Self::Text(t) => with_unit(t, &UNITS)?,
            _ => self.as_number()?,
        };
        let micros = (seconds * 1e6).round();
        (0.0..=u64::MAX as f64 / 2.0).contains(&micros).then(|| Duration::from_micros(micros as u64))
    }

    /// The value as a rate in bit/s: a number, or a text with one of the units `k`, `M`, `G`
    /// (powers of 1000).
    #[must_use]
    pub fn as_bit_rate(&self) -> Option<u64> {
        const UNITS: [(&str, f64); 3] = [("k", 1e3), ("m", 1e6), ("g", 1e9)];
        let rate = match self {
            Self::Text(t) => with_unit(t, &UNITS)?,
            _ => self.as_number()?,
        };
        (0.0..=u64::MAX as f64 / 2.0).contains(&rate).then(|| rate.round() as u64)
    }
}

/// A number with an optional unit behind it.
fn with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let lower = text.trim().to_ascii_lowercase();
    let digits_end = lower.rfind(|c: char| c.is_ascii_digit() || c == '.').map_or(0, |i| i + 1);
    let (number, unit) = lower.split_at_checked(digits_end)?;
    let factor = match unit.trim() {
        "" => 1.0,
        unit => units.iter().find(|(name, _)| *name == unit)?.1,
    };
    number.parse::<f64>().ok().map(|n| n * factor).filter(|n| n.is_finite())
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Preference(p) => p.fmt(f),
            Self::Bool(b) => b.fmt(f),
            Self::Integer(n) => n.fmt(f),
            Self::Number(n) => n.fmt(f),
            Self::Text(t) => f.write_str(t),
            Self::Set(items) => {
                for (i, (preference, name)) in items.iter().enumerate() {
                    write!(f, "{}{preference}:{name}", if i == 0 { "" } else { "+" })?;
                }
                Ok(())
            }
        }
    }
}

impl From<Preference> for Value {
    fn from(p: Preference) -> Self {
        Self::Preference(p)
    }
}

impl From<bool> for Value {
    fn from(b: bool) -> Self {
        Self::Bool(b)
    }
}

impl From<u32> for Value {
    fn from(n: u32) -> Self {
        Self::Integer(n.into())
    }
}

impl From<i32> for Value {
    /// A number as it stands in a program. A negative one is no Integer, and none that any property
    /// takes.
    fn from(n: i32) -> Self {
        u64::try_from(n).map_or(Self::Number(n.into()), Self::Integer)
    }
}

impl From<i64> for Value {
    /// As of an `i32`.
    fn from(n: i64) -> Self {
        u64::try_from(n).map_or(Self::Number(n as f64), Self::Integer)
    }
}

impl From<u64> for Value {
    fn from(n: u64) -> Self {
        Self::Integer(n)
    }
}

impl From<f64> for Value {
    fn from(n: f64) -> Self {
        Self::Number(n)
    }
}

impl From<&str> for Value {
    fn from(t: &str) -> Self {
        Self::Text(t.into())
    }
}

impl From<String> for Value {
    fn from(t: String) -> Self {
        Self::Text(t)
    }
}

impl From<Duration> for Value {
    /// In seconds.
    fn from(d: Duration) -> Self {
        Self::Number(d.as_secs_f64())
    }
}

/// Why a property could not be set. The properties are as they were before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropertyError {
    /// There is no property of this name.
    Unknown {
        /// The name that was given, shortened.
        name: String,
        /// Names that look like it, best first; at most three.
        close: Vec<&'static str>,
    },
    /// The property is of another type, or the value is outside its range.
    Invalid {
        /// The property.
        property: &'static str,
        /// What it takes.
        expected: &'static str,
        /// The value that was given, shortened.
        got: String,
    },
    /// The property is read-only (RFC 9622 section 8.1.11).
    ReadOnly {
        /// The property.
        property: &'static str,
    },
}

impl fmt::Display for PropertyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, close } => {
                write!(f, "there is no property '{name}'")?;
                write_close(f, close)
            }
            Self::Invalid { property, expected, got } => write!(f, "{property} takes {expected}, not '{got}'"),
            Self::ReadOnly { property } => write!(f, "{property} can be read but not set"),
        }
    }
}

impl std::error::Error for PropertyError {}

/// Writes what may have been meant.
pub(crate) fn write_close(f: &mut fmt::Formatter<'_>, close: &[&str]) -> fmt::Result {
    match close {
        [] => Ok(()),
        [one] => write!(f, "; did you mean {one}?"),
        [rest @ .., last] => write!(f, "; did you mean {} or {last}?", rest.join(", ")),
    }
}

/// The error for a value that `property` does not take.
pub(crate) fn invalid(property: &'static str, expected: &'static str, got: &Value) -> PropertyError {
    PropertyError::Invalid { property, expected, got: shortened(&got.to_string()) }
}

/// The beginning of a foreign text, without control characters.
pub(crate) fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(ECHO).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(ECHO).is_some() {
        short.push('\u{2026}');
    }
    short
}

/// Whether `given` is `name` in any case, or its transposition into snake_case, kebab-case or
/// PascalCase (RFC 9622 section 4.1): a separator may stand only where `name` has a capital letter.
pub(crate) fn is_name(given: &str, name: &str) -> bool {
    let mut given = given.bytes().peekable();
    for (i, c) in name.bytes().enumerate() {
        if i > 0 && c.is_ascii_uppercase() {
            let _ = given.next_if(|g| matches!(g, b'_' | b'-'));
        }
        if !given.next().is_some_and(|g| g.eq_ignore_ascii_case(&c)) {
            return false;
        }
    }
    given.next().is_none()
}

/// Whether two words are the same but for case and the separators ` `, `-`, `_` and `/`.
pub(crate) fn is_word(a: &str, b: &str) -> bool {
    fn bare(text: &str) -> impl Iterator<Item = u8> + '_ {
        text.bytes().filter(|c| !matches!(c, b' ' | b'-' | b'_' | b'/')).map(|c| c.to_ascii_lowercase())
    }
    bare(a).eq(bare(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_rates_may_carry_a_unit() {
        let duration = |t: &str| Value::from(t).as_duration();
        assert_eq!(duration("1.5"), Some(Duration::from_millis(1500)));
        assert_eq!(duration("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(duration("2 min"), Some(Duration::from_secs(120)));
        assert_eq!(duration("7us"), Some(Duration::from_micros(7)));
        assert_eq!(Value::from("5M").as_bit_rate(), Some(5_000_000));
        assert_eq!(Value::from("2.5k").as_bit_rate(), Some(2500));
        for wrong in ["", "ms", "-1", "1 fortnight", "1e999", "nan", "inf", "1.2.3", "é5"] {
            assert_eq!(duration(wrong), None, "{wrong}");
            assert_eq!(Value::from(wrong).as_bit_rate(), None, "{wrong}");
        }
    }

    #[test]
    fn numbers_that_are_not_finite_are_no_numbers() {
        for n in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(Value::Number(n).as_number(), None);
            assert_eq!(Value::Number(n).as_integer(), None);
            assert_eq!(Value::Number(n).as_duration(), None);
        }
        assert_eq!(Value::Number(1.5).as_integer(), None);
        assert_eq!(Value::Number(-1.0).as_integer(), None);
        assert_eq!(Value::Number(100.0).as_integer(), Some(100));
    }

    #[test]
    fn errors_repeat_only_the_beginning_of_a_foreign_text() {
        let long = "x\u{7}".repeat(10_000);
        let shown = shortened(&long);
        assert_eq!(shown.chars().count(), ECHO + 1);
        assert!(!shown.chars().any(char::is_control));
    }
}
