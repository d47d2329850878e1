//! Values and their intersection.

use core::fmt::{self, Write as _};

/// How many elements a set may have.
pub const MAX_SET: usize = 256;

/// A value: none in particular, a single one, a set, or a range.
///
/// Make sets and ranges with [`NeatValue::set`] and [`NeatValue::range`], which keep their rules.
#[derive(Clone, Debug, PartialEq)]
pub enum NeatValue {
    /// Any value: what a property without a value has.
    Any,
    /// A Boolean; not a number.
    Bool(bool),
    /// A number.
    Number(f64),
    /// A text; its case counts.
    Text(String),
    /// One of several single values. Empty, it matches nothing but [`NeatValue::Any`].
    Set(Vec<NeatValue>),
    /// Any number from `start` to `end`, both included. Bounds may be infinite.
    Range {
        /// The least number.
        start: f64,
        /// The greatest number.
        end: f64,
    },
}

/// A value that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InvalidValue {
    /// A range whose bounds are no numbers, missing, or in the wrong order.
    Range,
    /// A set with an element that is no single value.
    Element,
    /// A set of more than [`MAX_SET`] elements.
    SetTooLarge,
    /// A number that is infinite or NaN.
    NotFinite,
}

impl fmt::Display for InvalidValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range => {
                f.write_str("a range needs a start and an end that are numbers, the start not above the end")
            }
            Self::Element => f.write_str("a set holds texts, numbers and Booleans only"),
            Self::SetTooLarge => write!(f, "a set holds at most {MAX_SET} elements"),
            Self::NotFinite => f.write_str("a number must be finite"),
        }
    }
}

impl std::error::Error for InvalidValue {}

impl NeatValue {
    /// The set of `elements`: repeated ones count once, and exactly one is that single value.
    ///
    /// # Errors
    /// [`InvalidValue`] when an element is a set, a range, any, or not finite, or there are more
    /// than [`MAX_SET`].
    pub fn set(elements: impl IntoIterator<Item = Self>) -> Result<Self, InvalidValue> {
        let mut set: Vec<Self> = Vec::new();
        for (i, element) in elements.into_iter().enumerate() {
            match &element {
                _ if i >= MAX_SET => return Err(InvalidValue::SetTooLarge),
                Self::Any | Self::Set(_) | Self::Range { .. } => return Err(InvalidValue::Element),
                Self::Number(n) if !n.is_finite() => return Err(InvalidValue::NotFinite),
                _ if set.contains(&element) => {}
                _ => set.push(element),
            }
        }
        Ok(Self::of_elements(set))
    }

    /// The range from `start` to `end`.
    ///
    /// # Errors
    /// [`InvalidValue::Range`] when `start` is above `end` or either is NaN.
    pub fn range(start: f64, end: f64) -> Result<Self, InvalidValue> {
        if start <= end { Ok(Self::Range { start, end }) } else { Err(InvalidValue::Range) }
    }

    /// Elements that are single and differ already.
    fn of_elements(mut elements: Vec<Self>) -> Self {
        match (elements.pop(), elements.is_empty()) {
            (Some(only), true) => only,
            (Some(last), false) => {
                elements.push(last);
                Self::Set(elements)
            }
            (None, _) => Self::Set(elements),
        }
    }

    /// What satisfies both; `None` when nothing does. Takes time proportional to the product of the
    /// sizes of two sets.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Any, value) | (value, Self::Any) => Some(value.clone()),
            (Self::Set(a), b) => {
                let common: Vec<Self> = a.iter().filter(|x| b.holds(x)).cloned().collect();
                (!common.is_empty()).then(|| Self::of_elements(common))
            }
            (a, b @ Self::Set(_)) => b.intersect(a),
            (Self::Range { start: a, end: b }, Self::Range { start: c, end: d }) => {
                let (start, end) = (a.max(*c), b.min(*d));
                match start.partial_cmp(&end)? {
                    core::cmp::Ordering::Less => Some(Self::Range { start, end }),
                    // An infinite point is no number: a range can hold it, a single value cannot.
                    core::cmp::Ordering::Equal if start.is_infinite() => Some(Self::Range { start, end }),
                    core::cmp::Ordering::Equal => Some(Self::Number(start)),
                    core::cmp::Ordering::Greater => None,
                }
            }
            (single, b) if b.holds(single) => Some(single.clone()),
            (a, single) if a.holds(single) => Some(single.clone()),
            _ => None,
        }
    }

    /// Whether anything satisfies both.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.intersect(other).is_some()
    }

    /// Whether the single value `x` satisfies this value.
    fn holds(&self, x: &Self) -> bool {
        match (self, x) {
            (Self::Any, _) => true,
            (Self::Set(elements), x) => elements.contains(x),
            (Self::Range { start, end }, Self::Number(n)) => start <= n && n <= end,
            (Self::Range { .. }, _) => false,
            (single, x) => single == x,
        }
    }
}

/// A text from wherever, on one line.
fn write_shown(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    text.chars().try_for_each(|c| f.write_char(if c.is_control() { '\u{fffd}' } else { c }))
}

impl fmt::Display for NeatValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Bool(b) => b.fmt(f),
            Self::Number(n) => n.fmt(f),
            Self::Text(t) => write_shown(f, t),
            Self::Set(elements) => {
                f.write_str("{")?;
                for (i, element) in elements.iter().enumerate() {
                    write!(f, "{}{element}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str("}")
            }
            Self::Range { start, end } => write!(f, "{start} to {end}"),
        }
    }
}

impl From<bool> for NeatValue {
    fn from(b: bool) -> Self {
        Self::Bool(b)
    }
}

impl From<f64> for NeatValue {
    fn from(n: f64) -> Self {
        Self::Number(n)
    }
}

impl From<&str> for NeatValue {
    fn from(t: &str) -> Self {
        Self::Text(t.into())
    }
}
