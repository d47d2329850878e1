//! The range of the part that an answer carries.

use http::HeaderValue;

/// A Content-Range in bytes (RFC 9110 section 14.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentRange {
    /// `bytes 5-9/10`: bytes from the first to the last, both included.
    Part {
        /// The first byte, counted from 0.
        first: u64,
        /// The last byte, not before the first.
        last: u64,
        /// How long the whole is; `None` if the server does not know (`*`).
        total: Option<u64>,
    },
    /// `bytes */10`: there is no such part.
    None {
        /// How long the whole is.
        total: u64,
    },
}

impl ContentRange {
    /// Reads the field's value; `None` if it makes no sense, or is not about bytes.
    #[must_use]
    pub fn parse(value: &HeaderValue) -> Option<Self> {
        // RFC 9110 section 14.1: units are the same in any case.
        let (unit, rest) = value.to_str().ok()?.split_once(' ')?;
        let (range, total) = rest.split_once('/').filter(|_| unit.eq_ignore_ascii_case("bytes"))?;
        let total = total.trim();
        if range.trim() == "*" {
            return Some(Self::None { total: number(total)? });
        }
        let (first, last) = range.split_once('-')?;
        let (first, last) = (number(first.trim())?, number(last.trim())?);
        let total = if total == "*" { None } else { Some(number(total)?) };
        // The length of the range must be a number, too.
        (first <= last && last < total.unwrap_or(u64::MAX)).then_some(Self::Part { first, last, total })
    }
}

/// Digits alone: a sign has no place there.
fn number(text: &str) -> Option<u64> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_make_no_sense_are_none() {
        let of = |text: &'static str| ContentRange::parse(&HeaderValue::from_static(text));
        assert_eq!(of("bytes 5-9/10"), Some(ContentRange::Part { first: 5, last: 9, total: Some(10) }));
        assert_eq!(of("bytes 5-9/*"), Some(ContentRange::Part { first: 5, last: 9, total: None }));
        assert_eq!(of("bytes */10"), Some(ContentRange::None { total: 10 }));
        for bad in [
            "bytes 9-5/10",
            "bytes 5-10/10",
            "lines 1-2/3",
            "bytes 1/2",
            "bytes -1-2/3",
            "bytes +1-2/3",
            "bytes */*",
            "bytes 0-18446744073709551615/*",
        ] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
